#include <stdio.h>
#include "kvstore.h"

int main(void)
{
    KVStore *kv;
    KVIterator *it = NULL;
    void *key, *value;
    int nKey, nValue, rc;

    rc = kvstore_open("quickstart.db", &kv, KVSTORE_JOURNAL_WAL);
    if (rc == KVSTORE_OK) rc = kvstore_put(kv, "user:1", 6, "Ada", 3);
    if (rc == KVSTORE_OK) rc = kvstore_put_for(kv, "user:2", 6, "Bob", 3, 60000); /* for a minute */
    if (rc == KVSTORE_OK) rc = kvstore_get(kv, "user:1", 6, &value, &nValue);
    if (rc == KVSTORE_OK) {
        printf("user:1 is %s\n", (char *)value); /* a copy, with a NUL after it */
        kvstore_free(value);
        rc = kvstore_prefix_iterator_create(kv, "user:", 5, &it);
    }
    for (; rc == KVSTORE_OK && !kvstore_iterator_eof(it); rc = kvstore_iterator_next(it)) {
        kvstore_iterator_key(it, &key, &nKey);
        kvstore_iterator_value(it, &value, &nValue);
        printf("%.*s = %.*s\n", nKey, (char *)key, nValue, (char *)value);
    }
    if (rc != KVSTORE_OK) fprintf(stderr, "kvstore: %s\n", kvstore_errmsg(kv));
    kvstore_iterator_close(it);
    kvstore_close(kv);
    return rc;
}

/* Uses an installed kvstore and nothing else: one key with a TTL and one without, in the store argv[1]. */
#include <kvstore.h>
#include <stdio.h>
#include <string.h>

#define OK(call)                                                                                         \
    do {                                                                                                 \
        int ok_code = (call);                                                                            \
        if (ok_code != KVSTORE_OK) {                                                                     \
            fprintf(stderr, "%s: %s\n", #call, kvstore_strerror(ok_code));                               \
            return 1;                                                                                    \
        }                                                                                                \
    } while (0)

int main(int argc, char **argv)
{
    KVStore *kv = NULL;
    void *value = NULL;
    int length = 0;

    if (argc != 2) return 2;
    OK(kvstore_open(argv[1], &kv, KVSTORE_JOURNAL_WAL));
    OK(kvstore_put(kv, "key", 3, "value", 5));
    OK(kvstore_put_ttl(kv, "dead", 4, "value", 5, kvstore_now_ms() - 1));
    OK(kvstore_get(kv, "key", 3, &value, &length));
    if (length != 5 || memcmp(value, "value", 5) != 0) return 3;
    kvstore_free(value);
    if (kvstore_get(kv, "dead", 4, &value, &length) != KVSTORE_NOTFOUND) return 4;
    OK(kvstore_close(kv));
    printf("kvstore %s\n", kvstore_version());
    return 0;
}

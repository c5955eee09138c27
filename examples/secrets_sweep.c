/* Secrets that must not grow old: whatever was not rotated for too long is swept away.
 *
 * In BoltDB this takes two buckets, the secrets and an index from write time to key, and every writer has
 * to keep them in step: an overwrite that leaves its old index entry behind deletes a fresh secret, a crash
 * between two transactions makes one immortal. Here the family tracks the time of each write itself, and
 * kvstore_cf_sweep removes a secret and its index entry in one transaction.
 *
 *     cc -std=c11 examples/secrets_sweep.c -Iinclude -lkvstore && ./a.out [secrets.db]
 */
#define _POSIX_C_SOURCE 200809L /* nanosleep */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kvstore.h"

enum { MAX_AGE_MS = 1000 };

static KVStore *kv;
static KVColumnFamily *secrets;

/* Ends the program if a call has failed. */
static void must(int rc)
{
    if (rc == KVSTORE_OK) return;
    fprintf(stderr, "%s: %s\n", kvstore_strerror(rc), kvstore_errmsg(kv));
    exit(1);
}

static void keep(const char *name, const char *secret)
{
    must(kvstore_cf_put(secrets, name, (int)strlen(name), secret, (int)strlen(secret)));
}

/* The secrets there are, and their ages. The values are not read for it. */
static void list(const char *when)
{
    KVIterator *it;
    int rc;
    printf("%s:", when);
    must(kvstore_cf_range_iterator_create(secrets, NULL, 0, NULL, 0, KVSTORE_RANGE_KEYS_ONLY, &it));
    while (!kvstore_iterator_eof(it)) {
        void *name;
        int n;
        int64_t written;
        must(kvstore_iterator_key(it, &name, &n));
        rc = kvstore_cf_write_time(secrets, name, n, &written);
        if (rc != KVSTORE_NOTFOUND) { /* it may have been removed since */
            must(rc);
            printf(" %.*s (%s)", n, (char *)name, kvstore_now_ms() - written > MAX_AGE_MS ? "old" : "fresh");
        }
        must(kvstore_iterator_next(it));
    }
    kvstore_iterator_close(it);
    printf("\n");
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

int main(int argc, char **argv)
{
    int64_t swept;
    int rotated;

    must(kvstore_open(argc > 1 ? argv[1] : NULL, &kv, KVSTORE_JOURNAL_WAL)); /* NULL: in memory */
    int rc = kvstore_cf_open(kv, "secrets", &secrets);
    must(rc == KVSTORE_NOTFOUND ? kvstore_cf_create(kv, "secrets", &secrets) : rc);
    must(kvstore_cf_set_write_tracking(secrets, 1)); /* kept in the file */

    keep("api-key", "first");
    keep("db-password", "hunter2");
    keep("forgotten", "who still knows?");
    list("written          ");
    sleep_ms(MAX_AGE_MS + 20);
    list("some time later  ");

    /* Rotation: written again, and therefore young. The swap fails if somebody else has rotated it. */
    must(kvstore_cf_compare_and_swap(secrets, "api-key", 7, "first", 5, "second", 6, 0, &rotated));
    keep("db-password", "correct horse");
    /* Another TTL is no write: this secret stays as old as it is. */
    must(kvstore_cf_expire(secrets, "forgotten", 9, kvstore_now_ms() + 3600000, 0, NULL));
    list("two are rotated  ");

    must(kvstore_cf_sweep(secrets, MAX_AGE_MS, &swept));
    printf("swept            : %lld\n", (long long)swept);
    list("left             ");
    must(kvstore_cf_sweep(secrets, MAX_AGE_MS, &swept)); /* no index entry was left behind to hurt them */
    printf("swept again      : %lld\n", (long long)swept);

    sleep_ms(MAX_AGE_MS + 20);
    must(kvstore_cf_sweep(secrets, MAX_AGE_MS, &swept));
    printf("swept, much later: %lld\n", (long long)swept);
    must(kvstore_integrity_check(kv, NULL)); /* data, TTLs and write times agree */
    printf("integrity check  : ok\n");
    kvstore_cf_close(secrets);
    must(kvstore_close(kv));
    return rotated ? 0 : 1;
}

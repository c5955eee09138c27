/* Secrets with a maximum age: a secret that has not been rotated in time is removed.
 *
 * The store records the time of each write (kvstore_set_write_tracking). kvstore_sweep removes old secrets
 * together with their index entries, in one transaction.
 *
 * With a store that lacks this, such as BoltDB, the program keeps an index from write time to key itself. If an
 * overwrite leaves its old index entry, a new secret is deleted. If a crash separates the two writes, an old
 * secret is never deleted.
 *
 * Compile in the source tree, after "cargo rustc --release --lib --crate-type cdylib", and run:
 *
 *     cc -std=c11 examples/secrets_sweep.c -Iinclude -Ltarget/release -lkvstore -Wl,-rpath,target/release -o secrets_sweep
 *     ./secrets_sweep [secrets.db]
 */
#define _POSIX_C_SOURCE 200809L /* nanosleep */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kvstore.h"

enum { MAX_AGE_MS = 1000 };

static KVStore *kv;

/* Exits with a message if a call failed. */
static void must(int rc)
{
    if (rc == KVSTORE_OK) return;
    fprintf(stderr, "%s: %s\n", kvstore_strerror(rc), kvstore_errmsg(kv));
    exit(1);
}

static void keep(const char *name, const char *secret)
{
    must(kvstore_put(kv, name, (int)strlen(name), secret, (int)strlen(secret)));
}

/* Prints the names of all secrets and whether they are old. Reads no values. */
static void list(const char *when)
{
    KVIterator *it;
    int rc;
    printf("%s:", when);
    must(kvstore_range_iterator_create(kv, NULL, 0, NULL, 0, KVSTORE_RANGE_KEYS_ONLY, &it));
    while (!kvstore_iterator_eof(it)) {
        void *name;
        int n;
        int64_t written;
        must(kvstore_iterator_key(it, &name, &n));
        rc = kvstore_write_time(kv, name, n, &written);
        if (rc != KVSTORE_NOTFOUND) { /* it may have been removed meanwhile */
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
    must(kvstore_set_write_tracking(kv, 1)); /* stored in the file */

    keep("api-key", "first");
    keep("db-password", "hunter2");
    keep("forgotten", "who still knows?");
    list("written          ");
    sleep_ms(MAX_AGE_MS + 20);
    list("some time later  ");

    /* Rotation is a new write. The swap fails if another process has rotated the secret. */
    must(kvstore_compare_and_swap(kv, "api-key", 7, "first", 5, "second", 6, 0, &rotated));
    keep("db-password", "correct horse");
    /* A change of the expiry time is not a write: the age of the secret stays the same. */
    must(kvstore_expire(kv, "forgotten", 9, kvstore_now_ms() + 3600000, 0, NULL));
    list("two are rotated  ");

    must(kvstore_sweep(kv, MAX_AGE_MS, &swept));
    printf("swept            : %lld\n", (long long)swept);
    list("left             ");
    must(kvstore_sweep(kv, MAX_AGE_MS, &swept)); /* no stale index entry: nothing to remove */
    printf("swept again      : %lld\n", (long long)swept);

    sleep_ms(MAX_AGE_MS + 20);
    must(kvstore_sweep(kv, MAX_AGE_MS, &swept));
    printf("swept, much later: %lld\n", (long long)swept);
    must(kvstore_integrity_check(kv, NULL)); /* data, expiry index and write times are consistent */
    printf("integrity check  : ok\n");
    must(kvstore_close(kv));
    return rotated ? 0 : 1;
}

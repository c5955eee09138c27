/* Starts and stops the cleaner as often as the argument states, while four threads put and get keys with
 * short TTLs through the same handle; then checks everything. For valgrind --tool=helgrind and
 * ThreadSanitizer:
 *
 *     cleaner_soak 1000 [soak.db]
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { THREADS = 4, KEYS = 64 };

static KVStore *kv;
static atomic_int done;
static atomic_long written, hits;

static void *work(void *number)
{
    KVColumnFamily *cf;
    unsigned state = (unsigned)(uintptr_t)number * 2654435761u + 1;
    if ((uintptr_t)number % 2) {
        OK(kvstore_cf_open(kv, "family", &cf));
    } else {
        OK(kvstore_cf_get_default(kv, &cf));
    }
    while (!done) {
        char key[16];
        void *value;
        int n, length;
        state = state * 1664525u + 1013904223u;
        n = snprintf(key, sizeof key, "key %u", state >> 16 & (KEYS - 1));
        if (state >> 30) {
            int64_t life_ms = 1 + (int64_t)(state >> 24 & 7);
            OK(kvstore_cf_put_ttl(cf, key, n, key, n, kvstore_now_ms() + life_ms)); /* never BUSY */
            written++;
        } else {
            int code = kvstore_cf_get(cf, key, n, &value, &length);
            CHECK(code == KVSTORE_OK || code == KVSTORE_NOTFOUND);
            CHECK(code == KVSTORE_NOTFOUND || (length == n && memcmp(value, key, (size_t)n) == 0));
            hits += code == KVSTORE_OK;
            kvstore_free(value);
        }
    }
    kvstore_cf_close(cf);
    return NULL;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 50;
    const char *path = argc > 2 ? argv[2] : "soak.db";
    char *message = NULL, wal[256];
    pthread_t threads[THREADS];
    KVColumnFamily *cf;
    KVStoreStats stats;

    OK(kvstore_open(path, &kv, KVSTORE_JOURNAL_WAL));
    OK(kvstore_cf_create(kv, "family", &cf));
    kvstore_cf_close(cf);
    for (uintptr_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    }
    for (int i = 0; i < rounds; i++) {
        OK(kvstore_cleaner_start(kv, 1, i % 3 ? 0 : 10));
        if (i % 2) { /* let it work for a moment every other time */
            nanosleep(&(struct timespec){0, i % 10 * 500000}, NULL);
        }
        if (i % 5 == 0) {
            GIVES(KVSTORE_ERROR, kvstore_cleaner_start(kv, 1, 0));
        }
        OK(kvstore_cleaner_stop(kv));
    }
    OK(kvstore_cleaner_start(kv, 1, 0)); /* one more, for close to stop, with all threads still at work */
    done = 1;
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    OK(kvstore_stats(kv, &stats));
    OK(kvstore_close(kv));
    snprintf(wal, sizeof wal, "%s-wal", path);
    CHECK(access(wal, F_OK) != 0); /* no connection is left */

    OK(kvstore_open(path, &kv, KVSTORE_JOURNAL_WAL));
    GIVES(KVSTORE_OK, kvstore_integrity_check(kv, &message));
    CHECK(message == NULL);
    OK(kvstore_close(kv));
    printf("%d starts and stops, %ld puts, %ld gets of live keys, %llu keys purged: all is well\n", rounds,
           (long)written, (long)hits, (unsigned long long)stats.nTtlPurged);
    return 0;
}

/* Latency of puts while the cleaner purges. There are 200 000 expired keys, and plain puts go
 * through the same handle, which waits for no lock (busyTimeout 0). Every put must succeed. Prints
 * the latencies of puts while the cleaner works, and of the same number after it has finished.
 * Build the library with --release:
 *
 *     cleaner_latency [keys] [latency.db]
 */
#include <stdint.h>
#include <time.h>

#include "check.h"

enum { MOST = 2000000 };

static KVStore *kv;
static int32_t waits[MOST]; /* in tenths of microseconds */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void put(int i)
{
    char key[24], value[100] = {0};
    int n = snprintf(key, sizeof key, "put %d", i % 5000);
    int64_t start = now_ns();
    OK(kvstore_put(kv, key, n, value, sizeof value)); /* BUSY would end it here */
    waits[i] = (int32_t)((now_ns() - start) / 100);
}

static int by_size(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void print_histogram(const char *what, int count, double seconds)
{
    static const double parts[] = {0.5, 0.9, 0.99, 0.999};
    int bucket = 0;
    qsort(waits, (size_t)count, sizeof *waits, by_size);
    printf("%s: %d puts in %.2f s\n ", what, count, seconds);
    for (int i = 0; i < 4; i++) {
        printf(" p%g %.1f us,", parts[i] * 100, waits[(int)(parts[i] * (count - 1))] / 10.0);
    }
    printf(" max %.1f us\n", waits[count - 1] / 10.0);
    for (int64_t below = 100; bucket < count; below *= 2) { /* in powers of two from 10 us */
        int from = bucket;
        while (bucket < count && waits[bucket] < below) bucket++;
        if (bucket > from) printf("    < %8.0f us: %7d\n", (double)below / 10, bucket - from);
    }
}

int main(int argc, char **argv)
{
    int keys = argc > 1 ? atoi(argv[1]) : 200000, count = 0;
    KVColumnFamily *cf;
    int64_t left, start, past;

    OK(kvstore_open(argc > 2 ? argv[2] : "latency.db", &kv, KVSTORE_JOURNAL_WAL));
    OK(kvstore_cf_create(kv, "sessions", &cf));
    past = kvstore_now_ms() - keys;
    for (int i = 0; i < keys; i++) {
        char key[24], value[100] = {0};
        int n = snprintf(key, sizeof key, "session %d", i * 7919 % keys);
        if (i % 1000 == 0) OK(kvstore_begin(kv, 1));
        OK(kvstore_cf_put_ttl(cf, key, n, value, sizeof value, past + i));
        if (i % 1000 == 999 || i == keys - 1) OK(kvstore_commit(kv));
    }
    OK(kvstore_checkpoint(kv, KVSTORE_CHECKPOINT_TRUNCATE, NULL, NULL));

    OK(kvstore_cleaner_start(kv, 1, 0));
    start = now_ns();
    do {
        for (int i = 0; i < 20 && count < MOST; i++) put(count++);
    } while (kvstore_cf_next_expiry(cf, &left) == KVSTORE_OK && count < MOST);
    double seconds = (double)(now_ns() - start) / 1e9;
    OK(kvstore_cleaner_stop(kv));
    GIVES(KVSTORE_NOTFOUND, kvstore_cf_next_expiry(cf, &left)); /* everything is removed */
    OK(kvstore_cf_count(cf, &left));
    CHECK(left == 0);
    printf("%d expired keys purged by the cleaner in %.2f s\n", keys, seconds);
    print_histogram("while it works", count, seconds);

    start = now_ns();
    for (int i = 0; i < count; i++) put(i);
    print_histogram("without it", count, (double)(now_ns() - start) / 1e9);
    OK(kvstore_integrity_check(kv, NULL));
    kvstore_cf_close(cf);
    OK(kvstore_close(kv));
    return 0;
}

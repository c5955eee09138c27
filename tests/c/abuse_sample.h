/* Helpers of the abuse_*.c programs: a store with one entry of every kind, a fingerprint of the
 * content of a store, and calls of every function that takes a handle, all of which must refuse
 * an invalid one. */
#ifndef ABUSE_SAMPLE_C
#define ABUSE_SAMPLE_C

#include <stdint.h>

#include "check.h"

#define SAMPLE_NOW 1000000

static inline int under_valgrind(void)
{
    return getenv("UNDER_VALGRIND") != NULL;
}

/* Time limit, in seconds, of a process that may deadlock. Longer under valgrind and QEMU
 * (KVSTORE_CROSS), where programs are slow. */
static inline unsigned patience(unsigned seconds)
{
    return under_valgrind() || getenv("KVSTORE_CROSS") != NULL ? 5 * seconds : seconds;
}

static inline int64_t sample_clock(void *context)
{
    (void)context;
    return SAMPLE_NOW;
}

/* Stores entries of every kind: plain, empty, large, with an expiry time, and expired; and three families. */
static inline void sample_fill(KVStore *kv)
{
    static char large[5000];
    KVColumnFamily *cf;

    memset(large, 'L', sizeof large);
    OK(kvstore_set_clock(kv, sample_clock, NULL));
    OK(kvstore_put(kv, "plain", 5, "value", 5));
    OK(kvstore_put(kv, "empty", 5, "", 0));
    OK(kvstore_put(kv, "large", 5, large, sizeof large));
    OK(kvstore_put(kv, "\0\xff", 2, "any bytes", 9));
    OK(kvstore_put_ttl(kv, "mortal", 6, "a while", 7, SAMPLE_NOW + 5000));
    OK(kvstore_put_ttl(kv, "dead", 4, "gone", 4, SAMPLE_NOW - 1));
    OK(kvstore_cf_create(kv, "empty family", &cf));
    kvstore_cf_close(cf);
    OK(kvstore_cf_create(kv, "other", &cf));
    OK(kvstore_cf_put(cf, "plain", 5, "another value", 13));
    OK(kvstore_cf_put_ttl(cf, "mortal", 6, large, sizeof large, SAMPLE_NOW + 7000));
    OK(kvstore_cf_put_ttl(cf, "dead", 4, large, sizeof large, SAMPLE_NOW));
    kvstore_cf_close(cf);
}

static inline KVStore *sample_open(const char *path)
{
    KVStore *kv;

    OK(kvstore_open(path, &kv, KVSTORE_JOURNAL_WAL));
    OK(kvstore_set_clock(kv, sample_clock, NULL));
    return kv;
}

static inline uint64_t mixed(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
    }
    return (hash ^ n) * 1099511628211u;
}

static inline uint64_t family_fingerprint(KVColumnFamily *cf, uint64_t hash)
{
    KVIterator *it;
    int64_t rows;

    OK(kvstore_cf_count(cf, &rows));
    hash = mixed(hash, &rows, sizeof rows);
    OK(kvstore_cf_iterator_create(cf, &it));
    OK(kvstore_iterator_first(it));
    while (!kvstore_iterator_eof(it)) {
        void *key, *shown, *value;
        int n_key, n_shown, n_value;
        int64_t left;

        OK(kvstore_iterator_key(it, &key, &n_key));
        OK(kvstore_iterator_value(it, &shown, &n_shown));
        OK(kvstore_cf_get_ttl(cf, key, n_key, &value, &n_value, &left));
        CHECK(n_value == n_shown && memcmp(value, shown, (size_t)n_value) == 0);
        hash = mixed(hash, key, (size_t)n_key);
        hash = mixed(hash, value, (size_t)n_value);
        hash = mixed(hash, &left, sizeof left);
        kvstore_free(value);
        OK(kvstore_iterator_next(it));
    }
    kvstore_iterator_close(it);
    return hash;
}

/* A number that changes when any key, value, TTL, row count or family of the store does. */
static inline uint64_t fingerprint(KVStore *kv)
{
    KVColumnFamily *cf;
    char **names;
    int count;
    uint64_t hash = 14695981039346656037u;

    OK(kvstore_cf_get_default(kv, &cf));
    hash = family_fingerprint(cf, hash);
    kvstore_cf_close(cf);
    OK(kvstore_cf_list(kv, &names, &count));
    for (int i = 0; i < count; i++) {
        hash = mixed(hash, names[i], strlen(names[i]));
        OK(kvstore_cf_open(kv, names[i], &cf));
        hash = family_fingerprint(cf, hash);
        kvstore_cf_close(cf);
        kvstore_free(names[i]);
    }
    kvstore_free(names);
    return hash;
}

/* Asserts that the store accepts writes, reads, transactions, families and checks. Its content
 * is the same afterwards. */
static inline void still_works(KVStore *kv)
{
    KVColumnFamily *cf;
    KVIterator *it;
    void *value;
    int n;
    int64_t now;
    uint64_t before = fingerprint(kv);

    OK(kvstore_time_ms(kv, &now));
    OK(kvstore_put(kv, "still works", 11, "yes", 3));
    OK(kvstore_get(kv, "still works", 11, &value, &n));
    CHECK(n == 3 && strcmp(value, "yes") == 0);
    kvstore_free(value);
    OK(kvstore_prefix_iterator_create(kv, "still", 5, &it));
    CHECK(!kvstore_iterator_eof(it));
    kvstore_iterator_close(it);
    OK(kvstore_begin(kv, 1));
    OK(kvstore_cf_create(kv, "still works", &cf));
    OK(kvstore_cf_put_ttl(cf, "k", 1, "v", 1, now + 1000000));
    OK(kvstore_commit(kv));
    kvstore_cf_close(cf);
    OK(kvstore_cf_drop(kv, "still works"));
    OK(kvstore_delete(kv, "still works", 11));
    OK(kvstore_integrity_check(kv, NULL));
    CHECK(fingerprint(kv) == before);
}

/* Outputs that a failing call must not touch. */
#define UNTOUCHED 0x5a5a5a5a

static struct outputs {
    void *pointer;
    char **names;
    int n, m;
    int64_t big;
    KVStoreStats stats;
} out;

static inline void set_outputs(void)
{
    memset(&out, 0x5a, sizeof out);
    out.pointer = UNTOUCHED_POINTER;
    out.names = UNTOUCHED_POINTER;
}

static inline int outputs_are_untouched(void)
{
    struct outputs now = out;

    set_outputs();
    return now.pointer == out.pointer && now.names == out.names && now.n == out.n && now.m == out.m &&
           now.big == out.big && memcmp(&now.stats, &out.stats, sizeof now.stats) == 0;
}

/* Calls every function that takes a store, except close and errmsg, with valid arguments. */
static inline void store_functions_give(int code, KVStore *kv)
{
    KVColumnFamily *cf;
    KVIterator *it;
    char *message = NULL;

    REFUSED(code, kvstore_set_clock(kv, sample_clock, NULL));
    REFUSED(code, kvstore_set_clock(kv, NULL, NULL));
    REFUSED_HANDLE(code, cf, kvstore_cf_create(kv, "new", &cf));
    REFUSED_HANDLE(code, cf, kvstore_cf_open(kv, "other", &cf));
    REFUSED_HANDLE(code, cf, kvstore_cf_open(kv, "default", &cf));
    REFUSED_HANDLE(code, cf, kvstore_cf_get_default(kv, &cf));
    REFUSED(code, kvstore_cf_drop(kv, "other"));
    REFUSED(code, kvstore_cf_list(kv, &out.names, &out.n));
    REFUSED(code, kvstore_put(kv, "plain", 5, "new", 3));
    REFUSED(code, kvstore_get(kv, "plain", 5, &out.pointer, &out.n));
    REFUSED(code, kvstore_delete(kv, "plain", 5));
    REFUSED(code, kvstore_exists(kv, "plain", 5, &out.n));
    REFUSED(code, kvstore_put_if_absent(kv, "new", 3, "v", 1, 0, &out.n));
    REFUSED(code, kvstore_count(kv, &out.big));
    REFUSED(code, kvstore_clear(kv));
    REFUSED(code, kvstore_put_ttl(kv, "new", 3, "v", 1, SAMPLE_NOW * 2));
    REFUSED(code, kvstore_get_ttl(kv, "plain", 5, &out.pointer, &out.n, &out.big));
    REFUSED(code, kvstore_ttl_remaining(kv, "mortal", 6, &out.big));
    REFUSED(code, kvstore_purge_expired(kv, &out.n));
    REFUSED_HANDLE(code, it, kvstore_iterator_create(kv, &it));
    REFUSED_HANDLE(code, it, kvstore_reverse_iterator_create(kv, &it));
    REFUSED_HANDLE(code, it, kvstore_prefix_iterator_create(kv, "p", 1, &it));
    REFUSED_HANDLE(code, it, kvstore_reverse_prefix_iterator_create(kv, "p", 1, &it));
    REFUSED(code, kvstore_begin(kv, 0));
    REFUSED(code, kvstore_begin(kv, 1));
    REFUSED(code, kvstore_commit(kv));
    REFUSED(code, kvstore_rollback(kv));
    REFUSED(code, kvstore_stats(kv, &out.stats));
    REFUSED(code, kvstore_stats_reset(kv));
    REFUSED(code, kvstore_integrity_check(kv, &message));
    CHECK(message == NULL);
    REFUSED(code, kvstore_repair(kv, &out.big));
    REFUSED(code, kvstore_set_limit(kv, 1 << 20, KVSTORE_EVICT_OLDEST));
    REFUSED(code, kvstore_reencrypt(kv, "password", 8));
    REFUSED(code, kvstore_remove_encryption(kv));
    CHECK(kvstore_is_encrypted(kv) == 0);
    REFUSED(code, kvstore_get_limit(kv, &out.big, &out.n));
    REFUSED(code, kvstore_sync(kv));
    REFUSED(code, kvstore_incremental_vacuum(kv, 0));
    REFUSED(code, kvstore_checkpoint(kv, KVSTORE_CHECKPOINT_TRUNCATE, &out.n, &out.m));
}

/* Calls every function that takes a family, except cf_name and cf_close. */
static inline void family_functions_give(int code, KVColumnFamily *cf)
{
    KVIterator *it;

    REFUSED(code, kvstore_cf_put(cf, "plain", 5, "new", 3));
    REFUSED(code, kvstore_cf_get(cf, "plain", 5, &out.pointer, &out.n));
    REFUSED(code, kvstore_cf_delete(cf, "plain", 5));
    REFUSED(code, kvstore_cf_exists(cf, "plain", 5, &out.n));
    REFUSED(code, kvstore_cf_put_if_absent(cf, "new", 3, "v", 1, 0, &out.n));
    REFUSED(code, kvstore_cf_count(cf, &out.big));
    REFUSED(code, kvstore_cf_clear(cf));
    REFUSED(code, kvstore_cf_put_ttl(cf, "new", 3, "v", 1, SAMPLE_NOW * 2));
    REFUSED(code, kvstore_cf_get_ttl(cf, "plain", 5, &out.pointer, &out.n, &out.big));
    REFUSED(code, kvstore_cf_ttl_remaining(cf, "mortal", 6, &out.big));
    REFUSED(code, kvstore_cf_purge_expired(cf, &out.n));
    REFUSED_HANDLE(code, it, kvstore_cf_iterator_create(cf, &it));
    REFUSED_HANDLE(code, it, kvstore_cf_reverse_iterator_create(cf, &it));
    REFUSED_HANDLE(code, it, kvstore_cf_prefix_iterator_create(cf, "p", 1, &it));
    REFUSED_HANDLE(code, it, kvstore_cf_reverse_prefix_iterator_create(cf, "p", 1, &it));
}

/* Calls every function that takes an iterator, except iterator_close; last and prev only for
 * reverse iterators. */
static inline void iterator_functions_give(int code, KVIterator *it, int reverse)
{
    REFUSED(code, kvstore_iterator_first(it));
    REFUSED(code, kvstore_iterator_next(it));
    if (reverse) {
        REFUSED(code, kvstore_iterator_last(it));
        REFUSED(code, kvstore_iterator_prev(it));
    }
    REFUSED(code, kvstore_iterator_seek(it, "plain", 5));
    CHECK(kvstore_iterator_eof(it) == 1);
    REFUSED(code, kvstore_iterator_key(it, &out.pointer, &out.n));
    REFUSED(code, kvstore_iterator_value(it, &out.pointer, &out.n));
}

#endif

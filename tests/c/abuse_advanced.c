/* Misuse of conditional writes, expiry, ranges, batches, backup and the cleaner: NULL for every
 * pointer, bad lengths, numbers and flags, and handles that are closed, freed or of another
 * kind. Nothing may crash, and nothing may change. */
#include <stddef.h>

#include "api_places.h"

/* Outputs that a failing call must not touch. */
static struct outputs {
    void *pointer;
    int n, m;
    int64_t big;
    char bytes[16];
    KVEntry entries[2];
} out;

static void set_outputs(void)
{
    memset(&out, 0x5a, sizeof out);
    out.pointer = UNTOUCHED_POINTER;
}

static int outputs_are_untouched(void)
{
    struct outputs now = out;
    set_outputs();
    return now.pointer == out.pointer && now.n == out.n && now.m == out.m && now.big == out.big &&
           memcmp(now.bytes, out.bytes, sizeof out.bytes) == 0 &&
           memcmp(now.entries, out.entries, sizeof out.entries) == 0;
}

static int never_told(void *context, const char *text, int64_t done, int64_t total)
{
    (void)context, (void)text, (void)done, (void)total;
    CHECK(!"the report of a recovery that was refused");
    return 0;
}

static int never_called(void *context, int remaining, int total)
{
    (void)context, (void)remaining, (void)total;
    CHECK(!"the progress of a backup that was refused");
    return 0;
}

static int never_copied(void *context, int64_t done, int64_t total)
{
    (void)context, (void)done, (void)total;
    CHECK(!"the progress of a copy that was refused");
    return 0;
}

/* One handle of every kind, for calls that must be refused. The default family has the same rows as
 * the family. */
struct handles {
    KVStore *kv;
    KVColumnFamily *cf, *standard;
    KVIterator *range, *row, *expiring, *keys;
    KVBatch *b;
};

static struct handles open_all(const char *path)
{
    struct handles h;
    char key[16];
    int n;
    h.kv = open_at(path, NULL);
    h.cf = family(h.kv, "family");
    h.standard = family(h.kv, "default");
    OK(kvstore_row_key(K("p"), K("c"), key, sizeof key, &n));
    for (int i = 0; i < 2; i++) {
        KVColumnFamily *cf = i == 0 ? h.cf : h.standard;
        OK(kvstore_cf_set_write_tracking(cf, 1));
        OK(kvstore_cf_put(cf, K("plain"), K("17")));
        OK(kvstore_cf_put_ttl(cf, K("mortal"), K("value"), 5000));
        OK(kvstore_cf_put_ttl(cf, K("dead"), K("value"), 500));
        OK(kvstore_cf_put(cf, key, n, K("row")));
    }
    OK(kvstore_cf_range_iterator_create(h.cf, NULL, 0, NULL, 0, 0, &h.range));
    OK(kvstore_cf_range_iterator_create(h.cf, NULL, 0, NULL, 0, KVSTORE_RANGE_KEYS_ONLY, &h.keys));
    OK(kvstore_cf_row_iterator_create(h.cf, K("p"), NULL, 0, NULL, 0, 0, &h.row));
    OK(kvstore_cf_expiring_iterator_create(h.cf, 0, INT64_MAX, &h.expiring));
    OK(kvstore_batch_new(h.kv, &h.b));
    OK(kvstore_batch_put(h.b, h.cf, K("batched"), K("value"), 0));
    return h;
}

static void close_children(struct handles *h)
{
    kvstore_iterator_close(h->range);
    kvstore_iterator_close(h->row);
    kvstore_iterator_close(h->expiring);
    kvstore_iterator_close(h->keys);
    kvstore_batch_free(h->b);
    kvstore_cf_close(h->cf);
    kvstore_cf_close(h->standard);
}

/* Fingerprint of everything in the family, including expired rows. */
static uint64_t fingerprint(KVColumnFamily *cf)
{
    uint64_t hash = (uint64_t)rows_of(cf) * 31 + (uint64_t)live_of(cf);
    int64_t ttl;
    KVIterator *it;
    OK(kvstore_cf_get_default_ttl(cf, &ttl));
    hash = hash * 31 + (uint64_t)ttl;
    OK(kvstore_cf_range_iterator_create(cf, NULL, 0, NULL, 0, 0, &it));
    while (!kvstore_iterator_eof(it)) {
        void *part[2];
        int n[2];
        int64_t at[2];
        OK(kvstore_iterator_key(it, &part[0], &n[0]));
        OK(kvstore_iterator_value(it, &part[1], &n[1]));
        OK(kvstore_iterator_expire_ms(it, &at[0]));
        OK(kvstore_cf_write_time(cf, part[0], n[0], &at[1]));
        for (int i = 0; i < 2; i++) {
            hash = (hash ^ (uint64_t)at[i]) * 1099511628211u;
            for (int j = 0; j < n[i]; j++) {
                hash = (hash ^ ((unsigned char *)part[i])[j]) * 1099511628211u;
            }
        }
        OK(kvstore_iterator_next(it));
    }
    kvstore_iterator_close(it);
    return hash;
}

/* Calls every function that takes a store and a key with this key. */
static void default_keys_give(int code, KVStore *kv, const void *key, int n)
{
    KVWriteOptions opt = {0};
    const void *keys[2] = {"plain", key};
    int lens[2] = {5, n}, value_lens[2];
    void *values[2] = {NULL, NULL};
    REFUSED(code, kvstore_put_with(kv, key, n, K("new"), &opt, &out.n));
    REFUSED(code, kvstore_put_with(kv, key, n, K("new"), NULL, NULL));
    REFUSED(code, kvstore_put_for(kv, key, n, K("new"), 500));
    REFUSED(code, kvstore_compare_and_swap(kv, key, n, K("17"), K("new"), 0, &out.n));
    REFUSED(code, kvstore_compare_and_delete(kv, key, n, K("17"), &out.n));
    REFUSED(code, kvstore_increment(kv, key, n, 1, 0, &out.big));
    REFUSED(code, kvstore_expire(kv, key, n, 9000, 0, &out.n));
    REFUSED(code, kvstore_persist(kv, key, n, &out.n));
    REFUSED(code, kvstore_expire_time(kv, key, n, &out.big));
    REFUSED(code, kvstore_get_and_expire(kv, key, n, 9000, &out.pointer, &out.n));
    REFUSED(code, kvstore_write_time(kv, key, n, &out.big));
    REFUSED(code, kvstore_get_into(kv, key, n, out.bytes, sizeof out.bytes, &out.n));
    REFUSED(code, kvstore_delete_many(kv, 2, keys, lens, &out.big));
    GIVES(code, kvstore_get_many(kv, 2, keys, lens, values, value_lens));
    CHECK(values[0] == NULL && values[1] == NULL);
}

static void store_functions_give(int code, KVStore *kv)
{
    KVBatch *b;
    KVIterator *it;
    default_keys_give(code, kv, "plain", 5);
    REFUSED(code, kvstore_set_default_ttl(kv, 100));
    REFUSED(code, kvstore_get_default_ttl(kv, &out.big));
    REFUSED(code, kvstore_count_live(kv, &out.big));
    REFUSED(code, kvstore_purge_before(kv, INT64_MAX, &out.big));
    REFUSED(code, kvstore_set_write_tracking(kv, 0));
    REFUSED(code, kvstore_get_write_tracking(kv, &out.n));
    REFUSED(code, kvstore_sweep(kv, 0, &out.big));
    REFUSED(code, kvstore_delete_range(kv, NULL, 0, NULL, 0, &out.big));
    REFUSED(code, kvstore_delete_many(kv, 0, NULL, NULL, &out.big));
    REFUSED_HANDLE(code, it, kvstore_range_iterator_create(kv, NULL, 0, NULL, 0, 0, &it));
    REFUSED_HANDLE(code, it, kvstore_row_iterator_create(kv, K("p"), NULL, 0, NULL, 0, 0, &it));
    REFUSED_HANDLE(code, it, kvstore_expiring_iterator_create(kv, 0, INT64_MAX, &it));
    REFUSED(code, kvstore_next_expiry(kv, &out.big));
    REFUSED(code, kvstore_time_ms(kv, &out.big));
    REFUSED(code, kvstore_purge_step(kv, 1, 0, &out.big, &out.n));
    REFUSED(code, kvstore_cleaner_start(kv, 1000, 0));
    REFUSED(code, kvstore_cleaner_stop(kv));
    REFUSED_HANDLE(code, b, kvstore_batch_new(kv, &b));
    REFUSED(code, kvstore_backup(kv, "refused.db", never_called, NULL));
    CHECK(!is_there("refused.db"));
    REFUSED(code, kvstore_copy(kv, kv, never_copied, NULL));
    REFUSED(code, kvstore_set_clock(kv, read_clock, &clock_ms));
}

/* Calls every function that takes a family and a key with this key, and adds it to the batch, if any. */
static void keys_give(int code, KVColumnFamily *cf, KVBatch *b, const void *key, int n)
{
    KVWriteOptions opt = {0};
    const void *keys[2] = {"plain", key};
    int lens[2] = {5, n}, value_lens[2];
    void *values[2] = {NULL, NULL};
    REFUSED(code, kvstore_cf_put_with(cf, key, n, K("new"), &opt, &out.n));
    REFUSED(code, kvstore_cf_put_with(cf, key, n, K("new"), NULL, NULL));
    REFUSED(code, kvstore_cf_put_for(cf, key, n, K("new"), 500));
    REFUSED(code, kvstore_cf_compare_and_swap(cf, key, n, K("17"), K("new"), 0, &out.n));
    REFUSED(code, kvstore_cf_compare_and_delete(cf, key, n, K("17"), &out.n));
    REFUSED(code, kvstore_cf_increment(cf, key, n, 1, 0, &out.big));
    REFUSED(code, kvstore_cf_expire(cf, key, n, 9000, 0, &out.n));
    REFUSED(code, kvstore_cf_persist(cf, key, n, &out.n));
    REFUSED(code, kvstore_cf_expire_time(cf, key, n, &out.big));
    REFUSED(code, kvstore_cf_get_and_expire(cf, key, n, 9000, &out.pointer, &out.n));
    REFUSED(code, kvstore_cf_write_time(cf, key, n, &out.big));
    REFUSED(code, kvstore_cf_get_into(cf, key, n, out.bytes, sizeof out.bytes, &out.n));
    REFUSED(code, kvstore_cf_delete_many(cf, 2, keys, lens, &out.big));
    GIVES(code, kvstore_cf_get_many(cf, 2, keys, lens, values, value_lens));
    CHECK(values[0] == NULL && values[1] == NULL);
    if (b) {
        REFUSED(code, kvstore_batch_put(b, cf, key, n, K("new"), 0));
        REFUSED(code, kvstore_batch_delete(b, cf, key, n));
    }
}

static void family_functions_give(int code, KVColumnFamily *cf)
{
    KVIterator *it;
    keys_give(code, cf, NULL, "plain", 5);
    REFUSED(code, kvstore_cf_set_default_ttl(cf, 100));
    REFUSED(code, kvstore_cf_get_default_ttl(cf, &out.big));
    REFUSED(code, kvstore_cf_next_expiry(cf, &out.big));
    REFUSED(code, kvstore_cf_count_live(cf, &out.big));
    REFUSED(code, kvstore_cf_purge_before(cf, INT64_MAX, &out.big));
    REFUSED(code, kvstore_cf_set_write_tracking(cf, 0));
    REFUSED(code, kvstore_cf_get_write_tracking(cf, &out.n));
    REFUSED(code, kvstore_cf_sweep(cf, 0, &out.big));
    REFUSED(code, kvstore_cf_delete_range(cf, NULL, 0, NULL, 0, &out.big));
    REFUSED(code, kvstore_cf_delete_many(cf, 0, NULL, NULL, &out.big));
    REFUSED_HANDLE(code, it, kvstore_cf_range_iterator_create(cf, NULL, 0, NULL, 0, 0, &it));
    REFUSED_HANDLE(code, it, kvstore_cf_row_iterator_create(cf, K("p"), NULL, 0, NULL, 0, 0, &it));
    REFUSED_HANDLE(code, it, kvstore_cf_expiring_iterator_create(cf, 0, INT64_MAX, &it));
}

static void iterator_functions_give(int code, KVIterator *it)
{
    REFUSED(code, kvstore_iterator_first(it));
    REFUSED(code, kvstore_iterator_next(it));
    REFUSED(code, kvstore_iterator_seek(it, K("plain")));
    REFUSED(code, kvstore_iterator_key(it, &out.pointer, &out.n));
    REFUSED(code, kvstore_iterator_value(it, &out.pointer, &out.n));
    REFUSED(code, kvstore_iterator_expire_ms(it, &out.big));
    REFUSED(code, kvstore_iterator_fetch(it, out.entries, 2, &out.n));
    REFUSED(code, kvstore_iterator_fetch(it, NULL, 0, &out.n));
    CHECK(kvstore_iterator_eof(it) == 1);
}

static void batch_functions_give(int code, KVBatch *b, KVColumnFamily *cf)
{
    REFUSED(code, kvstore_batch_put(b, cf, K("key"), K("value"), 0));
    REFUSED(code, kvstore_batch_delete(b, cf, K("key")));
    REFUSED(code, kvstore_batch_count(b, &out.big));
    REFUSED(code, kvstore_batch_clear(b));
    REFUSED(code, kvstore_batch_commit(b));
}

#define ERROR_(call) REFUSED(KVSTORE_ERROR, call)

static void null_pointers(void)
{
    struct handles h = open_all("store.db");
    KVWriteOptions opt = {0};
    KVIterator *it;
    const void *keys[1] = {"plain"};
    int lens[1] = {5};
    uint64_t before = fingerprint(h.cf);

    store_functions_give(KVSTORE_ERROR, NULL);
    family_functions_give(KVSTORE_ERROR, NULL);
    iterator_functions_give(KVSTORE_ERROR, NULL);
    batch_functions_give(KVSTORE_ERROR, NULL, h.cf);
    kvstore_batch_free(NULL);
    CHECK(fingerprint(h.cf) == before);

    /* Keys. */
    keys_give(KVSTORE_ERROR, h.cf, h.b, NULL, 5);
    keys_give(KVSTORE_ERROR, h.cf, h.b, NULL, 0);
    default_keys_give(KVSTORE_ERROR, h.kv, NULL, 5);
    default_keys_give(KVSTORE_ERROR, h.kv, NULL, 0);

    /* Values that are NULL and have a length. */
    ERROR_(kvstore_cf_put_with(h.cf, K("plain"), NULL, 1, &opt, &out.n));
    ERROR_(kvstore_cf_compare_and_swap(h.cf, K("plain"), NULL, 1, K("new"), 0, &out.n));
    ERROR_(kvstore_cf_compare_and_swap(h.cf, K("plain"), K("17"), NULL, 1, 0, &out.n));
    ERROR_(kvstore_cf_compare_and_delete(h.cf, K("plain"), NULL, 2, &out.n));
    ERROR_(kvstore_batch_put(h.b, h.cf, K("plain"), NULL, 1, 0));
    ERROR_(kvstore_put_with(h.kv, K("plain"), NULL, 1, &opt, &out.n));
    ERROR_(kvstore_put_for(h.kv, K("plain"), NULL, 1, 500));
    ERROR_(kvstore_compare_and_swap(h.kv, K("plain"), NULL, 1, K("new"), 0, &out.n));
    ERROR_(kvstore_compare_and_swap(h.kv, K("plain"), K("17"), NULL, 1, 0, &out.n));
    ERROR_(kvstore_compare_and_delete(h.kv, K("plain"), NULL, 2, &out.n));

    /* Outputs that are needed. */
    ERROR_(kvstore_expire_time(h.kv, K("plain"), NULL));
    ERROR_(kvstore_get_and_expire(h.kv, K("plain"), 9000, NULL, &out.n));
    ERROR_(kvstore_get_and_expire(h.kv, K("plain"), 9000, &out.pointer, NULL));
    ERROR_(kvstore_get_default_ttl(h.kv, NULL));
    ERROR_(kvstore_get_write_tracking(h.kv, NULL));
    ERROR_(kvstore_count_live(h.kv, NULL));
    ERROR_(kvstore_write_time(h.kv, K("plain"), NULL));
    ERROR_(kvstore_get_into(h.kv, K("plain"), out.bytes, sizeof out.bytes, NULL));
    ERROR_(kvstore_get_into(h.kv, K("plain"), NULL, 0, NULL));
    ERROR_(kvstore_get_into(h.kv, K("plain"), NULL, 1, &out.n));
    ERROR_(kvstore_delete_many(h.kv, 1, NULL, lens, &out.big));
    ERROR_(kvstore_delete_many(h.kv, 1, keys, NULL, &out.big));
    ERROR_(kvstore_get_many(h.kv, 1, NULL, lens, &out.pointer, &out.n));
    ERROR_(kvstore_get_many(h.kv, 1, keys, NULL, &out.pointer, &out.n));
    ERROR_(kvstore_get_many(h.kv, 1, keys, lens, NULL, &out.n));
    ERROR_(kvstore_get_many(h.kv, 1, keys, lens, &out.pointer, NULL));
    ERROR_(kvstore_range_iterator_create(h.kv, NULL, 0, NULL, 0, 0, NULL));
    ERROR_(kvstore_row_iterator_create(h.kv, K("p"), NULL, 0, NULL, 0, 0, NULL));
    ERROR_(kvstore_expiring_iterator_create(h.kv, 0, INT64_MAX, NULL));
    REFUSED_HANDLE(KVSTORE_ERROR, it, kvstore_row_iterator_create(h.kv, NULL, 1, NULL, 0, NULL, 0, 0, &it));
    ERROR_(kvstore_cf_expire_time(h.cf, K("plain"), NULL));
    ERROR_(kvstore_cf_get_and_expire(h.cf, K("plain"), 9000, NULL, &out.n));
    ERROR_(kvstore_cf_get_and_expire(h.cf, K("plain"), 9000, &out.pointer, NULL));
    ERROR_(kvstore_cf_get_default_ttl(h.cf, NULL));
    ERROR_(kvstore_cf_get_write_tracking(h.cf, NULL));
    ERROR_(kvstore_next_expiry(h.kv, NULL));
    ERROR_(kvstore_time_ms(h.kv, NULL));
    ERROR_(kvstore_cf_next_expiry(h.cf, NULL));
    ERROR_(kvstore_cf_count_live(h.cf, NULL));
    ERROR_(kvstore_cf_write_time(h.cf, K("plain"), NULL));
    ERROR_(kvstore_cf_get_into(h.cf, K("plain"), out.bytes, sizeof out.bytes, NULL));
    ERROR_(kvstore_cf_get_into(h.cf, K("plain"), NULL, 0, NULL));
    ERROR_(kvstore_cf_get_into(h.cf, K("plain"), NULL, 1, &out.n));
    ERROR_(kvstore_iterator_expire_ms(h.range, NULL));
    ERROR_(kvstore_iterator_fetch(h.range, NULL, 1, &out.n));
    ERROR_(kvstore_iterator_fetch(h.range, out.entries, 2, NULL));
    ERROR_(kvstore_iterator_fetch(h.range, NULL, 0, NULL));
    ERROR_(kvstore_iterator_fetch(h.range, out.entries, -1, &out.n));
    ERROR_(kvstore_iterator_fetch(h.range, out.entries, INT_MIN, &out.n));
    ERROR_(kvstore_batch_new(h.kv, NULL));
    ERROR_(kvstore_batch_count(h.b, NULL));
    ERROR_(kvstore_batch_put(h.b, NULL, K("key"), K("value"), 0));
    ERROR_(kvstore_batch_delete(h.b, NULL, K("key")));
    ERROR_(kvstore_cf_delete_many(h.cf, 1, NULL, lens, &out.big));
    ERROR_(kvstore_cf_delete_many(h.cf, 1, keys, NULL, &out.big));
    ERROR_(kvstore_cf_get_many(h.cf, 1, NULL, lens, &out.pointer, &out.n));
    ERROR_(kvstore_cf_get_many(h.cf, 1, keys, NULL, &out.pointer, &out.n));
    ERROR_(kvstore_cf_get_many(h.cf, 1, keys, lens, NULL, &out.n));
    ERROR_(kvstore_cf_get_many(h.cf, 1, keys, lens, &out.pointer, NULL));
    ERROR_(kvstore_backup(h.kv, NULL, never_called, NULL));
    ERROR_(kvstore_copy(h.kv, NULL, never_copied, NULL));
    ERROR_(kvstore_copy(NULL, h.kv, never_copied, NULL));
    ERROR_(kvstore_copy(h.kv, h.kv, never_copied, NULL));
    ERROR_(kvstore_recover(NULL, "refused.db", never_told, NULL, NULL, NULL));
    ERROR_(kvstore_recover("refused.db", NULL, never_told, NULL, NULL, NULL));
    GIVES(KVSTORE_CANTOPEN, kvstore_recover("no such.db", "refused.db", never_told, NULL, &out.big, &out.big));
    ERROR_(kvstore_open_encrypted("refused.db", K("password"), NULL, NULL));
    KVStore *refused = UNTOUCHED_POINTER;
    REFUSED_HANDLE(KVSTORE_ERROR, refused, kvstore_open_encrypted(NULL, K("password"), &refused, NULL));
    REFUSED_HANDLE(KVSTORE_ERROR, refused, kvstore_open_encrypted("refused.db", NULL, 8, &refused, NULL));
    REFUSED_HANDLE(KVSTORE_ERROR, refused, kvstore_open_encrypted("refused.db", "", 0, &refused, NULL));
    REFUSED_HANDLE(KVSTORE_ERROR, refused, kvstore_open_encrypted("refused.db", "x", INT_MIN, &refused, NULL));
    ERROR_(kvstore_reencrypt(h.kv, NULL, 5));
    ERROR_(kvstore_reencrypt(h.kv, "x", -1));
    ERROR_(kvstore_reencrypt(h.kv, K("password"))); /* it is not encrypted */
    ERROR_(kvstore_remove_encryption(h.kv));
    CHECK(!is_there("refused.db"));
    ERROR_(kvstore_cf_range_iterator_create(h.cf, NULL, 0, NULL, 0, 0, NULL));
    ERROR_(kvstore_cf_row_iterator_create(h.cf, K("p"), NULL, 0, NULL, 0, 0, NULL));
    ERROR_(kvstore_cf_expiring_iterator_create(h.cf, 0, INT64_MAX, NULL));
    REFUSED_HANDLE(KVSTORE_ERROR, it,
                   kvstore_cf_row_iterator_create(h.cf, NULL, 1, NULL, 0, NULL, 0, 0, &it));
    ERROR_(kvstore_row_key(NULL, 1, K("c"), out.bytes, sizeof out.bytes, &out.n));
    ERROR_(kvstore_row_key(K("p"), NULL, 1, out.bytes, sizeof out.bytes, &out.n));
    ERROR_(kvstore_row_key(K("p"), K("c"), NULL, 1, &out.n));
    ERROR_(kvstore_row_key(K("p"), K("c"), out.bytes, sizeof out.bytes, NULL));
    ERROR_(kvstore_row_key(K("p"), K("c"), NULL, 0, NULL));
    CHECK(fingerprint(h.cf) == before && fingerprint(h.standard) == before);

    /* Outputs that may be NULL. */
    OK(kvstore_put_with(h.kv, K("plain"), K("17"), NULL, NULL));
    OK(kvstore_compare_and_swap(h.kv, K("plain"), K("17"), K("17"), 0, NULL));
    OK(kvstore_compare_and_delete(h.kv, K("plain"), K("no"), NULL));
    OK(kvstore_increment(h.kv, K("plain"), 0, 0, NULL));
    OK(kvstore_expire(h.kv, K("mortal"), 5000, 0, NULL));
    OK(kvstore_persist(h.kv, K("plain"), NULL));
    OK(kvstore_purge_before(h.kv, 0, NULL));
    OK(kvstore_sweep(h.kv, INT64_MAX, NULL));
    OK(kvstore_delete_range(h.kv, K("x"), K("y"), NULL));
    OK(kvstore_delete_many(h.kv, 0, NULL, NULL, NULL));
    CHECK(fingerprint(h.standard) == before);
    OK(kvstore_cf_put_with(h.cf, K("plain"), K("17"), NULL, NULL));
    OK(kvstore_cf_compare_and_swap(h.cf, K("plain"), K("17"), K("17"), 0, NULL));
    OK(kvstore_cf_compare_and_delete(h.cf, K("plain"), K("no"), NULL));
    OK(kvstore_cf_increment(h.cf, K("plain"), 0, 0, NULL));
    OK(kvstore_cf_expire(h.cf, K("mortal"), 5000, 0, NULL));
    OK(kvstore_cf_persist(h.cf, K("plain"), NULL));
    OK(kvstore_cf_purge_before(h.cf, 0, NULL));
    OK(kvstore_cf_sweep(h.cf, INT64_MAX, NULL));
    OK(kvstore_cf_delete_range(h.cf, K("x"), K("y"), NULL));
    CHECK(fingerprint(h.cf) == before);
    OK(kvstore_purge_step(h.kv, 0, 0, NULL, NULL));
    OK(kvstore_backup(h.kv, "copy.db", NULL, NULL));
    OK(kvstore_set_clock(h.kv, NULL, NULL));
    close_children(&h);
    OK(kvstore_close(h.kv));
}

static const int bad_lengths[] = {-1, INT_MIN, INT_MIN + 1, -65536, 65537, 1 << 30, INT_MAX};

static void lengths(void)
{
    struct handles h = open_all(NULL);
    char *small = malloc(3); /* on the heap: valgrind sees any read beyond */
    KVWriteOptions opt = {0};
    KVIterator *it;
    uint64_t before = fingerprint(h.cf);
    memcpy(small, "abc", 3);
    keys_give(KVSTORE_ERROR, h.cf, h.b, small, 0);
    default_keys_give(KVSTORE_ERROR, h.kv, small, 0);
    for (size_t i = 0; i < sizeof bad_lengths / sizeof *bad_lengths; i++) {
        int n = bad_lengths[i];
        keys_give(KVSTORE_ERROR, h.cf, h.b, small, n);
        keys_give(KVSTORE_ERROR, h.cf, h.b, NULL, n);
        default_keys_give(KVSTORE_ERROR, h.kv, small, n);
        default_keys_give(KVSTORE_ERROR, h.kv, NULL, n);

        /* Bounds, partitions and clustering parts. */
        ERROR_(kvstore_delete_range(h.kv, small, n, NULL, 0, &out.big));
        ERROR_(kvstore_delete_range(h.kv, NULL, 0, small, n, &out.big));
        REFUSED_HANDLE(KVSTORE_ERROR, it, kvstore_range_iterator_create(h.kv, small, n, NULL, 0, 0, &it));
        REFUSED_HANDLE(KVSTORE_ERROR, it, kvstore_range_iterator_create(h.kv, NULL, 0, small, n, 0, &it));
        REFUSED_HANDLE(KVSTORE_ERROR, it,
                       kvstore_row_iterator_create(h.kv, small, n, NULL, 0, NULL, 0, 0, &it));
        REFUSED_HANDLE(KVSTORE_ERROR, it,
                       kvstore_row_iterator_create(h.kv, K("p"), small, n, NULL, 0, 0, &it));
        REFUSED_HANDLE(KVSTORE_ERROR, it,
                       kvstore_row_iterator_create(h.kv, K("p"), NULL, 0, small, n, 0, &it));
        ERROR_(kvstore_cf_delete_range(h.cf, small, n, NULL, 0, &out.big));
        ERROR_(kvstore_cf_delete_range(h.cf, NULL, 0, small, n, &out.big));
        REFUSED_HANDLE(KVSTORE_ERROR, it,
                       kvstore_cf_range_iterator_create(h.cf, small, n, NULL, 0, 0, &it));
        REFUSED_HANDLE(KVSTORE_ERROR, it,
                       kvstore_cf_range_iterator_create(h.cf, NULL, 0, small, n, 0, &it));
        REFUSED_HANDLE(KVSTORE_ERROR, it,
                       kvstore_cf_row_iterator_create(h.cf, small, n, NULL, 0, NULL, 0, 0, &it));
        REFUSED_HANDLE(KVSTORE_ERROR, it,
                       kvstore_cf_row_iterator_create(h.cf, K("p"), small, n, NULL, 0, 0, &it));
        REFUSED_HANDLE(KVSTORE_ERROR, it,
                       kvstore_cf_row_iterator_create(h.cf, K("p"), NULL, 0, small, n, 0, &it));
        ERROR_(kvstore_row_key(small, n, K("c"), out.bytes, sizeof out.bytes, &out.n));
        ERROR_(kvstore_row_key(K("p"), small, n, out.bytes, sizeof out.bytes, &out.n));
        ERROR_(kvstore_row_key(small, n, small, n, NULL, 0, &out.n));
        ERROR_(kvstore_iterator_seek(h.range, small, n));
        ERROR_(kvstore_iterator_seek(h.row, small, n));
        ERROR_(kvstore_iterator_seek(h.keys, small, n));
    }
    static const int bad_values[] = {-1, INT_MIN, 10485761, 536870913, INT_MAX};
    for (size_t i = 0; i < sizeof bad_values / sizeof *bad_values; i++) {
        int n = bad_values[i];
        ERROR_(kvstore_cf_put_with(h.cf, K("plain"), small, n, &opt, &out.n));
        ERROR_(kvstore_cf_compare_and_swap(h.cf, K("plain"), K("17"), small, n, 0, &out.n));
        ERROR_(kvstore_batch_put(h.b, h.cf, K("plain"), small, n, 0));
        ERROR_(kvstore_put_with(h.kv, K("plain"), small, n, &opt, &out.n));
        ERROR_(kvstore_put_for(h.kv, K("plain"), small, n, 500));
        ERROR_(kvstore_compare_and_swap(h.kv, K("plain"), K("17"), small, n, 0, &out.n));
    }
    static const int bad_expected[] = {-1, INT_MIN, 536870913, INT_MAX};
    for (size_t i = 0; i < sizeof bad_expected / sizeof *bad_expected; i++) {
        int n = bad_expected[i];
        ERROR_(kvstore_cf_compare_and_swap(h.cf, K("plain"), small, n, K("new"), 0, &out.n));
        ERROR_(kvstore_cf_compare_and_delete(h.cf, K("plain"), small, n, &out.n));
        ERROR_(kvstore_compare_and_swap(h.kv, K("plain"), small, n, K("new"), 0, &out.n));
        ERROR_(kvstore_compare_and_delete(h.kv, K("plain"), small, n, &out.n));
    }
    static const int negative[] = {-1, INT_MIN};
    for (size_t i = 0; i < sizeof negative / sizeof *negative; i++) {
        const void *keys[1] = {small};
        int n = negative[i], lens[1] = {3};
        ERROR_(kvstore_get_into(h.kv, K("plain"), out.bytes, n, &out.n));
        ERROR_(kvstore_get_many(h.kv, n, keys, lens, &out.pointer, &out.n));
        ERROR_(kvstore_cf_get_many(h.cf, n, keys, lens, &out.pointer, &out.n));
        ERROR_(kvstore_delete_many(h.kv, n, keys, lens, &out.big));
        ERROR_(kvstore_cf_delete_many(h.cf, n, keys, lens, &out.big));
        ERROR_(kvstore_sweep(h.kv, n, &out.big));
        ERROR_(kvstore_set_default_ttl(h.kv, n));
        ERROR_(kvstore_put_for(h.kv, K("plain"), K("new"), n));
        int64_t moment = (int64_t)n - 1; /* -1 is KVSTORE_NO_TTL */
        ERROR_(kvstore_expire(h.kv, K("plain"), moment, 0, &out.n));
        ERROR_(kvstore_increment(h.kv, K("plain"), 1, moment, &out.big));
        ERROR_(kvstore_get_and_expire(h.kv, K("plain"), moment, &out.pointer, &out.n));
    }
    ERROR_(kvstore_cf_get_into(h.cf, K("plain"), out.bytes, -1, &out.n));
    ERROR_(kvstore_cf_get_into(h.cf, K("plain"), out.bytes, INT_MIN, &out.n));
    ERROR_(kvstore_row_key(K("p"), K("c"), out.bytes, -1, &out.n));
    ERROR_(kvstore_row_key(K("p"), K("c"), out.bytes, INT_MIN, &out.n));
    ERROR_(kvstore_row_key(K("p"), K("c"), NULL, -1, &out.n));
    CHECK(fingerprint(h.cf) == before && fingerprint(h.standard) == before);
    CHECK(kvstore_batch_count(h.b, &out.big) == KVSTORE_OK && out.big == 1);
    OK(kvstore_integrity_check(h.kv, NULL));
    free(small);
    close_children(&h);
    OK(kvstore_close(h.kv));
}

/* An expected value longer than this handle may write is not an error, because another handle may have
 * written it. It is unequal, and recognised by its length before it is read. */
static void expected_lengths(void)
{
    struct handles h = open_all(NULL);
    KVStoreConfig large = {.maxValueSize = 20000000};
    char *small = calloc(1, 3);
    OK(kvstore_cf_compare_and_swap(h.cf, K("plain"), small, 10485761, K("new"), 0, &out.n));
    CHECK(out.n == 0);
    OK(kvstore_cf_compare_and_delete(h.cf, K("plain"), small, 10485761, &out.n));
    CHECK(out.n == 0);
    HAS(h.cf, "plain", "17");
    free(small);
    close_children(&h);
    OK(kvstore_close(h.kv));

    KVStore *one = open_at("store.db", &large), *two = open_at("store.db", NULL);
    KVColumnFamily *cf = family(two, "default");
    char *value = calloc(1, 10485761);
    OK(kvstore_put(one, K("key"), value, 10485761));
    OK(kvstore_cf_compare_and_swap(cf, K("key"), value, 10485761, K("new"), 0, &out.n));
    CHECK(out.n == 1);
    HAS(cf, "key", "new");
    free(value);
    kvstore_cf_close(cf);
    OK(kvstore_close(one));
    OK(kvstore_close(two));
}

static void flags(void)
{
    struct handles h = open_all(NULL);
    static const int bad[] = {16, 32, -1, INT_MIN, INT_MAX, 1 << 16 | 1};
    KVIterator *it;
    uint64_t before = fingerprint(h.cf);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        KVWriteOptions opt = {.flags = (uint32_t)bad[i]}, reserved = {.reserved = (uint32_t)bad[i]};
        ERROR_(kvstore_cf_put_with(h.cf, K("plain"), K("new"), &opt, &out.n));
        ERROR_(kvstore_cf_put_with(h.cf, K("plain"), K("new"), &reserved, &out.n));
        ERROR_(kvstore_cf_expire(h.cf, K("plain"), 9000, bad[i], &out.n));
        ERROR_(kvstore_put_with(h.kv, K("plain"), K("new"), &opt, &out.n));
        ERROR_(kvstore_put_with(h.kv, K("plain"), K("new"), &reserved, &out.n));
        ERROR_(kvstore_expire(h.kv, K("plain"), 9000, bad[i], &out.n));
        REFUSED_HANDLE(KVSTORE_ERROR, it, kvstore_range_iterator_create(h.kv, NULL, 0, NULL, 0, bad[i], &it));
        REFUSED_HANDLE(KVSTORE_ERROR, it,
                       kvstore_row_iterator_create(h.kv, K("p"), NULL, 0, NULL, 0, bad[i], &it));
        REFUSED_HANDLE(KVSTORE_ERROR, it,
                       kvstore_cf_range_iterator_create(h.cf, NULL, 0, NULL, 0, bad[i], &it));
        REFUSED_HANDLE(KVSTORE_ERROR, it,
                       kvstore_cf_row_iterator_create(h.cf, K("p"), NULL, 0, NULL, 0, bad[i], &it));
    }
    CHECK(fingerprint(h.cf) == before && fingerprint(h.standard) == before);
    CHECK(strcmp(kvstore_errmsg(h.kv), "no error") != 0);
    close_children(&h);
    OK(kvstore_close(h.kv));
}

static void closed_store(void)
{
    struct handles h = open_all("store.db");
    uint64_t before = fingerprint(h.cf);
    OK(kvstore_close(h.kv));
    for (int i = 0; i < 2; i++) {
        store_functions_give(KVSTORE_MISUSE, h.kv);
        family_functions_give(KVSTORE_MISUSE, h.cf);
        iterator_functions_give(KVSTORE_MISUSE, h.range);
        iterator_functions_give(KVSTORE_MISUSE, h.row);
        REFUSED(KVSTORE_MISUSE, kvstore_iterator_expire_ms(h.expiring, &out.big));
        REFUSED(KVSTORE_MISUSE, kvstore_iterator_first(h.expiring));
        REFUSED(KVSTORE_MISUSE, kvstore_iterator_key(h.keys, &out.pointer, &out.n));
        REFUSED(KVSTORE_MISUSE, kvstore_batch_put(h.b, h.cf, K("key"), K("value"), 0));
        REFUSED(KVSTORE_MISUSE, kvstore_batch_delete(h.b, h.cf, K("key")));
        REFUSED(KVSTORE_MISUSE, kvstore_batch_commit(h.b));
    }
    close_children(&h);
    h.kv = open_at("store.db", NULL);
    h.cf = family(h.kv, "family");
    CHECK(fingerprint(h.cf) == before);
    kvstore_cf_close(h.cf);
    OK(kvstore_close(h.kv));
}

/* "Batches still open answer MISUSE" when their store is closed: also to count and clear. */
static void closed_store_batch(void)
{
    struct handles h = open_all("store.db");
    OK(kvstore_close(h.kv));
    batch_functions_give(KVSTORE_MISUSE, h.b, h.cf);
    close_children(&h);
}

static void closed_handles(void)
{
    struct handles h = open_all("store.db"), other = open_all(NULL);
    uint64_t before = fingerprint(h.cf);
    KVColumnFamily *cf = family(h.kv, "family");
    close_children(&h);
    for (int i = 0; i < 2; i++) {
        family_functions_give(KVSTORE_MISUSE, h.cf);
        CHECK(strcmp(kvstore_cf_name(h.cf), "") == 0);
        iterator_functions_give(KVSTORE_MISUSE, h.range);
        iterator_functions_give(KVSTORE_MISUSE, h.row);
        iterator_functions_give(KVSTORE_MISUSE, h.expiring);
        iterator_functions_give(KVSTORE_MISUSE, h.keys);
        batch_functions_give(KVSTORE_MISUSE, h.b, cf); /* a freed batch, used again */
        close_children(&h);                            /* and freed again */
    }
    KVBatch *b;
    OK(kvstore_batch_new(h.kv, &b));
    REFUSED(KVSTORE_MISUSE, kvstore_batch_put(b, h.cf, K("key"), K("value"), 0)); /* a closed family */
    REFUSED(KVSTORE_MISUSE, kvstore_batch_delete(b, h.cf, K("key")));
    ERROR_(kvstore_batch_put(b, other.cf, K("key"), K("value"), 0)); /* one of another store */
    ERROR_(kvstore_batch_delete(b, other.cf, K("key")));
    CHECK(kvstore_batch_count(b, &out.big) == KVSTORE_OK && out.big == 0);
    kvstore_batch_free(b);
    CHECK(fingerprint(cf) == before);
    kvstore_cf_close(cf);
    OK(kvstore_close(h.kv));
    uint64_t others = fingerprint(other.cf); /* the handles of the other store still work */
    CHECK(others == before);
    OK(kvstore_batch_commit(other.b));
    close_children(&other);
    OK(kvstore_close(other.kv));
}

static void wrong_kinds(void)
{
    struct handles h = open_all(NULL);
    void *store = h.kv, *cf = h.cf, *it = h.range, *b = h.b;
    uint64_t before = fingerprint(h.cf);
    store_functions_give(KVSTORE_MISUSE, cf);
    store_functions_give(KVSTORE_MISUSE, b);
    family_functions_give(KVSTORE_MISUSE, store);
    family_functions_give(KVSTORE_MISUSE, b);
    iterator_functions_give(KVSTORE_MISUSE, b);
    iterator_functions_give(KVSTORE_MISUSE, cf);
    batch_functions_give(KVSTORE_MISUSE, store, h.cf);
    batch_functions_give(KVSTORE_MISUSE, it, h.cf);
    REFUSED(KVSTORE_MISUSE, kvstore_batch_put(h.b, store, K("key"), K("value"), 0));
    REFUSED(KVSTORE_MISUSE, kvstore_batch_put(h.b, b, K("key"), K("value"), 0));
    kvstore_batch_free(store);
    kvstore_batch_free(it);
    kvstore_iterator_close(b);
    kvstore_cf_close(b);
    GIVES(KVSTORE_MISUSE, kvstore_close(b));
    CHECK(fingerprint(h.cf) == before);
    OK(kvstore_batch_commit(h.b));
    close_children(&h);
    OK(kvstore_close(h.kv));
}

/* Thousands of batches, iterators and refused calls need no more memory than a few. */
static void cycles(void)
{
    struct handles h = open_all(NULL);
    for (int i = 0; i < (getenv("UNDER_VALGRIND") ? 500 : 20000); i++) {
        KVBatch *b;
        KVIterator *it;
        OK(kvstore_batch_new(h.kv, &b));
        OK(kvstore_batch_put(b, h.cf, K("key"), K("value"), 0));
        kvstore_batch_free(b);
        REFUSED(KVSTORE_MISUSE, kvstore_batch_commit(b));
        OK(kvstore_cf_row_iterator_create(h.cf, K("p"), NULL, 0, NULL, 0, 0, &it));
        kvstore_iterator_close(it);
        REFUSED_HANDLE(KVSTORE_ERROR, it,
                       kvstore_cf_range_iterator_create(h.cf, NULL, 0, NULL, 0, 99, &it));
    }
    close_children(&h);
    OK(kvstore_close(h.kv));
}

/* Texts that describe the library. */
static void library(void)
{
    static const int codes[] = {0, 1, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 21, 26, 113};
    int major = -1, minor = -1, patch = -1;
    CHECK(sscanf(kvstore_version(), "%d.%d.%d", &major, &minor, &patch) == 3);
    CHECK(major == KVSTORE_VERSION_MAJOR && minor == KVSTORE_VERSION_MINOR && patch == KVSTORE_VERSION_PATCH);
    CHECK(sscanf(kvstore_sqlite_version(), "%d.%d", &major, &minor) == 2 && major == 3);
    const char *engines[] = {"sql", "btree", "sql+sqlcipher", "btree+sqlcipher"};
    int known = 0;
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
        known += strcmp(kvstore_engine(), engines[i]) == 0;
    }
    CHECK(known == 1);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        for (size_t j = 0; j < i; j++) { /* each has a name of its own */
            CHECK(strcmp(kvstore_strerror(codes[i]), kvstore_strerror(codes[j])) != 0);
        }
        CHECK(strcmp(kvstore_strerror(codes[i]), kvstore_strerror(9999)) != 0);
    }
    CHECK(kvstore_strerror(INT_MIN) && kvstore_strerror(INT_MAX) && kvstore_strerror(-1));
    CHECK(kvstore_version() == kvstore_version() && kvstore_engine() == kvstore_engine()); /* static */

    KVStore *kv = open_at(NULL, NULL);
    KVColumnFamily *cf = family(kv, "Name \xc3\xa4"), *standard = family(kv, "default");
    CHECK(strcmp(kvstore_cf_name(cf), "Name \xc3\xa4") == 0);
    CHECK(strcmp(kvstore_cf_name(standard), "default") == 0);
    CHECK(strcmp(kvstore_cf_name(NULL), "") == 0);
    kvstore_cf_close(cf);
    kvstore_cf_close(standard);
    OK(kvstore_close(kv));
}

/* The documented constants, and the layout of the struct. */
static void constants(void)
{
    CHECK(KVSTORE_PUT_IF_ABSENT == 1 && KVSTORE_PUT_IF_PRESENT == 2);
    CHECK(KVSTORE_PUT_KEEP_TTL == 4 && KVSTORE_PUT_TTL == 8);
    CHECK(KVSTORE_RANGE_REVERSE == 1 && KVSTORE_RANGE_CLOSED == 2);
    CHECK(KVSTORE_RANGE_OPEN == 4 && KVSTORE_RANGE_KEYS_ONLY == 8);
    CHECK(sizeof(KVWriteOptions) == 16 && offsetof(KVWriteOptions, expireMs) == 0);
    CHECK(offsetof(KVWriteOptions, flags) == 8 && offsetof(KVWriteOptions, reserved) == 12);
}

/* The store's clock: any number is a valid time, and time never runs backwards. */
static void clock_edges(void)
{
    KVStore *kv = open_at(NULL, NULL);
    KVColumnFamily *cf = family(kv, "default");
    OK(kvstore_cf_put_ttl(cf, K("key"), K("value"), 2000));
    clock_ms = 2000;
    GONE(cf, "key");
    OK(kvstore_cf_put_ttl(cf, K("key"), K("value"), 2500));
    clock_ms = INT64_MIN; /* what was expired once stays expired */
    HAS(cf, "key", "value");
    OK(kvstore_cf_put_ttl(cf, K("past"), K("value"), 1999));
    GONE(cf, "past");
    OK(kvstore_cf_set_default_ttl(cf, 630720000000));
    clock_ms = INT64_MAX; /* the last time: sums do not overflow */
    GONE(cf, "key");
    OK(kvstore_cf_put(cf, K("key"), K("value")));
    GONE(cf, "key");
    OK(kvstore_cf_set_write_tracking(cf, 1));
    OK(kvstore_cf_sweep(cf, INT64_MAX, NULL));
    OK(kvstore_purge_step(kv, 0, 0, NULL, NULL));
    OK(kvstore_set_clock(kv, NULL, NULL)); /* the system's clock again */
    OK(kvstore_cf_set_default_ttl(cf, 0));
    OK(kvstore_cf_put_ttl(cf, K("key"), K("value"), kvstore_now_ms() + 3600000));
    HAS(cf, "key", "value");
    OK(kvstore_integrity_check(kv, NULL));
    kvstore_cf_close(cf);
    OK(kvstore_close(kv));
}

SCENARIOS({"null_pointers", null_pointers}, {"lengths", lengths}, {"expected_lengths", expected_lengths},
          {"flags", flags}, {"closed_store", closed_store}, {"closed_store_batch", closed_store_batch},
          {"closed_handles", closed_handles}, {"wrong_kinds", wrong_kinds}, {"cycles", cycles},
          {"library", library}, {"constants", constants}, {"clock_edges", clock_edges})

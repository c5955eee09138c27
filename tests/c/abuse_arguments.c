/* Invalid arguments: NULL for every pointer, and lengths, names and numbers out of range. */
#include <limits.h>

#include "abuse_sample.h"

static KVStore *kv;
static KVColumnFamily *other;
static KVIterator *it, *back;
static uint64_t before;

static void set_up(void)
{
    kv = sample_open("store.db");
    sample_fill(kv);
    OK(kvstore_cf_open(kv, "other", &other));
    OK(kvstore_iterator_create(kv, &it));
    OK(kvstore_iterator_seek(it, "plain", 5));
    OK(kvstore_reverse_iterator_create(kv, &back));
    OK(kvstore_iterator_seek(back, "plain", 5));
    before = fingerprint(kv);
}

/* Asserts that nothing has changed: neither the data, nor the iterator positions, nor the file. */
static void tear_down(void)
{
    void *key;
    int n;

    OK(kvstore_iterator_key(it, &key, &n));
    CHECK(n == 5 && memcmp(key, "plain", 5) == 0);
    OK(kvstore_iterator_key(back, &key, &n));
    CHECK(n == 5 && memcmp(key, "plain", 5) == 0);
    CHECK(fingerprint(kv) == before);
    still_works(kv);
    kvstore_iterator_close(it);
    kvstore_iterator_close(back);
    kvstore_cf_close(other);
    OK(kvstore_close(kv));
    kv = sample_open("store.db");
    CHECK(fingerprint(kv) == before);
    OK(kvstore_close(kv));
}

#define ERROR_(call)                                                                                     \
    do {                                                                                                 \
        REFUSED(KVSTORE_ERROR, call);                                                                    \
        CHECK(fingerprint(kv) == before);                                                                \
    } while (0)

#define ERROR_HANDLE(handle, call)                                                                       \
    do {                                                                                                 \
        REFUSED_HANDLE(KVSTORE_ERROR, handle, call);                                                     \
        CHECK(fingerprint(kv) == before);                                                                \
    } while (0)

/* ---- NULL -------------------------------------------------------------------------------------- */

static void null_pointers(void)
{
    KVStoreConfig cfg = {0};
    KVStore *no_store;
    KVColumnFamily *cf;
    KVIterator *no_iterator;
    char *message;
    void *value;
    int n;

    set_up();

    /* The handle. */
    store_functions_give(KVSTORE_ERROR, NULL);
    family_functions_give(KVSTORE_ERROR, NULL);
    iterator_functions_give(KVSTORE_ERROR, NULL, 1);
    CHECK(kvstore_iterator_eof(NULL) == 1);
    CHECK(strcmp(kvstore_cf_name(NULL), "") == 0);
    CHECK(kvstore_errmsg(NULL) != NULL && kvstore_errreason(NULL) != NULL);
    CHECK(kvstore_errhint(NULL) == KVSTORE_HINT_NONE);
    OK(kvstore_close(NULL));
    kvstore_cf_close(NULL);
    kvstore_iterator_close(NULL);
    kvstore_free(NULL);
    CHECK(fingerprint(kv) == before);

    /* Functions without a handle. */
    ERROR_(kvstore_open("new.db", NULL, 0));
    ERROR_(kvstore_open(NULL, NULL, 0));
    ERROR_(kvstore_open_v2("new.db", NULL, &cfg));
    ERROR_(kvstore_open_v2(NULL, NULL, NULL));
    CHECK(fopen("new.db", "r") == NULL);
    OK(kvstore_open(NULL, &no_store, 0));
    OK(kvstore_close(no_store));
    OK(kvstore_open_v2(NULL, &no_store, NULL));
    OK(kvstore_close(no_store));
    CHECK(kvstore_version() != NULL && kvstore_now_ms() > 0);
    kvstore_set_wait_hook(NULL, NULL);
    CHECK(kvstore_strerror(INT_MIN) != NULL && kvstore_strerror(INT_MAX) != NULL);
    CHECK(strcmp(kvstore_strhint(INT_MIN), "") == 0 && strcmp(kvstore_strhint(INT_MAX), "") == 0);
    CHECK(strcmp(kvstore_strhint(KVSTORE_HINT_NONE), "") == 0 && *kvstore_strhint(KVSTORE_HINT_RETRY) != '\0');
    CHECK(kvstore_malloc(-1) == NULL && kvstore_malloc(INT_MIN) == NULL);
    value = kvstore_malloc(0);
    kvstore_free(value);

    /* Families. */
    ERROR_HANDLE(cf, kvstore_cf_create(kv, NULL, &cf));
    ERROR_(kvstore_cf_create(kv, "new", NULL));
    ERROR_(kvstore_cf_create(kv, NULL, NULL));
    ERROR_HANDLE(cf, kvstore_cf_open(kv, NULL, &cf));
    ERROR_(kvstore_cf_open(kv, "other", NULL));
    ERROR_(kvstore_cf_get_default(kv, NULL));
    ERROR_(kvstore_cf_drop(kv, NULL));
    ERROR_(kvstore_cf_list(kv, NULL, &out.n));
    ERROR_(kvstore_cf_list(kv, &out.names, NULL));
    ERROR_(kvstore_cf_list(kv, NULL, NULL));

    /* Data, in the default family and in another. */
    ERROR_(kvstore_put(kv, NULL, 5, "v", 1));
    ERROR_(kvstore_put(kv, NULL, 0, "v", 1));
    ERROR_(kvstore_put(kv, "plain", 5, NULL, 1));
    ERROR_(kvstore_put(kv, NULL, 5, NULL, 5));
    ERROR_(kvstore_cf_put(other, NULL, 5, "v", 1));
    ERROR_(kvstore_cf_put(other, "plain", 5, NULL, 1));
    ERROR_(kvstore_get(kv, NULL, 5, &out.pointer, &out.n));
    ERROR_(kvstore_get(kv, "plain", 5, NULL, &out.n));
    ERROR_(kvstore_get(kv, "plain", 5, &out.pointer, NULL));
    ERROR_(kvstore_get(kv, "missing", 7, NULL, NULL));
    ERROR_(kvstore_cf_get(other, NULL, 5, &out.pointer, &out.n));
    ERROR_(kvstore_cf_get(other, "plain", 5, NULL, &out.n));
    ERROR_(kvstore_cf_get(other, "plain", 5, &out.pointer, NULL));
    ERROR_(kvstore_delete(kv, NULL, 5));
    ERROR_(kvstore_cf_delete(other, NULL, 5));
    ERROR_(kvstore_exists(kv, NULL, 5, &out.n));
    ERROR_(kvstore_exists(kv, "plain", 5, NULL));
    ERROR_(kvstore_cf_exists(other, NULL, 5, &out.n));
    ERROR_(kvstore_cf_exists(other, "plain", 5, NULL));
    ERROR_(kvstore_put_if_absent(kv, NULL, 3, "v", 1, 0, &out.n));
    ERROR_(kvstore_put_if_absent(kv, "new", 3, NULL, 1, 0, &out.n));
    ERROR_(kvstore_cf_put_if_absent(other, NULL, 3, "v", 1, 0, &out.n));
    ERROR_(kvstore_cf_put_if_absent(other, "new", 3, NULL, 1, 0, &out.n));
    ERROR_(kvstore_count(kv, NULL));
    ERROR_(kvstore_cf_count(other, NULL));
    ERROR_(kvstore_clear(NULL));
    ERROR_(kvstore_cf_clear(NULL));

    /* TTL. */
    ERROR_(kvstore_put_ttl(kv, NULL, 3, "v", 1, SAMPLE_NOW * 2));
    ERROR_(kvstore_put_ttl(kv, "new", 3, NULL, 1, SAMPLE_NOW * 2));
    ERROR_(kvstore_cf_put_ttl(other, NULL, 3, "v", 1, SAMPLE_NOW * 2));
    ERROR_(kvstore_cf_put_ttl(other, "new", 3, NULL, 1, SAMPLE_NOW * 2));
    ERROR_(kvstore_get_ttl(kv, NULL, 6, &out.pointer, &out.n, &out.big));
    ERROR_(kvstore_get_ttl(kv, "mortal", 6, NULL, &out.n, &out.big));
    ERROR_(kvstore_get_ttl(kv, "mortal", 6, &out.pointer, NULL, &out.big));
    ERROR_(kvstore_cf_get_ttl(other, NULL, 6, &out.pointer, &out.n, &out.big));
    ERROR_(kvstore_cf_get_ttl(other, "mortal", 6, NULL, &out.n, &out.big));
    ERROR_(kvstore_cf_get_ttl(other, "mortal", 6, &out.pointer, NULL, &out.big));
    ERROR_(kvstore_ttl_remaining(kv, NULL, 6, &out.big));
    ERROR_(kvstore_ttl_remaining(kv, "mortal", 6, NULL));
    ERROR_(kvstore_cf_ttl_remaining(other, NULL, 6, &out.big));
    ERROR_(kvstore_cf_ttl_remaining(other, "mortal", 6, NULL));
    ERROR_(kvstore_purge_expired(NULL, NULL));
    ERROR_(kvstore_cf_purge_expired(NULL, NULL));

    /* Iterators. */
    ERROR_(kvstore_iterator_create(kv, NULL));
    ERROR_(kvstore_reverse_iterator_create(kv, NULL));
    ERROR_(kvstore_prefix_iterator_create(kv, "p", 1, NULL));
    ERROR_(kvstore_reverse_prefix_iterator_create(kv, "p", 1, NULL));
    ERROR_HANDLE(no_iterator, kvstore_prefix_iterator_create(kv, NULL, 1, &no_iterator));
    ERROR_HANDLE(no_iterator, kvstore_prefix_iterator_create(kv, NULL, 0, &no_iterator));
    ERROR_HANDLE(no_iterator, kvstore_reverse_prefix_iterator_create(kv, NULL, 1, &no_iterator));
    ERROR_(kvstore_cf_iterator_create(other, NULL));
    ERROR_(kvstore_cf_reverse_iterator_create(other, NULL));
    ERROR_(kvstore_cf_prefix_iterator_create(other, "p", 1, NULL));
    ERROR_(kvstore_cf_reverse_prefix_iterator_create(other, "p", 1, NULL));
    ERROR_HANDLE(no_iterator, kvstore_cf_prefix_iterator_create(other, NULL, 1, &no_iterator));
    ERROR_HANDLE(no_iterator, kvstore_cf_reverse_prefix_iterator_create(other, NULL, 1, &no_iterator));
    ERROR_(kvstore_iterator_seek(it, NULL, 5));
    ERROR_(kvstore_iterator_seek(back, NULL, 5));
    ERROR_(kvstore_iterator_key(it, NULL, &out.n));
    ERROR_(kvstore_iterator_key(it, &out.pointer, NULL));
    ERROR_(kvstore_iterator_value(it, NULL, &out.n));
    ERROR_(kvstore_iterator_value(it, &out.pointer, NULL));
    ERROR_(kvstore_iterator_first(NULL));
    ERROR_(kvstore_iterator_last(NULL));
    ERROR_(kvstore_iterator_next(NULL));
    ERROR_(kvstore_iterator_prev(NULL));

    /* The rest. */
    ERROR_(kvstore_begin(NULL, 1));
    ERROR_(kvstore_commit(NULL));
    ERROR_(kvstore_rollback(NULL));
    ERROR_(kvstore_stats(kv, NULL));
    ERROR_(kvstore_stats_reset(NULL));
    ERROR_(kvstore_integrity_check(NULL, NULL));
    ERROR_(kvstore_sync(NULL));
    ERROR_(kvstore_incremental_vacuum(NULL, 0));
    ERROR_(kvstore_checkpoint(NULL, KVSTORE_CHECKPOINT_PASSIVE, NULL, NULL));

    /* NULL where it is allowed. */
    OK(kvstore_integrity_check(kv, NULL));
    OK(kvstore_integrity_check(kv, &message));
    CHECK(message == NULL);
    OK(kvstore_checkpoint(kv, KVSTORE_CHECKPOINT_PASSIVE, NULL, NULL));
    OK(kvstore_put_if_absent(kv, "plain", 5, "new", 3, 0, NULL));
    OK(kvstore_cf_put_if_absent(other, "plain", 5, "new", 3, 0, NULL));
    OK(kvstore_get_ttl(kv, "plain", 5, &value, &n, NULL));
    kvstore_free(value);
    OK(kvstore_cf_get_ttl(other, "plain", 5, &value, &n, NULL));
    kvstore_free(value);
    OK(kvstore_set_clock(kv, NULL, NULL));
    OK(kvstore_set_clock(kv, sample_clock, NULL));
    CHECK(fingerprint(kv) == before);
    tear_down();

    kv = sample_open(NULL);
    sample_fill(kv);
    OK(kvstore_cf_open(kv, "other", &other));
    OK(kvstore_purge_expired(kv, NULL));
    OK(kvstore_cf_purge_expired(other, NULL));
    kvstore_cf_close(other);
    OK(kvstore_close(kv));
}

/* Outputs for a missing key. */
static void missing_keys(void)
{
    void *value;
    int n;
    int64_t left;

    set_up();
    for (int i = 0; i < 2; i++) {
        const char *key = i == 0 ? "missing" : "dead!!!";
        int n_key = i == 0 ? 7 : 4; /* the expired one */

        value = UNTOUCHED_POINTER;
        n = UNTOUCHED;
        GIVES(KVSTORE_NOTFOUND, kvstore_get(kv, key, n_key, &value, &n));
        CHECK(value == NULL && n == 0);
        value = UNTOUCHED_POINTER;
        n = UNTOUCHED;
        left = UNTOUCHED;
        GIVES(KVSTORE_NOTFOUND, kvstore_cf_get_ttl(other, key, n_key, &value, &n, &left));
        CHECK(value == NULL && n == 0 && left == 0);
        n = UNTOUCHED;
        OK(kvstore_exists(kv, key, n_key, &n));
        CHECK(n == 0);
        left = UNTOUCHED;
        GIVES(KVSTORE_NOTFOUND, kvstore_ttl_remaining(kv, key, n_key, &left));
        CHECK(left == UNTOUCHED); /* other outputs are written only on success */
        GIVES(KVSTORE_NOTFOUND, kvstore_delete(kv, key, n_key));
        GIVES(KVSTORE_NOTFOUND, kvstore_get_ttl(kv, key, n_key, &value, &n, NULL));
    }
    before = fingerprint(kv); /* the expired rows are removed */
    tear_down();
}

/* ---- lengths ----------------------------------------------------------------------------------- */

/* Makes every call that takes a key or a prefix, with this one. All must return this code. */
static void keys_give(int code, const void *key, int n)
{
    KVIterator *made;

    REFUSED(code, kvstore_put(kv, key, n, "v", 1));
    REFUSED(code, kvstore_get(kv, key, n, &out.pointer, &out.n));
    REFUSED(code, kvstore_delete(kv, key, n));
    REFUSED(code, kvstore_exists(kv, key, n, &out.n));
    REFUSED(code, kvstore_put_if_absent(kv, key, n, "v", 1, 0, &out.n));
    REFUSED(code, kvstore_put_ttl(kv, key, n, "v", 1, SAMPLE_NOW * 2));
    REFUSED(code, kvstore_get_ttl(kv, key, n, &out.pointer, &out.n, &out.big));
    REFUSED(code, kvstore_ttl_remaining(kv, key, n, &out.big));
    REFUSED(code, kvstore_cf_put(other, key, n, "v", 1));
    REFUSED(code, kvstore_cf_get(other, key, n, &out.pointer, &out.n));
    REFUSED(code, kvstore_cf_delete(other, key, n));
    REFUSED(code, kvstore_cf_exists(other, key, n, &out.n));
    REFUSED(code, kvstore_cf_put_if_absent(other, key, n, "v", 1, 0, &out.n));
    REFUSED(code, kvstore_cf_put_ttl(other, key, n, "v", 1, SAMPLE_NOW * 2));
    REFUSED(code, kvstore_cf_get_ttl(other, key, n, &out.pointer, &out.n, &out.big));
    REFUSED(code, kvstore_cf_ttl_remaining(other, key, n, &out.big));
    REFUSED_HANDLE(code, made, kvstore_prefix_iterator_create(kv, key, n, &made));
    REFUSED_HANDLE(code, made, kvstore_reverse_prefix_iterator_create(kv, key, n, &made));
    REFUSED_HANDLE(code, made, kvstore_cf_prefix_iterator_create(other, key, n, &made));
    REFUSED_HANDLE(code, made, kvstore_cf_reverse_prefix_iterator_create(other, key, n, &made));
    REFUSED(code, kvstore_iterator_seek(it, key, n));
    REFUSED(code, kvstore_iterator_seek(back, key, n));
}

static void key_lengths(void)
{
    static const int bad[] = {-1, INT_MIN, INT_MIN + 1, -65536, 0, 65537, 1 << 30, INT_MAX};
    char *key = malloc(65536), *small = malloc(3); /* on the heap: valgrind sees any read beyond */
    KVIterator *made;
    void *value;
    int n;
    int64_t left;

    set_up();
    memcpy(small, "abc", 3);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        keys_give(KVSTORE_ERROR, small, bad[i]);
        keys_give(KVSTORE_ERROR, NULL, bad[i]);
        CHECK(fingerprint(kv) == before);
    }
    keys_give(KVSTORE_ERROR, NULL, 5);
    CHECK(fingerprint(kv) == before);

    /* The longest key works everywhere. */
    memset(key, 'k', 65536);
    for (int family = 0; family < 2; family++) {
        KVColumnFamily *cf = other;

        if (family == 0) {
            OK(kvstore_cf_get_default(kv, &cf));
        }
        OK(kvstore_cf_put(cf, key, 65536, "long", 4));
        OK(kvstore_cf_put(cf, key, 65535, "less", 4));
        OK(kvstore_cf_get(cf, key, 65536, &value, &n));
        CHECK(n == 4 && strcmp(value, "long") == 0);
        kvstore_free(value);
        OK(kvstore_cf_exists(cf, key, 65536, &n));
        CHECK(n == 1);
        OK(kvstore_cf_put_if_absent(cf, key, 65536, "no", 2, 0, &n));
        CHECK(n == 0);
        OK(kvstore_cf_put_ttl(cf, key, 65536, "long", 4, SAMPLE_NOW + 9));
        OK(kvstore_cf_ttl_remaining(cf, key, 65536, &left));
        CHECK(left == 9);
        OK(kvstore_cf_prefix_iterator_create(cf, key, 65536, &made));
        CHECK(!kvstore_iterator_eof(made));
        OK(kvstore_iterator_key(made, &value, &n));
        CHECK(n == 65536);
        OK(kvstore_iterator_next(made));
        CHECK(kvstore_iterator_eof(made));
        OK(kvstore_iterator_seek(made, key, 65536));
        CHECK(!kvstore_iterator_eof(made));
        kvstore_iterator_close(made);
        OK(kvstore_cf_reverse_prefix_iterator_create(cf, key, 65536, &made));
        CHECK(!kvstore_iterator_eof(made));
        kvstore_iterator_close(made);
        OK(kvstore_integrity_check(kv, NULL));
        OK(kvstore_cf_delete(cf, key, 65536));
        OK(kvstore_cf_delete(cf, key, 65535));
        if (family == 0) {
            kvstore_cf_close(cf);
        }
    }
    free(key);
    free(small);
    tear_down();
}

static void values_give(int code, const void *value, int n)
{
    REFUSED(code, kvstore_put(kv, "plain", 5, value, n));
    REFUSED(code, kvstore_put(kv, "new", 3, value, n));
    REFUSED(code, kvstore_put_ttl(kv, "plain", 5, value, n, SAMPLE_NOW * 2));
    REFUSED(code, kvstore_put_if_absent(kv, "plain", 5, value, n, 0, &out.n));
    REFUSED(code, kvstore_put_if_absent(kv, "new", 3, value, n, 0, &out.n));
    REFUSED(code, kvstore_cf_put(other, "plain", 5, value, n));
    REFUSED(code, kvstore_cf_put_ttl(other, "plain", 5, value, n, SAMPLE_NOW * 2));
    REFUSED(code, kvstore_cf_put_if_absent(other, "new", 3, value, n, 0, &out.n));
    CHECK(fingerprint(kv) == before);
}

static void value_is(const char *key, const void *expected, int n_expected)
{
    void *value;
    int n;

    OK(kvstore_get(kv, key, (int)strlen(key), &value, &n));
    CHECK(value != NULL && n == n_expected && (n == 0 || memcmp(value, expected, (size_t)n) == 0));
    CHECK(((char *)value)[n] == '\0');
    kvstore_free(value);
}

static void value_lengths(void)
{
    const int max = 10 * 1024 * 1024;
    static const int bad[] = {-1, INT_MIN, 10 * 1024 * 1024 + 1, 512 * 1024 * 1024, 512 * 1024 * 1024 + 1,
                              INT_MAX};
    char *small = malloc(3), *large = malloc((size_t)max);
    KVStoreConfig cfg = {0};
    KVStore *little;

    set_up();
    memcpy(small, "abc", 3);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        values_give(KVSTORE_ERROR, small, bad[i]);
        values_give(KVSTORE_ERROR, NULL, bad[i]);
    }
    values_give(KVSTORE_ERROR, NULL, 1);
    values_give(KVSTORE_ERROR, NULL, 5);
    REFUSED(KVSTORE_ERROR, kvstore_put_ttl(kv, "plain", 5, "v", 1, -2));
    REFUSED(KVSTORE_ERROR, kvstore_put_ttl(kv, "plain", 5, "v", 1, INT64_MIN));
    REFUSED(KVSTORE_ERROR, kvstore_cf_put_ttl(other, "plain", 5, "v", 1, -2));
    REFUSED(KVSTORE_ERROR, kvstore_put_if_absent(kv, "new", 3, "v", 1, -2, &out.n));
    REFUSED(KVSTORE_ERROR, kvstore_cf_put_if_absent(other, "new", 3, "v", 1, INT64_MIN, &out.n));
    CHECK(fingerprint(kv) == before);

    /* The edges that are allowed. */
    OK(kvstore_put(kv, "edge", 4, NULL, 0));
    value_is("edge", "", 0);
    OK(kvstore_put(kv, "edge", 4, "", 0));
    value_is("edge", "", 0);
    OK(kvstore_put_ttl(kv, "edge", 4, NULL, 0, INT64_MAX));
    value_is("edge", "", 0);
    memset(large, 'x', (size_t)max);
    OK(kvstore_put(kv, "edge", 4, large, max));
    value_is("edge", large, max);
    OK(kvstore_delete(kv, "edge", 4));
    OK(kvstore_put_if_absent(kv, "edge", 4, NULL, 0, 0, NULL));
    value_is("edge", "", 0);
    OK(kvstore_delete(kv, "edge", 4));
    free(large);
    free(small);
    tear_down();

    /* A custom limit. */
    cfg.maxValueSize = 100;
    small = calloc(1, 100);
    OK(kvstore_open_v2(NULL, &little, &cfg));
    OK(kvstore_put(little, "k", 1, small, 100));
    REFUSED(KVSTORE_ERROR, kvstore_put(little, "k", 1, small, 101));
    OK(kvstore_close(little));
    free(small);
}

static void name_is_refused(const char *name)
{
    KVColumnFamily *cf;

    ERROR_HANDLE(cf, kvstore_cf_create(kv, name, &cf));
    ERROR_HANDLE(cf, kvstore_cf_open(kv, name, &cf));
    ERROR_(kvstore_cf_drop(kv, name));
}

static void family_names(void)
{
    static const char *good[] = {"a",        "KVSTORE",   "_",       "_x",          "snkv_x", "caf\xc3\xa9",
                                 "a b;'\"%", "Kvstore_x", "data:x",  "sqlite_x",    "Default", "\n\t"};
    char longest[256], too_long[257];
    KVColumnFamily *cf;

    set_up();
    memset(longest, 'n', 255);
    longest[255] = '\0';
    memset(too_long, 'n', 256);
    too_long[256] = '\0';
    name_is_refused("");
    name_is_refused(too_long);
    name_is_refused("\xff\xfe");
    name_is_refused("half \xc3");
    name_is_refused("surrogate \xed\xa0\x80");
    name_is_refused("__");
    name_is_refused("__x");
    name_is_refused("_snkv_");
    name_is_refused("_snkv_x");
    name_is_refused("kvstore");
    name_is_refused("kvstore_meta");
    ERROR_(kvstore_cf_drop(kv, "default"));
    ERROR_HANDLE(cf, kvstore_cf_create(kv, "default", &cf));
    ERROR_HANDLE(cf, kvstore_cf_create(kv, "other", &cf));
    REFUSED_HANDLE(KVSTORE_NOTFOUND, cf, kvstore_cf_open(kv, "missing", &cf));
    REFUSED(KVSTORE_NOTFOUND, kvstore_cf_drop(kv, "missing"));
    REFUSED(KVSTORE_BUSY, kvstore_cf_drop(kv, "other"));
    CHECK(fingerprint(kv) == before);

    OK(kvstore_cf_create(kv, longest, &cf));
    CHECK(strcmp(kvstore_cf_name(cf), longest) == 0);
    OK(kvstore_cf_put_ttl(cf, "k", 1, "v", 1, SAMPLE_NOW * 2));
    kvstore_cf_close(cf);
    OK(kvstore_cf_drop(kv, longest));
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        static char large[9000];

        OK(kvstore_cf_create(kv, good[i], &cf));
        CHECK(strcmp(kvstore_cf_name(cf), good[i]) == 0);
        OK(kvstore_cf_put_ttl(cf, "k", 1, large, sizeof large, SAMPLE_NOW * 2));
        OK(kvstore_integrity_check(kv, NULL));
        kvstore_cf_close(cf);
        OK(kvstore_cf_drop(kv, good[i]));
    }
    tear_down();
}

/* ---- other numbers ----------------------------------------------------------------------------- */

#define BAD_CONFIG(field, value)                                                                         \
    do {                                                                                                 \
        KVStoreConfig cfg = {0};                                                                         \
        KVStore *none;                                                                                   \
        cfg.field = (value);                                                                             \
        REFUSED_HANDLE(KVSTORE_ERROR, none, kvstore_open_v2("config.db", &none, &cfg));                  \
        REFUSED_HANDLE(KVSTORE_ERROR, none, kvstore_open_v2(NULL, &none, &cfg));                         \
        CHECK(fopen("config.db", "r") == NULL);                                                          \
    } while (0)

static void numbers(void)
{
    static const int page_sizes[] = {-1, 1, 256, 511, 513, 1000, 65535, 131072, INT_MIN, INT_MAX};
    KVStore *none;

    set_up();
    for (size_t i = 0; i < sizeof page_sizes / sizeof *page_sizes; i++) {
        BAD_CONFIG(pageSize, page_sizes[i]);
    }
    BAD_CONFIG(journalMode, -1);
    BAD_CONFIG(journalMode, 3);
    BAD_CONFIG(journalMode, INT_MIN);
    BAD_CONFIG(syncLevel, -1);
    BAD_CONFIG(syncLevel, 4);
    BAD_CONFIG(cacheSize, -1);
    BAD_CONFIG(walSizeLimit, INT_MIN);
    BAD_CONFIG(walPages, -1);
    BAD_CONFIG(walPages, 15);
    BAD_CONFIG(walPages, INT_MAX);
    BAD_CONFIG(maxValueSize, -1);
    BAD_CONFIG(maxValueSize, 512 * 1024 * 1024 + 1);
    BAD_CONFIG(maxValueSize, INT_MAX);
    BAD_CONFIG(mode, -1);
    BAD_CONFIG(mode, 01777);
    BAD_CONFIG(purgePerWrite, -1);
    BAD_CONFIG(purgePerWrite, 1001);
    for (int i = 0; i < 2; i++) { /* api_store.c counts them */
        BAD_CONFIG(reserved[i], 1);
    }
    REFUSED_HANDLE(KVSTORE_ERROR, none, kvstore_open("config.db", &none, -1));
    REFUSED_HANDLE(KVSTORE_ERROR, none, kvstore_open("config.db", &none, 3));
    REFUSED_HANDLE(KVSTORE_ERROR, none, kvstore_open(NULL, &none, INT_MAX));
    CHECK(fopen("config.db", "r") == NULL);
    CHECK(fingerprint(kv) == before);

    ERROR_(kvstore_checkpoint(kv, -1, &out.n, &out.m));
    ERROR_(kvstore_checkpoint(kv, 4, &out.n, &out.m));
    ERROR_(kvstore_checkpoint(kv, INT_MIN, &out.n, &out.m));
    ERROR_(kvstore_incremental_vacuum(kv, -1));
    ERROR_(kvstore_incremental_vacuum(kv, INT_MIN));
    OK(kvstore_incremental_vacuum(kv, INT_MAX));
    OK(kvstore_begin(kv, -5)); /* anything but 0 writes */
    OK(kvstore_put(kv, "new", 3, "v", 1));
    OK(kvstore_rollback(kv));
    OK(kvstore_begin(kv, 0));
    REFUSED(KVSTORE_READONLY, kvstore_put(kv, "new", 3, "v", 1));
    REFUSED(KVSTORE_ERROR, kvstore_begin(kv, 1));
    OK(kvstore_rollback(kv));
    ERROR_(kvstore_commit(kv));
    ERROR_(kvstore_rollback(kv));
    ERROR_(kvstore_iterator_last(it));
    ERROR_(kvstore_iterator_prev(it));
    tear_down();
}

SCENARIOS({"null_pointers", null_pointers}, {"missing_keys", missing_keys}, {"key_lengths", key_lengths},
          {"value_lengths", value_lengths}, {"family_names", family_names}, {"numbers", numbers})

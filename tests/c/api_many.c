/* Reads without malloc, several keys in one call, and batches. */
#include "api_places.h"

static void get_into_at(const struct place *p)
{
    char buffer[9];
    int n = 7;
    OK(AT(p, put, K("key"), K("value")));
    OK(AT(p, get_into, K("key"), NULL, 0, &n)); /* how long is it? */
    CHECK(n == 5);
    memset(buffer, 'x', sizeof buffer);
    n = 7;
    OK(AT(p, get_into, K("key"), buffer, 0, &n));
    CHECK(n == 5 && buffer[0] == 'x');
    OK(AT(p, get_into, K("key"), buffer, 2, &n)); /* its first bytes, and its full length */
    CHECK(n == 5 && memcmp(buffer, "vaxxxxxxx", 9) == 0);
    OK(AT(p, get_into, K("key"), buffer, 4, &n));
    CHECK(n == 5 && memcmp(buffer, "valuxxxxx", 9) == 0);
    OK(AT(p, get_into, K("key"), buffer, 5, &n));
    CHECK(n == 5 && memcmp(buffer, "valuexxxx", 9) == 0); /* no NUL after it */
    memset(buffer, 'x', sizeof buffer);
    OK(AT(p, get_into, K("key"), buffer, sizeof buffer, &n));
    CHECK(n == 5 && memcmp(buffer, "valuexxxx", 9) == 0);

    OK(AT(p, put_ttl, K("key"), NULL, 0, 2000));
    n = 7;
    OK(AT(p, get_into, K("key"), buffer, sizeof buffer, &n));
    CHECK(n == 0 && memcmp(buffer, "valuexxxx", 9) == 0);
    clock_ms = 2000;
    for (int i = 0; i < 2; i++) {
        n = 7;
        GIVES(KVSTORE_NOTFOUND, AT(p, get_into, K("key"), buffer, sizeof buffer, &n));
        CHECK(n == 0 && memcmp(buffer, "valuexxxx", 9) == 0);
    }
    n = 7;
    GIVES(KVSTORE_ERROR, AT(p, get_into, K("key"), NULL, 1, &n));
    GIVES(KVSTORE_ERROR, AT(p, get_into, K("key"), buffer, -1, &n));
    GIVES(KVSTORE_ERROR, AT(p, get_into, K("key"), buffer, INT_MIN, &n));
    GIVES(KVSTORE_ERROR, AT(p, get_into, K("key"), NULL, INT_MIN, &n));
    GIVES(KVSTORE_ERROR, AT(p, get_into, K("key"), buffer, sizeof buffer, NULL));
    CHECK(n == 7);
}
IN_BOTH_PLACES(get_into)

static char pattern(int i)
{
    return (char)(i * 31 + i / 257);
}

/* Reads the value of "key", `size` bytes of pattern(), by each call. The buffers are on the heap, where valgrind sees
 * one byte too many. */
static void reads_large(const struct place *p, int size)
{
    const int caps[] = {1, 4096, 65536, size - 1, size};
    void *value;
    int n = 7;
    int64_t left;
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
        int cap = caps[i] < size ? caps[i] : size;
        char *buffer = malloc((size_t)cap);
        OK(AT(p, get_into, K("key"), buffer, cap, &n));
        CHECK(n == size);
        for (int at = 0; at < cap; at++) {
            CHECK(buffer[at] == pattern(at));
        }
        free(buffer);
    }
    for (int with_ttl = 0; with_ttl < 2; with_ttl++) {
        OK(with_ttl ? AT(p, get_ttl, K("key"), &value, &n, &left) : AT(p, get, K("key"), &value, &n));
        CHECK(n == size && ((char *)value)[n] == 0);
        for (int at = 0; at < n; at++) {
            CHECK(((char *)value)[at] == pattern(at));
        }
        kvstore_free(value);
    }
}

/* Values inside and outside the row, on one page and on many: as written, changed in an open transaction, in the WAL
 * and in the database file. */
static void get_into_large_at(const struct place *p)
{
    static const int sizes[] = {250, 256, 260, 4050, 4096, 50000, 1000003};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *value = malloc((size_t)sizes[i]);
        for (int at = 0; at < sizes[i]; at++) {
            value[at] = pattern(at);
        }
        OK(AT(p, put, K("key"), "x", 1));
        OK(kvstore_begin(p->kv, 1));
        OK(AT(p, put_ttl, K("key"), value, sizes[i], 100000));
        reads_large(p, sizes[i]);
        OK(kvstore_commit(p->kv));
        reads_large(p, sizes[i]);
        OK(kvstore_begin(p->kv, 0));
        reads_large(p, sizes[i]);
        OK(kvstore_rollback(p->kv));
        CHECK(kvstore_checkpoint(p->kv, KVSTORE_CHECKPOINT_TRUNCATE, NULL, NULL) == KVSTORE_OK || are_on_a_server());
        reads_large(p, sizes[i]);
        free(value);
    }
}
IN_BOTH_PLACES(get_into_large)

/* Changes the number of the page that follows the middle page of a large value; reads of it then fail. */
static void get_into_damaged(void)
{
    enum { N = 1000000, PAGE = 4096, MIDDLE = 100 };
    static const unsigned char next[][4] = {{0, 0, 0, 0}, {0x7f, 0xff, 0xff, 0xff}};
    if (is_of_files("it changes the file")) return;
    files_are_plain();
    char *buffer = calloc(1, N);
    for (size_t i = 0; i < sizeof next / sizeof *next; i++) {
        void *value = UNTOUCHED_POINTER;
        int n = 7;
        int64_t left;
        remove("damaged.db");
        KVStore *kv = open_at("damaged.db", NULL);
        OK(kvstore_put(kv, K("key"), buffer, N));
        OK(kvstore_close(kv));
        FILE *file = fopen("damaged.db", "r+b");
        CHECK(file != NULL && fseek(file, MIDDLE * PAGE, SEEK_SET) == 0 && fwrite(next[i], 1, 4, file) == 4);
        CHECK(fclose(file) == 0);
        kv = open_at("damaged.db", NULL);
        GIVES(KVSTORE_CORRUPT, kvstore_get_into(kv, K("key"), buffer, N, &n));
        CHECK(n == 0 || n == 7);
        GIVES(KVSTORE_CORRUPT, kvstore_get(kv, K("key"), &value, &n));
        CHECK(value == NULL && n == 0);
        value = UNTOUCHED_POINTER;
        GIVES(KVSTORE_CORRUPT, kvstore_get_ttl(kv, K("key"), &value, &n, &left));
        CHECK(value == NULL && n == 0);
        if (strcmp(kvstore_engine(), "btree") == 0) { /* SQL reads whole values */
            OK(kvstore_get_into(kv, K("key"), buffer, PAGE * 10, &n)); /* the beginning is there */
            CHECK(n == N);
        }
        OK(kvstore_put(kv, K("key"), "new", 3));
        OK(kvstore_get_into(kv, K("key"), buffer, N, &n));
        CHECK(n == 3 && memcmp(buffer, "new", 3) == 0);
        OK(kvstore_close(kv));
    }
    free(buffer);
}

static void get_many_at(const struct place *p)
{
    enum { N = 7, LARGE = 50000 };
    const void *keys[N] = {"a", "none", "empty", "dead", "a", "large", "\0b"};
    int lens[N] = {1, 4, 5, 4, 1, 5, 2}, value_lens[N];
    void *values[N];
    char *large = calloc(1, LARGE);
    OK(AT(p, put, K("a"), K("value")));
    OK(AT(p, put, K("empty"), NULL, 0));
    OK(AT(p, put_ttl, K("dead"), K("value"), 1000));
    OK(AT(p, put, K("large"), large, LARGE));
    OK(AT(p, put, K("\0b"), K("bytes\0")));
    for (int i = 0; i < N; i++) {
        values[i] = &clock_ms;
        value_lens[i] = 7;
    }
    OK(AT(p, get_many, N, keys, lens, values, value_lens));
    CHECK(value_lens[0] == 5 && memcmp(values[0], "value", 6) == 0); /* with the NUL after it */
    CHECK(value_lens[1] == -1 && values[1] == NULL);
    CHECK(value_lens[2] == 0 && values[2] != NULL && *(char *)values[2] == '\0');
    CHECK(value_lens[3] == -1 && values[3] == NULL);
    CHECK(value_lens[4] == 5 && values[4] != values[0]); /* the same key twice: two copies */
    CHECK(value_lens[5] == LARGE && memcmp(values[5], large, LARGE) == 0);
    CHECK(value_lens[6] == 6 && memcmp(values[6], "bytes\0", 7) == 0);
    for (int i = 0; i < N; i++) {
        kvstore_free(values[i]);
    }
    KVStoreStats stats;
    OK(kvstore_stats(p->kv, &stats));
    CHECK(stats.nGets == 5 && stats.nBytesRead == 5 + 0 + 5 + LARGE + 6 && stats.nTtlExpired == 1);
    free(large);
}
IN_BOTH_PLACES(get_many)

static void get_many_refuses_at(const struct place *p)
{
    const void *keys[3] = {"a", "b", "c"};
    int lens[3] = {1, 1, 1}, value_lens[3] = {7, 7, 7};
    static const int bad[] = {0, -1, INT_MIN, 65537, INT_MAX};
    void *values[3] = {&clock_ms, &clock_ms, &clock_ms};
    OK(AT(p, put, K("a"), K("value")));
    OK(AT(p, get_many, 0, keys, lens, values, value_lens)); /* nothing to do */
    OK(AT(p, get_many, 0, NULL, NULL, NULL, NULL));
    GIVES(KVSTORE_ERROR, AT(p, get_many, -1, keys, lens, values, value_lens));
    GIVES(KVSTORE_ERROR, AT(p, get_many, INT_MIN, keys, lens, values, value_lens));
    GIVES(KVSTORE_ERROR, AT(p, get_many, 3, NULL, lens, values, value_lens));
    GIVES(KVSTORE_ERROR, AT(p, get_many, 3, keys, NULL, values, value_lens));
    GIVES(KVSTORE_ERROR, AT(p, get_many, 3, keys, lens, NULL, value_lens));
    GIVES(KVSTORE_ERROR, AT(p, get_many, 3, keys, lens, values, NULL));
    CHECK(values[0] == &clock_ms && value_lens[0] == 7);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) { /* one bad key: nothing is handed out */
        lens[1] = bad[i];
        for (int j = 0; j < 3; j++) {
            values[j] = &clock_ms;
            value_lens[j] = 7;
        }
        GIVES(KVSTORE_ERROR, AT(p, get_many, 3, keys, lens, values, value_lens));
        for (int j = 0; j < 3; j++) {
            CHECK(values[j] == NULL && value_lens[j] == -1);
        }
    }
    lens[1] = 1;
    keys[2] = NULL;
    GIVES(KVSTORE_ERROR, AT(p, get_many, 3, keys, lens, values, value_lens));
    CHECK(values[0] == NULL && value_lens[0] == -1);
}
IN_BOTH_PLACES(get_many_refuses)

static void delete_many_at(const struct place *p)
{
    enum { N = 6 };
    const void *keys[N] = {"b", "none", "a", "dead", "b", "\0b"};
    int lens[N] = {1, 4, 1, 4, 1, 2}, there = 1;
    int64_t deleted = -7;
    OK(AT(p, put, K("a"), K("value")));
    OK(AT(p, put, K("b"), K("value")));
    OK(AT(p, put, K("\0b"), K("value")));
    OK(AT(p, put, K("stays"), K("value")));
    OK(AT(p, put_ttl, K("dead"), K("value"), 1000));
    OK(AT(p, delete_many, 0, NULL, NULL, &deleted)); /* nothing to do */
    CHECK(deleted == 0);
    OK(kvstore_begin(p->kv, 1));
    OK(AT(p, delete_many, N, keys, lens, NULL));
    OK(kvstore_rollback(p->kv));
    static const int bad[] = {0, -1, INT_MIN, 65537, INT_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) { /* one bad key: nothing is deleted */
        lens[4] = bad[i];
        deleted = -7;
        GIVES(KVSTORE_ERROR, AT(p, delete_many, N, keys, lens, &deleted));
        CHECK(deleted == -7);
    }
    lens[4] = 1;
    GIVES(KVSTORE_ERROR, AT(p, delete_many, -1, keys, lens, &deleted));
    GIVES(KVSTORE_ERROR, AT(p, delete_many, INT_MIN, keys, lens, &deleted));
    KVStoreStats stats;
    OK(kvstore_stats_reset(p->kv));
    OK(AT(p, delete_many, N, keys, lens, &deleted));
    CHECK(deleted == 3); /* the same key twice: once */
    OK(kvstore_stats(p->kv, &stats));
    CHECK(stats.nDeletes == 3);
    OK(AT(p, exists, K("a"), &there));
    CHECK(there == 0);
    OK(AT(p, exists, K("stays"), &there));
    CHECK(there == 1);
    OK(AT(p, delete_many, N, keys, lens, &deleted));
    CHECK(deleted == 0);
}
IN_BOTH_PLACES(delete_many)

/* Reads a thousand keys. In a transaction, get_many sees the transaction's own writes. */
static void get_many_many_at(const struct place *p)
{
    enum { N = 1000 };
    static char names[N][8];
    static const void *keys[N];
    static int lens[N], value_lens[N];
    static void *values[N];
    OK(kvstore_begin(p->kv, 1));
    for (int i = 0; i < N; i++) {
        lens[i] = snprintf(names[i], sizeof names[i], "%d", i);
        keys[i] = names[i];
        if (i % 2 == 0) {
            OK(AT(p, put, keys[i], lens[i], keys[i], lens[i]));
        }
    }
    for (int committed = 0; committed < 2; committed++) {
        OK(AT(p, get_many, N, keys, lens, values, value_lens));
        for (int i = 0; i < N; i++) {
            CHECK(value_lens[i] == (i % 2 == 0 ? lens[i] : -1));
            CHECK(value_lens[i] < 0 || memcmp(values[i], names[i], (size_t)lens[i]) == 0);
            kvstore_free(values[i]);
        }
        if (!committed) {
            OK(kvstore_commit(p->kv));
        }
    }
}
IN_BOTH_PLACES(get_many_many)

/* ---- batches ----------------------------------------------------------------------------------- */

static int64_t size_of(KVBatch *b)
{
    int64_t count = -1;
    OK(kvstore_batch_count(b, &count));
    return count;
}

static void batch_at(const struct place *p)
{
    KVColumnFamily *other = family(p->kv, "other");
    KVBatch *b = NULL;
    OK(kvstore_batch_new(p->kv, &b));
    CHECK(b != NULL && size_of(b) == 0);
    OK(kvstore_batch_commit(b)); /* an empty one is nothing to do */
    OK(AT(p, put_ttl, K("old"), K("value"), 9000));
    char key[] = "key", value[] = "value";
    OK(kvstore_batch_put(b, p->cf, key, 3, value, 5, 2000));
    memset(key, 'x', 3); /* key and value were copied */
    memset(value, 'x', 5);
    OK(kvstore_batch_put(b, other, K("key"), K("other"), 0));
    OK(kvstore_batch_put(b, p->cf, K("empty"), NULL, 0, 0));
    OK(kvstore_batch_delete(b, p->cf, K("old")));
    OK(kvstore_batch_delete(b, p->cf, K("none"))); /* missing: no error */
    CHECK(size_of(b) == 5);
    GONE(p->cf, "key"); /* nothing has happened yet */
    HAS(p->cf, "old", "value");
    OK(kvstore_batch_commit(b));
    CHECK(size_of(b) == 0);
    HAS(p->cf, "key", "value");
    ENDS(p->cf, "key", 2000);
    HAS(other, "key", "other");
    ENDS(other, "key", KVSTORE_NO_TTL);
    HAS(p->cf, "empty", "");
    GONE(p->cf, "old");
    OK(kvstore_batch_commit(b)); /* empty: not a second time */
    CHECK(rows_of(p->cf) == 2);

    OK(kvstore_batch_put(b, p->cf, K("k"), K("1"), 0)); /* in the order in which they were added */
    OK(kvstore_batch_delete(b, p->cf, K("k")));
    OK(kvstore_batch_put(b, p->cf, K("k"), K("2"), 3000));
    OK(kvstore_batch_put(b, p->cf, K("gone"), K("1"), 0));
    OK(kvstore_batch_delete(b, p->cf, K("gone")));
    OK(kvstore_batch_put(b, p->cf, K("past"), K("1"), 999));
    OK(kvstore_batch_commit(b));
    HAS(p->cf, "k", "2");
    ENDS(p->cf, "k", 3000);
    GONE(p->cf, "gone");
    GONE(p->cf, "past");

    OK(kvstore_batch_put(b, p->cf, K("k"), K("3"), 0));
    OK(kvstore_batch_clear(b));
    CHECK(size_of(b) == 0);
    OK(kvstore_batch_clear(b));
    OK(kvstore_batch_commit(b));
    HAS(p->cf, "k", "2");
    OK(kvstore_batch_put(b, p->cf, K("k"), K("4"), 0));
    kvstore_batch_free(b); /* uncommitted writes are discarded */
    HAS(p->cf, "k", "2");
    kvstore_batch_free(NULL);
    kvstore_cf_close(other);
}
IN_BOTH_PLACES(batch)

/* An invalid write is refused when it is added; the rest of the batch is unchanged. */
static void batch_refuses_at(const struct place *p)
{
    static const int bad[] = {-1, INT_MIN, 0, 65537, INT_MAX};
    KVStore *second = open_at(NULL, NULL);
    KVColumnFamily *foreign = family(second, "default");
    KVBatch *b;
    OK(kvstore_batch_new(p->kv, &b));
    OK(kvstore_batch_put(b, p->cf, K("key"), K("value"), 0));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        GIVES(KVSTORE_ERROR, kvstore_batch_put(b, p->cf, "key", bad[i], K("value"), 0));
        GIVES(KVSTORE_ERROR, kvstore_batch_delete(b, p->cf, "key", bad[i]));
    }
    GIVES(KVSTORE_ERROR, kvstore_batch_put(b, p->cf, K("key"), "value", -1, 0));
    GIVES(KVSTORE_ERROR, kvstore_batch_put(b, p->cf, K("key"), "value", 10485761, 0));
    GIVES(KVSTORE_ERROR, kvstore_batch_put(b, p->cf, K("key"), "value", INT_MAX, 0));
    GIVES(KVSTORE_ERROR, kvstore_batch_put(b, p->cf, K("key"), K("value"), -2));
    GIVES(KVSTORE_ERROR, kvstore_batch_put(b, foreign, K("key"), K("value"), 0));
    GIVES(KVSTORE_ERROR, kvstore_batch_delete(b, foreign, K("key")));
    CHECK(strcmp(kvstore_errmsg(p->kv), "no error") != 0);
    CHECK(size_of(b) == 1);
    OK(kvstore_batch_commit(b));
    HAS(p->cf, "key", "value");
    CHECK(rows_of(p->cf) == 1 && rows_of(foreign) == 0);
    kvstore_batch_free(b);
    kvstore_cf_close(foreign);
    OK(kvstore_close(second));
}
IN_BOTH_PLACES(batch_refuses)

/* A batch may include families of another handle on the same file. It is committed through one
 * handle. */
static void batch_of_another_handle(void)
{
    KVStore *one = open_at("store.db", NULL), *two = open_at("store.db", NULL);
    KVColumnFamily *cf = family(one, "default"), *same = family(two, "default");
    KVBatch *b;
    OK(kvstore_batch_new(one, &b));
    GIVES(KVSTORE_ERROR, kvstore_batch_put(b, same, K("key"), K("value"), 0));
    OK(kvstore_batch_put(b, cf, K("key"), K("value"), 0));
    OK(kvstore_begin(two, 1)); /* BUSY: nothing has happened, and the batch is still full */
    OK(kvstore_put(two, K("key"), K("lost"))); /* on a server, this row is locked */
    GIVES(KVSTORE_BUSY, kvstore_batch_commit(b));
    CHECK(size_of(b) == 1);
    GONE(cf, "key");
    OK(kvstore_rollback(two));
    kvstore_cf_close(cf); /* the family's handle is not needed any more */
    OK(kvstore_batch_commit(b));
    CHECK(size_of(b) == 0);
    HAS(same, "key", "value");
    kvstore_batch_free(b);
    kvstore_cf_close(same);
    OK(kvstore_close(one));
    OK(kvstore_close(two));
}

static void batch_in_transactions_at(const struct place *p)
{
    KVBatch *b;
    OK(kvstore_batch_new(p->kv, &b));
    OK(kvstore_begin(p->kv, 1));
    OK(AT(p, put, K("own"), K("value")));
    OK(kvstore_batch_put(b, p->cf, K("key"), K("value"), 0));
    OK(kvstore_batch_commit(b)); /* a part of the caller's transaction */
    HAS(p->cf, "key", "value");
    OK(kvstore_rollback(p->kv));
    CHECK(rows_of(p->cf) == 0 && size_of(b) == 0);

    OK(kvstore_batch_put(b, p->cf, K("key"), K("value"), 0));
    OK(kvstore_begin(p->kv, 0));
    GIVES(KVSTORE_READONLY, kvstore_batch_commit(b));
    CHECK(size_of(b) == 1);
    OK(kvstore_commit(p->kv));
    OK(kvstore_batch_commit(b));
    HAS(p->cf, "key", "value");
    kvstore_batch_free(b);
}
IN_BOTH_PLACES(batch_in_transactions)

/* A family is dropped before the commit: the whole batch fails, and changes nothing. */
static void batch_of_a_dropped_family(void)
{
    for (int in_transaction = 0; in_transaction < 2; in_transaction++) {
        KVStore *kv = open_at(NULL, NULL);
        KVColumnFamily *cf = family(kv, "default"), *doomed = family(kv, "doomed");
        KVBatch *b;
        OK(kvstore_batch_new(kv, &b));
        OK(kvstore_batch_put(b, cf, K("key"), K("value"), 0));
        OK(kvstore_batch_put(b, doomed, K("key"), K("value"), 0));
        OK(kvstore_batch_put(b, cf, K("other"), K("value"), 0));
        GIVES(KVSTORE_BUSY, kvstore_cf_drop(kv, "doomed"));
        kvstore_cf_close(doomed);
        OK(kvstore_cf_drop(kv, "doomed")); /* the batch is no open handle */
        if (in_transaction) {
            OK(kvstore_begin(kv, 1));
            OK(kvstore_cf_put(cf, K("own"), K("value")));
        }
        GIVES(KVSTORE_ERROR, kvstore_batch_commit(b));
        CHECK(size_of(b) == 3);
        if (in_transaction) { /* the caller's own writes are not hurt */
            OK(kvstore_commit(kv));
            HAS(cf, "own", "value");
        }
        CHECK(rows_of(cf) == in_transaction);
        OK(kvstore_batch_clear(b)); /* and the batch can be used again */
        OK(kvstore_batch_put(b, cf, K("key"), K("value"), 0));
        OK(kvstore_batch_commit(b));
        HAS(cf, "key", "value");
        kvstore_batch_free(b);
        OK(kvstore_integrity_check(kv, NULL));
        kvstore_cf_close(cf);
        OK(kvstore_close(kv));
    }
}

/* Ten thousand writes over three families in one transaction; expire_ms 0 is permanent, also against a
 * default TTL. */
static void batch_large(void)
{
    enum { N = 10000 };
    KVStore *kv = open_at("store.db", NULL);
    KVColumnFamily *cfs[3] = {family(kv, "default"), family(kv, "b"), family(kv, "c")};
    KVBatch *b;
    KVStoreStats before, after;
    OK(kvstore_cf_set_default_ttl(cfs[1], 500));
    OK(kvstore_batch_new(kv, &b));
    for (int i = 0; i < N; i++) {
        char key[16];
        int n = snprintf(key, sizeof key, "%d", i);
        OK(kvstore_batch_put(b, cfs[i % 3], key, n, key, n, i % 2 ? 2000 : 0));
    }
    CHECK(size_of(b) == N);
    OK(kvstore_stats(kv, &before));
    OK(kvstore_batch_commit(b));
    OK(kvstore_stats(kv, &after));
    CHECK(after.nWalCommits == before.nWalCommits + 1 && after.nPuts == before.nPuts + N);
    ENDS(cfs[1], "4", 1500); /* 0: the default TTL */
    ENDS(cfs[0], "0", KVSTORE_NO_TTL);
    ENDS(cfs[1], "1", 2000);
    CHECK(rows_of(cfs[0]) + rows_of(cfs[1]) + rows_of(cfs[2]) == N);
    kvstore_batch_free(b);
    OK(kvstore_integrity_check(kv, NULL));
    for (int i = 0; i < 3; i++) {
        kvstore_cf_close(cfs[i]);
    }
    OK(kvstore_close(kv));
}

/* Asserts that the entry has this key, value and expiry time. */
static int shows(const KVEntry *entry, const char *key, const char *value, int64_t expire_ms)
{
    return entry->nKey == (int)strlen(key) && memcmp(entry->pKey, key, strlen(key)) == 0 &&
           entry->nValue == (int)strlen(value) && entry->pValue != NULL &&
           memcmp(entry->pValue, value, strlen(value)) == 0 && entry->expireMs == expire_ms;
}

static void fetch_at(const struct place *p)
{
    KVIterator *it;
    KVEntry entries[4];
    int n = 7;
    OK(AT(p, put, K("a"), K("1")));
    OK(AT(p, put_ttl, K("b"), K(""), 3000));
    OK(AT(p, put_ttl, K("c"), K("dies"), 2000));
    OK(AT(p, put, K("d"), K("4")));
    OK(AT(p, put, K("e"), K("5")));
    OK(AT(p, range_iterator_create, NULL, 0, NULL, 0, 0, &it));

    OK(kvstore_iterator_fetch(it, NULL, 0, &n));
    CHECK(n == 0 && !kvstore_iterator_eof(it));
    memset(entries, 0x5a, sizeof entries);
    OK(kvstore_iterator_fetch(it, entries, 2, &n));
    CHECK(n == 2 && shows(&entries[0], "a", "1", KVSTORE_NO_TTL) && shows(&entries[1], "b", "", 3000));
    CHECK(entries[2].nKey == 0x5a5a5a5a);
    clock_ms = 2000; /* "c" is expired by its new expiry time */
    hear_the_time(p->kv);
    OK(kvstore_iterator_fetch(it, entries, 1, &n));
    CHECK(n == 1 && shows(&entries[0], "d", "4", KVSTORE_NO_TTL));
    OK(AT(p, put, K("e"), K("new"))); /* and what was read ahead is out of date */
    OK(kvstore_iterator_fetch(it, entries, 4, &n));
    CHECK(n == 1 && shows(&entries[0], "e", "new", KVSTORE_NO_TTL));
    for (int i = 0; i < 2; i++) {
        n = 7;
        OK(kvstore_iterator_fetch(it, entries, 4, &n));
        CHECK(n == 0 && kvstore_iterator_eof(it));
    }
    OK(kvstore_iterator_seek(it, K("b")));
    OK(kvstore_iterator_fetch(it, entries, 1, &n));
    OK(kvstore_iterator_next(it)); /* from "d", which is after the fetched entries */
    void *key = NULL;
    OK(kvstore_iterator_key(it, &key, &n));
    CHECK(n == 1 && *(char *)key == 'e');
    kvstore_iterator_close(it);

    OK(AT(p, range_iterator_create, NULL, 0, NULL, 0, KVSTORE_RANGE_KEYS_ONLY | KVSTORE_RANGE_REVERSE,
          &it));
    OK(kvstore_iterator_fetch(it, entries, 4, &n));
    CHECK(n == 4 && *(const char *)entries[0].pKey == 'e' && *(const char *)entries[3].pKey == 'a');
    for (int i = 0; i < 4; i++) {
        CHECK(entries[i].pValue == NULL && entries[i].nValue == 0);
    }
    CHECK(entries[2].expireMs == 3000);
    kvstore_iterator_close(it);

    OK(AT(p, expiring_iterator_create, 0, INT64_MAX, &it));
    OK(kvstore_iterator_first(it));
    OK(kvstore_iterator_fetch(it, entries, 4, &n));
    CHECK(n == 2 && shows(&entries[0], "c", "dies", 2000) && shows(&entries[1], "b", "", 3000));
    n = 7;
    GIVES(KVSTORE_ERROR, kvstore_iterator_fetch(it, entries, -1, &n));
    GIVES(KVSTORE_ERROR, kvstore_iterator_fetch(it, NULL, 1, &n));
    GIVES(KVSTORE_ERROR, kvstore_iterator_fetch(it, entries, 4, NULL));
    CHECK(n == 7);
    kvstore_iterator_close(it);
}
IN_BOTH_PLACES(fetch)

/* Many rows, fetched in every size: fetched entries stay readable until the next call. */
static void fetch_many_at(const struct place *p)
{
    enum { N = 3000 };
    static KVEntry entries[N];
    KVBatch *b;
    OK(kvstore_batch_new(p->kv, &b));
    for (int i = 0; i < N; i++) {
        char key[16], value[300];
        int n_key = snprintf(key, sizeof key, "%06d", i);
        int n_value = snprintf(value, sizeof value, "%*d", 1 + i % 250, i);
        OK(kvstore_batch_put(b, p->cf, key, n_key, value, n_value, i % 3 == 0 ? 5000 : 0));
    }
    OK(kvstore_batch_commit(b));
    kvstore_batch_free(b);
    for (int max = 1; max < 4 * N; max = max * 3 + 1) {
        KVIterator *it;
        int n, i = 0;
        OK(AT(p, range_iterator_create, NULL, 0, NULL, 0, 0, &it));
        for (;;) {
            OK(kvstore_iterator_fetch(it, entries, max < N ? max : N, &n));
            if (n == 0) break;
            CHECK(n <= max);
            for (int k = 0; k < n; k++, i++) {
                CHECK(entries[k].nKey == 6);
                char key[16], value[300];
                snprintf(key, sizeof key, "%06d", i);
                int n_value = snprintf(value, sizeof value, "%*d", 1 + i % 250, i);
                CHECK(memcmp(entries[k].pKey, key, 6) == 0 && entries[k].nValue == n_value &&
                      memcmp(entries[k].pValue, value, (size_t)n_value) == 0);
                CHECK(entries[k].expireMs == (i % 3 == 0 ? 5000 : KVSTORE_NO_TTL));
            }
            CHECK(kvstore_iterator_eof(it) == (i == N));
        }
        CHECK(i == N);
        kvstore_iterator_close(it);
    }
}
IN_BOTH_PLACES(fetch_many)

SCENARIOS({"fetch", fetch}, {"fetch_many", fetch_many}, {"get_into", get_into}, {"get_into_large", get_into_large},
          {"get_into_damaged", get_into_damaged}, {"get_many", get_many},
          {"get_many_refuses", get_many_refuses}, {"get_many_many", get_many_many},
          {"delete_many", delete_many}, {"batch", batch},
          {"batch_refuses", batch_refuses}, {"batch_of_another_handle", batch_of_another_handle},
          {"batch_in_transactions", batch_in_transactions},
          {"batch_of_a_dropped_family", batch_of_a_dropped_family}, {"batch_large", batch_large})

/* Ranges, delete_range, row keys, and iterators over a partition. */
#include "api_places.h"

static const char *range(const struct place *p, const char *lower, const char *upper, int flags)
{
    KVIterator *it = NULL;
    OK(AT(p, range_iterator_create, lower, lower ? (int)strlen(lower) : 0, upper,
          upper ? (int)strlen(upper) : 0, flags, &it));
    return keys_of(it);
}

#define RANGE(lower, upper, flags, keys) CHECK(strcmp(range(p, lower, upper, flags), keys) == 0)

enum {
    BACK = KVSTORE_RANGE_REVERSE,
    CLOSED = KVSTORE_RANGE_CLOSED,
    OPEN = KVSTORE_RANGE_OPEN,
    KEYS = KVSTORE_RANGE_KEYS_ONLY
};

static void put_letters(KVColumnFamily *cf)
{
    for (char key = 'a'; key <= 'e'; key++) {
        OK(kvstore_cf_put(cf, &key, 1, &key, 1));
    }
    OK(kvstore_cf_put(cf, K("bb"), K("bb")));
    OK(kvstore_cf_put_ttl(cf, K("cc"), K("dead"), 500));
}

static void bounds_at(const struct place *p)
{
    RANGE(NULL, NULL, 0, "");
    put_letters(p->cf);
    RANGE(NULL, NULL, 0, "a b bb c d e ");
    RANGE(NULL, NULL, BACK, "e d c bb b a ");
    RANGE(NULL, NULL, CLOSED | OPEN, "a b bb c d e "); /* no bound to include or exclude */
    RANGE("b", "d", 0, "b bb c ");
    RANGE("b", "d", CLOSED, "b bb c d ");
    RANGE("b", "d", OPEN, "bb c ");
    RANGE("b", "d", OPEN | CLOSED, "bb c d ");
    RANGE("b", "d", BACK, "c bb b ");
    RANGE("b", "d", BACK | CLOSED, "d c bb b ");
    RANGE("b", "d", BACK | OPEN, "c bb ");
    RANGE("b", "d", BACK | OPEN | CLOSED | KEYS, "d c bb ");
    RANGE("b", NULL, 0, "b bb c d e ");
    RANGE("b", NULL, OPEN, "bb c d e ");
    RANGE(NULL, "c", 0, "a b bb ");
    RANGE(NULL, "c", CLOSED, "a b bb c ");
    RANGE(NULL, "c", BACK | CLOSED, "c bb b a ");
    RANGE("ba", "cz", 0, "bb c "); /* bounds need not exist */
    RANGE("cc", "cz", 0, "");      /* nor be live */
    RANGE("cc", "e", OPEN, "d ");
    RANGE("c", "c", 0, "");
    RANGE("c", "c", OPEN, "");
    RANGE("c", "c", OPEN | CLOSED, "");
    RANGE("c", "c", CLOSED, "c "); /* both ends included: the one key */
    RANGE("c", "c", CLOSED | BACK, "c ");
    RANGE("d", "b", 0, "");
    RANGE("d", "b", CLOSED, "");
    RANGE("d", "b", BACK, "");
    RANGE("f", NULL, 0, "");
    RANGE(NULL, "a", 0, "");
    RANGE("", NULL, 0, "a b bb c d e "); /* an empty bound sorts before all keys */
    RANGE("", NULL, OPEN, "a b bb c d e ");
    RANGE(NULL, "", 0, "");
    RANGE(NULL, "", CLOSED, "");
    CHECK(rows_of(p->cf) == 7);
}
IN_BOTH_PLACES(bounds)

static void bounds_are_bytes_at(const struct place *p)
{
    KVIterator *it;
    OK(AT(p, put, K("\0"), K("1")));
    OK(AT(p, put, K("\0\0"), K("2")));
    OK(AT(p, put, K("\x7f"), K("3")));
    OK(AT(p, put, K("\x80"), K("4"))); /* bytes are unsigned */
    OK(AT(p, put, K("\xff"), K("5")));
    OK(AT(p, put, K("\xff\xff"), K("6")));
    OK(AT(p, range_iterator_create, K("\0\0"), K("\xff"), CLOSED, &it));
    const char *expected = "2345";
    for (; *expected; expected++) {
        void *value;
        int n;
        OK(kvstore_iterator_value(it, &value, &n));
        CHECK(n == 1 && *(char *)value == *expected);
        OK(kvstore_iterator_next(it));
    }
    CHECK(kvstore_iterator_eof(it));
    kvstore_iterator_close(it);
}
IN_BOTH_PLACES(bounds_are_bytes)

static int at_key(KVIterator *it, const char *expected)
{
    void *key;
    int n;
    return kvstore_iterator_key(it, &key, &n) == KVSTORE_OK && n == (int)strlen(expected) &&
           memcmp(key, expected, (size_t)n) == 0;
}

/* A range iterator starts at its first entry, and moves and seeks like any other iterator,
 * within its range. */
static void moves_at(const struct place *p)
{
    KVIterator *it;
    put_letters(p->cf);
    OK(AT(p, range_iterator_create, K("b"), K("d"), 0, &it));
    CHECK(at_key(it, "b"));
    OK(kvstore_iterator_next(it));
    CHECK(at_key(it, "bb"));
    OK(kvstore_iterator_first(it));
    CHECK(at_key(it, "b"));
    GIVES(KVSTORE_ERROR, kvstore_iterator_last(it));
    GIVES(KVSTORE_ERROR, kvstore_iterator_prev(it));
    OK(kvstore_iterator_seek(it, K("bc")));
    CHECK(at_key(it, "c"));
    OK(kvstore_iterator_seek(it, K("cc"))); /* the expired one and then the end of the range */
    CHECK(kvstore_iterator_eof(it));
    OK(kvstore_iterator_seek(it, K("a")));
    CHECK(kvstore_iterator_eof(it));
    OK(kvstore_iterator_seek(it, K("d")));
    CHECK(kvstore_iterator_eof(it));
    OK(kvstore_iterator_next(it));
    CHECK(kvstore_iterator_eof(it));
    OK(kvstore_iterator_seek(it, K("b")));
    CHECK(at_key(it, "b"));
    OK(AT(p, delete, K("bb"))); /* its own handle's writes are seen ahead */
    OK(AT(p, put, K("ba"), K("new")));
    OK(kvstore_iterator_next(it));
    CHECK(at_key(it, "ba"));
    OK(kvstore_iterator_next(it));
    CHECK(at_key(it, "c"));
    kvstore_iterator_close(it);

    OK(AT(p, range_iterator_create, K("b"), K("d"), BACK, &it));
    CHECK(at_key(it, "c"));
    OK(kvstore_iterator_prev(it));
    CHECK(at_key(it, "ba"));
    OK(kvstore_iterator_last(it));
    CHECK(at_key(it, "c"));
    OK(kvstore_iterator_seek(it, K("bb")));
    CHECK(at_key(it, "ba"));
    OK(kvstore_iterator_seek(it, K("e")));
    CHECK(kvstore_iterator_eof(it));
    kvstore_iterator_close(it);
}
IN_BOTH_PLACES(moves)

static void keys_only_at(const struct place *p)
{
    enum { N = 100000 };
    char *large = calloc(1, N);
    KVIterator *it;
    void *value = &clock_ms;
    int n = 7;
    OK(AT(p, put, K("large"), large, N));
    OK(AT(p, put_ttl, K("small"), K("value"), 2000));
    for (int back = 0; back < 2; back++) {
        OK(AT(p, range_iterator_create, NULL, 0, NULL, 0, KEYS | (back ? BACK : 0), &it));
        for (int i = 0; i < 2; i++) {
            int64_t at = 7;
            CHECK(at_key(it, i == back ? "large" : "small"));
            GIVES(KVSTORE_ERROR, kvstore_iterator_value(it, &value, &n)); /* there is none to show */
            CHECK(value == &clock_ms && n == 7);
            OK(kvstore_iterator_expire_ms(it, &at));
            CHECK(at == (i == back ? KVSTORE_NO_TTL : 2000));
            OK(kvstore_iterator_next(it));
        }
        CHECK(kvstore_iterator_eof(it));
        GIVES(KVSTORE_ERROR, kvstore_iterator_value(it, &value, &n));
        OK(kvstore_iterator_seek(it, K("large")));
        CHECK(at_key(it, "large"));
        kvstore_iterator_close(it);
    }
    free(large);
}
IN_BOTH_PLACES(keys_only)

static int64_t deleted(const struct place *p, const char *lower, const char *upper)
{
    int64_t n = -1;
    OK(AT(p, delete_range, lower, lower ? (int)strlen(lower) : 0, upper,
          upper ? (int)strlen(upper) : 0, &n));
    return n;
}

static void delete_range_at(const struct place *p)
{
    CHECK(deleted(p, NULL, NULL) == 0);
    put_letters(p->cf);
    CHECK(deleted(p, "c", "c") == 0);
    CHECK(deleted(p, "d", "b") == 0);
    CHECK(deleted(p, NULL, "") == 0);
    CHECK(rows_of(p->cf) == 7);
    CHECK(deleted(p, "b", "d") == 3); /* b, bb, c; the expired cc is removed but not counted */
    RANGE(NULL, NULL, 0, "a d e ");
    CHECK(rows_of(p->cf) == 3);
    CHECK(deleted(p, "e", NULL) == 1);
    CHECK(deleted(p, NULL, "b") == 1);
    RANGE(NULL, NULL, 0, "d ");
    OK(AT(p, put_ttl, K("ttl"), K("value"), 9000));
    OK(AT(p, delete_range, NULL, 0, NULL, 0, NULL));
    CHECK(rows_of(p->cf) == 0);
    int64_t next = 7;
    GIVES(KVSTORE_NOTFOUND, kvstore_cf_next_expiry(p->cf, &next)); /* the index entries are removed too */

    KVColumnFamily *other = family(p->kv, "other"); /* that family only */
    put_letters(other);
    CHECK(deleted(p, NULL, NULL) == 0 && rows_of(other) == 7);
    kvstore_cf_close(other);
}
IN_BOTH_PLACES(delete_range)

static void delete_range_large_at(const struct place *p)
{
    enum { N = 5000 };
    OK(AT(p, set_write_tracking, 1));
    OK(kvstore_begin(p->kv, 1));
    for (int i = 0; i < N; i++) {
        char key[16];
        int n = snprintf(key, sizeof key, "%05d", i);
        OK(AT(p, put_ttl, key, n, key, n, i % 2 ? 2000 + i : 0));
    }
    OK(kvstore_commit(p->kv));
    OK(kvstore_begin(p->kv, 1));
    CHECK(deleted(p, "00010", "04990") == N - 20);
    CHECK(rows_of(p->cf) == 20);
    OK(kvstore_rollback(p->kv));
    CHECK(rows_of(p->cf) == N);
    CHECK(deleted(p, "00010", "04990") == N - 20);
    CHECK(rows_of(p->cf) == 20);
    HAS(p->cf, "00009", "00009");
    HAS(p->cf, "04990", "04990");
    OK(kvstore_begin(p->kv, 0));
    int64_t n = 7;
    GIVES(KVSTORE_READONLY, AT(p, delete_range, NULL, 0, NULL, 0, &n));
    CHECK(n == 7);
    OK(kvstore_commit(p->kv));
}
IN_BOTH_PLACES(delete_range_large)

/* ---- rows -------------------------------------------------------------------------------------- */

static void row_key_format(void)
{
    static const struct {
        const char *partition;
        int n_partition;
        const char *clustering;
        int n_clustering;
        const char *key;
        int n_key;
    } cases[] = {
        {K("user"), K("col"), K("user\0\1col")},
        {K("user"), K(""), K("user\0\1")},
        {K(""), K("col"), K("\0\1col")},
        {K(""), K(""), K("\0\1")},
        {K("\0"), K(""), K("\0\xff\0\1")},
        {K("a\0b"), K("c\0d"), K("a\0\xff" "b\0\1c\0d")}, /* the clustering part is as it is */
        {K("\0\0"), K("\0\1"), K("\0\xff\0\xff\0\1\0\1")},
        {K("\0\1"), K("x"), K("\0\xff\1\0\1x")},
        {K("\xff"), K("\xff"), K("\xff\0\1\xff")},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char key[32];
        int n = -1;
        memset(key, 'x', sizeof key);
        OK(kvstore_row_key(cases[i].partition, cases[i].n_partition, cases[i].clustering,
                           cases[i].n_clustering, key, sizeof key, &n));
        CHECK(n == cases[i].n_key && memcmp(key, cases[i].key, (size_t)n) == 0);
        CHECK(key[n] == 'x'); /* nothing is written after it */
    }
}

static void row_key_sizes(void)
{
    char key[9], untouched[9], *large = calloc(1, 65537), *out = malloc(65536);
    int n = -1;
    memset(key, 'x', sizeof key);
    memset(untouched, 'x', sizeof untouched);
    OK(kvstore_row_key(K("ab"), K("cde"), NULL, 0, &n)); /* how long would it be? */
    CHECK(n == 7);
    OK(kvstore_row_key(K("a\0"), K("cde"), NULL, 0, &n));
    CHECK(n == 8);
    OK(kvstore_row_key(NULL, 0, NULL, 0, NULL, 0, &n));
    CHECK(n == 2);
    n = -1;
    for (int cap = 0; cap < 7; cap++) { /* too small: nothing is written */
        GIVES(KVSTORE_ERROR, kvstore_row_key(K("ab"), K("cde"), key, cap, &n));
        CHECK(n == -1 && memcmp(key, untouched, sizeof key) == 0);
    }
    OK(kvstore_row_key(K("ab"), K("cde"), key, 7, &n)); /* exactly enough */
    CHECK(n == 7 && memcmp(key, "ab\0\1cdexx", 9) == 0);

    memset(large, 'p', 65537);
    OK(kvstore_row_key(large, 65534, NULL, 0, out, 65536, &n));
    CHECK(n == 65536);
    OK(kvstore_row_key(large, 30000, large, 35534, out, 65536, &n));
    CHECK(n == 65536);
    n = -1;
    GIVES(KVSTORE_ERROR, kvstore_row_key(large, 65535, NULL, 0, out, 65536, &n));
    GIVES(KVSTORE_ERROR, kvstore_row_key(large, 30000, large, 35535, NULL, 0, &n));
    GIVES(KVSTORE_ERROR, kvstore_row_key(large, 65536, large, 65536, out, 65536, &n));
    GIVES(KVSTORE_ERROR, kvstore_row_key(large, 65537, NULL, 0, NULL, 0, &n));
    CHECK(n == -1 && strcmp(kvstore_errmsg(NULL), "no error") != 0);
    memset(large, 0, 40000);
    GIVES(KVSTORE_ERROR, kvstore_row_key(large, 40000, NULL, 0, NULL, 0, &n)); /* with its escapes */
    OK(kvstore_row_key(large, 32767, NULL, 0, out, 65536, &n));
    CHECK(n == 65536);
    free(large);
    free(out);
}

/* All pairs of short strings over the bytes around the escapes: the order of the keys is the order of
 * (partition, clustering), and no partition's key begins another's. */
static void row_key_order(void)
{
    static const unsigned char alphabet[] = {0x00, 0x01, 0x02, 0xfe, 0xff};
    enum { WORDS = 1 + 5 + 25, KEYS_ = WORDS * WORDS };
    static struct {
        unsigned char bytes[2];
        int n;
    } words[WORDS];
    static struct {
        unsigned char bytes[8];
        int n;
    } keys[KEYS_];
    int count = 1;
    for (int i = 0; i < 5; i++) {
        words[count].n = 1;
        words[count++].bytes[0] = alphabet[i];
        for (int j = 0; j < 5; j++) { /* in their own order: each word, and then those it begins */
            words[count].n = 2;
            words[count].bytes[0] = alphabet[i];
            words[count++].bytes[1] = alphabet[j];
        }
    }
    CHECK(count == WORDS);
    for (int p = 0; p < WORDS; p++) {
        for (int c = 0; c < WORDS; c++) {
            OK(kvstore_row_key(words[p].bytes, words[p].n, words[c].bytes, words[c].n,
                               keys[p * WORDS + c].bytes, 8, &keys[p * WORDS + c].n));
        }
    }
    for (int i = 1; i < KEYS_; i++) { /* made in order, so they must be in order */
        int n = keys[i - 1].n < keys[i].n ? keys[i - 1].n : keys[i].n;
        int order = memcmp(keys[i - 1].bytes, keys[i].bytes, (size_t)n);
        CHECK(order < 0 || (order == 0 && keys[i - 1].n < keys[i].n));
    }
    for (int p = 0; p < WORDS; p++) {
        int n = keys[p * WORDS].n; /* the key with an empty clustering part */
        for (int i = 0; i < KEYS_; i++) {
            int begins = keys[i].n >= n && memcmp(keys[i].bytes, keys[p * WORDS].bytes, (size_t)n) == 0;
            CHECK(begins == (i / WORDS == p));
        }
    }
}

static void put_row(KVColumnFamily *cf, const char *partition, int n_partition, const char *clustering,
                    int64_t expire_ms)
{
    char key[64];
    int n;
    OK(kvstore_row_key(partition, n_partition, clustering, (int)strlen(clustering), key, sizeof key, &n));
    OK(kvstore_cf_put_ttl(cf, key, n, clustering, (int)strlen(clustering), expire_ms));
}

static const char *rows(const struct place *p, const char *partition, int n_partition, const char *start,
                        const char *finish, int flags)
{
    KVIterator *it;
    OK(AT(p, row_iterator_create, partition, n_partition, start, start ? (int)strlen(start) : 0,
          finish, finish ? (int)strlen(finish) : 0, flags, &it));
    return keys_of(it);
}

#define ROWS(partition, start, finish, flags, keys)                                                      \
    CHECK(strcmp(rows(p, K(partition), start, finish, flags), keys) == 0)

static void fill_rows(KVColumnFamily *cf)
{
    static const char *const partitions[] = {"", "p", "p\1", "pp", "q"};
    static const char *const clusterings[] = {"", "a", "b", "bb", "c", "\xff"};
    for (size_t i = 0; i < sizeof partitions / sizeof *partitions; i++) {
        for (size_t j = 0; j < sizeof clusterings / sizeof *clusterings; j++) {
            put_row(cf, partitions[i], (int)strlen(partitions[i]), clusterings[j], 0);
        }
    }
    put_row(cf, K("p\0"), "zero", 0);
    put_row(cf, K("p\0\1"), "terminator", 0);
    put_row(cf, K("\0"), "zero", 0);
}

/* An iterator over one partition shows its clustering parts, and nothing of neighbouring
 * partitions. */
static void row_iterator_at(const struct place *p)
{
    fill_rows(p->cf);
    ROWS("none", NULL, NULL, 0, "");
    ROWS("p", NULL, NULL, 0, " a b bb c \xff ");
    ROWS("p", NULL, NULL, BACK, "\xff c bb b a  ");
    ROWS("", NULL, NULL, 0, " a b bb c \xff ");
    ROWS("p\1", NULL, NULL, KEYS, " a b bb c \xff ");
    ROWS("p\0", NULL, NULL, 0, "zero ");
    ROWS("p\0\1", NULL, NULL, 0, "terminator ");
    ROWS("\0", NULL, NULL, 0, "zero ");
    ROWS("p", "a", "c", 0, "a b bb "); /* start is in, finish is not */
    ROWS("p", "a", "c", CLOSED, "a b bb c ");
    ROWS("p", "a", "c", OPEN, "b bb ");
    ROWS("p", "a", "c", BACK, "bb b a ");
    ROWS("p", "a", "c", BACK | OPEN | CLOSED | KEYS, "c bb b ");
    ROWS("p", "b", NULL, 0, "b bb c \xff ");
    ROWS("p", "b", NULL, OPEN, "bb c \xff ");
    ROWS("p", NULL, "b", 0, " a ");
    ROWS("p", NULL, "b", CLOSED, " a b ");
    ROWS("p", NULL, "\xff", CLOSED, " a b bb c \xff ");
    ROWS("p", "", NULL, 0, " a b bb c \xff "); /* the row without clustering columns is the first */
    ROWS("p", "", NULL, OPEN, "a b bb c \xff ");
    ROWS("p", NULL, "", 0, "");
    ROWS("p", NULL, "", CLOSED, " ");
    ROWS("p", "c", "a", 0, ""); /* start >= finish */
    ROWS("p", "c", "a", CLOSED, "");
    ROWS("p", "b", "b", 0, "");
    ROWS("p", "b", "b", OPEN | CLOSED, "");
    ROWS("p", "ba", "bz", 0, "bb ");
    CHECK(strcmp(rows(p, NULL, 0, NULL, NULL, 0), " a b bb c \xff ") == 0); /* (NULL, 0) is empty */
}
IN_BOTH_PLACES(row_iterator)

/* The contract: start >= finish is empty. With CLOSED, start == finish has the one row in it, as a range
 * iterator's does. */
static void row_iterator_one_row_at(const struct place *p)
{
    fill_rows(p->cf);
    ROWS("p", "b", "b", CLOSED, "b ");
}
IN_BOTH_PLACES(row_iterator_one_row)

static void row_iterator_moves_at(const struct place *p)
{
    KVIterator *it;
    void *value;
    int n;
    fill_rows(p->cf);
    OK(AT(p, row_iterator_create, K("p"), K("a"), K("c"), 0, &it));
    CHECK(at_key(it, "a"));
    OK(kvstore_iterator_seek(it, K("ba"))); /* seeks are clustering parts, too */
    CHECK(at_key(it, "bb"));
    OK(kvstore_iterator_value(it, &value, &n));
    CHECK(n == 2 && memcmp(value, "bb", 2) == 0);
    OK(kvstore_iterator_seek(it, K("c")));
    CHECK(kvstore_iterator_eof(it));
    OK(kvstore_iterator_seek(it, K("\1")));
    CHECK(kvstore_iterator_eof(it));
    OK(kvstore_iterator_first(it));
    CHECK(at_key(it, "a"));
    GIVES(KVSTORE_ERROR, kvstore_iterator_prev(it));
    kvstore_iterator_close(it);
    OK(AT(p, row_iterator_create, K("p"), NULL, 0, NULL, 0, BACK, &it));
    CHECK(at_key(it, "\xff"));
    OK(kvstore_iterator_seek(it, K("bz")));
    CHECK(at_key(it, "bb"));
    OK(kvstore_iterator_prev(it));
    CHECK(at_key(it, "b"));
    OK(kvstore_iterator_prev(it));
    OK(kvstore_iterator_prev(it));
    CHECK(at_key(it, "")); /* no clustering columns: a key of no bytes */
    OK(kvstore_iterator_prev(it));
    CHECK(kvstore_iterator_eof(it));
    kvstore_iterator_close(it);

    /* A partition and a seek that are too long together. */
    char *large = calloc(1, 65536);
    memset(large, 'x', 65536);
    GIVES(KVSTORE_ERROR,
          AT(p, row_iterator_create, large, 65535, NULL, 0, NULL, 0, 0, &it));
    CHECK(it == NULL);
    OK(AT(p, row_iterator_create, large, 65534, NULL, 0, NULL, 0, 0, &it));
    CHECK(kvstore_iterator_eof(it));
    GIVES(KVSTORE_ERROR, kvstore_iterator_seek(it, K("a")));
    kvstore_iterator_close(it);
    free(large);
}
IN_BOTH_PLACES(row_iterator_moves)

/* Columns with different expiry times: the row exists until its last column expires. */
static void row_lifetimes_at(const struct place *p)
{
    put_row(p->cf, K("row"), "a", 2000);
    put_row(p->cf, K("row"), "b", 3000);
    put_row(p->cf, K("row"), "c", 4000);
    put_row(p->cf, K("other"), "a", 0);
    ROWS("row", NULL, NULL, 0, "a b c ");
    clock_ms = 2000;
    ROWS("row", NULL, NULL, 0, "b c ");
    clock_ms = 3999;
    ROWS("row", NULL, NULL, BACK, "c ");
    clock_ms = 4000;
    ROWS("row", NULL, NULL, 0, "");
    ROWS("other", NULL, NULL, 0, "a ");

    /* Row keys work with every other function. A range deletes a whole row. */
    char from[16], to[16];
    int n_from, n_to;
    put_row(p->cf, K("row"), "a", 0);
    put_row(p->cf, K("row"), "b", 0);
    OK(kvstore_row_key(K("row"), NULL, 0, from, sizeof from, &n_from));
    OK(kvstore_row_key(K("row"), NULL, 0, to, sizeof to, &n_to));
    to[n_to - 1]++; /* the first bound after all keys with that terminator */
    int64_t gone = 7;
    OK(AT(p, delete_range, from, n_from, to, n_to, &gone));
    CHECK(gone == 2);
    ROWS("row", NULL, NULL, 0, "");
    ROWS("other", NULL, NULL, 0, "a ");
}
IN_BOTH_PLACES(row_lifetimes)

/* An unbounded end is NULL with length 0. NULL with another length is a bound without its bytes: an error. */
static void null_with_a_length_at(const struct place *p)
{
    static const int lengths[] = {1, 5, -1, -7, 65536, 65537, 0x7fffffff};
    put_letters(p->cf);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        int n = lengths[i];
        int64_t gone = 7;
        KVIterator *it = NULL;
        char lower[80], upper[80];
        snprintf(lower, sizeof lower, "the lower bound is NULL, but its length is %d", n);
        snprintf(upper, sizeof upper, "the upper bound is NULL, but its length is %d", n);
        GIVES(KVSTORE_ERROR, AT(p, delete_range, NULL, n, K("c"), &gone));
        CHECK(strcmp(kvstore_errmsg(p->kv), lower) == 0 || strcmp(kvstore_errmsg(NULL), lower) == 0);
        GIVES(KVSTORE_ERROR, AT(p, delete_range, K("a"), NULL, n, &gone));
        CHECK(strcmp(kvstore_errmsg(p->kv), upper) == 0 || strcmp(kvstore_errmsg(NULL), upper) == 0);
        GIVES(KVSTORE_ERROR, AT(p, delete_range, NULL, n, NULL, n, &gone));
        if (n < 0 || n > 65536) { /* nor is a bound of such a length */
            snprintf(upper, sizeof upper, "the upper bound has %d bytes: it can have 0 to 65536", n);
            GIVES(KVSTORE_ERROR, AT(p, delete_range, K("a"), "b", n, &gone));
            CHECK(strcmp(kvstore_errmsg(p->kv), upper) == 0 || strcmp(kvstore_errmsg(NULL), upper) == 0);
        }
        CHECK(gone == 7 && rows_of(p->cf) == 7);
        GIVES(KVSTORE_ERROR, AT(p, range_iterator_create, NULL, n, NULL, 0, 0, &it));
        GIVES(KVSTORE_ERROR, AT(p, range_iterator_create, NULL, 0, NULL, n, 0, &it));
        GIVES(KVSTORE_ERROR, AT(p, row_iterator_create, NULL, n, NULL, 0, NULL, 0, 0, &it));
        GIVES(KVSTORE_ERROR, AT(p, row_iterator_create, K("p"), NULL, n, NULL, 0, 0, &it));
        GIVES(KVSTORE_ERROR, AT(p, row_iterator_create, K("p"), NULL, 0, NULL, n, 0, &it));
        GIVES(KVSTORE_ERROR, AT(p, prefix_iterator_create, NULL, n, &it));
        GIVES(KVSTORE_ERROR, AT(p, reverse_prefix_iterator_create, NULL, n, &it));
        CHECK(it == NULL);
    }
    CHECK(deleted(p, NULL, NULL) == 6);
}
IN_BOTH_PLACES(null_with_a_length)

SCENARIOS({"null_with_a_length", null_with_a_length}, {"bounds", bounds}, {"bounds_are_bytes", bounds_are_bytes}, {"moves", moves},
          {"keys_only", keys_only}, {"delete_range", delete_range},
          {"delete_range_large", delete_range_large}, {"row_key_format", row_key_format},
          {"row_key_sizes", row_key_sizes}, {"row_key_order", row_key_order},
          {"row_iterator", row_iterator}, {"row_iterator_one_row", row_iterator_one_row},
          {"row_iterator_moves", row_iterator_moves}, {"row_lifetimes", row_lifetimes})

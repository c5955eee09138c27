/* All eight iterators: on the default family and on another, in both directions, with and
 * without a prefix. */
#include "api_common.h"

static KVIterator *forward(const struct place *p)
{
    KVIterator *it = NULL;
    OK(AT(p, iterator_create, &it));
    CHECK(it != NULL);
    return it;
}

static KVIterator *reverse(const struct place *p)
{
    KVIterator *it = NULL;
    OK(AT(p, reverse_iterator_create, &it));
    CHECK(it != NULL);
    return it;
}

static KVIterator *prefix(const struct place *p, const char *bytes, int n)
{
    KVIterator *it = NULL;
    OK(AT(p, prefix_iterator_create, bytes, n, &it));
    CHECK(it != NULL);
    return it;
}

static KVIterator *reverse_prefix(const struct place *p, const char *bytes, int n)
{
    KVIterator *it = NULL;
    OK(AT(p, reverse_prefix_iterator_create, bytes, n, &it));
    CHECK(it != NULL);
    return it;
}

/* Returns whether the iterator is at this key, with "v" and the key as its value. */
static int is_at(KVIterator *it, const char *key)
{
    void *k = NULL, *v = NULL;
    int n_k = -1, n_v = -1, n = (int)strlen(key);
    return kvstore_iterator_eof(it) == 0 && kvstore_iterator_key(it, &k, &n_k) == KVSTORE_OK &&
           kvstore_iterator_value(it, &v, &n_v) == KVSTORE_OK && n_k == n && memcmp(k, key, (size_t)n) == 0 &&
           n_v == n + 1 && *(char *)v == 'v' && memcmp((char *)v + 1, key, (size_t)n) == 0;
}

/* Returns whether the iterator is at eof, according to every function. */
static int is_at_eof(KVIterator *it)
{
    void *p = &clock_ms;
    int n = 7;
    return kvstore_iterator_eof(it) == 1 && kvstore_iterator_key(it, &p, &n) == KVSTORE_ERROR &&
           kvstore_iterator_value(it, &p, &n) == KVSTORE_ERROR && p == &clock_ms && n == 7;
}

/* Returns whether these keys, up to a NULL, are the remaining ones, starting with the current
 * key. */
static int goes_on_with(KVIterator *it, const char *const *keys)
{
    for (; *keys != NULL; keys++) {
        if (!is_at(it, *keys) || kvstore_iterator_next(it) != KVSTORE_OK) {
            return 0;
        }
    }
    return is_at_eof(it);
}
#define GOES_ON_WITH(it, ...) CHECK(goes_on_with(it, (const char *const[]){__VA_ARGS__, NULL}))

static void put(const struct place *p, const char *key)
{
    char value[100];
    int n = snprintf(value, sizeof value, "v%s", key);
    OK(AT(p, put, key, n - 1, value, n));
}

static void put_all(const struct place *p)
{
    static const char *const keys[] = {"b:2", "c", "a", "b", "b:1", "b:3", "b;"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        put(p, keys[i]);
    }
}

static void plain_at(const struct place *p)
{
    put_all(p);
    KVIterator *it = forward(p);
    CHECK(is_at_eof(it)); /* until it is positioned */
    OK(kvstore_iterator_first(it));
    GOES_ON_WITH(it, "a", "b", "b:1", "b:2", "b:3", "b;", "c");
    OK(kvstore_iterator_next(it)); /* at eof it stays */
    OK(kvstore_iterator_next(it));
    CHECK(is_at_eof(it));
    OK(kvstore_iterator_first(it)); /* and can start again */
    CHECK(is_at(it, "a"));

    GIVES(KVSTORE_ERROR, kvstore_iterator_last(it)); /* for reverse ones only */
    GIVES(KVSTORE_ERROR, kvstore_iterator_prev(it));
    CHECK(is_at(it, "a"));
    OK(kvstore_iterator_next(it));
    CHECK(is_at(it, "b"));
    kvstore_iterator_close(it);
}
BOTH_FORMS(plain)

static void plain_reverse_at(const struct place *p)
{
    put_all(p);
    KVIterator *it = reverse(p);
    CHECK(is_at_eof(it));
    OK(kvstore_iterator_last(it));
    CHECK(is_at(it, "c"));
    OK(kvstore_iterator_prev(it));
    CHECK(is_at(it, "b;"));
    OK(kvstore_iterator_next(it)); /* acts as prev */
    GOES_ON_WITH(it, "b:3", "b:2", "b:1", "b", "a");
    OK(kvstore_iterator_prev(it)); /* at eof it stays */
    OK(kvstore_iterator_next(it));
    CHECK(is_at_eof(it));
    OK(kvstore_iterator_first(it)); /* acts as last */
    CHECK(is_at(it, "c"));
    kvstore_iterator_close(it);
}
BOTH_FORMS(plain_reverse)

static void prefix_forward_at(const struct place *p)
{
    put_all(p);
    KVIterator *it = prefix(p, K("b:"));
    GOES_ON_WITH(it, "b:1", "b:2", "b:3"); /* positioned from the start */
    OK(kvstore_iterator_first(it));
    CHECK(is_at(it, "b:1"));
    GIVES(KVSTORE_ERROR, kvstore_iterator_last(it));
    GIVES(KVSTORE_ERROR, kvstore_iterator_prev(it));
    CHECK(is_at(it, "b:1"));
    kvstore_iterator_close(it);

    it = prefix(p, K("b"));
    GOES_ON_WITH(it, "b", "b:1", "b:2", "b:3", "b;"); /* the prefix itself is such a key */
    kvstore_iterator_close(it);
    it = prefix(p, K("c"));
    GOES_ON_WITH(it, "c");
    kvstore_iterator_close(it);
    it = prefix(p, K("b:1x"));
    CHECK(is_at_eof(it));
    OK(kvstore_iterator_first(it));
    OK(kvstore_iterator_next(it));
    CHECK(is_at_eof(it));
    kvstore_iterator_close(it);
}
BOTH_FORMS(prefix_forward)

static void prefix_reverse_at(const struct place *p)
{
    put_all(p);
    KVIterator *it = reverse_prefix(p, K("b:"));
    GOES_ON_WITH(it, "b:3", "b:2", "b:1");
    OK(kvstore_iterator_last(it));
    CHECK(is_at(it, "b:3"));
    OK(kvstore_iterator_prev(it));
    CHECK(is_at(it, "b:2"));
    OK(kvstore_iterator_first(it)); /* acts as last */
    CHECK(is_at(it, "b:3"));
    kvstore_iterator_close(it);

    it = reverse_prefix(p, K("b"));
    GOES_ON_WITH(it, "b;", "b:3", "b:2", "b:1", "b");
    kvstore_iterator_close(it);
    it = reverse_prefix(p, K("d"));
    CHECK(is_at_eof(it));
    OK(kvstore_iterator_last(it));
    CHECK(is_at_eof(it));
    kvstore_iterator_close(it);
}
BOTH_FORMS(prefix_reverse)

/* No key sorts after all that start with 0xFF. */
static void prefixes_of_the_highest_byte_at(const struct place *p)
{
    static const char *const keys[] = {"a\xff", "a\xff\xff", "b", "\xfe\xff", "\xff", "\xff" "a", "\xff\xff"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        put(p, keys[i]);
    }
    KVIterator *it = prefix(p, K("\xff"));
    GOES_ON_WITH(it, "\xff", "\xff" "a", "\xff\xff");
    kvstore_iterator_close(it);
    it = reverse_prefix(p, K("\xff"));
    GOES_ON_WITH(it, "\xff\xff", "\xff" "a", "\xff");
    kvstore_iterator_close(it);
    it = reverse_prefix(p, K("a\xff"));
    GOES_ON_WITH(it, "a\xff\xff", "a\xff");
    kvstore_iterator_close(it);
}
BOTH_FORMS(prefixes_of_the_highest_byte)

static void bad_prefixes_at(const struct place *p)
{
    put_all(p);
    char byte = 'b';
    const struct {
        const void *bytes;
        int n;
    } bad[] = {{"", 0}, {NULL, 0}, {NULL, 1}, {&byte, 0}, {&byte, -1}, {&byte, 65537}, {&byte, INT32_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        KVIterator *it = (KVIterator *)&clock_ms;
        GIVES(KVSTORE_ERROR, AT(p, prefix_iterator_create, bad[i].bytes, bad[i].n, &it));
        CHECK(it == NULL);
        it = (KVIterator *)&clock_ms;
        GIVES(KVSTORE_ERROR, AT(p, reverse_prefix_iterator_create, bad[i].bytes, bad[i].n, &it));
        CHECK(it == NULL);
    }
    GIVES(KVSTORE_ERROR, AT(p, iterator_create, NULL));
    GIVES(KVSTORE_ERROR, AT(p, reverse_iterator_create, NULL));
    GIVES(KVSTORE_ERROR, AT(p, prefix_iterator_create, &byte, 1, NULL));
    GIVES(KVSTORE_ERROR, AT(p, reverse_prefix_iterator_create, &byte, 1, NULL));
}
BOTH_FORMS(bad_prefixes)

static void of_an_empty_family_at(const struct place *p)
{
    KVIterator *its[] = {forward(p), reverse(p), prefix(p, K("a")), reverse_prefix(p, K("a"))};
    for (int i = 0; i < 4; i++) {
        CHECK(is_at_eof(its[i]));
        OK(kvstore_iterator_first(its[i]));
        CHECK(is_at_eof(its[i]));
        OK(kvstore_iterator_next(its[i]));
        CHECK(is_at_eof(its[i]));
        OK(kvstore_iterator_seek(its[i], K("a")));
        CHECK(is_at_eof(its[i]));
        int backwards = i % 2;
        GIVES(backwards ? KVSTORE_OK : KVSTORE_ERROR, kvstore_iterator_last(its[i]));
        GIVES(backwards ? KVSTORE_OK : KVSTORE_ERROR, kvstore_iterator_prev(its[i]));
        CHECK(is_at_eof(its[i]));
        kvstore_iterator_close(its[i]);
    }
}
BOTH_FORMS(of_an_empty_family)

/* next on a plain iterator that was never positioned: it is at eof and stays there. */
static void next_before_first_at(const struct place *p)
{
    put_all(p);
    KVIterator *it = forward(p);
    OK(kvstore_iterator_next(it));
    CHECK(is_at_eof(it));
    kvstore_iterator_close(it);
    it = reverse(p);
    OK(kvstore_iterator_prev(it));
    CHECK(is_at_eof(it));
    OK(kvstore_iterator_next(it));
    CHECK(is_at_eof(it));
    kvstore_iterator_close(it);
}
BOTH_FORMS(next_before_first)

static void seek_at(const struct place *p)
{
    put_all(p);
    KVIterator *it = forward(p);
    for (int i = 0; i < 100; i++) { /* any number of times, forwards and backwards */
        OK(kvstore_iterator_seek(it, K("b:2"))); /* there */
        CHECK(is_at(it, "b:2"));
        OK(kvstore_iterator_seek(it, K("b:")));
        CHECK(is_at(it, "b:1")); /* the first key after it */
        OK(kvstore_iterator_seek(it, K("\0")));
        CHECK(is_at(it, "a"));
        OK(kvstore_iterator_seek(it, K("c\0")));
        CHECK(is_at_eof(it));
    }
    OK(kvstore_iterator_seek(it, K("b:3")));
    GOES_ON_WITH(it, "b:3", "b;", "c");
    OK(kvstore_iterator_seek(it, K("b;")));
    GIVES(KVSTORE_ERROR, kvstore_iterator_seek(it, K("")));
    GIVES(KVSTORE_ERROR, kvstore_iterator_seek(it, NULL, 1));
    GIVES(KVSTORE_ERROR, kvstore_iterator_seek(it, "x", -1));
    GIVES(KVSTORE_ERROR, kvstore_iterator_seek(it, "x", 65537));
    CHECK(is_at(it, "b;")); /* a call that fails changes nothing */
    kvstore_iterator_close(it);

    it = reverse(p);
    for (int i = 0; i < 100; i++) {
        OK(kvstore_iterator_seek(it, K("b:2")));
        CHECK(is_at(it, "b:2"));
        OK(kvstore_iterator_seek(it, K("b:")));
        CHECK(is_at(it, "b")); /* the last key before */
        OK(kvstore_iterator_seek(it, K("zzz")));
        CHECK(is_at(it, "c"));
        OK(kvstore_iterator_seek(it, K("A")));
        CHECK(is_at_eof(it));
    }
    OK(kvstore_iterator_seek(it, K("b:1x")));
    GOES_ON_WITH(it, "b:1", "b", "a");
    kvstore_iterator_close(it);
}
BOTH_FORMS(seek)

static void seek_with_a_prefix_at(const struct place *p)
{
    put_all(p);
    KVIterator *it = prefix(p, K("b:")), *back = reverse_prefix(p, K("b:"));
    for (int i = 0; i < 100; i++) {
        OK(kvstore_iterator_seek(it, K("b:2")));
        CHECK(is_at(it, "b:2"));
        OK(kvstore_iterator_seek(back, K("b:2")));
        CHECK(is_at(back, "b:2"));
        OK(kvstore_iterator_seek(it, K("b:")));
        CHECK(is_at(it, "b:1"));
        OK(kvstore_iterator_seek(back, K("b:25")));
        CHECK(is_at(back, "b:2"));
        OK(kvstore_iterator_seek(it, K("b:4"))); /* inside the prefix, with nothing after it */
        CHECK(is_at_eof(it));
        OK(kvstore_iterator_seek(back, K("b:0")));
        CHECK(is_at_eof(back));
        static const char *const outside[] = {"a", "b", "b;", "c", "b9"};
        for (size_t j = 0; j < sizeof outside / sizeof *outside; j++) {
            OK(kvstore_iterator_seek(it, outside[j], (int)strlen(outside[j])));
            CHECK(is_at_eof(it));
            OK(kvstore_iterator_next(it));
            CHECK(is_at_eof(it));
            OK(kvstore_iterator_seek(back, outside[j], (int)strlen(outside[j])));
            CHECK(is_at_eof(back));
            OK(kvstore_iterator_prev(back));
            CHECK(is_at_eof(back));
        }
    }
    OK(kvstore_iterator_seek(it, K("b:2")));
    GOES_ON_WITH(it, "b:2", "b:3");
    OK(kvstore_iterator_seek(back, K("b:2")));
    GOES_ON_WITH(back, "b:2", "b:1");
    OK(kvstore_iterator_first(it));
    CHECK(is_at(it, "b:1"));
    OK(kvstore_iterator_last(back));
    CHECK(is_at(back, "b:3"));
    kvstore_iterator_close(it);
    kvstore_iterator_close(back);
}
BOTH_FORMS(seek_with_a_prefix)

static void bytes_and_empty_values_at(const struct place *p)
{
    OK(AT(p, put, K("k\0y"), NULL, 0));
    KVIterator *it = prefix(p, K("k\0"));
    void *key = NULL, *value = NULL;
    int n_key = -1, n_value = -1;
    CHECK(kvstore_iterator_eof(it) == 0);
    OK(kvstore_iterator_key(it, &key, &n_key));
    OK(kvstore_iterator_value(it, &value, &n_value));
    CHECK(n_key == 3 && memcmp(key, "k\0y", 3) == 0 && n_value == 0);
    void *again = NULL;
    OK(kvstore_iterator_key(it, &again, &n_key)); /* the iterator's own memory, until it moves */
    CHECK(again == key && memcmp(key, "k\0y", 3) == 0);

    void *untouched = &clock_ms;
    int n = 7;
    GIVES(KVSTORE_ERROR, kvstore_iterator_key(it, NULL, &n));
    CHECK(strcmp(kvstore_errmsg(p->kv), "ppKey is NULL: there is nowhere to put the result") == 0);
    GIVES(KVSTORE_ERROR, kvstore_iterator_value(it, NULL, &n));
    CHECK(strcmp(kvstore_errmsg(p->kv), "ppValue is NULL: there is nowhere to put the result") == 0);
    GIVES(KVSTORE_ERROR, kvstore_iterator_key(it, &untouched, NULL));
    CHECK(strcmp(kvstore_errmsg(p->kv), "pnKey is NULL: there is nowhere to put the result") == 0);
    GIVES(KVSTORE_ERROR, kvstore_iterator_value(it, NULL, &n));
    GIVES(KVSTORE_ERROR, kvstore_iterator_value(it, &untouched, NULL));
    CHECK(untouched == &clock_ms && n == 7);
    kvstore_iterator_close(it);
}
BOTH_FORMS(bytes_and_empty_values)

static void expired_rows_at(const struct place *p)
{
    put_all(p);
    OK(AT(p, put_ttl, K("a0"), K("va0"), 2000));
    OK(AT(p, put_ttl, K("b:0"), K("vb:0"), 2000));
    OK(AT(p, put_ttl, K("b:2x"), K("vb:2x"), 3000));
    OK(AT(p, put_ttl, K("b:9"), K("vb:9"), 2000));
    int64_t before = rows(p);

    KVIterator *it = prefix(p, K("b:"));
    CHECK(is_at(it, "b:0"));
    clock_ms = 2000;
    hear_the_time(p->kv);
    OK(kvstore_iterator_next(it)); /* in the middle of an iteration */
    GOES_ON_WITH(it, "b:1", "b:2", "b:2x", "b:3");
    OK(kvstore_iterator_first(it));
    GOES_ON_WITH(it, "b:1", "b:2", "b:2x", "b:3");
    OK(kvstore_iterator_seek(it, K("b:0")));
    CHECK(is_at(it, "b:1"));
    kvstore_iterator_close(it);

    it = reverse_prefix(p, K("b:"));
    GOES_ON_WITH(it, "b:3", "b:2x", "b:2", "b:1");
    OK(kvstore_iterator_seek(it, K("b:2x")));
    clock_ms = 3000;
    hear_the_time(p->kv);
    OK(kvstore_iterator_prev(it));
    GOES_ON_WITH(it, "b:2", "b:1");
    kvstore_iterator_close(it);

    it = forward(p);
    OK(kvstore_iterator_first(it));
    GOES_ON_WITH(it, "a", "b", "b:1", "b:2", "b:3", "b;", "c");
    kvstore_iterator_close(it);
    it = reverse(p);
    OK(kvstore_iterator_last(it));
    GOES_ON_WITH(it, "c", "b;", "b:3", "b:2", "b:1", "b", "a");
    kvstore_iterator_close(it);

    CHECK(rows(p) == before); /* skipped, never deleted */
    int purged = -1;
    OK(AT(p, purge_expired, &purged));
    CHECK(purged == 4);
}
BOTH_FORMS(expired_rows)

/* Many and large entries: more than the iterator reads ahead at once. */
static void many_entries_at(const struct place *p)
{
    enum { N = 1500 };
    char key[16], large[5000];
    memset(large, 'l', sizeof large);
    OK(kvstore_begin(p->kv, 1));
    for (int i = 0; i < N; i++) {
        int n = snprintf(key, sizeof key, "%05d", i);
        OK(AT(p, put, key, n, large, i % 100 == 0 ? (int)sizeof large : i % 7));
    }
    OK(kvstore_commit(p->kv));
    for (int backwards = 0; backwards < 2; backwards++) {
        KVIterator *it = backwards ? reverse(p) : forward(p);
        OK(kvstore_iterator_first(it));
        for (int i = 0; i < N; i++) {
            int at = backwards ? N - 1 - i : i;
            void *found = NULL;
            int n = -1;
            snprintf(key, sizeof key, "%05d", at);
            OK(kvstore_iterator_key(it, &found, &n));
            CHECK(n == 5 && memcmp(found, key, 5) == 0);
            OK(kvstore_iterator_value(it, &found, &n));
            CHECK(n == (at % 100 == 0 ? (int)sizeof large : at % 7) && memcmp(found, large, (size_t)n) == 0);
            OK(kvstore_iterator_next(it));
        }
        CHECK(is_at_eof(it));
        kvstore_iterator_close(it);
    }
}
BOTH_FORMS(many_entries)

/* Reads and changes through the same handle at the same time, such as deleting the current
 * entry. */
static void writes_during_iteration_at(const struct place *p)
{
    put_all(p);
    KVIterator *it = forward(p);
    OK(kvstore_iterator_first(it));
    while (!kvstore_iterator_eof(it)) {
        void *key = NULL;
        int n = -1;
        OK(kvstore_iterator_key(it, &key, &n));
        OK(AT(p, delete, key, n));
        OK(kvstore_iterator_next(it));
    }
    CHECK(rows(p) == 0);
    kvstore_iterator_close(it);

    put(p, "a");
    put(p, "c");
    it = forward(p);
    OK(kvstore_iterator_first(it));
    CHECK(is_at(it, "a"));
    put(p, "b"); /* ahead */
    put(p, "A"); /* already passed */
    OK(kvstore_iterator_next(it));
    GOES_ON_WITH(it, "b", "c");
    kvstore_iterator_close(it);
}
BOTH_FORMS(writes_during_iteration)

static void after_the_store_is_closed(void)
{
    for (int with_family = 0; with_family < 2; with_family++) {
        struct place p = {open_at(NULL, NULL), NULL};
        if (with_family) {
            OK(kvstore_cf_create(p.kv, "family", &p.cf));
        }
        put_all(&p);
        KVIterator *its[] = {forward(&p), reverse(&p), prefix(&p, K("b")), reverse_prefix(&p, K("b"))};
        OK(kvstore_iterator_first(its[0]));
        OK(kvstore_iterator_last(its[1]));
        if (with_family) { /* in either order */
            kvstore_cf_close(p.cf);
        }
        OK(kvstore_close(p.kv));
        for (int i = 0; i < 4; i++) {
            void *shown = &clock_ms;
            int n = 7;
            CHECK(kvstore_iterator_eof(its[i]) == 1);
            GIVES(KVSTORE_MISUSE, kvstore_iterator_key(its[i], &shown, &n));
            GIVES(KVSTORE_MISUSE, kvstore_iterator_value(its[i], &shown, &n));
            CHECK(shown == &clock_ms && n == 7);
            GIVES(KVSTORE_MISUSE, kvstore_iterator_first(its[i]));
            GIVES(KVSTORE_MISUSE, kvstore_iterator_next(its[i]));
            GIVES(KVSTORE_MISUSE, kvstore_iterator_seek(its[i], K("b")));
            CHECK(kvstore_iterator_eof(its[i]) == 1);
            kvstore_iterator_close(its[i]);
        }
    }
    kvstore_iterator_close(NULL);
    CHECK(kvstore_iterator_eof(NULL) == 1);
}

/* A family's handle may be closed before the iterators made with it. */
static void after_the_family_is_closed(void)
{
    struct place p = {open_at(NULL, NULL), NULL};
    OK(kvstore_cf_create(p.kv, "family", &p.cf));
    put_all(&p);
    KVIterator *it = prefix(&p, K("b:"));
    kvstore_cf_close(p.cf);
    GOES_ON_WITH(it, "b:1", "b:2", "b:3");
    OK(kvstore_iterator_first(it));
    CHECK(is_at(it, "b:1"));
    kvstore_iterator_close(it);
    OK(kvstore_close(p.kv));
}

SCENARIOS({"plain", plain}, {"plain_reverse", plain_reverse}, {"prefix_forward", prefix_forward},
          {"prefix_reverse", prefix_reverse}, {"prefixes_of_the_highest_byte", prefixes_of_the_highest_byte},
          {"bad_prefixes", bad_prefixes}, {"of_an_empty_family", of_an_empty_family},
          {"next_before_first", next_before_first}, {"seek", seek}, {"seek_with_a_prefix", seek_with_a_prefix},
          {"bytes_and_empty_values", bytes_and_empty_values}, {"expired_rows", expired_rows},
          {"many_entries", many_entries}, {"writes_during_iteration", writes_during_iteration},
          {"after_the_store_is_closed", after_the_store_is_closed},
          {"after_the_family_is_closed", after_the_family_is_closed})

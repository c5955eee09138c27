/* TTLs without values, and expiry times as data: expire, persist, default TTL, next_expiry,
 * iterators in expiry order, count_live, purge_step, purge_before. */
#include "api_places.h"

static int expire(const struct place *p, const char *key, int64_t expire_ms, int flags)
{
    int changed = 7;
    OK(AT(p, expire, key, (int)strlen(key), expire_ms, flags, &changed));
    CHECK(changed == 0 || changed == 1);
    return changed;
}

static void put_for_at(const struct place *p)
{
    OK(AT(p, put_for, K("key"), K("value"), 500)); /* at 1000 */
    ENDS(p->cf, "key", 1500);
    HAS(p->cf, "key", "value");
    OK(AT(p, put_for, K("key"), NULL, 0, 1)); /* a different TTL and value */
    ENDS(p->cf, "key", 1001);
    HAS(p->cf, "key", "");
    clock_ms = 1001;
    GONE(p->cf, "key");
    OK(AT(p, set_default_ttl, 7));
    OK(AT(p, put_for, K("key"), K("value"), 10000000000)); /* no moment of 1970 */
    ENDS(p->cf, "key", 10000001001);
    HAS(p->cf, "key", "value");
    OK(AT(p, put_for, K("key"), K("long"), INT64_MAX));
    ENDS(p->cf, "key", INT64_MAX);
    HAS(p->cf, "key", "long");

    static const int64_t bad[] = {0, -1, KVSTORE_NO_TTL, INT64_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        GIVES(KVSTORE_ERROR, AT(p, put_for, K("key"), K("other"), bad[i]));
        CHECK(strstr(kvstore_errmsg(p->kv), "at least 1 ms") != NULL);
    }
    GIVES(KVSTORE_ERROR, kvstore_cf_put_for(NULL, K("key"), K("other"), 5));
    GIVES(KVSTORE_ERROR, AT(p, put_for, NULL, 3, K("other"), 5));
    GIVES(KVSTORE_ERROR, AT(p, put_for, K(""), K("other"), 5));
    GIVES(KVSTORE_ERROR, AT(p, put_for, K("key"), NULL, 5, 5));
    GIVES(KVSTORE_ERROR, AT(p, put_for, K("key"), "other", -5, 5));
    HAS(p->cf, "key", "long");
    ENDS(p->cf, "key", INT64_MAX);
}
IN_BOTH_PLACES(put_for)

/* Result of each condition for a key that expires at 2000 and for one without an expiry time. */
static void expire_conditions_at(const struct place *p)
{
    static const struct {
        int flags;
        int64_t expire_ms;
        int mortal, forever;
    } cases[] = {
        {0, 3000, 1, 1},
        {0, 2000, 1, 1},
        {0, 0, 1, 1},
        {KVSTORE_EXPIRE_NX, 3000, 0, 1},
        {KVSTORE_EXPIRE_NX, 0, 0, 1},
        {KVSTORE_EXPIRE_XX, 3000, 1, 0},
        {KVSTORE_EXPIRE_XX, 0, 1, 0},
        {KVSTORE_EXPIRE_GT, 2001, 1, 0},
        {KVSTORE_EXPIRE_GT, 2000, 0, 0},
        {KVSTORE_EXPIRE_GT, 1500, 0, 0},
        {KVSTORE_EXPIRE_GT, INT64_MAX, 1, 0},
        {KVSTORE_EXPIRE_GT, 0, 1, 0}, /* no TTL counts as infinite */
        {KVSTORE_EXPIRE_LT, 1999, 1, 1},
        {KVSTORE_EXPIRE_LT, 2000, 0, 1},
        {KVSTORE_EXPIRE_LT, 3000, 0, 1},
        {KVSTORE_EXPIRE_LT, INT64_MAX, 0, 1},
        {KVSTORE_EXPIRE_LT, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t end = cases[i].expire_ms ? cases[i].expire_ms : KVSTORE_NO_TTL;
        OK(AT(p, put_ttl, K("mortal"), K("value"), 2000));
        OK(AT(p, put, K("forever"), K("value")));
        CHECK(expire(p, "mortal", cases[i].expire_ms, cases[i].flags) == cases[i].mortal);
        CHECK(expire(p, "forever", cases[i].expire_ms, cases[i].flags) == cases[i].forever);
        ENDS(p->cf, "mortal", cases[i].mortal ? end : 2000);
        ENDS(p->cf, "forever", cases[i].forever ? end : KVSTORE_NO_TTL);
        HAS(p->cf, "mortal", "value");
        HAS(p->cf, "forever", "value");
    }
}
IN_BOTH_PLACES(expire_conditions)

static void expire_missing_at(const struct place *p)
{
    static const int conditions[] = {0, KVSTORE_EXPIRE_NX, KVSTORE_EXPIRE_XX, KVSTORE_EXPIRE_GT,
                                     KVSTORE_EXPIRE_LT};
    int changed = 7;
    OK(AT(p, put_ttl, K("key"), K("value"), 2000));
    clock_ms = 2000;
    for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++) {
        GIVES(KVSTORE_NOTFOUND, AT(p, expire, K("none"), 9000, conditions[i], &changed));
        GIVES(KVSTORE_NOTFOUND, AT(p, expire, K("key"), 9000, conditions[i], &changed));
        GIVES(KVSTORE_NOTFOUND, AT(p, expire, K("key"), 9000, conditions[i], NULL));
    }
    GONE(p->cf, "key"); /* an expired key is not restored */
    CHECK(changed == 7);
}
IN_BOTH_PLACES(expire_missing)

static void expire_in_the_past_at(const struct place *p)
{
    OK(AT(p, put, K("past"), K("value")));
    OK(AT(p, put, K("now"), K("value")));
    OK(AT(p, put_ttl, K("mortal"), K("value"), 2000));
    CHECK(expire(p, "past", 1, 0) == 1);
    CHECK(expire(p, "now", 1000, KVSTORE_EXPIRE_NX) == 1);
    CHECK(expire(p, "mortal", 999, KVSTORE_EXPIRE_LT) == 1);
    GONE(p->cf, "past");
    GONE(p->cf, "now");
    GONE(p->cf, "mortal");
    CHECK(live_at(p) == 0);
    OK(AT(p, put, K("next"), K("value")));
    CHECK(expire(p, "next", 1001, 0) == 1);
    HAS(p->cf, "next", "value");
    clock_ms = 1001;
    GONE(p->cf, "next");
}
IN_BOTH_PLACES(expire_in_the_past)

static void expire_refuses_at(const struct place *p)
{
    static const int bad[] = {3, 5, 9, 12, 15, 16, -1, INT_MIN, INT_MAX};
    int changed = 7;
    OK(AT(p, put_ttl, K("key"), K("value"), 2000));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        GIVES(KVSTORE_ERROR, AT(p, expire, K("key"), 3000, bad[i], &changed));
    }
    GIVES(KVSTORE_ERROR, AT(p, expire, K("key"), -2, 0, &changed));
    GIVES(KVSTORE_ERROR, AT(p, expire, K("key"), INT64_MIN, KVSTORE_EXPIRE_LT, &changed));
    CHECK(changed == 7);
    ENDS(p->cf, "key", 2000);
}
IN_BOTH_PLACES(expire_refuses)

/* A change of the TTL leaves a value that lies out of line as it is, to the last byte. */
static void expire_large_at(const struct place *p)
{
    enum { N = 200000 };
    char *value = malloc(N);
    for (int i = 0; i < N; i++) {
        value[i] = (char)(i * 7);
    }
    OK(AT(p, put, K("key"), value, N));
    CHECK(expire(p, "key", 2000, 0) == 1);
    CHECK(is_value(p->cf, K("key"), value, N));
    int changed = 7;
    OK(AT(p, persist, K("key"), &changed));
    CHECK(changed == 1 && is_value(p->cf, K("key"), value, N));
    CHECK(expire(p, "key", 1, 0) == 1);
    OK(AT(p, purge_expired, NULL));
    CHECK(rows_of(p->cf) == 0);
    free(value);
}
IN_BOTH_PLACES(expire_large)

static void persist_at(const struct place *p)
{
    int changed = 7;
    GIVES(KVSTORE_NOTFOUND, AT(p, persist, K("key"), &changed));
    CHECK(changed == 7);
    OK(AT(p, put_ttl, K("key"), K("value"), 2000));
    OK(AT(p, persist, K("key"), &changed));
    CHECK(changed == 1);
    ENDS(p->cf, "key", KVSTORE_NO_TTL);
    OK(AT(p, persist, K("key"), &changed));
    CHECK(changed == 0);
    clock_ms = 9000;
    HAS(p->cf, "key", "value");
    OK(AT(p, put_ttl, K("key"), K("value"), 9001));
    OK(AT(p, persist, K("key"), NULL));
    OK(AT(p, put_ttl, K("dead"), K("value"), 9001));
    clock_ms = 9001;
    HAS(p->cf, "key", "value");
    GIVES(KVSTORE_NOTFOUND, AT(p, persist, K("dead"), &changed));
    GONE(p->cf, "dead");
    CHECK(changed == 0);
}
IN_BOTH_PLACES(persist)

static void expire_time_at(const struct place *p)
{
    int64_t at = 7;
    GIVES(KVSTORE_NOTFOUND, AT(p, expire_time, K("key"), &at));
    CHECK(at == 7);
    OK(AT(p, put, K("key"), K("value")));
    OK(AT(p, expire_time, K("key"), &at));
    CHECK(at == KVSTORE_NO_TTL && at == -1);
    OK(AT(p, put_ttl, K("key"), K("value"), INT64_MAX));
    OK(AT(p, expire_time, K("key"), &at));
    CHECK(at == INT64_MAX);
    OK(AT(p, put_ttl, K("key"), K("value"), 1001));
    OK(AT(p, expire_time, K("key"), &at));
    CHECK(at == 1001);
    clock_ms = 1001;
    GIVES(KVSTORE_NOTFOUND, AT(p, expire_time, K("key"), &at));
    CHECK(at == 1001);
}
IN_BOTH_PLACES(expire_time)

static void get_and_expire_at(const struct place *p)
{
    void *value = &clock_ms;
    int n = 7;
    GIVES(KVSTORE_NOTFOUND, AT(p, get_and_expire, K("key"), 2000, &value, &n));
    CHECK(value == NULL && n == 0);
    CHECK(rows_of(p->cf) == 0);
    OK(AT(p, put_ttl, K("key"), K("value"), 2000));
    for (int64_t at = 1999; at < 9000; at += 999) { /* always used just in time: it slides */
        clock_ms = at;
        OK(AT(p, get_and_expire, K("key"), at + 1000, &value, &n));
        CHECK(n == 5 && memcmp(value, "value", 6) == 0); /* with the NUL after it */
        kvstore_free(value);
        ENDS(p->cf, "key", at + 1000);
    }
    OK(AT(p, get_and_expire, K("key"), 0, &value, &n));
    kvstore_free(value);
    ENDS(p->cf, "key", KVSTORE_NO_TTL);
    value = &clock_ms;
    n = 7;
    GIVES(KVSTORE_ERROR, AT(p, get_and_expire, K("key"), -2, &value, &n));
    CHECK(value == &clock_ms && n == 7);
    ENDS(p->cf, "key", KVSTORE_NO_TTL);
    OK(AT(p, get_and_expire, K("key"), 1, &value, &n)); /* its last read */
    CHECK(n == 5 && strcmp(value, "value") == 0);
    kvstore_free(value);
    GIVES(KVSTORE_NOTFOUND, AT(p, get_and_expire, K("key"), 99999, &value, &n));
    CHECK(value == NULL && n == 0);
    OK(AT(p, put, K("empty"), NULL, 0));
    OK(AT(p, get_and_expire, K("empty"), 99999, &value, &n));
    CHECK(value != NULL && n == 0 && *(char *)value == '\0');
    kvstore_free(value);
}
IN_BOTH_PLACES(get_and_expire)

static void default_ttl_at(const struct place *p)
{
    static const int64_t bad[] = {-1, INT64_MIN, 630720000001, INT64_MAX};
    int64_t ttl = 7;
    OK(AT(p, get_default_ttl, &ttl));
    CHECK(ttl == 0);
    OK(AT(p, put, K("before"), K("value")));
    OK(AT(p, set_default_ttl, 500));
    OK(AT(p, get_default_ttl, &ttl));
    CHECK(ttl == 500);
    ENDS(p->cf, "before", KVSTORE_NO_TTL); /* keys that are there keep what they have */
    OK(AT(p, put, K("key"), K("value")));
    ENDS(p->cf, "key", 1500);
    OK(AT(p, put_ttl, K("own"), K("value"), 9000));
    ENDS(p->cf, "own", 9000);
    OK(AT(p, put_ttl, K("own"), K("value"), KVSTORE_NO_TTL)); /* permanent, also against it */
    ENDS(p->cf, "own", KVSTORE_NO_TTL);
    int inserted = 7;
    OK(AT(p, put_if_absent, K("absent"), K("value"), 0, &inserted));
    CHECK(inserted == 1);
    ENDS(p->cf, "absent", 1500);
    OK(kvstore_cf_put_if_absent(p->cf, K("permanent"), K("value"), KVSTORE_NO_TTL, &inserted));
    CHECK(inserted == 1);
    ENDS(p->cf, "permanent", KVSTORE_NO_TTL);
    clock_ms = 1400;
    OK(AT(p, put, K("key"), K("other")));
    ENDS(p->cf, "key", 1900);
    clock_ms = 1900;
    GONE(p->cf, "key");

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        GIVES(KVSTORE_ERROR, AT(p, set_default_ttl, bad[i]));
        OK(AT(p, get_default_ttl, &ttl));
        CHECK(ttl == 500);
    }
    OK(AT(p, set_default_ttl, 630720000000)); /* 20 years are allowed */
    OK(AT(p, put, K("key"), K("value")));
    ENDS(p->cf, "key", 630720001900);
    OK(AT(p, set_default_ttl, 0));
    OK(AT(p, put, K("key"), K("value")));
    ENDS(p->cf, "key", KVSTORE_NO_TTL);
}
IN_BOTH_PLACES(default_ttl)

/* A default TTL belongs to one family, is stored in the file, and applies at once to handles
 * that are already open. */
static void default_ttl_is_stored(void)
{
    KVStore *one = open_at("store.db", NULL), *two = open_at("store.db", NULL);
    KVColumnFamily *cf = family(one, "family"), *same = family(two, "family"), *other = family(one, "other");
    int64_t ttl = 7;
    OK(kvstore_cf_put(same, K("key"), K("value"))); /* the other handle has its statements ready */
    OK(kvstore_cf_set_default_ttl(cf, 500));
    OK(kvstore_cf_put(same, K("key"), K("value")));
    ENDS(same, "key", 1500);
    OK(kvstore_cf_get_default_ttl(same, &ttl));
    CHECK(ttl == 500);
    OK(kvstore_cf_put(other, K("key"), K("value")));
    ENDS(other, "key", KVSTORE_NO_TTL);
    OK(kvstore_put(one, K("key"), K("value"))); /* nor the default family's */
    OK(kvstore_ttl_remaining(one, K("key"), &ttl));
    CHECK(ttl == KVSTORE_NO_TTL);
    kvstore_cf_close(other);
    kvstore_cf_close(cf);
    OK(kvstore_close(one));
    kvstore_cf_close(same);
    OK(kvstore_close(two));

    one = open_at("store.db", NULL);
    cf = family(one, "family");
    OK(kvstore_cf_get_default_ttl(cf, &ttl));
    CHECK(ttl == 500);
    OK(kvstore_begin(one, 1)); /* a setting is part of a transaction like all else */
    OK(kvstore_cf_set_default_ttl(cf, 900));
    OK(kvstore_cf_put(cf, K("key"), K("value")));
    ENDS(cf, "key", 1900);
    OK(kvstore_rollback(one));
    OK(kvstore_cf_get_default_ttl(cf, &ttl));
    CHECK(ttl == 500);
    kvstore_cf_close(cf);
    OK(kvstore_cf_drop(one, "family")); /* and removed with its family */
    cf = family(one, "family");
    OK(kvstore_cf_get_default_ttl(cf, &ttl));
    CHECK(ttl == 0);
    kvstore_cf_close(cf);
    OK(kvstore_close(one));
}

static void next_expiry(void)
{
    KVStore *kv = open_at(NULL, NULL);
    KVColumnFamily *a = family(kv, "a"), *b = family(kv, "b");
    int64_t at = 7;
    GIVES(KVSTORE_NOTFOUND, kvstore_next_expiry(kv, &at));
    GIVES(KVSTORE_NOTFOUND, kvstore_cf_next_expiry(a, &at));
    OK(kvstore_cf_put(a, K("forever"), K("value")));
    GIVES(KVSTORE_NOTFOUND, kvstore_next_expiry(kv, &at));
    CHECK(at == 7);
    OK(kvstore_cf_put_ttl(a, K("key"), K("value"), 5000));
    OK(kvstore_cf_put_ttl(a, K("later"), K("value"), 6000));
    OK(kvstore_cf_put_ttl(b, K("key"), K("value"), 4000));
    OK(kvstore_cf_next_expiry(a, &at));
    CHECK(at == 5000);
    OK(kvstore_next_expiry(kv, &at));
    CHECK(at == 4000);
    OK(kvstore_put_ttl(kv, K("key"), K("value"), 3000)); /* the default family counts, too */
    OK(kvstore_next_expiry(kv, &at));
    CHECK(at == 3000);
    clock_ms = 4500; /* what has expired and is still there is due now */
    OK(kvstore_next_expiry(kv, &at));
    CHECK(at == 3000);
    OK(kvstore_purge_expired(kv, NULL));
    OK(kvstore_next_expiry(kv, &at));
    CHECK(at == 4000);
    OK(kvstore_purge_step(kv, 0, 0, NULL, NULL));
    OK(kvstore_next_expiry(kv, &at));
    CHECK(at == 5000);
    OK(kvstore_cf_persist(a, K("key"), NULL));
    OK(kvstore_cf_next_expiry(a, &at));
    CHECK(at == 6000);
    OK(kvstore_cf_delete(a, K("later")));
    GIVES(KVSTORE_NOTFOUND, kvstore_cf_next_expiry(a, &at));
    GIVES(KVSTORE_NOTFOUND, kvstore_next_expiry(kv, &at));
    CHECK(at == 6000);
    OK(kvstore_begin(kv, 1)); /* the transaction's own writes count for it */
    OK(kvstore_cf_put_ttl(b, K("key"), K("value"), 9000));
    OK(kvstore_next_expiry(kv, &at));
    CHECK(at == 9000);
    OK(kvstore_rollback(kv));
    GIVES(KVSTORE_NOTFOUND, kvstore_next_expiry(kv, &at));
    kvstore_cf_close(a);
    kvstore_cf_close(b);
    OK(kvstore_close(kv));
}

static const char *expiring(const struct place *p, int64_t from_ms, int64_t to_ms)
{
    KVIterator *it;
    OK(AT(p, expiring_iterator_create, from_ms, to_ms, &it));
    return keys_of(it);
}

static void expiring_iterator_at(const struct place *p)
{
    OK(AT(p, put_ttl, K("d"), K("4"), 2000));
    OK(AT(p, put_ttl, K("a"), K("1"), 3000));
    OK(AT(p, put_ttl, K("c"), K("3"), 2000));
    OK(AT(p, put_ttl, K("b"), K("2"), 500)); /* expired, and included */
    OK(AT(p, put_ttl, K("e"), K("5"), INT64_MAX));
    OK(AT(p, put, K("forever"), K("value")));
    /* INT64_MAX is no upper bound: a key that expires at that time is included. */
    CHECK(strcmp(expiring(p, INT64_MIN, INT64_MAX), "b c d a e ") == 0);
    CHECK(strcmp(expiring(p, 0, INT64_MAX), "b c d a e ") == 0);
    CHECK(strcmp(expiring(p, INT64_MAX, INT64_MAX), "e ") == 0);
    CHECK(strcmp(expiring(p, 0, INT64_MAX - 1), "b c d a ") == 0);
    CHECK(strcmp(expiring(p, 2000, 3000), "c d ") == 0); /* from is in, to is not */
    CHECK(strcmp(expiring(p, 2000, 3001), "c d a ") == 0);
    CHECK(strcmp(expiring(p, 2001, 3001), "a ") == 0);
    CHECK(strcmp(expiring(p, 3001, INT64_MAX), "e ") == 0);
    CHECK(strcmp(expiring(p, 3000, 3000), "") == 0);
    CHECK(strcmp(expiring(p, 3000, 2000), "") == 0);
    CHECK(strcmp(expiring(p, INT64_MAX, INT64_MIN), "") == 0);
    CHECK(strcmp(expiring(p, 500, 501), "b ") == 0);
    clock_ms = 2500;
    CHECK(strcmp(expiring(p, 0, 9000), "b c d a ") == 0);
    CHECK(rows_of(p->cf) == 6); /* shown, never deleted */

    KVIterator *it;
    OK(AT(p, expiring_iterator_create, 0, 9000, &it));
    void *value;
    int n;
    int64_t at = 7;
    OK(kvstore_iterator_value(it, &value, &n));
    CHECK(n == 1 && *(char *)value == '2');
    OK(kvstore_iterator_expire_ms(it, &at));
    CHECK(at == 500);
    GIVES(KVSTORE_ERROR, kvstore_iterator_seek(it, K("c")));
    GIVES(KVSTORE_ERROR, kvstore_iterator_last(it));
    GIVES(KVSTORE_ERROR, kvstore_iterator_prev(it));
    OK(kvstore_iterator_first(it));
    OK(kvstore_iterator_next(it));
    OK(kvstore_iterator_next(it));
    OK(kvstore_iterator_expire_ms(it, &at));
    CHECK(at == 2000);
    OK(kvstore_iterator_first(it)); /* as often as one likes */
    CHECK(strcmp(keys_of(it), "b c d a ") == 0);
}
IN_BOTH_PLACES(expiring_iterator)

/* Thousands of entries, more than an iterator reads at once, equal times among them. */
static void expiring_iterator_is_in_order_at(const struct place *p)
{
    enum { N = 3000 };
    KVIterator *it;
    int seen = 0;
    int64_t last = 0;
    OK(kvstore_begin(p->kv, 1));
    for (int i = 0; i < N; i++) {
        char key[16];
        int n = snprintf(key, sizeof key, "%d", i * 7919 % N);
        OK(AT(p, put_ttl, key, n, key, n, 2000 + i % 500));
    }
    OK(kvstore_commit(p->kv));
    OK(AT(p, expiring_iterator_create, 2100, 2400, &it));
    for (; !kvstore_iterator_eof(it); seen++) {
        int64_t at;
        OK(kvstore_iterator_expire_ms(it, &at));
        CHECK(at >= last && at >= 2100 && at < 2400);
        last = at;
        OK(kvstore_iterator_next(it));
    }
    CHECK(seen == N * 300 / 500);
    kvstore_iterator_close(it);
}
IN_BOTH_PLACES(expiring_iterator_is_in_order)

static void shows_expire_ms(KVIterator *it, const int64_t *times, int count)
{
    int64_t at = 7;
    for (int i = 0; i < count; i++) {
        CHECK(!kvstore_iterator_eof(it));
        OK(kvstore_iterator_expire_ms(it, &at));
        CHECK(at == times[i]);
        OK(kvstore_iterator_next(it));
    }
    CHECK(kvstore_iterator_eof(it));
    at = 7;
    GIVES(KVSTORE_ERROR, kvstore_iterator_expire_ms(it, &at));
    CHECK(at == 7);
    kvstore_iterator_close(it);
}

static void expire_ms_on_every_iterator_at(const struct place *p)
{
    static const int64_t forth[] = {2000, -1, 3000}, back[] = {3000, -1, 2000}, row[] = {4000};
    KVIterator *it;
    char key[16];
    int n;
    int64_t at = 7;
    OK(kvstore_row_key(K("part"), K("row"), key, sizeof key, &n));
    OK(AT(p, put_ttl, key, n, K("value"), 4000));
    OK(AT(p, row_iterator_create, K("part"), NULL, 0, NULL, 0, 0, &it));
    shows_expire_ms(it, row, 1);
    OK(AT(p, delete, key, n));

    OK(AT(p, put_ttl, K("ka"), K("value"), 2000));
    OK(AT(p, put, K("kb"), K("value")));
    OK(AT(p, put_ttl, K("kc"), K("value"), 3000));
    OK(AT(p, put_ttl, K("kd"), K("dead"), 1000));
    OK(AT(p, iterator_create, &it));
    GIVES(KVSTORE_ERROR, kvstore_iterator_expire_ms(it, &at)); /* at eof until it is moved */
    CHECK(at == 7);
    OK(kvstore_iterator_first(it));
    shows_expire_ms(it, forth, 3);
    OK(AT(p, reverse_iterator_create, &it));
    OK(kvstore_iterator_last(it));
    shows_expire_ms(it, back, 3);
    OK(AT(p, prefix_iterator_create, K("k"), &it));
    shows_expire_ms(it, forth, 3);
    OK(AT(p, reverse_prefix_iterator_create, K("k"), &it));
    shows_expire_ms(it, back, 3);
    OK(AT(p, range_iterator_create, NULL, 0, NULL, 0, 0, &it));
    shows_expire_ms(it, forth, 3);
    OK(AT(p, range_iterator_create, K("ka"), K("kz"), KVSTORE_RANGE_KEYS_ONLY, &it));
    shows_expire_ms(it, forth, 3);
    OK(AT(p, range_iterator_create, K("ka"), K("kz"),
          KVSTORE_RANGE_KEYS_ONLY | KVSTORE_RANGE_REVERSE, &it));
    shows_expire_ms(it, back, 3);
    OK(kvstore_iterator_create(p->kv, &it));
    kvstore_iterator_close(it);
}
IN_BOTH_PLACES(expire_ms_on_every_iterator)

static void count_live_at(const struct place *p)
{
    CHECK(live_at(p) == 0);
    OK(AT(p, put, K("forever"), K("value")));
    for (int i = 0; i < 300; i++) {
        char key[16];
        int n = snprintf(key, sizeof key, "key %d", i);
        OK(AT(p, put_ttl, key, n, key, n, 2000 + i));
    }
    CHECK(live_at(p) == 301 && rows_of(p->cf) == 301);
    clock_ms = 1999;
    CHECK(live_at(p) == 301);
    clock_ms = 2000; /* exactly */
    CHECK(live_at(p) == 300 && rows_of(p->cf) == 301);
    clock_ms = 2299;
    CHECK(live_at(p) == 1 && rows_of(p->cf) == 301);
    OK(AT(p, purge_expired, NULL));
    CHECK(live_at(p) == 1 && rows_of(p->cf) == 1);
    OK(kvstore_begin(p->kv, 1));
    OK(AT(p, put_ttl, K("dead"), K("value"), 1));
    OK(AT(p, put, K("alive"), K("value")));
    CHECK(live_at(p) == 2 && rows_of(p->cf) == 3);
    OK(kvstore_rollback(p->kv));
    CHECK(live_at(p) == 1);
}
IN_BOTH_PLACES(count_live)

/* Keys that expire first are removed first, over all families, up to the maximum number. */
static void purge_step_earliest_first(void)
{
    KVStore *kv = open_at("store.db", NULL);
    KVColumnFamily *a = family(kv, "a"), *b = family(kv, "b");
    int64_t deleted = 7;
    int more = 7;
    OK(kvstore_purge_step(kv, 0, 0, &deleted, &more));
    CHECK(deleted == 0 && more == 0);
    OK(kvstore_cf_put_ttl(a, K("2"), K("value"), 2002));
    OK(kvstore_cf_put_ttl(b, K("1"), K("value"), 2001));
    OK(kvstore_put_ttl(kv, K("0"), K("value"), 2000));
    OK(kvstore_cf_put_ttl(a, K("4"), K("value"), 2004));
    OK(kvstore_cf_put_ttl(b, K("3"), K("value"), 2003));
    OK(kvstore_cf_put_ttl(b, K("alive"), K("value"), 9000));
    OK(kvstore_cf_put(a, K("forever"), K("value")));
    OK(kvstore_purge_step(kv, 0, 0, &deleted, &more));
    CHECK(deleted == 0 && more == 0);
    clock_ms = 2003;
    for (int64_t first = 2000; first <= 2003; first++) {
        int64_t at = 7;
        OK(kvstore_next_expiry(kv, &at));
        CHECK(at == first);
        OK(kvstore_purge_step(kv, 1, 0, &deleted, &more));
        CHECK(deleted == 1 && more == (first < 2003));
    }
    OK(kvstore_purge_step(kv, 1, 0, &deleted, &more));
    CHECK(deleted == 0 && more == 0);
    CHECK(rows_of(a) == 2 && rows_of(b) == 1);
    clock_ms = 9000;
    OK(kvstore_purge_step(kv, 1, 0, NULL, &more));
    CHECK(more == 1);
    OK(kvstore_purge_step(kv, 2, 0, &deleted, NULL));
    CHECK(deleted == 1);
    OK(kvstore_integrity_check(kv, NULL));
    kvstore_cf_close(a);
    kvstore_cf_close(b);
    OK(kvstore_close(kv));
}

static void fill_expiring(const struct place *p, int count)
{
    OK(kvstore_begin(p->kv, 1));
    for (int i = 0; i < count; i++) {
        char key[16];
        int n = snprintf(key, sizeof key, "key %d", i);
        OK(AT(p, put_ttl, key, n, key, n, 2000 + i % 10));
    }
    OK(kvstore_commit(p->kv));
}

static void purge_step_budgets_at(const struct place *p)
{
    int64_t deleted = 7;
    int more = 7;
    KVStoreStats stats;
    fill_expiring(p, 1200);
    clock_ms = 3000;
    OK(kvstore_purge_step(p->kv, 300, 0, &deleted, &more)); /* more than one transaction's worth */
    CHECK(deleted == 300 && more == 1 && rows_of(p->cf) == 900);
    OK(kvstore_purge_step(p->kv, 900, 0, &deleted, &more));
    CHECK(deleted == 900 && more == 0 && rows_of(p->cf) == 0);
    OK(kvstore_stats(p->kv, &stats));
    CHECK(stats.nTtlPurged == 1200);

    if (!are_on_a_server()) clock_ms = 1000; /* the store's clock does not go back, so this is in the past now */
    fill_expiring(p, 1200);
    OK(kvstore_purge_step(p->kv, 0, 60000, &deleted, &more)); /* time enough */
    CHECK(deleted == 1200 && more == 0 && rows_of(p->cf) == 0);
    fill_expiring(p, 300);
    OK(kvstore_purge_step(p->kv, INT64_MAX, INT64_MAX, &deleted, &more));
    CHECK(deleted == 300 && more == 0);
    deleted = more = 7;
    GIVES(KVSTORE_ERROR, kvstore_purge_step(p->kv, -1, 0, &deleted, &more));
    GIVES(KVSTORE_ERROR, kvstore_purge_step(p->kv, 0, -1, &deleted, &more));
    GIVES(KVSTORE_ERROR, kvstore_purge_step(p->kv, INT64_MIN, INT64_MIN, &deleted, &more));
    CHECK(deleted == 7 && more == 7);
}
IN_BOTH_PLACES(purge_step_budgets)

/* With any time budget each call removes a key or examines a family. Repeated calls finish, also on a machine
 * on which finding the first key takes longer than the budget. */
static void purge_step_makes_progress(void)
{
    struct place p = {open_at("store.db", NULL), NULL, 0};
    int64_t deleted = 7, total = 0;
    int more = 7, looked = 0;
    for (int i = 0; i < 50; i++) { /* many families: the look at all of them takes its time */
        char name[16];
        snprintf(name, sizeof name, "family %d", i);
        p.cf = family(p.kv, name);
        fill_expiring(&p, 20);
        kvstore_cf_close(p.cf);
    }
    clock_ms = 3000;
    do {
        OK(kvstore_purge_step(p.kv, 0, 1, &deleted, &more));
        looked += deleted == 0;
        CHECK(looked <= 51); /* at a family each, at least */
        total += deleted;
    } while (more);
    CHECK(total == 50 * 20);
    OK(kvstore_close(p.kv));
}

static void purge_step_in_transactions_at(const struct place *p)
{
    int64_t deleted = 7;
    int more = 7;
    fill_expiring(p, 600);
    clock_ms = 3000;
    OK(kvstore_begin(p->kv, 1));
    OK(kvstore_purge_step(p->kv, 500, 0, &deleted, &more));
    CHECK(deleted == 500 && more == 1);
    OK(AT(p, purge_before, 9000, &deleted));
    CHECK(deleted == 100 && rows_of(p->cf) == 0);
    OK(kvstore_rollback(p->kv)); /* all of it was the caller's transaction */
    CHECK(rows_of(p->cf) == 600);
    OK(kvstore_begin(p->kv, 0));
    deleted = 7;
    GIVES(KVSTORE_READONLY, kvstore_purge_step(p->kv, 0, 0, &deleted, &more));
    GIVES(KVSTORE_READONLY, AT(p, purge_before, 9000, &deleted));
    CHECK(deleted == 7 && more == 1);
    OK(kvstore_commit(p->kv));
    CHECK(rows_of(p->cf) == 600);
}
IN_BOTH_PLACES(purge_step_in_transactions)

static void purge_before_at(const struct place *p)
{
    int64_t deleted = 7;
    OK(AT(p, purge_before, 9000, &deleted));
    CHECK(deleted == 0);
    fill_expiring(p, 600); /* 60 keys at each of 2000 to 2009 */
    OK(AT(p, put, K("forever"), K("value")));
    OK(AT(p, purge_before, INT64_MAX, &deleted)); /* live keys stay, whatever the cutoff */
    CHECK(deleted == 0);
    clock_ms = 2004;
    OK(AT(p, purge_before, 2000, &deleted));
    CHECK(deleted == 0);
    OK(AT(p, purge_before, 2002, &deleted)); /* expired before it, not at it */
    CHECK(deleted == 120 && rows_of(p->cf) == 481);
    OK(AT(p, purge_before, -1, &deleted));
    CHECK(deleted == 0);
    OK(AT(p, purge_before, INT64_MIN, &deleted));
    CHECK(deleted == 0);
    OK(AT(p, purge_before, INT64_MAX, &deleted));
    CHECK(deleted == 180 && rows_of(p->cf) == 301 && live_at(p) == 301);
    clock_ms = 9000;
    KVColumnFamily *other = family(p->kv, "other");
    OK(kvstore_cf_purge_before(other, 9000, &deleted)); /* that family only */
    CHECK(deleted == 0);
    kvstore_cf_close(other);
    OK(AT(p, purge_before, 9000, NULL));
    CHECK(rows_of(p->cf) == 1);
}
IN_BOTH_PLACES(purge_before)

static void in_transactions_at(const struct place *p)
{
    void *value = &clock_ms;
    int changed = 7;
    OK(AT(p, put_ttl, K("key"), K("value"), 2000));
    OK(kvstore_begin(p->kv, 1));
    CHECK(expire(p, "key", 3000, 0) == 1);
    ENDS(p->cf, "key", 3000);
    OK(AT(p, persist, K("key"), NULL));
    OK(AT(p, get_and_expire, K("key"), 4000, &value, &changed));
    kvstore_free(value);
    ENDS(p->cf, "key", 4000);
    OK(kvstore_rollback(p->kv));
    ENDS(p->cf, "key", 2000);
    OK(kvstore_begin(p->kv, 0));
    changed = 7;
    value = &clock_ms;
    GIVES(KVSTORE_READONLY, AT(p, expire, K("key"), 3000, 0, &changed));
    GIVES(KVSTORE_READONLY, AT(p, persist, K("key"), &changed));
    GIVES(KVSTORE_READONLY, AT(p, get_and_expire, K("key"), 3000, &value, &changed));
    GIVES(KVSTORE_READONLY, AT(p, set_default_ttl, 100));
    CHECK(changed == 7 && value == &clock_ms);
    ENDS(p->cf, "key", 2000);
    OK(kvstore_rollback(p->kv));
}
IN_BOTH_PLACES(in_transactions)

SCENARIOS({"put_for", put_for}, {"expire_conditions", expire_conditions}, {"expire_missing", expire_missing},
          {"expire_in_the_past", expire_in_the_past}, {"expire_refuses", expire_refuses},
          {"expire_large", expire_large}, {"persist", persist}, {"expire_time", expire_time},
          {"get_and_expire", get_and_expire}, {"default_ttl", default_ttl},
          {"default_ttl_is_stored", default_ttl_is_stored}, {"next_expiry", next_expiry},
          {"expiring_iterator", expiring_iterator},
          {"expiring_iterator_is_in_order", expiring_iterator_is_in_order},
          {"expire_ms_on_every_iterator", expire_ms_on_every_iterator}, {"count_live", count_live},
          {"purge_step_earliest_first", purge_step_earliest_first},
          {"purge_step_budgets", purge_step_budgets},
          {"purge_step_makes_progress", purge_step_makes_progress},
          {"purge_step_in_transactions", purge_step_in_transactions}, {"purge_before", purge_before},
          {"in_transactions", in_transactions})

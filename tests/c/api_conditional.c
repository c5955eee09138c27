/* Conditional writes: put_with, compare_and_swap, compare_and_delete, increment. */
#include "api_places.h"

/* Asserts whether put_with reports that it wrote. */
#define PUTS(written_, key, value, expire_ms, flags_)                                                    \
    do {                                                                                                 \
        KVWriteOptions opt = {.expireMs = (expire_ms), .flags = (flags_)};                               \
        int written = 7;                                                                                 \
        OK(AT(p, put_with, K(key), K(value), &opt, &written));                                           \
        CHECK(written == (written_));                                                                    \
    } while (0)

static void put_with_always_at(const struct place *p)
{
    int written = 7;
    OK(AT(p, put_with, K("key"), K("value"), NULL, &written));
    CHECK(written == 1);
    ENDS(p->cf, "key", KVSTORE_NO_TTL);
    PUTS(1, "key", "other", 2000, 0);
    HAS(p->cf, "key", "other");
    ENDS(p->cf, "key", 2000);
    PUTS(1, "key", "third", 3000, 0);
    ENDS(p->cf, "key", 3000);
    PUTS(1, "key", "fourth", 0, 0); /* like a plain put: the expiry time is removed */
    ENDS(p->cf, "key", KVSTORE_NO_TTL);
    OK(AT(p, put_with, K("key"), NULL, 0, NULL, NULL));
    HAS(p->cf, "key", "");
    PUTS(1, "key", "dead", 999, 0); /* in the past: written, and invisible at once */
    GONE(p->cf, "key");
    PUTS(1, "key", "dead", 1000, 0);
    GONE(p->cf, "key");
}
IN_BOTH_PLACES(put_with_always)

static void put_with_if_absent_at(const struct place *p)
{
    PUTS(1, "key", "first", 2000, KVSTORE_PUT_IF_ABSENT);
    PUTS(0, "key", "second", 9000, KVSTORE_PUT_IF_ABSENT);
    PUTS(0, "key", "second", 0, KVSTORE_PUT_IF_ABSENT);
    HAS(p->cf, "key", "first");
    ENDS(p->cf, "key", 2000);
    clock_ms = 2000; /* expired is absent */
    PUTS(1, "key", "third", 0, KVSTORE_PUT_IF_ABSENT);
    HAS(p->cf, "key", "third");
    ENDS(p->cf, "key", KVSTORE_NO_TTL);
    PUTS(1, "dead", "value", 1, KVSTORE_PUT_IF_ABSENT);
    PUTS(1, "dead", "alive", 0, KVSTORE_PUT_IF_ABSENT);
    HAS(p->cf, "dead", "alive");
}
IN_BOTH_PLACES(put_with_if_absent)

static void put_with_if_present_at(const struct place *p)
{
    PUTS(0, "key", "value", 0, KVSTORE_PUT_IF_PRESENT);
    CHECK(rows_of(p->cf) == 0);
    OK(AT(p, put_ttl, K("key"), K("value"), 2000));
    PUTS(1, "key", "other", 3000, KVSTORE_PUT_IF_PRESENT);
    HAS(p->cf, "key", "other");
    ENDS(p->cf, "key", 3000);
    clock_ms = 3000;
    PUTS(0, "key", "again", 0, KVSTORE_PUT_IF_PRESENT);
    GONE(p->cf, "key");
}
IN_BOTH_PLACES(put_with_if_present)

static void put_with_keep_ttl_at(const struct place *p)
{
    PUTS(1, "new", "value", 5000, KVSTORE_PUT_KEEP_TTL); /* nothing to keep: expireMs counts */
    ENDS(p->cf, "new", 5000);
    PUTS(1, "new", "other", 9000, KVSTORE_PUT_KEEP_TTL);
    HAS(p->cf, "new", "other");
    ENDS(p->cf, "new", 5000);
    PUTS(1, "new", "third", 0, KVSTORE_PUT_KEEP_TTL);
    ENDS(p->cf, "new", 5000);
    OK(AT(p, put, K("forever"), K("value")));
    PUTS(1, "forever", "other", 9000, KVSTORE_PUT_KEEP_TTL); /* having none is kept, too */
    HAS(p->cf, "forever", "other");
    ENDS(p->cf, "forever", KVSTORE_NO_TTL);
    clock_ms = 5000; /* an expired key has nothing to keep */
    PUTS(1, "new", "fresh", 9000, KVSTORE_PUT_KEEP_TTL);
    HAS(p->cf, "new", "fresh");
    ENDS(p->cf, "new", 9000);
}
IN_BOTH_PLACES(put_with_keep_ttl)

static void put_with_default_ttl_at(const struct place *p)
{
    PUTS(1, "key", "value", 0, 0); /* the family has none */
    ENDS(p->cf, "key", KVSTORE_NO_TTL);
    OK(AT(p, set_default_ttl, 500));
    PUTS(1, "key", "value", 0, 0);
    ENDS(p->cf, "key", 1500);
    PUTS(1, "key", "value", KVSTORE_NO_TTL, 0);
    ENDS(p->cf, "key", KVSTORE_NO_TTL);
    OK(AT(p, put_with, K("key"), K("value"), NULL, NULL));
    ENDS(p->cf, "key", 1500);
    PUTS(1, "key", "value", 7000, 0);
    ENDS(p->cf, "key", 7000);
    clock_ms = 1200;
    PUTS(1, "key", "value", 0, KVSTORE_PUT_IF_PRESENT);
    ENDS(p->cf, "key", 1700);
    PUTS(1, "key", "value", 0, KVSTORE_PUT_KEEP_TTL);
    ENDS(p->cf, "key", 1700);
    PUTS(1, "new", "value", 0, KVSTORE_PUT_KEEP_TTL | KVSTORE_PUT_IF_ABSENT);
    ENDS(p->cf, "new", 1700);
    PUTS(0, "none", "value", 0, KVSTORE_PUT_KEEP_TTL | KVSTORE_PUT_IF_PRESENT);
    PUTS(1, "new", "other", 9000, KVSTORE_PUT_KEEP_TTL | KVSTORE_PUT_IF_PRESENT);
    HAS(p->cf, "new", "other");
    ENDS(p->cf, "new", 1700);
}
IN_BOTH_PLACES(put_with_default_ttl)

static void put_with_a_ttl_at(const struct place *p)
{
    PUTS(1, "key", "value", 500, KVSTORE_PUT_TTL);
    ENDS(p->cf, "key", 1500);
    clock_ms = 1200;
    PUTS(0, "key", "other", 500, KVSTORE_PUT_TTL | KVSTORE_PUT_IF_ABSENT);
    ENDS(p->cf, "key", 1500);
    PUTS(1, "key", "other", 900, KVSTORE_PUT_TTL | KVSTORE_PUT_KEEP_TTL);
    ENDS(p->cf, "key", 1500);
    PUTS(1, "key", "other", 900, KVSTORE_PUT_TTL | KVSTORE_PUT_IF_PRESENT);
    ENDS(p->cf, "key", 2100);
    PUTS(1, "new", "value", 1, KVSTORE_PUT_TTL | KVSTORE_PUT_KEEP_TTL | KVSTORE_PUT_IF_ABSENT);
    ENDS(p->cf, "new", 1201);
    PUTS(1, "far", "value", INT64_MAX, KVSTORE_PUT_TTL);
    ENDS(p->cf, "far", INT64_MAX);
}
IN_BOTH_PLACES(put_with_a_ttl)

static void put_with_refuses_at(const struct place *p)
{
    static const KVWriteOptions bad[] = {
        {0, KVSTORE_PUT_IF_ABSENT | KVSTORE_PUT_IF_PRESENT, 0},
        {0, KVSTORE_PUT_TTL, 0},
        {-5, KVSTORE_PUT_TTL, 0},
        {0, 16, 0},
        {0, KVSTORE_PUT_IF_PRESENT | 0x80000000u, 0},
        {0, UINT32_MAX, 0},
        {0, 0, 1},
        {0, 0, UINT32_MAX},
        {-2, 0, 0},
        {INT64_MIN, 0, 0},
        {-2, KVSTORE_PUT_KEEP_TTL, 0},
    };
    OK(AT(p, put_ttl, K("key"), K("value"), 2000));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int written = 7;
        GIVES(KVSTORE_ERROR, AT(p, put_with, K("key"), K("other"), &bad[i], &written));
        GIVES(KVSTORE_ERROR, AT(p, put_with, K("new"), K("other"), &bad[i], NULL));
        CHECK(written == 7 && strcmp(kvstore_errmsg(p->kv), "no error") != 0);
    }
    HAS(p->cf, "key", "value");
    ENDS(p->cf, "key", 2000);
    CHECK(rows_of(p->cf) == 1);
}
IN_BOTH_PLACES(put_with_refuses)

static int swap(const struct place *p, const char *key, const char *expected, int n_expected,
                const char *value, int64_t expire_ms)
{
    int swapped = 7;
    OK(AT(p, compare_and_swap, key, (int)strlen(key), expected, n_expected, value, (int)strlen(value),
          expire_ms, &swapped));
    CHECK(swapped == 0 || swapped == 1);
    return swapped;
}

static void compare_and_swap_at(const struct place *p)
{
    CHECK(!swap(p, "key", K("value"), "other", 0));
    CHECK(!swap(p, "key", "", 0, "other", 0)); /* a missing key is not an empty value */
    CHECK(!swap(p, "key", NULL, 0, "other", 0));
    CHECK(rows_of(p->cf) == 0);

    OK(AT(p, put_ttl, K("key"), K("value"), 2000));
    CHECK(!swap(p, "key", K("valuE"), "other", 0));
    CHECK(!swap(p, "key", K("valu"), "other", 0));
    CHECK(!swap(p, "key", K("value\0"), "other", 0));
    CHECK(!swap(p, "key", "", 0, "other", 0));
    HAS(p->cf, "key", "value");
    ENDS(p->cf, "key", 2000);
    CHECK(swap(p, "key", K("value"), "other", 3000));
    HAS(p->cf, "key", "other");
    ENDS(p->cf, "key", 3000);
    CHECK(swap(p, "key", K("other"), "other", 0)); /* 0: permanent, whatever it had */
    ENDS(p->cf, "key", KVSTORE_NO_TTL);
    OK(AT(p, compare_and_swap, K("key"), K("other"), NULL, 0, 0, NULL));
    HAS(p->cf, "key", "");
    CHECK(swap(p, "key", NULL, 0, "zero", 4000));
    OK(AT(p, put, K("bytes"), K("\0\xff\0")));
    CHECK(!swap(p, "bytes", K("\0\xff\1"), "x", 0));
    CHECK(swap(p, "bytes", K("\0\xff\0"), "x", 0));

    clock_ms = 4000; /* expired: 0, although the value would be equal */
    CHECK(!swap(p, "key", K("zero"), "other", 0));
    GONE(p->cf, "key");
    CHECK(swap(p, "bytes", K("x"), "dead", 3999)); /* swapped, and expired at once */
    GONE(p->cf, "bytes");

    int swapped = 7;
    OK(AT(p, put, K("key"), K("value")));
    GIVES(KVSTORE_ERROR,
          AT(p, compare_and_swap, K("key"), K("value"), K("other"), -2, &swapped));
    CHECK(swapped == 7);
    HAS(p->cf, "key", "value");
}
IN_BOTH_PLACES(compare_and_swap)

static int delete_if(const struct place *p, const char *key, const char *expected, int n_expected)
{
    int deleted = 7;
    OK(AT(p, compare_and_delete, key, (int)strlen(key), expected, n_expected, &deleted));
    CHECK(deleted == 0 || deleted == 1);
    return deleted;
}

static void compare_and_delete_at(const struct place *p)
{
    CHECK(!delete_if(p, "key", NULL, 0));
    OK(AT(p, put_ttl, K("key"), K("value"), 2000));
    CHECK(!delete_if(p, "key", K("valu")));
    CHECK(!delete_if(p, "key", K("Value")));
    CHECK(!delete_if(p, "key", "", 0));
    HAS(p->cf, "key", "value");
    CHECK(delete_if(p, "key", K("value")));
    GONE(p->cf, "key");
    CHECK(!delete_if(p, "key", K("value")));
    int64_t next = 7;
    GIVES(KVSTORE_NOTFOUND, kvstore_cf_next_expiry(p->cf, &next)); /* its expiry time was removed with it */

    OK(AT(p, put, K("empty"), NULL, 0));
    CHECK(delete_if(p, "empty", NULL, 0));
    OK(AT(p, put_ttl, K("key"), K("value"), 2000));
    clock_ms = 2000;
    CHECK(!delete_if(p, "key", K("value")));
    OK(AT(p, put, K("key"), K("value")));
    OK(AT(p, compare_and_delete, K("key"), K("value"), NULL));
    GONE(p->cf, "key");
}
IN_BOTH_PLACES(compare_and_delete)

/* Values of out-of-line length are compared to their last byte. */
static void compare_large_at(const struct place *p)
{
    enum { N = 300000 };
    char *value = calloc(1, N), *other = calloc(1, N);
    int swapped = 7;
    memset(value, 'v', N);
    memset(other, 'v', N);
    other[N - 1] = 'w';
    OK(AT(p, put, K("key"), value, N));
    OK(AT(p, compare_and_swap, K("key"), other, N, K("no"), 0, &swapped));
    CHECK(swapped == 0);
    OK(AT(p, compare_and_swap, K("key"), value, N, other, N, 5000, &swapped));
    CHECK(swapped == 1 && is_value(p->cf, K("key"), other, N));
    OK(AT(p, compare_and_delete, K("key"), value, N, &swapped));
    CHECK(swapped == 0);
    OK(AT(p, compare_and_delete, K("key"), other, N, &swapped));
    CHECK(swapped == 1 && rows_of(p->cf) == 0);
    free(value);
    free(other);
}
IN_BOTH_PLACES(compare_large)

static int64_t added(const struct place *p, const char *key, int64_t delta, int64_t expire_ms)
{
    int64_t sum = 77;
    OK(AT(p, increment, key, (int)strlen(key), delta, expire_ms, &sum));
    return sum;
}

static void increment_at(const struct place *p)
{
    CHECK(added(p, "key", 5, 2000) == 5); /* missing: from 0, with the TTL */
    HAS(p->cf, "key", "5");
    ENDS(p->cf, "key", 2000);
    CHECK(added(p, "key", 10, 9000) == 15); /* it keeps its TTL */
    CHECK(added(p, "key", -20, 0) == -5);
    HAS(p->cf, "key", "-5");
    ENDS(p->cf, "key", 2000);
    OK(AT(p, increment, K("key"), 0, 0, NULL));
    HAS(p->cf, "key", "-5");
    clock_ms = 2000; /* expired: from 0 again */
    CHECK(added(p, "key", 1, 3000) == 1);
    ENDS(p->cf, "key", 3000);
    CHECK(added(p, "forever", 1, 0) == 1);
    CHECK(added(p, "forever", 1, 5000) == 2);
    ENDS(p->cf, "forever", KVSTORE_NO_TTL);
    OK(AT(p, put, K("text"), K("41"))); /* a number that a put wrote */
    CHECK(added(p, "text", 1, 0) == 42);
    CHECK(added(p, "past", 9, 1999) == 9); /* created, and expired at once */
    GONE(p->cf, "past");
    CHECK(added(p, "past", 9, 1999) == 9);
}
IN_BOTH_PLACES(increment)

static void increment_limits_at(const struct place *p)
{
    int64_t sum = 7;
    CHECK(added(p, "key", INT64_MAX, 2000) == INT64_MAX);
    GIVES(KVSTORE_ERROR, AT(p, increment, K("key"), 1, 0, &sum));
    GIVES(KVSTORE_ERROR, AT(p, increment, K("key"), INT64_MAX, 0, &sum));
    HAS(p->cf, "key", "9223372036854775807");
    ENDS(p->cf, "key", 2000);
    CHECK(added(p, "key", INT64_MIN, 0) == -1);
    CHECK(added(p, "key", INT64_MIN + 1, 0) == INT64_MIN);
    GIVES(KVSTORE_ERROR, AT(p, increment, K("key"), -1, 0, &sum));
    HAS(p->cf, "key", "-9223372036854775808");
    GIVES(KVSTORE_ERROR, AT(p, increment, K("new"), 1, -2, &sum));
    GIVES(KVSTORE_ERROR, AT(p, increment, K("key"), 1, INT64_MIN, &sum));
    CHECK(sum == 7 && rows_of(p->cf) == 1);
}
IN_BOTH_PLACES(increment_limits)

static void increment_not_a_number_at(const struct place *p)
{
    static const char *const bad[] = {"",     " 1", "1 ", "1.0",   "1e3",  "0x10", "one", "--1",
                                      "1\n",  "+",  "-",  "\xff" "1", "1,000", "9223372036854775808",
                                      "-9223372036854775809"};
    int64_t sum = 7;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int n = (int)strlen(bad[i]);
        OK(AT(p, put_ttl, K("key"), bad[i], n, 2000));
        GIVES(KVSTORE_ERROR, AT(p, increment, K("key"), 1, 5000, &sum));
        CHECK(sum == 7 && is_value(p->cf, K("key"), bad[i], n));
        ENDS(p->cf, "key", 2000);
    }
    OK(AT(p, put, K("key"), K("1\0")));
    GIVES(KVSTORE_ERROR, AT(p, increment, K("key"), 1, 0, NULL));
    OK(AT(p, put_ttl, K("key"), K("not a number"), 2000));
    clock_ms = 2000; /* an expired value does not count, number or not */
    CHECK(added(p, "key", 3, 0) == 3);
}
IN_BOTH_PLACES(increment_not_a_number)

static void increment_default_ttl_at(const struct place *p)
{
    OK(AT(p, set_default_ttl, 500));
    CHECK(added(p, "key", 1, 0) == 1);
    ENDS(p->cf, "key", 1500);
    CHECK(added(p, "own", 1, 9000) == 1);
    ENDS(p->cf, "own", 9000);
    clock_ms = 1400;
    CHECK(added(p, "key", 1, 0) == 2); /* a live key keeps its expiry time */
    ENDS(p->cf, "key", 1500);
    clock_ms = 1500;
    CHECK(added(p, "key", 1, 0) == 1);
    ENDS(p->cf, "key", 2000);
}
IN_BOTH_PLACES(increment_default_ttl)

/* 0 as expiry time stands for the default TTL, and KVSTORE_NO_TTL for none. */
static void default_ttl_is_for_writes_without_expiry_at(const struct place *p)
{
    OK(AT(p, set_default_ttl, 500));
    OK(AT(p, put_ttl, K("key"), K("value"), KVSTORE_NO_TTL));
    ENDS(p->cf, "key", KVSTORE_NO_TTL);
    CHECK(swap(p, "key", K("value"), "other", 0));
    ENDS(p->cf, "key", 1500);
    CHECK(swap(p, "key", K("other"), "value", KVSTORE_NO_TTL));
    ENDS(p->cf, "key", KVSTORE_NO_TTL);
    OK(AT(p, put_ttl, K("key"), K("value"), 0));
    ENDS(p->cf, "key", 1500);
    CHECK(added(p, "sum", 1, KVSTORE_NO_TTL) == 1);
    ENDS(p->cf, "sum", KVSTORE_NO_TTL);
    OK(AT(p, expire, K("key"), KVSTORE_NO_TTL, 0, NULL));
    ENDS(p->cf, "key", KVSTORE_NO_TTL);
}
IN_BOTH_PLACES(default_ttl_is_for_writes_without_expiry)

static void in_transactions_at(const struct place *p)
{
    KVWriteOptions opt = {.expireMs = 5000};
    int done = 7;
    int64_t sum = 7;
    OK(AT(p, put, K("key"), K("1")));
    OK(kvstore_begin(p->kv, 1));
    CHECK(added(p, "key", 1, 0) == 2);
    CHECK(added(p, "key", 1, 0) == 3); /* sees its own writes */
    CHECK(swap(p, "key", K("3"), "4", 6000));
    OK(AT(p, put_with, K("new"), K("value"), &opt, &done));
    CHECK(delete_if(p, "key", K("4")));
    GONE(p->cf, "key");
    GIVES(KVSTORE_ERROR, AT(p, increment, K("new"), 1, 0, &sum)); /* spoils nothing */
    OK(kvstore_rollback(p->kv));
    HAS(p->cf, "key", "1");
    ENDS(p->cf, "key", KVSTORE_NO_TTL);
    GONE(p->cf, "new");

    OK(kvstore_begin(p->kv, 1));
    CHECK(added(p, "key", 1, 0) == 2);
    GIVES(KVSTORE_ERROR, AT(p, increment, K("key"), INT64_MAX, 0, &sum));
    OK(kvstore_commit(p->kv));
    HAS(p->cf, "key", "2");

    OK(kvstore_begin(p->kv, 0)); /* reads only */
    done = 7;
    GIVES(KVSTORE_READONLY, AT(p, put_with, K("new"), K("value"), &opt, &done));
    GIVES(KVSTORE_READONLY, AT(p, compare_and_swap, K("key"), K("2"), K("3"), 0, &done));
    GIVES(KVSTORE_READONLY, AT(p, compare_and_delete, K("key"), K("2"), &done));
    GIVES(KVSTORE_READONLY, AT(p, increment, K("key"), 1, 0, &sum));
    CHECK(done == 7 && sum == 7);
    OK(kvstore_commit(p->kv));
    HAS(p->cf, "key", "2");
}
IN_BOTH_PLACES(in_transactions)

/* Another handle has an open write transaction: the call returns BUSY at once and changes
 * nothing. */
static void busy(void)
{
    KVStore *one = open_at("store.db", NULL), *two = open_at("store.db", NULL);
    KVColumnFamily *cf = family(one, "default");
    KVWriteOptions opt = {.flags = KVSTORE_PUT_IF_ABSENT};
    int done = 7;
    int64_t sum = 7;
    OK(kvstore_cf_put(cf, K("key"), K("1")));
    OK(kvstore_begin(two, 1));
    OK(kvstore_put(two, K("new"), K("1"))); /* on a server, these two rows are locked */
    OK(kvstore_put(two, K("key"), K("2")));
    GIVES(KVSTORE_BUSY, kvstore_cf_put_with(cf, K("new"), K("value"), &opt, &done));
    GIVES(KVSTORE_BUSY, kvstore_cf_compare_and_swap(cf, K("key"), K("1"), K("3"), 0, &done));
    GIVES(KVSTORE_BUSY, kvstore_cf_compare_and_delete(cf, K("key"), K("1"), &done));
    GIVES(KVSTORE_BUSY, kvstore_cf_increment(cf, K("key"), 1, 0, &sum));
    CHECK(done == 7 && sum == 7);
    OK(kvstore_rollback(two));
    OK(kvstore_cf_increment(cf, K("key"), 1, 0, &sum));
    CHECK(sum == 2);
    kvstore_cf_close(cf);
    OK(kvstore_close(one));
    OK(kvstore_close(two));
}

/* Statistics count what was written, not what a condition prevented. */
static void statistics(void)
{
    struct place place = {open_at(NULL, NULL), NULL, 1}, *p = &place;
    KVStoreStats stats;
    OK(kvstore_cf_get_default(p->kv, &p->cf));
    PUTS(1, "key", "one", 0, KVSTORE_PUT_IF_ABSENT);
    PUTS(0, "key", "two", 0, KVSTORE_PUT_IF_ABSENT);
    PUTS(0, "none", "two", 0, KVSTORE_PUT_IF_PRESENT);
    CHECK(swap(p, "key", K("one"), "12", 0));
    CHECK(!swap(p, "key", K("one"), "12", 0));
    CHECK(added(p, "key", 88, 0) == 100);
    CHECK(!delete_if(p, "key", K("12")));
    CHECK(delete_if(p, "key", K("100")));
    OK(kvstore_stats(p->kv, &stats));
    CHECK(stats.nPuts == 3 && stats.nBytesWritten == 6 + 5 + 6);
    CHECK(stats.nDeletes == 1 && stats.nErrors == 0);
    kvstore_cf_close(p->cf);
    OK(kvstore_close(p->kv));
}

SCENARIOS({"put_with_always", put_with_always}, {"put_with_if_absent", put_with_if_absent},
          {"put_with_if_present", put_with_if_present}, {"put_with_keep_ttl", put_with_keep_ttl},
          {"put_with_default_ttl", put_with_default_ttl}, {"put_with_a_ttl", put_with_a_ttl}, {"put_with_refuses", put_with_refuses},
          {"compare_and_swap", compare_and_swap}, {"compare_and_delete", compare_and_delete},
          {"compare_large", compare_large}, {"increment", increment}, {"increment_limits", increment_limits},
          {"increment_not_a_number", increment_not_a_number},
          {"increment_default_ttl", increment_default_ttl},
          {"default_ttl_is_for_writes_without_expiry", default_ttl_is_for_writes_without_expiry},
          {"in_transactions", in_transactions}, {"busy", busy}, {"statistics", statistics})

/* Keys that expire: put_ttl, get_ttl, ttl_remaining and purge_expired, on the default family and
 * on another. */
#include "api_common.h"

static void put_ttl_at(const struct place *p)
{
    OK(AT(p, put_ttl, K("key"), K("value"), 2000));
    HAS(p, "key", "value");
    clock_ms = 1999;
    HAS(p, "key", "value");
    clock_ms = 2000; /* expired exactly from then on */
    GONE(p, "key");

    OK(AT(p, put_ttl, K("key"), K("forever"), 0));
    int64_t remaining = 7;
    OK(AT(p, ttl_remaining, K("key"), &remaining));
    CHECK(remaining == KVSTORE_NO_TTL);

    OK(AT(p, put_ttl, K("key"), K("longer"), 5000)); /* a TTL for a key that had none */
    OK(AT(p, ttl_remaining, K("key"), &remaining));
    CHECK(remaining == 3000);
    OK(AT(p, put_ttl, K("key"), K("shorter"), 2500)); /* another */
    OK(AT(p, ttl_remaining, K("key"), &remaining));
    CHECK(remaining == 500);
    OK(AT(p, put_ttl, K("key"), K("forever"), 0)); /* and none again */
    clock_ms = 9000;
    HAS(p, "key", "forever");

    OK(AT(p, put_ttl, K("key"), K("long"), INT64_MAX));
    OK(AT(p, ttl_remaining, K("key"), &remaining));
    CHECK(remaining == INT64_MAX - 9000);
    HAS(p, "key", "long");
}
BOTH_FORMS(put_ttl)

static void put_ttl_in_the_past_at(const struct place *p)
{
    OK(AT(p, put_ttl, K("new"), K("value"), 1));
    GONE(p, "new");
    OK(AT(p, put_ttl, K("now"), K("value"), 1000)); /* this very moment is the past, too */
    GONE(p, "now");
    OK(AT(p, put, K("old"), K("value")));
    OK(AT(p, put_ttl, K("old"), K("other"), 999));
    GONE(p, "old");
    int there = 7;
    OK(AT(p, put_ttl, K("old"), K("other"), 999));
    OK(AT(p, exists, K("old"), &there));
    CHECK(there == 0);
}
BOTH_FORMS(put_ttl_in_the_past)

static void put_ttl_negative_at(const struct place *p)
{
    OK(AT(p, put_ttl, K("key"), K("value"), 2000));
    GIVES(KVSTORE_ERROR, AT(p, put_ttl, K("key"), K("other"), -2));
    GIVES(KVSTORE_ERROR, AT(p, put_ttl, K("key"), K("other"), INT64_MIN));
    HAS(p, "key", "value");
    int64_t remaining = 7;
    OK(AT(p, ttl_remaining, K("key"), &remaining));
    CHECK(remaining == 1000);
}
BOTH_FORMS(put_ttl_negative)

/* As kvstore_ttl_remaining and iterators return it. */
static void put_ttl_never_at(const struct place *p)
{
    OK(AT(p, put_ttl, K("key"), K("value"), 2000));
    OK(AT(p, put_ttl, K("key"), K("value"), KVSTORE_NO_TTL));
    int64_t remaining = 7;
    OK(AT(p, ttl_remaining, K("key"), &remaining));
    CHECK(remaining == KVSTORE_NO_TTL);
}
BOTH_FORMS(put_ttl_never)

static void put_clears_a_ttl_at(const struct place *p)
{
    OK(AT(p, put_ttl, K("key"), K("value"), 2000));
    OK(AT(p, put, K("key"), K("other")));
    int64_t remaining = 7;
    OK(AT(p, ttl_remaining, K("key"), &remaining));
    CHECK(remaining == KVSTORE_NO_TTL);
    clock_ms = 2000;
    HAS(p, "key", "other");
    int purged = -1;
    OK(AT(p, purge_expired, &purged));
    CHECK(purged == 0);
    HAS(p, "key", "other");

    OK(AT(p, put_ttl, K("key"), K("value"), 3000));
    clock_ms = 3000;
    OK(AT(p, put, K("key"), K("again"))); /* over an expired row */
    HAS(p, "key", "again");
    OK(AT(p, purge_expired, &purged));
    CHECK(purged == 0);
    HAS(p, "key", "again");
}
BOTH_FORMS(put_clears_a_ttl)

static void get_ttl_at(const struct place *p)
{
    OK(AT(p, put, K("forever"), K("value")));
    OK(AT(p, put_ttl, K("key"), K("value"), 2000));
    void *value = NULL;
    int n = -1;
    int64_t remaining = 7;
    OK(AT(p, get_ttl, K("forever"), &value, &n, &remaining));
    CHECK(n == 5 && memcmp(value, "value", 6) == 0 && remaining == KVSTORE_NO_TTL);
    kvstore_free(value);
    clock_ms = 1001;
    OK(AT(p, get_ttl, K("key"), &value, &n, &remaining));
    CHECK(n == 5 && memcmp(value, "value", 6) == 0 && remaining == 999);
    kvstore_free(value);
    OK(AT(p, get_ttl, K("key"), &value, &n, NULL)); /* NULL is allowed */
    kvstore_free(value);
    clock_ms = 1999;
    OK(AT(p, get_ttl, K("key"), &value, &n, &remaining));
    CHECK(remaining == 1);
    kvstore_free(value);

    clock_ms = 2000; /* expired: the row is still there, and then it is not */
    for (int i = 0; i < 2; i++) {
        value = &clock_ms;
        n = 7;
        remaining = 7;
        GIVES(KVSTORE_NOTFOUND, AT(p, get_ttl, K("key"), &value, &n, &remaining));
        CHECK(value == NULL && n == 0 && remaining == 0);
        GIVES(KVSTORE_NOTFOUND, AT(p, get_ttl, K("key"), &value, &n, NULL));
    }
    value = &clock_ms;
    GIVES(KVSTORE_ERROR, AT(p, get_ttl, K("forever"), NULL, &n, &remaining));
    GIVES(KVSTORE_ERROR, AT(p, get_ttl, K("forever"), &value, NULL, &remaining));
    CHECK(value == &clock_ms && n == 0 && remaining == 0);
}
BOTH_FORMS(get_ttl)

static void ttl_remaining_at(const struct place *p)
{
    int64_t remaining = 7;
    GIVES(KVSTORE_NOTFOUND, AT(p, ttl_remaining, K("key"), &remaining));
    OK(AT(p, put, K("key"), K("value")));
    OK(AT(p, ttl_remaining, K("key"), &remaining));
    CHECK(remaining == KVSTORE_NO_TTL);
    OK(AT(p, put_ttl, K("key"), K("value"), 2000));
    OK(AT(p, ttl_remaining, K("key"), &remaining));
    CHECK(remaining == 1000);
    clock_ms = 1999;
    OK(AT(p, ttl_remaining, K("key"), &remaining));
    CHECK(remaining == 1);
    clock_ms = 2000;
    OK(AT(p, ttl_remaining, K("key"), &remaining)); /* finds the row and removes it, but not on a server */
    CHECK(remaining == 0);
    if (!are_on_a_server()) {
        GIVES(KVSTORE_NOTFOUND, AT(p, ttl_remaining, K("key"), &remaining));
        CHECK(rows(p) == 0);
    }
    GIVES(KVSTORE_ERROR, AT(p, ttl_remaining, K("key"), NULL));
}
BOTH_FORMS(ttl_remaining)

/* A read transaction removes nothing, so each read finds the row again. */
static void ttl_remaining_while_the_row_stays_at(const struct place *p)
{
    OK(AT(p, put_ttl, K("key"), K("value"), 2000));
    clock_ms = 3000;
    OK(kvstore_begin(p->kv, 0));
    for (int i = 0; i < 3; i++) {
        int64_t remaining = 7;
        OK(AT(p, ttl_remaining, K("key"), &remaining));
        CHECK(remaining == 0);
        GONE(p, "key");
    }
    CHECK(rows(p) == 1);
    OK(kvstore_rollback(p->kv));
}
BOTH_FORMS(ttl_remaining_while_the_row_stays)

static int64_t commits_of(const struct place *p)
{
    KVStoreStats stats;
    OK(kvstore_stats(p->kv, &stats));
    return (int64_t)stats.nWalCommits;
}

/* Expired rows found by calls are invisible to their handle, and removed together or with the next write. */
static void rows_pending_removal_at(const struct place *p)
{
    if (is_of_files("a read removes nothing there")) return;
    enum { N = 100 };
    char key[16];
    for (int i = 0; i < N; i++) {
        int n = snprintf(key, sizeof key, "key %d", i);
        OK(AT(p, put_ttl, key, n, key, n, 2000));
    }
    OK(AT(p, put, K("forever"), K("value")));
    clock_ms = 2000;
    int64_t before = commits_of(p), remaining = 7;
    for (int i = 0; i < 70; i++) {
        int n = snprintf(key, sizeof key, "key %d", i), there = 7;
        void *value = NULL;
        switch (i % 3) {
        case 0: GIVES(KVSTORE_NOTFOUND, AT(p, get, key, n, &value, &n)); break;
        case 1: OK(AT(p, exists, key, n, &there)); CHECK(there == 0); break;
        default: OK(AT(p, ttl_remaining, key, n, &remaining)); CHECK(remaining == 0); break;
        }
        n = snprintf(key, sizeof key, "key %d", i);
        GIVES(KVSTORE_NOTFOUND, AT(p, ttl_remaining, key, n, &remaining));
        CHECK(rows(p) == N - i);
    }
    CHECK(commits_of(p) == before + 1); /* of the first 64 */
    KVStoreStats stats;
    OK(kvstore_stats(p->kv, &stats));
    CHECK(stats.nTtlExpired == 70 && stats.nTtlPurged == 0);

    OK(AT(p, put_ttl, K("key 69"), K("again"), 5000));
    CHECK(commits_of(p) == before + 2);
    HAS(p, "key 69", "again");
    CHECK(rows(p) == N + 1 - 69);
    int purged = -1;
    OK(AT(p, purge_expired, &purged));
    CHECK(purged == 30 && rows(p) == 2);
    OK(kvstore_integrity_check(p->kv, NULL));
}
BOTH_FORMS(rows_pending_removal)

static void purge_expired_at(const struct place *p)
{
    struct place other = {p->kv, NULL};
    OK(kvstore_cf_create(p->kv, "other", &other.cf));
    int purged = -1;
    OK(AT(p, purge_expired, &purged));
    CHECK(purged == 0);

    enum { N = 700 }; /* several steps of 256 */
    char key[16];
    OK(kvstore_begin(p->kv, 1));
    for (int i = 0; i < N; i++) {
        int n = snprintf(key, sizeof key, "key %d", i);
        OK(AT(p, put_ttl, key, n, key, n, 2000 + i));
    }
    OK(kvstore_commit(p->kv));
    OK(AT(p, put, K("forever"), K("value")));
    OK(AT(p, put_ttl, K("later"), K("value"), 9000));
    OK(AT(&other, put_ttl, K("dead"), K("value"), 2000));

    clock_ms = 1999;
    OK(AT(p, purge_expired, &purged));
    CHECK(purged == 0);
    clock_ms = 2000 + 299;
    OK(AT(p, purge_expired, &purged));
    CHECK(purged == 300 && rows(p) == N + 2 - 300);
    GONE(p, "key 299");
    HAS(p, "key 300", "key 300");
    OK(AT(p, purge_expired, &purged));
    CHECK(purged == 0);
    clock_ms = 8999;
    OK(AT(p, purge_expired, NULL)); /* NULL is allowed */
    CHECK(rows(p) == 2);
    HAS(p, "forever", "value");
    HAS(p, "later", "value");

    CHECK(rows(&other) == 1); /* that family only */
    OK(AT(&other, purge_expired, &purged));
    CHECK(purged == 1 && rows(&other) == 0);
    kvstore_cf_close(other.cf);
}
BOTH_FORMS(purge_expired)

static void purge_in_a_transaction_at(const struct place *p)
{
    OK(AT(p, put_ttl, K("a"), K("value"), 2000));
    OK(AT(p, put_ttl, K("b"), K("value"), 2000));
    clock_ms = 2000;
    int purged = -1;
    OK(kvstore_begin(p->kv, 1));
    OK(AT(p, purge_expired, &purged));
    CHECK(purged == 2 && rows(p) == 0);
    OK(kvstore_rollback(p->kv));
    CHECK(rows(p) == 2);
    OK(AT(p, purge_expired, &purged));
    CHECK(purged == 2 && rows(p) == 0);
}
BOTH_FORMS(purge_in_a_transaction)

/* TTLs are stored in the file: they apply to every handle, whichever set them. */
static void two_handles(void)
{
    struct place a = {open_at("test.db", NULL), NULL}, b = {open_at("test.db", NULL), NULL};
    OK(AT(&b, put, K("key"), K("value"))); /* b has used the file before a TTL was in it */
    OK(AT(&a, put_ttl, K("key"), K("mortal"), 2000));
    HAS(&b, "key", "mortal");
    clock_ms = 2000;
    GONE(&b, "key");
    OK(AT(&a, put_ttl, K("key"), K("mortal"), 3000));
    OK(AT(&b, put, K("key"), K("immortal")));
    clock_ms = 3000;
    int purged = -1;
    OK(AT(&a, purge_expired, &purged));
    CHECK(purged == 0);
    HAS(&a, "key", "immortal");
    OK(kvstore_integrity_check(a.kv, NULL));
    OK(kvstore_close(a.kv));
    OK(kvstore_close(b.kv));

    a.kv = open_at("test.db", NULL);
    OK(AT(&a, put_ttl, K("key"), K("kept"), 4000));
    OK(kvstore_close(a.kv));
    a.kv = open_at("test.db", NULL); /* and for later opens */
    int64_t remaining = 7;
    OK(AT(&a, ttl_remaining, K("key"), &remaining));
    CHECK(remaining == 1000);
    OK(kvstore_close(a.kv));
}

static void clocks(void)
{
    if (is_of_files("the clock is the server's (api_remote.c)")) return;
    int64_t before = kvstore_now_ms();
    CHECK(before > 1600000000000); /* the milliseconds since 1970 of a day in 2020 */
    CHECK(kvstore_now_ms() >= before);

    struct place p = {open_at(NULL, NULL), NULL};
    OK(AT(&p, put_ttl, K("key"), K("value"), 2000));
    HAS(&p, "key", "value");
    CHECK(kvstore_now_ms() >= before); /* a store's clock is its own */
    clock_ms = 1500;
    int64_t remaining = 7;
    OK(AT(&p, ttl_remaining, K("key"), &remaining));
    CHECK(remaining == 500);
    clock_ms = 1200; /* time does not run backwards */
    OK(AT(&p, ttl_remaining, K("key"), &remaining));
    CHECK(remaining == 500);

    _Atomic int64_t other_clock = 1100; /* but another one may be behind it */
    OK(kvstore_set_clock(p.kv, read_clock, &other_clock));
    OK(AT(&p, ttl_remaining, K("key"), &remaining));
    CHECK(remaining == 900);
    int64_t now_ms = 0;
    OK(kvstore_time_ms(p.kv, &now_ms));
    CHECK(now_ms == 1100);
    GIVES(KVSTORE_ERROR, kvstore_time_ms(p.kv, NULL));
    GIVES(KVSTORE_ERROR, kvstore_time_ms(NULL, &now_ms));

    OK(kvstore_set_clock(p.kv, NULL, NULL)); /* the system's clock again */
    int64_t before_ms = kvstore_now_ms();
    OK(kvstore_time_ms(p.kv, &now_ms));
    CHECK(before_ms <= now_ms && now_ms <= kvstore_now_ms());
    GONE(&p, "key");
    OK(AT(&p, put_ttl, K("key"), K("value"), kvstore_now_ms() + 3600000));
    OK(AT(&p, ttl_remaining, K("key"), &remaining));
    CHECK(remaining > 0 && remaining <= 3600000);
    GIVES(KVSTORE_ERROR, kvstore_set_clock(NULL, NULL, NULL));
    OK(kvstore_close(p.kv));
}

/* A duration of a minute where a moment belongs; `clock_is_set`: whether it is refused. */
static void pass_a_duration(KVStore *kv, int clock_is_set)
{
    const int64_t minute = 60000, last = INT64_C(94694399999);
    const int code = clock_is_set ? KVSTORE_ERROR : KVSTORE_OK;
    KVColumnFamily *cf = NULL;
    KVBatch *batch = NULL;
    KVWriteOptions options;
    int64_t sum;
    void *found;
    int n, found_code;
    memset(&options, 0, sizeof options);
    options.expireMs = last;
    OK(kvstore_cf_get_default(kv, &cf));
    OK(kvstore_batch_new(kv, &batch));
    OK(kvstore_put(kv, K("there"), K("1")));
    GIVES(code, kvstore_put_ttl(kv, K("key"), K("value"), minute));
    if (clock_is_set) CHECK(strstr(kvstore_errmsg(kv), "kvstore_cf_put_for") != NULL);
    GIVES(code, kvstore_cf_put_ttl(cf, K("key"), K("value"), last));
    GIVES(code, kvstore_put_if_absent(kv, K("new"), K("value"), 1, &n));
    GIVES(code, kvstore_cf_put_with(cf, K("key"), K("value"), &options, &n));
    GIVES(code, kvstore_cf_increment(cf, K("number"), 1, minute, &sum));
    GIVES(code, kvstore_batch_put(batch, cf, K("key"), K("value"), minute));
    GIVES(code, kvstore_cf_compare_and_swap(cf, K("there"), K("1"), K("2"), minute, &n));
    OK(kvstore_put(kv, K("there"), K("1")));
    GIVES(code, kvstore_cf_expire(cf, K("there"), minute, 0, &n));
    OK(kvstore_put(kv, K("there"), K("1")));
    found_code = kvstore_cf_get_and_expire(cf, K("there"), minute, &found, &n);
    CHECK(found_code == code);
    if (found_code == KVSTORE_OK) kvstore_free(found);
    if (clock_is_set) { /* nothing has changed */
        int64_t count = 0;
        OK(kvstore_count(kv, &count));
        CHECK(count == 1);
        OK(kvstore_batch_count(batch, &count));
        CHECK(count == 0);
    }
    OK(kvstore_put_ttl(kv, K("key"), K("value"), last + 1)); /* 1973 is a time in the past */
    kvstore_batch_free(batch);
    kvstore_cf_close(cf);
}

static void duration_as_moment_is_refused(void)
{
    KVStore *kv;
    if (is_of_files("the clock of the tests' server starts in 1970")) return;
    OK(kvstore_open(NULL, &kv, 0));
    pass_a_duration(kv, 1);
    OK(kvstore_close(kv));
    clock_ms = 978307200000; /* a device whose clock is not set, or in the past on purpose */
    kv = open_at(NULL, NULL);
    pass_a_duration(kv, 0);
    OK(kvstore_close(kv));
    clock_ms = 978307200001;
    kv = open_at(NULL, NULL);
    pass_a_duration(kv, 1);
    OK(kvstore_close(kv));
}

SCENARIOS({"put_ttl", put_ttl}, {"put_ttl_in_the_past", put_ttl_in_the_past},
          {"put_ttl_negative", put_ttl_negative}, {"put_ttl_never", put_ttl_never},
          {"put_clears_a_ttl", put_clears_a_ttl}, {"get_ttl", get_ttl}, {"ttl_remaining", ttl_remaining},
          {"ttl_remaining_while_the_row_stays", ttl_remaining_while_the_row_stays},
          {"rows_pending_removal", rows_pending_removal}, {"purge_expired", purge_expired},
          {"purge_in_a_transaction", purge_in_a_transaction},
          {"two_handles", two_handles}, {"clocks", clocks},
          {"duration_as_moment_is_refused", duration_as_moment_is_refused})

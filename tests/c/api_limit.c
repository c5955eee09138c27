/* Bounded stores: kvstore_set_limit and kvstore_get_limit. */
#include "api_common.h"

#define LEAST (32 * 4096)

static KVStoreStats stats_of(KVStore *kv)
{
    KVStoreStats stats;
    OK(kvstore_stats(kv, &stats));
    return stats;
}

static void has_limit(KVStore *kv, int64_t max_bytes, int policy)
{
    int64_t found = -1;
    int found_policy = -1;
    OK(kvstore_get_limit(kv, &found, &found_policy));
    CHECK(found == max_bytes && found_policy == policy);
    OK(kvstore_get_limit(kv, NULL, NULL));
}

/* Puts keys of 1000 bytes, each with an expiry time 1 ms later than the one before. Returns the
 * code of the last put. */
static int pour(KVColumnFamily *cf, int from, int to)
{
    static char value[1000];
    int code = KVSTORE_OK;
    for (int i = from; i < to && code == KVSTORE_OK; i++) {
        char key[16];
        int n = snprintf(key, sizeof key, "key %d", i);
        code = kvstore_cf_put_ttl(cf, key, n, value, sizeof value, 1000000 + i);
    }
    return code;
}

static void arguments(void)
{
    KVStore *kv = open_at("test.db", NULL);
    int64_t max_bytes = -1;
    int policy = -1;

    has_limit(kv, 0, KVSTORE_EVICT_NONE);
    for (int p = KVSTORE_EVICT_NONE; p <= KVSTORE_EVICT_LEAST_USED; p++) {
        OK(kvstore_set_limit(kv, LEAST + p, p));
        has_limit(kv, LEAST + p, p);
        OK(kvstore_set_limit(kv, INT64_MAX, p));
        has_limit(kv, INT64_MAX, p);
        OK(kvstore_set_limit(kv, 0, p)); /* no limit, with any policy */
        has_limit(kv, 0, KVSTORE_EVICT_NONE);
    }
    OK(kvstore_set_limit(kv, LEAST, KVSTORE_EVICT_SOONEST));
    GIVES(KVSTORE_ERROR, kvstore_set_limit(kv, LEAST - 1, KVSTORE_EVICT_SOONEST));
    CHECK(strstr(kvstore_errmsg(kv), "131072") != NULL); /* names the minimum */
    GIVES(KVSTORE_ERROR, kvstore_set_limit(kv, 1, KVSTORE_EVICT_NONE));
    GIVES(KVSTORE_ERROR, kvstore_set_limit(kv, -1, KVSTORE_EVICT_NONE));
    GIVES(KVSTORE_ERROR, kvstore_set_limit(kv, INT64_MIN, KVSTORE_EVICT_NONE));
    GIVES(KVSTORE_ERROR, kvstore_set_limit(kv, LEAST, -1));
    GIVES(KVSTORE_ERROR, kvstore_set_limit(kv, LEAST, 4));
    GIVES(KVSTORE_ERROR, kvstore_set_limit(kv, 0, 4));
    CHECK(strstr(kvstore_errmsg(kv), "KVSTORE_EVICT_") != NULL);
    GIVES(KVSTORE_ERROR, kvstore_set_limit(NULL, LEAST, KVSTORE_EVICT_NONE));
    GIVES(KVSTORE_ERROR, kvstore_get_limit(NULL, &max_bytes, &policy));
    has_limit(kv, LEAST, KVSTORE_EVICT_SOONEST);
    OK(kvstore_close(kv));
    GIVES(KVSTORE_MISUSE, kvstore_set_limit(kv, LEAST, KVSTORE_EVICT_NONE));
    GIVES(KVSTORE_MISUSE, kvstore_get_limit(kv, &max_bytes, &policy));
    CHECK(max_bytes == -1 && policy == -1);

    KVStoreConfig cfg = {.readOnly = 1};
    kv = open_at("test.db", &cfg);
    has_limit(kv, LEAST, KVSTORE_EVICT_SOONEST); /* it is kept in the file */
    GIVES(KVSTORE_READONLY, kvstore_set_limit(kv, 0, KVSTORE_EVICT_NONE));
    OK(kvstore_close(kv));
}

static void evicts_keys(void)
{
    for (int policy = KVSTORE_EVICT_SOONEST; policy <= KVSTORE_EVICT_LEAST_USED; policy++) {
        KVStore *kv = open_at(NULL, NULL);
        KVColumnFamily *cf = NULL;
        int64_t count = -1, live = -1;
        int there = -1;

        OK(kvstore_cf_create(kv, "leases", &cf));
        OK(kvstore_put(kv, K("forever"), K("value")));
        OK(kvstore_set_limit(kv, 4 * LEAST, policy));
        for (int i = 0; i < 20; i++) {
            clock_ms++;
            OK(pour(cf, 100 * i, 100 * i + 100));
            CHECK(stats_of(kv).nSizeBytes <= 4 * LEAST);
        }
        KVStoreStats stats = stats_of(kv);
        OK(kvstore_cf_count(cf, &count));
        CHECK(stats.nEvicted > 1000);
        CHECK(count == 2000 - (int64_t)stats.nEvicted + (policy != KVSTORE_EVICT_SOONEST));
        OK(kvstore_cf_exists(cf, K("key 0"), &there));
        CHECK(there == 0);
        OK(kvstore_cf_exists(cf, K("key 1999"), &there));
        CHECK(there == 1);
        OK(kvstore_exists(kv, K("forever"), &there));
        CHECK(there == (policy == KVSTORE_EVICT_SOONEST)); /* it was the oldest */
        OK(kvstore_stats_reset(kv));
        CHECK(stats_of(kv).nEvicted == 0 && stats_of(kv).nSizeBytes == stats.nSizeBytes);

        clock_ms = 2000000; /* all have expired: they make room, and nothing is evicted */
        OK(pour(cf, 2000000, 2000100));
        OK(kvstore_cf_count_live(cf, &live));
        CHECK(live == 100 && stats_of(kv).nEvicted == 0 && stats_of(kv).nTtlPurged > 0);
        OK(kvstore_integrity_check(kv, NULL));
        kvstore_cf_close(cf);
        OK(kvstore_close(kv));
        clock_ms = 1000;
    }
}

static void is_full(void)
{
    struct place p = {open_at("test.db", NULL), NULL};
    KVStore *other = open_at("test.db", NULL);
    KVColumnFamily *cf = NULL;
    char *large = kvstore_malloc(10 * LEAST);

    OK(kvstore_cf_get_default(p.kv, &cf));
    OK(kvstore_set_limit(p.kv, LEAST, KVSTORE_EVICT_NONE));
    GIVES(KVSTORE_FULL, pour(cf, 0, 1000));
    CHECK(strstr(kvstore_errmsg(p.kv), "kvstore_set_limit") != NULL);
    int64_t before = rows(&p);
    OK(kvstore_begin(p.kv, 1)); /* it continues after a refusal */
    OK(kvstore_delete(p.kv, K("key 0")));
    GIVES(KVSTORE_FULL, kvstore_put(p.kv, K("large"), large, 10 * LEAST));
    OK(kvstore_put(p.kv, K("small"), K("value")));
    OK(kvstore_commit(p.kv));
    CHECK(rows(&p) == before);
    HAS(&p, "small", "value");
    GIVES(KVSTORE_FULL, kvstore_put(other, K("large"), large, 10 * LEAST));
    CHECK(rows(&p) == before);
    OK(kvstore_set_limit(other, LEAST, KVSTORE_EVICT_SOONEST));
    before = rows(&p);
    GIVES(KVSTORE_FULL, kvstore_put(other, K("large"), large, 10 * LEAST));
    CHECK(rows(&p) == before);
    CHECK(strstr(kvstore_strerror(KVSTORE_FULL), "full") != NULL);

    OK(kvstore_set_limit(p.kv, 0, KVSTORE_EVICT_NONE));
    OK(kvstore_put(other, K("large"), large, 10 * LEAST));
    GIVES(KVSTORE_FULL, kvstore_set_limit(p.kv, LEAST, KVSTORE_EVICT_SOONEST)); /* it has no TTL */
    has_limit(p.kv, 0, KVSTORE_EVICT_NONE);
    CHECK(rows(&p) == before + 1);
    OK(kvstore_set_limit(p.kv, LEAST, KVSTORE_EVICT_OLDEST));
    CHECK(stats_of(p.kv).nSizeBytes <= LEAST);
    GIVES(KVSTORE_ERROR, kvstore_cf_set_write_tracking(cf, 0));
    OK(kvstore_integrity_check(p.kv, NULL));
    kvstore_free(large);
    kvstore_cf_close(cf);
    OK(kvstore_close(other));
    OK(kvstore_close(p.kv));
}

static void copy_keeps_limit(void)
{
    KVStore *kv = open_at("test.db", NULL);
    OK(kvstore_set_limit(kv, LEAST, KVSTORE_EVICT_OLDEST));
    OK(kvstore_backup(kv, "copy.db", NULL, NULL));
    OK(kvstore_close(kv));
    kv = open_at("copy.db", NULL);
    has_limit(kv, LEAST, KVSTORE_EVICT_OLDEST);
    OK(kvstore_close(kv));
}

SCENARIOS({"arguments", arguments}, {"evicts_keys", evicts_keys}, {"is_full", is_full},
          {"copy_keeps_limit", copy_keeps_limit})

/* Write times: write tracking, write_time and sweep. */
#include "api_places.h"

static int64_t written(const struct place *p, const char *key)
{
    int64_t at = MISSING;
    int code = AT(p, write_time, key, (int)strlen(key), &at);
    CHECK(code == KVSTORE_OK || (code == KVSTORE_NOTFOUND && at == MISSING));
    return at;
}

static void without_tracking_at(const struct place *p)
{
    int64_t at = 7;
    OK(AT(p, put, K("key"), K("value")));
    GIVES(KVSTORE_ERROR, AT(p, write_time, K("key"), &at));
    GIVES(KVSTORE_NOTFOUND, AT(p, write_time, K("none"), &at));
    GIVES(KVSTORE_ERROR, AT(p, sweep, 0, &at));
    CHECK(at == 7 && strstr(kvstore_errmsg(p->kv), "track") != NULL);
    OK(AT(p, set_write_tracking, 0)); /* off already: nothing to do */
    HAS(p->cf, "key", "value");
}
IN_BOTH_PLACES(without_tracking)

/* Every kind of write sets the write time; a change of the TTL is not a write. */
static void write_time_at(const struct place *p)
{
    KVWriteOptions keep = {.flags = KVSTORE_PUT_KEEP_TTL};
    int done = 7;
    void *value;
    OK(AT(p, put, K("before"), K("value")));
    clock_ms = 1500;
    OK(AT(p, set_write_tracking, 1));
    CHECK(written(p, "before") == 1500); /* counts as written when it was switched on */
    CHECK(written(p, "none") == MISSING);

    clock_ms = 2000;
    OK(AT(p, put, K("key"), K("value")));
    CHECK(written(p, "key") == 2000 && written(p, "before") == 1500);
    clock_ms = 2001;
    OK(AT(p, put, K("key"), K("value"))); /* also when the value is the same */
    CHECK(written(p, "key") == 2001);
    clock_ms = 2002;
    OK(AT(p, put_ttl, K("key"), K("value"), 9000));
    CHECK(written(p, "key") == 2002);
    clock_ms = 2003;
    OK(AT(p, put_with, K("key"), K("3"), &keep, NULL));
    CHECK(written(p, "key") == 2003);
    clock_ms = 2004;
    OK(AT(p, compare_and_swap, K("key"), K("3"), K("4"), 9000, &done));
    CHECK(done == 1 && written(p, "key") == 2004);
    clock_ms = 2005;
    OK(AT(p, increment, K("key"), 1, 0, NULL));
    CHECK(written(p, "key") == 2005);
    clock_ms = 2006;
    OK(AT(p, put_if_absent, K("new"), K("value"), 0, NULL));
    CHECK(written(p, "new") == 2006);
    KVBatch *batch;
    OK(kvstore_batch_new(p->kv, &batch));
    OK(kvstore_batch_put(batch, p->cf, K("new"), K("value"), 0));
    clock_ms = 2007; /* the moment of the commit counts */
    OK(kvstore_batch_commit(batch));
    kvstore_batch_free(batch);
    CHECK(written(p, "new") == 2007);

    clock_ms = 3000;
    OK(AT(p, expire, K("key"), 8000, 0, NULL));
    OK(AT(p, persist, K("key"), NULL));
    OK(AT(p, get_and_expire, K("key"), 8000, &value, &done));
    kvstore_free(value);
    OK(AT(p, put_if_absent, K("key"), K("value"), 0, NULL));
    OK(AT(p, compare_and_swap, K("key"), K("3"), K("4"), 0, NULL));
    CHECK(written(p, "key") == 2005);
    clock_ms = 8000;
    CHECK(written(p, "key") == MISSING); /* expired */
    OK(AT(p, delete, K("new")));
    CHECK(written(p, "new") == MISSING);
}
IN_BOTH_PLACES(write_time)

static void switched_off_and_on_at(const struct place *p)
{
    int64_t at = 7;
    int on = 7;
    OK(AT(p, get_write_tracking, &on));
    CHECK(on == 0);
    OK(AT(p, set_write_tracking, -5)); /* anything but 0 is on */
    OK(AT(p, get_write_tracking, &on));
    CHECK(on == 1);
    OK(AT(p, put_ttl, K("key"), K("value"), 9000));
    clock_ms = 2000;
    OK(AT(p, set_write_tracking, 1)); /* already on: write times are kept */
    CHECK(written(p, "key") == 1000);
    OK(AT(p, set_write_tracking, 0));
    GIVES(KVSTORE_ERROR, AT(p, write_time, K("key"), &at));
    GIVES(KVSTORE_ERROR, AT(p, sweep, 0, &at));
    HAS(p->cf, "key", "value");
    ENDS(p->cf, "key", 9000);
    clock_ms = 3000;
    OK(AT(p, set_write_tracking, 1));
    CHECK(written(p, "key") == 3000);
    ENDS(p->cf, "key", 9000);

    OK(kvstore_begin(p->kv, 1)); /* part of a transaction, like all else */
    OK(AT(p, set_write_tracking, 0));
    GIVES(KVSTORE_ERROR, AT(p, write_time, K("key"), &at));
    OK(kvstore_rollback(p->kv));
    CHECK(written(p, "key") == 3000);
    OK(kvstore_begin(p->kv, 0));
    GIVES(KVSTORE_READONLY, AT(p, set_write_tracking, 0));
    OK(AT(p, get_write_tracking, &on)); /* asking is no write */
    CHECK(on == 1);
    OK(kvstore_commit(p->kv));
    CHECK(at == 7);
}
IN_BOTH_PLACES(switched_off_and_on)

/* Write tracking is stored in the file, applies at once to handles that are already open, and
 * belongs to one family. */
static void tracking_is_stored(void)
{
    KVStore *one = open_at("store.db", NULL), *two = open_at("store.db", NULL);
    KVColumnFamily *cf = family(one, "family"), *same = family(two, "family"), *other = family(one, "other");
    struct place place = {one, cf, 0};
    int64_t at = 7;
    OK(kvstore_cf_put(same, K("key"), K("value")));
    OK(kvstore_cf_put(other, K("key"), K("value")));
    OK(kvstore_cf_set_write_tracking(cf, 1));
    clock_ms = 2000;
    OK(kvstore_cf_put(same, K("new"), K("value"))); /* through a handle that was open before */
    CHECK(written(&place, "key") == 1000 && written(&place, "new") == 2000);
    GIVES(KVSTORE_ERROR, kvstore_cf_write_time(other, K("key"), &at));
    kvstore_cf_close(cf);
    kvstore_cf_close(other);
    OK(kvstore_close(one));
    OK(kvstore_cf_sweep(same, 500, &at));
    CHECK(at == 1);
    kvstore_cf_close(same);
    OK(kvstore_close(two));
    one = open_at("store.db", NULL);
    cf = family(one, "family");
    place.cf = cf;
    CHECK(written(&place, "new") == 2000 && written(&place, "key") == MISSING);
    OK(kvstore_integrity_check(one, NULL));
    kvstore_cf_close(cf);
    OK(kvstore_close(one));
}

static void sweep_at(const struct place *p)
{
    int64_t swept = 7;
    OK(AT(p, set_write_tracking, 1));
    OK(AT(p, sweep, 0, &swept));
    CHECK(swept == 0);
    for (int i = 0; i < 10; i++) { /* written at 1000, 1100, ... 1900 */
        char key = (char)('a' + i);
        clock_ms = 1000 + 100 * i;
        OK(AT(p, put, &key, 1, "value", 5));
    }
    clock_ms = 2000;
    OK(AT(p, sweep, 1000, &swept)); /* exactly as long ago is not longer ago */
    CHECK(swept == 0);
    OK(AT(p, sweep, INT64_MAX, &swept));
    CHECK(swept == 0);
    OK(AT(p, sweep, 999, &swept));
    CHECK(swept == 1 && rows_of(p->cf) == 9);
    GONE(p->cf, "a");
    HAS(p->cf, "b", "value");
    OK(AT(p, put, K("b"), K("fresh"))); /* written again: recently written */
    OK(AT(p, expire, K("c"), 9000, 0, NULL)); /* a TTL does not change the write time */
    OK(AT(p, sweep, 500, &swept));
    CHECK(swept == 3 && rows_of(p->cf) == 6); /* c, d, e */
    HAS(p->cf, "b", "fresh");
    HAS(p->cf, "f", "value");
    int64_t next = 7;
    GIVES(KVSTORE_NOTFOUND, kvstore_cf_next_expiry(p->cf, &next));

    OK(AT(p, put_ttl, K("dead"), K("value"), 2001));
    clock_ms = 2002;
    OK(AT(p, sweep, 1, &swept)); /* expired keys are removed too, but only live ones count */
    CHECK(swept == 6 && rows_of(p->cf) == 0);
    OK(AT(p, put, K("now"), K("value")));
    OK(AT(p, sweep, 0, &swept)); /* written in this very millisecond */
    CHECK(swept == 0);
    clock_ms = 2003;
    OK(AT(p, sweep, 0, NULL));
    CHECK(rows_of(p->cf) == 0);
    swept = 7;
    GIVES(KVSTORE_ERROR, AT(p, sweep, -1, &swept));
    GIVES(KVSTORE_ERROR, AT(p, sweep, INT64_MIN, &swept));
    CHECK(swept == 7);
}
IN_BOTH_PLACES(sweep)

/* A sweep of many steps with out-of-line values. In a transaction it is applied as a whole or
 * not at all. */
static void sweep_in_steps_at(const struct place *p)
{
    enum { N = 1000, LARGE = 20000 };
    char *value = calloc(1, LARGE);
    int64_t swept = 7;
    OK(AT(p, set_write_tracking, 1));
    OK(kvstore_begin(p->kv, 1));
    for (int i = 0; i < N; i++) {
        char key[16];
        int n = snprintf(key, sizeof key, "key %d", i);
        OK(AT(p, put, key, n, value, i % 100 ? i % 50 : LARGE));
    }
    OK(kvstore_commit(p->kv));
    clock_ms = 5000;
    OK(AT(p, put, K("young"), K("value")));
    OK(kvstore_begin(p->kv, 1));
    OK(AT(p, sweep, 1000, &swept));
    CHECK(swept == N && rows_of(p->cf) == 1);
    OK(kvstore_rollback(p->kv));
    CHECK(rows_of(p->cf) == N + 1);
    OK(kvstore_integrity_check(p->kv, NULL));
    OK(kvstore_begin(p->kv, 0));
    swept = 7;
    GIVES(KVSTORE_READONLY, AT(p, sweep, 1000, &swept));
    CHECK(swept == 7);
    OK(kvstore_commit(p->kv));
    OK(AT(p, sweep, 1000, &swept));
    CHECK(swept == N && rows_of(p->cf) == 1);
    HAS(p->cf, "young", "value");
    free(value);
}
IN_BOTH_PLACES(sweep_in_steps)

SCENARIOS({"without_tracking", without_tracking}, {"write_time", write_time},
          {"switched_off_and_on", switched_off_and_on}, {"tracking_is_stored", tracking_is_stored},
          {"sweep", sweep}, {"sweep_in_steps", sweep_in_steps})

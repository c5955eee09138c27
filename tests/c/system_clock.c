/* A system clock that is set while a store is open: other_clock.c, with the offset as a variable. */
#define KVSTORE_TEST_CLOCK_IN_PROGRAM
#include "other_clock.c"

#include <sys/wait.h>

#include "check.h"

static KVStore *kv;
static KVColumnFamily *cf;

static void open_store(void)
{
    OK(kvstore_open("store.db", &kv, KVSTORE_JOURNAL_WAL));
    OK(kvstore_cf_get_default(kv, &cf));
}

static void close_store(void)
{
    kvstore_cf_close(cf);
    OK(kvstore_close(kv));
}

static int is_live(const char *key)
{
    int is_there = -1;
    OK(kvstore_cf_exists(cf, key, (int)strlen(key), &is_there));
    return is_there;
}

static void put_for(const char *key, int64_t ttl_ms)
{
    OK(kvstore_cf_put_for(cf, key, (int)strlen(key), "v", 1, ttl_ms));
}

/* The key was put after the clock was corrected. */
static void check_expires_soon(void)
{
    int64_t expire_ms = 0;
    OK(kvstore_cf_expire_time(cf, "new", 3, &expire_ms));
    CHECK(expire_ms > kvstore_now_ms() - 60000 && expire_ms < kvstore_now_ms() + 60000);
}

static void clock_ahead_by_ten_years_is_corrected(void)
{
    offset_s = 3650 * 86400L;
    open_store();
    put_for("old", 3600000);
    CHECK(is_live("old"));
    offset_s = 0;
    put_for("new", 500);
    CHECK(is_live("new"));
    check_expires_soon();
    close_store();
    open_store();
    check_expires_soon();
    pause_ms(600);
    CHECK(!is_live("new") && is_live("old"));
    close_store();
}

/* The clock of a device without a battery, which reads 1970 until a time service sets it. */
static void clock_in_1970_is_followed_when_set(void)
{
    time_t now = time(NULL);
    offset_s = -now;
    open_store();
    put_for("boot", 60000);
    CHECK(is_live("boot") && kvstore_now_ms() < 600000);
    offset_s = 0;
    CHECK(!is_live("boot") && kvstore_now_ms() > 600000);
    put_for("new", 30000);
    offset_s = -now; /* the clock has failed */
    CHECK(is_live("new") && kvstore_now_ms() < 600000);
    offset_s = 0;
    CHECK(is_live("new"));
    check_expires_soon();
    close_store();
}

static void small_step_back_stands_still(void)
{
    open_store();
    put_for("short", 30);
    pause_ms(40);
    CHECK(!is_live("short"));
    int64_t before = kvstore_now_ms();
    offset_s = -1;
    CHECK(!is_live("short") && kvstore_now_ms() >= before);
    pause_ms(1100);
    CHECK(!is_live("short") && kvstore_now_ms() > before);
    close_store();
}

SCENARIOS({"clock_ahead_by_ten_years_is_corrected", clock_ahead_by_ten_years_is_corrected},
          {"clock_in_1970_is_followed_when_set", clock_in_1970_is_followed_when_set},
          {"small_step_back_stands_still", small_step_back_stands_still})

/* A cache whose values are renewed by one caller, while the others use the old value.
 *
 * A value is fresh for FRESH_MS and is kept for STALE_MS more. The first caller that reads it after it is no
 * longer fresh renews it: kvstore_put_if_absent of a second key, the lease, succeeds for one caller of all
 * threads and processes. The others return the old value at once. If the renewal fails, the lease expires and
 * the next caller tries again. Without a value, a caller that does not get the lease has to wait.
 *
 * Compile in the source tree, after "cargo rustc --release --lib --crate-type cdylib", and run:
 *
 *     cc -std=c11 examples/renewed_cache.c -Iinclude -Ltarget/release -lkvstore -Wl,-rpath,target/release -o renewed_cache
 *     ./renewed_cache [cache.db]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvstore.h"

enum { FRESH_MS = 60000, STALE_MS = 600000, LEASE_MS = 10000 };

static KVStore *kv;
/* The example has a clock of its own, to be able to advance it. */
static const int64_t start_ms = 1800000000000;
static int64_t now_ms;

static int64_t read_clock(void *context)
{
    return *(int64_t *)context;
}

/* Exits with a message if a call failed. */
static void must(int rc)
{
    if (rc == KVSTORE_OK) return;
    fprintf(stderr, "%s: %s\n", kvstore_strerror(rc), kvstore_errmsg(kv));
    exit(1);
}

/** What a caller of look_up has to do. */
typedef enum {
    USE,   /* use the value */
    RENEW, /* compute a new value and call keep, or release; until then the old value may be used, if there is one */
    WAIT   /* there is no value, and another caller computes it: call again later */
} Task;

/* Reads the value of a key. *value is NULL if there is none; release it with kvstore_free. */
static Task look_up(const char *key, char **value)
{
    char lease[100];
    int64_t left_ms;
    int n, mine;
    int rc = kvstore_get_ttl(kv, key, (int)strlen(key), (void **)value, &n, &left_ms);
    if (rc != KVSTORE_NOTFOUND) must(rc);
    if (rc == KVSTORE_OK && left_ms > STALE_MS) return USE;
    int n_lease = snprintf(lease, sizeof lease, "lease:%s", key);
    must(kvstore_put_if_absent(kv, lease, n_lease, "", 0, now_ms + LEASE_MS, &mine));
    return mine ? RENEW : rc == KVSTORE_OK ? USE : WAIT;
}

/* Ends a renewal, which must not take longer than LEASE_MS: the next caller that finds no fresh value gets the lease. */
static void release(const char *key)
{
    char lease[100];
    int rc = kvstore_delete(kv, lease, snprintf(lease, sizeof lease, "lease:%s", key));
    if (rc != KVSTORE_NOTFOUND) must(rc); /* it may have expired */
}

/* Stores a new value, and ends the renewal. */
static void keep(const char *key, const char *value)
{
    must(kvstore_put_for(kv, key, (int)strlen(key), value, (int)strlen(value), FRESH_MS + STALE_MS));
    release(key);
}

static Task ask(const char *who)
{
    char *value;
    Task task = look_up("weather", &value);
    printf("%3lld s  %s: %s%s\n", (long long)((now_ms - start_ms) / 1000), who, value ? value : "no value",
           task == RENEW ? ", and renews it" : task == WAIT ? ", and waits" : "");
    kvstore_free(value);
    return task;
}

int main(int argc, char **argv)
{
    must(kvstore_open(argc > 1 ? argv[1] : NULL, &kv, KVSTORE_JOURNAL_WAL)); /* NULL: in memory */
    now_ms = start_ms;
    must(kvstore_set_clock(kv, read_clock, &now_ms));
    must(kvstore_clear(kv)); /* of an earlier run */

    ask("ada");
    ask("bob");
    keep("weather", "sunny"); /* by ada */
    ask("bob");

    now_ms += FRESH_MS;
    ask("bob");
    ask("ada"); /* while bob computes */
    keep("weather", "rainy");
    ask("ada");

    now_ms += FRESH_MS;
    ask("ada"); /* fails to compute a new value, and does not release the lease */
    now_ms += LEASE_MS;
    ask("bob");
    keep("weather", "windy");

    now_ms += FRESH_MS + STALE_MS;
    ask("eve");

    must(kvstore_close(kv));
    return 0;
}

/* A store on a PostgreSQL server, used through the C API. KVSTORE_TEST_URL is the URL of an
 * empty store. The store uses the server's time. */
#include "check.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#define K(text) (text), (int)strlen(text)

static const char *url(void)
{
    const char *said = getenv("KVSTORE_TEST_URL");
    CHECK(said != NULL);
    return said;
}

static KVStore *opened(void)
{
    KVStore *kv = NULL;
    OK(kvstore_open_v2(url(), &kv, NULL));
    return kv;
}

static void has(KVStore *kv, const char *key, const char *value)
{
    void *got = NULL;
    int length = 0;
    OK(kvstore_get(kv, K(key), &got, &length));
    CHECK((size_t)length == strlen(value) && memcmp(got, value, strlen(value)) == 0);
    kvstore_free(got);
}

static void life(void)
{
    KVStore *kv = opened(), *other = opened();
    OK(kvstore_put(kv, K("a"), K("1")));
    has(other, "a", "1");
    int inserted = 7;
    OK(kvstore_put_if_absent(other, K("a"), K("2"), 0, &inserted));
    CHECK(inserted == 0);
    KVColumnFamily *cf;
    OK(kvstore_cf_create(kv, "family", &cf));
    int64_t ttl = 0, number = 0;
    OK(kvstore_cf_put_for(cf, K("short"), K("x"), 60000));
    OK(kvstore_cf_ttl_remaining(cf, K("short"), &ttl));
    CHECK(ttl > 59000 && ttl <= 60000);
    OK(kvstore_cf_increment(cf, K("n"), 5, 0, &number));
    OK(kvstore_cf_increment(cf, K("n"), -7, 0, &number));
    CHECK(number == -2);
    KVIterator *it;
    OK(kvstore_cf_iterator_create(cf, &it));
    OK(kvstore_iterator_first(it));
    void *key;
    int length;
    OK(kvstore_iterator_key(it, &key, &length));
    CHECK(length == 1 && memcmp(key, "n", 1) == 0);
    OK(kvstore_iterator_next(it));
    OK(kvstore_iterator_next(it));
    CHECK(kvstore_iterator_eof(it));
    kvstore_iterator_close(it);
    OK(kvstore_cf_put_for(cf, K("gone"), K("x"), 1));
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    GIVES(KVSTORE_NOTFOUND, kvstore_cf_get(cf, K("gone"), &key, &length));
    int purged = 0;
    OK(kvstore_purge_expired(kv, &purged));
    OK(kvstore_cf_purge_expired(cf, &purged));
    CHECK(purged == 1);
    KVBatch *batch;
    KVColumnFamily *base;
    OK(kvstore_cf_get_default(kv, &base));
    OK(kvstore_batch_new(kv, &batch));
    OK(kvstore_batch_put(batch, base, K("b"), K("2"), 0));
    OK(kvstore_batch_delete(batch, base, K("a")));
    OK(kvstore_batch_put(batch, cf, K("c"), K("3"), 0));
    OK(kvstore_batch_commit(batch));
    kvstore_batch_free(batch);
    has(other, "b", "2");
    kvstore_cf_close(base);
    kvstore_cf_close(cf);
    OK(kvstore_cf_drop(kv, "family"));
    OK(kvstore_close(kv));
    GIVES(KVSTORE_NOTFOUND, kvstore_cf_open(other, "family", &cf));
    OK(kvstore_close(other));
}

static void conflicts(void)
{
    KVStore *kv = opened(), *other = opened();
    OK(kvstore_put(kv, K("n"), K("0")));
    OK(kvstore_begin(kv, 1));
    OK(kvstore_begin(other, 1));
    has(kv, "n", "0");
    has(other, "n", "0");
    OK(kvstore_put(kv, K("n"), K("1")));
    OK(kvstore_commit(kv));
    int code = kvstore_put(other, K("n"), K("2"));
    if (code == KVSTORE_OK)
        code = kvstore_commit(other);
    CHECK(code == KVSTORE_LOCKED);
    CHECK(strstr(kvstore_errmsg(other), "again") != NULL);
    OK(kvstore_rollback(other));
    has(other, "n", "1");
    OK(kvstore_begin(other, 0));
    OK(kvstore_put(kv, K("n"), K("3")));
    has(other, "n", "1"); /* a snapshot */
    GIVES(KVSTORE_READONLY, kvstore_put(other, K("n"), K("4")));
    OK(kvstore_commit(other));
    has(other, "n", "3");
    OK(kvstore_close(other));
    OK(kvstore_close(kv));
}

static int64_t no_time(void *context)
{
    (void)context;
    return 1;
}

static void not_here(void)
{
    KVStore *kv = opened();
    OK(kvstore_put(kv, K("a"), K("1")));
    GIVES(KVSTORE_ERROR, kvstore_set_clock(kv, no_time, NULL));
    CHECK(strstr(kvstore_errmsg(kv), "server") != NULL);
    int64_t fixed = 0, limit = 7;
    int eviction = 7;
    GIVES(KVSTORE_ERROR, kvstore_repair(kv, &fixed));
    GIVES(KVSTORE_ERROR, kvstore_set_limit(kv, 1 << 20, KVSTORE_EVICT_SOONEST));
    OK(kvstore_get_limit(kv, &limit, &eviction));
    CHECK(limit == 0);
    CHECK(kvstore_is_encrypted(kv) == 0);
    GIVES(KVSTORE_ERROR, kvstore_reencrypt(kv, K("word")));
    GIVES(KVSTORE_ERROR, kvstore_remove_encryption(kv));
    OK(kvstore_sync(kv));
    OK(kvstore_checkpoint(kv, KVSTORE_CHECKPOINT_TRUNCATE, NULL, NULL));
    OK(kvstore_incremental_vacuum(kv, 0));
    OK(kvstore_integrity_check(kv, NULL));
    char key[2501];
    memset(key, 'k', sizeof key);
    OK(kvstore_put(kv, key, 2500, K("1")));
    GIVES(KVSTORE_ERROR, kvstore_put(kv, key, 2501, K("1")));
    CHECK(strstr(kvstore_errmsg(kv), "2500") != NULL);
    KVStoreStats stats;
    memset(&stats, 0, sizeof stats);
    OK(kvstore_stats(kv, &stats));
    CHECK(stats.nPuts >= 2);
    OK(kvstore_close(kv));
    KVStore *encrypted;
    REFUSED_HANDLE(KVSTORE_ERROR, encrypted, kvstore_open_encrypted(url(), K("word"), &encrypted, NULL));
}

/* ---- a lock with a TTL, and the data it protects
 * -------------------------------------------------- */

/* Takes the lock if it is free. Its value is the fencing token. */
static int64_t lock(KVStore *kv, int64_t ttl_ms)
{
    KVColumnFamily *cf;
    int64_t token;
    int taken = 7;
    OK(kvstore_cf_get_default(kv, &cf));
    OK(kvstore_cf_increment(cf, K("last token"), 1, 0, &token));
    KVWriteOptions options = {.flags = KVSTORE_PUT_IF_ABSENT | KVSTORE_PUT_TTL, .expireMs = ttl_ms};
    OK(kvstore_cf_put_with(cf, K("lock"), &token, sizeof token, &options, &taken));
    kvstore_cf_close(cf);
    return taken ? token : 0;
}

/* Extends the lock; returns whether it was still held. */
static int prolong(KVStore *kv, int64_t token, int64_t end_ms)
{
    KVColumnFamily *cf;
    int swapped = 7;
    OK(kvstore_cf_get_default(kv, &cf));
    OK(kvstore_cf_compare_and_swap(cf, K("lock"), &token, sizeof token, &token, sizeof token, end_ms, &swapped));
    kvstore_cf_close(cf);
    return swapped;
}

/* Writes the guarded value, unless a holder with a later token has written. */
static int guarded_write(KVStore *kv, int64_t token, const char *text)
{
    void *value;
    int n;
    int64_t latest = 0;
    OK(kvstore_begin(kv, 1));
    int code = kvstore_get(kv, K("written by"), &value, &n);
    if (code == KVSTORE_OK) {
        CHECK(n == sizeof latest);
        memcpy(&latest, value, sizeof latest);
        kvstore_free(value);
    } else {
        CHECK(code == KVSTORE_NOTFOUND);
    }
    if (latest > token) {
        OK(kvstore_rollback(kv));
        return 0;
    }
    OK(kvstore_put(kv, K("written by"), &token, sizeof token));
    OK(kvstore_put(kv, K("written"), K(text)));
    OK(kvstore_commit(kv));
    return 1;
}

/* The child is suspended while it holds the lock. In one run it also has an open transaction, in
 * which it has read the value that it is about to write. */
static void paused_past_ttl(void)
{
    enum { TTL_MS = 300 };
    for (int in_transaction = 0; in_transaction < 2; in_transaction++) {
        pid_t child = fork(); /* before any store is open */
        CHECK(child >= 0);
        if (child == 0) {
            KVStore *kv = opened();
            int64_t token = lock(kv, TTL_MS), end_ms = 0;
            CHECK(token > 0 && guarded_write(kv, token, "child"));
            if (in_transaction) {
                OK(kvstore_begin(kv, 1));
                has(kv, "written", "child");
            }
            CHECK(raise(SIGSTOP) == 0);
            if (in_transaction) { /* it has read a value that has changed since: the server reports a conflict */
                int code = kvstore_put(kv, K("written"), K("too late"));
                if (code == KVSTORE_OK) code = kvstore_commit(kv);
                CHECK(code == KVSTORE_LOCKED);
                OK(kvstore_rollback(kv));
            }
            OK(kvstore_time_ms(kv, &end_ms));
            CHECK(!prolong(kv, token, end_ms + 60000));
            CHECK(!guarded_write(kv, token, "too late"));
            OK(kvstore_close(kv));
            _exit(0);
        }
        int status = 0;
        CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
        KVStore *kv = opened();
        int64_t token = 0;
        while ((token = lock(kv, 60000)) == 0) nanosleep(&(struct timespec){0, 10000000}, NULL);
        CHECK(guarded_write(kv, token, "parent"));
        CHECK(kill(child, SIGCONT) == 0);
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        has(kv, "written", "parent");
        CHECK(prolong(kv, token, INT64_C(94694400000))); /* a time in the past releases the lock */
        OK(kvstore_close(kv));
    }
}

/* ---- a server that is stopped and started ------------------------------------------------------------ */

/* Asks the test to do something with the server. */
static void ask_for(const char *what)
{
    char answer[16];
    puts(what);
    CHECK(fflush(stdout) == 0 && fgets(answer, sizeof answer, stdin) != NULL && strcmp(answer, "done\n") == 0);
}

enum { ROWS = 3000 };

/* Reads entries up to this one, or until the iterator fails or ends. Entries must come in order,
 * each once. */
static int walk(KVIterator *it, int *next, int end)
{
    while (*next < end && !kvstore_iterator_eof(it)) {
        void *key;
        int n;
        char expected[16];
        OK(kvstore_iterator_key(it, &key, &n));
        int length = snprintf(expected, sizeof expected, "%06d", *next);
        CHECK(n == length && memcmp(key, expected, (size_t)n) == 0);
        ++*next;
        int code = kvstore_iterator_next(it);
        if (code != KVSTORE_OK) return code;
    }
    return KVSTORE_OK;
}

static void server_stopped_and_started(void)
{
    KVStore *kv = opened(), *writer = opened(), *reader = opened(), *none = NULL;
    KVColumnFamily *cf;
    KVBatch *batch;
    OK(kvstore_cf_create(kv, "rows", &cf));
    OK(kvstore_batch_new(kv, &batch));
    for (int i = 0; i < ROWS; i++) {
        char key[16];
        int n = snprintf(key, sizeof key, "%06d", i);
        OK(kvstore_batch_put(batch, cf, key, n, K("value"), 0));
    }
    OK(kvstore_batch_commit(batch));
    OK(kvstore_put(kv, K("a"), K("1")));
    for (int round = 0; round < 2; round++) {
        KVIterator *it, *fetched;
        KVEntry entries[100];
        int next = 0, n = 0, total = 0, code;
        OK(kvstore_cf_iterator_create(cf, &it));
        OK(kvstore_iterator_first(it));
        OK(walk(it, &next, 100));
        OK(kvstore_cf_iterator_create(cf, &fetched));
        OK(kvstore_iterator_first(fetched));
        OK(kvstore_iterator_fetch(fetched, entries, 100, &n));
        total += n;
        OK(kvstore_batch_put(batch, cf, K("zz"), K("from the batch"), 0));
        OK(kvstore_begin(writer, 1));
        OK(kvstore_put(writer, K("a"), K("lost")));
        OK(kvstore_begin(reader, 0));
        has(reader, "a", "1");

        ask_for("stop");
        void *value = NULL;
        int64_t sum = 7;
        KVColumnFamily *base;
        OK(kvstore_cf_get_default(kv, &base));
        GIVES(KVSTORE_IOERR, kvstore_get(kv, K("a"), &value, &n));
        GIVES(KVSTORE_IOERR, kvstore_put(kv, K("a"), K("2")));
        GIVES(KVSTORE_IOERR, kvstore_cf_increment(base, K("n"), 1, 0, &sum));
        CHECK(strstr(kvstore_errmsg(kv), "unknown") == NULL && sum == 7); /* it was not even sent */
        GIVES(KVSTORE_IOERR, kvstore_batch_commit(batch));
        OK(kvstore_batch_count(batch, &sum));
        CHECK(sum == 1);
        GIVES(KVSTORE_IOERR, walk(it, &next, ROWS));
        CHECK(next >= 100 && next < ROWS); /* it returned all entries that it had read */
        for (int twice = 0; twice < 2; twice++) {
            GIVES(KVSTORE_IOERR, kvstore_put(writer, K("b"), K("lost")));
            GIVES(KVSTORE_IOERR, kvstore_get(reader, K("a"), &value, &n));
        }
        GIVES(KVSTORE_IOERR, kvstore_commit(writer));
        REFUSED_HANDLE(KVSTORE_CANTOPEN, none, kvstore_open_v2(url(), &none, NULL));

        ask_for("start");
        has(kv, "a", "1");
        OK(kvstore_cf_increment(base, K("n"), 1, 0, &sum));
        CHECK(sum == round + 1);
        CHECK(kvstore_iterator_eof(it));
        OK(kvstore_iterator_next(it)); /* continues at its position */
        OK(walk(it, &next, ROWS));
        CHECK(next == ROWS && kvstore_iterator_eof(it));
        while ((code = kvstore_iterator_fetch(fetched, entries, 100, &n)) == KVSTORE_OK && n > 0) total += n;
        CHECK(code == KVSTORE_OK && total == ROWS);
        GIVES(KVSTORE_IOERR, kvstore_put(writer, K("b"), K("lost"))); /* until it is rolled back */
        GIVES(KVSTORE_IOERR, kvstore_get(reader, K("a"), &value, &n));
        OK(kvstore_rollback(writer));
        OK(kvstore_rollback(reader));
        has(writer, "a", "1");
        has(reader, "a", "1");
        GIVES(KVSTORE_NOTFOUND, kvstore_get(reader, K("b"), &value, &n));
        OK(kvstore_batch_commit(batch));
        GIVES(KVSTORE_OK, kvstore_cf_get(cf, K("zz"), &value, &n));
        kvstore_free(value);
        OK(kvstore_cf_delete(cf, K("zz")));
        kvstore_iterator_close(it);
        kvstore_iterator_close(fetched);
        kvstore_cf_close(base);
        OK(kvstore_integrity_check(kv, NULL));
    }
    kvstore_batch_free(batch);
    kvstore_cf_close(cf);
    OK(kvstore_close(kv));
    OK(kvstore_close(writer));
    OK(kvstore_close(reader));
}

SCENARIOS({"life", life}, {"conflicts", conflicts}, {"not_here", not_here},
          {"paused_past_ttl", paused_past_ttl},
          {"server_stopped_and_started", server_stopped_and_started})

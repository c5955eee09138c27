/* The cleaner: a thread that purges expired keys. It exists only if it was started. */
#define _FILE_OFFSET_BITS 64 /* readdir, on file systems with long numbers */
#include <dirent.h>
#include <pthread.h>

#include "api_places.h"

/* Polls until the family has that many rows; fails after half a minute. */
static void wait_for_rows(KVColumnFamily *cf, int64_t rows)
{
    for (int i = 0; i < 6000; i++) {
        if (rows_of(cf) == rows) {
            return;
        }
        pause_ms(5);
    }
    fprintf(stderr, "the cleaner has left %lld rows\n", (long long)rows_of(cf));
    exit(1);
}

static void fill(KVStore *kv, KVColumnFamily *cf, int count)
{
    OK(kvstore_begin(kv, 1));
    for (int i = 0; i < count; i++) {
        char key[16];
        int n = snprintf(key, sizeof key, "key %d", i);
        OK(kvstore_cf_put_ttl(cf, key, n, key, n, 2000 + i));
    }
    OK(kvstore_commit(kv));
}

/* Number of cleaners in this process, recognised by thread name, because valgrind and
 * ThreadSanitizer have threads of their own. */
static int threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
        FILE *comm = task->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (comm == NULL) { /* it has just ended */
            continue;
        }
        count += fgets(name, sizeof name, comm) != NULL && strcmp(name, "kvstore-cleaner\n") == 0;
        fclose(comm);
    }
    closedir(tasks);
    return count;
}

/* Returns whether this number of threads runs, now or soon: the kernel lists a joined thread a moment longer. */
static int threads_are(int count)
{
    for (int i = 0; i < 400 && threads() != count; i++) {
        pause_ms(5);
    }
    return threads() == count;
}

/* The cleaner removes keys that have expired by the store's own clock, in all families, and
 * nothing else. */
static void purges(void)
{
    KVStore *kv = open_at("store.db", NULL);
    KVColumnFamily *cf = family(kv, "family"), *standard = family(kv, "default");
    KVStoreStats stats;
    int before = threads();
    fill(kv, cf, 700);
    fill(kv, standard, 300);
    OK(kvstore_put(kv, K("forever"), K("value")));
    CHECK(threads_are(before)); /* nothing runs unless started */
    OK(kvstore_cleaner_start(kv, 1, 0));
    CHECK(threads_are(before + 1));
    clock_ms = 2299;
    wait_for_rows(standard, 1);
    wait_for_rows(cf, 400);
    clock_ms = 2698;
    wait_for_rows(cf, 1);
    clock_ms = 9000;
    wait_for_rows(cf, 0);
    OK(kvstore_cleaner_stop(kv));
    CHECK(threads_are(before));
    OK(kvstore_stats(kv, &stats));
    CHECK(stats.nTtlPurged == 1000);
    HAS(standard, "forever", "value");
    OK(kvstore_cf_put_ttl(cf, K("dead"), K("value"), 1)); /* stopped is stopped */
    pause_ms(20);
    CHECK(rows_of(cf) == 1);
    OK(kvstore_cleaner_start(kv, 1, 1)); /* and can be started again; one key at a time gets there, too */
    wait_for_rows(cf, 0);
    OK(kvstore_integrity_check(kv, NULL));
    kvstore_cf_close(cf);
    kvstore_cf_close(standard);
    OK(kvstore_close(kv)); /* stops it */
    CHECK(threads_are(before));
    CHECK(!is_there("store.db-wal") && !is_there("store.db-shm"));
}

static void starts_and_stops(void)
{
    KVStore *kv = open_at("store.db", NULL);
    int before = threads(); /* not after a stop: that one's thread may still be seen */
    OK(kvstore_cleaner_stop(kv)); /* none is running: nothing to do */
    OK(kvstore_cleaner_start(kv, INT64_MAX, INT64_MAX));
    GIVES(KVSTORE_ERROR, kvstore_cleaner_start(kv, 1, 0)); /* it runs already */
    OK(kvstore_cleaner_stop(kv));                          /* at once, however long the interval */
    OK(kvstore_cleaner_stop(kv));
    GIVES(KVSTORE_ERROR, kvstore_cleaner_start(kv, 0, 0));
    GIVES(KVSTORE_ERROR, kvstore_cleaner_start(kv, -1, 0));
    GIVES(KVSTORE_ERROR, kvstore_cleaner_start(kv, INT64_MIN, 0));
    GIVES(KVSTORE_ERROR, kvstore_cleaner_start(kv, 1, -1));
    GIVES(KVSTORE_ERROR, kvstore_cleaner_start(kv, 1, INT64_MIN));
    for (int i = 0; i < 30; i++) {
        OK(kvstore_cleaner_start(kv, 1 + i % 2 * 100000, 0));
        OK(kvstore_cleaner_stop(kv));
    }
    CHECK(threads_are(before));
    OK(kvstore_close(kv));
    GIVES(KVSTORE_MISUSE, kvstore_cleaner_start(kv, 1, 0));
    GIVES(KVSTORE_MISUSE, kvstore_cleaner_stop(kv));
}

static void unsupported_stores(void)
{
    KVStoreConfig read_only = {.readOnly = 1}, exclusive = {.exclusive = 1};
    KVStore *kv = open_at("store.db", &exclusive);
    OK(kvstore_put(kv, K("key"), K("value")));
    if (!are_on_a_server()) GIVES(KVSTORE_BUSY, kvstore_cleaner_start(kv, 1, 0));
    OK(kvstore_put(kv, K("key"), K("value")));
    OK(kvstore_close(kv));
    kv = open_at("store.db", &read_only);
    GIVES(KVSTORE_READONLY, kvstore_cleaner_start(kv, 1, 0));
    OK(kvstore_close(kv));
    if (is_of_files("it is about memory")) return;
    kv = open_at(NULL, NULL);
    GIVES(KVSTORE_ERROR, kvstore_cleaner_start(kv, 1, 0)); /* no second connection to memory */
    CHECK(strstr(kvstore_errmsg(kv), "memory") != NULL);
    OK(kvstore_close(kv));
}

/* It leaves an open transaction alone, and the transaction sees none of its work. */
static void during_a_transaction(void)
{
    KVStore *kv = open_at("store.db", NULL);
    KVColumnFamily *cf = family(kv, "family");
    fill(kv, cf, 100);
    clock_ms = 9000;
    OK(kvstore_begin(kv, 1));
    OK(kvstore_cf_put(cf, K("inside"), K("value")));
    OK(kvstore_cleaner_start(kv, 1, 0));
    pause_ms(30);
    CHECK(rows_of(cf) == 101);
    OK(kvstore_cf_put(cf, K("inside too"), K("value")));
    OK(kvstore_commit(kv));
    wait_for_rows(cf, 2);
    HAS(cf, "inside", "value");
    OK(kvstore_begin(kv, 0));
    OK(kvstore_rollback(kv));
    kvstore_cf_close(cf);
    OK(kvstore_close(kv));
}

/* Plain puts through the same handle do not wait: each succeeds while the cleaner works. */
static void puts_during_cleaning(void)
{
    KVStore *kv = open_at("store.db", NULL);
    KVColumnFamily *cf = family(kv, "family");
    int64_t start;
    int puts = 0;
    fill(kv, cf, getenv("UNDER_VALGRIND") ? 1000 : 10000);
    clock_ms = 100000;
    start = rows_of(cf);
    OK(kvstore_cleaner_start(kv, 1, 0));
    while (rows_of(cf) > 0) {
        OK(kvstore_put(kv, &puts, sizeof puts, "value", 5));
        puts++;
    }
    CHECK(start > 0 && puts > 0);
    OK(kvstore_integrity_check(kv, NULL));
    kvstore_cf_close(cf);
    OK(kvstore_close(kv));
}

/* Another handle holds the write lock for a while: the cleaner tries again later. */
static void another_handle_writes(void)
{
    if (is_of_files("a writer holds its rows there, not all of them")) return;
    KVStore *kv = open_at("store.db", NULL), *other = open_at("store.db", NULL);
    KVColumnFamily *cf = family(kv, "family");
    fill(kv, cf, 100);
    clock_ms = 9000;
    OK(kvstore_begin(other, 1));
    OK(kvstore_put(other, K("key"), K("value")));
    OK(kvstore_cleaner_start(kv, 1, 0));
    pause_ms(20);
    CHECK(rows_of(cf) == 100);
    GIVES(KVSTORE_BUSY, kvstore_put(kv, K("key"), K("value")));
    OK(kvstore_commit(other));
    wait_for_rows(cf, 0);
    kvstore_cf_close(cf);
    OK(kvstore_close(kv));
    OK(kvstore_close(other));
}

static void *start_once(void *kv)
{
    int code = kvstore_cleaner_start(kv, 100000000, 0);
    CHECK(code == KVSTORE_OK || code == KVSTORE_ERROR || code == KVSTORE_MISUSE);
    return code == KVSTORE_OK ? kv : NULL;
}

/* Several threads start the cleaner: one succeeds, and one cleaner runs. */
static void started_by_many(void)
{
    KVStore *kv = open_at("store.db", NULL);
    int before = threads();
    for (int round = 0; round < 10; round++) {
        pthread_t thread[4];
        int started = 0;
        for (int i = 0; i < 4; i++) {
            CHECK(pthread_create(&thread[i], NULL, start_once, kv) == 0);
        }
        for (int i = 0; i < 4; i++) {
            void *done;
            CHECK(pthread_join(thread[i], &done) == 0);
            started += done != NULL;
        }
        CHECK(started == 1 && threads_are(before + 1));
        OK(kvstore_cleaner_stop(kv));
        CHECK(threads_are(before));
    }
    OK(kvstore_close(kv));
}

/* A start that races with a close: in either order no thread and no connection is left. */
static void started_while_closing(void)
{
    int before = threads();
    for (int round = 0; round < (getenv("UNDER_VALGRIND") ? 20 : 200); round++) {
        KVStore *kv = open_at("store.db", NULL);
        pthread_t thread[3];
        for (int i = 0; i < 3; i++) {
            CHECK(pthread_create(&thread[i], NULL, start_once, kv) == 0);
        }
        if (round % 4) {
            pause_ms(round % 4 == 1 ? 0 : 1);
        }
        OK(kvstore_close(kv));
        for (int i = 0; i < 3; i++) {
            CHECK(pthread_join(thread[i], NULL) == 0);
        }
        CHECK(threads_are(before));
        CHECK(!is_there("store.db-wal") && !is_there("store.db-shm"));
    }
}

SCENARIOS({"purges", purges}, {"starts_and_stops", starts_and_stops},
          {"unsupported_stores", unsupported_stores}, {"during_a_transaction", during_a_transaction},
          {"puts_during_cleaning", puts_during_cleaning}, {"another_handle_writes", another_handle_writes},
          {"started_by_many", started_by_many}, {"started_while_closing", started_while_closing})

/* kvstore_backup: a copy while the store is in use. */
#define _FILE_OFFSET_BITS 64 /* readdir, on file systems with long numbers */
#include <dirent.h>
#include <sys/stat.h>

#include "api_places.h"

enum { KEYS = 300 };

/* Returns the number of files whose names begin with this path. */
static int files_like(const char *path)
{
    int count = 0;
    DIR *directory = opendir(".");
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        count += strncmp(entry->d_name, path, strlen(path)) == 0;
    }
    closedir(directory);
    return count;
}

/* Keys with and without TTLs, large values, two families, settings. */
static void fill(KVStore *kv)
{
    KVColumnFamily *cf = family(kv, "other");
    static char large[30000];
    memset(large, 'L', sizeof large);
    OK(kvstore_cf_set_default_ttl(cf, 7000));
    OK(kvstore_cf_set_write_tracking(cf, 1));
    OK(kvstore_begin(kv, 1));
    for (int i = 0; i < KEYS; i++) {
        char key[16];
        int n = snprintf(key, sizeof key, "key %d", i);
        OK(kvstore_put_ttl(kv, key, n, large, i % 5 ? i : (int)sizeof large, i % 3 ? 2000 + i : 0));
    }
    OK(kvstore_cf_put(cf, K("key"), K("value")));
    OK(kvstore_put_ttl(kv, K("dead"), K("value"), 500));
    OK(kvstore_commit(kv));
    kvstore_cf_close(cf);
}

/* Asserts that the copy has all entries with their TTLs. */
static void check_copy(const char *path, int dead)
{
    KVStore *copy = open_at(path, NULL);
    KVColumnFamily *cf = family(copy, "default"), *other = family(copy, "other");
    int64_t at = 7;
    char *message;
    OK(kvstore_integrity_check(copy, &message));
    CHECK(message == NULL);
    CHECK(rows_of(cf) == KEYS + (are_on_a_server() ? 0 : dead) && live_of(cf) == KEYS);
    for (int i = 0; i < KEYS; i++) {
        char key[16];
        int n = snprintf(key, sizeof key, "key %d", i), length = -1;
        void *value;
        OK(kvstore_cf_get(cf, key, n, &value, &length));
        CHECK(length == (i % 5 ? i : 30000) && (length == 0 || *(char *)value == 'L'));
        kvstore_free(value);
        CHECK(end_of(cf, key, n) == (i % 3 ? 2000 + i : KVSTORE_NO_TTL));
    }
    ENDS(other, "key", 8000);
    OK(kvstore_cf_write_time(other, K("key"), &at));
    CHECK(at == 1000);
    OK(kvstore_cf_get_default_ttl(other, &at));
    CHECK(at == 7000);
    int64_t now = clock_ms;
    clock_ms = 2001; /* and they expire on time */
    HAS(cf, "key 2", "LL");
    GONE(cf, "key 1");
    clock_ms = 8000;
    GONE(other, "key");
    OK(kvstore_put(copy, K("new"), K("value"))); /* it is a store like any other */
    OK(kvstore_integrity_check(copy, NULL));
    kvstore_cf_close(cf);
    kvstore_cf_close(other);
    OK(kvstore_close(copy));
    clock_ms = now;
}

static void copies(void)
{
    static const KVStoreConfig configs[] = {
        {0}, {.journalMode = KVSTORE_JOURNAL_DELETE}, {.exclusive = 1}, {.pageSize = 512}};
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        char path[16], copy[16];
        snprintf(path, sizeof path, "%d.db", (int)i);
        snprintf(copy, sizeof copy, "%d.copy", (int)i);
        KVStore *kv = open_at(path, &configs[i]);
        fill(kv);
        OK(kvstore_backup(kv, copy, NULL, NULL));
        OK(kvstore_put(kv, K("after"), K("value"))); /* not in it */
        CHECK(files_like(copy) == 1); /* and no other file */
        check_copy(copy, 1);
        OK(kvstore_integrity_check(kv, NULL));
        OK(kvstore_close(kv));
    }
    KVStore *memory = open_at(NULL, NULL); /* a store in memory gets a file this way */
    fill(memory);
    OK(kvstore_backup(memory, "memory.copy", NULL, NULL));
    check_copy("memory.copy", 1);
    OK(kvstore_close(memory));

    KVStoreConfig read_only = {.readOnly = 1};
    KVStore *kv = open_at("0.db", &read_only);
    OK(kvstore_backup(kv, "read-only.copy", NULL, NULL));
    CHECK(is_there("read-only.copy"));
    OK(kvstore_close(kv));
}

/* ---- kvstore_copy: the same into an existing store
 * ------------------------------------------------ */

struct copying {
    int64_t done, total;
    int calls, stop_at;
    KVStore *closed;
};

static int copied(void *context, int64_t done, int64_t total)
{
    struct copying *seen = context;
    CHECK(done >= seen->done && total == KEYS + 1);
    seen->done = done;
    if (seen->closed && seen->calls) {
        OK(kvstore_close(seen->closed));
        seen->closed = NULL;
    }
    return ++seen->calls == seen->stop_at;
}

static void to_another_store(void)
{
    for (int in_memory = 0; in_memory < 2; in_memory++) {
        const char *path = in_memory ? "first.db" : "second.db";
        KVStore *from = open_at(in_memory ? NULL : "from.db", NULL), *to = open_at(path, NULL);
        struct copying seen = {0};
        fill(from);
        clock_ms = 1000;
        OK(kvstore_copy(from, to, copied, &seen));
        CHECK(seen.done == KEYS + 1 && seen.calls > 2);
        GIVES(KVSTORE_ERROR, kvstore_copy(from, to, NULL, NULL));
        CHECK(strstr(kvstore_errmsg(from), "has keys") != NULL);
        GIVES(KVSTORE_ERROR, kvstore_copy(to, to, NULL, NULL));
        OK(kvstore_close(from));
        OK(kvstore_close(to));
        check_copy(path, 0);
    }
}

static void to_another_store_and_stopped(void)
{
    for (int stop_at = 1; stop_at < 4; stop_at++) {
        KVStore *from = open_at("from.db", NULL), *to = open_at(NULL, NULL);
        struct copying seen = {.stop_at = stop_at};
        KVColumnFamily *cf = family(to, "default"), *other = NULL;
        if (stop_at == 1) {
            fill(from);
        }
        GIVES(KVSTORE_ERROR, kvstore_copy(from, to, copied, &seen));
        CHECK(seen.calls == stop_at && rows_of(cf) == 0);
        GIVES(KVSTORE_NOTFOUND, kvstore_cf_open(to, "other", &other));
        OK(kvstore_put(to, K("key"), K("value"))); /* no transaction is left */
        kvstore_cf_close(cf);
        OK(kvstore_close(to));
        OK(kvstore_close(from));
    }
}

static void to_another_store_that_is_closed_meanwhile(void)
{
    for (int of_to = 0; of_to < 2; of_to++) {
        KVStore *from = open_at("from.db", NULL), *to = open_at("to.db", NULL);
        struct copying seen = {.closed = of_to ? to : from};
        if (!of_to) {
            fill(from);
        }
        GIVES(KVSTORE_MISUSE, kvstore_copy(from, to, copied, &seen));
        CHECK(seen.closed == NULL);
        OK(kvstore_close(of_to ? from : to));
        to = open_at("to.db", NULL);
        KVColumnFamily *cf = family(to, "default");
        CHECK(rows_of(cf) == 0);
        kvstore_cf_close(cf);
        OK(kvstore_close(to));
    }
}

static void empty_store(void)
{
    KVStore *kv = open_at("store.db", NULL);
    OK(kvstore_backup(kv, "copy.db", NULL, NULL));
    OK(kvstore_close(kv));
    kv = open_at("copy.db", NULL);
    int64_t count = 7;
    OK(kvstore_count(kv, &count));
    CHECK(count == 0);
    OK(kvstore_close(kv));
}

/* Arguments a callback received, and what it does. */
struct watch {
    KVStore *kv;
    int calls, last_remaining, total, stop_after;
};

static int watch(void *context, int remaining, int total)
{
    struct watch *w = context;
    CHECK(remaining >= 0 && total > 0 && remaining <= total);
    CHECK(w->calls == 0 || (remaining <= w->last_remaining && total == w->total));
    w->last_remaining = remaining;
    w->total = total;
    return ++w->calls == w->stop_after;
}

static KVStore *large_store(const char *path)
{
    static char value[100000];
    KVStore *kv = open_at(path, NULL);
    for (int i = 0; i < 60; i++) { /* some 1500 pages */
        OK(kvstore_put(kv, &i, sizeof i, value, sizeof value));
    }
    return kv;
}

static void progress(void)
{
    for (int in_memory = 0; in_memory < 2; in_memory++) {
        KVStore *kv = large_store(in_memory ? NULL : "store.db");
        struct watch w = {0};
        const char *path = in_memory ? "memory.copy" : "copy.db";
        OK(kvstore_backup(kv, path, watch, &w));
        CHECK(w.calls > 3 && w.last_remaining == 0 && is_there(path));
        OK(kvstore_close(kv));
    }
}

static void no_trace_of(const char *path)
{
    CHECK(files_like(path) == 0);
}

static void stopped(void)
{
    for (int in_memory = 0; in_memory < 2; in_memory++) {
        KVStore *kv = large_store(in_memory ? NULL : "store.db");
        for (int after = 1; after <= 3; after++) {
            struct watch w = {.stop_after = after};
            GIVES(KVSTORE_ERROR, kvstore_backup(kv, "copy.db", watch, &w));
            CHECK(w.calls == after); /* it is not asked again */
            CHECK(strstr(kvstore_errmsg(kv), "stopped") != NULL);
            no_trace_of("copy.db");
        }
        OK(kvstore_put(kv, K("key"), K("value"))); /* nothing is left locked */
        OK(kvstore_backup(kv, "copy.db", NULL, NULL));
        CHECK(unlink("copy.db") == 0);
        OK(kvstore_close(kv));
    }
}

/* "A non-zero return stops it (ERROR, no file left)": also one from the last call, and a small store has
 * only one call. */
static void stopped_at_the_last_call(void)
{
    KVStore *kv = open_at("store.db", NULL);
    struct watch w = {.stop_after = 1};
    OK(kvstore_put(kv, K("key"), K("value")));
    GIVES(KVSTORE_ERROR, kvstore_backup(kv, "copy.db", watch, &w));
    no_trace_of("copy.db");
    OK(kvstore_close(kv));
}

/* The callback uses the store: for a file the backup has a connection of its own. */
static int uses_the_store(void *context, int remaining, int total)
{
    struct watch *w = context;
    void *value;
    int n;
    (void)remaining, (void)total;
    OK(kvstore_put(w->kv, K("from the callback"), &w->calls, sizeof w->calls));
    OK(kvstore_get(w->kv, K("from the callback"), &value, &n));
    CHECK(n == sizeof w->calls && memcmp(value, &w->calls, sizeof w->calls) == 0);
    kvstore_free(value);
    if (w->calls == 0) { /* even another backup */
        OK(kvstore_backup(w->kv, "inner.db", NULL, NULL));
    }
    OK(kvstore_begin(w->kv, 1));
    OK(kvstore_rollback(w->kv));
    w->calls++;
    return 0;
}

static void calls_back(void)
{
    struct watch w = {.kv = large_store("store.db")};
    OK(kvstore_backup(w.kv, "copy.db", uses_the_store, &w));
    CHECK(w.calls > 3);
    KVStore *copy = open_at("copy.db", NULL);
    int there = 7;
    OK(kvstore_exists(copy, K("from the callback"), &there)); /* the state of one moment: before them */
    CHECK(there == 0);
    OK(kvstore_integrity_check(copy, NULL));
    OK(kvstore_close(copy));
    copy = open_at("inner.db", NULL);
    OK(kvstore_exists(copy, K("from the callback"), &there));
    CHECK(there == 1);
    OK(kvstore_close(copy));
    OK(kvstore_close(w.kv));
}

/* A store in memory has one connection, which is busy: the callback is refused, and nothing hangs. */
static int is_refused(void *context, int remaining, int total)
{
    struct watch *w = context;
    int there = 7;
    (void)remaining, (void)total;
    GIVES(KVSTORE_MISUSE, kvstore_put(w->kv, K("from the callback"), K("value")));
    GIVES(KVSTORE_MISUSE, kvstore_exists(w->kv, K("from the callback"), &there));
    GIVES(KVSTORE_MISUSE, kvstore_backup(w->kv, "inner.db", NULL, NULL));
    CHECK(there == 7);
    w->calls++;
    return 0;
}

static void calls_back_in_memory(void)
{
    if (is_of_files("it is about memory")) return;
    KVStoreConfig exclusive = {.exclusive = 1};
    for (int in_file = 0; in_file < 2; in_file++) {
        struct watch w = {.kv = open_at(in_file ? "store.db" : NULL, in_file ? &exclusive : NULL)};
        const char *path = in_file ? "exclusive.copy" : "memory.copy";
        OK(kvstore_put(w.kv, K("key"), K("value")));
        OK(kvstore_backup(w.kv, path, is_refused, &w));
        CHECK(w.calls > 0 && is_there(path) && !is_there("inner.db"));
        OK(kvstore_put(w.kv, K("key"), K("value")));
        OK(kvstore_begin(w.kv, 1)); /* an open transaction prevents it */
        GIVES(KVSTORE_BUSY, kvstore_backup(w.kv, "busy.db", NULL, NULL));
        no_trace_of("busy.db");
        OK(kvstore_rollback(w.kv));
        OK(kvstore_close(w.kv));
    }
}

/* The callback may even close the store: calls on the handle return MISUSE, and the copy is
 * completed. */
static int closes_the_store(void *context, int remaining, int total)
{
    struct watch *w = context;
    (void)remaining, (void)total;
    if (w->calls++ == 0) {
        OK(kvstore_close(w->kv));
    }
    GIVES(KVSTORE_MISUSE, kvstore_put(w->kv, K("key"), K("value")));
    return 0;
}

static void closed_during_backup(void)
{
    struct watch w = {.kv = large_store("store.db")};
    int code = kvstore_backup(w.kv, "copy.db", closes_the_store, &w);
    CHECK(code == KVSTORE_OK || code == KVSTORE_MISUSE);
    CHECK(is_there("copy.db") == (code == KVSTORE_OK) && files_like("copy.db") == (code == KVSTORE_OK));
    GIVES(KVSTORE_MISUSE, kvstore_close(w.kv));
    KVStore *kv = open_at("store.db", NULL);
    OK(kvstore_integrity_check(kv, NULL));
    OK(kvstore_close(kv));
}

/* Uncommitted data is not copied; an open transaction continues. */
static void during_a_transaction(void)
{
    KVStore *kv = open_at("store.db", NULL);
    int there = 7;
    OK(kvstore_put(kv, K("before"), K("value")));
    OK(kvstore_begin(kv, 1));
    OK(kvstore_put(kv, K("inside"), K("value")));
    OK(kvstore_backup(kv, "copy.db", NULL, NULL));
    OK(kvstore_put(kv, K("inside too"), K("value")));
    OK(kvstore_commit(kv));
    OK(kvstore_exists(kv, K("inside"), &there));
    CHECK(there == 1);
    OK(kvstore_close(kv));
    kv = open_at("copy.db", NULL);
    OK(kvstore_exists(kv, K("inside"), &there));
    CHECK(there == 0);
    OK(kvstore_exists(kv, K("before"), &there));
    CHECK(there == 1);
    OK(kvstore_close(kv));
}

static void refuses(void)
{
    KVStore *kv = open_at("store.db", NULL);
    struct stat before, after;
    struct watch w = {0};
    OK(kvstore_put(kv, K("key"), K("value")));
    FILE *file = fopen("file", "w");
    fputs("precious", file);
    fclose(file);
    CHECK(mkdir("directory", 0700) == 0 && symlink("nowhere", "link") == 0);
    GIVES(KVSTORE_ERROR, kvstore_backup(kv, NULL, watch, &w));
    GIVES(KVSTORE_ERROR, kvstore_backup(kv, "", watch, &w));
    GIVES(KVSTORE_ERROR, kvstore_backup(kv, ":memory:", watch, &w)); /* the name of a store in memory */
    GIVES(KVSTORE_ERROR, kvstore_backup(kv, "file:x", watch, &w));
    GIVES(KVSTORE_ERROR, kvstore_backup(kv, "new/", watch, &w));
    GIVES(KVSTORE_ERROR, kvstore_backup(kv, ".", watch, &w));
    CHECK(!is_there(":memory:") && !is_there("file:x") && !is_there("new"));
    GIVES(KVSTORE_ERROR, kvstore_backup(kv, "file", watch, &w)); /* what exists is never overwritten */
    GIVES(KVSTORE_ERROR, kvstore_backup(kv, "directory", watch, &w));
    GIVES(KVSTORE_ERROR, kvstore_backup(kv, "link", watch, &w));
    if (!are_on_a_server()) {
        CHECK(stat("store.db", &before) == 0);
        GIVES(KVSTORE_ERROR, kvstore_backup(kv, "store.db", watch, &w)); /* least of all itself */
        CHECK(stat("store.db", &after) == 0 && before.st_ino == after.st_ino);
    }
    GIVES(KVSTORE_CANTOPEN, kvstore_backup(kv, "no/such/directory", watch, &w));
    GIVES(KVSTORE_CANTOPEN, kvstore_backup(kv, "file/copy", watch, &w));
    CHECK(w.calls == 0 && !is_there("nowhere"));
    CHECK(stat("file", &after) == 0 && after.st_size == 8);
    OK(kvstore_integrity_check(kv, NULL));
    OK(kvstore_close(kv));
}

SCENARIOS({"copies", copies}, {"empty_store", empty_store}, {"progress", progress}, {"stopped", stopped},
          {"stopped_at_the_last_call", stopped_at_the_last_call}, {"calls_back", calls_back},
          {"calls_back_in_memory", calls_back_in_memory}, {"closed_during_backup", closed_during_backup},
          {"during_a_transaction", during_a_transaction}, {"refuses", refuses}, {"to_another_store", to_another_store},
          {"to_another_store_and_stopped", to_another_store_and_stopped},
          {"to_another_store_that_is_closed_meanwhile", to_another_store_that_is_closed_meanwhile})

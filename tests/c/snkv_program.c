/*
 * A program as it was written for SNKV 0.8: it knows nothing but snkv.h. It is compiled as C11 and as C++17,
 * and run in an empty folder.
 */
#include "snkv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void check(int rc, KVStore *kv, int line)
{
    if (rc != SQLITE_OK) {
        fprintf(stderr, "line %d: %d: %s\n", line, rc, kvstore_errmsg(kv));
        exit(1);
    }
}
#define RUN(call) check(call, kv, __LINE__)
#define EXPECT(condition)                                                                                \
    do {                                                                                                 \
        if (!(condition)) {                                                                              \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                      \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

static void memory(void)
{
    char *text = (char *)snkv_malloc(10);
    EXPECT(text != NULL);
    for (int i = 0; i < 10; i++) {
        EXPECT(text[i] == 0);
    }
    snkv_free(text);
    snkv_free(NULL);

    char *more = (char *)sqliteMalloc(4);
    EXPECT(more != NULL && more[3] == 0);
    memcpy(more, "abc", 4);
    more = (char *)sqliteRealloc(more, 1000);
    EXPECT(more != NULL && strcmp(more, "abc") == 0);
    sqliteFree(more);

    char *copy = sqliteStrDup("a text");
    EXPECT(copy != NULL && strcmp(copy, "a text") == 0);
    sqlite3_free(copy);
    copy = sqliteStrDup("");
    EXPECT(copy != NULL && copy[0] == 0);
    sqliteFree(copy);
    EXPECT(sqliteStrDup(NULL) == NULL);
}

static void codes(void)
{
    EXPECT(SQLITE_OK == 0 && SQLITE_ERROR == 1 && SQLITE_BUSY == 5 && SQLITE_LOCKED == 6);
    EXPECT(SQLITE_NOMEM == 7 && SQLITE_READONLY == 8 && SQLITE_IOERR == 10 && SQLITE_CORRUPT == 11);
    EXPECT(SQLITE_NOTFOUND == 12 && SQLITE_CANTOPEN == 14 && SQLITE_PROTOCOL == 15);
    EXPECT(SQLITE_NOTFOUND == KVSTORE_NOTFOUND && SQLITE_BUSY == KVSTORE_BUSY);
    EXPECT(SQLITE_FULL == KVSTORE_FULL && SQLITE_MISUSE == KVSTORE_MISUSE && SQLITE_NOTADB == KVSTORE_NOTADB);
}

static void sessions(KVStore *kv)
{
    KVColumnFamily *cf = NULL;
    RUN(kvstore_cf_create(kv, "sessions", &cf));
    RUN(kvstore_begin(kv, 1));
    for (int i = 0; i < 100; i++) {
        char key[32];
        int n = snprintf(key, sizeof(key), "user:%03d", i);
        RUN(kvstore_cf_put_ttl(cf, key, n, key, n, kvstore_now_ms() + (i % 2 ? 3600 * 1000 : -1)));
    }
    RUN(kvstore_commit(kv));

    int found = 0;
    KVIterator *it = NULL;
    RUN(kvstore_cf_prefix_iterator_create(cf, "user:", 5, &it));
    while (!kvstore_iterator_eof(it)) { /* a prefix iterator is positioned already */
        void *key = NULL;
        int n = 0;
        RUN(kvstore_iterator_key(it, &key, &n));
        EXPECT(n == 8 && memcmp(key, "user:", 5) == 0);
        found++;
        RUN(kvstore_iterator_next(it));
    }
    kvstore_iterator_close(it);
    EXPECT(found == 50);

    int64_t remaining = 0;
    RUN(kvstore_cf_ttl_remaining(cf, "user:001", 8, &remaining));
    EXPECT(remaining > 0 && remaining <= 3600 * 1000);
    int purged = 0;
    RUN(kvstore_cf_purge_expired(cf, &purged));
    EXPECT(purged == 50);
    kvstore_cf_close(cf);

    char **names = NULL;
    int count = 0;
    RUN(kvstore_cf_list(kv, &names, &count));
    EXPECT(count == 1 && strcmp(names[0], "sessions") == 0);
    for (int i = 0; i < count; i++) {
        sqliteFree(names[i]);
    }
    sqliteFree(names);
    RUN(kvstore_cf_drop(kv, "sessions"));
}

int main(void)
{
    memory();
    codes();

    KVStore *kv = NULL;
    RUN(kvstore_open("snkv.db", &kv, KVSTORE_JOURNAL_WAL));
    RUN(kvstore_put(kv, "key", 3, "value", 5));
    void *value = NULL;
    int n = 0;
    RUN(kvstore_get(kv, "key", 3, &value, &n));
    EXPECT(n == 5 && memcmp(value, "value", 5) == 0);
    snkv_free(value);
    EXPECT(kvstore_get(kv, "missing", 7, &value, &n) == KVSTORE_NOTFOUND);
    EXPECT(kvstore_delete(kv, "missing", 7) == SQLITE_NOTFOUND);
    int there = 0;
    RUN(kvstore_exists(kv, "key", 3, &there));
    EXPECT(there == 1);
    sessions(kv);

    KVStore *other = NULL; /* a busyTimeout of 0, also the one of kvstore_open, means not to wait */
    RUN(kvstore_open_v2("snkv.db", &other, NULL));
    RUN(kvstore_begin(kv, 1));
    time_t before = time(NULL);
    EXPECT(kvstore_put(other, "key", 3, "busy", 4) == SQLITE_BUSY && time(NULL) - before < 4);
    RUN(kvstore_rollback(kv));
    RUN(kvstore_begin(other, 1));
    EXPECT(kvstore_put(kv, "key", 3, "busy", 4) == SQLITE_BUSY && time(NULL) - before < 4);
    RUN(kvstore_close(other));
    RUN(kvstore_close(kv));

    KVStoreConfig cfg = {0}; /* the fields as they were in SNKV */
    cfg.journalMode = KVSTORE_JOURNAL_WAL;
    cfg.syncLevel = KVSTORE_SYNC_NORMAL;
    cfg.cacheSize = 4000;
    cfg.pageSize = 4096;
    cfg.readOnly = 0;
    cfg.busyTimeout = 5000;
    cfg.walSizeLimit = 100;
    cfg.allowEncrypted = 0;
    cfg.fullMutex = 1;
    RUN(kvstore_open_v2("snkv.db", &kv, &cfg));
    KVStoreStats stats;
    RUN(kvstore_stats(kv, &stats));
    EXPECT(stats.nPuts == 0 && stats.nDbPages > 0);
    int64_t count = 0;
    RUN(kvstore_count(kv, &count));
    EXPECT(count == 1);
    char *message = NULL;
    RUN(kvstore_integrity_check(kv, &message));
    EXPECT(message == NULL);
    sqliteFree(message);
    int log = 0, done = 0;
    RUN(kvstore_checkpoint(kv, KVSTORE_CHECKPOINT_TRUNCATE, &log, &done));
    RUN(kvstore_incremental_vacuum(kv, 0));
    RUN(kvstore_sync(kv));
    RUN(kvstore_close(kv));
    puts("done");
    return 0;
}

/* stats, stats_reset, integrity_check, sync, incremental_vacuum and checkpoint. */
#include "api_common.h"

#include <sys/stat.h>

static int64_t size_of(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 ? (int64_t)found.st_size : -1;
}

static KVStoreStats stats_of(KVStore *kv)
{
    KVStoreStats stats;
    memset(&stats, 0xff, sizeof stats);
    OK(kvstore_stats(kv, &stats));
    for (int i = 0; i < 4; i++) {
        CHECK(stats.reserved[i] == 0);
    }
    return stats;
}

/* Asserts that these counters have grown by these amounts since the last call, and no other
 * counter has. */
static void grown(KVStore *kv, KVStoreStats *last, const KVStoreStats *by)
{
    KVStoreStats now = stats_of(kv);
#define GREW(field) CHECK(now.field - last->field == by->field)
    GREW(nPuts);
    GREW(nGets);
    GREW(nDeletes);
    GREW(nIterations);
    GREW(nErrors);
    GREW(nBytesRead);
    GREW(nBytesWritten);
    GREW(nTtlExpired);
    GREW(nTtlPurged);
    GREW(nMisses);
    GREW(nEvicted);
#undef GREW
    *last = now;
}
#define GROWN(...) grown(p->kv, &last, &(KVStoreStats){__VA_ARGS__})

static void counters_at(const struct place *p)
{
    KVStoreStats last = stats_of(p->kv);
    void *value = NULL;
    int n = -1;
    int64_t n64 = -1;

    OK(AT(p, put, K("key"), K("value")));
    GROWN(.nPuts = 1, .nBytesWritten = 3 + 5);
    OK(AT(p, put_ttl, K("t"), K("four"), 2000));
    GROWN(.nPuts = 1, .nBytesWritten = 1 + 4);
    OK(AT(p, put_if_absent, K("u"), K("six"), 2000, &n));
    GROWN(.nPuts = 1, .nBytesWritten = 1 + 3);
    OK(AT(p, put_if_absent, K("u"), K("six"), 2000, &n)); /* writes nothing */
    GROWN(.nPuts = 0);
    OK(AT(p, put, K("e"), NULL, 0));
    GROWN(.nPuts = 1, .nBytesWritten = 1);

    OK(AT(p, get, K("key"), &value, &n));
    kvstore_free(value);
    GROWN(.nGets = 1, .nBytesRead = 5);
    OK(AT(p, get_ttl, K("t"), &value, &n, NULL));
    kvstore_free(value);
    GROWN(.nGets = 1, .nBytesRead = 4);
    OK(AT(p, get, K("e"), &value, &n));
    kvstore_free(value);
    GROWN(.nGets = 1);
    OK(AT(p, exists, K("key"), &n));
    OK(AT(p, ttl_remaining, K("key"), &n64));
    OK(AT(p, count, &n64));
    GROWN(.nGets = 0);
    GIVES(KVSTORE_NOTFOUND, AT(p, get, K("missing"), &value, &n)); /* no success, and no failure */
    GIVES(KVSTORE_NOTFOUND, AT(p, get_ttl, K("missing"), &value, &n, NULL));
    GIVES(KVSTORE_NOTFOUND, AT(p, ttl_remaining, K("missing"), &n64));
    GIVES(KVSTORE_NOTFOUND, AT(p, delete, K("missing")));
    GROWN(.nMisses = 2);
    OK(AT(p, exists, K("missing"), &n));
    GROWN(.nMisses = 1);

    OK(AT(p, delete, K("key")));
    GROWN(.nDeletes = 1);

    KVIterator *its[4];
    OK(AT(p, iterator_create, &its[0]));
    OK(AT(p, reverse_iterator_create, &its[1]));
    OK(AT(p, prefix_iterator_create, K("t"), &its[2]));
    OK(AT(p, reverse_prefix_iterator_create, K("t"), &its[3]));
    for (int i = 0; i < 4; i++) {
        kvstore_iterator_close(its[i]);
    }
    GROWN(.nIterations = 4);

    GIVES(KVSTORE_ERROR, AT(p, put, K(""), K("value")));
    GIVES(KVSTORE_ERROR, AT(p, put, K("key"), NULL, 1));
    GIVES(KVSTORE_ERROR, AT(p, get, K("key"), NULL, &n));
    GIVES(KVSTORE_ERROR, kvstore_commit(p->kv));
    GROWN(.nErrors = 4);

    const int stays = are_on_a_server(); /* an expired row that a read finds */
    clock_ms = 2000;
    GIVES(KVSTORE_NOTFOUND, AT(p, get, K("t"), &value, &n));
    GROWN(.nTtlExpired = 1, .nMisses = 1);
    GIVES(KVSTORE_NOTFOUND, AT(p, get, K("t"), &value, &n));
    GROWN(.nTtlExpired = stays, .nMisses = 1);
    OK(AT(p, exists, K("u"), &n));
    GROWN(.nTtlExpired = 1, .nMisses = 1);
    OK(AT(p, put_ttl, K("t"), K("four"), 3000));
    OK(AT(p, put_ttl, K("u"), K("four"), 3000));
    OK(AT(p, put_ttl, K("v"), K("four"), 3000));
    GROWN(.nPuts = 3, .nBytesWritten = 15);
    clock_ms = 3000;
    OK(AT(p, ttl_remaining, K("t"), &n64));
    GROWN(.nTtlExpired = 1);
    OK(AT(p, purge_expired, &n));
    CHECK(n == 2 + stays);
    GROWN(.nTtlPurged = 2 + stays);
    OK(AT(p, purge_expired, &n));
    GROWN(.nTtlPurged = 0);
    OK(AT(p, put_ttl, K("t"), K("four"), 4000));
    clock_ms = 4000;
    GIVES(KVSTORE_NOTFOUND, AT(p, get_ttl, K("t"), &value, &n, NULL));
    GROWN(.nPuts = 1, .nBytesWritten = 5, .nTtlExpired = 1, .nMisses = 1);

    GIVES(KVSTORE_ERROR, kvstore_stats(p->kv, NULL));
    GROWN(.nErrors = 1);
    OK(kvstore_stats_reset(p->kv));
    KVStoreStats zero = stats_of(p->kv);
    CHECK(zero.nPuts == 0 && zero.nGets == 0 && zero.nDeletes == 0 && zero.nIterations == 0);
    CHECK(zero.nErrors == 0 && zero.nBytesRead == 0 && zero.nBytesWritten == 0);
    CHECK(zero.nWalCommits == 0 && zero.nCheckpoints == 0 && zero.nTtlExpired == 0 && zero.nTtlPurged == 0);
    CHECK(zero.nDbPages > 0 || are_on_a_server()); /* current value: not reset */
}
BOTH_FORMS(counters)

static void counters_of_the_file(void)
{
    if (is_of_files("pages and frames are a file's")) return;
    struct place a = {open_at("test.db", NULL), NULL}, b = {open_at("test.db", NULL), NULL};
    OK(kvstore_stats_reset(a.kv));
    char large[50000];
    memset(large, 'l', sizeof large);
    OK(AT(&a, put, K("a"), K("1")));
    OK(AT(&a, put, K("b"), K("2")));
    KVStoreStats stats = stats_of(a.kv);
    CHECK(stats.nWalCommits == 2 && stats.nCheckpoints == 0 && stats.nWalFrames > 0);
    OK(kvstore_begin(a.kv, 1));
    OK(AT(&a, put, K("a"), K("1")));
    OK(AT(&a, put, K("b"), K("2")));
    OK(kvstore_commit(a.kv));
    CHECK(stats_of(a.kv).nWalCommits == 3); /* a transaction is one */
    OK(kvstore_begin(a.kv, 1));
    OK(AT(&a, put, K("a"), K("1")));
    OK(kvstore_rollback(a.kv));
    OK(kvstore_begin(a.kv, 0));
    OK(kvstore_commit(a.kv));
    CHECK(stats_of(a.kv).nWalCommits == 3); /* reads and rollbacks are none */
    OK(kvstore_checkpoint(a.kv, KVSTORE_CHECKPOINT_PASSIVE, NULL, NULL));
    stats = stats_of(a.kv);
    CHECK(stats.nCheckpoints == 1 && stats.nWalCommits == 3 && stats.nWalFrames == 0);

    uint64_t pages = stats.nDbPages;
    OK(AT(&b, put, K("large"), large, sizeof large)); /* by another handle */
    CHECK(stats_of(a.kv).nDbPages >= pages + sizeof large / 4096);
    CHECK(stats_of(a.kv).nPuts == 5); /* but each handle counts its own calls */
    CHECK(stats_of(b.kv).nPuts == 1);
    OK(kvstore_close(b.kv));
    OK(kvstore_checkpoint(a.kv, KVSTORE_CHECKPOINT_TRUNCATE, NULL, NULL));
    CHECK(stats_of(a.kv).nDbPages == (uint64_t)size_of("test.db") / 4096);

    OK(kvstore_close(a.kv));
    KVStoreStats untouched = {.nPuts = 7};
    GIVES(KVSTORE_MISUSE, kvstore_stats(a.kv, &untouched));
    GIVES(KVSTORE_MISUSE, kvstore_stats_reset(a.kv));
    GIVES(KVSTORE_ERROR, kvstore_stats(NULL, &untouched));
    GIVES(KVSTORE_ERROR, kvstore_stats_reset(NULL));
    CHECK(untouched.nPuts == 7);
}

static void wal_size_limit(void)
{
    if (is_of_files("the log is the server's")) return;
    KVStoreConfig config = {0};
    config.walSizeLimit = 3;
    struct place p = {open_at("test.db", &config), NULL};
    OK(kvstore_stats_reset(p.kv));
    for (uint64_t i = 1; i <= 12; i++) {
        OK(AT(&p, put, K("key"), K("value")));
        CHECK(stats_of(p.kv).nCheckpoints == i / 3);
    }
    OK(kvstore_close(p.kv));

    p.kv = open_at("test.db", NULL); /* 0: by pages */
    char large[100000];
    memset(large, 'l', sizeof large);
    int64_t most = 0;
    for (int i = 0; i < 400; i++) { /* 40 MB through the WAL */
        memset(large, i, sizeof large); /* pages that stay the same would not be written */
        OK(AT(&p, put, K("key"), large, sizeof large));
        most = size_of("test.db-wal") > most ? size_of("test.db-wal") : most;
    }
    CHECK(stats_of(p.kv).nCheckpoints >= 1);
    /* Twice 4000 pages, and those of one put. Fewer if the kernel's syncs are fast enough. */
    CHECK(most > 1000000 && most < (2 * 4000 + 30) * INT64_C(4120));
    OK(kvstore_close(p.kv));
}

static void integrity(void)
{
    files_are_plain();
    struct place p = {open_at("test.db", NULL), NULL};
    OK(kvstore_cf_create(p.kv, "users", &p.cf));
    OK(AT(&p, put_ttl, K("key"), K("value"), 2000));
    char *message = (char *)&clock_ms;
    OK(kvstore_integrity_check(p.kv, &message));
    CHECK(message == NULL);
    OK(kvstore_integrity_check(p.kv, NULL));
    OK(kvstore_begin(p.kv, 1));
    OK(AT(&p, put, K("other"), K("value")));
    OK(kvstore_integrity_check(p.kv, NULL)); /* also inside a transaction, which continues */
    OK(kvstore_rollback(p.kv));
    GONE(&p, "other");
    kvstore_cf_close(p.cf);
    OK(kvstore_close(p.kv));
    message = NULL;
    GIVES(KVSTORE_MISUSE, kvstore_integrity_check(p.kv, &message));
    GIVES(KVSTORE_ERROR, kvstore_integrity_check(NULL, &message));
    CHECK(message == NULL);
    if (is_of_files("damage is done to its tables by src/backend/postgres/tests.rs")) return;

    CHECK(system("python3 -c \"import sqlite3; db = sqlite3.connect('test.db'); "
                 "db.execute('DELETE FROM \\\"ttl_key:users\\\"'); db.commit()\"") == 0);
    p.kv = open_at("test.db", NULL);
    GIVES(KVSTORE_CORRUPT, kvstore_integrity_check(p.kv, &message));
    CHECK(message != NULL && strstr(message, "users") != NULL); /* says where */
    CHECK(strcmp(message, kvstore_errmsg(p.kv)) == 0);
    kvstore_free(message);
    GIVES(KVSTORE_CORRUPT, kvstore_integrity_check(p.kv, NULL));
    OK(kvstore_close(p.kv));
}

static void repair(void)
{
    if (is_of_files("kvstore_repair is not there (api_remote.c)")) return;
    files_are_plain();
    struct place p = {open_at("test.db", NULL), NULL};
    int64_t fixed = -1;

    OK(kvstore_cf_create(p.kv, "users", &p.cf));
    OK(AT(&p, put_ttl, K("key"), K("value"), 2000));
    OK(kvstore_repair(p.kv, &fixed)); /* nothing is wrong */
    CHECK(fixed == 0);
    kvstore_cf_close(p.cf);
    OK(kvstore_close(p.kv));
    CHECK(system("python3 -c \"import sqlite3; db = sqlite3.connect('test.db'); "
                 "db.execute('DELETE FROM \\\"ttl_key:users\\\"'); db.commit()\"") == 0);

    KVStoreConfig cfg = {.readOnly = 1};
    p.kv = open_at("test.db", &cfg);
    fixed = -1;
    GIVES(KVSTORE_READONLY, kvstore_repair(p.kv, &fixed));
    OK(kvstore_close(p.kv));
    p.kv = open_at("test.db", NULL);
    OK(kvstore_cf_open(p.kv, "users", &p.cf));
    for (int write = 0; write < 2; write++) { /* refused, and the transaction continues */
        OK(kvstore_begin(p.kv, write));
        GIVES(KVSTORE_BUSY, kvstore_repair(p.kv, &fixed));
        CHECK(kvstore_errhint(p.kv) == KVSTORE_HINT_END_TRANSACTION);
        OK(kvstore_commit(p.kv));
    }
    GIVES(KVSTORE_CORRUPT, kvstore_integrity_check(p.kv, NULL));
    CHECK(fixed == -1);
    OK(kvstore_repair(p.kv, &fixed));
    CHECK(fixed == 1);
    OK(kvstore_integrity_check(p.kv, NULL));
    OK(kvstore_repair(p.kv, NULL));
    HAS(&p, "key", "value");
    clock_ms = 2000;
    GONE(&p, "key");
    OK(kvstore_integrity_check(p.kv, NULL));
    kvstore_cf_close(p.cf);
    OK(kvstore_close(p.kv));

    fixed = -1;
    GIVES(KVSTORE_MISUSE, kvstore_repair(p.kv, &fixed));
    GIVES(KVSTORE_ERROR, kvstore_repair(NULL, &fixed));
    CHECK(fixed == -1);
}

static void sync_commits_nothing(void)
{
    static const int levels[] = {KVSTORE_SYNC_NORMAL, KVSTORE_SYNC_FULL, KVSTORE_SYNC_OFF};
    static const int modes[] = {KVSTORE_JOURNAL_WAL, KVSTORE_JOURNAL_DELETE};
    for (int i = 0; i < 6; i++) {
        KVStoreConfig config = {0};
        config.syncLevel = levels[i / 2];
        config.journalMode = modes[i % 2];
        struct place p = {open_at("test.db", &config), NULL}, other = {NULL, NULL};
        OK(kvstore_sync(p.kv)); /* of a store in which nothing happened */
        OK(AT(&p, put, K("key"), K("value")));
        OK(kvstore_sync(p.kv));
        OK(kvstore_begin(p.kv, 1));
        OK(AT(&p, put, K("key"), K("lost")));
        OK(kvstore_sync(p.kv));
        other.kv = open_at("test.db", &config);
        HAS(&other, "key", "value");
        OK(kvstore_close(other.kv));
        HAS(&p, "key", "lost"); /* the transaction is still open */
        OK(kvstore_rollback(p.kv));
        HAS(&p, "key", "value");
        OK(kvstore_sync(p.kv));
        OK(kvstore_close(p.kv));
    }
    KVStore *memory = open_at(NULL, NULL);
    OK(kvstore_sync(memory));
    OK(kvstore_close(memory));
    GIVES(KVSTORE_MISUSE, kvstore_sync(memory));
    GIVES(KVSTORE_ERROR, kvstore_sync(NULL));
}

static void vacuum(void)
{
    if (is_of_files("its files are the server's affair")) return;
    struct place p = {open_at("test.db", NULL), NULL};
    char *large = kvstore_malloc(1000000);
    CHECK(large != NULL);
    OK(AT(&p, put, K("large"), large, 1000000));
    OK(AT(&p, put, K("small"), K("value")));
    kvstore_free(large);
    uint64_t pages = stats_of(p.kv).nDbPages;
    CHECK(pages > 240);
    OK(AT(&p, delete, K("large")));
    CHECK(stats_of(p.kv).nDbPages == pages); /* free pages stay, to be used again */

    OK(kvstore_begin(p.kv, 1)); /* with the transaction it is in */
    OK(kvstore_incremental_vacuum(p.kv, 0));
    OK(kvstore_rollback(p.kv));
    CHECK(stats_of(p.kv).nDbPages == pages);
    OK(kvstore_incremental_vacuum(p.kv, 10)); /* at most as many as asked for */
    uint64_t after = stats_of(p.kv).nDbPages;
    CHECK(after < pages && after >= pages - 10);
    OK(kvstore_incremental_vacuum(p.kv, 0)); /* all */
    after = stats_of(p.kv).nDbPages;
    CHECK(after < pages - 240);
    OK(kvstore_incremental_vacuum(p.kv, 0)); /* nothing is left to do */
    OK(kvstore_incremental_vacuum(p.kv, INT32_MAX));
    CHECK(stats_of(p.kv).nDbPages == after);
    OK(kvstore_checkpoint(p.kv, KVSTORE_CHECKPOINT_TRUNCATE, NULL, NULL));
    CHECK(size_of("test.db") == (int64_t)after * 4096);
    HAS(&p, "small", "value");

    GIVES(KVSTORE_ERROR, kvstore_incremental_vacuum(p.kv, -1));
    GIVES(KVSTORE_ERROR, kvstore_incremental_vacuum(p.kv, INT32_MIN));
    GIVES(KVSTORE_ERROR, kvstore_incremental_vacuum(NULL, 0));
    OK(kvstore_begin(p.kv, 0));
    GIVES(KVSTORE_READONLY, kvstore_incremental_vacuum(p.kv, 0));
    OK(kvstore_commit(p.kv));
    OK(kvstore_integrity_check(p.kv, NULL));
    OK(kvstore_close(p.kv));
    GIVES(KVSTORE_MISUSE, kvstore_incremental_vacuum(p.kv, 0));
}

enum { FIRST_MODE = KVSTORE_CHECKPOINT_PASSIVE, LAST_MODE = KVSTORE_CHECKPOINT_TRUNCATE };

static void checkpoint(void)
{
    if (is_of_files("its log is the server's affair")) return;
    struct place p = {open_at("test.db", NULL), NULL};
    for (int mode = FIRST_MODE; mode <= LAST_MODE; mode++) {
        for (int i = 0; i < 10; i++) {
            OK(AT(&p, put, K("key"), &i, sizeof i));
        }
        CHECK(size_of("test.db-wal") > 0);
        int log = -7, done = -7;
        OK(kvstore_checkpoint(p.kv, mode, &log, &done));
        CHECK(log == done && (mode == KVSTORE_CHECKPOINT_TRUNCATE ? log == 0 : log >= 10));
        OK(AT(&p, put, K("key"), K("other")));
        OK(kvstore_checkpoint(p.kv, mode, NULL, &done)); /* NULL is allowed */
        OK(AT(&p, put, K("key"), K("value")));
        OK(kvstore_checkpoint(p.kv, mode, &log, NULL));
        OK(AT(&p, put, K("key"), K("value")));
        OK(kvstore_checkpoint(p.kv, mode, NULL, NULL));
        HAS(&p, "key", "value");
    }
    int log = -7, done = -7;
    static const int bad[] = {-1, 4, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        GIVES(KVSTORE_ERROR, kvstore_checkpoint(p.kv, bad[i], &log, &done));
    }
    GIVES(KVSTORE_ERROR, kvstore_checkpoint(NULL, KVSTORE_CHECKPOINT_PASSIVE, &log, &done));
    OK(kvstore_close(p.kv));
    GIVES(KVSTORE_MISUSE, kvstore_checkpoint(p.kv, KVSTORE_CHECKPOINT_PASSIVE, &log, &done));
    CHECK(log == -7 && done == -7);
}

/* Reads on the same handle, and open iterators, do not prevent a reset of the WAL. */
static void checkpoint_after_reads(void)
{
    if (is_of_files("its log is the server's affair")) return;
    struct place p = {open_at("test.db", NULL), NULL};
    OK(AT(&p, put, K("a"), K("1")));
    OK(AT(&p, put, K("b"), K("2")));
    KVIterator *it = NULL;
    OK(AT(&p, iterator_create, &it));
    OK(kvstore_iterator_first(it));
    HAS(&p, "a", "1");
    CHECK(rows(&p) == 2);
    CHECK(size_of("test.db-wal") > 0);
    OK(kvstore_checkpoint(p.kv, KVSTORE_CHECKPOINT_TRUNCATE, NULL, NULL));
    CHECK(size_of("test.db-wal") == 0);
    OK(kvstore_iterator_next(it));
    CHECK(kvstore_iterator_eof(it) == 0);
    kvstore_iterator_close(it);
    HAS(&p, "b", "2");
    OK(kvstore_close(p.kv));
}

static void checkpoint_in_a_transaction(void)
{
    if (is_of_files("its log is the server's affair")) return;
    struct place p = {open_at("test.db", NULL), NULL};
    OK(kvstore_begin(p.kv, 1));
    OK(AT(&p, put, K("key"), K("value")));
    for (int mode = FIRST_MODE; mode <= LAST_MODE; mode++) {
        int log = -7, done = -7;
        GIVES(KVSTORE_BUSY, kvstore_checkpoint(p.kv, mode, &log, &done));
        CHECK(log == -7 && done == -7);
    }
    OK(kvstore_commit(p.kv)); /* the transaction is as it was */
    HAS(&p, "key", "value");
    OK(kvstore_checkpoint(p.kv, KVSTORE_CHECKPOINT_TRUNCATE, NULL, NULL));
    OK(kvstore_close(p.kv));
}

static void checkpoint_with_others(void)
{
    if (is_of_files("its log is the server's affair")) return;
    struct place a = {open_at("test.db", NULL), NULL}, b = {open_at("test.db", NULL), NULL};
    OK(AT(&a, put, K("key"), K("old")));
    OK(kvstore_begin(b.kv, 0)); /* a reader that needs what is in the WAL now */
    OK(AT(&a, put, K("key"), K("new")));
    int log = -7, done = -7;
    OK(kvstore_checkpoint(a.kv, KVSTORE_CHECKPOINT_PASSIVE, &log, &done));
    CHECK(log > 0 && done < log);
    log = done = -7;
    GIVES(KVSTORE_BUSY, kvstore_checkpoint(a.kv, KVSTORE_CHECKPOINT_RESTART, &log, &done));
    GIVES(KVSTORE_BUSY, kvstore_checkpoint(a.kv, KVSTORE_CHECKPOINT_TRUNCATE, &log, &done));
    CHECK(log == -7 && done == -7);
    HAS(&b, "key", "old");
    OK(kvstore_commit(b.kv));
    OK(kvstore_checkpoint(a.kv, KVSTORE_CHECKPOINT_TRUNCATE, NULL, NULL));
    CHECK(size_of("test.db-wal") == 0);
    HAS(&b, "key", "new");
    OK(kvstore_close(a.kv));
    OK(kvstore_close(b.kv));
}

static void checkpoint_without_a_wal(void)
{
    if (is_of_files("its log is the server's affair")) return;
    struct place places[] = {{NULL, NULL}, {open_at(NULL, NULL), NULL}};
    OK(kvstore_open("test.db", &places[0].kv, KVSTORE_JOURNAL_DELETE));
    for (int i = 0; i < 2; i++) {
        OK(AT(&places[i], put, K("key"), K("value")));
        for (int mode = FIRST_MODE; mode <= LAST_MODE; mode++) {
            int log = -7, done = -7;
            OK(kvstore_checkpoint(places[i].kv, mode, &log, &done));
            CHECK(log == 0 && done == 0);
        }
        OK(kvstore_checkpoint(places[i].kv, KVSTORE_CHECKPOINT_FULL, NULL, NULL));
        OK(kvstore_begin(places[i].kv, 1));
        GIVES(KVSTORE_BUSY, kvstore_checkpoint(places[i].kv, KVSTORE_CHECKPOINT_FULL, NULL, NULL));
        OK(kvstore_rollback(places[i].kv));
        OK(kvstore_close(places[i].kv));
    }
}

/* Returns how often the text occurs in a file; 0 if the file does not exist. */
static int found_in(const char *path, const char *text)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        return 0;
    }
    int found = 0;
    size_t matched = 0;
    for (int c; (c = fgetc(file)) != EOF;) { /* its first letter is only its first */
        matched = c == text[matched] ? matched + 1 : c == text[0];
        if (!text[matched]) {
            found++;
            matched = 0;
        }
    }
    fclose(file);
    return found;
}

static void secure_delete(void)
{
    if (is_of_files("its files are the server's affair")) return;
    files_are_plain();
    for (int secure = 0; secure <= 1; secure++) {
        const char *path = secure ? "secure.db" : "plain.db", *wal = secure ? "secure.db-wal" : "plain.db-wal";
        KVStoreConfig cfg = {0};
        cfg.secureDelete = secure;
        struct place p = {open_at(path, &cfg), NULL};
        OK(AT(&p, put, K("Sentinel"), K("Sentinel")));
        OK(AT(&p, put_ttl, K("Sentinel ends"), K("Sentinel"), 2000));
        OK(kvstore_checkpoint(p.kv, KVSTORE_CHECKPOINT_PASSIVE, NULL, NULL));
        CHECK(found_in(path, "Sentinel") >= 5);
        OK(AT(&p, delete, K("Sentinel")));
        clock_ms = 3000;
        OK(AT(&p, purge_expired, NULL));
        clock_ms = 1000;
        OK(kvstore_checkpoint(p.kv, KVSTORE_CHECKPOINT_PASSIVE, NULL, NULL));
        CHECK((found_in(path, "Sentinel") + found_in(wal, "Sentinel") == 0) == secure);
        OK(kvstore_integrity_check(p.kv, NULL));
        OK(kvstore_close(p.kv));
    }
}

SCENARIOS({"counters", counters}, {"counters_of_the_file", counters_of_the_file},
          {"wal_size_limit", wal_size_limit}, {"integrity", integrity}, {"repair", repair},
          {"sync_commits_nothing", sync_commits_nothing}, {"vacuum", vacuum},
          {"checkpoint", checkpoint}, {"checkpoint_after_reads", checkpoint_after_reads},
          {"checkpoint_in_a_transaction", checkpoint_in_a_transaction},
          {"checkpoint_with_others", checkpoint_with_others},
          {"checkpoint_without_a_wal", checkpoint_without_a_wal}, {"secure_delete", secure_delete})

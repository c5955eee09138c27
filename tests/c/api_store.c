/* Opening and closing, the configuration, and the library itself: version, codes, memory, error
 * texts. */
#include "api_common.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int64_t size_of(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 ? (int64_t)found.st_size : -1;
}

static int exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Returns the content of a file, and its length in *n. The caller frees it. */
static char *content_of(const char *path, int64_t *n)
{
    *n = size_of(path);
    char *content = malloc((size_t)*n + 1);
    FILE *file = fopen(path, "rb");
    CHECK(*n >= 0 && content != NULL && file != NULL && fread(content, 1, (size_t)*n, file) == (size_t)*n);
    fclose(file);
    return content;
}

static void write_file(const char *path, const char *content)
{
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL && fputs(content, file) >= 0 && fclose(file) == 0);
}

/* Byte 18 of a SQLite file: 2 in WAL mode, 1 with a rollback journal. */
static int is_wal(const char *path)
{
    int64_t n = 0;
    char *content = content_of(path, &n);
    CHECK(n > 100);
    int mode = content[18];
    free(content);
    return mode == 2;
}

/* Bytes 16 and 17 of a SQLite file; 1 means 65536. */
static int page_size_of(const char *path)
{
    int64_t n = 0;
    unsigned char *content = (unsigned char *)content_of(path, &n);
    CHECK(n > 100);
    int size = content[16] << 8 | content[17];
    free(content);
    return size == 1 ? 65536 : size;
}

/* Asserts that the open fails with this code, sets the handle to NULL, and leaves an error text
 * for this thread. */
#define NO_STORE(code, path, config)                                                                     \
    do {                                                                                                 \
        KVStore *no_kv = (KVStore *)&clock_ms;                                                           \
        GIVES(code, kvstore_open_v2(path, &no_kv, config));                                              \
        CHECK(no_kv == NULL);                                                                            \
        CHECK(strlen(kvstore_errmsg(NULL)) > 0 && strcmp(kvstore_errmsg(NULL), "no error") != 0);        \
    } while (0)

/* Asserts that both forms of open reject the file and do not change a byte of it. */
static void refused(int code, const char *path)
{
    int64_t before = 0, after = 0;
    char *content = content_of(path, &before);
    KVStoreConfig configs[4] = {{0}, {0}, {0}, {0}};
    configs[1].journalMode = KVSTORE_JOURNAL_DELETE;
    configs[2].readOnly = 1;
    configs[3].exclusive = 1;
    for (int i = 0; i < 4; i++) {
        NO_STORE(code, path, &configs[i]);
    }
    KVStore *kv = (KVStore *)&clock_ms;
    GIVES(code, kvstore_open(path, &kv, KVSTORE_JOURNAL_WAL));
    CHECK(kv == NULL);
    char *again = content_of(path, &after);
    CHECK(before == after && memcmp(content, again, (size_t)before) == 0);
    free(content);
    free(again);
}

static void in_memory(void)
{
    if (is_of_files("it is about memory")) return;
    static const char *const paths[] = {NULL, "", ":memory:"};
    struct place stores[6];
    for (int i = 0; i < 6; i++) {
        KVStore *kv = NULL;
        OK(i < 3 ? kvstore_open(paths[i], &kv, KVSTORE_JOURNAL_WAL) : kvstore_open_v2(paths[i - 3], &kv, NULL));
        stores[i] = (struct place){kv, NULL};
        GONE(&stores[i], "key"); /* each is a new one */
        OK(AT(&stores[i], put, K("key"), K("value")));
        HAS(&stores[i], "key", "value");
    }
    for (int i = 0; i < 6; i++) {
        OK(kvstore_close(stores[i].kv));
    }
    CHECK(system("test -z \"$(ls -A)\"") == 0); /* no file was made */
}

static void in_a_file(void)
{
    if (is_of_files("it is about files")) return;
    struct place p = {NULL, NULL};
    OK(kvstore_open("test.db", &p.kv, KVSTORE_JOURNAL_WAL));
    OK(AT(&p, put, K("key"), K("value")));
    OK(kvstore_close(p.kv));
    OK(kvstore_open_v2("test.db", &p.kv, NULL));
    HAS(&p, "key", "value");
    OK(kvstore_close(p.kv));
    static const int modes[] = {0, KVSTORE_JOURNAL_WAL, KVSTORE_JOURNAL_DELETE};
    for (int i = 0; i < 3; i++) {
        OK(kvstore_open("test.db", &p.kv, modes[i]));
        HAS(&p, "key", "value");
        OK(kvstore_close(p.kv));
        CHECK(is_wal("test.db") == (modes[i] != KVSTORE_JOURNAL_DELETE));
    }
    static const int bad[] = {-1, 3, INT32_MAX};
    for (int i = 0; i < 3; i++) {
        KVStore *kv = (KVStore *)&clock_ms;
        GIVES(KVSTORE_ERROR, kvstore_open("test.db", &kv, bad[i]));
        CHECK(kv == NULL);
    }
    GIVES(KVSTORE_ERROR, kvstore_open("test.db", NULL, KVSTORE_JOURNAL_WAL));
    GIVES(KVSTORE_ERROR, kvstore_open_v2("test.db", NULL, NULL));
}

static void files_of_wal_mode(void)
{
    if (is_of_files("it is about files")) return;
    KVStoreConfig zero = {0}; /* WAL, by default */
    KVStore *a = NULL, *b = NULL;
    OK(kvstore_open_v2("test.db", &a, &zero));
    CHECK(exists("test.db") && exists("test.db-wal") && exists("test.db-shm")); /* right after the open */
    OK(kvstore_open_v2("test.db", &b, &zero));
    OK(kvstore_put(a, K("key"), K("value")));
    OK(kvstore_close(a));
    CHECK(exists("test.db-wal") && exists("test.db-shm")); /* b is still there */
    OK(kvstore_close(b));
    CHECK(exists("test.db") && !exists("test.db-wal") && !exists("test.db-shm")); /* the last one */
    CHECK(is_wal("test.db"));
}

static void journal_modes_are_converted(void)
{
    if (is_of_files("it is about files")) return;
    struct place p = {NULL, NULL};
    OK(kvstore_open("test.db", &p.kv, KVSTORE_JOURNAL_DELETE));
    OK(AT(&p, put, K("key"), K("value")));
    CHECK(!exists("test.db-wal") && !exists("test.db-shm") && !is_wal("test.db"));
    OK(kvstore_close(p.kv));
    for (int i = 0; i < 4; i++) {
        int wal = i % 2 == 0;
        OK(kvstore_open("test.db", &p.kv, wal ? KVSTORE_JOURNAL_WAL : KVSTORE_JOURNAL_DELETE));
        CHECK(exists("test.db-wal") == wal && exists("test.db-shm") == wal);
        HAS(&p, "key", "value");
        OK(AT(&p, put, K("key"), K("other")));
        OK(AT(&p, put, K("key"), K("value")));
        OK(kvstore_close(p.kv));
        CHECK(is_wal("test.db") == wal && !exists("test.db-wal") && !exists("test.db-journal"));
    }
}

static void other_files(void)
{
    if (is_of_files("it is about files")) return;
    CHECK(mkdir("directory", 0700) == 0);
    NO_STORE(KVSTORE_CANTOPEN, "directory", NULL);
    NO_STORE(KVSTORE_CANTOPEN, "missing/test.db", NULL);
    NO_STORE(KVSTORE_CANTOPEN, "/dev/null", NULL);
    CHECK(mkfifo("fifo", 0600) == 0);
    NO_STORE(KVSTORE_CANTOPEN, "fifo", NULL); /* and does not wait for a writer */

    write_file("text", "This is a text, and it must stay one.\n");
    refused(KVSTORE_NOTADB, "text");
    char large[5000];
    memset(large, 't', sizeof large);
    large[sizeof large - 1] = '\0';
    write_file("large", large);
    refused(KVSTORE_NOTADB, "large");
    write_file("byte", "x"); /* which SQLite itself takes for an empty file */
    refused(KVSTORE_NOTADB, "byte");

    /* A table of another program; one in WAL mode; only another application_id. */
    CHECK(system("python3 -c \""
                 "import sqlite3\n"
                 "for name, sql in [('table', 'CREATE TABLE t(a)'), ('id', 'PRAGMA application_id = 77'),\n"
                 "        ('wal', 'PRAGMA journal_mode = wal; CREATE TABLE t(a)'),\n"
                 "        ('view', 'CREATE VIEW v AS SELECT 1'),\n"
                 "        ('both', 'PRAGMA application_id = 77; CREATE TABLE t(a)')]:\n"
                 "    db = sqlite3.connect(name)\n"
                 "    db.executescript(sql)\n"
                 "    db.close()\n"
                 "\"") == 0);
    refused(KVSTORE_NOTADB, "table");
    refused(KVSTORE_NOTADB, "id");
    refused(KVSTORE_NOTADB, "wal");
    refused(KVSTORE_NOTADB, "view");
    refused(KVSTORE_NOTADB, "both");
    static const char *const names[] = {"text", "large", "byte", "table", "id", "wal", "view", "both"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) { /* no other file is left */
        char name[32];
        snprintf(name, sizeof name, "%s-journal", names[i]);
        CHECK(!exists(name));
        snprintf(name, sizeof name, "%s-wal", names[i]);
        CHECK(!exists(name));
    }

    write_file("empty", ""); /* a file of zero bytes becomes a store */
    struct place p = {open_at("empty", NULL), NULL};
    OK(AT(&p, put, K("key"), K("value")));
    HAS(&p, "key", "value");
    OK(kvstore_close(p.kv));
}

static void read_only(void)
{
    KVStoreConfig config = {0};
    config.readOnly = 1;
    NO_STORE(KVSTORE_CANTOPEN, place_of("missing"), &config);
    CHECK(!exists("missing"));
    write_file("empty", "");
    NO_STORE(KVSTORE_CANTOPEN, "empty", &config);
    CHECK(size_of("empty") == 0);
    KVStore *memory = (KVStore *)&clock_ms;
    CHECK(kvstore_open_v2(NULL, &memory, &config) != KVSTORE_OK && memory == NULL); /* it would stay empty */

    struct place p = {open_at("test.db", NULL), NULL};
    OK(kvstore_cf_create(p.kv, "users", &p.cf));
    kvstore_cf_close(p.cf);
    p.cf = NULL;
    OK(AT(&p, put, K("key"), K("value")));
    OK(AT(&p, put_ttl, K("ttl"), K("value"), 2000));
    OK(kvstore_close(p.kv));
    int64_t before = 0, after = 0;
    char *content = are_on_a_server() ? NULL : content_of("test.db", &before);
    static const int yes[] = {1, 2, -1};
    for (int i = 0; i < 3; i++) { /* anything but 0 */
        clock_ms = 1000;
        config.readOnly = yes[i];
        p.kv = open_at("test.db", &config);
        HAS(&p, "key", "value");
        HAS(&p, "ttl", "value");
        int n = 7;
        KVColumnFamily *cf = NULL;
        GIVES(KVSTORE_READONLY, AT(&p, put, K("key"), K("other")));
        GIVES(KVSTORE_READONLY, AT(&p, put_ttl, K("key"), K("other"), 5000));
        GIVES(KVSTORE_READONLY, AT(&p, put_if_absent, K("new"), K("other"), 0, &n));
        GIVES(KVSTORE_READONLY, AT(&p, delete, K("key")));
        GIVES(KVSTORE_READONLY, CLEAR(&p));
        GIVES(KVSTORE_READONLY, kvstore_cf_create(p.kv, "other", &cf));
        GIVES(KVSTORE_READONLY, kvstore_cf_drop(p.kv, "users"));
        GIVES(KVSTORE_READONLY, kvstore_begin(p.kv, 1));
        GIVES(KVSTORE_READONLY, kvstore_incremental_vacuum(p.kv, 0));
        CHECK(cf == NULL && n == 7);
        OK(kvstore_begin(p.kv, 0));
        HAS(&p, "key", "value");
        OK(kvstore_commit(p.kv));
        OK(kvstore_cf_open(p.kv, "users", &cf));
        kvstore_cf_close(cf);
        clock_ms = 2000;
        GONE(&p, "ttl"); /* expired for it, too, and not removed */
        CHECK(rows(&p) == 2);
        int64_t remaining = 7;
        OK(AT(&p, ttl_remaining, K("ttl"), &remaining));
        CHECK(remaining == 0);
        GIVES(KVSTORE_READONLY, AT(&p, purge_expired, &n));
        OK(kvstore_integrity_check(p.kv, NULL));
        OK(kvstore_sync(p.kv));
        OK(kvstore_close(p.kv));
    }
    if (are_on_a_server()) return;
    char *again = content_of("test.db", &after);
    CHECK(before == after && memcmp(content, again, (size_t)before) == 0);
    free(content);
    free(again);
}

/* An open is not blocked by a writer. */
static void open_while_another_writes(void)
{
    for (int mode = KVSTORE_JOURNAL_WAL; mode <= KVSTORE_JOURNAL_DELETE; mode++) {
        KVStoreConfig config = {0};
        config.journalMode = mode;
        struct place a = {open_at("test.db", &config), NULL}, b = {NULL, NULL};
        OK(AT(&a, put, K("key"), K("old")));
        OK(kvstore_begin(a.kv, 1));
        OK(AT(&a, put, K("key"), K("new")));
        for (int read_only = 0; read_only < 2; read_only++) {
            config.readOnly = read_only;
            b.kv = open_at("test.db", &config);
            HAS(&b, "key", "old");
            GIVES(read_only ? KVSTORE_READONLY : KVSTORE_BUSY, AT(&b, put, K("key"), K("b's")));
            OK(kvstore_close(b.kv));
        }
        OK(kvstore_commit(a.kv));
        HAS(&a, "key", "new");
        OK(kvstore_close(a.kv));
    }
}

/* Opening and closing a store changes nothing in it. */
static void open_changes_nothing(void)
{
    if (is_of_files("it is about files")) return;
    KVStore *kv = open_at("test.db", NULL);
    OK(kvstore_put(kv, K("key"), K("value")));
    OK(kvstore_close(kv));
    int64_t before = 0, after = 0;
    char *content = content_of("test.db", &before);
    OK(kvstore_close(open_at("test.db", NULL)));
    char *again = content_of("test.db", &after);
    CHECK(before == after && memcmp(content, again, (size_t)before) == 0);
    free(content);
    free(again);
}

static void config_bounds(void)
{
    KVStore *kv = NULL;
#define ACCEPTS(field, setting)                                                                          \
    do {                                                                                                 \
        KVStoreConfig accepted = {0};                                                                    \
        accepted.field = (setting);                                                                      \
        OK(kvstore_open_v2(place_of(NULL), &kv, &accepted));                                             \
        OK(kvstore_put(kv, "k", 1, "v", 1));                                                             \
        OK(kvstore_close(kv));                                                                           \
    } while (0)
#define REFUSES(field, setting)                                                                          \
    do {                                                                                                 \
        KVStoreConfig bad = {0};                                                                         \
        bad.field = (setting);                                                                           \
        NO_STORE(KVSTORE_ERROR, NULL, &bad);                                                             \
        NO_STORE(KVSTORE_ERROR, place_of("test.db"), &bad);                                              \
        CHECK(!exists("test.db"));                                                                       \
    } while (0)
    static const int bad_modes[] = {-1, 3, INT32_MAX, INT32_MIN};
    static const int bad_levels[] = {-1, 4, INT32_MAX, INT32_MIN};
    static const int bad_pages[] = {-4096, 1, 256, 511, 513, 1000, 4095, 65535, 131072, INT32_MAX, INT32_MIN};
    static const int negative[] = {-1, INT32_MIN};
    static const int any[] = {1, -1, 77, INT32_MAX, INT32_MIN};
    for (int i = KVSTORE_JOURNAL_WAL - 1; i <= KVSTORE_JOURNAL_DELETE; i++) {
        ACCEPTS(journalMode, i);
    }
    for (int i = KVSTORE_SYNC_NORMAL - 1; i <= KVSTORE_SYNC_OFF; i++) {
        ACCEPTS(syncLevel, i);
    }
    for (int i = 0; i < 4; i++) {
        REFUSES(journalMode, bad_modes[i]);
        REFUSES(syncLevel, bad_levels[i]);
    }
    ACCEPTS(cacheSize, 1);
    ACCEPTS(cacheSize, 100000);
    for (int i = 512; i <= 65536; i *= 2) {
        ACCEPTS(pageSize, i);
    }
    for (size_t i = 0; i < sizeof bad_pages / sizeof *bad_pages; i++) {
        REFUSES(pageSize, bad_pages[i]);
    }
    ACCEPTS(busyTimeout, 1);
    ACCEPTS(busyTimeout, INT32_MAX);
    ACCEPTS(walSizeLimit, 1);
    ACCEPTS(walSizeLimit, INT32_MAX);
    ACCEPTS(walPages, 16);
    ACCEPTS(walPages, 1000000);
    REFUSES(walPages, 15);
    REFUSES(walPages, 1000001);
    ACCEPTS(purgePerWrite, 1);
    ACCEPTS(purgePerWrite, 1000);
    REFUSES(purgePerWrite, 1001);
    ACCEPTS(maxValueSize, 1);
    ACCEPTS(maxValueSize, 512 * 1024 * 1024);
    REFUSES(maxValueSize, 512 * 1024 * 1024 + 1);
    REFUSES(maxValueSize, INT32_MAX);
    for (int i = 0; i < 2; i++) {
        REFUSES(cacheSize, negative[i]);
        ACCEPTS(busyTimeout, negative[i]);
        REFUSES(walSizeLimit, negative[i]);
        REFUSES(walPages, negative[i]);
        REFUSES(purgePerWrite, negative[i]);
        REFUSES(maxValueSize, negative[i]);
        ACCEPTS(holdReads, negative[i]);
    }
    for (size_t i = 0; i < sizeof any / sizeof *any; i++) { /* what is ignored takes anything */
        ACCEPTS(allowEncrypted, any[i]);
        ACCEPTS(fullMutex, any[i]);
        ACCEPTS(onlyEncrypted, any[i]);
    }
    ACCEPTS(mmapSize, -1);
    ACCEPTS(mmapSize, INT64_MIN);
    ACCEPTS(mmapSize, 1);
    ACCEPTS(mmapSize, INT64_C(1) << 40);
    ACCEPTS(mmapSize, INT64_MAX);
    ACCEPTS(exclusive, 1);
    ACCEPTS(secureDelete, 1);
    ACCEPTS(secureDelete, -1);
    ACCEPTS(profile, KVSTORE_SMALL);
    REFUSES(profile, -1);
    REFUSES(profile, KVSTORE_SMALL + 1);
    ACCEPTS(mode, 0600);
    ACCEPTS(mode, 0777);
    REFUSES(mode, -1);
    REFUSES(mode, 0400);
    REFUSES(mode, 0060);
    REFUSES(mode, 04600);
    for (int i = 0; i < 2; i++) {
        for (size_t j = 0; j < sizeof any / sizeof *any; j++) {
            REFUSES(reserved[i], any[j]);
        }
    }
#undef ACCEPTS
#undef REFUSES
}

static void every_setting_in_a_file(void)
{
    if (is_of_files("it is about files")) return;
    files_are_plain();
    struct place p = {NULL, NULL};
    KVStoreConfig full = {0}; /* all at once */
    full.journalMode = KVSTORE_JOURNAL_WAL;
    full.syncLevel = KVSTORE_SYNC_FULL;
    full.cacheSize = 10;
    full.pageSize = 1024;
    full.busyTimeout = 10;
    full.walSizeLimit = 2;
    full.maxValueSize = 20 * 1024 * 1024;
    full.mmapSize = -1;
    full.exclusive = 1;
    full.holdReads = -1;
    full.secureDelete = 1;
    full.profile = KVSTORE_SMALL;
    full.mode = 0640;
    full.purgePerWrite = 2;
    p.kv = open_at("test.db", &full);
    OK(AT(&p, put, K("key"), K("value")));
    OK(AT(&p, put_ttl, K("ttl"), K("value"), 2000));
    HAS(&p, "key", "value");
    KVStoreConfig copy = full;
    OK(kvstore_integrity_check(p.kv, NULL));
    CHECK(memcmp(&copy, &full, sizeof full) == 0); /* the caller's is only read */
    OK(kvstore_close(p.kv));
    CHECK(page_size_of("test.db") == 1024);

    p.kv = open_at("test.db", NULL); /* no configuration: the file keeps its settings */
    HAS(&p, "key", "value");
    OK(kvstore_close(p.kv));
    CHECK(page_size_of("test.db") == 1024);
    KVStoreConfig larger = {0};
    larger.pageSize = 8192; /* for new files only */
    p.kv = open_at("test.db", &larger);
    HAS(&p, "key", "value");
    OK(AT(&p, put, K("key"), K("other")));
    OK(kvstore_close(p.kv));
    CHECK(page_size_of("test.db") == 1024);
    OK(kvstore_close(open_at("other.db", &larger)));
    CHECK(page_size_of("other.db") == 8192);
    OK(kvstore_close(open_at("default.db", NULL)));
    CHECK(page_size_of("default.db") == 4096);
    larger.pageSize = 65536;
    OK(kvstore_close(open_at("largest.db", &larger)));
    CHECK(page_size_of("largest.db") == 65536);
}

/* Number of times a file was synced. These definitions replace those of the C library. */
static int syncs;

int fsync(int fd)
{
    syncs++;
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    syncs++;
    return (int)syscall(SYS_fdatasync, fd);
}

static void zero_is_the_default(void)
{
    if (is_of_files("it is about files")) return;
    files_are_plain();
    CHECK(KVSTORE_JOURNAL_WAL == 1 && KVSTORE_JOURNAL_DELETE == 2);
    CHECK(KVSTORE_SYNC_NORMAL == 1 && KVSTORE_SYNC_FULL == 2 && KVSTORE_SYNC_OFF == 3);
    KVStoreConfig zero = {0};
    struct place p = {open_at("test.db", &zero), NULL};
    CHECK(exists("test.db-wal") && exists("test.db-shm")); /* WAL */
    OK(AT(&p, put, K("key"), K("value"))); /* which begins the WAL, and syncs its header */
    syncs = 0;
    OK(AT(&p, put, K("key"), K("value")));
    CHECK(syncs == 0); /* not FULL */
    OK(kvstore_checkpoint(p.kv, KVSTORE_CHECKPOINT_PASSIVE, NULL, NULL));
    CHECK(syncs > 0); /* NORMAL, not OFF */
    char *large = kvstore_malloc(10 * 1024 * 1024 + 1);
    CHECK(large != NULL);
    OK(AT(&p, put, K("key"), large, 10 * 1024 * 1024));
    GIVES(KVSTORE_ERROR, AT(&p, put, K("key"), large, 10 * 1024 * 1024 + 1));
    kvstore_free(large);
    struct place other = {open_at("test.db", &zero), NULL}; /* not exclusive, not read-only */
    OK(AT(&other, put, K("key"), K("value")));
    OK(kvstore_begin(p.kv, 1));
    GIVES(KVSTORE_BUSY, kvstore_begin(other.kv, 1)); /* no busy timeout */
    OK(kvstore_close(p.kv));
    OK(kvstore_close(other.kv));
    CHECK(page_size_of("test.db") == 4096 && is_wal("test.db"));
}

static void max_value_size(void)
{
    KVStoreConfig config = {0};
    config.maxValueSize = 10;
    struct place p = {open_at("test.db", &config), NULL};
    OK(AT(&p, put, K("key"), K("0123456789")));
    GIVES(KVSTORE_ERROR, AT(&p, put, K("key"), K("0123456789X")));
    GIVES(KVSTORE_ERROR, AT(&p, put_ttl, K("key"), K("0123456789X"), 0));
    GIVES(KVSTORE_ERROR, AT(&p, put_if_absent, K("new"), K("0123456789X"), 0, NULL));
    HAS(&p, "key", "0123456789");
    OK(kvstore_close(p.kv));

    enum { MORE = 11 * 1024 * 1024 };
    config.maxValueSize = MORE;
    p.kv = open_at("test.db", &config);
    char *large = kvstore_malloc(MORE + 1);
    CHECK(large != NULL);
    memset(large, 'l', MORE);
    OK(AT(&p, put, K("large"), large, MORE));
    GIVES(KVSTORE_ERROR, AT(&p, put, K("large"), large, MORE + 1));
    CHECK(is_value(&p, K("large"), large, MORE));
    OK(kvstore_close(p.kv));
    p.kv = open_at("test.db", NULL); /* a size limit: existing entries can be read */
    CHECK(is_value(&p, K("large"), large, MORE));
    kvstore_free(large);
    OK(kvstore_close(p.kv));
}

/* Each refusal takes as long as an open waits for a lock, so there are only a few. */
static void exclusive(void)
{
    if (is_of_files("a handle is never alone there")) return;
    files_are_plain();
    for (int mode = KVSTORE_JOURNAL_WAL; mode <= KVSTORE_JOURNAL_DELETE; mode++) {
        KVStoreConfig alone = {0}, other = {0};
        alone.journalMode = other.journalMode = mode;
        alone.exclusive = 1;
        struct place p = {open_at("test.db", &other), NULL};
        OK(AT(&p, put, K("key"), K("value")));
        if (mode == KVSTORE_JOURNAL_WAL) {
            NO_STORE(KVSTORE_BUSY, "test.db", &alone); /* it is not alone */
            OK(AT(&p, put, K("key"), K("value")));
        }
        OK(kvstore_close(p.kv));
        p.kv = open_at("test.db", &alone);
        NO_STORE(KVSTORE_BUSY, "test.db", &other); /* from the open on, before it writes */
        HAS(&p, "key", "value");
        OK(AT(&p, put, K("key"), K("value")));
        OK(kvstore_close(p.kv));
        p.kv = open_at("test.db", &other); /* until the close */
        HAS(&p, "key", "value");
        OK(kvstore_close(p.kv));
    }
}

static void close_rolls_back(void)
{
    struct place p = {open_at("test.db", NULL), NULL};
    OK(AT(&p, put, K("key"), K("value")));
    OK(kvstore_begin(p.kv, 1));
    OK(AT(&p, put, K("key"), K("lost")));
    KVColumnFamily *cf = NULL;
    KVIterator *it = NULL;
    OK(kvstore_cf_get_default(p.kv, &cf));
    OK(kvstore_iterator_create(p.kv, &it));
    OK(kvstore_iterator_first(it));
    OK(kvstore_close(p.kv));
    CHECK(!exists("test.db-wal")); /* really closed, although handles are still open */
    GIVES(KVSTORE_MISUSE, kvstore_close(p.kv));
    GIVES(KVSTORE_MISUSE, AT(&p, put, K("key"), K("value")));
    GIVES(KVSTORE_MISUSE, kvstore_cf_put(cf, K("key"), K("value")));
    GIVES(KVSTORE_MISUSE, kvstore_iterator_next(it));
    GIVES(KVSTORE_MISUSE, kvstore_set_clock(p.kv, NULL, NULL));
    CHECK(strlen(kvstore_errmsg(p.kv)) > 0);
    kvstore_iterator_close(it);
    kvstore_cf_close(cf);

    p.kv = open_at("test.db", NULL);
    HAS(&p, "key", "value");
    OK(kvstore_close(p.kv));
    OK(kvstore_close(NULL));
}

static void error_texts(void)
{
    CHECK(strcmp(kvstore_errmsg(NULL), "no error") == 0);
    struct place p = {open_at(NULL, NULL), NULL}, q = {open_at(NULL, NULL), NULL};
    OK(kvstore_cf_create(p.kv, "users", &p.cf));
    CHECK(strcmp(kvstore_errmsg(p.kv), "no error") == 0);
    void *value = NULL;
    int n = -1;
    GIVES(KVSTORE_NOTFOUND, AT(&p, get, K("missing"), &value, &n));
    CHECK(strcmp(kvstore_errmsg(p.kv), "no such key") == 0);

    GIVES(KVSTORE_ERROR, AT(&p, put, K(""), K("value"))); /* a family's failure is the store's */
    const char *text = kvstore_errmsg(p.kv);
    CHECK(strstr(text, "key") != NULL);
    char copy[500];
    snprintf(copy, sizeof copy, "%s", text);
    OK(AT(&p, put, K("key"), K("value")));
    CHECK(strcmp(text, copy) == 0 && strcmp(kvstore_errmsg(p.kv), copy) == 0); /* until the next failure */
    GIVES(KVSTORE_NOTFOUND, AT(&p, get, K("missing"), &value, &n));
    CHECK(strcmp(text, copy) == 0 && strcmp(kvstore_errmsg(p.kv), "no such key") == 0);
    GIVES(KVSTORE_ERROR, kvstore_commit(p.kv));
    CHECK(strcmp(kvstore_errmsg(p.kv), copy) != 0);

    CHECK(strcmp(kvstore_errmsg(q.kv), "no error") == 0); /* each store has its own */
    CHECK(strcmp(kvstore_errmsg(NULL), "no error") == 0); /* and the thread has the ones without a store */
    NO_STORE(KVSTORE_CANTOPEN, "missing/test.db", NULL);
    snprintf(copy, sizeof copy, "%s", kvstore_errmsg(NULL));
    GIVES(KVSTORE_ERROR, kvstore_put(NULL, K("key"), K("value")));
    CHECK(strcmp(kvstore_errmsg(NULL), copy) != 0);
    kvstore_cf_close(p.cf);
    OK(kvstore_close(p.kv));
    OK(kvstore_close(q.kv));
}

static void library(void)
{
    char version[50];
    snprintf(version, sizeof version, "%d.%d.%d", KVSTORE_VERSION_MAJOR, KVSTORE_VERSION_MINOR,
             KVSTORE_VERSION_PATCH);
    CHECK(strncmp(kvstore_version(), version, strlen(version)) == 0);
    const char *rest = kvstore_version() + strlen(version);
    int encrypts = strstr(kvstore_engine(), "+sqlcipher") != NULL;
    size_t told = encrypts ? strlen("+sqlcipher") : 0;
    CHECK(strncmp(rest, "+sqlcipher", told) == 0);
    CHECK(rest[told] == '\0' || strcmp(rest + told, "+remote") == 0);

    for (int n = 0; n <= 5000; n += 1 + n / 3) {
        char *memory = kvstore_malloc(n);
        CHECK(memory != NULL || n == 0);
        for (int i = 0; i < n; i++) {
            CHECK(memory[i] == 0);
        }
        if (memory != NULL) {
            memset(memory, 'x', (size_t)n); /* so that memory used again would show */
        }
        kvstore_free(memory);
    }
    CHECK(kvstore_malloc(-1) == NULL && kvstore_malloc(INT32_MIN) == NULL);
    kvstore_free(NULL);
}

static void codes(void)
{
    static const struct {
        int code, value;
    } all[] = {
        {KVSTORE_OK, 0},        {KVSTORE_ERROR, 1},        {KVSTORE_BUSY, 5},      {KVSTORE_LOCKED, 6},
        {KVSTORE_NOMEM, 7},     {KVSTORE_READONLY, 8},     {KVSTORE_IOERR, 10},    {KVSTORE_CORRUPT, 11},
        {KVSTORE_NOTFOUND, 12}, {KVSTORE_AUTH_FAILED, 13}, {KVSTORE_CANTOPEN, 14}, {KVSTORE_PROTOCOL, 15},
        {KVSTORE_MISUSE, 21},   {KVSTORE_NOTADB, 26},      {KVSTORE_FULL, 113},
    };
    static const int unknown[] = {-1, 2, 99, 100, 101, 261, 517, 1000, INT32_MAX, INT32_MIN};
    enum { N = sizeof all / sizeof *all };
    for (int i = 0; i < N; i++) {
        CHECK(all[i].code == all[i].value);
        const char *text = kvstore_strerror(all[i].code);
        CHECK(text != NULL && text[0] != '\0');
        for (int j = 0; j < i; j++) {
            CHECK(strcmp(text, kvstore_strerror(all[j].code)) != 0); /* each its own */
        }
        for (size_t j = 0; j < sizeof unknown / sizeof *unknown; j++) {
            CHECK(strcmp(text, kvstore_strerror(unknown[j])) != 0);
        }
    }
    CHECK(kvstore_strerror(-1) != NULL && kvstore_strerror(-1)[0] != '\0');
    CHECK(KVSTORE_CHECKPOINT_PASSIVE == 0 && KVSTORE_CHECKPOINT_FULL == 1);
    CHECK(KVSTORE_CHECKPOINT_RESTART == 2 && KVSTORE_CHECKPOINT_TRUNCATE == 3);
    CHECK(KVSTORE_MAX_COLUMN_FAMILIES == 64);
    CHECK(KVSTORE_NO_TTL == -1 && sizeof KVSTORE_NO_TTL == sizeof(int64_t));
}

/* The fields are in the documented order, without gaps, and have the documented types. */
#define INT(type, field, offset)                                                                         \
    _Static_assert(_Generic(((type *)0)->field, int: 1, default: 0), #field " is an int");               \
    _Static_assert(offsetof(type, field) == (offset), #field " is in its place")
INT(KVStoreConfig, journalMode, 0 * sizeof(int));
INT(KVStoreConfig, syncLevel, 1 * sizeof(int));
INT(KVStoreConfig, cacheSize, 2 * sizeof(int));
INT(KVStoreConfig, pageSize, 3 * sizeof(int));
INT(KVStoreConfig, readOnly, 4 * sizeof(int));
INT(KVStoreConfig, busyTimeout, 5 * sizeof(int));
INT(KVStoreConfig, walSizeLimit, 6 * sizeof(int));
INT(KVStoreConfig, allowEncrypted, 7 * sizeof(int));
INT(KVStoreConfig, fullMutex, 8 * sizeof(int));
INT(KVStoreConfig, maxValueSize, 9 * sizeof(int));
_Static_assert(_Generic(((KVStoreConfig *)0)->mmapSize, int64_t: 1, default: 0), "mmapSize is an int64_t");
_Static_assert(offsetof(KVStoreConfig, mmapSize) == 10 * sizeof(int), "mmapSize is in its place");
INT(KVStoreConfig, exclusive, 12 * sizeof(int));
INT(KVStoreConfig, holdReads, 13 * sizeof(int));
INT(KVStoreConfig, walPages, 14 * sizeof(int));
INT(KVStoreConfig, secureDelete, 15 * sizeof(int));
INT(KVStoreConfig, profile, 16 * sizeof(int));
INT(KVStoreConfig, mode, 17 * sizeof(int));
INT(KVStoreConfig, purgePerWrite, 18 * sizeof(int));
INT(KVStoreConfig, onlyEncrypted, 19 * sizeof(int));
INT(KVStoreConfig, reserved[0], 20 * sizeof(int));
_Static_assert(sizeof ((KVStoreConfig *)0)->reserved == 2 * sizeof(int), "two are reserved");
_Static_assert(sizeof(KVStoreConfig) == 22 * sizeof(int), "and there is nothing else");

#define COUNTER(field, index)                                                                            \
    _Static_assert(_Generic(((KVStoreStats *)0)->field, uint64_t: 1, default: 0), #field " is a uint64_t"); \
    _Static_assert(offsetof(KVStoreStats, field) == (index) * sizeof(uint64_t), #field " is in its place")
COUNTER(nPuts, 0);
COUNTER(nGets, 1);
COUNTER(nDeletes, 2);
COUNTER(nIterations, 3);
COUNTER(nErrors, 4);
COUNTER(nBytesRead, 5);
COUNTER(nBytesWritten, 6);
COUNTER(nWalCommits, 7);
COUNTER(nCheckpoints, 8);
COUNTER(nTtlExpired, 9);
COUNTER(nTtlPurged, 10);
COUNTER(nDbPages, 11);
COUNTER(nWalFrames, 12);
COUNTER(nMisses, 13);
COUNTER(nEvicted, 14);
COUNTER(nSizeBytes, 15);
COUNTER(reserved[0], 16);
_Static_assert(sizeof ((KVStoreStats *)0)->reserved == 4 * sizeof(uint64_t), "four are reserved");
_Static_assert(sizeof(KVStoreStats) == 20 * sizeof(uint64_t), "and there is nothing else");

SCENARIOS({"in_memory", in_memory}, {"in_a_file", in_a_file}, {"files_of_wal_mode", files_of_wal_mode},
          {"journal_modes_are_converted", journal_modes_are_converted}, {"other_files", other_files},
          {"read_only", read_only}, {"open_while_another_writes", open_while_another_writes},
          {"open_changes_nothing", open_changes_nothing}, {"config_bounds", config_bounds},
          {"every_setting_in_a_file", every_setting_in_a_file}, {"zero_is_the_default", zero_is_the_default},
          {"max_value_size", max_value_size}, {"exclusive", exclusive}, {"close_rolls_back", close_rolls_back},
          {"error_texts", error_texts}, {"library", library}, {"codes", codes})

/* A full disk, simulated by a limit on the size of this process's files. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "abuse_sample.h"

static KVStore *kv;
static uint64_t before;
static char chunk[4000];

static void limit(rlim_t bytes)
{
    struct rlimit now;

    CHECK(getrlimit(RLIMIT_FSIZE, &now) == 0);
    now.rlim_cur = bytes;
    CHECK(setrlimit(RLIMIT_FSIZE, &now) == 0);
}

static rlim_t size_of(const char *path)
{
    struct stat found;

    return stat(path, &found) == 0 ? (rlim_t)found.st_size : 0;
}

/* From now on no file of the store can grow by more than some bytes. */
static void fill_the_disk(rlim_t bytes_left)
{
    rlim_t wal = size_of("store.db-wal"), file = size_of("store.db"), shm = size_of("store.db-shm");

    limit((wal > file ? (wal > shm ? wal : shm) : (file > shm ? file : shm)) + bytes_left);
}

static void free_the_disk(void)
{
    limit(RLIM_INFINITY);
}

static void open_it(int mode, int cache_pages)
{
    KVStoreConfig cfg = {0};

    cfg.journalMode = mode;
    cfg.cacheSize = cache_pages;
    OK(kvstore_open_v2("store.db", &kv, &cfg));
    OK(kvstore_set_clock(kv, sample_clock, NULL));
}

static void set_up(int mode, int cache_pages)
{
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    memset(chunk, 'c', sizeof chunk);
    open_it(mode, cache_pages);
    sample_fill(kv);
    for (int i = 0; i < (under_valgrind() ? 20 : 100); i++) { /* rows to be overwritten */
        char key[20];

        OK(kvstore_put(kv, key, snprintf(key, sizeof key, "row %d", i), chunk, sizeof chunk));
    }
    before = fingerprint(kv);
}

/* Afterwards the content is as before, also in the file, and everything works. */
static void tear_down(int mode)
{
    free_the_disk();
    CHECK(fingerprint(kv) == before);
    OK(kvstore_integrity_check(kv, NULL));
    still_works(kv);
    OK(kvstore_close(kv));
    CHECK(size_of("store.db-wal") == 0 && size_of("store.db-journal") == 0);
    open_it(mode, 0);
    CHECK(fingerprint(kv) == before);
    OK(kvstore_integrity_check(kv, NULL));
    still_works(kv);
    OK(kvstore_close(kv));
    CHECK(remove("store.db") == 0);
}

static int is_full(int code)
{
    if (code != KVSTORE_FULL && code != KVSTORE_IOERR) {
        fprintf(stderr, "gave %d: %s\n", code, kvstore_errmsg(kv));
        return 0;
    }
    CHECK(*kvstore_errmsg(kv) != '\0' && strcmp(kvstore_errmsg(kv), "no error") != 0);
    return 1;
}

/* Puts keys until a put fails. Returns its code. */
static int put_until_full(void)
{
    char key[20];
    int code;

    for (int i = 0; i < 100000; i++) {
        code = kvstore_put_ttl(kv, key, snprintf(key, sizeof key, "row %d", i), chunk, sizeof chunk,
                               SAMPLE_NOW + 1 + i);
        if (code != KVSTORE_OK) {
            CHECK(is_full(code));
            return code;
        }
    }
    CHECK(!"the disk is full");
    return 0;
}

/* After a failed write, a transaction accepts nothing but a rollback. */
static void is_doomed(int code)
{
    KVColumnFamily *cf;

    REFUSED(code, kvstore_put(kv, "plain", 5, "new", 3));
    CHECK(strstr(kvstore_errmsg(kv), "roll") != NULL); /* names the remedy */
    REFUSED(code, kvstore_put_ttl(kv, "plain", 5, "new", 3, SAMPLE_NOW * 2));
    REFUSED(code, kvstore_put_if_absent(kv, "new", 3, "v", 1, 0, &out.n));
    REFUSED(code, kvstore_delete(kv, "plain", 5));
    REFUSED(code, kvstore_clear(kv));
    REFUSED(code, kvstore_purge_expired(kv, &out.n));
    REFUSED(code, kvstore_cf_drop(kv, "other"));
    REFUSED_HANDLE(code, cf, kvstore_cf_create(kv, "new", &cf));
    REFUSED(code, kvstore_incremental_vacuum(kv, 0));
    REFUSED(KVSTORE_ERROR, kvstore_begin(kv, 1));
    REFUSED(KVSTORE_BUSY, kvstore_checkpoint(kv, KVSTORE_CHECKPOINT_PASSIVE, &out.n, &out.m));
    for (int i = 0; i < 3; i++) {
        REFUSED(code, kvstore_commit(kv));
        CHECK(strstr(kvstore_errmsg(kv), "roll") != NULL);
    }
    REFUSED(KVSTORE_ERROR, kvstore_put(kv, "", 0, "v", 1)); /* a wrong argument is still one */
}

/* With a small cache the pages of the transaction are written before it ends. */
static void in_transaction(int mode, int room)
{
    int code;

    set_up(mode, 10);
    fill_the_disk((rlim_t)room);
    OK(kvstore_begin(kv, 1));
    code = put_until_full();
    is_doomed(code);
    OK(kvstore_rollback(kv));
    GIVES(KVSTORE_ERROR, kvstore_rollback(kv));
    GIVES(KVSTORE_ERROR, kvstore_commit(kv));
    CHECK(fingerprint(kv) == before); /* it can be read while the disk is full */
    OK(kvstore_integrity_check(kv, NULL));
    tear_down(mode);
}

static void transaction(void)
{
    static const int rooms[] = {300000, 0, 100, 4096, 50000};

    for (size_t i = under_valgrind() ? 4 : 0; i < sizeof rooms / sizeof *rooms; i++) {
        in_transaction(KVSTORE_JOURNAL_WAL, rooms[i]);
        in_transaction(KVSTORE_JOURNAL_DELETE, rooms[i]);
    }
}

/* The file size limit is lifted before the rollback: the transaction stays failed. */
static void transaction_and_space_again(void)
{
    for (int mode = KVSTORE_JOURNAL_WAL; mode <= KVSTORE_JOURNAL_DELETE; mode++) {
        int code;

        set_up(mode, 10);
        fill_the_disk(50000);
        OK(kvstore_begin(kv, 1));
        code = put_until_full();
        free_the_disk();
        is_doomed(code);
        if (mode == KVSTORE_JOURNAL_WAL) {
            OK(kvstore_rollback(kv));
        } else { /* or without a rollback: close does it */
            OK(kvstore_close(kv));
            open_it(mode, 10);
        }
        tear_down(mode);
    }
}

/* With a large cache only the commit fails. */
static void commit(void)
{
    for (int mode = KVSTORE_JOURNAL_WAL; mode <= KVSTORE_JOURNAL_DELETE; mode++) {
        char key[20];
        int code;

        set_up(mode, 0);
        fill_the_disk(5000);
        OK(kvstore_begin(kv, 1));
        for (int i = 0; i < 200; i++) {
            code = kvstore_put(kv, key, snprintf(key, sizeof key, "new %d", i), chunk, sizeof chunk);
            CHECK(code == KVSTORE_OK || (mode == KVSTORE_JOURNAL_DELETE && is_full(code)));
        }
        code = kvstore_commit(kv);
        CHECK(is_full(code));
        is_doomed(code);
        OK(kvstore_rollback(kv));
        CHECK(fingerprint(kv) == before);
        tear_down(mode);
    }
}

/* Each call is a transaction of its own. It fails alone, and does not affect the next one. */
static void alone(void)
{
    for (int mode = KVSTORE_JOURNAL_WAL; mode <= KVSTORE_JOURNAL_DELETE; mode++) {
        char *large = calloc(1, 1000000);
        KVColumnFamily *cf;
        int n;

        set_up(mode, 10);
        OK(kvstore_cf_open(kv, "other", &cf));
        fill_the_disk(100000);
        for (int i = 0; i < (under_valgrind() ? 1 : 3); i++) {
            CHECK(is_full(kvstore_put(kv, "large", 5, large, 1000000)));
            CHECK(is_full(kvstore_put(kv, "new", 3, large, 1000000)));
            CHECK(is_full(kvstore_put_ttl(kv, "plain", 5, large, 1000000, SAMPLE_NOW * 2)));
            CHECK(is_full(kvstore_cf_put_if_absent(cf, "new", 3, large, 1000000, 0, &n)));
            CHECK(fingerprint(kv) == before);
            GIVES(KVSTORE_ERROR, kvstore_commit(kv)); /* no transaction has stayed open */
        }
        OK(kvstore_integrity_check(kv, NULL));
        kvstore_cf_close(cf);
        free(large);
        tear_down(mode);
    }
}

/* Writes until nothing fits at all. All smaller writes before are present. */
static void until_full(void)
{
    for (int mode = KVSTORE_JOURNAL_WAL; mode <= KVSTORE_JOURNAL_DELETE; mode++) {
        char key[20];
        void *value;
        int n, written, code;

        set_up(mode, 0);
        fill_the_disk(under_valgrind() ? 60000 : 200000);
        for (written = 0;; written++) {
            n = snprintf(key, sizeof key, "small %06d", written);
            code = kvstore_put(kv, key, n, chunk, 1000);
            if (code != KVSTORE_OK) {
                CHECK(is_full(code));
                break;
            }
        }
        CHECK(written > 2);
        GIVES(KVSTORE_NOTFOUND, kvstore_get(kv, key, n, &value, &n));
        for (int i = 0; i < written; i++) {
            n = snprintf(key, sizeof key, "small %06d", i);
            OK(kvstore_exists(kv, key, n, &n));
            CHECK(n == 1);
        }
        /* An expired key is not returned, though its row cannot be removed. */
        GIVES(KVSTORE_NOTFOUND, kvstore_get(kv, "dead", 4, &value, &n));
        OK(kvstore_exists(kv, "dead", 4, &n));
        CHECK(n == 0);
        OK(kvstore_integrity_check(kv, NULL));
        free_the_disk();
        GIVES(KVSTORE_NOTFOUND, kvstore_get(kv, "dead", 4, &value, &n));
        before = fingerprint(kv);
        tear_down(mode);
    }
}

/* A checkpoint that cannot write the file loses nothing: the WAL still has all data. */
static void checkpoint(void)
{
    rlim_t file;
    int log, done, code;

    set_up(KVSTORE_JOURNAL_WAL, 0);
    file = size_of("store.db");
    CHECK(size_of("store.db-wal") > 0);
    limit(file);
    for (int mode = KVSTORE_CHECKPOINT_PASSIVE; mode <= KVSTORE_CHECKPOINT_TRUNCATE; mode++) {
        set_outputs();
        code = kvstore_checkpoint(kv, mode, &out.n, &out.m);
        CHECK(is_full(code) && outputs_are_untouched());
        CHECK(fingerprint(kv) == before);
    }
    /* A close cannot write it either. Its code is not specified, but nothing is lost. */
    code = kvstore_close(kv);
    CHECK(code == KVSTORE_OK || code == KVSTORE_FULL || code == KVSTORE_IOERR);
    free_the_disk();
    open_it(KVSTORE_JOURNAL_WAL, 0);
    CHECK(fingerprint(kv) == before);
    OK(kvstore_checkpoint(kv, KVSTORE_CHECKPOINT_TRUNCATE, &log, &done));
    tear_down(KVSTORE_JOURNAL_WAL);
}

/* A store that cannot be created for lack of space can be created later. */
static void opening(void)
{
    static const rlim_t limits[] = {0, 100, 1000, 4096, 8192, 10000, 20000, 33000};

    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    for (int mode = KVSTORE_JOURNAL_WAL; mode <= KVSTORE_JOURNAL_DELETE; mode++) {
        for (size_t i = 0; i < sizeof limits / sizeof *limits; i += under_valgrind() ? 3 : 1) {
            KVStore *made = UNTOUCHED_POINTER;
            int code;

            limit(limits[i]);
            code = kvstore_open("new.db", &made, mode);
            free_the_disk();
            if (code == KVSTORE_OK) {
                OK(kvstore_close(made));
            } else {
                CHECK(code == KVSTORE_FULL || code == KVSTORE_IOERR || code == KVSTORE_CANTOPEN);
                CHECK(made == NULL && strcmp(kvstore_errmsg(NULL), "no error") != 0);
            }
            OK(kvstore_open("new.db", &made, mode));
            OK(kvstore_set_clock(made, sample_clock, NULL));
            sample_fill(made);
            still_works(made);
            OK(kvstore_close(made));
            CHECK(remove("new.db") == 0);
        }
    }
}

static int64_t later_clock(void *context)
{
    (void)context;
    return SAMPLE_NOW * 2;
}

/* A store that has filled the files that its process may write frees itself by a purge, and takes
 * as much again. (A WAL that grew to the limit could not be copied into the database.) */
static void limit_from_the_start(void)
{
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    memset(chunk, 'c', sizeof chunk);
    for (int mode = KVSTORE_JOURNAL_WAL; mode <= KVSTORE_JOURNAL_DELETE; mode++) {
        int64_t rows[2] = {0, 0};
        limit(600 * 1024);
        open_it(mode, 0);
        for (int round = 0; round < 2; round++) {
            OK(kvstore_set_clock(kv, sample_clock, NULL));
            put_until_full();
            OK(kvstore_count(kv, &rows[round]));
            OK(kvstore_set_clock(kv, later_clock, NULL));
            OK(kvstore_purge_expired(kv, &out.n));
            CHECK(out.n == rows[round]);
        }
        CHECK(rows[0] > 50 && rows[1] > rows[0] - rows[0] / 10);
        OK(kvstore_integrity_check(kv, NULL));
        OK(kvstore_close(kv));
        free_the_disk();
        CHECK(remove("store.db") == 0);
    }
}

SCENARIOS({"transaction", transaction}, {"transaction_and_space_again", transaction_and_space_again},
          {"commit", commit}, {"alone", alone}, {"until_full", until_full},
          {"checkpoint", checkpoint}, {"opening", opening},
          {"limit_from_the_start", limit_from_the_start})

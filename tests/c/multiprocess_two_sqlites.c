/*
 * Two copies of SQLite in one process on one store. Closing a file through one copy does not release the locks of
 * the other, as seen by a third process, and no commit is lost.
 *
 *     holds MODE [alone]            every lock held by either copy, while the other closes a file
 *     commits MODE N SEED [alone]   N commits by each copy, while a third process writes as well
 *
 * MODE is wal or delete; "alone": without the other copy (for kernels without open file description locks).
 */
#include "multiprocess.h"

/* ---- checks of the third process ------------------------------------------------------------------ */

/* "look-wal" and "look-delete", WHAT: a "read" or "write" lock is held. */
static void look(int wal, const char *what)
{
    int write = strcmp(what, "write") == 0;
    char shared = lock_at(STORE, SHARED_FIRST, SHARED_COUNT), reserved = lock_at(STORE, RESERVED_BYTE, 1);
    struct stock s;
    KVStore *kv;
    int rc;

    if (shared != 'r') fail("the store's lock for readers is '%c', not 'r'", shared);
    if (wal) {
        char dms = lock_at(STORE "-shm", SHM_DMS, 1), mark = lock_at(STORE "-shm", SHM_READ, 5);
        char writer = lock_at(STORE "-shm", SHM_WRITE, 1);
        if (dms != 'r') fail("the lock that says that -shm is in use is '%c', not 'r'", dms);
        if (mark != 'r') fail("the lock of the snapshot is '%c', not 'r'", mark);
        if (writer != (write ? 'w' : '-')) fail("the lock of the writer is '%c'", writer);
    } else if (reserved != (write ? 'w' : '-')) {
        fail("the lock of the writer is '%c'", reserved);
    }

    s = open_stock();
    if (write) {
        if (!is_busy(rc = run_stock(&s, "BEGIN IMMEDIATE"))) fail("stock may write beside a writer: %d", rc);
        kv = open_ours(wal ? "wal" : "delete");
        MUST(KVSTORE_BUSY, kv, kvstore_put(kv, "probe", 5, "third", 5));
        close_ours(kv);
    } else if (wal) {
        /* A write is fine; the snapshot stays. */
        must_run_stock(&s, "INSERT OR REPLACE INTO \"data:default\"(key, value) VALUES (CAST('probe' AS BLOB), CAST('third' AS BLOB))");
        if (number_of_stock(&s, "PRAGMA wal_checkpoint(TRUNCATE)") != 1) fail("a checkpoint went over a reader");
    } else {
        must_run_stock(&s, "BEGIN IMMEDIATE");
        must_run_stock(&s, "INSERT OR REPLACE INTO \"data:default\"(key, value) VALUES (CAST('probe' AS BLOB), CAST('third' AS BLOB))");
        if (!is_busy(rc = run_stock(&s, "COMMIT"))) fail("stock commits beside a reader: %d", rc);
        must_run_stock(&s, "ROLLBACK");
    }
    close_stock(&s);
    /* The last to close would remove them. */
    if (wal && (!is_there(STORE "-wal") || !is_there(STORE "-shm"))) {
        fail("the third process took itself for the last, and removed the WAL");
    }
}

/* "free MODE": a writer is not blocked. */
static void is_free(const char *mode)
{
    KVStore *kv = open_ours(mode);
    struct stock s;
    WORKS(kv, kvstore_put(kv, "probe", 5, "free", 4));
    WORKS(kv, kvstore_checkpoint(kv, KVSTORE_CHECKPOINT_TRUNCATE, NULL, NULL));
    close_ours(kv);
    s = open_stock();
    if (run_stock(&s, "BEGIN EXCLUSIVE; ROLLBACK") != SQLITE_OK) fail("stock cannot write at once: %s", STOCK(errmsg)(s.db));
    close_stock(&s);
}

/* ---- holding and closing ------------------------------------------------------------------------------ */

enum closing {
    OTHER_OPENS_AND_CLOSES,
    OTHER_CLOSES_A_SECOND,
    OWN_CLOSES_A_SECOND,
    OWN_OPENS_AND_CLOSES,
    OURS_READ_ONLY,     /* for the other, where that is ours */
    OURS_REFUSED,       /* an open that fails */
    OURS_KEEPS_HOUSE,   /* sync, checkpoint, backup, check */
    THE_PROGRAM_READS,  /* the files as bytes, as cp does; stock alone does not survive that */
    CLOSINGS
};

static const char *const closing_names[CLOSINGS] = {
    "the other opens, reads, closes", "the other closes its second", "its own second is closed",
    "its own is opened again and closed", "ours opens read-only, reads, closes", "ours fails to open",
    "ours syncs, checkpoints, checks, backs up", "the program reads the files",
};

static void read_bytes(const char *path)
{
    char bytes[4096];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    while (read(fd, bytes, sizeof bytes) > 0) {
    }
    close(fd);
}

static void read_ours(KVStore *kv)
{
    int there, rc;
    PATIENTLY(rc, kvstore_exists(kv, "probe", 5, &there));
    WORKS(kv, rc);
    CHECK(there);
}

static void read_stock(struct stock *s)
{
    CHECK(number_of_stock(s, "SELECT count(*) FROM \"data:default\"") > 0);
}

static void close_something(const char *mode, int ours, enum closing closing, KVStore **second_ours,
                            struct stock *second_stock)
{
    KVStoreConfig config = ours_config(mode);
    KVStore *kv;
    struct stock s;
    int rc;

    switch (closing) {
    case OTHER_CLOSES_A_SECOND:
    case OWN_CLOSES_A_SECOND:
        if (ours) {
            close_ours(*second_ours);
            *second_ours = NULL;
        } else {
            close_stock(second_stock);
        }
        break;
    case OTHER_OPENS_AND_CLOSES:
    case OWN_OPENS_AND_CLOSES:
        if (ours) {
            kv = open_ours(mode);
            read_ours(kv);
            close_ours(kv);
        } else {
            s = open_stock();
            read_stock(&s);
            close_stock(&s);
        }
        break;
    case OURS_READ_ONLY:
        config.readOnly = 1;
        WORKS(NULL, kvstore_open_v2(STORE, &kv, &config));
        read_ours(kv);
        close_ours(kv);
        break;
    case OURS_REFUSED:
        config.journalMode = is_wal(mode) ? KVSTORE_JOURNAL_DELETE : KVSTORE_JOURNAL_WAL;
        MUST(KVSTORE_BUSY, NULL, kvstore_open_v2(STORE, &kv, &config));
        config.journalMode = 0;
        config.pageSize = 3;
        MUST(KVSTORE_ERROR, NULL, kvstore_open_v2(STORE, &kv, &config));
        break;
    case OURS_KEEPS_HOUSE:
        kv = *second_ours;
        read_ours(kv);
        rc = kvstore_sync(kv);
        CHECK(rc == KVSTORE_OK || rc == KVSTORE_BUSY); /* while another process writes */
        rc = kvstore_checkpoint(kv, KVSTORE_CHECKPOINT_PASSIVE, NULL, NULL);
        CHECK(rc == KVSTORE_OK || rc == KVSTORE_BUSY);
        WORKS(kv, kvstore_integrity_check(kv, NULL));
        unlink("copy.db");
        WORKS(kv, kvstore_backup(kv, "copy.db", NULL, NULL));
        close_ours(*second_ours);
        *second_ours = NULL;
        break;
    case THE_PROGRAM_READS:
        read_bytes(STORE);
        read_bytes(STORE "-wal");
        read_bytes(STORE "-shm");
        break;
    case CLOSINGS:
        break;
    }
}

static void hold_and_close(const char *mode, int ours_holds, int write, enum closing closing, int alone)
{
    int ours_closes = closing == OWN_CLOSES_A_SECOND || closing == OWN_OPENS_AND_CLOSES ? ours_holds : !ours_holds;
    KVStore *held_ours = NULL, *second_ours = NULL;
    struct stock held_stock, second_stock;
    char *value;
    int length;

    printf("%s: %s holds a %s lock; %s\n", mode, ours_holds ? "ours" : "stock", write ? "write" : "read",
           closing_names[closing]);
    fflush(stdout);
    if (ours_holds) held_ours = open_ours(mode);
    else held_stock = open_stock();
    if (ours_closes) second_ours = open_ours(mode);
    else if (!alone) second_stock = open_stock();
    if (second_ours) read_ours(second_ours);
    else if (!alone) read_stock(&second_stock);

    if (ours_holds) {
        WORKS(held_ours, kvstore_begin(held_ours, write));
        read_ours(held_ours);
        if (write) WORKS(held_ours, kvstore_put(held_ours, "probe", 5, "mine", 4));
    } else {
        must_run_stock(&held_stock, write ? "BEGIN IMMEDIATE" : "BEGIN");
        read_stock(&held_stock);
        if (write) put_stock(&held_stock, "probe", 5, "mine", 4);
    }

    close_something(mode, ours_closes, closing, &second_ours, &second_stock);
    run_role(is_wal(mode) ? "look-wal" : "look-delete", write ? "write" : "read", NULL, NULL);

    if (ours_holds) {
        WORKS(held_ours, kvstore_get(held_ours, "probe", 5, (void **)&value, &length));
        if (strcmp(value, write ? "mine" : "at first") != 0) fail("the transaction finds \"%s\"", value);
        kvstore_free(value);
        WORKS(held_ours, kvstore_commit(held_ours));
        close_ours(held_ours);
    } else {
        if (number_of_stock(&held_stock, write ? "SELECT count(*) FROM \"data:default\" WHERE value = CAST('mine' AS BLOB)"
                                               : "SELECT count(*) FROM \"data:default\" WHERE value = CAST('at first' AS BLOB)") != 1) {
            fail("the transaction of stock finds something else");
        }
        if (run_stock(&held_stock, "COMMIT") != SQLITE_OK) fail("commit by stock: %s", STOCK(errmsg)(held_stock.db));
        close_stock(&held_stock);
    }
    if (second_ours) close_ours(second_ours);
    if (!ours_closes && !alone && closing != OTHER_CLOSES_A_SECOND && closing != OWN_CLOSES_A_SECOND) {
        close_stock(&second_stock);
    }
    if (is_wal(mode) && (is_there(STORE "-wal") || is_there(STORE "-shm"))) {
        fail("after the last close the WAL is still there");
    }
    run_role("unlocked", NULL, NULL, NULL);
    run_role("free", mode, NULL, NULL);
}

static void holds(const char *mode, int alone)
{
    int tried = 0;

    for (int ours_holds = !alone ? 0 : 1; ours_holds < 2; ours_holds++) {
        for (int write = 0; write < 2; write++) {
            for (enum closing closing = 0; closing < CLOSINGS; closing++) {
                int own = closing == OWN_CLOSES_A_SECOND || closing == OWN_OPENS_AND_CLOSES;
                KVStore *kv;

                if (alone && !own) continue;
                if (ours_holds ? closing >= OURS_READ_ONLY && closing <= OURS_KEEPS_HOUSE : closing == THE_PROGRAM_READS) {
                    continue;
                }
                if (closing == OURS_REFUSED && (write || !is_wal(mode))) continue; /* it takes 2 s */
                limit_time(60);
                kv = open_ours(mode);
                WORKS(kv, kvstore_put(kv, "probe", 5, "at first", 8));
                close_ours(kv);
                hold_and_close(mode, ours_holds, write, closing, alone);
                tried++;
            }
        }
    }
    printf("%s: %d cases\n", mode, tried);
}

/* ---- many commits ------------------------------------------------------------------------------------- */

static const char *the_mode;
static uint64_t commits_each, seed;

enum { OURS, THIRD_OURS, STOCK_WRITER, THIRD_STOCK };

static void *commits_by_ours(void *unused)
{
    struct chance chance = seeded(seed + 1);
    KVStore *kv = open_ours(the_mode), *second;
    (void)unused;
    while (acknowledged_of(OURS) < commits_each) {
        commit_ours(kv, OURS);
        switch (below(&chance, 60)) {
        case 0: /* as a program does that opens where it needs it */
            second = open_ours(the_mode);
            counter_of_ours(second, STOCK_WRITER);
            close_ours(second);
            break;
        case 1:
            close_ours(kv);
            kv = open_ours(the_mode);
            break;
        case 2: verify_ours(kv, 0); break;
        default: break;
        }
    }
    close_ours(kv);
    return NULL;
}

static void *commits_by_stock(void *unused)
{
    struct chance chance = seeded(seed + 2);
    struct stock s = open_stock(), second;
    (void)unused;
    while (acknowledged_of(STOCK_WRITER) < commits_each) {
        commit_stock(&s, STOCK_WRITER);
        switch (below(&chance, 60)) {
        case 0:
            second = open_stock();
            counter_of_stock(&second, OURS);
            close_stock(&second);
            break;
        case 1:
            close_stock(&s);
            s = open_stock();
            break;
        case 2: verify_stock(&s, 0); break;
        default: break;
        }
    }
    close_stock(&s);
    return NULL;
}

/* "third MODE SEED [alone]": writes until it is asked to stop, alternately as ours and as stock, never both
 * at once. */
static void third(const char *mode, const char *number, int alone)
{
    struct chance chance = seeded(strtoull(number, NULL, 10) + 3);
    while (!atomic_load(&ledger->stop)) {
        unsigned turns = 1 + below(&chance, 200);
        limit_time(60);
        if (alone || below(&chance, 2)) {
            KVStore *kv = open_ours(mode);
            while (turns-- && !atomic_load(&ledger->stop)) commit_ours(kv, THIRD_OURS);
            close_ours(kv);
        } else {
            struct stock s = open_stock();
            while (turns-- && !atomic_load(&ledger->stop)) commit_stock(&s, THIRD_STOCK);
            close_stock(&s);
        }
    }
}

static void commits(const char *mode, const char *n, const char *number, int alone)
{
    pthread_t ours, stock;
    struct other other;

    the_mode = mode;
    commits_each = strtoull(n, NULL, 10);
    seed = strtoull(number, NULL, 10);
    open_ledger();
    close_ours(open_ours(mode));
    other = start_other("third", mode, number, alone ? "alone" : NULL);
    CHECK(pthread_create(&ours, NULL, commits_by_ours, NULL) == 0);
    if (!alone) CHECK(pthread_create(&stock, NULL, commits_by_stock, NULL) == 0);
    CHECK(pthread_join(ours, NULL) == 0);
    if (!alone) CHECK(pthread_join(stock, NULL) == 0);
    atomic_store(&ledger->stop, 1);
    finish(&other, 60, "the third process");
    run_role("unlocked", NULL, NULL, NULL);
    run_role("verify", mode, NULL, NULL);
    printf("%s: %llu commits by ours, %llu by stock, %llu and %llu by a third process\n", mode,
           (unsigned long long)acknowledged_of(OURS), (unsigned long long)acknowledged_of(STOCK_WRITER),
           (unsigned long long)acknowledged_of(THIRD_OURS), (unsigned long long)acknowledged_of(THIRD_STOCK));
}

int main(int argc, char **argv)
{
    const char *role = argc > 1 ? argv[1] : "", *a = argc > 2 ? argv[2] : "";

    can_say_where();
    load_stock();
    if (!strcmp(role, "holds")) {
        holds(a, argc > 3);
    } else if (!strcmp(role, "commits") && argc > 4) {
        commits(a, argv[3], argv[4], argc > 5);
    } else if (!strcmp(role, "look-wal") || !strcmp(role, "look-delete")) {
        limit_time(60);
        look(!strcmp(role, "look-wal"), a);
    } else if (!strcmp(role, "free")) {
        limit_time(60);
        is_free(a);
    } else if (!strcmp(role, "unlocked")) {
        must_be_unlocked("after the last close");
    } else if (!strcmp(role, "third") && argc > 3) {
        open_ledger();
        third(a, argv[3], argc > 4);
    } else if (!strcmp(role, "stop")) {
        open_ledger();
        atomic_store(&ledger->stop, 1);
    } else if (!strcmp(role, "verify")) {
        open_ledger();
        verify_role(a, 1);
    } else {
        fprintf(stderr, "no such role\n");
        return 2;
    }
    return 0;
}

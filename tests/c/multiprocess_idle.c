/*
 * Idle processes that have read, while another one writes: the WAL stays within its bound.
 *
 *     writes PUTS HOLD WHEN MODE SEED   three readers, opened before the writer ("before") or after it ("after"); MODE:
 *                                       "once" (they read once), "now-and-then" (they read at long intervals)
 *     matrix                            which handle keeps a snapshot between calls, alone and with other processes, for
 *                                       each holdReads
 *     joined HOLD                       a process reads while it is alone, and is idle when a writer starts: with holdReads 0
 *                                       it releases its snapshot at its next call
 *
 * HOLD is holdReads: 0, 1 or -1; or "small", for the profile.
 */
#include "multiprocess.h"

enum {
    PAGES = 4000, /* the automatic checkpoint */
    FRAME = 4096 + 24,
    BOUND = 4 * PAGES,
    READERS = 3,
};

static KVStore *open_holding(const char *hold)
{
    KVStoreConfig config = ours_config("wal");
    KVStore *kv;
    int rc;
    config.holdReads = atoi(hold);
    if (!strcmp(hold, "small")) config.profile = KVSTORE_SMALL;
    config.syncLevel = 0;
    PATIENTLY(rc, kvstore_open_v2(STORE, &kv, &config));
    WORKS(NULL, rc);
    return kv;
}

static int64_t wal_pages(void)
{
    struct stat st;
    return stat(STORE "-wal", &st) == 0 ? (int64_t)st.st_size / FRAME : 0;
}

/* "reader HOLD": opens; then reads once for each byte it gets, and answers with one. What it reads is never older than
 * what was acknowledged. */
static void reader(const char *hold)
{
    KVStore *kv = open_holding(hold);
    open_ledger();
    say(1);
    while (hears(0)) {
        uint64_t before = acknowledged_of(0), found;
        found = counter_of_ours(kv, 0);
        judge("an idle reader", 0, before, found);
        say(1);
    }
    close_ours(kv);
}

static void put_at_random(KVStore *kv, struct chance *chance, uint64_t n)
{
    char key[24], value[100];
    memset(value, 'v', sizeof value);
    WORKS(kv, kvstore_put(kv, key, sprintf(key, "key %07u", below(chance, 200000)), value, sizeof value));
    if (n % 1000 == 0) commit_ours(kv, 0);
}

static void read_once(struct other *other)
{
    say(other->to);
    hear(other->from, 60, "a reader");
}

/* One process writes. The WAL file is never truncated, so its size is its maximum so far. */
static void writes(uint64_t puts, const char *hold, const char *when, const char *how, uint64_t seed)
{
    struct chance chance = seeded(seed);
    struct other readers[READERS];
    KVStore *kv = NULL;
    int64_t most = 0;
    int before = !strcmp(when, "before"), now_and_then = !strcmp(how, "now-and-then");

    open_ledger();
    kv = open_holding(hold);
    commit_ours(kv, 0);
    if (before) close_ours(kv);
    for (int i = 0; i < READERS; i++) {
        readers[i] = start_other("reader", hold, NULL, NULL);
        hear(readers[i].from, 60, "a reader");
    }
    if (before) kv = open_holding(hold);
    for (int i = 0; i < READERS; i++) read_once(&readers[i]);
    for (uint64_t n = 1; n <= puts; n++) {
        put_at_random(kv, &chance, n);
        if (now_and_then && below(&chance, 5000) == 0) read_once(&readers[below(&chance, READERS)]);
        if (n % 500 == 0) {
            int64_t pages = wal_pages();
            limit_time(60);
            if (pages > most) most = pages;
            if (pages > BOUND) {
                fail("after %llu puts the WAL has %lld pages; the bound is %d", (unsigned long long)n, (long long)pages, BOUND);
            }
        }
    }
    for (int i = 0; i < READERS; i++) { /* they find the last commit, and nothing older */
        read_once(&readers[i]);
        finish(&readers[i], 60, "a reader");
    }
    WORKS(kv, kvstore_integrity_check(kv, NULL));
    close_ours(kv);
    printf("%llu puts beside %d readers (%s, holdReads %s, open %s the writer): the WAL had at most %lld pages\n",
           (unsigned long long)puts, READERS, how, hold, when, (long long)most);
}

/* Returns whether a process keeps a snapshot: then a checkpoint by the stock SQLite of another process cannot
 * reset the WAL. */
static void checks(const char *expected)
{
    struct stock s = open_stock();
    char found[2] = {number_of_stock(&s, "PRAGMA wal_checkpoint(TRUNCATE)") ? '1' : '0', 0};
    close_stock(&s);
    if (strcmp(found, expected) != 0) {
        fail("a snapshot is %s", *found == '1' ? "kept, and should not be" : "not kept, and should be");
    }
}

static void matrix(void)
{
    static const struct {
        const char *hold, *alone, *when_shared;
    } cases[] = {{"0", "1", "0"}, {"1", "1", "1"}, {"-1", "0", "0"}, {"small", "0", "0"}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int shared = 0; shared < 2; shared++) {
            const char *expected = shared ? cases[i].when_shared : cases[i].alone;
            struct other first, second;
            KVStore *kv;

            limit_time(60);
            printf("holdReads %s, %s: %s\n", cases[i].hold, shared ? "shared" : "alone",
                   *expected == '1' ? "a snapshot is kept" : "none is kept");
            fflush(stdout);
            kv = open_holding("0"); /* so that there is a WAL for a snapshot */
            open_ledger();
            commit_ours(kv, 0);
            first = start_other("reader", cases[i].hold, NULL, NULL);
            hear(first.from, 60, "a reader");
            if (shared) {
                second = start_other("reader", cases[i].hold, NULL, NULL);
                hear(second.from, 60, "a reader");
            }
            commit_ours(kv, 0);
            close_ours(kv);
            read_once(&first);
            run_role("checks", expected, NULL, NULL);
            if (shared) {
                read_once(&second);
                run_role("checks", expected, NULL, NULL);
                finish(&second, 60, "a reader");
                /* A process that is alone again keeps a snapshot again, after some hundred reads. */
                kv = open_holding("0");
                commit_ours(kv, 0);
                close_ours(kv);
                for (int n = 0; n < 300; n++) read_once(&first);
                run_role("checks", cases[i].alone, NULL, NULL);
            }
            finish(&first, 60, "a reader");
        }
    }
}

/* A process reads while it is alone, sits idle, and then a writer starts. */
static void joined(const char *hold)
{
    struct chance chance = seeded(1);
    struct other first;
    KVStore *kv;
    int64_t pages = 0;

    open_ledger();
    kv = open_holding("0");
    commit_ours(kv, 0);
    first = start_other("reader", hold, NULL, NULL);
    hear(first.from, 60, "a reader");
    commit_ours(kv, 0);
    close_ours(kv);
    read_once(&first);
    kv = open_holding("0");
    for (uint64_t n = 1; n <= BOUND * 2 && pages <= BOUND; n++) {
        put_at_random(kv, &chance, n);
        if (n % 500 == 0) pages = wal_pages();
    }
    limit_time(60);
    if (pages > BOUND && (atoi(hold) < 0 || !strcmp(hold, "small"))) fail("the WAL has %lld pages beside a reader that keeps nothing", (long long)pages);
    read_once(&first);
    WORKS(kv, kvstore_checkpoint(kv, KVSTORE_CHECKPOINT_TRUNCATE, NULL, NULL));
    CHECK(wal_pages() == 0);
    for (uint64_t n = 1; n <= BOUND * 2; n++) {
        put_at_random(kv, &chance, n);
        if (n % 500 == 0 && wal_pages() > BOUND) fail("the reader has not let go with its next call");
    }
    finish(&first, 60, "a reader");
    close_ours(kv);
    printf("holdReads %s: a reader that was alone, went idle and was joined: the WAL had %s %d pages\n", hold,
           pages > BOUND ? "more than" : "at most", BOUND);
}

int main(int argc, char **argv)
{
    const char *role = argc > 1 ? argv[1] : "";

    can_say_where();
    load_stock();
    limit_time(60);
    if (!strcmp(role, "writes") && argc == 7) {
        writes(strtoull(argv[2], NULL, 10), argv[3], argv[4], argv[5], strtoull(argv[6], NULL, 10));
    } else if (!strcmp(role, "matrix")) {
        matrix();
    } else if (!strcmp(role, "joined") && argc == 3) {
        joined(argv[2]);
    } else if (!strcmp(role, "reader") && argc == 3) {
        alarm(0); /* idle for as long as it takes; it ends with its stdin */
        reader(argv[2]);
    } else if (!strcmp(role, "checks") && argc == 3) {
        checks(argv[2]);
    } else {
        fprintf(stderr, "no such role\n");
        return 2;
    }
    return 0;
}

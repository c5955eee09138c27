/* Forked children: the parent's handles return errors and do no harm; handles that the child
 * opens itself work. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abuse_sample.h"

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define VALGRIND_COUNT_ERRORS 0
#endif

static KVStore *kv;
static KVColumnFamily *other;
static KVIterator *it, *back;
static uint64_t before;

static void set_up(void)
{
    kv = sample_open("store.db");
    sample_fill(kv);
    OK(kvstore_cf_open(kv, "other", &other));
    OK(kvstore_iterator_create(kv, &it));
    OK(kvstore_iterator_first(it));
    OK(kvstore_reverse_iterator_create(kv, &back));
    OK(kvstore_iterator_last(back));
    CHECK(!kvstore_iterator_eof(it) && !kvstore_iterator_eof(back));
    before = fingerprint(kv);
}

/* The parent works as before. */
static void tear_down(void)
{
    CHECK(access("store.db-wal", F_OK) == 0 && access("store.db-shm", F_OK) == 0);
    CHECK(fingerprint(kv) == before);
    still_works(kv);
    CHECK(!kvstore_iterator_eof(it) && !kvstore_iterator_eof(back));
    OK(kvstore_iterator_next(it));
    OK(kvstore_cf_put(other, "plain", 5, "after the fork", 14));
    kvstore_iterator_close(it);
    kvstore_iterator_close(back);
    kvstore_cf_close(other);
    OK(kvstore_close(kv));
    CHECK(access("store.db-wal", F_OK) != 0 && access("store.db-shm", F_OK) != 0);
    kv = sample_open("store.db");
    OK(kvstore_integrity_check(kv, NULL));
    OK(kvstore_close(kv));
}

/* Ends a child without exit, where valgrind would report the parent's open handles as leaks. */
static void leave(int well)
{
    execl(well ? "/bin/true" : "/bin/false", well ? "true" : "false", (char *)NULL);
    _exit(2);
}

/* Runs f in a forked child. The child must succeed, and within its time limit. */
static void in_child(void (*f)(void))
{
    int status;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(patience(20)); /* a deadlock ends here */
        f();
        CHECK(VALGRIND_COUNT_ERRORS == 0);
        leave(1);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "the child got signal %d%s\n", WTERMSIG(status),
                WTERMSIG(status) == SIGALRM ? ": it was stuck" : "");
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- inherited handles ------------------------------------------------------------------------- */

static void uses_the_data(void)
{
    REFUSED(KVSTORE_MISUSE, kvstore_get(kv, "plain", 5, &out.pointer, &out.n));
    CHECK(strstr(kvstore_errmsg(kv), "fork") != NULL);
    REFUSED(KVSTORE_MISUSE, kvstore_put(kv, "plain", 5, "child", 5));
    REFUSED(KVSTORE_MISUSE, kvstore_cf_delete(other, "plain", 5));
    REFUSED(KVSTORE_MISUSE, kvstore_begin(kv, 1));
    REFUSED(KVSTORE_MISUSE, kvstore_rollback(kv));
    REFUSED(KVSTORE_MISUSE, kvstore_commit(kv));
    REFUSED(KVSTORE_MISUSE, kvstore_iterator_first(it));
    REFUSED(KVSTORE_MISUSE, kvstore_checkpoint(kv, KVSTORE_CHECKPOINT_TRUNCATE, NULL, NULL));
}

static void data(void)
{
    set_up();
    in_child(uses_the_data);
    tear_down();
}

static void uses_the_store(void)
{
    store_functions_give(KVSTORE_MISUSE, kv);
}

static void store(void)
{
    set_up();
    in_child(uses_the_store);
    tear_down();
}

static void uses_the_family(void)
{
    family_functions_give(KVSTORE_MISUSE, other);
    CHECK(kvstore_cf_name(other) != NULL);
}

static void family(void)
{
    set_up();
    in_child(uses_the_family);
    tear_down();
}

static void reads_the_iterator(void)
{
    REFUSED(KVSTORE_MISUSE, kvstore_iterator_next(it));
    REFUSED(KVSTORE_MISUSE, kvstore_iterator_prev(back));
    REFUSED(KVSTORE_MISUSE, kvstore_iterator_key(it, &out.pointer, &out.n));
    iterator_functions_give(KVSTORE_MISUSE, it, 0);
    iterator_functions_give(KVSTORE_MISUSE, back, 1);
}

static void iterator(void)
{
    set_up();
    in_child(reads_the_iterator);
    tear_down();
}

/* A transaction of the parent is not affected by the child. */
static void transaction(void)
{
    set_up();
    OK(kvstore_begin(kv, 1));
    OK(kvstore_put(kv, "in the transaction", 18, "v", 1));
    in_child(uses_the_data);
    OK(kvstore_put(kv, "in the transaction", 18, "w", 1));
    OK(kvstore_commit(kv));
    OK(kvstore_delete(kv, "in the transaction", 18));
    tear_down();
}

static void leaves_by_exit(void)
{
    if (!under_valgrind()) {
        exit(0); /* with all that runs then, and nothing closed */
    }
}

static void closes_everything(void)
{
    kvstore_iterator_close(it);
    kvstore_iterator_close(back);
    kvstore_cf_close(other);
    GIVES(KVSTORE_MISUSE, kvstore_close(kv));
    CHECK(strstr(kvstore_errmsg(NULL), "fork") != NULL);
    GIVES(KVSTORE_MISUSE, kvstore_close(kv));
    GIVES(KVSTORE_MISUSE, kvstore_put(kv, "plain", 5, "child", 5));
    for (int i = 0; i < 80; i++) { /* until the memory of the closed handle is used again */
        KVStore *own;

        OK(kvstore_open(NULL, &own, 0));
        OK(kvstore_close(own));
    }
}

static void closing(void)
{
    set_up();
    in_child(leaves_by_exit);
    in_child(closes_everything);
    CHECK(fingerprint(kv) == before);
    OK(kvstore_begin(kv, 1));
    OK(kvstore_put(kv, "in the transaction", 18, "v", 1));
    in_child(closes_everything);
    in_child(leaves_by_exit);
    OK(kvstore_commit(kv));
    OK(kvstore_delete(kv, "in the transaction", 18));
    tear_down();
}

/* ---- opening in the child ---------------------------------------------------------------------- */

static void opens_the_same(void)
{
    static const char *paths[] = {"store.db", "./store.db", "symbolic.db"};
    KVStoreConfig cfg = {0};
    KVStore *mine;

    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        mine = sample_open(paths[i]);
        CHECK(fingerprint(mine) == before);
        still_works(mine);
        uses_the_data(); /* the parent's handles fail while its own are open */
        OK(kvstore_close(mine));
    }
    cfg.readOnly = 1;
    OK(kvstore_open_v2("store.db", &mine, &cfg));
    OK(kvstore_set_clock(mine, sample_clock, NULL));
    CHECK(fingerprint(mine) == before);
    OK(kvstore_close(mine));
    /* The parent has it open in the other journal mode. */
    REFUSED_HANDLE(KVSTORE_BUSY, mine, kvstore_open("store.db", &mine, KVSTORE_JOURNAL_DELETE));
}

static void opens_the_same_and_so_does_its_child(void)
{
    opens_the_same();
    in_child(uses_the_data);
    in_child(opens_the_same);
}

static void same_path(void)
{
    set_up();
    CHECK(symlink("store.db", "symbolic.db") == 0);
    in_child(opens_the_same_and_so_does_its_child);
    tear_down();
}

static void opens_another(void)
{
    KVStore *mine = sample_open("another.db"), *memory = sample_open(NULL);
    uint64_t filled;

    sample_fill(mine);
    sample_fill(memory);
    filled = fingerprint(mine);
    CHECK(fingerprint(memory) == filled);
    still_works(mine);
    still_works(memory);
    uses_the_data();
    OK(kvstore_close(memory));
    OK(kvstore_close(mine));
    mine = sample_open("another.db");
    CHECK(fingerprint(mine) == filled);
    OK(kvstore_close(mine));
}

static void other_path(void)
{
    set_up();
    in_child(opens_another);
    kvstore_iterator_close(it); /* the parent may also open what a child has created */
    OK(kvstore_iterator_create(kv, &it));
    OK(kvstore_iterator_first(it));
    {
        KVStore *left = sample_open("another.db");

        still_works(left);
        OK(kvstore_close(left));
    }
    tear_down();
}

static void opens_after_the_close(void)
{
    KVStore *mine = sample_open("store.db");

    CHECK(fingerprint(mine) == before);
    still_works(mine);
    OK(kvstore_put(mine, "from the child", 14, "v", 1));
    OK(kvstore_close(mine));
}

static void after_the_close(void)
{
    int there;

    set_up();
    in_child(uses_the_data);
    kvstore_iterator_close(it);
    kvstore_iterator_close(back);
    kvstore_cf_close(other);
    OK(kvstore_close(kv));
    in_child(opens_after_the_close);
    kv = sample_open("store.db");
    OK(kvstore_exists(kv, "from the child", 14, &there));
    CHECK(there);
    OK(kvstore_close(kv));
}

/* ---- a fork while other threads are in calls --------------------------------------------------- */

static volatile int stop;

static void *fails_all_the_time(void *unused)
{
    (void)unused;
    while (!stop) {
        KVColumnFamily *cf;
        KVIterator *mine;

        GIVES(KVSTORE_ERROR, kvstore_put(kv, "k", 0, "v", 1));
        OK(kvstore_cf_get_default(kv, &cf));
        OK(kvstore_cf_iterator_create(cf, &mine));
        kvstore_iterator_close(mine);
        kvstore_cf_close(cf);
    }
    return NULL;
}

static void uses_and_closes(void)
{
    GIVES(KVSTORE_MISUSE, kvstore_put(kv, "plain", 5, "child", 5));
    CHECK(kvstore_errmsg(kv) != NULL);
    GIVES(KVSTORE_MISUSE, kvstore_cf_put(other, "plain", 5, "child", 5));
    GIVES(KVSTORE_MISUSE, kvstore_iterator_first(it));
    kvstore_iterator_close(it);
    kvstore_cf_close(other);
    GIVES(KVSTORE_MISUSE, kvstore_close(kv));
}

static void threads(void)
{
    pthread_t failing[3];

    set_up();
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_create(&failing[i], NULL, fails_all_the_time, NULL) == 0);
    }
    for (int i = 0; i < (under_valgrind() ? 10 : 300); i++) {
        in_child(uses_and_closes);
    }
    stop = 1;
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_join(failing[i], NULL) == 0);
    }
    tear_down();
}

/* ---- a fork inside a call, by a callback of it ------------------------------------------------------ */

static int forks_left;
static pid_t forked;

static void fork_once(void)
{
    if (forks_left > 0) {
        forks_left--;
        forked = fork();
        CHECK(forked >= 0);
        if (forked == 0) alarm(patience(20));
    }
}

/* Result of the call in this process: in the child MISUSE, in the parent the usual one. */
static void answered(int in_parent, int rc)
{
    int status;

    if (forked == 0) {
        leave(rc == KVSTORE_MISUSE && strstr(kvstore_errmsg(kv), "fork") != NULL);
    }
    CHECK(forked > 0);
    CHECK(waitpid(forked, &status, 0) == forked);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(rc == in_parent);
    forked = -1;
}

static int64_t clock_that_forks(void *unused)
{
    (void)unused;
    fork_once();
    return SAMPLE_NOW;
}

static void clock_forks(void)
{
    void *value;
    int n;
    int64_t live;
    KVIterator *mine;
    KVColumnFamily *cf;

    set_up();
    OK(kvstore_put_ttl(kv, "dies", 4, "v", 1, SAMPLE_NOW + 1000));
    OK(kvstore_cf_get_default(kv, &cf));
    OK(kvstore_iterator_create(kv, &mine));
    OK(kvstore_set_clock(kv, clock_that_forks, NULL));
    forks_left = 1;
    answered(KVSTORE_OK, kvstore_get(kv, "dies", 4, &value, &n));
    kvstore_free(value);
    forks_left = 1;
    answered(KVSTORE_OK, kvstore_cf_count_live(cf, &live));
    forks_left = 1;
    answered(KVSTORE_OK, kvstore_iterator_seek(mine, "dies", 4));
    forks_left = 1;
    answered(KVSTORE_OK, kvstore_delete(kv, "dies", 4));
    OK(kvstore_set_clock(kv, sample_clock, NULL));
    kvstore_iterator_close(mine);
    kvstore_cf_close(cf);
    tear_down();
}

static int progress_that_forks(void *unused, int remaining, int total)
{
    (void)unused, (void)remaining, (void)total;
    fork_once();
    if (forked > 0) { /* the child goes first */
        siginfo_t ended;
        CHECK(waitid(P_PID, (id_t)forked, &ended, WEXITED | WNOWAIT) == 0);
    }
    return 0;
}

static void backup_forks(void)
{
    set_up();
    forks_left = 1;
    answered(KVSTORE_OK, kvstore_backup(kv, "copy.db", progress_that_forks, NULL));
    {
        KVStore *copy = sample_open("copy.db");

        CHECK(fingerprint(copy) == before);
        OK(kvstore_close(copy));
    }
    tear_down();
}

/* ---- a fork of a program that has closed all descriptors, as daemons do ---------------------------- */

static void no_copy_of_the_pipe(void)
{
    char end[64], mine[64], name[64];
    int copies = 0;

    CHECK(readlink("/proc/self/fd/3", mine, sizeof mine) > 0);
    for (int fd = 4; fd < 64; fd++) {
        ssize_t n;

        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        n = readlink(name, end, sizeof end);
        copies += n > 0 && memcmp(end, mine, (size_t)n) == 0;
    }
    CHECK(copies == 1); /* the pipe's other end */
}

static void daemon_forks(void)
{
    int ends[2];
    KVStore *mine = sample_open("store.db");

    sample_fill(mine);
    OK(kvstore_close(mine));
    for (int fd = 3; fd < 64; fd++) {
        close(fd);
    }
    CHECK(pipe(ends) == 0 && ends[0] == 3);
    mine = sample_open("store.db");
    in_child(no_copy_of_the_pipe);
    OK(kvstore_close(mine));
}

/* ---- after the error text of the thread was destroyed --------------------------------------------- */

static int at_exit;

static void calls_at_exit(void)
{
    if (at_exit) {
        leave(kvstore_close(kv) == KVSTORE_MISUSE && kvstore_errmsg(NULL) != NULL);
    }
}

static void closes_at_exit(void)
{
    KVStore *none;

    GIVES(KVSTORE_CANTOPEN, kvstore_open("/no such directory/store.db", &none, 0));
    at_exit = 1;
    exit(1); /* calls_at_exit ends the process */
}

static void exits(void)
{
    CHECK(atexit(calls_at_exit) == 0);
    set_up();
    in_child(closes_at_exit);
    tear_down();
}

SCENARIOS({"data", data}, {"store", store}, {"family", family}, {"iterator", iterator},
          {"transaction", transaction}, {"closing", closing}, {"same_path", same_path},
          {"other_path", other_path}, {"after_the_close", after_the_close}, {"threads", threads},
          {"clock_forks", clock_forks}, {"backup_forks", backup_forks}, {"daemon_forks", daemon_forks},
          {"exits", exits})

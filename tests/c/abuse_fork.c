/* What a forked child can do with its parent's handles and files: nothing, and no harm. */
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

/* The parent goes on as if nothing had been. */
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

/* Runs f in a forked child, which must end well and in time. */
static void in_child(void (*f)(void))
{
    int status;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(under_valgrind() ? 60 : 20); /* a deadlock ends here */
        f();
        CHECK(VALGRIND_COUNT_ERRORS == 0);
        /* Not by exit, where valgrind would look for leaks: what the parent has open is none. */
        execl("/bin/true", "true", (char *)NULL);
        _exit(2);
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

/* A transaction of the parent's stays the parent's. */
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
    static const char *paths[] = {"store.db", "./store.db", "symbolic.db", "hard.db"};
    KVStoreConfig cfg = {0};
    KVStore *mine;

    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        REFUSED_HANDLE(KVSTORE_MISUSE, mine, kvstore_open(paths[i], &mine, 0));
        CHECK(strstr(kvstore_errmsg(NULL), "fork") != NULL);
    }
    cfg.readOnly = 1;
    REFUSED_HANDLE(KVSTORE_MISUSE, mine, kvstore_open_v2("store.db", &mine, &cfg));
    REFUSED_HANDLE(KVSTORE_MISUSE, mine, kvstore_open("store.db", &mine, KVSTORE_JOURNAL_DELETE));
    in_child(uses_the_data); /* and the same for its own child */
}

static void same_path(void)
{
    set_up();
    CHECK(symlink("store.db", "symbolic.db") == 0 && link("store.db", "hard.db") == 0);
    in_child(opens_the_same);
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
    kvstore_iterator_close(it); /* the parent may open what a child has left, too */
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

SCENARIOS({"data", data}, {"store", store}, {"family", family}, {"iterator", iterator},
          {"transaction", transaction}, {"closing", closing}, {"same_path", same_path},
          {"other_path", other_path}, {"after_the_close", after_the_close}, {"threads", threads})

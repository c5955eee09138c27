/* Stores whose process or files change: signals, users, system calls, deleted files. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "check.h"

static KVStore *open_with_timeout(const char *path, int busy_timeout_ms)
{
    KVStore *kv;
    KVStoreConfig config;
    memset(&config, 0, sizeof config);
    config.journalMode = KVSTORE_JOURNAL_WAL;
    config.busyTimeout = busy_timeout_ms;
    OK(kvstore_open_v2(path, &kv, &config));
    return kv;
}

static volatile sig_atomic_t ticks;

static void tick(int signal)
{
    (void)signal;
    ticks++;
}

/* With and without SA_RESTART, and with a timer that is shorter than most pauses. */
static void busy_timeout_with_timer(void)
{
    KVStore *writer = open_with_timeout("store.db", -1), *kv = open_with_timeout("store.db", 400);
    OK(kvstore_begin(writer, 1));
    OK(kvstore_put(writer, "a", 1, "b", 1));
    for (int restart = 0; restart < 2; restart++) {
        struct sigaction action;
        struct itimerval every = {{0, 2000}, {0, 2000}}, none = {{0, 0}, {0, 0}};
        memset(&action, 0, sizeof action);
        action.sa_handler = tick;
        action.sa_flags = restart ? SA_RESTART : 0;
        CHECK(sigaction(SIGALRM, &action, NULL) == 0);
        int64_t begin = monotonic_ms();
        ticks = 0;
        CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
        GIVES(KVSTORE_BUSY, kvstore_put(kv, "a", 1, "b", 1));
        CHECK(setitimer(ITIMER_REAL, &none, NULL) == 0);
        CHECK(monotonic_ms() - begin >= 400 && ticks > 20);
    }
    OK(kvstore_rollback(writer));
    OK(kvstore_put(kv, "a", 1, "b", 1));
    OK(kvstore_close(kv));
    OK(kvstore_close(writer));
}

/* A program that reads its signals, from a signalfd or by sigwait, blocks them in its own threads. */
static void signal_with_cleaner(void)
{
    KVStore *kv = open_with_timeout("store.db", -1);
    sigset_t set;
    struct timespec wait = {5, 0};
    OK(kvstore_cleaner_start(kv, 1, 0));
    pause_ms(50); /* a new thread has all signals blocked at first */
    CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGTERM) == 0 && sigaddset(&set, SIGUSR1) == 0);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    CHECK(kill(getpid(), SIGTERM) == 0 && kill(getpid(), SIGUSR1) == 0);
    int first = sigtimedwait(&set, NULL, &wait), second = sigtimedwait(&set, NULL, &wait);
    CHECK(first + second == SIGTERM + SIGUSR1);
    OK(kvstore_close(kv));
    /* The mask of the thread that started the cleaner is as it was. */
    CHECK(sigprocmask(SIG_BLOCK, NULL, &set) == 0);
    CHECK(sigismember(&set, SIGTERM) && !sigismember(&set, SIGINT) && !sigismember(&set, SIGALRM));
}

/* A server opens its files as root and then gives up its rights, also to search the directory. */
static void setuid_after_open(void)
{
    void *value;
    int length;
    if (geteuid() != 0) {
        puts("skipped: not root");
        return;
    }
    CHECK(mkdir("private", 0700) == 0);
    KVStore *kv = open_with_timeout("private/store.db", -1);
    OK(kvstore_put(kv, "a", 1, "before", 6));
    CHECK(setgid(65534) == 0 && setuid(65534) == 0 && access("private/store.db", F_OK) == -1);
    for (int i = 0; i < 3; i++) {
        OK(kvstore_put(kv, "a", 1, "after", 5));
        OK(kvstore_get(kv, "a", 1, &value, &length));
        CHECK(length == 5);
        kvstore_free(value);
        OK(kvstore_begin(kv, 1));
        OK(kvstore_put(kv, "b", 1, "after", 5));
        OK(kvstore_commit(kv));
        pause_ms(20); /* longer than the library goes on without a check */
    }
    OK(kvstore_close(kv));
}

/* Old container runtimes refuse system calls that they do not know with EPERM instead of ENOSYS. */
static void faccessat2_refused(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 439 /* faccessat2 */, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    CHECK(syscall(439, -1, "a", 0, 0) == -1 && errno == EPERM);

    KVStore *kv = open_with_timeout("store.db", -1), *other = open_with_timeout("store.db", -1);
    OK(kvstore_put(kv, "a", 1, "b", 1));
    OK(kvstore_put(other, "a", 1, "c", 1));
    OK(kvstore_cleaner_start(other, 1, 0));
    OK(kvstore_cleaner_stop(other));
    OK(kvstore_close(kv));
    OK(kvstore_close(other));
    kv = open_with_timeout("store.db", -1); /* takes parked descriptors */
    OK(kvstore_put(kv, "a", 1, "d", 1));
    OK(kvstore_close(kv));
}

/* The exit status of a child process that opens the store, writes a key, and closes the store. */
static int code_of_another_process(const char *key)
{
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        KVStore *kv;
        int code = kvstore_open("store.db", &kv, KVSTORE_JOURNAL_WAL);
        if (code == KVSTORE_OK) code = kvstore_put(kv, key, (int)strlen(key), "b", 1);
        if (code == KVSTORE_OK) code = kvstore_close(kv);
        _exit(code);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Programs that clean up delete "temporary" files. Neither process loses a commit. */
static void deleted_while_open(const char *first, const char *second)
{
    KVStore *kv = open_with_timeout("store.db", -1);
    OK(kvstore_put(kv, "a", 1, "b", 1));
    CHECK(code_of_another_process("before") == KVSTORE_OK);
    CHECK(unlink(first) == 0 && (second == NULL || unlink(second) == 0));
    CHECK(code_of_another_process("meanwhile") == KVSTORE_BUSY);
    pause_ms(20); /* longer than the library goes on without a check */
    GIVES(KVSTORE_IOERR, kvstore_put(kv, "late", 4, "b", 1));
    CHECK(strstr(kvstore_errmsg(kv), "-shm file of the store was deleted") != NULL);
    GIVES(KVSTORE_IOERR, kvstore_begin(kv, 1));
    OK(kvstore_close(kv));
    CHECK(code_of_another_process("after") == KVSTORE_OK);
    kv = open_with_timeout("store.db", -1);
    OK(kvstore_integrity_check(kv, NULL));
    const char *const keys[] = {"a", "before", "after", "late", "meanwhile"};
    for (int i = 0; i < 5; i++) {
        int is_there = -1;
        OK(kvstore_exists(kv, keys[i], (int)strlen(keys[i]), &is_there));
        CHECK(is_there == (i < 3));
    }
    OK(kvstore_close(kv));
}

static void shm_deleted(void)
{
    deleted_while_open("store.db-shm", NULL);
}

static void wal_deleted(void)
{
    deleted_while_open("store.db-wal", NULL);
}

static void wal_and_shm_deleted(void)
{
    deleted_while_open("store.db-wal", "store.db-shm");
}

SCENARIOS({"busy_timeout_with_timer", busy_timeout_with_timer}, {"signal_with_cleaner", signal_with_cleaner},
          {"setuid_after_open", setuid_after_open}, {"faccessat2_refused", faccessat2_refused},
          {"shm_deleted", shm_deleted}, {"wal_deleted", wal_deleted}, {"wal_and_shm_deleted", wal_and_shm_deleted})

/*
 * Shared by the multiprocess_*.c programs: processes with a time limit, a ledger of acknowledged commits, and a store
 * that this library ("ours") and another copy of SQLite ("stock", Debian's libsqlite3) write to.
 *
 * Invariant: the n-th commit of a writer sets its counter "c/WW" to n and adds the key "k/WW/NNNNNNNN". The ledger
 * records n before the commit as intended, and after it as acknowledged. The counter always lies between the two,
 * whichever process was killed, and there are exactly that many keys. Each commit first checks that the previous
 * one is present.
 *
 * A program either links the stock SQLite (-DLINKED -lsqlite3) or loads it at run time.
 */
#ifndef COMPANY_H
#define COMPANY_H

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __GLIBC__
#include <execinfo.h>
#else
#define RTLD_DEEPBIND 0
#endif

#include <sqlite3.h>

#include "check.h"

#define STORE "store.db"

extern char **environ;

/* ---- failing ------------------------------------------------------------------------------------------ */

/* Ends this process at once: exit would run what may be stuck. */
__attribute__((noreturn, format(printf, 1, 2))) static inline void fail(const char *format, ...)
{
    char text[1000];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "process %d: %s\n", (int)getpid(), text);
    fflush(NULL);
    _exit(3);
}

/* The call must give this code; if not, its error text is shown, too. */
#define MUST(code, kv, call)                                                                                  \
    do {                                                                                                      \
        int must_rc = (call);                                                                                 \
        if (must_rc != (code)) {                                                                              \
            fail("%s:%d: %s gave %d (%s), not %s: %s", __FILE__, __LINE__, #call, must_rc,                    \
                 kvstore_strerror(must_rc), #code, kvstore_errmsg(kv));                                       \
        }                                                                                                     \
    } while (0)
#define WORKS(kv, call) MUST(KVSTORE_OK, kv, call)

static inline int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Where each thread of a process is, as the kernel shows it. */
static inline void show_threads(pid_t pid)
{
    static const char *const files[] = {"comm", "wchan", "syscall", "stack"};
    char path[100], text[2000];
    struct dirent *entry;
    DIR *threads;

    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    threads = opendir(path);
    while (threads && (entry = readdir(threads)) != NULL) {
        if (entry->d_name[0] == '.') continue;
        fprintf(stderr, "  thread %s:", entry->d_name);
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
            int fd;
            ssize_t n;
            snprintf(path, sizeof path, "/proc/%d/task/%.20s/%s", (int)pid, entry->d_name, files[i]);
            fd = open(path, O_RDONLY | O_CLOEXEC);
            n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
            if (fd >= 0) close(fd);
            while (n > 0 && text[n - 1] == '\n') n--;
            if (n > 0) fprintf(stderr, " %s=%.*s", files[i], (int)n, text);
        }
        fputc('\n', stderr);
    }
    if (threads) closedir(threads);
}

/* Locks on the files of the store in the current directory, by descriptor, as the kernel reports them. */
static inline void show_locks(void)
{
    char folder[500], path[600], text[1000];
    struct dirent *process, *entry;
    DIR *processes = opendir("/proc");

    if (!processes || !getcwd(folder, sizeof folder)) return;
    while ((process = readdir(processes)) != NULL) {
        DIR *descriptors;
        snprintf(path, sizeof path, "/proc/%.20s/fd", process->d_name);
        descriptors = process->d_name[0] >= '1' && process->d_name[0] <= '9' ? opendir(path) : NULL;
        while (descriptors && (entry = readdir(descriptors)) != NULL) {
            ssize_t n = readlinkat(dirfd(descriptors), entry->d_name, text, sizeof text - 1);
            FILE *info;
            if (n < 0) continue;
            text[n] = 0;
            if (strncmp(text, folder, strlen(folder)) != 0 || !strstr(text, "/" STORE)) continue;
            snprintf(path, sizeof path, "/proc/%.20s/fdinfo/%.20s", process->d_name, entry->d_name);
            fprintf(stderr, "  process %s, descriptor %s: %s\n", process->d_name, entry->d_name, text + strlen(folder));
            info = fopen(path, "re");
            while (info && fgets(text, sizeof text, info)) {
                if (strncmp(text, "lock:", 5) == 0) fprintf(stderr, "    %s", text);
            }
            if (info) fclose(info);
        }
        if (descriptors) closedir(descriptors);
    }
    closedir(processes);
}

/* The calls this thread is in, to a descriptor (-1: to none), where the C library knows them. */
static inline void backtrace_to(int fd)
{
#ifdef __GLIBC__
    void *frames[60];
    int n = backtrace(frames, 60);
    if (fd >= 0) backtrace_symbols_fd(frames, n, fd);
#else
    (void)fd;
#endif
}

/* SIGUSR1: this thread prints its position and continues. */
static inline void says_where(int signal)
{
    char head[100];
    int errno_before = errno, n;
    (void)signal;
    n = snprintf(head, sizeof head, "thread %d of process %d is at:\n", (int)syscall(SYS_gettid), (int)getpid());
    if (write(2, head, (size_t)n) > 0) backtrace_to(2);
    errno = errno_before;
}

/* Must be called first in main. */
static inline void can_say_where(void)
{
    struct sigaction action = {.sa_handler = says_where, .sa_flags = SA_RESTART};
    backtrace_to(-1); /* loads what it needs now, where nothing is stuck yet */
    sigaction(SIGUSR1, &action, NULL);
}

/* Makes each thread of each process that has the store open print its position. */
static inline void show_everybody(void)
{
    char folder[500], path[600], text[1000];
    struct dirent *process, *entry;
    DIR *processes = opendir("/proc"), *of;

    if (!processes || !getcwd(folder, sizeof folder)) return;
    while ((process = readdir(processes)) != NULL) {
        int pid = atoi(process->d_name), has = 0;
        snprintf(path, sizeof path, "/proc/%d/cwd", pid);
        ssize_t n = pid > 0 ? readlink(path, text, sizeof text - 1) : -1;
        if (n <= 0) continue;
        text[n] = 0;
        has = strcmp(text, folder) == 0;
        snprintf(path, sizeof path, "/proc/%d/task", pid);
        of = has ? opendir(path) : NULL;
        while (of && (entry = readdir(of)) != NULL) {
            if (atoi(entry->d_name) > 0) {
                syscall(SYS_tgkill, pid, atoi(entry->d_name), SIGUSR1);
                poll(NULL, 0, 20); /* so that they do not talk at once */
            }
        }
        if (of) closedir(of);
    }
    closedir(processes);
}

static inline void is_stuck(int signal)
{
    static const char text[] = "a process was stuck; where its main thread is:\n";
    (void)signal;
    if (write(2, text, sizeof text - 1) > 0) backtrace_to(2);
    show_threads(getpid());
    _exit(97);
}

/* This process counts as stuck unless it ends, or calls this again, within this number of
 * seconds. */
static inline void limit_time(unsigned seconds)
{
    backtrace_to(-1); /* loads what it needs now, where nothing is stuck yet */
    signal(SIGALRM, is_stuck);
    alarm(seconds);
}

/* ---- processes ---------------------------------------------------------------------------------------- */

/* Waits for a child for this time and returns its status; a stuck child fails the test. */
static inline int end_within(pid_t pid, int seconds, const char *what)
{
    int status;
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd end = {.fd = pidfd, .events = POLLIN};
    int ended;

    CHECK(pidfd >= 0);
    while ((ended = poll(&end, 1, seconds * 1000)) < 0 && errno == EINTR) {
    }
    close(pidfd);
    if (ended == 0) {
        fprintf(stderr, "%s (process %d) has not ended after %d s:\n", what, (int)pid, seconds);
        show_threads(pid);
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        fail("%s was stuck", what);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

static inline void must_end_well(pid_t pid, int seconds, const char *what)
{
    int status = end_within(pid, seconds, what);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail("%s ended with %s %d", what, WIFSIGNALED(status) ? "signal" : "status",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
}

/* Starts another process that shares nothing with this one: this program in a role. It does not use fork
 * alone, which would run the library's fork handlers. `in` and `out` become its stdin and stdout (-1:
 * inherited). */
static inline pid_t start_with(int in, int out, const char *role, const char *a, const char *b, const char *c)
{
    const char *argv[] = {"multiprocess", role, a, b, c, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;

    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    if (in >= 0) CHECK(posix_spawn_file_actions_adddup2(&actions, in, 0) == 0);
    if (out >= 0) CHECK(posix_spawn_file_actions_adddup2(&actions, out, 1) == 0);
    CHECK(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, (char **)(uintptr_t)argv, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

static inline pid_t start(const char *role, const char *a, const char *b, const char *c)
{
    return start_with(-1, -1, role, a, b, c);
}

static inline void run_role(const char *role, const char *a, const char *b, const char *c)
{
    must_end_well(start(role, a, b, c), 60, role);
}

/* Another process, synchronised by bytes: a byte in either direction means "continue". */
struct other {
    pid_t pid;
    int to, from;
};

static inline struct other start_other(const char *role, const char *a, const char *b, const char *c)
{
    struct other other;
    int in[2], out[2];
    CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    other.pid = start_with(in[0], out[1], role, a, b, c);
    close(in[0]);
    close(out[1]);
    other.to = in[1];
    other.from = out[0];
    return other;
}

static inline void say(int fd)
{
    while (write(fd, "!", 1) != 1) CHECK(errno == EINTR);
}

/* 0: the other process has ended. */
static inline int hears(int fd)
{
    char byte;
    ssize_t n;
    while ((n = read(fd, &byte, 1)) < 0 && errno == EINTR) {
    }
    return n == 1;
}

static inline void hear(int fd, int seconds, const char *whom)
{
    struct pollfd in = {.fd = fd, .events = POLLIN};
    int n;
    while ((n = poll(&in, 1, seconds * 1000)) < 0 && errno == EINTR) {
    }
    if (n == 0) fail("nothing was heard of %s for %d s", whom, seconds);
    if (!hears(fd)) fail("%s is gone", whom);
}

static inline void finish(struct other *other, int seconds, const char *what)
{
    close(other->to);
    must_end_well(other->pid, seconds, what);
    close(other->from);
}

/* ---- random choices
 * ------------------------------------------------------------------------------------ */

struct chance {
    uint64_t state;
};

static inline struct chance seeded(uint64_t seed)
{
    return (struct chance){seed * 0x9e3779b97f4a7c15u | 1};
}

static inline unsigned below(struct chance *chance, unsigned n)
{
    chance->state ^= chance->state >> 12;
    chance->state ^= chance->state << 25;
    chance->state ^= chance->state >> 27;
    return (unsigned)(chance->state * 2685821657736338717u >> 33) % n;
}

/* ---- the ledger --------------------------------------------------------------------------------------- */

enum { WRITERS = 64 };

struct ledger {
    _Atomic uint64_t acknowledged[WRITERS], intended[WRITERS];
    _Atomic uint64_t stop;
    _Atomic uint64_t events; /* for callers that count */
};

static struct ledger *ledger;

/* Opens the ledger in the current folder, which all processes there share. */
static inline void open_ledger(void)
{
    int fd = open("ledger", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, sizeof *ledger) == 0);
    ledger = mmap(NULL, sizeof *ledger, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(ledger != MAP_FAILED);
    close(fd);
}

static inline uint64_t acknowledged_of(int writer)
{
    return atomic_load(&ledger->acknowledged[writer]);
}

static inline uint64_t intended_of(int writer)
{
    return atomic_load(&ledger->intended[writer]);
}

static inline uint64_t all_acknowledged(void)
{
    uint64_t sum = 0;
    for (int w = 0; w < WRITERS; w++) sum += acknowledged_of(w);
    return sum;
}

/* ---- retries
 * ------------------------------------------------------------------------------------------- */

enum { PATIENCE_MS = 30000 };

/* BUSY is retried. A lock counts as stuck if no process has committed for this time, or this caller has not
 * succeeded for ten times as long. */
struct patience {
    int64_t since, still_since;
    uint64_t times, commits;
};

static inline void again(struct patience *p, const char *call)
{
    int64_t now = now_ms();
    uint64_t commits = ledger ? all_acknowledged() : 0;
    if (p->since == 0) p->since = now;
    if (p->still_since == 0 || commits != p->commits) {
        p->still_since = now;
        p->commits = commits;
    }
    if (now - p->still_since > PATIENCE_MS || now - p->since > 10 * PATIENCE_MS) {
        show_locks();
        show_everybody();
        fail("%s was BUSY for %lld ms, %llu times; the last commit of anybody was %lld ms ago", call,
             (long long)(now - p->since), (unsigned long long)p->times, (long long)(now - p->still_since));
    }
    if (p->times++ < 20) {
        sched_yield();
    } else {
        nanosleep(&(struct timespec){0, 200000}, NULL);
    }
}

/* Calls until it is not BUSY. */
#define PATIENTLY(rc, call)                                                                                   \
    for (struct patience patience_ = {0}; (rc = (call)) == KVSTORE_BUSY;) again(&patience_, #call)

/* Checks a counter that a read has found. `before` was acknowledged when the read began; the
 * read ends now. */
static inline void judge(const char *who, int writer, uint64_t before, uint64_t found)
{
    uint64_t intended = intended_of(writer);
    if (found < before || found > intended) {
        fail("%s finds %llu commits of writer %d, of which %llu were acknowledged and %llu intended: %s", who,
             (unsigned long long)found, writer, (unsigned long long)before, (unsigned long long)intended,
             found < before ? "COMMITS ARE LOST" : "commits from nowhere");
    }
}

static inline int counter_key(char *key, int writer)
{
    return sprintf(key, "c/%02d", writer);
}

static inline int entry_key(char *key, int writer, uint64_t n)
{
    return sprintf(key, "k/%02d/%08llu", writer, (unsigned long long)n);
}

/* The bytes of the n-th entry: sizes of all kinds, some out of line. */
static inline int entry_value(char *value, int writer, uint64_t n)
{
    int length = n % 50 == 49 ? 3000 : 20 + (int)(n % 40);
    memset(value, 'a' + (int)((n + (uint64_t)writer) % 26), (size_t)length);
    return length;
}

static inline uint64_t as_number(const void *text, int length)
{
    char copy[24] = {0};
    char *end;
    uint64_t number;
    if (length < 1 || length > 20) fail("a counter of %d bytes", length);
    memcpy(copy, text, (size_t)length);
    number = strtoull(copy, &end, 10);
    if (*end) fail("a counter that is no number");
    return number;
}

/* ---- ours --------------------------------------------------------------------------------------------- */

static inline int is_wal(const char *mode)
{
    return strcmp(mode, "wal") == 0;
}

/* Not synced: these tests kill processes, they cut no power. Calls do not wait for locks; PATIENTLY does. */
static inline KVStoreConfig ours_config(const char *mode)
{
    KVStoreConfig config = {0};
    config.journalMode = is_wal(mode) ? KVSTORE_JOURNAL_WAL : KVSTORE_JOURNAL_DELETE;
    config.syncLevel = KVSTORE_SYNC_OFF;
    config.busyTimeout = -1;
    return config;
}

static inline KVStore *open_ours(const char *mode)
{
    KVStoreConfig config = ours_config(mode);
    KVStore *kv = NULL;
    int rc;
    PATIENTLY(rc, kvstore_open_v2(STORE, &kv, &config));
    if (rc != KVSTORE_OK) fail("the store cannot be opened: %s: %s", kvstore_strerror(rc), kvstore_errmsg(NULL));
    return kv;
}

static inline void close_ours(KVStore *kv)
{
    WORKS(NULL, kvstore_close(kv));
}

/* 0 if it is not there. BUSY is possible in DELETE mode only, outside a transaction. */
static inline uint64_t counter_of_ours(KVStore *kv, int writer)
{
    char key[24];
    void *value;
    int length, rc, n = counter_key(key, writer);
    uint64_t number;

    PATIENTLY(rc, kvstore_get(kv, key, n, &value, &length));
    if (rc == KVSTORE_NOTFOUND) return 0;
    if (rc != KVSTORE_OK) fail("%s cannot be read: %s: %s", key, kvstore_strerror(rc), kvstore_errmsg(kv));
    number = as_number(value, length);
    kvstore_free(value);
    return number;
}

static inline void commit_ours(KVStore *kv, int writer)
{
    uint64_t n = acknowledged_of(writer) + 1;
    char key[24], number[24], value[3000];
    struct patience patience = {0};
    int rc;

    atomic_store(&ledger->intended[writer], n);
    for (;; again(&patience, "a commit by ours")) {
        rc = kvstore_begin(kv, 1);
        if (rc == KVSTORE_BUSY) continue;
        if (rc != KVSTORE_OK) fail("begin: %s: %s", kvstore_strerror(rc), kvstore_errmsg(kv));
        uint64_t there = counter_of_ours(kv, writer);
        if (there != n - 1) {
            fail("writer %d (ours) finds commit %llu, but %llu was acknowledged: %s", writer,
                 (unsigned long long)there, (unsigned long long)n - 1, "COMMITS ARE LOST");
        }
        WORKS(kv, kvstore_put(kv, key, counter_key(key, writer), number,
                              sprintf(number, "%llu", (unsigned long long)n)));
        WORKS(kv, kvstore_put(kv, key, entry_key(key, writer, n), value, entry_value(value, writer, n)));
        rc = kvstore_commit(kv);
        if (rc == KVSTORE_OK) break;
        if (rc != KVSTORE_BUSY) fail("commit: %s: %s", kvstore_strerror(rc), kvstore_errmsg(kv));
        WORKS(kv, kvstore_rollback(kv));
    }
    atomic_store(&ledger->acknowledged[writer], n);
}

/* Continues after a previous writer with the same number, which may have been killed. */
static inline void resume_ours(KVStore *kv, int writer)
{
    uint64_t before = acknowledged_of(writer);
    uint64_t there = counter_of_ours(kv, writer);
    judge("a new writer (ours)", writer, before, there);
    atomic_store(&ledger->intended[writer], there);
    atomic_store(&ledger->acknowledged[writer], there);
}

/* Checks in one snapshot that everything acknowledged before is present; with `thorough`, each
 * key of it. */
static inline void verify_ours(KVStore *kv, int thorough)
{
    uint64_t before[WRITERS];
    char key[24], expected[3000];
    int rc;

    for (int w = 0; w < WRITERS; w++) before[w] = acknowledged_of(w);
    PATIENTLY(rc, kvstore_begin(kv, 0));
    WORKS(kv, rc);
    for (int w = 0; w < WRITERS; w++) {
        uint64_t found, n = 0;
        KVIterator *it;

        if (intended_of(w) == 0) continue;
        found = counter_of_ours(kv, w);
        judge("ours", w, before[w], found);
        if (!thorough) continue;
        WORKS(kv, kvstore_prefix_iterator_create(kv, key, sprintf(key, "k/%02d/", w), &it));
        for (; !kvstore_iterator_eof(it); n++) {
            void *text, *value;
            int length, bytes;
            WORKS(kv, kvstore_iterator_key(it, &text, &length));
            WORKS(kv, kvstore_iterator_value(it, &value, &bytes));
            if (length != entry_key(key, w, n + 1) || memcmp(text, key, (size_t)length) != 0 ||
                bytes != entry_value(expected, w, n + 1) || memcmp(value, expected, (size_t)bytes) != 0) {
                fail("ours: the entry after %llu of writer %d is \"%.*s\", or has another value",
                     (unsigned long long)n, w, length, (char *)text);
            }
            WORKS(kv, kvstore_iterator_next(it));
        }
        kvstore_iterator_close(it);
        if (n != found) {
            fail("ours: writer %d has %llu entries and a counter of %llu", w, (unsigned long long)n,
                 (unsigned long long)found);
        }
    }
    WORKS(kv, kvstore_rollback(kv));
    if (thorough) {
        char *message = NULL;
        PATIENTLY(rc, kvstore_integrity_check(kv, &message));
        if (rc != KVSTORE_OK) fail("our integrity check: %s", message ? message : kvstore_errmsg(kv));
    }
}

/* ---- stock -------------------------------------------------------------------------------------------- */

#ifdef LINKED
#define STOCK(name) sqlite3_##name
static inline void load_stock(void)
{
}
#else
#define STOCK(name) stock_##name
#define EACH_OF_STOCK(X)                                                                                      \
    X(libversion) X(open_v2) X(close) X(exec) X(prepare_v2) X(step) X(reset) X(finalize) X(bind_blob)         \
    X(column_int64) X(column_blob) X(column_bytes) X(column_text) X(errmsg) X(busy_timeout)                    \
    X(extended_errcode) X(get_autocommit)
#define DECLARE(name) static __typeof__(&sqlite3_##name) stock_##name;
EACH_OF_STOCK(DECLARE)
static inline void load_stock(void)
{
    void *library = dlopen("libsqlite3.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    void *function;
    if (!library) fail("%s: .ci/setup installs it", dlerror());
#define LOAD(name)                                                                                            \
    function = dlsym(library, "sqlite3_" #name);                                                              \
    CHECK(function != NULL);                                                                                  \
    memcpy(&stock_##name, &function, sizeof function);
    EACH_OF_STOCK(LOAD)
}
#endif

struct stock {
    sqlite3 *db;
    sqlite3_stmt *get, *put;
};

static inline int is_busy(int rc)
{
    return (rc & 0xff) == SQLITE_BUSY;
}

static inline int run_stock(struct stock *s, const char *sql)
{
    return STOCK(exec)(s->db, sql, NULL, NULL, NULL);
}

static inline void must_run_stock(struct stock *s, const char *sql)
{
    struct patience patience = {0};
    int rc;
    while (is_busy(rc = run_stock(s, sql))) again(&patience, sql);
    if (rc != SQLITE_OK) fail("stock: %s: %d, %s", sql, rc, STOCK(errmsg)(s->db));
}

static inline struct stock open_stock(void)
{
    struct stock s = {NULL, NULL, NULL};
    struct patience patience = {0};
    int rc;

    if (STOCK(open_v2)(STORE, &s.db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK) {
        fail("stock cannot open: %s", STOCK(errmsg)(s.db));
    }
    must_run_stock(&s, "PRAGMA synchronous = OFF");
    while (is_busy(rc = STOCK(prepare_v2)(s.db, "SELECT value FROM \"data:default\" WHERE key = ?", -1, &s.get, NULL))) {
        again(&patience, "prepare by stock");
    }
    if (rc != SQLITE_OK) fail("stock: %d, %s", rc, STOCK(errmsg)(s.db));
    rc = STOCK(prepare_v2)(s.db, "INSERT OR REPLACE INTO \"data:default\"(key, value) VALUES (?, ?)", -1, &s.put, NULL);
    if (rc != SQLITE_OK) fail("stock: %d, %s", rc, STOCK(errmsg)(s.db));
    return s;
}

static inline void close_stock(struct stock *s)
{
    STOCK(finalize)(s->get);
    STOCK(finalize)(s->put);
    if (STOCK(close)(s->db) != SQLITE_OK) fail("stock cannot close");
    memset(s, 0, sizeof *s);
}

/* BUSY is possible in DELETE mode, outside a transaction. */
static inline uint64_t counter_of_stock(struct stock *s, int writer)
{
    struct patience patience = {0};
    char key[24];
    uint64_t number = 0;
    int rc, n = counter_key(key, writer);

    STOCK(bind_blob)(s->get, 1, key, n, SQLITE_STATIC);
    while (is_busy(rc = STOCK(step)(s->get))) {
        STOCK(reset)(s->get);
        again(&patience, "a read by stock");
    }
    if (rc == SQLITE_ROW) {
        number = as_number(STOCK(column_blob)(s->get, 0), STOCK(column_bytes)(s->get, 0));
    } else if (rc != SQLITE_DONE) {
        fail("stock cannot read: %d, %s", rc, STOCK(errmsg)(s->db));
    }
    STOCK(reset)(s->get);
    return number;
}

static inline void put_stock(struct stock *s, const char *key, int n, const char *value, int length)
{
    STOCK(bind_blob)(s->put, 1, key, n, SQLITE_STATIC);
    STOCK(bind_blob)(s->put, 2, value, length, SQLITE_STATIC);
    if (STOCK(step)(s->put) != SQLITE_DONE) {
        fail("stock cannot write: %d, %s", STOCK(extended_errcode)(s->db), STOCK(errmsg)(s->db));
    }
    STOCK(reset)(s->put);
}

static inline void commit_stock(struct stock *s, int writer)
{
    uint64_t n = acknowledged_of(writer) + 1;
    char key[24], number[24], value[3000];
    struct patience patience = {0};
    int rc;

    atomic_store(&ledger->intended[writer], n);
    for (;; again(&patience, "a commit by stock")) {
        rc = run_stock(s, "BEGIN IMMEDIATE");
        if (is_busy(rc)) continue;
        if (rc != SQLITE_OK) fail("stock cannot begin: %d, %s", rc, STOCK(errmsg)(s->db));
        uint64_t there = counter_of_stock(s, writer);
        if (there != n - 1) {
            fail("writer %d (stock) finds commit %llu, but %llu was acknowledged: %s", writer,
                 (unsigned long long)there, (unsigned long long)n - 1, "COMMITS ARE LOST");
        }
        put_stock(s, key, counter_key(key, writer), number, sprintf(number, "%llu", (unsigned long long)n));
        put_stock(s, key, entry_key(key, writer, n), value, entry_value(value, writer, n));
        rc = run_stock(s, "COMMIT");
        if (rc == SQLITE_OK) break;
        if (!is_busy(rc)) fail("stock cannot commit: %d, %s", rc, STOCK(errmsg)(s->db));
        must_run_stock(s, "ROLLBACK");
    }
    atomic_store(&ledger->acknowledged[writer], n);
}

static inline void resume_stock(struct stock *s, int writer)
{
    uint64_t before = acknowledged_of(writer);
    uint64_t there = counter_of_stock(s, writer);
    judge("a new writer (stock)", writer, before, there);
    atomic_store(&ledger->intended[writer], there);
    atomic_store(&ledger->acknowledged[writer], there);
}

static inline uint64_t number_of_stock(struct stock *s, const char *sql)
{
    struct patience patience = {0};
    sqlite3_stmt *statement;
    uint64_t number;
    int rc;

    while (is_busy(rc = STOCK(prepare_v2)(s->db, sql, -1, &statement, NULL))) again(&patience, sql);
    if (rc != SQLITE_OK) fail("stock: %s: %d, %s", sql, rc, STOCK(errmsg)(s->db));
    while (is_busy(rc = STOCK(step)(statement))) {
        STOCK(reset)(statement);
        again(&patience, sql);
    }
    if (rc != SQLITE_ROW) fail("stock: %s: %d, %s", sql, rc, STOCK(errmsg)(s->db));
    number = (uint64_t)STOCK(column_int64)(statement, 0);
    STOCK(finalize)(statement);
    return number;
}

static inline void verify_stock(struct stock *s, int thorough)
{
    uint64_t before[WRITERS];

    for (int w = 0; w < WRITERS; w++) before[w] = acknowledged_of(w);
    must_run_stock(s, "BEGIN");
    for (int w = 0; w < WRITERS; w++) {
        char sql[300];
        uint64_t found, n;

        if (intended_of(w) == 0) continue;
        found = counter_of_stock(s, w);
        judge("stock", w, before[w], found);
        if (!thorough) continue;
        snprintf(sql, sizeof sql,
                 "SELECT count(*) FROM \"data:default\" WHERE key > CAST('k/%02d/' AS BLOB) AND key < CAST('k/%02d0' AS BLOB)",
                 w, w);
        n = number_of_stock(s, sql);
        if (n != found) {
            fail("stock: writer %d has %llu entries and a counter of %llu", w, (unsigned long long)n,
                 (unsigned long long)found);
        }
    }
    must_run_stock(s, "COMMIT");
    if (thorough && number_of_stock(s, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'") != 1) {
        fail("stock's integrity check finds damage");
    }
}

/* ---- locks, as another process sees them -------------------------------------------------------------- */

/* Where SQLite locks: in the database, and in -shm. */
enum {
    RESERVED_BYTE = 0x40000001,
    SHARED_FIRST = 0x40000002,
    SHARED_COUNT = 510,
    SHM_WRITE = 120,
    SHM_CHECKPOINT = 121,
    SHM_READ = 123, /* to 127 */
    SHM_DMS = 128,
};

/* The lock that another process has there: '-', 'r' or 'w'; '0' if the file does not exist. The
 * calling process must not use SQLite on the file, because closing the descriptor would drop its
 * locks. */
static inline char lock_at(const char *path, off_t start, off_t count)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = count};
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return '0';
    CHECK(fcntl(fd, F_GETLK, &lock) == 0);
    close(fd);
    return lock.l_type == F_UNLCK ? '-' : lock.l_type == F_RDLCK ? 'r' : 'w';
}

static inline int is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Asserts that no process has a lock on the store. */
static inline void must_be_unlocked(const char *when)
{
    char db = lock_at(STORE, 0, 0), shm = lock_at(STORE "-shm", 0, 0);
    if (db != '-' || (shm != '-' && shm != '0')) fail("%s there are locks: %c on the file, %c on -shm", when, db, shm);
}

/* ---- roles -------------------------------------------------------------------------------------------- */

/* "verify MODE" and "glance MODE": checks with both libraries that everything acknowledged is
 * present. */
static inline void verify_role(const char *mode, int thorough)
{
    struct stock s;
    KVStore *kv;

    limit_time(60);
    kv = open_ours(mode);
    verify_ours(kv, thorough);
    close_ours(kv);
    s = open_stock();
    verify_stock(&s, thorough);
    close_stock(&s);
}

#endif

/* Stores whose process or files change: signals, users, system calls, deleted files. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "check.h"

static KVStore *open_config(const char *path, const KVStoreConfig *config)
{
    KVStore *kv;
    int code = kvstore_open_v2(path, &kv, config);
    if (code != KVSTORE_OK) {
        fprintf(stderr, "%s: %d, %s\n", path, code, kvstore_errmsg(NULL));
        exit(1);
    }
    return kv;
}

static KVStore *open_with_timeout(const char *path, int busy_timeout_ms)
{
    KVStoreConfig config = {.journalMode = KVSTORE_JOURNAL_WAL, .busyTimeout = busy_timeout_ms};
    return open_config(path, &config);
}

static KVStore *open_with(const char *path, int journal_mode, int sync_level)
{
    KVStoreConfig config = {.journalMode = journal_mode, .syncLevel = sync_level};
    return open_config(path, &config);
}

/* Checks the text of the last failure of a handle; NULL: of the last failed open of this thread. */
static void check_message(KVStore *kv, const char *part)
{
    const char *message = kvstore_errmsg(kv);
    if (!strstr(message, part)) {
        fprintf(stderr, "message: %s\n", message);
        exit(1);
    }
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

/* Lets a system call fail with an error if the bits in `mask` of its argument (0: the first) are `bits`. */
static void refuse_if(unsigned number, unsigned argument, unsigned mask, unsigned bits, int error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, args) + 8 * argument),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, bits, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* Old container runtimes refuse system calls that they do not know with EPERM instead of ENOSYS. */
static void faccessat2_refused(void)
{
    refuse_if(439 /* faccessat2 */, 0, 0, 0, EPERM);
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
    if (second == NULL) CHECK(code_of_another_process("meanwhile") == KVSTORE_BUSY); /* otherwise it looks closed */
    pause_ms(20); /* longer than the library goes on without a check */
    GIVES(KVSTORE_IOERR, kvstore_put(kv, "late", 4, "b", 1));
    check_message(kv, "-shm file of the store was deleted");
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

/* Sets the limit on the size of a file, and waits until the library asks for it again. */
static void limit_file_size(rlim_t bytes)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = bytes;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    pause_ms(20);
}

/* The signal neither ends the process nor waits; the program's mask and disposition are as before. */
static void check_no_signal(void)
{
    sigset_t set;
    struct sigaction action;
    CHECK(sigpending(&set) == 0 && !sigismember(&set, SIGXFSZ));
    CHECK(sigprocmask(SIG_BLOCK, NULL, &set) == 0 && !sigismember(&set, SIGXFSZ));
    CHECK(sigaction(SIGXFSZ, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
}

static void file_size_limit(void)
{
    static const struct { int journal_mode, sync_level; } modes[] = {
        {KVSTORE_JOURNAL_WAL, KVSTORE_SYNC_NORMAL},
        {KVSTORE_JOURNAL_WAL, KVSTORE_SYNC_FULL}, /* zeros are written ahead in the WAL */
        {KVSTORE_JOURNAL_DELETE, KVSTORE_SYNC_NORMAL},
    };
    char value[3000], key[16], path[16];
    memset(value, 'x', sizeof value);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        int put = 0, code = KVSTORE_OK, exists;
        snprintf(path, sizeof path, "%zu.db", i);
        KVStore *kv = open_with(path, modes[i].journal_mode, modes[i].sync_level);
        limit_file_size(500 * 1000);
        while (code == KVSTORE_OK && put < 1000) {
            snprintf(key, sizeof key, "%d", put);
            code = kvstore_put(kv, key, (int)strlen(key), value, sizeof value);
            put += code == KVSTORE_OK;
        }
        GIVES(KVSTORE_FULL, code);
        check_message(kv, "RLIMIT_FSIZE");
        check_no_signal();
        CHECK(put > 20);
        GIVES(KVSTORE_FULL, kvstore_put(kv, "again", 5, value, sizeof value));
        for (int again = 0; again < 2; again++) { /* also after an open without the limit */
            for (int n = 0; n < put; n++) {
                snprintf(key, sizeof key, "%d", n);
                OK(kvstore_exists(kv, key, (int)strlen(key), &exists));
                CHECK(exists);
            }
            OK(kvstore_exists(kv, "again", 5, &exists));
            CHECK(!exists);
            OK(kvstore_integrity_check(kv, NULL));
            OK(kvstore_close(kv));
            limit_file_size(RLIM_INFINITY);
            kv = open_with(path, modes[i].journal_mode, modes[i].sync_level);
        }
        OK(kvstore_put(kv, "again", 5, value, sizeof value));

        /* A backup, and a store whose shared memory does not fit. */
        limit_file_size(20 * 1000);
        GIVES(KVSTORE_FULL, kvstore_backup(kv, "backup.db", NULL, NULL));
        check_message(kv, "RLIMIT_FSIZE");
        CHECK(access("backup.db", F_OK) != 0);
        if (modes[i].journal_mode == KVSTORE_JOURNAL_WAL) {
            KVStore *other;
            KVStoreConfig config;
            memset(&config, 0, sizeof config);
            config.journalMode = KVSTORE_JOURNAL_WAL;
            GIVES(KVSTORE_FULL, kvstore_open_v2("new.db", &other, &config));
        }
        check_no_signal();
        limit_file_size(RLIM_INFINITY);
        OK(kvstore_close(open_with("new.db", modes[i].journal_mode, modes[i].sync_level)));
        CHECK(remove("new.db") == 0);
        OK(kvstore_close(kv));
    }
    /* A signal that the program keeps blocked, and that waits already, still waits afterwards. */
    sigset_t set;
    int taken;
    KVStore *kv = open_with("0.db", KVSTORE_JOURNAL_DELETE, KVSTORE_SYNC_NORMAL);
    CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGXFSZ) == 0);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0 && raise(SIGXFSZ) == 0);
    limit_file_size(1000);
    GIVES(KVSTORE_FULL, kvstore_put(kv, "more", 4, value, sizeof value));
    CHECK(sigpending(&set) == 0 && sigismember(&set, SIGXFSZ));
    CHECK(sigwait(&set, &taken) == 0 && taken == SIGXFSZ);
    limit_file_size(RLIM_INFINITY);
    OK(kvstore_close(kv));
}

static void close_all_descriptors(void)
{
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
}

/* Descriptors that the program opens itself, and that get the numbers of those it has closed. */
static int own_descriptors[12];

static void open_descriptors(const char *path, int flags)
{
    for (size_t i = 0; i < sizeof own_descriptors / sizeof *own_descriptors; i++) {
        own_descriptors[i] = open(path, flags);
        CHECK(own_descriptors[i] >= 3);
    }
}

static void check_descriptors(int flags)
{
    for (size_t i = 0; i < sizeof own_descriptors / sizeof *own_descriptors; i++) {
        CHECK((fcntl(own_descriptors[i], F_GETFL) & O_ACCMODE) == flags);
        CHECK(lseek(own_descriptors[i], 0, SEEK_CUR) == 0);
        CHECK(close(own_descriptors[i]) == 0);
    }
}

/* A daemon closes all descriptors, those of closed handles too, and goes on. */
static void descriptors_closed(void)
{
    KVStore *kv = open_with_timeout("store.db", 0), *other;
    OK(kvstore_put(kv, "a", 1, "b", 1));
    OK(kvstore_close(kv)); /* parks a descriptor */
    close_all_descriptors();
    /* A parked number of before is that of a new descriptor now, and is not given away again. */
    kv = open_with_timeout("store.db", 0);
    other = open_with_timeout("store.db", 0);
    OK(kvstore_begin(kv, 1));
    OK(kvstore_put(kv, "a", 1, "c", 1));
    GIVES(KVSTORE_BUSY, kvstore_put(other, "a", 1, "d", 1));
    OK(kvstore_commit(kv));
    OK(kvstore_close(kv));
    OK(kvstore_close(other));

    /* The program opens the file of the store, as the library does, and not. */
    static const int flags[] = {O_RDWR, O_RDWR | O_CLOEXEC | O_NOFOLLOW, O_RDONLY};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        close_all_descriptors();
        open_descriptors("store.db", flags[i]);
        kv = open_with_timeout("store.db", 0);
        other = open_with_timeout("store.db", 0);
        check_descriptors(flags[i] & O_ACCMODE); /* and closes them: the handles use none of them */
        OK(kvstore_put(kv, "a", 1, "e", 1));
        OK(kvstore_close(kv));
        OK(kvstore_close(other));
    }
    /* An open handle cannot be used any more, and its close closes nothing of the program's. */
    kv = open_with_timeout("store.db", 0);
    other = open_with("other.db", KVSTORE_JOURNAL_DELETE, KVSTORE_SYNC_NORMAL);
    close_all_descriptors();
    open_descriptors("/dev/zero", O_RDONLY);
    kvstore_close(kv);
    kvstore_close(other);
    check_descriptors(O_RDONLY);
    kv = open_with_timeout("store.db", 0);
    OK(kvstore_put(kv, "a", 1, "f", 1));
    OK(kvstore_integrity_check(kv, NULL));
    OK(kvstore_close(kv));
}

static int code_of_open(const char *path, int journal_mode, int exclusive)
{
    KVStore *kv;
    KVStoreConfig config;
    memset(&config, 0, sizeof config);
    config.journalMode = journal_mode;
    config.exclusive = exclusive;
    int code = kvstore_open_v2(path, &kv, &config);
    if (code == KVSTORE_OK) {
        OK(kvstore_put(kv, "b", 1, "c", 1));
        OK(kvstore_close(kv));
    }
    return code;
}

static void check_no_files(const char *path)
{
    static const char *suffixes[] = {"-wal", "-shm", "-journal"};
    for (size_t i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
        if (access(name, F_OK) == 0) {
            fprintf(stderr, "%s is left\n", name);
            exit(1);
        }
    }
}

/* A file system without shared memory maps, such as FUSE with direct I/O. */
static void shared_maps_refused(void)
{
    KVStore *kv = open_with("wal.db", KVSTORE_JOURNAL_WAL, KVSTORE_SYNC_NORMAL);
    void *value;
    int length;
    OK(kvstore_put(kv, "a", 1, "b", 1));
    OK(kvstore_close(kv));
    kv = open_with("delete.db", KVSTORE_JOURNAL_DELETE, KVSTORE_SYNC_NORMAL);
    OK(kvstore_put(kv, "a", 1, "b", 1));
    OK(kvstore_close(kv));
    /* One that a killed process has left, with all its data in the WAL. */
    pid_t child = fork();
    if (child == 0) {
        kv = open_with("killed.db", KVSTORE_JOURNAL_WAL, KVSTORE_SYNC_NORMAL);
        OK(kvstore_put(kv, "a", 1, "b", 1));
        _exit(0);
    }
    CHECK(waitpid(child, NULL, 0) == child && access("killed.db-wal", F_OK) == 0);
    refuse_if(SYS_mmap, 3, MAP_SHARED | MAP_PRIVATE, MAP_SHARED, ENODEV);

    GIVES(KVSTORE_CANTOPEN, code_of_open("new.db", KVSTORE_JOURNAL_WAL, 0));
    check_message(NULL, "DELETE");
    CHECK(access("new.db", F_OK) != 0);
    check_no_files("new.db");
    GIVES(KVSTORE_CANTOPEN, code_of_open("wal.db", KVSTORE_JOURNAL_WAL, 0));
    check_message(NULL, "DELETE");
    check_no_files("wal.db");
    GIVES(KVSTORE_CANTOPEN, code_of_open("delete.db", KVSTORE_JOURNAL_WAL, 0));
    check_message(NULL, "DELETE");
    check_no_files("delete.db");
    OK(code_of_open("exclusive.db", KVSTORE_JOURNAL_WAL, 1));
    static const char *paths[] = {"new.db", "wal.db", "delete.db", "killed.db", "exclusive.db"};
    for (size_t i = 0; i < 5; i++) {
        kv = open_with(paths[i], KVSTORE_JOURNAL_DELETE, KVSTORE_SYNC_NORMAL);
        KVStore *other = open_with(paths[i], KVSTORE_JOURNAL_DELETE, KVSTORE_SYNC_NORMAL);
        OK(kvstore_put(kv, "c", 1, "d", 1));
        OK(kvstore_get(other, "c", 1, &value, &length));
        kvstore_free(value);
        if (i != 0 && i != 4) {
            OK(kvstore_get(other, "a", 1, &value, &length));
            kvstore_free(value);
        }
        OK(kvstore_close(kv));
        OK(kvstore_close(other));
        check_no_files(paths[i]);
    }
}

/* fs.protected_regular: a file of another user in a sticky directory cannot be opened with O_CREAT. */
static void o_creat_refused(void)
{
    void *value;
    int length;
    KVStore *kv = open_with_timeout("store.db", 0), *other;
    KVStoreConfig config;
    OK(kvstore_put(kv, "a", 1, "b", 1));
    pid_t child = fork();
    if (child == 0) {
        refuse_if(SYS_openat, 2, O_CREAT | O_EXCL, O_CREAT, EACCES);
        CHECK(open("store.db", O_RDWR | O_CREAT, 0600) == -1 && errno == EACCES);
        other = open_with_timeout("store.db", 0);
        OK(kvstore_put(other, "a", 1, "c", 1));
        OK(kvstore_close(other));
        memset(&config, 0, sizeof config);
        GIVES(KVSTORE_CANTOPEN, kvstore_open_v2("new.db", &other, &config));
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    OK(kvstore_get(kv, "a", 1, &value, &length));
    CHECK(length == 1 && *(char *)value == 'c');
    kvstore_free(value);
    OK(kvstore_close(kv));
}

/* A disk quota of the user, the group or the project. */
static void quota_used_up(void)
{
    KVStore *wal = open_with("wal.db", KVSTORE_JOURNAL_WAL, KVSTORE_SYNC_NORMAL);
    KVStore *delete = open_with("delete.db", KVSTORE_JOURNAL_DELETE, KVSTORE_SYNC_NORMAL), *other;
    KVStoreConfig config = {.journalMode = KVSTORE_JOURNAL_WAL};
    refuse_if(SYS_pwrite64, 0, 0, 0, EDQUOT);
    GIVES(KVSTORE_FULL, kvstore_put(wal, "a", 1, "b", 1));
    check_message(wal, "quota");
    GIVES(KVSTORE_FULL, kvstore_put(delete, "a", 1, "b", 1));
    check_message(delete, "quota");
    GIVES(KVSTORE_FULL, kvstore_backup(wal, "backup.db", NULL, NULL));
    check_message(wal, "quota");
    CHECK(access("backup.db", F_OK) != 0);
    /* Nor can a file be created. */
    refuse_if(SYS_openat, 2, O_CREAT, O_CREAT, EDQUOT);
    GIVES(KVSTORE_FULL, kvstore_open_v2("new.db", &other, &config));
    check_message(NULL, "quota");
    GIVES(KVSTORE_FULL, kvstore_put(delete, "a", 1, "b", 1));
    check_message(delete, "quota");
    GIVES(KVSTORE_FULL, kvstore_backup(wal, "backup.db", NULL, NULL));
    OK(kvstore_close(wal));
    OK(kvstore_close(delete));
    GIVES(KVSTORE_FULL, kvstore_open_v2("wal.db", &other, &config)); /* its -wal */
    check_message(NULL, "quota");
}

/* Uses stores where files cannot be removed. */
static void work_without_removals(void)
{
    static const int modes[] = {KVSTORE_JOURNAL_WAL, KVSTORE_JOURNAL_DELETE};
    static const char *paths[] = {"wal.db", "delete.db"};
    int exists;
    for (size_t i = 0; i < 2; i++) {
        for (int again = 0; again < 3; again++) {
            KVStore *kv = open_with(paths[i], modes[i], KVSTORE_SYNC_FULL);
            KVStore *other = open_with(paths[i], modes[i], KVSTORE_SYNC_FULL);
            OK(kvstore_exists(kv, "a", 1, &exists));
            CHECK(exists == (again > 0));
            OK(kvstore_put(kv, "a", 1, "b", 1));
            OK(kvstore_begin(other, 1));
            OK(kvstore_put(other, "c", 1, "d", 1));
            OK(kvstore_rollback(other));
            OK(kvstore_put(other, "e", 1, "f", 1));
            OK(kvstore_exists(kv, "c", 1, &exists));
            CHECK(!exists);
            OK(kvstore_exists(kv, "e", 1, &exists));
            CHECK(exists);
            OK(kvstore_close(kv));
            OK(kvstore_close(other));
        }
    }
}

/* A sandbox in which files cannot be removed. */
static void removal_refused(void)
{
    refuse_if(SYS_unlink, 0, 0, 0, EACCES);
    refuse_if(SYS_unlinkat, 0, 0, 0, EACCES);
    work_without_removals();
    /* Nor can they be emptied. */
    KVStore *kv = open_with("delete.db", KVSTORE_JOURNAL_DELETE, KVSTORE_SYNC_NORMAL);
    refuse_if(SYS_openat, 2, O_TRUNC, O_TRUNC, EACCES);
    GIVES(KVSTORE_IOERR, kvstore_put(kv, "new", 3, "value", 5));
    check_message(kv, "may not remove");
    kvstore_close(kv);
}

/* Refuses the given accesses to all files, by Landlock (Linux 5.13). Returns 0 if the kernel has no Landlock. */
static int forbid(uint64_t accesses)
{
    int rules = (int)syscall(SYS_landlock_create_ruleset, &accesses, sizeof accesses, 0);
    if (rules == -1) return 0;
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(SYS_landlock_restrict_self, rules, 0) == 0);
    close(rules);
    return 1;
}

/* As removal_refused, by the kernel itself. */
static void removal_refused_by_landlock(void)
{
    if (!forbid(1u << 5 /* LANDLOCK_ACCESS_FS_REMOVE_FILE */)) {
        puts("SKIPPED: this kernel has no Landlock");
        return;
    }
    work_without_removals();
    CHECK(unlink("wal.db") == -1 && errno == EACCES);
    if (!forbid(1u << 14 /* LANDLOCK_ACCESS_FS_TRUNCATE, Linux 6.2 */)) return;
    KVStore *kv = open_with("delete.db", KVSTORE_JOURNAL_DELETE, KVSTORE_SYNC_NORMAL);
    GIVES(KVSTORE_IOERR, kvstore_put(kv, "new", 3, "value", 5));
    check_message(kv, "may not remove");
    kvstore_close(kv);
}

static KVStore *open_in_mode(const char *path, int journal_mode, int mode)
{
    KVStoreConfig config = {.journalMode = journal_mode, .mode = mode};
    return open_config(path, &config);
}

static int mode_of(const char *path)
{
    struct stat found;
    if (stat(path, &found) != 0) return -1;
    return (int)(found.st_mode & 07777);
}

/* The permissions of new files are those that were asked for, whatever the umask is. */
static void file_mode(void)
{
    static const int umasks[] = {0, 007, 022, 077, 0277};
    for (size_t i = 0; i < sizeof umasks / sizeof *umasks; i++) {
        static const char *files[] = {"wal.db", "wal.db-wal", "wal.db-shm", "delete.db", "delete.db-journal",
                                      "backup.db", "plain.db", "plain.db-wal", "copy.db"};
        umask((mode_t)umasks[i]);
        KVStore *wal = open_in_mode("wal.db", KVSTORE_JOURNAL_WAL, 0660);
        OK(kvstore_put(wal, "a", 1, "b", 1));
        CHECK(mode_of("wal.db") == 0660 && mode_of("wal.db-wal") == 0660 && mode_of("wal.db-shm") == 0660);
        KVStore *delete = open_in_mode("delete.db", KVSTORE_JOURNAL_DELETE, 0606);
        OK(kvstore_begin(delete, 1));
        OK(kvstore_put(delete, "a", 1, "b", 1));
        CHECK(mode_of("delete.db") == 0606 && mode_of("delete.db-journal") == 0606);
        OK(kvstore_commit(delete));
        OK(kvstore_backup(wal, "backup.db", NULL, NULL));
        CHECK(mode_of("backup.db") == 0660);
        OK(kvstore_close(wal));
        OK(kvstore_close(delete));
        /* A backup is as its store where nothing else is said. An existing file stays as it is. */
        wal = open_in_mode("wal.db", KVSTORE_JOURNAL_WAL, 0);
        OK(kvstore_backup(wal, "copy.db", NULL, NULL));
        CHECK(mode_of("copy.db") == 0660);
        OK(kvstore_close(wal));
        OK(kvstore_close(open_in_mode("wal.db", KVSTORE_JOURNAL_WAL, 0600)));
        CHECK(mode_of("wal.db") == 0660);
        /* The default. */
        KVStore *plain = open_in_mode("plain.db", KVSTORE_JOURNAL_WAL, 0);
        OK(kvstore_put(plain, "a", 1, "b", 1));
        CHECK(mode_of("plain.db") == (0644 & ~umasks[i]) && mode_of("plain.db-wal") == (0644 & ~umasks[i]));
        OK(kvstore_close(plain));
        for (size_t j = 0; j < sizeof files / sizeof *files; j++)
            remove(files[j]);
    }
}

SCENARIOS({"busy_timeout_with_timer", busy_timeout_with_timer}, {"signal_with_cleaner", signal_with_cleaner},
          {"setuid_after_open", setuid_after_open}, {"faccessat2_refused", faccessat2_refused},
          {"shm_deleted", shm_deleted}, {"wal_deleted", wal_deleted}, {"wal_and_shm_deleted", wal_and_shm_deleted},
          {"file_size_limit", file_size_limit},
          {"descriptors_closed", descriptors_closed}, {"shared_maps_refused", shared_maps_refused},
          {"o_creat_refused", o_creat_refused}, {"quota_used_up", quota_used_up},
          {"removal_refused", removal_refused}, {"removal_refused_by_landlock", removal_refused_by_landlock},
          {"file_mode", file_mode})

/* Opens in which a system call fails, once or from then on. This program's open and fstat are the ones that the library
 * calls. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"

static int calls_left = -1; /* until the fault; -1: none */
static int lasts;           /* whether the fault stays */
static int fault;           /* the errno */
static const char *failing; /* "open" or "fstat" */

/* Returns whether this call fails. */
static int fails(const char *call)
{
    if (calls_left < 0 || strcmp(call, failing) != 0) return 0;
    if (calls_left > 1) {
        calls_left--;
        return 0;
    }
    calls_left = lasts ? 1 : -1;
    errno = fault;
    return 1;
}

int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    int mode = (flags & O_CREAT) ? va_arg(rest, int) : 0;
    va_end(rest);
    if (strstr(path, "store.db") && fails("open")) return -1;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));

int fstat(int fd, struct stat *to)
{
    if (fails("fstat")) return -1;
    return fstatat(fd, "", to, AT_EMPTY_PATH);
}

int fstat64(int fd, struct stat64 *to) __attribute__((alias("fstat")));

static KVStore *sound(void)
{
    KVStore *kv;
    KVStoreConfig config = {.busyTimeout = -1};
    OK(kvstore_open_v2("store.db", &kv, &config));
    return kv;
}

/* A failure that passes must not leave a handle that can only read. */
static void open_fails_once(void)
{
    static const int errors[] = {EMFILE, EIO};
    for (int beside = 0; beside < 2; beside++) {
        for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
            for (int nth = 1; nth < 12; nth++) {
                KVStore *first = sound(), *kv = NULL;
                KVStoreConfig config = {.busyTimeout = -1};
                OK(kvstore_put(first, "a", 1, "1", 1));
                if (!beside) OK(kvstore_close(first));
                failing = "open", fault = errors[i], lasts = 0, calls_left = nth;
                int code = kvstore_open_v2("store.db", &kv, &config);
                calls_left = -1;
                CHECK(code == KVSTORE_OK || code == KVSTORE_CANTOPEN || code == KVSTORE_IOERR || code == KVSTORE_FULL);
                if (code == KVSTORE_OK) {
                    OK(kvstore_put(kv, "b", 1, "1", 1));
                    OK(kvstore_close(kv));
                }
                if (beside) OK(kvstore_close(first));
                kv = sound();
                OK(kvstore_put(kv, "c", 1, "1", 1));
                OK(kvstore_close(kv));
            }
        }
    }
}

static int descriptors(void)
{
    int count = 0;
    DIR *all = opendir("/proc/self/fd");
    CHECK(all);
    while (readdir(all)) count++;
    closedir(all);
    return count;
}

/* Whatever fails in an open, the store can be opened later, here and in another process. */
static void fstat_fails_from_then_on(void)
{
    int before = 0;
    for (int nth = 1; nth < 40; nth++) {
        KVStore *first = sound(), *kv = NULL;
        KVStoreConfig config = {.busyTimeout = -1};
        OK(kvstore_put(first, "a", 1, "1", 1));
        failing = "fstat", fault = EIO, lasts = 1, calls_left = nth;
        int code = kvstore_open_v2("store.db", &kv, &config);
        calls_left = -1;
        if (code == KVSTORE_OK) OK(kvstore_close(kv));
        OK(kvstore_put(first, "b", 1, "1", 1));
        OK(kvstore_close(first));
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            kv = sound();
            OK(kvstore_put(kv, "c", 1, "1", 1));
            OK(kvstore_close(kv));
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        if (status != 0) fprintf(stderr, "after fstat no. %d failed\n", nth);
        CHECK(status == 0);
        OK(kvstore_close(sound()));
        int now = descriptors();
        if (nth == 1) before = now;
        if (now > before + 4) fprintf(stderr, "%d descriptors, %d before, after fstat no. %d failed\n", now, before, nth);
        CHECK(now <= before + 4); /* the library keeps some for its next open */
    }
}

SCENARIOS({"open_fails_once", open_fails_once}, {"fstat_fails_from_then_on", fstat_fails_from_then_on})

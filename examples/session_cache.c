/*
 * Demonstrates a store with real files. `make demo` builds and runs it.
 *
 *     session_cache [DIRECTORY [STORE]]
 *
 * The program loads every regular file under DIRECTORY (default /usr/include) into a new STORE (default
 * session_cache.db), with the path as key and the content as value. Every third file is a "session" with a TTL
 * of 1 to 3 seconds. The program
 *   - reads everything back and compares it with the files,
 *   - reads the open file from a second process,
 *   - waits until the sessions expire, and shows that no call returns them,
 *   - purges, checks and closes the store.
 * The exit status is 1 if any result is wrong.
 *
 * The second process is Python with its sqlite3 module, which shows the file to an independent SQLite.
 */
#define _XOPEN_SOURCE 700

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kvstore.h"

enum { FILES_PER_TRANSACTION = 1000, MAX_VALUE = 10 * 1024 * 1024 };

typedef struct {
    char *path;
    int64_t size;      /* -1: could not be loaded */
    int64_t expire_ms; /* 0: never */
} File;

/* Number of keys, bytes of their values, and time spent in the store. */
typedef struct {
    size_t keys;
    int64_t bytes;
    double seconds;
} Work;

static KVStore *kv;
static const char *store;
static File *files; /* sorted by path */
static size_t file_count;
static int failures;

/* ---- helpers ---- */

static void expect(int good, const char *complaint, const char *about)
{
    if (good) return;
    failures++;
    printf("   WRONG: %s %s\n", complaint, about);
}

static void die(const char *what, const char *why)
{
    fflush(stdout);
    fprintf(stderr, "session_cache: %s: %s\n", what, why);
    exit(1);
}

/* Exits if a call failed that the demo depends on. */
static void must(int rc, const char *what)
{
    if (rc != KVSTORE_OK) die(what, kvstore_errmsg(kv));
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Returns the size of the store's file, or of that file with a suffix, in MB; -1 if it does not exist. */
static double megabytes_of(const char *suffix)
{
    struct stat found;
    char name[4200];
    snprintf(name, sizeof name, "%s%s", store, suffix);
    return stat(name, &found) == 0 ? (double)found.st_size / 1e6 : -1;
}

static void print_work(const char *what, Work w)
{
    double seconds = w.seconds > 0 ? w.seconds : 1e-9, mb = (double)w.bytes / 1e6;
    printf("   %-14s %7zu keys %9.2f MB %8.3f s %9.0f keys/s %8.1f MB/s\n", what, w.keys, mb, w.seconds,
           (double)w.keys / seconds, mb / seconds);
}

/* ---- files ---- */

static int collect(const char *path, const struct stat *found, int type, struct FTW *where)
{
    (void)where;
    if (type != FTW_F || !S_ISREG(found->st_mode)) return 0;
    if ((file_count & (file_count - 1)) == 0) /* full: double the capacity */
        files = realloc(files, (file_count ? 2 * file_count : 1) * sizeof *files);
    if (!files) return 1;
    files[file_count++] = (File){strdup(path), found->st_size, 0};
    return files[file_count - 1].path == NULL;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const File *)a)->path, ((const File *)b)->path);
}

/* Reads a file into memory that the next call reuses. Returns its length, or -1 if it cannot be read. */
static int read_file(const char *path, char **content)
{
    static char buffer[MAX_VALUE];
    FILE *file = fopen(path, "rb");
    int n = -1;
    if (!file) return -1;
    n = (int)fread(buffer, 1, sizeof buffer, file);
    if (ferror(file)) n = -1;
    fclose(file);
    *content = buffer;
    return n;
}

/* Returns whether file i belongs to this family: every third file is a session. */
static int is_in(size_t i, int sessions)
{
    return files[i].size >= 0 && (i % 3 == 0) == sessions;
}

/* ---- a second process ---- */

/* Runs a Python script with the store and `view` as arguments. `answer` receives the line it prints. */
static void second_process(const char *script, const char *view, char *answer, int capacity)
{
    int ends[2], status = 0;
    pid_t child;
    FILE *output;
    fflush(stdout);
    if (pipe(ends) != 0 || (child = fork()) < 0) die("a second process", "cannot be started");
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execlp("python3", "python3", "-c", script, store, view, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    output = fdopen(ends[0], "r");
    if (!output || !fgets(answer, capacity, output)) answer[0] = 0;
    if (output) fclose(output);
    waitpid(child, &status, 0);
    if (status != 0) die("second process", "failed (is there a python3 with its sqlite3 module?)");
    answer[strcspn(answer, "\n")] = 0;
}

/* Prints what another program reads from a view: rows, bytes of values, and a sample. */
static Work look_from_outside(const char *view)
{
    static const char script[] =
        "import sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1])\n"
        "view = '\"' + sys.argv[2] + '\"'\n"
        "n, size = db.execute(f'select count(*), total(length(value)) from {view}').fetchone()\n"
        "row = db.execute(f'select cast(key as text), length(value) from {view} limit 1').fetchone()\n"
        "print(n, int(size), end='')\n"
        "if row: print(f'   such as {row[0]}, {row[1]} bytes')\n";
    char answer[4200];
    long long rows = -1, bytes = -1;
    int sample = 0;
    second_process(script, view, answer, sizeof answer);
    if (sscanf(answer, "%lld %lld%n", &rows, &bytes, &sample) < 2) die("second process", "gave no answer");
    printf("   %-14s %7lld rows %9.2f MB%s\n", view, rows, (double)bytes / 1e6, answer + sample);
    return (Work){(size_t)rows, bytes, 0};
}

/* ---- operations on the store ---- */

/* Loads the files of one family. */
static Work load(KVColumnFamily *cf, int sessions, size_t *left_out)
{
    Work done = {0};
    double start;
    for (size_t i = 0; i < file_count; i++) {
        File *file = &files[i];
        char *content;
        if (!is_in(i, sessions)) continue;
        if (file->size <= MAX_VALUE) file->size = read_file(file->path, &content);
        left_out[0] += file->size < 0;
        left_out[1] += file->size > MAX_VALUE;
        if (file->size > MAX_VALUE) file->size = -1;
        if (file->size < 0) continue;

        start = seconds_now();
        if (done.keys % FILES_PER_TRANSACTION == 0) must(kvstore_begin(kv, 1), "begin");
        if (sessions) file->expire_ms = kvstore_now_ms() + 1000 + (int64_t)(i % 2001);
        must(kvstore_cf_put_ttl(cf, file->path, (int)strlen(file->path), content, (int)file->size,
                                file->expire_ms), "put");
        if (++done.keys % FILES_PER_TRANSACTION == 0) must(kvstore_commit(kv), "commit");
        done.seconds += seconds_now() - start;
        done.bytes += file->size;
    }
    start = seconds_now();
    if (done.keys % FILES_PER_TRANSACTION != 0) must(kvstore_commit(kv), "commit");
    done.seconds += seconds_now() - start;
    return done;
}

/* Gets every loaded key and compares it with its file. A session may have expired. */
static Work read_back(KVColumnFamily *cf, int sessions, size_t *gone)
{
    Work done = {0};
    for (size_t i = 0; i < file_count; i++) {
        const File *file = &files[i];
        int64_t before = kvstore_now_ms();
        double start = seconds_now();
        void *value;
        char *content;
        int n, rc;
        if (!is_in(i, sessions)) continue;
        rc = kvstore_cf_get(cf, file->path, (int)strlen(file->path), &value, &n);
        done.seconds += seconds_now() - start;
        if (rc == KVSTORE_NOTFOUND) {
            expect(file->expire_ms && file->expire_ms <= kvstore_now_ms(), "missing:", file->path);
            ++*gone;
            continue;
        }
        must(rc, "get");
        expect(!file->expire_ms || file->expire_ms > before, "there after its time:", file->path);
        expect(read_file(file->path, &content) == n && memcmp(value, content, (size_t)n) == 0,
               "another content than in the file:", file->path);
        done.keys++;
        done.bytes += n;
        kvstore_free(value);
    }
    return done;
}

/* Iterates over a family, which must contain all its files in order, or nothing once they have expired. */
static Work iterate(KVColumnFamily *cf, int sessions)
{
    Work done = {0};
    KVIterator *it;
    void *key, *value;
    int key_size, value_size;
    size_t i = 0;
    double start = seconds_now();
    must(kvstore_cf_iterator_create(cf, &it), "iterator");
    for (must(kvstore_iterator_first(it), "first"); !kvstore_iterator_eof(it); i++) {
        must(kvstore_iterator_key(it, &key, &key_size), "key");
        must(kvstore_iterator_value(it, &value, &value_size), "value");
        while (i < file_count && !is_in(i, sessions)) i++;
        expect(i < file_count && strlen(files[i].path) == (size_t)key_size
                   && memcmp(files[i].path, key, (size_t)key_size) == 0 && files[i].size == value_size,
               "the iteration", "shows something else than the next file");
        done.keys++;
        done.bytes += value_size;
        must(kvstore_iterator_next(it), "next");
    }
    kvstore_iterator_close(it);
    done.seconds = seconds_now() - start;
    return done;
}

/* Returns the number of sessions that have not expired. */
static size_t live_sessions(void)
{
    int64_t now = kvstore_now_ms();
    size_t live = 0;
    for (size_t i = 0; i < file_count; i++) live += is_in(i, 1) && files[i].expire_ms > now;
    return live;
}

static int64_t print_count(KVColumnFamily *cf, const char *remark)
{
    int64_t rows = -1;
    must(kvstore_cf_count(cf, &rows), "count");
    printf("   %-14s %7lld rows%s\n", "count", (long long)rows, remark);
    return rows;
}

/* Reads expired sessions in every way, then purges them. */
static void show_expired_sessions(KVColumnFamily *cf)
{
    Work seen = look_from_outside("live:sessions"), walked = iterate(cf, 1);
    size_t found = 0, asked[2] = {0, 0};
    int64_t rows;
    int purged = -1;
    double start;

    printf("   %-14s %7zu keys\n", "iteration", walked.keys);
    expect(seen.keys == 0 && walked.keys == 0, "expired sessions", "were returned");
    rows = print_count(cf, ": the expired ones that have not been removed yet");
    expect(rows > 0, "no expired row", "is left");
    for (size_t i = 0; i < file_count; i++) {
        const char *path = files[i].path;
        void *value;
        int n, rc = KVSTORE_OK, exists = 0;
        if (!is_in(i, 1) || i % 9 == 6) continue; /* a third is found by the purge only */
        if (i % 9 == 0)
            exists = (rc = kvstore_cf_get(cf, path, (int)strlen(path), &value, &n)) != KVSTORE_NOTFOUND;
        else
            must(kvstore_cf_exists(cf, path, (int)strlen(path), &exists), "exists");
        asked[i % 9 == 0]++;
        found += exists != 0;
    }
    printf("   %-14s %7zu found of %zu and %zu\n", "get, exists", found, asked[1], asked[0]);
    expect(found == 0, "expired sessions", "were found");
    rows = print_count(cf, ": a read that finds an expired row removes it");
    start = seconds_now();
    must(kvstore_cf_purge_expired(cf, &purged), "purge");
    printf("   %-14s %7d rows removed in %.3f s\n", "purge", purged, seconds_now() - start);
    expect(purged == rows, "the purge", "removed too few or too many");
    expect(print_count(cf, "") == 0, "the purge", "left rows behind");
}

/* Runs a checkpoint and prints the size of the file relative to its data. */
static void print_size(const char *when, int64_t bytes)
{
    double data = (double)bytes / 1e6, wal = megabytes_of("-wal"), file;
    must(kvstore_checkpoint(kv, KVSTORE_CHECKPOINT_TRUNCATE, NULL, NULL), "checkpoint");
    file = megabytes_of("");
    printf("   %-14s data %.2f MB, file %.2f MB: %.2f times as much (the WAL had %.2f MB)\n", when, data, file,
           data > 0 ? file / data : 0, wal);
    expect(megabytes_of("-wal") == 0, "the WAL", "was not emptied");
}

int main(int argc, char **argv)
{
    const char *directory = argc > 1 ? argv[1] : "/usr/include";
    KVColumnFamily *permanent, *sessions;
    Work kept, passing, back, seen;
    size_t left_out[2] = {0, 0}, gone = 0, most;
    int64_t last = 0, left;
    char answer[300], *damage = NULL;

    store = argc > 2 ? argv[2] : "session_cache.db";
    if (access(store, F_OK) == 0) die(store, "exists already; the demo creates a new store");
    if (nftw(directory, collect, 32, FTW_PHYS) != 0) die(directory, "its files cannot be listed");
    if (file_count < 3) die(directory, "has too few regular files for a demo");
    qsort(files, file_count, sizeof *files, by_path);
    must(kvstore_open(store, &kv, KVSTORE_JOURNAL_WAL), store);
    must(kvstore_cf_get_default(kv, &permanent), "default family");
    must(kvstore_cf_create(kv, "sessions", &sessions), "family");

    printf("kvstore %s: the %zu files of %s in %s\n", kvstore_version(), file_count, directory, store);
    printf("\nLoad, %d files a transaction; sessions have a TTL of 1 to 3 seconds\n", FILES_PER_TRANSACTION);
    print_work("default", kept = load(permanent, 0, left_out));
    print_work("sessions", passing = load(sessions, 1, left_out));
    printf("   left out: %zu unreadable, %zu longer than 10 MiB\n", left_out[0], left_out[1]);

    printf("\nRead back and compare with the files, byte for byte\n");
    print_work("sessions", back = read_back(sessions, 1, &gone));
    if (gone) printf("   (%zu sessions expired before they were read)\n", gone);
    expect(back.keys + gone == passing.keys, "sessions", "were lost");
    print_work("default", back = read_back(permanent, 0, &gone));
    expect(back.keys == kept.keys && back.bytes == kept.bytes, "files", "were lost");
    print_work("by iteration", back = iterate(permanent, 0));
    expect(back.keys == kept.keys && back.bytes == kept.bytes, "files", "were left out");

    second_process("import sqlite3; print(sqlite3.sqlite_version)", "", answer, sizeof answer);
    printf("\nThe open file, read by a second process (python3 with SQLite %s)\n", answer);
    most = live_sessions();
    seen = look_from_outside("live:sessions");
    expect(seen.keys <= most && seen.keys >= live_sessions(), "wrong number of", "live sessions");
    seen = look_from_outside("live:default");
    expect(seen.keys == kept.keys && seen.bytes == kept.bytes, "files", "are not in the view");
    printf("\nSize\n");
    print_size("all loaded", kept.bytes + passing.bytes);

    for (size_t i = 0; i < file_count; i++)
        if (files[i].expire_ms > last) last = files[i].expire_ms;
    left = last - kvstore_now_ms();
    printf("\nWhen the last session has expired (in %.1f s)\n", left > 0 ? (double)left / 1e3 : 0.0);
    while ((left = last - kvstore_now_ms()) > 0)
        nanosleep(&(struct timespec){left / 1000, (long)(left % 1000) * 1000000}, NULL);
    show_expired_sessions(sessions);
    must(kvstore_incremental_vacuum(kv, 0), "vacuum");
    print_size("vacuum", kept.bytes);

    printf("\nChecks\n");
    kvstore_integrity_check(kv, &damage);
    printf("   kvstore_integrity_check: %s\n", damage ? damage : "ok");
    expect(!damage, "the store", "is damaged");
    kvstore_free(damage);
    kvstore_cf_close(permanent);
    kvstore_cf_close(sessions);
    must(kvstore_close(kv), "close");
    expect(megabytes_of("-wal") < 0 && megabytes_of("-shm") < 0, "-wal or -shm", "is left after the close");
    second_process("import sqlite3, sys\n"
                   "print(*sqlite3.connect(sys.argv[1]).execute('pragma integrity_check').fetchone())",
                   "", answer, sizeof answer);
    printf("   PRAGMA integrity_check by the second process, after the close: %s\n", answer);
    expect(strcmp(answer, "ok") == 0, "the file", "is damaged");

    while (file_count) free(files[--file_count].path);
    free(files);
    printf("\n%s\n", failures ? "Something is WRONG: see above." : "All results are correct.");
    return failures != 0;
}

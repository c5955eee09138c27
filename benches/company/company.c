/* Cost of operations on a store that several processes have open: get, put, scan, open and fork.
** Prints lines "name nanoseconds". benches/company/run starts it once for each of two builds of
** the library. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kvstore.h"

#define KEYS 100000
#define HANDLES 50

static char path[512];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void must(int rc, const char *what)
{
    if (rc != KVSTORE_OK) {
        fprintf(stderr, "%s: %d %s\n", what, rc, kvstore_errmsg(NULL));
        exit(1);
    }
}

static KVStore *opened(int hold_reads)
{
    KVStoreConfig config = {0};
    KVStore *kv;
    config.holdReads = hold_reads;
    config.busyTimeout = 10000;
    must(kvstore_open_v2(path, &kv, &config), "open");
    return kv;
}

static int key(char *to, unsigned n)
{
    return sprintf(to, "key:%08u", n * 2654435761u % KEYS);
}

static double gets(KVStore *kv, int count)
{
    char name[32];
    double start = now();
    for (int i = 0; i < count; i++) {
        void *value;
        int length, n = key(name, (unsigned)i);
        must(kvstore_get(kv, name, n, &value, &length), "get");
        kvstore_free(value);
    }
    return (now() - start) / count;
}

static double puts_(KVStore *kv, int count)
{
    char name[32], value[60];
    memset(value, 'v', sizeof value);
    double start = now();
    for (int i = 0; i < count; i++) {
        int n = key(name, (unsigned)i * 7);
        must(kvstore_put(kv, name, n, value, sizeof value), "put");
    }
    return (now() - start) / count;
}

static double scan(KVStore *kv)
{
    KVIterator *it;
    long rows = 0;
    double start = now();
    must(kvstore_iterator_create(kv, &it), "iterator");
    for (must(kvstore_iterator_first(it), "first"); !kvstore_iterator_eof(it); kvstore_iterator_next(it)) rows++;
    kvstore_iterator_close(it);
    return (now() - start) / rows;
}

static double open_and_close(int count)
{
    double start = now();
    for (int i = 0; i < count; i++) {
        KVStore *kv = opened(0);
        must(kvstore_close(kv), "close");
    }
    return (now() - start) / count;
}

static double forks(int count)
{
    double start = now();
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        waitpid(child, NULL, 0);
    }
    return (now() - start) / count;
}

/* Another process, which opens the store at a byte from `go`, reads once, and then sits idle or writes without end. */
static pid_t neighbour(int go[2], int writes)
{
    char byte, name[32], value[60];
    pid_t child;
    must(pipe(go), "pipe");
    child = fork();
    if (child != 0) return child;
    close(go[1]);
    if (read(go[0], &byte, 1) != 1) _exit(0);
    KVStore *kv = opened(0);
    memset(value, 'w', sizeof value);
    gets(kv, 1);
    for (unsigned i = 0; writes; i++) must(kvstore_put(kv, name, key(name, i), value, sizeof value), "neighbour's put");
    for (;;) pause();
}

static void opens(const int go[2])
{
    must(write(go[1], "", 1) != 1, "write");
    usleep(300000);
}

static void end(pid_t neighbour)
{
    kill(neighbour, SIGKILL);
    waitpid(neighbour, NULL, 0);
}

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    snprintf(path, sizeof path, "%s/company.db", argv[1]);
    /* Forked before the store is created, because the older build does not let a child open a
     * store that its parent has open. */
    int to_idle[2], to_writer[2];
    pid_t idle = neighbour(to_idle, 0), writer = neighbour(to_writer, 1);
    KVStore *kv = opened(0), *handles[HANDLES];
    must(kvstore_begin(kv, 1), "begin");
    for (unsigned i = 0; i < KEYS; i++) {
        char name[32], value[60];
        memset(value, 'v', sizeof value);
        int n = sprintf(name, "key:%08u", i);
        must(kvstore_put(kv, name, n, value, sizeof value), "load");
    }
    must(kvstore_commit(kv), "commit");
    must(kvstore_checkpoint(kv, KVSTORE_CHECKPOINT_TRUNCATE, NULL, NULL), "checkpoint");
    gets(kv, KEYS);
    printf("get %.1f\n", gets(kv, 5 * KEYS));
    printf("scan,_per_row %.1f\n", scan(kv));
    printf("put %.1f\n", puts_(kv, KEYS));
    KVStore *loose = opened(-1);
    gets(loose, KEYS / 10);
    printf("get,_nothing_held,_beside_a_sibling_that_holds %.1f\n", gets(loose, KEYS));
    printf("open_and_close_beside_a_sibling %.1f\n", open_and_close(300));
    must(kvstore_close(loose), "close");
    for (int i = 0; i < HANDLES; i++) handles[i] = opened(0);
    for (int i = 0; i < HANDLES; i++) gets(handles[i], 10);
    forks(20);
    printf("fork_with_50_handles %.1f\n", forks(200));
    for (int i = 0; i < HANDLES; i++) must(kvstore_close(handles[i]), "close");
    must(kvstore_close(kv), "close");
    printf("open_and_close_alone %.1f\n", open_and_close(100));
    loose = opened(-1);
    gets(loose, KEYS / 10);
    printf("get,_nothing_held,_alone %.1f\n", gets(loose, KEYS));
    must(kvstore_close(loose), "close");
    kv = opened(0);
    gets(kv, KEYS);
    opens(to_idle);
    printf("put_beside_an_idle_process %.1f\n", puts_(kv, KEYS));
    gets(kv, KEYS / 10);
    printf("get_beside_an_idle_process %.1f\n", gets(kv, KEYS));
    printf("scan_beside_an_idle_process,_per_row %.1f\n", scan(kv));
    end(idle);
    opens(to_writer);
    gets(kv, KEYS / 10);
    printf("get_beside_a_writing_process %.1f\n", gets(kv, KEYS));
    end(writer);
    must(kvstore_close(kv), "close");
    return 0;
}

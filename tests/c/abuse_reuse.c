/* Handles that are closed, and whose memory is reused, while another thread is in a call with them. Each
 * scenario stops a call at a known place, closes its handle, opens and closes more handles than the reuse
 * queue holds, and lets the call continue. The call must affect only the object it was called with. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "abuse_sample.h"

/* More handles than wait before a slot is reused (`WAITING` and `CLOSED_TOGETHER` in src/ffi/handle.rs).
 * Fewer under valgrind, where any other handles suffice. */
#define MANY_FAMILIES (under_valgrind() ? 300 : 1200)
#define MANY_OTHERS (under_valgrind() ? 100 : 450)
#define ROWS 700

/* ---- a gate at which a callback waits
 * ---------------------------------------------------------- */

static sem_t arrived, may_go;
static atomic_int gate_in; /* number of callback calls until the gate; 0: no gate */

static void gate(void)
{
    if (atomic_load(&gate_in) > 0 && atomic_fetch_sub(&gate_in, 1) == 1) {
        CHECK(sem_post(&arrived) == 0);
        while (sem_wait(&may_go) != 0) {
        }
    }
}

static void wait_for_arrival(void)
{
    while (sem_wait(&arrived) != 0) {
    }
}

static _Atomic int64_t now_ms = SAMPLE_NOW;

static int64_t clock_with_gate(void *context)
{
    (void)context;
    gate();
    return now_ms;
}

/* ---- the running call
 * -------------------------------------------------------------------------- */

static KVStore *kv, *other;
static KVColumnFamily *cf;
static KVIterator *it;
static KVBatch *batch;
static int code, count;
static int64_t swept;
static atomic_int thread_id;
static pthread_t caller, holder, closer;

static void start(pthread_t *thread, void *(*call)(void *))
{
    CHECK(pthread_create(thread, NULL, call, NULL) == 0);
}

static void join(pthread_t thread)
{
    CHECK(pthread_join(thread, NULL) == 0);
}

/* Starts a call, and waits until it has reached the gate. */
static void start_until_gate(pthread_t *thread, void *(*call)(void *), int at)
{
    atomic_store(&gate_in, at);
    start(thread, call);
    wait_for_arrival();
}

static void open_gate(void)
{
    CHECK(sem_post(&may_go) == 0);
}

/* Waits until the thread with this id sleeps, inside the call it was about to make. Under valgrind, where
 * threads also sleep to take turns, it may not have reached the call yet. */
static void wait_until_it_sleeps(void)
{
    char path[60], text[300], state = '?';

    while (atomic_load(&thread_id) == 0) {
        sched_yield();
    }
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&thread_id));
    while (state != 'S') {
        FILE *file = fopen(path, "r");

        CHECK(file != NULL && fgets(text, sizeof text, file) != NULL);
        CHECK(sscanf(strrchr(text, ')'), ") %c", &state) == 1);
        fclose(file);
        sched_yield();
    }
    atomic_store(&thread_id, 0);
}

static void tell_thread(void)
{
    atomic_store(&thread_id, (int)syscall(SYS_gettid));
}

static KVStore *open_with_gate(const char *path)
{
    KVStore *opened;
    KVStoreConfig cfg = {0};

    cfg.busyTimeout = 600000;
    cfg.syncLevel = KVSTORE_SYNC_OFF;
    cfg.walPages = 64; /* a purge or sweep removes at most 256 keys in a step */
    OK(kvstore_open_v2(path, &opened, &cfg));
    OK(kvstore_set_clock(opened, clock_with_gate, NULL));
    return opened;
}

/* Stores with the same families and the same rows: expired ones, and live ones that are old. */
static KVStore *filled(const char *path)
{
    KVStore *opened = open_with_gate(path);

    for (int f = 0; f < 2; f++) {
        KVColumnFamily *made;

        OK(kvstore_cf_create(opened, f ? "b" : "a", &made));
        OK(kvstore_cf_set_write_tracking(made, 1));
        OK(kvstore_begin(opened, 1));
        for (int i = 0; i < ROWS; i++) {
            char key[20];
            int n = snprintf(key, sizeof key, "%05d", i);

            OK(kvstore_cf_put_ttl(made, key, n, "value", 5, i % 2 ? SAMPLE_NOW + 1000 : 0));
        }
        OK(kvstore_commit(opened));
        kvstore_cf_close(made);
    }
    return opened;
}

static int64_t rows_of(KVStore *store, const char *name)
{
    KVColumnFamily *opened;
    int64_t rows;

    OK(kvstore_cf_open(store, name, &opened));
    OK(kvstore_cf_count(opened, &rows));
    kvstore_cf_close(opened);
    return rows;
}

static int has(KVStore *store, const char *name, const char *key)
{
    KVColumnFamily *opened;
    int there;

    OK(kvstore_cf_open(store, name, &opened));
    OK(kvstore_cf_exists(opened, key, (int)strlen(key), &there));
    kvstore_cf_close(opened);
    return there;
}

/* ---- reusing the memory of a closed handle
 * ----------------------------------------------------- */

/* Opens and closes handles on a family until one has this address, and keeps that one open. Returns NULL if
 * none of the given number has it. */
static KVColumnFamily *family_at(KVColumnFamily *place, KVStore *store, const char *name, int tries)
{
    for (int i = 0; i < tries; i++) {
        KVColumnFamily *opened;

        OK(name ? kvstore_cf_open(store, name, &opened) : kvstore_cf_get_default(store, &opened));
        if (opened == place) {
            return opened;
        }
        kvstore_cf_close(opened);
    }
    return NULL;
}

static KVIterator *iterator_at(KVIterator *place, KVStore *store, int tries)
{
    for (int i = 0; i < tries; i++) {
        KVIterator *opened;

        OK(kvstore_iterator_create(store, &opened));
        if (opened == place) {
            return opened;
        }
        kvstore_iterator_close(opened);
    }
    return NULL;
}

static KVBatch *batch_at(KVBatch *place, KVStore *store, int tries)
{
    for (int i = 0; i < tries; i++) {
        KVBatch *made;

        OK(kvstore_batch_new(store, &made));
        if (made == place) {
            return made;
        }
        kvstore_batch_free(made);
    }
    return NULL;
}

static KVStore *store_at(KVStore *place, int tries)
{
    for (int i = 0; i < tries; i++) {
        KVStore *opened;

        OK(kvstore_open(NULL, &opened, 0));
        if (opened == place) {
            return opened;
        }
        OK(kvstore_close(opened));
    }
    return NULL;
}

static int never_free; /* it cannot be determined which handles are in use */

/* When no call is running any more, the memory is reused. */
static void family_comes_back(KVColumnFamily *place, KVStore *store)
{
    KVColumnFamily *opened = family_at(place, store, NULL, 3 * MANY_FAMILIES);

    CHECK((opened != NULL) == !never_free || under_valgrind());
    kvstore_cf_close(opened);
}

/* ---- families ---------------------------------------------------------------------------------- */

static void *puts_a_key(void *unused)
{
    tell_thread();
    code = kvstore_cf_put(cf, "new", 3, "value", 5);
    return unused;
}

static void *reads_the_clock(void *unused)
{
    KVColumnFamily *family;
    int64_t left;

    OK(kvstore_cf_open(kv, "b", &family));
    atomic_store(&gate_in, 1);
    OK(kvstore_cf_ttl_remaining(family, "00001", 5, &left));
    kvstore_cf_close(family);
    return unused;
}

/* A put waits for a thread that is in another call on the store. Meanwhile, the test tries to
 * reuse the slot of its handle, for families of this store or of another. */
static void put_waits_for_a_thread(void)
{
    for (int of_other = 0; of_other < 2; of_other++) {
        KVColumnFamily *place;

        kv = filled(of_other ? "store2.db" : "store1.db");
        other = filled(of_other ? "other2.db" : "other1.db");
        OK(kvstore_cf_open(kv, "a", &cf));
        start(&holder, reads_the_clock);
        wait_for_arrival();
        start(&caller, puts_a_key);
        wait_until_it_sleeps();

        kvstore_cf_close(cf);
        /* Opening a handle on the default family does not wait for the store. */
        place = family_at(cf, of_other ? other : kv, of_other ? "b" : NULL, MANY_FAMILIES);
        open_gate();
        join(holder);
        join(caller);
        CHECK(code == KVSTORE_OK || (under_valgrind() && code == KVSTORE_MISUSE));
        CHECK(has(kv, "a", "new") == (code == KVSTORE_OK) && !has(kv, "b", "new") && !has(kv, "default", "new"));
        CHECK(!has(other, "a", "new") && !has(other, "b", "new"));
        CHECK(place == NULL);
        GIVES(KVSTORE_MISUSE, kvstore_cf_put(cf, "k", 1, "v", 1));
        family_comes_back(cf, other);
        OK(kvstore_close(kv));
        OK(kvstore_close(other));
    }
}

/* Like the previous scenario, for a transaction of another handle on the file. */
static void put_waits_for_a_writer(void)
{
    KVStore *writer;
    KVColumnFamily *place;

    kv = filled("store.db");
    other = filled("other.db");
    writer = open_with_gate("store.db");
    OK(kvstore_cf_open(kv, "a", &cf));
    OK(kvstore_begin(writer, 1));
    OK(kvstore_put(writer, "theirs", 6, "value", 5));
    start(&caller, puts_a_key);
    wait_until_it_sleeps();

    kvstore_cf_close(cf);
    place = family_at(cf, other, "b", MANY_FAMILIES);
    OK(kvstore_commit(writer));
    join(caller);
    CHECK(code == KVSTORE_OK || (under_valgrind() && code == KVSTORE_MISUSE));
    CHECK(has(kv, "a", "new") == (code == KVSTORE_OK) && !has(kv, "b", "new"));
    CHECK(!has(other, "a", "new") && !has(other, "b", "new"));
    CHECK(place == NULL);
    family_comes_back(cf, other);
    OK(kvstore_close(writer));
    OK(kvstore_close(kv));
    OK(kvstore_close(other));
}

static void *purges(void *unused)
{
    code = kvstore_cf_purge_expired(cf, &count);
    return unused;
}

static void *sweeps(void *unused)
{
    code = kvstore_cf_sweep(cf, 5000, &swept);
    return unused;
}

/* A purge or sweep of many steps. Its slot is to be reused for the same family of another file,
 * and for another family of the same file. Only the original family may lose rows. */
static void purge_or_sweep(void *(*call)(void *), int left)
{
    for (int of_other = 0; of_other < 2; of_other++) {
        KVColumnFamily *place;

        now_ms = SAMPLE_NOW;
        kv = filled(of_other ? "store2.db" : "store1.db");
        other = filled(of_other ? "other2.db" : "other1.db");
        OK(kvstore_cf_open(kv, "a", &cf));
        now_ms = SAMPLE_NOW + 10000;
        start_until_gate(&caller, call, 1);
        kvstore_cf_close(cf);
        place = family_at(cf, of_other ? other : kv, of_other ? "a" : "b", MANY_FAMILIES);
        open_gate();
        join(caller);
        OK(code);
        CHECK(rows_of(kv, "a") == left && rows_of(kv, "b") == ROWS);
        CHECK(rows_of(other, "a") == ROWS && rows_of(other, "b") == ROWS);
        CHECK(place == NULL);
        family_comes_back(cf, other);
        OK(kvstore_integrity_check(kv, NULL));
        OK(kvstore_integrity_check(other, NULL));
        OK(kvstore_close(kv));
        OK(kvstore_close(other));
    }
}

static void purge(void)
{
    purge_or_sweep(purges, ROWS / 2);
    CHECK(count == ROWS / 2);
}

static void sweep(void)
{
    purge_or_sweep(sweeps, 0);
    CHECK(swept == ROWS / 2);
}

/* ---- iterators and batches --------------------------------------------------------------------- */

static void *moves(void *unused)
{
    code = kvstore_iterator_first(it);
    return unused;
}

/* An iterator is closed while it reads rows: the move completes, and is the last one. */
static void iterator(void)
{
    KVIterator *place;

    kv = filled("store.db");
    OK(kvstore_open(NULL, &other, 0));
    OK(kvstore_cf_open(kv, "a", &cf));
    OK(kvstore_cf_iterator_create(cf, &it));
    start_until_gate(&caller, moves, 1);
    kvstore_iterator_close(it);
    GIVES(KVSTORE_MISUSE, kvstore_iterator_next(it));
    CHECK(kvstore_iterator_eof(it) == 1);
    place = iterator_at(it, other, MANY_OTHERS);
    kvstore_iterator_close(it); /* a second close does nothing */
    open_gate();
    join(caller);
    OK(code);
    GIVES(KVSTORE_MISUSE, kvstore_iterator_next(it));
    CHECK(place == NULL);
    place = iterator_at(it, other, 3 * MANY_OTHERS);
    CHECK(place != NULL || under_valgrind());
    kvstore_iterator_close(place);
    kvstore_cf_close(cf);
    OK(kvstore_close(kv));
    OK(kvstore_close(other));
}

static void *commits(void *unused)
{
    tell_thread();
    code = kvstore_batch_commit(batch);
    return unused;
}

/* A batch is freed while its commit waits: it is committed unchanged. */
static void batch_commit(void)
{
    KVBatch *place;

    kv = filled("store.db");
    OK(kvstore_open(NULL, &other, 0));
    OK(kvstore_cf_open(kv, "a", &cf));
    OK(kvstore_batch_new(kv, &batch));
    OK(kvstore_batch_put(batch, cf, "new", 3, "value", 5, 0));
    OK(kvstore_batch_put(batch, cf, "newer", 5, "value", 5, 0));
    start(&holder, reads_the_clock);
    wait_for_arrival();
    start(&caller, commits);
    wait_until_it_sleeps();
    kvstore_batch_free(batch);
    kvstore_cf_close(cf);
    place = batch_at(batch, other, MANY_OTHERS);
    open_gate();
    join(holder);
    join(caller);
    CHECK(code == KVSTORE_OK || (under_valgrind() && code == KVSTORE_MISUSE));
    CHECK(has(kv, "a", "new") == (code == KVSTORE_OK) && has(kv, "a", "newer") == (code == KVSTORE_OK));
    GIVES(KVSTORE_MISUSE, kvstore_batch_commit(batch));
    CHECK(place == NULL);
    place = batch_at(batch, other, 3 * MANY_OTHERS);
    CHECK(place != NULL || under_valgrind());
    kvstore_batch_free(place);
    OK(kvstore_close(kv));
    OK(kvstore_close(other));
}

/* ---- a call inside a call ---------------------------------------------------------------------- */

static KVColumnFamily *inner_cf;
static int inner_code;
static atomic_int inner_due;

static int64_t clock_that_purges(void *context)
{
    (void)context;
    if (atomic_exchange(&inner_due, 0)) {
        int purged;

        inner_code = kvstore_cf_purge_expired(inner_cf, &purged);
    }
    return now_ms;
}

/* The clock of one store works on another: both handles are closed while the inner call is at its gate. */
static void nested(void)
{
    KVColumnFamily *place, *inner_place;

    kv = filled("store.db");
    other = filled("other.db");
    OK(kvstore_cf_open(kv, "a", &cf));
    OK(kvstore_cf_open(other, "a", &inner_cf));
    now_ms = SAMPLE_NOW + 10000;
    OK(kvstore_set_clock(kv, clock_that_purges, NULL));
    inner_due = 1;
    start_until_gate(&caller, purges, 1);
    kvstore_cf_close(inner_cf);
    kvstore_cf_close(cf);
    inner_place = family_at(inner_cf, other, "b", MANY_FAMILIES);
    place = family_at(cf, other, "b", MANY_FAMILIES);
    open_gate();
    join(caller);
    OK(code);
    OK(inner_code);
    CHECK(rows_of(kv, "a") == ROWS / 2 && rows_of(other, "a") == ROWS / 2);
    CHECK(rows_of(kv, "b") == ROWS && rows_of(other, "b") == ROWS);
    CHECK(place == NULL && inner_place == NULL);
    family_comes_back(inner_cf, other);
    family_comes_back(cf, other);
    OK(kvstore_close(kv));
    OK(kvstore_close(other));
}

/* ---- stores ------------------------------------------------------------------------------------ */

static int progress(void *context, int remaining, int total)
{
    (void)context;
    (void)remaining;
    (void)total;
    gate();
    return 0;
}

static void *backs_up(void *unused)
{
    code = kvstore_backup(kv, "copy.db", progress, NULL);
    return unused;
}

static void *closes(void *unused)
{
    OK(kvstore_close(kv));
    return unused;
}

/* Waits until a close of the store has begun, which an iterator of it can tell. */
static void wait_for_the_close(void)
{
    int64_t expire_ms;

    while (kvstore_iterator_expire_ms(it, &expire_ms) != KVSTORE_MISUSE) {
        sched_yield();
    }
}

/* A backup whose store is closed stops, with no file and no failure of another store. */
static void backup(void)
{
    KVStore *place;
    KVStoreStats stats;

    kv = filled("store.db");
    OK(kvstore_open(NULL, &other, 0));
    OK(kvstore_set_clock(kv, NULL, NULL));
    start_until_gate(&caller, backs_up, 1);
    OK(kvstore_close(kv)); /* waits for nothing: the backup has a connection of its own */
    place = store_at(kv, MANY_OTHERS);
    open_gate();
    join(caller);
    CHECK(place == NULL);
    GIVES(KVSTORE_MISUSE, code);
    CHECK(access("copy.db", F_OK) != 0);
    OK(kvstore_stats(other, &stats));
    CHECK(stats.nErrors == 0 && strcmp(kvstore_errmsg(other), "no error") == 0);
    OK(kvstore_close(other));
    place = store_at(kv, 3 * MANY_OTHERS);
    CHECK(place != NULL || under_valgrind());
    OK(kvstore_close(place));
}

/* Like the previous scenario, where the backup must use the store's own connection and the close waits for it. */
static void backup_of_an_exclusive_store(void)
{
    KVStoreConfig cfg = {0};

    OK(kvstore_close(filled("store.db")));
    cfg.exclusive = 1;
    OK(kvstore_open_v2("store.db", &kv, &cfg));
    OK(kvstore_iterator_create(kv, &it));
    start_until_gate(&caller, backs_up, 1);
    start(&closer, closes);
    wait_for_the_close();
    open_gate();
    join(caller);
    join(closer);
    GIVES(KVSTORE_MISUSE, code);
    CHECK(access("copy.db", F_OK) != 0);
    kvstore_iterator_close(it);
}

static void *sweeps_live_keys(void *unused)
{
    code = kvstore_cf_sweep(cf, 0, &swept);
    return unused;
}

/* A sweep of many steps stops at the next when its store is closed: the close waits for one step, not for all. */
static void closed_between_steps(void)
{
    kv = filled("store.db");
    OK(kvstore_cf_open(kv, "a", &cf));
    OK(kvstore_iterator_create(kv, &it));
    now_ms = SAMPLE_NOW + 10;
    swept = -1;
    start_until_gate(&caller, sweeps_live_keys, 20); /* each mortal key is looked at: in the first step */
    start(&closer, closes);
    wait_for_the_close();
    alarm(patience(60));
    GIVES(KVSTORE_MISUSE, kvstore_cf_put(cf, "k", 1, "v", 1)); /* at once, not after the two */
    alarm(0);
    open_gate();
    join(caller);
    join(closer);
    GIVES(KVSTORE_MISUSE, code);
    CHECK(swept == -1);
    kvstore_iterator_close(it);
    kvstore_cf_close(cf);
    kv = open_with_gate("store.db");
    CHECK(rows_of(kv, "a") > 0 && rows_of(kv, "a") < ROWS && rows_of(kv, "b") == ROWS);
    OK(kvstore_integrity_check(kv, NULL));
    OK(kvstore_close(kv));
}

static void *checkpoints(void *unused)
{
    tell_thread();
    code = kvstore_checkpoint(kv, KVSTORE_CHECKPOINT_TRUNCATE, NULL, NULL);
    return unused;
}

/* A checkpoint that would wait ten minutes for a reader stops waiting when its store is closed. */
static void checkpoint(void)
{
    KVStore *reader;
    int64_t rows;

    kv = filled("store.db");
    OK(kvstore_iterator_create(kv, &it));
    reader = open_with_gate("store.db");
    OK(kvstore_begin(reader, 0));
    OK(kvstore_count(reader, &rows));
    OK(kvstore_put(kv, "k", 1, "v", 1));
    alarm(patience(60));
    start(&caller, checkpoints);
    wait_until_it_sleeps();
    OK(kvstore_close(kv));
    join(caller);
    GIVES(KVSTORE_MISUSE, code);
    alarm(0);
    kvstore_iterator_close(it);
    OK(kvstore_rollback(reader));
    OK(kvstore_close(reader));
}

static pthread_barrier_t barrier;

static void *closes_it_too(void *unused)
{
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < count; i++) {
        sched_yield();
    }
    return closes(unused);
}

static void *starts_the_cleaner(void *unused)
{
    pthread_barrier_wait(&barrier);
    code = kvstore_cleaner_start(kv, 1, 0);
    if (code == KVSTORE_OK) {
        code = kvstore_cleaner_stop(kv);
    }
    CHECK(code == KVSTORE_OK || code == KVSTORE_MISUSE);
    return unused;
}

static void cleaner(void)
{
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    OK(kvstore_close(filled("store.db")));
    for (int i = 0; i < (under_valgrind() ? 5 : 100); i++) {
        kv = open_with_gate("store.db");
        count = i % 10;
        start(&caller, starts_the_cleaner);
        start(&closer, closes_it_too);
        join(caller);
        join(closer);
    }
    CHECK(pthread_barrier_destroy(&barrier) == 0);
}

/* ---- sandboxes that forbid membarrier(2) -------------------------------------------------------- */

static void forbid_membarrier(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};

    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    CHECK(syscall(SYS_membarrier, 0, 0, 0) == -1 && errno == EPERM);
}

/* Forbidden from the start: calls and closes make their barriers themselves. */
static void without_membarrier(void)
{
    forbid_membarrier();
    iterator();
    CHECK(remove("store.db") == 0);
    purge();
}

/* membarrier is forbidden later: memory of closed handles is not reused any more, and everything still works. */
static void membarrier_is_revoked(void)
{
    OK(kvstore_open(NULL, &kv, 0));
    OK(kvstore_close(kv));
    forbid_membarrier();
    never_free = 1;
    purge();
}

/* ---- threads that end -------------------------------------------------------------------------- */

static pthread_key_t key;

/* The last step of a thread: its thread-local data, including that of the library, is destroyed. */
static void at_the_end(void *unused)
{
    (void)unused;
    OK(kvstore_cf_put(cf, "last", 4, "value", 5));
    OK(kvstore_iterator_first(it));
    OK(kvstore_iterator_next(it));
    kvstore_iterator_close(it);
    GIVES(KVSTORE_MISUSE, kvstore_iterator_next(it));
    GIVES(KVSTORE_ERROR, kvstore_close((KVStore *)1));
    CHECK(kvstore_errmsg(NULL) != NULL);
    kvstore_cf_close(cf);
}

static void *ends(void *unused)
{
    CHECK(pthread_setspecific(key, &key) == 0);
    GIVES(KVSTORE_ERROR, kvstore_cf_put(NULL, "k", 1, "v", 1)); /* so that the library keeps a text for it */
    OK(kvstore_cf_put(cf, "first", 5, "value", 5));
    OK(kvstore_iterator_first(it));
    return unused;
}

/* Calls from destructors of thread-local data work like any other call. */
static void ending_threads(void)
{
    kv = filled("store.db");
    CHECK(pthread_key_create(&key, at_the_end) == 0);
    for (int i = 0; i < 20; i++) {
        OK(kvstore_cf_open(kv, "a", &cf));
        OK(kvstore_cf_iterator_create(cf, &it));
        start(&caller, ends);
        join(caller);
        CHECK(has(kv, "a", "first") && has(kv, "a", "last"));
    }
    CHECK(pthread_key_delete(key) == 0);
    OK(kvstore_close(kv));
}

/* ---- random use
 * --------------------------------------------------------------------------------- */

#define PLACES 6
#define USERS 4
/* A closed family handle is recognised until 1024 more are closed (ADR 3). A pointer that a user has read is at most twice
 * this number of closes old when the user calls with it. */
#define CLOSES_IN_A_ROUND 450

static _Atomic(KVColumnFamily *) places[PLACES];
static KVStore *stores[2];
static atomic_int stop;
static atomic_long done, refused;
static atomic_long turns[USERS]; /* how often each user has read a pointer */

/* Waits until each user has returned from the call that it was in, or about to make, at the last wait. A user that is
 * delayed between reading a pointer and calling with it would else find the pointer reused for another family. */
static void wait_for_users(void)
{
    static long seen[USERS];

    for (int i = 0; i < USERS; i++) {
        while (atomic_load(&turns[i]) == seen[i]) {
            sched_yield();
        }
        seen[i] = atomic_load(&turns[i]);
    }
}

/* Puts into the handle at a random place, which is always a handle on the family of that place.
 * The value names the family. */
static void *uses(void *argument)
{
    unsigned seed = (unsigned)(size_t)argument * 7919 + 1;

    while (!stop) {
        int n = rand_r(&seed) % PLACES, got;
        char name[20], row[20];
        int n_name = snprintf(name, sizeof name, "family %d", n);
        int n_row = snprintf(row, sizeof row, "%d", rand_r(&seed) % 50), purged;
        KVColumnFamily *family;

        atomic_fetch_add(&turns[(size_t)argument], 1);
        family = atomic_load(&places[n]);
        switch (rand_r(&seed) % 8) {
        case 0:
            got = kvstore_cf_purge_expired(family, &purged);
            break;
        case 1:
            got = kvstore_cf_delete(family, row, n_row);
            break;
        case 2:
            got = kvstore_cf_put_ttl(family, row, n_row, name, n_name, kvstore_now_ms() + 2);
            break;
        case 3: {
            KVIterator *walk;

            got = kvstore_cf_iterator_create(family, &walk);
            if (got == KVSTORE_OK) {
                OK(kvstore_iterator_first(walk));
                while (!kvstore_iterator_eof(walk)) {
                    void *value;
                    int n_value;

                    OK(kvstore_iterator_value(walk, &value, &n_value));
                    CHECK(n_value == n_name && memcmp(value, name, (size_t)n_name) == 0);
                    OK(kvstore_iterator_next(walk));
                }
                kvstore_iterator_close(walk);
            }
            break;
        }
        default:
            got = kvstore_cf_put(family, row, n_row, name, n_name);
        }
        CHECK(got == KVSTORE_OK || got == KVSTORE_NOTFOUND || got == KVSTORE_MISUSE);
        atomic_fetch_add(got == KVSTORE_MISUSE ? &refused : &done, 1);
    }
    return NULL;
}

static KVColumnFamily *open_place(int n)
{
    char name[20];
    KVColumnFamily *opened;

    snprintf(name, sizeof name, "family %d", n);
    OK(kvstore_cf_open(stores[n % 2], name, &opened));
    return opened;
}

/* Families of two files, whose handles other threads close while they are used, after a varying
 * number of calls. Every put must end up in the right family. */
static void random_closes(void)
{
    const char *seconds = getenv("KVSTORE_TORTURE_SECONDS");
    time_t until = time(NULL) + (seconds ? atoi(seconds) : 3);
    pthread_t users[USERS];
    unsigned seed = 1;
    long closes_under_them = 0;
    int closes = 0;

    for (int s = 0; s < 2; s++) {
        KVStoreConfig cfg = {0};

        cfg.syncLevel = KVSTORE_SYNC_OFF;
        OK(kvstore_open_v2(s ? "two.db" : "one.db", &stores[s], &cfg));
    }
    for (int n = 0; n < PLACES; n++) {
        char name[20];
        KVColumnFamily *made;

        snprintf(name, sizeof name, "family %d", n);
        OK(kvstore_cf_create(stores[n % 2], name, &made));
        atomic_store(&places[n], made);
    }
    for (size_t i = 0; i < USERS; i++) {
        CHECK(pthread_create(&users[i], NULL, uses, (void *)i) == 0);
    }
    /* On a loaded machine under valgrind, this thread may get its turn late. */
    while (time(NULL) < until || ((closes_under_them == 0 || done == 0) && time(NULL) < until + 120)) {
        int n = rand_r(&seed) % PLACES;

        kvstore_cf_close(atomic_exchange(&places[n], open_place(n)));
        closes_under_them++;
        closes++;
        for (int i = rand_r(&seed) % 100; i > 0; i--, closes++) {
            KVColumnFamily *opened;

            OK(kvstore_cf_get_default(stores[i % 2], &opened));
            kvstore_cf_close(opened);
        }
        if (closes > CLOSES_IN_A_ROUND - 100) {
            wait_for_users();
            closes = 0;
        }
    }
    stop = 1;
    for (int i = 0; i < USERS; i++) {
        join(users[i]);
    }
    for (int n = 0; n < PLACES; n++) {
        char name[20];
        int n_name = snprintf(name, sizeof name, "family %d", n);
        KVIterator *walk;

        OK(kvstore_cf_iterator_create(places[n], &walk));
        OK(kvstore_iterator_first(walk));
        while (!kvstore_iterator_eof(walk)) {
            void *value;
            int n_value;

            OK(kvstore_iterator_value(walk, &value, &n_value));
            CHECK(n_value == n_name && memcmp(value, name, (size_t)n_name) == 0);
            OK(kvstore_iterator_next(walk));
        }
        kvstore_iterator_close(walk);
        kvstore_cf_close(places[n]);
    }
    for (int s = 0; s < 2; s++) {
        int64_t rows;

        OK(kvstore_count(stores[s], &rows)); /* the default family is empty */
        CHECK(rows == 0);
        OK(kvstore_integrity_check(stores[s], NULL));
        OK(kvstore_close(stores[s]));
    }
    printf("%ld handles closed under %ld calls, of which %ld were refused\n", closes_under_them,
           atomic_load(&done) + atomic_load(&refused), atomic_load(&refused));
    CHECK(done > 0 && closes_under_them > 0);
}

static const struct scenario scenarios[] = {
    {"put_waits_for_a_thread", put_waits_for_a_thread},
    {"put_waits_for_a_writer", put_waits_for_a_writer},
    {"purge", purge},
    {"sweep", sweep},
    {"iterator", iterator},
    {"batch_commit", batch_commit},
    {"nested", nested},
    {"backup", backup},
    {"backup_of_an_exclusive_store", backup_of_an_exclusive_store},
    {"closed_between_steps", closed_between_steps},
    {"checkpoint", checkpoint},
    {"cleaner", cleaner},
    {"without_membarrier", without_membarrier},
    {"membarrier_is_revoked", membarrier_is_revoked},
    {"ending_threads", ending_threads},
    {"random_closes", random_closes},
};

static void before_each(void)
{
    CHECK(sem_init(&arrived, 0, 0) == 0 && sem_init(&may_go, 0, 0) == 0);
    gate_in = 0;
    never_free = 0;
    swept = 0;
    now_ms = SAMPLE_NOW;
}

int main(int argc, char **argv)
{
    return run_named(scenarios, sizeof scenarios / sizeof *scenarios, before_each, argc, argv);
}

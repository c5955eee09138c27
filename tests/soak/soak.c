/* The soak: four processes work on one store, one of them is killed and restarted every few seconds, and
 * everything that is read is checked.
 *
 *     soak SECONDS [SEED]          in $TMPDIR or /tmp; tests/soak/run builds and runs it
 *
 * The parent (this process) makes the store, starts the workers by exec of itself, kills and restarts
 * workers 1 to 3, samples the WAL, and the memory and open files of worker 0, which is never killed. At the
 * end it checks all it knows about the store. Each worker has two threads on one handle and a third with a
 * handle of its own, so there are 12 threads that write.
 *
 * The checks use memory that all processes share (struct shared):
 *
 *   own keys    Each key has one writing thread, which announces every change in `intent`, and notes it in
 *               `value_seq` and `committed` when the call has returned. A reader therefore knows the least
 *               sequence number there can be (what is committed before the read began), the greatest (what
 *               is intended when it has ended), and, if no writer was active meanwhile, the exact value and
 *               expiry. Values carry key, writer, sequence number, expiry and checksum.
 *   pairs       Keys of both families that are only ever written together.
 *   accounts    Transfers keep the sum of all accounts, which any snapshot must show.
 *   counters    Increments and compare-and-swaps that were acknowledged; one more for each that was under
 *               way when its process was killed.
 *   tracked     A family that is swept by age.
 *
 * Expiry is judged by kvstore_now_ms before and after a call: a key found must expire after the former, one
 * not found must have expired at the latter.
 *
 * The WAL may have 4 times the 4000 pages after which it is checkpointed. More than that would be legitimate
 * while a reader stays on a snapshot, so workers read in short snapshots only; killed ones hold no locks. In
 * every other half minute (or half of a shorter run) no worker checkpoints explicitly, so that automatic
 * checkpoints alone have to do. A run ends early when the WAL has 4 GiB.
 *
 * To look for the reason of a long WAL, set in the environment:
 *
 *   SOAK_HOLD_NOTHING=1                no handle keeps a snapshot between calls (KVStoreConfig.holdReads)
 *   SOAK_WITHOUT="snapshot,bank sum"   leaves out the operations of these names
 *   SOAK_FULL=1                        ten times as many explicit checkpoints, FULL ones, all the time */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kvstore.h"

enum {
    WORKERS = 4,
    THREADS = 3, /* of a worker: two on its handle, one on its own */
    WRITERS = WORKERS * THREADS,
    KEYS = 300, /* own keys of a writer, in turns in the families "default" and "second" */
    PAIRS = 40, /* own keys of a writer that are in both */
    ALL = KEYS + PAIRS,
    ACCOUNTS = 64,
    MONEY = 1000, /* on each account at the start */
    COUNTERS = 16,
    SWAPS = 8, /* numbers that are changed by compare-and-swap */
    TRACKED = 40,
    MAX_VALUE = 60000,
    SWEEP_AGE = 2000,     /* ms */
    PATIENCE = 90 * 1000, /* ms: how long a call may go on being BUSY, or take */
};

enum op {
    GET, READ_OWN, PUT, PUT_TTL_SHORT, PUT_TTL_LONG, PUT_IF_ABSENT, DELETE, DELETE_RANGE, EXPIRE, PERSIST, CAS_OWN,
    CAS_SHARED, INCREMENT, BATCH, TX_COMMIT, TX_ROLLBACK, TRANSFER, SNAPSHOT, BANK_SUM, ITER_FULL, ITER_REVERSE,
    ITER_PREFIX, ITER_RANGE, ITER_EXPIRING, COUNT_LIVE, GET_MANY, PURGE_STEP, PURGE_EXPIRED, TRACK_PUT, SWEEP,
    CHECKPOINT_PASSIVE, CHECKPOINT_TRUNCATE, FAMILY, BACKUP, STATS, INTEGRITY, REOPEN, OPS
};

static const char *const op_names[OPS] = {
    "get", "read own", "put", "put_ttl short", "put_ttl long", "put_if_absent", "delete", "delete_range",
    "expire", "persist", "cas own", "cas shared", "increment", "batch", "tx commit", "tx rollback", "transfer",
    "snapshot", "bank sum", "iter full", "iter reverse", "iter prefix", "iter range", "iter expiring",
    "count_live", "get_many", "purge_step", "purge_expired", "tracked put", "sweep", "checkpoint passive",
    "checkpoint truncate", "family", "backup", "stats", "integrity", "reopen",
};

/* How often each operation is done, out of the sum of all. */
static const int all_weights[OPS] = {
    [GET] = 6000, [READ_OWN] = 2500, [PUT] = 1600, [PUT_TTL_SHORT] = 1500, [PUT_TTL_LONG] = 600,
    [PUT_IF_ABSENT] = 500, [DELETE] = 500, [DELETE_RANGE] = 40, [EXPIRE] = 500, [PERSIST] = 300,
    [CAS_OWN] = 400, [CAS_SHARED] = 300, [INCREMENT] = 800, [BATCH] = 300, [TX_COMMIT] = 300,
    [TX_ROLLBACK] = 100, [TRANSFER] = 400, [SNAPSHOT] = 200, [BANK_SUM] = 100, [ITER_FULL] = 60,
    [ITER_REVERSE] = 60, [ITER_PREFIX] = 200, [ITER_RANGE] = 150, [ITER_EXPIRING] = 60, [COUNT_LIVE] = 15,
    [GET_MANY] = 100, [PURGE_STEP] = 40, [PURGE_EXPIRED] = 10, [TRACK_PUT] = 200, [SWEEP] = 8,
    [CHECKPOINT_PASSIVE] = 8, [CHECKPOINT_TRUNCATE] = 2, [FAMILY] = 6, [BACKUP] = 1, [STATS] = 20,
    [INTEGRITY] = 1, [REOPEN] = 6,
};

typedef _Atomic uint64_t word;

struct shared {
    int64_t base_ms; /* that times in words count from */
    uint64_t seed;
    word stop, no_checkpoints, failed;
    char failure[2000];
    word committed[WRITERS][ALL], intent[WRITERS][ALL], value_seq[WRITERS][ALL];
    word added[WRITERS][COUNTERS], adding[WRITERS], maybe_added[COUNTERS];
    word swapped[WRITERS][SWAPS], swapping[WRITERS], maybe_swapped[SWAPS];
    word ops[WORKERS][OPS], busy[WORKERS], busy_reads[WORKERS];
    word op_since[WRITERS]; /* ms; 0: not at work */
    word op_now[WRITERS];
    word unresolved, undone; /* changes under way when killed: which had happened, which not */
    word checks;
    word nothing_left; /* values found with 0 ms left */
};

static struct shared *shared;
static const char *db_path;

/* ---- small things ------------------------------------------------------------------------------------- */

static int64_t mono_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void nap_us(long us)
{
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

/* Notes the first failure for the parent, and ends this process. */
__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
    va_list args;
    char text[sizeof shared->failure];
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "soak: %s\n", text);
    if (shared && atomic_fetch_add(&shared->failed, 1) == 0) {
        memcpy(shared->failure, text, sizeof text);
    }
    _exit(3);
}

struct state {
    uint64_t seq;
    int dead;
    int64_t expire_ms; /* 0: never */
};

static uint64_t pack(uint64_t seq, int dead, int64_t expire_ms)
{
    uint64_t time = expire_ms ? (uint64_t)(expire_ms - shared->base_ms) : 0;
    return seq << 41 | (uint64_t)dead << 40 | (time & ((1ull << 40) - 1));
}

static struct state unpack(uint64_t packed)
{
    uint64_t time = packed & ((1ull << 40) - 1);
    struct state state = {packed >> 41, (int)(packed >> 40 & 1), time ? (int64_t)time + shared->base_ms : 0};
    return state;
}

static int was_alive(struct state state, int64_t until) /* for sure */
{
    return !state.dead && (!state.expire_ms || state.expire_ms > until);
}

static int was_dead(struct state state, int64_t from) /* for sure */
{
    return state.dead || (state.expire_ms && state.expire_ms <= from);
}

/* ---- a thread of a worker ----------------------------------------------------------------------------- */

enum family { DEFAULT, SECOND, TRACK, FAMILIES };
static const char *const family_names[FAMILIES] = {"default", "second", "tracked"};

struct handle {
    KVStore *kv;
    KVColumnFamily *cf[FAMILIES];
    pthread_rwlock_t *lock; /* NULL: used by one thread only. Transactions belong to the handle. */
};

struct thread {
    int worker, writer; /* writer: over all workers */
    struct handle *h;
    KVStoreConfig config;
    uint64_t random;
    int64_t track_from[TRACKED], track_to[TRACKED]; /* when they were put; 0: unknown */
    unsigned char value[MAX_VALUE + 100];
};

static uint64_t rnd(struct thread *t)
{
    t->random ^= t->random >> 12;
    t->random ^= t->random << 25;
    t->random ^= t->random >> 27;
    return t->random * 2685821657736338717ull >> 16;
}

static int below(struct thread *t, int n)
{
    return (int)(rnd(t) % (uint64_t)n);
}

static void together(struct thread *t)
{
    if (t->h->lock) pthread_rwlock_rdlock(t->h->lock);
}

static void alone(struct thread *t)
{
    if (t->h->lock) pthread_rwlock_wrlock(t->h->lock);
}

static void leave(struct thread *t)
{
    if (t->h->lock) pthread_rwlock_unlock(t->h->lock);
}

static void busy(struct thread *t, int64_t *since, const char *call)
{
    atomic_fetch_add_explicit(&shared->busy[t->worker], 1, memory_order_relaxed);
    if ((!strncmp(call, "kvstore_cf_get", 14) && !strstr(call, "get_and_expire")) || strstr(call, "iterator")
        || strstr(call, "kvstore_begin(t->h->kv, 0)")) { /* in WAL mode no read should be */
        if (atomic_fetch_add(&shared->busy_reads[t->worker], 1) == 0) {
            printf("soak: worker %d: BUSY read: %s: %s\n", t->worker, call, kvstore_errmsg(t->h->kv));
            fflush(stdout);
        }
    }
    if (!*since) *since = mono_ms();
    if (mono_ms() - *since > PATIENCE) fail("worker %d: %s was BUSY for %d s", t->worker, call, PATIENCE / 1000);
    nap_us(20 + below(t, 1500));
}

/* Calls until it is not BUSY. */
#define DO(rc, call)                                                                                           \
    for (int64_t since_ = 0; (rc = (call)) == KVSTORE_BUSY || rc == KVSTORE_LOCKED;) busy(t, &since_, #call)

static void unexpected(struct thread *t, int rc, const char *what, int line)
{
    fail("worker %d writer %d, soak.c:%d: %s gave %d (%s): %s", t->worker, t->writer, line, what, rc,
         kvstore_strerror(rc), kvstore_errmsg(t->h->kv));
}

#define OK(call)                                                                                               \
    do {                                                                                                       \
        int rc_;                                                                                               \
        DO(rc_, call);                                                                                         \
        if (rc_ != KVSTORE_OK) unexpected(t, rc_, #call, __LINE__);                                            \
    } while (0)
/* Inside a transaction nothing is BUSY. */
#define STRICTLY_OK(call)                                                                                      \
    do {                                                                                                       \
        int rc_ = (call);                                                                                      \
        if (rc_ != KVSTORE_OK) unexpected(t, rc_, #call, __LINE__);                                            \
    } while (0)
#define EXPECT(rc, or_this, what)                                                                              \
    do {                                                                                                       \
        if (rc != KVSTORE_OK && rc != or_this) unexpected(t, rc, what, __LINE__);                              \
    } while (0)

/* ---- keys and values ---------------------------------------------------------------------------------- */

static int own_key(char *key, int writer, int index)
{
    return index < KEYS ? sprintf(key, "o/%02d/%04d", writer, index)
                        : sprintf(key, "p/%02d/%03d", writer, index - KEYS);
}

static enum family own_family(int index)
{
    return index % 2 ? SECOND : DEFAULT;
}

/* Keys whose expiry changes without their value. */
static int is_expirable(int index)
{
    return index < KEYS && index % 4 >= 2;
}

/* Says whose key it is; 0 if it is another one of the soak's. */
static int parse_key(const char *key, int length, int *writer, int *index)
{
    char copy[32], again[32];
    if (length > 0 && length < 30) {
        memcpy(copy, key, (size_t)length);
        copy[length] = 0;
        *writer = *index = -1;
        if (copy[0] == 'o' && sscanf(copy, "o/%2d/%4d", writer, index) == 2 && *index < KEYS) {
        } else if (copy[0] == 'p' && sscanf(copy, "p/%2d/%3d", writer, index) == 2 && *index < PAIRS) {
            *index += KEYS;
        } else if (copy[1] == '/' && strchr("bcxst", copy[0])) {
            return 0;
        }
        if (*writer >= 0 && *writer < WRITERS && *index >= 0) {
            own_key(again, *writer, *index);
            if (!strcmp(again, copy)) return 1;
        }
    }
    fail("a key that nobody has written: \"%.*s\" (%d bytes)", length < 100 ? length : 100, key, length);
}

struct header {
    uint64_t sum, key, seq;
    int64_t expire_ms, number;
    uint32_t length, writer;
};

static uint64_t hash(const void *data, size_t length)
{
    const unsigned char *at = data;
    uint64_t h = 1469598103934665603ull ^ length, part;
    for (; length >= 8; length -= 8, at += 8) {
        memcpy(&part, at, 8);
        h = (h ^ part) * 1099511628211ull;
        h ^= h >> 29;
    }
    for (; length; length--) h = (h ^ *at++) * 1099511628211ull;
    return h ^ h >> 32;
}

static int make_value(struct thread *t, const char *key, uint64_t seq, int64_t expire_ms, int64_t number)
{
    struct header head;
    int kind = below(t, 100);
    size_t extra = (size_t)(kind < 80 ? below(t, 300) : kind < 97 ? below(t, 3000) : below(t, MAX_VALUE));
    memset(&head, 0, sizeof head);
    head.key = hash(key, strlen(key));
    head.seq = seq;
    head.expire_ms = expire_ms;
    head.number = number;
    head.length = (uint32_t)(sizeof head + extra);
    head.writer = (uint32_t)t->writer;
    for (size_t i = 0; i < extra; i += 8) {
        uint64_t fill = seq * 0x9e3779b97f4a7c15ull + i * head.key;
        memcpy(t->value + sizeof head + i, &fill, 8);
    }
    memcpy(t->value, &head, sizeof head);
    head.sum = hash(t->value + 8, head.length - 8);
    memcpy(t->value, &head, 8);
    return (int)head.length;
}

static struct header check_value(const char *where, const char *key, const void *value, int length)
{
    struct header head;
    if (length < (int)sizeof head) fail("%s: the value of %s has %d bytes only", where, key, length);
    memcpy(&head, value, sizeof head);
    if (head.length != (uint32_t)length || head.sum != hash((const char *)value + 8, (size_t)length - 8)) {
        fail("%s: the value of %s is damaged: %d bytes, should be %u; writer %u, seq %llu", where, key, length,
             head.length, head.writer, (unsigned long long)head.seq);
    }
    if (head.key != hash(key, strlen(key))) {
        fail("%s: %s has the value of another key (of writer %u, seq %llu)", where, key, head.writer,
             (unsigned long long)head.seq);
    }
    atomic_fetch_add_explicit(&shared->checks, 1, memory_order_relaxed);
    return head;
}

/* ---- what a read of an own key must show -------------------------------------------------------------- */

struct before {
    int writer, index;
    uint64_t committed, value_seq, intent; /* read in this order */
};

static struct before look(int writer, int index)
{
    struct before b = {writer, index, 0, 0, 0};
    b.committed = atomic_load(&shared->committed[writer][index]);
    b.value_seq = atomic_load(&shared->value_seq[writer][index]);
    b.intent = atomic_load(&shared->intent[writer][index]);
    return b;
}

#define UNKNOWN ((int64_t)-2)

/* Checks what was read after `look`, between `t0` and `t1`. `value` is NULL if there was nothing. The expiry
 * is from `least` to `most`; KVSTORE_NO_TTL: none; UNKNOWN. Gives the value's sequence number. */
static uint64_t check_read(const char *where, struct before b, const void *value, int length, int64_t least,
                           int64_t most, int64_t t0, int64_t t1)
{
    char key[32], what[400];
    uint64_t intent = atomic_load(&shared->intent[b.writer][b.index]);
    int stable = b.committed == b.intent && b.committed == intent;
    struct state state = unpack(b.committed);
    struct header head;
    own_key(key, b.writer, b.index);
    snprintf(what, sizeof what,
             "%s: %s (t0 %lld, t1 %lld; committed seq %llu%s, value seq %llu, expires %lld; intended seq %llu; %s)",
             where, key, (long long)t0, (long long)t1, (unsigned long long)state.seq, state.dead ? " deleted" : "",
             (unsigned long long)b.value_seq, (long long)state.expire_ms, (unsigned long long)(intent >> 41),
             stable ? "stable" : "changing");
    if (!value) {
        if (stable && was_alive(state, t1)) fail("%s is lost: not found though alive", what);
        return 0;
    }
    head = check_value(where, key, value, length);
    if (head.writer != (uint32_t)b.writer) fail("%s has a value of writer %u", what, head.writer);
    if (head.seq < b.value_seq) fail("%s is stale: got seq %llu", what, (unsigned long long)head.seq);
    if (head.seq > intent >> 41) fail("%s is ahead: got seq %llu", what, (unsigned long long)head.seq);
    if (least != UNKNOWN && least != KVSTORE_NO_TTL && most <= t0) {
        fail("%s was returned though it expired at %lld", what, (long long)most);
    }
    if (!is_expirable(b.index)) {
        int64_t embedded = head.expire_ms;
        if (embedded && embedded <= t0) fail("%s was returned though expired since %lld", what, (long long)embedded);
        if (least != UNKNOWN && (embedded ? embedded < least || embedded > most : least != KVSTORE_NO_TTL)) {
            fail("%s: expires at %lld, the store says from %lld to %lld", what, (long long)embedded,
                 (long long)least, (long long)most);
        }
    }
    if (stable) {
        int64_t should = state.expire_ms;
        if (was_dead(state, t0)) fail("%s was returned though dead: got seq %llu", what, (unsigned long long)head.seq);
        if (head.seq != b.value_seq) fail("%s was never committed: got seq %llu", what, (unsigned long long)head.seq);
        if (least != UNKNOWN && (should ? should < least || should > most : least != KVSTORE_NO_TTL)) {
            fail("%s: the store says it expires from %lld to %lld", what, (long long)least, (long long)most);
        }
    }
    return head.seq;
}

/* Reads an own key of any writer in one of many ways; `b` was looked at before. Outside and inside
 * transactions. */
static uint64_t read_key(struct thread *t, const char *where, struct before b, enum family family)
{
    char key[32];
    int n = own_key(key, b.writer, b.index), rc, length = -1, how = below(t, 10);
    int64_t t0 = kvstore_now_ms(), t1, left = UNKNOWN, least = UNKNOWN, most = UNKNOWN;
    KVColumnFamily *cf = t->h->cf[family];
    void *value = NULL;
    uint64_t seq;
    if (how < 6) {
        DO(rc, kvstore_cf_get_ttl(cf, key, n, &value, &length, &left));
    } else if (how < 9) {
        DO(rc, kvstore_cf_get(cf, key, n, &value, &length));
    } else {
        DO(rc, kvstore_cf_get_into(cf, key, n, t->value, sizeof t->value, &length));
        if (rc == KVSTORE_OK) value = t->value;
    }
    t1 = kvstore_now_ms();
    EXPECT(rc, KVSTORE_NOTFOUND, "a get");
    if (rc != KVSTORE_OK && value) fail("%s: %s: a value though %d", where, key, rc);
    if (rc == KVSTORE_OK && left == KVSTORE_NO_TTL) {
        least = most = KVSTORE_NO_TTL;
    } else if (rc == KVSTORE_OK && left != UNKNOWN) {
        if (left < 0) fail("%s: %s: found with %lld ms left", where, key, (long long)left);
        /* The library asks for the time once more for what is left. */
        if (left == 0) atomic_fetch_add_explicit(&shared->nothing_left, 1, memory_order_relaxed);
        least = t0 + left;
        most = t1 + left;
    }
    seq = check_read(where, b, value, length, least, most, t0, t1);
    if (value != t->value) kvstore_free(value);
    return seq;
}

/* ---- changes of own keys ------------------------------------------------------------------------------ */

static struct state current(struct thread *t, int index)
{
    return unpack(atomic_load(&shared->committed[t->writer][index]));
}

static void intend(struct thread *t, int index, uint64_t seq, int dead, int64_t expire_ms)
{
    atomic_store(&shared->intent[t->writer][index], pack(seq, dead, expire_ms));
}

/* The change intended is made: of the value (or deleted), or only of the expiry. */
static void done(struct thread *t, int index, int value_too)
{
    uint64_t packed = atomic_load(&shared->intent[t->writer][index]);
    if (value_too) atomic_store(&shared->value_seq[t->writer][index], packed >> 41);
    atomic_store(&shared->committed[t->writer][index], packed);
}

/* It was not made, and uses up a sequence number only. */
static void not_done(struct thread *t, int index)
{
    struct state state = current(t, index);
    uint64_t packed = pack(atomic_load(&shared->intent[t->writer][index]) >> 41, state.dead, state.expire_ms);
    atomic_store(&shared->intent[t->writer][index], packed);
    atomic_store(&shared->committed[t->writer][index], packed);
}

static int64_t soon(struct thread *t)
{
    return kvstore_now_ms() + 1 + below(t, below(t, 2) ? 2000 : 60);
}

static int64_t late(struct thread *t)
{
    return kvstore_now_ms() + 5000 + below(t, 600000);
}

static int64_t any_expiry(struct thread *t)
{
    int kind = below(t, 3);
    return kind == 0 ? 0 : kind == 1 ? soon(t) : late(t);
}

static void read_own(struct thread *t, const char *where, int index)
{
    uint64_t first = read_key(t, where, look(t->writer, index), own_family(index));
    if (index < KEYS) return;
    /* Only this thread changes it, and both halves at once; time may end it between the reads. */
    uint64_t second = read_key(t, where, look(t->writer, index), own_family(index + 1));
    if (second && first != second) {
        fail("%s: the halves of pair %d of writer %d have seq %llu and %llu", where, index - KEYS, t->writer,
             (unsigned long long)first, (unsigned long long)second);
    }
}

static void put(struct thread *t, enum op op)
{
    int index = below(t, KEYS), n, length, wrote = 1;
    struct state old = current(t, index);
    uint64_t seq = old.seq + 1;
    KVColumnFamily *cf = t->h->cf[own_family(index)];
    int64_t expire_ms = op == PUT ? 0 : op == PUT_TTL_SHORT ? soon(t) : op == PUT_TTL_LONG ? late(t) : any_expiry(t);
    int64_t t0, t1;
    char key[32];
    n = own_key(key, t->writer, index);
    length = make_value(t, key, seq, expire_ms, 0);
    intend(t, index, seq, 0, expire_ms);
    t0 = kvstore_now_ms();
    if (op == PUT) {
        OK(kvstore_cf_put(cf, key, n, t->value, length));
    } else if (op == PUT_IF_ABSENT) {
        OK(kvstore_cf_put_if_absent(cf, key, n, t->value, length, expire_ms, &wrote));
        t1 = kvstore_now_ms();
        if (wrote && was_alive(old, t1)) fail("%s was put as if absent, but was alive", key);
        if (!wrote && was_dead(old, t0)) fail("%s was not put as if alive, but was dead", key);
    } else if (below(t, 4)) {
        OK(kvstore_cf_put_ttl(cf, key, n, t->value, length, expire_ms));
    } else {
        KVWriteOptions options = {0};
        options.expireMs = expire_ms;
        OK(kvstore_cf_put_with(cf, key, n, t->value, length, &options, &wrote));
        if (!wrote) fail("%s was not put, without any condition", key);
    }
    if (wrote) {
        done(t, index, 1);
    } else {
        not_done(t, index);
    }
    if (below(t, 2)) read_own(t, "after a put", index);
}

static void delete(struct thread *t)
{
    int index = below(t, KEYS), rc;
    struct state old = current(t, index);
    int64_t t0, t1;
    char key[32];
    int n = own_key(key, t->writer, index);
    intend(t, index, old.seq + 1, 1, 0);
    t0 = kvstore_now_ms();
    DO(rc, kvstore_cf_delete(t->h->cf[own_family(index)], key, n));
    t1 = kvstore_now_ms();
    EXPECT(rc, KVSTORE_NOTFOUND, "kvstore_cf_delete");
    if (rc == KVSTORE_OK && was_dead(old, t0)) fail("%s was deleted, but was dead", key);
    if (rc != KVSTORE_OK && was_alive(old, t1)) fail("%s was not there to be deleted, but was alive", key);
    done(t, index, 1);
    read_own(t, "after a delete", index);
}

/* Of the default family, so of every other key in the range. */
static void delete_range(struct thread *t)
{
    int from = below(t, KEYS - 12), to = from + 1 + below(t, 12), nfrom, nto;
    int64_t t0, t1, deleted, least = 0, most = 0;
    struct state old[12];
    char lower[32], upper[32];
    nfrom = own_key(lower, t->writer, from);
    nto = own_key(upper, t->writer, to);
    for (int i = from; i < to; i++) {
        old[i - from] = current(t, i);
        if (own_family(i) == DEFAULT) intend(t, i, old[i - from].seq + 1, 1, 0);
    }
    t0 = kvstore_now_ms();
    OK(kvstore_cf_delete_range(t->h->cf[DEFAULT], lower, nfrom, upper, nto, &deleted));
    t1 = kvstore_now_ms();
    for (int i = from; i < to; i++) {
        if (own_family(i) == DEFAULT) {
            least += was_alive(old[i - from], t1);
            most += !was_dead(old[i - from], t0);
            done(t, i, 1);
        }
    }
    if (deleted < least || deleted > most) {
        fail("delete_range from %s to %s deleted %lld keys; %lld to %lld were alive", lower, upper, (long long)deleted,
             (long long)least, (long long)most);
    }
    read_own(t, "after delete_range", from);
}

static void expire(struct thread *t, enum op op)
{
    int index = below(t, KEYS / 4) * 4 + 2 + below(t, 2), rc, n, changed = -1;
    struct state old = current(t, index);
    int64_t expire_ms = op == PERSIST ? 0 : any_expiry(t), t0, t1;
    KVColumnFamily *cf = t->h->cf[own_family(index)];
    void *value = NULL;
    char key[32];
    n = own_key(key, t->writer, index);
    intend(t, index, old.seq + 1, 0, expire_ms);
    t0 = kvstore_now_ms();
    if (op == PERSIST) {
        DO(rc, kvstore_cf_persist(cf, key, n, &changed));
    } else if (below(t, 3)) {
        DO(rc, kvstore_cf_expire(cf, key, n, expire_ms, 0, &changed));
    } else {
        DO(rc, kvstore_cf_get_and_expire(cf, key, n, expire_ms, &value, &changed));
        if (rc == KVSTORE_OK && check_value("get_and_expire", key, value, changed).seq
            != atomic_load(&shared->value_seq[t->writer][index])) {
            fail("get_and_expire gave another value of %s", key);
        }
        kvstore_free(value);
    }
    t1 = kvstore_now_ms();
    EXPECT(rc, KVSTORE_NOTFOUND, op_names[op]);
    if (rc == KVSTORE_OK && was_dead(old, t0)) fail("%s of %s worked, but it was dead", op_names[op], key);
    if (rc != KVSTORE_OK && was_alive(old, t1)) fail("%s of %s: not found, but it was alive", op_names[op], key);
    if (rc == KVSTORE_OK) {
        done(t, index, 0);
    } else {
        not_done(t, index);
    }
    read_own(t, op_names[op], index);
}

static void cas_own(struct thread *t)
{
    int index = below(t, KEYS), rc, n, length, nold, swapped = -1, wrong = below(t, 4) == 0, drop = below(t, 4) == 0;
    struct state old = current(t, index);
    KVColumnFamily *cf = t->h->cf[own_family(index)];
    int64_t expire_ms = any_expiry(t), t1;
    void *value;
    char key[32];
    n = own_key(key, t->writer, index);
    DO(rc, kvstore_cf_get(cf, key, n, &value, &nold));
    EXPECT(rc, KVSTORE_NOTFOUND, "kvstore_cf_get");
    if (rc == KVSTORE_NOTFOUND) return;
    if (wrong) ((char *)value)[below(t, nold)] ^= 1;
    length = make_value(t, key, old.seq + 1, expire_ms, 0);
    intend(t, index, old.seq + 1, drop, drop ? 0 : expire_ms);
    if (drop) {
        OK(kvstore_cf_compare_and_delete(cf, key, n, value, nold, &swapped));
    } else {
        OK(kvstore_cf_compare_and_swap(cf, key, n, value, nold, t->value, length, expire_ms, &swapped));
    }
    t1 = kvstore_now_ms();
    kvstore_free(value);
    if (wrong && swapped) fail("compare-and-swap of %s worked with a wrong value", key);
    if (!wrong && !swapped && was_alive(old, t1)) fail("compare-and-swap of %s did not work", key);
    if (swapped) {
        done(t, index, 1);
    } else {
        not_done(t, index);
    }
    read_own(t, "after compare-and-swap", index);
}

/* Several own keys at once, by a batch or in a transaction that is committed or rolled back. */
static void several(struct thread *t, enum op op)
{
    int count = 1 + below(t, 6), indexes[6], dead[6];
    KVBatch *batch = NULL;
    for (int i = 0; i < count; i++) {
        int again;
        do {
            indexes[i] = below(t, 2) ? below(t, KEYS) : KEYS + below(t, PAIRS);
            again = 0;
            for (int j = 0; j < i; j++) again |= indexes[j] == indexes[i];
        } while (again);
        dead[i] = below(t, 5) == 0;
    }
    if (op == BATCH) {
        OK(kvstore_batch_new(t->h->kv, &batch));
    } else {
        OK(kvstore_begin(t->h->kv, 1));
    }
    for (int i = 0; i < count; i++) {
        struct state old = current(t, indexes[i]);
        int64_t expire_ms = dead[i] ? 0 : any_expiry(t);
        char key[32];
        int n = own_key(key, t->writer, indexes[i]), length = make_value(t, key, old.seq + 1, expire_ms, 0), rc;
        intend(t, indexes[i], old.seq + 1, dead[i], expire_ms);
        for (int half = 0; half < (indexes[i] < KEYS ? 1 : 2); half++) {
            KVColumnFamily *cf = t->h->cf[own_family(indexes[i] + half)];
            if (batch && dead[i]) {
                STRICTLY_OK(kvstore_batch_delete(batch, cf, key, n));
            } else if (batch) {
                STRICTLY_OK(kvstore_batch_put(batch, cf, key, n, t->value, length, expire_ms));
            } else if (dead[i]) {
                rc = kvstore_cf_delete(cf, key, n);
                EXPECT(rc, KVSTORE_NOTFOUND, "kvstore_cf_delete in a transaction");
            } else {
                void *value;
                int got;
                int64_t t1;
                STRICTLY_OK(kvstore_cf_put_ttl(cf, key, n, t->value, length, expire_ms));
                rc = kvstore_cf_get(cf, key, n, &value, &got);
                t1 = kvstore_now_ms();
                EXPECT(rc, KVSTORE_NOTFOUND, "kvstore_cf_get in a transaction");
                if (rc == KVSTORE_OK ? got != length || memcmp(value, t->value, (size_t)length)
                                     : !expire_ms || expire_ms > t1) {
                    fail("a transaction does not see its own write of %s (%d)", key, rc);
                }
                kvstore_free(value);
            }
        }
    }
    if (batch) {
        OK(kvstore_batch_commit(batch));
        kvstore_batch_free(batch);
    } else if (op == TX_COMMIT) {
        STRICTLY_OK(kvstore_commit(t->h->kv));
    } else {
        STRICTLY_OK(kvstore_rollback(t->h->kv));
    }
    for (int i = 0; i < count; i++) {
        if (op == TX_ROLLBACK) {
            not_done(t, indexes[i]);
        } else {
            done(t, indexes[i], 1);
        }
    }
    for (int i = 0; i < count; i++) read_own(t, op_names[op], indexes[i]);
}

/* Finds out what has become of the changes that were under way when this writer was killed. */
static void resolve(struct thread *t)
{
    uint64_t adding = atomic_load(&shared->adding[t->writer]), swapping = atomic_load(&shared->swapping[t->writer]);
    if (adding) {
        atomic_fetch_add(&shared->maybe_added[adding >> 32], adding & 0xffffffff);
        atomic_store(&shared->adding[t->writer], 0);
    }
    if (swapping) {
        atomic_fetch_add(&shared->maybe_swapped[swapping - 1], 1);
        atomic_store(&shared->swapping[t->writer], 0);
    }
    int happened = -1; /* what was under way at once has happened as a whole, or not at all */
    for (int index = 0; index < ALL; index++) {
        uint64_t packed = atomic_load(&shared->intent[t->writer][index]);
        uint64_t value_seq = atomic_load(&shared->value_seq[t->writer][index]);
        struct state old = current(t, index), wanted = unpack(packed);
        uint64_t seq[2] = {0, 0};
        int64_t expires[2] = {KVSTORE_NO_TTL, KVSTORE_NO_TTL}, t1 = 0;
        char key[32];
        int n = own_key(key, t->writer, index), halves = index < KEYS ? 1 : 2, rc, length, so;
        if (packed == atomic_load(&shared->committed[t->writer][index])) continue;
        OK(kvstore_begin(t->h->kv, 0));
        for (int half = 0; half < halves; half++) {
            KVColumnFamily *cf = t->h->cf[own_family(index + half)];
            void *value;
            rc = kvstore_cf_get(cf, key, n, &value, &length);
            EXPECT(rc, KVSTORE_NOTFOUND, "kvstore_cf_get after a kill");
            if (rc == KVSTORE_OK) {
                seq[half] = check_value("after a kill", key, value, length).seq;
                rc = kvstore_cf_expire_time(cf, key, n, &expires[half]);
                EXPECT(rc, KVSTORE_NOTFOUND, "kvstore_cf_expire_time");
                if (rc == KVSTORE_NOTFOUND) seq[half] = 0;
            }
            kvstore_free(value);
        }
        t1 = kvstore_now_ms();
        STRICTLY_OK(kvstore_rollback(t->h->kv));
        if (halves == 2 && seq[1] && (seq[0] != seq[1] || expires[0] != expires[1])) {
            fail("after a kill the halves of %s have seq %llu and %llu", key, (unsigned long long)seq[0],
                 (unsigned long long)seq[1]);
        }
        if (halves == 2) seq[0] = seq[1]; /* the first may have expired since */
        int is_new = !wanted.dead && seq[0] == wanted.seq
                     && expires[0] == (wanted.expire_ms ? wanted.expire_ms : KVSTORE_NO_TTL);
        int is_old = !old.dead && seq[0] == value_seq
                     && expires[0] == (old.expire_ms ? old.expire_ms : KVSTORE_NO_TTL);
        int is_new_expiry = is_expirable(index) && !wanted.dead && !old.dead && seq[0] == value_seq
                            && expires[0] == (wanted.expire_ms ? wanted.expire_ms : KVSTORE_NO_TTL);
        if (seq[0] && is_new) {
            done(t, index, 1);
            so = 1;
        } else if (seq[0] && (is_old || is_new_expiry)) {
            so = is_old ? 0 : -1;
            if (is_old) {
                not_done(t, index);
            } else {
                done(t, index, 0);
            }
        } else if (!seq[0] && (!was_alive(old, t1) || !was_alive(wanted, t1))) {
            so = was_alive(old, t1) && wanted.dead ? 1 : was_alive(wanted, t1) && !is_expirable(index) ? 0 : -1;
            atomic_store(&shared->intent[t->writer][index], pack(wanted.seq, 1, 0));
            done(t, index, 1);
        } else {
            fail("after a kill %s has seq %llu, expires %lld; committed seq %llu%s (value %llu), expires %lld; "
                 "intended seq %llu%s, expires %lld",
                 key, (unsigned long long)seq[0], (long long)expires[0], (unsigned long long)old.seq,
                 old.dead ? " deleted" : "", (unsigned long long)value_seq, (long long)old.expire_ms,
                 (unsigned long long)wanted.seq, wanted.dead ? " deleted" : "", (long long)wanted.expire_ms);
        }
        atomic_fetch_add(so == 0 ? &shared->undone : &shared->unresolved, 1);
        if (so >= 0) {
            if (happened >= 0 && happened != so) fail("half of what writer %d did when killed has happened", t->writer);
            happened = so;
        }
    }
}

/* ---- what all writers share --------------------------------------------------------------------------- */

static uint64_t sum_of(word (*words)[COUNTERS], int at)
{
    uint64_t sum = 0;
    for (int i = 0; i < WRITERS; i++) sum += atomic_load(&words[i][at]);
    return sum;
}

static uint64_t swaps_of(int at)
{
    uint64_t sum = 0;
    for (int i = 0; i < WRITERS; i++) sum += atomic_load(&shared->swapped[i][at]);
    return sum;
}

static void increment(struct thread *t)
{
    int at = below(t, COUNTERS), delta = 1 + below(t, 9), n;
    uint64_t least = sum_of(shared->added, at);
    int64_t sum;
    char key[32];
    n = sprintf(key, "c/%02d", at);
    atomic_store(&shared->adding[t->writer], (uint64_t)at << 32 | (uint64_t)delta);
    OK(kvstore_cf_increment(t->h->cf[SECOND], key, n, delta, 0, &sum));
    atomic_fetch_add(&shared->added[t->writer][at], (uint64_t)delta);
    atomic_store(&shared->adding[t->writer], 0);
    if (sum < (int64_t)least + delta) {
        fail("%s is %lld after adding %d: increments are lost, it was at least %llu", key, (long long)sum, delta,
             (unsigned long long)least);
    }
}

static void cas_shared(struct thread *t)
{
    int at = below(t, SWAPS), nkey, nold, length, swapped = 0;
    uint64_t least = swaps_of(at);
    struct header head;
    void *value;
    char key[32];
    nkey = sprintf(key, "x/%02d", at);
    OK(kvstore_cf_get(t->h->cf[DEFAULT], key, nkey, &value, &nold));
    head = check_value("compare-and-swap", key, value, nold);
    if (head.number < (int64_t)least) {
        fail("%s is %lld: swaps are lost, it was at least %llu", key, (long long)head.number, (unsigned long long)least);
    }
    length = make_value(t, key, head.seq + 1, 0, head.number + 1);
    atomic_store(&shared->swapping[t->writer], (uint64_t)at + 1);
    OK(kvstore_cf_compare_and_swap(t->h->cf[DEFAULT], key, nkey, value, nold, t->value, length, 0, &swapped));
    if (swapped) atomic_fetch_add(&shared->swapped[t->writer][at], 1);
    atomic_store(&shared->swapping[t->writer], 0);
    kvstore_free(value);
}

static int account(char *key, int at)
{
    return sprintf(key, "b/%03d", at);
}

static void transfer(struct thread *t)
{
    int from = below(t, ACCOUNTS), to = (from + 1 + below(t, ACCOUNTS - 1)) % ACCOUNTS, sides[2];
    int64_t amount = below(t, 100);
    sides[0] = from;
    sides[1] = to;
    OK(kvstore_begin(t->h->kv, 1));
    for (int i = 0; i < 2; i++) {
        KVColumnFamily *cf = t->h->cf[sides[i] % 2];
        struct header head;
        void *value;
        char key[32];
        int n = account(key, sides[i]), length;
        STRICTLY_OK(kvstore_cf_get(cf, key, n, &value, &length));
        head = check_value("transfer", key, value, length);
        kvstore_free(value);
        length = make_value(t, key, head.seq + 1, 0, head.number + (i ? amount : -amount));
        STRICTLY_OK(kvstore_cf_put(cf, key, n, t->value, length));
    }
    if (below(t, 8)) {
        STRICTLY_OK(kvstore_commit(t->h->kv));
    } else {
        STRICTLY_OK(kvstore_rollback(t->h->kv));
    }
}

/* Inside a transaction. */
static int64_t sum_accounts(struct thread *t, struct handle *h)
{
    int64_t sum = 0;
    int count = 0;
    for (int family = 0; family < 2; family++) {
        KVIterator *it;
        STRICTLY_OK(kvstore_cf_prefix_iterator_create(h->cf[family], "b/", 2, &it));
        while (!kvstore_iterator_eof(it)) {
            void *key, *value;
            int n, length;
            char copy[32] = "";
            STRICTLY_OK(kvstore_iterator_key(it, &key, &n));
            STRICTLY_OK(kvstore_iterator_value(it, &value, &length));
            memcpy(copy, key, n < 30 ? (size_t)n : 30);
            sum += check_value("accounts", copy, value, length).number;
            count++;
            STRICTLY_OK(kvstore_iterator_next(it));
        }
        kvstore_iterator_close(it);
    }
    if (count != ACCOUNTS) fail("%d accounts instead of %d", count, ACCOUNTS);
    return sum;
}

static void bank_sum(struct thread *t)
{
    OK(kvstore_begin(t->h->kv, 0));
    for (int i = 0; i < 2; i++) {
        int64_t sum = sum_accounts(t, t->h);
        if (sum != ACCOUNTS * MONEY) fail("the accounts have %lld instead of %d", (long long)sum, ACCOUNTS * MONEY);
    }
    STRICTLY_OK(below(t, 2) ? kvstore_commit(t->h->kv) : kvstore_rollback(t->h->kv));
}

/* ---- snapshots, iterators ----------------------------------------------------------------------------- */

struct seen {
    uint64_t seq;
    int64_t expire_ms;
};

/* Reads all own keys of a writer in a family, inside a snapshot; entries of seq 0 are not there. */
static int64_t gather(struct thread *t, int writer, enum family family, struct seen *seen)
{
    KVIterator *it;
    char prefix[8];
    int n = sprintf(prefix, "o/%02d/", writer), at, who;
    memset(seen, 0, KEYS * sizeof *seen);
    STRICTLY_OK(kvstore_cf_prefix_iterator_create(t->h->cf[family], prefix, n, &it));
    while (!kvstore_iterator_eof(it)) {
        void *key, *value;
        int nkey, length;
        char name[32];
        STRICTLY_OK(kvstore_iterator_key(it, &key, &nkey));
        STRICTLY_OK(kvstore_iterator_value(it, &value, &length));
        if (!parse_key(key, nkey, &who, &at) || who != writer || at >= KEYS || own_family(at) != family) {
            fail("%.*s is not where it belongs", nkey, (char *)key);
        }
        own_key(name, writer, at);
        if (seen[at].seq) fail("%s came twice", name);
        seen[at].seq = check_value("snapshot", name, value, length).seq;
        STRICTLY_OK(kvstore_iterator_expire_ms(it, &seen[at].expire_ms));
        STRICTLY_OK(kvstore_iterator_next(it));
    }
    kvstore_iterator_close(it);
    return kvstore_now_ms();
}

static void snapshot(struct thread *t)
{
    enum { SINGLE = 8, PAIRED = 4 };
    struct before single[SINGLE], paired[PAIRED], all[KEYS];
    struct seen seen[KEYS], again[KEYS];
    uint64_t seq[SINGLE];
    int writer = below(t, WRITERS), deep = below(t, 3) == 0;
    enum family family = (enum family)below(t, 2);
    for (int i = 0; i < SINGLE; i++) single[i] = look(below(t, WRITERS), below(t, KEYS));
    for (int i = 0; i < PAIRED; i++) paired[i] = look(below(t, WRITERS), KEYS + below(t, PAIRS));
    for (int i = 0; i < KEYS; i++) all[i] = look(writer, i);
    OK(kvstore_begin(t->h->kv, 0));
    for (int i = 0; i < SINGLE; i++) seq[i] = read_key(t, "snapshot", single[i], own_family(single[i].index));
    if (deep) {
        int64_t t0 = kvstore_now_ms(), t1;
        gather(t, writer, family, seen);
        for (int round = 0; round < 2; round++) {
            t1 = gather(t, writer, family, again);
            for (int i = 0; i < KEYS; i++) {
                if (own_family(i) != family) continue;
                if (again[i].seq && (again[i].seq != seen[i].seq || again[i].expire_ms != seen[i].expire_ms)) {
                    fail("a snapshot is not stable: key %d of writer %d had seq %llu, then %llu", i, writer,
                         (unsigned long long)seen[i].seq, (unsigned long long)again[i].seq);
                }
                if (seen[i].seq && !again[i].seq && (seen[i].expire_ms < 0 || seen[i].expire_ms > t1)) {
                    fail("a snapshot is not stable: key %d of writer %d has vanished", i, writer);
                }
                if (seen[i].seq && seen[i].seq < all[i].value_seq) {
                    fail("a snapshot is stale: key %d of writer %d has seq %llu, not %llu", i, writer,
                         (unsigned long long)seen[i].seq, (unsigned long long)all[i].value_seq);
                }
                if (seen[i].seq && seen[i].expire_ms >= 0 && seen[i].expire_ms <= t0) {
                    fail("a snapshot shows key %d of writer %d, expired at %lld, at %lld", i, writer,
                         (long long)seen[i].expire_ms, (long long)t0);
                }
            }
        }
    } else {
        nap_us(below(t, 2000)); /* others commit meanwhile */
    }
    for (int i = 0; i < PAIRED; i++) {
        uint64_t first = read_key(t, "snapshot of a pair", paired[i], DEFAULT);
        uint64_t second = read_key(t, "snapshot of a pair", paired[i], SECOND);
        uint64_t third = read_key(t, "snapshot of a pair", paired[i], DEFAULT);
        if ((second && first != second) || (third && second != third)) {
            fail("a snapshot shows pair %d of writer %d half: seq %llu, %llu, %llu", paired[i].index - KEYS,
                 paired[i].writer, (unsigned long long)first, (unsigned long long)second, (unsigned long long)third);
        }
    }
    for (int i = 0; i < SINGLE; i++) {
        uint64_t now = read_key(t, "snapshot again", single[i], own_family(single[i].index));
        if (now && now != seq[i]) {
            fail("a snapshot is not stable: key %d of writer %d had seq %llu, then %llu", single[i].index,
                 single[i].writer, (unsigned long long)seq[i], (unsigned long long)now);
        }
    }
    STRICTLY_OK(below(t, 2) ? kvstore_commit(t->h->kv) : kvstore_rollback(t->h->kv));
}

static int compare(const char *a, int na, const char *b, int nb)
{
    int order = memcmp(a, b, (size_t)(na < nb ? na : nb));
    return order ? order : na - nb;
}

static void iterate(struct thread *t, enum op op)
{
    enum family family = (enum family)below(t, 2);
    KVColumnFamily *cf = t->h->cf[family];
    KVIterator *it;
    char prefix[16] = "", lower[32] = "", upper[32] = "", last[64];
    int nprefix = 0, nlower = 0, nupper = 0, nlast = -1, flags = 0, backward = op == ITER_REVERSE, limit = 150;
    int64_t t0 = kvstore_now_ms(), last_expiry = 0;
    if (op == ITER_FULL) {
        OK(kvstore_cf_iterator_create(cf, &it));
        if (below(t, 2)) {
            nlower = own_key(lower, below(t, WRITERS), below(t, KEYS));
            OK(kvstore_iterator_seek(it, lower, nlower));
        } else {
            OK(kvstore_iterator_first(it));
        }
    } else if (op == ITER_REVERSE) {
        OK(kvstore_cf_reverse_iterator_create(cf, &it));
        if (below(t, 2)) {
            nupper = own_key(upper, below(t, WRITERS), below(t, KEYS));
            flags = KVSTORE_RANGE_CLOSED;
            OK(kvstore_iterator_seek(it, upper, nupper));
        } else {
            OK(kvstore_iterator_last(it));
        }
    } else if (op == ITER_PREFIX) {
        backward = below(t, 2);
        nprefix = below(t, 3) ? sprintf(prefix, "o/%02d/%d", below(t, WRITERS), 0)
                              : sprintf(prefix, "p/%02d/", below(t, WRITERS));
        if (backward) {
            OK(kvstore_cf_reverse_prefix_iterator_create(cf, prefix, nprefix, &it));
        } else {
            OK(kvstore_cf_prefix_iterator_create(cf, prefix, nprefix, &it));
        }
    } else if (op == ITER_RANGE) {
        int writer = below(t, WRITERS), from = below(t, KEYS);
        nlower = own_key(lower, writer, from);
        nupper = own_key(upper, writer, from + below(t, KEYS - from));
        flags = below(t, 8);
        backward = flags & KVSTORE_RANGE_REVERSE;
        OK(kvstore_cf_range_iterator_create(cf, lower, nlower, upper, nupper, flags, &it));
    } else {
        OK(kvstore_cf_expiring_iterator_create(cf, t0 - 100000, t0 + 3000, &it));
        limit = 60;
    }
    for (int i = 0; i < limit && !kvstore_iterator_eof(it); i++) {
        void *key, *value;
        int n, length, writer, index;
        int64_t expire_ms;
        STRICTLY_OK(kvstore_iterator_key(it, &key, &n));
        STRICTLY_OK(kvstore_iterator_value(it, &value, &length));
        STRICTLY_OK(kvstore_iterator_expire_ms(it, &expire_ms));
        if (op == ITER_EXPIRING) {
            if (expire_ms < last_expiry) {
                fail("by expiry, %lld came after %lld", (long long)expire_ms, (long long)last_expiry);
            }
            last_expiry = expire_ms;
        } else {
            if (expire_ms != KVSTORE_NO_TTL && expire_ms <= t0) {
                fail("%s gave %.*s, expired at %lld, at %lld", op_names[op], n, (char *)key, (long long)expire_ms,
                     (long long)t0);
            }
            if (nlast >= 0) {
                int order = compare(last, nlast, key, n);
                if (backward ? order <= 0 : order >= 0) {
                    fail("%s: %.*s came after %.*s", op_names[op], n, (char *)key, nlast, last);
                }
            }
            if (nlower) {
                int order = compare(key, n, lower, nlower);
                if (order < 0 || (order == 0 && flags & KVSTORE_RANGE_OPEN)) {
                    fail("%s: %.*s is before %s", op_names[op], n, (char *)key, lower);
                }
            }
            if (nupper) {
                int order = compare(key, n, upper, nupper);
                if (order > 0 || (order == 0 && !(flags & KVSTORE_RANGE_CLOSED))) {
                    fail("%s: %.*s is after %s", op_names[op], n, (char *)key, upper);
                }
            }
            if (n < nprefix || memcmp(key, prefix, (size_t)nprefix)) {
                fail("%s: %.*s does not begin with %s", op_names[op], n, (char *)key, prefix);
            }
        }
        if (n >= (int)sizeof last) fail("%s: a key of %d bytes", op_names[op], n);
        memcpy(last, key, (size_t)n);
        nlast = n;
        if (parse_key(key, n, &writer, &index)) {
            struct header head;
            char name[32];
            own_key(name, writer, index);
            head = check_value(op_names[op], name, value, length);
            if (index < KEYS && own_family(index) != family) fail("%s is in the wrong family", name);
            if (!is_expirable(index) && head.expire_ms != (expire_ms == KVSTORE_NO_TTL ? 0 : expire_ms)) {
                fail("%s: %s expires at %lld, not %lld", op_names[op], name, (long long)expire_ms,
                     (long long)head.expire_ms);
            }
            if (head.seq > atomic_load(&shared->intent[writer][index]) >> 41) {
                fail("%s: %s has seq %llu from nowhere", op_names[op], name, (unsigned long long)head.seq);
            }
        } else if (((char *)key)[0] != 'c') {
            char name[32] = "";
            memcpy(name, key, (size_t)n);
            check_value(op_names[op], name, value, length);
        }
        if (i % 40 == 39) { /* as callers do: others work meanwhile, also on this handle */
            leave(t);
            together(t);
        }
        t0 = kvstore_now_ms();
        if (backward && op != ITER_RANGE) {
            OK(kvstore_iterator_prev(it));
        } else {
            OK(kvstore_iterator_next(it));
        }
    }
    kvstore_iterator_close(it);
}

static void count_live(struct thread *t)
{
    KVColumnFamily *cf = t->h->cf[below(t, 2)];
    int64_t before, after, all, count = 0;
    KVIterator *it;
    OK(kvstore_begin(t->h->kv, 0));
    STRICTLY_OK(kvstore_cf_count(cf, &all));
    STRICTLY_OK(kvstore_cf_count_live(cf, &before));
    STRICTLY_OK(kvstore_cf_range_iterator_create(cf, NULL, 0, NULL, 0, KVSTORE_RANGE_KEYS_ONLY, &it));
    for (; !kvstore_iterator_eof(it); count++) STRICTLY_OK(kvstore_iterator_next(it));
    kvstore_iterator_close(it);
    STRICTLY_OK(kvstore_cf_count_live(cf, &after));
    STRICTLY_OK(kvstore_commit(t->h->kv));
    if (all < before || before < count || count < after) {
        fail("%lld keys live, then %lld counted one by one, then %lld live; %lld rows", (long long)before,
             (long long)count, (long long)after, (long long)all);
    }
}

static void get_many(struct thread *t)
{
    enum { MANY = 10 };
    struct before b[MANY];
    char keys[MANY][32];
    const void *pointers[MANY];
    int lens[MANY], lengths[MANY];
    void *values[MANY];
    int64_t t0, t1;
    enum family family = (enum family)below(t, 2);
    for (int i = 0; i < MANY; i++) {
        b[i] = look(below(t, WRITERS), below(t, KEYS / 2) * 2 + (family == SECOND));
        lens[i] = own_key(keys[i], b[i].writer, b[i].index);
        pointers[i] = keys[i];
    }
    t0 = kvstore_now_ms();
    OK(kvstore_cf_get_many(t->h->cf[family], MANY, pointers, lens, values, lengths));
    t1 = kvstore_now_ms();
    for (int i = 0; i < MANY; i++) {
        check_read("get_many", b[i], values[i], lengths[i], UNKNOWN, UNKNOWN, t0, t1);
        kvstore_free(values[i]);
    }
}

/* ---- the rest ----------------------------------------------------------------------------------------- */

static void track_put(struct thread *t)
{
    int at = below(t, TRACKED), other = below(t, TRACKED), n, rc, length;
    int64_t written, t0, t1;
    void *value;
    char key[32];
    KVColumnFamily *cf = t->h->cf[TRACK];
    n = sprintf(key, "s/%02d/%02d", t->writer, at);
    length = make_value(t, key, 1, 0, 0);
    t0 = kvstore_now_ms();
    OK(kvstore_cf_put(cf, key, n, t->value, length));
    t1 = kvstore_now_ms();
    t->track_from[at] = t0;
    t->track_to[at] = t1;
    DO(rc, kvstore_cf_write_time(cf, key, n, &written));
    EXPECT(rc, KVSTORE_NOTFOUND, "kvstore_cf_write_time");
    if (rc == KVSTORE_OK ? written < t0 || written > t1 : kvstore_now_ms() - t0 <= SWEEP_AGE) {
        fail("%s was written from %lld to %lld; its write time is %lld (code %d)", key, (long long)t0, (long long)t1,
             (long long)written, rc);
    }
    n = sprintf(key, "s/%02d/%02d", t->writer, other);
    DO(rc, kvstore_cf_get(cf, key, n, &value, &length));
    EXPECT(rc, KVSTORE_NOTFOUND, "kvstore_cf_get");
    t1 = kvstore_now_ms();
    if (rc == KVSTORE_OK) check_value("tracked", key, value, length);
    if (rc == KVSTORE_NOTFOUND && t->track_from[other] && t1 - t->track_from[other] <= SWEEP_AGE) {
        fail("%s was swept after %lld ms instead of %d", key, (long long)(t1 - t->track_from[other]), SWEEP_AGE);
    }
    kvstore_free(value);
}

static void sweep(struct thread *t)
{
    int64_t t0 = kvstore_now_ms();
    OK(kvstore_cf_sweep(t->h->cf[TRACK], SWEEP_AGE, NULL));
    for (int at = 0; at < TRACKED; at++) {
        char key[32];
        int n = sprintf(key, "s/%02d/%02d", t->writer, at), exists;
        if (!t->track_to[at] || t->track_to[at] >= t0 - SWEEP_AGE) continue;
        OK(kvstore_cf_exists(t->h->cf[TRACK], key, n, &exists));
        if (exists) {
            fail("%s, written at %lld, is still there after the sweep at %lld", key, (long long)t->track_to[at],
                 (long long)t0);
        }
    }
}

/* Makes and drops a family of its own, and looks into that of another writer. */
static void scratch_family(struct thread *t)
{
    char name[32], key[32];
    KVColumnFamily *cf;
    int rc, n, length, count = below(t, 30);
    int64_t rows;
    void *value;
    sprintf(name, "scratch %d", t->writer);
    DO(rc, kvstore_cf_drop(t->h->kv, name)); /* of a killed predecessor, or of the last time */
    EXPECT(rc, KVSTORE_NOTFOUND, "kvstore_cf_drop");
    OK(kvstore_cf_create(t->h->kv, name, &cf));
    for (int i = 0; i < count; i++) {
        n = sprintf(key, "t/%02d/%02d", t->writer, i);
        length = make_value(t, key, 1, 0, 0);
        OK(kvstore_cf_put_ttl(cf, key, n, t->value, length, i % 2 ? late(t) : 0));
    }
    OK(kvstore_cf_count(cf, &rows));
    if (rows != count) fail("family %s has %lld keys, not %d", name, (long long)rows, count);
    kvstore_cf_close(cf);
    if (below(t, 2)) OK(kvstore_cf_drop(t->h->kv, name));
    sprintf(name, "scratch %d", below(t, WRITERS));
    DO(rc, kvstore_cf_open(t->h->kv, name, &cf));
    EXPECT(rc, KVSTORE_NOTFOUND, "kvstore_cf_open");
    if (rc == KVSTORE_OK) {
        n = sprintf(key, "t/%s/%02d", name + 8, 1);
        DO(rc, kvstore_cf_get(cf, key, n, &value, &length));
        /* ERROR: it was dropped meanwhile. */
        if (rc != KVSTORE_OK && rc != KVSTORE_NOTFOUND && rc != KVSTORE_ERROR) unexpected(t, rc, "a get", __LINE__);
        kvstore_free(value);
        kvstore_cf_close(cf);
    }
}

static void open_handle(struct thread *t, struct handle *h, const char *path, const KVStoreConfig *config)
{
    int rc;
    DO(rc, kvstore_open_v2(path, &h->kv, config));
    if (rc != KVSTORE_OK) fail("worker %d cannot open %s: %d: %s", t->worker, path, rc, kvstore_errmsg(NULL));
    for (int i = 0; i < FAMILIES; i++) {
        DO(rc, kvstore_cf_open(h->kv, family_names[i], &h->cf[i]));
        if (rc != KVSTORE_OK) {
            fail("worker %d cannot open %s: %d: %s", t->worker, family_names[i], rc, kvstore_errmsg(h->kv));
        }
    }
}

static void close_handle(struct thread *t, struct handle *h)
{
    int rc;
    for (int i = 0; i < FAMILIES; i++) kvstore_cf_close(h->cf[i]);
    rc = kvstore_close(h->kv);
    if (rc != KVSTORE_OK) fail("worker %d cannot close: %d: %s", t->worker, rc, kvstore_errmsg(NULL));
}

static void check_integrity(KVStore *kv, const char *what)
{
    char *message = NULL;
    int rc = kvstore_integrity_check(kv, &message);
    if (rc != KVSTORE_OK) fail("integrity of %s: %d: %s; %s", what, rc, message ? message : "", kvstore_errmsg(kv));
}

static void backup(struct thread *t)
{
    struct handle copy = {0};
    char path[600], other[620];
    int64_t sum;
    snprintf(path, sizeof path, "%s-backup-%d", db_path, t->writer);
    unlink(path); /* of a killed predecessor */
    OK(kvstore_backup(t->h->kv, path, NULL, NULL));
    open_handle(t, &copy, path, NULL);
    check_integrity(copy.kv, "a backup");
    STRICTLY_OK(kvstore_begin(copy.kv, 0));
    sum = sum_accounts(t, &copy);
    if (sum != ACCOUNTS * MONEY) fail("in a backup the accounts have %lld", (long long)sum);
    STRICTLY_OK(kvstore_commit(copy.kv));
    close_handle(t, &copy);
    unlink(path);
    snprintf(other, sizeof other, "%s-wal", path);
    unlink(other);
    snprintf(other, sizeof other, "%s-shm", path);
    unlink(other);
}

static void checkpoint(struct thread *t, enum op op)
{
    int rc, log, done_;
    int mode = op == CHECKPOINT_TRUNCATE ? KVSTORE_CHECKPOINT_TRUNCATE
               : getenv("SOAK_FULL")     ? KVSTORE_CHECKPOINT_FULL
                                         : KVSTORE_CHECKPOINT_PASSIVE;
    if (atomic_load(&shared->no_checkpoints) && mode != KVSTORE_CHECKPOINT_FULL) return;
    rc = kvstore_checkpoint(t->h->kv, mode, &log, &done_);
    if (rc == KVSTORE_BUSY) {
        atomic_fetch_add_explicit(&shared->busy[t->worker], 1, memory_order_relaxed);
    } else if (rc != KVSTORE_OK) {
        unexpected(t, rc, "kvstore_checkpoint", __LINE__);
    }
}

static void work(struct thread *t, enum op op)
{
    int is_alone = op == TX_COMMIT || op == TX_ROLLBACK || op == TRANSFER || op == SNAPSHOT || op == BANK_SUM
                   || op == COUNT_LIVE;
    if (is_alone) {
        alone(t);
    } else {
        together(t);
    }
    switch (op) {
    case GET: {
        int index = below(t, ALL);
        read_key(t, "get", look(below(t, WRITERS), index), index < KEYS ? own_family(index) : (enum family)below(t, 2));
        break;
    }
    case READ_OWN: read_own(t, "read own", below(t, ALL)); break;
    case PUT: case PUT_TTL_SHORT: case PUT_TTL_LONG: case PUT_IF_ABSENT: put(t, op); break;
    case DELETE: delete(t); break;
    case DELETE_RANGE: delete_range(t); break;
    case EXPIRE: case PERSIST: expire(t, op); break;
    case CAS_OWN: cas_own(t); break;
    case CAS_SHARED: cas_shared(t); break;
    case INCREMENT: increment(t); break;
    case BATCH: case TX_COMMIT: case TX_ROLLBACK: several(t, op); break;
    case TRANSFER: transfer(t); break;
    case SNAPSHOT: snapshot(t); break;
    case BANK_SUM: bank_sum(t); break;
    case ITER_FULL: case ITER_REVERSE: case ITER_PREFIX: case ITER_RANGE: case ITER_EXPIRING: iterate(t, op); break;
    case COUNT_LIVE: count_live(t); break;
    case GET_MANY: get_many(t); break;
    case PURGE_STEP: OK(kvstore_purge_step(t->h->kv, 1 + below(t, 300), below(t, 20), NULL, NULL)); break;
    case PURGE_EXPIRED: OK(kvstore_cf_purge_expired(t->h->cf[below(t, 2)], NULL)); break;
    case TRACK_PUT: track_put(t); break;
    case SWEEP: sweep(t); break;
    case CHECKPOINT_PASSIVE: case CHECKPOINT_TRUNCATE: checkpoint(t, op); break;
    case FAMILY: scratch_family(t); break;
    case BACKUP: backup(t); break;
    case STATS: {
        KVStoreStats stats;
        int64_t next;
        int rc;
        OK(kvstore_stats(t->h->kv, &stats));
        DO(rc, kvstore_next_expiry(t->h->kv, &next));
        EXPECT(rc, KVSTORE_NOTFOUND, "kvstore_next_expiry");
        break;
    }
    case INTEGRITY: check_integrity(t->h->kv, "the store"); break;
    case REOPEN:
        if (!t->h->lock) {
            close_handle(t, t->h);
            open_handle(t, t->h, db_path, &t->config);
        }
        break;
    case OPS: break;
    }
    leave(t);
}

static void *run_thread(void *context)
{
    struct thread *t = context;
    struct handle own = {0};
    int total = 0, weights[OPS];
    const char *without = getenv("SOAK_WITHOUT");
    for (int op = 0; op < OPS; op++) {
        weights[op] = without && strstr(without, op_names[op]) ? 0 : all_weights[op];
        if (op == CHECKPOINT_PASSIVE && getenv("SOAK_FULL")) weights[op] *= 10;
        total += weights[op];
    }
    if (!t->h) {
        t->h = &own;
        open_handle(t, t->h, db_path, &t->config);
    }
    atomic_store(&shared->op_since[t->writer], (uint64_t)mono_ms());
    alone(t);
    resolve(t);
    leave(t);
    while (!atomic_load(&shared->stop) && !atomic_load(&shared->failed)) {
        int pick = below(t, total), op = 0;
        while ((pick -= weights[op]) >= 0) op++;
        atomic_store(&shared->op_now[t->writer], (uint64_t)op);
        atomic_store(&shared->op_since[t->writer], (uint64_t)mono_ms());
        work(t, (enum op)op);
        atomic_fetch_add_explicit(&shared->ops[t->worker][op], 1, memory_order_relaxed);
    }
    atomic_store(&shared->op_since[t->writer], 0);
    if (t->h == &own) close_handle(t, &own);
    return NULL;
}

static void attach(const char *path)
{
    int fd = open(path, O_RDWR);
    if (fd < 0) fail("cannot open %s: %s", path, strerror(errno));
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED) {
        shared = NULL;
        fail("cannot map %s: %s", path, strerror(errno));
    }
    close(fd);
}

static int run_worker(int worker, int generation)
{
    static struct thread threads[THREADS];
    static struct handle handle;
    static pthread_rwlock_t lock;
    pthread_rwlockattr_t attributes;
    pthread_t ids[THREADS];
    struct thread *t = threads;
    KVStoreConfig config = {0};
    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&lock, &attributes);
    /* Worker 0 is never killed; 1 has the cleaner; 2 keeps no snapshots and never waits; 3 waits long. */
    config.busyTimeout = worker == 0 ? 1000 : worker == 1 ? 5000 : worker == 2 ? 0 : 30000;
    if (worker == 1) config.mmapSize = -1;
    if (worker == 2 || getenv("SOAK_HOLD_NOTHING")) config.holdReads = -1;
    if (worker == 3) config.cacheSize = 300;
    for (int i = 0; i < THREADS; i++) {
        threads[i].worker = worker;
        threads[i].writer = worker * THREADS + i;
        threads[i].config = config;
        threads[i].random = hash(&(uint64_t[3]){shared->seed, (uint64_t)threads[i].writer, (uint64_t)generation}, 24) | 1;
        if (i < 2) threads[i].h = &handle;
    }
    open_handle(t, &handle, db_path, &config);
    handle.lock = &lock;
    if (worker == 1) OK(kvstore_cleaner_start(handle.kv, 20, 0));
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&ids[i], NULL, run_thread, &threads[i])) fail("no thread");
    }
    for (int i = 0; i < THREADS; i++) pthread_join(ids[i], NULL);
    close_handle(t, &handle);
    return 0;
}

/* ---- the parent --------------------------------------------------------------------------------------- */

struct sample {
    long anonymous_kb, fds;
};

static pid_t workers[WORKERS];
static int generations[WORKERS];
static char directory[512], shared_path[600], wal_path[600];

static void start_worker(int worker)
{
    char number[16], generation[16];
    pid_t pid;
    sprintf(number, "%d", worker);
    sprintf(generation, "%d", generations[worker]++);
    pid = fork();
    if (pid < 0) fail("fork: %s", strerror(errno));
    if (pid == 0) {
        execl("/proc/self/exe", "soak", "--worker", db_path, shared_path, number, generation, (char *)NULL);
        _exit(127);
    }
    workers[worker] = pid;
}

static struct sample take_sample(pid_t pid)
{
    struct sample sample = {-1, 0};
    char path[64], line[256];
    FILE *file;
    DIR *fds;
    sprintf(path, "/proc/%d/smaps_rollup", (int)pid);
    if ((file = fopen(path, "r"))) {
        while (fgets(line, sizeof line, file)) sscanf(line, "Anonymous: %ld", &sample.anonymous_kb);
        fclose(file);
    }
    sprintf(path, "/proc/%d/fd", (int)pid);
    if ((fds = opendir(path))) {
        while (readdir(fds)) sample.fds++;
        closedir(fds);
    }
    return sample;
}

static int compare_longs(const void *a, const void *b)
{
    return (*(const long *)a > *(const long *)b) - (*(const long *)a < *(const long *)b);
}

static long median(const struct sample *samples, int from, int to, int of_fds)
{
    long values[256];
    int count = 0;
    for (int i = from; i < to && count < 256; i++) values[count++] = of_fds ? samples[i].fds : samples[i].anonymous_kb;
    if (!count) return 0;
    qsort(values, (size_t)count, sizeof *values, compare_longs);
    return values[count / 2];
}

static long long file_size(const char *path)
{
    struct stat status;
    return stat(path, &status) ? 0 : (long long)status.st_size;
}

/* Everything the soak leaves, and the folder. */
static void clean_up(void)
{
    DIR *dir = opendir(directory);
    struct dirent *entry;
    char path[1024];
    while (dir && (entry = readdir(dir))) {
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (entry->d_name[0] != '.') unlink(path);
    }
    if (dir) closedir(dir);
    rmdir(directory);
}

static void make_store(struct thread *t)
{
    struct handle h = {0};
    KVColumnFamily *cf;
    t->h = &h;
    OK(kvstore_open_v2(db_path, &h.kv, NULL));
    for (int i = 1; i < FAMILIES; i++) {
        OK(kvstore_cf_create(h.kv, family_names[i], &cf));
        if (i == TRACK) OK(kvstore_cf_set_write_tracking(cf, 1));
        kvstore_cf_close(cf);
    }
    for (int i = 0; i < FAMILIES; i++) OK(kvstore_cf_open(h.kv, family_names[i], &h.cf[i]));
    for (int i = 0; i < ACCOUNTS; i++) {
        char key[32];
        int n = account(key, i), length = make_value(t, key, 0, 0, MONEY);
        OK(kvstore_cf_put(h.cf[i % 2], key, n, t->value, length));
    }
    for (int i = 0; i < SWAPS; i++) {
        char key[32];
        int n = sprintf(key, "x/%02d", i), length = make_value(t, key, 0, 0, 0);
        OK(kvstore_cf_put(h.cf[DEFAULT], key, n, t->value, length));
    }
    close_handle(t, &h);
}

/* All that is known about the store, when nobody else has it open. */
static void check_store(struct thread *t)
{
    struct handle h = {0};
    int64_t sum, rows, live;
    t->h = &h;
    open_handle(t, &h, db_path, NULL);
    check_integrity(h.kv, "the store at the end");
    for (int worker = 0; worker < WRITERS; worker++) {
        t->writer = worker;
        resolve(t); /* of workers that were killed and never came to it */
        for (int index = 0; index < ALL; index++) read_own(t, "at the end", index);
    }
    for (int i = 0; i < COUNTERS; i++) {
        char key[32], text[32] = "";
        int n = sprintf(key, "c/%02d", i), length = 0;
        uint64_t least = sum_of(shared->added, i), most = least + atomic_load(&shared->maybe_added[i]), is;
        int rc = kvstore_cf_get_into(h.cf[SECOND], key, n, text, sizeof text - 1, &length);
        EXPECT(rc, KVSTORE_NOTFOUND, "a counter");
        is = strtoull(text, NULL, 10);
        if (is < least || is > most) {
            fail("at the end %s is %llu; acknowledged %llu, with those under way when killed %llu", key,
                 (unsigned long long)is, (unsigned long long)least, (unsigned long long)most);
        }
    }
    for (int i = 0; i < SWAPS; i++) {
        char key[32];
        int n = sprintf(key, "x/%02d", i), length;
        uint64_t least = swaps_of(i), most = least + atomic_load(&shared->maybe_swapped[i]);
        void *value;
        struct header head;
        OK(kvstore_cf_get(h.cf[DEFAULT], key, n, &value, &length));
        head = check_value("at the end", key, value, length);
        if (head.number < (int64_t)least || head.number > (int64_t)most) {
            fail("at the end %s is %lld; acknowledged %llu, with those under way when killed %llu", key,
                 (long long)head.number, (unsigned long long)least, (unsigned long long)most);
        }
        kvstore_free(value);
    }
    OK(kvstore_begin(h.kv, 0));
    sum = sum_accounts(t, &h);
    OK(kvstore_commit(h.kv));
    if (sum != ACCOUNTS * MONEY) fail("at the end the accounts have %lld", (long long)sum);
    OK(kvstore_cf_sweep(h.cf[TRACK], 0, NULL));
    for (int64_t left = 1; left > 0;) { /* also what expires meanwhile */
        int64_t end = kvstore_now_ms();
        OK(kvstore_purge_step(h.kv, 0, 0, NULL, NULL));
        if (kvstore_next_expiry(h.kv, &left) != KVSTORE_OK || left > end) left = 0;
    }
    for (int i = 0; i < 2; i++) {
        OK(kvstore_cf_count(h.cf[i], &rows));
        OK(kvstore_cf_count_live(h.cf[i], &live));
        printf("soak: family \"%s\": %lld rows, %lld of them alive\n", family_names[i], (long long)rows, (long long)live);
        if (rows > 20000) fail("family %s has %lld rows: more than there are keys", family_names[i], (long long)rows);
    }
    check_integrity(h.kv, "the store after a purge");
    close_handle(t, &h);
    if (file_size(wal_path)) fail("the WAL is still there after the last close");
}

/* By SQLite itself, in another process. */
static void check_by_python(void)
{
    static const char program[] =
        "import sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1])\n"
        "result = db.execute('PRAGMA integrity_check').fetchall()\n"
        "print('soak: PRAGMA integrity_check by python3:', result[0][0])\n"
        "sys.exit(result != [('ok',)])\n";
    int status;
    pid_t pid;
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        execlp("python3", "python3", "-c", program, db_path, (char *)NULL);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status)) fail("PRAGMA integrity_check (or python3) failed: %d", status);
}

/* Tells how a worker has ended; fails unless it was as `killed` says. */
static void reap(int worker, int status, int killed)
{
    if (atomic_load(&shared->failed)) return;
    if (killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : WIFEXITED(status) && !WEXITSTATUS(status)) return;
    fail("worker %d ended by itself: %s %d", worker, WIFSIGNALED(status) ? "signal" : "code",
         WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static void summary(void)
{
    uint64_t all = 0;
    printf("soak: %-20s", "operations");
    for (int w = 0; w < WORKERS; w++) printf("  worker %d", w);
    printf("\n");
    for (int op = 0; op <= OPS + 1; op++) {
        printf("soak: %-20s", op == OPS ? "BUSY" : op > OPS ? "BUSY reads" : op_names[op]);
        for (int w = 0; w < WORKERS; w++) {
            uint64_t n = atomic_load(op == OPS ? &shared->busy[w] : op > OPS ? &shared->busy_reads[w] : &shared->ops[w][op]);
            if (op < OPS) all += n;
            printf(" %9llu", (unsigned long long)n);
        }
        printf("\n");
    }
    printf("soak: %llu operations, %llu values checked; of changes under way at a kill %llu had happened (or may "
           "have), %llu not\n",
           (unsigned long long)all, (unsigned long long)atomic_load(&shared->checks),
           (unsigned long long)atomic_load(&shared->unresolved), (unsigned long long)atomic_load(&shared->undone));
    printf("soak: %llu values were found with 0 ms left\n", (unsigned long long)atomic_load(&shared->nothing_left));
}

/* Kills what is left, and tells where to look. */
__attribute__((noreturn)) static void give_up(void)
{
    for (int w = 0; w < WORKERS; w++) {
        if (workers[w] > 0) {
            kill(workers[w], SIGKILL);
            waitpid(workers[w], NULL, 0);
        }
    }
    fflush(stdout);
    fprintf(stderr, "soak: FAILED: %s\nsoak: the store is left in %s\n", shared->failure, directory);
    exit(1);
}

static int run_parent(int seconds, uint64_t seed)
{
    const long long limit = 4ll * 4000 * (4096 + 24) + 32;
    static struct thread me;
    struct thread *t = &me;
    struct sample *samples = calloc((size_t)seconds + 10, sizeof *samples);
    const char *tmp = getenv("TMPDIR");
    int64_t start, next_kill, next_sample, next_line, now;
    long long wal, max_wal = 0, max_auto = 0, max_db = 0;
    long memory_early, memory_late, fds_early, fds_late;
    int kills = 0, count = 0, fd, failures = 0;
    int half = seconds < 60 ? seconds * 500 : 30000;

    snprintf(directory, sizeof directory, "%.400s/kvstore-soak-XXXXXX", tmp ? tmp : "/tmp");
    if (!samples || !mkdtemp(directory)) return perror(directory), 2;
    static char path[600];
    snprintf(path, sizeof path, "%s/soak.db", directory);
    snprintf(wal_path, sizeof wal_path, "%s/soak.db-wal", directory);
    snprintf(shared_path, sizeof shared_path, "%s/shared", directory);
    db_path = path;
    fd = open(shared_path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *shared)) return perror(shared_path), 2;
    close(fd);
    attach(shared_path);
    shared->base_ms = kvstore_now_ms() - 3600 * 1000;
    shared->seed = seed;
    for (int w = 0; w < WRITERS; w++) {
        for (int i = 0; i < ALL; i++) {
            shared->committed[w][i] = shared->intent[w][i] = pack(0, 1, 0);
        }
    }
    me.random = hash(&seed, 8) | 1;
    printf("soak: kvstore %s, engine %s; %d s, seed %llu, in %s\n", kvstore_version(), kvstore_engine(), seconds,
           (unsigned long long)seed, directory);
    fflush(stdout);
    make_store(t);
    for (int w = 0; w < WORKERS; w++) start_worker(w);

    start = next_sample = next_line = mono_ms();
    next_kill = start + 1000;
    while ((now = mono_ms()) < start + seconds * 1000ll && !atomic_load(&shared->failed)) {
        nap_us(50000);
        atomic_store(&shared->no_checkpoints, (now - start) / half % 2 == 0);
        wal = file_size(wal_path);
        if (wal > max_wal) max_wal = wal;
        if (wal > 4ll << 30) {
            snprintf(shared->failure, sizeof shared->failure, "the WAL had %lld bytes after %lld s; the limit is %lld", wal,
                     (long long)(now - start) / 1000, limit);
            atomic_store(&shared->failed, 1);
        }
        if (wal > max_auto && atomic_load(&shared->no_checkpoints)) max_auto = wal;
        for (int w = 0; w < WORKERS; w++) {
            int status;
            if (waitpid(workers[w], &status, WNOHANG) == workers[w]) {
                workers[w] = 0;
                if (!atomic_load(&shared->failed)) reap(w, status, 0);
                if (!atomic_load(&shared->failed)) fail("worker %d has ended", w);
            }
            for (int i = 0; i < THREADS && !atomic_load(&shared->failed); i++) {
                int64_t since = (int64_t)atomic_load(&shared->op_since[w * THREADS + i]);
                if (since && now - since > 2 * PATIENCE) {
                    int op = (int)atomic_load(&shared->op_now[w * THREADS + i]);
                    snprintf(shared->failure, sizeof shared->failure, "writer %d hangs in \"%s\" for %d s",
                             w * THREADS + i, op_names[op], 2 * PATIENCE / 1000);
                    atomic_store(&shared->failed, 1);
                }
            }
        }
        if (now >= next_sample && count < seconds + 9) {
            long long db = file_size(db_path);
            if (db > max_db) max_db = db;
            samples[count++] = take_sample(workers[0]);
            next_sample += 1000;
        }
        if (now >= next_line && count) {
            uint64_t ops = 0;
            for (int w = 0; w < WORKERS; w++) {
                for (int op = 0; op < OPS; op++) ops += atomic_load(&shared->ops[w][op]);
            }
            printf("soak: %5lld s: %llu operations, %d kills, WAL %lld (at most %lld), file %lld, worker 0: %ld KiB, "
                   "%ld files\n",
                   (long long)(now - start) / 1000, (unsigned long long)ops, kills, wal, max_wal, file_size(db_path),
                   samples[count - 1].anonymous_kb, samples[count - 1].fds);
            fflush(stdout);
            next_line += 30000;
        }
        if (now >= next_kill) {
            int w = 1 + below(t, WORKERS - 1), status;
            kill(workers[w], SIGKILL);
            waitpid(workers[w], &status, 0);
            workers[w] = 0;
            reap(w, status, 1);
            if (atomic_load(&shared->failed)) break;
            for (int i = 0; i < THREADS; i++) atomic_store(&shared->op_since[w * THREADS + i], 0);
            start_worker(w);
            kills++;
            next_kill = now + (seconds < 30 ? 500 + below(t, 1000) : 2000 + below(t, 3000));
        }
    }
    if (atomic_load(&shared->failed)) give_up();
    atomic_store(&shared->stop, 1);
    for (int w = 0; w < WORKERS; w++) {
        int status, waited = 0;
        while (waitpid(workers[w], &status, WNOHANG) == 0) {
            if (atomic_load(&shared->failed)) give_up();
            if (waited++ > 2 * PATIENCE / 20) {
                snprintf(shared->failure, sizeof shared->failure, "worker %d does not end", w);
                give_up();
            }
            nap_us(20000);
            wal = file_size(wal_path);
            if (wal > max_wal) max_wal = wal;
        }
        workers[w] = 0;
        if (atomic_load(&shared->failed)) give_up();
        reap(w, status, 0);
    }
    printf("soak: the workers have ended; WAL %lld, file %lld\n", file_size(wal_path), file_size(db_path));
    check_store(t);
    check_by_python();
    summary();

    memory_early = median(samples, count * 9 / 100, count * 11 / 100 + 1, 0);
    memory_late = median(samples, count * 96 / 100, count, 0);
    fds_early = median(samples, count * 5 / 100, count * 15 / 100 + 1, 1);
    fds_late = median(samples, count * 90 / 100, count, 1);
    printf("soak: %d kills, %d restarts\n", kills, kills);
    printf("soak: WAL at most %lld bytes (%.0f pages; %lld without explicit checkpoints), limit %lld; file at most %lld\n",
           max_wal, (double)max_wal / (4096 + 24), max_auto, limit, max_db);
    printf("soak: memory of worker 0: %ld KiB at 10 %% of the time, %ld KiB at the end; files %ld and %ld\n",
           memory_early, memory_late, fds_early, fds_late);
    if (max_wal > limit) {
        fprintf(stderr, "soak: FAILED: the WAL had %lld bytes, more than %lld\n", max_wal, limit);
        failures++;
    }
    /* In less than five minutes the caches are still being filled at 10 % of the time. */
    if (seconds >= 300 && memory_late > memory_early + (memory_early / 10 > 2048 ? memory_early / 10 : 2048)) {
        fprintf(stderr, "soak: FAILED: the memory of worker 0 grew from %ld to %ld KiB\n", memory_early, memory_late);
        failures++;
    }
    /* In a few seconds the first samples may come before its first operation. */
    if (seconds >= 60 && fds_late > fds_early + 4) {
        fprintf(stderr, "soak: FAILED: worker 0 had %ld open files, then %ld\n", fds_early, fds_late);
        failures++;
    }
    if (!kills) {
        fprintf(stderr, "soak: FAILED: nobody was killed\n");
        failures++;
    }
    free(samples);
    if (failures) return 1;
    clean_up();
    printf("soak: all is well\n");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 6 && !strcmp(argv[1], "--worker")) {
        db_path = argv[2];
        attach(argv[3]);
        return run_worker(atoi(argv[4]), atoi(argv[5]));
    }
    if (argc < 2 || argc > 3 || atoi(argv[1]) < 1) {
        fprintf(stderr, "usage: soak SECONDS [SEED]\n");
        return 2;
    }
    return run_parent(atoi(argv[1]), argc == 3 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL));
}

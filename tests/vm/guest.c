/* The only program of the virtual machine for power cuts. It acts as /init, as the verifier and as
 * the writer. tests/vm/run builds, boots and kills it; README.md describes the test.
 *
 * It waits for its settings, loads the kernel's modules, mounts the disk, opens the store without any help,
 * checks it, compares all of it with what operations 1 to N must have made, for an N that the host allows,
 * and goes on with operation N + 1, until the host kills the machine.
 *
 * Operation N is a pure function of the seed of the disk and N (and of the contents that operations 1 to
 * N - 1 made), time included: the store's clock is set to what operation N says. So the contents after N are
 * known without keeping anything but N.
 *
 * Reports to the host go to port 0xe9, QEMU's debug console: a byte is in the host's file before
 * the next instruction runs, while the serial console would lag. say() lists the reports.
 *
 * The settings come from QEMU's fw_cfg device, file opt/kvstore, as "NAME:NUMBER,..." (missing: 0). As long
 * as that says "wait", it does: the host takes a snapshot of the machine there, so that each boot begins with
 * a kernel that is up, has not yet seen the disk, and has new settings.
 *
 *   random     mixed into the kernel's random numbers, which the snapshot would make the same each time
 *   seed       of the operations
 *   low, high  the contents must be those after an N of this range
 *   sync, journal, page, wal, cache, mmap, hold   for KVStoreConfig
 *   two        1: every third operation goes through a second handle
 *   reopen     1: the verifier closes the store, and the writer opens it again
 *   only       1: verify, do not write
 *   early      1: say "ack" before the operation (to see the verifier find the loss)
 *   fault      1: the disk drops writes, 2: it fails them, 3: it fails them for a while
 *   after, for in ms: when the fault begins, counted from the first ack, and how long fault 3 lasts */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/dm-ioctl.h>
#include <linux/fs.h>
#include <linux/random.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "kvstore.h"

#define STORE "/mnt/store.db"

/* ---- The console ------------------------------------------------------------------------------------ */

static pthread_mutex_t saying = PTHREAD_MUTEX_INITIALIZER;

/* One line to the host:
 *   ready         waiting for settings
 *   open          about to open the store
 *   verified N    the contents are those after operation N
 *   begin N       about to write, the first operation being N
 *   ack N         operation N has returned
 *   durable N     so has a call that makes all operations up to N durable, whatever the sync level
 *   error N       operation N has failed, and will be tried again
 *   fault         writes to the disk will be lost from now on
 *   healed        and now no longer
 *   FAIL ...      the store is not what it must be; the machine stops */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    char line[600];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';
    pthread_mutex_lock(&saying);
    outsb(0xe9, line, (size_t)length);
    pthread_mutex_unlock(&saying);
}

static void stop(void)
{
    reboot(RB_POWER_OFF);
    for (;;)
        pause();
}

#define FAIL(...)                                                                                        \
    do {                                                                                                 \
        say("FAIL " __VA_ARGS__);                                                                        \
        stop();                                                                                          \
    } while (0)

/* Asserts something about the machine itself, not about the store. */
#define NEED(condition)                                                                                  \
    do {                                                                                                 \
        if (!(condition))                                                                                \
            FAIL("%s:%d: %s: %s", __FILE__, __LINE__, #condition, strerror(errno));                      \
    } while (0)

/* ---- Settings --------------------------------------------------------------------------------------- */

static char settings[1024];

static int64_t setting(const char *name)
{
    size_t length = strlen(name);
    for (const char *at = settings; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && at[length] == ':')
            return strtoll(at + length + 1, NULL, 10);
    }
    return 0;
}

/* QEMU's docs/specs/fw_cfg: a key is selected at one port, its bytes are read at the next. */
enum { FW_CFG = 0x510, FW_CFG_DIRECTORY = 0x19 };

static uint32_t fw_cfg_number(int bytes)
{
    uint32_t number = 0;
    while (bytes-- > 0)
        number = number << 8 | inb(FW_CFG + 1);
    return number;
}

static void read_settings(void)
{
    outw(FW_CFG_DIRECTORY, FW_CFG);
    for (uint32_t files = fw_cfg_number(4); files > 0; files--) {
        char name[56];
        uint32_t size = fw_cfg_number(4), key = fw_cfg_number(2);
        fw_cfg_number(2);
        insb(FW_CFG + 1, name, sizeof name);
        if (strcmp(name, "opt/kvstore") != 0)
            continue;
        outw((unsigned short)key, FW_CFG);
        memset(settings, 0, sizeof settings);
        insb(FW_CFG + 1, settings, size < sizeof settings ? size : sizeof settings - 1);
        return;
    }
}

static void sleep_ms(int64_t ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* ---- The model -------------------------------------------------------------------------------------- */

enum { DEFAULT, SECOND, THIRD, FAMILIES };
enum {
    SLOTS = 300,   /* keys of a family */
    COUNTER = 299, /* of DEFAULT: a number, not a value of put_value() */
    MOST_CHANGES = 12,
    PURGE_STEP = 256, /* what kvstore_purge_step and the like remove in one transaction, at most */
};
static const char *const family_names[FAMILIES] = {"default", "second", "third"};

/* Between one operation and the next, by the store's clock. */
#define TICK_MS 100000
static int64_t time_of(int64_t n)
{
    return 1000000000000 + n * TICK_MS;
}

/* A row. All zeros: there is none. */
struct row {
    int64_t n;         /* the operation that wrote the value; of COUNTER: the number */
    int64_t expire_ms; /* 0: never */
    int64_t written_ms;
    int size;
};

struct contents {
    struct row rows[FAMILIES][SLOTS];
    int exists[FAMILIES];
    int tracked; /* write tracking of SECOND */
};

static struct contents model;

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

struct random {
    uint64_t state;
};

static int below(struct random *random, int bound)
{
    random->state = mix(random->state);
    return (int)(random->state % (uint64_t)bound);
}

static int make_key(int family, int slot, char key[700])
{
    int length = sprintf(key, "%c/%04d", family_names[family][0], slot);
    if (slot % 13 == 0) { /* a key that is too long to be in line with anything */
        memset(key + length, 'x', 600);
        length += 600;
    }
    return length;
}

/* A slot of the key, or -1. */
static int slot_of(int family, const char *key, int length)
{
    char expected[700];
    for (int slot = 0; slot < SLOTS; slot++)
        if (make_key(family, slot, expected) == length && memcmp(expected, key, (size_t)length) == 0)
            return slot;
    return -1;
}

enum { HEADER = 8 };

/* The value that operation n gives a slot: n itself, then bytes that depend on all of these. */
static void make_value(int family, int slot, int64_t n, int size, char *value)
{
    uint64_t state = mix((uint64_t)n * 1000003u + (uint64_t)(family * SLOTS + slot));
    memcpy(value, &n, HEADER);
    for (int at = HEADER; at < size; at += 8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(value + at, &state, (size_t)(size - at < 8 ? size - at : 8));
    }
}

enum { BIGGEST = 160000 };

static int random_size(struct random *random)
{
    switch (below(random, 20)) {
    case 0:
        return 30000 + below(random, below(random, 6) == 0 ? BIGGEST - 30000 : 5000);
    case 1:
    case 2:
        return 3000 + below(random, 17000);
    case 3:
    case 4:
    case 5:
    case 6:
    case 7:
        return 200 + below(random, 2800);
    default:
        return HEADER + below(random, 200);
    }
}

/* ---- Operations ------------------------------------------------------------------------------------- */

enum kind {
    CREATE_FAMILY,
    TRACK,
    ONE,         /* one change, in a transaction of the call's own */
    TRANSACTION, /* several, over the families */
    BATCH,
    ROLLBACK,
    INCREMENT,
    DELETE_RANGE,
    PURGE_STEPS,
    PURGE_FAMILY,
    SWEEP,
    DROP_FAMILY,
    CLEAR_FAMILY,
    CHECKPOINT,
    SYNC,
    VACUUM,
};

enum change_kind { PUT, DELETE, EXPIRE };

struct change {
    enum change_kind kind;
    int family, slot, size;
    int64_t expire_ms; /* 0: never */
};

struct operation {
    int64_t n;
    enum kind kind;
    int family;
    int first, last; /* of a range of slots; or `first` is a count or a mode */
    int64_t expire_ms;
    int changes;
    struct change change[MOST_CHANGES];
};

static int is_live(const struct row *row, int64_t now_ms)
{
    return row->size != 0 && (row->expire_ms == 0 || row->expire_ms > now_ms);
}

/* Different for all rows there are at a time, so that an order by expiry is one order only. */
static int64_t random_expiry(struct random *random, int64_t n, int i)
{
    int ticks = below(random, 8) == 0 ? 100000000 : below(random, 150);
    return time_of(n) + (int64_t)ticks * TICK_MS + n % 1000 * 16 + i + 1;
}

static struct change random_change(struct random *random, int64_t n, int i)
{
    struct change change = {.kind = PUT};
    do
        change.family = below(random, 8) == 0 ? THIRD : below(random, 2) ? SECOND : DEFAULT;
    while (!model.exists[change.family]);
    /* The last keys of DEFAULT are the counter's; some keys are overwritten again and again. */
    change.slot = below(random, below(random, 3) == 0 ? 8 : SLOTS - 1);
    change.size = random_size(random);
    int choice = below(random, 100);
    if (choice < 35)
        change.expire_ms = random_expiry(random, n, i);
    const struct row *row = &model.rows[change.family][change.slot];
    if (choice >= 65 && is_live(row, time_of(n))) {
        change.kind = choice < 82 ? DELETE : EXPIRE;
        change.expire_ms = choice < 92 ? random_expiry(random, n, i) : 0;
    }
    return change;
}

static int count_expired(int family, int64_t now_ms)
{
    int count = 0;
    for (int slot = 0; slot < SLOTS; slot++)
        count += model.rows[family][slot].size != 0 && !is_live(&model.rows[family][slot], now_ms);
    return count;
}

/* Operation n, the model being the contents after n - 1. */
static struct operation make_operation(int64_t n)
{
    struct random random = {mix((uint64_t)setting("seed") * 7919u + (uint64_t)n)};
    struct operation op = {.n = n, .kind = ONE, .changes = 1};
    if (n == 1 || n == 2) {
        op.kind = n == 1 ? CREATE_FAMILY : TRACK;
        op.family = SECOND;
        return op;
    }
    int choice = below(&random, 1000);
    if (choice < 480) {
        op.change[0] = random_change(&random, n, 0);
    } else if (choice < 760) {
        op.kind = choice < 650 ? TRANSACTION : choice < 735 ? BATCH : ROLLBACK;
        op.changes = 2 + below(&random, MOST_CHANGES - 1);
        for (int i = 0; i < op.changes; i++) {
            /* Each key once: a change is chosen by what the model has before the operation. */
            int again;
            do {
                op.change[i] = random_change(&random, n, i);
                again = op.kind == BATCH && op.change[i].kind == EXPIRE;
                for (int j = 0; j < i; j++)
                    again |= op.change[j].family == op.change[i].family && op.change[j].slot == op.change[i].slot;
            } while (again);
        }
    } else if (choice < 800) {
        op.kind = INCREMENT;
        op.expire_ms = below(&random, 2) ? random_expiry(&random, n, 0) : 0;
    } else if (choice < 815) {
        op.kind = DELETE_RANGE;
        op.family = below(&random, 2) ? SECOND : DEFAULT;
        op.first = below(&random, COUNTER - 30);
        op.last = op.first + below(&random, 30);
    } else if (choice < 860) {
        op.kind = PURGE_STEPS;
        op.first = 1 + below(&random, below(&random, 2) ? 10 : PURGE_STEP);
    } else if (choice < 870) {
        op.kind = PURGE_FAMILY;
        op.family = below(&random, 2) ? SECOND : DEFAULT;
        /* More would take more than one transaction, each of which may be the last. */
        if (count_expired(op.family, time_of(n)) > PURGE_STEP)
            op.kind = SYNC;
    } else if (choice < 875) {
        op.kind = SWEEP;
        op.family = SECOND;
        op.first = 200 + below(&random, 400); /* ticks */
        int old = 0;
        for (int slot = 0; slot < SLOTS; slot++)
            old += model.rows[SECOND][slot].size && model.rows[SECOND][slot].written_ms < time_of(n - op.first);
        if (old > PURGE_STEP)
            op.kind = SYNC;
    } else if (choice < 890) {
        op.family = THIRD;
        op.kind = !model.exists[THIRD] ? CREATE_FAMILY : below(&random, 3) ? DROP_FAMILY : CLEAR_FAMILY;
    } else if (choice < 930) {
        op.kind = CHECKPOINT;
        op.first = below(&random, KVSTORE_CHECKPOINT_TRUNCATE + 1);
    } else if (choice < 970) {
        op.kind = SYNC;
    } else {
        op.kind = VACUUM;
        op.first = below(&random, 3) == 0 ? 0 : 1 + below(&random, 50);
    }
    return op;
}

static void purge_earliest(int64_t now_ms)
{
    struct row *earliest = NULL;
    for (int family = 0; family < FAMILIES; family++) {
        for (int slot = 0; slot < SLOTS; slot++) {
            struct row *row = &model.rows[family][slot];
            if (row->size && !is_live(row, now_ms) && (!earliest || row->expire_ms < earliest->expire_ms))
                earliest = row;
        }
    }
    if (earliest)
        memset(earliest, 0, sizeof *earliest);
}

/* Makes the model what it is after the operation. */
static void apply(const struct operation *op)
{
    int64_t now_ms = time_of(op->n);
    struct row *rows = model.rows[op->family];
    switch (op->kind) {
    case CREATE_FAMILY:
        model.exists[op->family] = 1;
        break;
    case TRACK:
        model.tracked = 1;
        break;
    case ONE:
    case TRANSACTION:
    case BATCH:
        for (int i = 0; i < op->changes; i++) {
            const struct change *change = &op->change[i];
            struct row *row = &model.rows[change->family][change->slot];
            int64_t written_ms = change->family == SECOND ? now_ms : 0;
            if (change->kind == PUT)
                *row = (struct row){op->n, change->expire_ms, written_ms, change->size};
            else if (change->kind == DELETE)
                memset(row, 0, sizeof *row);
            else
                row->expire_ms = change->expire_ms;
        }
        break;
    case INCREMENT:
        rows += COUNTER;
        if (!is_live(rows, now_ms))
            *rows = (struct row){0, op->expire_ms, 0, 1};
        rows->n += op->n;
        break;
    case DELETE_RANGE:
        for (int slot = op->first; slot < op->last; slot++)
            memset(&rows[slot], 0, sizeof *rows);
        break;
    case PURGE_STEPS:
        for (int i = 0; i < op->first; i++)
            purge_earliest(now_ms);
        break;
    case PURGE_FAMILY:
        for (int slot = 0; slot < SLOTS; slot++)
            if (!is_live(&rows[slot], now_ms))
                memset(&rows[slot], 0, sizeof *rows);
        break;
    case SWEEP:
        for (int slot = 0; slot < SLOTS; slot++)
            if (rows[slot].written_ms < time_of(op->n - op->first))
                memset(&rows[slot], 0, sizeof *rows);
        break;
    case DROP_FAMILY:
        model.exists[op->family] = 0;
        __attribute__((fallthrough));
    case CLEAR_FAMILY:
        memset(rows, 0, sizeof model.rows[0]);
        break;
    case ROLLBACK:
    case CHECKPOINT:
    case SYNC:
    case VACUUM:
        break;
    }
}

/* ---- The store -------------------------------------------------------------------------------------- */

static _Atomic int64_t now_ms;

static int64_t clock_ms(void *context)
{
    (void)context;
    return now_ms;
}

struct handle {
    KVStore *kv;
    KVColumnFamily *cf[FAMILIES]; /* NULL: not there, or not opened yet */
};

static struct handle handles[2];
static char scratch[BIGGEST];

static KVStore *open_store(void)
{
    KVStoreConfig config = {
        .journalMode = (int)setting("journal"),
        .syncLevel = (int)setting("sync"),
        .pageSize = (int)setting("page"),
        .walSizeLimit = (int)setting("wal"),
        .cacheSize = (int)setting("cache"),
        .mmapSize = setting("mmap"),
        .holdReads = (int)setting("hold"),
        .busyTimeout = 10000,
    };
    KVStore *kv;
    int code = kvstore_open_v2(STORE, &kv, &config);
    if (code != KVSTORE_OK)
        FAIL("open gave %d: %s", code, kvstore_errmsg(NULL));
    code = kvstore_set_clock(kv, clock_ms, NULL);
    if (code != KVSTORE_OK)
        FAIL("set_clock gave %d", code);
    return kv;
}

static void close_families(struct handle *handle)
{
    for (int family = 0; family < FAMILIES; family++) {
        kvstore_cf_close(handle->cf[family]);
        handle->cf[family] = NULL;
    }
}

static int open_family(struct handle *handle, int family)
{
    if (handle->cf[family])
        return KVSTORE_OK;
    return kvstore_cf_open(handle->kv, family_names[family], &handle->cf[family]);
}

static int make_change(struct handle *handle, KVBatch *batch, int64_t n, const struct change *change)
{
    char key[700];
    int length = make_key(change->family, change->slot, key);
    int code = open_family(handle, change->family);
    if (code != KVSTORE_OK)
        return code;
    KVColumnFamily *cf = handle->cf[change->family];
    make_value(change->family, change->slot, n, change->size, scratch);
    switch (change->kind) {
    case PUT:
        if (batch)
            return kvstore_batch_put(batch, cf, key, length, scratch, change->size, change->expire_ms);
        if (change->expire_ms == 0)
            return kvstore_cf_put(cf, key, length, scratch, change->size);
        return kvstore_cf_put_ttl(cf, key, length, scratch, change->size, change->expire_ms);
    case DELETE:
        return batch ? kvstore_batch_delete(batch, cf, key, length) : kvstore_cf_delete(cf, key, length);
    default:
        return kvstore_cf_expire(cf, key, length, change->expire_ms, 0, NULL);
    }
}

static int make_changes(struct handle *handle, const struct operation *op)
{
    KVBatch *batch = NULL;
    int code = op->kind == BATCH ? kvstore_batch_new(handle->kv, &batch) : kvstore_begin(handle->kv, 1);
    if (code != KVSTORE_OK)
        return code;
    for (int i = 0; i < op->changes && code == KVSTORE_OK; i++)
        code = make_change(handle, batch, op->n, &op->change[i]);
    if (op->kind == BATCH) {
        if (code == KVSTORE_OK)
            code = kvstore_batch_commit(batch);
        kvstore_batch_free(batch);
        return code;
    }
    if (code == KVSTORE_OK && op->kind == TRANSACTION)
        code = kvstore_commit(handle->kv);
    if (code != KVSTORE_OK || op->kind == ROLLBACK) {
        int rolled_back = kvstore_rollback(handle->kv);
        if (code == KVSTORE_OK)
            code = rolled_back;
    }
    return code;
}

/* Does the operation; its code. `*durable`: it was a call after which all operations are. */
static int perform(const struct operation *op, int *durable)
{
    struct handle *handle = &handles[handles[1].kv && op->n % 3 == 0];
    char key[700], end[700];
    int code, length, log, done;
    *durable = 0;
    now_ms = time_of(op->n);
    switch (op->kind) {
    case CREATE_FAMILY:
        return kvstore_cf_create(handle->kv, family_names[op->family], &handle->cf[op->family]);
    case ONE:
        return make_change(handle, NULL, op->n, &op->change[0]);
    case TRANSACTION:
    case BATCH:
    case ROLLBACK:
        return make_changes(handle, op);
    case PURGE_STEPS:
        return kvstore_purge_step(handle->kv, op->first, 0, NULL, NULL);
    case DROP_FAMILY:
        close_families(&handles[0]);
        close_families(&handles[1]);
        return kvstore_cf_drop(handle->kv, family_names[op->family]);
    case CHECKPOINT:
        code = kvstore_checkpoint(handle->kv, op->first, &log, &done);
        *durable = code == KVSTORE_OK && log == done;
        return code;
    case SYNC:
        code = kvstore_sync(handle->kv);
        *durable = code == KVSTORE_OK;
        return code;
    case VACUUM:
        return kvstore_incremental_vacuum(handle->kv, op->first);
    default:
        break;
    }
    code = open_family(handle, op->family);
    if (code != KVSTORE_OK)
        return code;
    KVColumnFamily *cf = handle->cf[op->family];
    switch (op->kind) {
    case TRACK:
        return kvstore_cf_set_write_tracking(cf, 1);
    case INCREMENT:
        length = make_key(DEFAULT, COUNTER, key);
        return kvstore_cf_increment(cf, key, length, op->n, op->expire_ms, NULL);
    case DELETE_RANGE:
        length = make_key(op->family, op->first, key);
        return kvstore_cf_delete_range(cf, key, length, end, make_key(op->family, op->last, end), NULL);
    case PURGE_FAMILY:
        return kvstore_cf_purge_expired(cf, NULL);
    case SWEEP:
        return kvstore_cf_sweep(cf, (int64_t)op->first * TICK_MS, NULL);
    default:
        return kvstore_cf_clear(cf);
    }
}

/* ---- The verifier ----------------------------------------------------------------------------------- */

static struct contents found;
static char found_text[300]; /* of the last thing that was not as it must be */

__attribute__((format(printf, 1, 2))) static int wrong(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(found_text, sizeof found_text, format, arguments);
    va_end(arguments);
    return KVSTORE_CORRUPT;
}

static int read_row(int family, KVColumnFamily *cf, KVIterator *it)
{
    void *key, *value;
    int key_length, size, code;
    int64_t expire_ms;
    if ((code = kvstore_iterator_key(it, &key, &key_length)) != KVSTORE_OK ||
        (code = kvstore_iterator_value(it, &value, &size)) != KVSTORE_OK ||
        (code = kvstore_iterator_expire_ms(it, &expire_ms)) != KVSTORE_OK)
        return code;
    int slot = slot_of(family, key, key_length);
    if (slot < 0)
        return wrong("family %s has a key that was never written", family_names[family]);
    struct row *row = &found.rows[family][slot];
    row->size = size;
    row->expire_ms = expire_ms == KVSTORE_NO_TTL ? 0 : expire_ms;
    if (family == DEFAULT && slot == COUNTER) {
        char text[24] = "";
        memcpy(text, value, (size_t)(size < 23 ? size : 23));
        row->n = strtoll(text, NULL, 10);
        row->size = 1;
        return KVSTORE_OK;
    }
    if (size < HEADER || size > BIGGEST)
        return wrong("the value of %s/%d has %d bytes", family_names[family], slot, size);
    memcpy(&row->n, value, HEADER);
    make_value(family, slot, row->n, size, scratch);
    if (memcmp(value, scratch, (size_t)size) != 0)
        return wrong("the value of %s/%d is half one and half another", family_names[family], slot);
    if (family == SECOND && found.tracked) {
        code = kvstore_cf_write_time(cf, key, key_length, &row->written_ms);
        if (code != KVSTORE_OK)
            return wrong("no write time for %s/%d: %d", family_names[family], slot, code);
    }
    return KVSTORE_OK;
}

static int read_family(struct handle *handle, int family)
{
    KVIterator *it;
    int64_t count, rows = 0;
    int code = open_family(handle, family);
    if (code == KVSTORE_NOTFOUND)
        return KVSTORE_OK;
    if (code != KVSTORE_OK)
        return code;
    KVColumnFamily *cf = handle->cf[family];
    found.exists[family] = 1;
    if (family == SECOND && (code = kvstore_cf_get_write_tracking(cf, &found.tracked)) != KVSTORE_OK)
        return code;
    if ((code = kvstore_cf_iterator_create(cf, &it)) != KVSTORE_OK)
        return code;
    for (code = kvstore_iterator_first(it); code == KVSTORE_OK && !kvstore_iterator_eof(it);
         code = kvstore_iterator_next(it), rows++)
        if ((code = read_row(family, cf, it)) != KVSTORE_OK)
            break;
    kvstore_iterator_close(it);
    if (code == KVSTORE_OK)
        code = kvstore_cf_count(cf, &count);
    if (code == KVSTORE_OK && count != rows)
        return wrong("family %s has %" PRId64 " rows, and shows %" PRId64, family_names[family], count, rows);
    return code;
}

/* Reads everything, what has expired included, with a clock at which nothing has. */
static int read_everything(struct handle *handle)
{
    int code = KVSTORE_OK;
    memset(&found, 0, sizeof found);
    snprintf(found_text, sizeof found_text, "reading failed");
    kvstore_set_clock(handle->kv, clock_ms, NULL); /* so that time may go back */
    now_ms = 1;
    for (int family = 0; family < FAMILIES && code == KVSTORE_OK; family++)
        code = read_family(handle, family);
    kvstore_set_clock(handle->kv, clock_ms, NULL);
    return code;
}

/* Returns the number of rows that differ from the model. `first` (may be NULL) gets a
 * description of the first one. */
static int differences(char *first, size_t capacity)
{
    int count = 0;
    for (int family = 0; family < FAMILIES; family++) {
        if (found.exists[family] != model.exists[family] || found.tracked != model.tracked) {
            if (count++ == 0 && first)
                snprintf(first, capacity, "family %s exists: %d, not %d; tracking: %d, not %d",
                         family_names[family], found.exists[family], model.exists[family], found.tracked,
                         model.tracked);
        }
        for (int slot = 0; slot < SLOTS; slot++) {
            const struct row *is = &found.rows[family][slot], *must = &model.rows[family][slot];
            if (is->n == must->n && is->size == must->size && is->expire_ms == must->expire_ms &&
                is->written_ms == must->written_ms)
                continue;
            if (count++ == 0 && first)
                snprintf(first, capacity,
                         "%s/%d is of operation %" PRId64 " (%d bytes, expires %" PRId64 ", written %" PRId64
                         "), not of %" PRId64 " (%d, %" PRId64 ", %" PRId64 ")",
                         family_names[family], slot, is->n, is->size, is->expire_ms, is->written_ms, must->n,
                         must->size, must->expire_ms, must->written_ms);
        }
    }
    return count;
}

/* Sets the model to the last N in the range that matches what was found, and returns N. */
static int64_t find_state(int64_t low, int64_t high)
{
    static struct contents fitting;
    int64_t fits = -1, nearest = 0, nearest_below = 0;
    int least = INT32_MAX;
    char first[300] = "";
    memset(&model, 0, sizeof model);
    model.exists[DEFAULT] = 1;
    for (int64_t n = 0; n <= high; n++) {
        if (n > 0) {
            struct operation op = make_operation(n);
            apply(&op);
        }
        int count = differences(NULL, 0);
        if (count == 0 && n < low)
            nearest_below = n;
        if (n < low)
            continue;
        if (count < least) {
            least = count;
            nearest = n;
            differences(first, sizeof first);
        }
        if (count == 0) {
            fits = n;
            fitting = model;
        }
    }
    if (fits < 0 && nearest_below)
        FAIL("operations are lost: the contents are those after %" PRId64 ", and %" PRId64
             " to %" PRId64 " are allowed",
             nearest_below, low, high);
    if (fits < 0)
        FAIL("the contents are those after no operation from %" PRId64 " to %" PRId64
             "; nearest is %" PRId64 " with %d differences: %s",
             low, high, nearest, least, first);
    model = fitting;
    return fits;
}

static int64_t verify(struct handle *handle)
{
    char *message;
    say("open");
    handle->kv = open_store();
    int code = kvstore_integrity_check(handle->kv, &message);
    if (code != KVSTORE_OK)
        FAIL("integrity_check gave %d: %s", code, message ? message : kvstore_errmsg(handle->kv));
    code = read_everything(handle);
    if (code != KVSTORE_OK)
        FAIL("%d: %s (%s)", code, found_text, kvstore_errmsg(handle->kv));
    int64_t n = find_state(setting("low"), setting("high"));
    say("verified %" PRId64, n);
    return n;
}

/* ---- The writer ------------------------------------------------------------------------------------- */

static atomic_int faulty; /* a fault has begun */

/* After a failed call: the code must be one that a failing disk can cause, and nothing may have
 * changed. */
static void look_at_failure(const struct operation *op, int code, struct handle *handle)
{
    say("error %" PRId64 " kind %d gave %d: %s", op->n, op->kind, code, kvstore_errmsg(handle->kv));
    if (!faulty || (code != KVSTORE_IOERR && code != KVSTORE_FULL && code != KVSTORE_READONLY &&
                    code != KVSTORE_CANTOPEN))
        FAIL("operation %" PRId64 " kind %d gave %d: %s", op->n, op->kind, code, kvstore_errmsg(handle->kv));
    code = read_everything(handle);
    if (code == KVSTORE_CORRUPT)
        FAIL("after the failure of operation %" PRId64 ": %s (%s)", op->n, found_text, kvstore_errmsg(handle->kv));
    char first[300] = "";
    if (code == KVSTORE_OK && differences(first, sizeof first) != 0)
        FAIL("the failed operation %" PRId64 " kind %d has changed something: %s", op->n, op->kind, first);
    if (code != KVSTORE_OK)
        say("unreadable %d", code);
}

static void *fault_thread(void *);

static void write_for_ever(int64_t n)
{
    pthread_t thread;
    int early = setting("early") != 0;
    say("begin %" PRId64, n);
    for (;; n++) {
        struct operation op = make_operation(n);
        int durable;
        if (early)
            say("ack %" PRId64, n);
        for (;;) {
            struct handle *handle = &handles[handles[1].kv && n % 3 == 0];
            int code = perform(&op, &durable);
            if (code == KVSTORE_OK)
                break;
            look_at_failure(&op, code, handle);
            sleep_ms(100);
        }
        apply(&op);
        if (!early)
            say("ack %" PRId64, n);
        if (durable)
            say("durable %" PRId64, n);
        /* A cut during a pause detects operations that become durable only through a later
         * operation. */
        if (mix((uint64_t)n) % 10 == 0)
            sleep_ms(150);
        static int started;
        if (!started++ && setting("fault"))
            NEED(pthread_create(&thread, NULL, fault_thread, NULL) == 0);
    }
}

/* ---- The disk --------------------------------------------------------------------------------------- */

static uint64_t sectors;

static void device_mapper(unsigned long request, uint32_t flags, const char *type, const char *table)
{
    struct {
        struct dm_ioctl header;
        struct dm_target_spec target;
        char table[200];
    } command = {.header = {.version = {DM_VERSION_MAJOR, 0, 0},
                            .data_size = sizeof command,
                            .data_start = sizeof command.header,
                            .target_count = type != NULL,
                            .flags = flags,
                            .name = "disk"},
                 .target = {.length = sectors}};
    if (type)
        snprintf(command.target.target_type, sizeof command.target.target_type, "%s", type);
    if (table)
        snprintf(command.table, sizeof command.table, "%s", table);
    int fd = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);
    NEED(fd >= 0);
    NEED(ioctl(fd, request, &command) == 0);
    close(fd);
}

/* Replaces the disk's table without writing anything first, because the file system must not be
 * flushed. */
static void replace_table(const char *type, const char *table)
{
    device_mapper(DM_TABLE_LOAD, 0, type, table);
    device_mapper(DM_DEV_SUSPEND, DM_SUSPEND_FLAG | DM_SKIP_LOCKFS_FLAG | DM_NOFLUSH_FLAG, NULL, NULL);
    device_mapper(DM_DEV_SUSPEND, 0, NULL, NULL);
}

static void *fault_thread(void *unused)
{
    int fault = (int)setting("fault");
    sleep_ms(setting("after"));
    faulty = 1;
    say("fault");
    /* Always down: 0 seconds up, an hour down. */
    replace_table("flakey", fault == 1 ? "/dev/vda 0 0 3600 1 drop_writes" : "/dev/vda 0 0 3600 1 error_writes");
    if (fault == 3) {
        sleep_ms(setting("for"));
        replace_table("linear", "/dev/vda 0");
        say("healed");
    }
    return unused;
}

static void load_modules(void)
{
    char name[300];
    FILE *list = fopen("/modules", "r");
    NEED(list);
    while (fscanf(list, "%299s", name) == 1) {
        int fd = open(name, O_RDONLY | O_CLOEXEC);
        NEED(fd >= 0);
        NEED(syscall(SYS_finit_module, fd, "", 0) == 0 || errno == EEXIST);
        close(fd);
    }
    fclose(list);
}

static void mount_disk(void)
{
    const char *device = "/dev/vda";
    int fd = -1;
    for (int i = 0; i < 500 && (fd = open(device, O_RDONLY | O_CLOEXEC)) < 0; i++)
        sleep_ms(20);
    NEED(fd >= 0);
    uint64_t bytes;
    NEED(ioctl(fd, BLKGETSIZE64, &bytes) == 0);
    close(fd);
    sectors = bytes / 512;
    if (setting("fault")) {
        device_mapper(DM_DEV_CREATE, 0, NULL, NULL);
        device_mapper(DM_TABLE_LOAD, 0, "linear", "/dev/vda 0");
        device_mapper(DM_DEV_SUSPEND, 0, NULL, NULL);
        device = "/dev/dm-0";
        for (int i = 0; i < 500 && access(device, R_OK) != 0; i++)
            sleep_ms(20);
    }
    NEED(mount(device, "/mnt", "ext4", MS_NOATIME, "") == 0);
}

int main(void)
{
    if (ioperm(0xe9, 1, 1) != 0 || ioperm(FW_CFG, 2, 1) != 0)
        return 1;
    NEED(mount("proc", "/proc", "proc", 0, "") == 0);
    NEED(mount("sysfs", "/sys", "sysfs", 0, "") == 0);
    NEED(mount("devtmpfs", "/dev", "devtmpfs", 0, "") == 0 || errno == EBUSY);
    say("ready");
    while (read_settings(), strcmp(settings, "wait") == 0)
        sleep_ms(20);
    int64_t random = setting("random");
    int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);
    NEED(fd >= 0 && write(fd, &random, sizeof random) > 0 && ioctl(fd, RNDRESEEDCRNG) == 0);
    close(fd);
    load_modules();
    mount_disk();

    int64_t n = verify(&handles[0]);
    if (setting("only"))
        stop();
    if (setting("reopen")) {
        close_families(&handles[0]);
        int code = kvstore_close(handles[0].kv);
        if (code != KVSTORE_OK)
            FAIL("close gave %d: %s", code, kvstore_errmsg(NULL));
        handles[0].kv = open_store();
    }
    if (setting("two"))
        handles[1].kv = open_store();
    write_for_ever(n + 1);
}

/* Many threads on one store, also while it is being closed; and two handles on one file. */
#include <pthread.h>
#include <unistd.h>

#include "abuse_sample.h"

#define THREADS 8

struct worker {
    KVStore *kv;
    int number;
    int rounds;
    int until_closed;
};

static pthread_barrier_t barrier;

/* A code that a thread may get. MISUSE only where the store is being closed. */
static int allowed(const struct worker *me, int code)
{
    if (code != KVSTORE_OK && code != KVSTORE_NOTFOUND && !(me->until_closed && code == KVSTORE_MISUSE)) {
        fprintf(stderr, "a thread got %d: %s\n", code, kvstore_errmsg(me->kv));
        exit(1);
    }
    return code;
}

static int round_of_work(const struct worker *me, KVColumnFamily *cf, KVIterator *it, int i)
{
    char shared[30], mine[30];
    int n_shared = snprintf(shared, sizeof shared, "shared:%d", i % 17), n, code;
    int n_mine = snprintf(mine, sizeof mine, "thread %d:%05d", me->number, i);
    void *value, *key;

    /* Values begin with their key, so that a wrong value is detected. */
    if (allowed(me, kvstore_cf_put(cf, shared, n_shared, shared, n_shared)) == KVSTORE_MISUSE) {
        return KVSTORE_MISUSE;
    }
    allowed(me, kvstore_put(me->kv, mine, n_mine, mine, n_mine));
    code = allowed(me, kvstore_cf_get(cf, shared, n_shared, &value, &n));
    if (code == KVSTORE_OK) {
        CHECK(n == n_shared && memcmp(value, shared, (size_t)n) == 0);
        kvstore_free(value);
    }
    code = allowed(me, kvstore_get(me->kv, mine, n_mine, &value, &n));
    if (code == KVSTORE_OK) {
        CHECK(n == n_mine && memcmp(value, mine, (size_t)n) == 0);
        kvstore_free(value);
    } else {
        CHECK(code == KVSTORE_MISUSE); /* no other thread deletes it */
    }
    if (i % 3 == 0) {
        allowed(me, kvstore_cf_put_ttl(cf, shared, n_shared, shared, n_shared, kvstore_now_ms() + i % 5));
    }
    if (i % 7 == 0) {
        allowed(me, kvstore_cf_delete(cf, shared, n_shared));
    }
    if (i % 31 == 0) {
        allowed(me, kvstore_cf_purge_expired(cf, NULL));
    }
    if (i % 13 == 0) { /* some calls fail, all at the same time */
        code = kvstore_put(me->kv, "", 0, "", 0);
        CHECK(code == KVSTORE_ERROR || (me->until_closed && code == KVSTORE_MISUSE));
        CHECK(kvstore_errmsg(me->kv) != NULL);
    }
    if (allowed(me, kvstore_iterator_first(it)) == KVSTORE_OK) {
        for (int steps = 0; steps < 20 && !kvstore_iterator_eof(it); steps++) {
            void *seen;
            int n_key, n_seen;

            /* Between two of these calls the store may have been closed. */
            if (kvstore_iterator_key(it, &key, &n_key) != KVSTORE_OK ||
                kvstore_iterator_value(it, &seen, &n_seen) != KVSTORE_OK) {
                CHECK(me->until_closed);
                break;
            }
            CHECK(n_key == n_seen && memcmp(key, seen, (size_t)n_key) == 0);
            if (allowed(me, kvstore_iterator_next(it)) != KVSTORE_OK) {
                break;
            }
        }
    }
    return KVSTORE_OK;
}

static void *work(void *argument)
{
    const struct worker *me = argument;
    KVColumnFamily *cf;
    KVIterator *it;
    int i;

    OK(kvstore_cf_open(me->kv, "shared", &cf));
    OK(me->number % 2 ? kvstore_cf_iterator_create(cf, &it) : kvstore_iterator_create(me->kv, &it));
    pthread_barrier_wait(&barrier);
    for (i = 0; me->until_closed || i < me->rounds; i++) {
        if (round_of_work(me, cf, it, i) == KVSTORE_MISUSE) {
            break;
        }
        if (i % 50 == 49) { /* handles come and go meanwhile */
            KVIterator *old = it;

            allowed(me, kvstore_cf_reverse_iterator_create(cf, &it));
            kvstore_iterator_close(old);
            if (it == NULL) {
                break;
            }
        }
    }
    if (me->until_closed) {
        while (kvstore_cf_put(cf, "k", 1, "v", 1) == KVSTORE_OK) {
            /* the close has begun, and waits for its turn */
        }
        GIVES(KVSTORE_MISUSE, kvstore_cf_put(cf, "k", 1, "v", 1));
        GIVES(it ? KVSTORE_MISUSE : KVSTORE_ERROR, kvstore_iterator_first(it));
        CHECK(kvstore_iterator_eof(it) == 1);
    }
    kvstore_iterator_close(it);
    kvstore_cf_close(cf);
    return NULL;
}

static void start(pthread_t *threads, struct worker *workers, KVStore *kv, int until_closed)
{
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){kv, i, under_valgrind() ? 40 : 1500, until_closed};
        CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    pthread_barrier_wait(&barrier);
}

static void join(pthread_t *threads)
{
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(pthread_barrier_destroy(&barrier) == 0);
}

static KVStore *open_shared(const char *path)
{
    KVStore *kv;
    KVColumnFamily *cf;
    KVStoreConfig cfg = {0};

    cfg.syncLevel = KVSTORE_SYNC_OFF;
    OK(kvstore_open_v2(path, &kv, &cfg));
    OK(kvstore_cf_create(kv, "shared", &cf));
    kvstore_cf_close(cf);
    return kv;
}

static void one_handle(void)
{
    pthread_t threads[THREADS];
    struct worker workers[THREADS];
    KVStore *kv = open_shared("store.db");
    int64_t rows;

    start(threads, workers, kv, 0);
    join(threads);

    /* Everything each thread wrote is there. */
    OK(kvstore_count(kv, &rows));
    CHECK(rows == (int64_t)THREADS * workers[0].rounds);
    for (int t = 0; t < THREADS; t++) {
        for (int i = 0; i < workers[t].rounds; i++) {
            char key[30];
            int n = snprintf(key, sizeof key, "thread %d:%05d", t, i), there;

            OK(kvstore_exists(kv, key, n, &there));
            CHECK(there);
        }
    }
    OK(kvstore_integrity_check(kv, NULL));
    OK(kvstore_close(kv));
    CHECK(access("store.db-wal", F_OK) != 0);
}

static void closed_during_calls(void)
{
    for (int i = 0; i < (under_valgrind() ? 3 : 20); i++) {
        pthread_t threads[THREADS];
        struct worker workers[THREADS];
        char path[30];
        KVStore *kv;

        snprintf(path, sizeof path, "store%d.db", i);
        kv = open_shared(i % 2 ? NULL : path);
        start(threads, workers, kv, 1);
        usleep((unsigned)(i * 7000 % 60000));
        OK(kvstore_close(kv));
        join(threads);
        GIVES(KVSTORE_MISUSE, kvstore_close(kv));
        if (i % 2 == 0) {
            OK(kvstore_open(path, &kv, 0));
            OK(kvstore_integrity_check(kv, NULL));
            OK(kvstore_close(kv));
        }
    }
}

/* ---- two closes at once ------------------------------------------------------------------------ */

struct closer {
    KVStore *kv;
    KVColumnFamily *cf;
    int code;
};

static void *close_it(void *argument)
{
    struct closer *me = argument;

    pthread_barrier_wait(&barrier);
    kvstore_cf_close(me->cf);
    me->code = kvstore_close(me->kv);
    return NULL;
}

static void closed_concurrently(void)
{
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    for (int i = 0; i < (under_valgrind() ? 20 : 300); i++) {
        struct closer closers[2];
        pthread_t other;

        OK(kvstore_open(i % 10 ? NULL : "store.db", &closers[0].kv, 0));
        OK(kvstore_cf_get_default(closers[0].kv, &closers[0].cf));
        OK(kvstore_put(closers[0].kv, "k", 1, "v", 1));
        closers[1] = closers[0];
        CHECK(pthread_create(&other, NULL, close_it, &closers[1]) == 0);
        close_it(&closers[0]);
        CHECK(pthread_join(other, NULL) == 0);
        CHECK((closers[0].code == KVSTORE_OK && closers[1].code == KVSTORE_MISUSE) ||
              (closers[1].code == KVSTORE_OK && closers[0].code == KVSTORE_MISUSE));
    }
    CHECK(pthread_barrier_destroy(&barrier) == 0);
}

/* ---- two handles on one file ------------------------------------------------------------------- */

static int64_t number_at(KVStore *kv, const char *key)
{
    void *value;
    int n;
    int64_t number = 0;
    int code = kvstore_get(kv, key, (int)strlen(key), &value, &n);

    CHECK(code == KVSTORE_OK || code == KVSTORE_NOTFOUND);
    if (code == KVSTORE_OK) {
        number = atoll(value);
        kvstore_free(value);
    }
    return number;
}

/* Adds 1 to a common number in transactions, and puts keys of its own. */
static void *counts(void *argument)
{
    struct worker *me = argument;
    KVStoreConfig cfg = {0};

    cfg.busyTimeout = 60000;
    cfg.syncLevel = KVSTORE_SYNC_OFF;
    cfg.journalMode = me->until_closed; /* here: the journal mode */
    OK(kvstore_open_v2("store.db", &me->kv, &cfg));
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < me->rounds; i++) {
        char text[30];
        int n = snprintf(text, sizeof text, "thread %d:%d", me->number, i);

        OK(kvstore_put(me->kv, text, n, text, n));
        OK(kvstore_begin(me->kv, 1));
        n = snprintf(text, sizeof text, "%lld", (long long)(number_at(me->kv, "sum") + 1));
        OK(kvstore_put(me->kv, "sum", 3, text, n));
        OK(kvstore_commit(me->kv));
    }
    OK(kvstore_close(me->kv));
    return NULL;
}

static void two_handles(void)
{
    for (int mode = KVSTORE_JOURNAL_WAL; mode <= KVSTORE_JOURNAL_DELETE; mode++) {
        struct worker workers[2];
        pthread_t other;
        KVStore *kv;
        int64_t rows;
        int rounds = under_valgrind() ? 20 : 400;

        CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
        OK(kvstore_open("store.db", &kv, mode));
        OK(kvstore_clear(kv));
        OK(kvstore_close(kv));
        workers[0] = (struct worker){NULL, 0, rounds, mode};
        workers[1] = (struct worker){NULL, 1, rounds, mode};
        CHECK(pthread_create(&other, NULL, counts, &workers[1]) == 0);
        counts(&workers[0]);
        CHECK(pthread_join(other, NULL) == 0);
        OK(kvstore_open("store.db", &kv, mode));
        CHECK(number_at(kv, "sum") == 2 * rounds);
        OK(kvstore_count(kv, &rows));
        CHECK(rows == 2 * rounds + 1);
        OK(kvstore_integrity_check(kv, NULL));
        OK(kvstore_close(kv));
        CHECK(pthread_barrier_destroy(&barrier) == 0);
    }
}

SCENARIOS({"one_handle", one_handle}, {"closed_during_calls", closed_during_calls},
          {"closed_concurrently", closed_concurrently}, {"two_handles", two_handles})

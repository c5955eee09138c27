/* kvstore_errmsg: when the text is set, for which handle, how long it is valid, and what it
 * contains. */
#include <limits.h>
#include <pthread.h>

#include "abuse_sample.h"

/* Part of every key and value. No message may contain it. */
#define SECRET "s3cr3t"
#define KEY SECRET "-key", 10
#define VALUE SECRET "-value", 12

static void no_error(void)
{
    KVStore *kv, *second;
    KVColumnFamily *cf;
    KVIterator *it;
    void *value;
    int n;

    CHECK(strcmp(kvstore_errmsg(NULL), "no error") == 0);
    OK(kvstore_open(NULL, &kv, 0));
    CHECK(strcmp(kvstore_errmsg(kv), "no error") == 0);
    OK(kvstore_put(kv, KEY, VALUE));
    CHECK(strcmp(kvstore_errmsg(kv), "no error") == 0);

    /* A successful call keeps the text of the failure before it. */
    GIVES(KVSTORE_ERROR, kvstore_commit(kv));
    CHECK(strstr(kvstore_errmsg(kv), "commit") != NULL);
    OK(kvstore_put(kv, KEY, VALUE));
    OK(kvstore_exists(kv, "missing", 7, &n)); /* no miss, but an answer */
    CHECK(strstr(kvstore_errmsg(kv), "commit") != NULL);

    /* Families and iterators report to their own store only. */
    OK(kvstore_open(NULL, &second, 0));
    OK(kvstore_cf_get_default(kv, &cf));
    OK(kvstore_cf_iterator_create(cf, &it));
    GIVES(KVSTORE_ERROR, kvstore_cf_put(cf, KEY, NULL, 77));
    CHECK(strstr(kvstore_errmsg(kv), "77") != NULL);
    GIVES(KVSTORE_ERROR, kvstore_iterator_last(it));
    CHECK(strstr(kvstore_errmsg(kv), "reverse") != NULL);
    GIVES(KVSTORE_ERROR, kvstore_iterator_key(it, &value, &n));
    CHECK(strstr(kvstore_errmsg(kv), "eof") != NULL);
    CHECK(strcmp(kvstore_errmsg(second), "no error") == 0);
    CHECK(strcmp(kvstore_errmsg(NULL), "no error") == 0);
    kvstore_iterator_close(it);
    kvstore_cf_close(cf);
    OK(kvstore_close(second));
    OK(kvstore_close(kv));
    CHECK(kvstore_errmsg(kv) != NULL);
}

/* A missing key has a text of its own. Of that and a failure, the later one is reported. */
static void not_found(void)
{
    KVStore *kv;
    KVColumnFamily *cf, *none;
    KVStoreStats stats;
    void *value;
    int n;
    int64_t left, time;

    OK(kvstore_open(NULL, &kv, 0));
    OK(kvstore_cf_create(kv, "f", &cf));

/* The call does not find its key, once after a failure and once before another. */
#define MISSES(text, call)                                                                               \
    do {                                                                                                 \
        GIVES(KVSTORE_ERROR, kvstore_commit(kv));                                                        \
        CHECK(strstr(kvstore_errmsg(kv), "commit") != NULL);                                             \
        GIVES(KVSTORE_NOTFOUND, call);                                                                   \
        CHECK(strcmp(kvstore_errmsg(kv), text) == 0);                                                    \
        OK(kvstore_put(kv, "other", 5, VALUE));                                                          \
        CHECK(strcmp(kvstore_errmsg(kv), text) == 0);                                                    \
        GIVES(KVSTORE_ERROR, kvstore_rollback(kv));                                                      \
        CHECK(strstr(kvstore_errmsg(kv), "roll back") != NULL);                                          \
    } while (0)
    MISSES("no such key", kvstore_get(kv, KEY, &value, &n));
    MISSES("no such key", kvstore_cf_get(cf, KEY, &value, &n));
    MISSES("no such key", kvstore_cf_get_into(cf, KEY, NULL, 0, &n));
    MISSES("no such key", kvstore_get_ttl(kv, KEY, &value, &n, &left));
    CHECK(left == 0);
    MISSES("no such key", kvstore_cf_get_ttl(cf, KEY, &value, &n, NULL));
    MISSES("no such key", kvstore_cf_get_and_expire(cf, KEY, 0, &value, &n));
    CHECK(value == NULL && n == 0);
    MISSES("no such key", kvstore_delete(kv, KEY));
    MISSES("no such key", kvstore_cf_delete(cf, KEY));
    MISSES("no such key", kvstore_ttl_remaining(kv, KEY, &left));
    MISSES("no such key", kvstore_cf_ttl_remaining(cf, KEY, &left));
    MISSES("no such key", kvstore_cf_expire(cf, KEY, 0, 0, NULL));
    MISSES("no such key", kvstore_cf_persist(cf, KEY, NULL));
    MISSES("no such key", kvstore_cf_expire_time(cf, KEY, &time));
    MISSES("no such key", kvstore_cf_write_time(cf, KEY, &time));
    MISSES("no key has a TTL", kvstore_next_expiry(kv, &time));
    MISSES("no key has a TTL", kvstore_cf_next_expiry(cf, &time));
    MISSES("there is no family \"missing\": create it with kvstore_cf_create", kvstore_cf_open(kv, "missing", &none));
    CHECK(none == NULL);
    MISSES("there is no family \"missing\"", kvstore_cf_drop(kv, "missing"));
    CHECK(kvstore_errhint(kv) == KVSTORE_HINT_BEGIN_TRANSACTION); /* of the rollback in MISSES */
    GIVES(KVSTORE_NOTFOUND, kvstore_cf_drop(kv, "missing"));
    CHECK(kvstore_errhint(kv) == KVSTORE_HINT_NONE);
    GIVES(KVSTORE_NOTFOUND, kvstore_cf_open(kv, "missing", &none));
    CHECK(kvstore_errhint(kv) == KVSTORE_HINT_CREATE_FAMILY);
    CHECK(strcmp(kvstore_errreason(kv), "there is no family \"missing\"") == 0);
    CHECK(strstr(kvstore_errmsg(kv), kvstore_strhint(KVSTORE_HINT_CREATE_FAMILY)) != NULL);
    GIVES(KVSTORE_NOTFOUND, kvstore_get(kv, KEY, &value, &n));
    CHECK(kvstore_errhint(kv) == KVSTORE_HINT_NONE && strcmp(kvstore_errreason(kv), "no such key") == 0);

    /* An expired key is missing. */
    OK(kvstore_put_ttl(kv, KEY, VALUE, INT64_C(94694400000)));
    MISSES("no such key", kvstore_get(kv, KEY, &value, &n));

    /* In the statistics a missing key is no failure. Two calls of each round are failures. */
    OK(kvstore_stats(kv, &stats));
    CHECK(stats.nErrors == 2 * 19);
    kvstore_cf_close(cf);
    OK(kvstore_close(kv));
}

/* The returned pointer stays readable for a few more failures, because one thread may read the
 * text of another thread's call. */
static void stays_readable(void)
{
    KVStore *kv;
    const char *first;
    char copy[200];

    OK(kvstore_open(NULL, &kv, 0));
    GIVES(KVSTORE_ERROR, kvstore_commit(kv));
    first = kvstore_errmsg(kv);
    snprintf(copy, sizeof copy, "%s", first);
    for (int i = 0; i < 8; i++) {
        GIVES(KVSTORE_ERROR, kvstore_put(kv, "k", -i, "v", 1));
        CHECK(strcmp(first, copy) == 0);
        CHECK(kvstore_errmsg(kv) != first);
    }
    for (int i = 0; i < 1000; i++) { /* and the last one always is */
        GIVES(KVSTORE_ERROR, kvstore_put(kv, "k", -i, "v", 1));
        snprintf(copy, sizeof copy, "the key has %d bytes", -i);
        CHECK(strstr(kvstore_errmsg(kv), copy) == kvstore_errmsg(kv));
    }
    OK(kvstore_close(kv));
}

/* ---- threads ----------------------------------------------------------------------------------- */

static pthread_barrier_t barrier;

static void *fails_in_its_own_way(void *number)
{
    KVStore *kv;
    int mine = 1000 + *(int *)number;
    char expected[30];

    CHECK(strcmp(kvstore_errmsg(NULL), "no error") == 0);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 50; i++) {
        GIVES(KVSTORE_ERROR, kvstore_open("store.db", &kv, mine));
        pthread_barrier_wait(&barrier);
        snprintf(expected, sizeof expected, "%d", mine);
        CHECK(strstr(kvstore_errmsg(NULL), expected) != NULL);
    }
    return NULL;
}

static void per_thread(void)
{
    pthread_t threads[4];
    int numbers[4];
    KVStore *kv;

    GIVES(KVSTORE_ERROR, kvstore_open("store.db", &kv, 99));
    CHECK(pthread_barrier_init(&barrier, NULL, 4) == 0);
    for (int i = 0; i < 4; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, fails_in_its_own_way, &numbers[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(strstr(kvstore_errmsg(NULL), "99") != NULL);
    CHECK(pthread_barrier_destroy(&barrier) == 0);
}

/* ---- the texts --------------------------------------------------------------------------------- */

static int failures;

static void show(int expected, int code, const char *what, const char *text)
{
    if (code != expected) {
        fprintf(stderr, "%s gave %d, not %d\n", what, code, expected);
        exit(1);
    }
    CHECK(text != NULL && strlen(text) >= 10 && strcmp(text, "no error") != 0);
    CHECK(strstr(text, SECRET) == NULL);
    CHECK(strstr(text, "panic") == NULL && strstr(text, "internal") == NULL);
    printf("%3d  %s\n     %s\n", code, text, what);
    failures++;
}

/* An invalid call, whose text is stored in `handle`, in kv, or in this thread. */
#define WRONG_ON(handle, expected, call)                                                                 \
    do {                                                                                                 \
        int code = (call);                                                                               \
        show(expected, code, #call, kvstore_errmsg(handle));                                             \
    } while (0)
#define WRONG(expected, call) WRONG_ON(kv, expected, call)
#define WRONG_WITHOUT(expected, call) WRONG_ON(NULL, expected, call)

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void wrong_opens(void)
{
    KVStoreConfig cfg = {0};
    KVStore *kv = NULL;

    WRONG_WITHOUT(KVSTORE_ERROR, kvstore_open("a.db", NULL, 0));
    WRONG_WITHOUT(KVSTORE_ERROR, kvstore_open("a.db", &kv, 7));
    WRONG_WITHOUT(KVSTORE_CANTOPEN, kvstore_open("no/such/folder/a.db", &kv, 0));
    WRONG_WITHOUT(KVSTORE_CANTOPEN, kvstore_open(".", &kv, 0));
    WRONG_WITHOUT(KVSTORE_CANTOPEN, kvstore_open("/dev/null", &kv, 0));
    write_file("text.db", "not a database, but a text that is long enough to have a header, if it had one, "
                          "which it does not: it goes on and on for more than a hundred bytes");
    WRONG_WITHOUT(KVSTORE_NOTADB, kvstore_open("text.db", &kv, 0));
    WRONG_WITHOUT(KVSTORE_CANTOPEN, kvstore_open("text.db/a.db", &kv, 0));
    cfg.readOnly = 1;
    WRONG_WITHOUT(KVSTORE_CANTOPEN, kvstore_open_v2("missing.db", &kv, &cfg));
    write_file("empty.db", "");
    WRONG_WITHOUT(KVSTORE_CANTOPEN, kvstore_open_v2("empty.db", &kv, &cfg));
    WRONG_WITHOUT(KVSTORE_ERROR, kvstore_open_v2(NULL, &kv, &cfg));
    memset(&cfg, 0, sizeof cfg);
    cfg.pageSize = 1000;
    WRONG_WITHOUT(KVSTORE_ERROR, kvstore_open_v2("a.db", &kv, &cfg));
    cfg.pageSize = -4096;
    WRONG_WITHOUT(KVSTORE_ERROR, kvstore_open_v2("a.db", &kv, &cfg));
    memset(&cfg, 0, sizeof cfg);
    cfg.syncLevel = 9;
    WRONG_WITHOUT(KVSTORE_ERROR, kvstore_open_v2("a.db", &kv, &cfg));
    memset(&cfg, 0, sizeof cfg);
    cfg.maxValueSize = INT_MAX;
    WRONG_WITHOUT(KVSTORE_ERROR, kvstore_open_v2("a.db", &kv, &cfg));
    memset(&cfg, 0, sizeof cfg);
    cfg.reserved[1] = 1;
    WRONG_WITHOUT(KVSTORE_ERROR, kvstore_open_v2("a.db", &kv, &cfg));
    memset(&cfg, 0, sizeof cfg);
    cfg.walPages = -1;
    WRONG_WITHOUT(KVSTORE_ERROR, kvstore_open_v2("a.db", &kv, &cfg));
    CHECK(kv == NULL);
}

static void wrong_calls(void)
{
    KVStoreConfig cfg = {0};
    KVStore *kv, *second;
    KVColumnFamily *cf, *none;
    KVIterator *it, *nothing;
    void *value;
    int n;
    int64_t big;
    char name[300];

    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = '\0';
    OK(kvstore_open("store.db", &kv, 0));
    OK(kvstore_cf_create(kv, "f", &cf));
    OK(kvstore_iterator_create(kv, &it));

    WRONG(KVSTORE_ERROR, kvstore_put(kv, NULL, 3, VALUE));
    WRONG(KVSTORE_ERROR, kvstore_put(kv, SECRET, 0, VALUE));
    WRONG(KVSTORE_ERROR, kvstore_put(kv, SECRET, -1, VALUE));
    WRONG(KVSTORE_ERROR, kvstore_put(kv, SECRET, 65537, VALUE));
    WRONG(KVSTORE_ERROR, kvstore_put(kv, KEY, NULL, 5));
    WRONG(KVSTORE_ERROR, kvstore_put(kv, KEY, SECRET, -5));
    WRONG(KVSTORE_ERROR, kvstore_put(kv, KEY, SECRET, INT_MAX));
    WRONG(KVSTORE_ERROR, kvstore_put(kv, KEY, SECRET, 10 * 1024 * 1024 + 1));
    WRONG(KVSTORE_ERROR, kvstore_put_ttl(kv, KEY, VALUE, -7));
    WRONG(KVSTORE_ERROR, kvstore_put_if_absent(kv, KEY, VALUE, INT64_MIN, &n));
    WRONG(KVSTORE_ERROR, kvstore_get(kv, KEY, NULL, &n));
    WRONG(KVSTORE_ERROR, kvstore_get(kv, KEY, &value, NULL));
    WRONG(KVSTORE_ERROR, kvstore_exists(kv, KEY, NULL));
    WRONG(KVSTORE_ERROR, kvstore_count(kv, NULL));
    WRONG(KVSTORE_ERROR, kvstore_ttl_remaining(kv, KEY, NULL));
    WRONG(KVSTORE_ERROR, kvstore_cf_put(cf, KEY, SECRET, -1));
    WRONG(KVSTORE_ERROR, kvstore_cf_create(kv, NULL, &none));
    WRONG(KVSTORE_ERROR, kvstore_cf_create(kv, "g", NULL));
    WRONG(KVSTORE_ERROR, kvstore_cf_create(kv, "", &none));
    WRONG(KVSTORE_ERROR, kvstore_cf_create(kv, name, &none));
    WRONG(KVSTORE_ERROR, kvstore_cf_create(kv, "__x", &none));
    WRONG(KVSTORE_ERROR, kvstore_cf_create(kv, "\xff", &none));
    WRONG(KVSTORE_ERROR, kvstore_cf_create(kv, "f", &none));
    WRONG(KVSTORE_NOTFOUND, kvstore_cf_open(kv, "missing", &none));
    WRONG(KVSTORE_NOTFOUND, kvstore_cf_drop(kv, "missing"));
    WRONG(KVSTORE_ERROR, kvstore_cf_drop(kv, "default"));
    WRONG(KVSTORE_BUSY, kvstore_cf_drop(kv, "f"));
    WRONG(KVSTORE_ERROR, kvstore_cf_list(kv, NULL, &n));
    WRONG(KVSTORE_ERROR, kvstore_prefix_iterator_create(kv, NULL, 1, &nothing));
    WRONG(KVSTORE_ERROR, kvstore_prefix_iterator_create(kv, "", 0, &nothing));
    WRONG(KVSTORE_ERROR, kvstore_iterator_create(kv, NULL));
    WRONG(KVSTORE_ERROR, kvstore_iterator_last(it));
    WRONG(KVSTORE_ERROR, kvstore_iterator_prev(it));
    WRONG(KVSTORE_ERROR, kvstore_iterator_key(it, &value, &n));
    WRONG(KVSTORE_ERROR, kvstore_iterator_value(it, NULL, &n));
    WRONG(KVSTORE_ERROR, kvstore_iterator_seek(it, SECRET, -2));
    WRONG(KVSTORE_ERROR, kvstore_commit(kv));
    WRONG(KVSTORE_ERROR, kvstore_rollback(kv));
    WRONG(KVSTORE_ERROR, kvstore_checkpoint(kv, 9, &n, &n));
    WRONG(KVSTORE_ERROR, kvstore_incremental_vacuum(kv, -1));
    WRONG(KVSTORE_ERROR, kvstore_stats(kv, NULL));
    OK(kvstore_begin(kv, 0));
    WRONG(KVSTORE_READONLY, kvstore_put(kv, KEY, VALUE));
    WRONG(KVSTORE_ERROR, kvstore_begin(kv, 1));
    OK(kvstore_rollback(kv));
    OK(kvstore_begin(kv, 1));
    OK(kvstore_put(kv, KEY, VALUE));
    WRONG(KVSTORE_BUSY, kvstore_checkpoint(kv, KVSTORE_CHECKPOINT_FULL, NULL, NULL));

    /* A second handle while the first is writing; a read-only handle; an exclusive handle. */
    OK(kvstore_open("store.db", &second, 0));
    WRONG_ON(second, KVSTORE_BUSY, kvstore_put(second, KEY, VALUE));
    WRONG_ON(second, KVSTORE_BUSY, kvstore_begin(second, 1));
    OK(kvstore_close(second));
    OK(kvstore_commit(kv));
    cfg.readOnly = 1;
    OK(kvstore_open_v2("store.db", &second, &cfg));
    WRONG_ON(second, KVSTORE_READONLY, kvstore_put(second, KEY, VALUE));
    WRONG_ON(second, KVSTORE_READONLY, kvstore_begin(second, 1));
    OK(kvstore_close(second));
    WRONG_WITHOUT(KVSTORE_BUSY, kvstore_open("store.db", &second, KVSTORE_JOURNAL_DELETE));
    cfg.readOnly = 0;
    cfg.exclusive = 1;
    WRONG_WITHOUT(KVSTORE_BUSY, kvstore_open_v2("store.db", &second, &cfg));
    WRONG_WITHOUT(KVSTORE_ERROR, kvstore_put(NULL, KEY, VALUE));
    WRONG_WITHOUT(KVSTORE_ERROR, kvstore_cf_put(NULL, KEY, VALUE));
    WRONG_WITHOUT(KVSTORE_ERROR, kvstore_iterator_first(NULL));

    kvstore_iterator_close(it);
    WRONG_WITHOUT(KVSTORE_MISUSE, kvstore_iterator_next(it));
    kvstore_cf_close(cf);
    WRONG_WITHOUT(KVSTORE_MISUSE, kvstore_cf_count(cf, &big));
    OK(kvstore_cf_open(kv, "f", &cf));
    OK(kvstore_close(kv));
    WRONG_WITHOUT(KVSTORE_MISUSE, kvstore_put(kv, KEY, VALUE));
    WRONG(KVSTORE_MISUSE, kvstore_put(kv, KEY, VALUE));
    WRONG(KVSTORE_MISUSE, kvstore_cf_put(cf, KEY, VALUE));
    WRONG_WITHOUT(KVSTORE_MISUSE, kvstore_close(kv));
    WRONG_WITHOUT(KVSTORE_MISUSE, kvstore_close((KVStore *)cf));
    kvstore_cf_close(cf);
}

static void texts(void)
{
    wrong_opens();
    wrong_calls();
    CHECK(failures >= 60);
    for (int code = -5; code < 200; code++) {
        CHECK(kvstore_strerror(code) != NULL && *kvstore_strerror(code) != '\0');
    }
}

SCENARIOS({"no_error", no_error}, {"not_found", not_found}, {"stays_readable", stays_readable}, {"per_thread", per_thread},
          {"texts", texts})

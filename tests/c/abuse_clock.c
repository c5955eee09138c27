/* Clocks that misbehave: they call the store that reads them, or they jump. */
#include "abuse_sample.h"

static KVStore *kv;
static KVIterator *it;

/* What the clock does in addition to returning the time. */
static void (*mischief)(void);
static int reads;

static int64_t clock_with_mischief(void *now)
{
    static int inside;

    reads++;
    if (mischief != NULL && !inside) {
        inside = 1;
        mischief();
        inside = 0;
    }
    return *(int64_t *)now;
}

static int64_t now = SAMPLE_NOW;

static void set_up(void)
{
    kv = sample_open(NULL);
    sample_fill(kv);
    OK(kvstore_set_clock(kv, clock_with_mischief, &now));
}

/* The call reads the clock and succeeds. */
#define READS_CLOCK(call)                                                                                \
    do {                                                                                                 \
        int reads_before = reads;                                                                        \
        OK(call);                                                                                        \
        CHECK(reads > reads_before);                                                                     \
    } while (0)

/* ---- calling back ------------------------------------------------------------------------------ */

static void call_back(void)
{
    REFUSED(KVSTORE_MISUSE, kvstore_get(kv, "plain", 5, &out.pointer, &out.n));
    CHECK(strstr(kvstore_errmsg(kv), "callback") != NULL);
    REFUSED(KVSTORE_MISUSE, kvstore_put(kv, "plain", 5, "from the clock", 14));
    REFUSED(KVSTORE_MISUSE, kvstore_delete(kv, "plain", 5));
    REFUSED(KVSTORE_MISUSE, kvstore_get_ttl(kv, "mortal", 6, &out.pointer, &out.n, &out.big));
    REFUSED(KVSTORE_MISUSE, kvstore_begin(kv, 1));
    REFUSED(KVSTORE_MISUSE, kvstore_commit(kv));
    REFUSED(KVSTORE_MISUSE, kvstore_rollback(kv));
    REFUSED(KVSTORE_MISUSE, kvstore_purge_expired(kv, &out.n));
    REFUSED(KVSTORE_MISUSE, kvstore_integrity_check(kv, NULL));
    REFUSED(KVSTORE_MISUSE, kvstore_repair(kv, &out.big));
    REFUSED(KVSTORE_MISUSE, kvstore_set_limit(kv, 1 << 20, KVSTORE_EVICT_OLDEST));
}

static void is_called_back(void)
{
    uint64_t before;
    int n;

    set_up();
    before = fingerprint(kv);
    mischief = call_back;
    READS_CLOCK(kvstore_exists(kv, "mortal", 6, &n));
    CHECK(n == 1);
    READS_CLOCK(kvstore_put_if_absent(kv, "mortal", 6, "v", 1, 0, &n));
    CHECK(n == 0);
    GIVES(KVSTORE_NOTFOUND, kvstore_delete(kv, "dead", 4));
    READS_CLOCK(kvstore_delete(kv, "mortal", 6));
    OK(kvstore_begin(kv, 1));
    OK(kvstore_put_ttl(kv, "mortal", 6, "a while", 7, SAMPLE_NOW + 5000));
    READS_CLOCK(kvstore_exists(kv, "mortal", 6, &n));
    OK(kvstore_put_ttl(kv, "dead", 4, "gone", 4, SAMPLE_NOW - 1));
    OK(kvstore_commit(kv));
    mischief = NULL;
    CHECK(fingerprint(kv) == before);
    still_works(kv);
    OK(kvstore_close(kv));
}

/* Calls that read the clock before or after they are in the store. */
static void is_called_back_by_every_call(void)
{
    KVColumnFamily *cf;
    void *value;
    int n;
    int64_t left;

    set_up();
    mischief = call_back;
    READS_CLOCK(kvstore_get_ttl(kv, "mortal", 6, &value, &n, &left));
    CHECK(n == 7 && left == 5000);
    kvstore_free(value);
    READS_CLOCK(kvstore_ttl_remaining(kv, "mortal", 6, &left));
    CHECK(left == 5000);
    OK(kvstore_iterator_create(kv, &it));
    READS_CLOCK(kvstore_iterator_first(it));
    while (!kvstore_iterator_eof(it)) {
        OK(kvstore_iterator_next(it));
    }
    kvstore_iterator_close(it);
    READS_CLOCK(kvstore_purge_expired(kv, &n));
    CHECK(n == 1);
    READS_CLOCK(kvstore_cf_create(kv, "new", &cf));
    kvstore_cf_close(cf);
    mischief = NULL;
    still_works(kv);
    OK(kvstore_close(kv));
}

static void close_store(void)
{
    GIVES(KVSTORE_MISUSE, kvstore_close(kv));
    CHECK(strstr(kvstore_errmsg(NULL), "callback") != NULL);
}

/* A refused close has closed nothing. */
static void closes(void)
{
    int n;

    set_up();
    mischief = close_store;
    READS_CLOCK(kvstore_exists(kv, "mortal", 6, &n));
    CHECK(n == 1);
    OK(kvstore_exists(kv, "mortal", 6, &n));
    CHECK(n == 1);
    mischief = NULL;
    still_works(kv);
    OK(kvstore_close(kv));
}

static void use_iterator(void)
{
    REFUSED(KVSTORE_MISUSE, kvstore_iterator_first(it));
    REFUSED(KVSTORE_MISUSE, kvstore_iterator_next(it));
    kvstore_iterator_close(it);
}

/* The clock cannot move the iterator that reads it. If it closes the iterator, the memory that the move needs
 * stays allocated. */
static void changes_the_iterator(void)
{
    int code;

    set_up();
    OK(kvstore_iterator_create(kv, &it));
    mischief = use_iterator;
    code = kvstore_iterator_first(it);
    CHECK(code == KVSTORE_OK || code == KVSTORE_MISUSE);
    for (int i = 0; i < 10; i++) {
        code = kvstore_iterator_next(it);
        CHECK(code == KVSTORE_OK || code == KVSTORE_MISUSE);
    }
    CHECK(reads > 0 && kvstore_iterator_eof(it));
    mischief = NULL;
    kvstore_iterator_close(it);
    still_works(kv);
    OK(kvstore_close(kv));
}

static int64_t steady(void *context)
{
    (void)context;
    return SAMPLE_NOW;
}

static void replace_clock(void)
{
    int code = kvstore_set_clock(kv, steady, NULL);

    CHECK(code == KVSTORE_OK || code == KVSTORE_MISUSE);
}

/* A clock that replaces itself does not deadlock. */
static void replaces_itself(void)
{
    int n;

    set_up();
    mischief = replace_clock;
    READS_CLOCK(kvstore_exists(kv, "mortal", 6, &n));
    CHECK(n == 1);
    OK(kvstore_exists(kv, "mortal", 6, &n));
    CHECK(n == 1);
    OK(kvstore_close(kv));
}

static KVStore *times;

static void read_other_store(void)
{
    void *value;
    int n;

    OK(kvstore_get(times, "plain", 5, &value, &n));
    kvstore_free(value);
    OK(kvstore_put(times, "asked", 5, "again", 5));
}

/* A clock may use another store. */
static void uses_another_store(void)
{
    int n;

    set_up();
    times = sample_open(NULL);
    sample_fill(times);
    mischief = read_other_store;
    READS_CLOCK(kvstore_exists(kv, "mortal", 6, &n));
    GIVES(KVSTORE_NOTFOUND, kvstore_delete(kv, "dead", 4));
    OK(kvstore_exists(times, "asked", 5, &n));
    CHECK(n == 1);
    OK(kvstore_close(times));
    mischief = NULL;
    still_works(kv);
    OK(kvstore_close(kv));
}

/* ---- jumps ------------------------------------------------------------------------------------- */

static int is_alive(const char *key)
{
    int n;

    OK(kvstore_exists(kv, key, (int)strlen(key), &n));
    return n;
}

static void jumps(void)
{
    static const int64_t starts[] = {0, -1, -SAMPLE_NOW, INT64_MIN};
    int64_t left, rows;
    int n;

    kv = sample_open(NULL);

    /* Before 1970 it is 1970. */
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        now = starts[i];
        OK(kvstore_set_clock(kv, clock_with_mischief, &now)); /* a new clock may be earlier */
        OK(kvstore_put_ttl(kv, "first", 5, "v", 1, 1));
        OK(kvstore_put_ttl(kv, "last", 4, "v", 1, INT64_MAX));
        CHECK(is_alive("first") && is_alive("last"));
        OK(kvstore_ttl_remaining(kv, "first", 5, &left));
        CHECK(left == 1);
        OK(kvstore_ttl_remaining(kv, "last", 4, &left));
        CHECK(left == INT64_MAX);
        OK(kvstore_purge_expired(kv, &n));
        CHECK(n == 0);
    }

    /* At the last time every key with an expiry time is expired. */
    OK(kvstore_put(kv, "plain", 5, "v", 1));
    now = INT64_MAX;
    CHECK(is_alive("plain") && !is_alive("first"));
    OK(kvstore_ttl_remaining(kv, "last", 4, &left));
    CHECK(left == 0); /* the row was still there, and no longer is */
    OK(kvstore_count(kv, &rows));
    CHECK(rows == 1);
    OK(kvstore_put_ttl(kv, "last", 4, "v", 1, INT64_MAX));
    GIVES(KVSTORE_NOTFOUND, kvstore_delete(kv, "last", 4));
    OK(kvstore_put_ttl(kv, "last", 4, "v", 1, INT64_MAX));
    OK(kvstore_iterator_create(kv, &it));
    OK(kvstore_iterator_first(it));
    CHECK(!kvstore_iterator_eof(it));
    OK(kvstore_iterator_next(it));
    kvstore_iterator_close(it);
    OK(kvstore_purge_expired(kv, &n));
    CHECK(n == 1);
    OK(kvstore_put_ttl(kv, "last", 4, "v", 1, 0)); /* 0: for ever */
    CHECK(is_alive("last"));
    OK(kvstore_ttl_remaining(kv, "last", 4, &left));
    CHECK(left == KVSTORE_NO_TTL);
    OK(kvstore_put_if_absent(kv, "new", 3, "v", 1, INT64_MAX, &n));
    CHECK(n == 1 && !is_alive("new"));

    /* Time does not run backwards, unless the clock is replaced. */
    OK(kvstore_put_ttl(kv, "late", 4, "v", 1, INT64_MAX - 1));
    now = INT64_MIN;
    CHECK(!is_alive("late"));
    OK(kvstore_put_ttl(kv, "late", 4, "v", 1, INT64_MAX - 1));
    now = 0;
    CHECK(!is_alive("late"));
    OK(kvstore_put_ttl(kv, "late", 4, "v", 1, INT64_MAX - 1));
    OK(kvstore_set_clock(kv, NULL, NULL));
    CHECK(is_alive("late"));
    OK(kvstore_ttl_remaining(kv, "late", 4, &left));
    CHECK(left > 0 && left < INT64_MAX - 1000000000000);
    OK(kvstore_integrity_check(kv, NULL));
    OK(kvstore_close(kv));
}

SCENARIOS({"is_called_back", is_called_back}, {"is_called_back_by_every_call", is_called_back_by_every_call},
          {"closes", closes}, {"changes_the_iterator", changes_the_iterator},
          {"replaces_itself", replaces_itself}, {"uses_another_store", uses_another_store}, {"jumps", jumps})

/* Transactions: begin, commit and rollback, alone and with a second handle on the same file. */
#include "api_common.h"

static void commit_at(const struct place *p)
{
    OK(kvstore_begin(p->kv, 1));
    OK(AT(p, put, K("a"), K("1")));
    OK(AT(p, put_ttl, K("b"), K("2"), 2000));
    HAS(p, "a", "1"); /* it sees its own writes */
    CHECK(rows(p) == 2);
    OK(AT(p, delete, K("a")));
    GONE(p, "a");
    OK(AT(p, put, K("a"), K("3")));
    OK(kvstore_commit(p->kv));
    HAS(p, "a", "3");
    HAS(p, "b", "2");
    clock_ms = 2000;
    GONE(p, "b"); /* the TTL was committed, too */
}
BOTH_FORMS(commit)

static void rollback_at(const struct place *p)
{
    OK(AT(p, put, K("kept"), K("old")));
    OK(AT(p, put_ttl, K("ttl"), K("old"), 5000));
    OK(AT(p, put, K("deleted"), K("old")));
    OK(kvstore_begin(p->kv, 1));
    OK(AT(p, put, K("kept"), K("new")));
    OK(AT(p, put, K("ttl"), K("new")));
    OK(AT(p, delete, K("deleted")));
    OK(AT(p, put_ttl, K("new"), K("new"), 2000));
    OK(AT(p, put_if_absent, K("absent"), K("new"), 0, NULL));
    OK(kvstore_rollback(p->kv));
    HAS(p, "kept", "old");
    HAS(p, "deleted", "old");
    HAS(p, "ttl", "old");
    GONE(p, "new");
    GONE(p, "absent");
    CHECK(rows(p) == 3);
    int64_t remaining = 7;
    OK(AT(p, ttl_remaining, K("ttl"), &remaining));
    CHECK(remaining == 4000);

    OK(kvstore_begin(p->kv, 1));
    OK(CLEAR(p));
    CHECK(rows(p) == 0);
    OK(kvstore_rollback(p->kv));
    CHECK(rows(p) == 3);
}
BOTH_FORMS(rollback)

static void one_at_a_time_at(const struct place *p)
{
    for (int i = 0; i < 2; i++) { /* none is open */
        GIVES(KVSTORE_ERROR, kvstore_commit(p->kv));
        GIVES(KVSTORE_ERROR, kvstore_rollback(p->kv));
    }
    OK(kvstore_begin(p->kv, 1));
    OK(AT(p, put, K("a"), K("1")));
    GIVES(KVSTORE_ERROR, kvstore_begin(p->kv, 1)); /* the first continues */
    GIVES(KVSTORE_ERROR, kvstore_begin(p->kv, 0));
    OK(AT(p, put, K("b"), K("2")));
    OK(kvstore_commit(p->kv));
    HAS(p, "a", "1");
    HAS(p, "b", "2");
    GIVES(KVSTORE_ERROR, kvstore_commit(p->kv));
    GIVES(KVSTORE_ERROR, kvstore_rollback(p->kv));

    OK(kvstore_begin(p->kv, 1));
    OK(AT(p, put, K("c"), K("3")));
    GIVES(KVSTORE_ERROR, kvstore_begin(p->kv, 1));
    OK(kvstore_rollback(p->kv)); /* one rollback for the one transaction */
    GONE(p, "c");
    GIVES(KVSTORE_ERROR, kvstore_rollback(p->kv));

    OK(kvstore_begin(p->kv, 0));
    GIVES(KVSTORE_ERROR, kvstore_begin(p->kv, 1));
    GIVES(KVSTORE_READONLY, AT(p, put, K("c"), K("3"))); /* it is still the one that only reads */
    OK(kvstore_commit(p->kv));
}
BOTH_FORMS(one_at_a_time)

static void read_transaction_at(const struct place *p)
{
    OK(AT(p, put, K("key"), K("value")));
    OK(kvstore_begin(p->kv, 0));
    HAS(p, "key", "value");
    int n = 7;
    GIVES(KVSTORE_READONLY, AT(p, put, K("key"), K("other")));
    GIVES(KVSTORE_READONLY, AT(p, put_ttl, K("key"), K("other"), 5000));
    GIVES(KVSTORE_READONLY, AT(p, put_if_absent, K("new"), K("other"), 0, &n));
    GIVES(KVSTORE_READONLY, AT(p, delete, K("key")));
    GIVES(KVSTORE_READONLY, CLEAR(p));
    CHECK(n == 7);
    HAS(p, "key", "value"); /* and it continues */
    OK(kvstore_commit(p->kv));
    OK(AT(p, put, K("key"), K("other")));

    OK(kvstore_begin(p->kv, 0));
    HAS(p, "key", "other");
    OK(kvstore_rollback(p->kv));
    HAS(p, "key", "other");
}
BOTH_FORMS(read_transaction)

/* Any number but 0 asks for a write transaction. */
static void write_flag(void)
{
    struct place p = {open_at(NULL, NULL), NULL};
    static const int writes[] = {1, 2, -1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof writes / sizeof *writes; i++) {
        OK(kvstore_begin(p.kv, writes[i]));
        OK(AT(&p, put, K("key"), K("value")));
        OK(kvstore_commit(p.kv));
    }
    GIVES(KVSTORE_ERROR, kvstore_begin(NULL, 1));
    GIVES(KVSTORE_ERROR, kvstore_commit(NULL));
    GIVES(KVSTORE_ERROR, kvstore_rollback(NULL));
    OK(kvstore_close(p.kv));
    GIVES(KVSTORE_MISUSE, kvstore_begin(p.kv, 1));
    GIVES(KVSTORE_MISUSE, kvstore_commit(p.kv));
    GIVES(KVSTORE_MISUSE, kvstore_rollback(p.kv));
}

/* An invalid argument does not fail the transaction. */
static void errors_inside_at(const struct place *p)
{
    OK(kvstore_begin(p->kv, 1));
    OK(AT(p, put, K("a"), K("1")));
    GIVES(KVSTORE_ERROR, AT(p, put, NULL, 1, K("1")));
    GIVES(KVSTORE_ERROR, AT(p, put, K(""), K("1")));
    GIVES(KVSTORE_ERROR, AT(p, put_ttl, K("c"), K("1"), -2));
    GIVES(KVSTORE_NOTFOUND, AT(p, delete, K("missing")));
    OK(AT(p, put, K("b"), K("2")));
    OK(kvstore_commit(p->kv));
    HAS(p, "a", "1");
    HAS(p, "b", "2");
    CHECK(rows(p) == 2);
}
BOTH_FORMS(errors_inside)

static void atomic_over_families(void)
{
    KVStore *kv = open_at("test.db", NULL);
    struct place a = {kv, NULL}, b = {kv, NULL}, c = {kv, NULL};
    OK(kvstore_cf_create(kv, "b", &b.cf));
    OK(kvstore_cf_create(kv, "c", &c.cf));
    OK(AT(&c, put, K("key"), K("old")));
    for (int commit = 0; commit < 2; commit++) {
        OK(kvstore_begin(kv, 1));
        OK(AT(&a, put, K("key"), K("1")));
        OK(AT(&b, put_ttl, K("key"), K("2"), 2000));
        OK(AT(&c, delete, K("key")));
        OK(commit ? kvstore_commit(kv) : kvstore_rollback(kv));
        if (commit) {
            HAS(&a, "key", "1");
            HAS(&b, "key", "2");
            GONE(&c, "key");
        } else {
            GONE(&a, "key");
            GONE(&b, "key");
            HAS(&c, "key", "old");
        }
    }
    OK(kvstore_begin(kv, 1));
    OK(AT(&a, put, K("key"), K("lost")));
    OK(AT(&b, put, K("key"), K("lost")));
    kvstore_cf_close(b.cf);
    kvstore_cf_close(c.cf);
    OK(kvstore_close(kv)); /* rolls back */

    a.kv = b.kv = open_at("test.db", NULL);
    OK(kvstore_cf_open(b.kv, "b", &b.cf));
    HAS(&a, "key", "1");
    HAS(&b, "key", "2");
    kvstore_cf_close(b.cf);
    OK(kvstore_integrity_check(a.kv, NULL));
    OK(kvstore_close(a.kv));
}

/* Results of the calls of b while a has a write transaction: reads succeed, writes return BUSY. */
static void busy_and_reading(const struct place *b, const char *name)
{
    int n = 7;
    int64_t n64 = 7;
    HAS(b, "key", "old");
    GONE(b, "new");
    OK(AT(b, exists, K("key"), &n));
    CHECK(n == 1);
    OK(AT(b, ttl_remaining, K("key"), &n64));
    CHECK(n64 == KVSTORE_NO_TTL);
    CHECK(rows(b) == 1);
    KVIterator *it = NULL;
    OK(AT(b, iterator_create, &it));
    OK(kvstore_iterator_first(it));
    CHECK(kvstore_iterator_eof(it) == 0);
    OK(kvstore_iterator_next(it));
    CHECK(kvstore_iterator_eof(it) == 1);
    kvstore_iterator_close(it);
    OK(kvstore_begin(b->kv, 0));
    HAS(b, "key", "old");
    OK(kvstore_commit(b->kv));
    OK(kvstore_integrity_check(b->kv, NULL));

    n = 7;
    GIVES(KVSTORE_BUSY, AT(b, put, K("key"), K("other")));
    GIVES(KVSTORE_BUSY, AT(b, put_ttl, K("key"), K("other"), 5000));
    GIVES(KVSTORE_BUSY, AT(b, put_if_absent, K("new"), K("other"), 0, &n));
    GIVES(KVSTORE_BUSY, AT(b, delete, K("key")));
    GIVES(KVSTORE_BUSY, CLEAR(b));
    if (!are_on_a_server()) { /* there, only rows are locked */
        KVColumnFamily *cf = (KVColumnFamily *)&clock_ms;
        GIVES(KVSTORE_BUSY, kvstore_begin(b->kv, 1));
        GIVES(KVSTORE_BUSY, kvstore_cf_create(b->kv, name, &cf));
        CHECK(cf == NULL);
    }
    GIVES(KVSTORE_ERROR, kvstore_commit(b->kv)); /* so none is open */
    CHECK(n == 7);
    HAS(b, "key", "old");
}

static void a_second_handle(void)
{
    for (int with_family = 0; with_family < 2; with_family++) {
        struct place a = {open_at("test.db", NULL), NULL}, b = {open_at("test.db", NULL), NULL};
        if (with_family) {
            OK(kvstore_cf_create(a.kv, "family", &a.cf));
            OK(kvstore_cf_open(b.kv, "family", &b.cf));
        }
        OK(AT(&a, put, K("key"), K("old")));
        OK(kvstore_begin(a.kv, 1));
        if (!are_on_a_server()) busy_and_reading(&b, "other"); /* from the begin on */
        OK(AT(&a, put, K("key"), K("new")));
        OK(AT(&a, put_ttl, K("new"), K("new"), 2000));
        busy_and_reading(&b, "other");
        OK(kvstore_commit(a.kv));
        HAS(&b, "key", "new");
        HAS(&b, "new", "new");
        OK(AT(&b, put, K("key"), K("b's")));
        HAS(&a, "key", "b's");
        kvstore_cf_close(a.cf);
        kvstore_cf_close(b.cf);
        OK(kvstore_close(a.kv));
        OK(kvstore_close(b.kv));
    }
}

static void a_snapshot_stays(void)
{
    struct place a = {open_at("test.db", NULL), NULL}, b = {open_at("test.db", NULL), NULL};
    OK(AT(&a, put, K("key"), K("old")));
    OK(kvstore_begin(b.kv, 0)); /* the moment is this one, not the first read's */
    OK(AT(&a, put, K("key"), K("new"))); /* a reader blocks no other handle */
    OK(AT(&a, put, K("other"), K("new")));
    HAS(&b, "key", "old");
    GONE(&b, "other");
    CHECK(rows(&b) == 1);
    OK(kvstore_commit(b.kv));
    HAS(&b, "key", "new");
    HAS(&b, "other", "new");
    OK(kvstore_close(a.kv));
    OK(kvstore_close(b.kv));
}

static void busy_timeout(void)
{
    KVStoreConfig patient = {0};
    patient.busyTimeout = 150;
    struct place a = {open_at("test.db", NULL), NULL}, b = {open_at("test.db", &patient), NULL};
    OK(kvstore_begin(a.kv, 1));
    OK(AT(&a, put, K("key"), K("lost"))); /* on a server, this row is locked */
    int64_t before = monotonic_ms();
    GIVES(KVSTORE_BUSY, AT(&b, put, K("key"), K("value")));
    int64_t waited = monotonic_ms() - before;
    CHECK(waited >= 100); /* about the time it was given */
    if (!are_on_a_server()) { /* on a server, transactions run concurrently */
        before = monotonic_ms();
        GIVES(KVSTORE_BUSY, kvstore_begin(b.kv, 1));
        CHECK(monotonic_ms() - before >= 100);
    }
    OK(kvstore_rollback(a.kv));
    OK(AT(&b, put, K("key"), K("value")));
    OK(kvstore_close(a.kv));
    OK(kvstore_close(b.kv));
}
/* The text of KVSTORE_BUSY names the time. */
static void default_busy_timeout_is_five_seconds(void)
{
    if (is_of_files("on a server, transactions run concurrently")) return;
    files_are_plain();
    KVStore *a, *b;
    KVStoreConfig impatient = {0};
    impatient.busyTimeout = -1;
    OK(kvstore_open("test.db", &a, 0));
    OK(kvstore_open("test.db", &b, 0));
    OK(kvstore_begin(a, 1));
    int64_t before = monotonic_ms();
    GIVES(KVSTORE_BUSY, kvstore_put(b, K("key"), K("value")));
    CHECK(monotonic_ms() - before >= 4500);
    CHECK(strstr(kvstore_errmsg(b), "5000 ms") != NULL);
    OK(kvstore_close(b));
    OK(kvstore_open_v2("test.db", &b, &impatient));
    before = monotonic_ms();
    GIVES(KVSTORE_BUSY, kvstore_put(b, K("key"), K("value")));
    CHECK(monotonic_ms() - before < 4500);
    CHECK(strstr(kvstore_errmsg(b), " 0 ms") != NULL);
    OK(kvstore_rollback(a));
    OK(kvstore_close(a));
    OK(kvstore_close(b));
}


/* An iterator opened inside a transaction sees its writes, and stays open after it. */
static void iterators_at(const struct place *p)
{
    OK(AT(p, put, K("a"), K("1")));
    OK(kvstore_begin(p->kv, 1));
    OK(AT(p, put, K("b"), K("2")));
    KVIterator *it = NULL;
    OK(AT(p, iterator_create, &it));
    OK(kvstore_iterator_first(it));
    void *key = NULL;
    int n = -1;
    OK(kvstore_iterator_next(it));
    OK(kvstore_iterator_key(it, &key, &n));
    CHECK(n == 1 && *(char *)key == 'b');
    OK(kvstore_iterator_first(it));
    OK(kvstore_rollback(p->kv)); /* also with an iterator open */
    OK(kvstore_iterator_next(it));
    CHECK(kvstore_iterator_eof(it) == 1);
    OK(kvstore_begin(p->kv, 1));
    OK(AT(p, put, K("c"), K("3")));
    OK(kvstore_iterator_first(it));
    OK(kvstore_commit(p->kv));
    OK(kvstore_iterator_next(it));
    OK(kvstore_iterator_key(it, &key, &n));
    CHECK(n == 1 && *(char *)key == 'c');
    kvstore_iterator_close(it);
}
BOTH_FORMS(iterators)

/* A transaction whose wal-index has more than one part: 4062 pages fill the first. */
static void long_transaction(void)
{
    enum { KEYS = 4500 };
    static char value[3000];
    struct place a = {open_at("test.db", NULL), NULL};
    OK(kvstore_begin(a.kv, 1));
    for (int i = 0; i < KEYS; i++) {
        memset(value, 'a' + i % 26, sizeof value);
        OK(kvstore_put(a.kv, &i, sizeof i, value, sizeof value));
    }
    OK(kvstore_commit(a.kv));
    for (int i = 0; i < KEYS; i++) {
        void *found = NULL;
        int n = -1;
        OK(kvstore_get(a.kv, &i, sizeof i, &found, &n));
        CHECK(n == (int)sizeof value && *(char *)found == 'a' + i % 26);
        kvstore_free(found);
    }
    OK(kvstore_integrity_check(a.kv, NULL));
    OK(kvstore_close(a.kv));
}

SCENARIOS({"commit", commit}, {"rollback", rollback}, {"one_at_a_time", one_at_a_time},
          {"read_transaction", read_transaction}, {"write_flag", write_flag},
          {"errors_inside", errors_inside}, {"atomic_over_families", atomic_over_families},
          {"a_second_handle", a_second_handle}, {"a_snapshot_stays", a_snapshot_stays},
          {"busy_timeout", busy_timeout},
          {"default_busy_timeout_is_five_seconds", default_busy_timeout_is_five_seconds}, {"iterators", iterators},
          {"long_transaction", long_transaction})

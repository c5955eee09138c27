/* A store that is written on one machine and read on another. The clock stands still, so that every
 * machine must write and show the same.
 *
 *     exchange write FILE     makes the store
 *     exchange leave FILE     makes it and ends without closing it: its last writes are in the log, as after a power cut
 *     exchange change FILE    changes a store that `write` or `leave` has made, perhaps elsewhere
 *     exchange show FILE      everything that is in it, as text; fails if its integrity check does
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kvstore.h"

static KVStore *kv;
/* Above 32 bits in milliseconds, and in seconds as well: in the year 2108. */
static int64_t now_ms = 4357986896789;

static int64_t read_clock(void *context)
{
    (void)context;
    return now_ms;
}

static void must(int code, const char *call, int line)
{
    if (code == KVSTORE_OK) return;
    fprintf(stderr, "exchange.c:%d: %s: %s: %s\n", line, call, kvstore_strerror(code), kvstore_errmsg(kv));
    exit(1);
}
#define MUST(call) must((call), #call, __LINE__)

/* Fills memory with bytes that depend on a number only, and are the same on every machine. */
static void fill(unsigned char *bytes, size_t n, uint32_t number)
{
    for (size_t i = 0; i < n; i++) {
        number = number * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(number >> 24);
    }
}

static uint64_t hash(const unsigned char *bytes, size_t n)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < n; i++) hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    return hash;
}

static KVColumnFamily *family(const char *name, int is_new)
{
    KVColumnFamily *cf = NULL;
    if (is_new) {
        MUST(kvstore_cf_create(kv, name, &cf));
    } else {
        MUST(kvstore_cf_open(kv, name, &cf));
    }
    return cf;
}

static void put(KVColumnFamily *cf, const void *key, int n_key, size_t n_value, uint32_t number, int64_t expire_ms)
{
    unsigned char *value = malloc(n_value + 1);
    if (value == NULL) exit(2);
    fill(value, n_value, number);
    if (expire_ms == 0) {
        MUST(kvstore_cf_put(cf, key, n_key, value, (int)n_value));
    } else {
        MUST(kvstore_cf_put_ttl(cf, key, n_key, value, (int)n_value, expire_ms));
    }
    free(value);
}

/* ---- what is written -------------------------------------------------------------------------------- */

/* Keys with all bytes and of many lengths; values of all sizes up to several pages. */
static void write_binary(KVColumnFamily *cf, uint32_t from, uint32_t to)
{
    unsigned char key[300];
    for (uint32_t i = from; i < to; i++) {
        int n = 1 + (int)(i * 7 % 299);
        fill(key, (size_t)n, i);
        key[0] = (unsigned char)i;
        put(cf, key, n, i * i % 9000, i, i % 3 ? 0 : now_ms + 1 + (int64_t)i * 86400000);
    }
}

/* Numbers, which would show a dependency on the byte order of the machine. */
static void count(KVColumnFamily *cf)
{
    int64_t sum;
    MUST(kvstore_cf_increment(cf, "most", 4, INT64_MAX, 0, &sum));
    MUST(kvstore_cf_increment(cf, "least", 5, INT64_MIN, 0, &sum));
    MUST(kvstore_cf_increment(cf, "above 32 bits", 13, INT64_C(0x123456789abcdef), 0, &sum));
    MUST(kvstore_cf_increment(cf, "for a while", 11, -1, now_ms + 60000, &sum));
}

static void write_rows(KVColumnFamily *cf, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        unsigned char partition[3] = {'p', (unsigned char)(i % 5), 0}, column[2], key[64];
        int n = 0;
        column[0] = (unsigned char)(i >> 8), column[1] = (unsigned char)i;
        MUST(kvstore_row_key(partition, sizeof partition, column, sizeof column, key, sizeof key, &n));
        put(cf, key, n, i % 50, i, 0);
    }
}

static void write_all(void)
{
    KVColumnFamily *cf;

    MUST(kvstore_cf_get_default(kv, &cf));
    write_binary(cf, 0, 200);
    MUST(kvstore_begin(kv, 1));
    write_binary(cf, 200, 600);
    MUST(kvstore_commit(kv));
    put(cf, "\xff\xff", 2, 3000000, 1, 0); /* large values */
    put(cf, "\0", 1, 70000, 2, INT64_C(9223372036854775)); /* and a late end */
    put(cf, "dead", 4, 100, 3, INT64_C(94694400000)); /* the first moment that a put takes: 1973 */
    kvstore_cf_close(cf);

    cf = family("Gr\xc3\xb6\xc3\x9f""e, UPPER 'quoted' \"too\"", 1);
    count(cf);
    kvstore_cf_close(cf);

    cf = family("rows", 1);
    write_rows(cf, 0, 400);
    kvstore_cf_close(cf);

    cf = family("by default for an hour", 1);
    MUST(kvstore_cf_set_default_ttl(cf, 3600000));
    put(cf, "k", 1, 10, 4, 0);
    kvstore_cf_close(cf);

    cf = family("with write times", 1);
    MUST(kvstore_cf_set_write_tracking(cf, 1));
    put(cf, "first", 5, 10, 5, 0);
    now_ms += 12345;
    put(cf, "second", 6, 10, 6, now_ms + 1000);
    kvstore_cf_close(cf);

    MUST(kvstore_cf_create(kv, "empty", &cf));
    kvstore_cf_close(cf);
    cf = family("dropped", 1);
    put(cf, "k", 1, 5000, 7, 0);
    kvstore_cf_close(cf);
    MUST(kvstore_cf_drop(kv, "dropped"));
}

static void change_all(void)
{
    KVColumnFamily *cf;
    int64_t sum;
    int changed;

    MUST(kvstore_cf_get_default(kv, &cf));
    write_binary(cf, 300, 900);
    MUST(kvstore_cf_delete(cf, "\xff\xff", 2));
    MUST(kvstore_cf_expire(cf, "\0", 1, now_ms + 5, 0, &changed));
    MUST(kvstore_cf_purge_expired(cf, NULL));
    kvstore_cf_close(cf);
    cf = family("Gr\xc3\xb6\xc3\x9f""e, UPPER 'quoted' \"too\"", 0);
    MUST(kvstore_cf_increment(cf, "most", 4, -1, 0, &sum));
    MUST(kvstore_cf_increment(cf, "above 32 bits", 13, 1, 0, &sum));
    kvstore_cf_close(cf);
    cf = family("rows", 0);
    write_rows(cf, 300, 700);
    kvstore_cf_close(cf);
    cf = family("with write times", 0);
    now_ms += 100;
    put(cf, "first", 5, 20, 8, 0);
    kvstore_cf_close(cf);
    MUST(kvstore_cf_drop(kv, "empty"));
}

/* ---- what is shown ---------------------------------------------------------------------------------- */

static void show_family(const char *name)
{
    KVColumnFamily *cf = family(name, 0);
    int64_t rows, live, next = 0, ttl, written;
    KVIterator *it;
    int tracks;

    MUST(kvstore_cf_count(cf, &rows));
    MUST(kvstore_cf_count_live(cf, &live));
    MUST(kvstore_cf_get_default_ttl(cf, &ttl));
    MUST(kvstore_cf_get_write_tracking(cf, &tracks));
    if (kvstore_cf_next_expiry(cf, &next) != KVSTORE_OK) next = -1;
    printf("family %s: %" PRId64 " rows, %" PRId64 " alive, next %" PRId64 ", ttl %" PRId64 ", tracks %d\n", name, rows,
           live, next, ttl, tracks);
    for (int backwards = 0; backwards < 2; backwards++) {
        uint64_t all = 0;
        MUST(backwards ? kvstore_cf_reverse_iterator_create(cf, &it) : kvstore_cf_iterator_create(cf, &it));
        for (MUST(backwards ? kvstore_iterator_last(it) : kvstore_iterator_first(it)); !kvstore_iterator_eof(it);
             MUST(kvstore_iterator_next(it))) {
            void *key, *value;
            int n_key, n_value;
            int64_t end;
            MUST(kvstore_iterator_key(it, &key, &n_key));
            MUST(kvstore_iterator_value(it, &value, &n_value));
            MUST(kvstore_iterator_expire_ms(it, &end));
            uint64_t of_key = hash(key, (size_t)n_key), of_value = hash(value, (size_t)n_value);
            all = all * 31 + of_key;
            if (backwards) continue;
            printf("%d %016" PRIx64 " %d %016" PRIx64 " %" PRId64, n_key, of_key, n_value, of_value, end);
            if (tracks) {
                MUST(kvstore_cf_write_time(cf, key, n_key, &written));
                printf(" %" PRId64, written);
            }
            putchar('\n');
        }
        kvstore_iterator_close(it);
        printf("%s %016" PRIx64 "\n", backwards ? "backwards" : "forwards", all);
    }
    MUST(kvstore_cf_expiring_iterator_create(cf, 0, INT64_MAX, &it));
    uint64_t in_time = 0;
    for (; !kvstore_iterator_eof(it); MUST(kvstore_iterator_next(it))) {
        int64_t end;
        MUST(kvstore_iterator_expire_ms(it, &end));
        in_time = in_time * 31 + (uint64_t)end;
    }
    kvstore_iterator_close(it);
    printf("in the order of their ends %016" PRIx64 "\n", in_time);
    kvstore_cf_close(cf);
}

static void show_all(void)
{
    char **names, *message = NULL;
    int count;

    if (kvstore_integrity_check(kv, &message) != KVSTORE_OK) {
        fprintf(stderr, "exchange: the integrity check: %s\n", message ? message : kvstore_errmsg(kv));
        exit(1);
    }
    MUST(kvstore_cf_list(kv, &names, &count));
    show_family("default");
    for (int i = 0; i < count; i++) {
        show_family(names[i]);
        kvstore_free(names[i]);
    }
    kvstore_free(names);
}

int main(int argc, char **argv)
{
    const char *what = argc == 3 ? argv[1] : "";
    if (strcmp(what, "write") != 0 && strcmp(what, "leave") != 0 && strcmp(what, "change") != 0 &&
        strcmp(what, "show") != 0) {
        fprintf(stderr, "usage: exchange write|leave|change|show FILE\n");
        return 2;
    }
    MUST(kvstore_open(argv[2], &kv, KVSTORE_JOURNAL_WAL));
    MUST(kvstore_set_clock(kv, read_clock, NULL));
    if (*what == 's') {
        show_all();
    } else if (*what == 'c') {
        change_all();
    } else {
        write_all();
    }
    if (*what == 'l') {
        fflush(NULL);
        _exit(0);
    }
    MUST(kvstore_close(kv));
    return 0;
}

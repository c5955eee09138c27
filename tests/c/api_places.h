/* Helpers of the programs on expiry, conditional writes, ranges, batches, backup and the
 * cleaner. Most of their scenarios run twice: in memory, and on a family of a file. */
#ifndef API_PLACES_H
#define API_PLACES_H

#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#include "stores.h"

static inline KVColumnFamily *family(KVStore *kv, const char *name)
{
    KVColumnFamily *cf = NULL;
    if (kvstore_cf_open(kv, name, &cf) == KVSTORE_NOTFOUND) {
        OK(kvstore_cf_create(kv, name, &cf));
    }
    CHECK(cf != NULL);
    return cf;
}

static inline int is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Where a scenario keeps its keys: in the default family, or in a family with a handle. */
struct place {
    KVStore *kv;
    KVColumnFamily *cf;
    int is_default;
};

/* AT(p, put, ...) calls kvstore_put(...) or kvstore_cf_put(...), depending on the place. */
#define AT(p, function, ...)                                                                             \
    ((p)->is_default ? kvstore_##function((p)->kv, __VA_ARGS__) : kvstore_cf_##function((p)->cf, __VA_ARGS__))

/* Runs a scenario on the default family of a store in memory, and on another family of one in a file. */
static inline void in_both_places(void (*run)(const struct place *))
{
    for (int in_file = 0; in_file < 2; in_file++) {
        clock_ms = 1000;
        struct place p = {open_at(in_file ? "store.db" : NULL, NULL), NULL, !in_file};
        if (in_file) {
            p.cf = family(p.kv, "family");
        } else {
            OK(kvstore_cf_get_default(p.kv, &p.cf));
        }
        run(&p);
        OK(kvstore_integrity_check(p.kv, NULL));
        kvstore_cf_close(p.cf);
        OK(kvstore_close(p.kv));
    }
}

/* The scenario `name`: name_at in both places. */
#define IN_BOTH_PLACES(name)                                                                             \
    static void name(void)                                                                               \
    {                                                                                                    \
        in_both_places(name##_at);                                                                       \
    }

/* Returns whether a get of the key returns exactly this value. */
static inline int is_value(KVColumnFamily *cf, const char *key, int n_key, const char *value, int n_value)
{
    void *found = NULL;
    int n = -1;
    if (kvstore_cf_get(cf, key, n_key, &found, &n) != KVSTORE_OK) {
        return 0;
    }
    int same = found != NULL && n == n_value && memcmp(found, value, (size_t)n) == 0;
    kvstore_free(found);
    return same;
}

static inline int is_gone(KVColumnFamily *cf, const char *key, int n_key)
{
    void *found = &clock_ms;
    int n = -1;
    return kvstore_cf_get(cf, key, n_key, &found, &n) == KVSTORE_NOTFOUND && found == NULL && n == 0;
}

#define HAS(cf, key, value) CHECK(is_value(cf, K(key), K(value)))
#define GONE(cf, key) CHECK(is_gone(cf, K(key)))

#define MISSING INT64_MIN

/* The expiry time of a key, KVSTORE_NO_TTL, or MISSING. */
static inline int64_t end_of(KVColumnFamily *cf, const char *key, int n_key)
{
    int64_t at = MISSING;
    int code = kvstore_cf_expire_time(cf, key, n_key, &at);
    CHECK(code == KVSTORE_OK || (code == KVSTORE_NOTFOUND && at == MISSING));
    return at;
}

#define ENDS(cf, key, expire_ms) CHECK(end_of(cf, K(key)) == (expire_ms))

static inline int64_t rows_of(KVColumnFamily *cf)
{
    int64_t count = -1;
    OK(kvstore_cf_count(cf, &count));
    return count;
}

static inline int64_t live_of(KVColumnFamily *cf)
{
    int64_t count = -1;
    OK(kvstore_cf_count_live(cf, &count));
    return count;
}

static inline int64_t live_at(const struct place *p)
{
    int64_t count = -1;
    OK(AT(p, count_live, &count));
    return count;
}

/* Returns the remaining keys of an iterator, each followed by a space, and closes it. */
static inline const char *keys_of(KVIterator *it)
{
    static char text[4096];
    size_t used = 0;
    while (!kvstore_iterator_eof(it)) {
        void *key;
        int n;
        OK(kvstore_iterator_key(it, &key, &n));
        CHECK(n >= 0 && used + (size_t)n + 2 < sizeof text);
        memcpy(text + used, key, (size_t)n);
        used += (size_t)n;
        text[used++] = ' ';
        OK(kvstore_iterator_next(it));
    }
    text[used] = '\0';
    kvstore_iterator_close(it);
    return text;
}

#endif

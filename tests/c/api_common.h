/* Helpers of the programs of tests/c_api. */
#ifndef API_COMMON_H
#define API_COMMON_H

#include "stores.h"

/* Where a scenario keeps its keys: in the default family, by the handle of the store, or in a
 * family with a handle. */
struct place {
    KVStore *kv;
    KVColumnFamily *cf;
};

/* AT(p, put, ...) calls kvstore_put(...) or kvstore_cf_put(...), depending on the place. */
#define AT(p, function, ...)                                                                             \
    ((p)->cf ? kvstore_cf_##function((p)->cf, __VA_ARGS__) : kvstore_##function((p)->kv, __VA_ARGS__))
#define CLEAR(p) ((p)->cf ? kvstore_cf_clear((p)->cf) : kvstore_clear((p)->kv))

/* Runs a scenario on the default family of a new store, and on a family of another one. */
static inline void in_both_forms(void (*run)(const struct place *))
{
    for (int with_family = 0; with_family < 2; with_family++) {
        clock_ms = 1000;
        struct place p = {open_at(NULL, NULL), NULL};
        if (with_family) {
            OK(kvstore_cf_create(p.kv, "family", &p.cf));
        }
        run(&p);
        OK(kvstore_integrity_check(p.kv, NULL));
        kvstore_cf_close(p.cf);
        OK(kvstore_close(p.kv));
    }
}

/* The scenario `name` for both forms of the functions: in_both_forms(name_at). */
#define BOTH_FORMS(name)                                                                                 \
    static void name(void)                                                                               \
    {                                                                                                    \
        in_both_forms(name##_at);                                                                        \
    }

/* Returns whether a get of the key returns exactly this value. */
static inline int is_value(const struct place *p, const char *key, int n_key, const char *value, int n_value)
{
    void *found = NULL;
    int n = -1;
    if (AT(p, get, key, n_key, &found, &n) != KVSTORE_OK) {
        return 0;
    }
    int same = found != NULL && n == n_value && memcmp(found, value, (size_t)n) == 0;
    kvstore_free(found);
    return same;
}

/* Returns whether a get of the key returns NOTFOUND, with its outputs as documented. */
static inline int is_gone(const struct place *p, const char *key, int n_key)
{
    void *found = &clock_ms;
    int n = -1;
    return AT(p, get, key, n_key, &found, &n) == KVSTORE_NOTFOUND && found == NULL && n == 0;
}

#define HAS(p, key, value) CHECK(is_value(p, K(key), K(value)))
#define GONE(p, key) CHECK(is_gone(p, K(key)))

static inline int64_t rows(const struct place *p)
{
    int64_t count = -1;
    OK(AT(p, count, &count));
    return count;
}

#endif

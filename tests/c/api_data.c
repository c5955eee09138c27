/* put, get, delete, exists, put_if_absent, count and clear, on the default family and on
 * another. */
#include "api_common.h"

static void put_and_get_at(const struct place *p)
{
    OK(AT(p, put, K("key"), K("value")));
    void *value = NULL;
    int n = -1;
    OK(AT(p, get, K("key"), &value, &n));
    CHECK(n == 5 && memcmp(value, "value", 5) == 0);
    CHECK(((char *)value)[5] == '\0'); /* so a text can be used as one */
    OK(AT(p, put, K("key"), K("another")));
    CHECK(memcmp(value, "value", 6) == 0); /* a copy */
    kvstore_free(value);
    HAS(p, "key", "another");

    OK(AT(p, put, K("a\0b"), K("v\0w"))); /* any bytes */
    OK(AT(p, put, K("a\0c"), K("\xff\0")));
    OK(AT(p, put, K("\0"), K("nul")));
    OK(AT(p, put, K("\xff\xff"), K("high")));
    HAS(p, "a\0b", "v\0w");
    HAS(p, "a\0c", "\xff\0");
    HAS(p, "\0", "nul");
    HAS(p, "\xff\xff", "high");
    GONE(p, "a");
    GONE(p, "a\0b\0");
    GONE(p, "Key"); /* case matters */
}
BOTH_FORMS(put_and_get)

static void arguments_are_copied_at(const struct place *p)
{
    char key[] = "key", value[] = "value";
    OK(AT(p, put, key, 3, value, 5));
    memset(key, 'x', 3);
    memset(value, 'x', 5);
    HAS(p, "key", "value");
}
BOTH_FORMS(arguments_are_copied)

static void missing_keys_at(const struct place *p)
{
    void *value = &clock_ms;
    int n = 7;
    GIVES(KVSTORE_NOTFOUND, AT(p, get, K("missing"), &value, &n));
    CHECK(value == NULL && n == 0);

    int64_t remaining = 7;
    value = &clock_ms;
    n = 7;
    GIVES(KVSTORE_NOTFOUND, AT(p, get_ttl, K("missing"), &value, &n, &remaining));
    CHECK(value == NULL && n == 0 && remaining == 0);

    GIVES(KVSTORE_NOTFOUND, AT(p, delete, K("missing")));
    int there = 7;
    OK(AT(p, exists, K("missing"), &there));
    CHECK(there == 0);
    CHECK(rows(p) == 0);
}
BOTH_FORMS(missing_keys)

static void empty_values_at(const struct place *p)
{
    OK(AT(p, put, K("null"), NULL, 0));
    OK(AT(p, put, K("text"), "", 0));
    OK(AT(p, put_ttl, K("ttl"), NULL, 0, 5000));
    OK(AT(p, put_if_absent, K("absent"), NULL, 0, 0, NULL));
    const char *const keys[] = {"null", "text", "ttl", "absent"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int length = (int)strlen(keys[i]), n = -1, there = 0;
        void *value = NULL;
        OK(AT(p, get, keys[i], length, &value, &n));
        CHECK(value != NULL && n == 0 && *(char *)value == '\0');
        kvstore_free(value);
        value = NULL;
        n = -1;
        OK(AT(p, get_ttl, keys[i], length, &value, &n, NULL));
        CHECK(value != NULL && n == 0 && *(char *)value == '\0');
        kvstore_free(value);
        OK(AT(p, exists, keys[i], length, &there));
        CHECK(there == 1);
    }
    OK(AT(p, put, K("null"), K("full")));
    OK(AT(p, put, K("null"), NULL, 0));
    HAS(p, "null", "");
}
BOTH_FORMS(empty_values)

static void lengths_at(const struct place *p)
{
    enum { MAX_VALUE = 10 * 1024 * 1024 };
    const int max_key = max_key_size();
    char *bytes = kvstore_malloc(MAX_VALUE);
    CHECK(bytes != NULL);
    memset(bytes, 'b', MAX_VALUE);
    OK(AT(p, put, K("k"), bytes, MAX_VALUE));
    CHECK(is_value(p, K("k"), bytes, MAX_VALUE));
    OK(AT(p, put, bytes, max_key, K("long key")));
    CHECK(is_value(p, bytes, max_key, K("long key")));
    OK(AT(p, put, bytes, max_key - 1, K("shorter")));
    CHECK(is_value(p, bytes, max_key, K("long key")));
    kvstore_free(bytes);

    /* Invalid lengths are rejected before the bytes at the pointers are read. */
    char one = 'x';
    const int bad_keys[] = {0, -1, INT32_MIN, max_key + 1, INT32_MAX};
    for (size_t i = 0; i < sizeof bad_keys / sizeof *bad_keys; i++) {
        int n = bad_keys[i], there = 7, length = 7;
        void *value = &one;
        int64_t remaining = 7;
        GIVES(KVSTORE_ERROR, AT(p, put, &one, n, "v", 1));
        GIVES(KVSTORE_ERROR, AT(p, put_ttl, &one, n, "v", 1, 5000));
        GIVES(KVSTORE_ERROR, AT(p, put_if_absent, &one, n, "v", 1, 0, &there));
        GIVES(KVSTORE_ERROR, AT(p, get, &one, n, &value, &length));
        GIVES(KVSTORE_ERROR, AT(p, get_ttl, &one, n, &value, &length, &remaining));
        GIVES(KVSTORE_ERROR, AT(p, ttl_remaining, &one, n, &remaining));
        GIVES(KVSTORE_ERROR, AT(p, delete, &one, n));
        GIVES(KVSTORE_ERROR, AT(p, exists, &one, n, &there));
        CHECK(value == &one && length == 7 && remaining == 7 && there == 7); /* only success writes */
    }
    const int bad_values[] = {-1, INT32_MIN, MAX_VALUE + 1, INT32_MAX};
    for (size_t i = 0; i < sizeof bad_values / sizeof *bad_values; i++) {
        int n = bad_values[i], inserted = 7;
        GIVES(KVSTORE_ERROR, AT(p, put, K("new"), &one, n));
        GIVES(KVSTORE_ERROR, AT(p, put_ttl, K("new"), &one, n, 5000));
        GIVES(KVSTORE_ERROR, AT(p, put_if_absent, K("new"), &one, n, 0, &inserted));
        GIVES(KVSTORE_ERROR, AT(p, put_if_absent, K("k"), &one, n, 0, &inserted));
        CHECK(inserted == 7);
    }
    GIVES(KVSTORE_ERROR, AT(p, put, K("new"), NULL, 1));
    GONE(p, "new");
    CHECK(rows(p) == 3);
}
BOTH_FORMS(lengths)

static void delete_at(const struct place *p)
{
    OK(AT(p, put, K("key"), K("value")));
    OK(AT(p, put, K("other"), K("stays")));
    OK(AT(p, delete, K("key")));
    GONE(p, "key");
    GIVES(KVSTORE_NOTFOUND, AT(p, delete, K("key")));
    HAS(p, "other", "stays");

    OK(AT(p, put_ttl, K("ttl"), K("value"), 2000));
    OK(AT(p, delete, K("ttl")));
    OK(AT(p, put, K("ttl"), K("again")));
    clock_ms = 2000;
    HAS(p, "ttl", "again"); /* the TTL was deleted with the key */

    OK(AT(p, put_ttl, K("dead"), K("value"), 3000));
    clock_ms = 3000;
    GIVES(KVSTORE_NOTFOUND, AT(p, delete, K("dead")));
    GONE(p, "dead");
}
BOTH_FORMS(delete)

static void exists_at(const struct place *p)
{
    int there = 7;
    OK(AT(p, put, K("key"), K("value")));
    OK(AT(p, put_ttl, K("ttl"), K("value"), 2000));
    OK(AT(p, exists, K("key"), &there));
    CHECK(there == 1);
    there = 7;
    OK(AT(p, exists, K("ttl"), &there));
    CHECK(there == 1);
    clock_ms = 1999;
    OK(AT(p, exists, K("ttl"), &there));
    CHECK(there == 1);
    clock_ms = 2000;
    OK(AT(p, exists, K("ttl"), &there));
    CHECK(there == 0);
    OK(AT(p, delete, K("key")));
    there = 7;
    OK(AT(p, exists, K("key"), &there));
    CHECK(there == 0);
    GIVES(KVSTORE_ERROR, AT(p, exists, K("key"), NULL));
}
BOTH_FORMS(exists)

static void put_if_absent_at(const struct place *p)
{
    int inserted = 7;
    OK(AT(p, put_if_absent, K("key"), K("first"), 0, &inserted)); /* missing */
    CHECK(inserted == 1);
    HAS(p, "key", "first");

    inserted = 7;
    OK(AT(p, put_if_absent, K("key"), K("second"), 5000, &inserted)); /* live */
    CHECK(inserted == 0);
    HAS(p, "key", "first");
    int64_t remaining = 7;
    OK(AT(p, ttl_remaining, K("key"), &remaining));
    CHECK(remaining == KVSTORE_NO_TTL); /* keeps that it has no TTL */

    OK(AT(p, put_if_absent, K("ttl"), K("first"), 2000, &inserted));
    CHECK(inserted == 1);
    OK(AT(p, put_if_absent, K("ttl"), K("second"), 0, &inserted));
    CHECK(inserted == 0);
    OK(AT(p, ttl_remaining, K("ttl"), &remaining));
    CHECK(remaining == 1000); /* keeps its TTL */
    HAS(p, "ttl", "first");

    clock_ms = 2000;
    OK(AT(p, put_if_absent, K("ttl"), K("third"), 3000, &inserted)); /* expired */
    CHECK(inserted == 1);
    HAS(p, "ttl", "third");
    OK(AT(p, ttl_remaining, K("ttl"), &remaining));
    CHECK(remaining == 1000);

    clock_ms = 3000;
    OK(AT(p, put_if_absent, K("ttl"), K("fourth"), 0, &inserted)); /* expired, now for ever */
    CHECK(inserted == 1);
    OK(AT(p, ttl_remaining, K("ttl"), &remaining));
    CHECK(remaining == KVSTORE_NO_TTL);

    OK(AT(p, put_if_absent, K("null"), K("value"), 0, NULL)); /* NULL is allowed */
    OK(AT(p, put_if_absent, K("null"), K("other"), 0, NULL));
    HAS(p, "null", "value");

    inserted = 7;
    OK(AT(p, put_if_absent, K("past"), K("value"), 1, &inserted));
    CHECK(inserted == 1);
    GONE(p, "past");
    inserted = 7;
    GIVES(KVSTORE_ERROR, AT(p, put_if_absent, K("negative"), K("value"), -2, &inserted));
    GIVES(KVSTORE_ERROR, AT(p, put_if_absent, K("negative"), K("value"), INT64_MIN, &inserted));
    CHECK(inserted == 7);
    GONE(p, "negative");
}
BOTH_FORMS(put_if_absent)

static void count_at(const struct place *p)
{
    CHECK(rows(p) == 0);
    OK(AT(p, put, K("a"), K("1")));
    OK(AT(p, put, K("a"), K("2"))); /* the same row */
    OK(AT(p, put_ttl, K("b"), K("1"), 2000));
    OK(AT(p, put_ttl, K("c"), K("1"), 2000));
    OK(AT(p, put_ttl, K("d"), K("1"), 3000));
    CHECK(rows(p) == 4);
    clock_ms = 2000;
    CHECK(rows(p) == 4); /* expired rows count */
    int purged = -1;
    OK(AT(p, purge_expired, &purged));
    CHECK(purged == 2 && rows(p) == 2);
    GIVES(KVSTORE_ERROR, AT(p, count, NULL));
}
BOTH_FORMS(count)

static void clear_at(const struct place *p)
{
    struct place other = {p->kv, NULL};
    OK(kvstore_cf_create(p->kv, "other", &other.cf));
    OK(AT(&other, put_ttl, K("key"), K("stays"), 2000));

    OK(CLEAR(p)); /* of an empty family */
    char large[20000];
    memset(large, 'l', sizeof large);
    OK(AT(p, put, K("key"), K("value")));
    OK(AT(p, put_ttl, K("ttl"), K("value"), 2000));
    OK(AT(p, put, K("large"), large, sizeof large));
    OK(CLEAR(p));
    CHECK(rows(p) == 0);
    GONE(p, "key");
    GONE(p, "ttl");
    GONE(p, "large");
    HAS(&other, "key", "stays");

    OK(AT(p, put, K("ttl"), K("again")));
    clock_ms = 2000;
    HAS(p, "ttl", "again"); /* no TTL is left behind */
    int purged = -1;
    OK(AT(p, purge_expired, &purged));
    CHECK(purged == 0);
    CHECK(rows(&other) == 1);
    kvstore_cf_close(other.cf);
}
BOTH_FORMS(clear)

/* Values of all sizes, including those around the size from which a value is stored outside its
 * row, replace each other. */
static void values_of_all_sizes_at(const struct place *p)
{
    static const int sizes[] = {0, 64, 65, 252, 253, 254, 4000, 5000, 100000};
    enum { N = sizeof sizes / sizeof *sizes };
    static char bytes[100000];
    for (int i = 0; i < sizes[N - 1]; i++) {
        bytes[i] = (char)(i * 31 + i / 251);
    }
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) {
            OK(AT(p, put, K("key"), bytes, sizes[i]));
            OK(AT(p, put, K("key"), bytes, sizes[j]));
            CHECK(is_value(p, K("key"), bytes, sizes[j]));
        }
    }
    CHECK(rows(p) == 1);
}
BOTH_FORMS(values_of_all_sizes)

/* kvstore_x(kv, ...) and kvstore_cf_x(default family, ...) have the same effect. */
static void default_family(void)
{
    struct place by_store = {open_at(NULL, NULL), NULL}, by_family = by_store;
    OK(kvstore_cf_get_default(by_store.kv, &by_family.cf));
    OK(AT(&by_store, put, K("a"), K("1")));
    HAS(&by_family, "a", "1");
    OK(AT(&by_family, put_ttl, K("b"), K("2"), 2000));
    HAS(&by_store, "b", "2");
    CHECK(rows(&by_store) == 2 && rows(&by_family) == 2);
    OK(AT(&by_family, delete, K("a")));
    GONE(&by_store, "a");
    clock_ms = 2000;
    int purged = -1;
    OK(AT(&by_store, purge_expired, &purged));
    CHECK(purged == 1 && rows(&by_family) == 0);
    kvstore_cf_close(by_family.cf);
    OK(kvstore_close(by_store.kv));
}

SCENARIOS({"put_and_get", put_and_get}, {"arguments_are_copied", arguments_are_copied},
          {"missing_keys", missing_keys}, {"empty_values", empty_values}, {"lengths", lengths},
          {"delete", delete}, {"exists", exists}, {"put_if_absent", put_if_absent}, {"count", count},
          {"clear", clear}, {"values_of_all_sizes", values_of_all_sizes}, {"default_family", default_family})

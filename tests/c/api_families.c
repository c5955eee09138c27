/* Families: create, open, get_default, drop, list, name, close. */
#include "api_common.h"

static KVColumnFamily *create(KVStore *kv, const char *name)
{
    KVColumnFamily *cf = NULL;
    OK(kvstore_cf_create(kv, name, &cf));
    CHECK(cf != NULL);
    return cf;
}

/* Asserts that the call returns this code and sets its handle output to NULL, whatever it was
 * before. */
#define NO_FAMILY(code, function, kv, name)                                                              \
    do {                                                                                                 \
        KVColumnFamily *no_cf = (KVColumnFamily *)&clock_ms;                                             \
        GIVES(code, function(kv, name, &no_cf));                                                         \
        CHECK(no_cf == NULL);                                                                            \
    } while (0)

/* Runs a Python program on the test's file, in another process. */
static int python(const char *program)
{
    char command[1000];
    snprintf(command, sizeof command, "python3 -c \"import sqlite3; db = sqlite3.connect('test.db'); %s\"",
             program);
    return system(command);
}

static void create_and_open(void)
{
    KVStore *kv = open_at("test.db", NULL);
    NO_FAMILY(KVSTORE_NOTFOUND, kvstore_cf_open, kv, "users");
    struct place users = {kv, create(kv, "users")}, again = {kv, NULL}, other = {kv, create(kv, "Users")},
                 by_default = {kv, NULL};
    OK(AT(&users, put, K("key"), K("value")));
    OK(kvstore_cf_open(kv, "users", &again.cf));
    HAS(&again, "key", "value"); /* both handles are on the one family */
    GONE(&other, "key");         /* case matters */
    GONE(&by_default, "key");    /* each family has keys of its own */

    NO_FAMILY(KVSTORE_ERROR, kvstore_cf_create, kv, "users");
    HAS(&users, "key", "value");

    kvstore_cf_close(users.cf);
    HAS(&again, "key", "value"); /* each handle is independent */
    kvstore_cf_close(again.cf);
    kvstore_cf_close(other.cf);
    OK(kvstore_close(kv));

    kv = users.kv = open_at("test.db", NULL);
    OK(kvstore_cf_open(kv, "users", &users.cf)); /* families are in the file */
    HAS(&users, "key", "value");
    kvstore_cf_close(users.cf);
    OK(kvstore_close(kv));
}

static void the_default_family(void)
{
    KVStore *kv = open_at(NULL, NULL);
    struct place by_store = {kv, NULL}, got = {kv, NULL}, opened = {kv, NULL};
    OK(kvstore_cf_get_default(kv, &got.cf));
    OK(kvstore_cf_open(kv, "default", &opened.cf));
    OK(AT(&by_store, put, K("key"), K("value")));
    HAS(&got, "key", "value");
    HAS(&opened, "key", "value");
    CHECK(strcmp(kvstore_cf_name(got.cf), "default") == 0);
    CHECK(strcmp(kvstore_cf_name(opened.cf), "default") == 0);
    NO_FAMILY(KVSTORE_ERROR, kvstore_cf_create, kv, "default"); /* it exists */
    GIVES(KVSTORE_ERROR, kvstore_cf_drop(kv, "default"));
    kvstore_cf_close(got.cf);
    kvstore_cf_close(opened.cf);
    GIVES(KVSTORE_ERROR, kvstore_cf_drop(kv, "default")); /* also without a handle on it */
    HAS(&by_store, "key", "value");
    OK(kvstore_close(kv));
}

static void names(void)
{
    KVStore *kv = open_at(NULL, NULL);
    static const char *const reserved[] = {"__",      "__x",       "_snkv_",  "_snkv_x",
                                           "kvstore", "kvstore_x", "kvstorex"};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) {
        NO_FAMILY(KVSTORE_ERROR, kvstore_cf_create, kv, reserved[i]);
        NO_FAMILY(KVSTORE_ERROR, kvstore_cf_open, kv, reserved[i]);
        GIVES(KVSTORE_ERROR, kvstore_cf_drop(kv, reserved[i]));
    }

    char longest[257];
    memset(longest, 'n', sizeof longest);
    longest[256] = '\0';
    const char *const bad[] = {"", longest, "\xff", "a\xc3", NULL};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        NO_FAMILY(KVSTORE_ERROR, kvstore_cf_create, kv, bad[i]);
        NO_FAMILY(KVSTORE_ERROR, kvstore_cf_open, kv, bad[i]);
        GIVES(KVSTORE_ERROR, kvstore_cf_drop(kv, bad[i]));
    }

    longest[255] = '\0';
    const char *const good[] = {longest, "_",  "_x", "_snkv", "_SNKV_", "kvstor", "Kvstore",
                                "x__",   "a b", "it's", "\"",  ";",      ":",      "data:x",
                                "^",     "^U", "%s", "\n",    "\xc3\xa4", "DEFAULT"};
    enum { N = sizeof good / sizeof *good };
    for (int i = 0; i < N; i++) {
        struct place p = {kv, create(kv, good[i])};
        CHECK(strcmp(kvstore_cf_name(p.cf), good[i]) == 0);
        OK(AT(&p, put_ttl, K("key"), good[i], (int)strlen(good[i]), 2000));
        kvstore_cf_close(p.cf);
    }
    for (int i = 0; i < N; i++) {
        struct place p = {kv, NULL};
        OK(kvstore_cf_open(kv, good[i], &p.cf));
        CHECK(is_value(&p, K("key"), good[i], (int)strlen(good[i])));
        CHECK(rows(&p) == 1);
        kvstore_cf_close(p.cf);
    }
    OK(kvstore_integrity_check(kv, NULL));
    for (int i = 0; i < N; i++) {
        OK(kvstore_cf_drop(kv, good[i]));
    }
    CHECK(strcmp(kvstore_cf_name(NULL), "") == 0);
    OK(kvstore_close(kv));
}

static void drop(void)
{
    files_are_plain();
    KVStore *kv = open_at("test.db", NULL);
    GIVES(KVSTORE_NOTFOUND, kvstore_cf_drop(kv, "users"));
    struct place users = {kv, create(kv, "users")}, second = {kv, NULL};
    OK(kvstore_cf_open(kv, "users", &second.cf));
    char large[20000];
    memset(large, 'l', sizeof large);
    OK(AT(&users, put_ttl, K("ttl"), K("value"), 2000));
    OK(AT(&users, put, K("large"), large, sizeof large));

    GIVES(KVSTORE_BUSY, kvstore_cf_drop(kv, "users")); /* two handles are open */
    kvstore_cf_close(second.cf);
    GIVES(KVSTORE_BUSY, kvstore_cf_drop(kv, "users"));
    HAS(&users, "ttl", "value");
    kvstore_cf_close(users.cf);
    OK(kvstore_cf_drop(kv, "users"));
    GIVES(KVSTORE_NOTFOUND, kvstore_cf_drop(kv, "users"));
    NO_FAMILY(KVSTORE_NOTFOUND, kvstore_cf_open, kv, "users");

    users.cf = create(kv, "users"); /* a new one, with nothing of the old one in it */
    GONE(&users, "ttl");
    CHECK(rows(&users) == 0);
    int purged = -1;
    clock_ms = 2000;
    OK(AT(&users, purge_expired, &purged));
    CHECK(purged == 0);
    kvstore_cf_close(users.cf);
    OK(kvstore_cf_drop(kv, "users"));
    OK(kvstore_integrity_check(kv, NULL));
    OK(kvstore_close(kv));

    /* None of its tables is left, as another program sees. */
    CHECK(python("assert not [n for n, in db.execute('SELECT name FROM sqlite_schema') if 'users' in n]") == 0);
}

static void drop_in_a_transaction(void)
{
    KVStore *kv = open_at(NULL, NULL);
    struct place users = {kv, create(kv, "users")};
    OK(AT(&users, put_ttl, K("key"), K("value"), 2000));
    kvstore_cf_close(users.cf);
    OK(kvstore_begin(kv, 1));
    OK(kvstore_cf_drop(kv, "users"));
    struct place other = {kv, create(kv, "other")};
    kvstore_cf_close(other.cf);
    OK(kvstore_rollback(kv));
    NO_FAMILY(KVSTORE_NOTFOUND, kvstore_cf_open, kv, "other");
    OK(kvstore_cf_open(kv, "users", &users.cf));
    HAS(&users, "key", "value");
    kvstore_cf_close(users.cf);
    OK(kvstore_begin(kv, 0));
    NO_FAMILY(KVSTORE_READONLY, kvstore_cf_create, kv, "other");
    GIVES(KVSTORE_READONLY, kvstore_cf_drop(kv, "users"));
    OK(kvstore_commit(kv));
    OK(kvstore_close(kv));
}

static void list(void)
{
    KVStore *kv = open_at(NULL, NULL);
    char **listed = NULL;
    int n = -1;
    OK(kvstore_cf_list(kv, &listed, &n)); /* "default" is no family of the user's */
    CHECK(n == 0 && listed != NULL && listed[0] == NULL);
    kvstore_free(listed);

    static const char *const made[] = {"b", "a\"", "B", "a", "\xc3\xa4"};
    static const char *const sorted[] = {"B", "a", "a\"", "b", "\xc3\xa4"};
    for (int i = 0; i < 5; i++) {
        kvstore_cf_close(create(kv, made[i]));
    }
    OK(kvstore_cf_list(kv, &listed, &n));
    CHECK(n == 5 && listed[5] == NULL);
    for (int i = 0; i < 5; i++) {
        CHECK(strcmp(listed[i], sorted[i]) == 0);
        kvstore_free(listed[i]);
    }
    kvstore_free(listed);

    OK(kvstore_cf_drop(kv, "a"));
    OK(kvstore_cf_list(kv, &listed, &n));
    CHECK(n == 4 && strcmp(listed[0], "B") == 0 && strcmp(listed[1], "a\"") == 0);
    OK(kvstore_close(kv));
    CHECK(strcmp(listed[3], "\xc3\xa4") == 0); /* the caller's own, also after the close */
    for (int i = 0; i <= n; i++) {
        kvstore_free(listed[i]); /* the NULL after them, too */
    }
    kvstore_free(listed);

    kv = open_at(NULL, NULL);
    listed = (char **)&clock_ms;
    n = 7;
    GIVES(KVSTORE_ERROR, kvstore_cf_list(kv, NULL, &n));
    GIVES(KVSTORE_ERROR, kvstore_cf_list(kv, &listed, NULL));
    GIVES(KVSTORE_ERROR, kvstore_cf_list(NULL, &listed, &n));
    CHECK(listed == (char **)&clock_ms && n == 7);
    OK(kvstore_close(kv));
}

static void many_families(void)
{
    enum { N = KVSTORE_MAX_COLUMN_FAMILIES + 20 };
    _Static_assert(KVSTORE_MAX_COLUMN_FAMILIES == 64, "the documented number");
    KVStore *kv = open_at(NULL, NULL);
    struct place families[N];
    char name[16];
    for (int i = 0; i < N; i++) { /* all open at once */
        snprintf(name, sizeof name, "family %03d", i);
        families[i] = (struct place){kv, create(kv, name)};
        OK(AT(&families[i], put_ttl, K("key"), name, (int)strlen(name), 2000));
    }
    char **listed = NULL;
    int n = -1;
    OK(kvstore_cf_list(kv, &listed, &n));
    CHECK(n == N);
    for (int i = 0; i < N; i++) {
        CHECK(strcmp(listed[i], kvstore_cf_name(families[i].cf)) == 0);
        CHECK(is_value(&families[i], K("key"), listed[i], (int)strlen(listed[i])));
        kvstore_cf_close(families[i].cf);
        kvstore_free(listed[i]);
    }
    kvstore_free(listed);
    OK(kvstore_close(kv));
}

static void close_of_the_store(void)
{
    KVStore *kv = open_at(NULL, NULL);
    struct place users = {kv, create(kv, "users")}, by_default = {kv, NULL};
    OK(kvstore_cf_get_default(kv, &by_default.cf));
    OK(AT(&users, put, K("key"), K("value")));
    OK(kvstore_close(kv));
    for (int i = 0; i < 2; i++) {
        const struct place *p = i ? &users : &by_default;
        void *value = &clock_ms;
        int n = 7;
        int64_t count = 7;
        KVIterator *it = (KVIterator *)&clock_ms;
        GIVES(KVSTORE_MISUSE, AT(p, get, K("key"), &value, &n));
        GIVES(KVSTORE_MISUSE, AT(p, get_ttl, K("key"), &value, &n, &count));
        GIVES(KVSTORE_MISUSE, AT(p, ttl_remaining, K("key"), &count));
        GIVES(KVSTORE_MISUSE, AT(p, exists, K("key"), &n));
        GIVES(KVSTORE_MISUSE, AT(p, put, K("key"), K("value")));
        GIVES(KVSTORE_MISUSE, AT(p, put_ttl, K("key"), K("value"), 0));
        GIVES(KVSTORE_MISUSE, AT(p, put_if_absent, K("key"), K("value"), 0, &n));
        GIVES(KVSTORE_MISUSE, AT(p, delete, K("key")));
        GIVES(KVSTORE_MISUSE, AT(p, count, &count));
        GIVES(KVSTORE_MISUSE, AT(p, purge_expired, &n));
        GIVES(KVSTORE_MISUSE, CLEAR(p));
        CHECK(value == &clock_ms && n == 7 && count == 7);
        GIVES(KVSTORE_MISUSE, AT(p, prefix_iterator_create, K("k"), &it));
        CHECK(it == NULL);
    }
    CHECK(strcmp(kvstore_cf_name(users.cf), "users") == 0);
    kvstore_cf_close(users.cf);
    kvstore_cf_close(by_default.cf);
    GIVES(KVSTORE_MISUSE, AT(&users, put, K("key"), K("value"))); /* a closed handle */
    kvstore_cf_close(users.cf);
    kvstore_cf_close(NULL);

    NO_FAMILY(KVSTORE_MISUSE, kvstore_cf_create, kv, "users");
    NO_FAMILY(KVSTORE_MISUSE, kvstore_cf_open, kv, "users");
    KVColumnFamily *cf = (KVColumnFamily *)&clock_ms;
    GIVES(KVSTORE_MISUSE, kvstore_cf_get_default(kv, &cf));
    CHECK(cf == NULL);
    GIVES(KVSTORE_MISUSE, kvstore_cf_drop(kv, "users"));
    char **listed = NULL;
    int n = 7;
    GIVES(KVSTORE_MISUSE, kvstore_cf_list(kv, &listed, &n));
    CHECK(listed == NULL && n == 7);
}

SCENARIOS({"create_and_open", create_and_open}, {"the_default_family", the_default_family}, {"names", names},
          {"drop", drop}, {"drop_in_a_transaction", drop_in_a_transaction}, {"list", list},
          {"many_families", many_families}, {"close_of_the_store", close_of_the_store})

/* kvstore_open_encrypted and related functions. In a build without encryption, they must report
 * that it is missing. */
#include <limits.h>
#include <unistd.h>

#include "api_common.h"

#define PATH "secret.db"
#define PASSWORD "correct horse"

static const char raw_key[] = "x'000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f'";

static int here(void)
{
    return strstr(kvstore_engine(), "+sqlcipher") != NULL;
}

static KVColumnFamily *family(KVStore *kv, const char *name)
{
    KVColumnFamily *cf = NULL;
    if (kvstore_cf_open(kv, name, &cf) == KVSTORE_NOTFOUND) {
        OK(kvstore_cf_create(kv, name, &cf));
    }
    CHECK(cf != NULL);
    return cf;
}

static KVStore *encrypted(const char *password)
{
    KVStore *kv = NULL;
    OK(kvstore_open_encrypted(PATH, password, (int)strlen(password), &kv, NULL));
    CHECK(kv != NULL && kvstore_is_encrypted(kv) == 1);
    OK(kvstore_set_clock(kv, read_clock, &clock_ms));
    return kv;
}

/* This password is rejected, and nothing is changed. */
static void refused(int code, const char *password)
{
    KVStore *kv = UNTOUCHED_POINTER;
    GIVES(code, password ? kvstore_open_encrypted(PATH, password, (int)strlen(password), &kv, NULL)
                         : kvstore_open(PATH, &kv, 0));
    CHECK(kv == NULL && strstr(kvstore_errmsg(NULL), password ? password : "pass me by") == NULL);
}

static void fill(KVStore *kv)
{
    KVColumnFamily *cf = family(kv, "others");
    OK(kvstore_put(kv, K("plain"), K("value")));
    OK(kvstore_put_ttl(kv, K("ends"), K("soon"), 6000));
    OK(kvstore_cf_set_default_ttl(cf, 90000));
    OK(kvstore_cf_put(cf, K("by default"), K("value")));
    kvstore_cf_close(cf);
}

static void check_contents(KVStore *kv)
{
    struct place p = {kv, NULL};
    int64_t ms = 0;
    HAS(&p, "plain", "value");
    HAS(&p, "ends", "soon");
    OK(kvstore_ttl_remaining(kv, K("ends"), &ms));
    CHECK(ms == 5000);
    struct place others = {kv, family(kv, "others")};
    HAS(&others, "by default", "value");
    OK(kvstore_cf_ttl_remaining(others.cf, K("by default"), &ms));
    CHECK(ms == 90000);
    kvstore_cf_close(others.cf);
    OK(kvstore_integrity_check(kv, NULL));
}

/* Creates an encrypted store, opens it, changes its password, and tries to open it without one. */
static void life(void)
{
    if (!here()) {
        return;
    }
    KVStore *kv = encrypted(PASSWORD);
    fill(kv);
    KVColumnFamily *cf = family(kv, "others");
    KVIterator *it = NULL;
    OK(kvstore_cf_iterator_create(cf, &it));
    OK(kvstore_iterator_first(it));
    OK(kvstore_reencrypt(kv, raw_key, (int)sizeof raw_key - 1));
    CHECK(kvstore_is_encrypted(kv) == 1 && kvstore_iterator_eof(it) == 0);
    OK(kvstore_iterator_next(it));
    CHECK(kvstore_iterator_eof(it) == 1);
    kvstore_iterator_close(it);
    struct place others = {kv, cf};
    HAS(&others, "by default", "value");
    kvstore_cf_close(cf);
    check_contents(kv);
    OK(kvstore_close(kv));
    refused(KVSTORE_AUTH_FAILED, PASSWORD);
    refused(KVSTORE_AUTH_FAILED, NULL);

    kv = encrypted(raw_key);
    check_contents(kv);
    OK(kvstore_remove_encryption(kv));
    CHECK(kvstore_is_encrypted(kv) == 0);
    check_contents(kv);
    GIVES(KVSTORE_ERROR, kvstore_remove_encryption(kv));
    GIVES(KVSTORE_ERROR, kvstore_reencrypt(kv, K(PASSWORD)));
    OK(kvstore_close(kv));
    OK(kvstore_open(PATH, &kv, 0));
    OK(kvstore_set_clock(kv, read_clock, &clock_ms));
    check_contents(kv);
    OK(kvstore_close(kv));
}

/* A plain store becomes an encrypted one by being opened with a password, unless it is open elsewhere. */
static void in_place(void)
{
    if (!here()) {
        return;
    }
    KVStore *plain = NULL, *kv = UNTOUCHED_POINTER;
    OK(kvstore_open(PATH, &plain, 0));
    OK(kvstore_set_clock(plain, read_clock, &clock_ms));
    fill(plain);
    CHECK(kvstore_is_encrypted(plain) == 0);
    GIVES(KVSTORE_BUSY, kvstore_open_encrypted(PATH, K(PASSWORD), &kv, NULL));
    CHECK(kv == NULL);
    check_contents(plain);
    KVStoreConfig only_encrypted = {.onlyEncrypted = 1};
    GIVES(KVSTORE_AUTH_FAILED, kvstore_open_encrypted(PATH, K(PASSWORD), &kv, &only_encrypted));
    CHECK(kvstore_errhint(NULL) == KVSTORE_HINT_OMIT_PASSWORD && strstr(kvstore_errmsg(NULL), PATH) != NULL);
    OK(kvstore_close(plain));
    GIVES(KVSTORE_AUTH_FAILED, kvstore_open_encrypted(PATH, K(PASSWORD), &kv, &only_encrypted));
    OK(kvstore_open_v2(PATH, &plain, &only_encrypted)); /* ignored here, and the store is unchanged */
    OK(kvstore_set_clock(plain, read_clock, &clock_ms));
    check_contents(plain);
    CHECK(kvstore_is_encrypted(plain) == 0);
    OK(kvstore_close(plain));
    kv = encrypted(PASSWORD);
    OK(kvstore_close(kv));
    OK(kvstore_open_encrypted(PATH, K(PASSWORD), &kv, &only_encrypted));
    OK(kvstore_set_clock(kv, read_clock, &clock_ms));
    check_contents(kv);
    KVStore *second = encrypted(PASSWORD);
    GIVES(KVSTORE_BUSY, kvstore_reencrypt(kv, K("another")));
    GIVES(KVSTORE_BUSY, kvstore_remove_encryption(kv));
    OK(kvstore_close(second));
    OK(kvstore_begin(kv, 1));
    GIVES(KVSTORE_BUSY, kvstore_reencrypt(kv, K("another")));
    OK(kvstore_rollback(kv));
    OK(kvstore_close(kv));
    refused(KVSTORE_AUTH_FAILED, "correct hors");
    refused(KVSTORE_AUTH_FAILED, NULL);
    KVStoreConfig reader = {.readOnly = 1};
    OK(kvstore_open_encrypted(PATH, K(PASSWORD), &kv, &reader));
    OK(kvstore_set_clock(kv, read_clock, &clock_ms));
    GIVES(KVSTORE_READONLY, kvstore_reencrypt(kv, K("another")));
    check_contents(kv);
    OK(kvstore_close(kv));
}

static void refuses(void)
{
    KVStore *kv = UNTOUCHED_POINTER;
    KVStoreConfig config = {.pageSize = 8192};
    struct {
        const char *path;
        const void *password;
        int length;
        KVStore **kv;
        const KVStoreConfig *config;
    } calls[] = {
        {NULL, PASSWORD, 5, &kv, NULL},       {"", PASSWORD, 5, &kv, NULL},   {":memory:", PASSWORD, 5, &kv, NULL},
        {PATH, NULL, 5, &kv, NULL},           {PATH, NULL, 0, &kv, NULL},     {PATH, PASSWORD, 0, &kv, NULL},
        {PATH, PASSWORD, -1, &kv, NULL},      {PATH, PASSWORD, INT_MIN, &kv, NULL},
        {PATH, PASSWORD, 5, NULL, NULL},      {PATH, PASSWORD, 5, &kv, &config},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        kv = UNTOUCHED_POINTER;
        GIVES(KVSTORE_ERROR, kvstore_open_encrypted(calls[i].path, calls[i].password, calls[i].length, calls[i].kv,
                                                    calls[i].config));
        CHECK(calls[i].kv == NULL || kv == NULL);
        CHECK(access(PATH, F_OK) != 0);
    }
    CHECK(kvstore_is_encrypted(NULL) == 0);
    GIVES(KVSTORE_ERROR, kvstore_reencrypt(NULL, K(PASSWORD)));
    GIVES(KVSTORE_ERROR, kvstore_remove_encryption(NULL));
    OK(kvstore_open(PATH, &kv, 0));
    GIVES(KVSTORE_ERROR, kvstore_reencrypt(kv, NULL, 3));
    GIVES(KVSTORE_ERROR, kvstore_reencrypt(kv, PASSWORD, 0));
    GIVES(KVSTORE_ERROR, kvstore_reencrypt(kv, PASSWORD, -7));
    CHECK(kvstore_is_encrypted(kv) == 0);
    OK(kvstore_put(kv, K("key"), K("value")));
    OK(kvstore_close(kv));
    CHECK(kvstore_is_encrypted(kv) == 0);
    GIVES(KVSTORE_MISUSE, kvstore_reencrypt(kv, K(PASSWORD)));
    GIVES(KVSTORE_MISUSE, kvstore_remove_encryption(kv));
}

/* Without encryption, each function explains how to get it, and a plain store stays plain. */
static void not_in_this_build(void)
{
    if (here()) {
        return;
    }
    KVStore *kv = UNTOUCHED_POINTER;
    GIVES(KVSTORE_ERROR, kvstore_open_encrypted(PATH, K(PASSWORD), &kv, NULL));
    CHECK(kv == NULL && strstr(kvstore_errmsg(NULL), "ENCRYPTION=1") != NULL && access(PATH, F_OK) != 0);
    OK(kvstore_open(PATH, &kv, 0));
    GIVES(KVSTORE_ERROR, kvstore_reencrypt(kv, K(PASSWORD)));
    CHECK(strstr(kvstore_errmsg(kv), "ENCRYPTION=1") != NULL);
    GIVES(KVSTORE_ERROR, kvstore_remove_encryption(kv));
    CHECK(strstr(kvstore_errmsg(kv), "ENCRYPTION=1") != NULL && kvstore_is_encrypted(kv) == 0);
    OK(kvstore_close(kv));
    /* A file with random bytes. */
    FILE *file = fopen("random.db", "wb");
    uint32_t state = 1;
    for (int i = 0; i < 8192; i++) {
        state = state * 1664525 + 1013904223;
        CHECK(fputc((int)(state >> 24), file) != EOF);
    }
    CHECK(fclose(file) == 0);
    GIVES(KVSTORE_AUTH_FAILED, kvstore_open("random.db", &kv, 0));
    CHECK(kv == NULL);
}

SCENARIOS({"life", life}, {"in_place", in_place}, {"refuses", refuses}, {"not_in_this_build", not_in_this_build})

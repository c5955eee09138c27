/* The end of a program that has a store open:
 *
 *     exits HOW STORE PASSWORD [LIBRARY]      an empty password for a plain store
 *
 * closed_by_handler   a handler registered before the open closes the store
 * left_open           main returns without a close
 * cleaner             the same, with the cleaner running
 * threads             the same, with two threads inside puts and gets
 * used_by_handler     the same as threads, and a handler that writes, reads and closes
 * openssl_first       the same as threads and cleaner, after the program itself has used OpenSSL, which then frees its
 *                     state at exit; and a handler that closes the store after that, where calls may fail
 * unloaded            dlclose with the cleaner running and the store open; LIBRARY is loaded by dlopen
 * check               no such end: an integrity check
 *
 * The exit status is 0 if every call that came back was right.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

static KVStore *kv;
static atomic_int ready;

static void open_store(const char *path, const char *password)
{
    if (*password) {
        OK(kvstore_open_encrypted(path, password, (int)strlen(password), &kv, NULL));
    } else {
        OK(kvstore_open(path, &kv, KVSTORE_JOURNAL_WAL));
    }
}

static void use_store(void)
{
    void *value;
    int length;
    CHECK(kvstore_put(kv, "handler", 7, "written", 7) == KVSTORE_OK);
    CHECK(kvstore_get(kv, "handler", 7, &value, &length) == KVSTORE_OK && length == 7);
    kvstore_free(value);
}

/* The system's OpenSSL, if it is there. */
static void use_openssl(void)
{
    void *lib = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_GLOBAL);
    int (*init)(uint64_t, const void *);
    void *found = lib != NULL ? dlsym(lib, "OPENSSL_init_crypto") : NULL;
    if (found == NULL) return;
    memcpy(&init, &found, sizeof found);
    CHECK(init(0, NULL) == 1);
}

static void try_in_handler(void)
{
    kvstore_put(kv, "late", 4, "value", 5);
    kvstore_close(kv);
}

/* _exit: exit must not be called in a handler. */
static void close_in_handler(void)
{
    if (kvstore_close(kv) != KVSTORE_OK) _exit(3);
}

static void use_in_handler(void)
{
    use_store();
    close_in_handler();
}

static int may_fail;

static void *put_and_get(void *number)
{
    char key[32];
    for (unsigned i = 0;; i++) {
        void *value = NULL;
        int length = 0, n = snprintf(key, sizeof key, "%s %u", (const char *)number, i % 500);
        int put = kvstore_put(kv, key, n, key, n);
        int got = kvstore_get(kv, key, n, &value, &length);
        /* Closed by the handler meanwhile. */
        if (put == KVSTORE_MISUSE || got == KVSTORE_MISUSE) return NULL;
        if (may_fail && (put != KVSTORE_OK || got != KVSTORE_OK)) {
            kvstore_free(value);
            continue;
        }
        if (put != KVSTORE_OK || got != KVSTORE_OK || length != n || memcmp(value, key, (size_t)n) != 0) {
            fprintf(stderr, "put %d, get %d: %s\n", put, got, kvstore_errmsg(kv));
            _exit(4);
        }
        kvstore_free(value);
        ready++;
    }
}

static void start_threads(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, put_and_get, "one") == 0);
    CHECK(pthread_create(&thread, NULL, put_and_get, "two") == 0);
    while (ready < 20) pause_ms(1);
}

static void start_cleaner(void)
{
    KVColumnFamily *cf;
    char key[32];
    OK(kvstore_cf_get_default(kv, &cf));
    for (int i = 0; i < 200; i++) {
        int n = snprintf(key, sizeof key, "expiring %d", i);
        OK(kvstore_cf_put_ttl(cf, key, n, key, n, kvstore_now_ms() + 1 + i / 10));
    }
    kvstore_cf_close(cf);
    OK(kvstore_cleaner_start(kv, 1, 3));
}

/* Sets a function pointer to a function of the library. ISO C has no conversion for that. */
static void find(void *lib, const char *name, void *function)
{
    void *found = dlsym(lib, name);
    CHECK(found != NULL);
    memcpy(function, &found, sizeof found);
}

/* The copy of the library that this program loads by dlopen, beside the one that it is linked with. */
static void unload(const char *library, const char *path, const char *password)
{
    int (*open)(const char *, KVStore **, int);
    int (*open_encrypted)(const char *, const void *, int, KVStore **, const KVStoreConfig *);
    int (*put)(KVStore *, const void *, int, const void *, int);
    int (*start)(KVStore *, int64_t, int64_t);
    void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    CHECK(lib != NULL);
    find(lib, "kvstore_open", &open);
    find(lib, "kvstore_open_encrypted", &open_encrypted);
    find(lib, "kvstore_put", &put);
    find(lib, "kvstore_cleaner_start", &start);
    if (*password) {
        OK(open_encrypted(path, password, (int)strlen(password), &kv, NULL));
    } else {
        OK(open(path, &kv, KVSTORE_JOURNAL_WAL));
    }
    OK(put(kv, "a", 1, "b", 1));
    OK(start(kv, 1, 3));
    pause_ms(2);
    CHECK(dlclose(lib) == 0);
    pause_ms(20);
}

int main(int argc, char **argv)
{
    CHECK(argc >= 4);
    const char *how = argv[1], *path = argv[2], *password = argv[3];
    if (strcmp(how, "unloaded") == 0) {
        CHECK(argc == 5);
        unload(argv[4], path, password);
        return 0;
    }
    if (strcmp(how, "closed_by_handler") == 0) CHECK(atexit(close_in_handler) == 0);
    if (strcmp(how, "used_by_handler") == 0) CHECK(atexit(use_in_handler) == 0);
    if (strcmp(how, "openssl_first") == 0) {
        may_fail = 1;
        CHECK(atexit(try_in_handler) == 0);
        use_openssl();
    }
    open_store(path, password);
    if (strcmp(how, "check") == 0) {
        OK(kvstore_integrity_check(kv, NULL));
        OK(kvstore_close(kv));
        return 0;
    }
    use_store();
    if (strcmp(how, "cleaner") == 0 || may_fail) start_cleaner();
    if (strcmp(how, "threads") == 0 || strcmp(how, "used_by_handler") == 0 || may_fail) start_threads();
    return 0;
}

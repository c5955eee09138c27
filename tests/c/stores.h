/* Opens the stores of the C tests, and controls their clock. Stores are in memory and in files;
 * in encrypted files if KVSTORE_TEST_ENCRYPTED is set; or on a server if KVSTORE_TEST_STORES is
 * set. The Rust tests set that variable under KVSTORE_TEST_REMOTE to the common beginning of the
 * URLs of this program's stores. */
#ifndef STORES_H
#define STORES_H

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static void start_clock(void);
#define BEFORE_EACH start_clock()
#include "check.h"

/* A literal as two arguments: its bytes and their number. */
#define K(literal) (literal), (int)(sizeof(literal) - 1)

/* The time of every store opened here, unless a scenario sets another clock. A server reads it
 * from a file (see tests/common/on_a_server.rs), which is mapped as this memory then. */
static _Atomic int64_t clock_here = 1000;
static _Atomic int64_t *clock_of_all = &clock_here;
#define clock_ms (*clock_of_all)

static inline int64_t read_clock(void *context)
{
    return *(const _Atomic int64_t *)context;
}

static inline int are_on_a_server(void)
{
    return getenv("KVSTORE_TEST_STORES") != NULL;
}

/* For scenarios that apply to files only. */
static inline int is_of_files(const char *why)
{
    if (are_on_a_server()) printf("SKIPPED on a server: %s\n", why);
    return are_on_a_server();
}

/* Length of the longest key. */
static inline int max_key_size(void)
{
    return are_on_a_server() ? 2500 : 65536;
}

/* For scenarios that read their files directly, or let another program do so. */
static inline void files_are_plain(void)
{
    CHECK(unsetenv("KVSTORE_TEST_ENCRYPTED") == 0);
}

/* A handle knows the server's time from an answer, and advances it since. A changed clock_ms is therefore
 * seen by the next call that asks the server. For scenarios that continue with data read before. */
static inline void hear_the_time(KVStore *kv)
{
    int64_t left;
    int code = kvstore_ttl_remaining(kv, K("no such key"), &left);
    CHECK(code == KVSTORE_NOTFOUND);
}

/* Path of the file on the server that keeps the time of a schema. */
static inline void clock_file(char *path, size_t size, const char *schema)
{
    const char *folder = getenv("KVSTORE_TEST_CLOCKS");
    CHECK(folder != NULL);
    int n = snprintf(path, size, "%s/clock_%s", folder, schema);
    CHECK(n > 0 && (size_t)n < size);
}

/* Schema of the program's stores, without the suffix that distinguishes them. */
static inline const char *schemas_begin_with(void)
{
    const char *name = strstr(getenv("KVSTORE_TEST_STORES"), "schema=");
    CHECK(name != NULL);
    return name + strlen("schema=");
}

static void start_clock(void)
{
    if (are_on_a_server() && clock_of_all == &clock_here) {
        char path[300];
        clock_file(path, sizeof path, schemas_begin_with());
        int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
        CHECK(file >= 0 && ftruncate(file, sizeof clock_here) == 0);
        void *memory = mmap(NULL, sizeof clock_here, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        CHECK(memory != MAP_FAILED && close(file) == 0);
        clock_of_all = memory;
    }
    clock_ms = 1000;
}

/* Returns where the store with this path is: there, or on the server, unless the file exists (a
 * backup). Each NULL is a new store. */
static inline const char *place_of(const char *path)
{
    static char urls[8][400];
    static int next, in_memory;
    if (!are_on_a_server() || (path != NULL && access(path, F_OK) == 0)) {
        return path;
    }
    char *url = urls[next++ % 8], name[64];
    if (path == NULL || *path == '\0' || *path == ':') {
        snprintf(name, sizeof name, "m%d", in_memory++);
    } else {
        snprintf(name, sizeof name, "%s", path);
    }
    for (char *c = name; *c != '\0'; c++) {
        if (strchr("/?&%#+", *c) != NULL) *c = '_';
    }
    int n = snprintf(url, sizeof urls[0], "%s%s", getenv("KVSTORE_TEST_STORES"), name);
    CHECK(n > 0 && (size_t)n < sizeof urls[0]);
    return url;
}

/* The configuration, or the default one, without waiting for locks unless it says how long. */
static inline KVStoreConfig without_wait(const KVStoreConfig *config)
{
    KVStoreConfig c;
    memset(&c, 0, sizeof c);
    if (config != NULL) c = *config;
    if (c.busyTimeout == 0) c.busyTimeout = -1;
    return c;
}

/* Like kvstore_open_v2, for a store in a file or on a server. Encryption uses a raw key, so that
 * no key has to be derived. By default, calls do not wait for locks. */
static inline int open_anywhere(const char *path, KVStore **kv, const KVStoreConfig *config)
{
    KVStoreConfig c = without_wait(config);
    static const char key[] = "x'0707070707070707070707070707070707070707070707070707070707070707'";
    int may = path != NULL && *path != '\0' && *path != ':' && c.pageSize == 0;
    if (may && getenv("KVSTORE_TEST_ENCRYPTED") != NULL) {
        return kvstore_open_encrypted(path, key, (int)sizeof key - 1, kv, &c);
    }
    return kvstore_open_v2(place_of(path), kv, &c);
}

/* Like open_anywhere, with the test's clock. */
static inline KVStore *open_at(const char *path, const KVStoreConfig *config)
{
    KVStore *kv = NULL;
    const char *place = place_of(path);
    if (place != path) {
        char own[300], all[300];
        clock_file(own, sizeof own, strstr(place, "schema=") + strlen("schema="));
        clock_file(all, sizeof all, schemas_begin_with());
        if (access(own, F_OK) != 0) CHECK(link(all, own) == 0);
        KVStoreConfig c = without_wait(config);
        OK(kvstore_open_v2(place, &kv, &c));
    } else {
        OK(open_anywhere(path, &kv, config));
        OK(kvstore_set_clock(kv, read_clock, &clock_ms));
    }
    CHECK(kv != NULL);
    return kv;
}

#endif

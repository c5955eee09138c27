/* Closed handles, handles of the wrong kind, handles closed twice, and use after a failure. */
#include <stdlib.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#ifdef _WIN32
#include <windows.h>
#endif

#include "abuse_sample.h"

struct handles {
    KVStore *kv;
    KVColumnFamily *other, *standard;
    KVIterator *forth, *back, *prefix;
};

static struct handles open_all(const char *path)
{
    struct handles h;

    h.kv = sample_open(path);
    sample_fill(h.kv);
    OK(kvstore_cf_open(h.kv, "other", &h.other));
    OK(kvstore_cf_get_default(h.kv, &h.standard));
    OK(kvstore_cf_iterator_create(h.other, &h.forth));
    OK(kvstore_iterator_first(h.forth));
    OK(kvstore_reverse_iterator_create(h.kv, &h.back));
    OK(kvstore_iterator_last(h.back));
    OK(kvstore_prefix_iterator_create(h.kv, "p", 1, &h.prefix));
    CHECK(!kvstore_iterator_eof(h.forth) && !kvstore_iterator_eof(h.back) && !kvstore_iterator_eof(h.prefix));
    return h;
}

static void close_children(struct handles *h)
{
    kvstore_iterator_close(h->forth);
    kvstore_iterator_close(h->back);
    kvstore_iterator_close(h->prefix);
    kvstore_cf_close(h->other);
    kvstore_cf_close(h->standard);
}

static void all_refuse(struct handles *h)
{
    store_functions_give(KVSTORE_MISUSE, h->kv);
    GIVES(KVSTORE_MISUSE, kvstore_close(h->kv));
    CHECK(strcmp(kvstore_errmsg(h->kv), "no error") != 0 && *kvstore_errmsg(h->kv) != '\0');
    family_functions_give(KVSTORE_MISUSE, h->other);
    family_functions_give(KVSTORE_MISUSE, h->standard);
    iterator_functions_give(KVSTORE_MISUSE, h->forth, 0);
    iterator_functions_give(KVSTORE_MISUSE, h->back, 1);
    iterator_functions_give(KVSTORE_MISUSE, h->prefix, 0);
}

static void closed_store(void)
{
    struct handles h = open_all("store.db");
    uint64_t before = fingerprint(h.kv);

    OK(kvstore_begin(h.kv, 1)); /* rolled back by close */
    OK(kvstore_put(h.kv, "new", 3, "v", 1));
    OK(kvstore_close(h.kv));
    CHECK(access("store.db-wal", F_OK) != 0 && access("store.db-shm", F_OK) != 0);
    for (int i = 0; i < 3; i++) {
        all_refuse(&h);
    }
    /* The name is the family handle's, which is still open. */
    CHECK(strcmp(kvstore_cf_name(h.other), "other") == 0);
    close_children(&h);

    h.kv = sample_open("store.db");
    CHECK(fingerprint(h.kv) == before);
    still_works(h.kv);
    OK(kvstore_close(h.kv));
}

/* After everything is closed, each handle refuses every call, including another close. */
static void closed_twice(void)
{
    struct handles h = open_all(NULL);
    KVStore *second = sample_open(NULL);

    close_children(&h);
    for (int i = 0; i < 3; i++) {
        close_children(&h);
        family_functions_give(KVSTORE_MISUSE, h.other);
        family_functions_give(KVSTORE_MISUSE, h.standard);
        iterator_functions_give(KVSTORE_MISUSE, h.forth, 1);
        iterator_functions_give(KVSTORE_MISUSE, h.back, 1);
        iterator_functions_give(KVSTORE_MISUSE, h.prefix, 1);
        CHECK(strcmp(kvstore_cf_name(h.other), "") == 0);
    }
    OK(kvstore_cf_drop(h.kv, "other")); /* closing twice has not counted twice: no handle is left */
    still_works(h.kv);
    OK(kvstore_close(h.kv));
    for (int i = 0; i < 3; i++) {
        close_children(&h);
        all_refuse(&h);
    }
    still_works(second); /* the handles of the other store still work */
    OK(kvstore_close(second));
}

/* Closing a family twice does not close its other handle. */
static void closed_twice_counts_once(void)
{
    KVStore *kv = sample_open(NULL);
    KVColumnFamily *one, *two;

    sample_fill(kv);
    OK(kvstore_cf_open(kv, "other", &one));
    OK(kvstore_cf_open(kv, "other", &two));
    kvstore_cf_close(one);
    kvstore_cf_close(one);
    GIVES(KVSTORE_BUSY, kvstore_cf_drop(kv, "other"));
    OK(kvstore_cf_put(two, "k", 1, "v", 1));
    kvstore_cf_close(two);
    OK(kvstore_cf_drop(kv, "other"));
    OK(kvstore_close(kv));
}

static void wrong_kinds(void)
{
    struct handles h = open_all("store.db");
    uint64_t before = fingerprint(h.kv);
    void *store = h.kv, *family = h.other, *iterator = h.back;

    store_functions_give(KVSTORE_MISUSE, family);
    store_functions_give(KVSTORE_MISUSE, iterator);
    GIVES(KVSTORE_MISUSE, kvstore_close(family));
    GIVES(KVSTORE_MISUSE, kvstore_close(iterator));
    CHECK(kvstore_errmsg(family) != NULL && kvstore_errmsg(iterator) != NULL);
    family_functions_give(KVSTORE_MISUSE, store);
    family_functions_give(KVSTORE_MISUSE, iterator);
    CHECK(strcmp(kvstore_cf_name(store), "") == 0 && strcmp(kvstore_cf_name(iterator), "") == 0);
    kvstore_cf_close(store);
    kvstore_cf_close(iterator);
    iterator_functions_give(KVSTORE_MISUSE, store, 1);
    iterator_functions_give(KVSTORE_MISUSE, family, 1);
    kvstore_iterator_close(store);
    kvstore_iterator_close(family);

    CHECK(fingerprint(h.kv) == before && !kvstore_iterator_eof(h.back));
    OK(kvstore_iterator_prev(h.back));
    OK(kvstore_cf_put(h.other, "k", 1, "v", 1));
    still_works(h.kv);
    close_children(&h);
    OK(kvstore_close(h.kv));
    CHECK(access("store.db-wal", F_OK) != 0);
}

/* Memory in use: exact if the C library reports it, otherwise what it has requested from the
 * system. */
static int64_t taken(void)
{
#ifdef __GLIBC__
    struct mallinfo2 found = mallinfo2();

    return (int64_t)(found.uordblks + found.hblkhd); /* the large ones are mapped */
#elif defined(_WIN32)
    HANDLE heaps[64];
    DWORD count = GetProcessHeaps(64, heaps);
    int64_t sum = 0;

    CHECK(count > 0 && count <= 64);
    for (DWORD i = 0; i < count; i++) {
        PROCESS_HEAP_ENTRY entry = {0};

        HeapLock(heaps[i]);
        while (HeapWalk(heaps[i], &entry)) {
            if (entry.wFlags & PROCESS_HEAP_ENTRY_BUSY) sum += entry.cbData;
        }
        HeapUnlock(heaps[i]);
    }
    return sum;
#else
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[400], mode[5];
    unsigned long begin, end, inode;
    int64_t sum = 0;

    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps)) {
        CHECK(sscanf(line, "%lx-%lx %4s %*s %*s %lu", &begin, &end, mode, &inode) == 4);
        if (inode == 0 && mode[1] == 'w') sum += (int64_t)(end - begin);
    }
    fclose(maps);
    return sum;
#endif
}

/* Memory of families, iterators and stores is released when they are closed. */
static void cycles(void)
{
    int handles = under_valgrind() ? 300 : 5000, stores = under_valgrind() ? 100 : 500;
    KVStore *kv = sample_open(NULL);
    int64_t settled = 0, growth;

    sample_fill(kv);
    for (int i = 0; i < handles; i++) {
        KVColumnFamily *cf, *standard;
        KVIterator *its[4];
        void *key;
        int n;

        if (i == 700) { /* by now slots are used again */
            settled = taken();
        }
        OK(kvstore_cf_open(kv, "other", &cf));
        OK(kvstore_cf_get_default(kv, &standard));
        OK(kvstore_iterator_create(kv, &its[0]));
        OK(kvstore_iterator_first(its[0]));
        OK(kvstore_cf_reverse_iterator_create(cf, &its[1]));
        OK(kvstore_iterator_last(its[1]));
        OK(kvstore_cf_prefix_iterator_create(standard, "p", 1, &its[2]));
        OK(kvstore_reverse_prefix_iterator_create(kv, "p", 1, &its[3]));
        OK(kvstore_iterator_key(its[i % 4], &key, &n));
        for (int j = 0; j < 4; j++) {
            kvstore_iterator_close(its[(i + j) % 4]);
        }
        kvstore_cf_close(i % 2 ? cf : standard);
        kvstore_cf_close(i % 2 ? standard : cf);
    }
    growth = taken() - settled;
    CHECK(growth < 64 * 1024);
    OK(kvstore_cf_drop(kv, "other"));
    OK(kvstore_close(kv));

    for (int i = 0; i < stores; i++) {
        KVColumnFamily *cf;
        KVIterator *it;

        if (i == 330) { /* the stores', too */
            settled = taken();
        }
        kv = sample_open(NULL);
        OK(kvstore_put_ttl(kv, "k", 1, "v", 1, SAMPLE_NOW * 2));
        OK(kvstore_cf_create(kv, "f", &cf));
        OK(kvstore_prefix_iterator_create(kv, "k", 1, &it));
        GIVES(KVSTORE_ERROR, kvstore_commit(kv));
        OK(kvstore_close(kv));
        kvstore_iterator_close(it);
        kvstore_cf_close(cf);
    }
    growth = taken() - settled;
    CHECK(growth < 256 * 1024);
}

/* A failed call leaves nothing behind that would make the next call fail. */
static void retry_after_failures(void)
{
    KVStoreConfig read_only = {0};
    KVStore *kv, *second;
    KVColumnFamily *cf, *again;
    KVIterator *it;
    FILE *file;
    void *key;
    int n;

    /* Opening. */
    read_only.readOnly = 1;
    for (int i = 0; i < 3; i++) {
        REFUSED_HANDLE(KVSTORE_CANTOPEN, kv, kvstore_open("no/such/folder/store.db", &kv, 0));
        REFUSED_HANDLE(KVSTORE_CANTOPEN, kv, kvstore_open(".", &kv, 0));
        REFUSED_HANDLE(KVSTORE_CANTOPEN, kv, kvstore_open_v2("store.db", &kv, &read_only));
        GIVES(KVSTORE_ERROR, kvstore_put(kv, "k", 1, "v", 1));
        OK(kvstore_close(kv));
    }
    CHECK((file = fopen("store.db", "w")) != NULL);
    CHECK(fputs("this is no database, and long enough for its first bytes to be looked at", file) >= 0);
    CHECK(fclose(file) == 0);
    REFUSED_HANDLE(KVSTORE_NOTADB, kv, kvstore_open("store.db", &kv, 0));
    CHECK(remove("store.db") == 0);
    OK(kvstore_open("store.db", &kv, 0));

    /* Families. */
    REFUSED_HANDLE(KVSTORE_NOTFOUND, cf, kvstore_cf_open(kv, "f", &cf));
    kvstore_cf_close(cf);
    OK(kvstore_cf_create(kv, "f", &cf));
    REFUSED_HANDLE(KVSTORE_ERROR, again, kvstore_cf_create(kv, "f", &again));
    GIVES(KVSTORE_BUSY, kvstore_cf_drop(kv, "f"));
    GIVES(KVSTORE_BUSY, kvstore_cf_drop(kv, "f"));
    kvstore_cf_close(cf);
    OK(kvstore_cf_drop(kv, "f")); /* the failed create and open hold nothing */
    GIVES(KVSTORE_NOTFOUND, kvstore_cf_drop(kv, "f"));
    GIVES(KVSTORE_NOTFOUND, kvstore_cf_drop(kv, "f"));
    OK(kvstore_cf_create(kv, "f", &cf));
    kvstore_cf_close(cf);

    /* Transactions. */
    GIVES(KVSTORE_ERROR, kvstore_commit(kv));
    GIVES(KVSTORE_ERROR, kvstore_rollback(kv));
    OK(kvstore_begin(kv, 1));
    GIVES(KVSTORE_ERROR, kvstore_begin(kv, 1));
    GIVES(KVSTORE_ERROR, kvstore_begin(kv, 0));
    OK(kvstore_put(kv, "k", 1, "v", 1));
    GIVES(KVSTORE_ERROR, kvstore_put(kv, "", 0, "v", 1)); /* a wrong argument dooms nothing */
    GIVES(KVSTORE_NOTFOUND, kvstore_delete(kv, "missing", 7));
    REFUSED_HANDLE(KVSTORE_ERROR, again, kvstore_cf_create(kv, "f", &again));
    GIVES(KVSTORE_NOTFOUND, kvstore_cf_drop(kv, "g"));
    GIVES(KVSTORE_BUSY, kvstore_checkpoint(kv, KVSTORE_CHECKPOINT_PASSIVE, NULL, NULL));
    OK(kvstore_commit(kv));
    GIVES(KVSTORE_ERROR, kvstore_commit(kv));
    GIVES(KVSTORE_ERROR, kvstore_rollback(kv));
    OK(kvstore_open("store.db", &second, 0));
    OK(kvstore_begin(second, 1));
    GIVES(KVSTORE_BUSY, kvstore_begin(kv, 1));
    GIVES(KVSTORE_ERROR, kvstore_commit(kv)); /* a begin that failed has begun nothing */
    GIVES(KVSTORE_ERROR, kvstore_rollback(kv));
    GIVES(KVSTORE_BUSY, kvstore_put(kv, "k", 1, "w", 1));
    GIVES(KVSTORE_BUSY, kvstore_clear(kv));
    GIVES(KVSTORE_BUSY, kvstore_cf_drop(kv, "f"));
    REFUSED_HANDLE(KVSTORE_BUSY, again, kvstore_cf_create(kv, "g", &again));
    OK(kvstore_begin(kv, 0));
    GIVES(KVSTORE_READONLY, kvstore_put(kv, "k", 1, "w", 1));
    GIVES(KVSTORE_READONLY, kvstore_delete(kv, "k", 1));
    GIVES(KVSTORE_READONLY, kvstore_clear(kv));
    REFUSED_HANDLE(KVSTORE_READONLY, again, kvstore_cf_create(kv, "g", &again));
    OK(kvstore_commit(kv));
    OK(kvstore_rollback(second));
    OK(kvstore_close(second));
    still_works(kv);

    /* Iterators. */
    OK(kvstore_iterator_create(kv, &it));
    GIVES(KVSTORE_ERROR, kvstore_iterator_key(it, &key, &n));
    GIVES(KVSTORE_ERROR, kvstore_iterator_prev(it));
    GIVES(KVSTORE_ERROR, kvstore_iterator_seek(it, "", 0));
    OK(kvstore_iterator_next(it)); /* at eof it stays */
    CHECK(kvstore_iterator_eof(it));
    OK(kvstore_iterator_first(it));
    GIVES(KVSTORE_ERROR, kvstore_iterator_seek(it, "", 0));
    GIVES(KVSTORE_ERROR, kvstore_iterator_last(it));
    OK(kvstore_iterator_key(it, &key, &n));
    CHECK(n == 1 && memcmp(key, "k", 1) == 0);
    OK(kvstore_iterator_next(it));
    GIVES(KVSTORE_ERROR, kvstore_iterator_value(it, &key, &n));
    kvstore_iterator_close(it);
    OK(kvstore_close(kv));
    GIVES(KVSTORE_MISUSE, kvstore_close(kv));
    OK(kvstore_open("store.db", &kv, 0));
    OK(kvstore_close(kv));
}

SCENARIOS({"closed_store", closed_store}, {"closed_twice", closed_twice},
          {"closed_twice_counts_once", closed_twice_counts_once}, {"wrong_kinds", wrong_kinds},
          {"cycles", cycles}, {"retry_after_failures", retry_after_failures})

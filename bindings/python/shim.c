/* The functions declared and documented in shim.h. */

#include <stdlib.h>
#include <string.h>

/* Thread-local variables and atomic operations, which C has only since C11. */
#ifdef _MSC_VER
#include <intrin.h>
#define KVPY_EACH_THREAD __declspec(thread)
#define kvpy_next(last) ((unsigned long)_InterlockedIncrement((volatile long *)(last)))
#define kvpy_exchange(flag, value) ((int)_InterlockedExchange((volatile long *)(flag), (value)))
#else
#define KVPY_EACH_THREAD __thread
#define kvpy_next(last) __atomic_add_fetch((last), 1, __ATOMIC_RELAXED)
#define kvpy_exchange(flag, value) __atomic_exchange_n((flag), (value), __ATOMIC_ACQ_REL)
#endif

/* Reason and hint are two calls. Another thread may fail on the handle between them, so they are repeated
 * until the reason is the same before and after reading the hint. */
int kvpy_failure(KVStore *kv, char *buf, int cap)
{
    const char *reason = kvstore_errreason(kv);
    int hint = kvstore_errhint(kv), tries;
    size_t n;
    for (tries = 0; tries < 100; tries++) {
        const char *again = kvstore_errreason(kv);
        if (strcmp(reason, again) == 0) break;
        reason = again;
        hint = kvstore_errhint(kv);
    }
    if (cap <= 0) return hint;
    n = strlen(reason);
    if (n >= (size_t)cap) n = (size_t)cap - 1;
    memcpy(buf, reason, n);
    buf[n] = 0;
    return hint;
}

int kvpy_get(KVColumnFamily *cf, const void *key, int n_key, char *buf, int cap)
{
    int n = 0;
    int rc = kvstore_cf_get_into(cf, key, n_key, buf, cap, &n);
    return rc == KVSTORE_OK ? n : -rc;
}

int kvpy_get_short(KVColumnFamily *cf, const void *key, int n_key, char *buf)
{
    int n = kvpy_get(cf, key, n_key, buf, KVPY_SHORT_BYTES);
    return n <= KVPY_SHORT_BYTES ? n : KVPY_TOO_LONG - n;
}

int kvpy_exists(KVColumnFamily *cf, const void *key, int n_key)
{
    int exists = 0;
    int rc = kvstore_cf_exists(cf, key, n_key, &exists);
    return rc == KVSTORE_OK ? exists : -rc;
}

/* Returns an allocated array with the start of each key; NULL: out of memory. */
static const void **beginnings(int count, const char *keys, const int *lens)
{
    const void **each = malloc((size_t)count * sizeof *each);
    int i;
    if (each == NULL) return NULL;
    for (i = 0; i < count; i++) {
        each[i] = keys;
        keys += lens[i];
    }
    return each;
}

int kvpy_delete_many(KVColumnFamily *cf, int count, const char *keys, const int *lens, int64_t *deleted)
{
    const void **each;
    int rc;
    if (count <= 0) return kvstore_cf_delete_many(cf, count, NULL, NULL, deleted);
    each = beginnings(count, keys, lens);
    if (each == NULL) return KVSTORE_NOMEM;
    rc = kvstore_cf_delete_many(cf, count, each, lens, deleted);
    free(each);
    return rc;
}

int kvpy_get_many(KVColumnFamily *cf, int count, const char *keys, const int *lens, char **values, int *value_lens)
{
    const void **each;
    int rc;
    if (count <= 0) return count < 0 ? KVSTORE_ERROR : KVSTORE_OK;
    each = beginnings(count, keys, lens);
    if (each == NULL) return KVSTORE_NOMEM;
    rc = kvstore_cf_get_many(cf, count, each, lens, (void **)values, value_lens);
    free(each);
    return rc;
}

void kvpy_free_many(int count, char **values)
{
    int i;
    for (i = 0; i < count; i++) kvstore_free(values[i]);
}

/* Makes `bytes` bytes available in a chunk. Memory that one long row needed is released before the next chunk. */
static int reserve(kvpy_chunk *chunk, int bytes)
{
    char *grown;

    if (bytes <= chunk->capacity && (chunk->capacity <= 1 << 20 || chunk->rows > 0)) return KVSTORE_OK;
    grown = realloc(chunk->bytes, (size_t)bytes);
    if (grown == NULL) return bytes <= chunk->capacity ? KVSTORE_OK : KVSTORE_NOMEM;
    chunk->bytes = grown;
    chunk->capacity = bytes;
    return KVSTORE_OK;
}

void kvpy_free_chunk(kvpy_chunk *chunk)
{
    free(chunk->bytes);
    chunk->bytes = NULL;
    chunk->capacity = 0;
}

int kvpy_fill(KVIterator *it, int max_rows, kvpy_chunk *chunk)
{
    KVEntry entries[KVPY_CHUNK_ROWS];
    int used = 0, fetched = 1, i;
    int *end = chunk->ends;
    int rc;

    chunk->rows = 0;
    chunk->first_expire_ms = INT64_MAX;
    if (max_rows > KVPY_CHUNK_ROWS) max_rows = KVPY_CHUNK_ROWS;
    rc = reserve(chunk, KVPY_CHUNK_BYTES);
    while (rc == KVSTORE_OK && fetched > 0 && chunk->rows < max_rows && used <= KVPY_CHUNK_BYTES / 2) {
        int needed = used;
        rc = kvstore_iterator_fetch(it, entries, max_rows - chunk->rows, &fetched);
        if (rc != KVSTORE_OK) break;
        /* At most about 64 KiB, plus one row of any length. */
        for (i = 0; i < fetched; i++) needed += entries[i].nKey + entries[i].nValue;
        rc = reserve(chunk, needed);
        for (i = 0; rc == KVSTORE_OK && i < fetched; i++) {
            const KVEntry *entry = &entries[i];
            if ((const char *)entry->pKey + entry->nKey == (const char *)entry->pValue) {
                memcpy(chunk->bytes + used, entry->pKey, (size_t)(entry->nKey + entry->nValue));
            } else {
                memcpy(chunk->bytes + used, entry->pKey, (size_t)entry->nKey);
                if (entry->nValue > 0) memcpy(chunk->bytes + used + entry->nKey, entry->pValue, (size_t)entry->nValue);
            }
            used += entry->nKey;
            *end++ = used;
            used += entry->nValue;
            *end++ = used;
            chunk->expire_ms[chunk->rows++] = entry->expireMs;
            if (entry->expireMs != KVSTORE_NO_TTL && entry->expireMs < chunk->first_expire_ms)
                chunk->first_expire_ms = entry->expireMs;
        }
    }
    chunk->failed = rc;
    return chunk->rows;
}

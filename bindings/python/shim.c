/* The functions of shim.h, which says what they do and what may be here. */

#include <stdlib.h>
#include <string.h>

void kvpy_errmsg(KVStore *kv, char *buf, int cap)
{
    const char *text = kvstore_errmsg(kv);
    size_t n = strlen(text);
    if (cap <= 0) return;
    if (n >= (size_t)cap) n = (size_t)cap - 1;
    memcpy(buf, text, n);
    buf[n] = 0;
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
    return n <= KVPY_SHORT_BYTES ? n : KVPY_TOO_LONG;
}

int kvpy_exists(KVColumnFamily *cf, const void *key, int n_key)
{
    int exists = 0;
    int rc = kvstore_cf_exists(cf, key, n_key, &exists);
    return rc == KVSTORE_OK ? exists : -rc;
}

int kvpy_get_many(KVColumnFamily *cf, int count, const char *keys, const int *lens, char **values, int *value_lens)
{
    const void **each;
    int rc, i;
    if (count <= 0) return count < 0 ? KVSTORE_ERROR : KVSTORE_OK;
    each = malloc((size_t)count * sizeof *each);
    if (each == NULL) return KVSTORE_NOMEM;
    for (i = 0; i < count; i++) {
        each[i] = keys;
        keys += lens[i];
    }
    rc = kvstore_cf_get_many(cf, count, each, lens, (void **)values, value_lens);
    free(each);
    return rc;
}

void kvpy_free_many(int count, char **values)
{
    int i;
    for (i = 0; i < count; i++) kvstore_free(values[i]);
}

int kvpy_fill(KVIterator *it, int with_values, int max_rows, kvpy_chunk *chunk)
{
    int used = 0, rc = KVSTORE_OK;
    int *end = chunk->ends;

    chunk->rows = 0;
    chunk->too_long = 0;
    chunk->first_expire_ms = INT64_MAX;
    if (max_rows > KVPY_CHUNK_ROWS) max_rows = KVPY_CHUNK_ROWS;
    chunk->at_eof = kvstore_iterator_eof(it);
    while (!chunk->at_eof && chunk->rows < max_rows) {
        void *key, *value = NULL;
        int n_key, n_value = 0;
        int64_t expire_ms;
        rc = kvstore_iterator_key(it, &key, &n_key);
        if (rc == KVSTORE_OK && with_values) rc = kvstore_iterator_value(it, &value, &n_value);
        if (rc == KVSTORE_OK) rc = kvstore_iterator_expire_ms(it, &expire_ms);
        if (rc != KVSTORE_OK) break;
        if (n_key > KVPY_CHUNK_BYTES - used || n_value > KVPY_CHUNK_BYTES - used - n_key) {
            chunk->too_long = chunk->rows == 0;
            break;
        }
        if (chunk->rows == 0) {
            chunk->n_key = n_key;
            chunk->n_value = n_value;
        }
        if (n_key != chunk->n_key) chunk->n_key = -1;
        if (n_value != chunk->n_value) chunk->n_value = -1;
        memcpy(chunk->bytes + used, key, (size_t)n_key);
        used += n_key;
        *end++ = used;
        if (with_values) {
            memcpy(chunk->bytes + used, value, (size_t)n_value);
            used += n_value;
            *end++ = used;
        }
        chunk->expire_ms[chunk->rows++] = expire_ms;
        if (expire_ms != KVSTORE_NO_TTL && expire_ms < chunk->first_expire_ms) chunk->first_expire_ms = expire_ms;
        rc = kvstore_iterator_next(it);
        if (rc != KVSTORE_OK) break;
        chunk->at_eof = kvstore_iterator_eof(it);
    }
    chunk->failed = rc;
    return chunk->rows;
}

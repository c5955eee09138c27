/*
 * What the extension module has beside include/kvstore.h: small C functions that do in one step, with
 * the GIL released once, what would take Python several. Only what saves a crossing on a hot path, or
 * must be one step to be safe between threads, belongs here. build_native.py reads the declarations.
 *
 * All of them may be called from any thread, without the GIL.
 */

/** Copies the text of the handle's last failure (NULL: of this thread's) to buf, cut to cap - 1 bytes,
 * with a NUL after it. One step, so that no other thread's failure replaces the text meanwhile. */
void kvpy_errmsg(KVStore *kv, char *buf, int cap);

/** kvstore_cf_get_into that returns the full length of the value, or the code of the failure negated. */
int kvpy_get(KVColumnFamily *cf, const void *key, int n_key, char *buf, int cap);

/** The longest value that kvpy_get_short reads. */
#define KVPY_SHORT_BYTES 16384
/** What kvpy_get_short returns for a longer one; no result code's negative. */
#define KVPY_TOO_LONG -1000000

/** kvpy_get into KVPY_SHORT_BYTES bytes, with KVPY_TOO_LONG for what does not fit. */
int kvpy_get_short(KVColumnFamily *cf, const void *key, int n_key, char *buf);

/** kvstore_cf_exists that returns 1 or 0, or the code of the failure negated. */
int kvpy_exists(KVColumnFamily *cf, const void *key, int n_key);

/** kvstore_cf_get_many of keys that lie one after the other. */
int kvpy_get_many(KVColumnFamily *cf, int count, const char *keys, const int *lens, char **values, int *value_lens);

/** kvstore_cf_delete_many of such keys. */
int kvpy_delete_many(KVColumnFamily *cf, int count, const char *keys, const int *lens, int64_t *deleted);

/** Frees the values that kvpy_get_many gave out. */
void kvpy_free_many(int count, char **values);

#define KVPY_CHUNK_ROWS 256
/** Rows are read until there are more than half as many bytes. */
#define KVPY_CHUNK_BYTES 131072

/** Rows that were read from an iterator in one step. Key i ends at ends[2 * i] in bytes and its value at
 * ends[2 * i + 1]. */
typedef struct {
    int rows;
    /** The code of a failure after the last row, or 0: the iteration is not at its end then. */
    int failed;
    /** The earliest end of life of the rows; INT64_MAX if none has one. */
    int64_t first_expire_ms;
    int ends[512];
    /** As kvstore_iterator_expire_ms says it. */
    int64_t expire_ms[256];
    /** Memory of its own, for so many bytes; all zeros is a chunk that has none yet. */
    char *bytes;
    int room;
} kvpy_chunk;

/** Reads at most max_rows rows from the iterator's position on, and moves it past them. Returns
 * the number of rows (which is 0 at eof, and if `failed` says so). */
int kvpy_fill(KVIterator *it, int max_rows, kvpy_chunk *chunk);

/** Frees what a chunk has in memory. */
void kvpy_free_chunk(kvpy_chunk *chunk);

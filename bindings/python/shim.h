/*
 * C functions of the extension module in addition to include/kvstore.h. Each does in one call, with the GIL released
 * once, what Python would need several calls for. Only functions that save a call on a hot path, or that must be atomic
 * between threads, belong here. build_native.py reads the declarations.
 *
 * All of them may be called from any thread, without the GIL.
 */

/** Copies the reason of the handle's last failure (NULL: of this thread's) to buf, truncated to cap - 1 bytes
 * and terminated by NUL. Returns its hint, one of KVSTORE_HINT_*. Reason and hint belong to the same failure,
 * even if other threads fail on the handle meanwhile. */
int kvpy_failure(KVStore *kv, char *buf, int cap);

/** Ends the waits for locks of this thread while *flag is not 0, which any thread may set. NULL: no longer. The flag
 * must remain valid until then, or until the thread ends. */
void kvpy_watch_flag(int *flag);

/** kvstore_cf_get_into, but returns the full length of the value, or the negated result code. */
int kvpy_get(KVColumnFamily *cf, const void *key, int n_key, char *buf, int cap);

/** The maximum length of a value that kvpy_get_short reads. */
#define KVPY_SHORT_BYTES 16384
/** kvpy_get_short returns this number minus the length of a longer value. It is less than every negated result
 * code. */
#define KVPY_TOO_LONG -1000000

/** kvpy_get into a buffer of KVPY_SHORT_BYTES. For a longer value, returns KVPY_TOO_LONG minus its length. */
int kvpy_get_short(KVColumnFamily *cf, const void *key, int n_key, char *buf);

/** kvstore_cf_exists, but returns 1, 0, or the negated result code. */
int kvpy_exists(KVColumnFamily *cf, const void *key, int n_key);

/** kvstore_cf_get_many for keys that are concatenated in memory. */
int kvpy_get_many(KVColumnFamily *cf, int count, const char *keys, const int *lens, char **values, int *value_lens);

/** kvstore_cf_delete_many for keys that are concatenated in memory. */
int kvpy_delete_many(KVColumnFamily *cf, int count, const char *keys, const int *lens, int64_t *deleted);

/** Frees the values returned by kvpy_get_many. */
void kvpy_free_many(int count, char **values);

#define KVPY_CHUNK_ROWS 256
/** A chunk is full once it holds more than half this number of bytes. */
#define KVPY_CHUNK_BYTES 131072

/** Rows that were read from an iterator in one call. In `bytes`, key i ends at ends[2 * i] and its value at
 * ends[2 * i + 1]. */
typedef struct {
    int rows;
    /** The result code of a failure after the last row, or 0. After a failure the iteration is not at its end. */
    int failed;
    /** The earliest expiry time of the rows; INT64_MAX if none has a TTL. */
    int64_t first_expire_ms;
    int ends[512];
    /** As returned by kvstore_iterator_expire_ms. */
    int64_t expire_ms[256];
    /** Allocated memory of `capacity` bytes. A chunk filled with zeros is valid and has none yet. */
    char *bytes;
    int capacity;
} kvpy_chunk;

/** Reads at most max_rows rows from the position of the iterator, and moves it past them. Returns the number of rows:
 * 0 at the end, or after a failure (see `failed`). */
int kvpy_fill(KVIterator *it, int max_rows, kvpy_chunk *chunk);

/** Frees the memory of a chunk. */
void kvpy_free_chunk(kvpy_chunk *chunk);

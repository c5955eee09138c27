/*
 * kvstore: an embedded, ordered key-value store with native per-key expiry.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * This file is generated from src/ffi of the kvstore crate. Do not edit it.
 *
 * Conventions
 *   Results    Functions that can fail return int: KVSTORE_OK (0) or another KVSTORE_* code, never
 *              anything else. kvstore_errmsg has the text. A call that fails changes nothing.
 *   Pointers   A NULL handle, a NULL pointer that is needed and a bad length are KVSTORE_ERROR; a closed
 *              handle is KVSTORE_MISUSE. Handle outputs are NULL after any failure; other outputs are
 *              written only on success, except as a function says.
 *   Lengths    int, in bytes. Keys are 1 to 65536 bytes, values 0 to 10 MiB (KVStoreConfig.maxValueSize),
 *              any bytes at all.
 *   Times      int64_t, milliseconds since the Unix epoch. A key is expired from its expire_ms on, and
 *              is never returned then, through whatever handle or process the time was set.
 *   Memory     What the library hands out is freed with kvstore_free. It keeps no pointer to arguments.
 *   Threads    Any handle may be shared by threads, which take turns; an iterator or a batch is used by
 *              one thread at a time. Any handle may be closed by any thread at any time: a call under way
 *              with it keeps what it works on, and answers KVSTORE_OK or KVSTORE_MISUSE.
 *   Forks      In the child of a fork its parent's handles are refused (KVSTORE_MISUSE), at once. It opens
 *              the store anew, whatever the parent is doing.
 *   Files      One SQLite file (with -wal and -shm beside it while open). Other programs may use it
 *              with any SQLite, and so may another copy of SQLite in this process (Python's sqlite3, say),
 *              where the kernel gives locks to open files: on Linux since 3.15, on its own file systems.
 *              An open store has 5 descriptors in WAL mode and 3 in DELETE mode; closed ones leave some for
 *              the next open of the file, at most 64 in a process unless others have the files locked.
 */

#ifndef KVSTORE_H
#define KVSTORE_H

#include <stdint.h>

/** What a remaining time is for a key that never expires. */
#define KVSTORE_NO_TTL ((int64_t)-1)

/**
 * Success.
 */
#define KVSTORE_OK 0

/**
 * A wrong argument, a wrong order of calls, or a failure without a code of its own.
 */
#define KVSTORE_ERROR 1

/**
 * Another handle or process holds a lock, or on a server another client: retry, or set busyTimeout. Also: the server takes
 * no connection now.
 */
#define KVSTORE_BUSY 5

/**
 * A lock inside this process stands in the way: retry. On a server: another client's transaction has made this one impossible;
 * roll it back and run it again.
 */
#define KVSTORE_LOCKED 6

/**
 * Out of memory.
 */
#define KVSTORE_NOMEM 7

/**
 * A write where only reading is allowed; on a server also: the role lacks a right, or no server of the URL can write now, as
 * during a failover.
 */
#define KVSTORE_READONLY 8

/**
 * The operating system failed to read, write or sync, or the connection to the server broke. The text says whether what the
 * call was to do is known not to be done.
 */
#define KVSTORE_IOERR 10

/**
 * The file, or what a server has of the store, is damaged.
 */
#define KVSTORE_CORRUPT 11

/**
 * No such key (or it has expired), or no such family.
 */
#define KVSTORE_NOTFOUND 12

/**
 * Wrong password, or a tampered value; a log-in that the server refuses.
 */
#define KVSTORE_AUTH_FAILED 13

/**
 * The file cannot be opened, or the server not be reached; this build has no servers.
 */
#define KVSTORE_CANTOPEN 14

/**
 * The locking protocol of the file failed.
 */
#define KVSTORE_PROTOCOL 15

/**
 * The handle is closed, was inherited through a fork, or is unusable after an internal failure.
 */
#define KVSTORE_MISUSE 21

/**
 * The file, or the schema on the server, is not a store.
 */
#define KVSTORE_NOTADB 26

/**
 * The disk (the server's, if the store is there) is full, or the store has reached its limit (kvstore_set_limit).
 */
#define KVSTORE_FULL 113

/**
 * Journal mode: a write-ahead log (the default). Readers and a writer do not block each other.
 */
#define KVSTORE_JOURNAL_WAL 1

/**
 * Journal mode: a rollback journal. One file; readers and writers take turns.
 */
#define KVSTORE_JOURNAL_DELETE 2

/**
 * Sync level (the default): a power cut may lose the last commits, never the file.
 */
#define KVSTORE_SYNC_NORMAL 1

/**
 * Sync level: a commit is on the disk when the call returns.
 */
#define KVSTORE_SYNC_FULL 2

/**
 * Sync level: nothing is synced; a power cut may destroy the file.
 */
#define KVSTORE_SYNC_OFF 3

/**
 * Checkpoint as much as is possible without waiting.
 */
#define KVSTORE_CHECKPOINT_PASSIVE 0

/**
 * Wait for writers, then checkpoint everything.
 */
#define KVSTORE_CHECKPOINT_FULL 1

/**
 * Like FULL, and wait for readers, so that the next writer starts the WAL anew.
 */
#define KVSTORE_CHECKPOINT_RESTART 2

/**
 * Like RESTART, and cut the WAL to zero bytes.
 */
#define KVSTORE_CHECKPOINT_TRUNCATE 3

/**
 * KVStoreConfig.profile: defaults for devices with little memory and little flash.
 */
#define KVSTORE_SMALL 1

/**
 * KVWriteOptions.flags: write only if the key is missing or expired.
 */
#define KVSTORE_PUT_IF_ABSENT 1

/**
 * KVWriteOptions.flags: write only if the key is alive.
 */
#define KVSTORE_PUT_IF_PRESENT 2

/**
 * KVWriteOptions.flags: a live key keeps the TTL it has, also none; a new key gets expireMs.
 */
#define KVSTORE_PUT_KEEP_TTL 4

/**
 * KVWriteOptions.flags: the family's default TTL instead of expireMs, which must be 0.
 */
#define KVSTORE_PUT_DEFAULT_TTL 8

/**
 * KVWriteOptions.flags: expireMs is not a moment, but how many milliseconds the key lives from now, by the store's clock; on
 * a server, by the server's, whose time a client need not know.
 */
#define KVSTORE_PUT_TTL 16

/**
 * kvstore_cf_expire: only if the key has no TTL.
 */
#define KVSTORE_EXPIRE_NX 1

/**
 * kvstore_cf_expire: only if the key has a TTL.
 */
#define KVSTORE_EXPIRE_XX 2

/**
 * kvstore_cf_expire: only if the new time is later than the old one.
 */
#define KVSTORE_EXPIRE_GT 4

/**
 * kvstore_cf_expire: only if the new time is earlier than the old one.
 */
#define KVSTORE_EXPIRE_LT 8

/**
 * Ranges: from the greatest key to the least.
 */
#define KVSTORE_RANGE_REVERSE 1

/**
 * Ranges: the upper bound is part of the range.
 */
#define KVSTORE_RANGE_CLOSED 2

/**
 * Ranges: the lower bound is not part of the range.
 */
#define KVSTORE_RANGE_OPEN 4

/**
 * Ranges: read no values; kvstore_iterator_value is KVSTORE_ERROR.
 */
#define KVSTORE_RANGE_KEYS_ONLY 8

/**
 * kvstore_set_limit: nothing makes room; a write that would pass the limit is KVSTORE_FULL.
 */
#define KVSTORE_EVICT_NONE 0

/**
 * kvstore_set_limit: expired keys make room, then those that would expire soonest.
 */
#define KVSTORE_EVICT_SOONEST 1

/**
 * kvstore_set_limit: expired keys make room, then those that were written longest ago.
 */
#define KVSTORE_EVICT_OLDEST 2

/**
 * A documented number of families that surely works. Not a limit.
 */
#define KVSTORE_MAX_COLUMN_FAMILIES 64

/**
 * Version of this header.
 */
#define KVSTORE_VERSION_MAJOR 0

/**
 * Version of this header.
 */
#define KVSTORE_VERSION_MINOR 1

/**
 * Version of this header.
 */
#define KVSTORE_VERSION_PATCH 0

/**
 * Writes to be committed together. For one thread at a time.
 */
typedef struct KVBatch KVBatch;

/**
 * A handle on a family of keys. May be shared by threads.
 */
typedef struct KVColumnFamily KVColumnFamily;

/**
 * A position among the live entries of a family. For one thread at a time.
 */
typedef struct KVIterator KVIterator;

/**
 * A handle on a store: one connection to one file. May be shared by threads, which take turns;
 * open several for parallel reads.
 */
typedef struct KVStore KVStore;

/**
 * How to open a store. All zeros is the default configuration, and a safe one: initialise with
 * `KVStoreConfig cfg = {0};` and set what you need.
 */
typedef struct {
    /**
     * KVSTORE_JOURNAL_WAL (also 0) or KVSTORE_JOURNAL_DELETE. An existing file is converted.
     */
    int journalMode;
    /**
     * KVSTORE_SYNC_NORMAL (also 0), KVSTORE_SYNC_FULL or KVSTORE_SYNC_OFF.
     */
    int syncLevel;
    /**
     * Page cache, in pages; 0: 2000. A write transaction that changes more may take up to five times as much.
     */
    int cacheSize;
    /**
     * Page size of new files, in bytes: a power of two from 512 to 65536; 0: 4096.
     */
    int pageSize;
    /**
     * Non-zero: read only; the file must exist. A store that was closed can also be read where nothing can be
     * written, such as on a read-only mount, or by a user who may not write it: calls notice a change, and those of a
     * snapshot answer KVSTORE_BUSY after one.
     */
    int readOnly;
    /**
     * How long to wait for another handle's lock, in milliseconds; 0: fail at once with KVSTORE_BUSY. An
     * open waits for at least 2 seconds: others hold the locks it needs for moments only, while they open.
     */
    int busyTimeout;
    /**
     * N > 0: a passive checkpoint after every N write commits (in a store that has a limit, also by the length of the WAL);
     * 0: automatic, by the length of the WAL, see walPages.
     */
    int walSizeLimit;
    /**
     * Ignored.
     */
    int allowEncrypted;
    /**
     * Ignored: handles are always safe to share.
     */
    int fullMutex;
    /**
     * The longest value, in bytes, up to 512 MiB; 0: 10 MiB.
     */
    int maxValueSize;
    /**
     * How much of the file is read through a memory map, in bytes; 0: 256 MiB on 64-bit systems, none
     * on 32-bit ones; negative: none.
     */
    int64_t mmapSize;
    /**
     * Non-zero: this handle alone owns the file. Fastest; other opens fail with KVSTORE_BUSY. Not together with
     * readOnly.
     */
    int exclusive;
    /**
     * Whether the handle keeps its read snapshot between calls, looking before each read whether it is still
     * the newest. 0: while no other process has the store open through this library, and with KVSTORE_SMALL never;
     * positive: always; negative: never. While a handle that keeps one sits idle, the WAL that other processes write
     * cannot start anew: also that of a process which opens the store after the last read or write of the handle.
     */
    int holdReads;
    /**
     * How long the WAL gets, in pages, from 16 to 1000000; 0: 4000 (64 with KVSTORE_SMALL), or an eighth of the limit of
     * the store (kvstore_set_limit) if that is less, but at least 16. It is written back into the database while it
     * grows, and begins anew from three quarters of that on; with one writer it never has more than twice as many pages
     * and those of one transaction.
     * A commit waits for the checkpoint of somebody else, up to `busyTimeout`. Several writers (the cleaner is one of
     * its own), and readers that stay, or come without a pause, can make it longer; with KVSTORE_SYNC_FULL its file may have 256 KiB
     * more. For small flash. Where walSizeLimit is set, used only in a store that has a limit.
     */
    int walPages;
    /**
     * Non-zero: what is deleted, overwritten, expired and removed, or evicted is overwritten with zeros in the files of
     * the store; 0: its bytes stay until their place is used again. In WAL mode older states of the pages stand in the
     * -wal file until the next checkpoint that no reader is in the way of, in whatever mode, or the close of the last
     * handle; KVSTORE_CHECKPOINT_TRUNCATE answers KVSTORE_BUSY where it could not. The file does not remember it: every
     * handle that writes must have it. What it costs and cannot do: docs/how-to/secure-delete.md.
     */
    int secureDelete;
    /**
     * What 0 means in the other fields. 0: what they say. KVSTORE_SMALL: the defaults for little memory and little flash, which
     * are 32 pages for cacheSize, no memory map, 64 for walPages, and never for holdReads; docs/how-to/firmware.md.
     */
    int profile;
    /**
     * Must be zero.
     */
    int reserved[5];
} KVStoreConfig;

/**
 * An entry as kvstore_iterator_fetch shows it. The memory is the iterator's.
 */
typedef struct {
    /**
     * Its key; of a row its clustering part.
     */
    const void *pKey;
    /**
     * NULL if the iterator reads no values; an empty value is not NULL.
     */
    const void *pValue;
    /**
     * Length of the key.
     */
    int nKey;
    /**
     * Length of the value; 0 if the iterator reads no values.
     */
    int nValue;
    /**
     * When it expires, in milliseconds since the Unix epoch, or KVSTORE_NO_TTL.
     */
    int64_t expireMs;
} KVEntry;

/**
 * How kvstore_cf_put_with writes. All zeros: always, never expiring.
 */
typedef struct {
    /**
     * When the key expires, in milliseconds since the Unix epoch; 0: never. With KVSTORE_PUT_TTL: in how many.
     */
    int64_t expireMs;
    /**
     * KVSTORE_PUT_* or'ed together.
     */
    uint32_t flags;
    /**
     * Must be zero.
     */
    uint32_t reserved;
} KVWriteOptions;

/**
 * What a handle has done since it was opened or kvstore_stats_reset was called. Only calls that
 * succeeded count, except in nErrors.
 */
typedef struct {
    /**
     * Keys written.
     */
    uint64_t nPuts;
    /**
     * Values read.
     */
    uint64_t nGets;
    /**
     * Keys deleted.
     */
    uint64_t nDeletes;
    /**
     * Iterators made.
     */
    uint64_t nIterations;
    /**
     * Calls that failed. KVSTORE_NOTFOUND for a key is not a failure.
     */
    uint64_t nErrors;
    /**
     * Bytes of values read.
     */
    uint64_t nBytesRead;
    /**
     * Bytes of keys and values written.
     */
    uint64_t nBytesWritten;
    /**
     * Write transactions committed.
     */
    uint64_t nWalCommits;
    /**
     * Checkpoints run, automatic ones included.
     */
    uint64_t nCheckpoints;
    /**
     * Gets, exists and ttl calls that met an expired key; of each such row the first one. Each kvstore_cf_get_many
     * that meets one counts.
     */
    uint64_t nTtlExpired;
    /**
     * Expired keys removed by purges, or to make room.
     */
    uint64_t nTtlPurged;
    /**
     * Pages of the database now; not reset.
     */
    uint64_t nDbPages;
    /**
     * Frames in the WAL after this handle's last commit or checkpoint; not reset.
     */
    uint64_t nWalFrames;
    /**
     * Gets (of several keys, each) and exists that found no live key.
     */
    uint64_t nMisses;
    /**
     * Keys that were removed alive to make room (kvstore_set_limit).
     */
    uint64_t nEvicted;
    /**
     * What the data takes in the file now, in bytes: its pages less the free ones, which is what kvstore_set_limit
     * bounds; not reset.
     */
    uint64_t nSizeBytes;
    /**
     * Zero.
     */
    uint64_t reserved[4];
} KVStoreStats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the library, such as "0.1.0"; with encryption "0.1.0+sqlcipher". If stores can be on a server, "+remote"
 * is at its end. The text is static.
 */
const char *kvstore_version(void);

/**
 * The version of the SQLite inside, such as "3.54.1". The text is static.
 */
const char *kvstore_sqlite_version(void);

/**
 * The engine of this build: "sql" or "btree"; with encryption "sql+sqlcipher" or "btree+sqlcipher". The text is
 * static.
 */
const char *kvstore_engine(void);

/**
 * What a result code means, in a few words. Never NULL; the text is static. Unknown codes have a
 * text, too.
 */
const char *kvstore_strerror(int code);

/**
 * The time the library uses: milliseconds since the Unix epoch, never less than before in this
 * process.
 */
int64_t kvstore_now_ms(void);

/**
 * Allocates n bytes, all zero. NULL if n is negative or memory is out. Free with kvstore_free.
 */
void *kvstore_malloc(int n);

/**
 * Frees memory that this library handed out (it comes from malloc). NULL is allowed.
 */
void kvstore_free(void *memory);

/**
 * Opens the store at `path` with the default configuration; makes it if it is not there.
 *
 * `path` is a file name, or the URL of a store on a server, such as
 * "postgresql://user@host/database?schema=app" (docs/how-to/postgresql.md); NULL, "" or ":memory:" is a new
 * store in memory. `journalMode` is KVSTORE_JOURNAL_WAL (also 0) or KVSTORE_JOURNAL_DELETE.
 * Otherwise as kvstore_open_v2.
 */
int kvstore_open(const char *path, KVStore **ppKV, int journalMode);

/**
 * Opens the store at `path` with a configuration (NULL: the default one); makes it if it is not
 * there.
 *
 * `path` is a file name; NULL, "" or ":memory:" is a new store in memory. In a build with servers (kvstore_version ends in
 * "+remote") it may be a URL, "postgresql://user:password@host:port/database?schema=app": a store in a schema of a PostgreSQL
 * server, which is made there (docs/how-to/postgresql.md has the parameters, and what differs). On success `*ppKV` is the
 * handle, to be closed with kvstore_close; on failure it is NULL, and kvstore_errmsg(NULL) has the
 * text. `config` is only read during the call.
 *
 * If the file is deleted, moved or replaced while it is open, calls on the handle answer KVSTORE_IOERR within some
 * milliseconds, as nobody would see what is written; renaming its directory does not matter,
 * but kvstore_backup and kvstore_cleaner_start need the path.
 *
 * If it fails, no file is left that was not there before, but for a whole store without keys if what fails comes after
 * it was made (there are no descriptors for its -wal). Nor does a read-only handle leave one (on systems with locks of
 * open files: Linux).
 *
 * Errors: KVSTORE_CANTOPEN (no such directory, no permission, a directory or other special file, a
 * missing or empty file with readOnly, a newer file format; a file with several names (hard links), each of
 * which would have a log of its own; a log beside it that belongs to a deleted file of its name, which somebody
 * still has open); KVSTORE_NOTADB (not a store: the file is left as it is); KVSTORE_AUTH_FAILED
 * (an encrypted store, or bytes without any order: the file is left as it is); KVSTORE_BUSY (another handle has it open
 * exclusively, or in the other journal mode; others write without a pause in DELETE mode); KVSTORE_READONLY (this
 * process may not write the file, or its -wal or -shm, which may belong to another user: the text names them);
 * KVSTORE_CORRUPT; KVSTORE_IOERR; KVSTORE_FULL; KVSTORE_NOMEM; KVSTORE_ERROR (ppKV is NULL, a setting is out of
 * bounds). Of a URL: KVSTORE_ERROR (it is not well-formed); KVSTORE_CANTOPEN (this build has no servers; none is reached,
 * or answers, within the URL's connect_timeout, and then busyTimeout; there is no such database; no TLS as sslmode wants
 * it; the role may not use or make the schema; the store is of a newer version); KVSTORE_AUTH_FAILED (the log-in);
 * KVSTORE_BUSY (the server takes no connection now: it starts, or has too many); KVSTORE_READONLY (none of the servers can
 * write now); KVSTORE_NOTADB.
 */
int kvstore_open_v2(const char *path,
                    KVStore **ppKV,
                    const KVStoreConfig *config);

/**
 * Closes a store: rolls back an open transaction, and closes the file. Families and iterators of it
 * that are still open answer KVSTORE_MISUSE from now on, and must still be closed. NULL is allowed.
 * Other threads may be in calls: the one that has the connection is waited for; a long one (a purge, sweep,
 * vacuum, checkpoint or backup) stops at its next step, with KVSTORE_MISUSE.
 * A second close, and any other call with the closed handle, answers KVSTORE_MISUSE.
 *
 * Errors: KVSTORE_MISUSE (closed already, or opened before a fork; called by a callback of this store,
 * which then stays open); what failed while closing, after which the handle is closed all the same. The
 * text is in kvstore_errmsg(NULL).
 */
int kvstore_close(KVStore *kv);

/**
 * The text of the last call that did not answer KVSTORE_OK on this handle, its families and its iterators;
 * with NULL, of this thread's last call that failed without a usable handle: kvstore_open, or a call with one
 * that is NULL, closed, or in use by the call whose callback this is. Never NULL: "no error" where nothing
 * failed. After KVSTORE_NOTFOUND it is "no such key", "no such family" or "no key has a TTL". Valid until the
 * next call on the handle that fails, in the thread that has asked for it: what other threads do leaves it as it is.
 */
const char *kvstore_errmsg(KVStore *kv);

/**
 * Says in `*pMs` the time by which this store shows what is left of a TTL: that of the clock it was given, or else of the
 * system's (kvstore_now_ms). On a server it is the server's, as its newest answer had it, and gone on since then with this
 * machine's monotonic clock; the server is asked if that is more than a minute ago, or the machine was suspended since, and
 * where it cannot be, no time is told. Times that several machines compare come from here.
 *
 * Errors: KVSTORE_MISUSE; KVSTORE_ERROR (kv or pMs is NULL); where the server is to be asked, also KVSTORE_IOERR (it cannot be
 * reached, or the open transaction was lost with its connection), KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM.
 */
int kvstore_time_ms(KVStore *kv,
                    int64_t *pMs);

/**
 * Uses `now_ms(context)` instead of the system's clock for this handle, for tests and for devices
 * without a clock; NULL goes back to the system's. It returns milliseconds since the Unix epoch, is
 * called from whatever thread uses the handle, and must not call this store. A time before one it
 * has returned counts as that one. `context` must stay valid until the clock is replaced or the
 * store is closed: both wait for threads that are inside the old clock.
 *
 * Errors: KVSTORE_MISUSE (also for a call from inside the clock), KVSTORE_ERROR (kv is NULL, or the store is on a
 * server, whose clock decides for all).
 */
int kvstore_set_clock(KVStore *kv,
                      int64_t (*now_ms)(void *context),
                      void *context);

/**
 * Makes a family. `name` is 1 to 255 bytes of UTF-8; names that begin with "__", "_snkv_" or
 * "kvstore" are reserved; case matters. On success `*ppCF` is a handle, to be closed with
 * kvstore_cf_close; on failure it is NULL.
 *
 * Errors: KVSTORE_ERROR (it exists, a bad name, a NULL pointer), KVSTORE_BUSY, KVSTORE_READONLY,
 * KVSTORE_MISUSE, KVSTORE_IOERR, KVSTORE_FULL, KVSTORE_NOMEM, KVSTORE_CORRUPT.
 */
int kvstore_cf_create(KVStore *kv, const char *name, KVColumnFamily **ppCF);

/**
 * Opens a family; "default" is the default one. Otherwise as kvstore_cf_create.
 *
 * Errors: KVSTORE_NOTFOUND (there is none of that name), KVSTORE_ERROR (a bad name, a NULL pointer),
 * KVSTORE_BUSY, KVSTORE_MISUSE, KVSTORE_IOERR, KVSTORE_NOMEM, KVSTORE_CORRUPT.
 */
int kvstore_cf_open(KVStore *kv, const char *name, KVColumnFamily **ppCF);

/**
 * Gives a handle on the default family, the one the functions without "cf" work on. To be closed
 * with kvstore_cf_close.
 *
 * Errors: KVSTORE_ERROR (a NULL pointer), KVSTORE_MISUSE.
 */
int kvstore_cf_get_default(KVStore *kv, KVColumnFamily **ppCF);

/**
 * Drops a family with everything in it.
 *
 * Errors: KVSTORE_NOTFOUND (there is none of that name), KVSTORE_BUSY (a handle to it is open on this
 * store, or another handle is writing), KVSTORE_ERROR ("default", a reserved name, a NULL pointer),
 * KVSTORE_READONLY, KVSTORE_MISUSE, KVSTORE_IOERR, KVSTORE_FULL, KVSTORE_NOMEM, KVSTORE_CORRUPT.
 */
int kvstore_cf_drop(KVStore *kv, const char *name);

/**
 * Lists the names of all families but the default one, in byte order. On success `*pazNames` is an
 * array of `*pnCount` strings with a NULL after them; free each string and then the array with
 * kvstore_free.
 *
 * Errors: KVSTORE_ERROR (a NULL pointer), KVSTORE_BUSY, KVSTORE_MISUSE, KVSTORE_IOERR, KVSTORE_NOMEM,
 * KVSTORE_CORRUPT.
 */
int kvstore_cf_list(KVStore *kv, char ***pazNames, int *pnCount);

/**
 * The name of a family. Never NULL (an empty string for NULL and closed handles); valid until the
 * handle is closed.
 */
const char *kvstore_cf_name(KVColumnFamily *cf);

/**
 * Closes a family's handle. NULL is allowed, and so are handles of a closed store. Calls that other threads
 * are in with it go on to their end.
 */
void kvstore_cf_close(KVColumnFamily *cf);

/**
 * Writes a value. The key loses the TTL it had, and gets the family's default TTL if there is one.
 *
 * A key is 1 to 65536 bytes, any bytes. A value is 0 bytes to the configured maximum (10 MiB by
 * default); (NULL, 0) is an empty value. Both are copied.
 *
 * Errors: KVSTORE_ERROR (a NULL pointer, a bad length), KVSTORE_BUSY (another handle is writing; only
 * outside a transaction), KVSTORE_READONLY, KVSTORE_FULL, KVSTORE_IOERR, KVSTORE_NOMEM,
 * KVSTORE_CORRUPT, KVSTORE_MISUSE. Nothing is changed then; inside a transaction a failure for I/O,
 * space or memory leaves only the rollback (but KVSTORE_FULL for a limit, kvstore_set_limit, leaves it as it was before
 * the call).
 */
int kvstore_put(KVStore *kv,
                const void *pKey,
                int nKey,
                const void *pValue,
                int nValue);

/**
 * kvstore_put in any family.
 */
int kvstore_cf_put(KVColumnFamily *cf, const void *pKey, int nKey, const void *pValue, int nValue);

/**
 * Reads a value. On success `*ppValue` is a copy of `*pnValue` bytes with a NUL after them, to be
 * freed with kvstore_free; it is never NULL, also for an empty value.
 *
 * Errors: KVSTORE_NOTFOUND (missing or expired: *ppValue is NULL and *pnValue 0), KVSTORE_ERROR (a
 * NULL pointer, a bad length), KVSTORE_BUSY (only in DELETE journal mode), KVSTORE_IOERR,
 * KVSTORE_NOMEM, KVSTORE_CORRUPT, KVSTORE_MISUSE.
 */
int kvstore_get(KVStore *kv, const void *pKey, int nKey, void **ppValue, int *pnValue);

/**
 * kvstore_get in any family.
 */
int kvstore_cf_get(KVColumnFamily *cf, const void *pKey, int nKey, void **ppValue, int *pnValue);

/**
 * Deletes a key, with its TTL. Its bytes stay in the file until their place is used again, unless KVStoreConfig.secureDelete
 * is set.
 *
 * Errors: KVSTORE_NOTFOUND (missing or expired); otherwise as kvstore_put.
 */
int kvstore_delete(KVStore *kv,
                   const void *pKey,
                   int nKey);

/**
 * kvstore_delete in any family.
 */
int kvstore_cf_delete(KVColumnFamily *cf, const void *pKey, int nKey);

/**
 * Says in `*pExists` whether a key is there and alive: 1 or 0.
 *
 * Errors: as kvstore_get, but a missing key is KVSTORE_OK and 0.
 */
int kvstore_exists(KVStore *kv, const void *pKey, int nKey, int *pExists);

/**
 * kvstore_exists in any family.
 */
int kvstore_cf_exists(KVColumnFamily *cf, const void *pKey, int nKey, int *pExists);

/**
 * Writes a value only if the key is absent; an expired key is. `expire_ms` is when the new key
 * expires, in milliseconds since the Unix epoch; 0: never. `*pInserted` (may be NULL) says whether it
 * wrote: 1, or 0 when the key was alive, which then keeps its value and TTL. Check and write are one
 * step for every other handle and process.
 *
 * Errors: as kvstore_put; KVSTORE_ERROR also for a negative expire_ms.
 */
int kvstore_put_if_absent(KVStore *kv,
                          const void *pKey,
                          int nKey,
                          const void *pValue,
                          int nValue,
                          int64_t expire_ms,
                          int *pInserted);

/**
 * kvstore_put_if_absent in any family.
 */
int kvstore_cf_put_if_absent(KVColumnFamily *cf,
                             const void *pKey,
                             int nKey,
                             const void *pValue,
                             int nValue,
                             int64_t expire_ms,
                             int *pInserted);

/**
 * Counts the rows. Expired ones are included as long as nothing has removed them, and no get, exists, ttl,
 * expire-time or write-time call of this handle has met them. Reads the whole key tree.
 *
 * Errors: KVSTORE_ERROR (a NULL pointer), KVSTORE_BUSY (only in DELETE journal mode), KVSTORE_IOERR,
 * KVSTORE_NOMEM, KVSTORE_CORRUPT, KVSTORE_MISUSE.
 */
int kvstore_count(KVStore *kv,
                  int64_t *pnCount);

/**
 * kvstore_count of any family.
 */
int kvstore_cf_count(KVColumnFamily *cf, int64_t *pnCount);

/**
 * Deletes everything in the default family.
 *
 * Errors: as kvstore_put.
 */
int kvstore_clear(KVStore *kv);

/**
 * kvstore_clear of any family.
 */
int kvstore_cf_clear(KVColumnFamily *cf);

/**
 * Writes a value that expires at `expire_ms`, in milliseconds since the Unix epoch (such as
 * kvstore_now_ms() + 60000); 0: never. A time in the past is allowed: the key is invisible at once.
 *
 * `expire_ms` is a moment. A value of 1 to 10^10 (before 27 April 1970) is nearly always a duration by
 * mistake, and the key is gone: kvstore_cf_put_for takes the duration.
 *
 * Errors: as kvstore_put; KVSTORE_ERROR also for a negative expire_ms.
 */
int kvstore_put_ttl(KVStore *kv,
                    const void *pKey,
                    int nKey,
                    const void *pValue,
                    int nValue,
                    int64_t expire_ms);

/**
 * kvstore_put_ttl in any family.
 */
int kvstore_cf_put_ttl(KVColumnFamily *cf,
                       const void *pKey,
                       int nKey,
                       const void *pValue,
                       int nValue,
                       int64_t expire_ms);

/**
 * Writes a value that lives for `ttl_ms` milliseconds from now, by the store's clock. A duration that ends
 * after the last moment there is ends with it. kvstore_cf_put_ttl takes a moment instead, and there
 * 0 for a key that never expires.
 *
 * Errors: as kvstore_put; KVSTORE_ERROR also for a `ttl_ms` below 1.
 */
int kvstore_cf_put_for(KVColumnFamily *cf,
                       const void *pKey,
                       int nKey,
                       const void *pValue,
                       int nValue,
                       int64_t ttl_ms);

/**
 * Reads a value, as kvstore_get does, and what is left of its life: `*pnRemaining` (may be NULL) is
 * in milliseconds, or KVSTORE_NO_TTL.
 *
 * Errors: as kvstore_get; with KVSTORE_NOTFOUND *pnRemaining is 0.
 */
int kvstore_get_ttl(KVStore *kv,
                    const void *pKey,
                    int nKey,
                    void **ppValue,
                    int *pnValue,
                    int64_t *pnRemaining);

/**
 * kvstore_get_ttl in any family.
 */
int kvstore_cf_get_ttl(KVColumnFamily *cf,
                       const void *pKey,
                       int nKey,
                       void **ppValue,
                       int *pnValue,
                       int64_t *pnRemaining);

/**
 * Says in `*pnRemaining` what is left of a key's life, in milliseconds: KVSTORE_NO_TTL for a key that
 * never expires, 0 for one that has expired but whose row this call is the first of its handle to meet. The row is
 * removed later, together with others; for this handle it is gone from then on.
 *
 * Errors: KVSTORE_NOTFOUND (no row); otherwise as kvstore_get.
 */
int kvstore_ttl_remaining(KVStore *kv,
                          const void *pKey,
                          int nKey,
                          int64_t *pnRemaining);

/**
 * kvstore_ttl_remaining in any family.
 */
int kvstore_cf_ttl_remaining(KVColumnFamily *cf, const void *pKey, int nKey, int64_t *pnRemaining);

/**
 * Removes every key of the default family that has expired; `*pnDeleted` (may be NULL) is how many, without those
 * that a get, exists or ttl call of this handle has met before.
 * The work grows with that number only. It is done in transactions of at most 256 keys, between which
 * others may write; or all in the open transaction.
 *
 * Errors: as kvstore_put. What earlier transactions removed stays removed.
 */
int kvstore_purge_expired(KVStore *kv,
                          int *pnDeleted);

/**
 * kvstore_purge_expired of any family.
 */
int kvstore_cf_purge_expired(KVColumnFamily *cf, int *pnDeleted);

/**
 * Makes an iterator over the live entries of the default family, from the least key to the greatest.
 * It is at eof until kvstore_iterator_first or kvstore_iterator_seek. On success `*ppIter` is the
 * iterator, to be closed with kvstore_iterator_close; on failure it is NULL.
 *
 * An iterator holds no lock and no snapshot between calls (inside a transaction it has the
 * transaction's): writes, commits and close are always possible. Outside a transaction it sees, ahead
 * of its position, what its own store handle writes, and what others commit, sooner or later: it reads ahead, up to
 * 512 entries or 64 KiB and one value more, and what another handle commits to those meanwhile it does not see, be it a
 * value or an end of life. By the ends it has read it judges them at each step.
 *
 * Of a store on a server it judges what it has read ahead by the server's time as the store handle knows it,
 * which is late by as long as the newest answer was on its way: so long, it may show an entry that has expired since.
 *
 * Errors: KVSTORE_ERROR (a NULL pointer), KVSTORE_MISUSE.
 */
int kvstore_iterator_create(KVStore *kv,
                            KVIterator **ppIter);

/**
 * kvstore_iterator_create in any family.
 */
int kvstore_cf_iterator_create(KVColumnFamily *cf, KVIterator **ppIter);

/**
 * Makes an iterator from the greatest key to the least. It is at eof until kvstore_iterator_last or
 * kvstore_iterator_seek, and moves with kvstore_iterator_prev. Otherwise as kvstore_iterator_create.
 */
int kvstore_reverse_iterator_create(KVStore *kv, KVIterator **ppIter);

/**
 * kvstore_reverse_iterator_create in any family.
 */
int kvstore_cf_reverse_iterator_create(KVColumnFamily *cf, KVIterator **ppIter);

/**
 * Makes an iterator over the keys that start with a prefix of 1 to 65536 bytes. It is at the first of
 * them from the start (or at eof). Otherwise as kvstore_iterator_create; errors also as kvstore_get.
 */
int kvstore_prefix_iterator_create(KVStore *kv, const void *pPrefix, int nPrefix, KVIterator **ppIter);

/**
 * kvstore_prefix_iterator_create in any family.
 */
int kvstore_cf_prefix_iterator_create(KVColumnFamily *cf,
                                      const void *pPrefix,
                                      int nPrefix,
                                      KVIterator **ppIter);

/**
 * Makes an iterator over the keys that start with a prefix, from the greatest to the least. It is at
 * the greatest from the start (or at eof). Otherwise as kvstore_prefix_iterator_create.
 */
int kvstore_reverse_prefix_iterator_create(KVStore *kv,
                                           const void *pPrefix,
                                           int nPrefix,
                                           KVIterator **ppIter);

/**
 * kvstore_reverse_prefix_iterator_create in any family.
 */
int kvstore_cf_reverse_prefix_iterator_create(KVColumnFamily *cf,
                                              const void *pPrefix,
                                              int nPrefix,
                                              KVIterator **ppIter);

/**
 * Moves to the first entry of the iterator's range; on a reverse iterator it acts as
 * kvstore_iterator_last. Nothing there: KVSTORE_OK, and eof.
 *
 * Errors: KVSTORE_ERROR (a NULL pointer), KVSTORE_BUSY (only in DELETE journal mode), KVSTORE_IOERR,
 * KVSTORE_NOMEM, KVSTORE_CORRUPT, KVSTORE_MISUSE (the iterator or its store is closed).
 */
int kvstore_iterator_first(KVIterator *it);

/**
 * Moves a reverse iterator to the last entry of its range.
 *
 * Errors: as kvstore_iterator_first; KVSTORE_ERROR on a forward iterator.
 */
int kvstore_iterator_last(KVIterator *it);

/**
 * Moves to the next entry; on a reverse iterator it acts as kvstore_iterator_prev. At eof it stays.
 *
 * Errors: as kvstore_iterator_first. After a failure of a move the iterator is at eof, and this one goes on
 * after the last entry it was at, also if what failed was a kvstore_iterator_seek or kvstore_iterator_first. If
 * it was at none, a seek that failed leaves it there.
 */
int kvstore_iterator_next(KVIterator *it);

/**
 * Moves a reverse iterator to the entry before. At eof it stays.
 *
 * Errors: as kvstore_iterator_next; KVSTORE_ERROR on a forward iterator.
 */
int kvstore_iterator_prev(KVIterator *it);

/**
 * Moves to the first entry whose key is at or after `key`; on a reverse iterator, at or before it. A
 * key outside the iterator's prefix, or nothing there: KVSTORE_OK, and eof. May be called any number
 * of times.
 *
 * Errors: as kvstore_iterator_first; KVSTORE_ERROR also for a key of a bad length, which moves nothing. After a
 * failure kvstore_iterator_next goes on after the entry the iterator was at before.
 */
int kvstore_iterator_seek(KVIterator *it,
                          const void *pKey,
                          int nKey);

/**
 * Shows the live entries from the current one on, at most `max`, and moves behind them: what a loop of
 * kvstore_iterator_key, _value and _next shows, for a fraction of its time. `*pn` is how many were written to
 * `entries`: maybe fewer than there are, but 0 only where there are none left (or if `max` is 0).
 *
 * `while (kvstore_iterator_fetch(it, entries, 256, &n) == KVSTORE_OK && n > 0)` walks over all.
 *
 * What they point to is the iterator's memory, and valid until it moves, fetches again or is closed. Works on every
 * iterator. All of the entries are alive when it is called (but for kvstore_cf_expiring_iterator_create; of a store on a
 * server: as kvstore_iterator_create says). If
 * this store handle has written since the current entry was read, by a move or ahead, it is looked at again, and shown as it is now, or not
 * at all if it is gone (in the order of expiry: where it is now, if that is ahead).
 *
 * Errors: as kvstore_iterator_next, also KVSTORE_ERROR for a negative `max`; nothing is written then, and the
 * iterator stays where it is, or if that entry was found gone, at the one behind it.
 */
int kvstore_iterator_fetch(KVIterator *it,
                           KVEntry *entries,
                           int max,
                           int *pn);

/**
 * 1 if the iterator is at no entry, 0 if it is at one. 1 for NULL and for a closed iterator or store.
 */
int kvstore_iterator_eof(KVIterator *it);

/**
 * Shows the key of the current entry. The memory is the iterator's, and valid until it moves or is
 * closed.
 *
 * Errors: KVSTORE_ERROR (at eof, a NULL pointer), KVSTORE_MISUSE (the iterator or its store is
 * closed).
 */
int kvstore_iterator_key(KVIterator *it, void **ppKey, int *pnKey);

/**
 * Shows the value of the current entry. Otherwise as kvstore_iterator_key.
 */
int kvstore_iterator_value(KVIterator *it, void **ppValue, int *pnValue);

/**
 * Closes an iterator. NULL is allowed, and so are iterators of a closed store. A call that another thread is
 * in with it goes on to its end; a callback cannot close the iterator that has called it.
 */
void kvstore_iterator_close(KVIterator *it);

/**
 * Shows when the current entry of an iterator expires: milliseconds since the Unix epoch, or
 * KVSTORE_NO_TTL. Works on every iterator.
 *
 * Errors: as kvstore_iterator_key.
 */
int kvstore_iterator_expire_ms(KVIterator *it, int64_t *pExpireMs);

/**
 * Writes a value as `*opt` says (NULL: always, never expiring). `*pWritten` (may be NULL) is 1 if it
 * wrote, 0 if the condition did not hold. Check and write are one step for every other handle and
 * process.
 *
 * Errors: as kvstore_put; KVSTORE_ERROR also for unknown flags, flags that exclude each other, a
 * reserved field that is not 0 and a negative expireMs, or one of 0 with KVSTORE_PUT_TTL.
 */
int kvstore_cf_put_with(KVColumnFamily *cf,
                        const void *pKey,
                        int nKey,
                        const void *pValue,
                        int nValue,
                        const KVWriteOptions *opt,
                        int *pWritten);

/**
 * Writes a value only if the key is alive and its value is equal, byte by byte, to `pExpected`.
 * `*pSwapped` (may be NULL) is 1 if it wrote; 0 if the value differs or the key is missing or expired.
 * The key then expires at `expire_ms` (0: never), whatever it had before.
 *
 * Errors: as kvstore_put; KVSTORE_ERROR also for a negative expire_ms.
 */
int kvstore_cf_compare_and_swap(KVColumnFamily *cf,
                                const void *pKey,
                                int nKey,
                                const void *pExpected,
                                int nExpected,
                                const void *pValue,
                                int nValue,
                                int64_t expire_ms,
                                int *pSwapped);

/**
 * Deletes a key only if it is alive and its value is equal, byte by byte, to `pExpected`. `*pDeleted`
 * (may be NULL) is 1 if it did; 0 if the value differs or the key is missing or expired.
 *
 * Errors: as kvstore_put.
 */
int kvstore_cf_compare_and_delete(KVColumnFamily *cf,
                                  const void *pKey,
                                  int nKey,
                                  const void *pExpected,
                                  int nExpected,
                                  int *pDeleted);

/**
 * Adds `delta` to the number under a key, kept as decimal text; `*pValue` (may be NULL) is the sum. A
 * missing or expired key counts as 0 and expires at `expire_ms`, or with 0 as the family's default TTL
 * says (never, if it has none). A live key keeps its TTL.
 *
 * Errors: KVSTORE_ERROR (the value is no whole number of 64 bits, or the sum is none; a negative
 * expire_ms); otherwise as kvstore_put. Nothing is changed then.
 */
int kvstore_cf_increment(KVColumnFamily *cf,
                         const void *pKey,
                         int nKey,
                         int64_t delta,
                         int64_t expire_ms,
                         int64_t *pValue);

/**
 * Changes when a live key expires, without touching its value. `expire_ms` is the new time (0: never;
 * in the past: the key is gone at once). `flags` is 0, or one of KVSTORE_EXPIRE_*; a key without a TTL
 * counts as expiring later than any time. `*pChanged` (may be NULL) is 1, or 0 if the condition did not
 * hold.
 *
 * Errors: KVSTORE_NOTFOUND (missing or expired), KVSTORE_ERROR (a negative expire_ms, unknown flags);
 * otherwise as kvstore_put.
 */
int kvstore_cf_expire(KVColumnFamily *cf,
                      const void *pKey,
                      int nKey,
                      int64_t expire_ms,
                      int flags,
                      int *pChanged);

/**
 * Takes the TTL from a live key. `*pChanged` (may be NULL) is 1, or 0 if it had none.
 *
 * Errors: KVSTORE_NOTFOUND (missing or expired); otherwise as kvstore_put.
 */
int kvstore_cf_persist(KVColumnFamily *cf, const void *pKey, int nKey, int *pChanged);

/**
 * Says in `*pExpireMs` when a key expires: milliseconds since the Unix epoch, or KVSTORE_NO_TTL.
 *
 * Errors: KVSTORE_NOTFOUND (missing or expired); otherwise as kvstore_get.
 */
int kvstore_cf_expire_time(KVColumnFamily *cf, const void *pKey, int nKey, int64_t *pExpireMs);

/**
 * Reads a value, as kvstore_get does, and in the same step changes when the key expires (0: never; in
 * the past: the key is gone, and this was its last read).
 *
 * Errors: as kvstore_get, and as kvstore_put; KVSTORE_ERROR also for a negative expire_ms.
 */
int kvstore_cf_get_and_expire(KVColumnFamily *cf,
                              const void *pKey,
                              int nKey,
                              int64_t expire_ms,
                              void **ppValue,
                              int *pnValue);

/**
 * Sets the TTL, in milliseconds, that plain puts give from now on in this family, through whatever
 * handle and process, also those already open; 0: none. It is kept in the file. Keys that are there keep
 * what they have.
 *
 * Errors: KVSTORE_ERROR (negative, or over 20 years); otherwise as kvstore_put.
 */
int kvstore_cf_set_default_ttl(KVColumnFamily *cf,
                               int64_t ttl_ms);

/**
 * Says in `*pTtlMs` what TTL plain puts give, in milliseconds; 0: none.
 *
 * Errors: KVSTORE_ERROR (a NULL pointer), KVSTORE_BUSY (only in DELETE journal mode), KVSTORE_IOERR,
 * KVSTORE_NOMEM, KVSTORE_CORRUPT, KVSTORE_MISUSE.
 */
int kvstore_cf_get_default_ttl(KVColumnFamily *cf, int64_t *pTtlMs);

/**
 * Says in `*pMs` the earliest time at which a key of any family expires, or has expired if nothing has
 * removed it yet: the moment a timer should purge.
 *
 * Errors: KVSTORE_NOTFOUND (no key has a TTL); otherwise as kvstore_cf_get_default_ttl.
 */
int kvstore_next_expiry(KVStore *kv, int64_t *pMs);

/**
 * kvstore_next_expiry of one family.
 */
int kvstore_cf_next_expiry(KVColumnFamily *cf, int64_t *pMs);

/**
 * Counts the live keys: the rows less those that have expired, by the indexes.
 *
 * Errors: as kvstore_count.
 */
int kvstore_cf_count_live(KVColumnFamily *cf, int64_t *pnCount);

/**
 * Removes expired keys of all families, those first that expired first, until `max_keys` are removed or
 * `max_ms` milliseconds are over (0: no limit). `*pDeleted` is how many were removed (counted as by
 * kvstore_purge_expired), `*pMore` whether expired keys are left: 1 or 0; both may be NULL. In transactions of at most 256 keys, or in the open
 * one.
 *
 * With nothing expired no family is looked at, however many there are, unless others have committed since
 * this handle looked last. Time that is over may end that look: then `*pMore` is 1, and the next call goes
 * on with the families that were left out. A checkpoint that becomes due is left to the next write if there
 * is a time limit.
 *
 * Errors: KVSTORE_ERROR (a negative limit); otherwise as kvstore_put. What earlier transactions removed
 * stays removed.
 */
int kvstore_purge_step(KVStore *kv,
                       int64_t max_keys,
                       int64_t max_ms,
                       int64_t *pDeleted,
                       int *pMore);

/**
 * Removes the keys of a family that expired before `cutoff_ms` (milliseconds since the Unix epoch). Keys
 * that are alive stay, whatever the cutoff. `*pnDeleted` (may be NULL) is how many. Otherwise as
 * kvstore_purge_expired.
 *
 * Errors: as kvstore_put.
 */
int kvstore_cf_purge_before(KVColumnFamily *cf,
                            int64_t cutoff_ms,
                            int64_t *pnDeleted);

/**
 * Starts the cleaner: a thread of the library's that every `interval_ms` milliseconds removes expired
 * keys of all families, at most `max_keys` each time (0: all), through a connection of its own. A write
 * through this handle waits for it at most as long as 256 keys take; while a transaction is open on this
 * handle it does nothing. kvstore_close stops it.
 *
 * Errors: KVSTORE_ERROR (it runs already, an interval below 1, a negative max_keys, a store in memory),
 * KVSTORE_READONLY, KVSTORE_BUSY (an exclusive store), KVSTORE_CANTOPEN, KVSTORE_IOERR (also if the store is no longer
 * at the path it was opened by), KVSTORE_NOMEM, KVSTORE_MISUSE.
 */
int kvstore_cleaner_start(KVStore *kv,
                          int64_t interval_ms,
                          int64_t max_keys);

/**
 * Stops the cleaner, and returns when its thread has ended. KVSTORE_OK also if none is running.
 *
 * Errors: KVSTORE_ERROR (kv is NULL), KVSTORE_MISUSE.
 */
int kvstore_cleaner_stop(KVStore *kv);

/**
 * Switches write tracking of a family on (non-zero) or off, for every handle and process; it is kept in
 * the file. Switched on, the keys that are there count as written now; switched off, all write times are
 * forgotten. Both look at every row, in one transaction.
 *
 * Errors: as kvstore_put.
 */
int kvstore_cf_set_write_tracking(KVColumnFamily *cf,
                                  int on);

/**
 * Says in `*pOn` whether a family tracks writes: 1 or 0.
 *
 * Errors: as kvstore_cf_get_default_ttl.
 */
int kvstore_cf_get_write_tracking(KVColumnFamily *cf, int *pOn);

/**
 * Says in `*pMs` when the value of a key was written, in milliseconds since the Unix epoch. A change of
 * its TTL is not a write.
 *
 * Errors: KVSTORE_NOTFOUND (missing or expired), KVSTORE_ERROR (the family does not track writes);
 * otherwise as kvstore_get.
 */
int kvstore_cf_write_time(KVColumnFamily *cf, const void *pKey, int nKey, int64_t *pMs);

/**
 * Removes every key that was written longer ago than `max_age_ms` milliseconds, live or expired.
 * `*pnDeleted` (may be NULL) is how many of them were alive. In transactions of at most 256 keys, each of
 * which removes data and index entries together; or in the open transaction.
 *
 * Errors: KVSTORE_ERROR (the family does not track writes, a negative age); otherwise as kvstore_put.
 * What earlier transactions removed stays removed.
 */
int kvstore_cf_sweep(KVColumnFamily *cf,
                     int64_t max_age_ms,
                     int64_t *pnDeleted);

/**
 * Makes an iterator over the keys from `pLower` to before `pUpper`; NULL with length 0 is open. `flags` is 0 or
 * KVSTORE_RANGE_* or'ed together: REVERSE, CLOSED (pUpper included), OPEN (pLower excluded), KEYS_ONLY. It
 * is at its first entry from the start (or at eof). A lower bound that is not below the upper one: nothing
 * in it. Otherwise as kvstore_prefix_iterator_create; a seek outside the range leaves it at eof.
 *
 * Errors: KVSTORE_ERROR (a NULL handle or ppIter, a bad length, NULL with a length, unknown flags); otherwise as kvstore_get.
 */
int kvstore_cf_range_iterator_create(KVColumnFamily *cf,
                                     const void *pLower,
                                     int nLower,
                                     const void *pUpper,
                                     int nUpper,
                                     int flags,
                                     KVIterator **ppIter);

/**
 * Makes an iterator over one partition of row keys (see kvstore_row_key), from the clustering part
 * `pStart` to before `pFinish`; NULL with length 0 is open. Its keys, and those it seeks, are clustering
 * parts. `flags` as for kvstore_cf_range_iterator_create. It is at its first entry from the start (or at
 * eof).
 *
 * Errors: KVSTORE_ERROR (a NULL handle or ppIter, a bad length, NULL with a length, a key that would be too long,
 * unknown flags); otherwise as kvstore_get.
 */
int kvstore_cf_row_iterator_create(KVColumnFamily *cf,
                                   const void *pPKey,
                                   int nPKey,
                                   const void *pStart,
                                   int nStart,
                                   const void *pFinish,
                                   int nFinish,
                                   int flags,
                                   KVIterator **ppIter);

/**
 * Makes an iterator over the keys that expire at or after `from_ms` and before `to_ms`, in the order of
 * their expiry, those that have expired but are still there included. It is at its first entry from the
 * start (or at eof), and cannot seek. kvstore_iterator_expire_ms shows the times. A `to_ms` of INT64_MAX is no
 * end: keys that expire at that last moment are included, too.
 *
 * Errors: KVSTORE_ERROR (a NULL pointer); otherwise as kvstore_get.
 */
int kvstore_cf_expiring_iterator_create(KVColumnFamily *cf,
                                        int64_t from_ms,
                                        int64_t to_ms,
                                        KVIterator **ppIter);

/**
 * Builds one ordered key from a partition key and clustering columns; both may be empty. All rows of a
 * partition are together, in the byte order of their clustering columns, and no other partition's are
 * between them. The key works with every function.
 *
 * Writes the key to `buf`, and its length to `*pn`. A `buf` of NULL with a `cap` of 0 only asks for the
 * length; 2 * nPKey + 2 + nCCols is always enough.
 *
 * Errors: KVSTORE_ERROR (a NULL pointer, a bad length, `cap` too small, a key of more than 65536 bytes);
 * kvstore_errmsg(NULL) says which. Nothing is written then.
 */
int kvstore_row_key(const void *pPKey,
                    int nPKey,
                    const void *pCCols,
                    int nCCols,
                    void *buf,
                    int cap,
                    int *pn);

/**
 * Reads a value into the caller's buffer, without allocating: copies its first bytes, at most `cap`.
 * `*pn` is the full length, also when that is more than `cap`. `buf` may be NULL if `cap` is 0. What it has after a
 * failure is not to be used.
 *
 * Errors: KVSTORE_NOTFOUND (missing or expired: *pn is 0), KVSTORE_ERROR (also for a negative cap);
 * otherwise as kvstore_get.
 */
int kvstore_cf_get_into(KVColumnFamily *cf,
                        const void *pKey,
                        int nKey,
                        void *buf,
                        int cap,
                        int *pn);

/**
 * Reads several values from one snapshot. `keys` and `lens` have `count` keys; `values` and `valueLens`
 * get as many results: a copy, to be freed with kvstore_free, and its length; or NULL and -1 for a key
 * that is missing or expired. A `count` of 0 is allowed.
 *
 * Errors: KVSTORE_ERROR (a NULL pointer, a negative count, a key of a bad length); otherwise as
 * kvstore_get. All results are NULL and -1 then.
 */
int kvstore_cf_get_many(KVColumnFamily *cf,
                        int count,
                        const void *const *keys,
                        const int *lens,
                        void **values,
                        int *valueLens);

/**
 * Deletes several keys, all in one transaction, and on a server in one round trip. `keys` and `lens` have `count` keys;
 * `*pnDeleted` (may be NULL) is how many of them were there and alive, each counted once. A `count` of 0 is allowed.
 *
 * Errors: KVSTORE_ERROR (a NULL pointer, a negative count, a key of a bad length); otherwise as kvstore_put. Nothing is
 * deleted then.
 */
int kvstore_cf_delete_many(KVColumnFamily *cf,
                           int count,
                           const void *const *keys,
                           const int *lens,
                           int64_t *pnDeleted);

/**
 * Deletes the keys from `pLower` (NULL with length 0: the least) to before `pUpper` (NULL with length 0: to the
 * greatest), all in one transaction. NULL with another length is KVSTORE_ERROR. `*pnDeleted` (may be NULL) is how
 * many of them were alive.
 *
 * Errors: as kvstore_put.
 */
int kvstore_cf_delete_range(KVColumnFamily *cf,
                            const void *pLower,
                            int nLower,
                            const void *pUpper,
                            int nUpper,
                            int64_t *pnDeleted);

/**
 * Makes an empty batch for a store. On success `*ppBatch` is the batch, to be freed with
 * kvstore_batch_free; on failure it is NULL.
 *
 * Errors: KVSTORE_ERROR (a NULL pointer), KVSTORE_MISUSE.
 */
int kvstore_batch_new(KVStore *kv, KVBatch **ppBatch);

/**
 * Adds a write to a batch: the key expires at `expire_ms` (0: never). Key and value are copied; the
 * family's handle may be closed before the commit.
 *
 * Errors: KVSTORE_ERROR (a NULL pointer, a bad length, a negative expire_ms, a family of another store
 * handle), KVSTORE_MISUSE (the batch, the family or the store is closed), KVSTORE_NOMEM. Nothing is added then.
 */
int kvstore_batch_put(KVBatch *b,
                      KVColumnFamily *cf,
                      const void *pKey,
                      int nKey,
                      const void *pValue,
                      int nValue,
                      int64_t expire_ms);

/**
 * Adds a deletion to a batch. A key that is missing at the commit is no error. Otherwise as
 * kvstore_batch_put.
 *
 * Errors: as kvstore_batch_put.
 */
int kvstore_batch_delete(KVBatch *b, KVColumnFamily *cf, const void *pKey, int nKey);

/**
 * Says in `*pnCount` how many writes and deletions a batch has.
 *
 * Errors: KVSTORE_ERROR (a NULL pointer), KVSTORE_MISUSE.
 */
int kvstore_batch_count(KVBatch *b, int64_t *pnCount);

/**
 * Empties a batch.
 *
 * Errors: KVSTORE_ERROR (b is NULL), KVSTORE_MISUSE.
 */
int kvstore_batch_clear(KVBatch *b);

/**
 * Commits a batch: all of it in one transaction (or as part of the open one), or nothing. The batch is
 * empty afterwards, but only on success, and can be used again.
 *
 * Errors: as kvstore_put; also KVSTORE_ERROR if a family was dropped meanwhile, or if the store is on a server and
 * the batch has more than it takes at once (1008 MiB).
 */
int kvstore_batch_commit(KVBatch *b);

/**
 * Frees a batch; what was not committed is forgotten. NULL is allowed, and so are batches of a closed
 * store. A call that another thread is in with it goes on to its end.
 */
void kvstore_batch_free(KVBatch *b);

/**
 * Begins a transaction on this handle. `write` is 0 for a stable snapshot that only reads, anything
 * else for a write transaction, whose reads see its own writes. Every call on the handle and its
 * families, from whatever thread, is part of it until kvstore_commit or kvstore_rollback.
 *
 * After a call in it that failed with KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_FULL or KVSTORE_CORRUPT,
 * kvstore_rollback is what remains. A write transaction in which a write failed so is rolled back at once: writes in
 * it answer that code, nothing is committed, and reads show the store without it (on a server they answer the code,
 * too). After a read that failed so, SQLite may have ended the transaction: then it is the same, and in a snapshot
 * reads answer the code.
 *
 * Errors: KVSTORE_ERROR (one is open already, and goes on), KVSTORE_BUSY (another handle is writing),
 * KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_NOMEM, KVSTORE_CORRUPT, KVSTORE_MISUSE.
 */
int kvstore_begin(KVStore *kv,
                  int write);

/**
 * Commits the open transaction.
 *
 * Errors: KVSTORE_ERROR (none is open); KVSTORE_BUSY (others are reading; only in DELETE journal
 * mode: the transaction is still open, try again); KVSTORE_FULL, KVSTORE_IOERR, KVSTORE_NOMEM and
 * others: nothing was committed, and only kvstore_rollback is possible (exceptions in DELETE mode: README,
 * "Limits"). The same code is reported
 * when a call inside the transaction failed before. KVSTORE_MISUSE.
 */
int kvstore_commit(KVStore *kv);

/**
 * Rolls the open transaction back: nothing in it has happened.
 *
 * Errors: KVSTORE_ERROR (none is open), KVSTORE_IOERR, KVSTORE_MISUSE.
 */
int kvstore_rollback(KVStore *kv);

/**
 * Fills `*pStats` with what this handle has done.
 *
 * Errors: KVSTORE_ERROR (a NULL pointer), KVSTORE_BUSY, KVSTORE_IOERR, KVSTORE_MISUSE.
 */
int kvstore_stats(KVStore *kv, KVStoreStats *pStats);

/**
 * Sets the counters of this handle to zero.
 *
 * Errors: KVSTORE_ERROR (kv is NULL), KVSTORE_MISUSE.
 */
int kvstore_stats_reset(KVStore *kv);

/**
 * Checks the whole file: SQLite's own check, also for pages in no use (which SQLite passes over in some stores), that
 * nothing foreign is in it, that the tables and the catalogue are as they are made, and that the tables of every family
 * agree. Reads everything, on one snapshot.
 *
 * `*pzMessage` (may be NULL) is NULL when all is well; with KVSTORE_CORRUPT it names the first
 * disagreement, and is to be freed with kvstore_free.
 *
 * Errors: KVSTORE_CORRUPT; KVSTORE_BUSY (only in DELETE journal mode), KVSTORE_IOERR, KVSTORE_NOMEM,
 * KVSTORE_MISUSE, KVSTORE_ERROR (kv is NULL).
 */
int kvstore_integrity_check(KVStore *kv,
                            char **pzMessage);

/**
 * Makes the indexes by key, expiry and write time, the large values, the views and the catalogue agree with the
 * data rows again, in one transaction. `*pFixed` (may be NULL) is how many rows, entries and tables were added,
 * removed or changed. Afterwards kvstore_integrity_check answers KVSTORE_OK.
 *
 * Every row that could be read is kept, with the value and the TTL it had. A row that could not be read is made
 * whole if something in the file still says what it was; a row whose value is lost, or of which nobody knows how
 * long it may be shown, is removed: no value is invented. So is one whose key is longer than 65536 bytes, which no
 * call takes. Families that the catalogue has lost are entered again, without their default TTL, and settings in it
 * that cannot be get their defaults. Tables in the way that are not as the store makes them, and have something in
 * them, get a name that begins with "lost:".
 *
 * A file whose catalogue of families is gone, or has no default family, is refused by kvstore_open with
 * KVSTORE_CORRUPT: the command "kvstore repair" opens it all the same, and names whatever it cannot keep.
 *
 * Reads everything, which takes about twice as long as kvstore_integrity_check; on a store without damage it
 * writes nothing. Others can read meanwhile, but not write.
 *
 * Errors: KVSTORE_CORRUPT (SQLite's own check fails, or something is left that a repair does not know),
 * KVSTORE_BUSY (a transaction is open on this handle; another handle is writing), KVSTORE_READONLY, KVSTORE_FULL,
 * KVSTORE_IOERR, KVSTORE_NOMEM, KVSTORE_MISUSE, KVSTORE_ERROR (kv is NULL). Nothing is changed then.
 */
int kvstore_repair(KVStore *kv,
                   int64_t *pFixed);

/**
 * Makes every commit so far survive a power cut. Never commits or ends an open transaction. Syncs the files that
 * are open, wherever they are by now, and their directory.
 *
 * Errors: KVSTORE_IOERR, also if the directory may not be read; KVSTORE_MISUSE, KVSTORE_ERROR (kv is NULL).
 */
int kvstore_sync(KVStore *kv);

/**
 * Gives free pages back to the file system: at most `nPage`, or all with 0. In WAL mode the file
 * shrinks at the next checkpoint.
 *
 * Errors: KVSTORE_ERROR (nPage is negative, kv is NULL); otherwise as kvstore_put.
 */
int kvstore_incremental_vacuum(KVStore *kv, int nPage);

/**
 * Writes the WAL into the database file. `mode` is one of KVSTORE_CHECKPOINT_*. `*pnLog` is the number
 * of frames in the WAL, `*pnCkpt` how many of them are in the file now; both may be NULL, and are 0
 * when not in WAL mode. After TRUNCATE the WAL has 0 bytes.
 *
 * Errors: KVSTORE_BUSY (a transaction is open on this handle; other handles stand in the way, except
 * for PASSIVE), KVSTORE_ERROR (an unknown mode, kv is NULL), KVSTORE_IOERR, KVSTORE_FULL,
 * KVSTORE_READONLY, KVSTORE_MISUSE.
 */
int kvstore_checkpoint(KVStore *kv, int mode, int *pnLog, int *pnCkpt);

/**
 * Copies everything that is committed to a new file, with all TTLs, while others go on reading and
 * writing; the copy is the state of one moment. `path` must not exist; it appears when the copy is whole
 * and synced. `progress` (may be NULL) is called now and then with `context` and the pages that remain and
 * their total; what it returns, if not 0, stops the backup.
 *
 * Errors: KVSTORE_ERROR (path is NULL, exists, or is no name of a file: "", ":memory:", "file:...", a directory's;
 * a log of another store is beside it; it is the name that the -wal, -shm or -journal of a file there has; stopped
 * by progress: no file is left), KVSTORE_CANTOPEN, KVSTORE_FULL, KVSTORE_IOERR (also if the store is no longer at the path it
 * was opened by), KVSTORE_NOMEM, KVSTORE_CORRUPT, KVSTORE_MISUSE (the store is closed, also meanwhile: no file is left); KVSTORE_BUSY for a store in memory or an
 * exclusive one while a transaction is open on this handle.
 */
int kvstore_backup(KVStore *kv,
                   const char *path,
                   int (*progress)(void *context, int remaining, int total),
                   void *context);

/**
 * Copies all live keys of all families of `from` into `to`, with their TTLs and write times, and the families'
 * settings: the state of one moment, in one transaction of `to`. After a failure, or if the process dies, nothing was
 * copied, and it may be run again. Others go on reading and writing `from` meanwhile; `to` takes no other writes.
 *
 * Families that `to` does not have are made. One that it has must have no live key; it gets the default TTL of the
 * one in `from`, and tracks write times if that one does. The limit of `from` (kvstore_set_limit) is copied if `to`
 * has none and no key at all; if it would remove what was copied, as with other pages, the copy is KVSTORE_FULL. The WAL of `to` grows as long as what is copied.
 *
 * `progress` (may be NULL) is called now and then with `context`, the keys that were copied and their total, which
 * may not be reached if keys expire meanwhile; what it returns, if not 0, stops the copy. It may use both stores
 * (writes to `to` find it busy), but not one in memory or an exclusive one: a transaction of the copy's is open on its
 * handle.
 *
 * Errors: KVSTORE_ERROR (a NULL handle; a family of `to` has live keys; `from` and `to` are the same store; a value is
 * longer than `to` takes; stopped by progress), KVSTORE_BUSY (others write to `to`; a transaction is open on `to`, or
 * on `from` if that is in memory or exclusive), KVSTORE_READONLY (`to`), KVSTORE_FULL (also if it does not fit into
 * the limit of `to`), KVSTORE_CANTOPEN, KVSTORE_IOERR (also if one of the stores is no longer at the path it was
 * opened by), KVSTORE_NOMEM, KVSTORE_CORRUPT, KVSTORE_MISUSE (one of the stores is closed, also meanwhile; or
 * progress has ended the copy's transaction). Nothing was copied then. The text is that of `from`:
 * kvstore_errmsg(from).
 */
int kvstore_copy(KVStore *from,
                 KVStore *to,
                 int (*progress)(void *context, int64_t done, int64_t total),
                 void *context);

/**
 * Saves every row that can be read of the file `path`, which may be damaged, into a new store at `newPath`: with its
 * value, its TTL, its write time and its family, whose settings are kept. Rows that have expired are left out.
 * `*pSaved` (may be NULL) is the number of rows saved, `*pLost` (may be NULL) that of all that was found to be lost:
 * rows, pages, tables; 0: everything is there. The text of the calls that fail is in kvstore_errmsg(NULL).
 *
 * The file is read as bytes and never written, with the -wal or the rollback journal beside it. Nobody may have it
 * open meanwhile. `newPath` must not exist; it appears when the new store is whole and synced.
 *
 * `report` (may be NULL) is called with `context` and `text`, a line about something that is lost, which is valid during
 * the call and has the key of a lost row, if that is known; and now and then with NULL as `text`. `done` and `total`
 * are how many pages were read, and are about to be. What it returns, if not 0, stops the recovery.
 *
 * No row is invented: pages of which anything does not agree, and free ones, which may have deleted rows, are not used;
 * what a damaged page led to is given to a family only if the file says to which one. Rows whose family nothing names
 * are saved in families called "recovered-1" and so on. But a byte that was changed inside a key, a value or a time is
 * not noticed.
 *
 * Errors: KVSTORE_CANTOPEN (`path` cannot be read), KVSTORE_NOTADB (nothing in it is of a store), KVSTORE_ERROR (a path
 * is NULL; `newPath` exists or cannot be a store's; stopped by report), KVSTORE_FULL, KVSTORE_IOERR, KVSTORE_NOMEM,
 * KVSTORE_BUSY. No file is left then.
 */
int kvstore_recover(const char *path,
                    const char *newPath,
                    int (*report)(void *context, const char *text, int64_t done, int64_t total),
                    void *context,
                    int64_t *pSaved,
                    int64_t *pLost);

/**
 * Opens the store at `path` that is encrypted with a password, or makes one; a store there that is not encrypted is
 * encrypted in place first, as by kvstore_reencrypt: with all families, keys, TTLs, write times and settings, and tables of
 * other programs.
 *
 * The password is any bytes, at least one. A key is derived from it at each open, which takes some tenths of a second. A
 * key of 32 bytes is used as it is, and an open as quick as that of a plain store, if it is given as a text of 67 bytes:
 * `x'`, 64 digits in hexadecimal, `'`. The file is one of SQLCipher 4's, which other programs open with the password.
 *
 * `config` (NULL: the default one) as for kvstore_open_v2; pageSize must be 0 or 4096. mmapSize has no effect. On success
 * `*ppKV` is the handle, on failure NULL, and the text is in kvstore_errmsg(NULL). The password is copied, and wiped from
 * the library's memory when the handle is closed.
 *
 * Errors: those of kvstore_open_v2; KVSTORE_AUTH_FAILED (another password; nothing is changed); KVSTORE_ERROR (ppKV or
 * `path` is NULL, "" or ":memory:", the password is empty, or this build has no encryption); KVSTORE_BUSY (also if a
 * plain store is open elsewhere); KVSTORE_FULL (to encrypt a store takes twice its size on the disk for a while).
 */
int kvstore_open_encrypted(const char *path,
                           const void *pPassword,
                           int nPassword,
                           KVStore **ppKV,
                           const KVStoreConfig *config);

/**
 * Whether the store is encrypted: 1 or 0.
 *
 * Errors: 0 for a handle that is NULL or closed.
 */
int kvstore_is_encrypted(KVStore *kv);

/**
 * Encrypts an encrypted store with another password, in place. With the old one it cannot be opened any more. This
 * handle, its families and iterators go on.
 *
 * If it fails, or the process dies or the power is cut on the way, the file is the old one or the new one, never
 * anything else. It stays the same file, and what it was is overwritten: in the file, its WAL and its journal. (Not what a
 * file system that copies on write, a flash memory or a backup keeps.) It takes twice the size of the store on the disk
 * meanwhile. A cleaner of the handle is stopped and started again; if there are no descriptors or threads for that, it has
 * ended.
 *
 * Errors: KVSTORE_ERROR (kv is NULL, the store is not encrypted, the password is empty, or this build has no
 * encryption); KVSTORE_BUSY (it is open elsewhere, in this process or another, or a transaction is open on this handle; an
 * idle handle of another program in DELETE mode is not seen, and finds no database there afterwards);
 * KVSTORE_CANTOPEN (its path leads to another file by now, or it has a second name); KVSTORE_READONLY; KVSTORE_FULL;
 * KVSTORE_IOERR (if the disk fails at the very end, an open with the one password or the other tells which it has);
 * KVSTORE_CORRUPT; KVSTORE_NOMEM; KVSTORE_MISUSE.
 */
int kvstore_reencrypt(KVStore *kv,
                      const void *pNew,
                      int nNew);

/**
 * Takes the encryption off a store, in place, as kvstore_reencrypt gives it another password. Afterwards kvstore_open
 * opens it, and anybody reads it.
 *
 * Errors: those of kvstore_reencrypt.
 */
int kvstore_remove_encryption(KVStore *kv);

/**
 * Sets how much the data of this store may take in its file, in bytes, and which keys make room: `policy` is one of
 * KVSTORE_EVICT_*. 0 bytes: no limit, with any of these policies. It is kept in the file, and every handle and process obeys
 * it from its next write on; kvstore_backup copies it.
 *
 * Counted are the pages of the file less the free ones (KVStoreStats.nSizeBytes), of all families with their indexes.
 * The file itself is kept as short, but for what docs/how-to/limit-size.md names; and unless KVStoreConfig.walPages says
 * otherwise, the WAL of a handle is one for an eighth of it (at least 16 pages, at most 4000, or 64 with KVSTORE_SMALL).
 * So with one writer, and no reader that stays, the file with its -wal never has more than `max_bytes`, twice as many
 * pages as the WAL is for, and the pages of one transaction (a put that makes room can change 40); with
 * KVSTORE_SYNC_FULL 256 KiB more. The -shm takes 32 KiB for each 4096 pages of the WAL.
 *
 * Keys go inside the write that needs the room, in its transaction, or not at all: with KVSTORE_EVICT_SOONEST those
 * that have expired, then those that would expire soonest, and keys without a TTL never; with KVSTORE_EVICT_OLDEST
 * those that have expired, then those that were written longest ago; over all families, and never those that the write
 * itself has put. A thirty-second part of the pages (at least one, at most 256) is kept free, so that a write has to
 * remove few keys as a rule. KVStoreStats.nEvicted counts those that were alive; the expired ones count as purged.
 *
 * When nothing is left that may go, a write that needs more pages than there are answers KVSTORE_FULL, and nothing of it
 * has happened; a transaction of the caller's goes on. Deletes, purges, kvstore_cf_persist, and whatever else
 * only removes, are never refused.
 *
 * All goes by the clock of the store: what is written while that is wrong, as on a board that starts in 1970, makes room in
 * that order.
 *
 * KVSTORE_EVICT_OLDEST needs write tracking, and switches it on: for every family that is there, whose keys count as
 * written now, and for each that is made later. kvstore_cf_set_write_tracking does not switch it off then. Another
 * policy leaves it on.
 *
 * The call is a write itself. If the data takes more than the new limit, it makes room at once. Outside a transaction
 * a new limit also makes a checkpoint, which cuts the file and the WAL, unless others stand in the way; then the next
 * one does.
 *
 * Errors: KVSTORE_ERROR (less than 32 pages of the file, which is 131072 bytes with pages of 4096; a negative number;
 * an unknown policy; kv is NULL); KVSTORE_FULL (the data takes more, and may not be removed); otherwise as kvstore_put.
 * Nothing is changed then.
 */
int kvstore_set_limit(KVStore *kv,
                      int64_t max_bytes,
                      int policy);

/**
 * The limit that kvstore_set_limit has set, through whatever handle: `*pMaxBytes` is 0 if there is none, and `*pPolicy`
 * KVSTORE_EVICT_NONE then. Both may be NULL.
 *
 * Errors: KVSTORE_BUSY (only in DELETE journal mode), KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_NOMEM, KVSTORE_MISUSE,
 * KVSTORE_ERROR (kv is NULL).
 */
int kvstore_get_limit(KVStore *kv,
                      int64_t *pMaxBytes,
                      int *pPolicy);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* KVSTORE_H */

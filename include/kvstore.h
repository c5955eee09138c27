/*
 * kvstore: an embedded, ordered key-value store with per-key TTL.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * This file is generated from src/ffi of the kvstore crate. Do not edit it.
 *
 * Conventions
 *   Families   A store consists of families. A family is a separate ordered set of keys with its
 *              own settings. In C its type is KVColumnFamily and its functions begin with
 *              kvstore_cf_, because other stores call it a column family. Every store has a
 *              family named "default". Each function on keys exists in two forms: without "cf" in
 *              its name it takes the store and works on the default family; with "cf" it takes the
 *              handle of any family. A batch takes family handles. kvstore_next_expiry,
 *              kvstore_purge_step and the cleaner work on all families.
 *   Results    Functions that can fail return int: KVSTORE_OK (0) or another KVSTORE_* code. The
 *              comments list the codes under "Errors". kvstore_errmsg returns the text,
 *              kvstore_errhint the advice. A failed call changes nothing, unless its comment says
 *              otherwise.
 *   Reads      The read codes are the failures that every read can have. KVSTORE_BUSY: a lock
 *              (files in DELETE journal mode), or the server accepts no connection.
 *              KVSTORE_LOCKED: a conflict with another client (server), or a lock within this
 *              process. KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, and
 *              KVSTORE_MISUSE: the handle is closed or was inherited through fork().
 *              In a write transaction that has changed more than the page cache holds, every read
 *              may also return KVSTORE_FULL, because it has to write changed pages to the disk.
 *   Writes     The write codes are the read codes, KVSTORE_BUSY also if another handle is writing
 *              (outside a transaction), KVSTORE_READONLY and KVSTORE_FULL. In DELETE journal mode
 *              a write may also return KVSTORE_CANTOPEN, if there is no file descriptor left for
 *              the journal.
 *   Servers    For a store on a server, every read and write may also return KVSTORE_CANTOPEN,
 *              KVSTORE_AUTH_FAILED or KVSTORE_READONLY, because a lost connection is opened
 *              again.
 *   Pointers   A NULL handle, a NULL pointer where one is required, and a length that is out of
 *              bounds are KVSTORE_ERROR. A closed handle is KVSTORE_MISUSE. After a failure,
 *              handle outputs are NULL. Other outputs are written only on success, unless the
 *              comment says otherwise.
 *   Lengths    int, in bytes. A key has 1 to 65536 bytes, a value 0 to 10 MiB by default
 *              (KVStoreConfig.maxValueSize). Both may contain any bytes.
 *   Times      A TTL is a duration, an expiry time (expire_ms) is a moment. Both are int64_t, in
 *              milliseconds; moments count from the Unix epoch. A key is expired from its expiry
 *              time on. An expired key is never returned, whichever handle or process set the
 *              time. An expiry time is invalid, and gives KVSTORE_ERROR, if it is negative and not
 *              KVSTORE_NO_TTL. While the clock of the store is past 2001, it is also invalid from
 *              1 to 94694399999 (1972): that is nearly always a duration, passed by mistake.
 *   Memory     Memory that the library allocates for the caller is freed with kvstore_free. The
 *              library keeps no pointer to an argument, except those given to kvstore_set_clock.
 *   Threads    Threads may share a store or family handle; their calls run one after another. An
 *              iterator or a batch is used by one thread at a time. Any thread may close any
 *              handle at any time: a call in progress with it finishes safely, with KVSTORE_OK or
 *              KVSTORE_MISUSE. Do not cancel a thread inside a call: pthread_cancel ends the
 *              process there. A thread that may be cancelled disables that for the call, with
 *              pthread_setcancelstate.
 *   Signals    The cleaner thread blocks all signals, except those that a fault of its own raises.
 *              Signal handlers do not shorten the busy timeout. Do not call the library in a
 *              signal handler.
 *   Exit       A store may be open, and threads inside calls, when the process ends. Exit handlers
 *              and static objects may still use and close it. Exception: a program that used the
 *              same OpenSSL before it opened an encrypted store. Calls on that store fail once
 *              OpenSSL has freed its state, and change nothing.
 *   Forks      In the child process, handles opened before fork() return KVSTORE_MISUSE. The
 *              child opens the store itself, at any time.
 *   Files      A store is one SQLite file, with a -wal and a -shm file next to it while it is
 *              open. Other programs may use it with any SQLite. Another copy of SQLite in the
 *              same process, such as Python's sqlite3, may do so where the kernel supports open
 *              file description locks: Linux 3.15 and later, on local file systems. An open store
 *              uses 6 file descriptors in WAL mode and 3 in DELETE mode. After a close, some are
 *              kept for the next open of the file: at most 64 in a process, or more while other
 *              processes hold locks on the files.
 *   Sections   Library, Stores, Families, Keys and values, Keys with an expiry time, Iterators,
 *              Conditional writes, Expiry times, Purging, Write times, Ranges, Several keys,
 *              Transactions, Statistics and maintenance, Recovery, Encryption, Size limit. The
 *              handle parameters kv, cf, it and b are not listed.
 */

#ifndef KVSTORE_H
#define KVSTORE_H

#include <stdint.h>

/** Stands for "never expires" where a function returns a remaining TTL or an expiry time, or takes an
    expiry time. */
#define KVSTORE_NO_TTL (-INT64_C(1))

/**
 * Result code: success.
 */
#define KVSTORE_OK 0

/**
 * Result code: an invalid argument, a call in the wrong order, or a failure that has no code of
 * its own.
 */
#define KVSTORE_ERROR 1

/**
 * Result code: another handle, process or server client holds a lock, or the server accepts no
 * connection now. Retry the call, or set KVStoreConfig.busyTimeout.
 */
#define KVSTORE_BUSY 5

/**
 * Result code: a conflict with another connection. Store in a file: another connection of this
 * process holds a lock; retry the call. Store on a server: the transaction conflicts with that of
 * another client; roll it back and run it again.
 */
#define KVSTORE_LOCKED 6

/**
 * Result code: out of memory.
 */
#define KVSTORE_NOMEM 7

/**
 * Result code: a write is not allowed, because the handle is read-only or this process may not
 * write the file. Store on a server: the role lacks a privilege, or no server of the URL accepts
 * writes now, as during a failover.
 */
#define KVSTORE_READONLY 8

/**
 * Result code: a read, write or sync of the operating system failed, or the connection to the
 * server broke. kvstore_errmsg states whether the operation is known not to have happened.
 */
#define KVSTORE_IOERR 10

/**
 * Result code: the file, or the data of the store on the server, is damaged.
 */
#define KVSTORE_CORRUPT 11

/**
 * Result code: the key does not exist or has expired, or there is no family of that name.
 */
#define KVSTORE_NOTFOUND 12

/**
 * Result code: the password is wrong, or the first page of an encrypted file was tampered with
 * (another page: KVSTORE_CORRUPT when it is read). Store on a server: the server refused the login.
 */
#define KVSTORE_AUTH_FAILED 13

/**
 * Result code: the file cannot be opened, the server cannot be reached, or this build does not
 * support servers.
 */
#define KVSTORE_CANTOPEN 14

/**
 * Result code: too many processes competed for a lock of the file, so that it could not be taken.
 */
#define KVSTORE_PROTOCOL 15

/**
 * Result code: the handle cannot be used. It is closed, was inherited through fork(), or is
 * unusable after an internal failure; or a callback called the store that is running it.
 */
#define KVSTORE_MISUSE 21

/**
 * Result code: the file, or the schema on the server, is not a store.
 */
#define KVSTORE_NOTADB 26

/**
 * Result code: the disk is full, or the store has reached its size limit (kvstore_set_limit). For
 * a store on a server, the disk is that of the server.
 */
#define KVSTORE_FULL 113

/**
 * Value of KVStoreConfig.journalMode, and the default: a write-ahead log. Readers and a writer do
 * not block each other.
 */
#define KVSTORE_JOURNAL_WAL 1

/**
 * Value of KVStoreConfig.journalMode: a rollback journal. The store is a single file; readers and
 * a writer exclude each other.
 */
#define KVSTORE_JOURNAL_DELETE 2

/**
 * Value of KVStoreConfig.syncLevel, and the default: a power failure may lose the last commits,
 * but does not damage the file.
 */
#define KVSTORE_SYNC_NORMAL 1

/**
 * Value of KVStoreConfig.syncLevel: a commit is on stable storage when the call returns.
 */
#define KVSTORE_SYNC_FULL 2

/**
 * Value of KVStoreConfig.syncLevel: nothing is synced. A power failure may destroy the file.
 */
#define KVSTORE_SYNC_OFF 3

/**
 * Mode of kvstore_checkpoint: copies as many frames of the WAL as possible without waiting for
 * readers or writers.
 */
#define KVSTORE_CHECKPOINT_PASSIVE 0

/**
 * Mode of kvstore_checkpoint: waits for writers, then copies all frames of the WAL.
 */
#define KVSTORE_CHECKPOINT_FULL 1

/**
 * Mode of kvstore_checkpoint: like KVSTORE_CHECKPOINT_FULL, but also waits for readers, so that
 * the next writer overwrites the WAL from its start.
 */
#define KVSTORE_CHECKPOINT_RESTART 2

/**
 * Mode of kvstore_checkpoint: like KVSTORE_CHECKPOINT_RESTART, but also truncates the WAL to zero
 * bytes.
 */
#define KVSTORE_CHECKPOINT_TRUNCATE 3

/**
 * Value of KVStoreConfig.profile: selects defaults for devices with little memory and little flash
 * storage.
 */
#define KVSTORE_SMALL 1

/**
 * Flag of KVWriteOptions.flags: write only if the key does not exist or has expired.
 */
#define KVSTORE_PUT_IF_ABSENT 1

/**
 * Flag of KVWriteOptions.flags: write only if the key is live.
 */
#define KVSTORE_PUT_IF_PRESENT 2

/**
 * Flag of KVWriteOptions.flags: keep the expiry time of a live key, including the absence of one.
 * A new key gets expireMs.
 */
#define KVSTORE_PUT_KEEP_TTL 4

/**
 * Flag of KVWriteOptions.flags: expireMs is a TTL in milliseconds instead of an expiry time. It is
 * counted from now by the clock of the store; for a store on a server, by the server's clock.
 */
#define KVSTORE_PUT_TTL 8

/**
 * Condition of kvstore_expire: change only a key without an expiry time.
 */
#define KVSTORE_EXPIRE_NX 1

/**
 * Condition of kvstore_expire: change only a key with an expiry time.
 */
#define KVSTORE_EXPIRE_XX 2

/**
 * Condition of kvstore_expire: change only if the new expiry time is later than the current one.
 */
#define KVSTORE_EXPIRE_GT 4

/**
 * Condition of kvstore_expire: change only if the new expiry time is earlier than the current one.
 */
#define KVSTORE_EXPIRE_LT 8

/**
 * Flag of range and row iterators: iterate from the greatest key to the least.
 */
#define KVSTORE_RANGE_REVERSE 1

/**
 * Flag of range and row iterators: include the upper bound.
 */
#define KVSTORE_RANGE_CLOSED 2

/**
 * Flag of range and row iterators: exclude the lower bound.
 */
#define KVSTORE_RANGE_OPEN 4

/**
 * Flag of range and row iterators: read keys without their values. kvstore_iterator_value fails
 * with KVSTORE_ERROR.
 */
#define KVSTORE_RANGE_KEYS_ONLY 8

/**
 * Eviction policy of kvstore_set_limit: evict nothing. A write beyond the limit fails with
 * KVSTORE_FULL.
 */
#define KVSTORE_EVICT_NONE 0

/**
 * Eviction policy of kvstore_set_limit: remove expired keys, then evict the keys with the earliest
 * expiry time. Keys without an expiry time are never evicted.
 */
#define KVSTORE_EVICT_SOONEST 1

/**
 * Eviction policy of kvstore_set_limit: remove expired keys, then evict the keys that were written
 * longest ago.
 */
#define KVSTORE_EVICT_OLDEST 2

/**
 * Eviction policy of kvstore_set_limit: remove expired keys, then evict the keys that were written
 * or read longest ago.
 */
#define KVSTORE_EVICT_LEAST_USED 3

/**
 * Number of families that a store is guaranteed to support. A store may have more.
 */
#define KVSTORE_MAX_COLUMN_FAMILIES 64

/**
 * Major version number of the library that this header belongs to.
 */
#define KVSTORE_VERSION_MAJOR 0

/**
 * Minor version number of the library that this header belongs to.
 */
#define KVSTORE_VERSION_MINOR 1

/**
 * Patch version number of the library that this header belongs to.
 */
#define KVSTORE_VERSION_PATCH 0

/**
 * Result of kvstore_errhint if there is no advice.
 */
#define KVSTORE_HINT_NONE 0

/**
 * Advice: retry later, because the cause is temporary.
 */
#define KVSTORE_HINT_RETRY 1

/**
 * Advice: retry, or set a longer KVStoreConfig.busyTimeout.
 */
#define KVSTORE_HINT_RAISE_BUSY_TIMEOUT 2

/**
 * Advice: roll back the transaction with kvstore_rollback.
 */
#define KVSTORE_HINT_ROLL_BACK 3

/**
 * Advice: roll back the transaction and run it again, beginning with its first read.
 */
#define KVSTORE_HINT_RUN_TRANSACTION_AGAIN 4

/**
 * Advice: commit or roll back the transaction that is open on this handle.
 */
#define KVSTORE_HINT_END_TRANSACTION 5

/**
 * Advice: begin a transaction first with kvstore_begin.
 */
#define KVSTORE_HINT_BEGIN_TRANSACTION 6

/**
 * Advice: end the open read transaction, or begin a write transaction instead of it.
 */
#define KVSTORE_HINT_USE_WRITE_TRANSACTION 7

/**
 * Advice: open the store without KVStoreConfig.readOnly.
 */
#define KVSTORE_HINT_OPEN_FOR_WRITING 8

/**
 * Advice: close this handle and open the store again.
 */
#define KVSTORE_HINT_OPEN_AGAIN 9

/**
 * Advice: close all other handles of the store, in this process and in others.
 */
#define KVSTORE_HINT_CLOSE_OTHER_HANDLES 10

/**
 * Advice: open a second handle of the store and use that one inside callbacks.
 */
#define KVSTORE_HINT_USE_SECOND_HANDLE 11

/**
 * Advice: run kvstore_integrity_check; its result shows whether kvstore_repair can help.
 */
#define KVSTORE_HINT_CHECK_INTEGRITY 12

/**
 * Advice: repair the store with kvstore_repair.
 */
#define KVSTORE_HINT_REPAIR 13

/**
 * Advice: restore a backup, or save the readable rows into a new store with kvstore_recover.
 */
#define KVSTORE_HINT_RECOVER 14

/**
 * Advice: change the owner or the permissions of the file, its log files or its directory.
 */
#define KVSTORE_HINT_CHECK_PERMISSIONS 15

/**
 * Advice: free space on the disk, then retry.
 */
#define KVSTORE_HINT_FREE_DISK_SPACE 16

/**
 * Advice: open the store with its password or key, with kvstore_open_encrypted.
 */
#define KVSTORE_HINT_GIVE_PASSWORD 17

/**
 * Advice: open the store without a password, with kvstore_open; it is not encrypted.
 */
#define KVSTORE_HINT_OMIT_PASSWORD 18

/**
 * Advice: encrypt the store with kvstore_open_encrypted.
 */
#define KVSTORE_HINT_ENCRYPT 19

/**
 * Advice: give the encrypted store another password with kvstore_reencrypt.
 */
#define KVSTORE_HINT_REKEY 20

/**
 * Advice: use a build of the library that supports encryption.
 */
#define KVSTORE_HINT_BUILD_WITH_ENCRYPTION 21

/**
 * Advice: use a build of the library that supports stores on a server.
 */
#define KVSTORE_HINT_BUILD_WITH_SERVER 22

/**
 * Advice: delete keys, or raise the size limit with kvstore_set_limit.
 */
#define KVSTORE_HINT_RAISE_SIZE_LIMIT 23

/**
 * Advice: raise KVStoreConfig.maxValueSize.
 */
#define KVSTORE_HINT_RAISE_MAX_VALUE_SIZE 24

/**
 * Advice: create the family with kvstore_cf_create.
 */
#define KVSTORE_HINT_CREATE_FAMILY 25

/**
 * Advice: open the family with kvstore_cf_open, because it exists already.
 */
#define KVSTORE_HINT_OPEN_FAMILY 26

/**
 * Advice: close the open handles of the family with kvstore_cf_close.
 */
#define KVSTORE_HINT_CLOSE_FAMILY 27

/**
 * Advice: clear the default family with kvstore_clear, because it cannot be dropped.
 */
#define KVSTORE_HINT_CLEAR_FAMILY 28

/**
 * Advice: turn on write tracking with kvstore_set_write_tracking or kvstore_cf_set_write_tracking.
 */
#define KVSTORE_HINT_TRACK_WRITES 29

/**
 * Advice: set another eviction policy with kvstore_set_limit.
 */
#define KVSTORE_HINT_CHANGE_EVICTION 30

/**
 * Advice: purge from a thread of the caller with kvstore_purge_step, because this store cannot
 * have a cleaner.
 */
#define KVSTORE_HINT_PURGE_YOURSELF 31

/**
 * Advice: stop the running cleaner with kvstore_cleaner_stop.
 */
#define KVSTORE_HINT_STOP_CLEANER 32

/**
 * Advice: copy into another store with kvstore_copy.
 */
#define KVSTORE_HINT_COPY_TO_STORE 33

/**
 * Advice: finish the interrupted copy, or drop the family in which the target records its
 * progress.
 */
#define KVSTORE_HINT_RESUME_COPY 34

/**
 * Advice: use a shorter key, such as a hash of the key.
 */
#define KVSTORE_HINT_USE_SHORTER_KEY 35

/**
 * Advice: repair the file with the command "kvstore repair", because no call can open it.
 */
#define KVSTORE_HINT_REPAIR_FILE 36

/**
 * Advice: pass a duration to a function that takes one, such as kvstore_cf_put_for.
 */
#define KVSTORE_HINT_GIVE_TTL 37

/**
 * List of writes and deletions that are committed together. It is used by one thread at a time.
 */
typedef struct KVBatch KVBatch;

/**
 * Handle on a family, which is a separate ordered set of keys in a store (see "Families" in the
 * introduction). Threads may share a handle.
 */
typedef struct KVColumnFamily KVColumnFamily;

/**
 * Iterator over the live entries of a family, which is at one entry or at the end. It is used by
 * one thread at a time.
 */
typedef struct KVIterator KVIterator;

/**
 * Handle on a store: one connection to one file, or to one schema of a server. Threads may share a
 * handle; their calls run one after another. Open several handles for parallel reads.
 */
typedef struct KVStore KVStore;

/**
 * Configuration of kvstore_open_v2. All zeros is the default configuration: initialise it with
 * `KVStoreConfig cfg = {0};` and set the fields you need.
 */
typedef struct {
    /**
     * Journal mode: KVSTORE_JOURNAL_WAL (also 0) or KVSTORE_JOURNAL_DELETE. An existing file is
     * converted to this mode.
     */
    int journalMode;
    /**
     * Durability of commits: KVSTORE_SYNC_NORMAL (also 0), KVSTORE_SYNC_FULL or KVSTORE_SYNC_OFF.
     */
    int syncLevel;
    /**
     * Size of the page cache, in pages; 0 means 2000. A write transaction that changes more pages
     * than this may use up to five times as much memory.
     */
    int cacheSize;
    /**
     * Page size of a new file, in bytes: a power of two from 512 to 65536; 0 means 4096.
     */
    int pageSize;
    /**
     * Non-zero: opens the store read-only; the file must exist.
     *
     * A store that was closed cleanly can be read from a read-only file system, or by a user
     * without write permission. If another process changes such a file, calls notice the change,
     * and calls of an open snapshot fail with KVSTORE_BUSY.
     */
    int readOnly;
    /**
     * Maximum time that a call waits for a lock of another handle, in milliseconds. 0 means 5000.
     * With a negative value the call does not wait, and fails at once with KVSTORE_BUSY.
     *
     * Opening a store waits for at least 2 seconds, because other processes hold the locks of an
     * open for moments only.
     */
    int busyTimeout;
    /**
     * Number of write commits after which a passive checkpoint runs. 0: checkpoints depend on the
     * length of the WAL instead (walPages).
     *
     * In a store with a size limit, the length of the WAL triggers checkpoints in both cases.
     */
    int walSizeLimit;
    /**
     * Ignored. An encrypted store is opened with kvstore_open_encrypted.
     */
    int allowEncrypted;
    /**
     * Ignored, because threads may share every handle anyway.
     */
    int fullMutex;
    /**
     * Maximum length of a value, in bytes: up to 536870912 (512 MiB). 0 means 10485760 (10 MiB).
     */
    int maxValueSize;
    /**
     * Maximum number of bytes of the file that are read through a memory map. 0 means 256 MiB on
     * 64-bit systems and none on 32-bit systems. A negative number means none.
     */
    int64_t mmapSize;
    /**
     * Non-zero: only this handle can use the file. This is the fastest mode; every other open of
     * the file fails with KVSTORE_BUSY. Cannot be combined with readOnly.
     */
    int exclusive;
    /**
     * Whether the handle keeps its read snapshot between calls, which makes reads faster.
     * Positive: always. Negative: never. 0: only while no other process has the store open through
     * this library, and never with KVSTORE_SMALL.
     *
     * Reads never return old data: each read checks first whether the snapshot is still current.
     *
     * While an idle handle keeps a snapshot, the WAL of other processes cannot be reset. This
     * includes a process that opens the store after the last read or write of the handle.
     */
    int holdReads;
    /**
     * Target length of the WAL, in pages, from 16 to 1000000; 0 means the default. It is ignored
     * if walSizeLimit is set, except in a store with a size limit.
     *
     * The default is 4000 pages (64 with KVSTORE_SMALL), or one eighth of the size limit of the
     * store if that is less, but at least 16.
     *
     * The WAL is copied into the database while it grows, and is reset once it reaches three
     * quarters of this length. With one writer it never exceeds twice this length plus the pages
     * of one transaction. With KVSTORE_SYNC_FULL the WAL file may be 256 KiB longer. It can grow
     * further with several writers (the cleaner counts as one), or with readers that stay open or
     * follow each other without a pause. A commit waits up to busyTimeout for a checkpoint of
     * another connection.
     */
    int walPages;
    /**
     * Non-zero: data that is deleted, overwritten, purged or evicted is overwritten with zeros in
     * the files of the store. 0: the old bytes remain in the files until their space is reused.
     *
     * The setting is not stored in the file: every handle that writes must set it. In WAL mode,
     * earlier page versions remain in the -wal file until a checkpoint of any mode completes
     * without being blocked by a reader, or until the last handle is closed.
     * KVSTORE_CHECKPOINT_TRUNCATE returns KVSTORE_BUSY if it was blocked. Cost and limits:
     * docs/how-to/secure-delete.md.
     */
    int secureDelete;
    /**
     * Set of defaults for the fields that are 0. 0: the default that each field documents.
     * KVSTORE_SMALL: the defaults for small devices.
     *
     * KVSTORE_SMALL means 32 pages for cacheSize, no memory map, 64 pages for walPages, and
     * "never" for holdReads. See docs/how-to/firmware.md.
     */
    int profile;
    /**
     * Permissions of a new file on Unix, such as 0660 for a store that a group shares. 0: 0644
     * without the bits of the umask.
     *
     * Otherwise the file has exactly these permissions, whatever the umask is, and so have its
     * -wal, -shm and -journal files and its backups. It must have the bits 0600, and none beyond
     * 0777. An existing file keeps its permissions. Ignored on Windows.
     */
    int mode;
    /**
     * Number of expired keys that this handle removes for each key that it writes, from 0 (none) to
     * 1000. With 2 or more, a store whose keys expire as fast as they are written does not grow,
     * without a cleaner and without purges.
     *
     * The removals are collected: about 64 keys, of any family, are removed in a transaction of
     * their own after the write that reaches this number, and the rest when the handle is closed.
     * Writes inside a transaction count after its commit. A removal does not wait for other
     * handles, and its failure is not reported. Later purges do not count the keys. See
     * docs/reference/ttl.md.
     */
    int purgePerWrite;
    /**
     * For kvstore_open_encrypted: non-zero makes it fail with KVSTORE_AUTH_FAILED if the store
     * exists and is not encrypted; 0 lets it encrypt such a store. Other functions ignore this
     * field.
     */
    int onlyEncrypted;
    /**
     * Reserved for later versions; must be zero.
     */
    int reserved[2];
} KVStoreConfig;

/**
 * Entry returned by kvstore_iterator_fetch. Its key and its value point into memory of the
 * iterator.
 */
typedef struct {
    /**
     * Pointer to the key; in a row iterator, to the clustering part of the row key.
     */
    const void *pKey;
    /**
     * Pointer to the value; NULL only if the iterator reads keys only. It is not NULL for an empty
     * value.
     */
    const void *pValue;
    /**
     * Length of the key, in bytes.
     */
    int nKey;
    /**
     * Length of the value, in bytes; 0 if the iterator reads keys only.
     */
    int nValue;
    /**
     * Expiry time, in milliseconds since the Unix epoch; KVSTORE_NO_TTL if the key never expires.
     */
    int64_t expireMs;
} KVEntry;

/**
 * Options of kvstore_put_with. All zeros means an unconditional write with the default TTL of the
 * family.
 */
typedef struct {
    /**
     * Expiry time, in milliseconds since the Unix epoch; 0 for the default TTL of the family;
     * KVSTORE_NO_TTL if the key never expires. With the flag KVSTORE_PUT_TTL it is a TTL instead, in
     * milliseconds, at least 1.
     */
    int64_t expireMs;
    /**
     * Bitwise OR of KVSTORE_PUT_* flags; 0 for none.
     */
    uint32_t flags;
    /**
     * Reserved for later versions; must be zero.
     */
    uint32_t reserved;
} KVWriteOptions;

/**
 * Counters of a store handle since it was opened or since kvstore_stats_reset. Only successful
 * calls count, except in nErrors. Fields marked "current" are measured at the call and are not
 * reset.
 */
typedef struct {
    /**
     * Number of keys written.
     */
    uint64_t nPuts;
    /**
     * Number of values read.
     */
    uint64_t nGets;
    /**
     * Number of live keys deleted.
     */
    uint64_t nDeletes;
    /**
     * Number of iterators created.
     */
    uint64_t nIterations;
    /**
     * Number of calls that failed. KVSTORE_NOTFOUND for a key is not a failure.
     */
    uint64_t nErrors;
    /**
     * Total length of the values read, in bytes.
     */
    uint64_t nBytesRead;
    /**
     * Total length of the keys and values written, in bytes.
     */
    uint64_t nBytesWritten;
    /**
     * Number of write transactions committed, in any journal mode.
     */
    uint64_t nWalCommits;
    /**
     * Number of checkpoints run, including automatic ones.
     */
    uint64_t nCheckpoints;
    /**
     * Number of lookups that found an expired row. After the first one, the handle treats the row
     * as missing, except in kvstore_get_many.
     */
    uint64_t nTtlExpired;
    /**
     * Number of expired keys removed by purges, or to enforce the size limit.
     */
    uint64_t nTtlPurged;
    /**
     * Current number of pages of the database.
     */
    uint64_t nDbPages;
    /**
     * Current number of frames (page versions) in the WAL, as of the last commit or checkpoint of
     * this handle.
     */
    uint64_t nWalFrames;
    /**
     * Number of lookups that found no live key: gets, each key of a kvstore_get_many, and exists.
     */
    uint64_t nMisses;
    /**
     * Number of live keys removed to enforce the size limit (kvstore_set_limit).
     */
    uint64_t nEvicted;
    /**
     * Current size of the pages in use, in bytes. This is the size that kvstore_set_limit limits.
     */
    uint64_t nSizeBytes;
    /**
     * Reserved for later versions; kvstore_stats sets it to zero.
     */
    uint64_t reserved[4];
} KVStoreStats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 * ---- Library: versions, memory and time ----
 */

/**
 * Returns the version of the library, such as "0.1.0". The suffix "+sqlcipher" marks a build with
 * encryption, and "+remote" at the end a build with support for servers. The string is static.
 */
const char *kvstore_version(void);

/**
 * Returns the version of the SQLite in the library, such as "3.54.1". The string is static.
 */
const char *kvstore_sqlite_version(void);

/**
 * Returns the storage engine of this build: "sql" or "btree"; with encryption "sql+sqlcipher" or
 * "btree+sqlcipher". The string is static.
 */
const char *kvstore_engine(void);

/**
 * Returns a short description of a result code, also for an unknown one. The string is static and
 * never NULL.
 */
const char *kvstore_strerror(int code);

/**
 * Returns the advice that a KVSTORE_HINT_* number stands for, as text for a person.
 *
 * @param hint A result of kvstore_errhint.
 *
 * The result is never NULL. It is empty for KVSTORE_HINT_NONE and for unknown numbers. It is
 * static.
 */
const char *kvstore_strhint(int hint);

/**
 * Returns the current time of the system clock, in milliseconds since the Unix epoch. The result
 * stands still if the system clock is set back by at most a second, until that has caught up.
 */
int64_t kvstore_now_ms(void);

/**
 * Sets a function that calls of this process ask while they wait for a lock, or removes it.
 *
 * @param ends Function that returns non-zero to end the wait; NULL removes the function that was
 *   set before.
 * @param context Passed to `ends`. It must remain valid for the rest of the process.
 *
 * A call whose wait is ended returns KVSTORE_BUSY, as it does when KVStoreConfig.busyTimeout is
 * over, and changes nothing. On a server it can also return KVSTORE_IOERR. A program can so react to
 * a signal, or to a cancelled task, during a long wait.
 *
 * `ends` is called in the waiting thread, about every 40 milliseconds, and when a signal handler has
 * interrupted the wait for the answer of a server. It should keep returning non-zero until the call
 * has returned, and must not use a store. Calls that do not wait never ask it.
 *
 * It applies to stores that are opened afterwards. There is one function for the whole process.
 */
void kvstore_set_wait_hook(int (*ends)(void *context), void *context);

/**
 * Allocates `n` bytes of zeroed memory.
 *
 * Returns NULL if `n` is negative or memory is exhausted. Free the memory with kvstore_free.
 */
void *kvstore_malloc(int n);

/**
 * Frees memory that this library allocated for the caller. NULL is allowed.
 *
 * The library allocates such memory with malloc().
 */
void kvstore_free(void *memory);

/*
 * ---- Stores: opening, closing, errors and clocks ----
 */

/**
 * Opens the store at `path` with the default configuration, and creates it if it does not exist.
 *
 * @param path File name, or URL of a store on a server; NULL, "" or ":memory:" for a new store in
 *   memory. See kvstore_open_v2.
 * @param ppKV Receives the handle, or NULL after a failure. Close it with kvstore_close.
 * @param journalMode KVSTORE_JOURNAL_WAL (also 0) or KVSTORE_JOURNAL_DELETE.
 *
 * Behaviour and errors are those of kvstore_open_v2.
 */
int kvstore_open(const char *path, KVStore **ppKV, int journalMode);

/**
 * Opens the store at `path`, and creates it if it does not exist.
 *
 * @param path File name, on Windows in UTF-8; NULL, "" or ":memory:" for a new store in memory. In
 *   a build with support for servers (kvstore_version ends in "+remote") also a URL such as
 *   "postgresql://user:password@host:port/database?schema=app": the store is a schema of a
 *   PostgreSQL server, and is created there. See docs/how-to/postgresql.md.
 * @param ppKV Receives the handle, or NULL after a failure. Close it with kvstore_close.
 * @param config Configuration, read during the call only; NULL for the default one.
 *
 * After a failure kvstore_errmsg(NULL) returns the text. A failed open leaves no new file behind,
 * with one exception: an empty store remains if the failure comes after its creation, such as a
 * lack of file descriptors for the -wal. On systems with open file description locks (Linux), a
 * read-only handle leaves no new file either.
 *
 * If the file of an open store is deleted, moved or replaced, calls on its handles fail with
 * KVSTORE_IOERR within some milliseconds, because nothing written there could be found again.
 * Renaming the directory is allowed in WAL mode, but kvstore_backup and kvstore_cleaner_start need the
 * original path.
 *
 * Errors: those of the first list for a file, those of the second for a URL.
 *
 * For a file:
 * - KVSTORE_ERROR: ppKV is NULL, a setting is out of bounds, or the path begins with another
 *   scheme, such as "file:" or "redis://".
 * - KVSTORE_CANTOPEN: the directory does not exist; no permission; the path is a directory or a
 *   special file; the file is missing or empty and readOnly is set; the file format is newer; the
 *   file has several hard links, each of which would have its own WAL; or a -wal file next to it
 *   belongs to a deleted file of the same name that another process still has open.
 * - KVSTORE_NOTADB: the file is not a store. It is left unchanged.
 * - KVSTORE_AUTH_FAILED: the store is encrypted, or the file consists of random bytes. It is left
 *   unchanged.
 * - KVSTORE_BUSY: another handle has the store open exclusively or in the other journal mode, or
 *   other processes write without a pause in DELETE mode.
 * - KVSTORE_READONLY: this process may not write the file, its -wal or its -shm. The text names
 *   the file.
 * - KVSTORE_CORRUPT, KVSTORE_IOERR, KVSTORE_FULL, KVSTORE_NOMEM, KVSTORE_PROTOCOL.
 *
 * For a URL:
 * - KVSTORE_ERROR: the URL is malformed.
 * - KVSTORE_CANTOPEN: this build does not support servers; no server is reached, or none answers
 *   within connect_timeout of the URL and then busyTimeout; the database does not exist; TLS as
 *   required by sslmode is not available; the role may not use or create the schema; or the store
 *   has a newer version.
 * - KVSTORE_AUTH_FAILED: the server refused the login.
 * - KVSTORE_BUSY: the server accepts no connection now, because it is starting or has too many.
 * - KVSTORE_READONLY: none of the servers accepts writes now.
 * - KVSTORE_NOTADB: the schema is not a store.
 */
int kvstore_open_v2(const char *path, KVStore **ppKV, const KVStoreConfig *config);

/**
 * Closes a store: rolls back an open transaction and closes the file.
 *
 * @param kv Handle; NULL is allowed.
 *
 * Families, iterators and batches of the store that are still open return KVSTORE_MISUSE from then
 * on, and must still be closed. So does every further call with the handle, including a second
 * close.
 *
 * Threads: the call waits for a call of another thread that is using the connection. A purge,
 * sweep, vacuum, checkpoint or backup of another thread stops at its next step and returns
 * KVSTORE_MISUSE. So do calls that were waiting for the connection.
 *
 * Errors: KVSTORE_MISUSE (the handle is already closed or was opened before a fork; or the caller
 * is the clock of this store, or a callback that gets a value, and the store then stays open; a
 * progress callback may close the store, which ends its call with KVSTORE_MISUSE); otherwise the
 * code of what failed while closing: the handle is closed nevertheless. kvstore_errmsg(NULL)
 * returns the text.
 */
int kvstore_close(KVStore *kv);

/**
 * Returns the text of the last call that failed on a handle, its families or its iterators: what
 * failed, then what to do about it.
 *
 * @param kv Handle. NULL asks for the last call of this thread that failed without a usable
 *   handle: kvstore_open, or a call whose handle was NULL, closed, or in use by the call that ran
 *   the callback.
 *
 * The result is never NULL. It is "no error" if no call failed, and "no such key" or "no key has a
 * TTL" after KVSTORE_NOTFOUND for a key.
 *
 * Memory: the string belongs to the library and is valid until the next failing call on the handle
 * in the thread that requested it. Calls of other threads do not change it.
 */
const char *kvstore_errmsg(KVStore *kv);

/**
 * Returns what failed in the last failing call, without the advice that kvstore_errmsg appends.
 * Bindings use it and give the advice in the words of their own language.
 *
 * @param kv As for kvstore_errmsg; so are the result and its memory.
 */
const char *kvstore_errreason(KVStore *kv);

/**
 * Returns the advice for the last failing call on a handle, as a KVSTORE_HINT_* number.
 *
 * @param kv As for kvstore_errmsg.
 *
 * The result is KVSTORE_HINT_NONE if no call failed, or if the library has no advice. Later
 * versions may return further numbers.
 */
int kvstore_errhint(KVStore *kv);

/**
 * Returns the current time of a store, from which remaining TTLs are computed.
 *
 * @param pMs Receives the time, in milliseconds since the Unix epoch.
 *
 * For a store in a file this is the time of the clock set with kvstore_set_clock, or of the system
 * clock (kvstore_now_ms). For a store on a server it is the server's time: the time of the last
 * answer, advanced by the monotonic clock of this machine. The call asks the server if the last
 * answer is older than a minute, or if the machine was suspended since then. Use this function for
 * times that several machines compare.
 *
 * Errors: KVSTORE_ERROR (`kv` or `pMs` is NULL), KVSTORE_MISUSE. If the server must be asked, also
 * KVSTORE_IOERR (it cannot be reached, or the open transaction was lost with its connection),
 * KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM.
 */
int kvstore_time_ms(KVStore *kv, int64_t *pMs);

/**
 * Replaces the system clock of this handle by a function, for tests and for devices without a
 * clock.
 *
 * @param now_ms Function that returns the time in milliseconds since the Unix epoch; NULL restores
 *   the system clock. Any thread that uses the handle may call it. It must not call this store. A
 *   result smaller than an earlier one counts as the earlier one.
 * @param context Passed to `now_ms`. It must remain valid until the clock is replaced or the store
 *   is closed; both wait for threads inside the old clock.
 *
 * Errors: KVSTORE_ERROR (`kv` is NULL, or the store is on a server, whose clock applies to all
 * clients), KVSTORE_MISUSE (also for a call from inside the clock).
 */
int kvstore_set_clock(KVStore *kv, int64_t (*now_ms)(void *context), void *context);

/*
 * ---- Families ----
 */

/**
 * Creates a family and opens a handle on it.
 *
 * @param name Name: 1 to 255 bytes of UTF-8, case-sensitive. Names that begin with "__", "_snkv_"
 *   or "kvstore" are reserved.
 * @param ppCF Receives the handle, or NULL after a failure. Close it with kvstore_cf_close.
 *
 * Errors: KVSTORE_ERROR (the family exists, the name is invalid, or a pointer is NULL), or a write
 * code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR,
 * KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
 */
int kvstore_cf_create(KVStore *kv, const char *name, KVColumnFamily **ppCF);

/**
 * Opens a handle on an existing family.
 *
 * @param name Name of the family; "default" for the default one.
 * @param ppCF Receives the handle, or NULL after a failure. Close it with kvstore_cf_close.
 *
 * Errors: KVSTORE_NOTFOUND (there is no family of that name), KVSTORE_ERROR (the name is invalid,
 * or a pointer is NULL), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM,
 * KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
 */
int kvstore_cf_open(KVStore *kv, const char *name, KVColumnFamily **ppCF);

/**
 * Opens a handle on the default family, which the functions without "cf" in their names use.
 *
 * @param ppCF Receives the handle, or NULL after a failure. Close it with kvstore_cf_close.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL), KVSTORE_MISUSE.
 */
int kvstore_cf_get_default(KVStore *kv, KVColumnFamily **ppCF);

/**
 * Removes a family with all its keys and settings.
 *
 * @param name Name of the family. "default" cannot be dropped.
 *
 * Errors: KVSTORE_NOTFOUND (there is no family of that name), KVSTORE_BUSY (a handle on the family
 * is open on this store, or another handle is writing), KVSTORE_ERROR ("default", a reserved name,
 * or a NULL pointer), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM,
 * KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE,
 * KVSTORE_FULL).
 */
int kvstore_cf_drop(KVStore *kv, const char *name);

/**
 * Lists the names of all families except the default one, in byte order.
 *
 * @param pazNames Receives an array of names, terminated by NULL. Free each name and then the
 *   array with kvstore_free.
 * @param pnCount Receives the number of names.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
 * KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
 */
int kvstore_cf_list(KVStore *kv, char ***pazNames, int *pnCount);

/**
 * Returns the name of a family.
 *
 * The result is never NULL: it is an empty string for NULL and for a closed handle. The string is
 * valid until the handle is closed.
 */
const char *kvstore_cf_name(KVColumnFamily *cf);

/**
 * Closes a handle on a family. NULL is allowed, and so is a handle whose store is already closed.
 *
 * Threads: calls of other threads that are using the handle run to their end.
 */
void kvstore_cf_close(KVColumnFamily *cf);

/*
 * ---- Keys and values ----
 */

/**
 * Writes a value into the default family, replacing an existing one. The key gets the default TTL
 * of the family; without a default TTL, the key never expires.
 *
 * @param pKey,nKey Key and its length: 1 to 65536 bytes of any content.
 * @param pValue,nValue Value and its length: 0 bytes to KVStoreConfig.maxValueSize (10 MiB by
 *   default), any content. NULL with length 0 is an empty value.
 *
 * Key and value are copied. Outside a transaction the call is a transaction of its own. A failed
 * call changes nothing. Inside a transaction, KVSTORE_IOERR, KVSTORE_NOMEM, KVSTORE_CORRUPT and a
 * full disk fail the transaction (see kvstore_begin); KVSTORE_FULL for the size limit does not.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL, or a length is out of bounds), KVSTORE_BUSY (another
 * handle is writing; outside a transaction only), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED,
 * KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
 * KVSTORE_MISUSE, KVSTORE_FULL).
 */
int kvstore_put(KVStore *kv, const void *pKey, int nKey, const void *pValue, int nValue);

/**
 * Writes a value into the family `cf`, replacing an existing one.
 *
 * Parameters, behaviour and errors are those of kvstore_put.
 */
int kvstore_cf_put(KVColumnFamily *cf, const void *pKey, int nKey, const void *pValue, int nValue);

/**
 * Reads the value of a key of the default family.
 *
 * @param pKey,nKey Key and its length: 1 to 65536 bytes.
 * @param ppValue Receives a copy of the value, followed by a NUL byte; not NULL even if the value
 *   is empty. Free it with kvstore_free. NULL if the call fails, but unchanged after
 *   KVSTORE_ERROR and KVSTORE_MISUSE.
 * @param pnValue Receives the length of the value, without the NUL byte. If the call fails: 0, or
 *   unchanged as `*ppValue` is.
 *
 * Errors: KVSTORE_NOTFOUND (the key does not exist or has expired), KVSTORE_ERROR (a pointer is
 * NULL, or the length is out of bounds), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
 * KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
 */
int kvstore_get(KVStore *kv, const void *pKey, int nKey, void **ppValue, int *pnValue);

/**
 * Reads the value of a key of the family `cf`.
 *
 * Parameters, behaviour and errors are those of kvstore_get.
 */
int kvstore_cf_get(KVColumnFamily *cf, const void *pKey, int nKey, void **ppValue, int *pnValue);

/**
 * Deletes a key of the default family, with its value and expiry time.
 *
 * @param pKey,nKey Key and its length: 1 to 65536 bytes.
 *
 * The bytes remain in the file until their space is reused, unless KVStoreConfig.secureDelete is
 * set.
 *
 * Errors: KVSTORE_NOTFOUND (the key does not exist or has expired), KVSTORE_ERROR (`pKey` is NULL,
 * or the length is out of bounds), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM,
 * KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE,
 * KVSTORE_FULL).
 */
int kvstore_delete(KVStore *kv, const void *pKey, int nKey);

/**
 * Deletes a key of the family `cf`, with its value and expiry time.
 *
 * Parameters, behaviour and errors are those of kvstore_delete.
 */
int kvstore_cf_delete(KVColumnFamily *cf, const void *pKey, int nKey);

/**
 * Tests whether a key of the default family is live.
 *
 * @param pKey,nKey Key and its length: 1 to 65536 bytes.
 * @param pExists Receives 1 if the key exists and has not expired, otherwise 0.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL, or the length is out of bounds), or a read code
 * (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
 * KVSTORE_MISUSE). A missing key is not an error.
 */
int kvstore_exists(KVStore *kv, const void *pKey, int nKey, int *pExists);

/**
 * Tests whether a key of the family `cf` is live.
 *
 * Parameters, behaviour and errors are those of kvstore_exists.
 */
int kvstore_cf_exists(KVColumnFamily *cf, const void *pKey, int nKey, int *pExists);

/**
 * Writes a value into the default family only if the key does not exist or has expired. Check and
 * write are atomic for every handle and process.
 *
 * @param pKey,nKey Key and its length: 1 to 65536 bytes.
 * @param pValue,nValue Value and its length, as for kvstore_put.
 * @param expire_ms Expiry time of the new key, in milliseconds since the Unix epoch; 0: by the
 *   default TTL of the family, or never if the family has none; KVSTORE_NO_TTL: never.
 * @param pInserted Receives 1 if the value was written, otherwise 0. May be NULL.
 *
 * A live key keeps its value and expiry time.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL, a length is out of bounds, or `expire_ms` is
 * invalid), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY,
 * KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
 */
int kvstore_put_if_absent(KVStore *kv,
                          const void *pKey,
                          int nKey,
                          const void *pValue,
                          int nValue,
                          int64_t expire_ms,
                          int *pInserted);

/**
 * Writes a value into the family `cf` only if the key does not exist or has expired.
 *
 * Parameters, behaviour and errors are those of kvstore_put_if_absent.
 */
int kvstore_cf_put_if_absent(KVColumnFamily *cf,
                             const void *pKey,
                             int nKey,
                             const void *pValue,
                             int nValue,
                             int64_t expire_ms,
                             int *pInserted);

/**
 * Counts the rows of the default family, including expired rows that have not been removed yet.
 *
 * @param pnCount Receives the number of rows.
 *
 * An expired row is not counted once a get, exists, ttl, expire-time or write-time call of this
 * handle has found it, unless the handle is read-only or the call was part of a read transaction.
 * The call reads the whole key index; its time grows with the number of keys.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
 * KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
 */
int kvstore_count(KVStore *kv, int64_t *pnCount);

/**
 * Counts the rows of the family `cf`, including expired rows that have not been removed yet.
 *
 * Parameters, behaviour and errors are those of kvstore_count.
 */
int kvstore_cf_count(KVColumnFamily *cf, int64_t *pnCount);

/**
 * Deletes all keys of the default family, in one transaction. The settings of the family remain.
 *
 * Errors: KVSTORE_ERROR (`kv` is NULL), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED,
 * KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
 * KVSTORE_MISUSE, KVSTORE_FULL).
 */
int kvstore_clear(KVStore *kv);

/**
 * Deletes all keys of the family `cf`, in one transaction. The settings of the family remain.
 *
 * Behaviour and errors are those of kvstore_clear.
 */
int kvstore_cf_clear(KVColumnFamily *cf);

/*
 * ---- Keys with an expiry time ----
 */

/**
 * Writes a value with an expiry time into the default family.
 *
 * @param pKey,nKey Key and its length: 1 to 65536 bytes.
 * @param pValue,nValue Value and its length, as for kvstore_put.
 * @param expire_ms Expiry time, in milliseconds since the Unix epoch, such as kvstore_now_ms() +
 *   60000; KVSTORE_NO_TTL: the key never expires; 0: as kvstore_put, by the default TTL of the
 *   family. A time in the past is allowed: the key is expired at once.
 *
 * `expire_ms` is a moment, not a duration, for which there is kvstore_put_for.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL, a length is out of bounds, or `expire_ms` is
 * invalid), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY,
 * KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
 */
int kvstore_put_ttl(KVStore *kv,
                    const void *pKey,
                    int nKey,
                    const void *pValue,
                    int nValue,
                    int64_t expire_ms);

/**
 * Writes a value with an expiry time into the family `cf`.
 *
 * Parameters, behaviour and errors are those of kvstore_put_ttl.
 */
int kvstore_cf_put_ttl(KVColumnFamily *cf,
                       const void *pKey,
                       int nKey,
                       const void *pValue,
                       int nValue,
                       int64_t expire_ms);

/**
 * Writes a value with a TTL, counted from now, into the default family.
 *
 * @param pKey,nKey Key and its length: 1 to 65536 bytes.
 * @param pValue,nValue Value and its length, as for kvstore_put.
 * @param ttl_ms TTL, in milliseconds from now by the clock of the store, at least 1. The expiry
 *   time is limited to the last one that can be represented.
 *
 * Use kvstore_put_ttl for an expiry time, or with KVSTORE_NO_TTL for a key that never expires.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL, a length is out of bounds, or `ttl_ms` is less than
 * 1), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY,
 * KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
 */
int kvstore_put_for(KVStore *kv,
                    const void *pKey,
                    int nKey,
                    const void *pValue,
                    int nValue,
                    int64_t ttl_ms);

/**
 * Writes a value with a TTL, counted from now, into the family `cf`.
 *
 * Parameters, behaviour and errors are those of kvstore_put_for.
 */
int kvstore_cf_put_for(KVColumnFamily *cf,
                       const void *pKey,
                       int nKey,
                       const void *pValue,
                       int nValue,
                       int64_t ttl_ms);

/**
 * Reads the value and the remaining TTL of a key of the default family.
 *
 * @param pKey,nKey Key and its length: 1 to 65536 bytes.
 * @param ppValue Receives a copy of the value, as for kvstore_get. Free it with kvstore_free.
 * @param pnValue Receives the length of the value.
 * @param pnRemaining Receives the remaining TTL, in milliseconds; KVSTORE_NO_TTL if the key never
 *   expires; 0 if it is not found. May be NULL.
 *
 * Errors: KVSTORE_NOTFOUND (the key does not exist or has expired), KVSTORE_ERROR (a pointer is
 * NULL, or the length is out of bounds), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
 * KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
 */
int kvstore_get_ttl(KVStore *kv,
                    const void *pKey,
                    int nKey,
                    void **ppValue,
                    int *pnValue,
                    int64_t *pnRemaining);

/**
 * Reads the value and the remaining TTL of a key of the family `cf`.
 *
 * Parameters, behaviour and errors are those of kvstore_get_ttl.
 */
int kvstore_cf_get_ttl(KVColumnFamily *cf,
                       const void *pKey,
                       int nKey,
                       void **ppValue,
                       int *pnValue,
                       int64_t *pnRemaining);

/**
 * Returns the remaining TTL of a key of the default family, in milliseconds.
 *
 * @param pKey,nKey Key and its length: 1 to 65536 bytes.
 * @param pnRemaining Receives the remaining TTL, in milliseconds; KVSTORE_NO_TTL if the key never
 *   expires. It is 0 if the key has expired and this call is the first one of its handle to find
 *   the row; later calls return KVSTORE_NOTFOUND.
 *
 * Errors: KVSTORE_NOTFOUND (there is no row, or this handle has already found it expired),
 * KVSTORE_ERROR (a pointer is NULL, or the length is out of bounds), or a read code (KVSTORE_BUSY,
 * KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
 * KVSTORE_MISUSE).
 */
int kvstore_ttl_remaining(KVStore *kv, const void *pKey, int nKey, int64_t *pnRemaining);

/**
 * Returns the remaining TTL of a key of the family `cf`, in milliseconds.
 *
 * Parameters, behaviour and errors are those of kvstore_ttl_remaining.
 */
int kvstore_cf_ttl_remaining(KVColumnFamily *cf, const void *pKey, int nKey, int64_t *pnRemaining);

/**
 * Removes all expired keys of the default family. The work is proportional to the number of
 * expired keys.
 *
 * @param pnDeleted Receives the number of keys removed, without those that a get, exists or ttl
 *   call of this handle found expired before. May be NULL.
 *
 * The keys are removed in transactions of at most `walPages` keys, at least 256 and at most 4096
 * (256 with KVSTORE_SMALL). A transaction ends earlier after about 50 ms, and after 2 ms if another
 * handle or thread waits to write; the purge then pauses for up to 10 ms. Inside a transaction, all
 * keys are removed in that one. After a failure, keys that earlier transactions removed stay
 * removed. The list of keys to remove needs up to 20 MiB of memory (512 KiB with KVSTORE_SMALL).
 *
 * Errors: KVSTORE_ERROR (`kv` is NULL), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED,
 * KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
 * KVSTORE_MISUSE, KVSTORE_FULL).
 */
int kvstore_purge_expired(KVStore *kv, int *pnDeleted);

/**
 * Removes all expired keys of the family `cf`. The work is proportional to the number of expired
 * keys.
 *
 * Parameters, behaviour and errors are those of kvstore_purge_expired.
 */
int kvstore_cf_purge_expired(KVColumnFamily *cf, int *pnDeleted);

/*
 * ---- Iterators ----
 */

/**
 * Creates an iterator over the live entries of the default family, in ascending key order. Call
 * kvstore_iterator_first or kvstore_iterator_seek to move it to an entry; until then it is at the
 * end.
 *
 * @param ppIter Receives the iterator, or NULL after a failure. Close it with
 *   kvstore_iterator_close.
 *
 * An iterator holds no lock and no snapshot between calls; writes, commits and close remain
 * possible. Inside a transaction it reads the state of the transaction.
 *
 * Outside a transaction it sees writes of its own store handle ahead of its position at once. It
 * sees commits of other handles with a delay, because it reads ahead: up to 512 entries, or 64 KiB
 * plus one value. A change that another handle commits to these entries, including a changed
 * expiry time, is not seen. The iterator tests the expiry time of each entry that it has read
 * ahead again at each step, and skips expired ones.
 *
 * For a store on a server, expiry is tested by the server's time as this handle knows it. That
 * time lags by the transmission time of the last answer, so an entry that expired within that
 * interval may still be returned.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL), KVSTORE_MISUSE.
 */
int kvstore_iterator_create(KVStore *kv, KVIterator **ppIter);

/**
 * Creates an iterator over the live entries of the family `cf`, in ascending key order. Call
 * kvstore_iterator_first or kvstore_iterator_seek to move it to an entry.
 *
 * Parameters, behaviour and errors are those of kvstore_iterator_create.
 */
int kvstore_cf_iterator_create(KVColumnFamily *cf, KVIterator **ppIter);

/**
 * Creates an iterator over the live entries of the default family, in descending key order. Call
 * kvstore_iterator_last or kvstore_iterator_seek to move it to an entry; until then it is at the
 * end.
 *
 * The iterator advances with kvstore_iterator_prev. Parameters, visibility of writes and errors
 * are those of kvstore_iterator_create.
 */
int kvstore_reverse_iterator_create(KVStore *kv, KVIterator **ppIter);

/**
 * Creates an iterator over the live entries of the family `cf`, in descending key order. Call
 * kvstore_iterator_last or kvstore_iterator_seek to move it to an entry.
 *
 * Parameters, behaviour and errors are those of kvstore_reverse_iterator_create.
 */
int kvstore_cf_reverse_iterator_create(KVColumnFamily *cf, KVIterator **ppIter);

/**
 * Creates an iterator over the live entries of the default family whose keys start with a prefix,
 * in ascending key order. The new iterator is at the first entry, or at the end if there is none.
 *
 * @param pPrefix,nPrefix Prefix and its length: 1 to 65536 bytes.
 * @param ppIter Receives the iterator, or NULL after a failure. Close it with
 *   kvstore_iterator_close.
 *
 * Visibility of writes: as for kvstore_iterator_create.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL, or the length is out of bounds), or a read code
 * (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
 * KVSTORE_MISUSE).
 */
int kvstore_prefix_iterator_create(KVStore *kv, const void *pPrefix, int nPrefix, KVIterator **ppIter);

/**
 * Creates an iterator over the live entries of the family `cf` whose keys start with a prefix, in
 * ascending key order.
 *
 * Parameters, behaviour and errors are those of kvstore_prefix_iterator_create.
 */
int kvstore_cf_prefix_iterator_create(KVColumnFamily *cf,
                                      const void *pPrefix,
                                      int nPrefix,
                                      KVIterator **ppIter);

/**
 * Creates an iterator over the live entries of the default family whose keys start with a prefix,
 * in descending key order. The new iterator is at the entry with the greatest key, or at the end
 * if there is none.
 *
 * Parameters, visibility of writes and errors are those of kvstore_prefix_iterator_create.
 */
int kvstore_reverse_prefix_iterator_create(KVStore *kv,
                                           const void *pPrefix,
                                           int nPrefix,
                                           KVIterator **ppIter);

/**
 * Creates an iterator over the live entries of the family `cf` whose keys start with a prefix, in
 * descending key order.
 *
 * Parameters, behaviour and errors are those of kvstore_reverse_prefix_iterator_create.
 */
int kvstore_cf_reverse_prefix_iterator_create(KVColumnFamily *cf,
                                              const void *pPrefix,
                                              int nPrefix,
                                              KVIterator **ppIter);

/**
 * Moves a forward iterator to its first entry; a reverse iterator to its last entry in key order.
 * If there is no entry, the iterator is at the end, which is not an error.
 *
 * Errors: KVSTORE_ERROR (`it` is NULL), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
 * KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
 * KVSTORE_MISUSE: the iterator or its store is closed.
 */
int kvstore_iterator_first(KVIterator *it);

/**
 * Moves a reverse iterator to the last entry of its range in key order, where its iteration
 * begins.
 *
 * Errors: KVSTORE_ERROR (`it` is NULL or a forward iterator), or a read code (KVSTORE_BUSY,
 * KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
 * KVSTORE_MISUSE).
 */
int kvstore_iterator_last(KVIterator *it);

/**
 * Moves the iterator to the next entry in its direction. An iterator at the end stays there.
 *
 * After a failed move the iterator is at the end. The next call of this function continues after
 * the last entry the iterator was at, also if a kvstore_iterator_seek or kvstore_iterator_first
 * failed. If it was at no entry, it stays at the end.
 *
 * On a reverse iterator the call is the same as kvstore_iterator_prev.
 *
 * Errors: KVSTORE_ERROR (`it` is NULL), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
 * KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
 */
int kvstore_iterator_next(KVIterator *it);

/**
 * Moves a reverse iterator to the previous entry in key order. An iterator at the end stays there.
 *
 * After a failed move, the position is as documented for kvstore_iterator_next.
 *
 * Errors: KVSTORE_ERROR (`it` is NULL or a forward iterator), or a read code (KVSTORE_BUSY,
 * KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
 * KVSTORE_MISUSE).
 */
int kvstore_iterator_prev(KVIterator *it);

/**
 * Moves a forward iterator to the first entry whose key is greater than or equal to the given key;
 * a reverse iterator to the first one whose key is less than or equal.
 *
 * @param pKey,nKey Key and its length: 1 to 65536 bytes. In a row iterator, a clustering part.
 *
 * The iterator is at the end if there is no such entry, or if the key is outside the range or
 * prefix of the iterator. It may be called any number of times.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL, the length is out of bounds, or the iterator is in
 * order of expiry; the iterator does not move then), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
 * KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE). After a failed
 * read kvstore_iterator_next continues after the entry the iterator was at before.
 */
int kvstore_iterator_seek(KVIterator *it, const void *pKey, int nKey);

/**
 * Returns up to `max` live entries, beginning with the current one, and moves past them.
 *
 * @param entries Array of at least `max` elements. Keys and values point into memory of the
 *   iterator, which is valid until the iterator moves, fetches again or is closed.
 * @param max Maximum number of entries, at least 0.
 * @param pn Receives the number of entries written. It may be less than `max` before the end; it
 *   is 0 only at the end, or if `max` is 0.
 *
 * `while (kvstore_iterator_fetch(it, entries, 256, &n) == KVSTORE_OK && n > 0)` iterates over all
 * entries.
 *
 * All entries are live when the call reads the clock, except in an iterator of
 * kvstore_expiring_iterator_create; for a store on a server see kvstore_iterator_create. If this
 * store handle has written since the current entry was read, the entry is read again. It is
 * returned in its current state, or skipped if it no longer exists; in order of expiry it is
 * returned at its new position, if that is ahead.
 *
 * The call works on every iterator. It returns what a loop of kvstore_iterator_key,
 * kvstore_iterator_value and kvstore_iterator_next returns, in a fraction of the time.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL, or `max` is negative), or a read code (KVSTORE_BUSY,
 * KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
 * KVSTORE_MISUSE). Nothing is written then. The iterator stays at its entry, or at the following
 * one if its entry no longer exists.
 */
int kvstore_iterator_fetch(KVIterator *it, KVEntry *entries, int max, int *pn);

/**
 * Returns 1 if the iterator is at its end, and 0 if it is at an entry. Returns 1 also if the
 * pointer is NULL, or if the iterator or its store is closed.
 */
int kvstore_iterator_eof(KVIterator *it);

/**
 * Returns the key of the current entry.
 *
 * @param ppKey Receives a pointer into memory of the iterator, valid until the iterator moves or
 *   is closed.
 * @param pnKey Receives the length of the key, in bytes.
 *
 * Errors: KVSTORE_ERROR (the iterator is at the end, or a pointer is NULL), KVSTORE_MISUSE (the
 * iterator or its store is closed).
 */
int kvstore_iterator_key(KVIterator *it, void **ppKey, int *pnKey);

/**
 * Returns the value of the current entry.
 *
 * @param ppValue Receives a pointer into memory of the iterator, valid until the iterator moves or
 *   is closed.
 * @param pnValue Receives the length of the value, in bytes.
 *
 * Errors: KVSTORE_ERROR (the iterator is at the end or reads keys only, or a pointer is NULL),
 * KVSTORE_MISUSE (the iterator or its store is closed).
 */
int kvstore_iterator_value(KVIterator *it, void **ppValue, int *pnValue);

/**
 * Closes an iterator. NULL is allowed, and so is an iterator whose store is already closed.
 *
 * Threads: a call of another thread that is using the iterator runs to its end. A callback cannot
 * close the iterator that is running it.
 */
void kvstore_iterator_close(KVIterator *it);

/**
 * Returns the expiry time of the current entry, in milliseconds since the Unix epoch.
 *
 * @param pExpireMs Receives the expiry time, in milliseconds since the Unix epoch; KVSTORE_NO_TTL
 *   if the key never expires.
 *
 * Errors: KVSTORE_ERROR (the iterator is at the end, or a pointer is NULL), KVSTORE_MISUSE (the
 * iterator or its store is closed).
 */
int kvstore_iterator_expire_ms(KVIterator *it, int64_t *pExpireMs);

/*
 * ---- Conditional writes ----
 */

/**
 * Writes a value with options into the default family, such as a condition on the existing key.
 * Check and write are atomic for every handle and process.
 *
 * @param pKey,nKey Key and its length: 1 to 65536 bytes.
 * @param pValue,nValue Value and its length, as for kvstore_put.
 * @param opt Options; NULL: write unconditionally, with the default TTL of the family.
 * @param pWritten Receives 1 if the value was written, 0 if the condition did not hold. May be
 *   NULL.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL, a length is out of bounds, a flag is unknown, flags
 * exclude each other, a reserved field is not 0, expireMs is invalid, or it is 0 with
 * KVSTORE_PUT_TTL), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM,
 * KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE,
 * KVSTORE_FULL).
 */
int kvstore_put_with(KVStore *kv,
                     const void *pKey,
                     int nKey,
                     const void *pValue,
                     int nValue,
                     const KVWriteOptions *opt,
                     int *pWritten);

/**
 * Writes a value with options into the family `cf`, such as a condition on the existing key.
 *
 * Parameters, behaviour and errors are those of kvstore_put_with.
 */
int kvstore_cf_put_with(KVColumnFamily *cf,
                        const void *pKey,
                        int nKey,
                        const void *pValue,
                        int nValue,
                        const KVWriteOptions *opt,
                        int *pWritten);

/**
 * Writes a value into the default family only if the key is live and its current value equals
 * `pExpected`, byte by byte. Check and write are atomic for every handle and process.
 *
 * @param pKey,nKey Key and its length: 1 to 65536 bytes.
 * @param pExpected,nExpected Expected value and its length.
 * @param pValue,nValue New value and its length, as for kvstore_put.
 * @param expire_ms New expiry time, in milliseconds since the Unix epoch; 0: by the default TTL
 *   of the family; KVSTORE_NO_TTL: never. It replaces the current one.
 * @param pSwapped Receives 1 if the value was written; 0 if the values differ or the key is not
 *   live. May be NULL.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL, a length is out of bounds, or `expire_ms` is
 * invalid), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY,
 * KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
 */
int kvstore_compare_and_swap(KVStore *kv,
                             const void *pKey,
                             int nKey,
                             const void *pExpected,
                             int nExpected,
                             const void *pValue,
                             int nValue,
                             int64_t expire_ms,
                             int *pSwapped);

/**
 * Writes a value into the family `cf` only if the key is live and its current value equals
 * `pExpected`.
 *
 * Parameters, behaviour and errors are those of kvstore_compare_and_swap.
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
 * Deletes a key of the default family only if it is live and its value equals `pExpected`, byte by
 * byte. Check and deletion are atomic for every handle and process.
 *
 * @param pKey,nKey Key and its length: 1 to 65536 bytes.
 * @param pExpected,nExpected Expected value and its length.
 * @param pDeleted Receives 1 if the key was deleted; 0 if the values differ or the key is not
 *   live. May be NULL.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL, or a length is out of bounds), or a write code
 * (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT,
 * KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
 */
int kvstore_compare_and_delete(KVStore *kv,
                               const void *pKey,
                               int nKey,
                               const void *pExpected,
                               int nExpected,
                               int *pDeleted);

/**
 * Deletes a key of the family `cf` only if it is live and its value equals `pExpected`.
 *
 * Parameters, behaviour and errors are those of kvstore_compare_and_delete.
 */
int kvstore_cf_compare_and_delete(KVColumnFamily *cf,
                                  const void *pKey,
                                  int nKey,
                                  const void *pExpected,
                                  int nExpected,
                                  int *pDeleted);

/**
 * Adds `delta` to the value of a key of the default family, which is a decimal integer in text
 * form, and stores the sum in the same form. Read and write are atomic for every handle and
 * process.
 *
 * @param pKey,nKey Key and its length: 1 to 65536 bytes.
 * @param delta Number to add; may be negative.
 * @param expire_ms Expiry time of a new key, in milliseconds since the Unix epoch; 0: by the
 *   default TTL of the family, or never if the family has none; KVSTORE_NO_TTL: never.
 * @param pValue Receives the sum. May be NULL.
 *
 * A live key keeps its expiry time. A key that does not exist or has expired counts as 0.
 * The value has at most 20 bytes; maxValueSize does not apply to it.
 *
 * Errors: KVSTORE_ERROR (the value is not a 64-bit integer, the sum overflows, `expire_ms` is
 * invalid, the key is NULL, or its length is out of bounds), or a write code (KVSTORE_BUSY,
 * KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT,
 * KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL). Nothing is changed then.
 */
int kvstore_increment(KVStore *kv,
                      const void *pKey,
                      int nKey,
                      int64_t delta,
                      int64_t expire_ms,
                      int64_t *pValue);

/**
 * Adds `delta` to the value of a key of the family `cf`, which is a decimal integer in text form.
 *
 * Parameters, behaviour and errors are those of kvstore_increment.
 */
int kvstore_cf_increment(KVColumnFamily *cf,
                         const void *pKey,
                         int nKey,
                         int64_t delta,
                         int64_t expire_ms,
                         int64_t *pValue);

/*
 * ---- Expiry times and default TTLs ----
 */

/**
 * Changes the expiry time of a live key of the default family. The value stays unchanged.
 *
 * @param pKey,nKey Key and its length: 1 to 65536 bytes.
 * @param expire_ms New expiry time, in milliseconds since the Unix epoch; 0 or KVSTORE_NO_TTL:
 *   never. A time in the past makes the key expire at once.
 * @param flags 0, or one KVSTORE_EXPIRE_* condition. A key without an expiry time counts as
 *   expiring later than any time.
 * @param pChanged Receives 1 if the expiry time was set, 0 if the condition did not hold. May be
 *   NULL.
 *
 * Errors: KVSTORE_NOTFOUND (the key does not exist or has expired), KVSTORE_ERROR (`expire_ms` is
 * invalid, `flags` is unknown, the key is NULL, or its length is out of bounds), or a write code
 * (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT,
 * KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
 */
int kvstore_expire(KVStore *kv,
                   const void *pKey,
                   int nKey,
                   int64_t expire_ms,
                   int flags,
                   int *pChanged);

/**
 * Changes the expiry time of a live key of the family `cf`.
 *
 * Parameters, behaviour and errors are those of kvstore_expire.
 */
int kvstore_cf_expire(KVColumnFamily *cf,
                      const void *pKey,
                      int nKey,
                      int64_t expire_ms,
                      int flags,
                      int *pChanged);

/**
 * Removes the expiry time of a live key of the default family, so that the key never expires.
 *
 * @param pKey,nKey Key and its length: 1 to 65536 bytes.
 * @param pChanged Receives 1 if the key had an expiry time, otherwise 0. May be NULL.
 *
 * Errors: KVSTORE_NOTFOUND (the key does not exist or has expired), KVSTORE_ERROR (the key is
 * NULL, or its length is out of bounds), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED,
 * KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
 * KVSTORE_MISUSE, KVSTORE_FULL).
 */
int kvstore_persist(KVStore *kv, const void *pKey, int nKey, int *pChanged);

/**
 * Removes the expiry time of a live key of the family `cf`.
 *
 * Parameters, behaviour and errors are those of kvstore_persist.
 */
int kvstore_cf_persist(KVColumnFamily *cf, const void *pKey, int nKey, int *pChanged);

/**
 * Returns the expiry time of a live key of the default family, in milliseconds since the Unix
 * epoch.
 *
 * @param pKey,nKey Key and its length: 1 to 65536 bytes.
 * @param pExpireMs Receives the expiry time, in milliseconds since the Unix epoch; KVSTORE_NO_TTL
 *   if the key never expires.
 *
 * Errors: KVSTORE_NOTFOUND (the key does not exist or has expired), KVSTORE_ERROR (a pointer is
 * NULL, or the length is out of bounds), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
 * KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
 */
int kvstore_expire_time(KVStore *kv, const void *pKey, int nKey, int64_t *pExpireMs);

/**
 * Returns the expiry time of a live key of the family `cf`, in milliseconds since the Unix epoch.
 *
 * Parameters, behaviour and errors are those of kvstore_expire_time.
 */
int kvstore_cf_expire_time(KVColumnFamily *cf, const void *pKey, int nKey, int64_t *pExpireMs);

/**
 * Reads the value of a key of the default family and changes its expiry time, atomically.
 *
 * @param pKey,nKey Key and its length: 1 to 65536 bytes.
 * @param expire_ms New expiry time, in milliseconds since the Unix epoch; 0 or KVSTORE_NO_TTL:
 *   never. With a time in the past this is the last read of the key.
 * @param ppValue Receives a copy of the value, as for kvstore_get. Free it with kvstore_free.
 * @param pnValue Receives the length of the value.
 *
 * Errors: KVSTORE_NOTFOUND (the key does not exist or has expired), KVSTORE_ERROR (a pointer is
 * NULL, the length is out of bounds, or `expire_ms` is invalid), or a write code (KVSTORE_BUSY,
 * KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT,
 * KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
 */
int kvstore_get_and_expire(KVStore *kv,
                           const void *pKey,
                           int nKey,
                           int64_t expire_ms,
                           void **ppValue,
                           int *pnValue);

/**
 * Reads the value of a key of the family `cf` and changes its expiry time, atomically.
 *
 * Parameters, behaviour and errors are those of kvstore_get_and_expire.
 */
int kvstore_cf_get_and_expire(KVColumnFamily *cf,
                              const void *pKey,
                              int nKey,
                              int64_t expire_ms,
                              void **ppValue,
                              int *pnValue);

/**
 * Sets the default TTL of the default family: the TTL of keys that are written without an expiry
 * time, by kvstore_put, or with 0 as expiry time by another function that writes values. Other
 * families keep theirs.
 *
 * @param ttl_ms TTL in milliseconds, up to 20 years; 0: none.
 *
 * The setting is stored in the file and applies to every handle and process, including those
 * already open. Existing keys keep their expiry times.
 *
 * Errors: KVSTORE_ERROR (`kv` is NULL, or `ttl_ms` is negative or more than 20 years), or a write
 * code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR,
 * KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
 */
int kvstore_set_default_ttl(KVStore *kv, int64_t ttl_ms);

/**
 * Sets the default TTL of the family `cf`.
 *
 * Parameters, behaviour and errors are those of kvstore_set_default_ttl.
 */
int kvstore_cf_set_default_ttl(KVColumnFamily *cf, int64_t ttl_ms);

/**
 * Returns the default TTL of the default family, in milliseconds; 0 if it has none.
 *
 * @param pTtlMs Receives the TTL in milliseconds; 0: none.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
 * KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
 */
int kvstore_get_default_ttl(KVStore *kv, int64_t *pTtlMs);

/**
 * Returns the default TTL of the family `cf`, in milliseconds; 0 if it has none.
 *
 * Parameters, behaviour and errors are those of kvstore_get_default_ttl.
 */
int kvstore_cf_get_default_ttl(KVColumnFamily *cf, int64_t *pTtlMs);

/**
 * Returns the earliest expiry time of all families, in milliseconds since the Unix epoch. It is in
 * the past if an expired key has not been removed yet.
 *
 * @param pMs Receives the time, in milliseconds since the Unix epoch.
 *
 * A timer that purges can be set to this time.
 *
 * Errors: KVSTORE_NOTFOUND (no key has an expiry time), KVSTORE_ERROR (a pointer is NULL), or a
 * read code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT,
 * KVSTORE_PROTOCOL, KVSTORE_MISUSE).
 */
int kvstore_next_expiry(KVStore *kv, int64_t *pMs);

/**
 * Returns the earliest expiry time of the family `cf`, in milliseconds since the Unix epoch.
 *
 * Parameters, behaviour and errors are those of kvstore_next_expiry.
 */
int kvstore_cf_next_expiry(KVColumnFamily *cf, int64_t *pMs);

/**
 * Counts the live keys of the default family, with the help of its indexes.
 *
 * @param pnCount Receives the number of live keys.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
 * KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
 */
int kvstore_count_live(KVStore *kv, int64_t *pnCount);

/**
 * Counts the live keys of the family `cf`, with the help of its indexes.
 *
 * Parameters, behaviour and errors are those of kvstore_count_live.
 */
int kvstore_cf_count_live(KVColumnFamily *cf, int64_t *pnCount);

/*
 * ---- Purging and the cleaner ----
 */

/**
 * Removes expired keys of all families, earliest expiry time first, until `max_keys` keys are
 * removed or `max_ms` milliseconds have passed.
 *
 * @param max_keys Maximum number of keys to remove; 0: no limit.
 * @param max_ms Time limit in milliseconds; 0: no limit.
 * @param pDeleted Receives the number of keys removed, counted as by kvstore_purge_expired. May be
 *   NULL.
 * @param pMore Receives 1 if expired keys are left, otherwise 0. May be NULL.
 *
 * Transactions and memory: as kvstore_purge_expired. After a failure, keys that earlier
 * transactions removed stay removed.
 *
 * If nothing has expired, no family is examined, however many there are, unless another connection
 * has committed since this handle examined them last. The time limit may end that examination:
 * then `*pMore` is 1, and the next call continues with the remaining families. With a time limit,
 * a checkpoint that becomes due is left to the next write. A wait for a lock of another handle is
 * limited by `busyTimeout`, not by `max_ms`.
 *
 * Errors: KVSTORE_ERROR (`kv` is NULL, or a limit is negative), or a write code (KVSTORE_BUSY,
 * KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT,
 * KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
 */
int kvstore_purge_step(KVStore *kv, int64_t max_keys, int64_t max_ms, int64_t *pDeleted, int *pMore);

/**
 * Removes the expired keys of the default family whose expiry time is before `cutoff_ms`. Live
 * keys stay, also if the cutoff is in the future.
 *
 * @param cutoff_ms Cutoff, in milliseconds since the Unix epoch.
 * @param pnDeleted Receives the number of keys removed. May be NULL.
 *
 * Transactions and failures: as kvstore_purge_expired.
 *
 * Errors: KVSTORE_ERROR (`kv` is NULL), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED,
 * KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
 * KVSTORE_MISUSE, KVSTORE_FULL).
 */
int kvstore_purge_before(KVStore *kv, int64_t cutoff_ms, int64_t *pnDeleted);

/**
 * Removes the expired keys of the family `cf` whose expiry time is before `cutoff_ms`.
 *
 * Parameters, behaviour and errors are those of kvstore_purge_before.
 */
int kvstore_cf_purge_before(KVColumnFamily *cf, int64_t cutoff_ms, int64_t *pnDeleted);

/**
 * Starts the cleaner: a background thread that removes expired keys of all families at intervals.
 *
 * @param interval_ms Interval in milliseconds, at least 1.
 * @param max_keys Maximum number of keys to remove each time; 0: no limit.
 *
 * A call on this handle waits for the cleaner for some milliseconds at most. While a transaction is
 * open on this handle, the cleaner does nothing.
 *
 * The cleaner has a connection of its own. kvstore_close stops it.
 *
 * Errors: KVSTORE_ERROR (the cleaner is running, the interval is less than 1, `max_keys` is
 * negative, `kv` is NULL, or the store is in memory), KVSTORE_BUSY (the store is exclusive),
 * KVSTORE_READONLY, KVSTORE_CANTOPEN, KVSTORE_IOERR (also if the store is no longer at the path it
 * was opened by), KVSTORE_NOMEM, KVSTORE_MISUSE.
 */
int kvstore_cleaner_start(KVStore *kv, int64_t interval_ms, int64_t max_keys);

/**
 * Stops the cleaner, and returns when its thread has ended. If no cleaner is running, the call
 * does nothing.
 *
 * Errors: KVSTORE_ERROR (`kv` is NULL), KVSTORE_MISUSE.
 */
int kvstore_cleaner_stop(KVStore *kv);

/*
 * ---- Write times and sweeps ----
 */

/**
 * Turns write tracking of the default family on or off, for every handle and process. With write
 * tracking, the store records when each value was written. Other families are not affected.
 *
 * @param on Non-zero: on. Existing keys count as written now. 0: off. All write times are
 *   discarded.
 *
 * Both directions visit every row, in one transaction.
 *
 * The setting is stored in the file.
 *
 * Errors: KVSTORE_ERROR (`kv` is NULL), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED,
 * KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
 * KVSTORE_MISUSE, KVSTORE_FULL).
 */
int kvstore_set_write_tracking(KVStore *kv, int on);

/**
 * Turns write tracking of the family `cf` on or off, for every handle and process.
 *
 * Parameters, behaviour and errors are those of kvstore_set_write_tracking.
 */
int kvstore_cf_set_write_tracking(KVColumnFamily *cf, int on);

/**
 * Tests whether write tracking of the default family is on.
 *
 * @param pOn Receives 1 or 0.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
 * KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
 */
int kvstore_get_write_tracking(KVStore *kv, int *pOn);

/**
 * Tests whether write tracking of the family `cf` is on.
 *
 * Parameters, behaviour and errors are those of kvstore_get_write_tracking.
 */
int kvstore_cf_get_write_tracking(KVColumnFamily *cf, int *pOn);

/**
 * Returns the time at which the value of a live key of the default family was written, in
 * milliseconds since the Unix epoch. A change of the expiry time is not a write.
 *
 * @param pKey,nKey Key and its length: 1 to 65536 bytes.
 * @param pMs Receives the time, in milliseconds since the Unix epoch.
 *
 * Errors: KVSTORE_NOTFOUND (the key does not exist or has expired), KVSTORE_ERROR (the family does
 * not record write times, a pointer is NULL, or the length is out of bounds), or a read code
 * (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
 * KVSTORE_MISUSE).
 */
int kvstore_write_time(KVStore *kv, const void *pKey, int nKey, int64_t *pMs);

/**
 * Returns the time at which the value of a live key of the family `cf` was written, in
 * milliseconds since the Unix epoch.
 *
 * Parameters, behaviour and errors are those of kvstore_write_time.
 */
int kvstore_cf_write_time(KVColumnFamily *cf, const void *pKey, int nKey, int64_t *pMs);

/**
 * Removes every key of the default family, live or expired, whose value was written more than
 * `max_age_ms` milliseconds ago. Other families are not affected.
 *
 * @param max_age_ms Maximum age in milliseconds, at least 0.
 * @param pnDeleted Receives the number of live keys among the removed ones. May be NULL.
 *
 * Transactions and memory: as kvstore_purge_expired. After a failure, keys that earlier
 * transactions removed stay removed.
 *
 * Errors: KVSTORE_ERROR (the family does not record write times, `max_age_ms` is negative, or `kv`
 * is NULL), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY,
 * KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
 */
int kvstore_sweep(KVStore *kv, int64_t max_age_ms, int64_t *pnDeleted);

/**
 * Removes every key of the family `cf`, live or expired, whose value was written more than
 * `max_age_ms` milliseconds ago.
 *
 * Parameters, behaviour and errors are those of kvstore_sweep.
 */
int kvstore_cf_sweep(KVColumnFamily *cf, int64_t max_age_ms, int64_t *pnDeleted);

/*
 * ---- Ranges, row keys and the order of expiry ----
 */

/**
 * Creates an iterator over the live entries of the default family whose keys are at or after a
 * lower bound and before an upper bound. The new iterator is at the first entry, or at the end if
 * there is none.
 *
 * @param pLower,nLower Lower bound, included; NULL with length 0: from the first key.
 * @param pUpper,nUpper Upper bound, excluded; NULL with length 0: to the last key.
 * @param flags 0, or a bitwise OR of KVSTORE_RANGE_* flags: REVERSE, CLOSED (include the upper
 *   bound), OPEN (exclude the lower bound), KEYS_ONLY.
 * @param ppIter Receives the iterator, or NULL after a failure. Close it with
 *   kvstore_iterator_close.
 *
 * A range whose lower bound is above its upper bound is empty; one with equal bounds has only that
 * key, and only with KVSTORE_RANGE_CLOSED alone. A seek outside the range leaves
 * the iterator at the end. Visibility of writes: as for kvstore_iterator_create.
 *
 * Errors: KVSTORE_ERROR (`kv` or `ppIter` is NULL, a length is out of bounds, a bound is NULL with
 * a length, or a flag is unknown), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM,
 * KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
 */
int kvstore_range_iterator_create(KVStore *kv,
                                  const void *pLower,
                                  int nLower,
                                  const void *pUpper,
                                  int nUpper,
                                  int flags,
                                  KVIterator **ppIter);

/**
 * Creates an iterator over the live entries of the family `cf` whose keys are at or after a lower
 * bound and before an upper bound.
 *
 * Parameters, behaviour and errors are those of kvstore_range_iterator_create.
 */
int kvstore_cf_range_iterator_create(KVColumnFamily *cf,
                                     const void *pLower,
                                     int nLower,
                                     const void *pUpper,
                                     int nUpper,
                                     int flags,
                                     KVIterator **ppIter);

/**
 * Creates an iterator over the rows of one partition of the default family, whose keys were built
 * by kvstore_row_key. The new iterator is at the first row, or at the end if there is none.
 *
 * @param pPKey,nPKey Partition key.
 * @param pStart,nStart First clustering part, included; NULL with length 0: from the first row.
 * @param pFinish,nFinish Last clustering part, excluded; NULL with length 0: to the last row.
 * @param flags As for kvstore_range_iterator_create.
 * @param ppIter Receives the iterator, or NULL after a failure. Close it with
 *   kvstore_iterator_close.
 *
 * The keys that the iterator returns, and those it seeks, are clustering parts.
 *
 * Errors: KVSTORE_ERROR (`kv` or `ppIter` is NULL, a length is out of bounds, a part is NULL with
 * a length, the row key would exceed 65536 bytes, or a flag is unknown), or a read code
 * (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
 * KVSTORE_MISUSE).
 */
int kvstore_row_iterator_create(KVStore *kv,
                                const void *pPKey,
                                int nPKey,
                                const void *pStart,
                                int nStart,
                                const void *pFinish,
                                int nFinish,
                                int flags,
                                KVIterator **ppIter);

/**
 * Creates an iterator over the rows of one partition of the family `cf`, whose keys were built by
 * kvstore_row_key.
 *
 * Parameters, behaviour and errors are those of kvstore_row_iterator_create.
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
 * Creates an iterator over the keys of the default family whose expiry time is from `from_ms` to
 * before `to_ms`, in order of expiry time. Expired rows that have not been removed yet are
 * included.
 *
 * @param from_ms Lower bound, included, in milliseconds since the Unix epoch.
 * @param to_ms Upper bound, excluded, in milliseconds since the Unix epoch. INT64_MAX means no
 *   upper bound: keys that expire at INT64_MAX are included.
 * @param ppIter Receives the iterator, or NULL after a failure. Close it with
 *   kvstore_iterator_close.
 *
 * The new iterator is at its first entry, or at the end if there is none. It cannot seek.
 * kvstore_iterator_expire_ms returns the expiry times.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
 * KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
 */
int kvstore_expiring_iterator_create(KVStore *kv, int64_t from_ms, int64_t to_ms, KVIterator **ppIter);

/**
 * Creates an iterator over the keys of the family `cf` whose expiry time is from `from_ms` to
 * before `to_ms`, in order of expiry time.
 *
 * Parameters, behaviour and errors are those of kvstore_expiring_iterator_create.
 */
int kvstore_cf_expiring_iterator_create(KVColumnFamily *cf,
                                        int64_t from_ms,
                                        int64_t to_ms,
                                        KVIterator **ppIter);

/**
 * Builds an ordered key from a partition key and clustering columns. In key order, the rows of one
 * partition are contiguous and sorted by the bytes of their clustering columns.
 *
 * @param pPKey,nPKey Partition key and its length; may be empty.
 * @param pCCols,nCCols Clustering columns and their length; may be empty.
 * @param buf Receives the key. NULL with a `cap` of 0 only requests the length.
 * @param cap Size of `buf`, in bytes. 2 * nPKey + 2 + nCCols is always sufficient.
 * @param pn Receives the length of the key.
 *
 * The key can be used with every function.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL, a length is out of bounds, `cap` is too small, or the
 * key would exceed 65536 bytes). kvstore_errmsg(NULL) returns the reason. Nothing is written then.
 */
int kvstore_row_key(const void *pPKey,
                    int nPKey,
                    const void *pCCols,
                    int nCCols,
                    void *buf,
                    int cap,
                    int *pn);

/*
 * ---- Several keys at once, and batches ----
 */

/**
 * Reads the value of a key of the default family into a buffer of the caller, without allocating
 * memory for it.
 *
 * @param pKey,nKey Key and its length: 1 to 65536 bytes.
 * @param buf Receives the first `cap` bytes of the value. May be NULL if `cap` is 0. Its content
 *   is undefined after a failure.
 * @param cap Size of `buf`, in bytes, at least 0.
 * @param pn Receives the full length of the value, which may exceed `cap`; 0 if the key is not
 *   found.
 *
 * Errors: KVSTORE_NOTFOUND (the key does not exist or has expired), KVSTORE_ERROR (a pointer is
 * NULL, a length is out of bounds, or `cap` is negative), or a read code (KVSTORE_BUSY,
 * KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
 * KVSTORE_MISUSE).
 */
int kvstore_get_into(KVStore *kv, const void *pKey, int nKey, void *buf, int cap, int *pn);

/**
 * Reads the value of a key of the family `cf` into a buffer of the caller.
 *
 * Parameters, behaviour and errors are those of kvstore_get_into.
 */
int kvstore_cf_get_into(KVColumnFamily *cf, const void *pKey, int nKey, void *buf, int cap, int *pn);

/**
 * Reads the values of several keys of the default family, all from one snapshot.
 *
 * @param count Number of keys; 0 is allowed.
 * @param keys Array of `count` keys.
 * @param lens Array of their `count` lengths, each 1 to 65536.
 * @param values Array of `count` elements. Each receives a copy of the value, to be freed with
 *   kvstore_free, or NULL if the key does not exist or has expired.
 * @param valueLens Array of `count` elements. Each receives the length of the value, or -1.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL, `count` is negative, or a length is out of bounds), or
 * a read code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT,
 * KVSTORE_PROTOCOL, KVSTORE_MISUSE). All results are NULL and -1 then.
 */
int kvstore_get_many(KVStore *kv,
                     int count,
                     const void *const *keys,
                     const int *lens,
                     void **values,
                     int *valueLens);

/**
 * Reads the values of several keys of the family `cf`, all from one snapshot.
 *
 * Parameters, behaviour and errors are those of kvstore_get_many.
 */
int kvstore_cf_get_many(KVColumnFamily *cf,
                        int count,
                        const void *const *keys,
                        const int *lens,
                        void **values,
                        int *valueLens);

/**
 * Deletes several keys of the default family in one transaction. For a store on a server this
 * takes one round trip.
 *
 * @param count Number of keys; 0 is allowed.
 * @param keys Array of `count` keys.
 * @param lens Array of their `count` lengths, each 1 to 65536.
 * @param pnDeleted Receives the number of live keys deleted; a repeated key counts once. May be
 *   NULL.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL, `count` is negative, or a length is out of bounds), or
 * a write code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR,
 * KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL). Nothing is deleted then.
 */
int kvstore_delete_many(KVStore *kv,
                        int count,
                        const void *const *keys,
                        const int *lens,
                        int64_t *pnDeleted);

/**
 * Deletes several keys of the family `cf` in one transaction.
 *
 * Parameters, behaviour and errors are those of kvstore_delete_many.
 */
int kvstore_cf_delete_many(KVColumnFamily *cf,
                           int count,
                           const void *const *keys,
                           const int *lens,
                           int64_t *pnDeleted);

/**
 * Deletes all keys of the default family that are at or after a lower bound and before an upper
 * bound, in one transaction.
 *
 * @param pLower,nLower Lower bound, included; NULL with length 0: from the first key.
 * @param pUpper,nUpper Upper bound, excluded; NULL with length 0: to the last key.
 * @param pnDeleted Receives the number of live keys deleted. May be NULL.
 *
 * Errors: KVSTORE_ERROR (`kv` is NULL, a length is out of bounds, or a bound is NULL with a
 * length), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY,
 * KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
 */
int kvstore_delete_range(KVStore *kv,
                         const void *pLower,
                         int nLower,
                         const void *pUpper,
                         int nUpper,
                         int64_t *pnDeleted);

/**
 * Deletes all keys of the family `cf` that are at or after a lower bound and before an upper
 * bound, in one transaction.
 *
 * Parameters, behaviour and errors are those of kvstore_delete_range.
 */
int kvstore_cf_delete_range(KVColumnFamily *cf,
                            const void *pLower,
                            int nLower,
                            const void *pUpper,
                            int nUpper,
                            int64_t *pnDeleted);

/**
 * Creates an empty batch for a store.
 *
 * @param ppBatch Receives the batch, or NULL after a failure. Free it with kvstore_batch_free.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL), KVSTORE_MISUSE.
 */
int kvstore_batch_new(KVStore *kv, KVBatch **ppBatch);

/**
 * Adds a write of a value to a batch. Key and value are copied.
 *
 * @param b Batch.
 * @param cf Family, opened from the store handle of the batch.
 * @param pKey,nKey Key and its length: 1 to 65536 bytes.
 * @param pValue,nValue Value and its length, as for kvstore_put.
 * @param expire_ms Expiry time, in milliseconds since the Unix epoch; 0: by the default TTL of
 *   the family, counted from the commit; KVSTORE_NO_TTL: the key never expires.
 *
 * The handle of the family may be closed before the commit.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL, a length is out of bounds, `expire_ms` is invalid, or
 * the family belongs to another store handle), KVSTORE_MISUSE (the batch, the family or the store
 * is closed), KVSTORE_NOMEM. Nothing is added then.
 */
int kvstore_batch_put(KVBatch *b,
                      KVColumnFamily *cf,
                      const void *pKey,
                      int nKey,
                      const void *pValue,
                      int nValue,
                      int64_t expire_ms);

/**
 * Adds the deletion of a key to a batch. The key need not exist when the batch is committed.
 *
 * @param b Batch.
 * @param cf Family, opened from the store handle of the batch.
 * @param pKey,nKey Key and its length: 1 to 65536 bytes.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL, the length is out of bounds, or the family belongs to
 * another store handle), KVSTORE_MISUSE (the batch, the family or the store is closed),
 * KVSTORE_NOMEM. Nothing is added then.
 */
int kvstore_batch_delete(KVBatch *b, KVColumnFamily *cf, const void *pKey, int nKey);

/**
 * Returns the number of writes and deletions in a batch.
 *
 * @param pnCount Receives the number.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL), KVSTORE_MISUSE.
 */
int kvstore_batch_count(KVBatch *b, int64_t *pnCount);

/**
 * Removes all writes and deletions from a batch.
 *
 * Errors: KVSTORE_ERROR (`b` is NULL), KVSTORE_MISUSE.
 */
int kvstore_batch_clear(KVBatch *b);

/**
 * Commits all writes and deletions of a batch atomically: in one transaction, or as part of the
 * open one.
 *
 * After success the batch is empty and can be used again. After a failure it keeps its content.
 *
 * Errors: KVSTORE_ERROR (`b` is NULL, there is no family of that name any more, or the batch for a
 * store on a server exceeds 1008 MiB), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM,
 * KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE,
 * KVSTORE_FULL).
 */
int kvstore_batch_commit(KVBatch *b);

/**
 * Frees a batch and discards its content. NULL is allowed, and so is a batch whose store is
 * already closed.
 *
 * Threads: a call of another thread that is using the batch runs to its end.
 */
void kvstore_batch_free(KVBatch *b);

/*
 * ---- Transactions ----
 */

/**
 * Begins a transaction on a store handle. Every call on the handle and its families, from any
 * thread, is part of the transaction until kvstore_commit or kvstore_rollback. Transactions cannot
 * be nested.
 *
 * @param write 0: read transaction, a stable snapshot that cannot write. Otherwise: write
 *   transaction, whose reads see its own writes.
 *
 * A write that fails with KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_FULL or KVSTORE_CORRUPT fails the
 * transaction, except KVSTORE_FULL for the size limit. A failed transaction is rolled back at
 * once, and only kvstore_rollback ends it. Until then, its writes and kvstore_commit return that
 * code, and its reads see the store without it; on a server its reads return the code too. A read
 * that fails with one of these codes fails the transaction if SQLite ended it; in a read
 * transaction later reads then return the code.
 *
 * Errors: KVSTORE_ERROR (`kv` is NULL, or a transaction is open, which continues), KVSTORE_BUSY
 * (another handle is writing), KVSTORE_READONLY, KVSTORE_LOCKED, KVSTORE_IOERR, KVSTORE_NOMEM,
 * KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE.
 */
int kvstore_begin(KVStore *kv, int write);

/**
 * Commits the open transaction.
 *
 * Errors:
 * - KVSTORE_ERROR: no transaction is open, or `kv` is NULL.
 * - KVSTORE_BUSY: other handles are reading (DELETE journal mode only). The transaction is still
 *   open; call kvstore_commit again.
 * - KVSTORE_FULL, KVSTORE_IOERR, KVSTORE_NOMEM, KVSTORE_CORRUPT, KVSTORE_LOCKED, KVSTORE_READONLY,
 *   KVSTORE_PROTOCOL: nothing was committed, and only kvstore_rollback is possible. The code of an
 *   earlier call that failed the transaction is returned too. Exceptions in DELETE journal mode:
 *   docs/explanation/durability.md, "Limits".
 * - KVSTORE_MISUSE.
 */
int kvstore_commit(KVStore *kv);

/**
 * Rolls back the open transaction. None of its writes takes effect.
 *
 * Errors: KVSTORE_ERROR (no transaction is open, or `kv` is NULL), KVSTORE_IOERR, KVSTORE_MISUSE.
 */
int kvstore_rollback(KVStore *kv);

/*
 * ---- Statistics, checks, repair, checkpoints, backup and copy ----
 */

/**
 * Returns the counters of a store handle, such as the numbers of gets and puts.
 *
 * @param pStats Receives the counters.
 *
 * Errors: KVSTORE_ERROR (a pointer is NULL), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
 * KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
 */
int kvstore_stats(KVStore *kv, KVStoreStats *pStats);

/**
 * Sets the counters of a store handle to zero. Fields of KVStoreStats marked "current" are not
 * affected.
 *
 * Errors: KVSTORE_ERROR (`kv` is NULL), KVSTORE_MISUSE.
 */
int kvstore_stats_reset(KVStore *kv);

/**
 * Checks the whole store for damage and inconsistencies, in one snapshot. It reads every page of
 * the file.
 *
 * @param pzMessage Receives a description of the first inconsistency after KVSTORE_CORRUPT, to be
 *   freed with kvstore_free; otherwise NULL. May be NULL.
 *
 * It runs the integrity check of SQLite, then checks pages not in use, foreign objects, the
 * schema, the catalogue of families, and the consistency of the tables of every family.
 *
 * Errors: KVSTORE_CORRUPT (an inconsistency was found), KVSTORE_ERROR (`kv` is NULL), or a read
 * code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT,
 * KVSTORE_PROTOCOL, KVSTORE_MISUSE).
 */
int kvstore_integrity_check(KVStore *kv, char **pzMessage);

/**
 * Rebuilds everything that can be derived from the data rows, in one transaction. Afterwards
 * kvstore_integrity_check succeeds.
 *
 * @param pFixed Receives the number of rows, index entries and tables that were added, removed or
 *   changed. May be NULL.
 *
 * Effect on the data:
 * - Every readable row is kept with its value and expiry time. An unreadable row is restored if
 *   the file still holds what it contained.
 * - A row whose value or expiry time is lost is removed, and so is a row whose key is longer than
 *   65536 bytes. No value is invented.
 * - Families missing from the catalogue are entered again, without their default TTL. Invalid
 *   settings get their defaults.
 * - Tables that do not match the schema and contain data are renamed; their new names begin with
 *   "lost:".
 *
 * kvstore_open refuses a file without a catalogue, or without a default family, with
 * KVSTORE_CORRUPT. The command "kvstore repair" opens such a file and lists what it cannot keep.
 *
 * The call reads everything, in about twice the time of kvstore_integrity_check, and writes
 * nothing if the store is undamaged. Other connections can read meanwhile, but not write.
 *
 * Rebuilt are the indexes by key, expiry time and write time, large values, views and the
 * catalogue of families.
 *
 * Errors: KVSTORE_CORRUPT (the integrity check of SQLite fails, or the damage is of a kind that a
 * repair does not cover), KVSTORE_BUSY (a transaction is open on this handle, or another handle is
 * writing), KVSTORE_ERROR (`kv` is NULL), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED,
 * KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
 * KVSTORE_MISUSE, KVSTORE_FULL). Nothing is changed then.
 */
int kvstore_repair(KVStore *kv, int64_t *pFixed);

/**
 * Syncs the files of the store, so that all earlier commits survive a power failure. An open
 * transaction is neither committed nor ended.
 *
 * The directory is synced too, also if the files were renamed.
 *
 * Errors: KVSTORE_IOERR (also if the directory cannot be read), KVSTORE_ERROR (`kv` is NULL),
 * KVSTORE_MISUSE.
 */
int kvstore_sync(KVStore *kv);

/**
 * Returns free pages of the file to the file system. In WAL mode the file shrinks at the next
 * checkpoint.
 *
 * @param nPage Maximum number of pages; 0: all.
 *
 * Errors: KVSTORE_ERROR (`nPage` is negative, or `kv` is NULL), or a write code (KVSTORE_BUSY,
 * KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT,
 * KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
 */
int kvstore_incremental_vacuum(KVStore *kv, int nPage);

/**
 * Copies the frames of the WAL into the database file. In DELETE journal mode it does nothing.
 *
 * @param mode KVSTORE_CHECKPOINT_PASSIVE, KVSTORE_CHECKPOINT_FULL, KVSTORE_CHECKPOINT_RESTART or
 *   KVSTORE_CHECKPOINT_TRUNCATE. After TRUNCATE the WAL has 0 bytes.
 * @param pnLog Receives the number of frames in the WAL, 0 if not in WAL mode. May be NULL.
 * @param pnCkpt Receives the number of frames copied into the file, 0 if not in WAL mode. May be
 *   NULL.
 *
 * Errors: KVSTORE_BUSY (a transaction is open on this handle; or, except for PASSIVE, other
 * connections block it), KVSTORE_ERROR (`mode` is unknown, or `kv` is NULL), KVSTORE_IOERR,
 * KVSTORE_FULL, KVSTORE_READONLY, KVSTORE_NOMEM, KVSTORE_CORRUPT, KVSTORE_MISUSE.
 */
int kvstore_checkpoint(KVStore *kv, int mode, int *pnLog, int *pnCkpt);

/**
 * Copies all committed data into a new file, as a consistent snapshot with all expiry times. Other
 * connections can read and write meanwhile.
 *
 * @param path Path of the copy. It must not exist; the file appears when the copy is complete and
 *   synced.
 * @param progress Called at intervals with `context`, the number of remaining pages and the total
 *   number of pages. A result other than 0 cancels the backup. May be NULL.
 * @param context Passed to `progress`.
 *
 * After a failure no file is left.
 *
 * Errors: KVSTORE_ERROR (`kv` or `path` is NULL; the path exists or is not a file name, such as
 * "", ":memory:", "file:..." or a directory; the path has a -wal, -shm or -journal file of another
 * store, or is the name of such a file; or `progress` cancelled the backup), KVSTORE_BUSY (a
 * transaction is open on this handle of a store in memory or an exclusive store; or a lock of
 * another handle), KVSTORE_CANTOPEN, KVSTORE_FULL, KVSTORE_IOERR (also if the store is no longer
 * at the path it was opened by), KVSTORE_NOMEM, KVSTORE_CORRUPT, KVSTORE_MISUSE (also if the store
 * is closed meanwhile).
 */
int kvstore_backup(KVStore *kv, const char *path, int (*progress)(void *context,
                                                                  int remaining,
                                                                  int total), void *context);

/**
 * Copies all live keys of all families into another store. The copy is a consistent snapshot of
 * `from`, written in one transaction of `to`.
 *
 * @param from Source. Other connections can read and write it meanwhile.
 * @param to Destination. Other writes to it are blocked meanwhile. Its WAL grows by the size of
 *   the copy.
 * @param progress Called at intervals with `context`, the number of keys copied and their total,
 *   which is not reached if keys expire meanwhile. A result other than 0 cancels the copy. May be
 *   NULL.
 * @param context Passed to `progress`.
 *
 * Families that `to` lacks are created. An existing family of `to` must have no live key; it takes
 * over the default TTL, and records write times if the family of `from` does. The size limit of
 * `from` is copied if `to` has no limit and no key. If that limit would evict copied keys, as can
 * happen with another page size, the copy fails with KVSTORE_FULL.
 *
 * `progress` may use both stores; writes to `to` find it busy. It must not use a store in memory
 * or an exclusive store, because the transaction of the copy is open on that handle.
 *
 * After a failure, or if the process dies, nothing was copied, and the copy can be run again.
 * kvstore_errmsg(from) returns the text.
 *
 * Expiry times, write times and the settings of the families are copied too.
 *
 * Errors: KVSTORE_ERROR (a handle is NULL, a family of `to` has live keys, both handles are of the
 * same store, a value is longer than `to` allows, or `progress` cancelled the copy), KVSTORE_BUSY
 * (another handle is writing to `to`; a transaction is open on `to`, or on `from` if that is in
 * memory or exclusive), KVSTORE_READONLY (`to`), KVSTORE_FULL (also for the size limit of `to`),
 * KVSTORE_LOCKED, KVSTORE_CANTOPEN, KVSTORE_IOERR (also if a store is no longer at the path it was
 * opened by), KVSTORE_NOMEM, KVSTORE_CORRUPT, KVSTORE_MISUSE (a store is closed, also meanwhile;
 * or `progress` ended the transaction of the copy).
 */
int kvstore_copy(KVStore *from,
                 KVStore *to,
                 int (*progress)(void *context, int64_t done, int64_t total),
                 void *context);

/*
 * ---- Recovery of damaged files ----
 */

/**
 * Saves every readable row of a damaged file into a new store, with its family, value, expiry time
 * and write time. Expired rows are left out.
 *
 * @param path Damaged file. It is read as bytes, together with its -wal or rollback journal, and
 *   never written. It must not be open elsewhere.
 * @param newPath Path of the new store. It must not exist; the file appears when the store is
 *   complete and synced.
 * @param report Called with `context` and a text for each loss found; the text is valid during the
 *   call and contains the key of a lost row, if known. Also called at intervals with NULL as text.
 *   `done` and `total` are numbers of pages. A result other than 0 cancels the recovery. May be
 *   NULL.
 * @param context Passed to `report`.
 * @param pSaved Receives the number of rows saved. May be NULL.
 * @param pLost Receives the number of losses found: rows, pages and tables; 0 if everything was
 *   saved. May be NULL.
 *
 * No row is invented. Inconsistent pages are not used, nor are free pages, which may contain
 * deleted rows. Rows under a damaged page are assigned to a family only if the file names it. Rows
 * of an unknown family are saved in families called "recovered-1" and so on. A changed byte within
 * a key, a value or a time is not detected.
 *
 * The settings of the families are saved too.
 *
 * Errors: KVSTORE_CANTOPEN (`path` cannot be read), KVSTORE_NOTADB (the file contains nothing of a
 * store), KVSTORE_ERROR (a path is NULL, `newPath` exists or cannot be that of a store, or
 * `report` cancelled the recovery), KVSTORE_FULL, KVSTORE_IOERR, KVSTORE_NOMEM, KVSTORE_BUSY. No
 * new file is left then. kvstore_errmsg(NULL) returns the text.
 */
int kvstore_recover(const char *path,
                    const char *newPath,
                    int (*report)(void *context, const char *text, int64_t done, int64_t total),
                    void *context,
                    int64_t *pSaved,
                    int64_t *pLost);

/*
 * ---- Encryption ----
 */

/**
 * Opens an encrypted store, and creates it if it does not exist. An existing store that is not
 * encrypted is first encrypted in place, unless KVStoreConfig.onlyEncrypted is set.
 *
 * @param path File name. A store in memory cannot be encrypted.
 * @param pPassword,nPassword Password and its length: at least 1 byte of any content. It is
 *   copied, and wiped from the memory of the library when the handle is closed.
 * @param ppKV Receives the handle, or NULL after a failure. Close it with kvstore_close.
 * @param config Configuration as for kvstore_open_v2; NULL for the default one. pageSize must be 0
 *   or 4096; mmapSize has no effect.
 *
 * The key is derived from the password at each open, which takes about a tenth of a second. A raw
 * key of 32 bytes avoids this: pass the 67-byte text `x'`, 64 hexadecimal digits, `'`. The file
 * format is that of SQLCipher 4, whose programs can open the file with the password.
 *
 * Errors: KVSTORE_AUTH_FAILED (the password is wrong, or onlyEncrypted is set and the store is not
 * encrypted; nothing is changed), KVSTORE_ERROR (`ppKV`
 * is NULL; `path` is NULL, "" or ":memory:"; the password is empty; or this build does not support
 * encryption), KVSTORE_BUSY (also if an unencrypted store is open elsewhere), KVSTORE_FULL
 * (encrypting a store temporarily takes twice its size on the disk). All other errors are those of
 * kvstore_open_v2.
 */
int kvstore_open_encrypted(const char *path,
                           const void *pPassword,
                           int nPassword,
                           KVStore **ppKV,
                           const KVStoreConfig *config);

/**
 * Returns 1 if the store is encrypted, otherwise 0.
 *
 * Errors: none. The result is 0 for a handle that is NULL or closed.
 */
int kvstore_is_encrypted(KVStore *kv);

/**
 * Changes the password of an encrypted store, in place. The old password no longer opens the
 * store.
 *
 * @param pNew,nNew New password and its length: at least 1 byte.
 *
 * If the call fails, the process dies or the power fails, the file is entirely the old or entirely
 * the new one. It remains the same file. The old content is overwritten in the file, its WAL and
 * its journal, but not in copies that a copy-on-write file system, flash memory or a backup keeps.
 *
 * The call temporarily takes twice the size of the store on the disk. A cleaner of the handle is
 * stopped and restarted; if there are no file descriptors or threads for that, it stays stopped.
 *
 * This handle, its families and its iterators remain usable.
 *
 * Errors: KVSTORE_ERROR (`kv` is NULL, the store is not encrypted, the password is empty, or this
 * build does not support encryption), KVSTORE_BUSY (a transaction is open on this handle, or the
 * store is open elsewhere, in this process or another), KVSTORE_CANTOPEN (the path leads to
 * another file, or the file has several hard links), KVSTORE_READONLY, KVSTORE_FULL, KVSTORE_IOERR
 * (if the disk fails at the very end, opening the store with one of the two passwords shows which
 * one applies), KVSTORE_CORRUPT, KVSTORE_NOMEM, KVSTORE_MISUSE. An idle handle of another program
 * in DELETE journal mode is not detected; it finds no database afterwards.
 */
int kvstore_reencrypt(KVStore *kv, const void *pNew, int nNew);

/**
 * Decrypts an encrypted store in place. Afterwards kvstore_open opens it without a password.
 *
 * The guarantees for failures and the disk space needed are those of kvstore_reencrypt.
 *
 * Errors: KVSTORE_ERROR (`kv` is NULL, the store is not encrypted, or this build does not support
 * encryption). All other errors are those of kvstore_reencrypt.
 */
int kvstore_remove_encryption(KVStore *kv);

/*
 * ---- Size limit and eviction ----
 */

/**
 * Sets the size limit (quota) of a store, and the policy that selects which keys are removed when
 * the limit is reached.
 *
 * @param max_bytes Maximum size of the data, in bytes, at least 32 pages (131072 with pages of
 *   4096 bytes); 0: no limit.
 * @param policy KVSTORE_EVICT_NONE, KVSTORE_EVICT_SOONEST, KVSTORE_EVICT_OLDEST or
 *   KVSTORE_EVICT_LEAST_USED.
 *
 * The limit applies to the pages in use (KVStoreStats.nSizeBytes), of all families with their
 * indexes. The file is kept as short, with the exceptions in docs/how-to/limit-size.md. Unless
 * KVStoreConfig.walPages is set, the WAL target of a handle is one eighth of the limit, but at
 * least 16 and at most 4000 pages (64 with KVSTORE_SMALL).
 *
 * With one writer and no long-running reader, the file and its -wal together take at most
 * `max_bytes`, plus twice the WAL target, plus the pages of one transaction (a put that evicts can
 * change 40 pages), plus 256 KiB with KVSTORE_SYNC_FULL. The -shm takes 32 KiB for each 4096 pages
 * of the WAL.
 *
 * Keys are removed inside the write that needs the space, in its transaction: expired keys first,
 * then live keys by the policy, over all families, and never keys that the same write has put. A
 * thirty-second of the pages, at least one and at most 256, is kept free, so that most writes
 * remove few keys. KVStoreStats.nEvicted counts live keys removed; expired ones count as purged.
 *
 * If no key may be removed, a write that needs more pages fails with KVSTORE_FULL and changes
 * nothing; an open transaction continues. Calls that only remove data, such as deletes, purges and
 * kvstore_persist, are never refused.
 *
 * The order is that of the clock of the store. Keys written while the clock is wrong, such as on a
 * board that starts in 1970, are evicted in that order.
 *
 * KVSTORE_EVICT_OLDEST and KVSTORE_EVICT_LEAST_USED switch write tracking on, for all existing
 * families, whose keys count as written now, and for each new family. kvstore_set_write_tracking
 * and kvstore_cf_set_write_tracking cannot switch it off meanwhile. Another policy leaves it on.
 *
 * With KVSTORE_EVICT_LEAST_USED, kvstore_get and other reads of single keys count as uses, and
 * iterators do not. A handle notes them in memory, up to 4096 keys and 256 KiB of keys, and its
 * next writes store them: the write time of a key becomes the time of its last use, at most once a
 * minute, or when the key would be evicted otherwise. So the order is exact to a minute. Uses by
 * handles that never write do not count, and uses since the last write are lost by
 * kvstore_close. A handle notices the policy when it opens the store, or at its next write.
 *
 * The call is itself a write. If the data exceeds the new limit, it removes keys at once. Outside
 * a transaction it also runs a checkpoint that truncates the file and the WAL, unless other
 * connections block it; then the next checkpoint does.
 *
 * Both are stored in the file; every handle and process applies them from its next write on.
 * kvstore_backup copies them.
 *
 * Errors: KVSTORE_ERROR (`max_bytes` is negative or less than 32 pages, `policy` is unknown, or
 * `kv` is NULL), KVSTORE_FULL (the data exceeds the limit and may not be removed), or a write code
 * (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT,
 * KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL). Nothing is changed then.
 */
int kvstore_set_limit(KVStore *kv, int64_t max_bytes, int policy);

/**
 * Returns the size limit and the eviction policy of a store.
 *
 * @param pMaxBytes Receives the limit in bytes; 0: no limit. May be NULL.
 * @param pPolicy Receives the KVSTORE_EVICT_* policy; KVSTORE_EVICT_NONE without a limit. May be
 *   NULL.
 *
 * Errors: KVSTORE_ERROR (`kv` is NULL), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
 * KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
 */
int kvstore_get_limit(KVStore *kv, int64_t *pMaxBytes, int *pPolicy);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* KVSTORE_H */

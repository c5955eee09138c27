//! Handles and structs.

#![allow(non_snake_case)] // the fields have their C names

use std::ffi::{c_int, c_void};
use std::time::Duration;

use super::args::{Outcome, bad_argument};
use super::codes::{
    KVSTORE_JOURNAL_DELETE, KVSTORE_JOURNAL_WAL, KVSTORE_SMALL, KVSTORE_SYNC_FULL, KVSTORE_SYNC_NORMAL,
    KVSTORE_SYNC_OFF,
};
use crate::{Config, JournalMode, Stats, SyncLevel};

/// Handle on a store: one connection to one file, or to one schema of a server. Threads may share a
/// handle; their calls run one after another. Open several handles for parallel reads.
pub struct KVStore {
    _opaque: [u8; 0],
}

/// Handle on a family, which is a separate ordered set of keys in a store (see "Families" in the
/// introduction). Threads may share a handle.
pub struct KVColumnFamily {
    _opaque: [u8; 0],
}

/// Iterator over the live entries of a family, which is at one entry or at the end. It is used by
/// one thread at a time.
pub struct KVIterator {
    _opaque: [u8; 0],
}

/// Entry returned by kvstore_iterator_fetch. Its key and its value point into memory of the
/// iterator.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct KVEntry {
    /// Pointer to the key; in a row iterator, to the clustering part of the row key.
    pub pKey: *const c_void,
    /// Pointer to the value; NULL only if the iterator reads keys only. It is not NULL for an empty
    /// value.
    pub pValue: *const c_void,
    /// Length of the key, in bytes.
    pub nKey: c_int,
    /// Length of the value, in bytes; 0 if the iterator reads keys only.
    pub nValue: c_int,
    /// Expiry time, in milliseconds since the Unix epoch; KVSTORE_NO_TTL if the key never expires.
    pub expireMs: i64,
}

/// List of writes and deletions that are committed together. It is used by one thread at a time.
pub struct KVBatch {
    _opaque: [u8; 0],
}

/// Options of kvstore_put_with. All zeros means an unconditional write with the default TTL of the
/// family.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct KVWriteOptions {
    /// Expiry time, in milliseconds since the Unix epoch; 0 for the default TTL of the family;
    /// KVSTORE_NO_TTL if the key never expires. With the flag KVSTORE_PUT_TTL it is a TTL instead, in
    /// milliseconds, at least 1.
    pub expireMs: i64,
    /// Bitwise OR of KVSTORE_PUT_* flags; 0 for none.
    pub flags: u32,
    /// Reserved for later versions; must be zero.
    pub reserved: u32,
}

/// Configuration of kvstore_open_v2. All zeros is the default configuration: initialise it with
/// `KVStoreConfig cfg = {0};` and set the fields you need.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct KVStoreConfig {
    /// Journal mode: KVSTORE_JOURNAL_WAL (also 0) or KVSTORE_JOURNAL_DELETE. An existing file is
    /// converted to this mode.
    pub journalMode: c_int,
    /// Durability of commits: KVSTORE_SYNC_NORMAL (also 0), KVSTORE_SYNC_FULL or KVSTORE_SYNC_OFF.
    pub syncLevel: c_int,
    /// Size of the page cache, in pages; 0 means 2000. A write transaction that changes more pages
    /// than this may use up to five times as much memory.
    pub cacheSize: c_int,
    /// Page size of a new file, in bytes: a power of two from 512 to 65536; 0 means 4096.
    pub pageSize: c_int,
    /// Non-zero: opens the store read-only; the file must exist.
    ///
    /// A store that was closed cleanly can be read from a read-only file system, or by a user
    /// without write permission. If another process changes such a file, calls notice the change,
    /// and calls of an open snapshot fail with KVSTORE_BUSY.
    pub readOnly: c_int,
    /// Maximum time that a call waits for a lock of another handle, in milliseconds. 0 means 5000.
    /// With a negative value the call does not wait, and fails at once with KVSTORE_BUSY.
    ///
    /// Opening a store waits for at least 2 seconds, because other processes hold the locks of an
    /// open for moments only.
    pub busyTimeout: c_int,
    /// Number of write commits after which a passive checkpoint runs. 0: checkpoints depend on the
    /// length of the WAL instead (walPages).
    ///
    /// In a store with a size limit, the length of the WAL triggers checkpoints in both cases.
    pub walSizeLimit: c_int,
    /// Ignored. An encrypted store is opened with kvstore_open_encrypted.
    pub allowEncrypted: c_int,
    /// Ignored, because threads may share every handle anyway.
    pub fullMutex: c_int,
    /// Maximum length of a value, in bytes: up to 536870912 (512 MiB). 0 means 10485760 (10 MiB).
    pub maxValueSize: c_int,
    /// Maximum number of bytes of the file that are read through a memory map. 0 means 256 MiB on
    /// 64-bit systems and none on 32-bit systems. A negative number means none.
    pub mmapSize: i64,
    /// Non-zero: only this handle can use the file. This is the fastest mode; every other open of
    /// the file fails with KVSTORE_BUSY. Cannot be combined with readOnly.
    pub exclusive: c_int,
    /// Whether the handle keeps its read snapshot between calls, which makes reads faster.
    /// Positive: always. Negative: never. 0: only while no other process has the store open through
    /// this library, and never with KVSTORE_SMALL.
    ///
    /// Reads never return old data: each read checks first whether the snapshot is still current.
    ///
    /// While an idle handle keeps a snapshot, the WAL of other processes cannot be reset. This
    /// includes a process that opens the store after the last read or write of the handle.
    pub holdReads: c_int,
    /// Target length of the WAL, in pages, from 16 to 1000000; 0 means the default. It is ignored
    /// if walSizeLimit is set, except in a store with a size limit.
    ///
    /// The default is 4000 pages (64 with KVSTORE_SMALL), or one eighth of the size limit of the
    /// store if that is less, but at least 16.
    ///
    /// The WAL is copied into the database while it grows, and is reset once it reaches three
    /// quarters of this length. With one writer it never exceeds twice this length plus the pages
    /// of one transaction. With KVSTORE_SYNC_FULL the WAL file may be 256 KiB longer. It can grow
    /// further with several writers (the cleaner counts as one), or with readers that stay open or
    /// follow each other without a pause. A commit waits up to busyTimeout for a checkpoint of
    /// another connection.
    pub walPages: c_int,
    /// Non-zero: data that is deleted, overwritten, purged or evicted is overwritten with zeros in
    /// the files of the store. 0: the old bytes remain in the files until their space is reused.
    ///
    /// The setting is not stored in the file: every handle that writes must set it. In WAL mode,
    /// earlier page versions remain in the -wal file until a checkpoint of any mode completes
    /// without being blocked by a reader, or until the last handle is closed.
    /// KVSTORE_CHECKPOINT_TRUNCATE returns KVSTORE_BUSY if it was blocked. Cost and limits:
    /// docs/how-to/secure-delete.md.
    pub secureDelete: c_int,
    /// Set of defaults for the fields that are 0. 0: the default that each field documents.
    /// KVSTORE_SMALL: the defaults for small devices.
    ///
    /// KVSTORE_SMALL means 32 pages for cacheSize, no memory map, 64 pages for walPages, and
    /// "never" for holdReads. See docs/how-to/firmware.md.
    pub profile: c_int,
    /// Permissions of a new file on Unix, such as 0660 for a store that a group shares. 0: 0644
    /// without the bits of the umask.
    ///
    /// Otherwise the file has exactly these permissions, whatever the umask is, and so have its
    /// -wal, -shm and -journal files and its backups. It must have the bits 0600, and none beyond
    /// 0777. An existing file keeps its permissions. Ignored on Windows.
    pub mode: c_int,
    /// Number of expired keys that this handle removes for each key that it writes, from 0 (none) to
    /// 1000. With 2 or more, a store whose keys expire as fast as they are written does not grow,
    /// without a cleaner and without purges.
    ///
    /// The removals are collected: about 64 keys, of any family, are removed in a transaction of
    /// their own after the write that reaches this number, and the rest when the handle is closed.
    /// Writes inside a transaction count after its commit. A removal does not wait for other
    /// handles, and its failure is not reported. Later purges do not count the keys. See
    /// docs/reference/ttl.md.
    pub purgePerWrite: c_int,
    /// For kvstore_open_encrypted: non-zero makes it fail with KVSTORE_AUTH_FAILED if the store
    /// exists and is not encrypted; 0 lets it encrypt such a store. Other functions ignore this
    /// field.
    pub onlyEncrypted: c_int,
    /// Reserved for later versions; must be zero.
    pub reserved: [c_int; 2],
}

/// Counters of a store handle since it was opened or since kvstore_stats_reset. Only successful
/// calls count, except in nErrors. Fields marked "current" are measured at the call and are not
/// reset.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct KVStoreStats {
    /// Number of keys written.
    pub nPuts: u64,
    /// Number of values read.
    pub nGets: u64,
    /// Number of live keys deleted.
    pub nDeletes: u64,
    /// Number of iterators created.
    pub nIterations: u64,
    /// Number of calls that failed. KVSTORE_NOTFOUND for a key is not a failure.
    pub nErrors: u64,
    /// Total length of the values read, in bytes.
    pub nBytesRead: u64,
    /// Total length of the keys and values written, in bytes.
    pub nBytesWritten: u64,
    /// Number of write transactions committed, in any journal mode.
    pub nWalCommits: u64,
    /// Number of checkpoints run, including automatic ones.
    pub nCheckpoints: u64,
    /// Number of lookups that found an expired row. After the first one, the handle treats the row
    /// as missing, except in kvstore_get_many.
    pub nTtlExpired: u64,
    /// Number of expired keys removed by purges, or to enforce the size limit.
    pub nTtlPurged: u64,
    /// Current number of pages of the database.
    pub nDbPages: u64,
    /// Current number of frames (page versions) in the WAL, as of the last commit or checkpoint of
    /// this handle.
    pub nWalFrames: u64,
    /// Number of lookups that found no live key: gets, each key of a kvstore_get_many, and exists.
    pub nMisses: u64,
    /// Number of live keys removed to enforce the size limit (kvstore_set_limit).
    pub nEvicted: u64,
    /// Current size of the pages in use, in bytes. This is the size that kvstore_set_limit limits.
    pub nSizeBytes: u64,
    /// Reserved for later versions; kvstore_stats sets it to zero.
    pub reserved: [u64; 4],
}

impl KVStoreConfig {
    pub(super) fn to_config(self) -> Outcome<Config> {
        if self.reserved.iter().any(|&field| field != 0) {
            return bad_argument(
                "KVStoreConfig.reserved must be zero: initialise with KVStoreConfig cfg = {0}",
            );
        }
        let defaults = match self.profile {
            0 => Config::new(),
            KVSTORE_SMALL => Config::small(),
            other => return bad_argument(&format!("profile {other}: pass KVSTORE_SMALL, or 0")),
        };
        let mut config = defaults
            .journal_mode(journal_mode(self.journalMode)?)
            .sync(match self.syncLevel {
                0 | KVSTORE_SYNC_NORMAL => SyncLevel::Normal,
                KVSTORE_SYNC_FULL => SyncLevel::Full,
                KVSTORE_SYNC_OFF => SyncLevel::Off,
                other => {
                    return bad_argument(&format!("syncLevel {other}: pass one of KVSTORE_SYNC_*, or 0"));
                }
            })
            .read_only(self.readOnly != 0)
            .exclusive(self.exclusive != 0)
            .secure_delete(self.secureDelete != 0);
        if self.holdReads != 0 {
            config = config.hold_reads(self.holdReads > 0);
        }
        if let Some(pages) = positive("cacheSize", self.cacheSize)? {
            config = config.cache_pages(pages);
        }
        if let Some(bytes) = positive("pageSize", self.pageSize)? {
            config = config.page_size(bytes);
        }
        if self.busyTimeout != 0 {
            let ms = u64::try_from(self.busyTimeout).unwrap_or(0);
            config = config.busy_timeout(Duration::from_millis(ms));
        }
        if let Some(commits) = positive("walSizeLimit", self.walSizeLimit)? {
            config = config.checkpoint_every(commits);
        }
        if let Some(keys) = positive("purgePerWrite", self.purgePerWrite)? {
            config = config.purge_per_write(keys);
        }
        if let Some(pages) = positive("walPages", self.walPages)? {
            config = config.wal_pages(pages);
        }
        if let Some(bytes) = positive("maxValueSize", self.maxValueSize)? {
            config = config.max_value_size(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
        if let Some(mode) = positive("mode", self.mode)? {
            config = config.mode(mode);
        }
        match self.mmapSize {
            0 => {}
            bytes => config = config.mmap_size(u64::try_from(bytes).unwrap_or(0)),
        }
        Ok(config)
    }
}

pub(super) fn journal_mode(mode: c_int) -> Outcome<JournalMode> {
    match mode {
        0 | KVSTORE_JOURNAL_WAL => Ok(JournalMode::Wal),
        KVSTORE_JOURNAL_DELETE => Ok(JournalMode::Delete),
        other => bad_argument(&format!("journal mode {other}: pass one of KVSTORE_JOURNAL_*, or 0")),
    }
}

/// Converts a numeric setting of KVStoreConfig. Returns `None` for 0, which means the default.
/// Fails if it is negative.
fn positive(name: &str, value: c_int) -> Outcome<Option<u32>> {
    match u32::try_from(value) {
        Ok(0) => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(_) => bad_argument(&format!("{name} is {value}: it cannot be negative")),
    }
}

impl KVStoreStats {
    /// Converts statistics for C. `bad_calls` is the number of calls that failed before they
    /// reached the store; they are added to the errors.
    pub(super) fn of(stats: Stats, bad_calls: u64) -> KVStoreStats {
        KVStoreStats {
            nPuts: stats.puts,
            nGets: stats.gets,
            nDeletes: stats.deletes,
            nIterations: stats.iterations,
            nErrors: stats.errors + bad_calls,
            nBytesRead: stats.bytes_read,
            nBytesWritten: stats.bytes_written,
            nWalCommits: stats.wal_commits,
            nCheckpoints: stats.checkpoints,
            nTtlExpired: stats.ttl_expired,
            nTtlPurged: stats.ttl_purged,
            nDbPages: stats.db_pages,
            nWalFrames: stats.wal_frames,
            nMisses: stats.misses,
            nEvicted: stats.evicted,
            nSizeBytes: stats.size_bytes,
            reserved: [0; 4],
        }
    }
}

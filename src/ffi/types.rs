//! The types of the header.

#![allow(non_snake_case)] // the fields have their C names

use std::ffi::{c_int, c_void};
use std::time::Duration;

use super::args::{Outcome, bad_argument};
use super::codes::{
    KVSTORE_JOURNAL_DELETE, KVSTORE_JOURNAL_WAL, KVSTORE_SMALL, KVSTORE_SYNC_FULL, KVSTORE_SYNC_NORMAL,
    KVSTORE_SYNC_OFF,
};
use crate::{Config, JournalMode, Stats, SyncLevel};

/// A handle on a store: one connection to one file. May be shared by threads, which take turns;
/// open several for parallel reads.
pub struct KVStore {
    _opaque: [u8; 0],
}

/// A handle on a family of keys. May be shared by threads.
pub struct KVColumnFamily {
    _opaque: [u8; 0],
}

/// A position among the live entries of a family. For one thread at a time.
pub struct KVIterator {
    _opaque: [u8; 0],
}

/// An entry as kvstore_iterator_fetch shows it. The memory is the iterator's.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct KVEntry {
    /// Its key; of a row its clustering part.
    pub pKey: *const c_void,
    /// NULL if the iterator reads no values; an empty value is not NULL.
    pub pValue: *const c_void,
    /// Length of the key.
    pub nKey: c_int,
    /// Length of the value; 0 if the iterator reads no values.
    pub nValue: c_int,
    /// When it expires, in milliseconds since the Unix epoch, or KVSTORE_NO_TTL.
    pub expireMs: i64,
}

/// Writes to be committed together. For one thread at a time.
pub struct KVBatch {
    _opaque: [u8; 0],
}

/// How kvstore_cf_put_with writes. All zeros: always, never expiring.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct KVWriteOptions {
    /// When the key expires, in milliseconds since the Unix epoch; 0: never. With KVSTORE_PUT_TTL: in how many.
    pub expireMs: i64,
    /// KVSTORE_PUT_* or'ed together.
    pub flags: u32,
    /// Must be zero.
    pub reserved: u32,
}

/// How to open a store. All zeros is the default configuration, and a safe one: initialise with
/// `KVStoreConfig cfg = {0};` and set what you need.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct KVStoreConfig {
    /// KVSTORE_JOURNAL_WAL (also 0) or KVSTORE_JOURNAL_DELETE. An existing file is converted.
    pub journalMode: c_int,
    /// KVSTORE_SYNC_NORMAL (also 0), KVSTORE_SYNC_FULL or KVSTORE_SYNC_OFF.
    pub syncLevel: c_int,
    /// Page cache, in pages; 0: 2000. A write transaction that changes more may take up to five times as much.
    pub cacheSize: c_int,
    /// Page size of new files, in bytes: a power of two from 512 to 65536; 0: 4096.
    pub pageSize: c_int,
    /// Non-zero: read only; the file must exist. A store that was closed can also be read where nothing can be
    /// written, such as on a read-only mount, or by a user who may not write it: calls notice a change, and those of a
    /// snapshot answer KVSTORE_BUSY after one.
    pub readOnly: c_int,
    /// How long to wait for another handle's lock, in milliseconds; 0: fail at once with KVSTORE_BUSY. An
    /// open waits for at least 2 seconds: others hold the locks it needs for moments only, while they open.
    pub busyTimeout: c_int,
    /// N > 0: a passive checkpoint after every N write commits (in a store that has a limit, also by the length of the WAL);
    /// 0: automatic, by the length of the WAL, see walPages.
    pub walSizeLimit: c_int,
    /// Ignored.
    pub allowEncrypted: c_int,
    /// Ignored: handles are always safe to share.
    pub fullMutex: c_int,
    /// The longest value, in bytes, up to 512 MiB; 0: 10 MiB.
    pub maxValueSize: c_int,
    /// How much of the file is read through a memory map, in bytes; 0: 256 MiB on 64-bit systems, none
    /// on 32-bit ones; negative: none.
    pub mmapSize: i64,
    /// Non-zero: this handle alone owns the file. Fastest; other opens fail with KVSTORE_BUSY. Not together with
    /// readOnly.
    pub exclusive: c_int,
    /// Whether the handle keeps its read snapshot between calls, looking before each read whether it is still
    /// the newest. 0: while no other process has the store open through this library, and with KVSTORE_SMALL never;
    /// positive: always; negative: never. While a handle that keeps one sits idle, the WAL that other processes write
    /// cannot start anew: also that of a process which opens the store after the last read or write of the handle.
    pub holdReads: c_int,
    /// How long the WAL gets, in pages, from 16 to 1000000; 0: 4000 (64 with KVSTORE_SMALL), or an eighth of the limit of
    /// the store (kvstore_set_limit) if that is less, but at least 16. It is written back into the database while it
    /// grows, and begins anew from three quarters of that on; with one writer it never has more than twice as many pages
    /// and those of one transaction.
    /// A commit waits for the checkpoint of somebody else, up to `busyTimeout`. Several writers (the cleaner is one of
    /// its own), and readers that stay, or come without a pause, can make it longer; with KVSTORE_SYNC_FULL its file may have 256 KiB
    /// more. For small flash. Where walSizeLimit is set, used only in a store that has a limit.
    pub walPages: c_int,
    /// Non-zero: what is deleted, overwritten, expired and removed, or evicted is overwritten with zeros in the files of
    /// the store; 0: its bytes stay until their place is used again. In WAL mode older states of the pages stand in the
    /// -wal file until the next checkpoint that no reader is in the way of, in whatever mode, or the close of the last
    /// handle; KVSTORE_CHECKPOINT_TRUNCATE answers KVSTORE_BUSY where it could not. The file does not remember it: every
    /// handle that writes must have it. What it costs and cannot do: docs/how-to/secure-delete.md.
    pub secureDelete: c_int,
    /// What 0 means in the other fields. 0: what they say. KVSTORE_SMALL: the defaults for little memory and little flash, which
    /// are 32 pages for cacheSize, no memory map, 64 for walPages, and never for holdReads; docs/how-to/firmware.md.
    pub profile: c_int,
    /// Must be zero.
    pub reserved: [c_int; 5],
}

/// What a handle has done since it was opened or kvstore_stats_reset was called. Only calls that
/// succeeded count, except in nErrors.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct KVStoreStats {
    /// Keys written.
    pub nPuts: u64,
    /// Values read.
    pub nGets: u64,
    /// Keys deleted.
    pub nDeletes: u64,
    /// Iterators made.
    pub nIterations: u64,
    /// Calls that failed. KVSTORE_NOTFOUND for a key is not a failure.
    pub nErrors: u64,
    /// Bytes of values read.
    pub nBytesRead: u64,
    /// Bytes of keys and values written.
    pub nBytesWritten: u64,
    /// Write transactions committed.
    pub nWalCommits: u64,
    /// Checkpoints run, automatic ones included.
    pub nCheckpoints: u64,
    /// Gets, exists and ttl calls that met an expired key; of each such row the first one. Each kvstore_cf_get_many
    /// that meets one counts.
    pub nTtlExpired: u64,
    /// Expired keys removed by purges, or to make room.
    pub nTtlPurged: u64,
    /// Pages of the database now; not reset.
    pub nDbPages: u64,
    /// Frames in the WAL after this handle's last commit or checkpoint; not reset.
    pub nWalFrames: u64,
    /// Gets (of several keys, each) and exists that found no live key.
    pub nMisses: u64,
    /// Keys that were removed alive to make room (kvstore_set_limit).
    pub nEvicted: u64,
    /// What the data takes in the file now, in bytes: its pages less the free ones, which is what kvstore_set_limit
    /// bounds; not reset.
    pub nSizeBytes: u64,
    /// Zero.
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
        if let Some(ms) = positive("busyTimeout", self.busyTimeout)? {
            config = config.busy_timeout(Duration::from_millis(u64::from(ms)));
        }
        if let Some(commits) = positive("walSizeLimit", self.walSizeLimit)? {
            config = config.checkpoint_every(commits);
        }
        if let Some(pages) = positive("walPages", self.walPages)? {
            config = config.wal_pages(pages);
        }
        if let Some(bytes) = positive("maxValueSize", self.maxValueSize)? {
            config = config.max_value_size(usize::try_from(bytes).unwrap_or(usize::MAX));
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

/// A setting of which 0 means the default.
fn positive(name: &str, value: c_int) -> Outcome<Option<u32>> {
    match u32::try_from(value) {
        Ok(0) => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(_) => bad_argument(&format!("{name} is {value}: it cannot be negative")),
    }
}

impl KVStoreStats {
    /// `bad_calls` are those that failed before they reached the store.
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

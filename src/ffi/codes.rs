//! Result codes and other constants of the header.

#![allow(dead_code)] // some constants only the header uses

use std::ffi::{CStr, c_int};

use crate::ErrorKind;

/// Success.
pub const KVSTORE_OK: c_int = 0;
/// A wrong argument, a wrong order of calls, or a failure without a code of its own.
pub const KVSTORE_ERROR: c_int = 1;
/// Another handle or process holds a lock, or on a server another client: retry, or set busyTimeout. Also: the server takes
/// no connection now.
pub const KVSTORE_BUSY: c_int = 5;
/// A lock inside this process stands in the way: retry. On a server: another client's transaction has made this one impossible;
/// roll it back and run it again.
pub const KVSTORE_LOCKED: c_int = 6;
/// Out of memory.
pub const KVSTORE_NOMEM: c_int = 7;
/// A write where only reading is allowed; on a server also: the role lacks a right, or no server of the URL can write now, as
/// during a failover.
pub const KVSTORE_READONLY: c_int = 8;
/// The operating system failed to read, write or sync, or the connection to the server broke. The text says whether what the
/// call was to do is known not to be done.
pub const KVSTORE_IOERR: c_int = 10;
/// The file, or what a server has of the store, is damaged.
pub const KVSTORE_CORRUPT: c_int = 11;
/// No such key (or it has expired), or no such family.
pub const KVSTORE_NOTFOUND: c_int = 12;
/// Wrong password, or a tampered value; a log-in that the server refuses.
pub const KVSTORE_AUTH_FAILED: c_int = 13;
/// The file cannot be opened, or the server not be reached; this build has no servers.
pub const KVSTORE_CANTOPEN: c_int = 14;
/// The locking protocol of the file failed.
pub const KVSTORE_PROTOCOL: c_int = 15;
/// The handle is closed, was inherited through a fork, or is unusable after an internal failure.
pub const KVSTORE_MISUSE: c_int = 21;
/// The file, or the schema on the server, is not a store.
pub const KVSTORE_NOTADB: c_int = 26;
/// The disk (the server's, if the store is there) is full, or the store has reached its limit (kvstore_set_limit).
pub const KVSTORE_FULL: c_int = 113;

/// Journal mode: a write-ahead log (the default). Readers and a writer do not block each other.
pub const KVSTORE_JOURNAL_WAL: c_int = 1;
/// Journal mode: a rollback journal. One file; readers and writers take turns.
pub const KVSTORE_JOURNAL_DELETE: c_int = 2;

/// Sync level (the default): a power cut may lose the last commits, never the file.
pub const KVSTORE_SYNC_NORMAL: c_int = 1;
/// Sync level: a commit is on the disk when the call returns.
pub const KVSTORE_SYNC_FULL: c_int = 2;
/// Sync level: nothing is synced; a power cut may destroy the file.
pub const KVSTORE_SYNC_OFF: c_int = 3;

/// Checkpoint as much as is possible without waiting.
pub const KVSTORE_CHECKPOINT_PASSIVE: c_int = 0;
/// Wait for writers, then checkpoint everything.
pub const KVSTORE_CHECKPOINT_FULL: c_int = 1;
/// Like FULL, and wait for readers, so that the next writer starts the WAL anew.
pub const KVSTORE_CHECKPOINT_RESTART: c_int = 2;
/// Like RESTART, and cut the WAL to zero bytes.
pub const KVSTORE_CHECKPOINT_TRUNCATE: c_int = 3;

/// KVStoreConfig.profile: defaults for devices with little memory and little flash.
pub const KVSTORE_SMALL: c_int = 1;

/// KVWriteOptions.flags: write only if the key is missing or expired.
pub const KVSTORE_PUT_IF_ABSENT: u32 = 1;
/// KVWriteOptions.flags: write only if the key is alive.
pub const KVSTORE_PUT_IF_PRESENT: u32 = 2;
/// KVWriteOptions.flags: a live key keeps the TTL it has, also none; a new key gets expireMs.
pub const KVSTORE_PUT_KEEP_TTL: u32 = 4;
/// KVWriteOptions.flags: the family's default TTL instead of expireMs, which must be 0.
pub const KVSTORE_PUT_DEFAULT_TTL: u32 = 8;
/// KVWriteOptions.flags: expireMs is not a moment, but how many milliseconds the key lives from now, by the store's clock; on
/// a server, by the server's, whose time a client need not know.
pub const KVSTORE_PUT_TTL: u32 = 16;

/// kvstore_cf_expire: only if the key has no TTL.
pub const KVSTORE_EXPIRE_NX: c_int = 1;
/// kvstore_cf_expire: only if the key has a TTL.
pub const KVSTORE_EXPIRE_XX: c_int = 2;
/// kvstore_cf_expire: only if the new time is later than the old one.
pub const KVSTORE_EXPIRE_GT: c_int = 4;
/// kvstore_cf_expire: only if the new time is earlier than the old one.
pub const KVSTORE_EXPIRE_LT: c_int = 8;

/// Ranges: from the greatest key to the least.
pub const KVSTORE_RANGE_REVERSE: c_int = 1;
/// Ranges: the upper bound is part of the range.
pub const KVSTORE_RANGE_CLOSED: c_int = 2;
/// Ranges: the lower bound is not part of the range.
pub const KVSTORE_RANGE_OPEN: c_int = 4;
/// Ranges: read no values; kvstore_iterator_value is KVSTORE_ERROR.
pub const KVSTORE_RANGE_KEYS_ONLY: c_int = 8;

/// kvstore_set_limit: nothing makes room; a write that would pass the limit is KVSTORE_FULL.
pub const KVSTORE_EVICT_NONE: c_int = 0;
/// kvstore_set_limit: expired keys make room, then those that would expire soonest.
pub const KVSTORE_EVICT_SOONEST: c_int = 1;
/// kvstore_set_limit: expired keys make room, then those that were written longest ago.
pub const KVSTORE_EVICT_OLDEST: c_int = 2;

/// A documented number of families that surely works. Not a limit.
pub const KVSTORE_MAX_COLUMN_FAMILIES: c_int = 64;

/// Version of this header.
pub const KVSTORE_VERSION_MAJOR: c_int = 0;
/// Version of this header.
pub const KVSTORE_VERSION_MINOR: c_int = 1;
/// Version of this header.
pub const KVSTORE_VERSION_PATCH: c_int = 0;

/// What `remaining` means for a key without a TTL. The header has it with its type (cbindgen.toml).
pub(super) const NO_TTL: i64 = -1;

/// The one mapping of kinds to codes.
pub(super) fn code_of(kind: ErrorKind) -> c_int {
    match kind {
        ErrorKind::Error => KVSTORE_ERROR,
        ErrorKind::Busy => KVSTORE_BUSY,
        ErrorKind::Locked => KVSTORE_LOCKED,
        ErrorKind::NoMemory => KVSTORE_NOMEM,
        ErrorKind::ReadOnly => KVSTORE_READONLY,
        ErrorKind::Io => KVSTORE_IOERR,
        ErrorKind::Corrupt => KVSTORE_CORRUPT,
        ErrorKind::NotFound => KVSTORE_NOTFOUND,
        ErrorKind::AuthFailed => KVSTORE_AUTH_FAILED,
        ErrorKind::CantOpen => KVSTORE_CANTOPEN,
        ErrorKind::Protocol => KVSTORE_PROTOCOL,
        ErrorKind::Misuse => KVSTORE_MISUSE,
        ErrorKind::NotADatabase => KVSTORE_NOTADB,
        ErrorKind::Full => KVSTORE_FULL,
    }
}

/// The name of a code.
pub(super) fn name_of(code: c_int) -> &'static CStr {
    match code {
        KVSTORE_OK => c"ok",
        KVSTORE_ERROR => c"error",
        KVSTORE_BUSY => c"busy: another handle, process or client holds the lock",
        KVSTORE_LOCKED => c"locked inside this process, or by another client's transaction",
        KVSTORE_NOMEM => c"out of memory",
        KVSTORE_READONLY => c"read-only",
        KVSTORE_IOERR => c"input/output error",
        KVSTORE_CORRUPT => c"the file or table is damaged",
        KVSTORE_NOTFOUND => c"not found",
        KVSTORE_AUTH_FAILED => c"wrong password or tampered value",
        KVSTORE_CANTOPEN => c"cannot open the file or reach the server",
        KVSTORE_PROTOCOL => c"locking protocol failed",
        KVSTORE_MISUSE => c"the handle is closed or may not be used",
        KVSTORE_NOTADB => c"the file or schema is not a store",
        KVSTORE_FULL => c"full: the disk, or the limit of the store",
        _ => c"unknown code",
    }
}

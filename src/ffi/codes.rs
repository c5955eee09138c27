//! Result codes and other constants.

#![allow(dead_code)] // some constants only the header uses

use std::ffi::{CStr, c_int};

use crate::ErrorKind;

/// Result code: success.
pub const KVSTORE_OK: c_int = 0;
/// Result code: an invalid argument, a call in the wrong order, or a failure that has no code of
/// its own.
pub const KVSTORE_ERROR: c_int = 1;
/// Result code: another handle, process or server client holds a lock, or the server accepts no
/// connection now. Retry the call, or set KVStoreConfig.busyTimeout.
pub const KVSTORE_BUSY: c_int = 5;
/// Result code: a conflict with another connection. Store in a file: another connection of this
/// process holds a lock; retry the call. Store on a server: the transaction conflicts with that of
/// another client; roll it back and run it again.
pub const KVSTORE_LOCKED: c_int = 6;
/// Result code: out of memory.
pub const KVSTORE_NOMEM: c_int = 7;
/// Result code: a write is not allowed, because the handle is read-only or this process may not
/// write the file. Store on a server: the role lacks a privilege, or no server of the URL accepts
/// writes now, as during a failover.
pub const KVSTORE_READONLY: c_int = 8;
/// Result code: a read, write or sync of the operating system failed, or the connection to the
/// server broke. kvstore_errmsg states whether the operation is known not to have happened.
pub const KVSTORE_IOERR: c_int = 10;
/// Result code: the file, or the data of the store on the server, is damaged.
pub const KVSTORE_CORRUPT: c_int = 11;
/// Result code: the key does not exist or has expired, or there is no family of that name.
pub const KVSTORE_NOTFOUND: c_int = 12;
/// Result code: the password is wrong, or the first page of an encrypted file was tampered with
/// (another page: KVSTORE_CORRUPT when it is read). Store on a server: the server refused the login.
pub const KVSTORE_AUTH_FAILED: c_int = 13;
/// Result code: the file cannot be opened, the server cannot be reached, or this build does not
/// support servers.
pub const KVSTORE_CANTOPEN: c_int = 14;
/// Result code: too many processes competed for a lock of the file, so that it could not be taken.
pub const KVSTORE_PROTOCOL: c_int = 15;
/// Result code: the handle cannot be used. It is closed, was inherited through fork(), or is
/// unusable after an internal failure; or a callback called the store that is running it.
pub const KVSTORE_MISUSE: c_int = 21;
/// Result code: the file, or the schema on the server, is not a store.
pub const KVSTORE_NOTADB: c_int = 26;
/// Result code: the disk is full, or the store has reached its size limit (kvstore_set_limit). For
/// a store on a server, the disk is that of the server.
pub const KVSTORE_FULL: c_int = 113;

/// Value of KVStoreConfig.journalMode, and the default: a write-ahead log. Readers and a writer do
/// not block each other.
pub const KVSTORE_JOURNAL_WAL: c_int = 1;
/// Value of KVStoreConfig.journalMode: a rollback journal. The store is a single file; readers and
/// a writer exclude each other.
pub const KVSTORE_JOURNAL_DELETE: c_int = 2;

/// Value of KVStoreConfig.syncLevel, and the default: a power failure may lose the last commits,
/// but does not damage the file.
pub const KVSTORE_SYNC_NORMAL: c_int = 1;
/// Value of KVStoreConfig.syncLevel: a commit is on stable storage when the call returns.
pub const KVSTORE_SYNC_FULL: c_int = 2;
/// Value of KVStoreConfig.syncLevel: nothing is synced. A power failure may destroy the file.
pub const KVSTORE_SYNC_OFF: c_int = 3;

/// Mode of kvstore_checkpoint: copies as many frames of the WAL as possible without waiting for
/// readers or writers.
pub const KVSTORE_CHECKPOINT_PASSIVE: c_int = 0;
/// Mode of kvstore_checkpoint: waits for writers, then copies all frames of the WAL.
pub const KVSTORE_CHECKPOINT_FULL: c_int = 1;
/// Mode of kvstore_checkpoint: like KVSTORE_CHECKPOINT_FULL, but also waits for readers, so that
/// the next writer overwrites the WAL from its start.
pub const KVSTORE_CHECKPOINT_RESTART: c_int = 2;
/// Mode of kvstore_checkpoint: like KVSTORE_CHECKPOINT_RESTART, but also truncates the WAL to zero
/// bytes.
pub const KVSTORE_CHECKPOINT_TRUNCATE: c_int = 3;

/// Value of KVStoreConfig.profile: selects defaults for devices with little memory and little flash
/// storage.
pub const KVSTORE_SMALL: c_int = 1;

/// Flag of KVWriteOptions.flags: write only if the key does not exist or has expired.
pub const KVSTORE_PUT_IF_ABSENT: u32 = 1;
/// Flag of KVWriteOptions.flags: write only if the key is live.
pub const KVSTORE_PUT_IF_PRESENT: u32 = 2;
/// Flag of KVWriteOptions.flags: keep the expiry time of a live key, including the absence of one.
/// A new key gets expireMs.
pub const KVSTORE_PUT_KEEP_TTL: u32 = 4;
/// Flag of KVWriteOptions.flags: expireMs is a TTL in milliseconds instead of an expiry time. It is
/// counted from now by the clock of the store; for a store on a server, by the server's clock.
pub const KVSTORE_PUT_TTL: u32 = 8;

/// Condition of kvstore_expire: change only a key without an expiry time.
pub const KVSTORE_EXPIRE_NX: c_int = 1;
/// Condition of kvstore_expire: change only a key with an expiry time.
pub const KVSTORE_EXPIRE_XX: c_int = 2;
/// Condition of kvstore_expire: change only if the new expiry time is later than the current one.
pub const KVSTORE_EXPIRE_GT: c_int = 4;
/// Condition of kvstore_expire: change only if the new expiry time is earlier than the current one.
pub const KVSTORE_EXPIRE_LT: c_int = 8;

/// Flag of range and row iterators: iterate from the greatest key to the least.
pub const KVSTORE_RANGE_REVERSE: c_int = 1;
/// Flag of range and row iterators: include the upper bound.
pub const KVSTORE_RANGE_CLOSED: c_int = 2;
/// Flag of range and row iterators: exclude the lower bound.
pub const KVSTORE_RANGE_OPEN: c_int = 4;
/// Flag of range and row iterators: read keys without their values. kvstore_iterator_value fails
/// with KVSTORE_ERROR.
pub const KVSTORE_RANGE_KEYS_ONLY: c_int = 8;

/// Eviction policy of kvstore_set_limit: evict nothing. A write beyond the limit fails with
/// KVSTORE_FULL.
pub const KVSTORE_EVICT_NONE: c_int = 0;
/// Eviction policy of kvstore_set_limit: remove expired keys, then evict the keys with the earliest
/// expiry time. Keys without an expiry time are never evicted.
pub const KVSTORE_EVICT_SOONEST: c_int = 1;
/// Eviction policy of kvstore_set_limit: remove expired keys, then evict the keys that were written
/// longest ago.
pub const KVSTORE_EVICT_OLDEST: c_int = 2;
/// Eviction policy of kvstore_set_limit: remove expired keys, then evict the keys that were written
/// or read longest ago.
pub const KVSTORE_EVICT_LEAST_USED: c_int = 3;

/// Number of families that a store is guaranteed to support. A store may have more.
pub const KVSTORE_MAX_COLUMN_FAMILIES: c_int = 64;

/// Major version number of the library that this header belongs to.
pub const KVSTORE_VERSION_MAJOR: c_int = 0;
/// Minor version number of the library that this header belongs to.
pub const KVSTORE_VERSION_MINOR: c_int = 1;
/// Patch version number of the library that this header belongs to.
pub const KVSTORE_VERSION_PATCH: c_int = 0;

/// Value that stands for "never expires" in a remaining TTL or an expiry time. cbindgen.toml
/// repeats it with its C type.
pub(super) const NO_TTL: i64 = -1;

/// Maps the kind of an error to its result code.
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

/// Returns the description of a result code, as kvstore_strerror gives it.
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

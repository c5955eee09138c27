//! An embedded, ordered key-value store with per-key TTL, in one SQLite file.
//!
//! kvstore runs inside the program that uses it: there is no server to start. Keys and values are
//! byte strings. Keys are kept in byte order, so a store can be scanned by prefix and by range.
//! Each key can have an expiry time; an expired key is never returned. Several processes can use
//! one file at the same time. In builds with the feature `remote`, the same API also works on a
//! PostgreSQL server.
//!
//! # When not to use it
//!
//! - For queries over values, joins or secondary indexes: use SQLite itself.
//! - For many writers that must commit in parallel: a file has one writer at a time.
//! - For a file on a network file system: the locks of SQLite do not work reliably there.
//! - For values above 512 MiB ([`MAX_VALUE_SIZE`]): store them as files.
//!
//! # Quick start
//!
//! ```
//! use std::time::Duration;
//!
//! # let directory = tempfile::tempdir().map_err(|_| ()).unwrap();
//! # let path = directory.path().join("app.db");
//! let store = kvstore::Store::open(path)?;
//! store.put("user:1", "Ada")?;
//! store.put_with_ttl("otp:1", "123456", Duration::from_secs(30))?;
//! assert_eq!(store.get("user:1")?.as_deref(), Some(&b"Ada"[..]));
//!
//! let sessions = store.create_family("sessions")?;
//! store.transaction(|tx| {
//!     sessions.put("a", "1")?;
//!     tx.delete("user:1").map(drop)
//! })?;
//! for entry in store.prefix("otp:") {
//!     let (key, value) = entry?;
//!     println!("{} bytes under {:?}", value.len(), key);
//! }
//! store.purge_expired()?;
//! # Ok::<(), kvstore::Error>(())
//! ```
//!
//! # Families
//!
//! A *family* is a separate ordered set of keys within a store, with settings of its own: a
//! [default TTL](Family::set_default_ttl) and [write tracking](Family::set_write_tracking). Other
//! stores call it a column family, table, bucket or partition; the C API of this library says
//! `KVColumnFamily` and `kvstore_cf_*`. Every store has a family named `default`. [`Store`]
//! dereferences to that family, so `store.put(…)` writes to it. Transactions, snapshots and batches
//! cover all families of a store.
//!
//! # TTL and expiry time
//!
//! - A *TTL* is a duration: how long a key is to live. An *expiry time* is a point in time, in
//!   milliseconds since the Unix epoch ([`Expiry`]). The file stores expiry times.
//! - A key is expired from its expiry time on (`expire_ms <= now`), whichever handle or process set
//!   its TTL. Reads and iterators then skip it. Only [`Family::count`], [`Family::count_with_ttl`]
//!   and [`Family::expiry_cursor`] include expired rows that have not been removed yet.
//! - [`put`](Family::put) removes the TTL of a key, or replaces it by the default TTL of the
//!   family.
//! - Fractions of a millisecond are rounded up, so a key never expires early.
//! - The row of an expired key stays in the file until something removes it: a write to the key, a
//!   purge, or a read that finds it and notes it for removal. Purge with [`Family::purge_expired`]
//!   (one family), [`Store::purge_step`] (all families) or [`Store::start_cleaner`] (a thread).
//! - If the system clock is set back by at most a second, the time of a store stands still until
//!   the system clock has caught up. If the system clock is set back by more, the time of the store
//!   follows it. A store on a server uses the clock of the server.
//!
//! The reference `docs/reference/ttl.md` lists the effect of every call on a TTL.
//!
//! # Errors
//!
//! Every fallible function returns [`Error`], whose [`kind`](Error::kind) a program can match. A
//! failed call changes nothing, unless its documentation says otherwise. Messages never contain
//! keys or values. The documentation of the functions refers to two lists:
//!
//! - **Read errors**, which every read can return: [`Busy`](ErrorKind::Busy) (a lock, in DELETE
//!   journal mode), [`Locked`](ErrorKind::Locked), [`NoMemory`](ErrorKind::NoMemory),
//!   [`Io`](ErrorKind::Io), [`Corrupt`](ErrorKind::Corrupt), [`Protocol`](ErrorKind::Protocol), and
//!   [`Misuse`](ErrorKind::Misuse) if the handle is closed, was opened before a fork, or the caller
//!   is a callback that the same store is running.
//! - **Write errors**, which every write can return: the read errors, `Busy` also if another handle
//!   is writing, [`ReadOnly`](ErrorKind::ReadOnly) and [`Full`](ErrorKind::Full). In DELETE
//!   journal mode also [`CantOpen`](ErrorKind::CantOpen), without a file descriptor for the journal.
//!
//! For a store on a server, every call can also return [`CantOpen`](ErrorKind::CantOpen),
//! [`AuthFailed`](ErrorKind::AuthFailed) or `ReadOnly`, because a lost connection is opened again.
//! Failures of SQLite or of the server that have no kind of their own have the kind
//! [`Error`](ErrorKind::Error).
//!
//! # Threads, processes and forks
//!
//! [`Store`], [`Family`], [`Cursor`] and [`WriteBatch`] are `Send` and `Sync`. A store handle is
//! one connection behind a lock: calls of threads that share it run one after another. For parallel
//! reads, open one handle per thread. Several processes can open the same file; one of them writes
//! at a time.
//!
//! The library starts no thread unless [`Store::start_cleaner`] is called.
//!
//! After a fork, the child opens the store again. In the child, handles of the parent return
//! [`Misuse`](ErrorKind::Misuse). After a raw `clone` system call, call [`notify_fork`].
//!
//! # Durability
//!
//! A commit survives a crash of the program. With [`SyncLevel::Normal`] (the default) a power
//! failure can undo the last commits; with [`SyncLevel::Full`] it cannot. See [`SyncLevel`] and
//! [`Store::sync`].
//!
//! # Features
//!
//! - `encryption`: encrypted stores, with SQLCipher and the OpenSSL of the system.
//! - `encryption-vendored-openssl`: like `encryption`, with an OpenSSL that is built with this
//!   crate.
//! - `remote`: stores on a PostgreSQL server. [`Store::open`] then also takes `postgresql://` URLs.
//!
//! Without features, only files and stores in memory are supported. The C API in
//! `include/kvstore.h` is a thin layer over this one.
//!
//! # Other users of SQLite
//! The crate can be used in one program with rusqlite 0.32 to 0.43, sqlx, diesel and SeaORM: it
//! accepts their versions of `libsqlite3-sys`. [`sqlite_version`] returns the version that is
//! linked, and [`engine`] the storage engine, which depends on it.

#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]
#![warn(missing_docs, unreachable_pub)]
// The engine `sql` uses only a part of the modules that both engines share.
#![cfg_attr(not(kvstore_btree), allow(dead_code, unused_imports))]
// Code that a caller or a byte of a file can reach must not panic.
#![warn(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::undocumented_unsafe_blocks
)]

mod atomic;
mod backend;
mod clock;
mod config;
mod error;
mod expiry;
mod family;
mod ffi;
mod fork;
mod hint;
mod info;
mod location;
mod memory;
mod options;
mod recovery;
#[cfg(feature = "encryption")]
mod secret;
mod session;
mod stats;
mod store;
mod unwind;
mod wait;

pub(crate) use backend::{ENGINE, sqlite_version as linked_sqlite};
pub(crate) use clock::is_far_off;
pub use config::{
    CheckpointMode, Config, JournalMode, MAX_KEY_SIZE, MAX_PURGE_PER_WRITE, MAX_SERVER_KEY_SIZE,
    MAX_VALUE_SIZE, SyncLevel,
};
pub use error::{Error, ErrorKind, Result};
pub use expiry::{Expiry, ExpiryCondition, Ttl};
pub use family::{Cursor, Direction, Entry, EntryBatch, Family, Iter, KeyRange, PurgeStep, row_key};
pub(crate) use fork::{INHERITED, generation as fork_generation};
pub use hint::Hint;
pub use info::{FamilyInfo, FamilySizes, ServerInfo, ServerSizes, StoreInfo};
pub(crate) use location::path_of;
pub(crate) use memory::Destination;
pub use options::{Eviction, PutOptions, SizeLimit};
pub use recovery::{Loss, RecoverEvent, RecoverReport, recover};
#[cfg(feature = "encryption")]
pub use secret::Secret;
pub use stats::Stats;
pub use store::{CheckEvent, CheckReport, CopyReport, RepairEvent, Store, Transaction, WriteBatch};

/// Returns the current time of the system clock, in milliseconds since the Unix epoch.
///
/// If the system clock is set back by at most a second, the result stays the same until the system
/// clock has caught up. [`Store::now_ms`] returns the time of one store, which can have another
/// clock.
#[must_use]
pub fn now_ms() -> i64 {
    clock::system_now_ms()
}

/// Marks all existing handles as inherited. Call it in the child process after a raw `clone` system
/// call.
///
/// Afterwards, handles that the parent opened return [`Misuse`](ErrorKind::Misuse) in this process.
/// The call is not needed after `fork`, because a fork handler makes it. It has no effect on
/// Windows.
pub fn notify_fork() {
    backend::note_fork();
}

/// Sets the wait hook: a function that is called repeatedly while a call of this process waits for
/// a lock, and that ends the wait by returning `true`.
///
/// The waiting call then fails as it does when [`Config::busy_timeout`] is over, and changes
/// nothing. So a program can react to a signal, or to a cancelled task, during a long wait.
///
/// The function runs in the waiting thread, about every 40 milliseconds, and when a signal handler
/// has interrupted the wait for the answer of a server. It should keep returning `true` until the
/// call has returned, and must not use a store. If it panics, the wait ends. Calls that do not wait
/// never run it.
///
/// It applies to stores that are opened afterwards. There is one function for the whole process; a
/// second call replaces it.
pub fn set_wait_hook(ends: impl Fn() -> bool + Send + Sync + 'static) {
    wait::set_hook(Some(std::sync::Arc::new(ends)));
}

/// Removes the function that [`set_wait_hook`] has set. Waits for locks then last up to the busy
/// timeout.
pub fn clear_wait_hook() {
    wait::set_hook(None);
}

/// Functions for the command-line program `kvstore` and for the tests of this project. They may
/// change in any release.
#[doc(hidden)]
pub mod internal {
    use crate::{Result, SizeLimit, Store};

    pub use crate::location::{check_scheme, is_url, path_without_password};

    /// Sets the size limit of `store`, the target of a copy, to `limit`, inside the caller's write
    /// transaction. Fails if keys had to be evicted for the limit. For a store on a server this
    /// does nothing, because it has no size limit.
    ///
    /// # Errors
    /// As [`Store::set_size_limit`], and [`Full`](crate::ErrorKind::Full) if keys had to be
    /// evicted. After an error, the caller must roll the transaction back.
    pub fn take_size_limit(store: &Store, limit: SizeLimit) -> Result<()> {
        store.take_limit(limit)
    }

    /// Makes `store`, which is on a server, use `now_ms` as its clock. Times that the server sends
    /// afterwards are ignored.
    #[cfg(feature = "remote")]
    pub fn simulate_server_clock(store: &Store, now_ms: impl Fn() -> i64 + Send + Sync + 'static) {
        store.simulate_server_clock(now_ms);
    }
}

/// Version of this library, such as `"0.1.0"`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the version of the SQLite in this library, such as `"3.54.1"`.
#[must_use]
pub fn sqlite_version() -> &'static str {
    backend::sqlite_version().to_str().unwrap_or_default()
}

/// Returns the name of the storage engine of this build: `"sql"` or `"btree"`.
///
/// `"btree"` reads and writes rows through the B-tree functions of SQLite and is faster. `"sql"`
/// uses prepared statements; a build has it if its version of SQLite was not checked for `"btree"`.
#[must_use]
pub fn engine() -> &'static str {
    backend::ENGINE.to_str().unwrap_or_default()
}

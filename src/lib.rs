//! An embedded, ordered key-value store with native per-key expiry, in one SQLite file.
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
//! Expiry is exact on read: a key whose time has come is never returned, through whatever handle or
//! process the time was set (an iterator judges what it has read ahead by the times it has read). Dead rows are removed by the reads that meet them and by
//! [`Family::purge_expired`]; there is no background thread unless the cleaner is started.
//!
//! The C API (`include/kvstore.h`) is a thin layer over this one.
//!
//! **Forks.** The child of a fork opens the store anew, whatever its parent is doing with the file. The handles of
//! the parent answer [`Misuse`](ErrorKind::Misuse) in the child.

#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]
#![warn(missing_docs, unreachable_pub)]
// What a caller or a byte of a file can reach must not panic.
#![warn(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::undocumented_unsafe_blocks
)]

mod atomic;
mod clock;
mod config;
mod db;
mod error;
mod expiry;
mod family;
mod ffi;
mod fork;
mod info;
mod memory;
mod options;
mod place;
mod recovery;
#[cfg(feature = "encryption")]
mod secret;
mod shared;
mod store;
mod unwind;

pub(crate) use clock::is_far_off;
pub use config::{
    CheckpointMode, Config, JournalMode, MAX_KEY_SIZE, MAX_SERVER_KEY_SIZE, MAX_VALUE_SIZE, SyncLevel,
};
pub(crate) use db::{ENGINE, SQLITE_VERSION};
pub use error::{Error, ErrorKind, Result};
pub use expiry::{Expiry, ExpiryCondition, Ttl};
pub use family::{Cursor, Direction, Entry, EntryBatch, Family, Iter, KeyRange, PurgeStep, row_key};
pub(crate) use fork::{INHERITED, generation as fork_generation};
pub use info::{FamilyInfo, FamilySizes, ServerInfo, ServerSizes, StoreInfo};
pub use options::{Eviction, PutOptions, SizeLimit};
pub(crate) use place::path_of;
pub use recovery::{Loss, RecoverEvent, RecoverReport, recover};
#[cfg(feature = "encryption")]
pub use secret::Secret;
pub use shared::Stats;
pub use store::{CheckEvent, CheckReport, CopyReport, RepairEvent, Store, Transaction, WriteBatch};

/// The time the library uses: the system's, in milliseconds since the Unix epoch, but never less
/// than it was before in this process.
#[must_use]
pub fn now_ms() -> i64 {
    clock::system_now_ms()
}

/// For the child of a raw `clone` system call, which runs no handlers of `pthread_atfork`: makes the handles that are
/// there its parent's. After a `fork` nothing is left to do.
pub fn notify_fork() {
    db::note_fork();
}

/// Interfaces for this project's own command and tests; they may change in any release.
#[doc(hidden)]
pub mod internal {
    use crate::{Result, SizeLimit, Store};

    pub use crate::place::{is_url, path_without_password};

    /// Sets the size limit that a copied store had, inside the caller's write transaction, and evicts no key for it.
    /// A store on a server accepts no size limit; there this does nothing.
    ///
    /// # Errors
    /// As [`Store::set_size_limit`]; roll the transaction back then.
    pub fn take_size_limit(store: &Store, limit: SizeLimit) -> Result<()> {
        store.take_limit(limit)
    }

    /// Replaces the time that `store` assumes for its server between two answers of the server.
    #[cfg(feature = "remote")]
    pub fn simulate_server_clock(store: &Store, now_ms: impl Fn() -> i64 + Send + Sync + 'static) {
        store.simulate_server_clock(now_ms);
    }
}

/// The version of this library, such as `"0.1.0"`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of the embedded SQLite, such as `"3.54.1"`.
#[must_use]
pub fn sqlite_version() -> &'static str {
    db::SQLITE_VERSION.to_str().unwrap_or_default()
}

/// The row engine of this build: `"sql"` or `"btree"`.
#[must_use]
pub fn engine() -> &'static str {
    db::ENGINE.to_str().unwrap_or_default()
}

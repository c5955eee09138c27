//! Storage backends, and the interface that the layers above use.
//!
//! Each backend is a layer of its own. `db/file` is the SQLite backend: nothing outside it may use
//! SQLite's SQL or a type of rusqlite.
//!
//! The interface is in `home.rs`:
//!
//! - [`Db`]: a connection, with its transactions and its maintenance.
//! - [`View`]: a connection as one operation uses it.
//! - [`Contents`]: the operations on a family. Each is a whole operation, such as "write this if
//!   the key is absent", or reads a [`Chunk`] of rows. The backend decides which tables it changes.

mod chunk;
mod file;
mod home;
#[cfg(feature = "remote")]
mod remote;
mod transaction;

use std::ops::Bound;

use crate::expiry::Expiry;
use crate::options::PutOptions;
pub(crate) use chunk::{Chunk, ChunkEntry, Limits};
pub(crate) use file::{
    DEFAULT_FAMILY, Disagreement, ENGINE, FORMAT_VERSION, FileIdentity, Removed, Report, SQLITE_VERSION,
    Tables, is_at, is_without_space, make_like, moved_away, note_fork, read_exact_at, rename_new,
    sync_directory, sync_file, with_signals_blocked,
};
#[cfg(feature = "remote")]
use file::{Mortal, watch_forks};
pub(crate) use home::{Contents, Db, Due, View};
pub(crate) use transaction::TransactionState;

/// Result of the lookup of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found<R> {
    Live(R),
    /// The row is expired by this `expire_ms`, and no earlier read has found it.
    Expired(i64),
    Missing,
}

impl<R> Found<R> {
    /// Returns the result for a live key; `None` for a key that is missing or expired.
    #[inline]
    pub(crate) fn live(self) -> Option<R> {
        match self {
            Found::Live(shown) => Some(shown),
            Found::Expired(_) | Found::Missing => None,
        }
    }
}

/// Expiry time and write time of a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) expiry: Expiry,
    /// Write time of the key, in milliseconds since the Unix epoch; `None` in a family without
    /// write tracking.
    pub(crate) written_ms: Option<i64>,
}

/// One write or deletion of a batch, which is committed as a whole.
#[derive(Clone, Copy)]
pub(crate) struct BatchWrite<'w> {
    pub(crate) family: &'w Tables,
    pub(crate) key: &'w [u8],
    /// Value to write, with its options; `None` deletes the key.
    ///
    /// The options are limited to expiry time and write time. Conditions, and keeping an expiry
    /// time, are for single puts.
    pub(crate) put: Option<(&'w [u8], &'w PutOptions)>,
}

/// Result of one step of a purge or a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Removals {
    /// Number of entries removed. 0 means that other clients have removed or locked all keys that
    /// were due.
    pub(crate) entries: u64,
    /// Number of removed keys that count for the caller: expired keys in a purge, live keys in a
    /// sweep.
    pub(crate) counted: u64,
}

/// Entry of an index by time: the time and the key.
pub(crate) type TimeEntry = (i64, Vec<u8>);

/// Range of keys to walk over, and the direction of the walk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scan<'a> {
    pub(crate) lower: Bound<&'a [u8]>,
    pub(crate) upper: Bound<&'a [u8]>,
    pub(crate) reverse: bool,
}

//! Where data is kept: what the rooms above see of it.
//!
//! Each home is a room of its own: `db/file` is SQLite, and nothing outside of it knows SQLite's SQL or a type of
//! rusqlite.
//!
//! The interface is in `home.rs`: [`Db`], a connection with its transactions and maintenance, the [`View`] an operation
//! has of it, and [`Contents`], the operations on a family: each a whole one, such as "write this if the key is absent",
//! or a [`Chunk`] of rows. Which tables it takes is for the home to know.

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
    Tables, gone, is_at, make_like, note_fork, read_exact_at, rename_new, sync_directory, sync_file,
};
#[cfg(feature = "remote")]
use file::{Mortal, watch_forks};
pub(crate) use home::{Contents, Db, Due, View};
pub(crate) use transaction::TransactionState;

/// What a look-up of a key has met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found<R> {
    Live(R),
    /// A row that is dead by this `expire_ms`, met for the first time.
    Expired(i64),
    Missing,
}

impl<R> Found<R> {
    /// What is shown of a live key.
    #[inline]
    pub(crate) fn live(self) -> Option<R> {
        match self {
            Found::Live(shown) => Some(shown),
            Found::Expired(_) | Found::Missing => None,
        }
    }
}

/// The times of a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) expiry: Expiry,
    /// When it was written, in a family that tracks that.
    pub(crate) written_ms: Option<i64>,
}

/// One of several writes that happen together.
#[derive(Clone, Copy)]
pub(crate) struct BatchWrite<'w> {
    pub(crate) family: &'w Tables,
    pub(crate) key: &'w [u8],
    /// The value, with its end of life and its time of writing; `None`: the key is deleted. A condition, or an end that a key
    /// keeps, is for single puts.
    pub(crate) put: Option<(&'w [u8], &'w PutOptions)>,
}

/// What a step of a purge or a sweep has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Removals {
    /// What is gone; with none, others have taken or hold all that was due.
    pub(crate) entries: u64,
    /// Those of them that count for the caller: of a purge the dead keys, of a sweep the live ones.
    pub(crate) counted: u64,
}

/// A key and the time it has in an index by time.
pub(crate) type TimeEntry = (i64, Vec<u8>);

/// Which keys to walk over, and in which direction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scan<'a> {
    pub(crate) lower: Bound<&'a [u8]>,
    pub(crate) upper: Bound<&'a [u8]>,
    pub(crate) reverse: bool,
}

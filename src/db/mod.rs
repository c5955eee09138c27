//! Where data is kept: what the rooms above see of it.
//!
//! There are two homes: `db/file` is SQLite, and nothing outside of it knows a type of rusqlite; `db/remote` is a PostgreSQL
//! server (feature `remote`), and nothing outside of it knows a type of tokio-postgres.
//!
//! The interface is [`Db`], a connection with its transactions and maintenance, and [`Contents`], the operations
//! on a family: each a whole one, such as "write this if the key is absent", or a [`Chunk`] of rows. Which tables it
//! takes is for the home to know.

mod chunk;
mod file;
#[cfg(feature = "remote")]
#[allow(dead_code)] // until the rooms above choose between the homes
mod remote;

use std::ops::Bound;

use crate::expiry::Expiry;
pub(crate) use chunk::{Chunk, ChunkEntry, Limits};
#[cfg(feature = "remote")]
use file::watch_forks;
pub(crate) use file::{
    Contents, DEFAULT_FAMILY, Db, Disagreement, Due, ENGINE, FORMAT_VERSION, FileIdentity, Removed, Report,
    SQLITE_VERSION, Tables, TransactionState, copy, gone, is_at, note_fork, rename_new,
};

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

/// A key and the time it has in an index by time.
pub(crate) type TimeEntry = (i64, Vec<u8>);

/// Which keys to walk over, and in which direction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scan<'a> {
    pub(crate) lower: Bound<&'a [u8]>,
    pub(crate) upper: Bound<&'a [u8]>,
    pub(crate) reverse: bool,
}

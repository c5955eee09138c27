//! Storage backends, and the interface that the layers above use.
//!
//! Each backend is a layer of its own. `backend/file` is the SQLite backend: no code outside it may
//! use SQLite's SQL or a type of rusqlite.
//!
//! The interface is [`Db`] in `dispatch.rs`: a connection to a store, and the operations on the
//! store. Each operation is complete in itself, such as "write this value if the key is absent", or
//! reads one [`Chunk`] of rows. The backend decides which tables an operation changes.

mod batch_write;
mod chunk;
mod dispatch;
mod due;
mod file;
mod operation;
#[cfg(feature = "remote")]
mod postgres;
mod transaction;

pub(crate) use batch_write::BatchWrite;
pub(crate) use chunk::{Chunk, ChunkEntry, Limits};
pub(crate) use dispatch::Db;
pub(crate) use due::Due;
pub(crate) use file::{
    DEFAULT_FAMILY, Disagreement, ENGINE, FORMAT_VERSION, FileIdentity, OpenHandle, RemovalList, Report,
    Tables, is_at, is_without_space, make_like, moved_away, note_fork, read_exact_at, rename_new,
    sqlite_version, start_thread, sync_directory, sync_file,
};
#[cfg(feature = "remote")]
use file::{Mortal, watch_forks};
pub(crate) use operation::{Found, Removals, Scan, StepLimits, TimeEntry, Times};
pub(crate) use transaction::TransactionState;

//! SQLite backend: a store in a file or in memory. Only this layer uses SQLite.
//!
//! Operations on families:
//! - [`store`]: how a call runs. A write runs in a transaction. After its commit, WAL frames are
//!   copied into the database if that is due. Start reading here.
//! - [`write`]: the writes, and which rows of which tables they change.
//! - [`read`]: the reads.
//! - [`chunk_builder`]: filling a chunk with the rows of a scan. [`expired_ranges`]: where scans skip
//!   expired rows.
//! - [`engine`]: operations on single rows, by SQL or by SQLite's B-tree functions.
//! - [`lazy_expiry`]: removal of expired rows that reads have found. [`pending_removals`] lists them.
//! - [`expiry_schedule`]: the search for families with expired keys. [`next_expiry_index`] keeps
//!   its state.
//! - [`removal`]: purges and sweeps. [`write_turn`] ends their transactions when a writer waits.
//! - [`catalogue`]: the families and their settings, which [`settings_cache`] keeps in memory.
//! - [`schema`]: names and definitions of the tables.
//! - [`limit`]: the size limit of a store, and eviction; [`quota`] is its state. [`uses`]: when keys
//!   were last used; [`use_notes`] are its notes in memory.
//!
//! Connections and files:
//! - [`open`]: opening. [`probe`] examines the file first. [`set_up`] prepares the connection and
//!   creates a new store; [`pragmas`] applies the settings.
//! - `connection`: a connection and its components. [`transaction`]: its transactions.
//! - [`checkpoint`]: checkpoints, after which the WAL starts over. [`checkpoint_schedule`]: when
//!   one is due. [`backfill`] copies the WAL into the database between checkpoints, in small parts.
//! - [`disk_space`]: disk space that is reserved for writes on a full disk. [`disk_reserve`] keeps
//!   its state.
//! - [`maintenance`]: sync, vacuum, check and repair.
//! - [`handle_registry`]: the other handles of this process on the same file.
//! - [`moved_file`]: detection of deleted, moved and replaced files.
//! - [`immutable`]: reading a store without creating files next to it. [`immutable_state`] is its
//!   state.
//! - [`wal_cleanup`]: removal of the files that a read-only handle leaves next to the database.
//! - [`backup`]: copying a store, page by page.
//! - `cipher`: the secret of an encrypted file.
//! - `rekey`: encryption and decryption in place. `rollback_journal` restores the old content after
//!   a crash.
//! - [`os`]: SQLite's use of the operating system.
//!
//! Inspection:
//! - [`integrity`]: the integrity check. [`schema_check`] compares tables with their definitions.
//! - [`repair`]: repair of tables that do not agree with each other.
//! - [`info`]: the description of a store.
//! - [`error`]: conversion of SQLite's errors.
//!
//! Operations get the current time as an argument: a number of milliseconds, or the clock of the
//! store. They read the clock only for a row that can expire.

mod backfill;
mod backup;
mod catalogue;
mod checkpoint;
mod checkpoint_schedule;
mod chunk_builder;
#[cfg(feature = "encryption")]
mod cipher;
mod connection;
mod disk_reserve;
mod disk_space;
mod engine;
mod error;
mod expired_ranges;
mod expiry_schedule;
mod handle_registry;
mod immutable;
mod immutable_state;
mod info;
mod integrity;
mod lazy_expiry;
mod limit;
mod maintenance;
mod moved_file;
mod next_expiry_index;
mod open;
mod os;
mod pending_removals;
mod pragmas;
mod probe;
mod quota;
mod read;
#[cfg(feature = "encryption")]
mod rekey;
mod removal;
mod repair;
#[cfg(feature = "encryption")]
mod rollback_journal;
mod schema;
mod schema_check;
mod set_up;
mod settings_cache;
mod store;
mod transaction;
mod use_notes;
mod uses;
mod wal_cleanup;
mod write;
mod write_turn;

pub(crate) use backup::copy;
pub(crate) use connection::Db;
pub(crate) use error::moved_away;
pub(crate) use handle_registry::OpenHandle;
pub(crate) use integrity::{Found as Disagreement, Report};
pub(crate) use os::refusal::is_without_space;
pub(crate) use os::{
    FileIdentity, is_at, make_like, note_fork, read_exact_at, rename_new, sqlite_version, start_thread,
    sync_directory, sync_file,
};
#[cfg(feature = "remote")]
pub(super) use os::{Mortal, set_up as watch_forks};
pub(crate) use removal::RemovalList;
pub(crate) use schema::{DEFAULT_FAMILY, FORMAT_VERSION, Tables};
#[cfg(all(test, feature = "remote"))]
pub(crate) use write::Contents;

/// Divisor of the page size. The result is the maximum total length of a key and its value, in
/// bytes, for which the value is stored inline: in the data row of the key. Longer values are
/// stored in the blob table of the family.
///
/// Measured with `benches/blob_threshold.rs`: reads of one key cost the same either way. Below the
/// threshold, scans are several times faster with inline values. Above it, random writes are
/// several times faster with values in the blob table.
const INLINE_PAGE_FRACTION: usize = 16;

/// Name of the storage engine that this build uses: `btree` if it was built with calls of SQLite's
/// B-tree functions, otherwise `sql`.
pub(crate) const ENGINE: &std::ffi::CStr = if engine::btree::IS_BUILT { c"btree" } else { c"sql" };

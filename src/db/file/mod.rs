//! A store in a file (or in memory): everything that knows SQLite.
//!
//! [`plan`] has what each operation on a family does to its tables, [`look_up`] what it reads of them, [`filling`]
//! which rows a chunk takes; [`connection`] runs transactions, [`checkpoint`] sees to it that the WAL begins anew and
//! [`write_back`] writes it back before that, [`maintenance`] keeps the file in order, [`catalogue`] knows the families
//! and [`agenda`] when something is due in them, [`limit`] makes room in a store that has one, [`dead`] removes together the dead rows that reads have met, [`open`]
//! opens the file after [`probe`] has looked at it, [`pragmas`] sets how, [`schema`] owns the tables, [`engine`] the
//! operations on single rows, [`integrity`] the check of it all, [`form`] whether the tables are as they are made, [`info`] what the store says of itself; [`watch`] notices that a file has lost its name,
//! [`frozen`] reads one where nothing can be written, `cipher` tells SQLCipher what a file is encrypted with, `convert`
//! encrypts and decrypts one in place, with `undo` to go back to, [`leftovers`] removes what reading leaves beside one. Time is an
//! argument: a moment, or the clock of the store, which is asked only for a row that can expire.

mod agenda;
mod backup;
mod catalogue;
mod checkpoint;
#[cfg(feature = "encryption")]
mod cipher;
mod connection;
#[cfg(feature = "encryption")]
mod convert;
mod dead;
mod disk_space;
mod engine;
mod failure;
mod filling;
mod form;
mod frozen;
mod info;
mod integrity;
mod leftovers;
mod limit;
mod look_up;
mod maintenance;
mod open;
mod os;
mod plan;
mod pragmas;
mod probe;
mod purge;
mod repair;
mod schema;
#[cfg(feature = "encryption")]
mod undo;
mod watch;
mod write_back;

pub(crate) use backup::copy;
pub(crate) use connection::Db;
pub(crate) use integrity::{Found as Disagreement, Report};
pub(crate) use limit::Removed;
pub(crate) use os::refusal::is_without_space;
pub(crate) use os::{
    FileIdentity, is_at, make_like, note_fork, read_exact_at, rename_new, sync_directory, sync_file,
    with_signals_blocked,
};
#[cfg(feature = "remote")]
pub(super) use os::{Mortal, set_up as watch_forks};
pub(crate) use plan::Contents;
pub(crate) use schema::{DEFAULT_FAMILY, FORMAT_VERSION, Tables};
pub(crate) use watch::gone;

/// A row with its value in line has at most this fraction of a page; longer values go to the blob table.
/// Measured with `benches/blob_threshold.rs`: reads of one key cost the same either way; below it scans
/// are several times faster in line, above it random writes are several times faster out of line.
const INLINE_PAGE_FRACTION: usize = 16;

/// The version of SQLite that is linked.
pub(crate) const SQLITE_VERSION: &std::ffi::CStr = rusqlite::ffi::SQLITE_VERSION;

/// The engine row operations go through.
pub(crate) const ENGINE: &std::ffi::CStr = if cfg!(kvstore_btree) { c"btree" } else { c"sql" };

//! The only place that knows SQLite.
//!
//! [`connection`] opens the file and runs transactions and maintenance, [`schema`] owns the tables,
//! [`engine`] the row operations of a family, [`integrity`] the check of it all. Nothing here reads
//! the clock: time is always an argument.

mod backup;
mod connection;
mod engine;
mod integrity;
mod open;
mod schema;

pub(crate) use backup::copy;
pub(crate) use connection::{Db, Transaction};
pub(crate) use engine::{Engine, Head, Row, Scan, Step, TimeIndex, from_time};
pub(crate) use schema::{DEFAULT_FAMILY, Tables};

/// The version of SQLite that is linked.
pub(crate) const SQLITE_VERSION: &std::ffi::CStr = rusqlite::ffi::SQLITE_VERSION;

/// The engine row operations go through.
pub(crate) const ENGINE: &std::ffi::CStr = if cfg!(kvstore_btree) { c"btree" } else { c"sql" };

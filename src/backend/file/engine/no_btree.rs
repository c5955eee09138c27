//! Stand-in for the `btree` engine in a build without it (`KVSTORE_ENGINE=sql`).
//!
//! Its types have the methods of the `btree` engine that other files call, but no values: a
//! connection never has this engine, and the compiler removes the calls.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::Connection;

use super::sql::SqlEngine;
use crate::backend::file::connection::Db;
use crate::backend::file::os::Presence;
use crate::backend::file::schema::{Settings, Tables};
use crate::config::JournalMode;
use crate::error::Result;

/// Whether this build has the `btree` engine.
pub(in crate::backend::file) const IS_BUILT: bool = false;

/// Stand-in for the cache of root pages, which only the `btree` engine uses.
#[derive(Debug, Default)]
pub(in crate::backend::file) struct RootCache(());

/// Stand-in for the state of a connection that uses B-trees without SQL. It has no values.
pub(in crate::backend::file) enum BtreeConnection {}

/// Returns `None`: this build cannot read the number.
pub(in crate::backend::file) fn greatest_root(_: &Connection) -> Option<u32> {
    None
}

/// Stand-in for the catalogue of families, as the `btree` engine reads it. It has no values.
pub(in crate::backend::file) enum Catalogue {}

/// Stand-in for the policy for keeping snapshots between reads, which only the `btree` engine uses.
pub(in crate::backend::file) enum Keep {
    Never,
    Always,
}

impl Keep {
    pub(in crate::backend::file) fn while_alone(_: &Arc<Presence>) -> Keep {
        Keep::Never
    }
}

#[derive(Clone, Copy)]
pub(in crate::backend::file) struct BtreeEngine<'c> {
    pub(in crate::backend::file) db: &'c Db,
    pub(in crate::backend::file) btree: &'c BtreeConnection,
}

impl<'c> BtreeEngine<'c> {
    pub(super) fn begin_operation(
        self,
        _: &Tables,
    ) -> Result<std::result::Result<SqlEngine<'c>, SqlEngine<'c>>> {
        match *self.btree {}
    }
}

/// Defines methods of a type that has no values, so that they are never called.
macro_rules! never_called {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        $(
            pub(in crate::backend::file) fn $name(&self, $(_: $argument),*) -> $result {
                match *self {}
            }
        )*
    };
}

impl BtreeConnection {
    /// Returns `None`: this build has no `btree` engine.
    #[allow(clippy::unnecessary_wraps, reason = "the `btree` engine can fail")]
    pub(in crate::backend::file) fn new(_: &Connection) -> Result<Option<BtreeConnection>> {
        Ok(None)
    }

    pub(in crate::backend::file) fn meta<const N: usize>(
        &self,
        _: &Db,
        _: [&str; N],
    ) -> Result<Option<[Option<i64>; N]>> {
        match *self {}
    }

    never_called! {
        begin_write() -> Result<bool>;
        attach_sql_transaction() -> Result<()>;
        catalogue(&Db) -> Result<Option<Catalogue>>;
        commit() -> Result<Option<u32>>;
        commits_of_others() -> u32;
        configure(i32, i64) -> ();
        create_blob_table(&Db, &Tables) -> Result<bool>;
        create_family(&Db, &Tables, i64) -> Result<bool>;
        create_ttl_tables(&Db, &Tables) -> Result<bool>;
        epoch() -> u32;
        is_writing() -> bool;
        journal_mode() -> Option<JournalMode>;
        limit_journal(u64) -> ();
        limit_pages(u32) -> ();
        list_is_plain(&Db) -> Result<bool>;
        yield_to_sql(&Connection) -> Result<()>;
        marks(&Db) -> Result<(i32, i32)>;
        page_size() -> u64;
        pages() -> u32;
        pages_of_tables(&Db) -> Result<Option<HashMap<u32, u64>>>;
        read_first() -> Result<()>;
        rollback() -> ();
        rolled_back() -> ();
        size(&Db) -> Result<(u32, u32)>;
        take_pages_off(u32) -> Result<()>;
        version_now(&Db) -> Result<u32>;
    }

    pub(in crate::backend::file) fn follow(&mut self, _: u32) {
        match *self {}
    }

    pub(in crate::backend::file) fn set_long(&mut self, _: u32) {
        match *self {}
    }

    pub(in crate::backend::file) fn watch(&mut self, _: &Connection, _: bool, _: Keep, _: u32) {
        match *self {}
    }
}

impl Catalogue {
    never_called! {
        find(&str) -> Result<Option<Settings>>;
        names() -> Result<Vec<String>>;
    }
}

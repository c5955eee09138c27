//! Row operations, by the storage engine of the connection.
//!
//! An engine reads and writes single rows of one family's tables inside whatever transaction the
//! connection is in. It never begins or ends a transaction and never changes the schema. It makes
//! no decisions: `write.rs` knows which rows belong together.

#[cfg(kvstore_btree)]
pub(super) mod btree;
mod interface;
#[cfg(not(kvstore_btree))]
pub(super) mod no_btree;
mod row;
pub(super) mod sql;
mod statements;

use super::chunk_builder::Filling;
use super::connection::Db;
use super::schema::Tables;
use crate::backend::Scan;
use crate::error::Result;
pub(super) use interface::Engine;
#[cfg(not(kvstore_btree))]
pub(super) use no_btree as btree;
pub(super) use row::{Head, Row, RowView, Step, TimeIndex, from_time};
pub(super) use statements::Statements;

impl Db {
    /// Returns the storage engine, which performs the row operations.
    #[inline]
    pub(super) fn rows(&self) -> Rows<'_> {
        if let Some(btree) = &self.btree {
            return Rows::Btree(btree::BtreeEngine { db: self, btree });
        }
        Rows::Sql(sql::SqlEngine { db: self })
    }
}

/// Storage engine of a connection, which reads and writes rows: by SQL, or by calls of SQLite's
/// B-tree functions.
pub(super) enum Rows<'c> {
    Sql(sql::SqlEngine<'c>),
    Btree(btree::BtreeEngine<'c>),
}

/// Calls an operation of the connection's storage engine on the tables `$tables`. The `btree`
/// engine leaves tables that it cannot handle to the `sql` engine; this is decided once per
/// operation.
macro_rules! either {
    ($rows:expr, $tables:expr, $engine:ident => $call:expr) => {
        match $rows {
            Rows::Sql($engine) => $call,
            Rows::Btree(btree) => match btree.begin_operation($tables)? {
                Ok($engine) => $call,
                Err($engine) => $call,
            },
        }
    };
}

impl<'c> Rows<'c> {
    fn db(&self) -> &'c Db {
        match self {
            Rows::Sql(engine) => engine.db,
            Rows::Btree(engine) => engine.db,
        }
    }

    /// Deletes every row of every table of the family, by SQL in both engines.
    pub(super) fn clear(&self, tables: &Tables) -> Result<()> {
        match self {
            Rows::Sql(engine) => engine.clear(tables),
            Rows::Btree(btree) => sql::SqlEngine { db: btree.db }.clear(tables),
        }
    }
}

impl Engine for Rows<'_> {
    #[inline]
    fn get<R>(
        &self,
        tables: &Tables,
        key: &[u8],
        visit: impl FnOnce(RowView<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        either!(self, tables, engine => engine.get(tables, key, visit))
    }

    #[inline]
    fn head(&self, tables: &Tables, key: &[u8]) -> Result<Option<Head>> {
        either!(self, tables, engine => engine.head(tables, key))
    }

    fn put_plain(&self, tables: &Tables, key: &[u8], value: &[u8]) -> Result<bool> {
        either!(self, tables, engine => engine.put_plain(tables, key, value))
    }

    fn put(&self, tables: &Tables, key: &[u8], row: Row<'_>) -> Result<()> {
        either!(self, tables, engine => engine.put(tables, key, row))
    }

    fn delete_plain(&self, tables: &Tables, key: &[u8]) -> Result<bool> {
        either!(self, tables, engine => engine.delete_plain(tables, key))
    }

    fn delete(&self, tables: &Tables, key: &[u8]) -> Result<()> {
        either!(self, tables, engine => engine.delete(tables, key))
    }

    fn scan(
        &self,
        tables: &Tables,
        scan: Scan<'_>,
        visit: impl FnMut(&[u8], RowView<'_>) -> Result<Step>,
    ) -> Result<bool> {
        either!(self, tables, engine => engine.scan(tables, scan, visit))
    }

    fn fill(&self, tables: &Tables, scan: Scan<'_>, filling: &mut Filling<'_>) -> Result<()> {
        either!(self, tables, engine => engine.fill(tables, scan, filling))
    }

    fn count(&self, tables: &Tables) -> Result<u64> {
        either!(self, tables, engine => engine.count(tables))
    }

    fn blob<R>(&self, tables: &Tables, id: i64, visit: impl FnOnce(&[u8]) -> R) -> Result<R> {
        either!(self, tables, engine => engine.blob(tables, id, visit))
    }

    fn blob_insert(&self, tables: &Tables, value: &[u8]) -> Result<Option<i64>> {
        either!(self, tables, engine => engine.blob_insert(tables, value))
    }

    fn blob_insert_at(&self, tables: &Tables, id: i64, value: &[u8]) -> Result<bool> {
        either!(self, tables, engine => engine.blob_insert_at(tables, id, value))
    }

    fn blob_update(&self, tables: &Tables, id: i64, value: &[u8]) -> Result<()> {
        either!(self, tables, engine => engine.blob_update(tables, id, value))
    }

    fn blob_delete(&self, tables: &Tables, id: i64) -> Result<()> {
        either!(self, tables, engine => engine.blob_delete(tables, id))
    }

    fn index(&self, tables: &Tables, key: &[u8], old: Option<i64>, new: Option<i64>) -> Result<bool> {
        if old == new {
            return Ok(true);
        }
        if let Some(expire_ms) = new {
            self.db().time_set(tables, TimeIndex::Expiry, expire_ms);
        }
        either!(self, tables, engine => engine.index(tables, key, old, new))
    }

    fn set_expiry(&self, tables: &Tables, key: &[u8], expire_ms: Option<i64>) -> Result<()> {
        either!(self, tables, engine => engine.set_expiry(tables, key, expire_ms))
    }

    fn index_written(&self, tables: &Tables, key: &[u8], old: Option<i64>, new: Option<i64>) -> Result<bool> {
        if old == new {
            return Ok(true);
        }
        if let Some(written_ms) = new {
            self.db().time_set(tables, TimeIndex::Written, written_ms);
        }
        either!(self, tables, engine => engine.index_written(tables, key, old, new))
    }

    fn drop_time_entry(&self, tables: &Tables, index: TimeIndex, time_ms: i64, key: &[u8]) -> Result<bool> {
        either!(self, tables, engine => engine.drop_time_entry(tables, index, time_ms, key))
    }

    fn by_time(
        &self,
        tables: &Tables,
        index: TimeIndex,
        after: (i64, &[u8]),
        visit: impl FnMut(i64, &[u8]) -> Result<Step>,
    ) -> Result<()> {
        either!(self, tables, engine => engine.by_time(tables, index, after, visit))
    }

    fn count_expired(&self, tables: &Tables, now_ms: i64) -> Result<u64> {
        either!(self, tables, engine => engine.count_expired(tables, now_ms))
    }
}

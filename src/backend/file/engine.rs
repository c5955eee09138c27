//! Row operations: the interface that the storage engines implement.
//!
//! An engine reads and writes single rows of one family's tables inside whatever transaction the
//! connection is in. It never begins or ends a transaction and never changes the schema. It makes
//! no decisions: `write.rs` knows which rows belong together.

#[cfg(kvstore_btree)]
pub(super) mod btree;
mod row;
pub(super) mod sql;
mod statements;

use super::chunk_builder::Filling;
use super::error::damaged;
use super::schema::Tables;
use crate::backend::Scan;
use crate::error::{Error, Result};
pub(super) use row::{Head, Row, Step, TimeIndex, from_time};
pub(super) use statements::Statements;

/// Data row as read, borrowed from the snapshot in which it was found.
///
/// A visitor that receives a row must not write to the store while it uses the row: the row may
/// borrow SQLite's own memory.
pub(super) struct RowView<'a> {
    pub(super) values: LargeValues<'a>,
    pub(super) tables: &'a Tables,
    pub(super) inline: Option<&'a [u8]>,
    /// Key and inline value as one slice, if they are contiguous in memory.
    pub(super) joined: Option<&'a [u8]>,
    pub(super) head: Head,
}

impl RowView<'_> {
    #[inline]
    pub(super) fn head(&self) -> Head {
        self.head
    }

    /// Returns key and value as one slice, if they are contiguous in memory.
    #[inline]
    pub(super) fn key_and_value(&self) -> Option<&[u8]> {
        self.joined
    }

    /// Passes the value to `visit`. A large value is read only now.
    pub(super) fn value<R>(&self, visit: impl FnOnce(&[u8]) -> R) -> Result<R> {
        match (self.inline, self.head.blob_id) {
            (Some(value), _) => Ok(visit(value)),
            (None, Some(id)) => match self.values {
                LargeValues::Sql(engine) => engine.blob(self.tables, id, visit),
                #[cfg(kvstore_btree)]
                LargeValues::Btree(engine) => engine.blob(self.tables, id, visit),
            },
            (None, None) => Err(damaged(format!(
                "a row of family \"{}\" has neither a value nor a blob_id",
                self.tables.family()
            ))),
        }
    }
}

/// Storage engine that reads the large value of a row.
#[derive(Clone, Copy)]
pub(super) enum LargeValues<'a> {
    Sql(sql::SqlEngine<'a>),
    #[cfg(kvstore_btree)]
    Btree(&'a btree::Visit<'a>),
}

fn dangling(tables: &Tables) -> Error {
    damaged(format!("a blob_id of family \"{}\" refers to no row of its blob table", tables.family()))
}

fn out_of_order(tables: &Tables) -> Error {
    damaged(format!(
        "a time index of family \"{}\" is out of order: an entry that a scan shows cannot be looked up",
        tables.family()
    ))
}

fn wrong_type(tables: &Tables, column: &str) -> Error {
    damaged(format!("a {column} in family \"{}\" has the wrong type", tables.family()))
}

/// Row operations on the tables of a family, as a storage engine implements them.
///
/// The key index, the expiry index, the table of write times and the blob table are created when
/// first needed. An operation that reads or deletes treats a missing table as an empty one. An
/// operation that inserts into a missing table returns `None` or `false`. The caller then creates
/// the table and calls the operation again.
pub(super) trait Engine: Sized {
    /// Passes the row of a key to `visit`. Returns `None` if the key has no row.
    fn get<R>(
        &self,
        tables: &Tables,
        key: &[u8],
        visit: impl FnOnce(RowView<'_>) -> Result<R>,
    ) -> Result<Option<R>>;

    /// Returns the row of a key without its value; `None` if the key has no row.
    fn head(&self, tables: &Tables, key: &[u8]) -> Result<Option<Head>>;

    /// Writes a row that has only an inline value, if the key is new or its old row has only an
    /// inline value, too. Otherwise changes nothing and returns `false`.
    fn put_plain(&self, tables: &Tables, key: &[u8], value: &[u8]) -> Result<bool>;

    /// Writes a row, and replaces an existing row of the key.
    fn put(&self, tables: &Tables, key: &[u8], row: Row<'_>) -> Result<()>;

    /// Deletes the row of a key if it has only an inline value. Otherwise changes nothing and
    /// returns `false`.
    fn delete_plain(&self, tables: &Tables, key: &[u8]) -> Result<bool>;

    /// Deletes the row of a key, if there is one.
    fn delete(&self, tables: &Tables, key: &[u8]) -> Result<()>;

    /// Passes rows in key order to `visit`, until `visit` stops the scan or the range ends. Returns
    /// `true` if the range ended.
    fn scan(
        &self,
        tables: &Tables,
        scan: Scan<'_>,
        visit: impl FnMut(&[u8], RowView<'_>) -> Result<Step>,
    ) -> Result<bool>;

    /// Fills a chunk with the next rows of a scan, until it has enough or the range ends.
    fn fill(&self, tables: &Tables, scan: Scan<'_>, filling: &mut Filling<'_>) -> Result<()> {
        self.scan(tables, scan, |key, row| filling.row(key, &row)).map(drop)
    }

    /// Returns the number of rows, including expired rows.
    fn count(&self, tables: &Tables) -> Result<u64>;

    /// Passes a large value to `visit`. Fails if there is no large value with this id.
    fn blob<R>(&self, tables: &Tables, id: i64, visit: impl FnOnce(&[u8]) -> R) -> Result<R>;

    /// Stores a large value and returns its id; `None` if the table does not exist yet.
    fn blob_insert(&self, tables: &Tables, value: &[u8]) -> Result<Option<i64>>;

    /// Stores a large value under an id, if the table exists and the id is free. Returns `true` if
    /// the value was stored.
    fn blob_insert_at(&self, tables: &Tables, id: i64, value: &[u8]) -> Result<bool>;

    /// Overwrites the large value with this id. Fails if there is none.
    fn blob_update(&self, tables: &Tables, id: i64, value: &[u8]) -> Result<()>;

    /// Deletes the large value with this id, if there is one.
    fn blob_delete(&self, tables: &Tables, id: i64) -> Result<()>;

    /// Changes the entries of a key in the key index and the expiry index from `old` to `new`,
    /// which differ. Returns `false` and changes nothing if the tables do not exist yet.
    fn index(&self, tables: &Tables, key: &[u8], old: Option<i64>, new: Option<i64>) -> Result<bool>;

    /// Changes the `expire_ms` of a row, and nothing else.
    fn set_expiry(&self, tables: &Tables, key: &[u8], expire_ms: Option<i64>) -> Result<()>;

    /// Changes the entry of a key in the index of write times from `old` to `new`, which differ.
    /// Returns `false` and changes nothing if the table does not exist yet.
    fn index_written(&self, tables: &Tables, key: &[u8], old: Option<i64>, new: Option<i64>) -> Result<bool>;

    /// Removes an entry of a time index that `by_time` has returned.
    ///
    /// Fails if the entry is not found: then the index is out of order, and `by_time` would return
    /// the entry forever.
    fn drop_time_entry(&self, tables: &Tables, index: TimeIndex, time_ms: i64, key: &[u8]) -> Result<()>;

    /// Passes the entries of a time index that come after `after` to `visit`, as `(time, key)`, in
    /// order.
    fn by_time(
        &self,
        tables: &Tables,
        index: TimeIndex,
        after: (i64, &[u8]),
        visit: impl FnMut(i64, &[u8]) -> Result<Step>,
    ) -> Result<()>;

    /// Returns the number of entries of the expiry index with a time of at most `now_ms`.
    fn count_expired(&self, tables: &Tables, now_ms: i64) -> Result<u64>;
}

/// Storage engine of a connection.
pub(super) enum Rows<'c> {
    Sql(sql::SqlEngine<'c>),
    #[cfg(kvstore_btree)]
    Btree(btree::BtreeEngine<'c>),
}

/// Calls an operation of the engine that can handle these tables. The engine is chosen once per
/// operation.
macro_rules! either {
    ($rows:expr, $tables:expr, $engine:ident => $call:expr) => {
        match $rows {
            Rows::Sql($engine) => $call,
            #[cfg(kvstore_btree)]
            Rows::Btree(btree) => match btree.enter($tables)? {
                Ok($engine) => $call,
                Err($engine) => $call,
            },
        }
    };
}

impl<'c> Rows<'c> {
    fn db(&self) -> &'c super::connection::Db {
        match self {
            Rows::Sql(engine) => engine.db,
            #[cfg(kvstore_btree)]
            Rows::Btree(engine) => engine.db,
        }
    }

    /// Deletes every row of every table of the family, by SQL in both engines.
    pub(super) fn clear(&self, tables: &Tables) -> Result<()> {
        match self {
            Rows::Sql(engine) => engine.clear(tables),
            #[cfg(kvstore_btree)]
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

    fn drop_time_entry(&self, tables: &Tables, index: TimeIndex, time_ms: i64, key: &[u8]) -> Result<()> {
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

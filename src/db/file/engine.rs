//! Row operations: the one interface under which the engines sit.
//!
//! An engine reads and writes single rows of one family's tables inside whatever transaction the
//! connection is in. It never begins or ends one, never touches the schema, and decides nothing:
//! which rows belong together is the knowledge of `plan.rs`.

#[cfg(kvstore_btree)]
pub(super) mod btree;
pub(super) mod sql;

use super::failure::damaged;
use super::filling::Filling;
use super::schema::Tables;
use crate::db::Scan;
use crate::error::{Error, Result};

/// Data row without its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// Expiry time of the row, in milliseconds since the Unix epoch; `None` if it never expires.
    pub(super) expire_ms: Option<i64>,
    /// Id of the row with the value in the table of large values; `None` if the value is inline.
    pub(super) blob_id: Option<i64>,
    /// Time at which the row was written; `None` in a family without write tracking.
    pub(super) written_ms: Option<i64>,
}

/// Data row to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    /// Inline value; `None` if `head.blob_id` names a large value.
    pub(super) value: Option<&'a [u8]>,
    pub(super) head: Head,
}

/// Data row as read, borrowed from the snapshot in which it was found.
///
/// Whoever is shown a row must not write to the store meanwhile: the row may be where SQLite keeps it.
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

/// Result of a visitor of rows: what the scan does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Continue,
    Stop,
}

/// Index that orders keys by a time: expiry time or write time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeIndex {
    /// By `expire_ms`.
    Expiry,
    /// By `written_ms`.
    Written,
}

/// Returns the start position of a walk over an index by time: the first entry at or after
/// `time_ms`.
pub(super) fn from_time(time_ms: i64) -> (i64, &'static [u8]) {
    (time_ms, &[]) // no key is empty
}

/// Row operations on the tables of a family, as a storage engine implements them.
///
/// The two index tables and the blob table are made only when first needed. An operation that
/// reads them treats a missing table as an empty one; one that writes them says so (`None`,
/// `false`), and the caller makes the table and calls again.
pub(super) trait Engine: Sized {
    /// Finds a row and shows it.
    fn get<R>(
        &self,
        tables: &Tables,
        key: &[u8],
        visit: impl FnOnce(RowView<'_>) -> Result<R>,
    ) -> Result<Option<R>>;

    /// Finds a row without its value.
    fn head(&self, tables: &Tables, key: &[u8]) -> Result<Option<Head>>;

    /// Writes a row that has nothing but an inline value, if the key is new or its old row is of
    /// that sort, too; otherwise changes nothing and says `false`.
    fn put_plain(&self, tables: &Tables, key: &[u8], value: &[u8]) -> Result<bool>;

    /// Writes a row, replacing an old one.
    fn put(&self, tables: &Tables, key: &[u8], row: Row<'_>) -> Result<()>;

    /// Deletes a row that has nothing but an inline value; otherwise changes nothing and says `false`.
    fn delete_plain(&self, tables: &Tables, key: &[u8]) -> Result<bool>;

    /// Deletes a row.
    fn delete(&self, tables: &Tables, key: &[u8]) -> Result<()>;

    /// Shows rows in key order until the visitor or the range ends; says whether the range did.
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

    /// Number of rows, expired ones included.
    fn count(&self, tables: &Tables) -> Result<u64>;

    /// Shows a large value. It must be there.
    fn blob<R>(&self, tables: &Tables, id: i64, visit: impl FnOnce(&[u8]) -> R) -> Result<R>;

    /// Stores a large value and gives its id; `None`: the table is not made yet.
    fn blob_insert(&self, tables: &Tables, value: &[u8]) -> Result<Option<i64>>;

    /// Stores a large value under an id, if that is free; says whether it was.
    fn blob_insert_at(&self, tables: &Tables, id: i64, value: &[u8]) -> Result<bool>;

    /// Overwrites a large value in its place.
    fn blob_update(&self, tables: &Tables, id: i64, value: &[u8]) -> Result<()>;

    fn blob_delete(&self, tables: &Tables, id: i64) -> Result<()>;

    /// Changes a key's entries in the two index tables from `old` to `new`, which are not the same; `false`: the
    /// tables are not made yet, and nothing was changed.
    fn index(&self, tables: &Tables, key: &[u8], old: Option<i64>, new: Option<i64>) -> Result<bool>;

    /// Changes the `expire_ms` of a row, and nothing else.
    fn set_expiry(&self, tables: &Tables, key: &[u8], expire_ms: Option<i64>) -> Result<()>;

    /// Changes a key's entry in the index of write times from `old` to `new`, which are not the same; `false`: the
    /// table is not made yet, and nothing was changed.
    fn index_written(&self, tables: &Tables, key: &[u8], old: Option<i64>, new: Option<i64>) -> Result<bool>;

    /// Removes one entry of an index by time, which a walk has shown: if it is not found now, the index is
    /// out of order, and a walk would show it for ever.
    fn drop_time_entry(&self, tables: &Tables, index: TimeIndex, time_ms: i64, key: &[u8]) -> Result<()>;

    /// Shows the entries of an index by time that come after `after`, as `(time, key)`, in order.
    fn by_time(
        &self,
        tables: &Tables,
        index: TimeIndex,
        after: (i64, &[u8]),
        visit: impl FnMut(i64, &[u8]) -> Result<Step>,
    ) -> Result<()>;

    /// Number of entries of the expiry index up to `now_ms`.
    fn count_expired(&self, tables: &Tables, now_ms: i64) -> Result<u64>;
}

/// Storage engine of a connection.
pub(super) enum Rows<'c> {
    Sql(sql::SqlEngine<'c>),
    #[cfg(kvstore_btree)]
    Btree(btree::BtreeEngine<'c>),
}

/// Runs an operation on the engine for these tables, which is chosen here, once for each operation.
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

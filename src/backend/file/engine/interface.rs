//! Interface that the storage engines implement.

use super::row::{Head, Row, RowView, Step, TimeIndex};
use crate::backend::Scan;
use crate::backend::file::chunk_builder::Filling;
use crate::backend::file::error::damaged;
use crate::backend::file::schema::Tables;
use crate::error::{Error, Result};

/// Row operations on the tables of a family, as a storage engine implements them.
///
/// The key index, the expiry index, the table of write times and the blob table are created when
/// first needed. An operation that reads or deletes treats a missing table as an empty one. An
/// operation that inserts into a missing table returns `None` or `false`. The caller then creates
/// the table and calls the operation again.
pub(in crate::backend::file) trait Engine: Sized {
    /// Passes the row of a key to `visit`, and returns the result of `visit`; `None` if the key has
    /// no row.
    fn get<R>(
        &self,
        tables: &Tables,
        key: &[u8],
        visit: impl FnOnce(RowView<'_>) -> Result<R>,
    ) -> Result<Option<R>>;

    /// Returns the times and the blob id of a key's row; `None` if the key has no row.
    fn head(&self, tables: &Tables, key: &[u8]) -> Result<Option<Head>>;

    /// Writes a row with an inline value, no times and no blob id, and returns `true`. If the key
    /// has a row with a time or a blob id, changes nothing and returns `false`.
    fn put_plain(&self, tables: &Tables, key: &[u8], value: &[u8]) -> Result<bool>;

    /// Writes a row, and replaces an existing row of the key.
    fn put(&self, tables: &Tables, key: &[u8], row: Row<'_>) -> Result<()>;

    /// Deletes the row of a key if the row has only an inline value, no times and no blob id.
    /// Otherwise, or if the key has no row, changes nothing and returns `false`.
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

    /// Adds the rows of a scan to a chunk by `filling`, until the chunk is full or the range of the
    /// scan ends.
    fn fill(&self, tables: &Tables, scan: Scan<'_>, filling: &mut Filling<'_>) -> Result<()> {
        self.scan(tables, scan, |key, row| filling.row(key, &row)).map(drop)
    }

    /// Returns the number of rows of the data table, including expired rows.
    fn count(&self, tables: &Tables) -> Result<u64>;

    /// Passes a large value to `visit`. Fails if there is no large value with this id.
    fn blob<R>(&self, tables: &Tables, id: i64, visit: impl FnOnce(&[u8]) -> R) -> Result<R>;

    /// Stores a large value and returns its id; `None` if the table of large values does not exist
    /// yet.
    fn blob_insert(&self, tables: &Tables, value: &[u8]) -> Result<Option<i64>>;

    /// Stores a large value under an id, if the table exists and the id is free. Returns `true` if
    /// the value was stored.
    fn blob_insert_at(&self, tables: &Tables, id: i64, value: &[u8]) -> Result<bool>;

    /// Overwrites the large value with this id. Fails if there is none.
    fn blob_update(&self, tables: &Tables, id: i64, value: &[u8]) -> Result<()>;

    /// Deletes the large value with this id, if there is one.
    fn blob_delete(&self, tables: &Tables, id: i64) -> Result<()>;

    /// Changes the expiry time of a key from `old` to `new`, which differ, in the key index and the
    /// expiry index. `None` means that the indexes have no entry for the key. Returns `false` and
    /// changes nothing if the index tables do not exist yet.
    fn index(&self, tables: &Tables, key: &[u8], old: Option<i64>, new: Option<i64>) -> Result<bool>;

    /// Sets `expire_ms` in the data row of a key, if there is one. Does not change the key index
    /// and the expiry index.
    fn set_expiry(&self, tables: &Tables, key: &[u8], expire_ms: Option<i64>) -> Result<()>;

    /// Changes the write time of a key from `old` to `new`, which differ, in the table of write
    /// times. `None` means that the table has no entry for the key. Returns `false` and changes
    /// nothing if the table does not exist yet.
    fn index_written(&self, tables: &Tables, key: &[u8], old: Option<i64>, new: Option<i64>) -> Result<bool>;

    /// Removes an entry of a time index. Returns `false` if a lookup does not find it. If `by_time`
    /// has passed the entry to its visitor in this transaction, the index is then out of order, and
    /// `by_time` would return the entry forever.
    fn drop_time_entry(&self, tables: &Tables, index: TimeIndex, time_ms: i64, key: &[u8]) -> Result<bool>;

    /// Passes the entries of a time index that sort after the pair `after` to `visit`, as `(time,
    /// key)`, in ascending order of time and then key, until `visit` stops the scan.
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

pub(super) fn dangling(tables: &Tables) -> Error {
    damaged(format!("a blob_id of family \"{}\" refers to no row of its blob table", tables.family()))
}

pub(super) fn wrong_type(tables: &Tables, column: &str) -> Error {
    damaged(format!("a {column} in family \"{}\" has the wrong type", tables.family()))
}

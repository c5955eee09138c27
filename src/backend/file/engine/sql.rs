//! The `sql` engine: row operations as cached prepared statements. It works with any version of
//! SQLite, and defines the correct results for the `btree` engine.

use std::ops::Bound;

use rusqlite::types::{Null, ValueRef};
use rusqlite::{CachedStatement, Row as SqlRow, ToSql, ffi};

use super::interface::{Engine, dangling, wrong_type};
use super::row::{Head, LargeValues, Row, RowView, Step, TimeIndex};
use super::statements::TimeStatements;
use crate::backend::Scan;
use crate::backend::file::connection::Db;
use crate::backend::file::error::{is_missing_table, translate};
use crate::backend::file::schema::{Tables, no_longer_exists};
use crate::error::{Error, Result};
use crate::memory::Destination;

/// Storage engine that uses SQL statements only.
#[derive(Clone, Copy)]
pub(in crate::backend::file) struct SqlEngine<'c> {
    pub(in crate::backend) db: &'c Db,
}

impl SqlEngine<'_> {
    fn prepare(&self, tables: &Tables, sql: &str) -> Result<CachedStatement<'_>> {
        self.db.switch_to_sql()?.prepare_cached(sql).map_err(|e| failed(tables, e))
    }

    /// Prepares a statement on a table that may not exist yet. Returns `None` if the table does not
    /// exist.
    fn prepare_optional(&self, sql: &str) -> Result<Option<CachedStatement<'_>>> {
        match self.db.switch_to_sql()?.prepare_cached(sql) {
            Ok(statement) => Ok(Some(statement)),
            Err(e) if self.is_missing(&e, sql) => Ok(None),
            Err(e) => Err(translate(e)),
        }
    }

    /// Runs a write statement and returns the number of rows it changed.
    fn execute(&self, tables: &Tables, sql: &str, params: &[&dyn ToSql]) -> Result<usize> {
        self.prepare(tables, sql)?.execute(params).map_err(|e| failed(tables, e))
    }

    /// Runs a write statement on a table that may not exist yet, and returns the number of rows
    /// that it changed. Returns `None` if the table does not exist.
    fn execute_optional(&self, sql: &str, params: &[&dyn ToSql]) -> Result<Option<usize>> {
        let Some(mut statement) = self.prepare_optional(sql)? else { return Ok(None) };
        match statement.execute(params) {
            Ok(changed) => Ok(Some(changed)),
            // The cached statement was prepared before the table was dropped.
            Err(e) if self.is_missing(&e, sql) => Ok(None),
            Err(e) => Err(translate(e)),
        }
    }

    /// Returns `true` if the statement `sql` has failed with `error` because its table is missing.
    ///
    /// SQLite returns an error without its text if there is no memory for the text. In that case
    /// this method prepares the statement again to get the text.
    fn is_missing(&self, error: &rusqlite::Error, sql: &str) -> bool {
        is_missing_table(error)
            || has_no_text(error) && self.db.conn.prepare(sql).is_err_and(|e| is_missing_table(&e))
    }

    /// Fails if the family was dropped. Call this when an index table is missing, because that has
    /// two possible reasons: it was never created, or the family was dropped.
    fn family_exists(&self, tables: &Tables) -> Result<()> {
        self.head(tables, &[]).map(drop)
    }

    fn view<'a>(&'a self, tables: &'a Tables, row: &'a SqlRow<'_>) -> Result<RowView<'a>> {
        let inline = match row.get_ref(3).map_err(translate)? {
            ValueRef::Blob(value) => Some(value),
            ValueRef::Null => None,
            _ => return Err(wrong_type(tables, "value")),
        };
        Ok(RowView { values: self, tables, inline, joined: None, head: head_of(tables, row)? })
    }
}

impl LargeValues for SqlEngine<'_> {
    fn read(&self, tables: &Tables, id: i64, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.blob(tables, id, visit)
    }

    fn copy(&self, tables: &Tables, id: i64, to: &mut dyn Destination) -> Result<usize> {
        self.blob(tables, id, |value| to.copy(value))?
    }
}

impl Engine for SqlEngine<'_> {
    fn get<R>(
        &self,
        tables: &Tables,
        key: &[u8],
        visit: impl FnOnce(RowView<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        let mut statement = self.prepare(tables, &tables.statements().get)?;
        let mut rows = statement.query([key]).map_err(|e| failed(tables, e))?;
        // The snapshot stays open as long as `rows`, so a large value is read from the same
        // snapshot.
        match rows.next().map_err(|e| failed(tables, e))? {
            Some(row) => visit(self.view(tables, row)?).map(Some),
            None => Ok(None),
        }
    }

    fn head(&self, tables: &Tables, key: &[u8]) -> Result<Option<Head>> {
        let mut statement = self.prepare(tables, &tables.statements().head)?;
        let mut rows = statement.query([key]).map_err(|e| failed(tables, e))?;
        rows.next().map_err(|e| failed(tables, e))?.map(|row| head_of(tables, row)).transpose()
    }

    fn put_plain(&self, tables: &Tables, key: &[u8], value: &[u8]) -> Result<bool> {
        Ok(self.execute(tables, &tables.statements().put_plain, &[&key, &value])? > 0)
    }

    fn put(&self, tables: &Tables, key: &[u8], row: Row<'_>) -> Result<()> {
        let Head { expire_ms, blob_id, written_ms } = row.head;
        let value: &dyn ToSql = if row.value.is_some() { &row.value } else { &Null };
        self.execute(tables, &tables.statements().put, &[&key, value, &expire_ms, &blob_id, &written_ms])?;
        Ok(())
    }

    fn delete_plain(&self, tables: &Tables, key: &[u8]) -> Result<bool> {
        Ok(self.execute(tables, &tables.statements().delete_plain, &[&key])? > 0)
    }

    fn delete(&self, tables: &Tables, key: &[u8]) -> Result<()> {
        self.execute(tables, &tables.statements().delete, &[&key]).map(drop)
    }

    fn scan(
        &self,
        tables: &Tables,
        scan: Scan<'_>,
        mut visit: impl FnMut(&[u8], RowView<'_>) -> Result<Step>,
    ) -> Result<bool> {
        // Keys are byte strings: the smallest key greater than k is k followed by a zero byte.
        let successor = |key: &[u8]| [key, &[0]].concat();
        let lower = match scan.lower {
            Bound::Included(key) => key.to_vec(),
            Bound::Excluded(key) => successor(key),
            Bound::Unbounded => Vec::new(),
        };
        let upper = match scan.upper {
            Bound::Included(key) => Some(successor(key)),
            Bound::Excluded(key) => Some(key.to_vec()),
            Bound::Unbounded => None,
        };
        let [forward, backward] = &tables.statements().scan;
        let [open, bounded] = if scan.reverse { backward } else { forward };
        let mut statement = self.prepare(tables, if upper.is_some() { bounded } else { open })?;
        statement.raw_bind_parameter(1, lower).map_err(translate)?;
        if let Some(upper) = upper {
            statement.raw_bind_parameter(2, upper).map_err(translate)?;
        }
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next().map_err(|e| failed(tables, e))? {
            let key = blob_column(tables, row, 4, "key")?;
            if visit(key, self.view(tables, row)?)? == Step::Stop {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn count(&self, tables: &Tables) -> Result<u64> {
        self.prepare(tables, &tables.statements().count)?
            .query_row([], |row| row.get::<_, i64>(0))
            .map(i64::unsigned_abs)
            .map_err(|e| failed(tables, e))
    }

    fn blob<R>(&self, tables: &Tables, id: i64, visit: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let mut statement =
            self.prepare_optional(&tables.statements().blob)?.ok_or_else(|| dangling(tables))?;
        let mut rows = statement.query([id]).map_err(|e| failed(tables, e))?;
        let row = rows.next().map_err(|e| failed(tables, e))?.ok_or_else(|| dangling(tables))?;
        Ok(visit(blob_column(tables, row, 0, "large value")?))
    }

    fn blob_insert(&self, tables: &Tables, value: &[u8]) -> Result<Option<i64>> {
        let inserted = self.execute_optional(&tables.statements().blob_insert, &[&value])?;
        inserted.map(|_| Ok(self.db.switch_to_sql()?.last_insert_rowid())).transpose()
    }

    fn blob_insert_at(&self, tables: &Tables, id: i64, value: &[u8]) -> Result<bool> {
        let inserted = self.execute_optional(&tables.statements().blob_insert_at, &[&id, &value])?;
        Ok(inserted.is_some_and(|rows| rows > 0))
    }

    fn blob_update(&self, tables: &Tables, id: i64, value: &[u8]) -> Result<()> {
        match self.execute(tables, &tables.statements().blob_update, &[&id, &value])? {
            0 => Err(dangling(tables)),
            _ => Ok(()),
        }
    }

    fn blob_delete(&self, tables: &Tables, id: i64) -> Result<()> {
        self.execute_optional(&tables.statements().blob_delete, &[&id]).map(drop)
    }

    fn index(&self, tables: &Tables, key: &[u8], old: Option<i64>, new: Option<i64>) -> Result<bool> {
        let made = self.move_time_entry(&tables.statements().expiry, key, old, new)?;
        let texts = tables.statements();
        Ok(made
            && match new {
                Some(new) => self.execute_optional(&texts.key_put, &[&key, &new])?.is_some(),
                None => self.execute_optional(&texts.key_delete, &[&key])?.is_some(),
            })
    }

    fn set_expiry(&self, tables: &Tables, key: &[u8], expire_ms: Option<i64>) -> Result<()> {
        self.execute(tables, &tables.statements().set_expiry, &[&key, &expire_ms]).map(drop)
    }

    fn index_written(&self, tables: &Tables, key: &[u8], old: Option<i64>, new: Option<i64>) -> Result<bool> {
        self.move_time_entry(&tables.statements().written, key, old, new)
    }

    fn drop_time_entry(&self, tables: &Tables, index: TimeIndex, time_ms: i64, key: &[u8]) -> Result<bool> {
        Ok(self.execute_optional(&tables.statements().on(index).delete, &[&time_ms, &key])? != Some(0))
    }

    fn by_time(
        &self,
        tables: &Tables,
        index: TimeIndex,
        after: (i64, &[u8]),
        mut visit: impl FnMut(i64, &[u8]) -> Result<Step>,
    ) -> Result<()> {
        let sql = &tables.statements().on(index).walk;
        let Some(mut statement) = self.prepare_optional(sql)? else { return self.family_exists(tables) };
        statement.raw_bind_parameter(1, after.0).map_err(translate)?;
        statement.raw_bind_parameter(2, after.1).map_err(translate)?;
        let mut rows = statement.raw_query();
        loop {
            let row = match rows.next() {
                Ok(Some(row)) => row,
                Ok(None) => return Ok(()),
                Err(e) if self.is_missing(&e, sql) => return self.family_exists(tables),
                Err(e) => return Err(translate(e)),
            };
            let ValueRef::Integer(time_ms) = row.get_ref(0).map_err(translate)? else {
                return Err(wrong_type(tables, "time"));
            };
            if visit(time_ms, blob_column(tables, row, 1, "key")?)? == Step::Stop {
                return Ok(());
            }
        }
    }

    fn count_expired(&self, tables: &Tables, now_ms: i64) -> Result<u64> {
        let sql = &tables.statements().count_expired;
        let Some(mut statement) = self.prepare_optional(sql)? else { return Ok(0) };
        match statement.query_row([now_ms], |row| row.get::<_, i64>(0)) {
            Ok(count) => Ok(count.unsigned_abs()),
            Err(e) if self.is_missing(&e, sql) => Ok(0),
            Err(e) => Err(translate(e)),
        }
    }
}

impl SqlEngine<'_> {
    /// Deletes every row of every table of the family.
    pub(super) fn clear(&self, tables: &Tables) -> Result<()> {
        let [data, optional @ ..] = &tables.statements().clear;
        self.execute(tables, data, &[])?;
        for sql in optional {
            self.execute_optional(sql, &[])?;
        }
        Ok(())
    }

    /// Changes the time of a key in a time index from `old` to `new`; `None` means that the index
    /// has no entry for the key. `texts` are the statements on that index. Returns `false` if the
    /// index table does not exist yet.
    fn move_time_entry(
        &self,
        texts: &TimeStatements,
        key: &[u8],
        old: Option<i64>,
        new: Option<i64>,
    ) -> Result<bool> {
        if let Some(old) = old
            && self.execute_optional(&texts.delete, &[&old, &key])?.is_none()
        {
            return Ok(false);
        }
        match new {
            Some(new) => Ok(self.execute_optional(&texts.put, &[&new, &key])?.is_some()),
            None => Ok(true),
        }
    }
}

/// Decodes the head of a data row from the first three columns. Every statement that returns data
/// rows has the same first three columns.
fn head_of(tables: &Tables, row: &SqlRow<'_>) -> Result<Head> {
    let integer = |column: usize, name: &str| match row.get_ref(column).map_err(translate)? {
        ValueRef::Null => Ok(None),
        ValueRef::Integer(i) => Ok(Some(i)),
        _ => Err(wrong_type(tables, name)),
    };
    Ok(Head {
        expire_ms: integer(0, "expire_ms")?,
        blob_id: integer(1, "blob_id")?,
        written_ms: integer(2, "written_ms")?,
    })
}

fn blob_column<'a>(tables: &Tables, row: &'a SqlRow<'_>, column: usize, name: &str) -> Result<&'a [u8]> {
    match row.get_ref(column).map_err(translate)? {
        ValueRef::Blob(bytes) => Ok(bytes),
        _ => Err(wrong_type(tables, name)),
    }
}

/// Translates an error of a statement on the data table. A missing data table means that the family
/// was dropped.
fn failed(tables: &Tables, error: rusqlite::Error) -> Error {
    if is_missing_table(&error) {
        return no_longer_exists(tables);
    }
    translate(error)
}

/// Generic text of `SQLITE_ERROR`, which SQLite returns if it has stored no text for an error.
const NO_TEXT: &str = "SQL logic error";

fn has_no_text(error: &rusqlite::Error) -> bool {
    matches!(error, rusqlite::Error::SqliteFailure(error, text)
        if error.extended_code == ffi::SQLITE_ERROR && text.as_deref().is_none_or(|text| text == NO_TEXT))
}

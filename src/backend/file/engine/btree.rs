//! The `btree` engine: row operations that call SQLite's B-tree layer directly.
//!
//! It works on the same tables and inside the same transactions as SQL, but without SQLite's
//! virtual machine. It is built only with the versions of SQLite for which it was written
//! (build.rs). This file contains the operations. The modules below it are:
//!
//! - `raw.rs`: declarations of the functions of SQLite that the engine calls.
//! - `tree.rs` and `cursor.rs`: safe methods that call these functions.
//! - `connection.rs` and `snapshot_cache.rs`: state of the connection, which determines when the
//!   methods of `tree.rs` and `cursor.rs` may be called; `operation.rs`: one operation.
//! - `table_roots.rs`, `table_check.rs` and `root_cache.rs`: the root pages of the tables;
//!   `page_stats.rs`: the number of pages of each table.
//! - `families.rs`: the catalogue of families, and the creation of tables.
//! - `scan.rs`: reads keys and rows page by page; `leaf.rs` reads many rows of a page at once.
//! - `pager.rs`: access to pages; `page.rs`: decoding of pages.
//! - `record.rs`: encoding and decoding of rows.

mod connection;
mod cursor;
mod families;
mod leaf;
mod operation;
mod page;
mod page_stats;
mod pager;
mod raw;
mod record;
mod root_cache;
mod scan;
mod snapshot_cache;
mod table_check;
mod table_roots;
mod tree;

use std::cmp::Ordering;
use std::ops::Bound;

pub(in crate::backend) use connection::BtreeConnection;
use cursor::TreeCursor;
pub(in crate::backend::file) use operation::BtreeOperation;
use record::{Columns, DataRow, Malformed, NoDataRow, Value};
pub(in crate::backend) use root_cache::RootCache;
use root_cache::Roots;
use scan::{Look, PageWalk, Walked};
pub(in crate::backend) use snapshot_cache::Keep;
use tree::Order;
pub(in crate::backend::file) use tree::greatest_root;

use super::interface::{Engine, dangling, wrong_type};
use super::row::{Head, LargeValues, Row, RowView, Step, TimeIndex};
use super::sql::SqlEngine;
use crate::backend::Scan;
use crate::backend::file::chunk_builder::Filling;
use crate::backend::file::connection::Db;
use crate::backend::file::error::damaged;
use crate::backend::file::schema::{Tables, no_longer_exists};
use crate::error::{Error, Result};
use crate::memory::Destination;

/// Whether this build has the `btree` engine. The same constant in `no_btree.rs` is `false`.
pub(in crate::backend::file) const IS_BUILT: bool = true;

/// Storage engine that uses the B-trees of SQLite directly, without SQL.
#[derive(Clone, Copy)]
pub(in crate::backend::file) struct BtreeEngine<'c> {
    pub(in crate::backend) db: &'c Db,
    pub(in crate::backend) btree: &'c BtreeConnection,
}

impl Head {
    /// Head of a row that has only an inline value.
    const PLAIN: Head = Head { expire_ms: None, blob_id: None, written_ms: None };

    fn is_plain(&self) -> bool {
        *self == Head::PLAIN
    }
}

impl<'c> BtreeEngine<'c> {
    /// Begins an operation on a family. The inner result is the SQL engine (`Err`) if a table of
    /// the family does not have the form that this library creates.
    #[inline]
    pub(super) fn begin_operation(
        self,
        tables: &Tables,
    ) -> Result<std::result::Result<BtreeOperation<'c>, SqlEngine<'c>>> {
        let operation = self.btree.begin_operation(self.db, tables)?;
        if operation.roots.data == 0 {
            return Err(no_longer_exists(tables));
        }
        if operation.roots.foreign {
            drop(operation);
            return Ok(Err(SqlEngine { db: self.db }));
        }
        Ok(Ok(operation))
    }
}

fn malformed(tables: &Tables, _: Malformed) -> Error {
    damaged(format!("a row of family \"{}\" is not a record", tables.family()))
}

#[inline(always)] // called for every row of a scan
fn parts<'a>(tables: &Tables, record: &'a [u8]) -> Result<DataRow<'a>> {
    DataRow::of(record).map_err(|why| not_a_row(tables, why))
}

fn not_a_row(tables: &Tables, why: NoDataRow) -> Error {
    match why {
        NoDataRow::Malformed => malformed(tables, Malformed),
        NoDataRow::WrongType(column) => wrong_type(tables, column),
    }
}

/// Decodes an entry of a time index. Returns its time, in milliseconds since the Unix epoch, and
/// its key.
fn time_entry<'a>(tables: &Tables, record: &'a [u8]) -> Result<(i64, &'a [u8])> {
    let mut columns = Columns::of(record).map_err(|e| malformed(tables, e))?;
    let Value::Integer(time_ms) = columns.next().map_err(|e| malformed(tables, e))? else {
        return Err(wrong_type(tables, "time"));
    };
    let Value::Blob(key) = columns.next().map_err(|e| malformed(tables, e))? else {
        return Err(wrong_type(tables, "key"));
    };
    columns.end().map_err(|e| malformed(tables, e))?;
    Ok((time_ms, key))
}

/// Moves the cursor to the row of a key and returns `true`. If the key has no row, returns `false`,
/// and the cursor is next to the position where the row would be.
#[inline]
fn find(tree: &tree::Tree, cursor: &mut TreeCursor, key: &[u8]) -> Result<bool> {
    Ok(tree.seek(cursor, |sought| record::key_row(sought, key, None))? == Ordering::Equal)
}

/// Runs `f` with a cursor at the row of a large value. Fails if there is no large value with this
/// id.
fn at_large_value<R>(
    operation: &BtreeOperation<'_>,
    tables: &Tables,
    id: i64,
    f: impl FnOnce(&mut TreeCursor) -> Result<R>,
) -> Result<R> {
    let root = operation.roots.blob;
    if root == 0 {
        return Err(dangling(tables));
    }
    operation.with(
        root,
        Order::Rowid,
        |_, cursor| {
            if cursor.seek_rowid(id)? { f(cursor) } else { Err(dangling(tables)) }
        },
    )
}

impl LargeValues for BtreeOperation<'_> {
    fn read(&self, tables: &Tables, id: i64, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.blob(tables, id, visit)
    }

    fn copy(&self, tables: &Tables, id: i64, to: &mut dyn Destination) -> Result<usize> {
        at_large_value(self, tables, id, |cursor| {
            let (start, size) = cursor.start_of_record()?;
            let value = record::large_value(start, size).map_err(|why| not_a_row(tables, why))?;
            let room = to.room(value.len())?;
            cursor.copy(value.start, room)?;
            Ok(value.len())
        })
    }
}

impl Engine for BtreeOperation<'_> {
    #[inline]
    fn get<R>(
        &self,
        tables: &Tables,
        key: &[u8],
        visit: impl FnOnce(RowView<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        let show = |record: &[u8]| {
            let DataRow { value, joined, head, .. } = parts(tables, record)?;
            visit(RowView { values: self, tables, inline: value, joined, head }).map(Some)
        };
        match self.look_up(self.roots.data, key)? {
            Look::Found(page, record) => show(page.bytes().get(record).unwrap_or_default()),
            Look::Missing => Ok(None),
            Look::Unsupported => self.with(self.roots.data, Order::Key, |tree, cursor| {
                if find(tree, cursor, key)? { show(cursor.record()?) } else { Ok(None) }
            }),
        }
    }

    #[inline]
    fn head(&self, tables: &Tables, key: &[u8]) -> Result<Option<Head>> {
        match self.look_up(self.roots.data, key)? {
            Look::Found(page, record) => {
                Ok(Some(parts(tables, page.bytes().get(record).unwrap_or_default())?.head))
            }
            Look::Missing => Ok(None),
            Look::Unsupported => self.with(self.roots.data, Order::Key, |tree, cursor| {
                if !find(tree, cursor, key)? {
                    return Ok(None);
                }
                Ok(Some(parts(tables, cursor.record()?)?.head))
            }),
        }
    }

    #[inline]
    fn put_plain(&self, tables: &Tables, key: &[u8], value: &[u8]) -> Result<bool> {
        self.with(self.roots.data, Order::Key, |tree, cursor| {
            if find(tree, cursor, key)? && !parts(tables, cursor.record()?)?.head.is_plain() {
                return Ok(false);
            }
            self.with_record(key.len() + value.len(), |record| {
                record::data_row(record, key, Some(value), Head::PLAIN);
                cursor.put(record)
            })?;
            Ok(true)
        })
    }

    fn put(&self, _: &Tables, key: &[u8], row: Row<'_>) -> Result<()> {
        self.with(self.roots.data, Order::Key, |tree, cursor| {
            find(tree, cursor, key)?;
            self.with_record(key.len() + row.value.map_or(0, <[u8]>::len), |record| {
                record::data_row(record, key, row.value, row.head);
                cursor.put(record)
            })
        })
    }

    fn delete_plain(&self, tables: &Tables, key: &[u8]) -> Result<bool> {
        self.with(self.roots.data, Order::Key, |tree, cursor| {
            if !find(tree, cursor, key)? || !parts(tables, cursor.record()?)?.head.is_plain() {
                return Ok(false);
            }
            cursor.delete()?;
            Ok(true)
        })
    }

    fn delete(&self, _: &Tables, key: &[u8]) -> Result<()> {
        self.with(self.roots.data, Order::Key, |tree, cursor| {
            if find(tree, cursor, key)? { cursor.delete() } else { Ok(()) }
        })
    }

    fn scan(
        &self,
        tables: &Tables,
        scan: Scan<'_>,
        visit: impl FnMut(&[u8], RowView<'_>) -> Result<Step>,
    ) -> Result<bool> {
        show_rows(self, tables, scan, &mut RowByRow(visit))
    }

    fn fill(&self, tables: &Tables, scan: Scan<'_>, filling: &mut Filling<'_>) -> Result<()> {
        show_rows(self, tables, scan, filling).map(drop)
    }

    fn count(&self, _: &Tables) -> Result<u64> {
        self.entries_of(self.roots.data)
    }

    fn blob<R>(&self, tables: &Tables, id: i64, visit: impl FnOnce(&[u8]) -> R) -> Result<R> {
        at_large_value(self, tables, id, |cursor| {
            let record = cursor.record()?;
            let value = record::large_value(record, record.len()).map_err(|why| not_a_row(tables, why))?;
            Ok(visit(record.get(value).unwrap_or_default()))
        })
    }

    fn blob_insert(&self, tables: &Tables, value: &[u8]) -> Result<Option<i64>> {
        if self.roots.blob == 0 {
            return Ok(None);
        }
        let inserted = self.with(self.roots.blob, Order::Rowid, |_, cursor| {
            let last = if cursor.last()? { cursor.rowid()? } else { 0 };
            // SQLite chooses a rowid in the same way: one more than the greatest.
            let Some(id) = last.max(0).checked_add(1) else { return Ok(None) };
            self.with_record(value.len(), |record| {
                record::blob_row(record, value);
                cursor.put_rowid(id, record)
            })?;
            Ok(Some(id))
        })?;
        match inserted {
            Some(id) => Ok(Some(id)),
            // The greatest possible rowid is in use. SQL searches for an unused one.
            None => SqlEngine { db: self.db }.blob_insert(tables, value),
        }
    }

    fn blob_insert_at(&self, _: &Tables, id: i64, value: &[u8]) -> Result<bool> {
        if self.roots.blob == 0 {
            return Ok(false);
        }
        self.with(self.roots.blob, Order::Rowid, |_, cursor| {
            if cursor.seek_rowid(id)? {
                return Ok(false);
            }
            self.with_record(value.len(), |record| {
                record::blob_row(record, value);
                cursor.put_rowid(id, record)
            })?;
            Ok(true)
        })
    }

    fn blob_update(&self, tables: &Tables, id: i64, value: &[u8]) -> Result<()> {
        at_large_value(self, tables, id, |cursor| {
            self.with_record(value.len(), |record| {
                record::blob_row(record, value);
                cursor.put_rowid(id, record)
            })
        })
    }

    fn blob_delete(&self, _: &Tables, id: i64) -> Result<()> {
        if self.roots.blob == 0 {
            return Ok(());
        }
        self.with(self.roots.blob, Order::Rowid, |_, cursor| {
            if cursor.seek_rowid(id)? { cursor.delete() } else { Ok(()) }
        })
    }

    fn index(&self, _: &Tables, key: &[u8], old: Option<i64>, new: Option<i64>) -> Result<bool> {
        let Roots { ttl_key, ttl_expiry, .. } = self.roots;
        if ttl_key == 0 || ttl_expiry == 0 {
            return Ok(false);
        }
        move_time_entry(self, ttl_expiry, key, old, new)?;
        self.with(ttl_key, Order::Key, |tree, cursor| {
            let found = find(tree, cursor, key)?;
            match new {
                Some(_) => self.with_record(key.len(), |record| {
                    record::key_row(record, key, new);
                    cursor.put(record)
                }),
                None if found => cursor.delete(),
                None => Ok(()),
            }
        })?;
        Ok(true)
    }

    fn set_expiry(&self, tables: &Tables, key: &[u8], expire_ms: Option<i64>) -> Result<()> {
        self.with(self.roots.data, Order::Key, |tree, cursor| {
            if !find(tree, cursor, key)? {
                return Ok(());
            }
            let bytes = cursor.record()?.len();
            self.with_record(bytes, |record| {
                let DataRow { key, value, head, .. } = parts(tables, cursor.record()?)?;
                record::data_row(record, key, value, Head { expire_ms, ..head });
                cursor.put(record)
            })
        })
    }

    fn index_written(&self, _: &Tables, key: &[u8], old: Option<i64>, new: Option<i64>) -> Result<bool> {
        if self.roots.written == 0 {
            return Ok(false);
        }
        move_time_entry(self, self.roots.written, key, old, new)?;
        Ok(true)
    }

    fn drop_time_entry(&self, _: &Tables, index: TimeIndex, time_ms: i64, key: &[u8]) -> Result<bool> {
        match self.roots.on(index) {
            0 => Ok(true),
            root => self.with(root, Order::Time, |tree, cursor| {
                match tree.seek(cursor, |sought| record::time_row(sought, time_ms, key))? {
                    Ordering::Equal => cursor.delete().map(|()| true),
                    Ordering::Less | Ordering::Greater => Ok(false),
                }
            }),
        }
    }

    fn by_time(
        &self,
        tables: &Tables,
        index: TimeIndex,
        after: (i64, &[u8]),
        mut visit: impl FnMut(i64, &[u8]) -> Result<Step>,
    ) -> Result<()> {
        let root = self.roots.on(index);
        if root == 0 {
            return Ok(());
        }
        self.with(root, Order::Time, |tree, cursor| {
            let order = tree.seek(cursor, |sought| record::time_row(sought, after.0, after.1))?;
            let mut there = match order {
                Ordering::Greater => true,
                Ordering::Equal | Ordering::Less => cursor.next()?,
            };
            let mut room = self.room();
            while there {
                room = room.checked_sub(1).ok_or_else(scan::in_circles)?;
                let (time_ms, key) = time_entry(tables, cursor.record()?)?;
                if visit(time_ms, key)? == Step::Stop {
                    break;
                }
                there = cursor.next()?;
            }
            Ok(())
        })
    }

    fn count_expired(&self, tables: &Tables, now_ms: i64) -> Result<u64> {
        let mut count = 0;
        self.by_time(tables, TimeIndex::Expiry, super::from_time(i64::MIN), |expire_ms, _| {
            if expire_ms > now_ms {
                return Ok(Step::Stop);
            }
            count += 1;
            Ok(Step::Continue)
        })?;
        Ok(count)
    }
}

/// Receiver of the rows of a scan, which may process many rows of a page at once.
trait Visitor {
    /// Processes several of the next rows of the scan `walk` together, up to the end `to` of its
    /// range, and moves `walk` past them. A visitor that processes rows only one by one does
    /// nothing. Returns [`Step::Stop`] if the visitor needs no more rows.
    fn take(&mut self, walk: &mut PageWalk<'_>, to: Bound<&[u8]>) -> Result<Step>;
    /// Processes the next row of the scan. Returns [`Step::Stop`] if the visitor needs no more
    /// rows.
    fn row(&mut self, key: &[u8], row: RowView<'_>) -> Result<Step>;
}

/// Visitor that passes each row to a closure.
struct RowByRow<F>(F);

impl<F: FnMut(&[u8], RowView<'_>) -> Result<Step>> Visitor for RowByRow<F> {
    fn take(&mut self, _: &mut PageWalk<'_>, _: Bound<&[u8]>) -> Result<Step> {
        Ok(Step::Continue)
    }

    #[inline(always)]
    fn row(&mut self, key: &[u8], row: RowView<'_>) -> Result<Step> {
        (self.0)(key, row)
    }
}

impl Visitor for Filling<'_> {
    #[inline]
    fn take(&mut self, walk: &mut PageWalk<'_>, to: Bound<&[u8]>) -> Result<Step> {
        leaf::add_rows(walk, to, self)?;
        Ok(if self.has_enough() { Step::Stop } else { Step::Continue })
    }

    fn row(&mut self, key: &[u8], row: RowView<'_>) -> Result<Step> {
        Filling::row(self, key, &row)
    }
}

/// Passes the rows of a scan to `visitor`. Returns `true` at the end of the range, `false` if the
/// visitor has stopped the scan.
fn show_rows(
    here: &BtreeOperation<'_>,
    tables: &Tables,
    scan: Scan<'_>,
    visitor: &mut impl Visitor,
) -> Result<bool> {
    let (from, to) = if scan.reverse { (scan.upper, scan.lower) } else { (scan.lower, scan.upper) };
    let root = here.roots.data;
    let mut walk = here.walk(root, &scan)?;
    let mut cursor = None;
    let ended = loop {
        let record = match &mut cursor {
            None => {
                if visitor.take(&mut walk, to)? == Step::Stop {
                    break false;
                }
                match walk.next()? {
                    Walked::On(part) => walk.record(part),
                    Walked::End => break true,
                    Walked::Unsupported(shown) => {
                        let cursor = cursor.insert(here.cursor(root, Order::Key)?);
                        if !start(here, cursor, from, scan.reverse, shown)? {
                            break true;
                        }
                        cursor.record()?
                    }
                }
            }
            Some(cursor) => {
                if !advance(cursor, scan.reverse)? {
                    break true;
                }
                cursor.record()?
            }
        };
        let DataRow { key, value, joined, head } = parts(tables, record)?;
        if is_past(key, to, scan.reverse) {
            break true;
        }
        let row = RowView { values: here, tables, inline: value, joined, head };
        if visitor.row(key, row)? == Step::Stop {
            break false;
        }
    };
    if let Some(cursor) = cursor {
        here.keep(cursor);
    }
    Ok(ended)
}

impl Roots {
    fn on(&self, index: TimeIndex) -> u32 {
        match index {
            TimeIndex::Expiry => self.ttl_expiry,
            TimeIndex::Written => self.written,
        }
    }
}

fn move_time_entry(
    here: &BtreeOperation<'_>,
    root: u32,
    key: &[u8],
    old: Option<i64>,
    new: Option<i64>,
) -> Result<()> {
    here.with(root, Order::Time, |tree, cursor| {
        if let Some(old) = old
            && tree.seek(cursor, |sought| record::time_row(sought, old, key))? == Ordering::Equal
        {
            cursor.delete()?;
        }
        let Some(new) = new else { return Ok(()) };
        tree.seek(cursor, |sought| record::time_row(sought, new, key))?;
        here.with_record(key.len(), |record| {
            record::time_row(record, new, key);
            cursor.put(record)
        })
    })
}

/// Moves the cursor to the first row of a scan that starts at the bound `from`, and then past
/// `rows` rows in the direction of the scan. Returns `false` if the table has no further row.
fn start(
    here: &BtreeOperation<'_>,
    cursor: &mut TreeCursor,
    from: Bound<&[u8]>,
    reverse: bool,
    rows: usize,
) -> Result<bool> {
    let mut there = match from {
        Bound::Unbounded if reverse => cursor.last()?,
        Bound::Unbounded => cursor.first()?,
        Bound::Included(key) | Bound::Excluded(key) => {
            let order = here.seek(cursor, |sought| record::key_row(sought, key, None))?;
            let before = if reverse { Ordering::Greater } else { Ordering::Less };
            if order == before || order == Ordering::Equal && from == Bound::Excluded(key) {
                advance(cursor, reverse)?
            } else {
                cursor.is_on_entry() // in an empty table it is at no entry
            }
        }
    };
    for _ in 0..rows {
        there = there && advance(cursor, reverse)?;
    }
    Ok(there)
}

/// Moves the cursor to the next entry in the direction of a scan. Returns `false` if there is none.
fn advance(cursor: &mut TreeCursor, reverse: bool) -> Result<bool> {
    if reverse { cursor.previous() } else { cursor.next() }
}

/// Returns `true` if a key is beyond the end `to` of a scan: after it, or before it in a reverse
/// scan.
#[inline]
fn is_past(key: &[u8], to: Bound<&[u8]>, reverse: bool) -> bool {
    let (end, included) = match to {
        Bound::Unbounded => return false,
        Bound::Included(end) => (end, true),
        Bound::Excluded(end) => (end, false),
    };
    match key.cmp(end) {
        Ordering::Equal => !included,
        Ordering::Less => reverse,
        Ordering::Greater => !reverse,
    }
}

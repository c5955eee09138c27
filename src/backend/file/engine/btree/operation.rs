//! Operations on B-trees without SQL: how an operation begins and ends, and the cursors and buffers
//! that it uses.
//!
//! An operation runs in the open transaction, on the kept snapshot, or in a read transaction of its
//! own. `connection.rs` has the state that is kept between operations.

use std::collections::HashMap;

use super::connection::BtreeConnection;
use super::cursor::TreeCursor;
use super::page_stats;
use super::record;
use super::root_cache::Roots;
use super::scan::{self, Look, PageWalk};
use super::snapshot_cache::Hold;
use super::table_check;
use super::tree::{Order, Tree, no_memory};
use crate::backend::Scan;
use crate::backend::file::connection::Db;
use crate::backend::file::schema::Tables;
use crate::error::{Error, Result};
use crate::hint::Hint;

/// Maximum number of open cursors that a connection keeps for its next operations.
const MAX_CURSORS: usize = 16;
/// Maximum number of times that an operation looks up root pages before it fails, because other
/// connections keep changing the schema.
const ATTEMPTS: usize = 100;

impl BtreeConnection {
    /// Returns the application id of the file and the version of its format.
    pub(in crate::backend) fn marks(&self, db: &Db) -> Result<(i32, i32)> {
        let (_visit, _) = self.begin(db)?;
        Ok(self.tree.marks())
    }

    /// Returns the number of pages of the file and the number of free pages.
    #[inline]
    pub(in crate::backend) fn size(&self, db: &Db) -> Result<(u32, u32)> {
        let (_visit, _) = self.begin(db)?;
        Ok(self.tree.size())
    }

    /// Returns the number of pages of each table, by the number of its root page; `None` if the
    /// file has no pointer map.
    pub(in crate::backend) fn pages_of_tables(&self, db: &Db) -> Result<Option<HashMap<u32, u64>>> {
        let (_visit, _) = self.begin(db)?;
        if !self.tree.has_map() {
            return Ok(None);
        }
        page_stats::pages_of_tables(self.tree.pages()).map(Some)
    }

    /// Returns a number that changes with commits of other connections: with those that the open
    /// transaction sees, or, if no transaction is open, with all commits so far.
    pub(in crate::backend) fn version_now(&self, db: &Db) -> Result<u32> {
        let (_visit, _) = self.begin(db)?;
        Ok(self.tree.data_version())
    }

    /// Begins an operation on a family, and finds the root pages of its tables. Fails if other
    /// connections change the schema during each attempt.
    #[inline]
    pub(super) fn begin_operation<'d>(&'d self, db: &'d Db, tables: &Tables) -> Result<BtreeOperation<'d>> {
        for _ in 0..ATTEMPTS {
            let (mut operation, cookie) = self.begin(db)?;
            if let Some(roots) = tables.roots.get(self.stamp(cookie)) {
                operation.roots = roots;
                return Ok(operation);
            }
            if self.find_in_list(cookie, tables)? {
                continue;
            }
            drop(operation);
            self.look_closely(db, tables)?;
        }
        Err(Error::busy("other handles keep changing the families of this store").with_hint(Hint::Retry))
    }

    /// Begins an operation on no particular family, and updates the cached list of tables. Returns
    /// the operation and the schema cookie.
    pub(super) fn begin_list_operation<'d>(&'d self, db: &'d Db) -> Result<(BtreeOperation<'d>, u32)> {
        let (operation, cookie) = self.begin(db)?;
        self.read_list(cookie)?;
        Ok((operation, cookie))
    }

    /// Begins an operation in the open transaction, on the kept snapshot, or in a new read
    /// transaction. Returns the operation and the schema cookie.
    fn begin<'d>(&'d self, db: &'d Db) -> Result<(BtreeOperation<'d>, u32)> {
        let operation = |end| BtreeOperation {
            btree: self,
            db,
            roots: Roots::default(),
            write: self.tree.is_writing(),
            end,
        };
        let mut end = End::Nothing;
        let cookie = if self.depth.get() > 0 || self.writing.get() || !db.is_idle() {
            self.tree.begin(self.tree.is_writing())?
        } else if self.held.get() && self.header.get() == self.hold.header() {
            db.check_place_now_and_then()?;
            self.tree.begin(false)?
        } else if let Hold::Never = self.hold {
            end = End::Sql;
            db.check_place_now_and_then()?;
            self.begin_by_sql(db)?
        } else {
            self.release_snapshot();
            let before = self.hold.header();
            match self.tree.begin(false) {
                Ok(cookie) => {
                    let keep = self.keeps(&before) && before == self.hold.header();
                    let there = if keep { db.check_place() } else { db.check_place_now_and_then() };
                    if let Err(e) = there {
                        self.tree.end_read()?;
                        return Err(e);
                    }
                    if keep {
                        self.header.set(before);
                        self.held.set(true);
                    } else {
                        end = End::Read;
                    }
                    cookie
                }
                // SQL waits for locks up to the configured busy timeout.
                Err(e) if e.is_retryable() => {
                    end = End::Sql;
                    self.begin_by_sql(db)?
                }
                Err(e) => return Err(e),
            }
        };
        Ok((self.counted(operation(end)), cookie))
    }

    fn begin_by_sql(&self, db: &Db) -> Result<u32> {
        db.execute("BEGIN")?;
        db.read_first().and_then(|()| self.tree.begin(false)).inspect_err(|_| {
            // The transaction has written nothing, so a failed COMMIT has no effect.
            let _ = db.execute("COMMIT");
        })
    }

    fn counted<'d>(&self, operation: BtreeOperation<'d>) -> BtreeOperation<'d> {
        self.depth.set(self.depth.get() + 1);
        operation
    }

    /// Finds the root pages of the tables of a family by SQL, in the open transaction or in one of
    /// its own, and stores them in `tables.roots`.
    fn look_closely(&self, db: &Db, tables: &Tables) -> Result<()> {
        if self.writing.get() || !db.is_idle() {
            if self.tree.is_writing() {
                self.knows_changed.set(true);
            }
            return table_check::look_closely(db, tables, self.epoch.get());
        }
        db.execute("BEGIN")?;
        let done = table_check::look_closely(db, tables, self.epoch.get());
        let ended = db.execute("COMMIT");
        done.and(ended)
    }
}

/// What the end of an operation must do about the transaction in which the operation runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Leave it open: it is the caller's transaction, that of an outer operation, or the kept
    /// snapshot.
    Nothing,
    /// End the read transaction, which was begun for this operation without SQL.
    Read,
    /// End the read transaction, which was begun for this operation by the SQL statement BEGIN.
    Sql,
}

/// Operation on B-trees in progress, with the root pages of the family on which it works. Dropping
/// it ends the operation, and also the read transaction that was begun for it.
pub(in crate::backend::file) struct BtreeOperation<'d> {
    btree: &'d BtreeConnection,
    pub(super) db: &'d Db,
    pub(super) roots: Roots,
    write: bool,
    end: End,
}

impl BtreeOperation<'_> {
    /// Runs `f` with a cursor on the table with this root page. Keeps the cursor for the next
    /// operation, unless `f` fails.
    #[inline]
    pub(super) fn with<R>(
        &self,
        root: u32,
        order: Order,
        f: impl FnOnce(&Tree, &mut TreeCursor) -> Result<R>,
    ) -> Result<R> {
        let mut cursor = self.cursor(root, order)?;
        let done = f(&self.btree.tree, &mut cursor)?;
        self.keep(cursor);
        Ok(done)
    }

    /// Moves a cursor to the entry with the key that `sought` writes, or to an entry next to the
    /// position of that key. Returns how the entry at the cursor compares with the key.
    pub(super) fn seek(
        &self,
        cursor: &mut TreeCursor,
        sought: impl FnOnce(&mut Vec<u8>),
    ) -> Result<std::cmp::Ordering> {
        self.btree.tree.seek(cursor, sought)
    }

    /// Returns a cursor on the table with this root page, at any position: one that an earlier
    /// operation has kept, or a new one.
    pub(super) fn cursor(&self, root: u32, order: Order) -> Result<TreeCursor> {
        let btree = self.btree;
        let kept = {
            let mut idle = btree.idle.borrow_mut();
            let at = idle.iter().position(|cursor| cursor.is_on(root, order, self.write));
            at.map(|at| idle.swap_remove(at))
        };
        match kept {
            Some(cursor) => Ok(cursor),
            None => btree.tree.cursor(root, order, self.write),
        }
    }

    /// Keeps a cursor for the next operation. If `MAX_CURSORS` are kept already, closes one of
    /// them.
    pub(super) fn keep(&self, cursor: TreeCursor) {
        let mut idle = self.btree.idle.borrow_mut();
        if idle.len() >= MAX_CURSORS {
            idle.remove(0);
        }
        idle.push(cursor);
    }

    /// Looks up a row without a cursor. In a write transaction, always returns [`Look::Unsupported`]:
    /// the caller then uses a cursor, whose position the following write needs.
    #[inline]
    pub(super) fn look_up(&self, root: u32, key: &[u8]) -> Result<Look> {
        if self.write {
            return Ok(Look::Unsupported);
        }
        let keep = self.end == End::Nothing;
        scan::look_up(self.btree.tree.pages(), &mut self.btree.pages.borrow_mut(), keep, root, key)
    }

    /// Returns the number of entries of the table with this root page.
    pub(super) fn entries_of(&self, root: u32) -> Result<u64> {
        match scan::count(self.btree.tree.pages(), root)? {
            Some(entries) => Ok(entries),
            None => self.with(root, Order::Key, |tree, cursor| tree.count(cursor)),
        }
    }

    /// Returns an upper bound on the number of entries of any table, computed from the size of the
    /// file. A scan that returns more entries is in a cycle of pages.
    pub(super) fn room(&self) -> u64 {
        self.btree.tree.pages().room()
    }

    /// Begins a scan over the records of the table with this root page, which reads pages without a
    /// cursor.
    pub(super) fn walk(&self, root: u32, scan: &Scan<'_>) -> Result<PageWalk<'_>> {
        PageWalk::new(self.btree.tree.pages(), root, scan)
    }

    /// Runs `f` with an empty buffer that has capacity for a record whose keys and values take
    /// `bytes` bytes.
    pub(super) fn with_record<R>(
        &self,
        bytes: usize,
        f: impl FnOnce(&mut Vec<u8>) -> Result<R>,
    ) -> Result<R> {
        let mut record = self.btree.record.take();
        record.clear();
        record.try_reserve(bytes + record::MOST_BESIDE).map_err(|_| no_memory())?;
        let done = f(&mut record);
        if record.capacity() <= 1 << 20 {
            self.btree.record.set(record);
        }
        done
    }
}

impl Drop for BtreeOperation<'_> {
    fn drop(&mut self) {
        let btree = self.btree;
        btree.depth.set(btree.depth.get() - 1);
        match self.end {
            End::Nothing => {}
            End::Read => {
                btree.clear();
                // There is nothing more to do if this fails, as in `release_snapshot`.
                let _ = btree.tree.end_read();
            }
            End::Sql => {
                // The transaction has only read, so a failure has no effect.
                let _ = self.db.execute("COMMIT");
            }
        }
    }
}

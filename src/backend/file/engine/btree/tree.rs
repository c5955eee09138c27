//! SQLite's B-tree layer, with methods that are safe to call.
//!
//! Only this file, `cursor.rs` and `pager.rs` call the layer. The calls are safe for these reasons,
//! in addition to the SAFETY comment of each block:
//!
//! - A [`Tree`] belongs to one connection without a mutex of its own. Both are inside a `Db`, which
//!   is used by one thread at a time. The `Db` drops the tree before it closes the connection.
//! - Cursors are used only while a transaction is open on the connection. None is open while an SQL
//!   statement runs or when the transaction ends; `connection.rs` ensures this.
//! - SQLite checks what it reads from pages (its fuzzers run on damaged files). `record.rs` checks
//!   the records that SQLite returns.
#![allow(unsafe_code)]

use std::cell::OnceCell;
use std::cmp::Ordering;
use std::ffi::{CStr, c_int};
use std::ptr::{self, NonNull};

use rusqlite::{Connection, ffi};

use super::cursor::TreeCursor;
use super::pager::Pages;
use super::raw;
use crate::backend::file::error::{damaged, translate};
use crate::config::JournalMode;
use crate::error::{Error, Result};

/// Order of the rows of a table, which determines how its cursors seek.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// By a key: for example a data table or a key index.
    Key,
    /// By a time and a key: a time index.
    Time,
    /// By a rowid: for example a table of large values.
    Rowid,
}

/// B-tree access to the main database of a connection.
pub(super) struct Tree {
    db: NonNull<ffi::sqlite3>,
    btree: NonNull<raw::Btree>,
    by_key: Probe,
    by_time: Probe,
    /// Statements that [`Tree::pin`] uses, created at the first write because most handles only
    /// read.
    pins: OnceCell<[Pin; 2]>,
}

/// SQL text of the statement in a [`Pin`]. The statement returns a row and does not use the schema.
/// If it used the schema, SQLite would first read a schema that has changed.
const PINNING: &CStr = c"PRAGMA application_id";

/// Statement that keeps a read transaction open: it has returned a row and is not finished.
struct Pin(NonNull<ffi::sqlite3_stmt>);

impl Pin {
    fn new(db: NonNull<ffi::sqlite3>) -> Result<Pin> {
        let mut statement = ptr::null_mut();
        // SAFETY: an open connection, a C string, and a valid place for the result.
        let code = unsafe {
            ffi::sqlite3_prepare_v3(
                db.as_ptr(),
                PINNING.as_ptr(),
                -1,
                ffi::SQLITE_PREPARE_PERSISTENT,
                &raw mut statement,
                ptr::null_mut(),
            )
        };
        check(code)?;
        NonNull::new(statement).map(Pin).ok_or_else(no_memory)
    }

    /// Runs the statement up to its row. Returns `true` if it keeps a read transaction open now.
    fn step(&self) -> bool {
        // SAFETY: a statement of this connection that is not finalized.
        unsafe { ffi::sqlite3_step(self.0.as_ptr()) == ffi::SQLITE_ROW }
    }

    fn reset(&self) {
        // SAFETY: as in `step`. The result is ignored, because it repeats that of the step.
        unsafe { ffi::sqlite3_reset(self.0.as_ptr()) };
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // SAFETY: once, while the connection is open.
        unsafe { ffi::sqlite3_finalize(self.0.as_ptr()) };
    }
}

// SAFETY: no part of a `Tree` is bound to a thread. The documentation of this module says which
// thread uses a `Tree` and when.
unsafe impl Send for Tree {}

/// Objects of SQLite that a search in an index B-tree needs: a description of the key columns
/// (`info`), and space for the decoded search key (`record`).
struct Probe {
    info: NonNull<raw::KeyInfo>,
    record: NonNull<raw::UnpackedRecord>,
}

/// Returns the number of the greatest root page according to the header of the file; 0 if the file
/// has no pointer map. Returns `None` if the connection has no transaction open.
pub(in crate::backend::file) fn greatest_root(conn: &Connection) -> Option<u32> {
    // SAFETY: the connection is open. The handle is only passed to SQLite, and not closed.
    let db = unsafe { conn.handle() };
    // SAFETY: the connection is open, the name a C string.
    if unsafe { ffi::sqlite3_txn_state(db, c"main".as_ptr()) } < ffi::SQLITE_TXN_READ {
        return None;
    }
    // SAFETY: the connection is open, the name a C string.
    let btree = NonNull::new(unsafe { raw::sqlite3DbNameToBtree(db, c"main".as_ptr()) })?;
    let mut value = 0;
    // SAFETY: the tree of an open connection, which is in a transaction, and a valid place for the
    // result.
    unsafe { raw::sqlite3BtreeGetMeta(btree.as_ptr(), raw::BTREE_LARGEST_ROOT_PAGE, &raw mut value) };
    Some(value)
}

impl Tree {
    pub(super) fn of(conn: &Connection) -> Result<Tree> {
        // SAFETY: the handle is only passed to SQLite, and not closed.
        let db = NonNull::new(unsafe { conn.handle() }).ok_or_else(no_memory)?;
        // SAFETY: the connection is open, the name a C string.
        let btree = unsafe { raw::sqlite3DbNameToBtree(db.as_ptr(), c"main".as_ptr()) };
        let btree = NonNull::new(btree).ok_or_else(no_memory)?;
        let by_key = Probe::new(db, 1, 4)?;
        let by_time = match Probe::new(db, 2, 0) {
            Ok(by_time) => by_time,
            Err(e) => {
                by_key.free(db);
                return Err(e);
            }
        };
        Ok(Tree { db, btree, by_key, by_time, pins: OnceCell::new() })
    }

    /// Sets the number of pages that a write transaction may change before SQLite writes some of
    /// them ahead of the commit, and the number of bytes of the database file that SQLite maps into
    /// memory.
    pub(super) fn configure(&self, spill_pages: i32, mmap_size: i64) {
        // SAFETY: the tree of an open connection.
        unsafe {
            raw::sqlite3BtreeSetSpillSize(self.btree.as_ptr(), spill_pages);
            raw::sqlite3BtreeSetMmapLimit(self.btree.as_ptr(), mmap_size);
        }
    }

    /// Sets the length, in bytes, to which SQLite truncates a longer WAL file when the WAL starts
    /// over, or a longer journal file that it keeps after a commit.
    pub(super) fn limit_journal(&self, bytes: i64) {
        // SAFETY: the tree of an open connection has a pager.
        unsafe { raw::sqlite3PagerJournalSizeLimit(raw::sqlite3BtreePager(self.btree.as_ptr()), bytes) };
    }

    /// Sets the maximum number of pages of the database, which must not be below its number of
    /// pages.
    pub(super) fn limit_pages(&self, pages: u32) {
        // SAFETY: the tree of an open connection has a pager.
        unsafe { raw::sqlite3PagerMaxPageCount(raw::sqlite3BtreePager(self.btree.as_ptr()), pages) };
    }

    /// Returns the journal mode; `None` if it is neither WAL nor DELETE. Correct only after the
    /// connection has read from the file.
    pub(super) fn journal_mode(&self) -> Option<JournalMode> {
        // SAFETY: the tree of an open connection has a pager.
        match unsafe { raw::sqlite3PagerGetJournalMode(raw::sqlite3BtreePager(self.btree.as_ptr())) } {
            raw::PAGER_JOURNALMODE_WAL => Some(JournalMode::Wal),
            raw::PAGER_JOURNALMODE_DELETE => Some(JournalMode::Delete),
            _ => None,
        }
    }

    /// Returns the size of a page of the database, in bytes. Correct only after the connection has
    /// read from the file.
    pub(super) fn page_size(&self) -> u64 {
        // SAFETY: the tree of an open connection.
        let size = unsafe { raw::sqlite3BtreeGetPageSize(self.btree.as_ptr()) };
        u64::try_from(size).unwrap_or(0)
    }

    /// Returns the application id of the file and the version of its format. Call this in a
    /// transaction.
    pub(super) fn marks(&self) -> (i32, i32) {
        let mark = |number| self.meta(number).cast_signed();
        (mark(raw::BTREE_APPLICATION_ID), mark(raw::BTREE_USER_VERSION))
    }

    /// Makes commits keep the read transaction open until [`Tree::unpin`]. Returns `true` on
    /// success.
    ///
    /// SQLite ends the read transaction with the commit unless two statements are reading, because
    /// it assumes that one of them is the COMMIT itself.
    pub(super) fn pin(&self) -> bool {
        if self.pins.get().is_none()
            && let Ok(made) = Pin::new(self.db).and_then(|one| Ok([one, Pin::new(self.db)?]))
        {
            let _ = self.pins.set(made); // cannot fail: it was empty
        }
        let pinned = self.pins.get().is_some_and(|pins| pins.iter().all(Pin::step));
        if !pinned {
            self.unpin();
        }
        pinned
    }

    /// Makes commits end the read transaction again, after [`Tree::pin`]. No cursor may be open.
    pub(super) fn unpin(&self) {
        self.pins.get().into_iter().flatten().for_each(Pin::reset);
    }

    /// Ensures that a read transaction is open, or with `write` a write transaction. Returns the
    /// schema cookie that the transaction sees.
    #[inline]
    pub(super) fn begin(&self, write: bool) -> Result<u32> {
        let mut cookie = 0;
        // SAFETY: the tree of an open connection, and a valid place for the result.
        let code =
            unsafe { raw::sqlite3BtreeBeginTrans(self.btree.as_ptr(), c_int::from(write), &raw mut cookie) };
        check(code)?;
        Ok(cookie.cast_unsigned())
    }

    /// Returns a number that changes when the open transaction sees new commits of other
    /// connections.
    pub(super) fn data_version(&self) -> u32 {
        self.meta(raw::BTREE_DATA_VERSION)
    }

    /// Returns `true` if texts in the file are in UTF-8. Call this in a transaction.
    pub(super) fn is_utf8(&self) -> bool {
        self.meta(raw::BTREE_TEXT_ENCODING) == 1
    }

    fn meta(&self, number: c_int) -> u32 {
        let mut value = 0;
        // SAFETY: the tree of an open connection, which is in a transaction, and a valid place for
        // the result.
        unsafe { raw::sqlite3BtreeGetMeta(self.btree.as_ptr(), number, &raw mut value) };
        value
    }

    /// Returns `true` if the file has a pointer map, which records the parent of each page.
    pub(super) fn has_map(&self) -> bool {
        self.meta(raw::BTREE_LARGEST_ROOT_PAGE) != 0
    }

    /// Returns the number of pages of the file and the number of free pages, as the open
    /// transaction sees them.
    #[inline]
    pub(super) fn size(&self) -> (u32, u32) {
        (self.pages().count(), self.meta(raw::BTREE_FREE_PAGE_COUNT))
    }

    /// Removes the last page from the file, in the open write transaction, after moving its content
    /// to a free page. Returns `false` if no page is free, or if the file has no pointer map. No
    /// cursor or page may be open.
    pub(super) fn take_page_off(&self) -> Result<bool> {
        if !self.is_writing() {
            return Err(not_writing());
        }
        // SAFETY: the tree of an open connection, which is in a write transaction.
        moved(unsafe { raw::sqlite3BtreeIncrVacuum(self.btree.as_ptr()) })
    }

    /// Creates an empty table in the open write transaction, and returns its root page. No cursor
    /// may be open, because SQLite may move another page to make space for the root page.
    pub(super) fn create(&self, order: Order) -> Result<u32> {
        let flags = match order {
            Order::Key | Order::Time => raw::BTREE_BLOBKEY,
            Order::Rowid => raw::BTREE_INTKEY,
        };
        let mut root = 0;
        if !self.is_writing() {
            return Err(not_writing());
        }
        // SAFETY: the tree of an open connection, which is in a write transaction, and a valid
        // place for the result.
        check(unsafe { raw::sqlite3BtreeCreateTable(self.btree.as_ptr(), &raw mut root, flags) })?;
        Ok(root)
    }

    /// Sets the schema cookie in the open write transaction.
    pub(super) fn set_cookie(&self, cookie: u32) -> Result<()> {
        if !self.is_writing() {
            return Err(not_writing());
        }
        // SAFETY: the tree of an open connection, which is in a write transaction.
        check(unsafe { raw::sqlite3BtreeUpdateMeta(self.btree.as_ptr(), raw::BTREE_SCHEMA_VERSION, cookie) })
    }

    /// Makes SQLite read the schema again before the next statement that needs it.
    pub(super) fn forget_schema(&self) {
        // SAFETY: an open connection. SQLite itself calls this function between the steps of
        // statements, when it finds that the schema has changed.
        unsafe { raw::sqlite3ResetAllSchemasOfConnection(self.db.as_ptr()) };
    }

    /// Ends the read transaction that `begin` opened. No cursor may be open.
    pub(super) fn end_read(&self) -> Result<()> {
        // SAFETY: the tree of an open connection.
        check(unsafe { raw::sqlite3BtreeCommit(self.btree.as_ptr()) })
    }

    /// Commits the write transaction that `begin` opened. Calls `committed` after the commit, but
    /// before another connection can write. No cursor may be open.
    pub(super) fn commit<R>(&self, committed: impl FnOnce() -> R) -> Result<R> {
        // SAFETY: the tree of an open connection. There is no super-journal, because there is only
        // one file.
        check(unsafe { raw::sqlite3BtreeCommitPhaseOne(self.btree.as_ptr(), ptr::null()) })?;
        let done = committed();
        // SAFETY: the tree of an open connection, between the two phases of a commit.
        check(unsafe { raw::sqlite3BtreeCommitPhaseTwo(self.btree.as_ptr(), 0) })?;
        Ok(done)
    }

    /// Rolls back the transaction that `begin` opened. No cursor may be open.
    pub(super) fn rollback(&self) -> Result<()> {
        // SAFETY: the tree of an open connection.
        check(unsafe { raw::sqlite3BtreeRollback(self.btree.as_ptr(), ffi::SQLITE_OK, 0) })
    }

    /// Returns the number of frames in the WAL after a commit to the WAL; 0 after any other commit.
    pub(super) fn take_wal_frames(&self) -> u32 {
        // SAFETY: the tree of an open connection has a pager, which returns 0 if there is no WAL.
        unsafe { raw::sqlite3PagerWalCallback(raw::sqlite3BtreePager(self.btree.as_ptr())) }
            .max(0)
            .unsigned_abs()
    }

    /// Returns `true` if the open transaction is a write transaction.
    pub(super) fn is_writing(&self) -> bool {
        // SAFETY: the tree of an open connection.
        unsafe { raw::sqlite3BtreeTxnState(self.btree.as_ptr()) == raw::TXN_WRITE }
    }

    /// Opens a cursor on the table with this root page. `write` opens it for writing, which needs a
    /// write transaction.
    #[inline]
    pub(super) fn cursor(&self, root: u32, order: Order, write: bool) -> Result<TreeCursor> {
        let info = self.probe(order).map_or(ptr::null_mut(), |probe| probe.info.as_ptr());
        // SAFETY: asks for a size.
        let words = usize::try_from(unsafe { raw::sqlite3BtreeCursorSize() }).unwrap_or(0).div_ceil(8);
        let mut memory = vec![0u64; words].into_boxed_slice();
        let cursor = memory.as_mut_ptr().cast();
        // SAFETY: the memory has the size that SQLite requires and is aligned to 8. It is boxed, so
        // it does not move until the cursor is closed in `drop`. A transaction is open on the tree.
        let code = unsafe {
            raw::sqlite3BtreeCursorZero(cursor);
            let write = if write { raw::BTREE_WRCSR } else { 0 };
            raw::sqlite3BtreeCursor(self.btree.as_ptr(), root, write, info, cursor)
        };
        // Even after a failure, the cursor may be in SQLite's list of open cursors. `drop` closes
        // it.
        let opened = TreeCursor {
            memory,
            root,
            order,
            write,
            place: None,
            on_entry: false,
            sought: Vec::new(),
            spare: Vec::new(),
            overflow: Vec::new(),
        };
        check(code)?;
        Ok(opened)
    }

    fn probe(&self, order: Order) -> Option<&Probe> {
        match order {
            Order::Key => Some(&self.by_key),
            Order::Time => Some(&self.by_time),
            Order::Rowid => None,
        }
    }

    /// Moves the cursor to the entry with the key that `sought` writes, or to an entry next to the
    /// position of that key. Returns how the entry at the cursor compares with the key.
    ///
    /// In an empty table the cursor is at no entry, and the result is `Less`. Does nothing if the
    /// cursor has already been moved to this key and has not moved since.
    pub(super) fn seek(
        &self,
        cursor: &mut TreeCursor,
        sought: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Ordering> {
        sought(&mut cursor.spare);
        if let Some(order) = cursor.place
            && cursor.spare == cursor.sought
            && !cursor.has_moved()
        {
            return Ok(order);
        }
        std::mem::swap(&mut cursor.sought, &mut cursor.spare);
        cursor.place = None;
        cursor.on_entry = false;
        let Some(probe) = self.probe(cursor.order) else {
            return Err(Error::failed("a table of large values is sought by rowid"));
        };
        let size = c_int::try_from(cursor.sought.len()).map_err(|_| too_long())?;
        let mut result = 0;
        // SAFETY: the probe was created for the number of columns that this order has. The record
        // has as many (record.rs), and refers to `sought` during this call only. The cursor is
        // open.
        let code = unsafe {
            raw::sqlite3VdbeRecordUnpack(size, cursor.sought.as_ptr().cast(), probe.record.as_ptr());
            raw::sqlite3BtreeIndexMoveto(cursor.raw(), probe.record.as_ptr(), &raw mut result)
        };
        check(code)?;
        let order = result.cmp(&0);
        cursor.place = Some(order);
        cursor.on_entry = order == Ordering::Equal || cursor.is_valid();
        Ok(order)
    }

    /// Returns read access to the pages of the database file.
    #[inline]
    pub(super) fn pages(&self) -> Pages<'_> {
        // SAFETY: the tree of an open connection, which is borrowed.
        unsafe { Pages::of(self.btree) }
    }

    /// Returns the number of entries in the table of the cursor.
    pub(super) fn count(&self, cursor: &mut TreeCursor) -> Result<u64> {
        cursor.place = None;
        cursor.on_entry = false;
        let mut count = 0;
        // SAFETY: an open cursor of this connection, and a valid place for the result.
        check(unsafe { raw::sqlite3BtreeCount(self.db.as_ptr(), cursor.raw(), &raw mut count) })?;
        Ok(count.unsigned_abs())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.by_key.free(self.db);
        self.by_time.free(self.db);
    }
}

impl Probe {
    fn new(db: NonNull<ffi::sqlite3>, key_fields: c_int, other_fields: c_int) -> Result<Probe> {
        // SAFETY: the connection is open. SQLite sets the sort flags and collations to zeros, which
        // is what blobs and integers need.
        let info = unsafe { raw::sqlite3KeyInfoAlloc(db.as_ptr(), key_fields, other_fields) };
        let info = NonNull::new(info).ok_or_else(no_memory)?;
        // SAFETY: the description was just created. The record has space for one column more than
        // the key.
        let record = unsafe { raw::sqlite3VdbeAllocUnpackedRecord(info.as_ptr()) };
        let Some(record) = NonNull::new(record) else {
            // SAFETY: nothing else refers to it.
            unsafe { raw::sqlite3KeyInfoUnref(info.as_ptr()) };
            return Err(no_memory());
        };
        Ok(Probe { info, record })
    }

    fn free(&self, db: NonNull<ffi::sqlite3>) {
        // SAFETY: called once, when the tree is dropped. No cursor refers to the description any
        // more, and the connection is still open.
        unsafe {
            raw::sqlite3DbFree(db.as_ptr(), self.record.as_ptr().cast());
            raw::sqlite3KeyInfoUnref(self.info.as_ptr());
        }
    }
}

#[inline]
pub(super) fn check(code: c_int) -> Result<()> {
    if code == ffi::SQLITE_OK { Ok(()) } else { Err(failed(code)) }
}

#[inline]
pub(super) fn moved(code: c_int) -> Result<bool> {
    match code {
        ffi::SQLITE_OK => Ok(true),
        ffi::SQLITE_DONE => Ok(false),
        code => Err(failed(code)),
    }
}

#[cold]
fn failed(code: c_int) -> Error {
    translate(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))
}

#[cold]
pub(super) fn not_writing() -> Error {
    Error::failed("a table is written outside a write transaction")
}

#[cold]
pub(super) fn no_memory() -> Error {
    Error::no_memory("out of memory")
}

#[cold]
pub(super) fn too_long() -> Error {
    Error::invalid("a row longer than SQLite allows")
}

#[cold]
pub(super) fn at_no_entry() -> Error {
    damaged("a table has changed under a cursor")
}

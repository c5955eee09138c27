//! When the B-tree layer may be used on a connection that also runs SQL: which transaction is open, which
//! cursors, and where the tables' root pages are.
//!
//! - Inside a transaction that SQL has begun, direct operations are simply part of it.
//! - Outside, a read begins a read transaction of its own. It is kept ("held") for the next read, as long
//!   as `hold.rs` can tell that nobody has committed since.
//! - A write outside a transaction may begin and commit one directly. If something in it needs SQL, the
//!   transaction becomes one of SQL's.
//! - An SQL statement outside a transaction ends a transaction that was begun directly; and none may run
//!   while a cursor is open, because it could change what the cursor refers to. So whoever runs SQL calls
//!   [`Direct::make_way`] first, which `Db::sql` does.
//! - Root pages move when a table is dropped or the file vacuumed. Both change the schema cookie, which
//!   every transaction gives: with another cookie, root pages are looked up again. A rollback can take a
//!   cookie back that comes again with other tables: so it counts as a change, too.

use std::cell::{Cell, RefCell};
use std::path::Path;

use rusqlite::Connection;

use super::cursor::Cursor;
use super::hold::{Header, Hold};
use super::pager::KeptPages;
use super::roots::{self, Roots};
use super::tree::{Order, Tree};
use super::walk::{self, Look, Walk};
use super::writeback::Writeback;
use crate::db::connection::{Db, translate};
use crate::db::engine::Scan;
use crate::db::schema::Tables;
use crate::error::{Error, Result};

/// Open cursors that are kept for the next operation.
const MAX_CURSORS: usize = 16;
/// Times a read looks up root pages before it gives up, because others change the schema all the time.
const ATTEMPTS: usize = 100;

/// What a connection needs to use its B-trees directly.
pub(in crate::db) struct Direct {
    idle: RefCell<Vec<Cursor>>,
    /// Kept as idle cursors are, and given back with them.
    pages: RefCell<KeptPages>,
    tree: Tree,
    hold: Hold,
    /// Whether snapshots are kept at all.
    keeps: bool,
    held: Cell<bool>,
    /// The snapshot also outlives the commits of this connection: the lock that keeps it need not be taken
    /// anew for each write transaction, which is two thirds of its system calls.
    pinned: Cell<bool>,
    /// A write transaction is open that was begun directly, and that no SQL has joined.
    writing: Cell<bool>,
    /// Of the snapshot that is held.
    header: Cell<Header>,
    /// As it was when this connection last wrote or looked, and how often it was another one then.
    seen: Cell<Header>,
    others: Cell<u32>,
    /// Operations under way, one inside the other.
    depth: Cell<u32>,
    /// Counts rollbacks.
    epoch: Cell<u32>,
    /// Memory for the next record.
    record: Cell<Vec<u8>>,
    /// Only if checkpoints alone sync.
    writeback: Option<Writeback>,
}

impl Direct {
    pub(in crate::db) fn new(conn: &Connection) -> Result<Direct> {
        Ok(Direct {
            idle: RefCell::default(),
            pages: RefCell::default(),
            tree: Tree::of(conn)?,
            hold: Hold::Never,
            keeps: false,
            held: Cell::new(false),
            pinned: Cell::new(false),
            writing: Cell::new(false),
            header: Cell::default(),
            seen: Cell::default(),
            others: Cell::new(0),
            depth: Cell::new(0),
            epoch: Cell::new(1),
            record: Cell::default(),
            writeback: None,
        })
    }

    /// Knows from now on whether others have committed, which for a file needs an open WAL; and keeps read
    /// snapshots, if `keep` says so. `alone`: nobody else can write.
    pub(in crate::db) fn watch(&mut self, conn: &Connection, alone: bool, keep: bool) {
        self.hold = if alone { Hold::Always } else { Hold::by_header(conn) };
        self.keeps = keep && !matches!(self.hold, Hold::Never);
    }

    /// Writes the WAL of this connection to the disk while it grows, from now on.
    pub(in crate::db) fn write_back(&mut self, wal: &Path, page_size: u64) {
        self.writeback = Writeback::of(wal, page_size);
    }

    /// To be told after a commit how many frames the WAL has.
    #[inline]
    pub(in crate::db) fn wal_grown_to(&mut self, frames: u32) {
        if let Some(writeback) = &mut self.writeback {
            writeback.grown_to(frames);
        }
    }

    /// A number that changes when others have committed; `None`: nothing tells. To be called inside a write
    /// transaction, when nobody else can commit.
    pub(in crate::db) fn commits_of_others(&self) -> Option<u32> {
        if matches!(self.hold, Hold::Never) {
            return None;
        }
        let now = self.hold.header();
        if self.seen.replace(now) != now {
            self.others.set(self.others.get().wrapping_add(1));
        }
        Some(self.others.get())
    }

    /// To be called before any SQL statement. After a failure what was written is rolled back, and no statement
    /// may run for whoever wrote it.
    #[inline]
    pub(in crate::db) fn make_way(&self, conn: &Connection) -> Result<()> {
        self.clear();
        if self.writing.replace(false) {
            // Outside a transaction of SQL's own, the end of any statement would commit what is written.
            if let Err(e) = conn.prepare_cached("BEGIN").and_then(|mut begin| begin.execute([])) {
                let _ = self.tree.rollback();
                return Err(translate(e));
            }
        }
        self.let_go();
        Ok(())
    }

    /// Closes what is kept for the next operation of a transaction.
    fn clear(&self) {
        self.idle.borrow_mut().clear();
        self.pages.borrow_mut().clear();
    }

    /// Begins a write transaction without SQL, if nobody else is writing; says whether it did. The caller
    /// then calls `commit` or `rollback`, if the transaction has not become one of SQL's meanwhile.
    pub(in crate::db) fn begin_write(&self) -> Result<bool> {
        self.clear();
        if self.keeps && !self.pinned.get() && self.hold.may_keep(&self.hold.header()) {
            self.pinned.set(self.tree.pin());
        }
        // Never from no transaction to a write transaction at once: SQLite would wait for the lock there.
        let anew = || self.tree.begin(false).and_then(|_| self.tree.begin(true));
        let kept = self.held.get() || self.pinned.get();
        let mut begun = if kept { self.tree.begin(true) } else { anew() };
        if begun.is_err() && kept {
            // Somebody has committed since the snapshot that was held, or is writing.
            self.let_go();
            begun = anew();
        }
        match begun {
            Ok(_) => {
                self.held.set(false);
                self.writing.set(true);
                self.commits_of_others();
                Ok(true)
            }
            Err(e) => {
                self.tree.end_read()?;
                if e.is_retryable() { Ok(false) } else { Err(e) }
            }
        }
    }

    /// Whether `begin_write` has begun the open transaction, and no SQL has joined it.
    pub(in crate::db) fn is_writing(&self) -> bool {
        self.writing.get()
    }

    /// Commits; says how many frames the WAL has then, if it is one.
    pub(in crate::db) fn commit(&self) -> Result<Option<u32>> {
        self.clear();
        if !self.tree.is_writing() {
            return Err(Error::Failed("the transaction has been rolled back".into()));
        }
        let header = self.tree.commit(|| self.hold.header())?;
        self.writing.set(false);
        self.held.set(self.pinned.get());
        self.header.set(header);
        self.seen.set(header);
        if !self.hold.may_keep(&header) {
            self.let_go();
        }
        Ok(Some(self.tree.take_wal_frames()).filter(|frames| *frames > 0))
    }

    pub(in crate::db) fn rollback(&self) {
        self.clear();
        self.writing.set(false);
        // After a failure nothing is left to roll back.
        let _ = self.tree.rollback();
        self.let_go();
    }

    /// To be called when a transaction or a savepoint is rolled back.
    pub(in crate::db) fn rolled_back(&self) {
        self.epoch.set(self.epoch.get().wrapping_add(1).max(1));
    }

    /// Ends the snapshot that is kept, if there is one.
    fn let_go(&self) {
        if self.held.replace(false) | self.pinned.get() {
            self.clear();
            if self.pinned.replace(false) {
                self.tree.unpin();
            }
            if !self.tree.is_writing() {
                // A failure to end a read transaction leaves nothing to do.
                let _ = self.tree.end_read();
            }
        }
    }

    /// Begins an operation on a family.
    #[inline]
    pub(super) fn enter<'d>(&'d self, db: &'d Db, tables: &Tables) -> Result<Visit<'d>> {
        for _ in 0..ATTEMPTS {
            let (mut visit, cookie) = self.begin(db)?;
            let stamp = u64::from(self.epoch.get()) << 32 | u64::from(cookie);
            if let Some(roots) = tables.roots.get(stamp) {
                visit.roots = roots;
                return Ok(visit);
            }
            drop(visit);
            self.look_up_roots(db, tables)?;
        }
        Err(Error::Busy("other handles keep changing the families of this store: retry".into()))
    }

    fn begin<'d>(&'d self, db: &'d Db) -> Result<(Visit<'d>, u32)> {
        let visit =
            |end| Visit { direct: self, db, roots: Roots::default(), write: self.tree.is_writing(), end };
        let mut end = End::Nothing;
        let cookie = if self.depth.get() > 0 || self.writing.get() || !db.is_idle() {
            self.tree.begin(self.tree.is_writing())?
        } else if self.held.get() && self.header.get() == self.hold.header() {
            self.tree.begin(false)?
        } else if let Hold::Never = self.hold {
            end = End::Sql;
            self.begin_by_sql(db)?
        } else {
            self.let_go();
            let before = self.hold.header();
            match self.tree.begin(false) {
                Ok(cookie) => {
                    if self.keeps && self.hold.may_keep(&before) && before == self.hold.header() {
                        self.header.set(before);
                        self.held.set(true);
                    } else {
                        end = End::Read;
                    }
                    cookie
                }
                // SQL waits as long as the configuration says.
                Err(e) if e.is_retryable() => {
                    end = End::Sql;
                    self.begin_by_sql(db)?
                }
                Err(e) => return Err(e),
            }
        };
        Ok((self.counted(visit(end)), cookie))
    }

    fn begin_by_sql(&self, db: &Db) -> Result<u32> {
        db.execute("BEGIN")?;
        db.read_first().and_then(|()| self.tree.begin(false)).inspect_err(|_| {
            let _ = db.execute("COMMIT"); // nothing was read: there is nothing to fail
        })
    }

    fn counted<'d>(&self, visit: Visit<'d>) -> Visit<'d> {
        self.depth.set(self.depth.get() + 1);
        visit
    }

    /// Looks root pages up in the schema, by SQL, in one transaction.
    fn look_up_roots(&self, db: &Db, tables: &Tables) -> Result<()> {
        if self.writing.get() || !db.is_idle() {
            return roots::look_up(db, tables, self.epoch.get());
        }
        db.execute("BEGIN")?;
        let done = roots::look_up(db, tables, self.epoch.get());
        let ended = db.execute("COMMIT");
        done.and(ended)
    }
}

/// What the end of an operation has to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Nothing,
    /// End the read transaction that was begun directly.
    Read,
    /// End the one that was begun by SQL.
    Sql,
}

/// An operation under way on a family.
pub(super) struct Visit<'d> {
    direct: &'d Direct,
    db: &'d Db,
    pub(super) roots: Roots,
    write: bool,
    end: End,
}

impl Visit<'_> {
    /// Runs `f` with a cursor on a table, which is kept for the next operation unless `f` fails.
    #[inline]
    pub(super) fn with<R>(
        &self,
        root: u32,
        order: Order,
        f: impl FnOnce(&Tree, &mut Cursor) -> Result<R>,
    ) -> Result<R> {
        let mut cursor = self.cursor(root, order)?;
        let done = f(&self.direct.tree, &mut cursor)?;
        self.keep(cursor);
        Ok(done)
    }

    /// As `Tree::seek`.
    pub(super) fn seek(
        &self,
        cursor: &mut Cursor,
        sought: impl FnOnce(&mut Vec<u8>),
    ) -> Result<std::cmp::Ordering> {
        self.direct.tree.seek(cursor, sought)
    }

    /// A cursor on a table, wherever it was left.
    pub(super) fn cursor(&self, root: u32, order: Order) -> Result<Cursor> {
        let direct = self.direct;
        let kept = {
            let mut idle = direct.idle.borrow_mut();
            let at = idle.iter().position(|cursor| cursor.is_on(root, order, self.write));
            at.map(|at| idle.swap_remove(at))
        };
        match kept {
            Some(cursor) => Ok(cursor),
            None => direct.tree.cursor(root, order, self.write),
        }
    }

    /// Keeps a cursor for the next operation.
    pub(super) fn keep(&self, cursor: Cursor) {
        let mut idle = self.direct.idle.borrow_mut();
        if idle.len() >= MAX_CURSORS {
            idle.remove(0);
        }
        idle.push(cursor);
    }

    /// Looks a row up without a cursor. In a write transaction a cursor does: its place serves the write
    /// that follows.
    #[inline]
    pub(super) fn look_up(&self, root: u32, key: &[u8]) -> Result<Look> {
        if self.write {
            return Ok(Look::NotPlain);
        }
        let keep = self.end == End::Nothing;
        walk::look_up(self.direct.tree.pages(), &mut self.direct.pages.borrow_mut(), keep, root, key)
    }

    /// Number of entries of a table.
    pub(super) fn count(&self, root: u32) -> Result<u64> {
        match walk::count(self.direct.tree.pages(), root)? {
            Some(entries) => Ok(entries),
            None => self.with(root, Order::Key, |tree, cursor| tree.count(cursor)),
        }
    }

    /// How many entries a table can have, at most.
    pub(super) fn room(&self) -> u64 {
        self.direct.tree.pages().room()
    }

    /// Begins to walk over the records of a scan without a cursor.
    pub(super) fn walk(&self, root: u32, scan: &Scan<'_>) -> Result<Walk<'_>> {
        Walk::new(self.direct.tree.pages(), root, scan)
    }

    /// Runs `f` with memory for a record.
    pub(super) fn with_record<R>(&self, f: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let mut record = self.direct.record.take();
        let done = f(&mut record);
        if record.capacity() <= 1 << 20 {
            self.direct.record.set(record);
        }
        done
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let direct = self.direct;
        direct.depth.set(direct.depth.get() - 1);
        match self.end {
            End::Nothing => {}
            End::Read => {
                direct.clear();
                // As in `let_go`.
                let _ = direct.tree.end_read();
            }
            End::Sql => {
                // It has only read.
                let _ = self.db.execute("COMMIT");
            }
        }
    }
}

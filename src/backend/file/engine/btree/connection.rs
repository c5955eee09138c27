//! Use of the B-tree layer on a connection that also runs SQL: which transaction and which cursors
//! are open, and where the root pages of the tables are.
//!
//! - Inside a transaction that SQL has begun, direct operations are part of that transaction.
//! - Outside a transaction, a read begins a read transaction of its own. It is kept ("held") for
//!   the next read, as long as `snapshot_cache.rs` can detect that no other connection has
//!   committed since.
//! - A write outside a transaction may begin and commit a transaction directly. If something in it
//!   needs SQL, it becomes an SQL transaction.
//! - An SQL statement outside a transaction ends a transaction that was begun directly. It must not
//!   run while a cursor is open, because it could change what the cursor refers to. So code that
//!   runs SQL first calls [`BtreeConnection::yield_to_sql`]; `Db::switch_to_sql` does that.
//! - Root pages move when a table is dropped or the file is vacuumed. Both change the schema
//!   cookie, which SQLite returns when a transaction begins. If the cookie differs from that of the
//!   cached list of tables, the list is read again.
//! - A rollback can restore an earlier cookie. The next schema change, by any connection, then sets
//!   a cookie that had a different meaning before the rollback. So each rollback of changed tables
//!   begins a new epoch, and cached table information is valid for one epoch and cookie.

use std::cell::{Cell, RefCell};

use rusqlite::Connection;

use super::cursor::TreeCursor;
use super::pager::KeptPages;
use super::snapshot_cache::{Hold, Keep};
use super::table_roots::{Listed, TableList};
use super::tree::Tree;
use crate::backend::file::error::translate;
use crate::backend::file::os::Header;
use crate::backend::file::schema::Tables;
use crate::config::JournalMode;
use crate::error::{Error, Result};
use crate::hint::Hint;

/// State that a connection needs to use its B-trees without SQL.
pub(in crate::backend) struct BtreeConnection {
    /// Open cursors of earlier operations, kept for the next operation.
    pub(super) idle: RefCell<Vec<TreeCursor>>,
    /// Cache of interior pages, cleared together with `idle`.
    pub(super) pages: RefCell<KeptPages>,
    pub(super) tree: Tree,
    /// Method by which the connection detects that its kept snapshot is out of date.
    pub(super) hold: Hold,
    /// Policy that decides whether a snapshot is kept between reads.
    keep: Keep,
    /// Whether a read transaction is open that is kept for the next read.
    pub(super) held: Cell<bool>,
    /// Whether the read transaction stays open across the commits of this connection. Then its read
    /// lock on the WAL is not taken again for each write transaction, which saves two thirds of the
    /// system calls of a write transaction.
    pinned: Cell<bool>,
    /// Whether a write transaction is open that `begin_write` has begun without SQL, and that no
    /// SQL statement has joined since.
    pub(super) writing: Cell<bool>,
    /// Header of the wal-index for the state that the kept snapshot shows.
    pub(super) header: Cell<Header>,
    /// Number of operations in progress. A visitor of rows can begin an operation inside another
    /// one.
    pub(super) depth: Cell<u32>,
    /// Epoch of the cached table information: a number that changes with each rollback of changed
    /// tables.
    pub(super) epoch: Cell<u32>,
    /// Schema cookie at the beginning of the last write transaction. A different cookie shows that
    /// the transaction has changed the schema.
    began_with: Cell<u32>,
    /// Whether cached root pages or the cached list of tables describe uncommitted changes of the
    /// write transaction, so that a rollback must invalidate them.
    pub(super) knows_changed: Cell<bool>,
    /// Whether the write transaction has created tables without SQL, or has begun to. Then
    /// sqlite_schema may have been changed while the schema cookie has not been changed yet.
    pub(super) made_tables: Cell<bool>,
    /// Cached list of the tables of the file.
    pub(super) list: RefCell<TableList>,
    /// Buffer in which records are encoded, kept between operations.
    pub(super) record: Cell<Vec<u8>>,
}

impl BtreeConnection {
    pub(in crate::backend) fn new(conn: &Connection) -> Result<Option<BtreeConnection>> {
        Ok(Some(BtreeConnection {
            idle: RefCell::default(),
            pages: RefCell::default(),
            tree: Tree::of(conn)?,
            hold: Hold::Never,
            keep: Keep::Never,
            held: Cell::new(false),
            pinned: Cell::new(false),
            writing: Cell::new(false),
            header: Cell::default(),
            depth: Cell::new(0),
            epoch: Cell::new(1),
            began_with: Cell::new(0),
            knows_changed: Cell::new(false),
            made_tables: Cell::new(false),
            list: RefCell::default(),
            record: Cell::default(),
        }))
    }

    /// Sets the number of changed pages in the cache above which SQLite writes changed pages before
    /// the commit (`PRAGMA cache_spill`), and the number of bytes of the file that are mapped into
    /// memory (`PRAGMA mmap_size`). Does not read the file.
    pub(in crate::backend) fn configure(&self, spill_pages: i32, mmap_size: i64) {
        self.tree.configure(spill_pages, mmap_size);
    }

    /// Sets the length, in bytes, to which SQLite truncates a longer WAL file when the WAL
    /// restarts.
    pub(in crate::backend) fn limit_journal(&self, bytes: u64) {
        self.tree.limit_journal(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Sets the maximum number of pages of the database.
    pub(in crate::backend) fn limit_pages(&self, pages: u32) {
        self.tree.limit_pages(pages);
    }

    /// Returns the size of a page of the database, in bytes. Correct only after the connection has
    /// read from the file.
    pub(in crate::backend) fn page_size(&self) -> u64 {
        self.tree.page_size()
    }

    /// Returns the journal mode; `None` if it is neither WAL nor DELETE. Correct only after the
    /// connection has read from the file.
    pub(in crate::backend) fn journal_mode(&self) -> Option<JournalMode> {
        self.tree.journal_mode()
    }

    /// Enables the kept read snapshots, and the detection of commits of other connections that they
    /// need. The WAL of a file must be open, unless `alone` is set.
    ///
    /// `keep` is the policy. `alone` means that no other connection can write. `long` is the length
    /// of the WAL, in frames, from which on a snapshot is kept only if the whole WAL has been
    /// copied into the database.
    pub(in crate::backend) fn watch(&mut self, conn: &Connection, alone: bool, keep: Keep, long: u32) {
        self.hold = if alone { Hold::Always } else { Hold::by_header(conn, long) };
        self.keep = if let Hold::Never = self.hold { Keep::Never } else { keep };
    }

    /// Returns `true` if the snapshot that the caller is about to take should be kept. `header` is
    /// the header of the wal-index for the state of that snapshot.
    pub(super) fn keeps(&self, header: &Header) -> bool {
        self.keep.now() && self.hold.may_keep(header)
    }

    /// Sets the length of the WAL, in frames, from which on a snapshot is kept only if the whole
    /// WAL has been copied into the database.
    pub(in crate::backend) fn set_long(&mut self, long: u32) {
        if let Hold::ByHeader(_, frames) = &mut self.hold {
            *frames = long;
        }
    }

    /// Returns the number of pages of the file, as the open write transaction sees it. SQL may have
    /// begun that transaction.
    #[inline]
    pub(in crate::backend) fn pages(&self) -> u32 {
        self.tree.pages().count()
    }

    /// Removes up to `pages` free pages from the file, in the open write transaction. Removes fewer
    /// if the file has fewer free pages.
    pub(in crate::backend) fn take_pages_off(&self, pages: u32) -> Result<()> {
        self.clear();
        for _ in 0..pages {
            if !self.tree.take_page_off()? {
                break;
            }
        }
        Ok(())
    }

    /// Returns the current epoch: a number that changes with each rollback of changed tables, and
    /// for which cached table information is valid.
    pub(in crate::backend) fn epoch(&self) -> u32 {
        self.epoch.get()
    }

    /// Begins the epoch that follows `before`. That is the epoch of the connection that this one
    /// replaces in its handle. Cached table information of that connection becomes invalid.
    pub(in crate::backend) fn follow(&mut self, before: u32) {
        self.epoch.set(before.wrapping_add(1).max(1));
    }

    /// Returns a number that changes when the open transaction sees new commits of other
    /// connections.
    pub(in crate::backend) fn commits_of_others(&self) -> u32 {
        self.tree.data_version()
    }

    /// Closes cursors and kept snapshots, and turns a write transaction that was begun directly
    /// into an SQL transaction. Call this before any SQL statement.
    ///
    /// If this fails, the caller must run no statement. If BEGIN fails, the write transaction is
    /// rolled back.
    #[inline]
    pub(in crate::backend) fn yield_to_sql(&self, conn: &Connection) -> Result<()> {
        self.clear();
        if self.writing.replace(false) {
            // Without an SQL transaction, SQLite would commit the write transaction at the end of
            // the next statement. So an SQL transaction is begun.
            if let Err(e) = conn.prepare_cached("BEGIN").and_then(|mut begin| begin.execute([])) {
                let _ = self.tree.rollback();
                return Err(translate(e));
            }
            // Makes SQLite read the schema now, including the tables that other connections have
            // created since. If a write statement were the first to detect the change, SQLite would
            // undo that statement and repeat it. Without the memory to undo it, SQLite would roll
            // back the whole transaction and run the statement outside of it.
            conn.prepare_cached("SELECT 0 FROM sqlite_schema LIMIT 0")
                .and_then(|mut read| read.query([])?.next().map(drop))
                .map_err(translate)?;
        }
        self.release_snapshot();
        Ok(())
    }

    /// Closes the cursors that are kept for the next operation, and releases the cached interior
    /// pages.
    pub(super) fn clear(&self) {
        self.idle.borrow_mut().clear();
        self.pages.borrow_mut().clear();
    }

    /// Begins a write transaction without SQL. Returns `false` if another connection is writing.
    ///
    /// The caller ends the transaction by `commit` or `rollback`. If `yield_to_sql` turns it into an
    /// SQL transaction, the caller ends it by SQL instead.
    pub(in crate::backend) fn begin_write(&self) -> Result<bool> {
        self.clear();
        if !self.pinned.get() && self.keeps(&self.hold.header()) {
            self.pinned.set(self.tree.pin());
        }
        // A read transaction is begun first. Without one, SQLite would wait for the write lock
        // here.
        let anew = || self.tree.begin(false).and_then(|_| self.tree.begin(true));
        let kept = self.held.get() || self.pinned.get();
        let mut begun = if kept { self.tree.begin(true) } else { anew() };
        if begun.is_err() && kept {
            // Another connection has committed since the held snapshot, or is writing.
            self.release_snapshot();
            begun = anew();
        }
        match begun {
            Ok(cookie) => {
                self.held.set(false);
                self.writing.set(true);
                self.began_with.set(cookie);
                self.made_tables.set(false);
                Ok(true)
            }
            Err(e) => {
                self.tree.end_read()?;
                if e.is_retryable() { Ok(false) } else { Err(e) }
            }
        }
    }

    /// Records the schema cookie at the beginning of a write transaction that SQL has begun.
    pub(in crate::backend) fn attach_sql_transaction(&self) -> Result<()> {
        self.made_tables.set(false);
        self.began_with.set(self.tree.begin(true)?);
        Ok(())
    }

    /// Makes the transaction that SQL has begun take its snapshot now. BEGIN alone does not take
    /// one.
    pub(in crate::backend) fn read_first(&self) -> Result<()> {
        self.tree.begin(self.tree.is_writing()).map(drop)
    }

    /// Returns `true` if `begin_write` has begun the open transaction and SQL has not joined it.
    pub(in crate::backend) fn is_writing(&self) -> bool {
        self.writing.get()
    }

    /// Commits the write transaction. Returns the number of frames in the WAL; `None` if the commit
    /// was not to a WAL.
    pub(in crate::backend) fn commit(&self) -> Result<Option<u32>> {
        self.clear();
        if !self.tree.is_writing() {
            return Err(Error::failed("the transaction has been rolled back").with_hint(Hint::RollBack));
        }
        let header = self.tree.commit(|| self.hold.header())?;
        self.writing.set(false);
        self.held.set(self.pinned.get());
        self.header.set(header);
        if !self.hold.may_keep(&header) {
            self.release_snapshot();
        }
        Ok(Some(self.tree.take_wal_frames()).filter(|frames| *frames > 0))
    }

    pub(in crate::backend) fn rollback(&self) {
        self.clear();
        self.writing.set(false);
        // If the rollback fails, there is nothing more to do.
        let _ = self.tree.rollback();
        self.release_snapshot();
    }

    /// Invalidates cached table information after the rollback of a transaction or a savepoint, if
    /// that information described uncommitted changes.
    pub(in crate::backend) fn rolled_back(&self) {
        if self.knows_changed.replace(false) | self.made_tables.get() {
            self.epoch.set(self.epoch.get().wrapping_add(1).max(1));
        }
        if self.made_tables.get() {
            // SQLite may know tables that no longer exist, and their cookie may be used again for
            // other tables. `made_tables` stays set: after the rollback of a savepoint, this can
            // happen once more before the transaction ends.
            self.tree.forget_schema();
        }
    }

    /// Ends the read transaction that is kept between reads or across commits, if there is one.
    pub(super) fn release_snapshot(&self) {
        if self.held.replace(false) | self.pinned.get() {
            self.clear();
            if self.pinned.replace(false) {
                self.tree.unpin();
            }
            if !self.tree.is_writing() {
                // If ending a read transaction fails, there is nothing more to do.
                let _ = self.tree.end_read();
            }
        }
    }

    /// Returns the number that marks table information as valid for the current epoch (upper 32
    /// bits) and for this schema cookie (lower 32 bits).
    pub(super) fn stamp(&self, cookie: u32) -> u64 {
        u64::from(self.epoch.get()) << 32 | u64::from(cookie)
    }

    /// Reads the list of tables again, if the cached list is not that of the open transaction.
    /// `cookie` is the schema cookie of that transaction.
    #[cold]
    pub(super) fn read_list(&self, cookie: u32) -> Result<()> {
        let stamp = self.stamp(cookie);
        if self.list.borrow().stamp == stamp {
            return Ok(());
        }
        self.note_cookie(cookie);
        let list = match self.tree.is_utf8() {
            true => TableList::read(&self.tree, stamp)?,
            false => TableList::not_understood(stamp),
        };
        self.list.replace(list);
        Ok(())
    }

    /// Records whether table information with this cookie describes changes of the open write
    /// transaction. Call this whenever the open transaction reads the list of tables.
    pub(super) fn note_cookie(&self, cookie: u32) {
        if self.tree.is_writing() && cookie != self.began_with.get() {
            self.knows_changed.set(true);
        }
    }

    /// Finds the root pages of a family in the list of tables, and stores them in `tables.roots`.
    /// Returns `false` if SQL must find them, because the list or one of these tables does not have
    /// the expected form.
    #[cold]
    pub(super) fn find_in_list(&self, cookie: u32, tables: &Tables) -> Result<bool> {
        self.read_list(cookie)?;
        let list = self.list.borrow();
        let listed = list.of(tables);
        let found = list.is_plain && !listed.odd;
        if found {
            self.note_cookie(cookie);
            tables.roots.set(list.stamp, listed.pages, false);
        }
        Ok(found)
    }

    /// Sets the schema cookie to `cookie + 1`, and updates the cached list of tables. Call this
    /// after the open transaction has created tables or views of a family, which `listed`
    /// describes.
    pub(super) fn tables_made(&self, cookie: u32, tables: &Tables, listed: Listed) -> Result<()> {
        let next = cookie.wrapping_add(1);
        self.tree.set_cookie(next)?;
        self.knows_changed.set(true);
        self.list.borrow_mut().change(tables, listed, self.stamp(next));
        Ok(())
    }
}

//! One connection and its transactions. `open.rs` opens it, `checkpoint.rs` has the checkpoints,
//! and `maintenance.rs` has the maintenance.

#[cfg(feature = "encryption")]
use std::cell::Cell;
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rusqlite::Connection;

use super::checkpoint_schedule::CheckpointSchedule;
use super::disk_reserve::DiskSpace;
use super::engine::Rows;
#[cfg(kvstore_btree)]
use super::engine::btree::{BtreeEngine, Direct};
use super::engine::sql::SqlEngine;
use super::error::{name_the_forbidden, translate};
use super::handle_registry::{OpenHandle, Registration};
use super::immutable_state::Immutable;
use super::moved_file::Watched;
use super::next_expiry_index::NextExpiryIndex;
use super::os::{self, FileIdentity, Opened, Pages, Presence};
use super::pending_removals::PendingRemovals;
use super::quota::QuotaTracker;
use super::settings_cache::SettingsCache;
use super::wal_cleanup::Leftovers;
use crate::backend::TransactionState;
use crate::backend::transaction::no_transaction;
use crate::clock::Clock;
#[cfg(feature = "encryption")]
use crate::config::Config;
use crate::config::{CheckpointMode, SyncLevel};
use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::stats::Counters;
use crate::unwind::or_undo;

/// What a connection has of the handle that owns it.
#[derive(Default)]
pub(super) struct Owner {
    pub(super) clock: Arc<Clock>,
    pub(super) counters: Arc<Counters>,
    /// `None` for a store in memory.
    pub(super) registration: Option<Registration>,
}

/// SQLite connection to a store in a file or in memory.
pub(crate) struct Db {
    pub(super) owner: Owner,
    /// State of the `btree` engine; `None` if this handle uses the `sql` engine.
    ///
    /// It comes before the connection, so that it is dropped first.
    #[cfg(kvstore_btree)]
    pub(super) direct: Option<Direct>,
    /// Whether commits never wait for readers, so that writes need no SQL. (SQL does such waiting.)
    #[cfg(kvstore_btree)]
    pub(super) writes_directly: bool,
    /// SQLite connection. Once the store is open, use it through `switch_to_sql()`.
    pub(super) conn: Connection,
    pub(super) transaction: TransactionState,
    /// Path of the file; `None` for a store in memory.
    pub(super) path: Option<PathBuf>,
    pub(super) sync: SyncLevel,
    pub(super) busy_timeout: Duration,
    pub(super) read_only: bool,
    /// Whether deleted data is overwritten with zeros.
    pub(super) secure_delete: bool,
    pub(super) max_inline: usize,
    /// Number of frames in the WAL after the last commit, as the WAL hook reports it.
    pub(super) wal_frames: Arc<AtomicU32>,
    pub(super) checkpoints: CheckpointSchedule,
    pub(super) settings: RefCell<SettingsCache>,
    /// Location of the file, to detect that it was moved; `None` for a store in memory.
    pub(super) watched: Option<Watched>,
    /// State of a store that cannot be written; otherwise `None`.
    pub(super) immutable: Option<Box<Immutable>>,
    /// Lock that shows other processes that this one has the file open.
    pub(super) presence: Option<Arc<Presence>>,
    pub(super) next_expiry: RefCell<NextExpiryIndex>,
    /// Lower bounds on the earliest write times in the families; `next_expiry` has those of expiry
    /// times.
    pub(super) next_written: RefCell<NextExpiryIndex>,
    pub(super) quota: QuotaTracker,
    pub(super) disk_space: DiskSpace,
    pub(super) pending: RefCell<PendingRemovals>,
    /// Configuration with which an encrypted file was opened.
    #[cfg(feature = "encryption")]
    pub(super) encrypted: Option<Box<Config>>,
    /// Number of page reads of this process at the last check that everything was decrypted.
    #[cfg(feature = "encryption")]
    pub(super) reads_seen: Cell<u64>,
    /// Error after which SQLCipher decrypts nothing any more.
    #[cfg(feature = "encryption")]
    pub(super) spoilt: Option<Error>,
    /// Cleanup of WAL files, only for a read-only file. It comes after the connection, so that it
    /// is dropped later.
    pub(super) _leftovers: Option<Leftovers>,
}

/// Offset in the file header of the number of reserved bytes of each page (fileformat2.html,
/// chapter 1.3).
const RESERVED: u64 = 20;

impl Db {
    /// Returns the storage engine, which performs the row operations.
    #[inline]
    pub(super) fn rows(&self) -> Rows<'_> {
        #[cfg(kvstore_btree)]
        if let Some(direct) = &self.direct {
            return Rows::Btree(BtreeEngine { db: self, direct });
        }
        Rows::Sql(SqlEngine { db: self })
    }

    /// Returns the connection for running SQL, after the `btree` engine has closed its cursors and
    /// its snapshot.
    ///
    /// A write transaction that the engine began becomes one of SQL.
    #[inline]
    pub(super) fn switch_to_sql(&self) -> Result<&Connection> {
        #[cfg(kvstore_btree)]
        if let Some(direct) = &self.direct {
            direct.make_way(&self.conn)?;
        }
        Ok(&self.conn)
    }

    /// Returns the path of the file, with symbolic links resolved; `None` for a store in memory.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.path.clone()
    }

    pub(crate) fn file_identity(&self) -> Option<FileIdentity> {
        self.watched.as_ref().map(|watched| watched.place.file())
    }

    /// Returns the layout of the pages in which deleted data must be overwritten; `None` if nothing
    /// must be.
    ///
    /// Files that SQLCipher encrypts have no such layout.
    pub(super) fn pages_to_wipe(&self) -> Result<Option<Pages>> {
        if self.is_encrypted() {
            return Ok(None);
        }
        let mut reserved = [0];
        if self.path.is_some() {
            os::read(&self.conn, Opened::Main, &mut reserved, RESERVED)?;
        }
        Ok(Some(Pages { size: self.page_size()?, reserved: reserved[0] }))
    }

    /// Returns `true` if the file is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        #[cfg(feature = "encryption")]
        return self.encrypted.is_some();
        #[cfg(not(feature = "encryption"))]
        false
    }

    /// Returns `config` with the current secret of the file.
    #[cfg(feature = "encryption")]
    pub(crate) fn with_its_secret(&self, config: &Config) -> Config {
        let mut config = config.clone();
        config.file.secret = self.encrypted.as_ref().and_then(|config| config.file.secret.clone());
        config
    }

    /// Returns the maximum number of bytes of a key and an inline value together, in this file.
    pub(super) fn max_inline(&self) -> usize {
        self.max_inline
    }

    /// Uses the clock and the counters of a handle from now on.
    pub(crate) fn set_owner(&mut self, clock: &Arc<Clock>, counters: &Arc<Counters>) {
        self.owner.clock = Arc::clone(clock);
        self.owner.counters = Arc::clone(counters);
    }

    /// Adds the handle that owns this connection to the open handles of this process.
    pub(crate) fn register(&mut self, handle: Weak<dyn OpenHandle>) {
        self.owner.registration = self.file_identity().map(|file| Registration::new(file, handle));
    }

    /// Makes the other handles of this process on the same file release the snapshots that they
    /// keep between reads.
    pub(super) fn release_other_snapshots(&self) {
        if let Some(registration) = &self.owner.registration {
            registration.release_other_snapshots();
        }
    }

    /// Returns `true` if no other handle of this process has the file open.
    #[cfg(feature = "encryption")]
    pub(crate) fn is_only_handle(&self) -> bool {
        self.owner.registration.as_ref().is_none_or(Registration::is_only_one)
    }

    // ---- transactions ------------------------------------------------------------------------

    pub(crate) fn transaction(&self) -> &TransactionState {
        &self.transaction
    }

    /// Begins the read transaction of the caller, whose snapshot is the current state.
    pub(crate) fn begin_read(&mut self) -> Result<()> {
        self.execute("BEGIN")?;
        if let Err(e) = self.read_first().and_then(|()| self.check_place()) {
            self.roll_back_quietly();
            return Err(e);
        }
        self.transaction = TransactionState::Read;
        Ok(())
    }

    /// Begins the write transaction of the caller.
    pub(crate) fn begin_write(&mut self) -> Result<()> {
        if self.disk_space.is_full() {
            self.make_disk_space();
        }
        self.begin_immediate()?;
        if let Err(e) = self.check_place_now_and_then() {
            self.roll_back_quietly();
            return Err(e);
        }
        self.transaction = TransactionState::Write;
        Ok(())
    }

    /// Commits the transaction of the caller. After `Busy` it is still open and can be committed
    /// again; after any other failure it can only be rolled back.
    pub(crate) fn commit(&mut self) -> Result<()> {
        self.transaction.check_commit()?;
        let ready = match self.transaction {
            TransactionState::Write => {
                self.check_place().and_then(|()| self.shrink_to_limit()).and_then(|()| self.reserve_pages())
            }
            _ => Ok(()),
        };
        match ready.and_then(|()| self.commit_by_sql()) {
            Ok(()) => {
                self.transaction = TransactionState::None;
                self.keep_spare_blocks();
                Ok(())
            }
            Err(e) => {
                if e.kind() != ErrorKind::Busy || self.is_idle() {
                    self.doom(&e);
                }
                Err(e)
            }
        }
    }

    /// Rolls back the transaction of the caller.
    pub(crate) fn rollback(&mut self) -> Result<()> {
        if self.transaction == TransactionState::None {
            return Err(no_transaction("roll back"));
        }
        self.transaction = TransactionState::None;
        self.rolled_back();
        // If no transaction is open, SQLite itself has rolled it back after the failure.
        let done = if self.is_idle() { Ok(()) } else { self.execute("ROLLBACK") };
        self.forget_frames();
        #[cfg(feature = "encryption")]
        self.leave_if_spoilt();
        done
    }

    /// Rolls back what a failed rollback has left open although the caller has no transaction. Call
    /// this before any other operation, so that the remains are neither read nor committed.
    #[inline]
    pub(crate) fn roll_back_remains(&self) -> Result<()> {
        if self.transaction != TransactionState::None || self.is_idle() {
            return Ok(());
        }
        self.rolled_back();
        let done = self.execute("ROLLBACK");
        self.forget_frames();
        done
    }

    /// Checks after any failure, also of a read, whether SQLite has ended the transaction of the
    /// caller.
    ///
    /// Later writes would be committed at once, and later reads would see another state.
    #[cold]
    pub(crate) fn note_failure(&mut self, why: &Error) {
        self.forget_frames();
        self.note_full_disk(why);
        #[cfg(feature = "encryption")]
        self.note_spoilt(why);
        if self.transaction == TransactionState::None || !self.is_idle() {
            return;
        }
        match self.transaction {
            TransactionState::Write => self.doom(why),
            TransactionState::Read => self.transaction = TransactionState::Lost(why.clone()),
            TransactionState::Doomed(_) => self.rolled_back(),
            TransactionState::None | TransactionState::Lost(_) => {}
        }
    }

    /// Converts an error to the form that the caller gets.
    #[cold]
    pub(crate) fn explained(&self, why: Error) -> Error {
        #[cfg(feature = "encryption")]
        let why = self.as_lost_page(why);
        name_the_forbidden(why, self.path.as_deref())
    }

    /// Marks the write transaction of the caller as failed and rolls it back at once. Until the
    /// caller ends it, reads see the last committed state.
    pub(crate) fn doom(&mut self, why: &Error) {
        if self.transaction == TransactionState::Write {
            self.transaction = TransactionState::Doomed(why.clone());
            self.roll_back_quietly();
        }
    }

    /// Runs `f` in a write transaction of its own. `wait`: whether to wait for the lock of another
    /// writer, up to the busy timeout.
    pub(crate) fn in_own_transaction<R>(
        &mut self,
        wait: bool,
        f: impl FnOnce(&Db) -> Result<R>,
    ) -> Result<R> {
        if wait {
            return self.run_transaction(f);
        }
        self.set_busy_timeout(Duration::ZERO)?;
        // In DELETE journal mode the commit may wait for locks, too.
        let done = or_undo(&*self, |db| db.run_transaction(f), |db| drop(db.wait_again()));
        self.wait_again()?;
        done
    }

    /// Restores the configured busy timeout.
    fn wait_again(&self) -> Result<()> {
        self.set_busy_timeout(self.busy_timeout)
    }

    fn run_transaction<R>(&self, f: impl FnOnce(&Db) -> Result<R>) -> Result<R> {
        #[cfg(kvstore_btree)]
        if let Some(direct) = &self.direct
            && self.writes_directly
            && direct.begin_write()?
        {
            return self.run_direct_transaction(direct, f);
        }
        self.begin_immediate()?;
        let done = or_undo(self, |db| f(db), |db| db.roll_back_quietly());
        let done = done.and_then(|r| {
            self.check_place_now_and_then()?;
            self.reserve_pages()?;
            self.commit_by_sql()?;
            self.keep_spare_blocks();
            Ok(r)
        });
        if done.is_err() {
            self.roll_back_quietly();
        }
        done
    }

    /// Runs `f` in a write transaction that was begun without SQL. If `f` needs SQL, such as for a
    /// new table, the transaction becomes one of SQL.
    #[cfg(kvstore_btree)]
    fn run_direct_transaction<R>(&self, direct: &Direct, f: impl FnOnce(&Db) -> Result<R>) -> Result<R> {
        self.give_spare_blocks_back();
        let undo = || {
            if direct.is_writing() {
                direct.rollback();
            }
            self.roll_back_quietly();
        };
        let done = or_undo(self, |db| f(db), |_| undo()).and_then(|r| {
            self.check_place_now_and_then()?;
            self.reserve_pages()?;
            if !direct.is_writing() {
                self.commit_by_sql()?;
            } else if let Some(frames) = direct.commit()? {
                self.wal_frames.store(frames, Ordering::Relaxed);
            }
            self.keep_spare_blocks();
            Ok(r)
        });
        if done.is_err() {
            undo();
        }
        done
    }

    /// Runs `f` on one snapshot: in the transaction of the caller, or in a read transaction of its
    /// own.
    pub(crate) fn in_snapshot<R>(&self, f: impl FnOnce(&Db) -> Result<R>) -> Result<R> {
        // A transaction that SQLite has rolled back has no snapshot.
        let is_over = self.is_idle() && matches!(self.transaction, TransactionState::Doomed(_));
        if self.transaction != TransactionState::None && !is_over {
            return f(self);
        }
        self.execute("BEGIN")?;
        let done = or_undo(self, |db| f(db), |db| db.roll_back_quietly());
        // Nothing was written: this only ends the snapshot.
        if self.execute("COMMIT").is_err() {
            self.roll_back_quietly();
        }
        done
    }

    /// Runs `f` inside a write transaction. If `f` fails, its changes are undone.
    pub(crate) fn in_savepoint<R>(&self, f: impl FnOnce(&Db) -> Result<R>) -> Result<R> {
        if self.transaction == TransactionState::None {
            // The write has a transaction of its own, which is rolled back as a whole.
            return f(self);
        }
        self.begin_savepoint()?;
        // After a panic the caller's transaction can only be rolled back, so the result is ignored.
        let undo = |db: &mut &Db| drop(db.end_savepoint(Err::<(), _>(Error::failed("a callback panicked"))));
        let done = or_undo(self, |db| f(db), undo);
        self.end_savepoint(done)
    }

    pub(super) fn begin_savepoint(&self) -> Result<()> {
        self.execute("SAVEPOINT kvstore")
    }

    /// Ends a savepoint. After a failure, everything since its beginning is undone.
    pub(super) fn end_savepoint<R>(&self, done: Result<R>) -> Result<R> {
        let mut ended = Ok(());
        if done.is_err() {
            self.rolled_back();
            if !self.is_idle() {
                ended = self.execute("ROLLBACK TO kvstore");
            }
        }
        if ended.is_ok() && !self.is_idle() {
            ended = self.execute("RELEASE kvstore");
        }
        match (done, ended) {
            // The first error is the cause: SQLite reports a file as damaged if it cannot read it
            // while it undoes changes.
            (Err(why), Err(_)) if why.dooms_transaction() => Err(why),
            (done, ended) => ended.and(done),
        }
    }

    /// Runs a write in the caller's transaction. If a callback in it panics, the transaction can
    /// only be rolled back.
    pub(super) fn write_or_doom<R>(&mut self, f: impl FnOnce(&Db) -> Result<R>) -> Result<R> {
        or_undo(
            self,
            |db| f(db),
            |db| {
                db.doom(
                    &Error::failed("a callback panicked inside the transaction").with_hint(Hint::RollBack),
                )
            },
        )
    }

    /// Runs `f` inside the write transaction of the caller. If `f` fails, its changes are undone
    /// and the transaction continues.
    ///
    /// It does not continue if SQLite has ended it, or if the changes of `f` cannot be undone.
    pub(crate) fn attempt(&mut self, f: impl FnOnce(&Db) -> Result<()>) {
        if let Err(e) = self.execute("SAVEPOINT kvstore") {
            return self.note_failure(&e);
        }
        if let Err(e) = self.write_or_doom(f) {
            self.rolled_back();
            if self.is_idle() || self.execute("ROLLBACK TO kvstore").is_err() {
                return self.doom(&e);
            }
        }
        // If this fails, the savepoint ends with the transaction.
        if let Err(e) = self.execute("RELEASE kvstore") {
            self.note_failure(&e);
        }
    }

    /// Releases the snapshot that is kept between reads.
    pub(crate) fn let_reads_go(&mut self) {
        let _ = self.switch_to_sql(); // fails only in the middle of a write
    }

    fn begin_immediate(&self) -> Result<()> {
        self.execute("BEGIN IMMEDIATE")?;
        #[cfg(kvstore_btree)]
        if let Some(direct) = &self.direct {
            direct.begun_by_sql().inspect_err(|_| self.roll_back_quietly())?;
        }
        self.give_spare_blocks_back();
        Ok(())
    }

    fn commit_by_sql(&self) -> Result<()> {
        if self.is_idle() {
            return Err(Error::no_memory("out of memory: SQLite has rolled the transaction back"));
        }
        self.execute("COMMIT")
    }

    fn roll_back_quietly(&self) {
        self.rolled_back();
        if !self.is_idle() {
            // A rollback that fails has nothing left to roll back. The error that led here is
            // reported.
            let _ = self.execute("ROLLBACK");
        }
        self.forget_frames();
    }

    /// Discards the frames of a write transaction that the VFS of this library has buffered. Call
    /// this when a write transaction may have ended without a commit.
    ///
    /// The VFS cannot detect that for an exclusive connection, which releases no lock.
    fn forget_frames(&self) {
        #[cfg(kvstore_btree)]
        if self.direct.as_ref().is_some_and(Direct::is_writing) {
            return;
        }
        if self.is_idle() {
            os::vfs::forget_frames(&self.conn);
        }
    }

    /// Returns `true` if no transaction is open that SQL has begun.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.conn.is_autocommit()
    }

    /// Updates the state after a rollback.
    fn rolled_back(&self) {
        self.forget_settings(); // the transaction may have changed them
        self.forget_tentative_bounds();
        #[cfg(kvstore_btree)]
        if let Some(direct) = &self.direct {
            direct.rolled_back();
        }
    }

    // ---- the end ------------------------------------------------------------------------------

    /// Prepares the close of the connection, and removes the noted expired rows. Call this before
    /// the close.
    ///
    /// If the file was moved, SQLite does not checkpoint the WAL at the close. So this runs a
    /// checkpoint, after which the file has all commits, wherever it is now.
    pub(crate) fn before_close(&mut self) {
        self.remove_pending_before_close();
        self.keep_wal_if_nearly_full();
        if self.read_only || self.watched.as_ref().is_none_or(|watched| watched.place.is_kept()) {
            return;
        }
        if os::has_moved(&self.conn) {
            let _ = self.rollback(); // fails if there is nothing to roll back
            let _ = self.checkpoint(CheckpointMode::Truncate); // a failure leaves the WAL unchanged
        }
    }

    /// Rolls back an open transaction and closes the connection, which is closed even if this
    /// fails.
    pub(crate) fn close(mut self) -> Result<()> {
        self.before_close();
        self.roll_back_quietly();
        #[cfg(kvstore_btree)]
        let Db { direct, conn, .. } = self;
        #[cfg(kvstore_btree)]
        drop(direct);
        #[cfg(not(kvstore_btree))]
        let Db { conn, .. } = self;
        conn.close().map_err(|(_, e)| translate(e))
    }

    /// Fails if the file is no longer at its location.
    pub(super) fn check_place(&self) -> Result<()> {
        self.watched.as_ref().map_or(Ok(()), Watched::check)
    }

    /// Like `check_place`, but does nothing if the last check was only some milliseconds ago.
    #[inline]
    pub(super) fn check_place_now_and_then(&self) -> Result<()> {
        self.watched.as_ref().map_or(Ok(()), Watched::check_now_and_then)
    }

    // ---- helpers -----------------------------------------------------------------------------

    pub(super) fn set_busy_timeout(&self, wait: Duration) -> Result<()> {
        os::set_busy_timeout(&self.conn, wait).map_err(translate)
    }

    pub(super) fn execute(&self, sql: &str) -> Result<()> {
        let mut statement = self.switch_to_sql()?.prepare_cached(sql).map_err(translate)?;
        let mut rows = statement.raw_query();
        while rows.next().map_err(translate)?.is_some() {} // some pragmas return a row
        Ok(())
    }

    /// Reads something, so that the transaction takes its snapshot. BEGIN alone takes none.
    pub(super) fn read_first(&self) -> Result<()> {
        #[cfg(kvstore_btree)]
        if let Some(direct) = &self.direct
            && !self.is_idle()
        {
            return direct.read_first();
        }
        self.read_number("SELECT 1 FROM sqlite_schema LIMIT 1").map(drop)
    }

    pub(super) fn read_number(&self, sql: &str) -> Result<i64> {
        self.switch_to_sql()?
            .prepare_cached(sql)
            .and_then(|mut s| s.query_row([], |row| row.get(0)))
            .map_err(translate)
    }
}

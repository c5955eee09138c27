//! Transactions: those of the caller, those of a single write, snapshots and savepoints.

use std::time::Duration;

use super::connection::Db;
use super::engine::btree::BtreeConnection;
use super::os;
use crate::backend::TransactionState;
use crate::backend::transaction::no_transaction;
use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::unwind::or_undo;

impl Db {
    pub(crate) fn transaction(&self) -> &TransactionState {
        &self.transaction
    }

    /// Begins the read transaction of the caller. Its snapshot is taken at once, not at the first
    /// read.
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
    pub(super) fn begin_write(&mut self) -> Result<()> {
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
    pub(super) fn commit(&mut self) -> Result<()> {
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

    /// Rolls back a transaction that is still open in SQLite, after a failed rollback, although the
    /// caller's transaction has ended. Call this before any other operation, so that the changes of
    /// that transaction are neither read nor committed.
    #[inline]
    pub(super) fn roll_back_remains(&self) -> Result<()> {
        if self.transaction != TransactionState::None || self.is_idle() {
            return Ok(());
        }
        self.rolled_back();
        let done = self.execute("ROLLBACK");
        self.forget_frames();
        done
    }

    /// Updates the state after a call has failed with `why`. If SQLite has ended the transaction of
    /// the caller, marks it as doomed or lost: otherwise later writes would be committed at once,
    /// and later reads would use another snapshot.
    ///
    /// Call this after any failure, including that of a read.
    #[cold]
    pub(super) fn note_failure(&mut self, why: &Error) {
        self.forget_frames();
        self.note_full_disk(why);
        #[cfg(feature = "encryption")]
        self.note_spoilt(why);
        match self.transaction {
            _ if !self.is_idle() => {}
            TransactionState::Write => self.doom(why),
            TransactionState::Read => self.transaction = TransactionState::Lost(why.clone()),
            TransactionState::Doomed(_) => self.rolled_back(),
            TransactionState::None | TransactionState::Lost(_) => {}
        }
        #[cfg(feature = "encryption")]
        self.leave_if_spoilt();
    }

    /// Marks the write transaction of the caller as failed and rolls it back at once. Until the
    /// caller ends it, reads see the last committed state.
    pub(super) fn doom(&mut self, why: &Error) {
        if self.transaction == TransactionState::Write {
            self.transaction = TransactionState::Doomed(why.clone());
            self.roll_back_quietly();
        }
    }

    /// Runs `f` in a write transaction of its own. `wait`: whether to wait for the lock of another
    /// writer, up to the busy timeout.
    pub(super) fn in_own_transaction<R>(
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

    /// Restores the configured busy timeout, which `in_own_transaction` has set to 0.
    fn wait_again(&self) -> Result<()> {
        self.set_busy_timeout(self.busy_timeout)
    }

    fn run_transaction<R>(&self, f: impl FnOnce(&Db) -> Result<R>) -> Result<R> {
        if let Some(btree) = &self.btree
            && self.writes_directly
            && btree.begin_write()?
        {
            return self.run_btree_transaction(btree, f);
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

    /// Runs `f` in a write transaction that the `btree` engine has begun without SQL. If `f` needs
    /// SQL, for example to create a table, SQL continues and commits the transaction.
    fn run_btree_transaction<R>(
        &self,
        btree: &BtreeConnection,
        f: impl FnOnce(&Db) -> Result<R>,
    ) -> Result<R> {
        self.give_spare_blocks_back();
        let undo = || {
            if btree.is_writing() {
                btree.rollback();
            }
            self.roll_back_quietly();
        };
        let done = or_undo(self, |db| f(db), |_| undo()).and_then(|r| {
            self.check_place_now_and_then()?;
            self.reserve_pages()?;
            if !btree.is_writing() {
                self.commit_by_sql()?;
            } else if let Some(frames) = btree.commit()? {
                self.wal_frames.set(frames);
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
    pub(super) fn in_snapshot<R>(&self, f: impl FnOnce(&Db) -> Result<R>) -> Result<R> {
        // A transaction that SQLite has rolled back has no snapshot.
        let is_over = self.is_idle() && matches!(self.transaction, TransactionState::Doomed(_));
        if self.transaction != TransactionState::None && !is_over {
            return f(self);
        }
        self.execute("BEGIN")?;
        let run = |db: &mut &Db| db.check_place_now_and_then().and_then(|()| f(db));
        let done = or_undo(self, run, |db| db.roll_back_quietly());
        // Nothing was written: this only ends the snapshot.
        if self.execute("COMMIT").is_err() {
            self.roll_back_quietly();
        }
        done
    }

    /// Runs `f` inside a write transaction. If `f` fails, its changes are undone, and the
    /// transaction of the caller stays open.
    pub(super) fn in_savepoint<R>(&self, f: impl FnOnce(&Db) -> Result<R>) -> Result<R> {
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

    /// Ends the savepoint of `begin_savepoint`. `done` is the result of the operations since then;
    /// if it is an error, their changes are undone. Returns `done`, or the error of ending the
    /// savepoint.
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

    /// Releases the snapshot that this connection keeps between reads, so that the WAL can start
    /// over.
    pub(crate) fn let_reads_go(&mut self) {
        let _ = self.switch_to_sql(); // fails only in the middle of a write
    }

    fn begin_immediate(&self) -> Result<()> {
        self.execute("BEGIN IMMEDIATE")?;
        if let Some(btree) = &self.btree {
            btree.attach_sql_transaction().inspect_err(|_| self.roll_back_quietly())?;
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

    pub(super) fn roll_back_quietly(&self) {
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
        if self.btree.as_ref().is_some_and(BtreeConnection::is_writing) {
            return;
        }
        if self.is_idle() {
            os::vfs::forget_frames(&self.conn);
        }
    }

    /// Returns `true` if SQL has no transaction open. A transaction that the `btree` engine has
    /// begun without SQL does not count.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.conn.is_autocommit()
    }

    /// Discards cached settings, time bounds and table information that a rollback makes invalid.
    fn rolled_back(&self) {
        self.forget_settings(); // the transaction may have changed them
        self.forget_tentative_bounds();
        self.expired_ranges.forget();
        if let Some(btree) = &self.btree {
            btree.rolled_back();
        }
    }
}

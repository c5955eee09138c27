//! Transactions over all families of a store.

use std::ops::Deref;

use super::Store;
use crate::backend::{Db, TransactionState};
use crate::error::{Error, Result};
use crate::hint::Hint;
use crate::session::read_only;

impl Store {
    /// Runs `f` in a write transaction. Commits if `f` returns `Ok`; rolls back if it returns `Err`
    /// or panics.
    ///
    /// ```
    /// # let store = kvstore::Store::open_in_memory(&kvstore::Config::new())?;
    /// store.transaction(|tx| {
    ///     tx.put("from", "90")?;
    ///     tx.put("to", "110")
    /// })?;
    /// # Ok::<(), kvstore::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of `f`; otherwise as [`begin_write`](Store::begin_write) and
    /// [`commit`](Store::commit). After an error, no write of the transaction takes effect.
    pub fn transaction<R, E: From<Error>>(
        &self,
        f: impl FnOnce(&Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.run_transaction(true, f)
    }

    /// Runs `f` in a read transaction, so that all its reads see the same state of the store.
    ///
    /// Expiry follows the clock also in a snapshot: a key can expire while `f` runs.
    ///
    /// # Errors
    /// The error of `f`; otherwise as [`begin_read`](Store::begin_read).
    pub fn snapshot<R, E: From<Error>>(
        &self,
        f: impl FnOnce(&Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.run_transaction(false, f)
    }

    fn run_transaction<R, E: From<Error>>(
        &self,
        write: bool,
        f: impl FnOnce(&Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.begin(write)?;
        let transaction = Transaction { store: self, open: true };
        let done = f(&transaction)?;
        transaction.commit()?;
        Ok(done)
    }

    /// Begins a write transaction, which lasts until [`commit`](Store::commit) or
    /// [`rollback`](Store::rollback).
    ///
    /// Until then, every call on this handle and its families is part of the transaction, whichever
    /// thread makes it. Reads see the writes of the transaction. Transactions cannot be nested.
    ///
    /// A write that fails with `NoMemory`, `Io`, `Full` or `Corrupt` fails the transaction, except
    /// for `Full` because of the size limit of the store. A failed transaction is rolled back at
    /// once, and only [`rollback`](Store::rollback) ends it. Until then, further writes and
    /// `commit` return the same error, and reads see the store without the writes of the
    /// transaction. On a server, reads return the error too.
    ///
    /// Prefer [`transaction`](Store::transaction), which ends the transaction in every case.
    ///
    /// # Errors
    /// [`Error`](crate::ErrorKind::Error) if a transaction is already open on this handle (it stays
    /// open); [`Busy`](crate::ErrorKind::Busy) if another handle is writing;
    /// [`ReadOnly`](crate::ErrorKind::ReadOnly) if the store is read-only; otherwise a [write
    /// error](crate#errors).
    pub fn begin_write(&self) -> Result<()> {
        self.begin(true)
    }

    /// Begins a read transaction, whose reads see one snapshot of the store until
    /// [`commit`](Store::commit) or [`rollback`](Store::rollback).
    ///
    /// If a read fails with an error for which SQLite ends the snapshot, later reads return the
    /// same error until the transaction is ended.
    ///
    /// Prefer [`snapshot`](Store::snapshot), which ends the transaction in every case.
    ///
    /// # Errors
    /// [`Error`](crate::ErrorKind::Error) if a transaction is already open on this handle (it stays
    /// open); otherwise a [read error](crate#errors).
    pub fn begin_read(&self) -> Result<()> {
        self.begin(false)
    }

    fn begin(&self, write: bool) -> Result<()> {
        if write {
            self.session.pause_if_owed();
        }
        self.session.with(|db| {
            if *db.transaction() != TransactionState::None {
                return Err(Error::invalid("a transaction is already open on this handle")
                    .with_hint(Hint::EndTransaction));
            }
            if write && self.session.config.read_only {
                return Err(read_only());
            }
            self.session.note_change();
            self.session.before_begin(db);
            if !write {
                return db.begin_read();
            }
            db.begin_write()?;
            self.session.begin_turn(db);
            Ok(())
        })
    }

    /// Commits the open transaction.
    ///
    /// # Errors
    /// - [`Error`](crate::ErrorKind::Error): no transaction is open.
    /// - [`Busy`](crate::ErrorKind::Busy): other handles are reading (DELETE journal mode only).
    ///   The transaction is still open; commit again.
    /// - Otherwise a [write error](crate#errors), also one of an earlier call that made the
    ///   transaction fail. Nothing was committed, and only [`rollback`](Store::rollback) ends the
    ///   transaction.
    pub fn commit(&self) -> Result<()> {
        self.session.count_failure(self.session.with_uncounted(|db| {
            self.session.note_change(); // also if the commit fails and is undone
            db.commit()?;
            self.session.end_open_turn(db);
            Ok(())
        }))?;
        self.session.purge_after_write();
        Ok(())
    }

    /// Rolls back the open transaction. None of its writes takes effect.
    ///
    /// # Errors
    /// [`Error`](crate::ErrorKind::Error) if no transaction is open; [`Io`](crate::ErrorKind::Io);
    /// [`Misuse`](crate::ErrorKind::Misuse) if the handle is closed.
    pub fn rollback(&self) -> Result<()> {
        self.session.count_failure(self.session.with_uncounted(|db| self.roll_back(db)))
    }

    fn roll_back(&self, db: &mut Db) -> Result<()> {
        self.session.note_change();
        let done = db.rollback();
        if *db.transaction() == TransactionState::None {
            self.session.end_open_turn(db);
        }
        done
    }
}

/// Open transaction, which [`Store::transaction`] and [`Store::snapshot`] pass to their function.
///
/// It dereferences to the store. Calls on families that were opened before the transaction are part
/// of the transaction too.
pub struct Transaction<'s> {
    store: &'s Store,
    open: bool,
}

impl Transaction<'_> {
    fn commit(mut self) -> Result<()> {
        self.store.commit()?; // after a failure, dropping `self` rolls back
        self.open = false;
        Ok(())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.open {
            // Fails if the closure has ended the transaction itself; nothing is left to roll back.
            let _ = self.store.session.with_uncounted(|db| self.store.roll_back(db));
        }
    }
}

impl Deref for Transaction<'_> {
    type Target = Store;

    fn deref(&self) -> &Store {
        self.store
    }
}

//! Transactions over all families of a store.

use std::ops::Deref;

use super::Store;
use crate::db::TransactionState;
use crate::error::{Error, Result};
use crate::shared::read_only;

impl Store {
    /// Runs `f` in a write transaction: commits if it returns `Ok`, rolls back if it returns `Err`
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
    /// What `f` returns; [`Busy`](crate::ErrorKind::Busy) if another handle is writing; what the
    /// commit reports, after which nothing of the transaction has happened.
    pub fn transaction<R, E: From<Error>>(
        &self,
        f: impl FnOnce(&Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.run_transaction(true, f)
    }

    /// Runs `f` in a read transaction: all its reads see the state of one moment.
    ///
    /// # Errors
    /// What `f` returns, and failures to read.
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

    /// Begins a transaction that [`commit`](Store::commit) or [`rollback`](Store::rollback) ends:
    /// a writing one, or a stable snapshot. Prefer [`transaction`](Store::transaction).
    ///
    /// After a call in it that failed for memory, a full disk, or because the file could not be read, it may be over: then
    /// writes in it, and reads in a snapshot, repeat that failure until it is rolled back. A write transaction is undone at
    /// once, if a write failed so, and reads show the store without it (on a server they repeat the failure, too).
    ///
    /// # Errors
    /// `Error` if one is open already (it goes on); [`Busy`](crate::ErrorKind::Busy) if another
    /// handle is writing; [`ReadOnly`](crate::ErrorKind::ReadOnly) for a write on a read-only store.
    pub fn begin_write(&self) -> Result<()> {
        self.begin(true)
    }

    /// Begins a read transaction, which sees one snapshot of the store until [`commit`](Store::commit) or
    /// [`rollback`](Store::rollback) ends it. Prefer [`snapshot`](Store::snapshot).
    ///
    /// # Errors
    /// `Error` if one is open already.
    pub fn begin_read(&self) -> Result<()> {
        self.begin(false)
    }

    fn begin(&self, write: bool) -> Result<()> {
        self.shared.with(|db| {
            if *db.transaction() != TransactionState::None {
                return Err(Error::invalid(
                    "a transaction is already open on this handle: commit or roll back first",
                ));
            }
            if write && db.is_read_only() {
                return Err(read_only());
            }
            self.shared.note_change();
            self.shared.before_begin(db);
            if !write {
                return db.begin_read();
            }
            self.shared.remove_dead_before_begin(db);
            db.begin_write()
        })
    }

    /// Commits the open transaction.
    ///
    /// # Errors
    /// `Error` if none is open. After [`Busy`](crate::ErrorKind::Busy) (only in DELETE journal mode)
    /// the transaction is still open and commit may be tried again; after any other failure it can
    /// only be rolled back.
    pub fn commit(&self) -> Result<()> {
        self.shared.count_failure(self.shared.alone(|db| {
            let wrote = *db.transaction() == TransactionState::Write;
            self.shared.note_change(); // also if it fails, and all of it is undone
            db.commit()?;
            if wrote {
                self.shared.committed(db);
            }
            Ok(())
        }))
    }

    /// Rolls the open transaction back.
    ///
    /// # Errors
    /// `Error` if none is open.
    pub fn rollback(&self) -> Result<()> {
        self.shared.count_failure(self.shared.alone(|db| {
            self.shared.note_change();
            db.rollback()
        }))
    }
}

/// The open transaction of [`Store::transaction`] or [`Store::snapshot`]: the store itself, seen
/// from inside. Families opened before the transaction take part in it, too.
pub struct Transaction<'s> {
    store: &'s Store,
    open: bool,
}

impl Transaction<'_> {
    fn commit(mut self) -> Result<()> {
        self.store.commit()?; // on failure dropping self rolls back
        self.open = false;
        Ok(())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.open {
            // It may have been ended by hand inside; then there is nothing to roll back.
            let _ = self.store.shared.alone(|db| {
                self.store.shared.note_change();
                db.rollback()
            });
        }
    }
}

impl Deref for Transaction<'_> {
    type Target = Store;

    fn deref(&self) -> &Store {
        self.store
    }
}

//! Runs calls on a store on a server: the checks before and after a call, and the count of commits.
//! Each operation outside a transaction of the caller is a transaction of its own.

use std::sync::Arc;

use super::Db;
use crate::backend::{Removals, TransactionState};
use crate::error::{Error, Result};
use crate::hint::Hint;
use crate::stats::Counters;
use crate::unwind::or_undo;

impl Db {
    /// Sets the counters in which commits are counted from now on.
    pub(crate) fn count_in(&mut self, counters: &Arc<Counters>) {
        self.counters = Arc::clone(counters);
    }

    /// Runs `f`, a call that reads or writes. Fails without running it if the snapshot of the
    /// caller's transaction is lost. If `f` fails because the server has ended the caller's
    /// transaction, marks that transaction as failed.
    pub(crate) fn call<R>(&mut self, f: impl FnOnce(&mut Db) -> Result<R>) -> Result<R> {
        let done = self.transaction.check_snapshot().and_then(|()| f(self));
        self.after_call(done)
    }

    /// Runs `f`, a call that ends the caller's transaction, and handles its failure. Unlike `call`,
    /// it runs `f` even if the snapshot of the transaction is lost, so that commit and rollback
    /// work.
    pub(crate) fn call_in_any_state<R>(&mut self, f: impl FnOnce(&mut Db) -> Result<R>) -> Result<R> {
        let done = f(self);
        self.after_call(done)
    }

    fn after_call<R>(&mut self, done: Result<R>) -> Result<R> {
        done.map_err(|e| {
            let e = e.with_busy_timeout(self.busy_timeout());
            self.note_failure(&e);
            e
        })
    }

    /// Runs the write `f` in the caller's transaction, or in a transaction of its own if none is
    /// open. The latter is counted as a commit. If `f` panics, or fails so that the caller's
    /// transaction may not continue, marks that transaction as one that can only be rolled back.
    pub(crate) fn write<R>(&mut self, f: impl FnOnce(&Db) -> Result<R>) -> Result<R> {
        self.transaction.check_write()?;
        if self.transaction == TransactionState::None {
            let done = f(self)?;
            self.counters.commits.add(1);
            return Ok(done);
        }
        let panicked = |db: &mut &mut Db| {
            db.doom(&Error::failed("a callback panicked inside the transaction").with_hint(Hint::RollBack));
        };
        let done = or_undo(&mut *self, |db| f(db), panicked);
        if let Err(e) = &done
            && e.dooms_transaction()
        {
            self.doom(e);
        }
        done
    }

    /// Removes up to `max` expired keys of all families, earliest expiry time first, if no
    /// transaction is open. Returns the number of removed keys; 0 after a failure.
    pub(crate) fn purge_quietly(&mut self, max: usize) -> Removals {
        if self.transaction != TransactionState::None {
            return Removals::default();
        }
        self.write(|db| db.purge_all(max)).unwrap_or_default()
    }

    /// Commits the caller's transaction. If it is a write transaction, adds it to the number of
    /// commits.
    pub(crate) fn commit_call(&mut self) -> Result<()> {
        let wrote = self.transaction == TransactionState::Write;
        self.commit()?;
        self.counters.commits.add(u64::from(wrote));
        Ok(())
    }
}

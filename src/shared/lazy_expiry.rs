//! Times at which noted expired rows are removed: many together, or with a write that commits
//! anyway. The connection holds the notes (`backend/file/pending_removals.rs`).

use std::cell::Cell;
use std::sync::Arc;

use super::Shared;
use crate::backend::{Db, Tables, TransactionState, View};
use crate::error::{Error, ErrorKind, Result};

/// Part of a transaction that failed, if it removes noted rows and does another write.
#[derive(Clone, Copy)]
enum Fails {
    Removal,
    Write,
    /// Or its begin, which is tried as often as it was to be.
    Commit,
}

impl Fails {
    fn is_of_commit(self) -> bool {
        matches!(self, Fails::Commit)
    }

    /// Whether the write alone may be done, and nothing of this transaction was.
    fn is_for_the_dead(self, why: &Error) -> bool {
        match self {
            Fails::Removal => !why.is_retryable(),
            Fails::Write => false,
            // A commit without room is undone; one that the disk fails may have happened.
            Fails::Commit => why.kind() == ErrorKind::Full,
        }
    }
}

impl Shared {
    /// Arranges the removal of an expired row that a read has found: at once in an open write
    /// transaction; otherwise later, together with other rows.
    ///
    /// The row is noted, and removed with the next write or when enough rows are noted. In a read
    /// transaction and on a read-only handle nothing happens.
    #[cold]
    pub(crate) fn remove_in_time(&self, db: &mut Db, tables: &Arc<Tables>, key: &[u8], expire_ms: i64) {
        if db.is_read_only() {
            return;
        }
        match db.transaction() {
            TransactionState::None => {
                self.note_change(); // what iterators have read ahead may show it
                if db.has_no_room_for_dead(key) {
                    self.remove_enough(db);
                }
                if db.note_dead(tables, key, expire_ms) {
                    self.remove_enough(db);
                }
            }
            TransactionState::Write => {
                self.note_change();
                db.attempt_to_remove(tables, &self.clock, key);
            }
            TransactionState::Read | TransactionState::Doomed(_) | TransactionState::Lost(_) => {}
        }
    }

    /// Removes the noted rows when there are enough and no other handle is writing. While the WAL
    /// waits for a checkpoint, it must not grow by that.
    fn remove_enough(&self, db: &mut Db) {
        if db.checkpoint_is_due() {
            db.dead_are_stuck(false);
        } else {
            self.remove_dead(db, self.clock.now_ms());
        }
    }

    /// Removes the noted expired rows in a transaction of their own, without disturbing the caller.
    ///
    /// It waits for no lock, runs no checkpoint, and leaves nothing behind if it fails.
    fn remove_dead(&self, db: &mut Db, now_ms: i64) {
        match db.in_own_transaction(false, |db| db.remove_dead(&self.clock, now_ms)) {
            Ok(()) => {
                db.dead_are_removed();
                self.counters.commits.add(1);
                db.note_commit();
            }
            Err(e) => db.dead_are_stuck(!e.is_retryable()),
        }
    }

    /// Runs a write in a transaction of its own, which also removes the noted expired rows.
    ///
    /// If their removal fails, the write runs without them, unless the commit failed in such a way
    /// that it may have happened.
    #[inline]
    pub(super) fn write_and_remove_dead(
        &self,
        db: &mut Db,
        f: &impl Fn(View<'_>) -> Result<()>,
    ) -> Result<()> {
        if !db.has_dead_for_a_write() {
            return db.in_own_transaction(true, f);
        }
        let fails = Cell::new(Fails::Commit);
        // Before the write: a key that it gives the same end once more has not been met yet.
        let both = |db: View<'_>| {
            db.remove_dead(&self.clock, self.clock.now_ms()).inspect_err(|_| fails.set(Fails::Removal))?;
            f(db).inspect_err(|_| fails.set(Fails::Write))
        };
        match db.in_own_transaction(true, both) {
            Err(e) if fails.get().is_for_the_dead(&e) => {
                db.dead_are_stuck(true);
                db.in_own_transaction(true, f)
            }
            done => {
                match &done {
                    Ok(()) => db.dead_are_removed(),
                    // It may be for them: the next write goes without them.
                    Err(e) if fails.get().is_of_commit() && !e.is_retryable() => db.dead_are_stuck(true),
                    Err(_) => {}
                }
                done
            }
        }
    }

    /// Removes the noted expired rows before a write transaction of the caller begins, because the
    /// transaction does not remove them.
    pub(crate) fn remove_dead_before_begin(&self, db: &mut Db) {
        if db.has_dead_for_a_write() {
            self.remove_dead(db, self.clock.now_ms());
        }
    }

    /// Removes the noted expired rows when the handle closes. An injected clock is not called any
    /// more.
    pub(super) fn remove_dead_before_close(&self, db: &mut Db) {
        if !db.has_dead() {
            return;
        }
        if *db.transaction() != TransactionState::None {
            let _ = db.rollback(); // as the close does; what fails now, fails there again
        }
        self.remove_dead(db, self.clock.latest_ms());
    }
}

//! Removal of expired rows that reads have found (ADR 14).
//!
//! The removal of one row costs a commit, and that of several rows hardly more. So a read that finds
//! an expired row only notes it. The next write removes the noted rows in its own transaction, before
//! its own changes. When many rows are noted, they are removed without waiting for a write.
//!
//! If the removal fails, the write runs without it in a new transaction, because the write itself
//! has not run yet. If the commit fails for a reason other than a lock, later writes do not remove
//! the noted rows.
//!
//! Invariants:
//! - A noted row is identified by its key and its `expire_ms`. A row that another connection writes
//!   under the key later is another row.
//! - A note hides or removes a row only while the row is expired by the clock.
//! - In the transactions of the caller, only purges remove noted rows. So a read writes nothing in
//!   them, a commit needs no space for a removal, and a rollback changes no note.

use std::cell::Cell;
use std::sync::Arc;

use super::connection::Db;
use super::engine::{Engine, Head, Step, TimeIndex, from_time};
use super::pending_removals::FamilyRemovals;
use super::schema::Tables;
use super::write::Contents;
use crate::backend::TransactionState;
use crate::clock::Clock;
use crate::error::Result;
use crate::expiry;

/// Stage of a transaction that first removes the noted expired rows and then runs a write. If the
/// transaction fails, the stage decides whether the write is run again without the removal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Removal,
    Write,
    /// The begin or the commit of the transaction.
    Rest,
}

impl Db {
    /// Notes an expired row that a read has found, so that it is removed later together with other
    /// rows. Removes the noted rows now if there are enough of them and no transaction is open.
    ///
    /// Does nothing in a read transaction or on a read-only handle.
    #[cold]
    pub(super) fn found_expired(&mut self, tables: &Arc<Tables>, key: &[u8], expire_ms: i64) {
        if self.read_only {
            return;
        }
        match self.transaction {
            TransactionState::None => {
                if self.pending.borrow().is_full(key) {
                    self.remove_pending_if_allowed();
                }
                if self.note_expired(tables, key, expire_ms) {
                    self.remove_pending_if_allowed();
                }
            }
            TransactionState::Write => {
                self.note_expired(tables, key, expire_ms);
            }
            TransactionState::Read | TransactionState::Doomed(_) | TransactionState::Lost(_) => {}
        }
    }

    /// Adds an expired row to the noted rows. Returns `true` if they should be removed now.
    ///
    /// If the list of noted rows is full, the row is not noted. A later read finds it again.
    fn note_expired(&self, tables: &Arc<Tables>, key: &[u8], expire_ms: i64) -> bool {
        let mut pending = self.pending.borrow_mut();
        if pending.is_full(key) {
            return false;
        }
        pending.add(tables, key, expire_ms);
        pending.are_enough()
    }

    /// Returns `true` if the next write should also remove noted expired rows. Returns `false` if
    /// none are noted, or if an attempt to remove them has failed for a reason other than a lock.
    #[inline]
    pub(super) fn has_pending_for_a_write(&self) -> bool {
        let pending = self.pending.borrow();
        pending.rows > 0 && !pending.failed
    }

    /// Removes the expired rows that reads have noted, unless a checkpoint is due, because the
    /// removal would make the WAL even longer.
    fn remove_pending_if_allowed(&mut self) {
        if self.checkpoint_is_due() {
            self.pending.borrow_mut().keep(false);
        } else {
            self.remove_pending_quietly(self.owner.clock.now_ms());
        }
    }

    /// Removes the expired rows that reads have noted, in a transaction of its own. A failure is
    /// ignored: the rows then stay noted.
    ///
    /// This waits for no lock and runs no checkpoint, so that it does not delay the caller.
    pub(super) fn remove_pending_quietly(&mut self, now_ms: i64) {
        match self.in_own_transaction(false, |db| db.remove_pending(&db.owner.clock, now_ms)) {
            Ok(()) => {
                self.pending.take();
                self.owner.counters.commits.add(1);
                self.note_commit();
            }
            Err(e) => self.pending.borrow_mut().keep(!e.is_retryable()),
        }
    }

    /// Runs the write `f` in a transaction of its own, which first removes the expired rows that
    /// reads have noted.
    ///
    /// The noted rows are removed before the write runs, because the write may put one of their
    /// keys with the same expiry time. No read has found that new row expired, so it must not be
    /// removed.
    #[inline]
    pub(super) fn write_and_remove_pending(&mut self, f: &impl Fn(&Db) -> Result<()>) -> Result<()> {
        if !self.has_pending_for_a_write() {
            return self.in_own_transaction(true, f);
        }
        let phase = Cell::new(Phase::Rest);
        let done = self.in_own_transaction(true, |db| {
            let clock = &db.owner.clock;
            db.remove_pending(clock, clock.now_ms()).inspect_err(|_| phase.set(Phase::Removal))?;
            f(db).inspect_err(|_| phase.set(Phase::Write))
        });
        match &done {
            Ok(()) => drop(self.pending.take()),
            Err(e) if e.is_retryable() || phase.get() == Phase::Write => {}
            Err(_) => {
                self.pending.borrow_mut().keep(true);
                if phase.get() == Phase::Removal {
                    return self.in_own_transaction(true, f);
                }
            }
        }
        done
    }

    /// Removes the expired rows that reads have noted, when the connection closes. Uses the latest
    /// time that the clock has returned, because an injected clock must not be called during the
    /// close.
    pub(super) fn remove_pending_before_close(&mut self) {
        if self.pending.borrow().rows == 0 {
            return;
        }
        if self.transaction != TransactionState::None {
            let _ = self.rollback(); // as the close does; what fails now, fails there again
        }
        self.remove_pending_quietly(self.owner.clock.latest_ms());
    }

    /// Removes the noted rows inside the caller's write transaction, for a purge, which must neither
    /// count them nor spend its budget on them. A transaction of a single purge has removed them
    /// already.
    pub(super) fn remove_pending_in_transaction(&self, now_ms: i64) -> Result<()> {
        if self.transaction != TransactionState::Write || self.pending.borrow().rows == 0 {
            return Ok(());
        }
        self.remove_pending(&self.owner.clock, now_ms)
    }

    /// Removes the noted rows that still exist and are expired, inside a write transaction. The
    /// rows stay in the list of noted rows, because the transaction may be rolled back.
    pub(super) fn remove_pending(&self, clock: &Clock, now_ms: i64) -> Result<()> {
        let pending = self.pending.borrow();
        for FamilyRemovals { tables, rows } in &pending.families {
            let contents = self.contents(tables, clock);
            for (key, expire_ms) in rows {
                match contents.rows().head(tables, key) {
                    Ok(Some(head)) if has_expired(head, *expire_ms, now_ms) => {
                        contents.delete_row(key, head)?;
                    }
                    Ok(_) => {} // written again, or removed
                    Err(e) if e.dooms_transaction() => return Err(e),
                    Err(_) => break, // the family was dropped
                }
            }
        }
        Ok(())
    }
}

fn has_expired(head: Head, expire_ms: i64, now_ms: i64) -> bool {
    head.expire_ms == Some(expire_ms) && expiry::is_expired(expire_ms, now_ms)
}

/// Reads whose results exclude expired rows that earlier reads have noted for removal.
impl Contents<'_> {
    /// Returns `true` if a read has already noted the row with this key and this `expire_ms` as
    /// expired. Later reads treat such a row as missing.
    #[inline]
    pub(super) fn was_met(self, key: &[u8], expire_ms: i64) -> bool {
        self.db.pending.borrow().has(self.tables, key, expire_ms)
    }

    /// Returns `true` if an entry of the expiry index belongs to a row that counts as missing: a
    /// read has noted the row as expired, and `expire_ms` has passed by the clock.
    pub(super) fn is_hidden(self, key: &[u8], expire_ms: i64) -> bool {
        self.was_met(key, expire_ms) && expiry::is_expired(expire_ms, self.clock.now_ms())
    }

    /// Returns the number of rows of the family, including expired rows that no read has noted.
    pub(crate) fn count(self) -> Result<u64> {
        if self.db.pending.borrow().of(self.tables).is_none() {
            return self.rows().count(self.tables);
        }
        self.db.in_snapshot(|_| {
            let all = self.rows().count(self.tables)?;
            let now_ms = self.clock.now_ms();
            let mut hidden = 0;
            for (key, expire_ms) in self.db.pending.borrow().of(self.tables).into_iter().flatten() {
                let head = self.rows().head(self.tables, key)?;
                hidden += u64::from(head.is_some_and(|head| has_expired(head, *expire_ms, now_ms)));
            }
            Ok(all.saturating_sub(hidden))
        })
    }

    /// Returns the earliest expiry time in the family, in milliseconds since the Unix epoch; `None`
    /// if no key has one. Ignores expired rows that reads have noted.
    pub(crate) fn next_expiry(self) -> Result<Option<i64>> {
        let mut first = None;
        self.rows().by_time(self.tables, TimeIndex::Expiry, from_time(i64::MIN), |expire_ms, key| {
            if self.is_hidden(key, expire_ms) {
                return Ok(Step::Continue);
            }
            first = Some(expire_ms);
            Ok(Step::Stop)
        })?;
        Ok(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::file::pending_removals::{ENOUGH_ROWS, MAX_BYTES, MAX_ROWS};
    use crate::config::Config;
    use crate::expiry::Expiry;
    use crate::options::PutOptions;

    const LARGE: [u8; 9000] = [7; 9000];

    /// Creates a store with these keys only, which expire at 1000.
    fn store(config: &Config, tables: &Tables, keys: &[&[u8]]) -> Db {
        let mut db = Db::open(None, config, 1).unwrap();
        put(&mut db, tables, keys, 1000);
        db
    }

    fn put(db: &mut Db, tables: &Tables, keys: &[&[u8]], expire_ms: i64) {
        let options = PutOptions::new().expiry(Expiry::At(expire_ms));
        let clock = Clock::default();
        db.in_own_transaction(true, |db| {
            keys.iter().try_for_each(|key| db.contents(tables, &clock).put(key, &LARGE, &options).map(drop))
        })
        .unwrap();
    }

    fn rows_left(db: &Db, tables: &Tables) -> u64 {
        db.rows().count(tables).unwrap()
    }

    #[test]
    fn lazy_removal_hides_and_removes_only_pending_expired_rows() {
        for config in [Config::new(), Config::new().sql_engine(true)] {
            let (tables, clock) = (Arc::new(Tables::of("default")), Clock::default());
            let mut db = store(&config, &tables, &[b"a", b"b", b"c", b"d"]);
            for key in [b"a", b"b", b"c"] {
                assert!(!db.note_expired(&tables, key, 1000));
            }
            put(&mut db, &tables, &[b"b"], 1001); // also expired, but another row
            assert_eq!(db.contents(&tables, &clock).count().unwrap(), 2);
            db.in_own_transaction(true, |db| db.remove_pending(&clock, 999)).unwrap();
            assert_eq!(rows_left(&db, &tables), 4);
            // After a rollback the rows are still noted.
            db.begin_write().unwrap();
            db.remove_pending(&clock, 1000).unwrap();
            assert_eq!(rows_left(&db, &tables), 2);
            db.rollback().unwrap();
            assert_eq!((rows_left(&db, &tables), db.contents(&tables, &clock).count().unwrap()), (4, 2));
            db.in_own_transaction(true, |db| db.remove_pending(&clock, 1000)).unwrap();
            db.pending.take();
            assert_eq!((rows_left(&db, &tables), db.contents(&tables, &clock).count().unwrap()), (2, 2));
            assert_eq!(db.pending.borrow().rows, 0);
            db.integrity_check().unwrap(); // large values and index entries were removed, too
        }
    }

    #[test]
    fn pending_removals_are_bounded_and_retried_in_batches() {
        let (tables, db) = (Arc::new(Tables::of("default")), Db::open(None, &Config::new(), 1).unwrap());
        for n in 0..2 * MAX_ROWS {
            let is_enough = db.note_expired(&tables, &n.to_be_bytes(), 1000);
            assert_eq!(is_enough, n < MAX_ROWS && (n + 1).is_multiple_of(ENOUGH_ROWS), "row {n}");
            if is_enough {
                db.pending.borrow_mut().keep(false);
            }
        }
        assert!(db.pending.borrow().is_full(b"key") && db.has_pending_for_a_write());
        db.pending.borrow_mut().keep(true);
        assert!(db.pending.borrow().rows > 0 && !db.has_pending_for_a_write());
        db.pending.take();
        assert!(db.pending.borrow().rows == 0 && !db.pending.borrow().is_full(b"key"));
        let long = [0; 60_000];
        for n in 0..10 {
            let noted = db.note_expired(&tables, &[&[n], &long[..]].concat(), 1000);
            assert_eq!(noted, (1..4).contains(&n), "row {n}");
        }
        assert!(db.pending.borrow().bytes <= MAX_BYTES);
    }

    #[test]
    fn dropped_family_does_not_block_pending_removals() {
        for config in [Config::new(), Config::new().sql_engine(true)] {
            let (gone, tables) = (Arc::new(Tables::of("gone")), Arc::new(Tables::of("default")));
            let mut db = store(&config, &tables, &[b"a"]);
            db.note_expired(&gone, b"a", 1000);
            db.note_expired(&tables, b"a", 1000);
            db.in_own_transaction(true, |db| db.remove_pending(&Clock::default(), 1000)).unwrap();
            assert_eq!(rows_left(&db, &tables), 0);
        }
    }
}

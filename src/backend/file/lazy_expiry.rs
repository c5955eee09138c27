//! Notes of expired rows that reads of this connection have found, and that are still in the file
//! (ADR 14). The removal of one row costs a commit, and that of several rows hardly more. So the
//! rows are noted, and removed together.
//!
//! Invariants:
//! - A noted row is identified by its key and its `expire_ms`. A row that another connection writes
//!   under the key later is another row.
//! - A note hides or removes a row only while the row is expired by the clock.
//! - Rows that are found inside a transaction of the caller are not noted, so a rollback changes no
//!   note.

use std::sync::Arc;

use super::connection::Db;
use super::engine::{Engine, Head, Step, TimeIndex, from_time};
use super::pending_removals::FamilyRemovals;
use super::schema::Tables;
use super::write::Contents;
use crate::clock::Clock;
use crate::error::Result;
use crate::expiry;

impl Db {
    /// Returns `true` if there is no space left for a note of this key.
    pub(crate) fn has_no_room_for_dead(&self, key: &[u8]) -> bool {
        self.pending.borrow().is_full(key)
    }

    /// Notes an expired row that was found outside a transaction. Returns `true` if the noted rows
    /// should be removed now.
    ///
    /// If there is no space for a note, the row is found again later.
    pub(crate) fn note_dead(&self, tables: &Arc<Tables>, key: &[u8], expire_ms: i64) -> bool {
        let mut pending = self.pending.borrow_mut();
        if pending.is_full(key) {
            return false;
        }
        pending.add(tables, key, expire_ms);
        pending.are_enough()
    }

    /// Returns `true` if expired rows are noted.
    pub(crate) fn has_dead(&self) -> bool {
        self.pending.borrow().rows > 0
    }

    /// Returns `true` if expired rows are noted that the next write should also remove.
    #[inline]
    pub(crate) fn has_dead_for_a_write(&self) -> bool {
        let pending = self.pending.borrow();
        pending.rows > 0 && !pending.failed
    }

    /// Removes the noted rows that still exist and are expired, inside a write transaction. They
    /// stay noted, because the transaction may be rolled back.
    pub(crate) fn remove_dead(&self, clock: &Clock, now_ms: i64) -> Result<()> {
        let pending = self.pending.borrow();
        for FamilyRemovals { tables, rows } in &pending.families {
            let contents = self.contents(tables, clock);
            for (key, expire_ms) in rows {
                match contents.rows().head(tables, key) {
                    Ok(Some(head)) if is_dead(head, *expire_ms, now_ms) => contents.delete_row(key, head)?,
                    Ok(_) => {} // written again, or removed
                    Err(e) if e.dooms_transaction() => return Err(e),
                    Err(_) => break, // the family was dropped
                }
            }
        }
        Ok(())
    }

    /// Discards the notes, after the removal of the noted rows was committed.
    pub(crate) fn dead_are_removed(&self) {
        self.pending.take();
    }

    /// Records that the noted rows could not be removed. `failed`: for another reason than a lock.
    pub(crate) fn dead_are_stuck(&self, failed: bool) {
        let mut pending = self.pending.borrow_mut();
        pending.stuck_at = pending.rows;
        pending.failed |= failed;
    }
}

fn is_dead(head: Head, expire_ms: i64, now_ms: i64) -> bool {
    head.expire_ms == Some(expire_ms) && expiry::is_expired(expire_ms, now_ms)
}

/// Reads whose results exclude noted rows.
impl Contents<'_> {
    /// Returns `true` if an expired row with this `expire_ms` was already found and therefore
    /// counts as missing.
    #[inline]
    pub(super) fn was_met(self, key: &[u8], expire_ms: i64) -> bool {
        self.db.pending.borrow().has(self.tables, key, expire_ms)
    }

    /// Like `was_met`, for an entry of the expiry index, which may be live.
    pub(super) fn is_hidden(self, key: &[u8], expire_ms: i64) -> bool {
        self.was_met(key, expire_ms) && expiry::is_expired(expire_ms, self.clock.now_ms())
    }

    /// Returns the number of rows, including expired rows that no read has found.
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
                hidden += u64::from(head.is_some_and(|head| is_dead(head, *expire_ms, now_ms)));
            }
            Ok(all.saturating_sub(hidden))
        })
    }

    /// Returns the earliest expiry time in the family, including that of an expired row that no
    /// read has found.
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
                assert!(!db.note_dead(&tables, key, 1000));
            }
            put(&mut db, &tables, &[b"b"], 1001); // also expired, but another row
            assert_eq!(db.contents(&tables, &clock).count().unwrap(), 2);
            db.in_own_transaction(true, |db| db.remove_dead(&clock, 999)).unwrap();
            assert_eq!(rows_left(&db, &tables), 4);
            // After a rollback the rows are still noted.
            db.begin_write().unwrap();
            db.remove_dead(&clock, 1000).unwrap();
            assert_eq!(rows_left(&db, &tables), 2);
            db.rollback().unwrap();
            assert_eq!((rows_left(&db, &tables), db.contents(&tables, &clock).count().unwrap()), (4, 2));
            db.in_own_transaction(true, |db| db.remove_dead(&clock, 1000)).unwrap();
            db.dead_are_removed();
            assert_eq!((rows_left(&db, &tables), db.contents(&tables, &clock).count().unwrap()), (2, 2));
            assert!(!db.has_dead());
            db.integrity_check().unwrap(); // large values and index entries were removed, too
        }
    }

    #[test]
    fn pending_removals_are_bounded_and_retried_in_batches() {
        let (tables, db) = (Arc::new(Tables::of("default")), Db::open(None, &Config::new(), 1).unwrap());
        for n in 0..2 * MAX_ROWS {
            let is_enough = db.note_dead(&tables, &n.to_be_bytes(), 1000);
            assert_eq!(is_enough, n < MAX_ROWS && (n + 1).is_multiple_of(ENOUGH_ROWS), "row {n}");
            if is_enough {
                db.dead_are_stuck(false);
            }
        }
        assert!(db.has_no_room_for_dead(b"key") && db.has_dead_for_a_write());
        db.dead_are_stuck(true);
        assert!(db.has_dead() && !db.has_dead_for_a_write());
        db.dead_are_removed();
        assert!(!db.has_dead() && !db.has_no_room_for_dead(b"key"));
        let long = [0; 60_000];
        for n in 0..10 {
            let noted = db.note_dead(&tables, &[&[n], &long[..]].concat(), 1000);
            assert_eq!(noted, (1..4).contains(&n), "row {n}");
        }
        assert!(db.pending.borrow().bytes <= MAX_BYTES);
    }

    #[test]
    fn dropped_family_does_not_block_pending_removals() {
        for config in [Config::new(), Config::new().sql_engine(true)] {
            let (gone, tables) = (Arc::new(Tables::of("gone")), Arc::new(Tables::of("default")));
            let mut db = store(&config, &tables, &[b"a"]);
            db.note_dead(&gone, b"a", 1000);
            db.note_dead(&tables, b"a", 1000);
            db.in_own_transaction(true, |db| db.remove_dead(&Clock::default(), 1000)).unwrap();
            assert_eq!(rows_left(&db, &tables), 0);
        }
    }
}

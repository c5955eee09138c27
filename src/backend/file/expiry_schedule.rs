//! Search for families with expired keys. A connection keeps a lower bound on the earliest expiry
//! time of each family. With these bounds, the search need not examine every family if no key has
//! expired.
//!
//! A connection has two [`NextExpiryIndex`]es, one for each time index: one has bounds on the
//! earliest expiry times, the other on the earliest write times. The comments in this file describe
//! expiry times, but apply to write times, too.
//!
//! The bound of a family is a time before which none of its keys expires. The earliest expiry time
//! may be later than the bound. So a search begins with the family of the least bound, looks up the
//! earliest expiry time in each family that it reaches, and stops at the first bound that is in the
//! future.
//!
//! Validity of the bounds:
//! - They are valid until another connection commits. SQLite's data version shows that in each
//!   transaction. After such a commit, all families must be looked up again.
//! - They stay valid while this connection writes, because it reports each time that it sets
//!   (`time_set`). Removals only make a bound less exact.
//! - A rollback discards all bounds if a family was looked up in the state that is rolled back.

use std::cell::RefCell;
use std::sync::Arc;

use super::connection::Db;
use super::engine::{Engine, Step, TimeIndex, from_time};
use super::next_expiry_index::{NextExpiryIndex, When};
use super::schema::Tables;
use crate::backend::Due;
use crate::backend::TransactionState;
use crate::clock::Clock;
use crate::error::Result;

/// Number of families whose earliest expiry time a search reads from the file between two checks of
/// its time limit.
const PER_LOOK: usize = 32;

/// Position of a walk over the families in the order of their earliest entries in a time index.
pub(super) struct FamiliesBy {
    index: TimeIndex,
    last: Option<(When, usize)>,
}

impl Db {
    /// Returns up to `max` families that contain rows which are expired at `now_ms`. The search
    /// ends early when `in_time` returns `false`.
    ///
    /// It reads in the caller's open transaction or, if there is none, in a read transaction of its
    /// own.
    pub(crate) fn due(&self, now_ms: i64, max: usize, in_time: impl Fn() -> bool) -> Result<Due> {
        let mut due = Due { families: Vec::new(), looked_at: 0, known: 0, complete: true };
        if self.is_nothing_due(now_ms)? {
            return Ok(due);
        }
        self.in_snapshot(|db| {
            db.refresh_next_expiry(TimeIndex::Expiry)?;
            due.known = db.next_expiry.borrow().places.len();
            let begun = db.next_expiry.borrow().looks;
            let mut last = None;
            while due.families.len() < max {
                let Some((bound, place)) = db.next_expiry.borrow().after(last) else { break };
                if !bound.may_be_by(now_ms) {
                    break;
                }
                if db.next_expiry.borrow().families.get(place).is_some_and(|entry| entry.last_look <= begun) {
                    due.complete &= due.looked_at % PER_LOOK != PER_LOOK - 1 || in_time();
                    if due.complete {
                        due.looked_at += 1;
                        db.look_at(TimeIndex::Expiry, place)?;
                        continue; // with the family that is first now
                    }
                } else if let When::At(expire_ms) = bound
                    && let Some(entry) = db.next_expiry.borrow().families.get(place)
                {
                    due.families.push((expire_ms, Arc::clone(&entry.tables)));
                }
                last = Some((bound, place));
            }
            Ok(())
        })?;
        Ok(due)
    }

    /// Returns the earliest expiry time in all families, in milliseconds since the Unix epoch;
    /// `None` if no key has one. Ignores expired rows that reads have noted for removal.
    pub(crate) fn next_expiry(&self, clock: &Clock) -> Result<Option<i64>> {
        self.in_snapshot(|db| {
            db.refresh_next_expiry(TimeIndex::Expiry)?;
            let (mut first, mut last) = (None, None);
            loop {
                let next = db.next_expiry.borrow().after(last);
                let next = next.filter(|(bound, _)| first.map_or(When::Never, When::At) > *bound);
                let Some((bound, place)) = next else { return Ok(first) };
                if db.look_at(TimeIndex::Expiry, place)? != bound {
                    continue; // with the family that is first now
                }
                // No other family has an earlier entry. But the first entries of this family may be
                // those of expired rows that reads have noted, which are ignored.
                let tables =
                    db.next_expiry.borrow().families.get(place).map(|entry| Arc::clone(&entry.tables));
                let shown = match (tables, bound) {
                    (Some(tables), _) if db.pending.borrow().rows > 0 => {
                        db.contents(&tables, clock).next_expiry()?
                    }
                    (_, When::At(expire_ms)) => Some(expire_ms),
                    (_, When::Unknown(_) | When::Never) => None,
                };
                first = first.into_iter().chain(shown).min();
                last = Some((bound, place));
            }
        })
    }

    /// Returns `true` if no key of the store is expired at `now_ms`. Returns `false` if that cannot
    /// be determined without reading from the tables of a family.
    fn is_nothing_due(&self, now_ms: i64) -> Result<bool> {
        if let Some(btree) = &self.btree {
            let (version, first) = {
                let times = self.next_expiry.borrow();
                (times.version, times.after(None))
            };
            if version.is_some() && first.is_none_or(|(bound, _)| !bound.may_be_by(now_ms)) {
                return Ok(Some(btree.version_now(self)?) == version);
            }
        }
        Ok(false)
    }

    /// Returns the lower bounds on the earliest time that each family has in the time index
    /// `index`.
    fn next_expiry_in(&self, index: TimeIndex) -> &RefCell<NextExpiryIndex> {
        match index {
            TimeIndex::Expiry => &self.next_expiry,
            TimeIndex::Written => &self.next_written,
        }
    }

    /// Makes the lower bounds for a time index valid for the open transaction: discards them if
    /// another connection has committed.
    fn refresh_next_expiry(&self, index: TimeIndex) -> Result<()> {
        let version = self.commits_of_others()?;
        if self.next_expiry_in(index).borrow().version != Some(version) {
            let names = self.families()?;
            self.note_look(index);
            self.next_expiry_in(index).borrow_mut().reset(names, version);
        }
        Ok(())
    }

    /// Begins a walk over the families in the order of their earliest entries in a time index,
    /// inside a write transaction.
    pub(super) fn families_by(&self, index: TimeIndex) -> Result<FamiliesBy> {
        self.refresh_next_expiry(index)?;
        // The lookups of the walk see the uncommitted changes of this transaction.
        self.next_expiry_in(index).borrow_mut().tentative = true;
        Ok(FamiliesBy { index, last: None })
    }

    /// Returns the next family of the walk `walk`; `None` if no further family has an entry in the
    /// time index at `last_ms` or earlier.
    pub(super) fn next_family(&self, walk: &mut FamiliesBy, last_ms: i64) -> Result<Option<Arc<Tables>>> {
        loop {
            let next = self.next_expiry_in(walk.index).borrow().after(walk.last);
            let Some((bound, place)) = next.filter(|(bound, _)| bound.may_be_by(last_ms)) else {
                return Ok(None);
            };
            if self.look_at(walk.index, place)? != bound {
                continue; // with the family that is first now
            }
            walk.last = next;
            let tables = self
                .next_expiry_in(walk.index)
                .borrow()
                .families
                .get(place)
                .map(|entry| Arc::clone(&entry.tables));
            if tables.is_some() {
                return Ok(tables);
            }
        }
    }

    /// Reads the earliest time of a family from its time index, stores it as the lower bound of the
    /// family, and returns it. `place` is the index of the family in the list
    /// `NextExpiryIndex::families`.
    fn look_at(&self, index: TimeIndex, place: usize) -> Result<When> {
        let times = self.next_expiry_in(index);
        let tables = times.borrow().families.get(place).map(|entry| Arc::clone(&entry.tables));
        let Some(tables) = tables else { return Ok(When::Never) };
        let first = self.first_time(&tables, index)?.map_or(When::Never, When::At);
        self.note_look(index);
        let mut times = times.borrow_mut();
        times.set(place, first);
        times.looks += 1;
        let look = times.looks;
        if let Some(entry) = times.families.get_mut(place) {
            entry.last_look = look;
        }
        Ok(first)
    }

    /// Marks the lower bounds for a time index as tentative if a write transaction is open, because
    /// a lookup in it reads uncommitted changes. A rollback then discards the bounds.
    fn note_look(&self, index: TimeIndex) {
        // Also in a failed write transaction: its changes are visible if the rollback has failed.
        if !matches!(self.transaction(), TransactionState::None | TransactionState::Read) {
            self.next_expiry_in(index).borrow_mut().tentative = true;
        }
    }

    /// Returns the earliest time in a time index of a family, in milliseconds since the Unix epoch;
    /// `None` if the index is empty.
    fn first_time(&self, tables: &Tables, index: TimeIndex) -> Result<Option<i64>> {
        let mut first = None;
        self.rows().by_time(tables, index, from_time(i64::MIN), |time_ms, _| {
            first = Some(time_ms);
            Ok(Step::Stop)
        })?;
        Ok(first)
    }

    /// Lowers the lower bound of a family, if necessary, for a new entry `time_ms` in its time
    /// index. Call this before the entry is written.
    pub(super) fn time_set(&self, tables: &Tables, index: TimeIndex, time_ms: i64) {
        let mut times = self.next_expiry_in(index).borrow_mut();
        if times.version.is_none() {
            return;
        }
        let Some(place) = times.places.get(tables.family()).copied() else {
            times.version = None; // the family is not known, so all bounds are discarded
            return;
        };
        if times.families.get(place).is_some_and(|entry| When::At(time_ms) < entry.bound) {
            times.set(place, When::At(time_ms));
        }
    }

    /// Updates the families for which this connection keeps lower bounds, after it has created
    /// (`made`) or dropped a family.
    pub(super) fn family_changed(&self, tables: &Tables, made: bool) {
        for times in [&self.next_expiry, &self.next_written] {
            times.borrow_mut().family_changed(tables.family(), made);
        }
    }

    /// Discards the lower bounds on the earliest expiry and write times of all families. Call this
    /// when times are set in bulk, without `time_set`.
    pub(super) fn forget_all_bounds(&self) {
        for times in [&self.next_expiry, &self.next_written] {
            times.borrow_mut().version = None;
        }
    }

    /// Discards the lower bounds on the earliest expiry and write times after a rollback, if a
    /// lookup inside the transaction may have read uncommitted changes.
    pub(super) fn forget_tentative_bounds(&self) {
        for times in [&self.next_expiry, &self.next_written] {
            let mut times = times.borrow_mut();
            if std::mem::take(&mut times.tentative) {
                times.version = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::backend::file::engine::{Head, Row};
    use crate::config::Config;

    const FAMILIES: usize = 100;

    /// Creates a store with families that have one key each, which expires at 5000.
    fn store(path: &std::path::Path, config: &Config) -> Db {
        let mut db = Db::open(Some(path), config, 1).unwrap();
        db.begin_write().unwrap();
        for n in 0..FAMILIES {
            let tables = Tables::of(&format!("family {n}"));
            db.create_family(&tables, 1).unwrap();
            db.create_ttl_tables(&tables).unwrap();
            db.rows().index(&tables, b"key", None, Some(5000)).unwrap();
        }
        db.commit().unwrap();
        db
    }

    fn looks(db: &Db) -> u64 {
        db.next_expiry.borrow().looks
    }

    #[test]
    fn interrupted_expiry_scan_resumes_despite_other_commits() {
        for config in [Config::new(), Config::new().sql_engine(true)] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("store.db");
            let db = store(&path, &config);
            let mut other = Db::open(Some(&path), &config, 1).unwrap();
            let mut seen = BTreeSet::new();
            let default = Tables::of("default");
            let head = Head { expire_ms: None, blob_id: None, written_ms: None };
            let row = Row { value: Some(b"v"), head };
            for _ in 0..FAMILIES.div_ceil(PER_LOOK - 1) + 1 {
                other.in_own_transaction(true, |db| db.rows().put(&default, b"k", row)).unwrap();
                let due = db.due(5000, usize::MAX, || false).unwrap();
                assert!(!due.complete && due.known == FAMILIES + 1);
                assert!(due.looked_at < PER_LOOK);
                seen.extend(due.families.into_iter().map(|(_, tables)| tables.family().to_owned()));
            }
            assert_eq!(seen.len(), FAMILIES, "families are never looked at");
            let due = db.due(5000, usize::MAX, || true).unwrap();
            assert!(due.complete && due.families.len() == FAMILIES);
        }
    }

    #[test]
    fn families_are_rescanned_only_after_change_or_expiry() {
        let clock = Clock::default();
        for config in [Config::new(), Config::new().sql_engine(true)] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("store.db");
            let mut db = store(&path, &config);
            let all = FAMILIES as u64 + 1;
            let idle = |db: &Db, now_ms| {
                let due = db.due(now_ms, 10, || true).unwrap();
                assert!(due.complete && due.families.is_empty());
                looks(db)
            };
            assert_eq!(idle(&db, 1000), all);
            assert_eq!(idle(&db, 4999), all);
            // A time that this connection sets is known without a lookup, until it has passed.
            let tables = Tables::of("family 7");
            let set = |db: &Db, old, new| db.rows().index(&tables, b"key", old, Some(new)).map(drop);
            db.in_own_transaction(true, |db| set(db, Some(5000), 2000)).unwrap();
            db.in_own_transaction(true, |db| set(db, Some(2000), 6000)).unwrap();
            assert_eq!(idle(&db, 1999), all);
            assert_eq!(idle(&db, 2000), all + 1);
            assert_eq!(idle(&db, 2000), all + 1);
            // A rollback of changes that no lookup has seen keeps the bounds.
            db.begin_write().unwrap();
            set(&db, Some(6000), 9000).unwrap();
            db.rollback().unwrap();
            assert_eq!(idle(&db, 2000), all + 1);
            // A rollback of changes that lookups have seen discards them.
            db.begin_write().unwrap();
            for n in 0..FAMILIES {
                let tables = Tables::of(&format!("family {n}"));
                let old = if n == 7 { 6000 } else { 5000 };
                db.rows().index(&tables, b"key", Some(old), None).unwrap();
            }
            assert_eq!(db.next_expiry(&clock).unwrap(), None);
            let before = looks(&db);
            db.rollback().unwrap();
            assert_eq!(db.next_expiry(&clock).unwrap(), Some(5000));
            assert!(looks(&db) >= before + all);
        }
    }

    #[test]
    fn dropping_recreated_family_removes_its_expiry_bound() {
        let mut db = Db::open(None, &Config::new(), 1).unwrap();
        let tables = Tables::of("again");
        db.in_own_transaction(true, |db| db.create_family(&tables, 1)).unwrap();
        assert!(db.due(1, 10, || true).unwrap().complete);
        db.in_own_transaction(true, |db| db.drop_family(&tables)).unwrap();
        db.forget_all_bounds();
        db.in_own_transaction(true, |db| db.create_family(&tables, 1)).unwrap();
        assert!(db.due(1, 10, || true).unwrap().complete);
        db.in_own_transaction(true, |db| db.drop_family(&tables)).unwrap();
        assert!(db.due(1, 10, || true).unwrap().families.is_empty());
        assert_eq!(db.next_expiry(&Clock::default()).unwrap(), None);
    }

    #[test]
    fn dropped_families_do_not_grow_expiry_index() {
        let mut db = Db::open(None, &Config::new(), 1).unwrap();
        let tables = Tables::of("for a moment");
        for _ in 0..10 * PER_LOOK {
            db.in_own_transaction(true, |db| db.create_family(&tables, 1)).unwrap();
            assert!(db.due(1, 10, || true).unwrap().families.is_empty());
            db.in_own_transaction(true, |db| db.drop_family(&tables)).unwrap();
            assert!(db.due(1, 10, || true).unwrap().families.is_empty());
        }
        let times = db.next_expiry.borrow();
        assert_eq!((times.places.len(), times.order.len()), (1, 1));
        assert!(times.families.len() <= 2 + PER_LOOK + 1, "{} places", times.families.len());
    }
}

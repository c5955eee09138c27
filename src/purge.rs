//! Removing what has expired, step by step.

use std::time::{Duration, Instant};

use crate::db::{Db, Engine, Step, TimeIndex, from_time};
use crate::error::Result;
use crate::expiry;
use crate::family::Family;
use crate::lifetime::next_expiry;
use crate::store::Store;

/// The most keys one transaction of a purge or sweep removes; between two, other writers get their turn.
pub(crate) const KEYS_PER_STEP: usize = 256;

/// Keys removed between two looks at the time budget.
const KEYS_PER_LOOK: usize = 16;

/// An entry of the expiry index.
type Entry = (i64, Vec<u8>);

impl Family {
    /// Removes every key of this family that has expired by now; returns how many. The work grows
    /// with that number, not with the size of the family, and is done in transactions of at most 256
    /// keys (or in the open transaction).
    ///
    /// # Errors
    /// See [`Family`]. Steps that were committed before the failure stay done.
    pub fn purge_expired(&self) -> Result<u64> {
        self.purge_up_to(i64::MAX)
    }

    /// Removes the keys that expired before `cutoff_ms`; keys that are still alive stay, whatever the
    /// cutoff. Otherwise as [`purge_expired`](Family::purge_expired).
    ///
    /// # Errors
    /// As [`purge_expired`](Family::purge_expired).
    pub fn purge_before(&self, cutoff_ms: i64) -> Result<u64> {
        match cutoff_ms.checked_sub(1) {
            Some(last_ms) => self.purge_up_to(last_ms),
            None => Ok(0), // nothing is before the beginning of time
        }
    }

    /// Removes what expired at `last_ms` or before, and by now.
    fn purge_up_to(&self, last_ms: i64) -> Result<u64> {
        let now_ms = self.inner().clock.now_ms();
        let last_ms = last_ms.min(now_ms);
        let mut purged = 0;
        loop {
            let due = |db: &Db, max| self.entries_up_to(db, TimeIndex::Expiry, last_ms, max);
            // Looking first needs no lock on the file when there is nothing to do.
            if self.inner().with(|db| due(db, 1))?.is_empty() {
                return Ok(purged);
            }
            let step = self.inner().write(|db| {
                let mut removed = 0;
                for (expire_ms, key) in due(db, KEYS_PER_STEP)? {
                    removed += u64::from(self.purge_entry(db, expire_ms, &key, now_ms)?);
                }
                Ok(removed)
            })?;
            self.inner().counters.ttl_purged.add(step);
            purged += step;
        }
    }

    /// Removes the row of an expiry index entry, if it is dead by its own `expire_ms`; says whether.
    fn purge_entry(&self, db: &Db, expire_ms: i64, key: &[u8], now_ms: i64) -> Result<bool> {
        // The row decides, whatever the index says.
        let head = db.rows().head(self.tables(), key)?;
        let row_expire_ms = head.and_then(|head| head.expire_ms);
        let dead = row_expire_ms.is_some_and(|at| expiry::is_expired(at, now_ms));
        if let Some(head) = head
            && dead
        {
            self.delete_row(db, key, head)?;
        }
        if row_expire_ms != Some(expire_ms) {
            // Only in a damaged store: the purge must not meet this entry for ever.
            db.rows().drop_time_entry(self.tables(), TimeIndex::Expiry, expire_ms, key)?;
        }
        Ok(dead)
    }

    /// The first entries of an index whose time is `last_ms` or before.
    pub(crate) fn entries_up_to(
        &self,
        db: &Db,
        index: TimeIndex,
        last_ms: i64,
        max: usize,
    ) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        db.rows().by_time(self.tables(), index, from_time(i64::MIN), |time_ms, key| {
            if time_ms > last_ms {
                return Ok(Step::Stop);
            }
            entries.push((time_ms, key.to_vec()));
            Ok(if entries.len() < max { Step::Continue } else { Step::Stop })
        })?;
        Ok(entries)
    }
}

/// What a step of a purge did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PurgeStep {
    /// Keys removed.
    pub deleted: u64,
    /// Whether expired keys are left.
    pub more: bool,
}

impl Store {
    /// Removes expired keys over all families, those first that expired first, until `max_keys` are
    /// removed or `max_time` is over (`None`: no limit). In transactions of at most 256 keys, or in the
    /// open one.
    ///
    /// # Errors
    /// As for writes. Transactions that were committed before the failure stay.
    pub fn purge_step(&self, max_keys: Option<u64>, max_time: Option<Duration>) -> Result<PurgeStep> {
        let inner = self.shared();
        let started = Instant::now();
        let now_ms = inner.clock.now_ms();
        let in_time = || max_time.is_none_or(|max| started.elapsed() < max);
        let mut deleted = 0;
        loop {
            let left = max_keys.map_or(u64::MAX, |max| max.saturating_sub(deleted));
            let next = inner.with(|db| db.in_snapshot(|db| self.families_by_next_expiry(db, now_ms)))?;
            // However little time there is, a step makes some progress.
            let begins = deleted == 0 && max_time != Some(Duration::ZERO);
            if next.is_empty() || left == 0 || !(begins || in_time()) {
                return Ok(PurgeStep { deleted, more: !next.is_empty() });
            }
            let max = KEYS_PER_STEP.min(usize::try_from(left).unwrap_or(KEYS_PER_STEP));
            let step = inner.write(|db| {
                let mut removed = 0;
                for (n, (family, expire_ms, key)) in self.earliest(db, now_ms, max)?.iter().enumerate() {
                    if n > 0 && n % KEYS_PER_LOOK == 0 && !in_time() {
                        break;
                    }
                    removed += u64::from(family.purge_entry(db, *expire_ms, key, now_ms)?);
                }
                Ok(removed)
            })?;
            inner.counters.ttl_purged.add(step);
            deleted += step;
        }
    }

    /// The families that have something expired, with the time of their first, the earliest first.
    fn families_by_next_expiry(&self, db: &Db, now_ms: i64) -> Result<Vec<(i64, Family)>> {
        let mut next = Vec::new();
        for name in db.families()? {
            let family = self.unregistered_family(&name);
            if let Some(expire_ms) = next_expiry(db, family.tables())?
                && expiry::is_expired(expire_ms, now_ms)
            {
                next.push((expire_ms, family));
            }
        }
        next.sort_by_key(|(expire_ms, _)| *expire_ms);
        Ok(next)
    }

    /// The earliest expired entries of all families.
    fn earliest(&self, db: &Db, now_ms: i64, max: usize) -> Result<Vec<(Family, i64, Vec<u8>)>> {
        let mut earliest: Vec<(Family, i64, Vec<u8>)> = Vec::new();
        for (first_ms, family) in self.families_by_next_expiry(db, now_ms)? {
            if earliest.len() >= max && earliest.last().is_some_and(|(_, last_ms, _)| *last_ms <= first_ms) {
                break; // this family and those behind it have nothing earlier
            }
            let entries = family.entries_up_to(db, TimeIndex::Expiry, now_ms, max)?;
            earliest.extend(entries.into_iter().map(|(ms, key)| (family.unregistered(), ms, key)));
            earliest.sort_by_key(|(_, ms, _)| *ms);
            earliest.truncate(max);
        }
        Ok(earliest)
    }
}

//! Removal of expired keys of all families, in the order of expiry time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::connection::Db;
use super::schema::Tables;
use crate::backend::{Due, Removals, TimeEntry};
use crate::clock::Clock;
use crate::error::Result;

/// Maximum number of keys that `purge_due` removes between two calls of `in_time`, which checks the
/// time limit of the purge.
const KEYS_PER_LOOK: usize = 16;

impl Db {
    /// Removes up to `max` expired keys of the families in `due`, earliest expiry time first,
    /// inside a write transaction. Returns the number of removed keys.
    ///
    /// Ends early when `in_time` returns `false`, but first removes up to `KEYS_PER_LOOK` expired
    /// keys in any case.
    pub(crate) fn purge_due(
        &self,
        due: &Due,
        clock: &Clock,
        now_ms: i64,
        max: usize,
        in_time: &dyn Fn() -> bool,
    ) -> Result<Removals> {
        // Expiry time of the next index entry of each family, and the index of the family in
        // `due.families`; the earliest first.
        let mut next: BinaryHeap<_> =
            due.families.iter().enumerate().map(|(at, (first_ms, _))| Reverse((*first_ms, at))).collect();
        let mut seen = 0;
        let mut removals = Removals::default();
        while let Some(Reverse((first_ms, at))) = next.pop()
            && seen < max
            && (seen == 0 || in_time())
        {
            let Some((_, tables)) = due.families.get(at) else { continue };
            let until_ms = next.peek().map_or(now_ms, |Reverse((ms, _))| *ms);
            let (entries, after) =
                self.first_entries(tables, clock, until_ms.max(first_ms), now_ms, max - seen)?;
            for (expire_ms, key) in &entries {
                removals.counted +=
                    u64::from(self.contents(tables, clock).purge_entry(*expire_ms, key, now_ms)?);
            }
            seen += entries.len();
            removals.entries += entries.len() as u64;
            next.extend(after.map(|after_ms| Reverse((after_ms, at))));
        }
        Ok(removals)
    }

    /// Returns the first entries of the expiry index of a family with a time up to `until_ms`, but
    /// at most `max` and at most `KEYS_PER_LOOK`. Also returns the time of the next entry, or
    /// `None` if no further entry is expired at `now_ms`.
    fn first_entries(
        &self,
        tables: &Tables,
        clock: &Clock,
        until_ms: i64,
        now_ms: i64,
        max: usize,
    ) -> Result<(Vec<TimeEntry>, Option<i64>)> {
        if !self.family_exists(tables.family())? {
            return Ok((Vec::new(), None)); // dropped since it was found due
        }
        let max = max.min(KEYS_PER_LOOK);
        let mut entries = self.contents(tables, clock).due(now_ms, max + 1)?;
        let taken = entries.iter().take(max).take_while(|(ms, _)| *ms <= until_ms).count();
        let after = entries.get(taken).map(|(ms, _)| *ms);
        entries.truncate(taken);
        Ok((entries, after))
    }
}

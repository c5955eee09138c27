//! What is due over all families: when, and removing it within a budget.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use super::Store;
use crate::db::{Db, Due, TimeEntry};
use crate::error::Result;
use crate::family::purge::KEYS_PER_STEP;
use crate::family::{Family, PurgeStep};

/// Keys removed between two looks at the time budget.
const KEYS_PER_LOOK: usize = 16;
/// For how much longer than its time a step may look at families: when others commit all the time, all have to
/// be looked at anew each time, and a step that never comes to their end never says that nothing is due.
const MORE_TIME_TO_LOOK: Duration = Duration::from_millis(5);

/// How long the cleaner looks at families before it lets others in.
const CLEANERS_TURN: Duration = Duration::from_millis(1);

/// What a turn of the cleaner did.
pub(super) struct CleanersTurn {
    /// Keys removed.
    pub(super) deleted: u64,
    /// Families looked at, of so many.
    pub(super) looked_at: usize,
    pub(super) known: usize,
    /// Nothing is due.
    pub(super) done: bool,
}

impl Store {
    /// The earliest end of life in all families; otherwise as [`Family::next_expiry`].
    ///
    /// # Errors
    /// Failures to read.
    pub fn next_expiry_of_all(&self) -> Result<Option<i64>> {
        self.shared().with(|db| db.next_expiry(&self.shared().clock))
    }

    /// Removes expired keys over all families, those first that expired first, until `max_keys` (counted as by
    /// [`Family::purge_expired`]) are removed or `max_time` is over (`None`: no limit). In transactions of at most 256 keys, or in the
    /// open one.
    ///
    /// With nothing expired this looks at no family, however many there are, unless others have committed
    /// since this handle looked last: then once at each. Time that is over ends that, too, some milliseconds
    /// later; the next step begins with the families that were left out. A step with a `max_time` leaves a
    /// checkpoint that is due to the next write.
    ///
    /// # Errors
    /// As for writes. Transactions that were committed before the failure stay.
    pub fn purge_step(&self, max_keys: Option<u64>, max_time: Option<Duration>) -> Result<PurgeStep> {
        let started = Instant::now();
        let now_ms = self.shared().clock.now_ms();
        let within = |more: Duration| max_time.is_none_or(|max| started.elapsed() < max.saturating_add(more));
        let mut deleted = 0;
        loop {
            let left = max_keys.map_or(u64::MAX, |max| max.saturating_sub(deleted));
            let due = self.due(now_ms, || within(MORE_TIME_TO_LOOK))?;
            // However little time there is, a step makes some progress.
            let begins = deleted == 0 && max_time != Some(Duration::ZERO);
            let more = !due.families.is_empty() || !due.complete;
            if due.families.is_empty() || left == 0 || !(begins || within(Duration::ZERO)) {
                return Ok(PurgeStep { deleted, more });
            }
            let in_haste = max_time.is_some();
            deleted += self.purge_due(&due, now_ms, left, in_haste, || within(Duration::ZERO))?;
        }
    }

    /// A turn of the cleaner: looks what is due, for a moment, and removes the first of it.
    pub(super) fn cleaners_turn(&self, max: u64) -> Result<CleanersTurn> {
        let started = Instant::now();
        let now_ms = self.shared().clock.now_ms();
        let due = self.due(now_ms, || started.elapsed() < CLEANERS_TURN)?;
        let nothing = due.families.is_empty();
        let deleted = if nothing { 0 } else { self.purge_due(&due, now_ms, max, false, || true)? };
        let Due { looked_at, known, complete, .. } = due;
        Ok(CleanersTurn { deleted, looked_at, known, done: nothing && complete })
    }

    /// The families that have something expired, as many as one transaction can be about.
    pub(super) fn due(&self, now_ms: i64, in_time: impl Fn() -> bool) -> Result<Due> {
        self.shared().with(|db| db.due(now_ms, KEYS_PER_STEP, in_time))
    }

    /// Removes the earliest expired keys of these families in one transaction: at most `max`, and not many
    /// once the time is over. `in_haste`: without a checkpoint after it, if that can wait.
    pub(super) fn purge_due(
        &self,
        due: &Due,
        now_ms: i64,
        max: u64,
        in_haste: bool,
        in_time: impl Fn() -> bool,
    ) -> Result<u64> {
        let shared = self.shared();
        let max = KEYS_PER_STEP.min(usize::try_from(max).unwrap_or(KEYS_PER_STEP));
        let families: Vec<_> = due.families.iter().map(|(_, name)| self.unregistered_family(name)).collect();
        let purge = |db: &Db| {
            db.remove_dead(&shared.clock, now_ms)?; // what a read has met is not counted
            // The next entry of each family, the earliest first.
            let mut next: BinaryHeap<_> =
                due.families.iter().enumerate().map(|(at, (first_ms, _))| Reverse((*first_ms, at))).collect();
            let (mut seen, mut removed) = (0, 0);
            while let Some(Reverse((first_ms, at))) = next.pop()
                && seen < max
                && (seen == 0 || in_time())
            {
                let Some(family) = families.get(at) else { continue };
                let until_ms = next.peek().map_or(now_ms, |Reverse((ms, _))| *ms);
                let (entries, after) =
                    self.first_entries(db, family, until_ms.max(first_ms), now_ms, max - seen)?;
                for (expire_ms, key) in &entries {
                    removed += u64::from(family.on(db).purge_entry(*expire_ms, key, now_ms)?);
                }
                seen += entries.len();
                next.extend(after.map(|after_ms| Reverse((after_ms, at))));
            }
            Ok(removed)
        };
        let removed = if in_haste { shared.write_in_haste(purge)? } else { shared.write(purge)? };
        shared.counters.ttl_purged.add(removed);
        Ok(removed)
    }

    /// The first entries of a family's expiry index, up to `until_ms` and no more than are removed between two
    /// looks at the time; and the time of the next one, if that is over.
    fn first_entries(
        &self,
        db: &Db,
        family: &Family,
        until_ms: i64,
        now_ms: i64,
        max: usize,
    ) -> Result<(Vec<TimeEntry>, Option<i64>)> {
        if !db.family_exists(family.name())? {
            return Ok((Vec::new(), None)); // dropped since it was found due
        }
        let max = max.min(KEYS_PER_LOOK);
        let mut entries = family.on(db).due(now_ms, max + 1)?;
        let taken = entries.iter().take(max).take_while(|(ms, _)| *ms <= until_ms).count();
        let after = entries.get(taken).map(|(ms, _)| *ms);
        entries.truncate(taken);
        Ok((entries, after))
    }
}

//! What is due over all families: when, and removing it within a budget.

use std::time::{Duration, Instant};

use super::Store;
use crate::db::{Due, View};
use crate::error::Result;
use crate::family::PurgeStep;
use crate::family::purge::KEYS_PER_STEP;

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
    pub fn next_expiry_all_families(&self) -> Result<Option<i64>> {
        self.shared().with(|db| db.view().next_expiry(&self.shared().clock))
    }

    /// Removes expired keys over all families, those first that expired first, until `max_keys` (counted as by
    /// [`Family::purge_expired`]) are removed or `max_time` is over (`None`: no limit). In transactions of at most 256 keys, or in the
    /// open one.
    ///
    /// With nothing expired this looks at no family, however many there are, unless others have committed
    /// since this handle looked last: then once at each. Time that is over ends that, too, some milliseconds
    /// later; the next step begins with the families that were left out. On a server, keys that others are removing or
    /// writing at the same time are left to them. A step with a `max_time` leaves a
    /// checkpoint that is due to the next write.
    ///
    /// # Errors
    /// As for writes. Transactions that were committed before the failure stay.
    pub fn purge_step(&self, max_keys: Option<u64>, max_time: Option<Duration>) -> Result<PurgeStep> {
        let started = Instant::now();
        let now_ms = self.shared().clock.now_ms();
        let within = |more: Duration| max_time.is_none_or(|max| started.elapsed() < max.saturating_add(more));
        let mut deleted = 0;
        let mut left_over: Option<Due> = None;
        loop {
            let left = max_keys.map_or(u64::MAX, |max| max.saturating_sub(deleted));
            let due = self.due(now_ms, || within(MORE_TIME_TO_LOOK))?;
            // However little time there is, a step makes some progress.
            let begins = deleted == 0 && max_time != Some(Duration::ZERO);
            let more = !due.families.is_empty() || !due.complete;
            // What is due as before, although a step has removed none of it, others are removing or writing.
            let others_have_it = left_over.is_some_and(|before| before.is_as(&due));
            if due.families.is_empty() || left == 0 || others_have_it || !(begins || within(Duration::ZERO)) {
                return Ok(PurgeStep { deleted, more });
            }
            let in_haste = max_time.is_some();
            let step = self.purge_due(&due, now_ms, left, in_haste, || within(Duration::ZERO))?;
            deleted += step;
            left_over = (step == 0).then_some(due);
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
        self.shared().with(|db| db.view().due(now_ms, KEYS_PER_STEP, in_time))
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
        let purge = |db: View<'_>| {
            db.remove_dead(&shared.clock, now_ms)?; // what a read has met is not counted
            db.purge_due(due, &shared.clock, now_ms, max, &in_time)
        };
        let removed = if in_haste { shared.write_in_haste(purge)? } else { shared.write(purge)? };
        shared.counters.ttl_purged.add(removed);
        Ok(removed)
    }
}

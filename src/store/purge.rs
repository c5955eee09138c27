//! Purge of all families: the next expiry time, and purge steps with limits on keys and time.

use std::time::{Duration, Instant};

use super::Store;
use crate::backend::{Due, KEYS_PER_STEP, Removals};
use crate::error::Result;
use crate::family::PurgeStep;

/// Additional time, beyond the caller's `max_time`, for which [`Store::purge_step`] may search the
/// families for expired keys.
///
/// While other connections commit all the time, every purge step must search all families again.
/// Without the additional time, a step might never finish the search, and so never report that no
/// key is expired.
const MORE_TIME_TO_LOOK: Duration = Duration::from_millis(5);

/// Maximum time for which the cleaner searches the families for expired keys without a break.
/// Between two searches, other threads can take the lock of the store handle.
const CLEANER_SEARCH_TIME: Duration = Duration::from_millis(1);

/// Result of one step of the cleaner ([`Store::cleaner_step`]): a search for expired keys, and
/// their removal.
pub(super) struct CleanerStep {
    /// Number of keys removed.
    pub(super) deleted: u64,
    /// Number of families that the search has examined.
    pub(super) looked_at: usize,
    /// Number of families in the store; 0 if the search did not need to examine them.
    pub(super) known: usize,
    /// Whether all families were examined and none has an expired key.
    pub(super) done: bool,
}

impl Store {
    /// Returns the earliest expiry time in all families, in milliseconds since the Unix epoch;
    /// `None` if no key has one.
    ///
    /// The details are those of [`Family::next_expiry`](crate::Family::next_expiry).
    ///
    /// # Errors
    /// A [read error](crate#errors).
    pub fn next_expiry_all_families(&self) -> Result<Option<i64>> {
        self.session().with(|db| db.next_expiry_of_all())
    }

    /// Removes expired keys of all families, earliest expiry time first, until `max_keys` keys are
    /// removed or `max_time` has passed. `None` means no limit.
    ///
    /// Keys are counted as by [`Family::purge_expired`](crate::Family::purge_expired). The work is
    /// done in transactions of at most 256 keys, or in the open transaction.
    ///
    /// If nothing has expired, no family is examined, however many there are, unless another
    /// connection has committed since this handle examined them last. `max_time` can end that
    /// examination, some milliseconds late: then [`more`](PurgeStep::more) is `true`, and the next
    /// step begins with the remaining families. With a `max_time`, a checkpoint that becomes due is
    /// left to the next write. On a server, keys that other clients are removing or writing are
    /// skipped.
    ///
    /// # Errors
    /// A [write error](crate#errors). Keys that earlier transactions removed stay removed.
    pub fn purge_step(&self, max_keys: Option<u64>, max_time: Option<Duration>) -> Result<PurgeStep> {
        let started = Instant::now();
        let now_ms = self.session().clock.now_ms();
        let within = |more: Duration| max_time.is_none_or(|max| started.elapsed() < max.saturating_add(more));
        let mut deleted = 0;
        let mut left_over: Option<Due> = None;
        loop {
            let left = max_keys.map_or(u64::MAX, |max| max.saturating_sub(deleted));
            let due = self.due(now_ms, || within(MORE_TIME_TO_LOOK))?;
            // A step removes keys once, however short its time, unless `max_time` is zero.
            let begins = deleted == 0 && max_time != Some(Duration::ZERO);
            let more = !due.families.is_empty() || !due.complete;
            // If the previous removal removed nothing and the same families still have expired
            // keys, other clients are removing or writing those keys.
            let others_have_it = left_over.is_some_and(|before| before.is_as(&due));
            if due.families.is_empty() || left == 0 || others_have_it || !(begins || within(Duration::ZERO)) {
                return Ok(PurgeStep { deleted, more });
            }
            let in_haste = max_time.is_some();
            let step = self.purge_due(&due, now_ms, left, in_haste, || within(Duration::ZERO))?;
            deleted += step.counted;
            left_over = (step.entries == 0).then_some(due);
        }
    }

    /// Runs one step of the cleaner: searches the families for expired keys for at most
    /// [`CLEANER_SEARCH_TIME`], then removes up to `max` of the keys found, but at most
    /// [`KEYS_PER_STEP`], earliest expiry time first.
    pub(super) fn cleaner_step(&self, max: u64) -> Result<CleanerStep> {
        let started = Instant::now();
        let now_ms = self.session().clock.now_ms();
        let due = self.due(now_ms, || started.elapsed() < CLEANER_SEARCH_TIME)?;
        let nothing = due.families.is_empty();
        let deleted = if nothing { 0 } else { self.purge_due(&due, now_ms, max, false, || true)?.counted };
        let Due { looked_at, known, complete, .. } = due;
        Ok(CleanerStep { deleted, looked_at, known, done: nothing && complete })
    }

    /// Searches for families that have keys which are expired at `now_ms`. Returns at most
    /// [`KEYS_PER_STEP`] families. The search ends early when `in_time` returns `false`.
    pub(super) fn due(&self, now_ms: i64, in_time: impl Fn() -> bool) -> Result<Due> {
        self.session().with(|db| db.due(now_ms, KEYS_PER_STEP, in_time))
    }

    /// Removes the earliest expired keys of the families in `due`, in one transaction: at most
    /// `max`, at most [`KEYS_PER_STEP`], and few after `in_time` has returned `false`. Returns the
    /// number of rows removed, and the number of removed keys to report to the caller.
    ///
    /// With `in_haste`, a checkpoint that becomes due is left to the next write, if that is
    /// possible.
    pub(super) fn purge_due(
        &self,
        due: &Due,
        now_ms: i64,
        max: u64,
        in_haste: bool,
        in_time: impl Fn() -> bool,
    ) -> Result<Removals> {
        let session = self.session();
        let max = KEYS_PER_STEP.min(usize::try_from(max).unwrap_or(KEYS_PER_STEP));
        let removed = session.write(|db| db.purge_due(due, now_ms, max, in_haste, &in_time))?;
        session.counters.ttl_purged.add(removed.counted);
        Ok(removed)
    }
}

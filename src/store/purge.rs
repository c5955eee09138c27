//! Purge of all families: the next expiry time, and purge steps with limits on keys and time.

use std::time::{Duration, Instant};

use super::Store;
use crate::backend::{Due, RemovalList, StepLimits};
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

/// Maximum number of families that one search for expired keys returns.
const FAMILIES_PER_SEARCH: usize = 256;

/// Expired keys that the cleaner has found and not yet removed.
#[derive(Default)]
pub(super) struct CleanerList {
    due: Option<Due>,
    list: RemovalList,
}

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
    /// Keys are counted, and the work is divided into transactions, as by
    /// [`Family::purge_expired`](crate::Family::purge_expired).
    ///
    /// If nothing has expired, no family is examined, however many there are, unless another
    /// connection has committed since this handle examined them last. `max_time` can end that
    /// examination, some milliseconds late: then [`more`](PurgeStep::more) is `true`, and the next
    /// step begins with the remaining families. With a `max_time`, a checkpoint that becomes due is
    /// left to the next write. A wait for a lock of another handle is limited by the busy timeout, not
    /// by `max_time`. On a server, keys that other clients are removing or writing are
    /// skipped.
    ///
    /// # Errors
    /// A [write error](crate#errors). Keys that earlier transactions removed stay removed.
    pub fn purge_step(&self, max_keys: Option<u64>, max_time: Option<Duration>) -> Result<PurgeStep> {
        let (started, session) = (Instant::now(), self.session());
        let mut now_ms = session.clock.now_ms();
        let within = |more: Duration| max_time.is_none_or(|max| started.elapsed() < max.saturating_add(more));
        let in_time = || within(Duration::ZERO);
        let mut deleted = 0;
        let mut left_over: Option<Due> = None;
        let mut list = RemovalList::default();
        let mut due = self.due(now_ms, || within(MORE_TIME_TO_LOOK))?;
        loop {
            let left = max_keys.map_or(u64::MAX, |max| max.saturating_sub(deleted));
            // A step removes keys once, however short its time, unless `max_time` is zero.
            let begins = deleted == 0 && max_time != Some(Duration::ZERO);
            let more = !list.is_empty() || !due.families.is_empty() || !due.complete;
            // If the previous removal removed nothing and the same families still have expired
            // keys, other clients are removing or writing those keys.
            let others_have_it = left_over.is_some_and(|before| before.is_as(&due));
            if due.families.is_empty() || left == 0 || others_have_it || !(begins || in_time()) {
                return Ok(PurgeStep { deleted, more });
            }
            now_ms = now_ms.min(session.clock.now_ms()); // the clock may have been set back
            let time_limit = max_time.map(|_| &in_time as &dyn Fn() -> bool);
            let step = session
                .removal_step(left, time_limit, |db, limits| db.purge_due(&due, now_ms, &mut list, limits))?;
            session.counters.ttl_purged.add(step.counted);
            deleted += step.counted;
            left_over = None;
            if list.is_empty() {
                let before = due;
                due = self.due(now_ms, || within(MORE_TIME_TO_LOOK))?;
                left_over = step.left_to_others.then_some(before);
            }
        }
    }

    /// Runs one step of the cleaner: searches the families for expired keys for at most
    /// [`CLEANER_SEARCH_TIME`], then removes up to `max` of the keys found, earliest expiry time
    /// first, in one transaction. The transaction ends early when `waited_for` returns `true`.
    /// `found` has the keys that the previous step has found and not removed.
    pub(super) fn cleaner_step(
        &self,
        max: u64,
        found: &mut CleanerList,
        waited_for: &dyn Fn() -> bool,
    ) -> Result<CleanerStep> {
        let (started, session) = (Instant::now(), self.session());
        let now_ms = session.clock.now_ms();
        let (mut looked_at, mut known, mut complete) = (0, 0, false);
        if found.list.is_empty() {
            let due = self.due(now_ms, || started.elapsed() < CLEANER_SEARCH_TIME)?;
            (looked_at, known, complete) = (due.looked_at, due.known, due.complete);
            found.due = Some(due);
        }
        let Some(due) = found.due.as_ref().filter(|due| !due.families.is_empty()) else {
            return Ok(CleanerStep { deleted: 0, looked_at, known, done: complete });
        };
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        let limits = StepLimits { max, has_time_limit: false, in_time: &|| true, waited_for };
        let removed = session.removal_turn(|db| db.purge_due(due, now_ms, &mut found.list, &limits))?;
        session.counters.ttl_purged.add(removed.counted);
        Ok(CleanerStep { deleted: removed.counted, looked_at, known, done: false })
    }

    /// Searches for families that have keys which are expired at `now_ms`. Returns at most
    /// [`FAMILIES_PER_SEARCH`] families. The search ends early when `in_time` returns `false`.
    pub(super) fn due(&self, now_ms: i64, in_time: impl Fn() -> bool) -> Result<Due> {
        self.session().with(|db| db.due(now_ms, FAMILIES_PER_SEARCH, in_time))
    }
}

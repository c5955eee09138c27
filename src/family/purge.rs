//! Purge of one family, in steps.

use crate::backend::RemovalList;
use crate::error::Result;
use crate::family::Family;

/// Result of one step of a purge or a sweep, which removes a limited number of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PurgeStep {
    /// Number of keys removed. A sweep counts only the live keys among them.
    pub deleted: u64,
    /// Whether there may be more keys to remove.
    ///
    /// It is `true` if the limit was reached or if there was no time to examine all families. On a
    /// server it is also `true` if other clients are removing or writing the remaining keys.
    pub more: bool,
}

impl Family {
    /// Removes all expired keys of this family. Returns their number.
    ///
    /// The cost depends on the number of expired keys, not on the size of the family. The work is
    /// done in transactions of at most 4096 keys, or in the open transaction. A transaction ends
    /// early when another handle or thread waits to write. Keys that a `get`,
    /// `exists` or `ttl` of this handle found expired before are removed but not counted. On a
    /// server, keys that other clients are removing or writing are skipped.
    /// [`Store::purge_step`](crate::Store::purge_step) purges all families.
    ///
    /// # Errors
    /// See [`Family`](Family#errors). Keys that earlier transactions removed stay removed.
    pub fn purge_expired(&self) -> Result<u64> {
        self.purge_up_to(i64::MAX)
    }

    /// Removes the expired keys whose expiry time is before `cutoff_ms`, in milliseconds since the
    /// Unix epoch. Returns their number.
    ///
    /// Live keys stay, also if the cutoff is in the future. The work is divided into transactions,
    /// and the keys are counted, as by [`purge_expired`](Family::purge_expired).
    ///
    /// # Errors
    /// As [`purge_expired`](Family::purge_expired).
    pub fn purge_before(&self, cutoff_ms: i64) -> Result<u64> {
        match cutoff_ms.checked_sub(1) {
            Some(last_ms) => self.purge_up_to(last_ms),
            None => Ok(0), // no time is before `i64::MIN`
        }
    }

    /// Removes up to `max_keys` expired keys of this family, those with the earliest expiry time
    /// first. For callers that do other work between steps.
    ///
    /// The work is divided into transactions, and the keys are counted, as by
    /// [`purge_expired`](Family::purge_expired).
    ///
    /// # Errors
    /// As [`purge_expired`](Family::purge_expired).
    pub fn purge_at_most(&self, max_keys: u64) -> Result<PurgeStep> {
        self.purge(i64::MAX, max_keys)
    }

    /// Removes the expired keys of this family whose expiry time is at most `last_ms`, in
    /// milliseconds since the Unix epoch. Returns their number.
    fn purge_up_to(&self, last_ms: i64) -> Result<u64> {
        Ok(self.purge(last_ms, u64::MAX)?.deleted)
    }

    fn purge(&self, last_ms: i64, max_keys: u64) -> Result<PurgeStep> {
        let session = self.session();
        let mut now_ms = i64::MAX;
        let (mut deleted, mut left_to_others) = (0, false);
        let mut list = RemovalList::default();
        loop {
            now_ms = now_ms.min(session.clock.now_ms()); // the clock may have been set back
            // This read needs no lock on the file if nothing has expired.
            let more =
                !list.is_empty() || session.with(|db| db.has_expired(self.tables(), last_ms, now_ms))?;
            let left = max_keys.saturating_sub(deleted);
            if !more || left == 0 || left_to_others {
                return Ok(PurgeStep { deleted, more });
            }
            let step = session.removal_step(left, None, |db, limits| {
                db.purge(&self.shared_tables(), last_ms, now_ms, &mut list, limits)
            })?;
            session.counters.ttl_purged.add(step.counted);
            deleted += step.counted;
            left_to_others = step.left_to_others;
        }
    }
}

//! Removing what has expired, step by step.

use crate::error::Result;
use crate::family::Family;

/// The most keys one transaction of a purge or sweep removes; between two, other writers get their turn.
pub(crate) const KEYS_PER_STEP: usize = 256;

/// What a step of a purge or a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PurgeStep {
    /// Keys removed; by a sweep, those that were alive.
    pub deleted: u64,
    /// Whether there is more to remove; or may be, because there was no time to look at all families, or because others
    /// are removing or writing what is left, on a server.
    pub more: bool,
}

impl Family {
    /// Removes every key of this family that has expired by now; returns how many, without those that a get, exists
    /// or ttl of this handle has met before. The work grows
    /// with that number, not with the size of the family, and is done in transactions of at most 256
    /// keys (or in the open transaction). On a server, keys that others are removing or writing at the same time are
    /// left to them. What is overwritten of them: as for [`delete`](Family::delete).
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

    /// Removes at most so many expired keys of this family, those first that expired first. Otherwise as
    /// [`purge_expired`](Family::purge_expired): for callers who look up between two steps.
    ///
    /// # Errors
    /// As [`purge_expired`](Family::purge_expired).
    pub fn purge_at_most(&self, max_keys: u64) -> Result<PurgeStep> {
        self.purge(i64::MAX, max_keys)
    }

    /// Removes what expired at `last_ms` or before, and by now.
    fn purge_up_to(&self, last_ms: i64) -> Result<u64> {
        Ok(self.purge(last_ms, u64::MAX)?.deleted)
    }

    fn purge(&self, last_ms: i64, max_keys: u64) -> Result<PurgeStep> {
        let now_ms = self.shared().clock.now_ms();
        let (mut deleted, mut others_have_the_rest) = (0, false);
        loop {
            // Looking first needs no lock on the file when there is nothing to do.
            let more = self.shared().with(|db| self.on(db.view()).has_expired(last_ms, now_ms))?;
            let left = max_keys.saturating_sub(deleted);
            if !more || left == 0 || others_have_the_rest {
                return Ok(PurgeStep { deleted, more });
            }
            let max = KEYS_PER_STEP.min(usize::try_from(left).unwrap_or(KEYS_PER_STEP));
            let step = self.shared().write(|db| {
                db.remove_dead(&self.shared().clock, now_ms)?; // what a read has met is not counted
                self.on(db).purge(last_ms, now_ms, max)
            })?;
            self.shared().counters.ttl_purged.add(step.counted);
            deleted += step.counted;
            others_have_the_rest = step.entries == 0;
        }
    }
}

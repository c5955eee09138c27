//! The age of keys: write times, and removing what was written too long ago.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::family::Family;
use crate::family::purge::{KEYS_PER_STEP, PurgeStep};

impl Family {
    /// Switches write tracking on or off, for every handle and process; it is kept in the file. When it
    /// is switched on, the keys that are there count as written now; when it is switched off, all write
    /// times are forgotten. Both look at every row, in one transaction.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn set_write_tracking(&self, on: bool) -> Result<()> {
        let now_ms = self.shared().clock.now_ms();
        self.shared().write(|db| db.set_write_tracking(self.tables(), on, now_ms))
    }

    /// Whether write times are tracked.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn tracks_writes(&self) -> Result<bool> {
        self.shared().with(|db| db.view().tracks_writes(self.tables()))
    }

    /// When the value of a key was written, in milliseconds since the Unix epoch; `None` if the key is
    /// missing or expired. A change of its TTL is not a write.
    ///
    /// # Errors
    /// See [`Family`]; also `Error` if the key is there, but the family does not track writes.
    pub fn write_time(&self, key: impl AsRef<[u8]>) -> Result<Option<i64>> {
        let Some(times) = self.times(key.as_ref())?.live() else { return Ok(None) };
        match times.written_ms {
            Some(written_ms) => Ok(Some(written_ms)),
            None => self.shared().count_failure(Err(not_tracked(self.name()))),
        }
    }

    /// Removes every key written longer ago than `max_age`, live or not; returns how many were alive.
    /// In transactions of at most 256 keys, each of which removes whole rows with all their index
    /// entries; or all in the open transaction.
    ///
    /// # Errors
    /// See [`Family`]; also `Error` if the family does not track writes. Steps that were committed
    /// before the failure stay done.
    pub fn sweep(&self, max_age: Duration) -> Result<u64> {
        let max_age_ms = i64::try_from(max_age.as_millis()).unwrap_or(i64::MAX);
        let before_ms = self.shared().clock.now_ms().saturating_sub(max_age_ms);
        Ok(self.sweep_at_most(before_ms, u64::MAX)?.deleted)
    }

    /// Removes at most so many keys that were written before that moment, the oldest first. Otherwise as
    /// [`sweep`](Family::sweep): for callers who look up between two steps.
    ///
    /// # Errors
    /// As [`sweep`](Family::sweep).
    pub fn sweep_at_most(&self, before_ms: i64, max_keys: u64) -> Result<PurgeStep> {
        let last_ms = before_ms.saturating_sub(1);
        if !self.tracks_writes()? {
            return self.shared().count_failure(Err(not_tracked(self.name())));
        }
        let (mut left, mut deleted, mut others_have_the_rest) = (max_keys, 0, false);
        loop {
            let more = self.shared().with(|db| self.on(db.view()).has_written_by(last_ms))?;
            if !more || left == 0 || others_have_the_rest {
                return Ok(PurgeStep { deleted, more });
            }
            let max = KEYS_PER_STEP.min(usize::try_from(left).unwrap_or(KEYS_PER_STEP));
            let step = self.shared().write(|db| self.on(db).sweep(last_ms, max))?;
            left = left.saturating_sub(step.entries);
            deleted += step.counted;
            others_have_the_rest = step.entries == 0;
            self.shared().counters.deletes.add(step.counted);
        }
    }
}

fn not_tracked(family: &str) -> Error {
    Error::invalid(format!("family \"{family}\" does not track write times: switch write tracking on first"))
}

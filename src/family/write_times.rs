//! Write times of keys, and sweeps, which remove keys by age.

use std::time::Duration;

use crate::backend::RemovalList;
use crate::error::{Error, Result};
use crate::family::Family;
use crate::family::purge::PurgeStep;
use crate::hint::Hint;

impl Family {
    /// Turns write tracking of the family on or off, for every handle and process. With write
    /// tracking, the store records when each value was written.
    ///
    /// When write tracking is switched on, existing keys count as written now. When it is switched
    /// off, all write times are discarded. Both take one transaction that visits every row.
    ///
    /// The setting is stored with the family.
    ///
    /// # Errors
    /// See [`Family`](Family#errors). [`Error`](crate::ErrorKind::Error) if the eviction policy of
    /// the store needs the write times.
    pub fn set_write_tracking(&self, on: bool) -> Result<()> {
        let now_ms = self.session().clock.now_ms();
        self.session().write(|db| db.set_write_tracking(self.tables(), on, now_ms))
    }

    /// Returns `true` if write tracking is on, so that the family records when each value was
    /// written.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn tracks_writes(&self) -> Result<bool> {
        self.session().with(|db| db.tracks_writes(self.tables()))
    }

    /// Returns the time at which the value of a key was written, in milliseconds since the Unix
    /// epoch; `None` if the key is missing or expired.
    ///
    /// A change of the TTL is not a write.
    ///
    /// # Errors
    /// See [`Family`](Family#errors). [`Error`](crate::ErrorKind::Error) also if the key is live
    /// but the family does not track write times.
    pub fn write_time(&self, key: impl AsRef<[u8]>) -> Result<Option<i64>> {
        let Some(times) = self.times(key.as_ref())?.live() else { return Ok(None) };
        match times.written_ms {
            Some(written_ms) => Ok(Some(written_ms)),
            None => self.session().count_failure(Err(not_tracked(self.name()))),
        }
    }

    /// Removes every key written more than `max_age` ago, live or expired. Returns the number of
    /// live keys removed.
    ///
    /// The work is divided into transactions as by [`purge_expired`](Family::purge_expired).
    ///
    /// # Errors
    /// See [`Family`](Family#errors). [`Error`](crate::ErrorKind::Error) also if the family does
    /// not track write times. Keys that earlier transactions removed stay removed.
    pub fn sweep(&self, max_age: Duration) -> Result<u64> {
        let max_age_ms = i64::try_from(max_age.as_millis()).unwrap_or(i64::MAX);
        Ok(self.sweep_step(|now_ms| now_ms.saturating_sub(max_age_ms), u64::MAX)?.deleted)
    }

    /// Removes up to `max_keys` keys that were written before `before_ms`, in milliseconds since
    /// the Unix epoch, the oldest first. Live and expired keys are removed alike.
    ///
    /// For callers that do other work between steps. The work is divided into transactions, and the
    /// keys are counted, as by [`sweep`](Family::sweep).
    ///
    /// # Errors
    /// As [`sweep`](Family::sweep).
    pub fn sweep_at_most(&self, before_ms: i64, max_keys: u64) -> Result<PurgeStep> {
        self.sweep_step(|_| before_ms, max_keys)
    }

    fn sweep_step(&self, before_ms: impl FnOnce(i64) -> i64, max_keys: u64) -> Result<PurgeStep> {
        if !self.tracks_writes()? {
            return self.session().count_failure(Err(not_tracked(self.name())));
        }
        // On a server, the call above has refreshed the clock.
        let last_ms = before_ms(self.session().clock.now_ms()).saturating_sub(1);
        let (mut left, mut deleted, mut left_to_others) = (max_keys, 0, false);
        let mut list = RemovalList::default();
        loop {
            let more =
                !list.is_empty() || self.session().with(|db| db.has_written_by(self.tables(), last_ms))?;
            if !more || left == 0 || left_to_others {
                return Ok(PurgeStep { deleted, more });
            }
            let step = self.session().removal_step(left, None, |db, limits| {
                db.sweep(&self.shared_tables(), last_ms, &mut list, limits)
            })?;
            left = left.saturating_sub(step.entries);
            deleted += step.counted;
            left_to_others = step.left_to_others;
            self.session().counters.deletes.add(step.counted);
        }
    }
}

fn not_tracked(family: &str) -> Error {
    Error::invalid(format!("family \"{family}\" does not track write times")).with_hint(Hint::TrackWrites)
}

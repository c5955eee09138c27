//! The age of keys: write times, and removing what was written too long ago.

use std::time::Duration;

use crate::db::{Engine, TimeIndex};
use crate::error::{Error, Result};
use crate::family::Family;
use crate::purge::KEYS_PER_STEP;

impl Family {
    /// Switches write tracking on or off, for every handle and process; it is kept in the file. When it
    /// is switched on, the keys that are there count as written now; when it is switched off, all write
    /// times are forgotten. Both look at every row, in one transaction.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn set_write_tracking(&self, on: bool) -> Result<()> {
        let now_ms = self.inner().clock.now_ms();
        self.inner().write(|db| db.set_write_tracking(self.tables(), on, now_ms))
    }

    /// Whether write times are tracked.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn tracks_writes(&self) -> Result<bool> {
        self.inner().with(|db| Ok(db.read_settings(self.tables())?.track_writes))
    }

    /// When the value of a key was written, in milliseconds since the Unix epoch; `None` if the key is
    /// missing or expired. A change of its TTL is not a write.
    ///
    /// # Errors
    /// See [`Family`]; also `Error` if the key is there, but the family does not track writes.
    pub fn write_time(&self, key: impl AsRef<[u8]>) -> Result<Option<i64>> {
        let Some(head) = self.look_up_head(key.as_ref())? else { return Ok(None) };
        match head.written_ms {
            Some(written_ms) => Ok(Some(written_ms)),
            None => self.inner().count_failure(Err(not_tracked(self.name()))),
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
        let last_ms = self.inner().clock.now_ms().saturating_sub(max_age_ms).saturating_sub(1);
        if !self.tracks_writes()? {
            return self.inner().count_failure(Err(not_tracked(self.name())));
        }
        let mut swept = 0;
        loop {
            let old = |db: &crate::db::Db, max| self.entries_up_to(db, TimeIndex::Written, last_ms, max);
            if self.inner().with(|db| old(db, 1))?.is_empty() {
                return Ok(swept);
            }
            let step = self.inner().write(|db| {
                let mut live = 0;
                for (written_ms, key) in old(db, KEYS_PER_STEP)? {
                    let head = db.rows().head(self.tables(), &key)?;
                    match head {
                        // The row decides, whatever the index says.
                        Some(head) if head.written_ms == Some(written_ms) => {
                            self.delete_row(db, &key, head)?;
                            live += u64::from(!self.is_expired(head));
                        }
                        // Only in a damaged store: the sweep must not meet this entry for ever.
                        _ => {
                            db.rows().drop_time_entry(self.tables(), TimeIndex::Written, written_ms, &key)?
                        }
                    }
                }
                Ok(live)
            })?;
            swept += step;
            self.inner().counters.deletes.add(step);
        }
    }
}

fn not_tracked(family: &str) -> Error {
    Error::Invalid(format!("family \"{family}\" does not track write times: switch write tracking on first"))
}

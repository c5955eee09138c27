//! Removing what has expired, step by step.

use crate::db::{Db, Engine, Step};
use crate::error::Result;
use crate::expiry;
use crate::family::Family;

/// The most keys one transaction of a purge removes; between two, other writers get their turn.
const KEYS_PER_STEP: usize = 256;

impl Family {
    /// Removes every key of this family that has expired by now; returns how many. The work grows
    /// with that number, not with the size of the family, and is done in transactions of at most 256
    /// keys (or in the open transaction).
    ///
    /// # Errors
    /// See [`Family`]. Steps that were committed before the failure stay done.
    pub fn purge_expired(&self) -> Result<u64> {
        let now_ms = self.inner().clock.now_ms();
        let mut purged = 0;
        loop {
            // Looking first needs no lock on the file when there is nothing to do.
            if self.inner().with(|db| self.expired_entries(db, now_ms, 1))?.is_empty() {
                return Ok(purged);
            }
            let (step, more) = self.inner().write(|db| self.purge_step(db, now_ms))?;
            self.inner().counters.ttl_purged.add(step);
            purged += step;
            if !more {
                return Ok(purged);
            }
        }
    }

    /// Removes the first dead keys; returns how many, and whether there may be more.
    fn purge_step(&self, db: &Db, now_ms: i64) -> Result<(u64, bool)> {
        let entries = self.expired_entries(db, now_ms, KEYS_PER_STEP)?;
        let mut purged = 0;
        for (expire_ms, key) in &entries {
            // The row decides, whatever the index says.
            let head = db.rows().head(self.tables(), key)?;
            let row_expire_ms = head.and_then(|head| head.expire_ms);
            if let Some(head) = head
                && row_expire_ms.is_some_and(|at| expiry::is_expired(at, now_ms))
            {
                self.delete_row(db, key, head)?;
                purged += 1;
            }
            if row_expire_ms != Some(*expire_ms) {
                // Only in a damaged store: the purge must not meet this entry for ever.
                db.rows().drop_expiry_entry(self.tables(), *expire_ms, key)?;
            }
        }
        Ok((purged, entries.len() == KEYS_PER_STEP))
    }

    fn expired_entries(&self, db: &Db, now_ms: i64, max: usize) -> Result<Vec<(i64, Vec<u8>)>> {
        let mut entries = Vec::new();
        db.rows().by_expiry(self.tables(), |expire_ms, key| {
            if !expiry::is_expired(expire_ms, now_ms) {
                return Ok(Step::Stop);
            }
            entries.push((expire_ms, key.to_vec()));
            Ok(if entries.len() < max { Step::Continue } else { Step::Stop })
        })?;
        Ok(entries)
    }
}

//! Uses of keys, for the eviction policy [`LeastUsed`](crate::Eviction::LeastUsed) (ADR 35).
//!
//! A read notes the key in memory. Writes use the notes in two ways:
//!
//! - When a key would be evicted that has been read since its write time, its write time becomes
//!   the time of that read, and the next key is considered. This is the second chance of the CLOCK
//!   algorithm (Corbató, "A Paging Experiment with the Multics System", 1968).
//! - Once a minute, writes store the times of the notes, so that other connections and later
//!   processes know them. Each write stores a few.
//!
//! Notes are hints: they are bounded, and lost when the connection is closed.

use super::connection::Db;
use super::engine::{Engine, Head, Row};
use super::schema::Tables;
use super::use_notes::INTERVAL_MS;
use super::write::Contents;
use crate::clock::Clock;
use crate::error::Result;

/// Maximum number of keys to which one write gives a second chance.
const CHANCES_PER_WRITE: u32 = 64;

impl Db {
    /// Stores some notes before a write, in its transaction, if the policy is `LeastUsed`.
    pub(super) fn store_uses(&self, clock: &Clock) -> Result<()> {
        if !self.quota.notes_uses.get() {
            return Ok(());
        }
        let notes = {
            let mut uses = self.quota.uses.borrow_mut();
            uses.chances = 0;
            uses.next_to_store(clock.now_ms())
        };
        for (family, key, used_ms) in notes {
            if !self.family_exists(&family)? {
                continue;
            }
            let tables = Tables::of(&family);
            let contents = self.contents(&tables, clock);
            let head = contents.rows().head(&tables, &key)?;
            let is_old = |head: &Head| head.written_ms.is_some_and(|at| at <= used_ms - INTERVAL_MS);
            if let Some(head) = head.filter(|head| is_old(head) && !contents.is_expired(*head)) {
                contents.write_use(&key, head, used_ms)?;
            }
        }
        Ok(())
    }
}

impl Contents<'_> {
    /// Notes that a live key was read.
    #[cold]
    pub(super) fn note_use(self, key: &[u8], head: Head) {
        let now_ms = self.clock.now_ms();
        if head.written_ms.is_some_and(|written_ms| written_ms < now_ms) {
            self.db.quota.uses.borrow_mut().note(self.tables.family(), key, now_ms);
        }
    }

    /// Spares a key from eviction if it has been used since its write time, which becomes the time
    /// of that use. Returns `false` if the key may be evicted.
    pub(super) fn spare_if_used(self, key: &[u8]) -> Result<bool> {
        let used_ms = {
            let mut uses = self.db.quota.uses.borrow_mut();
            if uses.chances >= CHANCES_PER_WRITE {
                return Ok(false);
            }
            uses.take(self.tables.family(), key)
        };
        let Some(used_ms) = used_ms else { return Ok(false) };
        match self.rows().head(self.tables, key)? {
            Some(head) if head.written_ms.is_some_and(|at| at < used_ms) => {
                self.db.quota.uses.borrow_mut().chances += 1;
                self.write_use(key, head, used_ms)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Changes the write time of the row of a key to the time of a use.
    fn write_use(self, key: &[u8], head: Head, used_ms: i64) -> Result<()> {
        let inline = match head.blob_id {
            None => self.rows().get(self.tables, key, |row| row.value(<[u8]>::to_vec))?,
            Some(_) => None,
        };
        let new = Head { written_ms: Some(used_ms), ..head };
        self.rows().put(self.tables, key, Row { value: inline.as_deref(), head: new })?;
        self.index(key, Some(head), Some(new))
    }
}

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

use std::collections::HashMap;

use super::connection::Db;
use super::engine::{Engine, Head, Row};
use super::schema::Tables;
use super::write::Contents;
use crate::clock::Clock;
use crate::error::Result;

/// Interval at which notes are stored. A key whose write time is not older is left out, so the
/// write time of a key changes at most once per interval by reads.
const INTERVAL_MS: i64 = 60_000;
/// Maximum number of keys that are noted.
const MOST_KEYS: usize = 4096;
/// Maximum total length of the keys that are noted, in bytes.
const MOST_BYTES: usize = 256 << 10;
/// Maximum number of notes that one write stores.
const STORED_PER_WRITE: usize = 32;
/// Maximum number of keys to which one write gives a second chance.
const CHANCES_PER_WRITE: u32 = 64;

/// Notes of a connection.
#[derive(Default)]
pub(super) struct Uses {
    /// Time of the last use of each key, in milliseconds since the Unix epoch, by family.
    noted: HashMap<String, HashMap<Vec<u8>, i64>>,
    /// Number of keys in `noted`.
    keys: usize,
    /// Total length of the keys in `noted`, in bytes.
    bytes: usize,
    /// Notes that the next writes store: family, key, and time of the use.
    to_store: Vec<(String, Vec<u8>, i64)>,
    /// When notes were last moved to `to_store`.
    moved_ms: i64,
    /// Number of keys to which the current write has given a second chance.
    chances: u32,
}

impl Uses {
    fn note(&mut self, family: &str, key: &[u8], now_ms: i64) {
        if let Some(used_ms) = self.noted.get_mut(family).and_then(|keys| keys.get_mut(key)) {
            *used_ms = now_ms;
            return;
        }
        if self.keys < MOST_KEYS && self.bytes + key.len() <= MOST_BYTES {
            self.keys += 1;
            self.bytes += key.len();
            self.noted.entry(family.to_owned()).or_default().insert(key.to_vec(), now_ms);
        }
    }

    /// Removes the note of a key and returns the time of its last use.
    fn take(&mut self, family: &str, key: &[u8]) -> Option<i64> {
        let used_ms = self.noted.get_mut(family)?.remove(key)?;
        self.keys -= 1;
        self.bytes -= key.len();
        Some(used_ms)
    }

    /// Returns notes for the current write to store. Once per interval, all notes are moved to the
    /// list from which they are taken.
    fn next_to_store(&mut self, now_ms: i64) -> Vec<(String, Vec<u8>, i64)> {
        if self.to_store.is_empty() && !(0..INTERVAL_MS).contains(&now_ms.saturating_sub(self.moved_ms)) {
            self.moved_ms = now_ms;
            (self.keys, self.bytes) = (0, 0);
            for (family, keys) in self.noted.drain() {
                self.to_store.extend(keys.into_iter().map(|(key, used_ms)| (family.clone(), key, used_ms)));
            }
        }
        self.to_store.split_off(self.to_store.len().saturating_sub(STORED_PER_WRITE))
    }
}

impl Db {
    /// Stores some notes before a write of a store with the policy `LeastUsed`, in its transaction.
    pub(super) fn store_uses(&self, clock: &Clock) -> Result<()> {
        let now_ms = clock.now_ms();
        self.quota.uses.borrow_mut().chances = 0;
        let notes = self.quota.uses.borrow_mut().next_to_store(now_ms);
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
        let head = self.rows().head(self.tables, key)?;
        match (head, used_ms) {
            (Some(head), Some(used_ms)) if head.written_ms.is_some_and(|at| at < used_ms) => {
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

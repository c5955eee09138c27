//! The dead rows a handle's reads have met and that are still in the file: which, and until when. They do not count
//! as there for this handle any more; for others they do, until they are removed.

use std::collections::BTreeMap;

use crate::table::{Entry, State, Table};

/// So many rows, or bytes of their keys, are removed without a write.
const ENOUGH_ROWS: usize = 64;
const ENOUGH_BYTES: usize = 64 << 10;
/// The most that are kept in mind while others write.
const MAX_ROWS: usize = 1024;
const MAX_BYTES: usize = 256 << 10;

/// By family and key, with the end of life the row had.
#[derive(Debug, Clone, Default)]
pub struct Met {
    rows: BTreeMap<(&'static str, Vec<u8>), i64>,
    /// How many there were when others were writing.
    stuck_at: usize,
}

impl Met {
    fn bytes(&self) -> usize {
        self.rows.keys().map(|(_, key)| key.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn has_room_for(&self, key: &[u8]) -> bool {
        self.rows.len() < MAX_ROWS && self.bytes() + key.len() <= MAX_BYTES
    }

    pub fn add(&mut self, family: &'static str, key: &[u8], expire_ms: i64) {
        self.rows.insert((family, key.to_vec()), expire_ms);
    }

    pub fn are_enough(&self) -> bool {
        self.rows.len() >= self.stuck_at + ENOUGH_ROWS || self.bytes() >= ENOUGH_BYTES
    }

    pub fn are_stuck(&mut self) {
        self.stuck_at = self.rows.len();
    }

    pub fn are_of(&self, family: &str) -> bool {
        self.rows.keys().any(|(of, _)| *of == family)
    }

    /// Takes those of a family out of it that are the very rows that were met, and dead.
    pub fn remove_from_table(&self, family: &str, table: &mut Table, now_ms: i64) {
        for ((_, key), expire_ms) in self.rows.iter().filter(|((of, _), _)| *of == family) {
            let is_it = |entry: &Entry| entry.expire_ms == Some(*expire_ms) && !entry.is_live(now_ms);
            if table.rows.get(key).is_some_and(is_it) {
                table.rows.remove(key);
            }
        }
    }

    pub fn remove_from(&self, state: &mut State, now_ms: i64) {
        for (family, table) in state {
            self.remove_from_table(family, table, now_ms);
        }
    }
}

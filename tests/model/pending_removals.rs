//! Pending removals: expired rows that the reads of a handle have found and that are still in the file.
//! They no longer count for this handle. For other handles they count until they are removed.

use std::collections::BTreeMap;

use crate::table::{Entry, State, Table};

/// Number of noted rows, or of bytes of their keys, that triggers their removal without a write.
const ENOUGH_ROWS: usize = 64;
const ENOUGH_BYTES: usize = 64 << 10;
/// Maximum number of noted rows while other handles write.
const MAX_ROWS: usize = 1024;
const MAX_BYTES: usize = 256 << 10;

/// Noted rows by family and key, each with its expiry time.
#[derive(Debug, Clone, Default)]
pub struct PendingRemovals {
    rows: BTreeMap<(&'static str, Vec<u8>), i64>,
    /// Number of noted rows when their removal last failed because of another writer.
    stuck_at: usize,
}

impl PendingRemovals {
    fn bytes(&self) -> usize {
        self.rows.keys().map(|(_, key)| key.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn has_space_for(&self, key: &[u8]) -> bool {
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

    /// Removes the noted rows from a family, unless they were replaced or are live.
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

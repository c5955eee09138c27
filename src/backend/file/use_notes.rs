//! Notes of which keys reads have used, for the eviction policy
//! [`LeastUsed`](crate::Eviction::LeastUsed).

use std::collections::HashMap;

/// Interval at which notes are stored. A key whose write time is not older is left out, so the
/// write time of a key changes at most once per interval by reads.
pub(super) const INTERVAL_MS: i64 = 60_000;
/// Maximum number of keys that are noted.
const MOST_KEYS: usize = 4096;
/// Maximum total length of the keys that are noted, in bytes.
const MOST_BYTES: usize = 256 << 10;
/// Maximum number of notes that one write stores.
const STORED_PER_WRITE: usize = 32;

/// Notes of a connection.
#[derive(Default)]
pub(super) struct UseNotes {
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
    pub(super) chances: u32,
}

impl UseNotes {
    pub(super) fn note(&mut self, family: &str, key: &[u8], now_ms: i64) {
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
    pub(super) fn take(&mut self, family: &str, key: &[u8]) -> Option<i64> {
        let used_ms = self.noted.get_mut(family)?.remove(key)?;
        self.keys -= 1;
        self.bytes -= key.len();
        Some(used_ms)
    }

    /// Returns notes for the current write to store. Once per interval, all notes are moved to the
    /// list from which they are taken.
    pub(super) fn next_to_store(&mut self, now_ms: i64) -> Vec<(String, Vec<u8>, i64)> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_bounded_in_number_and_bytes() {
        let mut notes = UseNotes::default();
        for n in 0..2 * MOST_KEYS {
            notes.note("f", &n.to_be_bytes(), 5);
        }
        assert_eq!(notes.keys, MOST_KEYS);
        assert_eq!(notes.take("f", &0_usize.to_be_bytes()), Some(5));
        assert_eq!((notes.keys, notes.bytes), (MOST_KEYS - 1, (MOST_KEYS - 1) * 8));
        let mut notes = UseNotes::default();
        for n in 0..8_u8 {
            notes.note("f", &[n; MOST_BYTES / 4], 5);
        }
        assert_eq!((notes.keys, notes.bytes), (4, MOST_BYTES));
    }

    #[test]
    fn notes_are_given_out_once_per_interval_in_small_parts() {
        let mut notes = UseNotes::default();
        assert!(notes.next_to_store(INTERVAL_MS).is_empty());
        for n in 0..100_u8 {
            notes.note("f", &[n], INTERVAL_MS + 1);
        }
        assert!(notes.next_to_store(2 * INTERVAL_MS - 1).is_empty());
        let sizes: Vec<_> = (0..5).map(|_| notes.next_to_store(2 * INTERVAL_MS).len()).collect();
        assert_eq!(sizes, [32, 32, 32, 4, 0]);
        assert_eq!((notes.keys, notes.bytes), (0, 0));
        notes.note("f", b"a", 5);
        assert_eq!(notes.next_to_store(5).len(), 1, "the clock was set back");
    }
}

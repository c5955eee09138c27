//! Arguments and results of operations on a family.

use std::ops::Bound;

use crate::expiry::Expiry;

/// Result of the lookup of a key. `R` is the data that the lookup returns for a live key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found<R> {
    Live(R),
    /// The key is expired, but its row still exists. The number is its expiry time, in milliseconds
    /// since the Unix epoch. No earlier read has noted the row for removal; a row that is noted
    /// counts as `Missing`.
    Expired(i64),
    Missing,
}

impl<R> Found<R> {
    /// Returns the result for a live key; `None` for a key that is missing or expired.
    #[inline]
    pub(crate) fn live(self) -> Option<R> {
        match self {
            Found::Live(shown) => Some(shown),
            Found::Expired(_) | Found::Missing => None,
        }
    }
}

/// Expiry time and write time of a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) expiry: Expiry,
    /// Write time of the key, in milliseconds since the Unix epoch; `None` in a family without
    /// write tracking.
    pub(crate) written_ms: Option<i64>,
}

/// Result of one step of a purge or of a sweep. A purge removes expired keys; a sweep removes the
/// keys that were last written at a given time or earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Removals {
    /// Number of entries that the step has removed from a time index. It can be 0 although there
    /// were keys to remove, if other clients have removed or locked them first.
    pub(crate) entries: u64,
    /// Number of removed keys that the operation reports to its caller. For a purge: those that no
    /// read had noted as expired before. For a sweep: those that were live.
    pub(crate) counted: u64,
    /// Whether another writer waits for the end of the step. The caller should pause before the next
    /// one (`session/turns.rs`).
    pub(crate) others_wait: bool,
    /// Whether other clients are removing or writing all keys that are left. Only on a server.
    pub(crate) left_to_others: bool,
}

impl Removals {
    /// Result of a step on a server, which skips keys that other clients are removing or writing.
    #[cfg(feature = "remote")]
    pub(crate) fn on_server(entries: u64, counted: u64) -> Removals {
        Removals { entries, counted, others_wait: false, left_to_others: entries == 0 }
    }
}

/// Limits of one step of a purge or of a sweep.
pub(crate) struct StepLimits<'f> {
    /// Maximum number of keys that the whole operation may still remove. One step can remove fewer.
    pub(crate) max: usize,
    /// Whether the operation has a time limit. Then a checkpoint that becomes due is left to the next
    /// write, unless it is overdue.
    pub(crate) has_time_limit: bool,
    /// Returns `false` after the time limit.
    pub(crate) in_time: &'f dyn Fn() -> bool,
    /// Returns `true` while a thread waits for the handle, to use it or to close it.
    pub(crate) waited_for: &'f dyn Fn() -> bool,
}

/// Entry of the expiry index or of the index of write times: the time, in milliseconds since the
/// Unix epoch, and the key.
pub(crate) type TimeEntry = (i64, Vec<u8>);

/// Range of keys that an operation reads or deletes, and the direction in which it visits them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scan<'a> {
    pub(crate) lower: Bound<&'a [u8]>,
    pub(crate) upper: Bound<&'a [u8]>,
    pub(crate) reverse: bool,
}

impl<'a> Scan<'a> {
    /// Returns the bound at which the scan begins.
    pub(crate) fn start(&self) -> Bound<&'a [u8]> {
        if self.reverse { self.upper } else { self.lower }
    }

    /// Returns the part of the scan that comes after `key`, in the direction of the scan.
    pub(crate) fn after(self, key: &'a [u8]) -> Scan<'a> {
        match self.reverse {
            false => Scan { lower: Bound::Excluded(key), ..self },
            true => Scan { upper: Bound::Excluded(key), ..self },
        }
    }

    /// Returns `true` if no key can be between the bounds.
    pub(crate) fn is_empty(&self) -> bool {
        match (self.lower, self.upper) {
            (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
            (
                Bound::Included(lower) | Bound::Excluded(lower),
                Bound::Included(upper) | Bound::Excluded(upper),
            ) => lower >= upper,
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        }
    }
}

//! Arguments and results of operations on a family.

use std::ops::Bound;

use crate::expiry::Expiry;

/// Result of the lookup of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found<R> {
    Live(R),
    /// The row of the key is expired. The value is its `expire_ms`. No earlier read has noted the
    /// row for removal.
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

/// Result of one step of a purge or a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Removals {
    /// Number of entries removed. If it is 0 although keys were due, other clients have removed or
    /// locked these keys.
    pub(crate) entries: u64,
    /// Number of removed keys that is reported to the caller of the operation: the expired keys of
    /// a purge, or the live keys of a sweep.
    pub(crate) counted: u64,
}

/// Entry of a time index: the expiry time or write time, in milliseconds since the Unix epoch, and
/// the key.
pub(crate) type TimeEntry = (i64, Vec<u8>);

/// Range of keys to walk over, and the direction of the walk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scan<'a> {
    pub(crate) lower: Bound<&'a [u8]>,
    pub(crate) upper: Bound<&'a [u8]>,
    pub(crate) reverse: bool,
}

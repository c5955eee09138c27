//! Ranges of keys that a scan has found expired as a whole. A later scan that begins in such a range
//! continues after it, instead of looking at all of its rows again.
//!
//! A range is valid until any connection writes. It is noted while several reads in a row find only
//! expired rows, one range for each direction.

use std::cell::{Cell, RefCell};
use std::ops::Bound;

/// Notes of a connection.
#[derive(Default)]
pub(super) struct ExpiredRanges {
    /// Whether a scan has found many expired rows since the last write of this connection. If not,
    /// there is no range.
    pub(super) in_use: Cell<bool>,
    /// The last range of a forward scan.
    pub(super) forward: RefCell<Option<ExpiredRange>>,
    /// The last range of a reverse scan.
    pub(super) reverse: RefCell<Option<ExpiredRange>>,
}

/// Range of keys whose rows are all expired.
pub(super) struct ExpiredRange {
    pub(super) family: String,
    /// Bound at which the scan began.
    pub(super) from: Bound<Vec<u8>>,
    /// Key of the last row examined, in the direction of the scan. The range includes it.
    pub(super) to: Vec<u8>,
    /// Time at which the rows were expired, in milliseconds since the Unix epoch.
    pub(super) now_ms: i64,
    /// Number that changes with commits of other connections (`Db::commits_of_others`).
    pub(super) version: u32,
}

impl ExpiredRange {
    /// Returns `true` if all rows of the range are expired and unchanged in the open transaction,
    /// in which `commits_of_others` returns `version`.
    pub(super) fn is_valid(&self, family: &str, version: u32, now_ms: i64) -> bool {
        self.family == family && self.version == version && self.now_ms <= now_ms
    }

    /// Returns `true` if this range has all rows from `start` to `self.to`, in the direction of the
    /// scan.
    pub(super) fn has(&self, start: Bound<&[u8]>, reverse: bool) -> bool {
        let comes_before = |a: &[u8], b: &[u8]| if reverse { a > b } else { a < b };
        let begins_in_time = match (&self.from, start) {
            (Bound::Unbounded, _) => true,
            (_, Bound::Unbounded) => false,
            (Bound::Excluded(from), Bound::Included(key)) => comes_before(from, key),
            (Bound::Included(from) | Bound::Excluded(from), Bound::Included(key) | Bound::Excluded(key)) => {
                !comes_before(key, from)
            }
        };
        let ends_in_time = match start {
            Bound::Unbounded => true,
            Bound::Included(key) | Bound::Excluded(key) => !comes_before(&self.to, key),
        };
        begins_in_time && ends_in_time
    }
}

impl ExpiredRanges {
    /// Forgets all ranges. Call this before each write of the connection.
    #[inline]
    pub(super) fn forget(&self) {
        if self.in_use.get() {
            self.in_use.set(false);
            self.forward.take();
            self.reverse.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_has_scans_that_begin_inside_it() {
        use Bound::{Excluded, Included, Unbounded};
        let range = |from: Bound<&[u8]>, to: &[u8]| ExpiredRange {
            family: String::new(),
            from: from.map(<[u8]>::to_vec),
            to: to.to_vec(),
            now_ms: 1,
            version: 1,
        };
        let [a, b, c, d] = [&b"a"[..], b"b", b"c", b"d"];
        for (from, to, reverse, inside, outside) in [
            (Unbounded, c, false, vec![Unbounded, Included(a), Included(c), Excluded(c)], vec![Included(d)]),
            (
                Included(b),
                c,
                false,
                vec![Included(b), Excluded(b), Excluded(c)],
                vec![Unbounded, Excluded(a)],
            ),
            (
                Excluded(b),
                c,
                false,
                vec![Excluded(b), Included(c)],
                vec![Included(b), Included(a), Excluded(d)],
            ),
            (Included(c), b, true, vec![Included(c), Excluded(c), Excluded(b)], vec![Unbounded, Included(d)]),
            (Excluded(c), b, true, vec![Excluded(c), Included(b)], vec![Included(c), Excluded(a)]),
        ] {
            let range = range(from, to);
            assert!(inside.iter().all(|start| range.has(*start, reverse)), "{from:?} {to:?} {inside:?}");
            assert!(!outside.iter().any(|start| range.has(*start, reverse)), "{from:?} {to:?} {outside:?}");
        }
    }
}

//! Ranges of keys.

use std::ops::Bound;

use super::Direction;
use crate::backend::Scan;

/// Range of keys, in byte order, between two bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
}

impl KeyRange {
    /// Returns the range of all keys.
    #[must_use]
    pub fn all() -> KeyRange {
        KeyRange::new(Bound::Unbounded, Bound::Unbounded)
    }

    /// Returns the range between two bounds. It is empty if the lower bound is above the upper one.
    #[must_use]
    pub fn new(lower: Bound<Vec<u8>>, upper: Bound<Vec<u8>>) -> KeyRange {
        KeyRange { lower, upper }
    }

    /// Returns the range of the keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> KeyRange {
        let mut end = prefix.to_vec();
        let upper = loop {
            match end.pop() {
                None => break Bound::Unbounded, // nothing but 0xFF: no key is above them all
                Some(0xFF) => {}
                Some(byte) => {
                    end.push(byte + 1);
                    break Bound::Excluded(end);
                }
            }
        };
        KeyRange::new(Bound::Included(prefix.to_vec()), upper)
    }

    /// Returns the range that contains each key of this range with `prefix` put before it.
    pub(crate) fn within_prefix(&self, prefix: &[u8]) -> KeyRange {
        let whole = KeyRange::prefix(prefix);
        let prefixed = |bound: &Bound<Vec<u8>>, open: Bound<Vec<u8>>| match bound {
            Bound::Included(key) => Bound::Included([prefix, key].concat()),
            Bound::Excluded(key) => Bound::Excluded([prefix, key].concat()),
            Bound::Unbounded => open,
        };
        KeyRange { lower: prefixed(&self.lower, whole.lower), upper: prefixed(&self.upper, whole.upper) }
    }

    /// Returns the lower bound of this range of keys.
    #[must_use]
    pub fn lower(&self) -> Bound<&[u8]> {
        self.lower.as_ref().map(Vec::as_slice)
    }

    /// Returns the upper bound of this range of keys.
    #[must_use]
    pub fn upper(&self) -> Bound<&[u8]> {
        self.upper.as_ref().map(Vec::as_slice)
    }

    /// Returns the key of the lower bound and the key of the upper bound of this range, whether the
    /// range includes them or not; `None` where the range is unbounded.
    pub(crate) fn bounds(&self) -> [Option<&[u8]>; 2] {
        [&self.lower, &self.upper].map(|bound| match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(key.as_slice()),
            Bound::Unbounded => None,
        })
    }

    /// Returns this range with `start` in place of the bound at which a cursor in `direction`
    /// begins: the lower bound if it moves forward, the upper bound if it moves in reverse.
    pub(crate) fn from(mut self, start: Bound<Vec<u8>>, direction: Direction) -> KeyRange {
        match direction {
            Direction::Forward => self.lower = start,
            Direction::Reverse => self.upper = start,
        }
        self
    }

    /// Returns the description of a scan over this range in ascending key order, as the storage
    /// backend takes it.
    pub(crate) fn scan(&self) -> Scan<'_> {
        Scan { lower: self.lower(), upper: self.upper(), reverse: false }
    }

    /// Returns `true` if `key` is in the range.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        let above = match &self.lower {
            Bound::Included(lower) => key >= lower.as_slice(),
            Bound::Excluded(lower) => key > lower.as_slice(),
            Bound::Unbounded => true,
        };
        let below = match &self.upper {
            Bound::Included(upper) => key <= upper.as_slice(),
            Bound::Excluded(upper) => key < upper.as_slice(),
            Bound::Unbounded => true,
        };
        above && below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_range_contains_exactly_matching_keys() {
        for (prefix, inside, outside) in [
            (&b"ab"[..], &[&b"ab"[..], b"ab\0", b"ab\xff\xff"][..], &[&b"aa\xff"[..], b"ac", b"a"][..]),
            (b"a\xff", &[b"a\xff", b"a\xff\xff"], &[b"a", b"b", b"a\xfe\xff"]),
            (b"\xff\xff", &[b"\xff\xff", b"\xff\xff\xff"], &[b"\xff", b"\xff\xfe"]),
        ] {
            let range = KeyRange::prefix(prefix);
            assert!(inside.iter().all(|key| range.contains(key)), "{prefix:?}");
            assert!(!outside.iter().any(|key| range.contains(key)), "{prefix:?}");
        }
    }

    #[test]
    fn range_returns_its_bounds() {
        let range = KeyRange::prefix(b"ab");
        assert_eq!(
            (range.lower(), range.upper()),
            (Bound::Included(&b"ab"[..]), Bound::Excluded(&b"ac"[..]))
        );
        assert_eq!((KeyRange::all().lower(), KeyRange::all().upper()), (Bound::Unbounded, Bound::Unbounded));
    }
}

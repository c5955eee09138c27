//! Ranges of keys.

use std::ops::Bound;

use super::Direction;
use crate::db::Scan;

/// A range of keys, in byte order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
}

impl KeyRange {
    /// All keys.
    #[must_use]
    pub fn all() -> KeyRange {
        KeyRange::new(Bound::Unbounded, Bound::Unbounded)
    }

    /// The keys between two bounds; none, if the lower is above the upper.
    #[must_use]
    pub fn new(lower: Bound<Vec<u8>>, upper: Bound<Vec<u8>>) -> KeyRange {
        KeyRange { lower, upper }
    }

    /// The keys that start with `prefix`.
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

    /// This range of keys, each after a prefix that they all have.
    pub(crate) fn within_prefix(&self, prefix: &[u8]) -> KeyRange {
        let whole = KeyRange::prefix(prefix);
        let prefixed = |bound: &Bound<Vec<u8>>, open: Bound<Vec<u8>>| match bound {
            Bound::Included(key) => Bound::Included([prefix, key].concat()),
            Bound::Excluded(key) => Bound::Excluded([prefix, key].concat()),
            Bound::Unbounded => open,
        };
        KeyRange { lower: prefixed(&self.lower, whole.lower), upper: prefixed(&self.upper, whole.upper) }
    }

    /// Where it begins.
    #[must_use]
    pub fn lower(&self) -> Bound<&[u8]> {
        self.lower.as_ref().map(Vec::as_slice)
    }

    /// Where it ends.
    #[must_use]
    pub fn upper(&self) -> Bound<&[u8]> {
        self.upper.as_ref().map(Vec::as_slice)
    }

    /// The keys at its two ends.
    pub(crate) fn bounds(&self) -> [Option<&[u8]>; 2] {
        [&self.lower, &self.upper].map(|bound| match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(key.as_slice()),
            Bound::Unbounded => None,
        })
    }

    /// The part of this range that a walk in `direction` still has before it at `start`.
    pub(crate) fn from(mut self, start: Bound<Vec<u8>>, direction: Direction) -> KeyRange {
        match direction {
            Direction::Forward => self.lower = start,
            Direction::Reverse => self.upper = start,
        }
        self
    }

    /// The walk over this range from its least key.
    pub(crate) fn scan(&self) -> Scan<'_> {
        Scan { lower: self.lower(), upper: self.upper(), reverse: false }
    }

    /// Whether `key` is in the range.
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
    fn a_prefix_range_has_exactly_the_keys_with_that_prefix() {
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
    fn a_range_says_where_it_begins_and_ends() {
        let range = KeyRange::prefix(b"ab");
        assert_eq!(
            (range.lower(), range.upper()),
            (Bound::Included(&b"ab"[..]), Bound::Excluded(&b"ac"[..]))
        );
        assert_eq!((KeyRange::all().lower(), KeyRange::all().upper()), (Bound::Unbounded, Bound::Unbounded));
    }
}

//! Ordered iteration: order, prefixes, ranges, positions, seeks. Changes during an iteration are
//! tested in `iteration_during_writes.rs`.

use std::ops::Bound;

use crate::common::{fill, forward, keys, memory, numbered, rest, reverse, scan};
use kvstore::{Direction, KeyRange};

// ---- order, prefixes, ranges ---------------------------------------------------------------------

#[test]
fn entries_are_in_byte_order_in_both_directions() {
    let store = memory();
    let mut sorted: Vec<&[u8]> = vec![
        b"b",
        b"a",
        b"a\0",
        b"\0",
        b"\xff",
        b"\xff\xff",
        b"ab",
        b"B",
        b"\x80",
        b"\x7f",
        b"aa\xff",
        b"ab\0",
    ];
    for key in &sorted {
        store.put(key, [b"v", *key].concat()).unwrap();
    }
    sorted.sort_unstable();
    assert_eq!(keys(store.iter()), sorted);
    assert!(store.iter().map(Result::unwrap).all(|(key, value)| value == [b"v", &key[..]].concat()));
    sorted.reverse();
    assert_eq!(keys(store.iter().rev()), sorted);
    assert_eq!(scan(&mut reverse(&store)), sorted);
    assert_eq!(keys(store.iter().rev().rev()).len(), sorted.len());
}

#[test]
fn every_row_is_returned_once_across_chunk_sizes() {
    let store = memory();
    for n in (0..60).chain([110, 111, 112, 113, 496, 497, 1_007, 1_008, 1_009, 2_600]) {
        store.clear().unwrap();
        fill(&store, n);
        let expected: Vec<_> = (0..n).map(numbered).collect();
        assert_eq!(keys(store.iter()), expected, "{n} rows");
        assert_eq!(keys(store.iter().rev()), expected.into_iter().rev().collect::<Vec<_>>(), "{n} rows");
    }
}

#[test]
fn iteration_returns_large_values() {
    let store = memory();
    for n in 0..40 {
        store.put(numbered(n), vec![n as u8; 1 + n * 5_000]).unwrap();
    }
    for (n, entry) in store.iter().enumerate() {
        assert_eq!(entry.unwrap(), (numbered(n), vec![n as u8; 1 + n * 5_000]));
    }
    assert_eq!(store.iter().rev().count(), 40);
}

#[test]
fn prefix_scan_returns_exactly_matching_keys() {
    let store = memory();
    let all: [&[u8]; 12] = [
        b"a",
        b"a\xff",
        b"a\xff\0",
        b"a\xff\xff",
        b"a\xff\xff\x01",
        b"ab",
        b"b",
        b"ba",
        b"\xfe",
        b"\xff",
        b"\xff\xff",
        b"\xff\xff\xff",
    ];
    for key in all {
        store.put(key, "1").unwrap();
    }
    for prefix in
        [&b"a"[..], b"a\xff", b"a\xff\xff", b"b", b"c", b"\xff", b"\xff\xff", b"\xff\xff\xff\xff", b"\0", b""]
    {
        let mut expected: Vec<_> = all.into_iter().filter(|key| key.starts_with(prefix)).collect();
        expected.sort_unstable();
        assert_eq!(keys(store.prefix(prefix)), expected, "{prefix:?}");
        expected.reverse();
        assert_eq!(keys(store.prefix(prefix).rev()), expected, "{prefix:?}");
    }
}

#[test]
fn range_scan_returns_keys_between_bounds() {
    let store = memory();
    for key in ["a", "b", "c", "d"] {
        store.put(key, "1").unwrap();
    }
    assert_eq!(keys(store.range("b".."d")), [b"b", b"c"]);
    assert_eq!(keys(store.range("b"..="d")), [b"b", b"c", b"d"]);
    assert_eq!(keys(store.range(.."c")), [b"a", b"b"]);
    assert_eq!(keys(store.range("bb"..)), [b"c", b"d"]);
    assert_eq!(keys(store.range("b".."d").rev()), [b"c", b"b"]);
    assert_eq!(keys(store.range::<&str>(..)).len(), 4);
    let open = (Bound::Excluded("a"), Bound::Excluded("c"));
    assert_eq!(keys(store.range::<&str>(open)), [b"b"]);
    let empty: [(Bound<&str>, Bound<&str>); 3] = [
        (Bound::Included("d"), Bound::Included("a")),
        (Bound::Excluded("b"), Bound::Excluded("b")),
        (Bound::Included("b"), Bound::Excluded("b")),
    ];
    for bounds in empty {
        assert!(keys(store.range::<&str>(bounds)).is_empty(), "{bounds:?}");
        assert!(keys(store.range::<&str>(bounds).rev()).is_empty(), "{bounds:?}");
    }
}

// ---- positions -----------------------------------------------------------------------------------

#[test]
fn new_cursor_is_invalid_until_moved() {
    let store = memory();
    store.put("a", "1").unwrap();
    let mut cursor = forward(&store);
    assert!(!cursor.is_valid());
    assert_eq!((cursor.key(), cursor.value(), cursor.expiry()), (None, None, None));
    assert!(!cursor.next().unwrap());
    assert!(cursor.first().unwrap());
    assert_eq!(cursor.key(), Some(&b"a"[..]));
    assert_eq!(cursor.direction(), Direction::Forward);
}

#[test]
fn empty_family_has_no_first_entry() {
    let store = memory();
    for mut cursor in [forward(&store), reverse(&store)] {
        assert!(!cursor.first().unwrap());
        assert!(!cursor.seek("a").unwrap());
        assert!(!cursor.next().unwrap());
        assert!(!cursor.is_valid());
    }
}

#[test]
fn cursor_stays_at_end_and_can_restart() {
    let store = memory();
    fill(&store, 3);
    for (mut cursor, first) in [(forward(&store), 0), (reverse(&store), 2)] {
        for _ in 0..2 {
            assert_eq!(scan(&mut cursor).len(), 3);
            assert!(!cursor.next().unwrap() && !cursor.next().unwrap());
            assert!(!cursor.is_valid());
            assert_eq!((cursor.key(), cursor.value()), (None, None));
        }
        assert!(cursor.first().unwrap());
        assert_eq!(cursor.key(), Some(numbered(first).as_slice()));
    }
    let mut iter = store.iter();
    assert_eq!(iter.by_ref().count(), 3);
    store.put("~", "1").unwrap();
    assert!(iter.next().is_none() && iter.next().is_none());
}

#[test]
fn seek_finds_nearest_key_in_cursor_direction() {
    let store = memory();
    for key in ["b", "d", "f"] {
        store.put(key, key).unwrap();
    }
    let (mut up, mut down) = (forward(&store), reverse(&store));
    let after =
        [("a", "b", ""), ("b", "b", "b"), ("c", "d", "b"), ("f", "f", "f"), ("f\0", "", "f"), ("g", "", "f")];
    for _ in 0..3 {
        for (key, at_or_above, at_or_below) in after {
            for (cursor, expected) in [(&mut up, at_or_above), (&mut down, at_or_below)] {
                assert_eq!(cursor.seek(key).unwrap(), !expected.is_empty(), "{key}");
                assert_eq!(cursor.is_valid(), !expected.is_empty());
                assert_eq!(cursor.key().unwrap_or_default(), expected.as_bytes());
                assert_eq!(cursor.value().unwrap_or_default(), expected.as_bytes());
            }
        }
    }
    assert!(up.seek("c").unwrap() && down.seek("e").unwrap());
    assert_eq!(rest(&mut up), [b"f"]);
    assert_eq!(rest(&mut down), [b"b"]);
}

#[test]
fn seek_outside_prefix_ends_cursor_and_inside_resumes_it() {
    let store = memory();
    for key in ["a1", "b1", "b3", "c1"] {
        store.put(key, "1").unwrap();
    }
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut cursor = store.cursor(KeyRange::prefix(b"b"), direction);
        for outside in ["a1", "a", "c", "c1", "\0"] {
            assert!(!cursor.seek(outside).unwrap(), "{outside}");
            assert!(!cursor.is_valid());
            assert!(!cursor.next().unwrap());
        }
        assert!(cursor.seek("b2").unwrap());
        let expected: &[u8] = if direction == Direction::Forward { b"b3" } else { b"b1" };
        assert_eq!(cursor.key(), Some(expected));
        assert!(!cursor.next().unwrap());
    }
}

#[test]
fn seek_works_at_any_distance_in_2000_rows() {
    let store = memory();
    fill(&store, 2_100);
    let (mut up, mut down) = (forward(&store), reverse(&store));
    for n in [0, 1, 15, 16, 17, 600, 1_999, 2_099, 3, 2_050] {
        assert!(up.seek(numbered(n)).unwrap() && down.seek(numbered(n)).unwrap());
        assert_eq!(up.key(), Some(numbered(n).as_slice()));
        assert_eq!(rest(&mut up).len(), 2_099 - n);
        assert_eq!(rest(&mut down).len(), n);
    }
}

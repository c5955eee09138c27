//! The order of expiry: the next expiry, the number of live keys, and the cursor in expiry order.

use std::time::Duration;

use crate::common::{Scratch, TestClock, kind, memory_at, numbered, scan};
use kvstore::{Cursor, Direction, ErrorKind, Expiry, ExpiryCondition, KeyRange};

/// Keys and expiry times of the entries of a cursor.
fn scan_with_expiry(cursor: &mut Cursor) -> Vec<(Vec<u8>, Expiry)> {
    let mut met = Vec::new();
    let mut at_entry = cursor.first().unwrap();
    while at_entry {
        met.push((cursor.key().unwrap().to_vec(), cursor.expiry().unwrap()));
        at_entry = cursor.next().unwrap();
    }
    met
}

// ---- next_expiry, count_live ---------------------------------------------------------------------

#[test]
fn next_expiry_is_earliest_including_expired_rows() {
    let (store, clock) = memory_at(1_000);
    assert_eq!(store.next_expiry().unwrap(), None);
    store.put("permanent", "1").unwrap();
    assert_eq!(store.next_expiry().unwrap(), None);
    for (key, end) in [("b", 3_000), ("a", 5_000), ("c", 2_000), ("d", 2_000)] {
        store.put_with_expiry(key, "1", Expiry::At(end)).unwrap();
    }
    assert_eq!(store.next_expiry().unwrap(), Some(2_000));
    clock.set(2_500);
    assert_eq!(store.next_expiry().unwrap(), Some(2_000));
    store.delete("c").unwrap();
    assert_eq!(store.next_expiry().unwrap(), Some(2_000));
    store.purge_expired().unwrap();
    assert_eq!(store.next_expiry().unwrap(), Some(3_000));
    store.persist("b").unwrap();
    assert_eq!(store.next_expiry().unwrap(), Some(5_000));
    store.put("a", "1").unwrap();
    assert_eq!(store.next_expiry().unwrap(), None);
}

#[test]
fn next_expiry_all_families_is_earliest_of_file() {
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    let (store, other) = (scratch.open_at(&clock), scratch.open_at(&clock));
    assert_eq!(store.next_expiry_all_families().unwrap(), None);
    let a = store.create_family("a").unwrap();
    let b = other.create_family("b").unwrap();
    assert_eq!(store.next_expiry_all_families().unwrap(), None);
    store.put_with_expiry("k", "1", Expiry::At(4_000)).unwrap();
    assert_eq!(store.next_expiry_all_families().unwrap(), Some(4_000));
    b.put_with_expiry("k", "1", Expiry::At(3_000)).unwrap(); // a family this handle has not opened
    assert_eq!(store.next_expiry_all_families().unwrap(), Some(3_000));
    a.put_with_expiry("k", "1", Expiry::At(2_000)).unwrap();
    assert_eq!(store.next_expiry_all_families().unwrap(), Some(2_000));
    assert_eq!(store.next_expiry().unwrap(), Some(4_000));
    assert_eq!(b.next_expiry().unwrap(), Some(3_000));
    drop(a);
    store.drop_family("a").unwrap();
    assert_eq!(store.next_expiry_all_families().unwrap(), Some(3_000));
    store.begin_write().unwrap();
    store.put_with_expiry("k", "1", Expiry::At(1_500)).unwrap();
    assert_eq!(store.next_expiry_all_families().unwrap(), Some(1_500));
    assert_eq!(other.next_expiry_all_families().unwrap(), Some(3_000));
    store.rollback().unwrap();
    assert_eq!(store.next_expiry_all_families().unwrap(), Some(3_000));
}

#[test]
fn count_live_counts_visible_keys() {
    let (store, clock) = memory_at(0);
    assert_eq!(store.count_live().unwrap(), 0);
    for n in 0..600 {
        let value = if n % 7 == 0 { vec![7; 1_000] } else { vec![1] };
        match n % 3 {
            0 => store.put(numbered(n), value).unwrap(),
            _ => store.put_with_expiry(numbered(n), value, Expiry::At(n as i64)).unwrap(),
        }
    }
    for now in [0, 1, 2, 3, 100, 599, 600] {
        clock.set(now);
        let shown = store.iter().count() as u64;
        assert_eq!(store.count_live().unwrap(), shown, "at {now}");
        assert_eq!(store.count().unwrap(), 600);
    }
    assert_eq!(store.count_live().unwrap(), 200);
    store.begin_write().unwrap();
    store.delete(numbered(0)).unwrap(); // live
    store.delete(numbered(1)).unwrap(); // expired
    assert_eq!(store.count_live().unwrap(), 199);
    store.rollback().unwrap();
    store.purge_expired().unwrap();
    assert_eq!((store.count().unwrap(), store.count_live().unwrap()), (200, 200));
}

// ---- the walk in the order of expiry -------------------------------------------------------------

#[test]
fn expiry_cursor_returns_keys_in_order_of_half_open_range() {
    let (store, clock) = memory_at(1_000);
    store.put("permanent", "1").unwrap();
    for (key, end) in [("d", 2_000), ("a", 3_000), ("c", 2_000), ("b", 4_000), ("e", 5_000)] {
        store.put_with_expiry(key, format!("value of {key}"), Expiry::At(end)).unwrap();
    }
    let met = |from, to| {
        let met = scan(&mut store.expiry_cursor(from, to));
        String::from_utf8(met.concat()).unwrap()
    };
    assert_eq!(met(i64::MIN, i64::MAX), "cdabe");
    assert_eq!(met(0, i64::MAX), "cdabe");
    assert_eq!(met(2_000, 5_000), "cdab");
    assert_eq!(met(2_001, 5_001), "abe");
    assert_eq!(met(3_000, 3_001), "a");
    assert_eq!(met(3_000, 3_000), "");
    assert_eq!(met(4_000, 2_000), "");
    assert_eq!(met(5_001, i64::MAX), "");
    clock.set(4_000); // expired rows are shown until they are removed
    assert_eq!(met(0, i64::MAX), "cdabe");
    store.purge_expired().unwrap();
    assert_eq!(met(0, i64::MAX), "e");
}

#[test]
fn expiry_cursor_lists_keys_expiring_at_i64_max() {
    let (store, _clock) = memory_at(1_000);
    store.put_with_ttl("longest", "1", Duration::MAX).unwrap();
    store.put_with_expiry("last", "2", Expiry::At(i64::MAX)).unwrap();
    store.put_with_expiry("before", "3", Expiry::At(i64::MAX - 1)).unwrap();
    store.put("permanent", "4").unwrap();
    let ends = |from, to| scan_with_expiry(&mut store.expiry_cursor(from, to));
    let all = [("before", i64::MAX - 1), ("last", i64::MAX), ("longest", i64::MAX)]
        .map(|(key, end)| (key.as_bytes().to_vec(), Expiry::At(end)));
    assert_eq!(ends(0, i64::MAX), all);
    assert_eq!(ends(i64::MAX, i64::MAX), all[1..]);
    assert_eq!(ends(0, i64::MAX - 1), []);
}

#[test]
fn expiry_cursor_returns_keys_values_and_expiry_times() {
    let (store, _clock) = memory_at(1_000);
    for (key, value, end) in [
        ("a", vec![], 4_000),
        ("b", vec![7; 5_000], 2_000),
        ("c", vec![1; 256], 3_000),
        ("d", vec![2], 2_000),
    ] {
        store.put_with_expiry(key, value, Expiry::At(end)).unwrap();
    }
    let mut cursor = store.expiry_cursor(0, i64::MAX);
    assert!(!cursor.is_valid());
    let mut met = Vec::new();
    let mut at_entry = cursor.first().unwrap();
    while at_entry {
        assert!(cursor.is_valid());
        met.push((cursor.key().unwrap().to_vec(), cursor.value().unwrap().len(), cursor.expiry().unwrap()));
        at_entry = cursor.next().unwrap();
    }
    let expected = [("b", 5_000, 2_000), ("d", 1, 2_000), ("c", 256, 3_000), ("a", 0, 4_000)];
    assert_eq!(met, expected.map(|(key, len, end)| (key.into(), len, Expiry::At(end))));
    assert!(!cursor.is_valid());
    assert!(!cursor.next().unwrap());
    assert_eq!((cursor.key(), cursor.value(), cursor.expiry()), (None, None, None));
    assert_eq!(kind(cursor.seek("a")), ErrorKind::Error);
    assert!(cursor.first().unwrap());
}

#[test]
fn expiry_cursor_skips_and_repeats_nothing_between_chunks() {
    // Many keys may have the same expiry time, so that a boundary can fall between them.
    for ends in [1, 3, 5_000] {
        for size in [1, 300] {
            let what = format!("{ends} expiry times, values of {size} bytes");
            let (store, _clock) = memory_at(0);
            store.begin_write().unwrap();
            let mut expected = Vec::new();
            for n in 0..2_500 {
                let (key, end) = (numbered(n), 10 + (n as i64 * 7_919) % ends);
                store.put_with_expiry(&key, vec![1; size], Expiry::At(end)).unwrap();
                expected.push((end, key));
            }
            store.commit().unwrap();
            expected.sort();
            let expected: Vec<_> = expected.into_iter().map(|(end, key)| (key, Expiry::At(end))).collect();
            let cursor = || store.expiry_cursor(0, i64::MAX);
            assert!(scan_with_expiry(&mut cursor()) == expected, "{what}");
            assert!(scan_with_expiry(&mut cursor().keys_only()) == expected, "{what}, keys only");
        }
    }
}

#[test]
fn expiry_cursor_continues_while_keys_are_removed_or_extended() {
    let (store, _clock) = memory_at(0);
    for n in 0..1_200 {
        store.put_with_expiry(numbered(n), "1", Expiry::At(1_000 + n as i64)).unwrap();
    }
    let mut cursor = store.expiry_cursor(0, 10_000);
    let mut met = 0;
    let mut at_entry = cursor.first().unwrap();
    while at_entry {
        let key = cursor.key().unwrap().to_vec();
        assert_eq!(key, numbered(met));
        match met % 3 {
            0 => assert!(store.delete(&key).unwrap()),
            1 => assert_eq!(
                store.set_expiry(&key, Expiry::At(20_000), ExpiryCondition::Later).unwrap(),
                Some(true)
            ),
            _ => assert_eq!(store.persist(&key).unwrap(), Some(true)),
        }
        met += 1;
        at_entry = cursor.next().unwrap();
    }
    assert_eq!(met, 1_200);
    assert_eq!(scan(&mut store.expiry_cursor(0, 10_000)).len(), 0);
    assert_eq!(scan(&mut store.expiry_cursor(0, 20_001)).len(), 400);
    store.integrity_check().unwrap();
}

#[test]
fn expiry_cursor_returns_key_again_if_moved_ahead() {
    let (store, _clock) = memory_at(0);
    for (key, end) in [("a", 10), ("b", 20), ("c", 30)] {
        store.put_with_expiry(key, "1", Expiry::At(end)).unwrap();
    }
    let mut cursor = store.expiry_cursor(0, 100);
    assert!(cursor.first().unwrap());
    store.set_expiry("a", Expiry::At(25), ExpiryCondition::Always).unwrap();
    let mut met = vec![];
    while cursor.next().unwrap() {
        met.extend_from_slice(cursor.key().unwrap());
    }
    assert_eq!(met, b"bac");
}

#[test]
fn expiry_cursor_sees_own_transaction_or_its_snapshot() {
    let scratch = Scratch::new();
    let clock = TestClock::at(0);
    let (a, b) = (scratch.open_at(&clock), scratch.open_at(&clock));
    a.put_with_expiry("a", "1", Expiry::At(100)).unwrap();
    a.begin_write().unwrap();
    a.put_with_expiry("b", "1", Expiry::At(50)).unwrap();
    assert_eq!(scan(&mut a.expiry_cursor(0, 1_000)), [b"b", b"a"]);
    assert_eq!(scan(&mut b.expiry_cursor(0, 1_000)), [b"a"]);
    a.rollback().unwrap();
    b.begin_read().unwrap();
    a.put_with_expiry("c", "1", Expiry::At(50)).unwrap();
    assert_eq!(scan(&mut a.expiry_cursor(0, 1_000)), [b"c", b"a"]);
    assert_eq!(scan(&mut b.expiry_cursor(0, 1_000)), [b"a"]);
    b.commit().unwrap();
    assert_eq!(scan(&mut b.expiry_cursor(0, 1_000)), [b"c", b"a"]);
}

#[test]
fn every_cursor_returns_expiry_of_its_entry() {
    let (store, _clock) = memory_at(0);
    store.put("a", "1").unwrap();
    store.put_with_expiry("b", "1", Expiry::At(100)).unwrap();
    store.put_with_expiry("c", vec![7; 5_000], Expiry::At(50)).unwrap();
    let expected: Vec<(Vec<u8>, Expiry)> =
        vec![(b"a".into(), Expiry::Never), (b"b".into(), Expiry::At(100)), (b"c".into(), Expiry::At(50))];
    let cursor = |direction| store.cursor(KeyRange::all(), direction);
    assert_eq!(scan_with_expiry(&mut cursor(Direction::Forward)), expected);
    assert_eq!(scan_with_expiry(&mut cursor(Direction::Forward).keys_only()), expected);
    let reverse: Vec<_> = expected.into_iter().rev().collect();
    assert_eq!(scan_with_expiry(&mut cursor(Direction::Reverse)), reverse);
}

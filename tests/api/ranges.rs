//! Row keys (partition and clustering part), ranges of keys, cursors over them, and calls that do
//! not read values.

use std::collections::BTreeMap;
use std::ops::Bound::{self, Excluded, Included, Unbounded};

use crate::common::{self, Scratch, TestClock, kind, memory, memory_at, numbered, python, scan};
use kvstore::{Cursor, Direction, Error, ErrorKind, Expiry, KeyRange, MAX_KEY_SIZE, Store, row_key};

const BOTH: [Direction; 2] = [Direction::Forward, Direction::Reverse];

/// Parts that are easily confused: empty, with the bytes of the escapes, and prefixes of each
/// other.
const PARTS: [&[u8]; 14] = [
    b"",
    b"\0",
    b"\0\0",
    b"\0\x01",
    b"\0\xFE",
    b"\0\xFF",
    b"\x01",
    b"a",
    b"a\0",
    b"a\0\x01",
    b"a\0\xFF",
    b"ab",
    b"\xFF",
    b"\xFF\xFF",
];

fn owned(bound: Bound<&[u8]>) -> Bound<Vec<u8>> {
    bound.map(<[u8]>::to_vec)
}

/// Returns all lower or upper bounds made from `keys`, and the missing bound.
fn bounds<'a>(keys: &[&'a [u8]]) -> Vec<Bound<&'a [u8]>> {
    let made = keys.iter().flat_map(|key| [Included(*key), Excluded(*key)]);
    [Unbounded].into_iter().chain(made).collect()
}

fn is_between(key: &[u8], lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> bool {
    let above = match lower {
        Included(lower) => key >= lower,
        Excluded(lower) => key > lower,
        Unbounded => true,
    };
    let below = match upper {
        Included(upper) => key <= upper,
        Excluded(upper) => key < upper,
        Unbounded => true,
    };
    above && below
}

/// Returns the keys of `all` (sorted) between the bounds, in the order of `direction`.
fn between(all: &[&[u8]], lower: Bound<&[u8]>, upper: Bound<&[u8]>, direction: Direction) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> =
        all.iter().filter(|key| is_between(key, lower, upper)).map(|key| key.to_vec()).collect();
    if direction == Direction::Reverse {
        keys.reverse();
    }
    keys
}

// ---- row keys ------------------------------------------------------------------------------------

#[test]
fn row_keys_sort_by_partition_then_clustering() {
    let mut rows: Vec<(&[u8], &[u8])> =
        PARTS.iter().flat_map(|partition| PARTS.map(|clustering| (*partition, clustering))).collect();
    rows.sort();
    let keys: Vec<Vec<u8>> =
        rows.iter().map(|(partition, clustering)| row_key(partition, clustering).unwrap()).collect();
    assert!(keys.is_sorted_by(|a, b| a < b));
}

#[test]
fn no_partition_is_a_prefix_of_another() {
    for p in PARTS {
        for q in PARTS {
            let (p_key, q_key) = (row_key(p, b"").unwrap(), row_key(q, b"anything").unwrap());
            assert_eq!(q_key.starts_with(&p_key), p == q, "{p:?} {q:?}");
        }
    }
}

#[test]
fn row_key_is_limited_like_key_and_never_empty() {
    let store = memory();
    let longest = row_key(b"p", &[7; MAX_KEY_SIZE - 3]).unwrap();
    assert_eq!(longest.len(), MAX_KEY_SIZE);
    if !common::are_on_a_server() {
        store.put(&longest, "1").unwrap();
    }
    assert_eq!(kind(row_key(b"p", &[7; MAX_KEY_SIZE - 2])), ErrorKind::Error);
    assert_eq!(kind(row_key(&[0; MAX_KEY_SIZE / 2], b"")), ErrorKind::Error);
    store.put(row_key(b"", b"").unwrap(), "2").unwrap();
    assert_eq!(store.get(row_key(b"", b"").unwrap()).unwrap().as_deref(), Some(&b"2"[..]));
}

// ---- row cursors ---------------------------------------------------------------------------------

/// Creates a store with a row for every pair of parts. The value is the pair.
fn rows() -> Store {
    let store = memory();
    store
        .transaction(|tx| {
            for partition in PARTS {
                for clustering in PARTS {
                    tx.put(row_key(partition, clustering)?, [partition, b"|", clustering].concat())?;
                }
            }
            Ok::<_, Error>(())
        })
        .unwrap();
    store
}

fn sorted_parts() -> Vec<&'static [u8]> {
    let mut parts = PARTS.to_vec();
    parts.sort();
    parts
}

#[test]
fn row_cursor_returns_clustering_keys_of_one_partition() {
    let store = rows();
    let parts = sorted_parts();
    for partition in PARTS {
        for direction in BOTH {
            let mut cursor = store.row_cursor(partition, &KeyRange::all(), direction).unwrap();
            assert_eq!(scan(&mut cursor), between(&parts, Unbounded, Unbounded, direction), "{partition:?}");
            assert!(cursor.first().unwrap());
            let clustering = cursor.key().unwrap().to_vec();
            assert_eq!(cursor.value().unwrap(), [partition, b"|", &clustering].concat());
        }
    }
    for absent in [&b"b"[..], b"\0\x02", b"a\0\0"] {
        for direction in BOTH {
            assert!(!store.row_cursor(absent, &KeyRange::all(), direction).unwrap().first().unwrap());
        }
    }
}

#[test]
fn row_cursor_respects_clustering_bounds_in_both_directions() {
    let store = rows();
    let parts = sorted_parts();
    // Bounds that exist as keys, and some that do not.
    let mut ends = parts.clone();
    ends.extend([&b"\0\x02"[..], b"aa", b"\xFF\xFF\xFF"]);
    for partition in [&b""[..], b"\0", b"a", b"\xFF"] {
        for lower in bounds(&ends) {
            for upper in bounds(&ends) {
                let range = KeyRange::new(owned(lower), owned(upper));
                for direction in BOTH {
                    let met = scan(&mut store.row_cursor(partition, &range, direction).unwrap());
                    assert_eq!(
                        met,
                        between(&parts, lower, upper, direction),
                        "{partition:?} {lower:?} {upper:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn row_cursor_seeks_a_clustering_part() {
    let store = rows();
    let parts = sorted_parts();
    let mut sought = parts.clone();
    sought.extend([&b"\0\x02"[..], b"aa", b"b", b"\xFF\xFF\xFF"]);
    for partition in [&b""[..], b"\0", b"a", b"\xFF"] {
        let mut forward = store.row_cursor(partition, &KeyRange::all(), Direction::Forward).unwrap();
        let mut reverse = store.row_cursor(partition, &KeyRange::all(), Direction::Reverse).unwrap();
        for target in &sought {
            let at_or_behind = parts.iter().find(|part| *part >= target);
            assert_eq!(forward.seek(target).unwrap(), at_or_behind.is_some());
            assert_eq!(forward.key(), at_or_behind.copied(), "{partition:?} {target:?}");
            let at_or_before = parts.iter().rev().find(|part| *part <= target);
            assert_eq!(reverse.seek(target).unwrap(), at_or_before.is_some());
            assert_eq!(reverse.key(), at_or_before.copied(), "{partition:?} {target:?}");
        }
    }
    // A seek outside the bounds finds nothing.
    let range = KeyRange::new(Included(b"a".to_vec()), Excluded(b"ab".to_vec()));
    let mut cursor = store.row_cursor(b"a", &range, Direction::Forward).unwrap();
    assert!(!cursor.seek("ab").unwrap());
    assert!(!cursor.seek("A").unwrap());
    assert!(cursor.seek("a").unwrap());
    assert!(cursor.seek("a\0").unwrap());
    assert_eq!(kind(cursor.seek(vec![7; MAX_KEY_SIZE])), ErrorKind::Error);
}

#[test]
fn row_cursor_refuses_too_long_partition_or_bound() {
    let store = memory();
    let fits = vec![7; MAX_KEY_SIZE - 2];
    assert!(store.row_cursor(&fits, &KeyRange::all(), Direction::Forward).is_ok());
    let too_long = vec![7; MAX_KEY_SIZE - 1];
    assert_eq!(kind(store.row_cursor(&too_long, &KeyRange::all(), Direction::Forward)), ErrorKind::Error);
    for bound in [Included(too_long.clone()), Excluded(too_long)] {
        let below = KeyRange::new(Unbounded, bound.clone());
        assert_eq!(kind(store.row_cursor(b"p", &below, Direction::Forward)), ErrorKind::Error);
        let above = KeyRange::new(bound, Unbounded);
        assert_eq!(kind(store.row_cursor(b"p", &above, Direction::Forward)), ErrorKind::Error);
    }
}

#[test]
fn row_disappears_when_its_last_column_expires() {
    let (store, clock) = memory_at(1_000);
    for (column, expiry) in
        [("email", Expiry::At(2_000)), ("name", Expiry::At(3_000)), ("otp", Expiry::At(1_500))]
    {
        store.put_with_expiry(row_key(b"user\0 1", column.as_bytes()).unwrap(), "1", expiry).unwrap();
    }
    store.put(row_key(b"user\0 2", b"name").unwrap(), "1").unwrap();
    let columns = || scan(&mut store.row_cursor(b"user\0 1", &KeyRange::all(), Direction::Forward).unwrap());
    for (now, alive) in [(1_499, 3), (1_500, 2), (2_000, 1), (2_999, 1), (3_000, 0)] {
        clock.set(now);
        assert_eq!(columns().len(), alive, "at {now}");
    }
    assert_eq!(store.purge_expired().unwrap(), 3);
    assert_eq!(store.count().unwrap(), 1);
    store.integrity_check().unwrap();
}

#[test]
fn large_partition_is_scanned_and_deleted_as_range() {
    let store = memory();
    store
        .transaction(|tx| {
            for partition in [&b"p"[..], b"p\0", b"q"] {
                for n in 0..1_500 {
                    tx.put(row_key(partition, &numbered(n))?, vec![7; if n % 9 == 0 { 500 } else { 5 }])?;
                }
            }
            Ok::<_, Error>(())
        })
        .unwrap();
    let all: Vec<Vec<u8>> = (0..1_500).map(numbered).collect();
    for partition in [&b"p"[..], b"p\0", b"q"] {
        let mut cursor = store.row_cursor(partition, &KeyRange::all(), Direction::Forward).unwrap();
        assert_eq!(scan(&mut cursor), all);
    }
    let whole = KeyRange::prefix(&row_key(b"p", b"").unwrap());
    assert_eq!(store.delete_range(&whole).unwrap(), 1_500);
    assert!(!store.row_cursor(b"p", &KeyRange::all(), Direction::Forward).unwrap().first().unwrap());
    assert_eq!(store.count().unwrap(), 3_000);
    store.integrity_check().unwrap();
}

// ---- ranges of keys ------------------------------------------------------------------------------

#[test]
fn range_cursor_respects_bounds_in_both_directions() {
    let store = memory();
    let mut keys = sorted_parts();
    keys.retain(|key| !key.is_empty());
    for key in &keys {
        store.put(key, "1").unwrap();
    }
    let mut ends = keys.clone();
    ends.extend([&b"\0\x02"[..], b"aa", b"\xFF\xFF\xFF"]);
    for lower in bounds(&ends) {
        for upper in bounds(&ends) {
            let range = KeyRange::new(owned(lower), owned(upper));
            for direction in BOTH {
                let met = scan(&mut store.cursor(range.clone(), direction));
                assert_eq!(met, between(&keys, lower, upper, direction), "{lower:?} {upper:?}");
            }
            assert!(keys.iter().all(|key| range.contains(key) == is_between(key, lower, upper)));
        }
    }
}

#[test]
fn range_cursor_seeks_inside_its_range_only() {
    let store = memory();
    for n in 0..100 {
        store.put(numbered(n), "1").unwrap();
    }
    let range = KeyRange::new(Excluded(numbered(10)), Included(numbered(20)));
    let mut forward = store.cursor(range.clone(), Direction::Forward);
    let mut reverse = store.cursor(range, Direction::Reverse);
    for n in [11, 15, 20] {
        assert!(forward.seek(numbered(n)).unwrap());
        assert_eq!(forward.key(), Some(&numbered(n)[..]));
        assert!(reverse.seek(numbered(n)).unwrap());
        assert_eq!(reverse.key(), Some(&numbered(n)[..]));
    }
    for n in [0, 10, 21, 99] {
        assert!(!forward.seek(numbered(n)).unwrap());
        assert!(!forward.is_valid());
        assert!(!reverse.seek(numbered(n)).unwrap());
    }
    // After a seek the walk ends where the range does.
    assert!(forward.seek(numbered(19)).unwrap());
    assert!(forward.next().unwrap());
    assert!(!forward.next().unwrap());
    assert!(reverse.seek(numbered(12)).unwrap());
    assert!(reverse.next().unwrap());
    assert!(!reverse.next().unwrap());
}

// ---- calls that do not read values
// ----------------------------------------------------------------

fn count_valid(cursor: &mut Cursor) -> usize {
    let mut count = 0;
    let mut at_entry = cursor.first().unwrap();
    while at_entry {
        assert_eq!(cursor.value(), None);
        count += 1;
        at_entry = cursor.next().unwrap();
    }
    count
}

#[test]
fn keys_only_cursor_does_not_read_large_values() {
    if common::is_of_a_file("another program looks at the file") {
        return;
    }
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    let store = scratch.open_at(&clock);
    store.begin_write().unwrap();
    for n in 0..1_100 {
        store.put_with_expiry(row_key(b"p", &numbered(n)).unwrap(), vec![7; 300], Expiry::At(5_000)).unwrap();
    }
    store.commit().unwrap();
    // Delete the values without the store: a call that reads one fails.
    python(&scratch.path(), "con.execute('DELETE FROM \"blob:default\"')");
    let all = KeyRange::all;
    for direction in BOTH {
        assert_eq!(kind(store.cursor(all(), direction).first()), ErrorKind::Corrupt);
        let mut cursor = store.cursor(all(), direction).keys_only();
        assert!(cursor.is_keys_only());
        assert_eq!(count_valid(&mut cursor), 1_100);
        let mut cursor = store.row_cursor(b"p", &all(), direction).unwrap().keys_only();
        assert_eq!(count_valid(&mut cursor), 1_100);
        assert!(cursor.seek(numbered(700)).unwrap());
        assert_eq!(cursor.key(), Some(&numbered(700)[..]));
        assert_eq!(cursor.expiry(), Some(Expiry::At(5_000)));
    }
    assert_eq!(kind(store.expiry_cursor(0, i64::MAX).first()), ErrorKind::Corrupt);
    assert_eq!(count_valid(&mut store.expiry_cursor(0, i64::MAX).keys_only()), 1_100);
}

#[test]
fn keys_only_cursor_hides_expired_keys() {
    let (store, clock) = memory_at(1_000);
    for n in 0..50 {
        store.put_with_expiry(numbered(n), vec![7; 300], Expiry::At(2_000 + n as i64)).unwrap();
    }
    clock.set(2_020);
    for direction in BOTH {
        assert_eq!(count_valid(&mut store.cursor(KeyRange::all(), direction).keys_only()), 29);
    }
    assert_eq!(store.count().unwrap(), 50);
}

// ---- delete_range --------------------------------------------------------------------------------

#[test]
fn delete_range_removes_exactly_keys_in_range() {
    let mut keys = sorted_parts();
    keys.retain(|key| !key.is_empty());
    for lower in bounds(&keys) {
        for upper in bounds(&keys) {
            let (store, _clock) = memory_at(1_000);
            store.begin_write().unwrap();
            for key in &keys {
                store.put_with_expiry(key, vec![7; 400], Expiry::At(5_000)).unwrap();
            }
            let gone = between(&keys, lower, upper, Direction::Forward);
            let range = KeyRange::new(owned(lower), owned(upper));
            assert_eq!(store.delete_range(&range).unwrap(), gone.len() as u64);
            store.commit().unwrap();
            let left = scan(&mut store.cursor(KeyRange::all(), Direction::Forward));
            let expected: Vec<_> =
                keys.iter().filter(|key| !is_between(key, lower, upper)).map(|key| key.to_vec()).collect();
            assert_eq!(left, expected);
            assert_eq!(store.count().unwrap(), left.len() as u64);
            store.integrity_check().unwrap();
        }
    }
}

#[test]
fn delete_range_counts_live_keys_and_removes_expired_too() {
    let (store, clock) = memory_at(1_000);
    store.set_write_tracking(true).unwrap();
    store.begin_write().unwrap();
    for n in 0..3_000 {
        let expiry = if n % 3 == 0 { Expiry::At(2_000) } else { Expiry::Never };
        store.put_with_expiry(numbered(n), vec![7; if n % 100 == 0 { 400 } else { 4 }], expiry).unwrap();
    }
    store.commit().unwrap();
    clock.set(2_000);
    let range = KeyRange::new(Included(numbered(0)), Excluded(numbered(2_700)));
    store.reset_stats().unwrap();
    assert_eq!(store.delete_range(&range).unwrap(), 1_800);
    let stats = store.stats().unwrap();
    assert_eq!((stats.deletes, stats.wal_commits), (1_800, 1));
    assert_eq!((store.count().unwrap(), store.count_live().unwrap()), (300, 200));
    store.integrity_check().unwrap();
    assert_eq!(store.delete_range(&range).unwrap(), 0);
    assert_eq!(store.delete_range(&KeyRange::all()).unwrap(), 200);
    assert_eq!(store.count().unwrap(), 0);
    store.integrity_check().unwrap();
}

#[test]
fn rollback_undoes_delete_range() {
    let scratch = Scratch::new();
    let (store, other) = (scratch.open(), scratch.open());
    for n in 0..50 {
        store.put(numbered(n), vec![7; 400]).unwrap();
    }
    store.begin_write().unwrap();
    assert_eq!(store.delete_range(&KeyRange::all()).unwrap(), 50);
    assert_eq!((store.count().unwrap(), other.count().unwrap()), (0, 50));
    assert_eq!(kind(other.delete_range(&KeyRange::all())), ErrorKind::Busy);
    store.rollback().unwrap();
    assert_eq!(store.get(numbered(7)).unwrap(), Some(vec![7; 400]));
    store.integrity_check().unwrap();
    store.begin_read().unwrap();
    assert_eq!(kind(store.delete_range(&KeyRange::all())), ErrorKind::ReadOnly);
    store.commit().unwrap();
    assert_eq!(store.count().unwrap(), 50);
}

// ---- get_many ------------------------------------------------------------------------------------

#[test]
fn get_many_returns_results_in_key_order() {
    let (store, clock) = memory_at(1_000);
    store.put("small", "1").unwrap();
    store.put("empty", "").unwrap();
    store.put("large", vec![7; 5_000]).unwrap();
    store.put_with_expiry("expired", "1", Expiry::At(2_000)).unwrap();
    clock.set(2_000);
    store.reset_stats().unwrap();
    let values = store.get_many(["large", "missing", "small", "expired", "empty", "small"]).unwrap();
    let expected = [Some(vec![7; 5_000]), None, Some(b"1".to_vec()), None, Some(vec![]), Some(b"1".to_vec())];
    assert_eq!(values, expected);
    let stats = store.stats().unwrap();
    assert_eq!((stats.gets, stats.bytes_read, stats.ttl_expired), (4, 5_002, 1));
    assert_eq!(store.get_many([b""; 0]).unwrap(), []);
    assert_eq!(kind(store.get_many(["small", ""])), ErrorKind::Error);
}

#[test]
fn get_many_reads_one_snapshot_despite_concurrent_commit() {
    let scratch = Scratch::new();
    let (reader, writer) = (scratch.open(), scratch.open());
    let keys = ["a", "b", "c"];
    for in_transaction in [false, true] {
        for key in keys {
            writer.put(key, vec![1; 400]).unwrap();
        }
        if in_transaction {
            reader.begin_read().unwrap();
        }
        let mut values = BTreeMap::new();
        reader
            .get_many_with(keys, |number, value| {
                values.insert(number, value.map(<[u8]>::to_vec));
                writer.put("b", vec![2; 400]).unwrap();
                writer.delete("c").unwrap();
            })
            .unwrap();
        assert_eq!(values, (0..3).map(|number| (number, Some(vec![1; 400]))).collect());
        if in_transaction {
            reader.commit().unwrap();
        }
        assert_eq!(reader.get_many(keys).unwrap(), [Some(vec![1; 400]), Some(vec![2; 400]), None]);
    }
}

#[test]
fn get_many_sees_writes_of_own_transaction() {
    let store = memory();
    store.put("a", "1").unwrap();
    store.begin_write().unwrap();
    store.put("a", "2").unwrap();
    store.put("b", "3").unwrap();
    assert_eq!(store.get_many(["a", "b"]).unwrap(), [Some(b"2".to_vec()), Some(b"3".to_vec())]);
    store.rollback().unwrap();
    assert_eq!(store.get_many(["a", "b"]).unwrap(), [Some(b"1".to_vec()), None]);
}

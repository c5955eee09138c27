//! Effect of writes, transactions and the clock on an iterator in progress.

use crate::common::{
    self, Scratch, fill, forward, keys, kind, memory, memory_at, numbered, pair_in_delete_mode, rest,
    reverse, shut_out,
};
use kvstore::{CheckpointMode, Cursor, Direction, ErrorKind, Expiry, KeyRange, row_key};

/// Far in the future, for the wall clock, too.
const LATER: i64 = 4_000_000_000_000;

// ---- writes meanwhile ----------------------------------------------------------------------------

#[test]
fn cursor_sees_own_changes_ahead_at_every_distance() {
    for at in [0, 5, 14, 15, 16, 17, 46, 47, 48, 49] {
        let store = memory();
        fill(&store, 60);
        let mut cursor = forward(&store);
        cursor.first().unwrap();
        for _ in 0..at {
            assert!(cursor.next().unwrap());
        }
        store.delete(numbered(at + 1)).unwrap();
        store.put(numbered(at + 2), "new").unwrap();
        store.put([numbered(at + 2), b"x".to_vec()].concat(), "new").unwrap();
        store.put(numbered(0), "passed, or the current one").unwrap();
        assert_eq!(cursor.key(), Some(numbered(at).as_slice()));
        assert_eq!(cursor.value(), Some(&at.to_be_bytes()[..]));
        assert!(cursor.next().unwrap());
        assert_eq!(cursor.key(), Some(numbered(at + 2).as_slice()));
        assert_eq!(cursor.value(), Some(&b"new"[..]));
        assert!(cursor.next().unwrap());
        assert_eq!(cursor.key(), Some([numbered(at + 2), b"x".to_vec()].concat().as_slice()));
        assert_eq!(rest(&mut cursor).len(), 60 - at - 3);
    }
}

#[test]
fn reverse_cursor_sees_own_changes_ahead() {
    let store = memory();
    fill(&store, 100);
    let mut cursor = reverse(&store);
    assert!(cursor.first().unwrap());
    for n in (0..99).rev() {
        assert!(store.delete(cursor.key().unwrap()).unwrap());
        if n % 10 == 5 {
            store.put([numbered(n), b"x".to_vec()].concat(), "1").unwrap();
            assert!(cursor.next().unwrap());
        }
        assert!(cursor.next().unwrap());
        assert_eq!(cursor.key(), Some(numbered(n).as_slice()));
    }
    assert!(!cursor.next().unwrap());
    assert_eq!(store.count().unwrap(), 11);
}

#[test]
fn cursor_at_last_entry_sees_key_put_after_it() {
    let store = memory();
    fill(&store, 1);
    let mut cursor = forward(&store);
    assert!(cursor.first().unwrap());
    for n in 1..100 {
        store.put(numbered(n), "1").unwrap();
        assert!(cursor.next().unwrap());
        assert_eq!(cursor.key(), Some(numbered(n).as_slice()));
    }
    assert!(!cursor.next().unwrap());
}

#[test]
fn clear_ends_cursors_of_family() {
    let store = memory();
    fill(&store, 100);
    let (mut up, mut down) = (forward(&store), reverse(&store));
    assert!(up.first().unwrap() && down.first().unwrap());
    store.clear().unwrap();
    assert!(!up.next().unwrap() && !down.next().unwrap());
}

#[test]
fn cursor_continues_in_restored_state_after_rollback() {
    let store = memory();
    fill(&store, 100);
    store.begin_write().unwrap();
    store.put([numbered(0), b"x".to_vec()].concat(), "1").unwrap();
    for n in 50..80 {
        store.delete(numbered(n)).unwrap();
    }
    let (mut up, mut down) = (forward(&store), reverse(&store));
    assert!(up.first().unwrap() && down.first().unwrap());
    assert!(up.next().unwrap());
    assert_eq!(up.key(), Some([numbered(0), b"x".to_vec()].concat().as_slice()));
    store.rollback().unwrap();
    assert_eq!(rest(&mut up), (1..100).map(numbered).collect::<Vec<_>>());
    assert_eq!(rest(&mut down).len(), 99);
}

#[test]
fn cursor_is_unaffected_by_begin_and_commit() {
    let store = memory();
    fill(&store, 200);
    let mut cursor = forward(&store);
    assert!(cursor.first().unwrap());
    for n in 1..200 {
        match n % 4 {
            1 => common::begin(&store, n % 8 == 1).unwrap(),
            3 => store.commit().unwrap(),
            _ => {}
        }
        assert!(cursor.next().unwrap());
        assert_eq!(cursor.key(), Some(numbered(n).as_slice()));
    }
}

#[test]
fn cursor_sees_commits_of_other_handle_far_ahead() {
    let scratch = Scratch::new();
    let (store, other) = (scratch.open(), scratch.open());
    fill(&store, 2_100);
    let mut cursor = forward(&store);
    assert!(cursor.first().unwrap());
    other.delete(numbered(2_000)).unwrap();
    other.put(numbered(2_200), "1").unwrap();
    let rest = rest(&mut cursor);
    assert_eq!(rest.len(), 2_099);
    assert!(!rest.contains(&numbered(2_000)) && rest.contains(&numbered(2_200)));
}

#[test]
fn iterator_in_read_transaction_is_snapshot() {
    let scratch = Scratch::new();
    let (store, other) = (scratch.open(), scratch.open());
    fill(&store, 2_100);
    store.begin_read().unwrap();
    let mut iter = store.iter();
    iter.next();
    other.clear().unwrap();
    other.put("other", "1").unwrap();
    assert_eq!(iter.count(), 2_099);
    assert_eq!(store.iter().count(), 2_100);
    store.commit().unwrap();
    assert_eq!(keys(store.iter()), [b"other"]);
}

#[test]
fn idle_iterator_holds_no_lock_or_snapshot() {
    if common::is_of_a_file("it looks at the WAL") {
        return;
    }
    let scratch = Scratch::new();
    let (store, other) = (scratch.open(), scratch.open());
    fill(&store, 2_100);
    let mut cursor = forward(&store);
    assert!(cursor.first().unwrap() && cursor.next().unwrap());
    other.put("other", "1").unwrap();
    let (log, done) = other.checkpoint(CheckpointMode::Truncate).unwrap();
    assert_eq!(log, done);
    assert_eq!(std::fs::metadata(scratch.wal()).unwrap().len(), 0);
    store.begin_write().unwrap();
    store.commit().unwrap();
    store.incremental_vacuum(None).unwrap();
    assert!(cursor.next().unwrap());
}

#[test]
fn cursor_continues_after_last_entry_when_move_failed() {
    let small_cache = common::without_wait().cache_pages(10);
    let Some((_scratch, store, other)) = pair_in_delete_mode(&small_cache) else { return };
    fill(&store, 400);
    let (mut up, mut down, mut fresh) = (forward(&store), reverse(&store), forward(&store));
    let (mut up_seen, mut down_seen) = (Vec::new(), Vec::new());
    assert!(up.first().unwrap() && down.first().unwrap());
    other.begin_write().unwrap();
    // More than its cache holds, so that it writes to the file and locks out readers.
    (0..50).for_each(|n| other.put(numbered(n), vec![1; 20_000]).unwrap());
    for (cursor, seen) in [(&mut up, &mut up_seen), (&mut down, &mut down_seen)] {
        let failed = loop {
            seen.push(cursor.key().unwrap().to_vec());
            match cursor.next() {
                Ok(moved) => assert!(moved),
                Err(e) => break e,
            }
        };
        assert_eq!(failed.kind(), ErrorKind::Busy);
        assert!(!cursor.is_valid());
        assert_eq!(kind(cursor.next()), ErrorKind::Busy);
    }
    assert_eq!(kind(fresh.first()), ErrorKind::Busy);
    other.rollback().unwrap();
    assert_eq!([up_seen, rest(&mut up)].concat(), (0..400).map(numbered).collect::<Vec<_>>());
    assert_eq!([down_seen, rest(&mut down)].concat(), (0..400).rev().map(numbered).collect::<Vec<_>>());
    assert_eq!(rest(&mut fresh).len(), 400);
}

#[test]
fn cursor_continues_after_last_entry_when_seek_failed() {
    let small_cache = common::without_wait().cache_pages(10);
    let Some((_scratch, store, other)) = pair_in_delete_mode(&small_cache) else { return };
    store
        .transaction(|tx| {
            (0..100).try_for_each(|n| {
                tx.put_with_expiry(row_key(b"p", &numbered(n))?, "1", Expiry::At(LATER + n as i64))?;
                tx.put(numbered(n), "1")
            })
        })
        .unwrap();
    let rows = |direction| store.row_cursor(b"p", &KeyRange::all(), direction).unwrap();
    let up = || (0..100).map(numbered);
    let down = || (0..100).rev().map(numbered);
    let walks: [(Cursor, Vec<Vec<u8>>); 4] = [
        (store.cursor(KeyRange::prefix(b"key"), Direction::Forward), up().collect()),
        (store.cursor(KeyRange::prefix(b"key"), Direction::Reverse), down().collect()),
        (rows(Direction::Forward), up().collect()),
        (rows(Direction::Reverse), down().collect()),
    ];
    for (mut cursor, keys) in walks {
        for seen in [1, 10, 32] {
            assert!(cursor.first().unwrap());
            (1..seen).for_each(|_| assert!(cursor.next().unwrap()));
            shut_out(&other);
            for _ in 0..2 {
                assert_eq!(kind(cursor.seek(numbered(50))), ErrorKind::Busy);
                assert!(!cursor.is_valid());
            }
            assert_eq!(kind(cursor.first()), ErrorKind::Busy);
            other.rollback().unwrap();
            assert_eq!(rest(&mut cursor), &keys[seen..], "{cursor:?} after {seen}");
            // An iterator at the end stays there, also when a seek fails.
            shut_out(&other);
            assert_eq!(kind(cursor.seek(numbered(50))), ErrorKind::Busy);
            assert!(!cursor.next().unwrap());
            other.rollback().unwrap();
            assert!(!cursor.next().unwrap());
        }
        // A cursor at no entry stays there, too: a new one, or one after a seek outside its range.
        let mut nowhere = store.cursor(KeyRange::prefix(b"key"), cursor.direction());
        for _ in ["new", "outside"] {
            shut_out(&other);
            assert_eq!(kind(nowhere.seek(numbered(50))), ErrorKind::Busy);
            other.rollback().unwrap();
            assert!(!nowhere.next().unwrap());
            assert!(nowhere.seek(numbered(50)).unwrap());
            assert!(!nowhere.seek("z").unwrap());
        }
        let mut fresh = store.cursor(KeyRange::prefix(b"key"), cursor.direction());
        shut_out(&other);
        assert_eq!(kind(fresh.first()), ErrorKind::Busy);
        assert_eq!(kind(fresh.seek(numbered(50))), ErrorKind::Busy);
        other.rollback().unwrap();
        assert_eq!(rest(&mut fresh).len(), 100);
    }
    let mut expiring = store.expiry_cursor(0, i64::MAX);
    assert!(expiring.first().unwrap() && expiring.next().unwrap());
    shut_out(&other);
    assert_eq!(kind(expiring.first()), ErrorKind::Busy);
    other.rollback().unwrap();
    assert_eq!(rest(&mut expiring).len(), 98);
}

#[test]
fn seek_with_invalid_key_length_keeps_position() {
    let store = memory();
    fill(&store, 3);
    let mut cursor = forward(&store);
    assert!(cursor.first().unwrap());
    assert_eq!(kind(cursor.seek("")), ErrorKind::Error);
    assert_eq!(cursor.key(), Some(numbered(0).as_slice()));
    assert_eq!(rest(&mut cursor), [numbered(1), numbered(2)]);
}

#[test]
fn iterator_outlives_family_handle_and_ends_with_store() {
    let store = memory();
    let family = store.create_family("f").unwrap();
    for n in 0..100 {
        family.put(numbered(n), "1").unwrap();
    }
    let (mut iter, mut cursor) = (family.iter(), family.cursor(KeyRange::all(), Direction::Reverse));
    drop(family);
    assert!(iter.next().unwrap().is_ok() && cursor.first().unwrap());
    store.close().unwrap();
    assert_eq!(kind(iter.next().unwrap()), ErrorKind::Misuse);
    assert!(iter.next().is_none());
    assert_eq!(kind(cursor.next()), ErrorKind::Misuse);
    assert!(!cursor.is_valid());
}

// ---- expired rows ----------------------------------------------------------------------------

#[test]
fn iteration_skips_thousands_of_expired_rows_without_removal() {
    let (store, clock) = memory_at(1_000);
    store.begin_write().unwrap();
    for n in 0..10_000 {
        store.put_with_expiry(numbered(n), "1", Expiry::At(2_000)).unwrap();
    }
    store.put("l live", "1").unwrap();
    for n in 0..9_000 {
        store.put_with_expiry([b"z".to_vec(), numbered(n)].concat(), "1", Expiry::At(2_000)).unwrap();
    }
    store.commit().unwrap();
    clock.set(2_000);
    assert_eq!(keys(store.iter()), [b"l live"]);
    assert_eq!(keys(store.iter().rev()), [b"l live"]);
    assert!(keys(store.prefix("key")).is_empty());
    assert!(keys(store.prefix("z").rev()).is_empty());
    let (mut up, mut down) = (forward(&store), reverse(&store));
    assert!(up.seek("a").unwrap() && down.seek("z~").unwrap());
    assert_eq!((up.key(), down.key()), (Some(&b"l live"[..]), Some(&b"l live"[..])));
    assert!(!up.next().unwrap() && !down.next().unwrap());
    assert_eq!(store.count().unwrap(), 19_001);
}

#[test]
fn expired_rows_filling_one_chunk_do_not_end_iteration() {
    let (store, clock) = memory_at(1_000);
    for dead in [4_095, 4_096, 4_097, 8_192] {
        store.begin_write().unwrap();
        for n in 0..dead {
            store.put_with_expiry(numbered(n), "1", Expiry::At(clock.now() + 1)).unwrap();
        }
        store.put("z", "1").unwrap();
        store.commit().unwrap();
        clock.set(clock.now() + 1);
        assert_eq!(keys(store.iter()), [b"z"], "{dead} expired rows");
        store.clear().unwrap();
    }
}

#[test]
fn prefetched_entry_that_expires_is_not_returned() {
    for (mut cursor, store, clock, key) in [Direction::Forward, Direction::Reverse].map(|direction| {
        let (store, clock) = memory_at(1_000);
        for n in 0..10 {
            store.put_with_expiry(numbered(n), "1", Expiry::At(2_000 + n as i64)).unwrap();
        }
        let key: fn(usize) -> Vec<u8> =
            if direction == Direction::Forward { numbered } else { |n| numbered(9 - n) };
        (store.cursor(KeyRange::all(), direction), store, clock, key)
    }) {
        assert!(cursor.first().unwrap());
        assert_eq!(cursor.key(), Some(key(0).as_slice()));
        clock.set(2_004);
        let live: Vec<_> = (1..10).map(key).filter(|key| *key > numbered(4)).collect();
        assert_eq!(rest(&mut cursor), live);
        assert_eq!(store.count().unwrap(), 10);
    }
}

#[test]
fn cursor_returns_expiry_of_its_entry() {
    let (store, _clock) = memory_at(1_000);
    store.put("a", "1").unwrap();
    store.put_with_expiry("b", "1", Expiry::At(2_000)).unwrap();
    let mut cursor = forward(&store);
    assert!(cursor.first().unwrap());
    assert_eq!(cursor.expiry(), Some(Expiry::Never));
    assert!(cursor.next().unwrap());
    assert_eq!(cursor.expiry(), Some(Expiry::At(2_000)));
}

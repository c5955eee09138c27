//! Batches: several writes, also to several families, are applied together or not at all.

use std::time::Duration;

use crate::common::{self, Scratch, TestClock, keys, kind, memory, memory_at, numbered};
use kvstore::{Config, ErrorKind, Expiry, MAX_KEY_SIZE, Store};

#[test]
fn commit_applies_writes_in_order_and_empties_batch() {
    let (store, _clock) = memory_at(1_000);
    let family = store.create_family("f").unwrap();
    store.put("gone", vec![7; 5_000]).unwrap();
    let mut batch = store.batch();
    assert!(batch.is_empty());
    batch.put(&store, "a", "1", Expiry::Never).unwrap();
    batch.put(&store, "a", vec![2; 5_000], Expiry::At(5_000)).unwrap();
    batch.put(&family, "a", "3", Expiry::At(6_000)).unwrap();
    batch.delete(&store, "gone").unwrap();
    batch.delete(&store, "missing").unwrap();
    batch.put(&family, "b", "4", Expiry::Never).unwrap();
    batch.delete(&family, "b").unwrap();
    assert_eq!(batch.len(), 7);
    assert_eq!(store.get("a").unwrap(), None); // nothing before the commit
    batch.commit().unwrap();
    assert!(batch.is_empty());
    assert_eq!(store.get("a").unwrap(), Some(vec![2; 5_000]));
    assert_eq!(store.expiry("a").unwrap(), Some(Expiry::At(5_000)));
    assert_eq!(family.expiry("a").unwrap(), Some(Expiry::At(6_000)));
    assert_eq!((store.count().unwrap(), family.count().unwrap()), (1, 1));
    store.integrity_check().unwrap();
    batch.commit().unwrap(); // an empty one does nothing
    assert_eq!(store.count().unwrap(), 1);
}

#[test]
fn batch_copies_its_arguments_and_is_reusable() {
    let store = memory();
    let mut batch = store.batch();
    for round in 0..3 {
        for n in 0..1_000 {
            let mut key = numbered(n);
            let mut value = vec![round; if n % 10 == 0 { 700 } else { 7 }];
            batch.put(&store, &key, &value, Expiry::Never).unwrap();
            key.fill(0);
            value.fill(99);
        }
        batch.commit().unwrap();
        for n in [0, 1, 999] {
            assert_eq!(store.get(numbered(n)).unwrap().unwrap()[0], round);
        }
    }
    assert_eq!(store.count().unwrap(), 1_000);
    store.integrity_check().unwrap();
}

#[test]
fn cleared_or_dropped_batch_writes_nothing() {
    let store = memory();
    let mut batch = store.batch();
    batch.put(&store, "a", "1", Expiry::Never).unwrap();
    batch.clear();
    assert_eq!(batch.len(), 0);
    batch.commit().unwrap();
    batch.put(&store, "b", "1", Expiry::Never).unwrap();
    drop(batch);
    assert_eq!(store.count().unwrap(), 0);
}

#[test]
fn batch_commits_as_one_transaction() {
    let scratch = Scratch::new();
    let (store, other) = (scratch.open(), scratch.open());
    let mut batch = store.batch();
    for n in 0..2_000 {
        batch.put(&store, numbered(n), vec![7; 300], Expiry::Never).unwrap();
    }
    store.reset_stats().unwrap();
    batch.commit().unwrap();
    let stats = store.stats().unwrap();
    assert_eq!((stats.wal_commits, stats.puts), (1, 2_000));
    assert_eq!(stats.bytes_written, 2_000 * (numbered(0).len() as u64 + 300));
    assert_eq!(other.count().unwrap(), 2_000);

    store.begin_write().unwrap();
    for n in 0..2_000 {
        batch.delete(&store, numbered(n)).unwrap();
    }
    batch.commit().unwrap();
    assert!(batch.is_empty());
    assert_eq!((store.count().unwrap(), other.count().unwrap()), (0, 2_000));
    store.rollback().unwrap();
    assert_eq!(store.count().unwrap(), 2_000);
    store.integrity_check().unwrap();
}

#[test]
fn batch_expiry_overrides_default_ttl_and_past_one_hides_key() {
    let (store, _clock) = memory_at(1_000);
    store.set_default_ttl(Some(Duration::from_millis(500))).unwrap();
    let mut batch = store.batch();
    batch.put(&store, "never", "1", Expiry::Never).unwrap();
    batch.put(&store, "default", "1", None).unwrap();
    batch.put(&store, "given", "1", Expiry::At(9_000)).unwrap();
    batch.put(&store, "past", "1", Expiry::At(999)).unwrap();
    batch.commit().unwrap();
    assert_eq!(store.expiry("never").unwrap(), Some(Expiry::Never));
    assert_eq!(store.expiry("given").unwrap(), Some(Expiry::At(9_000)));
    assert_eq!(store.expiry("default").unwrap(), Some(Expiry::At(1_500)));
    assert_eq!(keys(store.iter()), [&b"default"[..], b"given", b"never"]);
    store.integrity_check().unwrap();
}

#[test]
fn batch_uses_write_tracking_setting_at_commit() {
    let (store, clock) = memory_at(1_000);
    let mut batch = store.batch();
    batch.put(&store, "a", "1", Expiry::Never).unwrap();
    clock.set(2_000);
    store.set_write_tracking(true).unwrap();
    clock.set(3_000);
    batch.commit().unwrap();
    assert_eq!(store.write_time("a").unwrap(), Some(3_000));
    store.integrity_check().unwrap();
}

#[test]
fn batch_with_dropped_family_fails_whole_and_is_kept() {
    // The batch writes to an existing family before it reaches the missing one. Nothing of that may
    // remain. When the family exists again, the same batch can be committed.
    for in_transaction in [false, true] {
        let scratch = Scratch::new();
        let clock = TestClock::at(1_000);
        let (store, other) = (scratch.open_at(&clock), scratch.open_at(&clock));
        let family = store.create_family("f").unwrap();
        store.put_with_expiry("old", vec![1; 5_000], Expiry::At(5_000)).unwrap();
        let mut batch = store.batch();
        batch.put(&store, "new", vec![2; 5_000], Expiry::At(6_000)).unwrap();
        batch.delete(&store, "old").unwrap();
        batch.put(&family, "k", "1", Expiry::Never).unwrap();
        batch.put(&store, "last", "1", Expiry::Never).unwrap();
        other.drop_family("f").unwrap();

        if in_transaction {
            store.begin_write().unwrap();
            store.put("mine", "1").unwrap();
        }
        assert_eq!(kind(batch.commit()), ErrorKind::Error);
        assert_eq!(batch.len(), 4);
        let unchanged = || {
            assert_eq!(store.get("new").unwrap(), None);
            assert_eq!(store.get("old").unwrap(), Some(vec![1; 5_000]));
            assert_eq!(store.get("last").unwrap(), None);
            assert_eq!(store.next_expiry().unwrap(), Some(5_000));
        };
        unchanged();
        if in_transaction {
            store.put("mine too", "1").unwrap(); // the transaction goes on
            store.commit().unwrap();
            assert_eq!(other.count().unwrap(), 3);
            unchanged();
        }
        store.integrity_check().unwrap();

        other.create_family("f").unwrap();
        batch.commit().unwrap();
        assert!(batch.is_empty());
        assert_eq!(store.get("old").unwrap(), None);
        assert_eq!(store.get("new").unwrap(), Some(vec![2; 5_000]));
        assert_eq!(family.get("k").unwrap().as_deref(), Some(&b"1"[..]));
        store.integrity_check().unwrap();
    }
}

#[test]
fn delete_in_dropped_family_fails_batch() {
    let scratch = Scratch::new();
    let (store, other) = (scratch.open(), scratch.open());
    let family = store.create_family("f").unwrap();
    let mut batch = store.batch();
    batch.put(&store, "a", "1", Expiry::Never).unwrap();
    batch.delete(&family, "k").unwrap();
    other.drop_family("f").unwrap();
    assert_eq!(kind(batch.commit()), ErrorKind::Error);
    assert_eq!((batch.len(), store.count().unwrap()), (2, 0));
}

#[test]
fn pending_batch_does_not_block_family_drop() {
    let store = memory();
    let mut batch = store.batch();
    let family = store.create_family("f").unwrap();
    batch.put(&family, "k", "1", Expiry::Never).unwrap();
    drop(family);
    store.drop_family("f").unwrap();
    assert_eq!(kind(batch.commit()), ErrorKind::Error);
    assert_eq!(batch.len(), 1);
}

#[test]
fn batch_is_kept_if_lock_or_read_transaction_blocks_commit() {
    let scratch = Scratch::new();
    let (store, other) = (scratch.open(), scratch.open());
    let mut batch = store.batch();
    batch.put(&store, "a", "1", Expiry::Never).unwrap();
    batch.delete(&store, "b").unwrap();
    other.begin_write().unwrap();
    if common::are_on_a_server() {
        other.put("a", "2").unwrap(); // on a server only the row is locked
    }
    assert_eq!(kind(batch.commit()), ErrorKind::Busy);
    other.rollback().unwrap();
    store.begin_read().unwrap();
    assert_eq!(kind(batch.commit()), ErrorKind::ReadOnly);
    store.commit().unwrap();
    assert_eq!(batch.len(), 2);
    batch.commit().unwrap();
    assert!(other.exists("a").unwrap());
    assert!(batch.is_empty());

    let reader = scratch.open_with(&Config::new().read_only(true));
    let mut batch = reader.batch();
    batch.put(&reader, "c", "1", Expiry::Never).unwrap();
    assert_eq!(kind(batch.commit()), ErrorKind::ReadOnly);
    assert_eq!(batch.len(), 1);
}

#[test]
fn batch_refuses_invalid_writes_and_stays_unchanged() {
    let store = Store::open_in_memory(&Config::new().max_value_size(1_000)).unwrap();
    let stranger = memory();
    let mut batch = store.batch();
    batch.put(&store, "a", "1", Expiry::Never).unwrap();
    for key in [vec![], vec![1; MAX_KEY_SIZE + 1]] {
        assert_eq!(kind(batch.put(&store, &key, "1", Expiry::Never)), ErrorKind::Error);
        assert_eq!(kind(batch.delete(&store, &key)), ErrorKind::Error);
    }
    assert_eq!(kind(batch.put(&store, "k", vec![1; 1_001], Expiry::Never)), ErrorKind::Error);
    assert_eq!(kind(batch.put(&store, "k", "1", Expiry::At(-1))), ErrorKind::Error);
    assert_eq!(kind(batch.put(&stranger, "k", "1", Expiry::Never)), ErrorKind::Error);
    assert_eq!(kind(batch.delete(&stranger, "k")), ErrorKind::Error);
    assert_eq!(batch.len(), 1);
    batch.commit().unwrap();
    assert_eq!((store.count().unwrap(), stranger.count().unwrap()), (1, 0));
}

#[test]
fn batch_refuses_family_of_other_handle_on_same_file() {
    let scratch = Scratch::new();
    let (store, other) = (scratch.open(), scratch.open());
    let mut batch = store.batch();
    assert_eq!(kind(batch.put(&other, "k", "1", Expiry::Never)), ErrorKind::Error);
    assert!(batch.is_empty());
}

#[test]
fn batch_of_closed_store_returns_misuse() {
    let store = memory();
    let mut batch = store.batch();
    batch.put(&store, "a", "1", Expiry::Never).unwrap();
    store.close().unwrap();
    assert_eq!(kind(batch.commit()), ErrorKind::Misuse);
    assert_eq!(kind(batch.put(&store, "b", "1", Expiry::Never)), ErrorKind::Misuse);
    assert_eq!(kind(batch.delete(&store, "b")), ErrorKind::Misuse);
    assert_eq!(batch.len(), 1);
    batch.clear();
    assert_eq!(kind(batch.commit()), ErrorKind::Misuse);
}

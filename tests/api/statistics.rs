//! Statistics of a store: what is counted, and what is not.

use crate::common::{Scratch, kind, memory, memory_at, numbered, python};
use kvstore::{CheckpointMode, ErrorKind, Expiry, Stats};

/// Returns the statistics without the two current values.
fn counters(mut stats: Stats) -> Stats {
    (stats.db_pages, stats.wal_frames, stats.size_bytes) = (0, 0, 0);
    stats
}

#[test]
fn stats_count_only_successful_calls() {
    let (store, clock) = memory_at(1_000);
    assert_eq!(counters(store.stats().unwrap()), Stats::default());
    store.put("abc", "12345").unwrap();
    store.put_with_expiry("t", "1", Expiry::At(2_000)).unwrap();
    assert!(!store.put_if_absent("abc", "1", Expiry::Never).unwrap());
    assert!(store.put_if_absent("new", [1; 2_000], Expiry::Never).unwrap());
    store.get("abc").unwrap();
    store.get_with_ttl("abc").unwrap();
    store.get("missing").unwrap();
    store.exists("abc").unwrap();
    store.delete("new").unwrap();
    store.delete("missing").unwrap();
    drop((store.iter(), store.prefix("a")));
    let stats = store.stats().unwrap();
    assert_eq!((stats.puts, stats.gets, stats.deletes, stats.iterations), (3, 2, 1, 2));
    assert_eq!((stats.bytes_written, stats.bytes_read), (8 + 2 + 2_003, 10));
    assert_eq!((stats.errors, stats.ttl_expired, stats.ttl_purged, stats.misses), (0, 0, 0, 1));
    assert!(stats.db_pages >= 4);
    clock.set(2_000);
    assert_eq!(store.get("t").unwrap(), None);
    assert_eq!(store.stats().unwrap().ttl_expired, 1);
    assert_eq!(store.get("t").unwrap(), None);
    assert_eq!(store.stats().unwrap().ttl_expired, 1);
}

#[test]
fn misses_count_lookups_without_live_key_only() {
    let (store, clock) = memory_at(1_000);
    for key in ["a", "b", "c", "d", "e"] {
        store.put_with_expiry(key, "1", Expiry::At(2_000)).unwrap();
    }
    clock.set(2_000);
    store.put("live", "1").unwrap();
    let misses = || store.stats().unwrap().misses;
    assert_eq!(store.get("a").unwrap(), None);
    assert_eq!(store.get("a").unwrap(), None);
    assert_eq!(misses(), 2);
    assert_eq!(store.get_with_ttl("b").unwrap(), None);
    assert!(!store.exists("c").unwrap());
    assert_eq!(store.get_and_set_expiry("d", Expiry::At(9_000)).unwrap(), None);
    assert_eq!(misses(), 5);
    store.get_many(["none", "live", "e"]).unwrap();
    assert_eq!(misses(), 7);
    // These calls change no such counter: they find something, fail, or do not read a value.
    store.get("live").unwrap();
    store.exists("live").unwrap();
    store.get_and_set_expiry("live", Expiry::At(9_000)).unwrap();
    assert_eq!(kind(store.get("")), ErrorKind::Error);
    store.ttl("none").unwrap();
    store.expiry("none").unwrap();
    store.delete("none").unwrap();
    store.put_if_absent("new", "1", Expiry::Never).unwrap();
    store.compare_and_delete("none", "1").unwrap();
    assert!(store.iter().count() > 0);
    assert_eq!(misses(), 7);
    store.reset_stats().unwrap();
    assert_eq!(misses(), 0);
}

#[test]
fn lookups_of_expired_keys_are_counted() {
    let (store, clock) = memory_at(1_000);
    for key in ["a", "b", "c", "d"] {
        store.put_with_expiry(key, "1", Expiry::At(2_000)).unwrap();
    }
    clock.set(2_000);
    store.begin_read().unwrap();
    store.get("a").unwrap();
    store.get_with_ttl("a").unwrap();
    store.exists("b").unwrap();
    store.ttl("c").unwrap();
    store.ttl("c").unwrap();
    store.commit().unwrap();
    let stats = store.stats().unwrap();
    assert_eq!((stats.ttl_expired, stats.ttl_purged, stats.gets), (5, 0, 0));
    assert_eq!(store.purge_expired().unwrap(), 4);
    let stats = store.stats().unwrap();
    assert_eq!((stats.ttl_expired, stats.ttl_purged, stats.deletes), (5, 4, 0));
}

#[test]
fn errors_count_failed_calls_but_not_missing_keys() {
    let store = memory();
    assert!(store.put("", "1").is_err());
    assert!(store.get("").is_err());
    assert!(store.commit().is_err());
    assert!(store.create_family("__x").is_err());
    assert!(store.drop_family("default").is_err());
    assert_eq!(store.stats().unwrap().errors, 5);
    store.get("missing").unwrap();
    store.delete("missing").unwrap();
    assert_eq!(store.stats().unwrap().errors, 5);
    assert_eq!(store.stats().unwrap().puts, 0);
}

#[test]
fn commits_are_counted_by_transaction() {
    let scratch = Scratch::new();
    let store = scratch.open();
    let commits = || store.stats().unwrap().wal_commits;
    store.put("a", "1").unwrap();
    store.put("b", "1").unwrap();
    assert_eq!(commits(), 2);
    store.transaction(|tx| (0..10).try_for_each(|n| tx.put(numbered(n), "1"))).unwrap();
    assert_eq!(commits(), 3);
    store.begin_write().unwrap();
    store.put("c", "1").unwrap();
    store.rollback().unwrap();
    store.begin_read().unwrap();
    store.commit().unwrap();
    assert!(store.put("", "1").is_err());
    assert_eq!(commits(), 3);
}

#[test]
fn reset_zeroes_counters_and_keeps_live_figures() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("a", vec![1; 100_000]).unwrap();
    store.get("a").unwrap();
    store.checkpoint(CheckpointMode::Passive).unwrap();
    let before = store.stats().unwrap();
    assert_eq!(before.checkpoints, 1);
    store.reset_stats().unwrap();
    let after = store.stats().unwrap();
    assert_eq!(after.db_pages, before.db_pages);
    assert_eq!(counters(after), Stats::default());
    let pages = python(&scratch.path(), "print(*con.execute('pragma page_count').fetchone())");
    assert_eq!(after.db_pages.to_string(), pages);
    assert!(after.db_pages > 25);
    let free = python(&scratch.path(), "print(*con.execute('pragma freelist_count').fetchone())");
    assert_eq!(after.size_bytes, (after.db_pages - free.parse::<u64>().unwrap()) * 4096);
}

//! What a read does beside reading when it meets a dead row: it sees to its removal, if that costs nobody anything.

mod common;

use std::path::Path;

use common::{Scratch, TestClock, numbered, python};
use kvstore::{CheckpointMode, Config, Expiry, Store, Ttl};
use rusqlite::Connection;

/// A store whose key "dead" has just expired.
fn with_a_dead_row(path: &Path, config: &Config) -> Store {
    let store = Store::open_with(path, config).unwrap();
    let clock = TestClock::at(1_000);
    clock.drive(&store);
    store.put_until("dead", "1", Expiry::At(1_500)).unwrap();
    clock.set(2_000);
    store
}

#[test]
fn a_read_that_removes_a_dead_row_leaves_the_checkpoint_to_the_next_write() {
    for sql in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::new().sql_engine(sql).checkpoint_every(1);
        let store = with_a_dead_row(&dir.path().join("store.db"), &config);
        let checkpoints = || store.stats().unwrap().checkpoints;
        let before = checkpoints();
        assert_eq!(store.get("dead").unwrap(), None);
        assert_eq!(store.count().unwrap(), 0, "the row is gone");
        assert_eq!(checkpoints(), before, "the get has checkpointed");
        store.put("next", "1").unwrap();
        assert_eq!(checkpoints(), before + 1);
    }
}

#[test]
fn while_the_wal_waits_for_a_checkpoint_reads_do_not_make_it_longer() {
    for sql in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::new().sql_engine(sql).checkpoint_every(u32::MAX);
        let store = with_a_dead_row(&dir.path().join("store.db"), &config);
        store
            .transaction(|tx| (0..5_000).try_for_each(|n: u32| tx.put(n.to_be_bytes(), vec![7; 3_000])))
            .unwrap();
        let rows = store.count().unwrap();
        assert!(store.stats().unwrap().wal_frames > 4_000);
        assert_eq!(store.get("dead").unwrap(), None);
        assert_eq!(store.count().unwrap(), rows);
        store.checkpoint(CheckpointMode::Truncate).unwrap();
        assert_eq!(store.get("dead").unwrap(), None);
        assert_eq!(store.count().unwrap(), rows - 1);
    }
}

#[test]
fn a_removal_that_fails_inside_a_transaction_is_taken_back_and_the_transaction_goes_on() {
    for sql in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        with_a_dead_row(&path, &Config::new()).close().unwrap();
        // The row itself can be deleted, and then its entry in the expiry index cannot.
        Connection::open(&path)
            .unwrap()
            .execute_batch(
                "DROP TABLE \"ttl_expiry:default\";
                 CREATE TABLE \"ttl_expiry:default\"(theirs);",
            )
            .unwrap();
        let store = Store::open_with(&path, &Config::new().sql_engine(sql)).unwrap();
        store.begin(true).unwrap();
        store.put("before", "1").unwrap();
        assert_eq!(store.get("dead").unwrap(), None);
        assert!(!store.exists("dead").unwrap());
        assert_eq!(store.count().unwrap(), 2, "half a removal is left");
        store.put("after", "1").unwrap();
        store.commit().unwrap();
        assert_eq!(store.count().unwrap(), 3);
        assert_eq!(store.get("before").unwrap().as_deref(), Some(&b"1"[..]));
    }
}

/// A store with so many keys that have just expired.
fn with_dead_rows(path: &Path, n: usize) -> (Store, TestClock) {
    let store = Store::open(path).unwrap();
    let clock = TestClock::at(1_000);
    clock.drive(&store);
    store
        .transaction(|tx| (0..n).try_for_each(|n| tx.put_until(numbered(n), "1", Expiry::At(1_500))))
        .unwrap();
    clock.set(2_000);
    (store, clock)
}

/// How many rows are in the file.
fn rows(path: &Path) -> String {
    python(path, "print(*con.execute('select count(*) from \"data:default\"').fetchone())")
}

#[test]
fn dead_rows_that_reads_meet_are_removed_many_at_a_time() {
    let scratch = Scratch::new();
    let (store, _clock) = with_dead_rows(&scratch.path(), 100);
    let commits = || store.stats().unwrap().wal_commits;
    let before = commits();
    for n in 0..100 {
        assert_eq!(store.get(numbered(n)).unwrap(), None);
        assert_eq!(store.get(numbered(n)).unwrap(), None);
    }
    assert!((1..=5).contains(&(commits() - before)), "{} commits", commits() - before);
    assert_eq!(store.stats().unwrap().ttl_expired, 100, "each was met once");
    assert_eq!(store.count().unwrap(), 0);
    assert_eq!(rows(&scratch.path()), "0");
    store.integrity_check().unwrap();
}

#[test]
fn a_dead_row_that_was_met_is_gone_for_every_call_of_its_handle() {
    let scratch = Scratch::new();
    let (store, _clock) = with_dead_rows(&scratch.path(), 5);
    let listed = || {
        let mut expiring = store.expiring(0, i64::MAX);
        usize::from(expiring.first().unwrap()) + common::rest(&mut expiring).len()
    };
    assert_eq!(store.ttl(numbered(0)).unwrap(), Some(Ttl::Remaining(std::time::Duration::ZERO)));
    assert_eq!(store.ttl(numbered(0)).unwrap(), None);
    assert_eq!(listed(), 4);
    assert!(!store.exists(numbered(1)).unwrap());
    assert_eq!(store.ttl(numbered(1)).unwrap(), None);
    assert_eq!(store.count().unwrap(), 3);
    assert_eq!(store.get(numbered(2)).unwrap(), None);
    assert_eq!(store.count_live().unwrap(), 0);
    // And in the middle of a walk by expiry.
    let mut expiring = store.expiring(0, i64::MAX);
    assert!(expiring.first().unwrap());
    assert_eq!(store.get(numbered(4)).unwrap(), None);
    assert_eq!(store.next_expiry().unwrap(), Some(1_500));
    assert_eq!(common::rest(&mut expiring), Vec::<Vec<u8>>::new());
    assert_eq!(store.get(numbered(3)).unwrap(), None);
    assert_eq!((store.next_expiry().unwrap(), store.next_expiry_of_all().unwrap()), (None, None));
    assert_eq!(rows(&scratch.path()), "0");
}

#[test]
fn a_key_that_was_written_again_after_its_dead_row_was_met_stays() {
    for other_writes in [false, true] {
        let scratch = Scratch::new();
        let (store, clock) = with_dead_rows(&scratch.path(), 40);
        let other = scratch.open_at(&clock);
        let writer = if other_writes { &other } else { &store };
        for n in 0..20 {
            assert_eq!(store.get(numbered(n)).unwrap(), None);
            match n % 3 {
                0 => writer.put(numbered(n), "new").unwrap(),
                1 => writer.put_until(numbered(n), "new", Expiry::At(3_000)).unwrap(),
                _ => {}
            }
        }
        assert_eq!(store.count().unwrap(), 20 + 14);
        clock.set(3_000);
        let met = store.stats().unwrap().ttl_expired;
        for n in (0..20).filter(|n| n % 3 == 1) {
            assert_eq!(store.get(numbered(n)).unwrap(), None, "it has died again");
        }
        assert_eq!(store.stats().unwrap().ttl_expired, met + 7);
        assert_eq!(store.count().unwrap(), 20 + 7);
        assert_eq!(store.get(numbered(3)).unwrap().as_deref(), Some(&b"new"[..]));
        store.integrity_check().unwrap();
    }
}

#[test]
fn a_purge_counts_the_dead_rows_that_nobody_has_met() {
    let scratch = Scratch::new();
    let (store, _clock) = with_dead_rows(&scratch.path(), 50);
    (0..10).for_each(|n| assert_eq!(store.get(numbered(n)).unwrap(), None));
    assert_eq!(store.purge_expired().unwrap(), 40);
    assert_eq!(store.purge_expired().unwrap(), 0);
    assert_eq!(store.count().unwrap(), 0);
    store.put("alive", "1").unwrap();
    assert_eq!(store.count().unwrap(), 1);
}

#[test]
fn what_was_met_is_removed_when_others_let_it_and_with_a_family_that_is_dropped() {
    let scratch = Scratch::new();
    let (store, clock) = with_dead_rows(&scratch.path(), 100);
    let other = scratch.open_at(&clock);
    other.begin(true).unwrap();
    other.put("theirs", "1").unwrap();
    for n in 0..100 {
        assert_eq!(store.get(numbered(n)).unwrap(), None);
    }
    assert_eq!(store.count().unwrap(), 100, "they are writing");
    other.commit().unwrap();
    assert_eq!(store.count().unwrap(), 101 - 32, "the last ones it had met");
    let family = store.family_or_create("family").unwrap();
    family.put_until("dead", "1", Expiry::At(1_500)).unwrap();
    assert_eq!(family.get("dead").unwrap(), None);
    assert_eq!(store.get(numbered(0)).unwrap(), None);
    drop(family);
    store.drop_family("family").unwrap();
    assert_eq!(store.get(numbered(1)).unwrap(), None);
    assert_eq!(store.count().unwrap(), 101 - 34);
    assert_eq!(store.get(numbered(2)).unwrap(), None);
    store.use_system_clock();
    store.close().unwrap();
    assert_eq!(rows(&scratch.path()), (101 - 35).to_string(), "a close removes what was met");
    other.integrity_check().unwrap();
}

#[test]
fn a_dead_row_met_in_a_transaction_is_removed_with_it() {
    for commits in [false, true] {
        let scratch = Scratch::new();
        let (store, _clock) = with_dead_rows(&scratch.path(), 50);
        store.begin(true).unwrap();
        (0..40).for_each(|n| assert_eq!(store.get(numbered(n)).unwrap(), None));
        assert_eq!(store.count().unwrap(), 10);
        if commits {
            store.commit().unwrap()
        } else {
            store.rollback().unwrap()
        }
        assert_eq!(store.count().unwrap(), if commits { 10 } else { 50 });
        store.begin(false).unwrap();
        assert_eq!(store.get(numbered(45)).unwrap(), None);
        assert_eq!(
            store.count().unwrap(),
            if commits { 10 } else { 50 },
            "a read transaction removes nothing"
        );
        store.commit().unwrap();
        store.integrity_check().unwrap();
    }
}

#[test]
fn a_later_life_of_a_key_is_not_removed_by_the_note_of_an_earlier_one() {
    let scratch = Scratch::new();
    let (store, clock) = with_dead_rows(&scratch.path(), 2);
    assert_eq!(store.get(numbered(0)).unwrap(), None);
    store.put_until(numbered(0), "second life", Expiry::At(3_000)).unwrap();
    clock.set(3_000);
    assert_eq!(store.count().unwrap(), 2, "nobody has met the second one");
    let mut expiring = store.expiring(0, i64::MAX);
    assert!(expiring.first().unwrap());
    assert_eq!(common::rest(&mut expiring), [numbered(0)]);
    assert_eq!(store.ttl(numbered(0)).unwrap(), Some(Ttl::Remaining(std::time::Duration::ZERO)));
    assert_eq!((store.ttl(numbered(0)).unwrap(), store.count().unwrap()), (None, 1));
}

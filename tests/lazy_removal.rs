//! What a read does beside reading when it meets a dead row: it removes the row, if that costs nobody anything.

mod common;

use std::path::Path;

use common::TestClock;
use kvstore::{CheckpointMode, Config, Expiry, Store};
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

//! Lazy removal of expired rows that reads find: they no longer count for the handle that found
//! them, and are removed together when that keeps no other call waiting.

use std::path::Path;

use std::time::Duration;

use crate::common::{self, Scratch, TestClock, numbered, python};
use crate::sqlite;
use kvstore::{Config, Expiry, KeyRange, Store, Ttl};

/// A store whose key "dead" has just expired.
fn with_expired_row(path: &Path, config: &Config) -> Store {
    let store = Store::open_with(path, config).unwrap();
    let clock = TestClock::at(1_000);
    clock.drive(&store);
    store.put_with_expiry("dead", "1", Expiry::At(1_500)).unwrap();
    clock.set(2_000);
    store
}

/// Number of expired rows that a handle removes together without a write.
const ENOUGH: usize = 64;

/// Creates a store with `n` keys that have just expired; every tenth has a large value.
fn with_expired_rows(path: &Path, config: &Config, n: usize) -> (Store, TestClock) {
    let store = Store::open_with(path, config).unwrap();
    let clock = TestClock::at(1_000);
    clock.drive(&store);
    let value = |n: usize| vec![7; if n.is_multiple_of(10) { 5_000 } else { 1 }];
    store
        .transaction(|tx| {
            (0..n).try_for_each(|n| tx.put_with_expiry(numbered(n), value(n), Expiry::At(1_500)))
        })
        .unwrap();
    clock.set(2_000);
    (store, clock)
}

fn read_expired(store: &Store, keys: std::ops::Range<usize>) {
    keys.for_each(|n| assert_eq!(store.get(numbered(n)).unwrap(), None));
}

/// How many rows are in the file.
fn rows(path: &Path) -> String {
    python(path, "print(*con.execute('select count(*) from \"data:default\"').fetchone())")
}

fn expiring(store: &Store) -> Vec<Vec<u8>> {
    let mut cursor = store.expiry_cursor(0, i64::MAX);
    let first = cursor.first().unwrap().then(|| cursor.key().unwrap().to_vec());
    first.into_iter().chain(common::rest(&mut cursor)).collect()
}

const GONE_NOW: Option<Ttl> = Some(Ttl::Remaining(Duration::ZERO));

#[test]
fn read_with_lazy_removal_defers_checkpoint_to_next_write() {
    if common::is_of_a_file("on a server a read removes nothing") {
        return;
    }
    for sql in [false, true] {
        let scratch = Scratch::new();
        let config = Config::new().sql_engine(sql).checkpoint_every(1);
        let (store, _clock) = with_expired_rows(&scratch.path(), &config, ENOUGH);
        let stats = || store.stats().unwrap();
        let before = stats();
        read_expired(&store, 0..ENOUGH);
        assert_eq!(rows(&scratch.path()), "0");
        assert_eq!(stats().wal_commits, before.wal_commits + 1);
        assert_eq!(stats().checkpoints, before.checkpoints, "a get has checkpointed");
        let checkpoints = || stats().checkpoints;
        let before = checkpoints();
        store.put("next", "1").unwrap();
        assert_eq!(checkpoints(), before + 1);
    }
}

#[test]
fn reads_do_not_extend_wal_due_for_checkpoint() {
    if common::is_of_a_file("on a server a read removes nothing") {
        return;
    }
    for sql in [false, true] {
        let scratch = Scratch::new();
        let config = Config::new().sql_engine(sql).checkpoint_every(1);
        let (store, _clock) = with_expired_rows(&scratch.path(), &config, 3 * ENOUGH);
        let frames = || store.stats().unwrap().wal_frames;
        let counted = || (store.count().unwrap(), rows(&scratch.path()));
        read_expired(&store, 0..ENOUGH);
        assert_eq!(counted(), (128, "128".to_owned()));
        // A checkpoint is due now, which a read does not do.
        let before = frames();
        read_expired(&store, ENOUGH..2 * ENOUGH);
        assert_eq!((frames(), counted()), (before, (64, "128".to_owned())));
        store.put("a write", "1").unwrap();
        assert_eq!(counted(), (65, "65".to_owned()));
        read_expired(&store, 2 * ENOUGH..3 * ENOUGH);
        assert_eq!(counted(), (1, "1".to_owned()));
    }
}

/// A write or a close removes noted rows however long the WAL is. It waits for a checkpoint only if
/// `checkpoint_every` demands one.
#[test]
fn write_and_close_remove_expired_rows_despite_long_wal() {
    if common::is_of_a_file("on a server a read removes nothing") {
        return;
    }
    for sql in [false, true] {
        let scratch = Scratch::new();
        let config = Config::new().sql_engine(sql).checkpoint_every(u32::MAX);
        let (store, _clock) = with_expired_rows(&scratch.path(), &config, 10);
        store
            .transaction(|tx| (0..5_000).try_for_each(|n: u32| tx.put(n.to_be_bytes(), vec![7; 3_000])))
            .unwrap();
        assert!(store.stats().unwrap().wal_frames > 4_000);
        let counted = || (store.count().unwrap(), rows(&scratch.path()));
        store.begin_write().unwrap();
        read_expired(&store, 0..1);
        assert_eq!(store.count().unwrap(), 5_009);
        store.commit().unwrap();
        assert_eq!(counted(), (5_009, "5009".to_owned()));
        read_expired(&store, 1..3);
        assert_eq!(counted(), (5_007, "5009".to_owned()));
        store.put(0u32.to_be_bytes(), "1").unwrap();
        assert_eq!(counted(), (5_007, "5007".to_owned()));
        read_expired(&store, 3..6);
        store.close().unwrap();
        assert_eq!(rows(&scratch.path()), "5004");
    }
}

#[test]
fn failed_lazy_removal_is_undone_and_transaction_continues() {
    for sql in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        with_expired_row(&path, &Config::new()).close().unwrap();
        // The row itself can be deleted, but its entry in the expiry index cannot.
        sqlite::open(&path)
            .execute_batch(
                "DROP TABLE \"ttl_expiry:default\";
                 CREATE TABLE \"ttl_expiry:default\"(theirs);",
            )
            .unwrap();
        let store = Store::open_with(&path, &Config::new().sql_engine(sql)).unwrap();
        store.begin_write().unwrap();
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

#[test]
fn expired_rows_found_by_reads_are_removed_in_batches() {
    if common::is_of_a_file("on a server a read removes nothing") {
        return;
    }
    for sql in [false, true] {
        let scratch = Scratch::new();
        let config = Config::new().sql_engine(sql);
        let (store, _clock) = with_expired_rows(&scratch.path(), &config, 2 * ENOUGH + 1);
        let commits = || store.stats().unwrap().wal_commits;
        let before = commits();
        for n in 0..=2 * ENOUGH {
            read_expired(&store, n..n + 1);
            read_expired(&store, n..n + 1);
            assert_eq!(commits() - before, ((n + 1) / ENOUGH) as u64);
            assert_eq!(store.count().unwrap(), (2 * ENOUGH - n) as u64);
        }
        let stats = store.stats().unwrap();
        assert_eq!((stats.ttl_expired, stats.ttl_purged), (2 * ENOUGH as u64 + 1, 0), "each was read once");
        assert_eq!(rows(&scratch.path()), "1");
        store.put("next", "1").unwrap();
        assert_eq!(rows(&scratch.path()), "1");
        assert_eq!(store.get("next").unwrap().as_deref(), Some(&b"1"[..]));
        store.integrity_check().unwrap();
    }
}

#[test]
fn next_write_removes_pending_rows_in_its_transaction() {
    if common::is_of_a_file("on a server a read removes nothing") {
        return;
    }
    type Write = fn(&Store);
    let writes: [(&str, Write); 7] = [
        ("put", |store| store.put("next", "1").unwrap()),
        ("delete", |store| assert!(!store.delete("none").unwrap())),
        ("delete_range", |store| assert_eq!(store.delete_range(&KeyRange::prefix(b"none")).unwrap(), 0)),
        ("create_family", |store| drop(store.create_family("new").unwrap())),
        ("increment", |store| assert_eq!(store.increment("next", 1, Expiry::Never).unwrap(), 1)),
        ("batch", |store| {
            let mut batch = store.batch();
            batch.put(store, "next", "1", Expiry::Never).unwrap();
            batch.commit().unwrap();
        }),
        ("purge", |store| assert_eq!(store.purge_expired().unwrap(), 6)),
    ];
    for (name, write) in writes {
        let scratch = Scratch::new();
        let (store, _clock) = with_expired_rows(&scratch.path(), &Config::new(), 10);
        read_expired(&store, 0..4);
        let commits = || store.stats().unwrap().wal_commits;
        let before = commits();
        write(&store);
        assert_eq!(commits(), before + 1, "{name}");
        read_expired(&store, 0..4);
        assert_eq!((store.stats().unwrap().ttl_expired, commits()), (4, before + 1), "{name}");
        let left = if name == "purge" { "0" } else { "6" };
        store.delete("next").unwrap();
        assert_eq!(rows(&scratch.path()), left, "{name}");
        store.integrity_check().unwrap();
    }
}

#[test]
fn pending_removal_hides_row_only_for_its_handle() {
    if common::is_of_a_file("on a server a read removes nothing") {
        return;
    }
    for sql in [false, true] {
        let scratch = Scratch::new();
        let (store, clock) = with_expired_rows(&scratch.path(), &Config::new().sql_engine(sql), 5);
        let other = scratch.open_at(&clock);
        assert_eq!(store.ttl(numbered(0)).unwrap(), GONE_NOW);
        assert_eq!(store.ttl(numbered(0)).unwrap(), None);
        assert_eq!(expiring(&store).len(), 4);
        assert!(!store.exists(numbered(1)).unwrap());
        assert_eq!(store.ttl(numbered(1)).unwrap(), None);
        assert_eq!(store.get_many([numbered(0), numbered(4)]).unwrap(), [None, None]);
        assert_eq!(store.stats().unwrap().ttl_expired, 3);
        read_expired(&store, 2..3);
        assert_eq!((store.count().unwrap(), store.count_live().unwrap()), (2, 0));
        // In the middle of an iteration, for rows that it has read ahead.
        let mut walk = store.expiry_cursor(0, i64::MAX);
        assert!(walk.first().unwrap());
        read_expired(&store, 4..5);
        assert_eq!(common::rest(&mut walk), Vec::<Vec<u8>>::new());
        assert_eq!(
            (store.next_expiry().unwrap(), store.next_expiry_all_families().unwrap()),
            (Some(1_500), Some(1_500))
        );
        read_expired(&store, 3..4);
        assert_eq!((store.next_expiry().unwrap(), store.next_expiry_all_families().unwrap()), (None, None));
        store.put_with_expiry("later", "1", Expiry::At(9_000)).unwrap();
        assert_eq!(store.next_expiry_all_families().unwrap(), Some(9_000));
        store.integrity_check().unwrap();
        assert_eq!(other.count().unwrap(), 1);
    }
}

#[test]
fn other_handles_and_backup_see_rows_pending_removal() {
    if common::is_of_a_file("on a server a read removes nothing") {
        return;
    }
    let scratch = Scratch::new();
    let (store, clock) = with_expired_rows(&scratch.path(), &Config::new(), 10);
    let other = scratch.open_at(&clock);
    read_expired(&store, 0..4);
    assert_eq!((store.count().unwrap(), other.count().unwrap()), (6, 10));
    assert_eq!(other.ttl(numbered(0)).unwrap(), GONE_NOW);
    let copy = scratch.path().with_file_name("copy.db");
    store.backup(&copy, |_, _| true).unwrap();
    assert_eq!(rows(&copy), "10");
    assert_eq!(other.purge_expired().unwrap(), 9, "one of them is pending in that handle");
    assert_eq!((store.count().unwrap(), other.count().unwrap()), (0, 0));
    assert_eq!(store.purge_expired().unwrap(), 0);
    assert_eq!(store.stats().unwrap().ttl_purged, 0);
}

#[test]
fn purge_does_not_count_rows_pending_removal() {
    if common::is_of_a_file("on a server a read removes nothing") {
        return;
    }
    for in_steps in [false, true] {
        let scratch = Scratch::new();
        let (store, _clock) = with_expired_rows(&scratch.path(), &Config::new(), 50);
        read_expired(&store, 0..10);
        assert_eq!(store.count().unwrap(), 40);
        let purged = if in_steps {
            let first = store.purge_step(Some(15), None).unwrap();
            assert_eq!((first.deleted, first.more), (15, true));
            15 + store.purge_step(None, Some(Duration::from_secs(60))).unwrap().deleted
        } else {
            store.purge_expired().unwrap()
        };
        assert_eq!((purged, store.stats().unwrap().ttl_purged), (40, 40));
        assert_eq!((store.count().unwrap(), rows(&scratch.path())), (0, "0".to_owned()));
        store.put("alive", "1").unwrap();
        assert_eq!(store.count().unwrap(), 1);
    }
}

#[test]
fn key_rewritten_while_pending_removal_is_kept() {
    if common::is_of_a_file("on a server a read removes nothing") {
        return;
    }
    for other_writes in [false, true] {
        let scratch = Scratch::new();
        let (store, clock) = with_expired_rows(&scratch.path(), &Config::new(), 40);
        let other = scratch.open_at(&clock);
        let writer = if other_writes { &other } else { &store };
        for n in 0..20 {
            read_expired(&store, n..n + 1);
            match n % 4 {
                0 => writer.put(numbered(n), "new").unwrap(),
                1 => writer.put_with_expiry(numbered(n), "new", Expiry::At(3_000)).unwrap(),
                2 => writer.put_with_expiry(numbered(n), "new", Expiry::At(1_600)).unwrap(), // expired, new row
                _ => {}
            }
        }
        assert_eq!(store.count().unwrap(), 20 + 15);
        assert_eq!(store.get(numbered(1)).unwrap().as_deref(), Some(&b"new"[..]));
        store.put("next", "1").unwrap();
        assert_eq!((store.count().unwrap(), rows(&scratch.path())), (36, "36".to_owned()));
        clock.set(3_000);
        let met = store.stats().unwrap().ttl_expired;
        (0..20).filter(|n| n % 4 == 1).for_each(|n| read_expired(&store, n..n + 1));
        assert_eq!(store.stats().unwrap().ttl_expired, met + 5, "it has died again");
        assert_eq!(store.count().unwrap(), 31);
        assert_eq!(store.get(numbered(4)).unwrap().as_deref(), Some(&b"new"[..]));
        store.integrity_check().unwrap();
    }
}

#[test]
fn row_rewritten_with_same_expiry_is_not_pending_removal() {
    if common::is_of_a_file("on a server a read removes nothing") {
        return;
    }
    let scratch = Scratch::new();
    let (store, _clock) = with_expired_rows(&scratch.path(), &Config::new(), 2);
    read_expired(&store, 0..1);
    store.put_with_expiry(numbered(0), "again", Expiry::At(1_500)).unwrap();
    assert_eq!(store.count().unwrap(), 2);
    read_expired(&store, 0..1);
    store.begin_write().unwrap();
    assert_eq!(rows(&scratch.path()), "1", "a write transaction begins without pending removals");
    store.put_with_expiry(numbered(0), "again", Expiry::At(1_500)).unwrap();
    assert_eq!(store.count().unwrap(), 2);
    store.rollback().unwrap();
    assert_eq!(store.count().unwrap(), 1);
}

#[test]
fn row_live_again_by_other_clock_is_visible_and_kept() {
    if common::is_of_a_file("on a server a read removes nothing") {
        return;
    }
    for removed_by_close in [false, true] {
        let scratch = Scratch::new();
        let (store, _clock) = with_expired_rows(&scratch.path(), &Config::new(), 3);
        read_expired(&store, 0..2);
        assert_eq!(store.count().unwrap(), 1);
        TestClock::at(1_400).drive(&store);
        assert_eq!(store.count().unwrap(), 3);
        assert_eq!(expiring(&store).len(), 3);
        assert_eq!(store.next_expiry().unwrap(), Some(1_500));
        assert!(store.get(numbered(0)).unwrap().is_some());
        if removed_by_close {
            store.close().unwrap();
        } else {
            store.put("next", "1").unwrap();
            store.delete("next").unwrap();
        }
        assert_eq!(rows(&scratch.path()), "3");
    }
}

#[test]
fn pending_rows_stay_hidden_while_other_handle_writes() {
    if common::is_of_a_file("on a server a read removes nothing") {
        return;
    }
    for sql in [false, true] {
        let scratch = Scratch::new();
        let (store, clock) = with_expired_rows(&scratch.path(), &Config::new().sql_engine(sql), 2_000);
        let other = scratch.open_at(&clock);
        other.begin_write().unwrap();
        other.put("theirs", "1").unwrap();
        read_expired(&store, 0..200);
        assert_eq!(store.count().unwrap(), 1_800);
        // The number of noted rows is limited.
        read_expired(&store, 200..2_000);
        assert_eq!(store.count().unwrap(), 2_000 - 1_024);
        assert_eq!(store.stats().unwrap().errors, 0);
        other.commit().unwrap();
        read_expired(&store, 1_999..2_000);
        assert_eq!(store.count().unwrap(), 2_001 - 1_024 - 1);
        assert_eq!(rows(&scratch.path()), (2_001 - 1_024).to_string());
        store.put("next", "1").unwrap();
        assert_eq!(rows(&scratch.path()), (2_001 - 1_024).to_string());
        store.integrity_check().unwrap();
    }
}

#[test]
fn family_drop_discards_its_pending_removals() {
    if common::is_of_a_file("on a server a read removes nothing") {
        return;
    }
    for other_drops in [false, true] {
        let scratch = Scratch::new();
        let (store, clock) = with_expired_rows(&scratch.path(), &Config::new(), 2);
        let other = scratch.open_at(&clock);
        for round in 0..2 {
            let family = store.create_family("family").unwrap();
            family.put_with_expiry("dead", "1", Expiry::At(1_500)).unwrap();
            assert_eq!(family.get("dead").unwrap(), None);
            drop(family);
            if other_drops { &other } else { &store }.drop_family("family").unwrap();
            read_expired(&store, round..round + 1);
            store.put("next", "1").unwrap();
        }
        assert_eq!(rows(&scratch.path()), "1");
        assert_eq!(store.stats().unwrap().errors, 0);
        store.integrity_check().unwrap();
    }
}

#[test]
fn close_or_last_drop_removes_pending_rows() {
    if common::is_of_a_file("on a server a read removes nothing") {
        return;
    }
    for is_dropped in [false, true] {
        let scratch = Scratch::new();
        let (store, _clock) = with_expired_rows(&scratch.path(), &Config::new(), 5);
        read_expired(&store, 0..2);
        store.begin_read().unwrap(); // ended by the close
        if is_dropped {
            drop(store);
        } else {
            store.close().unwrap();
        }
        assert_eq!(rows(&scratch.path()), "3");
    }
}

#[test]
fn failing_lazy_removal_fails_no_write_and_hides_rows() {
    if common::is_of_a_file("on a server a read removes nothing") {
        return;
    }
    for sql in [false, true] {
        let scratch = Scratch::new();
        let path = scratch.path();
        with_expired_rows(&path, &Config::new(), 2 * ENOUGH).0.close().unwrap();
        // The rows themselves can be deleted, but their entries in the expiry index cannot.
        sqlite::open(&path)
            .execute_batch(
                "DROP TABLE \"ttl_expiry:default\";
                 CREATE TABLE \"ttl_expiry:default\"(theirs);",
            )
            .unwrap();
        let store = Store::open_with(&path, &Config::new().sql_engine(sql)).unwrap();
        let rest = 2 * ENOUGH as u64;
        for n in 0..3 {
            read_expired(&store, n..n + 1);
            store.put("next", n.to_string()).unwrap();
            assert_eq!(store.get("next").unwrap(), Some(n.to_string().into_bytes()));
            assert_eq!(store.count().unwrap(), rest - n as u64);
        }
        read_expired(&store, 3..2 * ENOUGH);
        assert_eq!((store.count().unwrap(), store.stats().unwrap().errors), (1, 0));
        assert_eq!(rows(&path), (rest + 1).to_string());
    }
}

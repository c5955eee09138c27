//! Lazy removal of expired rows that reads find: they no longer count for the handle that found
//! them, and are removed together when that keeps no other call waiting.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use crate::common::cases::{ENGINES, each_case};
use crate::common::{self, Scratch, TestClock, numbered, python};
use crate::sqlite;
use kvstore::{Config, Expiry, KeyRange, Store, Ttl};

/// Number of expired rows that a handle removes together without a write.
const ENOUGH: usize = 64;

const JUST_EXPIRED: Option<Ttl> = Some(Ttl::Remaining(Duration::ZERO));

/// Reason why the tests here are not run on a server.
const WHY: &str = "on a server a read removes nothing";

/// Runs the test for each row of the table, on a store in a file.
fn each_case_on_a_file<T>(table: impl IntoIterator<Item = (&'static str, T)>, test: impl FnMut(T)) {
    if !common::is_of_a_file(WHY) {
        each_case(table, test);
    }
}

/// Creates a store with `n` keys that have just expired. Every tenth has a large value.
fn expired(n: usize, config: &Config) -> (Scratch, Store, TestClock) {
    let (scratch, clock) = (Scratch::new(), TestClock::at(1_000));
    let store = Store::open_with(scratch.path(), config).unwrap();
    clock.drive(&store);
    let value = |n: usize| vec![7; if n.is_multiple_of(10) { 5_000 } else { 1 }];
    store
        .transaction(|tx| {
            (0..n).try_for_each(|n| tx.put_with_expiry(numbered(n), value(n), Expiry::At(1_500)))
        })
        .unwrap();
    clock.set(2_000);
    (scratch, store, clock)
}

/// Reads keys, which are not found.
#[track_caller]
fn miss(store: &Store, keys: Range<usize>) {
    keys.for_each(|n| assert_eq!(store.get(numbered(n)).unwrap(), None));
}

/// Returns the number of rows in the file.
fn rows(path: &Path) -> u64 {
    let counted = python(path, "print(*con.execute('select count(*) from \"data:default\"').fetchone())");
    counted.parse().unwrap()
}

/// Returns the number of rows that the handle counts, and of those in the file.
fn counted(store: &Store, scratch: &Scratch) -> (u64, u64) {
    (store.count().unwrap(), rows(&scratch.path()))
}

/// Makes every removal of the default family fail: its rows can be deleted, but not their entries
/// in the expiry index.
fn break_removals(path: &Path) {
    let sql = "DROP TABLE \"ttl_expiry:default\"; CREATE TABLE \"ttl_expiry:default\"(theirs);";
    sqlite::open(path).execute_batch(sql).unwrap();
}

fn expiring(store: &Store) -> Vec<Vec<u8>> {
    let mut cursor = store.expiry_cursor(0, i64::MAX);
    let first = cursor.first().unwrap().then(|| cursor.key().unwrap().to_vec());
    first.into_iter().chain(common::rest(&mut cursor)).collect()
}

#[test]
fn read_with_lazy_removal_defers_checkpoint_to_next_write() {
    each_case_on_a_file(ENGINES, |sql| {
        let config = Config::new().sql_engine(sql).checkpoint_every(1);
        let (scratch, store, _clock) = expired(ENOUGH, &config);
        let stats = || store.stats().unwrap();
        let before = stats();
        miss(&store, 0..ENOUGH);
        assert_eq!(rows(&scratch.path()), 0);
        assert_eq!(stats().wal_commits, before.wal_commits + 1);
        assert_eq!(stats().checkpoints, before.checkpoints, "a get has checkpointed");
        store.put("next", "1").unwrap();
        assert_eq!(stats().checkpoints, before.checkpoints + 1);
    });
}

#[test]
fn reads_do_not_extend_wal_due_for_checkpoint() {
    each_case_on_a_file(ENGINES, |sql| {
        let config = Config::new().sql_engine(sql).checkpoint_every(1);
        let (scratch, store, _clock) = expired(3 * ENOUGH, &config);
        let frames = || store.stats().unwrap().wal_frames;
        let counted = || counted(&store, &scratch);
        miss(&store, 0..ENOUGH);
        assert_eq!(counted(), (128, 128));
        // A checkpoint is due now, which a read does not do.
        let before = frames();
        miss(&store, ENOUGH..2 * ENOUGH);
        assert_eq!((frames(), counted()), (before, (64, 128)));
        store.put("a write", "1").unwrap();
        assert_eq!(counted(), (65, 65));
        miss(&store, 2 * ENOUGH..3 * ENOUGH);
        assert_eq!(counted(), (1, 1));
    });
}

/// A write or a close removes noted rows however long the WAL is. It waits for a checkpoint only if
/// `checkpoint_every` demands one.
#[test]
fn write_and_close_remove_expired_rows_despite_long_wal() {
    each_case_on_a_file(ENGINES, |sql| {
        let config = Config::new().sql_engine(sql).checkpoint_every(u32::MAX);
        let (scratch, store, _clock) = expired(10, &config);
        store
            .transaction(|tx| (0..5_000).try_for_each(|n: u32| tx.put(n.to_be_bytes(), vec![7; 3_000])))
            .unwrap();
        assert!(store.stats().unwrap().wal_frames > 4_000);
        let counted = || counted(&store, &scratch);
        store.begin_write().unwrap();
        miss(&store, 0..1);
        assert_eq!(store.count().unwrap(), 5_009);
        store.commit().unwrap();
        assert_eq!(counted(), (5_009, 5_010));
        miss(&store, 1..3);
        assert_eq!(counted(), (5_007, 5_010));
        store.put(0u32.to_be_bytes(), "1").unwrap();
        assert_eq!(counted(), (5_007, 5_007));
        miss(&store, 3..6);
        store.close().unwrap();
        assert_eq!(rows(&scratch.path()), 5_004);
    });
}

/// Otherwise a commit could fail on a full disk because of a read.
#[test]
fn read_in_write_transaction_hides_expired_rows_and_writes_nothing() {
    each_case_on_a_file(ENGINES, |sql| {
        let (scratch, store, _clock) = expired(1_100, &Config::new().sql_engine(sql));
        let counted = || counted(&store, &scratch);
        let frames = || store.stats().unwrap().wal_frames;
        let before = frames();
        store.begin_write().unwrap();
        miss(&store, 0..100);
        assert!(!store.exists(numbered(100)).unwrap());
        assert_eq!(store.count().unwrap(), 999);
        store.commit().unwrap();
        assert_eq!((counted(), frames()), ((999, 1_100), before));
        // The next transaction begins with the removal.
        store.begin_write().unwrap();
        assert_eq!(counted(), (999, 999));
        miss(&store, 101..111);
        // A purge removes rows that reads have found, does not count them, and has its whole budget for others.
        assert_eq!(store.purge_step(Some(5), None).unwrap().deleted, 5);
        assert_eq!(counted(), (984, 999));
        assert_eq!(store.purge_expired().unwrap(), 984);
        store.rollback().unwrap();
        assert_eq!(counted(), (989, 999), "a rollback makes expired rows visible again");
        // At most 1024 rows are noted.
        let (scratch, store, _clock) = expired(1_100, &Config::new().sql_engine(sql));
        store.begin_write().unwrap();
        miss(&store, 0..1_100);
        assert_eq!(store.count().unwrap(), 76);
        store.commit().unwrap();
        store.close().unwrap();
        assert_eq!(rows(&scratch.path()), 76);
    });
}

#[test]
fn pending_removal_that_would_fail_does_not_disturb_transactions() {
    each_case_on_a_file(ENGINES, |sql| {
        let (scratch, store, _clock) = expired(1, &Config::new());
        store.close().unwrap();
        break_removals(&scratch.path());
        let store = Store::open_with(scratch.path(), &Config::new().sql_engine(sql)).unwrap();
        for (key, keys) in [("first", 1), ("second", 2)] {
            store.begin_write().unwrap();
            miss(&store, 0..1);
            assert_eq!(store.count().unwrap(), keys - 1);
            store.put(key, "1").unwrap();
            store.commit().unwrap();
            assert_eq!(store.count().unwrap(), keys);
        }
        assert_eq!(rows(&scratch.path()), 3);
    });
}

#[test]
fn expired_rows_found_by_reads_are_removed_in_batches() {
    each_case_on_a_file(ENGINES, |sql| {
        let (scratch, store, _clock) = expired(2 * ENOUGH + 1, &Config::new().sql_engine(sql));
        let commits = || store.stats().unwrap().wal_commits;
        let before = commits();
        for n in 0..=2 * ENOUGH {
            miss(&store, n..n + 1);
            miss(&store, n..n + 1);
            assert_eq!(commits() - before, ((n + 1) / ENOUGH) as u64);
            assert_eq!(store.count().unwrap(), (2 * ENOUGH - n) as u64);
        }
        let stats = store.stats().unwrap();
        let counters = (stats.ttl_expired, stats.ttl_purged);
        assert_eq!(counters, (2 * ENOUGH as u64 + 1, 0), "each row is counted once");
        assert_eq!(rows(&scratch.path()), 1);
        store.put("next", "1").unwrap();
        assert_eq!(rows(&scratch.path()), 1);
        assert_eq!(store.get("next").unwrap().as_deref(), Some(&b"1"[..]));
        store.integrity_check().unwrap();
    });
}

#[test]
fn next_write_removes_pending_rows_in_its_transaction() {
    /// A write, and the number of expired rows in the file after it.
    type Write = (fn(&Store), u64);
    let writes: [(&str, Write); 7] = [
        ("put", (|store| store.put("next", "1").unwrap(), 6)),
        ("delete", (|store| assert!(!store.delete("none").unwrap()), 6)),
        ("delete_range", (|store| assert_eq!(store.delete_range(&KeyRange::prefix(b"none")).unwrap(), 0), 6)),
        ("create_family", (|store| drop(store.create_family("new").unwrap()), 6)),
        ("increment", (|store| assert_eq!(store.increment("next", 1, Expiry::Never).unwrap(), 1), 6)),
        (
            "batch",
            (
                |store| {
                    let mut batch = store.batch();
                    batch.put(store, "next", "1", Expiry::Never).unwrap();
                    batch.commit().unwrap();
                },
                6,
            ),
        ),
        ("purge", (|store| assert_eq!(store.purge_expired().unwrap(), 6), 0)),
    ];
    each_case_on_a_file(writes, |(write, left)| {
        let (scratch, store, _clock) = expired(10, &Config::new());
        miss(&store, 0..4);
        let commits = || store.stats().unwrap().wal_commits;
        let before = commits();
        write(&store);
        assert_eq!(commits(), before + 1);
        miss(&store, 0..4);
        assert_eq!((store.stats().unwrap().ttl_expired, commits()), (4, before + 1));
        store.delete("next").unwrap();
        assert_eq!(rows(&scratch.path()), left);
        store.integrity_check().unwrap();
    });
}

#[test]
fn pending_removal_hides_row_only_for_its_handle() {
    each_case_on_a_file(ENGINES, |sql| {
        let (scratch, store, clock) = expired(5, &Config::new().sql_engine(sql));
        let other = scratch.open_at(&clock);
        assert_eq!(store.ttl(numbered(0)).unwrap(), JUST_EXPIRED);
        assert_eq!(store.ttl(numbered(0)).unwrap(), None);
        assert_eq!(expiring(&store).len(), 4);
        assert!(!store.exists(numbered(1)).unwrap());
        assert_eq!(store.ttl(numbered(1)).unwrap(), None);
        assert_eq!(store.get_many([numbered(0), numbered(4)]).unwrap(), [None, None]);
        assert_eq!(store.stats().unwrap().ttl_expired, 3);
        miss(&store, 2..3);
        assert_eq!((store.count().unwrap(), store.count_live().unwrap()), (2, 0));
        // In the middle of an iteration, for rows that it has read ahead.
        let mut walk = store.expiry_cursor(0, i64::MAX);
        assert!(walk.first().unwrap());
        miss(&store, 4..5);
        assert_eq!(common::rest(&mut walk), Vec::<Vec<u8>>::new());
        let next = || (store.next_expiry().unwrap(), store.next_expiry_all_families().unwrap());
        assert_eq!(next(), (Some(1_500), Some(1_500)));
        miss(&store, 3..4);
        assert_eq!(next(), (None, None));
        store.put_with_expiry("later", "1", Expiry::At(9_000)).unwrap();
        assert_eq!(store.next_expiry_all_families().unwrap(), Some(9_000));
        store.integrity_check().unwrap();
        assert_eq!(other.count().unwrap(), 1);
    });
}

#[test]
fn other_handles_and_backup_see_rows_pending_removal() {
    if common::is_of_a_file(WHY) {
        return;
    }
    let (scratch, store, clock) = expired(10, &Config::new());
    let other = scratch.open_at(&clock);
    miss(&store, 0..4);
    assert_eq!((store.count().unwrap(), other.count().unwrap()), (6, 10));
    assert_eq!(other.ttl(numbered(0)).unwrap(), JUST_EXPIRED);
    let copy = scratch.path().with_file_name("copy.db");
    store.backup(&copy, |_, _| true).unwrap();
    assert_eq!(rows(&copy), 10);
    assert_eq!(other.purge_expired().unwrap(), 9, "it had found one itself");
    assert_eq!((store.count().unwrap(), other.count().unwrap()), (0, 0));
    assert_eq!(store.purge_expired().unwrap(), 0);
    assert_eq!(store.stats().unwrap().ttl_purged, 0);
}

#[test]
fn purge_does_not_count_rows_pending_removal() {
    type Purge = fn(&Store) -> u64;
    let purges: [(&str, Purge); 2] = [
        ("in one call", |store| store.purge_expired().unwrap()),
        ("in steps", |store| {
            let first = store.purge_step(Some(15), None).unwrap();
            assert_eq!((first.deleted, first.more), (15, true));
            15 + store.purge_step(None, Some(Duration::from_secs(60))).unwrap().deleted
        }),
    ];
    each_case_on_a_file(purges, |purge| {
        let (scratch, store, _clock) = expired(50, &Config::new());
        miss(&store, 0..10);
        assert_eq!(store.count().unwrap(), 40);
        let purged = purge(&store);
        assert_eq!((purged, store.stats().unwrap().ttl_purged), (40, 40));
        assert_eq!(counted(&store, &scratch), (0, 0));
        store.put("alive", "1").unwrap();
        assert_eq!(store.count().unwrap(), 1);
    });
}

#[test]
fn key_rewritten_while_pending_removal_is_kept() {
    let writers = [("written by the same handle", false), ("written by another handle", true)];
    each_case_on_a_file(writers, |other_writes| {
        let (scratch, store, clock) = expired(40, &Config::new());
        let other = scratch.open_at(&clock);
        let writer = if other_writes { &other } else { &store };
        for n in 0..20 {
            miss(&store, n..n + 1);
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
        assert_eq!(counted(&store, &scratch), (36, 36));
        clock.set(3_000);
        let found = store.stats().unwrap().ttl_expired;
        (0..20).filter(|n| n % 4 == 1).for_each(|n| miss(&store, n..n + 1));
        assert_eq!(store.stats().unwrap().ttl_expired, found + 5, "it has expired again");
        assert_eq!(store.count().unwrap(), 31);
        assert_eq!(store.get(numbered(4)).unwrap().as_deref(), Some(&b"new"[..]));
        store.integrity_check().unwrap();
    });
}

#[test]
fn row_rewritten_with_same_expiry_is_not_pending_removal() {
    if common::is_of_a_file(WHY) {
        return;
    }
    let (scratch, store, _clock) = expired(2, &Config::new());
    miss(&store, 0..1);
    store.put_with_expiry(numbered(0), "again", Expiry::At(1_500)).unwrap();
    assert_eq!(store.count().unwrap(), 2);
    miss(&store, 0..1);
    store.begin_write().unwrap();
    assert_eq!(rows(&scratch.path()), 1, "a write transaction begins without what was found expired");
    store.put_with_expiry(numbered(0), "again", Expiry::At(1_500)).unwrap();
    assert_eq!(store.count().unwrap(), 2);
    store.rollback().unwrap();
    assert_eq!(store.count().unwrap(), 1);
}

#[test]
fn row_live_again_by_other_clock_is_visible_and_kept() {
    type End = fn(&Store);
    let ends: [(&str, End); 2] = [
        ("a close follows", |store| store.close().unwrap()),
        ("writes follow", |store| {
            store.put("next", "1").unwrap();
            store.delete("next").unwrap();
        }),
    ];
    each_case_on_a_file(ends, |end| {
        let (scratch, store, _clock) = expired(3, &Config::new());
        miss(&store, 0..2);
        assert_eq!(store.count().unwrap(), 1);
        TestClock::at(1_400).drive(&store);
        assert_eq!(store.count().unwrap(), 3);
        assert_eq!(expiring(&store).len(), 3);
        assert_eq!(store.next_expiry().unwrap(), Some(1_500));
        assert!(store.get(numbered(0)).unwrap().is_some());
        end(&store);
        assert_eq!(rows(&scratch.path()), 3);
    });
}

#[test]
fn pending_rows_stay_hidden_while_other_handle_writes() {
    each_case_on_a_file(ENGINES, |sql| {
        let (scratch, store, clock) = expired(2_000, &Config::new().sql_engine(sql));
        let other = scratch.open_at(&clock);
        other.begin_write().unwrap();
        other.put("theirs", "1").unwrap();
        miss(&store, 0..200);
        assert_eq!(store.count().unwrap(), 1_800);
        // The number of noted rows is limited.
        miss(&store, 200..2_000);
        assert_eq!(store.count().unwrap(), 2_000 - 1_024);
        assert_eq!(store.stats().unwrap().errors, 0);
        other.commit().unwrap();
        miss(&store, 1_999..2_000);
        assert_eq!(store.count().unwrap(), 2_001 - 1_024 - 1);
        assert_eq!(rows(&scratch.path()), 2_001 - 1_024);
        store.put("next", "1").unwrap();
        assert_eq!(rows(&scratch.path()), 2_001 - 1_024);
        store.integrity_check().unwrap();
    });
}

#[test]
fn family_drop_discards_its_pending_removals() {
    let droppers = [("dropped by the same handle", false), ("dropped by another handle", true)];
    each_case_on_a_file(droppers, |other_drops| {
        let (scratch, store, clock) = expired(2, &Config::new());
        let other = scratch.open_at(&clock);
        for round in 0..2 {
            let family = store.create_family("family").unwrap();
            family.put_with_expiry("dead", "1", Expiry::At(1_500)).unwrap();
            assert_eq!(family.get("dead").unwrap(), None);
            drop(family);
            if other_drops { &other } else { &store }.drop_family("family").unwrap();
            miss(&store, round..round + 1);
            store.put("next", "1").unwrap();
        }
        assert_eq!(rows(&scratch.path()), 1);
        assert_eq!(store.stats().unwrap().errors, 0);
        store.integrity_check().unwrap();
    });
}

#[test]
fn close_or_last_drop_removes_pending_rows() {
    type End = fn(Store);
    let ends: [(&str, End); 2] = [("close", |store| store.close().unwrap()), ("drop", drop)];
    each_case_on_a_file(ends, |end| {
        let (scratch, store, _clock) = expired(5, &Config::new());
        miss(&store, 0..2);
        store.begin_read().unwrap(); // ended by the close
        end(store);
        assert_eq!(rows(&scratch.path()), 3);
    });
}

#[test]
fn failing_lazy_removal_fails_no_write_and_hides_rows() {
    each_case_on_a_file(ENGINES, |sql| {
        let (scratch, store, _clock) = expired(2 * ENOUGH, &Config::new());
        store.close().unwrap();
        break_removals(&scratch.path());
        let store = Store::open_with(scratch.path(), &Config::new().sql_engine(sql)).unwrap();
        let rest = 2 * ENOUGH as u64;
        for n in 0..3 {
            miss(&store, n..n + 1);
            store.put("next", n.to_string()).unwrap();
            assert_eq!(store.get("next").unwrap(), Some(n.to_string().into_bytes()));
            assert_eq!(store.count().unwrap(), rest - n as u64);
        }
        miss(&store, 3..2 * ENOUGH);
        assert_eq!((store.count().unwrap(), store.stats().unwrap().errors), (1, 0));
        assert_eq!(rows(&scratch.path()), rest + 1);
    });
}

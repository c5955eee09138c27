//! Explicit transactions: one at a time, atomic, isolated from other handles, and ended only by
//! commit, rollback or close.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use crate::common::{self, Scratch, TestClock, keys, kind, memory, numbered, pair_in_delete_mode, python};
use kvstore::{Config, Error, ErrorKind, Eviction, Expiry, Result, SizeLimit, Store};

// ---- beginning and ending ------------------------------------------------------------------------

/// A rollback discards what SQLite has cached about tables created in the transaction, also if a
/// part of the transaction was undone before.
#[test]
fn rollback_forgets_new_tables_after_undone_write() {
    if common::is_of_a_file("it is about SQLite's schema") {
        return;
    }
    let scratch = Scratch::new();
    let store = scratch.open();
    store.set_size_limit(Some(SizeLimit::new(1 << 20, Eviction::None))).unwrap();
    store.begin_write().unwrap();
    store.create_family("a").unwrap().put("k", "1").unwrap();
    assert_eq!(kind(store.put("large", vec![1; 2 << 20])), ErrorKind::Full);
    store.stats().unwrap();
    store.rollback().unwrap();
    let b = store.create_family("b").unwrap();
    drop(b);
    store.drop_family("b").unwrap();
    assert_eq!(store.family_names().unwrap(), [""; 0]);
    store.integrity_check().unwrap();
    let tables = python(
        &scratch.path(),
        "print(con.execute(\"select count(*) from sqlite_schema where name like '%:b'\").fetchone()[0])",
    );
    assert_eq!(tables, "0");
}

#[test]
fn commit_keeps_and_rollback_discards_writes() {
    let store = memory();
    store.put("a", "1").unwrap();
    store.begin_write().unwrap();
    store.put("a", "2").unwrap();
    store.put("b", "2").unwrap();
    store.rollback().unwrap();
    assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    assert!(!store.exists("b").unwrap());
    store.begin_write().unwrap();
    assert!(store.delete("a").unwrap());
    store.put("b", "3").unwrap();
    store.commit().unwrap();
    assert_eq!(keys(store.iter()), [b"b"]);
}

#[test]
fn second_begin_fails_and_first_transaction_continues() {
    let store = memory();
    for first in [false, true] {
        common::begin(&store, first).unwrap();
        if first {
            store.put("a", "1").unwrap();
        }
        for second in [false, true] {
            assert_eq!(kind(common::begin(&store, second)), ErrorKind::Error);
        }
        assert_eq!(kind(store.transaction(|tx| tx.put("x", "1"))), ErrorKind::Error);
        store.commit().unwrap();
    }
    assert_eq!(keys(store.iter()), [b"a"]);
}

#[test]
fn commit_and_rollback_without_a_transaction_fail() {
    let store = memory();
    for _ in 0..2 {
        assert_eq!(kind(store.commit()), ErrorKind::Error);
        assert_eq!(kind(store.rollback()), ErrorKind::Error);
        store.begin_write().unwrap();
        store.commit().unwrap();
    }
}

#[test]
fn reads_in_transaction_see_its_own_writes() {
    let store = memory();
    store.put("old", "1").unwrap();
    store.begin_write().unwrap();
    let family = store.create_family("f").unwrap();
    family.put("a", "1").unwrap();
    store.delete("old").unwrap();
    store.put_with_ttl("new", vec![7; 5_000], Duration::from_secs(100)).unwrap();
    assert_eq!(store.family_names().unwrap(), ["f"]);
    assert_eq!(keys(family.iter()), [b"a"]);
    assert_eq!(keys(store.iter()), [b"new"]);
    assert_eq!(store.get("new").unwrap(), Some(vec![7; 5_000]));
    assert!(store.ttl("new").unwrap().is_some());
    assert_eq!(store.count().unwrap(), 1);
    store.integrity_check().unwrap();
    store.commit().unwrap();
    store.integrity_check().unwrap();
}

#[test]
fn transaction_is_atomic_across_families_and_row_parts() {
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    let store = scratch.open_at(&clock);
    let family = store.create_family("f").unwrap();
    store.put_with_expiry("longer", "1", Expiry::At(2_000)).unwrap();
    family.put_with_expiry("permanent", vec![1; 5_000], Expiry::At(2_000)).unwrap();
    family.put("temporary", "1").unwrap();
    let change = || {
        store.put_with_expiry("longer", vec![2; 9_000], Expiry::At(3_000)).unwrap();
        family.put("permanent", "2").unwrap();
        family.put_with_expiry("temporary", vec![2; 2_000], Expiry::At(2_500)).unwrap();
        store.put_with_expiry("new", "2", Expiry::At(9_000)).unwrap();
        store.create_family("g").unwrap().put_with_expiry("a", vec![2; 5_000], Expiry::At(9_000)).unwrap();
    };
    store.begin_write().unwrap();
    change();
    store.rollback().unwrap();
    store.integrity_check().unwrap();
    assert_eq!(keys(store.iter()), [b"longer"]);
    assert_eq!(store.get("longer").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(family.get("permanent").unwrap(), Some(vec![1; 5_000]));
    assert_eq!(family.ttl("temporary").unwrap(), Some(kvstore::Ttl::None));
    assert_eq!(store.family_names().unwrap(), ["f"]);
    store.begin_write().unwrap();
    change();
    store.commit().unwrap();
    store.integrity_check().unwrap();
    clock.set(2_500);
    let other = scratch.open_at(&clock);
    assert_eq!(keys(other.iter()), [&b"longer"[..], b"new"]);
    assert_eq!(keys(other.family("f").unwrap().iter()), [b"permanent"]);
    assert_eq!(other.family("g").unwrap().count().unwrap(), 1);
}

#[test]
fn rollback_undoes_family_creation_and_drop() {
    let store = memory();
    store.create_family("old").unwrap().put_with_ttl("a", vec![1; 5_000], Duration::from_secs(100)).unwrap();
    store.begin_write().unwrap();
    store.drop_family("old").unwrap();
    drop(store.create_family("new").unwrap());
    assert_eq!(store.family_names().unwrap(), ["new"]);
    store.rollback().unwrap();
    assert_eq!(store.family_names().unwrap(), ["old"]);
    assert_eq!(store.family("old").unwrap().get("a").unwrap(), Some(vec![1; 5_000]));
    store.integrity_check().unwrap();
}

#[test]
fn failed_call_keeps_transaction_open_and_unchanged() {
    let store = memory();
    store.begin_write().unwrap();
    store.put("a", "1").unwrap();
    assert_eq!(kind(store.put("", "1")), ErrorKind::Error);
    assert_eq!(kind(store.put_with_expiry("a", "1", Expiry::At(-1))), ErrorKind::Error);
    assert_eq!(kind(store.put("a", vec![1; 11 * 1024 * 1024])), ErrorKind::Error);
    assert_eq!(kind(store.drop_family("missing")), ErrorKind::NotFound);
    assert_eq!(kind(store.family("missing")), ErrorKind::NotFound);
    store.put("b", "1").unwrap();
    store.commit().unwrap();
    assert_eq!(keys(store.iter()), [b"a", b"b"]);
}

// ---- read transactions ---------------------------------------------------------------------------

#[test]
fn read_transaction_is_snapshot_while_other_handle_writes() {
    let scratch = Scratch::new();
    let (store, other) = (scratch.open(), scratch.open());
    store.put("a", "1").unwrap();
    store.begin_read().unwrap();
    other.put("a", "2").unwrap();
    other.put_with_ttl("b", "2", Duration::from_secs(100)).unwrap();
    other.create_family("f").unwrap();
    assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(keys(store.iter()), [b"a"]);
    assert_eq!(store.count().unwrap(), 1);
    assert_eq!(store.ttl("b").unwrap(), None);
    assert!(store.family_names().unwrap().is_empty());
    store.integrity_check().unwrap();
    store.commit().unwrap();
    assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(keys(store.iter()), [b"a", b"b"]);
    assert_eq!(store.family_names().unwrap(), ["f"]);
}

#[test]
fn snapshot_is_taken_at_begin_not_at_first_read() {
    let scratch = Scratch::new();
    let (store, other) = (scratch.open(), scratch.open());
    store.put("a", "1").unwrap();
    store.begin_read().unwrap();
    other.put("a", "2").unwrap();
    assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    store.rollback().unwrap();
    assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn read_transaction_refuses_writes_and_keeps_snapshot() {
    let store = memory();
    store.put("a", "1").unwrap();
    let family = store.create_family("f").unwrap();
    store.begin_read().unwrap();
    let refused = [
        kind(store.put("a", "2")),
        kind(store.put_with_ttl("a", "2", Duration::from_secs(1))),
        kind(store.put_if_absent("b", "2", Expiry::Never)),
        kind(store.delete("a")),
        kind(store.clear()),
        kind(family.put("a", "2")),
        kind(store.create_family("g")),
        kind(store.drop_family("f")),
        kind(store.incremental_vacuum(None)),
    ];
    assert!(refused.iter().all(|kind| *kind == ErrorKind::ReadOnly), "{refused:?}");
    assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    store.commit().unwrap();
    store.put("a", "2").unwrap();
}

#[test]
fn reads_never_end_open_transaction() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("a", "1").unwrap();
    for write in [false, true] {
        common::begin(&store, write).unwrap();
        store.get("a").unwrap();
        store.exists("b").unwrap();
        store.ttl("a").unwrap();
        store.count().unwrap();
        assert_eq!(store.iter().count(), 1);
        store.family_names().unwrap();
        store.stats().unwrap();
        store.reset_stats().unwrap();
        store.integrity_check().unwrap();
        store.sync().unwrap();
        assert_eq!(kind(store.begin_read()), ErrorKind::Error, "the transaction was ended");
        store.rollback().unwrap();
    }
}

// ---- other handles -------------------------------------------------------------------------------

#[test]
fn second_server_writer_blocks_only_on_same_rows() {
    if !common::are_on_a_server() {
        return;
    }
    let scratch = Scratch::new();
    let (store, other) = (scratch.open(), scratch.open());
    store.put("a", "1").unwrap();
    store.begin_write().unwrap();
    store.put("a", "2").unwrap();
    assert_eq!(kind(other.put("a", "3")), ErrorKind::Busy);
    assert_eq!(other.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    other.put("b", "1").unwrap();
    other.begin_write().unwrap();
    other.put("c", "1").unwrap();
    assert_eq!(kind(other.delete("a")), ErrorKind::Locked);
    assert_eq!(kind(other.commit()), ErrorKind::Locked);
    other.rollback().unwrap();
    store.commit().unwrap();
    assert_eq!(keys(other.iter()), [b"a", b"b"]);
    assert_eq!(other.get("a").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn second_writer_is_busy_but_can_read() {
    if common::is_of_a_file("on a server two writers do not exclude each other") {
        return;
    }
    let scratch = Scratch::new();
    let (store, other) = (scratch.open(), scratch.open());
    store.put("a", "1").unwrap();
    let family = other.create_family("f").unwrap();
    store.begin_write().unwrap();
    store.put("a", "2").unwrap();
    let busy = [
        kind(other.put("b", "1")),
        kind(other.delete("a")),
        kind(other.begin_write()),
        kind(family.put_with_ttl("b", "1", Duration::from_secs(1))),
        kind(other.create_family("g")),
        kind(other.transaction(|tx| tx.put("b", "1"))),
    ];
    assert!(busy.iter().all(|kind| *kind == ErrorKind::Busy), "{busy:?}");
    assert!(other.put("b", "1").unwrap_err().is_retryable());
    assert_eq!(other.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(keys(other.iter()), [b"a"]);
    other.begin_read().unwrap();
    assert_eq!(other.count().unwrap(), 1);
    other.commit().unwrap();
    store.commit().unwrap();
    other.put("b", "1").unwrap();
    assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn handle_opens_and_closes_during_other_write_transaction() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("a", "1").unwrap();
    store.begin_write().unwrap();
    store.put("b", "1").unwrap();
    for config in [Config::new(), Config::new().read_only(true)] {
        let other = scratch.open_with(&config);
        assert_eq!(keys(other.iter()), [b"a"]);
        other.close().unwrap();
    }
    store.commit().unwrap();
    assert_eq!(keys(scratch.open().iter()), [b"a", b"b"]);
}

#[test]
fn busy_timeout_waits_for_other_writer() {
    let scratch = Scratch::new();
    let store = scratch.open();
    let patient = scratch.open_with(&Config::new().busy_timeout(Duration::from_secs(60)));
    let started = Barrier::new(2);
    store.put_with_expiry("dead", "1", Expiry::At(1)).unwrap();
    store.begin_write().unwrap();
    store.put("a", "1").unwrap();
    // A lazy removal does not wait, and does not change the timeout.
    assert!(!patient.exists("dead").unwrap());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            started.wait();
            patient.put("b", "1")
        });
        started.wait();
        // Whichever comes first, the put must succeed.
        for n in 0..1_000 {
            store.put(numbered(n), "1").unwrap();
        }
        store.commit().unwrap();
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(store.iter().count(), 1_002);
}

/// Returns a store in DELETE mode, and another handle of it whose read transaction blocks commits.
fn with_blocking_reader() -> Option<(Scratch, Store, Store)> {
    let (scratch, store, reader) = pair_in_delete_mode(&common::without_wait())?;
    store.put("a", "1").unwrap();
    reader.begin_read().unwrap();
    Some((scratch, store, reader))
}

#[test]
fn commit_blocked_by_reader_in_delete_mode_can_be_retried() {
    let Some((_scratch, store, reader)) = with_blocking_reader() else { return };
    store.begin_write().unwrap();
    store.put("b", "1").unwrap();
    assert_eq!(kind(store.commit()), ErrorKind::Busy);
    assert_eq!(keys(reader.iter()), [b"a"]);
    store.put("c", "1").unwrap();
    reader.commit().unwrap();
    store.commit().unwrap();
    assert_eq!(keys(reader.iter()), [b"a", b"b", b"c"]);
    store.integrity_check().unwrap();
}

#[test]
fn write_blocked_by_reader_in_delete_mode_changes_nothing() {
    let Some((_scratch, store, reader)) = with_blocking_reader() else { return };
    assert_eq!(kind(store.put_with_ttl("a", vec![2; 5_000], Duration::from_secs(9))), ErrorKind::Busy);
    reader.commit().unwrap();
    assert_eq!(store.get_with_ttl("a").unwrap(), Some((b"1".to_vec(), kvstore::Ttl::None)));
    assert_eq!(kind(store.commit()), ErrorKind::Error);
    store.put("a", "2").unwrap();
    store.integrity_check().unwrap();
}

// ---- closures ------------------------------------------------------------------------------------

#[test]
fn closure_commits_on_ok_and_returns_value() {
    let store = memory();
    let family = store.create_family("f").unwrap();
    let counted = store.transaction(|tx| {
        tx.put("a", "1")?;
        family.put("b", "1")?;
        tx.count()
    });
    assert_eq!(counted, Ok(1));
    assert_eq!(kind(store.commit()), ErrorKind::Error);
    assert_eq!((keys(store.iter()), keys(family.iter())), (vec![b"a".to_vec()], vec![b"b".to_vec()]));
}

#[test]
fn closure_rolls_back_on_error_of_caller_type() {
    #[derive(Debug, PartialEq)]
    enum Mine {
        Stop,
        Store(Error),
    }
    impl From<Error> for Mine {
        fn from(e: Error) -> Mine {
            Mine::Store(e)
        }
    }
    let store = memory();
    let stopped: Result<(), Mine> = store.transaction(|tx| {
        tx.put("a", "1")?;
        Err(Mine::Stop)
    });
    assert_eq!(stopped, Err(Mine::Stop));
    let failed: Result<(), Mine> = store.transaction(|tx| {
        tx.put("a", "1")?;
        tx.put("", "1")?;
        Ok(())
    });
    assert!(matches!(failed, Err(Mine::Store(e)) if e.kind() == ErrorKind::Error));
    assert_eq!(store.count().unwrap(), 0);
    store.put("a", "1").unwrap();
}

#[test]
fn panicking_closure_is_rolled_back_and_store_stays_usable() {
    let store = memory();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _: Result<()> = store.transaction(|tx| {
            tx.put("a", "1")?;
            panic!("as the test wants");
        });
    }));
    assert!(panicked.is_err());
    assert_eq!(store.count().unwrap(), 0);
    store.transaction(|tx| tx.put("b", "1")).unwrap();
    assert_eq!(keys(store.iter()), [b"b"]);
}

#[test]
fn snapshot_closure_is_consistent_and_refuses_writes() {
    let scratch = Scratch::new();
    let (store, other) = (scratch.open(), scratch.open());
    store.put("a", "1").unwrap();
    let seen = store.snapshot(|tx| {
        other.put("a", "2")?;
        assert_eq!(kind(tx.put("b", "1")), ErrorKind::ReadOnly);
        tx.get("a")
    });
    assert_eq!(seen.unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn closure_ending_its_own_transaction_gets_error() {
    let store = memory();
    assert_eq!(
        kind(store.transaction(|tx| {
            tx.put("a", "1")?;
            tx.rollback()
        })),
        ErrorKind::Error
    );
    assert_eq!(store.count().unwrap(), 0);
    store.put("b", "1").unwrap();
}

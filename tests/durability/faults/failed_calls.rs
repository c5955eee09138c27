//! Particular failing calls to the VFS, and the state of the store after each.

use std::fs;
use std::ops::ControlFlow;

use super::delete_full;
use crate::common::cases::{ENGINES, each_case};
use crate::shim::{Call, Fault, Plan, Watch};
use kvstore::{Config, Error, ErrorKind, Expiry, Family, JournalMode, KeyRange, Store, SyncLevel};
use rusqlite::ffi;

/// A call that creates the tables of a family.
type Making = fn(&Store, &Family) -> Result<(), Error>;

/// Makes every read that may use the tables. Their results are compared elsewhere, by `Contents`.
fn read_everything(store: &Store, families: &[Family]) {
    let _ = (store.family_names(), store.size_limit(), store.next_expiry());
    for family in families {
        let _ = (family.count(), family.get("large"), family.ttl("large"), family.next_expiry());
        let _ = (family.default_ttl(), family.count_live(), family.iter().next().transpose());
    }
}

#[test]
fn partially_created_tables_are_never_visible() {
    const LATER: i64 = 4_000_000_000_000;
    let makings: [Making; 3] = [
        |_, family| family.put_with_expiry("k", [1; 3000], Expiry::At(LATER)),
        |_, family| family.put("k", [1; 9000]),
        |store, _| store.create_family("made").map(drop),
    ];
    let mut failed = 0;
    for (journal, call, code) in [
        (JournalMode::Wal, Call::Read, ffi::SQLITE_IOERR_READ),
        (JournalMode::Delete, Call::Read, ffi::SQLITE_IOERR_READ),
        (JournalMode::Delete, Call::Write, ffi::SQLITE_FULL),
    ] {
        for (making, count) in makings.iter().flat_map(|making| [(making, 1), (making, 12)]) {
            for nth in 1.. {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("store.db");
                let watch = Watch::on(dir.path(), false);
                let config = Config::new().journal_mode(journal).sync(SyncLevel::Off).mmap_size(0);
                let store = Store::open_with(&path, &config).unwrap();
                let families: Vec<_> =
                    (0..count).map(|n| store.create_family(&format!("f{n}")).unwrap()).collect();
                families.iter().for_each(|family| family.put("b0", [0; 2000]).unwrap());
                store.begin_write().unwrap();
                watch.fail(Plan { call, nth, fault: Fault::Code(code), from_then_on: false });
                let made = making(&store, &families[0]);
                let is_over = watch.injected() == 0;
                watch.heal();
                if made.is_err() {
                    failed += 1;
                    assert_eq!(
                        families[0].count().unwrap(),
                        1,
                        "what the call did before it failed is shown"
                    );
                    read_everything(&store, &families);
                }
                store.rollback().unwrap();
                read_everything(&store, &families);
                for family in families.iter().rev() {
                    family.put("large", [1; 3000]).unwrap();
                    family.put_with_expiry("l", "v", Expiry::At(LATER)).unwrap();
                    assert_eq!((family.count().unwrap(), family.next_expiry().unwrap()), (3, Some(LATER)));
                }
                store.integrity_check().unwrap();
                store.close().unwrap();
                let store = Store::open_with(&path, &config).unwrap();
                assert_eq!(store.family_names().unwrap().len(), count);
                store.integrity_check().unwrap();
                if is_over {
                    break;
                }
            }
        }
    }
    assert!(failed > 20, "{failed}");
}

/// The rollback of the call cannot read either. SQLite reports that as damage.
#[test]
fn permanent_read_error_is_reported_as_io_not_corruption() {
    let mut failed = 0;
    for nth in 1.. {
        let dir = tempfile::tempdir().unwrap();
        let watch = Watch::on(dir.path(), false);
        let config = Config::new().journal_mode(JournalMode::Delete).sync(SyncLevel::Off);
        let config = config.mmap_size(0).cache_pages(10).page_size(1024);
        let store = Store::open_with(dir.path().join("store.db"), &config).unwrap();
        for n in 0..40_u8 {
            store.put_with_expiry([n], [n; 1500], Expiry::At(4_000_000_000_000)).unwrap();
        }
        store.begin_write().unwrap();
        let mut batch = store.batch();
        for n in 0..40_u8 {
            batch.put(store.default_family(), [n], "new", Expiry::Never).unwrap();
        }
        watch.fail(Plan {
            call: Call::Read,
            nth,
            fault: Fault::Code(ffi::SQLITE_IOERR_READ),
            from_then_on: true,
        });
        let done = batch.commit();
        let is_over = watch.injected() == 0;
        watch.heal();
        if let Err(e) = done {
            failed += 1;
            assert_eq!(e.kind(), ErrorKind::Io, "read {nth}: {e}");
        }
        store.rollback().unwrap();
        assert!((0..40_u8).all(|n| store.get([n]).unwrap() == Some(vec![n; 1500])), "read {nth}");
        if is_over {
            break;
        }
    }
    assert!(failed > 10, "{failed}");
}

/// The system reports a failed write once. Here an automatic checkpoint gets the report.
#[test]
fn failed_auto_checkpoint_sync_fails_next_sync_once() {
    let dir = tempfile::tempdir().unwrap();
    let watch = Watch::on(dir.path(), false);
    let store = Store::open_with(dir.path().join("store.db"), &Config::new().checkpoint_every(2)).unwrap();
    store.put("a", "1").unwrap();
    let fault = Fault::Code(ffi::SQLITE_IOERR);
    watch.fail(Plan { call: Call::Sync, nth: 1, fault, from_then_on: false });
    store.put("b", "2").unwrap();
    assert_eq!(watch.injected(), 1, "no checkpoint");
    assert_eq!(store.sync().unwrap_err().kind(), ErrorKind::Io);
    store.sync().unwrap();
}

#[test]
fn failed_blocking_checkpoint_sync_fails_next_sync_once() {
    each_case(ENGINES, |sql| {
        let dir = tempfile::tempdir().unwrap();
        let watch = Watch::on(dir.path(), false);
        let config = Config::new().wal_pages(16).sql_engine(sql);
        let store = Store::open_with(dir.path().join("store.db"), &config).unwrap();
        store.put("short", "1").unwrap(); // the beginning of a WAL is synced
        let fault = Fault::Code(ffi::SQLITE_IOERR);
        watch.fail(Plan { call: Call::Sync, nth: 1, fault, from_then_on: false });
        store.put("long", [7; 200_000]).unwrap(); // more pages than the WAL is to have
        assert_eq!(watch.injected(), 1, "no checkpoint");
        assert_eq!(store.sync().unwrap_err().kind(), ErrorKind::Io);
        store.sync().unwrap();
    });
}

#[test]
fn check_with_read_error_never_reports_success() {
    let reads = [
        ("B-tree engine, one read", (false, false)),
        ("B-tree engine, all reads", (false, true)),
        ("SQL engine, one read", (true, false)),
        ("SQL engine, all reads", (true, true)),
    ];
    each_case(reads, |(sql, from_then_on)| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let watch = Watch::on(dir.path(), false);
        let config = Config::new().mmap_size(0).cache_pages(10).sql_engine(sql);
        let store = Store::open_with(&path, &config).unwrap();
        for n in 0..200_u8 {
            store.put_with_expiry([n], [n; 200], Expiry::At(4_000_000_000_000)).unwrap();
        }
        store.put("large", [7; 20_000]).unwrap();
        store.close().unwrap();
        let (mut stopped, mut nth) = (0, 0);
        loop {
            nth += 1;
            let store = Store::open_with(&path, &config).unwrap();
            let fault = Fault::Code(ffi::SQLITE_IOERR_READ);
            watch.fail(Plan { call: Call::Read, nth, fault, from_then_on });
            let checked = store.check(|_| ControlFlow::Continue(())).unwrap();
            let is_over = watch.injected() == 0;
            watch.heal();
            if is_over {
                assert!(checked.is_ok(), "read {nth}: {checked:?}");
                break;
            }
            assert!(checked.file_errors > 0 && !checked.is_ok(), "read {nth}: {checked:?}");
            stopped += u32::from(checked.stopped_by.is_some_and(|why| why.kind() == ErrorKind::Io));
            assert!(store.check(|_| ControlFlow::Continue(())).unwrap().is_ok(), "read {nth}");
        }
        assert!(nth > 20 && stopped > 0, "{stopped} of {nth}");
    });
}

/// SQLite has rolled back the transaction. Until the caller ends it, reads see the last committed
/// state.
#[test]
fn failed_commit_is_invisible_even_before_rollback() {
    each_case(ENGINES, |sql| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let watch = Watch::on(dir.path(), false);
        let config = Config::new().sql_engine(sql);
        let (store, other) =
            (Store::open_with(&path, &config).unwrap(), Store::open_with(&path, &config).unwrap());
        store.put_with_expiry("k", "1", Expiry::At(4_000_000_000_000)).unwrap();
        store.begin_write().unwrap();
        store.delete("k").unwrap();
        let lost = store.create_family("lost").unwrap();
        (0..100_u8).for_each(|n| lost.put([n], "lost").unwrap());
        assert_eq!(store.next_expiry_all_families().unwrap(), None);
        let mut cursor = lost.cursor(KeyRange::all(), kvstore::Direction::Forward);
        assert!(cursor.first().unwrap());
        let full = Fault::Code(ffi::SQLITE_FULL);
        watch.fail(Plan { call: Call::Write, nth: 1, fault: full, from_then_on: true });
        assert_eq!(store.commit().unwrap_err().kind(), ErrorKind::Full);
        watch.heal();
        assert_eq!(store.next_expiry_all_families().unwrap(), Some(4_000_000_000_000));
        assert!(!matches!(cursor.next(), Ok(true)), "{:?}", cursor.key());
        let kept = other.create_family("kept").unwrap();
        (0..100_u8).for_each(|n| kept.put([n], "secret").unwrap());
        assert!(!matches!(lost.get([7]), Ok(Some(_))), "{:?}", lost.get([7]));
        assert_eq!(store.family("kept").unwrap().get([7]).unwrap().as_deref(), Some(&b"secret"[..]));
        assert_eq!(store.count_live().unwrap(), 1);
        store.rollback().unwrap();
        assert!(store.family("lost").is_err() && store.exists("k").unwrap());
        store.integrity_check().unwrap();
    });
}

/// A commit that fails may have happened, so the write is not run again. It is run again without
/// the noted expired rows only if these are the cause of the failure.
#[test]
fn write_with_lazy_removal_happens_at_most_once_on_failure() {
    let (mut hits, mut happened) = (0, 0);
    for exclusive in [false, true] {
        for (call, fault) in [
            (Call::Sync, Fault::Code(ffi::SQLITE_IOERR)),
            (Call::Delete, Fault::Code(ffi::SQLITE_IOERR_DELETE)),
            (Call::Write, Fault::Code(ffi::SQLITE_FULL)),
        ] {
            for nth in 1.. {
                let dir = tempfile::tempdir().unwrap();
                let watch = Watch::on(dir.path(), false);
                let config = delete_full().exclusive(exclusive);
                let store = Store::open_with(dir.path().join("store.db"), &config).unwrap();
                store.put_with_expiry("dead", "1", Expiry::At(1)).unwrap();
                store.increment("count", 1, Expiry::Never).unwrap();
                assert_eq!(store.get("dead").unwrap(), None); // is noted
                watch.fail(Plan { call, nth, fault, from_then_on: false });
                let sum = store.increment("count", 1, Expiry::Never);
                let is_over = watch.injected() == 0;
                watch.heal();
                let count = store.increment("count", 0, Expiry::Never).unwrap();
                let what = format!("{call:?} {nth}, exclusive {exclusive}: {sum:?}, and it is {count}");
                match sum {
                    Ok(sum) => assert!(sum == 2 && count == 2, "{what}"),
                    Err(_) => assert!(count == 1 || count == 2, "{what}"),
                }
                if is_over {
                    break;
                }
                hits += 1;
                happened += u32::from(sum.is_err() && count == 2);
                store.integrity_check().unwrap();
            }
        }
    }
    assert!(hits > 10 && happened > 0, "{hits}, {happened}");
}

/// An exclusive handle keeps its lock after a failed write. Otherwise the release of the lock shows
/// that the frames of the write are no longer needed.
#[test]
fn exclusive_store_is_readable_on_full_disk() {
    let handles = [
        ("B-tree engine, exclusive", (false, true)),
        ("SQL engine, exclusive", (true, true)),
        ("B-tree engine, shared", (false, false)),
    ];
    each_case(handles, |(sql, exclusive)| {
        let dir = tempfile::tempdir().unwrap();
        let watch = Watch::on(dir.path(), false);
        let config = Config::new().mmap_size(0).cache_pages(10).exclusive(exclusive).sql_engine(sql);
        let store = Store::open_with(dir.path().join("store.db"), &config).unwrap();
        for n in 0..200_u8 {
            store.put_with_expiry([n], [n; 200], Expiry::At(4_000_000_000_000)).unwrap();
        }
        let full = Fault::Code(ffi::SQLITE_FULL);
        watch.fail(Plan { call: Call::Write, nth: 1, fault: full, from_then_on: true });
        for n in 0..200_u8 {
            let put = store.put_with_expiry([n], [1; 300], Expiry::At(4_000_000_000_000 - i64::from(n)));
            assert_eq!(put.unwrap_err().kind(), ErrorKind::Full, "put {n}");
            assert_eq!(store.get([n]).unwrap().as_deref(), Some(&[n; 200][..]), "get {n}");
        }
        assert_eq!(store.count().unwrap(), 200);
        store.integrity_check().unwrap();
        store.stats().unwrap();
        assert!(watch.injected() > 0);
        watch.heal();
        store.put("room", "again").unwrap();
        store.integrity_check().unwrap();
        assert_eq!(store.count().unwrap(), 201);
    });
}

#[test]
fn exclusive_commit_with_failed_sync_stays_lost_after_crash() {
    let failures = [
        ("B-tree engine, after a full disk", (false, false)),
        ("B-tree engine, after a rollback", (false, true)),
        ("SQL engine, after a full disk", (true, false)),
        ("SQL engine, after a rollback", (true, true)),
    ];
    each_case(failures, |(sql, rolls_back)| {
        let dir = tempfile::tempdir().unwrap();
        let watch = Watch::on(dir.path(), false);
        let config = Config::new().sync(SyncLevel::Full).cache_pages(10).exclusive(true).sql_engine(sql);
        let path = dir.path().join("store.db");
        let store = Store::open_with(&path, &config).unwrap();
        store.put("before", "1").unwrap();
        if rolls_back {
            // More than fits into the cache, so that some of it is written to the log.
            store.begin_write().unwrap();
            for n in 0..3000_u32 {
                store.put(n.to_be_bytes(), [7; 100]).unwrap();
            }
            store.rollback().unwrap();
        } else {
            let fault = Fault::Code(ffi::SQLITE_FULL);
            watch.fail(Plan { call: Call::Write, nth: 1, fault, from_then_on: true });
            let put = store.put_with_expiry("never", "1", Expiry::At(4_000_000_000_000));
            assert_eq!(put.unwrap_err().kind(), ErrorKind::Full);
            watch.heal();
        }
        let fault = Fault::Code(ffi::SQLITE_IOERR);
        watch.fail(Plan { call: Call::Sync, nth: 1, fault, from_then_on: false });
        assert_eq!(store.put("unsynced", "1").unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(watch.injected(), 1);
        watch.heal();
        assert_eq!(store.get("unsynced").unwrap(), None);
        let crashed = tempfile::tempdir().unwrap();
        for suffix in ["", "-wal"] {
            let name = format!("store.db{suffix}");
            fs::copy(dir.path().join(&name), crashed.path().join(&name)).unwrap();
        }
        let after = Store::open(crashed.path().join("store.db")).unwrap();
        assert_eq!(after.get("unsynced").unwrap(), None);
        assert_eq!(after.get("before").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(after.count().unwrap(), 1);
    });
}

/// SQLite's VFS reports EIO as a damaged file system, which SQLite treats as a damaged database.
#[test]
fn read_error_is_not_reported_as_damage() {
    let dir = tempfile::tempdir().unwrap();
    let watch = Watch::on(dir.path(), false);
    for (mode, sql) in [(JournalMode::Wal, false), (JournalMode::Wal, true), (JournalMode::Delete, false)] {
        let path = dir.path().join(format!("{mode:?}-{sql}.db"));
        let config = Config::new().mmap_size(0).cache_pages(10).journal_mode(mode).sql_engine(sql);
        let store = Store::open_with(&path, &config).unwrap();
        for n in 0..2000_u32 {
            store.put(n.to_be_bytes(), [7; 100]).unwrap();
        }
        store.close().unwrap();
        let mut failed = 0;
        for nth in 1..40 {
            for what in 0..5 {
                let store = Store::open_with(&path, &config).unwrap();
                let fault = Fault::Code(ffi::SQLITE_IOERR_CORRUPTFS);
                watch.fail(Plan { call: Call::Read, nth, fault, from_then_on: false });
                let done = match what {
                    0 => store.integrity_check(),
                    1 => store.get(nth.to_be_bytes()).map(drop),
                    2 => store.put("a", "1"),
                    3 => store.delete_range(&KeyRange::prefix(&[0, 0, 0])).map(drop),
                    _ => store.incremental_vacuum(None),
                };
                let injected = watch.injected() > 0;
                watch.heal();
                if let Err(e) = done {
                    assert!(injected && e.kind() == ErrorKind::Io, "{mode:?}, {what}, read {nth}: {e:?}");
                    failed += 1;
                }
            }
        }
        assert!(failed > 20, "{failed}");
    }
}

/// After a successful open, the store has all its settings.
#[test]
fn failed_sync_in_creation_never_leaves_wrong_journal_mode() {
    let (mut failed, mut nth) = (0, 0);
    loop {
        nth += 1;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let watch = Watch::on(dir.path(), false);
        let fault = Fault::Code(ffi::SQLITE_IOERR);
        watch.fail(Plan { call: Call::Sync, nth, fault, from_then_on: false });
        let opened = Store::open_with(&path, &Config::new());
        let is_over = watch.injected() == 0;
        watch.heal();
        match opened {
            Ok(store) => {
                assert_eq!(std::fs::read(&path).unwrap()[18], 2, "sync {nth}: not in WAL mode");
                store.put("a", "1").unwrap();
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Io, "sync {nth}: {e}");
                failed += 1;
            }
        }
        if is_over {
            break;
        }
    }
    assert!(failed >= 3, "{failed} opens failed");
}

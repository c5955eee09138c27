//! Files that are deleted, moved or replaced while a store is open.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use super::{MODULE, configs, refused};
use crate::common::cases::each_case;
use crate::common::other::Other;
use crate::common::{self, Scratch, fill, keys, numbered, sqlite_check};
use crate::sqlite;
use kvstore::{Config, Error, ErrorKind, Expiry, Store};

/// Writes until a write fails, because the check of the file's name may be delayed for a moment.
#[track_caller]
fn write_fails_soon(store: &Store) -> Error {
    let started = Instant::now();
    loop {
        match store.put("ghost", "1") {
            Err(e) => return e,
            Ok(()) => assert!(started.elapsed() < Duration::from_secs(10), "writes go on into a ghost"),
        }
    }
}

#[track_caller]
fn assert_moved_or_deleted<T: std::fmt::Debug>(result: kvstore::Result<T>) {
    let error = result.expect_err("it should be noticed that the file is gone");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.to_string().contains("deleted, moved or replaced"), "{error}");
}

#[test]
fn old_handle_reports_store_deleted_and_recreated() {
    each_case(configs(), |config| {
        each_case([("writer", false), ("reader", true)], |reader| {
            let scratch = Scratch::new();
            let old = scratch.open_with(&config);
            fill(&old, 500);
            let reader = reader.then(|| scratch.open_with(&config.clone().read_only(true)));
            let ghost = reader.as_ref().unwrap_or(&old);
            assert!(ghost.exists(numbered(1)).unwrap());
            fs::remove_file(scratch.path()).unwrap(); // -wal and -shm stay
            let new = scratch.open_with(&config);
            assert_eq!(new.count().unwrap(), 0, "the log of the old one came into the new one");
            fill(&new, 10);
            // The next read or write through the old handle.
            let started = Instant::now();
            while let Ok(there) = ghost.exists(numbered(1)) {
                assert!(there && started.elapsed() < Duration::from_secs(10), "reads of a ghost go on");
            }
            assert_moved_or_deleted(ghost.exists(numbered(1)));
            if reader.is_none() {
                assert_moved_or_deleted(Err::<(), _>(write_fails_soon(&old)));
                assert_moved_or_deleted(old.put("ghost", "1"));
                assert_moved_or_deleted(old.begin_read());
            }
            drop((reader, old)); // does not affect the new store
            assert_eq!(new.count().unwrap(), 10);
            fill(&new, 20);
            new.integrity_check().unwrap();
            assert_eq!(scratch.open_with(&config).count().unwrap(), 20);
            drop(new);
            assert_eq!(scratch.open_with(&config).count().unwrap(), 20);
        });
    });
}

#[test]
fn store_recreated_by_other_process_shares_no_files() {
    let scratch = Scratch::new();
    let mut holder = Other::start(MODULE, &scratch.path(), "hold");
    holder.expect("ready");
    holder.go_on();
    holder.expect("holding");
    fs::remove_file(scratch.path()).unwrap();
    let inode = |name: &str| fs::metadata(scratch.file(name)).unwrap().ino();
    let (wal, shm) = (inode("store.db-wal"), inode("store.db-shm"));
    let kept = (File::open(scratch.wal()).unwrap(), File::open(scratch.shm()).unwrap()); // or the numbers are used again
    let new = scratch.open();
    new.put("new", "1").unwrap();
    assert!(inode("store.db-wal") != wal && inode("store.db-shm") != shm);
    std::thread::sleep(Duration::from_millis(50)); // the check of the name may be delayed by about 10
    holder.go_on();
    holder.expect("Io");
    holder.finish();
    drop(kept);
    assert!(scratch.wal().exists() && scratch.shm().exists(), "the ghost took the new log along");
    assert_eq!(keys(new.iter()), [b"new"]);
    assert_eq!(sqlite_check(&scratch.path()), "ok");
}

#[test]
fn store_deleted_or_moved_while_open_refuses_writes() {
    each_case(configs(), |config| {
        each_case([("deleted", true), ("moved", false)], |delete| {
            let scratch = Scratch::new();
            let store = scratch.open_with(&config);
            store.put("a", "1").unwrap();
            store.begin_write().unwrap();
            store.put("b", "1").unwrap();
            match delete {
                true => fs::remove_file(scratch.path()).unwrap(),
                false => fs::rename(scratch.path(), scratch.file("moved.db")).unwrap(),
            }
            assert_moved_or_deleted(store.commit());
            store.rollback().unwrap();
            assert_moved_or_deleted(Err::<(), _>(write_fails_soon(&store)));
            store.close().unwrap();
            if !delete {
                // It has everything that was committed before it was moved, in the file or in the
                // WAL.
                let moved =
                    Store::open_with(scratch.file("moved.db"), &common::maybe_encrypted(&config)).unwrap();
                assert!(moved.exists("a").unwrap() && !moved.exists("b").unwrap());
            }
        });
    });
}

#[test]
fn close_of_deleted_store_waits_for_no_other_process() {
    let scratch = Scratch::new();
    let mut holder = Other::start(MODULE, &scratch.path(), "hold");
    holder.expect("ready");
    holder.go_on();
    holder.expect("holding"); // from now on it is idle
    let config = Config::new().busy_timeout(Duration::from_secs(20));
    let store = Store::open_with(scratch.path(), &config).unwrap(); // not encrypted, as the holder's
    store.put("b", "1").unwrap();
    fs::remove_dir_all(scratch.path().parent().unwrap()).unwrap();
    assert_moved_or_deleted(Err::<(), _>(write_fails_soon(&store)));
    let started = Instant::now();
    store.close().unwrap();
    assert!(started.elapsed() < Duration::from_secs(15), "close took {:?}", started.elapsed());
    holder.go_on();
    holder.expect("Io");
    holder.finish();
}

/// SQLite reads a WAL at the path whichever database it belongs to. So a handle whose file was
/// replaced must not leave its commits there.
#[test]
fn close_of_replaced_store_leaves_none_of_its_commits_to_the_new_store() {
    let (scratch, other) = (Scratch::new(), Scratch::new());
    let store = scratch.open();
    store.put("a", "old").unwrap();
    other.open().close().unwrap();
    fs::rename(other.path(), scratch.path()).unwrap();
    store.close().unwrap();
    let store = scratch.open();
    assert_eq!(store.get("a").unwrap(), None);
    store.close().unwrap();
}

/// Once a missing file is noticed, every later call reports it, whatever calls follow at whatever
/// time.
#[test]
fn missing_file_is_reported_by_every_call_until_restored() {
    each_case(configs(), |config| {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        store.put("a", "1").unwrap();
        assert!(store.exists("a").unwrap());
        fs::rename(scratch.path(), scratch.file("moved.db")).unwrap();
        write_fails_soon(&store);
        for round in 0..40 {
            assert_moved_or_deleted(store.put("k", "1"));
            assert_moved_or_deleted(store.default_family().increment("n", 1, kvstore::Expiry::Never));
            if round % 2 == 0 {
                let _ = store.get("a"); // an error in WAL mode; with a journal, the name may not be checked
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        fs::rename(scratch.file("moved.db"), scratch.path()).unwrap();
        store.put("k", "1").unwrap();
        assert_eq!(store.count().unwrap(), 2 + count_of_ghosts(&store));
    });
}

fn count_of_ghosts(store: &Store) -> u64 {
    u64::from(store.exists("ghost").unwrap())
}

/// A snapshot for one call is checked, too.
#[test]
fn read_of_many_keys_of_deleted_store_fails_soon() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("a", "1").unwrap();
    for path in [scratch.path().to_owned(), scratch.wal(), scratch.shm()] {
        fs::remove_file(path).unwrap();
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_moved_or_deleted(store.get_many(["a"]));
    assert_moved_or_deleted(store.count_live());
}

/// Also for a handle that keeps a snapshot: it gets no notice from the new store when the shared
/// memory is deleted, too.
#[test]
fn reads_of_store_with_all_files_deleted_fail_soon() {
    each_case([("deleted", false), ("deleted and made again", true)], |made_again| {
        let scratch = Scratch::new();
        let store = scratch.open_with(&Config::new().hold_reads(true));
        store.put("a", "1").unwrap();
        assert!(store.exists("a").unwrap());
        for path in [scratch.path().to_owned(), scratch.wal(), scratch.shm()] {
            fs::remove_file(path).unwrap();
        }
        let new = made_again.then(|| scratch.open());
        std::thread::sleep(Duration::from_millis(50));
        for _ in 0..20 {
            assert_moved_or_deleted(store.get("a"));
            assert_moved_or_deleted(store.get_many(["a"]));
            assert_moved_or_deleted(store.count_live());
            std::thread::sleep(Duration::from_millis(1));
        }
        if let Some(new) = new {
            assert!(!new.exists("a").unwrap());
        }
    });
}

#[test]
fn file_replacing_open_store_is_not_opened_with_old_wal() {
    each_case([("by a backup", false), ("by VACUUM INTO", true)], |by_vacuum| {
        if by_vacuum && common::are_encrypted() {
            return; // SQLite without encryption cannot copy it
        }
        let scratch = Scratch::new();
        let old = scratch.open();
        fill(&old, 500);
        if by_vacuum {
            // A copy whose header has the DELETE journal mode.
            let copy = scratch.file("copy.db");
            sqlite::open(&scratch.path()).execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
        } else {
            old.backup(scratch.file("copy.db"), |_, _| true).unwrap();
        }
        old.put("not in the copy", "1").unwrap();
        fs::rename(scratch.file("copy.db"), scratch.path()).unwrap();
        let error = refused(
            Store::open_with(scratch.path(), &common::maybe_encrypted(&Config::new())),
            "deleted or replaced",
        );
        assert!(error.to_string().contains("store.db-wal"), "{error}");
        drop(old);
        // The files of the old store must be removed by hand, as the message says.
        fs::remove_file(scratch.wal()).unwrap();
        fs::remove_file(scratch.shm()).unwrap();
        assert_eq!(scratch.open().count().unwrap(), 500);
    });
}

/// The handles are the only ones that still have the deleted WAL: they must not let go of it.
#[test]
fn commits_survive_deletion_of_wal_beside_open_handles() {
    each_case([("-wal", 1), ("-shm", 2), ("both", 3)], |files| {
        let scratch = Scratch::new();
        let handles = [scratch.open(), scratch.open()];
        for n in 0..100 {
            handles[n % 2].put(numbered(n), "1").unwrap();
        }
        if files & 1 != 0 {
            fs::remove_file(scratch.wal()).unwrap();
        }
        if files & 2 != 0 {
            fs::remove_file(scratch.shm()).unwrap();
        }
        let mut acknowledged = 100;
        for n in 100..140 {
            acknowledged += usize::from(handles[n % 2].put(numbered(n), "1").is_ok());
            let _ = handles[n % 2].get(numbered(0));
        }
        for handle in handles {
            handle.close().unwrap();
        }
        let again = scratch.open();
        again.integrity_check().unwrap();
        let count = again.count().unwrap() as usize;
        assert!((acknowledged..=140).contains(&count), "{count} of {acknowledged}");
    });
}

#[test]
fn store_moved_away_and_back_has_its_commits() {
    let scratch = Scratch::new();
    let store = scratch.open();
    for n in 0..100 {
        store.put(numbered(n), "1").unwrap();
    }
    fs::rename(scratch.path(), scratch.file("away.db")).unwrap();
    write_fails_soon(&store);
    let other = scratch.open();
    other.put("another", "1").unwrap();
    other.close().unwrap();
    fs::rename(scratch.file("away.db"), scratch.path()).unwrap();
    if let Ok(count) = store.count() {
        assert!(count >= 100);
    }
    store.close().unwrap();
    let store = scratch.open();
    assert!((0..100).all(|n| store.exists(numbered(n)).unwrap()));
}

#[test]
fn backup_and_cleaner_of_replaced_store_spare_new_file() {
    let scratch = Scratch::new();
    let old = scratch.open();
    old.put("old", "1").unwrap();
    fs::remove_file(scratch.path()).unwrap();
    let new = scratch.open();
    new.put_with_expiry("new", "1", Expiry::At(1)).unwrap();
    assert_moved_or_deleted(old.backup(scratch.file("copy.db"), |_, _| true));
    assert!(!scratch.file("copy.db").exists());
    assert_moved_or_deleted(old.start_cleaner(Duration::from_secs(3600), None));
    assert_eq!(new.count().unwrap(), 1);
}

#[test]
fn backup_and_cleaner_report_moved_store() {
    let scratch = Scratch::new();
    let (before, after) = (scratch.file("before"), scratch.file("after"));
    fs::create_dir(&before).unwrap();
    let store = Store::open(before.join("store.db")).unwrap();
    store.put("a", "1").unwrap();
    fs::rename(&before, &after).unwrap();
    let path = fs::canonicalize(scratch.dir()).unwrap().join("before/store.db");
    let text = format!("the store is no longer at {}", path.display());
    let says_so = || {
        let copied = store.backup(scratch.file("copy.db"), |_, _| true);
        for failed in [copied, store.start_cleaner(Duration::from_secs(3600), None)] {
            let error = failed.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io);
            assert!(error.to_string().starts_with(&text), "{error}");
        }
        assert!(!scratch.file("copy.db").exists());
        store.put("b", "1").unwrap();
    };
    says_so();
    assert!(!before.exists());
    // An empty directory with the old name does not get a store. Another store there is not
    // touched.
    fs::create_dir(&before).unwrap();
    says_so();
    assert_eq!(fs::read_dir(&before).unwrap().count(), 0);
    let other = Store::open(before.join("store.db")).unwrap();
    says_so();
    assert_eq!(other.count().unwrap(), 0);
    drop(other);
    fs::remove_dir_all(&before).unwrap();
    fs::rename(&after, &before).unwrap();
    store.backup(scratch.file("copy.db"), |_, _| true).unwrap();
    store.start_cleaner(Duration::from_secs(3600), None).unwrap();
}

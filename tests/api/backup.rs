//! Backups: a copy is complete and consistent, keeps all TTLs, and can be made while the store is
//! in use. A failed or cancelled backup leaves no file.

use std::cell::Cell;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{self, Scratch, TestClock, kind, memory_at, numbered, other};
use kvstore::{Config, Error, ErrorKind, Expiry, JournalMode, Store};

const FILE: &str = "KVSTORE_TEST_FILE";
/// Far in the future, also by the wall clock.
const LATER: i64 = 4_000_000_000_000;

fn go_on(_remaining: u32, _total: u32) -> bool {
    true
}

/// The names of the files in the directory, without the store's own.
fn other_files(scratch: &Scratch) -> Vec<String> {
    scratch.bytes().into_keys().filter(|name| !name.starts_with("store.db")).collect()
}

/// Fills a store with some megabytes, which takes several steps of a backup. Every value is `mark`.
fn fill(store: &Store, mark: u8) {
    store.begin_write().unwrap();
    for n in 0..2_000 {
        store.put_with_expiry(numbered(n), vec![mark; 2_000], Expiry::At(2_000 + n as i64)).unwrap();
    }
    store.commit().unwrap();
}

#[test]
fn backup_contains_all_data_and_keys_expire_on_time() {
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    let store = scratch.open_at(&clock);
    let family = store.create_family("Sessions").unwrap();
    family.set_default_ttl(Some(Duration::from_millis(500))).unwrap();
    family.set_write_tracking(true).unwrap();
    for (key, value) in [("small", vec![1]), ("large", vec![7; 70_000]), ("empty", vec![])] {
        family.put_with_expiry(key, &value, Expiry::At(3_000)).unwrap();
        store.put(key, &value).unwrap();
    }
    store.backup(scratch.file("copy.db"), go_on).unwrap();
    assert_eq!(other_files(&scratch), ["copy.db"]);

    let copy = Store::open(scratch.file("copy.db")).unwrap();
    clock.drive(&copy);
    copy.integrity_check().unwrap();
    let family = copy.family("Sessions").unwrap();
    assert_eq!(family.default_ttl().unwrap(), Some(Duration::from_millis(500)));
    for key in ["small", "large", "empty"] {
        assert_eq!(family.write_time(key).unwrap(), Some(1_000));
        assert_eq!(family.expiry(key).unwrap(), Some(Expiry::At(3_000)));
        assert_eq!(copy.expiry(key).unwrap(), Some(Expiry::Never));
        assert_eq!(family.get(key).unwrap(), copy.get(key).unwrap());
    }
    clock.set(2_999);
    assert_eq!(family.get("large").unwrap(), Some(vec![7; 70_000]));
    clock.set(3_000);
    assert_eq!(family.get("large").unwrap(), None);
    assert_eq!(copy.next_expiry_all_families().unwrap(), Some(3_000));
    assert_eq!(family.purge_expired().unwrap(), 2);
    assert_eq!(copy.count_live().unwrap(), 3);
    copy.integrity_check().unwrap();
    // The original is as it was.
    assert_eq!(store.count().unwrap(), 3);
    store.integrity_check().unwrap();
}

#[test]
fn backup_is_consistent_while_other_handle_writes() {
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    let (store, writer) = (scratch.open_at(&clock), scratch.open_at(&clock));
    fill(&store, 1);
    let (mut steps, mut last_remaining) = (0, u32::MAX);
    store
        .backup(scratch.file("copy.db"), |remaining, total| {
            // On a server, the first call is before the first rows.
            let first = u32::from(common::are_on_a_server());
            assert!(remaining < last_remaining && remaining < total + first, "{remaining} of {total}");
            last_remaining = remaining;
            steps += 1;
            fill(&writer, 1 + steps);
            writer.put(format!("later {steps}"), "1").unwrap();
            writer.create_family(&format!("later {steps}")).unwrap();
            true
        })
        .unwrap();
    assert!(steps > 2, "only {steps} steps");
    assert_eq!(last_remaining, 0);
    let copy = Store::open(scratch.file("copy.db")).unwrap();
    clock.drive(&copy);
    copy.integrity_check().unwrap();
    assert_eq!(copy.family_names().unwrap(), [""; 0]);
    assert_eq!(copy.count().unwrap(), 2_000);
    for entry in copy.iter() {
        assert_eq!(entry.unwrap().1, vec![1; 2_000]);
    }
    clock.set(2_500);
    assert_eq!(copy.count_live().unwrap(), 1_499);
    assert_eq!(copy.purge_expired().unwrap(), 501);
    store.integrity_check().unwrap();
    assert_eq!(store.get(numbered(1_999)).unwrap(), Some(vec![1 + steps; 2_000]));
}

#[test]
#[ignore = "no test, but the process that writes in the one below"]
fn child() {
    let Ok(path) = env::var(FILE) else { return };
    let store = Store::open_with(path, &Config::new().busy_timeout(Duration::from_secs(120))).unwrap();
    for round in 1u32.. {
        // In every committed state all keys are of the same round and expire at the same time.
        let written = store.transaction(|tx| {
            for n in 0..50 {
                let value = vec![round as u8; if n % 2 == 0 { 2_000 } else { 20 }];
                tx.put_with_expiry(numbered(n), value, Expiry::At(LATER + i64::from(round)))?;
            }
            Ok::<_, Error>(())
        });
        written.unwrap();
        if round == 10 {
            println!("> writing"); // repeated until the process is killed
        }
    }
}

#[test]
fn backup_is_consistent_while_other_process_writes() {
    let scratch = Scratch::new();
    let store = scratch.open();
    let mut writer =
        other::child(module_path!()).env(FILE, scratch.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(writer.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("> writing")), "the process has ended too early");
    let mut ends = Vec::new();
    for n in 0..5 {
        let file = scratch.file(&format!("copy {n}"));
        store.backup(&file, go_on).unwrap();
        let copy = Store::open(&file).unwrap();
        copy.integrity_check().unwrap();
        let end = copy.next_expiry().unwrap().unwrap();
        let clock = TestClock::at(end - 1);
        clock.drive(&copy);
        for n in 0..50 {
            let value = copy.get(numbered(n)).unwrap().unwrap();
            assert_eq!(value[0], (end - LATER) as u8);
            assert_eq!(copy.expiry(numbered(n)).unwrap(), Some(Expiry::At(end)));
        }
        assert_eq!(copy.count_live().unwrap(), 50);
        clock.set(end);
        assert_eq!((copy.count_live().unwrap(), copy.purge_expired().unwrap()), (0, 50));
        copy.integrity_check().unwrap();
        ends.push(end);
    }
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert!(ends.is_sorted() && ends[0] < ends[4], "the other process did not write meanwhile: {ends:?}");
    store.integrity_check().unwrap();
}

#[test]
fn store_is_usable_in_callback_and_threads_during_backup() {
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    let store = scratch.open_at(&clock);
    fill(&store, 1);
    let mut called = false;
    store
        .backup(scratch.file("copy.db"), |_, _| {
            if !called {
                called = true;
                store.put("from the callback", "1").unwrap();
                thread::scope(|scope| {
                    scope.spawn(|| {
                        store.put("from a thread", "1").unwrap();
                    });
                });
            }
            true
        })
        .unwrap();
    assert!(called);
    assert!(store.exists("from a thread").unwrap());
    let copy = Store::open(scratch.file("copy.db")).unwrap();
    clock.drive(&copy);
    assert_eq!(copy.count().unwrap(), 2_000);
    copy.integrity_check().unwrap();
}

#[test]
fn backup_excludes_uncommitted_writes() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("committed", "1").unwrap();
    store.begin_write().unwrap();
    store.put("open", "1").unwrap();
    store.backup(scratch.file("copy.db"), go_on).unwrap();
    store.commit().unwrap();
    let copy = Store::open(scratch.file("copy.db")).unwrap();
    assert!(copy.exists("committed").unwrap());
    assert!(!copy.exists("open").unwrap());
    assert!(store.exists("open").unwrap());
    copy.integrity_check().unwrap();
}

#[test]
fn cancelled_backup_leaves_no_file_and_next_one_works() {
    let scratch = Scratch::new();
    let store = scratch.open_at(&TestClock::at(1_000));
    fill(&store, 1);
    for stop_at in [1, 2] {
        let mut steps = 0;
        let stopped = store.backup(scratch.file("copy.db"), |_, _| {
            steps += 1;
            steps < stop_at
        });
        assert_eq!(kind(stopped), ErrorKind::Error);
        assert_eq!(steps, stop_at);
        assert_eq!(other_files(&scratch), [""; 0]);
    }
    store.put("still", "usable").unwrap();
    store.backup(scratch.file("copy.db"), go_on).unwrap();
    assert_eq!(other_files(&scratch), ["copy.db"]);
}

#[test]
fn panicking_callback_leaves_no_file_and_usable_store() {
    let scratch = Scratch::new();
    let store = scratch.open_at(&TestClock::at(1_000));
    fill(&store, 1);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        store.backup(scratch.file("copy.db"), |_, _| panic!("expected by the test"))
    }));
    assert!(panicked.is_err());
    assert_eq!(other_files(&scratch), [""; 0]);
    store.put("still", "usable").unwrap();
    store.backup(scratch.file("copy.db"), go_on).unwrap();
}

#[test]
fn existing_target_is_refused_and_unchanged() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("k", "1").unwrap();
    fs::write(scratch.file("file"), "precious").unwrap();
    fs::write(scratch.file("empty"), "").unwrap();
    fs::create_dir(scratch.file("directory")).unwrap();
    let own = if common::are_on_a_server() { "file" } else { "store.db" };
    for target in ["file", "empty", "directory", own] {
        let refused = store.backup(scratch.file(target), go_on).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Error, "{target}");
        // The error must not name the WAL next to the file, which belongs to the store and must
        // stay.
        assert!(refused.to_string().contains("already exists"), "{target}: {refused}");
    }
    assert_eq!(fs::read(scratch.file("file")).unwrap(), b"precious");
    assert_eq!(fs::read(scratch.file("empty")).unwrap(), b"");
    assert_eq!(store.get("k").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(other_files(&scratch), ["empty", "file"]);
}

#[test]
fn invalid_file_names_are_refused_without_creating_files() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("k", "1").unwrap();
    fs::create_dir(scratch.file("directory")).unwrap();
    let before: Vec<_> = fs::read_dir(".").unwrap().map(|entry| entry.unwrap().file_name()).collect();
    for name in ["", ":memory:", "file:x", "file:x?mode=memory", ".", "..", "/", "copy.db/", "copy.db/."] {
        let refused = store.backup(name, |_, _| panic!("the progress of a backup that was refused"));
        let error = refused.expect_err(name);
        assert_eq!(error.kind(), ErrorKind::Error, "{name}: {error}");
        assert!(error.to_string().contains("path of a file") || error.to_string().contains("exists"));
    }
    // In every build, with or without support for servers.
    let e = store.backup("postgresql://u:secret@h/d", go_on).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Error, "{e}");
    let text = e.to_string();
    assert!(text.contains("postgresql://u@h/d is a store on a server: use Store::copy_to"), "{text}");
    assert!(!text.contains("secret"), "{text}");
    let e = kvstore::recover(scratch.path(), "postgres://h", |_| std::ops::ControlFlow::Continue(()))
        .unwrap_err();
    assert!(e.to_string().contains("is a store on a server: use Store::copy_to"), "{e}");
    for name in ["new/", "new/.", "directory/", "directory/..", "directory/."] {
        assert_eq!(kind(store.backup(scratch.file(name), go_on)), ErrorKind::Error, "{name}");
    }
    let after: Vec<_> = fs::read_dir(".").unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(before, after);
    assert_eq!(other_files(&scratch), [""; 0]);
    // A file may have such a name all the same.
    for name in [":memory:", "file:x"] {
        store.backup(scratch.file(name), go_on).unwrap();
        assert!(Store::open(scratch.file(name)).unwrap().exists("k").unwrap());
    }
}

#[test]
fn target_with_leftover_wal_or_journal_is_refused() {
    if common::is_of_a_file("it is about the store's own files") {
        return;
    }
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("k", "1").unwrap();
    for suffix in ["-wal", "-journal"] {
        let log = scratch.file(&format!("copy.db{suffix}"));
        fs::copy(scratch.wal(), &log).unwrap();
        let error = store.backup(scratch.file("copy.db"), go_on).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Error);
        assert!(error.to_string().contains(suffix), "{error}");
        assert!(!scratch.file("copy.db").exists());
        fs::remove_file(log).unwrap();
    }
    store.backup(scratch.file("copy.db"), go_on).unwrap();
}

#[test]
fn target_named_like_wal_or_journal_is_refused() {
    if common::is_of_a_file("it is about the store's own files") {
        return;
    }
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("k", "1").unwrap();
    drop(Store::open(scratch.file("closed.db")).unwrap());
    fs::write(scratch.file("foreign"), "").unwrap();
    std::os::unix::fs::symlink(".", scratch.file("here")).unwrap();
    fs::create_dir(scratch.file("directory")).unwrap();
    let files = || {
        let mut names: Vec<_> =
            fs::read_dir(scratch.file("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = files();
    for suffix in ["-wal", "-shm", "-journal"] {
        for name in ["store.db", "closed.db", "foreign", "here/store.db", "here/closed.db", "here/foreign"] {
            let error = store.backup(scratch.file(&format!("{name}{suffix}")), go_on).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Error, "{name}{suffix}");
            if !name.ends_with("store.db") {
                assert!(error.to_string().contains(&format!("\"{suffix}\"")), "{error}");
            }
        }
    }
    assert_eq!(files(), before);
    assert_eq!(store.get("k").unwrap().unwrap(), b"1");
    store.integrity_check().unwrap();
    // If no such store exists, these are ordinary file names.
    for name in ["nothing-wal", "directory-journal", "-shm"] {
        store.backup(scratch.file(name), go_on).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn dangling_symlink_counts_as_existing_target() {
    let scratch = Scratch::new();
    let store = scratch.open();
    std::os::unix::fs::symlink(scratch.file("elsewhere"), scratch.file("link")).unwrap();
    assert_eq!(kind(store.backup(scratch.file("link"), go_on)), ErrorKind::Error);
    assert!(!scratch.file("elsewhere").exists());
}

#[test]
fn target_created_during_backup_is_not_replaced() {
    let scratch = Scratch::new();
    let store = scratch.open_at(&TestClock::at(1_000));
    fill(&store, 1);
    let refused = store.backup(scratch.file("copy.db"), |_, _| {
        fs::write(scratch.file("copy.db"), "precious").unwrap();
        true
    });
    assert_eq!(kind(refused), ErrorKind::Error);
    assert_eq!(fs::read(scratch.file("copy.db")).unwrap(), b"precious");
    assert_eq!(other_files(&scratch), ["copy.db"]);
}

#[test]
fn backup_gets_final_name_only_when_complete() {
    let scratch = Scratch::new();
    let store = scratch.open_at(&TestClock::at(1_000));
    fill(&store, 1);
    let called = Cell::new(false);
    store
        .backup(scratch.file("copy.db"), |_, _| {
            called.set(true);
            assert!(!scratch.file("copy.db").exists());
            true
        })
        .unwrap();
    assert!(called.get());
    assert!(scratch.file("copy.db").exists());
}

#[test]
fn missing_directory_is_refused_without_creating_files() {
    let scratch = Scratch::new();
    let store = scratch.open();
    assert_eq!(kind(store.backup(scratch.file("nowhere/copy.db"), go_on)), ErrorKind::CantOpen);
    assert_eq!(kind(store.backup("", go_on)), ErrorKind::Error);
    assert_eq!(kind(store.backup("/", go_on)), ErrorKind::Error);
    assert_eq!(other_files(&scratch), [""; 0]);
    store.put("still", "usable").unwrap();
}

#[test]
fn stores_of_all_kinds_can_be_backed_up() {
    let kinds = [
        ("exclusive", Config::new().exclusive(true)),
        ("rollback journal", Config::new().journal_mode(JournalMode::Delete)),
        ("read-only", Config::new().read_only(true)),
        ("small pages", Config::new().page_size(512)),
    ];
    for (name, config) in kinds {
        let scratch = Scratch::new();
        let clock = TestClock::at(1_000);
        if name == "read-only" {
            fill(&scratch.open_at(&clock), 1);
        }
        let store = scratch.open_with(&config);
        clock.drive(&store);
        if name != "read-only" {
            fill(&store, 1);
        }
        store.backup(scratch.file("copy.db"), go_on).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(other_files(&scratch), ["copy.db"], "{name}");
        let copy = Store::open(scratch.file("copy.db")).unwrap();
        clock.drive(&copy);
        copy.integrity_check().unwrap();
        assert_eq!(copy.count_live().unwrap(), 2_000, "{name}");
        clock.set(2_000);
        assert_eq!(copy.count_live().unwrap(), 1_999, "{name}");
        assert_eq!(kind(store.backup(scratch.file("copy.db"), go_on)), ErrorKind::Error, "{name}");
        assert_eq!(kind(store.backup(scratch.file("stopped"), |_, _| false)), ErrorKind::Error, "{name}");
        assert_eq!(other_files(&scratch).first().map(String::as_str), Some("copy.db"), "{name}");
        assert!(!other_files(&scratch).iter().any(|file| file.starts_with("stopped")), "{name}");
    }
}

#[test]
fn memory_store_is_backed_up_to_file() {
    if common::is_of_a_file("it is about memory") {
        return;
    }
    let scratch = Scratch::new();
    let (store, clock) = memory_at(1_000);
    fill(&store, 1);
    store.backup(scratch.file("copy.db"), go_on).unwrap();
    store.begin_write().unwrap();
    assert_eq!(kind(store.backup(scratch.file("second"), go_on)), ErrorKind::Busy);
    store.rollback().unwrap();
    assert_eq!(kind(store.backup(scratch.file("second"), |_, _| false)), ErrorKind::Error);
    assert_eq!(other_files(&scratch), ["copy.db"]);
    // The callback must not use the store here; the call returns an error.
    let mut told = None;
    store
        .backup(scratch.file("second"), |_, _| {
            told = Some(store.count().map_err(|e| e.kind()));
            true
        })
        .unwrap();
    assert_eq!(told, Some(Err(ErrorKind::Misuse)));
    drop(store);
    let copy = Store::open(scratch.file("copy.db")).unwrap();
    clock.drive(&copy);
    copy.integrity_check().unwrap();
    assert_eq!(copy.count_live().unwrap(), 2_000);
    clock.set(2_100);
    assert_eq!(copy.count_live().unwrap(), 1_899);
}

/// Backs up a store that only its owner may read. Returns the modes of the copy, during and after
/// the backup.
#[cfg(unix)]
fn modes_of_a_private_copy(config: &Config) -> (String, String) {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    drop(scratch.open_with(config));
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o600)).unwrap();
    let store = scratch.open_with(config);
    store.put("secret", "1").unwrap();
    let mode = |file: &str| fs::metadata(scratch.file(file)).unwrap().permissions().mode() & 0o777;
    let mut meanwhile = 0;
    store
        .backup(scratch.file("copy.db"), |_, _| {
            let partial = other_files(&scratch).into_iter().find(|name| name.ends_with(".partial"));
            meanwhile |= mode(&partial.unwrap());
            true
        })
        .unwrap();
    (format!("{:o}", mode("copy.db")), format!("{meanwhile:o}"))
}

#[cfg(unix)]
#[test]
fn backup_keeps_file_mode_of_store() {
    if common::is_of_a_file("it is about the store's own files") {
        return;
    }
    for config in [Config::new(), Config::new().journal_mode(JournalMode::Delete)] {
        assert_eq!(modes_of_a_private_copy(&config), ("600".into(), "600".into()), "{config:?}");
    }
}

#[cfg(unix)]
#[test]
fn backup_of_exclusive_store_keeps_file_mode() {
    if common::is_of_a_file("it is about the store's own files") {
        return;
    }
    let config = Config::new().exclusive(true);
    assert_eq!(modes_of_a_private_copy(&config), ("600".into(), "600".into()));
}

#[test]
fn leftover_partial_file_does_not_block_backup() {
    let scratch = Scratch::new();
    let store = scratch.open_at(&TestClock::at(1_000));
    fill(&store, 1);
    fs::write(scratch.file("copy.db.partial"), vec![9; 100_000]).unwrap(); // left by a process that died
    store.backup(scratch.file("copy.db"), go_on).unwrap();
    assert_eq!(other_files(&scratch), ["copy.db", "copy.db.partial"]);
    Store::open(scratch.file("copy.db")).unwrap().integrity_check().unwrap();
}

#[test]
fn concurrent_backups_to_different_files_succeed() {
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    let store = scratch.open_at(&clock);
    fill(&store, 1);
    thread::scope(|scope| {
        for n in 0..3 {
            let (store, scratch) = (&store, &scratch);
            scope.spawn(move || store.backup(scratch.file(&format!("copy {n}")), go_on).unwrap());
        }
    });
    for n in 0..3 {
        let copy = Store::open(scratch.file(&format!("copy {n}"))).unwrap();
        copy.integrity_check().unwrap();
        assert_eq!(copy.count().unwrap(), 2_000);
    }
}

#[test]
fn concurrent_backup_to_same_file_does_not_damage_first() {
    // The second backup begins during the first, is still running when the first ends, and is then
    // cancelled. Whatever the outcome: a file of that name is complete, and it exists only if a
    // backup reported success.
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    let store = scratch.open_at(&clock);
    fill(&store, 1);
    let target = scratch.file("copy.db");
    let (started, second_is_inside, first_is_over) =
        (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    let deadline = Instant::now() + Duration::from_secs(60);
    let wait_for = |flag: &AtomicBool, or: &dyn Fn() -> bool| {
        while !flag.load(Ordering::Relaxed) && !or() {
            assert!(Instant::now() < deadline, "waited too long");
            thread::yield_now();
        }
    };
    let (first, second) = thread::scope(|scope| {
        let second = scope.spawn(|| {
            wait_for(&started, &|| false);
            store.backup(&target, |_, _| {
                second_is_inside.store(true, Ordering::Relaxed);
                wait_for(&first_is_over, &|| false);
                false
            })
        });
        let first = store.backup(&target, |_, _| {
            started.store(true, Ordering::Relaxed);
            wait_for(&second_is_inside, &|| second.is_finished()); // it may be refused
            true
        });
        first_is_over.store(true, Ordering::Relaxed);
        (first, second.join().unwrap())
    });
    assert!(second.is_err());
    assert_eq!(target.exists(), first.is_ok(), "first: {first:?}, second: {second:?}");
    if first.is_ok() {
        let copy = Store::open(&target).unwrap();
        clock.drive(&copy);
        copy.integrity_check().unwrap();
        assert_eq!(copy.count().unwrap(), 2_000);
    }
}

#[test]
fn backup_of_closed_store_fails() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.close().unwrap();
    assert_eq!(kind(store.backup(scratch.file("copy.db"), go_on)), ErrorKind::Misuse);
    assert_eq!(other_files(&scratch), [""; 0]);
}

#[test]
fn backup_in_read_transaction_has_newest_commits() {
    let scratch = Scratch::new();
    let (store, other) = (scratch.open(), scratch.open());
    store
        .snapshot(|tx| {
            tx.count()?;
            other.put("newer", "1")?;
            tx.backup(scratch.file("copy.db"), go_on)?;
            assert!(!tx.exists("newer")?);
            Ok::<_, Error>(())
        })
        .unwrap();
    assert!(Store::open(scratch.file("copy.db")).unwrap().exists("newer").unwrap());
}

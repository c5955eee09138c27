//! The path of a store's file: renamed directories, unusual paths, links, files that are deleted or
//! replaced while they are open, opens that fail, and read-only locations.
#![allow(clippy::disallowed_methods, reason = "not on Android")]
#![allow(unsafe_code)] // `fsync`, which is recorded here

use std::cell::RefCell;
use std::ffi::{OsStr, c_int};
use std::fs::{self, File, Permissions};
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::cases::{ENGINES, each_case};
use crate::common::other::{Other, as_unprivileged as as_nobody_in, heard, role, say};
use crate::common::{Scratch, fill, keys, numbered, sqlite_check, with_suffix};
use crate::sqlite;
use kvstore::{CheckpointMode, Config, Error, ErrorKind, Expiry, JournalMode, Store, SyncLevel};

const MODES: [(&str, JournalMode); 2] =
    [("WAL mode", JournalMode::Wal), ("DELETE mode", JournalMode::Delete)];

// ---- syncs of this thread
// ------------------------------------------------------------------------

const LEVELS: [SyncLevel; 3] = [SyncLevel::Normal, SyncLevel::Full, SyncLevel::Off];

thread_local!(static SYNCED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) });

fn note(fd: c_int) {
    // SAFETY: the caller's descriptor, which is not closed here.
    let file = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    if let Ok(found) = file.metadata() {
        SYNCED.with_borrow_mut(|synced| synced.push(found.ino()));
    }
}

/// Replaces the C library's function, for SQLite and for `std::fs`.
#[unsafe(no_mangle)]
extern "C" fn fsync(fd: c_int) -> c_int {
    note(fd);
    // SAFETY: the caller's descriptor.
    c_int::try_from(unsafe { libc::syscall(libc::SYS_fsync, fd) }).unwrap_or(-1)
}

#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: c_int) -> c_int {
    note(fd);
    // SAFETY: the caller's descriptor.
    c_int::try_from(unsafe { libc::syscall(libc::SYS_fdatasync, fd) }).unwrap_or(-1)
}

/// Syncs the store, and asserts that exactly these files are synced.
#[track_caller]
fn syncs(store: &Store, files: &[&Path]) {
    SYNCED.with_borrow_mut(Vec::clear);
    store.sync().unwrap();
    let synced = SYNCED.take();
    for file in files {
        let inode = fs::metadata(file).unwrap().ino();
        assert!(synced.contains(&inode), "{} was not synced: {synced:?}", file.display());
    }
}

fn chmod(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn sync_covers_wal_and_directory_even_after_rename() {
    each_case(LEVELS.map(|level| (format!("{level:?}"), level)), |level| {
        let scratch = Scratch::new();
        let (old, new) = (scratch.file("old"), scratch.file("new"));
        fs::create_dir(&old).unwrap();
        let store = Store::open_with(old.join("store.db"), &Config::new().sync(level)).unwrap();
        store.put("a", "1").unwrap();
        syncs(&store, &[&old, &old.join("store.db-wal")]);
        fs::rename(&old, &new).unwrap();
        store.put("b", "1").unwrap();
        syncs(&store, &[&new, &new.join("store.db-wal")]);
        // A store with the same name in another directory is a different one.
        fs::create_dir(&old).unwrap();
        let other = Store::open(old.join("store.db")).unwrap();
        other.put("other", "1").unwrap();
        store.put("c", "1").unwrap();
        syncs(&store, &[&new, &new.join("store.db-wal")]);
        store.close().unwrap();
        other.close().unwrap();
        assert_eq!(keys(Store::open(new.join("store.db")).unwrap().iter()), [b"a", b"b", b"c"]);
        assert_eq!(keys(Store::open(old.join("store.db")).unwrap().iter()), [b"other"]);
    });
}

#[test]
fn sync_in_delete_mode_covers_directory_even_after_rename() {
    let scratch = Scratch::new();
    let (old, new) = (scratch.file("old"), scratch.file("new"));
    fs::create_dir(&old).unwrap();
    let config = Config::new().journal_mode(JournalMode::Delete);
    let store = Store::open_with(old.join("store.db"), &config).unwrap();
    store.put("a", "1").unwrap();
    syncs(&store, &[&old]);
    fs::rename(&old, &new).unwrap();
    syncs(&store, &[&new]);
}

#[test]
fn sync_covers_wal_for_non_utf8_path_and_symlinks() {
    let scratch = Scratch::new();
    let directory = scratch.file("there");
    fs::create_dir(&directory).unwrap();
    symlink(&directory, scratch.dir().join(OsStr::from_bytes(b"li\xfenk"))).unwrap();
    for (number, name) in [&b"plain"[..], b"od\xffd"].into_iter().enumerate() {
        let real = directory.join(OsStr::from_bytes(name));
        let link = scratch.file(&format!("link {number}"));
        symlink(&real, &link).unwrap(); // a dangling link at first
        let through = scratch.dir().join(OsStr::from_bytes(b"li\xfenk")).join(OsStr::from_bytes(name));
        for path in [&link, &real, &through] {
            let store = Store::open(path).unwrap();
            store.put("a", "1").unwrap();
            syncs(&store, &[&directory, &with_suffix(&real, "-wal")]);
            store.backup(scratch.file("copy"), |_, _| true).unwrap();
            fs::remove_file(scratch.file("copy")).unwrap();
        }
    }
}

#[test]
fn sync_with_level_off_covers_checkpoint_despite_reader() {
    let scratch = Scratch::new();
    let config = Config::new().sync(SyncLevel::Off);
    let (store, reader) = (scratch.open_with(&config), scratch.open_with(&config));
    fill(&store, 100);
    store.checkpoint(CheckpointMode::Truncate).unwrap(); // to the file, unsynced
    reader.begin_read().unwrap(); // so that later commits cannot be checkpointed
    fill(&store, 200);
    syncs(&store, &[&scratch.path(), &scratch.wal(), scratch.dir()]);
    reader.rollback().unwrap();
    // A sync commits nothing of an open transaction.
    store.begin_write().unwrap();
    store.put("open", "1").unwrap();
    syncs(&store, &[&scratch.path(), &scratch.wal()]);
    assert!(!reader.exists("open").unwrap());
    store.rollback().unwrap();
    assert!(!store.exists("open").unwrap());
}

#[test]
fn sync_reports_unsyncable_directory() {
    // root can open every directory, so another user must try.
    let scratch = Scratch::new();
    let directory = scratch.file("closed");
    fs::create_dir(&directory).unwrap();
    let mut nobody = as_unprivileged(&scratch, &directory.join("store.db"), "sync-unlistable");
    chmod(&directory, 0o733);
    chmod(scratch.dir(), 0o755);
    nobody.go_on();
    nobody.expect("Io true");
    nobody.finish();
}

// ---- another process, perhaps another user -------------------------------------------------------

/// Starts this program as an unprivileged user. It waits for a line before it begins.
fn as_unprivileged(scratch: &Scratch, path: &Path, role: &str) -> Other {
    chmod(scratch.dir(), 0o755);
    let folder = tempfile::tempdir().unwrap();
    let program = as_nobody_in(folder.path());
    let mut other = Other::launch(program, module_path!(), path, role);
    other.expect("ready");
    other
}

/// Starts an unprivileged user's process that opens the store read-only and finds `count` keys.
#[track_caller]
fn open_reader(scratch: &Scratch, path: &Path, count: u32) -> Other {
    let mut reader = as_unprivileged(scratch, path, "read-only");
    reader.go_on();
    reader.expect(&count.to_string());
    reader
}

#[test]
#[ignore = "no test, but the other process of the tests in this file"]
fn child() {
    let Some((role, path)) = role() else { return };
    let path = path.as_path();
    let read_only = Config::new().read_only(true);
    say("ready");
    heard();
    match role.as_str() {
        "sync-unlistable" => {
            let store = Store::open(path).unwrap();
            store.put("a", "1").unwrap();
            let error = store.sync().unwrap_err();
            say(format!("{:?} {}", error.kind(), error.to_string().contains("directory")));
        }
        "read-only" => {
            let store = match Store::open_with(path, &read_only) {
                Ok(store) => store,
                Err(e) => return say(format!("{:?}: {e}", e.kind())),
            };
            say(store.count().unwrap());
            let mut cursor = store.cursor(kvstore::KeyRange::all(), kvstore::Direction::Forward);
            while let Some(asked) = heard() {
                let text = |key: Option<Vec<u8>>| {
                    key.map_or("nothing".into(), |key| String::from_utf8_lossy(&key).into_owned())
                };
                let at = |cursor: &kvstore::Cursor| cursor.key().map(<[u8]>::to_vec);
                let answer = match asked.split_once(' ').unwrap_or((&asked, "")) {
                    ("get", key) => store.get(key).map(text),
                    ("count", _) => store.count().map(|count| count.to_string()),
                    ("first", _) => cursor.first().map(|_| text(at(&cursor))),
                    ("next", _) => cursor.next().map(|_| text(at(&cursor))),
                    ("check", _) => store.integrity_check().map(|()| "sound".into()),
                    ("begin", _) => store.begin_read().map(|()| "begun".into()),
                    ("rollback", _) => store.rollback().map(|()| "rolled back".into()),
                    ("put", key) => store.put(key, "1").map(|()| "put".into()),
                    ("sync", _) => store.sync().map(|()| "synced".into()),
                    ("backup", to) => store.backup(to, |_, _| true).map(|()| "copied".into()),
                    (other, _) => panic!("no such question: {other}"),
                };
                say(answer.unwrap_or_else(|e| format!("{:?}: {e}", e.kind())));
            }
        }
        "open" => {
            let opened = Store::open(path);
            say(opened.map_or_else(|e| format!("{:?}: {e}", e.kind()), |_| "open".into()));
        }
        "hold" => {
            let store = Store::open(path).unwrap();
            store.put("held", "1").unwrap();
            say("holding");
            heard();
            say(store.put("late", "1").map_or_else(|e| format!("{:?}", e.kind()), |()| "put".into()));
            heard();
        }
        other => panic!("no role {other}"),
    }
}

// ---- hard links ----------------------------------------------------------------------------------

#[track_caller]
fn refused(opened: kvstore::Result<Store>, text: &str) -> Error {
    let error = opened.expect_err("the open should have been refused");
    assert_eq!(error.kind(), ErrorKind::CantOpen, "{error}");
    assert!(error.to_string().contains(text), "{error}");
    error
}

#[test]
fn hard_linked_file_is_refused_until_one_link_is_removed() {
    each_case(MODES, |mode| {
        let scratch = Scratch::new();
        let config = Config::new().journal_mode(mode);
        let store = scratch.open_with(&config);
        store.put("a", "1").unwrap();
        // A hard link made while the store is open. The next open mentions it.
        fs::hard_link(scratch.path(), scratch.file("second.db")).unwrap();
        for read_only in [false, true] {
            for path in [scratch.path(), scratch.file("second.db")] {
                let opened = Store::open_with(path, &config.clone().read_only(read_only));
                refused(opened, "2 hard links");
            }
        }
        store.put("b", "1").unwrap();
        assert!(!scratch.file("second.db-wal").exists() && !scratch.file("second.db-journal").exists());
        fs::remove_file(scratch.file("second.db")).unwrap();
        assert_eq!(keys(scratch.open_with(&config).iter()), [b"a", b"b"]);
        store.close().unwrap();
        // An empty file is refused as well, and does not become a store.
        fs::write(scratch.file("empty"), "").unwrap();
        fs::hard_link(scratch.file("empty"), scratch.file("empty too")).unwrap();
        refused(Store::open_with(scratch.file("empty"), &config), "2 hard links");
        assert_eq!(fs::metadata(scratch.file("empty")).unwrap().len(), 0);
    });
}

#[test]
fn backup_is_never_hard_linked() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("a", "1").unwrap();
    let mut traced = Vec::new();
    store
        .backup(scratch.file("copy.db"), |_, _| {
            traced.push(scratch.file("copy.db").exists());
            true
        })
        .unwrap();
    assert_eq!(fs::metadata(scratch.file("copy.db")).unwrap().nlink(), 1);
    assert!(LINKED.with_borrow(Vec::is_empty), "it was given its name by a second link");
    Store::open(scratch.file("copy.db")).unwrap();
}

thread_local!(static LINKED: RefCell<Vec<()>> = const { RefCell::new(Vec::new()) });

/// Replaces the C library's functions. `std::fs::hard_link` calls one of them.
#[unsafe(no_mangle)]
extern "C" fn linkat(
    from_dir: c_int,
    from: *const std::ffi::c_char,
    to_dir: c_int,
    to: *const std::ffi::c_char,
    flags: c_int,
) -> c_int {
    LINKED.with_borrow_mut(|linked| linked.push(()));
    // SAFETY: the caller's C strings.
    c_int::try_from(unsafe { libc::syscall(libc::SYS_linkat, from_dir, from, to_dir, to, flags) })
        .unwrap_or(-1)
}

#[unsafe(no_mangle)]
extern "C" fn link(from: *const std::ffi::c_char, to: *const std::ffi::c_char) -> c_int {
    linkat(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0)
}

// ---- deleted, moved, replaced --------------------------------------------------------------------

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

/// Configurations by name: each journal mode with each engine, with and without held reads.
fn configs() -> Vec<(String, Config)> {
    let mut configs = Vec::new();
    for (mode, journal) in MODES {
        for (engine, sql) in ENGINES {
            for hold in [false, true] {
                let config = Config::new().journal_mode(journal).sql_engine(sql).hold_reads(hold);
                configs.push((format!("{mode}, {engine}, hold_reads({hold})"), config));
            }
        }
    }
    configs
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
    let mut holder = Other::start(module_path!(), &scratch.path(), "hold");
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
                let moved = Store::open_with(scratch.file("moved.db"), &config).unwrap();
                assert!(moved.exists("a").unwrap() && !moved.exists("b").unwrap());
            }
        });
    });
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
        let error = refused(Store::open(scratch.path()), "deleted or replaced");
        assert!(error.to_string().contains("store.db-wal"), "{error}");
        drop(old);
        // The files of the old store must be removed by hand, as the message says.
        fs::remove_file(scratch.wal()).unwrap();
        fs::remove_file(scratch.shm()).unwrap();
        assert_eq!(scratch.open().count().unwrap(), 500);
    });
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

// ---- files of another user -----------------------------------------------------------------------

#[test]
fn missing_write_permission_error_names_files() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("a", "1").unwrap();
    let (wal, shm) = (with_suffix(&scratch.path(), "-wal"), with_suffix(&scratch.path(), "-shm"));
    let rows = [
        ("the WAL", (vec![&wal], vec![&shm])),
        ("the shared memory", (vec![&shm], vec![&wal])),
        ("both", (vec![&wal, &shm], vec![])),
    ];
    each_case(rows, |(forbidden, others)| {
        chmod(scratch.path(), 0o666);
        others.iter().for_each(|file| chmod(file, 0o666));
        forbidden.iter().for_each(|file| chmod(file, 0o444));
        let answer = as_unprivileged(&scratch, &scratch.path(), "open").ask("go");
        for file in forbidden {
            assert!(answer.contains(&file.display().to_string()), "{answer}");
        }
        for file in others {
            assert!(!answer.contains(&file.display().to_string()), "{answer}");
        }
        assert!(answer.starts_with("ReadOnly") && !answer.contains("Error code"), "{answer}");
    });
    // The database file itself, whether a handle has it open or not.
    for store in [Some(store), None] {
        chmod(scratch.path(), 0o444);
        let mut other = as_unprivileged(&scratch, &scratch.path(), "open");
        chmod(scratch.dir(), 0o777);
        let answer = other.ask("go");
        other.finish();
        let name = scratch.path().display().to_string();
        assert!(answer.starts_with("ReadOnly") && answer.contains(&name), "{answer}");
        drop(store);
        has_no_other_file(&scratch.path());
    }
}

// ---- opens that fail -----------------------------------------------------------------------------

#[test]
fn failed_open_leaves_no_file() {
    let scratch = Scratch::new();
    let long = (0..5).fold(scratch.dir().to_owned(), |path, n| path.join(format!("{n}").repeat(120)));
    fs::create_dir_all(&long).unwrap();
    for path in [long.join("store.db"), scratch.file(&"x".repeat(252))] {
        let before = files_in(path.parent().unwrap());
        assert!(Store::open(&path).is_err());
        assert_eq!(files_in(path.parent().unwrap()), before, "{}", path.display());
    }
    // An existing empty file stays.
    fs::write(long.join("there"), "").unwrap();
    assert!(Store::open(long.join("there")).is_err());
    assert!(long.join("there").exists());
    // Files that cannot be created next to it: each name is that of a directory.
    for suffix in ["-journal", "-wal", "-shm"] {
        fs::create_dir(scratch.file(&format!("store.db{suffix}"))).unwrap();
        assert!(Store::open(scratch.path()).is_err());
        assert!(!scratch.path().exists(), "{suffix}");
        fs::remove_dir(scratch.file(&format!("store.db{suffix}"))).unwrap();
    }
    // A dangling symbolic link stays one.
    symlink(long.join("behind"), scratch.file("link")).unwrap();
    assert!(Store::open(scratch.file("link")).is_err());
    assert!(!long.join("behind").exists() && scratch.file("link").symlink_metadata().is_ok());
    drop(scratch.open());
}

/// Asserts that the directory of a store contains no file besides the database.
#[track_caller]
fn has_no_other_file(path: &Path) {
    assert_eq!(files_in(path.parent().unwrap()), [path]);
}

fn files_in(directory: &Path) -> Vec<PathBuf> {
    let mut names: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names
}

// ---- files after a read-only handle
// -----------------------------------------------------------------

fn reading() -> Config {
    Config::new().read_only(true)
}

#[test]
fn read_only_handle_leaves_no_file() {
    each_case(configs(), |config| {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        fill(&store, 10);
        store.close().unwrap();
        let file = fs::read(scratch.path()).unwrap();
        let reading = config.clone().read_only(true);
        let store = scratch.open_with(&reading);
        assert_eq!(store.count().unwrap(), 10);
        store.close().unwrap();
        has_no_other_file(&scratch.path());
        drop(scratch.open_with(&reading));
        has_no_other_file(&scratch.path());
        // In a snapshot, with two handles.
        let (first, second) = (scratch.open_with(&reading), scratch.open_with(&reading));
        first.begin_read().unwrap();
        assert_eq!((first.count().unwrap(), second.count().unwrap()), (10, 10));
        drop(first);
        assert_eq!(second.count().unwrap(), 10);
        drop(second);
        has_no_other_file(&scratch.path());
        assert!(fs::read(scratch.path()).unwrap() == file);
    });
}

#[test]
fn failed_read_only_open_leaves_no_file() {
    let scratch = Scratch::new();
    fill(&scratch.open(), 10);
    let mut file = fs::read(scratch.path()).unwrap();
    file[60..64].copy_from_slice(&99u32.to_be_bytes()); // the version of the format
    fs::write(scratch.path(), &file).unwrap();
    each_case(ENGINES, |sql| {
        let opened = Store::open_with(scratch.path(), &reading().sql_engine(sql));
        refused(opened, "format version 99");
        has_no_other_file(&scratch.path());
    });
}

#[test]
fn read_only_handle_keeps_non_empty_wal() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("in the log only", "1").unwrap();
    let [file, log] = cut_power(store, &scratch.path());
    let reader = scratch.open_with(&reading());
    assert_eq!(reader.count().unwrap(), 1);
    reader.close().unwrap();
    assert!(fs::read(scratch.wal()).unwrap() == log && fs::read(scratch.path()).unwrap() == file);
    assert_eq!(scratch.open().count().unwrap(), 1);
}

#[test]
fn read_only_handle_keeps_wal_just_created_by_other_handle() {
    let scratch = Scratch::new();
    scratch.open().close().unwrap();
    let (reader, other) = (scratch.open_with(&reading()), scratch.open_with(&reading()));
    let writer = scratch.open();
    assert_eq!(fs::metadata(scratch.wal()).unwrap().len(), 0);
    let log = fs::metadata(scratch.wal()).unwrap().ino();
    reader.close().unwrap();
    assert_eq!(fs::metadata(scratch.wal()).unwrap().ino(), log);
    writer.put("a", "1").unwrap();
    assert!(other.exists("a").unwrap() && scratch.open().exists("a").unwrap());
}

/// Handles are opened and closed while a read-only handle checks whether it is the last one.
#[test]
fn no_commit_is_lost_while_read_only_handles_open_and_close() {
    let scratch = Scratch::new();
    scratch.open().close().unwrap();
    let patient = Config::new().busy_timeout(Duration::from_secs(60));
    let rounds = 150;
    std::thread::scope(|scope| {
        for name in ["one", "two"] {
            let (scratch, patient) = (&scratch, &patient);
            scope.spawn(move || {
                for _ in 0..rounds {
                    let store = scratch.open_with(patient);
                    store.default_family().increment(name, 1, Expiry::Never).unwrap();
                }
            });
            scope.spawn(move || {
                for _ in 0..rounds {
                    scratch.open_with(&reading()).count().unwrap();
                }
            });
        }
    });
    let store = scratch.open();
    for name in ["one", "two"] {
        assert_eq!(store.get(name).unwrap(), Some(rounds.to_string().into_bytes()), "{name}");
    }
    store.integrity_check().unwrap();
    store.close().unwrap();
    has_no_other_file(&scratch.path());
}

/// Creates a closed store that its readers may not write, in a directory in which they may create
/// files.
fn closed_store_in_shared_folder(scratch: &Scratch) -> PathBuf {
    let path = closed_store(scratch);
    chmod(path.parent().unwrap(), 0o777);
    chmod(&path, 0o444);
    path
}

/// Opens such a store as its owner, which may be an unprivileged user.
fn open_as_owner(path: &Path) -> Store {
    chmod(path, 0o644);
    let store = Store::open(path).unwrap();
    chmod(path, 0o444);
    store
}

#[test]
fn reader_without_write_permission_creates_no_files() {
    let scratch = Scratch::new();
    let path = closed_store_in_shared_folder(&scratch);
    let mut reader = open_reader(&scratch, &path, 1_000);
    assert_eq!(reader.ask("first"), "key 000000");
    has_no_other_file(&path);
    assert_eq!(reader.ask("check"), "sound");
    reader.finish();
    has_no_other_file(&path);
}

#[test]
fn reader_without_write_permission_follows_owner_writes() {
    let scratch = Scratch::new();
    let path = closed_store_in_shared_folder(&scratch);
    let mut reader = open_reader(&scratch, &path, 1_000);
    assert_eq!(reader.ask("first"), "key 000000");
    // Its owner opens it, writes, and closes it.
    let store = open_as_owner(&path);
    assert_eq!(reader.ask("next"), "key 000001");
    store.put("a new one", "1").unwrap();
    assert_eq!(reader.ask("count"), "1001");
    assert_eq!(reader.ask("get a new one"), "1");
    store.put("another", "1").unwrap();
    assert_eq!(reader.ask("count"), "1002");
    // A reader that opens the store now reads the log, too.
    let mut late = open_reader(&scratch, &path, 1_002);
    store.close().unwrap();
    assert_eq!(reader.ask("count"), "1002");
    assert_eq!(reader.ask("check"), "sound");
    // Another round, with open readers.
    let store = open_as_owner(&path);
    store.put("once more", "1").unwrap();
    assert_eq!(reader.ask("count"), "1003");
    assert_eq!(late.ask("count"), "1003");
    let owner = fs::metadata(&path).unwrap().uid();
    for file in files_in(path.parent().unwrap()) {
        assert_eq!(fs::metadata(&file).unwrap().uid(), owner, "{}", file.display());
    }
    reader.finish();
    late.finish();
    store.put("at the end", "1").unwrap();
    store.close().unwrap();
    has_no_other_file(&path);
}

// ---- read-only locations -----------------------------------------------------------------------

/// Creates a cleanly closed store in a directory in which its readers cannot write.
fn closed_store(scratch: &Scratch) -> PathBuf {
    let directory = scratch.file("closed");
    fs::create_dir(&directory).unwrap();
    let path = directory.join("store.db");
    let store = Store::open(&path).unwrap();
    fill(&store, 1_000);
    store.close().unwrap();
    chmod(&path, 0o644);
    chmod(&directory, 0o555);
    path
}

/// Makes the store's directory writable again. (For root it always is.)
fn unlock_directory(path: &Path) {
    chmod(path.parent().unwrap(), 0o755);
}

/// Makes the store's directory read-only.
fn lock_directory(path: &Path) {
    chmod(path.parent().unwrap(), 0o555);
}

/// Closes the store, and puts its file and its WAL back as they were, as after a power cut. Returns
/// both.
fn cut_power(store: Store, path: &Path) -> [Vec<u8>; 2] {
    let files = [path.to_owned(), with_suffix(path, "-wal")];
    let before = files.each_ref().map(|file| fs::read(file).unwrap());
    store.close().unwrap();
    files.iter().zip(&before).for_each(|(file, bytes)| fs::write(file, bytes).unwrap());
    before
}

#[test]
fn closed_store_is_readable_in_read_only_directory() {
    let scratch = Scratch::new();
    let path = closed_store(&scratch);
    let mut reader = open_reader(&scratch, &path, 1_000);
    assert_eq!(reader.ask("get key 000007"), String::from_utf8(7usize.to_be_bytes().to_vec()).unwrap());
    assert_eq!(reader.ask("first"), "key 000000");
    assert_eq!(reader.ask("next"), "key 000001");
    assert_eq!(reader.ask("check"), "sound");
    assert!(reader.ask("put x").starts_with("ReadOnly"));
    assert_eq!(reader.ask("sync"), "synced");
    fs::create_dir(scratch.file("free")).unwrap();
    chmod(scratch.file("free"), 0o777);
    let copy = scratch.file("free").join("copy.db");
    assert_eq!(reader.ask(&format!("backup {}", copy.display())), "copied");
    reader.finish();
    has_no_other_file(&path);
    assert_eq!(Store::open_with(copy, &Config::new().read_only(true)).unwrap().count().unwrap(), 1_000);
    unlock_directory(&path);
}

#[test]
fn oddly_named_stores_are_readable_in_read_only_directory() {
    let scratch = Scratch::new();
    let first = closed_store(&scratch);
    unlock_directory(&first);
    let names = [
        ("characters of a URI", &b"a?immutable=0&x#y%41 z.db"[..]),
        ("no UTF-8", b"\xff\xfe.db"),
        ("a scheme", b"file:x"),
    ];
    each_case(names, |name| {
        let path = first.with_file_name(OsStr::from_bytes(name));
        fs::copy(&first, &path).unwrap();
        lock_directory(&first);
        open_reader(&scratch, &path, 1_000).finish();
        unlock_directory(&first);
    });
}

#[test]
fn reader_in_read_only_directory_notices_file_changes() {
    let scratch = Scratch::new();
    let path = closed_store(&scratch);
    let mut reader = open_reader(&scratch, &path, 1_000);
    assert_eq!(reader.ask("first"), "key 000000");
    // A process with write permission opens the store and closes it again.
    unlock_directory(&path);
    let store = Store::open(&path).unwrap();
    store.put("a new one", "1").unwrap();
    store.close().unwrap();
    lock_directory(&path);
    assert_eq!(reader.ask("count"), "1001");
    assert_eq!(reader.ask("get a new one"), "1");
    assert_eq!(reader.ask("next"), "key 000001");
    assert_eq!(reader.ask("check"), "sound");
    // Calls of an open snapshot fail; after its end they succeed.
    assert_eq!(reader.ask("begin"), "begun");
    assert_eq!(reader.ask("count"), "1001");
    unlock_directory(&path);
    let store = Store::open(&path).unwrap();
    store.clear().unwrap();
    store.close().unwrap();
    let lost = reader.ask("count");
    assert!(lost.starts_with("Busy") && lost.contains("the file changed"), "{lost}");
    assert!(reader.ask("count").starts_with("Busy"));
    assert_eq!(reader.ask("rollback"), "rolled back");
    assert_eq!(reader.ask("count"), "0");
    // While another process has the store open, it is read through the WAL as usual.
    let store = Store::open(&path).unwrap();
    chmod(with_suffix(&path, "-shm"), 0o666);
    lock_directory(&path);
    store.put("in the log", "1").unwrap();
    assert_eq!(reader.ask("count"), "1");
    store.put("also", "1").unwrap();
    assert_eq!(reader.ask("count"), "2");
    // The file is replaced by another one.
    unlock_directory(&path);
    store.close().unwrap();
    reader.finish();
}

#[test]
fn unclosed_store_is_refused_in_read_only_directory() {
    let scratch = Scratch::new();
    let path = closed_store(&scratch);
    unlock_directory(&path);
    let store = Store::open(&path).unwrap();
    store.put("in the log only", "1").unwrap();
    cut_power(store, &path);
    lock_directory(&path);
    let mut reader = as_unprivileged(&scratch, &path, "read-only");
    reader.go_on();
    let said = reader.hear().unwrap();
    assert!(said.starts_with("CantOpen") && said.contains("not closed"), "{said}");
    reader.finish();
    unlock_directory(&path);
}

#[test]
fn closed_store_is_readable_on_read_only_mount() {
    let scratch = Scratch::new();
    let path = closed_store(&scratch);
    let mount = scratch.file("mount");
    fs::create_dir(&mount).unwrap();
    let exe = std::env::current_exe().unwrap();
    let mut program = Command::new("unshare");
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    program.args(if is_root { &["-m"][..] } else { &["-r", "-m"] });
    program.args(["sh", "-ec"]).arg(
        "mount --bind \"$1\" \"$2\"; mount -o remount,ro,bind \"$2\"; exe=$3; shift 3; exec \"$exe\" \"$@\"",
    );
    program.arg("sh").arg(path.parent().unwrap()).arg(&mount).arg(exe);
    let mut reader = Other::launch(program, module_path!(), &mount.join("store.db"), "read-only");
    reader.expect("ready");
    reader.go_on();
    reader.expect("1000");
    assert_eq!(reader.ask("check"), "sound");
    reader.finish();
    unlock_directory(&path);
}

#[test]
fn hard_linked_file_is_readable_in_read_only_directory() {
    // Some systems hard-link equal files of their images.
    let scratch = Scratch::new();
    let path = closed_store(&scratch);
    unlock_directory(&path);
    fs::hard_link(&path, path.with_extension("too")).unwrap();
    lock_directory(&path);
    open_reader(&scratch, &path, 1_000).finish();
    unlock_directory(&path);
}

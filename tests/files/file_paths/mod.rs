//! The path of a store's file: renamed directories, unusual paths, hard links, and opens that fail.
#![allow(clippy::disallowed_methods, reason = "not on Android")]
#![allow(unsafe_code)] // `fsync`, which is recorded here

mod read_only;
mod replaced;

use std::cell::RefCell;
use std::ffi::{OsStr, c_int};
use std::fs::{self, File, Permissions};
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::common::cases::{ENGINES, each_case};
use crate::common::other::{Other, as_unprivileged as as_nobody_in, heard, role, say};
use crate::common::{Scratch, fill, keys, with_suffix};
use kvstore::{CheckpointMode, Config, Error, ErrorKind, JournalMode, Store, SyncLevel};

/// The module of [`child`].
const MODULE: &str = module_path!();

const MODES: [(&str, JournalMode); 2] =
    [("WAL mode", JournalMode::Wal), ("DELETE mode", JournalMode::Delete)];

// ---- syncs of this thread -----------------------------------------------------------------------

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

// ---- another process, perhaps another user ------------------------------------------------------

/// Starts this program as an unprivileged user. It waits for a line before it begins.
fn as_unprivileged(scratch: &Scratch, path: &Path, role: &str) -> Other {
    chmod(scratch.dir(), 0o755);
    let folder = tempfile::tempdir().unwrap();
    let program = as_nobody_in(folder.path());
    let mut other = Other::launch(program, MODULE, path, role);
    other.expect("ready");
    other
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
        "write-long" => {
            let store = Store::open_with(path, &hot_config()).unwrap();
            store.begin_write().unwrap();
            (0..200).for_each(|n| store.put(format!("k{n}"), [b'v'; 3000]).unwrap());
            say("in a transaction");
            heard();
        }
        other => panic!("no role {other}"),
    }
}

/// Configuration of a store in DELETE mode whose transactions soon write to the file.
fn hot_config() -> Config {
    Config::new().journal_mode(JournalMode::Delete).cache_pages(10)
}

/// Kills a process in a transaction, which leaves its journal.
fn kill_in_transaction(path: &Path) {
    let mut other = Other::start(MODULE, path, "write-long");
    other.expect("ready");
    other.go_on();
    other.expect("in a transaction");
    other.kill();
    assert!(fs::metadata(with_suffix(path, "-journal")).unwrap().len() > 0);
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

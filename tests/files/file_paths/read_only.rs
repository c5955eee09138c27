//! Read-only handles, files that a process may not write, and read-only locations.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{
    MODULE, as_unprivileged, chmod, configs, files_in, has_no_other_file, hot_config, kill_in_transaction,
    refused,
};
use crate::common::cases::{ENGINES, each_case};
use crate::common::other::Other;
use crate::common::{Scratch, fill, with_suffix};
use kvstore::{Config, ErrorKind, Expiry, Hint, Store};

/// Starts an unprivileged user's process that opens the store read-only and finds `count` keys.
#[track_caller]
fn open_reader(scratch: &Scratch, path: &Path, count: u32) -> Other {
    let mut reader = as_unprivileged(scratch, path, "read-only");
    reader.go_on();
    reader.expect(&count.to_string());
    reader
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

// ---- files after a read-only handle -------------------------------------------------------------

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
    let mut reader = Other::launch(program, MODULE, &mount.join("store.db"), "read-only");
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

// ---- the journal of a killed process --------------------------------------------------------------

#[test]
fn read_only_open_leaves_transaction_of_killed_process() {
    each_case(ENGINES, |sql| {
        let scratch = Scratch::new();
        let store = scratch.open_with(&hot_config());
        store.put("a", "committed").unwrap();
        store.close().unwrap();
        kill_in_transaction(&scratch.path());
        let files = scratch.bytes();
        let error =
            Store::open_with(scratch.path(), &hot_config().read_only(true).sql_engine(sql)).unwrap_err();
        assert_eq!(
            (error.kind(), error.hint()),
            (ErrorKind::ReadOnly, Some(Hint::OpenForWriting)),
            "{error}"
        );
        assert!(error.to_string().contains("a process was killed in a transaction"), "{error}");
        assert!(scratch.bytes() == files);
        // One open for writing rolls it back.
        scratch.open_with(&hot_config().sql_engine(sql)).close().unwrap();
        let reader = scratch.open_with(&hot_config().read_only(true).sql_engine(sql));
        assert_eq!(reader.get("a").unwrap().as_deref(), Some(&b"committed"[..]));
        assert_eq!(reader.count().unwrap(), 1);
        has_no_other_file(&scratch.path());
    });
}

#[test]
fn backup_works_after_other_process_was_killed_in_transaction() {
    each_case(ENGINES, |sql| {
        let scratch = Scratch::new();
        let store = scratch.open_with(&hot_config().sql_engine(sql));
        store.put("a", "committed").unwrap();
        kill_in_transaction(&scratch.path());
        store.backup(scratch.file("copy"), |_, _| true).unwrap();
        let copy = Store::open_with(scratch.file("copy"), &hot_config()).unwrap();
        assert_eq!(copy.count().unwrap(), 1);
        copy.integrity_check().unwrap();
    });
}

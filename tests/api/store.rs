//! Opening and closing: files of a store, journal modes, read-only handles, and the limits of the
//! configuration.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{self, Scratch, TestClock, delete_mode, keys, kind, memory, python};
use kvstore::{CheckpointMode, Config, Direction, ErrorKind, JournalMode, KeyRange, Store, SyncLevel};

// ---- open and close ------------------------------------------------------------------------------

#[test]
fn writes_survive_reopening() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("a", "1").unwrap();
    store.create_family("f").unwrap().put("b", "2").unwrap();
    store.close().unwrap();
    let store = scratch.open();
    assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(store.family("f").unwrap().get("b").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn wal_files_exist_from_open_to_last_close() {
    if common::is_of_a_file("it is about files") {
        return;
    }
    let scratch = Scratch::new();
    let (first, second) = (scratch.open(), scratch.open());
    assert!(scratch.wal().exists() && scratch.shm().exists());
    first.put("a", "1").unwrap();
    first.close().unwrap();
    assert!(scratch.wal().exists() && scratch.shm().exists());
    second.close().unwrap();
    assert_eq!(scratch.bytes().into_keys().collect::<Vec<_>>(), ["store.db"]);
    let again = scratch.open();
    assert!(scratch.wal().exists() && scratch.shm().exists());
    assert_eq!(again.get("a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn file_closes_with_last_store_family_or_cursor() {
    if common::is_of_a_file("it is about files") {
        return;
    }
    let scratch = Scratch::new();
    let store = scratch.open();
    let family = store.create_family("f").unwrap();
    let cursor = family.cursor(KeyRange::all(), Direction::Forward);
    drop(store);
    family.put("still", "works").unwrap();
    drop(family);
    assert!(scratch.wal().exists());
    drop(cursor);
    assert!(!scratch.wal().exists());
}

#[test]
fn close_rolls_back_open_transaction() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("before", "1").unwrap();
    store.begin_write().unwrap();
    store.put("inside", "1").unwrap();
    store.close().unwrap();
    assert_eq!(keys(scratch.open().iter()), [b"before"]);
}

#[test]
fn all_calls_after_close_return_misuse() {
    let scratch = Scratch::new();
    let store = scratch.open();
    let family = store.create_family("f").unwrap();
    family.put("a", "1").unwrap();
    let mut cursor = family.cursor(KeyRange::all(), Direction::Forward);
    assert!(cursor.first().unwrap());
    let mut prefix = family.cursor(KeyRange::prefix(b"p"), Direction::Forward);
    store.close().unwrap();
    assert!(!cursor.is_valid());
    let misuse = [
        kind(store.get("a")),
        kind(store.put("a", "1")),
        kind(store.begin_write()),
        kind(store.commit()),
        kind(store.stats()),
        kind(store.reset_stats()),
        kind(store.integrity_check()),
        kind(store.sync()),
        kind(store.checkpoint(CheckpointMode::Passive)),
        kind(store.incremental_vacuum(None)),
        kind(store.family_names()),
        kind(store.create_family("g")),
        kind(store.family("f")),
        kind(store.drop_family("f")),
        kind(family.get("a")),
        kind(family.exists("a")),
        kind(family.ttl("a")),
        kind(family.count()),
        kind(family.purge_expired()),
        kind(family.clear()),
        kind(family.delete("a")),
        kind(cursor.next()),
        kind(cursor.first()),
        kind(cursor.seek("a")),
        kind(prefix.first()),
        kind(prefix.seek("outside")),
        kind(prefix.next()),
        kind(family.iter().next().unwrap()),
        kind(store.close()),
    ];
    assert!(misuse.iter().all(|kind| *kind == ErrorKind::Misuse), "{misuse:?}");
}

#[test]
fn stores_in_memory_are_separate_and_have_no_file() {
    if common::is_of_a_file("it is about files") {
        return;
    }
    let (one, two) = (memory(), memory());
    one.put("a", "1").unwrap();
    assert_eq!(two.get("a").unwrap(), None);
    assert_eq!(one.checkpoint(CheckpointMode::Truncate).unwrap(), (0, 0));
    one.sync().unwrap();
    one.integrity_check().unwrap();
    assert_eq!(kind(Store::open_in_memory(&Config::new().read_only(true))), ErrorKind::Error);
}

#[test]
fn read_only_and_exclusive_are_refused_together() {
    for mode in [JournalMode::Wal, JournalMode::Delete] {
        let scratch = Scratch::new();
        let config = Config::new().journal_mode(mode);
        scratch.open_with(&config).put("a", "1").unwrap();
        let both = config.clone().read_only(true).exclusive(true);
        let error = Store::open_with(scratch.path(), &both).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Error);
        assert!(
            error.to_string().contains("read-only") && error.to_string().contains("exclusive"),
            "{error}"
        );
        // The files are unchanged, and each works alone.
        assert!(!scratch.wal().exists());
        scratch.open_with(&config.clone().exclusive(true)).put("b", "1").unwrap();
        assert_eq!(scratch.open_with(&config.read_only(true)).count().unwrap(), 2);
    }
}

#[test]
fn opening_handle_does_not_block_writers() {
    let scratch = Scratch::new();
    let store = scratch.open();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|_| {
                // Without a busy timeout. Threads that share a handle do not block each other.
                scope.spawn(|| {
                    (0..)
                        .take_while(|_| !over.load(Ordering::Relaxed))
                        .try_for_each(|n| store.put("k", n.to_string()))
                })
            })
            .collect();
        for _ in 0..500 {
            scratch.open_with(&Config::new().busy_timeout(Duration::from_secs(5))).close().unwrap();
        }
        over.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().unwrap().unwrap();
        }
    });
}

#[test]
fn paths_special_to_sqlite_are_plain_file_names() {
    if common::is_of_a_file("it is about files") {
        return;
    }
    let scratch = Scratch::new();
    for name in [":memory:", "file:x?mode=memory", "a b%20c?d#e", "ünï'\"", "-x"] {
        Store::open(scratch.file(name)).unwrap().put("a", name).unwrap();
        assert!(scratch.file(name).is_file(), "{name}");
        let again = Store::open(scratch.file(name)).unwrap();
        assert_eq!(again.get("a").unwrap().as_deref(), Some(name.as_bytes()), "{name}");
    }
    let not_text = scratch.dir().join(OsStr::from_bytes(b"\xff\xfe.db"));
    let store = Store::open(&not_text).unwrap();
    store.put("a", "1").unwrap();
    store.sync().unwrap();
    assert!(not_text.is_file());
    assert!(Store::open(&not_text).unwrap().exists("a").unwrap());
}

#[test]
fn path_with_unknown_scheme_is_refused_and_creates_no_file() {
    let scratch = Scratch::new();
    let store = Store::open_in_memory(&Config::new()).unwrap();
    let files = || {
        let mut names: Vec<_> =
            std::fs::read_dir(".").unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = files();
    for path in ["file:x.db?mode=ro", "redis://h/0", "postgresql+psycopg://u:secret@h/d", "sqlite:///x.db"] {
        let opened = Store::open(path).err();
        let read = Store::open_with(path, &Config::new().read_only(true)).err();
        let backup = store.backup(path, |_, _| true).err();
        let stops = |_: kvstore::RecoverEvent<'_>| std::ops::ControlFlow::Continue(());
        let recovered = kvstore::recover(path, scratch.file("new.db"), stops).err();
        let into = kvstore::recover(scratch.path(), path, stops).err();
        for error in [opened, read, backup, recovered, into] {
            let error = error.expect(path);
            assert_eq!(error.kind(), ErrorKind::Error, "{path}: {error}");
            let text = error.to_string();
            assert!(text.contains("postgresql://") && text.contains("path of a file"), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
    }
    assert_eq!(files(), before);
}

#[test]
fn symlink_opens_its_target_store() {
    if common::is_of_a_file("it is about files") {
        return;
    }
    let scratch = Scratch::new();
    let store = scratch.open();
    symlink(scratch.path(), scratch.file("link.db")).unwrap();
    let link = Store::open(scratch.file("link.db")).unwrap();
    link.put("a", "1").unwrap();
    assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    link.sync().unwrap();
    assert!(!scratch.file("link.db-wal").exists());
}

#[test]
fn two_handles_see_commits_of_each_other_at_once() {
    let scratch = Scratch::new();
    let (one, two) = (scratch.open(), scratch.open());
    for n in 0..50_u8 {
        one.put("n", [n]).unwrap();
        assert_eq!(two.get("n").unwrap(), Some(vec![n]));
        two.delete("n").unwrap();
        assert!(!one.exists("n").unwrap());
    }
}

#[test]
fn exclusive_handle_excludes_others_until_closed() {
    if common::is_of_a_file("a handle is never alone there") {
        return;
    }
    let scratch = Scratch::new();
    for mode in [JournalMode::Wal, JournalMode::Delete] {
        let config = Config::new().exclusive(true).journal_mode(mode).busy_timeout(Duration::ZERO);
        let owner = scratch.open_with(&config);
        owner.put("a", "1").unwrap();
        let refused = Store::open_with(scratch.path(), &config).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Busy, "{mode:?}");
        // An open waits for two seconds, whatever the busy timeout.
        let text = refused.to_string();
        assert!(text.contains("exclusively") && !text.contains("busy_timeout"), "{text}");
        assert_eq!(text.matches("handle or process").count(), 1, "{text}");
        assert_eq!(owner.get("a").unwrap().as_deref(), Some(&b"1"[..]));
        owner.close().unwrap();
        assert_eq!(scratch.open_with(&config).get("a").unwrap().as_deref(), Some(&b"1"[..]));
    }
}

// ---- journal modes -------------------------------------------------------------------------------

#[test]
fn reopening_with_other_journal_mode_converts_file() {
    if common::is_of_a_file("it is about files") {
        return;
    }
    let scratch = Scratch::new();
    scratch.open_with(&delete_mode()).put("a", "1").unwrap();
    assert_eq!(scratch.bytes().into_keys().collect::<Vec<_>>(), ["store.db"]);
    assert_eq!(python(&scratch.path(), "print(*con.execute('pragma journal_mode').fetchone())"), "delete");
    scratch.open().put("b", "1").unwrap();
    assert_eq!(python(&scratch.path(), "print(*con.execute('pragma journal_mode').fetchone())"), "wal");
    let store = scratch.open_with(&delete_mode());
    store.put("c", "1").unwrap();
    assert!(!scratch.wal().exists());
    assert_eq!(store.checkpoint(CheckpointMode::Full).unwrap(), (0, 0));
    assert_eq!(keys(store.iter()), [b"a", b"b", b"c"]);
    store.integrity_check().unwrap();
}

#[test]
fn existing_file_keeps_journal_mode_if_requested() {
    if common::is_of_a_file("it is about files") {
        return;
    }
    let scratch = Scratch::new();
    drop(scratch.open_with(&delete_mode()));
    let keep = Config::new().keep_journal_mode(true);
    let store = scratch.open_with(&keep);
    store.put("a", "1").unwrap();
    assert_eq!(store.info().unwrap().journal_mode, Some(JournalMode::Delete));
    drop(store);
    drop(scratch.open());
    let mode = |store: &Store| store.info().unwrap().journal_mode;
    assert_eq!(
        mode(&scratch.open_with(&keep.clone().journal_mode(JournalMode::Delete))),
        Some(JournalMode::Wal)
    );
    // A new file gets the requested mode.
    for wanted in [JournalMode::Wal, JournalMode::Delete] {
        let scratch = Scratch::new();
        assert_eq!(mode(&scratch.open_with(&keep.clone().journal_mode(wanted))), Some(wanted));
    }
}

#[test]
fn wal_store_open_elsewhere_is_not_converted() {
    if common::is_of_a_file("it is about files") {
        return;
    }
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("a", "1").unwrap();
    assert_eq!(kind(Store::open_with(scratch.path(), &delete_mode())), ErrorKind::Busy);
    store.put("b", "1").unwrap();
    assert_eq!(keys(scratch.open().iter()), [b"a", b"b"]);
    assert!(scratch.wal().exists());
}

#[test]
fn handle_continues_after_other_handle_converts_to_wal() {
    if common::is_of_a_file("it is about files") {
        return;
    }
    let scratch = Scratch::new();
    let old = scratch.open_with(&delete_mode());
    old.put("a", "1").unwrap();
    match Store::open(scratch.path()) {
        Err(e) => assert_eq!(e.kind(), ErrorKind::Busy),
        Ok(new) => {
            new.put("b", "1").unwrap();
            old.put("c", "1").unwrap();
            assert_eq!(keys(new.iter()), [b"a", b"b", b"c"]);
            assert_eq!(keys(old.iter()), [b"a", b"b", b"c"]);
            // The file is in WAL mode now, so checkpoints work as documented for that mode.
            old.checkpoint(CheckpointMode::Truncate).unwrap();
            assert_eq!(fs::metadata(scratch.wal()).unwrap().len(), 0);
        }
    }
}

// ---- read-only -----------------------------------------------------------------------------------

#[test]
fn read_only_handle_reads_and_refuses_every_write() {
    let scratch = Scratch::new();
    let writer = scratch.open();
    writer.put("a", "1").unwrap();
    writer.create_family("f").unwrap();
    let store = scratch.open_with(&Config::new().read_only(true));
    let family = store.family("f").unwrap();
    let refused = [
        kind(store.put("b", "1")),
        kind(store.put_if_absent("b", "1", kvstore::Expiry::Never)),
        kind(store.delete("a")),
        kind(store.clear()),
        kind(store.create_family("g")),
        kind(store.drop_family("nothing")),
        kind(store.begin_write()),
        kind(store.incremental_vacuum(None)),
        kind(family.put_with_ttl("b", "1", Duration::from_secs(1))),
    ];
    assert!(refused.iter().all(|kind| *kind == ErrorKind::ReadOnly), "{refused:?}");
    writer.put("later", "1").unwrap();
    assert_eq!(keys(store.iter()), [&b"a"[..], b"later"]);
    store.begin_read().unwrap();
    assert_eq!(store.count().unwrap(), 2);
    store.commit().unwrap();
    store.integrity_check().unwrap();
}

#[test]
fn read_only_handle_keeps_file_despite_expired_rows() {
    if common::is_of_a_file("it is about files") {
        return;
    }
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    for config in [Config::new(), delete_mode()] {
        let writer = scratch.open_with(&config);
        clock.drive(&writer);
        writer.put_with_expiry("dead", "1", kvstore::Expiry::At(2_000)).unwrap();
        writer.put("live", "1").unwrap();
        writer.close().unwrap();
        clock.set(3_000);
        let before = fs::read(scratch.path()).unwrap();
        let store = scratch.open_with(&config.clone().read_only(true));
        clock.drive(&store);
        assert_eq!(store.get("dead").unwrap(), None);
        assert!(store.exists("live").unwrap());
        assert_eq!(keys(store.iter()), [b"live"]);
        assert_eq!(store.count().unwrap(), 2);
        assert_eq!(kind(store.purge_expired()), ErrorKind::ReadOnly);
        store.sync().unwrap();
        store.close().unwrap();
        assert_eq!(fs::read(scratch.path()).unwrap(), before);
        clock.set(1_000);
        scratch.open_with(&config).clear().unwrap();
    }
}

#[test]
fn store_is_usable_after_last_read_only_handle_closes() {
    if common::is_of_a_file("it is about files") {
        return;
    }
    let scratch = Scratch::new();
    scratch.open().put("a", "1").unwrap();
    scratch.open_with(&Config::new().read_only(true)).close().unwrap();
    scratch.open().put("b", "1").unwrap();
    assert_eq!(keys(scratch.open_with(&Config::new().read_only(true)).iter()), [b"a", b"b"]);
    scratch.open().close().unwrap();
    assert_eq!(scratch.bytes().into_keys().collect::<Vec<_>>(), ["store.db"]);
}

#[test]
fn read_only_open_creates_no_file() {
    let scratch = Scratch::new();
    let config = Config::new().read_only(true);
    assert_eq!(kind(Store::open_with(scratch.path(), &config)), ErrorKind::CantOpen);
    assert!(scratch.bytes().is_empty());
    if common::is_of_a_file("the rest is about an empty one") {
        return;
    }
    fs::write(scratch.path(), "").unwrap();
    assert_eq!(kind(Store::open_with(scratch.path(), &config)), ErrorKind::CantOpen);
    assert_eq!(scratch.bytes(), [("store.db".to_owned(), Vec::new())].into());
}

// ---- configuration -------------------------------------------------------------------------------

#[test]
fn page_size_is_power_of_two_and_kept_by_existing_file() {
    if common::is_of_a_file("it is about files") {
        return;
    }
    for good in [512, 1024, 4096, 32_768, 65_536] {
        let scratch = Scratch::new();
        let store = scratch.open_with(&Config::new().page_size(good));
        store.put(vec![1; 3_000], vec![7; 70_000]).unwrap();
        store.integrity_check().unwrap();
        store.close().unwrap();
        let size = || python(&scratch.path(), "print(*con.execute('pragma page_size').fetchone())");
        assert_eq!(size(), good.to_string());
        let again = scratch.open_with(&Config::new().page_size(8192));
        again.put("b", vec![7; 2_000]).unwrap();
        assert_eq!(again.get(vec![1; 3_000]).unwrap(), Some(vec![7; 70_000]));
        drop(again);
        assert_eq!(size(), good.to_string());
    }
    for bad in [0, 1, 256, 511, 1000, 4095, 131_072, u32::MAX] {
        assert_eq!(kind(Store::open_in_memory(&Config::new().page_size(bad))), ErrorKind::Error, "{bad}");
    }
}

#[test]
fn out_of_range_settings_are_refused_before_file_creation() {
    let scratch = Scratch::new();
    for config in [
        Config::new().page_size(3),
        Config::new().cache_pages(0),
        Config::new().cache_pages(u32::MAX),
        Config::new().busy_timeout(Duration::MAX),
        Config::new().busy_timeout(Duration::from_millis(1 << 31)),
        Config::new().checkpoint_every(0),
        Config::new().max_value_size(0),
        Config::new().max_value_size(512 * 1024 * 1024 + 1),
    ] {
        assert_eq!(kind(Store::open_with(scratch.path(), &config)), ErrorKind::Error, "{config:?}");
    }
    assert!(scratch.bytes().is_empty());
}

#[test]
fn settings_at_their_bounds_work() {
    for config in [
        Config::new().cache_pages(1),
        Config::new().cache_pages(i32::MAX.unsigned_abs()),
        Config::new().busy_timeout(Duration::from_millis((1 << 31) - 1)),
        Config::new().checkpoint_every(1),
        Config::new().checkpoint_every(u32::MAX),
        Config::new().max_value_size(512 * 1024 * 1024),
        Config::new().mmap_size(0),
        Config::new().mmap_size(u64::MAX),
        Config::new().sync(SyncLevel::Full),
        Config::new().sync(SyncLevel::Off),
    ] {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        store.put("a", vec![1; 5_000]).unwrap();
        store.sync().unwrap();
        assert_eq!(store.get("a").unwrap(), Some(vec![1; 5_000]), "{config:?}");
        store.close().unwrap();
        assert!(scratch.open_with(&config).exists("a").unwrap(), "{config:?}");
    }
}

#[test]
fn each_commit_of_any_handle_increments_commit_counter() {
    if common::is_of_a_file("it is about files") {
        return;
    }
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("k", "1").unwrap();
    let other = scratch.open();
    let looking = scratch.open_with(&Config::new().read_only(true));
    let before = looking.commit_counter().unwrap().unwrap();
    for n in 0..5 {
        store.put("k", format!("new {n}")).unwrap();
        other.put("l", format!("new {n}")).unwrap();
    }
    store.put("k", "new 4").unwrap(); // changes nothing
    assert!(!store.delete("missing").unwrap());
    store.checkpoint(CheckpointMode::Restart).unwrap();
    store.begin_write().unwrap();
    store.put("m", "1").unwrap();
    store.put("n", "1").unwrap();
    assert_eq!(looking.commit_counter().unwrap().unwrap().wrapping_sub(before), 10);
    store.commit().unwrap();
    for handle in [&store, &other, &looking] {
        assert_eq!(handle.commit_counter().unwrap().unwrap().wrapping_sub(before), 11);
    }
    drop((store, other, looking));
    let (memory, scratch) = (memory(), Scratch::new());
    let deleting = scratch.open_with(&delete_mode());
    let alone = Scratch::new();
    let alone = alone.open_with(&Config::new().exclusive(true));
    for store in [memory, deleting, alone] {
        store.put("k", "1").unwrap();
        assert_eq!(store.commit_counter().unwrap(), None);
    }
}

#[test]
fn mistyped_url_error_hides_password() {
    for path in ["postgesql://app:secret@localhost/app", "POSTGRESQL:/app:secret@localhost/app"] {
        let text = Store::open(path).unwrap_err().to_string();
        assert!(text.contains("/…") && !text.contains("secret"), "{text}");
    }
}

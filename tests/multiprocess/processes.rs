//! Two and more processes on one file: expiry seen across them, no lost writes, locks that hold, and
//! kill -9 in the middle of transactions.
//!
//! The other process is this test program again, running only [`child`] in a role. They talk in
//! lines: the child's start with `> `, the parent's are empty and mean "go on".

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::common::other::{Other, heard, role, say};
use crate::common::{Scratch, TestClock, keys, kind, numbered, python, sqlite_check};
use kvstore::{CheckpointMode, Config, ErrorKind, Expiry, JournalMode, Result, Store, Ttl};

/// Far in the future, for the wall clock, too.
const LATER: i64 = 4_000_000_000_000;

// ---- the other process ---------------------------------------------------------------------------

fn wait() {
    heard();
}

#[test]
#[ignore = "no test, but the other process of the tests in this file"]
fn child() {
    let Some((role, path)) = role() else { return };
    let (role, argument) = role.split_once(' ').unwrap_or((&role, ""));
    let path = path.as_path();
    match role {
        "set-ttl" => {
            let store = Store::open(path).unwrap();
            say("open");
            wait();
            store.put_with_expiry("a", "2", Expiry::At(2_000)).unwrap();
            say("done");
        }
        "overwrite" => {
            let store = Store::open(path).unwrap();
            store.put("plain", "2").unwrap();
            store.put_with_expiry("longer", vec![2; 5_000], Expiry::At(3_000)).unwrap();
            say("done");
        }
        "purge" => {
            let store = Store::open(path).unwrap();
            TestClock::at(2_000).drive(&store);
            say(store.purge_expired().unwrap());
        }
        "write" => {
            let config = Config::new().busy_timeout(Duration::from_secs(120));
            let store = Store::open_with(path, &config).unwrap();
            say("open");
            wait();
            for n in 0..5_000 {
                let key = [argument.as_bytes(), &numbered(n)].concat();
                match n % 3 {
                    0 => store.put_with_expiry(&key, &key, Expiry::At(LATER)).unwrap(),
                    _ => store.put(&key, &key).unwrap(),
                }
            }
        }
        "grow-and-shrink" => {
            let store =
                Store::open_with(path, &Config::new().busy_timeout(Duration::from_millis(100))).unwrap();
            for _ in 0..12 {
                store
                    .transaction(|tx| {
                        (0..800).try_for_each(|n| tx.put(["x", &format!("{n:06}")].concat(), [7; 700]))
                    })
                    .unwrap();
                store.checkpoint(CheckpointMode::Passive).unwrap();
                store.delete_range(&kvstore::KeyRange::prefix(b"x")).unwrap();
                store.incremental_vacuum(None).unwrap();
                // Readers may block this.
                let _ = store.checkpoint(CheckpointMode::Truncate);
            }
            say("done");
        }
        "open-and-put" => {
            say("ready");
            wait();
            let config = Config::new().busy_timeout(Duration::from_secs(120));
            Store::open_with(path, &config).unwrap().put(argument, "1").unwrap();
        }
        "hold" => {
            let store = Store::open(path).unwrap();
            store.begin_write().unwrap();
            store.put("b", "2").unwrap();
            store.delete("a").unwrap();
            say("holding");
            wait();
            store.commit().unwrap();
            say("done");
        }
        "open-and-close" => {
            let store = Store::open(path).unwrap();
            say(store.count().unwrap());
            store.close().unwrap();
        }
        "half" => {
            let store = Store::open_with(path, &crash_config(argument)).unwrap();
            store.begin_write().unwrap();
            store.clear().unwrap();
            for n in 0..2_000 {
                store.put_with_expiry(numbered(n), vec![7; 1_500], Expiry::At(LATER)).unwrap();
            }
            store.create_family("new").unwrap().put("a", "1").unwrap();
            say("half");
            wait();
        }
        "crash" => crash(path, argument),
        "fork" => {
            let store = Store::open(path).unwrap();
            let family = store.create_family("f").unwrap();
            let mut iter = store.iter();
            store.put("a", "1").unwrap();
            // SAFETY: the child uses nothing of other threads'.
            match unsafe { libc::fork() } {
                0 => {}
                child => {
                    // SAFETY: waits for the child made just now.
                    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
                    drop((store, family, iter));
                    return;
                }
            }
            say(kind(store.put("b", "1")) == ErrorKind::Misuse);
            say(kind(family.count()) == ErrorKind::Misuse);
            say(kind(iter.next().unwrap()) == ErrorKind::Misuse);
            say(kind(store.begin_write()) == ErrorKind::Misuse);
            say(kind(store.close()) == ErrorKind::Misuse);
            let own = Store::open(path).unwrap();
            say(own.get("a").unwrap().as_deref() == Some(b"1"));
            say(own.put("b", "2").is_ok());
            drop((store, family, iter, own));
            say(path.with_extension("db-wal").exists());
            wait();
        }
        "make" => {
            say("now");
            drop(Store::open(path));
        }
        other => panic!("no role {other}"),
    }
}

// ---- expiry across processes ---------------------------------------------------------------------

#[test]
fn reads_are_correct_while_other_process_resizes_file() {
    for hold in [true, false] {
        let scratch = Scratch::new();
        let config = Config::new().hold_reads(hold).busy_timeout(Duration::from_secs(120));
        let store = scratch.open_with(&config);
        store.transaction(|tx| (0..500).try_for_each(|n| tx.put(numbered(n), [n as u8; 300]))).unwrap();
        store.checkpoint(CheckpointMode::Truncate).unwrap();
        let mut other = Other::start(module_path!(), &scratch.path(), "grow-and-shrink");
        let done = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            let reads = scope.spawn(|| {
                let mut reads = 0;
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    for n in 0..500 {
                        assert_eq!(store.get(numbered(n)).unwrap().unwrap(), [n as u8; 300]);
                    }
                    reads += 500;
                }
                reads
            });
            other.expect("done");
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(reads.join().unwrap() > 500);
        });
        store.integrity_check().unwrap();
    }
}

#[test]
fn ttl_set_by_other_process_expires_key_here() {
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    let store = scratch.open_at(&clock);
    store.put("a", "1").unwrap();
    assert_eq!(store.ttl("a").unwrap(), Some(Ttl::None));
    let mut other = Other::start(module_path!(), &scratch.path(), "set-ttl");
    other.expect("open");
    assert!(store.exists("a").unwrap());
    other.go_on();
    other.expect("done");
    clock.set(1_999);
    assert_eq!(
        store.get_with_ttl("a").unwrap(),
        Some((b"2".to_vec(), Ttl::Remaining(Duration::from_millis(1))))
    );
    clock.set(2_000);
    assert_eq!(store.iter().count(), 0);
    assert_eq!(store.get("a").unwrap(), None);
    assert!(!store.exists("a").unwrap());
    other.finish();
    store.integrity_check().unwrap();
}

#[test]
fn purge_keeps_key_overwritten_by_other_process() {
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    let store = scratch.open_at(&clock);
    for key in ["plain", "longer", "dead"] {
        store.put_with_expiry(key, "1", Expiry::At(2_000)).unwrap();
    }
    Other::start(module_path!(), &scratch.path(), "overwrite").finish();
    clock.set(2_000);
    assert_eq!(store.purge_expired().unwrap(), 1);
    assert_eq!(store.get("plain").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(store.get("longer").unwrap(), Some(vec![2; 5_000]));
    store.integrity_check().unwrap();
}

#[test]
fn purge_by_other_process_keeps_key_overwritten_here() {
    let scratch = Scratch::new();
    let store = scratch.open_at(&TestClock::at(1_000));
    for n in 0..600 {
        store.put_with_expiry(numbered(n), vec![1; 2_000], Expiry::At(2_000)).unwrap();
    }
    for n in (0..600).step_by(2) {
        store.put(numbered(n), "live").unwrap();
    }
    let mut other = Other::start(module_path!(), &scratch.path(), "purge");
    other.expect("300");
    other.finish();
    assert_eq!(keys(store.iter()), (0..600).step_by(2).map(numbered).collect::<Vec<_>>());
    assert_eq!(store.count().unwrap(), 300);
    store.integrity_check().unwrap();
}

// ---- writers and readers -------------------------------------------------------------------------

#[test]
fn four_writers_with_busy_timeout_lose_no_write() {
    let scratch = Scratch::new();
    let store = scratch.open();
    let mut writers = ["w0 ", "w1 ", "w2 ", "w3 "].map(|name| {
        let mut writer = Other::start(module_path!(), &scratch.path(), &format!("write {name}"));
        writer.expect("open");
        writer
    });
    writers.iter_mut().for_each(Other::go_on);
    writers.into_iter().for_each(Other::finish);
    assert_eq!(store.count().unwrap(), 20_000);
    let expected =
        (0..4).flat_map(|w| (0..5_000).map(move |n| [format!("w{w} ").into_bytes(), numbered(n)].concat()));
    for (entry, key) in store.iter().map(Result::unwrap).zip(expected) {
        assert_eq!(entry, (key.clone(), key));
    }
    store.integrity_check().unwrap();
}

#[test]
fn reads_continue_during_write_transaction_of_other_process() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("a", "1").unwrap();
    let mut writer = Other::start(module_path!(), &scratch.path(), "hold");
    writer.expect("holding");
    assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(keys(store.iter()), [b"a"]);
    assert_eq!(store.purge_expired().unwrap(), 0);
    assert_eq!(kind(store.put("c", "1")), ErrorKind::Busy);
    let late = scratch.open();
    assert_eq!(keys(late.iter()), [b"a"]);
    writer.go_on();
    writer.expect("done");
    assert_eq!(keys(store.iter()), [b"b"]);
    assert_eq!(keys(late.iter()), [b"b"]);
    writer.finish();
    store.put("c", "1").unwrap();
}

/// In DELETE mode a writer locks readers out during a commit, and continuous writers leave them
/// only short gaps. An open that retried ever less often, and needed six gaps, failed one time in
/// three.
#[test]
fn open_succeeds_among_continuous_writers() {
    let scratch = Scratch::new();
    let config = Config::new().journal_mode(JournalMode::Delete).busy_timeout(Duration::from_secs(5));
    let first = scratch.open_with(&config);
    first.put("seed", "1").unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..4 {
            let (scratch, config, stop) = (&scratch, &config, &stop);
            scope.spawn(move || {
                let store = scratch.open_with(config);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = store.put(format!("writer {writer}"), "1"); // may be busy after 5 s: that is SQLite's
                }
            });
        }
        thread::sleep(Duration::from_millis(100));
        let opened: Vec<_> = (0..30).map(|_| Store::open_with(scratch.path(), &config).map(drop)).collect();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let failed: Vec<_> = opened.into_iter().filter_map(Result::err).collect();
        assert!(failed.is_empty(), "{failed:?}");
    });
}

#[test]
fn concurrent_opens_of_new_file_get_same_store() {
    for _ in 0..20 {
        let scratch = Scratch::new();
        let mut openers = ["a", "b", "c", "d"].map(|name| {
            let mut opener = Other::start(module_path!(), &scratch.path(), &format!("open-and-put {name}"));
            opener.expect("ready");
            opener
        });
        openers.iter_mut().for_each(Other::go_on);
        thread::scope(|scope| {
            for name in ["e", "f", "g", "h"] {
                let config = Config::new().busy_timeout(Duration::from_secs(120));
                let path = scratch.path();
                scope.spawn(move || Store::open_with(path, &config).unwrap().put(name, "1").unwrap());
            }
        });
        openers.into_iter().for_each(Other::finish);
        let store = scratch.open();
        assert_eq!(keys(store.iter()).concat(), b"abcdefgh");
        store.integrity_check().unwrap();
    }
}

#[test]
fn closing_second_handle_keeps_locks_of_first() {
    let scratch = Scratch::new();
    let first = scratch.open();
    first.put("a", "1").unwrap();
    scratch.open().close().unwrap();
    scratch.open_with(&Config::new().read_only(true)).close().unwrap();
    assert!(Store::open_with(scratch.path(), &Config::new().journal_mode(JournalMode::Delete)).is_err());
    first.sync().unwrap();
    // Without the locks, the other process would think that it is the last one and remove the WAL.
    let mut other = Other::start(module_path!(), &scratch.path(), "open-and-close");
    other.expect("1");
    other.finish();
    assert!(scratch.wal().exists() && scratch.shm().exists());
    first.put("b", "1").unwrap();
    let mut other = Other::start(module_path!(), &scratch.path(), "open-and-close");
    other.expect("2");
    other.finish();
    assert_eq!(keys(first.iter()), [b"a", b"b"]);
    first.integrity_check().unwrap();
}

#[test]
fn closing_second_handle_keeps_write_transaction_lock() {
    for mode in [JournalMode::Wal, JournalMode::Delete] {
        let scratch = Scratch::new();
        let config = Config::new().journal_mode(mode);
        let (first, second) = (scratch.open_with(&config), scratch.open_with(&config));
        first.begin_write().unwrap();
        first.put("a", "1").unwrap();
        second.close().unwrap();
        let busy = python(
            &scratch.path(),
            "con.execute('pragma busy_timeout = 0')
try:
    con.execute('begin immediate')
    print('free')
except sqlite3.OperationalError as e:
    print(e)",
        );
        assert_eq!(busy, "database is locked", "{mode:?}");
        first.commit().unwrap();
        assert_eq!(keys(first.iter()), [b"a"]);
    }
}

#[test]
fn forked_child_cannot_use_parent_handles_but_reopens_file() {
    let scratch = Scratch::new();
    scratch.open().put("a", "1").unwrap();
    let mut other = Other::start(module_path!(), &scratch.path(), "fork");
    for _ in 0..8 {
        other.expect("true");
    }
    other.go_on();
    other.finish();
    assert_eq!(keys(scratch.open().iter()), [b"a", b"b"]);
}

// ---- kill -9 -------------------------------------------------------------------------------------

/// A cache so small that changes go to the file long before the commit.
fn crash_config(mode: &str) -> Config {
    let mode = if mode == "wal" { JournalMode::Wal } else { JournalMode::Delete };
    Config::new().journal_mode(mode).cache_pages(10)
}

const KEYS_PER_COMMIT: usize = 60;

fn crash_key(commit: usize, n: usize) -> Vec<u8> {
    format!("{n:02} {commit:06}").into_bytes() // spread over all pages
}

/// Every third value is large; every second key has a TTL.
fn crash_entry(commit: usize, n: usize) -> (Vec<u8>, Expiry) {
    let len = if n.is_multiple_of(3) { 3_000 } else { 30 };
    (vec![(commit + n) as u8; len], if n.is_multiple_of(2) { Expiry::At(LATER) } else { Expiry::Never })
}

/// Commits one transaction after the other and prints each, until it is killed.
fn crash(path: &Path, mode: &str) {
    let store = Store::open_with(path, &crash_config(mode)).unwrap();
    let progress = store.get_or_create_family("progress").unwrap();
    let done = |store: &Store| store.count().unwrap() as usize / KEYS_PER_COMMIT;
    for commit in done(&store).. {
        store
            .transaction(|tx| -> Result<()> {
                for n in 0..KEYS_PER_COMMIT {
                    let (value, expiry) = crash_entry(commit, n);
                    tx.put_with_expiry(crash_key(commit, n), value, expiry)?;
                }
                progress.put_with_expiry(
                    "commits",
                    (commit + 1).to_string(),
                    Expiry::At(LATER + commit as i64),
                )
            })
            .unwrap();
        say(commit + 1);
    }
}

fn is_sound(scratch: &Scratch, store: &Store) {
    store.integrity_check().unwrap();
    assert_eq!(sqlite_check(&scratch.path()), "ok");
}

#[test]
fn kill_9_keeps_exactly_acknowledged_commits() {
    for mode in ["wal", "delete"] {
        let scratch = Scratch::new();
        for round in 0..8 {
            let mut child = Other::start(module_path!(), &scratch.path(), &format!("crash {mode}"));
            let mut acknowledged = 0;
            for _ in 0..2 + round * 3 {
                acknowledged = child.hear().expect("the child runs until killed").parse().unwrap();
            }
            if let Some(last) = child.kill().last() {
                acknowledged = last.parse().unwrap();
            }
            let store = scratch.open_with(&crash_config(mode));
            let progress = store.family("progress").unwrap().get("commits").unwrap().unwrap();
            let commits: usize = String::from_utf8(progress).unwrap().parse().unwrap();
            // It may have been killed between the commit and its acknowledgement.
            assert!((acknowledged..=acknowledged + 1).contains(&commits), "{commits} of {acknowledged}");
            assert_eq!(store.count().unwrap() as usize, commits * KEYS_PER_COMMIT);
            for commit in 0..commits {
                for n in 0..KEYS_PER_COMMIT {
                    let found =
                        store.get_with(crash_key(commit, n), |value, expiry| (value.to_vec(), expiry));
                    assert_eq!(found.unwrap(), Some(crash_entry(commit, n)));
                }
            }
            is_sound(&scratch, &store);
        }
    }
}

#[test]
fn killed_transaction_leaves_nothing_even_if_spilled() {
    for mode in ["wal", "delete"] {
        let scratch = Scratch::new();
        let store = scratch.open_with(&crash_config(mode));
        store.put_with_expiry("a", vec![1; 5_000], Expiry::At(LATER)).unwrap();
        store.close().unwrap();
        let mut child = Other::start(module_path!(), &scratch.path(), &format!("half {mode}"));
        child.expect("half");
        let spilled = if mode == "wal" { scratch.wal() } else { scratch.path() };
        assert!(fs::metadata(spilled).unwrap().len() > 1_000_000);
        child.kill();
        let store = scratch.open_with(&crash_config(mode));
        assert_eq!(keys(store.iter()), [b"a"]);
        assert_eq!(store.get("a").unwrap(), Some(vec![1; 5_000]));
        assert_eq!(store.count().unwrap(), 1);
        assert!(store.family_names().unwrap().is_empty());
        is_sound(&scratch, &store);
        store.put("b", "1").unwrap();
    }
}

#[test]
fn other_handles_continue_after_writer_is_killed() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("a", "1").unwrap();
    let mut child = Other::start(module_path!(), &scratch.path(), "half wal");
    child.expect("half");
    assert_eq!(kind(store.put("b", "1")), ErrorKind::Busy);
    child.kill();
    assert_eq!(keys(store.iter()), [b"a"]);
    store.put("b", "1").unwrap();
    assert_eq!(keys(scratch.open().iter()), [b"a", b"b"]);
    is_sound(&scratch, &store);
}

#[test]
fn process_killed_during_creation_leaves_usable_store() {
    for round in 0..30_u32 {
        let scratch = Scratch::new();
        let mut child = Other::start(module_path!(), &scratch.path(), "make");
        child.expect("now");
        for _ in 0..round * 40 {
            thread::yield_now();
        }
        child.kill();
        let store = scratch.open();
        assert_eq!(store.count().unwrap(), 0);
        store.put("a", "1").unwrap();
        is_sound(&scratch, &store);
    }
}

#[test]
fn store_interrupted_in_checkpoint_opens_with_all_commits() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("a", "1").unwrap();
    store.checkpoint(CheckpointMode::Truncate).unwrap();
    let before = fs::read(scratch.path()).unwrap();
    for n in 0..100 {
        store.put(numbered(n), vec![1; 3_000]).unwrap();
    }
    let wal = fs::read(scratch.wal()).unwrap();
    store.checkpoint(CheckpointMode::Passive).unwrap();
    let after = fs::read(scratch.path()).unwrap();
    store.close().unwrap();
    // A checkpoint writes pages in order: the first page, with the new number of pages, long before
    // the last. A power cut or kill may come after any page.
    for pages in [1, 2, 5, after.len() / 4096 - 1] {
        let written = pages * 4096;
        let rest = before.get(written..).unwrap_or_default();
        fs::write(scratch.path(), [&after[..written], rest].concat()).unwrap();
        fs::write(scratch.wal(), &wal).unwrap();
        for read_only in [true, false] {
            let store = scratch.open_with(&Config::new().read_only(read_only));
            assert_eq!(store.count().unwrap(), 101);
            store.integrity_check().unwrap();
        }
    }
}

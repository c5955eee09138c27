//! Resources at their ends: very many families, iterators and handles, the longest values, no file descriptors,
//! no room on the disk, no memory. Each time: a clear error, nothing half done, and all is well again as soon as
//! there is room.
//!
//! Everything happens in processes of its own: this test program again, running only [`child`] in a role.
//! `KVSTORE_LIMITS=long` runs the sizes that take minutes, and prints what was done.
#![allow(unsafe_code)]

mod common;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::other::{in_role, role};
use common::{Scratch, numbered};
use kvstore::{CheckpointMode, Config, Direction, ErrorKind, Expiry, JournalMode, KeyRange, Result, Store};
use kvstore::{MAX_VALUE_SIZE_LIMIT, SyncLevel};

const SIZE: &str = "KVSTORE_LIMITS";
/// After this line of a child its parent knows that something could not be tried.
const SKIPPED: &str = "> skipped: ";

fn is_long() -> bool {
    env::var(SIZE).is_ok_and(|size| size == "long")
}

// ---- the other process ---------------------------------------------------------------------------

/// What a role is called, and who plays it in a directory.
type Role = (&'static str, fn(&Path));

const ROLES: &[Role] = &[
    ("families", families),
    ("iterators", iterators),
    ("longest-values", longest_values),
    ("handles", handles),
    ("openers", openers),
    ("leaks", leaks),
    ("no-descriptors-to-open", no_descriptors_to_open),
    ("no-descriptors-to-work", no_descriptors_to_work),
    ("full-disk", |dir| full(dir, &Tmpfs::mount)),
    ("file-size", |dir| full(dir, &|dir| Some(FileSize::at(dir)))),
    ("no-memory", no_memory),
    ("many-keys", many_keys),
];

/// Has a process of its own play a role.
#[track_caller]
fn play(role: &str) {
    let scratch = Scratch::new();
    let started = Instant::now();
    let done = in_role(Command::new(env::current_exe().unwrap()), scratch.dir(), role).output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{role}: {}\n{said}\n{errors}", done.status);
    assert!(said.contains("test result: ok. 1 passed"), "{role} did not run:\n{said}");
    for line in said.lines() {
        if let Some((_, why)) = line.split_once(SKIPPED) {
            eprintln!("SKIPPED {role}: {why}");
        }
        if let Some((_, what)) = line.split_once("> did ") {
            println!("{role}: {what}, {:.1} s", started.elapsed().as_secs_f64());
        }
    }
}

#[test]
#[ignore = "no test, but the other processes of the tests in this file"]
fn child() {
    let Some((name, dir)) = role() else { return };
    let (_, play) = ROLES.iter().find(|(role, _)| *role == name).expect("a role");
    play(&dir);
}

fn did(what: impl std::fmt::Display) {
    println!("> did {what}");
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count() - 1 // one is the directory itself
}

/// Memory in use, in bytes.
fn memory() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn limit(resource: libc::__rlimit_resource_t, soft: Option<u64>) {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads and writes a limit of this process through a value that is valid for both calls.
    unsafe {
        assert_eq!(libc::getrlimit(resource, &raw mut now), 0);
        now.rlim_cur = soft.map_or(now.rlim_max, |soft| soft.min(now.rlim_max));
        assert_eq!(libc::setrlimit(resource, &raw const now), 0);
    }
}

/// Asks nobody and refuses nothing: what an error must be when a resource is missing.
#[track_caller]
fn assert_clear<R>(what: &str, done: &Result<R>) {
    if let Err(e) = done {
        use ErrorKind::{Busy, CantOpen, Full, Io, NoMemory};
        let kinds = [Busy, CantOpen, Full, Io, NoMemory];
        assert!(kinds.contains(&e.kind()), "{what}: {e:?}");
        assert!(e.to_string().len() > 10, "{what}: {e:?}");
    }
}

// ---- very many -----------------------------------------------------------------------------------

#[test]
fn very_many_families_come_and_go() {
    play("families");
}

fn families(dir: &Path) {
    let count = if is_long() { 100_000 } else { 2_000 };
    let path = dir.join("store.db");
    let store = Store::open(&path).unwrap();
    let started = Instant::now();
    for first in (0..count).step_by(500) {
        store
            .transaction(|tx| {
                for n in first..count.min(first + 500) {
                    tx.create_family(&format!("family {n}"))?;
                }
                Ok::<(), kvstore::Error>(())
            })
            .unwrap();
    }
    let made = started.elapsed();
    assert_eq!(store.families().unwrap().len(), count);
    // A second handle, which has to read the schema.
    let other = Store::open(&path).unwrap();
    for n in (0..count).step_by(count / 200) {
        let name = format!("family {n}");
        let family = store.family(&name).unwrap();
        family.put("a", &name).unwrap();
        assert_eq!(other.family(&name).unwrap().get("a").unwrap().as_deref(), Some(name.as_bytes()));
    }
    let used = started.elapsed();
    store.integrity_check().unwrap();
    other.close().unwrap();
    for first in (0..count).step_by(500) {
        store
            .transaction(|tx| {
                (first..count.min(first + 500)).try_for_each(|n| tx.drop_family(&format!("family {n}")))
            })
            .unwrap();
    }
    assert_eq!(store.families().unwrap().len(), 0);
    store.incremental_vacuum(None).unwrap();
    store.checkpoint(CheckpointMode::Truncate).unwrap();
    store.integrity_check().unwrap();
    store.close().unwrap();
    let size = fs::metadata(&path).unwrap().len();
    assert!(size < 256 * 1024, "the file of an empty store has {size} bytes");
    did(format!(
        "{count} families: made after {made:?}, used after {used:?}, dropped after {:?}",
        started.elapsed()
    ));
}

#[test]
fn very_many_iterators_are_left_open_and_outlive_their_store() {
    play("iterators");
}

fn iterators(dir: &Path) {
    const COUNT: usize = 10_000;
    for sql in [false, true] {
        let path = dir.join(format!("store {sql}"));
        let before = descriptors();
        let store = Store::open_with(&path, &Config::new().sql_engine(sql)).unwrap();
        for n in 0..50 {
            store.put(numbered(n), vec![1; 100]).unwrap();
        }
        let mut cursors: Vec<_> = (0..COUNT)
            .map(|n| {
                let mut cursor = store.cursor(KeyRange::all(), Direction::Forward);
                assert!(cursor.seek(numbered(n % 50)).unwrap());
                cursor
            })
            .collect();
        // They stand in nobody's way.
        store.put("new", "1").unwrap();
        store.checkpoint(CheckpointMode::Truncate).unwrap();
        for (n, cursor) in cursors.iter_mut().enumerate() {
            assert_eq!(cursor.key(), Some(&numbered(n % 50)[..]));
            assert!(cursor.next().unwrap());
        }
        let rest = cursors.split_off(COUNT / 2);
        drop(cursors);
        store.close().unwrap();
        assert!(!path.with_extension("db-wal").exists());
        assert_eq!(descriptors(), before, "an iterator keeps a descriptor");
        for mut cursor in rest {
            assert_eq!(cursor.key(), None);
            assert_eq!(cursor.next().unwrap_err().kind(), ErrorKind::Misuse);
        }
        Store::open(&path).unwrap().integrity_check().unwrap();
    }
    did(format!("{COUNT} iterators, twice"));
}

#[test]
fn the_longest_value_is_kept_and_one_byte_more_is_refused() {
    play("longest-values");
}

fn longest_values(dir: &Path) {
    let longest = if is_long() { MAX_VALUE_SIZE_LIMIT } else { 64 << 20 };
    assert!(
        Store::open_in_memory(&Config::new().max_value_size(MAX_VALUE_SIZE_LIMIT + 1)).is_err(),
        "more than the most there is"
    );
    for sql in [false, true] {
        let path = dir.join(format!("store {sql}"));
        let config = Config::new().sql_engine(sql).max_value_size(longest).sync(SyncLevel::Off);
        let store = Store::open_with(&path, &config).unwrap();
        let mut value = vec![0x5A; longest + 1];
        let refused = store.put("k", &value).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Error);
        assert!(refused.to_string().contains(&longest.to_string()), "{refused}");
        assert_eq!(store.get("k").unwrap(), None);
        value.pop();
        value[longest - 1] = 0xA5;
        store.put_until("k", &value, Expiry::At(i64::MAX)).unwrap();
        let is_whole = |found: &[u8], _| found == value.as_slice();
        assert_eq!(store.get_with("k", is_whole).unwrap(), Some(true));
        let mut cursor = store.cursor(KeyRange::all(), Direction::Forward);
        assert!(cursor.first().unwrap() && cursor.value() == Some(&value[..]));
        drop(cursor);
        assert!(store.compare_and_swap("k", &value, "short", Expiry::Never).unwrap());
        store.put("k", &value).unwrap();
        let copy = dir.join(format!("copy {sql}"));
        store.backup(&copy, |_, _| true).unwrap();
        store.close().unwrap();
        // A handle with a smaller limit reads what is there, and may replace it.
        for path in [&path, &copy] {
            let small = Store::open_with(path, &Config::new().sql_engine(!sql)).unwrap();
            assert_eq!(small.get_with("k", is_whole).unwrap(), Some(true));
            small.integrity_check().unwrap();
            small.put("k", "short").unwrap();
            small.incremental_vacuum(None).unwrap();
            small.checkpoint(CheckpointMode::Truncate).unwrap();
            small.close().unwrap();
            assert!(fs::metadata(path).unwrap().len() < 256 * 1024);
            fs::remove_file(path).unwrap();
        }
    }
    did(format!("values of {longest} bytes"));
}

#[test]
fn a_thousand_handles_have_one_file_open() {
    play("handles");
}

fn handles(dir: &Path) {
    const COUNT: usize = 1_000;
    limit(libc::RLIMIT_NOFILE, None);
    let path = dir.join("store.db");
    let (before, started) = (descriptors(), Instant::now());
    let stores: Vec<Store> = (0..COUNT)
        .map(|n| Store::open_with(&path, &Config::new().sql_engine(n % 2 == 1).cache_pages(10)).unwrap())
        .collect();
    let opened = started.elapsed();
    for (n, store) in stores.iter().enumerate() {
        store.put(numbered(n), "1").unwrap();
        let last = &stores[(n * 7 + 1) % COUNT];
        assert_eq!(last.get(numbered(n)).unwrap().as_deref(), Some(&b"1"[..]));
    }
    // Readers that keep their snapshots do not stand in the way.
    for store in &stores {
        assert!(store.exists(numbered(0)).unwrap());
    }
    stores[0].checkpoint(CheckpointMode::Truncate).unwrap();
    assert_eq!(fs::metadata(dir.join("store.db-wal")).unwrap().len(), 0);
    for store in &stores {
        assert_eq!(store.count().unwrap(), COUNT as u64);
    }
    let used = descriptors() - before;
    drop(stores);
    assert_eq!(descriptors(), before, "closed handles keep descriptors");
    assert!(!dir.join("store.db-wal").exists());
    Store::open(&path).unwrap().integrity_check().unwrap();
    did(format!("{COUNT} handles, {used} descriptors, opened in {opened:?}"));
}

#[test]
fn a_crowd_of_threads_opens_and_closes_stores_at_once() {
    play("openers");
}

fn openers(dir: &Path) {
    limit(libc::RLIMIT_NOFILE, None);
    let rounds = if is_long() { 200 } else { 8 };
    let before = descriptors();
    std::thread::scope(|scope| {
        for thread in 0..64 {
            scope.spawn(move || {
                for round in 0..rounds {
                    // Half of them one file, which comes and goes with its first and last handle.
                    let name = if thread % 2 == 0 { "common".to_owned() } else { format!("own {thread}") };
                    let config = Config::new().busy_timeout(Duration::from_secs(60));
                    let store = Store::open_with(dir.join(name), &config).unwrap();
                    store.put(format!("{thread} {round}"), "1").unwrap();
                    store.close().unwrap();
                }
            });
        }
    });
    assert_eq!(descriptors(), before);
    let store = Store::open(dir.join("common")).unwrap();
    assert_eq!(store.count().unwrap(), 32 * rounds);
    store.integrity_check().unwrap();
    did(format!("64 threads, {} opens", 64 * rounds));
}

#[test]
fn what_is_opened_made_and_closed_again_and_again_leaks_nothing() {
    play("leaks");
}

fn leaks(dir: &Path) {
    let rounds = if is_long() { 20_000 } else { 200 };
    let path = dir.join("store.db");
    fs::write(dir.join("stranger"), b"no store, but a text").unwrap();
    let round = |number: usize| {
        let store = Store::open_with(&path, &Config::new().sql_engine(number % 2 == 1)).unwrap();
        store.put_until("k", vec![1; 3_000], Expiry::At(1)).unwrap();
        assert_eq!(store.get("k").unwrap(), None);
        let family = store.family_or_create("passing").unwrap();
        family.put("a", "1").unwrap();
        assert_eq!(family.iter().count(), 1);
        drop(family);
        store.drop_family("passing").unwrap();
        store.start_cleaner(Duration::from_secs(60), None).unwrap();
        // Failures on every way.
        assert!(Store::open(dir.join("stranger")).is_err());
        assert!(Store::open(dir.join("missing/store.db")).is_err());
        assert!(store.backup(&path, |_, _| true).is_err());
        assert!(store.backup(dir.join("stopped"), |_, _| false).is_err());
        assert!(store.begin(true).is_ok() && store.begin(true).is_err());
        assert!(store.family("nobody").is_err());
        store.close().unwrap();
    };
    (0..50).for_each(round);
    let (files, before) = (descriptors(), memory());
    (0..rounds).for_each(round);
    assert_eq!(descriptors(), files, "descriptors leak");
    let grown = memory().saturating_sub(before);
    assert!(grown < (4 << 20) + rounds * 256, "{rounds} rounds left {grown} bytes");
    did(format!("{rounds} rounds, memory grown by {grown} bytes"));
}

#[test]
fn ten_million_keys_come_and_go() {
    if is_long() {
        play("many-keys");
    }
}

fn many_keys(dir: &Path) {
    const COUNT: u64 = 10_000_000;
    let path = dir.join("store.db");
    let store = Store::open_with(&path, &Config::new().sync(SyncLevel::Off)).unwrap();
    let key = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
    for first in (0..COUNT).step_by(100_000) {
        store
            .transaction(|tx| {
                (first..first + 100_000).try_for_each(|n| {
                    let end = if n % 10 == 0 { Expiry::At(1) } else { Expiry::Never };
                    tx.put_until(key(n), n.to_le_bytes(), end)
                })
            })
            .unwrap();
    }
    assert_eq!(store.count().unwrap(), COUNT);
    assert_eq!(store.purge_expired().unwrap(), COUNT / 10);
    assert_eq!(store.count_live().unwrap(), COUNT / 10 * 9);
    assert_eq!(
        store.iter().map(Result::unwrap).filter(|(key, _)| key.len() == 8).count() as u64,
        COUNT / 10 * 9
    );
    store.integrity_check().unwrap();
    assert_eq!(store.delete_range(&KeyRange::all()).unwrap(), COUNT / 10 * 9);
    store.incremental_vacuum(None).unwrap();
    store.checkpoint(CheckpointMode::Truncate).unwrap();
    assert!(fs::metadata(&path).unwrap().len() < 1 << 20);
    store.integrity_check().unwrap();
    did(format!("{COUNT} keys"));
}

// ---- no descriptors ------------------------------------------------------------------------------

/// Leaves exactly so many descriptors free.
fn leave_descriptors(count: usize) {
    let free: Vec<fs::File> = (0..=count).map(|_| fs::File::open("/dev/null").unwrap()).collect();
    let last = std::os::fd::AsRawFd::as_raw_fd(free.last().unwrap());
    drop(free);
    limit(libc::RLIMIT_NOFILE, Some(u64::from(last.unsigned_abs())));
}

#[test]
fn an_open_without_descriptors_fails_and_leaves_nothing_half_made() {
    play("no-descriptors-to-open");
}

fn no_descriptors_to_open(dir: &Path) {
    let mut failed = 0;
    for (mode, exists) in [(JournalMode::Wal, false), (JournalMode::Wal, true), (JournalMode::Delete, false)]
    {
        for count in 0.. {
            assert!(count < 30, "an open needs more than 30 descriptors");
            let path = dir.join(format!("store {mode:?} {exists} {count}"));
            let config = Config::new().journal_mode(mode);
            if exists {
                Store::open_with(&path, &config).unwrap().put("k", "1").unwrap();
            }
            let before = descriptors();
            leave_descriptors(count);
            let opened = Store::open_with(&path, &config);
            limit(libc::RLIMIT_NOFILE, None);
            assert_clear("open", &opened);
            let is_open = opened.is_ok();
            drop(opened);
            assert_eq!(descriptors(), before, "an open that failed keeps descriptors");
            let store = Store::open_with(&path, &config).unwrap();
            assert_eq!(store.exists("k").unwrap(), exists);
            store.put("k", "2").unwrap();
            store.integrity_check().unwrap();
            store.close().unwrap();
            if is_open {
                break;
            }
            failed += 1;
        }
    }
    assert!(failed >= 6);
    did(format!("{failed} opens failed for descriptors"));
}

#[test]
fn calls_without_descriptors_work_or_fail_and_change_nothing() {
    play("no-descriptors-to-work");
}

fn no_descriptors_to_work(dir: &Path) {
    let (mut failed, mut done) = (0, 0);
    for mode in [JournalMode::Wal, JournalMode::Delete] {
        for count in 0..10 {
            for sql in [false, true] {
                let path = dir.join(format!("store {mode:?} {count} {sql}"));
                let config = Config::new().journal_mode(mode).sql_engine(sql);
                let before = descriptors();
                let store = Store::open_with(&path, &config).unwrap();
                store.put("old", "1").unwrap();
                leave_descriptors(count);
                let copy = path.with_extension("copy");
                let mut ran = |what: &str, result: Result<()>| {
                    assert_clear(what, &result);
                    if result.is_ok() {
                        done += 1
                    } else {
                        failed += 1
                    }
                    result.is_ok()
                };
                let read = store.get("old");
                assert_eq!(read.unwrap().as_deref(), Some(&b"1"[..]), "a read needs no descriptor");
                let put = ran("put", store.put("new", "1"));
                let long = ran("long put", store.put_until("long", vec![7; 100_000], Expiry::At(i64::MAX)));
                let family = ran("family", store.create_family("f").map(drop));
                for mode in [CheckpointMode::Passive, CheckpointMode::Full, CheckpointMode::Truncate] {
                    ran("checkpoint", store.checkpoint(mode).map(drop));
                }
                ran("sync", store.sync());
                ran("vacuum", store.incremental_vacuum(None));
                ran("integrity", store.integrity_check());
                ran("cleaner", store.start_cleaner(Duration::from_secs(60), None));
                let copied = ran("backup", store.backup(&copy, |_, _| true));
                ran("second open", Store::open_with(&path, &config).map(drop));
                limit(libc::RLIMIT_NOFILE, None);
                store.stop_cleaner().unwrap();
                assert_eq!(copy.exists(), copied);
                if copied {
                    Store::open(&copy).unwrap().integrity_check().unwrap();
                }
                let partial = |entry: fs::DirEntry| entry.file_name().to_string_lossy().contains("partial");
                assert!(!fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()).any(partial));
                // Everything works again on the same handle, and is as the answers said.
                assert_eq!((store.exists("new").unwrap(), store.exists("long").unwrap()), (put, long));
                assert_eq!(store.family("f").is_ok(), family);
                store.put("then", "1").unwrap();
                store.checkpoint(CheckpointMode::Truncate).unwrap();
                store.integrity_check().unwrap();
                store.close().unwrap();
                assert_eq!(descriptors(), before, "a call that failed keeps descriptors ({mode:?}, {count})");
                let store = Store::open_with(&path, &config).unwrap();
                assert_eq!((store.exists("new").unwrap(), store.exists("long").unwrap()), (put, long));
                store.integrity_check().unwrap();
            }
        }
    }
    assert!(failed > 10 && done > 10);
    did(format!("{failed} calls failed for descriptors, {done} did not"));
}

// ---- no room on the disk -------------------------------------------------------------------------

/// A place where room can be taken and given back.
trait Disk {
    fn directory(&self) -> &Path;
    fn take_room(&self);
    fn give_room(&self);
}

/// A file system of a few megabytes, which goes away with the process.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(dir: &Path) -> Option<Tmpfs> {
        let at = dir.join("small");
        fs::create_dir(&at).unwrap();
        let path = std::ffi::CString::new(at.to_str().unwrap()).unwrap();
        // SAFETY: the strings end with NUL and outlive the calls, which only change this process's mounts.
        let mounted = unsafe {
            libc::unshare(libc::CLONE_NEWNS) == 0
                && libc::mount(
                    std::ptr::null(),
                    c"/".as_ptr(),
                    std::ptr::null(),
                    libc::MS_REC | libc::MS_PRIVATE,
                    std::ptr::null(),
                ) == 0
                && libc::mount(
                    c"tmpfs".as_ptr(),
                    path.as_ptr(),
                    c"tmpfs".as_ptr(),
                    0,
                    c"size=4m".as_ptr().cast(),
                ) == 0
        };
        mounted.then_some(Tmpfs(at))
    }
}

impl Disk for Tmpfs {
    fn directory(&self) -> &Path {
        &self.0
    }

    fn take_room(&self) {
        let mut ballast =
            fs::OpenOptions::new().append(true).create(true).open(self.0.join("ballast")).unwrap();
        while std::io::Write::write(&mut ballast, &[0; 4096]).is_ok_and(|written| written > 0) {}
    }

    fn give_room(&self) {
        fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

/// A limit on the size of files, for where nothing can be mounted. The signal of the limit is ignored, as
/// programs that know it do.
struct FileSize(PathBuf);

impl FileSize {
    fn at(dir: &Path) -> FileSize {
        // SAFETY: ignoring a signal runs nothing of ours.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        FileSize(dir.to_owned())
    }
}

impl Disk for FileSize {
    fn directory(&self) -> &Path {
        &self.0
    }

    fn take_room(&self) {
        // No file may grow beyond what the shortest of the store has.
        let sizes = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap());
        let sizes = sizes.filter(|entry| !entry.file_name().to_string_lossy().ends_with("-shm"));
        limit(libc::RLIMIT_FSIZE, sizes.map(|entry| entry.metadata().unwrap().len()).min());
    }

    fn give_room(&self) {
        limit(libc::RLIMIT_FSIZE, None);
    }
}

#[test]
fn on_a_full_disk_calls_fail_and_change_nothing_and_go_on_when_there_is_room() {
    play("full-disk");
}

#[test]
fn at_the_limit_of_a_file_calls_fail_and_change_nothing_and_go_on_when_it_is_raised() {
    play("file-size");
}

fn full<D: Disk>(dir: &Path, make: &dyn Fn(&Path) -> Option<D>) {
    let Some(disk) = make(dir) else {
        println!("{SKIPPED}no file system can be mounted here; the limit of file sizes stands for it");
        return;
    };
    let mut failed = 0;
    for (number, mode) in [JournalMode::Wal, JournalMode::Delete].into_iter().enumerate() {
        for sql in [false, true] {
            let path = disk.directory().join(format!("store {number} {sql}"));
            let config = Config::new().journal_mode(mode).sql_engine(sql).cache_pages(16);
            failed += fill_up(&disk, &path, &config);
            fs::remove_file(&path).unwrap();
        }
    }
    did(format!("{failed} calls failed for room"));
}

/// Fills the disk under a store at every kind of call; gives the number of calls that failed.
fn fill_up(disk: &impl Disk, path: &Path, config: &Config) -> usize {
    let name = format!("{config:?}");
    let mut failed = 0;
    let mut must_fail = |what: &str, done: Result<()>| {
        assert_clear(what, &done);
        let e = done.expect_err(what);
        assert!(matches!(e.kind(), ErrorKind::Full | ErrorKind::Io | ErrorKind::CantOpen), "{what}: {e:?}");
        failed += 1;
    };
    let store = Store::open_with(path, config).unwrap();
    let mut keys = 0;
    let is_as_it_was = |store: &Store, keys: usize| {
        assert_eq!(store.count().unwrap(), keys as u64, "{name}");
        for n in 0..keys {
            let found = store.get(numbered(n)).unwrap();
            assert!(found.is_some_and(|value| value == value_of(n)), "key {n} of {keys}, {name}");
        }
        store.integrity_check().unwrap_or_else(|e| panic!("{e}, {name}"));
    };
    // Puts until the disk is full, now and then again.
    for round in 0..3 {
        for _ in 0..20 {
            store.put_until(numbered(keys), value_of(keys), Expiry::At(i64::MAX)).unwrap();
            keys += 1;
        }
        disk.take_room();
        let (first, mut e) = (keys, None);
        while e.is_none() {
            assert!(keys < first + 2_000, "the disk does not become full, {name}");
            match store.put_until(numbered(keys), value_of(keys), Expiry::At(i64::MAX)) {
                Ok(()) => keys += 1,
                Err(error) => e = Some(error),
            }
        }
        must_fail("put", Err(e.unwrap()));
        is_as_it_was(&store, keys);
        // A transaction that fails can only be rolled back.
        store.begin(true).unwrap();
        let mut n = keys;
        while store.put(numbered(n), value_of(n)).is_ok() {
            n += 1;
            if n == keys + 500 {
                break; // it fits into the cache: then the commit fails
            }
        }
        must_fail("commit", store.commit());
        store.rollback().unwrap();
        is_as_it_was(&store, keys);
        let mut batch = store.batch();
        for n in keys..keys + 100 {
            batch.put(&store, numbered(n), vec![1; 3_000], Expiry::Never).unwrap();
        }
        must_fail("batch", batch.commit());
        assert_eq!(batch.len(), 100, "a batch that failed is still there");
        must_fail("family", store.create_family("f").and_then(|f| f.put("k", vec![1; 60_000])));
        let copy = path.with_extension("copy");
        let copied = store.backup(&copy, |_, _| true);
        assert_clear("backup", &copied);
        if copied.is_ok() {
            // It fits below the limit of sizes, being the shorter for what is deleted.
            is_as_it_was(&Store::open(&copy).unwrap(), keys);
            fs::remove_file(&copy).unwrap();
        }
        let new = path.with_extension("new");
        assert_clear("a new store", &Store::open(&new)); // a limit of sizes may be enough for it
        let left = |what: &str| {
            let named = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().contains(what);
            fs::read_dir(disk.directory()).unwrap().map(Result::unwrap).any(|entry| named(&entry))
        };
        assert!(!left("partial") && !left("copy"), "a backup that failed leaves a file");
        // What may or may not need room.
        for mode in [CheckpointMode::Passive, CheckpointMode::Full, CheckpointMode::Restart] {
            assert_clear("checkpoint", &store.checkpoint(mode));
        }
        assert_clear("sync", &store.sync());
        assert_clear("vacuum", &store.incremental_vacuum(None));
        is_as_it_was(&store, keys);
        if round == 1 {
            // Closed and opened without room.
            assert_clear("close", &store.close());
            let again = Store::open_with(path, config);
            assert_clear("open", &again);
            if let Ok(again) = again {
                is_as_it_was(&again, keys);
            }
            disk.give_room();
            break;
        }
        disk.give_room();
        // On the same handle, as soon as there is room.
        batch.commit().unwrap();
        store
            .delete_range(&KeyRange::new(
                std::ops::Bound::Included(numbered(keys)),
                std::ops::Bound::Unbounded,
            ))
            .unwrap();
        if let Ok(f) = store.family("f") {
            drop(f); // made, and then its first value did not fit
            store.drop_family("f").unwrap();
        }
        is_as_it_was(&store, keys);
        store.checkpoint(CheckpointMode::Truncate).unwrap();
        store.backup(&copy, |_, _| true).unwrap();
        is_as_it_was(&Store::open(&copy).unwrap(), keys);
        fs::remove_file(&copy).unwrap();
        Store::open(&new).unwrap().integrity_check().unwrap();
        fs::remove_file(&new).unwrap();
        // Deleting and vacuuming on a full disk.
        disk.take_room();
        let gone = store.delete_range(&KeyRange::new(
            std::ops::Bound::Included(numbered(keys / 2)),
            std::ops::Bound::Unbounded,
        ));
        assert_clear("delete", &gone);
        if gone.is_ok() {
            keys /= 2;
        }
        is_as_it_was(&store, keys);
        assert_clear("vacuum", &store.incremental_vacuum(None));
        is_as_it_was(&store, keys);
        disk.give_room();
        store.incremental_vacuum(None).unwrap();
        store.checkpoint(CheckpointMode::Truncate).unwrap();
        is_as_it_was(&store, keys);
    }
    drop(store);
    let store = Store::open_with(path, config).unwrap();
    is_as_it_was(&store, keys);
    store.close().unwrap();
    let _ = fs::remove_file(path.with_extension("new"));
    failed
}

/// Some in the row, some out of it.
fn value_of(n: usize) -> Vec<u8> {
    vec![u8::try_from(n % 251).unwrap(); [40, 900, 9_000][n % 3]]
}

// ---- no memory -----------------------------------------------------------------------------------

#[test]
fn a_call_without_memory_fails_and_changes_nothing() {
    play("no-memory");
}

fn no_memory(dir: &Path) {
    // Longer than what glibc keeps for later when it is freed.
    const LONG: usize = 33 << 20;
    let (mut failed, mut done) = (0, 0);
    for sql in [false, true] {
        let path = dir.join(format!("store {sql}"));
        let config = Config::new().sql_engine(sql).cache_pages(100).mmap_size(0).max_value_size(LONG);
        let store = Store::open_with(&path, &config).unwrap();
        let value = vec![7; LONG];
        store.put("old", &value).unwrap();
        for room in (0..110).step_by(if is_long() { 2 } else { 22 }) {
            // Address space that is left, beside what the allocator still has.
            limit(libc::RLIMIT_AS, Some(address_space() + (room << 20)));
            let mut ran = |what: &str, result: Result<()>| {
                assert_clear(what, &result);
                if result.is_ok() {
                    done += 1
                } else {
                    failed += 1
                }
                result.is_ok()
            };
            // No copy in Rust, whose allocator gives no second chance.
            let read = store.get_with("old", |found, _| assert!(found == value));
            ran("get", read.map(|found| assert!(found.is_some())));
            let put = ran("put", store.put_until("new", &value, Expiry::At(i64::MAX)));
            store.begin(true).unwrap();
            let other = ran("put", store.put("other", &value));
            let committed = ran("commit", store.commit());
            assert!(other || !committed, "half a transaction is committed");
            if !committed {
                store.rollback().unwrap();
            }
            ran("checkpoint", store.checkpoint(CheckpointMode::Passive).map(drop));
            ran("open", Store::open_with(&path, &config).map(drop));
            limit(libc::RLIMIT_AS, None);
            let is_whole = |key: &str| store.get_with(key, |found, _| found == value).unwrap();
            assert_eq!(is_whole("old"), Some(true));
            assert_eq!(is_whole("new"), put.then_some(true));
            assert_eq!(is_whole("other"), committed.then_some(true));
            store.integrity_check().unwrap();
            store.delete("new").unwrap();
            store.delete("other").unwrap();
        }
        store.close().unwrap();
    }
    assert!(failed >= 4 && done > 10, "{failed} failed, {done} did not");
    did(format!("{failed} calls failed for memory, {done} did not"));
}

/// Address space in use, in bytes.
fn address_space() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}

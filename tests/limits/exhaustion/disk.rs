//! A full disk: a small file system, or a limit on the size of files.

use std::fs;
use std::path::{Path, PathBuf};

use kvstore::{CheckpointMode, Config, ErrorKind, Expiry, JournalMode, KeyRange, Result, Store};

use super::{SKIPPED, assert_clear, did, is_long, limit, play};
use crate::common::{TestClock, numbered};

/// A place whose space can be used up and freed again.
trait Disk {
    fn directory(&self) -> &Path;
    fn fill(&self);
    fn free(&self);
}

/// A file system of a few megabytes, which is removed at the end of the process.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(dir: &Path) -> Option<Tmpfs> {
        Tmpfs::mount_of(dir, 4)
    }

    fn mount_of(dir: &Path, megabytes: usize) -> Option<Tmpfs> {
        let at = dir.join(format!("small {megabytes}"));
        fs::create_dir(&at).unwrap();
        let size = std::ffi::CString::new(format!("size={megabytes}m")).unwrap();
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
                && libc::mount(c"tmpfs".as_ptr(), path.as_ptr(), c"tmpfs".as_ptr(), 0, size.as_ptr().cast())
                    == 0
        };
        mounted.then_some(Tmpfs(at))
    }
}

impl Disk for Tmpfs {
    fn directory(&self) -> &Path {
        &self.0
    }

    fn fill(&self) {
        let mut ballast =
            fs::OpenOptions::new().append(true).create(true).open(self.0.join("ballast")).unwrap();
        while std::io::Write::write(&mut ballast, &[0; 4096]).is_ok_and(|written| written > 0) {}
    }

    fn free(&self) {
        fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

/// A limit on the size of files, for machines where nothing can be mounted. The signal of the limit
/// is ignored, as well-behaved programs do.
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

    fn fill(&self) {
        // The limit is the size of the store's smallest file.
        let sizes = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap());
        let sizes = sizes.filter(|entry| !entry.file_name().to_string_lossy().ends_with("-shm"));
        limit(libc::RLIMIT_FSIZE, sizes.map(|entry| entry.metadata().unwrap().len()).min());
    }

    fn free(&self) {
        limit(libc::RLIMIT_FSIZE, None);
    }
}

#[test]
fn store_that_filled_its_disk_frees_itself_after_expiry() {
    play("expired-disk");
}

const YEAR: i64 = 365 * 86_400_000;

/// Sizes of disks in megabytes, each with the smallest part of it, in percent, that values take
/// before the disk is full.
fn disks() -> &'static [(usize, usize)] {
    if is_long() { &[(1, 20), (2, 50), (4, 60), (6, 60), (16, 60), (64, 60)] } else { &[(2, 50), (6, 60)] }
}

pub fn expired_disk(dir: &Path) {
    for (megabytes, least_percent) in disks() {
        let page_sizes: &[u32] = if is_long() { &[1024, 4096, 16_384] } else { &[1024, 4096] };
        let Some(disk) = Tmpfs::mount_of(dir, *megabytes) else {
            println!("{SKIPPED}no file system can be mounted here");
            return;
        };
        for (mode, sql, secure, page_size) in [JournalMode::Wal, JournalMode::Delete]
            .into_iter()
            .flat_map(|mode| {
                [(mode, false, false), (mode, false, true), (mode, true, false), (mode, true, true)]
            })
            .flat_map(|(mode, sql, secure)| page_sizes.iter().map(move |size| (mode, sql, secure, *size)))
        {
            if secure && mode == JournalMode::Delete && !is_long() {
                continue; // the difference is in the WAL
            }
            let config = Config::new().journal_mode(mode).sql_engine(sql).page_size(page_size);
            let config = config.secure_delete(secure);
            let name =
                format!("{megabytes} MB, {mode:?}, sql: {sql}, secure: {secure}, pages of {page_size}");
            let percent = fill_and_expire(&disk, &config, &name) * 100 / (megabytes << 20);
            did(format!("{name}: {percent} %"));
            assert!(page_size > 4096 || percent >= *least_percent, "{name}: full at {percent} %");
        }
    }
}

/// Fills the disk with keys that expire, and checks that the store works again after they have.
/// Returns the number of bytes of values that the disk held.
fn fill_and_expire(disk: &Tmpfs, config: &Config, name: &str) -> usize {
    let path = disk.directory().join("store");
    let clock = TestClock::at(YEAR);
    let open = || {
        let store = Store::open_with(&path, config).unwrap_or_else(|e| panic!("{name}: {e}"));
        clock.drive(&store);
        store
    };
    let mut held = Vec::new();
    let mut store = open();
    store.put("motto", "Expiry is exact").unwrap();
    for round in 0..4 {
        let (mut n, mut bytes) = (0, 0);
        let full = loop {
            match store.put_with_expiry(numbered(n), value_of(n), Expiry::At(clock.now() + 1_000)) {
                Ok(()) => (n, bytes) = (n + 1, bytes + value_of(n).len()),
                Err(e) => break e,
            }
        };
        assert_eq!(full.kind(), ErrorKind::Full, "{name}: {full}");
        held.push(bytes);
        clock.set(clock.now() + 1_000);
        let found = if round == 2 {
            (0..n.min(200)).filter(|n| store.get(numbered(*n)).unwrap().is_none()).count()
        } else {
            0
        };
        if round % 2 == 1 {
            store.close().unwrap_or_else(|e| panic!("{name}: close: {e}"));
            // The kernel frees the blocks of a deleted file a little later if a sync has just ended.
            std::thread::sleep(std::time::Duration::from_millis(50));
            // Another program takes what the close has freed, before the open or after it.
            if round == 3 {
                disk.fill();
            }
            store = open();
            if round == 1 {
                disk.fill();
            }
        }
        let step = store.purge_step(None, None).unwrap_or_else(|e| panic!("{name}, round {round}: {e}"));
        // The purge also removes the rows that reads have found, and does not count them.
        assert!(!step.more && step.deleted as usize + found >= n - 1, "{name}: {step:?} of {n}");
        assert!(store.count().unwrap() <= 2, "{name}: rows are left");
        if round % 2 == 1 {
            store.put("after", "a purge").unwrap_or_else(|e| panic!("{name}: {e}"));
            disk.free();
        }
    }
    store.integrity_check().unwrap();
    assert_eq!(store.get("motto").unwrap().as_deref(), Some(&b"Expiry is exact"[..]));
    store.close().unwrap();
    fs::remove_file(&path).unwrap();
    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(path.with_file_name(format!("store{suffix}"))); // left on a full disk
    }
    let (first, last) = (held[0], held[held.len() - 1]);
    assert!(last * 10 >= first * 8, "{name}: held {held:?}");
    last.min(first)
}

#[test]
fn store_is_readable_after_disk_was_filled_while_closed() {
    play("filled-while-closed");
}

pub fn filled_while_closed(dir: &Path) {
    let Some(disk) = Tmpfs::mount(dir) else {
        println!("{SKIPPED}no file system can be mounted here");
        return;
    };
    for mode in [JournalMode::Wal, JournalMode::Delete] {
        for (sql, pages_left) in [false, true].into_iter().flat_map(|sql| (0..11).map(move |n| (sql, n))) {
            let config = Config::new().journal_mode(mode).sql_engine(sql);
            read_on_full_disk(
                &disk,
                &config,
                pages_left,
                &format!("{mode:?}, sql: {sql}, {pages_left} pages"),
            );
        }
    }
    unclosed_store_on_full_disk(&disk);
    store_beyond_limit_of_file_size(&disk);
}

#[test]
fn deletes_and_purges_work_on_disk_filled_beside_a_reader() {
    play("deletes-on-full-disk");
}

/// While another handle has a snapshot, the WAL cannot start over, and writes fill the disk. After
/// the end of that snapshot, deletes and purges of both handles work: they make disk space first.
pub fn deletes_on_full_disk(dir: &Path) {
    let Some(disk) = Tmpfs::mount_of(dir, 2) else {
        println!("{SKIPPED}no file system can be mounted here");
        return;
    };
    for sql in [false, true] {
        let config = Config::new().sql_engine(sql);
        delete_on_full_disk(&disk, &config, &format!("sql: {sql}"));
        #[cfg(feature = "encryption")]
        delete_on_full_disk(&disk, &config.raw_key(&[7; 32]), &format!("encrypted, sql: {sql}"));
    }
}

fn delete_on_full_disk(disk: &Tmpfs, config: &Config, name: &str) {
    let path = disk.directory().join("store.db");
    let clock = TestClock::at(1_000_000);
    let open = || {
        let store = Store::open_with(&path, config).unwrap();
        clock.drive(&store);
        store
    };
    let (store, other) = (open(), open());
    for n in 0..150 {
        let expiry = if n < 10 { Expiry::At(1_000_100) } else { Expiry::Never };
        store.put_with_expiry(numbered(n), vec![1; 3_000], expiry).unwrap();
    }
    other.begin_read().unwrap();
    assert!(other.get(numbered(20)).unwrap().is_some());
    for size in [20_000, 2_000, 50] {
        while store.put(format!("{size} {}", store.count().unwrap()), vec![2; size]).is_ok() {}
    }
    other.rollback().unwrap();
    clock.set(1_001_000);
    for n in 100..120 {
        assert!(store.delete(numbered(n)).unwrap_or_else(|e| panic!("{name}: {n}: {e}")), "{name}: {n}");
    }
    for n in 120..130 {
        assert!(other.delete(numbered(n)).unwrap_or_else(|e| panic!("{name}: {n}: {e}")), "{name}: {n}");
    }
    assert_eq!(store.purge_expired().unwrap_or_else(|e| panic!("{name}: {e}")), 10, "{name}");
    store.integrity_check().unwrap();
    drop((store, other));
    remove_files(disk);
    did(name.to_owned());
}

#[test]
fn purge_on_full_disk_removes_several_keys_per_commit() {
    play("purge-on-full-disk");
}

/// A transaction that removes many keys does not fit on the disk. The purge finds out how many do,
/// and does not try too many again for each step.
pub fn purge_on_full_disk(dir: &Path) {
    let Some(disk) = Tmpfs::mount_of(dir, 1) else {
        println!("{SKIPPED}no file system can be mounted here");
        return;
    };
    for sql in [false, true] {
        let path = disk.directory().join("store.db");
        let clock = TestClock::at(1_000_000);
        let store = Store::open_with(&path, &Config::new().sql_engine(sql)).unwrap();
        clock.drive(&store);
        let families: Vec<_> =
            (0..12).map(|n| store.create_family(&format!("family {n}")).unwrap()).collect();
        let mut keys = 0;
        while families[keys % 12]
            .put_with_expiry(numbered(keys), [1; 50], Expiry::At(1_000_100 + keys as i64 % 1000))
            .is_ok()
        {
            keys += 1;
        }
        clock.set(1_100_000);
        let before = store.stats().unwrap().wal_commits;
        assert_eq!(store.purge_step(None, None).unwrap().deleted, keys as u64, "sql: {sql}");
        let commits = store.stats().unwrap().wal_commits - before;
        assert!(commits < keys as u64 / 3, "sql: {sql}: {commits} commits for {keys} keys");
        store.integrity_check().unwrap();
        store.close().unwrap();
        remove_files(&disk);
    }
}

#[test]
fn reads_of_transaction_that_filled_the_disk_show_committed_state() {
    play("transaction-on-full-disk");
}

/// Fills the disk in a write transaction that also reads expired keys. Reads see the committed state
/// from the failure on, and the handle works again after the rollback.
pub fn transaction_on_full_disk(dir: &Path) {
    let Some(disk) = Tmpfs::mount_of(dir, 1) else {
        println!("{SKIPPED}no file system can be mounted here");
        return;
    };
    for (sql, (cache_pages, size)) in
        [false, true].into_iter().flat_map(|sql| [(10, 4_000), (2_000, 100)].map(|case| (sql, case)))
    {
        let config = Config::new().sql_engine(sql).cache_pages(cache_pages);
        let name = format!("sql: {sql}, {cache_pages} pages, values of {size} bytes");
        fill_in_transaction(&disk, &config, size, &name);
        #[cfg(feature = "encryption")]
        fill_in_transaction(&disk, &config.raw_key(&[7; 32]), size, &format!("encrypted, {name}"));
    }
}

fn fill_in_transaction(disk: &Tmpfs, config: &Config, size: usize, name: &str) {
    let path = disk.directory().join("store.db");
    let clock = TestClock::at(1_000_000);
    let store = Store::open_with(&path, config).unwrap();
    clock.drive(&store);
    for n in 0..200 {
        let expiry = if n < 100 { Expiry::At(1_000_100) } else { Expiry::Never };
        store.put_with_expiry(numbered(n), vec![1; 500], expiry).unwrap();
    }
    clock.set(1_001_000);
    for round in 0..2 {
        store.begin_write().unwrap();
        let mut failure = None;
        for n in 0.. {
            failure = store.get(numbered(n % 100)).err();
            failure = failure.or_else(|| store.put(format!("new {n}"), vec![2; size]).err());
            if failure.is_some() {
                break;
            }
        }
        assert_eq!(failure.map(|e| e.kind()), Some(ErrorKind::Full), "{name}");
        for n in 0..200 {
            let value = store.get(numbered(n)).unwrap_or_else(|e| panic!("{name}: round {round}, {n}: {e}"));
            assert_eq!(value.is_some(), n >= 100, "{name}: {n}");
        }
        assert_eq!(store.get("new 0").unwrap(), None, "{name}");
        let e = store.commit().unwrap_err();
        assert_eq!((e.kind(), e.hint()), (ErrorKind::Full, Some(kvstore::Hint::RollBack)), "{name}: {e}");
        store.rollback().unwrap();
        assert_eq!(store.get(numbered(150)).unwrap().map(|value| value.len()), Some(500), "{name}");
    }
    assert!(store.delete(numbered(100)).unwrap_or_else(|e| panic!("{name}: {e}")), "{name}");
    store.purge_expired().unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(store.count().unwrap(), 99, "{name}");
    store.integrity_check().unwrap();
    drop(store);
    remove_files(disk);
    did(name.to_owned());
}

fn remove_files(disk: &Tmpfs) {
    for file in files_of(disk) {
        fs::remove_file(disk.directory().join(file)).unwrap();
    }
}

fn files_of(disk: &Tmpfs) -> Vec<String> {
    let names = fs::read_dir(disk.directory()).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "ballast");
    names.sort();
    names
}

/// Fills the disk except for some pages, and reads a closed store with several handles.
fn read_on_full_disk(disk: &Tmpfs, config: &Config, pages_left: u64, name: &str) {
    let path = disk.directory().join("store");
    let open = |config: &Config| Store::open_with(&path, config).unwrap_or_else(|e| panic!("{name}: {e}"));
    let store = open(config);
    store.put("a", "1").unwrap();
    store.close().unwrap();
    disk.fill();
    let ballast = fs::OpenOptions::new().write(true).open(disk.directory().join("ballast")).unwrap();
    ballast.set_len(ballast.metadata().unwrap().len() - pages_left * 4096).unwrap();
    drop(ballast);
    for write_first in [false, true] {
        if write_first && let Err(e) = Store::open_with(&path, config) {
            // It changes nothing for the readers.
            assert_eq!(e.kind(), ErrorKind::Full, "{name}: {e}");
            assert_eq!(files_of(disk), ["store"], "{name}");
        }
        let reading = config.clone().read_only(true);
        let readers = [open(&reading), open(&reading)];
        for reader in readers.iter().chain(&readers) {
            assert_eq!(reader.get("a").unwrap().as_deref(), Some(&b"1"[..]), "{name}");
            reader.integrity_check().unwrap();
        }
        for reader in readers {
            reader.close().unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        if !write_first && pages_left < 8 {
            assert_eq!(files_of(disk), ["store"], "{name}");
        }
    }
    // A handle that was opened on the full disk sees what is written later.
    let reader = open(&config.clone().read_only(true));
    disk.free();
    let store = open(config);
    for value in ["2", "3"] {
        store.put("a", value).unwrap();
        let seen = (0..100).find_map(|_| reader.get("a").ok()).unwrap();
        assert_eq!(seen.as_deref(), Some(value.as_bytes()), "{name}");
    }
    store.close().unwrap();
    reader.close().unwrap();
    fs::remove_file(&path).unwrap();
    let _ = fs::remove_file(disk.directory().join("store-wal"));
    let _ = fs::remove_file(disk.directory().join("store-shm"));
}

/// The commits in the WAL can only be read through shared memory, for which there is no space.
fn unclosed_store_on_full_disk(disk: &Tmpfs) {
    let (path, copy) = (disk.directory().join("store"), disk.directory().join("copy"));
    let store = Store::open(&path).unwrap();
    store.put("a", "1").unwrap();
    for suffix in ["", "-wal"] {
        let named = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
        fs::copy(named(&path), named(&copy)).unwrap();
    }
    store.close().unwrap();
    let wal = fs::read(disk.directory().join("copy-wal")).unwrap();
    disk.fill();
    let reading = Config::new().read_only(true);
    let e = Store::open_with(&copy, &reading).unwrap_err();
    assert_eq!((e.kind(), e.hint()), (ErrorKind::Full, Some(kvstore::Hint::FreeDiskSpace)), "{e}");
    assert!(e.to_string().contains("a copy of the file and its -wal can be opened on another disk"), "{e}");
    assert!(fs::read(disk.directory().join("copy-wal")).unwrap() == wal);
    disk.free();
    let store = Store::open_with(&copy, &reading).unwrap();
    assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"1"[..]));
}

/// The `-shm` file cannot be created although the disk has space, as with a disk quota.
fn store_beyond_limit_of_file_size(disk: &Tmpfs) {
    let path = disk.directory().join("limited");
    let store = Store::open(&path).unwrap();
    store.put("a", "1").unwrap();
    store.close().unwrap();
    let files = FileSize::at(disk.directory());
    limit(libc::RLIMIT_FSIZE, Some(10_000));
    let readers = [(); 2].map(|()| Store::open_with(&path, &Config::new().read_only(true)).unwrap());
    for reader in &readers {
        assert_eq!(reader.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    }
    assert!(!files_of(disk).contains(&"limited-shm".to_owned()));
    files.free();
}

pub fn full_disk(dir: &Path) {
    full(dir, &Tmpfs::mount);
}

pub fn file_size(dir: &Path) {
    full(dir, &|dir| Some(FileSize::at(dir)));
}

#[test]
fn calls_on_full_disk_fail_without_effect_and_recover() {
    play("full-disk");
}

#[test]
fn calls_at_file_size_limit_fail_without_effect_and_recover() {
    play("file-size");
}

#[test]
fn file_size_limit_on_tmpfs_does_not_end_the_process() {
    play("file-size-in-memory");
}

/// On tmpfs the kernel sends SIGXFSZ for reserved space, too. Here its action is the default one.
pub fn file_size_in_memory(dir: &Path) {
    let Some(disk) = Tmpfs::mount_of(dir, 64) else {
        println!("{SKIPPED}no file system can be mounted here");
        return;
    };
    for (number, mode) in [JournalMode::Wal, JournalMode::Delete].into_iter().enumerate() {
        limit(libc::RLIMIT_FSIZE, Some(2 << 20));
        let config = Config::new().journal_mode(mode);
        let store = Store::open_with(disk.directory().join(number.to_string()), &config).unwrap();
        let failed = (0..1_000).find_map(|n| store.put(numbered(n), vec![0; 20_000]).err()).unwrap();
        assert_eq!(failed.kind(), ErrorKind::Full);
        store.delete(numbered(0)).unwrap();
        store.close().unwrap();
        limit(libc::RLIMIT_FSIZE, None);
    }
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

/// Fills the disk before calls of every kind. Returns the number of calls that failed.
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
    // Puts until the disk is full, several times.
    for round in 0..3 {
        for _ in 0..20 {
            store.put_with_expiry(numbered(keys), value_of(keys), Expiry::At(i64::MAX)).unwrap();
            keys += 1;
        }
        disk.fill();
        let (first, mut e) = (keys, None);
        while e.is_none() {
            assert!(keys < first + 2_000, "the disk does not become full, {name}");
            match store.put_with_expiry(numbered(keys), value_of(keys), Expiry::At(i64::MAX)) {
                Ok(()) => keys += 1,
                Err(error) => e = Some(error),
            }
        }
        must_fail("put", Err(e.unwrap()));
        is_as_it_was(&store, keys);
        // A transaction that fails can only be rolled back.
        store.begin_write().unwrap();
        let mut n = keys;
        while store.put(numbered(n), value_of(n)).is_ok() {
            n += 1;
            if n == keys + 500 {
                break; // the transaction fits into the cache, so only the commit fails
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
            // It fits below the limit, because entries were deleted.
            is_as_it_was(&Store::open(&copy).unwrap(), keys);
            fs::remove_file(&copy).unwrap();
        }
        let new = path.with_extension("new");
        assert_clear("a new store", &Store::open(&new)); // may fit below the limit
        let left = |what: &str| {
            let named = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().contains(what);
            fs::read_dir(disk.directory()).unwrap().map(Result::unwrap).any(|entry| named(&entry))
        };
        assert!(!left("partial") && !left("copy"), "a backup that failed leaves a file");
        // Calls that may or may not need space.
        for mode in [CheckpointMode::Passive, CheckpointMode::Full, CheckpointMode::Restart] {
            assert_clear("checkpoint", &store.checkpoint(mode));
        }
        assert_clear("sync", &store.sync());
        assert_clear("vacuum", &store.incremental_vacuum(None));
        is_as_it_was(&store, keys);
        if round == 1 {
            // Closes and opens the store on a full disk.
            assert_clear("close", &store.close());
            let again = Store::open_with(path, config);
            assert_clear("open", &again);
            if let Ok(again) = again {
                is_as_it_was(&again, keys);
            }
            disk.free();
            break;
        }
        disk.free();
        // This handle works again as soon as there is space.
        batch.commit().unwrap();
        store
            .delete_range(&KeyRange::new(
                std::ops::Bound::Included(numbered(keys)),
                std::ops::Bound::Unbounded,
            ))
            .unwrap();
        if let Ok(f) = store.family("f") {
            drop(f); // created, but its first value did not fit
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
        disk.fill();
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
        disk.free();
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

/// Some values are stored in their row, some are not.
fn value_of(n: usize) -> Vec<u8> {
    vec![u8::try_from(n % 251).unwrap(); [40, 900, 9_000][n % 3]]
}

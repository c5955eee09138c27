//! Helpers that several test files share: a clock that tests set, temporary files, pseudo-random
//! numbers, a second SQLite.
//!
//! Must not contain tests, or helpers that only one file needs.

#![allow(dead_code)] // each test file is a crate of its own and uses its part

pub mod cases;
#[cfg(feature = "encryption")]
pub mod decrypted;
#[cfg(feature = "remote")]
pub mod on_a_server;
pub mod other;
#[cfg(feature = "remote")]
pub mod proxy;
pub mod recovered;
#[cfg(feature = "remote")]
pub mod server;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kvstore::{Config, Cursor, Direction, ErrorKind, Iter, JournalMode, KeyRange, Result, Store};

/// A clock that stands still until a test moves it. Clones share the time. For a store on a server,
/// the time is in a file that the server reads.
#[derive(Clone)]
pub struct TestClock(Arc<AtomicI64>, Arc<Mutex<Vec<PathBuf>>>);

impl TestClock {
    pub fn at(now_ms: i64) -> TestClock {
        TestClock(Arc::new(AtomicI64::new(now_ms)), Arc::default())
    }

    pub fn set(&self, now_ms: i64) {
        self.0.store(now_ms, Ordering::SeqCst);
        #[cfg(feature = "remote")]
        self.1.lock().unwrap().iter().for_each(|file| on_a_server::set_clock(file, now_ms));
    }

    pub fn now(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }

    /// For stores on a server, this must be the store that the thread opened last.
    pub fn drive(&self, store: &Store) {
        #[cfg(feature = "remote")]
        if on_a_server::has(store) {
            self.1.lock().unwrap().push(on_a_server::clock_of_the_latest());
            self.set(self.now());
            let clock = self.clone();
            return kvstore::internal::simulate_server_clock(store, move || clock.now());
        }
        let clock = self.clone();
        store.set_clock(move || clock.now());
    }
}

/// Adds a key to the configuration if the tests run on encrypted stores
/// (`KVSTORE_TEST_ENCRYPTED=1`, in a build with the feature `encryption`).
pub fn maybe_encrypted(config: &Config) -> Config {
    if are_encrypted() {
        #[cfg(feature = "encryption")]
        return config.clone().raw_key(&decrypted::KEY);
    }
    config.clone()
}

/// Returns `true` if the stores of the tests are on a server (`KVSTORE_TEST_REMOTE=1`).
///
/// # Panics
///
/// If the build lacks the feature `remote`.
pub fn are_on_a_server() -> bool {
    is_set("KVSTORE_TEST_REMOTE", "remote", cfg!(feature = "remote"))
}

/// Returns `true` if a variable is set that needs a feature of the build.
fn is_set(variable: &str, feature: &str, has_feature: bool) -> bool {
    let is_set = std::env::var_os(variable).is_some();
    assert!(!is_set || has_feature, "{variable} is set: build the tests with --features {feature}");
    is_set
}

/// Returns `true`, and prints the reason, if the stores are on a server and the test applies to
/// files only.
pub fn is_of_a_file(why: &str) -> bool {
    if are_on_a_server() {
        println!("SKIPPED on a server: {why}");
    }
    are_on_a_server()
}

/// Returns `true`, and prints the reason, if no other program can read or change an open store of
/// the tests: it is on a server, or encrypted.
pub fn are_closed_to_other_programs() -> bool {
    if are_encrypted() {
        println!("SKIPPED on encrypted stores: another program uses the file");
    }
    are_encrypted() || is_of_a_file("another program uses the file")
}

/// Returns the length of the longest key.
pub fn max_key_size() -> usize {
    if are_on_a_server() { 2_500 } else { kvstore::MAX_KEY_SIZE }
}

/// A configuration with which calls do not wait for locks.
pub fn without_wait() -> Config {
    Config::new().busy_timeout(Duration::ZERO)
}

/// A configuration with the DELETE journal mode, with which calls do not wait for locks.
pub fn delete_mode() -> Config {
    without_wait().journal_mode(JournalMode::Delete)
}

/// Returns two handles of a store in DELETE mode; `None` on a server, which has no such mode.
pub fn pair_in_delete_mode(config: &Config) -> Option<(Scratch, Store, Store)> {
    if is_of_a_file("it is about the DELETE mode") {
        return None;
    }
    let (scratch, config) = (Scratch::new(), config.clone().journal_mode(JournalMode::Delete));
    let (one, other) = (scratch.open_with(&config), scratch.open_with(&config));
    Some((scratch, one, other))
}

/// A store in memory, or a new one on a server.
pub fn memory() -> Store {
    memory_with(&Config::new())
}

pub fn memory_with(config: &Config) -> Store {
    #[cfg(feature = "remote")]
    if are_on_a_server() {
        let url = on_a_server::new_url();
        on_a_server::opened(&url);
        return Store::open_with(url, config).unwrap();
    }
    Store::open_in_memory(config).unwrap()
}

/// A store in memory, with its clock at `now_ms`.
pub fn memory_at(now_ms: i64) -> (Store, TestClock) {
    let (store, clock) = (memory(), TestClock::at(now_ms));
    clock.drive(&store);
    (store, clock)
}

/// A directory that is removed at the end of the test, with a store file in it.
pub struct Scratch {
    dir: tempfile::TempDir,
    /// Of a store on a server.
    url: Option<String>,
}

impl Scratch {
    pub fn new() -> Scratch {
        #[cfg(feature = "remote")]
        let url = are_on_a_server().then(on_a_server::new_url);
        #[cfg(not(feature = "remote"))]
        let url = None;
        Scratch { dir: tempfile::tempdir().unwrap(), url }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Path or URL of the store of this directory.
    pub fn path(&self) -> PathBuf {
        self.url.as_ref().map_or_else(|| self.file("store.db"), PathBuf::from)
    }

    pub fn wal(&self) -> PathBuf {
        self.file("store.db-wal")
    }

    pub fn shm(&self) -> PathBuf {
        self.file("store.db-shm")
    }

    /// Opens the store. Calls do not wait for locks.
    pub fn open(&self) -> Store {
        self.open_with(&without_wait())
    }

    pub fn open_with(&self, config: &Config) -> Store {
        #[cfg(feature = "remote")]
        self.url.iter().for_each(|url| on_a_server::opened(url));
        Store::open_with(self.path(), &maybe_encrypted(config)).unwrap()
    }

    /// Opens the store with this clock.
    pub fn open_at(&self, clock: &TestClock) -> Store {
        let store = self.open();
        clock.drive(&store);
        store
    }

    /// Runs `test` on a handle in a read transaction, and on a read-only handle.
    pub fn each_reader(&self, clock: &TestClock, test: impl Fn(&Store)) {
        let in_a_read = self.open_at(clock);
        in_a_read.begin_read().unwrap();
        let read_only = self.open_with(&Config::new().read_only(true));
        clock.drive(&read_only);
        let readers = [("in a read transaction", in_a_read), ("read-only handle", read_only)];
        cases::each_case(readers, |reader| test(&reader));
    }

    /// Returns all files of the directory with their content.
    pub fn bytes(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = std::fs::read_dir(self.dir()).unwrap().map(Result::unwrap);
        entries
            .filter(|entry| entry.file_type().unwrap().is_file())
            .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
            .collect()
    }
}

/// Returns the path of SQLite's file with this suffix, such as `-wal`.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns the kind of the error; panics if the call succeeded.
#[track_caller]
pub fn kind<T: Debug>(result: Result<T>) -> ErrorKind {
    result.expect_err("the call should have failed").kind()
}

/// Returns the remaining keys of an iterator.
#[track_caller]
pub fn keys(iter: Iter) -> Vec<Vec<u8>> {
    iter.map(|entry| entry.unwrap().0).collect()
}

/// Returns all keys of a cursor, from its first entry.
#[track_caller]
pub fn scan(cursor: &mut Cursor) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let mut at_entry = cursor.first().unwrap();
    while at_entry {
        keys.push(cursor.key().unwrap().to_vec());
        at_entry = cursor.next().unwrap();
    }
    keys
}

/// Returns a key for a number. Keys sort like their numbers.
pub fn numbered(n: usize) -> Vec<u8> {
    format!("key {n:06}").into_bytes()
}

/// Returns `true` if the stores of a [`Scratch`] are encrypted (`KVSTORE_TEST_ENCRYPTED=1`).
///
/// # Panics
///
/// If the build lacks the feature `encryption`.
pub fn are_encrypted() -> bool {
    is_set("KVSTORE_TEST_ENCRYPTED", "encryption", cfg!(feature = "encryption"))
}

/// Runs a Python program in a process of its own and gives what it printed. `con` is a connection
/// to the database at `path`, made with Python's own SQLite, in autocommit mode.
#[track_caller]
pub fn python(path: &Path, program: &str) -> String {
    #[cfg(feature = "encryption")]
    if decrypted::is_encrypted(path) {
        return decrypted::on_a_plain_copy(path, |plain| python(plain, program));
    }
    let prelude = "import sqlite3, sys, os\ncon = sqlite3.connect(sys.argv[1], isolation_level=None)\n";
    let done = Command::new("python3")
        .arg("-c")
        .arg(format!("{prelude}{program}\n"))
        .arg(path)
        .output()
        .expect("these tests need python3");
    assert!(done.status.success(), "python failed: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim_end().to_owned()
}

/// Returns what the integrity check of Python's SQLite finds in the file: `ok` if it is sound.
#[track_caller]
pub fn sqlite_check(path: &Path) -> String {
    python(path, "print(*con.execute('pragma integrity_check').fetchone())")
}

pub fn forward(store: &Store) -> Cursor {
    store.cursor(KeyRange::all(), Direction::Forward)
}

pub fn reverse(store: &Store) -> Cursor {
    store.cursor(KeyRange::all(), Direction::Reverse)
}

/// Begins a write transaction, or a read transaction.
pub fn begin(store: &Store, write: bool) -> Result<()> {
    if write { store.begin_write() } else { store.begin_read() }
}

/// Shuts readers out of the store: `other` writes more than its cache holds, in DELETE mode.
pub fn shut_out(other: &Store) {
    other.begin_write().unwrap();
    (0..50).for_each(|n| other.put(numbered(n), vec![1; 20_000]).unwrap());
}

/// Writes `n` numbered keys in one transaction.
pub fn fill(store: &Store, n: usize) {
    store.transaction(|tx| (0..n).try_for_each(|n| tx.put(numbered(n), n.to_be_bytes()))).unwrap();
}

/// The keys after the current entry.
pub fn rest(cursor: &mut Cursor) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    while cursor.next().unwrap() {
        keys.push(cursor.key().unwrap().to_vec());
    }
    keys
}

/// Numbers that look random, the same in each run (xorshift64, Marsaglia 2003).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

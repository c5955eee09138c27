//! Confidentiality: the permissions of every file, where files appear, and that no byte of a key or
//! value is in an error, on a stream or in the output of `{:?}`.
//!
//! Permissions and streams belong to a process. So each of these tests runs this test program again
//! as a process of its own, which runs only [`child`] in a role.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::env;
use std::ffi::CString;
use std::fmt::Debug;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::other::{Role, child_in_role, play_role};
use crate::common::{Scratch, numbered, python};
use kvstore::{
    CheckpointMode, Config, Direction, Expiry, ExpiryCondition, JournalMode, KeyRange, Result, Store,
};

/// Permissions of files that a store creates, without the umask.
const WIDEST: u32 = 0o644;

// ---- the other process ---------------------------------------------------------------------------

const ROLES: &[Role] = &[("rights", rights), ("places", places), ("errors", errors)];

/// Runs a role in a separate process. Returns all its output.
#[track_caller]
fn play(role: &str) -> Vec<u8> {
    let scratch = Scratch::new();
    let temporary = scratch.file("temporary");
    fs::create_dir(&temporary).unwrap();
    let done = child_in_role(module_path!(), scratch.dir(), role)
        // Where SQLite would put its temporary files.
        .env("SQLITE_TMPDIR", &temporary)
        .env("TMPDIR", &temporary)
        .output()
        .unwrap();
    let said = [done.stdout, done.stderr].concat();
    let text = String::from_utf8_lossy(&said);
    assert!(done.status.success() && text.contains("test result: ok. 1 passed"), "{role}: {text}");
    said
}

#[test]
#[ignore = "no test, but the other processes of the tests in this file"]
fn child() {
    play_role(ROLES);
}

// ---- rights --------------------------------------------------------------------------------------

#[test]
fn no_file_has_more_permissions_than_umask_allows() {
    play("rights");
}

/// Returns the permissions of every file in a directory.
fn rights_in(dir: &Path) -> BTreeMap<String, u32> {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    files
        .map(|file| {
            let mode = file.metadata().unwrap().permissions().mode() & 0o7777;
            (file.file_name().into_string().unwrap(), mode)
        })
        .collect()
}

fn rights(dir: &Path) {
    for umask in [0o000, 0o022, 0o027, 0o077, 0o177] {
        // SAFETY: changes this process's umask; no other thread makes files.
        unsafe { libc::umask(umask) };
        let expected = WIDEST & !umask;
        for mode in [JournalMode::Wal, JournalMode::Delete] {
            let at = dir.join(format!("{umask:o} {mode:?}"));
            fs::create_dir(&at).unwrap();
            fs::set_permissions(&at, fs::Permissions::from_mode(0o700)).unwrap();
            let mut seen: BTreeMap<String, u32> = BTreeMap::new();
            let mut look = || {
                for (name, mode) in rights_in(&at) {
                    assert_eq!(mode, expected, "{name} with umask {umask:o}");
                    let kind =
                        ["-wal", "-shm", "-journal", ".partial"].iter().find(|end| name.ends_with(*end));
                    seen.insert((*kind.unwrap_or(&&*name)).to_owned(), mode);
                }
            };
            let config = Config::new().journal_mode(mode).cache_pages(10);
            let store = Store::open_with(at.join("store.db"), &config).unwrap();
            look();
            store.begin_write().unwrap();
            for n in 0..200 {
                store.put_with_ttl(numbered(n), vec![1; 3_000], Duration::from_secs(60)).unwrap();
            }
            look(); // the cache is full, so the journal exists
            store.commit().unwrap();
            store
                .backup(at.join("copy.db"), |_, _| {
                    look();
                    true
                })
                .unwrap();
            look();
            store.checkpoint(CheckpointMode::Truncate).unwrap();
            store.incremental_vacuum(None).unwrap();
            look();
            store.close().unwrap();
            look();
            let reader = Store::open_with(at.join("copy.db"), &Config::new().read_only(true)).unwrap();
            reader.integrity_check().unwrap();
            look();
            drop(reader);
            let beside: &[&str] = match mode {
                JournalMode::Wal => &["-wal", "-shm"],
                _ => &["-journal"],
            };
            for kind in ["store.db", "copy.db", ".partial"].iter().chain(beside) {
                assert!(seen.contains_key(*kind), "{kind} was not there to be looked at: {seen:?}");
            }
        }
    }
    // A store that its owner has made private stays private, with all files next to it. SAFETY: as
    // above.
    unsafe { libc::umask(0) };
    for mode in [JournalMode::Wal, JournalMode::Delete] {
        let at = dir.join(format!("private {mode:?}"));
        fs::create_dir(&at).unwrap();
        fs::write(at.join("store.db"), b"").unwrap();
        fs::set_permissions(at.join("store.db"), fs::Permissions::from_mode(0o600)).unwrap();
        let store = Store::open_with(at.join("store.db"), &Config::new().journal_mode(mode)).unwrap();
        store.begin_write().unwrap();
        store.put("a", "1").unwrap();
        let private =
            |at: &Path| assert!(rights_in(at).values().all(|mode| *mode == 0o600), "{:?}", rights_in(at));
        private(&at);
        assert!(rights_in(&at).len() >= 2);
        store.commit().unwrap();
        let progress = |_, _| {
            private(&at);
            true
        };
        store.backup(at.join("copy"), progress).unwrap();
        private(&at);
    }
}

// ---- locations
// -----------------------------------------------------------------------------------

#[test]
fn files_are_created_only_next_to_store() {
    play("places");
}

/// Reports which files are created or opened in some directories.
struct Watch {
    descriptor: i32,
    directories: BTreeMap<i32, PathBuf>,
}

impl Watch {
    fn over(directories: &[&Path]) -> Watch {
        // SAFETY: makes a descriptor, which the process keeps to its end.
        let descriptor = unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) };
        assert!(descriptor >= 0);
        let events = libc::IN_CREATE | libc::IN_MOVED_TO;
        let watched = directories.iter().map(|directory| {
            let path = CString::new(directory.as_os_str().as_bytes()).unwrap();
            // SAFETY: the path ends with NUL and outlives the call.
            let number = unsafe { libc::inotify_add_watch(descriptor, path.as_ptr(), events) };
            assert!(number >= 0, "{}", directory.display());
            (number, directory.to_path_buf())
        });
        Watch { descriptor, directories: watched.collect() }
    }

    /// Files created since the last call.
    fn made(&self) -> Vec<PathBuf> {
        const HEAD: usize = size_of::<libc::inotify_event>();
        let mut made = Vec::new();
        let mut buffer = vec![0u8; 65_536];
        loop {
            // SAFETY: reads into the buffer, up to its length.
            let read = unsafe { libc::read(self.descriptor, buffer.as_mut_ptr().cast(), buffer.len()) };
            let Ok(read @ 1..) = usize::try_from(read) else { return made };
            let mut at = 0;
            while at < read {
                let number =
                    |from: usize| i32::from_ne_bytes(buffer[at + from..at + from + 4].try_into().unwrap());
                let length = usize::try_from(number(12)).unwrap();
                let name = buffer[at + HEAD..at + HEAD + length].split(|byte| *byte == 0).next().unwrap();
                made.push(self.directories[&number(0)].join(std::ffi::OsStr::from_bytes(name)));
                at += HEAD + length;
            }
        }
    }
}

fn places(dir: &Path) {
    let at = dir.join("store");
    fs::create_dir(&at).unwrap();
    let temporary = dir.join("temporary");
    // An empty database of another program, which VACUUM has rewritten; an open makes it a store.
    let emptied = at.join("emptied.db");
    python(&emptied, "con.execute('create table t(a)')\ncon.execute('drop table t')");
    let here = env::current_dir().unwrap();
    let watch = Watch::over(&[&at, &temporary, &here]);
    fs::write(temporary.join("sign"), b"").unwrap();
    assert_eq!(watch.made(), [temporary.join("sign")], "the watch does not watch");
    for mode in [JournalMode::Wal, JournalMode::Delete] {
        for sql in [false, true] {
            let config = Config::new().journal_mode(mode).sql_engine(sql).cache_pages(10);
            drop(Store::open_with(&emptied, &config).unwrap());
            let path = at.join("store.db");
            let store = Store::open_with(&path, &config).unwrap();
            // A transaction far longer than the cache, with a savepoint in it.
            store.begin_write().unwrap();
            for n in 0..3_000 {
                store.put_with_expiry(numbered(n), vec![7; 200 + n], Expiry::At(i64::MAX)).unwrap();
            }
            let mut batch = store.batch();
            (0..3_000).for_each(|n| batch.put(&store, numbered(n), "short", Expiry::Never).unwrap());
            batch.commit().unwrap();
            store.commit().unwrap();
            store.set_write_tracking(true).unwrap();
            store.integrity_check().unwrap();
            store.set_write_tracking(false).unwrap();
            store.delete_range(&KeyRange::all()).unwrap();
            store.incremental_vacuum(None).unwrap();
            store.checkpoint(CheckpointMode::Truncate).unwrap();
            store.backup(at.join("copy.db"), |_, _| true).unwrap();
            store.close().unwrap();
            fs::remove_file(at.join("copy.db")).unwrap();
            fs::remove_file(&path).unwrap();
        }
    }
    let mut kinds: Vec<String> = Vec::new();
    for file in watch.made() {
        assert!(file.starts_with(&at), "{} was made", file.display());
        let name = file.file_name().unwrap().to_str().unwrap();
        let name = name.split_once(".partial").map_or(name, |_| "partial").to_owned();
        if !kinds.contains(&name) {
            kinds.push(name);
        }
    }
    kinds.sort();
    let beside = |name: &str| ["", "-journal", "-shm", "-wal"].map(|end| format!("{name}{end}"));
    let known: Vec<String> = [beside("store.db"), beside("emptied.db"), beside("copy.db")].concat();
    let strange: Vec<_> = kinds.iter().filter(|kind| !known.contains(kind) && *kind != "partial").collect();
    assert!(strange.is_empty(), "{strange:?}");
    assert!(kinds.contains(&"store.db-journal".into()) && kinds.contains(&"partial".into()), "{kinds:?}");
}

#[test]
fn store_opened_by_symlink_keeps_files_next_to_real_store() {
    let scratch = Scratch::new();
    let (real, links) = (scratch.file("real"), scratch.file("links"));
    fs::create_dir(&real).unwrap();
    fs::create_dir(&links).unwrap();
    // A chain of links, relative and absolute, the last to a file that is not there yet.
    symlink(real.join("store.db"), links.join("second")).unwrap();
    symlink("second", links.join("first")).unwrap();
    symlink(&real, scratch.file("directory")).unwrap();
    for (number, mode) in [JournalMode::Wal, JournalMode::Delete].into_iter().enumerate() {
        for path in [links.join("first"), scratch.file("directory").join("store.db")] {
            let store = Store::open_with(&path, &Config::new().journal_mode(mode)).unwrap();
            store.begin_write().unwrap();
            // Bytes that are already present are not written again.
            store.put("a", format!("{number} {}", path.display())).unwrap();
            assert!(rights_in(&real).len() >= 2, "{:?}", rights_in(&real));
            assert!(rights_in(&links).is_empty(), "{:?}", rights_in(&links));
            store.commit().unwrap();
            // A second name is the same store.
            let second = Store::open_with(real.join("store.db"), &Config::new().journal_mode(mode)).unwrap();
            assert!(second.exists("a").unwrap());
            second.close().unwrap();
            store.sync().unwrap();
            if mode == JournalMode::Wal {
                store.start_cleaner(Duration::from_secs(60), None).unwrap();
            }
            store.backup(links.join("copy"), |_, _| true).unwrap();
            store.close().unwrap();
            fs::remove_file(links.join("copy")).unwrap();
            assert_eq!(rights_in(&real).into_keys().collect::<Vec<_>>(), ["store.db"]);
        }
    }
    symlink("loop", links.join("loop")).unwrap();
    assert!(Store::open(links.join("loop")).is_err());
}

// ---- keys and values -----------------------------------------------------------------------------

#[test]
fn keys_and_values_never_appear_in_errors_or_debug_output() {
    let said = play("errors");
    assert_secret("a stream", &said);
}

/// Recognisable, also in parts.
const KEY: &str = "SECRETKEY-qzxv";
const VALUE: &str = "SECRETVALUE-wkjy";
/// The longest value the stores of this test take.
const LONGEST: usize = 64 << 10;

/// Asserts that no four letters of a secret occur, as text, as a list of numbers, or in hex.
#[track_caller]
fn assert_secret(what: &str, text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    for part in [KEY, VALUE].iter().flat_map(|secret| secret.as_bytes().windows(4)) {
        let joined =
            |show: fn(&u8) -> String, between: &str| part.iter().map(show).collect::<Vec<_>>().join(between);
        for form in [
            String::from_utf8(part.to_vec()).unwrap(),
            joined(u8::to_string, ", "),
            joined(|byte| format!("{byte:02x}"), ""),
            joined(|byte| format!("{byte:02X}"), ""),
        ] {
            assert!(!text.contains(&form), "{what} shows {form:?}: {text}");
        }
    }
}

/// Collects all messages and output.
#[derive(Default)]
struct Heard {
    failures: usize,
}

impl Heard {
    #[track_caller]
    fn result<R>(&mut self, what: &str, done: Result<R>) {
        if let Err(e) = done {
            self.failures += 1;
            assert_secret(what, format!("{e} {e:?} {e:#?} {:?}", e.kind()).as_bytes());
        }
    }

    #[track_caller]
    fn shown(&mut self, what: &str, shown: &impl Debug) {
        assert_secret(what, format!("{shown:?} {shown:#?}").as_bytes());
    }

    /// Makes calls of every kind.
    fn calls(&mut self, store: &Store, dir: &Path) {
        let end = Expiry::At(i64::MAX - 1);
        let long = [KEY.as_bytes(), &vec![b'x'; kvstore::MAX_KEY_SIZE]].concat();
        let much = VALUE.repeat(LONGEST / VALUE.len() + 1);
        self.result("get", store.get(KEY));
        self.result("get of a long key", store.get(&long));
        self.result("put of a long key", store.put(&long, VALUE));
        self.result("put of too much", store.put(KEY, &much));
        self.result("put until never was", store.put_with_expiry(KEY, VALUE, Expiry::At(-5)));
        self.result("increment", store.increment(KEY, 1, Expiry::Never));
        self.result("increment past the end", store.increment("number", i64::MAX, Expiry::Never));
        self.result("swap", store.compare_and_swap(KEY, "other", VALUE, end));
        self.result("swap", store.compare_and_swap(KEY, VALUE, VALUE, Expiry::Never));
        self.result("delete if", store.compare_and_delete(KEY, "other"));
        self.result("absent", store.put_if_absent(KEY, VALUE, end));
        self.result("expire", store.set_expiry(KEY, end, ExpiryCondition::Always));
        self.result("get and expire", store.get_and_set_expiry(KEY, end));
        self.result("ttl", store.ttl(KEY));
        self.result("expire time", store.expiry(KEY));
        self.result("write time", store.write_time(KEY));
        self.result("get many", store.get_many([KEY, VALUE]));
        self.result("sweep", store.sweep(Duration::from_secs(1_000_000_000)));
        self.result("purge", store.purge_before(5));
        self.result("purge", store.purge_step(None, None));
        self.result("count", store.count_live());
        self.result("next", store.next_expiry_all_families());
        self.result("tracking", store.set_write_tracking(true));
        self.result("tracking", store.set_write_tracking(false));
        self.result("row key", kvstore::row_key(KEY.as_bytes(), &long));
        self.result("rows", store.row_cursor(KEY.as_bytes(), &KeyRange::prefix(&long), Direction::Forward));
        for direction in [Direction::Forward, Direction::Reverse] {
            let mut cursor = store.cursor(KeyRange::prefix(b"SECRET"), direction);
            self.result("seek", cursor.seek(&long));
            self.result("first", cursor.first());
            self.shown("a cursor", &cursor);
            self.result("next", cursor.next());
        }
        let mut expiring = store.expiry_cursor(0, i64::MAX);
        self.result("expiring", expiring.first());
        self.result("seek", expiring.seek(KEY));
        self.shown("a cursor by expiry", &expiring);
        let mut iter = store.prefix(KEY);
        self.result("iterator", iter.next().transpose());
        self.shown("an iterator", &iter);
        let mut batch = store.batch();
        self.result("batch", batch.put(store, &long, VALUE, end));
        self.result("batch", batch.put(store, KEY, &much, end));
        self.result("batch", batch.put(store, KEY, VALUE, end));
        self.result("batch", batch.delete(store, VALUE));
        self.shown("a batch", &batch);
        self.result("commit", batch.commit());
        self.shown("a store", store);
        self.shown("a family", store.default_family());
        self.shown("statistics", &store.stats());
        self.result("transaction", store.transaction(|tx| tx.put(KEY, VALUE)));
        self.result("commit", store.commit());
        self.result("integrity", store.integrity_check());
        self.result("checkpoint", store.checkpoint(CheckpointMode::Truncate));
        self.result("backup", store.backup(dir.join("store.db"), |_, _| true));
        self.result("sync", store.sync());
        self.result("put", store.put(KEY, VALUE));
        self.result("delete", store.delete(KEY));
        self.result("range", store.delete_range(&KeyRange::prefix(KEY.as_bytes())));
    }
}

fn errors(dir: &Path) {
    let mut heard = Heard::default();
    let config = Config::new().max_value_size(LONGEST).busy_timeout(Duration::ZERO);
    let open = |path: &Path| Store::open_with(path, &config);
    let fill = |store: &Store| {
        for n in 0..40 {
            let value = VALUE.repeat(2 + n * 11);
            store
                .put_with_expiry(
                    format!("{KEY}{n}"),
                    &value,
                    [Expiry::Never, Expiry::At(i64::MAX - 1)][n % 2],
                )
                .unwrap();
        }
        store.put(KEY, VALUE).unwrap();
        store.put("number", "7").unwrap();
    };
    // Damage done with SQL by another program. `S` is a secret at a place where none belongs.
    let damages = [
        "", // none
        "update \"data:default\" set expire_ms = S",
        "update \"data:default\" set blob_id = S",
        "update \"data:default\" set blob_id = 999999",
        "update \"data:default\" set value = cast(value as text)",
        "update \"data:default\" set written_ms = S",
        "update \"data:default\" set value = null, blob_id = null",
        "insert into \"data:default\" values(S, S, S, S, S)",
        "update \"blob:default\" set value = cast(value as text)",
        "update \"blob:default\" set value = 7",
        "update \"ttl_key:default\" set expire_ms = 5",
        "update or ignore \"ttl_expiry:default\" set key = S",
        "delete from \"ttl_expiry:default\"",
        "insert into \"ttl_key:default\" values(S, 5)",
        "update kvstore_family set default_ttl_ms = S, track_writes = S",
        "drop table \"blob:default\"",
        "drop table \"ttl_key:default\"",
        "create unique index strange on \"data:default\"(value)",
        "create trigger t before insert on \"data:default\" begin select raise(abort, S); end",
        "create table \"data:default2\"(a check(a <> S))",
    ];
    for (number, damage) in damages.iter().enumerate() {
        for sql in [false, true] {
            let path = dir.join(format!("store {number} {sql}"));
            let config = config.clone().sql_engine(sql);
            let store = Store::open_with(&path, &config).unwrap();
            fill(&store);
            store.close().unwrap();
            if !damage.is_empty() {
                let damage = damage.replace('S', &format!("'{VALUE}'"));
                python(&path, &format!("con.execute('''{damage} ''')"));
            }
            match Store::open_with(&path, &config) {
                Ok(store) => {
                    heard.calls(&store, dir);
                    heard.calls(&store, dir); // once more, on the result of the first run
                    store.close().unwrap();
                    heard.calls(&store, dir); // closed
                }
                Err(e) => heard.result::<()>("open", Err(e)),
            }
        }
    }
    // Bytes of the file are changed.
    for at in (100..40_000).step_by(3_531) {
        let path = dir.join(format!("bytes {at}"));
        let store = open(&path).unwrap();
        fill(&store);
        store.close().unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let end = bytes.len().min(at + 9);
        bytes[at.min(end)..end].fill(0xC3);
        fs::write(&path, bytes).unwrap();
        match open(&path) {
            Ok(store) => heard.calls(&store, dir),
            Err(e) => heard.result::<()>("open", Err(e)),
        }
    }
    // Locks, read-only handles, and a path whose name is a secret and which is not a store.
    let path = dir.join("locked");
    let (one, two) = (open(&path).unwrap(), open(&path).unwrap());
    fill(&one);
    one.begin_write().unwrap();
    heard.calls(&two, dir);
    one.rollback().unwrap();
    one.begin_read().unwrap();
    heard.calls(&one, dir);
    assert!(one.commit().is_err(), "it was ended among the calls");
    heard.calls(&Store::open_with(&path, &config.clone().read_only(true)).unwrap(), dir);
    fs::write(dir.join("stranger"), format!("{KEY}{VALUE}")).unwrap();
    heard.result("open of a stranger", Store::open(dir.join("stranger")));
    assert!(heard.failures > 1_000, "{} failures", heard.failures);
    println!("> {} failures", heard.failures);
}

//! Encrypts and decrypts existing stores, and changes their key or password, without copying them
//! to a new file.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::cases::{ENGINES, each_case};
use kvstore::{Config, ErrorKind, Eviction, Expiry, JournalMode, Secret, SizeLimit, Store, SyncLevel};
use rusqlite::Connection;

use super::sentinels::{FAMILY, KEY, VALUE, contents};
use super::{MODULE, fill, leaks, with_key};
use crate::common::other::{Other, say};
use crate::common::{Random, Scratch, kind};

/// Creates a store with entries of every kind, and a table of another program.
pub fn filled(path: &Path, config: &Config) -> Store {
    let store = Store::open_with(path, config).unwrap();
    fill(&store);
    let tracked = store.create_family("tracked").unwrap();
    tracked.set_write_tracking(true).unwrap();
    tracked.set_default_ttl(Some(Duration::from_secs(1 << 29))).unwrap();
    tracked.put(KEY, VALUE).unwrap();
    store.set_size_limit(Some(SizeLimit::new(64 << 20, Eviction::Soonest))).unwrap();
    store
}

fn plain() -> Config {
    crate::common::without_wait()
}

/// The secret of `with_key`.
fn key() -> Secret {
    Secret::raw_key(&[7; 32])
}

fn other() -> Secret {
    Secret::raw_key(&[8; 32])
}

#[test]
fn conversion_keeps_all_data_and_leaves_no_old_bytes() {
    let modes = [
        plain(),
        plain().sql_engine(true),
        plain().journal_mode(JournalMode::Delete),
        plain().exclusive(true),
        plain().exclusive(true).journal_mode(JournalMode::Delete).sync(SyncLevel::Full),
        plain().page_size(512),
        plain().page_size(65_536).sync(SyncLevel::Off),
    ];
    for config in modes {
        let scratch = Scratch::new();
        let store = filled(&scratch.path(), &config);
        let before = contents(&store);
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o640)).unwrap();
        let file = fs::metadata(scratch.path()).unwrap();
        assert!(!leaks(&scratch).is_empty());
        let is_the_same_file = || {
            let now = fs::metadata(scratch.path()).unwrap();
            assert_eq!((now.ino(), now.mode(), now.uid()), (file.ino(), file.mode(), file.uid()));
        };

        store.encrypt(&key()).unwrap_or_else(|e| panic!("{config:?}: {e}"));
        assert!(store.is_encrypted().unwrap());
        assert_eq!(leaks(&scratch), Vec::<String>::new(), "{config:?}");
        assert!(contents(&store) == before, "{config:?}");
        store.integrity_check().unwrap();
        is_the_same_file();

        store.rekey(&other()).unwrap();
        assert_eq!(leaks(&scratch), Vec::<String>::new(), "{config:?}");
        assert!(contents(&store) == before, "{config:?}");
        store.put("afterwards", "1").unwrap();
        store.delete("afterwards").unwrap();
        store.close().unwrap();
        let encrypted = |key: u8| config.clone().page_size(4096).raw_key(&[key; 32]);
        for wrong in [config.clone(), encrypted(7)] {
            let error = Store::open_with(scratch.path(), &wrong).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AuthFailed, "{error} {wrong:?}");
        }
        let store = Store::open_with(scratch.path(), &encrypted(8)).unwrap();
        assert!(contents(&store) == before, "{config:?}");

        store.decrypt().unwrap();
        assert!(!store.is_encrypted().unwrap() && contents(&store) == before, "{config:?}");
        store.integrity_check().unwrap();
        store.close().unwrap();
        is_the_same_file();
        let store = Store::open_with(scratch.path(), &config).unwrap();
        assert!(contents(&store) == before, "{config:?}");
        drop(store);
        let names: Vec<String> = scratch.bytes().into_keys().collect();
        assert_eq!(names, ["store.db"], "{config:?}");
    }
}

#[test]
fn conversion_keeps_foreign_tables_views_and_triggers() {
    let scratch = Scratch::new();
    scratch.open_with(&plain()).put("a", "1").unwrap();
    let strangers = Connection::open(scratch.path()).unwrap();
    strangers
        .execute_batch(
            "CREATE TABLE notes(id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT UNIQUE);
             CREATE INDEX by_length ON notes(length(text));
             CREATE TABLE plain(x); INSERT INTO plain(rowid, x) VALUES (7, 'seven'), (99, NULL);
             CREATE VIEW both AS SELECT text FROM notes UNION SELECT x FROM plain;
             CREATE TRIGGER more AFTER INSERT ON plain BEGIN INSERT INTO notes(text) VALUES (new.x); END;
             INSERT INTO notes(text) VALUES ('one'), ('two'); DELETE FROM notes WHERE text = 'two'; ANALYZE;",
        )
        .unwrap();
    let all = |conn: &Connection| -> Vec<String> {
        let mut rows = Vec::new();
        for sql in [
            "SELECT type || name || coalesce(sql, '') FROM sqlite_schema ORDER BY 1",
            "SELECT id || text FROM notes",
            "SELECT coalesce(x, '-') FROM plain",
            "SELECT name || seq FROM sqlite_sequence",
            "SELECT tbl || stat FROM sqlite_stat1 ORDER BY 1",
        ] {
            let mut statement = conn.prepare(sql).unwrap();
            rows.extend(statement.query_map([], |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap));
        }
        rows
    };
    let before = all(&strangers);
    drop(strangers);
    let store = scratch.open_with(&plain());
    store.encrypt(&key()).unwrap();
    store.rekey(&Secret::password("correct horse")).unwrap();
    store.close().unwrap();
    let store = scratch.open_with(&plain().password("correct horse"));
    store.decrypt().unwrap();
    store.integrity_check().unwrap();
    store.close().unwrap();
    assert_eq!(all(&Connection::open(scratch.path()).unwrap()), before);
}

#[test]
fn families_iterators_and_cleaner_continue_after_conversion() {
    for config in [plain(), plain().sql_engine(true), plain().journal_mode(JournalMode::Delete)] {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        fill(&store);
        let family = store.family(FAMILY).unwrap();
        let mut iter = family.iter();
        let mut seen: Vec<_> = iter.by_ref().take(10).map(|entry| entry.unwrap().0).collect();
        store.start_cleaner(Duration::from_millis(1), None).unwrap();
        store.encrypt(&key()).unwrap();
        seen.extend(iter.by_ref().take(300).map(|entry| entry.unwrap().0));
        family.put("put", "1").unwrap();
        store.rekey(&other()).unwrap();
        assert_eq!(family.get("put").unwrap().as_deref(), Some(&b"1"[..]));
        store.decrypt().unwrap();
        seen.extend(iter.map(|entry| entry.unwrap().0));
        assert_eq!(seen.len(), 601, "{config:?}");
        assert!(seen.is_sorted());
        // The cleaner is running: a second start fails, and it removes expired keys.
        assert_eq!(kind(store.start_cleaner(Duration::from_secs(1), None)), ErrorKind::Error);
        family.put_with_expiry("dead", "1", Expiry::At(1)).unwrap();
        let started = Instant::now();
        while family.purge_expired().is_ok() && store.stats().unwrap().ttl_purged == 0 {
            assert!(started.elapsed() < Duration::from_secs(30));
            std::thread::sleep(Duration::from_millis(5));
        }
        store.stop_cleaner().unwrap();
        store.backup(scratch.dir().join("backup.db"), |_, _| true).unwrap();
        assert_eq!(
            Store::open(scratch.dir().join("backup.db")).unwrap().family(FAMILY).unwrap().count().unwrap(),
            602
        );
    }
}

#[test]
fn backup_after_conversion_uses_new_secret() {
    let scratch = Scratch::new();
    let store = scratch.open_with(&with_key());
    fill(&store);
    store.rekey(&other()).unwrap();
    store.backup(scratch.dir().join("backup.db"), |_, _| true).unwrap();
    let backup = Store::open_with(scratch.dir().join("backup.db"), &plain().secret(&other())).unwrap();
    let target = Store::open_in_memory(&plain()).unwrap();
    store.copy_to(&target, |_, _| true).unwrap();
    for store in [&backup, &target] {
        assert_eq!(store.family(FAMILY).unwrap().count().unwrap(), 601);
    }
    store.start_cleaner(Duration::from_secs(100), None).unwrap();
}

#[test]
fn conversion_is_busy_while_store_is_open_elsewhere() {
    for mode in [JournalMode::Wal, JournalMode::Delete] {
        let config = plain().journal_mode(mode);
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        fill(&store);
        let second = scratch.open_with(&config);
        assert_eq!(kind(store.encrypt(&key())), ErrorKind::Busy, "{mode:?}");
        assert_eq!((second.count().unwrap(), store.count().unwrap()), (300, 300));
        assert!(!store.is_encrypted().unwrap());
        second.put("a", "1").unwrap();
        assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"1"[..]));
        second.close().unwrap();
        // Another copy of SQLite reads, or writes.
        let stranger = Connection::open(scratch.path()).unwrap();
        stranger.execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema").unwrap();
        stranger.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(kind(store.encrypt(&key())), ErrorKind::Busy, "{mode:?}");
        drop(stranger);
        store.begin_write().unwrap();
        assert_eq!(kind(store.encrypt(&key())), ErrorKind::Busy);
        store.rollback().unwrap();
        store.encrypt(&key()).unwrap();
        assert_eq!(store.count().unwrap(), 301);
        let names: Vec<String> = scratch
            .bytes()
            .into_keys()
            .filter(|name| !name.ends_with("-wal") && !name.ends_with("-shm"))
            .collect();
        assert_eq!(names, ["store.db"]);
    }
}

#[test]
fn invalid_conversions_are_refused_without_effect() {
    let scratch = Scratch::new();
    let store = scratch.open_with(&plain());
    fill(&store);
    assert_eq!(kind(store.decrypt()), ErrorKind::Error);
    assert_eq!(kind(store.rekey(&key())), ErrorKind::Error);
    assert_eq!(kind(store.encrypt(&Secret::password(""))), ErrorKind::Error);
    store.encrypt(&key()).unwrap();
    assert_eq!(kind(store.encrypt(&other())), ErrorKind::Error);
    assert_eq!(kind(store.rekey(&Secret::password(""))), ErrorKind::Error);
    assert_eq!(store.count().unwrap(), 300);
    store.close().unwrap();
    assert_eq!(kind(store.rekey(&other())), ErrorKind::Misuse);
    let reader = scratch.open_with(&with_key().read_only(true));
    assert_eq!(kind(reader.rekey(&other())), ErrorKind::ReadOnly);
    assert_eq!(kind(Store::open_in_memory(&plain()).unwrap().encrypt(&key())), ErrorKind::Error);
}

#[test]
fn open_encrypted_creates_opens_or_encrypts() {
    let scratch = Scratch::new();
    let made = Store::open_encrypted(scratch.path(), &with_key()).unwrap();
    made.put("a", "1").unwrap();
    made.decrypt().unwrap();
    made.close().unwrap();
    let encrypted = Store::open_encrypted(scratch.path(), &with_key()).unwrap();
    assert!(encrypted.is_encrypted().unwrap());
    encrypted.close().unwrap();
    let opened = Store::open_encrypted(scratch.path(), &with_key()).unwrap();
    assert_eq!(opened.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(kind(Store::open_encrypted(scratch.path(), &plain().secret(&other()))), ErrorKind::AuthFailed);
    assert_eq!(kind(Store::open_encrypted(scratch.path(), &plain())), ErrorKind::Error);
    // A file that is not a store is refused.
    let stranger = scratch.dir().join("stranger.db");
    Connection::open(&stranger).unwrap().execute_batch("CREATE TABLE t(x)").unwrap();
    let before = fs::read(&stranger).unwrap();
    assert!(Store::open_encrypted(&stranger, &with_key()).is_err());
    assert!(fs::read(&stranger).unwrap() == before);
}

#[test]
fn concurrent_open_encrypted_all_succeed() {
    let scratch = Scratch::new();
    fill(&scratch.open_with(&plain()));
    let config = with_key().busy_timeout(Duration::from_secs(60));
    let path = scratch.path();
    std::thread::scope(|scope| {
        let opened: Vec<_> = (0..4).map(|_| scope.spawn(|| Store::open_encrypted(&path, &config))).collect();
        for store in opened {
            assert_eq!(store.join().unwrap().unwrap().count().unwrap(), 300);
        }
    });
    assert_eq!(leaks(&scratch), Vec::<String>::new());
}

#[test]
fn idle_handle_of_other_process_blocks_conversion() {
    for mode in [JournalMode::Wal, JournalMode::Delete] {
        let scratch = Scratch::new();
        if mode == JournalMode::Delete {
            fs::write(scratch.path().with_extension("delete"), "").unwrap();
        }
        let store = Store::open_with(scratch.path(), &plain().journal_mode(mode)).unwrap();
        let mut other = Other::start(MODULE, &scratch.path(), "idle");
        other.expect("open");
        assert_eq!(kind(store.encrypt(&key())), ErrorKind::Busy, "{mode:?}");
        assert_eq!(other.ask("put"), "Ok(())");
        assert_eq!(store.get("from the other").unwrap().as_deref(), Some(&b"1"[..]));
        other.finish();
        store.encrypt(&key()).unwrap();
        assert_eq!(store.count().unwrap(), 1);
    }
}

/// SQLite keeps its page cache when it leaves WAL mode, although other connections may have
/// committed since it was filled. In DELETE mode only page 1 shows such commits, and it need not
/// have changed.
#[test]
fn conversion_includes_last_commits_of_other_handles() {
    for (sql, times) in [(false, 1), (true, 1), (false, 2_000), (true, 2_000)] {
        let scratch = Scratch::new();
        let store = scratch.open_with(&plain().sql_engine(sql));
        (0..2_000).for_each(|n| store.put(format!("{n:06}"), "value 0").unwrap());
        let secrets = [Some(key()), Some(other()), None];
        let mut secret: Option<&Secret> = None;
        for (round, next) in secrets.iter().enumerate() {
            assert_eq!(
                store.iter().map(Result::unwrap).filter(|(_, value)| !value.is_empty()).count(),
                2_000
            );
            let second = secret.iter().fold(plain(), |config, secret| config.secret(secret));
            let second = Store::open_with(scratch.path(), &second).unwrap();
            let value = format!("value {}", round + 1);
            (0..times).for_each(|n| second.put(format!("{n:06}"), &value).unwrap());
            second.close().unwrap();
            match (secret, next) {
                (None, Some(next)) => store.encrypt(next),
                (Some(_), Some(next)) => store.rekey(next),
                (_, None) => store.decrypt(),
            }
            .unwrap();
            secret = next.as_ref();
            store.integrity_check().unwrap();
            for n in 0..times {
                let found = store.get(format!("{n:06}")).unwrap();
                assert_eq!(
                    found.as_deref(),
                    Some(value.as_bytes()),
                    "{n} of {times}, round {round}, sql {sql}"
                );
            }
        }
    }
}

#[test]
fn next_open_removes_journal_left_by_crash() {
    for mode in [JournalMode::Wal, JournalMode::Delete] {
        let scratch = Scratch::new();
        let config = with_key().journal_mode(mode);
        fill(&scratch.open_with(&config));
        // The journal's header is overwritten, and nothing else. A journal without the mark may be
        // SQLite's own, and is kept.
        let journal = scratch.dir().join("store.db-journal");
        let mut left = vec![0; 512];
        left.extend(VALUE.repeat(1_000).bytes());
        if mode == JournalMode::Wal {
            fs::write(&journal, &left).unwrap();
            scratch.open_with(&config);
            assert!(fs::read(&journal).unwrap() == left);
        }
        let mark = b"kvstore: the whole file";
        left[28..28 + mark.len()].copy_from_slice(mark);
        fs::write(&journal, left).unwrap();
        let inode = fs::metadata(scratch.path()).unwrap().ino();
        fs::write(scratch.dir().join(format!("store.db-convert-{inode:x}")), VALUE).unwrap();
        fs::write(scratch.dir().join("store.db-convert"), "somebody else's").unwrap();
        let held = fs::File::open(&journal).unwrap();
        assert_eq!(kind(Store::open_with(scratch.path(), &plain())), ErrorKind::AuthFailed);
        assert_eq!(leaks(&scratch).len(), 2);
        assert_eq!(scratch.open_with(&config).count().unwrap(), 300);
        assert_eq!(scratch.bytes().into_keys().collect::<Vec<_>>(), ["store.db", "store.db-convert"]);
        // It was overwritten before.
        use std::io::Read as _;
        let mut bytes = Vec::new();
        (&held).read_to_end(&mut bytes).unwrap();
        assert!(!bytes.is_empty() && bytes.iter().all(|byte| *byte == 0), "{mode:?}");
    }
}

/// By now the name belongs to another file, or the file has a second name. The handle continues
/// with its own file and does not change any other.
#[test]
fn store_replaced_at_its_path_is_not_converted() {
    let scratch = Scratch::new();
    let dir = |name: &str| scratch.file(name);
    let filled = |name: &str| {
        fs::create_dir(dir(name)).unwrap();
        let store = Store::open_with(dir(name).join("store.db"), &with_key()).unwrap();
        store.put("of", name).unwrap();
        store
    };
    let (old, new) = (filled("data"), filled("next"));
    new.close().unwrap();
    fs::rename(dir("data"), dir("old")).unwrap();
    for replaced in [false, true] {
        if replaced {
            fs::rename(dir("next"), dir("data")).unwrap();
        }
        let before = fs::read(dir(if replaced { "data" } else { "next" }).join("store.db")).unwrap();
        for done in [old.decrypt(), old.rekey(&other())] {
            assert_eq!(kind(done), ErrorKind::CantOpen);
        }
        if !replaced {
            old.put("goes on", "1").unwrap();
        }
        assert!(fs::read(dir(if replaced { "data" } else { "next" }).join("store.db")).unwrap() == before);
    }
    fs::remove_dir_all(dir("data")).unwrap();
    fs::rename(dir("old"), dir("data")).unwrap();
    fs::hard_link(dir("data").join("store.db"), dir("second")).unwrap();
    assert_eq!(kind(old.decrypt()), ErrorKind::CantOpen);
    old.put("goes on", "2").unwrap();
    fs::remove_file(dir("second")).unwrap();
    old.decrypt().unwrap();
    assert_eq!(old.get("goes on").unwrap().unwrap(), b"2");
}

#[test]
fn forked_child_converts_after_parent_closed_store() {
    let scratch = Scratch::new();
    let inherited = scratch.open_with(&plain());
    inherited.put("k", "v").unwrap();
    let (mut closed, mut tell) = std::io::pipe().unwrap();
    // SAFETY: the child only uses a store that it opens, and ends.
    match unsafe { libc::fork() } {
        0 => {
            use std::io::Read as _;
            let own = Store::open_with(scratch.path(), &plain()).unwrap();
            let refused = own.encrypt(&key()).is_err_and(|e| e.kind() == ErrorKind::Busy);
            drop(tell);
            let _ = closed.read(&mut [0; 1]);
            let converted = own.encrypt(&key());
            // SAFETY: ends without running what the parent has registered.
            unsafe { libc::_exit(i32::from(!(refused && converted.is_ok()))) }
        }
        child => {
            std::thread::sleep(Duration::from_millis(300));
            inherited.close().unwrap();
            use std::io::Write as _;
            tell.write_all(b"1").unwrap();
            let mut status = 0;
            // SAFETY: the child made above.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0);
        }
    }
    assert_eq!(kind(Store::open_with(scratch.path(), &plain())), ErrorKind::AuthFailed);
}

/// Minimum time for the processes of the next test; maximum time if they have written little.
const MIX: Duration = Duration::from_secs(4);
const MIX_ENDS: Duration = Duration::from_secs(60);
const MIX_WRITES: u64 = 11;

/// One of several processes that open a store with one of several secrets, write, and convert it.
/// Each reports what was acknowledged.
pub fn mix(path: &Path, seed: u64) {
    let mode = if path.with_extension("delete").exists() { JournalMode::Delete } else { JournalMode::Wal };
    let mut random = Random(seed);
    let secrets = [None, Some(key()), Some(other())];
    let started = Instant::now();
    let mut number = 0;
    while started.elapsed() < MIX || number < MIX_WRITES && started.elapsed() < MIX_ENDS {
        let config = plain().journal_mode(mode).busy_timeout(Duration::from_millis(random.below(2) * 20));
        let secret = &secrets[random.below(3) as usize];
        let store =
            match Store::open_with(path, &secret.iter().fold(config, |config, secret| config.secret(secret)))
            {
                Ok(store) => store,
                Err(e) if matches!(e.kind(), ErrorKind::AuthFailed | ErrorKind::Busy) => continue,
                Err(e) => panic!("opening: {:?} {e}", e.kind()),
            };
        let put = |number: &mut u64| match store.put(format!("{seed} {number}"), number.to_string()) {
            Ok(()) => {
                say(format!("{seed} {number}"));
                *number += 1;
            }
            Err(e) => assert_eq!(e.kind(), ErrorKind::Busy, "{e}"),
        };
        (0..random.below(6)).for_each(|_| put(&mut number));
        let converted = match (random.below(4), secret) {
            (0, None) => store.encrypt(&key()),
            (0, Some(_)) => store.decrypt(),
            (1, Some(_)) => store.rekey(secrets[1 + random.below(2) as usize].as_ref().unwrap()),
            _ => continue,
        };
        match converted {
            Ok(()) => put(&mut number),
            Err(e) => assert_eq!(e.kind(), ErrorKind::Busy, "{e}"),
        }
        if let Err(e) = store.integrity_check() {
            assert_eq!(e.kind(), ErrorKind::Busy, "{e}");
        }
    }
}

#[test]
fn concurrent_conversion_and_writes_lose_no_data() {
    for mode in [JournalMode::Wal, JournalMode::Delete] {
        let scratch = Scratch::new();
        if mode == JournalMode::Delete {
            fs::write(scratch.path().with_extension("delete"), "").unwrap();
        }
        let store = Store::open_with(scratch.path(), &plain().journal_mode(mode)).unwrap();
        store.set_write_tracking(true).unwrap();
        store.put("first", "1").unwrap();
        store.close().unwrap();
        let mut acknowledged = Vec::new();
        std::thread::scope(|scope| {
            let run = |seed: u64| {
                let mut other = Other::start(MODULE, &scratch.path(), &format!("mix {seed}"));
                scope.spawn(move || {
                    if seed == 3 {
                        std::thread::sleep(MIX / 2);
                        return other.kill();
                    }
                    let said: Vec<String> = std::iter::from_fn(|| other.hear()).collect();
                    other.finish();
                    said
                })
            };
            for process in [run(1), run(2), run(3)] {
                acknowledged.extend(process.join().unwrap());
            }
        });
        let configs = [plain(), with_key(), plain().secret(&other())];
        let mut opened = configs
            .iter()
            .filter_map(|config| Store::open_with(scratch.path(), &config.clone().journal_mode(mode)).ok());
        let store = opened.next().expect("one of the secrets opens it");
        store.integrity_check().unwrap();
        let lost: Vec<_> =
            acknowledged.iter().filter(|key| store.get(key.as_str()).unwrap().is_none()).collect();
        assert!(lost.is_empty(), "{mode:?}: {lost:?}");
        assert!(acknowledged.len() as u64 >= 2 * MIX_WRITES, "{mode:?}: only {} writes", acknowledged.len());
    }
}

/// SQLCipher returns zeros for a page that it cannot decrypt. The last page of a long value may
/// contain zeros, so this must be noticed.
#[test]
fn undecryptable_page_is_never_read_or_converted() {
    each_case(ENGINES, |sql| {
        let config = with_key().sql_engine(sql);
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        (0..10).for_each(|n| store.put(format!("{n}"), vec![b'v'; 9_000]).unwrap());
        store.close().unwrap();
        let sound = fs::read(scratch.path()).unwrap();
        let mut found = 0;
        for page in 1..sound.len() / 4096 {
            let mut damaged = sound.clone();
            damaged[page * 4096 + 1_000] ^= 1;
            fs::write(scratch.path(), &damaged).unwrap();
            let Ok(store) = Store::open_with(scratch.path(), &config) else { continue };
            for n in 0..10 {
                match store.get(format!("{n}")) {
                    Ok(value) => {
                        assert!(value.is_some_and(|value| value == vec![b'v'; 9_000]), "page {page}, {n}")
                    }
                    Err(e) => {
                        assert!(matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::AuthFailed), "{e}");
                        found += 1;
                    }
                }
            }
            for entry in store.iter() {
                let Ok((_, value)) = entry else { break };
                assert!(value == vec![b'v'; 9_000]);
            }
            let target = Store::open_in_memory(&plain()).unwrap();
            if store.copy_to(&target, |_, _| true).is_ok() {
                assert!(target.iter().all(|entry| entry.unwrap().1 == vec![b'v'; 9_000]), "page {page}");
            }
            for converted in [store.rekey(&other()), store.decrypt()] {
                if converted.is_ok() {
                    let is_whole =
                        |store: &Store| store.iter().all(|entry| entry.unwrap().1 == vec![b'v'; 9_000]);
                    assert!(store.count().unwrap() == 10 && is_whole(&store), "page {page}");
                }
            }
        }
        assert!(found >= 20, "{found}");
    });
}

//! The engine that works on SQLite's B-trees itself: what can go wrong below SQL. Changes of the schema,
//! rollbacks, SQL in between, rows on several pages, snapshots that are kept, checkpoints, other processes,
//! hostile rows. The SQL engine, on the same file, is the second opinion.
//!
//! In a build without the engine these tests compare SQL with itself, which is quick to do and harmless.

mod common;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::ops::Bound;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::other::{Other, heard, role, say};
use common::{Scratch, TestClock, keys, kind, memory_at, numbered, python};
use kvstore::{
    CheckpointMode, Condition, Config, Direction, ErrorKind, Expiry, Family, JournalMode, KeyRange, Result,
    Store, SyncLevel, Ttl,
};

/// Far in the future, for the wall clock, too.
const LATER: i64 = 4_000_000_000_000;
const MODES: [CheckpointMode; 4] =
    [CheckpointMode::Passive, CheckpointMode::Full, CheckpointMode::Restart, CheckpointMode::Truncate];
/// Twice the number of pages at which a checkpoint is due.
const WAL_BOUND: u64 = 2 * 4_000 * (4_096 + 24);

// ---- handles -------------------------------------------------------------------------------------

fn sql() -> Config {
    Config::new().sql_engine(true)
}

fn patient() -> Config {
    Config::new().busy_timeout(Duration::from_secs(120))
}

/// The ways to open a handle whose answers must not differ.
fn kinds_of_handles() -> [(&'static str, Config); 3] {
    [("holds reads", Config::new()), ("holds none", Config::new().hold_reads(false)), ("sql", sql())]
}

fn wal_size(scratch: &Scratch) -> u64 {
    fs::metadata(scratch.wal()).map_or(0, |file| file.len())
}

/// Both opinions on the file, and that of another SQLite.
#[track_caller]
fn is_sound(scratch: &Scratch) {
    scratch.open().integrity_check().unwrap();
    assert_eq!(python(&scratch.path(), "print(*con.execute('pragma integrity_check').fetchone())"), "ok");
}

/// All entries with their ends of life.
fn content(family: &Family) -> Vec<(Vec<u8>, Vec<u8>, Expiry)> {
    let mut cursor = family.cursor(KeyRange::all(), Direction::Forward);
    let mut entries = Vec::new();
    let mut there = cursor.first().unwrap();
    while there {
        let (key, value) = (cursor.key().unwrap().to_vec(), cursor.value().unwrap().to_vec());
        entries.push((key, value, cursor.expiry().unwrap()));
        there = cursor.next().unwrap();
    }
    entries
}

fn text(value: &[u8]) -> String {
    String::from_utf8(value.to_vec()).unwrap()
}

fn value_of(store: &Store, key: &str) -> String {
    text(&store.get(key).unwrap().unwrap())
}

/// Numbers that look random, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

// ---- the other process ---------------------------------------------------------------------------

/// Another process that has the store open: `how` are words of [`configured`].
fn opened(path: &Path, how: &str) -> Other {
    let mut other = Other::start(path, how);
    other.expect("open");
    other
}

fn configured(words: &str) -> Config {
    words.split(' ').fold(Config::new(), |config, word| match word {
        "" | "default" => config,
        "sql" => config.sql_engine(true),
        "loose" => config.hold_reads(false),
        "patient" => config.busy_timeout(Duration::from_secs(120)),
        "small" => config.cache_pages(10),
        "read-only" => config.read_only(true),
        other => panic!("no setting {other}"),
    })
}

#[test]
#[ignore = "no test, but the other process of the tests in this file"]
fn child() {
    let Some((role, path)) = role() else { return };
    let path = path.as_path();
    if let Some(how) = role.strip_prefix("pairs ") {
        return pairs(path, how);
    }
    let store = match Store::open_with(path, &configured(&role)) {
        Ok(store) => store,
        Err(e) => return say(format!("error {:?}: {e}", e.kind())),
    };
    say("open");
    while let Some(line) = heard() {
        let words: Vec<&str> = line.split(' ').collect();
        say(obey(&store, &words).unwrap_or_else(|e| format!("error {:?}: {e}", e.kind())));
    }
}

/// Writes the same number under two keys, one value longer than a row may be, commit after commit.
fn pairs(path: &Path, how: &str) {
    let store = Store::open_with(path, &configured(how)).unwrap();
    let last = store.get("a").unwrap().map_or(0, |value| text(&value).parse::<u64>().unwrap());
    for number in last + 1.. {
        let mut batch = store.batch();
        batch.put(&store, "a", number.to_string(), Expiry::Never).unwrap();
        batch.put(&store, numbered(number as usize % 50), vec![1; 3_000], Expiry::At(LATER)).unwrap();
        batch.put(&store, "b", format!("{number:0900}"), Expiry::Never).unwrap();
        batch.commit().unwrap();
        say(number);
    }
}

/// What the other process can be asked for.
fn obey(store: &Store, words: &[&str]) -> Result<String> {
    let number = |word: &str| word.parse::<usize>().unwrap();
    let ok = |()| "ok".to_owned();
    let shown = |value: Option<Vec<u8>>| value.map_or("none".into(), |value| text(&value));
    match *words {
        ["put", key, value] => store.put(key, value).map(ok),
        ["put-in", family, key, value] => store.family_or_create(family)?.put(key, value).map(ok),
        ["get", key] => store.get(key).map(shown),
        ["get-in", family, key] => store.family(family)?.get(key).map(shown),
        ["count"] => store.count().map(|count| count.to_string()),
        ["fill", from, to, size] => {
            (number(from)..number(to)).try_for_each(|n| store.put(numbered(n), vec![7; number(size)])).map(ok)
        }
        ["create", family] => store.create_family(family).map(|_| "ok".into()),
        ["drop", family] => store.drop_family(family).map(ok),
        ["checkpoint", mode] => store.checkpoint(MODES[number(mode)]).map(|_| "ok".into()),
        ["begin", write] => store.begin(write == "1").map(ok),
        ["commit"] => store.commit().map(ok),
        ["rollback"] => store.rollback().map(ok),
        ["increment", times, threads] => {
            thread::scope(|scope| {
                for _ in 0..number(threads) {
                    scope.spawn(|| {
                        (0..number(times))
                            .for_each(|_| assert!(store.increment("n", 1, Expiry::Never).is_ok()))
                    });
                }
            });
            Ok("ok".into())
        }
        // Puts values until one fails; says how many it had put, and how it failed.
        ["fill-up", size] => loop {
            let n = store.count().unwrap_or(u64::MAX);
            let done = store.put_until(numbered(n as usize), vec![7; number(size)], Expiry::At(LATER));
            if let Err(e) = done {
                return Ok(format!("{n} {:?}", e.kind()));
            }
        },
        ["check"] => store.integrity_check().map(ok),
        _ => panic!("what is {words:?}?"),
    }
}

// ---- the schema changes --------------------------------------------------------------------------

#[test]
fn families_that_others_drop_and_make_again_are_never_taken_for_each_other() {
    for (name, config) in kinds_of_handles() {
        for other in [Config::new(), sql()] {
            let scratch = Scratch::new();
            let (store, other) = (scratch.open_with(&config), scratch.open_with(&other));
            let names = ["f0", "f1", "f2", "f3"];
            let mine = names.map(|name| store.create_family(name).unwrap());
            let mut random = Random(7);
            let mut there = [true; 4];
            for round in 0..40u32 {
                let n = random.below(4) as usize;
                if there[n] {
                    other.drop_family(names[n]).unwrap();
                } else {
                    let family = other.create_family(names[n]).unwrap();
                    family.put("whose", names[n]).unwrap();
                    if round % 3 == 0 {
                        family.put_until("ttl", vec![round as u8; 5_000], Expiry::At(LATER)).unwrap();
                    }
                }
                there[n] = !there[n];
                if round % 7 == 0 {
                    other.incremental_vacuum(None).unwrap();
                }
                for (n, family) in mine.iter().enumerate() {
                    // Twice: the second read is in the snapshot the first has taken.
                    for _ in 0..2 {
                        let found = family.get("whose");
                        if there[n] {
                            let value = found.unwrap();
                            assert!(value.is_none_or(|value| value == names[n].as_bytes()), "{name}");
                            assert!(family.count().unwrap() <= 3);
                        } else {
                            assert_eq!(kind(found), ErrorKind::Error, "{name}");
                            assert_eq!(kind(family.count()), ErrorKind::Error, "{name}");
                            assert_eq!(kind(family.put("whose", "nobody")), ErrorKind::Error, "{name}");
                            assert!(family.iter().next().unwrap().is_err());
                        }
                    }
                    if there[n] {
                        family.put("mine", "1").unwrap();
                    }
                }
            }
            is_sound(&scratch);
        }
    }
}

#[test]
fn families_another_process_drops_and_makes_are_seen_by_the_very_next_call() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        let (first, second) = (store.create_family("first").unwrap(), store.create_family("second").unwrap());
        second.put("a", "second").unwrap();
        let mut other = opened(&scratch.path(), "");
        for round in 0..20 {
            first.put("a", "first").unwrap();
            assert_eq!(first.get("a").unwrap().as_deref(), Some(&b"first"[..]));
            other.run("drop first"); // its pages go over to the next that is made
            assert_eq!(kind(first.get("a")), ErrorKind::Error, "{name}");
            other.run(&format!("put-in third{round} a third"));
            assert_eq!(second.get("a").unwrap().as_deref(), Some(&b"second"[..]), "{name}");
            assert_eq!(kind(first.get("a")), ErrorKind::Error, "{name}");
            other.run("create first");
            assert_eq!(first.get("a").unwrap(), None, "{name}");
            second.put(numbered(round), "second").unwrap();
        }
        assert_eq!(second.count().unwrap(), 21);
        other.finish();
        is_sound(&scratch);
    }
}

#[test]
fn after_a_rollback_the_same_schema_cookie_may_mean_other_tables() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let (store, other) = (scratch.open_with(&config), scratch.open());
        for round in 0..10 {
            store.begin(true).unwrap();
            let family = store.create_family(&format!("mine{round}")).unwrap();
            family.put_until("a", "mine", Expiry::At(LATER)).unwrap();
            assert_eq!(family.get("a").unwrap().as_deref(), Some(&b"mine"[..]));
            store.rollback().unwrap();
            // The next family has the pages and the cookie that one had.
            let theirs = if round % 2 == 0 { &other } else { &store };
            theirs.begin(true).unwrap();
            let new = theirs.create_family(&format!("theirs{round}")).unwrap();
            new.put_until("a", "theirs", Expiry::At(LATER)).unwrap();
            if round % 2 == 1 {
                assert_eq!(kind(family.get("a")), ErrorKind::Error, "{name}");
                assert_eq!(kind(family.put("b", "mine")), ErrorKind::Error, "{name}");
            }
            theirs.commit().unwrap();
            assert_eq!(kind(family.get("a")), ErrorKind::Error, "{name}");
            assert_eq!(kind(family.count()), ErrorKind::Error, "{name}");
            assert_eq!(kind(family.put("a", "mine")), ErrorKind::Error, "{name}");
            assert_eq!(new.count().unwrap(), 1);
            assert_eq!(new.get("a").unwrap().as_deref(), Some(&b"theirs"[..]));
        }
        is_sound(&scratch);
    }
}

#[test]
fn the_tables_a_failed_batch_made_inside_a_transaction_are_made_anew_in_another_order() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let (store, other) = (scratch.open_with(&config), scratch.open());
        let family = store.create_family("f").unwrap();
        let gone = store.create_family("gone").unwrap();
        other.drop_family("gone").unwrap();
        family.put("old", "1").unwrap();
        store.begin(true).unwrap();
        family.put("before", "1").unwrap();
        let mut batch = store.batch();
        batch.put(&family, "old", "2", Expiry::At(LATER)).unwrap(); // makes the indexes
        batch.put(&family, "large", vec![1; 9_000], Expiry::Never).unwrap(); // makes the blob table
        batch.delete(&family, "before").unwrap();
        batch.put(&gone, "a", "1", Expiry::Never).unwrap();
        assert_eq!(kind(batch.commit()), ErrorKind::Error, "{name}");
        assert_eq!(family.get("old").unwrap().as_deref(), Some(&b"1"[..]), "{name}");
        assert_eq!(family.ttl("old").unwrap(), Some(Ttl::None), "{name}");
        assert_eq!(family.get("large").unwrap(), None);
        assert!(family.exists("before").unwrap());
        // The other way round: pages and cookies come again with other tables.
        family.put("large", vec![2; 9_000]).unwrap();
        family.put_until("old", "3", Expiry::At(LATER)).unwrap();
        store.commit().unwrap();
        assert_eq!(family.get("large").unwrap(), Some(vec![2; 9_000]), "{name}");
        assert_eq!(family.iter().count(), 3);
        assert_eq!(family.next_expiry().unwrap(), Some(LATER));
        is_sound(&scratch);
    }
}

#[test]
fn a_vacuum_of_another_process_moves_the_tables_under_handles_that_hold_a_snapshot() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        drop(store.create_family("low").unwrap());
        let family = store.create_family("high").unwrap();
        store
            .transaction(|tx| -> Result<()> {
                (0..300).try_for_each(|n| {
                    family.put_until(numbered(n), vec![n as u8; 700], Expiry::At(LATER))?;
                    tx.put(numbered(n), "default")
                })
            })
            .unwrap();
        let mut iter = family.iter();
        assert_eq!(iter.next().unwrap().unwrap().0, numbered(0));
        store.begin(false).unwrap();
        assert_eq!(family.count().unwrap(), 300);
        python(
            &scratch.path(),
            "con.execute('drop view \"live:low\"'); con.execute('drop table \"data:low\"')
con.execute('delete from kvstore_family where name = ?', ('low',)); con.execute('vacuum')",
        );
        assert_eq!(family.get(numbered(7)).unwrap(), Some(vec![7; 700]), "{name}");
        assert_eq!(store.families().unwrap(), ["high", "low"]);
        store.commit().unwrap();
        assert_eq!(store.families().unwrap(), ["high"]);
        for n in 1..300 {
            assert_eq!(iter.next().unwrap().unwrap(), (numbered(n), vec![n as u8; 700]), "{name}");
            assert_eq!(store.get(numbered(n)).unwrap().as_deref(), Some(&b"default"[..]), "{name}");
        }
        assert!(iter.next().is_none());
        family.put("after", "1").unwrap();
        is_sound(&scratch);
    }
}

#[test]
fn dropping_a_family_on_low_pages_moves_the_roots_of_others_under_iterators_and_handles() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let (store, other) = (scratch.open_with(&config), scratch.open());
        for n in 0..6 {
            drop(store.create_family(&format!("low{n}")).unwrap());
        }
        let family = store.create_family("high").unwrap();
        store
            .transaction(|_| {
                (0..1_500).try_for_each(|n| family.put_until(numbered(n), numbered(n), Expiry::At(LATER)))
            })
            .unwrap();
        let mut iter = family.iter();
        let mut backwards = family.iter().rev();
        for n in 0..6 {
            for m in n * 200..(n + 1) * 200 {
                assert_eq!(iter.next().unwrap().unwrap(), (numbered(m), numbered(m)), "{name}");
                assert_eq!(backwards.next().unwrap().unwrap().0, numbered(1_499 - m), "{name}");
            }
            let dropper = if n % 2 == 0 { &store } else { &other };
            dropper.drop_family(&format!("low{n}")).unwrap();
            dropper.incremental_vacuum(Some(3)).unwrap();
        }
        assert_eq!((iter.count(), backwards.count()), (300, 300));
        assert_eq!(family.count().unwrap(), 1_500);
        assert_eq!(family.purge_expired().unwrap(), 0);
        is_sound(&scratch);
    }
}

#[test]
fn a_family_made_inside_a_transaction_is_used_dropped_and_made_again_there() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        store
            .transaction(|tx| -> Result<()> {
                for round in 0..5u8 {
                    let family = tx.create_family("f")?;
                    assert_eq!(family.count()?, 0, "{name}");
                    family.put_until("a", [round], Expiry::At(LATER))?;
                    family.put("large", vec![round; 7_000])?;
                    tx.create_family(&format!("other{round}"))?.put("a", "other")?;
                    assert_eq!(family.get("a")?.as_deref(), Some(&[round][..]), "{name}");
                    assert_eq!(family.get("large")?, Some(vec![round; 7_000]), "{name}");
                    drop(family);
                    tx.drop_family("f")?;
                }
                tx.create_family("f")?.put("a", "last")
            })
            .unwrap();
        let family = store.family("f").unwrap();
        assert_eq!(content(&family), [(b"a".to_vec(), b"last".to_vec(), Expiry::Never)], "{name}");
        is_sound(&scratch);
    }
}

// ---- rollback ------------------------------------------------------------------------------------

#[test]
fn after_a_rollback_no_cursor_is_where_the_transaction_had_left_it() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        store
            .transaction(|tx| {
                let mut even = (0..300).step_by(2);
                even.try_for_each(|n| tx.put_until(numbered(n), numbered(n), Expiry::At(LATER)))
            })
            .unwrap();
        let before = content(&store);
        for round in 0..8 {
            store.begin(true).unwrap();
            match round % 4 {
                0 => store.clear().unwrap(),
                1 => (0..300).for_each(|n| assert_eq!(store.delete(numbered(n)).unwrap(), n % 2 == 0)),
                2 => (0..1_500).for_each(|n| store.put(numbered(n), vec![1; 50]).unwrap()),
                _ => (0..300).for_each(|n| store.put_until(numbered(n), [1; 5_000], Expiry::At(1)).unwrap()),
            }
            let _ = (store.get(numbered(100)).unwrap(), store.count().unwrap());
            // The last thing the transaction does leaves cursors at places that will be gone.
            store.put(numbered(101), "odd").unwrap();
            assert!(store.exists(numbered(101)).unwrap());
            store.rollback().unwrap();
            assert_eq!(store.get(numbered(101)).unwrap(), None, "{name}");
            assert_eq!(store.get(numbered(100)).unwrap(), Some(numbered(100)), "{name}");
            assert_eq!(store.count().unwrap(), 150, "{name}");
        }
        assert_eq!(content(&store), before);
        is_sound(&scratch);
    }
}

#[test]
fn a_doomed_transaction_can_be_read_and_rolled_back_and_the_handle_goes_on() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let store = scratch.open();
        store.put("large", vec![1; 5_000]).unwrap();
        store.put("a", "1").unwrap();
        store.close().unwrap();
        python(&scratch.path(), "con.execute('delete from \"blob:default\"')");
        let (store, other) = (scratch.open_with(&config), scratch.open());
        for _ in 0..3 {
            store.begin(true).unwrap();
            store.put("a", "2").unwrap();
            let family = store.create_family("mine").unwrap();
            family.put("a", "mine").unwrap();
            assert_eq!(kind(store.put("large", vec![1; 6_000])), ErrorKind::Corrupt, "{name}");
            assert_eq!(value_of(&store, "a"), "2", "{name}");
            assert_eq!(family.get("a").unwrap().as_deref(), Some(&b"mine"[..]), "{name}");
            assert_eq!(keys(store.range("a".."b")).len(), 1);
            assert_eq!(kind(store.put("a", "3")), ErrorKind::Corrupt);
            assert_eq!(kind(store.commit()), ErrorKind::Corrupt);
            store.rollback().unwrap();
            assert_eq!(value_of(&store, "a"), "1", "{name}");
            assert_eq!(kind(family.get("a")), ErrorKind::Error);
            drop(family);
            other.create_family("theirs").unwrap().put("a", "theirs").unwrap();
            assert!(store.family("theirs").unwrap().exists("a").unwrap());
            other.drop_family("theirs").unwrap();
        }
        // Outside a transaction the failed call is undone whole.
        assert_eq!(kind(store.put_until("large", vec![1; 6_000], Expiry::At(LATER))), ErrorKind::Corrupt);
        assert_eq!(store.ttl("large").unwrap(), Some(Ttl::None));
        assert!(store.delete("large").unwrap());
        is_sound(&scratch);
    }
}

#[test]
fn a_transaction_of_nothing_leaves_reads_and_writes_as_they_were() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        store.put("a", "1").unwrap();
        for write in [false, true] {
            for end in [Store::commit, Store::rollback] {
                assert!(store.exists("a").unwrap());
                store.begin(write).unwrap();
                end(&store).unwrap();
                assert!(store.exists("a").unwrap(), "{name}");
                assert!(!store.delete("missing").unwrap());
                store.put("a", "1").unwrap();
            }
        }
        assert!(store.commit().is_err());
        is_sound(&scratch);
    }
}

// ---- SQL in between ------------------------------------------------------------------------------

/// Something that runs SQL.
fn anything_else(store: &Store, family: &Family, random: &mut Random, inside: bool, scratch: &Scratch) {
    match random.below(12) {
        0 => family.set_default_ttl(Some(Duration::from_secs(1_000 + random.below(5)))).unwrap(),
        1 => family.set_default_ttl(None).unwrap(),
        2 => family.set_write_tracking(true).unwrap(),
        3 => family.set_write_tracking(false).unwrap(),
        4 => drop(store.stats().unwrap()),
        5 => store.incremental_vacuum(Some(2)).unwrap(),
        6 if !inside => {
            let copy = scratch.file(&format!("copy{}", random.0));
            store.backup(&copy, |_, _| true).unwrap();
            Store::open(copy).unwrap().integrity_check().unwrap();
        }
        7 => store.integrity_check().unwrap(),
        8 if !inside => drop(store.checkpoint(random.of(&MODES)).unwrap()),
        9 => drop(store.families().unwrap()),
        10 => drop(store.purge_step(Some(3), None).unwrap()),
        _ if !inside => store.sync().unwrap(),
        _ => drop(store.next_expiry_of_all().unwrap()),
    }
}

#[test]
fn sql_statements_between_rows_change_neither_rows_nor_transactions() {
    let clock = TestClock::at(1_000);
    let mut outcomes = Vec::new();
    for (_, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config.sync(SyncLevel::Off));
        clock.drive(&store);
        let mut random = Random(99);
        let mut made = Vec::new();
        for round in 0..9 {
            let family = store.family_or_create(&format!("f{round}")).unwrap();
            let inside = round % 3 != 0;
            if inside {
                store.begin(true).unwrap();
            }
            for step in 0..40 {
                let key = numbered(random.below(25) as usize);
                let large = vec![step; random.below(9_000) as usize];
                let expiry = random.of(&[Expiry::Never, Expiry::At(LATER), Expiry::At(LATER + 7)]);
                match random.below(8) {
                    0 => family.put(&key, &large).unwrap(), // the first large value makes a table
                    1 => family.put_until(&key, [step], expiry).unwrap(), // so does the first TTL
                    2 => drop(family.delete(&key).unwrap()),
                    3 => drop(family.expire(&key, expiry, Condition::Always).unwrap()),
                    4 if random.below(6) == 0 => family.clear().unwrap(),
                    5 => drop(family.put_if_absent(&key, &large, expiry).unwrap()),
                    _ if inside && step % 8 != 0 => {} // the check alone takes long
                    _ => anything_else(&store, &family, &mut random, inside, &scratch),
                }
                made.push((
                    family.get(&key).unwrap(),
                    family.expire_time(&key).unwrap(),
                    family.count().unwrap(),
                ));
                assert_eq!(family.iter().count() as u64, family.count_live().unwrap());
            }
            match round % 3 {
                1 => store.rollback().unwrap(),
                2 => store.commit().unwrap(),
                _ => {}
            }
            let left = if round % 3 == 1 {
                assert!(store.family(&format!("f{round}")).is_ok());
                content(&family)
            } else {
                content(&family)
            };
            made.push((Some(format!("{left:?}").into_bytes()), None, 0));
        }
        is_sound(&scratch);
        outcomes.push(made);
    }
    assert!(outcomes[0] == outcomes[2], "the engines differ");
    assert!(outcomes[1] == outcomes[2], "the engines differ without held reads");
}

#[test]
fn a_first_ttl_and_a_first_large_value_outside_transactions_are_all_or_nothing() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let (store, other) = (scratch.open_with(&config), scratch.open());
        let family = store.create_family("f").unwrap();
        // Refused before anything is made.
        assert_eq!(kind(family.put_until("a", vec![1; 11 << 20], Expiry::At(LATER))), ErrorKind::Error);
        other.begin(true).unwrap();
        assert_eq!(kind(family.put_until("a", vec![1; 5_000], Expiry::At(LATER))), ErrorKind::Busy, "{name}");
        other.rollback().unwrap();
        let tables =
            "print(*con.execute('select count(*) from sqlite_schema where name like \"%:f\"').fetchone())";
        assert_eq!(python(&scratch.path(), tables), "2");
        assert_eq!(family.count().unwrap(), 0);
        // Fails after the tables were made: all of it is undone.
        family.put("a", "no number").unwrap();
        let gone = store.create_family("gone").unwrap();
        other.drop_family("gone").unwrap();
        let mut batch = store.batch();
        batch.put(&family, "b", vec![1; 5_000], Expiry::At(LATER)).unwrap();
        batch.put(&gone, "b", "1", Expiry::Never).unwrap();
        for _ in 0..3 {
            assert_eq!(kind(batch.commit()), ErrorKind::Error);
            assert_eq!(keys(family.iter()), [b"a"], "{name}");
        }
        assert_eq!(kind(family.increment("a", 1, Expiry::At(LATER))), ErrorKind::Error);
        assert_eq!(python(&scratch.path(), tables), "2", "{name}");
        family.put_until("b", vec![2; 5_000], Expiry::At(LATER)).unwrap();
        assert_eq!(python(&scratch.path(), tables), "5");
        assert_eq!(family.get("b").unwrap(), Some(vec![2; 5_000]));
        is_sound(&scratch);
    }
}

/// A process that may not write files longer than this many KiB: more is, to SQLite, an error of the disk.
fn limited(path: &Path, kib: u64, how: &str) -> Other {
    let mut shell = Command::new("sh");
    shell
        .arg("-c")
        .arg(format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", kib * 2))
        .arg("sh")
        .arg(env::current_exe().unwrap());
    let mut other = Other::launch(shell, path, how);
    other.expect("open");
    other
}

#[test]
fn a_write_the_disk_has_no_room_for_leaves_nothing_and_the_handle_goes_on() {
    for how in ["default", "loose", "sql", "small", "small sql"] {
        let scratch = Scratch::new();
        let store = scratch.open();
        store.put("a", "1").unwrap();
        let mut other = limited(&scratch.path(), 400, how);
        let said = other.ask("fill-up 20000");
        let (done, error) = said.split_once(' ').unwrap();
        assert!(["Io", "Full"].contains(&error), "{how}: {said}");
        // What had been acknowledged is there, for it and for others, and the rest is not.
        assert!(done.parse::<u64>().unwrap() > 5, "{said}");
        assert_eq!(other.ask("count"), done, "{how}");
        assert_eq!(store.count().unwrap().to_string(), done, "{how}");
        other.run("check");
        // In a transaction: it is doomed, may be read or not, and is rolled back.
        other.run("begin 1");
        other.run("put-in new a 1");
        assert!(other.ask("fill-up 200000").contains(' '));
        assert!(other.ask("commit").starts_with("error"), "{how}");
        let _ = (other.ask("count"), other.ask("get a"), other.ask("get-in new a"));
        other.run("rollback");
        assert_eq!(other.ask("get a"), "1", "{how}");
        assert!(other.ask("get-in new a").starts_with("error NotFound"), "{how}");
        assert_eq!(other.ask("count"), done, "{how}");
        let _ = other.ask("put c 3");
        other.run("check");
        other.finish();
        store.checkpoint(CheckpointMode::Truncate).unwrap();
        store.put("b", "2").unwrap();
        is_sound(&scratch);
    }
}

// ---- rows on several pages -----------------------------------------------------------------------

#[test]
fn keys_and_values_of_every_length_on_every_page_size_read_and_change_as_with_sql() {
    let clock = TestClock::at(1_000);
    for page_size in [512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536] {
        let scratch = Scratch::new();
        let config = Config::new().page_size(page_size).sync(SyncLevel::Off);
        let (store, second) =
            (scratch.open_with(&config), scratch.open_with(&config.clone().sql_engine(true)));
        clock.drive(&store);
        clock.drive(&second);
        let inline = page_size as usize / 16;
        let mut model = BTreeMap::new();
        let lengths = [1, 13, 57, 58, 100, 500, 1_001, 4_000, 9_000, 65_535, 65_536];
        let values = [0, 1, 63, 64, 65, inline.saturating_sub(13), inline, inline + 1, 1_000, 20_000];
        let key_of = |len: usize, n: u8| {
            let mut key = vec![b'k'; len];
            key[len - 1] = n; // they differ in the last byte only, which is on the last overflow page
            key
        };
        let mut random = Random(u64::from(page_size));
        for round in 0..2 {
            let inside = page_size < 4_096 || round == 0;
            if inside {
                store.begin(true).unwrap();
            }
            for (len, n) in lengths.iter().flat_map(|len| (0..3u8).map(move |n| (*len, n))) {
                let key = key_of(len, n);
                let value = vec![n + round; random.of(&values)];
                let expiry = random.of(&[Expiry::Never, Expiry::At(2_000), Expiry::At(LATER)]);
                match random.below(6) {
                    0 => assert_eq!(store.delete(&key).unwrap(), model.remove(&key).is_some()),
                    1 => {
                        // The same length: in its place.
                        if let Some((value, expiry)) = model.get_mut(&key) {
                            *value = vec![n ^ 0x55; Vec::len(value)];
                            store.put_until(&key, &*value, *expiry).unwrap();
                        }
                    }
                    2 => {
                        let there = model.get_mut(&key).map(|(_, end)| *end = expiry).is_some();
                        assert_eq!(store.expire(&key, expiry, Condition::Always).unwrap().is_some(), there);
                    }
                    _ => {
                        store.put_until(&key, &value, expiry).unwrap();
                        model.insert(key, (value, expiry));
                    }
                }
            }
            if inside {
                store.commit().unwrap();
            }
            let expected: Vec<_> = model.iter().map(|(k, (v, e))| (k.clone(), v.clone(), *e)).collect();
            for handle in [&store, &second] {
                assert!(content(handle) == expected, "page size {page_size}");
            }
            for (key, (value, expiry)) in &model {
                assert_eq!(store.get_with(key, |v, e| (v == value, e)).unwrap(), Some((true, *expiry)));
                assert_eq!(store.get_many([key]).unwrap(), [Some(value.clone())]);
            }
            for len in [56, 57, 999, 4_000, 65_535] {
                let prefix = vec![b'k'; len];
                let expected = model.keys().filter(|key| key.starts_with(&prefix)).count();
                assert_eq!(store.prefix(&prefix).count(), expected, "prefix of {len} bytes");
                assert_eq!(store.prefix(&prefix).rev().count(), expected);
                let behind = (Bound::Excluded(prefix), Bound::Unbounded);
                assert_eq!(keys(store.range(behind.clone())), keys(second.range(behind)));
            }
            let mut ends: Vec<_> =
                model.iter().filter_map(|(key, (_, end))| Some((end.millis()?, key.clone()))).collect();
            ends.sort();
            let by_time = common::walk(&mut store.expiring(i64::MIN, i64::MAX));
            assert!(by_time.iter().eq(ends.iter().map(|(_, key)| key)));
        }
        second.integrity_check().unwrap();
        for handle in [&store, &second] {
            let late = TestClock::at(2_000);
            late.drive(handle);
        }
        let dead = model.values().filter(|(_, end)| *end == Expiry::At(2_000)).count() as u64;
        assert_eq!(store.purge_expired().unwrap(), dead);
        is_sound(&scratch);
        store.clear().unwrap();
        assert_eq!(second.count().unwrap(), 0);
        is_sound(&scratch);
    }
}

#[test]
fn values_around_the_inline_threshold_move_between_row_and_blob_table() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let (store, other) = (scratch.open_with(&config), scratch.open_with(&sql()));
        store.put("large", vec![1; 5_000]).unwrap();
        store.delete("large").unwrap();
        for key_len in [1, 100, 191, 192, 193, 255, 256, 300] {
            let key = vec![b'k'; key_len];
            let edge = 256 - key_len.min(256);
            let lengths = [0, 63, 64, 65, edge, edge + 1, 256, 257, 64, 300, 5_000, 65, 5_001];
            for (n, len) in lengths.into_iter().enumerate() {
                let expiry = if n % 2 == 0 { Expiry::Never } else { Expiry::At(LATER) };
                store.put_until(&key, vec![n as u8; len], expiry).unwrap();
                assert_eq!(other.get(&key).unwrap(), Some(vec![n as u8; len]), "{name}");
                assert_eq!(store.get(&key).unwrap(), Some(vec![n as u8; len]), "{name}");
            }
            store.put(&key, [1; 64]).unwrap();
        }
        let blobs = "print(*con.execute('select count(*) from \"blob:default\"').fetchone())";
        assert_eq!(python(&scratch.path(), blobs), "0");
        is_sound(&scratch);
    }
}

// ---- other writers -------------------------------------------------------------------------------

#[test]
fn without_a_timeout_a_write_beside_another_is_busy_at_once_and_reads_go_on() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let (store, other) = (scratch.open_with(&config), scratch.open());
        store.put("a", "1").unwrap();
        for round in 0..20 {
            assert!(store.exists("a").unwrap()); // a snapshot is held
            other.begin(true).unwrap();
            other.put("a", round.to_string()).unwrap();
            assert_eq!(kind(store.put("b", "1")), ErrorKind::Busy, "{name}");
            assert_eq!(kind(store.begin(true)), ErrorKind::Busy, "{name}");
            assert_eq!(kind(store.create_family("f")), ErrorKind::Busy, "{name}");
            assert_ne!(value_of(&store, "a"), round.to_string(), "{name}");
            other.commit().unwrap();
            // The snapshot is stale, but nobody is writing: no reason to refuse anything.
            store.put("b", round.to_string()).unwrap();
            assert_eq!(value_of(&store, "a"), round.to_string(), "{name}");
            other.put("a", "between").unwrap();
            store.begin(true).unwrap();
            assert_eq!(value_of(&store, "a"), "between", "{name}");
            store.commit().unwrap();
        }
        is_sound(&scratch);
    }
}

#[test]
fn a_timeout_is_waited_for_and_a_writer_that_ends_meanwhile_is_no_failure() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let wait = Duration::from_millis(150);
        let (store, other) = (scratch.open_with(&config.clone().busy_timeout(wait)), scratch.open());
        let willing = scratch.open_with(&config.busy_timeout(Duration::from_secs(60)));
        store.put("a", "1").unwrap();
        other.begin(true).unwrap();
        assert!(store.exists("a").unwrap() && willing.exists("a").unwrap());
        let started = Instant::now();
        assert_eq!(kind(store.put("a", "2")), ErrorKind::Busy, "{name}");
        assert!(started.elapsed() >= wait, "{name}");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| willing.put("a", "3"));
            other.put("a", "2").unwrap();
            other.commit().unwrap();
            waiting.join().unwrap().unwrap();
        });
        assert_eq!(value_of(&store, "a"), "3", "{name}");
    }
}

#[test]
fn in_delete_mode_a_read_waits_for_a_writer_once_as_long_as_its_timeout_says() {
    for sql_engine in [false, true] {
        let scratch = Scratch::new();
        let wait = Duration::from_millis(400);
        let mode = Config::new().journal_mode(JournalMode::Delete).sql_engine(sql_engine);
        let store = scratch.open_with(&mode.busy_timeout(wait));
        store.put("a", "1").unwrap();
        let mut python = Command::new("python3");
        python.arg("-c").arg(
            "import sqlite3, sys
con = sqlite3.connect(sys.argv[1], isolation_level=None)
con.execute('begin exclusive'); print('> locked', flush=True); sys.stdin.readline()
con.execute('commit'); print('> free', flush=True); sys.stdin.readline()",
        );
        python.arg(scratch.path());
        let mut other = Other::spawn(python);
        other.expect("locked");
        for read in [|store: &Store| store.get("a").map(drop), |store: &Store| store.count().map(drop)] {
            let started = Instant::now();
            assert_eq!(kind(read(&store)), ErrorKind::Busy);
            let waited = started.elapsed();
            assert!(waited >= wait, "sql {sql_engine}: only {waited:?}");
            assert!(waited < wait * 9 / 5, "sql {sql_engine}: waited twice, {waited:?}");
        }
        assert_eq!(other.ask(""), "free");
        assert!(store.exists("a").unwrap());
        other.finish();
    }
}

#[test]
fn increments_of_two_handles_and_of_two_processes_with_two_threads_each_add_up() {
    let scratch = Scratch::new();
    let (first, second) = (scratch.open_with(&patient()), scratch.open_with(&patient().hold_reads(false)));
    let mut others = ["patient", "patient sql"].map(|how| opened(&scratch.path(), how));
    others.iter_mut().for_each(|other| other.tell("increment 300 2"));
    thread::scope(|scope| {
        for store in [&first, &first, &second] {
            scope.spawn(|| {
                for n in 0..300 {
                    store.increment("n", 1, Expiry::Never).unwrap();
                    if n % 50 == 0 {
                        let _ = store.checkpoint(CheckpointMode::Passive); // two at once: one is busy
                    }
                }
            });
        }
    });
    others.iter_mut().for_each(|other| other.expect("ok"));
    assert_eq!((value_of(&first, "n"), value_of(&second, "n")), ("2100".into(), "2100".into()));
    others.into_iter().for_each(Other::finish);
    is_sound(&scratch);
}

// ---- freshness -----------------------------------------------------------------------------------

/// Some way of reading, another one each round, must answer that "a" has this value, and is one of so many.
#[track_caller]
fn a_read_sees(store: &Store, value: &str, count: usize, round: usize) {
    let value = value.as_bytes();
    match round % 9 {
        0 => assert_eq!(store.get("a").unwrap().as_deref(), Some(value)),
        1 => assert_eq!(store.count().unwrap(), count as u64),
        2 => assert_eq!(store.iter().next().unwrap().unwrap().1, value),
        3 => assert_eq!(store.get_many(["a", "zz"]).unwrap(), [Some(value.to_vec()), None]),
        4 => assert_eq!(store.get_with("a", |v, _| v == value).unwrap(), Some(true)),
        5 => assert_eq!(store.get_ttl("a").unwrap(), Some((value.to_vec(), Ttl::None))),
        6 => assert_eq!(keys(store.iter().rev()).len(), count),
        7 => assert!(store.exists(numbered(count - 2)).unwrap()),
        _ => assert_eq!(store.compare_and_swap("a", value, value, Expiry::Never), Ok(true)),
    }
    assert_eq!(store.get("a").unwrap().as_deref(), Some(value));
    assert!(!store.exists(numbered(count - 1)).unwrap());
}

#[test]
fn what_another_process_has_committed_is_in_the_very_next_read() {
    for (_, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        for how in ["default", "sql", "loose"] {
            store.clear().unwrap();
            let mut other = opened(&scratch.path(), how);
            for round in 0..350usize {
                other.run(&format!("put a {round}"));
                assert_eq!(value_of(&store, "a"), round.to_string());
                other.run(&format!("fill {round} {} 10", round + 1));
                if round % 9 == 0 {
                    // Busy, if this process holds a snapshot that is not the newest.
                    let done = other.ask(&format!("checkpoint {}", round / 9 % 4));
                    assert!(done == "ok" || done.starts_with("error Busy"), "{done}");
                }
                a_read_sees(&store, &round.to_string(), round + 2, round);
                if round % 5 == 0 {
                    store.put("a", "mine").unwrap();
                    assert_eq!(other.ask("get a"), "mine");
                }
            }
            other.finish();
        }
        is_sound(&scratch);
    }
}

#[test]
fn a_reset_of_the_wal_by_another_process_is_noticed_by_a_snapshot_that_is_held() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        let mut other = opened(&scratch.path(), "patient");
        let mut resets = 0;
        for round in 0..120 {
            other.run(&format!("put a {round}"));
            assert_eq!(value_of(&store, "a"), round.to_string(), "{name}");
            let before = wal_size(&scratch);
            if round % 3 == 0 {
                // So that the WAL can start anew: the other process cannot ask this one to let go.
                store.checkpoint(CheckpointMode::Passive).unwrap();
                other.run("checkpoint 3");
                resets += u32::from(wal_size(&scratch) < before);
                // The same frames as the last time, but for the salt.
                other.run("put a same");
                assert_eq!(value_of(&store, "a"), "same", "{name}");
            }
        }
        assert!(resets >= 30, "{resets}");
        other.finish();
        is_sound(&scratch);
    }
}

#[test]
fn a_writer_killed_in_the_middle_of_a_commit_leaves_whole_commits_to_a_reader_that_stays() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        let mut random = Random(5);
        for round in 0..6 {
            let program = Command::new(env::current_exe().unwrap());
            let mut writer = Other::launch(program, &scratch.path(), "pairs small patient");
            let mut acknowledged: u64 = 0;
            for _ in 0..5 + random.below(20) {
                acknowledged = writer.hear().unwrap().parse().unwrap();
                let a: u64 = value_of(&store, "a").parse().unwrap();
                assert!(a >= acknowledged, "{name}: {a} after {acknowledged}");
                let both = store.get_many(["a", "b"]).unwrap();
                let [Some(a), Some(b)] = &both[..] else { panic!("half a commit") };
                assert_eq!(format!("{:0>900}", text(a)), text(b), "{name}");
            }
            if let Some(last) = writer.kill().last() {
                acknowledged = last.parse().unwrap();
            }
            if round % 2 == 0 {
                // Somebody else recovers the WAL, if there is anything to recover.
                let mut third = opened(&scratch.path(), "default");
                assert!(third.ask("get a").parse::<u64>().unwrap() >= acknowledged);
                third.finish();
            }
            let a: u64 = value_of(&store, "a").parse().unwrap();
            assert!((acknowledged..=acknowledged + 1).contains(&a), "{name}: {a} of {acknowledged}");
            store.put("mine", a.to_string()).unwrap();
            store.integrity_check().unwrap();
        }
        is_sound(&scratch);
    }
}

/// Ends the other threads also when this one fails.
struct Finish<'a>(&'a AtomicBool);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn what_one_handle_commits_all_others_and_their_threads_read_next() {
    let scratch = Scratch::new();
    // Readers that find the header of the wal-index half written take the writer's lock for a moment.
    let writer = scratch.open_with(&Config::new().busy_timeout(Duration::from_secs(30)));
    writer.put("a", "0").unwrap();
    let readers = kinds_of_handles().map(|(_, config)| scratch.open_with(&config));
    let (committed, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let number = |store: &Store| value_of(store, "a").parse::<u64>().unwrap();
    thread::scope(|scope| {
        let _finish = Finish(&done);
        for reader in readers.iter().chain(&readers) {
            scope.spawn(|| {
                let mut last = 0;
                while !done.load(Ordering::SeqCst) {
                    let before = committed.load(Ordering::SeqCst);
                    let found = number(reader);
                    assert!(found >= before && found >= last, "{found} after {before} and {last}");
                    last = found;
                }
            });
        }
        for n in 1..=1_200 {
            writer.put("a", n.to_string()).unwrap();
            committed.store(n, Ordering::SeqCst);
            if n % 200 == 0 {
                let _ = writer.checkpoint(MODES[(n / 200) as usize % 4]);
            }
        }
        done.store(true, Ordering::SeqCst);
    });
    // One thread that goes from handle to handle.
    for n in 0..900 {
        let (from, to) = (&readers[n % 3], &readers[(n + 1) % 3]);
        from.put("a", n.to_string()).unwrap();
        assert_eq!((number(to), number(&writer)), (n as u64, n as u64));
    }
    is_sound(&scratch);
}

// ---- checkpoints ---------------------------------------------------------------------------------

#[test]
fn truncate_is_complete_from_any_of_ten_handles_that_have_read_and_written() {
    let scratch = Scratch::new();
    let config = |n: usize| Config::new().sql_engine(n % 5 == 4).hold_reads(!n.is_multiple_of(3));
    let handles: Vec<Store> = (0..10).map(|n| scratch.open_with(&config(n))).collect();
    // Stores that come and go elsewhere in the process change nothing.
    let finished = std::sync::Arc::new(AtomicBool::new(false));
    let elsewhere = thread::spawn({
        let finished = std::sync::Arc::clone(&finished);
        move || {
            while !finished.load(Ordering::SeqCst) {
                drop(common::memory());
            }
        }
    });
    for (n, handle) in handles.iter().enumerate() {
        for (m, other) in handles.iter().enumerate() {
            other.put(numbered(m), n.to_string()).unwrap(); // the last thing some have done is a write
            if (n + m) % 2 == 0 {
                assert!(other.exists(numbered(0)).unwrap());
            }
        }
        assert!(wal_size(&scratch) > 0);
        handle.checkpoint(CheckpointMode::Truncate).unwrap();
        assert_eq!(wal_size(&scratch), 0, "handle {n}");
        assert_eq!(handle.stats().unwrap().wal_frames, 0);
    }
    finished.store(true, Ordering::SeqCst);
    elsewhere.join().unwrap();
    is_sound(&scratch);
}

#[test]
fn a_store_that_is_dropped_is_closed_though_others_checkpoint_at_that_moment() {
    let (scratch, elsewhere) = (Scratch::new(), Scratch::new());
    let finished = AtomicBool::new(false);
    let busy = elsewhere.open();
    let mut left_open = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !finished.load(Ordering::SeqCst) {
                busy.checkpoint(CheckpointMode::Passive).unwrap();
            }
        });
        for n in 0..200 {
            let store = scratch.open_with(&Config::new().sync(SyncLevel::Off));
            store.put(numbered(n), "1").unwrap();
            drop(store);
            left_open += u32::from(scratch.wal().exists());
        }
        finished.store(true, Ordering::SeqCst);
    });
    assert_eq!(left_open, 0, "times that the WAL was not removed");
}

#[test]
fn truncate_succeeds_within_its_timeout_while_other_handles_read_without_pause() {
    let scratch = Scratch::new();
    let store = scratch.open_with(&Config::new().busy_timeout(Duration::from_secs(5)));
    let readers = kinds_of_handles().map(|(_, config)| scratch.open_with(&config));
    let finished = AtomicBool::new(false);
    let mut failed = None;
    thread::scope(|scope| {
        for (n, reader) in readers.iter().enumerate() {
            let finished = &finished;
            scope.spawn(move || {
                while !finished.load(Ordering::SeqCst) {
                    let _ = (reader.get(numbered(n)).unwrap(), reader.iter().count());
                }
            });
        }
        for round in 0..20 {
            (0..5).for_each(|n| store.put(numbered(n), vec![round; 500]).unwrap());
            let done = store.checkpoint(CheckpointMode::Truncate);
            if done.is_err() || wal_size(&scratch) > 0 {
                failed = Some((round, done));
                break;
            }
        }
        finished.store(true, Ordering::SeqCst);
    });
    assert_eq!(failed, None);
    is_sound(&scratch);
}

#[test]
fn the_wal_stays_short_beside_idle_handles_that_once_read_or_wrote() {
    let scratch = Scratch::new();
    let store = scratch.open_with(&Config::new().sync(SyncLevel::Off));
    let idle: Vec<Store> = (0..5).map(|n| scratch.open_with(&Config::new().sql_engine(n == 4))).collect();
    let mut other = opened(&scratch.path(), "loose");
    other.run("put other 1");
    for (n, handle) in idle.iter().enumerate() {
        handle.put(numbered(n), "idle").unwrap();
        assert!(handle.exists(numbered(0)).unwrap());
    }
    assert_eq!(other.ask("get other"), "1");
    let mut random = Random(3);
    let mut longest = 0;
    let mut put = |handle: &Store, n: usize| {
        handle.put(numbered(random.below(50_000) as usize), [1; 40]).unwrap();
        if n.is_multiple_of(500) {
            longest = longest.max(wal_size(&scratch));
        }
    };
    (0..100_000).for_each(|n| put(&store, n));
    // Alternately, each with the lock of its last commit still kept.
    (0..15_000).for_each(|n| put(&idle[n % 2], n));
    assert!(longest <= WAL_BOUND, "{longest}");
    other.finish();
    is_sound(&scratch);
}

#[test]
fn the_wal_stays_short_when_two_processes_write_in_turn_and_at_once() {
    for how in ["default", "loose", "sql"] {
        let scratch = Scratch::new();
        let config = patient().hold_reads(how != "loose").sql_engine(how == "sql").sync(SyncLevel::Off);
        let store = scratch.open_with(&config);
        let mut other = opened(&scratch.path(), &format!("patient {how}"));
        let mut longest = [0; 2];
        for at_once in [0, 1] {
            for round in 0..60usize {
                let from = (round * 7_919) % 5_000 * 100;
                other.tell(&format!("fill {from} {} 200", from + 150));
                if at_once == 0 {
                    other.expect("ok");
                }
                (0..150).for_each(|n| store.put(numbered(n * 3_331 % 500_000 + round), [1; 200]).unwrap());
                if at_once == 1 {
                    other.expect("ok");
                }
                longest[at_once] = longest[at_once].max(wal_size(&scratch));
            }
        }
        println!("{how}: the longest WAL had {longest:?} bytes in turn and at once");
        assert!(longest.iter().all(|size| *size <= WAL_BOUND), "{how}: the WAL had {longest:?} bytes");
        other.finish();
        is_sound(&scratch);
    }
}

#[test]
fn a_checkpoint_inside_a_transaction_is_refused_at_once_whatever_the_timeout() {
    let scratch = Scratch::new();
    let store = scratch.open_with(&Config::new().busy_timeout(Duration::from_secs(1)));
    let started = Instant::now();
    for write in [false, true] {
        store.begin(write).unwrap();
        for mode in MODES {
            assert_eq!(kind(store.checkpoint(mode)), ErrorKind::Busy);
        }
        store.rollback().unwrap();
    }
    assert!(started.elapsed() < Duration::from_secs(4), "it waited for itself");
}

// ---- other sorts of stores -----------------------------------------------------------------------

/// A history that touches everything, and what it answered.
fn history(store: &Store, clock: &TestClock) -> Vec<String> {
    let mut random = Random(11);
    let mut answers = Vec::new();
    let family = store.create_family("f").unwrap();
    for step in 0..400u32 {
        let key = numbered(random.below(30) as usize);
        let value = vec![step as u8; random.of(&[0, 10, 100, 300, 5_000])];
        let expiry = random.of(&[Expiry::Never, Expiry::At(clock.now() + 20), Expiry::At(LATER)]);
        let on = if random.below(2) == 0 { &family } else { store.default_family() };
        let answer = match random.below(16) {
            0..=3 => format!("{:?}", on.put_until(&key, &value, expiry)),
            4 => format!("{:?}", on.delete(&key)),
            5 => format!("{:?}", on.ttl(&key)),
            6 => format!("{:?}", keys(on.range(key..))),
            7 => format!("{:?}", keys(on.prefix("key").rev())),
            8 => format!("{:?}", on.purge_expired()),
            9 => format!("{:?} {:?}", on.count(), on.count_live()),
            10 => format!("{:?}", on.expire(&key, expiry, Condition::Always)),
            11 => format!("{:?}", store.begin(random.below(2) == 0).map_err(|e| e.kind())),
            12 => format!("{:?}", store.rollback().map_err(|e| e.kind())),
            13 => format!("{:?}", store.commit().map_err(|e| e.kind())),
            14 => format!("{:?}", on.compare_and_delete(&key, &value).map_err(|e| e.kind())),
            _ => format!("{:?}", on.get(&key)),
        };
        clock.set(clock.now() + 1);
        answers.push(answer);
    }
    answers.push(format!("{:?} {:?}", content(&family), content(store)));
    answers
}

#[test]
fn stores_in_memory_exclusive_ones_and_every_journal_answer_alike_with_both_engines() {
    let mut all = Vec::new();
    for sql_engine in [false, true] {
        let base = Config::new().sql_engine(sql_engine);
        let delete = base.clone().journal_mode(JournalMode::Delete);
        let files = [
            base.clone(),
            base.clone().hold_reads(false),
            base.clone().exclusive(true),
            base.clone().exclusive(true).hold_reads(false),
            base.clone().mmap_size(0).cache_pages(10),
            delete.clone(),
            delete.exclusive(true),
        ];
        let run = |store: Store| {
            let clock = TestClock::at(1_000);
            clock.drive(&store);
            let answers = history(&store, &clock);
            let _ = store.rollback();
            store.integrity_check().unwrap();
            store.close().unwrap();
            answers
        };
        all.push(run(Store::open_in_memory(&base).unwrap()));
        for config in files {
            let scratch = Scratch::new();
            all.push(run(scratch.open_with(&config.sync(SyncLevel::Off))));
            is_sound(&scratch);
        }
    }
    for (n, answers) in all.iter().enumerate() {
        let differs = answers.iter().zip(&all[0]).position(|(a, b)| a != b);
        assert_eq!(differs, None, "store {n}");
    }
}

#[test]
fn a_read_only_handle_sees_every_commit_at_once_and_never_writes() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let clock = TestClock::at(1_000);
        let store = scratch.open_at(&clock);
        store.put_until("dies", "1", Expiry::At(1_500)).unwrap();
        let reader = scratch.open_with(&config.read_only(true));
        clock.drive(&reader);
        for round in 0..100 {
            store.put("a", round.to_string()).unwrap();
            assert_eq!(value_of(&reader, "a"), round.to_string(), "{name}");
            assert_eq!(reader.count().unwrap(), 2);
        }
        assert_eq!(kind(reader.put("a", "1")), ErrorKind::ReadOnly);
        clock.set(1_500);
        let before = scratch.bytes();
        assert_eq!(reader.get("dies").unwrap(), None, "{name}");
        assert_eq!(keys(reader.iter()), [b"a"]);
        assert_eq!(reader.count().unwrap(), 2);
        assert!(scratch.bytes()["store.db"] == before["store.db"]);
        store.checkpoint(CheckpointMode::Truncate).unwrap();
        assert_eq!(wal_size(&scratch), 0);
        assert_eq!(value_of(&reader, "a"), "99");
    }
}

/// This test program as a user who is nobody; `None` if that cannot be.
#[cfg(unix)]
fn nobody(path: &Path, how: &str) -> Option<Other> {
    use std::os::unix::process::CommandExt;
    let exe = env::current_exe().unwrap();
    let mut try_it = Command::new(&exe);
    try_it.arg("--list").uid(65_534).gid(65_534).stdout(Stdio::null());
    if !try_it.status().is_ok_and(|status| status.success()) {
        return None; // this user is not root, or the program is where nobody may not read
    }
    let mut program = Command::new(exe);
    program.uid(65_534).gid(65_534);
    Some(Other::launch(program, path, how))
}

#[cfg(unix)]
#[test]
fn a_reader_without_the_right_to_write_reads_what_is_there_or_says_why_not() {
    use std::os::unix::fs::PermissionsExt;
    let allow = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let mut outcomes = Vec::new();
    for how in ["read-only", "read-only loose", "read-only sql"] {
        let scratch = Scratch::new();
        let store = scratch.open();
        store.put("a", "1").unwrap();
        store.put_until("b", vec![1; 5_000], Expiry::At(LATER)).unwrap();
        allow(scratch.dir(), 0o755);
        for file in [scratch.path(), scratch.wal(), scratch.shm()] {
            allow(&file, 0o644);
        }
        let mut outcome = Vec::new();
        // A writer is alive: WAL and shared memory are there, and not to be written.
        let Some(mut reader) = nobody(&scratch.path(), how) else { return };
        outcome.push(reader.hear());
        if outcome[0].as_deref() == Some("open") {
            for round in 0..20 {
                store.put("a", round.to_string()).unwrap();
                assert_eq!(reader.ask("get a"), round.to_string(), "{how}");
            }
            outcome.push(Some(reader.ask("count")));
            outcome.push(Some(reader.ask("put a 1").chars().take(14).collect()));
        }
        reader.finish();
        // Nobody is: there is only the file.
        store.checkpoint(CheckpointMode::Truncate).unwrap();
        store.close().unwrap();
        let mut reader = nobody(&scratch.path(), how).unwrap();
        let opened = reader.hear();
        outcome.push(opened.as_deref().map(|said| said.chars().take(14).collect()));
        if opened.as_deref() == Some("open") {
            outcome.push(Some(reader.ask("get a")));
        }
        reader.finish();
        outcomes.push(outcome);
    }
    assert_eq!(outcomes[0], outcomes[2]);
    assert_eq!(outcomes[1], outcomes[2]);
}

#[test]
fn a_handle_of_the_other_journal_mode_is_refused_or_both_go_on_with_the_same_data() {
    for sql_engine in [false, true] {
        let scratch = Scratch::new();
        let delete = Config::new().journal_mode(JournalMode::Delete).sql_engine(sql_engine);
        let first = scratch.open_with(&delete);
        first.put("a", "1").unwrap();
        assert!(first.exists("a").unwrap());
        // An idle handle in DELETE mode has no lock: the file becomes one with a WAL.
        let second = scratch.open_with(&Config::new().sql_engine(sql_engine));
        assert!(wal_size(&scratch) > 0 || scratch.wal().exists());
        for round in 0..30 {
            second.put("a", round.to_string()).unwrap();
            assert_eq!(value_of(&first, "a"), round.to_string());
            first.put_until("b", round.to_string(), Expiry::At(LATER)).unwrap();
            assert_eq!(value_of(&second, "b"), round.to_string());
            first.transaction(|tx| tx.put("c", "1")).unwrap();
            if round % 10 == 0 {
                second.checkpoint(CheckpointMode::Truncate).unwrap();
                assert_eq!(wal_size(&scratch), 0);
            }
        }
        assert_eq!(kind(Store::open_with(scratch.path(), &delete)), ErrorKind::Busy);
        first.close().unwrap();
        assert_eq!(second.count().unwrap(), 3);
        second.close().unwrap();
        is_sound(&scratch);
    }
}

// ---- what others put into the file ---------------------------------------------------------------

#[test]
fn an_index_somebody_makes_on_a_data_table_is_kept_up_by_every_write() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        let (plain, ttl) = (store.create_family("plain").unwrap(), store.create_family("ttl").unwrap());
        let change = |n: usize| {
            for family in [&plain, &ttl] {
                family.put(numbered(n), n.to_string()).unwrap();
                family
                    .put_until(numbered(n + 1), vec![n as u8; 40 * n], Expiry::At(LATER + n as i64))
                    .unwrap();
                assert_eq!(family.get(numbered(n)).unwrap(), Some(n.to_string().into_bytes()), "{name}");
                assert_eq!(family.iter().rev().count() as u64, family.count().unwrap());
                family.delete(numbered(n / 2)).unwrap();
                let _ = family.expire(numbered(n), Expiry::At(LATER), Condition::Always).unwrap();
            }
        };
        let sound = || python(&scratch.path(), "print(*con.execute('pragma integrity_check').fetchone())");
        (0..10).for_each(change);
        // While the handle holds a snapshot, cursors and root pages.
        python(
            &scratch.path(),
            "con.execute('create index by_value on \"data:plain\"(value, expire_ms)')
con.execute('create index by_key on \"ttl_expiry:ttl\"(key)')
con.execute('create unique index unique_end on \"ttl_key:plain\"(key, expire_ms)')",
        );
        (10..20).for_each(change);
        assert_eq!(sound(), "ok", "{name}");
        store.begin(true).unwrap();
        (20..30).for_each(change);
        store.commit().unwrap();
        assert_eq!(sound(), "ok", "{name}");
        let mut batch = store.batch();
        batch.put(&plain, "x", vec![1; 9_000], Expiry::At(1)).unwrap();
        batch.put(&ttl, "x", "1", Expiry::At(1)).unwrap();
        batch.commit().unwrap();
        assert_eq!(plain.purge_expired().unwrap() + ttl.purge_expired().unwrap(), 2);
        assert_eq!(sound(), "ok", "{name}");
        python(&scratch.path(), "con.execute('drop index by_value'); con.execute('drop index by_key')");
        (30..40).for_each(change);
        plain.clear().unwrap();
        store.integrity_check().unwrap();
        assert_eq!(sound(), "ok", "{name}");
    }
}

/// What each call on a store answers: its data, or the kind of its failure.
fn answers(store: &Store) -> Vec<String> {
    fn shown<T: std::fmt::Debug>(answer: Result<T>) -> String {
        answer.map_or_else(|e| format!("{:?}", e.kind()), |answer| format!("{answer:?}"))
    }
    let walked = |backwards: bool| {
        let iter = if backwards { store.iter().rev() } else { store.iter() };
        let mut seen = Vec::new();
        for entry in iter.take(2_000) {
            match entry {
                Ok((key, value)) => seen.push(format!("{} {}", key.len(), value.len())),
                Err(e) => {
                    seen.push(format!("{:?}", e.kind()));
                    break;
                }
            }
        }
        assert!(seen.len() < 2_000, "the iteration does not end");
        seen.join(",")
    };
    let mut all = vec![walked(false), walked(true)];
    for key in ["k05", "k20", "k39", "large", "ttl3", "missing"] {
        all.push(shown(store.get(key).map(|value| value.map(|value| value.len()))));
        all.push(shown(store.ttl(key)));
    }
    all.push(shown(store.get_many(["k01", "large"]).map(|values| values.len())));
    all.push(shown(store.count()));
    all.push(shown(store.count_live()));
    all.push(shown(store.next_expiry()));
    let mut by_time = store.expiring(i64::MIN, i64::MAX);
    let mut steps = 0;
    let mut there = by_time.first();
    while matches!(there, Ok(true)) && steps < 2_000 {
        steps += 1;
        there = by_time.next();
    }
    assert!(steps < 2_000, "the walk does not end");
    all.push(format!("{steps} {}", shown(there)));
    all.push(shown(store.integrity_check()));
    all
}

/// The same for calls that write. Damage may be met sooner by one engine than by the other.
fn writes(store: &Store) -> Vec<String> {
    let shown = |done: Result<()>| done.map_or_else(|e| format!("{:?}", e.kind()), |()| "ok".into());
    let mut all = Vec::new();
    for key in ["k05", "k20", "k39", "large", "ttl3", "new"] {
        all.push(shown(store.put_until(key, vec![1; 30], Expiry::At(LATER)).map(drop)));
        all.push(shown(store.put(key, vec![1; 3_000]).map(drop)));
        all.push(shown(store.increment(key, 1, Expiry::Never).map(drop)));
        all.push(shown(store.delete(key).map(drop)));
    }
    all.push(shown(store.purge_expired().map(drop)));
    all.push(shown(store.purge_step(Some(10), None).map(drop)));
    all.push(shown(store.delete_range(&KeyRange::prefix(b"k1")).map(drop)));
    all.push(shown(store.clear().map(drop)));
    all.push(shown(store.put("k05", "1").map(drop)));
    all
}

/// A store with rows of all sorts, its file closed; gives its bytes.
fn sorts_of_rows(scratch: &Scratch, page_size: u32) -> Vec<u8> {
    let store = scratch.open_with(&Config::new().page_size(page_size));
    store
        .transaction(|tx| -> Result<()> {
            (0..40).try_for_each(|n| tx.put(format!("k{n:02}"), vec![n; 20]))?;
            (0..8).try_for_each(|n| {
                tx.put_until(format!("ttl{n}"), [n; 9], Expiry::At(LATER + i64::from(n)))
            })?;
            tx.put_until("dead", "1", Expiry::At(1))?;
            tx.put("large", vec![9; 2_000])
        })
        .unwrap();
    store.close().unwrap();
    fs::read(scratch.path()).unwrap()
}

/// Opens these bytes as a store of each engine, and gives what it answers; `None` if it does not open.
fn opinions(scratch: &Scratch, bytes: &[u8], ask: fn(&Store) -> Vec<String>) -> [Option<Vec<String>>; 2] {
    [false, true].map(|sql_engine| {
        let _ = (fs::remove_file(scratch.wal()), fs::remove_file(scratch.shm()));
        fs::write(scratch.path(), bytes).unwrap();
        let config = Config::new().sql_engine(sql_engine).sync(SyncLevel::Off);
        let store = Store::open_with(scratch.path(), &config).ok()?;
        TestClock::at(1_000_000).drive(&store);
        let said = ask(&store);
        let _ = store.close(); // the file may be beyond a checkpoint
        Some(said)
    })
}

#[test]
fn rows_of_wrong_types_counts_and_sizes_give_an_error_or_the_same_data_with_both_engines() {
    let scratch = Scratch::new();
    let sound = sorts_of_rows(&scratch, 4_096);
    let mut changes: Vec<String> = Vec::new();
    for value in ["null", "'text'", "1.5", "0", "x''", "zeroblob(70000)", "-9223372036854775808", "1e300"] {
        for column in ["value", "expire_ms", "blob_id", "written_ms"] {
            changes.push(format!("update \"data:default\" set {column} = {value} where key = x'6b3035'"));
        }
        changes.push(format!("insert or replace into \"data:default\"(key) values({value})"));
        changes.push(format!("insert or replace into \"data:default\"(key, value) values({value}, x'01')"));
        changes.push(format!("update \"blob:default\" set value = {value}"));
        changes.push(format!("insert or ignore into \"ttl_expiry:default\" values({value}, x'6b3035')"));
        changes.push(format!("insert or ignore into \"ttl_expiry:default\" values(5, {value})"));
        changes.push(format!("insert or ignore into \"ttl_key:default\" values({value}, 7)"));
        changes.push(format!("insert or ignore into \"ttl_key:default\" values(x'6b3035', {value})"));
    }
    for id in ["-1", "9223372036854775807", "-9223372036854775808", "2"] {
        changes.push(format!("update \"data:default\" set blob_id = {id} where key = x'6c61726765'"));
        changes.push(format!("update \"blob:default\" set id = {id}"));
        changes.push(format!("insert or replace into \"blob:default\" values({id}, x'01')"));
    }
    changes.push("update \"data:default\" set expire_ms = 1 where key < x'6b32'".into());
    changes.push("update \"ttl_expiry:default\" set expire_ms = expire_ms - 4000000000000".into());
    // One process of Python makes all files.
    let list = scratch.file("changes");
    fs::write(&list, changes.join("\n")).unwrap();
    python(
        &scratch.path(),
        "import shutil
for n, change in enumerate(open(sys.argv[1][:-8] + 'changes').read().split('\\n')):
    copy = sys.argv[1] + '.%d' % n
    shutil.copy(sys.argv[1], copy)
    other = sqlite3.connect(copy, isolation_level=None)
    try:
        other.execute(change)
    except sqlite3.IntegrityError:
        pass # then this copy is sound
    other.execute('pragma wal_checkpoint(truncate)')
    other.close()",
    );
    assert_eq!(fs::read(scratch.path()).unwrap(), sound);
    for (n, change) in changes.iter().enumerate() {
        let bytes = fs::read(scratch.file(&format!("store.db.{n}"))).unwrap();
        for ask in [answers, writes] {
            let [mine, sql] = opinions(&scratch, &bytes, ask);
            let (mine, sql) = (mine.expect(change), sql.expect(change));
            // An engine may look at more of a row than the other, and find what is wrong with it.
            let fails = |answer: &str| answer.contains("Corrupt") || answer == "Error";
            for (mine, sql) in mine.iter().zip(&sql) {
                assert!(mine == sql || fails(mine) || fails(sql), "{change}: {mine} here, {sql} with SQL");
            }
        }
    }
}

#[test]
fn a_table_with_another_definition_is_an_error_or_works_and_nothing_else_is_written() {
    const DATA: &str =
        "key BLOB PRIMARY KEY, value BLOB, expire_ms INTEGER, blob_id INTEGER, written_ms INTEGER";
    for (what, change) in [
        ("a view of a family", "create view \"data:f\" as select * from \"data:default\"".to_owned()),
        ("a view of the catalogue", "create view \"data:f\" as select * from kvstore_family".into()),
        ("a view of the schema", "create view \"data:f\" as select * from sqlite_schema".into()),
        ("a rowid table", format!("create table \"data:f\"({DATA})")),
        (
            "descending keys",
            format!("create table \"data:f\"({}, primary key(key desc)) without rowid", DATA.replace(" PRIMARY KEY", "")),
        ),
        ("one more column", format!("create table \"data:f\"({DATA}, more default 7) without rowid")),
        (
            "other columns",
            "create table \"data:f\"(value BLOB, key BLOB PRIMARY KEY, expire_ms, blob_id, written_ms) without rowid".into(),
        ),
        (
            "a longer key",
            format!("create table \"data:f\"({}, primary key(key, value)) without rowid", DATA.replace(" PRIMARY KEY", "")),
        ),
        (
            "keys without case",
            format!("create table \"data:f\"({}) without rowid", DATA.replace("key BLOB", "key TEXT COLLATE NOCASE")),
        ),
        ("a generated column", format!("create table \"data:f\"({DATA}, g AS (length(key)) STORED) without rowid")),
    ] {
        for sql_engine in [false, true] {
            let scratch = Scratch::new();
            let store = scratch.open();
            store.put("default", "1").unwrap();
            drop(store.create_family("f").unwrap());
            store.close().unwrap();
            python(
                &scratch.path(),
                &format!("con.execute('drop view \"live:f\"'); con.execute('drop table \"data:f\"'); con.execute({change:?})"),
            );
            let store = scratch.open_with(&Config::new().sql_engine(sql_engine));
            let family = store.family("f").unwrap();
            for key in ["b", "a", "c", "B", "a"] {
                let written = family.put(key, key.repeat(20)).is_ok();
                let found = family.get(key);
                assert!(!written || found.is_err() || found.unwrap().is_some(), "{what}, sql {sql_engine}");
            }
            let _ = (family.iter().count(), family.delete("a"), family.put_until("t", "1", Expiry::At(LATER)));
            assert_eq!(keys(store.iter()), [b"default"], "{what}, sql {sql_engine}");
            assert_eq!(store.families().unwrap(), ["f"], "{what}, sql {sql_engine}");
            let check = python(&scratch.path(), "print(*con.execute('pragma integrity_check').fetchone())");
            assert_eq!(check, "ok", "{what}, sql {sql_engine}");
        }
    }
}

#[test]
fn no_flipped_byte_of_a_page_makes_a_call_panic_or_last_for_ever() {
    let scratch = Scratch::new();
    let sound = sorts_of_rows(&scratch, 512);
    let pages: Vec<usize> = (1..sound.len() / 512)
        .filter(|page| sound[page * 512] == 10) // leaves of WITHOUT ROWID tables
        .filter(|page| {
            let page = &sound[page * 512..][..512];
            [&b"k05"[..], b"ttl3", b"large"]
                .iter()
                .any(|key| page.windows(key.len()).any(|part| part == *key))
        })
        .collect();
    assert!(pages.len() >= 3, "{pages:?}");
    let (report, progress) = std::sync::mpsc::channel();
    let flips = sound.len();
    thread::spawn(move || {
        // All of the headers at the start of a page; of the rows behind every third byte.
        let bytes = pages.iter().flat_map(|page| page * 512..(page + 1) * 512);
        for (n, at) in bytes.filter(|at| at % 512 < 100 || at % 3 == 0).enumerate() {
            let mut bytes = sound.clone();
            bytes[at] = [bytes[at] ^ 0xff, bytes[at].wrapping_add(1), bytes[at] ^ 0x80][n % 3];
            for ask in [answers, writes] {
                let [mine, sql] = opinions(&scratch, &bytes, ask);
                assert_eq!(mine.is_some(), sql.is_some());
            }
            report.send(at).unwrap();
        }
        report.send(flips).unwrap();
    });
    let mut last = 0;
    while last != flips {
        last = progress
            .recv_timeout(Duration::from_secs(60))
            .unwrap_or_else(|_| panic!("no answer, or a panic, with a byte behind {last} changed"));
    }
}

// ---- expiry --------------------------------------------------------------------------------------

#[test]
fn a_key_is_dead_at_exactly_its_time_by_every_call_and_its_row_goes_lazily_or_by_a_purge() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let (store, other) = (scratch.open_with(&config), scratch.open());
        let clock = TestClock::at(1_000);
        clock.drive(&store);
        clock.drive(&other);
        for n in 0..600 {
            let value = vec![1; if n % 50 == 0 { 5_000 } else { 10 }];
            store.put_until(numbered(n), value, Expiry::At(2_000 + n as i64 % 3)).unwrap();
        }
        clock.set(1_999);
        assert_eq!((store.iter().count(), store.count_live().unwrap()), (600, 600));
        assert_eq!(store.purge_expired().unwrap(), 0);
        clock.set(2_000);
        assert_eq!((store.iter().count(), store.iter().rev().count()), (400, 400), "{name}");
        assert_eq!((store.count().unwrap(), store.count_live().unwrap()), (600, 400));
        assert_eq!(store.get_many([numbered(0), numbered(1)]).unwrap().iter().flatten().count(), 1);
        assert_eq!(store.count().unwrap(), 600); // neither has removed anything
        assert_eq!(store.get(numbered(0)).unwrap(), None);
        assert!(!store.exists(numbered(3)).unwrap());
        assert_eq!(store.ttl(numbered(6)).unwrap(), Some(Ttl::Remaining(Duration::ZERO)));
        assert_eq!(store.ttl(numbered(6)).unwrap(), None);
        assert_eq!((store.count().unwrap(), other.count().unwrap()), (597, 597), "{name}");
        // Lazily only if that disturbs nobody.
        other.begin(true).unwrap();
        assert_eq!(store.get(numbered(9)).unwrap(), None);
        other.rollback().unwrap();
        store.begin(false).unwrap();
        assert_eq!(store.get(numbered(9)).unwrap(), None);
        store.commit().unwrap();
        assert_eq!(store.count().unwrap(), 597, "{name}");
        store.begin(true).unwrap();
        assert_eq!(store.get(numbered(9)).unwrap(), None);
        assert_eq!(store.count().unwrap(), 596, "{name}");
        store.rollback().unwrap();
        assert_eq!(store.count().unwrap(), 597, "{name}");
        // Written again by another handle between the look and the removal, or before a purge.
        other.put_until(numbered(9), "new", Expiry::At(9_000)).unwrap();
        assert_eq!(store.get(numbered(9)).unwrap().as_deref(), Some(&b"new"[..]), "{name}");
        assert_eq!(store.purge_expired().unwrap(), 196, "{name}");
        clock.set(2_002);
        assert_eq!(store.purge_expired().unwrap(), 400);
        assert_eq!(keys(other.iter()), [numbered(9)]);
        is_sound(&scratch);
    }
}

#[test]
fn stores_with_a_clock_in_memory_behave_likewise() {
    let (store, clock) = memory_at(1_000);
    store.put_until("a", vec![1; 5_000], Expiry::At(1_001)).unwrap();
    assert!(store.exists("a").unwrap());
    clock.set(1_001);
    assert_eq!((store.get("a").unwrap(), store.count().unwrap()), (None, 0));
    store.integrity_check().unwrap();
}

// ---- threads -------------------------------------------------------------------------------------

#[test]
fn eight_threads_on_one_handle_and_four_handles_mix_everything_and_the_store_is_sound() {
    let scratch = Scratch::new();
    let config = patient().sync(SyncLevel::Off);
    let shared = scratch.open_with(&config);
    let own: Vec<Store> = (0..4).map(|n| scratch.open_with(&config.clone().sql_engine(n == 3))).collect();
    let committed = AtomicU64::new(0);
    let handles = std::iter::repeat_n(&shared, 8).chain(&own);
    thread::scope(|scope| {
        for (who, store) in handles.enumerate() {
            let committed = &committed;
            scope.spawn(move || {
                let mut random = Random(who as u64 + 1);
                for step in 0..150 {
                    let key = numbered(random.below(60) as usize);
                    match random.below(12) {
                        0 => drop(store.delete(&key).unwrap()),
                        1 => {
                            store.put_until(&key, vec![1; 6_000], Expiry::At(kvstore::now_ms() + 5)).unwrap()
                        }
                        2 => store.put(&key, vec![step; 300]).unwrap(),
                        3 => assert!(store.iter().all(|entry| entry.is_ok())),
                        4 => drop(store.purge_expired().unwrap()),
                        5 => drop(store.checkpoint(random.of(&MODES[..1]))),
                        6 => drop(store.get_many([&key, &numbered(1)]).unwrap()),
                        7 => {
                            let mut batch = store.batch();
                            batch.put(store, &key, "1", Expiry::At(LATER)).unwrap();
                            batch.delete(store, numbered(3)).unwrap();
                            batch.commit().unwrap();
                        }
                        8 => {
                            let name = format!("own {who}");
                            store.family_or_create(&name).unwrap().put(&key, "1").unwrap();
                            store.drop_family(&name).unwrap();
                        }
                        _ => {
                            store.increment("n", 1, Expiry::Never).unwrap();
                            committed.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                    let _ = (store.get(&key).unwrap(), store.exists("n").unwrap(), store.count().unwrap());
                }
            });
        }
    });
    for store in own.iter().chain([&shared]) {
        assert_eq!(value_of(store, "n"), committed.load(Ordering::SeqCst).to_string());
    }
    assert!(shared.families().unwrap().is_empty());
    shared.checkpoint(CheckpointMode::Truncate).unwrap();
    assert_eq!(wal_size(&scratch), 0);
    is_sound(&scratch);
}

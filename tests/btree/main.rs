//! The `btree` engine, which uses SQLite's B-trees directly: problems that can only occur below
//! SQL. Tested are schema changes, rollbacks, SQL between direct operations, rows on several pages,
//! kept snapshots, checkpoints, other processes, and damaged rows. Each answer is compared with
//! that of the `sql` engine on the same file.
//!
//! In a build without the `btree` engine these tests compare `sql` with itself, which is fast and
//! harmless.

mod checkpoints;
#[path = "../common/mod.rs"]
mod common;
mod foreign;
mod others;
mod pages;
mod schema;
mod stores;
mod transactions;

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use common::other::{Other, heard, role, say};
use common::{Random, Scratch, numbered};
use kvstore::{CheckpointMode, Config, Direction, Expiry, Family, KeyRange, Result, Store};

/// Far in the future, for the wall clock, too.
const LATER: i64 = 4_000_000_000_000;
const MODES: [CheckpointMode; 4] =
    [CheckpointMode::Passive, CheckpointMode::Full, CheckpointMode::Restart, CheckpointMode::Truncate];
/// Twice the number of bytes at which a checkpoint is due.
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

/// Checks the file with the library and with another copy of SQLite.
#[track_caller]
fn is_sound(scratch: &Scratch) {
    scratch.open().integrity_check().unwrap();
    assert_eq!(common::sqlite_check(&scratch.path()), "ok");
}

/// Returns all entries with their expiry times.
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

// ---- the other process ---------------------------------------------------------------------------

/// The module of the test `child`.
const MODULE: &str = module_path!();

/// Starts another process that opens the store. `how` consists of words understood by
/// [`configured`].
fn opened(path: &Path, how: &str) -> Other {
    let mut other = Other::start(MODULE, path, how);
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

/// Writes the same number under two keys, commit after commit. One of the values is too long for
/// its row.
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

/// Runs a command in the other process.
fn obey(store: &Store, words: &[&str]) -> Result<String> {
    let number = |word: &str| word.parse::<usize>().unwrap();
    let ok = |()| "ok".to_owned();
    let shown = |value: Option<Vec<u8>>| value.map_or("none".into(), |value| text(&value));
    match *words {
        ["put", key, value] => store.put(key, value).map(ok),
        ["put-in", family, key, value] => store.get_or_create_family(family)?.put(key, value).map(ok),
        ["get", key] => store.get(key).map(shown),
        ["get-in", family, key] => store.family(family)?.get(key).map(shown),
        ["count"] => store.count().map(|count| count.to_string()),
        ["fill", from, to, size] => {
            (number(from)..number(to)).try_for_each(|n| store.put(numbered(n), vec![7; number(size)])).map(ok)
        }
        ["create", family] => store.create_family(family).map(|_| "ok".into()),
        ["drop", family] => store.drop_family(family).map(ok),
        ["checkpoint", mode] => store.checkpoint(MODES[number(mode)]).map(|_| "ok".into()),
        ["begin", write] => common::begin(store, write == "1").map(ok),
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
        // Puts values until one fails. Answers how many it put, and the failure.
        ["fill-up", size] => loop {
            let n = store.count().unwrap_or(u64::MAX);
            let done = store.put_with_expiry(numbered(n as usize), vec![7; number(size)], Expiry::At(LATER));
            if let Err(e) = done {
                return Ok(format!("{n} {:?}", e.kind()));
            }
        },
        ["check"] => store.integrity_check().map(ok),
        _ => panic!("what is {words:?}?"),
    }
}

//! Very many families, iterators, handles, threads and keys, and the longest values.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use kvstore::{CheckpointMode, Config, Direction, ErrorKind, Expiry, JournalMode, KeyRange, Result, Store};
use kvstore::{MAX_VALUE_SIZE, SyncLevel};

use super::{assert_only_parked, descriptors, did, is_long, limit, memory, play};
use crate::common::numbered;

#[test]
fn very_many_families_can_be_created_and_dropped() {
    play("families");
}

pub fn families(dir: &Path) {
    // For each dropped table, SQLite searches its list of all tables, so dropping many at once
    // would take hours.
    let waves = if is_long() { [vec![5_000], vec![500; 190]].concat() } else { vec![2_000] };
    let path = dir.join("store.db");
    let store = Store::open(&path).unwrap();
    for (wave, count) in waves.iter().enumerate() {
        let names: Vec<String> = (0..*count).map(|n| format!("family {wave} {n}")).collect();
        come_and_go(&path, &store, &names);
    }
    store.incremental_vacuum(None).unwrap();
    store.checkpoint(CheckpointMode::Truncate).unwrap();
    store.integrity_check().unwrap();
    store.close().unwrap();
    let size = fs::metadata(&path).unwrap().len();
    assert!(size < 256 * 1024, "the file of an empty store has {size} bytes");
    did(format!("{} families, {} at once", waves.iter().sum::<usize>(), waves[0]));
}

fn come_and_go(path: &Path, store: &Store, names: &[String]) {
    for some in names.chunks(500) {
        store.transaction(|tx| some.iter().try_for_each(|name| tx.create_family(name).map(drop))).unwrap();
    }
    assert_eq!(store.family_names().unwrap().len(), names.len());
    // A second handle, which has to read the schema.
    let other = Store::open(path).unwrap();
    for name in names.iter().step_by(names.len() / 200) {
        let family = store.family(name).unwrap();
        family.put("a", name).unwrap();
        assert_eq!(other.family(name).unwrap().get("a").unwrap().as_deref(), Some(name.as_bytes()));
    }
    store.integrity_check().unwrap();
    other.close().unwrap();
    for some in names.chunks(500) {
        store.transaction(|tx| some.iter().try_for_each(|name| tx.drop_family(name))).unwrap();
    }
    assert_eq!(store.family_names().unwrap().len(), 0);
}

#[test]
fn very_many_open_iterators_outlive_their_store() {
    play("iterators");
}

pub fn iterators(dir: &Path) {
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
        // The iterators block no write and no checkpoint.
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
        assert_only_parked(before, "an iterator keeps a descriptor");
        for mut cursor in rest {
            assert_eq!(cursor.key(), None);
            assert_eq!(cursor.next().unwrap_err().kind(), ErrorKind::Misuse);
        }
        Store::open(&path).unwrap().integrity_check().unwrap();
    }
    did(format!("{COUNT} iterators, twice"));
}

#[test]
fn longest_value_is_stored_and_one_byte_more_is_refused() {
    play("longest-values");
}

pub fn longest_values(dir: &Path) {
    let longest = if is_long() { MAX_VALUE_SIZE } else { 64 << 20 };
    assert!(
        Store::open_in_memory(&Config::new().max_value_size(MAX_VALUE_SIZE + 1)).is_err(),
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
        store.put_with_expiry("k", &value, Expiry::At(i64::MAX)).unwrap();
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
        // A handle with a lower limit can read and replace existing longer values.
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
fn thousand_handles_can_open_one_file() {
    play("handles");
}

pub fn handles(dir: &Path) {
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
    // Readers that keep their snapshots do not block the checkpoint.
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
    assert_only_parked(before, "closed handles keep descriptors");
    assert!(!dir.join("store.db-wal").exists());
    Store::open(&path).unwrap().integrity_check().unwrap();
    did(format!("{COUNT} handles, {used} descriptors, opened in {opened:?}"));
}

#[test]
fn open_handle_uses_documented_number_of_descriptors() {
    play("descriptors");
}

pub fn descriptors_of_a_handle(dir: &Path) {
    for (mode, each) in [(JournalMode::Wal, 5), (JournalMode::Delete, 2)] {
        let path = dir.join(format!("{mode:?}.db"));
        let open = || {
            let store = Store::open_with(&path, &Config::new().journal_mode(mode)).unwrap();
            store.put("k", "1").unwrap();
            store.get("k").unwrap();
            store
        };
        let _first = [open(), open()]; // opens what the process needs only once
        let before = descriptors();
        let _ten: Vec<Store> = (0..10).map(|_| open()).collect();
        assert_eq!(descriptors() - before, 10 * each, "{mode:?}");
    }
}

#[test]
fn many_threads_open_and_close_stores_concurrently() {
    play("openers");
}

pub fn openers(dir: &Path) {
    limit(libc::RLIMIT_NOFILE, None);
    let rounds = if is_long() { 200 } else { 8 };
    let before = descriptors();
    std::thread::scope(|scope| {
        for thread in 0..64 {
            scope.spawn(move || {
                for round in 0..rounds {
                    // Half of the threads share a file, which is opened and closed with its first
                    // and last handle.
                    let name = if thread % 2 == 0 { "common".to_owned() } else { format!("own {thread}") };
                    let config = Config::new().busy_timeout(Duration::from_secs(60));
                    let store = Store::open_with(dir.join(name), &config).unwrap();
                    store.put(format!("{thread} {round}"), "1").unwrap();
                    store.close().unwrap();
                }
            });
        }
    });
    assert_only_parked(before, "closed stores keep descriptors");
    let store = Store::open(dir.join("common")).unwrap();
    assert_eq!(store.count().unwrap(), 32 * rounds);
    store.integrity_check().unwrap();
    did(format!("64 threads, {} opens", 64 * rounds));
}

#[test]
fn repeated_open_create_and_close_leak_nothing() {
    play("leaks");
}

pub fn leaks(dir: &Path) {
    let rounds = if is_long() { 20_000 } else { 200 };
    let path = dir.join("store.db");
    fs::write(dir.join("stranger"), b"no store, but a text").unwrap();
    let round = |number: usize| {
        let store = Store::open_with(&path, &Config::new().sql_engine(number % 2 == 1)).unwrap();
        store.put_with_expiry("k", vec![1; 3_000], Expiry::At(1)).unwrap();
        assert_eq!(store.get("k").unwrap(), None);
        let family = store.get_or_create_family("passing").unwrap();
        family.put("a", "1").unwrap();
        assert_eq!(family.iter().count(), 1);
        drop(family);
        store.drop_family("passing").unwrap();
        store.start_cleaner(Duration::from_secs(60), None).unwrap();
        // Opens that fail in different ways.
        assert!(Store::open(dir.join("stranger")).is_err());
        assert!(Store::open(dir.join("missing/store.db")).is_err());
        assert!(store.backup(&path, |_, _| true).is_err());
        assert!(store.backup(dir.join("stopped"), |_, _| false).is_err());
        assert!(store.begin_write().is_ok() && store.begin_write().is_err());
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
fn ten_million_keys_can_be_written_and_removed() {
    if is_long() {
        play("many-keys");
    }
}

pub fn many_keys(dir: &Path) {
    const COUNT: u64 = 10_000_000;
    let path = dir.join("store.db");
    let store = Store::open_with(&path, &Config::new().sync(SyncLevel::Off)).unwrap();
    let key = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
    for first in (0..COUNT).step_by(100_000) {
        store
            .transaction(|tx| {
                (first..first + 100_000).try_for_each(|n| {
                    let end = if n % 10 == 0 { Expiry::At(1) } else { Expiry::Never };
                    tx.put_with_expiry(key(n), n.to_le_bytes(), end)
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

//! Stores in memory, read-only stores, other journal modes; rows on several pages; the expiry of a
//! key.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Bound;
use std::path::Path;
use std::time::Duration;

use crate::common::cases::{ENGINES, each_case};
use kvstore::{
    CheckpointMode, Config, ErrorKind, Expiry, ExpiryCondition, JournalMode, Store, SyncLevel, Ttl,
};

use super::{LATER, Random, content, is_sound, kinds_of_handles, sql, value_of, wal_size};
use crate::common::other::{Other, as_unprivileged};
use crate::common::{Scratch, TestClock, keys, kind, memory_at, numbered, python, scan};

// ---- other sorts of stores -----------------------------------------------------------------------

/// Runs a history that uses every feature. Returns the answers.
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
            0..=3 => format!("{:?}", on.put_with_expiry(&key, &value, expiry)),
            4 => format!("{:?}", on.delete(&key)),
            5 => format!("{:?}", on.ttl(&key)),
            6 => format!("{:?}", keys(on.range(key..))),
            7 => format!("{:?}", keys(on.prefix("key").rev())),
            8 => format!("{:?}", on.purge_expired()),
            9 => format!("{:?} {:?}", on.count(), on.count_live()),
            10 => format!("{:?}", on.set_expiry(&key, expiry, ExpiryCondition::Always)),
            11 => format!("{:?}", crate::common::begin(store, random.below(2) == 0).map_err(|e| e.kind())),
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
fn all_store_kinds_answer_equally_in_both_engines() {
    let mut all = Vec::new();
    each_case(ENGINES, |sql_engine| {
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
    });
    for (n, answers) in all.iter().enumerate() {
        let differs = answers.iter().zip(&all[0]).position(|(a, b)| a != b);
        assert_eq!(differs, None, "store {n}");
    }
}

#[test]
fn read_only_handle_sees_commits_at_once_and_never_writes() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let clock = TestClock::at(1_000);
        let store = scratch.open_at(&clock);
        store.put_with_expiry("dies", "1", Expiry::At(1_500)).unwrap();
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

/// Starts this test program as the unprivileged user; `None` if that is not possible.
#[cfg(unix)]
fn unprivileged(path: &Path, how: &str) -> Option<Other> {
    use std::os::unix::fs::MetadataExt;
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    Some(Other::launch(as_unprivileged(folder.path()), super::MODULE, path, how))
}

#[cfg(unix)]
#[test]
fn reader_without_write_permission_reads_or_says_why_not() {
    use std::os::unix::fs::PermissionsExt;
    let allow = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let mut outcomes = Vec::new();
    for how in ["read-only", "read-only loose", "read-only sql"] {
        let scratch = Scratch::new();
        let store = scratch.open();
        store.put("a", "1").unwrap();
        store.put_with_expiry("b", vec![1; 5_000], Expiry::At(LATER)).unwrap();
        allow(scratch.dir(), 0o755);
        for file in [scratch.path(), scratch.wal(), scratch.shm()] {
            allow(&file, 0o644);
        }
        let mut outcome = Vec::new();
        // A writer has the store open: WAL and shared memory exist and are not writable.
        let Some(mut reader) = unprivileged(&scratch.path(), how) else { return };
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
        // No process has the store open: only the file exists.
        store.checkpoint(CheckpointMode::Truncate).unwrap();
        store.close().unwrap();
        let mut reader = unprivileged(&scratch.path(), how).unwrap();
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
fn handle_of_other_journal_mode_is_refused_or_shares_data() {
    each_case(ENGINES, |sql_engine| {
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
            first.put_with_expiry("b", round.to_string(), Expiry::At(LATER)).unwrap();
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
    });
}

// ---- rows on several pages -----------------------------------------------------------------------

#[test]
fn keys_and_values_of_all_sizes_match_sql_engine() {
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
                store.begin_write().unwrap();
            }
            for (len, n) in lengths.iter().flat_map(|len| (0..3u8).map(move |n| (*len, n))) {
                let key = key_of(len, n);
                let value = vec![n + round; random.of(&values)];
                let expiry = random.of(&[Expiry::Never, Expiry::At(2_000), Expiry::At(LATER)]);
                match random.below(6) {
                    0 => assert_eq!(store.delete(&key).unwrap(), model.remove(&key).is_some()),
                    1 => {
                        // A value of equal length, which is written in place.
                        if let Some((value, expiry)) = model.get_mut(&key) {
                            *value = vec![n ^ 0x55; Vec::len(value)];
                            store.put_with_expiry(&key, &*value, *expiry).unwrap();
                        }
                    }
                    2 => {
                        let there = model.get_mut(&key).map(|(_, end)| *end = expiry).is_some();
                        assert_eq!(
                            store.set_expiry(&key, expiry, ExpiryCondition::Always).unwrap().is_some(),
                            there
                        );
                    }
                    _ => {
                        store.put_with_expiry(&key, &value, expiry).unwrap();
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
                let after = (Bound::Excluded(prefix), Bound::Unbounded);
                assert_eq!(keys(store.range(after.clone())), keys(second.range(after)));
            }
            let mut ends: Vec<_> =
                model.iter().filter_map(|(key, (_, end))| Some((end.millis()?, key.clone()))).collect();
            ends.sort();
            let by_time = scan(&mut store.expiry_cursor(i64::MIN, i64::MAX));
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
fn values_around_inline_limit_move_between_row_and_blob() {
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
                store.put_with_expiry(&key, vec![n as u8; len], expiry).unwrap();
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

// ---- expiry --------------------------------------------------------------------------------------

#[test]
fn key_expires_exactly_for_every_call_and_row_is_removed() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let (store, other) = (scratch.open_with(&config), scratch.open());
        let clock = TestClock::at(1_000);
        clock.drive(&store);
        clock.drive(&other);
        for n in 0..600 {
            let value = vec![1; if n % 50 == 0 { 5_000 } else { 10 }];
            store.put_with_expiry(numbered(n), value, Expiry::At(2_000 + n as i64 % 3)).unwrap();
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
        assert_eq!((store.count().unwrap(), other.count().unwrap()), (597, 600), "{name}");
        store.put("next", "1").unwrap();
        assert!(store.delete("next").unwrap());
        assert_eq!((store.count().unwrap(), other.count().unwrap()), (597, 597), "{name}");
        // Reads note expired rows only where writing is permitted. A rollback keeps the note.
        store.begin_read().unwrap();
        assert_eq!(store.get(numbered(9)).unwrap(), None);
        store.commit().unwrap();
        assert_eq!(store.count().unwrap(), 597, "{name}");
        store.begin_write().unwrap();
        assert_eq!(store.get(numbered(9)).unwrap(), None);
        assert_eq!(store.count().unwrap(), 596, "{name}");
        store.rollback().unwrap();
        assert_eq!((store.count().unwrap(), other.count().unwrap()), (596, 597), "{name}");
        // Another handle writes the key again between the read and the removal, or before a purge.
        other.put_with_expiry(numbered(9), "new", Expiry::At(9_000)).unwrap();
        assert_eq!(store.get(numbered(9)).unwrap().as_deref(), Some(&b"new"[..]), "{name}");
        assert_eq!(store.purge_expired().unwrap(), 196, "{name}");
        clock.set(2_002);
        assert_eq!(store.purge_expired().unwrap(), 400);
        assert_eq!(keys(other.iter()), [numbered(9)]);
        is_sound(&scratch);
    }
}

#[test]
fn memory_store_with_clock_expires_keys() {
    let (store, clock) = memory_at(1_000);
    store.put_with_expiry("a", vec![1; 5_000], Expiry::At(1_001)).unwrap();
    assert!(store.exists("a").unwrap());
    clock.set(1_001);
    assert_eq!((store.get("a").unwrap(), store.count().unwrap()), (None, 0));
    store.integrity_check().unwrap();
}

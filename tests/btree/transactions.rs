//! Rollbacks, and SQL statements between operations that use the B-trees directly.

use std::env;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kvstore::{CheckpointMode, ErrorKind, Expiry, ExpiryCondition, Family, Store, SyncLevel, Ttl};

use super::{LATER, MODES, MODULE, Random, content, is_sound, kinds_of_handles, value_of};
use crate::common::other::Other;
use crate::common::{Scratch, TestClock, keys, kind, numbered, python};

// ---- rollback ------------------------------------------------------------------------------------

#[test]
fn rollback_resets_internal_cursors() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        store
            .transaction(|tx| {
                let mut even = (0..300).step_by(2);
                even.try_for_each(|n| tx.put_with_expiry(numbered(n), numbered(n), Expiry::At(LATER)))
            })
            .unwrap();
        let before = content(&store);
        for round in 0..8 {
            store.begin_write().unwrap();
            match round % 4 {
                0 => store.clear().unwrap(),
                1 => (0..300).for_each(|n| assert_eq!(store.delete(numbered(n)).unwrap(), n % 2 == 0)),
                2 => (0..1_500).for_each(|n| store.put(numbered(n), vec![1; 50]).unwrap()),
                _ => (0..300)
                    .for_each(|n| store.put_with_expiry(numbered(n), [1; 5_000], Expiry::At(1)).unwrap()),
            }
            let _ = (store.get(numbered(100)).unwrap(), store.count().unwrap());
            // At the end of the transaction, cursors are at rows that the rollback removes.
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
fn failed_write_undoes_transaction_and_handle_stays_usable() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let store = scratch.open();
        store.put("large", vec![1; 5_000]).unwrap();
        store.put("a", "1").unwrap();
        store.close().unwrap();
        python(&scratch.path(), "con.execute('delete from \"blob:default\"')");
        let (store, other) = (scratch.open_with(&config), scratch.open());
        for _ in 0..3 {
            store.begin_write().unwrap();
            store.put("a", "2").unwrap();
            let family = store.create_family("mine").unwrap();
            family.put("a", "mine").unwrap();
            assert_eq!(kind(store.put("large", vec![1; 6_000])), ErrorKind::Corrupt, "{name}");
            assert_eq!(value_of(&store, "a"), "1", "{name}");
            assert_eq!(kind(family.get("a")), ErrorKind::Error, "{name}");
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
        // Outside a transaction, the failed call is rolled back as a whole.
        assert_eq!(
            kind(store.put_with_expiry("large", vec![1; 6_000], Expiry::At(LATER))),
            ErrorKind::Corrupt
        );
        assert_eq!(store.ttl("large").unwrap(), Some(Ttl::None));
        assert!(store.delete("large").unwrap());
        is_sound(&scratch);
    }
}

#[test]
fn empty_transaction_does_not_affect_later_calls() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        store.put("a", "1").unwrap();
        for write in [false, true] {
            for end in [Store::commit, Store::rollback] {
                assert!(store.exists("a").unwrap());
                crate::common::begin(&store, write).unwrap();
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

/// Runs an operation that uses SQL.
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
        9 => drop(store.family_names().unwrap()),
        10 => drop(store.purge_step(Some(3), None).unwrap()),
        _ if !inside => store.sync().unwrap(),
        _ => drop(store.next_expiry_all_families().unwrap()),
    }
}

#[test]
fn interleaved_sql_changes_neither_rows_nor_transactions() {
    let clock = TestClock::at(1_000);
    let mut outcomes = Vec::new();
    for (_, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config.sync(SyncLevel::Off));
        clock.drive(&store);
        let mut random = Random(99);
        let mut made = Vec::new();
        for round in 0..9 {
            let family = store.get_or_create_family(&format!("f{round}")).unwrap();
            let inside = round % 3 != 0;
            if inside {
                store.begin_write().unwrap();
            }
            for step in 0..40 {
                let key = numbered(random.below(25) as usize);
                let large = vec![step; random.below(9_000) as usize];
                let expiry = random.of(&[Expiry::Never, Expiry::At(LATER), Expiry::At(LATER + 7)]);
                match random.below(8) {
                    0 => family.put(&key, &large).unwrap(), // the first large value makes a table
                    1 => family.put_with_expiry(&key, [step], expiry).unwrap(), // so does the first TTL
                    2 => drop(family.delete(&key).unwrap()),
                    3 => drop(family.set_expiry(&key, expiry, ExpiryCondition::Always).unwrap()),
                    4 if random.below(6) == 0 => family.clear().unwrap(),
                    5 => drop(family.put_if_absent(&key, &large, expiry).unwrap()),
                    _ if inside && step % 8 != 0 => {} // the check alone takes long
                    _ => anything_else(&store, &family, &mut random, inside, &scratch),
                }
                made.push((family.get(&key).unwrap(), family.expiry(&key).unwrap(), family.count().unwrap()));
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
fn first_ttl_or_large_value_is_written_atomically() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let (store, other) = (scratch.open_with(&config.busy_timeout(Duration::ZERO)), scratch.open());
        let family = store.create_family("f").unwrap();
        // Refused before any table is created.
        assert_eq!(kind(family.put_with_expiry("a", vec![1; 11 << 20], Expiry::At(LATER))), ErrorKind::Error);
        other.begin_write().unwrap();
        assert_eq!(
            kind(family.put_with_expiry("a", vec![1; 5_000], Expiry::At(LATER))),
            ErrorKind::Busy,
            "{name}"
        );
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
        family.put_with_expiry("b", vec![2; 5_000], Expiry::At(LATER)).unwrap();
        assert_eq!(python(&scratch.path(), tables), "5");
        assert_eq!(family.get("b").unwrap(), Some(vec![2; 5_000]));
        is_sound(&scratch);
    }
}

/// Starts a process that may not write files longer than this number of KiB. SQLite reports more
/// than that as a disk error.
fn limited(path: &Path, kib: u64, how: &str) -> Other {
    let mut shell = Command::new("sh");
    shell
        .arg("-c")
        .arg(format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", kib * 2))
        .arg("sh")
        .arg(env::current_exe().unwrap());
    let mut other = Other::launch(shell, MODULE, path, how);
    other.expect("open");
    other
}

#[test]
fn write_on_full_disk_leaves_nothing_and_handle_usable() {
    for how in ["default", "loose", "sql", "small", "small sql"] {
        let scratch = Scratch::new();
        let store = scratch.open();
        store.put("a", "1").unwrap();
        let mut other = limited(&scratch.path(), 400, how);
        let said = other.ask("fill-up 20000");
        let (done, error) = said.split_once(' ').unwrap();
        assert!(["Io", "Full"].contains(&error), "{how}: {said}");
        // Both processes see all acknowledged writes, and no other.
        assert!(done.parse::<u64>().unwrap() > 5, "{said}");
        assert_eq!(other.ask("count"), done, "{how}");
        assert_eq!(store.count().unwrap().to_string(), done, "{how}");
        other.run("check");
        // In a transaction: it has failed, some reads may fail too, and it is rolled back.
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

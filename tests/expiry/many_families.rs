//! Thousands of families, each with keys that expire.
//!
//! A purge finds what is expired without examining all families, and misses nothing, whichever
//! handle has changed something meanwhile. Work is counted instead of timed, where possible: in
//! pages that SQLite reads from its file. `KVSTORE_LIMITS=long` uses 10 000 families instead of
//! 2000.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::common::{Random, TestClock};
use crate::shim::{Call, Watch};
use crate::sqlite;
use kvstore::{Config, Error, Expiry, JournalMode, PurgeStep, Store};

const FEW: usize = 250;

fn many() -> usize {
    if std::env::var("KVSTORE_LIMITS").as_deref() == Ok("long") { 10_000 } else { 2_000 }
}

fn name(n: usize) -> String {
    format!("family {n}")
}

/// Expiry time of the key of the nth family.
fn end_of(n: usize) -> i64 {
    1_000_000 + n as i64
}

/// Creates a store of `count` families, with one key each.
fn make(path: &Path, count: usize) {
    let store = Store::open(path).unwrap();
    TestClock::at(1_000).drive(&store);
    store
        .transaction(|tx| {
            (0..count).try_for_each(|n| {
                tx.create_family(&name(n))?.put_with_expiry("key", "1", Expiry::At(end_of(n)))
            })
        })
        .unwrap();
    store.close().unwrap();
}

/// Both engines in both journal modes.
fn configs() -> impl Iterator<Item = Config> {
    let modes = [JournalMode::Wal, JournalMode::Delete];
    modes
        .into_iter()
        .flat_map(|mode| [false, true].map(|sql| Config::new().journal_mode(mode).sql_engine(sql)))
}

fn purged(deleted: u64) -> PurgeStep {
    PurgeStep { deleted, more: false }
}

/// Returns the number of pages that each of some calls reads from the files of a store with `count`
/// families.
fn pages_asked_for(config: &Config, count: usize) -> Vec<(&'static str, u64)> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    make(&path, count);
    let watch = Watch::on(dir.path(), false);
    let store = Store::open_with(&path, config).unwrap();
    TestClock::at(2_000).drive(&store);
    assert_eq!(store.purge_step(None, None).unwrap(), purged(0));
    let family = store.family(&name(count / 2)).unwrap();
    family.get("key").unwrap();
    let mut counted = Vec::new();
    let mut count_pages = |what, f: &mut dyn FnMut()| {
        f(); // only repeated reads count
        watch.count();
        f();
        counted.push((what, watch.calls(Call::Read) + watch.calls(Call::Fetch)));
    };
    count_pages("purge_step", &mut || assert_eq!(store.purge_step(None, None).unwrap(), purged(0)));
    count_pages("next_expiry", &mut || {
        assert_eq!(store.next_expiry_all_families().unwrap(), Some(end_of(0)))
    });
    count_pages("opening a family", &mut || drop(store.family(&name(count / 3)).unwrap()));
    count_pages("purge_expired", &mut || assert_eq!(family.purge_expired().unwrap(), 0));
    count_pages("a put, then purge_step", &mut || {
        family.put_with_expiry("other", "1", Expiry::At(end_of(count))).unwrap();
        assert_eq!(store.purge_step(None, None).unwrap(), purged(0));
    });
    count_pages("what is due in three families", &mut || {
        for n in [count / 2, 3, count - 1] {
            store.family(&name(n)).unwrap().put_with_expiry("due", "1", Expiry::At(1_500)).unwrap();
        }
        assert_eq!(store.purge_step(None, None).unwrap(), purged(3));
    });
    counted
}

#[test]
fn idle_cost_does_not_grow_with_number_of_families() {
    for config in configs() {
        let (few, many) = (pages_asked_for(&config, FEW), pages_asked_for(&config, many()));
        for ((what, few), (_, many)) in few.iter().zip(many) {
            // Some trees have one more level.
            assert!(
                many <= few + few / 2 + 8,
                "{what}: {few} pages, and {many} of more families; {config:?}"
            );
        }
    }
}

#[test]
fn purge_step_orders_keys_across_thousands_of_families() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    let count = many();
    make(&path, count);
    for config in configs() {
        let store = Store::open_with(&path, &config).unwrap();
        let clock = TestClock::at(2_000);
        clock.drive(&store);
        // Each family gets one more key, in the opposite order, between those of the other
        // families.
        store
            .transaction(|tx| {
                (0..count).try_for_each(|n| {
                    tx.family(&name(n))?.put_with_expiry("key", "1", Expiry::At(end_of(n)))?;
                    tx.family(&name(n))?.put_with_expiry("late", "1", Expiry::At(end_of(count - n)))
                })
            })
            .unwrap();
        let ends = |n: usize| 1 + u64::from(n > 0) * 2 * n as u64;
        for (now, max, deleted, more) in [
            (end_of(0) - 1, None, 0, false),
            (end_of(0), None, 1, false),
            (end_of(400), Some(300), 300, true),
            (end_of(400), None, ends(400) - 301, false),
            (end_of(400), None, 0, false),
            (end_of(401), Some(2), 2, false),
            (end_of(count), None, ends(count) - 1 - ends(401), false),
        ] {
            clock.set(now);
            let step = store.purge_step(max, None).unwrap();
            assert_eq!((step.deleted, step.more), (deleted, more), "{config:?}");
            if more {
                // The keys that expired first were removed.
                assert_eq!(store.next_expiry_all_families().unwrap(), Some(end_of(151)), "{config:?}");
            }
        }
        assert_eq!(store.next_expiry_all_families().unwrap(), None);
        assert_eq!(store.family(&name(count - 1)).unwrap().count().unwrap(), 0);
        store.close().unwrap();
    }
}

/// Expiry times of the keys, by family.
type Model = BTreeMap<String, BTreeMap<u64, i64>>;

/// Purges expired keys from the model.
fn purge(model: &mut Model, now: i64) -> u64 {
    let mut deleted = 0;
    for keys in model.values_mut() {
        let before = keys.len();
        keys.retain(|_, end| *end > now);
        deleted += (before - keys.len()) as u64;
    }
    deleted
}

/// Makes a random change to a store and to its model. Commits nothing by itself inside a
/// transaction.
fn change(store: &Store, model: &mut Model, random: &mut Random, now: i64) -> Result<(), Error> {
    let family = name(random.below(12) as usize);
    let key = random.below(4);
    let end = now + 1 + random.below(40) as i64;
    match random.below(8) {
        0 if model.contains_key(&family) => {
            store.drop_family(&family)?;
            model.remove(&family);
        }
        1 if model.contains_key(&family) => {
            store.family(&family)?.delete(key.to_be_bytes())?;
            model.get_mut(&family).map(|keys| keys.remove(&key));
        }
        2 if model.contains_key(&family) => {
            store.family(&family)?.clear()?;
            model.insert(family, BTreeMap::new());
        }
        _ => {
            store.get_or_create_family(&family)?.put_with_expiry(key.to_be_bytes(), "1", Expiry::At(end))?;
            model.entry(family).or_default().insert(key, end);
        }
    }
    Ok(())
}

#[test]
fn no_expired_key_is_missed_in_random_histories() {
    for (seed, config) in configs().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let clock = TestClock::at(1_000);
        let stores = [Store::open_with(&path, &config).unwrap(), Store::open_with(&path, &config).unwrap()];
        stores.iter().for_each(|store| clock.drive(store));
        let mut model = Model::new();
        let mut random = Random(0x9E37_79B9_7F4A_7C15 + seed as u64);
        for step in 0..1_500 {
            let context = format!("{config:?}, step {step}");
            let store = &stores[usize::from(random.below(3) == 0)];
            let now = clock.now();
            match random.below(10) {
                // A transaction, with a look at what is due in the middle of it.
                0 | 1 => {
                    let mut changed = model.clone();
                    store.begin_write().unwrap();
                    for _ in 0..random.below(4) {
                        change(store, &mut changed, &mut random, now).unwrap();
                    }
                    if random.below(2) == 0 {
                        assert_eq!(
                            store.purge_step(None, None).unwrap(),
                            purged(purge(&mut changed, now)),
                            "{context}"
                        );
                    }
                    let next = changed.values().flat_map(|keys| keys.values()).min().copied();
                    assert_eq!(store.next_expiry_all_families().unwrap(), next, "{context}");
                    if random.below(2) == 0 {
                        store.rollback().unwrap();
                    } else {
                        store.commit().unwrap();
                        model = changed;
                    }
                }
                // A batch fails, as a part of a transaction that is rolled back.
                2 => {
                    store.begin_write().unwrap();
                    let gone = store.create_family("gone").unwrap();
                    let mut batch = store.batch();
                    batch.put(&gone, "key", "1", Expiry::At(now)).unwrap();
                    drop(gone);
                    store.drop_family("gone").unwrap();
                    assert!(batch.commit().is_err(), "{context}");
                    store.rollback().unwrap();
                }
                3 => {
                    // A purge with a limit returns whether something is left.
                    let max = random.below(3);
                    let due = purge(&mut model.clone(), now);
                    let step = store.purge_step(Some(max), None).unwrap();
                    assert_eq!((step.deleted, step.more), (due.min(max), due > max), "{context}");
                    let rest = store.purge_step(None, None).unwrap();
                    assert_eq!(
                        (step.deleted + rest.deleted, rest.more),
                        (purge(&mut model, now), false),
                        "{context}"
                    );
                }
                4 => clock.set(now + random.below(10) as i64),
                5 => {
                    let next = model.values().flat_map(|keys| keys.values()).min().copied();
                    assert_eq!(store.next_expiry_all_families().unwrap(), next, "{context}");
                }
                _ => change(store, &mut model, &mut random, now).unwrap(),
            }
        }
        stores[0].integrity_check().unwrap();
    }
}

#[test]
fn family_renamed_by_other_program_is_purged() {
    for config in configs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let store = Store::open_with(&path, &config).unwrap();
        let clock = TestClock::at(1_000);
        clock.drive(&store);
        store.create_family("old").unwrap().put_with_expiry("key", "1", Expiry::At(2_000)).unwrap();
        assert_eq!(store.next_expiry_all_families().unwrap(), Some(2_000));
        sqlite::open(&path)
            .execute_batch(
                "BEGIN; DROP VIEW \"live:old\"; UPDATE kvstore_family SET name = 'new' WHERE name = 'old';
                 ALTER TABLE \"data:old\" RENAME TO \"data:new\";
                 ALTER TABLE \"ttl_key:old\" RENAME TO \"ttl_key:new\";
                 ALTER TABLE \"ttl_expiry:old\" RENAME TO \"ttl_expiry:new\"; COMMIT;",
            )
            .unwrap();
        clock.set(2_000);
        assert_eq!(store.purge_step(None, None).unwrap(), purged(1));
        assert_eq!(store.family("new").unwrap().count().unwrap(), 0);
        assert_eq!(store.next_expiry_all_families().unwrap(), None);
    }
}

#[test]
fn key_expiring_at_i64_max_is_found_as_next_expiry() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store.db")).unwrap();
    assert_eq!(store.next_expiry_all_families().unwrap(), None);
    store.create_family("a").unwrap().put("key", "1").unwrap();
    store.create_family("z").unwrap().put_with_expiry("key", "1", Expiry::At(i64::MAX)).unwrap();
    assert_eq!(store.next_expiry_all_families().unwrap(), Some(i64::MAX));
    assert_eq!(store.purge_step(None, None).unwrap(), purged(0));
    assert_eq!(store.next_expiry_all_families().unwrap(), Some(i64::MAX));
}

/// Returns the processor time of this thread, which excludes other programs on the machine.
#[allow(unsafe_code)]
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a clock of every thread, and room for the answer.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Measured in processor time, because the quadratic part was work of SQL in memory: when the list
/// of all tables was read again for each family, four times the families took 18 and 20 times as
/// long.
#[test]
fn check_and_repair_cost_is_linear_in_families() {
    let dir = tempfile::tempdir().unwrap();
    let [few, more] = [500, 2000].map(|count| {
        let path = dir.path().join(format!("{count}.db"));
        make(&path, count);
        let store = Store::open(&path).unwrap();
        TestClock::at(2_000).drive(&store);
        let took = |f: &mut dyn FnMut()| {
            (0..3)
                .map(|_| {
                    let started = processor_time();
                    f();
                    processor_time() - started
                })
                .min()
                .unwrap()
        };
        let check = took(&mut || store.integrity_check().unwrap());
        let repair = took(&mut || assert_eq!(store.repair().unwrap(), 0));
        println!("{count} families: check {check:?}, repair {repair:?}");
        (check, repair)
    });
    assert!(more.0 < few.0 * 10 && more.1 < few.1 * 10, "{few:?} {more:?}");
}

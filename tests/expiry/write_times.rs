//! Write tracking: write times, and the sweep. However a sweep is stopped, no row is half removed,
//! and every remaining row can still be removed.

use std::env;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::cases::{ENGINES, each_case, values};
use crate::common::{self, Scratch, TestClock, keys, kind, memory_at, numbered, other, python};
use kvstore::{
    Config, Error, ErrorKind, Eviction, Expiry, ExpiryCondition, PurgeStep, PutOptions, SizeLimit, Store,
};

const FILE: &str = "KVSTORE_TEST_FILE";
const CALLS: &str = "KVSTORE_TEST_CALLS";

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Values of several sizes, stored in their row or outside of it.
fn value(n: usize) -> Vec<u8> {
    vec![7; if n.is_multiple_of(5) { 600 } else { 6 }]
}

/// A store in memory that tracks writes, with its clock at 1 000.
fn tracked() -> (Store, TestClock) {
    let (store, clock) = memory_at(1_000);
    store.set_write_tracking(true).unwrap();
    (store, clock)
}

/// A store that tracks writes, with its clock at 1 000.
fn tracked_in(scratch: &Scratch) -> (Store, TestClock) {
    tracked_with(scratch, &Config::new())
}

fn tracked_with(scratch: &Scratch, config: &Config) -> (Store, TestClock) {
    let clock = TestClock::at(1_000);
    let store = scratch.open_with(config);
    clock.drive(&store);
    store.set_write_tracking(true).unwrap();
    (store, clock)
}

/// Puts `count` keys in one transaction.
fn fill(store: &Store, count: usize, expiry: Expiry) {
    store.begin_write().unwrap();
    for n in 0..count {
        store.put_with_expiry(numbered(n), value(n), expiry).unwrap();
    }
    store.commit().unwrap();
}

// ---- write times ---------------------------------------------------------------------------------

#[test]
fn write_sets_write_time_and_ttl_change_does_not() {
    let (store, clock) = tracked();
    assert!(store.tracks_writes().unwrap());
    each_case(values(), |value| {
        clock.set(clock.now() + 1_000);
        let written = clock.now();
        store.put("k", &value).unwrap();
        clock.set(written + 10);
        assert_eq!(store.write_time("k").unwrap(), Some(written));
        store.set_expiry("k", Expiry::At(written + 50_000), ExpiryCondition::Always).unwrap();
        store.get_and_set_expiry("k", Expiry::At(written + 60_000)).unwrap();
        store.persist("k").unwrap();
        assert_eq!(store.write_time("k").unwrap(), Some(written));
        store.put("k", &value).unwrap(); // an equal value is written, too
        assert_eq!(store.write_time("k").unwrap(), Some(written + 10));
        store.integrity_check().unwrap();
    });
    assert_eq!(store.write_time("missing").unwrap(), None);
    store.put_with_expiry("k", "1", Expiry::At(clock.now() + 5)).unwrap();
    clock.set(clock.now() + 5);
    assert_eq!(store.write_time("k").unwrap(), None);
}

#[test]
fn enabling_tracking_sets_write_time_of_existing_keys() {
    let (store, clock) = memory_at(1_000);
    fill(&store, 300, Expiry::Never);
    store.put_with_expiry("dies", "1", Expiry::At(1_500)).unwrap();
    clock.set(2_000);
    store.set_write_tracking(true).unwrap();
    for n in [0, 1, 299] {
        assert_eq!(store.write_time(numbered(n)).unwrap(), Some(2_000));
        assert_eq!(store.get(numbered(n)).unwrap(), Some(value(n)));
    }
    store.integrity_check().unwrap();
    clock.set(3_000);
    store.set_write_tracking(true).unwrap(); // it is on: nothing happens
    assert_eq!(store.write_time(numbered(0)).unwrap(), Some(2_000));
    assert_eq!(store.sweep(ms(1_000)).unwrap(), 0);
    assert_eq!(store.sweep(ms(999)).unwrap(), 300);
    assert_eq!(store.count().unwrap(), 0);
    store.integrity_check().unwrap();
}

#[test]
fn disabling_tracking_forgets_write_times() {
    let (store, clock) = tracked();
    fill(&store, 300, Expiry::Never);
    store.set_write_tracking(false).unwrap();
    assert!(!store.tracks_writes().unwrap());
    assert_eq!(kind(store.write_time(numbered(7))), ErrorKind::Error);
    assert_eq!(kind(store.sweep(Duration::ZERO)), ErrorKind::Error);
    assert_eq!(store.get(numbered(7)).unwrap(), Some(value(7)));
    store.integrity_check().unwrap();
    store.set_write_tracking(false).unwrap();
    clock.set(5_000);
    store.set_write_tracking(true).unwrap();
    assert_eq!(store.write_time(numbered(7)).unwrap(), Some(5_000));
    store.integrity_check().unwrap();
}

#[test]
fn tracking_applies_to_one_family_and_all_open_handles() {
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    let (a, b) = (scratch.open_at(&clock), scratch.open_at(&clock));
    let (of_a, of_b) = (a.create_family("f").unwrap(), b.family("f").unwrap());
    of_b.put("k", "1").unwrap(); // b has seen that it is off
    for on in [true, false, true] {
        clock.set(clock.now() + 100);
        of_a.set_write_tracking(on).unwrap();
        assert_eq!(of_b.tracks_writes().unwrap(), on);
        clock.set(clock.now() + 100);
        of_b.put("k", "2").unwrap();
        of_b.put("new", value(0)).unwrap();
        match on {
            true => assert_eq!(of_a.write_time("k").unwrap(), Some(clock.now())),
            false => assert_eq!(kind(of_a.write_time("k")), ErrorKind::Error),
        }
        a.integrity_check().unwrap();
    }
    assert!(!a.tracks_writes().unwrap());
    assert_eq!(kind(a.sweep(Duration::ZERO)), ErrorKind::Error);
    drop((of_a, of_b, a, b));
    let store = scratch.open_at(&clock);
    assert!(store.family("f").unwrap().tracks_writes().unwrap());
}

#[test]
fn rolled_back_tracking_change_has_no_effect() {
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    let (a, b) = (scratch.open_at(&clock), scratch.open_at(&clock));
    a.put("k", "1").unwrap();
    for on in [true, false] {
        a.begin_write().unwrap();
        a.set_write_tracking(on).unwrap();
        a.put("inside", value(0)).unwrap();
        assert_eq!(a.write_time("inside").ok(), on.then_some(Some(clock.now())));
        a.rollback().unwrap();
        for store in [&a, &b] {
            clock.set(clock.now() + 10);
            assert_eq!(store.tracks_writes().unwrap(), !on);
            store.put("k", "2").unwrap();
            assert_eq!(store.write_time("k").ok(), (!on).then_some(Some(clock.now())));
        }
        a.integrity_check().unwrap();
        a.set_write_tracking(on).unwrap();
    }
}

#[test]
fn recreated_family_does_not_track_writes() {
    let (store, _clock) = memory_at(1_000);
    let family = store.create_family("f").unwrap();
    family.set_write_tracking(true).unwrap();
    family.put("k", "1").unwrap();
    drop(family);
    store.drop_family("f").unwrap();
    let family = store.create_family("f").unwrap();
    assert!(!family.tracks_writes().unwrap());
    family.put("k", "1").unwrap();
    assert_eq!(kind(family.write_time("k")), ErrorKind::Error);
    store.integrity_check().unwrap();
}

#[test]
fn removing_keys_removes_their_write_times() {
    let (store, clock) = tracked();
    for key in ["deleted", "compared", "past", "lazy", "purged", "cleared"] {
        store.put_with_expiry(key, "1", Expiry::At(2_000)).unwrap();
    }
    store.delete("deleted").unwrap();
    store.compare_and_delete("compared", "1").unwrap();
    store.set_expiry("past", Expiry::At(1), ExpiryCondition::Always).unwrap();
    clock.set(2_000);
    store.get("lazy").unwrap();
    store.integrity_check().unwrap();
    // On a server a get removes nothing.
    assert_eq!(store.purge_expired().unwrap(), if common::are_on_a_server() { 3 } else { 2 });
    store.integrity_check().unwrap();
    store.put("cleared", "1").unwrap();
    store.clear().unwrap();
    store.integrity_check().unwrap();
    assert_eq!(store.sweep(Duration::ZERO).unwrap(), 0);
}

#[test]
fn put_option_sets_other_write_time() {
    each_case(ENGINES, |sql| {
        let store = common::memory_with(&Config::new().sql_engine(sql));
        let clock = TestClock::at(10_000);
        clock.drive(&store);
        let at = |written_ms| PutOptions::new().written_at(written_ms);
        store.put_with_options("before tracking", "1", &at(5)).unwrap();
        store.set_write_tracking(true).unwrap();
        assert_eq!(store.write_time("before tracking").unwrap(), Some(10_000));
        let [(_, small), (_, large)] = values();
        for (n, written_ms) in [0, 1, 9_999, 10_000, 20_000, i64::MAX].into_iter().enumerate() {
            let replaced = [(&small, &large), (&large, &large), (&large, &small)];
            for (m, (old, new)) in replaced.into_iter().enumerate() {
                let key = format!("{n} {m}");
                store.put(&key, old).unwrap();
                let options = at(written_ms).expiry(Expiry::At(50_000));
                assert!(store.put_with_options(&key, new, &options).unwrap(), "{key}");
                assert_eq!(store.write_time(&key).unwrap(), Some(written_ms), "{key}");
                assert_eq!(store.expiry(&key).unwrap(), Some(Expiry::At(50_000)), "{key}");
            }
        }
        assert!(!store.put_with_options("0 0", "1", &at(7).if_absent()).unwrap());
        assert_eq!(store.write_time("0 0").unwrap(), Some(0));
        store.integrity_check().unwrap();
        assert_eq!(kind(store.put_with_options("new", "1", &at(-1))), ErrorKind::Error);
        assert!(!store.exists("new").unwrap());
        // A sweep uses these times.
        assert_eq!(store.sweep(ms(9_000)).unwrap(), 6);
        clock.set(21_000);
        assert_eq!(store.sweep(ms(1_000)).unwrap(), 7);
        store.put("0 0", "1").unwrap(); // a plain put uses the present time
        assert_eq!(store.write_time("0 0").unwrap(), Some(21_000));
        assert_eq!(store.write_time("5 1").unwrap(), Some(i64::MAX));
        store.integrity_check().unwrap();
    });
}

#[test]
fn keys_with_oldest_write_time_are_evicted_first() {
    if common::is_of_a_file("a store on a server has no limit") {
        return;
    }
    let (store, _clock) = memory_at(1_000_000);
    store.set_size_limit(Some(SizeLimit::new(200_000, Eviction::Oldest))).unwrap();
    for n in 0..60 {
        store
            .put_with_options(numbered(n), [0; 2_000], &PutOptions::new().written_at(1000 - n as i64))
            .unwrap();
    }
    assert_eq!(store.stats().unwrap().evicted, 0);
    for n in 60..100 {
        store.put(numbered(n), [0; 2_000]).unwrap();
    }
    let evicted = store.stats().unwrap().evicted as usize;
    assert!(evicted > 0);
    let left: Vec<_> = (0..60 - evicted).chain(60..100).map(numbered).collect();
    assert_eq!(keys(store.iter()), left);
}

// ---- the sweep -----------------------------------------------------------------------------------

#[test]
fn sweep_removes_older_keys_and_keeps_keys_of_exact_age() {
    let (store, clock) = tracked();
    for (key, written) in [("a", 1_000), ("b", 1_001), ("c", 2_000), ("d", 3_000)] {
        clock.set(written);
        store.put(key, value(0)).unwrap();
    }
    clock.set(5_000);
    assert_eq!(store.sweep(ms(4_000)).unwrap(), 0);
    assert_eq!(store.sweep(ms(3_999)).unwrap(), 1);
    assert_eq!(keys(store.iter()), [b"b", b"c", b"d"]);
    assert_eq!(store.sweep(Duration::MAX).unwrap(), 0);
    store.put("b", "again").unwrap(); // recently written
    assert_eq!(store.sweep(ms(2_500)).unwrap(), 1);
    assert_eq!(keys(store.iter()), [b"b", b"d"]);
    assert_eq!(store.sweep(Duration::ZERO).unwrap(), 1); // written just now is not before now
    assert_eq!(keys(store.iter()), [b"b"]);
    store.integrity_check().unwrap();
}

#[test]
fn sweep_removes_keys_with_ttl_and_counts_only_live_ones() {
    let (store, clock) = tracked();
    store.put_with_expiry("expired", value(0), Expiry::At(2_000)).unwrap();
    store.put_with_expiry("alive", value(0), Expiry::At(9_000)).unwrap();
    store.put("permanent", value(1)).unwrap();
    clock.set(4_000);
    store.put("young", "1").unwrap();
    assert_eq!(store.sweep(ms(1_000)).unwrap(), 2);
    assert_eq!(store.count().unwrap(), 1);
    assert_eq!(store.next_expiry().unwrap(), None);
    store.integrity_check().unwrap();
}

#[test]
fn sweep_removes_all_in_steps_of_at_most_wal_pages_keys() {
    let sweeps = [("256 keys", (256, 1)), ("257 keys", (257, 2)), ("700 keys", (700, 3))];
    each_case(sweeps, |(count, steps)| {
        let scratch = Scratch::new();
        let (store, clock) = tracked_with(&scratch, &Config::new().wal_pages(64)); // the least is 256
        fill(&store, count, Expiry::At(50_000));
        clock.set(2_000);
        store.put("young", "1").unwrap();
        store.reset_stats().unwrap();
        assert_eq!(store.sweep(ms(500)).unwrap(), count as u64);
        let stats = store.stats().unwrap();
        assert_eq!(stats.deletes, count as u64);
        assert!((steps..100).contains(&stats.wal_commits), "{stats:?}"); // more on a slow machine
        assert_eq!(keys(store.iter()), [b"young"]);
        store.integrity_check().unwrap();
    });
}

#[test]
fn sweep_at_most_removes_oldest_and_reports_more() {
    let (store, clock) = tracked();
    fill(&store, 300, Expiry::Never);
    clock.set(2_000);
    store.put_with_expiry("dead", "1", Expiry::At(2_001)).unwrap();
    clock.set(2_500);
    store.put("young", "1").unwrap();
    let step = |deleted, more| PurgeStep { deleted, more };
    assert_eq!(store.sweep_at_most(1_000, 10).unwrap(), step(0, false));
    assert_eq!(store.sweep_at_most(2_500, 0).unwrap(), step(0, true));
    assert_eq!(store.sweep_at_most(2_500, 299).unwrap(), step(299, true));
    assert!(store.exists("young").unwrap());
    // The expired key counts toward the limit of two, but not as a live key.
    assert_eq!(store.sweep_at_most(2_500, 2).unwrap(), step(1, false));
    assert_eq!(store.count().unwrap(), 1);
    store.set_write_tracking(false).unwrap();
    assert_eq!(kind(store.sweep_at_most(2_500, 2)), ErrorKind::Error);
    store.integrity_check().unwrap();
}

#[test]
fn sweep_is_part_of_open_transaction() {
    let scratch = Scratch::new();
    let (store, clock) = tracked_in(&scratch);
    let other = scratch.open_at(&clock);
    fill(&store, 700, Expiry::At(50_000));
    clock.set(2_000);
    store.begin_write().unwrap();
    assert_eq!(store.sweep(ms(500)).unwrap(), 700);
    assert_eq!((store.count().unwrap(), other.count().unwrap()), (0, 700));
    store.rollback().unwrap();
    assert_eq!(store.count().unwrap(), 700);
    assert_eq!(store.write_time(numbered(699)).unwrap(), Some(1_000));
    store.integrity_check().unwrap();
    let undone: Result<(), Error> = store.transaction(|tx| {
        assert_eq!(tx.sweep(ms(500))?, 700);
        Err(Error::new(ErrorKind::Error, "undone"))
    });
    assert!(undone.is_err());
    store.transaction(|tx| tx.sweep(ms(500))).unwrap();
    assert_eq!((store.count().unwrap(), other.count().unwrap()), (0, 0));
    store.integrity_check().unwrap();
}

#[test]
fn failed_sweep_keeps_whole_rows_for_next_sweep() {
    if common::is_of_a_file("another program looks at the file") {
        return;
    }
    // One row of the second step is damaged: the first step is committed, the second has not
    // happened. When the damage is repaired, the next sweep removes the rest.
    let scratch = Scratch::new();
    let (store, clock) = tracked_with(&scratch, &Config::new().wal_pages(64)); // 256 keys in a step
    fill(&store, 600, Expiry::Never);
    clock.set(2_000);
    let set = |to: &str| {
        let sql =
            format!(r#"UPDATE "data:default" SET expire_ms = {to} WHERE key = CAST('key 000300' AS BLOB)"#);
        python(&scratch.path(), &format!("print(con.execute({sql:?}).rowcount)"))
    };
    assert_eq!(set("'damaged'"), "1");
    assert_eq!(kind(store.sweep(ms(500))), ErrorKind::Corrupt);
    let left = store.count().unwrap();
    assert!((300..600).contains(&left), "{left}"); // a step can end earlier on a slow machine
    let first = 600 - left as usize;
    assert_eq!(store.get(numbered(first - 1)).unwrap(), None);
    assert_eq!(store.get(numbered(first)).unwrap(), Some(value(first)));
    assert_eq!(store.write_time(numbered(299)).unwrap(), Some(1_000));
    assert_eq!(set("NULL"), "1");
    store.integrity_check().unwrap();
    assert_eq!(store.sweep(ms(500)).unwrap(), left);
    assert_eq!(store.count().unwrap(), 0);
    store.integrity_check().unwrap();
}

#[test]
fn busy_sweep_changes_nothing_and_can_be_retried() {
    let scratch = Scratch::new();
    let (a, clock) = tracked_in(&scratch);
    let b = scratch.open_at(&clock);
    fill(&a, 300, Expiry::Never);
    clock.set(2_000);
    b.begin_write().unwrap();
    if common::are_on_a_server() {
        // Rows that another client has locked are skipped.
        assert_eq!(b.sweep(ms(500)).unwrap(), 300);
        assert_eq!(a.sweep(ms(500)).unwrap(), 0);
    } else {
        assert_eq!(kind(a.sweep(ms(500))), ErrorKind::Busy);
    }
    assert_eq!(kind(a.set_write_tracking(false)), ErrorKind::Busy);
    assert_eq!(a.sweep(ms(5_000)).unwrap(), 0); // nothing to do: no lock needed
    b.rollback().unwrap();
    assert_eq!(a.count().unwrap(), 300);
    assert_eq!(a.sweep(ms(500)).unwrap(), 300);
}

#[test]
fn sweep_and_tracking_change_are_refused_when_read_only() {
    let scratch = Scratch::new();
    let (store, clock) = tracked_in(&scratch);
    store.put("k", "1").unwrap();
    clock.set(2_000);
    scratch.each_reader(&clock, |store| {
        assert_eq!(kind(store.sweep(ms(500))), ErrorKind::ReadOnly);
        assert_eq!(kind(store.set_write_tracking(false)), ErrorKind::ReadOnly);
        assert_eq!(store.write_time("k").unwrap(), Some(1_000));
        assert!(store.tracks_writes().unwrap());
    });
}

// ---- a crash in the middle -----------------------------------------------------------------------

#[test]
#[ignore = "no test, but the process that dies in the one below"]
fn child() {
    let (Ok(path), Ok(calls)) = (env::var(FILE), env::var(CALLS)) else { return };
    let left = AtomicUsize::new(calls.parse().unwrap());
    let store = Store::open_with(path, &Config::new().wal_pages(64)).unwrap(); // 256 keys in a step
    // The sweep reads the clock for every row with a TTL, so a clock can stop it there.
    store.set_clock(move || {
        if left.fetch_sub(1, Ordering::Relaxed) == 0 {
            std::process::abort();
        }
        2_000
    });
    store.sweep(ms(500)).unwrap();
}

/// Runs a sweep in a process that dies at a clock reading after `calls` readings.
fn sweep_and_die(path: &Path, calls: usize) {
    let output = other::child(module_path!()).env(FILE, path).env(CALLS, calls.to_string()).output().unwrap();
    assert!(!output.status.success(), "the process should have died");
}

#[test]
fn crash_during_sweep_leaves_only_whole_expirable_rows() {
    if common::is_of_a_file("the process dies at a write to the file") {
        return;
    }
    let deaths = [1, 100, 255, 256, 257, 300, 513, 600].map(|calls| (format!("after {calls} calls"), calls));
    each_case(deaths, |calls| {
        let scratch = Scratch::new();
        let (store, clock) = tracked_in(&scratch);
        fill(&store, 600, Expiry::At(3_000));
        drop(store);
        sweep_and_die(&scratch.path(), calls);
        clock.set(2_000);
        let store = scratch.open_at(&clock);
        store.integrity_check().unwrap();
        let left = store.count().unwrap();
        // A step can end before its 256 keys on a slow machine.
        assert!(600 - left < calls as u64, "{left} left");
        if calls >= 300 {
            assert!(left < 600, "{left} left");
        }
        for n in 0..600 {
            let alive = n as u64 >= 600 - left;
            assert_eq!(store.get(numbered(n)).unwrap(), alive.then(|| value(n)));
        }
        // Every remaining row can still be swept, and expires.
        assert_eq!(store.sweep(ms(500)).unwrap(), left);
        assert_eq!(store.count().unwrap(), 0);
        assert_eq!(store.next_expiry().unwrap(), None);
        store.integrity_check().unwrap();
    });
}

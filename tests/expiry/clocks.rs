//! Clocks that misbehave: set back, jumping, near the limits of 64 bits, standing still, or
//! different at each call. Expiry itself is tested in `basics.rs`, the effect of each write on a
//! TTL in `ttl_table.rs`.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{self, Scratch, TestClock, keys, numbered, scan};
use kvstore::{Config, Direction, Expiry, ExpiryCondition, KeyRange, PutOptions, Store, Ttl};

const MS: Duration = Duration::from_millis(1);
const HOUR: i64 = 3_600_000;
const YEAR: i64 = 365 * 24 * HOUR;
/// The time of an ordinary day.
const NOW: i64 = 1_800_000_000_000;

/// A store in memory for each engine, with its clock at `now_ms`.
fn of_both_engines(now_ms: i64) -> impl Iterator<Item = (Store, TestClock)> {
    [false, true].into_iter().map(move |sql| {
        let store = Store::open_in_memory(&Config::new().sql_engine(sql)).unwrap();
        let clock = TestClock::at(now_ms);
        clock.drive(&store);
        (store, clock)
    })
}

/// A clock that returns `now` before its call number `at`, and `then` from that call on.
fn leap(store: &Store, now: i64, at: usize, then: i64) -> Arc<AtomicUsize> {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    store.set_clock(move || if counted.fetch_add(1, Ordering::Relaxed) < at { now } else { then });
    calls
}

/// Returns, for each kind of read, whether it returns the key.
fn seen(store: &Store, key: &str) -> Vec<bool> {
    let mut backward = store.cursor(KeyRange::all(), Direction::Reverse);
    let mut sought = store.cursor(KeyRange::all(), Direction::Forward);
    vec![
        store.iter().any(|entry| entry.unwrap().0 == key.as_bytes()),
        store.prefix(key).count() > 0,
        scan(&mut backward).contains(&key.as_bytes().to_vec()),
        sought.seek(key).unwrap() && sought.key() == Some(key.as_bytes()),
        store.get_many([key]).unwrap()[0].is_some(),
        store.snapshot(|tx| tx.get(key)).unwrap().is_some(),
        store.get_with(key, |_, _| ()).unwrap().is_some(),
        store.expiry(key).unwrap().is_some(),
        store.ttl(key).unwrap().is_some_and(|ttl| ttl != Ttl::Remaining(Duration::ZERO)),
        store.exists(key).unwrap(),
    ]
}

#[track_caller]
fn assert_seen(store: &Store, key: &str, is_there: bool) {
    let seen = seen(store, key);
    assert!(seen.iter().all(|shown| *shown == is_there), "{key} is to be there: {is_there}; {seen:?}");
}

// ---- set back, set forward -----------------------------------------------------------------------

#[test]
fn expired_keys_stay_expired_if_clock_goes_back_one_hour() {
    for (store, clock) in of_both_engines(NOW) {
        store.set_write_tracking(true).unwrap();
        for key in ["dead", "counter", "swap", "lease"] {
            store.put_with_expiry(key, "7", Expiry::At(NOW + 10)).unwrap();
        }
        store.put_with_expiry("alive", "1", Expiry::At(NOW + HOUR)).unwrap();
        clock.set(NOW + 10);
        assert!(!store.exists("missing").unwrap());
        assert_eq!(store.count_live().unwrap(), 1); // the clock has been asked
        clock.set(NOW - HOUR);
        assert_seen(&store, "dead", false);
        assert_seen(&store, "alive", true);
        assert_eq!(store.increment("counter", 1, None).unwrap(), 1);
        assert!(!store.compare_and_swap("swap", "7", "8", Expiry::Never).unwrap());
        assert!(store.put_if_absent("lease", "8", Expiry::Never).unwrap());
        assert_eq!(store.set_expiry("swap", Expiry::Never, ExpiryCondition::Always).unwrap(), None);
        // A TTL counts from the latest clock reading, so that a key never expires before one
        // written earlier.
        store.put_with_ttl("new", "1", MS).unwrap();
        assert_eq!(store.expiry("new").unwrap(), Some(Expiry::At(NOW + 11)));
        assert_eq!(store.write_time("new").unwrap(), Some(NOW + 10));
        assert_eq!(store.purge_expired().unwrap(), 1); // "swap": the other keys are removed or new
        assert_eq!(store.sweep(HOUR.unsigned_abs() as u32 * MS).unwrap(), 0);
        store.integrity_check().unwrap();
    }
}

#[test]
fn clock_one_year_ahead_expires_only_keys_with_earlier_ttl() {
    for (store, clock) in of_both_engines(NOW) {
        store.set_default_ttl(Some(Duration::from_secs(60))).unwrap();
        store.put("by default", "1").unwrap();
        store.put_with_expiry("for ever", "1", Expiry::Never).unwrap();
        store.put_with_expiry("in two years", "1", Expiry::At(NOW + 2 * YEAR)).unwrap();
        clock.set(NOW + YEAR);
        assert_seen(&store, "by default", false);
        assert_seen(&store, "for ever", true);
        assert_seen(&store, "in two years", true);
        store.put("by default", "2").unwrap();
        assert_seen(&store, "by default", true);
        assert_eq!(store.expiry("by default").unwrap(), Some(Expiry::At(NOW + YEAR + 60_000)));
        assert_eq!(store.purge_expired().unwrap(), 0);
        assert_eq!((store.count().unwrap(), store.count_live().unwrap()), (3, 3));
        store.integrity_check().unwrap();
    }
}

#[test]
fn all_calls_work_with_clock_in_1970() {
    for now in [0, -1, i64::MIN] {
        for (store, clock) in of_both_engines(now) {
            store.set_write_tracking(true).unwrap();
            store.put_with_ttl("a", "1", 5 * MS).unwrap();
            assert_eq!(store.expiry("a").unwrap(), Some(Expiry::At(5)));
            assert_eq!(store.write_time("a").unwrap(), Some(0));
            assert_eq!(store.sweep(Duration::ZERO).unwrap(), 0);
            assert_eq!(store.sweep(Duration::MAX).unwrap(), 0);
            assert_eq!(store.purge_before(i64::MIN).unwrap(), 0);
            assert_eq!(store.purge_expired().unwrap(), 0);
            assert_seen(&store, "a", true);
            // The time arrives from the network.
            clock.set(NOW);
            assert_seen(&store, "a", false);
            assert_eq!(store.sweep(MS).unwrap(), 0); // the read has removed its row
            assert_eq!(store.count().unwrap(), 0);
            store.integrity_check().unwrap();
        }
    }
}

// ---- the ends of time ----------------------------------------------------------------------------

#[test]
fn clock_near_i64_max_works_normally() {
    let last = i64::MAX;
    for (store, clock) in of_both_engines(last - 2) {
        store.set_write_tracking(true).unwrap();
        store.put_with_expiry("last", "1", Expiry::At(last)).unwrap();
        store.put_with_expiry("before", "1", Expiry::At(last - 1)).unwrap();
        store.put_with_ttl("saturated", "1", Duration::MAX).unwrap();
        store.put("for ever", "1").unwrap();
        assert_eq!(store.ttl("last").unwrap(), Some(Ttl::Remaining(2 * MS)));
        assert_eq!(store.next_expiry().unwrap(), Some(last - 1));
        let times = |store: &Store, from, to| scan(&mut store.expiry_cursor(from, to)).len();
        // A range up to the last moment includes everything.
        assert_eq!(times(&store, i64::MIN, last), 3);
        assert_eq!(times(&store, last - 1, last), 3);
        assert_eq!(times(&store, last, last), 2);
        assert_eq!(times(&store, i64::MIN, last - 1), 0);
        assert_eq!(times(&store, last, i64::MIN), 0);
        clock.set(last - 1);
        assert_seen(&store, "before", false);
        assert_seen(&store, "last", true);
        assert_eq!(store.purge_before(last).unwrap(), 0);
        assert_eq!(store.increment("n", 1, Expiry::At(last)).unwrap(), 1);
        clock.set(last);
        assert_eq!(keys(store.iter()), [b"for ever"]);
        // No expiry time lies beyond the last moment: this key has expired at once.
        store.put_with_ttl("too late", "1", Duration::MAX).unwrap();
        assert_seen(&store, "too late", false);
        assert_eq!(store.sweep(Duration::ZERO).unwrap(), 1);
        assert_eq!(store.purge_before(last).unwrap(), 0);
        assert_eq!(store.purge_expired().unwrap(), 0);
        assert_eq!(store.count().unwrap(), 0);
        store.integrity_check().unwrap();
    }
}

#[test]
fn expiry_at_i64_max_is_harmless_at_ordinary_time() {
    for (store, clock) in of_both_engines(NOW) {
        store.put_with_expiry("last", "1", Expiry::At(i64::MAX)).unwrap();
        assert_eq!(
            store.ttl("last").unwrap(),
            Some(Ttl::Remaining(Duration::from_millis(i64::MAX.abs_diff(NOW))))
        );
        assert_eq!(
            store.set_expiry("last", Expiry::At(i64::MAX), ExpiryCondition::Later).unwrap(),
            Some(false)
        );
        assert_eq!(store.set_expiry("last", Expiry::Never, ExpiryCondition::Later).unwrap(), Some(true));
        store.put_with_expiry("last", "1", Expiry::At(i64::MAX)).unwrap();
        for cutoff in [i64::MIN, -1, 0, 1, NOW, i64::MAX] {
            assert_eq!(store.purge_before(cutoff).unwrap(), 0);
        }
        assert_eq!(store.purge_step(None, Some(Duration::MAX)).unwrap().deleted, 0);
        clock.set(0);
        assert_eq!(store.next_expiry_all_families().unwrap(), Some(i64::MAX));
        assert_seen(&store, "last", true);
    }
}

/// The functions of `kvstore.h` that take times, called with the ends of their range.
#[allow(non_camel_case_types)]
mod c {
    use super::*;
    unsafe extern "C" {
        pub fn kvstore_open(path: *const c_char, kv: *mut *mut c_void, mode: c_int) -> c_int;
        pub fn kvstore_close(kv: *mut c_void) -> c_int;
        pub fn kvstore_set_clock(
            kv: *mut c_void,
            now: Option<extern "C" fn(*mut c_void) -> i64>,
            context: *mut c_void,
        ) -> c_int;
        pub fn kvstore_put_ttl(
            kv: *mut c_void,
            key: *const c_void,
            n: c_int,
            value: *const c_void,
            n_value: c_int,
            expire_ms: i64,
        ) -> c_int;
        pub fn kvstore_ttl_remaining(kv: *mut c_void, key: *const c_void, n: c_int, left: *mut i64) -> c_int;
        pub fn kvstore_cf_get_default(kv: *mut c_void, cf: *mut *mut c_void) -> c_int;
        pub fn kvstore_cf_close(cf: *mut c_void);
        pub fn kvstore_cf_set_default_ttl(cf: *mut c_void, ttl_ms: i64) -> c_int;
        pub fn kvstore_cf_sweep(cf: *mut c_void, max_age_ms: i64, deleted: *mut i64) -> c_int;
        pub fn kvstore_cf_purge_before(cf: *mut c_void, cutoff_ms: i64, deleted: *mut i64) -> c_int;
        pub fn kvstore_purge_step(
            kv: *mut c_void,
            keys: i64,
            ms: i64,
            deleted: *mut i64,
            more: *mut c_int,
        ) -> c_int;
        pub fn kvstore_cleaner_start(kv: *mut c_void, interval_ms: i64, max_keys: i64) -> c_int;
    }

    pub extern "C" fn now(context: *mut c_void) -> i64 {
        // SAFETY: the context is the time, which outlives the clock.
        unsafe { &*context.cast::<AtomicI64>() }.load(Ordering::Relaxed)
    }
}

#[test]
fn c_functions_accept_any_64_bit_time() {
    if common::is_of_a_file("it has a clock of its own") {
        return;
    }
    const EDGES: [i64; 9] = [i64::MIN, i64::MIN + 1, -1, 0, 1, NOW, i64::MAX / 2, i64::MAX - 1, i64::MAX];
    let scratch = Scratch::new();
    let path = std::ffi::CString::new(scratch.path().to_str().unwrap()).unwrap();
    let time = AtomicI64::new(0);
    let (mut kv, mut cf) = (std::ptr::null_mut(), std::ptr::null_mut());
    let (mut number, mut more) = (0i64, 0);
    // SAFETY: every pointer is to a value that lives to the end of the test, and the handles are open.
    unsafe {
        assert_eq!(c::kvstore_open(path.as_ptr(), &raw mut kv, 1), 0);
        assert_eq!(c::kvstore_cf_get_default(kv, &raw mut cf), 0);
        assert_eq!(c::kvstore_set_clock(kv, Some(c::now), (&raw const time).cast_mut().cast()), 0);
        let key = c"k".as_ptr().cast::<c_void>();
        for now in EDGES {
            time.store(now, Ordering::Relaxed);
            for edge in EDGES {
                let put = c::kvstore_put_ttl(kv, key, 1, key, 1, edge);
                // -1 is KVSTORE_NO_TTL. While the clock is past 2001, a time in 1970 is a mistake.
                let is_accepted = edge >= -1 && !(edge == 1 && now >= NOW);
                assert_eq!(put == 0, is_accepted, "put until {edge} at {now}");
                if is_accepted {
                    let found = c::kvstore_ttl_remaining(kv, key, 1, &raw mut number);
                    assert!(found == 0 && number >= -1 || number == -2 || number == 0, "{found} {number}");
                }
                c::kvstore_cf_purge_before(cf, edge, &raw mut number);
                let set = c::kvstore_cf_set_default_ttl(cf, edge);
                assert_eq!(set == 0, (0..=1).contains(&edge), "a default TTL of {edge}");
                c::kvstore_cf_sweep(cf, edge, &raw mut number);
                for other in EDGES {
                    let step = c::kvstore_purge_step(kv, edge, other, &raw mut number, &raw mut more);
                    assert_eq!(step == 0, edge >= 0 && other >= 0, "a step of {edge} keys, {other} ms");
                }
            }
        }
        // The longest interval: the cleaner waits, and the close does not.
        assert_eq!(c::kvstore_cleaner_start(kv, i64::MAX, i64::MAX), 0);
        c::kvstore_cf_close(cf);
        assert_eq!(c::kvstore_close(kv), 0);
    }
    scratch.open().integrity_check().unwrap();
}

// ---- a millisecond -------------------------------------------------------------------------------

#[test]
fn ttl_of_one_millisecond_is_exact_for_every_write() {
    type Give = fn(&Store, Expiry);
    let give: [(&str, Give); 9] = [
        ("put_ttl", |store, _| store.put_with_ttl("k", "1", MS).unwrap()),
        ("put_until", |store, end| store.put_with_expiry("k", "1", end).unwrap()),
        ("put_if_absent", |store, end| assert!(store.put_if_absent("k", "1", end).unwrap())),
        ("put_with", |store, end| {
            assert!(store.put_with_options("k", "1", &PutOptions::new().expiry(end).if_absent()).unwrap());
        }),
        ("increment", |store, end| assert_eq!(store.increment("k", 1, end).unwrap(), 1)),
        ("swap", |store, end| {
            store.put("k", "0").unwrap();
            assert!(store.compare_and_swap("k", "0", "1", end).unwrap());
        }),
        ("expire", |store, end| {
            store.put("k", "1").unwrap();
            assert_eq!(store.set_expiry("k", end, ExpiryCondition::Always).unwrap(), Some(true));
        }),
        ("get_and_expire", |store, end| {
            store.put("k", "1").unwrap();
            assert!(store.get_and_set_expiry("k", end).unwrap().is_some());
        }),
        ("batch", |store, end| {
            let mut batch = store.batch();
            batch.put(store, "k", "1", end).unwrap();
            batch.commit().unwrap();
        }),
    ];
    for (name, give) in give {
        for (store, clock) in of_both_engines(NOW) {
            give(&store, Expiry::At(NOW + 1));
            let alive = seen(&store, "k");
            assert!(alive.iter().all(|shown| *shown), "{name}: {alive:?}");
            clock.set(NOW + 1);
            assert_seen(&store, "k", false);
            give(&store, Expiry::At(NOW + 2));
            assert_seen(&store, "k", true);
            // A key that expires now does not exist at all.
            if !matches!(name, "put_ttl" | "put_if_absent" | "put_with" | "increment") {
                give(&store, Expiry::At(NOW + 1));
                assert_seen(&store, "k", false);
            }
            store.integrity_check().unwrap();
        }
    }
}

// ---- leaps in the middle -------------------------------------------------------------------------

/// 600 keys that have expired at `NOW`, 600 that expire an hour later, and 600 without expiry time.
fn fill(store: &Store) {
    TestClock::at(NOW).drive(store);
    store
        .transaction(|tx| {
            for n in 0..1_800 {
                let end = [Expiry::At(NOW), Expiry::At(NOW + HOUR), Expiry::Never][n % 3];
                tx.put_with_expiry(numbered(n), "v", end)?;
            }
            Ok::<(), kvstore::Error>(())
        })
        .unwrap();
}

#[test]
fn clock_jump_during_purge_removes_no_live_key() {
    for at in [0, 1, 2, 3, 5, 40] {
        for (store, _) in of_both_engines(NOW) {
            fill(&store);
            leap(&store, NOW, at, NOW + YEAR);
            let purged = store.purge_expired().unwrap();
            // A purge uses one clock reading, its first.
            assert_eq!(purged, if at == 0 { 1_200 } else { 600 }, "a jump at call {at}");
            store.integrity_check().unwrap();
            TestClock::at(NOW + YEAR).drive(&store);
            assert_eq!(store.count_live().unwrap(), 600);
            let rest = store.purge_step(None, None).unwrap();
            assert_eq!((rest.deleted + purged, rest.more), (1_200, false));
            assert_eq!(keys(store.iter()).len(), 600);
            store.integrity_check().unwrap();
        }
    }
}

#[test]
fn clock_jump_back_during_purge_step_has_no_effect() {
    for (store, _) in of_both_engines(NOW) {
        fill(&store);
        leap(&store, NOW + HOUR, 1, 0);
        let step = store.purge_step(None, None).unwrap();
        assert_eq!((step.deleted, step.more), (1_200, false));
        store.integrity_check().unwrap();
    }
}

#[test]
fn clock_jump_during_sweep_keeps_later_writes() {
    for at in [0, 1, 2, 300, 600] {
        for (store, _) in of_both_engines(NOW) {
            store.set_write_tracking(true).unwrap();
            for n in 0..300 {
                store.put(numbered(n), "v").unwrap();
            }
            TestClock::at(NOW + HOUR).drive(&store);
            for n in 300..600 {
                store.put(numbered(n), "v").unwrap();
            }
            leap(&store, NOW + HOUR, at, NOW + YEAR);
            let swept = store.sweep(MS).unwrap();
            assert_eq!(swept, if at == 0 { 600 } else { 300 }, "a jump at call {at}");
            store.integrity_check().unwrap();
        }
    }
}

#[test]
fn iterator_returns_no_key_expired_at_time_of_call() {
    for at in [0, 1, 2, 10, 33, 34, 100, 161, 500, 700, 1_000] {
        for (store, _) in of_both_engines(NOW) {
            fill(&store);
            let calls = leap(&store, NOW - 1, at, NOW + HOUR);
            let mut cursor = store.cursor(KeyRange::all(), Direction::Forward);
            let mut shown = [0; 3];
            let mut is_at = cursor.first().unwrap();
            let mut has_leapt = at == 0;
            while is_at {
                let end = cursor.expiry().unwrap();
                let dead = end.millis().is_some_and(|end| end <= NOW + HOUR);
                assert!(!(has_leapt && dead), "a jump at call {at}: an expired key");
                shown[usize::from(dead) + usize::from(end == Expiry::At(NOW + HOUR))] += 1;
                has_leapt = calls.load(Ordering::Relaxed) > at;
                is_at = cursor.next().unwrap();
            }
            assert_eq!(shown[0], 600, "keys that never die");
        }
    }
    // Like above, with a clock that jumps between two moves, whatever was read ahead.
    for at in [1, 2, 30, 31, 32, 33, 160, 1_000] {
        for (store, _) in of_both_engines(NOW) {
            fill(&store);
            let clock = TestClock::at(NOW - 1);
            clock.drive(&store);
            let mut iter = store.iter();
            assert_eq!(iter.by_ref().take(at).count(), at);
            clock.set(NOW + HOUR);
            for entry in iter {
                let key = entry.unwrap().0;
                assert_eq!(store.expiry(&key).unwrap(), Some(Expiry::Never), "a leap after {at} keys");
            }
        }
    }
}

/// Clocks that return a different time at each call, also during one operation.
#[test]
fn expired_key_never_reappears_under_jumping_clock() {
    for sql in [false, true] {
        for seed in 1..=6u64 {
            jump_about(sql, seed);
        }
    }
}

fn jump_about(sql: bool, seed: u64) {
    let store = Store::open_in_memory(&Config::new().sql_engine(sql)).unwrap();
    let state = Mutex::new((seed.wrapping_mul(0x9E37_79B9_7F4A_7C15), NOW));
    // The greatest time that the clock has returned, which the store uses.
    let latest = Arc::new(AtomicI64::new(0));
    let told = Arc::clone(&latest);
    let next = move |random: &mut u64| {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        *random >> 8
    };
    store.set_clock(move || {
        let (random, time) = &mut *state.lock().unwrap();
        let jump = (next(random) % 30).cast_signed();
        *time += jump;
        let time = match next(random) % 8 {
            0 => *time - HOUR,
            1 => 0,
            2 => i64::MIN,
            _ => *time,
        };
        told.fetch_max(time, Ordering::Relaxed);
        time
    });
    store.set_write_tracking(true).unwrap();
    let mut random = seed;
    let mut ends: Vec<Option<i64>> = vec![None; 8];
    for step in 0..1_500 {
        let key = usize::try_from(next(&mut random) % 8).unwrap();
        let name = numbered(key);
        let now = latest.load(Ordering::Relaxed);
        let end = now + 1 + (next(&mut random) % 400).cast_signed();
        let must_be_dead = ends[key].is_none_or(|end| end <= now);
        let found = match next(&mut random) % 10 {
            0 => {
                store.put_with_expiry(&name, "7", Expiry::At(end)).unwrap();
                ends[key] = Some(end);
                continue;
            }
            1 => {
                if store.put_if_absent(&name, "7", Expiry::At(end)).unwrap() {
                    ends[key] = Some(end);
                } else {
                    assert!(!must_be_dead, "step {step}: an expired key is present");
                }
                continue;
            }
            2 => store.set_expiry(&name, Expiry::At(end), ExpiryCondition::Always).unwrap().is_some_and(
                |changed| {
                    assert!(changed);
                    ends[key] = Some(end);
                    true
                },
            ),
            3 => {
                store.purge_expired().unwrap();
                continue;
            }
            4 => {
                store.sweep(Duration::from_millis(300)).unwrap();
                continue;
            }
            5 => store.prefix(&name).count() > 0,
            6 => store.exists(&name).unwrap(),
            7 => store.delete(&name).unwrap(),
            _ => store.get(&name).unwrap().is_some(),
        };
        assert!(!(found && must_be_dead), "step {step}, seed {seed}: an expired key was found");
    }
    store.integrity_check().unwrap();
}

// ---- a clock that stands still -------------------------------------------------------------------

#[test]
fn all_calls_work_under_stopped_clock() {
    for (store, clock) in of_both_engines(NOW) {
        store.set_write_tracking(true).unwrap();
        store.set_default_ttl(Some(MS)).unwrap();
        for n in 1..=1_000 {
            assert_eq!(store.increment("counter", 1, None).unwrap(), n);
            store.put(numbered(n as usize), "v").unwrap();
        }
        assert_eq!(store.count_live().unwrap(), 1_001);
        assert_eq!((store.purge_expired().unwrap(), store.sweep(Duration::ZERO).unwrap()), (0, 0));
        assert_eq!(store.write_time("counter").unwrap(), Some(NOW));
        assert_eq!(scan(&mut store.expiry_cursor(NOW, NOW + 2)).len(), 1_001);
        clock.set(NOW + 1);
        assert_eq!(store.count_live().unwrap(), 0);
        // All keys expire at the same moment; the counter starts again.
        assert_eq!(store.increment("counter", 1, None).unwrap(), 1);
        assert_eq!(store.purge_expired().unwrap(), 1_000);
        assert_eq!(store.sweep(Duration::ZERO).unwrap(), 0);
        clock.set(NOW + 2);
        assert_eq!(store.sweep(Duration::ZERO).unwrap(), 0); // the key has expired, too
        assert_eq!(store.count().unwrap(), 0);
        store.integrity_check().unwrap();
    }
}

// ---- a clock that is replaced --------------------------------------------------------------------

#[test]
fn clock_may_be_replaced_during_iteration_and_calls() {
    for (store, _) in of_both_engines(NOW) {
        fill(&store);
        let mut cursor = store.cursor(KeyRange::all(), Direction::Forward);
        assert!(cursor.first().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..200 {
                    if n % 2 == 0 {
                        store.use_system_clock();
                    } else {
                        store.set_clock(move || NOW + n);
                    }
                }
                TestClock::at(NOW).drive(&store);
            });
            for _ in 0..50 {
                store.get_many((0..30).map(numbered)).unwrap();
                store.put_with_ttl("new", "1", MS).unwrap();
            }
        });
        while cursor.next().unwrap() {}
        assert!(keys(store.iter()).len() >= 1_200);
        store.integrity_check().unwrap();
    }
}

// ---- between the row and the clock ---------------------------------------------------------------

/// A lookup first reads the row and then the clock. Here the clock itself acts in between: another
/// handle extends the expiry in time, and then the old expiry time passes.
#[track_caller]
fn prolonged_meanwhile(sql: bool, look: impl Fn(&Store) -> bool) -> bool {
    let scratch = Scratch::new();
    let config = Config::new().sql_engine(sql);
    let (reader, other) = (scratch.open_with(&config), Arc::new(scratch.open_with(&config)));
    TestClock::at(NOW).drive(&reader);
    TestClock::at(NOW).drive(&other);
    other.put_with_expiry("session", "1", Expiry::At(NOW + 10)).unwrap();
    let (prolongs, once) = (Arc::clone(&other), AtomicUsize::new(0));
    reader.set_clock(move || {
        // Only the first call is between the row and the clock; later ones are within a write.
        if once.fetch_add(1, Ordering::Relaxed) == 0 {
            prolongs.set_expiry("session", Expiry::At(NOW + HOUR), ExpiryCondition::Always).unwrap();
        }
        NOW + 10
    });
    look(&reader)
}

#[test]
fn get_finds_key_extended_during_the_call() {
    if common::is_of_a_file("it has a clock of its own") {
        return;
    }
    for sql in [false, true] {
        assert!(prolonged_meanwhile(sql, |store| store.get("session").unwrap().is_some()), "get, {sql}");
        assert!(prolonged_meanwhile(sql, |store| store.exists("session").unwrap()), "exists, {sql}");
        let has_ttl = |store: &Store| {
            store.ttl("session").unwrap().is_some_and(|ttl| ttl != Ttl::Remaining(Duration::ZERO))
        };
        assert!(prolonged_meanwhile(sql, has_ttl), "ttl, {sql}");
    }
}

#[test]
fn lazy_removal_of_old_row_keeps_concurrent_rewrite() {
    if common::is_of_a_file("it has a clock of its own") {
        return;
    }
    for sql in [false, true] {
        assert!(prolonged_meanwhile(sql, |store| {
            let _ = store.get("session").unwrap(); // may or may not find it
            TestClock::at(NOW + 10).drive(store);
            store.get("session").unwrap().is_some()
        }));
    }
}

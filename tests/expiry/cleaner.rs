//! The cleaner: it starts and stops on request, ends with the store, and never blocks other calls.
//!
//! The tests poll for the effect of its rounds, with a deadline that only a broken cleaner reaches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{self, Scratch, TestClock, kind, numbered};
use kvstore::{Config, Direction, ErrorKind, Expiry, Hint, JournalMode, KeyRange, Store};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// Waits until the condition is true.
#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        thread::yield_now();
    }
}

/// Puts keys that expire at 1 000 + their number; some have large values.
fn fill(store: &Store, count: usize) {
    store.begin_write().unwrap();
    for n in 0..count {
        let value = vec![7; if n % 5 == 0 { 600 } else { 6 }];
        store.put_with_expiry(numbered(n), value, Expiry::At(1_000 + n as i64)).unwrap();
    }
    store.commit().unwrap();
}

/// Measures time in rounds of a cleaner on another store, which removes one key per round.
struct Metronome {
    _scratch: Scratch,
    store: Store,
    keys: u64,
}

impl Metronome {
    fn start() -> Metronome {
        let scratch = Scratch::new();
        let store = scratch.open_at(&TestClock::at(50_000));
        fill(&store, 400);
        store.start_cleaner(MS, Some(1)).unwrap();
        Metronome { _scratch: scratch, store, keys: 400 }
    }

    /// Waits until a cleaner that started together with this one had time for `rounds` more.
    fn wait(&self, rounds: u64) {
        let left = self.store.count().unwrap();
        assert!(left <= self.keys && left > rounds, "a longer metronome is needed");
        wait_until("the metronome has ticked", || self.store.count().unwrap() <= left - rounds);
    }
}

// ---- what it does --------------------------------------------------------------------------------

#[test]
fn cleaner_starts_while_others_write_in_delete_mode() {
    if common::is_of_a_file("it has a journal mode") {
        return;
    }
    let scratch = Scratch::new();
    let config = Config::new().journal_mode(JournalMode::Delete);
    let store = scratch.open_with(&config);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let writer = scratch.open_with(&config);
                while !done.load(Ordering::Relaxed) {
                    let _ = writer.put("k", "v"); // often busy
                }
            });
        }
        let waiting = scratch.open_with(&config.clone().busy_timeout(Duration::from_secs(60)));
        for _ in 0..30 {
            let started = waiting.start_cleaner(HOUR, None);
            done.store(started.is_err(), Ordering::Relaxed);
            started.unwrap();
            waiting.stop_cleaner().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    store.integrity_check().unwrap();
}

#[test]
fn cleaner_removes_only_expired_keys_in_every_family() {
    for mode in [JournalMode::Wal, JournalMode::Delete] {
        let scratch = Scratch::new();
        let clock = TestClock::at(0);
        let store = scratch.open_with(&Config::new().journal_mode(mode).busy_timeout(60_000 * MS));
        clock.drive(&store);
        let family = store.create_family("f").unwrap();
        fill(&store, 600);
        family.put_with_expiry("dies", vec![7; 600], Expiry::At(1_000)).unwrap();
        family.put("permanent", "1").unwrap();
        store.start_cleaner(MS, None).unwrap();
        clock.set(1_299);
        wait_until("the first 300 are gone", || store.count().unwrap() == 300);
        wait_until("the other family is clean", || family.count().unwrap() == 1);
        assert_eq!(store.next_expiry_all_families().unwrap(), Some(1_300));
        clock.set(1_599); // it goes on, round by round
        wait_until("the rest is gone", || store.count().unwrap() == 0);
        assert!(family.exists("permanent").unwrap());
        wait_until("all are counted", || store.stats().unwrap().ttl_purged == 601);
        store.stop_cleaner().unwrap();
        store.integrity_check().unwrap();
    }
}

#[test]
fn cleaner_removes_at_most_its_limit_per_round() {
    if common::is_of_a_file("it holds the cleaner up by its clock") {
        return;
    }
    // The cleaner reads the clock before each of its steps, and the test's clock blocks until the
    // test lets it continue. So each step can be observed: of 300 keys in a round, the first step
    // removes 256 and the second 44, if the machine is fast enough.
    let scratch = Scratch::new();
    let store = scratch.open_with(&Config::new().wal_pages(64)); // at most 256 keys in a step
    let witness = scratch.open_at(&TestClock::at(0));
    TestClock::at(0).drive(&store);
    fill(&store, 1_000);
    let (asked, allowed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    store.set_clock({
        let (asked, allowed) = (Arc::clone(&asked), Arc::clone(&allowed));
        move || {
            if thread::current().name() == Some("kvstore-cleaner") {
                let number = asked.fetch_add(1, Ordering::Relaxed);
                wait_until("it may go on", || allowed.load(Ordering::Relaxed) > number);
            }
            50_000
        }
    });
    store.start_cleaner(MS, Some(300)).unwrap();
    let mut steps = Vec::new();
    let mut last = 1_000;
    while last > 0 {
        let number = allowed.load(Ordering::Relaxed);
        wait_until("it asks for the time", || asked.load(Ordering::Relaxed) > number);
        let left = witness.count().unwrap();
        if left < last {
            steps.push(last - left);
        }
        last = left;
        allowed.store(number + 1, Ordering::Relaxed);
    }
    allowed.store(u64::MAX, Ordering::Relaxed);
    store.stop_cleaner().unwrap();
    assert!(steps.iter().all(|step| *step <= 256), "{steps:?}");
    let removed: Vec<u64> = steps
        .iter()
        .scan(0, |sum, step| {
            *sum += step;
            Some(*sum)
        })
        .collect();
    assert!([300, 600, 900, 1_000].iter().all(|sum| removed.contains(sum)), "{steps:?}");
    store.integrity_check().unwrap();
}

#[test]
fn cleaner_waits_one_interval_before_first_round() {
    let metronome = Metronome::start();
    let scratch = Scratch::new();
    let store = scratch.open_at(&TestClock::at(50_000));
    fill(&store, 10);
    store.start_cleaner(HOUR, None).unwrap();
    metronome.wait(20);
    assert_eq!(store.count().unwrap(), 10);
}

#[test]
fn expired_keys_stay_until_cleaner_is_started() {
    let metronome = Metronome::start();
    let scratch = Scratch::new();
    let store = scratch.open_at(&TestClock::at(50_000));
    fill(&store, 10);
    metronome.wait(20);
    assert_eq!(store.count().unwrap(), 10);
}

#[test]
fn cleaner_follows_store_clock_even_if_replaced() {
    let scratch = Scratch::new();
    let store = scratch.open();
    TestClock::at(0).drive(&store);
    fill(&store, 10);
    store.start_cleaner(MS, None).unwrap();
    let clock = TestClock::at(0);
    clock.drive(&store);
    clock.set(1_004);
    wait_until("five are gone", || store.count().unwrap() == 5);
    if common::are_on_a_server() {
        clock.set(9_000);
    }
    store.use_system_clock(); // far later
    wait_until("all are gone", || store.count().unwrap() == 0);
}

#[test]
fn cleaner_handles_families_created_and_dropped() {
    let scratch = Scratch::new();
    let clock = TestClock::at(5_000);
    let store = scratch.open_with(&Config::new().busy_timeout(60_000 * MS));
    clock.drive(&store);
    store.start_cleaner(MS, None).unwrap();
    for round in 0..20 {
        let family = store.create_family("f").unwrap();
        for n in 0..50 {
            family.put_with_expiry(numbered(n), "1", Expiry::At(1_000)).unwrap();
        }
        if round % 2 == 0 {
            wait_until("the family is clean", || family.count().unwrap() == 0);
        }
        drop(family);
        store.drop_family("f").unwrap();
    }
    store.stop_cleaner().unwrap();
    store.integrity_check().unwrap();
}

// ---- transactions and other writers --------------------------------------------------------------

#[test]
fn cleaner_pauses_during_open_transaction_and_resumes() {
    for write in [true, false] {
        let scratch = Scratch::new();
        let clock = TestClock::at(0);
        let (store, other) = (scratch.open_at(&clock), scratch.open_at(&clock));
        fill(&store, 50);
        store.start_cleaner(MS, None).unwrap();
        common::begin(&store, write).unwrap();
        let metronome = Metronome::start();
        clock.set(5_000);
        metronome.wait(50);
        assert_eq!(other.count().unwrap(), 50);
        assert_eq!(store.count().unwrap(), 50);
        store.rollback().unwrap();
        wait_until("the transaction is over and they are gone", || other.count().unwrap() == 0);
        store.integrity_check().unwrap();
    }
}

#[test]
fn transaction_is_never_busy_because_of_own_cleaner() {
    // The handle does not wait for locks: a cleaner that held the file's lock outside the handle's would
    // make these writes fail.
    let scratch = Scratch::new();
    let clock = TestClock::at(5_000);
    let store = scratch.open_at(&clock);
    store.start_cleaner(Duration::from_nanos(1), None).unwrap();
    for round in 0..300 {
        let key = numbered(round);
        store.put_with_expiry(&key, "1", Expiry::At(1_000)).unwrap();
        store.begin_write().unwrap();
        for n in 0..20 {
            store.put_with_expiry([&key[..], &numbered(n)].concat(), "1", Expiry::At(1_000)).unwrap();
        }
        store.commit().unwrap();
        store.increment("counter", 1, Expiry::Never).unwrap();
    }
    wait_until("only the counter is left", || store.count().unwrap() == 1);
    assert_eq!(store.get("counter").unwrap().as_deref(), Some(&b"300"[..]));
    store.stop_cleaner().unwrap();
    store.integrity_check().unwrap();
}

#[test]
fn cleaner_retries_while_other_handle_holds_lock() {
    let scratch = Scratch::new();
    let clock = TestClock::at(5_000);
    let (store, other) = (scratch.open_at(&clock), scratch.open_at(&clock));
    fill(&store, 50);
    other.begin_write().unwrap();
    if common::are_on_a_server() {
        assert_eq!(other.purge_expired().unwrap(), 50); // what is locked there are the rows
    }
    store.start_cleaner(MS, None).unwrap();
    let metronome = Metronome::start();
    metronome.wait(20);
    assert_eq!(store.count().unwrap(), 50);
    other.rollback().unwrap();
    wait_until("they are gone", || store.count().unwrap() == 0);
}

#[test]
fn cleaner_never_removes_live_key_under_load() {
    // Keys are prolonged, written again and made permanent around the moment they expire, while the
    // cleaner works without a pause.
    let scratch = Scratch::new();
    let clock = TestClock::at(0);
    let store = scratch.open_at(&clock);
    store.start_cleaner(Duration::from_nanos(1), None).unwrap();
    let rounds = if common::are_on_a_server() { 30 } else { 300 };
    for round in 1..=rounds {
        let now = round * 100;
        for n in 0..10 {
            store.put_with_expiry(numbered(n), "short", Expiry::At(now + 50)).unwrap();
        }
        assert!(store.persist(numbered(0)).unwrap() == Some(true));
        store.put_with_expiry(numbered(1), vec![7; 600], Expiry::At(now + 150)).unwrap();
        store.get_and_set_expiry(numbered(2), Expiry::At(now + 150)).unwrap();
        clock.set(now + 50);
        let alive: Vec<bool> = (0..10).map(|n| store.exists(numbered(n)).unwrap()).collect();
        assert_eq!(alive, [true, true, true, false, false, false, false, false, false, false]);
        assert_eq!(store.get(numbered(1)).unwrap(), Some(vec![7; 600]));
    }
    store.stop_cleaner().unwrap();
    store.integrity_check().unwrap();
}

// ---- start and stop ------------------------------------------------------------------------------

#[test]
fn second_start_fails_and_first_cleaner_continues() {
    let scratch = Scratch::new();
    let clock = TestClock::at(0);
    let store = scratch.open_at(&clock);
    fill(&store, 10);
    store.start_cleaner(MS, None).unwrap();
    assert_eq!(kind(store.start_cleaner(HOUR, None)), ErrorKind::Error);
    clock.set(5_000);
    wait_until("they are gone", || store.count().unwrap() == 0);
    store.stop_cleaner().unwrap();
    store.start_cleaner(HOUR, None).unwrap(); // after a stop it can be started again
    store.stop_cleaner().unwrap();
}

#[test]
fn stopped_cleaner_removes_nothing_and_extra_stop_is_no_op() {
    let metronome = Metronome::start();
    let scratch = Scratch::new();
    let clock = TestClock::at(0);
    let store = scratch.open_at(&clock);
    store.stop_cleaner().unwrap();
    fill(&store, 10);
    store.start_cleaner(MS, None).unwrap();
    store.stop_cleaner().unwrap();
    store.stop_cleaner().unwrap();
    clock.set(5_000);
    metronome.wait(20);
    assert_eq!(store.count().unwrap(), 10);
}

#[test]
fn stop_does_not_wait_for_interval() {
    let scratch = Scratch::new();
    let store = scratch.open();
    let started = Instant::now();
    for _ in 0..20 {
        store.start_cleaner(HOUR, None).unwrap();
        store.stop_cleaner().unwrap();
    }
    store.start_cleaner(HOUR, None).unwrap();
    store.close().unwrap();
    assert!(started.elapsed() < HOUR / 2);
}

#[test]
fn start_is_refused_for_unsupported_stores() {
    let store = Store::open_in_memory(&Config::new()).unwrap();
    assert_eq!(kind(store.start_cleaner(MS, None)), ErrorKind::Error);
    let scratch = Scratch::new();
    let store = scratch.open();
    assert_eq!(kind(store.start_cleaner(Duration::ZERO, None)), ErrorKind::Error);
    store.close().unwrap();
    assert_eq!(kind(store.start_cleaner(MS, None)), ErrorKind::Misuse);
    assert_eq!(kind(store.stop_cleaner()), ErrorKind::Misuse);
    let reader = scratch.open_with(&Config::new().read_only(true));
    assert_eq!(kind(reader.start_cleaner(MS, None)), ErrorKind::ReadOnly);
    drop(reader);
    let alone = scratch.open_with(&Config::new().exclusive(true));
    if !common::are_on_a_server() {
        let why = alone.start_cleaner(MS, None).unwrap_err();
        assert_eq!((why.kind(), why.hint()), (ErrorKind::Busy, Some(Hint::PurgeYourself)));
    }
    alone.put("still", "usable").unwrap();
    alone.close().unwrap();
    // A start that was refused leaves nothing running.
    let store = scratch.open();
    assert_eq!(kind(store.start_cleaner(Duration::ZERO, None)), ErrorKind::Error);
    store.start_cleaner(HOUR, None).unwrap();
}

#[test]
fn close_stops_cleaner_and_its_connection() {
    if common::is_of_a_file("it looks at the WAL") {
        return;
    }
    for with_work in [false, true] {
        let scratch = Scratch::new();
        let clock = TestClock::at(5_000);
        let store = scratch.open_at(&clock);
        if with_work {
            fill(&store, 2_000);
        }
        store.start_cleaner(if with_work { Duration::from_nanos(1) } else { HOUR }, None).unwrap();
        assert!(scratch.wal().exists());
        store.close().unwrap();
        // With the last connection SQLite removes the WAL: the cleaner's connection is closed, too.
        assert!(!scratch.wal().exists());
        let store = scratch.open_with(&Config::new().exclusive(true));
        store.integrity_check().unwrap();
    }
}

#[test]
fn dropping_store_stops_cleaner() {
    let scratch = Scratch::new();
    for _ in 0..20 {
        let store = scratch.open_at(&TestClock::at(5_000));
        fill(&store, 300);
        store.start_cleaner(Duration::from_nanos(1), None).unwrap();
        drop(store);
        wait_until("its connection is closed", || !scratch.wal().exists());
    }
    let store = scratch.open();
    store.start_cleaner(HOUR, None).unwrap();
    drop(store);
    wait_until("its connection is closed", || !scratch.wal().exists());
}

#[test]
fn cleaner_restarts_repeatedly_under_load() {
    let scratch = Scratch::new();
    let clock = TestClock::at(5_000);
    let store = scratch.open_at(&clock);
    let (over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..2 {
            let (store, over, written) = (&store, &over, &written);
            scope.spawn(move || {
                for n in 0.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let key = [&[thread][..], &numbered(n % 500)].concat();
                    store.put_with_expiry(&key, "dead", Expiry::At(1_000)).unwrap();
                    store.put([&key[..], b" live"].concat(), "1").unwrap();
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..100 {
            store.start_cleaner(Duration::from_nanos(1), Some(64)).unwrap();
            let before = written.load(Ordering::Relaxed);
            wait_until("something was written", || written.load(Ordering::Relaxed) > before + 4);
            store.stop_cleaner().unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    store.purge_step(None, None).unwrap();
    assert_eq!(store.count().unwrap(), store.count_live().unwrap());
    assert!(store.stats().unwrap().ttl_purged > 0);
    store.integrity_check().unwrap();
    store.close().unwrap();
    assert!(!scratch.wal().exists());
}

#[test]
fn concurrent_starts_and_stops_run_at_most_one_cleaner() {
    let scratch = Scratch::new();
    let store = scratch.open_at(&TestClock::at(5_000));
    let started = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    match store.start_cleaner(Duration::from_nanos(1), None) {
                        Ok(()) => drop(started.fetch_add(1, Ordering::Relaxed)),
                        Err(e) => assert_eq!(e.kind(), ErrorKind::Error, "{e}"),
                    }
                    store.stop_cleaner().unwrap();
                }
            });
        }
    });
    assert!(started.into_inner() > 0);
    store.start_cleaner(HOUR, None).unwrap(); // none is running
    store.close().unwrap();
    assert!(!scratch.wal().exists());
}

#[test]
fn cleaner_started_during_close_stops_with_store() {
    // A long read holds the handle. One thread starts the cleaner and waits for that read; then
    // another one closes the store and waits, too. Whichever of them runs first when the read is
    // over: once both have returned, no cleaner is left and no connection is open.
    for round in 0..30 {
        let scratch = Scratch::new();
        let store = scratch.open();
        store.put("k", "1").unwrap();
        let witness = store.cursor(KeyRange::all(), Direction::Forward);
        let (reading, go_on) = (AtomicBool::new(false), AtomicBool::new(false));
        let started = thread::scope(|scope| {
            scope.spawn(|| {
                store.get_with("k", |_, _| {
                    reading.store(true, Ordering::Relaxed);
                    wait_until("the read may end", || go_on.load(Ordering::Relaxed));
                })
            });
            wait_until("the read has begun", || reading.load(Ordering::Relaxed));
            let starter = scope.spawn(|| store.start_cleaner(HOUR, None));
            for _ in 0..1_000 {
                thread::yield_now(); // time for the start to get as far as it can
            }
            scope.spawn(|| store.close());
            wait_until("close has begun", || witness.check_open().is_err());
            go_on.store(true, Ordering::Relaxed);
            starter.join().unwrap()
        });
        assert!(!scratch.wal().exists(), "round {round}: a connection is left, and start said {started:?}");
    }
}

#[test]
fn each_handle_has_its_own_cleaner() {
    let scratch = Scratch::new();
    let clock = TestClock::at(5_000);
    let (a, b) = (scratch.open_at(&clock), scratch.open_at(&clock));
    a.start_cleaner(HOUR, None).unwrap();
    b.start_cleaner(MS, None).unwrap();
    a.close().unwrap();
    for n in 0..50 {
        // The cleaner of the other handle has a connection of its own, whose lock can block this
        // write.
        while let Err(e) = b.put_with_expiry(numbered(n), "1", Expiry::At(1_000)) {
            assert_eq!(e.kind(), ErrorKind::Busy);
        }
    }
    wait_until("the other one has cleaned", || b.count().unwrap() == 0);
    b.close().unwrap();
    assert!(!scratch.wal().exists());
}

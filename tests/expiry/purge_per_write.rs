//! `Config::purge_per_write`: writes remove expired keys, a bounded number for each key written.

use std::time::Duration;

use crate::common::{self, Scratch, TestClock, numbered};
use kvstore::{Config, ErrorKind, Expiry, MAX_PURGE_PER_WRITE, Store};

/// Number of removals that are done at once.
const AT_ONCE: u64 = 64;

fn open(scratch: &Scratch, per_write: u32, now_ms: i64) -> (Store, TestClock) {
    let store = Store::open_with(scratch.path(), &Config::new().purge_per_write(per_write)).unwrap();
    let clock = TestClock::at(now_ms);
    clock.drive(&store);
    (store, clock)
}

/// Puts keys that expire at 1000 + their number, in one transaction of another handle.
fn fill(scratch: &Scratch, family: &str, count: usize) {
    let (store, _clock) = open(scratch, 0, 0);
    let family = store.family(family).or_else(|_| store.create_family(family)).unwrap();
    store.begin_write().unwrap();
    for n in 0..count {
        family.put_with_expiry(numbered(n), "v", Expiry::At(1000 + n as i64)).unwrap();
    }
    store.commit().unwrap();
}

#[test]
fn writes_remove_no_expired_keys_by_default() {
    let scratch = Scratch::new();
    fill(&scratch, "default", 500);
    let (store, _clock) = open(&scratch, 0, 9000);
    for n in 0..500 {
        store.put(format!("other {n}"), "v").unwrap();
    }
    assert_eq!(store.count().unwrap(), 1000);
    assert_eq!(store.stats().unwrap().ttl_purged, 0);
}

#[test]
fn each_write_pays_for_its_number_of_expired_keys() {
    for per_write in [1, 2, 5, 64, MAX_PURGE_PER_WRITE] {
        let scratch = Scratch::new();
        fill(&scratch, "default", 700);
        let (store, _clock) = open(&scratch, per_write, 9000);
        for written in 1..=300 {
            store.put("key", "value").unwrap();
            let allowed = written * u64::from(per_write);
            let purged = store.stats().unwrap().ttl_purged;
            assert!(
                purged <= allowed && purged + AT_ONCE > allowed.min(700),
                "{per_write}: {purged} of {allowed}"
            );
        }
        assert_eq!(store.get("key").unwrap().unwrap(), b"value");
        store.integrity_check().unwrap();
    }
}

#[test]
fn store_whose_keys_expire_stays_at_its_size() {
    if common::are_on_a_server() {
        return; // each step of the clock is a call of a program there
    }
    let scratch = Scratch::new();
    let (store, clock) = open(&scratch, 2, 1_000_000);
    let mut largest = [0; 2];
    for n in 0..6000_i64 {
        clock.set(1_000_000 + n);
        store.put_with_ttl(numbered(n as usize), [7; 300], Duration::from_millis(100)).unwrap();
        let half = &mut largest[usize::from(n >= 3000)];
        *half = store.count().unwrap().max(*half);
    }
    assert!(largest[1] <= 100 + 2 * AT_ONCE, "{largest:?} rows");
    assert!(largest[1] <= largest[0] + AT_ONCE, "{largest:?} rows");
    store.integrity_check().unwrap();
}

#[test]
fn earliest_expired_keys_of_all_families_go_first() {
    if common::are_on_a_server() {
        return; // the handles have one clock there
    }
    let scratch = Scratch::new();
    fill(&scratch, "a", 100);
    fill(&scratch, "b", 100);
    let (store, _clock) = open(&scratch, 64, 1050);
    store.put("key", "value").unwrap();
    let (a, b) = (store.family("a").unwrap(), store.family("b").unwrap());
    // 51 keys have expired in each family, and 64 of the 102 go.
    assert_eq!(a.count().unwrap() + b.count().unwrap(), 200 - 64);
    assert!(a.next_expiry().unwrap() >= Some(1031) && b.next_expiry().unwrap() >= Some(1031));
    store.put("key", "value").unwrap();
    assert_eq!((a.count().unwrap(), b.count().unwrap()), (49, 49));
}

#[test]
fn writes_of_a_transaction_count_after_its_commit() {
    let scratch = Scratch::new();
    fill(&scratch, "default", 500);
    let (store, _clock) = open(&scratch, 2, 9000);
    store.begin_write().unwrap();
    for n in 0..100 {
        store.put(format!("other {n}"), "v").unwrap();
    }
    assert_eq!(store.count().unwrap(), 600, "removed in the caller's transaction");
    store.commit().unwrap();
    assert_eq!(store.count().unwrap(), 400);

    store.begin_write().unwrap();
    store.put("undone", "v").unwrap();
    store.rollback().unwrap();
    assert_eq!(store.count().unwrap(), 400);
}

#[test]
fn batch_removes_as_many_as_its_keys_allow() {
    let scratch = Scratch::new();
    fill(&scratch, "default", 2000);
    let (store, _clock) = open(&scratch, 3, 9000);
    let mut batch = store.batch();
    for n in 0..400 {
        batch.put(&store, format!("other {n}"), "v", None).unwrap();
    }
    batch.commit().unwrap();
    assert_eq!(store.count().unwrap(), 2000 + 400 - 1200);
}

#[test]
fn close_removes_what_the_last_writes_allow() {
    let scratch = Scratch::new();
    fill(&scratch, "default", 100);
    for _ in 0..4 {
        let (store, _clock) = open(&scratch, 10, 9000);
        store.put_with_ttl("key", "value", Duration::from_secs(9)).unwrap(); // reads the clock
        store.increment("number", 1, None).unwrap();
        assert_eq!(store.stats().unwrap().ttl_purged, 0);
        store.close().unwrap();
    }
    let (store, _clock) = open(&scratch, 0, 9000);
    assert_eq!(store.count().unwrap(), 100 + 2 - 80);
    let (store_2, _clock) = open(&scratch, 10, 9000);
    store_2.put_with_ttl("key", "value", Duration::from_secs(9)).unwrap();
    drop(store_2);
    assert_eq!(store.count().unwrap(), 100 + 2 - 90);
}

#[test]
fn removal_never_waits_for_another_writer() {
    let scratch = Scratch::new();
    fill(&scratch, "default", 200);
    let (store, _clock) = open(&scratch, 1, 9000);
    let (other, _other_clock) = open(&scratch, 0, 9000);
    for n in 0..63 {
        store.put(numbered(1000 + n), "v").unwrap();
    }
    let last = store.begin_write().and_then(|()| store.put("last", "v"));
    last.unwrap();
    store.commit().unwrap(); // removes 64
    assert_eq!(store.count().unwrap(), 200);
    other.begin_write().unwrap();
    let begun = std::time::Instant::now();
    store.get("last").unwrap();
    store.close().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2));
    other.rollback().unwrap();
}

#[test]
fn number_out_of_bounds_is_refused() {
    let config = Config::new().purge_per_write(MAX_PURGE_PER_WRITE + 1);
    let why = Store::open_in_memory(&config).unwrap_err();
    assert_eq!(why.kind(), ErrorKind::Error);
    assert_eq!(why.message(), "1001 expired keys per write are out of bounds: set 0 to 1000");
}

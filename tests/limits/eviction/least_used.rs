//! The eviction policy `LeastUsed`: which reads count, what is stored when, and the hit rate.

use std::collections::{BTreeMap, HashMap};

use kvstore::{Config, Eviction, SizeLimit, Store, Ttl};

use crate::common::{Random, Scratch, TestClock, keys, memory, numbered};

const START: i64 = 1_800_000_000_000;
const MINUTE: i64 = 60_000;
const LIMIT: u64 = 200_000;
const VALUE: [u8; 2000] = [7; 2000];

/// Runs a test with both engines. The store has a limit and this policy.
fn with_stores(test: impl Fn(&Scratch, &Store, &TestClock)) {
    for sql in [false, true] {
        let scratch = Scratch::new();
        let store = scratch.open_with(&Config::new().sql_engine(sql));
        let clock = TestClock::at(START);
        clock.drive(&store);
        store.set_size_limit(Some(SizeLimit::new(LIMIT, Eviction::LeastUsed))).unwrap();
        test(&scratch, &store, &clock);
        store.integrity_check().unwrap();
    }
}

/// Puts the keys `from..to`, one per millisecond.
fn fill(store: &Store, clock: &TestClock, from: usize, to: usize) {
    for n in from..to {
        clock.set(clock.now() + 1);
        store.put(numbered(n), VALUE).unwrap();
    }
}

fn evicted(store: &Store) -> u64 {
    store.stats().unwrap().evicted
}

#[test]
fn key_that_was_read_outlives_keys_that_were_not() {
    with_stores(|_, store, clock| {
        store.create_family("other").unwrap().put("read", VALUE).unwrap();
        fill(store, clock, 0, 60);
        for n in 60..200 {
            store.get_with(numbered(3), |_, _| ()).unwrap().unwrap();
            assert_eq!(store.get_many(&[numbered(5)]).unwrap().iter().flatten().count(), 1);
            assert!(store.family("other").unwrap().get("read").unwrap().is_some());
            fill(store, clock, n, n + 1);
        }
        assert!(evicted(store) > 100);
        let left = keys(store.iter());
        assert_eq!(left[..2], [numbered(3), numbered(5)]);
        assert_eq!(left.last().unwrap(), &numbered(199));
        assert!(left[2] > numbered(100), "{:?}", left[2]);
    });
}

#[test]
fn scans_and_tests_for_existence_are_no_uses() {
    with_stores(|_, store, clock| {
        fill(store, clock, 0, 60);
        for n in 60..160 {
            assert!(store.iter().count() > 40);
            store.exists(numbered(0)).unwrap();
            store.ttl(numbered(1)).unwrap();
            fill(store, clock, n, n + 1);
        }
        let left = keys(store.iter());
        assert!(left[0] > numbered(60), "{:?}", left[0]);
    });
}

#[test]
fn use_is_stored_by_next_write_at_most_once_a_minute() {
    with_stores(|scratch, store, clock| {
        store.put("a", "1").unwrap();
        let written = || store.write_time("a").unwrap().unwrap();
        for (after, stored) in
            [(1, 0), (MINUTE - 1, 0), (MINUTE, MINUTE), (MINUTE + 9, MINUTE), (3 * MINUTE, 3 * MINUTE)]
        {
            clock.set(START + after);
            store.get("a").unwrap();
            store.put("b", "1").unwrap();
            assert_eq!(written() - START, stored, "after {after} ms");
        }
        clock.set(START + 10 * MINUTE);
        store.get("a").unwrap();
        assert_eq!(written(), START + 3 * MINUTE); // a read does not write
        store.begin_write().unwrap();
        store.put("b", "2").unwrap();
        store.rollback().unwrap();
        assert_eq!(written(), START + 3 * MINUTE);

        // Another handle evicts by what was stored.
        clock.set(START + 20 * MINUTE);
        store.put("never read", VALUE).unwrap();
        fill(store, clock, 1000, 1040);
        clock.set(START + 21 * MINUTE);
        store.get("a").unwrap();
        store.put("b", "1").unwrap();
        let other = scratch.open();
        clock.drive(&other);
        while other.exists("never read").unwrap() {
            let n = other.count().unwrap() as usize;
            fill(&other, clock, n, n + 1);
        }
        assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    });
}

#[test]
fn uses_of_large_and_expiring_values_change_write_time_only() {
    with_stores(|_, store, clock| {
        let ttl = std::time::Duration::from_secs(3600);
        store.put_with_ttl("ttl", "short", ttl).unwrap();
        store.put_with_ttl("large", [1; 50_000], ttl).unwrap();
        store.put_with_ttl("expires", "1", std::time::Duration::from_secs(100)).unwrap();
        clock.set(START + MINUTE + 5);
        for key in ["ttl", "large", "expires"] {
            store.get(key).unwrap().unwrap();
        }
        clock.set(START + 2 * MINUTE);
        store.put("x", "1").unwrap();
        for (key, value) in [("ttl", &b"short"[..]), ("large", &[1; 50_000])] {
            assert_eq!(store.write_time(key).unwrap(), Some(START + MINUTE + 5));
            assert_eq!(store.get(key).unwrap().unwrap(), value);
            assert!(matches!(store.ttl(key).unwrap(), Some(Ttl::Remaining(_))));
        }
        assert_eq!(store.get("expires").unwrap(), None);
    });
}

#[test]
fn other_policy_notes_and_stores_no_uses() {
    with_stores(|_, store, clock| {
        store.set_size_limit(Some(SizeLimit::new(LIMIT, Eviction::Oldest))).unwrap();
        store.put("a", "1").unwrap();
        clock.set(START + 5 * MINUTE);
        store.get("a").unwrap();
        store.put("b", "1").unwrap();
        assert_eq!(store.write_time("a").unwrap(), Some(START));
        store.set_size_limit(Some(SizeLimit::new(LIMIT, Eviction::LeastUsed))).unwrap();
        store.get("a").unwrap();
        store.put("b", "1").unwrap();
        assert_eq!(store.write_time("a").unwrap(), Some(START + 5 * MINUTE));
        let error = store.set_write_tracking(false).unwrap_err();
        assert!(error.to_string().contains("needs the write times"), "{error}");
    });
}

/// Draws keys from a Zipf distribution with the exponent 1.
struct Zipf {
    sums: Vec<f64>,
    random: Random,
}

impl Zipf {
    fn new(keys: usize) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=keys).map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        });
        Zipf { sums: sums.collect(), random: Random(5) }
    }

    fn draw(&mut self) -> usize {
        let at = self.random.below(1 << 40) as f64 / (1_u64 << 40) as f64 * self.sums.last().unwrap();
        self.sums.partition_point(|sum| *sum < at)
    }
}

/// Returns the hit rate of a store that is used as a cache, and its number of keys.
fn hit_rate(eviction: Eviction, draws: usize, pause_ms: i64) -> (f64, usize) {
    let store = memory();
    let clock = TestClock::at(START);
    clock.drive(&store);
    store.set_size_limit(Some(SizeLimit::new(400_000, eviction))).unwrap();
    let (mut zipf, mut hits) = (Zipf::new(4000), 0);
    for _ in 0..draws {
        clock.set(clock.now() + pause_ms);
        let key = numbered(zipf.draw());
        match store.get(&key).unwrap() {
            Some(_) => hits += 1,
            None => store.put(&key, [7; 400]).unwrap(),
        }
    }
    (hits as f64 / draws as f64, store.count().unwrap() as usize)
}

/// Returns the hit rate of an exact least-recently-used cache of `size` keys.
fn exact_hit_rate(size: usize, draws: usize) -> f64 {
    let (mut zipf, mut hits) = (Zipf::new(4000), 0);
    let (mut used, mut by_use) = (HashMap::new(), BTreeMap::new());
    for now in 0..draws {
        let key = zipf.draw();
        if let Some(before) = used.insert(key, now) {
            hits += 1;
            by_use.remove(&before);
        }
        by_use.insert(now, key);
        if used.len() > size
            && let Some((_, key)) = by_use.pop_first()
        {
            used.remove(&key);
        }
    }
    hits as f64 / draws as f64
}

#[test]
fn hit_rate_is_that_of_exact_least_recently_used() {
    const DRAWS: usize = 30_000;
    // All within a minute, and spread over hours.
    for pause_ms in [1, 1000] {
        let (rate, size) = hit_rate(Eviction::LeastUsed, DRAWS, pause_ms);
        let (oldest, _) = hit_rate(Eviction::Oldest, DRAWS, pause_ms);
        let exact = exact_hit_rate(size, DRAWS);
        println!("pause {pause_ms} ms, {size} keys: {rate:.4}, oldest {oldest:.4}, exact {exact:.4}");
        assert!(rate > exact - 0.01 && rate > oldest + 0.01, "{rate} {exact} {oldest}");
    }
}

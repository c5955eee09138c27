//! Number of keys that one write evicts, and fill level of a bounded store. ADR 16 is based on
//! these figures.

use kvstore::{Config, Eviction, Expiry, SizeLimit, Store};

use crate::common::{Random, TestClock, numbered};

const NOW: i64 = 1_800_000_000_000;

/// Measured numbers of evicted and live keys.
#[derive(Debug, Default)]
struct Seen {
    most: u64,
    evicted: u64,
    live: u64,
    least_live: u64,
    worst_window: u64,
}

fn evicted(store: &Store) -> u64 {
    let stats = store.stats().unwrap();
    stats.evicted + stats.ttl_purged
}

fn run(eviction: Eviction, bulk: bool, random_writes: bool, value: usize) -> Seen {
    let store = Store::open_in_memory(&Config::new()).unwrap();
    let clock = TestClock::at(NOW);
    clock.drive(&store);
    let mut random = Random(99);
    store.set_size_limit(Some(SizeLimit::new(4 << 20, eviction))).unwrap();
    let put = |n: usize, key: usize, random: &mut Random| {
        clock.set(NOW + n as i64);
        let end = Expiry::At(NOW * 2 + random.below(1_000_000) as i64);
        store.put_with_expiry(numbered(key), vec![1; value], end).unwrap();
    };
    let mut n = 0;
    while evicted(&store) == 0 {
        let key = if bulk { n } else { random.below(900_000) as usize };
        put(n, key, &mut random);
        n += 1;
    }
    let mut seen = Seen { most: evicted(&store), ..Seen::default() };
    let full = store.count().unwrap();
    seen.least_live = full;
    let first = n;
    let mut window = std::collections::VecDeque::new();
    while n < 4 * first {
        let before = evicted(&store);
        let key = if random_writes { random.below(900_000) as usize } else { n };
        put(n, key, &mut random);
        let now = evicted(&store) - before;
        seen.most = seen.most.max(now);
        window.push_back(now);
        if window.len() > 100 {
            window.pop_front();
        }
        seen.worst_window = seen.worst_window.max(window.iter().sum());
        if n % 100 == 0 {
            seen.least_live = seen.least_live.min(store.count().unwrap());
        }
        n += 1;
    }
    seen.evicted = evicted(&store);
    seen.live = store.count().unwrap();
    println!(
        "{eviction:?} bulk {bulk} then random {random_writes}, {value} bytes: full at {full}, {} writes: {seen:?}",
        n - first
    );
    seen
}

#[test]
#[ignore = "prints what is measured"]
fn prints_evictions_per_write() {
    for eviction in [Eviction::Soonest, Eviction::Oldest] {
        for (bulk, random) in [(false, true), (true, true), (true, false)] {
            for value in [20, 100, 1000] {
                run(eviction, bulk, random, value);
            }
        }
    }
}

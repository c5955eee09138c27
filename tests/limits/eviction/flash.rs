//! A router with 4 MB of flash for its data: the writes of one hour.
//!
//! The store holds leases, counters, samples and occasional pages of a log. At 20 writes a second,
//! an hour has 72 000 writes. The long form prints the figures of `docs/how-to/limit-size.md`; the
//! short form does a fortieth of the writes.

use std::time::{Duration, Instant};

use kvstore::{Config, Eviction, Expiry, SizeLimit, Store, SyncLevel};

use crate::common::{Random, Scratch, TestClock};

const START: i64 = 1_800_000_000_000;
const LIMIT: u64 = 4_000_000;
const PAGE: u64 = 4096;
/// Milliseconds between two writes.
const EVERY: i64 = 50;

/// Writes one entry, and returns how long that took.
fn write(store: &Store, clock: &TestClock, random: &mut Random, n: i64) -> Duration {
    clock.set(START + n * EVERY);
    let mut value = vec![0; 16];
    let (family, key, ttl_s) = match random.below(100) {
        0..40 => {
            value.resize(60 + random.below(120) as usize, 1);
            ("leases", format!("{:012x}", random.below(20_000) * 7_919_193), 600 + random.below(3000))
        }
        40..75 => {
            value.resize(24, 2);
            ("samples", format!("{n:012}"), 1800)
        }
        75..97 => {
            value.resize(100 + random.below(400) as usize, 3);
            ("hosts", format!("host-{}", random.below(3000)), 7200)
        }
        _ => {
            value.resize(1000 + random.below(6000) as usize, 4);
            ("log", format!("{n:012}"), 900)
        }
    };
    let family = store.family(family).unwrap();
    let expiry = Expiry::At(clock.now() + 1000 * ttl_s as i64);
    let begun = Instant::now();
    family.put_with_expiry(key, &value, expiry).unwrap();
    begun.elapsed()
}

fn hour(eviction: Eviction, writes: i64, print: bool) {
    let scratch = Scratch::new();
    let store = scratch.open_with(&Config::new().sync(SyncLevel::Normal));
    let clock = TestClock::at(START);
    clock.drive(&store);
    for family in ["leases", "samples", "hosts", "log"] {
        store.create_family(family).unwrap();
    }
    store.set_size_limit(Some(SizeLimit::new(LIMIT, eviction))).unwrap();
    let wal_pages = LIMIT / PAGE / 8;
    let mut random = Random(11);
    let length = |path: &std::path::Path| std::fs::metadata(path).map_or(0, |found| found.len());
    let (mut times, mut most) = (Vec::new(), (0, 0));
    if print {
        println!(
            "{eviction:?}\n  writes   data KB   file KB    WAL KB   evicted    purged   p50 us   p99 us   max us"
        );
    }
    for n in 0..writes {
        times.push(write(&store, &clock, &mut random, n).as_micros());
        let (file, wal) = (length(&scratch.path()), length(&scratch.wal()));
        most = (most.0.max(file), most.1.max(wal));
        assert!(file <= LIMIT, "{file} bytes after {n} writes");
        assert!(wal <= 32 + (2 * wal_pages + 100) * (PAGE + 24), "a WAL of {wal} bytes after {n} writes");
        if print && (n + 1) % (writes / 12) == 0 {
            times.sort_unstable();
            let stats = store.stats().unwrap();
            println!(
                "{:8} {:9} {:9} {:9} {:9} {:9} {:8} {:8} {:8}",
                n + 1,
                stats.size_bytes / 1000,
                file / 1000,
                wal / 1000,
                stats.evicted,
                stats.ttl_purged,
                times[times.len() / 2],
                times[times.len() * 99 / 100],
                times[times.len() - 1],
            );
            times.clear();
        }
    }
    if print {
        println!("  at most: file {} KB, WAL {} KB", most.0 / 1000, most.1 / 1000);
    }
    let stats = store.stats().unwrap();
    assert!(stats.size_bytes <= LIMIT);
    assert!(writes < 20_000 || stats.evicted > 0 || stats.ttl_purged > 0);
    store.integrity_check().unwrap();
}

#[test]
fn router_workload_of_90_seconds_stays_within_limit() {
    for eviction in [Eviction::Soonest, Eviction::Oldest] {
        hour(eviction, 1800, false);
    }
}

#[test]
#[ignore = "the whole hour, which it prints"]
fn router_workload_of_one_hour_stays_within_limit() {
    for eviction in [Eviction::Soonest, Eviction::Oldest] {
        hour(eviction, 72_000, true);
    }
}

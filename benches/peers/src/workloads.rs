//! The workloads, in groups that share a file. A group fills a new store, closes it, opens it again (so
//! that what an engine does behind the scenes after a load is done, or counted), and measures.

use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::child;
use crate::measure::{Data, Results, Stopwatch, key, missing, mix};
use crate::spec::*;
use crate::store::{Key, Kind, Mode, Seen, Store, now_ms, sum};
use crate::stores;

const VALUE: usize = 100;
/// An hour: nothing expires while it is measured.
const FAR_MS: i64 = 3_600_000;

pub struct Bench<'a> {
    pub data: &'a Data,
    pub results: &'a mut Results,
    pub folder: &'a Path,
    pub round: usize,
}

type Group = fn(&mut Bench, &Kind);

/// The group that is measured in the first round only.
pub const ONCE: &str = "growth";

pub const GROUPS: &[(&str, Group)] = &[
    ("100-byte values", plain),
    ("TTLs", ttl),
    ("1000-byte values", big),
    ("value sizes", sizes),
    ("fsync", fsync),
    (ONCE, growth),
];

/// A folder for one store in one group; empty now, gone when dropped.
struct Place(PathBuf);

impl Place {
    fn new(bench: &Bench, kind: &Kind) -> Place {
        let folder = bench.folder.join(kind.name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        Place(folder)
    }
    fn store(&self) -> PathBuf {
        self.0.join("store")
    }
    /// What it takes on the disk.
    fn size(&self) -> u64 {
        fn size(folder: &Path) -> u64 {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            entries
                .map(|entry| match entry.metadata() {
                    Ok(of) if of.is_dir() => size(&entry.path()),
                    // Not its length: LMDB's lock file and preallocated files have holes.
                    Ok(of) => std::os::unix::fs::MetadataExt::blocks(&of) * 512,
                    Err(_) => 0,
                })
                .sum()
        }
        size(&self.0)
    }
    fn wal(&self) -> u64 {
        std::fs::metadata(self.0.join("store-wal")).map_or(0, |wal| wal.len())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Loads keys in the order they are given in, 1000 per transaction.
fn load<'a>(
    store: &mut dyn Store,
    data: &'a Data,
    keys: &dyn Fn(usize) -> Key,
    n: usize,
    length: usize,
    expire: &dyn Fn(usize) -> i64,
) {
    for start in (0..n).step_by(1000) {
        store.write_all(1000.min(n - start), &mut |i| {
            let i: usize = start + i;
            (keys(i), data.value(i, length) as &'a [u8], expire(i))
        });
    }
}

const NEVER: &dyn Fn(usize) -> i64 = &|_| 0;
const IN_ORDER: &dyn Fn(usize) -> Key = &|i| key(i as u64);

fn reads(data: &Data) -> usize {
    (data.n as usize).clamp(20_000, 300_000)
}

/// Checks that what `load` wrote is there, all of it, and brings the file into memory.
fn warm(store: &mut dyn Store, data: &Data, keys: &dyn Fn(usize) -> Key, length: usize) {
    let mut expected = Seen::default();
    (0..data.n as usize).for_each(|i| expected.row(&keys(i), data.value(i, length)));
    assert_eq!(store.scan(), expected, "the scan is wrong");
}

fn get_all(store: &mut dyn Store, keys: &[Key], length: usize) {
    for key in keys {
        assert_eq!(store.get(key), Some(length));
    }
}

/// Several times, and the median: a single one is too short.
fn open(bench: &mut Bench, kind: &Kind, place: &Place, mode: Mode, names: [&str; 2]) {
    if !bench.results.wants_any(&names) {
        return;
    }
    let (mut opens, mut gets) = (Vec::new(), Vec::new());
    let begin = Instant::now();
    while opens.len() < 15 && (opens.len() < 2 || begin.elapsed() < Duration::from_millis(500)) {
        let start = Stopwatch::start();
        let mut store = (kind.open)(&place.store(), mode);
        opens.push(start.ns());
        assert!(store.get(&bench.data.shuffled[0]).is_some());
        gets.push(start.ns());
    }
    for (name, times) in names.into_iter().zip([opens, gets]).filter(|(name, _)| !name.is_empty()) {
        bench.results.set(kind.name, name, crate::measure::median(&times));
    }
}

fn plain(bench: &mut Bench, kind: &Kind) {
    const READS: &[&str] = &[
        GET,
        GET_ALLOCATED,
        HOT,
        MISS,
        EXISTS,
        SCAN,
        PREFIX,
        OPEN,
        OPEN_GET,
        THREADS_1,
        THREADS_2,
        ALONE,
        BESIDE,
        STALE,
        BESIDE_WRITES,
        FILE,
        MEMORY,
    ];
    const WRITES: &[&str] = &[LOAD, OVERWRITE, OVERWRITE_BATCH, MIXED, DELETE];
    let results = &bench.results;
    if !results.wants_any(WRITES) && (kind.writes_only || !results.wants_any(READS)) {
        return;
    }
    let (data, name, mode) = (bench.data, kind.name, Mode::default());
    let (n, place) = (data.n as usize, Place::new(bench, kind));
    let mut store = (kind.open)(&place.store(), mode);
    let start = Stopwatch::start();
    load(&mut *store, data, IN_ORDER, n, VALUE, NEVER);
    if bench.results.wants(LOAD) {
        bench.results.set(name, LOAD, start.ns() / n as f64);
    }
    if !kind.writes_only {
        drop(store);
        if bench.results.wants(FILE) && bench.round == 0 {
            bench.results.set(name, FILE, place.size() as f64 / (n * (16 + VALUE)) as f64);
        }
        if bench.results.wants(MEMORY) && bench.round == 0 {
            let bytes = child::memory(kind, &place.store(), data.n, 1_000_000.min(data.n));
            bench.results.set(name, MEMORY, bytes as f64 / 1e6);
        }
        open(bench, kind, &place, mode, [OPEN, OPEN_GET]);
        store = (kind.open)(&place.store(), mode);
        warm(&mut *store, data, IN_ORDER, VALUE);
        plain_reads(bench, kind, &mut *store);
        beside(bench, kind, &mut *store, &place.store());
        // SNKV cannot write after another process has.
        drop(store);
        store = (kind.open)(&place.store(), mode);
    }
    let results = &mut *bench.results;
    let ops = n.min(100_000);
    let keys: Vec<Key> = data.sample(ops, 1000 + bench.round).copied().collect();
    let (before, mut largest_wal) = (store.checkpoints(), 0);
    results.each(name, OVERWRITE, ops, |i| {
        store.put(&keys[i], data.value(i + 7, VALUE));
        if i % 500 == 0 {
            largest_wal = largest_wal.max(place.wal());
        }
    });
    if results.wants(OVERWRITE) {
        if place.wal() > 0 {
            results.set(name, WAL, largest_wal as f64 / 1e6);
        }
        if let (Some(before), Some(after)) = (before, store.checkpoints()) {
            results.set(name, CHECKPOINTS, (after - before) as f64);
        }
    }
    let batches = (n / 10_000).clamp(1, 10);
    let keys: Vec<Key> = data.sample(batches * n.min(10_000), 2000 + bench.round).copied().collect();
    results.time(name, OVERWRITE_BATCH, keys.len(), || {
        for batch in keys.chunks(n.min(10_000)) {
            store.write_all(batch.len(), &mut |i| (batch[i], data.value(i + 9, VALUE), 0));
        }
    });
    let ops = n.min(100_000);
    let keys: Vec<Key> = data.sample(ops, 3000 + bench.round).copied().collect();
    results.each(name, MIXED, ops, |i| match i % 10 {
        0 | 5 => store.put(&keys[i], data.value(i, VALUE)),
        9 => store.delete(&keys[i]),
        // Some were deleted.
        _ => assert!(store.get(&keys[i]).is_none_or(|length| length == VALUE)),
    });
    let keys: Vec<Key> = data.sample(n.min(50_000), 4000 + bench.round).copied().collect();
    results.each(name, DELETE, keys.len(), |i| store.delete(&keys[i]));
    if results.wants(DELETE) && !kind.writes_only {
        assert_eq!(store.get(&keys[0]), None);
    }
}

fn plain_reads(bench: &mut Bench, kind: &Kind, store: &mut dyn Store) {
    let (data, name, results) = (bench.data, kind.name, &mut *bench.results);
    let ops = reads(data);
    let keys: Vec<Key> = data.sample(ops, bench.round).copied().collect();
    results.time(name, GET, ops, || get_all(store, &keys, VALUE));
    if name == stores::KVSTORE {
        results.time(name, GET_ALLOCATED, ops, || {
            for key in &keys {
                let (mut length, mut total) = (0, 0);
                assert!(store.get_allocated(key, &mut |value| (length, total) = (value.len(), sum(value))));
                assert_eq!(length, VALUE);
                black_box(total);
            }
        });
    }
    let hot: Vec<Key> = keys.iter().take(1000).copied().collect();
    let hot: Vec<Key> = (0..ops).map(|i| hot[mix(i as u64) as usize % hot.len()]).collect();
    get_all(store, &hot[..2000], VALUE);
    results.time(name, HOT, ops, || get_all(store, &hot, VALUE));
    let absent: Vec<Key> = keys.iter().copied().map(missing).collect();
    results.time(name, MISS, ops, || {
        for key in &absent {
            assert_eq!(store.get(key), None);
        }
    });
    results.time(name, EXISTS, ops, || {
        for key in &keys {
            assert!(store.exists(key));
        }
    });
    scans(results, name, store, data, &keys, [SCAN, PREFIX]);
    if results.wants_any(&[THREADS_1, THREADS_2]) {
        let one = in_threads(store, 1, &keys);
        results.set(name, THREADS_1, one);
        let two = in_threads(store, 2, &keys);
        results.set(name, THREADS_2, two);
    }
}

fn scans(
    results: &mut Results,
    name: &'static str,
    store: &mut dyn Store,
    data: &Data,
    keys: &[Key],
    names: [&str; 2],
) {
    let n = data.n as usize;
    let times = (300_000 / n).max(1);
    results.time(name, names[0], n * times, || {
        for _ in 0..times {
            assert_eq!(black_box(store.scan()).rows, data.n);
        }
    });
    // Only whole hundreds.
    let last = key(data.n / 100 * 100);
    let prefixes: Vec<&Key> = keys.iter().filter(|key| **key < last).take(3000).collect();
    results.time(name, names[1], prefixes.len(), || {
        for key in prefixes {
            let Seen { rows, sum, .. } = store.prefix(&key[..14]);
            assert_eq!(rows, 100);
            black_box(sum);
        }
    });
}

/// Nanoseconds per get of all threads together.
fn in_threads(store: &dyn Store, count: usize, keys: &[Key]) -> f64 {
    let barrier = Barrier::new(count);
    let times: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|i| {
                let (mut own, barrier) = (store.another(), &barrier);
                scope.spawn(move || {
                    own.scan();
                    let keys = [&keys[keys.len() / 2 * i..], &keys[..keys.len() / 2 * i]].concat();
                    barrier.wait();
                    let start = Instant::now();
                    get_all(&mut *own, &keys, VALUE);
                    (start, Instant::now())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread")).collect()
    });
    let start = times.iter().map(|time| time.0).min().expect("a thread");
    let end = times.iter().map(|time| time.1).max().expect("a thread");
    (end - start).as_nanos() as f64 / (keys.len() * count) as f64
}

/// Reads while another process writes: first in turns, to see whether each commit is seen at once; then
/// both as fast as they can.
fn beside(bench: &mut Bench, kind: &Kind, store: &mut dyn Store, path: &Path) {
    if !kind.processes || !bench.results.wants_any(&[ALONE, BESIDE, STALE, BESIDE_WRITES]) {
        return;
    }
    let keys: Vec<Key> = bench.data.sample(reads(bench.data), 500 + bench.round).copied().collect();
    let measured = Duration::from_millis(if bench.data.n >= 1_000_000 { 600 } else { 200 });
    let rate = |store: &mut dyn Store| {
        let (stopwatch, start, mut count) = (Stopwatch::start(), Instant::now(), 0);
        for key in keys.iter().cycle() {
            assert_eq!(store.get(key), Some(VALUE));
            count += 1;
            if count % 1000 == 0 && start.elapsed() > measured {
                break;
            }
        }
        stopwatch.ns() / count as f64
    };
    let alone = rate(store);
    bench.results.set(kind.name, ALONE, alone);
    let mut writer = child::Writer::start(kind, path, bench.data.n);
    let mut stale = 0;
    for turn in 1..=child::TURNS {
        writer.wait_for_turn(turn);
        let mut seen = 0;
        store.get_with(&key(0), &mut |value| seen = child::turn_of(value));
        assert!(seen <= turn, "a value from the future");
        stale += u64::from(seen != turn);
        writer.go_on();
    }
    let beside = rate(store);
    let writes = writer.stop();
    bench.results.set(kind.name, BESIDE, beside);
    bench.results.set(kind.name, STALE, stale as f64);
    bench.results.set(kind.name, BESIDE_WRITES, writes);
}

fn ttl(bench: &mut Bench, kind: &Kind) {
    const ALL: &[&str] = &[
        LOAD_TTL,
        FILE_TTL,
        OPEN_TTL,
        GET_TTL,
        SCAN_TTL,
        PREFIX_TTL,
        PURGE_NOTHING,
        PUT_TTL,
        GET_EXPIRED,
        PURGE,
    ];
    if !kind.ttl || !bench.results.wants_any(ALL) {
        return;
    }
    let (data, name, mode) = (bench.data, kind.name, Mode { ttl: true, sync: false });
    let (n, place) = (data.n as usize, Place::new(bench, kind));
    let far = now_ms() + FAR_MS;
    let mut store = (kind.open)(&place.store(), mode);
    let start = Stopwatch::start();
    // Expiry times in another order than keys.
    load(&mut *store, data, IN_ORDER, n, VALUE, &|i| far + (mix(i as u64) % 1_000_000) as i64);
    if bench.results.wants(LOAD_TTL) {
        bench.results.set(name, LOAD_TTL, start.ns() / n as f64);
    }
    drop(store);
    if bench.results.wants(FILE_TTL) && bench.round == 0 {
        bench.results.set(name, FILE_TTL, place.size() as f64 / (n * (16 + VALUE)) as f64);
    }
    open(bench, kind, &place, mode, [OPEN_TTL, ""]);
    let mut store = (kind.open)(&place.store(), mode);
    warm(&mut *store, data, IN_ORDER, VALUE);
    let results = &mut *bench.results;
    let keys: Vec<Key> = data.sample(reads(data), bench.round).copied().collect();
    results.time(name, GET_TTL, keys.len(), || get_all(&mut *store, &keys, VALUE));
    scans(results, name, &mut *store, data, &keys, [SCAN_TTL, PREFIX_TTL]);
    results.time(name, PURGE_NOTHING, 2000, || {
        for _ in 0..2000 {
            assert_eq!(store.purge(), 0);
        }
    });
    let ops = n.min(50_000);
    results.each(name, PUT_TTL, ops, |i| {
        store.put_ttl(&keys[i], data.value(i + 3, VALUE), far + (mix(i as u64) % 1_000_000) as i64);
    });
    // A tenth of all keys is made to expire, in random order of keys and of times.
    let past = now_ms() - 2_000_000;
    let expire = |store: &mut dyn Store, keys: &[Key]| {
        for batch in keys.chunks(1000) {
            store.write_all(batch.len(), &mut |i| {
                (batch[i], data.value(i, VALUE), past + (mix(i as u64 ^ 77) % 1_000_000) as i64)
            });
        }
    };
    if results.wants(GET_EXPIRED) {
        let some: Vec<Key> = data.sample(n.min(100_000) / 10, 600 + bench.round).copied().collect();
        expire(&mut *store, &some);
        results.time(name, GET_EXPIRED, some.len(), || {
            for key in &some {
                assert_eq!(store.get(key), None);
            }
        });
        store.purge();
    }
    if results.wants(PURGE) {
        let some: Vec<Key> = data.sample(n / 10, 700 + bench.round).copied().collect();
        expire(&mut *store, &some);
        let start = Stopwatch::start();
        let purged = store.purge();
        results.set(name, PURGE, start.ns() / some.len() as f64);
        assert_eq!(purged, some.len() as u64, "the purge is wrong");
    }
}

fn big(bench: &mut Bench, kind: &Kind) {
    const BIG: usize = 1000;
    let names = [BIG_LOAD, BIG_FILE, BIG_GET, BIG_SCAN, BIG_SCAN_RANDOM, BIG_OVERWRITE, BIG_DELETE];
    if kind.writes_only || !bench.results.wants_any(&names) {
        return;
    }
    let (name, mode) = (kind.name, Mode::default());
    let data = &Data::new((bench.data.n / 5).max(1000));
    let (n, place) = (data.n as usize, Place::new(bench, kind));
    let mut store = (kind.open)(&place.store(), mode);
    let start = Stopwatch::start();
    load(&mut *store, data, IN_ORDER, n, BIG, NEVER);
    bench.results.set(name, BIG_LOAD, start.ns() / n as f64);
    drop(store);
    bench.results.set(name, BIG_FILE, place.size() as f64 / (n * (16 + BIG)) as f64);
    let mut store = (kind.open)(&place.store(), mode);
    warm(&mut *store, data, IN_ORDER, BIG);
    let keys: Vec<Key> = data.sample(n.min(100_000), bench.round).copied().collect();
    let results = &mut *bench.results;
    results.time(name, BIG_GET, keys.len(), || get_all(&mut *store, &keys, BIG));
    results.time(name, BIG_SCAN, n, || assert_eq!(black_box(store.scan()).rows, n as u64));
    results.each(name, BIG_OVERWRITE, n.min(30_000), |i| store.put(&keys[i], data.value(i + 1, BIG)));
    results.each(name, BIG_DELETE, n.min(10_000), |i| store.delete(&keys[i]));
    drop(store);
    // Loading in random order takes plain SQLite half a minute; once is enough.
    if results.wants(BIG_SCAN_RANDOM) && bench.round == 0 {
        let place = Place::new(bench, kind);
        let mut store = (kind.open)(&place.store(), mode);
        load(&mut *store, data, &|i| data.shuffled[i], n, BIG, NEVER);
        drop(store);
        let mut store = (kind.open)(&place.store(), mode);
        warm(&mut *store, data, &|i| data.shuffled[i], BIG);
        for _ in 0..3 {
            let results = &mut *bench.results;
            results.time(name, BIG_SCAN_RANDOM, n, || assert_eq!(black_box(store.scan()).rows, n as u64));
        }
    }
}

fn sizes(bench: &mut Bench, kind: &Kind) {
    if kind.writes_only {
        return;
    }
    for size in SIZES {
        let names = ["get", "overwrite", "scan, per row"].map(|what| format!("values of {size} B: {what}"));
        if !bench.results.wants_any(&names.each_ref().map(String::as_str)) {
            continue;
        }
        let data = &Data::new((bench.data.n / 10).min(40_000_000 / size as u64).max(1000));
        let (n, name, place) = (data.n as usize, kind.name, Place::new(bench, kind));
        let mut store = (kind.open)(&place.store(), Mode::default());
        load(&mut *store, data, IN_ORDER, n, size, NEVER);
        drop(store);
        let mut store = (kind.open)(&place.store(), Mode::default());
        warm(&mut *store, data, IN_ORDER, size);
        let results = &mut *bench.results;
        let keys: Vec<Key> = data.sample(n.clamp(20_000, 50_000), bench.round).copied().collect();
        results.time(name, &names[0], keys.len(), || get_all(&mut *store, &keys, size));
        let times = (50_000 / n).max(1);
        results.time(name, &names[2], n * times, || {
            (0..times).for_each(|_| assert_eq!(black_box(store.scan()).rows, n as u64));
        });
        results.time(name, &names[1], 5000, || {
            (0..5000).for_each(|i| store.put(&keys[i], data.value(i + 1, size)));
        });
    }
}

fn fsync(bench: &mut Bench, kind: &Kind) {
    if kind.writes_only || !bench.results.wants(FSYNC) {
        return;
    }
    let (data, place) = (bench.data, Place::new(bench, kind));
    let (n, mode) = ((data.n as usize).min(100_000), Mode { ttl: false, sync: true });
    // Loaded without.
    load(&mut *(kind.open)(&place.store(), Mode::default()), data, IN_ORDER, n, VALUE, NEVER);
    let mut store = (kind.open)(&place.store(), mode);
    if kind.name == stores::KVSTORE {
        let mut file = std::fs::File::create(place.0.join("floor")).expect("a file");
        bench.results.each(FLOOR, FSYNC, 400, |i| {
            file.write_all(data.value(i, 16 + VALUE)).expect("a write");
            file.sync_data().expect("a sync");
        });
    }
    let some = |i: usize| key(mix(i as u64) % n as u64);
    bench.results.each(kind.name, FSYNC, 400, |i| store.put(&some(i), data.value(i, VALUE)));
}

/// How costs grow with the number of keys; kvstore only, once.
fn growth(bench: &mut Bench, kind: &Kind) {
    let names: Vec<&str> = GROWTH.iter().map(|(name, _)| *name).collect();
    if kind.name != stores::KVSTORE || bench.round > 0 || !bench.results.wants_any(&names) {
        return;
    }
    let name = kind.name;
    let numbers = [10_000u64, 100_000, 1_000_000, 10_000_000];
    for n in numbers.into_iter().filter(|n| *n <= bench.data.n * 10) {
        eprintln!("    {n} keys");
        let data = &Data::new(n);
        let place = Place::new(bench, kind);
        let add = |results: &mut Results, workload, ops: usize, f: &mut dyn FnMut()| {
            let start = Stopwatch::start();
            f();
            results.add(name, workload, n, start.ns() / ops as f64);
        };
        let results = &mut *bench.results;
        let mut store = (kind.open)(&place.store(), Mode::default());
        load(&mut *store, data, IN_ORDER, n as usize, VALUE, NEVER);
        drop(store);
        for _ in 0..15 {
            let mut opened = None;
            add(results, "growth: open", 1, &mut || {
                opened = Some((kind.open)(&place.store(), Mode::default()));
            });
            drop(opened);
        }
        let bytes = child::memory(kind, &place.store(), n, 200_000);
        results.add(name, "growth: anonymous memory", n, bytes as f64 / 1e6);
        let mut store = (kind.open)(&place.store(), Mode::default());
        warm(&mut *store, data, IN_ORDER, VALUE);
        for round in 0..3 {
            let keys: Vec<Key> = data.sample(100_000, round).copied().collect();
            add(results, "growth: get", keys.len(), &mut || get_all(&mut *store, &keys, VALUE));
            add(results, "growth: scan, per row", n as usize, &mut || {
                assert_eq!(black_box(store.scan()).rows, n);
            });
        }
        for round in 0..3 {
            let keys: Vec<Key> = data.sample(20_000, 10 + round).copied().collect();
            add(results, "growth: put, auto", keys.len(), &mut || {
                keys.iter().enumerate().for_each(|(i, key)| store.put(key, data.value(i, VALUE)));
            });
        }
        drop(store);
        drop(place);
        let place = Place::new(bench, kind);
        let results = &mut *bench.results;
        let mut store = (kind.open)(&place.store(), Mode { ttl: true, sync: false });
        let far = now_ms() + FAR_MS;
        // In the order of the keys, since this only fills the store; what expires is anywhere.
        load(&mut *store, data, IN_ORDER, n as usize, VALUE, &|i| far + i as i64 / 100);
        for round in 0..3 {
            let keys: Vec<Key> = data.sample(5000, 20 + round).copied().collect();
            store.write_all(keys.len(), &mut |i| (keys[i], data.value(i, VALUE), 1 + i as i64));
            add(results, "growth: purge, per expired key", keys.len(), &mut || {
                assert_eq!(store.purge(), 5000);
            });
        }
    }
}

//! Keys without TTLs, values of 100 bytes.

use std::hint::black_box;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use super::{Bench, IN_ORDER, NEVER, Place, VALUE, get_all, load, open, reads, scans, warm};
use crate::child;
use crate::measure::{Stopwatch, key, missing, mix};
use crate::spec::*;
use crate::store::{Key, Kind, Mode, Store, sum};
use crate::stores;

pub(super) fn plain(bench: &mut Bench, kind: &Kind) {
    const READS: &[&str] = &[
        GET,
        GET_ALLOCATED,
        HOT,
        MISS,
        EXISTS,
        GET_UNHELD,
        SCAN,
        FETCH,
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
    const WRITES: &[&str] =
        &[LOAD, OVERWRITE, OVERWRITE_TRANSACTION, OVERWRITE_BATCH, MIXED, DELETE_TRANSACTION, DELETE];
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
    bench.results.settle(name, LOAD, n, || store.settle());
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
        if name == stores::KVSTORE && bench.results.wants(GET_UNHELD) {
            let mut unheld = (kind.open)(&place.store(), Mode { unheld: true, ..mode });
            let keys: Vec<Key> = data.sample(reads(data), bench.round).copied().collect();
            get_all(&mut *unheld, &keys[..keys.len() / 10], VALUE);
            bench.results.time(name, GET_UNHELD, keys.len(), || get_all(&mut *unheld, &keys, VALUE));
        }
        beside(bench, kind, &mut *store, &place.store());
        // SNKV cannot write after another process has written.
        drop(store);
        store = (kind.open)(&place.store(), mode);
    }
    plain_writes(bench, kind, &mut *store, &place);
}

fn plain_writes(bench: &mut Bench, kind: &Kind, store: &mut dyn Store, place: &Place) {
    let (data, name, n) = (bench.data, kind.name, bench.data.n as usize);
    let results = &mut *bench.results;
    let ops = n.min(100_000);
    let keys: Vec<Key> = data.sample(ops, 1000 + bench.round).copied().collect();
    let (before, mut largest_wal) = (store.checkpoints(), 0);
    let done = results.each(name, OVERWRITE, ops, |i| {
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
    results.settle(name, OVERWRITE, done, || store.settle());
    let size = n.min(10_000);
    let keys: Vec<Key> = data.sample((n / 10_000).clamp(1, 10) * size, 2000 + bench.round).copied().collect();
    results.time(name, OVERWRITE_TRANSACTION, keys.len(), || {
        for keys in keys.chunks(size) {
            store.write_all(size, &mut |i| (keys[i], data.value(i + 9, VALUE), 0));
        }
    });
    results.settle(name, OVERWRITE_TRANSACTION, keys.len(), || store.settle());
    if name == stores::KVSTORE {
        results.time(name, OVERWRITE_BATCH, keys.len(), || {
            for keys in keys.chunks(size) {
                store.write_batch(size, &mut |i| (keys[i], data.value(i + 11, VALUE), 0));
            }
        });
        results.settle(name, OVERWRITE_BATCH, keys.len(), || store.settle());
    }
    let ops = n.min(100_000);
    let keys: Vec<Key> = data.sample(ops, 3000 + bench.round).copied().collect();
    let done = results.each(name, MIXED, ops, |i| match i % 10 {
        0 | 5 => store.put(&keys[i], data.value(i, VALUE)),
        9 => store.delete(&keys[i]),
        // Some keys were deleted.
        _ => assert!(store.get(&keys[i]).is_none_or(|length| length == VALUE)),
    });
    results.settle(name, MIXED, done, || store.settle());
    // No key is in both sets: keys deleted one by one, and keys deleted in one transaction.
    let (single, size) = ((n / 2).min(50_000), (n / 4).min(10_000));
    let together = (n / 40_000).clamp(1, 5) * size;
    let keys: Vec<Key> = data.sample(single + together, 4000 + bench.round).copied().collect();
    let (single, together) = keys.split_at(single);
    results.time(name, DELETE_TRANSACTION, together.len(), || {
        together.chunks(size).for_each(|keys| store.delete_all(keys));
    });
    results.settle(name, DELETE_TRANSACTION, together.len(), || store.settle());
    let done = results.each(name, DELETE, single.len(), |i| store.delete(&single[i]));
    results.settle(name, DELETE, done, || store.settle());
    if results.wants(DELETE) && !kind.writes_only {
        assert_eq!(store.get(&single[0]), None);
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
    if name == stores::KVSTORE && results.wants(FETCH) {
        assert_eq!(store.fetch(), store.scan(), "the fetch is wrong");
        let (n, times) = (data.n as usize, (300_000 / data.n).max(1) as usize);
        results.time(name, FETCH, n * times, || {
            (0..times).for_each(|_| assert_eq!(black_box(store.fetch()).rows, data.n));
        });
    }
    if results.wants_any(&[THREADS_1, THREADS_2]) {
        let one = in_threads(store, 1, &keys);
        results.set(name, THREADS_1, one);
        let two = in_threads(store, 2, &keys);
        results.set(name, THREADS_2, two);
    }
}

/// Returns nanoseconds per get over all threads.
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

/// Reads while another process writes. First, reader and writer take turns, to check that each
/// commit is visible at once. Then both run at full speed.
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

//! Keys with TTLs, values of 100 bytes.

use super::{Bench, FAR_MS, IN_ORDER, Place, VALUE, get_all, load, open, reads, scans, warm};
use crate::child::{Latencies, Writer};
use crate::measure::{Stopwatch, key, mix};
use crate::spec::*;
use crate::store::{Key, Kind, Mode, Store, now_ms};

pub(super) fn ttl(bench: &mut Bench, kind: &Kind) {
    const READS: &[&str] = &[
        FILE_TTL,
        OPEN_TTL,
        GET_TTL,
        SCAN_TTL,
        PREFIX_TTL,
        PURGE_NOTHING,
        GET_EXPIRED,
        FIRST_LIVE,
        FIRST_LIVE_AGAIN,
    ];
    const WRITES: &[&str] = &[LOAD_TTL, PUT_TTL, PURGE, PURGE_BESIDE, PURGE_WRITER];
    let results = &bench.results;
    if !kind.ttl || !results.wants_any(WRITES) && (kind.writes_only || !results.wants_any(READS)) {
        return;
    }
    let (data, name, mode) = (bench.data, kind.name, Mode { ttl: true, ..Mode::default() });
    let (n, place) = (data.n as usize, Place::new(bench, kind));
    let far = now_ms() + FAR_MS;
    let mut store = (kind.open)(&place.store(), mode);
    let start = Stopwatch::start();
    // Expiry times in another order than keys.
    load(&mut *store, data, IN_ORDER, n, VALUE, &|i| far + (mix(i as u64) % 1_000_000) as i64);
    if bench.results.wants(LOAD_TTL) {
        bench.results.set(name, LOAD_TTL, start.ns() / n as f64);
    }
    bench.results.settle(name, LOAD_TTL, n, || store.settle());
    let keys: Vec<Key> = data.sample(reads(data), bench.round).copied().collect();
    if !kind.writes_only {
        drop(store);
        if bench.results.wants(FILE_TTL) && bench.round == 0 {
            bench.results.set(name, FILE_TTL, place.size() as f64 / (n * (16 + VALUE)) as f64);
        }
        open(bench, kind, &place, mode, [OPEN_TTL, ""]);
        store = (kind.open)(&place.store(), mode);
        warm(&mut *store, data, IN_ORDER, VALUE);
        let results = &mut *bench.results;
        results.time(name, GET_TTL, keys.len(), || get_all(&mut *store, &keys, VALUE));
        scans(results, name, &mut *store, data, &keys, [SCAN_TTL, PREFIX_TTL]);
        results.time(name, PURGE_NOTHING, 2000, || {
            for _ in 0..2000 {
                assert_eq!(store.purge(), 0);
            }
        });
    }
    let results = &mut *bench.results;
    let ops = n.min(50_000);
    let done = results.each(name, PUT_TTL, ops, |i| {
        store.put_ttl(&keys[i], data.value(i + 3, VALUE), far + (mix(i as u64) % 1_000_000) as i64);
    });
    results.settle(name, PUT_TTL, done, || store.settle());
    // A tenth of all keys is made to expire, in random order of keys and of times.
    let past = now_ms() - 2_000_000;
    let expire = |store: &mut dyn Store, keys: &[Key]| {
        for batch in keys.chunks(1000) {
            store.write_all(batch.len(), &mut |i| {
                (batch[i], data.value(i, VALUE), past + (mix(i as u64 ^ 77) % 1_000_000) as i64)
            });
        }
    };
    if !kind.writes_only && results.wants(GET_EXPIRED) {
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
        store.settle();
        let start = Stopwatch::start();
        let purged = store.purge();
        results.set(name, PURGE, start.ns() / some.len() as f64);
        results.settle(name, PURGE, some.len(), || store.settle());
        assert_eq!(purged, some.len() as u64, "the purge is wrong");
    }
    if results.wants_any(&[PURGE_BESIDE, PURGE_WRITER]) && kind.processes && kind.keeps {
        // The writer overwrites other keys than those that expire.
        let written = n as u64 / 10;
        let some: Vec<Key> = data.sample(n / 3, 800 + bench.round).copied().collect();
        let some: Vec<Key> =
            some.into_iter().filter(|expired| *expired >= key(written)).take(200_000).collect();
        expire(&mut *store, &some);
        store.settle();
        let writer = Writer::start_at_full_speed(kind, &place.store(), written);
        let start = Stopwatch::start();
        let purged = store.purge();
        results.set(name, PURGE_BESIDE, start.ns() / some.len() as f64);
        let Latencies { mean, percentiles } = writer.stop_and_report();
        results.set_each(name, PURGE_WRITER, mean, percentiles);
        assert_eq!(purged, some.len() as u64, "the purge is wrong");
    }
    drop(store);
    drop(place);
    if !kind.writes_only && results.wants_any(&[FIRST_LIVE, FIRST_LIVE_AGAIN]) {
        let place = Place::new(bench, kind);
        let mut store = (kind.open)(&place.store(), mode);
        let last = n - 1;
        load(&mut *store, data, IN_ORDER, n, VALUE, &|i| {
            if i == last { far } else { past + i as i64 / 1000 }
        });
        drop(store);
        store = (kind.open)(&place.store(), mode);
        for workload in [FIRST_LIVE, FIRST_LIVE_AGAIN] {
            bench.results.time(name, workload, 1, || assert!(store.first()));
        }
    }
}

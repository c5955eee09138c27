//! Values of other sizes, and writes with an fsync each.

use std::hint::black_box;
use std::io::Write;

use super::{Bench, IN_ORDER, NEVER, Place, VALUE, get_all, load, warm};
use crate::measure::{Data, Stopwatch, key, mix};
use crate::spec::*;
use crate::store::{Key, Kind, Mode};
use crate::stores;

pub(super) fn big(bench: &mut Bench, kind: &Kind) {
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

pub(super) fn sizes(bench: &mut Bench, kind: &Kind) {
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

pub(super) fn fsync(bench: &mut Bench, kind: &Kind) {
    if kind.writes_only || !bench.results.wants(FSYNC) {
        return;
    }
    let (data, place) = (bench.data, Place::new(bench, kind));
    let (n, mode) = ((data.n as usize).min(100_000), Mode { sync: true, ..Mode::default() });
    // Loaded without fsync.
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

//! Cost by number of keys.

use std::hint::black_box;

use super::{Bench, FAR_MS, IN_ORDER, NEVER, Place, VALUE, get_all, load, warm};
use crate::child;
use crate::measure::{Data, Results, Stopwatch};
use crate::spec::*;
use crate::store::{Key, Kind, Mode, now_ms};
use crate::stores;

/// kvstore only.
pub(super) fn growth(bench: &mut Bench, kind: &Kind) {
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
        let mode = Mode { ttl: true, ..Mode::default() };
        let mut store = (kind.open)(&place.store(), mode);
        let far = now_ms() + FAR_MS;
        // Keys are loaded in key order, because this only fills the store. Expiry times are spread
        // over the keys.
        load(&mut *store, data, IN_ORDER, n as usize, VALUE, &|i| far + i as i64 / 100);
        drop(store);
        for _ in 0..15 {
            let mut opened = None;
            add(results, GROWTH_OPEN_TTL, 1, &mut || opened = Some((kind.open)(&place.store(), mode)));
        }
        let mut store = (kind.open)(&place.store(), mode);
        // The first call finds the earliest expiry time.
        assert_eq!((store.purge_step(), store.next_expiry()), (0, Some(far)));
        for _ in 0..3 {
            add(results, GROWTH_PURGE, 2000, &mut || (0..2000).for_each(|_| assert_eq!(store.purge(), 0)));
            add(results, GROWTH_STEP, 2000, &mut || {
                (0..2000).for_each(|_| assert_eq!(store.purge_step(), 0))
            });
            add(results, GROWTH_NEXT, 2000, &mut || {
                (0..2000).for_each(|_| assert_eq!(store.next_expiry(), Some(far)));
            });
        }
        for round in 0..3 {
            let keys: Vec<Key> = data.sample(5000, 20 + round).copied().collect();
            let past = now_ms() - 2_000_000;
            store.write_all(keys.len(), &mut |i| (keys[i], data.value(i, VALUE), past + i as i64));
            add(results, "growth: purge, per expired key", keys.len(), &mut || {
                assert_eq!(store.purge(), 5000);
            });
        }
    }
}

//! YCSB's core workloads A, B, C and F, in the order that its documentation recommends. Keys and
//! values are those of the other workloads, not YCSB's ten fields of 100 bytes. `zipf.rs` draws the
//! ranks of the keys. Workloads D and E measure insertions and scans, and are left out.

use super::{Bench, IN_ORDER, NEVER, Place, VALUE, load, warm};
use crate::measure::{Data, Results, key, mix};
use crate::spec::*;
use crate::store::{Key, Kind, Mode, Store};
use crate::zipf::Zipfian;

/// Percentage of updates (read-modify-writes in F). The other operations are gets.
const MIXES: [(&str, u64); 4] = [(YCSB_A, 50), (YCSB_B, 5), (YCSB_C, 0), (YCSB_F, 50)];

pub(super) fn ycsb(bench: &mut Bench, kind: &Kind) {
    if !bench.results.wants_any(&MIXES.map(|(workload, _)| workload)) {
        return;
    }
    let (data, place) = (bench.data, Place::new(bench, kind));
    load(&mut *(kind.open)(&place.store(), Mode::default()), data, IN_ORDER, data.n as usize, VALUE, NEVER);
    let mut store = (kind.open)(&place.store(), Mode::default());
    warm(&mut *store, data, IN_ORDER, VALUE);
    for (i, (workload, writes)) in MIXES.into_iter().enumerate() {
        let mut zipfian = Zipfian::new((bench.round * MIXES.len() + i) as u64);
        let operations: Vec<(Key, bool)> = (0..(data.n as usize).clamp(20_000, 200_000) as u64)
            .map(|n| (key(zipfian.below(data.n)), mix(n ^ 0x5C5B) % 100 < writes))
            .collect();
        run(bench.results, kind.name, workload, &mut *store, data, &operations);
    }
}

fn run(
    results: &mut Results,
    name: &'static str,
    workload: &str,
    store: &mut dyn Store,
    data: &Data,
    operations: &[(Key, bool)],
) {
    let done = results.each(name, workload, operations.len(), |i| match &operations[i] {
        (key, false) => assert_eq!(store.get(key), Some(VALUE)),
        (key, true) if workload == YCSB_F => {
            let modified = store.modify(key, &mut |value| {
                assert_eq!(value.len(), VALUE);
                value[..8].copy_from_slice(&(i as u64).to_le_bytes());
            });
            assert!(modified);
        }
        (key, true) => store.put(key, data.value(i + 13, VALUE)),
    });
    if workload != YCSB_C {
        results.settle(name, workload, done, || store.settle());
    }
}

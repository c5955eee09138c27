//! Cost by number of families. The number of keys, all with TTLs, stays the same. Measures kvstore,
//! and SNKV where it has the operation.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{Bench, FAR_MS, Place, VALUE};
use crate::measure::{Stopwatch, key, median, mix};
use crate::spec::*;
use crate::store::{Kind, now_ms};
use crate::stores;
use crate::stores::families::Families;

const OPERATIONS: usize = 5000;
/// Time limit of a workload. A slower workload does fewer operations.
const LIMIT: Duration = Duration::from_millis(200);

pub(super) fn families(bench: &mut Bench, kind: &Kind) {
    let names: Vec<&str> = FAMILIES.iter().map(|(name, _)| *name).collect();
    let snkv = kind.name == stores::SNKV;
    if (kind.name != stores::KVSTORE && !snkv) || bench.round > 0 || !bench.results.wants_any(&names) {
        return;
    }
    let n = (bench.data.n as usize).min(100_000);
    for count in FAMILY_COUNTS.into_iter().filter(|count| *count <= n / 10) {
        let (place, begin) = (Place::new(bench, kind), Instant::now());
        if !fill(bench, snkv, &place.store(), count, n) {
            eprintln!("    {} takes no {count} families with TTLs", kind.name);
            return;
        }
        eprintln!("    {}: {count} families, filled in {:.1} s", kind.name, begin.elapsed().as_secs_f64());
        measure(bench, kind.name, &place.store(), count, n);
    }
}

/// Creates the store. Returns `false` if it cannot hold this number of families.
fn fill(bench: &Bench, snkv: bool, path: &Path, count: usize, n: usize) -> bool {
    let (mut store, far) = (Families::open(snkv, path), now_ms() + FAR_MS);
    if !store.transaction(|store| store.make(count)) {
        return false;
    }
    store.open_families(count);
    store.transaction(|store| {
        // Family by family: this only fills the store.
        (0..count).all(|family| {
            (family..n)
                .step_by(count)
                .all(|i| store.put_ttl(family, &key(i as u64), bench.data.value(i, VALUE), far))
        })
    })
}

fn measure(bench: &mut Bench, name: &'static str, path: &Path, count: usize, n: usize) {
    let (data, results, snkv) = (bench.data, &mut *bench.results, name == stores::SNKV);
    let mut add = |workload: &str, ns: f64| results.add(name, workload, count as u64, ns);
    let (mut opens, begin) = (Vec::new(), Instant::now());
    while opens.len() < 3 || (opens.len() < 15 && begin.elapsed() < Duration::from_millis(500)) {
        let start = Stopwatch::start();
        let store = Families::open(snkv, path);
        opens.push(start.ns());
        drop(store);
    }
    add(FAMILIES_OPEN, median(&opens));

    let mut store = Families::open(snkv, path);
    let mut per = |workload: &str, operations: usize, f: &mut dyn FnMut(usize)| {
        let (start, begin, mut done) = (Stopwatch::start(), Instant::now(), 0);
        while done < operations && begin.elapsed() < LIMIT {
            // The number of operations doubles, so that reading the clock costs next to nothing.
            let next = (2 * done).clamp(1, operations);
            (done..next).for_each(&mut *f);
            done = next;
        }
        add(workload, start.ns() / done as f64);
    };
    let some = |i: usize| mix(i as u64) as usize % n;
    per(FAMILIES_OPEN_ONE, OPERATIONS, &mut |i| store.open_and_close_family(some(i) % count));
    store.open_families(count);
    // Reads everything into memory first. SNKV takes long if there are many families.
    let begin = Instant::now();
    for i in (0..n).take_while(|i| i % 64 != 0 || begin.elapsed() < 5 * LIMIT) {
        assert_eq!(store.get(i % count, &key(i as u64)), VALUE as i32);
    }
    per(FAMILIES_GET, 4 * OPERATIONS, &mut |i| {
        assert_eq!(store.get(some(i) % count, &key(some(i) as u64)), VALUE as i32);
    });
    let far = now_ms() + FAR_MS;
    per(FAMILIES_PUT, OPERATIONS, &mut |i| {
        assert!(store.put_ttl(some(i) % count, &key(some(i) as u64), data.value(i + 19, VALUE), far));
    });
    per(FAMILIES_PURGE, OPERATIONS, &mut |i| store.purge(some(i) % count));
    // The first call examines all families.
    store.purge_all();
    per(FAMILIES_PURGE_ALL, OPERATIONS, &mut |_| store.purge_all());
    if !snkv {
        per(FAMILIES_NEXT, OPERATIONS, &mut |_| assert!(store.next_expiry() < far + FAR_MS));
        add(FAMILIES_CLEANER, cleaner(&mut store));
    }
}

/// Returns the processor time of a round of the cleaner. The least of several measurements is
/// taken, which leaves out the first round (it examines all families) and other threads.
fn cleaner(store: &mut Families) -> f64 {
    const EVERY_MS: u64 = 1;
    const WINDOW: Duration = Duration::from_millis(100);
    store.start_cleaner(EVERY_MS as i64);
    let windows = (0..6).map(|_| {
        let (start, processor) = (Instant::now(), processor_time());
        std::thread::sleep(WINDOW);
        let rounds = start.elapsed().as_secs_f64() * 1000.0 / EVERY_MS as f64;
        (processor_time() - processor) / rounds
    });
    let least = windows.fold(f64::INFINITY, f64::min);
    store.stop_cleaner();
    least
}

/// Processor time of the whole process, in nanoseconds.
fn processor_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: an output; the clock is there.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

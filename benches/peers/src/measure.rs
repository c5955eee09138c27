//! Clocks, keys, values and the results. Knows neither stores nor targets.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::spec::{PERCENTILES, percentile, settled};
use crate::store::Key;

/// A key of 16 digits: numbers and keys have the same order, and 14 digits are a prefix of 100 keys.
pub fn key(n: u64) -> Key {
    let mut key = [b'0'; 16];
    let mut rest = n;
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// A key that is between existing ones and not there.
pub fn missing(mut key: Key) -> Key {
    key[15] = b'a';
    key
}

pub fn mix(n: u64) -> u64 {
    let mut x = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Set by `--cpu`: time is the calling thread's processor time. For comparisons on a busy machine; waiting
/// for the disk does not count then.
pub static PROCESSOR_TIME: AtomicBool = AtomicBool::new(false);

pub struct Stopwatch(u64);

impl Stopwatch {
    pub fn start() -> Stopwatch {
        Stopwatch(now())
    }
    /// Nanoseconds since the start.
    pub fn ns(&self) -> f64 {
        (now() - self.0) as f64
    }
}

fn now() -> u64 {
    let processor = PROCESSOR_TIME.load(Ordering::Relaxed);
    let clock = if processor { libc::CLOCK_THREAD_CPUTIME_ID } else { libc::CLOCK_MONOTONIC };
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: an output; both clocks are there.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub struct Data {
    pub n: u64,
    /// All keys in random order; no key twice.
    pub shuffled: Vec<Key>,
    /// Random bytes, so that nothing can be compressed.
    pool: Vec<u8>,
}

const POOL: usize = 1 << 20;

impl Data {
    pub fn new(n: u64) -> Data {
        let mut shuffled: Vec<Key> = (0..n).map(key).collect();
        for i in (1..shuffled.len()).rev() {
            shuffled.swap(i, (mix(i as u64) % (i as u64 + 1)) as usize);
        }
        let pool = (0..POOL as u64 / 8).flat_map(|i| mix(i ^ 0xABCD).to_le_bytes()).collect();
        Data { n, shuffled, pool }
    }

    pub fn value(&self, i: usize, length: usize) -> &[u8] {
        let start = i.wrapping_mul(1013) % (POOL - length);
        &self.pool[start..start + length]
    }

    /// `count` random keys, other ones for each salt.
    pub fn sample(&self, count: usize, salt: usize) -> impl Iterator<Item = &Key> {
        let start = mix(salt as u64) as usize % self.shuffled.len();
        self.shuffled[start..].iter().chain(&self.shuffled).cycle().take(count)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct What {
    pub workload: String,
    /// Keys in the store, where a workload is measured for several numbers; otherwise 0.
    pub n: u64,
    pub store: &'static str,
}

/// All measured values, one for each round.
#[derive(Default)]
pub struct Results {
    pub values: BTreeMap<What, Vec<f64>>,
    pub only: Vec<String>,
    /// No workload of single writes takes longer.
    pub limit: Duration,
}

impl Results {
    pub fn wants(&self, workload: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| workload.contains(only.as_str()))
    }

    pub fn wants_any(&self, workloads: &[&str]) -> bool {
        workloads.iter().any(|workload| self.wants(workload))
    }

    pub fn add(&mut self, store: &'static str, workload: &str, n: u64, value: f64) {
        let what = What { workload: workload.to_string(), n, store };
        self.values.entry(what).or_default().push(value);
    }

    pub fn set(&mut self, store: &'static str, workload: &str, value: f64) {
        self.add(store, workload, 0, value);
    }

    /// Nanoseconds per operation.
    pub fn time(&mut self, store: &'static str, workload: &str, operations: usize, f: impl FnOnce()) {
        if self.wants(workload) {
            let start = Stopwatch::start();
            f();
            self.set(store, workload, start.ns() / operations as f64);
        }
    }

    /// Operations whose times are looked at one by one: the mean, and percentiles under names of their own.
    /// Returns the number of operations done.
    pub fn each(
        &mut self,
        store: &'static str,
        workload: &str,
        operations: usize,
        f: impl FnMut(usize),
    ) -> usize {
        if !self.wants(workload) {
            return 0;
        }
        let mut f = f;
        let (done, mean, percentiles) = each(operations, self.limit, |i| {
            f(i);
            true
        });
        self.set_each(store, workload, mean, percentiles);
        done
    }

    /// The mean of single operations, and their percentiles.
    pub fn set_each(&mut self, store: &'static str, workload: &str, mean: f64, percentiles: [f64; 4]) {
        self.set(store, workload, mean);
        for (which, value) in PERCENTILES.into_iter().zip(percentiles) {
            self.set(store, &percentile(workload, which), value);
        }
    }

    /// Measures `settle`, which completes the work that the last `operations` operations have postponed, and
    /// adds it to their time, under a name of its own.
    pub fn settle(&mut self, store: &'static str, workload: &str, operations: usize, settle: impl FnOnce()) {
        if self.wants(workload) {
            let start = Stopwatch::start();
            settle();
            let more = start.ns() / operations.max(1) as f64;
            let what = What { workload: workload.to_string(), n: 0, store };
            if let Some(without) = self.values.get(&what).and_then(|values| values.last()).copied() {
                self.set(store, &settled(workload), without + more);
            }
        }
    }

    pub fn median(&self, store: &str, workload: &str) -> Option<f64> {
        self.median_at(store, workload, 0)
    }

    pub fn median_at(&self, store: &str, workload: &str, n: u64) -> Option<f64> {
        let matches = |what: &What| what.store == store && what.workload == workload && what.n == n;
        self.values.iter().find(|(what, _)| matches(what)).map(|(_, values)| median(values))
    }
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[half - 1], sorted[half]) } else { sorted[half] }
}

/// Calls `f` until it returns `false`, or for this number of operations, or until `limit` has passed.
/// Returns the number of calls, the mean of their times, and the percentiles.
pub fn each(operations: usize, limit: Duration, mut f: impl FnMut(usize) -> bool) -> (usize, f64, [f64; 4]) {
    let mut times = Vec::with_capacity(operations.min(1 << 20));
    let (stopwatch, begin) = (Stopwatch::start(), Instant::now());
    let mut last = begin;
    for i in 0..operations {
        let goes_on = f(i);
        let now = Instant::now();
        times.push((now - last).as_nanos() as u64);
        last = now;
        if !goes_on || now - begin > limit {
            break;
        }
    }
    let mean = stopwatch.ns() / times.len() as f64;
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 1000] as f64;
    (times.len(), mean, [500, 990, 999, 1000].map(at))
}

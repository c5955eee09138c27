//! The list of workloads, in groups that share a store, and helpers that several groups use. A
//! group fills a new store, closes it, opens it again and then measures. Reopening completes the
//! background work of the load, or makes it part of the measurement.

mod families;
mod growth;
mod plain;
mod session;
mod ttl;
mod values;
mod ycsb;

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::measure::{Data, Results, Stopwatch, key};
use crate::store::{Key, Kind, Mode, Seen, Store};

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

/// The groups that are measured in the first round only.
pub const ONCE: [&str; 2] = ["growth", "families"];

pub const GROUPS: &[(&str, Group)] = &[
    ("100-byte values", plain::plain),
    ("TTLs", ttl::ttl),
    ("YCSB", ycsb::ycsb),
    ("session", session::session),
    ("1000-byte values", values::big),
    ("value sizes", values::sizes),
    ("fsync", values::fsync),
    (ONCE[0], growth::growth),
    (ONCE[1], families::families),
];

/// Folder for one store in one group. Empty at first; removed when dropped.
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
    /// Returns the disk space that the store uses, in bytes.
    fn size(&self) -> u64 {
        fn size(folder: &Path) -> u64 {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            entries
                .map(|entry| match entry.metadata() {
                    Ok(of) if of.is_dir() => size(&entry.path()),
                    // The length of a file is not used: LMDB's lock file and preallocated files are
                    // sparse.
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

/// Checks that everything `load` wrote is present, and reads the file into memory.
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

/// Measures several opens and takes the median, because a single open is too short.
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
    // Deletes only complete groups of a hundred keys.
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

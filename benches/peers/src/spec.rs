//! Names of the workloads in the order in which they are printed, and the figures of SNKV and plain
//! SQLite from when the targets were set. These figures are used only to estimate SNKV when it is
//! not loaded.

pub struct Workload {
    pub name: &'static str,
    pub unit: &'static str,
    /// Recorded figures for SNKV, SNKV+ck and SQLite; 0: not measured.
    pub then: [f64; 3],
    /// Whether the workload is repeated in the table of stores with at least kvstore's durability.
    pub writes: bool,
    /// Whether operations are timed one by one, for the table of percentiles.
    pub percentiles: bool,
}

impl Workload {
    const fn writes(self) -> Workload {
        Workload { writes: true, ..self }
    }
    const fn percentiles(self) -> Workload {
        Workload { percentiles: true, ..self }
    }
}

const fn ns(name: &'static str, then: [f64; 3]) -> Workload {
    Workload { name, unit: "ns", then, writes: false, percentiles: false }
}
const fn new(name: &'static str) -> Workload {
    ns(name, [0.0; 3])
}
const fn other(name: &'static str, unit: &'static str) -> Workload {
    Workload { unit, ..new(name) }
}

/// After the name of a workload with percentiles, in the order they are printed.
pub const PERCENTILES: [&str; 4] = ["p50", "p99", "p99.9", "max"];

pub fn percentile(workload: &str, which: &str) -> String {
    format!("{workload}, {which}")
}

/// Name of a workload of writes, measured until the work that the store has postponed is done.
pub fn settled(workload: &str) -> String {
    format!("{workload}, settled")
}

pub const GET: &str = "get";
pub const GET_ALLOCATED: &str = "get, allocating (kvstore_get)";
pub const GET_UNHELD: &str = "get with nothing held (holdReads < 0)";
pub const HOT: &str = "get, hot set of 1000 keys";
pub const MISS: &str = "get, miss";
pub const EXISTS: &str = "exists";
pub const GET_TTL: &str = "get, every key has a TTL";
pub const GET_EXPIRED: &str = "get of an expired key";
pub const SCAN: &str = "scan, per row";
pub const FETCH: &str = "fetch, per row";
pub const SCAN_TTL: &str = "scan, every key has a TTL";
pub const PREFIX: &str = "prefix of 100 rows";
pub const PREFIX_TTL: &str = "prefix of 100 rows with TTLs";
pub const LOAD: &str = "load, 1000 per transaction";
pub const LOAD_TTL: &str = "load with TTL";
pub const OVERWRITE: &str = "overwrite, auto";
pub const OVERWRITE_TRANSACTION: &str = "overwrite, 10 000 in one transaction";
pub const OVERWRITE_BATCH: &str = "overwrite, a batch of 10 000";
pub const DELETE_TRANSACTION: &str = "delete, 10 000 in one transaction";
pub const PUT_TTL: &str = "put_ttl, auto";
pub const DELETE: &str = "delete, auto";
pub const MIXED: &str = "mixed 70/20/10, auto";
pub const YCSB_A: &str = "YCSB A: 50 get, 50 update";
pub const YCSB_B: &str = "YCSB B: 95 get, 5 update";
pub const YCSB_C: &str = "YCSB C: get only";
pub const YCSB_F: &str = "YCSB F: 50 get, 50 read-modify-write";
pub const SESSION: &str = "session: 90 touch, 9 put_ttl, 1 delete";
pub const FSYNC: &str = "put with fsync";
/// Targets use this median, because the mean is dominated by the moments at which the disk is
/// busiest.
pub const FSYNC_P50: &str = "put with fsync, p50";
pub const PURGE: &str = "purge, per expired key";
pub const PURGE_BESIDE: &str = "purge beside a writing process, per key";
/// Time of each write of that process.
pub const PURGE_WRITER: &str = "purge beside a writing process: its writes";
pub const FIRST_LIVE: &str = "first live entry after the expired ones";
pub const FIRST_LIVE_AGAIN: &str = "first live entry, second look";
pub const PURGE_NOTHING: &str = "purge when nothing expired";
pub const OPEN: &str = "open";
pub const OPEN_GET: &str = "open and first get";
pub const OPEN_TTL: &str = "open, every key has a TTL";
pub const THREADS_1: &str = "get, 1 thread";
pub const THREADS_2: &str = "get, 2 threads, own handles";
pub const ALONE: &str = "get beside a writing process: alone";
pub const BESIDE: &str = "get beside a writing process";
pub const STALE: &str = "get beside a writing process: stale reads";
pub const BESIDE_WRITES: &str = "get beside a writing process: its writes";
pub const WAL: &str = "overwrite, auto: largest WAL";
pub const CHECKPOINTS: &str = "overwrite, auto: checkpoints";
pub const FILE: &str = "file / data";
pub const FILE_TTL: &str = "file / data, every key has a TTL";
pub const MEMORY: &str = "anonymous memory during random gets";
pub const LIBRARY: &str = "stripped libkvstore.so";
pub const BIG_LOAD: &str = "1000 B: load, 1000 per transaction";
pub const BIG_FILE: &str = "1000 B: file / data";
pub const BIG_GET: &str = "1000 B: get";
pub const BIG_SCAN: &str = "1000 B: scan, per row";
pub const BIG_SCAN_RANDOM: &str = "1000 B: scan, loaded in random order";
pub const BIG_OVERWRITE: &str = "1000 B: overwrite, auto";
pub const BIG_DELETE: &str = "1000 B: delete, auto";
/// Pseudo-store for the cost of the disk alone.
pub const FLOOR: &str = "bare append + fdatasync";

pub const SIZES: [usize; 4] = [16, 100, 1000, 16_000];

pub const WORKLOADS: &[Workload] = &[
    ns(GET, [2508.0, 0.0, 5616.0]),
    ns(GET_ALLOCATED, [2508.0, 0.0, 5616.0]),
    new(GET_UNHELD),
    new(HOT),
    ns(MISS, [2503.0, 0.0, 5314.0]),
    ns(EXISTS, [2420.0, 0.0, 5349.0]),
    ns(GET_TTL, [4924.0, 0.0, 5788.0]),
    ns(GET_EXPIRED, [32479.0, 0.0, 8244.0]),
    ns(SCAN, [99.0, 0.0, 121.0]),
    new(FETCH),
    ns(SCAN_TTL, [454.0, 0.0, 138.0]),
    ns(PREFIX, [15870.0, 0.0, 19512.0]),
    ns(PREFIX_TTL, [54791.0, 0.0, 21862.0]),
    ns(LOAD, [668.0, 1009.0, 1057.0]).writes(),
    ns(LOAD_TTL, [2706.0, 0.0, 2860.0]).writes(),
    ns(OVERWRITE, [16311.0, 28399.0, 27292.0]).writes().percentiles(),
    other(WAL, "MB"),
    other(CHECKPOINTS, "count"),
    ns(OVERWRITE_TRANSACTION, [11489.0, 10915.0, 18416.0]).writes(),
    new(OVERWRITE_BATCH).writes(),
    new(DELETE_TRANSACTION).writes(),
    ns(PUT_TTL, [44738.0, 0.0, 62952.0]).writes().percentiles(),
    ns(DELETE, [16152.0, 30727.0, 27361.0]).writes().percentiles(),
    ns(MIXED, [7513.0, 13670.0, 11954.0]).writes().percentiles(),
    new(YCSB_A).writes().percentiles(),
    new(YCSB_B).writes().percentiles(),
    new(YCSB_C),
    new(YCSB_F).writes().percentiles(),
    new(SESSION).writes().percentiles(),
    ns(FSYNC, [177_030.0, 0.0, 193_653.0]).percentiles(),
    ns(PURGE, [19960.0, 0.0, 8954.0]).writes(),
    new(PURGE_BESIDE),
    new(PURGE_WRITER).percentiles(),
    new(FIRST_LIVE),
    new(FIRST_LIVE_AGAIN),
    ns(PURGE_NOTHING, [4672.0, 0.0, 3878.0]),
    ns(OPEN, [116_000.0, 0.0, 165_000.0]),
    new(OPEN_GET),
    ns(OPEN_TTL, [14_422_000.0, 0.0, 204_000.0]),
    new(THREADS_1),
    ns(THREADS_2, [1266.0, 0.0, 2378.0]),
    new(ALONE),
    ns(BESIDE, [3251.0, 0.0, 10794.0]),
    other(STALE, "of 200"),
    other(BESIDE_WRITES, "per s"),
    other(FILE, "ratio"),
    other(FILE_TTL, "ratio"),
    other(MEMORY, "MB"),
    other(LIBRARY, "MB"),
    ns(BIG_LOAD, [9055.0, 0.0, 27674.0]),
    other(BIG_FILE, "ratio"),
    ns(BIG_GET, [28636.0, 0.0, 36965.0]),
    ns(BIG_SCAN, [1437.0, 0.0, 1806.0]),
    new(BIG_SCAN_RANDOM),
    ns(BIG_OVERWRITE, [62284.0, 0.0, 85063.0]).percentiles(),
    ns(BIG_DELETE, [239_642.0, 0.0, 67646.0]).percentiles(),
    new("values of 16 B: get"),
    new("values of 100 B: get"),
    new("values of 1000 B: get"),
    new("values of 16000 B: get"),
    new("values of 16 B: overwrite"),
    new("values of 100 B: overwrite"),
    new("values of 1000 B: overwrite"),
    new("values of 16000 B: overwrite"),
    new("values of 16 B: scan, per row"),
    new("values of 100 B: scan, per row"),
    new("values of 1000 B: scan, per row"),
    new("values of 16000 B: scan, per row"),
];

/// Measured for kvstore at several numbers of keys.
pub const GROWTH: &[(&str, &str)] = &[
    ("growth: get", "ns"),
    ("growth: put, auto", "ns"),
    ("growth: purge, per expired key", "ns"),
    (GROWTH_PURGE, "ns"),
    (GROWTH_STEP, "ns"),
    (GROWTH_NEXT, "ns"),
    ("growth: open", "ns"),
    (GROWTH_OPEN_TTL, "ns"),
    ("growth: scan, per row", "ns"),
    ("growth: anonymous memory", "MB"),
];
pub const GROWTH_PURGE: &str = "growth: purge, nothing due";
pub const GROWTH_STEP: &str = "growth: purge_step, nothing due";
pub const GROWTH_NEXT: &str = "growth: next_expiry, nothing due";
pub const GROWTH_OPEN_TTL: &str = "growth: open, every key has a TTL";

pub const FAMILY_COUNTS: [usize; 4] = [1, 100, 2000, 10_000];
/// The number of families that targets are about.
pub const TARGET_FAMILIES: u64 = 2000;

/// Measured for kvstore, and as far as they exist there for SNKV, at several numbers of families.
pub const FAMILIES: &[(&str, &str)] = &[
    (FAMILIES_GET, "ns"),
    (FAMILIES_PUT, "ns"),
    (FAMILIES_PURGE, "ns"),
    (FAMILIES_PURGE_ALL, "ns"),
    (FAMILIES_NEXT, "ns"),
    (FAMILIES_CLEANER, "ns"),
    (FAMILIES_OPEN, "ns"),
    (FAMILIES_OPEN_ONE, "ns"),
];
pub const FAMILIES_GET: &str = "families: get";
pub const FAMILIES_PUT: &str = "families: put_ttl, auto";
pub const FAMILIES_PURGE: &str = "families: purge of one, nothing due";
/// kvstore: purge_step; SNKV: a purge of each family.
pub const FAMILIES_PURGE_ALL: &str = "families: purge of all, nothing due";
pub const FAMILIES_NEXT: &str = "families: next_expiry, nothing due";
/// Processor time.
pub const FAMILIES_CLEANER: &str = "families: cleaner's round, nothing due";
pub const FAMILIES_OPEN: &str = "families: open";
pub const FAMILIES_OPEN_ONE: &str = "families: open one family";

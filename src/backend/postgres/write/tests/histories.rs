//! Random histories of calls on both backends: each call returns the same on the server as on a
//! file.
//!
//! The server uses its own clock. So expiry times and write times are long past or far in the
//! future; the time "now" is known to be neither.

use std::cell::RefCell;

use super::*;
use crate::backend::file;

/// Pseudo-random numbers, the same in each run (xorshift64, Marsaglia 2003).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    fn is(&mut self) -> bool {
        self.below(2) == 0
    }
}

const KEYS: [&[u8]; 12] =
    [b"a", b"a\0", b"a\0\0", b"ab", b"b", b"\0", b"\xff", b"\xff\xff", b"c'\\x41", b"d\x80", b"e", b"f"];
const VALUES: [&[u8]; 16] = [
    b"",
    b"0",
    b"7",
    b"-7",
    b"+7",
    b"-0",
    b"0000000000000000000000000000000012",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"9223372036854775808",
    b"+",
    b"7\n",
    b" 7",
    b"7\\061",
    b"\xff\x80",
    &[b'x'; 3000],
];
const FAMILIES: [&str; 2] = ["plain", "tracked"];

/// One store on the file backend and one on the server, with the same content.
struct Both {
    server: Db,
    file: RefCell<file::Db>,
    clock: Clock,
    tables: [Tables; 2],
}

impl Both {
    fn new(schema: &str) -> Both {
        let server = store(schema, &FAMILIES);
        set(&server, "tracked", "track_writes = true");
        let mut file = file::Db::open(None, &Config::new(), 1).unwrap();
        let tables = FAMILIES.map(Tables::of);
        file.write(|db| {
            for tables in &tables {
                db.create_family(tables, 1)?;
            }
            db.set_write_tracking(&tables[1], true, 1)
        })
        .unwrap();
        Both { server, file: RefCell::new(file), clock: Clock::default(), tables }
    }

    /// Runs a write on the file.
    fn write<R>(&self, family: usize, f: impl Fn(file::Contents<'_>) -> Result<R>) -> Result<R> {
        let (tables, clock) = (&self.tables[family], &self.clock);
        self.file.borrow_mut().write(|db| f(db.contents(tables, clock)))
    }

    /// Runs a read on the file.
    fn read<R>(&self, family: usize, f: impl Fn(file::Contents<'_>) -> Result<R>) -> R {
        f(self.file.borrow().contents(&self.tables[family], &self.clock)).unwrap()
    }

    fn on_server(&self, family: usize) -> Contents<'_> {
        self.server.contents(FAMILIES[family])
    }
}

/// Returns a write time, in which all times near the present are replaced by the same number.
fn around(written_ms: Option<i64>) -> Option<i64> {
    written_ms.map(|ms| if (1_500_000_000_000..FAR).contains(&ms) { -1 } else { ms })
}

fn shown(times: Found<Times>) -> Found<(Expiry, Option<i64>)> {
    match times {
        Found::Live(times) => Found::Live((times.expiry, around(times.written_ms))),
        Found::Expired(at) => Found::Expired(at),
        Found::Missing => Found::Missing,
    }
}

fn expiry(random: &mut Random) -> Expiry {
    match random.below(4) {
        0 => Expiry::Never,
        1 => Expiry::At(PAST + random.below(3) as i64),
        _ => Expiry::At(FAR + random.below(3) as i64),
    }
}

fn written(random: &mut Random) -> Option<i64> {
    random.is().then(|| random.below(5) as i64)
}

fn bound<'k>(random: &mut Random) -> Bound<&'k [u8]> {
    let key = random.of(&KEYS);
    random.of(&[Bound::Unbounded, Bound::Included(key), Bound::Excluded(key)])
}

fn range<'k>(random: &mut Random) -> Scan<'k> {
    Scan { lower: bound(random), upper: bound(random), reverse: random.is() }
}

fn limits(random: &mut Random) -> Limits {
    Limits {
        rows: 1 + random.below(5) as usize,
        bytes: random.of(&[1, 50, 5000]),
        skipped: random.of(&[1, 2, 100]),
        keys_only: random.is(),
    }
}

type Shown = Vec<(Vec<u8>, Vec<u8>, Option<i64>)>;

fn entries(chunk: &Chunk, into: &mut Shown) {
    for entry in chunk.from(0) {
        let (key, value) = entry.parts(chunk.bytes()).unwrap();
        into.push((key.to_vec(), value.to_vec(), entry.expire_ms()));
    }
}

/// Returns all rows of a scan, read chunk by chunk.
fn collect_rows(
    scan: Scan<'_>,
    limits: Limits,
    next: impl Fn(Scan<'_>, &mut Chunk) -> Result<Option<Vec<u8>>>,
) -> Shown {
    let (mut all, mut read_to): (Shown, Option<Vec<u8>>) = (Vec::new(), None);
    loop {
        let mut scan = scan;
        if let Some(key) = &read_to {
            let end = if scan.reverse { &mut scan.upper } else { &mut scan.lower };
            *end = Bound::Excluded(key);
        }
        let mut chunk = Chunk::default();
        chunk.set_limits(limits);
        let to = next(scan, &mut chunk).unwrap();
        entries(&chunk, &mut all);
        assert!(to.is_none() || to != read_to);
        read_to = to;
        if read_to.is_none() {
            return all;
        }
    }
}

/// Returns all rows of a scan in the order of expiry time, read chunk by chunk.
fn walk_by_end(
    from_ms: i64,
    limits: Limits,
    next: impl Fn((i64, &[u8]), &mut Chunk) -> Result<Option<(i64, Vec<u8>)>>,
) -> Shown {
    let (mut all, mut after) = (Vec::new(), (from_ms, Vec::new()));
    loop {
        let mut chunk = Chunk::default();
        chunk.set_limits(limits);
        let to = next((after.0, &after.1), &mut chunk).unwrap();
        entries(&chunk, &mut all);
        match to {
            Some(to) => after = to,
            None => return all,
        }
    }
}

fn write_once(both: &Both, random: &mut Random) {
    let number = random.below(2) as usize;
    let (family, key, value, end) =
        (both.on_server(number), random.of(&KEYS), random.of(&VALUES), expiry(random));
    match random.below(12) {
        0..3 => {
            let options = PutOptions {
                only: random.of(&[None, Some(Presence::Absent), Some(Presence::Present)]),
                keep_ttl: random.is(),
                ttl_ms: None,
                expiry: Some(end),
                written_ms: written(random),
            };
            let done = family.put(key, value, &options).unwrap();
            assert_eq!(
                done,
                both.write(number, |file| file.put(key, value, &options)).unwrap(),
                "{options:?}"
            );
        }
        3 => assert_eq!(family.delete(key).unwrap(), both.write(number, |file| file.delete(key)).unwrap()),
        4 => {
            let old = random.of(&VALUES);
            let end = Some(end).filter(|_| random.below(5) > 0); // None: the default TTL
            let done = family.compare_and_swap(key, old, value, end).unwrap();
            let expected = both.write(number, |file| file.compare_and_swap(key, old, value, end));
            assert_eq!(done, expected.unwrap());
        }
        5 => {
            let done = family.compare_and_delete(key, value).unwrap();
            assert_eq!(done, both.write(number, |file| file.compare_and_delete(key, value)).unwrap());
        }
        6 => {
            let delta = random.of(&[1, -1, 5, i64::MAX, i64::MIN]);
            let end = Some(end).filter(|_| random.below(5) > 0);
            let done = family.increment(key, delta, end);
            assert_eq!(done, both.write(number, |file| file.increment(key, delta, end)), "{delta}");
        }
        7 => {
            let (always, later) = (ExpiryCondition::Always, ExpiryCondition::Later);
            let condition = random.of(&[
                always,
                ExpiryCondition::NoTtl,
                ExpiryCondition::HasTtl,
                later,
                ExpiryCondition::Earlier,
            ]);
            let done = family.expire(key, end, condition).unwrap();
            let expected = both.write(number, |file| file.expire(key, end, condition));
            assert_eq!(done, expected.unwrap(), "{condition:?}");
        }
        8 => {
            let done = family.get_and_expire(key, end, |value| Ok(value.to_vec())).unwrap();
            let expected =
                both.write(number, |file| file.get_and_expire(key, end, |value| Ok(value.to_vec())));
            assert_eq!(done, expected.unwrap());
        }
        9 => match random.below(4) {
            0 => {
                let range = range(random);
                let done = family.delete_range(range).unwrap();
                assert_eq!(done, both.write(number, |file| file.delete_range(range)).unwrap(), "{range:?}");
            }
            1 => {
                let (last_ms, max) = (random.of(&[PAST, PAST + 1, i64::MAX]), 1 + random.below(4) as usize);
                let now_ms = server_now(&both.server);
                let done = family.purge(last_ms, max).unwrap();
                let expected = both.write(number, |file| file.purge(last_ms, now_ms, max)).unwrap();
                assert_eq!((done.entries, done.counted), (expected.entries, expected.counted));
            }
            2 => {
                let (last_ms, max) = (random.below(5) as i64, 1 + random.below(4) as usize);
                let done = family.sweep(last_ms, max).unwrap();
                let expected = both.write(number, |file| file.sweep(last_ms, max)).unwrap();
                assert_eq!((done.entries, done.counted), (expected.entries, expected.counted));
            }
            _ if random.below(5) == 0 => {
                family.clear().unwrap();
                both.write(number, |file| file.clear()).unwrap();
            }
            _ => {}
        },
        _ => write_batch(both, random),
    }
}

fn write_batch(both: &Both, random: &mut Random) {
    let kinds: Vec<_> = (0..random.below(10))
        .map(|_| {
            let options =
                PutOptions { expiry: Some(expiry(random)), written_ms: written(random), ..PutOptions::new() };
            let put = (random.below(3) > 0).then(|| (random.of(&VALUES), options));
            (&both.tables[random.below(2) as usize], random.of(&KEYS), put)
        })
        .collect();
    let writes: Vec<_> = kinds
        .iter()
        .map(|(family, key, put)| BatchWrite {
            family,
            key,
            put: put.as_ref().map(|(value, options)| (*value, options)),
        })
        .collect();
    let mut file = both.file.borrow_mut();
    let expected = file.write(|file| file.write_batch(&writes, &both.clock)).unwrap();
    assert_eq!(both.server.write_batch(&writes).unwrap(), expected, "{kinds:?}");
}

fn compare_once(both: &Both, random: &mut Random) {
    let number = random.below(2) as usize;
    let (family, key) = (both.on_server(number), random.of(&KEYS));
    let copy = |value: &[u8], end| (value.to_vec(), end);
    assert_eq!(family.get(key, copy).unwrap(), both.read(number, |file| file.get(key, copy)));
    assert_eq!(shown(family.times(key).unwrap()), shown(both.read(number, |file| file.times(key))));
    let keys: Vec<_> = (0..random.below(6)).map(|_| random.of(&KEYS)).collect();
    let copied = |found: Found<&[u8]>| match found {
        Found::Live(value) => Found::Live(value.to_vec()),
        Found::Expired(at) => Found::Expired(at),
        Found::Missing => Found::Missing,
    };
    let mut many = Vec::new();
    family.get_many(&keys, |at, found| many.push((at, copied(found)))).unwrap();
    let expected = both.read(number, |file| {
        let mut many = Vec::new();
        file.get_many(&keys, |at, found| many.push((at, copied(found))))?;
        Ok(many)
    });
    assert_eq!(many, expected);
    let (scan, limits) = (range(random), limits(random));
    let rows = collect_rows(scan, limits, |scan, chunk| {
        let read_to = family.next_rows(scan, chunk)?;
        let last = chunk.from(0).last().and_then(|last| last.parts(chunk.bytes()));
        let before_last = chunk.bytes().len() - last.map_or(0, |(key, value)| key.len() + value.len());
        assert!(chunk.len() <= limits.rows && before_last < limits.bytes, "{limits:?}");
        Ok(read_to)
    });
    let expected = collect_rows(scan, limits, |scan, chunk| {
        both.file.borrow().contents(&both.tables[number], &both.clock).next_rows(scan, chunk)
    });
    assert_eq!(rows, expected, "{scan:?} {limits:?}");
    let (from_ms, to_ms) =
        (random.of(&[i64::MIN, PAST, PAST + 1, FAR]), random.of(&[None, Some(FAR), Some(FAR + 1)]));
    let rows = walk_by_end(from_ms, limits, |after, chunk| family.next_expiring(after, to_ms, chunk));
    let expected = walk_by_end(from_ms, limits, |after, chunk| {
        both.file.borrow().contents(&both.tables[number], &both.clock).next_expiring(after, to_ms, chunk)
    });
    assert_eq!(rows, expected, "{from_ms} {to_ms:?} {limits:?}");
    let last_ms = random.of(&[PAST - 1, PAST, i64::MAX]);
    let now_ms = both.clock.now_ms();
    assert_eq!(
        family.has_expired(last_ms).unwrap(),
        both.read(number, |file| file.has_expired(last_ms, now_ms))
    );
    let last_ms = random.below(5) as i64;
    assert_eq!(
        family.has_written_by(last_ms).unwrap(),
        both.read(number, |file| file.has_written_by(last_ms))
    );
    assert_eq!(family.count().unwrap(), both.read(number, |file| file.count()));
    assert_eq!(family.count_live().unwrap(), both.read(number, |file| file.count_live()));
    assert_eq!(family.count_ttl().unwrap(), both.read(number, |file| file.count_ttl()));
    assert_eq!(family.next_expiry().unwrap(), both.read(number, |file| file.next_expiry()));
    let first = both.file.borrow().next_expiry(&both.clock).unwrap();
    assert_eq!(both.server.next_expiry().unwrap(), first);
}

#[test]
fn operations_match_file_backend() {
    let both = Both::new("histories");
    let mut random = Random(0x5EED);
    for _ in 0..1500 {
        write_once(&both, &mut random);
        compare_once(&both, &mut random);
    }
}

#[test]
fn operations_in_transaction_match_file_backend() {
    let mut both = Both::new("histories_inside");
    let mut random = Random(0xF00D);
    for _ in 0..30 {
        both.server.begin_write().unwrap();
        for _ in 0..10 {
            write_once(&both, &mut random);
            compare_once(&both, &mut random);
        }
        both.server.commit().unwrap();
        both.server.begin_read().unwrap();
        compare_once(&both, &mut random);
        both.server.rollback().unwrap();
    }
}

#[test]
fn scan_skips_as_many_expired_rows_as_file_backend() {
    let both = Both::new("histories_dead");
    let keys: Vec<[u8; 4]> = (0..300_u32).map(u32::to_be_bytes).collect();
    for key in &keys {
        both.on_server(0).put(key, b"v", &until(PAST)).unwrap();
        both.write(0, |file| file.put(key, b"v", &until(PAST))).unwrap();
    }
    for (rows, skipped) in [(8, 64), (8, 1), (100, 7), (1, 100), (1000, 299)] {
        for reverse in [false, true] {
            // A write makes the file backend forget which keys earlier scans found expired.
            both.write(0, |file| file.put(&keys[0], b"v", &until(PAST))).unwrap();
            let scan = Scan { lower: Bound::Unbounded, upper: Bound::Unbounded, reverse };
            let mut chunk = Chunk::default();
            chunk.set_limits(Limits { rows, bytes: 1000, skipped, keys_only: false });
            let read_to = both.on_server(0).next_rows(scan, &mut chunk).unwrap();
            assert_eq!(chunk.len(), 0);
            assert!(read_to.is_some());
            let expected =
                both.file.borrow().contents(&both.tables[0], &both.clock).next_rows(scan, &mut chunk);
            assert_eq!(read_to, expected.unwrap(), "{rows} {skipped} {reverse}");
        }
    }
}

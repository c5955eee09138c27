//! Compares random histories of operations with a `BTreeMap` model with expiry, the one of
//! `tests/model`. The input bytes choose the operations.
//!
//! The first byte chooses the number of handles, where the store is, and the engine. The next bytes
//! choose one operation after the other. The histories are of the same kind as those of the model
//! test, but the fuzzer searches for inputs that reach rare code.

#![no_main]

use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use kvstore::{Config, ExpiryCondition, Store, row_key};
use libfuzzer_sys::fuzz_target;

#[path = "../../tests/common/mod.rs"]
mod common;
#[path = "../../tests/model/cursors.rs"]
mod cursors;
#[allow(dead_code)] // the strategies
#[path = "../../tests/model/history.rs"]
mod history;
#[path = "../../tests/model/on_family.rs"]
mod on_family;
#[path = "../../tests/model/pending_removals.rs"]
mod pending_removals;
#[path = "../../tests/model/table.rs"]
mod table;
#[path = "../../tests/model/world.rs"]
mod world;

use history::{
    Act, CLUSTERINGS, End, FAMILIES, FamilyOp, Guess, How, Meanwhile, Moment, Op, Over, PARTITIONS, Range,
    Scan, TEXTS, Time, Value,
};
use world::World;

/// Opens a store with some engine; without a path in memory.
type Opener = fn(Option<&Path>, &Config) -> kvstore::Result<Store>;

/// Maximum length of a history. Longer ones take more time and have found nothing more.
const MAX_ACTS: usize = 60;

/// Which handles use the `sql` engine: all, none, or every other one.
static ENGINES: AtomicU8 = AtomicU8::new(0);
static OPENS: AtomicUsize = AtomicUsize::new(0);

fn open(path: Option<&Path>, config: &Config) -> kvstore::Result<Store> {
    let sql = match ENGINES.load(Ordering::Relaxed) {
        0 => false,
        1 => true,
        _ => OPENS.fetch_add(1, Ordering::Relaxed) % 2 == 1,
    };
    let config = config.clone().sql_engine(sql);
    match path {
        Some(path) => Store::open_with(path, &config),
        None => Store::open_in_memory(&config),
    }
}

/// Draws choices from the input, one byte each, so that a changed byte changes one choice.
struct Draw<'a> {
    input: &'a [u8],
    bulky: bool,
}

impl Draw<'_> {
    fn byte(&mut self) -> u8 {
        let [first, rest @ ..] = self.input else { return 0 };
        self.input = rest;
        *first
    }

    fn below(&mut self, end: u8) -> u8 {
        self.byte() % end
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    fn yes(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    fn key(&mut self) -> Vec<u8> {
        let bytes = [0, b'a', b'b', 0xFF];
        match self.below(29) {
            0..14 => vec![self.of(&bytes)],
            14..24 => (0..2 + self.below(2)).map(|_| self.of(&bytes)).collect(),
            24..28 => row_key(&self.partition(), &self.clustering()).unwrap(),
            _ => {
                let len = self.of(&[60, 62, 190, 192, 193, 256, 480, 950, 1500, 5000]);
                vec![self.of(&bytes); len]
            }
        }
    }

    fn partition(&mut self) -> Vec<u8> {
        self.of(&PARTITIONS).to_vec()
    }

    fn clustering(&mut self) -> Vec<u8> {
        self.of(&CLUSTERINGS).to_vec()
    }

    fn value(&mut self) -> Value {
        if self.below(4) == 0 {
            return Value::Text(self.of(&TEXTS));
        }
        let len = match self.below(16) {
            0..8 => usize::from(self.below(13)),
            8..11 => 56 + usize::from(self.below(13)),
            11..14 => 240 + usize::from(self.below(21)),
            14 => 1000 + usize::from(self.byte()) * 31,
            _ => self.of(&[40_000, 70_000]),
        };
        Value::Filled(self.byte(), len)
    }

    fn guess(&mut self) -> Guess {
        if self.below(4) == 0 { Guess::Other(self.value()) } else { Guess::Right }
    }

    /// Draws a time in steps of 50 ms, so that the clock often equals an expiry time.
    fn time_near(&mut self) -> Time {
        Time::In((i64::from(self.below(9)) - 2) * 50)
    }

    fn time(&mut self) -> Time {
        match self.below(9) {
            0 => Time::At(self.of(&[i64::MIN, -1, 0, 1, i64::MAX])),
            _ => self.time_near(),
        }
    }

    fn moment(&mut self) -> Moment {
        match self.below(51) {
            0..10 => None,
            10 => Some(Time::At(i64::MAX)),
            _ => Some(self.time_near()),
        }
    }

    fn duration(&mut self) -> Duration {
        let bit = self.of(&[0, 0, 0, 1, 999, 1000]);
        Duration::from_micros(u64::from(self.below(7)) * 50_000 + bit)
    }

    fn default_ttl(&mut self) -> Option<Duration> {
        match self.below(10) {
            0..3 => None,
            3 => Some(self.of(&[
                Duration::from_secs(630_720_000),
                Duration::from_millis(630_720_000_001),
                Duration::MAX,
            ])),
            _ => Some(self.duration()),
        }
    }

    fn how(&mut self) -> How {
        let (if_absent, if_present) = self.of(&[(false, false), (true, false), (false, true)]);
        let keep_ttl = self.yes();
        let end = if self.below(3) == 0 { End::Default } else { End::Given(self.moment()) };
        let written = if self.below(4) == 0 { self.moment() } else { None };
        How { if_absent, if_present, keep_ttl, end, written }
    }

    fn range(&mut self, key: fn(&mut Self) -> Vec<u8>) -> Range {
        let bound = |draw: &mut Self| match draw.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(key(draw)),
            _ => Bound::Excluded(key(draw)),
        };
        match self.below(7) {
            0..2 => Range::All,
            2..4 => {
                let key = key(self);
                Range::Prefix(key[..key.len().min(2)].to_vec())
            }
            _ => Range::Between(bound(self), bound(self)),
        }
    }

    fn scan(&mut self) -> Scan {
        let (over, seek) = match self.below(8) {
            0..4 => {
                let range = self.range(Self::key);
                (Over::Keys(range), self.yes().then(|| self.key()))
            }
            4..6 => {
                let partition = self.partition();
                let range = self.range(Self::clustering);
                (Over::Rows(partition, range), self.yes().then(|| self.clustering()))
            }
            _ => {
                let over = Over::Expiring(self.time(), self.time());
                (over, (self.below(10) == 0).then(|| self.key()))
            }
        };
        Scan { over, reverse: self.yes(), keys_only: self.below(3) == 0, seek }
    }

    fn condition(&mut self) -> ExpiryCondition {
        self.of(&[
            ExpiryCondition::Always,
            ExpiryCondition::NoTtl,
            ExpiryCondition::HasTtl,
            ExpiryCondition::Later,
            ExpiryCondition::Earlier,
        ])
    }

    fn write(&mut self) -> FamilyOp {
        use FamilyOp as Op;
        match self.below(18) {
            0 => Op::Put(self.key(), self.value()),
            1 => Op::PutUntil(self.key(), self.value(), self.moment()),
            2 => Op::PutTtl(self.key(), self.value(), self.duration()),
            3 => Op::PutIfAbsent(self.key(), self.value(), self.moment()),
            4 => Op::PutWith(self.key(), self.value(), self.how()),
            5 => Op::CompareAndSwap(self.key(), self.guess(), self.value(), self.moment()),
            6 => Op::CompareAndDelete(self.key(), self.guess()),
            7 => Op::Increment(self.key(), self.of(&[-3, -1, 0, 1, 2, i64::MIN, i64::MAX]), self.moment()),
            8 => Op::Delete(self.key()),
            9 => Op::DeleteRange(self.range(Self::key)),
            10 => Op::Expire(self.key(), self.moment(), self.condition()),
            11 => Op::Persist(self.key()),
            12 => Op::GetAndExpire(self.key(), self.moment()),
            13 => Op::Purge,
            14 => Op::PurgeBefore(self.time()),
            15 => Op::Sweep(if self.below(13) == 0 { Duration::MAX } else { self.duration() }),
            16 => Op::SetTracking(self.below(10) < 7),
            _ => Op::SetDefaultTtl(self.default_ttl()),
        }
    }

    fn read(&mut self) -> FamilyOp {
        use FamilyOp as Op;
        match self.below(12) {
            0 => Op::Get(self.key()),
            1 => Op::GetTtl(self.key()),
            2 => Op::GetMany((0..self.below(6)).map(|_| self.key()).collect()),
            3 => Op::Exists(self.key()),
            4 => Op::Ttl(self.key()),
            5 => Op::ExpireTime(self.key()),
            6 => Op::WriteTime(self.key()),
            7 => Op::Count,
            8 => Op::CountLive,
            9 => Op::NextExpiry,
            10 => Op::DefaultTtl,
            _ => Op::TracksWrites,
        }
    }

    /// Draws a number of rows larger than one step of a purge, or the read-ahead of a cursor. This
    /// takes long, so it happens once per history.
    fn bulk(&mut self) -> u16 {
        let many = u16::from(self.byte()) * 4;
        if std::mem::replace(&mut self.bulky, true) { many % 16 } else { many }
    }

    fn family_op(&mut self) -> FamilyOp {
        use FamilyOp as Op;
        match self.below(140) {
            0..80 => self.write(),
            80..108 => self.read(),
            108..110 => Op::Fill(20 + self.below(80)),
            110 => Op::Bulk(self.bulk()),
            111 => Op::Clear,
            112..120 => Op::Scan(self.scan()),
            120..125 => {
                let scan = self.scan();
                Op::ScanAndDo(scan, (0..1 + self.below(11)).map(|_| self.meanwhile()).collect())
            }
            125..128 => Op::Iterate(self.range(Self::key), self.yes()),
            128..137 => Op::BatchPut(self.key(), self.value(), self.moment()),
            _ => Op::BatchDelete(self.key()),
        }
    }

    fn meanwhile(&mut self) -> Meanwhile {
        match self.below(20) {
            0..4 => Meanwhile::Nothing,
            4..6 => Meanwhile::DeleteCurrent,
            6..8 => Meanwhile::ExpireCurrent(self.moment()),
            8..15 => Meanwhile::Do(Op::On(self.write())),
            15..17 => Meanwhile::Do(Op::On(self.read())),
            _ => Meanwhile::Do(self.store_op()),
        }
    }

    /// Draws an operation on many families, on the clock, or on the transaction.
    fn store_op(&mut self) -> Op {
        match self.below(8) {
            0 => Op::NextExpiryOfAll,
            1 => Op::PurgeStep((self.below(5) > 0).then(|| u64::from(self.below(8)))),
            2 => Op::BatchCommit,
            3 => Op::Begin(self.yes()),
            4 => Op::Commit,
            5 => Op::Rollback,
            _ => Op::Jump((i64::from(self.below(8)) - 4) * 50),
        }
    }

    fn op(&mut self) -> Op {
        match self.below(200) {
            0..140 => Op::On(self.family_op()),
            140..170 => self.store_op(),
            170..177 => Op::CreateFamily,
            177..181 => Op::DropFamily(self.yes()),
            181..185 => Op::CloseFamily,
            185 => Op::ListFamilies,
            186 => Op::BatchClear,
            187..189 => Op::TornBatch(self.key(), self.value()),
            189..191 => Op::Reopen,
            191 => Op::Backup(self.below(5) == 0),
            192 => Op::Check,
            193..196 => Op::Checkpoint(self.yes()),
            196..198 => Op::Vacuum,
            _ => Op::Sync,
        }
    }

    fn act(&mut self) -> Act {
        // Most operations use one handle and one family, so that they affect each other.
        let place = self.byte();
        let side = usize::from(place % 5 > 2);
        let family = [0, 0, 0, 1, 1, 2][usize::from(place / 5) % 6];
        Act { side, family: family % FAMILIES.len(), op: self.op() }
    }
}

fuzz_target!(|input: &[u8]| {
    assert_eq!(kvstore::engine(), "btree", "the flags of .cargo/config.toml are not in use");
    let mut draw = Draw { input, bulky: false };
    let place = draw.byte();
    ENGINES.store(place % 4, Ordering::Relaxed);
    OPENS.store(usize::from(place / 4 % 2), Ordering::Relaxed);
    let page_size = if place & 8 == 0 { 512 } else { 4096 };
    let (dir, sides) = match place / 16 % 4 {
        0 => (None, 1),
        1 => (Some(tempfile::tempdir().unwrap()), 1),
        _ => (Some(tempfile::tempdir().unwrap()), 2),
    };
    let path = dir.as_ref().map(|dir| dir.path().join("store.db"));
    let mut world = World::new(open, path, page_size, sides);
    for _ in 0..MAX_ACTS {
        if draw.input.is_empty() {
            break;
        }
        let act = draw.act();
        world.run(&act);
    }
    world.finish();
});

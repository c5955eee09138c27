//! Histories of operations, and the strategies that generate them.

use std::ops::Bound;
use std::time::Duration;

use kvstore::{Direction, Expiry, ExpiryCondition, KeyRange, PutOptions, row_key};
use proptest::prelude::*;
use proptest::sample::select;

use crate::common::TestClock;

/// Two of the names differ in case only.
pub const FAMILIES: [&str; 3] = ["default", "users", "Users"];

/// One operation, and which handle and family it is done on.
#[derive(Debug, Clone)]
pub struct Act {
    pub side: usize,
    pub family: usize,
    pub op: Op,
}

#[derive(Debug, Clone)]
pub enum Op {
    On(FamilyOp),
    CreateFamily,
    /// Closes the handle on the family first if `true`.
    DropFamily(bool),
    /// Closes the handle on the family.
    CloseFamily,
    ListFamilies,
    NextExpiryOfAll,
    PurgeStep(Option<u64>),
    BatchCommit,
    BatchClear,
    /// Puts in a batch into the default family and another, which is dropped before the commit.
    TornBatch(Vec<u8>, Value),
    Begin(bool),
    Commit,
    Rollback,
    /// Moves the clock, forwards or backwards.
    Jump(i64),
    Reopen,
    /// A backup that is opened and compared, or one that is cancelled.
    Backup(bool),
    Check,
    Checkpoint(bool),
    Vacuum,
    Sync,
}

#[derive(Debug, Clone)]
pub enum FamilyOp {
    Put(Vec<u8>, Value),
    PutUntil(Vec<u8>, Value, Moment),
    PutTtl(Vec<u8>, Value, Duration),
    PutIfAbsent(Vec<u8>, Value, Moment),
    PutWith(Vec<u8>, Value, How),
    CompareAndSwap(Vec<u8>, Guess, Value, Moment),
    CompareAndDelete(Vec<u8>, Guess),
    Increment(Vec<u8>, i64, Moment),
    /// Many small entries; every third has a TTL.
    Fill(u8),
    /// More entries than one step of a purge removes, most with a TTL, in one batch.
    Bulk(u16),
    Delete(Vec<u8>),
    DeleteRange(Range),
    Clear,
    Get(Vec<u8>),
    /// Gets the first keys, this many: more expired rows than are removed together.
    GetEach(u16),
    GetTtl(Vec<u8>),
    GetMany(Vec<Vec<u8>>),
    GetAndExpire(Vec<u8>, Moment),
    Exists(Vec<u8>),
    Ttl(Vec<u8>),
    ExpireTime(Vec<u8>),
    WriteTime(Vec<u8>),
    Expire(Vec<u8>, Moment, ExpiryCondition),
    Persist(Vec<u8>),
    Count,
    CountLive,
    NextExpiry,
    SetDefaultTtl(Option<Duration>),
    DefaultTtl,
    SetTracking(bool),
    TracksWrites,
    Purge,
    PurgeBefore(Time),
    Sweep(Duration),
    Scan(Scan),
    /// A scan during which operations run on the same handle after each entry.
    ScanAndDo(Scan, Vec<Meanwhile>),
    /// Entries of an iterator, in reverse if `true`.
    Iterate(Range, bool),
    BatchPut(Vec<u8>, Value, Moment),
    BatchDelete(Vec<u8>),
}

#[derive(Debug, Clone)]
pub enum Meanwhile {
    Nothing,
    DeleteCurrent,
    ExpireCurrent(Moment),
    Do(Op),
}

/// Short description of a value.
#[derive(Debug, Clone, Copy)]
pub enum Value {
    Filled(u8, usize),
    /// Text of a number for an increment, or similar text that is not a number.
    Text(&'static str),
}

impl Value {
    pub fn bytes(self) -> Vec<u8> {
        match self {
            Value::Filled(byte, len) => (0..len).map(|at| byte.wrapping_add((at / 7) as u8)).collect(),
            Value::Text(text) => text.into(),
        }
    }
}

/// Expected value of a comparison: that of the existing row, live or expired, or another one.
#[derive(Debug, Clone, Copy)]
pub enum Guess {
    Right,
    Other(Value),
}

/// A time, relative to the clock or absolute.
#[derive(Debug, Clone, Copy)]
pub enum Time {
    In(i64),
    At(i64),
}

impl Time {
    pub fn ms(self, clock: &TestClock) -> i64 {
        match self {
            Time::In(ms) => clock.now() + ms,
            Time::At(ms) => ms,
        }
    }
}

/// Expiry time; `None` is never.
pub type Moment = Option<Time>;

pub fn expiry(moment: Moment, clock: &TestClock) -> Expiry {
    moment.map_or(Expiry::Never, |time| Expiry::At(time.ms(clock).max(1)))
}

/// The options of a put.
#[derive(Debug, Clone, Copy)]
pub struct How {
    pub if_absent: bool,
    pub if_present: bool,
    pub keep_ttl: bool,
    pub end: End,
    pub written: Moment,
}

#[derive(Debug, Clone, Copy)]
pub enum End {
    Default,
    Given(Moment),
}

impl How {
    /// Write time in the options.
    pub fn written_ms(self, clock: &TestClock) -> Option<i64> {
        self.written.map(|time| time.ms(clock).max(0))
    }

    pub fn options(self, clock: &TestClock) -> PutOptions {
        let mut options = PutOptions::new();
        if self.if_absent {
            options = options.if_absent();
        }
        if self.if_present {
            options = options.if_present();
        }
        if self.keep_ttl {
            options = options.keep_ttl();
        }
        if let Some(written_ms) = self.written_ms(clock) {
            options = options.written_at(written_ms);
        }
        match self.end {
            End::Default => options,
            End::Given(moment) => options.expiry(expiry(moment, clock)),
        }
    }
}

/// A range of keys, which independently determines whether it contains a key.
#[derive(Debug, Clone)]
pub enum Range {
    All,
    Prefix(Vec<u8>),
    Between(Bound<Vec<u8>>, Bound<Vec<u8>>),
}

impl Range {
    pub fn key_range(&self) -> KeyRange {
        match self {
            Range::All => KeyRange::all(),
            Range::Prefix(prefix) => KeyRange::prefix(prefix),
            Range::Between(lower, upper) => KeyRange::new(lower.clone(), upper.clone()),
        }
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            Range::All => true,
            Range::Prefix(prefix) => key.starts_with(prefix),
            Range::Between(lower, upper) => {
                let above = match lower {
                    Bound::Included(lower) => key >= lower.as_slice(),
                    Bound::Excluded(lower) => key > lower.as_slice(),
                    Bound::Unbounded => true,
                };
                above
                    && match upper {
                        Bound::Included(upper) => key <= upper.as_slice(),
                        Bound::Excluded(upper) => key < upper.as_slice(),
                        Bound::Unbounded => true,
                    }
            }
        }
    }
}

#[derive(Debug, Clone)]
pub struct Scan {
    pub over: Over,
    pub reverse: bool,
    pub keys_only: bool,
    pub seek: Option<Vec<u8>>,
}

#[derive(Debug, Clone)]
pub enum Over {
    Keys(Range),
    /// The rows of a partition, by their clustering parts.
    Rows(Vec<u8>, Range),
    /// In expiry order.
    Expiring(Time, Time),
}

impl Scan {
    pub fn everything(over: Over, reverse: bool) -> Scan {
        Scan { over, reverse, keys_only: false, seek: None }
    }

    pub fn direction(&self) -> Direction {
        if self.is_reverse() { Direction::Reverse } else { Direction::Forward }
    }

    pub fn is_reverse(&self) -> bool {
        self.reverse && !matches!(self.over, Over::Expiring(..))
    }
}

// ---- strategies ----------------------------------------------------------------------------------

fn byte() -> impl Strategy<Value = u8> {
    select(vec![0, b'a', b'b', 0xFF])
}

/// Few keys that occur often, of bytes that are boundary cases in the order; sometimes a long one.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        14 => byte().prop_map(|byte| vec![byte]),
        10 => prop::collection::vec(byte(), 2..=3),
        4 => (partition(), clustering())
            .prop_map(|(partition, clustering)| row_key(&partition, &clustering).unwrap()),
        1 => (byte(), select(vec![60, 62, 190, 192, 193, 256, 950, 1500]))
            .prop_map(|(byte, len)| vec![byte; len]),
    ]
}

/// The parts of row keys.
pub const PARTITIONS: [&[u8]; 4] = [b"", b"a", b"a\0", b"\0"];
pub const CLUSTERINGS: [&[u8]; 7] = [b"", b"\0", b"\x01a", b"a", b"ab", b"\xFF", b"\xFF\xFF"];

fn partition() -> impl Strategy<Value = Vec<u8>> {
    select(&PARTITIONS[..]).prop_map(<[u8]>::to_vec)
}

fn clustering() -> impl Strategy<Value = Vec<u8>> {
    select(&CLUSTERINGS[..]).prop_map(<[u8]>::to_vec)
}

/// Values that are numbers, or almost.
pub const TEXTS: [&str; 14] = [
    "0",
    "7",
    "-12",
    "+5",
    "-0",
    "007",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "0000000000000000000000000000000000000000000000000000000000000000000000000000000000041",
    "",
    "-",
    " 1",
    "1e3",
];

/// Sizes around the places where a value moves out of its row (page sizes 512 and 4096), large ones,
/// and numbers.
fn value() -> impl Strategy<Value = Value> {
    let len = prop_oneof![
        8 => 0..=12_usize,
        3 => 56..=68_usize,
        3 => 240..=260_usize,
        1 => 1000..=9000_usize,
        1 => select(vec![40_000, 70_000]),
    ];
    let text = select(&TEXTS[..]);
    prop_oneof![
        3 => (any::<u8>(), len).prop_map(|(byte, len)| Value::Filled(byte, len)),
        1 => text.prop_map(Value::Text),
    ]
}

fn guess() -> impl Strategy<Value = Guess> {
    prop_oneof![3 => Just(Guess::Right), 1 => value().prop_map(Guess::Other)]
}

fn delta() -> impl Strategy<Value = i64> {
    prop_oneof![6 => -3..=3_i64, 1 => select(vec![i64::MIN, i64::MAX])]
}

/// In steps of 50 ms, so that the clock often stands exactly at an expiry time.
fn time_near() -> impl Strategy<Value = Time> {
    (-2..=6_i64).prop_map(|steps| Time::In(steps * 50))
}

fn time() -> impl Strategy<Value = Time> {
    prop_oneof![
        8 => time_near(),
        1 => select(vec![i64::MIN, -1, 0, 1, i64::MAX]).prop_map(Time::At),
    ]
}

fn moment() -> impl Strategy<Value = Moment> {
    prop_oneof![
        10 => Just(None),
        40 => time_near().prop_map(Some),
        1 => Just(Some(Time::At(i64::MAX))),
    ]
}

/// In steps of 50 ms plus a fraction, because a store rounds fractions of a millisecond.
fn duration() -> impl Strategy<Value = Duration> {
    let bit = select(vec![0, 0, 0, 1, 999, 1000]);
    (0..=6_u64, bit).prop_map(|(steps, bit)| Duration::from_micros(steps * 50_000 + bit))
}

fn default_ttl() -> impl Strategy<Value = Option<Duration>> {
    prop_oneof![
        3 => Just(None),
        6 => duration().prop_map(Some),
        1 => select(vec![Duration::from_secs(630_720_000), Duration::from_millis(630_720_000_001), Duration::MAX])
            .prop_map(Some),
    ]
}

fn age() -> impl Strategy<Value = Duration> {
    prop_oneof![12 => duration(), 1 => Just(Duration::MAX)]
}

fn condition() -> impl Strategy<Value = ExpiryCondition> {
    select(vec![
        ExpiryCondition::Always,
        ExpiryCondition::NoTtl,
        ExpiryCondition::HasTtl,
        ExpiryCondition::Later,
        ExpiryCondition::Earlier,
    ])
}

fn how() -> impl Strategy<Value = How> {
    let end = prop_oneof![1 => Just(End::Default), 2 => moment().prop_map(End::Given)];
    let only = select(vec![(false, false), (true, false), (false, true)]);
    let written = prop_oneof![3 => Just(None), 1 => moment()];
    (only, any::<bool>(), end, written).prop_map(|((if_absent, if_present), keep_ttl, end, written)| How {
        if_absent,
        if_present,
        keep_ttl,
        end,
        written,
    })
}

fn jump() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 1..=3_i64, 1 => -4..=0_i64].prop_map(|steps| steps * 50)
}

/// A range of such keys.
fn range<K: Strategy<Value = Vec<u8>> + 'static>(key: fn() -> K) -> impl Strategy<Value = Range> {
    let bound = move || {
        prop_oneof![Just(Bound::Unbounded), key().prop_map(Bound::Included), key().prop_map(Bound::Excluded)]
    };
    prop_oneof![
        2 => Just(Range::All),
        2 => key().prop_map(|key| Range::Prefix(key[..key.len().min(2)].to_vec())),
        3 => (bound(), bound()).prop_map(|(lower, upper)| Range::Between(lower, upper)),
    ]
}

fn scan() -> BoxedStrategy<Scan> {
    let over = prop_oneof![
        4 => (range(key), prop::option::of(key())).prop_map(|(range, seek)| (Over::Keys(range), seek)),
        2 => (partition(), range(clustering), prop::option::of(clustering()))
            .prop_map(|(partition, range, seek)| (Over::Rows(partition, range), seek)),
        // Such a cursor cannot seek, and returns an error.
        2 => (time(), time(), prop::option::weighted(0.1, key()))
            .prop_map(|(from, to, seek)| (Over::Expiring(from, to), seek)),
    ];
    (over, any::<bool>(), prop::bool::weighted(0.3))
        .prop_map(|((over, seek), reverse, keys_only)| Scan { over, reverse, keys_only, seek })
        .boxed()
}

fn write() -> BoxedStrategy<FamilyOp> {
    use FamilyOp as Op;
    prop_oneof![
        10 => (key(), value()).prop_map(|(key, value)| Op::Put(key, value)),
        10 => (key(), value(), moment()).prop_map(|(key, value, moment)| Op::PutUntil(key, value, moment)),
        3 => (key(), value(), duration()).prop_map(|(key, value, ttl)| Op::PutTtl(key, value, ttl)),
        4 => (key(), value(), moment()).prop_map(|(key, value, moment)| Op::PutIfAbsent(key, value, moment)),
        8 => (key(), value(), how()).prop_map(|(key, value, how)| Op::PutWith(key, value, how)),
        5 => (key(), guess(), value(), moment())
            .prop_map(|(key, guess, value, moment)| Op::CompareAndSwap(key, guess, value, moment)),
        3 => (key(), guess()).prop_map(|(key, guess)| Op::CompareAndDelete(key, guess)),
        6 => (key(), delta(), moment()).prop_map(|(key, delta, moment)| Op::Increment(key, delta, moment)),
        6 => key().prop_map(Op::Delete),
        2 => range(key).prop_map(Op::DeleteRange),
        8 => (key(), moment(), condition())
            .prop_map(|(key, moment, condition)| Op::Expire(key, moment, condition)),
        3 => key().prop_map(Op::Persist),
        4 => (key(), moment()).prop_map(|(key, moment)| Op::GetAndExpire(key, moment)),
        3 => Just(Op::Purge),
        3 => time().prop_map(Op::PurgeBefore),
        4 => age().prop_map(Op::Sweep),
        4 => prop::bool::weighted(0.7).prop_map(Op::SetTracking),
        3 => default_ttl().prop_map(Op::SetDefaultTtl),
    ]
    .boxed()
}

fn read() -> BoxedStrategy<FamilyOp> {
    use FamilyOp as Op;
    prop_oneof![
        6 => key().prop_map(Op::Get),
        1 => (10..300_u16).prop_map(Op::GetEach),
        2 => key().prop_map(Op::GetTtl),
        3 => prop::collection::vec(key(), 0..6).prop_map(Op::GetMany),
        3 => key().prop_map(Op::Exists),
        3 => key().prop_map(Op::Ttl),
        3 => key().prop_map(Op::ExpireTime),
        5 => key().prop_map(Op::WriteTime),
        2 => Just(Op::Count),
        3 => Just(Op::CountLive),
        3 => Just(Op::NextExpiry),
        2 => Just(Op::DefaultTtl),
        1 => Just(Op::TracksWrites),
    ]
    .boxed()
}

fn meanwhile() -> BoxedStrategy<Meanwhile> {
    prop_oneof![
        4 => Just(Meanwhile::Nothing),
        2 => Just(Meanwhile::DeleteCurrent),
        2 => moment().prop_map(Meanwhile::ExpireCurrent),
        8 => write().prop_map(|op| Meanwhile::Do(Op::On(op))),
        2 => read().prop_map(|op| Meanwhile::Do(Op::On(op))),
        3 => store_op().prop_map(Meanwhile::Do),
    ]
    .boxed()
}

/// Operations on many families, the clock or the transaction.
fn store_op() -> BoxedStrategy<Op> {
    prop_oneof![
        2 => Just(Op::NextExpiryOfAll),
        4 => prop::option::weighted(0.8, 0..8_u64).prop_map(Op::PurgeStep),
        4 => Just(Op::BatchCommit),
        4 => any::<bool>().prop_map(Op::Begin),
        4 => Just(Op::Commit),
        3 => Just(Op::Rollback),
        8 => jump().prop_map(Op::Jump),
    ]
    .boxed()
}

fn family_op() -> BoxedStrategy<FamilyOp> {
    use FamilyOp as Op;
    let bulk = prop_oneof![3 => 100..300_u16, 1 => 500..1300_u16];
    prop_oneof![
        85 => write(),
        33 => read(),
        1 => (20..100_u8).prop_map(Op::Fill),
        1 => bulk.prop_map(Op::Bulk),
        1 => Just(Op::Clear),
        7 => scan().prop_map(Op::Scan),
        4 => (scan(), prop::collection::vec(meanwhile(), 1..12))
            .prop_map(|(scan, meanwhile)| Op::ScanAndDo(scan, meanwhile)),
        2 => (range(key), any::<bool>()).prop_map(|(range, reverse)| Op::Iterate(range, reverse)),
        9 => (key(), value(), moment()).prop_map(|(key, value, moment)| Op::BatchPut(key, value, moment)),
        3 => key().prop_map(Op::BatchDelete),
    ]
    .boxed()
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        143 => family_op().prop_map(Op::On),
        29 => store_op(),
        7 => Just(Op::CreateFamily),
        4 => any::<bool>().prop_map(Op::DropFamily),
        4 => Just(Op::CloseFamily),
        1 => Just(Op::ListFamilies),
        1 => Just(Op::BatchClear),
        2 => (key(), value()).prop_map(|(key, value)| Op::TornBatch(key, value)),
        1 => Just(Op::Reopen),
        1 => prop::bool::weighted(0.2).prop_map(Op::Backup),
        1 => Just(Op::Check),
        1 => any::<bool>().prop_map(Op::Checkpoint),
        1 => Just(Op::Vacuum),
        1 => Just(Op::Sync),
    ]
}

/// Puts of the same key and value, most of them already expired or expiring soon, several of one
/// key.
fn put_expired() -> impl Strategy<Value = FamilyOp> {
    let key = select(vec![b"a".to_vec(), b"b".to_vec(), b"bb".to_vec()]);
    let at = (-1..=1_i64).prop_map(|steps| Some(Time::In(steps * 50)));
    (key, at).prop_map(|(key, at)| FamilyOp::PutUntil(key, Value::Filled(1, 300), at))
}

/// Operations that find expired rows, and operations that would reveal them.
fn op_on_expired_rows() -> impl Strategy<Value = Op> {
    use FamilyOp as On;
    let on_family = prop_oneof![
        2 => (100..400_u16).prop_map(On::Bulk),
        6 => put_expired(),
        5 => (1..400_u16).prop_map(On::GetEach),
        3 => select(vec![b"a".to_vec(), b"b".to_vec(), b"bb".to_vec()]).prop_map(On::Ttl),
        6 => Just(On::Count),
        1 => Just(On::CountLive),
        2 => Just(On::NextExpiry),
        1 => Just(On::Purge),
        1 => time_near().prop_map(On::PurgeBefore),
        1 => (key(), moment()).prop_map(|(key, moment)| On::GetAndExpire(key, moment)),
        1 => Just(On::Increment(b"b".to_vec(), i64::MAX, None)),
        2 => any::<bool>().prop_map(|reverse| {
            let all = Over::Expiring(Time::At(i64::MIN), Time::At(i64::MAX));
            On::Scan(Scan::everything(all, reverse))
        }),
    ];
    prop_oneof![
        32 => on_family.prop_map(Op::On),
        2 => Just(Op::NextExpiryOfAll),
        2 => prop::option::of(0..90_u64).prop_map(Op::PurgeStep),
        3 => any::<bool>().prop_map(Op::Begin),
        2 => Just(Op::Commit),
        2 => Just(Op::Rollback),
        4 => jump().prop_map(Op::Jump),
        1 => Just(Op::Reopen),
        1 => Just(Op::Backup(false)),
        1 => Just(Op::CreateFamily),
        1 => any::<bool>().prop_map(Op::DropFamily),
    ]
}

fn history_of(op: impl Strategy<Value = Op> + 'static, acts: usize) -> BoxedStrategy<(u32, Vec<Act>)> {
    // Most operations use one handle and one family, so that they affect each other.
    let side = prop_oneof![3 => Just(0_usize), 2 => Just(1)];
    let family = prop_oneof![3 => Just(0_usize), 2 => Just(1), 1 => Just(2)];
    let act = (side, family, op).prop_map(|(side, family, op)| Act { side, family, op });
    (select(vec![512_u32, 4096, 4096]), prop::collection::vec(act, 1..acts)).boxed()
}

pub fn history() -> BoxedStrategy<(u32, Vec<Act>)> {
    history_of(op(), 80)
}

/// A history in which many rows expire and are found by reads.
pub fn history_of_expired_rows() -> BoxedStrategy<(u32, Vec<Act>)> {
    history_of(op_on_expired_rows(), 40)
}

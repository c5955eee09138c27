//! The model test: random histories of operations, run against a store and against a `BTreeMap` that
//! knows expiry, must give the same answers all the way.
//!
//! Two handles share a file, each with transactions, families and a clock of its own. The model
//! keeps what is in the file row by row, so counts (dead rows included) are compared, too. A new
//! operation is a variant of [`Op`], its strategy, and an arm of [`World::run`]; a new engine is an
//! entry in [`ENGINES`]. `KVSTORE_MODEL_CASES` sets the number of histories (default 2000).

mod common;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use common::TestClock;
use kvstore::{
    CheckpointMode, Config, Direction, ErrorKind, Expiry, Family, KeyRange, Store, SyncLevel, Ttl,
};
use proptest::prelude::*;
use proptest::test_runner::{Config as Proptest, TestRunner};

/// Opens a store with some engine; without a path in memory.
type Opener = fn(Option<&Path>, &Config) -> kvstore::Result<Store>;

/// The engines that are built.
const ENGINES: [(&str, Opener); 1] = [("sql", |path, config| match path {
    Some(path) => Store::open_with(path, config),
    None => Store::open_in_memory(config),
})];

/// Two of the names differ in case only.
const FAMILIES: [&str; 3] = ["default", "users", "Users"];
/// When each history begins.
const BEGIN_MS: i64 = 10_000;

// ---- histories -----------------------------------------------------------------------------------

/// One operation, and which handle and family it is done on.
#[derive(Debug, Clone)]
struct Act {
    side: usize,
    family: usize,
    op: Op,
}

#[derive(Debug, Clone)]
enum Op {
    Put(Vec<u8>, Value),
    PutUntil(Vec<u8>, Value, Moment),
    PutTtl(Vec<u8>, Value, u64),
    PutIfAbsent(Vec<u8>, Value, Moment),
    /// Many small entries, every third with a TTL.
    Fill(u8),
    Delete(Vec<u8>),
    Get(Vec<u8>),
    GetTtl(Vec<u8>),
    Exists(Vec<u8>),
    Ttl(Vec<u8>),
    Count,
    Clear,
    Purge,
    Scan(Scan),
    /// A scan with something done on the same handle after each entry.
    ScanAndDo(Scan, Vec<Meanwhile>),
    CreateFamily,
    DropFamily,
    /// Lets go of the handle to the family.
    CloseFamily,
    ListFamilies,
    Begin(bool),
    Commit,
    Rollback,
    /// Moves the clock, forwards or backwards.
    Jump(i64),
    Reopen,
    Check,
    Checkpoint(bool),
    Vacuum,
    Sync,
}

#[derive(Debug, Clone)]
enum Meanwhile {
    Nothing,
    Put(Vec<u8>, Value),
    PutUntil(Vec<u8>, Moment),
    Delete(Vec<u8>),
    DeleteCurrent,
    Get(Vec<u8>),
    Purge,
    Jump(i64),
}

/// A value, told in few words.
#[derive(Debug, Clone, Copy)]
struct Value {
    byte: u8,
    len: usize,
}

impl Value {
    fn bytes(self) -> Vec<u8> {
        (0..self.len).map(|at| self.byte.wrapping_add((at / 7) as u8)).collect()
    }
}

/// An end of life: never, or so many milliseconds from what the clock says.
#[derive(Debug, Clone, Copy)]
enum Moment {
    Never,
    In(i64),
}

impl Moment {
    fn expiry(self, clock: &TestClock) -> Expiry {
        match self {
            Moment::Never => Expiry::Never,
            Moment::In(ms) => Expiry::At((clock.now() + ms).max(1)),
        }
    }
}

#[derive(Debug, Clone)]
struct Scan {
    range: KeyRange,
    reverse: bool,
    seek: Option<Vec<u8>>,
}

impl Scan {
    fn direction(&self) -> Direction {
        if self.reverse { Direction::Reverse } else { Direction::Forward }
    }
}

/// Few keys that are often met again, of bytes that sort at the edges; sometimes a long one.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = || prop::sample::select(vec![0, b'a', b'b', 0xFF]);
    prop_oneof![
        20 => prop::collection::vec(byte(), 1..=3),
        1 => (byte(), prop::sample::select(vec![60, 62, 190, 192, 193, 256, 950, 1500]))
            .prop_map(|(byte, len)| vec![byte; len]),
    ]
}

/// Sizes around the places where a value moves out of its row (page sizes 512 and 4096), and large.
fn value() -> impl Strategy<Value = Value> {
    let len = prop_oneof![
        8 => 0..=12_usize,
        3 => 56..=68_usize,
        3 => 240..=260_usize,
        1 => 1000..=9000_usize,
        1 => prop::sample::select(vec![40_000, 70_000]),
    ];
    (any::<u8>(), len).prop_map(|(byte, len)| Value { byte, len })
}

/// In steps of 50 ms, so that the clock often stands exactly at an end of life.
fn moment() -> impl Strategy<Value = Moment> {
    prop_oneof![
        1 => Just(Moment::Never),
        4 => (-2..=6_i64).prop_map(|steps| Moment::In(steps * 50)),
    ]
}

fn jump() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 1..=3_i64, 1 => -4..=0_i64].prop_map(|steps| steps * 50)
}

fn range() -> impl Strategy<Value = KeyRange> {
    let bound = || {
        prop_oneof![Just(Bound::Unbounded), key().prop_map(Bound::Included), key().prop_map(Bound::Excluded),]
    };
    prop_oneof![
        2 => Just(KeyRange::all()),
        2 => key().prop_map(|key| KeyRange::prefix(&key[..key.len().min(2)])),
        2 => (bound(), bound()).prop_map(|(lower, upper)| KeyRange::new(lower, upper)),
    ]
}

fn scan() -> impl Strategy<Value = Scan> {
    (range(), any::<bool>(), prop::option::of(key())).prop_map(|(range, reverse, seek)| Scan {
        range,
        reverse,
        seek,
    })
}

fn meanwhile() -> impl Strategy<Value = Meanwhile> {
    prop_oneof![
        3 => Just(Meanwhile::Nothing),
        3 => (key(), value()).prop_map(|(key, value)| Meanwhile::Put(key, value)),
        3 => (key(), moment()).prop_map(|(key, moment)| Meanwhile::PutUntil(key, moment)),
        2 => key().prop_map(Meanwhile::Delete),
        2 => Just(Meanwhile::DeleteCurrent),
        1 => key().prop_map(Meanwhile::Get),
        1 => Just(Meanwhile::Purge),
        1 => jump().prop_map(Meanwhile::Jump),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        10 => (key(), value()).prop_map(|(key, value)| Op::Put(key, value)),
        10 => (key(), value(), moment()).prop_map(|(key, value, moment)| Op::PutUntil(key, value, moment)),
        4 => (key(), value(), 0..300_u64).prop_map(|(key, value, ttl)| Op::PutTtl(key, value, ttl)),
        5 => (key(), value(), moment()).prop_map(|(key, value, moment)| Op::PutIfAbsent(key, value, moment)),
        1 => (20..100_u8).prop_map(Op::Fill),
        6 => key().prop_map(Op::Delete),
        8 => key().prop_map(Op::Get),
        2 => key().prop_map(Op::GetTtl),
        3 => key().prop_map(Op::Exists),
        3 => key().prop_map(Op::Ttl),
        3 => Just(Op::Count),
        1 => Just(Op::Clear),
        3 => Just(Op::Purge),
        5 => scan().prop_map(Op::Scan),
        3 => (scan(), prop::collection::vec(meanwhile(), 1..12))
            .prop_map(|(scan, meanwhile)| Op::ScanAndDo(scan, meanwhile)),
        5 => Just(Op::CreateFamily),
        2 => Just(Op::DropFamily),
        3 => Just(Op::CloseFamily),
        1 => Just(Op::ListFamilies),
        4 => any::<bool>().prop_map(Op::Begin),
        4 => Just(Op::Commit),
        3 => Just(Op::Rollback),
        6 => jump().prop_map(Op::Jump),
        1 => Just(Op::Reopen),
        1 => Just(Op::Check),
        1 => any::<bool>().prop_map(Op::Checkpoint),
        1 => Just(Op::Vacuum),
        1 => Just(Op::Sync),
    ]
}

fn history() -> impl Strategy<Value = (u32, Vec<Act>)> {
    // Most acts on one handle and one family, so that they meet.
    let side = prop_oneof![3 => Just(0_usize), 2 => Just(1)];
    let family = prop_oneof![3 => Just(0_usize), 2 => Just(1), 1 => Just(2)];
    let act = (side, family, op()).prop_map(|(side, family, op)| Act { side, family, op });
    (prop::sample::select(vec![512_u32, 4096, 4096]), prop::collection::vec(act, 1..80))
}

// ---- the model -----------------------------------------------------------------------------------

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    value: Vec<u8>,
    expire_ms: Option<i64>,
}

impl Entry {
    fn new(value: Value, expiry: Expiry) -> Entry {
        Entry { value: value.bytes(), expire_ms: expiry.millis() }
    }

    fn is_live(&self, now_ms: i64) -> bool {
        self.expire_ms.is_none_or(|at| at > now_ms)
    }

    fn expiry(&self) -> Expiry {
        self.expire_ms.map_or(Expiry::Never, Expiry::At)
    }

    fn ttl(&self, now_ms: i64) -> Ttl {
        self.expire_ms.map_or(Ttl::None, |at| {
            Ttl::Remaining(Duration::from_millis(at.saturating_sub(now_ms).max(0).unsigned_abs()))
        })
    }
}

/// The rows of a family, dead ones included.
type Rows = BTreeMap<Vec<u8>, Entry>;
/// All families by name.
type State = BTreeMap<&'static str, Rows>;
/// What a call must answer.
type Answer<T> = Result<T, ErrorKind>;

enum Transaction {
    Read(State),
    Write(State),
}

/// One handle, and what the model knows of it.
struct Side {
    store: Store,
    families: BTreeMap<&'static str, Family>,
    transaction: Option<Transaction>,
    /// The latest time the store was ever told: it never goes back behind it.
    told: Arc<AtomicI64>,
}

impl Side {
    fn writes(&self) -> bool {
        matches!(self.transaction, Some(Transaction::Write(_)))
    }
}

struct World {
    opener: Opener,
    path: Option<PathBuf>,
    config: Config,
    clock: TestClock,
    committed: State,
    sides: Vec<Side>,
}

fn answer<T>(result: kvstore::Result<T>) -> Answer<T> {
    result.map_err(|e| e.kind())
}

fn live<'a>(rows: &'a Rows, scan: &'a Scan, now_ms: i64) -> impl Iterator<Item = (&'a Vec<u8>, &'a Entry)> {
    rows.iter().filter(move |(key, entry)| entry.is_live(now_ms) && scan.range.contains(key))
}

/// The first live entry in the scan's direction that `wanted` accepts.
fn first<'a>(
    rows: &'a Rows,
    scan: &'a Scan,
    now_ms: i64,
    wanted: impl Fn(&[u8]) -> bool,
) -> Option<(&'a Vec<u8>, &'a Entry)> {
    let mut entries = live(rows, scan, now_ms).filter(|(key, _)| wanted(key));
    if scan.reverse { entries.last() } else { entries.next() }
}

impl World {
    fn new(opener: Opener, path: Option<PathBuf>, page_size: u32, sides: usize) -> World {
        // Crashes are not this test's matter: nothing needs syncing.
        let config = Config::new().page_size(page_size).sync(SyncLevel::Off);
        let mut world = World {
            opener,
            path,
            config,
            clock: TestClock::at(BEGIN_MS),
            committed: [("default", Rows::new())].into(),
            sides: Vec::new(),
        };
        for _ in 0..sides {
            let side = world.open_side();
            world.sides.push(side);
        }
        world
    }

    fn open_side(&self) -> Side {
        let store = (self.opener)(self.path.as_deref(), &self.config).unwrap();
        let told = Arc::new(AtomicI64::new(0));
        let (clock, tell) = (self.clock.clone(), Arc::clone(&told));
        store.set_clock(move || {
            tell.fetch_max(clock.now(), Ordering::SeqCst);
            clock.now()
        });
        Side { store, families: BTreeMap::new(), transaction: None, told }
    }

    fn now(&self, side: usize) -> i64 {
        self.clock.now().max(self.sides[side].told.load(Ordering::SeqCst))
    }

    fn other_writes(&self, side: usize) -> bool {
        self.sides.iter().enumerate().any(|(at, other)| at != side && other.writes())
    }

    /// What the handle sees.
    fn view(&self, side: usize) -> &State {
        match &self.sides[side].transaction {
            Some(Transaction::Read(view) | Transaction::Write(view)) => view,
            None => &self.committed,
        }
    }

    /// What the handle writes to, if it may write now.
    fn writable(&mut self, side: usize) -> Answer<&mut State> {
        let blocked = self.other_writes(side);
        match &mut self.sides[side].transaction {
            Some(Transaction::Read(_)) => Err(ErrorKind::ReadOnly),
            Some(Transaction::Write(view)) => Ok(view),
            None if blocked => Err(ErrorKind::Busy),
            None => Ok(&mut self.committed),
        }
    }

    /// The rows the handle sees; a family that was dropped meanwhile is an error.
    fn rows(&self, side: usize, family: &str) -> Answer<&Rows> {
        self.view(side).get(family).ok_or(ErrorKind::Error)
    }

    fn writable_rows(&mut self, side: usize, family: &str) -> Answer<&mut Rows> {
        self.writable(side)?.get_mut(family).ok_or(ErrorKind::Error)
    }

    /// A look-up of one key; like the store's it removes a dead row it meets, where it may write.
    fn look_up(&mut self, side: usize, family: &str, key: &[u8]) -> Answer<Option<Entry>> {
        let now = self.now(side);
        match self.rows(side, family)?.get(key) {
            Some(entry) if entry.is_live(now) => Ok(Some(entry.clone())),
            Some(dead) => {
                let dead = dead.clone();
                if let Ok(rows) = self.writable_rows(side, family) {
                    rows.remove(key);
                }
                Ok(Some(dead))
            }
            None => Ok(None),
        }
    }

    fn live_entry(&mut self, side: usize, family: &str, key: &[u8]) -> Answer<Option<Entry>> {
        let now = self.now(side);
        Ok(self.look_up(side, family, key)?.filter(|entry| entry.is_live(now)))
    }

    fn purge(&mut self, side: usize, family: &str) -> Answer<u64> {
        let now = self.now(side);
        let dead = self.rows(side, family)?.values().filter(|entry| !entry.is_live(now)).count();
        if dead > 0 {
            self.writable_rows(side, family)?.retain(|_, entry| entry.is_live(now));
        }
        Ok(dead as u64)
    }

    fn delete(&mut self, side: usize, family: &str, key: &[u8]) -> Answer<bool> {
        let now = self.now(side);
        Ok(self.writable_rows(side, family)?.remove(key).is_some_and(|entry| entry.is_live(now)))
    }

    fn put(&mut self, side: usize, family: &str, key: &[u8], entry: Entry) -> Answer<()> {
        self.writable_rows(side, family)?.insert(key.to_vec(), entry);
        Ok(())
    }

    /// Does one act on both and compares.
    fn run(&mut self, act: &Act) {
        let side = act.side % self.sides.len();
        let name = FAMILIES[act.family];
        match &act.op {
            Op::CreateFamily => {
                let made = answer(self.sides[side].store.create_family(name));
                let expected = self.writable(side).and_then(|state| {
                    if state.contains_key(name) {
                        return Err(ErrorKind::Error);
                    }
                    state.insert(name, Rows::new());
                    Ok(())
                });
                assert_eq!(made.as_ref().map(|_| ()).map_err(|e| *e), expected);
                if let Ok(family) = made {
                    self.sides[side].families.insert(name, family);
                }
            }
            Op::DropFamily => {
                let dropped = answer(self.sides[side].store.drop_family(name));
                let in_use = self.sides[side].families.contains_key(name);
                let expected = if name == "default" {
                    Err(ErrorKind::Error)
                } else {
                    self.writable(side).and_then(|state| match in_use {
                        true => Err(ErrorKind::Busy),
                        false => state.remove(name).map(drop).ok_or(ErrorKind::NotFound),
                    })
                };
                assert_eq!(dropped, expected);
            }
            Op::CloseFamily => drop(self.sides[side].families.remove(name)),
            Op::ListFamilies => {
                let mut expected: Vec<_> = self.view(side).keys().map(|name| (*name).to_owned()).collect();
                expected.retain(|name| name != "default");
                assert_eq!(self.sides[side].store.families(), Ok(expected));
            }
            Op::Begin(write) => self.begin(side, *write),
            Op::Commit => {
                let expected = match self.sides[side].transaction.take() {
                    None => Err(ErrorKind::Error),
                    Some(Transaction::Read(_)) => Ok(()),
                    Some(Transaction::Write(view)) => {
                        self.committed = view;
                        Ok(())
                    }
                };
                assert_eq!(answer(self.sides[side].store.commit()), expected);
            }
            Op::Rollback => {
                let expected = self.sides[side].transaction.take().map(drop).ok_or(ErrorKind::Error);
                assert_eq!(answer(self.sides[side].store.rollback()), expected);
            }
            Op::Jump(ms) => self.clock.set(self.clock.now() + ms),
            Op::Reopen => {
                if self.path.is_some() {
                    let old = &mut self.sides[side];
                    old.transaction = None;
                    assert_eq!(old.store.close(), Ok(()));
                    self.sides[side] = self.open_side();
                }
            }
            Op::Check => assert_eq!(self.sides[side].store.integrity_check(), Ok(())),
            Op::Checkpoint(truncate) => self.checkpoint(side, *truncate),
            Op::Vacuum => {
                let expected = self.writable(side).map(drop);
                assert_eq!(answer(self.sides[side].store.incremental_vacuum(None)), expected);
            }
            Op::Sync => self.sync(side),
            _ => {
                if let Some(family) = self.family(side, name) {
                    self.run_on_family(side, name, &family, &act.op);
                }
            }
        }
    }

    /// The handle's family, opened if it is there.
    fn family(&mut self, side: usize, name: &'static str) -> Option<Family> {
        if let Some(family) = self.sides[side].families.get(name) {
            return Some(family.clone());
        }
        let found = answer(self.sides[side].store.family(name));
        let expected = self.view(side).get(name).map(drop).ok_or(ErrorKind::NotFound);
        assert_eq!(found.as_ref().map(|_| ()).map_err(|e| *e), expected);
        let family = found.ok()?;
        self.sides[side].families.insert(name, family.clone());
        Some(family)
    }

    fn begin(&mut self, side: usize, write: bool) {
        let expected = if self.sides[side].transaction.is_some() {
            Err(ErrorKind::Error)
        } else if write && self.other_writes(side) {
            Err(ErrorKind::Busy)
        } else {
            let view = self.committed.clone();
            let kind = if write { Transaction::Write } else { Transaction::Read };
            self.sides[side].transaction = Some(kind(view));
            Ok(())
        };
        assert_eq!(answer(self.sides[side].store.begin(write)), expected);
    }

    fn checkpoint(&self, side: usize, truncate: bool) {
        let mode = if truncate { CheckpointMode::Truncate } else { CheckpointMode::Passive };
        let done = answer(self.sides[side].store.checkpoint(mode)).map(drop);
        if self.sides[side].transaction.is_some() {
            assert_eq!(done, Err(ErrorKind::Busy));
        } else if !truncate || self.sides.iter().all(|side| side.transaction.is_none()) {
            assert_eq!(done, Ok(()));
        } else {
            // Whether the other handle's snapshot is in the way depends on what is in the WAL.
            assert!(matches!(done, Ok(()) | Err(ErrorKind::Busy)), "{done:?}");
        }
    }

    fn sync(&self, side: usize) {
        let done = answer(self.sides[side].store.sync());
        // With sync level OFF, as here, it needs the write lock.
        let in_the_way = self.sides[side].transaction.is_some() || self.other_writes(side);
        let expected = if self.path.is_some() && in_the_way { Err(ErrorKind::Busy) } else { Ok(()) };
        assert_eq!(done, expected);
    }

    fn run_on_family(&mut self, side: usize, name: &'static str, family: &Family, op: &Op) {
        match op {
            Op::Put(key, value) => {
                let done = answer(family.put(key, value.bytes()));
                assert_eq!(done, self.put(side, name, key, Entry::new(*value, Expiry::Never)));
            }
            Op::PutUntil(key, value, moment) => {
                let expiry = moment.expiry(&self.clock);
                let done = answer(family.put_until(key, value.bytes(), expiry));
                assert_eq!(done, self.put(side, name, key, Entry::new(*value, expiry)));
            }
            Op::PutTtl(key, value, ttl_ms) => {
                let ends = (self.now(side) + i64::try_from(*ttl_ms).unwrap()).max(1);
                let done = answer(family.put_ttl(key, value.bytes(), Duration::from_millis(*ttl_ms)));
                assert_eq!(done, self.put(side, name, key, Entry::new(*value, Expiry::At(ends))));
            }
            Op::PutIfAbsent(key, value, moment) => {
                let (now, expiry) = (self.now(side), moment.expiry(&self.clock));
                let done = answer(family.put_if_absent(key, value.bytes(), expiry));
                let expected = self.writable_rows(side, name).map(|rows| {
                    let absent = rows.get(key).is_none_or(|entry| !entry.is_live(now));
                    if absent {
                        rows.insert(key.clone(), Entry::new(*value, expiry));
                    }
                    absent
                });
                assert_eq!(done, expected);
            }
            Op::Fill(many) => {
                for n in 0..*many {
                    let (key, value) = (vec![b'b', n], Value { byte: n, len: usize::from(n % 40) });
                    let expiry =
                        if n % 3 == 0 { Moment::In(i64::from(n)).expiry(&self.clock) } else { Expiry::Never };
                    let done = answer(family.put_until(&key, value.bytes(), expiry));
                    assert_eq!(done, self.put(side, name, &key, Entry::new(value, expiry)));
                }
            }
            Op::Delete(key) => assert_eq!(answer(family.delete(key)), self.delete(side, name, key)),
            Op::Get(key) => {
                let got = answer(family.get(key));
                assert_eq!(got, self.live_entry(side, name, key).map(|found| found.map(|entry| entry.value)));
            }
            Op::GetTtl(key) => {
                let got = answer(family.get_ttl(key));
                let now = self.now(side);
                let expected = self.live_entry(side, name, key);
                assert_eq!(got, expected.map(|found| found.map(|e| (e.value.clone(), e.ttl(now)))));
            }
            Op::Exists(key) => {
                let exists = answer(family.exists(key));
                assert_eq!(exists, self.live_entry(side, name, key).map(|found| found.is_some()));
            }
            Op::Ttl(key) => {
                let ttl = answer(family.ttl(key));
                let now = self.now(side);
                assert_eq!(ttl, self.look_up(side, name, key).map(|found| found.map(|e| e.ttl(now))));
            }
            Op::Count => {
                assert_eq!(answer(family.count()), self.rows(side, name).map(|rows| rows.len() as u64));
            }
            Op::Clear => {
                let done = answer(family.clear());
                assert_eq!(done, self.writable_rows(side, name).map(BTreeMap::clear));
            }
            Op::Purge => {
                let done = answer(family.purge_expired());
                assert_eq!(done, self.purge(side, name));
            }
            Op::Scan(scan) => self.scan(side, name, family, scan),
            Op::ScanAndDo(scan, meanwhile) => self.scan_and_do(side, name, family, scan, meanwhile),
            other => unreachable!("{other:?} needs no family"),
        }
    }

    fn scan(&self, side: usize, name: &str, family: &Family, scan: &Scan) {
        let expected = self.rows(side, name).map(|rows| {
            let mut entries: Vec<_> = live(rows, scan, self.now(side))
                .filter(|(key, _)| match &scan.seek {
                    Some(seek) if scan.reverse => *key <= seek && scan.range.contains(seek),
                    Some(seek) => *key >= seek && scan.range.contains(seek),
                    None => true,
                })
                .map(|(key, entry)| (key.clone(), entry.value.clone(), entry.expiry()))
                .collect();
            if scan.reverse {
                entries.reverse();
            }
            entries
        });
        let mut cursor = family.cursor(scan.range.clone(), scan.direction());
        let started = answer(match &scan.seek {
            Some(key) => cursor.seek(key),
            None => cursor.first(),
        });
        if expected.is_err() && scan.seek.as_ref().is_some_and(|key| !scan.range.contains(key)) {
            assert_eq!(started, Ok(false)); // known without looking at the family
            return;
        }
        let found = started.map(|mut at_entry| {
            let mut entries = Vec::new();
            while at_entry {
                let (key, value) = (cursor.key().unwrap(), cursor.value().unwrap());
                entries.push((key.to_vec(), value.to_vec(), cursor.expiry().unwrap()));
                at_entry = cursor.next().unwrap();
            }
            assert!(!cursor.is_valid() && cursor.key().is_none() && cursor.value().is_none());
            entries
        });
        assert_eq!(found, expected);
    }

    fn scan_and_do(
        &mut self,
        side: usize,
        name: &'static str,
        family: &Family,
        scan: &Scan,
        meanwhile: &[Meanwhile],
    ) {
        let mut cursor = family.cursor(scan.range.clone(), scan.direction());
        let mut moved = answer(cursor.first());
        let mut last: Option<Vec<u8>> = None;
        for turn in 0.. {
            let now = self.now(side);
            let expected = self.rows(side, name).map(|rows| {
                first(rows, scan, now, |key| {
                    last.as_deref().is_none_or(|last| if scan.reverse { key < last } else { key > last })
                })
            });
            assert_eq!(moved, expected.map(|entry| entry.is_some()));
            let Ok(Some((key, entry))) = expected else { return };
            assert_eq!(cursor.key(), Some(key.as_slice()));
            assert_eq!(cursor.value(), Some(entry.value.as_slice()));
            let key = key.clone();
            self.meanwhile(side, name, family, &key, &meanwhile[turn % meanwhile.len()]);
            last = Some(key);
            moved = answer(cursor.next());
        }
    }

    fn meanwhile(
        &mut self,
        side: usize,
        name: &'static str,
        family: &Family,
        current: &[u8],
        what: &Meanwhile,
    ) {
        let op = match what.clone() {
            Meanwhile::Nothing => return,
            Meanwhile::Jump(ms) => return self.clock.set(self.clock.now() + ms),
            Meanwhile::Put(key, value) => Op::Put(key, value),
            Meanwhile::PutUntil(key, moment) => Op::PutUntil(key, Value { byte: 1, len: 3 }, moment),
            Meanwhile::Delete(key) => Op::Delete(key),
            Meanwhile::DeleteCurrent => Op::Delete(current.to_vec()),
            Meanwhile::Get(key) => Op::Get(key),
            Meanwhile::Purge => Op::Purge,
        };
        self.run_on_family(side, name, family, &op);
    }

    /// Ends all transactions and compares everything there is.
    fn finish(&mut self) {
        for side in 0..self.sides.len() {
            if self.sides[side].transaction.take().is_some() {
                assert_eq!(self.sides[side].store.rollback(), Ok(()));
            }
        }
        let everything = |reverse| Scan { range: KeyRange::all(), reverse, seek: None };
        for side in 0..self.sides.len() {
            for name in FAMILIES {
                let Some(family) = self.family(side, name) else { continue };
                self.scan(side, name, &family, &everything(false));
                self.scan(side, name, &family, &everything(true));
                self.run_on_family(side, name, &family, &Op::Count);
                self.run_on_family(side, name, &family, &Op::Purge);
                self.run_on_family(side, name, &family, &Op::Count);
            }
            assert_eq!(self.sides[side].store.integrity_check(), Ok(()));
        }
    }
}

// ---- running it ----------------------------------------------------------------------------------

/// How many histories all tests together run.
fn cases() -> u32 {
    std::env::var("KVSTORE_MODEL_CASES").map_or(2000, |cases| cases.parse().expect("KVSTORE_MODEL_CASES"))
}

/// Runs histories on every engine. A failure shows the shortest history that fails; nothing is
/// written beside the sources.
fn run_histories(cases: u32, sides: usize, place: impl Fn() -> Option<tempfile::TempDir>) {
    for (engine, opener) in ENGINES {
        let config = Proptest {
            cases,
            failure_persistence: None,
            max_shrink_iters: 3000,
            source_file: Some(file!()),
            ..Proptest::default()
        };
        let outcome = TestRunner::new(config).run(&history(), |(page_size, acts)| {
            let dir = place();
            let path = dir.as_ref().map(|dir| dir.path().join("store.db"));
            let mut world = World::new(opener, path, page_size, sides);
            for act in &acts {
                world.run(act);
            }
            world.finish();
            Ok(())
        });
        if let Err(e) = outcome {
            panic!("engine {engine}: {e}");
        }
    }
}

#[test]
fn a_store_in_memory_answers_like_the_model() {
    run_histories(cases() / 4, 1, || None);
}

#[test]
fn two_handles_on_one_file_answer_like_the_model() {
    run_histories(cases() - cases() / 4, 2, || Some(tempfile::tempdir().unwrap()));
}

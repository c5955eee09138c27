//! Workers that use a store in every way at the same time, and record the results.
//!
//! All workers of a run, in all processes, use the same few keys at the same time. After some
//! milliseconds they switch to the next keys, so that there are many conflicts and each key has a
//! short history.
#![allow(clippy::disallowed_methods, reason = "not on Android")]

#[path = "chores.rs"]
mod chores;

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use kvstore::{Config, Error, ErrorKind, Expiry, ExpiryCondition, Family, JournalMode, KeyRange, Result};
use kvstore::{Direction, Store, Ttl};

use super::checker::{Kind, NEVER, NONE, Op};
use super::values::{Class, FAMILIES, bytes_of, class_of, family_of, key_of, number_of};

/// Number of keys in use at a time.
const KEYS: i64 = 12;
/// How long they are in use, in nanoseconds.
const MOMENT: i64 = 40_000_000;

/// Nanoseconds of the monotonic clock, which all processes share.
#[allow(unsafe_code)]
pub fn monotonic() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the time into the place it is given.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) }, 0);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// The clock that decides about expiry: that of this machine, which also runs the server. The clock
/// of this process may be an hour off.
#[allow(unsafe_code)]
pub fn now_ms() -> i64 {
    if !crate::common::are_on_a_server() {
        return kvstore::now_ms();
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the time into the place it is given. Not by the C library, in which another clock may be.
    let failed = unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_REALTIME, &raw mut time) };
    assert_eq!(failed, 0);
    time.tv_sec * 1000 + time.tv_nsec / 1_000_000
}

/// Parameters of a run, known to all its workers.
#[derive(Debug, Clone)]
pub struct Run {
    /// `None`: in memory.
    pub path: Option<PathBuf>,
    /// Folder for files next to the store.
    pub folder: PathBuf,
    pub begins: i64,
    pub ends: i64,
    pub engines: Engines,
    pub journal_mode: JournalMode,
    /// Each number is a handle with this number of threads.
    pub handles: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engines {
    Sql,
    Btree,
    Mixed,
}

/// Results of the workers of one process.
#[derive(Default)]
pub struct Harvest {
    pub operations: Vec<Op>,
    /// Calls that failed because of a lock.
    pub busy: u64,
    /// Purges, checkpoints and so on.
    pub chores: u64,
}

impl Run {
    /// Configuration of a handle. The settings vary, but must not affect the results.
    pub fn config(&self, handle: usize) -> Config {
        let sql = match self.engines {
            Engines::Sql => true,
            Engines::Btree => false,
            Engines::Mixed => handle % 2 == 1,
        };
        let wait = if handle % 4 == 3 { Duration::ZERO } else { Duration::from_secs(10) };
        let config = Config::new()
            .journal_mode(self.journal_mode)
            .sql_engine(sql)
            .hold_reads(handle % 3 != 2)
            .busy_timeout(wait)
            .mmap_size(if handle % 5 == 4 { 0 } else { 64 << 20 });
        if handle % 5 == 2 { config.checkpoint_every(20) } else { config }
    }

    fn open(&self, handle: usize) -> Result<Store> {
        match &self.path {
            Some(path) => Store::open_with(path, &self.config(handle)),
            None => Store::open_in_memory(&self.config(handle)),
        }
    }

    /// Runs the workers of one process; `process` is its number.
    pub fn work(&self, process: usize) -> Harvest {
        let stores: Vec<Store> = (0..self.handles.len())
            .map(|handle| self.open(process + handle).expect("opening waits for other handles"))
            .collect();
        for store in &stores {
            for name in FAMILIES.iter().skip(1) {
                retried(|| store.get_or_create_family(name)).unwrap();
            }
        }
        let mut all = Harvest::default();
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for ((handle, store), users) in stores.iter().enumerate().zip(&self.handles) {
                for user in 0..*users {
                    let number = process * 64 + threads.len();
                    let is_alone = *users == 1;
                    threads.push(scope.spawn(move || {
                        let mut worker = Worker::new(self, store, number, process + handle, is_alone);
                        if user == 0 && handle == 0 && self.path.is_some() {
                            // Its own handle is opened like any other: in DELETE mode it may be too busy for that.
                            retried(|| store.start_cleaner(Duration::from_millis(3), Some(40))).unwrap();
                        }
                        while monotonic() < self.ends {
                            worker.turn();
                        }
                        worker.harvest
                    }));
                }
            }
            for thread in threads {
                let harvest = thread.join().expect("a worker has failed");
                all.operations.extend(harvest.operations);
                all.busy += harvest.busy;
                all.chores += harvest.chores;
            }
        });
        // A store in memory cannot be read after its close: read it now.
        if self.path.is_none() {
            all.operations.extend(last_reads(&stores[0], &all.operations));
            stores[0].integrity_check().unwrap();
        }
        for store in &stores {
            store.close().unwrap();
        }
        all
    }
}

/// Reads every key once more, which shows any lost update.
pub fn last_reads(store: &Store, operations: &[Op]) -> Vec<Op> {
    let families = FAMILIES.map(|name| store.family(name).unwrap());
    let mut keys: Vec<i64> = operations.iter().map(|op| op.key).collect();
    keys.sort_unstable();
    keys.dedup();
    let read = |key: i64| {
        let (family, name) = (&families[family_of(key)], key_of(key));
        let (begin, wall_begin) = (monotonic(), now_ms());
        let value = family.get(&name).unwrap();
        let (wall, end) = ((wall_begin, now_ms()), monotonic());
        Op { wall, read: number_of(key, value.as_deref()), ..blank(Kind::Get, key, begin, end) }
    };
    keys.into_iter().map(read).collect()
}

fn blank(kind: Kind, key: i64, begin: i64, end: i64) -> Op {
    Op { key, worker: -1, kind, begin, end, wall: (0, 0), read: NONE, write: NONE, ends: NEVER, result: NONE }
}

/// Repeats a call while a lock blocks it, on a handle without a busy timeout.
fn retried<R>(mut f: impl FnMut() -> Result<R>) -> Result<R> {
    loop {
        match f() {
            Err(e) if e.is_retryable() => std::thread::yield_now(),
            done => return done,
        }
    }
}

/// Returns `true` if other clients conflicted with a transaction on a server, which each call in it
/// may report.
fn is_conflict(error: &Error) -> bool {
    crate::common::are_on_a_server() && error.kind() == ErrorKind::Locked
}

struct Worker<'a> {
    run: &'a Run,
    shared: &'a Store,
    /// Reopened now and then, if no other worker shares the handle.
    own: Option<Store>,
    families: [Option<Family>; FAMILIES.len()],
    number: usize,
    handle: usize,
    is_alone: bool,
    random: Cell<u64>,
    only_reads: bool,
    written: i64,
    files: u64,
    harvest: Harvest,
}

/// The clock readings around a call.
struct Around {
    begin: i64,
    wall: i64,
}

impl Worker<'_> {
    fn new<'a>(run: &'a Run, store: &'a Store, number: usize, handle: usize, is_alone: bool) -> Worker<'a> {
        let seed = monotonic().unsigned_abs() ^ (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Worker {
            run,
            shared: store,
            own: None,
            families: [const { None }; FAMILIES.len()],
            number,
            handle,
            is_alone,
            random: Cell::new(seed | 1),
            only_reads: false,
            written: 0,
            files: 0,
            harvest: Harvest::default(),
        }
    }

    fn store(&self) -> &Store {
        self.own.as_ref().unwrap_or(self.shared)
    }

    fn random(&self, below: i64) -> i64 {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        ((x >> 16) % below.unsigned_abs()).cast_signed()
    }

    fn one_in(&self, times: i64) -> bool {
        self.random(times) == 0
    }

    /// Returns a value that no other worker writes.
    fn new_number(&mut self) -> i64 {
        self.written += 1;
        (i64::try_from(self.number).unwrap() + 1) << 32 | self.written
    }

    fn new_ends(&self) -> Expiry {
        if self.one_in(2) { Expiry::Never } else { Expiry::At(now_ms() + 1 + self.random(50)) }
    }

    fn moment(&self) -> i64 {
        (monotonic() - self.run.begins).max(0) / MOMENT * KEYS
    }

    /// Returns a key of the current period, sometimes of the previous one.
    fn key(&self) -> i64 {
        let back = if self.one_in(5) { KEYS } else { 0 };
        (self.moment() - back).max(0) + self.random(KEYS)
    }

    fn around(&self) -> Around {
        Around { begin: monotonic(), wall: now_ms() }
    }

    /// The record of a call that has just returned.
    fn done(&self, kind: Kind, key: i64, around: &Around) -> Op {
        let wall = (around.wall, now_ms());
        let worker = i64::try_from(self.number).unwrap();
        Op { worker, wall, ..blank(kind, key, around.begin, monotonic()) }
    }

    fn note(&mut self, op: Op) {
        self.harvest.operations.push(op);
    }

    /// Result of a write; `None` if a lock blocked it, and nothing has happened.
    #[track_caller]
    fn unless_busy<R>(&mut self, done: Result<R>) -> Option<R> {
        match done {
            Ok(done) => Some(done),
            Err(e) if e.is_retryable() || is_conflict(&e) => {
                self.harvest.busy += 1;
                None
            }
            Err(e) => panic!("worker {}: {e:?}", self.number),
        }
    }

    /// Returns the result of a read, which nothing blocks in WAL mode.
    #[track_caller]
    fn read<R>(&mut self, done: Result<R>) -> Option<R> {
        if self.run.journal_mode == JournalMode::Wal {
            return Some(done.unwrap_or_else(|e| panic!("a read by worker {}: {e:?}", self.number)));
        }
        self.unless_busy(done)
    }

    fn turn(&mut self) {
        if self.one_in(40) {
            self.harvest.chores += 1;

            return self.chore();
        }

        // Reads only for a while, during which the handle keeps a snapshot.
        if self.one_in(40) {
            self.only_reads = self.one_in(2);
        }
        let key = self.key();
        let Some(family) = self.family(family_of(key)) else { return };
        if self.only_reads {
            return if class_of(key) == Class::Pair {
                self.read_half(key, &family)
            } else {
                self.read_one(key, &family)
            };
        }
        match (self.random(20), class_of(key)) {
            (0, _) => self.scan(),
            (1, _) => self.snapshot(),
            (2, _) => self.get_many(),
            (0..8, Class::Pair) => self.write_pair(key, &family),
            (_, Class::Pair) => self.read_pair(key, &family),
            (0..10, _) => self.read_one(key, &family),
            (10, _) if self.is_alone => self.transact(key, &family),
            (0..14, Class::Counter) => self.increment(key, &family),
            _ => self.write_one(key, &family),
        }
    }

    /// Returns a handle on a family, and keeps it open, because opening one runs SQL, which
    /// releases the snapshot of the store's handle.
    fn family(&mut self, number: usize) -> Option<Family> {
        if let Some(family) = &self.families[number] {
            return Some(family.clone());
        }
        let family = self.store().family(FAMILIES[number]);
        self.families[number] = Some(self.read(family)?);
        self.families[number].clone()
    }

    // ---- reads -----------------------------------------------------------------------------------

    fn read_one(&mut self, key: i64, family: &Family) {
        let name = key_of(key);
        let around = self.around();
        let op = match self.random(5) {
            0 => {
                let Some(found) = ({
                    let done = family.get_with_ttl(&name);
                    self.read(done)
                }) else {
                    return;
                };
                let left = found.as_ref().map_or(NONE, |(_, ttl)| match ttl {
                    Ttl::None => -1,
                    Ttl::Remaining(left) => left.as_millis().try_into().unwrap(),
                });
                let op = self.done(Kind::GetTtl, key, &around);
                Op { read: number_of(key, found.as_ref().map(|(value, _)| &**value)), result: left, ..op }
            }
            1 => {
                let done = family.exists(&name);
                let Some(found) = self.read(done) else { return };
                Op { result: i64::from(found), ..self.done(Kind::Exists, key, &around) }
            }
            2 => {
                let done = family.expiry(&name);
                let Some(found) = self.read(done) else { return };
                let end = found.map_or(NONE, |expiry| expiry.millis().unwrap_or(0));
                Op { result: end, ..self.done(Kind::ExpireTime, key, &around) }
            }
            _ => {
                let done = family.get(&name);
                let Some(found) = self.read(done) else { return };
                Op { read: number_of(key, found.as_deref()), ..self.done(Kind::Get, key, &around) }
            }
        };
        self.note(op);
    }

    /// Reads all current keys of one family with an iterator or a cursor.
    fn scan(&mut self) {
        let first = self.moment();
        let number = usize::try_from(self.random(FAMILIES.len() as i64)).unwrap();
        let Some(family) = self.family(number) else { return };
        let range = KeyRange::new(
            std::ops::Bound::Included(key_of(first)),
            std::ops::Bound::Excluded(key_of(first + KEYS)),
        );
        let back = self.one_in(2);
        let around = self.around();
        let found = (|| -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
            if !back {
                return family.range(key_of(first)..key_of(first + KEYS)).collect();
            }
            let mut cursor = family.cursor(range, Direction::Reverse);
            let mut found = Vec::new();
            let mut is_at = cursor.first()?;
            while is_at {
                let entry = cursor.key().zip(cursor.value()).expect("the cursor is at an entry");
                found.push((entry.0.to_vec(), entry.1.to_vec()));
                is_at = cursor.next()?;
            }
            found.reverse();
            Ok(found)
        })();
        let Some(found) = self.read(found) else { return };
        assert!(found.is_sorted_by(|(a, _), (b, _)| a < b), "a scan out of order");
        let done = self.done(Kind::Get, first, &around);
        for key in first..first + KEYS {
            if family_of(key) == number {
                let at = found.iter().find(|(name, _)| *name == key_of(key));
                let read = number_of(key, at.map(|(_, value)| &**value));
                self.note(Op { key, read, ..done });
            }
        }
    }

    fn get_many(&mut self) {
        let first = self.moment();
        let Some(family) = self.family(0) else { return };
        let keys: Vec<i64> = (first..first + KEYS).filter(|key| family_of(*key) == 0).collect();
        let around = self.around();
        let done = family.get_many(keys.iter().map(|key| key_of(*key)));
        let Some(found) = self.read(done) else { return };
        let done = self.done(Kind::Get, first, &around);
        for (key, value) in keys.into_iter().zip(found) {
            self.note(Op { key, read: number_of(key, value.as_deref()), ..done });
        }
    }

    /// A read transaction sees the state at its start, however long it lasts.
    fn snapshot(&mut self) {
        if !self.is_alone {
            return;
        }
        let families: Vec<Family> = (0..FAMILIES.len()).map_while(|number| self.family(number)).collect();
        if families.len() < FAMILIES.len() {
            return;
        }
        let first = self.moment();
        let around = self.around();
        let begun = self.store().begin_read();
        let Some(()) = self.read(begun) else { return };
        let begin = self.done(Kind::Snapshot, first, &around);
        let mut seen = Vec::new();
        for _ in 0..2 {
            for key in first..first + KEYS {
                let wall = now_ms();
                let read = families[family_of(key)].get(key_of(key));
                let read = read.unwrap_or_else(|e| panic!("a read in a snapshot: {e:?}"));
                let read = number_of(key, read.as_deref());
                seen.push(Op { key, wall: (wall, now_ms()), read, ..begin });
            }
            std::thread::yield_now();
        }
        self.store().commit().expect("the end of a read transaction");
        seen.into_iter().for_each(|op| self.note(op));
    }

    // ---- writes ----------------------------------------------------------------------------------

    fn write_one(&mut self, key: i64, family: &Family) {
        let (name, number, expiry) = (key_of(key), self.new_number(), self.new_ends());
        let value = bytes_of(key, number);
        let ends = expiry.millis().map_or(NEVER, |at| (at, at));
        let written = Op { write: number, ends, ..blank(Kind::Put, key, 0, 0) };
        let around = self.around();
        let (kind, done, op) = match self.random(10) {
            0 => (Kind::Delete, family.delete(&name), Op { write: NONE, ends: NEVER, ..written }),
            1 => (Kind::PutIfAbsent, family.put_if_absent(&name, &value, expiry), written),
            2 | 3 => {
                // The most likely current value.
                let now = family.get(&name);
                let Some(Some(now)) = self.read(now) else { return };
                let around = self.around();
                let read = number_of(key, Some(&now));
                let (kind, done, op) = if self.one_in(4) {
                    let done = family.compare_and_delete(&name, &now);
                    (Kind::CompareAndDelete, done, Op { write: NONE, ends: NEVER, ..written })
                } else {
                    (Kind::Swap, family.compare_and_swap(&name, &now, &value, expiry), written)
                };
                return self.finish(kind, key, &around, done, Op { read, ..op });
            }
            4 => {
                let done =
                    family.set_expiry(&name, expiry, ExpiryCondition::Always).map(|done| done.is_some());
                (Kind::Expire, done, Op { write: NONE, ..written })
            }
            5 => {
                let done = family.get_and_set_expiry(&name, expiry);
                let Some(found) = self.unless_busy(done) else { return };
                let op = self.done(Kind::GetAndExpire, key, &around);
                return self.note(Op { read: number_of(key, found.as_deref()), ends, ..op });
            }
            6 => {
                let ttl = 1 + self.random(50);
                let done = family.put_with_ttl(&name, &value, Duration::from_millis(ttl.unsigned_abs()));
                let Some(()) = self.unless_busy(done) else { return };
                let op = self.done(Kind::Put, key, &around);
                return self.note(Op { write: number, ends: (op.wall.0 + ttl, op.wall.1 + ttl), ..op });
            }
            7 => {
                let done = family.put(&name, &value).map(|()| true);
                (Kind::Put, done, Op { ends: NEVER, ..written })
            }
            _ => (Kind::Put, family.put_with_expiry(&name, &value, expiry).map(|()| true), written),
        };
        self.finish(kind, key, &around, done, op);
    }

    fn finish(&mut self, kind: Kind, key: i64, around: &Around, done: Result<bool>, what: Op) {
        let Some(result) = self.unless_busy(done) else { return };
        let Op { read, write, ends, .. } = what;
        let op = self.done(kind, key, around);
        self.note(Op { read, write, ends, result: i64::from(result), ..op });
    }

    fn increment(&mut self, key: i64, family: &Family) {
        // A unique difference, so that a sum shows what was added.
        let (difference, expiry) = (self.new_number(), self.new_ends());
        let around = self.around();
        let done = family.increment(key_of(key), difference, expiry);
        let Some(sum) = self.unless_busy(done) else { return };
        let ends = expiry.millis().map_or(NEVER, |at| (at, at));
        let op = self.done(Kind::Increment, key, &around);
        self.note(Op { read: difference, write: sum, ends, ..op });
    }

    /// Reads and writes in a write transaction, which is sometimes rolled back.
    fn transact(&mut self, key: i64, family: &Family) {
        let (name, number, expiry) = (key_of(key), self.new_number(), self.new_ends());
        let around = self.around();
        let begun = self.store().begin_write();
        let Some(()) = self.unless_busy(begun) else { return };
        let done = (|| {
            let read = number_of(key, family.get(&name)?.as_deref());
            family.put_with_expiry(&name, bytes_of(key, number), expiry)?;
            Ok((read, number_of(key, family.get(&name)?.as_deref())))
        })();
        if done.as_ref().is_err_and(is_conflict) {
            self.store().rollback().unwrap();
            self.harvest.busy += 1;
            return;
        }
        let (read, own) = done.unwrap();
        let may_have_died = expiry.millis().is_some_and(|at| at <= now_ms());
        assert!(own == number || own == NONE && may_have_died, "its own write");
        if self.one_in(4) {
            self.store().rollback().unwrap();
            let op = self.done(Kind::Get, key, &around);
            return self.note(Op { read, ..op });
        }
        let committed = self.store().commit();
        if committed.as_ref().is_err_and(|e| e.kind() == ErrorKind::Busy || is_conflict(e)) {
            self.store().rollback().unwrap(); // in DELETE mode a reader blocks it; on a server, another writer
        }
        let Some(()) = self.unless_busy(committed) else { return };
        let ends = expiry.millis().map_or(NEVER, |at| (at, at));
        let op = self.done(Kind::ReadAndPut, key, &around);
        self.note(Op { read, write: number, ends, ..op });
    }

    // ---- pairs -----------------------------------------------------------------------------------

    fn mate(&mut self, key: i64) -> Option<(Family, Vec<u8>)> {
        let family = self.family((family_of(key) + 1) % FAMILIES.len())?;
        Some((family, format!("mate {key:08}").into_bytes()))
    }

    fn write_pair(&mut self, key: i64, family: &Family) {
        let Some((other, mate)) = self.mate(key) else { return };
        let number = self.new_number();
        let mut batch = self.store().batch();
        let removes = self.one_in(5);
        if removes {
            batch.delete(family, key_of(key)).unwrap();
            batch.delete(&other, mate).unwrap();
        } else {
            batch.put(family, key_of(key), bytes_of(key, number), Expiry::Never).unwrap();
            batch.put(&other, mate, bytes_of(key, number), Expiry::Never).unwrap();
        }
        let around = self.around();
        let done = batch.commit();
        let Some(()) = self.unless_busy(done) else { return };
        let op = self.done(if removes { Kind::Remove } else { Kind::Put }, key, &around);
        self.note(Op { write: if removes { NONE } else { number }, ..op });
    }

    fn read_pair(&mut self, key: i64, family: &Family) {
        let Some((other, mate)) = self.mate(key) else { return };
        if !self.is_alone {
            return self.read_half(key, family);
        }
        let around = self.around();
        let done = self.store().snapshot(|_| Ok((family.get(key_of(key))?, other.get(&mate)?)));
        let Some((one, two)) = self.read(done) else { return };
        let read = number_of(key, one.as_deref());
        assert_eq!(read, number_of(key, two.as_deref()), "a batch seen by halves, key {key}");
        let op = self.done(Kind::Get, key, &around);
        self.note(Op { read, ..op });
    }

    fn read_half(&mut self, key: i64, family: &Family) {
        let around = self.around();
        let done = family.get(key_of(key));
        let Some(found) = self.read(done) else { return };
        let op = self.done(Kind::Get, key, &around);
        self.note(Op { read: number_of(key, found.as_deref()), ..op });
    }
}

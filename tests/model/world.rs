//! Stores together with their model: operations on a store as a whole.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use kvstore::{CheckpointMode, Config, ErrorKind, Family, PurgeStep, Store, SyncLevel, WriteBatch};

use crate::Opener;
use crate::common::{TestClock, are_on_a_server};
use crate::history::{Act, FAMILIES, FamilyOp, Op, Over, Range, Scan, Time};
use crate::pending_removals::PendingRemovals;
use crate::table::{Answer, BatchWrite, Entry, State, Table, apply};

/// Start time of each history: it has as many digits as present times, and is far from 0, below
/// which no expiry time may be.
const BEGIN_MS: i64 = 1_800_000_000_000;

pub enum Transaction {
    Read(State),
    Write(State),
}

/// A handle, and the model's state for it.
pub struct Side {
    pub store: Store,
    families: BTreeMap<&'static str, Family>,
    transaction: Option<Transaction>,
    pending_removals: PendingRemovals,
    /// Survives transactions and drops of families.
    pub batch: WriteBatch,
    pub pending: Vec<BatchWrite>,
    /// The latest time that the store has read. It never goes back to an earlier one.
    told: Arc<AtomicI64>,
}

impl Side {
    fn writes(&self) -> bool {
        matches!(self.transaction, Some(Transaction::Write(_)))
    }
}

pub struct World {
    opener: Opener,
    path: Option<PathBuf>,
    config: Config,
    pub clock: TestClock,
    committed: State,
    pub sides: Vec<Side>,
    /// Committed state and noted rows of a handle, before an operation in a transaction of its own.
    before: Option<(usize, State, PendingRemovals)>,
}

pub fn answer<T>(result: kvstore::Result<T>) -> Answer<T> {
    result.map_err(|e| e.kind())
}

impl World {
    pub fn new(opener: Opener, path: Option<PathBuf>, page_size: u32, sides: usize) -> World {
        // Crashes are not this test's matter: nothing needs syncing.
        let config = crate::common::without_wait().page_size(page_size).sync(SyncLevel::Off);
        let mut world = World {
            opener,
            path,
            config,
            clock: TestClock::at(BEGIN_MS),
            committed: [("default", Table::default())].into(),
            sides: Vec::new(),
            before: None,
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
        if are_on_a_server() {
            self.clock.drive(&store);
        } else {
            store.set_clock(move || {
                tell.fetch_max(clock.now(), Ordering::SeqCst);
                clock.now()
            });
        }
        let batch = store.batch();
        let (families, pending) = (BTreeMap::new(), Vec::new());
        Side {
            store,
            families,
            transaction: None,
            pending_removals: PendingRemovals::default(),
            batch,
            pending,
            told,
        }
    }

    pub fn now(&self, side: usize) -> i64 {
        self.clock.now().max(self.sides[side].told.load(Ordering::SeqCst))
    }

    fn other_writes(&self, side: usize) -> bool {
        self.sides.iter().enumerate().any(|(at, other)| at != side && other.writes())
    }

    /// Content of the file as the transaction of the handle sees it.
    fn view(&self, side: usize) -> &State {
        match &self.sides[side].transaction {
            Some(Transaction::Read(view) | Transaction::Write(view)) => view,
            None => &self.committed,
        }
    }

    /// State that the handle writes to, if it may write now. A transaction of its own first removes
    /// the noted rows.
    pub fn writable(&mut self, side: usize) -> Answer<&mut State> {
        let blocked = self.other_writes(side);
        let of_its_own = self.sides[side].transaction.is_none() && !blocked;
        if of_its_own && !self.sides[side].pending_removals.is_empty() {
            self.before = Some((side, self.committed.clone(), self.sides[side].pending_removals.clone()));
            self.run_pending_removals(side);
        }
        match &mut self.sides[side].transaction {
            Some(Transaction::Read(_)) => Err(ErrorKind::ReadOnly),
            Some(Transaction::Write(view)) => Ok(view),
            None if blocked => Err(ErrorKind::Busy),
            None => Ok(&mut self.committed),
        }
    }

    /// Call this when a write has failed after it had begun: then no noted row was removed either.
    pub fn rolled_back(&mut self) {
        if let Some((side, committed, removals)) = self.before.take() {
            self.committed = committed;
            self.sides[side].pending_removals = removals;
        }
    }

    /// Call this after each operation.
    pub fn settle(&mut self) {
        self.before = None;
    }

    /// Removes the rows noted by this handle.
    fn run_pending_removals(&mut self, side: usize) {
        let now = self.now(side);
        std::mem::take(&mut self.sides[side].pending_removals).remove_from(&mut self.committed, now);
    }

    /// Removes the noted rows in the handle's write transaction, as purges do.
    fn remove_noted_in_transaction(&mut self, side: usize) {
        let now = self.now(side);
        let side = &mut self.sides[side];
        if let Some(Transaction::Write(view)) = &mut side.transaction {
            side.pending_removals.remove_from(view, now);
        }
    }

    /// Removes the noted rows, unless other handles are writing.
    fn try_pending_removals(&mut self, side: usize) {
        match self.other_writes(side) {
            true => self.sides[side].pending_removals.are_stuck(),
            false => self.run_pending_removals(side),
        }
    }

    /// Returns a family without the rows noted by this handle.
    fn shown<'a>(&self, side: usize, family: &str, table: &'a Table) -> Cow<'a, Table> {
        let removals = &self.sides[side].pending_removals;
        let mut table = Cow::Borrowed(table);
        if removals.are_of(family) {
            removals.remove_from_table(family, table.to_mut(), self.now(side));
        }
        table
    }

    /// Returns the family as the handle sees it; an error if it was dropped.
    pub fn table(&self, side: usize, family: &str) -> Answer<Cow<'_, Table>> {
        let table = self.view(side).get(family).ok_or(ErrorKind::Error)?;
        Ok(self.shown(side, family, table))
    }

    pub fn writable_table(&mut self, side: usize, family: &str) -> Answer<&mut Table> {
        if !self.writable(side)?.contains_key(family) {
            self.rolled_back();
            return Err(ErrorKind::Error);
        }
        self.writable(side)?.get_mut(family).ok_or(ErrorKind::Error)
    }

    /// First keys of a family, including expired rows.
    pub fn first_keys(&self, side: usize, family: &str, many: u16) -> Vec<Vec<u8>> {
        let rows = self.view(side).get(family).map(|table| table.rows.keys());
        rows.into_iter().flatten().take(many.into()).cloned().collect()
    }

    /// Lookup of one key. Like the store, it notes an expired row, except in a read transaction.
    /// In a write transaction it removes no noted rows.
    pub fn look_up(&mut self, side: usize, family: &'static str, key: &[u8]) -> Answer<Option<Entry>> {
        let now = self.now(side);
        let found = self.table(side, family)?.rows.get(key).cloned();
        let Some(expire_ms) = found.as_ref().and_then(|entry| entry.expire_ms).filter(|at| *at <= now) else {
            return Ok(found);
        };
        if are_on_a_server() || matches!(self.sides[side].transaction, Some(Transaction::Read(_))) {
            return Ok(found);
        }
        let may_remove = self.sides[side].transaction.is_none();
        if may_remove && !self.sides[side].pending_removals.has_space_for(key) {
            self.try_pending_removals(side);
        }
        let removals = &mut self.sides[side].pending_removals;
        if removals.has_space_for(key) {
            removals.add(family, key, expire_ms);
            if may_remove && removals.are_enough() {
                self.try_pending_removals(side);
            }
        }
        Ok(found)
    }

    pub fn live_entry(&mut self, side: usize, family: &'static str, key: &[u8]) -> Answer<Option<Entry>> {
        let now = self.now(side);
        Ok(self.look_up(side, family, key)?.filter(|entry| entry.is_live(now)))
    }

    /// Removal that needs no lock if there is nothing to do. Returns the number of rows removed,
    /// and how many of them were live.
    pub fn remove(
        &mut self,
        side: usize,
        family: &str,
        doomed: impl Fn(&Entry) -> bool,
    ) -> Answer<(u64, u64)> {
        let now = self.now(side);
        if !self.view(side).get(family).ok_or(ErrorKind::Error)?.rows.values().any(&doomed) {
            return Ok((0, 0));
        }
        Ok(self.writable_table(side, family)?.remove(now, |_, entry| doomed(entry)))
    }

    /// A purge of expired rows that match `doomed`. It also removes noted rows, but does not count
    /// them.
    pub fn purge(&mut self, side: usize, family: &str, doomed: impl Fn(&Entry) -> bool) -> Answer<u64> {
        if !self.view(side).get(family).ok_or(ErrorKind::Error)?.rows.values().any(&doomed) {
            return Ok(0);
        }
        let counted = self.table(side, family)?.rows.values().filter(|entry| doomed(entry)).count();
        self.writable_table(side, family)?;
        self.remove_noted_in_transaction(side);
        self.remove(side, family, doomed)?;
        Ok(counted as u64)
    }

    /// Runs an operation on both and compares the results.
    pub fn run(&mut self, act: &Act) {
        let side = act.side % self.sides.len();
        self.run_op(side, FAMILIES[act.family], &act.op);
    }

    pub fn run_op(&mut self, side: usize, name: &'static str, op: &Op) {
        self.run_unsettled(side, name, op);
        self.settle();
    }

    fn run_unsettled(&mut self, side: usize, name: &'static str, op: &Op) {
        match op {
            Op::On(op) => {
                if let Some(family) = self.family(side, name) {
                    self.run_on_family(side, name, &family, op);
                }
            }
            Op::CreateFamily => {
                let made = answer(self.sides[side].store.create_family(name));
                let expected = self.writable(side).and_then(|state| {
                    if state.contains_key(name) {
                        return Err(ErrorKind::Error);
                    }
                    state.insert(name, Table::default());
                    Ok(())
                });
                assert_eq!(made.as_ref().map(|_| ()).map_err(|e| *e), expected);
                if let Ok(family) = made {
                    self.sides[side].families.insert(name, family);
                }
            }
            Op::DropFamily(unused) => {
                if *unused {
                    self.sides[side].families.remove(name);
                }
                let dropped = answer(self.sides[side].store.drop_family(name));
                let in_use = self.sides[side].families.contains_key(name);
                let expected = if name == "default" {
                    Err(ErrorKind::Error)
                } else if in_use {
                    // It begins no write, so it removes no noted rows.
                    match self.sides[side].transaction {
                        Some(Transaction::Read(_)) => Err(ErrorKind::ReadOnly),
                        _ => Err(ErrorKind::Busy),
                    }
                } else {
                    self.writable(side)
                        .and_then(|state| state.remove(name).map(drop).ok_or(ErrorKind::NotFound))
                };
                assert_eq!(dropped, expected);
            }
            Op::CloseFamily => drop(self.sides[side].families.remove(name)),
            Op::ListFamilies => {
                let mut expected: Vec<_> = self.view(side).keys().map(|name| (*name).to_owned()).collect();
                expected.retain(|name| name != "default");
                assert_eq!(self.sides[side].store.family_names(), Ok(expected));
            }
            Op::NextExpiryOfAll => {
                let shown = self.view(side).iter().map(|(name, table)| self.shown(side, name, table));
                let expected = shown.filter_map(|table| table.next_expiry()).min();
                assert_eq!(self.sides[side].store.next_expiry_all_families(), Ok(expected));
            }
            Op::PurgeStep(max_keys) => self.purge_step(side, *max_keys),
            Op::BatchCommit => self.commit_batch(side),
            Op::BatchClear => {
                let side = &mut self.sides[side];
                side.batch.clear();
                side.pending.clear();
            }
            Op::TornBatch(key, value) => {
                let put = Op::On(FamilyOp::BatchPut(key.clone(), *value, None));
                self.run_op(side, "default", &put);
                self.run_op(side, name, &put);
                for op in [Op::DropFamily(true), Op::BatchCommit, Op::BatchClear] {
                    self.run_op(side, name, &op);
                }
                self.run_op(side, "default", &Op::On(FamilyOp::Get(key.clone())));
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
            Op::Jump(..0) if are_on_a_server() => {}
            Op::Jump(ms) => self.clock.set(self.clock.now() + ms),
            Op::Reopen => {
                if self.path.is_some() {
                    self.sides[side].transaction = None;
                    self.try_pending_removals(side);
                    let old = &mut self.sides[side];
                    assert_eq!(old.store.close(), Ok(()));
                    assert_eq!(answer(old.batch.commit()), Err(ErrorKind::Misuse));
                    self.sides[side] = self.open_side();
                }
            }
            Op::Backup(stop) => self.back_up(side, *stop),
            Op::Check => assert_eq!(self.sides[side].store.integrity_check(), Ok(())),
            Op::Checkpoint(truncate) => self.checkpoint(side, *truncate),
            Op::Vacuum => {
                let expected = match self.writable(side).map(drop) {
                    Err(ErrorKind::Busy) if are_on_a_server() => Ok(()), // nothing is done there
                    expected => expected,
                };
                assert_eq!(answer(self.sides[side].store.incremental_vacuum(None)), expected);
            }
            Op::Sync => self.sync(side),
        }
    }

    /// Returns the handle's family, and opens it if it exists.
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
            self.sides[side].pending_removals.are_stuck();
            Err(ErrorKind::Busy)
        } else {
            if write {
                self.run_pending_removals(side);
            }
            let view = self.committed.clone();
            let kind = if write { Transaction::Write } else { Transaction::Read };
            self.sides[side].transaction = Some(kind(view));
            Ok(())
        };
        assert_eq!(answer(crate::common::begin(&self.sides[side].store, write)), expected);
    }

    fn commit_batch(&mut self, side: usize) {
        let now = self.now(side);
        let pending = std::mem::take(&mut self.sides[side].pending);
        let expected = if pending.is_empty() {
            Ok(())
        } else {
            self.writable(side).and_then(|state| apply(state, &pending, now))
        };
        if expected.is_err() {
            self.rolled_back();
        }
        let side = &mut self.sides[side];
        assert_eq!(side.batch.len(), pending.len());
        assert_eq!(answer(side.batch.commit()), expected);
        if expected.is_err() {
            side.pending = pending; // the batch can be committed again
        }
        assert_eq!(side.batch.len(), side.pending.len());
        assert_eq!(side.batch.is_empty(), side.pending.is_empty());
    }

    fn purge_step(&mut self, side: usize, max_keys: Option<u64>) {
        let now = self.now(side);
        let dead_of = |name: &'static str, table: &Table| {
            let dead = table.rows.iter().filter(|(_, entry)| !entry.is_live(now));
            let dead = dead.map(|(key, entry)| (entry.expire_ms.unwrap_or_default(), name, key.clone()));
            dead.collect::<Vec<_>>()
        };
        let view = self.view(side);
        let any_dead = view.iter().any(|(name, table)| !dead_of(name, table).is_empty());
        let shown = view.iter().map(|(name, table)| (*name, self.shown(side, name, table)));
        let mut dead: Vec<_> = shown.flat_map(|(name, table)| dead_of(name, &table)).collect();
        dead.sort();
        let max = max_keys.map_or(usize::MAX, |max| usize::try_from(max).unwrap());
        let removed = dead.len().min(max);
        // It reads before it writes. Noted rows are removed by the first write, and are not
        // counted.
        let expected = match max {
            0 => Ok(PurgeStep { deleted: 0, more: any_dead }),
            _ => {
                let step = PurgeStep { deleted: removed as u64, more: dead.len() > removed };
                if any_dead { self.writable(side).map(|_| step) } else { Ok(step) }
            }
        };
        if any_dead && max > 0 {
            self.remove_noted_in_transaction(side);
        }
        assert_eq!(answer(self.sides[side].store.purge_step(max_keys, None)), expected);
        if expected.is_err() || removed == 0 {
            return;
        }
        // Among keys with the same expiry time, the store chooses which are removed.
        let last_ms = dead[removed - 1].0;
        let mut left = BTreeSet::new();
        if dead.get(removed).is_some_and(|(expire_ms, ..)| *expire_ms == last_ms) {
            for name in self.view(side).keys() {
                let family = self.sides[side].store.family(name).unwrap();
                let mut cursor = family.expiry_cursor(last_ms, last_ms + 1).keys_only();
                let mut at_entry = cursor.first().unwrap();
                while at_entry {
                    left.insert((*name, cursor.key().unwrap().to_vec()));
                    at_entry = cursor.next().unwrap();
                }
            }
        }
        dead.retain(|(expire_ms, name, key)| *expire_ms <= last_ms && !left.contains(&(*name, key.clone())));
        assert_eq!(dead.len(), removed);
        let state = self.writable(side).unwrap();
        for (_, name, key) in dead {
            state.get_mut(name).unwrap().rows.remove(&key);
        }
    }

    /// A backup has the committed state, whatever transactions are open.
    fn back_up(&mut self, side: usize, stop: bool) {
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("copy.db");
        let (mut reports, mut remaining) = (0, 0);
        let done = answer(self.sides[side].store.backup(&copy, |pages, _| {
            (reports, remaining) = (reports + 1, pages);
            !stop
        }));
        if self.path.is_none() && self.sides[side].transaction.is_some() {
            assert_eq!((done, reports), (Err(ErrorKind::Busy), 0));
        } else if stop {
            assert_eq!((done, reports), (Err(ErrorKind::Error), 1));
        } else {
            assert_eq!((done, remaining), (Ok(()), 0));
            assert!(reports > 0);
            let store = (self.opener)(Some(&copy), &self.config).unwrap();
            self.clock.drive(&store);
            let (mut copied, now) = (self.committed.clone(), self.clock.now());
            if are_on_a_server() {
                // Expired keys are not copied.
                copied.values_mut().for_each(|table| table.rows.retain(|_, entry| entry.is_live(now)));
            }
            self.compare(&store, &copied, now);
            assert_eq!(answer(self.sides[side].store.backup(&copy, |_, _| true)), Err(ErrorKind::Error));
            return;
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    /// Compares the complete content of a store.
    fn compare(&self, store: &Store, state: &State, now: i64) {
        assert_eq!(store.integrity_check(), Ok(()));
        assert_eq!(store.family_names().unwrap().len() + 1, state.len());
        for (name, table) in state {
            let family = store.family(name).unwrap();
            assert_eq!(family.count(), Ok(table.rows.len() as u64));
            assert_eq!(family.count_live(), Ok(table.count_live(now)));
            assert_eq!(family.next_expiry(), Ok(table.next_expiry()));
            let ttl = (table.default_ttl_ms > 0)
                .then(|| Duration::from_millis(table.default_ttl_ms.unsigned_abs()));
            assert_eq!(family.default_ttl(), Ok(ttl));
            assert_eq!(family.tracks_writes(), Ok(table.tracks));
            for over in [Over::Keys(Range::All), Over::Expiring(Time::At(i64::MIN), Time::At(i64::MAX))] {
                self.compare_scan(Ok(table), &family, &Scan::everything(over, false), now);
            }
            for (key, entry) in table.rows.iter().filter(|(_, entry)| entry.is_live(now)).take(50) {
                let written = entry.written_ms.map(Some).ok_or(ErrorKind::Error);
                assert_eq!(answer(family.write_time(key)), written);
            }
        }
    }

    fn checkpoint(&self, side: usize, truncate: bool) {
        let mode = if truncate { CheckpointMode::Truncate } else { CheckpointMode::Passive };
        let done = answer(self.sides[side].store.checkpoint(mode)).map(drop);
        if are_on_a_server() {
            assert_eq!(done, Ok(()));
        } else if self.sides[side].transaction.is_some() {
            assert_eq!(done, Err(ErrorKind::Busy));
        } else if !truncate || self.sides.iter().all(|side| side.transaction.is_none()) {
            assert_eq!(done, Ok(()));
        } else {
            // Whether the snapshot of the other handle blocks the checkpoint depends on the WAL.
            assert!(matches!(done, Ok(()) | Err(ErrorKind::Busy)), "{done:?}");
        }
    }

    fn sync(&self, side: usize) {
        assert_eq!(answer(self.sides[side].store.sync()), Ok(()));
    }

    /// Ends all transactions and compares everything.
    pub fn finish(&mut self) {
        for side in &mut self.sides {
            if side.transaction.take().is_some() {
                assert_eq!(side.store.rollback(), Ok(()));
            }
        }
        for side in 0..self.sides.len() {
            let shown = self.committed.iter();
            let shown: State =
                shown.map(|(name, table)| (*name, self.shown(side, name, table).into_owned())).collect();
            self.compare(&self.sides[side].store, &shown, self.now(side));
            for name in FAMILIES {
                let Some(family) = self.family(side, name) else { continue };
                let backwards = Scan::everything(Over::Keys(Range::All), true);
                for op in [FamilyOp::Scan(backwards), FamilyOp::Purge, FamilyOp::Count] {
                    self.run_on_family(side, name, &family, &op);
                }
            }
            assert_eq!(self.sides[side].store.integrity_check(), Ok(()));
        }
    }
}

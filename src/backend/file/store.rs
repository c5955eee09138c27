//! How calls run on a store in a file.
//!
//! - A call begins and ends with the checks in [`Db::call`].
//! - A write runs in the open transaction, or in one of its own ([`Db::write`]). Its own transaction
//!   also removes the expired rows that reads have noted (`lazy_expiry.rs`).
//! - After a commit, frames of the WAL are copied into the database, or a checkpoint runs, when
//!   `checkpoint_schedule.rs` says so.

use std::cell::Cell;
use std::sync::Arc;

use super::connection::Db;
use super::engine::TimeIndex;
use super::error::name_the_forbidden;
use super::integrity::Found;
use super::quota::Removed;
use super::removal::{RemovalAim, RemovalList};
use super::schema::Tables;
use super::write::Contents;
use crate::backend::{Found as Lookup, Removals, StepLimits, Times, TransactionState};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::expiry::Expiry;
use crate::hint::Hint;
use crate::memory::Destination;
use crate::options::SizeLimit;

/// Mode of a write that runs in a transaction of its own: whether it is repeated when the disk is
/// full, and which checkpoints may run after its commit.
#[derive(Clone, Copy)]
pub(super) enum WriteMode {
    /// The write is repeated once after disk space was made available. A checkpoint that is due
    /// runs after the commit.
    Normal,
    /// As `Normal`, but the write can run only once, so it is not repeated when the disk is full.
    Once,
    /// As `Normal`, but after the commit a checkpoint runs only if it is overdue
    /// (`checkpoint_is_overdue`). One that is merely due is left to the next write.
    InHaste,
}

impl Db {
    /// Runs a call that reads or writes, with the checks that each call needs before and after it.
    #[inline]
    pub(crate) fn call<R>(&mut self, f: impl FnOnce(&mut Db) -> Result<R>) -> Result<R> {
        let done = self.before_call().and_then(|look_again| {
            let done = f(self);
            if look_again { self.after_reading(done) } else { done }
        });
        self.after_call(done)
    }

    /// Runs `f` and returns its result, even if the snapshot of the caller's transaction is lost,
    /// when [`call`](Db::call) would fail. Commit and rollback use this.
    pub(crate) fn call_in_any_state<R>(&mut self, f: impl FnOnce(&mut Db) -> Result<R>) -> Result<R> {
        let done = self.roll_back_remains().and_then(|()| f(self));
        self.after_call(done)
    }

    /// Prepares a call. Returns `true` if the result of the call must be passed to `after_reading`,
    /// which checks that an immutable store has not changed during the call.
    #[inline]
    fn before_call(&mut self) -> Result<bool> {
        self.roll_back_remains()?;
        self.transaction.check_snapshot()?;
        self.before_reading()
    }

    #[inline]
    fn after_call<R>(&mut self, done: Result<R>) -> Result<R> {
        #[cfg(feature = "encryption")]
        let done = done.and_then(|done| self.check_decrypted().map(|()| done));
        done.map_err(|e| self.failed(e))
    }

    /// Updates the state after a failed call. Returns the error that the caller gets.
    #[cold]
    fn failed(&mut self, why: Error) -> Error {
        #[cfg(feature = "encryption")]
        let why = self.as_lost_page(why);
        let why = name_the_forbidden(why, self.path.as_deref()).with_busy_timeout(self.busy_timeout);
        self.note_failure(&why);
        why
    }

    // ---- writes ------------------------------------------------------------------------------

    /// Runs a write in the open transaction, or in a transaction of its own.
    ///
    /// On a full disk, `f` may run twice. Before the second run, all changes of the first run are
    /// rolled back, and disk space is made available.
    #[inline]
    pub(crate) fn write<R>(&mut self, f: impl Fn(&Db) -> Result<R>) -> Result<R> {
        self.write_as(WriteMode::Normal, f)
    }

    /// Runs a write that can run only once, in the open transaction or in a transaction of its own,
    /// and returns its result. On a full disk the write fails and is not repeated.
    pub(crate) fn write_once<R>(&mut self, f: impl FnOnce(&Db) -> Result<R>) -> Result<R> {
        let f = Cell::new(Some(f));
        self.write_as(WriteMode::Once, |db| f.take().map_or_else(|| Err(never_run()), |f| f(db)))
    }

    /// Runs a write that removes keys. The second argument of `f` is the maximum number of keys:
    /// first `most`, and a quarter of the previous maximum after each run that failed because the
    /// disk is full. The next call begins with twice the number that fitted. With `in_haste`, leaves
    /// a checkpoint that is due after the commit to the next write, unless the checkpoint is
    /// overdue.
    pub(crate) fn write_removals<R>(
        &mut self,
        most: usize,
        in_haste: bool,
        f: impl Fn(&Db, usize) -> Result<R>,
    ) -> Result<R> {
        let mode = if in_haste { WriteMode::InHaste } else { WriteMode::Normal };
        let mut max = most.min(self.removals_that_fit);
        loop {
            match self.write_as(mode, |db| f(db, max)) {
                Err(e) if e.hint() == Some(Hint::FreeDiskSpace) && max > 1 => {
                    self.prepare_retry(e)?;
                    max = (max / 4).max(1);
                    self.removals_that_fit = max;
                }
                done => {
                    if done.is_ok() && self.removals_that_fit <= max {
                        self.removals_that_fit = max.saturating_mul(2);
                    }
                    return done;
                }
            }
        }
    }

    /// Runs a write in the given mode and returns its result.
    ///
    /// The result is stored in a local variable instead of being returned by `run_write`. So
    /// `run_write` is compiled once instead of once per result type.
    #[inline]
    fn write_as<R>(&mut self, mode: WriteMode, f: impl Fn(&Db) -> Result<R>) -> Result<R> {
        let given = Cell::new(None);
        self.run_write(mode, &|db| f(db).map(|r| given.set(Some(r))))?;
        given.take().ok_or_else(never_run)
    }

    fn run_write(&mut self, mode: WriteMode, f: &dyn Fn(&Db) -> Result<()>) -> Result<()> {
        self.transaction.check_write()?;
        self.expired_ranges.forget();
        let f = &|db: &Db| db.within_limit(&db.owner.clock, f);
        if self.transaction == TransactionState::Write {
            let done = self.write_or_doom(f);
            match &done {
                Ok(()) => self.count_evicted(),
                Err(e) if e.dooms_transaction() => self.doom(e),
                Err(_) => {}
            }
            return done;
        }
        match self.write_and_remove_pending(f) {
            Err(e) if e.hint() == Some(Hint::FreeDiskSpace) => {
                if matches!(mode, WriteMode::Once) {
                    self.make_disk_space_after(&e); // for the next write
                    return Err(e);
                }
                self.prepare_retry(e.clone())?;
                // If the file was opened again, its connection has not yet noted that the disk is
                // full, so this is noted once more.
                if !self.make_disk_space_after(&e) {
                    return Err(e);
                }
                self.write_and_remove_pending(f)?;
            }
            done => done?,
        }
        self.count_evicted();
        self.after_commit(matches!(mode, WriteMode::InHaste));
        Ok(())
    }

    /// Prepares the retry of a write that has failed with `why` because the disk is full: rolls
    /// back what is left of it, and opens the file again if the failure made the connection
    /// unusable. Returns `why` if that fails.
    #[cold]
    fn prepare_retry(&mut self, why: Error) -> Result<()> {
        self.note_failure(&why);
        self.before_call().map(drop).map_err(|_| why)
    }

    /// Adds the keys that the last write removed to stay within the size limit to the counters of
    /// the handle.
    #[inline]
    fn count_evicted(&self) {
        if let Some(Removed { live, expired }) = self.take_removed() {
            self.owner.counters.evicted.add(live);
            self.owner.counters.ttl_purged.add(expired);
        }
    }

    /// Begins the write transaction of the caller. First removes the expired rows that reads have
    /// noted, because the caller's transaction does not remove them.
    pub(crate) fn begin_write_call(&mut self) -> Result<()> {
        if self.has_pending_for_a_write() {
            self.remove_pending_quietly(self.owner.clock.now_ms());
        }
        self.begin_write()
    }

    /// Commits the transaction of the caller. If it was a write transaction, then does the work
    /// that follows a commit (`after_commit`).
    pub(crate) fn commit_call(&mut self) -> Result<()> {
        let wrote = self.transaction == TransactionState::Write;
        self.commit()?;
        if wrote {
            self.after_commit(false);
        }
        Ok(())
    }

    // ---- after a commit ----------------------------------------------------------------------

    /// Adds a commit to the counters of the handle and to the checkpoint schedule. Then copies
    /// frames of the WAL into the database, or runs a checkpoint, if the schedule says so. With
    /// `in_haste`, only runs a checkpoint that is overdue.
    fn after_commit(&mut self, in_haste: bool) {
        self.owner.counters.commits.add(1);
        self.note_commit();
        if in_haste {
            if self.checkpoint_is_overdue() {
                self.checkpoint_quietly(true);
            }
            return;
        }
        if self.has_to_write_back() {
            self.go_on_writing_back();
        }
        if self.checkpoint_is_due() {
            self.checkpoint_quietly(true);
        }
    }

    /// Runs a checkpoint if the WAL has reached the length at which one is due. The checkpoint does
    /// not block writers, because the cleaner calls this while other threads write.
    pub(crate) fn checkpoint_if_long(&mut self) {
        if self.wal_is_long() {
            self.checkpoint_quietly(false);
        }
    }

    /// Runs an automatic checkpoint, which may block writers if `may_keep_writers_out` is `true`.
    /// Ignores a failure of the checkpoint, because the commit before it has succeeded.
    fn checkpoint_quietly(&mut self, may_keep_writers_out: bool) {
        if self.checkpoint_by_itself(may_keep_writers_out) {
            self.owner.counters.checkpoints.add(1);
        }
    }

    /// Runs a checkpoint that truncates the database file to its last page and the WAL to zero
    /// bytes. Does nothing if a transaction is open or another connection blocks the checkpoint.
    pub(crate) fn cut_files(&mut self) {
        if self.transaction == TransactionState::None {
            let is_cut = self.cut_wal() && self.has_wal();
            self.owner.counters.checkpoints.add(u64::from(is_cut));
        }
    }

    /// Returns the clock of the handle.
    pub(crate) fn clock(&self) -> &Clock {
        &self.owner.clock
    }

    // ---- operations ------------------------------------------------------------------------------

    /// Returns access to the content of a family by this connection, with the clock of the handle.
    #[inline(always)]
    pub(crate) fn on<'c>(&'c self, tables: &'c Tables) -> Contents<'c> {
        self.contents(tables, &self.owner.clock)
    }

    /// Passes the value and the expiry time of a live key to `visit`. Returns the result of
    /// `visit`, or that the key is missing or expired. An expired row that this call finds is
    /// removed later.
    #[inline]
    pub(crate) fn get<R>(
        &mut self,
        tables: &Arc<Tables>,
        key: &[u8],
        visit: impl FnOnce(&[u8], Expiry) -> R,
    ) -> Result<Lookup<R>> {
        let found = self.on(tables).get(key, visit)?;
        Ok(self.noted(tables, key, found))
    }

    /// Copies the value of a live key to `to`. Returns its length and its expiry time, or that the
    /// key is missing or expired. An expired row that this call finds is removed later.
    pub(crate) fn copy_value(
        &mut self,
        tables: &Arc<Tables>,
        key: &[u8],
        to: &mut impl Destination,
    ) -> Result<Lookup<(usize, Expiry)>> {
        let found = self.on(tables).copy_value(key, to)?;
        Ok(self.noted(tables, key, found))
    }

    /// Returns the expiry time and the write time of a live key, or that the key is missing or
    /// expired. An expired row that this call finds is removed later.
    pub(crate) fn times(&mut self, tables: &Arc<Tables>, key: &[u8]) -> Result<Lookup<Times>> {
        let found = self.on(tables).times(key)?;
        Ok(self.noted(tables, key, found))
    }

    /// Arranges the removal of the row if a lookup has found it expired. Returns the result of the
    /// lookup.
    #[inline]
    fn noted<R>(&mut self, tables: &Arc<Tables>, key: &[u8], found: Lookup<R>) -> Lookup<R> {
        if let Lookup::Expired(expire_ms) = found {
            self.found_expired(tables, key, expire_ms);
        }
        found
    }

    /// Removes up to `max` keys that are expired at `now_ms`, of all families, earliest expiry time
    /// first, in one transaction. Returns the number of removed keys. Does nothing if a transaction
    /// is open, or if a checkpoint is due, because the removal would make the WAL even longer.
    ///
    /// This waits for no lock and runs no checkpoint, so that it does not delay the write before
    /// it. A failure is ignored.
    pub(crate) fn purge_quietly(&mut self, now_ms: i64, max: usize) -> Removals {
        let none = Removals::default();
        if self.read_only || self.transaction != TransactionState::None || self.checkpoint_is_due() {
            return none;
        }
        // Families that no read has reached yet are left to the next call.
        let Ok(due) = self.due(now_ms, max, || false) else { return none };
        if due.families.is_empty() {
            return none;
        }
        let families = &due.families;
        let aim = RemovalAim { index: TimeIndex::Expiry, families, last_ms: now_ms, now_ms };
        let limits = StepLimits { max, has_time_limit: false, in_time: &|| true, waited_for: &|| false };
        let done = self.in_own_transaction(false, |db| {
            db.remove_pending(db.clock(), now_ms)?;
            db.remove_listed(&aim, &mut RemovalList::default(), max, &limits)
        });
        let Ok((removed, _)) = done else { return none };
        self.pending.take();
        self.owner.counters.commits.add(1);
        self.note_commit();
        removed
    }

    /// Runs one step of a purge: removes keys of `families` with `expire_ms <= min(last_ms, now_ms)`,
    /// earliest expiry time first. Each family is listed with a time that is not after that of its
    /// first entry, and the families are ordered by these times.
    pub(crate) fn purge(
        &mut self,
        families: &[(i64, Arc<Tables>)],
        last_ms: i64,
        now_ms: i64,
        list: &mut RemovalList,
        limits: &StepLimits<'_>,
    ) -> Result<Removals> {
        let last_ms = last_ms.min(now_ms);
        self.remove_step(&RemovalAim { index: TimeIndex::Expiry, families, last_ms, now_ms }, list, limits)
    }

    /// Runs one step of a sweep: removes keys of a family, live or expired, that were written at
    /// `last_ms` or earlier, the oldest first.
    pub(crate) fn sweep(
        &mut self,
        tables: &Arc<Tables>,
        last_ms: i64,
        list: &mut RemovalList,
        limits: &StepLimits<'_>,
    ) -> Result<Removals> {
        let families = &[(i64::MIN, Arc::clone(tables))];
        let now_ms = self.owner.clock.now_ms();
        self.remove_step(&RemovalAim { index: TimeIndex::Written, families, last_ms, now_ms }, list, limits)
    }

    /// Sets the size limit of the store; `None` removes it. Returns the previous size limit.
    pub(crate) fn change_limit(&mut self, limit: Option<SizeLimit>) -> Result<Option<SizeLimit>> {
        self.write(|db| {
            let before = db.limit_now()?;
            db.set_limit(limit, &db.owner.clock)?;
            Ok(before)
        })
    }

    /// Removes up to `pages` free pages from the file. Returns the number of free pages before and
    /// after that.
    ///
    /// Both numbers come from one transaction: otherwise pages that other connections free in
    /// between could hide that no page was removed. No page is removed from a file without
    /// auto-vacuum, which other programs can turn off.
    pub(crate) fn vacuum_step(&mut self, pages: u64) -> Result<(u64, u64)> {
        self.write(|db| {
            let before = db.free_pages()?;
            db.incremental_vacuum(pages)?;
            Ok((before, db.free_pages()?))
        })
    }

    /// Makes all tables consistent with the data rows, in a transaction of its own. Reports losses
    /// to `tell`, and returns the number of changes.
    pub(crate) fn repair_call(&mut self, now_ms: i64, tell: &mut dyn FnMut(Found<'_>)) -> Result<u64> {
        self.expired_ranges.forget();
        let fixed = self.in_own_transaction(true, |db| db.repair(now_ms, tell))?;
        self.after_commit(false);
        Ok(fixed)
    }
}

#[cold]
fn never_run() -> Error {
    Error::failed("the write was not run")
}

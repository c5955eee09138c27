//! What a handle on a store shares with its families, iterators and batches: the connection behind its
//! lock, and how reads and writes are run on it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use crate::cleaner::Cleaner;
use crate::clock::Clock;
use crate::config::Config;
use crate::db::{Db, Transaction as State};
use crate::error::{Error, Result};
use crate::fork;
use crate::stats::Counters;

/// What a handle, its families and its iterators share.
pub(crate) struct Inner {
    db: Mutex<Option<Db>>,
    /// The thread that is inside, to tell a callback that calls back from a second thread.
    owner: AtomicUsize,
    /// Threads that wait for the connection.
    waiting: AtomicUsize,
    closed: AtomicBool,
    /// The fork generation this handle belongs to.
    generation: u32,
    /// Counts what may have changed what this handle's iterators have read ahead.
    changes: AtomicU64,
    open_families: Mutex<BTreeMap<String, usize>>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) counters: Counters,
    /// What the handle was opened with.
    pub(crate) config: Config,
    cleaner: Mutex<Option<Cleaner>>,
}

impl Inner {
    pub(crate) fn new(db: Db, config: &Config, clock: Arc<Clock>) -> Inner {
        Inner {
            db: Mutex::new(Some(db)),
            owner: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            generation: fork::generation(),
            changes: AtomicU64::new(0),
            open_families: Mutex::new(BTreeMap::new()),
            clock,
            counters: Counters::default(),
            config: config.clone(),
            cleaner: Mutex::new(None),
        }
    }

    /// Runs `f` with the connection, alone. An error counts as one.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Db) -> Result<R>) -> Result<R> {
        let done = self.with_uncounted(f);
        if done.is_err() {
            self.counters.errors.add(1);
        }
        done
    }

    pub(crate) fn with_uncounted<R>(&self, f: impl FnOnce(&mut Db) -> Result<R>) -> Result<R> {
        self.check_process()?;
        self.check_no_callback()?;
        // Counted only if there is someone to wait for.
        let locked = self.db.try_lock().or_else(|e| match e {
            TryLockError::WouldBlock => {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                let locked = self.db.lock();
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                locked
            }
            TryLockError::Poisoned(e) => Err(e),
        });
        let mut guard = locked.map_err(|_| {
            Error::Misuse(
                "the handle is unusable after an internal failure: close it and open a new one".into(),
            )
        })?;
        let Some(db) = guard.as_mut() else { return Err(closed()) };
        self.owner.store(thread_token(), Ordering::Relaxed);
        let _leave = Leave(&self.owner);
        f(db)
    }

    /// Counts a failure that was found before the connection was needed.
    pub(crate) fn count_failure<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.counters.errors.add(1);
        }
        result
    }

    /// Runs a write: in the caller's transaction, or in one of its own.
    pub(crate) fn write<R>(&self, f: impl FnOnce(&Db) -> Result<R>) -> Result<R> {
        self.with(|db| {
            if db.is_read_only() {
                return Err(read_only());
            }
            self.note_change();
            match db.transaction() {
                State::None => {
                    let done = db.in_own_transaction(true, f)?;
                    self.committed(db);
                    Ok(done)
                }
                State::Write => {
                    let done = f(db);
                    if let Err(e) = &done
                        && e.dooms_transaction()
                    {
                        db.doom(e);
                    }
                    done
                }
                State::Read => Err(Error::ReadOnly(
                    "a read transaction is open on this handle: end it, or begin a write transaction".into(),
                )),
                State::Doomed(why) => Err(why.with_message(format!(
                    "the transaction takes no more writes because one in it failed ({why}); roll it back"
                ))),
            }
        })
    }

    /// Runs a write nobody waits for or asks about, such as removing an expired row: never waits
    /// for a lock, never writes where only reading was agreed, and fails silently.
    pub(crate) fn write_if_free(&self, db: &mut Db, f: impl FnOnce(&Db) -> Result<()>) {
        if db.is_read_only() {
            return;
        }
        match db.transaction() {
            State::None => {
                if db.in_own_transaction(false, f).is_ok() {
                    self.note_change();
                    self.committed(db);
                }
            }
            State::Write => {
                self.note_change();
                if let Err(e) = f(db) {
                    db.doom(&e);
                }
            }
            State::Read | State::Doomed(_) => {}
        }
    }

    pub(crate) fn committed(&self, db: &mut Db) {
        self.counters.commits.add(1);
        if db.checkpoint_if_due() {
            self.counters.checkpoints.add(1);
        }
    }

    /// Refuses a closed handle, one from before a fork, and a callback.
    pub(crate) fn check_open(&self) -> Result<()> {
        self.check_process()?;
        self.check_no_callback()?;
        if self.is_closed() { Err(closed()) } else { Ok(()) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Grows whenever this handle may have changed data or begun or ended a transaction.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(crate) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether this store has a handle on the family.
    pub(crate) fn is_family_open(&self, name: &str) -> bool {
        self.families_open().contains_key(name)
    }

    pub(crate) fn family_opened(&self, name: &str) {
        *self.families_open().entry(name.to_owned()).or_insert(0) += 1;
    }

    pub(crate) fn family_closed(&self, name: &str) {
        let mut open = self.families_open();
        if let Some(handles) = open.get_mut(name) {
            *handles -= 1;
            if *handles == 0 {
                open.remove(name);
            }
        }
    }

    fn families_open(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, usize>> {
        self.open_families.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses a callback of this store that calls it: it would wait for itself.
    pub(crate) fn check_no_callback(&self) -> Result<()> {
        if self.owner.load(Ordering::Relaxed) == thread_token() || self.clock.is_being_asked() {
            return Err(Error::Misuse(
                "a callback called the store it was called by: use another handle in callbacks".into(),
            ));
        }
        Ok(())
    }

    fn check_process(&self) -> Result<()> {
        if self.generation == fork::generation() {
            return Ok(());
        }
        Err(Error::Misuse(fork::INHERITED.to_string_lossy().into_owned()))
    }

    /// Runs `f` while nobody uses the handle, if no transaction is open on it.
    pub(crate) fn while_idle<R>(&self, f: impl FnOnce() -> Result<R>) -> Result<Option<R>> {
        self.with_uncounted(|db| if *db.transaction() == State::None { f().map(Some) } else { Ok(None) })
    }

    /// Whether a thread waits for its turn on the handle.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// The cleaner, if one is running.
    pub(crate) fn cleaner(&self) -> std::sync::MutexGuard<'_, Option<Cleaner>> {
        self.cleaner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn close(&self) -> Result<()> {
        self.check_process()?;
        self.check_no_callback()?;
        self.closed.store(true, Ordering::SeqCst);
        // From now on no cleaner starts: a start looks at `closed` while it holds the slot's lock.
        let cleaner = self.cleaner().take();
        if let Some(cleaner) = cleaner {
            cleaner.stop();
        }
        let db = self.db.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.clock.inject(None); // nobody is inside the caller's when this returns
        db.map_or_else(|| Err(closed()), Db::close)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.check_process().is_err() {
            // The connection is the parent's: closing it here could remove the parent's WAL.
            let db = self.db.get_mut().unwrap_or_else(PoisonError::into_inner).take();
            std::mem::forget(db);
            std::mem::forget(self.cleaner().take()); // its thread is the parent's, too
        }
    }
}

/// Says that the thread has left, also when it leaves by a panic.
struct Leave<'a>(&'a AtomicUsize);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// What a write on a read-only handle answers.
pub(crate) fn read_only() -> Error {
    Error::ReadOnly("the store was opened read-only: open it without that to write".into())
}

fn closed() -> Error {
    Error::Misuse("the store is closed".into())
}

/// A number that no other living thread has.
fn thread_token() -> usize {
    thread_local!(static TOKEN: u8 = const { 0 });
    TOKEN.with(|token| std::ptr::from_ref(token).addr())
}

//! State that a store handle shares with its families, iterators and batches: the connection behind
//! its lock, and how reads and writes run on it.

mod turns;
pub(crate) mod worker;
mod write_purge;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use crate::atomic::AtomicU64;
use crate::backend::{Db, FileIdentity, OpenHandle, Tables, TransactionState, is_at};
use crate::clock::Clock;
use crate::config::{CheckpointMode, Config};
use crate::error::{Error, ErrorKind, Result};
use crate::fork;
use crate::hint::Hint;
use crate::stats::Counters;
use crate::wait;
use turns::LastTurn;
use worker::Running;

/// Time for which a checkpoint that the caller requested waits for locks of other handles, before
/// it asks these handles again to release their read snapshots.
const CHECKPOINT_SLICE: Duration = Duration::from_millis(10);

/// Maximum number of table descriptions of families ([`Tables`]) that a store handle caches, in
/// addition to those in use.
///
/// Each takes some hundred bytes, or some kilobytes with the `sql` engine.
const MAX_TABLES: usize = 1024;

/// Connection of a store handle behind its lock. The lock contains `None` if the handle is closed.
///
/// Other handles of the process refer to it with weak references, which do not keep the connection
/// open.
pub(crate) struct LockedDb {
    db: Mutex<Option<Db>>,
    /// Whether another handle has requested that this connection releases its read snapshot, while
    /// a thread was using the connection. That thread releases the snapshot when it is done.
    release_requested: AtomicBool,
}

impl OpenHandle for LockedDb {
    fn release_snapshot(&self) {
        self.release_requested.store(true, Ordering::Relaxed);
        if let Some(mut db) = self.try_enter() {
            self.release_requested.store(false, Ordering::Relaxed);
            if let Some(db) = db.as_mut() {
                db.let_reads_go();
            }
        }
    }

    #[cfg(feature = "encryption")]
    fn is_closed(&self) -> bool {
        self.try_enter().is_some_and(|db| db.is_none())
    }
}

impl LockedDb {
    /// Locks the connection if no thread uses it; otherwise returns `None`.
    ///
    /// If a callback has panicked and poisoned the lock, the poison is ignored: an unfinished
    /// operation is rolled back while the panic unwinds (see `or_undo`).
    #[inline]
    fn try_enter(&self) -> Option<MutexGuard<'_, Option<Db>>> {
        match self.db.try_lock() {
            Ok(db) => Some(db),
            Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Locks the connection, after waiting until no other thread uses it.
    fn enter(&self) -> MutexGuard<'_, Option<Db>> {
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// State that a store handle, its families, its iterators and its batches share.
pub(crate) struct Session {
    locked: Arc<LockedDb>,
    /// Token of the thread that is using the connection ([`thread_token`]); 0 if none is. It
    /// detects a callback that calls its own store.
    owner: AtomicUsize,
    /// Number of threads that wait for the lock of the connection.
    waiting: AtomicUsize,
    closed: AtomicBool,
    /// Fork generation in which this handle was opened.
    generation: u32,
    /// Change count, which increases whenever entries that an iterator of this handle has read
    /// ahead may have become out of date.
    changes: AtomicU64,
    /// Number of keys written since expired keys were last removed after a write.
    unmatched_writes: AtomicU64,
    open_families: Mutex<BTreeMap<String, usize>>,
    tables: Mutex<KnownTables>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) counters: Arc<Counters>,
    /// Configuration of the handle. The secret of the file may have changed since: see
    /// `config_now`.
    pub(crate) config: Config,
    /// Identity of the file of the store; `None` for a store in memory or on a server.
    pub(crate) file: Option<FileIdentity>,
    cleaner: Mutex<Option<Running>>,
    /// Lock that the cleaner holds while it removes keys, on a store that several connections can
    /// write at the same time. The begin of a transaction waits for this lock.
    turn: Mutex<()>,
    last_turn: Mutex<LastTurn>,
}

/// Cache of the table descriptions of the families in use, so that the names of the tables and the
/// SQL texts are not created again for each handle on a family.
#[derive(Default)]
struct KnownTables {
    of: BTreeMap<String, Arc<Tables>>,
    /// Number of descriptions that were in use when the unused ones were last removed from the
    /// cache.
    in_use: usize,
}

impl KnownTables {
    fn of(&mut self, family: &str) -> Arc<Tables> {
        if let Some(tables) = self.of.get(family) {
            return Arc::clone(tables);
        }
        if self.of.len() >= 2 * self.in_use + MAX_TABLES {
            self.of.retain(|_, tables| Arc::strong_count(tables) > 1);
            self.in_use = self.of.len();
        }
        let tables = Arc::new(Tables::of(family));
        self.of.insert(family.to_owned(), Arc::clone(&tables));
        tables
    }
}

impl Session {
    pub(crate) fn new(db: Db, config: &Config, clock: Arc<Clock>, counters: Arc<Counters>) -> Session {
        let file = db.file_identity();
        let locked =
            Arc::new(LockedDb { db: Mutex::new(Some(db)), release_requested: AtomicBool::new(false) });
        let handle: Weak<LockedDb> = Arc::downgrade(&locked);
        if let Some(db) = locked.enter().as_mut() {
            db.register(handle);
        }
        Session {
            file,
            locked,
            owner: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            generation: fork::generation(),
            changes: AtomicU64::new(0),
            unmatched_writes: AtomicU64::new(0),
            open_families: Mutex::new(BTreeMap::new()),
            tables: Mutex::default(),
            clock,
            counters,
            config: config.clone(),
            cleaner: Mutex::new(None),
            turn: Mutex::new(()),
            last_turn: Mutex::default(),
        }
    }

    /// Runs `f` with exclusive use of the connection. A failure is counted in the statistics.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Db) -> Result<R>) -> Result<R> {
        let done = self.with_uncounted(f);
        if done.is_err() {
            self.counters.errors.add(1);
        }
        done
    }

    /// Runs `f` with exclusive use of the connection, for internal work of the library, and for
    /// callers that count failures themselves. Unlike in `with`, a failure is not counted in the
    /// statistics.
    pub(crate) fn with_uncounted<R>(&self, f: impl FnOnce(&mut Db) -> Result<R>) -> Result<R> {
        self.check_process()?;
        self.check_no_callback()?;
        if self.is_closed() {
            // Checked before the lock is taken: a thread that is closing the store waits for the
            // lock, and must not wait for all steps of a long operation.
            return Err(closed());
        }
        // Declared first, so that it is dropped after the lock is released.
        let _last = LetGo(&self.locked);
        let mut guard = match self.locked.try_enter() {
            Some(guard) => guard,
            None => self.wait_to_enter()?,
        };
        let Some(db) = guard.as_mut() else { return Err(closed()) };
        self.owner.store(thread_token(), Ordering::Relaxed);
        let _leave = Leave(&self.owner);
        let done = f(db);
        if done.is_err() {
            self.note_change(); // entries read ahead may come from a transaction that was undone
        }
        // A callback may have forked. In the child the result is discarded, because the connection
        // belongs to the parent.
        self.check_process()?;
        done
    }

    /// Waits until no other thread uses the connection, and locks it. While it waits, the thread is
    /// counted in `waiting`. Fails with `Misuse` if the store has been closed meanwhile.
    #[cold]
    fn wait_to_enter(&self) -> Result<MutexGuard<'_, Option<Db>>> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let entered = self.locked.enter();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        // Several threads may wait besides the one that closes the store. If each ran its call
        // first, the close could wait for the busy timeout once per thread.
        if self.is_closed() { Err(closed()) } else { Ok(entered) }
    }

    /// Returns the current time of the store's clock, in milliseconds since the Unix epoch, for use
    /// as the start of a TTL.
    ///
    /// If the clock is that of a server and stale, the server is asked for its time first. If that
    /// fails, the clock continues from the last time that the server sent.
    pub(crate) fn now_ms(&self) -> i64 {
        if self.clock.is_stale() {
            let _ = self.with_uncounted(|db| db.note_time());
        }
        self.clock.now_ms()
    }

    /// Returns the current time of the store's clock, in milliseconds since the Unix epoch. For a
    /// store on a server, asks the server for its time first, even if the clock is not stale. An
    /// injected clock is used as it is.
    #[cold]
    pub(crate) fn told_now_ms(&self) -> i64 {
        if !self.clock.is_injected() {
            let _ = self.with_uncounted(|db| db.note_time());
        }
        self.clock.now_ms()
    }

    /// Asks the server for its time if the clock is that of a server and stale. Call this before
    /// the expiry times of entries that were read ahead are compared with the clock.
    ///
    /// # Errors
    /// The call to the server failed.
    #[inline]
    pub(crate) fn freshen_clock(&self) -> Result<()> {
        if self.clock.is_stale() { self.with(|db| db.note_time()) } else { Ok(()) }
    }

    /// Returns the configuration for another connection to this store: that of this handle, with
    /// the current secret.
    pub(crate) fn config_now(&self) -> Result<Config> {
        #[cfg(feature = "encryption")]
        return self.with_uncounted(|db| Ok(db.with_its_secret(&self.config)));
        #[cfg(not(feature = "encryption"))]
        Ok(self.config.clone())
    }

    /// Counts an error in the statistics, and returns `result` unchanged. For errors that were
    /// found outside [`with`](Session::with), which counts its own.
    pub(crate) fn count_failure<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.counters.errors.add(1);
        }
        result
    }

    /// Runs the write `f` with exclusive use of the connection. Fails with `ReadOnly` if the handle
    /// is read-only.
    #[inline]
    pub(crate) fn write<R>(&self, f: impl FnOnce(&mut Db) -> Result<R>) -> Result<R> {
        self.with(|db| {
            if self.config.read_only {
                return Err(read_only());
            }
            self.note_change();
            f(db)
        })
    }

    /// Runs a checkpoint that the caller has requested. Waits for other connections up to the busy
    /// timeout. Returns the number of frames in the WAL, and the number of those that are in the
    /// database file now.
    pub(crate) fn checkpoint(&self, mode: CheckpointMode) -> Result<(u32, u32)> {
        self.with(|db| {
            let timeout = self.config.busy_timeout;
            if self.config.read_only {
                return Err(read_only());
            }
            if *db.transaction() != TransactionState::None {
                return db.checkpoint_within(mode, timeout); // refused
            }
            if mode != CheckpointMode::Passive {
                // First copies what needs no waiting: a reader that begins when all frames are in
                // the database file does not prevent the WAL from being reset. An error is ignored,
                // because the checkpoint below would report it.
                let _ = db.checkpoint_within(CheckpointMode::Passive, timeout);
            }
            let started = Instant::now();
            let done = loop {
                if self.is_closed() {
                    return Err(closed()); // the thread that closes the store waits for this call
                }
                // Waits in slices, because other handles that read in a loop keep taking new
                // snapshots.
                let left = timeout.saturating_sub(started.elapsed());
                let tried = Instant::now();
                match db.checkpoint_within(mode, left.min(CHECKPOINT_SLICE)) {
                    Err(e) if e.kind() == ErrorKind::Busy && left > CHECKPOINT_SLICE => {
                        // SQLite does not wait for every lock: sleep for the rest of the slice.
                        if !wait::pause(CHECKPOINT_SLICE.saturating_sub(tried.elapsed())) {
                            return Err(e);
                        }
                    }
                    done => break done?,
                }
            };
            self.counters.checkpoints.add(u64::from(db.has_wal()));
            Ok(done)
        })
    }

    /// Fast test that usually replaces `check_open`. Returns `true` if the handle is open, belongs
    /// to this process, is not in use and has the system clock: then `check_open` succeeds. After
    /// `false`, it may still succeed.
    #[inline(always)]
    pub(crate) fn is_plainly_open(&self) -> bool {
        self.generation == fork::generation()
            && !self.closed.load(Ordering::Relaxed)
            && self.owner.load(Ordering::Relaxed) == 0
            && self.clock.is_the_systems()
    }

    /// Returns `true` if calls on this handle are possible: it is open, was not inherited through a
    /// fork, and the caller is no callback of this store. `check_open` checks the same, and returns
    /// an error.
    #[inline(always)]
    pub(crate) fn is_usable(&self) -> bool {
        self.is_plainly_open() || self.check_open_closely().is_ok()
    }

    /// Fails with `Io` if the file of this handle is no longer at `path`, the path by which the
    /// handle was opened.
    ///
    /// Only calls that open the file again need this check: the handle itself stays usable when the
    /// directory is renamed.
    pub(crate) fn check_path(&self, path: &Path) -> Result<()> {
        // A store in memory or on a server has no file to compare.
        if self.file.is_none_or(|file| is_at(path, file)) {
            return Ok(());
        }
        Err(Error::io(format!(
            "the store is no longer at {}: the file, or a directory in its path, was deleted, moved or \
            replaced while it was open",
            path.display()
        ))
        .with_hint(Hint::OpenAgain))
    }

    /// Fails with `Misuse` if the handle is closed or inherited through a fork, or if the caller is
    /// a callback of this store.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_plainly_open() { Ok(()) } else { self.check_open_closely() }
    }

    #[cold]
    #[inline(never)]
    fn check_open_closely(&self) -> Result<()> {
        self.check_process()?;
        self.check_no_callback()?;
        if self.is_closed() { Err(closed()) } else { Ok(()) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Returns the change count: it increases whenever this handle may have changed data, or begun
    /// or ended a transaction.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(crate) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the table names of the family `family`, from the cache if possible. The family need
    /// not exist.
    pub(crate) fn tables(&self, family: &str) -> Arc<Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).of(family)
    }

    /// Returns `true` if this store handle has an open handle on the family `name`.
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

    /// Fails with `Misuse` if the caller is a callback of a call on this store, which would wait
    /// for itself.
    #[inline]
    pub(crate) fn check_no_callback(&self) -> Result<()> {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner != 0 && owner == thread_token() || self.clock.is_being_asked() {
            return Err(
                Error::misuse("a callback called the store that called it").with_hint(Hint::UseSecondHandle)
            );
        }
        Ok(())
    }

    pub(crate) fn is_of_this_process(&self) -> bool {
        self.generation == fork::generation()
    }

    #[inline]
    fn check_process(&self) -> Result<()> {
        if self.is_of_this_process() {
            return Ok(());
        }
        Err(Error::misuse(fork::INHERITED.to_string_lossy().into_owned()))
    }

    /// Runs `f`, with which the cleaner removes some expired keys. Returns `None` without running
    /// `f` if a transaction is open on this handle.
    ///
    /// If the store has one writer at a time, calls on this handle wait until `f` has returned.
    /// Otherwise they continue during `f`, and only the [begin](Session::before_begin) of a
    /// transaction waits.
    pub(crate) fn while_idle<R>(&self, f: impl FnOnce() -> Result<R>) -> Result<Option<R>> {
        let mut f = Some(f);
        let mut run = || f.take().map(|f| f()).transpose();
        let mut beside = None;
        let done = self.with_uncounted(|db| match db.transaction() {
            TransactionState::None if db.has_one_writer() => run(),
            TransactionState::None => {
                beside = Some(self.turn.lock().unwrap_or_else(PoisonError::into_inner));
                Ok(None)
            }
            _ => Ok(None),
        })?;
        if beside.is_some() { run() } else { Ok(done) }
    }

    /// Waits, on a store that several connections can write at the same time, until the cleaner is
    /// not removing keys. Call this before a transaction begins, because a conflict with the
    /// cleaner could make the transaction fail.
    pub(crate) fn before_begin(&self, db: &Db) {
        if !db.has_one_writer() {
            drop(self.turn.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Returns `true` if a thread waits for the lock of the connection.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Locks and returns the running cleaner; `None` if there is none.
    pub(crate) fn cleaner(&self) -> std::sync::MutexGuard<'_, Option<Running>> {
        self.cleaner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn close(&self) -> Result<()> {
        self.check_process()?;
        self.check_no_callback()?;
        self.closed.store(true, Ordering::SeqCst);
        // From now on no cleaner starts: `start_cleaner` checks `closed` while `self.cleaner` is
        // locked.
        let cleaner = self.cleaner().take();
        if let Some(cleaner) = cleaner {
            cleaner.worker.stop();
        }
        let mut db = self.locked.enter().take();
        if let Some(db) = &mut db {
            self.purge_before_close(db);
            db.before_close(); // it may read the clock
        }
        if !self.clock.is_a_servers() {
            self.clock.inject(None); // no thread is inside the injected clock when this returns
        }
        db.map_or_else(|| Err(closed()), Db::close)
    }
}

impl Drop for Session {
    /// Closes the cleaner's connection, then that of this handle. If both were closed at the same
    /// time, each could leave the removal of the WAL to the other.
    fn drop(&mut self) {
        if self.check_process().is_err() {
            // The connection is the parent's: closing it here could remove the parent's WAL.
            std::mem::forget(Arc::clone(&self.locked));
            std::mem::forget(self.cleaner().take()); // its thread is the parent's, too
        } else {
            drop(self.cleaner().take());
            if let Some(mut db) = self.locked.enter().take() {
                self.purge_before_close(&mut db);
                db.before_close();
            }
        }
    }
}

/// Guard of a thread that uses the connection of a store handle. When it is dropped, also in a
/// panic, it sets `Session::owner` to 0: no thread uses the connection.
struct Leave<'a>(&'a AtomicUsize);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Guard of a thread that uses a connection. On drop, it releases the read snapshot of the
/// connection if another handle has requested that while the connection was in use.
///
/// It must be dropped after the lock of the connection is released, so that no request is missed.
struct LetGo<'a>(&'a LockedDb);

impl Drop for LetGo<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.release_requested.load(Ordering::Relaxed) {
            self.0.release_snapshot();
        }
    }
}

/// Returns the error of a write on a read-only handle.
pub(crate) fn read_only() -> Error {
    Error::read_only("the store was opened read-only, so nothing can be written")
        .with_hint(Hint::OpenForWriting)
}

fn closed() -> Error {
    Error::misuse("the store is closed")
}

/// Returns a number that is unique among the running threads.
fn thread_token() -> usize {
    thread_local!(static TOKEN: u8 = const { 0 });
    TOKEN.with(|token| std::ptr::from_ref(token).addr())
}

//! The store: one handle on one file. Opening, families, transactions, maintenance.
//!
//! What one operation does to a family's tables is in `family.rs`; SQL is in `db`.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use crate::clock::Clock;
use crate::config::{CheckpointMode, Config, check_name};
use crate::db::{DEFAULT_FAMILY, Db, Transaction as State};
use crate::error::{Error, Result};
use crate::family::Family;
use crate::inner::{Inner, read_only};
use crate::neighbours;
use crate::stats::Stats;

/// The most pages one transaction of a vacuum moves.
const VACUUM_PAGES_PER_STEP: u64 = 1000;

/// A handle on a store. It is also its own default family: `store.put(…)`.
///
/// A handle is one connection behind a lock: threads may share it and take turns; for parallel
/// reads open several, in one process or many. Families, iterators and cursors keep the connection
/// alive; after [`close`](Store::close) they answer [`Misuse`](crate::ErrorKind::Misuse).
///
/// A transaction belongs to the handle, not to a thread: while one is open, every call on this
/// handle and its families is part of it.
pub struct Store {
    inner: Arc<Inner>,
    default: Family,
}

impl Store {
    /// Opens the store at `path` with the default configuration; makes it if it is not there.
    ///
    /// # Errors
    /// As [`open_with`](Store::open_with).
    pub fn open(path: impl AsRef<Path>) -> Result<Store> {
        Store::open_with(path, &Config::default())
    }

    /// Opens the store at `path`.
    ///
    /// # Errors
    /// [`CantOpen`](crate::ErrorKind::CantOpen) if the path cannot be opened (or is missing and
    /// `config` is read-only), [`NotADatabase`](crate::ErrorKind::NotADatabase) if the file is not a
    /// store (it is left untouched), [`Busy`](crate::ErrorKind::Busy) if another handle stands in
    /// the way of making it or of changing its journal mode, and `Error` for settings out of bounds.
    pub fn open_with(path: impl AsRef<Path>, config: &Config) -> Result<Store> {
        Store::new(Some(path.as_ref()), config)
    }

    /// Opens a new store that lives in memory and is gone when its last handle is.
    ///
    /// # Errors
    /// Settings that are out of bounds.
    pub fn open_in_memory(config: &Config) -> Result<Store> {
        Store::new(None, config)
    }

    fn new(path: Option<&Path>, config: &Config) -> Result<Store> {
        Store::with_clock(path, config, Arc::default())
    }

    /// Opens a second connection to the file of a store, which uses that one's clock.
    pub(crate) fn open_beside(inner: &Inner, path: &Path, config: &Config) -> Result<Store> {
        Store::with_clock(Some(path), config, Arc::clone(&inner.clock))
    }

    fn with_clock(path: Option<&Path>, config: &Config, clock: Arc<Clock>) -> Result<Store> {
        let db = Db::open(path, config, clock.now_ms()).map_err(|e| match path {
            Some(path) => e.with_message(format!("{}: {e}", path.display())),
            None => e,
        })?;
        let inner = Arc::new(Inner::new(db, config, clock));
        neighbours::register(&inner);
        Ok(Store { default: Family::new(&inner, DEFAULT_FAMILY), inner })
    }

    /// Closes the store: rolls back an open transaction, and makes every family and iterator of
    /// this handle answer [`Misuse`](crate::ErrorKind::Misuse). Dropping the handle closes the file,
    /// too, but only after the last family and iterator, and without saying what failed.
    ///
    /// # Errors
    /// What failed while closing; the handle is closed all the same. `Misuse` if it was closed.
    pub fn close(&self) -> Result<()> {
        self.inner.close()
    }

    /// Fails if the caller is a callback that this store has called.
    #[doc(hidden)]
    pub fn check_no_callback(&self) -> Result<()> {
        self.inner.check_no_callback()
    }

    // ---- families ----------------------------------------------------------------------------

    pub(crate) fn shared(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// A family by a name from the catalogue, for work inside the library.
    pub(crate) fn unregistered_family(&self, name: &str) -> Family {
        Family::unregistered_of(&self.inner, name)
    }

    /// The family that is always there, and that the data methods of the store itself use.
    #[must_use]
    pub fn default_family(&self) -> &Family {
        &self.default
    }

    /// Makes a family. Names are 1 to 255 bytes, and case matters.
    ///
    /// # Errors
    /// `Error` if it exists, or if the name is too long, has a NUL or is reserved (`__…`,
    /// `_snkv_…`, `kvstore…`).
    pub fn create_family(&self, name: &str) -> Result<Family> {
        self.inner.count_failure(check_name(name))?;
        let family = Family::new(&self.inner, name);
        let now = self.inner.clock.now_ms();
        match self.inner.write(|db| db.create_family(family.tables(), now))? {
            true => Ok(family),
            false => self.inner.count_failure(Err(Error::Invalid(format!(
                "family \"{name}\" exists already: open it instead"
            )))),
        }
    }

    /// Opens a family.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if there is none of that name; `Error` for a bad name.
    pub fn family(&self, name: &str) -> Result<Family> {
        self.inner.count_failure(check_name(name))?;
        let family = Family::new(&self.inner, name);
        match self.inner.with(|db| db.family_exists(name))? {
            true => Ok(family),
            false => Err(no_family(name)),
        }
    }

    /// Opens a family, making it if it is not there.
    ///
    /// # Errors
    /// `Error` for a bad name.
    pub fn family_or_create(&self, name: &str) -> Result<Family> {
        self.inner.count_failure(check_name(name))?;
        let family = Family::new(&self.inner, name);
        if !self.inner.with(|db| db.family_exists(name))? {
            let now = self.inner.clock.now_ms();
            self.inner.write(|db| db.create_family(family.tables(), now))?;
        }
        Ok(family)
    }

    /// Drops a family with everything in it.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if there is none, [`Busy`](crate::ErrorKind::Busy)
    /// while this store has a handle to it, `Error` for the default family and for bad names.
    pub fn drop_family(&self, name: &str) -> Result<()> {
        self.inner.count_failure(check_name(name))?;
        if name == DEFAULT_FAMILY {
            return self.inner.count_failure(Err(Error::Invalid(
                "the default family cannot be dropped: clear it instead".into(),
            )));
        }
        let tables = crate::db::Tables::of(name);
        let dropped = self.inner.write(|db| {
            if self.inner.is_family_open(name) {
                // Not an error of SQLite's, so it does not doom the caller's transaction.
                return Ok(None);
            }
            db.drop_family(&tables).map(Some)
        })?;
        match dropped {
            Some(true) => Ok(()),
            Some(false) => Err(Error::NotFound(format!("there is no family \"{name}\""))),
            None => self.inner.count_failure(Err(Error::Busy(format!(
                "family \"{name}\" is in use: close its handles on this store, then drop it"
            )))),
        }
    }

    /// The names of all families but the default one, in byte order.
    ///
    /// # Errors
    /// Failures to read.
    pub fn families(&self) -> Result<Vec<String>> {
        let mut names = self.inner.with(|db| db.families())?;
        names.retain(|name| name != DEFAULT_FAMILY);
        Ok(names)
    }

    // ---- transactions ------------------------------------------------------------------------

    /// Runs `f` in a write transaction: commits if it returns `Ok`, rolls back if it returns `Err`
    /// or panics.
    ///
    /// ```
    /// # let store = kvstore::Store::open_in_memory(&kvstore::Config::new())?;
    /// store.transaction(|tx| {
    ///     tx.put("from", "90")?;
    ///     tx.put("to", "110")
    /// })?;
    /// # Ok::<(), kvstore::Error>(())
    /// ```
    ///
    /// # Errors
    /// What `f` returns; [`Busy`](crate::ErrorKind::Busy) if another handle is writing; what the
    /// commit reports, after which nothing of the transaction has happened.
    pub fn transaction<R, E: From<Error>>(
        &self,
        f: impl FnOnce(&Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.run_transaction(true, f)
    }

    /// Runs `f` in a read transaction: all its reads see the state of one moment.
    ///
    /// # Errors
    /// What `f` returns, and failures to read.
    pub fn snapshot<R, E: From<Error>>(
        &self,
        f: impl FnOnce(&Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.run_transaction(false, f)
    }

    fn run_transaction<R, E: From<Error>>(
        &self,
        write: bool,
        f: impl FnOnce(&Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.begin(write)?;
        let transaction = Transaction { store: self, open: true };
        let done = f(&transaction)?;
        transaction.commit()?;
        Ok(done)
    }

    /// Begins a transaction that [`commit`](Store::commit) or [`rollback`](Store::rollback) ends:
    /// a writing one, or a stable snapshot. Prefer [`transaction`](Store::transaction).
    ///
    /// After a call in it that failed for memory, a full disk, or because the file could not be read, SQLite may
    /// have ended it: then writes in it, and reads in a snapshot, repeat that failure until it is rolled back.
    ///
    /// # Errors
    /// `Error` if one is open already (it goes on); [`Busy`](crate::ErrorKind::Busy) if another
    /// handle is writing; [`ReadOnly`](crate::ErrorKind::ReadOnly) for a write on a read-only store.
    pub fn begin(&self, write: bool) -> Result<()> {
        self.inner.with(|db| {
            if *db.transaction() != State::None {
                return Err(Error::Invalid(
                    "a transaction is already open on this handle: commit or roll back first".into(),
                ));
            }
            if write && db.is_read_only() {
                return Err(read_only());
            }
            self.inner.note_change();
            if write { db.begin_write() } else { db.begin_read() }
        })
    }

    /// Commits the open transaction.
    ///
    /// # Errors
    /// `Error` if none is open. After [`Busy`](crate::ErrorKind::Busy) (only in DELETE journal mode)
    /// the transaction is still open and commit may be tried again; after any other failure it can
    /// only be rolled back.
    pub fn commit(&self) -> Result<()> {
        self.inner.count_failure(self.inner.alone(|db| {
            let wrote = *db.transaction() == State::Write;
            db.commit()?;
            self.inner.note_change();
            if wrote {
                self.inner.committed(db);
            }
            Ok(())
        }))
    }

    /// Rolls the open transaction back.
    ///
    /// # Errors
    /// `Error` if none is open.
    pub fn rollback(&self) -> Result<()> {
        self.inner.count_failure(self.inner.alone(|db| {
            self.inner.note_change();
            db.rollback()
        }))
    }

    // ---- maintenance -------------------------------------------------------------------------

    /// What this handle has done.
    ///
    /// # Errors
    /// Failures to read the file's size.
    pub fn stats(&self) -> Result<Stats> {
        let (pages, frames) = self.inner.with(|db| Ok((db.page_count()?, db.wal_frames())))?;
        Ok(self.inner.counters.read(pages, u64::from(frames)))
    }

    /// Sets the counters to zero.
    ///
    /// # Errors
    /// Only those of a closed handle.
    pub fn reset_stats(&self) -> Result<()> {
        self.inner.with(|_| Ok(()))?;
        self.inner.counters.reset();
        Ok(())
    }

    /// Checks the whole file: SQLite's own check, then that all tables of all families agree. Reads
    /// everything; on one snapshot, without blocking writers (in WAL mode).
    ///
    /// # Errors
    /// [`Corrupt`](crate::ErrorKind::Corrupt), naming the first disagreement.
    pub fn integrity_check(&self) -> Result<()> {
        self.inner.with(|db| db.integrity_check())
    }

    /// Makes every commit so far survive a power cut. Commits no open transaction.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io); with [`SyncLevel::Off`](crate::SyncLevel::Off) also
    /// [`Busy`](crate::ErrorKind::Busy) while a transaction is open or another handle writes.
    pub fn sync(&self) -> Result<()> {
        self.inner.with(Db::sync)
    }

    /// Writes the WAL into the database file. Returns the frames in the WAL and how many of them are
    /// now in the file: `(0, 0)` when not in WAL mode.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) while a transaction is open on this handle, or if others
    /// stand in the way of what `mode` promises.
    pub fn checkpoint(&self, mode: CheckpointMode) -> Result<(u32, u32)> {
        self.inner.checkpoint(mode)
    }

    /// Checkpoints the WAL if it is long, whatever the configuration says about when. What cannot be done
    /// now is done later.
    pub(crate) fn checkpoint_if_grown(&self) {
        // On a closed handle there is nothing to do.
        let _ = self.inner.with_uncounted(|db| {
            self.inner.checkpoint_if_grown(db);
            Ok(())
        });
    }

    /// Gives free pages back to the file system: at most `pages`, or all. In transactions of at most 1000
    /// pages, so that the WAL stays short, or in the open one. In WAL mode the file shrinks at the next
    /// checkpoint.
    ///
    /// # Errors
    /// As for a write.
    pub fn incremental_vacuum(&self, pages: Option<u32>) -> Result<()> {
        let mut left = pages.map_or(u64::MAX, u64::from);
        if left == 0 {
            return self.inner.with(|_| Ok(()));
        }
        loop {
            let step = left.min(VACUUM_PAGES_PER_STEP);
            // In one transaction, so that what others free meanwhile does not hide that nothing was given back:
            // as in a file without auto-vacuum, which other programs can make of a store.
            let (before, after) = self.inner.write(|db| {
                let before = db.free_pages()?;
                db.incremental_vacuum(step)?;
                Ok((before, db.free_pages()?))
            })?;
            left -= step;
            if left == 0 || after == 0 || after >= before {
                return Ok(());
            }
        }
    }

    /// Uses `now_ms` instead of the system's clock, for this handle: milliseconds since the Unix
    /// epoch. It must not call this store. A value less than an earlier one counts as the earlier. Waits
    /// for threads that are inside the clock that is replaced; does nothing if called by that clock.
    pub fn set_clock(&self, now_ms: impl Fn() -> i64 + Send + Sync + 'static) {
        self.inner.clock.inject(Some(Arc::new(now_ms)));
    }

    /// Goes back to the system's clock.
    pub fn use_system_clock(&self) {
        self.inner.clock.inject(None);
    }
}

fn no_family(name: &str) -> Error {
    Error::NotFound(format!("there is no family \"{name}\": create it first"))
}

/// A store is its own default family.
impl Deref for Store {
    type Target = Family;

    fn deref(&self) -> &Family {
        &self.default
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("closed", &self.inner.is_closed()).finish_non_exhaustive()
    }
}

/// The open transaction of [`Store::transaction`] or [`Store::snapshot`]: the store itself, seen
/// from inside. Families opened before the transaction take part in it, too.
pub struct Transaction<'s> {
    store: &'s Store,
    open: bool,
}

impl Transaction<'_> {
    fn commit(mut self) -> Result<()> {
        self.store.commit()?; // on failure dropping self rolls back
        self.open = false;
        Ok(())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.open {
            // It may have been ended by hand inside; then there is nothing to roll back.
            let _ = self.store.inner.alone(|db| {
                self.store.inner.note_change();
                db.rollback()
            });
        }
    }
}

impl Deref for Transaction<'_> {
    type Target = Store;

    fn deref(&self) -> &Store {
        self.store
    }
}

//! The store: one handle on one file. Opening, families, transactions, maintenance.
//!
//! What one operation does to a family's tables is in `family`; SQL is in `db`.

mod backup;
mod batch;
mod check;
mod cleaner;
mod copy;
mod encryption;
mod info;
mod limit;
mod new_file;
mod purge;
mod transactions;

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use crate::clock::Clock;
use crate::config::{CheckpointMode, Config, check_name};
use crate::db::{DEFAULT_FAMILY, Db, Disagreement, TransactionState, gone};
use crate::error::{Error, Result};
use crate::family::Family;
use crate::shared::neighbours;
use crate::shared::{Shared, Stats, read_only};
pub use batch::WriteBatch;
pub use check::{CheckEvent, CheckReport, RepairEvent};
pub use copy::CopyReport;
pub(crate) use new_file::NewFile;
pub use transactions::Transaction;

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
    shared: Arc<Shared>,
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
    /// the way of making it or of changing its journal mode, or others write without a pause in DELETE mode,
    /// [`ReadOnly`](crate::ErrorKind::ReadOnly) if the file, or its `-wal` or `-shm`, may not be written, and `Error`
    /// for settings out of bounds.
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

    /// Opens a second connection to the file of a store, which uses that one's clock; on a server, one of its own: by an answer
    /// on another connection, which may be an older one, this one's clock would be set back.
    pub(crate) fn open_beside(shared: &Shared, path: &Path, config: &Config) -> Result<Store> {
        shared.check_path(path)?; // an open would make another store there
        let clock = if shared.clock.is_a_servers() { Arc::default() } else { Arc::clone(&shared.clock) };
        let beside = Store::with_clock(Some(path), config, clock)?;
        // The file that has the name now may be another one.
        if beside.shared.file == shared.file { Ok(beside) } else { Err(gone()) }
    }

    fn with_clock(path: Option<&Path>, config: &Config, clock: Arc<Clock>) -> Result<Store> {
        let db = Db::open(path, config, &clock)?;
        let shared = Arc::new(Shared::new(db, config, clock));
        neighbours::register(&shared);
        Ok(Store { default: Family::new(&shared, DEFAULT_FAMILY), shared })
    }

    /// Closes the store: rolls back an open transaction, and makes every family and iterator of
    /// this handle answer [`Misuse`](crate::ErrorKind::Misuse). Dropping the handle closes the file,
    /// too, but only after the last family and iterator, and without saying what failed.
    ///
    /// # Errors
    /// What failed while closing; the handle is closed all the same. `Misuse` if it was closed.
    pub fn close(&self) -> Result<()> {
        self.shared.close()
    }

    /// Fails if the caller is a callback that this store has called.
    pub(crate) fn check_no_callback(&self) -> Result<()> {
        self.shared.check_no_callback()
    }

    // ---- families ----------------------------------------------------------------------------

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// A family by a name from the catalogue, for work inside the library.
    pub(crate) fn unregistered_family(&self, name: &str) -> Family {
        Family::unregistered_of(&self.shared, name)
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
        self.shared.count_failure(check_name(name))?;
        let family = Family::new(&self.shared, name);
        let now = self.shared.clock.now_ms();
        match self.shared.write(|db| db.create_family(family.tables(), now))? {
            true => Ok(family),
            false => self.shared.count_failure(Err(Error::invalid(format!(
                "family \"{name}\" exists already: open it instead"
            )))),
        }
    }

    /// Opens a family.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if there is none of that name; `Error` for a bad name.
    pub fn family(&self, name: &str) -> Result<Family> {
        self.shared.count_failure(check_name(name))?;
        let family = Family::new(&self.shared, name);
        match self.shared.with(|db| db.view().family_exists(name))? {
            true => Ok(family),
            false => Err(no_family(name)),
        }
    }

    /// Opens a family, making it if it is not there.
    ///
    /// # Errors
    /// `Error` for a bad name.
    pub fn get_or_create_family(&self, name: &str) -> Result<Family> {
        self.shared.count_failure(check_name(name))?;
        let family = Family::new(&self.shared, name);
        if !self.shared.with(|db| db.view().family_exists(name))? {
            let now = self.shared.clock.now_ms();
            self.shared.write(|db| db.create_family(family.tables(), now))?;
        }
        Ok(family)
    }

    /// Drops a family with everything in it.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if there is none, [`Busy`](crate::ErrorKind::Busy)
    /// while this store has a handle to it, `Error` for the default family and for bad names.
    pub fn drop_family(&self, name: &str) -> Result<()> {
        self.shared.count_failure(check_name(name))?;
        if name == DEFAULT_FAMILY {
            return self.shared.count_failure(Err(Error::invalid(
                "the default family cannot be dropped: clear it instead",
            )));
        }
        let tables = crate::db::Tables::of(name);
        let dropped = self.shared.write(|db| {
            if self.shared.is_family_open(name) {
                // Not an error of SQLite's, so it does not doom the caller's transaction.
                return Ok(None);
            }
            db.drop_family(&tables).map(Some)
        })?;
        match dropped {
            Some(true) => Ok(()),
            Some(false) => Err(Error::not_found(format!("there is no family \"{name}\""))),
            None => self.shared.count_failure(Err(Error::busy(format!(
                "family \"{name}\" is in use: close its handles on this store, then drop it"
            )))),
        }
    }

    /// The names of all families but the default one, in byte order.
    ///
    /// # Errors
    /// Failures to read.
    pub fn family_names(&self) -> Result<Vec<String>> {
        let mut names = self.shared.with(|db| db.view().families())?;
        names.retain(|name| name != DEFAULT_FAMILY);
        Ok(names)
    }

    // ---- maintenance -------------------------------------------------------------------------

    /// What this handle has done.
    ///
    /// # Errors
    /// Failures to read the file's size.
    pub fn stats(&self) -> Result<Stats> {
        let (pages, used, frames) =
            self.shared.with(|db| Ok((db.page_count()?, db.used_bytes()?, db.wal_frames())))?;
        Ok(self.shared.counters.read(pages, u64::from(frames), used))
    }

    /// A counter that each commit which changes the file advances by one, whoever makes it. Only the difference of two looks
    /// through one handle means something; it wraps. `None` where nobody counts: not in WAL mode, with a file for
    /// this handle alone, or one that nobody can write.
    ///
    /// # Errors
    /// Only those of a closed handle.
    pub fn commit_counter(&self) -> Result<Option<u32>> {
        self.shared.with(|db| Ok(db.commit_counter()))
    }

    /// Sets the counters to zero.
    ///
    /// # Errors
    /// Only those of a closed handle.
    pub fn reset_stats(&self) -> Result<()> {
        self.shared.with(|_| Ok(()))?;
        self.shared.counters.reset();
        Ok(())
    }

    /// Checks the whole file: SQLite's own check, then that all tables of all families are as they are made, and agree.
    /// Reads everything; on one snapshot, without blocking writers (in WAL mode).
    ///
    /// # Errors
    /// [`Corrupt`](crate::ErrorKind::Corrupt), naming the first disagreement.
    pub fn integrity_check(&self) -> Result<()> {
        self.shared.with(|db| db.integrity_check())
    }

    /// Makes the key index, the expiry index, the index of write times, the large values, the views and the
    /// catalogue agree with the data rows again, in one transaction; returns how many rows, entries and tables
    /// were added, removed or changed. Afterwards [`integrity_check`](Store::integrity_check) finds nothing.
    ///
    /// Every row that could be read is kept, with the value and the end of life it had. A row that could not be
    /// read is made whole if something in the file still says what it was; a row whose value is lost, or of which
    /// nobody knows how long it may be shown, is removed: no value is invented. So is one whose key is longer than
    /// [`MAX_KEY_SIZE`](crate::MAX_KEY_SIZE), which no call takes. Families that the catalogue has lost are entered
    /// again, without their default TTL, and settings in it that cannot be get their defaults. Tables in the way that
    /// are not as the store makes them, and have something in them, get a name that begins with `lost:`.
    ///
    /// A store whose catalogue of families is gone, or has no `default`, is opened by
    /// [`Config::allow_damaged`](crate::Config::allow_damaged) only.
    ///
    /// Reads everything, which takes about twice as long as the check; on a store without damage it writes
    /// nothing. Others can read meanwhile, but not write.
    ///
    /// # Errors
    /// [`Corrupt`](crate::ErrorKind::Corrupt) where SQLite's own check fails, or something is left that a repair
    /// does not know; [`Busy`](crate::ErrorKind::Busy) while a transaction is open on this handle, or another
    /// handle is writing; otherwise as for a write. Nothing is changed then.
    pub fn repair(&self) -> Result<u64> {
        self.repair_with(|_| {})
    }

    /// The same, and tells of what could not be kept as it was: each row that is removed, each table that gets another
    /// name, each setting that is lost. It is told before the commit: if the call fails, nothing of it has happened.
    /// `report` may not call this store.
    ///
    /// # Errors
    /// As [`repair`](Store::repair).
    pub fn repair_with(&self, mut report: impl FnMut(RepairEvent<'_>)) -> Result<u64> {
        let now_ms = self.shared.clock.now_ms();
        self.shared.with(|db| {
            if db.is_read_only() {
                return Err(read_only());
            }
            if *db.transaction() != TransactionState::None {
                return Err(Error::busy(
                    "a transaction is open on this handle: commit or roll back, then repair",
                ));
            }
            self.shared.note_change();
            let mut tell =
                |found: Disagreement<'_>| report(RepairEvent { message: found.text, key: found.key });
            let fixed = db.in_own_transaction(true, |db| db.repair(now_ms, &mut tell))?;
            self.shared.committed(db);
            Ok(fixed)
        })
    }

    /// Makes every commit so far survive a power cut. Commits no open transaction.
    ///
    /// It syncs the files that are open, wherever they are by now.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io), also if the store's directory may not be read: it has to be synced, too.
    pub fn sync(&self) -> Result<()> {
        self.shared.with(Db::sync)
    }

    /// Writes the WAL into the database file. Returns the frames in the WAL and how many of them are
    /// now in the file: `(0, 0)` when not in WAL mode.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) while a transaction is open on this handle, or if others
    /// stand in the way of what `mode` promises.
    pub fn checkpoint(&self, mode: CheckpointMode) -> Result<(u32, u32)> {
        self.shared.checkpoint(mode)
    }

    /// Checkpoints the WAL if it is long, whatever the configuration says about when. What cannot be done
    /// now is done later.
    pub(crate) fn checkpoint_if_grown(&self) {
        // On a closed handle there is nothing to do.
        let _ = self.shared.with_uncounted(|db| {
            self.shared.checkpoint_if_grown(db);
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
            return self.shared.with(|_| Ok(()));
        }
        loop {
            let step = left.min(VACUUM_PAGES_PER_STEP);
            // In one transaction, so that what others free meanwhile does not hide that nothing was given back:
            // as in a file without auto-vacuum, which other programs can make of a store.
            let (before, after) = self.shared.write(|db| {
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
    /// epoch. Does nothing for a store on a server, whose clock all clients share. It must not call this store. A value
    /// less than an earlier one counts as the earlier. Waits for threads that are inside the clock that is replaced; does
    /// nothing if called by that clock.
    pub fn set_clock(&self, now_ms: impl Fn() -> i64 + Send + Sync + 'static) {
        if self.check_own_clock().is_ok() {
            self.shared.clock.inject(Some(Arc::new(now_ms)));
        }
    }

    /// The time by this store's clock: the system's, or the one that was given to it. On a server it is the server's, as
    /// its newest answer had it, and gone on since then with this machine's monotonic clock; the server is asked if that is more
    /// than a minute ago, or the machine was suspended since.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        self.shared.now_ms()
    }

    /// Goes back to the system's clock.
    pub fn use_system_clock(&self) {
        if self.check_own_clock().is_ok() {
            self.shared.clock.inject(None);
        }
    }

    /// What this handle takes for the server's time between two answers: for tests, which turn the server's clock, too.
    #[cfg(feature = "remote")]
    pub(crate) fn simulate_server_clock(&self, now_ms: impl Fn() -> i64 + Send + Sync + 'static) {
        self.shared.clock.inject(Some(Arc::new(now_ms)));
    }

    /// Fails if the time of this store is told by a server.
    pub(crate) fn check_own_clock(&self) -> Result<()> {
        if !self.shared.clock.is_a_servers() {
            return Ok(());
        }
        Err(Error::invalid(
            "the store is on a server, whose clock decides for all clients: it cannot be replaced",
        ))
    }
}

fn no_family(name: &str) -> Error {
    Error::not_found(format!("there is no family \"{name}\": create it first"))
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
        f.debug_struct("Store").field("closed", &self.shared.is_closed()).finish_non_exhaustive()
    }
}

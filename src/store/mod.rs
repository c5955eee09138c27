//! Handle on a store: opening, families, maintenance and clock.
//!
//! Operations on the keys of one family are in `family`; SQL is in `backend`.

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

use crate::backend::{DEFAULT_FAMILY, Db, Disagreement, TransactionState, moved_away};
use crate::clock::Clock;
use crate::config::{CheckpointMode, Config, check_name};
use crate::error::{Error, ErrorKind, Result};
use crate::family::Family;
use crate::hint::Hint;
use crate::session::Session;
use crate::stats::Stats;
pub use batch::WriteBatch;
pub use check::{CheckEvent, CheckReport, RepairEvent};
pub use copy::CopyReport;
pub(crate) use new_file::NewFile;
pub use transactions::Transaction;

/// Maximum number of free pages that one transaction of [`Store::incremental_vacuum`] returns to
/// the file system.
const VACUUM_PAGES_PER_STEP: u64 = 1000;

/// Handle on a store. Its methods also work on the default family.
///
/// It dereferences to its default [family](crate#families), so `store.put(…)` writes to that
/// family.
///
/// A handle is one connection behind a lock. Threads can share it; their calls run one after
/// another. For parallel reads open several handles, in one process or in several.
///
/// A transaction belongs to the handle, not to a thread: while one is open, every call on the
/// handle and its families is part of it.
///
/// Dropping the handle closes the file as soon as the last family, iterator and batch of the handle
/// is dropped too; failures are ignored then. [`close`](Store::close) closes it at once.
pub struct Store {
    session: Arc<Session>,
    default: Family,
}

impl Store {
    /// Opens the store at `path` with the default configuration, and creates it if it does not
    /// exist.
    ///
    /// # Errors
    /// As [`open_with`](Store::open_with).
    pub fn open(path: impl AsRef<Path>) -> Result<Store> {
        Store::open_with(path, &Config::default())
    }

    /// Opens the store at `path`, and creates it if it does not exist.
    ///
    /// In builds with the feature `remote`, `path` can be a URL such as
    /// `postgresql://user:password@host/database?schema=app`.
    ///
    /// If the file of an open store is deleted, moved or replaced, calls on its handles fail with
    /// [`Io`](crate::ErrorKind::Io). Renaming the directory is allowed in WAL mode, but
    /// [`backup`](Store::backup) and [`start_cleaner`](Store::start_cleaner) need the original
    /// path.
    ///
    /// # Errors
    /// A failed open leaves no new file behind, except an empty store if the failure comes after
    /// its creation.
    ///
    /// For a file:
    /// - [`Error`](crate::ErrorKind::Error): a setting of `config` is out of bounds; or `path`
    ///   begins with another scheme, such as `file:` or `redis://`.
    /// - [`CantOpen`](crate::ErrorKind::CantOpen): the directory does not exist; no permission; the
    ///   path is a directory or special file; the file is missing or empty and `config` is
    ///   read-only; the file format is newer; or the file has several hard links.
    /// - [`NotADatabase`](crate::ErrorKind::NotADatabase): the file is not a store. It is left
    ///   unchanged.
    /// - [`AuthFailed`](crate::ErrorKind::AuthFailed): the store is encrypted and the secret is
    ///   missing or wrong, or the file consists of random bytes. It is left unchanged.
    /// - [`Busy`](crate::ErrorKind::Busy): another handle has the store open exclusively or in the
    ///   other journal mode, or other handles write without a pause in DELETE mode.
    /// - [`ReadOnly`](crate::ErrorKind::ReadOnly): this process may not write the file, its `-wal`
    ///   or its `-shm`.
    /// - `Corrupt`, `Io`, `Full`, `NoMemory`, `Protocol`.
    ///
    /// For a URL:
    /// - [`Error`](crate::ErrorKind::Error): the URL is malformed, or a setting is out of bounds.
    /// - [`CantOpen`](crate::ErrorKind::CantOpen): this build does not support servers; no server
    ///   answers; the database does not exist; TLS is required and not available; the role may not
    ///   use or create the schema; or the store has a newer version.
    /// - [`AuthFailed`](crate::ErrorKind::AuthFailed): the server refused the login.
    /// - [`Busy`](crate::ErrorKind::Busy): the server accepts no connection now.
    /// - [`ReadOnly`](crate::ErrorKind::ReadOnly): none of the servers accepts writes now.
    /// - [`NotADatabase`](crate::ErrorKind::NotADatabase): the schema is not a store.
    pub fn open_with(path: impl AsRef<Path>, config: &Config) -> Result<Store> {
        Store::new(Some(path.as_ref()), config)
    }

    /// Opens a new store in memory. It is discarded when the handle is closed.
    ///
    /// # Errors
    /// [`Error`](crate::ErrorKind::Error) if a setting of `config` is out of bounds;
    /// [`NoMemory`](crate::ErrorKind::NoMemory).
    pub fn open_in_memory(config: &Config) -> Result<Store> {
        Store::new(None, config)
    }

    fn new(path: Option<&Path>, config: &Config) -> Result<Store> {
        Store::with_clock(path, config, Arc::default())
    }

    /// Opens another connection to the store that the handle `session` has open. `path` is the path
    /// or URL of that store.
    ///
    /// The connection shares the clock of that handle. On a server it has a clock of its own: a
    /// late answer on one connection would set a shared clock back.
    pub(crate) fn open_beside(session: &Session, path: &Path, config: &Config) -> Result<Store> {
        session.check_path(path)?; // otherwise the open would create another store there
        let clock = if session.clock.is_a_servers() { Arc::default() } else { Arc::clone(&session.clock) };
        let open = |config: &Config| Store::with_clock(Some(path), config, Arc::clone(&clock));
        let beside = match open(config) {
            // A read-only open cannot roll back the transaction of a killed process; a normal open
            // does.
            Err(e)
                if (e.kind(), e.hint()) == (ErrorKind::ReadOnly, Some(Hint::OpenForWriting))
                    && !session.config.read_only =>
            {
                open(&config.clone().read_only(false))?.close()?;
                open(config)?
            }
            opened => opened?,
        };
        // Another file may have replaced the one at the path.
        if beside.session.file == session.file { Ok(beside) } else { Err(moved_away()) }
    }

    fn with_clock(path: Option<&Path>, config: &Config, clock: Arc<Clock>) -> Result<Store> {
        let counters = Arc::default();
        let db = Db::open(path, config, &clock, &counters)?;
        let session = Arc::new(Session::new(db, config, clock, counters));
        Ok(Store { default: Family::new(&session, DEFAULT_FAMILY), session })
    }

    /// Closes the store: rolls back an open transaction and closes the file.
    ///
    /// Afterwards every call on the handle, its families, iterators and batches fails with
    /// [`Misuse`](crate::ErrorKind::Misuse). The call stops the cleaner, and waits for a call of
    /// another thread that is using the connection. A purge, sweep, vacuum, checkpoint or backup of
    /// another thread stops at its next step.
    ///
    /// # Errors
    /// - [`Misuse`](crate::ErrorKind::Misuse): the handle is closed already, was opened before a
    ///   fork, or the caller is a callback of this store. In the last case the store stays open.
    /// - Another error, such as `Io`, if the close of the file failed. The handle is closed
    ///   nevertheless.
    pub fn close(&self) -> Result<()> {
        self.session.close()
    }

    /// Fails with `Misuse` if the caller is a callback of this store.
    pub(crate) fn check_no_callback(&self) -> Result<()> {
        self.session.check_no_callback()
    }

    // ---- families ----------------------------------------------------------------------------

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Returns a handle on the family `name` for internal use, without checking whether the family
    /// exists. It does not count as an open handle: the family can be dropped while this handle
    /// exists.
    pub(crate) fn unregistered_family(&self, name: &str) -> Family {
        Family::unregistered_of(&self.session, name)
    }

    /// Returns the default family, which every store has.
    ///
    /// The methods of [`Family`] can also be called on the store, and then use this family.
    #[must_use]
    pub fn default_family(&self) -> &Family {
        &self.default
    }

    /// Creates a family.
    ///
    /// A name has 1 to 255 bytes of UTF-8 without NUL, is case-sensitive, and must not begin with
    /// `__`, `_snkv_` or `kvstore`.
    ///
    /// # Errors
    /// [`Error`](crate::ErrorKind::Error) if the family exists or the name is invalid; otherwise a
    /// [write error](crate#errors).
    pub fn create_family(&self, name: &str) -> Result<Family> {
        self.session.count_failure(check_name(name))?;
        let family = Family::new(&self.session, name);
        let now = self.session.clock.now_ms();
        match self.session.write(|db| db.create_family(family.tables(), now))? {
            true => Ok(family),
            false => {
                self.session
                    .count_failure(Err(Error::invalid(format!("family \"{name}\" already exists"))
                        .with_hint(Hint::OpenFamily)))
            }
        }
    }

    /// Opens an existing family.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if there is no family of that name;
    /// [`Error`](crate::ErrorKind::Error) if the name is invalid; otherwise a [read
    /// error](crate#errors).
    pub fn family(&self, name: &str) -> Result<Family> {
        self.session.count_failure(check_name(name))?;
        let family = Family::new(&self.session, name);
        match self.session.with(|db| db.family_exists(name))? {
            true => Ok(family),
            false => Err(no_family(name)),
        }
    }

    /// Opens a family; creates it first if it does not exist.
    ///
    /// # Errors
    /// [`Error`](crate::ErrorKind::Error) if the name is invalid; otherwise a [write
    /// error](crate#errors) if the family has to be created, or a [read error](crate#errors).
    pub fn get_or_create_family(&self, name: &str) -> Result<Family> {
        self.session.count_failure(check_name(name))?;
        let family = Family::new(&self.session, name);
        if !self.session.with(|db| db.family_exists(name))? {
            let now = self.session.clock.now_ms();
            self.session.write(|db| db.create_family(family.tables(), now))?;
        }
        Ok(family)
    }

    /// Drops a family with all its keys.
    ///
    /// # Errors
    /// - [`NotFound`](crate::ErrorKind::NotFound): there is no family of that name.
    /// - [`Busy`](crate::ErrorKind::Busy): this store handle has an open handle on the family.
    /// - [`Error`](crate::ErrorKind::Error): the family is the default one, or the name is invalid.
    /// - Otherwise a [write error](crate#errors).
    pub fn drop_family(&self, name: &str) -> Result<()> {
        self.session.count_failure(check_name(name))?;
        if name == DEFAULT_FAMILY {
            return self.session.count_failure(Err(
                Error::invalid("the default family cannot be dropped").with_hint(Hint::ClearFamily)
            ));
        }
        let tables = crate::backend::Tables::of(name);
        let dropped = self.session.write(|db| {
            db.check_write()?;
            if self.session.is_family_open(name) {
                // A `None` here, because an error would fail the transaction of the caller.
                return Ok(None);
            }
            db.drop_family(&tables).map(Some)
        })?;
        match dropped {
            Some(true) => Ok(()),
            Some(false) => Err(Error::not_found(format!("there is no family \"{name}\""))),
            None => self
                .session
                .count_failure(Err(Error::busy(format!("family \"{name}\" has open handles on this store"))
                    .with_hint(Hint::CloseFamily))),
        }
    }

    /// Returns the names of all families except the default one, in byte order.
    ///
    /// # Errors
    /// A [read error](crate#errors).
    pub fn family_names(&self) -> Result<Vec<String>> {
        let mut names = self.session.with(|db| db.families())?;
        names.retain(|name| name != DEFAULT_FAMILY);
        Ok(names)
    }

    // ---- maintenance -------------------------------------------------------------------------

    /// Returns the counters of this handle, such as the numbers of gets and puts.
    ///
    /// # Errors
    /// A [read error](crate#errors): the sizes are read from the file.
    pub fn stats(&self) -> Result<Stats> {
        let (pages, used, frames) =
            self.session.with(|db| db.size().map(|(pages, used)| (pages, used, db.wal_frames())))?;
        Ok(self.session.counters.read(pages, u64::from(frames), used))
    }

    /// Returns a counter that changes with every commit of any process, if the commit changes the
    /// file. Returns `None` if the store has no such counter.
    ///
    /// To find out whether a store has changed, compare two results of the same handle for
    /// equality. The counter wraps around. There is none outside WAL mode, for an exclusive handle,
    /// and for a file that no process can write.
    ///
    /// # Errors
    /// [`Misuse`](crate::ErrorKind::Misuse) if the handle is closed.
    pub fn commit_counter(&self) -> Result<Option<u32>> {
        self.session.with(Db::commit_counter)
    }

    /// Sets the counters of this handle to zero.
    ///
    /// # Errors
    /// [`Misuse`](crate::ErrorKind::Misuse) if the handle is closed.
    pub fn reset_stats(&self) -> Result<()> {
        self.session.with(Db::check)?;
        self.session.counters.reset();
        Ok(())
    }

    /// Checks the whole store for damage and inconsistencies, in one snapshot.
    ///
    /// It reads everything. In WAL mode it does not block writers.
    /// [`check`](Store::check) reports every problem instead of the first one.
    ///
    /// It runs the integrity check of SQLite, then checks the schema and the consistency of the
    /// tables of all families.
    ///
    /// # Errors
    /// [`Corrupt`](crate::ErrorKind::Corrupt) with the first problem; otherwise a [read
    /// error](crate#errors).
    pub fn integrity_check(&self) -> Result<()> {
        self.session.with(Db::integrity_check)
    }

    /// Rebuilds everything that can be derived from the data rows, in one transaction: indexes,
    /// large values, views and the catalogue of families.
    ///
    /// Returns the number of rows, index entries and tables that were added, removed or changed.
    /// Afterwards [`integrity_check`](Store::integrity_check) succeeds.
    ///
    /// Effect on the data:
    /// - Every readable row is kept with its value and expiry time. An unreadable row is restored
    ///   if the file still contains its data.
    /// - A row whose value or expiry time is lost is removed, and so is a row whose key is longer
    ///   than [`MAX_KEY_SIZE`](crate::MAX_KEY_SIZE). No value is invented.
    /// - Families missing from the catalogue are entered again, without their default TTL. Invalid
    ///   settings get their defaults.
    /// - Tables that do not match the schema and contain data are renamed; their new names begin
    ///   with `lost:`.
    ///
    /// A store whose catalogue is missing, or does not contain the family `default`, can be opened
    /// only with [`Config::allow_damaged`](crate::Config::allow_damaged).
    ///
    /// The call reads the whole store, in about twice the time of
    /// [`integrity_check`](Store::integrity_check). It writes nothing if the store is undamaged.
    /// During the call, other connections can read, but not write.
    ///
    /// # Errors
    /// Nothing is changed then.
    /// - [`Corrupt`](crate::ErrorKind::Corrupt): the integrity check of SQLite fails, or the damage
    ///   is of a kind that a repair does not cover.
    /// - [`Busy`](crate::ErrorKind::Busy): a transaction is open on this handle, or another handle
    ///   is writing.
    /// - [`Error`](crate::ErrorKind::Error): the store is on a server.
    /// - Otherwise a [write error](crate#errors).
    pub fn repair(&self) -> Result<u64> {
        self.repair_with(|_| {})
    }

    /// Repairs the store like [`repair`](Store::repair), and calls `report` for each loss: a
    /// removed row, a renamed table or a lost setting.
    ///
    /// `report` is called before the commit: if the call fails, the reported changes are not made.
    /// `report` must not call this store.
    ///
    /// # Errors
    /// As [`repair`](Store::repair).
    pub fn repair_with(&self, mut report: impl FnMut(RepairEvent<'_>)) -> Result<u64> {
        let now_ms = self.session.clock.now_ms();
        self.session.write(|db| {
            if *db.transaction() != TransactionState::None {
                return Err(Error::busy("a transaction is open on this handle, so no repair can run")
                    .with_hint(Hint::EndTransaction));
            }
            let mut tell =
                |found: Disagreement<'_>| report(RepairEvent { message: found.text, key: found.key });
            db.repair(now_ms, &mut tell)
        })
    }

    /// Syncs the files of the store, so that all earlier commits survive a power failure. An open
    /// transaction is not committed.
    ///
    /// It syncs the open files and their directory, also if they were renamed.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io), also if the directory cannot be read;
    /// [`Misuse`](crate::ErrorKind::Misuse) if the handle is closed.
    pub fn sync(&self) -> Result<()> {
        self.session.with(Db::sync)
    }

    /// Copies the frames of the WAL into the database file. Returns the number of frames in the WAL,
    /// and the number of those that are in the database file now.
    ///
    /// Both numbers are 0 if the store is not in WAL mode. The call waits for other connections up
    /// to the busy timeout.
    ///
    /// # Errors
    /// - [`Busy`](crate::ErrorKind::Busy): a transaction is open on this handle; or, except for
    ///   [`Passive`](CheckpointMode::Passive), other connections prevent a complete checkpoint of
    ///   this `mode`.
    /// - `ReadOnly`, `Full`, or a [read error](crate#errors).
    pub fn checkpoint(&self, mode: CheckpointMode) -> Result<(u32, u32)> {
        self.session.checkpoint(mode)
    }

    /// Runs a checkpoint if the WAL has reached the length at which a checkpoint is due. Unlike an
    /// automatic checkpoint, it does so even if
    /// [`Config::checkpoint_every`](crate::Config::checkpoint_every) is set. A failure is ignored,
    /// because a later checkpoint copies the same frames.
    pub(crate) fn checkpoint_if_grown(&self) {
        // On a closed handle there is nothing to do.
        let _ = self.session.with_uncounted(|db| {
            db.checkpoint_if_long();
            Ok(())
        });
    }

    /// Returns up to `pages` free pages of the file to the file system; `None` means all.
    ///
    /// It works in transactions of at most 1000 pages, so that the WAL stays short, or in the open
    /// transaction. In WAL mode the file shrinks at the next checkpoint.
    ///
    /// # Errors
    /// A [write error](crate#errors). Transactions committed before the failure stay committed.
    pub fn incremental_vacuum(&self, pages: Option<u32>) -> Result<()> {
        let mut left = pages.map_or(u64::MAX, u64::from);
        if left == 0 {
            return self.session.with(Db::check);
        }
        loop {
            let step = left.min(VACUUM_PAGES_PER_STEP);
            let (before, after) = self.session.write(|db| db.vacuum_step(step))?;
            left -= step;
            if left == 0 || after == 0 || after >= before {
                return Ok(());
            }
        }
    }

    /// Replaces the clock of this handle by the function `now_ms`, which returns milliseconds since
    /// the Unix epoch.
    ///
    /// For tests, and for devices whose system clock is wrong at first. If `now_ms` returns less
    /// than before, the store continues to use the earlier, greater result. `now_ms` must not call
    /// this store.
    ///
    /// The call waits until no thread is running the replaced clock. It has no effect if the caller
    /// is the replaced clock itself, or if the store is on a server, whose clock applies to all
    /// clients.
    pub fn set_clock(&self, now_ms: impl Fn() -> i64 + Send + Sync + 'static) {
        if self.check_own_clock().is_ok() {
            self.session.clock.inject(Some(Arc::new(now_ms)));
        }
    }

    /// Returns the current time by the clock of this store, in milliseconds since the Unix epoch.
    ///
    /// For a store on a server this is the server's time as of its newest answer, advanced by the
    /// monotonic clock of this machine. The server is asked if that answer is more than a minute
    /// old, or if the machine was suspended since.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        self.session.now_ms()
    }

    /// Makes the store use the system clock again, after [`set_clock`](Store::set_clock) has
    /// replaced it.
    pub fn use_system_clock(&self) {
        if self.check_own_clock().is_ok() {
            self.session.clock.inject(None);
        }
    }

    /// Makes this handle, whose store is on a server, use `now_ms` as its clock. Times that the
    /// server sends afterwards are ignored. For tests.
    #[cfg(feature = "remote")]
    pub(crate) fn simulate_server_clock(&self, now_ms: impl Fn() -> i64 + Send + Sync + 'static) {
        self.session.clock.inject(Some(Arc::new(now_ms)));
    }

    /// Fails with `Error` if the store is on a server, whose clock cannot be replaced.
    pub(crate) fn check_own_clock(&self) -> Result<()> {
        if !self.session.clock.is_a_servers() {
            return Ok(());
        }
        Err(Error::invalid(
            "the clock of a store on a server is the clock of the server, and cannot be replaced",
        ))
    }
}

fn no_family(name: &str) -> Error {
    Error::not_found(format!("there is no family \"{name}\"")).with_hint(Hint::CreateFamily)
}

/// Dereferences to the default family, whose methods can thus be called on the store.
impl Deref for Store {
    type Target = Family;

    fn deref(&self) -> &Family {
        &self.default
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("closed", &self.session.is_closed()).finish_non_exhaustive()
    }
}

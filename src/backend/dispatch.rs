//! Interface of the storage backends: a file (`backend/file`) or a PostgreSQL server
//! (`backend/postgres`).
//!
//! [`Db`] is a connection to a store. Each of its operations calls one operation of the backend of
//! the store, and does nothing else. Operations that concern only a file (checkpoints, the WAL,
//! free pages) do nothing or fail for a store on a server.
//!
//! In a build with one backend, [`Db`] has one variant, and the dispatch costs nothing.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::file::{self, Disagreement, FileIdentity, OpenHandle, RemovalList, Report, Tables};
#[cfg(feature = "remote")]
use super::postgres;
use super::{Due, Removals, StepLimits, TransactionState};
use crate::clock::Clock;
use crate::config::{CheckpointMode, Config};
use crate::error::{Error, Result};
use crate::info::StoreInfo;
use crate::location::{check_scheme, is_url};
use crate::options::SizeLimit;
use crate::stats::Counters;

/// Connection to a store, in a file or on a server, with the open transaction of the caller.
#[cfg_attr(
    feature = "remote",
    allow(clippy::large_enum_variant, reason = "a call on a file is not to follow one more pointer")
)]
pub(crate) enum Db {
    File(file::Db),
    #[cfg(feature = "remote")]
    Remote(Box<postgres::Db>),
}

/// Calls the method `$call` of the backend of the store. With `on a server`, calls `$remote`
/// instead for a store on a server.
macro_rules! ask {
    ($self:expr, $call:ident($($argument:expr),*)) => {
        ask!($self, $call($($argument),*), on a server $call($($argument),*))
    };
    ($self:expr, $call:ident($($argument:expr),*), on a server $remote:ident($($other:expr),*)) => {
        match $self {
            Db::File(db) => db.$call($($argument),*),
            #[cfg(feature = "remote")]
            Db::Remote(db) => db.$remote($($other),*),
        }
    };
}

/// Calls the method `$call`, which only the file backend has. For a store on a server, the result
/// is `$otherwise`.
macro_rules! in_a_file {
    ($self:expr, $call:ident($($argument:expr),*), else $otherwise:expr) => {
        match $self {
            Db::File(db) => db.$call($($argument),*),
            #[cfg(feature = "remote")]
            Db::Remote(_) => $otherwise,
        }
    };
}

/// Runs `$file` for a store in a file, or `$remote` for a store on a server, inside the method
/// `call` of the backend. `call` makes the checks that every operation needs before and after it.
/// `$otherwise` is the result for a store on a server; `$both` is run for either kind of store.
macro_rules! call {
    ($self:expr, |$db:ident| $file:expr, on a server $remote:expr) => {
        match $self {
            Db::File(db) => db.call(|$db| $file),
            #[cfg(feature = "remote")]
            Db::Remote(db) => db.call(|$db| $remote),
        }
    };
    ($self:expr, |$db:ident| $file:expr, else $otherwise:expr) => {
        match $self {
            Db::File(db) => db.call(|$db| $file),
            #[cfg(feature = "remote")]
            Db::Remote(db) => db.call(|_| $otherwise),
        }
    };
    ($self:expr, |_| $both:expr) => {
        call!($self, |_db| $both, on a server $both)
    };
    ($self:expr, |$db:ident| $both:expr) => {
        call!($self, |$db| $both, on a server $both)
    };
}

mod keys; // after the macros that it uses

impl Db {
    /// Opens the store at `path`, and creates it if it does not exist. `None` opens a store in
    /// memory.
    pub(crate) fn open(
        path: Option<&Path>,
        config: &Config,
        clock: &Arc<Clock>,
        counters: &Arc<Counters>,
    ) -> Result<Db> {
        if let Some(url) = path.filter(|path| is_url(path)) {
            if config.file.is_encrypted() {
                return Err(Error::invalid(
                    "a password or key was given, and a store on a server is not encrypted by this \
                    library: open it without one; encrypt the disk of the server, and the connection \
                    by TLS (sslmode=verify-full in the URL)",
                ));
            }
            return open_on_a_server(url.as_os_str(), config, clock, counters);
        }
        path.map_or(Ok(()), check_scheme)?;
        let mut db = file::Db::open(path, config, clock.now_ms()).map_err(|e| match path {
            Some(path) => e.in_context(crate::location::path_without_password(path)),
            None => e,
        })?;
        db.set_owner(clock, counters);
        Ok(Db::File(db))
    }

    /// Adds the handle that owns this connection to the list of open handles of this process. Does
    /// nothing for a store on a server.
    pub(crate) fn register(&mut self, handle: Weak<dyn OpenHandle>) {
        in_a_file!(self, register(handle), else ());
    }

    /// Returns the path or URL for a second connection to the store; `None` for a store in memory.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        ask!(self, path())
    }

    /// Returns the identity of the store on its server, as the server reports it; `None` for a
    /// store in a file, or if the server does not report it.
    pub(crate) fn place_on_its_server(&mut self) -> Result<Option<String>> {
        match self {
            Db::File(db) => db.call(|_| Ok(None)),
            #[cfg(feature = "remote")]
            Db::Remote(db) => db.call(|db| db.place_on_its_server()),
        }
    }

    pub(crate) fn file_identity(&self) -> Option<FileIdentity> {
        in_a_file!(self, file_identity(), else None)
    }

    /// Returns `true` if the store has one writer at a time, so that a write of another connection
    /// blocks writes of this one.
    pub(crate) fn has_one_writer(&self) -> bool {
        matches!(self, Db::File(_))
    }

    /// Returns `true` if a store of this kind can have a size limit.
    pub(crate) fn can_have_limit(&self) -> bool {
        matches!(self, Db::File(_))
    }

    /// Updates the clock of the store with the current time of the server. Does nothing for a store
    /// in a file.
    pub(crate) fn note_time(&mut self) -> Result<()> {
        match self {
            Db::File(db) => db.call(|_| Ok(())),
            #[cfg(feature = "remote")]
            Db::Remote(db) => db.call(|db| db.ask_time()),
        }
    }

    /// Runs no operation, only the checks that precede and follow every operation. Fails if one of
    /// them fails.
    pub(crate) fn check(&mut self) -> Result<()> {
        call!(self, |_| Ok(()))
    }

    /// Rolls back an open transaction and closes the connection. The connection is closed even if
    /// this returns an error.
    pub(crate) fn close(self) -> Result<()> {
        ask!(self, close())
    }

    /// Does the work that a file needs before its connection is closed, such as removing the
    /// expired rows that reads have found. Does nothing for a store on a server.
    pub(crate) fn before_close(&mut self) {
        in_a_file!(self, before_close(), else ());
    }

    // ---- transactions ------------------------------------------------------------------------

    #[inline]
    pub(crate) fn transaction(&self) -> &TransactionState {
        ask!(self, transaction())
    }

    /// Fails if the state of the caller's transaction does not allow a write: in a read
    /// transaction, or after a failure that makes a rollback necessary.
    pub(crate) fn check_write(&self) -> Result<()> {
        self.transaction().check_write()
    }

    /// Begins the read transaction of the caller. Its snapshot is the committed state of the store
    /// at this time.
    pub(crate) fn begin_read(&mut self) -> Result<()> {
        call!(self, |db| db.begin_read())
    }

    /// Begins the write transaction of the caller.
    pub(crate) fn begin_write(&mut self) -> Result<()> {
        call!(self, |db| db.begin_write_call(), on a server db.begin_write())
    }

    /// Commits the transaction of the caller. After `Busy` it is still open and can be committed
    /// again; after any other failure it can only be rolled back.
    pub(crate) fn commit(&mut self) -> Result<()> {
        match self {
            Db::File(db) => db.call_in_any_state(file::Db::commit_call),
            #[cfg(feature = "remote")]
            Db::Remote(db) => db.call_in_any_state(postgres::Db::commit_call),
        }
    }

    /// Rolls back the transaction of the caller.
    pub(crate) fn rollback(&mut self) -> Result<()> {
        match self {
            Db::File(db) => db.call_in_any_state(file::Db::rollback),
            #[cfg(feature = "remote")]
            Db::Remote(db) => db.call_in_any_state(postgres::Db::rollback),
        }
    }

    // ---- maintenance -------------------------------------------------------------------------

    /// Makes every commit so far survive a power failure, by syncing the file. Does nothing for a
    /// store on a server.
    pub(crate) fn sync(&mut self) -> Result<()> {
        call!(self, |db| db.sync(), else Ok(()))
    }

    /// Releases the snapshot that this connection keeps between reads. Does nothing for a store on
    /// a server.
    pub(crate) fn let_reads_go(&mut self) {
        in_a_file!(self, let_reads_go(), else ());
    }

    /// Runs a checkpoint, which waits for other connections for at most `wait`. Returns the length
    /// of the WAL, in frames, and the number of its frames that are then in the database; for a
    /// store on a server, both are 0.
    pub(crate) fn checkpoint_within(&mut self, mode: CheckpointMode, wait: Duration) -> Result<(u32, u32)> {
        call!(self, |db| db.checkpoint_within(mode, wait), else Ok((0, 0)))
    }

    /// Runs a checkpoint if the WAL has reached the length that triggers checkpoints. The
    /// checkpoint does not block writers.
    pub(crate) fn checkpoint_if_long(&mut self) {
        in_a_file!(self, checkpoint_if_long(), else ());
    }

    /// Runs a checkpoint that truncates the database file to its last page and the WAL to zero
    /// bytes. Does nothing if a transaction is open, if another connection blocks the checkpoint,
    /// or for a store on a server.
    pub(crate) fn cut_files(&mut self) {
        in_a_file!(self, cut_files(), else ());
    }

    /// Returns `true` if the store is a file in WAL mode, so that it can have checkpoints.
    pub(crate) fn has_wal(&self) -> bool {
        in_a_file!(self, has_wal(), else false)
    }

    pub(crate) fn wal_frames(&self) -> u32 {
        in_a_file!(self, wal_frames(), else 0)
    }

    pub(crate) fn commit_counter(&mut self) -> Result<Option<u32>> {
        call!(self, |db| Ok(db.commit_counter()), else Ok(None))
    }

    pub(crate) fn report_disagreements(
        &mut self,
        most: u32,
        report: &mut dyn Report,
    ) -> Result<Option<Error>> {
        call!(
            self,
            |db| db.report_disagreements(most, report),
            on a server match db.integrity_check() {
                Err(e) if e.kind() == crate::error::ErrorKind::Corrupt => {
                    let text = e.to_string();
                    let _ = report.found(Disagreement { text: &text, key: None, in_file: false });
                    Ok(None)
                }
                done => done.map(|()| None),
            }
        )
    }

    pub(crate) fn integrity_check(&mut self) -> Result<()> {
        call!(self, |db| db.integrity_check())
    }

    /// Repairs the store: makes all tables consistent with the data rows, in a transaction of its
    /// own. Calls `tell` for each loss of data, and returns the number of changes. Fails for a
    /// store on a server.
    pub(crate) fn repair(&mut self, now_ms: i64, tell: &mut dyn FnMut(Disagreement<'_>)) -> Result<u64> {
        call!(self, |db| db.repair_call(now_ms, tell), else Err(only_a_file("can be repaired")))
    }

    /// Copies the committed state, page by page, into an existing empty file. `progress` gets the
    /// number of remaining pages and the total number of pages, and returns whether to continue.
    /// Returns `Some(false)` if `progress` cancelled the copy; `None` for a store on a server,
    /// which has no pages.
    pub(crate) fn copy(&mut self, to: &Path, progress: impl FnMut(u32, u32) -> bool) -> Result<Option<bool>> {
        call!(self, |db| file::copy(db, to, progress).map(Some), else Ok(None))
    }

    /// Returns a description of the store. All families are described as of one snapshot.
    pub(crate) fn info(&mut self) -> Result<StoreInfo> {
        call!(self, |db| db.info(db.clock()), on a server db.info())
    }

    /// Returns the number of pages of the database, and the total size of its pages in use, in
    /// bytes; (0, 0) for a store on a server.
    pub(crate) fn size(&mut self) -> Result<(u64, u64)> {
        call!(self, |db| Ok((db.page_count()?, db.used_bytes()?)), else Ok((0, 0)))
    }

    /// Removes up to `pages` free pages from the database file. Returns the number of its free
    /// pages before and after that; (0, 0) for a store on a server.
    pub(crate) fn vacuum_step(&mut self, pages: u64) -> Result<(u64, u64)> {
        call!(self, |db| db.vacuum_step(pages), on a server db.write(|_| Ok((0, 0))))
    }

    /// Reads the size limit from the store; `None` if it has none, or is on a server.
    pub(crate) fn size_limit(&mut self) -> Result<Option<SizeLimit>> {
        call!(self, |db| db.limit_now(), else Ok(None))
    }

    /// Sets the size limit of the store; `None` removes it. Returns the previous size limit. Fails
    /// for a store on a server.
    pub(crate) fn change_limit(&mut self, limit: Option<SizeLimit>) -> Result<Option<SizeLimit>> {
        call!(self, |db| db.change_limit(limit), else Err(only_a_file("has a limit")))
    }
}

#[cfg(feature = "encryption")]
impl Db {
    pub(crate) fn is_encrypted(&self) -> bool {
        in_a_file!(self, is_encrypted(), else false)
    }

    pub(crate) fn with_its_secret(&self, config: &Config) -> Config {
        in_a_file!(self, with_its_secret(config), else config.clone())
    }

    /// Returns `true` if no other handle of this process has the store open.
    pub(crate) fn is_only_handle(&self) -> bool {
        in_a_file!(self, is_only_handle(), else true)
    }

    pub(crate) fn convert(&mut self, before: &Config, after: &Config) -> Result<()> {
        call!(self, |db| db.convert(before, after), else Err(only_a_file("is encrypted in place")))
    }
}

/// Families.
impl Db {
    /// Creates a family. Returns `false` if it exists.
    pub(crate) fn create_family(&mut self, tables: &Tables, now_ms: i64) -> Result<bool> {
        call!(
            self,
            |db| db.write(|db| db.create_family(tables, now_ms)),
            on a server db.write(|db| db.create_family(tables.family()))
        )
    }

    /// Drops a family. Returns `false` if it does not exist.
    pub(crate) fn drop_family(&mut self, tables: &Tables) -> Result<bool> {
        call!(
            self,
            |db| db.write(|db| db.drop_family(tables)),
            on a server db.write(|db| db.drop_family(tables.family()))
        )
    }

    pub(crate) fn family_exists(&mut self, family: &str) -> Result<bool> {
        call!(self, |db| db.family_exists(family))
    }

    /// Returns the names of all families, in byte order.
    pub(crate) fn families(&mut self) -> Result<Vec<String>> {
        call!(self, |db| db.families())
    }

    pub(crate) fn created_ms(&mut self, tables: &Tables) -> Result<i64> {
        call!(self, |db| db.created_ms(tables), on a server db.created_ms(tables.family()))
    }

    /// Returns the default TTL of a family, in milliseconds; 0 if it has none.
    pub(crate) fn default_ttl_ms(&mut self, tables: &Tables) -> Result<i64> {
        call!(
            self,
            |db| Ok(db.read_settings(tables)?.default_ttl_ms),
            on a server Ok(db.read_settings(tables.family())?.0)
        )
    }

    pub(crate) fn tracks_writes(&mut self, tables: &Tables) -> Result<bool> {
        call!(
            self,
            |db| Ok(db.read_settings(tables)?.track_writes),
            on a server Ok(db.read_settings(tables.family())?.1)
        )
    }

    pub(crate) fn set_default_ttl(&mut self, tables: &Tables, ttl_ms: i64) -> Result<()> {
        call!(
            self,
            |db| db.write(|db| db.set_default_ttl(tables, ttl_ms)),
            on a server db.write(|db| db.set_default_ttl(tables.family(), ttl_ms))
        )
    }

    pub(crate) fn set_write_tracking(&mut self, tables: &Tables, on: bool, now_ms: i64) -> Result<()> {
        call!(
            self,
            |db| db.write(|db| db.set_write_tracking(tables, on, now_ms)),
            on a server db.write(|db| db.set_write_tracking(tables.family(), on))
        )
    }
}

/// Expired keys of all families.
impl Db {
    /// Returns up to `max` families that contain rows which are expired at `now_ms`. The search
    /// ends early when `in_time` returns `false`. A server uses its own clock, and ignores
    /// `in_time`.
    pub(crate) fn due(&mut self, now_ms: i64, max: usize, in_time: impl Fn() -> bool) -> Result<Due> {
        call!(self, |db| db.due(now_ms, max, in_time), on a server db.due(max))
    }

    /// Runs one step of a purge of the families in `due`: removes keys that are expired at `now_ms`,
    /// earliest expiry time first. Call it again with the same list, which the first call makes. A
    /// server removes expired keys of all families, and uses only `limits.max`.
    pub(crate) fn purge_due(
        &mut self,
        due: &Due,
        now_ms: i64,
        list: &mut RemovalList,
        limits: &StepLimits<'_>,
    ) -> Result<Removals> {
        call!(
            self,
            |db| db.purge(&due.families, now_ms, now_ms, list, limits),
            on a server db.write(|db| db.purge_all(limits.max))
        )
    }

    /// Returns `true` for a file that other connections can write, one at a time.
    pub(crate) fn is_shared(&self) -> bool {
        in_a_file!(self, is_shared(), else false)
    }

    /// Returns two counters that advance while connections to the file write, or wait for the write
    /// lock; `None` if that cannot be seen.
    pub(crate) fn activity(&self) -> Option<(u32, u32)> {
        in_a_file!(self, activity(), else None)
    }

    /// Returns a counter that advances when another connection begins to wait for a lock of the
    /// file; `None` if that cannot be seen.
    pub(crate) fn waits_of_others(&self) -> Option<u32> {
        in_a_file!(self, waits_of_others(), else None)
    }

    /// Removes up to `max` keys that are expired at `now_ms`, of all families, earliest expiry time
    /// first, if no transaction is open. Returns the number of removed keys. Waits for no lock, and
    /// ignores a failure. A server uses its own clock.
    pub(crate) fn purge_quietly(&mut self, now_ms: i64, max: usize) -> Removals {
        ask!(self, purge_quietly(now_ms, max), on a server purge_quietly(max))
    }

    /// Returns the earliest expiry time in all families, in milliseconds since the Unix epoch;
    /// `None` if no key has an expiry time.
    pub(crate) fn next_expiry_of_all(&mut self) -> Result<Option<i64>> {
        call!(self, |db| db.next_expiry(db.clock()), on a server db.next_expiry())
    }
}

#[cfg(feature = "remote")]
fn open_on_a_server(
    url: &std::ffi::OsStr,
    config: &Config,
    clock: &Arc<Clock>,
    counters: &Arc<Counters>,
) -> Result<Db> {
    config.check()?;
    let url =
        url.to_str().ok_or_else(|| Error::cant_open("the URL is not UTF-8: write other bytes as %XX"))?;
    let mut db = postgres::Db::open(url, config, Arc::clone(clock))?;
    db.count_in(counters);
    Ok(Db::Remote(Box::new(db)))
}

/// Returns the error for an operation that a store on a server does not support. `does` completes
/// the sentence "only a store in a file ...".
#[cfg(feature = "remote")]
fn only_a_file(does: &str) -> Error {
    Error::invalid(format!("only a store in a file {does}, and this store is on a server"))
}

#[cfg(not(feature = "remote"))]
fn open_on_a_server(_: &std::ffi::OsStr, _: &Config, _: &Arc<Clock>, _: &Arc<Counters>) -> Result<Db> {
    // The message does not contain the URL, which may contain a password.
    Err(Error::cant_open(
        "the path is the URL of a server, and this build of the library has no stores on \
        servers",
    )
    .with_hint(crate::hint::Hint::BuildWithServer))
}

//! Interface of the storage backends: a file (`backend/file`) or a PostgreSQL server
//! (`backend/postgres`).
//!
//! [`Db`] is a connection. Each of its operations passes the call on to the backend of the store,
//! once, and does nothing else. Calls that concern only a file (checkpoints, the WAL, free pages) do
//! nothing on a server, or fail there.
//!
//! In a build with one backend, the type has one variant, and a call here costs nothing extra.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::file::{self, Disagreement, FileIdentity, OpenHandle, Report, Tables};
#[cfg(feature = "remote")]
use super::postgres;
use super::{BatchWrite, Chunk, Due, Found, Removals, Scan, TimeEntry, Times, TransactionState};
use crate::clock::Clock;
use crate::config::{CheckpointMode, Config};
use crate::error::{Error, Result};
use crate::expiry::{Expiry, ExpiryCondition};
use crate::info::StoreInfo;
use crate::options::{PutOptions, SizeLimit};
use crate::place::{check_scheme, is_url};
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

/// Calls a method of the same name on the backend of the store; or, with `on a server`, another
/// method or other arguments on a server.
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

/// Calls a method that only the file backend has. On a server, the result is `$otherwise`.
macro_rules! in_a_file {
    ($self:expr, $call:ident($($argument:expr),*), else $otherwise:expr) => {
        match $self {
            Db::File(db) => db.$call($($argument),*),
            #[cfg(feature = "remote")]
            Db::Remote(_) => $otherwise,
        }
    };
}

/// Runs a call on the backend of the store, with the checks that each call needs before and after
/// it: `$file` on a file, `$remote` on a server.
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

/// Reads the content of a family.
macro_rules! read {
    ($self:expr, $tables:expr, $call:ident($($argument:expr),*)) => {
        read!($self, $tables, $call($($argument),*), on a server $call($($argument),*))
    };
    ($self:expr, $tables:expr, $call:ident($($argument:expr),*), on a server $remote:ident($($other:expr),*)) => {
        call!(
            $self,
            |db| db.on($tables).$call($($argument),*),
            on a server db.contents($tables.family()).$remote($($other),*)
        )
    };
}

/// Writes to the content of a family, in the open transaction or in one of its own.
macro_rules! write {
    ($self:expr, $tables:expr, $call:ident($($argument:expr),*)) => {
        call!(
            $self,
            |db| db.write(|db| db.on($tables).$call($($argument),*)),
            on a server db.write(|db| db.contents($tables.family()).$call($($argument),*))
        )
    };
}

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
            Some(path) => e.in_context(crate::place::path_without_password(path)),
            None => e,
        })?;
        db.set_owner(clock, counters);
        Ok(Db::File(db))
    }

    /// Adds the handle that owns this connection to the open handles of this process.
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

    /// Updates the clock of the store with the time of the server.
    pub(crate) fn note_time(&mut self) -> Result<()> {
        match self {
            Db::File(db) => db.call(|_| Ok(())),
            #[cfg(feature = "remote")]
            Db::Remote(db) => db.call(|db| db.ask_time()),
        }
    }

    /// Makes the checks that each call makes.
    pub(crate) fn check(&mut self) -> Result<()> {
        call!(self, |_| Ok(()))
    }

    /// Rolls back an open transaction and closes the connection, which is closed even if this
    /// fails.
    pub(crate) fn close(self) -> Result<()> {
        ask!(self, close())
    }

    /// Prepares the closing of a file. Call this before the connection is closed.
    pub(crate) fn before_close(&mut self) {
        in_a_file!(self, before_close(), else ());
    }

    // ---- transactions ------------------------------------------------------------------------

    #[inline]
    pub(crate) fn transaction(&self) -> &TransactionState {
        ask!(self, transaction())
    }

    /// Fails if the state of the transaction does not allow a write.
    pub(crate) fn check_write(&self) -> Result<()> {
        self.transaction().check_write()
    }

    /// Begins the read transaction of the caller, whose snapshot is the current state.
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

    /// Makes every commit so far survive a power failure.
    pub(crate) fn sync(&mut self) -> Result<()> {
        call!(self, |db| db.sync(), else Ok(()))
    }

    /// Releases the snapshot that is kept between reads.
    pub(crate) fn let_reads_go(&mut self) {
        in_a_file!(self, let_reads_go(), else ());
    }

    /// Runs a checkpoint, and waits for other connections for at most `wait`.
    pub(crate) fn checkpoint_within(&mut self, mode: CheckpointMode, wait: Duration) -> Result<(u32, u32)> {
        call!(self, |db| db.checkpoint_within(mode, wait), else Ok((0, 0)))
    }

    /// Runs a checkpoint if the WAL is long, without blocking writers.
    pub(crate) fn checkpoint_if_long(&mut self) {
        in_a_file!(self, checkpoint_if_long(), else ());
    }

    /// Truncates the file to its content and the WAL to nothing, outside a transaction and if no
    /// other connection blocks it.
    pub(crate) fn cut_files(&mut self) {
        in_a_file!(self, cut_files(), else ());
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

    /// Rebuilds what can be derived from the data rows, in a transaction of its own.
    pub(crate) fn repair(&mut self, now_ms: i64, tell: &mut dyn FnMut(Disagreement<'_>)) -> Result<u64> {
        call!(self, |db| db.repair_call(now_ms, tell), else Err(only_a_file("can be repaired")))
    }

    /// Copies the current state, page by page, into an existing empty file. Returns `false` if
    /// `progress` cancelled the copy; `None` if the store has no pages.
    pub(crate) fn copy(&mut self, to: &Path, progress: impl FnMut(u32, u32) -> bool) -> Result<Option<bool>> {
        call!(self, |db| file::copy(db, to, progress).map(Some), else Ok(None))
    }

    /// Returns a description of the store at one moment.
    pub(crate) fn info(&mut self) -> Result<StoreInfo> {
        call!(self, |db| db.info(db.clock()), on a server db.info())
    }

    /// Returns the number of pages of the database, and the size of those in use in bytes.
    pub(crate) fn size(&mut self) -> Result<(u64, u64)> {
        call!(self, |db| Ok((db.page_count()?, db.used_bytes()?)), else Ok((0, 0)))
    }

    /// Returns free pages to the file system, at most `pages`. Returns the numbers of free pages
    /// before and after.
    pub(crate) fn vacuum_step(&mut self, pages: u64) -> Result<(u64, u64)> {
        call!(self, |db| db.vacuum_step(pages), else Ok((0, 0)))
    }

    /// Returns the size limit that the store has now.
    pub(crate) fn size_limit(&mut self) -> Result<Option<SizeLimit>> {
        call!(self, |db| db.limit_now(), else Ok(None))
    }

    /// Sets the size limit. Returns the one before.
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
    /// Returns up to `max` families that contain expired rows at `now_ms`, and stops early when
    /// `in_time` returns `false`.
    pub(crate) fn due(&mut self, now_ms: i64, max: usize, in_time: impl Fn() -> bool) -> Result<Due> {
        call!(self, |db| db.due(now_ms, max, in_time), on a server db.due(max))
    }

    /// Removes up to `max` of the earliest expired keys of these families, and few once the time is
    /// over, in one transaction. `in_haste`: leaves a checkpoint that is due to the next write, if
    /// that is possible.
    pub(crate) fn purge_due(
        &mut self,
        due: &Due,
        now_ms: i64,
        max: usize,
        in_haste: bool,
        in_time: &dyn Fn() -> bool,
    ) -> Result<u64> {
        call!(
            self,
            |db| db.purge_families(due, now_ms, max, in_haste, in_time),
            on a server db.write(|db| db.purge_all(max))
        )
    }

    /// Returns the earliest expiry time in all families.
    pub(crate) fn next_expiry_of_all(&mut self) -> Result<Option<i64>> {
        call!(self, |db| db.next_expiry(db.clock()), on a server db.next_expiry())
    }
}

/// Reads of one family.
impl Db {
    /// Passes the value and the expiry time of a live key to `visit`. An expired row that is found
    /// is removed later.
    #[inline]
    pub(crate) fn get<R>(
        &mut self,
        tables: &Arc<Tables>,
        key: &[u8],
        visit: impl FnOnce(&[u8], Expiry) -> R,
    ) -> Result<Found<R>> {
        call!(
            self,
            |db| db.get(tables, key, visit),
            on a server db.contents(tables.family()).get(key, visit)
        )
    }

    /// Returns the expiry time and the write time of a live key. An expired row that is found is
    /// removed later.
    pub(crate) fn times(&mut self, tables: &Arc<Tables>, key: &[u8]) -> Result<Found<Times>> {
        call!(self, |db| db.times(tables, key), on a server db.contents(tables.family()).times(key))
    }

    /// Returns the write time of each of several live keys; `None` for one whose write time is not
    /// known.
    pub(crate) fn write_times(&mut self, tables: &Tables, keys: &[&[u8]]) -> Result<Vec<Option<i64>>> {
        read!(self, tables, write_times(keys))
    }

    /// Calls `visit` with the index and the lookup result of each key. All results come from one
    /// snapshot.
    pub(crate) fn get_many<K: AsRef<[u8]>>(
        &mut self,
        tables: &Tables,
        keys: &[K],
        visit: impl FnMut(usize, Found<&[u8]>),
    ) -> Result<()> {
        read!(self, tables, get_many(keys, visit))
    }

    /// Returns the number of rows.
    pub(crate) fn count(&mut self, tables: &Tables) -> Result<u64> {
        read!(self, tables, count())
    }

    /// Returns the number of live keys.
    pub(crate) fn count_live(&mut self, tables: &Tables) -> Result<u64> {
        read!(self, tables, count_live())
    }

    /// Returns the number of keys with an expiry time.
    pub(crate) fn count_ttl(&mut self, tables: &Tables) -> Result<u64> {
        read!(self, tables, count_ttl())
    }

    /// Returns the earliest expiry time in the family.
    pub(crate) fn next_expiry(&mut self, tables: &Tables) -> Result<Option<i64>> {
        read!(self, tables, next_expiry())
    }

    /// Returns `true` if a key has an expiry time of `last_ms` or earlier and has expired.
    pub(crate) fn has_expired(&mut self, tables: &Tables, last_ms: i64, now_ms: i64) -> Result<bool> {
        read!(self, tables, has_expired(last_ms, now_ms), on a server has_expired(last_ms))
    }

    /// Returns `true` if a key was written at `last_ms` or earlier.
    pub(crate) fn has_written_by(&mut self, tables: &Tables, last_ms: i64) -> Result<bool> {
        read!(self, tables, has_written_by(last_ms))
    }

    /// Reads the next live rows of a scan into an empty chunk. Returns the key of the last row
    /// examined, or `None` at the end of the scan.
    #[inline]
    pub(crate) fn next_rows(
        &mut self,
        tables: &Tables,
        scan: Scan<'_>,
        chunk: &mut Chunk,
    ) -> Result<Option<Vec<u8>>> {
        read!(self, tables, next_rows(scan, chunk))
    }

    /// Reads the next rows, in the order of expiry time, into an empty chunk: those after the entry
    /// `after` that expire before `to_ms` (`None`: all).
    ///
    /// Returns the last entry that was read, or `None` if no entry is left.
    pub(crate) fn next_expiring(
        &mut self,
        tables: &Tables,
        after: (i64, &[u8]),
        to_ms: Option<i64>,
        chunk: &mut Chunk,
    ) -> Result<Option<TimeEntry>> {
        read!(self, tables, next_expiring(after, to_ms, chunk))
    }
}

/// Writes to one family, each in the open transaction or in one of its own.
impl Db {
    /// Writes a value with options. Returns `true` if the value was written.
    #[inline]
    pub(crate) fn put(
        &mut self,
        tables: &Tables,
        key: &[u8],
        value: &[u8],
        options: &PutOptions,
    ) -> Result<bool> {
        write!(self, tables, put(key, value, options))
    }

    /// Deletes a key. Returns `true` if the key was live.
    pub(crate) fn delete(&mut self, tables: &Tables, key: &[u8]) -> Result<bool> {
        write!(self, tables, delete(key))
    }

    /// Deletes all keys of the family.
    pub(crate) fn clear(&mut self, tables: &Tables) -> Result<()> {
        write!(self, tables, clear())
    }

    /// Deletes the keys of a range. Returns the number of live keys among them.
    pub(crate) fn delete_range(&mut self, tables: &Tables, range: Scan<'_>) -> Result<u64> {
        write!(self, tables, delete_range(range))
    }

    /// Writes a value with a new expiry time if the key is live and its value equals `expected`.
    /// Returns `true` if it was written.
    pub(crate) fn compare_and_swap(
        &mut self,
        tables: &Tables,
        key: &[u8],
        expected: &[u8],
        value: &[u8],
        expiry: Option<Expiry>,
    ) -> Result<bool> {
        write!(self, tables, compare_and_swap(key, expected, value, expiry))
    }

    /// Deletes a key if it is live and its value equals `expected`. Returns `true` if it was
    /// deleted.
    pub(crate) fn compare_and_delete(
        &mut self,
        tables: &Tables,
        key: &[u8],
        expected: &[u8],
    ) -> Result<bool> {
        write!(self, tables, compare_and_delete(key, expected))
    }

    /// Adds `delta` to the number in the value of a key. Returns the sum and the length of its
    /// text.
    ///
    /// A key that is missing or expired counts as 0. It gets `expiry`; with `None` the default TTL
    /// of the family.
    pub(crate) fn increment(
        &mut self,
        tables: &Tables,
        key: &[u8],
        delta: i64,
        expiry: Option<Expiry>,
    ) -> Result<(i64, usize)> {
        write!(self, tables, increment(key, delta, expiry))
    }

    /// Changes the expiry time of a live key if `condition` holds. Returns whether it was changed;
    /// `None` if the key is missing or expired.
    pub(crate) fn expire(
        &mut self,
        tables: &Tables,
        key: &[u8],
        expiry: Expiry,
        condition: ExpiryCondition,
    ) -> Result<Option<bool>> {
        write!(self, tables, expire(key, expiry, condition))
    }

    /// Passes the value of a live key to `visit`, then changes the expiry time of the key. Returns
    /// `None` if the key is missing or expired.
    ///
    /// If `visit` fails, nothing is changed.
    pub(crate) fn get_and_expire<R>(
        &mut self,
        tables: &Tables,
        key: &[u8],
        expiry: Expiry,
        visit: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<Option<R>> {
        call!(
            self,
            |db| db.write_once(|db| db.on(tables).get_and_expire(key, expiry, visit)),
            on a server db.write(|db| db.contents(tables.family()).get_and_expire(key, expiry, visit))
        )
    }

    /// Removes up to `max` keys with `expire_ms <= min(last_ms, now_ms)`, earliest expiry time
    /// first.
    pub(crate) fn purge(
        &mut self,
        tables: &Tables,
        last_ms: i64,
        now_ms: i64,
        max: usize,
    ) -> Result<Removals> {
        call!(
            self,
            |db| db.purge_family(tables, last_ms, now_ms, max),
            on a server db.write(|db| db.contents(tables.family()).purge(last_ms, max))
        )
    }

    /// Removes up to `max` keys that were written at `last_ms` or earlier, live or expired, the
    /// oldest first.
    pub(crate) fn sweep(&mut self, tables: &Tables, last_ms: i64, max: usize) -> Result<Removals> {
        call!(
            self,
            |db| db.sweep_family(tables, last_ms, max),
            on a server db.write(|db| db.contents(tables.family()).sweep(last_ms, max))
        )
    }

    /// Runs all writes of a batch, or none of them. Returns the number of live keys that were
    /// deleted.
    ///
    /// Writes to one key run in their order.
    pub(crate) fn write_batch(&mut self, writes: &[BatchWrite<'_>]) -> Result<u64> {
        call!(
            self,
            |db| db.write(|db| db.write_batch(writes, db.clock())),
            on a server db.write(|db| db.write_batch(writes))
        )
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

/// Returns the error for an operation on a server that only a store in a file supports.
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

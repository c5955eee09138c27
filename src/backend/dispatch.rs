//! Interface of the storage backends: a file (`backend/file`) or a PostgreSQL server
//! (`backend/postgres`).
//!
//! - [`Db`]: a connection.
//! - [`View`]: a connection inside one read or write.
//! - [`Contents`]: the content of one family.
//!
//! Each type passes its calls on to the backend of the store. Calls that concern only a file
//! (checkpoints, the WAL, free pages) do nothing on a server, or fail there.
//!
//! In a build with one backend, the types have one variant, and a call here costs nothing extra.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::file::{self, Disagreement, FileIdentity, Removed, Report, Tables};
#[cfg(feature = "remote")]
use super::postgres;
use super::{BatchWrite, Chunk, Due, Found, Removals, Scan, TimeEntry, Times, TransactionState};
use crate::clock::Clock;
use crate::config::{CheckpointMode, Config};
use crate::error::{Error, Result};
use crate::expiry::{Expiry, ExpiryCondition};
use crate::hint::Hint;
use crate::info::StoreInfo;
use crate::options::{PutOptions, SizeLimit};
use crate::place::{check_scheme, is_url};
use crate::unwind::or_undo;

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

/// Connection as an operation uses it, inside its read or write.
#[derive(Clone, Copy)]
pub(crate) enum View<'d> {
    File(&'d file::Db),
    #[cfg(feature = "remote")]
    Remote(&'d postgres::Db),
}

/// Content of one family, as seen through a connection.
#[derive(Clone, Copy)]
pub(crate) enum Contents<'c> {
    File(file::Contents<'c>),
    #[cfg(feature = "remote")]
    Remote(postgres::Contents<'c>),
}

/// Calls a method of the same name on the backend of the store; or, with `on a server`, another
/// method or other arguments on a server.
macro_rules! wherever {
    ($home:ident, $self:expr, $call:ident($($argument:expr),*)) => {
        wherever!($home, $self, $call($($argument),*), on a server $call($($argument),*))
    };
    ($home:ident, $self:expr, $call:ident($($argument:expr),*), on a server $remote:ident($($other:expr),*)) => {
        match $self {
            $home::File(home) => home.$call($($argument),*),
            #[cfg(feature = "remote")]
            $home::Remote(home) => home.$remote($($other),*),
        }
    };
}

/// Calls a method that only the file backend has. On a server, the result is `$otherwise`.
macro_rules! in_a_file {
    ($home:ident, $self:expr, $call:ident($($argument:expr),*), else $otherwise:expr) => {
        match $self {
            $home::File(home) => home.$call($($argument),*),
            #[cfg(feature = "remote")]
            $home::Remote(_) => $otherwise,
        }
    };
}

impl Db {
    /// Opens the store at `path`, and creates it if it does not exist. `None` opens a store in
    /// memory.
    pub(crate) fn open(path: Option<&Path>, config: &Config, clock: &Arc<Clock>) -> Result<Db> {
        if let Some(url) = path.filter(|path| is_url(path)) {
            if config.file.is_encrypted() {
                return Err(Error::invalid(
                    "a password or key was given, and a store on a server is not encrypted by this \
                    library: open it without one; encrypt the disk of the server, and the connection \
                    by TLS (sslmode=verify-full in the URL)",
                ));
            }
            return open_on_a_server(url.as_os_str(), config, clock);
        }
        path.map_or(Ok(()), check_scheme)?;
        let opened = file::Db::open(path, config, clock.now_ms()).map_err(|e| match path {
            Some(path) => e.in_context(crate::place::path_without_password(path)),
            None => e,
        });
        opened.map(Db::File)
    }

    /// Returns the view of this connection for an operation.
    #[inline(always)]
    pub(crate) fn view(&self) -> View<'_> {
        match self {
            Db::File(home) => View::File(home),
            #[cfg(feature = "remote")]
            Db::Remote(home) => View::Remote(home),
        }
    }

    /// Returns the path or URL for a second connection to the store; `None` for a store in memory.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        wherever!(Db, self, path())
    }

    /// Returns the identity of the store on its server, as the server reports it; `None` for a
    /// store in a file, or if the server does not report it.
    pub(crate) fn place_on_its_server(&self) -> Result<Option<String>> {
        match self {
            Db::File(_) => Ok(None),
            #[cfg(feature = "remote")]
            Db::Remote(home) => home.place_on_its_server(),
        }
    }

    pub(crate) fn file_identity(&self) -> Option<FileIdentity> {
        in_a_file!(Db, self, file_identity(), else None)
    }

    #[inline]
    pub(crate) fn is_read_only(&self) -> bool {
        wherever!(Db, self, is_read_only())
    }

    /// Returns `true` if the store has one writer at a time, so that a write of another connection
    /// blocks writes of this one.
    pub(crate) fn has_one_writer(&self) -> bool {
        matches!(self, Db::File(_))
    }

    /// Updates the clock of the store with the time of the server.
    pub(crate) fn note_time(&self) -> Result<()> {
        match self {
            Db::File(_) => Ok(()),
            #[cfg(feature = "remote")]
            Db::Remote(home) => home.ask_time(),
        }
    }

    /// Rolls back an open transaction and closes the connection, which is closed even if this
    /// fails.
    pub(crate) fn close(self) -> Result<()> {
        wherever!(Db, self, close())
    }

    /// Prepares the closing of a file. Call this before the connection is closed.
    pub(crate) fn before_close(&mut self) {
        in_a_file!(Db, self, before_close(), else ());
    }

    // ---- transactions ------------------------------------------------------------------------

    #[inline]
    pub(crate) fn transaction(&self) -> &TransactionState {
        wherever!(Db, self, transaction())
    }

    /// Begins the read transaction of the caller, whose snapshot is the current state.
    pub(crate) fn begin_read(&mut self) -> Result<()> {
        wherever!(Db, self, begin_read())
    }

    /// Begins the write transaction of the caller.
    pub(crate) fn begin_write(&mut self) -> Result<()> {
        wherever!(Db, self, begin_write())
    }

    /// Commits the transaction of the caller. After `Busy` it is still open and can be committed
    /// again; after any other failure it can only be rolled back.
    pub(crate) fn commit(&mut self) -> Result<()> {
        wherever!(Db, self, commit())
    }

    /// Rolls back the transaction of the caller.
    pub(crate) fn rollback(&mut self) -> Result<()> {
        wherever!(Db, self, rollback())
    }

    /// Rolls back what a failed rollback has left open although the caller has no transaction. Call
    /// this before any other operation.
    #[inline]
    pub(crate) fn roll_back_remains(&self) -> Result<()> {
        in_a_file!(Db, self, roll_back_remains(), else Ok(()))
    }

    /// Fails if the transaction of the caller has lost its snapshot.
    #[inline]
    pub(crate) fn check_snapshot(&self) -> Result<()> {
        self.transaction().check_snapshot()
    }

    /// Updates the state of the transaction. Call this after any failure, also of a read.
    #[cold]
    pub(crate) fn note_failure(&mut self, why: &Error) {
        wherever!(Db, self, note_failure(why));
    }

    /// Converts an error to the form that the caller gets.
    #[cold]
    pub(crate) fn explained(&self, why: Error) -> Error {
        let why = in_a_file!(Db, self, explained(why), else why);
        if why.hint() != Some(Hint::RaiseBusyTimeout) {
            return why;
        }
        let ms = wherever!(Db, self, busy_timeout()).as_millis();
        why.with_message(format!("{} (busy timeout: {ms} ms)", why.message()))
    }

    /// Makes space for another try of a write that failed because the disk was full. Returns `true`
    /// if that may succeed.
    #[cold]
    pub(crate) fn make_disk_space_after(&mut self, why: &Error) -> bool {
        in_a_file!(Db, self, make_disk_space_after(why), else false)
    }

    /// Marks the write transaction of the caller as failed, so that it can only be rolled back.
    pub(crate) fn doom(&mut self, why: &Error) {
        wherever!(Db, self, doom(why));
    }

    /// Runs `f` in a write transaction of its own. `wait`: whether to wait for the lock of another
    /// writer, up to the busy timeout.
    #[inline]
    pub(crate) fn in_own_transaction<R>(
        &mut self,
        wait: bool,
        f: impl FnOnce(View<'_>) -> Result<R>,
    ) -> Result<R> {
        match self {
            Db::File(home) => home.in_own_transaction(wait, |home| f(View::File(home))),
            #[cfg(feature = "remote")]
            Db::Remote(home) => f(View::Remote(home)), // each operation is a transaction of its own
        }
    }

    /// Runs a write in the transaction of the caller. If a callback in it panics, the transaction
    /// can only be rolled back.
    pub(crate) fn write_or_doom<R>(&mut self, f: impl FnOnce(View<'_>) -> Result<R>) -> Result<R> {
        let panicked = |db: &mut &mut Db| {
            db.doom(&Error::failed("a callback panicked inside the transaction").with_hint(Hint::RollBack))
        };
        or_undo(self, |db| f(db.view()), panicked)
    }

    /// Runs a call that reads, with the checks that each read needs before and after it.
    #[inline]
    pub(crate) fn reading<R>(&mut self, f: impl FnOnce(&mut Db) -> Result<R>) -> Result<R> {
        let look_again = in_a_file!(Db, self, before_reading(), else Ok(false))?;
        let done = f(self);
        if look_again { in_a_file!(Db, self, after_reading(done), else done) } else { done }
    }

    // ---- expired rows that reads have found: a file removes them together ----------------------

    /// Removes a key that a read has found expired, inside the write transaction of the caller.
    /// After a failure the key stays.
    pub(crate) fn attempt_to_remove(&mut self, tables: &Tables, clock: &Clock, key: &[u8]) {
        match self {
            Db::File(home) => home.attempt(|home| home.contents(tables, clock).remove_if_expired(key)),
            #[cfg(feature = "remote")]
            Db::Remote(_) => {}
        }
    }

    /// Returns `true` if there is no space left for a note of this key.
    pub(crate) fn has_no_room_for_dead(&self, key: &[u8]) -> bool {
        in_a_file!(Db, self, has_no_room_for_dead(key), else false)
    }

    /// Notes an expired row that was found outside a transaction. Returns `true` if the noted rows
    /// should be removed now.
    pub(crate) fn note_dead(&self, tables: &Arc<Tables>, key: &[u8], expire_ms: i64) -> bool {
        in_a_file!(Db, self, note_dead(tables, key, expire_ms), else false)
    }

    /// Returns `true` if expired rows are noted.
    #[inline]
    pub(crate) fn has_dead(&self) -> bool {
        in_a_file!(Db, self, has_dead(), else false)
    }

    /// Returns `true` if expired rows are noted that the next write should also remove.
    #[inline]
    pub(crate) fn has_dead_for_a_write(&self) -> bool {
        in_a_file!(Db, self, has_dead_for_a_write(), else false)
    }

    /// Discards the notes, after the removal of the noted rows was committed.
    pub(crate) fn dead_are_removed(&self) {
        in_a_file!(Db, self, dead_are_removed(), else ());
    }

    /// Records that the noted rows could not be removed. `failed`: for another reason than a lock.
    pub(crate) fn dead_are_stuck(&self, failed: bool) {
        in_a_file!(Db, self, dead_are_stuck(failed), else ());
    }

    // ---- maintenance -------------------------------------------------------------------------

    /// Makes every commit so far survive a power failure.
    pub(crate) fn sync(&mut self) -> Result<()> {
        in_a_file!(Db, self, sync(), else Ok(()))
    }

    /// Releases the snapshot that is kept between reads.
    pub(crate) fn let_reads_go(&mut self) {
        in_a_file!(Db, self, let_reads_go(), else ());
    }

    pub(crate) fn checkpoint(&mut self, mode: CheckpointMode) -> Result<(u32, u32)> {
        in_a_file!(Db, self, checkpoint(mode), else Ok((0, 0)))
    }

    pub(crate) fn checkpoint_within(&mut self, mode: CheckpointMode, wait: Duration) -> Result<(u32, u32)> {
        in_a_file!(Db, self, checkpoint_within(mode, wait), else Ok((0, 0)))
    }

    #[inline]
    pub(crate) fn note_commit(&mut self) {
        in_a_file!(Db, self, note_commit(), else ());
    }

    #[inline]
    pub(crate) fn checkpoint_is_due(&self) -> bool {
        in_a_file!(Db, self, checkpoint_is_due(), else false)
    }

    pub(crate) fn checkpoint_is_overdue(&self) -> bool {
        in_a_file!(Db, self, checkpoint_is_overdue(), else false)
    }

    pub(crate) fn wal_is_long(&self) -> bool {
        in_a_file!(Db, self, wal_is_long(), else false)
    }

    pub(crate) fn checkpoint_by_itself(&mut self, may_keep_writers_out: bool) -> bool {
        in_a_file!(Db, self, checkpoint_by_itself(may_keep_writers_out), else false)
    }

    pub(crate) fn cut_wal(&mut self) -> bool {
        in_a_file!(Db, self, cut_wal(), else false)
    }

    pub(crate) fn wal_frames(&self) -> u32 {
        in_a_file!(Db, self, wal_frames(), else 0)
    }

    pub(crate) fn commit_counter(&self) -> Option<u32> {
        in_a_file!(Db, self, commit_counter(), else None)
    }

    #[inline]
    pub(crate) fn has_to_write_back(&mut self) -> bool {
        in_a_file!(Db, self, has_to_write_back(), else false)
    }

    pub(crate) fn go_on_writing_back(&mut self, let_go: impl FnOnce()) {
        in_a_file!(Db, self, go_on_writing_back(let_go), else ());
    }

    pub(crate) fn report_disagreements(&self, most: u32, report: &mut dyn Report) -> Result<Option<Error>> {
        match self {
            Db::File(home) => home.report_disagreements(most, report),
            #[cfg(feature = "remote")]
            Db::Remote(home) => match home.integrity_check() {
                Err(e) if e.kind() == crate::error::ErrorKind::Corrupt => {
                    let text = e.to_string();
                    let _ = report.found(Disagreement { text: &text, key: None, in_file: false });
                    Ok(None)
                }
                done => done.map(|()| None),
            },
        }
    }

    pub(crate) fn integrity_check(&self) -> Result<()> {
        wherever!(Db, self, integrity_check())
    }

    /// Copies the current state, page by page, into an existing empty file. Returns `false` if
    /// `progress` cancelled the copy; `None` if the store has no pages.
    pub(crate) fn copy(&self, to: &Path, progress: impl FnMut(u32, u32) -> bool) -> Result<Option<bool>> {
        match self {
            Db::File(home) => file::copy(home, to, progress).map(Some),
            #[cfg(feature = "remote")]
            Db::Remote(_) => Ok(None),
        }
    }

    /// Returns a description of the store at one moment.
    pub(crate) fn info(&self, clock: &Clock) -> Result<StoreInfo> {
        wherever!(Db, self, info(clock), on a server info())
    }

    /// Returns the number of pages of the database.
    pub(crate) fn page_count(&self) -> Result<u64> {
        in_a_file!(Db, self, page_count(), else Ok(0))
    }

    pub(crate) fn used_bytes(&self) -> Result<u64> {
        in_a_file!(Db, self, used_bytes(), else Ok(0))
    }
}

#[cfg(feature = "encryption")]
impl Db {
    pub(crate) fn is_encrypted(&self) -> bool {
        in_a_file!(Db, self, is_encrypted(), else false)
    }

    pub(crate) fn with_its_secret(&self, config: &Config) -> Config {
        in_a_file!(Db, self, with_its_secret(config), else config.clone())
    }

    #[inline]
    pub(crate) fn check_decrypted(&self) -> Result<()> {
        in_a_file!(Db, self, check_decrypted(), else Ok(()))
    }

    pub(crate) fn convert(&mut self, before: &Config, after: &Config) -> Result<()> {
        in_a_file!(Db, self, convert(before, after), else Err(only_a_file("is encrypted in place")))
    }
}

impl<'d> View<'d> {
    /// Returns the content of a family, as seen through this connection.
    #[inline(always)]
    pub(crate) fn contents<'c>(self, tables: &'c Tables, clock: &'c Clock) -> Contents<'c>
    where
        'd: 'c,
    {
        match self {
            View::File(home) => Contents::File(home.contents(tables, clock)),
            #[cfg(feature = "remote")]
            View::Remote(home) => Contents::Remote(home.contents(tables.family())),
        }
    }

    /// Runs a write so that the size limit of the store holds afterwards, inside a write
    /// transaction. If it cannot hold, the write is undone.
    #[inline]
    pub(crate) fn within_limit(self, clock: &Clock, f: &dyn Fn(View<'_>) -> Result<()>) -> Result<()> {
        match self {
            View::File(home) => home.within_limit(clock, &|home| f(View::File(home))),
            #[cfg(feature = "remote")]
            View::Remote(_) => f(self),
        }
    }

    /// Runs all writes of a batch inside a write transaction, or none of them. Returns the number
    /// of live keys that were deleted.
    ///
    /// Writes to one key run in their order.
    pub(crate) fn write_batch(self, writes: &[BatchWrite<'_>], clock: &Clock) -> Result<u64> {
        wherever!(View, self, write_batch(writes, clock), on a server write_batch(writes))
    }

    /// Returns, once, what the last write removed to stay within the size limit.
    #[inline]
    pub(crate) fn take_removed(self) -> Option<Removed> {
        in_a_file!(View, self, take_removed(), else None)
    }

    /// Removes the noted expired rows.
    pub(crate) fn remove_dead(self, clock: &Clock, now_ms: i64) -> Result<()> {
        in_a_file!(View, self, remove_dead(clock, now_ms), else Ok(()))
    }

    // ---- families ----------------------------------------------------------------------------

    pub(crate) fn create_family(self, tables: &Tables, now_ms: i64) -> Result<bool> {
        wherever!(View, self, create_family(tables, now_ms), on a server create_family(tables.family()))
    }

    pub(crate) fn drop_family(self, tables: &Tables) -> Result<bool> {
        wherever!(View, self, drop_family(tables), on a server drop_family(tables.family()))
    }

    pub(crate) fn family_exists(self, family: &str) -> Result<bool> {
        wherever!(View, self, family_exists(family))
    }

    /// Returns the names of all families, in byte order.
    pub(crate) fn families(self) -> Result<Vec<String>> {
        wherever!(View, self, families())
    }

    pub(crate) fn created_ms(self, tables: &Tables) -> Result<i64> {
        wherever!(View, self, created_ms(tables), on a server created_ms(tables.family()))
    }

    /// Returns the default TTL of a family, in milliseconds; 0 if it has none.
    pub(crate) fn default_ttl_ms(self, tables: &Tables) -> Result<i64> {
        match self {
            View::File(home) => Ok(home.read_settings(tables)?.default_ttl_ms),
            #[cfg(feature = "remote")]
            View::Remote(home) => Ok(home.read_settings(tables.family())?.0),
        }
    }

    pub(crate) fn tracks_writes(self, tables: &Tables) -> Result<bool> {
        match self {
            View::File(home) => Ok(home.read_settings(tables)?.track_writes),
            #[cfg(feature = "remote")]
            View::Remote(home) => Ok(home.read_settings(tables.family())?.1),
        }
    }

    pub(crate) fn set_default_ttl(self, tables: &Tables, ttl_ms: i64) -> Result<()> {
        wherever!(View, self, set_default_ttl(tables, ttl_ms), on a server set_default_ttl(tables.family(), ttl_ms))
    }

    pub(crate) fn set_write_tracking(self, tables: &Tables, on: bool, now_ms: i64) -> Result<()> {
        wherever!(View, self, set_write_tracking(tables, on, now_ms), on a server set_write_tracking(tables.family(), on))
    }

    // ---- expired keys of all families --------------------------------------------------------

    /// Returns up to `max` families that contain expired rows at `now_ms`, and stops early when
    /// `in_time` returns `false`.
    pub(crate) fn due(self, now_ms: i64, max: usize, in_time: impl Fn() -> bool) -> Result<Due> {
        wherever!(View, self, due(now_ms, max, in_time), on a server due(max))
    }

    /// Removes up to `max` of the earliest expired keys of these families, and few once the time is
    /// over.
    pub(crate) fn purge_due(
        self,
        due: &Due,
        clock: &Clock,
        now_ms: i64,
        max: usize,
        in_time: &dyn Fn() -> bool,
    ) -> Result<u64> {
        wherever!(View, self, purge_due(due, clock, now_ms, max, in_time), on a server purge_all(max))
    }

    /// Returns the earliest expiry time in all families.
    pub(crate) fn next_expiry(self, clock: &Clock) -> Result<Option<i64>> {
        wherever!(View, self, next_expiry(clock), on a server next_expiry())
    }

    // ---- maintenance -------------------------------------------------------------------------

    /// Returns the size limit that the store has now.
    pub(crate) fn limit_now(self) -> Result<Option<SizeLimit>> {
        in_a_file!(View, self, limit_now(), else Ok(None))
    }

    /// Returns `true` if a store of this kind can have a size limit.
    pub(crate) fn can_have_limit(self) -> bool {
        matches!(self, View::File(_))
    }

    pub(crate) fn set_limit(self, limit: Option<SizeLimit>, clock: &Clock) -> Result<()> {
        in_a_file!(View, self, set_limit(limit, clock), else Err(only_a_file("has a limit")))
    }

    pub(crate) fn free_pages(self) -> Result<u64> {
        in_a_file!(View, self, free_pages(), else Ok(0))
    }

    pub(crate) fn incremental_vacuum(self, pages: u64) -> Result<()> {
        in_a_file!(View, self, incremental_vacuum(pages), else Ok(()))
    }

    pub(crate) fn repair(self, now_ms: i64, tell: &mut dyn FnMut(Disagreement<'_>)) -> Result<u64> {
        in_a_file!(View, self, repair(now_ms, tell), else Err(only_a_file("can be repaired")))
    }
}

/// Reads.
impl Contents<'_> {
    /// Passes the value and the expiry time of a live key to `visit`.
    #[inline(always)]
    pub(crate) fn get<R>(self, key: &[u8], visit: impl FnOnce(&[u8], Expiry) -> R) -> Result<Found<R>> {
        wherever!(Contents, self, get(key, visit))
    }

    /// Returns the expiry time and the write time of a live key.
    pub(crate) fn times(self, key: &[u8]) -> Result<Found<Times>> {
        wherever!(Contents, self, times(key))
    }

    /// Returns the write time of each of several live keys; `None` for one whose write time is not
    /// known.
    pub(crate) fn write_times(self, keys: &[&[u8]]) -> Result<Vec<Option<i64>>> {
        wherever!(Contents, self, write_times(keys))
    }

    /// Calls `visit` with the index and the lookup result of each key. All results come from one
    /// snapshot.
    pub(crate) fn get_many<K: AsRef<[u8]>>(
        self,
        keys: &[K],
        visit: impl FnMut(usize, Found<&[u8]>),
    ) -> Result<()> {
        wherever!(Contents, self, get_many(keys, visit))
    }

    /// Returns the number of rows.
    pub(crate) fn count(self) -> Result<u64> {
        wherever!(Contents, self, count())
    }

    /// Returns the number of live keys.
    pub(crate) fn count_live(self) -> Result<u64> {
        wherever!(Contents, self, count_live())
    }

    /// Returns the number of keys with an expiry time.
    pub(crate) fn count_ttl(self) -> Result<u64> {
        wherever!(Contents, self, count_ttl())
    }

    /// Returns the earliest expiry time in the family.
    pub(crate) fn next_expiry(self) -> Result<Option<i64>> {
        wherever!(Contents, self, next_expiry())
    }

    /// Returns `true` if a key has an expiry time of `last_ms` or earlier and has expired.
    pub(crate) fn has_expired(self, last_ms: i64, now_ms: i64) -> Result<bool> {
        wherever!(Contents, self, has_expired(last_ms, now_ms), on a server has_expired(last_ms))
    }

    /// Returns `true` if a key was written at `last_ms` or earlier.
    pub(crate) fn has_written_by(self, last_ms: i64) -> Result<bool> {
        wherever!(Contents, self, has_written_by(last_ms))
    }

    /// Reads the next live rows of a scan into an empty chunk. Returns the key of the last row
    /// examined, or `None` at the end of the scan.
    #[inline]
    pub(crate) fn next_rows(self, scan: Scan<'_>, chunk: &mut Chunk) -> Result<Option<Vec<u8>>> {
        wherever!(Contents, self, next_rows(scan, chunk))
    }

    /// Reads the next rows of a walk in the order of expiry time into an empty chunk.
    ///
    /// The entries are those from the current position up to before `to_ms` (`None`: to the end).
    /// Returns the last entry, or `None` at the end.
    pub(crate) fn next_expiring(
        self,
        after: (i64, &[u8]),
        to_ms: Option<i64>,
        chunk: &mut Chunk,
    ) -> Result<Option<TimeEntry>> {
        wherever!(Contents, self, next_expiring(after, to_ms, chunk))
    }
}

/// Writes, each inside a write transaction.
impl Contents<'_> {
    /// Writes a value with options. Returns `true` if the value was written.
    #[inline]
    pub(crate) fn put(self, key: &[u8], value: &[u8], options: &PutOptions) -> Result<bool> {
        wherever!(Contents, self, put(key, value, options))
    }

    /// Deletes a key. Returns `true` if the key was live.
    pub(crate) fn delete(self, key: &[u8]) -> Result<bool> {
        wherever!(Contents, self, delete(key))
    }

    /// Deletes all keys of the family.
    pub(crate) fn clear(self) -> Result<()> {
        wherever!(Contents, self, clear())
    }

    /// Deletes the keys of a range. Returns the number of live keys among them.
    pub(crate) fn delete_range(self, range: Scan<'_>) -> Result<u64> {
        wherever!(Contents, self, delete_range(range))
    }

    /// Writes a value with a new expiry time if the key is live and its value equals `expected`.
    /// Returns `true` if it was written.
    pub(crate) fn compare_and_swap(
        self,
        key: &[u8],
        expected: &[u8],
        value: &[u8],
        expiry: Option<Expiry>,
    ) -> Result<bool> {
        wherever!(Contents, self, compare_and_swap(key, expected, value, expiry))
    }

    /// Deletes a key if it is live and its value equals `expected`. Returns `true` if it was
    /// deleted.
    pub(crate) fn compare_and_delete(self, key: &[u8], expected: &[u8]) -> Result<bool> {
        wherever!(Contents, self, compare_and_delete(key, expected))
    }

    /// Adds `delta` to the number in the value of a key. Returns the sum and the length of its
    /// text.
    ///
    /// A key that is missing or expired counts as 0. It gets `expiry`; with `None` the default TTL
    /// of the family.
    pub(crate) fn increment(self, key: &[u8], delta: i64, expiry: Option<Expiry>) -> Result<(i64, usize)> {
        wherever!(Contents, self, increment(key, delta, expiry))
    }

    /// Changes the expiry time of a live key if `condition` holds. Returns whether it was changed;
    /// `None` if the key is missing or expired.
    pub(crate) fn expire(
        self,
        key: &[u8],
        expiry: Expiry,
        condition: ExpiryCondition,
    ) -> Result<Option<bool>> {
        wherever!(Contents, self, expire(key, expiry, condition))
    }

    /// Passes the value of a live key to `visit`, then changes the expiry time of the key. Returns
    /// `None` if the key is missing or expired.
    ///
    /// If `visit` fails, nothing is changed.
    pub(crate) fn get_and_expire<R>(
        self,
        key: &[u8],
        expiry: Expiry,
        visit: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<Option<R>> {
        wherever!(Contents, self, get_and_expire(key, expiry, visit))
    }

    /// Removes up to `max` keys with `expire_ms <= min(last_ms, now_ms)`, earliest expiry time
    /// first.
    pub(crate) fn purge(self, last_ms: i64, now_ms: i64, max: usize) -> Result<Removals> {
        wherever!(Contents, self, purge(last_ms, now_ms, max), on a server purge(last_ms, max))
    }

    /// Removes up to `max` keys that were written at `last_ms` or earlier, live or expired, the
    /// oldest first.
    pub(crate) fn sweep(self, last_ms: i64, max: usize) -> Result<Removals> {
        wherever!(Contents, self, sweep(last_ms, max))
    }
}

#[cfg(feature = "remote")]
fn open_on_a_server(url: &std::ffi::OsStr, config: &Config, clock: &Arc<Clock>) -> Result<Db> {
    config.check()?;
    let url =
        url.to_str().ok_or_else(|| Error::cant_open("the URL is not UTF-8: write other bytes as %XX"))?;
    postgres::Db::open(url, config, Arc::clone(clock)).map(|home| Db::Remote(Box::new(home)))
}

/// Returns the error for an operation on a server that only a store in a file supports.
#[cfg(feature = "remote")]
fn only_a_file(does: &str) -> Error {
    Error::invalid(format!("only a store in a file {does}, and this store is on a server"))
}

#[cfg(not(feature = "remote"))]
fn open_on_a_server(_: &std::ffi::OsStr, _: &Config, _: &Arc<Clock>) -> Result<Db> {
    // The message does not contain the URL, which may contain a password.
    Err(Error::cant_open(
        "the path is the URL of a server, and this build of the library has no stores on \
        servers",
    )
    .with_hint(Hint::BuildWithServer))
}

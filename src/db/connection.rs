//! One connection: its transactions, checkpoints and maintenance. Opening is in `open.rs`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, FileControl, ffi};

use super::engine::Rows;
#[cfg(kvstore_btree)]
use super::engine::btree::{BtreeEngine, Direct};
use super::engine::sql::SqlEngine;
use super::schema::{self, Settings, Tables};
use super::{integrity, open};
use crate::config::{AUTO_CHECKPOINT_PAGES, CheckpointMode, Config, SyncLevel};
use crate::error::{Error, Result};

/// How much the WAL grows between two checkpoints after which it did not begin anew.
const RETRY_PAGES: u32 = AUTO_CHECKPOINT_PAGES / 4;
/// How long such a checkpoint waits for others.
const MIN_WAIT: Duration = Duration::from_millis(10);
const MAX_WAIT: Duration = Duration::from_millis(100);

/// The caller's transaction on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Transaction {
    None,
    Read,
    Write,
    /// A write transaction in which a write failed half-way, or that SQLite has ended: all it can do is roll back.
    Doomed(Error),
    /// A read transaction whose snapshot is gone, because SQLite ends a transaction itself when it runs out of
    /// memory or cannot read: nothing may be read until it is ended.
    Lost(Error),
}

/// A SQLite connection to a store.
pub(crate) struct Db {
    /// Before the connection, so that it is dropped first. `None`: this handle uses the `sql` engine.
    #[cfg(kvstore_btree)]
    pub(super) direct: Option<Direct>,
    /// Whether commits need no waiting for readers, which is SQL's part.
    #[cfg(kvstore_btree)]
    pub(super) writes_directly: bool,
    /// To be used through `sql()` once the store is open.
    pub(super) conn: Connection,
    pub(super) transaction: Transaction,
    /// The file, unless in memory.
    pub(super) path: Option<PathBuf>,
    pub(super) sync: SyncLevel,
    pub(super) busy_timeout: Duration,
    pub(super) read_only: bool,
    pub(super) max_inline: usize,
    /// Frames in the WAL after the last commit, written by the WAL hook.
    pub(super) wal_frames: Arc<AtomicU32>,
    /// Frames from which on an automatic checkpoint is tried.
    pub(super) checkpoint_at: u32,
    /// How long the WAL was at the last checkpoint.
    pub(super) checkpointed_to: u32,
    pub(super) checkpoint_every: Option<u32>,
    pub(super) commits_since_checkpoint: u32,
    pub(super) settings: RefCell<SettingsCache>,
    /// Last, so that it is dropped after the connection.
    pub(super) file: Option<crate::fork::OpenFile>,
}

/// Settings of families as read at a certain state of the file.
#[derive(Default)]
pub(super) struct SettingsCache {
    version: u32,
    of: BTreeMap<String, Settings>,
}

impl Db {
    /// Opens the store at `path` (`None`: in memory), making it if it is not there.
    pub(crate) fn open(path: Option<&Path>, config: &Config, now_ms: i64) -> Result<Db> {
        open::open(path, config, now_ms)
    }

    /// The row operations.
    #[inline]
    pub(crate) fn rows(&self) -> Rows<'_> {
        #[cfg(kvstore_btree)]
        if let Some(direct) = &self.direct {
            return Rows::Btree(BtreeEngine { db: self, direct });
        }
        Rows::Sql(SqlEngine { db: self })
    }

    /// The connection, to run SQL on.
    #[inline]
    pub(super) fn sql(&self) -> Result<&Connection> {
        #[cfg(kvstore_btree)]
        if let Some(direct) = &self.direct {
            direct.make_way(&self.conn)?;
        }
        Ok(&self.conn)
    }

    /// The file, with symbolic links followed; `None` in memory.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.path.clone()
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// How many bytes a key and an inline value may have together, in this file.
    pub(crate) fn max_inline(&self) -> usize {
        self.max_inline
    }

    // ---- transactions ------------------------------------------------------------------------

    pub(crate) fn transaction(&self) -> &Transaction {
        &self.transaction
    }

    /// Begins the caller's read transaction, whose snapshot is the state of this moment.
    pub(crate) fn begin_read(&mut self) -> Result<()> {
        self.execute("BEGIN")?;
        if let Err(e) = self.read_first() {
            self.roll_back_quietly();
            return Err(e);
        }
        self.transaction = Transaction::Read;
        Ok(())
    }

    /// Begins the caller's write transaction.
    pub(crate) fn begin_write(&mut self) -> Result<()> {
        self.begin_immediate()?;
        self.transaction = Transaction::Write;
        Ok(())
    }

    /// Commits the caller's transaction. After `Busy` it is still open, and commit may be called
    /// again; after any other failure it can only be rolled back.
    pub(crate) fn commit(&mut self) -> Result<()> {
        match &self.transaction {
            Transaction::None => return Err(no_transaction("commit")),
            Transaction::Doomed(why) => {
                return Err(why.with_message(format!(
                    "the transaction cannot be committed because a call in it failed ({why}); roll it back"
                )));
            }
            Transaction::Lost(why) => return Err(lost(why)),
            Transaction::Read | Transaction::Write => {}
        }
        match self.execute("COMMIT") {
            Ok(()) => {
                self.transaction = Transaction::None;
                Ok(())
            }
            Err(e) => {
                if self.transaction == Transaction::Write
                    && (e.kind() != crate::ErrorKind::Busy || self.is_idle())
                {
                    self.transaction = Transaction::Doomed(e.clone());
                }
                Err(e)
            }
        }
    }

    /// Rolls the caller's transaction back.
    pub(crate) fn rollback(&mut self) -> Result<()> {
        if self.transaction == Transaction::None {
            return Err(no_transaction("roll back"));
        }
        self.transaction = Transaction::None;
        self.rolled_back();
        if self.is_idle() {
            return Ok(()); // SQLite itself has rolled back after the failure
        }
        self.execute("ROLLBACK")
    }

    /// Rolls back what is open although the caller has no transaction: a rollback has failed, for lack of
    /// memory. To be called before anything else: nobody may read what is left of it, or commit it.
    #[inline]
    pub(crate) fn roll_back_remains(&self) -> Result<()> {
        if self.transaction != Transaction::None || self.is_idle() {
            return Ok(());
        }
        self.rolled_back();
        self.execute("ROLLBACK")
    }

    /// Fails if the caller's transaction has no snapshot any more.
    #[inline]
    pub(crate) fn check_snapshot(&self) -> Result<()> {
        match &self.transaction {
            Transaction::Lost(why) => Err(lost(why)),
            _ => Ok(()),
        }
    }

    /// To be called when anything has failed, a read, too: SQLite may have ended the caller's transaction. What is
    /// written afterwards would be committed at once, what is read would be of another moment.
    #[cold]
    pub(crate) fn note_failure(&mut self, why: &Error) {
        if self.transaction == Transaction::None || !self.is_idle() {
            return;
        }
        match self.transaction {
            Transaction::Write => self.doom(why),
            Transaction::Read => self.transaction = Transaction::Lost(why.clone()),
            Transaction::None | Transaction::Doomed(_) | Transaction::Lost(_) => {}
        }
    }

    /// Marks the caller's write transaction as one that can only be rolled back.
    pub(crate) fn doom(&mut self, why: &Error) {
        if self.transaction == Transaction::Write {
            self.transaction = Transaction::Doomed(why.clone());
            self.rolled_back(); // SQLite may have done so by itself
        }
    }

    /// Runs `f` in a write transaction of its own. `wait`: whether to wait for another writer's
    /// lock as long as the configuration says.
    pub(crate) fn in_own_transaction<R>(
        &mut self,
        wait: bool,
        f: impl FnOnce(&Db) -> Result<R>,
    ) -> Result<R> {
        if wait {
            return self.run_transaction(f);
        }
        self.set_busy_timeout(Duration::ZERO)?;
        let done = self.run_transaction(f); // in DELETE journal mode the commit may wait, too
        self.set_busy_timeout(self.busy_timeout)?;
        done
    }

    fn run_transaction<R>(&self, f: impl FnOnce(&Db) -> Result<R>) -> Result<R> {
        #[cfg(kvstore_btree)]
        if let Some(direct) = &self.direct
            && self.writes_directly
            && direct.begin_write()?
        {
            return self.run_direct_transaction(direct, f);
        }
        self.begin_immediate()?;
        let done = f(self).and_then(|r| self.execute("COMMIT").map(|()| r));
        if done.is_err() {
            self.roll_back_quietly();
        }
        done
    }

    /// The same in a transaction that was begun directly. If something in it needs SQL (a new table), it
    /// becomes one of SQL's on the way.
    #[cfg(kvstore_btree)]
    fn run_direct_transaction<R>(&self, direct: &Direct, f: impl FnOnce(&Db) -> Result<R>) -> Result<R> {
        let done = f(self).and_then(|r| {
            if !direct.is_writing() {
                return self.execute("COMMIT").map(|()| r);
            }
            if let Some(frames) = direct.commit()? {
                self.wal_frames.store(frames, Ordering::Relaxed);
            }
            Ok(r)
        });
        if done.is_err() {
            if direct.is_writing() {
                direct.rollback();
            }
            self.roll_back_quietly();
        }
        done
    }

    /// Runs `f` on one snapshot: the caller's transaction, or a read transaction of its own.
    pub(crate) fn in_snapshot<R>(&self, f: impl FnOnce(&Db) -> Result<R>) -> Result<R> {
        if self.transaction != Transaction::None {
            return f(self);
        }
        self.execute("BEGIN")?;
        let done = f(self);
        // Nothing was written: this only ends the snapshot.
        if self.execute("COMMIT").is_err() {
            self.roll_back_quietly();
        }
        done
    }

    /// Runs `f` inside a write transaction such that, if it fails, nothing of it is left in it.
    pub(crate) fn in_savepoint<R>(&self, f: impl FnOnce(&Db) -> Result<R>) -> Result<R> {
        if self.transaction == Transaction::None {
            return f(self); // in a transaction of its own, which is rolled back as a whole
        }
        self.execute("SAVEPOINT kvstore")?;
        let done = f(self);
        if done.is_err() {
            self.rolled_back();
            if !self.is_idle() {
                self.execute("ROLLBACK TO kvstore")?;
            }
        }
        if !self.is_idle() {
            self.execute("RELEASE kvstore")?;
        }
        done
    }

    fn begin_immediate(&self) -> Result<()> {
        self.execute("BEGIN IMMEDIATE")
    }

    fn roll_back_quietly(&self) {
        self.rolled_back();
        if !self.is_idle() {
            // A rollback that fails has nothing left to roll back: the error that led here counts.
            let _ = self.execute("ROLLBACK");
        }
    }

    /// Whether no transaction is open that SQL has begun.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.conn.is_autocommit()
    }

    /// To be called when something is rolled back.
    fn rolled_back(&self) {
        self.forget_settings(); // they may have been changed in what is rolled back
        #[cfg(kvstore_btree)]
        if let Some(direct) = &self.direct {
            direct.rolled_back();
        }
    }

    // ---- families ----------------------------------------------------------------------------

    /// Makes a family, inside a write transaction; `false`: it is there already.
    pub(crate) fn create_family(&self, tables: &Tables, now_ms: i64) -> Result<bool> {
        if schema::family_exists(self.sql()?, tables.family())? {
            return Ok(false);
        }
        self.forget_settings();
        schema::create_family(self.sql()?, tables, now_ms)?;
        Ok(true)
    }

    /// Drops a family, inside a write transaction; `false`: there is none.
    pub(crate) fn drop_family(&self, tables: &Tables) -> Result<bool> {
        self.forget_settings();
        schema::drop_family(self.sql()?, tables)
    }

    pub(crate) fn family_exists(&self, family: &str) -> Result<bool> {
        schema::family_exists(self.sql()?, family)
    }

    /// All families, the default one included.
    pub(crate) fn families(&self) -> Result<Vec<String>> {
        schema::families(self.sql()?)
    }

    /// The settings of a family, as they are in the open write transaction: others may change them
    /// at any time, and the change counts from its commit on.
    pub(crate) fn settings(&self, tables: &Tables) -> Result<Settings> {
        let version = self.data_version()?;
        let mut cache = self.settings.borrow_mut();
        if cache.version != version {
            cache.version = version;
            cache.of.clear();
        }
        if let Some(settings) = cache.of.get(tables.family()) {
            return Ok(*settings);
        }
        let settings = self.read_settings(tables)?;
        cache.of.insert(tables.family().to_owned(), settings);
        Ok(settings)
    }

    /// Changes when this write transaction sees commits of other connections. No statement is run.
    fn data_version(&self) -> Result<u32> {
        #[cfg(kvstore_btree)]
        if let Some(commits) = self.direct.as_ref().and_then(Direct::commits_of_others) {
            return Ok(commits);
        }
        let mut version = 0u32; // this one also changes with commits of this connection
        self.conn.file_control(Some(c"main"), FileControl::DataVersion(&mut version)).map_err(translate)?;
        Ok(version)
    }

    /// The settings of a family, read from the file.
    pub(crate) fn read_settings(&self, tables: &Tables) -> Result<Settings> {
        schema::settings(self.sql()?, tables.family())?.ok_or_else(|| schema::no_longer_exists(tables))
    }

    /// Sets the TTL of plain puts, inside a write transaction.
    pub(crate) fn set_default_ttl(&self, tables: &Tables, ttl_ms: i64) -> Result<()> {
        self.settings(tables)?; // is the family still there?
        self.forget_settings();
        schema::set_default_ttl(self.sql()?, tables.family(), ttl_ms)
    }

    /// Switches write tracking, inside a write transaction.
    pub(crate) fn set_write_tracking(&self, tables: &Tables, on: bool, now_ms: i64) -> Result<()> {
        if self.settings(tables)?.track_writes == on {
            return Ok(());
        }
        self.forget_settings();
        match on {
            true => schema::track_writes(self.sql()?, tables, now_ms),
            false => schema::forget_writes(self.sql()?, tables),
        }
    }

    fn forget_settings(&self) {
        self.settings.borrow_mut().of.clear();
    }

    pub(crate) fn create_ttl_tables(&self, tables: &Tables) -> Result<()> {
        schema::create_ttl_tables(self.sql()?, tables)
    }

    pub(crate) fn create_blob_table(&self, tables: &Tables) -> Result<()> {
        schema::create_blob_table(self.sql()?, tables)
    }

    // ---- maintenance -------------------------------------------------------------------------

    /// Writes the WAL's content to the database file; gives the WAL's length and how much of it is
    /// written, in frames.
    pub(crate) fn checkpoint(&mut self, mode: CheckpointMode) -> Result<(u32, u32)> {
        self.checkpoint_within(mode, self.busy_timeout)
    }

    /// The same, waiting for others at most this long.
    pub(crate) fn checkpoint_within(&mut self, mode: CheckpointMode, wait: Duration) -> Result<(u32, u32)> {
        self.set_busy_timeout(wait)?;
        let done = self.run_checkpoint(mode);
        self.set_busy_timeout(self.busy_timeout)?;
        done
    }

    fn run_checkpoint(&mut self, mode: CheckpointMode) -> Result<(u32, u32)> {
        if self.transaction != Transaction::None {
            return Err(Error::Busy(
                "a transaction is open on this handle: commit or roll back, then checkpoint".into(),
            ));
        }
        let mode = match mode {
            CheckpointMode::Passive => rusqlite::wal::CheckpointMode::PASSIVE,
            CheckpointMode::Full => rusqlite::wal::CheckpointMode::FULL,
            CheckpointMode::Restart => rusqlite::wal::CheckpointMode::RESTART,
            CheckpointMode::Truncate => rusqlite::wal::CheckpointMode::TRUNCATE,
        };
        let (log, done) = self.sql()?.wal_checkpoint_v2(Some(c"main"), mode).map_err(translate)?;
        // Not in WAL mode: -1 and -1.
        let (log, done) = (log.max(0).unsigned_abs(), done.max(0).unsigned_abs());
        self.commits_since_checkpoint = 0;
        self.checkpointed_to = log;
        // Tried again when the WAL has grown some more, if it does not begin anew before that.
        self.checkpoint_at = log.saturating_add(RETRY_PAGES).max(AUTO_CHECKPOINT_PAGES);
        if log == done {
            self.wal_frames.store(0, Ordering::Relaxed);
        }
        Ok((log, done))
    }

    /// To be called after each write commit: says whether the WAL is to be checkpointed now.
    pub(crate) fn checkpoint_is_due(&mut self) -> bool {
        #[cfg(kvstore_btree)]
        {
            let frames = self.wal_frames();
            if let Some(direct) = &mut self.direct {
                direct.wal_grown_to(frames);
            }
        }
        if self.wal_frames() < self.checkpointed_to {
            // It has begun anew.
            self.checkpointed_to = 0;
            self.checkpoint_at = AUTO_CHECKPOINT_PAGES;
        }
        self.commits_since_checkpoint = self.commits_since_checkpoint.saturating_add(1);
        match self.checkpoint_every {
            Some(every) => self.commits_since_checkpoint >= every,
            None => self.wal_is_long(),
        }
    }

    pub(crate) fn wal_is_long(&self) -> bool {
        self.wal_frames() >= self.checkpoint_at
    }

    /// A checkpoint that nobody has asked for; says whether it was done.
    ///
    /// A passive one waits for nobody, but leaves what others write meanwhile: with several writers the
    /// WAL might never begin anew. So when it has grown on after one, others are kept from writing, and
    /// readers are waited for, if only for a moment.
    pub(crate) fn checkpoint_by_itself(&mut self, may_keep_writers_out: bool) -> bool {
        let frames = self.wal_frames();
        let done = if !may_keep_writers_out || frames < AUTO_CHECKPOINT_PAGES + RETRY_PAGES {
            self.checkpoint(CheckpointMode::Passive)
        } else {
            self.checkpoint_within(CheckpointMode::Restart, self.busy_timeout.clamp(MIN_WAIT, MAX_WAIT))
        };
        if done.is_err() {
            self.checkpoint_at = frames.saturating_add(RETRY_PAGES);
        }
        done.is_ok()
    }

    /// Ends the snapshot that is kept between reads.
    pub(crate) fn let_reads_go(&mut self) {
        let _ = self.sql(); // fails only in the middle of a write
    }

    pub(crate) fn file_identity(&self) -> Option<crate::fork::FileIdentity> {
        self.file.as_ref().map(crate::fork::OpenFile::identity)
    }

    pub(crate) fn wal_frames(&self) -> u32 {
        self.wal_frames.load(Ordering::Relaxed)
    }

    pub(crate) fn page_count(&self) -> Result<u64> {
        self.read_number("PRAGMA page_count").map(i64::unsigned_abs)
    }

    /// Makes all commits so far durable.
    pub(crate) fn sync(&mut self) -> Result<()> {
        let Some(path) = self.path.clone() else { return Ok(()) };
        match self.sync {
            // Commits are in the WAL, and checkpoints sync by themselves. The WAL carries no locks, so
            // it may be opened and closed beside SQLite. In DELETE mode each commit has synced the file, and
            // what is left is that its journal is gone.
            SyncLevel::Normal | SyncLevel::Full => sync_wal(&path),
            SyncLevel::Off if self.read_only => Ok(()),
            SyncLevel::Off if self.transaction != Transaction::None => Err(Error::Busy(
                "a transaction is open: with sync level OFF, sync works only after commit or rollback".into(),
            )),
            SyncLevel::Off => self.sync_by_commit(),
        }
    }

    /// With sync level OFF nothing was ever synced. A synced commit and, in WAL mode, a checkpoint
    /// sync everything there is.
    fn sync_by_commit(&mut self) -> Result<()> {
        let version = schema::FORMAT_VERSION;
        self.execute("PRAGMA synchronous = EXTRA")?; // also syncs the removal of a rollback journal
        let done = self
            .execute(&format!("PRAGMA user_version = {version}"))
            .and_then(|()| self.checkpoint(CheckpointMode::Passive).map(drop));
        self.execute("PRAGMA synchronous = OFF")?;
        done
    }

    /// Pages that hold nothing.
    pub(crate) fn free_pages(&self) -> Result<u64> {
        self.read_number("PRAGMA freelist_count").map(i64::unsigned_abs)
    }

    /// Gives at most `pages` free pages back to the file system.
    pub(crate) fn incremental_vacuum(&self, pages: u64) -> Result<()> {
        let mut statement =
            self.sql()?.prepare(&format!("PRAGMA incremental_vacuum({pages})")).map_err(translate)?;
        let mut rows = statement.raw_query();
        while rows.next().map_err(translate)?.is_some() {} // one page a step
        Ok(())
    }

    /// Checks the file and the agreement of all tables; the first disagreement is the error.
    pub(crate) fn integrity_check(&self) -> Result<()> {
        self.in_snapshot(|db| integrity::check(db.sql()?))
    }

    /// Rolls back what is open and closes. The connection is gone even if this fails.
    pub(crate) fn close(self) -> Result<()> {
        self.roll_back_quietly();
        #[cfg(kvstore_btree)]
        let Db { direct, conn, file, .. } = self;
        #[cfg(kvstore_btree)]
        drop(direct);
        #[cfg(not(kvstore_btree))]
        let Db { conn, file, .. } = self;
        let closed = conn.close().map_err(|(_, e)| translate(e));
        drop(file);
        closed
    }

    // ---- helpers -----------------------------------------------------------------------------

    pub(super) fn set_busy_timeout(&self, wait: Duration) -> Result<()> {
        self.conn.busy_timeout(wait).map_err(translate)
    }

    pub(super) fn execute(&self, sql: &str) -> Result<()> {
        let mut statement = self.sql()?.prepare_cached(sql).map_err(translate)?;
        let mut rows = statement.raw_query();
        while rows.next().map_err(translate)?.is_some() {} // some pragmas answer with a row
        Ok(())
    }

    /// Reads something: BEGIN alone takes no snapshot, and an open alone opens no WAL; the first read does.
    pub(super) fn read_first(&self) -> Result<()> {
        self.read_number("SELECT count(*) FROM kvstore_meta").map(drop)
    }

    pub(super) fn read_number(&self, sql: &str) -> Result<i64> {
        self.sql()?.prepare_cached(sql).and_then(|mut s| s.query_row([], |row| row.get(0))).map_err(translate)
    }
}

fn no_transaction(what: &str) -> Error {
    Error::Invalid(format!("there is no transaction to {what}: begin one first"))
}

#[cold]
fn lost(why: &Error) -> Error {
    why.with_message(format!(
        "the read transaction has lost its snapshot because something in it failed ({why}); roll it back"
    ))
}

/// A file of SQLite's beside the one at a path without symbolic links.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn sync_wal(path: &Path) -> Result<()> {
    let failed = |e: std::io::Error| Error::Io(format!("cannot sync the WAL: {e}"));
    match std::fs::File::open(beside(path, "-wal")) {
        Ok(file) => file.sync_all().map_err(failed)?,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {} // not in WAL mode
        Err(e) => return Err(failed(e)),
    }
    // The WAL may be new, or a rollback journal removed: that must last, too.
    match path.parent().map(std::fs::File::open) {
        Some(Ok(directory)) => directory.sync_all().map_err(failed),
        _ => Ok(()), // a system on which directories cannot be opened
    }
}

/// SQLite's error as ours. SQLite's texts name tables and columns, never their content.
pub(super) fn translate(error: rusqlite::Error) -> Error {
    let (code, text) = match &error {
        rusqlite::Error::SqliteFailure(error, message) => {
            (*error, message.clone().unwrap_or_else(|| error.to_string()))
        }
        rusqlite::Error::SqlInputError { error, msg, .. } => (*error, msg.clone()),
        _ => return Error::Failed(error.to_string()),
    };
    match code.code {
        ErrorCode::DatabaseBusy => Error::Busy(format!(
            "another handle or process holds the lock ({text}): retry, or set a busy timeout"
        )),
        ErrorCode::DatabaseLocked => Error::Locked(text),
        // SQLite has no memory for a text of its own then; rusqlite's may be the path.
        ErrorCode::OutOfMemory => Error::NoMemory("out of memory".into()),
        ErrorCode::ReadOnly => Error::ReadOnly(text),
        ErrorCode::SystemIoFailure => Error::Io(format!(
            "the operating system could not read or write ({text}): look at the disk, its space and its limits"
        )),
        ErrorCode::DatabaseCorrupt => Error::Corrupt(text),
        ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::NoLargeFileSupport => {
            Error::CantOpen(text)
        }
        ErrorCode::FileLockingProtocolFailed => Error::Protocol(text),
        ErrorCode::NotADatabase => Error::NotADatabase(text),
        // Of a page number that no file can have, too, SQLite says that it is full.
        ErrorCode::DiskFull => Error::Full(format!(
            "{text}: make room, then try again; if there is room, the file is damaged: run the integrity check"
        )),
        ErrorCode::ConstraintViolation => Error::Failed(format!(
            "what another program has added to the table forbids this row ({text}): drop that index or constraint"
        )),
        _ if code.extended_code == ffi::SQLITE_AUTH => Error::AuthFailed(text),
        _ => Error::Failed(text),
    }
}

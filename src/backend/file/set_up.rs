//! Set-up of a new connection: applies the configuration, creates the store if the file is new, and
//! checks the format of a store that exists.

#[cfg(feature = "encryption")]
use std::cell::Cell;
use std::cell::RefCell;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::INLINE_PAGE_FRACTION;
use super::backfill::WriteBack;
use super::checkpoint_schedule::CheckpointSchedule;
#[cfg(feature = "encryption")]
use super::cipher;
use super::connection::{Db, Owner};
use super::disk_reserve::DiskSpace;
use super::engine::btree::{BtreeConnection, Keep};
use super::error::translate;
use super::expired_ranges::ExpiredRanges;
use super::immutable_state::Immutable;
use super::moved_file::Watched;
use super::os::{self, BusyHandler, FileLocation, OsFile, Presence, WalFrames, WalIndex};
use super::probe::not_ours;
use super::quota::QuotaTracker;
use super::schema;
use super::wal_cleanup::Leftovers;
use crate::backend::TransactionState;
use crate::config::{Config, JournalMode, SyncLevel};
use crate::error::{Error, Result};
use crate::hint::Hint;
use crate::location::sibling;
use crate::wait;

/// Minimum time for which an open waits for a lock, even if the configuration says not to wait.
///
/// Creating a file or converting its journal mode needs a lock that other connections hold for a
/// short time while they open the file.
const OPEN_WAIT: Duration = Duration::from_secs(2);
/// Busy timeout of SQLite during an open. When SQLite has waited for this time, the open tries
/// again.
///
/// SQLite checks a lock less and less often while it waits. In DELETE mode, while other connections
/// write without a pause, only frequent checks find the lock free between two transactions.
const OPEN_SLICE: Duration = Duration::from_millis(8);

/// Database file that is being opened: its path, its location and, if it is kept, the descriptor
/// with which it was examined.
pub(super) struct Found<'p> {
    pub(super) path: &'p Path,
    pub(super) place: FileLocation,
    /// Descriptor with which the file was examined, kept if file locks belong to it instead of to
    /// the process. It becomes the `Presence`, which shows other processes that the store is open.
    pub(super) file: Option<OsFile>,
}

/// Applies the configuration to a connection, and creates the store if the file is new.
pub(super) fn set_up(
    conn: Connection,
    file: Option<Found>,
    immutable: Option<Box<Immutable>>,
    config: &Config,
    now_ms: i64,
) -> Result<Db> {
    let (path, place, looked_with) = match file {
        Some(Found { path, place, file }) => (Some(path), Some(place), file),
        None => (None, None, None),
    };
    let leftovers = match (path, &place) {
        (Some(path), Some(place)) if config.read_only && immutable.is_none() => {
            Some(Leftovers::of(path, place.file()))
        }
        _ => None,
    };
    #[cfg(feature = "encryption")]
    if let Some(secret) = &config.file.secret {
        cipher::set_secret(&conn, "main", secret)?;
        // Until the secret has proved right, nothing is written. So there is no checkpoint at the
        // close, for a WAL that another process has left.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(translate)?;
    }
    let wal_frames = WalFrames::of(&conn); // `Db` decides when to run a checkpoint
    distrust(&conn)?;
    conn.set_prepared_statement_cache_capacity(256);

    let mut db = Db {
        owner: Owner::default(),
        btree: None,
        writes_directly: false,
        conn,
        transaction: TransactionState::None,
        path: path.map(Path::to_owned),
        sync: config.file.sync,
        busy_timeout: config.busy_timeout,
        read_only: config.read_only,
        secure_delete: config.file.secure_delete,
        max_inline: 0,
        wal_frames,
        checkpoints: CheckpointSchedule::new(&config.file),
        settings: RefCell::default(),
        watched: place.map(Watched::new),
        immutable,
        presence: None,
        next_expiry: RefCell::default(),
        next_written: RefCell::default(),
        expired_ranges: ExpiredRanges::default(),
        quota: QuotaTracker::default(),
        disk_space: DiskSpace::default(),
        pending: RefCell::default(),
        removals_that_fit: usize::MAX,
        #[cfg(feature = "encryption")]
        encrypted: config.file.is_encrypted().then(|| Box::new(config.clone())),
        #[cfg(feature = "encryption")]
        reads_seen: Cell::new(u64::MAX),
        #[cfg(feature = "encryption")]
        spoilt: None,
        busy: BusyHandler::default(),
        _leftovers: leftovers,
        kept_wal: None,
    };
    if !config.file.sql_engine {
        db.btree = BtreeConnection::new(&db.conn)?;
    }
    db.set_busy_timeout(OPEN_SLICE)?;
    if config.file.secure_delete && path.is_some() && !config.read_only {
        wipe_what_goes(&db.conn, config.file.sync)?;
    }
    // The first read, wherever it is, shows whether the secret is right.
    let explained = |e: Error| {
        #[cfg(feature = "encryption")]
        if config.file.is_encrypted() {
            return cipher::as_wrong_secret(&db.conn, e);
        }
        e
    };
    until_free(config, || db.configure(&config.file)).map_err(explained)?;
    // These reads use one snapshot, so that one read lock suffices. In DELETE mode, while other
    // connections write without a pause, a read lock is seldom available.
    let is_known = |db: &Db| {
        if !db.is_ours().map_err(explained)? {
            return Ok(false);
        }
        check_format(db, config)?;
        if !config.file.damaged {
            db.check_list_of_tables()?;
        }
        // The length of the WAL depends on the limit. An error is ignored here, because it occurs
        // again where the limit is used.
        let _ = db.read_limit();
        Ok(true)
    };
    let is_there = until_free(config, || db.in_snapshot(is_known))?;
    #[cfg(feature = "encryption")]
    db.conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(translate)?;
    let ready = make_ready(&mut db, is_there, looked_with, config, now_ms);
    #[cfg(feature = "encryption")]
    let ready = db.without_failed_reads(ready);
    ready.map(|()| db)
}

/// Creates the store unless it exists (`is_there`), and applies the settings that depend on the
/// content of the file. `looked_with` is the descriptor with which the file was examined, if it can
/// become the `Presence` of the connection.
fn make_ready(
    db: &mut Db,
    is_there: bool,
    looked_with: Option<OsFile>,
    config: &Config,
    now_ms: i64,
) -> Result<()> {
    if !is_there {
        if config.read_only {
            return Err(not_ours());
        }
        until_free(config, || create_if_new(db, config, now_ms))?;
        until_free(config, || check_format(db, config))?;
    }
    if !config.read_only {
        // This must come before SQLite uses the remains as a journal of its own and removes it. An
        // error is ignored, because the next open tries again.
        #[cfg(feature = "encryption")]
        let _ = db.remove_remains_of_conversion();
        let converts = !(is_there && config.file.keep_journal_mode);
        let converted = converts && until_free(config, || convert_journal(db, config.file.journal_mode))?;
        if config.file.exclusive {
            // In DELETE mode only a write takes the lock that excludes other connections.
            until_free(config, || db.execute("BEGIN EXCLUSIVE").and_then(|()| db.execute("COMMIT")))?;
        }
        if converted && config.file.journal_mode == JournalMode::Wal {
            until_free(config, || db.read_first())?; // this creates the WAL
        }
        db.relax()?;
    }
    let page_size = db.page_size()?;
    if config.file.secure_delete && !config.read_only {
        os::vfs::wipe_pages(&db.conn, db.pages_to_wipe()?)?;
    }
    db.max_inline = usize::try_from(page_size).unwrap_or(0) / INLINE_PAGE_FRACTION;
    if config.file.sync == SyncLevel::Full {
        os::vfs::syncs_commits(&db.conn)?;
    }
    db.set_length_of_wal(db.limit_in_pages())?;
    db.set_busy_timeout(config.busy_timeout)?;
    // Prepared now, so that they work when memory is exhausted.
    for sql in ["BEGIN", "COMMIT", "ROLLBACK"] {
        drop(db.switch_to_sql()?.prepare_cached(sql).map_err(translate)?);
    }
    let has_wal = db.journal_mode()? == Some(JournalMode::Wal);
    if let Some(path) = &db.path
        && !config.file.exclusive
        && db.immutable.is_none()
    {
        db.presence = looked_with.map_or_else(|| Presence::on(path), Presence::with);
        if let (Some(watched), true) = (&mut db.watched, has_wal) {
            watched.watch_wal();
        }
        let index = if has_wal && !config.read_only { WalIndex::of(&db.conn) } else { None };
        if let Some(index) = index {
            db.busy.count_waits_in(index);
        }
        let writes_back = config.file.sync != SyncLevel::Off && config.file.checkpoint_every.is_none();
        if let (Some(presence), Some(index), true) = (&db.presence, index, writes_back)
            && let Ok(wal) = OsFile::open(&sibling(path, "-wal"), false, false)
        {
            let presence = Arc::clone(presence);
            db.checkpoints.write_back_with(WriteBack::new(index, presence, wal, page_size));
        }
    }
    if !has_wal && db.presence.is_some() {
        // In DELETE mode, other processes could not see this handle before it had its `Presence`.
        // One of them may have encrypted or decrypted the file since it was read.
        until_free(config, || db.is_ours())?;
    }
    if !config.read_only {
        // Before `watch`: this reads, and an idle handle that has not been used keeps no snapshot.
        until_free(config, || db.begin_reserving(has_wal))?;
    }
    watch(db, config, has_wal);
    Ok(())
}

/// Configures the `btree` engine, if the connection uses it: when it keeps snapshots between reads,
/// and whether it writes without SQL.
fn watch(db: &mut Db, config: &Config, has_wal: bool) {
    let Some(mut btree) = db.btree.take() else { return };
    let alone = db.path.is_none() || config.file.exclusive || db.immutable.is_some();
    // In DELETE mode a commit waits for readers, and nothing shows that another connection has
    // committed.
    db.writes_directly = alone || has_wal;
    if db.writes_directly {
        let keep = match (config.file.hold_reads, &db.presence) {
            (Some(true), _) => Keep::Always,
            (None, _) if alone => Keep::Always,
            (None, Some(presence)) if config.file.holds_while_alone => Keep::while_alone(presence),
            // If other processes cannot be detected, an idle handle must not make their WAL grow.
            (None, _) | (Some(false), _) => Keep::Never,
        };
        btree.watch(&db.conn, alone, keep, db.most_frames());
    }
    db.btree = Some(btree);
}

/// Makes this library's VFS overwrite what SQLite cuts off the database and the WAL of a
/// connection, and the WAL before it is removed.
pub(super) fn wipe_what_goes(conn: &Connection, sync: SyncLevel) -> Result<()> {
    if os::vfs::wipe_what_goes(conn, sync != SyncLevel::Off)? {
        return Ok(());
    }
    Err(Error::cant_open(
        "secure delete needs SQLite's default VFS, and the first store of this process was opened with \
        another one: open the store without secure delete, or keep the default VFS",
    ))
}

/// Runs `f`, again and again while it fails because another connection holds a lock, for up to the
/// busy timeout or `OPEN_WAIT`, whichever is longer. SQLite waits for most locks by itself, but not
/// if two connections that read both want to write.
pub(super) fn until_free<R>(config: &Config, mut f: impl FnMut() -> Result<R>) -> Result<R> {
    let started = Instant::now();
    loop {
        match f() {
            Err(e) if e.is_retryable() && started.elapsed() < config.busy_timeout.max(OPEN_WAIT) => {
                if !wait::pause(Duration::from_millis(2)) {
                    return Err(e);
                }
            }
            done => return done,
        }
    }
}

/// Creates the store in one transaction with a rollback journal, unless the file is a store
/// already. So the format mark is in the database file from the start, never only in a WAL.
fn create_if_new(db: &Db, config: &Config, now_ms: i64) -> Result<()> {
    if db.is_ours()? {
        return Ok(());
    }
    // These pragmas run only here, because the second one writes to a file that has content.
    db.execute(&format!("PRAGMA page_size = {}", config.file.page_size))?;
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")?;
    if db.read_number("PRAGMA page_count")? > 0 && db.read_number("SELECT count(*) FROM sqlite_schema")? == 0
    {
        // An empty database that another program has created. It gets the page size and auto-vacuum
        // of a store only by VACUUM, which keeps its encoding.
        let encoding: String =
            db.conn.query_row("PRAGMA encoding", [], |row| row.get(0)).map_err(translate)?;
        if encoding != "UTF-8" {
            return Err(Error::not_a_database(format!(
                "the file is an empty SQLite database with the text encoding {encoding}, and a store \
                uses UTF-8: remove the file, and the next open creates a store"
            )));
        }
        db.execute("VACUUM")?;
    }
    db.execute("BEGIN IMMEDIATE")?;
    let made = (|| {
        if db.is_ours()? {
            return Ok(()); // another process has created the store
        }
        if db.read_number("SELECT count(*) FROM sqlite_schema")? != 0 {
            return Err(not_ours());
        }
        remove_shared_memory(db)?;
        schema::create_store(db.switch_to_sql()?, now_ms)
    })()
    .and_then(|()| db.execute("COMMIT"));
    if made.is_err() && !db.is_idle() {
        let _ = db.execute("ROLLBACK"); // the first error is the one to report
    }
    made
}

/// Removes the shared memory file of a previous file of the same name, inside the transaction that
/// creates the store. While that transaction of the rollback journal is open, no connection uses
/// shared memory of the new file.
///
/// A process that still has the previous file open keeps the shared memory. Its header is made
/// invalid, so that a handle which keeps a snapshot checks whether its file still exists. (SQLite
/// removes the old WAL.)
fn remove_shared_memory(db: &Db) -> Result<()> {
    let Some(path) = &db.path else { return Ok(()) };
    if db.journal_mode()? == Some(JournalMode::Wal) {
        return Ok(()); // an empty database of another program, with shared memory of its own
    }
    let old = sibling(path, "-shm");
    if let Ok(file) = OsFile::open(&old, true, false) {
        file.clear_start();
    }
    match std::fs::remove_file(&old) {
        // A sandbox may return another error than `NotFound` for a file that does not exist.
        Err(e) if e.kind() != ErrorKind::NotFound && old.exists() => Err(Error::cant_open(format!(
            "cannot remove the -shm file that a previous store of the same name left: {e}"
        ))),
        _ => Ok(()),
    }
}

/// Converts the file to a journal mode. Returns `false` if the file was in this mode already, or if
/// the store is in memory.
fn convert_journal(db: &Db, wanted: JournalMode) -> Result<bool> {
    if db.path.is_none() || db.journal_mode()? == Some(wanted) {
        return Ok(false);
    }
    let wanted = match wanted {
        JournalMode::Wal => "wal",
        JournalMode::Delete => "delete",
    };
    // The statement runs to its end, because it returns its row before the commit, which can fail.
    let convert = |conn: &Connection| {
        let mut statement = conn.prepare(&format!("PRAGMA journal_mode = {wanted}"))?;
        let modes = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
        Ok(modes.into_iter().next().unwrap_or_default())
    };
    let is = convert(db.switch_to_sql()?).map_err(translate)?;
    if is == wanted {
        // SQLite keeps its page cache, whose pages can be older than commits of other connections
        // to the WAL. Without the WAL, only the change counter would show that, and commits to a
        // WAL need not advance it.
        db.execute("PRAGMA shrink_memory")?;
        return Ok(true);
    }
    Err(Error::busy(format!(
        "the journal mode is \"{is}\" and cannot be changed to \"{wanted}\" while other handles have \
        the store open"
    ))
    .with_hint(Hint::CloseOtherHandles))
}

/// Fails if a store has a format version that this library does not support, or no default family
/// in its catalogue.
fn check_format(db: &Db, config: &Config) -> Result<()> {
    let version = db.format_version()?;
    if version > i64::from(schema::FORMAT_VERSION) {
        return Err(Error::cant_open(format!(
            "the file has format version {version}, and this library supports versions up to {}: use a \
            newer version of the library",
            schema::FORMAT_VERSION
        )));
    }
    if config.file.damaged {
        return Ok(()); // the integrity check reports it
    }
    let damaged = |what: &str| {
        Error::corrupt(format!("the file is marked as a store, but {what}")).with_hint(Hint::RepairFile)
    };
    if version < i64::from(schema::FORMAT_VERSION) {
        return Err(damaged(&format!("it has format version {version}, which does not exist")));
    }
    match db.family_exists(schema::DEFAULT_FAMILY) {
        Ok(true) => Ok(()),
        Ok(false) => Err(damaged("its catalogue has no default family")),
        Err(e) if e.is_failure() => {
            Err(damaged(&format!("it has no catalogue of families ({})", e.message())))
        }
        Err(e) => Err(e),
    }
}

/// Makes SQLite distrust the schema of the file. Triggers, functions and views that another program
/// has put into the file must not run in this process. A view instead of a table could have an
/// endless number of rows.
pub(super) fn distrust(conn: &Connection) -> Result<()> {
    for option in [
        DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER,
        DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW,
        DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA,
        DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY,
    ] {
        conn.set_db_config(option, false).map_err(translate)?;
    }
    Ok(())
}

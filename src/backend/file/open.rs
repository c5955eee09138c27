//! Opening a connection: examines the file, creates the store if the file is new, and applies the
//! configuration.
//!
//! A file that is not a store is left unchanged.

#[cfg(feature = "encryption")]
use std::cell::Cell;
use std::cell::RefCell;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::INLINE_PAGE_FRACTION;
use super::backfill::WriteBack;
use super::checkpoint_schedule::CheckpointSchedule;
#[cfg(feature = "encryption")]
use super::cipher;
use super::connection::{Db, Owner};
use super::disk_reserve::{DiskSpace, lacks_space_for_shared_memory};
use super::engine::btree::{Direct, Keep};
use super::error::{forbidden, name_the_forbidden, translate};
use super::immutable_state::{FileState, Immutable};
use super::moved_file::Watched;
use super::os::{self, OsFile, Place, Presence, WalFrames, WalIndex};
use super::probe::{Looked, check_files_beside, check_kind, look_at, not_ours};
use super::quota::QuotaTracker;
use super::schema;
use super::wal_cleanup::Leftovers;
use crate::backend::TransactionState;
use crate::config::{Config, JournalMode, SyncLevel};
use crate::error::{Error, ErrorKind as Kind, Result};
use crate::hint::Hint;
use crate::place::sibling;
use crate::wait;

/// Flags of every SQLite connection: without a mutex, because only one thread uses a connection at
/// a time.
const BASE: OpenFlags = OpenFlags::SQLITE_OPEN_NO_MUTEX;
/// Flag with which SQLite takes the name of the file for a URI. Only a URI can open a file as
/// immutable.
const URI: OpenFlags = OpenFlags::SQLITE_OPEN_URI;
/// Maximum number of attempts to open a file that is deleted or replaced during the open.
const ATTEMPTS: usize = 20;

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
const TURN: Duration = Duration::from_millis(8);

impl Db {
    /// Opens the store at `path`, and creates it if it does not exist. `None` opens a store in
    /// memory.
    pub(crate) fn open(path: Option<&Path>, config: &Config, now_ms: i64) -> Result<Db> {
        open_as(path, config, now_ms, false)
    }
}

/// Opens a store again for a handle whose connection was closed: after a change of the file, or
/// after its conversion. To other processes, the handle still has the store open.
pub(super) fn open_again(path: &Path, config: &Config) -> Result<Db> {
    open_as(Some(path), config, 0, true)
}

fn open_as(path: Option<&Path>, config: &Config, now_ms: i64, is_again: bool) -> Result<Db> {
    config.check()?;
    os::set_up()?;
    let Some(path) = path else {
        if config.read_only {
            return Err(Error::invalid("a store in memory cannot be read-only, because it would stay empty"));
        }
        if config.file.is_encrypted() {
            return Err(Error::invalid(
                "a store in memory cannot be encrypted: open it without a password or key",
            ));
        }
        let flags = BASE | OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let conn = Connection::open_in_memory_with_flags(flags).map_err(translate)?;
        return set_up(conn, None, None, config, now_ms);
    };

    // The path is made absolute, so that SQLite does not interpret names like "file:x" or
    // ":memory:".
    let path = std::path::absolute(path)
        .map_err(|e| Error::cant_open(format!("cannot determine the current directory: {e}")))?;
    for _ in 0..ATTEMPTS {
        if let Some(db) = open_file(&path, config, now_ms, is_again)?
            && !os::has_moved(&db.conn)
            && db.check_place().is_ok()
        {
            return Ok(db);
        }
        // The file was deleted or replaced while it was opened, for example by a failed open that
        // removed its empty file.
    }
    Err(Error::busy("the file is being deleted, replaced or changed repeatedly by other processes")
        .with_hint(Hint::Retry))
}

/// Opens the file at a path. With `is_again`, the handle had the store open before, and a missing
/// `-wal` or `-shm` file is not an error. Returns `None` if the file changed during the open, so
/// that the caller must open it again.
fn open_file(path: &Path, config: &Config, now_ms: i64, is_again: bool) -> Result<Option<Db>> {
    let is_there = check_kind(path, config.read_only)?;
    // SQLite follows symbolic links, and looks for its other files next to their target.
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let beside = check_files_beside(&real)?;
    let length = real.as_os_str().len();
    if length > os::MAX_PATH {
        return Err(Error::cant_open(format!(
            "the absolute path has {length} bytes, and the maximum is {}: use a shorter path",
            os::MAX_PATH
        )));
    }
    let mut looked = look_at(&real, config, &beside)?;
    if config.file.exclusive || !looked.file.as_ref().is_some_and(OsFile::owns_its_locks) {
        looked.file = None; // closed, because SQLite opens the file again
    }
    // A symbolic link that had no target now leads to the new file.
    let real = if is_there { real } else { std::fs::canonicalize(&real).unwrap_or(real) };
    // SQLite would open a file that it may not write for reading, and the first write would fail.
    // (Next to a new file, the files of a previous file of its name are removed.)
    let may_write = looked.may_be_written && (!looked.has_wal || beside.may_be_written(&real, config));
    // A file with several hard links is rejected in `open_there`.
    if !is_again && !config.file.exclusive && looked.has_wal && looked.names == 1 {
        until_free(config, || check_wal_is_there(&real))?;
    }
    let opened = if config.read_only || may_write {
        open_there(&real, looked, config, now_ms)
    } else {
        Err(forbidden())
    };
    let opened = opened.map_err(|e| match e.kind() {
        // The file may have been encrypted or decrypted since it was examined.
        Kind::NotADatabase | Kind::AuthFailed => {
            let now = look_at(&real, &config.clone().read_only(true), &beside).err();
            now.filter(|now| now.kind() == Kind::AuthFailed).unwrap_or(e)
        }
        Kind::Busy => Error::busy(
            "another handle or process keeps the file locked: it has the file open exclusively or in \
            the other journal mode, or it writes without a pause",
        )
        .with_hint(Hint::CloseOtherHandles),
        _ => name_the_forbidden(e, Some(&real)),
    });
    if opened.is_err() && !is_there {
        remove_if_empty(&real);
    }
    opened
}

/// Opens a file that was examined. `real` is its path without symbolic links. Returns `None` if the
/// file changed during the open.
fn open_there(real: &Path, looked: Looked, config: &Config, now_ms: i64) -> Result<Option<Db>> {
    let place = Place::of(real)
        .map_err(|e| Error::cant_open(format!("cannot open the directory of the file: {e}")))?;
    // The file may have been replaced since it was examined.
    let file = looked.file.filter(|_| looked.identity == place.file());
    let found = Found { path: real, place, file };
    if looked.names > 1 && (!config.read_only || found.place.can_be_written_to()) {
        return Err(Error::cant_open(format!(
            "the file has {} hard links; opening it through another link would use a different WAL and \
            lose commits: remove the other links, or replace this one by a copy",
            looked.names
        )));
    }
    if !config.read_only {
        let is_new = looked.is_empty;
        let converts_alone = converts_alone(&found, is_new, looked.has_wal, config)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let conn = Connection::open_with_flags_and_vfs(real, BASE | flags, os::vfs::name_as_str()?)
            .map_err(translate)?;
        if converts_alone {
            // In exclusive mode SQLite reads the WAL without shared memory.
            conn.execute_batch("PRAGMA locking_mode = EXCLUSIVE").map_err(translate)?;
        }
        let file = found.place.file();
        let db = set_up(conn, Some(found), None, config, now_ms).inspect_err(|e| {
            if e.kind() == Kind::Full {
                drop(Leftovers::of(real, file)); // SQLite keeps what it could create of the files
            }
        })?;
        if converts_alone {
            // Another system may have left this file; SQLite has not used it.
            let _ = std::fs::remove_file(sibling(real, "-shm"));
            db.execute("PRAGMA locking_mode = NORMAL")?;
            db.read_first()?; // releases the lock
        }
        return Ok(Some(db));
    }
    let closed = |place: &Place| {
        let seen = FileState::at(place)?;
        if seen.is_closed() {
            return Ok(seen);
        }
        Err(Error::cant_open(
            "the store is in use or was not closed cleanly, and its directory cannot be written: close \
            it where it is open, or open it once where its directory can be written",
        ))
    };
    let immutable = |found: Found, seen: FileState| {
        let conn =
            Connection::open_with_flags(immutable(real), BASE | OpenFlags::SQLITE_OPEN_READ_ONLY | URI)
                .map_err(translate)?;
        let immutable = Immutable::new(real, config, seen, looked.has_wal);
        match set_up(conn, Some(found), Some(immutable), config, now_ms) {
            Err(_) if has_changed(real, seen) => Ok(None), // the change may be the cause
            opened => opened.map(Some),
        }
    };
    if looked.names > 1 {
        let seen = closed(&found.place)?;
        return immutable(found, seen);
    }
    // A process that may not write a closed store, but may create files next to it, creates none.
    // New files would belong to another user than the store, so that processes that may write the
    // store could not write these files.
    //
    // On a full disk, the attempt to create the files would disturb other processes that read the
    // closed store, because they would notice a change. (An encrypted file may be in DELETE mode.)
    let lacks_space = !config.file.is_encrypted() && lacks_space_for_shared_memory(real);
    let mut kept = None;
    if looked.has_wal && (!os::may_write(real) || lacks_space) {
        let mut seen = FileState::at(&found.place)?;
        if !seen.is_closed() {
            kept = Some(until_free(config, || keep_files_beside(real))?);
            seen = FileState::at(&found.place)?;
        }
        if seen.is_closed() {
            drop(kept);
            return immutable(found, seen);
        }
    }
    let again = Place::of(real);
    let conn = Connection::open_with_flags_and_vfs(
        real,
        BASE | OpenFlags::SQLITE_OPEN_READ_ONLY,
        os::vfs::name_as_str()?,
    )
    .map_err(translate)?;
    let opened = set_up(conn, Some(found), None, config, now_ms);
    drop(kept);
    match (opened, again) {
        (Err(e), Ok(place))
            if looked.has_wal
                && matches!(e.kind(), Kind::CantOpen | Kind::ReadOnly)
                && !place.can_be_written_to() =>
        {
            let seen = closed(&place)?;
            immutable(Found { path: real, place, file: None }, seen)
        }
        // A closed store can be read without the files that the disk has no space for.
        (Err(e), Ok(place)) if looked.has_wal && e.kind() == Kind::Full => match FileState::at(&place)? {
            seen if seen.is_closed() => immutable(Found { path: real, place, file: None }, seen),
            seen if seen.has_frames() && e.hint() == Some(Hint::FreeDiskSpace) => Err(Error::full(
                "the store was not closed cleanly, and the disk has no space for the -shm file (32 KiB) that \
                reading its -wal needs; a copy of the file and its -wal can be opened on another disk",
            )
            .with_hint(Hint::FreeDiskSpace)),
            _ => Err(e),
        },
        (opened, _) => opened.map(Some),
    }
}

/// Fails if a process has the store open in WAL mode and the `-wal` or the `-shm` file of the store
/// was deleted. A new file would not be shared with that process. While a process opens or closes
/// the store, one of the two files can be missing for a short time.
///
/// If both are missing, the store counts as closed. The lock that shows a store as open is not
/// enough: a forked child that has inherited a descriptor of a closed store still holds it.
fn check_wal_is_there(path: &Path) -> Result<()> {
    let is_there = |suffix| os::length_of_file(&sibling(path, suffix)).is_ok();
    if is_there("-wal") == is_there("-shm") || !Presence::is_on(path) {
        return Ok(());
    }
    Err(Error::busy(
        "the -wal or -shm file of the store was deleted while another handle or process has the store open",
    )
    .with_hint(Hint::CloseOtherHandles))
}

/// Returns `true` if the file must be opened exclusively until it is in DELETE mode, because it is
/// in WAL mode and its file system has no shared memory maps.
///
/// # Errors
/// `CantOpen` if the file system has no shared memory maps, and WAL mode is requested or the file
/// stays in it. Nothing was written then.
fn converts_alone(found: &Found, is_new: bool, has_wal: bool, config: &Config) -> Result<bool> {
    let wanted = config.file.journal_mode;
    let converts = is_new || !config.file.keep_journal_mode;
    // The mode of an encrypted file is not known.
    let stays_in_wal = has_wal && !converts && !config.file.is_encrypted();
    let needs_maps = stays_in_wal || converts && (wanted == JournalMode::Wal || has_wal && !is_new);
    if config.file.exclusive || !needs_maps || can_be_shared_memory(found) {
        return Ok(false);
    }
    if stays_in_wal || wanted == JournalMode::Wal { Err(os::refusal::no_shared_maps()) } else { Ok(true) }
}

/// Returns `false` if the file system cannot map the file into memory that processes share.
fn can_be_shared_memory(found: &Found) -> bool {
    match &found.file {
        Some(file) => file.can_be_shared_memory(),
        None => OsFile::open(found.path, true, false).map_or(true, |file| file.can_be_shared_memory()),
    }
}

/// Returns `true` if the metadata of the files of a store differs from `seen`, the metadata at an
/// earlier time.
fn has_changed(path: &Path, seen: FileState) -> bool {
    Place::of(path).is_ok_and(|place| FileState::at(&place).is_ok_and(|now| now != seen))
}

/// Locks the database as a reader does. While the returned file is open, no process that closes the
/// store removes its `-wal` and `-shm` files.
fn keep_files_beside(path: &Path) -> Result<OsFile> {
    let file = OsFile::open(path, false, false)
        .map_err(|e| Error::cant_open(format!("cannot open the file: {e}")))?;
    if file.keeps_files_beside() {
        Ok(file)
    } else {
        Err(Error::busy("another process is checking or closing the file").with_hint(Hint::Retry))
    }
}

/// Returns the URI by which SQLite opens a file as immutable: without locks and without a WAL.
fn immutable(path: &Path) -> OsString {
    let path = path.as_os_str().as_encoded_bytes();
    // After "file://", the beginning of a path without a leading slash would be taken for a host
    // name.
    let mut uri = String::from(if path.starts_with(b"/") { "file://" } else { "file:" });
    for byte in path {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(char::from(*byte))
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    uri.into()
}

/// Removes the file that a failed open has created, if it is still empty and no other process uses
/// it.
///
/// A process that has opened the file, but not used it yet, detects the removal and opens the path
/// again. (On Unix this uses one descriptor, because the process may not get a second one.)
fn remove_if_empty(path: &Path) {
    if let Ok(file) = OsFile::open(path, true, false)
        && file.is_empty_and_mine()
        && let Ok(identity) = file.identity()
        && !path.is_symlink()
        && os::is_at(path, identity)
    {
        let _ = std::fs::remove_file(path); // a failure leaves an empty file
    }
}

/// Makes SQLite distrust the schema of the file. Triggers, functions and views that another program
/// has put into the file must not run in this process. A view instead of a table could have an
/// endless number of rows.
fn distrust(conn: &Connection) -> Result<()> {
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

/// Opens an SQLite connection to an existing file, without the state of a [`Db`], to convert the
/// whole file.
#[cfg(feature = "encryption")]
pub(super) fn reopened(path: &Path) -> Result<Connection> {
    let flags = BASE | OpenFlags::SQLITE_OPEN_READ_WRITE;
    let conn =
        Connection::open_with_flags_and_vfs(path, flags, os::vfs::name_as_str()?).map_err(translate)?;
    distrust(&conn)?;
    Ok(conn)
}

/// Database file that is being opened: its path, its location and, if it is kept, the descriptor
/// with which it was examined.
struct Found<'p> {
    path: &'p Path,
    place: Place,
    /// Descriptor with which the file was examined, kept if file locks belong to it instead of to
    /// the process. It becomes the `Presence`, which shows other processes that the store is open.
    file: Option<OsFile>,
}

/// Applies the configuration to a connection, and creates the store if the file is new.
fn set_up(
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
        direct: None,
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
        quota: QuotaTracker::default(),
        disk_space: DiskSpace::default(),
        pending: RefCell::default(),
        #[cfg(feature = "encryption")]
        encrypted: config.file.is_encrypted().then(|| Box::new(config.clone())),
        #[cfg(feature = "encryption")]
        reads_seen: Cell::new(u64::MAX),
        #[cfg(feature = "encryption")]
        spoilt: None,
        _leftovers: leftovers,
        kept_wal: None,
    };
    if !config.file.sql_engine {
        db.direct = Direct::new(&db.conn)?;
    }
    db.set_busy_timeout(TURN)?;
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
        let writes_back = has_wal
            && !config.read_only
            && config.file.sync != SyncLevel::Off
            && config.file.checkpoint_every.is_none();
        if let (Some(presence), true) = (&db.presence, writes_back)
            && let Some(index) = WalIndex::of(&db.conn)
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
    watch(db, config, has_wal);
    if !config.read_only {
        until_free(config, || db.begin_reserving(has_wal))?;
    }
    Ok(())
}

/// Configures the `btree` engine, if the connection uses it: when it keeps snapshots between reads,
/// and whether it writes without SQL.
fn watch(db: &mut Db, config: &Config, has_wal: bool) {
    let Some(mut direct) = db.direct.take() else { return };
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
        direct.watch(&db.conn, alone, keep, db.most_frames());
    }
    db.direct = Some(direct);
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
fn until_free<R>(config: &Config, mut f: impl FnMut() -> Result<R>) -> Result<R> {
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

//! Opening a connection: examines the file, creates the store if the file is new, and applies the
//! configuration.
//!
//! A file that is not a store is left unchanged.

use std::ffi::OsString;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::connection::Db;
use super::disk_reserve::lacks_space_for_shared_memory;
use super::error::{forbidden, name_the_forbidden, translate};
use super::immutable_state::{FileState, Immutable};
use super::os::{self, FileLocation, OsFile, Presence};
use super::probe::{Looked, check_files_beside, check_kind, look_at};
#[cfg(feature = "encryption")]
use super::set_up::distrust;
use super::set_up::{Found, set_up, until_free};
use super::wal_cleanup::Leftovers;
use crate::config::{Config, JournalMode};
use crate::error::{Error, ErrorKind as Kind, Result};
use crate::hint::Hint;
use crate::location::sibling;

/// Flags of every SQLite connection: without a mutex, because only one thread uses a connection at
/// a time.
const BASE: OpenFlags = OpenFlags::SQLITE_OPEN_NO_MUTEX;
/// Flag with which SQLite takes the name of the file for a URI. Only a URI can open a file as
/// immutable.
const URI: OpenFlags = OpenFlags::SQLITE_OPEN_URI;
/// Maximum number of attempts to open a file that is deleted or replaced during the open.
const ATTEMPTS: usize = 20;

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
    let place = FileLocation::of(real)
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
    let closed = |place: &FileLocation| {
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
    let again = FileLocation::of(real);
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
    FileLocation::of(path).is_ok_and(|place| FileState::at(&place).is_ok_and(|now| now != seen))
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

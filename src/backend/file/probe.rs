//! Examination of a file before SQLite opens it. SQLite would roll back the journal of a foreign
//! database, or checkpoint its WAL (ADR 5).

use std::io::ErrorKind;
use std::path::Path;

use super::os::{self, FileIdentity, OsFile};
use super::schema;
use crate::config::Config;
use crate::error::{Error, ErrorKind as Kind, Result};
use crate::hint::Hint;
use crate::location::sibling;

/// The first bytes of every SQLite file.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// First bytes of a rollback journal (fileformat2.html, chapter 3).
pub(super) const JOURNAL_MAGIC: &[u8] = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";
/// Mark that this library writes into the header of a rollback journal, and the offset of the mark
/// in the journal. It means that the journal restores the whole file and has page 1 first
/// (`rollback_journal.rs`).
pub(super) const JOURNAL_MARK: &[u8] = b"kvstore: the whole file";
pub(super) const JOURNAL_MARK_AT: usize = 28;
/// Offset of the content of page 1 in a journal with `JOURNAL_MARK`: after the header, which takes
/// a sector, and the page number.
const JOURNAL_FIRST_PAGE: usize = SECTOR + 4;
/// Number of bytes at the start of a rollback journal that `is_begun` examines, and the offset in
/// them of the number of pages that the database had before the transaction.
const JOURNAL_HEADER: usize = 20;
const JOURNAL_PAGES: usize = 16;
/// Size of a sector, the unit that a disk writes as a whole, in bytes. The first sector of a
/// database contains SQLite's header and the header of the first page.
pub(super) const SECTOR: usize = 512;
/// Type, in the header of a page, of a leaf of a table B-tree. Page 1, the root page of SQLite's
/// list of tables, has this type if the list has only one page.
const LEAF_TABLE: u32 = 0x0D;

/// Offset of the byte "file format read version" in the header of an SQLite file, and its value in
/// WAL mode.
const READ_VERSION: usize = 19;
const WAL_VERSION: u8 = 2;

/// Fails if the path is not a regular file. Opening a FIFO would wait forever, so this comes before
/// any open. Returns `true` if the file exists.
pub(super) fn check_kind(path: &Path, read_only: bool) -> Result<bool> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => {
            if read_only && found.len() == 0 {
                return Err(Error::cant_open(
                    "the file is empty, and a read-only open cannot create a store in it",
                )
                .with_hint(Hint::OpenForWriting));
            }
            Ok(true)
        }
        Ok(found) if found.is_dir() => {
            Err(Error::cant_open("the path is a directory: give the path of a file"))
        }
        Ok(_) => Err(Error::cant_open("the path is not a regular file")),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            if read_only {
                return Err(Error::cant_open(
                    "the file does not exist, and a read-only open cannot create it",
                )
                .with_hint(Hint::OpenForWriting));
            }
            Ok(false)
        }
        Err(e) => Err(Error::cant_open(format!("cannot read the status of the file: {e}"))),
    }
}

/// Result of `check_files_beside`: whether the `-journal`, `-wal` and `-shm` files of a database
/// exist.
pub(super) struct Beside {
    journal: bool,
    wal: bool,
    pub(super) shared_memory: bool,
}

impl Beside {
    /// Returns `true` if this process may write to the existing files of the WAL. They may have
    /// been removed since.
    pub(super) fn may_be_written(&self, path: &Path, config: &Config) -> bool {
        // An exclusive connection needs no shared memory.
        [(self.wal, "-wal"), (self.shared_memory && !config.file.exclusive, "-shm")]
            .iter()
            .all(|(is_there, suffix)| !is_there || !os::is_forbidden_to_write(&sibling(path, suffix)))
    }
}

/// Fails if the `-journal`, `-wal` or `-shm` file of the database at `path` exists and is not a
/// regular file, or if it is itself a database and that at `path` is new. Returns which of these
/// files exist.
pub(super) fn check_files_beside(path: &Path) -> Result<Beside> {
    let check = |suffix| match os::length_of_file(&sibling(path, suffix)) {
        Ok(None) => Err(Error::cant_open(format!(
            "the path with \"{suffix}\" appended exists and is not a regular file: remove it, because \
            SQLite uses that name"
        ))),
        found => Ok(found.is_ok()),
    };
    let beside = Beside { journal: check("-journal")?, wal: check("-wal")?, shared_memory: check("-shm")? };
    let is_new = || !os::length_of_file(path).is_ok_and(|length| length != Some(0));
    if (beside.journal || beside.wal || beside.shared_memory) && is_new() {
        for suffix in ["-journal", "-wal", "-shm"] {
            if begins_with(&sibling(path, suffix), MAGIC) {
                return Err(Error::cant_open(format!(
                    "the path with \"{suffix}\" appended is a database, which a new store at this path \
                    would overwrite: rename that file, or create the store at another path"
                )));
            }
        }
    }
    Ok(beside)
}

/// Returns `true` if a file can be read and begins with these bytes.
fn begins_with(path: &Path, bytes: &[u8]) -> bool {
    let mut start = vec![0; bytes.len()];
    OsFile::open(path, false, false).is_ok_and(|file| file.read_start(&mut start).is_ok()) && start == bytes
}

/// Facts about a database file that `look_at` has found before SQLite opens the file.
pub(super) struct Looked {
    /// Number of hard links of the file.
    pub(super) names: u64,
    /// Whether the file has no content.
    pub(super) is_empty: bool,
    /// Whether the file is in WAL mode; always `true` for an encrypted file, whose mode is not
    /// known.
    pub(super) has_wal: bool,
    /// Whether the file could be opened for writing; `false` if the store is opened read-only.
    pub(super) may_be_written: bool,
    pub(super) identity: FileIdentity,
    /// Descriptor with which the file was examined; `None` after the caller has closed it.
    pub(super) file: Option<OsFile>,
}

/// Examines a file before SQLite opens it. Creates an empty file if it does not exist and the store
/// is not opened read-only. Fails if the file cannot be a store. `files` is the result of
/// `check_files_beside` for it.
pub(super) fn look_at(path: &Path, config: &Config, files: &Beside) -> Result<Looked> {
    let read_only = config.read_only;
    let failed = |e: std::io::Error| match path.parent() {
        Some(directory) if e.kind() == ErrorKind::NotFound && !directory.exists() => {
            // The message omits the path, which may be a mistyped URL with a password.
            Error::cant_open("the directory of the file does not exist: create it first")
        }
        _ if os::refusal::is_without_space(&e) => {
            Error::full(format!("cannot create the file: {e}")).with_hint(Hint::FreeDiskSpace)
        }
        _ => Error::cant_open(format!("cannot open the file: {e}")),
    };
    let mut may_be_written = !read_only;
    let opened = match config.file.mode {
        Some(mode) if !read_only => OsFile::open_or_create(path, mode),
        _ => OsFile::open(path, !read_only, !read_only),
    };
    let file = match opened {
        Err(e)
            if !read_only
                && matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) =>
        {
            may_be_written = false;
            OsFile::open(path, false, false).map_err(|_| failed(e))?
        }
        opened => opened.map_err(failed)?,
    };
    let mut header = [0; SECTOR];
    let mut length = 0;
    let mut look = || {
        length = file.read_start(&mut header).map_err(|e| Error::io(format!("cannot read the file: {e}")))?;
        if files.journal
            && let Some(before) = undone_by_journal(path)
        {
            (header, length) = (before, SECTOR);
        }
        check_header(header.get(..length).unwrap_or_default(), path, config)
    };
    match look() {
        // Another process may create the store, or roll back an interrupted creation, between the
        // read of the file and that of its journal.
        Err(e) if e.kind() == Kind::NotADatabase => look()?,
        looked => looked?,
    }
    let header = header.get(..length).unwrap_or_default();
    // SQLite uses a WAL of that name whatever journal mode the header states; but not for a new
    // file.
    if !header.is_empty()
        && files.shared_memory
        && !file.is_in_use()
        && let Ok(shared_memory) = OsFile::open(&sibling(path, "-shm"), false, false)
        && file.is_not_of(&shared_memory)
    {
        let wal = sibling(path, "-wal");
        return Err(Error::cant_open(format!(
            "the WAL next to the file belongs to a deleted or replaced file of the same name that \
            another process still has open: close it there, then remove {} and the -shm next to it",
            wal.file_name().unwrap_or_default().display()
        )));
    }
    // The header of an encrypted file cannot be read. Most encrypted files are in WAL mode.
    let has_wal = config.file.is_encrypted() || header.get(READ_VERSION) == Some(&WAL_VERSION);
    let (identity, names) = file.identity_and_names().map_err(failed)?;
    Ok(Looked { names, is_empty: header.is_empty(), has_wal, may_be_written, identity, file: Some(file) })
}

/// Fails if the first bytes of a file show that it is not a store.
///
/// SQLite itself would roll back the journal of a foreign database, or checkpoint its WAL, merely
/// by reading it. And a store may be in the middle of a checkpoint.
fn check_header(header: &[u8], path: &Path, config: &Config) -> Result<()> {
    if header.is_empty() {
        return Ok(());
    }
    let has = |suffix: &str| {
        os::length_of_file(&sibling(path, suffix)).is_ok_and(|length| length.is_some_and(|length| length > 0))
    };
    // SQLite's fileformat2.html describes these offsets in chapters 1 and 1.6.
    let number = |at: std::ops::Range<usize>| {
        header.get(at).map(|bytes| bytes.iter().fold(0u32, |number, byte| number << 8 | u32::from(*byte)))
    };
    let (Some(application_id), Some(page_type), Some(tables), true) =
        (number(68..72), number(100..101), number(103..105), header.starts_with(MAGIC))
    else {
        if is_begun(header, path) || config.file.is_encrypted() && !header.starts_with(MAGIC) {
            // SQLite rolls the file back, or decrypts it. But SQLCipher treats a file of less than
            // a page as new.
            if header.len() < SECTOR && config.file.is_encrypted() && !has("-journal") {
                return Err(Error::corrupt(
                    "the file is shorter than the smallest page, so it was truncated or is not a \
                    store; it was not changed",
                )
                .with_hint(Hint::Recover));
            }
            return Ok(());
        }
        if looks_encrypted(header) {
            return Err(Error::auth_failed(
                "the file is encrypted, or is not a store, and no password was given",
            )
            .with_hint(Hint::GivePassword));
        }
        return Err(Error::not_a_database(
            "the file is not a SQLite database, so it is not a store; it was not changed",
        ));
    };
    if config.file.is_encrypted() {
        return Err(Error::auth_failed("a password was given, but the file is not encrypted")
            .with_hint(Hint::OmitPassword));
    }
    if application_id == schema::APPLICATION_ID.unsigned_abs() {
        return Ok(());
    }
    // A foreign database may still have all content in its WAL. A store has its mark in the main
    // file from the start.
    if application_id != 0 || page_type != LEAF_TABLE || tables != 0 || has("-wal") {
        return Err(not_ours());
    }
    if config.read_only {
        return Err(Error::cant_open("the file contains no store, and a read-only open cannot create one")
            .with_hint(Hint::OpenForWriting));
    }
    Ok(())
}

/// Returns `true` if the first sector of a file looks like random bytes. 512 random bytes have 222
/// different values of 256, plus or minus six. (Compressed files look the same.)
fn looks_encrypted(start: &[u8]) -> bool {
    let mut seen = [false; 256];
    for byte in start {
        if let Some(seen) = seen.get_mut(usize::from(*byte)) {
            *seen = true;
        }
    }
    start.len() == SECTOR && seen.iter().filter(|seen| **seen).count() >= 180
}

/// Returns `true` if the file is a store whose creation was interrupted, before its first sector
/// was written. The journal is on the disk before the database has a byte, and states that the
/// database had no pages.
fn is_begun(start: &[u8], path: &Path) -> bool {
    let mut journal = [0; JOURNAL_HEADER];
    start.iter().all(|byte| *byte == 0)
        && OsFile::open_journal(&sibling(path, "-journal"))
            .is_ok_and(|file| file.read_start(&mut journal).is_ok_and(|length| length == JOURNAL_HEADER))
        && journal.starts_with(JOURNAL_MAGIC)
        && journal.ends_with(&[0; JOURNAL_HEADER - JOURNAL_PAGES])
}

/// Returns the first sector that the file will have after the rollback of its journal, if an
/// encryption or decryption of the file was interrupted. Returns `None` if it has no journal with
/// `JOURNAL_MARK`.
fn undone_by_journal(path: &Path) -> Option<[u8; SECTOR]> {
    let mut journal = [0; JOURNAL_FIRST_PAGE + SECTOR];
    let file = OsFile::open_journal(&sibling(path, "-journal")).ok()?;
    let length = file.read_start(&mut journal).ok()?;
    let is_marked = length == journal.len()
        && journal.starts_with(JOURNAL_MAGIC)
        && journal.get(JOURNAL_MARK_AT..)?.starts_with(JOURNAL_MARK);
    if is_marked { journal.get(JOURNAL_FIRST_PAGE..)?.try_into().ok() } else { None }
}

pub(super) fn not_ours() -> Error {
    Error::not_a_database(
        "the file is a SQLite database of another application, not a store; it was not changed",
    )
}

//! Location of the file of a store. The file stays at its location: while this library has it open
//! without `FILE_SHARE_DELETE`, no process can delete or rename the file or any directory on its
//! path.

use std::fs::{self, File};
use std::io;
use std::mem::zeroed;
use std::os::windows::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use windows_sys::Win32::Foundation::FILETIME;
#[cfg(feature = "encryption")]
use windows_sys::Win32::Storage::FileSystem::FILE_FLAG_OPEN_REPARSE_POINT;
use windows_sys::Win32::Storage::FileSystem::{
    FILE_ADD_FILE, FILE_ATTRIBUTE_DIRECTORY, FILE_ATTRIBUTE_REPARSE_POINT, FILE_FLAG_BACKUP_SEMANTICS,
    FILE_SHARE_READ, FILE_SHARE_WRITE, GetFileAttributesExW, GetFileExInfoStandard, MOVEFILE_WRITE_THROUGH,
    MoveFileExW, WIN32_FILE_ATTRIBUTE_DATA,
};
use windows_sys::Win32::System::SystemInformation::GetTickCount64;

use super::files::{FileIdentity, identity_of, look, open_to_look, read_at};

/// Number of attempts of `to_write` to open a file for writing, with a pause between them. While a
/// file is being removed, an open fails as if a permission were missing.
const ATTEMPTS: usize = 10;
/// Pause between two attempts of `to_write` to open a file.
const PAUSE: Duration = Duration::from_millis(2);

/// Time from the epoch of Windows, the year 1601, to the Unix epoch, in units of 100 ns.
const UNIX_EPOCH: u64 = 11_644_473_600 * 10_000_000;

/// Location of a file. The file cannot be deleted or renamed until this is dropped.
pub(in crate::backend::file) struct FileLocation {
    path: PathBuf,
    /// Open handle that prevents the deletion and renaming of the file.
    kept: File,
    file: FileIdentity,
}

/// Metadata of a file at one time: two equal values mean that its content has not changed. Changes
/// within one tick of the file system's clock may not be detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::backend::file) struct State {
    file: FileIdentity,
    /// Length of the file, in bytes.
    size: u64,
    /// Time of the last write, in units of 100 ns since 1601. It may be outdated while any process
    /// has the file open.
    written: u64,
    /// First bytes of the file if it is a database: a counter in them changes with each commit.
    /// Zeros for other files.
    header: [u8; HEADER],
}

/// Length of the header of a database, in bytes.
const HEADER: usize = 100;

impl State {
    pub(in crate::backend::file) fn file(&self) -> FileIdentity {
        self.file
    }

    pub(in crate::backend::file) fn is_empty(&self) -> bool {
        self.size == 0
    }

    pub(in crate::backend::file) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the time of the last change, since the Unix epoch.
    pub(in crate::backend::file) fn changed(&self) -> Duration {
        let since = self.written.saturating_sub(UNIX_EPOCH);
        Duration::from_micros(since / 10)
    }

    fn of(file: &File) -> io::Result<State> {
        let found = look(file)?;
        let whole = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let FILETIME { dwHighDateTime, dwLowDateTime } = found.ftLastWriteTime;
        Ok(State {
            file: identity_of(file)?,
            size: whole(found.nFileSizeHigh, found.nFileSizeLow),
            written: whole(dwHighDateTime, dwLowDateTime),
            header: [0; HEADER],
        })
    }
}

impl FileLocation {
    /// Returns the location of the file at a path without symbolic links.
    ///
    /// # Errors
    /// `NotFound` if the file does not exist.
    pub(in crate::backend::file) fn of(path: &Path) -> io::Result<FileLocation> {
        let kept = File::options().read(true).share_mode(FILE_SHARE_READ | FILE_SHARE_WRITE).open(path)?;
        let file = identity_of(&kept)?;
        Ok(FileLocation { path: path.to_owned(), kept, file })
    }

    /// Returns the identity of the file.
    pub(in crate::backend::file) fn file(&self) -> FileIdentity {
        self.file
    }

    /// Returns `true`: the name always belongs to the same file, because a file that is open
    /// without `FILE_SHARE_DELETE` keeps its name on Windows.
    #[inline]
    #[allow(clippy::unused_self, reason = "elsewhere it may have lost it")]
    pub(in crate::backend::file) fn is_kept(&self) -> bool {
        true
    }

    /// Does nothing: SQLite opens its files so that no process can delete them.
    #[allow(clippy::unused_self, reason = "elsewhere they can be deleted")]
    pub(in crate::backend::file) fn watch_companions(&mut self, _: &[&str]) {}

    /// Returns `true`: SQLite opens its files so that no process can delete them.
    #[allow(clippy::unused_self, reason = "elsewhere they can be deleted")]
    pub(in crate::backend::file) fn are_companions_kept(&self) -> bool {
        true
    }

    /// Returns the current metadata of the file whose name is the name of this file plus a suffix;
    /// `None` if it does not exist.
    ///
    /// # Errors
    /// The metadata cannot be read.
    pub(in crate::backend::file) fn state(&self, suffix: &str) -> io::Result<Option<State>> {
        if suffix.is_empty() {
            let mut state = State::of(&self.kept)?;
            read_at(&self.kept, &mut state.header, 0)?;
            return Ok(Some(state));
        }
        match open_to_look(&self.beside(suffix)).and_then(|file| State::of(&file)) {
            Ok(state) => Ok(Some(state)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Removes the file whose name is the name of this file plus a suffix, if it exists.
    ///
    /// # Errors
    /// The file still exists.
    pub(in crate::backend::file) fn remove(&self, suffix: &str) -> io::Result<()> {
        match fs::remove_file(self.beside(suffix)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// Returns the path of this file plus a suffix.
    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(suffix);
        name.into()
    }

    /// Returns `true` if this process may create files in the directory of the store.
    pub(in crate::backend::file) fn can_be_written_to(&self) -> bool {
        let open = |directory| {
            File::options()
                .access_mode(FILE_ADD_FILE)
                .custom_flags(FILE_FLAG_BACKUP_SEMANTICS)
                .open(directory)
        };
        self.path.parent().is_some_and(|directory| open(directory).is_ok())
    }

    /// Does nothing: Windows has no call that guarantees that the names in a directory are durable.
    #[allow(clippy::unused_self, reason = "elsewhere there is one")]
    pub(in crate::backend::file) fn sync_directory(&self) -> io::Result<()> {
        sync_directory(&self.path)
    }
}

/// Returns `None`: the free space is not queried on Windows, where this library reserves no disk
/// space.
pub(in crate::backend::file) fn free_space(_: &Path) -> Option<u64> {
    None
}

/// Returns `true` if a file exists at a path and this process has the permission to write it.
pub(in crate::backend::file) fn may_write(path: &Path) -> bool {
    !matches!(to_write(path), Err(e) if is_refusal(&e) || e.kind() == io::ErrorKind::NotFound)
}

/// Returns `true` if a file exists at a path and this process lacks the permission to write it.
pub(in crate::backend::file) fn is_forbidden_to_write(path: &Path) -> bool {
    to_write(path).is_err_and(|e| is_refusal(&e))
}

/// Returns `true` for an error that means that this process lacks a permission, and `false` for
/// other errors, such as the temporary one while another process has the file open.
fn is_refusal(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// Checks whether the file at a path can be opened for writing. Returns the error of the open if
/// not. Tries again while a permission seems to be missing, at most [`ATTEMPTS`] times.
fn to_write(path: &Path) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|found| found.permissions().readonly()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let open = || File::options().write(true).open(path).map(drop);
    for _ in 1..ATTEMPTS {
        match open() {
            Err(e) if is_refusal(&e) => std::thread::sleep(PAUSE),
            opened => return opened,
        }
    }
    open()
}

/// Returns the length of the file at a path, in bytes; `None` if it is not a file.
///
/// Unlike `fs::metadata`, this does not open the file. A file that is removed while a process has
/// it open keeps its name until that process closes it. Under wine, such a name can still be
/// opened. A journal that a commit has removed would then be mistaken for the journal of a killed
/// process, and the commit would be undone.
pub(in crate::backend::file) fn length_of_file(path: &Path) -> io::Result<Option<u64>> {
    let name = wide(path)?;
    // SAFETY: the struct consists of integers.
    let mut found: WIN32_FILE_ATTRIBUTE_DATA = unsafe { zeroed() };
    // SAFETY: the name is a string that ends with a zero, and the struct may be written.
    if unsafe { GetFileAttributesExW(name.as_ptr(), GetFileExInfoStandard, (&raw mut found).cast()) } == 0 {
        return Err(io::Error::last_os_error());
    }
    if found.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT != 0 {
        // Returns the length of the target of a link.
        return fs::metadata(path).map(|found| found.is_file().then_some(found.len()));
    }
    let length = u64::from(found.nFileSizeHigh) << 32 | u64::from(found.nFileSizeLow);
    Ok((found.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY == 0).then_some(length))
}

/// Returns a monotonic time in milliseconds, as of the last tick of the system clock: up to 16 ms
/// old.
#[inline]
pub(in crate::backend::file) fn coarse_ms() -> u64 {
    // SAFETY: has no preconditions.
    unsafe { GetTickCount64() }
}

/// Creates an empty file with the permissions of its directory. Fails if a file exists at `path`.
pub(crate) fn make_like(_original: Option<&Path>, _mode: Option<u32>, path: &Path) -> io::Result<()> {
    File::options().write(true).create_new(true).open(path).map(drop)
}

/// Creates a file with the permissions of its directory. Fails if a file exists at `path`.
#[cfg(feature = "encryption")]
pub(in crate::backend::file) fn make_private(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).open(path)
}

/// Opens the file at a path for overwriting. A link is opened itself, not followed, in case another
/// program has put a link there.
#[cfg(feature = "encryption")]
pub(in crate::backend::file) fn open_what_is_there(path: &Path) -> io::Result<File> {
    File::options().write(true).custom_flags(FILE_FLAG_OPEN_REPARSE_POINT).open(path)
}

/// Returns `None`: on Windows, a file cannot be overwritten after its name was removed. While it is
/// open, it keeps the name, which would conflict with a new file of SQLite.
#[cfg(feature = "encryption")]
pub(in crate::backend::file) fn open_to_outlive_its_name(_path: &Path) -> Option<File> {
    None
}

/// Returns the number of hard links of the file at a path.
#[cfg(feature = "encryption")]
pub(in crate::backend::file) fn names_at(path: &Path) -> io::Result<u64> {
    names_of(&open_to_look(path)?)
}

/// Returns the number of hard links of an open file.
#[cfg(feature = "encryption")]
pub(in crate::backend::file) fn names_of(file: &File) -> io::Result<u64> {
    look(file).map(|found| found.nNumberOfLinks.into())
}

/// Opens the file at a path and syncs it. The process must have the permission to write it.
pub(crate) fn sync_file(path: &Path) -> io::Result<()> {
    File::options().write(true).open(path)?.sync_all()
}

/// Does nothing. Windows has no call that guarantees that the names in a directory are durable.
/// Like SQLite, this library relies on the log of the file system.
#[allow(clippy::unnecessary_wraps, reason = "elsewhere there is one, which can fail")]
pub(crate) fn sync_directory(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Renames a file within its directory. Fails if a file with the new name exists.
///
/// # Errors
/// `AlreadyExists` if a file with the new name exists.
pub(crate) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (wide(from)?, wide(to)?);
    // SAFETY: the names are strings of 16-bit units that end with a zero.
    match unsafe { MoveFileExW(from.as_ptr(), to.as_ptr(), MOVEFILE_WRITE_THROUGH) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Converts a path to an absolute path with the prefix `\\?\`, which may have any length, as UTF-16
/// with a terminating zero. The directory must exist.
fn wide(path: &Path) -> io::Result<Vec<u16>> {
    use std::os::windows::ffi::OsStrExt;
    let no_name = || io::Error::from(io::ErrorKind::InvalidInput);
    let (parent, name) = (path.parent().ok_or_else(no_name)?, path.file_name().ok_or_else(no_name)?);
    let path = fs::canonicalize(parent)?.join(name);
    Ok(path.as_os_str().encode_wide().chain([0]).collect())
}

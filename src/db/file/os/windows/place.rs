//! Where the file of a store is. It is kept there: what is open without `FILE_SHARE_DELETE` can neither be deleted nor get
//! another name, nor can the directories on the way to it.

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

/// How often a file is asked for that may not be written: one that is being removed cannot be opened for a moment.
const ATTEMPTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(2);

/// From the beginning of the system's time, 1601, to that of Unix, in its units of 100 ns.
const UNIX_EPOCH: u64 = 11_644_473_600 * 10_000_000;

/// Location of a file, which keeps its name until this is dropped.
pub(in crate::db::file) struct Place {
    path: PathBuf,
    /// Keeps the name.
    kept: File,
    file: FileIdentity,
}

/// Metadata of a file, which shows whether its content has changed, except for changes within one
/// tick of the file system's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::db::file) struct State {
    file: FileIdentity,
    size: u64,
    /// When it was written to. As long as somebody has it open, it may be older than that.
    written: u64,
    /// The header of a database, in which a number changes with each commit; zeros of another file.
    header: [u8; HEADER],
}

const HEADER: usize = 100;

impl State {
    pub(in crate::db::file) fn file(&self) -> FileIdentity {
        self.file
    }

    pub(in crate::db::file) fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// Returns the time of the last change, since the Unix epoch.
    pub(in crate::db::file) fn changed(&self) -> Duration {
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

impl Place {
    /// Returns the location of a file, by its path without symbolic links.
    ///
    /// # Errors
    /// `NotFound` if the file is not there.
    pub(in crate::db::file) fn of(path: &Path) -> io::Result<Place> {
        let kept = File::options().read(true).share_mode(FILE_SHARE_READ | FILE_SHARE_WRITE).open(path)?;
        let file = identity_of(&kept)?;
        Ok(Place { path: path.to_owned(), kept, file })
    }

    /// Returns the identity of the file.
    pub(in crate::db::file) fn file(&self) -> FileIdentity {
        self.file
    }

    /// Returns `true` if the file still has its name.
    #[inline]
    #[allow(clippy::unused_self, reason = "elsewhere it may have lost it")]
    pub(in crate::db::file) fn is_kept(&self) -> bool {
        true
    }

    /// Does nothing: SQLite opens its files so that they cannot be deleted.
    #[allow(clippy::unused_self, reason = "elsewhere they can be deleted")]
    pub(in crate::db::file) fn watch_companions(&mut self, _: &[&str]) {}

    /// Returns `true`: SQLite opens its files so that they cannot be deleted.
    #[allow(clippy::unused_self, reason = "elsewhere they can be deleted")]
    pub(in crate::db::file) fn are_companions_kept(&self) -> bool {
        true
    }

    /// Returns the current metadata of the file whose name is that of this file with a suffix;
    /// `None` if it does not exist.
    ///
    /// # Errors
    /// If it cannot be looked at.
    pub(in crate::db::file) fn state(&self, suffix: &str) -> io::Result<Option<State>> {
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

    /// Removes the file whose name is that of this file with a suffix, if it exists.
    ///
    /// # Errors
    /// If it is still there.
    pub(in crate::db::file) fn remove(&self, suffix: &str) -> io::Result<()> {
        match fs::remove_file(self.beside(suffix)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(suffix);
        name.into()
    }

    /// Returns `true` if this process may create files in the directory.
    pub(in crate::db::file) fn can_be_written_to(&self) -> bool {
        let open = |directory| {
            File::options()
                .access_mode(FILE_ADD_FILE)
                .custom_flags(FILE_FLAG_BACKUP_SEMANTICS)
                .open(directory)
        };
        self.path.parent().is_some_and(|directory| open(directory).is_ok())
    }

    /// Makes the names in the directory durable, as far as the system has a way.
    #[allow(clippy::unused_self, reason = "elsewhere there is one")]
    pub(in crate::db::file) fn sync_directory(&self) -> io::Result<()> {
        sync_directory(&self.path)
    }
}

/// Returns `None`: the length of the WAL does not depend on the free space here.
pub(in crate::db::file) fn free_space(_: &Path) -> Option<u64> {
    None
}

/// Returns `true` if this process may write the file at a path.
pub(in crate::db::file) fn may_write(path: &Path) -> bool {
    !matches!(to_write(path), Err(e) if is_refusal(&e) || e.kind() == io::ErrorKind::NotFound)
}

/// Returns `true` if a file exists at a path and this process may not write it.
pub(in crate::db::file) fn is_forbidden_to_write(path: &Path) -> bool {
    to_write(path).is_err_and(|e| is_refusal(&e))
}

/// Whether this process is not allowed what it has tried; that somebody else is in the way passes.
fn is_refusal(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// What opening it for writing answers.
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

/// Returns the length of the file at a path, in bytes; `None` if it is no file.
///
/// It is not opened for that, as std does. What is removed while somebody has it open keeps its name until he closes it; where
/// such a name can still be opened, as under wine, a journal that was removed in a commit would be taken for one that
/// a process has left which was killed, and the commit be undone.
pub(in crate::db::file) fn length_of_file(path: &Path) -> io::Result<Option<u64>> {
    let name = wide(path)?;
    // SAFETY: a struct of integers.
    let mut found: WIN32_FILE_ATTRIBUTE_DATA = unsafe { zeroed() };
    // SAFETY: a string that ends with a zero, and room for the answer.
    if unsafe { GetFileAttributesExW(name.as_ptr(), GetFileExInfoStandard, (&raw mut found).cast()) } == 0 {
        return Err(io::Error::last_os_error());
    }
    if found.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT != 0 {
        return fs::metadata(path).map(|found| found.is_file().then_some(found.len())); // of what a link leads to
    }
    let length = u64::from(found.nFileSizeHigh) << 32 | u64::from(found.nFileSizeLow);
    Ok((found.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY == 0).then_some(length))
}

/// Returns a monotonic time in milliseconds, as of the last tick of the system: up to 16 ms old.
#[inline]
pub(in crate::db::file) fn coarse_ms() -> u64 {
    // SAFETY: has no preconditions.
    unsafe { GetTickCount64() }
}

/// Makes an empty file. There must be none of that name. Who may read it, its directory says.
pub(crate) fn make_like(_original: Option<&Path>, _mode: Option<u32>, path: &Path) -> io::Result<()> {
    File::options().write(true).create_new(true).open(path).map(drop)
}

/// Makes a file. It may be read by whoever may read what its directory makes.
#[cfg(feature = "encryption")]
pub(in crate::db::file) fn make_private(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).open(path)
}

/// Opens what has a name, to overwrite it. Somebody may have put a link in its place.
#[cfg(feature = "encryption")]
pub(in crate::db::file) fn open_what_is_there(path: &Path) -> io::Result<File> {
    File::options().write(true).custom_flags(FILE_FLAG_OPEN_REPARSE_POINT).open(path)
}

/// Nothing: while a file is open its name stays, in the way of SQLite, also after it was removed.
#[cfg(feature = "encryption")]
pub(in crate::db::file) fn open_to_outlive_its_name(_path: &Path) -> Option<File> {
    None
}

/// Returns the number of hard links of the file at a path.
#[cfg(feature = "encryption")]
pub(in crate::db::file) fn names_at(path: &Path) -> io::Result<u64> {
    names_of(&open_to_look(path)?)
}

/// Returns the number of hard links of an open file.
#[cfg(feature = "encryption")]
pub(in crate::db::file) fn names_of(file: &File) -> io::Result<u64> {
    look(file).map(|found| found.nNumberOfLinks.into())
}

/// Makes a file durable that is open nowhere: only who may write it can.
pub(crate) fn sync_file(path: &Path) -> io::Result<()> {
    File::options().write(true).open(path)?.sync_all()
}

/// Makes the names in a directory durable, as far as the system has a way. It has none that it promises: as SQLite, we
/// leave it to the file system's own log.
#[allow(clippy::unnecessary_wraps, reason = "elsewhere there is one, which can fail")]
pub(crate) fn sync_directory(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Gives a file another name in the same directory, which must be free: `AlreadyExists` if it is not.
pub(crate) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (wide(from)?, wide(to)?);
    // SAFETY: strings of 16-bit units that end with a zero.
    match unsafe { MoveFileExW(from.as_ptr(), to.as_ptr(), MOVEFILE_WRITE_THROUGH) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// A path as the system takes it whatever its length: from the root, and marked so. Its directory is there.
fn wide(path: &Path) -> io::Result<Vec<u16>> {
    use std::os::windows::ffi::OsStrExt;
    let no_name = || io::Error::from(io::ErrorKind::InvalidInput);
    let (parent, name) = (path.parent().ok_or_else(no_name)?, path.file_name().ok_or_else(no_name)?);
    let path = fs::canonicalize(parent)?.join(name);
    Ok(path.as_os_str().encode_wide().chain([0]).collect())
}

//! Location of the file of a store: its directory, which stays open, and its name in the directory.
//!
//! So a store stays usable after its directory was renamed, while a file that was deleted, moved or
//! replaced is detected.

use std::ffi::{CStr, CString, c_int};
use std::fs::{File, Permissions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use super::access::may_access;
use super::descriptors::Mark;
use super::limits;
use super::status::{FileIdentity, Status};

/// Location of a file: its directory, which stays open, and its name in the directory.
pub(in crate::backend::file) struct FileLocation {
    directory: Directory,
    name: CString,
    /// Identity that the file had when this value was created.
    file: FileIdentity,
    /// Names and identities of the other files in the directory that `are_companions_kept` checks:
    /// the WAL and the shared memory.
    companions: Vec<(CString, FileIdentity)>,
}

/// Directory that stays open. Dropping this closes its descriptor, unless the program has already
/// closed the descriptor itself: its number may then belong to another file.
struct Directory {
    file: ManuallyDrop<File>,
    /// Mark by which the descriptor of the directory is recognised.
    mark: Mark,
}

impl Directory {
    fn open(path: &Path) -> io::Result<Directory> {
        let file = open_directory(path)?;
        let mark = Mark::set(file.as_raw_fd())?;
        Ok(Directory { file: ManuallyDrop::new(file), mark })
    }
}

impl AsRawFd for Directory {
    fn as_raw_fd(&self) -> c_int {
        self.file.as_raw_fd()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.mark.is_on(self.as_raw_fd()) {
            // SAFETY: the file is dropped once, and not used after this.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

/// Metadata of a file at one time: two equal values mean that its content has not changed. Changes
/// within one tick of the file system's clock may not be detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::backend::file) struct State {
    file: FileIdentity,
    /// Length of the file, in bytes.
    size: i64,
    /// Time of the last change of the content (`st_mtime`): seconds since the Unix epoch, and
    /// nanoseconds.
    modified: (i64, i64),
    /// Time of the last change of the content or the metadata (`st_ctime`), in the same units.
    changed: (i64, i64),
}

impl State {
    pub(in crate::backend::file) fn file(&self) -> FileIdentity {
        self.file
    }

    pub(in crate::backend::file) fn is_empty(&self) -> bool {
        self.size == 0
    }

    pub(in crate::backend::file) fn size(&self) -> u64 {
        u64::try_from(self.size).unwrap_or(0)
    }

    /// Returns the time of the last change of the content or the metadata (`st_ctime`), since the
    /// Unix epoch.
    pub(in crate::backend::file) fn changed(&self) -> Duration {
        Duration::new(u64::try_from(self.changed.0).unwrap_or(0), u32::try_from(self.changed.1).unwrap_or(0))
    }
}

impl FileLocation {
    /// Returns the location of the file at a path without symbolic links.
    ///
    /// # Errors
    /// The error of opening the directory. `NotFound` if the file does not exist.
    pub(in crate::backend::file) fn of(path: &Path) -> io::Result<FileLocation> {
        let no_name = || io::Error::from(io::ErrorKind::InvalidInput);
        let (parent, name) = (path.parent().ok_or_else(no_name)?, path.file_name().ok_or_else(no_name)?);
        let (directory, name) = (Directory::open(parent)?, CString::new(name.as_bytes())?);
        let file = look(&directory, &name)?.file;
        Ok(FileLocation { directory, name, file, companions: Vec::new() })
    }

    /// Returns the identity that the file had when this value was created.
    pub(in crate::backend::file) fn file(&self) -> FileIdentity {
        self.file
    }

    /// Returns `true` if the name in the directory still belongs to the same file, so that the file
    /// was not deleted, moved or replaced. Returns `true` also if this process may no longer search
    /// the directory, so that this cannot be determined. The check takes one system call.
    #[inline]
    pub(in crate::backend::file) fn is_kept(&self) -> bool {
        self.is_at(&self.name, self.file)
    }

    /// Sets the files that `are_companions_kept` checks from now on: the files whose names are the
    /// name of this file plus one of the suffixes. Files that do not exist are not checked.
    pub(in crate::backend::file) fn watch_companions(&mut self, suffixes: &[&str]) {
        let found = suffixes.iter().filter_map(|suffix| {
            let name = self.beside(suffix).ok()?;
            let file = look(&self.directory, &name).ok()?.file;
            Some((name, file))
        });
        self.companions = found.collect();
    }

    /// Returns `true` if the names of all files set by `watch_companions` still belong to the same
    /// files, or if this process may no longer search the directory. This takes one system call per
    /// file.
    pub(in crate::backend::file) fn are_companions_kept(&self) -> bool {
        self.companions.iter().all(|(name, file)| self.is_at(name, *file))
    }

    /// Returns `true` if `name` in the directory belongs to the file with the identity `file`, or
    /// if this process may not search the directory.
    #[inline]
    fn is_at(&self, name: &CStr, file: FileIdentity) -> bool {
        match look(&self.directory, name) {
            Ok(state) => state.file == file,
            Err(e) => e.kind() == io::ErrorKind::PermissionDenied,
        }
    }

    /// Returns the current metadata of the file whose name is the name of this file plus a suffix;
    /// `None` if it does not exist.
    ///
    /// # Errors
    /// The metadata cannot be read.
    pub(in crate::backend::file) fn state(&self, suffix: &str) -> io::Result<Option<State>> {
        match look(&self.directory, &self.beside(suffix)?) {
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
        let name = self.beside(suffix)?;
        // SAFETY: the directory is open, and the name is a C string.
        if unsafe { libc::unlinkat(self.directory.as_raw_fd(), name.as_ptr(), 0) } == 0 {
            return Ok(());
        }
        let e = io::Error::last_os_error();
        if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) }
    }

    /// Returns the name of this file plus a suffix.
    fn beside(&self, suffix: &str) -> io::Result<CString> {
        Ok(CString::new([self.name.as_bytes(), suffix.as_bytes()].concat())?)
    }

    /// Returns `true` if this process may create and remove files in the directory of the file.
    pub(in crate::backend::file) fn can_be_written_to(&self) -> bool {
        to_write_at(self.directory.as_raw_fd(), c".").is_ok()
    }

    /// Syncs the directory, so that the names in it are durable.
    pub(in crate::backend::file) fn sync_directory(&self) -> io::Result<()> {
        self.directory.file.sync_all()
    }
}

/// Returns `true` if a file exists at a path and this process may write it.
pub(in crate::backend::file) fn may_write(path: &Path) -> bool {
    to_write(path).is_ok()
}

/// Returns `true` if a file exists at a path and this process may not write it.
pub(in crate::backend::file) fn is_forbidden_to_write(path: &Path) -> bool {
    to_write(path).is_err_and(|e| e.kind() != io::ErrorKind::NotFound)
}

/// Checks whether this process may write the file at a path. Returns the error of an open for
/// writing if not.
fn to_write(path: &Path) -> io::Result<()> {
    to_write_at(libc::AT_FDCWD, &CString::new(path.as_os_str().as_bytes())?)
}

/// Checks whether this process may write the file `name` in a directory. Returns the error of an
/// open for writing if not.
fn to_write_at(directory: c_int, name: &CStr) -> io::Result<()> {
    may_access(directory, name, libc::W_OK)
}

/// Returns the length of the file at a path, in bytes; `None` if it is not a regular file.
pub(in crate::backend::file) fn length_of_file(path: &Path) -> io::Result<Option<u64>> {
    std::fs::metadata(path).map(|found| found.is_file().then_some(found.len()))
}

/// Opens a directory. On Linux, a directory that this process may not list is opened with `O_PATH`:
/// names in it can be looked up, but it cannot be synced.
fn open_directory(path: &Path) -> io::Result<File> {
    let opened = File::options().read(true).custom_flags(libc::O_DIRECTORY).open(path);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if opened.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied) {
        return File::options().read(true).custom_flags(libc::O_DIRECTORY | libc::O_PATH).open(path);
    }
    opened
}

/// Returns the metadata of the file `name` in a directory. A symbolic link is not followed.
fn look(directory: &Directory, name: &CStr) -> io::Result<State> {
    let Status { file, length, modified, changed, .. } = Status::at(directory.as_raw_fd(), name)?;
    Ok(State { file, size: length, modified, changed })
}

/// Returns the number of bytes that this process can still write to a new file in the file system
/// of `path`: its free space, or the process's limit on the size of a file if that is less. Returns
/// `None` if the file system reports no size.
pub(in crate::backend::file) fn free_space(path: &Path) -> Option<u64> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: the path is a C string. The struct consists of integers and may be written.
    let found = unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &raw mut found) == 0).then_some(found)?
    };
    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    let free = (found.f_bavail as u64).saturating_mul(found.f_frsize as u64);
    (found.f_blocks > 0).then_some(free.min(limits::file_size_limit().unwrap_or(u64::MAX)))
}

/// Fills `to` with the bytes of a file from the offset `at`. Fails with `UnexpectedEof` if the file
/// ends before.
pub(crate) fn read_exact_at(file: &File, to: &mut [u8], at: u64) -> io::Result<()> {
    file.read_exact_at(to, at)
}

/// Creates an empty file at `path` with exactly the permissions `mode`. If `mode` is `None`, uses
/// the permissions of `original`, less the umask if the new file has another group than `original`.
/// If both are `None`, uses the system's default. Fails if a file exists at `path`.
pub(crate) fn make_like(original: Option<&Path>, mode: Option<u32>, path: &Path) -> io::Result<()> {
    let original = original.map(std::fs::metadata).transpose()?;
    let wanted = mode.or_else(|| original.as_ref().map(|found| found.permissions().mode() & 0o777));
    let mut options = File::options();
    options.write(true).create_new(true);
    if let Some(wanted) = wanted {
        options.mode(wanted);
    }
    let file = options.open(path)?;
    let has_its_group = || {
        let gid = file.metadata().map(|made| made.gid());
        original.is_some_and(|original| gid.is_ok_and(|gid| gid == original.gid()))
    };
    match wanted {
        Some(wanted) if mode.is_some() || has_its_group() => {
            file.set_permissions(Permissions::from_mode(wanted)).inspect_err(|_| {
                let _ = std::fs::remove_file(path); // the first error is the one to report
            })
        }
        _ => Ok(()),
    }
}

/// Creates a file that only its owner can read and write. Fails if a file exists at `path`.
#[cfg(feature = "encryption")]
pub(in crate::backend::file) fn make_private(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Opens the file at a path for overwriting. Fails for a symbolic link, and does not wait for a
/// FIFO, in case another program has put one there.
#[cfg(feature = "encryption")]
pub(in crate::backend::file) fn open_what_is_there(path: &Path) -> io::Result<File> {
    File::options().write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

/// Opens the file at a path for writing, so that its content can be overwritten after its name was
/// removed. Returns `None` if the file cannot be opened.
#[cfg(feature = "encryption")]
pub(in crate::backend::file) fn open_to_outlive_its_name(path: &Path) -> Option<File> {
    File::options().write(true).open(path).ok()
}

/// Returns the number of hard links of the file at a path.
#[cfg(feature = "encryption")]
pub(in crate::backend::file) fn names_at(path: &Path) -> io::Result<u64> {
    std::fs::metadata(path).map(|found| found.nlink())
}

/// Returns the number of hard links of an open file.
#[cfg(feature = "encryption")]
pub(in crate::backend::file) fn names_of(file: &File) -> io::Result<u64> {
    file.metadata().map(|found| found.nlink())
}

/// Opens the file at a path and syncs it. The process need not have the permission to write it.
pub(crate) fn sync_file(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Syncs a directory, so that the names in it are durable. Succeeds without effect if this process
/// cannot open it.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path).map_or(Ok(()), |directory| directory.sync_all())
}

/// Renames a file. Fails if a file with the new name exists.
///
/// # Errors
/// `AlreadyExists` if a file with the new name exists. `Unsupported` if the operating system or the
/// file system cannot check this and rename in one step.
pub(crate) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (CString::new(from.as_os_str().as_bytes())?, CString::new(to.as_os_str().as_bytes())?);
    let code = rename(&from, &to);
    if code == Some(0) {
        return Ok(());
    }
    let e = io::Error::last_os_error();
    match e.raw_os_error() {
        _ if code.is_none() => Err(io::ErrorKind::Unsupported.into()),
        Some(libc::EINVAL | libc::ENOSYS | libc::ENOTSUP) => Err(io::ErrorKind::Unsupported.into()),
        _ => Err(e),
    }
}

/// Renames a file unless a file with the new name exists. Returns the result of the system call;
/// `None` if the operating system has no such call.
fn rename(from: &CString, to: &CString) -> Option<c_int> {
    // SAFETY: the names are C strings. (This calls the kernel, because glibc has the function only
    // since 2.28.)
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[allow(clippy::disallowed_methods, reason = "not on Android")]
    return Some(unsafe {
        let (from, to, here) = (from.as_ptr(), to.as_ptr(), libc::AT_FDCWD);
        libc::syscall(libc::SYS_renameat2, here, from, here, to, libc::RENAME_NOREPLACE) as c_int
    });
    // SAFETY: the names are C strings.
    #[cfg(target_vendor = "apple")]
    return Some(unsafe { libc::renamex_np(from.as_ptr(), to.as_ptr(), libc::RENAME_EXCL) });
    #[cfg(not(any(all(target_os = "linux", target_env = "gnu"), target_vendor = "apple")))]
    {
        let _ = (from, to);
        None
    }
}

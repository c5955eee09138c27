//! Files that the library opens itself, in addition to SQLite.

use std::ffi::{CString, c_int};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use super::descriptors::owns_its_locks;
use super::status::{FileIdentity, Status};
use super::{limits, lock, maps, original_calls, parked_files};
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::backend::file::os::refusal::is_without_space;

/// Maximum number of attempts of `open_or_create` to create a file that another process repeatedly
/// creates and removes.
const CREATIONS: usize = 20;

/// Number of checks that `is_not_of` makes: it reports that shared memory belongs to another
/// database only if each check has found it so.
const FOREIGN_CHECKS: usize = 5;

/// File that is opened in addition to SQLite's descriptor of the same file. Closing it drops no
/// locks of this process.
pub(crate) struct OsFile {
    fd: c_int,
}

impl OsFile {
    /// Opens a file for reading, or with `write` for reading and writing. With `create`, creates
    /// the file if it does not exist, with the permissions that SQLite gives its files (0644, less
    /// the umask).
    pub(crate) fn open(path: &Path, write: bool, create: bool) -> io::Result<OsFile> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        let access = if write { libc::O_RDWR } else { libc::O_RDONLY };
        let flags = access | libc::O_CLOEXEC | if create { libc::O_CREAT } else { 0 };
        loop {
            // SAFETY: the name is a C string.
            let fd = unsafe { parked_files::open(name.as_ptr(), flags, 0o644) };
            if fd >= 0 {
                return Ok(OsFile { fd });
            }
            let e = io::Error::last_os_error();
            if e.kind() != io::ErrorKind::Interrupted {
                return Err(e);
            }
        }
    }

    /// Opens a file for reading and writing. If it does not exist, creates it with exactly the
    /// permissions `mode`.
    pub(in crate::backend::file) fn open_or_create(path: &Path, mode: u32) -> io::Result<OsFile> {
        for _ in 0..CREATIONS {
            match OsFile::open(path, true, false) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                opened => return opened,
            }
            match OsFile::create(path, mode) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                created => return created,
            }
        }
        OsFile::open(path, true, false)
    }

    /// Creates a file with exactly the permissions `mode`, and opens it for reading and writing.
    /// Fails if the file exists.
    fn create(path: &Path, mode: u32) -> io::Result<OsFile> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        let before = original_calls::before().ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
        let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_CREAT | libc::O_EXCL;
        // SAFETY: the name is a C string. The file will carry SQLite's locks.
        let fd = unsafe { parked_files::open_noted(before, name.as_ptr(), flags, mode as c_int, true) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let file = OsFile { fd };
        // SAFETY: the file is open. (When it was created, the umask removed permissions.)
        if unsafe { libc::fchmod(fd, mode as libc::mode_t) } != 0 {
            let e = io::Error::last_os_error();
            // SAFETY: the name is a C string.
            unsafe { libc::unlink(name.as_ptr()) };
            return Err(e);
        }
        Ok(file)
    }

    /// Opens a journal for reading.
    pub(in crate::backend::file) fn open_journal(path: &Path) -> io::Result<OsFile> {
        OsFile::open(path, false, false)
    }

    /// Reads the first bytes of the file into `buffer`. Returns their number, which is less than
    /// the length of `buffer` only if the file is shorter.
    pub(crate) fn read_start(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            // SAFETY: the buffer has the given length.
            let read = unsafe { libc::pread(self.fd, rest.as_mut_ptr().cast(), rest.len(), filled as _) };
            match usize::try_from(read) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(_) => {
                    let e = io::Error::last_os_error();
                    if e.kind() != io::ErrorKind::Interrupted {
                        return Err(e);
                    }
                }
            }
        }
        Ok(filled)
    }

    /// Returns `true` if the locks of this file belong to its open file description, and `false` if
    /// they belong to the process. If `true`, the file may be closed while SQLite has it open.
    pub(in crate::backend::file) fn owns_its_locks(&self) -> bool {
        owns_its_locks(self.fd)
    }

    /// Returns the identity of the file.
    pub(crate) fn identity(&self) -> io::Result<FileIdentity> {
        Status::of(self.fd).map(|found| found.file)
    }

    /// Returns the identity of the file and its number of hard links.
    pub(in crate::backend::file) fn identity_and_names(&self) -> io::Result<(FileIdentity, u64)> {
        Status::of(self.fd).map(|found| (found.file, found.names))
    }

    /// Returns `true` if the file is empty and no connection uses it through SQLite. Then it stays
    /// locked exclusively until this is dropped, so that no connection can begin to use it. A file
    /// whose locks belong to the process is not locked, and only its length is checked.
    pub(in crate::backend::file) fn is_empty_and_mine(&self) -> bool {
        let alone = !owns_its_locks(self.fd) || self.keeps_others_out();
        alone && Status::of(self.fd).is_ok_and(|found| found.length == 0)
    }

    /// Locks the file exclusively until this is dropped, so that no connection can use it through
    /// SQLite. The file must be open for writing. Returns `false`, without a lock, if the file is
    /// in use, or if its locks belong to the process.
    pub(in crate::backend::file) fn keeps_others_out(&self) -> bool {
        let (start, length) = lock::DATABASE;
        owns_its_locks(self.fd)
            && original_calls::before()
                .is_some_and(|before| lock::set(before, self.fd, libc::F_WRLCK as c_int, start, length))
    }

    /// Locks the database file as a reader does, until this is dropped, so that no connection that
    /// closes it removes its WAL and shared memory. Returns `false` if the file is locked
    /// exclusively. A file whose locks belong to the process is not locked, and the result is
    /// `true`.
    pub(in crate::backend::file) fn keeps_files_beside(&self) -> bool {
        let (start, length) = lock::SHARED;
        !owns_its_locks(self.fd)
            || original_calls::before()
                .is_some_and(|before| lock::set(before, self.fd, libc::F_RDLCK as c_int, start, length))
    }

    /// Returns the number of bytes of disk space that the file occupies, including blocks that are
    /// reserved beyond its end.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(in crate::backend::file) fn allocated(&self) -> io::Result<u64> {
        Status::of(self.fd).map(|found| u64::try_from(found.blocks).unwrap_or(0).saturating_mul(512))
    }

    /// Reserves disk space for the bytes of the file up to the offset `to`, without changing the
    /// length of the file. Returns `false` if the file system does not support this.
    ///
    /// # Errors
    /// The disk is full, or a quota is used up.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(in crate::backend::file) fn reserve(&self, to: u64) -> io::Result<bool> {
        let start = u64::try_from(Status::of(self.fd)?.length).unwrap_or(u64::MAX);
        if start >= to {
            return Ok(true);
        }
        let (Ok(start), Ok(length)) = (start.try_into(), (to - start).try_into()) else { return Ok(false) };
        loop {
            // The length of the file does not change, but tmpfs sends SIGXFSZ all the same.
            // SAFETY: the file is open, and no memory is involved.
            let reserve = || unsafe { libc::fallocate(self.fd, libc::FALLOC_FL_KEEP_SIZE, start, length) };
            if limits::with_signal_blocked_beyond(to, reserve) == 0 {
                return Ok(true);
            }
            match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => {}
                e if is_without_space(&e) => return Err(e),
                _ => return Ok(false),
            }
        }
    }

    /// Returns `false`: on this system, no disk space is reserved beyond the end of a file.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "Linux can do that")]
    pub(in crate::backend::file) fn reserve(&self, _: u64) -> io::Result<bool> {
        Ok(false)
    }

    /// Releases the disk space that is reserved beyond the end of the file, by truncating the file
    /// to its current length. The caller ensures that no process extends the file during the call.
    #[allow(clippy::useless_conversion, reason = "the type of a length differs between systems")]
    pub(in crate::backend::file) fn give_reserved_back(&self) {
        if let Ok(found) = Status::of(self.fd)
            && let Ok(length) = found.length.try_into()
        {
            // SAFETY: the file is open and keeps its length. If the call fails, the blocks stay
            // reserved.
            unsafe { libc::ftruncate(self.fd, length) };
        }
    }

    /// Returns `true` if a connection uses the file through SQLite, or if that cannot be
    /// determined.
    pub(in crate::backend::file) fn is_in_use(&self) -> bool {
        let (start, length) = lock::DATABASE;
        original_calls::before().is_none_or(|before| lock::is_locked(before, self.fd, start, length))
    }

    /// Returns `true` if `shared_memory`, the file next to this database, is in use, but no
    /// connection uses this database. Then the shared memory and the WAL belong to another file
    /// that had the name of this database before. Returns `false` if that cannot be determined.
    ///
    /// Every connection that uses shared memory in WAL mode locks its database before that use, and
    /// keeps the lock until after it.
    pub(in crate::backend::file) fn is_not_of(&self, shared_memory: &OsFile) -> bool {
        let Some(before) = original_calls::before() else { return false };
        if !owns_its_locks(self.fd) || !owns_its_locks(shared_memory.fd) {
            return false; // this cannot be determined
        }
        let is_locked = |file: &OsFile, (start, length)| lock::is_locked(before, file.fd, start, length);
        (0..FOREIGN_CHECKS).all(|look| {
            if look > 0 {
                // The database may be unlocked briefly, while one process closes it and another one
                // opens it.
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            is_locked(shared_memory, lock::SHARED_MEMORY) && !is_locked(self, lock::DATABASE)
        })
    }

    /// Returns `false` if the file system cannot map the file into memory that processes share. The
    /// file must be open for writing.
    pub(in crate::backend::file) fn can_be_shared_memory(&self) -> bool {
        const LENGTH: usize = 4096;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the mapping is new, nothing of it is read or written, and it ends here.
        unsafe {
            let mapped = maps::mapped(LENGTH, || {
                libc::mmap(ptr::null_mut(), LENGTH, protection, libc::MAP_SHARED, self.fd, 0)
            });
            if mapped == libc::MAP_FAILED {
                return matches!(original_calls::errno(), libc::ENOMEM | libc::EAGAIN);
            }
            maps::unmapped(mapped, LENGTH, || libc::munmap(mapped, LENGTH));
        }
        true
    }

    /// Overwrites both copies of the header in this shared memory file (48 bytes each) with zeros,
    /// so that the next connection rebuilds the shared memory from the WAL (SQLite's
    /// walformat.html, chapter 2.1).
    pub(in crate::backend::file) fn clear_start(&self) {
        // SAFETY: the file is open, and the buffer has 96 bytes. If the call fails, the header
        // stays valid.
        limits::written(96, || unsafe { libc::pwrite(self.fd, [0u8; 96].as_ptr().cast(), 96, 0) });
    }

    /// Returns the descriptor, which stays open until this is dropped.
    pub(in crate::backend::file::os) fn fd(&self) -> c_int {
        self.fd
    }
}

impl Drop for OsFile {
    fn drop(&mut self) {
        // With POSIX locks, closing the descriptor would drop the locks of this process's
        // connections. So it is parked, and SQLite takes it over.
        parked_files::put_away(self.fd, true);
    }
}

//! Files that are opened in addition to SQLite's, with their identity and their locks.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::mem::{self, zeroed};
use std::os::windows::fs::{FileExt, OpenOptionsExt};
use std::os::windows::io::AsRawHandle;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_ID_INFO, FILE_READ_ATTRIBUTES, FILE_SHARE_READ, FILE_SHARE_WRITE,
    FileIdInfo, GetFileInformationByHandle, GetFileInformationByHandleEx, LOCKFILE_EXCLUSIVE_LOCK,
    LOCKFILE_FAIL_IMMEDIATELY, LockFileEx, UnlockFileEx,
};
use windows_sys::Win32::System::IO::OVERLAPPED;

/// Identity of a file: serial number of the volume and number of the file on it.
pub(crate) type FileIdentity = (u64, u128);

/// Byte range of a file: offset of its first byte, and length.
type Part = (u64, u64);

/// Byte range of SQLite's locks in a database file (os.h, "PENDING_BYTE"): one byte for PENDING,
/// one for RESERVED, and 510 for SHARED.
const DATABASE: Part = (1 << 30, 512);
/// Byte range in a database file on which every reader has a shared lock.
const SHARED: Part = (DATABASE.0 + 2, 510);
/// Byte range for the marks of processes that have a database open. Each process locks one byte of
/// it. No file is long enough to have content there.
const PRESENCES: Part = (1 << 62, 1 << 48);

/// Returns the metadata of an open file.
pub(super) fn look(file: &File) -> io::Result<BY_HANDLE_FILE_INFORMATION> {
    // SAFETY: the struct consists of integers.
    let mut found: BY_HANDLE_FILE_INFORMATION = unsafe { zeroed() };
    // SAFETY: the file is open, and the struct may be written.
    match unsafe { GetFileInformationByHandle(file.as_raw_handle(), &raw mut found) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(found),
    }
}

/// Returns the identity of an open file.
///
/// # Errors
/// The file system does not return an identity.
pub(super) fn identity_of(file: &File) -> io::Result<FileIdentity> {
    file_number(long_number(file), || {
        let found = look(file)?;
        let number = u64::from(found.nFileIndexHigh) << 32 | u64::from(found.nFileIndexLow);
        Ok((found.dwVolumeSerialNumber.into(), number))
    })
}

/// Selects the identity of a file: `long`, which has a file number of 128 bits, if it is there and
/// valid; otherwise the result of `short`, which has a file number of 64 bits.
///
/// Some numbers are not valid (MS-FSCC, chapters 2.1.9 and 2.1.10): file systems without file
/// numbers return 0, and a number in which all bits are 1 means that the file has no number.
///
/// # Errors
/// `Unsupported` if neither number is valid; the error of `short`.
pub(super) fn file_number(
    long: Option<FileIdentity>,
    short: impl FnOnce() -> io::Result<(u64, u64)>,
) -> io::Result<FileIdentity> {
    if let Some(identity) = long.filter(|(_, number)| ![0, u128::MAX].contains(number)) {
        return Ok(identity);
    }
    match short()? {
        (_, 0 | u64::MAX) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "its file system does not tell files apart: keep the store on another drive",
        )),
        (volume, number) => Ok((volume, number.into())),
    }
}

/// Returns the identity of an open file with a file number of 128 bits; `None` if its file system
/// has no such numbers.
fn long_number(file: &File) -> Option<FileIdentity> {
    // SAFETY: the struct consists of integers.
    let mut found: FILE_ID_INFO = unsafe { zeroed() };
    let size = size_of::<FILE_ID_INFO>() as u32;
    // SAFETY: the file is open, and the struct has the given size and may be written.
    let known = unsafe {
        GetFileInformationByHandleEx(file.as_raw_handle(), FileIdInfo, (&raw mut found).cast(), size)
    };
    (known != 0).then(|| (found.VolumeSerialNumber, u128::from_le_bytes(found.FileId.Identifier)))
}

/// Opens a file or directory to read its metadata only. This succeeds however other processes have
/// opened it.
pub(super) fn open_to_look(path: &Path) -> io::Result<File> {
    File::options().access_mode(FILE_READ_ATTRIBUTES).open(path)
}

/// Returns `true` if the file at a path has the identity `file`.
pub(crate) fn is_at(path: &Path, file: FileIdentity) -> bool {
    open_to_look(path).and_then(|found| identity_of(&found)).is_ok_and(|found| found == file)
}

/// Fills `to` with the bytes of a file from the offset `at`. Fails with `UnexpectedEof` if the file
/// ends before.
pub(crate) fn read_exact_at(file: &File, to: &mut [u8], at: u64) -> io::Result<()> {
    if read_at(file, to, at)? == to.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Reads bytes of a file from the offset `at`. Returns their number, which is less than `to.len()`
/// only at the end of the file.
pub(super) fn read_at(file: &File, to: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = to.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.seek_read(rest, at + filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

/// Converts a byte range to the arguments of `LockFileEx`: its offset, and the low and the high
/// half of its length.
fn part(part: Part) -> (OVERLAPPED, u32, u32) {
    // SAFETY: the struct consists of integers and a handle that may be NULL.
    let mut begin: OVERLAPPED = unsafe { zeroed() };
    begin.Anonymous.Anonymous.Offset = part.0 as u32;
    begin.Anonymous.Anonymous.OffsetHigh = (part.0 >> 32) as u32;
    (begin, part.1 as u32, (part.1 >> 32) as u32)
}

/// Locks a byte range for this handle, without waiting. The lock is shared, or with the flag
/// `LOCKFILE_EXCLUSIVE_LOCK` exclusive. Returns `true` on success. A conflicting lock of this
/// handle itself makes the call fail, too.
fn lock(file: &File, which: Part, flags: u32) -> bool {
    let (mut begin, low, high) = part(which);
    let flags = flags | LOCKFILE_FAIL_IMMEDIATELY;
    // SAFETY: the file is open and not asynchronous, so the operation has ended when the call
    // returns.
    unsafe { LockFileEx(file.as_raw_handle(), flags, 0, low, high, &raw mut begin) != 0 }
}

/// Unlocks a byte range that one call of `lock` has locked.
fn unlock(file: &File, which: Part) {
    let (mut begin, low, high) = part(which);
    // SAFETY: the file is open and not asynchronous, so the operation has ended when the call
    // returns.
    unsafe { UnlockFileEx(file.as_raw_handle(), 0, low, high, &raw mut begin) };
}

/// File that is opened in addition to SQLite's handle of the same file. While this is open, other
/// processes can delete the file, unless `open_journal` has opened it.
pub(crate) struct OsFile {
    pub(super) file: File,
    /// Byte ranges of the file that stay locked until this is dropped. A range that was locked
    /// twice is in the list twice.
    kept: Mutex<Vec<Part>>,
}

/// Unlocks the file before it is closed. Otherwise Windows would unlock it at an unspecified time
/// after the close (documentation of `LockFileEx`).
impl Drop for OsFile {
    fn drop(&mut self) {
        for which in mem::take(self.kept.get_mut().unwrap_or_else(PoisonError::into_inner)) {
            unlock(&self.file, which);
        }
    }
}

impl OsFile {
    /// Opens a file for reading, or with `write` for reading and writing. With `create`, creates
    /// the file if it does not exist, with the permissions of its directory.
    pub(crate) fn open(path: &Path, write: bool, create: bool) -> io::Result<OsFile> {
        let file = File::options().read(true).write(write).create(create).truncate(false).open(path)?;
        Ok(OsFile { file, kept: Mutex::default() })
    }

    /// Opens a file for reading and writing. Creates it if it does not exist, with the permissions
    /// of its directory.
    pub(in crate::backend::file) fn open_or_create(path: &Path, _mode: u32) -> io::Result<OsFile> {
        OsFile::open(path, true, true)
    }

    /// Opens a journal for reading. While it is open, no process can remove it; SQLite then retries
    /// the removal.
    ///
    /// If another process could remove the journal, the file would keep its name until this is
    /// dropped, on systems that delay the removal of a name
    /// ([`length_of_file`](super::file_location::length_of_file)).
    pub(in crate::backend::file) fn open_journal(path: &Path) -> io::Result<OsFile> {
        let file = File::options().read(true).share_mode(FILE_SHARE_READ | FILE_SHARE_WRITE).open(path)?;
        Ok(OsFile { file, kept: Mutex::default() })
    }

    /// Returns `false`: on Windows, this library reserves no disk space.
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "Linux can do that")]
    pub(in crate::backend::file) fn reserve(&self, _: u64) -> io::Result<bool> {
        Ok(false)
    }

    /// Does nothing: on Windows, this library reserves no disk space.
    #[allow(clippy::unused_self, reason = "Linux can do that")]
    pub(in crate::backend::file) fn give_reserved_back(&self) {}

    /// Reads the first bytes of the file into `buffer`. Returns their number, which is less than
    /// the length of `buffer` only if the file is shorter.
    pub(crate) fn read_start(&self, buffer: &mut [u8]) -> io::Result<usize> {
        read_at(&self.file, buffer, 0)
    }

    /// Locks a byte range of the file until this is dropped: shared, or with the flag
    /// `LOCKFILE_EXCLUSIVE_LOCK` exclusively. Returns `true` on success. Never waits.
    fn keep(&self, which: Part, flags: u32) -> bool {
        let is_kept = lock(&self.file, which, flags);
        if is_kept {
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(which);
        }
        is_kept
    }

    /// Returns `true`: on Windows, locks always belong to the handle that has taken them, not to
    /// the process.
    #[allow(clippy::unused_self, reason = "elsewhere it depends on the file system")]
    pub(in crate::backend::file) fn owns_its_locks(&self) -> bool {
        true
    }

    /// Returns the identity of the file.
    pub(crate) fn identity(&self) -> io::Result<FileIdentity> {
        identity_of(&self.file)
    }

    /// Returns the identity of the file and its number of hard links.
    pub(in crate::backend::file) fn identity_and_names(&self) -> io::Result<(FileIdentity, u64)> {
        Ok((self.identity()?, look(&self.file)?.nNumberOfLinks.into()))
    }

    /// Locks the file exclusively until this is dropped, and returns `true` if that succeeds and
    /// the file is empty. While the lock is held, no other connection can use the file through
    /// SQLite.
    pub(in crate::backend::file) fn is_empty_and_mine(&self) -> bool {
        self.keeps_others_out() && self.file.metadata().is_ok_and(|found| found.len() == 0)
    }

    /// Locks the file exclusively until this is dropped, so that no connection can use it through
    /// SQLite. Returns `false` if a connection is using it.
    pub(in crate::backend::file) fn keeps_others_out(&self) -> bool {
        self.keep(DATABASE, LOCKFILE_EXCLUSIVE_LOCK)
    }

    /// Locks the database file as a reader does, until this is dropped. During this time, no
    /// connection that closes the file removes its WAL and shared memory. Returns `false` if the
    /// file is locked exclusively.
    pub(in crate::backend::file) fn keeps_files_beside(&self) -> bool {
        self.keep(SHARED, 0)
    }

    /// Returns `true`, as if a connection used the file. It cannot be determined: a check would
    /// have to lock the file, which would disturb connections.
    #[allow(clippy::unused_self, reason = "elsewhere one can ask")]
    pub(in crate::backend::file) fn is_in_use(&self) -> bool {
        true
    }

    /// Returns `false`: the shared memory next to this database always belongs to this database,
    /// because on Windows a file that is in use keeps its name.
    #[allow(clippy::unused_self, reason = "elsewhere it need not keep it")]
    pub(in crate::backend::file) fn is_not_of(&self, _shared_memory: &OsFile) -> bool {
        false
    }

    /// Returns `true`: on Windows, every file system can map a file into memory that processes
    /// share.
    #[allow(clippy::unused_self, reason = "elsewhere it depends on the file system")]
    pub(in crate::backend::file) fn can_be_shared_memory(&self) -> bool {
        true
    }

    /// Overwrites both copies of the header in this shared memory file (48 bytes each) with zeros,
    /// so that the next connection rebuilds the shared memory from the WAL (SQLite's
    /// walformat.html, chapter 2.1).
    pub(in crate::backend::file) fn clear_start(&self) {
        let _ = self.file.seek_write(&[0; 96], 0); // if it fails, the header stays valid
    }
}

/// Mark by which other processes detect that this process has a file open. It is an exclusive lock
/// on one byte of the range [`PRESENCES`], another byte for each process. If a process can lock all
/// other bytes of the range, no other process has a mark. (A shared lock on one common byte would
/// not work: a handle that holds it cannot detect other holders.)
pub(in crate::backend::file::os) struct Mark {
    /// Offset of the byte of the file that this process has locked.
    byte: u64,
}

impl Mark {
    /// Number of bytes of the range [`PRESENCES`] that `on` tries to lock as the mark. Other
    /// processes may have locked some of them, or may be checking for marks at the same time.
    const ATTEMPTS: usize = 64;

    /// Sets the mark of this process on a file. Returns `None` if all tried bytes were locked by
    /// other processes.
    pub(in crate::backend::file::os) fn on(file: &OsFile) -> Option<Mark> {
        let (first, length) = PRESENCES;
        let bytes = RandomState::new();
        let mut tried = (0..Mark::ATTEMPTS).map(|attempt| {
            if attempt > 0 {
                std::thread::yield_now();
            }
            first + bytes.hash_one(attempt) % length
        });
        let byte = tried.find(|byte| file.keep((*byte, 1), LOCKFILE_EXCLUSIVE_LOCK))?;
        Some(Mark { byte })
    }

    /// Returns `true` if no other open file has such a mark on the same file. The result may be
    /// `false` by mistake if another process calls this at the same time.
    pub(in crate::backend::file::os) fn is_alone(&self, file: &OsFile) -> bool {
        let (first, length) = PRESENCES;
        let after = self.byte + 1;
        [(first, self.byte - first), (after, first + length - after)].into_iter().all(|others| {
            let is_free = others.1 == 0 || lock(&file.file, others, LOCKFILE_EXCLUSIVE_LOCK);
            if is_free && others.1 > 0 {
                unlock(&file.file, others);
            }
            is_free
        })
    }
}

//! Cause of a failed system call, for errors whose SQLite result code does not identify the cause.
//!
//! SQLite returns one code for many causes. The replaced system calls (`unix/calls.rs`) record the
//! cause per thread. When `error.rs` converts SQLite's error of that call, it takes the recorded
//! cause.

#![cfg_attr(not(unix), allow(dead_code, reason = "only SQLite's unix VFS has system calls to replace"))]

use std::cell::Cell;
use std::ffi::c_int;
use std::io;

use rusqlite::ffi;

use crate::error::Error;
use crate::hint::Hint;

/// Cause of a failed system call, in more detail than SQLite's result code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::backend::file) enum Refusal {
    /// The file system is full.
    Space,
    /// The disk quota of the user, the group or the project is used up.
    Quota,
    /// The write would exceed the process's limit on the size of a file (`RLIMIT_FSIZE`), or that
    /// of the file system.
    FileSize,
    /// The file system cannot map a file into memory that processes share, as WAL mode requires.
    SharedMap,
    /// The process has no permission to remove a file of SQLite, such as the journal.
    Removal,
}

impl Refusal {
    /// Returns `true` if SQLite can return the extended result code `code` for a system call that
    /// has failed with this cause.
    pub(in crate::backend::file) fn is_of(self, code: c_int) -> bool {
        match self {
            Refusal::Space | Refusal::Quota | Refusal::FileSize => matches!(
                code,
                ffi::SQLITE_FULL
                    | ffi::SQLITE_IOERR_WRITE
                    | ffi::SQLITE_IOERR_SHMSIZE
                    | ffi::SQLITE_IOERR_SHMOPEN
                    | ffi::SQLITE_IOERR_TRUNCATE
                    | ffi::SQLITE_CANTOPEN
            ),
            Refusal::SharedMap => code == ffi::SQLITE_IOERR_SHMMAP,
            Refusal::Removal => code == ffi::SQLITE_IOERR_DELETE,
        }
    }

    /// Returns `Space` or `Quota` for an error of the system that means that the disk is full or a
    /// quota is used up; `None` for other errors.
    pub(in crate::backend::file) fn for_space(error: &io::Error) -> Option<Refusal> {
        match error.kind() {
            io::ErrorKind::StorageFull => Some(Refusal::Space),
            io::ErrorKind::QuotaExceeded => Some(Refusal::Quota),
            _ => None,
        }
    }

    /// Returns the error to report for this cause.
    pub(in crate::backend::file) fn error(self) -> Error {
        match self {
            Refusal::Space => Error::full("the disk is full").with_hint(Hint::FreeDiskSpace),
            Refusal::Quota => Error::full("the disk quota of the user, the group or the project is used up")
                .with_hint(Hint::FreeDiskSpace),
            Refusal::FileSize => Error::full(
                "the process has reached its limit on the size of a file (RLIMIT_FSIZE, \"ulimit -f\"), or the \
                 file system its own: raise the limit",
            ),
            Refusal::SharedMap => no_shared_maps(),
            Refusal::Removal => Error::io(
                "this process may not remove the store's -journal, -wal or -shm file, because of the \
                 permissions of the directory, its sticky bit or a sandbox such as Landlock",
            )
            .with_hint(Hint::CheckPermissions),
        }
    }
}

/// Returns the error of an open in WAL mode on a file system that cannot map shared memory.
#[cold]
pub(in crate::backend::file) fn no_shared_maps() -> Error {
    Error::cant_open(
        "the file system cannot map files into memory that processes share, which WAL mode needs (9p, and FUSE \
         with direct I/O, are such): open the store in DELETE journal mode, or exclusively",
    )
}

/// Returns `true` if an error of the system means that the disk is full or a quota is used up.
pub(crate) fn is_without_space(error: &io::Error) -> bool {
    Refusal::for_space(error).is_some()
}

thread_local!(
    /// Cause that this thread has recorded with `note`, and that `take` has not returned yet.
    static LAST: Cell<Option<Refusal>> = const { Cell::new(None) }
);

/// Records the cause of a system call that failed in this thread, for [`take`].
#[cold]
pub(super) fn note(refusal: Refusal) {
    LAST.set(Some(refusal));
}

/// Returns the cause of a failed system call that this thread has recorded last with `note`, and
/// clears it. Returns `None` if no cause is recorded.
pub(in crate::backend::file) fn take() -> Option<Refusal> {
    LAST.take()
}

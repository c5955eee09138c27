//! Cause of a failed system call, where SQLite's result code does not name it.
//!
//! SQLite returns one code for many causes. The replaced system calls (`unix/calls.rs`) record the
//! cause for the thread. `error.rs` takes it when it converts the error of the same call.

#![cfg_attr(not(unix), allow(dead_code, reason = "only SQLite's unix VFS has system calls to replace"))]

use std::cell::Cell;
use std::ffi::c_int;
use std::io;

use rusqlite::ffi;

use crate::error::Error;
use crate::hint::Hint;

/// Cause of a failed system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::backend::file) enum Refusal {
    /// The file system is full.
    Space,
    /// The disk quota of the user, the group or the project is used up.
    Quota,
    /// The process has reached its limit on the size of a file (`RLIMIT_FSIZE`), or the file system
    /// its own limit.
    FileSize,
    /// The file system cannot map files into memory that processes share.
    SharedMap,
    /// The process may not remove a file.
    Removal,
}

impl Refusal {
    /// Returns `true` if SQLite reports this cause with the extended code `code`.
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

    /// Returns the cause if a system call failed for lack of space.
    pub(in crate::backend::file) fn for_space(error: &io::Error) -> Option<Refusal> {
        match error.kind() {
            io::ErrorKind::StorageFull => Some(Refusal::Space),
            io::ErrorKind::QuotaExceeded => Some(Refusal::Quota),
            _ => None,
        }
    }

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

/// Returns the error for WAL mode on a file system without shared memory maps.
#[cold]
pub(in crate::backend::file) fn no_shared_maps() -> Error {
    Error::cant_open(
        "the file system cannot map files into memory that processes share, which WAL mode needs (9p, and FUSE \
         with direct I/O, are such): open the store in DELETE journal mode, or exclusively",
    )
}

/// Returns `true` if the system's error means that the disk or a quota has no space.
pub(crate) fn is_without_space(error: &io::Error) -> bool {
    Refusal::for_space(error).is_some()
}

thread_local!(
    static LAST: Cell<Option<Refusal>> = const { Cell::new(None) }
);

/// Records the cause of a failed system call of this thread.
#[cold]
pub(super) fn note(refusal: Refusal) {
    LAST.set(Some(refusal));
}

/// Returns the recorded cause of this thread's last failed call, and clears it.
pub(in crate::backend::file) fn take() -> Option<Refusal> {
    LAST.take()
}

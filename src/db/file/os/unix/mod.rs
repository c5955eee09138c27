//! Systems with SQLite's unix VFS. Each open file has a lock owner and an identity of its own
//! (ADR 10).
//!
//! SQLite's unix VFS uses POSIX locks, which belong to the process. This has two dangers:
//!
//! - Closing *any* descriptor of a file drops all locks of the process on it. This includes the
//!   locks of another copy of SQLite in the process (Python's `sqlite3`, a debugger).
//! - A forked child has no locks, while SQLite's memory records them as held.
//!
//! SQLite allows each of its system calls to be replaced (`xSetSystemCall`). Some replaced calls
//! remove both dangers:
//!
//! - Locks become locks of the open file description (`F_OFD_*`). They exclude POSIX locks and each
//!   other, and no close of another descriptor drops them. Where they are refused (an old kernel,
//!   some file systems, other systems than Linux), a descriptor keeps POSIX locks. This is
//!   determined when it is opened, and never changes.
//! - SQLite shares one lock record between all descriptors with the same device and inode. The
//!   replaced `fstat` returns a different device each time, so each connection has a record of its
//!   own, and only the kernel decides whether the locks of two connections conflict.
//! - Descriptors that may carry locks are not closed but parked for the next open of that file.
//!   Closing one would drop the POSIX locks of another copy of SQLite.
//! - A forked child finds every inherited descriptor unusable and every inherited mapping empty,
//!   and opens the files again.
//!
//! Modules:
//!
//! - `calls.rs`: the replaced system calls;
//! - `files.rs`: the list of open files;
//! - `lock.rs`: locks;
//! - `maps.rs`: mappings;
//! - `forks.rs`: fork handlers;
//! - `limits.rs`: writes beyond the limit on the size of a file;
//! - `place.rs`: directories and names;
//! - `status.rs`: metadata of files;
//! - `signals.rs`: signals of the library's threads.

mod calls;
mod files;
mod forks;
mod limits;
mod lock;
mod maps;
mod place;
mod signals;
mod status;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::ffi::{CStr, c_int};

pub(super) use calls::install;
#[cfg(feature = "remote")]
pub(crate) use files::Mortal;
pub(in crate::db::file) use files::OsFile;
pub(super) use files::making_longer;
pub(crate) use files::{FileIdentity, is_at};
pub(crate) use forks::note_fork;
pub(super) use forks::watch as watch_forks;
pub(in crate::db::file) use limits::file_size_limit;
#[cfg(feature = "encryption")]
pub(in crate::db::file) use limits::without_signal as beyond_limit;
pub(in crate::db::file) use place::{
    Place, State, coarse_ms, free_space, is_forbidden_to_write, length_of_file, may_write,
};
pub(crate) use place::{make_like, read_exact_at, rename_new, sync_directory, sync_file};
#[cfg(feature = "encryption")]
pub(in crate::db::file) use place::{
    make_private, names_at, names_of, open_to_outlive_its_name, open_what_is_there,
};
pub(crate) use signals::with_signals_blocked;

/// Name of SQLite's VFS for this system, unless another one was made the default.
pub(super) const VFS: &CStr = c"unix";

/// Maximum length of a path, in bytes, for which SQLite can open the journal (os_unix.c,
/// "MAX_PATHNAME").
pub(in crate::db::file) const MAX_PATH: usize = 512 - 8;

/// The first byte after SQLite's locks (os.h, "SHARED_SIZE"), on the page that no database uses.
const PRESENCE: i64 = lock::DATABASE.0 + lock::DATABASE.1;

/// Mark of a process on a file that it has open: a shared lock on a byte that SQLite never locks. A
/// process that finds the byte locked by another open file is not alone.
pub(super) struct Mark;

impl Mark {
    /// Sets the mark. Returns `None` where locks belong to the process.
    pub(super) fn on(file: &OsFile) -> Option<Mark> {
        let before = calls::before()?;
        let is_set =
            file.owns_its_locks() && lock::set(before, file.fd(), libc::F_RDLCK as c_int, PRESENCE, 1);
        is_set.then_some(Mark)
    }

    /// Returns `true` if no other open file has such a mark.
    pub(super) fn is_alone(&self, file: &OsFile) -> bool {
        calls::before().is_some_and(|before| !lock::is_locked(before, file.fd(), PRESENCE, 1))
    }
}

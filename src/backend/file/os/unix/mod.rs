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
//! - `calls.rs`: the replaced system calls; `original_calls.rs`: those that were there before;
//! - `descriptors.rs`: the table of open files;
//! - `parked_files.rs`: opening, closing and parking of files;
//! - `inherited.rs`: descriptors in a forked child;
//! - `os_file.rs`: files that the library opens itself;
//! - `shared_memory.rs`: extension of the shared memory;
//! - `access.rs`: access rights;
//! - `clock.rs`: a clock that is cheap to read;
//! - `lock.rs`: locks;
//! - `maps.rs`: mappings;
//! - `forks.rs`: fork handlers;
//! - `limits.rs`: writes beyond the limit on the size of a file;
//! - `place.rs`: directories and names;
//! - `status.rs`: metadata of files;
//! - `signals.rs`: signals of the library's threads.

mod access;
mod calls;
mod clock;
mod descriptors;
mod forks;
mod inherited;
mod limits;
mod lock;
mod maps;
mod original_calls;
mod os_file;
mod parked_files;
mod place;
mod shared_memory;
mod signals;
mod status;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::ffi::{CStr, c_int};

pub(crate) use access::is_at;
pub(super) use calls::install;
pub(in crate::backend::file) use clock::coarse_ms;
pub(crate) use forks::note_fork;
pub(super) use forks::watch as watch_forks;
#[cfg(feature = "remote")]
pub(crate) use inherited::Mortal;
pub(in crate::backend::file) use limits::file_size_limit;
#[cfg(feature = "encryption")]
pub(in crate::backend::file) use limits::without_signal as beyond_limit;
pub(in crate::backend::file) use os_file::OsFile;
pub(in crate::backend::file) use place::{
    Place, State, free_space, is_forbidden_to_write, length_of_file, may_write,
};
pub(crate) use place::{make_like, read_exact_at, rename_new, sync_directory, sync_file};
#[cfg(feature = "encryption")]
pub(in crate::backend::file) use place::{
    make_private, names_at, names_of, open_to_outlive_its_name, open_what_is_there,
};
pub(super) use shared_memory::making_longer;
pub(crate) use signals::with_signals_blocked;
pub(crate) use status::FileIdentity;

/// Name of SQLite's VFS for this system, unless another one was made the default.
pub(super) const VFS: &CStr = c"unix";

/// Maximum length of a path, in bytes, for which SQLite can open the journal (os_unix.c,
/// "MAX_PATHNAME").
pub(in crate::backend::file) const MAX_PATH: usize = 512 - 8;

/// The first byte after SQLite's locks (os.h, "SHARED_SIZE"), on the page that no database uses.
const PRESENCE: i64 = lock::DATABASE.0 + lock::DATABASE.1;

/// Mark of a process on a file that it has open: a shared lock on a byte that SQLite never locks. A
/// process that finds the byte locked by another open file is not alone.
pub(super) struct Mark;

impl Mark {
    /// Sets the mark. Returns `None` where locks belong to the process.
    pub(super) fn on(file: &OsFile) -> Option<Mark> {
        let before = original_calls::before()?;
        let is_set =
            file.owns_its_locks() && lock::set(before, file.fd(), libc::F_RDLCK as c_int, PRESENCE, 1);
        is_set.then_some(Mark)
    }

    /// Returns `true` if no other open file has such a mark.
    pub(super) fn is_alone(&self, file: &OsFile) -> bool {
        original_calls::before().is_some_and(|before| !lock::is_locked(before, file.fd(), PRESENCE, 1))
    }
}

//! System module for Unix, for SQLite's unix VFS. Each open file has a lock owner and an identity
//! of its own (ADR 10).
//!
//! SQLite's unix VFS uses POSIX locks, which belong to the process. This has two dangers:
//!
//! - Closing *any* descriptor of a file drops all locks of the process on it. This includes the
//!   locks of another copy of SQLite in the process (Python's `sqlite3`, a debugger).
//! - A forked child has no locks, while SQLite's memory records them as held.
//!
//! SQLite allows each of its system calls to be replaced (`xSetSystemCall`). Replacing some of them
//! removes both dangers:
//!
//! - Locks of the process become locks of the open file description (`F_OFD_*`). They conflict with
//!   POSIX locks and with each other, and closing another descriptor does not drop them. Where the
//!   system refuses them (an old kernel, some file systems, systems other than Linux), a descriptor
//!   keeps POSIX locks. This is determined once, when the descriptor is opened.
//! - SQLite shares one lock record between all descriptors with the same device and inode. The
//!   replaced `fstat` returns a different device for each descriptor. So each connection has its
//!   own record, and only the kernel decides whether the locks of two connections conflict.
//! - A descriptor that may carry locks is not closed but parked for the next open of its file.
//!   Closing it would drop the POSIX locks of another copy of SQLite.
//! - In a forked child, every inherited descriptor is unusable and every inherited mapping is
//!   empty. The child opens the files again.
//!
//! Modules:
//!
//! - `calls.rs`: the replaced system calls; `original_calls.rs`: the calls that they replace;
//! - `descriptors.rs`: the table of open descriptors;
//! - `parked_files.rs`: opening, closing and parking of files for SQLite;
//! - `inherited.rs`: descriptors in a forked child;
//! - `os_file.rs`: files that the library opens itself;
//! - `shared_memory.rs`: extension of the shared memory of a WAL;
//! - `access.rs`: access rights;
//! - `clock.rs`: a clock that is cheap to read;
//! - `lock.rs`: locks of open file descriptions;
//! - `maps.rs`: memory mappings, which a forked child replaces;
//! - `forks.rs`: fork handlers;
//! - `limits.rs`: writes beyond the limit on the size of a file;
//! - `file_location.rs`: locations of files;
//! - `status.rs`: metadata of files;
//! - `signals.rs`: signals, which are blocked in the library's threads.

mod access;
mod calls;
mod clock;
mod descriptors;
mod file_location;
mod forks;
mod inherited;
mod limits;
mod lock;
mod maps;
mod original_calls;
mod os_file;
mod parked_files;
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
pub(in crate::backend::file) use file_location::{
    FileLocation, State, free_space, is_forbidden_to_write, length_of_file, may_write,
};
pub(crate) use file_location::{make_like, read_exact_at, rename_new, sync_directory, sync_file};
#[cfg(feature = "encryption")]
pub(in crate::backend::file) use file_location::{
    make_private, names_at, names_of, open_to_outlive_its_name, open_what_is_there,
};
pub(crate) use forks::note_fork;
pub(super) use forks::watch as watch_forks;
#[cfg(feature = "remote")]
pub(crate) use inherited::Mortal;
pub(in crate::backend::file) use limits::file_size_limit;
#[cfg(feature = "encryption")]
pub(in crate::backend::file) use limits::without_signal as beyond_limit;
pub(in crate::backend::file) use os_file::OsFile;
pub(super) use shared_memory::making_longer;
pub(crate) use signals::start_thread;
pub(crate) use status::FileIdentity;

/// Name of the VFS that SQLite uses on this system, unless the program has made another one the
/// default.
pub(super) const VFS: &CStr = c"unix";

/// Maximum length of the path of a database, in bytes. With a longer path, SQLite could not open
/// the journal, whose path is 8 bytes longer (os_unix.c, "MAX_PATHNAME").
pub(in crate::backend::file) const MAX_PATH: usize = 512 - 8;

/// Offset, in a database file, of the byte that processes lock as their [`Mark`]: the first one
/// after SQLite's locks (os.h, "SHARED_SIZE"), on a page that no database uses.
const PRESENCE: i64 = lock::DATABASE.0 + lock::DATABASE.1;

/// Mark by which other processes detect that this process has a file open: a shared lock on the
/// byte [`PRESENCE`], which SQLite never locks. If another open file has a lock on this byte, this
/// process is not alone.
pub(super) struct Mark;

impl Mark {
    /// Sets the mark of this process on a file. Returns `None` if the lock cannot be taken, or if
    /// the file's locks belong to the process and not to the open file.
    pub(super) fn on(file: &OsFile) -> Option<Mark> {
        let before = original_calls::before()?;
        let is_set =
            file.owns_its_locks() && lock::set(before, file.fd(), libc::F_RDLCK as c_int, PRESENCE, 1);
        is_set.then_some(Mark)
    }

    /// Returns `true` if no other open file has such a mark on the same file. Returns `false` also
    /// if that cannot be determined.
    pub(super) fn is_alone(&self, file: &OsFile) -> bool {
        original_calls::before().is_some_and(|before| !lock::is_locked(before, file.fd(), PRESENCE, 1))
    }
}

//! Windows (ADR 24). Locks belong to a handle and to nobody else, and a file that is open without `FILE_SHARE_DELETE`, as
//! SQLite opens all of its files, keeps its name, and so do the directories on the way to it. So nothing of SQLite is
//! replaced, there is no fork, and a file that is open is where it was.
//!
//! Locks are mandatory: what is locked, others cannot read or write. SQLite's are on a page that is never used, and ours
//! where no file has a byte.
//!
//! `files.rs` has the files beside SQLite's and their locks, `place.rs` directories and names.

mod files;
mod place;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::ffi::CStr;
use std::ptr;

use rusqlite::ffi;

pub(super) use files::Mark;
pub(in crate::db::file) use files::OsFile;
pub(crate) use files::{FileIdentity, is_at, read_exact_at};
pub(in crate::db::file) use place::{
    Place, State, coarse_ms, free_space, is_forbidden_to_write, length_of_file, may_write,
};
pub(crate) use place::{make_like, rename_new, sync_directory, sync_file};
#[cfg(feature = "encryption")]
pub(in crate::db::file) use place::{
    make_private, names_at, names_of, open_to_outlive_its_name, open_what_is_there,
};

use crate::error::Result;

/// Runs a write. No signal answers one beyond a limit.
#[cfg(feature = "encryption")]
pub(in crate::db::file) fn beyond_limit<R>(write: impl FnOnce() -> R) -> R {
    write()
}

/// Name of SQLite's VFS for this system, unless another one was made the default.
pub(super) const VFS: &CStr = c"win32-longpath";
/// What SQLite has as the default. It differs in the length of paths only, of which it takes 260 characters.
const SHORT: &CStr = c"win32";

/// Maximum length of a path, in bytes. The system accepts 32 767 characters.
pub(in crate::db::file) const MAX_PATH: usize = 32_000;

/// Lets SQLite take long paths; says whether it could. To be called once, before SQLite opens a file.
pub(super) fn install() -> bool {
    // SAFETY: SQLite is set up, and nobody else is setting it up. A VFS lives as long as the process, and its name is a C
    // string; to register one again only makes it the default.
    unsafe {
        let is_short = ffi::sqlite3_vfs_find(ptr::null())
            .as_ref()
            .is_some_and(|vfs| !vfs.zName.is_null() && CStr::from_ptr(vfs.zName) == SHORT);
        let long = ffi::sqlite3_vfs_find(VFS.as_ptr());
        !is_short || (!long.is_null() && ffi::sqlite3_vfs_register(long, 1) == ffi::SQLITE_OK)
    }
}

/// Does nothing, because this system has no forks.
#[allow(clippy::unnecessary_wraps, reason = "where there are, they may be beyond watching")]
pub(super) fn watch_forks() -> Result<()> {
    Ok(())
}

/// Does nothing, because this system has no forks.
pub(crate) fn note_fork() {}

/// Calls `start`, which starts a thread. (There are no signals.)
pub(crate) fn with_signals_blocked<R>(start: impl FnOnce() -> R) -> R {
    start()
}

/// Runs what makes shared memory longer: SQLite does so by one call.
pub(super) fn making_longer<R>(_length: i64, f: impl FnOnce() -> R) -> R {
    f()
}

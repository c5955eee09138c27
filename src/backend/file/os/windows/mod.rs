//! System module for Windows (ADR 24).
//!
//! Locks belong to one handle only. SQLite opens its files without `FILE_SHARE_DELETE`: such a
//! file, and each directory on its path, keeps its name while the file is open. So an open file
//! does not move. Windows has no forks. For these reasons this module replaces no system call of
//! SQLite.
//!
//! Locks are mandatory: other handles cannot read or write locked bytes. SQLite locks bytes of a
//! page that it never uses, and this library locks bytes beyond the end of any file.
//!
//! `files.rs` has the files that are opened in addition to SQLite's, with their locks.
//! `file_location.rs` has the locations of files.

mod file_location;
mod files;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::ffi::CStr;
use std::ptr;

use rusqlite::ffi;
use windows_sys::Win32::System::LibraryLoader::{
    GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, GET_MODULE_HANDLE_EX_FLAG_PIN, GetModuleHandleExW,
};

pub(in crate::backend::file) use file_location::{
    FileLocation, State, coarse_ms, free_space, is_forbidden_to_write, length_of_file, may_write,
};
pub(crate) use file_location::{make_like, rename_new, sync_directory, sync_file};
#[cfg(feature = "encryption")]
pub(in crate::backend::file) use file_location::{
    make_private, names_at, names_of, open_to_outlive_its_name, open_what_is_there,
};
pub(super) use files::Mark;
pub(in crate::backend::file) use files::OsFile;
pub(crate) use files::{FileIdentity, is_at, read_exact_at};

use crate::error::Result;

/// Returns the process's limit on the size of a file, in bytes. It is `None`: Windows has no such
/// limit.
pub(in crate::backend::file) fn file_size_limit() -> Option<u64> {
    None
}

/// Runs `write`, which writes into a file. On Unix, this blocks the signal that a write beyond the
/// limit on the size of a file raises; Windows has no such signal.
#[cfg(feature = "encryption")]
pub(in crate::backend::file) fn beyond_limit<R>(write: impl FnOnce() -> R) -> R {
    write()
}

/// Name of the VFS that SQLite uses on this system after [`install`], unless the program has made
/// another one the default.
pub(super) const VFS: &CStr = c"win32-longpath";
/// Name of the VFS that SQLite uses on this system if the library does not call [`install`]. It
/// differs from [`VFS`] only in that it accepts paths of at most 260 characters.
const SHORT: &CStr = c"win32";

/// Maximum length of the path of a database, in bytes. The system accepts 32 767 characters.
pub(in crate::backend::file) const MAX_PATH: usize = 32_000;

/// Makes [`VFS`], which supports long paths, SQLite's default VFS, unless the program has made
/// another VFS the default. Returns `false` on failure. Call this once, before SQLite opens a file.
pub(super) fn install() -> bool {
    // SAFETY: SQLite is set up, and no other thread sets it up. A VFS lives as long as the process,
    // and its name is a C string. Registering a VFS again only makes it the default.
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

/// Calls `start`, which starts a thread of this library. The DLL with this code then stays loaded
/// until the process ends: after `FreeLibrary` the thread would otherwise execute memory that is no
/// longer mapped. (On Unix, the thread-local data of the thread keeps the library loaded.)
pub(crate) fn start_thread<R>(start: impl FnOnce() -> R) -> R {
    static IN_THIS_MODULE: u8 = 0;
    let mut module = ptr::null_mut();
    // SAFETY: with FROM_ADDRESS, the name is any address in the module. A failure has no effect.
    unsafe {
        GetModuleHandleExW(
            GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN,
            (&raw const IN_THIS_MODULE).cast(),
            &raw mut module,
        );
    }
    start()
}

/// Runs `f`, a call of SQLite's VFS that may extend a shared memory file. On Windows, SQLite itself
/// extends the file with one system call, so nothing else is done.
pub(super) fn making_longer<R>(_length: i64, f: impl FnOnce() -> R) -> R {
    f()
}

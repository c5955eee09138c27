//! Rollback journal that this library writes in place of SQLite.
//!
//! The journal is opened through SQLite's VFS. So it gets the owner and the permissions of its
//! database, and the first sync also syncs its directory, which makes the file name durable.

use std::ffi::CString;
use std::path::Path;
use std::ptr;

use rusqlite::ffi;

use super::sqlite_file::{failed, methods, sync_object, truncate_object, write_object};
use super::vfs;
use crate::error::{Error, Result};

/// Open rollback journal of a database, which this process has locked exclusively.
pub(in crate::backend::file) struct Journal {
    /// SQLite's file object of the journal: aligned memory of the size that the VFS requires.
    object: Vec<u64>,
    /// VFS that has opened the journal.
    vfs: *mut ffi::sqlite3_vfs,
    /// Names of the database, its journal and its WAL, allocated by SQLite.
    name: ffi::sqlite3_filename,
}

impl Journal {
    /// Creates and opens the rollback journal of the database at `path`. If the journal exists
    /// already, empties it. `path` must not contain symbolic links.
    ///
    /// # Errors
    /// The error of the VFS.
    pub(in crate::backend::file) fn make(path: &Path) -> Result<Journal> {
        let named =
            |suffix: &str| CString::new([path.as_os_str().as_encoded_bytes(), suffix.as_bytes()].concat());
        let (Ok(database), Ok(journal), Ok(wal)) = (named(""), named("-journal"), named("-wal")) else {
            return Err(Error::cant_open("the path contains a NUL"));
        };
        let vfs = vfs::name()?;
        // SAFETY: the arguments are C strings, which SQLite copies, and there are no parameters. A
        // VFS lives as long as the process.
        let (name, vfs) = unsafe {
            let files = (database.as_ptr(), journal.as_ptr(), wal.as_ptr());
            (
                ffi::sqlite3_create_filename(files.0, files.1, files.2, 0, ptr::null_mut()),
                ffi::sqlite3_vfs_find(vfs.as_ptr()),
            )
        };
        if name.is_null() || vfs.is_null() {
            return Err(Error::no_memory("out of memory for the name of a journal"));
        }
        // SAFETY: the VFS was found just above and is not NULL.
        let size = usize::try_from(unsafe { (*vfs).szOsFile }).unwrap_or(0);
        let mut made = Journal { object: vec![0; size.div_ceil(size_of::<u64>())], vfs, name };
        let flags = ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE | ffi::SQLITE_OPEN_MAIN_JOURNAL;
        // SAFETY: `object` is zeroed memory of the size of the file's object. SQLite allocated the
        // name, which lives as long as the file is open.
        let code = unsafe {
            (*vfs).xOpen.map_or(ffi::SQLITE_CANTOPEN, |open| {
                let journal = ffi::sqlite3_filename_journal(name);
                open(vfs, journal, made.file(), flags, ptr::null_mut())
            })
        };
        if code != ffi::SQLITE_OK {
            return Err(failed("make the journal of", code));
        }
        // SAFETY: the file was opened just above.
        unsafe { truncate_object(made.file(), 0)? };
        Ok(made)
    }

    /// Returns SQLite's object of the journal.
    fn file(&mut self) -> *mut ffi::sqlite3_file {
        self.object.as_mut_ptr().cast()
    }

    /// Writes bytes at an offset of the journal.
    ///
    /// # Errors
    /// `Io`, `Full`.
    pub(in crate::backend::file) fn write(&mut self, bytes: &[u8], at: u64) -> Result<()> {
        // SAFETY: the file is open and used by this thread only.
        unsafe { write_object(self.file(), bytes, at) }
    }

    /// Syncs the journal, so that the bytes that were written into it are durable. The first call
    /// also makes the name of the file durable.
    ///
    /// # Errors
    /// `Io`.
    pub(in crate::backend::file) fn sync(&mut self) -> Result<()> {
        // SAFETY: the file is open and used by this thread only.
        unsafe { sync_object(self.file(), ffi::SQLITE_SYNC_FULL) }
    }

    /// Closes the journal and removes its file. The removal is durable.
    ///
    /// # Errors
    /// `Io`.
    pub(in crate::backend::file) fn remove(mut self) -> Result<()> {
        self.close();
        // SAFETY: these are the VFS and the name with which the file was opened.
        let code = unsafe {
            (*self.vfs).xDelete.map_or(ffi::SQLITE_IOERR_DELETE, |delete| {
                delete(self.vfs, ffi::sqlite3_filename_journal(self.name), 1)
            })
        };
        if code == ffi::SQLITE_OK { Ok(()) } else { Err(failed("remove the journal of", code)) }
    }

    /// Closes the journal, unless it is closed already.
    fn close(&mut self) {
        let file = self.file();
        // SAFETY: the object has the size that the VFS requires. Without methods it is not open, or
        // was already closed.
        unsafe {
            if let Some(close) = methods(file).and_then(|methods| methods.xClose) {
                close(file);
                (*file).pMethods = ptr::null();
            }
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.close();
        // SAFETY: SQLite allocated the name, and the closed file no longer uses it.
        unsafe { ffi::sqlite3_free_filename(self.name) };
    }
}

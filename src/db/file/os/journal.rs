//! A rollback journal that is written here and not by SQLite: opened through the VFS, so that it gets the owner and the
//! mode of its database, and its name becomes durable with its first sync.

use std::ffi::CString;
use std::path::Path;
use std::ptr;

use rusqlite::ffi;

use super::opened::{failed, methods, sync_object, truncate_object, write_object};
use super::vfs;
use crate::error::{Error, Result};

/// Rollback journal of a database that this process has locked exclusively.
pub(in crate::db::file) struct Journal {
    /// SQLite's object of the file, as large as the VFS wants it, and aligned.
    object: Vec<u64>,
    vfs: *mut ffi::sqlite3_vfs,
    /// The names of the database's files, made by SQLite.
    name: ffi::sqlite3_filename,
}

impl Journal {
    /// Creates the journal of a database, or empties an existing one. `path` contains no symbolic
    /// links.
    ///
    /// # Errors
    /// What the VFS says.
    pub(in crate::db::file) fn make(path: &Path) -> Result<Journal> {
        let named =
            |suffix: &str| CString::new([path.as_os_str().as_encoded_bytes(), suffix.as_bytes()].concat());
        let (Ok(database), Ok(journal), Ok(wal)) = (named(""), named("-journal"), named("-wal")) else {
            return Err(Error::cant_open("the path contains a NUL"));
        };
        let vfs = vfs::name()?;
        // SAFETY: C strings, which SQLite copies, and no parameters. A VFS stays as long as the process.
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
        // SAFETY: found just now.
        let size = usize::try_from(unsafe { (*vfs).szOsFile }).unwrap_or(0);
        let mut made = Journal { object: vec![0; size.div_ceil(size_of::<u64>())], vfs, name };
        let flags = ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE | ffi::SQLITE_OPEN_MAIN_JOURNAL;
        // SAFETY: room for the file's object, of zeros; a name of SQLite's, which lives as long as the file is open.
        let code = unsafe {
            (*vfs).xOpen.map_or(ffi::SQLITE_CANTOPEN, |open| {
                let journal = ffi::sqlite3_filename_journal(name);
                open(vfs, journal, made.file(), flags, ptr::null_mut())
            })
        };
        if code != ffi::SQLITE_OK {
            return Err(failed("make the journal of", code));
        }
        // SAFETY: opened just now.
        unsafe { truncate_object(made.file(), 0)? };
        Ok(made)
    }

    fn file(&mut self) -> *mut ffi::sqlite3_file {
        self.object.as_mut_ptr().cast()
    }

    /// Writes bytes at an offset of the journal.
    ///
    /// # Errors
    /// `Io`, `Full`.
    pub(in crate::db::file) fn write(&mut self, bytes: &[u8], at: u64) -> Result<()> {
        // SAFETY: open, and used by this thread alone.
        unsafe { write_object(self.file(), bytes, at) }
    }

    /// Makes the written bytes durable; the first time, also the name of the file.
    ///
    /// # Errors
    /// `Io`.
    pub(in crate::db::file) fn sync(&mut self) -> Result<()> {
        // SAFETY: open, and used by this thread alone.
        unsafe { sync_object(self.file(), ffi::SQLITE_SYNC_FULL) }
    }

    /// Closes and removes the journal, durably.
    ///
    /// # Errors
    /// `Io`.
    pub(in crate::db::file) fn remove(mut self) -> Result<()> {
        self.close();
        // SAFETY: the VFS and the name it was opened with.
        let code = unsafe {
            (*self.vfs).xDelete.map_or(ffi::SQLITE_IOERR_DELETE, |delete| {
                delete(self.vfs, ffi::sqlite3_filename_journal(self.name), 1)
            })
        };
        if code == ffi::SQLITE_OK { Ok(()) } else { Err(failed("remove the journal of", code)) }
    }

    fn close(&mut self) {
        let file = self.file();
        // SAFETY: as large as the VFS asked for; without methods it is not open, or not any more.
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
        // SAFETY: made by SQLite, and used by nobody now.
        unsafe { ffi::sqlite3_free_filename(self.name) };
    }
}

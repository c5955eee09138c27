//! The files that SQLite has open for a connection, through SQLite's own objects: no path is looked up, so it does not
//! matter what became of the names.

use std::ffi::{c_int, c_void};
use std::ptr;

use rusqlite::{Connection, ffi};

use crate::error::{Error, Result};

/// One of the files of a connection.
#[derive(Clone, Copy)]
pub(in crate::db::file) enum Opened {
    /// The database.
    Main,
    /// The WAL, or the rollback journal while there is one.
    Journal,
}

/// SQLite's object for a file of a connection; NULL if SQLite does not say. It lives as long as the connection; its
/// methods are NULL while the file is not open, and live as long as the process otherwise.
pub(in crate::db::file) fn object(conn: &Connection, which: Opened) -> Result<*mut ffi::sqlite3_file> {
    let mut file: *mut ffi::sqlite3_file = ptr::null_mut();
    let operation = match which {
        Opened::Main => ffi::SQLITE_FCNTL_FILE_POINTER,
        Opened::Journal => ffi::SQLITE_FCNTL_JOURNAL_POINTER,
    };
    match control(conn, operation, (&raw mut file).cast()) {
        ffi::SQLITE_OK => Ok(file),
        code => Err(failed("find", code)),
    }
}

/// Syncs a file of a connection; does nothing if that file is not open.
pub(in crate::db::file) fn sync(conn: &Connection, which: Opened) -> Result<()> {
    let file = object(conn, which)?;
    // SAFETY: see `object`. xSync is public (sqlite3_io_methods).
    let code = unsafe {
        let Some(sync) = methods(file).and_then(|methods| methods.xSync) else { return Ok(()) };
        sync(file, ffi::SQLITE_SYNC_NORMAL)
    };
    done("sync", Some(code))
}

/// Reads bytes of a file of a connection, all of them.
///
/// # Errors
/// `Io` if there are fewer.
pub(in crate::db::file) fn read(conn: &Connection, which: Opened, to: &mut [u8], at: u64) -> Result<()> {
    let file = object(conn, which)?;
    let code = match (c_int::try_from(to.len()), i64::try_from(at)) {
        // SAFETY: see `object`; the room is as long as it says. xRead is public (sqlite3_io_methods).
        (Ok(length), Ok(at)) => unsafe {
            methods(file)
                .and_then(|methods| methods.xRead)
                .map(|read| read(file, to.as_mut_ptr().cast(), length, at))
        },
        _ => None,
    };
    done("read", code)
}

/// Writes bytes into a file of a connection.
///
/// # Errors
/// `Io`.
pub(in crate::db::file) fn write(conn: &Connection, which: Opened, bytes: &[u8], at: u64) -> Result<()> {
    let file = object(conn, which)?;
    let code = match (c_int::try_from(bytes.len()), i64::try_from(at)) {
        // SAFETY: see `object`; there are as many bytes as it says. xWrite is public (sqlite3_io_methods).
        (Ok(length), Ok(at)) => unsafe {
            methods(file)
                .and_then(|methods| methods.xWrite)
                .map(|write| write(file, bytes.as_ptr().cast(), length, at))
        },
        _ => None,
    };
    done("write", code)
}

/// The methods of a file, if it is open.
///
/// # Safety
/// The file is NULL or SQLite's object of one.
unsafe fn methods<'m>(file: *mut ffi::sqlite3_file) -> Option<&'m ffi::sqlite3_io_methods> {
    // SAFETY: methods live as long as the process.
    unsafe { file.as_ref().and_then(|file| file.pMethods.as_ref()) }
}

fn done(what: &str, code: Option<c_int>) -> Result<()> {
    match code {
        Some(ffi::SQLITE_OK) => Ok(()),
        code => Err(failed(what, code.unwrap_or(ffi::SQLITE_IOERR))),
    }
}

/// Whether the path the database was opened by is no longer its.
pub(in crate::db::file) fn has_moved(conn: &Connection) -> bool {
    let mut moved: c_int = 0;
    control(conn, ffi::SQLITE_FCNTL_HAS_MOVED, (&raw mut moved).cast()) == ffi::SQLITE_OK && moved != 0
}

fn control(conn: &Connection, operation: c_int, answer: *mut c_void) -> c_int {
    // SAFETY: the connection is open and used by this thread only; the answer has room for what the operation gives.
    unsafe { ffi::sqlite3_file_control(conn.handle(), c"main".as_ptr(), operation, answer) }
}

fn failed(what: &str, code: c_int) -> Error {
    Error::io(format!("cannot {what} the file: {}", ffi::code_to_str(code)))
}

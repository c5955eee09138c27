//! Access to the files that SQLite has open for a connection, through SQLite's own file objects. No
//! path is looked up, so this works even if a file was renamed or removed.

use std::ffi::{c_int, c_void};
use std::ptr;

use rusqlite::{Connection, ffi};

use super::refusal;
use crate::error::{Error, Result};

/// Maximum number of bytes that are passed to SQLite's VFS in one write.
///
/// SQLite's unix VFS would write only the remainder of a longer length modulo 128 KiB
/// (`seekAndWriteFd` in os_unix.c).
const MOST: usize = 64 * 1024;

/// Selects one of the two files that SQLite has open for a connection.
#[derive(Clone, Copy)]
pub(in crate::backend::file) enum Opened {
    /// The database.
    Main,
    /// The WAL, or the rollback journal while there is one.
    Journal,
}

/// Returns SQLite's object of a file that a connection has open; NULL if SQLite has none.
///
/// The object lives as long as the connection. Its `pMethods` is NULL while the file is not open.
/// Otherwise it points to methods that live as long as the process.
pub(in crate::backend::file) fn object(conn: &Connection, which: Opened) -> Result<*mut ffi::sqlite3_file> {
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

/// Syncs a file of a connection. Succeeds without effect if the file is not open.
pub(in crate::backend::file) fn sync(conn: &Connection, which: Opened) -> Result<()> {
    let file = object(conn, which)?;
    // SAFETY: see `object`.
    unsafe { if methods(file).is_some() { sync_object(file, ffi::SQLITE_SYNC_NORMAL) } else { Ok(()) } }
}

/// Reads `to.len()` bytes at the offset `at` of a file of a connection.
///
/// # Errors
/// `Io`, also if the file ends before the last of these bytes.
pub(in crate::backend::file) fn read(conn: &Connection, which: Opened, to: &mut [u8], at: u64) -> Result<()> {
    let file = object(conn, which)?;
    let code = match (c_int::try_from(to.len()), i64::try_from(at)) {
        // SAFETY: see `object`. The buffer has the given length. xRead is public
        // (sqlite3_io_methods).
        (Ok(length), Ok(at)) => unsafe {
            methods(file)
                .and_then(|methods| methods.xRead)
                .map(|read| read(file, to.as_mut_ptr().cast(), length, at))
        },
        _ => None,
    };
    done("read", code)
}

/// Writes bytes at the offset `at` of a file of a connection.
///
/// # Errors
/// `Io`, `Full`.
pub(in crate::backend::file) fn write(conn: &Connection, which: Opened, bytes: &[u8], at: u64) -> Result<()> {
    // SAFETY: see `object`.
    unsafe { write_object(object(conn, which)?, bytes, at) }
}

/// Returns the length of a file of a connection, in bytes.
///
/// # Errors
/// `Io`.
#[cfg(feature = "encryption")]
pub(in crate::backend::file) fn length(conn: &Connection, which: Opened) -> Result<u64> {
    let file = object(conn, which)?;
    let mut length = 0;
    // SAFETY: see `object`. xFileSize is public (sqlite3_io_methods).
    let code = unsafe {
        methods(file).and_then(|methods| methods.xFileSize).map(|size| size(file, &raw mut length))
    };
    done("measure", code).map(|()| u64::try_from(length).unwrap_or(0))
}

/// Truncates a file of a connection to `length` bytes.
///
/// # Errors
/// `Io`.
#[cfg(feature = "encryption")]
pub(in crate::backend::file) fn truncate(conn: &Connection, which: Opened, length: u64) -> Result<()> {
    // SAFETY: see `object`.
    unsafe { truncate_object(object(conn, which)?, length) }
}

/// Writes bytes at the offset `at` of an open file.
///
/// # Safety
/// `file` is NULL, or SQLite's object of a file that only this thread uses.
pub(super) unsafe fn write_object(file: *mut ffi::sqlite3_file, bytes: &[u8], at: u64) -> Result<()> {
    let mut at = at;
    for part in bytes.chunks(MOST) {
        let code = match (c_int::try_from(part.len()), i64::try_from(at)) {
            // SAFETY: the caller guarantees the file, and the buffer has the given length. xWrite
            // is public (sqlite3_io_methods).
            (Ok(length), Ok(at)) => unsafe {
                methods(file)
                    .and_then(|methods| methods.xWrite)
                    .map(|write| write(file, part.as_ptr().cast(), length, at))
            },
            _ => None,
        };
        done("write", code)?;
        at += part.len() as u64;
    }
    Ok(())
}

/// Truncates a file to `length` bytes.
///
/// # Safety
/// `file` is NULL, or SQLite's object of a file that only this thread uses.
#[cfg(feature = "encryption")]
pub(super) unsafe fn truncate_object(file: *mut ffi::sqlite3_file, length: u64) -> Result<()> {
    let length = i64::try_from(length).map_err(|_| Error::io("the offset is larger than a file can be"))?;
    // SAFETY: the caller guarantees the file. xTruncate is public (sqlite3_io_methods).
    let code =
        unsafe { methods(file).and_then(|methods| methods.xTruncate).map(|truncate| truncate(file, length)) };
    done("cut", code)
}

/// Syncs a file. `flags` are those of `xSync`, such as `SQLITE_SYNC_NORMAL`.
///
/// # Safety
/// `file` is NULL, or SQLite's object of a file that only this thread uses.
pub(super) unsafe fn sync_object(file: *mut ffi::sqlite3_file, flags: c_int) -> Result<()> {
    // SAFETY: the caller guarantees the file. xSync is public (sqlite3_io_methods).
    let code = unsafe { methods(file).and_then(|methods| methods.xSync).map(|sync| sync(file, flags)) };
    done("sync", code)
}

/// Returns the methods of a file; `None` if the file is not open.
///
/// # Safety
/// `file` is NULL or SQLite's object of a file.
pub(super) unsafe fn methods<'m>(file: *mut ffi::sqlite3_file) -> Option<&'m ffi::sqlite3_io_methods> {
    // SAFETY: the caller guarantees the file. Methods live as long as the process.
    unsafe { file.as_ref().and_then(|file| file.pMethods.as_ref()) }
}

/// Converts the result code of a file method to a result. `code` is `None` if the file is not open.
/// `what` is the verb for the error message, such as "read".
fn done(what: &str, code: Option<c_int>) -> Result<()> {
    match code {
        Some(ffi::SQLITE_OK) => Ok(()),
        code => Err(failed(what, code.unwrap_or(ffi::SQLITE_IOERR))),
    }
}

/// Returns `true` if the database file of a connection is no longer at the path by which it was
/// opened. Returns `false` also if this cannot be determined.
pub(in crate::backend::file) fn has_moved(conn: &Connection) -> bool {
    let mut moved: c_int = 0;
    control(conn, ffi::SQLITE_FCNTL_HAS_MOVED, (&raw mut moved).cast()) == ffi::SQLITE_OK && moved != 0
}

/// Makes SQLite keep the -wal and -shm files when the connection is closed
/// (SQLITE_FCNTL_PERSIST_WAL).
pub(in crate::backend::file) fn keep_wal(conn: &Connection) {
    let mut yes: c_int = 1;
    control(conn, ffi::SQLITE_FCNTL_PERSIST_WAL, (&raw mut yes).cast());
}

/// Runs a file control (`sqlite3_file_control`) of a connection's database, which writes its result
/// to `answer`. Returns SQLite's result code.
pub(super) fn control(conn: &Connection, operation: c_int, answer: *mut c_void) -> c_int {
    // SAFETY: the connection is open and used by this thread only. `answer` points to memory of the
    // size that the operation writes.
    unsafe { ffi::sqlite3_file_control(conn.handle(), c"main".as_ptr(), operation, answer) }
}

/// Returns the error for an operation on a file that failed with SQLite's result code `code`.
/// `what` is the verb for the message, such as "read". The cause that this thread has recorded
/// (`refusal.rs`) determines the error if it fits the code.
pub(super) fn failed(what: &str, code: c_int) -> Error {
    let text = format!("cannot {what} the file: {}", ffi::code_to_str(code));
    match refusal::take() {
        Some(refusal) if refusal.is_of(code) => refusal.error(),
        _ if code & 0xff == ffi::SQLITE_FULL => Error::full(text),
        _ => Error::io(text),
    }
}

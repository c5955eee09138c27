//! Calls of SQLite's C interface that not every supported version of rusqlite has.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::{Connection, Error, Result, ffi};

use super::sqlite_file::control;
use crate::fork::with_list;

/// Returns the version of the linked SQLite, such as "3.54.1".
pub(crate) fn sqlite_version() -> &'static CStr {
    // SAFETY: SQLite returns a static string.
    unsafe { CStr::from_ptr(ffi::sqlite3_libversion()) }
}

/// Returns a number that changes with every commit to the database, of this connection or another
/// one (`SQLITE_FCNTL_DATA_VERSION`). The call runs no SQL statement.
pub(in crate::backend::file) fn data_version(conn: &Connection) -> Result<u32> {
    let mut version: u32 = 0;
    check(conn, control(conn, ffi::SQLITE_FCNTL_DATA_VERSION, (&raw mut version).cast()))?;
    Ok(version)
}

/// Returns the number of bytes at the end of each page of the database that SQLite does not use
/// (`SQLITE_FCNTL_RESERVE_BYTES`).
pub(in crate::backend::file) fn reserved_bytes(conn: &Connection) -> Result<i32> {
    let mut reserved: c_int = -1; // a negative number changes nothing
    check(conn, control(conn, ffi::SQLITE_FCNTL_RESERVE_BYTES, (&raw mut reserved).cast()))?;
    Ok(reserved)
}

/// Runs a checkpoint in one of SQLite's modes, such as `SQLITE_CHECKPOINT_PASSIVE`. Returns the
/// number of frames in the WAL and the number of those that are in the database; -1 and -1 outside
/// WAL mode.
pub(in crate::backend::file) fn checkpoint(conn: &Connection, mode: c_int) -> Result<(c_int, c_int)> {
    let (mut frames, mut copied) = (-1, -1);
    // SAFETY: the connection is open and used by this thread only.
    let code = unsafe {
        ffi::sqlite3_wal_checkpoint_v2(
            conn.handle(),
            c"main".as_ptr(),
            mode,
            &raw mut frames,
            &raw mut copied,
        )
    };
    check(conn, code).map(|()| (frames, copied))
}

/// Counter that SQLite updates after each commit of one connection: the number of frames in the
/// WAL.
///
/// SQLite writes the number into memory that is reused and never freed, because SQLite does not
/// report when it no longer uses that memory.
pub(in crate::backend::file) struct WalFrames(&'static AtomicU32);

/// Memory of dropped `WalFrames`, which new ones reuse. Their connections are closed.
static UNUSED: Mutex<Vec<&'static AtomicU32>> = Mutex::new(Vec::new());

impl WalFrames {
    /// Makes SQLite store the number of frames in the WAL in the returned value after each commit of
    /// `conn`; until the first commit the number is 0. This also turns SQLite's automatic checkpoints
    /// off. The connection must be dropped before the returned value.
    pub(in crate::backend::file) fn of(conn: &Connection) -> WalFrames {
        unsafe extern "C" fn store(
            frames: *mut c_void,
            _: *mut ffi::sqlite3,
            _: *const c_char,
            pages: c_int,
        ) -> c_int {
            // SAFETY: the pointer is the one below, to memory that is never freed.
            let frames = unsafe { &*frames.cast::<AtomicU32>() };
            frames.store(pages.max(0).unsigned_abs(), Ordering::Relaxed);
            ffi::SQLITE_OK
        }
        let frames = with_list(&UNUSED, Vec::pop).unwrap_or_else(|| Box::leak(Box::default()));
        frames.store(0, Ordering::Relaxed);
        let context = std::ptr::from_ref(frames).cast_mut().cast();
        // SAFETY: the connection is open. The memory of the number is never freed.
        unsafe { ffi::sqlite3_wal_hook(conn.handle(), Some(store), context) };
        WalFrames(frames)
    }

    /// Returns the number of frames in the WAL after the last commit of the connection.
    pub(in crate::backend::file) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Replaces the number that [`get`](Self::get) returns, until the next commit.
    pub(in crate::backend::file) fn set(&self, frames: u32) {
        self.0.store(frames, Ordering::Relaxed);
    }
}

impl Drop for WalFrames {
    fn drop(&mut self) {
        with_list(&UNUSED, |unused| unused.push(self.0));
    }
}

/// Converts SQLite's result code of a call on `conn` to a result. The error has the message of the
/// connection.
fn check(conn: &Connection, code: c_int) -> Result<()> {
    if code == ffi::SQLITE_OK {
        return Ok(());
    }
    // SAFETY: the connection is open. The message is valid until the next call on it.
    let message = unsafe { CStr::from_ptr(ffi::sqlite3_errmsg(conn.handle())) };
    Err(Error::SqliteFailure(ffi::Error::new(code), Some(message.to_string_lossy().into_owned())))
}

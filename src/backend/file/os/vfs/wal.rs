//! Methods of a WAL file. They differ from the system's in these points:
//!
//! - Frames are buffered until a commit is complete (`wal_write_buffer.rs`).
//! - If each commit is synced, the file is extended with zeros before the next commits need the
//!   space. A sync that must also write a new file length costs twice as much.
//! - If the store overwrites deleted data, the WAL is overwritten with zeros before it is removed
//!   or truncated. A truncated WAL keeps disk space for the next commits (ADR 31).

#[cfg(any(target_os = "linux", target_os = "android"))]
mod space;

use std::ffi::{c_int, c_void};
use std::ptr;
use std::slice;

use rusqlite::ffi;

use super::database::{Database, Wipes, noted};
use super::file::{File, Methods, note, put, read_by_system, system, table, wipe_from};
use crate::backend::file::os::refusal;
use crate::backend::file::os::wal_write_buffer::{FRAME_HEADER, Frames, WAL_HEADER};
use crate::backend::file::os::zeros::zeros;

/// Maximum number of bytes by which a WAL is extended with zeros in one step. A step is also
/// limited to the current length, so that it at most doubles the WAL.
const AHEAD: i64 = 256 * 1024;

/// The library's data about an open WAL file.
pub(super) struct Wal {
    /// Database file to which the WAL belongs. It is open as long as the WAL is.
    database: *mut File,
    /// Path of the WAL. The string belongs to SQLite, and is valid while the file is open.
    #[cfg_attr(
        not(any(target_os = "linux", target_os = "android")),
        allow(dead_code, reason = "space is reserved on Linux only")
    )]
    name: ffi::sqlite3_filename,
    /// Buffer for frames that SQLite has written and that are not in the file yet.
    frames: Frames,
}

impl Wal {
    /// Returns the data for a WAL that was just opened with the path `name`, and that belongs to
    /// `database`.
    pub(super) fn of(database: *mut File, name: ffi::sqlite3_filename) -> Wal {
        Wal { database, name, frames: Frames::default() }
    }
}

/// Sets the library's methods for WAL files in `methods`, a copy of the method table of the
/// system's VFS.
pub(super) fn change(methods: &mut Methods) {
    methods.xClose = Some(close);
    methods.xRead = Some(read);
    methods.xWrite = Some(write);
    methods.xTruncate = Some(truncate);
    methods.xSync = Some(sync);
    methods.xFileSize = Some(file_size);
}

/// Returns the buffer for frames that SQLite has written into a WAL and that are not in the file
/// yet.
///
/// # Safety
/// The file is an open WAL with the library's methods.
pub(super) unsafe fn frames<'f>(file: *mut File) -> &'f mut Frames {
    // SAFETY: the data was written when the file was opened. SQLite uses a file in one thread at a
    // time.
    unsafe { &mut (*note::<Wal>(file)).frames }
}

unsafe extern "C" fn write(file: *mut File, from: *const c_void, length: c_int, at: i64) -> c_int {
    // SAFETY: SQLite passes a buffer of this length, and a WAL with the library's methods.
    let (bytes, frames) = unsafe {
        (slice::from_raw_parts(from.cast::<u8>(), usize::try_from(length).unwrap_or(0)), frames(file))
    };
    let (code, commit_is_whole) = frames.write(bytes, at, &mut put(file));
    if commit_is_whole {
        // SAFETY: the database's file is open as long as its WAL.
        let syncs = unsafe { (*note::<Database>((*note::<Wal>(file)).database)).syncs };
        if syncs {
            frames.awaits_sync(FRAME_HEADER as usize + bytes.len());
            fill_ahead(file, frames.end());
        }
    }
    code
}

/// Extends a WAL with zeros after `end`, the end of its last frame, unless the file is already
/// longer. Zeros are not a valid frame. A failure is ignored.
fn fill_ahead(file: *mut File, end: i64) {
    let mut length = 0;
    if system!(xFileSize(file, &raw mut length)) != ffi::SQLITE_OK || length > end {
        return;
    }
    let to = end.saturating_add(AHEAD.min(end));
    let mut at = end;
    while at < to {
        let part = zeros(to - at);
        if put(file)(part, at) != ffi::SQLITE_OK {
            refusal::take();
            return;
        }
        at += i64::try_from(part.len()).unwrap_or(i64::MAX);
    }
}

unsafe extern "C" fn read(file: *mut File, to: *mut c_void, length: c_int, at: i64) -> c_int {
    // SAFETY: SQLite passes a WAL with the library's methods.
    let code = match unsafe { frames(file) }.flush(&mut put(file)) {
        ffi::SQLITE_OK => read_by_system(file, to, length, at),
        code => code,
    };
    // SAFETY: the database's file is open as long as its WAL.
    unsafe {
        noted((*note::<Wal>(file)).database, code);
    }
    code
}

unsafe extern "C" fn truncate(file: *mut File, length: i64) -> c_int {
    // SAFETY: SQLite passes a WAL with the library's methods.
    let frames = unsafe { frames(file) };
    match frames.flush(&mut put(file)) {
        ffi::SQLITE_OK => {
            frames.truncated(length);
            // SAFETY: the database's file is open as long as its WAL.
            let wipes = unsafe { (*note::<Database>((*note::<Wal>(file)).database)).wipes };
            let Some(Wipes { syncs, page_size, .. }) = wipes else { return system!(xTruncate(file, length)) };
            let code = match length {
                0 => wipe_wal(file, syncs),
                // The WAL has restarted: the bytes that are cut off are older frames.
                _ => wipe_from(file, length, syncs),
            };
            match (code, page_size) {
                #[cfg(any(target_os = "linux", target_os = "android"))]
                (ffi::SQLITE_OK, Some(page_size)) => space::truncate_and_reserve(file, length, page_size),
                (ffi::SQLITE_OK, _) => system!(xTruncate(file, length)),
                (code, _) => code,
            }
        }
        code => code,
    }
}

unsafe extern "C" fn sync(file: *mut File, flags: c_int) -> c_int {
    // SAFETY: SQLite passes a WAL with the library's methods.
    let frames = unsafe { frames(file) };
    let code = match frames.flush(&mut put(file)) {
        ffi::SQLITE_OK => system!(xSync(file, flags)),
        code => code,
    };
    frames.synced(code == ffi::SQLITE_OK, &mut put(file));
    code
}

unsafe extern "C" fn file_size(file: *mut File, length: *mut i64) -> c_int {
    // SAFETY: SQLite passes a WAL with the library's methods.
    match unsafe { frames(file) }.flush(&mut put(file)) {
        ffi::SQLITE_OK => system!(xFileSize(file, length)),
        code => code,
    }
}

unsafe extern "C" fn close(file: *mut File) -> c_int {
    // SAFETY: SQLite passes a WAL with the library's methods, and does not use it after this. Its
    // data is dropped once. The buffered frames belong to no commit.
    unsafe {
        let Wal { database, frames, .. } = note::<Wal>(file).read();
        (*note::<Database>(database)).wal = ptr::null_mut();
        drop(frames);
    }
    system!(xClose(file))
}

/// Overwrites a WAL with zeros, and syncs the zeros if `syncs` is `true`. Returns SQLite's result
/// code. The caller guarantees that the WAL has the library's methods, and that all its frames are
/// in the database.
///
/// The header is overwritten and synced before the frames. Otherwise a power cut could leave the
/// first frames without those after them, and the next connection would take an old state of the
/// database for the newest one.
pub(super) fn wipe_wal(file: *mut File, syncs: bool) -> c_int {
    let mut length = 0;
    let code = system!(xFileSize(file, &raw mut length));
    if code != ffi::SQLITE_OK || length == 0 {
        return code;
    }
    let code = match put(file)(zeros(WAL_HEADER.into()), 0) {
        ffi::SQLITE_OK if syncs => system!(xSync(file, ffi::SQLITE_SYNC_NORMAL)),
        code => code,
    };
    if code == ffi::SQLITE_OK { wipe_from(file, 0, syncs) } else { code }
}

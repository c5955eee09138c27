//! Methods of the file of a WAL. They differ from the system's in these points:
//!
//! - Frames are buffered until a commit is complete (`wal_write_buffer.rs`).
//! - Where commits are synced, the file is extended with zeros ahead of them. A sync that must also
//!   write a new length of the file costs twice as much.
//! - Where deleted data is overwritten, so is the WAL, before it is removed or restarts. The file
//!   is cut off then, but keeps disk space for the next commits (ADR 31).

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

/// Maximum number of zeros, in bytes, by which a WAL is extended at once. A WAL is also extended at
/// most to twice its length.
const AHEAD: i64 = 256 * 1024;

/// State of a WAL file.
pub(super) struct Wal {
    /// File of the database. It is open while the WAL is.
    database: *mut File,
    /// Path of the WAL. The string belongs to SQLite, and is valid while the file is open.
    #[cfg_attr(
        not(any(target_os = "linux", target_os = "android")),
        allow(dead_code, reason = "space is reserved on Linux only")
    )]
    name: ffi::sqlite3_filename,
    frames: Frames,
}

impl Wal {
    pub(super) fn of(database: *mut File, name: ffi::sqlite3_filename) -> Wal {
        Wal { database, name, frames: Frames::default() }
    }
}

/// Replaces some of the system's methods in a copy of its table.
pub(super) fn change(methods: &mut Methods) {
    methods.xClose = Some(close);
    methods.xRead = Some(read);
    methods.xWrite = Some(write);
    methods.xTruncate = Some(truncate);
    methods.xSync = Some(sync);
    methods.xFileSize = Some(file_size);
}

/// Returns the buffered frames of a WAL.
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

/// Writes zeros after the last frame if the file ends there. Zeros are no valid frame, and a
/// failure does not matter.
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

/// Overwrites a WAL with zeros. The WAL has the library's methods, and all its frames are in the
/// database.
///
/// The header is overwritten first. If a power cut left some of the first frames but not those
/// after them, the next connection to open the store would take them for the newest ones.
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

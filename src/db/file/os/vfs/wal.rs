//! Methods of the file of a WAL. They differ from the system's in these points:
//!
//! - Frames are buffered until a commit is complete (`frames.rs`).
//! - Where commits are synced, the file is extended with zeros ahead of them. A sync that must also
//!   write a new length of the file costs twice as much.
//! - Where deleted data is overwritten, so is the WAL, before it is removed or restarts. The file
//!   is cut off then, but keeps disk space for the next commits (ADR 31).

#[cfg(any(target_os = "linux", target_os = "android"))]
use std::ffi::{CStr, OsStr};
use std::ffi::{c_int, c_void};
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::os::unix::ffi::OsStrExt;
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::path::Path;
use std::ptr;
use std::slice;

use rusqlite::ffi;

use super::database::{Database, Wipes, noted};
use super::{File, Methods, note, put, read_by_system, table, wipe_from, zeros};
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::db::file::os::frames::reserve_least_wal;
use crate::db::file::os::frames::{FRAME_HEADER, Frames, WAL_HEADER};
use crate::db::file::os::refusal;
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::db::file::os::system::{self, OsFile};

/// Maximum number of zeros, in bytes, by which a WAL is extended at once. A WAL is also extended at
/// most to twice its length.
const AHEAD: i64 = 256 * 1024;
/// Divisor: on a nearly full disk, a WAL that is overwritten keeps this part of the space that the
/// store can use, up to a maximum in bytes.
#[cfg(any(target_os = "linux", target_os = "android"))]
const PART_OF_SPACE: u64 = 16;
#[cfg(any(target_os = "linux", target_os = "android"))]
const MAX_SHARE: u64 = 16 << 20;
/// Number of these shares that a longer WAL keeps. A disk with less free space is nearly full.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LONGEST_IN_SHARES: u64 = 4;

/// State of a WAL file.
pub(super) struct Wal {
    /// File of the database. It is open while the WAL is.
    database: *mut File,
    /// Path of the WAL, which SQLite keeps while the file is open.
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
                (ffi::SQLITE_OK, Some(page_size)) => truncate_and_reserve(file, length, page_size),
                (ffi::SQLITE_OK, None) => system!(xTruncate(file, length)),
                (code, _) => code,
            }
        }
        code => code,
    }
}

/// Truncates a WAL, and reserves space for the frames that a removal on a full disk writes.
///
/// A truncation frees the blocks of the file. SQLite calls this while it holds the writer's lock, so
/// no other connection uses them for the database before they are reserved again.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn truncate_and_reserve(file: *mut File, length: i64, page_size: u64) -> c_int {
    // SAFETY: the file is an open WAL with the library's methods, so its name is a C string. The
    // database's file is open as long as its WAL.
    let (name, database) = unsafe {
        let Wal { name, database, .. } = &*note::<Wal>(file);
        (CStr::from_ptr(*name), *database)
    };
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    let Ok(wal) = OsFile::open(path, true, false) else { return system!(xTruncate(file, length)) };
    let mut database_length = 0;
    let code = system!(xFileSize(database, &raw mut database_length));
    let kept = match (code, wal.allocated(), system::free_space(path)) {
        (ffi::SQLITE_OK, Ok(allocated), Some(free)) => {
            kept_space(u64::try_from(database_length).unwrap_or(0), allocated, free)
        }
        _ => 0,
    };
    let code = system!(xTruncate(file, length));
    if code == ffi::SQLITE_OK {
        let _ = wal.reserve(kept); // without it, only small removals are possible
        reserve_least_wal(&wal, page_size);
    }
    code
}

/// Returns the number of bytes that a WAL of `allocated` bytes keeps on a nearly full disk; 0 if the
/// disk has more than `free` bytes that the next frames can use.
///
/// A removal overwrites all pages of a value, and each takes a frame. So the space is a share of
/// what the store can use. A WAL that has grown longer for a long value may keep that length.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn kept_space(database: u64, allocated: u64, free: u64) -> u64 {
    let total = database.saturating_add(allocated).saturating_add(free);
    let share = (total / PART_OF_SPACE).min(MAX_SHARE);
    if free < LONGEST_IN_SHARES * share { allocated.clamp(share, LONGEST_IN_SHARES * share) } else { 0 }
}

/// Truncates a WAL. No blocks can be reserved on this system.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn truncate_and_reserve(file: *mut File, length: i64, _: u64) -> c_int {
    system!(xTruncate(file, length))
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

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::kept_space;

    #[test]
    fn wal_keeps_space_only_on_nearly_full_disk() {
        const MB: u64 = 1 << 20;
        for (database, allocated, free, kept) in [
            (0, 0, 16 * MB, 0),
            (10 * MB, 2 * MB, 4 * MB, 0),
            (14 * MB, MB / 2, 3 * MB / 2, MB),
            (13 * MB, 2 * MB, MB, 2 * MB),
            (7 * MB, 9 * MB, 0, 4 * MB),
            (1 << 40, 32 * MB, 64 * MB, 0),
            (1 << 40, 8 * MB, 63 * MB, 16 * MB),
            (1 << 40, 1 << 30, 0, 64 * MB),
            (u64::MAX, u64::MAX, 0, 64 * MB),
            (0, 0, 0, 0),
        ] {
            assert_eq!(kept_space(database, allocated, free), kept, "{database}, {allocated}, {free}");
        }
    }
}

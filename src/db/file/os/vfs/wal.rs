//! The file of a WAL, and its methods: it keeps frames until a commit is whole (`frames.rs`), and where commits are synced is
//! filled with zeros ahead of them, for a sync that must also write a new length of the file costs twice as much. Where
//! deleted data is overwritten, so is the WAL before it is removed or begins anew.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::slice;

use rusqlite::ffi;

use super::database::{Database, Wipes, noted};
use super::{File, Methods, note, put, read_by_system, table, wipe_from, zeros};
use crate::db::file::os::frames::{FRAME_HEADER, Frames, WAL_HEADER};
use crate::db::file::os::refusal;

/// How far a WAL is filled with zeros, at most; and at most to twice its length.
const AHEAD: i64 = 256 * 1024;

/// State of a WAL file.
pub(super) struct Wal {
    /// The database's file; it is open as long as the WAL.
    database: *mut File,
    frames: Frames,
}

impl Wal {
    pub(super) fn of(database: *mut File) -> Wal {
        Wal { database, frames: Frames::default() }
    }
}

/// Puts ours in the place of the system's methods.
pub(super) fn change(methods: &mut Methods) {
    methods.xClose = Some(close);
    methods.xRead = Some(read);
    methods.xWrite = Some(write);
    methods.xTruncate = Some(truncate);
    methods.xSync = Some(sync);
    methods.xFileSize = Some(file_size);
}

/// The frames that a WAL keeps.
///
/// # Safety
/// The file is an open WAL with methods of ours.
pub(super) unsafe fn frames<'f>(file: *mut File) -> &'f mut Frames {
    // SAFETY: noted when it was opened; SQLite uses a file in one thread at a time.
    unsafe { &mut (*note::<Wal>(file)).frames }
}

unsafe extern "C" fn write(file: *mut File, from: *const c_void, length: c_int, at: i64) -> c_int {
    // SAFETY: SQLite gives that many bytes, and a WAL of ours.
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

/// Writes zeros after the last frame if the file ends there. Nobody takes them for frames, and it does not matter
/// whether it succeeds.
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
    // SAFETY: a WAL of ours.
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
    // SAFETY: a WAL of ours.
    let frames = unsafe { frames(file) };
    match frames.flush(&mut put(file)) {
        ffi::SQLITE_OK => {
            frames.truncated(length);
            // SAFETY: the database's file is open as long as its WAL.
            let wipes = unsafe { (*note::<Database>((*note::<Wal>(file)).database)).wipes };
            let code = match wipes {
                None => ffi::SQLITE_OK,
                Some(Wipes { syncs, .. }) if length == 0 => wipe_wal(file, syncs),
                // A WAL that has begun anew: what is cut off are frames of before.
                Some(Wipes { syncs, .. }) => wipe_from(file, length, syncs),
            };
            if code == ffi::SQLITE_OK { system!(xTruncate(file, length)) } else { code }
        }
        code => code,
    }
}

unsafe extern "C" fn sync(file: *mut File, flags: c_int) -> c_int {
    // SAFETY: a WAL of ours.
    let frames = unsafe { frames(file) };
    let code = match frames.flush(&mut put(file)) {
        ffi::SQLITE_OK => system!(xSync(file, flags)),
        code => code,
    };
    frames.synced(code == ffi::SQLITE_OK, &mut put(file));
    code
}

unsafe extern "C" fn file_size(file: *mut File, length: *mut i64) -> c_int {
    // SAFETY: a WAL of ours.
    match unsafe { frames(file) }.flush(&mut put(file)) {
        ffi::SQLITE_OK => system!(xFileSize(file, length)),
        code => code,
    }
}

unsafe extern "C" fn close(file: *mut File) -> c_int {
    // SAFETY: a WAL of ours, which is not used after this; what is noted of it is dropped once. What it keeps belongs to
    // no commit.
    unsafe {
        let Wal { database, frames } = note::<Wal>(file).read();
        (*note::<Database>(database)).wal = ptr::null_mut();
        drop(frames);
    }
    system!(xClose(file))
}

/// Overwrites a WAL of ours, all of whose frames are in the database, with zeros. The header first: if a power cut left
/// some of the first frames, and not those after them, who opens the store would take them for the newest ones.
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

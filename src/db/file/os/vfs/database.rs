//! The file of a database, and its methods: it tells its WAL when the writer's lock is given back, keeps its mapping while
//! the file is not shorter, without a WAL is not made longer ahead of its writes, and keeps a reader that meets a commit
//! from taking the writer's lock. Where deleted data is overwritten, so is what is cut off it, and what is unused of a page
//! (`wipe.rs`).

use std::ffi::{c_int, c_void};
use std::ptr;
use std::slice;
#[cfg(feature = "encryption")]
use std::sync::atomic::Ordering;

use rusqlite::ffi;

#[cfg(feature = "encryption")]
use super::READS;
use super::wal::{frames, wipe_wal};
use super::{File, Methods, note, read_by_system, table, wipe_from};
use crate::db::file::os::refusal;
use crate::db::file::os::system;
use crate::db::file::os::wal_index::WalIndex;
use crate::db::file::os::wipe::{self, Pages};

/// The number of the writer's lock (`WAL_WRITE_LOCK` in wal.c; fileformat2.html, chapter 4.3).
const WRITER: c_int = 0;

/// State of the file of a database.
#[derive(Clone, Copy)]
pub(super) struct Database {
    /// WAL of the database while it is open.
    pub(super) wal: *mut File,
    /// Whether each commit is synced.
    pub(super) syncs: bool,
    /// What is mapped of it is not longer than this, in bytes; 0: nothing is known of that.
    mapped: i64,
    /// The locks of the wal-index it holds, a bit each.
    locks: u8,
    /// Unless deleted data may stay.
    pub(super) wipes: Option<Wipes>,
    /// What the last read has failed with that has failed, of it or its WAL; SQLite's code. (SQLCipher takes what could not
    /// be read for what cannot be decrypted, and SQLite's integrity check for what is damaged.)
    pub(super) failed: c_int,
    /// Whether it or its WAL was read since somebody asked.
    #[cfg(feature = "encryption")]
    pub(super) was_read: bool,
}

/// Settings for overwriting deleted data.
#[derive(Clone, Copy)]
pub(super) struct Wipes {
    /// What pages are like of which what is unused is overwritten.
    pub(super) pages: Option<Pages>,
    /// Whether it waits until what goes is overwritten on the disk.
    pub(super) syncs: bool,
}

impl Default for Database {
    fn default() -> Database {
        Database {
            wal: ptr::null_mut(),
            syncs: false,
            mapped: 0,
            locks: 0,
            wipes: None,
            failed: ffi::SQLITE_OK,
            #[cfg(feature = "encryption")]
            was_read: false,
        }
    }
}

/// Puts ours in the place of the system's methods.
pub(super) fn change(methods: &mut Methods) {
    methods.xWrite = Some(write_page);
    methods.xTruncate = Some(cut_database);
    methods.xShmLock = Some(shm_lock);
    methods.xShmMap = methods.xShmMap.and(Some(shm_map));
    methods.xFileControl = Some(file_control);
    methods.xRead = Some(read_database);
    if cfg!(target_os = "linux") && methods.xFetch.is_some() {
        methods.xUnfetch = Some(unfetch);
    }
}

/// A reader that meets a commit finds the header of the wal-index torn. SQLite's then takes the writer's lock, to look
/// once more or to mend what a crash has left (`walIndexReadHdr`), and if the commit is over by then, the next writer
/// finds the file locked by somebody who only reads. That is not rare where both are threads of one process: while
/// commit and open wait for each other, the header stays torn. So who holds no lock waits until the header is whole, and
/// is told that somebody writes: then it reads the header again. (A writer holds a reader's lock before it asks for
/// this one, a checkpoint its own.)
pub(super) unsafe extern "C" fn shm_lock(file: *mut File, first: c_int, count: c_int, flags: c_int) -> c_int {
    // SAFETY: a database's file.
    let note = unsafe { &mut *note::<Database>(file) };
    let which = u8::try_from(((1_u32 << count) - 1) << first).unwrap_or(0);
    if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
        if first == WRITER && !note.wal.is_null() {
            // SAFETY: a database's file notes its WAL while that is open.
            unsafe { frames(note.wal).discard() };
        }
        note.locks &= !which;
    } else if first == WRITER && note.locks == 0 {
        let mut region = ptr::null_mut();
        let code = system!(xShmMap(file, 0, WalIndex::REGION, 0, &raw mut region));
        // SAFETY: the VFS has mapped the first part, or says that there is none; it stays as long as the file is open.
        let index = unsafe { WalIndex::at(region) };
        if code == ffi::SQLITE_OK && index.is_some_and(|index| index.becomes_whole()) {
            return ffi::SQLITE_BUSY;
        }
    }
    let code = system!(xShmLock(file, first, count, flags));
    if flags & ffi::SQLITE_SHM_LOCK != 0 && code == ffi::SQLITE_OK {
        note.locks |= which;
    }
    code
}

unsafe extern "C" fn shm_map(
    file: *mut File,
    region: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    let length = if extend == 0 { 0 } else { (i64::from(region) + 1) * i64::from(size) };
    system::making_longer(length, || system!(xShmMap(file, region, size, extend, out)))
}

/// SQLite says how long the file is going to be, and a file that is mapped is made so long at once, and mapped. In a
/// transaction with a rollback journal it may end shorter, as in a store that makes room, and what nobody has written is
/// not cut off then. So what is mapped there is the file as long as it is.
unsafe extern "C" fn file_control(file: *mut File, op: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: a database's file.
    if op == ffi::SQLITE_FCNTL_SIZE_HINT && unsafe { (*note::<Database>(file)).wal.is_null() } {
        let mut length = 0;
        if system!(xFileSize(file, &raw mut length)) != ffi::SQLITE_OK {
            return ffi::SQLITE_OK; // it is only a hint
        }
        // SAFETY: SQLite gives a length with it.
        length = length.min(unsafe { *argument.cast::<i64>() });
        return size_hint(file, &raw mut length);
    }
    if op == ffi::SQLITE_FCNTL_PERSIST_WAL {
        // SAFETY: a database's file, which notes its WAL while that is open.
        let Database { wal, wipes, .. } = unsafe { *note::<Database>(file) };
        // SAFETY: SQLite gives a number with it; one below zero asks.
        let asks = unsafe { argument.cast::<c_int>().as_ref() }.is_some_and(|number| *number < 0);
        if let (false, Some(Wipes { syncs, .. }), true) = (wal.is_null(), wipes, asks) {
            // The last connection is about to remove the WAL, whose frames are all in the database
            // (`sqlite3WalClose`). It does so whatever comes of this.
            let _ = wipe_wal(wal, syncs);
        }
    }
    if op == ffi::SQLITE_FCNTL_SIZE_HINT {
        return size_hint(file, argument.cast());
    }
    system!(xFileControl(file, op, argument))
}

/// SQLite ignores whether the file could be made that long: the write that needs it fails, and says why.
fn size_hint(file: *mut File, length: *mut i64) -> c_int {
    let code = system!(xFileControl(file, ffi::SQLITE_FCNTL_SIZE_HINT, length.cast::<c_void>()));
    if code != ffi::SQLITE_OK {
        refusal::take();
    }
    code
}

/// What is unused of a page may have been part of rows that are deleted by now.
unsafe extern "C" fn write_page(file: *mut File, from: *const c_void, length: c_int, at: i64) -> c_int {
    // SAFETY: a database's file.
    let wipes = unsafe { (*note::<Database>(file)).wipes };
    if let Some(Wipes { pages: Some(pages), .. }) = wipes {
        // SAFETY: SQLite gives that many bytes.
        let page = unsafe { slice::from_raw_parts(from.cast::<u8>(), usize::try_from(length).unwrap_or(0)) };
        let unused = wipe::unused(page, at, pages).filter(|unused| {
            page.get(unused.clone()).is_some_and(|bytes| bytes.iter().any(|byte| *byte != 0))
        });
        let mut file_length = 0;
        if let Some(unused) = unused
            && system!(xFileSize(file, &raw mut file_length)) == ffi::SQLITE_OK
            && wipe::tells_pages_apart(file_length, page.len())
        {
            let mut clean = Vec::new();
            if clean.try_reserve_exact(page.len()).is_err() {
                return ffi::SQLITE_IOERR_NOMEM;
            }
            clean.extend_from_slice(page);
            if let Some(unused) = clean.get_mut(unused) {
                unused.fill(0);
            }
            return system!(xWrite(file, clean.as_ptr().cast::<c_void>(), length, at));
        }
    }
    system!(xWrite(file, from, length, at))
}

/// Cuts a database. What is cut off goes back to the file system, and may be on the disk for long.
unsafe extern "C" fn cut_database(file: *mut File, length: i64) -> c_int {
    // SAFETY: a database's file.
    if let Some(Wipes { syncs, .. }) = unsafe { (*note::<Database>(file)).wipes } {
        let code = wipe_from(file, length, syncs);
        if code != ffi::SQLITE_OK {
            return code;
        }
    }
    // A truncation to the length that the file has would free the blocks reserved beyond its end.
    let mut current = 0;
    if system!(xFileSize(file, &raw mut current)) == ffi::SQLITE_OK && current == length {
        return ffi::SQLITE_OK;
    }
    system!(xTruncate(file, length))
}

/// When others have written, SQLite asks for the mapping of the whole file to be dropped: the file may have been cut
/// shorter meanwhile, and what is mapped behind its end cannot be read. To map it anew at each commit of others takes
/// longer than the read it is done for, page faults included; so it stays if the file is not shorter than it was when
/// it was mapped, nor much longer. SQLite asks with a lock under which nobody cuts off what it will read. (On Linux a
/// mapping shows what is in the file, also when that was cut and has grown again; POSIX does not promise it.)
unsafe extern "C" fn unfetch(file: *mut File, at: i64, page: *mut c_void) -> c_int {
    if !page.is_null() {
        return system!(xUnfetch(file, at, page));
    }
    let mut length = 0;
    // SAFETY: a database's file.
    let database = unsafe { &mut *note::<Database>(file) };
    let known = system!(xFileSize(file, &raw mut length)) == ffi::SQLITE_OK;
    if known && keeps_mapping(database.mapped, length) {
        return ffi::SQLITE_OK;
    }
    database.mapped = 0;
    let code = system!(xUnfetch(file, at, page));
    // Mapped now, it cannot be longer than the file is afterwards.
    let mut first = ptr::null_mut();
    if code == ffi::SQLITE_OK
        && system!(xFetch(file, 0, 1, &raw mut first)) == ffi::SQLITE_OK
        && !first.is_null()
    {
        system!(xUnfetch(file, 0, first));
        if system!(xFileSize(file, &raw mut length)) == ffi::SQLITE_OK {
            database.mapped = length;
        }
    }
    code
}

/// Whether a mapping of at most so many bytes does for a file of this length.
fn keeps_mapping(mapped: i64, length: i64) -> bool {
    mapped > 0 && (mapped..=mapped.saturating_add(mapped / 8)).contains(&length)
}

unsafe extern "C" fn read_database(file: *mut File, to: *mut c_void, length: c_int, at: i64) -> c_int {
    let code = read_by_system(file, to, length, at);
    // SAFETY: a database's file.
    unsafe {
        noted(file, code);
    }
    code
}

/// Notes what a read has answered.
///
/// # Safety
/// A database's file.
pub(super) unsafe fn noted(database: *mut File, code: c_int) {
    // SAFETY: the caller's promise.
    let database = unsafe { &mut *note::<Database>(database) };
    #[cfg(feature = "encryption")]
    {
        database.was_read = true;
        READS.fetch_add(1, Ordering::Relaxed);
    }
    if code != ffi::SQLITE_OK && code != ffi::SQLITE_IOERR_SHORT_READ {
        database.failed = code;
    }
}

#[cfg(test)]
mod tests {
    use super::keeps_mapping;

    #[test]
    fn mapping_is_kept_until_file_grows_by_over_one_eighth() {
        for (mapped, length, stays) in
            [(0, 0, false), (0, 4096, false), (4096, 4095, false), (4096, 4096, true), (80_000, 90_000, true)]
        {
            assert_eq!(keeps_mapping(mapped, length), stays, "{mapped}, {length}");
        }
        assert!(!keeps_mapping(80_000, 90_001) && !keeps_mapping(80_000, 79_999) && !keeps_mapping(-1, 5));
        assert!(keeps_mapping(i64::MAX, i64::MAX));
    }
}

//! Methods of a database file. They differ from the system's in these points:
//!
//! - When the writer's lock is released, they discard the buffered frames of the WAL.
//! - They keep the memory mapping of the file as long as the file has not become shorter.
//! - Without a WAL, the file is not extended ahead of its writes.
//! - A reader that begins during a commit does not take the writer's lock.
//! - If the store overwrites deleted data, they also overwrite the bytes that are cut off the file,
//!   and the unused bytes of each page that is written (`secure_delete.rs`).

use std::ffi::{c_int, c_void};
use std::ptr;
use std::slice;
#[cfg(feature = "encryption")]
use std::sync::atomic::Ordering;

use rusqlite::ffi;

use super::file::{File, Methods, note, read_by_system, system, table, wipe_from};
use super::wal::{frames, wipe_wal};
#[cfg(feature = "encryption")]
use crate::atomic::AtomicU64;
use crate::backend::file::os::refusal;
use crate::backend::file::os::secure_delete::{self, Pages};
use crate::backend::file::os::system;
use crate::backend::file::os::wal_index::WalIndex;

/// Number of reads from database and WAL files by this process since its start.
#[cfg(feature = "encryption")]
pub(super) static READS: AtomicU64 = AtomicU64::new(0);

/// Index of the writer's lock among the locks of the wal-index (`WAL_WRITE_LOCK` in wal.c;
/// fileformat2.html, chapter 4.3).
const WRITER: c_int = 0;

/// The library's data about an open database file.
#[derive(Clone, Copy)]
pub(super) struct Database {
    /// File object of the WAL that belongs to this database; NULL while the WAL is not open.
    pub(super) wal: *mut File,
    /// Whether SQLite syncs each commit to this database. If so, the WAL is extended with zeros
    /// ahead of the commits.
    pub(super) syncs: bool,
    /// Upper bound of the length, in bytes, of the part of the file that the system's VFS has
    /// mapped into memory; 0 if it is not known.
    mapped: i64,
    /// Bit mask of the wal-index locks that this file has taken: bit n stands for lock n.
    locks: u8,
    /// Settings for overwriting deleted data; `None` if deleted data is not overwritten.
    pub(super) wipes: Option<Wipes>,
    /// SQLite's result code of the last failed read of the database or its WAL; `SQLITE_OK` if
    /// there is none. It is kept because other code reports a failed read as something else:
    /// SQLCipher as bytes that it cannot decrypt, SQLite's integrity check as damage.
    pub(super) failed: c_int,
    /// Whether this connection has read the database or its WAL since the last call of
    /// `take_reads`.
    #[cfg(feature = "encryption")]
    pub(super) was_read: bool,
}

/// Settings for overwriting the deleted data of a database and its WAL with zeros.
#[derive(Clone, Copy)]
pub(super) struct Wipes {
    /// Layout of the pages whose unused bytes are overwritten; `None` if they are not overwritten.
    pub(super) pages: Option<Pages>,
    /// Whether the zeros are synced before the disk space is released.
    pub(super) syncs: bool,
    /// Size of a page of the database, in bytes, if the WAL keeps disk space when it is truncated;
    /// `None` if it keeps none.
    pub(super) page_size: Option<u64>,
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

/// Sets the library's methods for database files in `methods`, a copy of the method table of the
/// system's VFS.
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

/// Takes or releases locks of the wal-index (`xShmLock`). If a connection that holds no lock
/// requests the writer's lock, this first waits until the header of the wal-index is whole.
///
/// The reason: a reader that begins during a commit finds the header half-written. SQLite then
/// takes the writer's lock for this reader, to read the header again or to repair it after a crash
/// (`walIndexReadHdr`). If the commit has ended by then, the next writer finds its lock taken by a
/// connection that only reads. This is not rare if both are threads of one process: while a commit
/// and an open wait for each other, the header stays half-written.
///
/// Once the header is whole, the request returns `SQLITE_BUSY`, as if another connection were
/// writing, and SQLite reads the header again. If the header stays half-written, the lock is taken.
/// (A connection that wants to write already holds a reader's lock, and a checkpoint holds its own
/// lock.)
pub(super) unsafe extern "C" fn shm_lock(file: *mut File, first: c_int, count: c_int, flags: c_int) -> c_int {
    // SAFETY: SQLite passes a database with the library's methods.
    let note = unsafe { &mut *note::<Database>(file) };
    let which = u8::try_from(((1_u32 << count) - 1) << first).unwrap_or(0);
    if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
        if first == WRITER && !note.wal.is_null() {
            // SAFETY: `note.wal` is an open WAL with the library's methods, or NULL.
            unsafe { frames(note.wal).discard() };
        }
        note.locks &= !which;
    } else if first == WRITER && note.locks == 0 {
        let mut region = ptr::null_mut();
        let code = system!(xShmMap(file, 0, WalIndex::REGION, 0, &raw mut region));
        // SAFETY: `region` is NULL, or the first region, which the VFS has mapped. It stays mapped
        // while the file is open.
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

/// Method `xShmMap` of a database: maps region `region` of the wal-index, of `size` bytes, and
/// stores its address in `out`. If `extend` is not 0, creates the region if it does not exist.
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

/// Handles SQLite's file controls of a database (`xFileControl`).
///
/// A size hint announces the future length of the file. The system's VFS extends a mapped file to
/// that length at once, and maps it. A transaction with a rollback journal may end with a shorter
/// file, for example if the store evicts entries, and SQLite then does not cut off the part that
/// was never written. So without a WAL, the hint is limited to the current length of the file.
unsafe extern "C" fn file_control(file: *mut File, op: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: SQLite passes a database with the library's methods.
    if op == ffi::SQLITE_FCNTL_SIZE_HINT && unsafe { (*note::<Database>(file)).wal.is_null() } {
        let mut length = 0;
        if system!(xFileSize(file, &raw mut length)) != ffi::SQLITE_OK {
            return ffi::SQLITE_OK; // it is only a hint
        }
        // SAFETY: the argument of this control is a length.
        length = length.min(unsafe { *argument.cast::<i64>() });
        return size_hint(file, &raw mut length);
    }
    if op == ffi::SQLITE_FCNTL_PERSIST_WAL {
        // SAFETY: SQLite passes a database with the library's methods. Its WAL is NULL unless it is
        // open.
        let Database { wal, wipes, .. } = unsafe { *note::<Database>(file) };
        // SAFETY: the argument of this control is an integer. A negative one queries the setting.
        let asks = unsafe { argument.cast::<c_int>().as_ref() }.is_some_and(|number| *number < 0);
        if let (false, Some(Wipes { syncs, .. }), true) = (wal.is_null(), wipes, asks) {
            // SQLite makes this query before the last connection removes the WAL, whose frames are
            // all in the database (`sqlite3WalClose`). The connection removes the WAL even if
            // overwriting it fails.
            let _ = wipe_wal(wal, syncs);
        }
    }
    if op == ffi::SQLITE_FCNTL_SIZE_HINT {
        return size_hint(file, argument.cast());
    }
    system!(xFileControl(file, op, argument))
}

/// Passes `length`, SQLite's hint of the future length of a database in bytes, to the system's VFS
/// (`SQLITE_FCNTL_SIZE_HINT`). SQLite ignores an error of this call, so the recorded cause of the
/// error is discarded. The write that later lacks the space reports the cause itself.
fn size_hint(file: *mut File, length: *mut i64) -> c_int {
    let code = system!(xFileControl(file, ffi::SQLITE_FCNTL_SIZE_HINT, length.cast::<c_void>()));
    if code != ffi::SQLITE_OK {
        refusal::take();
    }
    code
}

/// Writes a page into the database. If the store overwrites deleted data, the unused bytes of the
/// page are written as zeros, because they may have been part of rows that are deleted by now.
unsafe extern "C" fn write_page(file: *mut File, from: *const c_void, length: c_int, at: i64) -> c_int {
    // SAFETY: SQLite passes a database with the library's methods.
    let wipes = unsafe { (*note::<Database>(file)).wipes };
    if let Some(Wipes { pages: Some(pages), .. }) = wipes {
        // SAFETY: SQLite passes a buffer of this length.
        let page = unsafe { slice::from_raw_parts(from.cast::<u8>(), usize::try_from(length).unwrap_or(0)) };
        let unused = secure_delete::unused(page, at, pages).filter(|unused| {
            page.get(unused.clone()).is_some_and(|bytes| bytes.iter().any(|byte| *byte != 0))
        });
        let mut file_length = 0;
        if let Some(unused) = unused
            && system!(xFileSize(file, &raw mut file_length)) == ffi::SQLITE_OK
            && secure_delete::tells_pages_apart(file_length, page.len())
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

/// Truncates a database to `length` bytes. If the store overwrites deleted data, the bytes that are
/// cut off are overwritten first, because the file system may keep them on the disk for long.
unsafe extern "C" fn cut_database(file: *mut File, length: i64) -> c_int {
    // SAFETY: SQLite passes a database with the library's methods.
    if let Some(Wipes { syncs, .. }) = unsafe { (*note::<Database>(file)).wipes } {
        let code = wipe_from(file, length, syncs);
        if code != ffi::SQLITE_OK {
            return code;
        }
    }
    // A truncation to the current length would free the blocks that are reserved beyond the end.
    let mut current = 0;
    if system!(xFileSize(file, &raw mut current)) == ffi::SQLITE_OK && current == length {
        return ffi::SQLITE_OK;
    }
    system!(xTruncate(file, length))
}

/// Releases a mapped page. If `page` is NULL, drops the mapping of the whole file, unless it can
/// stay.
///
/// SQLite calls this with NULL after a commit of another connection: the commit may have truncated
/// the file, and mapped memory beyond the end of a file cannot be read. But mapping the file again
/// after each such commit, page faults included, takes longer than the read itself. So the mapping
/// stays if the file is not shorter than when it was mapped, and not much longer.
///
/// During the call, SQLite holds a lock that prevents other connections from cutting off pages that
/// it will read. (On Linux a mapping shows the content of the file even after the file was
/// truncated and has grown again. POSIX does not promise that.)
unsafe extern "C" fn unfetch(file: *mut File, at: i64, page: *mut c_void) -> c_int {
    if !page.is_null() {
        return system!(xUnfetch(file, at, page));
    }
    let mut length = 0;
    // SAFETY: SQLite passes a database with the library's methods.
    let database = unsafe { &mut *note::<Database>(file) };
    let known = system!(xFileSize(file, &raw mut length)) == ffi::SQLITE_OK;
    if known && keeps_mapping(database.mapped, length) {
        return ffi::SQLITE_OK;
    }
    database.mapped = 0;
    let code = system!(xUnfetch(file, at, page));
    // The new mapping is at most as long as the file, whose length is therefore read afterwards.
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

/// Returns `true` if a mapping of at most `mapped` bytes can stay for a file of `length` bytes: the
/// file is not shorter than `mapped`, and at most an eighth longer.
fn keeps_mapping(mapped: i64, length: i64) -> bool {
    mapped > 0 && (mapped..=mapped.saturating_add(mapped / 8)).contains(&length)
}

/// Method `xRead` of a database: reads like the system's VFS, and records the read (`noted`).
unsafe extern "C" fn read_database(file: *mut File, to: *mut c_void, length: c_int, at: i64) -> c_int {
    let code = read_by_system(file, to, length, at);
    // SAFETY: SQLite passes a database with the library's methods.
    unsafe {
        noted(file, code);
    }
    code
}

/// Records that `database` or its WAL was read, and that the read returned SQLite's result code
/// `code`. The code is kept only if the read has failed. (A read beyond the end of the file does
/// not count as failed.)
///
/// # Safety
/// The file is a database with the library's methods.
pub(super) unsafe fn noted(database: *mut File, code: c_int) {
    // SAFETY: the caller guarantees the file.
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

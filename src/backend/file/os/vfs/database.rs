//! Methods of the file of a database. They differ from the system's in these points:
//!
//! - When the writer's lock is released, they discard the buffered frames of the WAL.
//! - They keep the mapping of the file while the file has not become shorter.
//! - Without a WAL, the file is not extended ahead of its writes.
//! - A reader that begins during a commit does not take the writer's lock.
//! - Where deleted data is overwritten, so are the bytes that are cut off the file, and the unused
//!   bytes of a page (`secure_delete.rs`).

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

/// Number of reads of databases and their WALs by this process.
#[cfg(feature = "encryption")]
pub(super) static READS: AtomicU64 = AtomicU64::new(0);

/// Number of the writer's lock (`WAL_WRITE_LOCK` in wal.c; fileformat2.html, chapter 4.3).
const WRITER: c_int = 0;

/// State of the file of a database.
#[derive(Clone, Copy)]
pub(super) struct Database {
    /// WAL of the database; NULL while it is not open.
    pub(super) wal: *mut File,
    /// Whether each commit is synced.
    pub(super) syncs: bool,
    /// Maximum length of the part of the file that is mapped, in bytes; 0 if it is not known.
    mapped: i64,
    /// Locks of the wal-index that the file holds, one bit each.
    locks: u8,
    /// How deleted data is overwritten; `None` if it may stay.
    pub(super) wipes: Option<Wipes>,
    /// SQLite's code of the last failed read of the database or its WAL. (SQLCipher reports
    /// unreadable bytes as bytes that cannot be decrypted, and SQLite's integrity check reports
    /// them as damage.)
    pub(super) failed: c_int,
    /// Whether the database or its WAL was read since the last `take_reads`.
    #[cfg(feature = "encryption")]
    pub(super) was_read: bool,
}

/// Settings for overwriting deleted data.
#[derive(Clone, Copy)]
pub(super) struct Wipes {
    /// Layout of the pages whose unused bytes are overwritten; `None` if they are not overwritten.
    pub(super) pages: Option<Pages>,
    /// Whether the overwritten bytes are synced before their space is released.
    pub(super) syncs: bool,
    /// Size of a page, if the WAL keeps disk space when it is cut off.
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

/// Puts this library's methods for database files into a copy of the table of the system's VFS.
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

/// Takes or releases locks of the wal-index. If a connection that holds no lock requests the
/// writer's lock, it first waits until the header of the wal-index is whole.
///
/// The reason: a reader that begins during a commit finds that header torn. SQLite's reader then
/// takes the writer's lock, to read the header again or to repair it after a crash
/// (`walIndexReadHdr`). If the commit has ended by then, the next writer finds the lock taken by a
/// connection that only reads. This is not rare when both are threads of one process: while a
/// commit and an open wait for each other, the header stays torn.
///
/// Once the header is whole, the request returns `SQLITE_BUSY`, as if another connection were
/// writing. Then SQLite reads the header again. If the header stays torn, the lock is taken. (A
/// writer holds a reader's lock before it requests the writer's lock, and a checkpoint holds its
/// own lock.)
pub(super) unsafe extern "C" fn shm_lock(file: *mut File, first: c_int, count: c_int, flags: c_int) -> c_int {
    // SAFETY: SQLite passes a database with the library's methods.
    let note = unsafe { &mut *note::<Database>(file) };
    let which = u8::try_from(((1_u32 << count) - 1) << first).unwrap_or(0);
    if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
        if first == WRITER && !note.wal.is_null() {
            // SAFETY: the data of a database refers to its WAL while that is open.
            unsafe { frames(note.wal).discard() };
        }
        note.locks &= !which;
    } else if first == WRITER && note.locks == 0 {
        let mut region = ptr::null_mut();
        let code = system!(xShmMap(file, 0, WalIndex::REGION, 0, &raw mut region));
        // SAFETY: the VFS has mapped the first region, or returns NULL. The region stays mapped
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

/// Handles SQLite's controls of a database.
///
/// With a size hint, SQLite announces the future length of the file. The system's VFS then extends
/// a mapped file to that length at once, and maps it. A transaction with a rollback journal may end
/// with a shorter file, for example when the store evicts entries, and the part that was never
/// written is not cut off then. So without a WAL, the hint is limited to the current length of the
/// file.
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
        // SAFETY: SQLite passes a database with the library's methods. Its data refers to its WAL
        // while that is open.
        let Database { wal, wipes, .. } = unsafe { *note::<Database>(file) };
        // SAFETY: the argument of this control is a number. A negative one queries the setting.
        let asks = unsafe { argument.cast::<c_int>().as_ref() }.is_some_and(|number| *number < 0);
        if let (false, Some(Wipes { syncs, .. }), true) = (wal.is_null(), wipes, asks) {
            // The last connection is about to remove the WAL, whose frames are all in the database
            // (`sqlite3WalClose`). It does so whatever this returns.
            let _ = wipe_wal(wal, syncs);
        }
    }
    if op == ffi::SQLITE_FCNTL_SIZE_HINT {
        return size_hint(file, argument.cast());
    }
    system!(xFileControl(file, op, argument))
}

/// Passes a size hint to the system's VFS. SQLite ignores an error of this call, so its cause is
/// discarded. The write that needs the space fails, and reports the cause.
fn size_hint(file: *mut File, length: *mut i64) -> c_int {
    let code = system!(xFileControl(file, ffi::SQLITE_FCNTL_SIZE_HINT, length.cast::<c_void>()));
    if code != ffi::SQLITE_OK {
        refusal::take();
    }
    code
}

/// Writes a page. Its unused bytes may have been part of rows that are deleted by now, so they are
/// zeroed first if the store overwrites deleted data.
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

/// Truncates a database. The bytes that are cut off return to the file system and may stay on the
/// disk for long, so they are overwritten first if the store overwrites deleted data.
unsafe extern "C" fn cut_database(file: *mut File, length: i64) -> c_int {
    // SAFETY: SQLite passes a database with the library's methods.
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

/// Releases a mapped page. With NULL, drops the mapping of the whole file, unless it can stay.
///
/// SQLite requests that after a commit of another connection: the file may have been cut off
/// meanwhile, and mapped memory beyond its end cannot be read. But mapping the file again at each
/// such commit, page faults included, takes longer than the read. So the mapping stays if the file
/// is not shorter than it was when it was mapped, nor much longer.
///
/// SQLite makes this request while it holds a lock under which no connection cuts off what it will
/// read. (On Linux a mapping shows the content of the file, also after the file was cut off and has
/// grown again. POSIX does not promise that.)
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
    // The new mapping cannot be longer than the file is afterwards.
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

/// Returns `true` if a mapping of at most `mapped` bytes can stay for a file of this length.
fn keeps_mapping(mapped: i64, length: i64) -> bool {
    mapped > 0 && (mapped..=mapped.saturating_add(mapped / 8)).contains(&length)
}

unsafe extern "C" fn read_database(file: *mut File, to: *mut c_void, length: c_int, at: i64) -> c_int {
    let code = read_by_system(file, to, length, at);
    // SAFETY: SQLite passes a database with the library's methods.
    unsafe {
        noted(file, code);
    }
    code
}

/// Records the result of a read.
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

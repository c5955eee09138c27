//! Our VFS: that of the system, but for the files of databases and WALs, of which a few methods are ours.
//!
//! A file is opened by the system's VFS, in memory of our size. Then its table of methods is exchanged for a copy of
//! that table in which some functions are ours, so all others cost what they always cost; what we note of the file
//! stands after the system's part. `database.rs` has the methods of a database, `wal.rs` those of a WAL; here a VFS is
//! registered, files are opened, and the rooms above say what is to be noted of the files of a connection. (SQLite's
//! vfs.html; `sqlite3_io_methods`.)

use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use rusqlite::{Connection, ffi};

use super::opened::{Opened, object};
use super::system;
use super::wipe::Pages;
#[cfg(feature = "encryption")]
use crate::atomic::AtomicU64;
use crate::error::{Error, Result};

/// Zeros to write. In a cell, or they would be in the library's file.
struct Zeros(UnsafeCell<[u8; 16 * 1024]>);
static ZEROS: Zeros = Zeros(UnsafeCell::new([0; 16 * 1024]));

// SAFETY: nobody writes to them.
unsafe impl Sync for Zeros {}

/// Returns a slice of zeros, of the wanted length or of the maximum length.
pub(super) fn zeros(wanted: i64) -> &'static [u8] {
    // SAFETY: nobody writes to them.
    let zeros = unsafe { &*ZEROS.0.get() };
    let length = usize::try_from(wanted).unwrap_or(0).min(zeros.len());
    zeros.get(..length).unwrap_or_default()
}

/// A method of the system's for a file of ours.
macro_rules! system {
    ($method:ident($file:expr $(, $argument:expr)*)) => {{
        // SAFETY: the file's methods are ours, and the arguments SQLite's.
        unsafe {
            match (*table($file).system).$method {
                Some(method) => method($file $(, $argument)*),
                None => ffi::SQLITE_IOERR,
            }
        }
    }};
}

mod database;
mod wal;

use database::{Database, Wipes};
use wal::Wal;

type Methods = ffi::sqlite3_io_methods;
type File = ffi::sqlite3_file;

/// A VFS of ours over one of the system's: SQLite's unix VFS, or what somebody has made the default.
#[repr(C)]
struct Vfs {
    /// What SQLite knows of it: first, so that one is a pointer to the other.
    vfs: ffi::sqlite3_vfs,
    system: *mut ffi::sqlite3_vfs,
    name: CString,
    /// Where our part of a file begins.
    at: usize,
    databases: AtomicPtr<Table>,
    wals: AtomicPtr<Table>,
    /// The one registered before it.
    next: *const Vfs,
}

/// All there are; none is ever freed. Mostly one.
static ALL: AtomicPtr<Vfs> = AtomicPtr::new(ptr::null_mut());

/// A table of methods in which some are ours, and that of the system's.
#[repr(C)]
struct Table {
    /// First, so that a file's pointer to its methods is one to this.
    ours: Methods,
    system: *const Methods,
    at: usize,
}

/// Returns the name of the library's VFS, which is layered over the current default VFS.
///
/// # Errors
/// `NoMemory`.
pub(in crate::db::file) fn name() -> Result<&'static CStr> {
    let none = || Error::no_memory("out of memory while registering the VFS");
    // SAFETY: SQLite is set up. It gives a VFS that lives as long as the process; ours is a copy of it, which is never
    // freed, with an xOpen of the same type. What is in the list is never freed either.
    unsafe {
        let system = ffi::sqlite3_vfs_find(ptr::null());
        let Some(methods) = system.as_ref() else { return Err(none()) };
        let first = ALL.load(Ordering::Acquire);
        let mut known: *const Vfs = first;
        while let Some(vfs) = known.as_ref() {
            if ptr::eq(vfs.system, system) {
                return Ok(vfs.name.as_c_str());
            }
            known = vfs.next;
        }
        let part = align_of::<Wal>().max(align_of::<Database>());
        let at = usize::try_from(methods.szOsFile).unwrap_or(0).next_multiple_of(part);
        let size = c_int::try_from(at + size_of::<Wal>().max(size_of::<Database>())).map_err(|_| none())?;
        let name = CString::new(format!("kvstore-{system:p}")).map_err(|_| none())?;
        let made = Box::into_raw(Box::new(Vfs {
            vfs: ffi::sqlite3_vfs {
                szOsFile: size,
                pNext: ptr::null_mut(),
                zName: name.as_ptr(),
                xOpen: Some(open),
                xSleep: if CStr::from_ptr(methods.zName) == system::VFS {
                    Some(sleep)
                } else {
                    methods.xSleep
                },
                ..*methods
            },
            system,
            name,
            at,
            databases: AtomicPtr::default(),
            wals: AtomicPtr::default(),
            next: first,
        }));
        // Two threads may do so at once. Then one of two equal ones is not in the list, and just as good.
        let _ = ALL.compare_exchange(first, made, Ordering::AcqRel, Ordering::Relaxed);
        if ffi::sqlite3_vfs_register(made.cast(), 0) != ffi::SQLITE_OK {
            return Err(none());
        }
        Ok((*made).name.as_c_str())
    }
}

/// Sleeps for the whole time. SQLite's unix VFS returns early when a signal handler has run, and its
/// busy timeout counts the times that it asked for.
unsafe extern "C" fn sleep(_: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    std::thread::sleep(Duration::from_micros(microseconds.max(0).unsigned_abs().into()));
    microseconds
}

/// Records that each commit of a connection is synced.
///
/// # Errors
/// What SQLite says if it does not give the file.
pub(in crate::db::file) fn syncs_commits(conn: &Connection) -> Result<()> {
    let file = object(conn, Opened::Main)?;
    // SAFETY: SQLite's object of the file, or NULL; the connection is used by this thread only.
    unsafe {
        if is_database(file) {
            (*note::<Database>(file)).syncs = true;
        }
    }
    Ok(())
}

/// Forgets what is kept of the frames of a transaction that is over, and was not committed. To be called by who has no
/// write transaction open.
pub(in crate::db::file) fn forget_frames(conn: &Connection) {
    let Ok(file) = object(conn, Opened::Main) else { return };
    // SAFETY: SQLite's object of the file, or NULL, which notes its WAL while that is open; the connection is used by this
    // thread only.
    unsafe {
        if is_database(file)
            && let wal = (*note::<Database>(file)).wal
            && !wal.is_null()
        {
            wal::frames(wal).discard();
        }
    }
}

/// Returns `true` if the database of a connection is a file of the system's VFS below the library's
/// VFS.
pub(in crate::db::file) fn is_over_the_systems(conn: &Connection) -> bool {
    let Ok(file) = object(conn, Opened::Main) else { return false };
    // SAFETY: SQLite's object of the file, or NULL. A VFS of ours and the one below it live as long as the process,
    // and a VFS has a name, which is a C string.
    unsafe {
        let mut vfs: *mut Vfs = ptr::null_mut();
        let asked = is_database(file)
            && ffi::sqlite3_file_control(
                conn.handle(),
                c"main".as_ptr(),
                ffi::SQLITE_FCNTL_VFS_POINTER,
                (&raw mut vfs).cast(),
            ) == ffi::SQLITE_OK;
        asked && vfs.as_ref().is_some_and(|vfs| CStr::from_ptr((*vfs.system).zName) == system::VFS)
    }
}

/// The table that a file of ours has its methods from.
///
/// # Safety
/// The file's methods are ours.
unsafe fn table<'t>(file: *mut File) -> &'t Table {
    // SAFETY: `exchange` gave it the first part of one, which is never freed.
    unsafe { &*(*file).pMethods.cast::<Table>() }
}

/// Our part of a file.
///
/// # Safety
/// The file's methods are ours, and we note a `T` of it.
unsafe fn note<T>(file: *mut File) -> *mut T {
    // SAFETY: `name` asked for room for it there, aligned if the file is, and SQLite aligns by 8.
    unsafe { file.cast::<u8>().add(table(file).at).cast() }
}

/// Whether a file is a database with methods of ours.
///
/// # Safety
/// The file is NULL or SQLite's object of one.
unsafe fn is_database(file: *mut File) -> bool {
    // SAFETY: an open file has methods as long as it is.
    unsafe { file.as_ref().and_then(|file| file.pMethods.as_ref()) }
        .and_then(|methods| methods.xShmLock)
        .is_some_and(|method| method as usize == database::shm_lock as *const () as usize)
}

/// Exchanges the methods of a file that the system's VFS has opened; says whether it did. The first file decides of
/// which methods there is a table with ours: files with others stay the system's.
///
/// # Safety
/// The file is open.
unsafe fn exchange(file: *mut File, at: usize, table: &AtomicPtr<Table>, change: fn(&mut Methods)) -> bool {
    // SAFETY: an open file has methods, as long as the process; a table is never freed once it is in its place.
    unsafe {
        let system = (*file).pMethods;
        let mut found = table.load(Ordering::Acquire);
        if found.is_null() {
            let mut ours = *system;
            change(&mut ours);
            let made = Box::into_raw(Box::new(Table { ours, system, at }));
            found = match table.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => made,
                Err(first) => {
                    drop(Box::from_raw(made));
                    first
                }
            };
        }
        let can = ptr::eq((*found).system, system);
        if can {
            (*file).pMethods = found.cast();
        }
        can
    }
}

/// Says that what is cut off the files of a connection, or removed, is to be overwritten; `syncs`: and on the disk before
/// the place is given back. `false`: the files are not under our VFS.
///
/// # Errors
/// What SQLite says if it does not give the file.
pub(in crate::db::file) fn wipe_what_goes(conn: &Connection, syncs: bool) -> Result<bool> {
    let file = object(conn, Opened::Main)?;
    // SAFETY: SQLite's object of the file, or NULL; the connection is used by this thread only.
    unsafe {
        let is_ours = is_database(file);
        if is_ours {
            (*note::<Database>(file)).wipes = Some(Wipes { pages: None, syncs });
        }
        Ok(is_ours)
    }
}

/// Says in addition that what is unused of pages is to be overwritten; `None`: not any more. To be said only of pages
/// that go into the file as SQLite has them in memory, and not encrypted.
///
/// # Errors
/// What SQLite says if it does not give the file.
pub(in crate::db::file) fn wipe_pages(conn: &Connection, pages: Option<Pages>) -> Result<()> {
    let file = object(conn, Opened::Main)?;
    // SAFETY: SQLite's object of the file, or NULL; the connection is used by this thread only.
    unsafe {
        if is_database(file)
            && let Some(wipes) = &mut (*note::<Database>(file)).wipes
        {
            wipes.pages = pages;
        }
    }
    Ok(())
}

// This function, and the methods, are called by SQLite, with files that `open` has opened and nobody else uses meanwhile.
// No panic may leave them; nothing in them panics.

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut File,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite gives the VFS that `name` has registered, which is the first part of a `Vfs`. The arguments are
    // passed on, with the VFS they are for now; the memory is larger than it asks for, and what is noted is written
    // where `name` made room for it, before the methods that look for it there. A WAL's name leads to its database.
    unsafe {
        let vfs = &*vfs.cast::<Vfs>();
        let Some(open) = (*vfs.system).xOpen else { return ffi::SQLITE_CANTOPEN };
        let code = open(vfs.system, name, file, flags, out);
        if code != ffi::SQLITE_OK || (*file).pMethods.is_null() || (*(*file).pMethods).iVersion < 3 {
            return code;
        }
        let part = file.cast::<u8>().add(vfs.at);
        if flags & ffi::SQLITE_OPEN_MAIN_DB != 0 {
            part.cast::<Database>().write(Database::default());
            exchange(file, vfs.at, &vfs.databases, database::change);
        } else if flags & ffi::SQLITE_OPEN_WAL != 0 {
            let database = ffi::sqlite3_database_file_object(name.cast::<c_char>());
            if is_database(database) {
                part.cast::<Wal>().write(Wal::of(database));
                if exchange(file, vfs.at, &vfs.wals, wal::change) {
                    (*note::<Database>(database)).wal = file;
                }
            }
        }
        code
    }
}

/// Overwrites a file of ours from an offset to its end with zeros.
fn wipe_from(file: *mut File, from: i64, syncs: bool) -> c_int {
    let mut length = 0;
    let code = system!(xFileSize(file, &raw mut length));
    if code != ffi::SQLITE_OK || length <= from {
        return code;
    }
    let mut at = from;
    while at < length {
        let part = zeros(length - at);
        let code = put(file)(part, at);
        if code != ffi::SQLITE_OK {
            return code;
        }
        at += i64::try_from(part.len()).unwrap_or(i64::MAX);
    }
    if syncs { system!(xSync(file, ffi::SQLITE_SYNC_NORMAL)) } else { ffi::SQLITE_OK }
}

/// Writes into a file of ours.
fn put(file: *mut File) -> impl FnMut(&[u8], i64) -> c_int {
    move |bytes, at| match c_int::try_from(bytes.len()) {
        Ok(length) => system!(xWrite(file, bytes.as_ptr().cast::<c_void>(), length, at)),
        Err(_) => ffi::SQLITE_IOERR_WRITE,
    }
}

/// Of a disk that cannot read (EIO), SQLite's VFS says that its file system is damaged, and SQLite then that the database is.
/// What was not read says nothing about the database.
fn read_by_system(file: *mut File, to: *mut c_void, length: c_int, at: i64) -> c_int {
    match system!(xRead(file, to, length, at)) {
        ffi::SQLITE_IOERR_CORRUPTFS => ffi::SQLITE_IOERR_READ,
        code => code,
    }
}

/// Reads of databases and their WALs by this process.
#[cfg(feature = "encryption")]
static READS: AtomicU64 = AtomicU64::new(0);

/// Returns a number that changes when this process has read any database. It is cheaper than
/// [`take_reads`].
#[cfg(feature = "encryption")]
#[inline]
pub(in crate::db::file) fn reads() -> u64 {
    READS.load(Ordering::Relaxed)
}

/// Returns `true` if anything was read for a connection since the last call.
#[cfg(feature = "encryption")]
pub(in crate::db::file) fn take_reads(conn: &Connection) -> bool {
    let Ok(file) = object(conn, Opened::Main) else { return true };
    // SAFETY: SQLite's object of the file, or NULL; the connection is used by this thread only.
    unsafe { !is_database(file) || std::mem::take(&mut (*note::<Database>(file)).was_read) }
}

/// Returns the error of the last failed read of a connection since the last call, and clears it.
pub(in crate::db::file) fn take_failed_read(conn: &Connection) -> Option<c_int> {
    let file = object(conn, Opened::Main).ok()?;
    // SAFETY: SQLite's object of the file, or NULL; the connection is used by this thread only.
    let failed = unsafe {
        if !is_database(file) {
            return None;
        }
        std::mem::replace(&mut (*note::<Database>(file)).failed, ffi::SQLITE_OK)
    };
    (failed != ffi::SQLITE_OK).then_some(failed)
}

//! The library's VFS. It is layered over the system's VFS and replaces a few methods of databases
//! and WALs (ADR 12).
//!
//! The system's VFS opens a file in memory that SQLite has allocated, with the size that the
//! library's VFS requires. Then the library exchanges the method table of the file for a copy in
//! which some functions are replaced. The methods that are not replaced are called directly, at no
//! extra cost. The library's data about the file follows the data of the system's VFS in that
//! memory.
//!
//! `database.rs` has the methods of a database, `wal.rs` those of a WAL, and `file.rs` what both
//! need. This module registers the VFS, opens files, and sets per connection what the methods need
//! to know. (SQLite's vfs.html; `sqlite3_io_methods`.)

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use rusqlite::{Connection, ffi};

use super::secure_delete::Pages;
use super::sqlite_file::{Opened, object};
use super::system;
use crate::error::{Error, Result};

mod database;
mod file;
mod wal;

#[cfg(feature = "encryption")]
use database::READS;
use database::{Database, Wipes};
use file::{File, Table, exchange, note};
use wal::Wal;

/// VFS of the library, layered over another one: SQLite's unix VFS, or a VFS that the program has
/// made the default.
#[repr(C)]
struct Vfs {
    /// SQLite's struct of a VFS. It is the first field, so that a pointer to it is also a pointer
    /// to the `Vfs`.
    vfs: ffi::sqlite3_vfs,
    /// The VFS over which this one is layered. It opens the files, and its methods access them.
    system: *mut ffi::sqlite3_vfs,
    /// Name under which SQLite knows this VFS.
    name: CString,
    /// Offset, in bytes, of the library's data (`Database` or `Wal`) in the memory that SQLite
    /// allocates for an open file. The data of the VFS `system` precedes it.
    at: usize,
    /// List of the method tables for database files, one for each method table of the VFS `system`.
    databases: AtomicPtr<Table>,
    /// List of the method tables for WAL files.
    wals: AtomicPtr<Table>,
    /// Next element of the list [`ALL`]: the VFS that was created before this one; NULL for the
    /// first.
    next: *mut Vfs,
}

/// Head of the linked list of all VFSs that the library has registered: one for each VFS over which
/// it is layered, usually only one. They are never freed.
static ALL: AtomicPtr<Vfs> = AtomicPtr::new(ptr::null_mut());

/// Returns the name of the library's VFS, like `name`, but as a `str` instead of a `CStr`: all
/// supported versions of rusqlite accept this type.
///
/// # Errors
/// `NoMemory`; `Error` if the name is not UTF-8.
pub(in crate::backend::file) fn name_as_str() -> Result<&'static str> {
    name()?.to_str().map_err(|_| Error::failed("the name of the VFS is not UTF-8"))
}

/// Returns the name of the library's VFS that is layered over the current default VFS. The first
/// call creates this VFS and registers it with SQLite.
///
/// # Errors
/// `NoMemory`.
pub(in crate::backend::file) fn name() -> Result<&'static CStr> {
    // SAFETY: SQLite is set up. It returns a VFS that is valid until the process ends. The elements
    // of the list are never freed.
    unsafe {
        let system = ffi::sqlite3_vfs_find(ptr::null());
        if system.is_null() {
            return Err(no_memory());
        }
        let vfs = loop {
            let first = ALL.load(Ordering::Acquire);
            let mut known = first;
            while let Some(vfs) = known.as_ref()
                && !ptr::eq(vfs.system, system)
            {
                known = vfs.next;
            }
            if !known.is_null() {
                break known;
            }
            let made = Box::into_raw(layered_over(system, first)?);
            if ALL.compare_exchange(first, made, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                break made;
            }
            drop(Box::from_raw(made)); // another thread has added one
        };
        // Another thread may have added this VFS to the list without having registered it yet.
        let name = (*vfs).name.as_c_str();
        if ffi::sqlite3_vfs_find(name.as_ptr()).is_null()
            && ffi::sqlite3_vfs_register(vfs.cast(), 0) != ffi::SQLITE_OK
        {
            return Err(no_memory());
        }
        Ok(name)
    }
}

fn no_memory() -> Error {
    Error::no_memory("out of memory while registering the VFS")
}

/// Returns a VFS of the library that is layered over `system`. `next` is its successor in the list
/// `ALL`.
///
/// # Errors
/// `NoMemory`.
///
/// # Safety
/// `system` is a VFS that is registered with SQLite.
unsafe fn layered_over(system: *mut ffi::sqlite3_vfs, next: *mut Vfs) -> Result<Box<Vfs>> {
    // SAFETY: the caller guarantees the VFS. The library's VFS is a copy of it with an xOpen of the
    // same type.
    let methods = unsafe { &*system };
    let part = align_of::<Wal>().max(align_of::<Database>());
    let at = usize::try_from(methods.szOsFile).unwrap_or(0).next_multiple_of(part);
    let size = c_int::try_from(at + size_of::<Wal>().max(size_of::<Database>())).map_err(|_| no_memory())?;
    let name = CString::new(format!("kvstore-{system:p}")).map_err(|_| no_memory())?;
    // SAFETY: a VFS has a name, which is a C string.
    let is_the_systems = unsafe { CStr::from_ptr(methods.zName) } == system::VFS;
    Ok(Box::new(Vfs {
        vfs: ffi::sqlite3_vfs {
            szOsFile: size,
            pNext: ptr::null_mut(),
            zName: name.as_ptr(),
            xOpen: Some(open),
            xSleep: if is_the_systems { Some(sleep) } else { methods.xSleep },
            ..*methods
        },
        system,
        name,
        at,
        databases: AtomicPtr::default(),
        wals: AtomicPtr::default(),
        next,
    }))
}

/// Method `xSleep` of the library's VFS: sleeps for `microseconds`, even if a signal handler runs
/// during this time, and returns `microseconds`. SQLite's unix VFS would return early after a
/// signal handler has run, but SQLite's busy timeout counts the times that it has requested, not
/// those that it has slept.
unsafe extern "C" fn sleep(_: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    std::thread::sleep(Duration::from_micros(microseconds.max(0).unsigned_abs().into()));
    microseconds
}

/// Informs the VFS that SQLite syncs each commit of a connection. From then on, the VFS extends the
/// connection's WAL with zeros before the next commits need the space.
///
/// # Errors
/// The error of SQLite if it does not return its object of the database file.
pub(in crate::backend::file) fn syncs_commits(conn: &Connection) -> Result<()> {
    let file = object(conn, Opened::Main)?;
    // SAFETY: SQLite's object of the file, or NULL; the connection is used by this thread only.
    unsafe {
        if is_database(file) {
            (*note::<Database>(file)).syncs = true;
        }
    }
    Ok(())
}

/// Discards the buffered WAL frames of a transaction that has ended without a commit. Call this
/// only while the connection has no write transaction open.
pub(in crate::backend::file) fn forget_frames(conn: &Connection) {
    let Ok(file) = object(conn, Opened::Main) else { return };
    // SAFETY: this is SQLite's object of the file, or NULL. Its data refers to its WAL while that
    // is open. The connection is used by this thread only.
    unsafe {
        if is_database(file)
            && let wal = (*note::<Database>(file)).wal
            && !wal.is_null()
        {
            wal::frames(wal).discard();
        }
    }
}

/// Returns `true` if the library's VFS has opened the database of a connection, and is layered over
/// SQLite's own VFS for this system (`system::VFS`).
pub(in crate::backend::file) fn is_over_the_systems(conn: &Connection) -> bool {
    let Ok(file) = object(conn, Opened::Main) else { return false };
    // SAFETY: this is SQLite's object of the file, or NULL. A VFS of the library and the one below
    // it live as long as the process, and a VFS has a name, which is a C string.
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

/// Returns `true` if a file is a database with the library's methods.
///
/// # Safety
/// `file` is NULL or SQLite's object of a file.
unsafe fn is_database(file: *mut File) -> bool {
    // SAFETY: the caller guarantees the file, and an open file has methods as long as it is open.
    unsafe { file.as_ref().and_then(|file| file.pMethods.as_ref()) }
        .and_then(|methods| methods.xShmLock)
        .is_some_and(|method| method as usize == database::shm_lock as *const () as usize)
}

/// Makes the VFS overwrite deleted data of a connection with zeros: the bytes that a truncation
/// cuts off the database or the WAL, and the WAL before it is removed. With `syncs`, the zeros are
/// synced before the disk space is released. Returns `false`, and changes nothing, if the database
/// does not have the library's methods.
///
/// # Errors
/// The error of SQLite if it does not return its object of the database file.
pub(in crate::backend::file) fn wipe_what_goes(conn: &Connection, syncs: bool) -> Result<bool> {
    let file = object(conn, Opened::Main)?;
    // SAFETY: SQLite's object of the file, or NULL; the connection is used by this thread only.
    unsafe {
        let is_ours = is_database(file);
        if is_ours {
            (*note::<Database>(file)).wipes = Some(Wipes { pages: None, syncs, page_size: None });
        }
        Ok(is_ours)
    }
}

/// Sets whether the VFS overwrites the unused bytes of pages that it writes into the database.
/// `pages` is the layout of the pages; `None` turns this off. Has no effect unless `wipe_what_goes`
/// was called before. Use this only for pages that SQLite writes as they are in memory, not
/// encrypted.
///
/// # Errors
/// The error of SQLite if it does not return its object of the database file.
pub(in crate::backend::file) fn wipe_pages(conn: &Connection, pages: Option<Pages>) -> Result<()> {
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

/// Makes the VFS reserve disk space for later commits when it overwrites and truncates the WAL of a
/// connection (ADR 31; on Linux only). `page_size` is the size of a page of the database, in bytes.
/// Has no effect unless `wipe_what_goes` was called before.
///
/// # Errors
/// The error of SQLite if it does not return its object of the database file.
pub(in crate::backend::file) fn keep_wal_space(conn: &Connection, page_size: u64) -> Result<()> {
    let file = object(conn, Opened::Main)?;
    // SAFETY: SQLite's object of the file, or NULL; the connection is used by this thread only.
    unsafe {
        if is_database(file)
            && let Some(wipes) = &mut (*note::<Database>(file)).wipes
        {
            wipes.page_size = Some(page_size);
        }
    }
    Ok(())
}

// SQLite calls `open` and the methods. Only the calling thread uses the file during a call, and
// `open` has opened it. No panic may leave these functions, and nothing in them panics.

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut File,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes the VFS that `name` has registered, which is the first field of a
    // `Vfs`. The arguments are passed on with the VFS that they are now for. The memory is larger
    // than that VFS requires. The data is written at the offset that `name` reserved, before the
    // methods that read it are set. The name of a WAL leads to its database.
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
                part.cast::<Wal>().write(Wal::of(database, name));
                if exchange(file, vfs.at, &vfs.wals, wal::change) {
                    (*note::<Database>(database)).wal = file;
                }
            }
        }
        code
    }
}

/// Returns how often this process has read from any database or WAL file since its start. If two
/// calls return the same number, no connection has read from a file between them. This call is
/// cheaper than [`take_reads`].
#[cfg(feature = "encryption")]
#[inline]
pub(in crate::backend::file) fn reads() -> u64 {
    READS.load(Ordering::Relaxed)
}

/// Returns `true` if the database of a connection or its WAL was read since the last call of this
/// function, or if that is not known.
#[cfg(feature = "encryption")]
pub(in crate::backend::file) fn take_reads(conn: &Connection) -> bool {
    let Ok(file) = object(conn, Opened::Main) else { return true };
    // SAFETY: SQLite's object of the file, or NULL; the connection is used by this thread only.
    unsafe { !is_database(file) || std::mem::take(&mut (*note::<Database>(file)).was_read) }
}

/// Returns SQLite's result code of the last failed read of a connection's database or WAL, and
/// clears it. Returns `None` if no read has failed since the last call.
pub(in crate::backend::file) fn take_failed_read(conn: &Connection) -> Option<c_int> {
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

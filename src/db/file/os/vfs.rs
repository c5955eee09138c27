//! Our VFS: that of the system, but for the files of databases and WALs, of which a few methods are ours.
//!
//! A file is opened by the system's VFS, in memory of our size. Then its table of methods is exchanged for a copy of
//! that table in which some functions are ours, so all others cost what they always cost; what we note of the file
//! stands after the system's part. A database tells its WAL when the writer's lock is given back, keeps its mapping
//! while the file is not shorter, without a WAL is not made longer ahead of its writes, and keeps a reader that meets a
//! commit from taking the writer's lock; a WAL keeps frames until a commit is whole (`frames.rs`), and where commits are synced is filled with zeros ahead of them, for a sync that must
//! also write a new length of the file costs twice as much. Where deleted data is overwritten, so is what is cut off a
//! file, the WAL before it is removed, and what is unused of a page (`wipe.rs`). (SQLite's vfs.html;
//! `sqlite3_io_methods`.)

use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicPtr, Ordering};

use rusqlite::{Connection, ffi};

use super::frames::{FRAME_HEADER, Frames, WAL_HEADER};
use super::opened::{Opened, object};
use super::system;
use super::wal_index::WalIndex;
use super::wipe::{self, Pages};
#[cfg(feature = "encryption")]
use crate::atomic::AtomicU64;
use crate::error::{Error, Result};

/// How far a WAL is filled with zeros, at most; and at most to twice its length.
const AHEAD: i64 = 256 * 1024;
/// Zeros to write. In a cell, or they would be in the library's file.
struct Zeros(UnsafeCell<[u8; 16 * 1024]>);
static ZEROS: Zeros = Zeros(UnsafeCell::new([0; 16 * 1024]));

// SAFETY: nobody writes to them.
unsafe impl Sync for Zeros {}

/// At most so many zeros.
pub(super) fn zeros(wanted: i64) -> &'static [u8] {
    // SAFETY: nobody writes to them.
    let zeros = unsafe { &*ZEROS.0.get() };
    let length = usize::try_from(wanted).unwrap_or(0).min(zeros.len());
    zeros.get(..length).unwrap_or_default()
}

/// The number of the writer's lock (`WAL_WRITE_LOCK` in wal.c; fileformat2.html, chapter 4.3).
const WRITER: c_int = 0;

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

/// What we note of the file of a database.
#[derive(Clone, Copy)]
struct Database {
    /// Its WAL while that is open.
    wal: *mut File,
    /// Whether each commit is synced.
    syncs: bool,
    /// What is mapped of it is not longer than this, in bytes; 0: nothing is known of that.
    mapped: i64,
    /// The locks of the wal-index it holds, a bit each.
    locks: u8,
    /// Unless deleted data may stay.
    wipes: Option<Wipes>,
    /// What the last read has failed with that has failed, of it or its WAL; SQLite's code. (SQLCipher takes what could not
    /// be read for what cannot be decrypted, and SQLite's integrity check for what is damaged.)
    failed: c_int,
    /// Whether it or its WAL was read since somebody asked.
    #[cfg(feature = "encryption")]
    was_read: bool,
}

/// How deleted data is overwritten.
#[derive(Clone, Copy)]
struct Wipes {
    /// What pages are like of which what is unused is overwritten.
    pages: Option<Pages>,
    /// Whether it waits until what goes is overwritten on the disk.
    syncs: bool,
}

/// What we note of a WAL.
struct Wal {
    /// The database's file; it is open as long as the WAL.
    database: *mut File,
    frames: Frames,
}

/// A table of methods in which some are ours, and that of the system's.
#[repr(C)]
struct Table {
    /// First, so that a file's pointer to its methods is one to this.
    ours: Methods,
    system: *const Methods,
    at: usize,
}

/// The name of a VFS of ours over the one that is the default now.
///
/// # Errors
/// `NoMemory`.
pub(in crate::db::file) fn name() -> Result<&'static CStr> {
    let none = || Error::no_memory("SQLite takes no VFS");
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

/// Says that each commit of a connection is synced.
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
            frames(wal).discard();
        }
    }
}

/// Whether the database of a connection is a file of the system's VFS, under ours.
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
        .is_some_and(|method| method as usize == shm_lock as *const () as usize)
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

// The functions below are called by SQLite, with files that `open` has opened and nobody else uses meanwhile. No
// panic may leave them; nothing in them panics.

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
            part.cast::<Database>().write(Database {
                wal: ptr::null_mut(),
                syncs: false,
                mapped: 0,
                locks: 0,
                wipes: None,
                failed: ffi::SQLITE_OK,
                #[cfg(feature = "encryption")]
                was_read: false,
            });
            exchange(file, vfs.at, &vfs.databases, |methods| {
                methods.xWrite = Some(write_page);
                methods.xTruncate = Some(cut_database);
                methods.xShmLock = Some(shm_lock);
                methods.xShmMap = methods.xShmMap.and(Some(shm_map));
                methods.xFileControl = Some(file_control);
                methods.xRead = Some(read_database);
                if cfg!(target_os = "linux") && methods.xFetch.is_some() {
                    methods.xUnfetch = Some(unfetch);
                }
            });
        } else if flags & ffi::SQLITE_OPEN_WAL != 0 {
            let database = ffi::sqlite3_database_file_object(name.cast::<c_char>());
            if is_database(database) {
                part.cast::<Wal>().write(Wal { database, frames: Frames::default() });
                if exchange(file, vfs.at, &vfs.wals, |methods| {
                    methods.xClose = Some(close);
                    methods.xRead = Some(read);
                    methods.xWrite = Some(write);
                    methods.xTruncate = Some(truncate);
                    methods.xSync = Some(sync);
                    methods.xFileSize = Some(file_size);
                }) {
                    (*note::<Database>(database)).wal = file;
                }
            }
        }
        code
    }
}

/// A reader that meets a commit finds the header of the wal-index torn. SQLite's then takes the writer's lock, to look
/// once more or to mend what a crash has left (`walIndexReadHdr`), and if the commit is over by then, the next writer
/// finds the file locked by somebody who only reads. That is not rare where both are threads of one process: while
/// commit and open wait for each other, the header stays torn. So who holds no lock waits until the header is whole, and
/// is told that somebody writes: then it reads the header again. (A writer holds a reader's lock before it asks for
/// this one, a checkpoint its own.)
unsafe extern "C" fn shm_lock(file: *mut File, first: c_int, count: c_int, flags: c_int) -> c_int {
    // SAFETY: a database's file.
    let note = unsafe { &mut *note::<Database>(file) };
    let which = u8::try_from(((1_u32 << count) - 1) << first).unwrap_or(0);
    if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
        if first == WRITER && !note.wal.is_null() {
            // SAFETY: a database's file notes its WAL while that is open.
            unsafe { (*self::note::<Wal>(note.wal)).frames.discard() };
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
        return system!(xFileControl(file, op, (&raw mut length).cast()));
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
    system!(xFileControl(file, op, argument))
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
    system!(xTruncate(file, length))
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

/// Overwrites a WAL of ours, all of whose frames are in the database, with zeros. The header first: if a power cut left
/// some of the first frames, and not those after them, who opens the store would take them for the newest ones.
fn wipe_wal(file: *mut File, syncs: bool) -> c_int {
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

/// Writes into a WAL.
fn put(file: *mut File) -> impl FnMut(&[u8], i64) -> c_int {
    move |bytes, at| match c_int::try_from(bytes.len()) {
        Ok(length) => system!(xWrite(file, bytes.as_ptr().cast::<c_void>(), length, at)),
        Err(_) => ffi::SQLITE_IOERR_WRITE,
    }
}

/// The frames that a WAL keeps.
///
/// # Safety
/// The file is an open WAL with methods of ours.
unsafe fn frames<'f>(file: *mut File) -> &'f mut Frames {
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

unsafe extern "C" fn read_database(file: *mut File, to: *mut c_void, length: c_int, at: i64) -> c_int {
    let code = read_by_system(file, to, length, at);
    // SAFETY: a database's file.
    unsafe {
        noted(file, code);
    }
    code
}

/// Of a disk that cannot read (EIO), SQLite's VFS says that its file system is damaged, and SQLite then that the database is.
/// What was not read says nothing about the database.
fn read_by_system(file: *mut File, to: *mut c_void, length: c_int, at: i64) -> c_int {
    match system!(xRead(file, to, length, at)) {
        ffi::SQLITE_IOERR_CORRUPTFS => ffi::SQLITE_IOERR_READ,
        code => code,
    }
}

/// Notes what a read has answered.
///
/// # Safety
/// A database's file.
unsafe fn noted(database: *mut File, code: c_int) {
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

/// Reads of databases and their WALs by this process.
#[cfg(feature = "encryption")]
static READS: AtomicU64 = AtomicU64::new(0);

/// A number that is another one when this process has read any database: quicker to be told than [`take_reads`].
#[cfg(feature = "encryption")]
#[inline]
pub(in crate::db::file) fn reads() -> u64 {
    READS.load(Ordering::Relaxed)
}

/// Whether anything was read for a connection since this was asked.
#[cfg(feature = "encryption")]
pub(in crate::db::file) fn take_reads(conn: &Connection) -> bool {
    let Ok(file) = object(conn, Opened::Main) else { return true };
    // SAFETY: SQLite's object of the file, or NULL; the connection is used by this thread only.
    unsafe { !is_database(file) || std::mem::take(&mut (*note::<Database>(file)).was_read) }
}

/// What a read of a connection has failed with since this was asked; it is forgotten.
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

#[cfg(test)]
mod tests {
    use super::keeps_mapping;

    #[test]
    fn a_mapping_stays_while_the_file_is_as_long_as_it_was_or_an_eighth_longer() {
        for (mapped, length, stays) in
            [(0, 0, false), (0, 4096, false), (4096, 4095, false), (4096, 4096, true), (80_000, 90_000, true)]
        {
            assert_eq!(keeps_mapping(mapped, length), stays, "{mapped}, {length}");
        }
        assert!(!keeps_mapping(80_000, 90_001) && !keeps_mapping(80_000, 79_999) && !keeps_mapping(-1, 5));
        assert!(keeps_mapping(i64::MAX, i64::MAX));
    }
}

//! The VFS: SQLite's file functions, each of which can be made to fail, and logs its changes.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::{Arc, Once, OnceLock};

use rusqlite::ffi;

use super::{Call, Event, Fault, Id, Watched, bytes, find, watched};

struct RealVfs(*mut ffi::sqlite3_vfs);
// SAFETY: SQLite's own VFS is never freed, and may be used by all threads.
unsafe impl Send for RealVfs {}
// SAFETY: as above.
unsafe impl Sync for RealVfs {}

static REAL: OnceLock<RealVfs> = OnceLock::new();

fn real_vfs() -> *mut ffi::sqlite3_vfs {
    REAL.get().expect("registered").0
}

/// Makes the shim the default VFS of this process.
pub fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the default VFS is copied, with functions of the same types in it. The copy is never freed.
        unsafe {
            let real = ffi::sqlite3_vfs_find(ptr::null());
            assert!(!real.is_null());
            assert!(REAL.set(RealVfs(real)).is_ok());
            let mut shim = Box::new(*real);
            shim.zName = c"shim".as_ptr();
            shim.pNext = ptr::null_mut();
            shim.szOsFile += c_int::try_from(size_of::<File>()).unwrap();
            shim.xOpen = Some(open);
            shim.xDelete = Some(delete);
            shim.xAccess = Some(access);
            shim.xSleep = Some(sleep);
            assert_eq!(ffi::sqlite3_vfs_register(Box::into_raw(shim), 1), ffi::SQLITE_OK);
        }
    });
}

/// An open file of a watched directory. The real file follows it in memory.
#[repr(C)]
struct File {
    base: ffi::sqlite3_file,
    watched: *const Watched,
    id: Id,
    /// Whether its size and content matter. They do not for the wal-index.
    main: bool,
}

/// # Safety
/// The file was opened by [`open`].
unsafe fn parts<'f>(file: *mut ffi::sqlite3_file) -> (&'f File, *mut ffi::sqlite3_file) {
    let file: *mut File = file.cast();
    // SAFETY: `open` made it one of ours, with room for the real one after it.
    unsafe { (&*file, file.add(1).cast()) }
}

/// Calls a method of the real file.
macro_rules! real {
    ($real:expr, $method:ident $(, $argument:expr)*) => {
        // SAFETY: the real file is open, and has all methods of version 3, as SQLite's own files have.
        unsafe { (*(*$real).pMethods).$method.unwrap()($real $(, $argument)*) }
    };
}

/// The parts of a file.
macro_rules! ours {
    ($file:expr) => {{
        // SAFETY: SQLite calls the methods of our files with our files, which are open.
        let (file, real) = unsafe { parts($file) };
        // SAFETY: `open` took a reference, which `close` gives back.
        (file, unsafe { &*file.watched }, real)
    }};
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 3,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: Some(fetch),
    xUnfetch: Some(unfetch),
};

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let vfs = real_vfs();
    // SAFETY: the real VFS has all its functions.
    let real_open = unsafe { (*vfs).xOpen.unwrap() };
    let Some((watched, name_there)) = find(bytes(name)) else {
        // SAFETY: SQLite's arguments; there is more room than the real file needs.
        return unsafe { real_open(vfs, name, file, flags, out) };
    };
    // SAFETY: SQLite closes a file whose open failed only if it has methods.
    unsafe { (*file).pMethods = ptr::null() };
    if let Some(code) = watched.code(Call::Open) {
        return code;
    }
    let ours: *mut File = file.cast();
    // SAFETY: SQLite gives `szOsFile` bytes: ours, and after them the real file.
    unsafe {
        let real: *mut ffi::sqlite3_file = ours.add(1).cast();
        (*real).pMethods = ptr::null();
        let code = real_open(vfs, name, real, flags, out);
        if code != ffi::SQLITE_OK {
            return code;
        }
        let id = watched.opened(&name_there);
        let main = flags & ffi::SQLITE_OPEN_MAIN_DB != 0;
        let base = ffi::sqlite3_file { pMethods: &raw const METHODS };
        ours.write(File { base, watched: Arc::into_raw(watched), id, main });
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    if let Some((watched, _)) = find(bytes(name))
        && let Some(code) = watched.code(Call::Delete)
    {
        return code;
    }
    let vfs = real_vfs();
    // SAFETY: SQLite's arguments. The real VFS calls our `unlink` and `fsync`.
    unsafe { (*vfs).xDelete.unwrap()(vfs, name, sync) }
}

unsafe extern "C" fn access(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    if let Some((watched, _)) = find(bytes(name))
        && let Some(code) = watched.code(Call::Access)
    {
        return code;
    }
    let vfs = real_vfs();
    // SAFETY: SQLite's arguments.
    unsafe { (*vfs).xAccess.unwrap()(vfs, name, flags, out) }
}

/// If a fault denies the lock that SQLite is waiting for, waiting is pointless, so the sleep is
/// skipped.
unsafe extern "C" fn sleep(_: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    if watched().iter().all(|watched| watched.state().plan.is_none()) {
        std::thread::sleep(std::time::Duration::from_micros(microseconds.unsigned_abs().into()));
    }
    microseconds
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    let (ours, _, real) = ours!(file);
    let watched = ours.watched;
    let code = real!(real, xClose);
    // SAFETY: gives back what `open` took, once.
    drop(unsafe { Arc::from_raw(watched) });
    // SAFETY: the file is closed: SQLite looks at nothing but this.
    unsafe { (*file).pMethods = ptr::null() };
    code
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, to: *mut c_void, size: c_int, at: i64) -> c_int {
    let (_, watched, real) = ours!(file);
    match watched.fault(Call::Read) {
        None => real!(real, xRead, to, size, at),
        Some(Fault::Short) => {
            let code = real!(real, xRead, to, size, at);
            if code != ffi::SQLITE_OK {
                return code;
            }
            let half = usize::try_from(size).unwrap() / 2;
            // SAFETY: SQLite gives room for `size` bytes. A short read fills the rest with zeros.
            unsafe { to.cast::<u8>().add(half).write_bytes(0, usize::try_from(size).unwrap() - half) };
            ffi::SQLITE_IOERR_SHORT_READ
        }
        Some(Fault::Code(code)) => code,
        Some(Fault::Half | Fault::Refuse) => ffi::SQLITE_IOERR_READ,
    }
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, from: *const c_void, size: c_int, at: i64) -> c_int {
    let (ours, watched, real) = ours!(file);
    let (size, code) = match watched.fault(Call::Write) {
        None => (size, None),
        Some(Fault::Half) => (size / 2, Some(ffi::SQLITE_FULL)),
        Some(Fault::Code(code)) => return code,
        Some(Fault::Short | Fault::Refuse) => return ffi::SQLITE_IOERR_WRITE,
    };
    let wrote = real!(real, xWrite, from, size, at);
    if wrote != ffi::SQLITE_OK {
        return wrote;
    }
    watched.record(|_| {
        // SAFETY: SQLite gives `size` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), usize::try_from(size).ok()?) };
        Some(Event::Write(ours.id, at.unsigned_abs(), bytes.to_vec()))
    });
    code.unwrap_or(ffi::SQLITE_OK)
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    let (ours, watched, real) = ours!(file);
    if let Some(code) = watched.code(Call::Truncate) {
        return code;
    }
    let code = real!(real, xTruncate, size);
    if code == ffi::SQLITE_OK {
        watched.record(|_| Some(Event::Truncate(ours.id, size.unsigned_abs())));
    }
    code
}

/// `fsync` logs this call and makes it fail.
unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    let (_, _, real) = ours!(file);
    real!(real, xSync, flags)
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, size: *mut i64) -> c_int {
    let (_, watched, real) = ours!(file);
    if let Some(code) = watched.code(Call::FileSize) {
        return code;
    }
    real!(real, xFileSize, size)
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    let (_, watched, real) = ours!(file);
    if let Some(code) = watched.code(Call::Lock) {
        return code;
    }
    real!(real, xLock, level)
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    let (_, _, real) = ours!(file);
    real!(real, xUnlock, level)
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    let (_, _, real) = ours!(file);
    real!(real, xCheckReservedLock, out)
}

unsafe extern "C" fn file_control(file: *mut ffi::sqlite3_file, op: c_int, argument: *mut c_void) -> c_int {
    let (ours, watched, real) = ours!(file);
    if op != ffi::SQLITE_FCNTL_SIZE_HINT {
        return real!(real, xFileControl, op, argument);
    }
    // With a memory map, this call extends the file.
    let (mut before, mut after) = (0, 0);
    let _ = real!(real, xFileSize, &raw mut before);
    let code = real!(real, xFileControl, op, argument);
    let _ = real!(real, xFileSize, &raw mut after);
    if before != after {
        watched.record(|_| Some(Event::Truncate(ours.id, after.unsigned_abs())));
    }
    code
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    let (_, _, real) = ours!(file);
    real!(real, xSectorSize)
}

unsafe extern "C" fn device_characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    let (_, _, real) = ours!(file);
    real!(real, xDeviceCharacteristics)
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    let (ours, watched, real) = ours!(file);
    if let Some(code) = watched.code(Call::ShmMap) {
        // SAFETY: a place for the answer.
        unsafe { *out = ptr::null_mut() };
        return code;
    }
    let code = real!(real, xShmMap, region, size, extend, out);
    // SAFETY: a place that was answered in.
    let start = unsafe { *out };
    if code == ffi::SQLITE_OK && region == 0 && ours.main && !start.is_null() {
        watched.state().index = Some(start as usize);
    }
    code
}

unsafe extern "C" fn shm_lock(file: *mut ffi::sqlite3_file, at: c_int, n: c_int, flags: c_int) -> c_int {
    let (_, watched, real) = ours!(file);
    // Giving a lock back never fails.
    if flags & ffi::SQLITE_SHM_LOCK != 0
        && let Some(code) = watched.code(Call::ShmLock)
    {
        return code;
    }
    real!(real, xShmLock, at, n, flags)
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    let (_, _, real) = ours!(file);
    real!(real, xShmBarrier);
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    let (_, watched, real) = ours!(file);
    watched.state().index = None;
    real!(real, xShmUnmap, delete)
}

unsafe extern "C" fn fetch(
    file: *mut ffi::sqlite3_file,
    at: i64,
    size: c_int,
    out: *mut *mut c_void,
) -> c_int {
    let (_, watched, real) = ours!(file);
    // SAFETY: a place for the answer.
    unsafe { *out = ptr::null_mut() };
    match watched.fault(Call::Fetch) {
        None => real!(real, xFetch, at, size, out),
        Some(Fault::Code(code)) => code,
        Some(_) => ffi::SQLITE_OK,
    }
}

unsafe extern "C" fn unfetch(file: *mut ffi::sqlite3_file, at: i64, page: *mut c_void) -> c_int {
    let (_, _, real) = ours!(file);
    real!(real, xUnfetch, at, page)
}

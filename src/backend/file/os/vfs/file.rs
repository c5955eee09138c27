//! Files that the library's VFS has opened: their method tables, the library's data about them, and
//! calls of the system's methods.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use rusqlite::ffi;

use crate::backend::file::os::zeros::zeros;

pub(super) type Methods = ffi::sqlite3_io_methods;
pub(super) type File = ffi::sqlite3_file;

/// Method table that the library sets for files of one kind (databases or WALs): a copy of the
/// method table of the VFS over which the library's VFS is layered, in which some methods are
/// replaced.
#[repr(C)]
pub(super) struct Table {
    /// Methods that SQLite calls. This is the first field, so that a file's pointer to its methods
    /// is also a pointer to the `Table`.
    ours: Methods,
    /// Method table from which `ours` was copied.
    pub(super) system: *const Methods,
    /// Offset, in bytes, of the library's data in the memory of a file (see `note`).
    at: usize,
    /// Next table of the list; NULL for the last one.
    next: *mut Table,
}

/// Calls a method of the system's VFS for a file that has the library's methods.
macro_rules! system {
    ($method:ident($file:expr $(, $argument:expr)*)) => {{
        // SAFETY: the file has the library's methods, and the arguments come from SQLite.
        unsafe {
            match (*table($file).system).$method {
                Some(method) => method($file $(, $argument)*),
                None => ffi::SQLITE_IOERR,
            }
        }
    }};
}
pub(super) use system;

/// Returns the library's method table of a file.
///
/// # Safety
/// The file has the library's methods.
pub(super) unsafe fn table<'t>(file: *mut File) -> &'t Table {
    // SAFETY: `exchange` has set the methods to the first field of a `Table`, which is never freed.
    unsafe { &*(*file).pMethods.cast::<Table>() }
}

/// Returns the data that the library stores about an open file, in the memory that SQLite has
/// allocated for the file. `T` is `Database` for a database file and `Wal` for a WAL.
///
/// # Safety
/// The file has the library's methods, and its data is a `T`.
pub(super) unsafe fn note<T>(file: *mut File) -> *mut T {
    // SAFETY: `name` reserved memory for the data at this offset. It is aligned if the file is, and
    // SQLite aligns to 8.
    unsafe { file.cast::<u8>().add(table(file).at).cast() }
}

/// Maximum number of method tables per list. The VFSs of SQLite have one for each kind of lock. For
/// a VFS that has one for each file, this limits the memory that the tables take.
const MAX_TABLES: usize = 8;

/// Replaces the methods (`sqlite3_io_methods`) of a file that the system's VFS has opened by those
/// of this library. Returns `true` on success.
///
/// The first call for a file with certain methods copies them into a new table, calls `change` to
/// replace some of them, and adds the table to the list `tables`. Later calls for files with the
/// same methods use this table. If the list already has `MAX_TABLES` others, the file keeps its
/// methods, and the result is `false`. `at` is the offset, in bytes, of the library's data in the
/// memory of a file.
///
/// # Safety
/// The file is open.
pub(super) unsafe fn exchange(
    file: *mut File,
    at: usize,
    tables: &AtomicPtr<Table>,
    change: fn(&mut Methods),
) -> bool {
    // SAFETY: an open file has methods, which live at least as long as it is open. A table is never
    // freed once it is in the list.
    unsafe {
        let system = (*file).pMethods;
        let mut first = tables.load(Ordering::Acquire);
        loop {
            let (mut known, mut count) = (first, 0);
            while let Some(table) = known.as_ref() {
                if ptr::eq(table.system, system) {
                    (*file).pMethods = known.cast();
                    return true;
                }
                (known, count) = (table.next, count + 1);
            }
            if count == MAX_TABLES {
                return false;
            }
            let mut ours = *system;
            change(&mut ours);
            let made = Box::into_raw(Box::new(Table { ours, system, at, next: first }));
            match tables.compare_exchange(first, made, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    (*file).pMethods = made.cast();
                    return true;
                }
                // Another thread has added a table.
                Err(now) => {
                    drop(Box::from_raw(made));
                    first = now;
                }
            }
        }
    }
}

/// Overwrites a file with zeros, from the offset `from` to its end. With `syncs`, syncs the file
/// afterwards. Returns SQLite's result code. The caller guarantees that the file has the library's
/// methods.
pub(super) fn wipe_from(file: *mut File, from: i64, syncs: bool) -> c_int {
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

/// Returns a function that writes bytes into `file` at an offset, with the method `xWrite` of the
/// system's VFS, and that returns SQLite's result code. The caller guarantees that the file has the
/// library's methods.
pub(super) fn put(file: *mut File) -> impl FnMut(&[u8], i64) -> c_int {
    move |bytes, at| match c_int::try_from(bytes.len()) {
        Ok(length) => system!(xWrite(file, bytes.as_ptr().cast::<c_void>(), length, at)),
        Err(_) => ffi::SQLITE_IOERR_WRITE,
    }
}

/// Reads `length` bytes from the offset `at` of a file into `to`, with the method `xRead` of the
/// system's VFS. Returns its result code, but `SQLITE_IOERR_READ` in place of
/// `SQLITE_IOERR_CORRUPTFS`.
///
/// SQLite's unix VFS returns `SQLITE_IOERR_CORRUPTFS` if the disk cannot be read (EIO), and SQLite
/// then reports a damaged database. But a failed read says nothing about the content of the
/// database.
pub(super) fn read_by_system(file: *mut File, to: *mut c_void, length: c_int, at: i64) -> c_int {
    match system!(xRead(file, to, length, at)) {
        ffi::SQLITE_IOERR_CORRUPTFS => ffi::SQLITE_IOERR_READ,
        code => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn ours(_: *mut File, _: c_int) -> c_int {
        7
    }

    fn change(methods: &mut Methods) {
        methods.xSync = Some(ours);
    }

    fn methods_of_a_vfs() -> Methods {
        // SAFETY: all fields are numbers or functions that may be missing.
        unsafe { std::mem::zeroed() }
    }

    #[test]
    fn files_of_all_kinds_get_library_methods() {
        let systems: Vec<Methods> = (0..=MAX_TABLES).map(|_| methods_of_a_vfs()).collect();
        let tables = AtomicPtr::default();
        for _ in 0..2 {
            for (number, system) in systems.iter().enumerate() {
                let mut file = File { pMethods: system };
                // SAFETY: the file has methods.
                let is_done = unsafe { exchange(&raw mut file, 16, &tables, change) };
                assert_eq!(is_done, number < MAX_TABLES, "{number}");
                if is_done {
                    // SAFETY: `exchange` has set the methods.
                    assert!(ptr::eq(unsafe { table(&raw mut file) }.system, system), "{number}");
                } else {
                    assert!(ptr::eq(file.pMethods, system));
                }
            }
        }
    }
}

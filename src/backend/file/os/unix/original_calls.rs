//! Original system calls of SQLite's unix VFS, which the library has replaced (`calls.rs`).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

/// Beginning of `struct stat`, with which SQLite calls `stat` and `fstat`, as SQLite was compiled.
/// The fields after it differ between systems.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[repr(C)]
pub(super) struct Stat {
    pub(super) st_dev: Device,
}
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) type Stat = libc::stat;
/// Type of `st_dev` in `struct stat` as SQLite was compiled.
#[cfg(all(target_os = "linux", target_env = "gnu", any(target_arch = "mips", target_arch = "mips32r6")))]
pub(super) type Device = std::ffi::c_ulong;
#[cfg(all(target_os = "android", target_pointer_width = "32"))]
pub(super) type Device = std::ffi::c_ulonglong;
#[cfg(not(any(
    all(target_os = "linux", target_env = "gnu", any(target_arch = "mips", target_arch = "mips32r6")),
    all(target_os = "android", target_pointer_width = "32")
)))]
pub(super) type Device = libc::dev_t;
/// `off_t` as SQLite was compiled: for large files.
pub(super) type Offset = i64;

pub(super) type Open = unsafe extern "C" fn(*const c_char, c_int, c_int) -> c_int;
pub(super) type Close = unsafe extern "C" fn(c_int) -> c_int;
pub(super) type StatPath = unsafe extern "C" fn(*const c_char, *mut Stat) -> c_int;
pub(super) type StatFile = unsafe extern "C" fn(c_int, *mut Stat) -> c_int;
pub(super) type Write = unsafe extern "C" fn(c_int, *const c_void, usize) -> isize;
pub(super) type WriteAt = unsafe extern "C" fn(c_int, *const c_void, usize, Offset) -> isize;
pub(super) type Truncate = unsafe extern "C" fn(c_int, Offset) -> c_int;
pub(super) type Unlink = unsafe extern "C" fn(*const c_char) -> c_int;
pub(super) type Fcntl = unsafe extern "C" fn(c_int, c_int, ...) -> c_int;
pub(super) type Mmap = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, Offset) -> *mut c_void;
pub(super) type Munmap = unsafe extern "C" fn(*mut c_void, usize) -> c_int;
pub(super) type Mremap = unsafe extern "C" fn(*mut c_void, usize, usize, c_int, ...) -> *mut c_void;

/// System calls that SQLite's unix VFS used before the library has replaced them.
pub(super) struct Before {
    pub(super) open: Open,
    pub(super) close: Close,
    pub(super) stat: StatPath,
    pub(super) fstat: StatFile,
    pub(super) fcntl: Fcntl,
    pub(super) write: Write,
    /// `pwrite` or `pwrite64`, with its name in SQLite's table of system calls. If it is `None`,
    /// SQLite seeks to the offset and calls `write`.
    pub(super) write_at: Option<(WriteAt, &'static CStr)>,
    pub(super) truncate: Truncate,
    pub(super) unlink: Unlink,
    pub(super) mmap: Mmap,
    pub(super) munmap: Munmap,
    /// `None` if the system has no `mremap`.
    pub(super) mremap: Option<Mremap>,
}

/// Original system calls; empty until `install` has replaced them.
static BEFORE: OnceLock<Before> = OnceLock::new();

/// Stores the original system calls. Returns `false`, and changes nothing, if they were stored
/// before.
pub(super) fn keep(before: Before) -> bool {
    BEFORE.set(before).is_ok()
}

/// Returns the original system calls; `None` if the library has not replaced them yet.
pub(super) fn before() -> Option<&'static Before> {
    BEFORE.get()
}

/// Returns `true` if SQLite reads and writes at an offset with one call (`pread`, `pwrite`), so
/// that the file offset of a descriptor does not change.
pub(super) fn keeps_offsets() -> bool {
    BEFORE.get().is_some_and(|before| before.write_at.is_some())
}

/// Returns the error number of the last failed system call in this thread.
pub(super) fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

pub(super) fn set_errno(value: c_int) {
    // SAFETY: the pointer is the address of this thread's errno.
    unsafe {
        #[cfg(any(target_os = "linux", target_os = "emscripten"))]
        let errno = libc::__errno_location();
        #[cfg(any(target_os = "android", target_os = "netbsd", target_os = "openbsd"))]
        let errno = libc::__errno();
        #[cfg(any(target_vendor = "apple", target_os = "freebsd"))]
        let errno = libc::__error();
        *errno = value;
    }
}

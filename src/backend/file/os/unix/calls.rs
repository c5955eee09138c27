//! Replaced system calls of SQLite's unix VFS, and their installation.
//!
//! Each replacement ends in the original call: that of the C library, or that of a program that
//! replaced it earlier. So the widths of `off_t` and `struct stat` are those with which SQLite was
//! compiled. Of `struct stat` only the device is accessed. On Linux it is the first field. On
//! 32-bit systems the fields after it depend on how SQLite was compiled (`_TIME_BITS`, which some
//! compilers set by default).
//!
//! SQLite calls `fcntl` and `mremap` as variadic functions, which Rust cannot define. On Linux,
//! functions with fixed parameters can replace them: its C calling conventions (x86-64, i386, arm,
//! aarch64, riscv, s390x, powerpc, mips, loongarch) pass an integer or pointer after the `...` like
//! a fixed parameter in the same position. Apple's convention for arm64 does not, so neither
//! function is replaced there.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;

use rusqlite::ffi;

use super::descriptors::{device_of, device_of_this_process, owns_its_locks};
use super::lock::Flock;
use super::original_calls::{
    self, Before, Close, Fcntl, Mmap, Mremap, Munmap, Offset, Open, Stat, StatFile, StatPath, Truncate,
    Unlink, Write, WriteAt, before, errno, set_errno,
};
use super::shared_memory::make_longer;
use super::{limits, lock, maps, parked_files};
use crate::backend::file::os::refusal::{self, Refusal};

/// Replaces the system calls of SQLite's unix VFS. Returns `false` on failure. Call this once,
/// before SQLite opens a file.
pub(in crate::backend::file::os) fn install() -> bool {
    if before().is_some() {
        return true;
    }
    // SAFETY: the name is a C string. SQLite returns a VFS that lives as long as the process, or
    // NULL. SQLite is set up, and no other thread sets it up. For a name, xGetSystemCall returns a
    // pointer to a function of the type with which os_unix.c calls it, and this type is used here.
    // The replacements have these types, except `fcntl` and `mremap`: see the beginning of this
    // file.
    unsafe {
        let vfs = ffi::sqlite3_vfs_find(c"unix".as_ptr());
        let Some(methods) = vfs.as_ref() else { return false };
        let (Some(get), Some(set)) = (methods.xGetSystemCall, methods.xSetSystemCall) else { return false };
        let get = |name: &CStr| get(vfs, name.as_ptr());
        let before = (|| {
            Some(Before {
                open: transmute::<unsafe extern "C" fn(), Open>(get(c"open")?),
                close: transmute::<unsafe extern "C" fn(), Close>(get(c"close")?),
                stat: transmute::<unsafe extern "C" fn(), StatPath>(get(c"stat")?),
                fstat: transmute::<unsafe extern "C" fn(), StatFile>(get(c"fstat")?),
                fcntl: transmute::<unsafe extern "C" fn(), Fcntl>(get(c"fcntl")?),
                write: transmute::<unsafe extern "C" fn(), Write>(get(c"write")?),
                write_at: [c"pwrite", c"pwrite64"].into_iter().find_map(|name| {
                    get(name).map(|call| (transmute::<unsafe extern "C" fn(), WriteAt>(call), name))
                }),
                truncate: transmute::<unsafe extern "C" fn(), Truncate>(get(c"ftruncate")?),
                unlink: transmute::<unsafe extern "C" fn(), Unlink>(get(c"unlink")?),
                mmap: transmute::<unsafe extern "C" fn(), Mmap>(get(c"mmap")?),
                munmap: transmute::<unsafe extern "C" fn(), Munmap>(get(c"munmap")?),
                mremap: get(c"mremap").map(|call| transmute::<unsafe extern "C" fn(), Mremap>(call)),
            })
        })();
        let Some(before) = before else { return false };
        let has_mremap = before.mremap.is_some();
        let write_at = before.write_at;
        if !original_calls::keep(before) {
            return true;
        }
        let put =
            |name: &CStr, call: ffi::sqlite3_syscall_ptr| set(vfs, name.as_ptr(), call) == ffi::SQLITE_OK;
        put(c"open", Some(transmute::<Open, unsafe extern "C" fn()>(open)))
            && put(c"close", Some(transmute::<Close, unsafe extern "C" fn()>(close)))
            && put(c"stat", Some(transmute::<StatPath, unsafe extern "C" fn()>(stat)))
            && put(c"fstat", Some(transmute::<StatFile, unsafe extern "C" fn()>(fstat)))
            && put(c"write", Some(transmute::<Write, unsafe extern "C" fn()>(write)))
            && write_at
                .is_none_or(|(_, name)| put(name, Some(transmute::<WriteAt, unsafe extern "C" fn()>(pwrite))))
            && put(c"ftruncate", Some(transmute::<Truncate, unsafe extern "C" fn()>(ftruncate)))
            && put(c"unlink", Some(transmute::<Unlink, unsafe extern "C" fn()>(unlink)))
            && put(c"mmap", Some(transmute::<Mmap, unsafe extern "C" fn()>(mmap)))
            && put(c"munmap", Some(transmute::<Munmap, unsafe extern "C" fn()>(munmap)))
            && (!lock::CAN_REPLACE_FCNTL
                || put(
                    c"fcntl",
                    Some(transmute::<
                        unsafe extern "C" fn(c_int, c_int, *mut c_void) -> c_int,
                        unsafe extern "C" fn(),
                    >(fcntl)),
                ))
            && (!has_mremap
                || put(
                    c"mremap",
                    Some(transmute::<
                        unsafe extern "C" fn(*mut c_void, usize, usize, c_int) -> *mut c_void,
                        unsafe extern "C" fn(),
                    >(mremap)),
                ))
    }
}

/// Returns -1 and sets `errno` to ENOSYS, for a call before `install`. This does not happen,
/// because SQLite makes the replaced calls only after `install`.
#[cold]
fn not_installed() -> c_int {
    set_errno(libc::ENOSYS);
    -1
}

// SQLite calls the functions below with the arguments that it would pass to the C library: valid C
// strings, and pointers to structs that may be written. No panic may leave these functions, and
// nothing in them panics.

unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    // SAFETY: SQLite guarantees the arguments.
    unsafe { parked_files::open(path, flags, mode) }
}

unsafe extern "C" fn close(fd: c_int) -> c_int {
    parked_files::close(fd)
}

unsafe extern "C" fn stat(path: *const c_char, to: *mut Stat) -> c_int {
    let Some(before) = before() else { return not_installed() };
    // SAFETY: SQLite guarantees the arguments. The struct is valid after success.
    unsafe {
        let code = (before.stat)(path, to);
        if code == 0 {
            (*to).st_dev = device_of_this_process((*to).st_dev);
        }
        code
    }
}

unsafe extern "C" fn fstat(fd: c_int, to: *mut Stat) -> c_int {
    let Some(before) = before() else { return not_installed() };
    make_longer(fd);
    // SAFETY: as in `stat`.
    unsafe {
        let code = (before.fstat)(fd, to);
        if code == 0 {
            (*to).st_dev = device_of(fd, (*to).st_dev);
        }
        code
    }
}

unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    let Some(before) = before() else { return not_installed() };
    match lock::own_command(command) {
        // SAFETY: with this command, SQLite's argument is a lock that may be written.
        Some(own) if owns_its_locks(fd) => unsafe {
            lock::fcntl(before, fd, own, &mut *argument.cast::<Flock>())
        },
        None if owns_its_locks(fd) && !lock::is_no_lock(command) => {
            set_errno(libc::EINVAL);
            -1
        }
        // SAFETY: the arguments are passed on unchanged.
        _ => unsafe { (before.fcntl)(fd, command, argument) },
    }
}

unsafe extern "C" fn write(fd: c_int, from: *const c_void, length: usize) -> isize {
    let Some(before) = before() else { return not_installed() as isize };
    // SAFETY: the arguments are passed on unchanged.
    limits::written_somewhere(|| unsafe { (before.write)(fd, from, length) })
}

unsafe extern "C" fn pwrite(fd: c_int, from: *const c_void, length: usize, at: Offset) -> isize {
    let Some((write_at, _)) = before().and_then(|before| before.write_at) else {
        return not_installed() as isize;
    };
    let end = (at as u64).saturating_add(length as u64);
    // SAFETY: the arguments are passed on unchanged.
    limits::written(end, || unsafe { write_at(fd, from, length, at) })
}

unsafe extern "C" fn ftruncate(fd: c_int, length: Offset) -> c_int {
    let Some(before) = before() else { return not_installed() };
    // SAFETY: the arguments are passed on unchanged.
    limits::written(length as u64, || unsafe { (before.truncate)(fd, length) })
}

unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    let Some(before) = before() else { return not_installed() };
    // SAFETY: the arguments are passed on unchanged.
    let code = unsafe { (before.unlink)(path) };
    if code != 0 && matches!(errno(), libc::EACCES | libc::EPERM | libc::EROFS) {
        let errno = errno();
        // SAFETY: SQLite passes a C string.
        if unsafe { CStr::from_ptr(path) }.to_bytes().ends_with(b"-journal") && is_emptied(before, path) {
            return 0;
        }
        refusal::note(Refusal::Removal);
        set_errno(errno);
    }
    code
}

/// Truncates to zero a journal that this process may not remove (because of a sticky directory or a
/// sandbox), and syncs it. SQLite ignores an empty journal. Returns `false` on failure.
#[cold]
fn is_emptied(before: &Before, path: *const c_char) -> bool {
    let flags = libc::O_WRONLY | libc::O_TRUNC | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: SQLite passes a C string, and the descriptor is used only here. Journals carry no
    // locks.
    unsafe {
        let fd = (before.open)(path, flags, 0);
        if fd < 0 {
            return false;
        }
        let is_synced = libc::fsync(fd) == 0;
        (before.close)(fd);
        is_synced
    }
}

unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: Offset,
) -> *mut c_void {
    let Some(before) = before() else {
        not_installed();
        return libc::MAP_FAILED;
    };
    // SAFETY: the arguments are passed on unchanged.
    let mapped =
        maps::mapped(length, || unsafe { (before.mmap)(address, length, protection, flags, fd, offset) });
    if mapped == libc::MAP_FAILED && !matches!(errno(), libc::ENOMEM | libc::EAGAIN | libc::EBADF) {
        refusal::note(Refusal::SharedMap);
    }
    mapped
}

unsafe extern "C" fn munmap(address: *mut c_void, length: usize) -> c_int {
    let Some(before) = before() else { return not_installed() };
    // SAFETY: the arguments are passed on unchanged.
    maps::unmapped(address, length, || unsafe { (before.munmap)(address, length) })
}

unsafe extern "C" fn mremap(address: *mut c_void, old: usize, new: usize, flags: c_int) -> *mut c_void {
    let Some(mremap) = before().and_then(|before| before.mremap) else {
        not_installed();
        return libc::MAP_FAILED;
    };
    // SAFETY: the arguments are passed on unchanged. SQLite passes no fifth argument.
    maps::remapped(address, old, new, || unsafe { mremap(address, old, new, flags) })
}

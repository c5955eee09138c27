//! Locks of an open file description, in place of locks of the process.
//!
//! On Linux see fcntl(2), "Open file description locks". A lock of an open file description and a
//! POSIX lock conflict like POSIX locks of two processes. So the SQLite of another program detects
//! the locks of this library, and this library detects those of the other program.

use std::ffi::c_int;

use super::original_calls::{Before, errno, set_errno};

/// `struct flock` as SQLite passes it to `fcntl`.
///
/// On 32-bit Linux, SQLite is compiled for large files and uses the kernel's `struct flock64`
/// (asm-generic/fcntl.h). Android's C library has the struct only under the name `flock64`, and the
/// crate libc does not declare it for all architectures.
#[cfg(not(all(any(target_os = "linux", target_os = "android"), target_pointer_width = "32")))]
pub(super) type Flock = libc::flock;
#[cfg(all(any(target_os = "linux", target_os = "android"), target_pointer_width = "32"))]
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Flock {
    l_type: std::ffi::c_short,
    l_whence: std::ffi::c_short,
    l_start: i64,
    l_len: i64,
    l_pid: libc::pid_t,
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use std::ffi::c_int;

    /// Whether SQLite uses the `fcntl` commands for large files. On 32-bit architectures it does,
    /// with every C library (fcntl.h in the kernel's directory asm of the architecture, or in
    /// asm-generic). A 64-bit architecture with 32-bit pointers (x32) has only the plain commands.
    const LARGE: bool = cfg!(all(target_pointer_width = "32", not(target_arch = "x86_64")));
    /// Number of the first of the three `fcntl` commands for locks of large files (`F_GETLK64`),
    /// which are numbered consecutively.
    const FIRST_LARGE: c_int =
        if cfg!(any(target_arch = "mips", target_arch = "mips32r6")) { 33 } else { 12 };
    /// Command with which SQLite queries a lock of the process.
    const GETLK: c_int = if LARGE { FIRST_LARGE } else { libc::F_GETLK };
    /// Command with which SQLite takes or releases a lock of the process, without waiting.
    const SETLK: c_int = if LARGE { FIRST_LARGE + 1 } else { libc::F_SETLK };
    /// Command with which SQLite takes a lock of the process, and waits for it.
    const SETLKW: c_int = if LARGE { FIRST_LARGE + 2 } else { libc::F_SETLKW };
    /// Checks that these commands are those of musl, which has only the commands for large files,
    /// under the names of the plain commands.
    const _: () =
        assert!(!LARGE || !cfg!(target_env = "musl") || GETLK == libc::F_GETLK && SETLK == libc::F_SETLK);

    /// Whether a function with three fixed parameters may replace the variadic `fcntl` (see
    /// `calls.rs`).
    pub(crate) const CAN_REPLACE_FCNTL: bool = true;

    /// Returns the `fcntl` command that does for locks of the open file description what `command`
    /// does for locks of the process. Returns `None` if `command` is not about locks.
    #[inline]
    pub(crate) fn own_command(command: c_int) -> Option<c_int> {
        match command {
            GETLK => Some(super::OWN_GETLK),
            SETLK => Some(super::OWN_SETLK),
            SETLKW => Some(libc::F_OFD_SETLKW),
            _ => None,
        }
    }

    /// Returns `true` for the `fcntl` commands of SQLite that are not about locks. All other
    /// commands fail on a descriptor whose locks belong to its open file description: an unknown
    /// command could take a lock of the process, which does not exclude other connections of the
    /// process.
    #[inline]
    pub(crate) fn is_no_lock(command: c_int) -> bool {
        matches!(command, libc::F_GETFD | libc::F_SETFD | libc::F_GETFL | libc::F_SETFL)
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod own {
    use std::ffi::c_int;

    /// Command that queries a lock of an open file description.
    pub(super) const OWN_GETLK: c_int = libc::F_OFD_GETLK;
    /// Command that takes or releases a lock of the open file description, without waiting.
    pub(super) const OWN_SETLK: c_int = libc::F_OFD_SETLK;
    /// Whether this system has locks of open file descriptions that can be used here. They also
    /// require that `st_dev` has enough bits for the identity that each such file gets.
    pub(super) const EXIST: bool = size_of::<super::super::original_calls::Device>() == 8;
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    use std::ffi::c_int;

    pub(crate) const CAN_REPLACE_FCNTL: bool = false;

    pub(crate) fn own_command(_: c_int) -> Option<c_int> {
        None
    }

    pub(crate) fn is_no_lock(_: c_int) -> bool {
        true
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod own {
    use std::ffi::c_int;

    pub(super) const OWN_GETLK: c_int = -1;
    pub(super) const OWN_SETLK: c_int = -1;
    pub(super) const EXIST: bool = false;
}

use own::{EXIST, OWN_GETLK, OWN_SETLK};
pub(super) use system::{CAN_REPLACE_FCNTL, is_no_lock, own_command};

/// Byte range (offset and length) of SQLite's locks in a database file (os.h, "PENDING_BYTE"): one
/// byte each for PENDING and RESERVED, and 510 for SHARED.
pub(super) const DATABASE: (i64, i64) = (1 << 30, 512);
/// Byte range (offset and length) in a database file on which every reader has a shared lock.
pub(super) const SHARED: (i64, i64) = (DATABASE.0 + 2, 510);
/// Byte range (offset and length) in a shared memory file on which every connection that uses the
/// file has a lock (os_unix.c, "UNIX_SHM_DMS").
pub(super) const SHARED_MEMORY: (i64, i64) = (128, 1);

/// Returns a lock request of the type `kind` (`F_RDLCK`, `F_WRLCK` or `F_UNLCK`) for `length` bytes
/// from `start`. `length` 0 means all bytes from `start`.
pub(super) fn of(kind: c_int, start: i64, length: i64) -> Flock {
    // SAFETY: a struct of integers.
    let mut lock: Flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as _;
    lock.l_whence = libc::SEEK_SET as _;
    lock.l_start = start as _;
    lock.l_len = length as _;
    lock
}

/// Runs `command`, an `F_OFD_*` command of `fcntl`, with a copy of `lock` in which `l_pid` is 0:
/// the kernel requires this, and SQLite does not set it. If the command queries a lock, stores the
/// result in `lock`. Returns the result of the original `fcntl`, which `before` has.
pub(super) fn fcntl(before: &Before, fd: c_int, command: c_int, lock: &mut Flock) -> c_int {
    let mut own = *lock;
    own.l_pid = 0;
    // SAFETY: the command reads, and perhaps writes, the lock that it is given.
    let code = unsafe { (before.fcntl)(fd, command, &raw mut own) };
    if code == 0 && command == OWN_GETLK {
        *lock = own;
    }
    code
}

#[cfg(test)]
thread_local!(static REFUSES: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });

/// With `yes`, makes this thread treat the descriptors that it opens from now on as if the system
/// had no locks of open file descriptions. With `false`, ends this.
#[cfg(test)]
pub(super) fn refuse_in_this_thread(yes: bool) {
    REFUSES.set(yes);
}

/// Returns `true` if the kernel and the file system of this descriptor support locks of the open
/// file description.
pub(super) fn has_own(before: &Before, fd: c_int) -> bool {
    #[cfg(test)]
    if REFUSES.get() {
        return false;
    }
    let keep = errno();
    let has = EXIST && fcntl(before, fd, OWN_GETLK, &mut of(libc::F_WRLCK as c_int, 0, 1)) == 0;
    set_errno(keep);
    has
}

/// Takes or releases a lock of the open file description of `fd` on `length` bytes from `start`, as
/// `kind` requests (`F_RDLCK`, `F_WRLCK` or `F_UNLCK`). `length` 0 means all bytes from `start`.
/// Returns `true` on success. Never waits.
pub(super) fn set(before: &Before, fd: c_int, kind: c_int, start: i64, length: i64) -> bool {
    fcntl(before, fd, OWN_SETLK, &mut of(kind, start, length)) == 0
}

/// Returns `true` if another open file description or process has a lock on any of the `length`
/// bytes from `start`, or if that cannot be determined. `length` 0 means all bytes from `start`.
pub(super) fn is_locked(before: &Before, fd: c_int, start: i64, length: i64) -> bool {
    let mut lock = of(libc::F_WRLCK as c_int, start, length);
    fcntl(before, fd, OWN_GETLK, &mut lock) != 0 || c_int::from(lock.l_type) != libc::F_UNLCK as c_int
}

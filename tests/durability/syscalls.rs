//! System calls that bypass the VFS of `common/shim`. The definitions of this program take precedence
//! over those of the C library, for SQLite and for Rust's `std::fs`. Nothing is ever synced.
#![allow(clippy::disallowed_methods, reason = "not on Android")]

use std::ffi::{c_char, c_int, c_long, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use crate::shim::{Call, Event, bytes, find, watched};

fn failed(errno: c_int) -> c_int {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = errno };
    -1
}

fn synced(fd: c_int) -> c_int {
    if watched().is_empty() {
        return 0;
    }
    let mut path = [0u8; 4096];
    let link = format!("/proc/self/fd/{fd}\0");
    // SAFETY: a C string, and room for the answer.
    let length = unsafe { libc::readlink(link.as_ptr().cast(), path.as_mut_ptr().cast(), path.len()) };
    let Some(path) = usize::try_from(length).ok().and_then(|length| path.get(..length)) else { return 0 };
    let directory =
        watched().iter().find(|watched| watched.dir.as_os_str().as_bytes() == path).map(Arc::clone);
    let (watched, name) = match directory {
        Some(watched) => (watched, None),
        None => match find(path) {
            Some((watched, name)) => (watched, Some(name)),
            None => return 0,
        },
    };
    if watched.fault(Call::Sync).is_some() {
        watched.record(|state| name.and_then(|name| state.names.get(&name)).map(|id| Event::Forget(*id)));
        return failed(libc::EIO);
    }
    watched.record(|state| match name {
        None => Some(Event::SyncDirectory),
        Some(name) => state.names.get(&name).map(|id| Event::Sync(*id)),
    });
    0
}

#[unsafe(no_mangle)]
extern "C" fn fsync(fd: c_int) -> c_int {
    synced(fd)
}

#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: c_int) -> c_int {
    synced(fd)
}

#[unsafe(no_mangle)]
extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller's C string.
    let code = unsafe { libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, path, 0) };
    if code == 0
        && let Some((watched, name)) = find(bytes(path))
    {
        watched.record(|state| state.names.remove(&name).map(|_| Event::Unlink(name)));
    }
    c_int::try_from(code).unwrap_or(-1)
}

fn linked(from: *const c_char, to: *const c_char, flags: c_int) -> c_int {
    let found = find(bytes(to));
    if let Some((watched, _)) = &found
        && watched.fault(Call::Link).is_some()
    {
        return failed(libc::EIO);
    }
    // SAFETY: the caller's C strings.
    let code = unsafe { libc::syscall(libc::SYS_linkat, libc::AT_FDCWD, from, libc::AT_FDCWD, to, flags) };
    if code == 0
        && let (Some((watched, name)), Some((_, old))) = (found, find(bytes(from)))
    {
        watched.record(|state| {
            let id = *state.names.get(&old)?;
            state.names.insert(name.clone(), id);
            Some(Event::Link(id, name))
        });
    }
    c_int::try_from(code).unwrap_or(-1)
}

#[unsafe(no_mangle)]
extern "C" fn linkat(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    assert!(from_dir == libc::AT_FDCWD && to_dir == libc::AT_FDCWD);
    linked(from, to, flags)
}

#[unsafe(no_mangle)]
extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    linked(from, to, 0)
}

/// The kernel's answer to a call.
fn kernel(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [a, b, c, d, e, f] = arguments;
    let answer: c_long;
    // SAFETY: what the caller asks of the kernel, as the C library's `syscall` does.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "syscall", inlateout("rax") number => answer, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _,
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "svc 0", in("x8") number, inlateout("x0") a => answer, in("x1") b, in("x2") c, in("x3") d, in("x4") e,
            in("x5") f,
        );
    }
    if (-4095..0).contains(&answer) { failed(c_int::try_from(-answer).unwrap_or(0)).into() } else { answer }
}

/// Passes all calls to the C library except one, for which it has no function before glibc 2.28.
/// (Takes as many arguments as any call has. On these processors, unused arguments are just
/// register contents.)
#[unsafe(no_mangle)]
extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    // The upper half of a register that holds an `int` is unspecified.
    let is_here = |argument: c_long| argument as c_int == libc::AT_FDCWD;
    if number == libc::SYS_renameat2 && is_here(a) && is_here(c) && e as c_uint == libc::RENAME_NOREPLACE {
        return renamed(b as *const c_char, d as *const c_char);
    }
    kernel(number, [a, b, c, d, e, f])
}

/// The last step of a backup. For a power cut, the new name appears first, and then the old one is
/// removed.
fn renamed(from: *const c_char, to: *const c_char) -> c_long {
    let found = find(bytes(to));
    if let Some((watched, _)) = &found
        && watched.fault(Call::Link).is_some()
    {
        return failed(libc::EIO).into();
    }
    let here = libc::AT_FDCWD.into();
    let flags = libc::RENAME_NOREPLACE.into();
    let code = kernel(libc::SYS_renameat2, [here, from as c_long, here, to as c_long, flags, 0]);
    if code == 0
        && let (Some((watched, name)), Some((_, old))) = (found, find(bytes(from)))
    {
        watched.record(|state| {
            let id = *state.names.get(&old)?;
            state.names.insert(name.clone(), id);
            Some(Event::Link(id, name))
        });
        watched.record(|state| state.names.remove(&old).map(|_| Event::Unlink(old)));
    }
    code
}

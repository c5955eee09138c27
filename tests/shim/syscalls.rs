//! System calls that do not go through the VFS. The program's own definitions come before those of the C library,
//! for SQLite and for Rust's `std::fs`.

use std::ffi::{c_char, c_int, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use super::{Call, Event, bytes, find, watched};

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

/// With `RENAME_NOREPLACE`, the last step of a backup: to a power cut a new name, and then without the old one.
#[unsafe(no_mangle)]
extern "C" fn renameat2(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    assert!(from_dir == libc::AT_FDCWD && to_dir == libc::AT_FDCWD && flags == libc::RENAME_NOREPLACE);
    let found = find(bytes(to));
    if let Some((watched, _)) = &found
        && watched.fault(Call::Link).is_some()
    {
        return failed(libc::EIO);
    }
    // SAFETY: the caller's C strings.
    let code = unsafe { libc::syscall(libc::SYS_renameat2, from_dir, from, to_dir, to, flags) };
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
    c_int::try_from(code).unwrap_or(-1)
}

//! Descriptors that a forked child inherits: this module makes them unusable in the child.

use std::ffi::c_int;
#[cfg(feature = "remote")]
use std::io;
#[cfg(feature = "remote")]
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicI32, Ordering};

#[cfg(feature = "remote")]
use super::descriptors::{SOCKET, UNKNOWN, slot_to_fill};
use super::descriptors::{is_still, slot, slots};
use super::parked_files::PARKED;
#[cfg(feature = "remote")]
use super::status::FileIdentity;
#[cfg(any(feature = "remote", not(any(target_os = "linux", target_os = "android"))))]
use super::status::Status;

/// Descriptor with which a forked child replaces inherited descriptors (`dup2`); -1 until it is
/// opened. No file can be read, written or locked through it.
static DEAD: AtomicI32 = AtomicI32::new(-1);

/// Opens the file for [`DEAD`]. Returns its descriptor, or -1 on failure.
fn open_dead() -> c_int {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let (path, flags) = (c"/", libc::O_PATH | libc::O_CLOEXEC);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let (path, flags) = (c"/dev/null", libc::O_WRONLY | libc::O_CLOEXEC);
    // SAFETY: the name is a C string.
    unsafe { libc::open(path.as_ptr(), flags) }
}

/// Returns `true` if `fd` is still a descriptor that `open_dead` has opened. The program may have
/// closed it, and its number may belong to another file by now.
fn is_dead(fd: c_int) -> bool {
    // SAFETY: this reads the flags of any file that has the number.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return flags >= 0 && flags & libc::O_PATH != 0;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    return flags >= 0 && Status::of(fd).is_ok_and(|found| found.is_character_device());
}

/// Opens the file that replaces inherited descriptors in forked children. It is opened before a
/// fork, because a child may have reached its limit of descriptors.
pub(super) fn prepare_for_forks() {
    if !is_dead(DEAD.load(Ordering::Relaxed)) {
        DEAD.store(open_dead(), Ordering::Relaxed);
    }
}

/// Replaces the inherited descriptors of this forked child by [`DEAD`], and closes those that are
/// parked. The numbers of the replaced descriptors stay in use, so that an inherited handle does
/// not access another file that would get such a number.
///
/// Call this only in a forked child, while none of its threads is inside the gate `fork::LISTS`. It
/// calls only functions that are allowed in the child of a process with several threads.
pub(super) fn let_go_after_fork() {
    if let Ok(mut parked) = PARKED.try_lock() {
        for fd in parked.drain(..) {
            if let Some(slot) = slot(fd) {
                if is_still(fd, slot) {
                    // SAFETY: only the list uses this descriptor, see `close_parked`.
                    unsafe { libc::close(fd) };
                }
                slot.forget();
            }
        }
    }
    let kept = DEAD.load(Ordering::Relaxed);
    let dead = if is_dead(kept) { kept } else { open_dead() };
    DEAD.store(dead, Ordering::Relaxed);
    for (fd, slot) in slots() {
        if is_still(fd, slot) {
            make_dead(fd, dead);
        }
        slot.forget();
    }
}

/// Replaces the file of the descriptor `fd` by that of `dead`, or closes `fd` if that fails.
fn make_dead(fd: c_int, dead: c_int) {
    // SAFETY: `fd` is this process's copy of a descriptor in the table, which it no longer uses.
    unsafe {
        #[cfg(target_os = "linux")]
        let done = libc::dup3(dead, fd, libc::O_CLOEXEC);
        #[cfg(not(target_os = "linux"))]
        let done = {
            let done = libc::dup2(dead, fd);
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
            done
        };
        if done < 0 {
            libc::close(fd); // no descriptor was left for `DEAD`
        }
    }
}

/// Guard that makes a socket unusable in a forked child, like SQLite's files. Otherwise the child's
/// copy of the socket would keep the connection open after the parent was killed. Drop this after
/// the socket, so that no fork finds the socket open without its guard.
#[cfg(feature = "remote")]
pub(crate) struct Mortal {
    fd: c_int,
    identity: FileIdentity,
}

#[cfg(feature = "remote")]
impl Mortal {
    /// Adds a socket to the table of descriptors, so that a forked child makes its copy unusable. A
    /// socket whose number is too great for the table is not added.
    pub(crate) fn new(socket: &impl AsFd) -> io::Result<Mortal> {
        let fd = socket.as_fd().as_raw_fd();
        let identity = Status::of(fd)?.file;
        // This does not enter the gate `LISTS`. Otherwise a call to a server would wait there for a
        // fork, while the fork might wait for a lock of the program that the calling thread holds.
        // A child still finds either a complete entry or none.
        if let Some(slot) = slot_to_fill(fd) {
            slot.forget();
            slot.device.store(identity.0, Ordering::Release);
            slot.inode.store(identity.1, Ordering::Release);
            slot.flags.store(0, Ordering::Release);
            slot.mark.store(0, Ordering::Release);
            slot.kind.store(SOCKET, Ordering::Release);
        }
        Ok(Mortal { fd, identity })
    }
}

#[cfg(feature = "remote")]
impl Drop for Mortal {
    fn drop(&mut self) {
        // The number may belong to another file by now, even to one that is being opened at the
        // same time.
        if let Some(slot) = slot(self.fd).filter(|slot| slot.identity() == self.identity) {
            let _ = slot.kind.compare_exchange(SOCKET, UNKNOWN, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

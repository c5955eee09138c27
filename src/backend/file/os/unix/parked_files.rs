//! Opening and closing of files for SQLite. If closing a descriptor could drop locks of this
//! process, the descriptor is parked: it stays open, for the next open of its file.

use std::cell::Cell;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use super::access::may_access;
#[cfg(feature = "remote")]
use super::descriptors::SOCKET;
use super::descriptors::{
    CARRIES_LOCKS, OWN, POSIX, SHARED_MEMORY, Slot, UNKNOWN, is_still, mark, slot, slot_to_fill, slots,
};
use super::lock;
use super::original_calls::{self, Before, errno, set_errno};
use super::status::{FileIdentity, Status};
use crate::backend::file::os::refusal::{self, Refusal};
use crate::fork::with_list;

/// Maximum number of parked files: files that SQLite has closed, and whose descriptors stay open
/// for the next open. If it is exceeded, the oldest parked files on which no lock is held are
/// closed. If the process may have few descriptors, the maximum is lower: a sixteenth of them.
const MAX_PARKED: usize = 64;

/// Divisor of the process's limit of descriptors (`RLIMIT_NOFILE`): the result is the maximum
/// number of parked files, if it is less than [`MAX_PARKED`].
const PARKED_PART: u64 = 16;

/// Maximum number of parked files that one call of `close_what_is_gone` checks for deletion. It is
/// called when a file is opened or parked.
const LOOKS: usize = 8;

/// Parked descriptors: SQLite has closed them, but they are still open. New ones are appended.
/// `close_what_is_gone` moves those that it has checked to the end.
pub(super) static PARKED: Mutex<Vec<c_int>> = Mutex::new(Vec::new());

/// Opens a file for SQLite, with the arguments and the result of open(2). Reuses a parked
/// descriptor of the file if there is one.
///
/// # Safety
/// `path` is a C string.
pub(super) unsafe fn open(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    let Some(before) = original_calls::before() else {
        set_errno(libc::ENOSYS);
        return -1;
    };
    // SAFETY: the caller guarantees the path.
    let name = unsafe { CStr::from_ptr(path) };
    if let Some(why) = refused_for_writing(name, flags) {
        set_errno(why);
        return -1;
    }
    let carries_locks = may_carry_locks(name.to_bytes(), flags);
    // SAFETY: the caller guarantees the path.
    let fd = unsafe { open_noted(before, path, flags, mode, carries_locks) };
    if fd < 0 {
        note_refusal(name, flags, errno());
    }
    fd
}

thread_local! {
    /// The last open for writing that has failed in this thread, if it was the last open: the hash
    /// of the path, and the error number.
    static REFUSAL: Cell<Option<(u64, c_int)>> = const { Cell::new(None) };
}

/// Returns the error number of the previous open if this is the same file, now only for reading.
///
/// SQLite opens a file that it cannot open for writing once more for reading, whatever the reason
/// was. After a failure that passes, such as a lack of descriptors, the handle would stay read-only.
fn refused_for_writing(name: &CStr, flags: c_int) -> Option<c_int> {
    let refusal = REFUSAL.try_with(Cell::take).ok().flatten();
    let is_for_reading = flags & libc::O_ACCMODE == libc::O_RDONLY;
    refusal.filter(|(hash, _)| is_for_reading && *hash == hash_of(name)).map(|(_, why)| why)
}

/// Notes a failed open, unless the reason is that the file may not be written.
fn note_refusal(name: &CStr, flags: c_int, why: c_int) {
    let is_final = matches!(why, libc::EACCES | libc::EPERM | libc::EROFS | libc::EISDIR | libc::ETXTBSY);
    if flags & libc::O_ACCMODE == libc::O_RDWR && !is_final {
        let _ = REFUSAL.try_with(|refusal| refusal.set(Some((hash_of(name), why))));
    }
}

fn hash_of(name: &CStr) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// Opens a file for SQLite, with the arguments and the result of open(2), and adds it to the table
/// of descriptors. `carries_locks` is `true` for a file that SQLite may lock: only then, a parked
/// descriptor of the file is reused if there is one.
///
/// # Safety
/// `path` is a C string.
pub(super) unsafe fn open_noted(
    before: &Before,
    path: *const c_char,
    flags: c_int,
    mode: c_int,
    carries_locks: bool,
) -> c_int {
    // SAFETY: the caller guarantees the path.
    let name = unsafe { CStr::from_ptr(path) };
    with_list(&PARKED, |parked| {
        if carries_locks && !parked.is_empty() {
            close_what_is_gone(before, parked);
            if flags & (libc::O_TRUNC | libc::O_EXCL) == 0
                && let Some(fd) = take_parked(parked, name, flags & libc::O_ACCMODE)
            {
                return fd;
            }
        }
        // SAFETY: the caller guarantees the path.
        let mut fd = unsafe { open_by_system(before, path, flags, mode) };
        if fd < 0 && errno() == libc::EMFILE && close_all_that_can_be(before, parked) {
            // SAFETY: the caller guarantees the path.
            fd = unsafe { open_by_system(before, path, flags, mode) };
        }
        // If a descriptor with this number is parked, the program has closed it.
        parked.retain(|other| *other != fd);
        if fd >= 3 {
            let errno = errno();
            let carries = if carries_locks { CARRIES_LOCKS } else { 0 };
            let shared = if name.to_bytes().ends_with(b"-shm") { SHARED_MEMORY } else { 0 };
            note(before, fd, flags, carries | shared);
            set_errno(errno);
        }
        fd
    })
}

/// Opens a file with the original system call.
///
/// If that refuses `O_CREAT` for an existing file, opens the file without `O_CREAT`. Linux refuses
/// it for the file of another user in a directory that all users may write (`fs.protected_regular`
/// in proc_sys_fs(5)).
///
/// # Safety
/// `path` is a C string.
unsafe fn open_by_system(before: &Before, path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    // SAFETY: the caller guarantees the path.
    unsafe {
        let fd = (before.open)(path, flags, mode);
        if fd >= 0 || flags & libc::O_CREAT == 0 {
            return fd;
        }
        match errno() {
            libc::EACCES if flags & libc::O_EXCL == 0 => {
                let fd = (before.open)(path, flags & !libc::O_CREAT, mode);
                if fd < 0 {
                    set_errno(libc::EACCES);
                }
                return fd;
            }
            errno => {
                if let Some(refusal) = Refusal::for_space(&io::Error::from_raw_os_error(errno)) {
                    refusal::note(refusal);
                }
            }
        }
        fd
    }
}

/// Adds a descriptor that was just opened to the table of descriptors, if it is a regular file.
/// `flags` are those of open(2). `sort` has the flags [`CARRIES_LOCKS`] and [`SHARED_MEMORY`].
fn note(before: &Before, fd: c_int, flags: c_int, sort: u8) {
    let Some(found) = Status::of(fd).ok().filter(Status::is_regular) else { return };
    let Some(slot) = slot_to_fill(fd) else { return };
    let (device, inode) = found.file;
    slot.device.store(device, Ordering::Relaxed);
    slot.inode.store(inode, Ordering::Relaxed);
    // A mark requires that no read or write moves the offset of the descriptor.
    let mark = if original_calls::keeps_offsets() { mark(fd) } else { 0 };
    slot.mark.store(mark, Ordering::Relaxed);
    let access = u8::try_from(flags & libc::O_ACCMODE).unwrap_or(0);
    slot.flags.store(access | sort, Ordering::Relaxed);
    let own = sort & CARRIES_LOCKS != 0 && lock::has_own(before, fd);
    slot.kind.store(if own { OWN } else { POSIX }, Ordering::Relaxed);
}

/// Returns `true` if SQLite may lock the file at `path`, which it opens with the flags `flags` of
/// open(2): a database or its shared memory.
fn may_carry_locks(path: &[u8], flags: c_int) -> bool {
    // New and temporary files, WALs and journals are never locked.
    flags & libc::O_EXCL == 0 && ![&b"-wal"[..], b"-journal"].iter().any(|suffix| path.ends_with(suffix))
}

/// Removes a parked descriptor of the file at `name` from the list and returns it. `access` is the
/// required access mode (`O_RDONLY` or `O_RDWR`). Returns `None` if no descriptor with this mode is
/// parked, or if this process may no longer open the file with it.
fn take_parked(parked: &mut Vec<c_int>, name: &CStr, access: c_int) -> Option<c_int> {
    let found = std::fs::symlink_metadata(OsStr::from_bytes(name.to_bytes())).ok()?;
    let identity = (found.dev(), found.ino());
    let at = parked.iter().position(|fd| {
        slot(*fd)
            .is_some_and(|slot| slot.identity() == identity && slot.access() == access && is_still(*fd, slot))
    })?;
    let wanted = if access == libc::O_RDONLY { libc::R_OK } else { libc::R_OK | libc::W_OK };
    may_access(libc::AT_FDCWD, name, wanted).is_ok().then(|| parked.remove(at))
}

/// Closes a descriptor for SQLite, or parks it if closing it could drop POSIX locks of this
/// process. Returns the result of close(2).
pub(super) fn close(fd: c_int) -> c_int {
    put_away(fd, false)
}

/// Closes a descriptor, or parks it if closing it could drop POSIX locks of this process. With
/// `keep`, a descriptor whose locks belong to the process is parked even if the process has no
/// other descriptor of the file, so that the next open of SQLite reuses it. Returns the result of
/// close(2).
pub(super) fn put_away(fd: c_int, keep: bool) -> c_int {
    let Some(before) = original_calls::before() else {
        set_errno(libc::ENOSYS);
        return -1;
    };
    with_list(&PARKED, |parked| {
        if let Some(slot) = slot(fd).filter(|slot| slot.kind() != UNKNOWN) {
            if is_anothers(fd, slot) {
                return 0;
            }
            let carries = slot.carries_locks() && can_be_opened_again(fd, slot);
            // If the locks belong to the process, a close drops those of other connections to the
            // file, too. SQLite checks for such connections, but releases its mutex before it
            // closes the descriptor.
            if carries && (slot.kind() == OWN || keep || is_open_elsewhere(fd, slot, parked)) {
                if slot.kind() == OWN {
                    // SQLite relies on the close to drop some locks.
                    lock::set(before, fd, libc::F_UNLCK as c_int, 0, 0);
                }
                close_what_is_gone(before, parked);
                if parked.try_reserve(1).is_ok() {
                    parked.push(fd);
                    close_the_oldest(before, parked);
                    return 0;
                }
            }
            if slot.kind() == POSIX {
                close_others_of(before, slot, parked);
            }
            slot.forget();
        }
        // SAFETY: the descriptor belongs to the caller, which no longer uses it.
        unsafe { (before.close)(fd) }
    })
}

/// Returns `true` if this process has another descriptor of the same file as `fd`, not parked,
/// whose locks belong to the process. `of` is the entry of `fd` in the table.
fn is_open_elsewhere(fd: c_int, of: &Slot, parked: &[c_int]) -> bool {
    let mut others = slots().filter(|(other, slot)| {
        *other != fd && slot.kind() == POSIX && slot.identity() == of.identity() && slot.carries_locks()
    });
    others.any(|(other, _)| !parked.contains(&other))
}

/// Closes the parked descriptors of a file when SQLite closes its last descriptor of the file that
/// is not parked. The locks of all of them belong to the process. `of` is the table's entry of the
/// descriptor that is being closed.
fn close_others_of(before: &Before, of: &Slot, parked: &mut Vec<c_int>) {
    parked.retain(|fd| {
        let is_other = slot(*fd).is_some_and(|slot| slot.kind() == POSIX && slot.identity() == of.identity());
        if is_other {
            close_parked(before, *fd);
        }
        !is_other
    });
}

/// Returns `true` if `fd` is still the descriptor that was added to the table as `slot`, and its
/// file still has a name. A file without a name cannot be opened again.
fn can_be_opened_again(fd: c_int, slot: &Slot) -> bool {
    is_still(fd, slot) && Status::of(fd).is_ok_and(|found| found.names > 0)
}

/// Closes a parked descriptor, which the caller removes from the list, unless the program has
/// closed it already.
pub(super) fn close_parked(before: &Before, fd: c_int) {
    let Some(slot) = slot(fd) else { return };
    if !is_anothers(fd, slot) {
        slot.forget();
        // SAFETY: only the list uses this descriptor, and it still belongs to the file that was
        // parked.
        unsafe { (before.close)(fd) };
    }
}

/// Returns `true` if `fd` is no longer the descriptor that was added to the table as `slot`: the
/// program has closed it, and its number may belong to another file. Then removes the entry from
/// the table. Returns `true` also if the entry is that of a socket.
fn is_anothers(fd: c_int, slot: &Slot) -> bool {
    #[cfg(feature = "remote")]
    if slot.kind() == SOCKET {
        return true; // it belongs to a connection to a server
    }
    let is_anothers = !is_still(fd, slot);
    if is_anothers {
        slot.forget();
    }
    is_anothers
}

/// Closes parked files that were deleted: they cannot be opened again, and closing them frees their
/// disk space. Each call checks at most [`LOOKS`] files.
fn close_what_is_gone(before: &Before, parked: &mut Vec<c_int>) {
    for _ in 0..LOOKS.min(parked.len()) {
        let fd = parked.remove(0);
        if slot(fd).is_some_and(|slot| can_be_opened_again(fd, slot)) {
            parked.push(fd);
        } else {
            close_parked(before, fd);
        }
    }
}

/// If too many files are parked, closes the oldest ones on which no lock is held, because closing
/// those drops no lock.
fn close_the_oldest(before: &Before, parked: &mut Vec<c_int>) {
    let mut left = parked.len().saturating_sub(max_parked());
    if left == 0 {
        return;
    }
    // Each file is checked once, even if it has several descriptors.
    let mut locked: Vec<FileIdentity> = Vec::new();
    parked.retain(|fd| {
        let Some(slot) = slot(*fd).filter(|_| left > 0) else { return true };
        if locked.contains(&slot.identity()) {
            return true;
        }
        if lock::is_locked(before, *fd, 0, 0) {
            locked.push(slot.identity());
            return true;
        }
        close_parked(before, *fd);
        left -= 1;
        false
    });
}

/// Closes all parked files on which no lock is held. This is for a process that has reached its
/// limit of descriptors. Returns `true` if any file was closed.
#[cold]
fn close_all_that_can_be(before: &Before, parked: &mut Vec<c_int>) -> bool {
    let there = parked.len();
    parked.retain(|fd| {
        let keep = lock::is_locked(before, *fd, 0, 0);
        if !keep {
            close_parked(before, *fd);
        }
        keep
    });
    let closed = parked.len() < there;
    if !closed {
        set_errno(libc::EMFILE);
    }
    closed
}

/// Returns the maximum number of parked files, which depends on the process's limit of descriptors.
fn max_parked() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct may be written.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return MAX_PARKED;
    }
    usize::try_from(limit.rlim_cur as u64 / PARKED_PART).map_or(MAX_PARKED, |part| part.min(MAX_PARKED))
}

//! Files that SQLite has open in this process, by descriptor: what kind of locks each has, and
//! which of them are parked. Also the sockets to servers, for the children of forks.

use std::cell::Cell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::io;
#[cfg(feature = "remote")]
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU32, Ordering};

use super::calls::{self, Before, Device, set_errno};
use super::status::Status;
use super::{limits, lock, maps};
use crate::atomic::AtomicU64;
use crate::db::file::os::refusal::{self, Refusal};
use crate::db::file::os::vfs;
use crate::fork::{self, with_list};

/// Flag of `faccessat` to check as the effective user, as an open does. Android's C library refuses
/// the flag; there the effective user is the real one.
#[cfg(not(target_os = "android"))]
const AS_EFFECTIVE: c_int = libc::AT_EACCESS;
#[cfg(target_os = "android")]
const AS_EFFECTIVE: c_int = 0;

/// Identity of a file: device and inode.
pub(crate) type FileIdentity = (u64, u64);

/// Number of descriptors in a part of the table, and number of parts: a million descriptors in all.
/// Descriptors above keep POSIX locks.
const PART: usize = 256;
const PARTS: usize = 4096;

/// Maximum number of parked files. Above it, the oldest parked files that no process has locked are
/// closed. The maximum is also limited to a sixteenth of the descriptors that the process may have.
const MAX_PARKED: usize = 64;
const PARKED_PART: u64 = 16;
/// Number of parked files that one call checks for deletion.
const LOOKS: usize = 8;

/// Maximum number of attempts to create a file that another process removes meanwhile.
const CREATIONS: usize = 20;

/// Number of consecutive checks in which shared memory must look like that of another file.
const LOOKS_AT_A_GHOST: usize = 5;

/// State of one descriptor.
struct Slot {
    kind: AtomicU8,
    /// `O_ACCMODE` bits, [`CARRIES_LOCKS`] and [`SHARED_MEMORY`].
    flags: AtomicU8,
    device: AtomicU64,
    inode: AtomicU64,
    /// Offset to which the descriptor was set, and which nothing moves; 0 if the descriptor has no
    /// such mark.
    mark: AtomicU32,
}

/// State of a descriptor that is not a file of SQLite.
const UNKNOWN: u8 = 0;
/// State of a descriptor whose locks belong to its open file description.
const OWN: u8 = 1;
/// State of a descriptor whose locks belong to the process.
const POSIX: u8 = 2;
/// State of a socket to a server.
#[cfg(feature = "remote")]
const SOCKET: u8 = 3;

/// Flag in `Slot::flags` of a database or its shared memory. (WALs and journals carry no locks.)
const CARRIES_LOCKS: u8 = 0x80;
/// Flag in `Slot::flags` of shared memory.
const SHARED_MEMORY: u8 = 0x40;

/// Table of descriptors, in parts that are allocated when needed and never freed.
static TABLE: [AtomicPtr<Slot>; PARTS] = [const { AtomicPtr::new(ptr::null_mut()) }; PARTS];

/// Parked descriptors: they are open although SQLite has closed them. The longest parked come
/// first.
static PARKED: Mutex<Vec<c_int>> = Mutex::new(Vec::new());

/// Number for the next device that `device_of` returns for a file with locks of its own.
static IDENTITIES: AtomicU64 = AtomicU64::new(1);

fn slot(fd: c_int) -> Option<&'static Slot> {
    let at = usize::try_from(fd).ok()?;
    let part = TABLE.get(at / PART)?.load(Ordering::Acquire);
    // SAFETY: a part consists of PART slots, is allocated by `slot_to_fill`, and is never freed.
    if part.is_null() { None } else { unsafe { part.add(at % PART).as_ref() } }
}

/// Like `slot`, but allocates the part of the table if it does not exist. Returns `None` if there
/// is no memory.
fn slot_to_fill(fd: c_int) -> Option<&'static Slot> {
    let at = usize::try_from(fd).ok()?;
    let part = TABLE.get(at / PART)?;
    if part.load(Ordering::Acquire).is_null() {
        let mut slots = Vec::new();
        slots.try_reserve_exact(PART).ok()?;
        slots.resize_with(PART, || Slot {
            kind: AtomicU8::new(UNKNOWN),
            flags: AtomicU8::new(0),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            mark: AtomicU32::new(0),
        });
        let made = Box::leak(slots.into_boxed_slice()).as_mut_ptr();
        if part.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: the part was allocated above with PART slots, and no other thread has seen
            // it.
            drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(made, PART)) });
        }
    }
    slot(fd)
}

impl Slot {
    fn identity(&self) -> FileIdentity {
        (self.device.load(Ordering::Relaxed), self.inode.load(Ordering::Relaxed))
    }

    fn carries_locks(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & CARRIES_LOCKS != 0
    }

    fn access(&self) -> c_int {
        c_int::from(self.flags.load(Ordering::Relaxed)) & libc::O_ACCMODE
    }

    fn kind(&self) -> u8 {
        self.kind.load(Ordering::Relaxed)
    }

    fn forget(&self) {
        self.kind.store(UNKNOWN, Ordering::Relaxed);
    }
}

/// Returns `true` if the locks of a descriptor belong to its open file description.
#[inline]
pub(super) fn owns_its_locks(fd: c_int) -> bool {
    slot(fd).is_some_and(|slot| slot.kind() == OWN)
}

thread_local!(
    /// Length to which this thread is extending shared memory; 0 if it is not extending any.
    static LENGTH: Cell<i64> = const { Cell::new(0) }
);

/// Runs `f`, which extends shared memory to a length. With 0 it is not extended.
pub(in crate::db::file::os) fn making_longer<R>(length: i64, f: impl FnOnce() -> R) -> R {
    LENGTH.set(length);
    let done = f();
    LENGTH.set(0);
    done
}

/// Extends shared memory to the length given to `making_longer`. SQLite calls `fstat`, and so this,
/// when it is about to extend it.
///
/// SQLite itself writes a byte into each page, with one call for each, to reserve space on the
/// disk. This takes a third of that time. If a write fails, SQLite tries it again and reports the
/// error.
pub(super) fn make_longer(fd: c_int) {
    let wanted = LENGTH.get();
    let is_shared_memory =
        |fd| slot(fd).is_some_and(|slot| slot.flags.load(Ordering::Relaxed) & SHARED_MEMORY != 0);
    if wanted == 0 || !is_shared_memory(fd) {
        return;
    }
    let Ok(Status { length: mut at, .. }) = Status::of(fd) else { return };
    while at < wanted {
        let part = vfs::zeros(wanted - at);
        // SAFETY: the file is open, and the buffer has the given length.
        let written = limits::written(at as u64 + part.len() as u64, || unsafe {
            libc::pwrite(fd, part.as_ptr().cast(), part.len(), at as _)
        });
        match i64::try_from(written) {
            Ok(written) if written > 0 => at += written,
            _ => return,
        }
    }
}

/// Returns the device of an open file as SQLite sees it. A file with locks of its own gets a device
/// that no other file has.
pub(super) fn device_of(fd: c_int, device: Device) -> Device {
    if owns_its_locks(fd) {
        // No device number uses the highest bit. (A file has such locks only where this type has 64
        // bits.)
        (1 << 63 | IDENTITIES.fetch_add(1, Ordering::Relaxed)) as Device
    } else {
        device_of_this_process(device)
    }
}

/// Returns the device of a file that shares its lock record, as SQLite sees it. In a forked child
/// it differs from that in its parent, so that SQLite does not use the parent's record of the file
/// for the child.
pub(super) fn device_of_this_process(device: Device) -> Device {
    // Above the bits that device numbers use: 32 of 64, or 24 of 32.
    let shift = if size_of::<Device>() == 8 { 40 } else { 24 };
    device ^ ((u64::from(fork::generation())) << shift) as Device
}

/// Returns `true` if a file may carry SQLite's locks: a database or its shared memory.
fn may_carry_locks(path: &[u8], flags: c_int) -> bool {
    // New and temporary files, WALs and journals are never locked.
    flags & libc::O_EXCL == 0 && ![&b"-wal"[..], b"-journal"].iter().any(|suffix| path.ends_with(suffix))
}

/// Returns `true` if the given file is at a path.
pub(crate) fn is_at(path: &Path, file: FileIdentity) -> bool {
    std::fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == file)
}

/// Returns `true` if a descriptor is still the one that was opened here. The program may have
/// closed it, as a daemon closes all descriptors, and opened another one with the same number, even
/// of the same file.
fn is_still(fd: c_int, slot: &Slot) -> bool {
    has_mark(fd, slot.identity(), slot.mark.load(Ordering::Relaxed))
}

fn has_mark(fd: c_int, identity: FileIdentity, mark: u32) -> bool {
    // SAFETY: this reads the offset of any file that has the number.
    let is_marked = || mark == 0 || unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) } == mark as libc::off_t;
    Status::of(fd).is_ok_and(|found| found.file == identity) && is_marked()
}

/// Sets the offset of a descriptor to a number by which it is recognised. Returns 0 if it cannot be
/// set. The offset belongs to the open file description, so a copy of the descriptor in a forked
/// child has it, too.
fn mark(fd: c_int) -> u32 {
    /// First mark. It is below 2 GiB, so that every file system and every `off_t` supports it, and
    /// no multiple of a page.
    const FIRST: u32 = 0x4b56_0001;
    static MARKS: AtomicU32 = AtomicU32::new(0);
    let mark = FIRST + (MARKS.fetch_add(1, Ordering::Relaxed) & 0xffff) * 2;
    // SAFETY: the file was opened just before.
    let is_set = unsafe { libc::lseek(fd, mark as libc::off_t, libc::SEEK_SET) } == mark as libc::off_t;
    if is_set { mark } else { 0 }
}

/// Identity by which a descriptor that is not in the table is recognised.
pub(super) struct Mark {
    identity: FileIdentity,
    offset: u32,
}

impl Mark {
    /// Marks a descriptor that was just opened, and through which nothing is read or written.
    pub(super) fn set(fd: c_int) -> io::Result<Mark> {
        Ok(Mark { identity: Status::of(fd)?.file, offset: mark(fd) })
    }

    /// Returns `true` if this is still the descriptor that was marked.
    pub(super) fn is_on(&self, fd: c_int) -> bool {
        has_mark(fd, self.identity, self.offset)
    }
}

/// Opens a file for SQLite. Reuses a parked descriptor of the file if there is one.
///
/// # Safety
/// `path` is a C string.
pub(super) unsafe fn open(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    let Some(before) = calls::before() else {
        set_errno(libc::ENOSYS);
        return -1;
    };
    // SAFETY: the caller guarantees the path.
    let name = unsafe { CStr::from_ptr(path) };
    let carries_locks = may_carry_locks(name.to_bytes(), flags);
    // SAFETY: the caller guarantees the path.
    unsafe { open_noted(before, path, flags, mode, carries_locks) }
}

/// Like `open`, but the caller tells whether the file carries SQLite's locks.
///
/// # Safety
/// `path` is a C string.
unsafe fn open_noted(
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
        if fd < 0 && calls::errno() == libc::EMFILE && close_all_that_can_be(before, parked) {
            // SAFETY: the caller guarantees the path.
            fd = unsafe { open_by_system(before, path, flags, mode) };
        }
        // If a descriptor with this number is parked, the program has closed it.
        parked.retain(|other| *other != fd);
        if fd >= 3 {
            let errno = calls::errno();
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
/// If the system refuses `O_CREAT` for an existing file, the file is opened without it. The system
/// does so for the file of another user in a directory that all users may write
/// (`fs.protected_regular` in proc_sys_fs(5)).
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
        match calls::errno() {
            libc::ENOSPC => refusal::note(Refusal::Space),
            libc::EDQUOT => refusal::note(Refusal::Quota),
            libc::EACCES if flags & libc::O_EXCL == 0 => {
                let fd = (before.open)(path, flags & !libc::O_CREAT, mode);
                if fd < 0 {
                    set_errno(libc::EACCES);
                }
                return fd;
            }
            _ => {}
        }
        fd
    }
}

/// Enters a descriptor that was just opened in the table, if it is a regular file.
fn note(before: &Before, fd: c_int, flags: c_int, sort: u8) {
    let Some(found) = Status::of(fd).ok().filter(Status::is_regular) else { return };
    let Some(slot) = slot_to_fill(fd) else { return };
    let (device, inode) = found.file;
    slot.device.store(device, Ordering::Relaxed);
    slot.inode.store(inode, Ordering::Relaxed);
    // All reads and writes specify their offset, unless SQLite was compiled without such calls.
    let mark = if calls::keeps_offsets() { mark(fd) } else { 0 };
    slot.mark.store(mark, Ordering::Relaxed);
    let access = u8::try_from(flags & libc::O_ACCMODE).unwrap_or(0);
    slot.flags.store(access | sort, Ordering::Relaxed);
    let own = sort & CARRIES_LOCKS != 0 && lock::has_own(before, fd);
    slot.kind.store(if own { OWN } else { POSIX }, Ordering::Relaxed);
}

/// Removes a parked descriptor of the file at `name` from the list and returns it, if this process
/// may open the file with this access now.
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

/// Fails like an open of the file `name` in a directory would, with the access `wanted`.
pub(super) fn may_access(directory: c_int, name: &CStr, wanted: c_int) -> io::Result<()> {
    // SAFETY: `directory` is open or AT_FDCWD, and the name is a C string.
    match unsafe { libc::faccessat(directory, name.as_ptr(), wanted, AS_EFFECTIVE) } {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            #[cfg(target_os = "linux")]
            e if e.raw_os_error() == Some(libc::EPERM) => may_access_as_real_user(directory, name, wanted),
            e => Err(e),
        },
    }
}

/// Like `may_access`, but uses the system call without flags. Containers with an old libseccomp
/// refuse faccessat2(2), which the C library makes, with `EPERM`.
#[cfg(target_os = "linux")]
#[allow(clippy::disallowed_methods, reason = "not on Android")]
fn may_access_as_real_user(directory: c_int, name: &CStr, wanted: c_int) -> io::Result<()> {
    // SAFETY: these calls have no arguments. The last one gets an open directory and a C string.
    unsafe {
        if libc::getuid() != libc::geteuid() || libc::getgid() != libc::getegid() {
            return Ok(()); // the open itself reports the error
        }
        match libc::syscall(libc::SYS_faccessat, directory, name.as_ptr(), wanted) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Closes a file for SQLite, or parks it if closing it could drop POSIX locks of this process.
pub(super) fn close(fd: c_int) -> c_int {
    put_away(fd, false)
}

/// Closes or parks a descriptor. With `keep`, a descriptor with locks of the process is also
/// parked, so that SQLite's next open takes it over.
fn put_away(fd: c_int, keep: bool) -> c_int {
    let Some(before) = calls::before() else {
        set_errno(libc::ENOSYS);
        return -1;
    };
    with_list(&PARKED, |parked| {
        if let Some(slot) = slot(fd).filter(|slot| slot.kind() != UNKNOWN) {
            if is_anothers(fd, slot) {
                return 0;
            }
            let carries = slot.carries_locks() && can_be_opened_again(fd, slot);
            // With locks of the process, a close drops those of the other connections on the file.
            // SQLite checks for such connections, but leaves its mutex before it closes.
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

/// Returns `true` if this process uses another descriptor of the file, with locks of the process.
fn is_open_elsewhere(fd: c_int, of: &Slot, parked: &[c_int]) -> bool {
    let mut others = slots().filter(|(other, slot)| {
        *other != fd && slot.kind() == POSIX && slot.identity() == of.identity() && slot.carries_locks()
    });
    others.any(|(other, _)| !parked.contains(&other))
}

/// Closes the parked descriptors of a file whose last descriptor in use, with locks of the process,
/// is being closed.
fn close_others_of(before: &Before, of: &Slot, parked: &mut Vec<c_int>) {
    parked.retain(|fd| {
        let is_other = slot(*fd).is_some_and(|slot| slot.kind() == POSIX && slot.identity() == of.identity());
        if is_other {
            close_parked(before, *fd);
        }
        !is_other
    });
}

/// Returns every descriptor that is in the table.
fn slots() -> impl Iterator<Item = (c_int, &'static Slot)> {
    let parts =
        TABLE.iter().zip((0..).step_by(PART)).filter(|(part, _)| !part.load(Ordering::Acquire).is_null());
    let all = parts.flat_map(|(_, first)| first..first + PART as c_int);
    all.filter_map(|fd| slot(fd).map(|slot| (fd, slot))).filter(|(_, slot)| slot.kind() != UNKNOWN)
}

/// Returns `true` if a descriptor is still the one that was opened here, and its file has a name. A
/// file without a name cannot be opened again.
fn can_be_opened_again(fd: c_int, slot: &Slot) -> bool {
    is_still(fd, slot) && Status::of(fd).is_ok_and(|found| found.names > 0)
}

fn close_parked(before: &Before, fd: c_int) {
    let Some(slot) = slot(fd) else { return };
    if !is_anothers(fd, slot) {
        slot.forget();
        // SAFETY: only the list uses this descriptor: it is parked, and still is the file that was
        // parked.
        unsafe { (before.close)(fd) };
    }
}

/// Returns `true` if the program has closed a descriptor, whose number may be in use for another
/// file. Then the table forgets the file.
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

/// Closes parked files that have been deleted. They cannot be opened again, and closing them frees
/// their space. Each call checks [`LOOKS`] of them.
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

/// If too many files are parked, closes the longest parked of those that no process has locked, so
/// that closing drops no lock.
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

/// Closes all parked files that no process has locked, for a process that has no descriptor left.
/// Returns `true` if any was closed.
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

fn max_parked() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct may be written.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return MAX_PARKED;
    }
    usize::try_from(limit.rlim_cur as u64 / PARKED_PART).map_or(MAX_PARKED, |part| part.min(MAX_PARKED))
}

/// Descriptor that replaces inherited descriptors in a forked child: no call can read, write or
/// lock it.
static DEAD: AtomicI32 = AtomicI32::new(-1);

fn open_dead() -> c_int {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let (path, flags) = (c"/", libc::O_PATH | libc::O_CLOEXEC);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let (path, flags) = (c"/dev/null", libc::O_WRONLY | libc::O_CLOEXEC);
    // SAFETY: the name is a C string.
    unsafe { libc::open(path.as_ptr(), flags) }
}

/// Returns `true` if `fd` is still the file that `open_dead` has opened. The program may have
/// closed it, and its number may belong to another file by now.
fn is_dead(fd: c_int) -> bool {
    // SAFETY: this reads the flags of any file that has the number.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return flags >= 0 && flags & libc::O_PATH != 0;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    return flags >= 0 && Status::of(fd).is_ok_and(|found| found.is_character_device());
}

/// Opens the file that replaces inherited descriptors after a fork, because a child may have no
/// descriptor left.
pub(super) fn prepare_for_forks() {
    if !is_dead(DEAD.load(Ordering::Relaxed)) {
        DEAD.store(open_dead(), Ordering::Relaxed);
    }
}

/// Replaces the descriptors that a forked child inherited, and closes the parked ones. The numbers
/// of the replaced ones stay in use, so that a stale handle does not access another file under such
/// a number.
///
/// Call this only in a forked child, in which no thread is inside the gate of the lists. It calls
/// only functions that the child of a process with several threads may call.
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

/// Guard that makes a socket unusable in a forked child, like files. If a child had a usable copy,
/// the connection of a killed parent would stay open. Drop this after the socket.
#[cfg(feature = "remote")]
pub(crate) struct Mortal {
    fd: c_int,
    identity: FileIdentity,
}

#[cfg(feature = "remote")]
impl Mortal {
    pub(crate) fn new(socket: &impl AsFd) -> io::Result<Mortal> {
        let fd = socket.as_fd().as_raw_fd();
        let identity = Status::of(fd)?.file;
        // This does not enter the gate of the lists. Otherwise a call on a server would wait for a
        // fork there, and the fork perhaps for a lock of the program that the caller holds. A child
        // finds either a complete entry or none.
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
        // The number may belong to another file by now, even to one that is being opened at this
        // moment.
        if let Some(slot) = slot(self.fd).filter(|slot| slot.identity() == self.identity) {
            let _ = slot.kind.compare_exchange(SOCKET, UNKNOWN, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// File that is opened in addition to SQLite, in a way that drops no locks of this process.
pub(crate) struct OsFile {
    fd: c_int,
}

impl OsFile {
    /// Opens a file for reading, or with `write` for reading and writing. With `create`, creates
    /// the file if it does not exist, with the permissions that SQLite gives its files (0644, less
    /// the umask).
    pub(crate) fn open(path: &Path, write: bool, create: bool) -> io::Result<OsFile> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        let access = if write { libc::O_RDWR } else { libc::O_RDONLY };
        let flags = access | libc::O_CLOEXEC | if create { libc::O_CREAT } else { 0 };
        loop {
            // SAFETY: the name is a C string.
            let fd = unsafe { open(name.as_ptr(), flags, 0o644) };
            if fd >= 0 {
                return Ok(OsFile { fd });
            }
            let e = io::Error::last_os_error();
            if e.kind() != io::ErrorKind::Interrupted {
                return Err(e);
            }
        }
    }

    /// Opens a file for reading and writing. If it does not exist, creates it with exactly the
    /// permissions `mode`.
    pub(in crate::db::file) fn open_or_create(path: &Path, mode: u32) -> io::Result<OsFile> {
        for _ in 0..CREATIONS {
            match OsFile::open(path, true, false) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                opened => return opened,
            }
            match OsFile::create(path, mode) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                created => return created,
            }
        }
        OsFile::open(path, true, false)
    }

    fn create(path: &Path, mode: u32) -> io::Result<OsFile> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        let before = calls::before().ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
        let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_CREAT | libc::O_EXCL;
        // SAFETY: the name is a C string. The file will carry SQLite's locks.
        let fd = unsafe { open_noted(before, name.as_ptr(), flags, mode as c_int, true) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let file = OsFile { fd };
        // SAFETY: the file is open. (When it was created, the umask removed permissions.)
        if unsafe { libc::fchmod(fd, mode as libc::mode_t) } != 0 {
            let e = io::Error::last_os_error();
            // SAFETY: the name is a C string.
            unsafe { libc::unlink(name.as_ptr()) };
            return Err(e);
        }
        Ok(file)
    }

    /// Opens a journal for reading.
    pub(in crate::db::file) fn open_journal(path: &Path) -> io::Result<OsFile> {
        OsFile::open(path, false, false)
    }

    /// Reads up to the length of `buffer` from the beginning of the file. Fewer bytes are read only
    /// at its end.
    pub(crate) fn read_start(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            // SAFETY: the buffer has the given length.
            let read = unsafe { libc::pread(self.fd, rest.as_mut_ptr().cast(), rest.len(), filled as _) };
            match usize::try_from(read) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(_) => {
                    let e = io::Error::last_os_error();
                    if e.kind() != io::ErrorKind::Interrupted {
                        return Err(e);
                    }
                }
            }
        }
        Ok(filled)
    }

    /// Returns `true` if the locks of this file are its own, so that it may be closed while SQLite
    /// has the file open.
    pub(in crate::db::file) fn owns_its_locks(&self) -> bool {
        owns_its_locks(self.fd)
    }

    /// Returns the identity of the file.
    pub(crate) fn identity(&self) -> io::Result<FileIdentity> {
        Status::of(self.fd).map(|found| found.file)
    }

    /// Returns the identity of the file and its number of hard links.
    pub(in crate::db::file) fn identity_and_names(&self) -> io::Result<(FileIdentity, u64)> {
        Status::of(self.fd).map(|found| (found.file, found.names))
    }

    /// Returns `true` if the file is empty and no other process uses it through SQLite. Then no
    /// process can begin to use it until this is dropped.
    pub(in crate::db::file) fn is_empty_and_mine(&self) -> bool {
        let alone = !owns_its_locks(self.fd) || self.keeps_others_out();
        alone && Status::of(self.fd).is_ok_and(|found| found.length == 0)
    }

    /// Locks the file, which is open for writing, if no other process uses it through SQLite.
    /// Returns `false` if it is in use, or if the file has no locks of its own.
    pub(in crate::db::file) fn keeps_others_out(&self) -> bool {
        let (start, length) = lock::DATABASE;
        owns_its_locks(self.fd)
            && calls::before()
                .is_some_and(|before| lock::set(before, self.fd, libc::F_WRLCK as c_int, start, length))
    }

    /// Locks the file as a reader does, so that its WAL and its shared memory are not removed.
    /// Returns `false` if another process has locked it exclusively.
    pub(in crate::db::file) fn keeps_files_beside(&self) -> bool {
        let (start, length) = lock::SHARED;
        !owns_its_locks(self.fd)
            || calls::before()
                .is_some_and(|before| lock::set(before, self.fd, libc::F_RDLCK as c_int, start, length))
    }

    /// Returns the number of bytes that the file occupies on the disk, with those reserved beyond
    /// its end.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(in crate::db::file) fn allocated(&self) -> io::Result<u64> {
        Status::of(self.fd).map(|found| u64::try_from(found.blocks).unwrap_or(0).saturating_mul(512))
    }

    /// Reserves the blocks of the bytes up to `to`, without changing the length of the file.
    /// Returns `false` if the file system cannot do that.
    ///
    /// # Errors
    /// The disk or a quota has no space.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(in crate::db::file) fn reserve(&self, to: u64) -> io::Result<bool> {
        let start = u64::try_from(Status::of(self.fd)?.length).unwrap_or(u64::MAX);
        if start >= to {
            return Ok(true);
        }
        let (Ok(start), Ok(length)) = (start.try_into(), (to - start).try_into()) else { return Ok(false) };
        loop {
            // SAFETY: the file is open, and no memory is involved.
            if unsafe { libc::fallocate(self.fd, libc::FALLOC_FL_KEEP_SIZE, start, length) } == 0 {
                return Ok(true);
            }
            match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => {}
                e if crate::db::file::os::refusal::is_without_space(&e) => return Err(e),
                _ => return Ok(false),
            }
        }
    }

    /// Returns `false`: this system reserves no blocks beyond the end of a file.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "Linux can do that")]
    pub(in crate::db::file) fn reserve(&self, _: u64) -> io::Result<bool> {
        Ok(false)
    }

    /// Releases the blocks that are reserved beyond the end of the file. No process may extend the
    /// file meanwhile.
    #[allow(clippy::useless_conversion, reason = "the type of a length differs between systems")]
    pub(in crate::db::file) fn give_reserved_back(&self) {
        if let Ok(found) = Status::of(self.fd)
            && let Ok(length) = found.length.try_into()
        {
            // SAFETY: the file is open and keeps its length. If the call fails, the blocks stay
            // reserved.
            unsafe { libc::ftruncate(self.fd, length) };
        }
    }

    /// Returns `true` if a process uses the file through SQLite, or if that cannot be determined.
    pub(in crate::db::file) fn is_in_use(&self) -> bool {
        let (start, length) = lock::DATABASE;
        calls::before().is_none_or(|before| lock::is_locked(before, self.fd, start, length))
    }

    /// Returns `true` if the shared memory next to this database is in use by a process that does
    /// not use this database. Then both it and the WAL belong to another file that had the name
    /// before.
    ///
    /// Every user of shared memory in WAL mode holds a lock on its database, from before that use
    /// to after it.
    pub(in crate::db::file) fn is_not_of(&self, shared_memory: &OsFile) -> bool {
        let Some(before) = calls::before() else { return false };
        if !owns_its_locks(self.fd) || !owns_its_locks(shared_memory.fd) {
            return false; // this cannot be determined
        }
        let is_locked = |file: &OsFile, (start, length)| lock::is_locked(before, file.fd, start, length);
        (0..LOOKS_AT_A_GHOST).all(|look| {
            if look > 0 {
                // One process may be closing while another opens.
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            is_locked(shared_memory, lock::SHARED_MEMORY) && !is_locked(self, lock::DATABASE)
        })
    }

    /// Returns `false` if the file system cannot map the file into memory that processes share. The
    /// file is open for writing.
    pub(in crate::db::file) fn can_be_shared_memory(&self) -> bool {
        const LENGTH: usize = 4096;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the mapping is new, nothing of it is read or written, and it ends here.
        unsafe {
            let mapped = maps::mapped(LENGTH, || {
                libc::mmap(ptr::null_mut(), LENGTH, protection, libc::MAP_SHARED, self.fd, 0)
            });
            if mapped == libc::MAP_FAILED {
                return matches!(calls::errno(), libc::ENOMEM | libc::EAGAIN);
            }
            maps::unmapped(mapped, LENGTH, || libc::munmap(mapped, LENGTH));
        }
        true
    }

    /// Invalidates the header of the shared memory, so that the next user rebuilds it from the WAL
    /// (SQLite's walformat.html, chapter 2.1; there are two copies of 48 bytes).
    pub(in crate::db::file) fn clear_start(&self) {
        // SAFETY: the file is open, and the buffer has 96 bytes. If the call fails, the header
        // stays valid.
        limits::written(96, || unsafe { libc::pwrite(self.fd, [0u8; 96].as_ptr().cast(), 96, 0) });
    }

    pub(in crate::db::file::os) fn fd(&self) -> c_int {
        self.fd
    }
}

impl Drop for OsFile {
    fn drop(&mut self) {
        // With POSIX locks, closing the descriptor would drop the locks of this process's
        // connections. So it is parked, and SQLite takes it over.
        put_away(self.fd, true);
    }
}

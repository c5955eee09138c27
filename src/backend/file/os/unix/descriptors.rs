//! Table of the descriptors that SQLite has open in this process: the file of each descriptor, and
//! the kind of its locks. The table also has the sockets to servers, which a forked child must not
//! use.

use std::ffi::c_int;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering};

use super::original_calls::Device;
use super::status::{FileIdentity, Status};
use crate::atomic::AtomicU64;
use crate::fork;

/// Number of entries in each part of the table of descriptors ([`TABLE`]). With [`PARTS`] parts,
/// the table has space for a million descriptors. Descriptors with greater numbers keep POSIX
/// locks.
const PART: usize = 256;

/// Maximum number of parts of the table of descriptors ([`TABLE`]).
const PARTS: usize = 4096;

/// Entry of the table of descriptors: state of one descriptor.
pub(super) struct Slot {
    /// Kind of the descriptor: [`UNKNOWN`], [`OWN`], [`POSIX`] or `SOCKET`.
    pub(super) kind: AtomicU8,
    /// Access mode with which the descriptor was opened (`O_ACCMODE`), and the flags
    /// [`CARRIES_LOCKS`] and [`SHARED_MEMORY`].
    pub(super) flags: AtomicU8,
    /// Device number of the file.
    pub(super) device: AtomicU64,
    /// Inode number of the file.
    pub(super) inode: AtomicU64,
    /// File offset of the descriptor, by which the descriptor is recognised (see `mark`): it is an
    /// unusual number, which no read or write changes. 0 if no offset was set.
    pub(super) mark: AtomicU32,
}

/// Value of `Slot::kind` for an empty entry: the descriptor is not in the table.
pub(super) const UNKNOWN: u8 = 0;

/// Value of `Slot::kind` for a file whose locks belong to its open file description.
pub(super) const OWN: u8 = 1;

/// Value of `Slot::kind` for a file whose locks belong to the process, or that SQLite does not
/// lock.
pub(super) const POSIX: u8 = 2;

/// Value of `Slot::kind` for a socket to a server.
#[cfg(feature = "remote")]
pub(super) const SOCKET: u8 = 3;

/// Flag in `Slot::flags` for a database or its shared memory. (SQLite does not lock WALs and
/// journals.)
pub(super) const CARRIES_LOCKS: u8 = 0x80;

/// Flag in `Slot::flags` for a shared memory file.
pub(super) const SHARED_MEMORY: u8 = 0x40;

/// Table of the descriptors that SQLite and this library have open, with the descriptor's number as
/// index. Its parts are allocated when they are needed, and never freed.
static TABLE: [AtomicPtr<Slot>; PARTS] = [const { AtomicPtr::new(ptr::null_mut()) }; PARTS];

/// Next number from which `device_of` makes a unique device.
static IDENTITIES: AtomicU64 = AtomicU64::new(1);

impl Slot {
    /// Returns the identity of the file: device and inode.
    pub(super) fn identity(&self) -> FileIdentity {
        (self.device.load(Ordering::Relaxed), self.inode.load(Ordering::Relaxed))
    }

    /// Returns `true` if the file is a database or its shared memory.
    pub(super) fn carries_locks(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & CARRIES_LOCKS != 0
    }

    /// Returns the access mode with which the descriptor was opened, such as `O_RDWR`.
    pub(super) fn access(&self) -> c_int {
        c_int::from(self.flags.load(Ordering::Relaxed)) & libc::O_ACCMODE
    }

    pub(super) fn kind(&self) -> u8 {
        self.kind.load(Ordering::Relaxed)
    }

    /// Removes the descriptor from the table.
    pub(super) fn forget(&self) {
        self.kind.store(UNKNOWN, Ordering::Relaxed);
    }
}

/// Returns the entry of a descriptor, which may be empty ([`UNKNOWN`]). Returns `None` if its part
/// of the table is not allocated, or if its number is too great for the table.
pub(super) fn slot(fd: c_int) -> Option<&'static Slot> {
    let at = usize::try_from(fd).ok()?;
    let part = TABLE.get(at / PART)?.load(Ordering::Acquire);
    // SAFETY: a part consists of PART slots, is allocated by `slot_to_fill`, and is never freed.
    if part.is_null() { None } else { unsafe { part.add(at % PART).as_ref() } }
}

/// Returns the entry of a descriptor. First allocates its part of the table if that does not exist.
/// Returns `None` if there is no memory, or if the descriptor's number is too great for the table.
pub(super) fn slot_to_fill(fd: c_int) -> Option<&'static Slot> {
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

/// Returns every descriptor in the table, with its entry. Empty entries are omitted.
pub(super) fn slots() -> impl Iterator<Item = (c_int, &'static Slot)> {
    let parts =
        TABLE.iter().zip((0..).step_by(PART)).filter(|(part, _)| !part.load(Ordering::Acquire).is_null());
    let all = parts.flat_map(|(_, first)| first..first + PART as c_int);
    all.filter_map(|fd| slot(fd).map(|slot| (fd, slot))).filter(|(_, slot)| slot.kind() != UNKNOWN)
}

/// Returns `true` if the locks of a descriptor belong to its open file description.
#[inline]
pub(super) fn owns_its_locks(fd: c_int) -> bool {
    slot(fd).is_some_and(|slot| slot.kind() == OWN)
}

/// Returns the device that SQLite gets for an open file, instead of the real `device`. For a
/// descriptor whose locks belong to its open file description, this is a new number at each call.
pub(super) fn device_of(fd: c_int, device: Device) -> Device {
    if owns_its_locks(fd) {
        // No real device number uses the highest bit. (Such locks are used only where this type has
        // 64 bits.)
        (1 << 63 | IDENTITIES.fetch_add(1, Ordering::Relaxed)) as Device
    } else {
        device_of_this_process(device)
    }
}

/// Returns the device that SQLite gets for a file that shares its lock record with other
/// descriptors, instead of the real `device`. In a forked child it differs from that in its parent,
/// so that SQLite does not use the record of the parent's locks for the child.
pub(super) fn device_of_this_process(device: Device) -> Device {
    // Shifts the generation above the bits that real device numbers use: 32 of 64, or 24 of 32.
    let shift = if size_of::<Device>() == 8 { 40 } else { 24 };
    device ^ ((u64::from(fork::generation())) << shift) as Device
}

/// Returns `true` if `fd` is still the descriptor that was added to the table as `slot`. The
/// program may have closed it, for example as a daemon closes all descriptors, and then opened
/// another one with the same number, even of the same file.
pub(super) fn is_still(fd: c_int, slot: &Slot) -> bool {
    has_mark(fd, slot.identity(), slot.mark.load(Ordering::Relaxed))
}

/// Returns `true` if `fd` is open, its file has the identity `identity`, and its offset is `mark`.
/// If `mark` is 0, the offset is not compared. If the system cannot tell the identity, because of an
/// I/O error for example, the offset decides: otherwise the descriptor would never be closed.
fn has_mark(fd: c_int, identity: FileIdentity, mark: u32) -> bool {
    // SAFETY: this reads the offset of any file that has the number.
    let is_marked = || mark == 0 || unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) } == mark as libc::off_t;
    match Status::of(fd) {
        Ok(found) => found.file == identity && is_marked(),
        Err(e) => e.raw_os_error() != Some(libc::EBADF) && mark != 0 && is_marked(),
    }
}

/// Sets the offset of a descriptor to an unusual number, by which the descriptor is recognised
/// later. Returns this number, or 0 if the offset cannot be set. The offset belongs to the open
/// file description, so the copy of the descriptor in a forked child has it, too.
pub(super) fn mark(fd: c_int) -> u32 {
    /// Smallest offset that is used as a mark. All marks are below 2 GiB, so that every file system
    /// and every `off_t` supports them, and none is a multiple of the page size.
    const FIRST: u32 = 0x4b56_0001;
    static MARKS: AtomicU32 = AtomicU32::new(0);
    let mark = FIRST + (MARKS.fetch_add(1, Ordering::Relaxed) & 0xffff) * 2;
    // SAFETY: the file was opened just before.
    let is_set = unsafe { libc::lseek(fd, mark as libc::off_t, libc::SEEK_SET) } == mark as libc::off_t;
    if is_set { mark } else { 0 }
}

/// Mark by which a descriptor that is not in the table is recognised later: the identity of its
/// file, and the unusual file offset to which it was set.
pub(super) struct Mark {
    identity: FileIdentity,
    offset: u32,
}

impl Mark {
    /// Marks a descriptor that was just opened. No read or write through the descriptor may change
    /// its offset afterwards.
    pub(super) fn set(fd: c_int) -> io::Result<Mark> {
        Ok(Mark { identity: Status::of(fd)?.file, offset: mark(fd) })
    }

    /// Returns `true` if `fd` is still the descriptor that was marked.
    pub(super) fn is_on(&self, fd: c_int) -> bool {
        has_mark(fd, self.identity, self.offset)
    }
}

//! Syncs that run in the background while the calling thread continues.
//!
//! They use asynchronous I/O of Linux: io_submit(2) with `IOCB_CMD_FDSYNC`, which runs `fdatasync`
//! in a kernel thread. This needs no thread of this library, and one system call per process to set
//! it up.
//!
//! If asynchronous I/O is not available (on other systems, in a sandbox that forbids it), no
//! background sync is begun, and only checkpoints sync (`backfill.rs`). If too many syncs are in
//! progress, a further one fails.
//!
//! If the program uses a VFS other than SQLite's own, that VFS performs the sync, on a later call
//! of this library. So the VFSs of this library's tests, which simulate disks, see what happens
//! between the request and the sync.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rusqlite::Connection;

use super::sqlite_file::{Opened, sync};
use super::system::OsFile;
use super::vfs;
use crate::atomic::AtomicI64;
use crate::fork;

/// Initial value of the counter in `HandedOver::Later`, for a VFS other than SQLite's own: the VFS
/// performs the sync on the call of `HandedOver::outcome` with this number, so on the second one.
const LOOKS: u8 = 2;

/// Pause of `HandedOver::wait` between two queries of the result of a background sync.
const PAUSE: Duration = Duration::from_micros(100);

/// Sync of a file that was handed over to the kernel or to the VFS, and the state of this sync.
pub(in crate::backend::file) enum HandedOver {
    /// The sync has ended. The value is `true` if it succeeded.
    Ended(bool),
    /// The kernel is performing the sync. Its result is stored in the `Outcome` when it has ended.
    Kernel(Arc<Outcome>),
    /// The VFS has not performed the sync of this file yet. Each call of `outcome` decrements the
    /// number, and the call that reduces it to 0 performs the sync.
    Later(Opened, u8),
}

/// Result of a background sync that the kernel performs.
pub(in crate::backend::file) struct Outcome {
    /// 0 for success, a negative error number, or [`NONE_YET`].
    code: AtomicI64,
    /// Fork generation of the process that began the sync. A forked child cannot get the result of
    /// its parent's sync.
    generation: u32,
}

/// Value of `Outcome::code` while the sync is in progress.
const NONE_YET: i64 = i64::MIN;

impl Outcome {
    /// Returns `true` if the sync succeeded, and `false` if it failed or a parent process began it;
    /// `None` while it is in progress.
    fn get(&self) -> Option<bool> {
        match self.code.load(Ordering::Acquire) {
            NONE_YET if self.generation == fork::generation() => None,
            code => Some(code == 0),
        }
    }
}

impl HandedOver {
    /// Begins a background sync of the file `which` of a connection. `file` is the same file,
    /// opened by this process. Returns `None` if the system offers no asynchronous sync.
    ///
    /// If the kernel's queue is full, returns a sync that has already failed.
    pub(in crate::backend::file) fn begin(
        conn: &Connection,
        which: Opened,
        file: &OsFile,
    ) -> Option<HandedOver> {
        if !vfs::is_over_the_systems(conn) {
            return Some(HandedOver::Later(which, LOOKS));
        }
        kernel::begin(file).map(HandedOver::Kernel)
    }

    /// Returns `true` if the sync succeeded, and `false` if it failed; `None` while it is in
    /// progress.
    pub(in crate::backend::file) fn outcome(&mut self, conn: &Connection) -> Option<bool> {
        let ended = match self {
            HandedOver::Ended(well) => Some(*well),
            HandedOver::Kernel(outcome) => {
                kernel::collect();
                outcome.get()
            }
            HandedOver::Later(which, looks) => {
                *looks = looks.saturating_sub(1);
                (*looks == 0).then(|| sync(conn, *which).is_ok())
            }
        }?;
        *self = HandedOver::Ended(ended);
        Some(ended)
    }

    /// Waits until the sync has ended. Returns `true` if it succeeded.
    pub(in crate::backend::file) fn wait(&mut self, conn: &Connection) -> bool {
        loop {
            match self.outcome(conn) {
                Some(well) => return well,
                None if matches!(self, HandedOver::Kernel(_)) => std::thread::sleep(PAUSE),
                None => {}
            }
        }
    }
}

/// Makes the kernel's queue of this process invalid, so that system calls on the queue fail.
#[cfg(all(test, unix))]
pub(super) fn forget_the_queue() {
    kernel::forget_the_queue();
}

#[cfg(target_os = "linux")]
#[allow(clippy::disallowed_methods, reason = "not on Android")]
mod kernel {
    use crate::atomic::AtomicI64;
    use std::ffi::{c_long, c_ulong};
    use std::ptr;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};

    use super::{NONE_YET, Outcome};
    use crate::backend::file::os::system::OsFile;
    use crate::fork::{self, with_list};

    /// Maximum number of background syncs of this process that can be in progress at the same time.
    const MOST: c_long = 64;

    /// Value of `Request::operation` for `fdatasync`: `IOCB_CMD_FDSYNC` (linux/aio_abi.h).
    const FDATASYNC: u16 = 3;

    /// Request to the kernel's queue of asynchronous I/O: `struct iocb` (linux/aio_abi.h). Fields
    /// that are always zero here may be in another order than in the kernel's struct.
    #[repr(C)]
    #[derive(Default)]
    struct Request {
        data: u64,
        key_and_flags: [u32; 2],
        operation: u16,
        priority: i16,
        descriptor: u32,
        buffer: u64,
        bytes: u64,
        offset: i64,
        reserved: u64,
        flags: u32,
        result_descriptor: u32,
    }

    /// Result of an ended request, which the kernel returns: `struct io_event` (linux/aio_abi.h).
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Event {
        data: u64,
        request: u64,
        result: i64,
        result2: i64,
    }

    /// Queue of asynchronous I/O (`aio_context_t`) of this process. It is never destroyed, because
    /// the kernel takes milliseconds to do that.
    struct Queue {
        id: c_ulong,
        /// Fork generation of the process that created the queue. A forked child cannot use the
        /// queue of its parent.
        generation: u32,
        /// Syncs in progress, each with the number of its request (`Request::data`).
        under_way: Vec<(u64, Arc<Outcome>)>,
        /// Number of the newest request.
        next: u64,
    }

    /// Queue of this process; `None` until the first background sync. In a forked child, it is that
    /// of the parent.
    static QUEUE: Mutex<Option<Queue>> = Mutex::new(None);

    /// Returns the queue of this process, and creates it if there is none. `known` is the content
    /// of [`QUEUE`]. Returns `None` if the kernel refuses to create the queue.
    fn queue(known: &mut Option<Queue>) -> Option<&mut Queue> {
        let generation = fork::generation();
        if known.as_ref().is_none_or(|queue| queue.generation != generation) {
            let mut id: c_ulong = 0;
            // SAFETY: io_setup(2) writes the queue's number, which must be 0 before.
            let made = unsafe { libc::syscall(libc::SYS_io_setup, MOST, &raw mut id) } == 0;
            *known = made.then(|| Queue { id, generation, under_way: Vec::new(), next: 0 });
        }
        known.as_mut()
    }

    /// Whether the kernel has refused a query for ended syncs (`io_getevents`), because the process
    /// has entered a sandbox. No background sync is begun after that.
    static IS_FORBIDDEN: AtomicBool = AtomicBool::new(false);

    /// Makes the kernel begin `fdatasync` of a file. Returns `None` if the kernel offers no
    /// asynchronous sync, and an `Outcome` with an error if its queue is full or there is no
    /// memory.
    pub(super) fn begin(file: &OsFile) -> Option<Arc<Outcome>> {
        if IS_FORBIDDEN.load(Ordering::Relaxed) {
            return None;
        }
        with_list(&QUEUE, |known| {
            let queue = queue(known)?;
            let generation = queue.generation;
            let outcome = |code| Arc::new(Outcome { code: AtomicI64::new(code), generation });
            if queue.under_way.try_reserve(1).is_err() {
                return Some(outcome(-i64::from(libc::ENOMEM)));
            }
            queue.next += 1;
            let mut request = Request {
                data: queue.next,
                operation: FDATASYNC,
                descriptor: file.fd().unsigned_abs(),
                ..Request::default()
            };
            let mut requests = [ptr::from_mut(&mut request)];
            let id = queue.id;
            let mut submit = || {
                // SAFETY: io_submit(2) reads one request, and keeps neither the request nor the
                // list. The kernel keeps the file open until the sync has ended.
                unsafe { libc::syscall(libc::SYS_io_submit, id, 1 as c_long, requests.as_mut_ptr()) == 1 }
            };
            let is_full = || std::io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN);
            let mut is_begun = submit();
            if !is_begun && is_full() {
                // The queue may be full of ended syncs whose results no handle has collected.
                collect_from(queue);
                is_begun = submit();
            }
            if !is_begun {
                return is_full().then(|| outcome(-i64::from(libc::EAGAIN)));
            }
            let begun = outcome(NONE_YET);
            queue.under_way.push((queue.next, Arc::clone(&begun)));
            Some(begun)
        })
    }

    #[cfg(test)]
    pub(super) fn forget_the_queue() {
        with_list(&QUEUE, |known| {
            if let Some(queue) = known {
                queue.id = 0;
            }
        });
    }

    /// Stores the result of each ended sync of this process in its `Outcome`.
    pub(super) fn collect() {
        with_list(&QUEUE, |known| {
            let generation = fork::generation();
            if let Some(queue) = known.as_mut().filter(|queue| queue.generation == generation) {
                collect_from(queue);
            }
        });
    }

    /// Stores the result of each sync of `queue` that has ended in its `Outcome`.
    fn collect_from(queue: &mut Queue) {
        loop {
            let mut events = [Event::default(); 8];
            // SAFETY: io_getevents(2) writes at most as many events as the buffer holds. With a
            // minimum of 0 events, it does not wait.
            let ended = unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    queue.id,
                    0 as c_long,
                    events.len() as c_long,
                    events.as_mut_ptr(),
                    ptr::null_mut::<libc::timespec>(),
                )
            };
            if ended < 0 && std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
                // A sandbox forbids the system call now, so the results of these syncs will never
                // be known.
                for (_, outcome) in queue.under_way.drain(..) {
                    outcome.code.store(-i64::from(libc::EPERM), Ordering::Release);
                }
                IS_FORBIDDEN.store(true, Ordering::Relaxed);
            }
            for event in events.iter().take(usize::try_from(ended).unwrap_or(0)) {
                queue.under_way.retain(|(number, outcome)| {
                    if *number == event.data {
                        outcome.code.store(event.result, Ordering::Release);
                    }
                    *number != event.data
                });
            }
            if ended < events.len() as c_long {
                return;
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod kernel {
    use std::sync::Arc;

    use super::Outcome;
    use crate::backend::file::os::system::OsFile;

    pub(super) fn begin(_: &OsFile) -> Option<Arc<Outcome>> {
        None
    }

    pub(super) fn collect() {}

    #[cfg(all(test, unix))]
    pub(super) fn forget_the_queue() {}
}

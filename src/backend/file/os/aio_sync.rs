//! Syncs that the kernel performs in the background, while the caller continues.
//!
//! This is asynchronous I/O of Linux: io_submit(2) with `IOCB_CMD_FDSYNC`, which is `fdatasync` in
//! a thread of the kernel. It needs no thread of this library, and one call per process to set it
//! up.
//!
//! Where it is not available (on other systems, in a sandbox that forbids it), no sync is begun,
//! and only checkpoints sync (`backfill.rs`). If too many syncs are in progress, a further one
//! fails.
//!
//! If the database is not a file of the system's VFS, that VFS performs the sync, somewhat later.
//! So the test disks of this library see what happens in between.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rusqlite::Connection;

use super::sqlite_file::{Opened, sync};
use super::system::OsFile;
use super::vfs;
use crate::atomic::AtomicI64;
use crate::fork;

/// Number of checks after which a sync is performed by a VFS that is not the system's.
const LOOKS: u8 = 2;

/// Pause between two checks of a sync.
const PAUSE: Duration = Duration::from_micros(100);

/// Sync of a file that the kernel performs in the background.
pub(in crate::backend::file) enum HandedOver {
    /// The sync has ended. The value tells whether it succeeded.
    Ended(bool),
    /// The kernel performs the sync.
    Kernel(Arc<Outcome>),
    /// The sync of this file is performed after this number of checks.
    Later(Opened, u8),
}

/// Result of a background sync, or [`NONE_YET`].
pub(in crate::backend::file) struct Outcome {
    code: AtomicI64,
    /// Fork generation of the process that began the sync. A forked child gets no results of its
    /// parent's syncs.
    generation: u32,
}

const NONE_YET: i64 = i64::MIN;

impl Outcome {
    /// Returns whether the sync succeeded; `None` while it is in progress.
    fn get(&self) -> Option<bool> {
        match self.code.load(Ordering::Acquire) {
            NONE_YET if self.generation == fork::generation() => None,
            code => Some(code == 0),
        }
    }
}

impl HandedOver {
    /// Begins a background sync of a file of a connection; `None` if the system offers no such
    /// sync.
    ///
    /// `file` is the same file, opened by this process. A sync for which there is no space in the
    /// queue fails at once.
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

    /// Returns whether the sync succeeded; `None` while it is in progress.
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

    /// Waits for the end of the sync. Returns `true` if it succeeded.
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

/// Makes the kernel's queue invalid, as if the kernel no longer answered for it.
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

    /// Maximum number of syncs of this process that are in progress.
    const MOST: c_long = 64;

    /// `IOCB_CMD_FDSYNC` (linux/aio_abi.h).
    const FDATASYNC: u16 = 3;

    /// `struct iocb` (linux/aio_abi.h). The order of fields that are always zero here may differ
    /// from the kernel's.
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

    /// `struct io_event`.
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Event {
        data: u64,
        request: u64,
        result: i64,
        result2: i64,
    }

    /// The kernel's queue of this process. It lives as long as the process, because the kernel
    /// takes milliseconds to free a queue.
    struct Queue {
        id: c_ulong,
        /// Fork generation of the process that created the queue. A forked child cannot use its
        /// parent's.
        generation: u32,
        /// Syncs in progress, with the numbers of their requests.
        under_way: Vec<(u64, Arc<Outcome>)>,
        next: u64,
    }

    static QUEUE: Mutex<Option<Queue>> = Mutex::new(None);

    /// Returns the queue of this process. Creates it if there is none.
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

    /// Whether the kernel no longer answers, because the process has entered a sandbox since.
    static IS_FORBIDDEN: AtomicBool = AtomicBool::new(false);

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
                // list. The kernel keeps the file open meanwhile.
                unsafe { libc::syscall(libc::SYS_io_submit, id, 1 as c_long, requests.as_mut_ptr()) == 1 }
            };
            let is_full = || std::io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN);
            let mut is_begun = submit();
            if !is_begun && is_full() {
                // Results of handles that were closed since may still fill the queue.
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

    /// Collects the results of all syncs of this process that have ended.
    pub(super) fn collect() {
        with_list(&QUEUE, |known| {
            let generation = fork::generation();
            if let Some(queue) = known.as_mut().filter(|queue| queue.generation == generation) {
                collect_from(queue);
            }
        });
    }

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
                // The calls have been forbidden meanwhile, so the results of these syncs will never
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

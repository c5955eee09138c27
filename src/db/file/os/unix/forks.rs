//! What happens around a fork (ADR 10).
//!
//! Before: the thread that forks takes every lock that a child could inherit locked and wait for, in the order in
//! which they are nested elsewhere. After, in both processes, it lets them go. In the child, first, every handle
//! becomes an inherited one, and every open file and mapping of SQLite's goes.
//!
//! The locks are: those of whoever sets the library up; SQLite's static mutexes; and the gate of the process's lists,
//! within which alone those are locked (`fork.rs`). Where the processor has no atomics of 64 bits, the child opens the lock
//! of those (`atomic.rs`). All other locks belong to a handle, and an inherited handle is refused before any of its locks is
//! touched.
//!
//! `vfork` and `posix_spawn` run no handlers, and need none: the child only calls `exec`, and all descriptors are
//! closed by that.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rusqlite::ffi;

use super::{files, maps};
use crate::atomic;
use crate::db::file::os::{SETTING_UP, is_set_up};
use crate::error::{Error, Result};
use crate::fork::{LISTS, begin_generation};

/// SQLite's mutexes that belong to no connection, in the order in which SQLite nests them (sqlite3.h, "Mutex Types").
const STATIC_MUTEXES: [c_int; 9] = [
    ffi::SQLITE_MUTEX_STATIC_OPEN,
    ffi::SQLITE_MUTEX_STATIC_MAIN,
    ffi::SQLITE_MUTEX_STATIC_LRU,
    ffi::SQLITE_MUTEX_STATIC_PMEM,
    ffi::SQLITE_MUTEX_STATIC_VFS1,
    ffi::SQLITE_MUTEX_STATIC_VFS2,
    ffi::SQLITE_MUTEX_STATIC_VFS3,
    ffi::SQLITE_MUTEX_STATIC_PRNG,
    ffi::SQLITE_MUTEX_STATIC_MEM,
];

/// 0; the process that registers the handlers just now; or [`WATCHED`].
static WATCHING: AtomicU32 = AtomicU32::new(0);
const WATCHED: u32 = u32::MAX;

/// The process that was last told of, by handlers or by hand.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Has the handlers called at each fork from now on.
pub(in crate::db::file::os) fn watch() -> Result<()> {
    let this = std::process::id();
    loop {
        match WATCHING.load(Ordering::Acquire) {
            WATCHED => return Ok(()),
            registering if registering == this => std::thread::sleep(Duration::from_micros(50)),
            // Nobody, or a thread of the parent, which is not in this process.
            other => {
                if WATCHING.compare_exchange(other, this, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                    continue;
                }
                PROCESS.store(this, Ordering::Relaxed);
                files::prepare_for_forks();
                // SAFETY: functions that live as long as the process; where this library can be unloaded, the C
                // library takes them out of its list then.
                let code = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
                WATCHING.store(if code == 0 { WATCHED } else { 0 }, Ordering::Release);
                if code != 0 {
                    return Err(Error::no_memory("out of memory while registering the fork handlers"));
                }
            }
        }
    }
}

extern "C" fn before() {
    SETTING_UP.shut();
    if is_set_up() {
        for mutex in STATIC_MUTEXES {
            // SAFETY: SQLite is set up; these mutexes live as long as the process.
            unsafe { ffi::sqlite3_mutex_enter(ffi::sqlite3_mutex_alloc(mutex)) };
        }
    }
    LISTS.shut();
}

extern "C" fn in_parent() {
    LISTS.open();
    leave_static_mutexes();
    SETTING_UP.open();
}

extern "C" fn in_child() {
    let_go();
    LISTS.open();
    leave_static_mutexes();
    SETTING_UP.open();
}

fn leave_static_mutexes() {
    if is_set_up() {
        for mutex in STATIC_MUTEXES.into_iter().rev() {
            // SAFETY: this thread, or the one it is a copy of, has entered it in `before`.
            unsafe { ffi::sqlite3_mutex_leave(ffi::sqlite3_mutex_alloc(mutex)) };
        }
    }
}

fn let_go() {
    atomic::let_go_after_fork(); // first: all else may use those numbers
    begin_generation();
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    files::let_go_after_fork();
    maps::let_go_after_fork();
}

/// For the child of a raw `clone` or `syscall(SYS_fork)`, which runs no handlers: makes the handles that are there
/// inherited ones. Does nothing in a process that knows. What other threads of the parent were inside of is lost.
pub(crate) fn note_fork() {
    if WATCHING.load(Ordering::Acquire) == WATCHED && PROCESS.load(Ordering::Relaxed) != std::process::id() {
        let_go();
    }
}

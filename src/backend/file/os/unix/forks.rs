//! Fork handlers (ADR 10).
//!
//! Before a fork, the forking thread takes every lock that a child could inherit in the locked
//! state and wait for. It takes them in the order in which they are nested elsewhere. After the
//! fork, both processes release them. Before the child does so, it marks every handle as inherited,
//! and detaches every open file and mapping of SQLite.
//!
//! The locks are:
//!
//! - the gate of the threads that set up the library;
//! - SQLite's static mutexes;
//! - the gate of the process's lists: those lists are locked only inside it (`fork.rs`).
//!
//! On a processor without 64-bit atomics, the child opens their lock (`atomic.rs`). All other locks
//! belong to a handle. An inherited handle is refused before any of its locks is touched.
//!
//! `vfork` and `posix_spawn` run no handlers, and need none: the child only calls `exec`, which
//! closes all descriptors.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rusqlite::ffi;

use super::{inherited, maps};
use crate::atomic;
use crate::backend::file::os::{SETTING_UP, is_set_up};
use crate::error::{Error, Result};
use crate::fork::{LISTS, begin_generation};

/// SQLite's mutexes that belong to no connection, in the order in which SQLite nests them
/// (sqlite3.h, "Mutex Types").
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

/// State of the registration: 0, the id of the process that is registering the handlers, or
/// [`WATCHED`].
static WATCHING: AtomicU32 = AtomicU32::new(0);
const WATCHED: u32 = u32::MAX;

/// Id of this process, as a handler of `pthread_atfork` or [`note_fork`] has recorded it.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Registers the handlers, which are called at each fork from now on.
pub(in crate::backend::file::os) fn watch() -> Result<()> {
    let this = std::process::id();
    loop {
        match WATCHING.load(Ordering::Acquire) {
            WATCHED => return Ok(()),
            registering if registering == this => std::thread::sleep(Duration::from_micros(50)),
            // No thread is registering, or a thread of the parent was, which is not in this
            // process.
            other => {
                if WATCHING.compare_exchange(other, this, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                    continue;
                }
                PROCESS.store(this, Ordering::Relaxed);
                inherited::prepare_for_forks();
                // SAFETY: the functions live as long as the process. Where this library can be
                // unloaded, the C library then removes them from its list.
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
            // SAFETY: SQLite is set up, and these mutexes live as long as the process.
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
            // SAFETY: this thread, or the thread that it is a copy of, has entered the mutex in
            // `before`.
            unsafe { ffi::sqlite3_mutex_leave(ffi::sqlite3_mutex_alloc(mutex)) };
        }
    }
}

fn let_go() {
    atomic::let_go_after_fork(); // first: the other functions may use these numbers
    begin_generation();
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    inherited::let_go_after_fork();
    maps::let_go_after_fork();
}

/// Detaches the child of a raw `clone` or `syscall(SYS_fork)`, which runs no handlers: existing
/// handles become inherited ones. Does nothing in a process that is known. The state of locks that
/// other threads of the parent held is lost.
pub(crate) fn note_fork() {
    if WATCHING.load(Ordering::Acquire) == WATCHED && PROCESS.load(Ordering::Relaxed) != std::process::id() {
        let_go();
    }
}

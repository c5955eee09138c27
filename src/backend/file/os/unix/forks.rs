//! Fork handlers (ADR 10).
//!
//! Before a fork, the forking thread takes every lock that a child could inherit in the locked
//! state and wait for, in the order in which these locks are nested elsewhere. After the fork, both
//! processes release the locks. Before the child does so, it marks every handle as inherited, and
//! makes every open file and mapping of SQLite unusable.
//!
//! The locks are:
//!
//! - the gate `SETTING_UP` of the threads that set up the library;
//! - the gate of the threads that call OpenSSL (`openssl.rs`);
//! - SQLCipher's mutexes;
//! - SQLite's static mutexes;
//! - the gate `LISTS` of the process-wide lists, which are locked only inside it (`fork.rs`).
//!
//! On architectures without 64-bit atomics, `atomic.rs` emulates them with a lock. The fork does
//! not take this lock; the child releases it. All other locks belong to a handle. A call on an
//! inherited handle fails before it touches a lock of the handle.
//!
//! `vfork` and `posix_spawn` run no fork handlers, and need none: their child only calls `exec`,
//! which closes all descriptors.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rusqlite::ffi;

use super::{inherited, maps};
use crate::atomic;
#[cfg(kvstore_openssl)]
use crate::backend::file::os::openssl;
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

/// SQLCipher's mutexes that belong to no connection, in the order in which SQLCipher nests them
/// (sqlcipher.c): `SQLCIPHER_MUTEX_PROVIDER`, `_PROVIDER_ACTIVATE`, `_PROVIDER_RAND` and `_MEM`. The
/// others are not used here.
#[cfg(feature = "encryption")]
const CIPHER_MUTEXES: [c_int; 4] = [0, 1, 2, 6];

#[cfg(feature = "encryption")]
unsafe extern "C" {
    fn sqlcipher_mutex(number: c_int) -> *mut ffi::sqlite3_mutex;
}

/// Returns the mutexes that belong to no connection, in the order in which they are nested. SQLite
/// must be set up.
fn mutexes() -> impl DoubleEndedIterator<Item = *mut ffi::sqlite3_mutex> {
    // SAFETY: SQLite and SQLCipher are set up, and these mutexes live as long as the process.
    let of_sqlite = STATIC_MUTEXES.into_iter().map(|kind| unsafe { ffi::sqlite3_mutex_alloc(kind) });
    #[cfg(feature = "encryption")]
    // SAFETY: as above.
    let of_sqlite = CIPHER_MUTEXES.into_iter().map(|n| unsafe { sqlcipher_mutex(n) }).chain(of_sqlite);
    of_sqlite
}

/// State of the registration of the fork handlers: 0 for none, the id of the process in which a
/// thread is registering them, or [`WATCHED`].
static WATCHING: AtomicU32 = AtomicU32::new(0);
/// Value of [`WATCHING`] once the fork handlers are registered.
const WATCHED: u32 = u32::MAX;

/// Id of this process. It is recorded when the fork handlers are registered, and in each forked
/// child.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Registers the fork handlers, once per process. The C library calls them at each fork from now
/// on.
///
/// # Errors
/// `NoMemory`.
pub(in crate::backend::file::os) fn watch() -> Result<()> {
    let this = std::process::id();
    loop {
        match WATCHING.load(Ordering::Acquire) {
            WATCHED => return Ok(()),
            registering if registering == this => std::thread::sleep(Duration::from_micros(50)),
            // Either no thread is registering the handlers, or a thread of the parent was when it
            // forked. That thread does not exist in this process.
            other => {
                if WATCHING.compare_exchange(other, this, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                    continue;
                }
                PROCESS.store(this, Ordering::Relaxed);
                inherited::prepare_for_forks();
                // SAFETY: the functions live as long as the process. If this library can be
                // unloaded, the C library removes them from its list at the unload.
                let code = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
                WATCHING.store(if code == 0 { WATCHED } else { 0 }, Ordering::Release);
                if code != 0 {
                    return Err(Error::no_memory("out of memory while registering the fork handlers"));
                }
            }
        }
    }
}

/// Fork handler that runs before a fork: takes all locks that a child could inherit.
extern "C" fn before() {
    SETTING_UP.shut();
    #[cfg(kvstore_openssl)]
    openssl::CALLS.shut();
    if is_set_up() {
        // SAFETY: the mutexes live as long as the process.
        mutexes().for_each(|mutex| unsafe { ffi::sqlite3_mutex_enter(mutex) });
    }
    LISTS.shut();
}

/// Fork handler that runs in the parent after a fork: releases the locks.
extern "C" fn in_parent() {
    LISTS.open();
    leave_mutexes();
    SETTING_UP.open();
}

/// Fork handler that runs in the child after a fork: makes inherited handles and files unusable,
/// and releases the locks.
extern "C" fn in_child() {
    let_go();
    LISTS.open();
    leave_mutexes();
    SETTING_UP.open();
}

/// Releases the mutexes that the handler `before` has taken.
fn leave_mutexes() {
    if is_set_up() {
        // SAFETY: the handler `before` has entered the mutexes, in this thread or in the parent's
        // thread of which this one is a copy.
        mutexes().rev().for_each(|mutex| unsafe { ffi::sqlite3_mutex_leave(mutex) });
    }
    #[cfg(kvstore_openssl)]
    openssl::CALLS.open();
}

/// Marks all handles as inherited, and makes the inherited descriptors and mappings unusable.
fn let_go() {
    atomic::let_go_after_fork(); // first: the other functions may use these numbers
    begin_generation();
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    inherited::let_go_after_fork();
    maps::let_go_after_fork();
}

/// Detects that this process is a child of a raw `clone` or `syscall(SYS_fork)`, which runs no fork
/// handlers. In such a child, marks all existing handles as inherited, and makes the inherited
/// files unusable. Otherwise does nothing. Locks that other threads of the parent held stay locked,
/// except that of `atomic.rs`.
pub(crate) fn note_fork() {
    if WATCHING.load(Ordering::Acquire) == WATCHED && PROCESS.load(Ordering::Relaxed) != std::process::id() {
        let_go();
    }
}

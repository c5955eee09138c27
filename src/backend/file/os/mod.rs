//! System layer: SQLite's interface to the operating system. Only this module knows descriptors and
//! handles.
//!
//! The parts that differ between systems are in two modules with the same interface. `unix/` gives
//! each open file a lock owner and an identity of its own (ADR 10). `windows/` relies on SQLite's
//! own VFS (ADR 24). This module imports one of them as `system`. They contain:
//!
//! - files that this library opens itself, in addition to SQLite (`OsFile`), their identity
//!   (`FileIdentity`) and their location (`FileLocation`);
//! - the mark that a process sets on a file that it has open (`Mark`);
//! - creation and renaming of files;
//! - fork handlers.
//!
//! The other modules are the same on all systems:
//!
//! - `process_lock.rs`: how processes that share a file detect each other;
//! - `sqlite_file.rs`: the files that a connection has open;
//! - `vfs.rs`: the VFS that opens them; `vfs/`: its methods;
//! - `wal_write_buffer.rs`: a buffer for WAL frames, which are written once a commit is complete;
//! - `wal_index.rs`: the shared memory of SQLite's WAL mode;
//! - `journal.rs`: a rollback journal that this library writes;
//! - `secure_delete.rs`: the unused bytes of a page, which the VFS overwrites;
//! - `refusal.rs`: the cause of a failed system call;
//! - `aio_sync.rs`: syncs that the kernel performs in the background;
//! - `busy.rs`: the wait for locks of other connections;
//! - `openssl.rs`: OpenSSL while the process exits or forks.
#![allow(unsafe_code)]
#![allow(clippy::unnecessary_cast)] // widths of integers differ between systems

mod aio_sync;
mod busy;
#[cfg(feature = "encryption")]
mod journal;
#[cfg(kvstore_openssl)]
mod openssl;
mod process_lock;
pub(super) mod refusal;
mod secure_delete;
mod sqlite_calls;
mod sqlite_file;
#[cfg(unix)]
mod unix;
pub(super) mod vfs;
mod wal_index;
mod wal_write_buffer;
#[cfg(windows)]
mod windows;
mod zeros;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;

pub(super) use aio_sync::HandedOver;
pub(super) use busy::BusyHandler;
#[cfg(feature = "encryption")]
pub(super) use journal::Journal;
pub(crate) use process_lock::Presence;
pub(super) use secure_delete::Pages;
pub(crate) use sqlite_calls::sqlite_version;
pub(super) use sqlite_calls::{WalFrames, checkpoint, data_version, reserved_bytes};
pub(super) use sqlite_file::{Opened, has_moved, keep_wal, read, sync, write};
#[cfg(feature = "encryption")]
pub(super) use sqlite_file::{length, truncate};
#[cfg(feature = "remote")]
pub(crate) use system::Mortal;
pub(crate) use system::{
    FileIdentity, is_at, make_like, note_fork, read_exact_at, rename_new, start_thread, sync_directory,
    sync_file,
};
pub(super) use system::{
    FileLocation, MAX_PATH, OsFile, State, coarse_ms, file_size_limit, free_space, is_forbidden_to_write,
    length_of_file, may_write,
};
#[cfg(feature = "encryption")]
pub(super) use system::{
    beyond_limit, make_private, names_at, names_of, open_to_outlive_its_name, open_what_is_there,
};
pub(super) use wal_index::{Begun, Header, Salts, WalIndex, frames};
pub(super) use wal_write_buffer::{
    FRAME_HEADER, WAL_HEADER, least_wal, length_of_wal, pointer_map_pages, reserve_least_wal,
};

#[cfg(unix)]
use unix as system;
#[cfg(windows)]
use windows as system;

use crate::error::{Error, Result};
use crate::fork::Gate;

/// Gate that each thread is inside while it sets up the library in `set_up`. A fork waits until no
/// thread is inside. `crate::fork::LISTS` cannot be used for this: setting up SQLite takes SQLite's
/// locks, and a thread inside `LISTS` must not wait for another thread.
static SETTING_UP: Gate = Gate::new();
/// Whether `set_up` has succeeded in this process, or before the fork in its parent.
static IS_SET_UP: AtomicBool = AtomicBool::new(false);

/// Initialises SQLite and replaces its system calls, once per process. Call this before a
/// connection is opened.
///
/// SQLite would initialise itself on first use, but it checks without a lock whether it is
/// initialised. Its system calls must be replaced before it opens its first file.
///
/// # Errors
/// `NoMemory` if SQLite cannot be initialised, or its system calls cannot be replaced. A later call
/// tries again.
pub(in crate::backend) fn set_up() -> Result<()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    if IS_SET_UP.load(Ordering::Acquire) {
        return Ok(());
    }
    system::watch_forks()?;
    let _inside = SETTING_UP.enter();
    let _alone = ONE_AT_A_TIME.lock();
    if !IS_SET_UP.load(Ordering::Relaxed) {
        // SQLCipher has not used OpenSSL yet.
        #[cfg(kvstore_openssl)]
        openssl::init();
        let conn = Connection::open_in_memory()
            .map_err(|e| Error::no_memory(format!("SQLite cannot be initialised: {e}")))?;
        #[cfg(kvstore_openssl)]
        openssl::wrap(&conn);
        drop(conn);
        if !system::install() {
            return Err(Error::no_memory("SQLite's system calls cannot be replaced"));
        }
        IS_SET_UP.store(true, Ordering::Release);
    }
    Ok(())
}

/// Returns `true` if `set_up` has initialised SQLite in this process, or before the fork in its
/// parent.
#[cfg_attr(not(unix), allow(dead_code, reason = "there are no forks"))]
fn is_set_up() -> bool {
    IS_SET_UP.load(Ordering::Acquire)
}

//! How SQLite meets the operating system here. The only room that knows descriptors and handles.
//!
//! What differs from system to system is in one of two rooms that offer the same: `unix/` (each open file with a lock
//! owner and an identity of its own, ADR 10) and `windows/` (ADR 24). Here they are called `system`: files beside SQLite's
//! (`OsFile`), which file it is (`FileIdentity`), where it is (`Place`), that a process has it open (`Mark`), new files and
//! their names, forks.
//!
//! The rest is the same everywhere: `presence.rs` how processes that share a file know of each other, `opened.rs` the files
//! a connection has open, `vfs.rs` the VFS that they are opened by, `vfs/` its methods, `frames.rs` what it keeps of a WAL
//! until a commit is whole, `wal_index.rs` what SQLite keeps in shared memory, `journal.rs` a journal that we write,
//! `wipe.rs` what of a page is unused, `refusal.rs` why the system has refused a call, `handed_over.rs` the syncs that the kernel makes meanwhile.
#![allow(unsafe_code)]
#![allow(clippy::unnecessary_cast)] // widths of integers differ between systems

mod busy;
mod frames;
mod handed_over;
#[cfg(feature = "encryption")]
mod journal;
mod opened;
#[cfg(kvstore_openssl)]
mod openssl;
mod presence;
pub(super) mod refusal;
#[cfg(unix)]
mod unix;
pub(super) mod vfs;
mod wal_index;
#[cfg(windows)]
mod windows;
mod wipe;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;

pub(super) use busy::set_busy_timeout;
pub(super) use frames::{FRAME_HEADER, WAL_HEADER};
pub(super) use handed_over::HandedOver;
#[cfg(feature = "encryption")]
pub(super) use journal::Journal;
pub(super) use opened::{Opened, has_moved, keep_wal, read, sync, write};
#[cfg(feature = "encryption")]
pub(super) use opened::{length, truncate};
pub(crate) use presence::Presence;
#[cfg(feature = "remote")]
pub(crate) use system::Mortal;
pub(crate) use system::{
    FileIdentity, is_at, make_like, note_fork, read_exact_at, rename_new, sync_directory, sync_file,
    with_signals_blocked,
};
pub(super) use system::{
    MAX_PATH, OsFile, Place, State, coarse_ms, free_space, is_forbidden_to_write, length_of_file, may_write,
};
#[cfg(feature = "encryption")]
pub(super) use system::{
    beyond_limit, make_private, names_at, names_of, open_to_outlive_its_name, open_what_is_there,
};
pub(super) use wal_index::{Begun, Header, Salts, WalIndex, frames};
pub(super) use wipe::Pages;

#[cfg(unix)]
use unix as system;
#[cfg(windows)]
use windows as system;

use crate::error::{Error, Result};
use crate::fork::Gate;

/// Inside are those who set the library up. A fork waits until nobody is. (Not the gate of the lists: setting
/// SQLite up takes locks of SQLite's, for which a thread inside that gate must not wait.)
static SETTING_UP: Gate = Gate::new();
static IS_SET_UP: AtomicBool = AtomicBool::new(false);

/// To be called before a connection is opened: SQLite sets itself up when it is used first, and looks without a
/// lock whether that is done; and its system calls are replaced before it opens its first file.
///
/// # Errors
/// `NoMemory`; the next call tries again.
pub(in crate::db) fn set_up() -> Result<()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    if IS_SET_UP.load(Ordering::Acquire) {
        return Ok(());
    }
    system::watch_forks()?;
    let _inside = SETTING_UP.enter();
    let _alone = ONE_AT_A_TIME.lock();
    if !IS_SET_UP.load(Ordering::Relaxed) {
        // Before SQLCipher uses it.
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

/// Whether SQLite has been set up by this library.
#[cfg_attr(not(unix), allow(dead_code, reason = "there are no forks"))]
fn is_set_up() -> bool {
    IS_SET_UP.load(Ordering::Acquire)
}

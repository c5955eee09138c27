//! How SQLite meets the operating system here: each open file with a lock owner and an identity of its own.
//!
//! SQLite's unix VFS locks with POSIX locks. These belong to the process: closing *any* descriptor of a file drops
//! all of them, also those of another copy of SQLite in the process (Python's `sqlite3`, a debugger); and a forked
//! child has none, while SQLite's memory says that it has. SQLite lets each of its system calls be replaced
//! (`xSetSystemCall`), and with nine of them replaced both traps are gone (ADR 10):
//!
//! - Locks are locks of the open file description (`F_OFD_*`), which exclude POSIX locks and each other, and which no
//!   close of another descriptor drops. Where they are refused (an old kernel, some file systems, other systems
//!   than Linux), a descriptor keeps POSIX locks; that is found out when it is opened, and never changes.
//! - SQLite shares one record of locks between all descriptors with the same device and inode. `fstat` answers
//!   another device each time, so each connection has a record, and the kernel alone tells two of them apart.
//! - Descriptors that may carry locks are not closed but parked for the next open of that file: closing one would
//!   drop the POSIX locks of another copy of SQLite.
//! - A forked child finds every inherited descriptor dead and every inherited mapping empty, and opens anew.
//!
//! `calls.rs` has the system calls, `files.rs` the list of open files, `lock.rs` the locks, `maps.rs` the mappings,
//! `forks.rs` what happens around a fork, `presence.rs` how processes that share a file know of each other, `opened.rs`
//! the files a connection has open, `place.rs` their directory and names, `vfs.rs` the
//! VFS that they are opened by, `frames.rs` what that keeps of a WAL until a commit is whole, `wal_index.rs` what SQLite
//! keeps in shared memory, `journal.rs` a journal that we write, `wipe.rs` what of a page is unused, `handed_over.rs` the syncs that the kernel makes meanwhile. The only room that knows
//! descriptors.
#![allow(unsafe_code)]
#![allow(clippy::unnecessary_cast)] // widths of integers differ between systems

mod calls;
mod files;
mod forks;
mod frames;
mod handed_over;
#[cfg(feature = "encryption")]
mod journal;
mod lock;
mod maps;
mod opened;
mod place;
mod presence;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
pub(super) mod vfs;
mod wal_index;
mod wipe;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;

pub(super) use files::OsFile;
pub(crate) use files::{FileIdentity, is_at};
pub(crate) use forks::note_fork;
pub(super) use frames::{FRAME_HEADER, WAL_HEADER};
pub(super) use handed_over::HandedOver;
#[cfg(feature = "encryption")]
pub(super) use journal::Journal;
pub(super) use opened::{Opened, has_moved, read, sync, write};
#[cfg(feature = "encryption")]
pub(super) use opened::{length, truncate};
pub(crate) use place::rename_new;
pub(super) use place::{Place, State, coarse_ms, is_forbidden_to_write, may_write};
pub(crate) use presence::Presence;
pub(super) use wal_index::{Begun, Header, Salts, WalIndex, frames};
pub(super) use wipe::Pages;

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
    forks::watch()?;
    let _inside = SETTING_UP.enter();
    let _alone = ONE_AT_A_TIME.lock();
    if !IS_SET_UP.load(Ordering::Relaxed) {
        Connection::open_in_memory()
            .map_err(|e| Error::no_memory(format!("SQLite cannot set itself up: {e}")))?;
        if !calls::install() {
            return Err(Error::no_memory("SQLite's system calls cannot be replaced"));
        }
        IS_SET_UP.store(true, Ordering::Release);
    }
    Ok(())
}

/// Whether SQLite has been set up by this library.
fn is_set_up() -> bool {
    IS_SET_UP.load(Ordering::Acquire)
}

//! Detection of files that were deleted, moved or replaced while a connection has them open.
//!
//! After the database was deleted, moved or replaced, writes would go to a file that no path leads
//! to. After the `-wal` or `-shm` file was deleted, the next process to open the store would not
//! share locks and commits with this one, and both would damage the file.
//!
//! The check of the database is one system call. It runs when the caller begins a read transaction
//! or commits a write transaction, and when the connection takes a snapshot that it keeps between
//! reads. Other calls run it at most every few milliseconds, because there can be hundreds of
//! thousands of calls in a second. The `-wal` and `-shm` files are checked at most every few
//! milliseconds by all calls. After a failed check, each call checks all files until a check
//! succeeds. An open also detects that one of these two files is missing (`open.rs`).

use std::cell::Cell;

use super::error::moved_away;
use super::os::{self, FileLocation};
use crate::error::{Error, Result};
use crate::hint::Hint;

/// Time, in milliseconds, for which a successful check of the database, the `-wal` and the `-shm`
/// file is not repeated. It is measured by a clock that may be 4 ms slow (10 ms on systems with
/// slow ticks).
const VALID: u64 = 5;

/// Location of the database file that a connection has open, with the time of the last check that
/// the database, the `-wal` and the `-shm` file are still there.
pub(super) struct Watched {
    pub(super) place: FileLocation,
    /// Time of the last check of the database, the `-wal` and the `-shm` file, by `os::coarse_ms`.
    /// `None` if that check failed, or before the first check.
    checked: Cell<Option<u64>>,
}

impl Watched {
    pub(super) fn new(place: FileLocation) -> Watched {
        Watched { place, checked: Cell::new(None) }
    }

    /// Makes later checks include the `-wal` and `-shm` files. Call this when the connection has
    /// them open.
    pub(super) fn watch_wal(&mut self) {
        self.place.watch_companions(&["-wal", "-shm"]);
    }

    /// Fails if the database is no longer at its path. Also checks the `-wal` and `-shm` files,
    /// unless their last successful check was less than `VALID` milliseconds ago.
    pub(super) fn check(&self) -> Result<()> {
        let now = os::coarse_ms();
        if self.is_valid(now) && self.place.is_kept() { Ok(()) } else { self.check_all(now) }
    }

    /// Fails if the database, its `-wal` or its `-shm` file is no longer at its path. Does nothing
    /// if the last successful check of these files was less than `VALID` milliseconds ago.
    #[inline]
    pub(super) fn check_now_and_then(&self) -> Result<()> {
        let now = os::coarse_ms();
        if self.is_valid(now) { Ok(()) } else { self.check_all(now) }
    }

    fn is_valid(&self, now: u64) -> bool {
        self.checked.get().is_some_and(|checked| now.wrapping_sub(checked) < VALID)
    }

    fn check_all(&self, now: u64) -> Result<()> {
        self.checked.set(None);
        if !self.place.is_kept() {
            return Err(moved_away());
        }
        if !self.place.are_companions_kept() {
            return Err(wal_gone());
        }
        self.checked.set(Some(now));
        Ok(())
    }
}

#[cold]
fn wal_gone() -> Error {
    Error::io(
        "the -wal or -shm file of the store was deleted or replaced while the store was open, so nothing \
        more is written to it",
    )
    .with_hint(Hint::OpenAgain)
}

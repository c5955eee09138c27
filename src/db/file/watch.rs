//! Whether the file of a connection is still the one that has its name. If it was deleted, moved or replaced while it
//! is open, what is written goes to a file nobody will find again, and what is read is what others no longer see.
//!
//! A look costs a system call. It is made when a transaction of the caller begins or commits and when a snapshot is
//! taken to be kept; and otherwise, where calls come by the hundred thousand in a second, now and then. After a look
//! that found it gone each call looks, until it is back.

use std::cell::Cell;

use super::connection::Db;
use super::os::{self, Place};
use crate::config::CheckpointMode;
use crate::error::{Error, Result};
use crate::hint::Hint;

/// How long a look may be put off, in milliseconds of a clock that may be 4 behind (10 on systems with slow ticks).
const NOW_AND_THEN: u64 = 5;

/// Location of the file of a connection, with the time of the last check.
pub(super) struct Watched {
    pub(super) place: Place,
    /// By `os::coarse_ms`. `None`: look with the next call.
    looked: Cell<Option<u64>>,
}

impl Watched {
    pub(super) fn new(place: Place) -> Watched {
        Watched { place, looked: Cell::new(None) }
    }

    fn look(&self, now: u64) -> Result<()> {
        let is_kept = self.place.is_kept();
        self.looked.set(is_kept.then_some(now));
        if is_kept { Ok(()) } else { Err(gone()) }
    }
}

/// Returns the error for a file that is no longer at its location.
#[cold]
pub(crate) fn gone() -> Error {
    Error::io("the file was deleted, moved or replaced while it was open, so nothing more is written to it")
        .with_hint(Hint::OpenAgain)
}

impl Db {
    /// Fails if the file is no longer at its location.
    pub(super) fn check_place(&self) -> Result<()> {
        let Some(watched) = &self.watched else { return Ok(()) };
        watched.look(os::coarse_ms())
    }

    /// Like `check_place`, but does nothing if the last check was only some milliseconds ago.
    #[inline]
    pub(super) fn check_place_now_and_then(&self) -> Result<()> {
        let Some(watched) = &self.watched else { return Ok(()) };
        let now = os::coarse_ms();
        match watched.looked.get() {
            Some(looked) if now.wrapping_sub(looked) < NOW_AND_THEN => Ok(()),
            _ => watched.look(now),
        }
    }

    /// To be called before the connection is closed. SQLite leaves a WAL alone when its file has another name by now:
    /// what is committed is to be in the file before that, wherever it is.
    pub(crate) fn before_close(&mut self) {
        if self.read_only || self.watched.as_ref().is_none_or(|watched| watched.place.is_kept()) {
            return;
        }
        if os::has_moved(&self.conn) {
            let _ = self.rollback(); // fails if there is nothing to roll back
            let _ = self.checkpoint(CheckpointMode::Truncate); // what fails here leaves the WAL as it is
        }
    }
}

//! Reading a cleanly closed store without creating files next to it. This is needed on a read-only
//! mount, on a full disk, and in a directory that this user may not write. It is also needed for a
//! file of another user, because new files next to it would belong to the wrong user.
//!
//! SQLite reads a file in WAL mode only if it can create the `-wal` and `-shm` files, or if it is
//! told that the file never changes (`immutable`). In the second case it takes no locks and looks
//! for no WAL.
//!
//! But a process with write permission can change the file. So each call examines the metadata of
//! the files before and after its reads: of the database, and of the files that SQLite creates next
//! to it before it writes. Data that was read during a change is not returned. After a change, the
//! file is opened again in its new state.

use super::connection::Db;
use super::engine::btree::BtreeConnection;
use super::error::moved_away;
use super::immutable_state::FileState;
use super::open;
use super::os;
use crate::backend::TransactionState;
#[cfg(feature = "encryption")]
use crate::config::Config;
use crate::error::{Error, Result};
use crate::hint::Hint;

impl Db {
    /// Prepares the connection for a read. Returns `true` if the result of the read must be passed
    /// to `after_reading`.
    #[inline]
    pub(crate) fn before_reading(&mut self) -> Result<bool> {
        if self.immutable.is_some() {
            return self.before_reading_immutable().map(|()| true);
        }
        if self.btree.is_none() {
            self.check_place_now_and_then()?; // the `btree` engine does it when it takes a snapshot
        }
        Ok(false)
    }

    #[cold]
    fn before_reading_immutable(&mut self) -> Result<()> {
        if self.has_changed(true)? {
            match self.transaction {
                // A failed write transaction was rolled back: it has no snapshot.
                TransactionState::None | TransactionState::Doomed(_) => self.open_anew()?,
                _ => return Err(self.lose_snapshot()),
            }
        }
        Ok(())
    }

    /// Returns `done`, the result of a call that has read an immutable store. Fails with `Busy` if
    /// the file changed during the call.
    #[cold]
    pub(crate) fn after_reading<R>(&mut self, done: Result<R>) -> Result<R> {
        // A change may also be the cause of an error.
        if self.has_changed(false)? { Err(self.lose_snapshot()) } else { done }
    }

    /// Returns `true` if the store may have changed since it was opened. `before`: the check runs
    /// before a call, not after it. The result is then also `true` if the store is not open, or if
    /// a change could have left the same metadata.
    fn has_changed(&self, before: bool) -> Result<bool> {
        let (Some(immutable), Some(watched)) = (&self.immutable, &self.watched) else { return Ok(false) };
        if immutable.seen.is_none() {
            return Ok(before);
        }
        let seen = FileState::at(&watched.place)?;
        if seen.file.map(|state| state.file()) != Some(watched.place.file()) {
            return Err(moved_away());
        }
        let unsure = before && immutable.fresh && self.transaction == TransactionState::None;
        Ok(unsure || Some(seen) != immutable.seen)
    }

    /// Marks the snapshot of the caller's read transaction, if one is open, as lost. Returns the
    /// error that the call fails with.
    fn lose_snapshot(&mut self) -> Error {
        let why = Error::busy("the file changed while it was being read").with_hint(Hint::Retry);
        if self.transaction == TransactionState::Read {
            self.transaction = TransactionState::Lost(why.clone());
        }
        why
    }

    /// Opens a store again whose connection was closed, with a new configuration. Later opens by
    /// this handle use it, too.
    #[cfg(feature = "encryption")]
    pub(super) fn open_with(&mut self, config: &Config) -> Result<()> {
        if let Some(immutable) = &mut self.immutable {
            immutable.config = config.clone();
        }
        self.open_anew()
    }

    /// Opens the file again in its current state, and replaces this connection by the new one.
    /// Fails if the file was moved, deleted or replaced.
    fn open_anew(&mut self) -> Result<()> {
        let Some(immutable) = &self.immutable else { return Ok(()) };
        // If the file was removed, opening would create another store there.
        if self.file_identity().is_some_and(|file| !os::is_at(&immutable.path, file)) {
            return Err(moved_away());
        }
        let mut db = open::open_again(&immutable.path, &immutable.config)?;
        if db.file_identity() != self.file_identity() {
            return Err(moved_away());
        }
        if let (Some(new), Some(before)) =
            (&mut db.btree, self.btree.as_ref().map(BtreeConnection::epoch).or(immutable.epoch))
        {
            new.follow(before);
        }
        std::mem::swap(&mut db.owner, &mut self.owner);
        std::mem::swap(&mut db.transaction, &mut self.transaction);
        *self = db;
        Ok(())
    }
}

//! Reading a cleanly closed store where nothing can be written: on a read-only mount, on a full
//! disk, in a directory of another user, or a file of another user, next to which this user must
//! not create files.
//!
//! SQLite reads a file in WAL mode only if it can create the `-wal` and `-shm` files, or if it is
//! told that the file never changes (`immutable`). In the second case it takes no locks and looks
//! for no WAL.
//!
//! But a process with write permission can change the file. So before and after each call the
//! metadata of the files is examined: that of the database, and that of the files which SQLite
//! creates next to it before it writes. Data that was read during a change is not returned. Then
//! the file is opened again in its new state.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::connection::Db;
use super::disk_reserve::SHARED_MEMORY;
#[cfg(kvstore_btree)]
use super::engine::btree::Direct;
use super::error::moved_away;
use super::open;
use super::os::{self, Place, State};
use crate::backend::TransactionState;
use crate::clock::system_now_ms;
use crate::config::{Config, JournalMode};
use crate::error::{Error, Result};
use crate::hint::Hint;

/// Longest tick of the clock of a file system. (On Linux it is usually some milliseconds.)
const TICK: Duration = Duration::from_millis(50);

/// Metadata of the files of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    file: Option<State>,
    wal: Option<State>,
    shared_memory: Option<State>,
    journal: Option<State>,
}

impl Seen {
    pub(super) fn at(place: &Place) -> Result<Seen> {
        let look = |suffix| {
            place
                .state(suffix)
                .map_err(|e| Error::io(format!("cannot read the status of the store's files: {e}")))
        };
        Ok(Seen {
            file: look("")?,
            wal: look("-wal")?,
            shared_memory: look("-shm")?,
            journal: look("-journal")?,
        })
    }

    /// Returns `true` if all content is in the database file and no process is writing.
    pub(super) fn is_closed(&self) -> bool {
        let is_empty = |state: Option<State>| state.is_none_or(|state| state.is_empty());
        // A process on a full disk may have left the beginning of a `-shm` file.
        let has_shared_memory = self.shared_memory.is_some_and(|state| state.size() >= SHARED_MEMORY);
        is_empty(self.journal) && is_empty(self.wal) && (self.wal.is_none() || !has_shared_memory)
    }

    /// Returns `true` if the WAL may contain commits.
    pub(super) fn has_frames(&self) -> bool {
        self.wal.is_some_and(|wal| !wal.is_empty())
    }

    /// Returns `true` if the file was changed so recently that another change could leave the same
    /// metadata.
    fn is_fresh(&self) -> bool {
        let now = Duration::from_millis(system_now_ms().unsigned_abs());
        self.file.is_some_and(|file| {
            let age = now.checked_sub(file.changed());
            age.is_some_and(|age| age < TICK)
        })
    }
}

/// State of a store that cannot be written, and how it was opened.
pub(super) struct Frozen {
    path: PathBuf,
    config: Config,
    /// Metadata of the files before they were opened. `None`: the store is not open, and the next
    /// call opens it.
    seen: Option<Seen>,
    /// Epoch of the table information that the previous connection cached.
    #[cfg(kvstore_btree)]
    epoch: Option<u32>,
    /// Whether another change could have left the same metadata.
    fresh: bool,
    /// Whether the file is in WAL mode.
    has_wal: bool,
}

impl Frozen {
    /// Creates the state of a store that was opened. `seen`: the metadata before it was opened.
    /// `has_wal`: whether the file is in WAL mode.
    pub(super) fn new(path: &Path, config: &Config, seen: Seen, has_wal: bool) -> Box<Frozen> {
        let (path, config) = (path.to_owned(), config.clone());
        Box::new(Frozen {
            path,
            config,
            seen: Some(seen),
            #[cfg(kvstore_btree)]
            epoch: None,
            fresh: seen.is_fresh(),
            has_wal,
        })
    }

    /// Creates the state of a store whose connection was closed, so that the next call opens it.
    /// `epoch`: that of the table information which the closed connection cached.
    #[cfg(feature = "encryption")]
    pub(super) fn to_be_opened(
        path: &Path,
        config: &Config,
        #[cfg(kvstore_btree)] epoch: Option<u32>,
    ) -> Box<Frozen> {
        let (path, config) = (path.to_owned(), config.clone());
        let has_wal = config.file.journal_mode == JournalMode::Wal;
        Box::new(Frozen {
            path,
            config,
            seen: None,
            #[cfg(kvstore_btree)]
            epoch,
            fresh: true,
            has_wal,
        })
    }

    #[cfg(all(feature = "encryption", kvstore_btree))]
    pub(super) fn epoch(&self) -> Option<u32> {
        self.epoch
    }

    /// Returns the journal mode that writers use. (SQLite reports none for an immutable file.)
    pub(super) fn journal_mode(&self) -> JournalMode {
        if self.has_wal { JournalMode::Wal } else { JournalMode::Delete }
    }
}

impl Db {
    /// Prepares the connection for a read. Returns `true` if `after_reading` must be called after
    /// the read.
    #[inline]
    pub(crate) fn before_reading(&mut self) -> Result<bool> {
        if self.frozen.is_some() {
            return self.before_reading_frozen().map(|()| true);
        }
        #[cfg(kvstore_btree)]
        let by_sql = self.direct.is_none();
        #[cfg(not(kvstore_btree))]
        let by_sql = true;
        if by_sql {
            self.check_place_now_and_then()?; // the `btree` engine does it when it takes a snapshot
        }
        Ok(false)
    }

    #[cold]
    fn before_reading_frozen(&mut self) -> Result<()> {
        if self.has_changed(true)? {
            if self.transaction != TransactionState::None {
                return Err(self.lose_snapshot());
            }
            self.open_anew()?;
        }
        Ok(())
    }

    /// Returns the result of a call that read a store in this state. Fails with `Busy` if the file
    /// changed during the call.
    #[cold]
    pub(crate) fn after_reading<R>(&mut self, done: Result<R>) -> Result<R> {
        // A change may also be the cause of an error.
        if self.has_changed(false)? { Err(self.lose_snapshot()) } else { done }
    }

    /// Returns `true` if the store may have changed since it was opened. `before`: whether the
    /// check is before a call. Then a change that left the same metadata counts as possible, too.
    fn has_changed(&self, before: bool) -> Result<bool> {
        let (Some(frozen), Some(watched)) = (&self.frozen, &self.watched) else { return Ok(false) };
        if frozen.seen.is_none() {
            return Ok(before);
        }
        let seen = Seen::at(&watched.place)?;
        if seen.file.map(|state| state.file()) != Some(watched.place.file()) {
            return Err(moved_away());
        }
        let unsure = before && frozen.fresh && self.transaction == TransactionState::None;
        Ok(unsure || Some(seen) != frozen.seen)
    }

    /// Ends the snapshot of the caller's read transaction. Returns the error for the call.
    fn lose_snapshot(&mut self) -> Error {
        let why = Error::busy("the file changed while it was being read").with_hint(Hint::Retry);
        if self.transaction == TransactionState::Read {
            self.transaction = TransactionState::Lost(why.clone());
        }
        why
    }

    /// Opens a store whose connection was closed, and uses this configuration from now on.
    #[cfg(feature = "encryption")]
    pub(super) fn open_with(&mut self, config: &Config) -> Result<()> {
        if let Some(frozen) = &mut self.frozen {
            frozen.config = config.clone();
        }
        self.open_anew()
    }

    /// Opens the file again and replaces this connection.
    fn open_anew(&mut self) -> Result<()> {
        let Some(frozen) = &self.frozen else { return Ok(()) };
        // If the file was removed, opening would create another store there.
        if self.file_identity().is_some_and(|file| !os::is_at(&frozen.path, file)) {
            return Err(moved_away());
        }
        #[cfg_attr(not(kvstore_btree), allow(unused_mut))]
        let mut db = open::open_again(&frozen.path, &frozen.config)?;
        if db.file_identity() != self.file_identity() {
            return Err(moved_away());
        }
        #[cfg(kvstore_btree)]
        if let (Some(new), Some(before)) =
            (&mut db.direct, self.direct.as_ref().map(Direct::epoch).or(frozen.epoch))
        {
            new.follow(before);
        }
        *self = db;
        Ok(())
    }
}

//! A cleanly closed store, read where nothing can be written: on a mount that is read-only, in a directory of somebody
//! else's, or a file of somebody else's, who is not to find files of this user beside it. SQLite reads a file in WAL
//! mode only if it can make the files beside it, or is told that the file never changes (`immutable`): then it takes no
//! locks and looks for no WAL.
//!
//! But somebody who may write there can change it. So before and after each call it is looked at from outside: the
//! file, and what SQLite makes beside it before it writes. What was read while it changed is not given out; then it
//! is opened anew, as it is by then.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::connection::Db;
#[cfg(kvstore_btree)]
use super::engine::btree::Direct;
use super::open;
use super::os::{self, Place, State};
use super::watch::gone;
use crate::clock::system_now_ms;
use crate::config::{Config, JournalMode};
use crate::db::TransactionState;
use crate::error::{Error, Result};
use crate::hint::Hint;

/// No file system's clock ticks less often (it is some milliseconds usually, on Linux).
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
        is_empty(self.journal) && is_empty(self.wal) && (self.wal.is_none() || self.shared_memory.is_none())
    }

    /// Whether another change would perhaps look the same.
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
    /// `None`: it is not open, and to be opened by the next call.
    seen: Option<Seen>,
    /// What was remembered of the tables by the connection before.
    #[cfg(kvstore_btree)]
    epoch: Option<u32>,
    fresh: bool,
    has_wal: bool,
}

impl Frozen {
    /// `seen`: from before it was opened. `has_wal`: whether the file is in WAL mode.
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

    /// A store that this connection has left, to be opened by the next call. `epoch`: of what was remembered of its tables.
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

    /// The way of journaling of those who may write. (To SQLite a file that never changes has none.)
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
            self.check_place_now_and_then()?; // the other engine does, when it takes a snapshot
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

    /// What a call has done that read a file which nobody can write.
    #[cold]
    pub(crate) fn after_reading<R>(&mut self, done: Result<R>) -> Result<R> {
        // It may also be why the call has failed.
        if self.has_changed(false)? { Err(self.lose_snapshot()) } else { done }
    }

    /// Whether the store may be another one than it was opened as. `before`: before a call, when a change that looks
    /// like none must be expected.
    fn has_changed(&self, before: bool) -> Result<bool> {
        let (Some(frozen), Some(watched)) = (&self.frozen, &self.watched) else { return Ok(false) };
        if frozen.seen.is_none() {
            return Ok(before);
        }
        let seen = Seen::at(&watched.place)?;
        if seen.file.map(|state| state.file()) != Some(watched.place.file()) {
            return Err(gone());
        }
        let unsure = before && frozen.fresh && self.transaction == TransactionState::None;
        Ok(unsure || Some(seen) != frozen.seen)
    }

    fn lose_snapshot(&mut self) -> Error {
        let why = Error::busy("the file changed while it was being read").with_hint(Hint::Retry);
        if self.transaction == TransactionState::Read {
            self.transaction = TransactionState::Lost(why.clone());
        }
        why
    }

    /// Opens a store that was left, with this configuration from now on.
    #[cfg(feature = "encryption")]
    pub(super) fn open_with(&mut self, config: &Config) -> Result<()> {
        if let Some(frozen) = &mut self.frozen {
            frozen.config = config.clone();
        }
        self.open_anew()
    }

    fn open_anew(&mut self) -> Result<()> {
        let Some(frozen) = &self.frozen else { return Ok(()) };
        // An open would make another one there.
        if self.file_identity().is_some_and(|file| !os::is_at(&frozen.path, file)) {
            return Err(gone());
        }
        #[cfg_attr(not(kvstore_btree), allow(unused_mut))]
        let mut db = open::open_again(&frozen.path, &frozen.config)?;
        if db.file_identity() != self.file_identity() {
            return Err(gone());
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

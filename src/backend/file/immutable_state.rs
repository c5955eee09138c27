//! State of a store that is read without creating files next to it (`immutable.rs`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::disk_reserve::SHARED_MEMORY;
use super::os::{FileLocation, State};
use crate::clock::system_now_ms;
use crate::config::{Config, JournalMode};
use crate::error::{Error, Result};

/// Maximum granularity of the time stamps of a file system: two changes of a file within this time
/// can get the same time stamp. (On Linux the granularity is usually some milliseconds.)
const TICK: Duration = Duration::from_millis(50);

/// Metadata of the database file and of the files that SQLite creates next to it; `None` for a file
/// that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileState {
    pub(super) file: Option<State>,
    pub(super) wal: Option<State>,
    pub(super) shared_memory: Option<State>,
    pub(super) journal: Option<State>,
}

impl FileState {
    pub(super) fn at(place: &FileLocation) -> Result<FileState> {
        let look = |suffix| {
            place
                .state(suffix)
                .map_err(|e| Error::io(format!("cannot read the status of the store's files: {e}")))
        };
        Ok(FileState {
            file: look("")?,
            wal: look("-wal")?,
            shared_memory: look("-shm")?,
            journal: look("-journal")?,
        })
    }

    /// Returns `true` if the store is cleanly closed: all content is in the database file, and no
    /// process is writing.
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

/// State of a store that is read without creating files next to it, and how it was opened.
pub(super) struct Immutable {
    pub(super) path: PathBuf,
    pub(super) config: Config,
    /// Metadata of the files before they were opened; `None` if the store is not open, so that the
    /// next call opens it.
    pub(super) seen: Option<FileState>,
    /// Version number of the table information that the previous connection of this handle has
    /// cached; `None` if there was no such connection. The next connection uses a higher number, so
    /// that the cached information counts as out of date.
    pub(super) epoch: Option<u32>,
    /// Whether the file had been changed so recently, when it was opened, that another change could
    /// leave the same metadata.
    pub(super) fresh: bool,
    /// Whether the file is in WAL mode.
    pub(super) has_wal: bool,
}

impl Immutable {
    /// Creates the state of a store that was opened. `seen`: the metadata before it was opened.
    /// `has_wal`: whether the file is in WAL mode.
    pub(super) fn new(path: &Path, config: &Config, seen: FileState, has_wal: bool) -> Box<Immutable> {
        let (path, config) = (path.to_owned(), config.clone());
        Box::new(Immutable { path, config, seen: Some(seen), epoch: None, fresh: seen.is_fresh(), has_wal })
    }

    /// Creates the state of a store whose connection was closed, so that the next call opens it.
    /// `epoch` is the epoch of the table information that the closed connection had cached.
    #[cfg(feature = "encryption")]
    pub(super) fn to_be_opened(path: &Path, config: &Config, epoch: Option<u32>) -> Box<Immutable> {
        let (path, config) = (path.to_owned(), config.clone());
        let has_wal = config.file.journal_mode == JournalMode::Wal;
        Box::new(Immutable { path, config, seen: None, epoch, fresh: true, has_wal })
    }

    #[cfg(feature = "encryption")]
    pub(super) fn epoch(&self) -> Option<u32> {
        self.epoch
    }

    /// Returns the journal mode that writers use. (SQLite reports none for an immutable file.)
    pub(super) fn journal_mode(&self) -> JournalMode {
        if self.has_wal { JournalMode::Wal } else { JournalMode::Delete }
    }
}

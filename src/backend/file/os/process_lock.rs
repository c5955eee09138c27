//! Detection of other processes that have a store open.
//!
//! Each process opens the database in addition to SQLite and sets a mark on it (`system::Mark`).
//! The mark is a lock on bytes that SQLite never locks, so other processes can detect it. Programs
//! that use SQLite without this library set no mark and are not detected.

use std::path::Path;
use std::sync::{Arc, Mutex, Weak};

use super::system::{FileIdentity, Mark, OsFile};
use crate::fork::{self, with_list};

/// Locks that this process has on open stores (`Presence`), one per database file.
static PRESENCES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// Entry of [`PRESENCES`]: lock of this process on one database file.
struct Entry {
    /// Identity of the database file.
    file: FileIdentity,
    /// Fork generation of the process that added the entry. An entry of another generation was
    /// inherited from the parent and is not valid.
    generation: u32,
    presence: Weak<Presence>,
}

/// Lock on a database file, by which other processes detect that this process has the store open.
/// It is released when this is dropped.
pub(crate) struct Presence {
    mark: Mark,
    file: OsFile,
}

impl Presence {
    /// Returns the lock of this process on the database file at a path, and takes it if the process
    /// does not have it. Returns `None` if the file cannot be opened or the lock cannot be taken,
    /// for example where file locks belong to the process.
    pub(crate) fn on(path: &Path) -> Option<Arc<Presence>> {
        Presence::with(OsFile::open(path, false, false).ok()?)
    }

    /// Returns the lock of this process on a database file that is already open, and takes it if
    /// the process does not have it. Returns `None` if the lock cannot be taken.
    pub(crate) fn with(file: OsFile) -> Option<Arc<Presence>> {
        let identity = file.identity().ok()?;
        let generation = fork::generation();
        // Upgrades only the entry of this file. If the upgraded reference of another entry were the
        // last one, dropping it would enter the gate `LISTS` a second time.
        let known = |presences: &mut Vec<Entry>| {
            let entry =
                presences.iter().find(|entry| (entry.file, entry.generation) == (identity, generation))?;
            entry.presence.upgrade()
        };
        if let Some(presence) = with_list(&PRESENCES, known) {
            return Some(presence);
        }
        let made = Arc::new(Presence { mark: Mark::on(&file)?, file });
        // Keeps only one lock per file in this process. A second one would look like another
        // process.
        with_list(&PRESENCES, |presences| {
            presences.retain(|entry| entry.presence.strong_count() > 0);
            Some(known(presences).unwrap_or_else(|| {
                presences.push(Entry { file: identity, generation, presence: Arc::downgrade(&made) });
                Arc::clone(&made)
            }))
        })
    }

    /// Returns `true` if this process or another one has the database file at a path open through
    /// this library. Returns `false` also if that cannot be determined, because the lock on the
    /// file cannot be taken.
    pub(crate) fn is_on(path: &Path) -> bool {
        Presence::on(path).is_some_and(|presence| Arc::strong_count(&presence) > 1 || !presence.is_alone())
    }

    /// Returns the open database file that carries the lock.
    pub(in crate::backend::file) fn file(&self) -> &OsFile {
        &self.file
    }

    /// Returns `true` if no other process has the store open through this library.
    pub(crate) fn is_alone(&self) -> bool {
        self.mark.is_alone(&self.file)
    }
}

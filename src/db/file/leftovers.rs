//! What SQLite leaves beside a store that was opened for reading only: a -wal without content, and a -shm. Who has the
//! database open for writing removes both with the last close; who reads cannot take the lock for that.

use std::path::{Path, PathBuf};

use super::connection::beside;
use super::disk_space::is_nearly_full;
use super::os::{FileIdentity, OsFile, Place};
use crate::config::DEFAULT_PAGE_SIZE;

/// Removes them when it is dropped, which must be after the connection is closed.
pub(super) struct Leftovers {
    path: PathBuf,
    file: FileIdentity,
}

impl Leftovers {
    /// Of a store at a path without symbolic links.
    pub(super) fn of(path: &Path, file: FileIdentity) -> Leftovers {
        Leftovers { path: path.to_owned(), file }
    }

    /// Does nothing where this process may not write the database, or its locks belong to the process.
    fn remove(&self) {
        if is_nearly_full(&self.path, u64::from(DEFAULT_PAGE_SIZE)) {
            return; // the next open may have no space for new ones
        }
        let is_there = |suffix| std::fs::symlink_metadata(beside(&self.path, suffix)).is_ok();
        if !is_there("-wal") && !is_there("-shm") {
            return;
        }
        // SQLite locks a database before it opens or makes one of these, and as long as it has them open: while others
        // are kept out, nobody has one, and nobody begins to.
        let (Ok(database), Ok(place)) = (OsFile::open(&self.path, true, false), Place::of(&self.path)) else {
            return;
        };
        let is_same = place.file() == self.file && database.identity().is_ok_and(|file| file == self.file);
        if is_same
            && database.keeps_others_out()
            && place.state("-wal").is_ok_and(|wal| wal.is_none_or(|wal| wal.is_empty()))
            && place.remove("-shm").is_ok()
        {
            let _ = place.remove("-wal"); // an empty one says nothing
        }
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        self.remove();
    }
}

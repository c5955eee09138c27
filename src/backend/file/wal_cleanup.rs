//! Cleanup of the files that SQLite leaves next to a store that was opened read-only: an empty
//! `-wal` and a `-shm` file. A connection that may write removes both files at the last close. A
//! read-only connection cannot take the lock for that. An open that fails on a full disk leaves the
//! files, too.

use std::path::{Path, PathBuf};

use super::disk_reserve::{SHARED_MEMORY, is_nearly_full};
use super::os::{FileIdentity, FileLocation, OsFile};
use crate::config::DEFAULT_PAGE_SIZE;
use crate::location::sibling;

/// Guard that removes the `-wal` and `-shm` files of a store when it is dropped. It must be dropped
/// after the connection is closed.
pub(super) struct Leftovers {
    path: PathBuf,
    file: FileIdentity,
}

impl Leftovers {
    /// Creates the guard for the store at `path`, which must not contain symbolic links. `file` is
    /// the identity of the database.
    pub(super) fn of(path: &Path, file: FileIdentity) -> Leftovers {
        Leftovers { path: path.to_owned(), file }
    }

    /// Removes the `-wal` and `-shm` files if no other connection uses the store. Does nothing if
    /// this process may not write the database, or if file locks belong to the process instead of
    /// to an open file.
    fn remove(&self) {
        let length =
            |suffix| std::fs::symlink_metadata(sibling(&self.path, suffix)).ok().map(|file| file.len());
        let (wal, shared_memory) = (length("-wal"), length("-shm"));
        if wal.is_none() && shared_memory.is_none() {
            return;
        }
        // On a nearly full disk, complete files are kept, because the next open may have no space
        // for new ones. Incomplete files, left by an open that failed for lack of space, are
        // removed.
        let is_complete = wal.is_some() && shared_memory.is_some_and(|length| length >= SHARED_MEMORY);
        if is_complete && is_nearly_full(&self.path, u64::from(DEFAULT_PAGE_SIZE)) {
            return;
        }
        // SQLite locks a database before it opens or creates these files, and as long as it has
        // them open. So while this lock excludes all connections, none has the files open, and none
        // can open them.
        let (Ok(database), Ok(place)) = (OsFile::open(&self.path, true, false), FileLocation::of(&self.path))
        else {
            return;
        };
        let is_same = place.file() == self.file && database.identity().is_ok_and(|file| file == self.file);
        if is_same
            && database.keeps_others_out()
            && place.state("-wal").is_ok_and(|wal| wal.is_none_or(|wal| wal.is_empty()))
            && place.remove("-shm").is_ok()
        {
            let _ = place.remove("-wal"); // an empty WAL contains no commit
        }
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        self.remove();
    }
}

//! State of the disk space that a connection reserves, and checks of the free space.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use super::os::{self, OsFile};

/// State of the disk blocks that a connection reserves for its file.
#[derive(Default)]
pub(super) struct DiskSpace {
    /// Whether this connection reserves disk blocks before its commits.
    pub(super) is_used: Cell<bool>,
    /// Number of pages of the database at the last commit.
    pub(super) pages: Cell<u32>,
    /// Number of pages for which disk blocks are reserved, including spare pages beyond the end of
    /// the database; 0 if that is not known.
    pub(super) reserved: Cell<u32>,
    /// Whether the last write failed because the disk was full.
    pub(super) is_full: Cell<bool>,
    /// Whether the next write transaction first releases the blocks that are reserved beyond the
    /// end of the database, so that its rollback journal can use their space.
    pub(super) gives_back: Cell<bool>,
    /// Whether the open write transaction makes the database longer.
    pub(super) grows: Cell<bool>,
}

/// Size of the first region of a `-shm` file, in bytes (`WALINDEX_PGSZ` in SQLite's wal.c). A
/// shorter `-shm` file is not in use: the connection that created it failed to extend it to this
/// size.
pub(super) const SHARED_MEMORY: u64 = 32_768;

/// Returns `true` if the disk of the store at `path` may lack the space for new `-wal` and `-shm`
/// files.
pub(super) fn is_nearly_full(path: &Path, page_size: u64) -> bool {
    let length = os::length_of_file(path).ok().flatten().unwrap_or(0);
    let needed = 2 * SHARED_MEMORY + os::least_wal(page_size, length / page_size.max(1));
    os::free_space(path).is_some_and(|free| free < needed)
}

/// Returns `true` if the disk of the store at `path` lacks the space for a new `-shm` file.
pub(super) fn lacks_space_for_shared_memory(path: &Path) -> bool {
    os::free_space(path).is_some_and(|free| free < SHARED_MEMORY)
}

impl DiskSpace {
    /// Returns `true` if the last write failed because the disk was full.
    pub(super) fn is_full(&self) -> bool {
        self.is_full.get()
    }
}

/// WAL file that stays after the close of a connection because the disk is nearly full.
///
/// The close truncates the WAL, which frees its blocks. When this guard is dropped, it reserves
/// blocks for the WAL again, before another program uses them. It must be dropped after the
/// connection.
pub(super) struct KeptWal {
    pub(super) path: PathBuf,
    pub(super) page_size: u64,
    pub(super) pages: u32,
}

impl Drop for KeptWal {
    fn drop(&mut self) {
        if let Ok(wal) = OsFile::open(&self.path, true, false) {
            os::reserve_least_wal(&wal, self.page_size, self.pages.into());
        }
    }
}

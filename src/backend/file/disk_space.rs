//! Reserves disk space for what a store needs when the disk is full (ADR 31).
//!
//! - In WAL mode a commit first writes to the WAL. If the checkpoint could not make the database
//!   longer, the WAL could not start over, and no write could succeed. So before a commit the file
//!   system reserves the blocks of all pages of the database.
//! - A write on a full disk is tried again after a checkpoint: the WAL starts over, in the space
//!   that it has. Opening the store reserves space for some frames in the WAL.
//! - A close on a full disk leaves the `-wal` and `-shm` files, which the next open needs.
//! - In DELETE mode the rollback journal needs space. Some spare blocks after the end of the
//!   database are reserved, and released for a write on a full disk.
//!
//! None of this works on a file system that cannot reserve blocks (`fallocate`), or on systems
//! other than Linux.

use std::path::Path;

use super::checkpoint_schedule::MIN_WAIT;
use super::connection::Db;
use super::disk_reserve::{KeptWal, SHARED_MEMORY, is_nearly_full};
use super::os::refusal::Refusal;
use super::os::{self, OsFile};
use crate::backend::TransactionState;
use crate::config::{CheckpointMode, JournalMode};
use crate::error::{Error, Result};
use crate::hint::Hint;
use crate::location::sibling;

/// Minimum number of spare pages: pages beyond the end of the database whose disk blocks are
/// reserved.
const MIN_SPARE: u32 = 12;
/// Maximum number of spare pages, whose disk blocks are reserved beyond the end of the database. If
/// the pages are small, their number may be greater, up to a total size of `MAX_SPARE_BYTES` bytes.
const MAX_SPARE: u32 = 64;
/// Total size of the spare pages, in bytes, up to which there may be more of them than `MAX_SPARE`.
const MAX_SPARE_BYTES: u64 = 256 << 10;
/// Number of pages of the database for each spare page that is reserved beyond its end.
const PAGES_PER_SPARE: u32 = 4;
/// Number of pages of the database for each spare page that is reserved beyond its end, for secure
/// deletion in DELETE mode. The rollback journal then also gets the content of each page that is
/// deleted.
const PAGES_PER_SPARE_TO_WIPE: u32 = 8;
/// Maximum total size, in bytes, of the spare pages that are reserved beyond the end of the
/// database for secure deletion in DELETE mode.
const MAX_SPARE_TO_WIPE: u64 = 16 << 20;

impl Db {
    /// Turns on the reservation of disk blocks, after a store was opened for writing. Also limits
    /// the size of the database to the maximum size of files that the process may write.
    pub(super) fn begin_reserving(&self, has_wal: bool) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let (pages, _) = self.size_in_pages()?;
        self.disk_space.pages.set(pages);
        self.disk_space.is_used.set(true);
        let page_size = self.page_size()?;
        if let Some(bytes) = os::file_size_limit() {
            // Otherwise commits could fill the WAL with pages that no checkpoint may copy.
            let most = u32::try_from(bytes / page_size.max(1)).unwrap_or(u32::MAX);
            self.limit_pages(most.min(u32::MAX - 1).max(pages))?;
        }
        if has_wal && let Ok(wal) = OsFile::open(&sibling(path, "-wal"), true, false) {
            os::reserve_least_wal(&wal, page_size, pages.into());
        }
        Ok(())
    }

    /// Reserves the disk blocks of the pages that the open write transaction adds, before its
    /// commit.
    ///
    /// # Errors
    /// `Full` if the disk has too few free blocks.
    #[inline]
    pub(super) fn reserve_pages(&self) -> Result<()> {
        let space = &self.disk_space;
        if !space.is_used.get() {
            return Ok(());
        }
        let pages = self.pages_in_transaction()?;
        let before = space.pages.replace(pages);
        if pages < before {
            space.reserved.set(space.reserved.get().min(pages)); // the file was truncated
        }
        if pages <= before {
            return Ok(());
        }
        self.reserve_more(pages).inspect_err(|_| space.pages.set(before))?;
        space.grows.set(true);
        Ok(())
    }

    /// Reserves disk blocks beyond the end of the database again, after a commit that made the
    /// database longer.
    #[inline]
    pub(super) fn keep_spare_blocks(&self) {
        if self.disk_space.grows.replace(false) {
            self.reserve_again();
        }
    }

    /// Reserves disk blocks beyond the end of the database again, in DELETE mode. There, commits
    /// and rollbacks free these blocks when they cut off the unused end of the file.
    #[cold]
    fn reserve_again(&self) {
        let space = &self.disk_space;
        if space.is_used.get() && matches!(self.journal_mode(), Ok(Some(JournalMode::Delete))) {
            space.reserved.set(0);
            // An error is ignored: a commit that makes the database longer would report it.
            let _ = self.reserve_more(space.pages.get());
        }
    }

    /// Reserves the disk blocks of the first `pages` pages of the file, and blocks of spare pages
    /// after them if the disk has space.
    #[cold]
    fn reserve_more(&self, pages: u32) -> Result<()> {
        let space = &self.disk_space;
        let is_wal = self.journal_mode()? == Some(JournalMode::Wal);
        let page_size = self.page_size()?;
        let pages_of = |bytes: u64| u32::try_from(bytes / page_size.max(1)).unwrap_or(u32::MAX);
        let max_spare = MAX_SPARE.max(pages_of(MAX_SPARE_BYTES));
        // Half of the spare pages must have space for the rollback journal of a removal.
        let least = 2 * (MIN_SPARE + os::pointer_map_pages(page_size, pages.into()));
        let mut spare = (pages / PAGES_PER_SPARE).clamp(MIN_SPARE, max_spare.max(least));
        if self.secure_delete && !is_wal {
            spare = spare.max((pages / PAGES_PER_SPARE_TO_WIPE).min(pages_of(MAX_SPARE_TO_WIPE)));
        }
        // Not beyond the size limit of the store.
        let most = self.limit_in_pages().map_or(u32::MAX, |limit| limit.max(pages));
        let wanted = (pages + spare).min(most);
        // In WAL mode removals use the space of the WAL file, so spare blocks are optional.
        let least = if is_wal { pages } else { (pages + (spare / 2).max(MIN_SPARE)).min(most) };
        if space.reserved.get() >= least {
            return Ok(());
        }
        let (Some(path), Some(watched)) = (&self.path, &self.watched) else { return Ok(()) };
        let Ok(file) = OsFile::open(path, true, false) else { return Ok(()) };
        if file.identity().ok() != Some(watched.place.file()) {
            return Ok(()); // the file was replaced, which the next check of its location reports
        }
        let mut last = Ok(false);
        for wanted in [wanted, least] {
            last = file.reserve(u64::from(wanted) * page_size);
            if let Ok(true) = last {
                space.reserved.set(wanted);
                return Ok(());
            }
        }
        match last {
            Err(e) => Err(Refusal::for_space(&e).unwrap_or(Refusal::Space).error()),
            Ok(_) => {
                space.is_used.set(false); // this file system cannot reserve blocks
                Ok(())
            }
        }
    }

    /// Returns the number of pages of the database, in the open write transaction.
    fn pages_in_transaction(&self) -> Result<u32> {
        if let Some(btree) = &self.btree {
            return Ok(btree.pages());
        }
        Ok(self.size_in_pages()?.0)
    }

    /// Records in `disk_space` that the disk is full, if the error `why` of a write means that.
    pub(super) fn note_full_disk(&self, why: &Error) {
        if why.hint() == Some(Hint::FreeDiskSpace) {
            self.disk_space.is_full.set(true);
            self.reserve_again();
        }
    }

    /// Tries to free disk space after a write has failed with the error `why`. Returns `true` if a
    /// retry of the write may succeed.
    #[cold]
    pub(crate) fn make_disk_space_after(&mut self, why: &Error) -> bool {
        self.note_full_disk(why);
        self.make_disk_space()
    }

    /// Tries to free disk space if the last write has failed because the disk was full. Returns
    /// `true` if a retry of that write may succeed. Returns `false` otherwise, also if the write
    /// did not fail for this reason.
    #[cold]
    pub(super) fn make_disk_space(&mut self) -> bool {
        if !self.disk_space.is_full.replace(false)
            || self.read_only
            || self.path.is_none()
            || self.transaction != TransactionState::None
        {
            return false;
        }
        match self.journal_mode() {
            Ok(Some(JournalMode::Wal)) => self.checkpoint_within(CheckpointMode::Restart, MIN_WAIT).is_ok(),
            Ok(Some(JournalMode::Delete)) => {
                self.disk_space.gives_back.set(true);
                true
            }
            _ => false,
        }
    }

    /// Makes the close of the connection keep the `-wal` and `-shm` files if the disk is nearly
    /// full, because the next open may have no space to create them. The WAL that is kept is empty.
    /// An incomplete `-shm` file, left by an open that failed for lack of space, is not worth
    /// keeping.
    pub(super) fn keep_wal_if_nearly_full(&mut self) {
        let is_begun =
            |shm: &Path| matches!(os::length_of_file(shm), Ok(Some(length)) if length < SHARED_MEMORY);
        if let Some(path) = &self.path
            && self.immutable.is_none()
            && !is_begun(&sibling(path, "-shm"))
            && matches!(self.journal_mode(), Ok(Some(JournalMode::Wal)))
            && let Ok(page_size) = self.page_size()
            && is_nearly_full(path, page_size)
        {
            os::keep_wal(&self.conn);
            let pages = self.disk_space.pages.get();
            self.kept_wal = Some(KeptWal { path: sibling(path, "-wal"), page_size, pages });
        }
    }

    /// Releases the disk blocks that are reserved beyond the end of the database, if
    /// `make_disk_space` has requested that. Call this at the beginning of a write transaction,
    /// during which no other connection can make the database longer.
    #[inline]
    pub(super) fn give_spare_blocks_back(&self) {
        if self.disk_space.gives_back.replace(false)
            && let Some(path) = &self.path
            && let Ok(file) = OsFile::open(path, true, false)
            && file.identity().ok() == self.file_identity()
        {
            file.give_reserved_back();
            self.disk_space.reserved.set(0);
        }
    }
}

//! Checkpoints: when one is due, and how the content of the WAL is copied into the database. Which
//! handle or thread runs one is decided in the layers above.
//!
//! Where possible, the WAL is copied into the database while it grows (`backfill.rs`). An automatic
//! checkpoint then has little left to copy. It syncs the WAL and the database, and the WAL starts
//! over.

use std::time::{Duration, Instant};

use rusqlite::ffi;

use super::checkpoint_schedule::{MAX_WAIT, MIN_WAIT, WalLimit};
use super::connection::Db;
use super::error::translate;
use super::os::{self, WalIndex};
use crate::backend::TransactionState;
use crate::config::{CheckpointMode, JournalMode};
use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::wait;

/// Maximum time that a checkpoint waits for readers which have already kept the WAL from starting
/// over. It is given per frame by which the WAL grows between two attempts, and must be short
/// compared with the time for writing these frames.
const WAIT_FOR_A_FRAME: Duration = Duration::from_micros(100);
/// Pause between two checks whether a checkpoint that another connection runs has ended.
const PAUSE: Duration = Duration::from_millis(1);

impl Db {
    /// Copies the frames of the WAL into the database file, and waits for other connections for at
    /// most the busy timeout. Returns the length of the WAL, in frames, and the number of its
    /// frames that are in the database afterwards.
    pub(crate) fn checkpoint(&mut self, mode: CheckpointMode) -> Result<(u32, u32)> {
        self.checkpoint_within(mode, self.busy_timeout)
    }

    /// Copies the frames of the WAL into the database file, and waits for other connections for at
    /// most `wait`. Returns the length of the WAL, in frames, and the number of its frames that are
    /// in the database afterwards.
    pub(crate) fn checkpoint_within(&mut self, mode: CheckpointMode, wait: Duration) -> Result<(u32, u32)> {
        self.release_other_snapshots();
        self.set_busy_timeout(wait)?;
        let done = self.run_checkpoint(mode);
        self.set_busy_timeout(self.busy_timeout)?;
        done
    }

    fn run_checkpoint(&mut self, mode: CheckpointMode) -> Result<(u32, u32)> {
        if self.transaction != TransactionState::None {
            return Err(Error::busy("a transaction is open on this handle, so no checkpoint can run")
                .with_hint(Hint::EndTransaction));
        }
        self.stop_writing_back();
        let (log, done) = self.run_sqlites_checkpoint(mode)?;
        let is_cut = log == done && mode != CheckpointMode::Truncate && self.wipe_wal()?;
        let mode = if is_cut { CheckpointMode::Truncate } else { mode };
        self.checkpoints.done(if is_cut { 0 } else { log });
        if matches!(mode, CheckpointMode::Restart | CheckpointMode::Truncate) {
            self.checkpoints.begins_anew(); // no reader keeps the WAL from starting over
        }
        if log == done {
            self.wal_frames.set(0);
        }
        Ok((log, done))
    }

    /// Truncates the WAL if deleted data must be overwritten and no connection reads from the WAL.
    /// Returns `true` if it was truncated. All content of the WAL must be in the database.
    ///
    /// If a connection reads from the WAL, the commit with which the WAL starts over truncates it
    /// (`set_length_of_wal`).
    fn wipe_wal(&self) -> Result<bool> {
        if !self.secure_delete {
            return Ok(false);
        }
        self.set_busy_timeout(Duration::ZERO)?; // the caller of `run_checkpoint` restores it
        match self.run_sqlites_checkpoint(CheckpointMode::Truncate) {
            Ok(_) => Ok(true),
            Err(e) if e.is_retryable() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Ends the background copying of a part of the WAL into the database, if a part is in
    /// progress.
    pub(super) fn stop_writing_back(&mut self) {
        if let Some(write_back) = &mut self.checkpoints.write_back {
            write_back.stop(&self.conn);
        }
    }

    /// Runs a checkpoint by SQLite's own function. Returns the length of the WAL, in frames, and
    /// the number of its frames that are in the database afterwards; (0, 0) outside WAL mode.
    fn run_sqlites_checkpoint(&self, mode: CheckpointMode) -> Result<(u32, u32)> {
        let mode = match mode {
            CheckpointMode::Passive => ffi::SQLITE_CHECKPOINT_PASSIVE,
            CheckpointMode::Full => ffi::SQLITE_CHECKPOINT_FULL,
            CheckpointMode::Restart => ffi::SQLITE_CHECKPOINT_RESTART,
            CheckpointMode::Truncate => ffi::SQLITE_CHECKPOINT_TRUNCATE,
        };
        let (log, done) = os::checkpoint(self.switch_to_sql()?, mode).map_err(translate)?;
        // Outside WAL mode, SQLite returns -1 and -1.
        Ok((log.max(0).unsigned_abs(), done.max(0).unsigned_abs()))
    }

    /// Computes the target length of the WAL, and the length to which SQLite truncates the WAL file
    /// when the WAL starts over. `limit` is the size limit of the store, in pages; `None` if it has
    /// none.
    #[cold]
    pub(super) fn set_length_of_wal(&mut self, limit: Option<u32>) -> Result<()> {
        let page_size = self.page_size()?.max(1);
        let space = self.path.as_deref().and_then(os::free_space).map(|bytes| bytes / page_size);
        let checkpoints = &mut self.checkpoints;
        checkpoints.for_limit = limit;
        checkpoints.limit = WalLimit::of(checkpoints.given, checkpoints.default, limit, space);
        checkpoints.at = checkpoints.first();
        let most = checkpoints.limit.most();
        if let Some(btree) = &mut self.btree {
            btree.set_long(most);
        }
        if self.secure_delete {
            os::vfs::keep_wal_space(&self.conn, page_size)?;
            // This also applies to a rollback journal that is kept, as in an exclusive store: it is
            // truncated to zero bytes.
            return self.limit_wal(0);
        }
        // A truncation also frees the blocks that are reserved beyond the end of the file.
        let length = self.path.as_deref().and_then(|path| os::length_of_file(path).ok().flatten());
        let least = os::least_wal(page_size, length.unwrap_or(0) / page_size);
        self.limit_wal(os::length_of_wal(page_size, most).max(least))
    }

    /// Returns the maximum length of the WAL, in frames. The WAL becomes longer only if readers
    /// keep it from starting over.
    pub(super) fn most_frames(&self) -> u32 {
        self.checkpoints.limit.most()
    }

    /// Updates the data that decides when the next checkpoint runs. Call this after each write
    /// commit.
    pub(crate) fn note_commit(&mut self) {
        let limit = self.limit_in_pages();
        if limit != self.checkpoints.for_limit {
            // The size limit was changed, by this write or by another connection. A failure is
            // ignored: it only leaves the WAL file longer than necessary when the WAL starts over.
            let _ = self.set_length_of_wal(limit);
        }
        let frames = self.wal_frames();
        let checkpoints = &mut self.checkpoints;
        if frames < checkpoints.last {
            checkpoints.begins_anew();
        }
        checkpoints.commits = checkpoints.commits.saturating_add(1);
    }

    /// Returns `true` if a checkpoint should run now, after the commits so far.
    pub(crate) fn checkpoint_is_due(&self) -> bool {
        self.checkpoints.every.is_some_and(|every| self.checkpoints.commits >= every)
            || self.length_of_wal_counts() && self.wal_is_long()
    }

    /// Returns `true` if the length of the WAL triggers checkpoints, and `false` if only the number
    /// of commits does. In a store with a size limit the length always does, because the WAL takes
    /// disk space, too.
    fn length_of_wal_counts(&self) -> bool {
        self.checkpoints.every.is_none() || self.checkpoints.for_limit.is_some()
    }

    /// Returns `true` if a checkpoint must not be deferred any longer: the number of commits since
    /// the last one is twice the configured number, or the WAL has its maximum length.
    pub(crate) fn checkpoint_is_overdue(&self) -> bool {
        self.checkpoints.every.is_some_and(|every| self.checkpoints.commits / 2 >= every)
            || self.length_of_wal_counts() && self.wal_frames() >= self.checkpoints.limit.most()
    }

    pub(crate) fn wal_is_long(&self) -> bool {
        self.wal_frames() >= self.checkpoints.at
    }

    /// Runs an automatic checkpoint. Returns `true` if it succeeded, and `false` if it failed or
    /// was postponed.
    ///
    /// A passive checkpoint waits for no other connection, but does not copy the frames that other
    /// connections write during the checkpoint. With several writers, the WAL might never start
    /// over. So if `may_keep_writers_out` is `true` and the WAL has its maximum length, the
    /// checkpoint blocks writers and waits for readers for a short time.
    pub(crate) fn checkpoint_by_itself(&mut self, may_keep_writers_out: bool) -> bool {
        let frames = self.wal_frames();
        let limit = self.checkpoints.limit;
        let done = if may_keep_writers_out && frames >= limit.most() {
            self.restart_wal()
        } else if self.checkpoints.can_finish(frames) {
            self.checkpoint(CheckpointMode::Passive).map(drop)
        } else {
            self.checkpoints.at = frames.saturating_add(limit.step() / 4);
            return false;
        };
        self.note_outcome(frames, done)
    }

    /// Runs an automatic checkpoint that truncates the WAL. Returns `false` if it failed, for
    /// example because another connection blocked it.
    pub(crate) fn cut_wal(&mut self) -> bool {
        let frames = self.wal_frames();
        let done = self.checkpoint_within(CheckpointMode::Truncate, MIN_WAIT);
        self.note_outcome(frames, done.map(drop))
    }

    fn note_outcome(&mut self, frames: u32, done: Result<()>) -> bool {
        match done {
            Ok(()) => true,
            Err(e) => {
                self.checkpoints.again_after(frames);
                if e.kind() == ErrorKind::Io {
                    self.checkpoints.failure = Some(e);
                }
                false
            }
        }
    }

    /// Runs a checkpoint after which the next commit starts the WAL over at its beginning. Blocks
    /// writers and waits for readers. The wait is shorter if readers have kept the WAL from
    /// starting over before.
    fn restart_wal(&mut self) -> Result<()> {
        let started = Instant::now();
        let mut wait = self.busy_timeout.clamp(MIN_WAIT, MAX_WAIT);
        if self.checkpoints.in_vain > 0 {
            wait = wait.min(WAIT_FOR_A_FRAME * self.checkpoints.patience(self.wal_frames()));
        }
        loop {
            // The first try comes at once: this handle has just committed, so no connection writes
            // at this moment. A connection that waits for a lock sleeps between two tries. Among
            // several writers that write without a pause, a later try would seldom find the lock
            // free.
            match self.checkpoint_within(CheckpointMode::Restart, wait.min(MIN_WAIT)) {
                Ok(_) => return Ok(()),
                // A failed sync is reported once: the next sync may succeed although pages are
                // lost.
                Err(e) if e.kind() == ErrorKind::Io => return Err(e),
                Err(_) => {}
            }
            // A reader that begins when everything is in the database does not keep the WAL from
            // starting over.
            match self.checkpoint(CheckpointMode::Passive) {
                Err(e) if e.kind() == ErrorKind::Io => return Err(e),
                // Another connection runs a checkpoint; nothing else makes a passive checkpoint
                // fail in this way. SQLite does not wait for a checkpoint of another connection.
                // Without a wait here, the WAL would grow as fast as data is written while that
                // checkpoint lasts.
                Err(e) if e.is_retryable() && started.elapsed() < self.busy_timeout => {
                    if !wait::pause(PAUSE) {
                        return Err(e);
                    }
                }
                passive => {
                    let restart = self.checkpoint_within(CheckpointMode::Restart, wait);
                    if restart.is_err() && passive.is_ok_and(|(log, done)| done < log) {
                        self.checkpoints.in_vain += 1;
                    }
                    return restart.map(drop);
                }
            }
        }
    }

    /// Returns `true` if the store is in WAL mode, so that it can have checkpoints.
    pub(crate) fn has_wal(&self) -> bool {
        matches!(self.journal_mode(), Ok(Some(JournalMode::Wal)))
    }

    pub(crate) fn wal_frames(&self) -> u32 {
        self.wal_frames.get()
    }

    /// Returns a counter that advances with each commit of any process to the file; `None` outside
    /// WAL mode, or if the connection shares no memory with other processes.
    pub(crate) fn commit_counter(&self) -> Option<u32> {
        self.presence.as_ref()?;
        if self.journal_mode().ok()? != Some(JournalMode::Wal) {
            return None; // `WalIndex::of` would create the shared memory
        }
        WalIndex::of(&self.conn).map(|index| index.commits())
    }

    // ---- writing back while the WAL grows ------------------------------------------------------

    /// Returns `true` if the next step of copying the WAL into the database (`go_on_writing_back`)
    /// should run now. Call this after `note_commit`.
    #[inline]
    pub(crate) fn has_to_write_back(&mut self) -> bool {
        let frames = self.wal_frames();
        let aim = self.checkpoints.aim(frames);
        self.checkpoints.write_back.as_mut().is_some_and(|write_back| write_back.note_commit(frames, aim))
    }

    /// Performs the next step of copying the WAL into the database. If the system offers no
    /// asynchronous syncs, only checkpoints copy the WAL from then on.
    #[cold]
    pub(super) fn go_on_writing_back(&mut self) {
        let aim = self.checkpoints.aim(self.wal_frames());
        let Some(mut write_back) = self.checkpoints.write_back.take() else { return };
        let all_let_go = || {
            self.release_other_snapshots();
            let _ = self.switch_to_sql(); // fails only in the middle of a write
        };
        if write_back.go_on(&self.conn, aim, all_let_go) {
            self.checkpoints.write_back = Some(write_back);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn busy_checkpoint_does_not_hide_earlier_io_error() {
        let mut db = Db::open(None, &Config::new(), 1).unwrap();
        for failure in [Error::io("the disk failed"), Error::busy("locked"), Error::full("full")] {
            assert!(!db.note_outcome(0, Err(failure)));
        }
        let kept = db.checkpoints.take_failure().map(|e| e.kind());
        assert_eq!(kept, Some(ErrorKind::Io));
    }
}

//! What a connection does for its file beside transactions: checkpoints, syncs, the vacuum, the check, the repair.
//! When a checkpoint is due is known here; who runs it is decided above.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::connection::{Db, TransactionState};
use super::failure::{LAST_RESORT, translate, with_advice};
use super::os::{self, Opened};
use super::{AUTO_CHECKPOINT_PAGES, RETRY_PAGES, integrity, repair};
use crate::config::{CheckpointMode, SyncLevel};
use crate::error::{Error, Result};

/// How long such a checkpoint waits for others.
const MIN_WAIT: Duration = Duration::from_millis(10);
const MAX_WAIT: Duration = Duration::from_millis(100);

impl Db {
    /// Writes the WAL's content to the database file; gives the WAL's length and how much of it is
    /// written, in frames.
    pub(crate) fn checkpoint(&mut self, mode: CheckpointMode) -> Result<(u32, u32)> {
        self.checkpoint_within(mode, self.busy_timeout)
    }

    /// The same, waiting for others at most this long.
    pub(crate) fn checkpoint_within(&mut self, mode: CheckpointMode, wait: Duration) -> Result<(u32, u32)> {
        self.set_busy_timeout(wait)?;
        let done = self.run_checkpoint(mode);
        self.set_busy_timeout(self.busy_timeout)?;
        done
    }

    fn run_checkpoint(&mut self, mode: CheckpointMode) -> Result<(u32, u32)> {
        if self.transaction != TransactionState::None {
            return Err(Error::busy(
                "a transaction is open on this handle: commit or roll back, then checkpoint",
            ));
        }
        let mode = match mode {
            CheckpointMode::Passive => rusqlite::wal::CheckpointMode::PASSIVE,
            CheckpointMode::Full => rusqlite::wal::CheckpointMode::FULL,
            CheckpointMode::Restart => rusqlite::wal::CheckpointMode::RESTART,
            CheckpointMode::Truncate => rusqlite::wal::CheckpointMode::TRUNCATE,
        };
        let (log, done) = self.switch_to_sql()?.wal_checkpoint_v2(Some(c"main"), mode).map_err(translate)?;
        // Not in WAL mode: -1 and -1.
        let (log, done) = (log.max(0).unsigned_abs(), done.max(0).unsigned_abs());
        self.commits_since_checkpoint = 0;
        self.checkpointed_to = log;
        // Tried again when the WAL has grown some more, if it does not begin anew before that.
        self.checkpoint_at = log.saturating_add(RETRY_PAGES).max(AUTO_CHECKPOINT_PAGES);
        if log == done {
            self.wal_frames.store(0, Ordering::Relaxed);
        }
        Ok((log, done))
    }

    /// To be called after each write commit.
    pub(crate) fn note_commit(&mut self) {
        #[cfg(kvstore_btree)]
        {
            let frames = self.wal_frames();
            if let Some(direct) = &mut self.direct {
                direct.wal_grown_to(frames);
            }
        }
        if self.wal_frames() < self.checkpointed_to {
            // It has begun anew.
            self.checkpointed_to = 0;
            self.checkpoint_at = AUTO_CHECKPOINT_PAGES;
        }
        self.commits_since_checkpoint = self.commits_since_checkpoint.saturating_add(1);
    }

    /// Whether the WAL is to be checkpointed now, by what the commits so far have done.
    pub(crate) fn checkpoint_is_due(&self) -> bool {
        match self.checkpoint_every {
            Some(every) => self.commits_since_checkpoint >= every,
            None => self.wal_is_long(),
        }
    }

    /// Whether the WAL was to be checkpointed long ago.
    pub(crate) fn checkpoint_is_overdue(&self) -> bool {
        match self.checkpoint_every {
            Some(every) => self.commits_since_checkpoint / 2 >= every,
            None => self.wal_frames() / 2 >= self.checkpoint_at,
        }
    }

    pub(crate) fn wal_is_long(&self) -> bool {
        self.wal_frames() >= self.checkpoint_at
    }

    /// A checkpoint that nobody has asked for; says whether it was done.
    ///
    /// A passive one waits for nobody, but leaves what others write meanwhile: with several writers the
    /// WAL might never begin anew. So when it has grown on after one, others are kept from writing, and
    /// readers are waited for, if only for a moment.
    pub(crate) fn checkpoint_by_itself(&mut self, may_keep_writers_out: bool) -> bool {
        let frames = self.wal_frames();
        let done = if !may_keep_writers_out || frames < AUTO_CHECKPOINT_PAGES + RETRY_PAGES {
            self.checkpoint(CheckpointMode::Passive)
        } else {
            self.checkpoint_within(CheckpointMode::Restart, self.busy_timeout.clamp(MIN_WAIT, MAX_WAIT))
        };
        if done.is_err() {
            self.checkpoint_at = frames.saturating_add(RETRY_PAGES);
        }
        done.is_ok()
    }

    pub(crate) fn wal_frames(&self) -> u32 {
        self.wal_frames.load(Ordering::Relaxed)
    }

    pub(crate) fn page_count(&self) -> Result<u64> {
        self.read_number("PRAGMA page_count").map(i64::unsigned_abs)
    }

    /// Makes all commits so far durable.
    pub(crate) fn sync(&mut self) -> Result<()> {
        let Some(watched) = &self.watched else { return Ok(()) };
        if self.frozen.is_some() {
            return Ok(()); // nobody has committed anything
        }
        // Commits are in the WAL, and checkpoints sync by themselves. In DELETE mode each commit has synced the file,
        // and what is left is that its journal is gone.
        os::sync(&self.conn, Opened::Journal)?;
        if self.sync == SyncLevel::Off {
            os::sync(&self.conn, Opened::Main)?;
        }
        // The WAL may be new, or a rollback journal removed.
        watched.place.sync_directory().map_err(|e| {
            Error::io(format!(
                "cannot sync the directory of the store, to which this process needs permission to read: {e}"
            ))
        })
    }

    /// Pages that hold nothing.
    pub(crate) fn free_pages(&self) -> Result<u64> {
        self.read_number("PRAGMA freelist_count").map(i64::unsigned_abs)
    }

    /// Gives at most `pages` free pages back to the file system.
    pub(crate) fn incremental_vacuum(&self, pages: u64) -> Result<()> {
        let mut statement = self
            .switch_to_sql()?
            .prepare(&format!("PRAGMA incremental_vacuum({pages})"))
            .map_err(translate)?;
        let mut rows = statement.raw_query();
        while rows.next().map_err(translate)?.is_some() {} // one page a step
        Ok(())
    }

    /// Checks the file and the agreement of all tables; the first disagreement is the error.
    pub(crate) fn integrity_check(&self) -> Result<()> {
        self.in_snapshot(|db| {
            let conn = db.switch_to_sql()?;
            integrity::check_sqlite(conn).map_err(|e| with_advice(e, LAST_RESORT))?;
            integrity::check_tables(conn).map_err(|e| with_advice(e, "a repair mends it"))
        })
    }

    /// Makes all tables agree with the data rows, inside a write transaction; says how much it has changed.
    pub(crate) fn repair(&self, now_ms: i64) -> Result<u64> {
        self.forget_settings();
        self.forget_all_bounds(); // it sets times by SQL
        repair::repair(self.switch_to_sql()?, now_ms)
    }
}

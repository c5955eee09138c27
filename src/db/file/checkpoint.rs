//! Checkpoints: when one is due, and how the WAL's content gets into the database. Who runs one is decided above.
//!
//! One that nobody has asked for is made in portions (ADR 13). A portion writes what the WAL has so far into the
//! database, and hands the sync of that to the kernel; commits go on meanwhile. When the sync has ended, what was
//! written back counts. When little is left, the rest is written back and synced at once, and the WAL begins anew.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::connection::{Db, TransactionState};
use super::failure::translate;
use super::os::{self, HandedOver, Presence, Salts, WalIndex};
use crate::config::{CheckpointMode, FileConfig};
use crate::error::{Error, Result};

/// How long a checkpoint that nobody has asked for waits for others.
const MIN_WAIT: Duration = Duration::from_millis(10);
const MAX_WAIT: Duration = Duration::from_millis(100);

/// A sync that the kernel makes is asked after at each such call: to ask is a system call.
const ASK_EACH: u32 = 4;

/// How long a WAL may get, in frames.
#[derive(Debug, Clone, Copy)]
pub(super) struct WalLimit(u32);

impl WalLimit {
    pub(super) fn of(config: &FileConfig) -> WalLimit {
        WalLimit(config.wal_pages)
    }

    /// From so many on it is written back, in portions.
    fn first(self) -> u32 {
        self.0 - self.0 / 4
    }

    /// If no more are left, they are written back and synced at once. Also how much the WAL grows between two
    /// checkpoints after which it did not begin anew.
    fn rest(self) -> u32 {
        self.0 / 4
    }

    /// From so many on a commit waits for the checkpoint, and that for others. So much is left of the file when the WAL
    /// begins anew: with less, each time it would be cut off, and made longer again.
    pub(super) fn most(self) -> u32 {
        2 * self.0 - self.0 / 8
    }
}

/// What a connection knows of its checkpoints.
pub(super) struct Checkpoints {
    limit: WalLimit,
    /// Commits after which there is one, in place of a length of the WAL.
    every: Option<u32>,
    commits: u32,
    /// Frames from which on one is tried.
    at: u32,
    /// How long the WAL was at the last one.
    last: u32,
    /// What portions need.
    shared: Option<(WalIndex, Arc<Presence>)>,
    portion: Option<Portion>,
    /// What somebody else had begun when this was looked at last: which WAL, and how many frames of it.
    theirs: Option<(Salts, u32)>,
}

/// How a checkpoint that waits for nobody is made.
enum Way {
    Whole,
    Portion(WalIndex, Arc<Presence>),
    /// Somebody else is at it, or was when it ended: that shows when the WAL has grown some more.
    None,
}

/// What is in the database, and is being synced.
struct Portion {
    salts: Salts,
    frames: u32,
    sync: HandedOver,
    asked: u32,
}

impl Checkpoints {
    pub(super) fn new(config: &FileConfig) -> Checkpoints {
        let limit = WalLimit::of(config);
        Checkpoints {
            limit,
            every: config.checkpoint_every,
            commits: 0,
            at: limit.0,
            last: 0,
            shared: None,
            portion: None,
            theirs: None,
        }
    }

    /// Makes checkpoints in portions from now on.
    pub(super) fn in_portions(&mut self, index: WalIndex, presence: Arc<Presence>) {
        self.shared = Some((index, presence));
        self.at = self.first();
    }

    /// From so many frames on a WAL that begins is checkpointed.
    fn first(&self) -> u32 {
        if self.shared.is_some() { self.limit.first() } else { self.limit.0 }
    }

    /// The way for a WAL of so many frames. After a number of commits it is always the whole.
    fn way(&mut self, frames: u32) -> Way {
        let (None, Some((index, presence))) = (self.every, &self.shared) else { return Way::Whole };
        let (written_back, begun) = (index.written_back(), index.begun());
        if begun > written_back {
            let theirs = Some((index.salts(), begun));
            if std::mem::replace(&mut self.theirs, theirs) != theirs {
                return Way::None;
            }
        }
        if frames.saturating_sub(written_back) > self.limit.rest() {
            Way::Portion(*index, Arc::clone(presence))
        } else {
            Way::Whole
        }
    }

    /// To be told when a checkpoint has left the WAL with so many frames.
    fn done(&mut self, frames: u32) {
        self.commits = 0;
        self.last = frames;
        // Tried again when it has grown some more, if it does not begin anew before that.
        self.at = frames.saturating_add(self.limit.rest()).max(self.first());
    }
}

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
        self.end_portion();
        let (log, done) = self.write_back(mode)?;
        self.checkpoints.done(log);
        if log == done {
            self.wal_frames.store(0, Ordering::Relaxed);
        }
        Ok((log, done))
    }

    /// Gives what `checkpoint` gives.
    fn write_back(&self, mode: CheckpointMode) -> Result<(u32, u32)> {
        let mode = match mode {
            CheckpointMode::Passive => rusqlite::wal::CheckpointMode::PASSIVE,
            CheckpointMode::Full => rusqlite::wal::CheckpointMode::FULL,
            CheckpointMode::Restart => rusqlite::wal::CheckpointMode::RESTART,
            CheckpointMode::Truncate => rusqlite::wal::CheckpointMode::TRUNCATE,
        };
        let (log, done) = self.switch_to_sql()?.wal_checkpoint_v2(Some(c"main"), mode).map_err(translate)?;
        // Not in WAL mode: -1 and -1.
        Ok((log.max(0).unsigned_abs(), done.max(0).unsigned_abs()))
    }

    /// To be called after each write commit.
    pub(crate) fn note_commit(&mut self) {
        let frames = self.wal_frames();
        #[cfg(kvstore_btree)]
        if let Some(direct) = &mut self.direct {
            direct.wal_grown_to(frames);
        }
        let checkpoints = &mut self.checkpoints;
        if frames < checkpoints.last {
            // It has begun anew.
            checkpoints.last = 0;
            checkpoints.at = checkpoints.first();
        }
        checkpoints.commits = checkpoints.commits.saturating_add(1);
    }

    /// Whether the WAL is to be checkpointed now, by what the commits so far have done.
    pub(crate) fn checkpoint_is_due(&self) -> bool {
        match self.checkpoints.every {
            Some(every) => self.checkpoints.commits >= every,
            None => self.wal_is_long(),
        }
    }

    /// Whether the WAL was to be checkpointed long ago.
    pub(crate) fn checkpoint_is_overdue(&self) -> bool {
        match self.checkpoints.every {
            Some(every) => self.checkpoints.commits / 2 >= every,
            None => self.wal_frames() >= self.checkpoints.limit.most(),
        }
    }

    pub(crate) fn wal_is_long(&self) -> bool {
        self.wal_frames() >= self.checkpoints.at
    }

    /// A checkpoint that nobody has asked for, or a portion of it; says whether one was done.
    ///
    /// A passive one waits for nobody, but leaves what others write meanwhile: with several writers the
    /// WAL might never begin anew. So when it has grown on for long, others are kept from writing, and
    /// readers are waited for, if only for a moment.
    pub(crate) fn checkpoint_by_itself(&mut self, may_keep_writers_out: bool) -> bool {
        let frames = self.wal_frames();
        let limit = self.checkpoints.limit;
        let wait = self.busy_timeout.clamp(MIN_WAIT, MAX_WAIT);
        let done = if may_keep_writers_out && frames >= limit.most() {
            // A reader that comes when everything is in the file does not stand in the way of a new beginning.
            let _ = self.checkpoint(CheckpointMode::Passive);
            self.checkpoint_within(CheckpointMode::Restart, wait).map(|_| true)
        } else {
            match self.checkpoints.way(frames) {
                Way::Whole => self.checkpoint(CheckpointMode::Passive).map(|_| true),
                Way::Portion(index, presence) => self.begin_portion(index, &presence),
                Way::None => {
                    self.checkpoints.at = frames.saturating_add(limit.rest());
                    Ok(false)
                }
            }
        };
        if done.is_err() {
            self.checkpoints.at = frames.saturating_add(limit.rest());
        }
        done.unwrap_or(false)
    }

    pub(crate) fn wal_frames(&self) -> u32 {
        self.wal_frames.load(Ordering::Relaxed)
    }

    // ---- portions ----------------------------------------------------------------------------

    /// Writes back what the WAL has, but for the sync; says whether that was all that could be done.
    fn begin_portion(&mut self, index: WalIndex, presence: &Presence) -> Result<bool> {
        let salts = index.salts();
        let ((log, _), is_not_synced) =
            os::vfs::without_sync(&self.conn, || self.write_back(CheckpointMode::Passive))?;
        if is_not_synced && index.salts() == salts {
            let sync = HandedOver::begin(&self.conn, presence.file());
            self.checkpoints.portion = Some(Portion { salts, frames: log, sync, asked: 0 });
            return Ok(false);
        }
        // Somebody reads what is older, or has committed meanwhile: the number of frames that SQLite has written back
        // stands without a sync, as it always does when more are left.
        self.checkpoints.done(log);
        Ok(true)
    }

    /// Whether what was written back is still being synced. A commit that finds the WAL as long as it may be waits.
    #[inline]
    pub(crate) fn portion_is_under_way(&mut self) -> bool {
        self.checkpoints.portion.is_some() && self.look_at_portion()
    }

    #[cold]
    fn look_at_portion(&mut self) -> bool {
        let can_wait = self.wal_frames() < self.checkpoints.limit.most();
        let Some(portion) = &mut self.checkpoints.portion else { return false };
        portion.asked = portion.asked.wrapping_add(1);
        if can_wait && (!portion.asked.is_multiple_of(ASK_EACH) || portion.sync.outcome(&self.conn).is_none())
        {
            return true;
        }
        self.end_portion();
        false
    }

    /// Waits for the sync of what was written back, which counts then. If it fails, all of it is written again some
    /// time.
    fn end_portion(&mut self) {
        let Some(mut portion) = self.checkpoints.portion.take() else { return };
        if !portion.sync.wait(&self.conn) {
            return;
        }
        let Some((index, _)) = self.checkpoints.shared else { return };
        // A snapshot that is kept would keep the WAL from beginning anew if that was all. If others have the locks
        // for this, they write back themselves.
        if let Ok(conn) = self.switch_to_sql() {
            let _ = index.set_written_back(conn, portion.salts, portion.frames);
        }
    }
}

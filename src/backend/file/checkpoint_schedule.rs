//! When the next checkpoint of a connection is due, by the length of its WAL.

use std::time::Duration;

use super::backfill::{Aim, WriteBack};
use crate::config::{FileConfig, MIN_WAL_PAGES};
use crate::error::Error;

/// Minimum time for which an automatic checkpoint waits for other connections.
pub(super) const MIN_WAIT: Duration = Duration::from_millis(10);
/// Maximum time for which an automatic checkpoint waits for other connections.
pub(super) const MAX_WAIT: Duration = Duration::from_millis(100);
/// Target length of the WAL, in frames. The lengths at which checkpoints run are derived from it.
#[derive(Debug, Clone, Copy)]
pub(super) struct WalLimit(pub(super) u32);

/// Number by which the size limit of the store, in pages, is divided to get the maximum target
/// length of the WAL. Not used if the target length is configured.
const PART_OF_LIMIT: u32 = 8;
/// Number by which the free space of the disk, in pages, is divided to get the maximum target
/// length of the WAL. Not used if the target length is configured. The WAL file becomes almost
/// twice as long as the target.
const PART_OF_SPACE: u64 = 16;

impl WalLimit {
    /// Returns the target length of the WAL: the configured length `given` or, if it is `None`, the
    /// default length, reduced for the size limit of the store (`limit`) and for the free space of
    /// the disk (`space`). All are in pages, of which each takes one frame.
    pub(super) fn of(given: Option<u32>, default: u32, limit: Option<u32>, space: Option<u64>) -> WalLimit {
        let by_limit = limit.map_or(default, |pages| pages / PART_OF_LIMIT);
        let by_space = space.map_or(default, |pages| u32::try_from(pages / PART_OF_SPACE).unwrap_or(default));
        let least = MIN_WAL_PAGES.min(default);
        WalLimit(given.unwrap_or_else(|| by_limit.min(by_space).clamp(least, default)))
    }

    /// Returns the length of the WAL, in frames, from which on a checkpoint should make the WAL
    /// start over. It applies to a connection that copies the WAL into the database while the WAL
    /// grows.
    pub(super) fn first(self) -> u32 {
        self.0 - self.0 / 4
    }

    /// Returns the number of frames by which the WAL grows before a checkpoint is tried again, if
    /// the WAL did not start over after the previous checkpoint.
    pub(super) fn step(self) -> u32 {
        self.0 / 4
    }

    /// Returns the largest number of frames that an automatic checkpoint may still have to copy
    /// into the database. With more, the checkpoint is postponed. `frames` is the length of the
    /// WAL.
    pub(super) fn rest(self, frames: u32) -> u32 {
        if frames < self.0 { self.0 / 8 } else { self.0 / 4 }
    }

    /// Returns the maximum length of the WAL, in frames: from this length on, a commit waits for
    /// the checkpoint. The WAL file keeps this length when the WAL starts over.
    ///
    /// If the file kept a smaller length, it would be truncated and extended each time.
    pub(super) fn most(self) -> u32 {
        2 * self.0 - self.0 / 8
    }
}

/// State from which a connection decides when to run its next checkpoint.
pub(super) struct CheckpointSchedule {
    pub(super) limit: WalLimit,
    /// Target length of the WAL in the configuration, in pages; `None` if the default applies.
    pub(super) given: Option<u32>,
    pub(super) default: u32,
    /// Size limit of the store, in pages, for which `limit` was computed; `None` if it had none.
    pub(super) for_limit: Option<u32>,
    /// Number of commits after which a checkpoint runs; `None` if the length of the WAL decides
    /// instead.
    pub(super) every: Option<u32>,
    /// Number of commits since the last checkpoint.
    pub(super) commits: u32,
    /// Length of the WAL, in frames, from which on a checkpoint is tried.
    pub(super) at: u32,
    /// Length of the WAL at the last checkpoint, in frames.
    pub(super) last: u32,
    /// Number of checkpoints after which the WAL did not start over because of readers, since it
    /// last started over.
    pub(super) in_vain: u32,
    /// I/O error of the last automatic checkpoint that failed; the next
    /// [`Db::sync`](super::Db::sync) returns it. `None` if another error, or no error, occurred.
    pub(super) failure: Option<Error>,
    /// State of copying the WAL into the database while the WAL grows; `None` if only checkpoints
    /// copy it.
    pub(super) write_back: Option<WriteBack>,
}

impl CheckpointSchedule {
    pub(super) fn new(config: &FileConfig) -> CheckpointSchedule {
        let limit = WalLimit::of(config.wal_pages, config.default_wal_pages, None, None);
        CheckpointSchedule {
            limit,
            given: config.wal_pages,
            default: config.default_wal_pages,
            for_limit: None,
            every: config.checkpoint_every,
            commits: 0,
            at: limit.0,
            last: 0,
            in_vain: 0,
            failure: None,
            write_back: None,
        }
    }

    /// Makes the connection copy the WAL into the database while the WAL grows. Must not be called
    /// if checkpoints run after a number of commits; `open.rs` ensures this.
    pub(super) fn write_back_with(&mut self, write_back: WriteBack) {
        self.write_back = Some(write_back);
        self.at = self.first();
    }

    /// Returns the length of the WAL, in frames, from which on a checkpoint is tried after the WAL
    /// has started over.
    pub(super) fn first(&self) -> u32 {
        if self.write_back.is_some() { self.limit.first() } else { self.limit.0 }
    }

    /// Returns `true` if a checkpoint of a WAL with `frames` frames should run now. It should not
    /// while many of the frames are not yet in the database, or while another connection copies the
    /// WAL into the database.
    pub(super) fn can_finish(&mut self, frames: u32) -> bool {
        let limit = self.limit;
        let Some(write_back) = &mut self.write_back else { return true };
        let before = write_back.written_back();
        frames.saturating_sub(before) <= limit.rest(frames) && !write_back.is_theirs(before, limit.step())
    }

    pub(super) fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    pub(super) fn aim(&self, frames: u32) -> Aim {
        let at_the_end = frames >= self.limit.first();
        let part = if at_the_end { self.limit.0 / 16 } else { self.limit.step() };
        Aim { part, patience: self.limit.step(), at_the_end }
    }

    /// Records that a checkpoint has left `frames` frames in the WAL.
    pub(super) fn done(&mut self, frames: u32) {
        self.commits = 0;
        self.last = frames;
        self.again_after(frames);
    }

    /// Resets the state for a WAL that starts over. Call this when the next commit will start the
    /// WAL over, or when the last commit has.
    ///
    /// The length of the WAL alone does not show that it has started over, if a transaction is as
    /// long as the one before it.
    pub(super) fn begins_anew(&mut self) {
        self.last = 0;
        self.in_vain = 0;
        self.at = self.first();
    }

    /// Returns the number of frames by which a WAL with `frames` frames grows before a checkpoint
    /// is tried again, while readers keep the WAL from starting over.
    pub(super) fn patience(&self, frames: u32) -> u32 {
        self.limit.step().max(frames / 8)
    }

    /// Sets the length of the WAL at which a checkpoint is tried again, after a checkpoint that has
    /// left `frames` frames in the WAL. If the WAL starts over before, this length no longer
    /// applies.
    ///
    /// - While a reader keeps the WAL from starting over, the interval between attempts grows with
    ///   the length of the WAL. So the cost of the attempts stays small compared with that of the
    ///   writes.
    /// - While other connections write and the WAL has its maximum length, the next attempt comes
    ///   soon, because each attempt may succeed.
    pub(super) fn again_after(&mut self, frames: u32) {
        let step = self.limit.step();
        let more = match self.in_vain {
            0 if frames >= self.limit.most() => step / 4,
            0 => step,
            _ => self.patience(frames),
        };
        self.at = frames.saturating_add(more).max(self.first());
    }
}

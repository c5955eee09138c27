//! Checkpoints: when one is due, and how the WAL's content gets into the database. Who runs one is decided above.
//!
//! Where it can be, the WAL is written back while it grows (`write_back.rs`), and the checkpoint that nobody has asked
//! for finds little left to do. It waits for both syncs, and the WAL begins anew.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::connection::Db;
use super::failure::translate;
use super::os::{self, FRAME_HEADER, WAL_HEADER, WalIndex};
use super::write_back::{Aim, WriteBack};
use crate::config::{CheckpointMode, FileConfig, JournalMode, MIN_WAL_PAGES};
use crate::db::TransactionState;
use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::wait;

/// Time for which an automatic checkpoint waits for other connections.
pub(super) const MIN_WAIT: Duration = Duration::from_millis(10);
const MAX_WAIT: Duration = Duration::from_millis(100);
/// The same for each frame since the last one, where readers have stood in its way: it must not count beside writing them.
const WAIT_FOR_A_FRAME: Duration = Duration::from_micros(100);
/// Between two looks whether somebody else's has ended.
const PAUSE: Duration = Duration::from_millis(1);

/// Target length of the WAL, in frames.
#[derive(Debug, Clone, Copy)]
pub(super) struct WalLimit(u32);

/// Of the limit of a store, in pages, the WAL takes this part, where nothing else is asked for.
const PART_OF_LIMIT: u32 = 8;
/// The same of the free space of the disk. The file of the WAL becomes almost twice as long.
const PART_OF_SPACE: u64 = 16;

impl WalLimit {
    /// Returns the target length of the WAL from the configured length, the default length, the size
    /// limit of the store, and the free space of the disk, all in pages.
    pub(super) fn of(given: Option<u32>, default: u32, limit: Option<u32>, space: Option<u64>) -> WalLimit {
        let by_limit = limit.map_or(default, |pages| pages / PART_OF_LIMIT);
        let by_space = space.map_or(default, |pages| u32::try_from(pages / PART_OF_SPACE).unwrap_or(default));
        let least = MIN_WAL_PAGES.min(default);
        WalLimit(given.unwrap_or_else(|| by_limit.min(by_space).clamp(least, default)))
    }

    /// From so many on it is to begin anew, where it is written back while it grows.
    fn first(self) -> u32 {
        self.0 - self.0 / 4
    }

    /// Returns the number of frames by which the WAL grows between two checkpoints after which it
    /// did not start over.
    fn step(self) -> u32 {
        self.0 / 4
    }

    /// If no more are left in a WAL of so many frames, a checkpoint writes them.
    fn rest(self, frames: u32) -> u32 {
        if frames < self.0 { self.0 / 8 } else { self.0 / 4 }
    }

    /// Returns the number of frames from which on a commit waits for the checkpoint. The file keeps
    /// this length when the WAL starts over.
    ///
    /// With a smaller number, the file would be truncated and extended each time.
    pub(super) fn most(self) -> u32 {
        2 * self.0 - self.0 / 8
    }
}

/// State of the checkpoints of a connection.
pub(super) struct Checkpoints {
    limit: WalLimit,
    /// Target length of the WAL in the configuration; `None` for the default.
    given: Option<u32>,
    default: u32,
    /// Size limit of the store for which the target length was computed.
    for_limit: Option<u32>,
    /// Number of commits after which a checkpoint runs; `None` if the length of the WAL decides.
    every: Option<u32>,
    commits: u32,
    /// Number of frames from which on a checkpoint is tried.
    at: u32,
    /// Length of the WAL at the last checkpoint, in frames.
    last: u32,
    /// Number of times that readers have kept the WAL from starting over since it last did.
    in_vain: u32,
    /// Error of the last automatic checkpoint, if the system caused it.
    failure: Option<Error>,
    /// State of copying the WAL into the database; `None` if only checkpoints do that.
    write_back: Option<WriteBack>,
}

impl Checkpoints {
    pub(super) fn new(config: &FileConfig) -> Checkpoints {
        let limit = WalLimit::of(config.wal_pages, config.default_wal_pages, None, None);
        Checkpoints {
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

    /// Makes the connection copy the WAL into the database while the WAL grows. It has no effect if
    /// checkpoints run after a number of commits.
    pub(super) fn write_back_with(&mut self, write_back: WriteBack) {
        self.write_back = Some(write_back);
        self.at = self.first();
    }

    /// From so many frames on a WAL that begins is checkpointed.
    fn first(&self) -> u32 {
        if self.write_back.is_some() { self.limit.first() } else { self.limit.0 }
    }

    /// Whether a WAL of so many frames is to be checkpointed now, and that not left to others, or to when less is left.
    fn can_finish(&mut self, frames: u32) -> bool {
        let limit = self.limit;
        let Some(write_back) = &mut self.write_back else { return true };
        let before = write_back.written_back();
        frames.saturating_sub(before) <= limit.rest(frames) && !write_back.is_theirs(before, limit.step())
    }

    pub(super) fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    fn aim(&self, frames: u32) -> Aim {
        let at_the_end = frames >= self.limit.first();
        let part = if at_the_end { self.limit.0 / 16 } else { self.limit.step() };
        Aim { part, patience: self.limit.step(), at_the_end }
    }

    /// Records that a checkpoint has left `frames` frames in the WAL.
    fn done(&mut self, frames: u32) {
        self.commits = 0;
        self.last = frames;
        self.again_after(frames);
    }

    /// To be told when the next commit begins the WAL anew, or the last one has. (With a transaction as long as the one before it, the
    /// length alone does not tell.)
    fn begins_anew(&mut self) {
        self.last = 0;
        self.in_vain = 0;
        self.at = self.first();
    }

    /// Returns the number of frames by which the WAL grows before a checkpoint is tried again while
    /// readers stay.
    fn patience(&self, frames: u32) -> u32 {
        self.limit.step().max(frames / 8)
    }

    /// Tried again when the WAL has grown some more, if it does not begin anew before that. Beside a reader that stays the
    /// later, the longer it is: what tries cost must not count beside what writes do. Beside writers soon, if it is too
    /// long: each try has its chance.
    fn again_after(&mut self, frames: u32) {
        let step = self.limit.step();
        let more = match self.in_vain {
            0 if frames >= self.limit.most() => step / 4,
            0 => step,
            _ => self.patience(frames),
        };
        self.at = frames.saturating_add(more).max(self.first());
    }
}

impl Db {
    /// Copies the frames of the WAL into the database file. Returns the length of the WAL and the
    /// number of frames copied.
    pub(crate) fn checkpoint(&mut self, mode: CheckpointMode) -> Result<(u32, u32)> {
        self.checkpoint_within(mode, self.busy_timeout)
    }

    /// Like [`checkpoint`](Db::checkpoint), but waits for other connections for at most `wait`.
    pub(crate) fn checkpoint_within(&mut self, mode: CheckpointMode, wait: Duration) -> Result<(u32, u32)> {
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
            self.checkpoints.begins_anew(); // no reader stands in the way
        }
        if log == done {
            self.wal_frames.store(0, Ordering::Relaxed);
        }
        Ok((log, done))
    }

    /// Where deleted data is overwritten: lets the WAL, all of which is in the database, have nothing any more, if nobody
    /// reads in it. If somebody does, what is left goes with the commit that begins it anew (`set_length_of_wal`).
    fn wipe_wal(&self) -> Result<bool> {
        if !self.secure_delete {
            return Ok(false);
        }
        self.set_busy_timeout(Duration::ZERO)?; // whoever has called sets it again
        match self.run_sqlites_checkpoint(CheckpointMode::Truncate) {
            Ok(_) => Ok(true),
            Err(e) if e.is_retryable() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Abandons a copy of the WAL that is in progress.
    pub(super) fn stop_writing_back(&mut self) {
        if let Some(write_back) = &mut self.checkpoints.write_back {
            write_back.stop(&self.conn);
        }
    }

    /// Gives what `checkpoint` gives.
    fn run_sqlites_checkpoint(&self, mode: CheckpointMode) -> Result<(u32, u32)> {
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

    /// Sets the target length of the WAL for a size limit of the store, in pages.
    #[cold]
    pub(super) fn set_length_of_wal(&mut self, limit: Option<u32>) -> Result<()> {
        let page_size = self.page_size()?.max(1);
        let space = self.path.as_deref().and_then(os::free_space).map(|bytes| bytes / page_size);
        let checkpoints = &mut self.checkpoints;
        checkpoints.for_limit = limit;
        checkpoints.limit = WalLimit::of(checkpoints.given, checkpoints.default, limit, space);
        checkpoints.at = checkpoints.first();
        let most = checkpoints.limit.most();
        #[cfg(kvstore_btree)]
        if let Some(direct) = &mut self.direct {
            direct.set_long(most);
        }
        if self.secure_delete {
            // Also a rollback journal that is kept, which one of a store for one handle alone is, ends empty.
            return self.limit_wal(0);
        }
        self.limit_wal(
            u64::from(WAL_HEADER) + u64::from(most) * (u64::from(FRAME_HEADER) + self.page_size()?),
        )
    }

    /// Returns the greatest length of the WAL, in frames, if readers do not make it longer.
    #[cfg(kvstore_btree)]
    pub(super) fn most_frames(&self) -> u32 {
        self.checkpoints.limit.most()
    }

    /// Updates the checkpoint state. Call this after each write commit.
    pub(crate) fn note_commit(&mut self) {
        let limit = self.limit_in_pages();
        if limit != self.checkpoints.for_limit {
            // Set by this write, or by others. What fails now leaves a longer file when the WAL begins anew.
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

    /// Whether checkpoints go by the length of the WAL. In a store that has a limit they do in any case: it takes room, too.
    fn length_of_wal_counts(&self) -> bool {
        self.checkpoints.every.is_none() || self.checkpoints.for_limit.is_some()
    }

    /// Returns `true` if a checkpoint should have run long ago.
    pub(crate) fn checkpoint_is_overdue(&self) -> bool {
        self.checkpoints.every.is_some_and(|every| self.checkpoints.commits / 2 >= every)
            || self.length_of_wal_counts() && self.wal_frames() >= self.checkpoints.limit.most()
    }

    pub(crate) fn wal_is_long(&self) -> bool {
        self.wal_frames() >= self.checkpoints.at
    }

    /// Runs an automatic checkpoint. Returns `true` if one was made.
    ///
    /// A passive one waits for nobody, but leaves what others write meanwhile: with several writers the
    /// WAL might never begin anew. So when it has grown on for long, others are kept from writing, and
    /// readers are waited for, if only for a moment.
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

    /// Runs an automatic checkpoint that truncates the WAL, if other connections allow it. Returns
    /// `true` if one was made.
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
                self.checkpoints.failure = Some(e).filter(|e| e.kind() == ErrorKind::Io);
                false
            }
        }
    }

    /// Lets the WAL begin anew, keeping writers out and waiting for readers: not as long if that was in vain before.
    fn restart_wal(&mut self) -> Result<()> {
        let started = Instant::now();
        let mut wait = self.busy_timeout.clamp(MIN_WAIT, MAX_WAIT);
        if self.checkpoints.in_vain > 0 {
            wait = wait.min(WAIT_FOR_A_FRAME * self.checkpoints.patience(self.wal_frames()));
        }
        loop {
            // At once: this handle has just committed, so nobody writes at this moment. Who waits for a lock sleeps
            // between two tries, and among several writers that write without a pause a later try would seldom find it
            // free.
            match self.checkpoint_within(CheckpointMode::Restart, wait.min(MIN_WAIT)) {
                Ok(_) => return Ok(()),
                // A sync that has failed is told once: the next one may end well although pages are lost.
                Err(e) if e.kind() == ErrorKind::Io => return Err(e),
                Err(_) => {}
            }
            // A reader that comes when everything is in the file does not stand in the way of a new beginning.
            match self.checkpoint(CheckpointMode::Passive) {
                Err(e) if e.kind() == ErrorKind::Io => return Err(e),
                // Somebody else is at it, which nothing else keeps a passive one from. SQLite waits for no other
                // checkpoint; without a wait the WAL would grow as fast as is written while theirs lasts.
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

    pub(crate) fn wal_frames(&self) -> u32 {
        self.wal_frames.load(Ordering::Relaxed)
    }

    /// Returns a counter that advances with each commit of any process; `None` where no memory is
    /// shared.
    pub(crate) fn commit_counter(&self) -> Option<u32> {
        self.presence.as_ref()?;
        if self.journal_mode().ok()? != Some(JournalMode::Wal) {
            return None; // asking would make it
        }
        WalIndex::of(&self.conn).map(|index| index.commits())
    }

    // ---- writing back while the WAL grows ------------------------------------------------------

    /// Returns `true` if `go_on_writing_back` must be called. Call this after `note_commit`.
    #[inline]
    pub(crate) fn has_to_write_back(&mut self) -> bool {
        let frames = self.wal_frames();
        let aim = self.checkpoints.aim(frames);
        self.checkpoints.write_back.as_mut().is_some_and(|write_back| write_back.note_commit(frames, aim))
    }

    /// Continues to copy the WAL into the database. `let_go` releases snapshots that other handles
    /// keep between reads.
    #[cold]
    pub(crate) fn go_on_writing_back(&mut self, let_go: impl FnOnce()) {
        let aim = self.checkpoints.aim(self.wal_frames());
        let Some(mut write_back) = self.checkpoints.write_back.take() else { return };
        let all_let_go = || {
            let_go();
            let _ = self.switch_to_sql(); // fails only in the middle of a write
        };
        if write_back.go_on(&self.conn, aim, all_let_go) {
            self.checkpoints.write_back = Some(write_back);
        }
    }
}

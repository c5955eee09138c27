//! Copying of the WAL into the database, a few pages at a time, between commits (ADR 13).
//!
//! The WAL is copied in parts. One part takes these steps:
//!
//! 1. The WAL is synced in the background. The synced frames form the part.
//! 2. The last frame of each page in the part is written into the database, a few pages after every
//!    few commits.
//! 3. The written pages are synced in the background.
//! 4. When all pages of the part are on the disk, the number of copied frames is set in the
//!    wal-index (`nBackfill`), and the next part begins.
//!
//! Until step 4, SQLite does not rely on the copied pages, so the part can be abandoned at any
//! point.

use std::sync::Arc;

use rusqlite::Connection;

use super::os::{
    self, Begun, FRAME_HEADER, HandedOver, Opened, OsFile, Presence, Salts, WAL_HEADER, WalIndex,
};
use crate::error::{Error, Result};
use crate::hint::Hint;

/// Maximum number of commits between two steps of copying the WAL into the database. A step also
/// queries the state of a sync, which is a system call, so it does not run after every commit. If
/// the WAL is copied in small parts, there are fewer commits between two steps.
const LOOK_EACH: u32 = 8;
/// Minimum number of pages that one step copies from the WAL into the database, unless fewer pages
/// are left to copy.
const PAGES: u32 = 64;
/// Number of pages that are copied from the WAL into the database for each frame that commits add
/// to the WAL.
const SPEED: u32 = 2;
/// Number of pages that are copied from the WAL into the database for each frame that commits add,
/// while the WAL is so long that it should start over. For a shorter WAL, `SPEED` applies.
const SPEED_AT_THE_END: u32 = 4;
/// Number of frames after which a background sync begins: frames added to the WAL for a sync of the
/// WAL, and pages copied into the database for a sync of the database. A sync begins earlier if the
/// WAL is copied in smaller parts, or if all pages of a part are copied.
const SYNCED: u32 = 512;

/// Parameters for copying the WAL into the database, which happens in parts. They depend on the
/// current length of the WAL.
#[derive(Clone, Copy)]
pub(super) struct Aim {
    /// Minimum number of frames, synced but not yet in the database, with which the copying of a
    /// part of the WAL begins.
    pub(super) part: u32,
    /// Number of frames by which the WAL must grow before copying that another connection has begun
    /// and not completed counts as abandoned, for example by a crash.
    pub(super) patience: u32,
    /// Whether the WAL is so long that it should start over. Its frames are then copied faster.
    pub(super) at_the_end: bool,
}

/// State with which a connection copies the WAL into the database between its commits, in parts.
pub(super) struct WriteBack {
    index: WalIndex,
    presence: Arc<Presence>,
    wal: OsFile,
    page_size: usize,
    /// Length of the WAL at the last commit, in frames.
    frames: u32,
    /// Number of commits since the last step of the copying (`go_on`).
    commits: u32,
    /// Length of the WAL, in frames, when the last background sync of it began.
    begun_to_sync: u32,
    /// Background sync of the WAL that is in progress: the salts of the WAL, the number of frames
    /// that the sync covers, and the sync itself.
    sync: Option<(Salts, u32, HandedOver)>,
    /// Salts of the WAL, and the number of frames at its beginning that are synced to the disk.
    synced: (Salts, u32),
    part: Option<Part>,
    /// Copying that another connection has begun, as last seen: the salts of the WAL, the last
    /// frame that it covers, and the length of the WAL, in frames, when it was first seen.
    theirs: Option<(Salts, u32, u32)>,
}

/// Part of the WAL that is being copied into the database.
struct Part {
    begun: Begun,
    /// Pages still to be copied into the database, as pairs of page number and frame number. The
    /// last element is copied next.
    pages: Vec<(u32, u32)>,
    /// Buffer for one frame of the WAL: its header and a page.
    frame: Vec<u8>,
    /// Number of pages that may be copied into the database now. Each commit increases it.
    credit: u32,
    /// Number of pages that were copied into the database since its last background sync began.
    unsynced: u32,
    sync: Option<HandedOver>,
}

/// Result of one step of copying a part of the WAL: what the caller does next.
enum Next {
    GoOn,
    /// Begin another part of the WAL. This part is complete, cannot be completed, or was taken over
    /// by another connection.
    BeginAnother,
    /// Copy no further part. The kernel offers no asynchronous syncs.
    GiveUp,
}

impl WriteBack {
    pub(super) fn new(index: WalIndex, presence: Arc<Presence>, wal: OsFile, page_size: u64) -> WriteBack {
        WriteBack {
            index,
            presence,
            wal,
            page_size: usize::try_from(page_size).unwrap_or(0),
            frames: 0,
            commits: 0,
            begun_to_sync: 0,
            sync: None,
            synced: (index.salts(), 0),
            part: None,
            theirs: None,
        }
    }

    /// Returns the number of frames of the WAL that are already in the database.
    pub(super) fn written_back(&self) -> u32 {
        self.index.written_back()
    }

    /// Records the length of the WAL after a commit, in frames. Returns `true` if the next step of
    /// the copying (`go_on`) should run now.
    #[inline]
    pub(super) fn note_commit(&mut self, frames: u32, aim: Aim) -> bool {
        let grown = frames.checked_sub(self.frames).unwrap_or_else(|| {
            self.begun_to_sync = 0; // the WAL has started over
            frames
        });
        self.frames = frames;
        self.commits += 1;
        let speed = if aim.at_the_end { SPEED_AT_THE_END } else { SPEED };
        let is_paid = self.part.as_mut().is_some_and(|part| {
            part.credit = part.credit.saturating_add(grown.saturating_mul(speed));
            part.is_paid()
        });
        is_paid || self.commits >= LOOK_EACH.min(aim.part / 16) || grown >= aim.part
    }

    /// Returns `true` if this connection should begin to copy another part of the WAL: enough
    /// frames are synced, and neither this nor another connection is copying a part.
    fn wants_a_part(&mut self, aim: Aim) -> bool {
        if self.part.is_some() || self.synced.0 != self.index.salts() {
            return false;
        }
        let before = self.index.written_back();
        self.synced.1.saturating_sub(before) >= aim.part && !self.is_theirs(before, aim.patience)
    }

    /// Returns `true` if the wal-index shows that another connection is copying the WAL into the
    /// database. `before` is the number of frames that are already in the database.
    ///
    /// After a crash of that connection's process, the wal-index stays in this state. So the result
    /// becomes `false` when the WAL has grown by `patience` frames since the state was first seen.
    pub(super) fn is_theirs(&mut self, before: u32, patience: u32) -> bool {
        let (salts, begun) = (self.index.salts(), self.index.begun());
        let is_mine = self.part.as_ref().is_some_and(|part| self.index.is_at(&part.begun));
        if begun <= before || is_mine {
            return false;
        }
        match self.theirs {
            Some((known, at, frames)) if (known, at) == (salts, begun) => {
                self.frames.saturating_sub(frames) < patience
            }
            _ => {
                self.theirs = Some((salts, begun, self.frames));
                true
            }
        }
    }

    /// Performs the next step of copying the WAL into the database. If the step fails, the current
    /// part of the WAL is abandoned. Returns `false` if the kernel offers no asynchronous syncs;
    /// the caller must then leave the copying to checkpoints.
    ///
    /// `release_snapshots` releases the snapshots that handles keep between reads. It is called
    /// before a part begins, because a part covers only frames up to the oldest snapshot in use.
    pub(super) fn go_on(&mut self, conn: &Connection, aim: Aim, release_snapshots: impl FnOnce()) -> bool {
        self.commits = 0;
        if !self.sync_the_wal(conn, aim) {
            return false;
        }
        if self.wants_a_part(aim) {
            release_snapshots();
            self.part = self.begin_part(conn).ok().flatten();
        }
        let Some(part) = &mut self.part else { return true };
        match part.go_on(conn, self.index, &self.presence).unwrap_or(Next::BeginAnother) {
            Next::GoOn => true,
            Next::BeginAnother => {
                self.part = None;
                true
            }
            Next::GiveUp => false,
        }
    }

    /// Checks whether the background sync of the WAL has ended, and begins another one if enough
    /// frames have been added. Returns `false` if the kernel offers no asynchronous fdatasync.
    fn sync_the_wal(&mut self, conn: &Connection, aim: Aim) -> bool {
        if let Some((salts, frames, sync)) = &mut self.sync {
            let Some(well) = sync.outcome(conn) else { return true };
            if well {
                self.synced = (*salts, *frames);
            }
            self.sync = None;
        }
        if self.frames - self.begun_to_sync < SYNCED.min(aim.part) {
            return true;
        }
        let Some((salts, frames)) = self.index.state() else { return true };
        self.begun_to_sync = self.frames;
        self.sync = HandedOver::begin(conn, Opened::Journal, &self.wal).map(|sync| (salts, frames, sync));
        self.sync.is_some()
    }

    /// Begins to copy a part of the WAL: its synced frames that are not in the database yet.
    /// Returns `None` if there are none, or if another connection copies the WAL.
    fn begin_part(&self, conn: &Connection) -> Result<Option<Part>> {
        let (salts, frames) = self.synced;
        let Some(begun) = self.index.begin(conn, salts, frames)? else { return Ok(None) };
        let none = || Error::no_memory("out of memory while copying the WAL into the file");
        let mut pages = self.index.last_frames(conn, &begun).ok_or_else(none)?;
        pages.reverse();
        let mut frame = Vec::new();
        let length = FRAME_HEADER as usize + self.page_size;
        frame.try_reserve_exact(length).map_err(|_| none())?;
        frame.resize(length, 0);
        Ok(Some(Part { begun, pages, frame, credit: 0, unsynced: 0, sync: None }))
    }

    /// Ends the copying of the current part of the WAL, if there is one. If all its pages are
    /// written into the database and a sync covers them, waits for the sync and completes the part.
    /// Otherwise abandons the part.
    pub(super) fn stop(&mut self, conn: &Connection) {
        let Some(mut part) = self.part.take() else { return };
        if part.is_all_handed_over() && part.sync.as_mut().is_some_and(|sync| sync.wait(conn)) {
            let _ = self.index.set_written_back(conn, &part.begun);
        }
    }
}

impl Part {
    /// Returns `true` if at least `PAGES` pages, or all pages that are left, may be copied into the
    /// database now. Returns `false` if no pages are left.
    #[inline]
    fn is_paid(&self) -> bool {
        let left = u32::try_from(self.pages.len()).unwrap_or(u32::MAX);
        left > 0 && self.credit >= PAGES.min(left)
    }

    /// Returns `true` if all pages of the part are written into the database, and a sync that is in
    /// progress or has ended covers them.
    fn is_all_handed_over(&self) -> bool {
        self.pages.is_empty() && self.unsynced == 0
    }

    fn go_on(&mut self, conn: &Connection, index: WalIndex, presence: &Presence) -> Result<Next> {
        if let Some(sync) = &mut self.sync {
            match sync.outcome(conn) {
                Some(true) => self.sync = None,
                // The sync has failed, so the whole part must be written again.
                Some(false) => return Ok(Next::BeginAnother),
                None => {}
            }
        }
        if self.is_paid() && !self.write(conn, index)? {
            return Ok(Next::BeginAnother);
        }
        if self.sync.is_some() {
            return Ok(Next::GoOn);
        }
        if self.is_all_handed_over() {
            // If another connection holds a lock that this needs, the next step tries again.
            let is_over = index.set_written_back(conn, &self.begun)?.is_some();
            return Ok(if is_over { Next::BeginAnother } else { Next::GoOn });
        }
        if self.pages.is_empty() || self.unsynced >= SYNCED {
            self.unsynced = 0;
            self.sync = HandedOver::begin(conn, Opened::Main, presence.file());
            if self.sync.is_none() {
                return Ok(Next::GiveUp);
            }
        }
        Ok(Next::GoOn)
    }

    /// Copies as many pages into the database as `credit` allows; none if another connection holds
    /// a lock that this needs. Returns `false` if another connection has copied frames into the
    /// database since this part began, so that the part must be abandoned.
    fn write(&mut self, conn: &Connection, index: WalIndex) -> Result<bool> {
        let credit = std::mem::take(&mut self.credit);
        let Part { begun, pages, frame, unsynced, .. } = self;
        let written = index.while_writing_back(conn, begun, || {
            let first = pages.len().saturating_sub(credit as usize);
            for (page, number) in pages.drain(first..).rev() {
                *unsynced += 1;
                copy(conn, begun.salts, page, number, frame)?;
            }
            Ok(())
        })?;
        match written {
            // Another connection holds one of the locks: it runs a checkpoint, or reads from the
            // database alone, without the WAL. No page is written in this step.
            None => Ok(true),
            Some(None) => Ok(false),
            Some(Some(done)) => done.map(|()| true),
        }
    }
}

/// Copies page `page` from frame `number` of the WAL into the database. `frame` is a buffer with
/// the length of a frame. Fails if the header of the frame contains another page number or other
/// salts than expected. (The header of a frame is described in fileformat2.html, chapter 4.1.)
fn copy(conn: &Connection, salts: Salts, page: u32, number: u32, frame: &mut [u8]) -> Result<()> {
    let length = frame.len() as u64;
    os::read(conn, Opened::Journal, frame, u64::from(WAL_HEADER) + u64::from(number - 1) * length)?;
    let Some((header, content)) = frame.split_at_checked(FRAME_HEADER as usize) else {
        return Err(Error::io("a frame of the WAL is truncated"));
    };
    // SQLite keeps the salts in the byte order of the file.
    let [first, second] = salts.map(u32::to_ne_bytes);
    let is_it = header.starts_with(&page.to_be_bytes())
        && header.get(8..12) == Some(first.as_slice())
        && header.get(12..16) == Some(second.as_slice());
    if !is_it {
        return Err(Error::corrupt("a frame of the WAL belongs to another page than expected")
            .with_hint(Hint::CheckIntegrity));
    }
    os::write(conn, Opened::Main, content, u64::from(page - 1) * content.len() as u64)
}

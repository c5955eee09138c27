//! Writing a WAL back a few pages at a time, while commits go on (ADR 13).
//!
//! The kernel syncs the WAL now and then. What it has synced is written into the database, the last frame of each page,
//! a few pages after each few commits; the kernel syncs that, too. When all of a part is on the disk, the number of
//! frames that are written back is set in the wal-index, and the next part follows. Until then nothing of it counts,
//! and it may be left as it is at any point.

use std::sync::Arc;

use rusqlite::Connection;

use super::os::{
    self, Begun, FRAME_HEADER, HandedOver, Opened, OsFile, Presence, Salts, WAL_HEADER, WalIndex,
};
use crate::error::{Error, Result};
use crate::hint::Hint;

/// What is under way is looked at each so many commits, at most: to ask for a sync is a system call.
const LOOK_EACH: u32 = 8;
/// Pages that are written at a time, if there are so many.
const PAGES: u32 = 64;
/// Pages that are written for each frame that comes.
const SPEED: u32 = 2;
/// The same when the WAL is to begin anew.
const SPEED_AT_THE_END: u32 = 4;
/// Frames that come, and pages that are written, before a sync of them begins; fewer if nothing more is to be written.
const SYNCED: u32 = 512;

/// Targets of copying the WAL into the database in parts.
#[derive(Clone, Copy)]
pub(super) struct Aim {
    /// Minimum number of frames of one part.
    pub(super) part: u32,
    /// Number of frames by which the WAL grows before a part that another process has begun counts
    /// as abandoned.
    pub(super) patience: u32,
    /// Whether the WAL should start over.
    pub(super) at_the_end: bool,
}

/// State of a connection that copies the WAL into the database in parts.
pub(super) struct WriteBack {
    index: WalIndex,
    presence: Arc<Presence>,
    wal: OsFile,
    page_size: usize,
    /// How long the WAL was at the last commit.
    frames: u32,
    /// Commits since the last look.
    commits: u32,
    /// How long it was when its last sync began.
    begun_to_sync: u32,
    /// That sync, and of what.
    sync: Option<(Salts, u32, HandedOver)>,
    /// So many frames of this WAL are on the disk.
    synced: (Salts, u32),
    part: Option<Part>,
    /// What somebody else had begun when this was looked at last, and how long the WAL was.
    theirs: Option<(Salts, u32, u32)>,
}

/// What is being written back.
struct Part {
    begun: Begun,
    /// Pages and their frames, the next at the end.
    pages: Vec<(u32, u32)>,
    /// Room for a frame.
    frame: Vec<u8>,
    /// Pages that may be written by now.
    credit: u32,
    /// Pages that are written, and no sync has begun since.
    unsynced: u32,
    sync: Option<HandedOver>,
}

/// What there is to do after a step.
enum Next {
    GoOn,
    /// Nothing: the part is written back, or cannot be, or others have taken it over.
    BeginAnother,
    /// Nothing ever: the system makes no syncs for us.
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

    /// Returns the number of frames that the database already has.
    pub(super) fn written_back(&self) -> u32 {
        self.index.written_back()
    }

    /// Records the length of the WAL after a commit, in frames. Returns `true` if `go_on` must be
    /// called.
    #[inline]
    pub(super) fn note_commit(&mut self, frames: u32, aim: Aim) -> bool {
        let grown = frames.checked_sub(self.frames).unwrap_or_else(|| {
            self.begun_to_sync = 0; // it has begun anew
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

    /// Whether there is enough for a part.
    fn wants_a_part(&mut self, aim: Aim) -> bool {
        if self.part.is_some() || self.synced.0 != self.index.salts() {
            return false;
        }
        let before = self.index.written_back();
        self.synced.1.saturating_sub(before) >= aim.part && !self.is_theirs(before, aim.patience)
    }

    /// Whether somebody else is at it, or was a moment ago. After a crash it looks the same for ever: so it is left to
    /// them until the WAL has grown some more.
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

    /// Does what there is to do now. What fails is left as it is. `let_go`: lets snapshots go that are kept between
    /// reads, which would make a part smaller. `false`: the system makes no syncs for us, so checkpoints alone write
    /// back from now on.
    pub(super) fn go_on(&mut self, conn: &Connection, aim: Aim, let_go: impl FnOnce()) -> bool {
        self.commits = 0;
        if !self.sync_the_wal(conn, aim) {
            return false;
        }
        if self.wants_a_part(aim) {
            let_go();
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

    /// Says whether the system does that.
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

    /// Abandons a copy in progress. If only its sync is left, waits for that.
    pub(super) fn stop(&mut self, conn: &Connection) {
        let Some(mut part) = self.part.take() else { return };
        if part.is_all_handed_over() && part.sync.as_mut().is_some_and(|sync| sync.wait(conn)) {
            let _ = self.index.set_written_back(conn, &part.begun);
        }
    }
}

impl Part {
    #[inline]
    fn is_paid(&self) -> bool {
        let left = u32::try_from(self.pages.len()).unwrap_or(u32::MAX);
        left > 0 && self.credit >= PAGES.min(left)
    }

    /// Whether all is written, and in a sync that is under way or has ended.
    fn is_all_handed_over(&self) -> bool {
        self.pages.is_empty() && self.unsynced == 0
    }

    fn go_on(&mut self, conn: &Connection, index: WalIndex, presence: &Presence) -> Result<Next> {
        if let Some(sync) = &mut self.sync {
            match sync.outcome(conn) {
                Some(true) => self.sync = None,
                // All of it has to be written again.
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
            // If others have the locks for this, it is done the next time.
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

    /// Writes as many pages as there is credit for; `false`: others have written back meanwhile.
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
            // Somebody reads the database alone, or looks after it: not now.
            None => Ok(true),
            Some(None) => Ok(false),
            Some(Some(done)) => done.map(|()| true),
        }
    }
}

/// Writes a page from its frame into the database. (The frame's header: fileformat2.html, chapter 4.1.)
fn copy(conn: &Connection, salts: Salts, page: u32, number: u32, frame: &mut [u8]) -> Result<()> {
    let length = frame.len() as u64;
    os::read(conn, Opened::Journal, frame, u64::from(WAL_HEADER) + u64::from(number - 1) * length)?;
    let Some((header, content)) = frame.split_at_checked(FRAME_HEADER as usize) else {
        return Err(Error::io("a frame of the WAL is truncated"));
    };
    // SQLite keeps the salts as they stand in the file.
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

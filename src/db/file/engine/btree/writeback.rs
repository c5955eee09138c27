//! Starts to write the WAL to the disk while it grows, so that the sync before a checkpoint has little left to
//! wait for. Promises nothing, and may always be left out: what has to be durable is synced by SQLite.

use std::path::Path;

use crate::db::file::os::{FRAME_HEADER, OsFile, WAL_HEADER};

/// How many frames are written at a time.
const STEP: u32 = 512;

/// The WAL of a file.
pub(super) struct Writeback {
    wal: OsFile,
    frame: u64,
    /// Frames of which the writing has begun.
    begun: u32,
}

impl Writeback {
    /// The WAL carries no locks, so it may be opened and closed beside SQLite.
    pub(super) fn of(wal: &Path, page_size: u64) -> Option<Writeback> {
        if !cfg!(target_os = "linux") {
            return None;
        }
        Some(Writeback {
            wal: OsFile::open(wal, false, false).ok()?,
            frame: u64::from(FRAME_HEADER) + page_size,
            begun: 0,
        })
    }

    /// Says that the WAL has so many frames now.
    #[inline]
    pub(super) fn grown_to(&mut self, frames: u32) {
        if frames < self.begun {
            self.begun = 0; // it has begun anew
        }
        if frames - self.begun >= STEP {
            self.begin(frames);
        }
    }

    fn begin(&mut self, frames: u32) {
        let start = u64::from(WAL_HEADER) + u64::from(self.begun) * self.frame;
        let length = u64::from(frames - self.begun) * self.frame;
        self.begun = frames;
        self.wal.begin_to_write(start, length);
    }
}

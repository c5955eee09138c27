//! Starts to write the WAL to the disk while it grows, so that the sync before a checkpoint has little left to
//! wait for. Promises nothing, and may always be left out: what has to be durable is synced by SQLite.
#![allow(unsafe_code)]

use std::fs::File;
use std::path::Path;

/// How many frames are written at a time.
const STEP: u32 = 512;
/// Size of the WAL's header and of a frame's (SQLite's fileformat2.html, chapter 4.1).
const WAL_HEADER: u64 = 32;
const FRAME_HEADER: u64 = 24;

/// The WAL of a file.
pub(super) struct Writeback {
    wal: File,
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
        Some(Writeback { wal: File::open(wal).ok()?, frame: FRAME_HEADER + page_size, begun: 0 })
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
        let start = WAL_HEADER + u64::from(self.begun) * self.frame;
        let length = u64::from(frames - self.begun) * self.frame;
        self.begun = frames;
        begin_to_write(&self.wal, start, length);
    }
}

/// Makes the kernel write this part of a file, without waiting for that.
#[cfg(target_os = "linux")]
fn begin_to_write(file: &File, start: u64, length: u64) {
    use std::os::fd::AsRawFd;
    if let (Ok(start), Ok(length)) = (i64::try_from(start), i64::try_from(length)) {
        // SAFETY: an open file. It is a hint: nothing depends on what it answers.
        unsafe {
            libc::sync_file_range(file.as_raw_fd(), start, length, libc::SYNC_FILE_RANGE_WRITE);
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn begin_to_write(_: &File, _: u64, _: u64) {}

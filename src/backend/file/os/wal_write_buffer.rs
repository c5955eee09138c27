//! Buffer for WAL frames that SQLite has passed to the VFS but that are not in the WAL file yet
//! (ADR 12).
//!
//! SQLite writes each frame as a header of 24 bytes and a page. That takes two system calls per
//! frame, and a commit has several frames. This buffer collects the frames until the page of the
//! *commit* frame arrives, and writes them into the file with one call. That is early enough: no
//! connection reads more frames than the wal-index counts, and SQLite updates this count only after
//! its last write has returned. So an error (a full disk) is still returned where SQLite expects
//! one.
//!
//! Only frames at the end of the WAL are buffered. Two kinds of writes bypass the buffer: writes
//! into frames that SQLite has written before (by a transaction too large for the cache), and bytes
//! that are not a frame. Every other operation on the file writes the buffered frames first. (WAL
//! format: SQLite's fileformat2.html, chapter 4; the writes: `walFrames` in wal.c.)

use std::ffi::c_int;

use rusqlite::ffi::SQLITE_OK;

use super::system::OsFile;

/// Size of the header of a WAL, in bytes (SQLite's fileformat2.html, chapter 4.1).
pub(in crate::backend::file) const WAL_HEADER: u32 = 32;
/// Size of the header of a WAL frame, in bytes (SQLite's fileformat2.html, chapter 4.1).
pub(in crate::backend::file) const FRAME_HEADER: u32 = 24;

/// Numbers of frames for which `reserve_least_wal` tries to reserve disk space in a WAL, the
/// largest first: the first number for which the disk has space is used. Removing a key writes
/// about ten frames, and sometimes [pointer map pages](pointer_map_pages).
const FIRST_FRAMES: [u32; 3] = [32, 20, 12];
/// Minimum total size, in bytes, of the pages of the frames for which `reserve_least_wal` first
/// tries to reserve disk space. With small pages this gives more frames than [`FIRST_FRAMES`]: a
/// long value then takes many frames.
const FIRST_BYTES: u64 = 64 * 1024;

/// Size of an entry of a pointer map page, in bytes (SQLite's fileformat2.html, chapter 1.8).
const POINTER_MAP_ENTRY: u64 = 5;

/// Returns the maximum number of pointer map pages that the removal of one key changes, in a
/// database of `pages` pages of `page_size` bytes.
///
/// When SQLite moves children between neighbouring interior pages of a B-tree, it changes the
/// pointer map entry of each child, and each entry may be on another pointer map page. An interior
/// page has at most one child per 7 bytes, and SQLite moves the children of three pages at once
/// (`balance_nonroot` in btree.c).
pub(in crate::backend::file) fn pointer_map_pages(page_size: u64, pages: u64) -> u32 {
    let pages = pages / (page_size / POINTER_MAP_ENTRY).max(1) + 1;
    u32::try_from(pages.min(3 * page_size / 7)).unwrap_or(u32::MAX)
}

/// Returns the numbers of frames for which `reserve_least_wal` tries to reserve space, the largest
/// first. `page_size` is in bytes, and `pages` is the length of the database in pages.
fn first_frames(page_size: u64, pages: u64) -> impl Iterator<Item = u32> {
    let by_size = u32::try_from(FIRST_BYTES / page_size.max(1)).unwrap_or(0);
    let first = by_size.max(FIRST_FRAMES[0]);
    let with_pointers = first.saturating_add(pointer_map_pages(page_size, pages));
    [with_pointers, first].into_iter().chain(FIRST_FRAMES)
}

/// Returns the length, in bytes, of a WAL with `frames` frames, for pages of `page_size` bytes.
pub(in crate::backend::file) fn length_of_wal(page_size: u64, frames: u32) -> u64 {
    u64::from(WAL_HEADER) + u64::from(frames) * (u64::from(FRAME_HEADER) + page_size)
}

/// Returns the length, in bytes, of the WAL that removals of keys need while the disk is full.
/// `page_size` is in bytes, and `pages` is the length of the database in pages.
pub(in crate::backend::file) fn least_wal(page_size: u64, pages: u64) -> u64 {
    length_of_wal(page_size, first_frames(page_size, pages).next().unwrap_or_default())
}

/// Reserves disk space for a WAL, so that keys can still be removed while the disk is full.
/// Reserves space for fewer frames, or for none, if the disk lacks it. `page_size` is in bytes, and
/// `pages` is the length of the database in pages.
pub(in crate::backend::file) fn reserve_least_wal(wal: &OsFile, page_size: u64, pages: u64) {
    let reserve = |frames| wal.reserve(length_of_wal(page_size, frames));
    first_frames(page_size, pages).find(|frames| reserve(*frames).is_ok());
}

/// Byte range, in the header of a WAL frame, of the field that marks a commit frame: the length of
/// the database after the commit, in pages. It is 0 if the frame does not end a commit.
const COMMIT: std::ops::Range<usize> = 4..8;
/// Maximum number of bytes of WAL frames that a `Frames` buffers. A single frame that is larger is
/// buffered as well.
const MOST: usize = 64 * 1024;

/// Function that writes bytes into the WAL file at an offset and returns SQLite's result code.
pub(super) trait Write: FnMut(&[u8], i64) -> c_int {}
impl<F: FnMut(&[u8], i64) -> c_int> Write for F {}

/// Buffer for the frames that SQLite writes into one open WAL, until they are written into the
/// file.
#[derive(Default)]
pub(super) struct Frames {
    /// Buffered bytes, which are not in the file yet.
    kept: Vec<u8>,
    /// Offset, in the file, at which the first buffered byte is to be written.
    start: i64,
    /// Whether the last buffered bytes are a frame header whose page SQLite has not written yet.
    wants_page: bool,
    /// Whether the last frame header that was buffered belongs to a commit frame.
    is_commit: bool,
    /// Offset after the last byte that was written into the file since this connection took the
    /// writer's lock; 0 if none was.
    end: i64,
    /// Offset, in the file, of the last commit frame if SQLite will sync this commit and the sync
    /// has not ended; otherwise `None`.
    unsynced_commit: Option<i64>,
}

impl Frames {
    /// Returns the offset, in the file, after the last buffered byte.
    fn end_of_kept(&self) -> i64 {
        self.start + i64::try_from(self.kept.len()).unwrap_or(i64::MAX)
    }

    /// Buffers `bytes`, which SQLite writes at the offset `at` of the file, or writes them into the
    /// file with `write`. Returns SQLite's result code, and `true` if this call has completed a
    /// commit in the file.
    pub(super) fn write(&mut self, bytes: &[u8], at: i64, write: &mut impl Write) -> (c_int, bool) {
        if self.kept.is_empty() {
            self.start = at;
        }
        let follows = at == self.end_of_kept() && at >= self.end;
        if self.wants_page && follows {
            return self.page(bytes, write);
        }
        if bytes.len() == FRAME_HEADER as usize && follows && at >= i64::from(WAL_HEADER) && self.keep(bytes)
        {
            self.wants_page = true;
            self.is_commit = bytes.get(COMMIT).is_some_and(|pages| pages.iter().any(|byte| *byte != 0));
            return (SQLITE_OK, false);
        }
        match self.flush(write) {
            SQLITE_OK => (self.put(bytes, at, write), false),
            code => (code, false),
        }
    }

    /// Buffers `bytes`, the page of the frame whose header was buffered last. If the frame is a
    /// commit frame or the buffer is full, writes the buffered bytes into the file. The result is
    /// that of `Frames::write`.
    fn page(&mut self, bytes: &[u8], write: &mut impl Write) -> (c_int, bool) {
        let at = self.end_of_kept();
        if !self.keep(bytes) {
            // There is no memory to buffer the page, so the buffered bytes are written into the
            // file, then the page.
            let code = match self.flush(write) {
                SQLITE_OK => self.put(bytes, at, write),
                code => code,
            };
            return (code, code == SQLITE_OK && self.is_commit);
        }
        self.wants_page = false;
        if !self.is_commit && self.kept.len() + FRAME_HEADER as usize + bytes.len() <= MOST {
            return (SQLITE_OK, false);
        }
        match self.flush(write) {
            SQLITE_OK => (SQLITE_OK, self.is_commit),
            code => {
                // Drops this frame: SQLite receives the error of its write. The frames before it
                // stay buffered, because SQLite may assume that they have been written.
                self.kept.truncate(self.kept.len().saturating_sub(FRAME_HEADER as usize + bytes.len()));
                (code, false)
            }
        }
    }

    /// Adds bytes to the buffer. Returns `false`, and adds nothing, if there is no memory.
    #[inline]
    fn keep(&mut self, bytes: &[u8]) -> bool {
        let has_room = self.kept.try_reserve(bytes.len()).is_ok();
        if has_room {
            self.kept.extend_from_slice(bytes);
        }
        has_room
    }

    /// Writes the buffered bytes into the file. Returns SQLite's result code. After a failure they
    /// stay buffered, because SQLite assumes that they have been written.
    #[inline]
    pub(super) fn flush(&mut self, write: &mut impl Write) -> c_int {
        if self.kept.is_empty() {
            return SQLITE_OK;
        }
        let code = write(&self.kept, self.start);
        if code == SQLITE_OK {
            self.end = self.end.max(self.end_of_kept());
            self.kept.clear();
            self.wants_page = false;
        }
        code
    }

    /// Writes bytes at the offset `at` of the file, past the buffer. Returns SQLite's result code.
    fn put(&mut self, bytes: &[u8], at: i64, write: &mut impl Write) -> c_int {
        let code = write(bytes, at);
        if at == 0 {
            self.end = 0; // the WAL restarts
        }
        self.end = self.end.max(at.saturating_add(i64::try_from(bytes.len()).unwrap_or(i64::MAX)));
        code
    }

    /// Discards the buffered bytes. Call this when the writer's lock is released: the bytes belong
    /// to no commit, and other writers may write other frames at the same offsets.
    pub(super) fn discard(&mut self) {
        self.kept.clear();
        self.wants_page = false;
        self.end = 0;
        self.unsynced_commit = None;
    }

    /// Updates this buffer after the WAL file was truncated to `length` bytes.
    pub(super) fn truncated(&mut self, length: i64) {
        self.end = self.end.min(length);
    }

    /// Records that SQLite will sync the commit whose last frame was just written into the file.
    /// `frame` is the length of that frame, in bytes, with its header.
    pub(super) fn awaits_sync(&mut self, frame: usize) {
        self.unsynced_commit = Some(self.end - i64::try_from(frame).unwrap_or(0));
    }

    /// Updates this buffer after a sync of the WAL file. `well` is `true` if the sync succeeded,
    /// and `write` writes into the file.
    ///
    /// If the sync of a commit fails, SQLite returns the error and rolls the commit back in memory.
    /// So the header of the commit frame is then overwritten with zeros in the file. Otherwise a
    /// connection that reads the file after a crash would find the commit.
    pub(super) fn synced(&mut self, well: bool, write: &mut impl Write) {
        if let Some(at) = self.unsynced_commit.take()
            && !well
        {
            write(&[0; FRAME_HEADER as usize], at);
        }
    }

    /// Returns the offset after the last byte that was written into the file since this connection
    /// took the writer's lock; 0 if none was.
    pub(super) fn end(&self) -> i64 {
        self.end
    }
}

//! The frames of a WAL that SQLite has handed over and that are not in the file yet.
//!
//! SQLite writes each frame as a header of 24 bytes and a page: two system calls, and several frames to a commit. Here
//! they are kept until the page of the *commit* frame comes, and go into the file with one call. That is early enough:
//! nobody looks for frames beyond those that the wal-index counts, and SQLite counts them only after the last of its
//! writes came back; so an error (a full disk) is still answered where SQLite expects one.
//!
//! Only frames at the end are kept: of what SQLite writes into frames that it has written before (a transaction too
//! large for the cache), or of anything that is not a frame, nothing is. Whatever else is done with the file, what is
//! kept is written before. (WAL format: SQLite's fileformat2.html, chapter 4; the writes: `walFrames` in wal.c.)

use std::ffi::c_int;

use rusqlite::ffi::SQLITE_OK;

/// Size of the header of a WAL, in bytes (SQLite's fileformat2.html, chapter 4.1).
pub(in crate::db::file) const WAL_HEADER: u32 = 32;
pub(in crate::db::file) const FRAME_HEADER: u32 = 24;

/// Place in the header of a frame of the number of pages of the database after the commit; 0 if the
/// frame ends no commit.
const COMMIT: std::ops::Range<usize> = 4..8;
/// Maximum number of buffered bytes, unless one frame is larger.
const MOST: usize = 64 * 1024;

/// Function that writes bytes into the file at an offset and returns SQLite's result code.
pub(super) trait Write: FnMut(&[u8], i64) -> c_int {}
impl<F: FnMut(&[u8], i64) -> c_int> Write for F {}

/// Buffer for the frames that SQLite writes into one open WAL.
#[derive(Default)]
pub(super) struct Frames {
    kept: Vec<u8>,
    /// Offset in the file of the first buffered byte.
    start: i64,
    /// A header has come, and its page has not.
    wants_page: bool,
    /// That header is a commit's.
    is_commit: bool,
    /// The end of all that was written since the writer's lock was taken.
    end: i64,
    /// Offset of the last commit frame that was written and must be synced before it is valid.
    unsynced_commit: Option<i64>,
}

impl Frames {
    /// The end of what is kept.
    fn end_of_kept(&self) -> i64 {
        self.start + i64::try_from(self.kept.len()).unwrap_or(i64::MAX)
    }

    /// Accepts bytes that SQLite writes into the file. Returns SQLite's result code, and whether a
    /// whole commit has gone into the file.
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

    fn page(&mut self, bytes: &[u8], write: &mut impl Write) -> (c_int, bool) {
        let at = self.end_of_kept();
        if !self.keep(bytes) {
            // No memory for it: what is kept goes first.
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
                // As if this frame had not come; those before it SQLite may take for written.
                self.kept.truncate(self.kept.len().saturating_sub(FRAME_HEADER as usize + bytes.len()));
                (code, false)
            }
        }
    }

    /// Adds to what is kept; says whether there was memory.
    #[inline]
    fn keep(&mut self, bytes: &[u8]) -> bool {
        let has_room = self.kept.try_reserve(bytes.len()).is_ok();
        if has_room {
            self.kept.extend_from_slice(bytes);
        }
        has_room
    }

    /// Writes the buffered bytes. After a failure they stay buffered, because SQLite takes them for
    /// written.
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

    fn put(&mut self, bytes: &[u8], at: i64, write: &mut impl Write) -> c_int {
        let code = write(bytes, at);
        if at == 0 {
            self.end = 0; // the WAL begins anew
        }
        self.end = self.end.max(at.saturating_add(i64::try_from(bytes.len()).unwrap_or(i64::MAX)));
        code
    }

    /// Discards the buffered bytes when the writer lock is released: they belong to no commit, and
    /// other writers may use that place.
    pub(super) fn discard(&mut self) {
        self.kept.clear();
        self.wants_page = false;
        self.end = 0;
        self.unsynced_commit = None;
    }

    /// Updates the buffer after the file was truncated to `length` bytes.
    pub(super) fn truncated(&mut self, length: i64) {
        self.end = self.end.min(length);
    }

    /// Records that a commit, whose last frame was just written, is synced before its call returns.
    pub(super) fn awaits_sync(&mut self, frame: usize) {
        self.unsynced_commit = Some(self.end - i64::try_from(frame).unwrap_or(0));
    }

    /// To be told that the file was synced, or not. A commit that was not is answered with the error, and rolled back
    /// in memory; so its frame must be no commit in the file either, for whoever reads that after a crash.
    pub(super) fn synced(&mut self, well: bool, write: &mut impl Write) {
        if let Some(at) = self.unsynced_commit.take()
            && !well
        {
            write(&[0; FRAME_HEADER as usize], at);
        }
    }

    /// Returns the offset after the last byte written.
    pub(super) fn end(&self) -> i64 {
        self.end
    }
}

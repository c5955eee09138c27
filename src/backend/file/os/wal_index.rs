//! The wal-index: memory that all connections to a file share in WAL mode.
//!
//! It begins with two copies of a header of 48 bytes, followed by the state of checkpoints
//! (SQLite's walformat.html, chapter 2).

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ffi};

use super::sqlite_file::{Opened, object};
use crate::error::Result;

/// Number of frames whose pages the first region of the wal-index contains (`HASHTABLE_NPAGE_ONE`).
const FRAMES_OF_THE_FIRST: u32 = FRAMES_OF_A_REGION - PAGES as u32;
/// Number of frames whose pages any other region contains (`HASHTABLE_NPAGE`).
const FRAMES_OF_A_REGION: u32 = 4096;

/// Length of the header. It and all positions below are in words of 32 bits.
const HEADER: usize = 12;
/// Position of `isInit`, the first byte of the word: 1 once the header has been written.
const IS_INIT: usize = 3;
/// Position of `aCksum`, the checksum of the words before it.
const CHECKSUM: usize = 10;
/// Position of `iChange`, which each commit increments.
const COMMITS: usize = 2;
/// Position of `mxFrame`, the number of frames of the WAL.
const FRAMES: usize = 4;
/// Position of `nPage`, the number of pages of the database.
const SIZE: usize = 5;
/// Position of `aSalt`, the two salts, which change each time the WAL restarts.
const SALTS: usize = 8;
/// Position of `nBackfill`, the number of frames that are also in the database. A writer of this
/// word holds both locks below: `CHECKPOINT_LOCK` and `READ_LOCK_0`.
const WRITTEN_BACK: usize = 24;
/// Position of `aReadMark`: a reader with the lock of the same number reads no frames after this
/// one.
const READ_MARKS: usize = 25;
const READERS: usize = 5;
/// Value of a read mark that no reader uses (`READMARK_NOT_USED`).
const NOT_USED: u32 = u32::MAX;
/// Position of the number of times that a connection has begun to write frames back. The numbers of
/// frames alone may repeat.
///
/// The word is in the space for locks, which SQLite does not write. A writer of this word holds the
/// checkpoint lock.
const TURN: usize = 30;
/// Position of `nBackfillAttempted`, the number of frames that may be in the database.
const BEGUN: usize = 32;
/// Position of the page numbers of the frames, in the first region.
const PAGES: usize = 34;

/// Time for which a header is expected to stay torn at most. A header that is torn for longer shows
/// a crash or another lasting condition.
const TORN: Duration = Duration::from_millis(10);

/// Number of the lock of a checkpoint.
const CHECKPOINT_LOCK: c_int = 1;
/// Number of the lock of readers that read nothing from the WAL.
const READ_LOCK_0: c_int = 3;

/// Header of the wal-index at one moment. It changes with each commit, and when the WAL restarts.
pub(in crate::backend::file) type Header = [u32; HEADER];

/// Salts of a WAL. They identify it among the WALs that follow each other in one file.
pub(in crate::backend::file) type Salts = [u32; 2];

/// Returns the number of frames of a WAL, from the header of its wal-index.
pub(in crate::backend::file) fn frames(header: &Header) -> u32 {
    header.get(FRAMES).copied().unwrap_or(0)
}

/// Returns `true` if SQLite accepts this header (`walIndexTryHdr`).
fn is_sound(header: &Header) -> bool {
    let (words, sum) = header.split_at(CHECKSUM);
    let is_init = words.get(IS_INIT).is_some_and(|word| matches!(word.to_ne_bytes(), [1..=u8::MAX, ..]));
    // The checksum (fileformat2.html, chapter 4.2), in the byte order of the machine.
    let (mut s0, mut s1) = (0_u32, 0_u32);
    for pair in words.chunks_exact(2) {
        let &[first, second] = pair else { return false };
        s0 = s0.wrapping_add(first).wrapping_add(s1);
        s1 = s1.wrapping_add(second).wrapping_add(s0);
    }
    is_init && sum == [s0, s1]
}

/// Shared wal-index of a connection.
#[derive(Clone, Copy)]
pub(in crate::backend::file) struct WalIndex(NonNull<AtomicU32>);

// SAFETY: all processes share this memory. It is read and written atomically.
unsafe impl Send for WalIndex {}

impl WalIndex {
    /// Size of a region, in bytes. SQLite maps each region as a whole.
    ///
    /// The page numbers of frames are in the first half of a region; in the first region, they
    /// follow the words above.
    pub(super) const REGION: c_int = 32_768;

    /// Returns the wal-index whose first region is mapped at `region`; `None` if `region` is NULL.
    ///
    /// # Safety
    /// The whole region stays mapped there as long as the result is used.
    pub(super) unsafe fn at(region: *mut c_void) -> Option<WalIndex> {
        NonNull::new(region.cast()).map(WalIndex)
    }

    /// Returns the wal-index that the connection's VFS has mapped; `None` if the connection is not
    /// in WAL mode, or if its wal-index is not in shared memory.
    pub(in crate::backend::file) fn of(conn: &Connection) -> Option<WalIndex> {
        WalIndex::part(conn, 0)
    }

    /// Returns the region with the given number.
    fn part(conn: &Connection, number: c_int) -> Option<WalIndex> {
        let file = object(conn, Opened::Main).ok()?;
        let mut region: *mut c_void = ptr::null_mut();
        // SAFETY: the connection is open, and the methods of its file are valid as long as it is.
        // xShmMap is public (sqlite3_io_methods). It is called as by SQLite's WAL, for a region
        // that already exists, so the memory is not extended.
        unsafe {
            let methods = file.as_ref()?.pMethods.as_ref()?;
            if methods.iVersion < 2 {
                return None;
            }
            if methods.xShmMap?(file, number, WalIndex::REGION, 0, &raw mut region) != ffi::SQLITE_OK {
                return None;
            }
        }
        // SAFETY: the VFS has mapped the region. It stays mapped until the connection is closed or
        // leaves WAL mode. This library leaves WAL mode only while it opens a store, or when it no
        // longer uses this value.
        unsafe { WalIndex::at(region) }
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at < WalIndex::REGION as usize / 4);
        // SAFETY: the region is mapped, as `WalIndex::at` requires. It is 32 KiB long, and aligned
        // to a page. Other processes write it, hence the atomics.
        unsafe { self.0.add(at).as_ref() }
    }

    /// Returns the current header. A header that a commit is writing differs from the ones before
    /// and after.
    #[inline]
    pub(in crate::backend::file) fn header(&self) -> Header {
        let header = std::array::from_fn(|at| self.word(at).load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        header
    }

    /// Returns the header; `None` while a commit is writing it.
    ///
    /// A writer writes the second of the two copies first. Here the second copy is read last.
    fn untorn(&self) -> Option<Header> {
        let first = self.header();
        let second: Header = std::array::from_fn(|at| self.word(HEADER + at).load(Ordering::Relaxed));
        (first == second).then_some(first)
    }

    /// Returns the salts of the WAL and its number of frames; `None` during a commit.
    pub(in crate::backend::file) fn state(&self) -> Option<(Salts, u32)> {
        let header = self.untorn()?;
        let &[.., salt, other_salt, _, _] = &header;
        Some(([salt, other_salt], frames(&header)))
    }

    /// Returns `true` if SQLite accepts the header. Waits for a commit that is writing it, but not
    /// longer than [`TORN`]; then returns `false`.
    pub(super) fn becomes_whole(&self) -> bool {
        let started = Instant::now();
        loop {
            if let Some(header) = self.untorn() {
                return is_sound(&header);
            }
            if started.elapsed() > TORN {
                return false;
            }
            thread::yield_now();
        }
    }

    pub(in crate::backend::file) fn salts(&self) -> Salts {
        [self.word(SALTS).load(Ordering::Acquire), self.word(SALTS + 1).load(Ordering::Acquire)]
    }

    /// Returns a number that each commit increments. It starts over when the WAL is recovered after
    /// a crash.
    pub(in crate::backend::file) fn commits(&self) -> u32 {
        self.word(COMMITS).load(Ordering::Relaxed)
    }

    /// Returns the number of frames that are already in the database.
    pub(in crate::backend::file) fn written_back(&self) -> u32 {
        self.word(WRITTEN_BACK).load(Ordering::Relaxed)
    }

    /// Returns the number of frames whose copying into the database has begun.
    pub(in crate::backend::file) fn begun(&self) -> u32 {
        self.word(BEGUN).load(Ordering::Relaxed)
    }

    /// Returns the number of times that a connection has begun to write frames back.
    fn turn(&self) -> u32 {
        self.word(TURN).load(Ordering::Acquire)
    }

    /// Returns `true` if no other connection has begun to write frames back since `begun`, and the
    /// WAL is the same.
    pub(in crate::backend::file) fn is_at(&self, begun: &Begun) -> bool {
        (self.salts(), self.turn(), self.begun()) == (begun.salts, begun.turn, begun.frames)
    }

    /// Begins to write back the first `frames` frames, of which the last one ends a commit. From
    /// now on no connection begins to read the database as it was before that commit.
    ///
    /// If a reader still uses an older snapshot, the write-back covers fewer frames. Returns `None`
    /// if there is nothing to do, if the WAL is not the one with these salts, or if another
    /// connection is writing back.
    ///
    /// # Errors
    /// The error of SQLite if it does not return the file.
    pub(in crate::backend::file) fn begin(
        &self,
        conn: &Connection,
        salts: Salts,
        frames: u32,
    ) -> Result<Option<Begun>> {
        let begun = Locks::of(conn)?.under(CHECKPOINT_LOCK, |locks| {
            if self.salts() != salts || frames > self.word(FRAMES).load(Ordering::Acquire) {
                return None;
            }
            // As in `walCheckpoint` (wal.c).
            let mut frames = frames;
            for reader in 1..READERS {
                let mark = self.word(READ_MARKS + reader);
                let read = mark.load(Ordering::Acquire);
                if frames <= read {
                    continue;
                }
                let nobody = locks.under(READ_LOCK_0 + reader as c_int, |_| {
                    mark.store(if reader == 1 { frames } else { NOT_USED }, Ordering::Release);
                });
                if nobody.is_none() {
                    frames = read;
                }
            }
            let before = self.written_back();
            // Never begins with fewer frames than another connection has begun with, because
            // SQLite's `sqlite3_snapshot_open` relies on that.
            (before < frames && self.begun() <= frames).then(|| {
                let turn = self.turn().wrapping_add(1);
                self.word(TURN).store(turn, Ordering::Release);
                self.word(BEGUN).store(frames, Ordering::Release);
                Begun { salts, before, frames, turn }
            })
        });
        Ok(begun.flatten())
    }

    /// Returns the frames to write back, as pairs of page and frame in the order of the pages. Each
    /// frame is the last one of its page. Returns `None` if there is no memory, or if the wal-index
    /// cannot be read.
    pub(in crate::backend::file) fn last_frames(
        &self,
        conn: &Connection,
        begun: &Begun,
    ) -> Option<Vec<(u32, u32)>> {
        let mut pages = Vec::new();
        pages.try_reserve_exact((begun.frames - begun.before) as usize).ok()?;
        let size = self.word(SIZE).load(Ordering::Acquire);
        let (mut part, mut mapped) = (0, *self);
        for frame in begun.before..begun.frames {
            let (number, at) = match frame.checked_sub(FRAMES_OF_THE_FIRST) {
                None => (0, PAGES + frame as usize),
                Some(frame) => (1 + frame / FRAMES_OF_A_REGION, (frame % FRAMES_OF_A_REGION) as usize),
            };
            if number != part {
                (part, mapped) = (number, WalIndex::part(conn, c_int::try_from(number).ok()?)?);
            }
            let page = mapped.word(at).load(Ordering::Relaxed);
            // No later snapshot contains pages beyond the end of the database.
            if (1..=size).contains(&page) {
                pages.push((page, frame + 1));
            }
        }
        pages.sort_unstable_by_key(|(page, frame)| (*page, u32::MAX - frame));
        pages.dedup_by_key(|(page, _)| *page);
        Some(pages)
    }

    /// Runs `f`, which writes frames of `begun` into the database. Meanwhile no other connection
    /// writes frames back, and the WAL does not restart.
    ///
    /// Returns `None` if one of the two locks for that is taken, and `Some(None)` if another
    /// connection has written frames back since.
    ///
    /// # Errors
    /// The error of SQLite if it does not return the file.
    pub(in crate::backend::file) fn while_writing_back<R>(
        &self,
        conn: &Connection,
        begun: &Begun,
        f: impl FnOnce() -> R,
    ) -> Result<Option<Option<R>>> {
        let done = Locks::of(conn)?.under(CHECKPOINT_LOCK, |locks| {
            locks.under(READ_LOCK_0, |_| (self.is_at(begun) && self.written_back() == begun.before).then(f))
        });
        Ok(done.flatten())
    }

    /// Publishes to all connections that the frames of `begun` are in the database, and on the
    /// disk. The caller guarantees that they are.
    ///
    /// This takes the locks under which SQLite does it: no other connection writes frames back, and
    /// the WAL does not restart. Returns `None` if one of them is taken, and `Some(None)` if
    /// another connection has written frames back.
    ///
    /// # Errors
    /// The error of SQLite if it does not return the file.
    pub(in crate::backend::file) fn set_written_back(
        &self,
        conn: &Connection,
        begun: &Begun,
    ) -> Result<Option<Option<()>>> {
        self.while_writing_back(conn, begun, || {
            self.word(WRITTEN_BACK).store(begun.frames, Ordering::Release);
        })
    }
}

/// Frames that are being written back: from `before` to `frames`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::backend::file) struct Begun {
    pub(in crate::backend::file) salts: Salts,
    /// Number of frames that were in the database before.
    pub(in crate::backend::file) before: u32,
    /// Number of frames that are in the database afterwards.
    pub(in crate::backend::file) frames: u32,
    pub(in crate::backend::file) turn: u32,
}

/// Locks of the wal-index.
struct Locks(*mut ffi::sqlite3_file);

impl Locks {
    fn of(conn: &Connection) -> Result<Locks> {
        object(conn, Opened::Main).map(Locks)
    }

    /// Runs `f` while a lock is held exclusively. Returns `None` if the lock is taken. Never waits.
    fn under<R>(&self, number: c_int, f: impl FnOnce(&Locks) -> R) -> Option<R> {
        let call = |flags| {
            // SAFETY: this is SQLite's object of the open database, which only this thread uses.
            // xShmLock is public (sqlite3_io_methods). Read locks of this connection itself
            // conflict as well, like those of other connections.
            unsafe {
                let methods = self.0.as_ref().and_then(|file| file.pMethods.as_ref());
                methods.and_then(|methods| methods.xShmLock).is_some_and(|lock| {
                    lock(self.0, number, 1, flags | ffi::SQLITE_SHM_EXCLUSIVE) == ffi::SQLITE_OK
                })
            }
        };
        if !call(ffi::SQLITE_SHM_LOCK) {
            return None;
        }
        let done = f(self);
        call(ffi::SQLITE_SHM_UNLOCK);
        Some(done)
    }
}

//! The wal-index: memory that all connections to a file share in WAL mode, and what SQLite keeps at its start.
//! (SQLite's walformat.html, chapter 2: two copies of a header of 48 bytes, then the state of checkpoints.)

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ffi};

use super::opened::{Opened, object};
use crate::error::Result;

/// Frames of which a part has the pages: the first, and any other (`HASHTABLE_NPAGE_ONE`, `HASHTABLE_NPAGE`).
const FRAMES_OF_THE_FIRST: u32 = FRAMES_OF_A_REGION - PAGES as u32;
const FRAMES_OF_A_REGION: u32 = 4096;

/// Where things are, in words of 32 bits.
const HEADER: usize = 12;
/// `isInit`, the first byte: 1 when the header has been written.
const IS_INIT: usize = 3;
/// `aCksum`: of the words before it.
const CHECKSUM: usize = 10;
/// `iChange`: advances with each commit.
const COMMITS: usize = 2;
/// `mxFrame`: how many frames the WAL has.
const FRAMES: usize = 4;
/// `nPage`: how many pages the database has.
const SIZE: usize = 5;
/// The salts, which are others each time the WAL begins anew.
const SALTS: usize = 8;
/// `nBackfill`: how many frames the database has, too. Who writes it holds both locks below.
const WRITTEN_BACK: usize = 24;
/// `aReadMark`: readers with the lock of the same number read no frames after this one.
const READ_MARKS: usize = 25;
const READERS: usize = 5;
/// Value of a read mark that no reader uses (`READMARK_NOT_USED`).
const NOT_USED: u32 = u32::MAX;
/// A part of the space for locks, which SQLite leaves as it is: how often somebody has begun to write frames back. (The
/// numbers of frames alone can come again.) Who writes it holds the lock of a checkpoint.
const TURN: usize = 30;
/// `nBackfillAttempted`: how many it may have.
const BEGUN: usize = 32;
/// The pages of the frames.
const PAGES: usize = 34;

/// How long a header may be torn before a crash, or something that lasts, is taken for the cause.
const TORN: Duration = Duration::from_millis(10);

/// The locks of a checkpoint, and of readers: the first is of those that read nothing of the WAL.
const CHECKPOINT_LOCK: c_int = 1;
const READ_LOCK_0: c_int = 3;

/// Header of the wal-index at one moment. It changes with each commit, and when the WAL starts
/// over.
pub(in crate::db::file) type Header = [u32; HEADER];

/// Salts of a WAL, which identify it among those that follow each other in one file.
pub(in crate::db::file) type Salts = [u32; 2];

/// Returns the number of frames of a WAL, from the header of its wal-index.
pub(in crate::db::file) fn frames(header: &Header) -> u32 {
    header.get(FRAMES).copied().unwrap_or(0)
}

/// Whether SQLite takes this header for one (`walIndexTryHdr`).
fn is_sound(header: &Header) -> bool {
    let (words, sum) = header.split_at(CHECKSUM);
    let is_init = words.get(IS_INIT).is_some_and(|word| matches!(word.to_ne_bytes(), [1..=u8::MAX, ..]));
    // Its checksum (fileformat2.html, chapter 4.2), in the byte order of the machine.
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
pub(in crate::db::file) struct WalIndex(NonNull<AtomicU32>);

// SAFETY: memory all processes share; it is read and written atomically.
unsafe impl Send for WalIndex {}

impl WalIndex {
    /// Size of a part, in bytes: SQLite maps each as a whole. The page of each frame stands in the first half of one; in
    /// the first part, behind the words above.
    pub(super) const REGION: c_int = 32_768;

    /// The one whose first part is mapped here; `None`: at NULL.
    ///
    /// # Safety
    /// It is mapped there, as a whole, as long as this is used.
    pub(super) unsafe fn at(region: *mut c_void) -> Option<WalIndex> {
        NonNull::new(region.cast()).map(WalIndex)
    }

    /// Where the connection's VFS has mapped it; `None`: not in WAL mode, or not in shared memory.
    pub(in crate::db::file) fn of(conn: &Connection) -> Option<WalIndex> {
        WalIndex::part(conn, 0)
    }

    /// A part of it.
    fn part(conn: &Connection, number: c_int) -> Option<WalIndex> {
        let file = object(conn, Opened::Main).ok()?;
        let mut region: *mut c_void = ptr::null_mut();
        // SAFETY: the connection is open, and the methods of its file are valid as long as it. xShmMap is public
        // (sqlite3_io_methods) and is called as SQLite's WAL does, for a part that is there already: the memory is not
        // extended.
        unsafe {
            let methods = file.as_ref()?.pMethods.as_ref()?;
            if methods.iVersion < 2 {
                return None;
            }
            if methods.xShmMap?(file, number, WalIndex::REGION, 0, &raw mut region) != ffi::SQLITE_OK {
                return None;
            }
        }
        // SAFETY: so the VFS says; it is mapped until the connection is closed or leaves WAL mode, which this library does
        // only while it opens a store, or when it has let go of this.
        unsafe { WalIndex::at(region) }
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at < WalIndex::REGION as usize / 4);
        // SAFETY: the region is mapped, as `at` demands; it is 32 KiB long, and aligned to a page. Other processes write
        // it, hence atomics.
        unsafe { self.0.add(at).as_ref() }
    }

    /// Returns the current header. A header that is being written differs from the ones before and
    /// after.
    #[inline]
    pub(in crate::db::file) fn header(&self) -> Header {
        let header = std::array::from_fn(|at| self.word(at).load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        header
    }

    /// The header; `None` while somebody commits. Of its two copies the second is written first, and read last.
    fn untorn(&self) -> Option<Header> {
        let first = self.header();
        let second: Header = std::array::from_fn(|at| self.word(HEADER + at).load(Ordering::Relaxed));
        (first == second).then_some(first)
    }

    /// Returns the salts of the WAL and its number of frames; `None` during a commit.
    pub(in crate::db::file) fn state(&self) -> Option<(Salts, u32)> {
        let header = self.untorn()?;
        let &[.., salt, other_salt, _, _] = &header;
        Some(([salt, other_salt], frames(&header)))
    }

    /// Whether the header is one that SQLite takes, now or when the commit that writes it is over.
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

    pub(in crate::db::file) fn salts(&self) -> Salts {
        [self.word(SALTS).load(Ordering::Acquire), self.word(SALTS + 1).load(Ordering::Acquire)]
    }

    /// Returns a number that increases by one with each commit. It starts over when the WAL is
    /// recovered after a crash.
    pub(in crate::db::file) fn commits(&self) -> u32 {
        self.word(COMMITS).load(Ordering::Relaxed)
    }

    /// Returns the number of frames that the database already has.
    pub(in crate::db::file) fn written_back(&self) -> u32 {
        self.word(WRITTEN_BACK).load(Ordering::Relaxed)
    }

    /// Returns the number of frames whose copying into the database has begun.
    pub(in crate::db::file) fn begun(&self) -> u32 {
        self.word(BEGUN).load(Ordering::Relaxed)
    }

    /// Returns the number of times that a copy into the database has begun.
    fn turn(&self) -> u32 {
        self.word(TURN).load(Ordering::Acquire)
    }

    /// Whether nobody else has begun to write back since this has begun.
    pub(in crate::db::file) fn is_at(&self, begun: &Begun) -> bool {
        (self.salts(), self.turn(), self.begun()) == (begun.salts, begun.turn, begun.frames)
    }

    /// Begins to write frames back, up to a commit whose last frame this is: from now on nobody reads the database as
    /// it was before that. Fewer frames if somebody does; `None`: nothing is to be done, or others are at it.
    ///
    /// # Errors
    /// What SQLite says if it does not give the file.
    pub(in crate::db::file) fn begin(
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
            // Not less than others have begun: SQLite's `sqlite3_snapshot_open` relies on that.
            (before < frames && self.begun() <= frames).then(|| {
                let turn = self.turn().wrapping_add(1);
                self.word(TURN).store(turn, Ordering::Release);
                self.word(BEGUN).store(frames, Ordering::Release);
                Begun { salts, before, frames, turn }
            })
        });
        Ok(begun.flatten())
    }

    /// Which frames to write back, each the last of its page, as pairs of page and frame, in the order of the pages.
    pub(in crate::db::file) fn last_frames(
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
            // What was cut off is in no later snapshot.
            if (1..=size).contains(&page) {
                pages.push((page, frame + 1));
            }
        }
        pages.sort_unstable_by_key(|(page, frame)| (*page, u32::MAX - frame));
        pages.dedup_by_key(|(page, _)| *page);
        Some(pages)
    }

    /// Runs `f`, which writes frames of what has begun into the database, while nobody else writes any back and the WAL
    /// does not begin anew. `None`: a lock for that is not free; `Some(None)`: others have written back meanwhile.
    ///
    /// # Errors
    /// What SQLite says if it does not give the file.
    pub(in crate::db::file) fn while_writing_back<R>(
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

    /// Says to all that the frames of what has begun are in the database, and on the disk. That must be so. Under the
    /// locks under which SQLite does it: nobody else writes frames back, and the WAL does not begin anew. `None`: one of
    /// them is not free; `Some(None)`: others have written back.
    ///
    /// # Errors
    /// What SQLite says if it does not give the file.
    pub(in crate::db::file) fn set_written_back(
        &self,
        conn: &Connection,
        begun: &Begun,
    ) -> Result<Option<Option<()>>> {
        self.while_writing_back(conn, begun, || {
            self.word(WRITTEN_BACK).store(begun.frames, Ordering::Release);
        })
    }
}

/// Frames that are being copied into the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::db::file) struct Begun {
    pub(in crate::db::file) salts: Salts,
    /// Number of frames that the database already has.
    pub(in crate::db::file) before: u32,
    /// The last of them.
    pub(in crate::db::file) frames: u32,
    pub(in crate::db::file) turn: u32,
}

/// The locks of the wal-index.
struct Locks(*mut ffi::sqlite3_file);

impl Locks {
    fn of(conn: &Connection) -> Result<Locks> {
        object(conn, Opened::Main).map(Locks)
    }

    /// Runs `f` with a lock held for itself alone; `None`: it is not free. Nothing waits.
    fn under<R>(&self, number: c_int, f: impl FnOnce(&Locks) -> R) -> Option<R> {
        let call = |flags| {
            // SAFETY: SQLite's object of the open database, which this thread uses alone; xShmLock is public
            // (sqlite3_io_methods). What the connection reads itself is in the way as what others read.
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

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

/// Number of frames whose page numbers are in the first region of the wal-index
/// (`HASHTABLE_NPAGE_ONE`).
const FRAMES_OF_THE_FIRST: u32 = FRAMES_OF_A_REGION - PAGES as u32;
/// Number of frames whose page numbers are in each other region (`HASHTABLE_NPAGE`).
const FRAMES_OF_A_REGION: u32 = 4096;

/// Length of one copy of the header of the wal-index, in words of 32 bits. The positions below are
/// also in such words, from the start of the wal-index.
const HEADER: usize = 12;
/// Position of the word in the wal-index whose first byte is `isInit`: 1 once the header has been
/// written.
const IS_INIT: usize = 3;
/// Position, in the wal-index, of `aCksum`: the checksum (two words) of the words of the header
/// before it.
const CHECKSUM: usize = 10;
/// Position, in the wal-index, of `iChange`: a counter that each commit increments.
const COMMITS: usize = 2;
/// Position, in the wal-index, of `mxFrame`: the number of valid frames in the WAL.
const FRAMES: usize = 4;
/// Position, in the wal-index, of `nPage`: the length of the database, in pages.
const SIZE: usize = 5;
/// Position, in the wal-index, of `aSalt`: the two salts (one word each), which change each time
/// the WAL restarts.
const SALTS: usize = 8;
/// Position, in the wal-index, of `nBackfill`: the number of frames that have been copied into the
/// database. A connection that changes it holds the locks `CHECKPOINT_LOCK` and `READ_LOCK_0`.
const WRITTEN_BACK: usize = 24;
/// Position, in the wal-index, of `aReadMark`: one word for each of the [`READERS`] reader locks. A
/// reader that holds lock `READ_LOCK_0 + n` reads no frames after the number in word n.
const READ_MARKS: usize = 25;
/// Number of reader locks of the wal-index (`WAL_NREADER`).
const READERS: usize = 5;
/// Value in `aReadMark` for a reader lock that no reader uses (`READMARK_NOT_USED`).
const NOT_USED: u32 = u32::MAX;
/// Position, in the wal-index, of a counter of this library: how often a connection has begun to
/// copy frames into the database. The counter distinguishes two such attempts even if they copy the
/// same number of frames.
///
/// The word is in the space for locks, which SQLite does not write. A connection that changes it
/// holds `CHECKPOINT_LOCK`.
const BACKFILL_ATTEMPTS: usize = 30;
/// Position, in the wal-index, of a counter of this library: how often a connection has found the
/// write lock, or another lock that it needs, taken by another connection. A long removal reads it
/// to find out that a writer waits.
///
/// As [`BACKFILL_ATTEMPTS`], the word is in the space for locks, which SQLite does not write.
const WAITS: usize = 31;
/// Position, in the wal-index, of `nBackfillAttempted`: the number of frames whose copying into the
/// database has begun.
const BEGUN: usize = 32;
/// Position, in the first region of the wal-index, of the page numbers of the frames: one word per
/// frame.
const PAGES: usize = 34;

/// Maximum time for which `becomes_whole` waits while the header of the wal-index is half-written.
/// If it stays half-written for longer, its writer has crashed or is blocked for another reason.
const TORN: Duration = Duration::from_millis(10);

/// Index, among the locks of the wal-index, of the lock that a checkpoint holds (`WAL_CKPT_LOCK`).
const CHECKPOINT_LOCK: c_int = 1;
/// Index, among the locks of the wal-index, of the first reader lock. Connections that read only
/// the database, not the WAL, hold it.
const READ_LOCK_0: c_int = 3;

/// Content of the header of the wal-index, in words of 32 bits. It changes with each commit, and
/// when the WAL restarts.
pub(in crate::backend::file) type Header = [u32; HEADER];

/// Two salts of a WAL, which distinguish it from earlier and later WALs in the same file.
pub(in crate::backend::file) type Salts = [u32; 2];

/// Returns the number of valid frames in the WAL (`mxFrame`) according to a header of the
/// wal-index.
pub(in crate::backend::file) fn frames(header: &Header) -> u32 {
    header.get(FRAMES).copied().unwrap_or(0)
}

/// Returns `true` if SQLite accepts this header: it is initialised and its checksum is right
/// (`walIndexTryHdr`).
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

/// Access to one region of the wal-index, usually the first one, which a connection has mapped into
/// memory.
#[derive(Clone, Copy)]
pub(in crate::backend::file) struct WalIndex(NonNull<AtomicU32>);

// SAFETY: all processes share this memory. It is read and written atomically.
unsafe impl Send for WalIndex {}
// SAFETY: as above.
unsafe impl Sync for WalIndex {}

impl WalIndex {
    /// Size of a region of the wal-index, in bytes. SQLite maps each region as a whole.
    ///
    /// The page numbers of the frames are in the first half of each region. In the first region,
    /// they follow the header and the state of checkpoints.
    pub(super) const REGION: c_int = 32_768;

    /// Returns the wal-index whose first region is mapped at `region`; `None` if `region` is NULL.
    ///
    /// # Safety
    /// The whole region stays mapped at this address as long as the returned value is used.
    pub(super) unsafe fn at(region: *mut c_void) -> Option<WalIndex> {
        NonNull::new(region.cast()).map(WalIndex)
    }

    /// Returns the first region of a connection's wal-index; `None` if the connection is not in WAL
    /// mode, or if its wal-index is not in shared memory.
    pub(in crate::backend::file) fn of(conn: &Connection) -> Option<WalIndex> {
        WalIndex::part(conn, 0)
    }

    /// Returns region `number` of a connection's wal-index; `None` if it does not exist or cannot
    /// be mapped.
    fn part(conn: &Connection, number: c_int) -> Option<WalIndex> {
        let file = object(conn, Opened::Main).ok()?;
        let mut region: *mut c_void = ptr::null_mut();
        // SAFETY: the connection is open, and the methods of its file are valid as long as it is.
        // xShmMap is public (sqlite3_io_methods). With 0 for `bExtend` it maps only a region that
        // exists, as SQLite itself does.
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

    /// Returns the word of 32 bits at the position `at` of the region.
    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at < WalIndex::REGION as usize / 4);
        // SAFETY: the region is mapped, as `WalIndex::at` requires. It is 32 KiB long, and aligned
        // to a page. Other processes write it, hence the atomics.
        unsafe { self.0.add(at).as_ref() }
    }

    /// Returns the first copy of the header as it is in memory. During a commit, the result may be
    /// a mixture of the old and the new header; a mixture equals neither of them.
    #[inline]
    pub(in crate::backend::file) fn header(&self) -> Header {
        let header = std::array::from_fn(|at| self.word(at).load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        header
    }

    /// Returns the header of the wal-index; `None` if a commit is writing it, so that its two
    /// copies differ.
    ///
    /// A writer writes the second copy first. This function reads the second copy last.
    fn untorn(&self) -> Option<Header> {
        let first = self.header();
        let second: Header = std::array::from_fn(|at| self.word(HEADER + at).load(Ordering::Relaxed));
        (first == second).then_some(first)
    }

    /// Returns the salts of the WAL and its number of frames; `None` while a commit writes the
    /// header.
    pub(in crate::backend::file) fn state(&self) -> Option<(Salts, u32)> {
        let header = self.untorn()?;
        let &[.., salt, other_salt, _, _] = &header;
        Some(([salt, other_salt], frames(&header)))
    }

    /// Waits while a commit writes the header of the wal-index, at most for [`TORN`]. Returns
    /// `true` if SQLite then accepts the header, and `false` if the header is invalid or still
    /// half-written.
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

    /// Returns the two salts of the WAL, which change each time the WAL restarts.
    pub(in crate::backend::file) fn salts(&self) -> Salts {
        [self.word(SALTS).load(Ordering::Acquire), self.word(SALTS + 1).load(Ordering::Acquire)]
    }

    /// Returns the commit counter of the header (`iChange`), which each commit increments. It
    /// restarts when the WAL is recovered after a crash.
    pub(in crate::backend::file) fn commits(&self) -> u32 {
        self.word(COMMITS).load(Ordering::Relaxed)
    }

    /// Returns the number of frames that have been copied into the database (`nBackfill`).
    pub(in crate::backend::file) fn written_back(&self) -> u32 {
        self.word(WRITTEN_BACK).load(Ordering::Relaxed)
    }

    /// Returns the number of frames whose copying into the database has begun
    /// (`nBackfillAttempted`).
    pub(in crate::backend::file) fn begun(&self) -> u32 {
        self.word(BEGUN).load(Ordering::Relaxed)
    }

    /// Returns how often a connection of this library has begun to copy frames into the database
    /// (the counter at [`BACKFILL_ATTEMPTS`]).
    fn backfill_attempts(&self) -> u32 {
        self.word(BACKFILL_ATTEMPTS).load(Ordering::Acquire)
    }

    /// Counts that a connection waits for a lock of another one. The connection must not be
    /// read-only, because its wal-index may then be mapped without the right to write.
    pub(super) fn note_wait(&self) {
        self.word(WAITS).fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often connections of this library have waited for a lock (the counter at
    /// [`WAITS`]).
    pub(in crate::backend::file) fn waits(&self) -> u32 {
        self.word(WAITS).load(Ordering::Relaxed)
    }

    /// Returns `true` if `begun` is still the newest attempt to copy frames into the database, and
    /// the WAL has not restarted since.
    pub(in crate::backend::file) fn is_at(&self, begun: &Begun) -> bool {
        (self.salts(), self.backfill_attempts(), self.begun()) == (begun.salts, begun.attempt, begun.frames)
    }

    /// Begins to copy frames of the WAL into the database (a backfill). `frames` is the number of
    /// frames, and the last of them must end a commit. From now on no connection begins to read a
    /// snapshot from before that commit.
    ///
    /// If a reader still uses an older snapshot, the result covers only the frames up to that
    /// snapshot. Returns `None` in these cases: there is nothing to copy; an earlier attempt has
    /// begun with more frames; the WAL has other salts than `salts`, or fewer frames; another
    /// connection is copying frames.
    ///
    /// # Errors
    /// The error of SQLite if it does not return the file of the database.
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
            // Never begins with fewer frames than another connection has begun with: SQLite's
            // `sqlite3_snapshot_open` relies on that.
            (before < frames && self.begun() <= frames).then(|| {
                let attempt = self.backfill_attempts().wrapping_add(1);
                self.word(BACKFILL_ATTEMPTS).store(attempt, Ordering::Release);
                self.word(BEGUN).store(frames, Ordering::Release);
                Begun { salts, before, frames, attempt }
            })
        });
        Ok(begun.flatten())
    }

    /// Returns the frames of `begun` that must be copied into the database, as pairs of page number
    /// and frame number, sorted by page. Both numbers start at 1. Of several frames with the same
    /// page, only the last one is included. Returns `None` if there is no memory, or if the
    /// wal-index cannot be read.
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

    /// Runs `f`, which copies frames of `begun` into the database. During the call, no other
    /// connection copies frames, and the WAL does not restart, because this holds the two locks
    /// `CHECKPOINT_LOCK` and `READ_LOCK_0`.
    ///
    /// Returns `None` if one of these locks is taken. Returns `Some(None)`, without running `f`, if
    /// another connection has begun to copy frames or has copied some since `begun`, or if the WAL
    /// has restarted.
    ///
    /// # Errors
    /// The error of SQLite if it does not return the file of the database.
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

    /// Publishes to all connections that the frames of `begun` are in the database. The caller
    /// guarantees that they are, and that the database is synced.
    ///
    /// Like SQLite, this holds `CHECKPOINT_LOCK` and `READ_LOCK_0` during the change. Returns
    /// `None` if one of them is taken, and `Some(None)` if `begun` is no longer valid, as in
    /// `while_writing_back`.
    ///
    /// # Errors
    /// The error of SQLite if it does not return the file of the database.
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

/// Attempt to copy frames of a WAL into the database: those after the first `before` frames, up to
/// frame `frames`. `WalIndex::begin` returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::backend::file) struct Begun {
    /// Salts of the WAL whose frames are copied.
    pub(in crate::backend::file) salts: Salts,
    /// Number of frames that were already in the database when the attempt began.
    pub(in crate::backend::file) before: u32,
    /// Number of frames that are in the database when the attempt has succeeded.
    pub(in crate::backend::file) frames: u32,
    /// Number of attempts that connections had begun in this wal-index when this attempt began,
    /// this one included. It distinguishes the attempt from later ones.
    pub(in crate::backend::file) attempt: u32,
}

/// Access to the locks of a connection's wal-index: SQLite's object of the database file, whose
/// method `xShmLock` takes and releases them.
struct Locks(*mut ffi::sqlite3_file);

impl Locks {
    fn of(conn: &Connection) -> Result<Locks> {
        object(conn, Opened::Main).map(Locks)
    }

    /// Runs `f`, which gets this object, while this connection holds lock `number` of the wal-index
    /// exclusively. Returns the result of `f`; `None`, without waiting, if the lock cannot be
    /// taken.
    fn under<R>(&self, number: c_int, f: impl FnOnce(&Locks) -> R) -> Option<R> {
        let call = |flags| {
            // SAFETY: this is SQLite's object of the open database, which only this thread uses.
            // xShmLock is public (sqlite3_io_methods). A read lock of this connection itself
            // conflicts, too, like those of other connections.
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

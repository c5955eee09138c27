//! The wal-index: memory that all connections to a file share in WAL mode, and what SQLite keeps at its start.
//! (SQLite's walformat.html, chapter 2: two copies of a header of 48 bytes, then the state of checkpoints.)

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering, fence};

use rusqlite::{Connection, ffi};

use super::opened::{Opened, object};
use crate::error::Result;

/// Size of the first part, which SQLite maps as a whole.
const REGION: c_int = 32_768;

/// Where things are, in words of 32 bits.
const HEADER: usize = 12;
/// `mxFrame`: how many frames the WAL has.
const FRAMES: usize = 4;
/// The salts, which are others each time the WAL begins anew.
const SALTS: usize = 8;
/// `nBackfill`: how many frames the database has, too. Who writes it holds both locks below.
const WRITTEN_BACK: usize = 24;
/// `nBackfillAttempted`: how many it may have.
const BEGUN: usize = 32;

/// The locks of a checkpoint, and of readers that read nothing of the WAL.
const CHECKPOINT_LOCK: c_int = 1;
const READ_LOCK_0: c_int = 3;

/// The header at one moment: it changes with each commit and each new beginning of the WAL, whoever makes it.
pub(in crate::db::file) type Header = [u32; HEADER];

/// Which WAL it is, of all that follow each other in one file.
pub(in crate::db::file) type Salts = [u32; 2];

/// How many frames a WAL has by this header.
pub(in crate::db::file) fn frames(header: &Header) -> u32 {
    header.get(FRAMES).copied().unwrap_or(0)
}

/// The wal-index of a connection.
#[derive(Clone, Copy)]
pub(in crate::db::file) struct WalIndex(NonNull<AtomicU32>);

// SAFETY: memory all processes share; it is read and written atomically.
unsafe impl Send for WalIndex {}

impl WalIndex {
    /// Where the connection's VFS has mapped it; `None`: not in WAL mode, or not in shared memory.
    pub(in crate::db::file) fn of(conn: &Connection) -> Option<WalIndex> {
        let file = object(conn, Opened::Main).ok()?;
        let mut region: *mut c_void = ptr::null_mut();
        // SAFETY: the connection is open, and the methods of its file are valid as long as it. xShmMap is public
        // (sqlite3_io_methods) and is called as SQLite's WAL does, for the region that the open WAL has mapped already:
        // it is not extended.
        unsafe {
            let methods = file.as_ref()?.pMethods.as_ref()?;
            if methods.iVersion < 2 {
                return None;
            }
            if methods.xShmMap?(file, 0, REGION, 0, &raw mut region) != ffi::SQLITE_OK {
                return None;
            }
        }
        NonNull::new(region.cast()).map(WalIndex)
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at < REGION as usize / 4);
        // SAFETY: the region is mapped until the connection is closed or leaves WAL mode, which this library does only
        // while it opens a store; it is 32 KiB long, and aligned to a page. Other processes write it, hence atomics.
        unsafe { self.0.add(at).as_ref() }
    }

    /// The header now. It may be torn; then it differs from what it is before and after.
    #[inline]
    pub(in crate::db::file) fn header(&self) -> Header {
        let header = std::array::from_fn(|at| self.word(at).load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        header
    }

    pub(in crate::db::file) fn salts(&self) -> Salts {
        [self.word(SALTS).load(Ordering::Acquire), self.word(SALTS + 1).load(Ordering::Acquire)]
    }

    /// How many frames the database has, too.
    pub(in crate::db::file) fn written_back(&self) -> u32 {
        self.word(WRITTEN_BACK).load(Ordering::Relaxed)
    }

    /// How many frames somebody has begun to write into the database.
    pub(in crate::db::file) fn begun(&self) -> u32 {
        self.word(BEGUN).load(Ordering::Relaxed)
    }

    /// Says to all that the first `frames` frames of this WAL are in the database, and on the disk. That must be so.
    /// Under the locks under which SQLite does it (`walCheckpoint` in wal.c): nobody else writes frames back, and the
    /// WAL does not begin anew. `false`: one of them is not free.
    ///
    /// # Errors
    /// What SQLite says if it does not give the file.
    pub(in crate::db::file) fn set_written_back(
        &self,
        conn: &Connection,
        salts: Salts,
        frames: u32,
    ) -> Result<bool> {
        let file = object(conn, Opened::Main)?;
        let lock = |number, flags| {
            // SAFETY: SQLite's object of the open database, which this thread uses alone; xShmLock is public
            // (sqlite3_io_methods). Outside of transactions and checkpoints SQLite holds neither of these locks.
            unsafe {
                let methods = file.as_ref().and_then(|file| file.pMethods.as_ref());
                methods.and_then(|methods| methods.xShmLock).is_some_and(|lock| {
                    lock(file, number, 1, flags | ffi::SQLITE_SHM_EXCLUSIVE) == ffi::SQLITE_OK
                })
            }
        };
        if !lock(CHECKPOINT_LOCK, ffi::SQLITE_SHM_LOCK) {
            return Ok(false);
        }
        let alone = lock(READ_LOCK_0, ffi::SQLITE_SHM_LOCK);
        if alone {
            let same = self.salts() == salts && frames <= self.word(FRAMES).load(Ordering::Acquire);
            if same && self.written_back() < frames {
                self.word(WRITTEN_BACK).store(frames, Ordering::Release);
            }
            lock(READ_LOCK_0, ffi::SQLITE_SHM_UNLOCK);
        }
        lock(CHECKPOINT_LOCK, ffi::SQLITE_SHM_UNLOCK);
        Ok(alone)
    }
}

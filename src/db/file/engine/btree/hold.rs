//! Whether a read snapshot that was kept is still the newest state of the file, without a system call.
//!
//! In WAL mode the first 48 bytes of the wal-index (SQLite's walformat.html, chapter 2.1) change with every
//! commit and every reset of the WAL, whoever makes it; they are in memory that all connections to a file
//! share. As long as they are what they were when the snapshot was taken, nobody has committed since.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rusqlite::{Connection, ffi};

use crate::db::file::AUTO_CHECKPOINT_PAGES;
use crate::db::file::os::{Opened, Presence, object};

/// Size of the first part of the wal-index, which SQLite maps as a whole.
const REGION: i32 = 32_768;

/// The header at one moment.
pub(super) type Header = [u64; 6];

/// How many frames the WAL has by this header.
fn frames(header: &Header) -> u32 {
    // mxFrame, at byte 16.
    let [a, b, c, d, ..] = header.get(2).copied().unwrap_or_default().to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

/// Where the number of frames that checkpoints have written back is, in words: after two such headers.
const WRITTEN_BACK: usize = 12;

/// Snapshots that are taken, in company, before the next look whether this process is alone again.
const IN_COMPANY: u32 = 256;

/// When a connection keeps its snapshot between reads.
pub(in crate::db) enum Keep {
    Never,
    Always,
    /// While no other process has the store open: an idle one must not keep its WAL from starting anew.
    WhileAlone(Arc<Presence>, Cell<u32>),
}

impl Keep {
    pub(in crate::db) fn while_alone(presence: &Arc<Presence>) -> Keep {
        Keep::WhileAlone(Arc::clone(presence), Cell::new(0))
    }

    /// Whether to keep a snapshot that is taken now. Costs a system call, so it is asked once a snapshot; and in
    /// company, where each read takes one, only now and then.
    pub(super) fn now(&self) -> bool {
        match self {
            Keep::Never => false,
            Keep::Always => true,
            Keep::WhileAlone(presence, in_company) => {
                let left = in_company.get();
                if left > 0 {
                    in_company.set(left - 1);
                    return false;
                }
                let alone = presence.is_alone();
                in_company.set(if alone { 0 } else { IN_COMPANY });
                alone
            }
        }
    }
}

/// How a connection can tell.
pub(super) enum Hold {
    /// It cannot: nothing is kept between reads.
    Never,
    /// Nobody else can commit: in memory, or with the file for itself.
    Always,
    /// By the header of the wal-index.
    ByHeader(NonNull<AtomicU64>),
}

// SAFETY: the header is memory all processes share; it is read atomically.
unsafe impl Send for Hold {}

impl Hold {
    /// The way for a connection that others may write beside, once its WAL is open.
    pub(super) fn by_header(conn: &Connection) -> Hold {
        match wal_index(conn) {
            Some(header) => Hold::ByHeader(header),
            None => Hold::Never,
        }
    }

    /// Whether a snapshot of this header's state may be kept. Not while the WAL is long and has yet to be
    /// written back: then there must be moments without readers, in which it can begin anew. (When all of it
    /// is written back, readers do not need it, and do not stand in its way.)
    pub(super) fn may_keep(&self, header: &Header) -> bool {
        let Hold::ByHeader(start) = self else { return true };
        let frames = frames(header);
        if frames < AUTO_CHECKPOINT_PAGES {
            return true;
        }
        // SAFETY: as in `header`.
        let word = unsafe { start.add(WRITTEN_BACK).as_ref().load(Ordering::Relaxed) };
        let [a, b, c, d, ..] = word.to_ne_bytes();
        u32::from_ne_bytes([a, b, c, d]) >= frames
    }

    /// The header now. All zeros where it does not matter.
    #[inline]
    pub(super) fn header(&self) -> Header {
        let Hold::ByHeader(start) = self else { return Header::default() };
        let mut header = Header::default();
        for (at, word) in header.iter_mut().enumerate() {
            // SAFETY: the region is mapped until the connection is closed or leaves WAL mode, which this
            // library does only while it opens a store; it is 32 KiB long, and aligned to a page. Other
            // processes write it, hence atomics; torn reads only make the headers differ.
            *word = unsafe { start.add(at).as_ref().load(Ordering::Relaxed) };
        }
        fence(Ordering::Acquire);
        header
    }
}

/// Where the connection's VFS has mapped the wal-index; `None`: not in WAL mode, or not in shared memory.
fn wal_index(conn: &Connection) -> Option<NonNull<AtomicU64>> {
    let file = object(conn, Opened::Main).ok()?;
    let mut region: *mut c_void = ptr::null_mut();
    // SAFETY: the connection is open, and the methods of its file are valid as long as it. xShmMap is public
    // (sqlite3_io_methods) and is called as SQLite's WAL does, for the region that the open WAL has mapped already: it
    // is not extended.
    unsafe {
        let methods = file.as_ref()?.pMethods.as_ref()?;
        if methods.iVersion < 2 {
            return None;
        }
        if methods.xShmMap?(file, 0, REGION, 0, &raw mut region) != ffi::SQLITE_OK {
            return None;
        }
    }
    NonNull::new(region.cast())
}

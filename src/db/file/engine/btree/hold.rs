//! Whether a read snapshot that was kept is still the newest state of the file, without a system call.
//!
//! In WAL mode the first 48 bytes of the wal-index (SQLite's walformat.html, chapter 2.1) change with every
//! commit and every reset of the WAL, whoever makes it; they are in memory that all connections to a file
//! share. As long as they are what they were when the snapshot was taken, nobody has committed since.

use std::cell::Cell;
use std::sync::Arc;

use rusqlite::Connection;

use crate::db::file::os::{Header, Presence, WalIndex, frames};

/// Snapshots that are taken, in company, before the next look whether this process is alone again.
const IN_COMPANY: u32 = 256;

/// Policy for keeping the snapshot of a connection between reads.
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

    /// Returns `true` if a snapshot that is taken now should be kept.
    ///
    /// This costs a system call, so it is called once per snapshot. If other processes use the
    /// store, so that each read takes a snapshot, it is called only now and then.
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

/// Way in which a connection detects that its snapshot is out of date.
pub(super) enum Hold {
    /// It cannot: nothing is kept between reads.
    Never,
    /// Nobody else can commit: in memory, or with the file for itself.
    Always,
    /// By the header of the wal-index, while the WAL has fewer frames than this.
    ByHeader(WalIndex, u32),
}

impl Hold {
    /// Returns the way for a connection next to which others may write, once its WAL is open.
    pub(super) fn by_header(conn: &Connection, long: u32) -> Hold {
        match WalIndex::of(conn) {
            Some(index) => Hold::ByHeader(index, long),
            None => Hold::Never,
        }
    }

    /// Returns `true` if a snapshot of the state of this header may be kept.
    ///
    /// It may not while the WAL is long and not yet copied into the database: then there must be
    /// moments without readers, in which the WAL can start over.
    pub(super) fn may_keep(&self, header: &Header) -> bool {
        let Hold::ByHeader(index, long) = self else { return true };
        let frames = frames(header);
        frames < *long || index.written_back() >= frames
    }

    /// Returns the current header of the wal-index; all zeros where it is not used.
    #[inline]
    pub(super) fn header(&self) -> Header {
        match self {
            Hold::ByHeader(index, _) => index.header(),
            Hold::Never | Hold::Always => Header::default(),
        }
    }
}

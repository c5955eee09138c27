//! Check, without a system call, whether a read snapshot that was kept is still the newest state of
//! the file.
//!
//! In WAL mode the first 48 bytes of the wal-index (SQLite's walformat.html, chapter 2.1) change
//! with every commit and every reset of the WAL, in whichever connection. All connections to a file
//! share them in memory. While they are the same as when the snapshot was taken, no connection has
//! committed since.

use std::cell::Cell;
use std::sync::Arc;

use rusqlite::Connection;

use crate::backend::file::os::{Header, Presence, WalIndex, frames};

/// Number of snapshots that are taken, after a check has found another process with the store open,
/// before the next check.
const IN_COMPANY: u32 = 256;

/// Policy for keeping the snapshot of a connection between reads.
pub(in crate::backend) enum Keep {
    Never,
    Always,
    /// While no other process has the store open: the snapshot of an idle process would keep the
    /// WAL that other processes write from starting over.
    WhileAlone(Arc<Presence>, Cell<u32>),
}

impl Keep {
    pub(in crate::backend) fn while_alone(presence: &Arc<Presence>) -> Keep {
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
    /// It cannot detect that. No snapshot is kept between reads.
    Never,
    /// No other connection can commit: the store is in memory, or this connection uses the file
    /// alone.
    Always,
    /// By the header of the wal-index. The number is the length of the WAL, in frames, from which
    /// on no snapshot is kept.
    ByHeader(WalIndex, u32),
}

impl Hold {
    /// Returns the way for a connection that is not the only writer. Call this when its WAL is
    /// open.
    pub(super) fn by_header(conn: &Connection, long: u32) -> Hold {
        match WalIndex::of(conn) {
            Some(index) => Hold::ByHeader(index, long),
            None => Hold::Never,
        }
    }

    /// Returns `true` if a snapshot of the state that this header describes may be kept.
    ///
    /// It must not be kept while the WAL is long and not fully copied into the database. Then there
    /// must be moments without readers, in which the WAL can start over.
    pub(super) fn may_keep(&self, header: &Header) -> bool {
        let Hold::ByHeader(index, long) = self else { return true };
        let frames = frames(header);
        frames < *long || index.written_back() >= frames
    }

    /// Returns the current header of the wal-index; all zeros if the wal-index is not used.
    #[inline]
    pub(super) fn header(&self) -> Header {
        match self {
            Hold::ByHeader(index, _) => index.header(),
            Hold::Never | Hold::Always => Header::default(),
        }
    }
}

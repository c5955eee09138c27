//! Detects, without a system call, whether a read snapshot that a connection has kept is still the
//! newest state of the file.
//!
//! In WAL mode the first 48 bytes of the wal-index (SQLite's walformat.html, chapter 2.1) change
//! with every commit and every reset of the WAL, whichever connection makes it. The wal-index is in
//! memory that all connections to the file share. If its first 48 bytes equal those read when the
//! snapshot was taken, no connection has committed since.

use std::cell::Cell;
use std::sync::Arc;

use rusqlite::Connection;

use crate::backend::file::os::{Header, Presence, WalIndex, frames};

/// Number of snapshots that a connection takes, and does not keep, before it checks again for other
/// processes, after a check has found that another process has the store open.
const IN_COMPANY: u32 = 256;

/// Policy that decides whether a connection keeps its snapshot between reads: never, always, or
/// while no other process has the store open.
pub(in crate::backend) enum Keep {
    Never,
    Always,
    /// Snapshots are kept only while no other process has the store open. A snapshot kept by an
    /// idle process prevents the WAL from restarting, so the writes of other processes would make
    /// the WAL grow. The number is that of snapshots to take before the next check for other
    /// processes.
    WhileAlone(Arc<Presence>, Cell<u32>),
}

impl Keep {
    pub(in crate::backend) fn while_alone(presence: &Arc<Presence>) -> Keep {
        Keep::WhileAlone(Arc::clone(presence), Cell::new(0))
    }

    /// Returns `true` if the snapshot that the caller is about to take should be kept.
    ///
    /// Checking for other processes costs a system call. Call this once per snapshot, not per read.
    /// While other processes have the store open, every read takes a snapshot; so after a check
    /// that has found them, the next `IN_COMPANY` calls return `false` without a check.
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

/// Method by which a connection detects that the snapshot that it holds between reads is out of
/// date.
pub(super) enum Hold {
    /// The connection cannot detect it. No snapshot is kept between reads.
    Never,
    /// No detection is needed, because no other connection can commit: the store is in memory, or
    /// this connection uses the file alone.
    Always,
    /// Comparison of the header of the wal-index. The number is the length of the WAL, in frames,
    /// from which on a snapshot is kept only if the whole WAL has been copied into the database.
    ByHeader(WalIndex, u32),
}

impl Hold {
    /// Returns the method for a connection that is not the only writer: `ByHeader` with the length
    /// `long`, or `Never` if the connection has no shared wal-index. Call this when its WAL is
    /// open.
    pub(super) fn by_header(conn: &Connection, long: u32) -> Hold {
        match WalIndex::of(conn) {
            Some(index) => Hold::ByHeader(index, long),
            None => Hold::Never,
        }
    }

    /// Returns `true` if a snapshot of the state that this header describes may be kept.
    ///
    /// Returns `false` while the WAL has at least the length in `ByHeader` and is not fully copied
    /// into the database. The WAL can restart only while no snapshot that uses it is open.
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

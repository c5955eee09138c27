//! Connection to a store: its components, its close, and helper functions that all files of this
//! layer use.

#[cfg(feature = "encryption")]
use std::cell::Cell;
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rusqlite::Connection;

use super::checkpoint_schedule::CheckpointSchedule;
use super::disk_reserve::{DiskSpace, KeptWal};
use super::engine::btree::BtreeConnection;
use super::error::translate;
use super::expired_ranges::ExpiredRanges;
use super::handle_registry::{OpenHandle, Registration};
use super::immutable_state::Immutable;
use super::moved_file::Watched;
use super::next_expiry_index::NextExpiryIndex;
use super::os::{self, BusyHandler, FileIdentity, Opened, Pages, Presence, WalFrames};
use super::pending_removals::PendingRemovals;
use super::quota::QuotaTracker;
use super::settings_cache::SettingsCache;
use super::wal_cleanup::Leftovers;
use crate::backend::TransactionState;
use crate::clock::Clock;
#[cfg(feature = "encryption")]
use crate::config::Config;
use crate::config::{CheckpointMode, SyncLevel};
#[cfg(feature = "encryption")]
use crate::error::Error;
use crate::error::Result;
use crate::stats::Counters;

/// State that a connection shares with the handle that owns it.
#[derive(Default)]
pub(super) struct Owner {
    pub(super) clock: Arc<Clock>,
    pub(super) counters: Arc<Counters>,
    /// Entry of the handle in the list of open handles of this process; `None` for a store in
    /// memory.
    pub(super) registration: Option<Registration>,
}

/// SQLite connection to a store in a file or in memory.
pub(crate) struct Db {
    pub(super) owner: Owner,
    /// State of the `btree` engine; `None` if this handle uses the `sql` engine.
    ///
    /// It comes before the connection, so that it is dropped first.
    pub(super) btree: Option<BtreeConnection>,
    /// Whether the `btree` engine runs write transactions without SQL. It does if commits never
    /// wait for readers, because only SQL can wait for them.
    pub(super) writes_directly: bool,
    /// SQLite connection. Once the store is open, use it through `switch_to_sql()`.
    pub(super) conn: Connection,
    pub(super) transaction: TransactionState,
    /// Path of the file; `None` for a store in memory.
    pub(super) path: Option<PathBuf>,
    pub(super) sync: SyncLevel,
    pub(super) busy_timeout: Duration,
    pub(super) read_only: bool,
    /// Whether deleted data is overwritten with zeros.
    pub(super) secure_delete: bool,
    pub(super) max_inline: usize,
    /// Number of frames in the WAL after the last commit, as the WAL hook reports it.
    pub(super) wal_frames: WalFrames,
    pub(super) checkpoints: CheckpointSchedule,
    pub(super) settings: RefCell<SettingsCache>,
    /// Location of the file, to detect that it was moved; `None` for a store in memory.
    pub(super) watched: Option<Watched>,
    /// State of a store that is read without creating files next to it, or whose file the next call
    /// opens again; `None` for any other store.
    pub(super) immutable: Option<Box<Immutable>>,
    /// Lock that shows other processes that this one has the file open.
    pub(super) presence: Option<Arc<Presence>>,
    pub(super) next_expiry: RefCell<NextExpiryIndex>,
    /// Lower bounds on the earliest write time in each family. (`next_expiry` has the lower bounds
    /// on the earliest expiry times.)
    pub(super) next_written: RefCell<NextExpiryIndex>,
    pub(super) expired_ranges: ExpiredRanges,
    pub(super) quota: QuotaTracker,
    pub(super) disk_space: DiskSpace,
    pub(super) pending: RefCell<PendingRemovals>,
    /// Maximum number of keys that one transaction of a purge or a sweep tries to remove. It is less
    /// than `usize::MAX` after the disk was full.
    pub(super) removals_that_fit: usize,
    /// Configuration with which an encrypted file was opened; `None` if the file is not encrypted.
    #[cfg(feature = "encryption")]
    pub(super) encrypted: Option<Box<Config>>,
    /// Number of reads of databases and WALs that this process had made at the last check that
    /// SQLCipher could decrypt all pages.
    #[cfg(feature = "encryption")]
    pub(super) reads_seen: Cell<u64>,
    /// Error after which SQLCipher decrypts no more pages; `None` if no such error has occurred.
    #[cfg(feature = "encryption")]
    pub(super) spoilt: Option<Error>,
    /// Busy handler of the connection. It comes after the connection, so that it is dropped later.
    pub(super) busy: BusyHandler,
    /// Guard that removes the `-wal` and `-shm` files of a read-only file. It comes after the
    /// connection, so that it is dropped later.
    pub(super) _leftovers: Option<Leftovers>,
    /// WAL file that stays after the close because the disk is nearly full; otherwise `None`. It
    /// comes after the connection, so that it is dropped later.
    pub(super) kept_wal: Option<KeptWal>,
}

/// Offset, in the header of the database file, of the byte that contains the number of reserved
/// bytes of each page (fileformat2.html, chapter 1.3).
const RESERVED: u64 = 20;

impl Db {
    /// Returns the connection for running SQL, after the `btree` engine has closed its cursors and
    /// its snapshot.
    ///
    /// SQL statements then continue a write transaction that the engine has begun.
    #[inline]
    pub(super) fn switch_to_sql(&self) -> Result<&Connection> {
        if let Some(btree) = &self.btree {
            btree.yield_to_sql(&self.conn)?;
        }
        Ok(&self.conn)
    }

    /// Returns the path of the file, with symbolic links resolved; `None` for a store in memory.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.path.clone()
    }

    pub(crate) fn file_identity(&self) -> Option<FileIdentity> {
        self.watched.as_ref().map(|watched| watched.place.file())
    }

    /// Returns the page size of the file and the number of reserved bytes at the end of each page.
    /// Secure deletion needs them to find the parts of a page that must be overwritten.
    ///
    /// Returns `None` for an encrypted file, whose pages do not have SQLite's layout on the disk.
    pub(super) fn pages_to_wipe(&self) -> Result<Option<Pages>> {
        if self.is_encrypted() {
            return Ok(None);
        }
        let mut reserved = [0];
        if self.path.is_some() {
            os::read(&self.conn, Opened::Main, &mut reserved, RESERVED)?;
        }
        Ok(Some(Pages { size: self.page_size()?, reserved: reserved[0] }))
    }

    /// Returns `true` if the file is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        #[cfg(feature = "encryption")]
        return self.encrypted.is_some();
        #[cfg(not(feature = "encryption"))]
        false
    }

    /// Returns a copy of `config` with the current secret of this file; without a secret if the
    /// file is not encrypted.
    #[cfg(feature = "encryption")]
    pub(crate) fn with_its_secret(&self, config: &Config) -> Config {
        let mut config = config.clone();
        config.file.secret = self.encrypted.as_ref().and_then(|config| config.file.secret.clone());
        config
    }

    /// Returns the maximum number of bytes of a key and an inline value together, in this file.
    pub(super) fn max_inline(&self) -> usize {
        self.max_inline
    }

    /// Sets the clock and the counters of the handle that owns this connection.
    pub(crate) fn set_owner(&mut self, clock: &Arc<Clock>, counters: &Arc<Counters>) {
        self.owner.clock = Arc::clone(clock);
        self.owner.counters = Arc::clone(counters);
    }

    /// Adds the handle that owns this connection to the list of open handles of this process.
    pub(crate) fn register(&mut self, handle: Weak<dyn OpenHandle>) {
        self.owner.registration = self.file_identity().map(|file| Registration::new(file, handle));
    }

    /// Makes the other handles of this process on the same file release the snapshots that they
    /// keep between reads.
    pub(super) fn release_other_snapshots(&self) {
        if let Some(registration) = &self.owner.registration {
            registration.release_other_snapshots();
        }
    }

    /// Returns `true` if no other handle of this process has the file open.
    #[cfg(feature = "encryption")]
    pub(crate) fn is_only_handle(&self) -> bool {
        self.owner.registration.as_ref().is_none_or(Registration::is_only_one)
    }

    // ---- the end ------------------------------------------------------------------------------

    /// Prepares the close of the connection, and removes the expired rows that reads have noted for
    /// removal.
    ///
    /// If the file was moved, SQLite does not checkpoint the WAL at the close. So this runs a
    /// checkpoint, after which the file has all commits, wherever it is now. It also empties the
    /// WAL, which SQLite would otherwise read into another database that has replaced this one. If
    /// the file was deleted, that is its only purpose, and it does not wait for other connections.
    pub(crate) fn before_close(&mut self) {
        self.remove_pending_before_close();
        self.keep_wal_if_nearly_full();
        if self.read_only || self.watched.as_ref().is_none_or(|watched| watched.place.is_kept()) {
            return;
        }
        if os::has_moved(&self.conn) {
            let wait = if self.is_deleted() { Duration::ZERO } else { self.busy_timeout };
            let _ = self.rollback(); // fails if there is nothing to roll back
            let _ = self.checkpoint_within(CheckpointMode::Truncate, wait); // a failure leaves the WAL unchanged
        }
    }

    /// Returns `true` if the database has no name in any directory any more.
    fn is_deleted(&self) -> bool {
        let database = self.presence.as_ref().and_then(|presence| presence.file().identity_and_names().ok());
        database.is_some_and(|(_, names)| names == 0)
    }

    /// Rolls back an open transaction and closes the connection. The connection is closed even if
    /// this returns an error.
    pub(crate) fn close(mut self) -> Result<()> {
        self.roll_back_quietly();
        self.btree = None;
        let Db { conn, .. } = self;
        conn.close().map_err(|(_, e)| translate(e))
    }

    /// Fails if the file is no longer at the path by which it was opened.
    pub(super) fn check_place(&self) -> Result<()> {
        self.watched.as_ref().map_or(Ok(()), Watched::check)
    }

    /// Fails if the file is no longer at the path by which it was opened. Does nothing if the last
    /// check was only some milliseconds ago.
    #[inline]
    pub(super) fn check_place_now_and_then(&self) -> Result<()> {
        self.watched.as_ref().map_or(Ok(()), Watched::check_now_and_then)
    }

    // ---- helpers -----------------------------------------------------------------------------

    pub(super) fn set_busy_timeout(&self, wait: Duration) -> Result<()> {
        self.busy.set_timeout(&self.conn, wait).map_err(translate)
    }

    pub(super) fn execute(&self, sql: &str) -> Result<()> {
        let mut statement = self.switch_to_sql()?.prepare_cached(sql).map_err(translate)?;
        let mut rows = statement.raw_query();
        while rows.next().map_err(translate)?.is_some() {} // some pragmas return a row
        Ok(())
    }

    /// Reads from the file, so that the open transaction takes its snapshot. `BEGIN` alone takes
    /// none.
    pub(super) fn read_first(&self) -> Result<()> {
        if let Some(btree) = &self.btree
            && !self.is_idle()
        {
            return btree.read_first();
        }
        self.read_schema()
    }

    /// Makes SQLite read its list of tables, unless its copy is current. Fails if the list is
    /// damaged.
    pub(super) fn read_schema(&self) -> Result<()> {
        self.read_number("SELECT 1 FROM sqlite_schema LIMIT 1").map(drop)
    }

    pub(super) fn read_number(&self, sql: &str) -> Result<i64> {
        self.switch_to_sql()?
            .prepare_cached(sql)
            .and_then(|mut s| s.query_row([], |row| row.get(0)))
            .map_err(translate)
    }
}

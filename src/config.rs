//! Settings of a store handle: defaults and bounds.
//!
//! [`Config`] is the public type. Its field `file` holds the settings that only a file has.

use std::time::Duration;

use crate::error::{Error, Result};
#[cfg(feature = "encryption")]
use crate::secret::{RAW_KEY_SIZE, Secret};

/// Default size of the page cache that SQLite keeps for a handle, in pages.
pub(crate) const DEFAULT_CACHE_PAGES: u32 = 2000;
/// Size of the page cache that SQLite keeps for a handle with [`Config::small`], in pages.
const SMALL_CACHE_PAGES: u32 = 32;
/// Target length of the WAL with [`Config::small`], in pages.
const SMALL_WAL_PAGES: u32 = 64;
/// Default page size of new files, in bytes.
pub(crate) const DEFAULT_PAGE_SIZE: u32 = 4096;
/// Default of [`Config::wal_pages`], the target length of the WAL, in pages.
pub(crate) const DEFAULT_WAL_PAGES: u32 = 4000;
/// Minimum target length of the WAL that can be set, in pages.
pub(crate) const MIN_WAL_PAGES: u32 = 16;
const MAX_WAL_PAGES: u32 = 1_000_000;
/// Default busy timeout: time for which a call waits for a lock of another handle.
const DEFAULT_BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Default maximum length of a value, in bytes.
pub(crate) const DEFAULT_MAX_VALUE_SIZE: usize = 10 * 1024 * 1024;
/// Largest number of bytes that [`Config::max_value_size`] accepts: 512 MiB.
pub const MAX_VALUE_SIZE: usize = 512 * 1024 * 1024;
/// Largest number of keys that [`Config::purge_per_write`] accepts.
pub const MAX_PURGE_PER_WRITE: u32 = 1000;
/// Maximum length of a key, in bytes.
pub const MAX_KEY_SIZE: usize = 65_536;

/// Maximum length of a key in a store on a server, in bytes.
///
/// An index entry of PostgreSQL has at most 2704 bytes.
pub const MAX_SERVER_KEY_SIZE: usize = 2500;
/// Maximum length of a family name, in bytes.
pub(crate) const MAX_NAME_SIZE: usize = 255;
/// Default number of bytes of the database file that are read through a memory map. 0 (no map) on
/// 32-bit systems, whose address space is small.
pub(crate) const DEFAULT_MMAP_SIZE: u64 =
    if cfg!(target_pointer_width = "64") { 256 * 1024 * 1024 } else { 0 };

/// Journal mode of SQLite, which determines how a transaction in a file is made atomic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum JournalMode {
    /// Write-ahead log: readers and the writer do not block each other.
    ///
    /// An open store has a `-wal` and a `-shm` file next to it.
    #[default]
    Wal,
    /// Rollback journal, deleted at each commit. The store is one file, but readers and the writer
    /// exclude each other.
    Delete,
}

/// Durability of commits if the power fails.
///
/// At every level a commit survives a crash of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SyncLevel {
    /// A power failure can undo the last commits; it never damages the file.
    ///
    /// In WAL mode a commit waits for no sync. In DELETE mode a commit syncs as with `Full`, except
    /// for the directory.
    #[default]
    Normal,
    /// A commit is on the disk when the call returns.
    Full,
    /// Nothing is synced, so a power failure can damage the file. Suitable for data that can be
    /// created again.
    Off,
}

/// Mode of [`Store::checkpoint`](crate::Store::checkpoint): what it waits for, and how much it
/// copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointMode {
    /// Copies as many frames of the WAL as possible without waiting for readers or writers.
    Passive,
    /// Waits for the writer, then copies all frames of the WAL.
    Full,
    /// Waits for the writer and copies all frames of the WAL, then waits for readers of the WAL, so
    /// that the next writer overwrites the WAL from its start.
    Restart,
    /// Waits for the writer and for readers and copies all frames of the WAL, then truncates the
    /// WAL to zero bytes.
    Truncate,
}

/// Settings for opening a store. [`Config::new`] returns the defaults.
///
/// The settings apply to the handle. Only the journal mode and the page size are properties of the
/// file. Bounds are checked when the store is opened: [`Store::open_with`](crate::Store::open_with)
/// fails with [`Error`](crate::ErrorKind::Error) for a setting out of bounds.
///
/// ```
/// use std::time::Duration;
/// let config = kvstore::Config::new()
///     .sync(kvstore::SyncLevel::Full)
///     .busy_timeout(Duration::from_secs(10));
/// # let store = kvstore::Store::open_in_memory(&config)?;
/// # Ok::<(), kvstore::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) read_only: bool,
    pub(crate) busy_timeout: Duration,
    pub(crate) max_value_size: usize,
    pub(crate) purge_per_write: u32,
    pub(crate) file: FileConfig,
}

/// Settings of a store handle that apply only to a store in a file, not to a store on a server.
#[derive(Debug, Clone)]
pub(crate) struct FileConfig {
    pub(crate) journal_mode: JournalMode,
    pub(crate) keep_journal_mode: bool,
    pub(crate) sync: SyncLevel,
    pub(crate) cache_pages: u32,
    pub(crate) page_size: u32,
    pub(crate) checkpoint_every: Option<u32>,
    /// Target length of the WAL, in pages. `None`: `default_wal_pages`, or less if the store has a
    /// small size limit.
    pub(crate) wal_pages: Option<u32>,
    pub(crate) default_wal_pages: u32,
    pub(crate) mmap_size: u64,
    pub(crate) exclusive: bool,
    /// Whether the handle keeps its read snapshot between reads. `None`: it keeps it only while no
    /// other process has the file open, and only if `holds_while_alone` is set.
    pub(crate) hold_reads: Option<bool>,
    pub(crate) holds_while_alone: bool,
    pub(crate) secure_delete: bool,
    /// Unix permissions of new store files; `None`: 0644 without the bits of the umask.
    pub(crate) mode: Option<u32>,
    pub(crate) sql_engine: bool,
    pub(crate) damaged: bool,
    #[cfg(feature = "encryption")]
    pub(crate) secret: Option<std::sync::Arc<Secret>>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            read_only: false,
            busy_timeout: DEFAULT_BUSY_TIMEOUT,
            max_value_size: DEFAULT_MAX_VALUE_SIZE,
            purge_per_write: 0,
            file: FileConfig::default(),
        }
    }
}

impl Default for FileConfig {
    fn default() -> FileConfig {
        FileConfig {
            journal_mode: JournalMode::default(),
            keep_journal_mode: false,
            sync: SyncLevel::default(),
            cache_pages: DEFAULT_CACHE_PAGES,
            page_size: DEFAULT_PAGE_SIZE,
            checkpoint_every: None,
            wal_pages: None,
            default_wal_pages: DEFAULT_WAL_PAGES,
            mmap_size: DEFAULT_MMAP_SIZE,
            exclusive: false,
            hold_reads: None,
            holds_while_alone: true,
            secure_delete: false,
            mode: None,
            sql_engine: false,
            damaged: false,
            #[cfg(feature = "encryption")]
            secret: None,
        }
    }
}

impl Config {
    /// Returns the default settings.
    ///
    /// WAL journal mode, [`SyncLevel::Normal`], 2000 pages of cache, pages of 4096 bytes, a busy
    /// timeout of 5 seconds, values up to 10 MiB, and a WAL of 4000 pages.
    #[must_use]
    pub fn new() -> Config {
        Config::default()
    }

    /// Returns default settings for devices with little memory and little flash storage.
    ///
    /// They differ from [`new`](Config::new) in four settings: 32 pages of cache, no memory map, a
    /// WAL of 64 pages (or fewer, in a store with a [size limit](crate::Store::set_size_limit)),
    /// and no read snapshot kept between reads ([`hold_reads`](Config::hold_reads)). An
    /// [`exclusive`](Config::exclusive) store and a store in memory keep their read snapshot
    /// nevertheless. `docs/how-to/firmware.md` lists the costs.
    #[must_use]
    pub fn small() -> Config {
        let file = FileConfig {
            cache_pages: SMALL_CACHE_PAGES,
            mmap_size: 0,
            default_wal_pages: SMALL_WAL_PAGES,
            holds_while_alone: false,
            ..FileConfig::default()
        };
        Config { file, ..Config::default() }
    }

    /// Sets the journal mode (default [`JournalMode::Wal`]).
    ///
    /// An existing file is converted if no other handle has it open; otherwise the open fails with
    /// [`Busy`](crate::ErrorKind::Busy).
    #[must_use]
    pub fn journal_mode(mut self, mode: JournalMode) -> Config {
        self.file.journal_mode = mode;
        self
    }

    /// Sets whether an existing file keeps its journal mode (default: no).
    ///
    /// [`journal_mode`](Config::journal_mode) then applies to new files only. For tools, which
    /// should not change the choice of the programs that own the store.
    #[must_use]
    pub fn keep_journal_mode(mut self, yes: bool) -> Config {
        self.file.keep_journal_mode = yes;
        self
    }

    /// Sets the sync level (default [`SyncLevel::Normal`]).
    #[must_use]
    pub fn sync(mut self, level: SyncLevel) -> Config {
        self.file.sync = level;
        self
    }

    /// Sets the size of the page cache, in pages: 1 to 2 147 483 647 (default 2000).
    ///
    /// A write transaction that changes more pages can use up to five times as much memory. Beyond
    /// that it writes pages to the file before the commit.
    #[must_use]
    pub fn cache_pages(mut self, pages: u32) -> Config {
        self.file.cache_pages = pages;
        self
    }

    /// Sets the page size of a new file, in bytes: a power of two from 512 to 65 536 (default
    /// 4096).
    ///
    /// An existing file keeps its page size. Encrypted stores always have pages of 4096 bytes.
    #[must_use]
    pub fn page_size(mut self, bytes: u32) -> Config {
        self.file.page_size = bytes;
        self
    }

    /// Sets whether the store is opened read-only (default: no).
    ///
    /// The file must exist, and nothing is written to it. A store that was closed cleanly can also
    /// be read from a read-only file system, or by a user without write permission. If another
    /// process changes such a file, calls notice the change and see the new state. A call that was
    /// reading during the change, and every further call of an open snapshot, fails with
    /// [`Busy`](crate::ErrorKind::Busy).
    #[must_use]
    pub fn read_only(mut self, yes: bool) -> Config {
        self.read_only = yes;
        self
    }

    /// Sets how long a call waits for a lock of another handle (default: 5 seconds). With zero, it
    /// does not wait.
    ///
    /// When the time is over, the call fails with [`Busy`](crate::ErrorKind::Busy). At most 2 147
    /// 483 647 milliseconds (24 days). Opening a store waits for at least 2 seconds.
    #[must_use]
    pub fn busy_timeout(mut self, wait: Duration) -> Config {
        self.busy_timeout = wait;
        self
    }

    /// Sets the number of write commits after which a checkpoint runs: at least 1.
    ///
    /// Not set, the WAL is checkpointed by its length ([`wal_pages`](Config::wal_pages)). In a
    /// store with a size limit both apply.
    #[must_use]
    pub fn checkpoint_every(mut self, commits: u32) -> Config {
        self.file.checkpoint_every = Some(commits);
        self
    }

    /// Sets the target length of the WAL, in pages: 16 to 1 000 000.
    ///
    /// The default is 4000, or one eighth of the [size limit](crate::Store::set_size_limit) if that
    /// is less, but at least 16. The WAL is copied into the database while it grows, and starts
    /// over once it reaches three quarters of this length. With one writer it never exceeds twice
    /// this length plus the pages of one transaction. Several writers, and readers that stay, can
    /// make it longer for a while.
    ///
    /// With [`checkpoint_every`](Config::checkpoint_every) it applies only to a store with a size
    /// limit.
    #[must_use]
    pub fn wal_pages(mut self, pages: u32) -> Config {
        self.file.wal_pages = Some(pages);
        self
    }

    /// Sets the maximum length of a value that this handle writes, in bytes: 1 to
    /// [`MAX_VALUE_SIZE`] (default 10 MiB).
    #[must_use]
    pub fn max_value_size(mut self, bytes: usize) -> Config {
        self.max_value_size = bytes;
        self
    }

    /// Sets how many expired keys this handle removes for each key that it writes: 0 to
    /// [`MAX_PURGE_PER_WRITE`] (default 0: none).
    ///
    /// With 2 or more, a store whose keys expire as fast as they are written does not grow, without
    /// a [cleaner](crate::Store::start_cleaner) and without calls of
    /// [`purge_expired`](crate::Store::purge_expired).
    ///
    /// - Keys are removed in all families, earliest expiry time first.
    /// - The removals are collected: about 64 keys are removed at once, in a transaction of their
    ///   own after the write that reaches this number, and the rest when the handle is closed (in a
    ///   file). Writes inside a transaction count after its commit.
    /// - A removal does not wait for other handles. If it fails, the write has succeeded
    ///   nevertheless, and a later write removes the keys.
    /// - Keys that a write removes do not count in the results of later purges.
    #[must_use]
    pub fn purge_per_write(mut self, keys: u32) -> Config {
        self.purge_per_write = keys;
        self
    }

    /// Sets the maximum number of bytes of the file that are read through a memory map; 0 for none.
    ///
    /// The default is 256 MiB on 64-bit systems, and 0 on 32-bit systems.
    #[must_use]
    pub fn mmap_size(mut self, bytes: u64) -> Config {
        self.file.mmap_size = bytes;
        self
    }

    /// Sets whether this handle opens the file exclusively, so that no other handle can use it
    /// (default: no).
    ///
    /// This is the fastest mode. Every other open, also in other processes, fails with
    /// [`Busy`](crate::ErrorKind::Busy). It cannot be combined with
    /// [`read_only`](Config::read_only).
    #[must_use]
    pub fn exclusive(mut self, yes: bool) -> Config {
        self.file.exclusive = yes;
        self
    }

    /// Sets whether the handle keeps its read snapshot between reads: always (`true`) or never
    /// (`false`).
    ///
    /// A handle that keeps its snapshot reads much faster. It never returns old data: each read
    /// checks first whether the snapshot is still current. While an idle handle keeps a snapshot,
    /// the WAL that other processes write cannot start over, and grows. That includes a process
    /// that opens the store after the last call of the idle handle.
    ///
    /// Not set, a handle keeps its snapshot while no other process has the store open through this
    /// library; with [`small`](Config::small), never.
    #[must_use]
    pub fn hold_reads(mut self, yes: bool) -> Config {
        self.file.hold_reads = Some(yes);
        self
    }

    /// Sets whether removed data is overwritten with zeros in the files of the store (default: no).
    ///
    /// It applies to data that is deleted, overwritten, purged or evicted. Without this setting,
    /// the bytes of removed data stay in the files until their space is reused.
    ///
    /// - The setting is not stored in the file: every handle that writes or closes the store must
    ///   have it.
    /// - The commit removes the data from the pages of the database file.
    /// - In WAL mode, older versions of these pages stay in the `-wal` file until a checkpoint
    ///   empties it, which overwrites the file first. Every
    ///   [`checkpoint`](crate::Store::checkpoint), automatic checkpoints and the close of the last
    ///   handle do that; a reader that uses the WAL postpones it. [`CheckpointMode::Truncate`]
    ///   fails with [`Busy`](crate::ErrorKind::Busy) if it was blocked.
    /// - An expired key is data until it is removed, for example by a
    ///   [purge](crate::Family::purge_expired).
    /// - What was deleted earlier, without the setting, stays. A [copy](crate::Store::copy_to) into
    ///   a new store contains none of it.
    ///
    /// It does not reach the rollback journal, temporary files of long transactions, backups,
    /// memory, file systems that write to new places (Btrfs, ZFS, snapshots), and flash memory. An
    /// encrypted store protects against those. `docs/how-to/secure-delete.md` has the details.
    #[must_use]
    pub fn secure_delete(mut self, yes: bool) -> Config {
        self.file.secure_delete = yes;
        self
    }

    /// Sets the permissions of a new file on Unix, such as `0o660` for a store that a group shares.
    ///
    /// The file has exactly these permissions, whatever the umask is, and so have its `-wal`,
    /// `-shm` and `-journal` files and its [backups](crate::Store::backup). An existing file keeps
    /// its permissions. The owner must be able to read and write: the mode is between `0o600` and
    /// `0o777`.
    ///
    /// Not set, a new file is readable by everyone and writable by its owner (`0o644`), without the
    /// bits of the umask. On Windows, in memory and on a server the mode is ignored.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Config {
        self.file.mode = Some(mode);
        self
    }

    /// Sets whether a store with a damaged catalogue of families can be opened (default: no).
    ///
    /// Without it, opening such a store fails with [`Corrupt`](crate::ErrorKind::Corrupt). Use it
    /// for [`Store::check`](crate::Store::check) or [`Store::repair`](crate::Store::repair): most
    /// other calls fail until the store is repaired.
    #[must_use]
    pub fn allow_damaged(mut self, yes: bool) -> Config {
        self.file.damaged = yes;
        self
    }

    /// Sets the secret of an encrypted store: a password or a raw key.
    ///
    /// A new file is encrypted with it. An existing file must have been encrypted with it.
    ///
    /// Everything in the file is encrypted: keys, values, family names and times. The file has the
    /// format of SQLCipher 4, so other programs can open it with the password.
    #[cfg(feature = "encryption")]
    #[must_use]
    pub fn secret(mut self, secret: &Secret) -> Config {
        self.file.secret = Some(secret.clone().into());
        self
    }

    /// Sets a [password](Secret::password) as the secret of an encrypted store.
    #[cfg(feature = "encryption")]
    #[must_use]
    pub fn password(self, password: impl AsRef<[u8]>) -> Config {
        self.secret(&Secret::password(password))
    }

    /// Sets a [raw key](Secret::raw_key) as the secret of an encrypted store.
    #[cfg(feature = "encryption")]
    #[must_use]
    pub fn raw_key(self, key: &[u8; RAW_KEY_SIZE]) -> Config {
        self.secret(&Secret::raw_key(key))
    }

    /// Removes the secret, so that the store is opened as an unencrypted one.
    #[cfg(feature = "encryption")]
    pub(crate) fn without_secret(mut self) -> Config {
        self.file.secret = None;
        self
    }

    /// Sets the page size to that of encrypted stores, 4096 bytes. It applies to a new file only.
    #[cfg(feature = "encryption")]
    pub(crate) fn for_encryption(self) -> Config {
        self.page_size(DEFAULT_PAGE_SIZE)
    }

    /// Selects the `sql` storage engine even in a build that has the `btree` engine. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn sql_engine(mut self, yes: bool) -> Config {
        self.file.sql_engine = yes;
        self
    }

    /// Fails with `Error` if a setting is out of bounds, or if two settings contradict each other.
    pub(crate) fn check(&self) -> Result<()> {
        self.file.check()?;
        if self.read_only && self.file.exclusive {
            return Err(Error::invalid(
                "a read-only store cannot be exclusive, because a reader cannot lock out other \
                handles: set one of the two",
            ));
        }
        if i32::try_from(self.busy_timeout.as_millis()).is_err() {
            return Err(Error::invalid(format!(
                "the busy timeout of {:?} is too long: the maximum is {} ms",
                self.busy_timeout,
                i32::MAX
            )));
        }
        if !(1..=MAX_VALUE_SIZE).contains(&self.max_value_size) {
            return Err(Error::invalid(format!(
                "the maximum value size of {} bytes is out of bounds: set 1 to {MAX_VALUE_SIZE} \
                bytes",
                self.max_value_size
            )));
        }
        if self.purge_per_write > MAX_PURGE_PER_WRITE {
            return Err(Error::invalid(format!(
                "{} expired keys per write are out of bounds: set 0 to {MAX_PURGE_PER_WRITE}",
                self.purge_per_write
            )));
        }
        Ok(())
    }
}

impl FileConfig {
    /// Returns `true` if a secret is set (a password or raw key), so that the store is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        #[cfg(feature = "encryption")]
        return self.secret.is_some();
        #[cfg(not(feature = "encryption"))]
        false
    }

    fn check(&self) -> Result<()> {
        if !(512..=65_536).contains(&self.page_size) || !self.page_size.is_power_of_two() {
            return Err(Error::invalid(format!(
                "the page size of {} bytes is not a power of two from 512 to 65536",
                self.page_size
            )));
        }
        if let Some(mode) = self.mode
            && (mode & !0o777 != 0 || mode & 0o600 != 0o600)
        {
            return Err(Error::invalid(format!(
                "the file mode {mode:04o} cannot be set: it must have the bits 0600, so that the owner can read and \
                write, and no bits beyond 0777"
            )));
        }
        #[cfg(feature = "encryption")]
        if let Some(secret) = &self.secret {
            secret.check()?;
            if self.page_size != DEFAULT_PAGE_SIZE {
                return Err(Error::invalid(format!(
                    "the page size of {} bytes cannot be used for an encrypted store, whose pages have \
                    {DEFAULT_PAGE_SIZE} bytes: other programs could not open the file with its \
                    password alone",
                    self.page_size
                )));
            }
        }
        if self.cache_pages == 0 || i32::try_from(self.cache_pages).is_err() {
            return Err(Error::invalid(format!(
                "the cache size of {} pages is out of bounds: set 1 to {} pages",
                self.cache_pages,
                i32::MAX
            )));
        }
        if let Some(pages) = self.wal_pages
            && !(MIN_WAL_PAGES..=MAX_WAL_PAGES).contains(&pages)
        {
            return Err(Error::invalid(format!(
                "the WAL size of {pages} pages is out of bounds: set {MIN_WAL_PAGES} to \
                {MAX_WAL_PAGES} pages"
            )));
        }
        if self.checkpoint_every == Some(0) {
            return Err(Error::invalid("a checkpoint after every 0 commits is impossible: set at least 1"));
        }
        Ok(())
    }
}

/// Fails with `Error` if a key is empty or longer than [`MAX_KEY_SIZE`].
pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    if key.is_empty() || key.len() > MAX_KEY_SIZE {
        return Err(Error::invalid(format!(
            "the key has {} bytes: a key has 1 to {MAX_KEY_SIZE} bytes",
            key.len()
        )));
    }
    Ok(())
}

/// Fails with `Error` if `name` is not a valid family name: 1 to [`MAX_NAME_SIZE`] bytes without
/// NUL, with none of the reserved prefixes.
pub(crate) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME_SIZE || name.contains('\0') {
        return Err(Error::invalid(format!(
            "the family name has {} bytes or contains a NUL: a name has 1 to {MAX_NAME_SIZE} bytes of \
            UTF-8 without NUL",
            name.len()
        )));
    }
    if ["__", "_snkv_", "kvstore"].iter().any(|reserved| name.starts_with(reserved)) {
        return Err(Error::invalid(
            "family names that begin with \"__\", \"_snkv_\" or \"kvstore\" are reserved: choose \
            another name",
        ));
    }
    Ok(())
}

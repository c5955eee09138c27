//! How to open a store: every setting, its default and its bounds.
//!
//! [`Config`] has what every home of the data has, and in `file` what a file of SQLite's has beside that; to
//! the caller it is one.

use std::time::Duration;

use crate::error::{Error, Result};
#[cfg(feature = "encryption")]
use crate::secret::{RAW_KEY_SIZE, Secret};

/// Default size of the page cache, in pages.
pub(crate) const DEFAULT_CACHE_PAGES: u32 = 2000;
/// The same of [`Config::small`].
const SMALL_CACHE_PAGES: u32 = 32;
const SMALL_WAL_PAGES: u32 = 64;
/// Default page size of new files, in bytes.
pub(crate) const DEFAULT_PAGE_SIZE: u32 = 4096;
/// Default length of the WAL, in pages, and its bounds.
pub(crate) const DEFAULT_WAL_PAGES: u32 = 4000;
pub(crate) const MIN_WAL_PAGES: u32 = 16;
const MAX_WAL_PAGES: u32 = 1_000_000;
/// Default of the longest value, in bytes.
pub(crate) const DEFAULT_MAX_VALUE_SIZE: usize = 10 * 1024 * 1024;
/// The most [`Config::max_value_size`] may allow, in bytes.
pub const MAX_VALUE_SIZE: usize = 512 * 1024 * 1024;
/// The longest key, in bytes.
pub const MAX_KEY_SIZE: usize = 65_536;

/// The longest key, in bytes, of a store on a server: an entry of an index of PostgreSQL's has 2704 at most.
pub const MAX_SERVER_KEY_SIZE: usize = 2500;
/// The longest family name, in bytes.
pub(crate) const MAX_NAME_SIZE: usize = 255;
/// Default size of the memory map, in bytes; address space is scarce on 32 bits.
pub(crate) const DEFAULT_MMAP_SIZE: u64 =
    if cfg!(target_pointer_width = "64") { 256 * 1024 * 1024 } else { 0 };

/// How SQLite keeps transactions atomic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum JournalMode {
    /// A write-ahead log: readers and a writer do not block each other.
    #[default]
    Wal,
    /// A rollback journal, deleted at each commit: one file, readers and writers take turns.
    Delete,
}

/// What a commit waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SyncLevel {
    /// A power cut may lose the last commits, never the file's integrity. In WAL mode a commit waits for nothing; with a
    /// rollback journal it syncs as often as with `Full`, but for the directory.
    #[default]
    Normal,
    /// A commit is on the disk when the call returns.
    Full,
    /// Nothing is synced: a power cut may damage the file. For data that can be made again.
    Off,
}

/// How far a checkpoint goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointMode {
    /// As much as is possible without waiting for anyone.
    Passive,
    /// Wait for writers, then everything.
    Full,
    /// Like `Full`, and wait for readers, so that the next writer starts the WAL anew.
    Restart,
    /// Like `Restart`, and cut the WAL to zero bytes.
    Truncate,
}

/// Settings of a store handle. [`Config::new`] gives the defaults.
///
/// ```
/// use std::time::Duration;
/// let config = kvstore::Config::new()
///     .sync(kvstore::SyncLevel::Full)
///     .busy_timeout(Duration::from_secs(5));
/// # let store = kvstore::Store::open_in_memory(&config)?;
/// # Ok::<(), kvstore::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) read_only: bool,
    pub(crate) busy_timeout: Duration,
    pub(crate) max_value_size: usize,
    pub(crate) file: FileConfig,
}

/// The settings of a store in a file.
#[derive(Debug, Clone)]
pub(crate) struct FileConfig {
    pub(crate) journal_mode: JournalMode,
    pub(crate) keep_journal_mode: bool,
    pub(crate) sync: SyncLevel,
    pub(crate) cache_pages: u32,
    pub(crate) page_size: u32,
    pub(crate) checkpoint_every: Option<u32>,
    /// `None`: the default one, which a limit of the store's makes less.
    pub(crate) wal_pages: Option<u32>,
    pub(crate) default_wal_pages: u32,
    pub(crate) mmap_size: u64,
    pub(crate) exclusive: bool,
    /// `None`: while this process is alone with the file, if it `holds_while_alone`.
    pub(crate) hold_reads: Option<bool>,
    pub(crate) holds_while_alone: bool,
    pub(crate) secure_delete: bool,
    pub(crate) sql_engine: bool,
    pub(crate) damaged: bool,
    #[cfg(feature = "encryption")]
    pub(crate) secret: Option<std::sync::Arc<Secret>>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            read_only: false,
            busy_timeout: Duration::ZERO,
            max_value_size: DEFAULT_MAX_VALUE_SIZE,
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
            sql_engine: false,
            damaged: false,
            #[cfg(feature = "encryption")]
            secret: None,
        }
    }
}

impl Config {
    /// The defaults: WAL, normal sync, 2000 pages of cache, 4096-byte pages, no waiting for locks,
    /// values up to 10 MiB, and a WAL that is checkpointed every 4000 pages.
    #[must_use]
    pub fn new() -> Config {
        Config::default()
    }

    /// The defaults for a device with little memory and little flash: 32 pages of cache, no memory map, and a WAL that is
    /// checkpointed every 64 pages, or fewer if the store has a [limit](crate::Store::set_size_limit), which bounds its file. No
    /// read snapshot is kept between reads ([`hold_reads`](Config::hold_reads)), unless the store is
    /// [`exclusive`](Config::exclusive) or in memory: it would be in the way of a process that comes later. All else is as in
    /// [`new`](Config::new); what it costs is in docs/how-to/firmware.md.
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

    /// The journal mode; an existing file is converted when no other handle has it open.
    #[must_use]
    pub fn journal_mode(mut self, mode: JournalMode) -> Config {
        self.file.journal_mode = mode;
        self
    }

    /// Leaves a file that is there in the journal mode it has: [`journal_mode`](Config::journal_mode) is that of a new one
    /// only. For tools, which should not decide that for the programs that own the store.
    #[must_use]
    pub fn keep_journal_mode(mut self, yes: bool) -> Config {
        self.file.keep_journal_mode = yes;
        self
    }

    /// What a commit waits for.
    #[must_use]
    pub fn sync(mut self, level: SyncLevel) -> Config {
        self.file.sync = level;
        self
    }

    /// Size of the page cache, in pages (default 2000). A write transaction that changes more may take five times
    /// as much until it ends; then it writes pages to the file before the commit.
    #[must_use]
    pub fn cache_pages(mut self, pages: u32) -> Config {
        self.file.cache_pages = pages;
        self
    }

    /// Page size of a new file, in bytes: a power of two from 512 to 65536 (default 4096). An
    /// existing file keeps its own.
    #[must_use]
    pub fn page_size(mut self, bytes: u32) -> Config {
        self.file.page_size = bytes;
        self
    }

    /// Opens for reading only: the file must exist, and nothing is ever written to it.
    ///
    /// A store that was closed can also be read where nothing can be written, such as on a read-only mount, or by a
    /// user who may not write it. If it is changed there all the same, calls notice it and see the new state; one that
    /// was reading just then answers [`Busy`](crate::ErrorKind::Busy), and so does each call of a snapshot, until it is
    /// ended.
    #[must_use]
    pub fn read_only(mut self, yes: bool) -> Config {
        self.read_only = yes;
        self
    }

    /// How long a call waits for another handle's lock before it fails with
    /// [`Busy`](crate::ErrorKind::Busy); zero (the default) fails at once. At most about 24 days.
    #[must_use]
    pub fn busy_timeout(mut self, wait: Duration) -> Config {
        self.busy_timeout = wait;
        self
    }

    /// Checkpoint the WAL after every `commits` write commits, instead of by its size; in a store that has a limit, by its size
    /// as well. At least 1.
    #[must_use]
    pub fn checkpoint_every(mut self, commits: u32) -> Config {
        self.file.checkpoint_every = Some(commits);
        self
    }

    /// How long the WAL gets, in pages (from 16 to 1 000 000; default 4000, or an eighth of the
    /// [limit](crate::Store::set_size_limit) if that is less, but at least 16): it is written back into the database while
    /// it grows, and begins anew from three quarters of that on; with one writer it never has more than twice as many
    /// and those of one transaction. With [`checkpoint_every`](Config::checkpoint_every) it is used only in a store that
    /// has a limit.
    #[must_use]
    pub fn wal_pages(mut self, pages: u32) -> Config {
        self.file.wal_pages = Some(pages);
        self
    }

    /// The longest value that may be written, in bytes: up to 512 MiB (default 10 MiB).
    #[must_use]
    pub fn max_value_size(mut self, bytes: usize) -> Config {
        self.max_value_size = bytes;
        self
    }

    /// How much of the file is read through a memory map, in bytes; 0 for none (default 256 MiB on
    /// 64-bit systems, none on 32-bit ones).
    #[must_use]
    pub fn mmap_size(mut self, bytes: u64) -> Config {
        self.file.mmap_size = bytes;
        self
    }

    /// This handle alone owns the file, also against other processes: the fastest way, for devices
    /// with one user. Another open fails with [`Busy`](crate::ErrorKind::Busy). Not together with
    /// [`read_only`](Config::read_only).
    #[must_use]
    pub fn exclusive(mut self, yes: bool) -> Config {
        self.file.exclusive = yes;
        self
    }

    /// Whether a handle keeps its read snapshot between reads, which makes them much faster. It never shows
    /// anything but the newest state. But while a handle that keeps one sits idle in one process, the WAL that
    /// other processes write cannot start anew, and grows: also that of a process which opens the store after the last read
    /// or write of the handle. By default one is kept only while no other process has the store open through this library,
    /// and with [`small`](Config::small) never; `true`: always; `false`: never.
    #[must_use]
    pub fn hold_reads(mut self, yes: bool) -> Config {
        self.file.hold_reads = Some(yes);
        self
    }

    /// Whether what is deleted, overwritten, expired and removed, or evicted is overwritten with zeros in the store's files
    /// (default: no; then its bytes stay until their place is used again).
    ///
    /// With the commit that removes them they are gone from the pages of the database: also from free pages, and from
    /// what is free within pages. In WAL mode older frames of these pages stand in the `-wal` file until the next
    /// checkpoint that no reader stands in the way of: [`Store::checkpoint`](crate::Store::checkpoint) in any mode, one
    /// that the length of the WAL asks for, or the close of the last handle. Each of them leaves the WAL empty, and
    /// overwrites it first. A reader that stays puts it off until the WAL begins anew. To be sure of it at once, use
    /// [`CheckpointMode::Truncate`], which answers [`Busy`](crate::ErrorKind::Busy) where it could not.
    ///
    /// The file does not remember it: every handle that writes, or closes the store, must have it. What was deleted
    /// before stays; a [copy](crate::Store::copy_to) into a new store has none of it. An expired key is data until it is
    /// removed, by a [purge](crate::Store::purge_expired) or another write. Not reached are the rollback journal, which is
    /// removed at each commit, temporary files of a long transaction, backups, file systems that write elsewhere (Btrfs,
    /// ZFS, snapshots), flash that does the same, and memory.
    /// Against those helps an encrypted store. `docs/how-to/secure-delete.md` says more.
    #[must_use]
    pub fn secure_delete(mut self, yes: bool) -> Config {
        self.file.secure_delete = yes;
        self
    }

    /// Opens also a store whose catalogue of families is damaged, which is refused as
    /// [`Corrupt`](crate::ErrorKind::Corrupt) otherwise: for a [check](crate::Store::check) or a
    /// [repair](crate::Store::repair). Until it is repaired, most other calls fail.
    #[must_use]
    pub fn allow_damaged(mut self, yes: bool) -> Config {
        self.file.damaged = yes;
        self
    }

    /// What the store is encrypted with: a new file is, and one that is there must be, with the same secret. Everything in
    /// it is: keys, values, families, times.
    ///
    /// The file is one of SQLCipher 4's, which other programs open with the password. Its pages have 4096 bytes.
    #[cfg(feature = "encryption")]
    #[must_use]
    pub fn secret(mut self, secret: &Secret) -> Config {
        self.file.secret = Some(secret.clone().into());
        self
    }

    /// The same with a [password](Secret::password).
    #[cfg(feature = "encryption")]
    #[must_use]
    pub fn password(self, password: impl AsRef<[u8]>) -> Config {
        self.secret(&Secret::password(password))
    }

    /// The same with a [key](Secret::raw_key).
    #[cfg(feature = "encryption")]
    #[must_use]
    pub fn raw_key(self, key: &[u8; RAW_KEY_SIZE]) -> Config {
        self.secret(&Secret::raw_key(key))
    }

    /// Without what the store is encrypted with.
    #[cfg(feature = "encryption")]
    pub(crate) fn without_secret(mut self) -> Config {
        self.file.secret = None;
        self
    }

    /// With the page size of encrypted stores: that of a store which is there is not asked for anyway.
    #[cfg(feature = "encryption")]
    pub(crate) fn for_encryption(self) -> Config {
        self.page_size(DEFAULT_PAGE_SIZE)
    }

    /// Row operations through SQL also where the build has the `btree` engine. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn sql_engine(mut self, yes: bool) -> Config {
        self.file.sql_engine = yes;
        self
    }

    /// Refuses settings that are out of bounds, or contradict each other.
    pub(crate) fn check(&self) -> Result<()> {
        self.file.check()?;
        if self.read_only && self.file.exclusive {
            return Err(Error::invalid(
                "read-only (readOnly) and exclusive: who only reads cannot keep others out; choose one of them",
            ));
        }
        if i32::try_from(self.busy_timeout.as_millis()).is_err() {
            return Err(Error::invalid(format!(
                "busy timeout {:?}: must be at most {} ms",
                self.busy_timeout,
                i32::MAX
            )));
        }
        if !(1..=MAX_VALUE_SIZE).contains(&self.max_value_size) {
            return Err(Error::invalid(format!(
                "maximum value size (maxValueSize) {}: must be from 1 to {MAX_VALUE_SIZE} bytes",
                self.max_value_size
            )));
        }
        Ok(())
    }
}

impl FileConfig {
    /// Whether there is a password or a key.
    pub(crate) fn is_encrypted(&self) -> bool {
        #[cfg(feature = "encryption")]
        return self.secret.is_some();
        #[cfg(not(feature = "encryption"))]
        false
    }

    fn check(&self) -> Result<()> {
        if !(512..=65_536).contains(&self.page_size) || !self.page_size.is_power_of_two() {
            return Err(Error::invalid(format!(
                "page size (pageSize) {}: must be a power of two from 512 to 65536",
                self.page_size
            )));
        }
        #[cfg(feature = "encryption")]
        if let Some(secret) = &self.secret {
            secret.check()?;
            if self.page_size != DEFAULT_PAGE_SIZE {
                return Err(Error::invalid(format!(
                    "page size (pageSize) {}: an encrypted store has pages of {DEFAULT_PAGE_SIZE} bytes, or other \
                     programs would not open it with its password alone",
                    self.page_size
                )));
            }
        }
        if self.cache_pages == 0 || i32::try_from(self.cache_pages).is_err() {
            return Err(Error::invalid(format!(
                "page cache (cacheSize) of {} pages: must be from 1 to {}",
                self.cache_pages,
                i32::MAX
            )));
        }
        if let Some(pages) = self.wal_pages
            && !(MIN_WAL_PAGES..=MAX_WAL_PAGES).contains(&pages)
        {
            return Err(Error::invalid(format!(
                "WAL (walPages) of {pages} pages: must be from {MIN_WAL_PAGES} to {MAX_WAL_PAGES}"
            )));
        }
        if self.checkpoint_every == Some(0) {
            return Err(Error::invalid("checkpoint_every 0: must be at least 1 commit"));
        }
        Ok(())
    }
}

/// Refuses a key that is empty or too long.
pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    if key.is_empty() || key.len() > MAX_KEY_SIZE {
        return Err(Error::invalid(format!(
            "a key of {} bytes: keys are 1 to {MAX_KEY_SIZE} bytes long",
            key.len()
        )));
    }
    Ok(())
}

/// Refuses a family name that cannot be one.
pub(crate) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME_SIZE || name.contains('\0') {
        return Err(Error::invalid(format!(
            "a family name of {} bytes: names are 1 to {MAX_NAME_SIZE} bytes of UTF-8 without NUL",
            name.len()
        )));
    }
    if ["__", "_snkv_", "kvstore"].iter().any(|reserved| name.starts_with(reserved)) {
        return Err(Error::invalid(
            "family names that start with \"__\", \"_snkv_\" or \"kvstore\" are reserved; choose another",
        ));
    }
    Ok(())
}

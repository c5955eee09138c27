//! What a store says of itself: the answer of [`Store::info`](crate::Store::info).

use std::path::PathBuf;
use std::time::Duration;

use crate::config::JournalMode;
use crate::options::SizeLimit;

/// What a store is, what takes room in its file, and what its families are, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreInfo {
    /// The file, with symbolic links followed, or the URL without its password; `None` in memory.
    pub path: Option<PathBuf>,
    /// The version of the file's format; on a server of the tables.
    pub format_version: i64,
    /// The program that made the file, such as `kvstore 0.1.0`; `None` if the file does not say.
    pub created_by: Option<String>,
    /// How the file is written; `None` in memory, and for ways that are not this library's.
    pub journal_mode: Option<JournalMode>,
    /// Bytes of a page.
    pub page_size: u64,
    /// Bytes of all pages; in WAL mode the file has them after a checkpoint.
    pub file_bytes: u64,
    /// Bytes of the pages among them that hold nothing. The next writes use them, and
    /// [`incremental_vacuum`](crate::Store::incremental_vacuum) gives them back.
    pub free_bytes: u64,
    /// Bytes of pages that belong to no family: the lists of tables and families, the map of pages, and what other
    /// programs have made. `None` if that cannot be told, as [`FamilyInfo::sizes`].
    pub other_bytes: Option<u64>,
    /// Length of the WAL's file in bytes. It is used again from its start when all of it is in the database.
    pub wal_bytes: u64,
    /// Bytes of the pages in the WAL that a checkpoint has still to write into the database.
    pub wal_pending_bytes: u64,
    /// How much the data may take.
    pub size_limit: Option<SizeLimit>,
    /// All families, in byte order of their names, the default one included.
    pub families: Vec<FamilyInfo>,
    /// The server the store is on; `None` in a file. On a server there are no pages and no WAL of the store's: their sizes
    /// are 0 above.
    pub server: Option<ServerInfo>,
}

/// A server a store is on, and what the store takes there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerInfo {
    /// Its version, as it says it.
    pub version: String,
    /// The database.
    pub database: String,
    /// The schema of the store's tables.
    pub schema: String,
    /// The version of TLS and the cipher of this handle's connection, such as `TLSv1.3, TLS_AES_256_GCM_SHA384`; `None`:
    /// it is not encrypted.
    pub tls: Option<String>,
    /// Whether it is a standby, which only reads.
    pub is_standby: bool,
    /// What the tables take; `None` where the server cannot tell.
    pub sizes: Option<ServerSizes>,
}

/// What the tables of a store take on a server, in bytes; of all families together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerSizes {
    /// Keys and values, and the room of rows that are gone, which VACUUM gives to new ones.
    pub rows: u64,
    /// The indexes of keys, of ends of life and of write times.
    pub indexes: u64,
    /// All of it, with the small tables.
    pub total: u64,
}

/// What a family is, and what it takes in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FamilyInfo {
    /// Its name.
    pub name: String,
    /// When it was made, in milliseconds since the Unix epoch; `None` if the file does not say.
    pub created_ms: Option<i64>,
    /// The TTL that plain puts give.
    pub default_ttl: Option<Duration>,
    /// Whether it tracks write times.
    pub tracks_writes: bool,
    /// As [`Family::next_expiry`](crate::Family::next_expiry).
    pub next_expiry_ms: Option<i64>,
    /// What it takes; `None` if that cannot be told: the file has no map of its pages (another program has made it
    /// anew), or this handle uses the `sql` engine on a SQLite without the table `dbstat`.
    pub sizes: Option<FamilySizes>,
}

/// What the tables of a family take in the file, in bytes of whole pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FamilySizes {
    /// Keys, and values that are kept beside them.
    pub rows: u64,
    /// Large values.
    pub large_values: u64,
    /// The indexes of ends of life.
    pub expiry_indexes: u64,
    /// The index of write times.
    pub write_index: u64,
}

impl FamilySizes {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.rows + self.large_values + self.expiry_indexes + self.write_index
    }
}

//! Types of the result of [`Store::info`](crate::Store::info).

use std::path::PathBuf;
use std::time::Duration;

use crate::config::JournalMode;
use crate::options::SizeLimit;

/// Description of a store, as returned by [`Store::info`](crate::Store::info): its file, its size
/// and its families, in one snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreInfo {
    /// Path of the file, with symbolic links resolved, or the URL without its password. `None` for
    /// a store in memory.
    pub path: Option<PathBuf>,
    /// Version number of the file format; for a store on a server, of the table format.
    pub format_version: i64,
    /// Name and version of the program that created the file, such as `kvstore 0.1.0`; `None` if
    /// the file does not record it.
    pub created_by: Option<String>,
    /// Journal mode of the file. `None` for a store in memory, and for a journal mode that this
    /// library does not use.
    pub journal_mode: Option<JournalMode>,
    /// Size of one page of the file, in bytes; 0 on a server.
    pub page_size: u64,
    /// Size of all pages of the database, in bytes; 0 on a server.
    ///
    /// In WAL mode the file has this size after a checkpoint.
    pub file_bytes: u64,
    /// Size of the free pages in the file, in bytes. Later writes reuse them.
    ///
    /// [`incremental_vacuum`](crate::Store::incremental_vacuum) returns them to the file system.
    pub free_bytes: u64,
    /// Size of the pages that belong to no family, in bytes: the catalogue, the page map, and
    /// tables of other programs. `None` if it is not known, for the reasons given at
    /// [`FamilyInfo::sizes`].
    pub other_bytes: Option<u64>,
    /// Size of the `-wal` file, in bytes. Its space is reused once all frames are in the database.
    pub wal_bytes: u64,
    /// Size of the pages that a checkpoint still has to copy from the WAL into the database, in
    /// bytes.
    pub wal_pending_bytes: u64,
    /// Size limit of the store; `None` if it has none.
    pub size_limit: Option<SizeLimit>,
    /// All families, including the default one, in byte order of their names.
    pub families: Vec<FamilyInfo>,
    /// Server of the store; `None` for a file.
    ///
    /// A store on a server has no pages and no WAL, so the sizes of pages and of the WAL are 0.
    pub server: Option<ServerInfo>,
}

/// Description of the server of a store, and the size of the store there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerInfo {
    /// Version of the server, as the server reports it.
    pub version: String,
    /// Name of the database.
    pub database: String,
    /// Name of the schema that contains the tables of the store.
    pub schema: String,
    /// TLS version and cipher of the connection, such as `TLSv1.3, TLS_AES_256_GCM_SHA384`; `None`
    /// if the connection is not encrypted.
    pub tls: Option<String>,
    /// Whether the server is a read-only standby.
    pub is_standby: bool,
    /// Sizes of the tables; `None` if the server does not report them.
    pub sizes: Option<ServerSizes>,
}

/// Sizes of the tables of a store on a server, in bytes, summed over all families.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerSizes {
    /// Size of the tables with the keys and values, in bytes. It includes the space of removed rows
    /// until VACUUM makes it reusable.
    pub rows: u64,
    /// Size of the indexes by key, expiry time and write time, in bytes.
    pub indexes: u64,
    /// Size of all tables and indexes of the store, in bytes: `rows`, `indexes` and the small
    /// tables.
    pub total: u64,
}

/// Settings and size of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FamilyInfo {
    /// Name of the family.
    pub name: String,
    /// Creation time, in milliseconds since the Unix epoch; `None` if the file does not record it.
    pub created_ms: Option<i64>,
    /// Default TTL of the family, which [`put`](crate::Family::put) gives to keys; `None` if there
    /// is none.
    pub default_ttl: Option<Duration>,
    /// Whether write tracking is on, so that the family records when each value was written.
    pub tracks_writes: bool,
    /// Earliest expiry time of a key in the family, in milliseconds since the Unix epoch; `None` if
    /// no key has one.
    pub next_expiry_ms: Option<i64>,
    /// Sizes of the tables of the family; `None` on a server, or if they are not known.
    ///
    /// They are not known if the file has no page map, because another program rewrote the file
    /// without auto-vacuum, or if this handle uses the `sql` engine and its SQLite has no `dbstat`
    /// table.
    pub sizes: Option<FamilySizes>,
}

/// Sizes of the tables of one family in the file, in bytes. Pages count as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FamilySizes {
    /// Size of the pages with the keys and the small values, in bytes.
    pub rows: u64,
    /// Size of the pages with the large values, in bytes. Large values have a table of their own.
    pub large_values: u64,
    /// Size of the pages of the key index and the expiry index, in bytes.
    pub expiry_indexes: u64,
    /// Size of the pages of the index by write time, in bytes.
    pub write_index: u64,
}

impl FamilySizes {
    /// Returns the size of all pages of the family, in bytes: the sum of the fields.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.rows + self.large_values + self.expiry_indexes + self.write_index
    }
}

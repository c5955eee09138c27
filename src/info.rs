//! Types of the result of [`Store::info`](crate::Store::info).

use std::path::PathBuf;
use std::time::Duration;

use crate::config::JournalMode;
use crate::options::SizeLimit;

/// Description of a store at one moment: its file, its size and its families.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreInfo {
    /// Path of the file with symbolic links resolved, or the URL without its password; `None` in
    /// memory.
    pub path: Option<PathBuf>,
    /// Version of the file format; on a server, of the tables.
    pub format_version: i64,
    /// Program that created the file, such as `kvstore 0.1.0`; `None` if the file does not record
    /// it.
    pub created_by: Option<String>,
    /// Journal mode of the file; `None` in memory, and for journal modes that this library does not
    /// use.
    pub journal_mode: Option<JournalMode>,
    /// Size of a page, in bytes; 0 on a server.
    pub page_size: u64,
    /// Size of all pages, in bytes. In WAL mode the file has this size after a checkpoint. 0 on a
    /// server.
    pub file_bytes: u64,
    /// Size of the free pages, in bytes. Later writes reuse them;
    /// [`incremental_vacuum`](crate::Store::incremental_vacuum) returns them to the file system.
    pub free_bytes: u64,
    /// Size of the pages that belong to no family, in bytes: catalogue, page map, and tables of
    /// other programs. `None` if it is not known (see [`FamilyInfo::sizes`]).
    pub other_bytes: Option<u64>,
    /// Size of the `-wal` file, in bytes. Its space is reused once all frames are in the database.
    pub wal_bytes: u64,
    /// Size of the pages in the WAL that a checkpoint still has to copy, in bytes.
    pub wal_pending_bytes: u64,
    /// Size limit of the store; `None` if it has none.
    pub size_limit: Option<SizeLimit>,
    /// All families, including the default one, in byte order of their names.
    pub families: Vec<FamilyInfo>,
    /// Server of the store; `None` for a file. A store on a server has no pages and no WAL: the
    /// sizes above are 0.
    pub server: Option<ServerInfo>,
}

/// Server of a store, and the size of the store there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerInfo {
    /// Version of the server, in its own words.
    pub version: String,
    /// Name of the database.
    pub database: String,
    /// Name of the schema that contains the tables of the store.
    pub schema: String,
    /// TLS version and cipher of the connection, such as `TLSv1.3, TLS_AES_256_GCM_SHA384`; `None`
    /// if it is not encrypted.
    pub tls: Option<String>,
    /// Whether the server is a read-only standby.
    pub is_standby: bool,
    /// Size of the tables; `None` if the server does not report it.
    pub sizes: Option<ServerSizes>,
}

/// Size of the tables of a store on a server, in bytes, over all families.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerSizes {
    /// Keys and values, including the space of removed rows until VACUUM makes it reusable.
    pub rows: u64,
    /// Indexes by key, expiry time and write time.
    pub indexes: u64,
    /// Sum of the above and of the small tables.
    pub total: u64,
}

/// Settings and size of a family.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FamilyInfo {
    /// Name of the family.
    pub name: String,
    /// Creation time, in milliseconds since the Unix epoch; `None` if the file does not record it.
    pub created_ms: Option<i64>,
    /// Default TTL, which plain puts use; `None` if there is none.
    pub default_ttl: Option<Duration>,
    /// Whether the family records write times.
    pub tracks_writes: bool,
    /// Earliest expiry time, in milliseconds since the Unix epoch, as
    /// [`Family::next_expiry`](crate::Family::next_expiry) returns it.
    pub next_expiry_ms: Option<i64>,
    /// Size of the tables; `None` if it is not known.
    ///
    /// It is not known if the file has no page map, because another program rewrote it without
    /// auto-vacuum, or if this handle uses the `sql` engine and its SQLite has no `dbstat` table.
    /// It is also `None` on a server.
    pub sizes: Option<FamilySizes>,
}

/// Size of the tables of a family in the file, in bytes of whole pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FamilySizes {
    /// Keys, and values that are stored next to them.
    pub rows: u64,
    /// Large values, which have a table of their own.
    pub large_values: u64,
    /// Key index and expiry index.
    pub expiry_indexes: u64,
    /// Index of write times.
    pub write_index: u64,
}

impl FamilySizes {
    /// Returns the sum of all parts.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.rows + self.large_values + self.expiry_indexes + self.write_index
    }
}

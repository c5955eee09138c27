//! Description of a store: its format marks, its settings, and the size of each kind of table in
//! the file.

use std::collections::HashMap;
use std::time::Duration;

use super::connection::Db;
use super::error::{is_missing_table, translate};
use super::os::{self, WalIndex};
use super::schema::{self, BLOB, DATA, TTL_EXPIRY, TTL_KEY, Tables, WRITTEN, table_name};
use super::write::Contents;
use crate::clock::Clock;
use crate::config::JournalMode;
use crate::error::Result;
use crate::info::{FamilyInfo, FamilySizes, StoreInfo};
use crate::location::sibling;

impl Db {
    /// Returns a description of the store, read from one snapshot.
    pub(crate) fn info(&self, clock: &Clock) -> Result<StoreInfo> {
        self.in_snapshot(|db| {
            db.read_first()?;
            let page_size = db.page_size()?;
            let mut families = db.families_with_settings(clock)?;
            let bytes_of = db.bytes_of_tables()?;
            let free_bytes = db.free_pages()? * page_size;
            let file_bytes = db.page_count()? * page_size;
            let mut of_families = 0;
            if let Some(bytes_of) = &bytes_of {
                for family in &mut families {
                    let sizes = sizes_of(&family.name, bytes_of);
                    of_families += sizes.total();
                    family.sizes = Some(sizes);
                }
            }
            let journal_mode = match (&db.path, &db.immutable) {
                (None, _) => None,
                (_, Some(immutable)) => Some(immutable.journal_mode()),
                _ => db.journal_mode()?,
            };
            let (wal_bytes, wal_pending_bytes) = match journal_mode {
                Some(JournalMode::Wal) => db.wal_bytes(page_size),
                _ => (0, 0),
            };
            Ok(StoreInfo {
                path: db.path(),
                format_version: db.format_version()?,
                created_by: db.created_by()?,
                journal_mode,
                page_size,
                file_bytes,
                free_bytes,
                other_bytes: bytes_of.map(|_| file_bytes.saturating_sub(free_bytes + of_families)),
                wal_bytes,
                wal_pending_bytes,
                size_limit: db.limit_now()?,
                families,
                server: None,
            })
        })
    }

    /// Returns the families with their settings, without their sizes.
    fn families_with_settings(&self, clock: &Clock) -> Result<Vec<FamilyInfo>> {
        let mut families = Vec::new();
        for name in self.families()? {
            let tables = Tables::of(&name);
            let settings = self.read_settings(&tables)?;
            families.push(FamilyInfo {
                created_ms: None,
                default_ttl: Some(Duration::from_millis(settings.default_ttl_ms.unsigned_abs()))
                    .filter(|ttl| !ttl.is_zero()),
                tracks_writes: settings.track_writes,
                next_expiry_ms: self.contents(&tables, clock).next_expiry()?,
                sizes: None,
                name,
            });
        }
        let mut statement = self
            .switch_to_sql()?
            .prepare("SELECT created_ms FROM kvstore_family WHERE name = ?1")
            .map_err(translate)?;
        for family in &mut families {
            let mut rows = statement.query([&family.name]).map_err(translate)?;
            if let Some(row) = rows.next().map_err(translate)? {
                family.created_ms = row.get_ref(0).map_err(translate)?.as_i64().ok();
            }
        }
        Ok(families)
    }

    fn created_by(&self) -> Result<Option<String>> {
        let mut statement =
            match self.switch_to_sql()?.prepare("SELECT value FROM kvstore_meta WHERE name = 'created_by'") {
                Err(e) if is_missing_table(&e) => return Ok(None),
                prepared => prepared.map_err(translate)?,
            };
        let mut rows = statement.raw_query();
        let Some(row) = rows.next().map_err(translate)? else { return Ok(None) };
        let by = row.get_ref(0).map_err(translate)?.as_bytes().ok();
        Ok(by.map(|by| String::from_utf8_lossy(by).into_owned()))
    }

    /// Returns the length of the WAL, and the size of those pages in it that a checkpoint still has
    /// to copy into the database, in bytes.
    fn wal_bytes(&self, page_size: u64) -> (u64, u64) {
        let length = self.length_of_file("-wal");
        // Only with a WAL: asking for the wal-index would create it if there is none.
        let index = if length > 0 && self.immutable.is_none() { WalIndex::of(&self.conn) } else { None };
        let frames = |index: WalIndex| index.state().map(|(_, all)| all.saturating_sub(index.written_back()));
        let pending = index.and_then(frames).unwrap_or_default();
        (
            length,
            (u64::from(pending) * page_size)
                .min(length / (page_size + u64::from(os::FRAME_HEADER)) * page_size),
        )
    }

    /// Returns the length, in bytes, of the file whose name is the name of the database file plus
    /// `suffix`; 0 if it does not exist.
    fn length_of_file(&self, suffix: &str) -> u64 {
        let length = |path| std::fs::metadata(path).map_or(0, |file| file.len());
        self.path.as_deref().map_or(0, |path| length(sibling(path, suffix)))
    }

    /// Returns the size of each table, in bytes, by its name; `None` if the sizes cannot be
    /// determined.
    fn bytes_of_tables(&self) -> Result<Option<HashMap<String, u64>>> {
        if let Some(btree) = &self.btree {
            let page_size = self.page_size()?;
            // The engine allocates memory for each page, whether it exists or not. So a false
            // number of pages in the header of the file could exhaust the memory.
            let most = (self.length_of_file("") + self.length_of_file("-wal")) / page_size.max(1) + 1;
            if self.path.is_some() && self.page_count()? > most {
                return Ok(None);
            }
            let Some(pages) = btree.pages_of_tables(self)? else { return Ok(None) };
            let sizes = self.roots()?.into_iter().map(|(name, root)| {
                let pages = u32::try_from(root).ok().and_then(|root| pages.get(&root));
                (name, pages.copied().unwrap_or_default() * page_size)
            });
            return Ok(Some(sizes.collect()));
        }
        self.bytes_by_dbstat()
    }

    /// Returns the names of all tables, with the numbers of their root pages.
    fn roots(&self) -> Result<Vec<(String, i64)>> {
        let mut statement = self
            .switch_to_sql()?
            .prepare("SELECT name, rootpage FROM sqlite_schema WHERE type = 'table'")
            .map_err(translate)?;
        let mut rows = statement.raw_query();
        let mut roots = Vec::new();
        while let Some(row) = rows.next().map_err(translate)? {
            let (name, root) = (row.get_ref(0).map_err(translate)?, row.get_ref(1).map_err(translate)?);
            if let (Ok(name), Ok(root)) = (name.as_str(), root.as_i64()) {
                roots.push((name.to_owned(), root));
            }
        }
        Ok(roots)
    }

    /// Returns the size of each table, in bytes, by its name, as the virtual table `dbstat` reports
    /// it. This reads all pages. Returns `None` if SQLite was built without `dbstat`.
    fn bytes_by_dbstat(&self) -> Result<Option<HashMap<String, u64>>> {
        let sql = "SELECT name, pgsize FROM dbstat('main', 1)";
        let mut statement = match self.switch_to_sql()?.prepare(sql) {
            Err(e) if is_missing_table(&e) => return Ok(None),
            prepared => prepared.map_err(translate)?,
        };
        let mut rows = statement.raw_query();
        let mut bytes = HashMap::new();
        while let Some(row) = rows.next().map_err(translate)? {
            let (name, size) = (row.get_ref(0).map_err(translate)?, row.get_ref(1).map_err(translate)?);
            if let (Ok(name), Ok(size)) = (name.as_str(), size.as_i64()) {
                bytes.insert(name.to_owned(), size.unsigned_abs());
            }
        }
        Ok(Some(bytes))
    }
}

fn sizes_of(family: &str, bytes_of: &HashMap<String, u64>) -> FamilySizes {
    let of = |kind: &schema::Kind| bytes_of.get(&table_name(kind.name, family)).copied().unwrap_or_default();
    FamilySizes {
        rows: of(&DATA),
        large_values: of(&BLOB),
        expiry_indexes: of(&TTL_KEY) + of(&TTL_EXPIRY),
        write_index: of(&WRITTEN),
    }
}

impl Contents<'_> {
    /// Returns the number of entries of the expiry index of the family, including those of expired
    /// keys.
    pub(crate) fn count_ttl(self) -> Result<u64> {
        self.db.read_settings(self.tables)?; // fails if the family is no longer there
        let sql = format!("SELECT count(*) FROM {}", self.tables.ttl_expiry);
        let mut statement = match self.db.switch_to_sql()?.prepare(&sql) {
            Err(e) if is_missing_table(&e) => return Ok(0),
            prepared => prepared.map_err(translate)?,
        };
        let count: i64 = statement.query_row([], |row| row.get(0)).map_err(translate)?;
        Ok(count.unsigned_abs())
    }
}

//! Settings of a connection that PRAGMA statements read and set.
//!
//! The `btree` engine reads and sets them without SQL. The first statement that needs the schema
//! reads the whole schema, which takes longer than the rest of an open. `open.rs` decides which
//! PRAGMA statements run when.

use rusqlite::Connection;

use super::connection::Db;
use super::engine::btree;
use super::error::translate;
use super::schema;
use crate::config::{DEFAULT_CACHE_PAGES, FileConfig, JournalMode, SyncLevel};
use crate::error::Result;

/// Whether SQLite was compiled with the flags in .cargo/config.toml, which build.rs has checked. If
/// so, these settings need no PRAGMA statement, because they are SQLite's defaults:
///
/// - The page cache has the default size (`SQLITE_DEFAULT_CACHE_SIZE`).
/// - Commits to a WAL are not synced (`SQLITE_DEFAULT_WAL_SYNCHRONOUS`). Commits with other
///   journals are, by SQLite's own default.
/// - Temporary tables are in memory (`SQLITE_TEMP_STORE`).
const HAS_DEFAULTS: bool = btree::IS_BUILT;
const _: () = assert!(DEFAULT_CACHE_PAGES == 2000, "as .cargo/config.toml has it");

/// Factor for `PRAGMA cache_spill`: a transaction may change this many times the number of pages of
/// the page cache before SQLite writes some of them to the WAL or the database ahead of the commit.
///
/// A page that changes again after it was written is written twice, and the checksum of its frame
/// is computed twice. (10 000 random overwrites among 300 000 keys take 14 to 24 % less time than
/// with the factor 1.)
const SPILL: u32 = 5;

/// Returns the size of a page of the database, in bytes. Correct only after the connection has read
/// from the file.
pub(super) fn page_size(conn: &Connection) -> Result<u64> {
    let number = conn.query_row("PRAGMA page_size", [], |row| {
        let value = row.get_ref(0)?;
        Ok(value.as_i64().or_else(|e| value.as_str()?.parse().map_err(|_| e))?)
    });
    Ok(number.map_err(translate)?.try_into().unwrap_or(0))
}

impl Db {
    /// Sets the options of the connection that must be set before it reads the file.
    pub(super) fn configure(&self, config: &FileConfig) -> Result<()> {
        if config.exclusive {
            self.execute("PRAGMA locking_mode = EXCLUSIVE")?;
        }
        if !HAS_DEFAULTS {
            // No temporary files: the only files of a store are those next to it.
            self.execute("PRAGMA temp_store = MEMORY")?;
        }
        let spill = i32::try_from(config.cache_pages.saturating_mul(SPILL)).unwrap_or(i32::MAX);
        let mapped = i64::try_from(config.mmap_size).unwrap_or(i64::MAX);
        if let Some(btree) = &self.btree {
            btree.configure(spill, mapped);
        } else {
            self.execute(&format!("PRAGMA cache_spill = {spill}"))?;
            self.execute(&format!("PRAGMA mmap_size = {mapped}"))?;
        }
        if !HAS_DEFAULTS || config.cache_pages != DEFAULT_CACHE_PAGES {
            self.execute(&format!("PRAGMA cache_size = {}", config.cache_pages))?;
        }
        if config.secure_delete {
            self.execute("PRAGMA secure_delete = ON")?;
        }
        // On Apple systems, fsync neither reaches the disk nor keeps an order. F_FULLFSYNC, which
        // SQLite then uses instead, does. Without it a power cut in a checkpoint could damage the
        // file.
        if cfg!(target_vendor = "apple") && config.sync != SyncLevel::Off {
            self.execute("PRAGMA checkpoint_fullfsync = ON")?;
            if config.sync == SyncLevel::Full || config.journal_mode == JournalMode::Delete {
                self.execute("PRAGMA fullfsync = ON")?;
            }
        }
        match config.sync {
            // With a rollback journal, SQLite's NORMAL relies on checksums that cover every 200th
            // byte. A power cut may tear the journal of a commit, or that of the creation or the
            // conversion of the store. Then the rollback may write invalid pages. With FULL, the
            // journal states its number of pages only when they are on the disk. For a WAL see
            // `relax`.
            SyncLevel::Normal if HAS_DEFAULTS => Ok(()),
            SyncLevel::Normal => self.execute("PRAGMA synchronous = FULL"),
            // FULL does not sync the directory after a rollback journal was removed from it. A
            // power cut could bring the journal back, and so undo the commit. In WAL mode FULL and
            // EXTRA are the same.
            SyncLevel::Full => self.execute("PRAGMA synchronous = EXTRA"),
            SyncLevel::Off => self.execute("PRAGMA synchronous = OFF"),
        }
    }

    /// Sets SQLite's sync level NORMAL once the file is in WAL mode. The checksum of a frame covers
    /// all bytes, so commits need not be synced.
    pub(super) fn relax(&self) -> Result<()> {
        if !HAS_DEFAULTS && self.sync == SyncLevel::Normal && self.journal_mode()? == Some(JournalMode::Wal) {
            return self.execute("PRAGMA synchronous = NORMAL");
        }
        Ok(())
    }

    /// Returns `true` if the file has the application id of a store.
    pub(super) fn is_ours(&self) -> Result<bool> {
        if let Some(btree) = &self.btree {
            return Ok(btree.marks(self)?.0 == schema::APPLICATION_ID);
        }
        Ok(self.read_number("PRAGMA application_id")? == i64::from(schema::APPLICATION_ID))
    }

    /// Returns the format version that the file states (`PRAGMA user_version`).
    pub(super) fn format_version(&self) -> Result<i64> {
        if let Some(btree) = &self.btree {
            return Ok(btree.marks(self)?.1.into());
        }
        self.read_number("PRAGMA user_version")
    }

    /// Returns the size of a page of the database, in bytes. Correct only after the connection has
    /// read from the file.
    pub(super) fn page_size(&self) -> Result<u64> {
        if let Some(btree) = &self.btree {
            return Ok(btree.page_size());
        }
        page_size(self.switch_to_sql()?)
    }

    /// Returns the journal mode of the file; `None` if it is neither WAL nor DELETE. Correct only
    /// after the connection has read from the file.
    pub(super) fn journal_mode(&self) -> Result<Option<JournalMode>> {
        if let Some(btree) = &self.btree {
            return Ok(btree.journal_mode());
        }
        let mode: String =
            self.conn.query_row("PRAGMA journal_mode", [], |row| row.get(0)).map_err(translate)?;
        Ok(match mode.as_str() {
            "wal" => Some(JournalMode::Wal),
            "delete" => Some(JournalMode::Delete),
            _ => None,
        })
    }

    /// Sets the maximum number of pages of the database, which must not be below its number of
    /// pages.
    pub(super) fn limit_pages(&self, pages: u32) -> Result<()> {
        if let Some(btree) = &self.btree {
            btree.limit_pages(pages);
            return Ok(());
        }
        self.read_number(&format!("PRAGMA max_page_count = {pages}")).map(drop)
    }

    /// Sets the length, in bytes, to which SQLite truncates a longer WAL file when the WAL starts
    /// over.
    pub(super) fn limit_wal(&self, bytes: u64) -> Result<()> {
        if let Some(btree) = &self.btree {
            btree.limit_journal(bytes);
            return Ok(());
        }
        self.execute(&format!("PRAGMA journal_size_limit = {bytes}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// Returns the settings that SQLite reports by SQL.
    fn set(db: &Db) -> Vec<i64> {
        [
            "cache_size",
            "cache_spill",
            "mmap_size",
            "synchronous",
            "foreign_keys",
            "journal_size_limit",
            "page_size",
            "secure_delete",
        ]
        .map(|name| db.read_number(&format!("PRAGMA {name}")).unwrap())
        .to_vec()
    }

    #[test]
    fn settings_without_sql_equal_settings_by_sql() {
        let configs = [
            Config::new(),
            Config::new().cache_pages(123).mmap_size(1 << 20),
            Config::new().sync(SyncLevel::Full),
            Config::new().sync(SyncLevel::Off),
            Config::new().journal_mode(JournalMode::Delete),
            Config::new().secure_delete(true),
            Config::new().journal_mode(JournalMode::Delete).sync(SyncLevel::Full).page_size(8192),
        ];
        for config in configs {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("store.db");
            let open = |config: &Config| Db::open(Some(&path), config, 1).unwrap();
            let made = set(&open(&config));
            let by_sql = set(&open(&config.clone().sql_engine(true)));
            assert_eq!(set(&open(&config)), by_sql, "{config:?}");
            assert_eq!(made, by_sql, "{config:?}");
        }
    }

    #[test]
    fn sync_level_follows_journal_mode_of_each_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        for (mode, level) in
            [(JournalMode::Wal, 1), (JournalMode::Delete, 2), (JournalMode::Wal, 1), (JournalMode::Wal, 1)]
        {
            let db = Db::open(Some(&path), &Config::new().journal_mode(mode), 1).unwrap();
            assert_eq!(db.read_number("PRAGMA synchronous").unwrap(), level, "{mode:?}");
        }
    }
}

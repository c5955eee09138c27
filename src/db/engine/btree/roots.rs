//! Where the tables of a family begin, and whether they are as this library makes them. By SQL: only when
//! the schema has changed.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rusqlite::Row;

use crate::db::connection::{Db, translate};
use crate::db::engine::sql::is_missing_table;
use crate::db::schema::{COLUMNS, Tables, quote};
use crate::error::Result;

/// The root pages of one family's tables, as they were last seen; used under the lock of the store.
#[derive(Debug, Default)]
pub(in crate::db) struct RootCache {
    /// Of which epoch and cookie; 0: none yet.
    stamp: AtomicU64,
    pages: [AtomicU32; 5],
    foreign: AtomicU32,
}

/// Root pages; 0: there is no such table.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Roots {
    pub(super) data: u32,
    pub(super) blob: u32,
    pub(super) ttl_key: u32,
    pub(super) ttl_expiry: u32,
    pub(super) written: u32,
    /// Whether a table is not as this library makes it, or has indexes, which only SQL keeps up.
    pub(super) foreign: bool,
}

impl RootCache {
    pub(super) fn get(&self, stamp: u64) -> Option<Roots> {
        if self.stamp.load(Ordering::Relaxed) != stamp {
            return None;
        }
        let [data, blob, ttl_key, ttl_expiry, written] =
            std::array::from_fn(|at| self.pages.get(at).map_or(0, |page| page.load(Ordering::Relaxed)));
        let foreign = self.foreign.load(Ordering::Relaxed) != 0;
        Some(Roots { data, blob, ttl_key, ttl_expiry, written, foreign })
    }

    fn set(&self, stamp: u64, pages: [u32; 5], foreign: bool) {
        for (cell, page) in self.pages.iter().zip(pages) {
            cell.store(page, Ordering::Relaxed);
        }
        self.foreign.store(u32::from(foreign), Ordering::Relaxed);
        self.stamp.store(stamp, Ordering::Relaxed);
    }
}

/// Looks the root pages up, in the open transaction. They count for the schema cookie it sees, in this epoch.
pub(super) fn look_up(db: &Db, tables: &Tables, epoch: u32) -> Result<()> {
    db.read_first()?; // also makes SQLite look whether its copy of the schema is the newest
    let cookie = db.read_number("PRAGMA schema_version")?;
    let stamp = u64::from(epoch) << 32 | (cookie.cast_unsigned() & 0xffff_ffff);
    let mut pages = [0; 5];
    let mut foreign = false;
    for ((page, table), (columns, key)) in pages.iter_mut().zip(tables.all()).zip(COLUMNS) {
        match root_page(db, table)? {
            Place::None => {}
            Place::Root(root) if is_ours(db, table, columns, key)? => *page = root,
            Place::Root(_) | Place::Elsewhere => {
                foreign = true;
                *page = 1; // there is something
            }
        }
    }
    tables.roots.set(stamp, pages, foreign);
    Ok(())
}
/// Where a table is.
enum Place {
    /// There is none of that name.
    None,
    Root(u32),
    /// Not in a B-tree of its own.
    Elsewhere,
}

/// Where a table begins: what SQLite's own program for reading all of it opens. Unlike a look into
/// sqlite_schema that takes no longer when there are many families.
fn root_page(db: &Db, table: &str) -> Result<Place> {
    let sql = format!("EXPLAIN SELECT * FROM {table} NOT INDEXED");
    let mut program = match db.sql()?.prepare(&sql) {
        Ok(program) => program,
        Err(e) if is_missing_table(&e) => return Ok(Place::None),
        Err(e) => return Err(translate(e)),
    };
    let mut steps = program.query([]).map_err(translate)?;
    while let Some(step) = steps.next().map_err(translate)? {
        // addr, opcode, p1, p2, ...
        if step.get_ref(1).map_err(translate)?.as_str() == Ok("OpenRead") {
            let root = step.get::<_, i64>(3).map_err(translate)?;
            return Ok(u32::try_from(root).map_or(Place::Elsewhere, Place::Root));
        }
    }
    Ok(Place::Elsewhere)
}

/// Whether a table is as `schema.rs` makes it: these columns, the first `key` of which are the primary key, in
/// ascending order of bytes; and no index beside it. A view has no key, and so is not.
fn is_ours(db: &Db, table: &str, columns: &[&str], key: usize) -> Result<bool> {
    // cid, name, type, notnull, default, place in the key, hidden
    let found = rows(db, &format!("PRAGMA table_xinfo({table})"), |row| {
        Ok((row.get::<_, String>(1)?, row.get::<_, i64>(5)? != 0, row.get::<_, i64>(6)? == 0))
    })?;
    let as_made = found.len() == columns.len()
        && found.iter().zip(columns).enumerate().all(|(at, ((name, in_key, visible), column))| {
            name == column && *visible && *in_key == (at < key.max(1))
        });
    // seq, name, unique, origin, partial
    let indexes = rows(db, &format!("PRAGMA index_list({table})"), |row| {
        Ok((row.get::<_, String>(1)?, row.get::<_, String>(3)?))
    })?;
    match indexes.as_slice() {
        _ if !as_made => Ok(false),
        [] => Ok(key == 0),
        [(name, origin)] if key > 0 && origin == "pk" => {
            // seqno, cid, name, desc, coll, key
            let parts = rows(db, &format!("PRAGMA index_xinfo({})", quote(name)), |row| {
                Ok((
                    row.get::<_, i64>(1)?,
                    row.get::<_, i64>(3)? == 0,
                    row.get::<_, String>(4)? == "BINARY",
                    row.get::<_, i64>(5)? != 0,
                ))
            })?;
            Ok(parts.len() == columns.len()
                && parts.iter().zip(0..).all(|((column, ascending, bytes, in_key), at)| {
                    *column == at && *ascending && *bytes && *in_key == (at < key as i64)
                }))
        }
        _ => Ok(false),
    }
}

fn rows<R>(db: &Db, sql: &str, row: impl FnMut(&Row<'_>) -> rusqlite::Result<R>) -> Result<Vec<R>> {
    let mut statement = db.sql()?.prepare(sql).map_err(translate)?;
    statement.query_map([], row).and_then(Iterator::collect).map_err(translate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn the_tables_of_a_family_are_known_as_ours_once_they_are_made() {
        let db = Db::open(None, &Config::new(), 1).unwrap();
        let tables = Tables::of("default");

        db.create_ttl_tables(&tables).unwrap();
        db.create_blob_table(&tables).unwrap();
        db.set_write_tracking(&tables, true, 1).unwrap();
        look_up(&db, &tables, 1).unwrap();
        let cookie = db.read_number("PRAGMA schema_version").unwrap().cast_unsigned();
        let Roots { data, blob, ttl_key, ttl_expiry, written, foreign } =
            tables.roots.get(1 << 32 | cookie).unwrap();
        assert!(!foreign && [data, blob, ttl_key, ttl_expiry, written].iter().all(|root| *root > 1));
    }

    #[test]
    fn a_table_of_another_definition_is_not_ours() {
        let db = Db::open(None, &Config::new(), 1).unwrap();
        let made = |sql: &str, columns: &[&str], key| {
            db.execute("DROP TABLE IF EXISTS t").unwrap();
            db.execute(sql).unwrap();
            is_ours(&db, "t", columns, key).unwrap()
        };
        assert!(made("CREATE TABLE t(key BLOB PRIMARY KEY, e INTEGER) WITHOUT ROWID", &["key", "e"], 1));
        assert!(made("CREATE TABLE t(id INTEGER PRIMARY KEY, value BLOB)", &["id", "value"], 0));
        for sql in [
            "CREATE TABLE t(key BLOB PRIMARY KEY, e INTEGER)",
            "CREATE TABLE t(key BLOB PRIMARY KEY DESC, e INTEGER) WITHOUT ROWID",
            "CREATE TABLE t(key TEXT COLLATE NOCASE PRIMARY KEY, e INTEGER) WITHOUT ROWID",
            "CREATE TABLE t(key BLOB, e INTEGER, PRIMARY KEY(key, e)) WITHOUT ROWID",
            "CREATE TABLE t(e INTEGER, key BLOB PRIMARY KEY) WITHOUT ROWID",
            "CREATE TABLE t(key BLOB PRIMARY KEY, e INTEGER, f) WITHOUT ROWID",
            "CREATE TABLE t(key BLOB PRIMARY KEY, e INTEGER UNIQUE) WITHOUT ROWID",
            "CREATE TABLE t(key BLOB PRIMARY KEY, e AS (1)) WITHOUT ROWID",
        ] {
            assert!(!made(sql, &["key", "e"], 1), "{sql}");
        }
        assert!(!made("CREATE TABLE t(id INTEGER, value BLOB)", &["id", "value"], 0));
        db.execute(
            "CREATE VIEW v AS SELECT key, value, expire_ms, blob_id, written_ms FROM \"data:default\"",
        )
        .unwrap();
        assert!(!is_ours(&db, "v", COLUMNS[0].0, 1).unwrap());
    }
}

//! Root pages of the tables of a family, and the check that the tables have the form that this
//! library creates.
//!
//! When the schema has changed, SQLite's list of tables (sqlite_schema) is read in one pass,
//! without SQL. SQL would first read the whole list into its own memory: with thousands of families
//! that takes a hundred times as long. A table whose definition differs, word by word, from the one
//! that this library creates is examined by SQL.

use std::collections::HashMap;

use rusqlite::Row;

use super::record::{Columns, Value};
use super::scan;
use super::tree::{Order, Tree};
use crate::backend::file::connection::Db;
use crate::backend::file::error::{is_missing_table, translate};
use crate::backend::file::schema::{self, CATALOGUE, KINDS, META, Tables, quote};
use crate::error::Result;

/// Number of the root page of SQLite's list of tables.
pub(super) const LIST: u32 = 1;

/// Part before the colon in the name of the view of a family.
pub(super) const VIEW: &str = "live";

/// Content of SQLite's list of tables at one epoch and schema cookie.
#[derive(Debug, Default)]
pub(super) struct TableList {
    /// Epoch and schema cookie for which the other fields are valid; 0 if they are not valid yet.
    pub(super) stamp: u64,
    /// Whether the list was understood; otherwise the other fields are not valid.
    pub(super) is_plain: bool,
    /// Entries of the families. The key is the part of the table names after the colon, in lower
    /// case, because SQLite's names ignore ASCII case.
    families: HashMap<Box<str>, Listed>,
    /// Root page of the catalogue of families; 0 if the catalogue does not have the form that this
    /// library creates.
    pub(super) catalogue: u32,
    /// Root page of the table kvstore_meta; 0 if the table does not have the form that this library
    /// creates.
    pub(super) meta: u32,
}

/// Entries for one family in SQLite's list of tables.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listed {
    /// Root pages of the tables, in the order of [`Tables::all`]; 0 means that the table does not
    /// exist.
    pub(super) pages: [u32; 5],
    /// Rowid of the view of the family in the list; `None` if there is no view.
    pub(super) view: Option<i64>,
    /// Whether a table or view is defined in another way than by this library.
    pub(super) odd: bool,
}

impl TableList {
    pub(super) fn not_understood(stamp: u64) -> TableList {
        TableList { stamp, ..TableList::default() }
    }

    /// Reads the list in the open transaction. The texts of the file must be in UTF-8.
    pub(super) fn read(tree: &Tree, stamp: u64) -> Result<TableList> {
        let mut list = TableList { stamp, is_plain: true, ..TableList::default() };
        let (mut odd_catalogue, mut odd_meta) = (false, false);
        let mut cursor = tree.cursor(LIST, Order::Rowid, false)?;
        let mut room = tree.pages().room();
        let mut there = cursor.first()?;
        while there {
            room = room.checked_sub(1).ok_or_else(scan::in_circles)?;
            let rowid = cursor.rowid()?;
            let Some(row) = ListRow::of(cursor.record()?) else {
                return Ok(TableList::not_understood(stamp));
            };
            match row.kind {
                // Names of triggers do not conflict with those of tables, and triggers do not run
                // (`open.rs`).
                "trigger" => {}
                _ if row.is_about("kvstore_family") => {
                    odd_catalogue |= list.catalogue != 0 || !row.is_defined_as(CATALOGUE);
                    list.catalogue = row.root;
                }
                _ if row.is_about("kvstore_meta") => {
                    odd_meta |= list.meta != 0 || !row.is_defined_as(META);
                    list.meta = row.root;
                }
                _ => list.note(&row, rowid),
            }
            there = cursor.next()?;
        }
        if odd_catalogue {
            list.catalogue = 0;
        }
        if odd_meta {
            list.meta = 0;
        }
        Ok(list)
    }

    fn note(&mut self, row: &ListRow<'_>, rowid: i64) {
        // An index of another program belongs to its table. Its own name also conflicts with the
        // name of a table.
        let names = [row.name, row.table];
        for name in names.into_iter().take(if row.kind == "index" { 2 } else { 1 }) {
            let Some((kind, suffix)) = name.split_once(':') else { continue };
            let at = KINDS.iter().position(|known| known.name.eq_ignore_ascii_case(kind));
            if at.is_none() && !VIEW.eq_ignore_ascii_case(kind) {
                continue;
            }
            let listed = self.families.entry(suffix.to_ascii_lowercase().into()).or_default();
            match at.and_then(|at| Some((KINDS.get(at)?, listed.pages.get_mut(at)?))) {
                Some((known, page)) if *page == 0 && row.is_defined_as(known.definition) => *page = row.root,
                None if row.kind == "view" && listed.view.is_none() => listed.view = Some(rowid),
                _ => listed.odd = true,
            }
        }
    }

    /// Returns the entries for a family.
    pub(super) fn of(&self, tables: &Tables) -> Listed {
        self.families.get(tables.suffix.to_ascii_lowercase().as_str()).copied().unwrap_or_default()
    }

    /// Replaces the entries for a family after the list itself was changed. `stamp` is the new
    /// epoch and schema cookie.
    pub(super) fn change(&mut self, tables: &Tables, listed: Listed, stamp: u64) {
        self.families.insert(tables.suffix.to_ascii_lowercase().into(), listed);
        self.stamp = stamp;
    }
}

/// Row of SQLite's list of tables.
struct ListRow<'r> {
    kind: &'r str,
    name: &'r str,
    table: &'r str,
    root: u32,
    sql: &'r str,
}

impl<'r> ListRow<'r> {
    fn of(record: &'r [u8]) -> Option<ListRow<'r>> {
        let mut columns = Columns::of(record).ok()?;
        let text = |columns: &mut Columns<'r>| match columns.next().ok()? {
            Value::Text(text) => std::str::from_utf8(text).ok(),
            _ => None,
        };
        let (kind, name, table) = (text(&mut columns)?, text(&mut columns)?, text(&mut columns)?);
        let root = match columns.next().ok()? {
            Value::Integer(root) => u32::try_from(root).unwrap_or(0),
            _ => 0,
        };
        // The index of a constraint has no SQL text.
        let sql = text(&mut columns).unwrap_or_default();
        Some(ListRow { kind, name, table, root, sql })
    }

    /// Returns `true` if the row is for the table or view of this name, or for an index of that
    /// table.
    fn is_about(&self, name: &str) -> bool {
        [self.name, self.table].iter().any(|named| named.eq_ignore_ascii_case(name))
    }

    /// Returns `true` if the row is for a table with this definition, word by word.
    fn is_defined_as(&self, definition: &str) -> bool {
        self.kind == "table"
            && self.root > LIST
            && self.name == self.table
            && schema::is_defined_as(self.sql, self.name, definition)
    }
}

/// Examines the tables of one family by SQL, in the open transaction. The result is valid for the
/// schema cookie that the transaction sees, in this epoch.
pub(super) fn look_closely(db: &Db, tables: &Tables, epoch: u32) -> Result<()> {
    // A read by SQL makes SQLite check whether its copy of the schema is current.
    db.read_number("SELECT 1 FROM sqlite_schema LIMIT 1")?;
    let cookie = db.read_number("PRAGMA schema_version")?;
    let stamp = u64::from(epoch) << 32 | (cookie.cast_unsigned() & 0xffff_ffff);
    let mut pages = [0; 5];
    let mut foreign = false;
    for ((page, table), kind) in pages.iter_mut().zip(tables.all()).zip(KINDS) {
        match root_page(db, table)? {
            Place::None => {}
            Place::Root(root) if is_ours(db, table, kind.columns, kind.key)? => *page = root,
            Place::Root(_) | Place::Elsewhere => {
                foreign = true;
                // Any page number other than 0: a table or view of this name exists.
                *page = 1;
            }
        }
    }
    tables.roots.set(stamp, pages, foreign);
    Ok(())
}

/// Location of the rows of a table.
enum Place {
    /// There is no table of that name.
    None,
    Root(u32),
    /// The rows are not in a B-tree of their own.
    Elsewhere,
}

/// Returns the root page of a table: the page that SQLite's own program for reading the whole table
/// opens. Unlike a query of sqlite_schema, this does not take longer if there are many families.
fn root_page(db: &Db, table: &str) -> Result<Place> {
    let sql = format!("EXPLAIN SELECT * FROM {table} NOT INDEXED");
    let mut program = match db.switch_to_sql()?.prepare(&sql) {
        Ok(program) => program,
        Err(e) if is_missing_table(&e) => return Ok(Place::None),
        Err(e) => return Err(translate(e)),
    };
    let mut steps = program.query([]).map_err(translate)?;
    while let Some(step) = steps.next().map_err(translate)? {
        // Columns of the result: addr, opcode, p1, p2, ...
        if step.get_ref(1).map_err(translate)?.as_str() == Ok("OpenRead") {
            let root = step.get::<_, i64>(3).map_err(translate)?;
            return Ok(u32::try_from(root).map_or(Place::Elsewhere, Place::Root));
        }
    }
    Ok(Place::Elsewhere)
}

/// Returns `true` if a table has the form that `schema.rs` creates.
///
/// It must have these columns. The first `key` columns are the primary key, in ascending byte
/// order. No other index may exist. A view has no key, so the result for a view is `false`.
fn is_ours(db: &Db, table: &str, columns: &[&str], key: usize) -> Result<bool> {
    // Columns of the result: cid, name, type, notnull, default, position in the key, hidden.
    let found = rows(db, &format!("PRAGMA table_xinfo({table})"), |row| {
        Ok((row.get::<_, String>(1)?, row.get::<_, i64>(5)? != 0, row.get::<_, i64>(6)? == 0))
    })?;
    let as_made = found.len() == columns.len()
        && found.iter().zip(columns).enumerate().all(|(at, ((name, in_key, visible), column))| {
            name == column && *visible && *in_key == (at < key.max(1))
        });
    // Columns of the result: seq, name, unique, origin, partial.
    let indexes = rows(db, &format!("PRAGMA index_list({table})"), |row| {
        Ok((row.get::<_, String>(1)?, row.get::<_, String>(3)?))
    })?;
    match indexes.as_slice() {
        _ if !as_made => Ok(false),
        [] => Ok(key == 0),
        [(name, origin)] if key > 0 && origin == "pk" => {
            // Columns of the result: seqno, cid, name, desc, coll, key.
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
    let mut statement = db.switch_to_sql()?.prepare(sql).map_err(translate)?;
    statement.query_map([], row).and_then(Iterator::collect).map_err(translate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::file::engine::btree::root_cache::Roots;
    use crate::config::Config;

    #[test]
    fn new_family_tables_are_recognized_with_all_roots() {
        let db = Db::open(None, &Config::new(), 1).unwrap();
        let tables = Tables::of("default");

        db.create_ttl_tables(&tables).unwrap();
        db.create_blob_table(&tables).unwrap();
        db.set_write_tracking(&tables, true, 1).unwrap();
        look_closely(&db, &tables, 1).unwrap();
        let cookie = db.read_number("PRAGMA schema_version").unwrap().cast_unsigned();
        let Roots { data, blob, ttl_key, ttl_expiry, written, foreign } =
            tables.roots.get(1 << 32 | cookie).unwrap();
        assert!(!foreign && [data, blob, ttl_key, ttl_expiry, written].iter().all(|root| *root > 1));
    }

    #[test]
    fn table_with_different_definition_is_foreign() {
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
        assert!(!is_ours(&db, "v", KINDS[0].columns, 1).unwrap());
    }
}

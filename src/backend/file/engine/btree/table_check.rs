//! Examination of a family's tables by SQL: their root pages, and whether they have the form that
//! this library creates.

use rusqlite::Row;

use crate::backend::file::connection::Db;
use crate::backend::file::error::{is_missing_table, translate};
use crate::backend::file::schema::{KINDS, Tables, quote};
use crate::error::Result;

/// Finds the root pages of the tables of one family by SQL, in the open transaction, and checks the
/// form of each table. Stores the result in `tables.roots`, for `epoch` and the schema cookie that
/// the transaction sees.
pub(super) fn look_closely(db: &Db, tables: &Tables, epoch: u32) -> Result<()> {
    db.read_schema()?;
    let cookie = db.read_number("PRAGMA schema_version")?;
    let stamp = u64::from(epoch) << 32 | (cookie.cast_unsigned() & 0xffff_ffff);
    let mut pages = [0; 5];
    let mut foreign = false;
    for ((page, table), kind) in pages.iter_mut().zip(tables.all()).zip(KINDS) {
        match root_page(db, table)? {
            RootOfTable::None => {}
            RootOfTable::Root(root) if is_ours(db, table, kind.columns, kind.key)? => *page = root,
            RootOfTable::Root(_) | RootOfTable::Elsewhere => {
                foreign = true;
                // Any page number other than 0: a table or view of this name exists.
                *page = 1;
            }
        }
    }
    tables.roots.set(stamp, pages, foreign);
    Ok(())
}

/// Result of the search for the root page of a table.
enum RootOfTable {
    /// There is no table of that name.
    None,
    /// Number of the root page.
    Root(u32),
    /// A table of that name exists, but its rows are not in a B-tree of the file: for example a
    /// virtual table.
    Elsewhere,
}

/// Returns the root page of a table: the page that the bytecode program of a full table scan opens
/// (`OpenRead`). Unlike a query of sqlite_schema, EXPLAIN of such a scan does not take longer if
/// there are many families.
fn root_page(db: &Db, table: &str) -> Result<RootOfTable> {
    let sql = format!("EXPLAIN SELECT * FROM {table} NOT INDEXED");
    let mut program = match db.switch_to_sql()?.prepare(&sql) {
        Ok(program) => program,
        Err(e) if is_missing_table(&e) => return Ok(RootOfTable::None),
        Err(e) => return Err(translate(e)),
    };
    let mut steps = program.query([]).map_err(translate)?;
    while let Some(step) = steps.next().map_err(translate)? {
        // Columns of the result: addr, opcode, p1, p2, ...
        if step.get_ref(1).map_err(translate)?.as_str() == Ok("OpenRead") {
            let root = step.get::<_, i64>(3).map_err(translate)?;
            return Ok(u32::try_from(root).map_or(RootOfTable::Elsewhere, RootOfTable::Root));
        }
    }
    Ok(RootOfTable::Elsewhere)
}

/// Returns `true` if a table has the form that `schema.rs` creates.
///
/// The table must have exactly the columns `columns`. The first `key` of them are the primary key,
/// in ascending byte order; if `key` is 0, the first column is the rowid. No other index may exist.
/// A view has no primary key, so the result for a view is `false`.
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

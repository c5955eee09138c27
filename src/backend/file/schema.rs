//! Tables of a store: their names, their definitions, and the functions that create and change
//! them.
//!
//! The file format is described in `docs/reference/file-format.md`. Only this file defines it in
//! SQL. The statements on rows are in `engine/sql.rs`.

use std::fmt::Write as _;
use std::sync::OnceLock;

use rusqlite::Connection;

use super::engine::Statements;
use super::engine::btree::RootCache;
use super::error::{damaged, is_missing_table, translate};
use crate::error::{Error, Result};
use crate::expiry::MAX_DEFAULT_TTL_MS;
use crate::hint::Hint;

/// Application id that marks a SQLite file as a store ("KVS1").
pub(super) const APPLICATION_ID: i32 = 0x4B56_5331;
/// Version of the file format of new stores, which the file contains as its `PRAGMA user_version`.
pub(crate) const FORMAT_VERSION: i32 = 1;
/// Name of the family that every store has.
pub(crate) const DEFAULT_FAMILY: &str = "default";

/// Names of the tables and the view of one family, as quoted SQL identifiers, with the SQL
/// statements on these tables and a cache of their root pages.
#[derive(Debug)]
pub(crate) struct Tables {
    family: String,
    /// Part of the unquoted table names after the colon, as `table_suffix` makes it from the family
    /// name.
    pub(super) suffix: String,
    pub(super) data: String,
    pub(super) blob: String,
    pub(super) ttl_key: String,
    pub(super) ttl_expiry: String,
    pub(super) written: String,
    pub(super) live: String,
    /// SQL texts of the statements on the tables. They are created at their first use, because they
    /// take several kilobytes.
    statements: OnceLock<Box<Statements>>,
    pub(super) roots: RootCache,
}

impl Tables {
    pub(crate) fn of(family: &str) -> Tables {
        let suffix = table_suffix(family);
        let quoted = |kind: &str| {
            let mut name = String::with_capacity(kind.len() + suffix.len() + 3);
            name.extend(["\"", kind, ":"]);
            for part in suffix.split_inclusive('"') {
                name.push_str(part);
                if part.ends_with('"') {
                    name.push('"');
                }
            }
            name.push('"');
            name
        };
        Tables {
            family: family.to_owned(),
            data: quoted(DATA.name),
            blob: quoted(BLOB.name),
            ttl_key: quoted(TTL_KEY.name),
            ttl_expiry: quoted(TTL_EXPIRY.name),
            written: quoted(WRITTEN.name),
            live: quoted("live"),
            statements: OnceLock::new(),
            roots: RootCache::default(),
            suffix,
        }
    }

    pub(super) fn statements(&self) -> &Statements {
        self.statements.get_or_init(|| Box::new(Statements::of(self)))
    }

    pub(crate) fn family(&self) -> &str {
        &self.family
    }

    /// Returns the error for an index whose entry a scan shows, but a lookup does not find.
    pub(super) fn index_out_of_order(&self) -> Error {
        damaged(format!(
            "a time index of family \"{}\" is out of order: an entry that a scan shows cannot be looked up",
            self.family()
        ))
    }

    /// Returns the error for a scan of the data table that comes back to an earlier row and would
    /// never end.
    #[cold]
    pub(crate) fn out_of_order(&self) -> Error {
        damaged(format!("the rows of family \"{}\" are out of order", self.family))
    }

    /// Returns the quoted names of all tables that a family can have, with the data table first.
    pub(super) fn all(&self) -> [&str; 5] {
        [&self.data, &self.blob, &self.ttl_key, &self.ttl_expiry, &self.written]
    }
}

/// Returns the part of a table's name after the colon: the family name with `^` before each
/// upper-case ASCII letter and before `^` itself. SQLite's names ignore ASCII case; family names do
/// not.
pub(super) fn table_suffix(family: &str) -> String {
    let mut suffix = String::with_capacity(family.len() + 4);
    for c in family.chars() {
        if c == '^' || c.is_ascii_uppercase() {
            suffix.push('^');
        }
        suffix.push(c);
    }
    suffix
}

/// Returns the unquoted name of a table of a family, or of its view. `kind` is the part before the
/// colon: the `name` of a [`Kind`], or `live` for the view.
pub(super) fn table_name(kind: &str, family: &str) -> String {
    format!("{kind}:{}", table_suffix(family))
}

/// Returns a name as a quoted SQL identifier.
pub(super) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Definition of the table kvstore_family, the catalogue of families: the text of its CREATE TABLE
/// statement after the table name.
pub(super) const CATALOGUE: &str = "(name TEXT PRIMARY KEY, created_ms INTEGER, default_ttl_ms INTEGER, \
     track_writes INTEGER) WITHOUT ROWID";

/// Definition of the table kvstore_meta, which contains facts about the store, for example its size
/// limit: the text of its CREATE TABLE statement after the table name.
pub(super) const META: &str = "(name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID";

/// Returns `true` if `sql`, a text in SQLite's list of tables, defines a table with this name and
/// this definition. The definitions are compared word by word; the amount of white space does not
/// matter.
pub(super) fn is_defined_as(sql: &str, name: &str, definition: &str) -> bool {
    let given = sql.strip_prefix("CREATE TABLE ").and_then(|rest| after_name(rest, name));
    given.is_some_and(|given| given.split_ascii_whitespace().eq(definition.split_ascii_whitespace()))
}

/// Returns the text that follows `name` in `sql`; `None` if `sql` does not begin with `name`. The
/// name may be quoted there.
fn after_name<'s>(sql: &'s str, name: &str) -> Option<&'s str> {
    let Some(mut rest) = sql.strip_prefix('"') else { return sql.strip_prefix(name) };
    for part in name.split_inclusive('"') {
        rest = rest.strip_prefix(part)?;
        if part.ends_with('"') {
            rest = rest.strip_prefix('"')?; // doubled
        }
    }
    rest.strip_prefix('"')
}

/// Creates the two tables that every store has and the default family, and sets the application id
/// and the format version of the file, in the open transaction.
pub(super) fn create_store(conn: &Connection, now_ms: i64) -> Result<()> {
    run(
        conn,
        &format!(
            "CREATE TABLE kvstore_meta{META};
             CREATE TABLE kvstore_family{CATALOGUE};
             INSERT INTO kvstore_meta VALUES('created_by', CAST('kvstore {}' AS BLOB));
             PRAGMA application_id = {APPLICATION_ID};
             PRAGMA user_version = {FORMAT_VERSION};",
            env!("CARGO_PKG_VERSION"),
        ),
    )?;
    create_family(conn, &Tables::of(DEFAULT_FAMILY), now_ms)
}

/// Adds a family to the catalogue and creates its data table and view.
pub(super) fn create_family(conn: &Connection, tables: &Tables, now_ms: i64) -> Result<()> {
    conn.prepare_cached("INSERT INTO kvstore_family VALUES(?1, ?2, 0, 0)")
        .and_then(|mut s| s.execute((tables.family(), now_ms)))
        .map_err(translate)?;
    run(conn, &format!("{}; {}", data_table(tables), replace_live_view(tables, false)))
}

pub(super) fn data_table(tables: &Tables) -> String {
    format!("CREATE TABLE {}{}", tables.data, DATA.definition)
}

/// Description of one kind of table that a family can have: of the data table, for example.
pub(super) struct Kind {
    /// Part of the table name before the colon, for example `data`.
    pub(super) name: &'static str,
    pub(super) columns: &'static [&'static str],
    /// Number of columns of the primary key, which are the first ones, in a table WITHOUT ROWID; 0
    /// for a table whose first column is the rowid.
    pub(super) key: usize,
    /// Definition of the table: the text of its CREATE TABLE statement after the table name.
    pub(super) definition: &'static str,
}

pub(super) const DATA: Kind = Kind {
    name: "data",
    columns: &["key", "value", "expire_ms", "blob_id", "written_ms"],
    key: 1,
    definition: "(key BLOB PRIMARY KEY, value BLOB, expire_ms INTEGER, blob_id INTEGER, \
                 written_ms INTEGER) WITHOUT ROWID",
};
pub(super) const BLOB: Kind = Kind {
    name: "blob",
    columns: &["id", "value"],
    key: 0,
    definition: "(id INTEGER PRIMARY KEY, value BLOB)",
};
pub(super) const TTL_KEY: Kind = Kind {
    name: "ttl_key",
    columns: &["key", "expire_ms"],
    key: 1,
    definition: "(key BLOB PRIMARY KEY, expire_ms INTEGER NOT NULL) WITHOUT ROWID",
};
pub(super) const TTL_EXPIRY: Kind = Kind {
    name: "ttl_expiry",
    columns: &["expire_ms", "key"],
    key: 2,
    definition: "(expire_ms INTEGER NOT NULL, key BLOB NOT NULL, PRIMARY KEY(expire_ms, key)) WITHOUT ROWID",
};
pub(super) const WRITTEN: Kind = Kind {
    name: "written",
    columns: &["written_ms", "key"],
    key: 2,
    definition: "(written_ms INTEGER, key BLOB, PRIMARY KEY(written_ms, key)) WITHOUT ROWID",
};

/// All kinds of tables that a family can have, in the order in which [`Tables::all`] returns their
/// names.
pub(super) const KINDS: [&Kind; 5] = [&DATA, &BLOB, &TTL_KEY, &TTL_EXPIRY, &WRITTEN];

/// Creates the key index and the expiry index of a family, unless they exist.
pub(super) fn create_ttl_tables(conn: &Connection, tables: &Tables) -> Result<()> {
    run(
        conn,
        &format!(
            "CREATE TABLE IF NOT EXISTS {}{}; CREATE TABLE IF NOT EXISTS {}{};",
            tables.ttl_key, TTL_KEY.definition, tables.ttl_expiry, TTL_EXPIRY.definition
        ),
    )
}

/// Creates the table of large values of a family, unless it exists, and replaces the view of live
/// rows by one that includes the large values.
pub(super) fn create_blob_table(conn: &Connection, tables: &Tables) -> Result<()> {
    run(
        conn,
        &format!(
            "CREATE TABLE IF NOT EXISTS {}{}; {}",
            tables.blob,
            BLOB.definition,
            replace_live_view(tables, true)
        ),
    )
}

/// Settings of a family, as the catalogue contains them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Default TTL, in milliseconds; 0 if there is none.
    pub(crate) default_ttl_ms: i64,
    /// Whether the family has write tracking: each row has a write time, and an entry in the index
    /// of write times.
    pub(crate) track_writes: bool,
}

impl Settings {
    /// Converts the numbers of the catalogue to settings; `None` stands for a value that is not an
    /// integer.
    ///
    /// A default TTL that is out of range counts as no default TTL. The integrity check reports
    /// such values ([`settings_of_the_catalogue`]).
    pub(super) fn of(default_ttl_ms: Option<i64>, track_writes: Option<i64>) -> Settings {
        Settings {
            default_ttl_ms: default_ttl_ms.filter(|ttl| (0..=MAX_DEFAULT_TTL_MS).contains(ttl)).unwrap_or(0),
            track_writes: track_writes.unwrap_or(0) != 0,
        }
    }
}

/// Check of one column of the catalogue of families: which values are invalid, and which value a
/// repair writes instead of them.
pub(super) struct Setting {
    pub(super) column: &'static str,
    /// SQL condition on a row of the catalogue; true if the column has an invalid value.
    pub(super) is_wrong: String,
    /// Description of the valid values, for messages.
    pub(super) should_be: &'static str,
    /// SQL expression for the value that a repair writes instead of an invalid one; `None` stands
    /// for the current time.
    pub(super) instead: Option<&'static str>,
}

/// Returns the checks of the columns of the catalogue of families: the creation time and the
/// settings of a family.
pub(super) fn settings_of_the_catalogue() -> [Setting; 3] {
    let column = |column, is_wrong, should_be, instead| Setting { column, is_wrong, should_be, instead };
    [
        column("created_ms", "typeof(created_ms) <> 'integer'".to_owned(), "a time in milliseconds", None),
        column(
            "default_ttl_ms",
            format!(
                "(typeof(default_ttl_ms) <> 'integer' OR default_ttl_ms NOT BETWEEN 0 AND {MAX_DEFAULT_TTL_MS})"
            ),
            "a number of milliseconds from 0 (none) to those of 20 years",
            Some("0"),
        ),
        column(
            "track_writes",
            "(typeof(track_writes) <> 'integer' OR track_writes NOT IN (0, 1))".to_owned(),
            "0 or 1",
            Some("typeof(track_writes) = 'integer' AND track_writes <> 0"),
        ),
    ]
}

/// Returns the settings of a family; `None` if there is no such family.
pub(super) fn settings(conn: &Connection, family: &str) -> Result<Option<Settings>> {
    let mut statement = conn
        .prepare_cached("SELECT default_ttl_ms, track_writes FROM kvstore_family WHERE name = ?1")
        .map_err(translate)?;
    let mut rows = statement.query([family]).map_err(translate)?;
    let Some(row) = rows.next().map_err(translate)? else { return Ok(None) };
    let integer = |column: usize| row.get_ref(column).map(|value| value.as_i64().ok()).map_err(translate);
    Ok(Some(Settings::of(integer(0)?, integer(1)?)))
}

/// Returns the creation time of a family; `None` if there is no such family.
pub(super) fn created_ms(conn: &Connection, family: &str) -> Result<Option<i64>> {
    let mut statement =
        conn.prepare_cached("SELECT created_ms FROM kvstore_family WHERE name = ?1").map_err(translate)?;
    let mut rows = statement.query([family]).map_err(translate)?;
    let Some(row) = rows.next().map_err(translate)? else { return Ok(None) };
    // A value that is not an integer counts as 0; the integrity check reports it.
    row.get_ref(0).map(|value| Some(value.as_i64().unwrap_or(0))).map_err(translate)
}

/// Returns the integers that the table kvstore_meta contains under these names; `None` for a name
/// that it does not contain, or that has another value than an integer.
pub(super) fn meta<const N: usize>(conn: &Connection, names: [&str; N]) -> Result<[Option<i64>; N]> {
    let mut found = [None; N];
    let mut statement = match conn.prepare_cached("SELECT value FROM kvstore_meta WHERE name = ?1") {
        Err(e) if is_missing_table(&e) => return Ok(found),
        prepared => prepared.map_err(translate)?,
    };
    for (number, name) in found.iter_mut().zip(names) {
        let mut rows = statement.query([name]).map_err(translate)?;
        if let Some(row) = rows.next().map_err(translate)? {
            *number = row.get_ref(0).map_err(translate)?.as_i64().ok();
        }
    }
    Ok(found)
}

/// Sets a number in kvstore_meta; `None` removes it.
pub(super) fn set_meta(conn: &Connection, name: &str, number: Option<i64>) -> Result<()> {
    let done = match number {
        Some(number) => conn
            .prepare_cached(
                "INSERT INTO kvstore_meta VALUES(?1, ?2) ON CONFLICT(name) DO UPDATE SET value = excluded.value",
            )
            .and_then(|mut s| s.execute((name, number))),
        None => conn
            .prepare_cached("DELETE FROM kvstore_meta WHERE name = ?1")
            .and_then(|mut s| s.execute([name])),
    };
    done.map_err(translate).map(drop)
}

pub(super) fn set_default_ttl(conn: &Connection, family: &str, ttl_ms: i64) -> Result<()> {
    conn.prepare_cached("UPDATE kvstore_family SET default_ttl_ms = ?2 WHERE name = ?1")
        .and_then(|mut s| s.execute((family, ttl_ms)))
        .map_err(translate)
        .map(drop)
}

/// Turns on write tracking of a family. Existing rows get the write time `now_ms`.
pub(super) fn track_writes(conn: &Connection, tables: &Tables, now_ms: i64) -> Result<()> {
    let Tables { data, written, .. } = tables;
    run(
        conn,
        &format!(
            "{};
             DELETE FROM {written};
             UPDATE {data} SET written_ms = {now_ms};
             INSERT INTO {written} SELECT {now_ms}, key FROM {data};",
            written_table(tables)
        ),
    )?;
    set_track_writes(conn, tables, true)
}

pub(super) fn written_table(tables: &Tables) -> String {
    format!("CREATE TABLE IF NOT EXISTS {}{}", tables.written, WRITTEN.definition)
}

/// Turns off write tracking of a family and deletes the write times.
pub(super) fn forget_writes(conn: &Connection, tables: &Tables) -> Result<()> {
    let Tables { data, written, .. } = tables;
    // The table is dropped first, so that the UPDATE can use the pages that this frees.
    run(
        conn,
        &format!(
            "DROP TABLE IF EXISTS {written};
             UPDATE {data} SET written_ms = NULL WHERE written_ms IS NOT NULL;"
        ),
    )?;
    set_track_writes(conn, tables, false)
}

pub(super) fn set_track_writes(conn: &Connection, tables: &Tables, on: bool) -> Result<()> {
    conn.prepare_cached("UPDATE kvstore_family SET track_writes = ?2 WHERE name = ?1")
        .and_then(|mut s| s.execute((tables.family(), on)))
        .map_err(translate)
        .map(drop)
}

/// Removes a family with all its tables. Returns `false` if the family does not exist.
pub(super) fn drop_family(conn: &Connection, tables: &Tables) -> Result<bool> {
    let removed = conn
        .prepare_cached("DELETE FROM kvstore_family WHERE name = ?1")
        .and_then(|mut s| s.execute([tables.family()]))
        .map_err(translate)?;
    if removed == 0 {
        return Ok(false);
    }
    let mut sql = format!("DROP VIEW IF EXISTS {};", tables.live);
    for table in tables.all() {
        let _ = write!(sql, "DROP TABLE IF EXISTS {table};"); // writing to a String cannot fail
    }
    run(conn, &sql)?;
    Ok(true)
}

/// Returns the error of a call on a family that another handle has dropped.
pub(super) fn no_longer_exists(tables: &Tables) -> Error {
    Error::invalid(format!("family \"{}\" was dropped", tables.family())).with_hint(Hint::CreateFamily)
}

/// Returns `true` if a table or view with this unquoted name exists.
pub(super) fn exists(conn: &Connection, table: &str) -> Result<bool> {
    conn.prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = ?1")
        .and_then(|mut s| s.exists([table]))
        .map_err(translate)
}

pub(super) fn family_exists(conn: &Connection, family: &str) -> Result<bool> {
    conn.prepare_cached("SELECT 1 FROM kvstore_family WHERE name = ?1")
        .and_then(|mut s| s.exists([family]))
        .map_err(translate)
}

/// Returns the names of all families, including the default one, in byte order.
pub(super) fn families(conn: &Connection) -> Result<Vec<String>> {
    let mut statement =
        conn.prepare_cached("SELECT name FROM kvstore_family ORDER BY name").map_err(translate)?;
    let mut rows = statement.raw_query();
    let mut names = Vec::new();
    while let Some(row) = rows.next().map_err(translate)? {
        match row.get_ref(0).map_err(translate)?.as_str() {
            Ok(name) => names.push(name.to_owned()),
            Err(_) => return Err(no_name()),
        }
    }
    Ok(names)
}

fn replace_live_view(tables: &Tables, with_blobs: bool) -> String {
    format!("DROP VIEW IF EXISTS {}; {};", tables.live, live_view(tables, with_blobs))
}

pub(super) fn no_name() -> Error {
    damaged("a name in kvstore_family is not UTF-8 text")
}

/// Returns the SQL text that creates the view of the live rows of a family. With `with_blobs`, the
/// view includes the values in the table of large values, which must exist. `julianday` works in
/// every SQLite since 2003 and is exact to the millisecond.
pub(super) fn live_view(tables: &Tables, with_blobs: bool) -> String {
    let Tables { data, blob, live, .. } = tables;
    let (value, join) = if with_blobs {
        ("coalesce(d.value, b.value)", format!(" LEFT JOIN {blob} AS b ON b.id = d.blob_id"))
    } else {
        ("d.value", String::new())
    };
    format!(
        "CREATE VIEW {live} AS SELECT d.key AS key, {value} AS value, d.expire_ms AS expire_ms FROM {data} AS d{join} \
         WHERE d.expire_ms IS NULL OR d.expire_ms > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"
    )
}

fn run(conn: &Connection, sql: &str) -> Result<()> {
    conn.execute_batch(sql).map_err(translate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differing_in_case_get_different_tables() {
        let names = ["users", "Users", "USERS", "^users", "^^users", "uSers", "u^sers"];
        for (i, a) in names.iter().enumerate() {
            for b in names.iter().skip(i + 1) {
                assert!(!table_suffix(a).eq_ignore_ascii_case(&table_suffix(b)), "{a} {b}");
            }
        }
        assert_eq!(table_suffix("sessions:v1"), "sessions:v1");
        assert_eq!(table_suffix("userID"), "user^I^D");
    }

    #[test]
    fn quotes_in_name_are_escaped() {
        assert_eq!(quote("data:a\"b"), "\"data:a\"\"b\"");
    }
}

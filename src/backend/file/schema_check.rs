//! Comparison of the tables and views with those that `schema.rs` creates. The integrity check
//! reports differences, and the repair creates the tables and views again. The rows of the tables
//! are not examined here.

use std::collections::HashMap;

use rusqlite::Connection;

use super::error::translate;
use super::schema::{
    self, BLOB, CATALOGUE, DATA, KINDS, Kind, META, Tables, is_defined_as, quote, table_name,
};
use crate::error::Result;

/// Tables and views of the file, as `sqlite_schema` lists them. The list is read once, because a
/// query for one of its entries would read all of it.
pub(super) struct Listed {
    /// By name in lower case, because SQLite ignores the case of names.
    lines: HashMap<String, Line>,
}

/// Table or view of the file, as `sqlite_schema` lists it.
struct Line {
    name: String,
    is_table: bool,
    /// SQL text that created the table or view.
    sql: String,
}

/// Result of comparing a table with the definition that this library creates it with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Missing,
    /// The table has the form that this library creates, or an equivalent one.
    Right,
    /// The table has all columns, but differs in another way: for example in its key.
    Wrong,
    /// A column is missing, or a view has this name.
    Other,
}

impl Form {
    /// Returns `true` if the table has all columns, so that its rows can be read.
    pub(super) fn has_columns(self) -> bool {
        matches!(self, Form::Right | Form::Wrong)
    }
}

/// Name, columns and definition of a table that every store has.
pub(super) struct OfTheStore {
    pub(super) name: &'static str,
    pub(super) columns: &'static [&'static str],
    pub(super) definition: &'static str,
}

/// Tables that every store has: the catalogue of families, and the facts about the store.
pub(super) const FAMILIES: OfTheStore = OfTheStore {
    name: "kvstore_family",
    columns: &["name", "created_ms", "default_ttl_ms", "track_writes"],
    definition: CATALOGUE,
};
pub(super) const FACTS: OfTheStore =
    OfTheStore { name: "kvstore_meta", columns: &["name", "value"], definition: META };

impl Listed {
    pub(super) fn read(conn: &Connection) -> Result<Listed> {
        let mut statement = conn
            .prepare("SELECT name, type, sql FROM sqlite_schema WHERE type IN ('table', 'view')")
            .map_err(translate)?;
        let mut rows = statement.raw_query();
        let mut lines = HashMap::new();
        while let Some(row) = rows.next().map_err(translate)? {
            let text = |column: usize| {
                let value = row.get_ref(column).map_err(translate)?;
                Ok(value
                    .as_bytes()
                    .map(|text| String::from_utf8_lossy(text).into_owned())
                    .unwrap_or_default())
            };
            let (name, kind, sql) = (text(0)?, text(1)?, text(2)?);
            lines.insert(name.to_ascii_lowercase(), Line { name, is_table: kind == "table", sql });
        }
        Ok(Listed { lines })
    }

    /// Returns `true` if a table or view of this name exists.
    pub(super) fn has(&self, name: &str) -> bool {
        self.line(name).is_some()
    }

    fn line(&self, name: &str) -> Option<&Line> {
        self.lines.get(&name.to_ascii_lowercase())
    }

    pub(super) fn is_table(&self, name: &str) -> bool {
        self.line(name).is_some_and(|line| line.is_table)
    }

    pub(super) fn of_the_store(&self, conn: &Connection, table: &OfTheStore) -> Result<Form> {
        self.form(conn, table.name, table.columns, table.definition, |_| false)
    }

    /// Returns the form of the table of this kind of a family.
    ///
    /// SQL can use a data table of another form if its key is right: it may have further columns,
    /// and its rows exist nowhere else.
    pub(super) fn of_family(&self, conn: &Connection, kind: &Kind, family: &str) -> Result<Form> {
        let works = |columns: &[(String, u32)]| {
            kind.name == DATA.name
                && columns.iter().all(|(column, place)| (*place > 0) == column.eq_ignore_ascii_case("key"))
        };
        self.form(conn, &table_name(kind.name, family), kind.columns, kind.definition, works)
    }

    fn form(
        &self,
        conn: &Connection,
        name: &str,
        columns: &[&str],
        definition: &str,
        works: impl Fn(&[(String, u32)]) -> bool,
    ) -> Result<Form> {
        let Some(line) = self.line(name) else { return Ok(Form::Missing) };
        if !line.is_table {
            return Ok(Form::Other);
        }
        if is_defined_as(&line.sql, name, definition) {
            return Ok(Form::Right);
        }
        let found = columns_of(conn, name)?;
        let has = |wanted: &&str| found.iter().any(|(column, _)| column.eq_ignore_ascii_case(wanted));
        Ok(match columns.iter().all(has) {
            false => Form::Other,
            true if works(&found) => Form::Right,
            true => Form::Wrong,
        })
    }

    /// Returns `true` if the family has the view of live rows that belongs to its tables.
    pub(super) fn has_live_view(&self, tables: &Tables) -> bool {
        self.is_live_view(tables, self.is_table(&table_name(BLOB.name, tables.family())))
    }

    /// Returns `true` if the family has the view of live rows as this library creates it.
    /// `with_blobs` is `true` if the family has a table of large values, which the view then
    /// includes.
    pub(super) fn is_live_view(&self, tables: &Tables, with_blobs: bool) -> bool {
        self.line(&table_name("live", tables.family()))
            .is_some_and(|line| !line.is_table && line.sql == schema::live_view(tables, with_blobs))
    }

    /// Returns the tables and views whose names have the form of the names that this library uses,
    /// sorted by name. The flag is `true` for a table, `false` for a view.
    pub(super) fn named_like_ours(&self) -> Vec<(&str, bool)> {
        let is_ours = |name: &str| match name.split_once(':') {
            Some((kind, _)) => kind == "live" || KINDS.iter().any(|known| known.name == kind),
            None => false,
        };
        let mut named: Vec<(&str, bool)> = self
            .lines
            .values()
            .map(|line| (line.name.as_str(), line.is_table))
            .filter(|(name, _)| is_ours(name) || name.starts_with("kvstore_"))
            .collect();
        named.sort_unstable();
        named
    }
}

/// Returns the columns of a table, each with its position in the primary key, from 1; 0 if it is
/// not in the key. The result is empty if there is no such table.
pub(super) fn columns_of(conn: &Connection, table: &str) -> Result<Vec<(String, u32)>> {
    // Columns of the result: cid, name, type, notnull, default, position in the key, hidden.
    conn.prepare(&format!("PRAGMA table_xinfo({})", quote(table)))
        .and_then(|mut s| s.query_map([], |row| Ok((row.get(1)?, row.get(5)?)))?.collect())
        .map_err(translate)
}

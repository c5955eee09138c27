//! Root pages of the tables of a family, from SQLite's list of tables.
//!
//! When the schema has changed, SQLite's list of tables (sqlite_schema) is read in one pass,
//! without SQL. SQL would first read the whole list into its own memory: with thousands of families
//! that takes a hundred times as long. A table whose definition differs, word by word, from the one
//! that this library creates is examined by SQL (`table_check.rs`).

use std::collections::HashMap;

use super::record::{Columns, Value};
use super::scan;
use super::tree::{Order, Tree};
use crate::backend::file::schema::{self, CATALOGUE, KINDS, META, Tables};
use crate::error::Result;
use crate::memory::reserve;

/// Number of the root page of sqlite_schema, SQLite's list of tables.
pub(super) const LIST: u32 = 1;

/// Part before the colon in the name of the view of a family.
pub(super) const VIEW: &str = "live";

/// Content of SQLite's list of tables at one epoch and schema cookie.
#[derive(Debug, Default)]
pub(super) struct TableList {
    /// Epoch (upper 32 bits) and schema cookie (lower 32 bits) for which the other fields are
    /// valid; 0 if they are not valid yet.
    pub(super) stamp: u64,
    /// Whether every row of the list could be decoded and agrees with its SQL text. If not, only
    /// `stamp` is valid.
    pub(super) is_plain: bool,
    /// Whether two tables or indexes have the same root page, which happens only in a damaged file.
    pub(super) shares_a_root: bool,
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
    /// Whether a table, index or view whose name belongs to this family differs from what this
    /// library creates.
    pub(super) odd: bool,
}

impl TableList {
    /// Returns the content for a list that SQL must read. SQL fails if the list is damaged.
    pub(super) fn not_understood(stamp: u64) -> TableList {
        TableList { stamp, ..TableList::default() }
    }

    /// Reads sqlite_schema in the open transaction. The text encoding of the file must be UTF-8.
    /// `stamp` is the current epoch and schema cookie.
    pub(super) fn read(tree: &Tree, stamp: u64) -> Result<TableList> {
        let mut list = TableList { stamp, is_plain: true, ..TableList::default() };
        let (mut odd_catalogue, mut odd_meta) = (false, false);
        let mut cursor = tree.cursor(LIST, Order::Rowid, false)?;
        let mut room = tree.pages().room();
        let mut there = cursor.first()?;
        let mut roots = Vec::new();
        while there {
            room = room.checked_sub(1).ok_or_else(scan::in_circles)?;
            let rowid = cursor.rowid()?;
            let Some(row) = ListRow::of(cursor.record()?).filter(ListRow::agrees_with_its_sql) else {
                return Ok(TableList::not_understood(stamp));
            };
            if row.root != 0 {
                reserve(&mut roots, 1)?;
                roots.push(row.root);
            }
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
        roots.sort_unstable();
        list.shares_a_root =
            roots.windows(2).any(|pair| pair.first() == pair.last()) || roots.first() == Some(&LIST);
        if odd_catalogue {
            list.catalogue = 0;
        }
        if odd_meta {
            list.meta = 0;
        }
        Ok(list)
    }

    fn note(&mut self, row: &ListRow<'_>, rowid: i64) {
        // An index that another program has created changes the form of the table that it is on.
        // The name of the index itself may also be the name that a table of a family needs.
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

    /// Returns the entries for a family; without tables and view if the list has none.
    pub(super) fn of(&self, tables: &Tables) -> Listed {
        self.families.get(tables.suffix.to_ascii_lowercase().as_str()).copied().unwrap_or_default()
    }

    /// Replaces the entries for a family after SQLite's list of tables was changed. `stamp` is the
    /// new epoch and schema cookie.
    pub(super) fn change(&mut self, tables: &Tables, listed: Listed, stamp: u64) {
        self.families.insert(tables.suffix.to_ascii_lowercase().into(), listed);
        self.stamp = stamp;
    }
}

/// Decoded row of sqlite_schema, SQLite's list of tables. `table` is its column tbl_name.
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

    /// Returns `true` if the SQL text of a table or view creates what the other columns state, or if
    /// the row is for an index or a trigger. SQLite makes the same comparison when it reads the
    /// list. Without it, a table whose name is damaged would count as missing.
    fn agrees_with_its_sql(&self) -> bool {
        let rest = match self.kind {
            "table" => ["CREATE TABLE ", "CREATE VIRTUAL TABLE "]
                .iter()
                .find_map(|start| self.sql.strip_prefix(start)),
            "view" => self.sql.strip_prefix("CREATE VIEW "),
            "index" | "trigger" => return true,
            _ => None,
        };
        let Some(rest) = rest else { return false };
        let quoted = rest.starts_with('"').then(|| schema::quote(self.name));
        let name = quoted.as_deref().unwrap_or(self.name);
        let after = rest.strip_prefix(name).and_then(|rest| rest.chars().next());
        self.name == self.table && after.is_some_and(|next| next == '(' || next.is_ascii_whitespace())
    }

    /// Returns `true` if the row is for the table or view of this name, or for an index of that
    /// table.
    fn is_about(&self, name: &str) -> bool {
        [self.name, self.table].iter().any(|named| named.eq_ignore_ascii_case(name))
    }

    /// Returns `true` if the row is for a table with this definition. The definitions are compared
    /// word by word; the amount of white space does not matter.
    fn is_defined_as(&self, definition: &str) -> bool {
        self.kind == "table"
            && self.root > LIST
            && self.name == self.table
            && schema::is_defined_as(self.sql, self.name, definition)
    }
}

//! Finds the families of a file: by the list of tables (sqlite_schema) and the catalogue of
//! families; without them, by the form of the rows of each tree.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::map::{Claim, Link};
use super::page::Kind;
use super::record::{Column, columns, data_row, large_value};
use super::walk::{Entry, Forest, Visitor};
use crate::config::check_name;
use crate::error::Result;
use crate::expiry::MAX_DEFAULT_TTL_MS;

/// Settings of a family, as the catalogue contains them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Settings {
    pub(super) default_ttl_ms: i64,
    pub(super) track_writes: bool,
}

/// Family that was found in the file, with the root pages of its trees; a root page is `None` if
/// the tree was not found.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    pub(super) name: String,
    /// Settings of the family; `None` if the catalogue does not contain them.
    pub(super) settings: Option<Settings>,
    pub(super) data: Option<u32>,
    pub(super) blob: Option<u32>,
}

/// Content of a damaged file: all families and trees that were found.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) families: Vec<Found>,
    /// Root pages of trees of large values whose family is unknown.
    pub(super) blobs: Vec<u32>,
    /// Size limit of the store, in bytes, and its eviction policy as the number in the file; `None`
    /// if the file does not contain them.
    pub(super) max_bytes: Option<i64>,
    pub(super) eviction: Option<i64>,
    /// Whether all trees of the file were found, and the kind of each was determined.
    pub(super) is_whole: bool,
    /// Whether the list of tables (sqlite_schema) could be read completely.
    pub(super) list_is_whole: bool,
    /// Whether the file contains tables or indexes of other programs.
    pub(super) has_others: bool,
    /// Whether tables of a store were found in the file.
    pub(super) is_store: bool,
}

/// Content of the list of tables: tables of a store, and root pages of other tables and indexes.
#[derive(Default)]
struct Listed {
    /// Root pages of the tables of a store, by the name of the table.
    roots: BTreeMap<String, u32>,
    others: HashSet<u32>,
    has_others: bool,
}

const LOST_HERE: &str = "the list of tables";

/// Callback for each loss. Its parameters are the part of the file with the loss, the page number
/// (0: no particular page), and the reason.
pub(super) type Tell<'t> = &'t mut dyn FnMut(&str, u32, &str) -> Result<()>;

pub(super) fn find(forest: &Forest<'_>, tell: Tell<'_>) -> Result<Contents> {
    let (listed, list_is_whole) = read_list(forest, tell)?;
    let mut contents = Contents { has_others: listed.has_others, list_is_whole, ..Contents::default() };
    let mut families: BTreeMap<String, Found> = BTreeMap::new();
    let claim =
        |root: u32| !matches!(forest.map.claim(forest.image, Link::Root, root, root), Claim::Refused(_));
    let (mut catalogue, mut meta) = (None, None);
    let mut misses_a_root = false;
    let mut impossible = Vec::new();
    for (table, root) in &listed.roots {
        let known = claim(*root).then_some(*root);
        misses_a_root |= known.is_none();
        match table.split_once(':') {
            None if table == "kvstore_family" => catalogue = known,
            None if table == "kvstore_meta" => meta = known,
            Some((kind, suffix)) => {
                let Some(name) = family_of(suffix) else {
                    impossible.extend(known.filter(|_| kind == "data"));
                    continue;
                };
                let family = families.entry(name).or_default();
                if kind == "data" { family.data = known } else { family.blob = known }
            }
            None => {}
        }
    }
    contents.is_store = !listed.roots.is_empty();
    // Trees that the list of tables does not name. They are sought even if the list seems to be
    // complete, because it may have lost a row without a sign of damage.
    let mut unnamed = find_unnamed(forest, &listed)?;
    if list_is_whole && !misses_a_root && unnamed.data.is_empty() && unnamed.blobs.is_empty() {
        unnamed = Unnamed::default();
    }
    contents.is_store |= !unnamed.data.is_empty();
    unnamed.data.extend(impossible);
    contents.is_whole = !unnamed.has_unreadable && (list_is_whole || forest.map.has_entries());
    let catalogue = catalogue.or(unnamed.catalogue);
    let mut names_are_whole = catalogue.is_some();
    if let Some(root) = catalogue {
        let mut rows = |row: &[Column<'_>]| {
            let [name, _, ttl, track] = row else { return None };
            let name = name.text().filter(|name| check_name(name).is_ok())?;
            let default_ttl_ms = ttl.integer().filter(|ttl| (0..=MAX_DEFAULT_TTL_MS).contains(ttl))?;
            let settings = Settings { default_ttl_ms, track_writes: track.integer()? != 0 };
            families.entry(name.to_owned()).or_default().settings = Some(settings);
            Some(())
        };
        names_are_whole = read_table(forest, root, "the catalogue of families", tell, &mut rows)?;
        for (name, _) in families.iter().filter(|(_, family)| family.settings.is_none()) {
            tell(&format!("family \"{name}\""), 0, "has lost its settings, and with them its default TTL")?;
            names_are_whole = false;
        }
    } else {
        tell("the catalogue of families", 0, "is lost: families have no default TTL any more")?;
    }
    match meta.or(unnamed.meta) {
        Some(root) => {
            read_table(forest, root, "the settings of the store", tell, &mut |row| {
                match row {
                    [Column::Text(b"max_bytes"), value] => contents.max_bytes = value.integer(),
                    [Column::Text(b"eviction"), value] => contents.eviction = value.integer(),
                    [Column::Text(_), _] => {}
                    _ => return None,
                }
                Some(())
            })?;
        }
        None => tell("the settings of the store", 0, "are lost, and with them its limit, if it had one")?,
    }
    contents.families = families.into_iter().map(|(name, found)| Found { name, ..found }).collect();
    let mut without: Vec<&mut Found> =
        contents.families.iter_mut().filter(|family| family.data.is_none()).collect();
    // If this is true, each data tree belongs to a family in the catalogue.
    let is_complete = names_are_whole && contents.is_whole;
    match (without.as_mut_slice(), unnamed.data.as_slice()) {
        ([family], [root]) if is_complete => family.data = Some(*root),
        (without, roots) => {
            for family in without {
                tell(&format!("family \"{}\"", family.name), 0, "has lost its table, and all its rows")?;
            }
            let taken: HashSet<String> = contents.families.iter().map(|family| family.name.clone()).collect();
            let names = (1..).map(|n| format!("recovered-{n}")).filter(|name| !taken.contains(name));
            for (root, name) in roots.iter().zip(names) {
                tell(
                    &format!("family \"{name}\""),
                    *root,
                    "is the name given to rows whose family is not known",
                )?;
                contents.families.push(Found { name, data: Some(*root), ..Found::default() });
            }
        }
    }
    contents.blobs = unnamed.blobs;
    Ok(contents)
}

/// Returns the name of the family from the part of a table name after the colon, which encodes it;
/// `None` if that part is not the encoding of a possible name.
fn family_of(suffix: &str) -> Option<String> {
    let mut name = String::with_capacity(suffix.len());
    let mut chars = suffix.chars();
    while let Some(c) = chars.next() {
        name.push(match c {
            '^' => chars.next().filter(|c| *c == '^' || c.is_ascii_uppercase())?,
            c if c.is_ascii_uppercase() => return None,
            c => c,
        });
    }
    check_name(&name).is_ok().then_some(name)
}

/// Reads the list of tables (sqlite_schema). The returned `bool` is `true` if the whole list was
/// readable.
fn read_list(forest: &Forest<'_>, tell: Tell<'_>) -> Result<(Listed, bool)> {
    let rows = Cells::of(forest, 1, Kind::Table)?;
    for (page, why) in &rows.lost {
        tell(LOST_HERE, *page, why)?;
    }
    let mut is_whole = !rows.is_damaged;
    let mut listed = Listed::default();
    for (page, cell) in rows.cells {
        let record = forest.record_at(page, cell, Kind::Table);
        let row = record.as_deref().ok().and_then(columns);
        let Some(([kind, name, table, root, sql], 5)) = row else {
            is_whole = false;
            tell(LOST_HERE, page, "has a line that is damaged")?;
            continue;
        };
        let number = root.integer().and_then(|root| u32::try_from(root).ok()).filter(|root| *root > 0);
        let Some(root) = number else {
            if kind.text() != Some("view") && kind.text() != Some("trigger") {
                is_whole = false;
                tell(LOST_HERE, page, "has a line without a root page")?;
            }
            continue;
        };
        let (Some(kind), Some(name), Some(table), Some(sql)) =
            (kind.text(), name.text(), table.text(), sql.text())
        else {
            if name.text().is_some_and(|name| name.starts_with("sqlite_autoindex_")) {
                listed.others.insert(root);
            } else {
                is_whole = false;
                tell(LOST_HERE, page, "has a line of which a part is lost")?;
            }
            continue;
        };
        let quoted = format!("\"{}\"", name.replace('"', "\"\""));
        let agree = name == table && (sql.contains(&quoted) || sql.contains(&format!(" {name}(")));
        let ours = (kind == "table" || sql.starts_with("CREATE TABLE"))
            && (matches!(name, "kvstore_family" | "kvstore_meta")
                || name.split_once(':').is_some_and(|(kind, _)| matches!(kind, "data" | "blob")));
        let index = name
            .split_once(':')
            .is_some_and(|(kind, _)| matches!(kind, "ttl_key" | "ttl_expiry" | "written"));
        if ours && agree {
            listed.roots.insert(name.to_owned(), root);
        } else if ours || index && !agree || !matches!(kind, "table" | "index") {
            is_whole = false;
            tell(LOST_HERE, page, "has a line whose names do not agree")?;
        } else {
            // A tree belongs to the name in its row of the list, even if its rows have the form of
            // rows of a store and the name is of another program, provided that the columns of that
            // row agree.
            listed.has_others |= !index && !name.starts_with("sqlite_");
            if agree || kind == "index" {
                listed.others.insert(root);
            } else {
                is_whole = false;
            }
        }
    }
    // If several tables have the same root page, at least one of them has a wrong root page. None
    // of them is used.
    let mut tables: HashMap<u32, u32> = HashMap::new();
    listed.roots.values().for_each(|root| *tables.entry(*root).or_default() += 1);
    listed.others.iter().for_each(|root| *tables.entry(*root).or_default() += 1);
    let before = listed.roots.len();
    listed.roots.retain(|_, root| tables.get(root) == Some(&1));
    is_whole &= before == listed.roots.len();
    Ok((listed, is_whole))
}

/// Root pages of the trees that the list of tables does not name, by the form of their rows.
#[derive(Default)]
struct Unnamed {
    data: Vec<u32>,
    blobs: Vec<u32>,
    catalogue: Option<u32>,
    meta: Option<u32>,
    /// Whether one of the trees cannot be read.
    has_unreadable: bool,
}

fn find_unnamed(forest: &Forest<'_>, listed: &Listed) -> Result<Unnamed> {
    let mut unnamed = Unnamed::default();
    let named: HashSet<u32> = listed.roots.values().chain(&listed.others).copied().collect();
    for root in forest.image.numbers().into_iter().flatten() {
        // A page without a possible pointer map entry could be the root of a tree of any kind.
        let is_unknown = root > 1 && forest.map.entry(forest.image, root).is_none();
        unnamed.has_unreadable |= is_unknown && !forest.map.is_no_content(forest.image, root);
        if named.contains(&root) || !forest.map.is_root(forest.image, root) {
            continue;
        }
        let Some(node) = forest.image.any_node(root) else {
            unnamed.has_unreadable = true;
            continue;
        };
        let kind = if forest.image.node(root, Kind::Index).is_some() { Kind::Index } else { Kind::Table };
        // An empty tree does not show its kind, and has no rows to save.
        if node.cells.is_empty()
            || matches!(forest.map.claim(forest.image, Link::Root, root, root), Claim::Refused(_))
        {
            continue;
        }
        let mut form = Form { kind, ..Form::default() };
        forest.walk(root, kind, &mut form)?;
        match form.of(forest) {
            Some(Sort::Data) => unnamed.data.push(root),
            Some(Sort::Blob) => unnamed.blobs.push(root),
            Some(Sort::Catalogue) => unnamed.catalogue = Some(root),
            Some(Sort::Meta) => unnamed.meta = Some(root),
            None => unnamed.has_unreadable |= form.misses_pages,
        }
    }
    Ok(unnamed)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Data,
    Blob,
    Catalogue,
    Meta,
}

/// Visitor that determines the kind of a tree by its records: rows of a family, large values,
/// settings of the store, or the catalogue of families. All records must have the form of the same
/// kind.
struct Form {
    kind: Kind,
    seen: usize,
    sort: Option<Sort>,
    first: Option<(u32, usize)>,
    misses_pages: bool,
}

impl Default for Form {
    fn default() -> Form {
        Form { kind: Kind::Index, seen: 0, sort: None, first: None, misses_pages: false }
    }
}

impl Form {
    fn of(&self, forest: &Forest<'_>) -> Option<Sort> {
        if self.kind == Kind::Index {
            return self.sort;
        }
        let (page, cell) = self.first?;
        let record = forest.record_at(page, cell, Kind::Table).ok()?;
        large_value(&record).map(|_| Sort::Blob)
    }
}

fn sort_of(record: &[u8]) -> Option<Sort> {
    if data_row(record).is_some() {
        return Some(Sort::Data);
    }
    match columns(record)? {
        ([Column::Text(b"created_by" | b"max_bytes" | b"eviction"), ..], 2) => Some(Sort::Meta),
        ([Column::Text(_), Column::Integer(_), Column::Integer(_), Column::Integer(0 | 1), _], 4) => {
            Some(Sort::Catalogue)
        }
        _ => None,
    }
}

impl Visitor for Form {
    fn entry(&mut self, entry: Entry<'_>) -> Result<()> {
        self.seen += 1;
        self.first.get_or_insert((entry.page, entry.cell));
        if self.kind == Kind::Index {
            let sort = sort_of(entry.record);
            self.sort = if self.seen == 1 || self.sort == sort { sort } else { None };
        }
        Ok(())
    }

    fn lost_entry(&mut self, _: u32, _: Option<&[u8]>, _: &str) -> Result<()> {
        Ok(())
    }

    fn lost_page(&mut self, _: u32, _: &str) -> Result<()> {
        self.misses_pages = true;
        Ok(())
    }

    fn page(&mut self) -> Result<()> {
        Ok(())
    }

    fn key_of<'r>(&self, record: &'r [u8]) -> Option<&'r [u8]> {
        any_key(record)
    }
}

/// Returns the first column of a record if it is a text or a blob. The tree is sorted by it, if the
/// record belongs to a table WITHOUT ROWID.
fn any_key(record: &[u8]) -> Option<&[u8]> {
    match columns(record)?.0 {
        [Column::Text(key) | Column::Blob(key), ..] => Some(key),
        _ => None,
    }
}

/// Visitor that collects the page and cell index of each entry of a small tree.
#[derive(Default)]
struct Cells {
    cells: Vec<(u32, usize)>,
    is_damaged: bool,
    lost: Vec<(u32, String)>,
}

impl Cells {
    fn of(forest: &Forest<'_>, root: u32, kind: Kind) -> Result<Cells> {
        let mut cells = Cells::default();
        forest.walk(root, kind, &mut cells)?;
        if cells.is_damaged {
            for orphan in forest.orphans().of.remove(&root).unwrap_or_default() {
                if forest.claim_orphan(orphan) {
                    forest.walk(orphan.page, kind, &mut cells)?;
                }
            }
        }
        Ok(cells)
    }
}

impl Visitor for Cells {
    fn entry(&mut self, entry: Entry<'_>) -> Result<()> {
        self.cells.push((entry.page, entry.cell));
        Ok(())
    }

    fn lost_entry(&mut self, page: u32, _: Option<&[u8]>, why: &str) -> Result<()> {
        self.is_damaged = true;
        self.lost.push((page, format!("has lost a line: {why}")));
        Ok(())
    }

    fn lost_page(&mut self, page: u32, why: &str) -> Result<()> {
        self.is_damaged = true;
        self.lost.push((page, format!("has lost a page, which {why}")));
        Ok(())
    }

    fn page(&mut self) -> Result<()> {
        Ok(())
    }

    fn key_of<'r>(&self, record: &'r [u8]) -> Option<&'r [u8]> {
        any_key(record)
    }
}

/// Reads a small table WITHOUT ROWID and passes the columns of each record to `row`, which returns
/// `None` if the record is not a row of this table. Returns `true` if the whole table was readable.
fn read_table(
    forest: &Forest<'_>,
    root: u32,
    what: &str,
    tell: Tell<'_>,
    row: &mut dyn FnMut(&[Column<'_>]) -> Option<()>,
) -> Result<bool> {
    let cells = Cells::of(forest, root, Kind::Index)?;
    for (page, why) in &cells.lost {
        tell(what, *page, why)?;
    }
    let mut is_whole = !cells.is_damaged;
    for (page, cell) in &cells.cells {
        let record = forest.record_at(*page, *cell, Kind::Index);
        let columns = record.as_deref().ok().and_then(columns);
        if columns.and_then(|(columns, count)| row(columns.get(..count)?)).is_none() {
            is_whole = false;
            tell(what, *page, "has a line that is damaged")?;
        }
    }
    Ok(is_whole)
}

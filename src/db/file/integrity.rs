//! The integrity check: SQLite's own, then that the tables of each family agree.
//!
//! Every disagreement has a name, a table and a family in its message; never a key or a value.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::failure::translate;
use super::schema::{self, KINDS, Tables, quote, table_name};
use crate::error::{Error, ErrorKind, Result};

/// Lines of the list of tables that could be used, but not dropped; SQLite's own check passes over them.
pub(super) const LISTED_IN_A_WRONG_FORM: &str = "typeof(type) <> 'text' OR typeof(name) <> 'text'
    OR typeof(tbl_name) <> 'text' OR type IN ('table', 'view') AND tbl_name <> name";

/// Something that does not agree with the rest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found<'a> {
    /// What: without a key or a value.
    pub(crate) text: &'a str,
    /// The key of the row or entry, if it is one and is a blob.
    pub(crate) key: Option<&'a [u8]>,
}

/// Who is told of each disagreement, and of each family before it is looked at, with how many there are.
pub(crate) trait Report {
    fn found(&mut self, found: Found<'_>) -> ControlFlow<()>;
    fn family(&mut self, at: usize, of: usize) -> ControlFlow<()>;
}

/// Why a check does not go on.
enum Stop {
    /// Whoever is told has enough.
    Told,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

type Checked = Result<(), Stop>;

fn tell(report: &mut dyn Report, text: &str, key: Option<&[u8]>) -> Checked {
    match report.found(Found { text, key }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Stop::Told),
    }
}

/// All but SQLite's own check. Fails with [`Corrupt`](crate::error::ErrorKind::Corrupt), naming the first
/// disagreement.
pub(super) fn check_tables(conn: &Connection) -> Result<()> {
    #[derive(Default)]
    struct First(Option<String>);
    impl Report for First {
        fn found(&mut self, found: Found<'_>) -> ControlFlow<()> {
            self.0 = Some(found.text.to_owned());
            ControlFlow::Break(())
        }

        fn family(&mut self, _: usize, _: usize) -> ControlFlow<()> {
            ControlFlow::Continue(())
        }
    }
    let mut first = First::default();
    match check_all(conn, &mut first, false) {
        Err(Stop::Failed(error)) => return Err(error),
        Ok(()) | Err(Stop::Told) => {}
    }
    first.0.map_or(Ok(()), |text| Err(Error::corrupt(text)))
}

/// The same, naming every disagreement; what cannot be read is one, and the rest is checked all the same.
pub(super) fn report_tables(conn: &Connection, report: &mut dyn Report) -> Result<()> {
    match check_all(conn, report, true) {
        Err(Stop::Failed(error)) => Err(error),
        Ok(()) | Err(Stop::Told) => Ok(()),
    }
}

fn check_all(conn: &Connection, report: &mut dyn Report, past_damage: bool) -> Checked {
    let families = schema::families(conn)?;
    let listed = listed_names(conn)?;
    check_catalogue(conn, &families, &listed, report)?;
    for (at, family) in families.iter().enumerate() {
        if report.family(at, families.len()).is_break() {
            return Err(Stop::Told);
        }
        match check_family(conn, &Tables::of(family), &listed, report) {
            Err(Stop::Failed(e)) if past_damage && e.kind() == ErrorKind::Corrupt => {
                tell(report, &format!("family \"{family}\" cannot be checked any further: {e}"), None)?;
            }
            checked => checked?,
        }
    }
    Ok(())
}

/// The names of all tables and views. Read once: to ask SQLite for one of them is to go through them all.
fn listed_names(conn: &Connection) -> Result<HashSet<String>> {
    let mut statement = conn.prepare("SELECT name FROM sqlite_schema").map_err(translate)?;
    let mut rows = statement.raw_query();
    let mut names = HashSet::new();
    while let Some(row) = rows.next().map_err(translate)? {
        if let Ok(name) = row.get_ref(0).map_err(translate)?.as_str() {
            names.insert(name.to_owned());
        }
    }
    Ok(names)
}

/// SQLite's own check.
pub(super) fn check_sqlite(conn: &Connection) -> Result<()> {
    let mut statement = conn.prepare("PRAGMA integrity_check(1)").map_err(translate)?;
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next().map_err(translate)? {
        let text: String = row.get(0).map_err(translate)?;
        if text != "ok" {
            return Err(Error::corrupt(format!("SQLite's integrity check: {text}")));
        }
    }
    Ok(())
}

/// SQLite's own check, naming at most `most` of what it finds; says how much that is.
pub(super) fn report_sqlite(conn: &Connection, most: u32, report: &mut dyn Report) -> Result<u64> {
    let mut statement = conn.prepare(&format!("PRAGMA integrity_check({most})")).map_err(translate)?;
    let mut rows = statement.raw_query();
    let mut found = 0;
    while let Some(row) = rows.next().map_err(translate)? {
        let text: String = row.get(0).map_err(translate)?;
        // One row can have several lines, after one that says which database they are about.
        for line in text.lines().filter(|line| *line != "ok" && !line.starts_with("***")) {
            found += 1;
            let text = format!("SQLite's integrity check: {line}");
            if report.found(Found { text: &text, key: None }).is_break() {
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// Each family has its data table and view, and each table belongs to a family.
fn check_catalogue(
    conn: &Connection,
    families: &[String],
    listed: &HashSet<String>,
    report: &mut dyn Report,
) -> Checked {
    let mut expected = HashSet::from(["kvstore_meta".to_owned(), "kvstore_family".to_owned()]);
    if !listed.contains("kvstore_meta") {
        let text = "the table kvstore_meta is missing, and with it the limit of the store, if it had one";
        tell(report, text, None)?;
    }
    for family in families {
        for kind in KINDS.map(|kind| kind.name).into_iter().chain(["live"]) {
            let name = table_name(kind, family);
            if matches!(kind, "data" | "live") && !listed.contains(&name) {
                let what = if kind == "live" { "view" } else { "table" };
                tell(report, &format!("family \"{family}\" has no {what} {}", quote(&name)), None)?;
            }
            expected.insert(name);
        }
    }
    if has_wrong_form(conn)? {
        tell(report, "the list of tables (sqlite_schema) has a row of a wrong form", None)?;
    }
    for (name, _) in named_like_ours(conn)?.iter().filter(|(name, _)| !expected.contains(name)) {
        tell(report, &format!("table {} belongs to no family", quote(name)), None)?;
    }
    Ok(())
}

/// Whether a line of the list of tables is of a wrong form.
pub(super) fn has_wrong_form(conn: &Connection) -> Result<bool> {
    conn.prepare(&format!("SELECT 1 FROM sqlite_schema WHERE {LISTED_IN_A_WRONG_FORM}"))
        .and_then(|mut s| s.exists([]))
        .map_err(translate)
}

/// How each view is defined, by its name.
pub(super) fn definitions_of_views(conn: &Connection) -> Result<HashMap<String, String>> {
    conn.prepare(
        "SELECT name, sql FROM sqlite_schema
         WHERE type = 'view' AND typeof(name) = 'text' AND typeof(sql) = 'text'",
    )
    .and_then(|mut s| s.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect())
    .map_err(translate)
}

/// The tables and views whose names say that they are the store's, and whether they are tables.
pub(super) fn named_like_ours(conn: &Connection) -> Result<Vec<(String, bool)>> {
    let mut statement = conn
        .prepare(
            "SELECT name, type = 'table' FROM sqlite_schema
             WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite!_%' ESCAPE '!'",
        )
        .map_err(translate)?;
    let mut rows = statement.raw_query();
    let mut named = Vec::new();
    while let Some(row) = rows.next().map_err(translate)? {
        let name: String = row.get(0).map_err(translate)?;
        let ours = match name.split_once(':') {
            Some((kind, _)) => kind == "live" || KINDS.iter().any(|known| known.name == kind),
            None => false,
        };
        if ours || name.starts_with("kvstore_") {
            named.push((name, row.get(1).map_err(translate)?));
        }
    }
    Ok(named)
}

fn check_family(
    conn: &Connection,
    tables: &Tables,
    listed: &HashSet<String>,
    report: &mut dyn Report,
) -> Checked {
    let Tables { data, blob, ttl_key, ttl_expiry, .. } = tables;
    let family = tables.family();
    let has_blobs = listed.contains(&table_name("blob", family));
    let has_keys = listed.contains(&table_name("ttl_key", family));
    let has_expiries = listed.contains(&table_name("ttl_expiry", family));

    if !listed.contains(&table_name("data", family)) {
        return Ok(()); // said already
    }
    let mut check = Check { conn, family, report };
    check.find(
        "a data row has a column of the wrong type",
        format!(
            "SELECT key FROM {data} WHERE typeof(key) <> 'blob' OR length(key) = 0
                OR typeof(value) NOT IN ('blob', 'null') OR typeof(expire_ms) NOT IN ('integer', 'null')
                OR typeof(blob_id) NOT IN ('integer', 'null') OR typeof(written_ms) NOT IN ('integer', 'null')
                OR expire_ms <= 0"
        ),
    )?;
    check.find(
        "a data row has neither a value nor a blob_id, or both",
        format!("SELECT key FROM {data} WHERE (value IS NULL) = (blob_id IS NULL)"),
    )?;
    if has_blobs {
        check.find(
            "a blob_id points nowhere",
            format!(
                "SELECT key FROM {data} WHERE blob_id IS NOT NULL
                    AND NOT EXISTS (SELECT 1 FROM {blob} AS b WHERE b.id = blob_id)"
            ),
        )?;
        check.find(
            "two data rows share a blob",
            format!("SELECT NULL FROM {data} WHERE blob_id IS NOT NULL GROUP BY blob_id HAVING count(*) > 1"),
        )?;
        check.find(
            "a blob has no data row that points to it",
            format!(
                "SELECT NULL FROM {blob} WHERE id NOT IN (SELECT blob_id FROM {data} WHERE blob_id IS NOT NULL)"
            ),
        )?;
        check.find(
            "a blob has the wrong type",
            format!("SELECT NULL FROM {blob} WHERE typeof(value) <> 'blob'"),
        )?;
    } else {
        check
            .find("a blob_id points nowhere", format!("SELECT key FROM {data} WHERE blob_id IS NOT NULL"))?;
    }
    check_write_times(&mut check, tables, listed)?;
    if has_keys != has_expiries {
        tell(check.report, &format!("family \"{family}\": only one of its two index tables is there"), None)?;
    }
    if !has_keys && !has_expiries {
        return check.find(
            "a data row has an expire_ms, but the key index has no entry for it",
            format!("SELECT key FROM {data} WHERE expire_ms IS NOT NULL"),
        );
    }
    let indexes = [("key index", ttl_key, has_keys), ("expiry index", ttl_expiry, has_expiries)];
    for (index, table, _) in indexes.iter().filter(|(.., is_there)| *is_there) {
        check.find(
            &format!("the {index} has an entry without a data row"),
            format!(
                "SELECT i.key FROM {table} AS i WHERE NOT EXISTS (SELECT 1 FROM {data} AS d WHERE d.key = i.key)"
            ),
        )?;
        check.find(
            &format!("the {index} has another expire_ms than the data row"),
            format!(
                "SELECT i.key FROM {table} AS i JOIN {data} AS d ON d.key = i.key WHERE d.expire_ms IS NOT i.expire_ms"
            ),
        )?;
    }
    if has_keys {
        check.find(
            "a data row has an expire_ms, but the key index has no entry for it",
            format!(
                "SELECT d.key FROM {data} AS d WHERE d.expire_ms IS NOT NULL
                    AND NOT EXISTS (SELECT 1 FROM {ttl_key} AS i WHERE i.key = d.key)"
            ),
        )?;
    }
    if has_expiries {
        check.find(
            "a data row has an expire_ms, but the expiry index has no entry for it",
            format!(
                "SELECT d.key FROM {data} AS d WHERE d.expire_ms IS NOT NULL
                    AND NOT EXISTS (SELECT 1 FROM {ttl_expiry} AS i WHERE i.expire_ms = d.expire_ms AND i.key = d.key)"
            ),
        )?;
    }
    Ok(())
}

/// What is looked for in the tables of a family.
struct Check<'a> {
    conn: &'a Connection,
    family: &'a str,
    report: &'a mut dyn Report,
}

impl Check<'_> {
    /// Tells of each row of a query, which finds what must not be; its column is the key, to tell them by.
    fn find(&mut self, what: &str, sql: String) -> Checked {
        let family = self.family;
        let mut statement = self.conn.prepare(&sql).map_err(translate)?;
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next().map_err(translate)? {
            let (length, key) = match row.get_ref(0).map_err(translate)? {
                ValueRef::Blob(key) => (Some(key.len()), Some(key)),
                ValueRef::Text(key) => (Some(key.len()), None),
                _ => (None, None),
            };
            let about = length.map_or(String::new(), |length| format!(" (a key of {length} bytes)"));
            tell(self.report, &format!("family \"{family}\": {what}{about}"), key)?;
        }
        Ok(())
    }
}

/// A family that tracks writes has a write time in every row, and the same in the index; another has none.
fn check_write_times(check: &mut Check<'_>, tables: &Tables, listed: &HashSet<String>) -> Checked {
    let Tables { data, written, .. } = tables;
    let family = tables.family();
    let tracked = schema::settings(check.conn, family)?.is_some_and(|settings| settings.track_writes);
    let indexed = listed.contains(&table_name("written", family));
    if tracked != indexed {
        let what = if tracked {
            "no index of write times, though it tracks them"
        } else {
            "an index of write times, though it does not track them"
        };
        tell(check.report, &format!("family \"{family}\" has {what}"), None)?;
    }
    if !tracked {
        return check.find(
            "a data row has a write time, though the family does not track them",
            format!("SELECT key FROM {data} WHERE written_ms IS NOT NULL"),
        );
    }
    check.find(
        "a data row has no write time, though the family tracks them",
        format!("SELECT key FROM {data} WHERE written_ms IS NULL"),
    )?;
    if !indexed {
        return Ok(());
    }
    check.find(
        "the index of write times has an entry that no data row agrees with",
        format!(
            "SELECT i.key FROM {written} AS i
             WHERE NOT EXISTS (SELECT 1 FROM {data} AS d WHERE d.key = i.key AND d.written_ms = i.written_ms)"
        ),
    )?;
    check.find(
        "a data row has a write time that the index does not have",
        format!(
            "SELECT d.key FROM {data} AS d
             WHERE NOT EXISTS (SELECT 1 FROM {written} AS i WHERE i.written_ms = d.written_ms AND i.key = d.key)"
        ),
    )
}

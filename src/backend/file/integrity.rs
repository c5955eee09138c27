//! Integrity check: first SQLite's own check, then the consistency of the tables of each family.
//!
//! The message for an inconsistency names its kind, the table and the family, and never contains a
//! key or a value. `schema_check.rs` compares the definitions of tables with those that this
//! library creates.

use std::collections::HashSet;
use std::ops::ControlFlow;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, ffi};

use super::engine::btree::greatest_root;
use super::error::{is_missing_table, translate};
use super::os;
use super::pragmas::page_size;
use super::schema::{
    self, BLOB, DATA, DEFAULT_FAMILY, FORMAT_VERSION, KINDS, Kind, Setting, TTL_EXPIRY, TTL_KEY, Tables,
    WRITTEN, quote, table_name,
};
use super::schema_check::{FACTS, FAMILIES, Form, Listed};
use crate::config::MAX_KEY_SIZE;
use crate::error::{Error, ErrorKind, Result};

/// SQL condition that is true for malformed rows of `sqlite_schema`. SQLite can use the table that
/// such a row describes, but cannot drop it. SQLite's own check does not report these rows.
pub(super) const LISTED_IN_A_WRONG_FORM: &str = "typeof(type) <> 'text' OR typeof(name) <> 'text'
    OR typeof(tbl_name) <> 'text' OR type IN ('table', 'view') AND tbl_name <> name";

/// Inconsistency that an integrity check has found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found<'a> {
    /// Description of the inconsistency, without a key or a value.
    pub(crate) text: &'a str,
    /// Key of the row or index entry, if the inconsistency concerns one whose key is a blob.
    pub(crate) key: Option<&'a [u8]>,
    /// Whether the inconsistency is in the structure of the SQLite file (its pages and B-trees),
    /// not in the rows of the tables.
    pub(crate) in_file: bool,
}

/// Receiver of the inconsistencies that an integrity check finds, and of its progress.
pub(crate) trait Report {
    /// Receives an inconsistency. `Break` ends the check.
    fn found(&mut self, found: Found<'_>) -> ControlFlow<()>;
    /// Reports that the check of a family begins. `at` is its index among `of` families. `Break`
    /// ends the check.
    fn family(&mut self, at: usize, of: usize) -> ControlFlow<()>;
}

/// Reason why an integrity check ends early.
enum Stop {
    /// The receiver of the inconsistencies ([`Report`]) has returned `Break`.
    Told,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

type Checked = Result<(), Stop>;

/// Reports an inconsistency in the rows or definitions of tables. `key` is the key of the row, if
/// there is one. Fails if `report` ends the check.
fn tell(report: &mut dyn Report, text: &str, key: Option<&[u8]>) -> Checked {
    go_on(report.found(Found { text, key, in_file: false }))
}

/// Reports damage in the structure of the SQLite file. Fails if `report` ends the check.
fn tell_of_file(report: &mut dyn Report, text: &str) -> Checked {
    go_on(report.found(Found { text, key: None, in_file: true }))
}

fn go_on(flow: ControlFlow<()>) -> Checked {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Stop::Told),
    }
}

/// Returns `true` if an error means that the file is damaged or cannot be read. This includes
/// `Full`, which SQLite reports for a page number that no file can have.
fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io | ErrorKind::Full | ErrorKind::NotADatabase)
}

/// Checks the consistency of the tables of all families, without SQLite's own check. Fails with
/// [`Corrupt`](crate::error::ErrorKind::Corrupt) and the first inconsistency.
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

/// Runs SQLite's integrity check, then the check of the tables, and reports every inconsistency to
/// `report`. Of those that SQLite finds, at most `most` are reported.
///
/// If a part of the file cannot be read, this is reported as an inconsistency, and the check
/// continues with the next part. Returns the first error that kept a check from being completed, if
/// any.
pub(super) fn report(conn: &Connection, most: u32, report: &mut dyn Report) -> Option<Error> {
    let mut stopped = None;
    for of_tables in [false, true] {
        let checked = match of_tables {
            false => report_sqlite(conn, most, report),
            true => check_all(conn, report, true),
        };
        match checked {
            Ok(()) => {}
            Err(Stop::Told) => return stopped,
            Err(Stop::Failed(e)) if !is_damage(&e) => return Some(e),
            Err(Stop::Failed(e)) => {
                let whose = if of_tables { "the check of the tables" } else { "SQLite's integrity check" };
                let told = tell_of_file(report, &format!("{whose} came to no end: {}", e.message()));
                stopped = stopped.or(Some(e));
                if told.is_err() {
                    return stopped;
                }
            }
        }
    }
    stopped
}

/// Checks the consistency of the tables of all families. `past_damage`: if a family cannot be read,
/// this is reported, and the check continues with the next family.
fn check_all(conn: &Connection, report: &mut dyn Report, past_damage: bool) -> Checked {
    let version = number(conn, "PRAGMA user_version")?;
    if version < i64::from(FORMAT_VERSION) {
        tell(report, &format!("the file has format version {version}, which never was"), None)?;
    }
    let listed = Listed::read(conn)?;
    let families = check_catalogue(conn, &listed, report)?;
    for (at, family) in families.iter().enumerate() {
        go_on(report.family(at, families.len()))?;
        match check_family(conn, &Tables::of(family), &listed, report) {
            Err(Stop::Failed(e)) if past_damage && (is_damage(&e) || e.kind() == ErrorKind::Error) => {
                let text = format!("family \"{family}\" cannot be checked any further: {}", e.message());
                match is_damage(&e) {
                    true => tell_of_file(report, &text)?,
                    false => tell(report, &text, None)?,
                }
            }
            checked => checked?,
        }
    }
    Ok(())
}

/// Runs SQLite's integrity check, and then looks for pages in no use (`pages_of_no_use`), which
/// SQLite's check can omit. Fails with the first problem.
///
/// SQLite reports a page that could not be read as damage. This function returns the error of the
/// failed read instead.
pub(super) fn check_sqlite(conn: &Connection) -> Result<()> {
    let _of_earlier_calls = os::vfs::take_failed_read(conn);
    let mut statement = conn.prepare("PRAGMA integrity_check(1)").map_err(translate)?;
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next().map_err(translate)? {
        let text: String = row.get(0).map_err(translate)?;
        if text != "ok" {
            return Err(match os::vfs::take_failed_read(conn) {
                Some(code) => translate(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)),
                None => Error::corrupt(format!("SQLite's integrity check: {text}")),
            });
        }
    }
    pages_of_no_use(conn)?.map_or(Ok(()), |text| Err(Error::corrupt(text)))
}

/// Runs SQLite's integrity check, and reports up to `most` problems that it finds. If it finds
/// none, looks for pages in no use (`pages_of_no_use`), which SQLite's check can omit.
fn report_sqlite(conn: &Connection, most: u32, report: &mut dyn Report) -> Checked {
    let mut statement = conn.prepare(&format!("PRAGMA integrity_check({most})")).map_err(translate)?;
    let mut rows = statement.raw_query();
    let mut is_content = true;
    while let Some(row) = rows.next().map_err(translate)? {
        let text: String = row.get(0).map_err(translate)?;
        // A row can have several lines. The first of them begins with "***" and names the database.
        for line in text.lines().filter(|line| *line != "ok" && !line.starts_with("***")) {
            is_content = false;
            tell_of_file(report, &format!("SQLite's integrity check: {line}"))?;
        }
    }
    if is_content && let Some(text) = pages_of_no_use(conn)? {
        tell_of_file(report, &text)?;
    }
    Ok(())
}

/// Checks the list of free pages and the number of the greatest root page in the header, and looks
/// for pages that are neither free nor part of a table. Returns a description of the first problem;
/// `None` if there is none.
///
/// SQLite's own check includes this, unless the first entry of its schema in memory is a view. A
/// view has the root page 0, and a 0 in the first place means that only some tables are checked
/// (`sqlite3BtreeIntegrityCheck`). The view of a family often is the first entry.
///
/// Call this after SQLite's own check has found nothing, so that no page is in two tables. If
/// SQLite has no table `dbstat`, pages of no use are not looked for.
fn pages_of_no_use(conn: &Connection) -> Result<Option<String>> {
    // A check of `sqlite_schema` alone includes the list of free pages.
    let free: String =
        conn.query_row("PRAGMA integrity_check(sqlite_schema)", [], |row| row.get(0)).map_err(translate)?;
    if free != "ok" {
        let lines: Vec<&str> = free.lines().filter(|line| !line.starts_with("***")).collect();
        return Ok(Some(format!("SQLite's integrity check: {}", lines.join("; "))));
    }
    if let Some(text) = wrong_greatest_root(conn)? {
        return Ok(Some(text));
    }
    let in_tables: f64 = match conn.prepare("SELECT total(pageno) FROM dbstat('main', 1)") {
        Err(e) if is_missing_table(&e) => return Ok(None),
        prepared => prepared.and_then(|mut s| s.query_row([], |row| row.get(0))).map_err(translate)?,
    };
    #[expect(clippy::cast_possible_truncation)] // a number of pages: less than 2^32
    let used = in_tables as i64 + number(conn, "PRAGMA freelist_count")? + pages_of_maps(conn)?;
    let unused = number(conn, "PRAGMA page_count")? - used;
    Ok(match unused {
        0 => None,
        1.. => Some(format!("pages in no use, neither free nor of a table: {unused}")),
        _ => Some(format!("pages in use twice: {}", -unused)),
    })
}

/// Compares the number of the greatest root page in the header of the file with the list of tables.
/// Returns a description of the difference; `None` if there is none, or no pointer map. SQLite needs
/// the number when it creates or drops a table.
fn wrong_greatest_root(conn: &Connection) -> Result<Option<String>> {
    let stored = i64::from(greatest_root(conn).unwrap_or(0));
    let greatest = number(conn, "SELECT coalesce(max(rootpage), 1) FROM sqlite_schema")?;
    Ok((stored != 0 && stored != greatest)
        .then(|| format!("the header names the root page {stored} as the greatest, instead of {greatest}")))
}

/// Returns the number of pointer map pages and lock pages of the file. These pages are neither free
/// nor part of a table.
fn pages_of_maps(conn: &Connection) -> Result<i64> {
    let size = i64::try_from(page_size(conn)?).unwrap_or(0);
    let pages = number(conn, "PRAGMA page_count")?;
    if number(conn, "PRAGMA auto_vacuum")? == 0 {
        return Ok(i64::from(lock_page(size) <= pages));
    }
    let reserved = os::reserved_bytes(conn).map_err(translate)?;
    Ok(maps_and_lock_page(pages, size, size - i64::from(reserved)))
}

/// Returns the number of the lock page, which contains no data (SQLite's fileformat2.html, chapter
/// 1.4).
fn lock_page(page_size: i64) -> i64 {
    0x4000_0000 / page_size.max(1) + 1
}

/// Returns the number of pointer map pages (fileformat2.html, chapter 1.8) and lock pages of a file
/// with `pages` pages. `usable` is the size of a page without its reserved bytes.
fn maps_and_lock_page(pages: i64, page_size: i64, usable: i64) -> i64 {
    let lock_page = lock_page(page_size);
    let locks = i64::from(lock_page <= pages);
    if pages < 2 {
        return locks;
    }
    // A pointer map page comes before the pages that it describes. If its position is that of the
    // lock page, it is the page after that.
    let part = usable / 5 + 1;
    let maps = (pages - 2) / part + 1;
    let is_past_the_end = pages == lock_page && (pages - 2) % part == 0;
    locks + maps - i64::from(is_past_the_end)
}

fn number(conn: &Connection, sql: &str) -> Result<i64> {
    conn.query_row(sql, [], |row| row.get(0)).map_err(translate)
}

/// Checks the tables that every store has, that each family has its data table and its view, and
/// that each table belongs to a family. Returns the families of the catalogue.
fn check_catalogue(conn: &Connection, listed: &Listed, report: &mut dyn Report) -> Result<Vec<String>, Stop> {
    match listed.of_the_store(conn, &FACTS)? {
        Form::Right => {}
        Form::Missing => {
            let text = "the table kvstore_meta is missing, and with it the limit of the store, if it had one";
            tell(report, text, None)?;
        }
        Form::Wrong | Form::Other => {
            tell(report, "the table kvstore_meta does not have the form that this library creates", None)?
        }
    }
    let form = listed.of_the_store(conn, &FAMILIES)?;
    match form {
        Form::Right => {}
        Form::Missing => tell(report, "the catalogue of families (kvstore_family) is missing", None)?,
        Form::Wrong | Form::Other => {
            tell(
                report,
                "the catalogue of families (kvstore_family) does not have the form that this library creates",
                None,
            )?;
        }
    }
    let families = if form.has_columns() { check_lines_of_catalogue(conn, report)? } else { Vec::new() };
    let mut expected = HashSet::from([FACTS.name.to_owned(), FAMILIES.name.to_owned()]);
    for family in &families {
        for kind in KINDS.map(|kind| kind.name).into_iter().chain(["live"]) {
            let name = table_name(kind, family);
            if matches!(kind, "data" | "live") && !listed.has(&name) {
                let what = if kind == "live" { "view" } else { "table" };
                tell(report, &format!("family \"{family}\" has no {what} {}", quote(&name)), None)?;
            }
            expected.insert(name);
        }
    }
    if has_wrong_form(conn)? {
        tell(report, "the list of tables (sqlite_schema) has a row of a wrong form", None)?;
    }
    for (name, _) in listed.named_like_ours().iter().filter(|(name, _)| !expected.contains(*name)) {
        tell(report, &format!("table {} belongs to no family", quote(name)), None)?;
    }
    Ok(families)
}

/// Checks that the settings in each row of the catalogue are valid, and that there is a row for the
/// family `default`. Returns the names of the families.
fn check_lines_of_catalogue(conn: &Connection, report: &mut dyn Report) -> Result<Vec<String>, Stop> {
    let settings = schema::settings_of_the_catalogue();
    let [created, ttl, track] = settings.each_ref().map(|setting| &*setting.is_wrong);
    let sql = format!("SELECT name, {created}, {ttl}, {track} FROM kvstore_family ORDER BY name");
    let mut statement = conn.prepare(&sql).map_err(translate)?;
    let mut rows = statement.raw_query();
    let mut names: Vec<String> = Vec::new();
    while let Some(row) = rows.next().map_err(translate)? {
        let Ok(name) = row.get_ref(0).map_err(translate)?.as_str() else {
            tell(report, "a name in the catalogue of families is not UTF-8 text", None)?;
            continue;
        };
        for (setting, column) in settings.iter().zip(1..) {
            if row.get(column).map_err(translate)? {
                let Setting { column, should_be, .. } = setting;
                let text = format!("family \"{name}\": its {column} in the catalogue is not {should_be}");
                tell(report, &text, None)?;
            }
        }
        if names.last().is_none_or(|last| last != name) {
            names.push(name.to_owned());
        }
    }
    if !names.iter().any(|name| name == DEFAULT_FAMILY) {
        let text = "the catalogue of families has no line for the family \"default\"";
        tell(report, text, None)?;
    }
    Ok(names)
}

/// Returns `true` if `sqlite_schema` has a malformed row, so that SQLite could not drop the table
/// which the row describes.
pub(super) fn has_wrong_form(conn: &Connection) -> Result<bool> {
    conn.prepare(&format!("SELECT 1 FROM sqlite_schema WHERE {LISTED_IN_A_WRONG_FORM}"))
        .and_then(|mut s| s.exists([]))
        .map_err(translate)
}

/// Compares a table of a family with the definition that this library creates. Reports a
/// difference, and returns the result of the comparison.
fn check_form(
    conn: &Connection,
    kind: &Kind,
    family: &str,
    listed: &Listed,
    report: &mut dyn Report,
) -> Result<Form, Stop> {
    let form = listed.of_family(conn, kind, family)?;
    if matches!(form, Form::Wrong | Form::Other) {
        let name = quote(&table_name(kind.name, family));
        tell(
            report,
            &format!(
                "family \"{family}\": the table {name} does not have the form that this library creates"
            ),
            None,
        )?;
    }
    Ok(form)
}

/// Checks the tables of a family: their definitions, their rows, and its view.
fn check_family(conn: &Connection, tables: &Tables, listed: &Listed, report: &mut dyn Report) -> Checked {
    let family = tables.family();
    let mut form = |kind| check_form(conn, kind, family, listed, report);
    let forms = Forms {
        data: form(&DATA)?,
        blob: form(&BLOB)?,
        ttl_key: form(&TTL_KEY)?,
        ttl_expiry: form(&TTL_EXPIRY)?,
        written: form(&WRITTEN)?,
    };
    if forms.data.has_columns() {
        check_rows(conn, tables, &forms, report)?;
    }
    let view = table_name("live", family);
    if listed.has(&view) && !listed.has_live_view(tables) {
        tell(report, &format!("family \"{family}\": {} is not the view it should be", quote(&view)), None)?;
    }
    Ok(())
}

/// Results of comparing each table of a family with the definition that this library creates.
struct Forms {
    data: Form,
    blob: Form,
    ttl_key: Form,
    ttl_expiry: Form,
    written: Form,
}

/// Checks that the data rows of a family are valid, and that its other tables agree with them. A
/// table without the right columns is skipped, because the comparison with its definition has
/// already reported it.
fn check_rows(conn: &Connection, tables: &Tables, forms: &Forms, report: &mut dyn Report) -> Checked {
    let Tables { data, blob, ttl_key, ttl_expiry, .. } = tables;
    let family = tables.family();
    let mut check = Check { conn, family, report };
    check.find_either(
        ["a data row has a column of the wrong type", "a data row has a key that is too long"],
        format!(
            "SELECT key, typeof(key) = 'blob' AND length(key) > {MAX_KEY_SIZE} FROM {data}
             WHERE typeof(key) <> 'blob' OR length(key) NOT BETWEEN 1 AND {MAX_KEY_SIZE}
                OR typeof(value) NOT IN ('blob', 'null') OR typeof(expire_ms) NOT IN ('integer', 'null')
                OR typeof(blob_id) NOT IN ('integer', 'null') OR typeof(written_ms) NOT IN ('integer', 'null')
                OR expire_ms <= 0"
        ),
    )?;
    check.find(
        "a data row has neither a value nor a blob_id, or both",
        format!("SELECT key FROM {data} WHERE (value IS NULL) = (blob_id IS NULL)"),
    )?;
    if forms.blob.has_columns() {
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
    } else if forms.blob == Form::Missing {
        check
            .find("a blob_id points nowhere", format!("SELECT key FROM {data} WHERE blob_id IS NOT NULL"))?;
    }
    check_write_times(&mut check, tables, forms.written)?;
    let (has_keys, has_expiries) = (forms.ttl_key != Form::Missing, forms.ttl_expiry != Form::Missing);
    if has_keys != has_expiries {
        tell(check.report, &format!("family \"{family}\": only one of its two index tables is there"), None)?;
    }
    if !has_keys && !has_expiries {
        return check.find(
            "a data row has an expire_ms, but the key index has no entry for it",
            format!("SELECT key FROM {data} WHERE expire_ms IS NOT NULL"),
        );
    }
    let indexes = [("key index", ttl_key, forms.ttl_key), ("expiry index", ttl_expiry, forms.ttl_expiry)];
    for (index, table, _) in indexes.iter().filter(|(.., form)| form.has_columns()) {
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
    if forms.ttl_key.has_columns() {
        check.find(
            "a data row has an expire_ms, but the key index has no entry for it",
            format!(
                "SELECT d.key FROM {data} AS d WHERE d.expire_ms IS NOT NULL
                    AND NOT EXISTS (SELECT 1 FROM {ttl_key} AS i WHERE i.key = d.key)"
            ),
        )?;
    }
    if forms.ttl_expiry.has_columns() {
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

/// Connection, family and receiver of inconsistencies, for the queries that check the tables of one
/// family.
struct Check<'a> {
    conn: &'a Connection,
    family: &'a str,
    report: &'a mut dyn Report,
}

impl Check<'_> {
    /// Runs the query `sql`, and reports each row that it returns as an inconsistency, which `what`
    /// describes. The first column is the key of the row, or NULL.
    fn find(&mut self, what: &str, sql: String) -> Checked {
        self.find_either([what, what], sql)
    }

    /// Runs the query `sql`, and reports each row that it returns as one of the two inconsistencies
    /// in `whats`: as the second if the second column of the row is 1, otherwise as the first. The
    /// first column is the key of the row, or NULL.
    fn find_either(&mut self, whats: [&str; 2], sql: String) -> Checked {
        let [what, other] = whats;
        let family = self.family;
        let mut statement = self.conn.prepare(&sql).map_err(translate)?;
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next().map_err(translate)? {
            let (length, key) = match row.get_ref(0).map_err(translate)? {
                ValueRef::Blob(key) => (Some(key.len()), Some(key)),
                ValueRef::Text(key) => (Some(key.len()), None),
                _ => (None, None),
            };
            let is_other = row.get_ref(1).is_ok_and(|column| column == ValueRef::Integer(1));
            let what = if is_other { other } else { what };
            let about = length.map_or(String::new(), |length| format!(" (a key of {length} bytes)"));
            tell(self.report, &format!("family \"{family}\": {what}{about}"), key)?;
        }
        Ok(())
    }
}

/// Checks the write times of a family. In a family with write tracking, every row must have a write
/// time, and the index of write times must have an entry with it. In a family without write
/// tracking, no row may have a write time.
fn check_write_times(check: &mut Check<'_>, tables: &Tables, form: Form) -> Checked {
    let Tables { data, written, .. } = tables;
    let family = tables.family();
    let tracked = schema::settings(check.conn, family)?.is_some_and(|settings| settings.track_writes);
    let indexed = form != Form::Missing;
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
    if !form.has_columns() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointer_map_page_count_matches_sqlite_layout() {
        // As in SQLite's ptrmapPageno().
        let is_map = |page: i64, size: i64| {
            let part = size / 5 + 1;
            let map = (page - 2) / part * part + 2;
            page == if map == lock_page(size) { map + 1 } else { map }
        };
        for size in [512, 4096, 65_536] {
            for first in [0, lock_page(size) - size] {
                let mut maps = maps_and_lock_page(first, size, size);
                for pages in first + 1..first + 3 * size {
                    maps += i64::from(pages > 1 && is_map(pages, size) || pages == lock_page(size));
                    assert_eq!(maps_and_lock_page(pages, size, size), maps, "{pages} of {size}");
                }
            }
        }
    }
}

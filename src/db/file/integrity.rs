//! The integrity check: SQLite's own, then that the tables of each family agree.
//!
//! Every disagreement has a name, a table and a family in its message; never a key or a value.

use std::collections::{HashMap, HashSet};

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::failure::translate;
use super::schema::{self, KINDS, Tables, quote, table_name};
use crate::error::{Error, Result};

/// Lines of the list of tables that could be used, but not dropped; SQLite's own check passes over them.
pub(super) const LISTED_IN_A_WRONG_FORM: &str = "typeof(type) <> 'text' OR typeof(name) <> 'text'
    OR typeof(tbl_name) <> 'text' OR type IN ('table', 'view') AND tbl_name <> name";

/// All but SQLite's own check. Fails with [`Corrupt`](crate::error::ErrorKind::Corrupt), naming the first
/// disagreement.
pub(super) fn check_tables(conn: &Connection) -> Result<()> {
    let families = schema::families(conn)?;
    let listed = listed_names(conn)?;
    check_catalogue(conn, &families, &listed)?;
    for family in &families {
        check_family(conn, &Tables::of(family), &listed)?;
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

/// Each family has its data table and view, and each table belongs to a family.
fn check_catalogue(conn: &Connection, families: &[String], listed: &HashSet<String>) -> Result<()> {
    let mut expected = HashSet::from(["kvstore_meta".to_owned(), "kvstore_family".to_owned()]);
    if !listed.contains("kvstore_meta") {
        return Err(Error::corrupt(
            "the table kvstore_meta is missing, and with it the limit of the store, if it had one",
        ));
    }
    for family in families {
        for kind in KINDS.map(|kind| kind.name).into_iter().chain(["live"]) {
            let name = table_name(kind, family);
            if matches!(kind, "data" | "live") && !listed.contains(&name) {
                let what = if kind == "live" { "view" } else { "table" };
                return Err(Error::corrupt(format!("family \"{family}\" has no {what} {}", quote(&name))));
            }
            expected.insert(name);
        }
    }
    if has_wrong_form(conn)? {
        return Err(Error::corrupt("the list of tables (sqlite_schema) has a row of a wrong form"));
    }
    match named_like_ours(conn)?.into_iter().find(|(name, _)| !expected.contains(name)) {
        Some((name, _)) => Err(Error::corrupt(format!("table {} belongs to no family", quote(&name)))),
        None => Ok(()),
    }
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

fn check_family(conn: &Connection, tables: &Tables, listed: &HashSet<String>) -> Result<()> {
    let Tables { data, blob, ttl_key, ttl_expiry, .. } = tables;
    let family = tables.family();
    let has_blobs = listed.contains(&table_name("blob", family));
    let has_keys = listed.contains(&table_name("ttl_key", family));
    let has_expiries = listed.contains(&table_name("ttl_expiry", family));

    // Each query finds rows that must not be; the column is the length of the key, to tell them by.
    let find = |what: &str, sql: String| -> Result<()> {
        let mut statement = conn.prepare(&sql).map_err(translate)?;
        let mut rows = statement.raw_query();
        let Some(row) = rows.next().map_err(translate)? else { return Ok(()) };
        let about = match row.get_ref(0).map_err(translate)? {
            ValueRef::Integer(length) => format!(" (a key of {length} bytes)"),
            _ => String::new(),
        };
        Err(Error::corrupt(format!("family \"{family}\": {what}{about}")))
    };

    find(
        "a data row has a column of the wrong type",
        format!(
            "SELECT length(key) FROM {data} WHERE typeof(key) <> 'blob' OR length(key) = 0
                OR typeof(value) NOT IN ('blob', 'null') OR typeof(expire_ms) NOT IN ('integer', 'null')
                OR typeof(blob_id) NOT IN ('integer', 'null') OR typeof(written_ms) NOT IN ('integer', 'null')
                OR expire_ms <= 0"
        ),
    )?;
    find(
        "a data row has neither a value nor a blob_id, or both",
        format!("SELECT length(key) FROM {data} WHERE (value IS NULL) = (blob_id IS NULL)"),
    )?;
    if has_blobs {
        find(
            "a blob_id points nowhere",
            format!(
                "SELECT length(key) FROM {data} WHERE blob_id IS NOT NULL
                    AND NOT EXISTS (SELECT 1 FROM {blob} AS b WHERE b.id = blob_id)"
            ),
        )?;
        find(
            "two data rows share a blob",
            format!("SELECT NULL FROM {data} WHERE blob_id IS NOT NULL GROUP BY blob_id HAVING count(*) > 1"),
        )?;
        find(
            "a blob has no data row that points to it",
            format!(
                "SELECT NULL FROM {blob} WHERE id NOT IN (SELECT blob_id FROM {data} WHERE blob_id IS NOT NULL)"
            ),
        )?;
        find("a blob has the wrong type", format!("SELECT NULL FROM {blob} WHERE typeof(value) <> 'blob'"))?;
    } else {
        find(
            "a blob_id points nowhere",
            format!("SELECT length(key) FROM {data} WHERE blob_id IS NOT NULL"),
        )?;
    }
    check_write_times(conn, tables, listed, &find)?;
    if has_keys != has_expiries {
        return Err(Error::corrupt(format!(
            "family \"{family}\": only one of its two index tables is there"
        )));
    }
    if !has_keys {
        return find(
            "a data row has an expire_ms, but the key index has no entry for it",
            format!("SELECT length(key) FROM {data} WHERE expire_ms IS NOT NULL"),
        );
    }
    for (index, table) in [("key index", ttl_key), ("expiry index", ttl_expiry)] {
        find(
            &format!("the {index} has an entry without a data row"),
            format!(
                "SELECT length(i.key) FROM {table} AS i WHERE NOT EXISTS (SELECT 1 FROM {data} AS d WHERE d.key = i.key)"
            ),
        )?;
        find(
            &format!("the {index} has another expire_ms than the data row"),
            format!(
                "SELECT length(i.key) FROM {table} AS i JOIN {data} AS d ON d.key = i.key WHERE d.expire_ms IS NOT i.expire_ms"
            ),
        )?;
    }
    find(
        "a data row has an expire_ms, but the key index has no entry for it",
        format!(
            "SELECT length(d.key) FROM {data} AS d WHERE d.expire_ms IS NOT NULL
                AND NOT EXISTS (SELECT 1 FROM {ttl_key} AS i WHERE i.key = d.key)"
        ),
    )?;
    find(
        "a data row has an expire_ms, but the expiry index has no entry for it",
        format!(
            "SELECT length(d.key) FROM {data} AS d WHERE d.expire_ms IS NOT NULL
                AND NOT EXISTS (SELECT 1 FROM {ttl_expiry} AS i WHERE i.expire_ms = d.expire_ms AND i.key = d.key)"
        ),
    )
}

/// A family that tracks writes has a write time in every row, and the same in the index; another has none.
fn check_write_times(
    conn: &Connection,
    tables: &Tables,
    listed: &HashSet<String>,
    find: &dyn Fn(&str, String) -> Result<()>,
) -> Result<()> {
    let Tables { data, written, .. } = tables;
    let family = tables.family();
    let tracked = schema::settings(conn, family)?.is_some_and(|settings| settings.track_writes);
    let indexed = listed.contains(&table_name("written", family));
    if tracked != indexed {
        let what = if tracked {
            "no index of write times, though it tracks them"
        } else {
            "an index of write times, though it does not track them"
        };
        return Err(Error::corrupt(format!("family \"{family}\" has {what}")));
    }
    if !tracked {
        return find(
            "a data row has a write time, though the family does not track them",
            format!("SELECT length(key) FROM {data} WHERE written_ms IS NOT NULL"),
        );
    }
    find(
        "a data row has no write time, though the family tracks them",
        format!("SELECT length(key) FROM {data} WHERE written_ms IS NULL"),
    )?;
    find(
        "the index of write times has an entry that no data row agrees with",
        format!(
            "SELECT length(i.key) FROM {written} AS i
             WHERE NOT EXISTS (SELECT 1 FROM {data} AS d WHERE d.key = i.key AND d.written_ms = i.written_ms)"
        ),
    )?;
    find(
        "a data row has a write time that the index does not have",
        format!(
            "SELECT length(d.key) FROM {data} AS d
             WHERE NOT EXISTS (SELECT 1 FROM {written} AS i WHERE i.written_ms = d.written_ms AND i.key = d.key)"
        ),
    )
}

//! The integrity check: SQLite's own, then that the tables of each family agree.
//!
//! Every disagreement has a name, a table and a family in its message; never a key or a value.

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::connection::translate;
use super::schema::{self, Tables, quote};
use crate::error::{Error, Result};

/// Fails with [`Error::Corrupt`] that names the first disagreement.
pub(super) fn check(conn: &Connection) -> Result<()> {
    check_sqlite(conn)?;
    let families = schema::families(conn)?;
    check_catalogue(conn, &families)?;
    for family in &families {
        check_family(conn, &Tables::of(family))?;
    }
    Ok(())
}

fn check_sqlite(conn: &Connection) -> Result<()> {
    let mut statement = conn.prepare("PRAGMA integrity_check(1)").map_err(translate)?;
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next().map_err(translate)? {
        let text: String = row.get(0).map_err(translate)?;
        if text != "ok" {
            return Err(Error::Corrupt(format!("SQLite's integrity check: {text}")));
        }
    }
    Ok(())
}

/// Each family has its data table and view, and each table belongs to a family.
fn check_catalogue(conn: &Connection, families: &[String]) -> Result<()> {
    let mut expected = vec!["kvstore_meta".to_owned(), "kvstore_family".to_owned()];
    for family in families {
        let suffix = schema::table_suffix(family);
        for (kind, required) in [
            ("data", true),
            ("live", true),
            ("blob", false),
            ("ttl_key", false),
            ("ttl_expiry", false),
            ("written", false),
        ] {
            let name = format!("{kind}:{suffix}");
            if required && !exists(conn, &name)? {
                return Err(Error::Corrupt(format!("family \"{family}\" has no table {}", quote(&name))));
            }
            expected.push(name);
        }
    }
    // A table that is listed so could be used, but not dropped; SQLite's own check passes over it.
    let odd = conn
        .prepare(
            "SELECT 1 FROM sqlite_schema WHERE typeof(type) <> 'text' OR typeof(name) <> 'text'
                OR typeof(tbl_name) <> 'text' OR type IN ('table', 'view') AND tbl_name <> name",
        )
        .and_then(|mut s| s.exists([]))
        .map_err(translate)?;
    if odd {
        return Err(Error::Corrupt("the list of tables (sqlite_schema) has a row of a wrong form".into()));
    }
    let mut statement = conn
        .prepare("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite!_%' ESCAPE '!'")
        .map_err(translate)?;
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next().map_err(translate)? {
        let name: String = row.get(0).map_err(translate)?;
        let ours = ["data:", "blob:", "ttl_key:", "ttl_expiry:", "written:", "live:", "kvstore_"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        if ours && !expected.contains(&name) {
            return Err(Error::Corrupt(format!("table {} belongs to no family", quote(&name))));
        }
    }
    Ok(())
}

fn exists(conn: &Connection, table: &str) -> Result<bool> {
    conn.prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = ?1")
        .and_then(|mut s| s.exists([table]))
        .map_err(translate)
}

fn check_family(conn: &Connection, tables: &Tables) -> Result<()> {
    let Tables { data, blob, ttl_key, ttl_expiry, .. } = tables;
    let family = tables.family();
    let suffix = schema::table_suffix(family);
    let has_blobs = exists(conn, &format!("blob:{suffix}"))?;
    let has_keys = exists(conn, &format!("ttl_key:{suffix}"))?;
    let has_expiries = exists(conn, &format!("ttl_expiry:{suffix}"))?;

    // Each query finds rows that must not be; the column is the length of the key, to tell them by.
    let find = |what: &str, sql: String| -> Result<()> {
        let mut statement = conn.prepare(&sql).map_err(translate)?;
        let mut rows = statement.raw_query();
        let Some(row) = rows.next().map_err(translate)? else { return Ok(()) };
        let about = match row.get_ref(0).map_err(translate)? {
            ValueRef::Integer(length) => format!(" (a key of {length} bytes)"),
            _ => String::new(),
        };
        Err(Error::Corrupt(format!("family \"{family}\": {what}{about}")))
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
    check_write_times(conn, tables, &find)?;
    if has_keys != has_expiries {
        return Err(Error::Corrupt(format!(
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
    find: &dyn Fn(&str, String) -> Result<()>,
) -> Result<()> {
    let Tables { data, written, .. } = tables;
    let family = tables.family();
    let tracked = schema::settings(conn, family)?.is_some_and(|settings| settings.track_writes);
    let indexed = exists(conn, &format!("written:{}", schema::table_suffix(family)))?;
    if tracked != indexed {
        let what = if tracked {
            "no index of write times, though it tracks them"
        } else {
            "an index of write times, though it does not track them"
        };
        return Err(Error::Corrupt(format!("family \"{family}\" has {what}")));
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

//! Repair: makes all tables of all families consistent with the data rows. It fixes the
//! inconsistencies that `integrity.rs` finds.
//!
//! - The data rows are authoritative. Indexes and the view are derived from them, and are created
//!   again where they differ.
//! - No value is invented. A row whose content cannot be determined is removed.
//! - A table that contains values, and may be that of another program, is not dropped but renamed.

use std::collections::BTreeSet;

use rusqlite::config::DbConfig;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Params};

use super::error::translate;
use super::integrity::{self, Found};
use super::schema::{
    self, BLOB, DATA, DEFAULT_FAMILY, FORMAT_VERSION, KINDS, Kind, Setting, Tables, exists, quote, table_name,
};
use super::schema_check::{FACTS, FAMILIES, Form, Listed, OfTheStore, columns_of};
use crate::config::{MAX_KEY_SIZE, check_name};
use crate::error::Result;
use crate::hint::Hint;

/// Repairs all tables, inside a write transaction of its own. Returns the number of rows, index
/// entries and tables that were added, removed or changed. Passes a description of each loss of
/// data to `tell`.
///
/// If it fails, the transaction must be rolled back.
pub(super) fn repair(conn: &Connection, now_ms: i64, tell: &mut dyn FnMut(Found<'_>)) -> Result<u64> {
    // A write to a damaged B-tree can destroy rows that are still readable.
    check_sqlite(conn)?;
    let mut repair = Repair { conn, now_ms, fixed: 0, tell };
    repair.version()?;
    repair.list_of_tables()?;
    repair.table_of_the_store(&FAMILIES)?;
    repair.names_of_the_catalogue()?;
    repair.tables_of_no_family()?;
    repair.settings_of_the_catalogue()?;
    repair.table_of_the_store(&FACTS)?;
    // Read once: `sqlite_schema` has no index, so each query on it scans the tables of all
    // families.
    let listed = Listed::read(conn)?;
    for family in schema::families(conn)? {
        repair.family(&Tables::of(&family), &listed)?;
    }
    integrity::check_tables(conn)?; // an inconsistency that is left is one that repair cannot fix
    let fixed = repair.fixed;
    if fixed > 0 {
        // If `sqlite_schema` was changed by hand, its errors about free pages can appear only now.
        check_sqlite(conn)?;
    }
    Ok(fixed)
}

fn check_sqlite(conn: &Connection) -> Result<()> {
    integrity::check_sqlite(conn).map_err(|e| {
        e.with_message(format!("{}: a repair cannot fix this, and nothing was changed", e.message()))
            .with_hint(Hint::Recover)
    })
}

/// Reported reason for the removal of a row without a usable value.
const VALUE_IS_LOST: &str = "its value is lost";

/// Repair in progress: the connection, the current time, and the receiver of reports (`tell`).
struct Repair<'c> {
    conn: &'c Connection,
    now_ms: i64,
    /// Number of rows, index entries and tables that were added, removed or changed so far.
    fixed: u64,
    tell: &'c mut dyn FnMut(Found<'_>),
}

impl Repair<'_> {
    // ---- the schema and the catalogue --------------------------------------------------------

    /// Sets the format version of the file to the current one if it is lower. No release of this
    /// library has written a lower version, so the file was changed by another program, and a
    /// normal open rejects it.
    fn version(&mut self) -> Result<()> {
        if self.number("PRAGMA user_version")? >= i64::from(FORMAT_VERSION) {
            return Ok(());
        }
        self.make(&format!("PRAGMA user_version = {FORMAT_VERSION}"))
    }

    /// Fixes rows of `sqlite_schema` that have a wrong form. SQLite can use such a table or view,
    /// but cannot drop it.
    fn list_of_tables(&mut self) -> Result<()> {
        if !integrity::has_wrong_form(self.conn)? {
            return Ok(());
        }
        let version: i64 = self.number("PRAGMA schema_version")?;
        self.run("PRAGMA writable_schema = ON")?;
        let mended = self.change(&format!(
            "UPDATE sqlite_schema SET type = CAST(type AS TEXT), name = CAST(name AS TEXT), tbl_name =
                 CASE WHEN type IN ('table', 'view') THEN CAST(name AS TEXT) ELSE CAST(tbl_name AS TEXT) END
             WHERE {}",
            integrity::LISTED_IN_A_WRONG_FORM
        ));
        // Other connections read `sqlite_schema` again only if its version has changed. This
        // connection does by RESET, which also ends the permission to write. But RESET clears the
        // flag by which a rollback reads `sqlite_schema` once more. The second change of the
        // version sets it again.
        let tell = |by| self.run(&format!("PRAGMA schema_version = {}", version.wrapping_add(by)));
        let told = tell(1);
        let read_again = self.run("PRAGMA writable_schema = RESET");
        mended.and(told).and(read_again).and_then(|()| tell(2))
    }

    /// Creates a table that every store has, if it is missing or differs from its definition.
    fn table_of_the_store(&mut self, table: &OfTheStore) -> Result<()> {
        let definition = format!("CREATE TABLE {}{}", table.name, table.definition);
        let listed = Listed::read(self.conn)?;
        match listed.of_the_store(self.conn, table)? {
            Form::Right => return Ok(()),
            Form::Wrong => return self.remake(table.name, table.columns, "TRUE", &definition),
            Form::Other => self.remove(table.name, listed.is_table(table.name))?,
            Form::Missing => {}
        }
        self.make(&definition)?;
        let what =
            if table.name == FAMILIES.name { "the settings of families" } else { "a limit of the store" };
        self.say(&format!("the table {} was made anew: {what} that it had are lost", table.name));
        Ok(())
    }

    /// Removes names that no family can have from the catalogue. Adds the default family to the
    /// catalogue if it is missing.
    fn names_of_the_catalogue(&mut self) -> Result<()> {
        self.change(
            "UPDATE OR IGNORE kvstore_family SET name = CAST(name AS TEXT) WHERE typeof(name) = 'blob'",
        )?;
        let names: Vec<(bool, Option<Vec<u8>>)> = {
            let mut statement = self
                .conn
                .prepare("SELECT typeof(name) = 'text', CAST(name AS BLOB) FROM kvstore_family")
                .map_err(translate)?;
            statement
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
                .and_then(Iterator::collect)
                .map_err(translate)?
        };
        for (is_text, name) in names {
            // A name that is not allowed, but has a table, can only have been used through SQL. It
            // is harmless.
            let good = match name.as_deref().map(std::str::from_utf8) {
                Some(Ok(name)) if is_text => {
                    check_name(name).is_ok() || exists(self.conn, &table_name("data", name))?
                }
                _ => false,
            };
            if !good {
                self.change_with(
                    "DELETE FROM kvstore_family WHERE (typeof(name) = 'text') = ?1 AND CAST(name AS BLOB) IS ?2",
                    (is_text, &name),
                )?;
            }
        }
        if !schema::family_exists(self.conn, DEFAULT_FAMILY)? {
            self.enter(DEFAULT_FAMILY)?;
        }
        Ok(())
    }

    /// Adds a family to the catalogue, with the current time as its creation time and without a
    /// default TTL. Reports this change.
    fn enter(&mut self, family: &str) -> Result<()> {
        let tracked = exists(self.conn, &table_name("written", family))?;
        self.change_with("INSERT INTO kvstore_family VALUES(?1, ?2, 0, ?3)", (family, self.now_ms, tracked))?;
        self.say(&format!(
            "family \"{family}\" was entered in the catalogue again: it has no default TTL now, and is said to have been \
             made now"
        ));
        Ok(())
    }

    /// Replaces invalid settings in the catalogue by the values that reads use for them, and an
    /// invalid creation time by the current time.
    fn settings_of_the_catalogue(&mut self) -> Result<()> {
        for Setting { column, is_wrong, should_be, instead } in schema::settings_of_the_catalogue() {
            let wrong: Vec<String> = self
                .conn
                .prepare(&format!("SELECT name FROM kvstore_family WHERE {is_wrong}"))
                .and_then(|mut s| s.query_map([], |row| row.get(0))?.collect())
                .map_err(translate)?;
            if wrong.is_empty() {
                continue;
            }
            let instead = instead.map_or_else(|| self.now_ms.to_string(), str::to_owned);
            self.change(&format!("UPDATE kvstore_family SET {column} = ({instead}) WHERE {is_wrong}"))?;
            for family in wrong {
                let now = self
                    .conn
                    .query_row(
                        &format!("SELECT {column} FROM kvstore_family WHERE name = ?1"),
                        [&family],
                        |row| row.get::<_, i64>(0),
                    )
                    .map_err(translate)?;
                self.say(&format!("family \"{family}\": its {column} was not {should_be}, and is {now} now"));
            }
        }
        Ok(())
    }

    /// Adds each family that has a data table, but is missing in the catalogue, to the catalogue.
    /// Removes or renames the tables that belong to no family.
    fn tables_of_no_family(&mut self) -> Result<()> {
        let mut families: BTreeSet<String> =
            schema::families(self.conn)?.iter().map(|family| schema::table_suffix(family)).collect();
        let listed = Listed::read(self.conn)?;
        let named = listed.named_like_ours();
        for (name, _) in &named {
            if let Some(suffix) = name.strip_prefix("data:")
                && !families.contains(suffix)
                && let Some(family) = family_of(suffix)
                && listed.of_family(self.conn, &DATA, &family)?.has_columns()
            {
                self.enter(&family)?;
                families.insert(suffix.to_owned());
            }
        }
        for (name, is_table) in named {
            let (kind, suffix) = name.split_once(':').unwrap_or((name, ""));
            let belongs = match name.split_once(':') {
                Some((_, suffix)) => families.contains(suffix),
                None => name == FACTS.name || name == FAMILIES.name,
            };
            if belongs {
                // The name is right, but the kind is not: a view instead of a table, or a table
                // instead of a view.
                if is_table == (kind == "live") {
                    self.remove(name, is_table)?;
                }
                continue;
            }
            match kind {
                // Indexes are derived from the data rows, and are useless without them.
                "ttl_key" | "ttl_expiry" | "written" if family_of(suffix).is_some() => {
                    self.drop(name, is_table)?
                }
                _ => self.remove(name, is_table)?,
            }
        }
        Ok(())
    }

    /// Removes a table or view that must not have its name. A table with rows is renamed,
    /// everything else is dropped.
    fn remove(&mut self, name: &str, is_table: bool) -> Result<()> {
        let has_rows = is_table
            && self
                .conn
                .prepare(&format!("SELECT 1 FROM {}", quote(name)))
                .and_then(|mut s| s.exists([]))
                .map_err(translate)?;
        if has_rows { self.set_aside(name) } else { self.drop(name, is_table) }
    }

    fn drop(&mut self, name: &str, is_table: bool) -> Result<()> {
        self.make(&format!("DROP {} {}", if is_table { "TABLE" } else { "VIEW" }, quote(name)))
    }

    /// Renames a table to a name that the store does not use, and reports that.
    fn set_aside(&mut self, name: &str) -> Result<()> {
        let aside = self.rename(name)?;
        self.fixed += 1;
        self.say(&format!("the table {} was renamed to {}", quote(name), quote(&aside)));
        Ok(())
    }

    /// Renames a table to a name that the store does not use. Returns the new name.
    fn rename(&self, name: &str) -> Result<String> {
        let mut aside = format!("lost:{name}");
        for n in 2.. {
            if !exists(self.conn, &aside)? {
                break;
            }
            aside = format!("lost:{name}:{n}");
        }
        // Without this setting, a view that is broken at the moment would prevent the renaming.
        let legacy = DbConfig::SQLITE_DBCONFIG_LEGACY_ALTER_TABLE;
        self.conn.set_db_config(legacy, true).map_err(translate)?;
        let done = self.run(&format!("ALTER TABLE {} RENAME TO {}", quote(name), quote(&aside)));
        self.conn.set_db_config(legacy, false).map_err(translate)?;
        done.map(|()| aside)
    }

    /// Creates a table again that has the right columns but another form, and copies the rows that
    /// satisfy the condition `fits`. If the old table has more columns or rows than the new one, it
    /// is kept under another name.
    fn remake(&mut self, name: &str, columns: &[&str], fits: &str, definition: &str) -> Result<()> {
        let has_more_columns = columns_of(self.conn, name)?.len() > columns.len();
        let aside = self.rename(name)?;
        self.make(definition)?;
        let (new, old, columns) = (quote(name), quote(&aside), columns.join(", "));
        self.run(&format!(
            "INSERT OR IGNORE INTO {new}({columns}) SELECT {columns} FROM {old} WHERE {fits}"
        ))?;
        let rows = |table| self.number(&format!("SELECT count(*) FROM {table}"));
        if has_more_columns || rows(&new)? < rows(&old)? {
            self.say(&format!("the table {new} was made anew, and what it was is {old} now"));
            return Ok(());
        }
        self.run(&format!("DROP TABLE {old}"))
    }

    // ---- one family --------------------------------------------------------------------------

    fn family(&mut self, tables: &Tables, listed: &Listed) -> Result<()> {
        for kind in KINDS {
            self.form(kind, tables, listed)?;
        }
        if !self.has("data", tables)? {
            self.make(&schema::data_table(tables))?;
        }
        self.keys(tables)?;
        self.ends_of_life(tables)?;
        self.values(tables)?;
        // The following steps remove no data row.
        self.expiry_indexes(tables)?;
        self.write_times(tables)?;
        self.view(tables, listed)
    }

    /// Makes the table of this kind match its definition, or removes it. A removed index table
    /// loses nothing: its content is also in the data rows, from which a later step creates it
    /// again.
    fn form(&mut self, kind: &Kind, tables: &Tables, listed: &Listed) -> Result<()> {
        let name = table_name(kind.name, tables.family());
        let keeps_values = kind.name == DATA.name || kind.name == BLOB.name;
        match listed.of_family(self.conn, kind, tables.family())? {
            Form::Wrong if keeps_values => {
                let definition = format!("CREATE TABLE {}{}", quote(&name), kind.definition);
                let fits = if kind.name == BLOB.name { "typeof(id) = 'integer'" } else { "TRUE" };
                self.remake(&name, kind.columns, fits, &definition)
            }
            // A view of that name was already dropped by `tables_of_no_family`.
            Form::Other if keeps_values && listed.is_table(&name) => self.remove(&name, true),
            Form::Wrong | Form::Other if listed.is_table(&name) => self.drop(&name, true),
            _ => Ok(()),
        }
    }

    /// Converts keys of type TEXT to blobs with the same bytes, unless the family has that key
    /// already. Removes rows whose key is still invalid.
    fn keys(&mut self, tables: &Tables) -> Result<()> {
        let Tables { data, .. } = tables;
        self.change(&format!(
            "UPDATE OR IGNORE {data} SET key = CAST(key AS BLOB) WHERE typeof(key) = 'text'"
        ))?;
        self.lose(tables, "its key is none", "typeof(key) <> 'blob' OR length(key) = 0")?;
        // A scan would return such a row, but no call accepts its key, and no other store accepts
        // the row.
        self.lose(tables, "its key is too long", &format!("length(key) > {MAX_KEY_SIZE}"))
    }

    /// Repairs the expiry times of the data rows.
    ///
    /// The time in the row decides, as in every read. An invalid one is replaced by that in the key
    /// index, which was written together with the row. If the index has none either, the expiry
    /// time is unknown, and the row is removed.
    fn ends_of_life(&mut self, tables: &Tables) -> Result<()> {
        let Tables { data, ttl_key, .. } = tables;
        if self.has("ttl_key", tables)? {
            self.change(&format!(
                "UPDATE {data} AS d SET expire_ms = i.expire_ms FROM {ttl_key} AS i
                 WHERE typeof(d.expire_ms) NOT IN ('integer', 'null') AND i.key = d.key
                     AND typeof(i.expire_ms) = 'integer' AND i.expire_ms > 0"
            ))?;
        }
        let why = "nobody knows how long it may be shown";
        self.lose(tables, why, "typeof(expire_ms) NOT IN ('integer', 'null')")?;
        self.change(&format!("DELETE FROM {data} WHERE expire_ms <= 0")) // these rows are expired
    }

    /// Leaves exactly one value for each row: the one that a read returns. Removes rows without a
    /// value.
    fn values(&mut self, tables: &Tables) -> Result<()> {
        let Tables { data, blob, .. } = tables;
        // A text has the bytes of the value; from a number they cannot be determined.
        self.change(&format!("UPDATE {data} SET value = CAST(value AS BLOB) WHERE typeof(value) = 'text'"))?;
        self.change(&format!(
            "UPDATE {data} SET value = NULL
             WHERE typeof(value) NOT IN ('blob', 'null') AND typeof(blob_id) = 'integer'"
        ))?;
        self.lose(tables, VALUE_IS_LOST, "typeof(value) NOT IN ('blob', 'null')")?;
        self.change(&format!(
            "UPDATE {data} SET blob_id = NULL WHERE value IS NOT NULL AND blob_id IS NOT NULL"
        ))?;
        if !self.has("blob", tables)? {
            return self.lose(tables, VALUE_IS_LOST, "value IS NULL");
        }
        self.change(&format!("UPDATE {blob} SET value = CAST(value AS BLOB) WHERE typeof(value) = 'text'"))?;
        self.change(&format!("DELETE FROM {blob} WHERE typeof(value) <> 'blob'"))?;
        let lost = format!(
            "value IS NULL AND (typeof(blob_id) <> 'integer'
                 OR NOT EXISTS (SELECT 1 FROM {blob} AS b WHERE b.id = blob_id))"
        );
        self.lose(tables, VALUE_IS_LOST, &lost)?;
        self.shared_values(data, blob)?;
        self.change(&format!(
            "DELETE FROM {blob} WHERE id NOT IN (SELECT blob_id FROM {data} WHERE blob_id IS NOT NULL)"
        ))
    }

    /// Gives each data row that refers to the same large value as an earlier row a copy of the
    /// value.
    fn shared_values(&mut self, data: &str, blob: &str) -> Result<()> {
        let shared = format!(
            "SELECT blob_id FROM {data} WHERE blob_id IS NOT NULL GROUP BY blob_id HAVING count(*) > 1"
        );
        if !self.conn.prepare(&shared).and_then(|mut s| s.exists([])).map_err(translate)? {
            return Ok(());
        }
        // A temporary table holds the result, so that no query runs while rows change.
        self.run("CREATE TEMP TABLE kvstore_shared(key BLOB, blob_id INTEGER)")?;
        self.run(&format!(
            "INSERT INTO temp.kvstore_shared SELECT key, blob_id FROM
                 (SELECT key, blob_id, row_number() OVER (PARTITION BY blob_id ORDER BY key) AS place
                  FROM {data} WHERE blob_id IN ({shared}))
             WHERE place > 1"
        ))?;
        let copied = self.copy_shared_values(data, blob);
        let dropped = self.run("DROP TABLE temp.kvstore_shared");
        copied.and(dropped)
    }

    fn copy_shared_values(&mut self, data: &str, blob: &str) -> Result<()> {
        let copy = format!("INSERT INTO {blob}(value) SELECT value FROM {blob} WHERE id = ?1");
        let point = format!("UPDATE {data} SET blob_id = ?2 WHERE key = ?1");
        let mut copy = self.conn.prepare(&copy).map_err(translate)?;
        let mut point = self.conn.prepare(&point).map_err(translate)?;
        let mut shared =
            self.conn.prepare("SELECT key, blob_id FROM temp.kvstore_shared").map_err(translate)?;
        let mut rows = shared.raw_query();
        while let Some(row) = rows.next().map_err(translate)? {
            let key = row.get_ref(0).and_then(|key| Ok(key.as_blob()?)).map_err(translate)?;
            let id: i64 = row.get(1).map_err(translate)?;
            copy.execute([id]).map_err(translate)?;
            point.execute((key, self.conn.last_insert_rowid())).map_err(translate)?;
            self.fixed += 1;
        }
        Ok(())
    }

    /// Makes the key index and the expiry index agree with the data rows.
    fn expiry_indexes(&mut self, tables: &Tables) -> Result<()> {
        let Tables { data, ttl_key, ttl_expiry, .. } = tables;
        let (has_keys, has_expiries) = (self.has("ttl_key", tables)?, self.has("ttl_expiry", tables)?);
        if !has_keys
            && !has_expiries
            && !self.finds(&format!("SELECT 1 FROM {data} WHERE expire_ms IS NOT NULL"))?
        {
            return Ok(());
        }
        if !has_keys || !has_expiries {
            schema::create_ttl_tables(self.conn, tables)?;
            self.fixed += u64::from(!has_keys) + u64::from(!has_expiries);
        }
        self.index(data, ttl_key, "expire_ms")?;
        self.index(data, ttl_expiry, "expire_ms")
    }

    /// Makes the write times and their index agree.
    ///
    /// A family has write tracking if it is on in the catalogue, or if there are both rows with
    /// write times and the index. A row without a write time gets that of the index, or else the
    /// current time.
    fn write_times(&mut self, tables: &Tables) -> Result<()> {
        let Tables { data, written, .. } = tables;
        let indexed = self.has("written", tables)?;
        let mut tracked =
            schema::settings(self.conn, tables.family())?.is_some_and(|settings| settings.track_writes);
        if !tracked
            && indexed
            && self.finds(&format!("SELECT 1 FROM {data} WHERE typeof(written_ms) = 'integer'"))?
        {
            schema::set_track_writes(self.conn, tables, true)?;
            self.fixed += 1;
            tracked = true;
        }
        if !tracked {
            self.change(&format!("UPDATE {data} SET written_ms = NULL WHERE written_ms IS NOT NULL"))?;
            return if indexed { self.drop(&table_name("written", tables.family()), true) } else { Ok(()) };
        }
        if indexed && self.finds(&format!("SELECT 1 FROM {data} WHERE typeof(written_ms) <> 'integer'"))? {
            self.change(&format!(
                "UPDATE {data} AS d SET written_ms = i.last_ms FROM
                     (SELECT key, max(written_ms) AS last_ms FROM {written}
                      WHERE typeof(written_ms) = 'integer' GROUP BY key) AS i
                 WHERE typeof(d.written_ms) <> 'integer' AND i.key = d.key"
            ))?;
        }
        self.change_with(
            &format!("UPDATE {data} SET written_ms = ?1 WHERE typeof(written_ms) <> 'integer'"),
            [self.now_ms],
        )?;
        if !indexed {
            self.make(&schema::written_table(tables))?;
        }
        self.index(data, written, "written_ms")
    }

    /// Makes a time index agree with the data rows. `time` is the name of its time column.
    fn index(&mut self, data: &str, index: &str, time: &str) -> Result<()> {
        self.change(&format!(
            "DELETE FROM {index} AS i
             WHERE NOT EXISTS (SELECT 1 FROM {data} AS d WHERE d.key = i.key AND d.{time} = i.{time})"
        ))?;
        self.change(&format!(
            "INSERT INTO {index}(key, {time}) SELECT key, {time} FROM {data} AS d WHERE {time} IS NOT NULL
                 AND NOT EXISTS (SELECT 1 FROM {index} AS i WHERE i.key = d.key AND i.{time} = d.{time})"
        ))
    }

    /// Creates the view of live rows again, if it differs from its definition.
    fn view(&mut self, tables: &Tables, listed: &Listed) -> Result<()> {
        let with_blobs = self.has("blob", tables)?;
        if listed.is_live_view(tables, with_blobs) {
            return Ok(());
        }
        self.run(&format!("DROP VIEW IF EXISTS {}", tables.live))?;
        self.make(&schema::live_view(tables, with_blobs))
    }

    // ---- reports -----------------------------------------------------------------------------

    /// Reports a loss or change that concerns no single row.
    fn say(&mut self, text: &str) {
        (self.tell)(Found { text, key: None, in_file: false });
    }

    /// Removes the data rows that satisfy the SQL condition `which`, and reports each of them with
    /// the reason `why`.
    fn lose(&mut self, tables: &Tables, why: &str, which: &str) -> Result<()> {
        let Tables { data, .. } = tables;
        let mut statement =
            self.conn.prepare(&format!("SELECT key FROM {data} WHERE {which}")).map_err(translate)?;
        let mut rows = statement.raw_query();
        let mut any = false;
        while let Some(row) = rows.next().map_err(translate)? {
            let (length, key) = match row.get_ref(0).map_err(translate)? {
                ValueRef::Blob(key) => (format!(" with a key of {} bytes", key.len()), Some(key)),
                _ => (String::new(), None),
            };
            let text = format!("family \"{}\": a row{length} was removed: {why}", tables.family());
            (self.tell)(Found { text: &text, key, in_file: false });
            any = true;
        }
        if any { self.change(&format!("DELETE FROM {data} WHERE {which}")) } else { Ok(()) }
    }

    // ---- statements --------------------------------------------------------------------------

    /// Runs a statement that changes rows, and counts the changed rows.
    fn change(&mut self, sql: &str) -> Result<()> {
        self.change_with(sql, [])
    }

    fn change_with(&mut self, sql: &str, params: impl Params) -> Result<()> {
        let changed = self.conn.prepare(sql).and_then(|mut s| s.execute(params)).map_err(translate)?;
        self.fixed += changed as u64;
        Ok(())
    }

    /// Runs a statement that creates or drops a table or view, which counts as one change.
    fn make(&mut self, sql: &str) -> Result<()> {
        self.run(sql)?;
        self.fixed += 1;
        Ok(())
    }

    fn run(&self, sql: &str) -> Result<()> {
        self.conn.execute_batch(sql).map_err(translate)
    }

    /// Returns `true` if the family has a table of this kind: `data`, for example.
    fn has(&self, kind: &str, tables: &Tables) -> Result<bool> {
        Ok(!columns_of(self.conn, &table_name(kind, tables.family()))?.is_empty())
    }

    /// Returns `true` if the query `sql` returns at least one row.
    fn finds(&self, sql: &str) -> Result<bool> {
        self.conn.prepare(sql).and_then(|mut s| s.exists([])).map_err(translate)
    }

    fn number(&self, sql: &str) -> Result<i64> {
        self.conn.query_row(sql, [], |row| row.get(0)).map_err(translate)
    }
}

/// Returns the family whose tables have this suffix; `None` if no family can have it. The inverse
/// of [`schema::table_suffix`].
fn family_of(suffix: &str) -> Option<String> {
    let mut family = String::with_capacity(suffix.len());
    let mut characters = suffix.chars();
    while let Some(c) = characters.next() {
        family.push(if c == '^' { characters.next()? } else { c });
    }
    (schema::table_suffix(&family) == suffix && check_name(&family).is_ok()).then_some(family)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn family_name_is_decoded_from_table_name() {
        for family in ["users", "userID", "^x", "a:b", "It's \"quoted\"", "Ünï"] {
            assert_eq!(family_of(&schema::table_suffix(family)).as_deref(), Some(family));
        }
        for suffix in ["userID", "user^", "user^x", "", "__x", "kvstore"] {
            assert_eq!(family_of(suffix), None, "{suffix}");
        }
    }
}

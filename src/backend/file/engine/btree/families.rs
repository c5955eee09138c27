//! Reads the catalogue of families and creates their tables, directly on the B-trees.
//!
//! SQLite's own CREATE TABLE reads the whole list of tables (sqlite_schema). If another connection
//! has changed the schema, it also reads the whole schema again. With thousands of families, each
//! of the two takes milliseconds. This module writes the same bytes as SQL would.
//!
//! SQLite detects the new tables by the schema cookie, as it detects changes by other connections.
//! It then reads the schema again before the next statement that needs it. So no frequent operation
//! uses a statement that needs the schema.

use std::cmp::Ordering;

use super::connection::BtreeConnection;
use super::operation::BtreeOperation;
use super::record::{self, Columns, Value};
use super::scan;
use super::table_roots::{LIST, Listed, VIEW};
use super::tree::Order;
use crate::backend::file::connection::Db;
use crate::backend::file::error::damaged;
use crate::backend::file::schema::{self, BLOB, DATA, KINDS, Kind, Settings, TTL_EXPIRY, TTL_KEY, Tables};
use crate::error::{Error, Result};

/// Catalogue of families, as one transaction sees it, read without SQL.
pub(in crate::backend) struct Catalogue<'d> {
    here: BtreeOperation<'d>,
    root: u32,
}

impl BtreeConnection {
    /// Returns the catalogue of families; `None` if its table does not have the form that this
    /// library creates, so that SQL must read it.
    pub(in crate::backend) fn catalogue<'d>(&'d self, db: &'d Db) -> Result<Option<Catalogue<'d>>> {
        let (here, _) = self.begin_list_operation(db)?;
        let root = self.list.borrow().catalogue;
        Ok((root != 0).then_some(Catalogue { here, root }))
    }

    /// Returns `true` if every row of SQLite's list of tables could be decoded and agrees with its
    /// SQL text, and each table has a root page of its own.
    pub(in crate::backend) fn list_is_plain(&self, db: &Db) -> Result<bool> {
        let (_here, _) = self.begin_list_operation(db)?;
        let list = self.list.borrow();
        Ok(list.is_plain && !list.shares_a_root)
    }

    /// Returns the integers that the table kvstore_meta contains under these names; `None` for a
    /// name without an integer. The outer `None` means that SQL must read the table.
    pub(in crate::backend) fn meta<const N: usize>(
        &self,
        db: &Db,
        names: [&str; N],
    ) -> Result<Option<[Option<i64>; N]>> {
        let (here, _) = self.begin_list_operation(db)?;
        let root = self.list.borrow().meta;
        if root == 0 {
            return Ok(None);
        }
        let mut found = [None; N];
        here.with(root, Order::Key, |tree, cursor| {
            for (number, name) in found.iter_mut().zip(names) {
                if tree.seek(cursor, |sought| record::name_row(sought, name))? != Ordering::Equal {
                    continue;
                }
                let mut columns = Columns::of(cursor.record()?).map_err(|_| not_a_record("kvstore_meta"))?;
                let mut column = || columns.next().map_err(|_| not_a_record("kvstore_meta"));
                let [_name, value] = [column()?, column()?];
                if let Value::Integer(value) = value {
                    *number = Some(value);
                }
            }
            Ok(())
        })?;
        Ok(Some(found))
    }

    /// Creates a family in the open write transaction: its data table, its view and its row in the
    /// catalogue. Returns `false`, without a change of the file, if SQL must create it.
    pub(in crate::backend) fn create_family(&self, db: &Db, tables: &Tables, now_ms: i64) -> Result<bool> {
        let Some(mut making) = Making::begin(self, db, tables)? else { return Ok(false) };
        let catalogue = self.list.borrow().catalogue;
        if making.listed != Listed::default() || catalogue == 0 {
            return Ok(false);
        }
        making.here.with(catalogue, Order::Key, |tree, cursor| {
            tree.seek(cursor, |sought| record::name_row(sought, tables.family()))?;
            making.here.with_record(tables.family().len(), |record| {
                record::family_row(record, tables.family(), now_ms);
                cursor.put(record)
            })
        })?;
        making.table(&DATA)?;
        making.view(false)?;
        making.end()?;
        Ok(true)
    }

    /// Creates the key index and the expiry index of a family. Returns `false`, without a change of
    /// the file, if SQL must create them.
    pub(in crate::backend) fn create_ttl_tables(&self, db: &Db, tables: &Tables) -> Result<bool> {
        let Some(mut making) = Making::begin(self, db, tables)? else { return Ok(false) };
        making.table(&TTL_KEY)?;
        making.table(&TTL_EXPIRY)?;
        making.end()?;
        Ok(true)
    }

    /// Creates the table of large values of a family. Returns `false`, without a change of the
    /// file, if SQL must create it.
    pub(in crate::backend) fn create_blob_table(&self, db: &Db, tables: &Tables) -> Result<bool> {
        let Some(mut making) = Making::begin(self, db, tables)? else { return Ok(false) };
        making.table(&BLOB)?;
        making.view(true)?;
        making.end()?;
        Ok(true)
    }
}

impl Catalogue<'_> {
    /// Returns the settings of a family; `None` if there is no family of that name.
    pub(in crate::backend) fn find(&self, family: &str) -> Result<Option<Settings>> {
        self.here.with(self.root, Order::Key, |tree, cursor| {
            if tree.seek(cursor, |sought| record::name_row(sought, family))? != Ordering::Equal {
                return Ok(None);
            }
            let mut columns = Columns::of(cursor.record()?).map_err(|_| not_a_record("kvstore_family"))?;
            let mut number = || match columns.next() {
                Ok(Value::Integer(number)) => Ok(Some(number)),
                Ok(_) => Ok(None),
                Err(_) => Err(not_a_record("kvstore_family")),
            };
            let [_name, _created, default_ttl_ms, track_writes] =
                [number()?, number()?, number()?, number()?];
            Ok(Some(Settings::of(default_ttl_ms, track_writes)))
        })
    }

    /// Returns the names of all families, in byte order.
    pub(in crate::backend) fn names(&self) -> Result<Vec<String>> {
        self.here.with(self.root, Order::Key, |_, cursor| {
            let mut names = Vec::new();
            let mut room = self.here.room();
            let mut there = cursor.first()?;
            while there {
                room = room.checked_sub(1).ok_or_else(scan::in_circles)?;
                let name = Columns::of(cursor.record()?).and_then(|mut columns| columns.next());
                let name = match name.map_err(|_| not_a_record("kvstore_family"))? {
                    Value::Text(name) => std::str::from_utf8(name).ok(),
                    _ => None,
                };
                names.push(name.ok_or_else(schema::no_name)?.to_owned());
                there = cursor.next()?;
            }
            Ok(names)
        })
    }
}

fn not_a_record(table: &str) -> Error {
    damaged(format!("a row of {table} is not a record"))
}

/// Creation of tables and the view of a family, in progress in the open write transaction.
struct Making<'d> {
    btree: &'d BtreeConnection,
    here: BtreeOperation<'d>,
    tables: &'d Tables,
    /// Schema cookie of the open transaction before the tables are created.
    cookie: u32,
    /// Root pages of the tables of the family that exist so far, and the rowid of its view in
    /// sqlite_schema.
    listed: Listed,
}

impl<'d> Making<'d> {
    /// Begins to create tables. Returns `None` if SQL must create them: the list of tables cannot
    /// be decoded, a table or view of the family does not have the form that this library creates,
    /// or the open transaction is not a write transaction.
    fn begin(btree: &'d BtreeConnection, db: &'d Db, tables: &'d Tables) -> Result<Option<Making<'d>>> {
        let (here, cookie) = btree.begin_list_operation(db)?;
        let list = btree.list.borrow();
        let listed = list.of(tables);
        if !list.is_plain || listed.odd || !btree.tree.is_writing() {
            return Ok(None);
        }
        btree.made_tables.set(true);
        Ok(Some(Making { btree, here, tables, cookie, listed }))
    }

    /// Creates the family's table of this kind, unless it exists.
    fn table(&mut self, kind: &Kind) -> Result<()> {
        let at = KINDS.iter().position(|known| known.name == kind.name);
        let Some(page) = at.and_then(|at| self.listed.pages.get_mut(at)) else { return Ok(()) };
        if *page != 0 {
            return Ok(());
        }
        // SQLite may move a page to make space for the new one, so no cursor or page may be open.
        self.btree.clear();
        let root = self.btree.tree.create(if kind.key == 0 { Order::Rowid } else { Order::Key })?;
        *page = root;
        let name = format!("{}:{}", kind.name, self.tables.suffix);
        let sql = format!("CREATE TABLE {}{}", schema::quote(&name), kind.definition);
        self.list(None, "table", &name, root, &sql).map(drop)
    }

    /// Creates the view of the family, or replaces the existing view. If `with_blobs` is set, the
    /// view includes large values.
    fn view(&mut self, with_blobs: bool) -> Result<()> {
        let name = format!("{VIEW}:{}", self.tables.suffix);
        let sql = schema::live_view(self.tables, with_blobs);
        self.listed.view = Some(self.list(self.listed.view, "view", &name, 0, &sql)?);
        Ok(())
    }

    /// Writes a row of sqlite_schema for a table or view and returns its rowid. `at` is the rowid
    /// of the row to replace; `None` adds a row at the end. `kind` is `table` or `view`; a view has
    /// `root` 0.
    fn list(&self, at: Option<i64>, kind: &str, name: &str, root: u32, sql: &str) -> Result<i64> {
        self.here.with(LIST, Order::Rowid, |_, cursor| {
            let rowid = match at {
                Some(rowid) => {
                    cursor.seek_rowid(rowid)?;
                    rowid
                }
                None => {
                    let last = if cursor.last()? { cursor.rowid()? } else { 0 };
                    last.checked_add(1).ok_or_else(|| damaged("the list of tables has no room"))?
                }
            };
            self.here.with_record(2 * name.len() + sql.len(), |record| {
                record::schema_row(record, kind, name, root, sql);
                cursor.put_rowid(rowid, record)
            })?;
            Ok(rowid)
        })
    }

    /// Ends the creation: changes the schema cookie, by which other connections detect the new
    /// tables, and updates the cached list of tables.
    fn end(self) -> Result<()> {
        self.btree.tables_made(self.cookie, self.tables, self.listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::file::engine::Engine;
    use crate::config::Config;

    /// Returns every row of the list of tables and of the catalogue, sorted.
    fn written(db: &Db) -> Vec<String> {
        let sql = "SELECT format('%s %s %s %d %s', type, name, tbl_name, rootpage, sql) FROM sqlite_schema
                   UNION ALL SELECT format('%s %d %d %d', name, created_ms, default_ttl_ms, track_writes)
                   FROM kvstore_family ORDER BY 1";
        let mut statement = db.switch_to_sql().unwrap().prepare(sql).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    }

    const NAMES: [&str; 6] = ["a", "Users", "with \"quotes\"", "blank s:and'colons", "ü^", "zz"];

    fn make_families(db: &Db) -> Result<()> {
        for name in NAMES {
            let tables = Tables::of(name);
            assert!(db.create_family(&tables, 1_800_000_000_000)?);
            assert!(!db.create_family(&tables, 1)?);
            db.create_ttl_tables(&tables)?;
            db.create_ttl_tables(&tables)?;
            if name != "a" {
                db.create_blob_table(&tables)?;
                db.create_blob_table(&tables)?;
            }
            assert!(db.rows().put_plain(&tables, b"key", b"value")?);
        }
        Ok(())
    }

    #[test]
    fn btree_engine_creates_same_tables_as_sql() {
        let rows: Vec<_> = [true, false]
            .into_iter()
            .map(|sql| {
                let mut db = Db::open(None, &Config::new().sql_engine(sql), 1).unwrap();
                db.begin_write().unwrap();
                make_families(&db).unwrap();
                assert_eq!(db.btree.as_ref().is_some_and(|btree| btree.made_tables.get()), !sql);
                db.commit().unwrap();
                db.integrity_check().unwrap();
                written(&db)
            })
            .collect();
        assert_eq!(rows[0].len(), 2 + 2 + 1 + 4 + 5 * 5 + 6);
        assert_eq!(rows[0], rows[1]);
    }

    #[test]
    fn families_are_created_and_used_without_sql() {
        let dir = tempfile::tempdir().unwrap();
        let mut db = Db::open(Some(&dir.path().join("store.db")), &Config::new(), 1).unwrap();
        db.in_own_transaction(true, |db| {
            make_families(db)?;
            assert_eq!(db.settings(&Tables::of("zz"))?.default_ttl_ms, 0);
            assert_eq!(db.families()?.len(), 1 + NAMES.len());
            assert!(
                db.btree.as_ref().is_some_and(BtreeConnection::is_writing),
                "SQL has joined the transaction"
            );
            Ok(())
        })
        .unwrap();
        db.integrity_check().unwrap();
    }

    #[test]
    fn externally_changed_tables_are_handled_by_sql() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let mut db = Db::open(Some(&path), &Config::new(), 1).unwrap();
        let in_the_way = rusqlite::Connection::open(&path).unwrap();
        let tables = Tables::of("a");
        let mut make = |sql: &str, f: &dyn Fn(&Db) -> Result<()>| {
            in_the_way.execute_batch(sql).unwrap();
            db.in_own_transaction(true, |db| {
                f(db)?;
                Ok(db.btree.as_ref().is_some_and(BtreeConnection::is_writing))
            })
        };
        let create = |db: &Db| db.create_family(&tables, 1).map(drop);
        // SQL returns the reason why the family cannot be created.
        for sql in [
            "CREATE TABLE \"DATA:a\"(x)",
            "DROP TABLE \"DATA:a\"; CREATE VIEW \"live:a\" AS SELECT 1 AS x; CREATE VIEW \"data:a\" AS SELECT 1",
            "DROP VIEW \"data:a\"; CREATE TABLE x(y); CREATE INDEX \"data:a\" ON x(y)",
        ] {
            assert!(make(sql, &create).unwrap_err().to_string().contains("already"), "{sql}");
        }
        assert!(!make("DROP TABLE x", &create).unwrap(), "a view in the way is replaced by SQL");
        let create_ttl = |db: &Db| db.create_ttl_tables(&tables);
        assert!(!make("CREATE TABLE \"ttl_key:a\"(theirs)", &create_ttl).unwrap());
        assert!(make("DROP TABLE \"ttl_key:a\"; DROP TABLE \"ttl_expiry:a\"", &create_ttl).unwrap());
        db.integrity_check().unwrap();
    }

    #[test]
    fn rollback_removes_new_tables_from_sql_schema_cache() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let mut db = Db::open(Some(&path), &Config::new(), 1).unwrap();
        let mut other = Db::open(Some(&path), &Config::new(), 1).unwrap();
        let (lost, kept) = (Tables::of("lost"), Tables::of("kept"));
        db.begin_write().unwrap();
        db.create_family(&lost, 1).unwrap();
        assert_eq!(written(&db).len(), 2 + 2 + 2 + 2);
        db.rollback().unwrap();
        // An equal number of changes results in the same schema cookie.
        other.begin_write().unwrap();
        other.create_family(&kept, 1).unwrap();
        other.commit().unwrap();
        let has = |table: &str| {
            db.read_number(&format!("SELECT count(*) FROM \"data:{table}\"")).map_err(|e| e.to_string())
        };
        assert_eq!(has("kept"), Ok(0));
        assert!(has("lost").unwrap_err().starts_with("no such table"));
        assert_eq!(db.rows().count(&kept).unwrap(), 0);
        assert!(db.rows().count(&lost).unwrap_err().to_string().contains("was dropped"));
        assert_eq!(db.families().unwrap(), ["default", "kept"]);
    }
}

//! Plain SQLite of the same version and with the same compile flags, as an application would use
//! it: a WITHOUT ROWID table, prepared statements, WAL, synchronous NORMAL, defaults otherwise. The
//! TTL is an indexed column.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, Statement};

use crate::store::{Key, Mode, Seen, Store, now_ms};

struct Sqlite {
    // Declared before the connection, because they refer to it and must be dropped first.
    get: Statement<'static>,
    exists: Statement<'static>,
    scan: Statement<'static>,
    prefix: Statement<'static>,
    put: Statement<'static>,
    delete: Statement<'static>,
    purge: Option<Statement<'static>>,
    touch: Option<Statement<'static>>,
    begin: Statement<'static>,
    commit: Statement<'static>,
    conn: Box<Connection>,
    path: PathBuf,
    mode: Mode,
}

// SAFETY: one thread at a time, and SQLite is compiled with its mutexes.
unsafe impl Send for Sqlite {}

pub fn open(path: &Path, mode: Mode) -> Box<dyn Store> {
    Box::new(try_open(path, mode).expect("SQLite opens"))
}

fn try_open(path: &Path, mode: Mode) -> rusqlite::Result<Sqlite> {
    let conn = Box::new(Connection::open(path)?);
    // Waits while another handle opens the file.
    conn.busy_timeout(std::time::Duration::from_secs(5))?;
    let sync = if mode.sync { "FULL" } else { "NORMAL" };
    conn.execute_batch(&format!("PRAGMA journal_mode = WAL; PRAGMA synchronous = {sync};"))?;
    if !conn.table_exists(None, "t")? {
        conn.execute_batch(if mode.ttl {
            "CREATE TABLE t(key BLOB PRIMARY KEY, value BLOB, expire_ms INTEGER) WITHOUT ROWID;
             CREATE INDEX t_expire ON t(expire_ms);"
        } else {
            "CREATE TABLE t(key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID;"
        })?;
    }
    // SAFETY: the connection is in a box, and dropped after its statements.
    let lasting: &'static Connection = unsafe { &*std::ptr::from_ref(conn.as_ref()) };
    let prepare = |sql: &str| lasting.prepare(&sql.replace("LIVE", "(expire_ms IS NULL OR expire_ms > ?2)"));
    let select = |ttl: &str, plain: &str| prepare(if mode.ttl { ttl } else { plain });
    Ok(Sqlite {
        get: select("SELECT value FROM t WHERE key = ?1 AND LIVE", "SELECT value FROM t WHERE key = ?1")?,
        exists: select("SELECT 1 FROM t WHERE key = ?1 AND LIVE", "SELECT 1 FROM t WHERE key = ?1")?,
        scan: select(
            "SELECT key, value FROM t WHERE (expire_ms IS NULL OR expire_ms > ?1) ORDER BY key",
            "SELECT key, value FROM t ORDER BY key",
        )?,
        prefix: select(
            "SELECT key, value FROM t WHERE key >= ?1 AND key < ?3 AND LIVE ORDER BY key",
            "SELECT key, value FROM t WHERE key >= ?1 AND key < ?2 ORDER BY key",
        )?,
        put: select("REPLACE INTO t VALUES(?1, ?2, ?3)", "REPLACE INTO t VALUES(?1, ?2)")?,
        delete: prepare("DELETE FROM t WHERE key = ?1")?,
        purge: if mode.ttl { Some(prepare("DELETE FROM t WHERE expire_ms <= ?1")?) } else { None },
        touch: if mode.ttl {
            Some(prepare("UPDATE t SET expire_ms = ?3 WHERE key = ?1 AND LIVE RETURNING value")?)
        } else {
            None
        },
        begin: prepare("BEGIN IMMEDIATE")?,
        commit: prepare("COMMIT")?,
        conn,
        path: path.to_path_buf(),
        mode,
    })
}

impl Sqlite {
    fn write(&mut self, key: &[u8], value: &[u8], expire_ms: i64) -> rusqlite::Result<usize> {
        if self.mode.ttl {
            self.put.execute((key, value, (expire_ms > 0).then_some(expire_ms)))
        } else {
            self.put.execute((key, value))
        }
    }
}

fn walk(mut rows: rusqlite::Rows) -> rusqlite::Result<Seen> {
    let mut seen = Seen::default();
    while let Some(row) = rows.next()? {
        seen.row(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?);
    }
    Ok(seen)
}

impl Store for Sqlite {
    fn get_with(&mut self, key: &[u8], f: &mut dyn FnMut(&[u8])) -> bool {
        let rows = if self.mode.ttl { self.get.query((key, now_ms())) } else { self.get.query([key]) };
        let mut rows = rows.expect("a query");
        let row = rows.next().expect("a step");
        row.map(|row| f(row.get_ref(0).expect("a column").as_blob().expect("a blob"))).is_some()
    }

    fn exists(&mut self, key: &[u8]) -> bool {
        let rows = if self.mode.ttl { self.exists.query((key, now_ms())) } else { self.exists.query([key]) };
        rows.expect("a query").next().expect("a step").is_some()
    }

    fn scan(&mut self) -> Seen {
        let rows = if self.mode.ttl { self.scan.query([now_ms()]) } else { self.scan.query([]) };
        walk(rows.expect("a query")).expect("a scan")
    }

    fn prefix(&mut self, prefix: &[u8]) -> Seen {
        let end = super::after(prefix);
        let rows = if self.mode.ttl {
            self.prefix.query((prefix, now_ms(), end))
        } else {
            self.prefix.query((prefix, end))
        };
        walk(rows.expect("a query")).expect("a scan")
    }

    fn first(&mut self) -> bool {
        let mut rows = self.scan.query([now_ms()]).expect("a query");
        rows.next().expect("a step").is_some()
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.write(key, value, 0).expect("a write");
    }

    fn put_ttl(&mut self, key: &[u8], value: &[u8], expire_ms: i64) {
        self.write(key, value, expire_ms).expect("a write");
    }

    fn delete(&mut self, key: &[u8]) {
        self.delete.execute([key]).expect("a delete");
    }

    fn write_all<'a>(&mut self, count: usize, write: &mut dyn FnMut(usize) -> (Key, &'a [u8], i64)) {
        self.begin.execute([]).expect("begin");
        for i in 0..count {
            let (key, value, expire_ms) = write(i);
            self.write(&key, value, expire_ms).expect("a write");
        }
        self.commit.execute([]).expect("commit");
    }

    fn purge(&mut self) -> u64 {
        self.purge.as_mut().expect("TTLs").execute([now_ms()]).expect("a purge") as u64
    }

    fn delete_all(&mut self, keys: &[Key]) {
        self.begin.execute([]).expect("begin");
        for key in keys {
            self.delete.execute([key]).expect("a delete");
        }
        self.commit.execute([]).expect("commit");
    }

    fn modify(&mut self, key: &[u8], f: &mut dyn FnMut(&mut [u8])) -> bool {
        self.begin.execute([]).expect("begin");
        let mut copy = Vec::new();
        let found = self.get_with(key, &mut |value| copy.extend_from_slice(value));
        if found {
            f(&mut copy);
            self.write(key, &copy, 0).expect("a write");
        }
        self.commit.execute([]).expect("commit");
        found
    }

    fn touch(&mut self, key: &[u8], expire_ms: i64, f: &mut dyn FnMut(&[u8])) -> bool {
        let touch = self.touch.as_mut().expect("TTLs");
        let mut rows = touch.query((key, now_ms(), expire_ms)).expect("a query");
        let mut found = false;
        // The statement commits only when it has returned its last row.
        while let Some(row) = rows.next().expect("a step") {
            f(row.get_ref(0).expect("a column").as_blob().expect("a blob"));
            found = true;
        }
        found
    }

    fn settle(&mut self) {
        let busy: i64 =
            self.conn.query_row("PRAGMA wal_checkpoint(FULL)", [], |row| row.get(0)).expect("a checkpoint");
        assert_eq!(busy, 0, "the checkpoint is incomplete");
    }

    fn another(&self) -> Box<dyn Store> {
        open(&self.path, self.mode)
    }
}

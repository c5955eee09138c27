//! SQL statements that store content which the library never would.

/// Statements for a sound file, each of which is one damage. `{data}` and so on are tables of the
/// family `ttl`.
pub fn all() -> Vec<String> {
    let mut all: Vec<String> = STATEMENTS.iter().map(|&sql| sql.to_owned()).collect();
    for value in VALUES {
        for column in ["created_ms", "default_ttl_ms", "track_writes"] {
            all.push(format!(
                "UPDATE kvstore_family SET {column} = {value} WHERE name IN ('ttl', 'Tracked')"
            ));
        }
        all.push(format!("UPDATE OR REPLACE kvstore_family SET name = {value} WHERE name = 'ttl'"));
        all.push(format!("INSERT OR REPLACE INTO kvstore_family VALUES({value}, {value}, {value}, {value})"));
        for column in ["value", "expire_ms", "blob_id", "written_ms"] {
            all.push(format!("UPDATE {{data}} SET {column} = {value}"));
            all.push(format!("UPDATE \"data:^Tracked\" SET {column} = {value}"));
            all.push(format!("UPDATE \"data:large\" SET {column} = {value}"));
        }
        all.push(format!("UPDATE OR REPLACE {{data}} SET key = {value} WHERE key > x'05'"));
        all.push(format!("UPDATE \"blob:large\" SET value = {value}"));
        all.push(format!("UPDATE {{ttl_key}} SET expire_ms = {value}"));
        all.push(format!("UPDATE OR REPLACE {{ttl_key}} SET key = {value} WHERE key > x'05'"));
        for table in ["{ttl_expiry}", "\"written:^Tracked\""] {
            all.push(format!("INSERT OR REPLACE INTO {table} VALUES({value}, {value})"));
            all.push(format!("INSERT OR REPLACE INTO {table} VALUES({value}, x'0300')"));
            all.push(format!("INSERT OR REPLACE INTO {table} VALUES(5, {value})"));
        }
    }
    for sql in &mut all {
        for table in ["data", "blob", "ttl_key", "ttl_expiry", "written"] {
            *sql = sql.replace(&format!("{{{table}}}"), &format!("\"{table}:ttl\""));
        }
    }
    all
}

/// Values of all types, and those at the edges.
const VALUES: [&str; 19] = [
    "NULL",
    "0",
    "1",
    "2",
    "-1",
    "9223372036854775807",
    "-9223372036854775808",
    "1.5",
    "-1e308",
    "'text'",
    "''",
    "'kvstore_family'",
    "'__x'",
    "'a' || char(0) || 'b'",
    "replace(printf('%300s', ''), ' ', 'n')",
    "x''",
    "x'00'",
    "x'ff'",
    "CAST(x'fffe80' AS TEXT)",
];

const STATEMENTS: &[&str] = &[
    // The application id and version.
    "PRAGMA user_version = 2",
    "PRAGMA user_version = 0",
    "PRAGMA user_version = -1",
    "PRAGMA application_id = 1",
    "PRAGMA auto_vacuum = 1; VACUUM",
    "PRAGMA auto_vacuum = 0; VACUUM",
    "PRAGMA journal_mode = wal",
    // A family without its tables, tables without their family.
    "DROP TABLE {data}",
    "DROP TABLE {ttl_key}",
    "DROP TABLE {ttl_expiry}",
    "DROP TABLE \"written:^Tracked\"",
    "DROP TABLE \"blob:large\"",
    "DROP VIEW \"live:ttl\"",
    "DROP TABLE kvstore_meta",
    "DROP TABLE kvstore_family",
    "DELETE FROM kvstore_family",
    "DELETE FROM kvstore_family WHERE name = 'ttl'",
    "DELETE FROM kvstore_meta",
    // Large values.
    "UPDATE \"data:large\" SET blob_id = 1",
    "UPDATE \"data:large\" SET blob_id = 4 - blob_id",
    "UPDATE \"data:large\" SET blob_id = 99",
    "UPDATE \"data:large\" SET value = x'01'",
    "UPDATE \"data:large\" SET value = NULL, blob_id = NULL",
    "UPDATE \"blob:large\" SET id = 9223372036854775807 WHERE id = 1",
    "UPDATE \"blob:large\" SET id = -9223372036854775808 WHERE id = 1",
    "UPDATE \"blob:large\" SET id = 0 WHERE id = 1; UPDATE \"data:large\" SET blob_id = 0 WHERE blob_id = 1",
    "DELETE FROM \"blob:large\"",
    "UPDATE {data} SET blob_id = 1, value = NULL",
    // Indexes by time that disagree with the rows.
    "INSERT INTO {ttl_expiry} SELECT expire_ms + 1, key FROM {data}",
    "INSERT OR REPLACE INTO {ttl_expiry} SELECT -9223372036854775808, key FROM {data}",
    "INSERT OR REPLACE INTO {ttl_expiry} SELECT 5, x''",
    "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 3000)
     INSERT INTO {ttl_expiry} SELECT n, x'0b00' FROM n",
    "DELETE FROM {ttl_expiry}",
    "DELETE FROM {ttl_key}",
    "UPDATE {data} SET expire_ms = NULL",
    "UPDATE \"data:^Tracked\" SET written_ms = written_ms + 1",
    "DELETE FROM \"written:^Tracked\"",
    // Other table definitions: other keys, other orders, other columns.
    "DROP TABLE {data}; CREATE TABLE {data}(key TEXT PRIMARY KEY DESC, value, expire_ms, blob_id, written_ms)",
    "DROP TABLE {data}; CREATE TABLE {data}(key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID",
    "DROP TABLE {data}; CREATE TABLE {data}(a, b, c, d, e, f, g, h)",
    "DROP TABLE {ttl_expiry}; CREATE TABLE {ttl_expiry}(expire_ms INTEGER PRIMARY KEY, key BLOB)",
    "DROP TABLE {ttl_key}; CREATE TABLE {ttl_key}(key BLOB, expire_ms INTEGER)",
    "DROP TABLE \"blob:large\"; CREATE TABLE \"blob:large\"(id TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID",
    "CREATE UNIQUE INDEX i ON {data}(value)",
    "CREATE INDEX i ON {data}(abs(expire_ms))",
    "ALTER TABLE {data} ADD COLUMN more AS (length(value))",
    "CREATE TRIGGER t AFTER INSERT ON {data} BEGIN DELETE FROM kvstore_family; END",
    "DROP TABLE kvstore_family; CREATE TABLE kvstore_family(name, default_ttl_ms, track_writes);
     INSERT INTO kvstore_family VALUES('default', 'x', 'y'), ('default', 1, 2), (NULL, 0, 0), (5, 5, 5)",
    // Views, which can have any number of rows.
    "DROP TABLE {data}; CREATE VIEW {data} AS SELECT x'61' AS key, x'62' AS value, 7 AS expire_ms, 8 AS blob_id,
     9 AS written_ms",
    "DROP TABLE {data}; CREATE VIEW {data} AS WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n)
     SELECT CAST(n AS BLOB) AS key, x'62' AS value, NULL AS expire_ms, NULL AS blob_id, NULL AS written_ms FROM n",
    "DROP TABLE {ttl_expiry}; CREATE VIEW {ttl_expiry} AS WITH RECURSIVE n(n) AS
     (SELECT 1 UNION ALL SELECT n + 1 FROM n) SELECT n AS expire_ms, CAST(n AS BLOB) AS key FROM n",
    "DROP TABLE kvstore_family; CREATE VIEW kvstore_family AS WITH RECURSIVE n(n) AS
     (SELECT 1 UNION ALL SELECT n + 1 FROM n) SELECT 'n' || n AS name, 0 AS created_ms, 0 AS default_ttl_ms,
     0 AS track_writes FROM n",
    "DROP TABLE kvstore_meta; CREATE VIEW kvstore_meta AS WITH RECURSIVE n(n) AS
     (SELECT 1 UNION ALL SELECT n + 1 FROM n) SELECT n AS name, n AS value FROM n",
    "DROP VIEW \"live:ttl\"; CREATE VIEW \"live:ttl\" AS SELECT * FROM nowhere",
    // The schema itself.
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = 0 WHERE name = 'data:ttl'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = 1 WHERE name = 'data:ttl'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = 99999 WHERE name = 'data:ttl'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = -1 WHERE name = 'data:ttl'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = 4294967297 WHERE name = 'data:ttl'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = 'x' WHERE name = 'data:ttl'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage =
     (SELECT rootpage FROM sqlite_schema WHERE name = 'ttl_expiry:ttl') WHERE name = 'data:ttl'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage =
     (SELECT rootpage FROM sqlite_schema WHERE name = 'data:ttl') WHERE name IN ('ttl_expiry:ttl', 'ttl_key:ttl')",
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage =
     (SELECT rootpage FROM sqlite_schema WHERE name = 'data:deep') WHERE name = 'blob:large'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage =
     (SELECT rootpage FROM sqlite_schema WHERE name = 'blob:large') WHERE name = 'data:deep'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage =
     (SELECT rootpage FROM sqlite_schema WHERE name = 'data:deep') WHERE name = 'data:ttl'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage =
     (SELECT rootpage FROM sqlite_schema WHERE name = 'kvstore_family') WHERE name = 'data:ttl'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = 'CREATE TABLE' WHERE name = 'data:ttl'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = NULL WHERE name = 'data:ttl'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET name = NULL, tbl_name = NULL WHERE name = 'data:ttl'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET type = 'view' WHERE name = 'data:ttl'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql =
     'CREATE TABLE \"data:ttl\"(key BLOB, value BLOB, expire_ms INTEGER, blob_id INTEGER, written_ms INTEGER)'
     WHERE name = 'data:ttl'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql =
     'CREATE TABLE \"blob:large\"(id BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID' WHERE name = 'blob:large'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql =
     'CREATE TABLE \"data:ttl\"(key BLOB PRIMARY KEY, value BLOB, expire_ms INTEGER, blob_id INTEGER, written_ms INTEGER,
      CHECK (abs(random()) < 0)) WITHOUT ROWID' WHERE name = 'data:ttl'",
    "PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = 'data:ttl'",
    "PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = 'kvstore_meta'",
    "PRAGMA writable_schema = ON; INSERT INTO sqlite_schema SELECT * FROM sqlite_schema WHERE name LIKE 'data:%'",
    "PRAGMA writable_schema = ON; DELETE FROM sqlite_schema",
];

//! SQL texts of the `sql` engine.

use super::row::TimeIndex;
use crate::backend::file::schema::Tables;

/// Texts of all SQL statements on the tables of one family.
#[derive(Debug, Default)]
pub(in crate::backend) struct Statements {
    pub(super) get: String,
    pub(super) head: String,
    pub(super) put_plain: String,
    pub(super) put: String,
    pub(super) delete_plain: String,
    pub(super) delete: String,
    pub(super) count: String,
    /// Statements of a scan of data rows in key order, from a lower bound on. The first index is 1
    /// for a reverse scan, the second is 1 for a scan with an upper bound.
    pub(super) scan: [[String; 2]; 2],
    pub(super) clear: [String; 5],
    pub(super) blob: String,
    pub(super) blob_insert: String,
    pub(super) blob_insert_at: String,
    pub(super) blob_update: String,
    pub(super) blob_delete: String,
    pub(super) key_put: String,
    pub(super) key_delete: String,
    pub(super) set_expiry: String,
    pub(super) count_expired: String,
    pub(super) expiry: TimeStatements,
    pub(super) written: TimeStatements,
}

/// SQL texts of the statements on a time index.
#[derive(Debug, Default)]
pub(super) struct TimeStatements {
    pub(super) put: String,
    pub(super) delete: String,
    pub(super) walk: String,
}

impl TimeStatements {
    fn of(table: &str, column: &str) -> TimeStatements {
        TimeStatements {
            put: format!(
                "INSERT INTO {table}({column}, key) VALUES(?1, ?2) ON CONFLICT({column}, key) DO NOTHING"
            ),
            delete: format!("DELETE FROM {table} WHERE {column} = ?1 AND key = ?2"),
            walk: format!(
                "SELECT {column}, key FROM {table} WHERE ({column}, key) > (?1, ?2) ORDER BY {column}, key"
            ),
        }
    }
}

// The statements do not use REPLACE. If another program has added a UNIQUE index, REPLACE would
// also delete rows of other keys that conflict in that index.
impl Statements {
    pub(in crate::backend) fn of(tables: &Tables) -> Statements {
        let Tables { data, blob, ttl_key, ttl_expiry, written, .. } = tables;
        const PLAIN: &str = "expire_ms IS NULL AND blob_id IS NULL AND written_ms IS NULL";
        let scan = |reverse: bool, bounded: bool| {
            let upper = if bounded { " AND key < ?2" } else { "" };
            let order = if reverse { " DESC" } else { "" };
            format!(
                "SELECT expire_ms, blob_id, written_ms, value, key FROM {data} WHERE key >= ?1{upper} ORDER BY key{order}"
            )
        };
        Statements {
            get: format!("SELECT expire_ms, blob_id, written_ms, value FROM {data} WHERE key = ?1"),
            head: format!("SELECT expire_ms, blob_id, written_ms FROM {data} WHERE key = ?1"),
            put_plain: format!(
                "INSERT INTO {data}(key, value) VALUES(?1, ?2)
                 ON CONFLICT(key) DO UPDATE SET value = excluded.value WHERE {PLAIN}"
            ),
            put: format!(
                "INSERT INTO {data}(key, value, expire_ms, blob_id, written_ms) VALUES(?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT(key) DO UPDATE SET value = excluded.value, expire_ms = excluded.expire_ms,
                 blob_id = excluded.blob_id, written_ms = excluded.written_ms"
            ),
            delete_plain: format!("DELETE FROM {data} WHERE key = ?1 AND {PLAIN}"),
            delete: format!("DELETE FROM {data} WHERE key = ?1"),
            count: format!("SELECT count(*) FROM {data}"),
            scan: [[scan(false, false), scan(false, true)], [scan(true, false), scan(true, true)]],
            clear: tables.all().map(|table| format!("DELETE FROM {table}")),
            blob: format!("SELECT value FROM {blob} WHERE id = ?1"),
            blob_insert: format!("INSERT INTO {blob}(value) VALUES(?1)"),
            blob_insert_at: format!(
                "INSERT INTO {blob}(id, value) VALUES(?1, ?2) ON CONFLICT(id) DO NOTHING"
            ),
            blob_update: format!("UPDATE {blob} SET value = ?2 WHERE id = ?1"),
            blob_delete: format!("DELETE FROM {blob} WHERE id = ?1"),
            key_put: format!(
                "INSERT INTO {ttl_key}(key, expire_ms) VALUES(?1, ?2)
                 ON CONFLICT(key) DO UPDATE SET expire_ms = excluded.expire_ms"
            ),
            key_delete: format!("DELETE FROM {ttl_key} WHERE key = ?1"),
            set_expiry: format!("UPDATE {data} SET expire_ms = ?2 WHERE key = ?1"),
            count_expired: format!("SELECT count(*) FROM {ttl_expiry} WHERE expire_ms <= ?1"),
            expiry: TimeStatements::of(ttl_expiry, "expire_ms"),
            written: TimeStatements::of(written, "written_ms"),
        }
    }
}

impl Statements {
    pub(super) fn on(&self, index: TimeIndex) -> &TimeStatements {
        match index {
            TimeIndex::Expiry => &self.expiry,
            TimeIndex::Written => &self.written,
        }
    }
}

//! Integrity check: whether the tables are consistent with each other.
//!
//! Whether the server's files are intact is checked by the server's own tools (`pg_amcheck`).

use super::session::Again;
use super::{Db, MAX_KEY_SIZE};
use crate::error::{Error, Result};

/// Inconsistencies that the check searches for: a description, and the query that counts the
/// affected rows. Rows that are still to be corrected after a change of their family
/// (`catalogue.rs`) are not counted. Keys and values are not reported.
const CHECKS: [(&str, &str); 5] = [
    (
        "rows of no family",
        "SELECT count(*) FROM kvstore_row r WHERE NOT EXISTS (SELECT FROM kvstore_family f WHERE f.id = r.family) \
         AND NOT EXISTS (SELECT FROM kvstore_unsettled u WHERE u.family = r.family)",
    ),
    (
        "rows whose key is empty or too long",
        "SELECT count(*) FROM kvstore_row WHERE length(key) NOT BETWEEN 1 AND 2500",
    ),
    (
        "rows whose time of writing is missing, or is there although the family tracks none",
        "SELECT count(*) FROM kvstore_row r JOIN kvstore_family f ON f.id = r.family \
         WHERE f.track_writes <> (r.written_ms IS NOT NULL) \
         AND NOT EXISTS (SELECT FROM kvstore_unsettled u WHERE u.family = r.family)",
    ),
    (
        "families whose default TTL is negative",
        "SELECT count(*) FROM kvstore_family WHERE default_ttl_ms < 0",
    ),
    (
        "default families, of which there is one,",
        "SELECT abs(1 - count(*)) FROM kvstore_family WHERE name = decode('64656661756c74', 'hex')",
    ),
];

/// Checks that the maximum size of a key is the number in the queries of [`CHECKS`].
const _: () = assert!(MAX_KEY_SIZE == 2500);

impl Db {
    /// Fails with [`Corrupt`](crate::error::ErrorKind::Corrupt) if the tables are inconsistent. The
    /// error names each kind of inconsistency, with the number of affected rows.
    pub(crate) fn integrity_check(&self) -> Result<()> {
        self.in_snapshot(|db| {
            let mut found = Vec::new();
            for (what, sql) in CHECKS {
                let rows = db.query(Again::Read, sql, &[])?;
                let count: i64 = rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or_default();
                if count > 0 {
                    found.push(format!("{count} {what}"));
                }
            }
            if found.is_empty() {
                return Ok(());
            }
            Err(Error::corrupt(format!(
                "the store has {}: another program changed its tables, or the server lost data; \
                restore a backup of the server",
                found.join(", ")
            ))
            .of_a_server())
        })
    }
}

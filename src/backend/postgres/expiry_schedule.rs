//! Expired rows of all families: the next expiry time, and the removal.
//!
//! Each operation is one statement that looks at all families. Nothing is cached about the
//! families, which other clients can change at any time.

use std::sync::Arc;

use tokio_postgres::Row;

use super::Db;
use super::error::strange;
use super::session::Again;
use super::write::sql::came;
use super::write::{MAX_STEP, column, count};
use crate::backend::{Due, Removals, Tables};
use crate::error::Result;

/// Returns the earliest expiry time of all families. It reads the first entry of each family in the
/// index by expiry time.
const NEXT_EXPIRY: &str = "SELECT min(d.expire_ms) FROM kvstore_family f CROSS JOIN LATERAL (SELECT r.expire_ms \
    FROM kvstore_row r WHERE r.family = f.id AND r.expire_ms IS NOT NULL ORDER BY r.expire_ms LIMIT 1) d";

/// Maximum number of rows that one run of [`PURGE`] examines. It is larger than [`MAX_STEP`], so
/// that each of many concurrent purges finds rows that no other purge has locked.
macro_rules! looked_at {
    () => {
        "4096"
    };
}

/// Removes up to `$1` expired rows of all families.
///
/// - `due` selects up to 256 families with expired rows, in the order of their earliest expiry
///   time.
/// - `first` selects from each of these families the rows that expired first. The maximum number of
///   rows to examine is divided equally among the families. With few families, these are the rows
///   that expired first in the whole store.
/// - `d` locks rows of `first` that no other transaction has locked, one after another until there
///   are `$1`, and checks their expiry times again.
/// - `w` deletes the rows of `d`.
const PURGE: &str = concat!(
    "WITH due AS MATERIALIZED (SELECT f.id FROM kvstore_family f CROSS JOIN LATERAL (SELECT r.expire_ms FROM kvstore_row r ",
    "WHERE r.family = f.id AND r.expire_ms <= ",
    came!(),
    " ORDER BY r.expire_ms LIMIT 1) x ORDER BY x.expire_ms LIMIT 256), ",
    "first AS MATERIALIZED (SELECT x.* FROM due CROSS JOIN LATERAL (SELECT r.family, r.key, r.expire_ms FROM kvstore_row r ",
    "WHERE r.family = due.id AND r.expire_ms <= ",
    came!(),
    " ORDER BY r.expire_ms, r.key ",
    "LIMIT (SELECT greatest(",
    looked_at!(),
    " / greatest(count(*), 1), 1) FROM due)) x ORDER BY x.expire_ms LIMIT ",
    looked_at!(),
    "), ",
    "d AS MATERIALIZED (SELECT v.family, v.key FROM first CROSS JOIN LATERAL (SELECT r.family, r.key FROM kvstore_row r ",
    "WHERE r.family = first.family AND r.key = first.key AND r.expire_ms <= ",
    came!(),
    " FOR UPDATE SKIP LOCKED) v LIMIT $1), ",
    "w AS (DELETE FROM kvstore_row r USING d WHERE r.family = d.family AND r.key = d.key RETURNING 1) SELECT count(*) FROM w"
);

/// Returns up to `$1` families that have expired rows, with their earliest expiry time.
const DUE: &str = concat!(
    "SELECT f.name, d.expire_ms FROM kvstore_family f CROSS JOIN LATERAL (SELECT r.expire_ms FROM kvstore_row r ",
    "WHERE r.family = f.id AND r.expire_ms <= ",
    came!(),
    " ORDER BY r.expire_ms, r.key LIMIT 1) d ",
    "ORDER BY d.expire_ms LIMIT $1"
);

impl Db {
    /// Returns up to `max` families that contain expired rows now, with their earliest expiry
    /// times. The families whose rows expired first come first.
    pub(crate) fn due(&self, max: usize) -> Result<Due> {
        let rows = self.query(Again::Read, DUE, &[&(max as i64)])?;
        let family = |row: &Row| {
            let name: &[u8] = column(row, 0)?;
            Ok((column(row, 1)?, Arc::new(Tables::of(&String::from_utf8_lossy(name)))))
        };
        let families: Vec<_> = rows.iter().map(family).collect::<Result<_>>()?;
        Ok(Due { looked_at: families.len(), known: families.len(), complete: true, families })
    }

    /// Returns the earliest expiry time in all families, in milliseconds since the Unix epoch,
    /// including that of an expired row; `None` if no row has an expiry time.
    pub(crate) fn next_expiry(&self) -> Result<Option<i64>> {
        let rows = self.query(Again::Read, NEXT_EXPIRY, &[])?;
        column(rows.first().ok_or_else(strange)?, 0)
    }

    /// Removes up to `max` expired keys of all families, earliest expiry time first.
    ///
    /// Keys that other clients are removing or writing are skipped.
    pub(crate) fn purge_all(&self, max: usize) -> Result<Removals> {
        let max = max.min(MAX_STEP) as i64;
        let rows = self.query(Again::Read, PURGE, &[&max])?;
        let removed = count(rows.first().ok_or_else(strange)?, 0)?;
        Ok(Removals::on_server(removed, removed))
    }
}

/// Returns the statements except [`DUE`], for a test of the query plans.
#[cfg(test)]
pub(super) fn statements() -> [String; 2] {
    [NEXT_EXPIRY, PURGE].map(str::to_owned)
}

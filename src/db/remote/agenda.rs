//! When something is due over all families, and removing it. Each is one statement, so there is nothing to be kept in mind
//! about families that others change.

use std::sync::Arc;

use tokio_postgres::Row;

use super::Db;
use super::plan::sql::came;
use super::plan::{MAX_STEP, column, count, strange};
use super::session::Again;
use crate::db::{Due, Tables};
use crate::error::Result;

/// A look at the first entry of each family's index.
const NEXT_EXPIRY: &str = "SELECT min(d.expire_ms) FROM kvstore_family f CROSS JOIN LATERAL (SELECT r.expire_ms \
    FROM kvstore_row r WHERE r.family = f.id AND r.expire_ms IS NOT NULL ORDER BY r.expire_ms LIMIT 1) d";

/// Rows that a step looks at: so many purgers find something to do at the same time, each other rows.
macro_rules! looked_at {
    () => {
        "4096"
    };
}

/// Removes `$1` rows.
///
/// `due`: the families that have something, those first whose first row ended first. `first`: the first rows of as many of
/// them as may get their turn, each family's share of all that are looked at; with a few families that is what
/// ended first of all. `d` locks those of them that nobody else has, one after the other until it has enough, and looks
/// at their ends again.
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

/// Families with their first end, if that is over: `$1` of them.
const DUE: &str = concat!(
    "SELECT f.name, d.expire_ms FROM kvstore_family f CROSS JOIN LATERAL (SELECT r.expire_ms FROM kvstore_row r ",
    "WHERE r.family = f.id AND r.expire_ms <= ",
    came!(),
    " ORDER BY r.expire_ms, r.key LIMIT 1) d ",
    "ORDER BY d.expire_ms LIMIT $1"
);

impl Db {
    /// Returns up to `max` families that contain expired rows now.
    pub(crate) fn due(&self, max: usize) -> Result<Due> {
        let rows = self.query(Again::Read, DUE, &[&(max as i64)])?;
        let family = |row: &Row| {
            let name: &[u8] = column(row, 0)?;
            Ok((column(row, 1)?, Arc::new(Tables::of(&String::from_utf8_lossy(name)))))
        };
        let families: Vec<_> = rows.iter().map(family).collect::<Result<_>>()?;
        Ok(Due { looked_at: families.len(), known: families.len(), complete: true, families })
    }

    /// Returns the earliest expiry time in all families, including that of an expired row.
    pub(crate) fn next_expiry(&self) -> Result<Option<i64>> {
        let rows = self.query(Again::Read, NEXT_EXPIRY, &[])?;
        column(rows.first().ok_or_else(strange)?, 0)
    }

    /// Removes up to `max` expired keys of all families, earliest expiry time first. Returns their
    /// number.
    ///
    /// Keys that other clients are removing or writing are skipped.
    pub(crate) fn purge_all(&self, max: usize) -> Result<u64> {
        let max = max.min(MAX_STEP) as i64;
        let rows = self.query(Again::Read, PURGE, &[&max])?;
        count(rows.first().ok_or_else(strange)?, 0)
    }
}

/// Returns every statement, for a test of the query plans.
#[cfg(test)]
pub(super) fn statements() -> [String; 2] {
    [NEXT_EXPIRY, PURGE].map(str::to_owned)
}

//! Writes that come late, because another transaction has the row.
//!
//! `INSERT … ON CONFLICT` waits for a transaction that has inserted or deleted the same key, and then inserts the row that it
//! had made before the wait: with a life that began then, and may be over. An UPDATE does so when the other is rolled back. No
//! expression in the statement is evaluated after such a wait. So a write that may give a row a life, or a time, does not wait:
//! it fails after [`MAX_DELAY`](crate::db::remote::link::MAX_DELAY), which costs nothing unless that happens, and is done in a
//! transaction that first waits for the row, and makes it if there is none, and then runs the statement. (In the caller's
//! transaction all that does not matter: a life in it begins before the commit, whenever that is.)

use super::strange;
use crate::db::remote::Db;
use crate::db::remote::session::Again;
use crate::error::Result;

/// Locks the rows of families `$1` by keys `$3`, which name their family by its number in `$1`, from 1 on; where there is none,
/// it makes a dead one, which nobody else sees before the commit. (A row is locked before the condition on it is looked at:
/// PostgreSQL's documentation of INSERT.)
pub(super) const LOCK: &str = "WITH g AS MATERIALIZED (SELECT array_agg(f.id ORDER BY a.n) AS ids FROM unnest($1::bytea[]) \
    WITH ORDINALITY AS a (name, n) LEFT JOIN kvstore_family f ON f.name = a.name) \
    INSERT INTO kvstore_row AS r (family, key, value, expire_ms) SELECT g.ids[k.family], k.key, ''::bytea, 0 \
    FROM g CROSS JOIN unnest($2::integer[], $3::bytea[]) AS k (family, key) WHERE g.ids[k.family] IS NOT NULL \
    ON CONFLICT (family, key) DO UPDATE SET value = r.value WHERE false";

impl Db {
    /// Runs `write`, which does nothing and answers `None` if it would have to wait for a row: then again, after `lock`, which
    /// waits. `has_written`: whether what it answers is that it has written.
    pub(super) fn write_on_time<R>(
        &self,
        write: impl Fn() -> Result<Option<R>>,
        lock: impl Fn() -> Result<()>,
        has_written: impl Fn(&R) -> Result<bool>,
    ) -> Result<R> {
        if let Some(done) = write()? {
            return Ok(done);
        }
        self.write_locked(write, lock, has_written)
    }

    /// Runs `write` after `lock`, in the open transaction or in one of its own.
    pub(super) fn write_locked<R>(
        &self,
        write: impl Fn() -> Result<Option<R>>,
        lock: impl Fn() -> Result<()>,
        has_written: impl Fn(&R) -> Result<bool>,
    ) -> Result<R> {
        if self.is_open() {
            return write()?.ok_or_else(strange); // which locks what it sees itself
        }
        self.in_transaction_if(|_| {
            lock()?;
            let done = write()?.ok_or_else(strange)?; // in a transaction there is an answer
            let counts = has_written(&done)?;
            Ok((done, counts))
        })
    }

    /// Waits for rows and keeps others away from them, those first that come first: for each of the keys the number of its
    /// family, from 1 on.
    pub(super) fn lock(&self, families: &[&[u8]], numbers: &[i32], keys: &[&[u8]]) -> Result<()> {
        self.query(Again::No, LOCK, &[&families, &numbers, &keys]).map(drop)
    }
}

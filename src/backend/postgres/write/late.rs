//! Writes that must wait for a row, because another transaction has locked it.
//!
//! `INSERT … ON CONFLICT` waits for a transaction that has inserted or deleted the same key. After
//! the wait, it inserts the row that it computed before the wait. The TTL in this row began before
//! the wait, and may have ended. An UPDATE also uses values from before its wait if the other
//! transaction is rolled back. No expression in the statement is evaluated after such a wait.
//!
//! So a write that may set an expiry time or a write time does not wait: it fails after
//! [`MAX_DELAY`](crate::backend::postgres::connection::MAX_DELAY). This costs nothing unless a wait
//! occurs. In that case, the write is done in a transaction of its own. The transaction first waits
//! for the row and locks it, or inserts a row if there is none; then it runs the statement.
//!
//! Inside the caller's transaction, a wait makes no difference: the TTL begins before the commit,
//! however late the commit is.

use super::strange;
use crate::backend::postgres::Db;
use crate::backend::postgres::session::Again;
use crate::error::Result;

/// Locks the rows with the keys `$3`. `$1` contains the names of families, and `$2` the position in
/// `$1` of the family of each key, from 1 on. If a key has no row, it inserts an expired row, which
/// no other client sees before the commit. (A row is locked before the condition on it is
/// evaluated: PostgreSQL's documentation of INSERT.)
pub(super) const LOCK: &str = "WITH g AS MATERIALIZED (SELECT array_agg(f.id ORDER BY a.n) AS ids FROM unnest($1::bytea[]) \
    WITH ORDINALITY AS a (name, n) LEFT JOIN kvstore_family f ON f.name = a.name) \
    INSERT INTO kvstore_row AS r (family, key, value, expire_ms) SELECT g.ids[k.family], k.key, ''::bytea, 0 \
    FROM g CROSS JOIN unnest($2::integer[], $3::bytea[]) AS k (family, key) WHERE g.ids[k.family] IS NOT NULL \
    ON CONFLICT (family, key) DO UPDATE SET value = r.value WHERE false";

impl Db {
    /// Runs `write`, which does nothing and returns `None` if it would have to wait for a lock. In
    /// that case, runs `lock`, which waits, and then `write` again, both in one transaction.
    /// `has_written` returns `true` if the result of `write` means that rows were written.
    /// Otherwise, that transaction is rolled back.
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

    /// Runs `lock` and then `write` in a transaction of its own, which is committed if
    /// `has_written` returns `true`, and rolled back otherwise. If a transaction is open, runs only
    /// `write` in it.
    pub(super) fn write_locked<R>(
        &self,
        write: impl Fn() -> Result<Option<R>>,
        lock: impl Fn() -> Result<()>,
        has_written: impl Fn(&R) -> Result<bool>,
    ) -> Result<R> {
        if self.is_open() {
            return write()?.ok_or_else(strange); // in an open transaction, `write` waits itself
        }
        self.in_transaction_if(|_| {
            lock()?;
            let done = write()?.ok_or_else(strange)?; // in a transaction, it is never `None`
            let counts = has_written(&done)?;
            Ok((done, counts))
        })
    }

    /// Locks the rows of `keys` in the order of the list, and waits for each lock. `numbers`
    /// contains, for each key, the position of its family in `families`, from 1 on.
    pub(super) fn lock(&self, families: &[&[u8]], numbers: &[i32], keys: &[&[u8]]) -> Result<()> {
        self.query(Again::No, LOCK, &[&families, &numbers, &keys]).map(drop)
    }
}

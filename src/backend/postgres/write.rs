//! Writes to a family. Each is one statement and one round trip.
//!
//! The results of the statements are exact under READ COMMITTED, whatever other clients do at the
//! same time:
//! - A write whose result depends on the row decides under the row's lock: `ON CONFLICT DO UPDATE …
//!   WHERE`, or an UPDATE or DELETE, which checks its condition again after a wait.
//! - An UPDATE or DELETE can wait for a transaction that deletes the row and inserts it again. Then
//!   it finds no row, although the key existed all the time. So a statement that found no row,
//!   although its snapshot contains the row, is run again ([`AGAIN`]). This ends, because another
//!   client makes progress each time.
//! - Each statement finds the family by its name. If there is none, it returns no row. A change of
//!   a family that affects all its rows (drop, write tracking) must exclude writers by a lock on
//!   the table of rows, which each statement takes before its snapshot. No statement locks the row
//!   of the family: all writers would share that lock, which costs a tenth of their speed and a
//!   multixact each time.
//! - In the caller's transaction, which is SERIALIZABLE, the server refuses to overwrite what other
//!   clients have changed since its snapshot. Where the server would not notice such a change, the
//!   statement has another text ([`sql::Text`]).
//! - Whether a row is expired is decided by the server's clock, read under the row's lock. A
//!   statement that has no effect on an expired row does not lock it, so it behaves like a read: it
//!   can find a key expired although a transaction that is not committed yet has extended the TTL
//!   in time (`docs/explanation/postgresql.md`).
//!
//! The statements are fast: they look up family and key in the primary key, and join only with
//! lists of the caller. All variable values are parameters, so that one plan is right for all
//! calls. [`PLANNER`](super::sql_text::PLANNER) prevents plans that are right only for an empty
//! table.
//!
//! Nothing here begins or ends the caller's transaction, or checks the maximum size of a value.

mod batch;
mod late;
pub(super) mod size;
pub(super) mod sql;
#[cfg(test)]
mod tests;

use std::ops::Bound;

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql};

use super::error::{no_longer_exists, strange};
use super::session::Again;
use super::{Db, MAX_KEY_SIZE};
use crate::backend::{Removals, Scan, TransactionState};
use crate::error::{Error, Result};
use crate::expiry::{Expiry, ExpiryCondition};
use crate::hint::Hint;
use crate::options::{Presence, PutOptions};
use crate::unwind::or_undo;
use size::check_size;
use sql::{
    AGAIN, BY_DEFAULT, DELETE, DELETE_BETWEEN, DELETE_FROM, DELETE_IF_EQUAL, DONE, EXPIRE, GET_AND_EXPIRE,
    INCREMENT, LONGEST_LIFE, NO_NUMBER, NOT, PURGE, PUT, PUT_BY_DEFAULT, PUT_FOR, PUT_IF_ABSENT,
    PUT_IF_PRESENT, PUT_WITH, REFUSED, SWAP, SWEEP, UNDO_EXPIRE,
};

/// Maximum number of keys that one step of a purge or a sweep removes.
pub(super) const MAX_STEP: usize = 256;

/// Maximum number of attempts of a conditional write whose outcome is [`AGAIN`], because other
/// clients changed its row during each attempt.
const MAX_TRIES: usize = 1000;

/// Access to the rows of one family on a server, through the connection of a handle.
#[derive(Clone, Copy)]
pub(crate) struct Contents<'c> {
    pub(super) db: &'c Db,
    pub(super) family: &'c str,
}

impl Db {
    /// Returns `true` if the caller has no open transaction, so that each statement has a snapshot
    /// of its own.
    pub(super) fn is_alone(&self) -> bool {
        *self.transaction() == TransactionState::None
    }

    /// Returns the content of a family, as seen through this connection.
    #[inline]
    pub(crate) fn contents<'c>(&'c self, family: &'c str) -> Contents<'c> {
        Contents { db: self, family }
    }
}

/// Returns the TTL in milliseconds from which the server computes the expiry time of a key. It is
/// [`BY_DEFAULT`] for the default TTL of the family, and `None` if `options` contains an expiry
/// time.
fn life(options: &PutOptions) -> Option<i64> {
    options.ttl_ms.or(options.expiry.is_none().then_some(BY_DEFAULT))
}

/// Returns the statement parameter for an expiry time: `None` (NULL) for a key that never expires,
/// [`BY_DEFAULT`] for the default TTL of the family.
fn end_or_default(expiry: Option<Expiry>) -> Option<i64> {
    expiry.map_or(Some(BY_DEFAULT), Expiry::millis)
}

type Params<'p> = &'p [&'p (dyn ToSql + Sync)];

impl Contents<'_> {
    /// Writes a value with options. Returns `true` if the value was written.
    pub(crate) fn put(self, key: &[u8], value: &[u8], options: &PutOptions) -> Result<bool> {
        check_key(key)?;
        check_size([key.len(), value.len()])?;
        let expire_ms = options.expiry.and_then(Expiry::millis);
        let (name, life_ms, written_ms) = (self.name(), life(options), options.written_ms);
        let params: [&(dyn ToSql + Sync); 7] =
            [&name, &key, &value, &expire_ms, &life_ms, &written_ms, &options.keep_ttl];
        match options.only {
            // Three short statements serve nearly all puts, because setting up the execution of a
            // statement is a third of the server's work for a put.
            None => match life_ms {
                _ if options.keep_ttl => self.write(key, PUT_WITH.on(self.db), &params),
                None => self.write(key, PUT.on(self.db), &[&name, &key, &value, &expire_ms, &written_ms]),
                Some(LONGEST_LIFE..) => {
                    self.write(key, PUT.on(self.db), &[&name, &key, &value, &i64::MAX, &written_ms])
                }
                Some(0..) => {
                    self.write(key, PUT_FOR.on(self.db), &[&name, &key, &value, &life_ms, &written_ms])
                }
                Some(_) => self.write(key, PUT_BY_DEFAULT.on(self.db), &[&name, &key, &value, &written_ms]),
            },
            // Only expired keys are overwritten, and they have no expiry time to keep.
            Some(Presence::Absent) => {
                self.decide_on_time(key, PUT_IF_ABSENT.on(self.db), params.get(..6).unwrap_or_default())
            }
            Some(Presence::Present) => self.decide_on_time(key, PUT_IF_PRESENT, &params),
        }
    }

    /// Deletes a key. Returns `true` if the key was live.
    pub(crate) fn delete(self, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        self.decide(Again::Yes, DELETE, &[&self.name(), &key])
    }

    /// Deletes all keys of the family.
    pub(crate) fn clear(self) -> Result<()> {
        self.delete_range(Scan { lower: Bound::Unbounded, upper: Bound::Unbounded, reverse: false }).map(drop)
    }

    /// Deletes the keys of a range. Returns the number of live keys among them.
    pub(crate) fn delete_range(self, range: Scan<'_>) -> Result<u64> {
        let (name, from) = (self.name(), from(range.lower));
        match before(range.upper) {
            Some(before) => self.count_of(Again::Yes, DELETE_BETWEEN, &[&name, &from, &before]),
            None => self.count_of(Again::Yes, DELETE_FROM, &[&name, &from]),
        }
    }

    /// Writes a value with a new expiry time if the key is live and its value equals `expected`.
    /// Returns `true` if it was written.
    pub(crate) fn compare_and_swap(
        self,
        key: &[u8],
        expected: &[u8],
        value: &[u8],
        expiry: Option<Expiry>,
    ) -> Result<bool> {
        check_key(key)?;
        check_size([key.len(), expected.len(), value.len()])?;
        self.decide(Again::No, SWAP, &[&self.name(), &key, &expected, &value, &end_or_default(expiry)])
    }

    /// Deletes a key if it is live and its value equals `expected`. Returns `true` if it was
    /// deleted.
    pub(crate) fn compare_and_delete(self, key: &[u8], expected: &[u8]) -> Result<bool> {
        check_key(key)?;
        check_size([key.len(), expected.len()])?;
        self.decide(Again::No, DELETE_IF_EQUAL, &[&self.name(), &key, &expected])
    }

    /// Adds `delta` to the number in the value of a key. Returns the sum, and the length in bytes
    /// of its decimal text.
    ///
    /// A key that is missing or expired counts as 0. It gets the expiry time `expiry`, or with
    /// `None` the default TTL of the family.
    pub(crate) fn increment(self, key: &[u8], delta: i64, expiry: Option<Expiry>) -> Result<(i64, usize)> {
        check_key(key)?;
        let row = self.settle_on_time(
            key,
            INCREMENT.on(self.db),
            &[&self.name(), &key, &delta, &end_or_default(expiry)],
        )?;
        match column::<i32>(&row, 0)? {
            NO_NUMBER => {
                Err(Error::invalid("the value is not a decimal integer of 64 bits; it was not changed"))
            }
            REFUSED => Err(Error::invalid("the sum does not fit into 64 bits; the value was not changed")),
            _ => {
                let text = std::str::from_utf8(column::<Option<&[u8]>>(&row, 1)?.unwrap_or_default());
                let sum = text.ok().and_then(|text| Some((text.parse().ok()?, text.len())));
                sum.ok_or_else(strange)
            }
        }
    }

    /// Changes the expiry time of a live key if `condition` holds. Returns `true` if it was
    /// changed, `false` if `condition` does not hold, and `None` if the key is missing or expired.
    pub(crate) fn expire(
        self,
        key: &[u8],
        expiry: Expiry,
        condition: ExpiryCondition,
    ) -> Result<Option<bool>> {
        check_key(key)?;
        let (again, condition) = match condition {
            // A second attempt may run after the new expiry time. It would then report the key as
            // expired, although the first attempt has changed it.
            ExpiryCondition::Always => (if expiry == Expiry::Never { Again::Yes } else { Again::No }, 0_i32),
            ExpiryCondition::NoTtl => (Again::No, 1),
            ExpiryCondition::HasTtl => (Again::No, 2),
            ExpiryCondition::Later => (Again::No, 3),
            ExpiryCondition::Earlier => (Again::No, 4),
        };
        let row = self.settle(again, EXPIRE, &[&self.name(), &key, &expiry.millis(), &condition])?;
        Ok(match column(&row, 0)? {
            NOT => None,
            state => Some(state == DONE),
        })
    }

    /// Changes the expiry time of a live key and passes its value to `visit`. Returns `None` if the
    /// key is missing or expired.
    ///
    /// If `visit` fails, the change is undone, unless another client has written the key since.
    pub(crate) fn get_and_expire<R>(
        self,
        key: &[u8],
        expiry: Expiry,
        visit: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<Option<R>> {
        check_key(key)?;
        // A second attempt would not know the old expiry time.
        let row = self.settle(Again::No, GET_AND_EXPIRE, &[&self.name(), &key, &expiry.millis()])?;
        if column::<i32>(&row, 0)? != DONE {
            return Ok(None);
        }
        let (value, old_ms) = (column::<&[u8]>(&row, 1)?, column::<Option<i64>>(&row, 2)?);
        let (written_ms, was_removed) = (column::<Option<i64>>(&row, 3)?, column::<bool>(&row, 4)?);
        // The caller gets the error of `visit`; a failure of the undo is ignored.
        let undo = || match was_removed {
            true => drop(self.undo_removal(key, value, old_ms, written_ms)),
            false => drop(self.undo_expire(key, value, old_ms, expiry)),
        };
        or_undo((), |()| visit(value), |()| undo()).inspect_err(|_| undo()).map(Some)
    }

    fn undo_expire(self, key: &[u8], value: &[u8], old_ms: Option<i64>, given: Expiry) -> Result<()> {
        check_size([key.len(), value.len()])?;
        let params: [&(dyn ToSql + Sync); 5] = [&self.name(), &key, &value, &old_ms, &given.millis()];
        self.ask(Again::Yes, UNDO_EXPIRE, &params).map(drop)
    }

    /// Undoes a change to an expiry time that had already passed, so that the row was removed:
    /// inserts the row again if the key is missing or expired. `undo_expire` inserts no row,
    /// because a missing row may have been deleted by another client.
    fn undo_removal(
        self,
        key: &[u8],
        value: &[u8],
        old_ms: Option<i64>,
        written_ms: Option<i64>,
    ) -> Result<()> {
        let options = PutOptions::new().expiry(Expiry::of_row(old_ms)).if_absent();
        let options = written_ms.map_or(options, |written_ms| options.written_at(written_ms));
        self.put(key, value, &options).map(drop)
    }

    /// Removes up to `max` keys whose expiry time has passed by the server's clock and is `last_ms`
    /// or earlier, earliest expiry time first.
    ///
    /// Keys that other clients are removing or writing are skipped.
    pub(crate) fn purge(self, last_ms: i64, max: usize) -> Result<Removals> {
        self.remove(PURGE, last_ms, max)
    }

    /// Removes up to `max` keys that were written at `last_ms` or earlier, live or expired, the
    /// oldest first.
    ///
    /// Keys that other clients are removing or writing are skipped.
    pub(crate) fn sweep(self, last_ms: i64, max: usize) -> Result<Removals> {
        self.remove(SWEEP, last_ms, max)
    }

    fn remove(self, sql: &str, last_ms: i64, max: usize) -> Result<Removals> {
        let row = self.ask(Again::Yes, sql, &[&self.name(), &last_ms, &step(max)])?;
        Ok(Removals::on_server(count(&row, 0)?, count(&row, 1)?))
    }
}

/// Methods that run statements on a family.
impl<'c> Contents<'c> {
    pub(super) fn name(self) -> &'c [u8] {
        self.family.as_bytes()
    }

    /// Runs a statement that returns one row. Fails if there is no such family.
    pub(super) fn ask(self, again: Again, sql: &str, params: Params<'_>) -> Result<Row> {
        self.only(self.db.query(again, sql, params)?)
    }

    /// Returns the row of a result. Fails if there is none: the family does not exist.
    fn only(self, rows: Vec<Row>) -> Result<Row> {
        rows.into_iter().next().ok_or_else(|| no_longer_exists(self.family))
    }

    /// Runs a put of `key` that may be executed twice, and returns `true`. Fails if the family does
    /// not exist: the statement then writes no row. If another transaction has locked the row of
    /// `key`, the statement is run after the wait for the lock.
    fn write(self, key: &[u8], sql: &str, params: Params<'_>) -> Result<bool> {
        let write = || self.db.session.borrow_mut().write_at_once(sql, params);
        match self.db.write_on_time(write, || self.lock(key), |count| Ok(*count > 0))? {
            0 => Err(no_longer_exists(self.family)),
            _ => Ok(true),
        }
    }

    /// Runs a conditional write and returns its row. Runs it again if its outcome is [`AGAIN`],
    /// because another client has changed the row. `again` is the policy for a retry if the
    /// connection breaks.
    fn settle(self, again: Again, sql: &str, params: Params<'_>) -> Result<Row> {
        let row = until_nobody_came_between(|| self.ask(again, sql, params).map(Some))?;
        row.ok_or_else(strange)
    }

    /// Runs a conditional write that may set an expiry time for `key`, and returns its row. Runs it
    /// again if its outcome is [`AGAIN`]. If another transaction has locked the row of `key`, the
    /// statement is run after the wait for the lock, so that a TTL does not start before.
    fn settle_on_time(self, key: &[u8], sql: &str, params: Params<'_>) -> Result<Row> {
        let write = || {
            until_nobody_came_between(|| {
                let rows = self.db.session.borrow_mut().query_at_once(Again::No, sql, params)?;
                rows.map(|rows| self.only(rows)).transpose()
            })
        };
        self.db.write_on_time(write, || self.lock(key), |row| Ok(column::<i32>(row, 0)? == DONE))
    }

    fn lock(self, key: &[u8]) -> Result<()> {
        self.db.lock(&[self.name()], &[1], &[key])
    }

    fn decide_on_time(self, key: &[u8], sql: &str, params: Params<'_>) -> Result<bool> {
        Ok(column::<i32>(&self.settle_on_time(key, sql, params)?, 0)? == DONE)
    }

    /// Runs a conditional write. Returns `true` if its outcome is [`DONE`], so that it has changed
    /// the row. `again` is the policy for a retry if the connection breaks.
    fn decide(self, again: Again, sql: &str, params: Params<'_>) -> Result<bool> {
        Ok(column::<i32>(&self.settle(again, sql, params)?, 0)? == DONE)
    }

    fn count_of(self, again: Again, sql: &str, params: Params<'_>) -> Result<u64> {
        count(&self.ask(again, sql, params)?, 0)
    }
}

/// Runs a conditional write until its outcome is not [`AGAIN`], and returns its row. Returns `None`
/// if `write` does, because it would have to wait for a lock.
fn until_nobody_came_between(write: impl Fn() -> Result<Option<Row>>) -> Result<Option<Row>> {
    for _ in 0..MAX_TRIES {
        match write()? {
            Some(row) if column::<i32>(&row, 0)? == AGAIN => {}
            done => return Ok(done),
        }
    }
    Err(Error::busy("other clients kept changing the key").with_hint(Hint::Retry))
}

/// Returns a column of a result row.
pub(super) fn column<'r, T: FromSql<'r>>(row: &'r Row, at: usize) -> Result<T> {
    row.try_get(at).map_err(|_| strange())
}

/// Returns a column of a result row as a number of rows.
pub(super) fn count(row: &Row, at: usize) -> Result<u64> {
    u64::try_from(column::<i64>(row, at)?).map_err(|_| strange())
}

pub(super) fn check_key(key: &[u8]) -> Result<()> {
    if key.len() <= MAX_KEY_SIZE {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the key has {} bytes: on a server a key has at most {MAX_KEY_SIZE} bytes, because an index of \
        PostgreSQL allows no more",
        key.len()
    ))
    .with_hint(Hint::UseShorterKey))
}

fn step(max: usize) -> i64 {
    max.min(MAX_STEP) as i64
}

/// Returns the smallest key within a lower bound.
pub(super) fn from(lower: Bound<&[u8]>) -> Vec<u8> {
    match lower {
        Bound::Included(key) => key.to_vec(),
        Bound::Excluded(key) => after(key),
        Bound::Unbounded => Vec::new(),
    }
}

/// Returns the smallest key above an upper bound; `None` if there is no upper bound.
pub(super) fn before(upper: Bound<&[u8]>) -> Option<Vec<u8>> {
    match upper {
        Bound::Included(key) => Some(after(key)),
        Bound::Excluded(key) => Some(key.to_vec()),
        Bound::Unbounded => None,
    }
}

/// Returns the next key in the order of bytes.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

//! What an operation on a family writes: each is one statement, and one round trip.
//!
//! How they are exact under READ COMMITTED, whatever others do at the same time:
//! - A write whose answer depends on the row decides under the row's lock: `ON CONFLICT DO UPDATE … WHERE`, or an UPDATE or
//!   DELETE, which looks at its condition again when it had to wait.
//! - An UPDATE or DELETE that waited for one who deleted the row and made it anew meets nothing, although the key was there
//!   all the time. So a statement that has met nothing, but whose snapshot has the row, is run again ([`AGAIN`]). That
//!   ends: each time somebody else has got on.
//! - The family is found by its name in the same statement; none: no row is answered. What changes a family for all its
//!   rows (dropping it, write tracking) has to keep writers out with a lock on the table of rows, which each statement
//!   takes before its snapshot. No statement locks the row of the family: shared by all writers, that costs a tenth of
//!   their speed and a multixact each time.
//! - A row is dead by the server's clock, read under the lock.
//!
//! How they stay fast: family and key are looked up in the primary key, and nothing but lists of the caller's is joined.
//! With parameters for what is unknown, so that one plan is right for all, and [`PLANNER`] keeps the planner from one that is
//! right for the empty table only.
//!
//! Nothing here begins or ends a transaction, or checks a value.

mod batch;
#[cfg(test)]
mod tests;

use std::ops::Bound;

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql};

use super::catalogue::no_longer_exists;
use super::session::Again;
use super::{Db, MAX_KEY_SIZE};
use crate::db::{Scan, TransactionState};
use crate::error::{Error, Result};
use crate::expiry::{Condition, Expiry};
use crate::options::{Presence, PutOptions};
use crate::unwind::or_undo;
pub(crate) use batch::BatchWrite;
#[cfg(test)]
use batch::{BatchAction, BatchCounts};

/// To be set for each connection to a real PostgreSQL. Plans are made once, when the tables may still be empty and a walk over
/// all of them the best; and every statement has one that is right at any size: by index, one row after the other.
pub(super) const PLANNER: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; \
    SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off";

/// Keys that one step of a purge or a sweep removes at most.
pub(super) const MAX_STEP: usize = 256;

/// How often a statement is run again because others have come between.
const MAX_TRIES: usize = 1000;

/// What conditional writes answer.
const NOT: i32 = 0;
const DONE: i32 = 1;
/// Others have come between: run the statement again.
const AGAIN: i32 = 2;
const REFUSED: i32 = 3;
const NO_NUMBER: i32 = 4;

/// The server's time in milliseconds, from a clock of PostgreSQL.
macro_rules! ms {
    ($clock:literal) => {
        concat!("(floor(extract(epoch from ", $clock, "()) * 1000))::bigint")
    };
}

/// The time now: another one wherever it stands, so no condition for an index.
macro_rules! clock {
    () => {
        $crate::db::remote::plan::ms!("clock_timestamp")
    };
}

/// The time at which the statement came: one for the whole statement, which an index can be searched by.
macro_rules! came {
    () => {
        $crate::db::remote::plan::ms!("statement_timestamp")
    };
}

/// The family that is called `$1`.
macro_rules! with_family {
    () => {
        "WITH f AS MATERIALIZED (SELECT id, default_ttl_ms, track_writes FROM kvstore_family WHERE name = $1)"
    };
}

/// The row of key `$2`.
macro_rules! row {
    () => {
        "r.family = f.id AND r.key = $2"
    };
}

/// Whether row `r` is alive.
macro_rules! live {
    ($now:expr) => {
        concat!("(r.expire_ms IS NULL OR r.expire_ms > ", $now, ")")
    };
}

pub(super) use {came, clock, live, ms, with_family};

/// The columns of a row to be put: `$3` value, `$4` end, `$5` the default TTL instead, `$6` time of writing.
macro_rules! new_row {
    () => {
        concat!(
            "SELECT f.id, $2::bytea, $3::bytea, ",
            "CASE WHEN NOT $5::boolean THEN $4::bigint WHEN f.default_ttl_ms > 0 THEN ",
            came!(),
            " + f.default_ttl_ms END, ",
            "CASE WHEN f.track_writes THEN coalesce($6::bigint, ",
            clock!(),
            ") END"
        )
    };
}

/// The end of a row that takes the place of another: a default TTL begins when the wait for the old one is over.
macro_rules! new_end {
    () => {
        concat!("EXCLUDED.expire_ms + CASE WHEN $5 THEN ", clock!(), " - ", came!(), " ELSE 0 END")
    };
}

/// `$7`: a live key keeps its end.
const PUT: &str = concat!(
    "INSERT INTO kvstore_row AS r (family, key, value, expire_ms, written_ms) ",
    new_row!(),
    " FROM kvstore_family f WHERE f.name = $1 ",
    "ON CONFLICT (family, key) DO UPDATE SET value = EXCLUDED.value, written_ms = EXCLUDED.written_ms, ",
    "expire_ms = CASE WHEN $7::boolean AND ",
    live!(clock!()),
    " THEN r.expire_ms ELSE ",
    new_end!(),
    " END RETURNING 1"
);

/// A try that fails for what its snapshot shows locks and writes nothing.
const PUT_IF_ABSENT: &str = concat!(
    with_family!(),
    ", w AS (INSERT INTO kvstore_row AS r (family, key, value, expire_ms, written_ms) ",
    new_row!(),
    " FROM f WHERE NOT EXISTS (SELECT FROM kvstore_row r WHERE ",
    row!(),
    " AND ",
    live!(clock!()),
    ") ",
    "ON CONFLICT (family, key) DO UPDATE SET value = EXCLUDED.value, written_ms = EXCLUDED.written_ms, expire_ms = ",
    new_end!(),
    " WHERE r.expire_ms <= ",
    clock!(),
    " RETURNING 1) SELECT CASE WHEN EXISTS (SELECT FROM w) THEN 1 ELSE 0 END FROM f"
);

/// The answer to a write of the row: `$state` of what was written in `w`, of the row in the snapshot otherwise.
macro_rules! done_or {
    ($condition:expr) => {
        concat!(
            "SELECT CASE WHEN EXISTS (SELECT FROM w) THEN 1 WHEN EXISTS (SELECT FROM kvstore_row r WHERE ",
            row!(),
            " AND ",
            $condition,
            ") THEN 2 ELSE 0 END FROM f"
        )
    };
}

const PUT_IF_PRESENT: &str = concat!(
    with_family!(),
    ", w AS (UPDATE kvstore_row r SET value = $3::bytea, expire_ms = CASE WHEN $7::boolean THEN r.expire_ms ",
    "WHEN NOT $5::boolean THEN $4::bigint WHEN f.default_ttl_ms > 0 THEN ",
    clock!(),
    " + f.default_ttl_ms END, ",
    "written_ms = CASE WHEN f.track_writes THEN coalesce($6::bigint, ",
    clock!(),
    ") END ",
    "FROM f WHERE ",
    row!(),
    " AND ",
    live!(clock!()),
    " RETURNING 1) ",
    done_or!(live!(came!()))
);

const DELETE: &str = concat!(
    with_family!(),
    ", w AS (DELETE FROM kvstore_row r USING f WHERE ",
    row!(),
    " RETURNING ",
    live!(clock!()),
    " AS live) ",
    "SELECT CASE WHEN EXISTS (SELECT FROM w) THEN (SELECT CASE WHEN live THEN 1 ELSE 0 END FROM w) ",
    "WHEN EXISTS (SELECT FROM kvstore_row r WHERE ",
    row!(),
    ") THEN 2 ELSE 0 END FROM f"
);

/// The keys from `$2` to before `$3`, and all from `$2` on.
const DELETE_BETWEEN: &str = concat!(
    with_family!(),
    ", w AS (DELETE FROM kvstore_row r USING f WHERE r.family = f.id AND r.key >= $2 AND r.key < $3 ",
    "RETURNING ",
    live!(clock!()),
    " AS live) SELECT (SELECT count(*) FROM w WHERE live) FROM f"
);
const DELETE_FROM: &str = concat!(
    with_family!(),
    ", w AS (DELETE FROM kvstore_row r USING f WHERE r.family = f.id AND r.key >= $2 ",
    "RETURNING ",
    live!(clock!()),
    " AS live) SELECT (SELECT count(*) FROM w WHERE live) FROM f"
);

const SWAP: &str = concat!(
    with_family!(),
    ", w AS (UPDATE kvstore_row r SET value = $4::bytea, expire_ms = $5::bigint, ",
    "written_ms = CASE WHEN f.track_writes THEN ",
    clock!(),
    " END FROM f WHERE ",
    row!(),
    " AND r.value = $3::bytea AND ",
    live!(clock!()),
    " RETURNING 1) ",
    done_or!(concat!("r.value = $3 AND ", live!(came!())))
);

const DELETE_IF_EQUAL: &str = concat!(
    with_family!(),
    ", w AS (DELETE FROM kvstore_row r USING f WHERE ",
    row!(),
    " AND r.value = $3::bytea AND ",
    live!(clock!()),
    " RETURNING 1) ",
    done_or!(concat!("r.value = $3 AND ", live!(came!())))
);

/// The number in row `r`, as Rust reads one; NULL: it is none of 64 bits.
macro_rules! number {
    () => {
        concat!(
            "(SELECT CASE WHEN x.t ~ '^[+-]?[0-9]+$' AND length(ltrim(x.t, '+-0')) <= 19 THEN CASE WHEN x.t::numeric BETWEEN ",
            "-9223372036854775808 AND 9223372036854775807 THEN x.t::numeric END END FROM (SELECT encode(r.value, 'escape') AS t) x)"
        )
    };
}

/// Adds `$3`; a new row ends at `$4`. Whether the old one is dead is looked at once for all its columns.
const INCREMENT: &str = concat!(
    with_family!(),
    ", w AS (INSERT INTO kvstore_row AS r (family, key, value, expire_ms, written_ms) ",
    "SELECT f.id, $2::bytea, convert_to($3::bigint::text, 'UTF8'), CASE WHEN $4::bigint IS NOT NULL THEN $4 ",
    "WHEN f.default_ttl_ms > 0 THEN ",
    clock!(),
    " + f.default_ttl_ms END, CASE WHEN f.track_writes THEN ",
    clock!(),
    " END FROM f ",
    "ON CONFLICT (family, key) DO UPDATE SET written_ms = EXCLUDED.written_ms, (value, expire_ms) = (SELECT ",
    "CASE WHEN d.dead THEN EXCLUDED.value ELSE convert_to((",
    number!(),
    " + $3)::text, 'UTF8') END, ",
    "CASE WHEN d.dead THEN EXCLUDED.expire_ms ELSE r.expire_ms END ",
    "FROM (SELECT coalesce(r.expire_ms <= ",
    clock!(),
    ", false) AS dead) d) ",
    "WHERE r.expire_ms <= ",
    clock!(),
    " OR ",
    number!(),
    " + $3 BETWEEN -9223372036854775808 AND 9223372036854775807 ",
    "RETURNING value) SELECT CASE WHEN EXISTS (SELECT FROM w) THEN 1 ELSE coalesce((SELECT CASE WHEN ",
    number!(),
    " IS NULL THEN 4 WHEN ",
    number!(),
    " + $3 BETWEEN -9223372036854775808 AND 9223372036854775807 THEN 2 ELSE 3 END ",
    "FROM kvstore_row r WHERE ",
    row!(),
    " AND ",
    live!(came!()),
    "), 2) END, (SELECT value FROM w) FROM f"
);

/// The condition `$4` on the old end of row `r` and the new one, `$3`.
macro_rules! condition {
    () => {
        concat!(
            "CASE $4::integer WHEN 0 THEN true WHEN 1 THEN r.expire_ms IS NULL WHEN 2 THEN r.expire_ms IS NOT NULL ",
            "WHEN 3 THEN r.expire_ms IS NOT NULL AND ($3 IS NULL OR $3 > r.expire_ms) ",
            "ELSE $3 IS NOT NULL AND (r.expire_ms IS NULL OR $3 < r.expire_ms) END"
        )
    };
}

/// Gives a live row the end `$3`, as `w`; removes it if that has come, as `d`.
macro_rules! change_end {
    ($condition:expr, $shown:literal) => {
        concat!(
            with_family!(),
            ", n AS MATERIALIZED (SELECT ",
            clock!(),
            " AS ms), ",
            "d AS (DELETE FROM kvstore_row r USING f, n WHERE $3::bigint <= n.ms AND ",
            row!(),
            " AND ",
            live!(clock!()),
            " AND ",
            $condition,
            " RETURNING ",
            $shown,
            "), ",
            "w AS (UPDATE kvstore_row r SET expire_ms = $3 FROM f, n WHERE ($3 IS NULL OR $3 > n.ms) AND ",
            row!(),
            " AND ",
            live!(clock!()),
            " AND ",
            $condition,
            " RETURNING ",
            $shown,
            ") "
        )
    };
}

const EXPIRE: &str = concat!(
    change_end!(condition!(), "1"),
    "SELECT CASE WHEN EXISTS (SELECT FROM w) OR EXISTS (SELECT FROM d) THEN 1 ELSE coalesce((SELECT CASE WHEN ",
    condition!(),
    " THEN 2 ELSE 3 END FROM kvstore_row r WHERE ",
    row!(),
    " AND ",
    live!(came!()),
    "), 0) END FROM f"
);

/// Shows the old end, too, for the one who has to undo it.
const GET_AND_EXPIRE: &str = concat!(
    change_end!("true", "r.value"),
    "SELECT CASE WHEN EXISTS (SELECT FROM w) OR EXISTS (SELECT FROM d) THEN 1 WHEN r.key IS NOT NULL AND ",
    live!(came!()),
    " THEN 2 ELSE 0 END, (SELECT value FROM w UNION ALL SELECT value FROM d), r.expire_ms ",
    "FROM f LEFT JOIN kvstore_row r ON ",
    row!()
);

/// `$5` is the end that was to be given, `$3` the value that was shown.
const UNDO_EXPIRE: &str = concat!(
    with_family!(),
    ", w AS (UPDATE kvstore_row r SET expire_ms = $4::bigint FROM f WHERE ",
    row!(),
    " AND r.value = $3::bytea ",
    "AND r.expire_ms IS NOT DISTINCT FROM $5::bigint RETURNING 1) SELECT 1 FROM f"
);

/// Deletes the rows that `d` has locked. So many it shows at most, whatever is asked: so the planner knows.
macro_rules! delete_locked {
    ($due:expr, $order:literal, $returned:expr) => {
        concat!(
            with_family!(), ", d AS MATERIALIZED (SELECT v.family, v.key FROM f CROSS JOIN LATERAL (SELECT r.family, r.key FROM kvstore_row r ",
            "WHERE r.family = f.id AND ", $due, " ORDER BY ", $order, ", r.key LIMIT $3 FOR UPDATE SKIP LOCKED) v LIMIT 256), ",
            "w AS (DELETE FROM kvstore_row r USING d WHERE r.family = d.family AND r.key = d.key RETURNING ", $returned, " AS counts) ",
            "SELECT (SELECT count(*) FROM w WHERE counts) FROM f"
        )
    };
}

/// What ended at `$2` or before, and by now.
const PURGE: &str =
    delete_locked!(concat!("r.expire_ms <= LEAST($2::bigint, ", came!(), ")"), "r.expire_ms", "true");

/// What was written at `$2` or before.
const SWEEP: &str = delete_locked!("r.written_ms <= $2::bigint", "r.written_ms", live!(clock!()));

/// What is in a family, seen through a connection to the server.
#[derive(Clone, Copy)]
pub(crate) struct Contents<'c> {
    pub(super) db: &'c Db,
    pub(super) family: &'c str,
}

impl Db {
    /// What is in a family.
    #[inline]
    pub(crate) fn contents<'c>(&'c self, family: &'c str) -> Contents<'c> {
        Contents { db: self, family }
    }
}

type Params<'p> = &'p [&'p (dyn ToSql + Sync)];

impl Contents<'_> {
    /// Writes a value as `options` say; tells whether it did.
    pub(crate) fn put(self, key: &[u8], value: &[u8], options: &PutOptions) -> Result<bool> {
        check_key(key)?;
        let (name, expire_ms, written_ms) = (self.name(), options.expiry.millis(), options.written_ms);
        let params: [&(dyn ToSql + Sync); 7] =
            [&name, &key, &value, &expire_ms, &options.default_ttl, &written_ms, &options.keep_ttl];
        match options.only {
            None => self.ask(Again::Yes, PUT, &params).map(|_| true),
            // Only dead keys are overwritten, and they have no end to keep.
            Some(Presence::Absent) => {
                self.decide(Again::No, PUT_IF_ABSENT, params.get(..6).unwrap_or_default())
            }
            Some(Presence::Present) => self.decide(Again::No, PUT_IF_PRESENT, &params),
        }
    }

    /// Deletes a key; says whether it was alive.
    pub(crate) fn delete(self, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        self.decide(Again::Yes, DELETE, &[&self.name(), &key])
    }

    /// Deletes everything.
    pub(crate) fn clear(self) -> Result<()> {
        self.delete_range(Scan { lower: Bound::Unbounded, upper: Bound::Unbounded, reverse: false }).map(drop)
    }

    /// Deletes the keys of a range; returns how many were alive.
    pub(crate) fn delete_range(self, range: Scan<'_>) -> Result<u64> {
        let (name, from) = (self.name(), from(range.lower));
        match before(range.upper) {
            Some(before) => self.count_of(Again::Yes, DELETE_BETWEEN, &[&name, &from, &before]),
            None => self.count_of(Again::Yes, DELETE_FROM, &[&name, &from]),
        }
    }

    /// Writes a value, with a new end of life, if the key is alive and its value is `expected`; says whether
    /// it did.
    pub(crate) fn compare_and_swap(
        self,
        key: &[u8],
        expected: &[u8],
        value: &[u8],
        expiry: Expiry,
    ) -> Result<bool> {
        check_key(key)?;
        self.decide(Again::No, SWAP, &[&self.name(), &key, &expected, &value, &expiry.millis()])
    }

    /// Deletes a key if it is alive and its value is `expected`; says whether it did.
    pub(crate) fn compare_and_delete(self, key: &[u8], expected: &[u8]) -> Result<bool> {
        check_key(key)?;
        self.decide(Again::No, DELETE_IF_EQUAL, &[&self.name(), &key, &expected])
    }

    /// Adds to the number under a key; returns the sum and the length of its text. A key that is missing or
    /// expired counts as 0 and gets `expiry`, or for `Never` the family's default TTL.
    pub(crate) fn increment(self, key: &[u8], delta: i64, expiry: Expiry) -> Result<(i64, usize)> {
        check_key(key)?;
        let row = self.settle(Again::No, INCREMENT, &[&self.name(), &key, &delta, &expiry.millis()])?;
        match column::<i32>(&row, 0)? {
            NO_NUMBER => {
                Err(Error::invalid("the value is not a decimal number of 64 bits: it was left as it is"))
            }
            REFUSED => Err(Error::invalid("the sum does not fit into 64 bits: the value was left as it is")),
            _ => {
                let text = std::str::from_utf8(column::<Option<&[u8]>>(&row, 1)?.unwrap_or_default());
                let sum = text.ok().and_then(|text| Some((text.parse().ok()?, text.len())));
                sum.ok_or_else(strange)
            }
        }
    }

    /// Changes the end of life of a live key if `condition` holds; says whether it did, or `None` if the key
    /// is missing or expired.
    pub(crate) fn expire(self, key: &[u8], expiry: Expiry, condition: Condition) -> Result<Option<bool>> {
        check_key(key)?;
        let (again, condition) = match condition {
            Condition::Always => (Again::Yes, 0_i32),
            Condition::NoTtl => (Again::No, 1),
            Condition::HasTtl => (Again::No, 2),
            Condition::Later => (Again::No, 3),
            Condition::Earlier => (Again::No, 4),
        };
        let row = self.settle(again, EXPIRE, &[&self.name(), &key, &expiry.millis(), &condition])?;
        Ok(match column(&row, 0)? {
            NOT => None,
            state => Some(state == DONE),
        })
    }

    /// Shows the value of a live key to `visit`, whose end of life was changed in the same moment; `None` if the key is
    /// missing or expired. If `visit` fails, that is undone, unless others have written the key since.
    pub(crate) fn get_and_expire<R>(
        self,
        key: &[u8],
        expiry: Expiry,
        visit: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<Option<R>> {
        check_key(key)?;
        let row = self.settle(Again::Yes, GET_AND_EXPIRE, &[&self.name(), &key, &expiry.millis()])?;
        if column::<i32>(&row, 0)? != DONE {
            return Ok(None);
        }
        let (value, old_ms) = (column::<&[u8]>(&row, 1)?, column::<Option<i64>>(&row, 2)?);
        let undo = || drop(self.undo_expire(key, value, old_ms, expiry)); // it is `visit` whose failure is told
        or_undo((), |()| visit(value), |()| undo()).inspect_err(|_| undo()).map(Some)
    }

    fn undo_expire(self, key: &[u8], value: &[u8], old_ms: Option<i64>, given: Expiry) -> Result<()> {
        let params: [&(dyn ToSql + Sync); 5] = [&self.name(), &key, &value, &old_ms, &given.millis()];
        self.ask(Again::Yes, UNDO_EXPIRE, &params)?;
        // If the end had come already, the row was removed.
        let options = PutOptions::new().expiry(Expiry::of_row(old_ms)).if_absent();
        self.put(key, value, &options).map(drop)
    }

    /// Removes keys that expired at `last_ms` or before, and by the server's clock, those first that expired first, at most
    /// `max`; returns how many. Those that others are removing or writing are left to them.
    pub(crate) fn purge(self, last_ms: i64, max: usize) -> Result<u64> {
        self.count_of(Again::Yes, PURGE, &[&self.name(), &last_ms, &step(max)])
    }

    /// Removes keys that were written at `last_ms` or before, live or not, the oldest first, at most `max`;
    /// returns how many were alive. Those that others are removing or writing are left to them.
    pub(crate) fn sweep(self, last_ms: i64, max: usize) -> Result<u64> {
        self.count_of(Again::Yes, SWEEP, &[&self.name(), &last_ms, &step(max)])
    }
}

/// How statements on a family are run.
impl<'c> Contents<'c> {
    pub(super) fn name(self) -> &'c [u8] {
        self.family.as_bytes()
    }

    /// Runs a statement that shows one row, or none if there is no such family.
    pub(super) fn ask(self, again: Again, sql: &str, params: Params<'_>) -> Result<Row> {
        let rows = self.db.query(again, sql, params)?;
        rows.into_iter().next().ok_or_else(|| no_longer_exists(self.family))
    }

    /// Runs a conditional write until nobody has come between; shows its row.
    fn settle(self, again: Again, sql: &str, params: Params<'_>) -> Result<Row> {
        for _ in 0..MAX_TRIES {
            let row = self.ask(again, sql, params)?;
            if column::<i32>(&row, 0)? != AGAIN {
                return Ok(row);
            }
        }
        Err(Error::busy("others kept changing the key: retry"))
    }

    /// The same for one that has written or not.
    fn decide(self, again: Again, sql: &str, params: Params<'_>) -> Result<bool> {
        Ok(column::<i32>(&self.settle(again, sql, params)?, 0)? == DONE)
    }

    fn count_of(self, again: Again, sql: &str, params: Params<'_>) -> Result<u64> {
        count(&self.ask(again, sql, params)?, 0)
    }

    /// Whether each statement has a snapshot of its own.
    pub(super) fn is_alone(self) -> bool {
        *self.db.transaction() == TransactionState::None
    }
}

/// A column of an answer.
pub(super) fn column<'r, T: FromSql<'r>>(row: &'r Row, at: usize) -> Result<T> {
    row.try_get(at).map_err(|_| strange())
}

/// A number of rows.
pub(super) fn count(row: &Row, at: usize) -> Result<u64> {
    u64::try_from(column::<i64>(row, at)?).map_err(|_| strange())
}

/// The server has answered what no server that runs these statements answers.
#[cold]
pub(super) fn strange() -> Error {
    Error::failed("the server's answer is not of the form that was asked for: is it PostgreSQL?")
}

pub(super) fn check_key(key: &[u8]) -> Result<()> {
    if key.len() <= MAX_KEY_SIZE {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the key has {} bytes: on a server it may have {MAX_KEY_SIZE}, because an index of PostgreSQL takes no more",
        key.len()
    )))
}

fn step(max: usize) -> i64 {
    max.min(MAX_STEP) as i64
}

/// The least key that is not below a range.
pub(super) fn from(lower: Bound<&[u8]>) -> Vec<u8> {
    match lower {
        Bound::Included(key) => key.to_vec(),
        Bound::Excluded(key) => after(key),
        Bound::Unbounded => Vec::new(),
    }
}

/// The least key that is above a range; `None`: there is none.
pub(super) fn before(upper: Bound<&[u8]>) -> Option<Vec<u8>> {
    match upper {
        Bound::Included(key) => Some(after(key)),
        Bound::Excluded(key) => Some(key.to_vec()),
        Bound::Unbounded => None,
    }
}

/// The key that is next in the order of bytes.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

//! Families of a store and their settings.
//!
//! Each statement finds a family by its name: a family that another client dropped and created
//! again is a new family. A change that affects all rows of a family locks the whole table
//! `kvstore_row` against writers. A lock on the family's row in `kvstore_family` would not stop
//! them, because writers do not lock that row.

use tokio_postgres::Row;

use super::Db;
use super::error::Failure;
use super::error::{no_longer_exists, strange};
use super::session::Again;
use super::sql_text::NOW_MS;
use super::write::sql::clock;
use crate::error::{Error, Result};

const EXISTS: &str = "SELECT 1 FROM kvstore_family WHERE name = $1";

/// Query for the names of all families, sorted by their bytes, as in a store in a file.
const ALL: &str = "SELECT name FROM kvstore_family ORDER BY name";

/// Query for the settings of the family `$1`, and for the server's time, from which a sweep
/// computes the write time of the newest keys that it removes.
const SETTINGS: &str = concat!(
    "SELECT default_ttl_ms, track_writes, created_ms, ",
    clock!(),
    " FROM kvstore_family WHERE name = $1"
);

const SET_DEFAULT_TTL: &str = "UPDATE kvstore_family SET default_ttl_ms = $2 WHERE name = $1 RETURNING id";

const DROP_ROWS: &str =
    "DELETE FROM kvstore_row WHERE family = (SELECT id FROM kvstore_family WHERE name = $1)";

const DROP: &str = "DELETE FROM kvstore_family WHERE name = $1 RETURNING id";

const SET_TRACKING: &str = "UPDATE kvstore_family SET track_writes = $2 WHERE name = $1 RETURNING id";

const FORGET_WRITES: &str = "UPDATE kvstore_row SET written_ms = NULL WHERE written_ms IS NOT NULL \
    AND family = (SELECT id FROM kvstore_family WHERE name = $1)";

/// Records that rows of the family with the id `$1` may have to be corrected after the commit
/// (`Db::settle`). Runs in the transaction that changes the family.
const UNSETTLED: &str = "INSERT INTO kvstore_unsettled (family) VALUES ($1)";

/// Query for the families whose rows may have to be corrected, as committed transactions have
/// recorded.
const TO_SETTLE: &str = "SELECT id, family FROM kvstore_unsettled ORDER BY id";

const SETTLED: &str = "DELETE FROM kvstore_unsettled WHERE id = $1";

/// Deletes the remaining rows of the dropped family `$1`. Other clients wrote them between the
/// snapshot and the table lock of the transaction that dropped the family.
const SETTLE_DROP: &str = "DELETE FROM kvstore_row WHERE family = $1 \
    AND NOT EXISTS (SELECT FROM kvstore_family WHERE id = $1)";

/// Corrects the write times of those rows of the family `$1` that other clients wrote between the
/// snapshot and the table lock of the transaction that switched write tracking.
const SETTLE_TRACKING: &str = "UPDATE kvstore_row r SET written_ms = CASE WHEN f.track_writes THEN \
    (floor(extract(epoch from statement_timestamp()) * 1000))::bigint END \
    FROM kvstore_family f WHERE f.id = $1 AND r.family = $1 AND f.track_writes <> (r.written_ms IS NOT NULL)";

/// Blocks all writers of the store until the transaction ends. Readers are not blocked.
const LOCK_ROWS: &str = "LOCK TABLE kvstore_row IN SHARE ROW EXCLUSIVE MODE";

impl Db {
    /// Creates a family. Returns `false` if it exists already.
    pub(crate) fn create_family(&self, family: &str) -> Result<bool> {
        let sql = format!(
            "INSERT INTO kvstore_family (name, created_ms) VALUES ($1, {NOW_MS}) ON CONFLICT (name) DO NOTHING RETURNING id"
        );
        // A second attempt would report that the family already existed.
        Ok(!self.query(Again::No, &sql, &[&family.as_bytes()])?.is_empty())
    }

    /// Drops a family with its rows. Returns `false` if it does not exist.
    pub(crate) fn drop_family(&self, family: &str) -> Result<bool> {
        let name = family.as_bytes();
        if !self.family_exists(family)? {
            return Ok(false); // without the lock, which blocks other clients
        }
        let is_the_callers = self.is_open();
        let dropped = self.in_savepoint(|db| {
            db.lock_rows()?;
            db.query(Again::No, DROP_ROWS, &[&name])?;
            let dropped = db.query(Again::No, DROP, &[&name])?;
            if is_the_callers { db.settle_later(&dropped) } else { Ok(()) }.map(|()| dropped)
        })?;
        Ok(!dropped.is_empty())
    }

    pub(crate) fn family_exists(&self, family: &str) -> Result<bool> {
        Ok(!self.query(Again::Read, EXISTS, &[&family.as_bytes()])?.is_empty())
    }

    /// Returns the names of all families, including the default one.
    pub(crate) fn families(&self) -> Result<Vec<String>> {
        let name = |row: &Row| {
            let name: Vec<u8> = row.try_get(0).map_err(|_| strange())?;
            String::from_utf8(name).map_err(|_| Error::corrupt("the name of a family is not UTF-8"))
        };
        self.query(Again::Read, ALL, &[])?.iter().map(name).collect()
    }

    /// Returns the default TTL of a family, in milliseconds (0: none), and whether it tracks write
    /// times.
    pub(crate) fn read_settings(&self, family: &str) -> Result<(i64, bool)> {
        let row = self.settings(family)?;
        Ok((row.try_get(0).map_err(|_| strange())?, row.try_get(1).map_err(|_| strange())?))
    }

    /// Returns the creation time of a family, in milliseconds since the Unix epoch.
    pub(crate) fn created_ms(&self, family: &str) -> Result<i64> {
        self.settings(family)?.try_get(2).map_err(|_| strange())
    }

    fn settings(&self, family: &str) -> Result<Row> {
        let rows = self.query(Again::Read, SETTINGS, &[&family.as_bytes()])?;
        let row = rows.into_iter().next().ok_or_else(|| no_longer_exists(family))?;
        self.clock.note_server(row.try_get(3).map_err(|_| strange())?);
        Ok(row)
    }

    /// Sets the default TTL of a family, in milliseconds; 0 for none.
    pub(crate) fn set_default_ttl(&self, family: &str, ttl_ms: i64) -> Result<()> {
        let done = self.query(Again::Yes, SET_DEFAULT_TTL, &[&family.as_bytes(), &ttl_ms])?;
        if done.is_empty() { Err(no_longer_exists(family)) } else { Ok(()) }
    }

    /// Turns write tracking of a family on or off. Turning it on sets the write time of all
    /// existing rows to the current time; turning it off deletes their write times.
    pub(crate) fn set_write_tracking(&self, family: &str, on: bool) -> Result<()> {
        if self.read_settings(family)?.1 == on {
            return Ok(());
        }
        let name = family.as_bytes();
        // All rows get the same write time: `statement_timestamp` is constant during a statement.
        let track = format!(
            "UPDATE kvstore_row SET written_ms = {} WHERE written_ms IS NULL \
             AND family = (SELECT id FROM kvstore_family WHERE name = $1)",
            NOW_MS.replace("clock_timestamp", "statement_timestamp")
        );
        let is_the_callers = self.is_open();
        self.in_savepoint(|db| {
            db.lock_rows()?;
            let switched = db.query(Again::No, SET_TRACKING, &[&name, &on])?;
            if switched.is_empty() {
                return Err(no_longer_exists(family));
            }
            db.query(Again::No, if on { &track } else { FORGET_WRITES }, &[&name])?;
            if is_the_callers { db.settle_later(&switched) } else { Ok(()) }
        })
    }

    /// Records that rows of a family must be corrected after the commit of the caller's
    /// transaction. `changed` contains the id of the family, in its first column.
    ///
    /// The snapshot of the caller's transaction may be older than its table lock. Other clients may
    /// have written rows in between, which the transaction does not see. This handle corrects those
    /// rows after the commit. If the handle no longer exists, the next handle that opens the store
    /// for writing corrects them.
    fn settle_later(&self, changed: &[Row]) -> Result<()> {
        for row in changed {
            self.query(Again::No, UNSETTLED, &[&row.try_get::<_, i64>(0).map_err(|_| strange())?])?;
        }
        self.session.borrow_mut().is_unsettled = true;
        Ok(())
    }

    /// Corrects the rows that a change of their family has missed: deletes rows of dropped
    /// families, and corrects write times after a switch of write tracking. The transactions that
    /// changed the families could not see these rows. Must be called outside of a transaction.
    ///
    /// Failures are ignored: the next commit, or the next handle that opens the store for writing,
    /// tries again. While the store is being opened, the time limit of the open applies. When it is
    /// reached, the server finishes the current statement without this client.
    ///
    /// The id of a family is never reused, and no row is written with the id of a dropped family.
    /// So the rows can be corrected at any time, and more than once.
    pub(super) fn settle(&self) {
        let settle = || {
            let mut session = self.session.borrow_mut();
            for mark in session.query_once(TO_SETTLE, &[])? {
                let (Ok(id), Ok(family)) = (mark.try_get::<_, i64>(0), mark.try_get::<_, i64>(1)) else {
                    break;
                };
                for (sql, number) in [(SETTLE_DROP, family), (SETTLE_TRACKING, family), (SETTLED, id)] {
                    session.query_once(sql, &[&number])?;
                }
            }
            session.is_unsettled = false;
            Ok::<(), Failure>(())
        };
        let _ = settle();
    }

    /// Blocks writers until the open transaction ends. If the server is not PostgreSQL, there is no
    /// lock: transactions are serializable there, and one of two conflicting transactions fails.
    fn lock_rows(&self) -> Result<()> {
        let mut session = self.session.borrow_mut();
        if session.is_postgres() { session.execute(Again::No, LOCK_ROWS) } else { Ok(()) }
    }
}

//! The families of a store and their settings.
//!
//! A family is found by its name in each statement: one that was dropped and made again by another client is a new one. What
//! changes all rows of a family keeps writers out by a lock on the table, because writers lock no row of the catalogue.

use tokio_postgres::Row;

use super::Db;
use super::failure::Failure;
use super::plan::sql::clock;
use super::plan::strange;
use super::schema::NOW_MS;
use super::session::Again;
use crate::error::{Error, Result};
use crate::hint::Hint;

const EXISTS: &str = "SELECT 1 FROM kvstore_family WHERE name = $1";

/// In the order of their bytes, as in a file.
const ALL: &str = "SELECT name FROM kvstore_family ORDER BY name";

/// With the time, for a sweep that is about to count from it.
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

/// What is to be settled, in the transaction that makes it so.
const UNSETTLED: &str = "INSERT INTO kvstore_unsettled (family) VALUES ($1)";

/// What transactions that are over have left to be settled.
const TO_SETTLE: &str = "SELECT id, family FROM kvstore_unsettled ORDER BY id";

const SETTLED: &str = "DELETE FROM kvstore_unsettled WHERE id = $1";

/// What another client wrote into a family between the snapshot of the transaction that dropped it and its lock.
const SETTLE_DROP: &str = "DELETE FROM kvstore_row WHERE family = $1 \
    AND NOT EXISTS (SELECT FROM kvstore_family WHERE id = $1)";

/// The same where write tracking was switched.
const SETTLE_TRACKING: &str = "UPDATE kvstore_row r SET written_ms = CASE WHEN f.track_writes THEN \
    (floor(extract(epoch from statement_timestamp()) * 1000))::bigint END \
    FROM kvstore_family f WHERE f.id = $1 AND r.family = $1 AND f.track_writes <> (r.written_ms IS NOT NULL)";

/// Nobody writes until the transaction ends; readers go on.
const LOCK_ROWS: &str = "LOCK TABLE kvstore_row IN SHARE ROW EXCLUSIVE MODE";

impl Db {
    /// Creates a family. Returns `false` if it exists already.
    pub(crate) fn create_family(&self, family: &str) -> Result<bool> {
        let sql = format!(
            "INSERT INTO kvstore_family (name, created_ms) VALUES ($1, {NOW_MS}) ON CONFLICT (name) DO NOTHING RETURNING id"
        );
        // Run a second time, it would say that the family was there.
        Ok(!self.query(Again::No, &sql, &[&family.as_bytes()])?.is_empty())
    }

    /// Drops a family with its rows. Returns `false` if it does not exist.
    pub(crate) fn drop_family(&self, family: &str) -> Result<bool> {
        let name = family.as_bytes();
        if !self.family_exists(family)? {
            return Ok(false); // others need not wait for that
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

    /// Sets the default TTL of a family.
    pub(crate) fn set_default_ttl(&self, family: &str, ttl_ms: i64) -> Result<()> {
        let done = self.query(Again::Yes, SET_DEFAULT_TTL, &[&family.as_bytes(), &ttl_ms])?;
        if done.is_empty() { Err(no_longer_exists(family)) } else { Ok(()) }
    }

    /// Turns write tracking of a family on or off. Existing rows count as written now, or lose
    /// their write times.
    pub(crate) fn set_write_tracking(&self, family: &str, on: bool) -> Result<()> {
        if self.read_settings(family)?.1 == on {
            return Ok(());
        }
        let name = family.as_bytes();
        // One time for all: that of the statement.
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

    /// The snapshot of the caller's transaction may be older than the lock in it: rows that others have written in between are
    /// to be looked for after its commit, by whoever comes first: this handle, if it is still there, or the next one that is
    /// opened. `changed`: the family's number.
    fn settle_later(&self, changed: &[Row]) -> Result<()> {
        for row in changed {
            self.query(Again::No, UNSETTLED, &[&row.try_get::<_, i64>(0).map_err(|_| strange())?])?;
        }
        self.session.borrow_mut().is_unsettled = true;
        Ok(())
    }

    /// To be called outside of a transaction: sees to the rows that transactions could not see. What fails is left to the next
    /// commit, or to whoever opens the store next; what takes longer than the store may take to open, the server does alone.
    /// The number of a family is never another's later, and no row is written under one that is gone: so what is looked for can
    /// be looked for at any time, and twice.
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

    /// Keeps writers out until the open transaction ends. Where the server cannot, its transactions are serializable, and one
    /// of the two fails.
    fn lock_rows(&self) -> Result<()> {
        let mut session = self.session.borrow_mut();
        if session.is_postgres() { session.execute(Again::No, LOCK_ROWS) } else { Ok(()) }
    }
}

pub(super) fn no_longer_exists(family: &str) -> Error {
    Error::invalid(format!("family \"{family}\" was dropped")).with_hint(Hint::CreateFamily)
}

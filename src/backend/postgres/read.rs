//! Reads of a family: single keys, lists of keys, expired rows, and the next rows of a scan. Each
//! is one statement.
//!
//! Outside a transaction of the caller, the start time of the statement's own transaction decides
//! whether a row is expired. It is before the snapshot. With a later time, a key could appear
//! expired although another client has extended its TTL in time, after the snapshot. A key that is
//! returned as live was live when the call had begun.
//!
//! For a single key, the server sends the row together with its time, and the library compares the
//! times: a comparison on the server costs as much as the lookup of the row. For many rows, the
//! server compares the times, so that it does not send the values of expired rows.

use std::cmp::Ordering;
use std::ops::Bound;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::error::{no_longer_exists, strange};
use super::session::Again;
use super::write::size::check_keys;
use super::write::sql::{Text, live, ms, with_family};
use super::write::{Contents, before, check_key, column, count, from};
use crate::backend::{Chunk, Found, Limits, Scan, TimeEntry, Times};
use crate::clock::unix_ms;
use crate::error::Result;
use crate::expiry::Expiry;
use crate::memory::Destination;

// Outside a transaction of the caller, the start of the transaction decides whether a row is
// expired. Inside one, the arrival of the statement decides, because the transaction may have begun
// long ago.

/// SQL expression for the start time of the transaction in milliseconds, which is before the
/// snapshot. As a subquery, it is evaluated once for all rows.
macro_rules! begun {
    () => {
        concat!("(SELECT ", ms!("now"), ")")
    };
}

/// SQL expression for the time in milliseconds at which the statement arrived at the server. As a
/// subquery, it is evaluated once for all rows.
macro_rules! came {
    () => {
        concat!("(SELECT ", ms!("statement_timestamp"), ")")
    };
}

macro_rules! text {
    ($sql:ident) => {
        Text { alone: $sql!(begun!()), inside: $sql!(came!()) }
    };
}

/// Statement that returns the server's time, and the expiry time and the value of the key `$2`. The
/// server's time is a timestamp, from the SQL function `$now`.
macro_rules! get {
    ($now:literal) => {
        concat!(
            "SELECT ",
            $now,
            "(), r.expire_ms, r.value FROM kvstore_family f ",
            "LEFT JOIN kvstore_row r ON r.family = f.id AND r.key = $2 WHERE f.name = $1"
        )
    };
}

/// Statement that returns the server's time (as in `get`), the expiry time of the key `$2`, whether
/// the key has a row, and its write time.
macro_rules! times {
    ($now:literal) => {
        concat!(
            "SELECT ",
            $now,
            "(), r.expire_ms, r.key IS NOT NULL, r.written_ms FROM kvstore_family f ",
            "LEFT JOIN kvstore_row r ON r.family = f.id AND r.key = $2 WHERE f.name = $1"
        )
    };
}

/// Statement that returns one row for each of the keys `$2`, with the position of the key in the
/// list, from 1 on. `LIMIT 1` tells the planner that each key has at most one row, so that the plan
/// looks up each key.
macro_rules! get_many {
    ($now:expr) => {
        concat!(
            "SELECT ", $now, ", r.expire_ms, CASE WHEN ", live!($now), " THEN r.value END, k.number ",
            "FROM kvstore_family f CROSS JOIN unnest($2::bytea[]) WITH ORDINALITY AS k (key, number) LEFT JOIN LATERAL ",
            "(SELECT r.expire_ms, r.value FROM kvstore_row r WHERE r.family = f.id AND r.key = k.key LIMIT 1) r ON true ",
            "WHERE f.name = $1"
        )
    };
}

macro_rules! count_live {
    ($now:expr) => {
        concat!(
            "SELECT (SELECT count(*) FROM kvstore_row r WHERE r.family = f.id) - ",
            "(SELECT count(*) FROM kvstore_row r WHERE r.family = f.id AND r.expire_ms <= ",
            $now,
            ") ",
            "FROM kvstore_family f WHERE f.name = $1"
        )
    };
}

const GET: Text = Text { alone: get!("now"), inside: get!("statement_timestamp") };
const TIMES: Text = Text { alone: times!("now"), inside: times!("statement_timestamp") };
const GET_MANY: Text = text!(get_many);
const COUNT_LIVE: Text = text!(count_live);

const WRITE_TIMES: &str = concat!(
    with_family!(),
    " SELECT k.n, (SELECT r.written_ms FROM kvstore_row r WHERE r.family = f.id AND r.key = k.key AND ",
    live!(came!()),
    ") FROM f CROSS JOIN unnest($2::bytea[]) WITH ORDINALITY AS k (key, n)"
);

const COUNT: &str =
    concat!(with_family!(), " SELECT (SELECT count(*) FROM kvstore_row r WHERE r.family = f.id) FROM f");

const COUNT_TTL: &str = concat!(
    with_family!(),
    " SELECT (SELECT count(*) FROM kvstore_row r WHERE r.family = f.id AND r.expire_ms IS NOT NULL) FROM f"
);

const NEXT_EXPIRY: &str = concat!(
    with_family!(),
    " SELECT (SELECT r.expire_ms FROM kvstore_row r WHERE r.family = f.id AND r.expire_ms IS NOT NULL ",
    "ORDER BY r.expire_ms LIMIT 1) FROM f"
);

const HAS_EXPIRED: &str = concat!(
    with_family!(),
    " SELECT EXISTS (SELECT FROM kvstore_row r WHERE r.family = f.id AND r.expire_ms <= LEAST($2::bigint, ",
    came!(),
    ")) FROM f"
);

const HAS_WRITTEN_BY: &str = concat!(
    with_family!(),
    " SELECT EXISTS (SELECT FROM kvstore_row r WHERE r.family = f.id AND r.written_ms <= $2::bigint) FROM f"
);

/// Returns the statement of a scan in the order of the keys, from the key `$2` on. If `is_bounded`,
/// the scan ends before the key `$3`. The value of an expired row is returned as NULL.
///
/// The next parameters after the bounds are the maximum number of rows to examine and, unless the
/// scan returns only keys, the limit in bytes (see `walk`). `is_alone`: whether the caller has no
/// open transaction.
fn walk_by_key(limits: &Limits, reverse: bool, is_bounded: bool, is_alone: bool) -> String {
    let is_live = if is_alone { live!(begun!()) } else { live!(came!()) };
    let order = if reverse { "key DESC" } else { "key" };
    let end = if is_bounded { " AND r.key < $3" } else { "" };
    let value = if limits.keys_only { "''::bytea" } else { "r.value" };
    let columns = format!("r.key, r.expire_ms, CASE WHEN {is_live} THEN {value} END AS value");
    let bytes = format!("CASE WHEN {is_live} THEN octet_length(r.key) + octet_length(r.value) ELSE 0 END");
    walk(limits, is_alone, &columns, &bytes, &format!("r.key >= $2{end}"), order, 3 + usize::from(is_bounded))
}

/// Returns the statement of a scan in the order of expiry time and key. The scan starts after the
/// row with the key `$2` and the expiry time `$3`. If `is_bounded`, it ends before the expiry time
/// `$4`. Expired rows are returned with their values.
fn walk_by_end(limits: &Limits, is_bounded: bool, is_alone: bool) -> String {
    let end = if is_bounded { " AND r.expire_ms < $4" } else { "" };
    let value = if limits.keys_only { "''::bytea" } else { "r.value" };
    let columns = format!("r.key, r.expire_ms, {value} AS value");
    let bytes = "octet_length(r.key) + octet_length(r.value)";
    let range = format!("r.expire_ms IS NOT NULL AND (r.expire_ms, r.key) > ($3::bigint, $2){end}");
    walk(limits, is_alone, &columns, bytes, &range, "expire_ms, key", 4 + usize::from(is_bounded))
}

/// Returns the statement of a scan over the rows that meet the condition `range`, sorted by
/// `order`. `columns` are the columns to return, and `bytes` is the size of a row, as an SQL
/// expression. The last parameters of the statement, from number `next` on, are:
/// - the maximum number of rows to examine;
/// - if it returns values: a limit in bytes. A row is returned if the rows before it are smaller
///   than this limit in total, so the last row can exceed it.
fn walk(
    limits: &Limits,
    is_alone: bool,
    columns: &str,
    bytes: &str,
    range: &str,
    order: &str,
    next: usize,
) -> String {
    let now = if is_alone { begun!() } else { came!() };
    let by = order.replace(", ", ", r.");
    let rows = |columns: &str| {
        format!(
            "SELECT {columns} FROM kvstore_row r WHERE r.family = f.id AND {range} ORDER BY r.{by} LIMIT ${next}"
        )
    };
    let (rows, few) = match limits.keys_only {
        true => (rows(columns), "true".to_owned()),
        false => (
            format!(
                "SELECT y.*, sum(y.bytes) OVER (ORDER BY {order} ROWS UNBOUNDED PRECEDING) - y.bytes AS before FROM ({}) y",
                rows(&format!("{columns}, {bytes} AS bytes"))
            ),
            format!("x.before < ${}", next + 1),
        ),
    };
    format!(
        "SELECT {now}, x.key, x.expire_ms, x.value FROM kvstore_family f LEFT JOIN LATERAL ({rows}) x ON {few} \
         WHERE f.name = $1"
    )
}

impl Contents<'_> {
    /// Calls `visit` with the value and the expiry time of a key if it is live. Returns the lookup
    /// result, which contains the result of `visit`.
    pub(crate) fn get<R>(self, key: &[u8], visit: impl FnOnce(&[u8], Expiry) -> R) -> Result<Found<R>> {
        let (row, now_ms) = self.look(&GET, key)?;
        let expiry = Expiry::of_row(column(&row, 1)?);
        let value = column::<Option<&[u8]>>(&row, 2)?.filter(|_| expiry.is_live(now_ms));
        Ok(found(value.map(|value| visit(value, expiry)), expiry.millis()))
    }

    /// Copies the value of a key to `to` if it is live. Returns its length and its expiry time.
    pub(crate) fn copy_value(self, key: &[u8], to: &mut impl Destination) -> Result<Found<(usize, Expiry)>> {
        Ok(match self.get(key, |value, expiry| (to.copy(value), expiry))? {
            Found::Live((length, expiry)) => Found::Live((length?, expiry)),
            Found::Expired(expire_ms) => Found::Expired(expire_ms),
            Found::Missing => Found::Missing,
        })
    }

    /// Returns the expiry time and the write time of a key if it is live.
    pub(crate) fn times(self, key: &[u8]) -> Result<Found<Times>> {
        let (row, now_ms) = self.look(&TIMES, key)?;
        let expiry = Expiry::of_row(column(&row, 1)?);
        let is_live = column::<bool>(&row, 2)? && expiry.is_live(now_ms);
        let times = Times { expiry, written_ms: column(&row, 3)? };
        Ok(found(is_live.then_some(times), expiry.millis()))
    }

    /// Calls `visit` with the index and the lookup result of each key. All results come from one
    /// snapshot.
    pub(crate) fn get_many<K: AsRef<[u8]>>(
        self,
        keys: &[K],
        mut visit: impl FnMut(usize, Found<&[u8]>),
    ) -> Result<()> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        keys.iter().try_for_each(|key| check_key(key))?;
        if keys.is_empty() {
            return Ok(());
        }
        check_keys(&keys)?;
        let mut rows = self.rows(GET_MANY.on(self.db), &[&self.name(), &keys])?;
        put_in_order(&mut rows, |a, b| column::<i64>(a, 3).ok().cmp(&column(b, 3).ok()));
        check_numbers(&rows, 3, keys.len())?;
        self.note_time(rows.first())?;
        for (number, row) in rows.iter().enumerate() {
            visit(number, found(column(row, 2)?, column(row, 1)?));
        }
        Ok(())
    }

    /// Returns the write time of each key, in milliseconds since the Unix epoch and in the order of
    /// `keys`; `None` if the key has no write time, or is missing or expired.
    pub(crate) fn write_times(self, keys: &[&[u8]]) -> Result<Vec<Option<i64>>> {
        check_keys(keys)?;
        let mut rows = self.rows(WRITE_TIMES, &[&self.name(), &keys])?;
        put_in_order(&mut rows, |a, b| column::<i64>(a, 0).ok().cmp(&column(b, 0).ok()));
        check_numbers(&rows, 0, keys.len())?;
        rows.iter().map(|row| column(row, 1)).collect()
    }

    /// Returns the number of rows, including expired ones.
    pub(crate) fn count(self) -> Result<u64> {
        count(&self.ask(Again::Read, COUNT, &[&self.name()])?, 0)
    }

    /// Returns the number of live keys.
    pub(crate) fn count_live(self) -> Result<u64> {
        count(&self.ask(Again::Read, COUNT_LIVE.on(self.db), &[&self.name()])?, 0)
    }

    /// Returns the number of rows with an expiry time.
    pub(crate) fn count_ttl(self) -> Result<u64> {
        count(&self.ask(Again::Read, COUNT_TTL, &[&self.name()])?, 0)
    }

    /// Returns the earliest expiry time in the family, in milliseconds since the Unix epoch,
    /// including that of an expired row; `None` if no row has an expiry time.
    pub(crate) fn next_expiry(self) -> Result<Option<i64>> {
        column(&self.ask(Again::Read, NEXT_EXPIRY, &[&self.name()])?, 0)
    }

    /// Returns `true` if the family contains an expired row whose expiry time is `last_ms` or
    /// earlier.
    pub(crate) fn has_expired(self, last_ms: i64) -> Result<bool> {
        column(&self.ask(Again::Read, HAS_EXPIRED, &[&self.name(), &last_ms])?, 0)
    }

    /// Returns `true` if the family contains a row that was written at `last_ms` or earlier.
    pub(crate) fn has_written_by(self, last_ms: i64) -> Result<bool> {
        column(&self.ask(Again::Read, HAS_WRITTEN_BY, &[&self.name(), &last_ms])?, 0)
    }

    /// Reads the next live rows of a scan into an empty chunk. Returns the key of the last row
    /// examined, after which the scan continues, or `None` at the end of the scan.
    ///
    /// If the scan passes expired rows, the chunk can be partly filled or empty although the scan
    /// has not ended.
    pub(crate) fn next_rows(self, scan: Scan<'_>, chunk: &mut Chunk) -> Result<Option<Vec<u8>>> {
        let limits = *chunk.limits();
        let (mut lower, mut upper) = (from(scan.lower), before(scan.upper));
        let (mut wanted, mut skips) = (limits.rows.max(1), limits.skipped.max(1));
        loop {
            let sql = walk_by_key(&limits, scan.reverse, upper.is_some(), self.db.is_alone());
            let to = upper.as_ref().map(|upper| upper as _);
            let mut rows = self.walk(&sql, &[&self.name(), &lower], to, wanted, &limits)?;
            put_in_order(&mut rows, |a, b| {
                let order = key(a).ok().cmp(&key(b).ok());
                if scan.reverse { order.reverse() } else { order }
            });
            for row in &rows {
                let enough = match column::<Option<&[u8]>>(row, 3)? {
                    Some(value) => {
                        chunk.add(key(row)?, value, column(row, 2)?)?;
                        chunk.is_full()
                    }
                    None => {
                        skips -= 1;
                        skips == 0
                    }
                };
                if enough {
                    return Ok(Some(key(row)?.to_vec()));
                }
            }
            // Fewer rows than requested mean that the scan has ended. If the limit in bytes had cut
            // off a row, the rows before it would have filled the chunk, and this function would
            // have returned.
            let Some(last) = rows.last().filter(|_| rows.len() >= wanted) else { return Ok(None) };
            if chunk.len() > 0 {
                return Ok(Some(key(last)?.to_vec()));
            }
            // All rows were expired: request more rows in the next statement.
            match scan.reverse {
                true => upper = Some(key(last)?.to_vec()),
                false => lower = from(Bound::Excluded(key(last)?)),
            }
            wanted = wanted.saturating_mul(4).min(skips);
        }
    }

    /// Reads the next rows of a scan in the order of expiry time into an empty chunk. Expired rows
    /// are included.
    ///
    /// The scan continues after the entry `after` and ends before the expiry time `to_ms`; with
    /// `None`, it has no upper bound. Returns the last entry that was read, or `None` at the end of
    /// the scan.
    pub(crate) fn next_expiring(
        self,
        after: (i64, &[u8]),
        to_ms: Option<i64>,
        chunk: &mut Chunk,
    ) -> Result<Option<TimeEntry>> {
        let limits = *chunk.limits();
        let sql = walk_by_end(&limits, to_ms.is_some(), self.db.is_alone());
        let to_ms = to_ms.as_ref().map(|to_ms| to_ms as _);
        let wanted = limits.rows.max(1);
        let mut rows = self.walk(&sql, &[&self.name(), &after.1, &after.0], to_ms, wanted, &limits)?;
        put_in_order(&mut rows, |a, b| entry(a).ok().cmp(&entry(b).ok()));
        for row in &rows {
            let (expire_ms, key) = entry(row)?;
            chunk.add(key, column(row, 3)?, Some(expire_ms))?;
            if chunk.is_full() {
                return Ok(Some((expire_ms, key.to_vec())));
            }
        }
        Ok(None)
    }

    /// Runs the statement of a scan and returns its rows. `from` contains its parameters up to the
    /// lower bound, and `to` the upper bound. After them come the maximum number of rows (`rows`)
    /// and, unless the scan returns only keys, the limit in bytes.
    fn walk(
        self,
        sql: &str,
        from: &[&(dyn ToSql + Sync)],
        to: Option<&(dyn ToSql + Sync)>,
        rows: usize,
        limits: &Limits,
    ) -> Result<Vec<Row>> {
        let rows = i64::try_from(rows).unwrap_or(i64::MAX);
        let bytes = i64::try_from(limits.bytes.max(1)).unwrap_or(i64::MAX);
        let mut params = from.to_vec();
        params.extend(to);
        params.push(&rows);
        if !limits.keys_only {
            params.push(&bytes);
        }
        let mut rows = self.rows(sql, &params)?;
        self.note_time(rows.first())?;
        rows.retain(|row| key(row).is_ok()); // an empty result is one row without a key
        Ok(rows)
    }

    /// Looks up one key with the statement `text`. Returns its row and the server's time, in
    /// milliseconds since the Unix epoch.
    fn look(self, text: &Text, key: &[u8]) -> Result<(Row, i64)> {
        check_key(key)?;
        let row = self.ask(Again::Read, text.on(self.db), &[&self.name(), &key])?;
        let now_ms = unix_ms(column(&row, 0)?);
        self.db.clock.note_server(now_ms);
        Ok((row, now_ms))
    }

    /// Runs a statement that returns at least one row if the family exists. Fails if it returns
    /// none.
    fn rows(self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let rows = self.db.query(Again::Read, sql, params)?;
        if rows.is_empty() { Err(no_longer_exists(self.family)) } else { Ok(rows) }
    }

    /// Sets the clock to the server's time in the first column of a row.
    fn note_time(self, row: Option<&Row>) -> Result<()> {
        if let Some(row) = row {
            self.db.clock.note_server(column(row, 0)?);
        }
        Ok(())
    }
}

/// Returns the lookup result of a key. `live` is the result for a live key, and `expire_ms` is the
/// expiry time of its row.
fn found<R>(live: Option<R>, expire_ms: Option<i64>) -> Found<R> {
    match (live, expire_ms) {
        (Some(shown), _) => Found::Live(shown),
        (None, Some(expire_ms)) => Found::Expired(expire_ms),
        (None, None) => Found::Missing,
    }
}

/// Returns the key in a row of a scan.
fn key(row: &Row) -> Result<&[u8]> {
    column(row, 1)
}

/// Returns the expiry time and the key in a row of a scan.
fn entry(row: &Row) -> Result<(i64, &[u8])> {
    Ok((column(row, 2)?, key(row)?))
}

/// Sorts rows unless they are sorted already. The rows of a LATERAL subquery arrive in the order of
/// the subquery, but no server guarantees that. Sorting them on the server would cost a fifth of
/// the whole statement.
fn put_in_order(rows: &mut [Row], order: impl Fn(&Row, &Row) -> Ordering) {
    if !rows.is_sorted_by(|a, b| order(a, b).is_le()) {
        rows.sort_by(order);
    }
}

/// Fails unless there are `keys` rows, numbered from 1 on in column `at`. Callers use the position
/// of a row as the index of its key, and the C API writes to the caller's memory at that index. So
/// a malformed answer of the server must be rejected.
fn check_numbers(rows: &[Row], at: usize, keys: usize) -> Result<()> {
    let is_its_place = |(place, row)| column::<i64>(row, at).is_ok_and(|number| number == place);
    if rows.len() == keys && (1..).zip(rows).all(is_its_place) { Ok(()) } else { Err(strange()) }
}

/// Returns every statement, for a test of the query plans.
#[cfg(test)]
pub(super) fn statements() -> Vec<String> {
    let texts = [GET, TIMES, GET_MANY, COUNT_LIVE].into_iter().flat_map(|text| [text.alone, text.inside]);
    let all = texts
        .chain([COUNT, WRITE_TIMES, COUNT_TTL, NEXT_EXPIRY, HAS_EXPIRED, HAS_WRITTEN_BY])
        .map(str::to_owned);
    let walks = (0..16).flat_map(|bits| {
        let [keys_only, reverse, is_bounded, is_alone] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
        let limits = Limits { keys_only, ..Limits::default() };
        [walk_by_key(&limits, reverse, is_bounded, is_alone), walk_by_end(&limits, is_bounded, is_alone)]
    });
    all.chain(walks).collect()
}

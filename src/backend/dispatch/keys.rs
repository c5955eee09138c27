//! Operations on the keys of one family. Each calls one operation of the backend of the store, like
//! the other operations of [`Db`].

use std::sync::Arc;

use super::Db;
use crate::backend::file::{RemovalList, Tables};
use crate::backend::{BatchWrite, Chunk, Found, Removals, Scan, StepLimits, TimeEntry, Times};
use crate::error::Result;
use crate::expiry::{Expiry, ExpiryCondition};
use crate::memory::Destination;
use crate::options::PutOptions;

/// Calls the method `$call` on the content of a family, to read it. With `on a server`, calls
/// `$remote` instead for a store on a server.
macro_rules! read {
    ($self:expr, $tables:expr, $call:ident($($argument:expr),*)) => {
        read!($self, $tables, $call($($argument),*), on a server $call($($argument),*))
    };
    ($self:expr, $tables:expr, $call:ident($($argument:expr),*), on a server $remote:ident($($other:expr),*)) => {
        call!(
            $self,
            |db| db.on($tables).$call($($argument),*),
            on a server db.contents($tables.family()).$remote($($other),*)
        )
    };
}

/// Calls the method `$call` on the content of a family, to write to it. The write runs in the open
/// transaction of the caller or, if there is none, in a transaction of its own.
macro_rules! write {
    ($self:expr, $tables:expr, $call:ident($($argument:expr),*)) => {
        call!(
            $self,
            |db| db.write(|db| db.on($tables).$call($($argument),*)),
            on a server db.write(|db| db.contents($tables.family()).$call($($argument),*))
        )
    };
}

/// Reads of one family.
impl Db {
    /// Passes the value and the expiry time of a live key to `visit`, and returns the result of
    /// `visit` in `Found::Live`. An expired row that this call finds is removed later.
    #[inline]
    pub(crate) fn get<R>(
        &mut self,
        tables: &Arc<Tables>,
        key: &[u8],
        visit: impl FnOnce(&[u8], Expiry) -> R,
    ) -> Result<Found<R>> {
        call!(
            self,
            |db| db.get(tables, key, visit),
            on a server db.contents(tables.family()).get(key, visit)
        )
    }

    /// Copies the value of a live key to `to`, and returns its length and its expiry time in
    /// `Found::Live`. An expired row that this call finds is removed later.
    pub(crate) fn copy_value(
        &mut self,
        tables: &Arc<Tables>,
        key: &[u8],
        to: &mut impl Destination,
    ) -> Result<Found<(usize, Expiry)>> {
        call!(
            self,
            |db| db.copy_value(tables, key, to),
            on a server db.contents(tables.family()).copy_value(key, to)
        )
    }

    /// Returns the expiry time and the write time of a live key in `Found::Live`. An expired row
    /// that this call finds is removed later.
    pub(crate) fn times(&mut self, tables: &Arc<Tables>, key: &[u8]) -> Result<Found<Times>> {
        call!(self, |db| db.times(tables, key), on a server db.contents(tables.family()).times(key))
    }

    /// Returns the write time of each key, in milliseconds since the Unix epoch; `None` for a key
    /// that is missing, expired or without a write time.
    pub(crate) fn write_times(&mut self, tables: &Tables, keys: &[&[u8]]) -> Result<Vec<Option<i64>>> {
        read!(self, tables, write_times(keys))
    }

    /// Calls `visit` with the index and the lookup result of each key. All results come from one
    /// snapshot.
    pub(crate) fn get_many<K: AsRef<[u8]>>(
        &mut self,
        tables: &Tables,
        keys: &[K],
        visit: impl FnMut(usize, Found<&[u8]>),
    ) -> Result<()> {
        read!(self, tables, get_many(keys, visit))
    }

    /// Returns the number of rows of a family, including expired rows. In a file, expired rows that
    /// a read has already found are not included.
    pub(crate) fn count(&mut self, tables: &Tables) -> Result<u64> {
        read!(self, tables, count())
    }

    /// Returns the number of live keys of a family.
    pub(crate) fn count_live(&mut self, tables: &Tables) -> Result<u64> {
        read!(self, tables, count_live())
    }

    /// Returns the number of keys of a family that have an expiry time, including expired keys that
    /// are still in the store.
    pub(crate) fn count_ttl(&mut self, tables: &Tables) -> Result<u64> {
        read!(self, tables, count_ttl())
    }

    /// Returns the earliest expiry time in the family, in milliseconds since the Unix epoch; `None`
    /// if no key has an expiry time.
    pub(crate) fn next_expiry(&mut self, tables: &Tables) -> Result<Option<i64>> {
        read!(self, tables, next_expiry())
    }

    /// Returns `true` if the family contains a key that is expired at `now_ms` and has an expiry
    /// time of `last_ms` or earlier. For a store on a server, the time of the server replaces
    /// `now_ms`.
    pub(crate) fn has_expired(&mut self, tables: &Tables, last_ms: i64, now_ms: i64) -> Result<bool> {
        read!(self, tables, has_expired(last_ms, now_ms), on a server has_expired(last_ms))
    }

    /// Returns `true` if the family contains a key that was last written at `last_ms` or earlier
    /// (in milliseconds since the Unix epoch).
    pub(crate) fn has_written_by(&mut self, tables: &Tables, last_ms: i64) -> Result<bool> {
        read!(self, tables, has_written_by(last_ms))
    }

    /// Reads the next live rows of a scan into an empty chunk. Returns the key of the last row
    /// examined, or `None` at the end of the scan.
    #[inline]
    pub(crate) fn next_rows(
        &mut self,
        tables: &Tables,
        scan: Scan<'_>,
        chunk: &mut Chunk,
    ) -> Result<Option<Vec<u8>>> {
        read!(self, tables, next_rows(scan, chunk))
    }

    /// Reads rows into an empty chunk, in the order of expiry time. It begins after the entry
    /// `after` of the expiry index, and ends before the expiry time `to_ms` (`None`: no upper
    /// bound).
    ///
    /// Returns the index entry of the last row, from which the next call continues; `None` if no
    /// further row is left.
    pub(crate) fn next_expiring(
        &mut self,
        tables: &Tables,
        after: (i64, &[u8]),
        to_ms: Option<i64>,
        chunk: &mut Chunk,
    ) -> Result<Option<TimeEntry>> {
        read!(self, tables, next_expiring(after, to_ms, chunk))
    }
}

/// Writes to one family. Each runs in the open transaction of the caller or, if there is none, in a
/// transaction of its own.
impl Db {
    /// Writes a value with options. Returns `false`, and writes nothing, if the condition in
    /// `options` does not hold.
    #[inline]
    pub(crate) fn put(
        &mut self,
        tables: &Tables,
        key: &[u8],
        value: &[u8],
        options: &PutOptions,
    ) -> Result<bool> {
        write!(self, tables, put(key, value, options))
    }

    /// Deletes a key. Returns `true` if the key was live.
    pub(crate) fn delete(&mut self, tables: &Tables, key: &[u8]) -> Result<bool> {
        write!(self, tables, delete(key))
    }

    /// Deletes all keys of the family.
    pub(crate) fn clear(&mut self, tables: &Tables) -> Result<()> {
        write!(self, tables, clear())
    }

    /// Deletes the keys of a range. Returns the number of deleted keys that were live.
    pub(crate) fn delete_range(&mut self, tables: &Tables, range: Scan<'_>) -> Result<u64> {
        write!(self, tables, delete_range(range))
    }

    /// Writes `value` with a new expiry time if the key is live and its value equals `expected`.
    /// Returns `true` if `value` was written. With `expiry` `None`, the default TTL of the family
    /// applies.
    pub(crate) fn compare_and_swap(
        &mut self,
        tables: &Tables,
        key: &[u8],
        expected: &[u8],
        value: &[u8],
        expiry: Option<Expiry>,
    ) -> Result<bool> {
        write!(self, tables, compare_and_swap(key, expected, value, expiry))
    }

    /// Deletes a key if it is live and its value equals `expected`. Returns `true` if it was
    /// deleted.
    pub(crate) fn compare_and_delete(
        &mut self,
        tables: &Tables,
        key: &[u8],
        expected: &[u8],
    ) -> Result<bool> {
        write!(self, tables, compare_and_delete(key, expected))
    }

    /// Adds `delta` to the value of a key, which is a decimal integer. Returns the sum, and the
    /// length of its decimal text in bytes.
    ///
    /// A missing or expired key counts as 0, and gets the expiry time `expiry`; with `None`, the
    /// default TTL of the family applies. A live key keeps its expiry time.
    pub(crate) fn increment(
        &mut self,
        tables: &Tables,
        key: &[u8],
        delta: i64,
        expiry: Option<Expiry>,
    ) -> Result<(i64, usize)> {
        write!(self, tables, increment(key, delta, expiry))
    }

    /// Changes the expiry time of a live key if `condition` holds. Returns `Some(true)` if it was
    /// changed, `Some(false)` if `condition` does not hold, and `None` if the key is missing or
    /// expired.
    pub(crate) fn expire(
        &mut self,
        tables: &Tables,
        key: &[u8],
        expiry: Expiry,
        condition: ExpiryCondition,
    ) -> Result<Option<bool>> {
        write!(self, tables, expire(key, expiry, condition))
    }

    /// Passes the value of a live key to `visit`, then changes the expiry time of the key. Returns
    /// the result of `visit`; `None` if the key is missing or expired.
    ///
    /// If `visit` fails, nothing is changed.
    pub(crate) fn get_and_expire<R>(
        &mut self,
        tables: &Tables,
        key: &[u8],
        expiry: Expiry,
        visit: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<Option<R>> {
        call!(
            self,
            |db| db.write_once(|db| db.on(tables).get_and_expire(key, expiry, visit)),
            on a server db.write(|db| db.contents(tables.family()).get_and_expire(key, expiry, visit))
        )
    }

    /// Runs one step of a purge: removes keys with `expire_ms <= min(last_ms, now_ms)`, earliest
    /// expiry time first. Call it again with the same list, which the first call makes.
    pub(crate) fn purge(
        &mut self,
        tables: &Arc<Tables>,
        last_ms: i64,
        now_ms: i64,
        list: &mut RemovalList,
        limits: &StepLimits<'_>,
    ) -> Result<Removals> {
        call!(
            self,
            |db| db.purge(&[(i64::MIN, Arc::clone(tables))], last_ms, now_ms, list, limits),
            on a server db.write(|db| db.contents(tables.family()).purge(last_ms, limits.max))
        )
    }

    /// Runs one step of a sweep: removes keys that were written at `last_ms` or earlier, live or
    /// expired, the oldest first. Call it again with the same list, which the first call makes.
    pub(crate) fn sweep(
        &mut self,
        tables: &Arc<Tables>,
        last_ms: i64,
        list: &mut RemovalList,
        limits: &StepLimits<'_>,
    ) -> Result<Removals> {
        call!(
            self,
            |db| db.sweep(tables, last_ms, list, limits),
            on a server db.write(|db| db.contents(tables.family()).sweep(last_ms, limits.max))
        )
    }

    /// Runs all writes of a batch, or none of them. Returns the number of live keys that the
    /// deletions of the batch removed.
    ///
    /// Writes to the same key take effect in the order of the batch.
    pub(crate) fn write_batch(&mut self, writes: &[BatchWrite<'_>]) -> Result<u64> {
        call!(
            self,
            |db| db.write(|db| db.write_batch(writes, db.clock())),
            on a server db.write(|db| db.write_batch(writes))
        )
    }
}

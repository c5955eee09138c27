//! A family: the public operations on its keys.
//!
//! This layer checks arguments, counts operations and runs them on the connection. `backend`
//! implements the operations on the tables.

mod conditional;
mod iter;
mod many;
pub(crate) mod purge;
mod range;
mod row_key;
mod ttl;
mod write_times;

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::backend::{Db, Found, Tables, Times};
use crate::config::check_key;
use crate::error::{Error, Result};
use crate::expiry::{self, Expiry, Ttl};
use crate::hint::Hint;
use crate::memory::{self, Destination};
use crate::options::PutOptions;
use crate::session::Session;
pub use iter::{Cursor, Direction, Entry, EntryBatch, Iter};
pub use purge::PurgeStep;
pub use range::KeyRange;
pub use row_key::row_key;

/// Handle on a [family](crate#families): an ordered map from byte strings to byte strings, in which
/// each key can have an expiry time.
///
/// - A key has 1 to [`MAX_KEY_SIZE`](crate::MAX_KEY_SIZE) bytes (on a server 1 to
///   [`MAX_SERVER_KEY_SIZE`](crate::MAX_SERVER_KEY_SIZE)). A value has 0 bytes up to
///   [`Config::max_value_size`](crate::Config::max_value_size). Both may contain any bytes.
/// - Each write is atomic: a transaction of its own, or a part of the open transaction of the
///   handle.
/// - An expired key is never returned. Its row stays in the file until it is removed: by a write to
///   the key, by a purge, or after a [`get`](Family::get), [`exists`](Family::exists) or
///   [`ttl`](Family::ttl) found it. Rows that were found are removed together, with the next write
///   of the handle or later; for this handle they count as removed at once. A read-only handle and a
///   read transaction do not note them.
///
/// Clones are further handles on the same family. A family with open handles cannot be dropped
/// ([`Store::drop_family`](crate::Store::drop_family)).
///
/// # Errors
///
/// Reads return the [read errors](crate#errors), writes the [write errors](crate#errors). Both
/// return [`Error`](crate::ErrorKind::Error) if another handle has dropped the family, or if a key,
/// value, TTL or expiry time is out of bounds. The functions below list only further kinds.
pub struct Family {
    target: Arc<Target>,
    released: AtomicBool,
}

/// Family that a [`Family`] handle and its iterators work on: the state of the store handle, and
/// the names of the tables of the family.
pub(crate) struct Target {
    pub(crate) session: Arc<Session>,
    pub(crate) tables: Arc<Tables>,
}

impl Family {
    pub(crate) fn new(session: &Arc<Session>, name: &str) -> Family {
        session.family_opened(name);
        let family = Family::unregistered_of(session, name);
        family.released.store(false, Ordering::Relaxed);
        family
    }

    /// Returns a handle on the family `name` of the store handle `session`, for internal use. It
    /// does not count as an open handle: the family can be dropped while this handle exists.
    pub(crate) fn unregistered_of(session: &Arc<Session>, name: &str) -> Family {
        let target = Target { session: Arc::clone(session), tables: session.tables(name) };
        Family { target: Arc::new(target), released: AtomicBool::new(true) }
    }

    /// Returns another handle on this family, for internal use. It does not count as an open
    /// handle: the family can be dropped while this handle exists.
    pub(crate) fn unregistered(&self) -> Family {
        Family { target: Arc::clone(&self.target), released: AtomicBool::new(true) }
    }

    /// Returns the name of the family.
    #[must_use]
    pub fn name(&self) -> &str {
        self.target.tables.family()
    }

    /// Returns the creation time of the family, in milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn created_ms(&self) -> Result<i64> {
        self.session().with(|db| db.created_ms(self.tables()))
    }

    pub(crate) fn tables(&self) -> &Tables {
        &self.target.tables
    }

    /// Returns the names of the family's tables as an `Arc`, for callers that keep them longer than
    /// this handle exists.
    pub(crate) fn shared_tables(&self) -> Arc<Tables> {
        Arc::clone(&self.target.tables)
    }

    pub(crate) fn session(&self) -> &Session {
        &self.target.session
    }

    // ---- writes ------------------------------------------------------------------------------

    /// Writes a value, replacing an existing one.
    ///
    /// The key gets the [default TTL](Family::default_ttl) of the family, or no TTL if the family
    /// has none. It loses the TTL that it had.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with_options(key, value, &PutOptions::new()).map(drop)
    }

    /// Writes a value with a TTL that is counted from the write.
    ///
    /// Fractions of a millisecond are rounded up.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn put_with_ttl(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Duration) -> Result<()> {
        self.put_with_options(key, value, &PutOptions::new().ttl(ttl)).map(drop)
    }

    /// Writes a value with an expiry time.
    ///
    /// [`Expiry::Never`] writes a key without TTL, also in a family with a default TTL. If the
    /// expiry time has passed, the key is expired at once.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn put_with_expiry(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: Expiry,
    ) -> Result<()> {
        self.put_with_options(key, value, &PutOptions::new().expiry(expiry)).map(drop)
    }

    /// Writes a value only if the key is missing or expired. Returns `true` if the value was
    /// written.
    ///
    /// A live key keeps its value and its TTL. A new key gets the expiry time `expiry`; with `None`
    /// the [default TTL](Family::default_ttl) of the family.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn put_if_absent(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Option<Expiry>>,
    ) -> Result<bool> {
        self.put_with_options(key, value, &PutOptions::new().expiry(expiry).if_absent())
    }

    /// Returns the expiry time of a key whose TTL starts now, by the clock of the store.
    #[must_use]
    pub fn expiry_after(&self, ttl: Duration) -> Expiry {
        Expiry::At(expiry::after(self.session().now_ms(), ttl))
    }

    /// Deletes a key. Returns `true` if the key was live.
    ///
    /// The bytes of key and value stay in the file until their space is reused, unless the store
    /// was opened with [`Config::secure_delete`](crate::Config::secure_delete).
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.check_key(key)?;
        let deleted = self.session().write(|db| db.delete(self.tables(), key))?;
        if deleted {
            self.session().counters.deletes.add(1);
        }
        Ok(deleted)
    }

    /// Deletes all keys of the family in one transaction.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn clear(&self) -> Result<()> {
        self.session().long_write(|db| db.clear(self.tables()))
    }

    // ---- reads -------------------------------------------------------------------------------

    /// Returns a copy of the value of a key; `None` if the key is missing or expired.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.get_with(key, |value, _| memory::copy_of(value))?.transpose()
    }

    /// Calls `visit` with the value of a key and its expiry time, without copying the value.
    /// Returns the result of `visit`, or `None` if the key is missing or expired.
    ///
    /// `visit` must not call this store: such a call fails with
    /// [`Misuse`](crate::ErrorKind::Misuse).
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn get_with<R>(
        &self,
        key: impl AsRef<[u8]>,
        visit: impl FnOnce(&[u8], Expiry) -> R,
    ) -> Result<Option<R>> {
        let key = key.as_ref();
        let found = self.look_up(key, |db, tables| {
            db.get(tables, key, |value, expiry| (visit(value, expiry), value.len()))
        })?;
        let Found::Live((shown, bytes)) = found else {
            self.count_miss();
            return Ok(None);
        };
        self.count_get(bytes);
        Ok(Some(shown))
    }

    /// Copies the value of a key to `to`. Returns its length and its expiry time; `None` if the key
    /// is missing or expired.
    pub(crate) fn copy_value(
        &self,
        key: &[u8],
        to: &mut impl Destination,
    ) -> Result<Option<(usize, Expiry)>> {
        let Found::Live((length, expiry)) = self.look_up(key, |db, tables| db.copy_value(tables, key, to))?
        else {
            self.count_miss();
            return Ok(None);
        };
        self.count_get(length);
        Ok(Some((length, expiry)))
    }

    /// Returns the value and the remaining TTL of a key; `None` if the key is missing or expired.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn get_with_ttl(&self, key: impl AsRef<[u8]>) -> Result<Option<(Vec<u8>, Ttl)>> {
        let found =
            self.get_with(key, |value, expiry| memory::copy_of(value).map(|value| (value, expiry)))?;
        Ok(found.transpose()?.map(|(value, expiry)| (value, self.ttl_of_live(expiry))))
    }

    /// Returns `true` if the key is live.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn exists(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let exists = self.times(key.as_ref())?.live().is_some();
        if !exists {
            self.count_miss();
        }
        Ok(exists)
    }

    /// Returns the remaining TTL of a key; `None` if the key has no row.
    ///
    /// The first call of a handle that finds an expired row returns [`Ttl::Remaining`] with zero;
    /// later calls return `None`.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn ttl(&self, key: impl AsRef<[u8]>) -> Result<Option<Ttl>> {
        Ok(match self.times(key.as_ref())? {
            Found::Live(times) => Some(self.remaining_ttl(times.expiry)),
            Found::Expired(_) => Some(Ttl::Remaining(Duration::ZERO)),
            Found::Missing => None,
        })
    }

    /// Returns the number of rows, including expired rows that have not been removed yet.
    ///
    /// Not included are expired rows that a lookup of this handle has found.
    /// [`count_live`](Family::count_live) counts live keys only.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn count(&self) -> Result<u64> {
        self.session().with(|db| db.count(self.tables()))
    }

    // ---- iteration ---------------------------------------------------------------------------

    /// Returns an iterator over all live entries, in key order.
    #[must_use]
    pub fn iter(&self) -> Iter {
        Iter::new(self.cursor(KeyRange::all(), Direction::Forward))
    }

    /// Returns an iterator over the live entries whose keys begin with `prefix`, in key order.
    #[must_use]
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        Iter::new(self.cursor(KeyRange::prefix(prefix.as_ref()), Direction::Forward))
    }

    /// Returns an iterator over the live entries whose keys are in `range`, in key order.
    ///
    /// ```
    /// # let store = kvstore::Store::open_in_memory(&kvstore::Config::new())?;
    /// # for key in ["a", "b", "c"] { store.put(key, "1")?; }
    /// let keys: Result<Vec<_>, _> = store.range("a".."c").map(|entry| Ok(entry?.0)).collect();
    /// assert_eq!(keys?, [b"a", b"b"]);
    /// # Ok::<(), kvstore::Error>(())
    /// ```
    #[must_use]
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
        fn owned<K: AsRef<[u8]>>(bound: Bound<&K>) -> Bound<Vec<u8>> {
            bound.map(|key| key.as_ref().to_vec())
        }
        let range = KeyRange::new(owned(range.start_bound()), owned(range.end_bound()));
        Iter::new(self.cursor(range, Direction::Forward))
    }

    /// Returns a cursor over the live entries whose keys are in `range`. Call
    /// [`first`](Cursor::first) or [`seek`](Cursor::seek) to move it to an entry.
    #[must_use]
    pub fn cursor(&self, range: KeyRange, direction: Direction) -> Cursor {
        self.session().counters.iterations.add(1);
        Cursor::new(Arc::clone(&self.target), range, direction)
    }

    /// Returns a cursor over the rows of one partition, whose keys were built by
    /// [`row_key`](crate::row_key()). Call [`first`](Cursor::first) or [`seek`](Cursor::seek) to
    /// move it to a row.
    ///
    /// `clusterings` is the range of clustering parts to return. [`key`](Cursor::key) returns the
    /// clustering part of a row key, and [`seek`](Cursor::seek) takes one.
    ///
    /// # Errors
    /// [`Error`](crate::ErrorKind::Error) if a row key with one of the bounds would be too long.
    pub fn row_cursor(
        &self,
        partition: &[u8],
        clusterings: &KeyRange,
        direction: Direction,
    ) -> Result<Cursor> {
        let row_key = |clustering: &[u8]| self.session().count_failure(row_key(partition, clustering));
        let prefix = row_key(&[])?;
        clusterings.bounds().into_iter().flatten().try_for_each(|bound| row_key(bound).map(drop))?;
        let range = clusterings.within_prefix(&prefix);
        Ok(self.cursor(range, direction).without_prefix(prefix))
    }

    /// Returns a cursor over the keys that expire at or after `from_ms` and before `to_ms`, in
    /// order of expiry time. Call [`first`](Cursor::first) to move it to an entry; it cannot seek.
    ///
    /// Both times are in milliseconds since the Unix epoch. A `to_ms` of `i64::MAX` means no upper
    /// bound. Expired rows that have not been removed yet are included.
    #[must_use]
    pub fn expiry_cursor(&self, from_ms: i64, to_ms: i64) -> Cursor {
        self.session().counters.iterations.add(1);
        let to_ms = Some(to_ms).filter(|to_ms| *to_ms < i64::MAX);
        Cursor::by_expiry(Arc::clone(&self.target), from_ms, to_ms)
    }

    // ---- for the C layer ---------------------------------------------------------------------

    /// Ends this handle without freeing its memory. It no longer counts as an open handle, so
    /// [`Store::drop_family`](crate::Store::drop_family) can drop the family.
    pub(crate) fn release(&self) {
        if !self.released.swap(true, Ordering::Relaxed) {
            self.session().family_closed(self.name());
        }
    }

    // ---- helpers -----------------------------------------------------------------------------

    /// Runs `look`, a lookup of one key, and returns its result. If it found an expired row, that
    /// is counted in the statistics. The connection removes the row later.
    fn look_up<R>(
        &self,
        key: &[u8],
        look: impl FnOnce(&mut Db, &Arc<Tables>) -> Result<Found<R>>,
    ) -> Result<Found<R>> {
        self.check_key(key)?;
        self.session().with(|db| {
            let found = look(db, &self.target.tables)?;
            if let Found::Expired(_) = found {
                self.session().counters.ttl_expired.add(1);
                self.session().note_change(); // entries read ahead may contain this row
            }
            Ok(found)
        })
    }

    /// Looks up a key, and returns its expiry time and write time if it is live. Otherwise the
    /// result says whether the key is missing or its row is expired.
    pub(crate) fn times(&self, key: &[u8]) -> Result<Found<Times>> {
        self.look_up(key, |db, tables| db.times(tables, key))
    }

    /// Returns the duration until the expiry time `expiry`, by the clock of the store; zero if it
    /// has passed.
    #[must_use]
    pub fn remaining_ttl(&self, expiry: Expiry) -> Ttl {
        expiry.millis().map_or(Ttl::None, |expire_ms| {
            let left = expiry::remaining_ms(expire_ms, self.session().clock.now_ms());
            Ttl::Remaining(Duration::from_millis(left.unsigned_abs()))
        })
    }

    /// Returns the duration until `expiry`, by the clock of the store, for a key that was live when
    /// it was read. The result is at least 1 ms, even if the key has expired since.
    #[must_use]
    pub(crate) fn ttl_of_live(&self, expiry: Expiry) -> Ttl {
        match self.remaining_ttl(expiry) {
            Ttl::Remaining(left) => Ttl::Remaining(left.max(Duration::from_millis(1))),
            Ttl::None => Ttl::None,
        }
    }

    /// Fails with `Error` if the length of a key is out of bounds. A failure is counted in the
    /// statistics.
    pub(crate) fn check_key(&self, key: &[u8]) -> Result<()> {
        self.session().count_failure(check_key(key))
    }

    /// Fails with `Error` if the length of a key or value, or an expiry time, is out of bounds. A
    /// failure is counted in the statistics.
    pub(crate) fn check_entry(
        &self,
        key: &[u8],
        value: &[u8],
        expiry: impl Into<Option<Expiry>>,
    ) -> Result<()> {
        let checked = check_key(key).and_then(|()| {
            let max = self.session().config.max_value_size;
            if value.len() > max {
                return Err(Error::invalid(format!(
                    "the value has {} bytes, and the maximum of this store is {max}",
                    value.len()
                ))
                .with_hint(Hint::RaiseMaxValueSize));
            }
            expiry.into().map_or(Ok(()), Expiry::check)
        });
        self.session().count_failure(checked)
    }

    pub(crate) fn count_put(&self, key: &[u8], value: &[u8]) {
        self.session().count_puts(1, (key.len() + value.len()) as u64);
    }

    pub(crate) fn count_get(&self, bytes: usize) {
        self.session().counters.gets.add(1);
        self.session().counters.bytes_read.add(bytes as u64);
    }

    pub(crate) fn count_miss(&self) {
        self.session().counters.misses.add(1);
    }
}

impl Clone for Family {
    fn clone(&self) -> Family {
        self.session().family_opened(self.name());
        Family { target: Arc::clone(&self.target), released: AtomicBool::new(false) }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        self.release();
    }
}

impl std::fmt::Debug for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Family").field("name", &self.name()).finish_non_exhaustive()
    }
}

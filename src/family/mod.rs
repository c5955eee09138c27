//! A family: what it promises, wherever its data is kept.
//!
//! Arguments are checked here, what is done is counted here, and each operation is run on the connection
//! here; what it does to tables is in `db`.

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

use crate::config::check_key;
use crate::db::{Contents, Found, Tables, Times, View};
use crate::error::{Error, Result};
use crate::expiry::{self, Expiry, Ttl};
use crate::memory;
use crate::options::PutOptions;
use crate::shared::Shared;
pub use iter::{Cursor, Direction, Entry, EntryBatch, Iter};
pub use purge::PurgeStep;
pub use range::KeyRange;
pub use row_key::row_key;

/// A handle on a family of keys: an ordered map from byte strings to byte strings, each with an
/// optional end of life.
///
/// Keys are 1 to 65 536 bytes; values up to the configured maximum (10 MiB by default). An expired
/// key is never returned. Its row is removed by a delete, by a purge, or soon after a get, exists or ttl has met
/// it: together with others, or with the next write. Each write is atomic: a transaction of its own, or a part of the open one.
///
/// Unless said otherwise, a method fails with `Error` for a key or value of a bad length,
/// [`Busy`](crate::ErrorKind::Busy) if it needs a lock another handle holds,
/// [`ReadOnly`](crate::ErrorKind::ReadOnly) for a write where only reading is allowed,
/// [`Misuse`](crate::ErrorKind::Misuse) if the store is closed, and `Io`, `Corrupt`, `Full` or
/// `NoMemory` when that is what happened.
pub struct Family {
    target: Arc<Target>,
    released: AtomicBool,
}

/// What a family's handle and its iterators share.
pub(crate) struct Target {
    pub(crate) shared: Arc<Shared>,
    pub(crate) tables: Arc<Tables>,
}

impl Family {
    pub(crate) fn new(shared: &Arc<Shared>, name: &str) -> Family {
        shared.family_opened(name);
        let family = Family::unregistered_of(shared, name);
        family.released.store(false, Ordering::Relaxed);
        family
    }

    /// A family for use inside the library: no handle that keeps it from being dropped.
    pub(crate) fn unregistered_of(shared: &Arc<Shared>, name: &str) -> Family {
        let target = Target { shared: Arc::clone(shared), tables: shared.tables(name) };
        Family { target: Arc::new(target), released: AtomicBool::new(true) }
    }

    /// The same without making the tables' names again.
    pub(crate) fn unregistered(&self) -> Family {
        Family { target: Arc::clone(&self.target), released: AtomicBool::new(true) }
    }

    /// The family's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.target.tables.family()
    }

    /// When the family was made, in milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn created_ms(&self) -> Result<i64> {
        self.shared().with(|db| db.view().created_ms(self.tables()))
    }

    pub(crate) fn tables(&self) -> &Tables {
        &self.target.tables
    }

    /// The same, for who keeps them longer than the family.
    pub(crate) fn shared_tables(&self) -> Arc<Tables> {
        Arc::clone(&self.target.tables)
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.target.shared
    }

    /// What is in the family, seen through the connection and by the store's clock.
    #[inline]
    pub(crate) fn on<'c>(&'c self, db: View<'c>) -> Contents<'c> {
        db.contents(self.tables(), &self.shared().clock)
    }

    // ---- writes ------------------------------------------------------------------------------

    /// Writes a value. The key loses the TTL it had, and gets the family's
    /// [default TTL](Family::default_ttl) if there is one.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with_options(key, value, &PutOptions::new().use_default_ttl()).map(drop)
    }

    /// Writes a value that lives for `ttl` from now on; fractions of a millisecond count up.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn put_with_ttl(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Duration) -> Result<()> {
        self.put_with_options(key, value, &PutOptions::new().ttl(ttl)).map(drop)
    }

    /// Writes a value with an absolute end of life; [`Expiry::Never`] also against a default TTL. If
    /// the moment is in the past, the key is invisible at once.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn put_with_expiry(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: Expiry,
    ) -> Result<()> {
        self.put_with_options(key, value, &PutOptions::new().expiry(expiry)).map(drop)
    }

    /// Writes a value only if the key is absent (an expired key is); says whether it did. A live
    /// key keeps its value and its TTL.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn put_if_absent(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: Expiry,
    ) -> Result<bool> {
        self.put_with_options(key, value, &PutOptions::new().expiry(expiry).if_absent())
    }

    /// The end of life of something that begins now, by this store's clock, and lives for `ttl`.
    #[must_use]
    pub fn expiry_after(&self, ttl: Duration) -> Expiry {
        Expiry::At(expiry::after(self.shared().now_ms(), ttl))
    }

    /// Deletes a key; says whether it was there and alive. Its bytes stay in the file until their place is used again,
    /// unless the store was opened with [`Config::secure_delete`](crate::Config::secure_delete).
    ///
    /// # Errors
    /// See [`Family`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.check_key(key)?;
        let deleted = self.shared().write(|db| self.on(db).delete(key))?;
        if deleted {
            self.shared().counters.deletes.add(1);
        }
        Ok(deleted)
    }

    /// Deletes everything in the family.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn clear(&self) -> Result<()> {
        self.shared().write(|db| self.on(db).clear())
    }

    // ---- reads -------------------------------------------------------------------------------

    /// The value of a key, or `None` if it is missing or expired.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.get_with(key, |value, _| memory::copy_of(value))?.transpose()
    }

    /// Shows the value of a key and its end of life to `visit`, without a copy. `visit` must not
    /// call this store.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn get_with<R>(
        &self,
        key: impl AsRef<[u8]>,
        visit: impl FnOnce(&[u8], Expiry) -> R,
    ) -> Result<Option<R>> {
        let key = key.as_ref();
        let found =
            self.look_up(key, |family| family.get(key, |value, expiry| (visit(value, expiry), value.len())))?;
        let Found::Live((shown, bytes)) = found else {
            self.count_miss();
            return Ok(None);
        };
        self.count_get(bytes);
        Ok(Some(shown))
    }

    /// The value of a key with what is left of its life, or `None` if it is missing or expired.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn get_with_ttl(&self, key: impl AsRef<[u8]>) -> Result<Option<(Vec<u8>, Ttl)>> {
        let found =
            self.get_with(key, |value, expiry| memory::copy_of(value).map(|value| (value, expiry)))?;
        Ok(found.transpose()?.map(|(value, expiry)| (value, self.ttl_of_live(expiry))))
    }

    /// Whether a key is there and alive.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn exists(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let exists = self.times(key.as_ref())?.live().is_some();
        if !exists {
            self.count_miss();
        }
        Ok(exists)
    }

    /// What is left of a key's life; `None` if the key is missing. A key that has expired, but whose row
    /// this call is the first of its handle to meet, has [`Ttl::Remaining`] zero.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn ttl(&self, key: impl AsRef<[u8]>) -> Result<Option<Ttl>> {
        Ok(match self.times(key.as_ref())? {
            Found::Live(times) => Some(self.remaining_ttl(times.expiry)),
            Found::Expired(_) => Some(Ttl::Remaining(Duration::ZERO)),
            Found::Missing => None,
        })
    }

    /// Number of rows. Expired ones are included as long as nothing has removed them, and no get, exists or ttl of
    /// this handle has met them.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn count(&self) -> Result<u64> {
        self.shared().with(|db| self.on(db.view()).count())
    }

    // ---- iteration ---------------------------------------------------------------------------

    /// All live entries in key order.
    #[must_use]
    pub fn iter(&self) -> Iter {
        Iter::new(self.cursor(KeyRange::all(), Direction::Forward))
    }

    /// The live entries whose keys start with `prefix`, in key order.
    #[must_use]
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        Iter::new(self.cursor(KeyRange::prefix(prefix.as_ref()), Direction::Forward))
    }

    /// The live entries whose keys are in `range`, in key order.
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

    /// A cursor over `range`, not positioned yet.
    #[must_use]
    pub fn cursor(&self, range: KeyRange, direction: Direction) -> Cursor {
        self.shared().counters.iterations.add(1);
        Cursor::new(Arc::clone(&self.target), range, direction)
    }

    /// A cursor over one partition of [row keys](crate::row_key), not positioned yet. `clusterings`
    /// bounds the clustering parts, which is also what the cursor's keys are.
    ///
    /// # Errors
    /// `Error` if a bound makes a key that is too long.
    pub fn row_cursor(
        &self,
        partition: &[u8],
        clusterings: &KeyRange,
        direction: Direction,
    ) -> Result<Cursor> {
        let row_key = |clustering: &[u8]| self.shared().count_failure(row_key(partition, clustering));
        let prefix = row_key(&[])?;
        clusterings.bounds().into_iter().flatten().try_for_each(|bound| row_key(bound).map(drop))?;
        let range = clusterings.within_prefix(&prefix);
        Ok(self.cursor(range, direction).without_prefix(prefix))
    }

    /// A cursor over the keys whose end of life is at or after `from_ms` and before `to_ms`, in the
    /// order of their ends; keys that have expired but are still there included. With a `to_ms` of
    /// `i64::MAX`, the last moment there is, keys that end at that moment are included, too. It cannot seek.
    #[must_use]
    pub fn expiry_cursor(&self, from_ms: i64, to_ms: i64) -> Cursor {
        self.shared().counters.iterations.add(1);
        let to_ms = Some(to_ms).filter(|to_ms| *to_ms < i64::MAX);
        Cursor::by_expiry(Arc::clone(&self.target), from_ms, to_ms)
    }

    // ---- for the C layer ---------------------------------------------------------------------

    /// Ends this handle without dropping it: the family can be dropped from now on.
    pub(crate) fn release(&self) {
        if !self.released.swap(true, Ordering::Relaxed) {
            self.shared().family_closed(self.name());
        }
    }

    // ---- helpers -----------------------------------------------------------------------------

    /// Runs a look-up of one key, and sees to it that the row is removed if it turns out to be dead.
    fn look_up<R>(
        &self,
        key: &[u8],
        look: impl FnOnce(Contents<'_>) -> Result<Found<R>>,
    ) -> Result<Found<R>> {
        self.check_key(key)?;
        self.shared().with(|db| {
            let found = look(self.on(db.view()))?;
            if let Found::Expired(expire_ms) = found {
                self.shared().counters.ttl_expired.add(1);
                self.shared().remove_in_time(db, &self.target.tables, key, expire_ms);
            }
            Ok(found)
        })
    }

    /// The times of a key.
    pub(crate) fn times(&self, key: &[u8]) -> Result<Found<Times>> {
        self.look_up(key, |family| family.times(key))
    }

    /// What is left until `expiry`, by this store's clock.
    #[must_use]
    pub fn remaining_ttl(&self, expiry: Expiry) -> Ttl {
        expiry.millis().map_or(Ttl::None, |expire_ms| {
            let left = expiry::remaining_ms(expire_ms, self.shared().clock.now_ms());
            Ttl::Remaining(Duration::from_millis(left.unsigned_abs()))
        })
    }

    /// The same for a key that was alive when it was read, whatever the time is by now: at least 1 ms.
    #[must_use]
    pub(crate) fn ttl_of_live(&self, expiry: Expiry) -> Ttl {
        match self.remaining_ttl(expiry) {
            Ttl::Remaining(left) => Ttl::Remaining(left.max(Duration::from_millis(1))),
            Ttl::None => Ttl::None,
        }
    }

    /// Refuses a key of a bad length, and counts the failure.
    pub(crate) fn check_key(&self, key: &[u8]) -> Result<()> {
        self.shared().count_failure(check_key(key))
    }

    /// Refuses a key or value of a bad length, and a time that is none.
    pub(crate) fn check_entry(&self, key: &[u8], value: &[u8], expiry: Expiry) -> Result<()> {
        let checked = check_key(key).and_then(|()| {
            let max = self.shared().config.max_value_size;
            if value.len() > max {
                return Err(Error::invalid(format!(
                    "a value of {} bytes: this store takes up to {max} (Config::max_value_size; in C, KVStoreConfig.maxValueSize)",
                    value.len()
                )));
            }
            expiry.check()
        });
        self.shared().count_failure(checked)
    }

    pub(crate) fn count_put(&self, key: &[u8], value: &[u8]) {
        self.shared().counters.puts.add(1);
        self.shared().counters.bytes_written.add((key.len() + value.len()) as u64);
    }

    pub(crate) fn count_get(&self, bytes: usize) {
        self.shared().counters.gets.add(1);
        self.shared().counters.bytes_read.add(bytes as u64);
    }

    pub(crate) fn count_miss(&self) {
        self.shared().counters.misses.add(1);
    }
}

impl Clone for Family {
    fn clone(&self) -> Family {
        self.shared().family_opened(self.name());
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

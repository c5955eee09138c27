//! A family: its reads and writes, and the write plan over its tables, which lives here and nowhere
//! else.
//!
//! Invariants of every write: the data row, the large value, the key index and the expiry index
//! change in one transaction; an index entry exists exactly for each row with an `expire_ms`, with
//! the same `expire_ms`; a large value exists exactly for each row with a `blob_id`.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::conditional::PutOptions;
use crate::config::check_key;
use crate::db::{Db, Engine, Head, Row, Tables, Transaction};
use crate::error::{Error, Result};
use crate::expiry::{self, Expiry, Ttl};
use crate::inner::Inner;
use crate::iter::{Cursor, Direction, Iter};
use crate::range::KeyRange;
use crate::row_key::row_key;

/// A value up to this many bytes stays in its row, however long the key beside it is: out of line it
/// would save nothing.
const ALWAYS_INLINE: usize = 64;

/// A handle on a family of keys: an ordered map from byte strings to byte strings, each with an
/// optional end of life.
///
/// Keys are 1 to 65 536 bytes; values up to the configured maximum (10 MiB by default). An expired
/// key is never returned; its row is removed by the next get, exists, ttl or delete that meets it,
/// or by a purge. Each write is atomic: a transaction of its own, or a part of the open one.
///
/// Unless said otherwise, a method fails with `Error` for a key or value of a bad length,
/// [`Busy`](crate::ErrorKind::Busy) if it needs a lock another handle holds,
/// [`ReadOnly`](crate::ErrorKind::ReadOnly) for a write where only reading is allowed,
/// [`Misuse`](crate::ErrorKind::Misuse) if the store is closed, and `Io`, `Corrupt`, `Full` or
/// `NoMemory` when that is what happened.
pub struct Family {
    shared: Arc<Shared>,
    released: AtomicBool,
}

/// What a family's handle and its iterators share.
pub(crate) struct Shared {
    pub(crate) inner: Arc<Inner>,
    pub(crate) tables: Arc<Tables>,
}

impl Family {
    #[cold]
    pub(crate) fn out_of_order(&self) -> Error {
        self.shared.out_of_order()
    }
}

impl Shared {
    /// What a walk answers that comes to where it was before: it would never end.
    #[cold]
    pub(crate) fn out_of_order(&self) -> Error {
        Error::Corrupt(format!("the rows of family \"{}\" are out of order", self.tables.family()))
    }
}

/// What a look-up met.
enum Found<R> {
    Live(R),
    /// With when that was.
    Expired(Option<i64>),
}

impl Family {
    pub(crate) fn new(inner: &Arc<Inner>, name: &str) -> Family {
        inner.family_opened(name);
        let family = Family::unregistered_of(inner, name);
        family.released.store(false, Ordering::Relaxed);
        family
    }

    /// A family for use inside the library: no handle that keeps it from being dropped.
    pub(crate) fn unregistered_of(inner: &Arc<Inner>, name: &str) -> Family {
        let shared = Shared { inner: Arc::clone(inner), tables: inner.tables(name) };
        Family { shared: Arc::new(shared), released: AtomicBool::new(true) }
    }

    /// The same without making the tables' names again.
    pub(crate) fn unregistered(&self) -> Family {
        Family { shared: Arc::clone(&self.shared), released: AtomicBool::new(true) }
    }

    /// The family's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.shared.tables.family()
    }

    pub(crate) fn tables(&self) -> &Tables {
        &self.shared.tables
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.shared.inner
    }

    // ---- writes ------------------------------------------------------------------------------

    /// Writes a value. The key loses the TTL it had, and gets the family's
    /// [default TTL](Family::default_ttl) if there is one.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, &PutOptions::new().default_ttl()).map(drop)
    }

    /// Writes a value that lives for `ttl` from now on; fractions of a millisecond count up.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn put_ttl(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Duration) -> Result<()> {
        self.put_until(key, value, self.expiry_in(ttl))
    }

    /// Writes a value with an absolute end of life; [`Expiry::Never`] also against a default TTL. If
    /// the moment is in the past, the key is invisible at once.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn put_until(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expiry: Expiry) -> Result<()> {
        self.put_with(key, value, &PutOptions::new().expiry(expiry)).map(drop)
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
        self.put_with(key, value, &PutOptions::new().expiry(expiry).if_absent())
    }

    /// The end of life of something that begins now, by this store's clock, and lives for `ttl`.
    #[must_use]
    pub fn expiry_in(&self, ttl: Duration) -> Expiry {
        Expiry::At(expiry::after(self.inner().clock.now_ms(), ttl))
    }

    /// Deletes a key; says whether it was there and alive.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.check_key(key)?;
        let deleted = self.inner().write(|db| self.delete_in(db, key))?;
        if deleted {
            self.inner().counters.deletes.add(1);
        }
        Ok(deleted)
    }

    /// Deletes everything in the family.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn clear(&self) -> Result<()> {
        self.inner().write(|db| db.rows().clear(self.tables()))
    }

    // ---- reads -------------------------------------------------------------------------------

    /// The value of a key, or `None` if it is missing or expired.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.get_with(key, |value, _| value.to_vec())
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
        let mut visit = Some(visit); // taken at most once: a live row ends the look-up
        let found = self.look_up(key, |db| {
            db.rows().get(self.tables(), key, |row| {
                let head = row.head();
                if self.is_expired(head) {
                    return Ok(Found::Expired(head.expire_ms));
                }
                let expiry = Expiry::of_row(head.expire_ms);
                row.value(|value| Found::Live((visit.take().map(|visit| visit(value, expiry)), value.len())))
            })
        })?;
        let Some(Found::Live((Some(shown), bytes))) = found else { return Ok(None) };
        self.count_get(bytes);
        Ok(Some(shown))
    }

    /// The value of a key with what is left of its life, or `None` if it is missing or expired.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn get_ttl(&self, key: impl AsRef<[u8]>) -> Result<Option<(Vec<u8>, Ttl)>> {
        let found = self.get_with(key, |value, expiry| (value.to_vec(), expiry))?;
        Ok(found.map(|(value, expiry)| (value, self.ttl_of_live(expiry))))
    }

    /// Whether a key is there and alive.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn exists(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.look_up_head(key.as_ref())?.is_some())
    }

    /// What is left of a key's life; `None` if the key is missing. A key that has expired, but
    /// whose row this call still met, has [`Ttl::Remaining`] zero.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn ttl(&self, key: impl AsRef<[u8]>) -> Result<Option<Ttl>> {
        Ok(self.find_head(key.as_ref())?.map(|found| match found {
            Found::Live(head) => self.ttl_until(Expiry::of_row(head.expire_ms)),
            Found::Expired(_) => Ttl::Remaining(Duration::ZERO),
        }))
    }

    /// Number of rows, expired ones that no purge has removed yet included.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn count(&self) -> Result<u64> {
        self.inner().with(|db| db.rows().count(self.tables()))
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
        self.inner().counters.iterations.add(1);
        Cursor::new(Arc::clone(&self.shared), range, direction)
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
        let row_key = |clustering: &[u8]| self.inner().count_failure(row_key(partition, clustering));
        let prefix = row_key(&[])?;
        clusterings.bounds().into_iter().flatten().try_for_each(|bound| row_key(bound).map(drop))?;
        let range = clusterings.within_prefix(&prefix);
        Ok(self.cursor(range, direction).without_prefix(prefix))
    }

    /// A cursor over the keys whose end of life is at or after `from_ms` and before `to_ms`, in the
    /// order of their ends; keys that have expired but are still there included. It cannot seek.
    #[must_use]
    pub fn expiring(&self, from_ms: i64, to_ms: i64) -> Cursor {
        self.inner().counters.iterations.add(1);
        Cursor::by_expiry(Arc::clone(&self.shared), from_ms, to_ms)
    }

    // ---- for the C layer ---------------------------------------------------------------------

    /// Ends this handle without dropping it: the family can be dropped from now on.
    #[doc(hidden)]
    pub fn release(&self) {
        if !self.released.swap(true, Ordering::Relaxed) {
            self.inner().family_closed(self.name());
        }
    }

    // ---- the write plan ----------------------------------------------------------------------

    /// Writes one row and all that belongs to it. `old` is the head of the row it replaces.
    pub(crate) fn write_row(
        &self,
        db: &Db,
        key: &[u8],
        value: &[u8],
        expire_ms: Option<i64>,
        old: Option<Head>,
    ) -> Result<()> {
        let (rows, tables) = (db.rows(), self.tables());
        let old_blob = old.and_then(|head| head.blob_id);
        let inline = is_inline(db, key, value);
        let blob_id = match old_blob {
            _ if inline => None,
            Some(id) => {
                rows.blob_update(tables, id, value)?;
                Some(id)
            }
            None => Some(self.insert_blob(db, value)?),
        };
        let written_ms = db.settings(tables)?.track_writes.then(|| self.inner().clock.now_ms());
        let head = Head { expire_ms, blob_id, written_ms };
        if blob_id.is_none() || old != Some(head) {
            rows.put(tables, key, Row { value: inline.then_some(value), head })?;
        }
        if let (None, Some(id)) = (blob_id, old_blob) {
            rows.blob_delete(tables, id)?;
        }
        self.index(db, key, old, Some(head))
    }

    /// Changes the end of life of a row without touching its value. If the new one has come already,
    /// the row goes.
    pub(crate) fn write_expiry(&self, db: &Db, key: &[u8], old: Head, expire_ms: Option<i64>) -> Result<()> {
        let new = Head { expire_ms, ..old };
        if self.is_expired(new) {
            return self.delete_row(db, key, old);
        }
        if new != old {
            db.rows().set_expiry(self.tables(), key, expire_ms)?;
        }
        self.index(db, key, Some(old), Some(new))
    }

    /// Deletes a key inside a write transaction; says whether it was alive.
    pub(crate) fn delete_in(&self, db: &Db, key: &[u8]) -> Result<bool> {
        let rows = db.rows();
        if rows.delete_plain(self.tables(), key)? {
            return Ok(true);
        }
        let Some(head) = rows.head(self.tables(), key)? else { return Ok(false) };
        self.delete_row(db, key, head)?;
        Ok(!self.is_expired(head))
    }

    /// Deletes one row and all that belongs to it.
    pub(crate) fn delete_row(&self, db: &Db, key: &[u8], head: Head) -> Result<()> {
        let rows = db.rows();
        rows.delete(self.tables(), key)?;
        if let Some(id) = head.blob_id {
            rows.blob_delete(self.tables(), id)?;
        }
        self.index(db, key, Some(head), None)
    }

    fn insert_blob(&self, db: &Db, value: &[u8]) -> Result<i64> {
        if let Some(id) = db.rows().blob_insert(self.tables(), value)? {
            return Ok(id);
        }
        db.create_blob_table(self.tables())?;
        db.rows().blob_insert(self.tables(), value)?.ok_or_else(|| self.no_table("blob"))
    }

    /// Moves a key in the index tables from the times of its old row to those of its new one.
    fn index(&self, db: &Db, key: &[u8], old: Option<Head>, new: Option<Head>) -> Result<()> {
        let (rows, tables) = (db.rows(), self.tables());
        let expire_ms = |head: Option<Head>| head.and_then(|head| head.expire_ms);
        if !rows.index(tables, key, expire_ms(old), expire_ms(new))? {
            db.create_ttl_tables(tables)?;
            if !rows.index(tables, key, expire_ms(old), expire_ms(new))? {
                return Err(self.no_table("index"));
            }
        }
        let written_ms = |head: Option<Head>| head.and_then(|head| head.written_ms);
        match rows.index_written(tables, key, written_ms(old), written_ms(new))? {
            true => Ok(()),
            false => Err(self.no_table("write time")), // made when tracking was switched on
        }
    }

    fn no_table(&self, kind: &str) -> Error {
        Error::Corrupt(format!("the {kind} table of family \"{}\" should be there, but is not", self.name()))
    }

    // ---- helpers -----------------------------------------------------------------------------

    /// Runs a look-up of one key, and removes the row if it turns out to be dead.
    fn look_up<R>(
        &self,
        key: &[u8],
        mut look: impl FnMut(&Db) -> Result<Option<Found<R>>>,
    ) -> Result<Option<Found<R>>> {
        self.check_key(key)?;
        self.inner().with(|db| {
            let mut dead = None;
            let found = loop {
                let found = look(db)?;
                let Some(Found::Expired(expire_ms)) = found else { return Ok(found) };
                // The clock was read after the row: the key may have been prolonged in between, in time. A row
                // that is met once more, after the clock was read, is dead.
                if *db.transaction() != Transaction::None || dead == Some(expire_ms) {
                    break found;
                }
                dead = Some(expire_ms);
            };
            self.inner().counters.ttl_expired.add(1);
            self.inner().write_if_free(db, |db| match db.rows().head(self.tables(), key)? {
                Some(head) if self.is_expired(head) => self.delete_row(db, key, head),
                _ => Ok(()), // written again, or removed by another handle
            });
            Ok(found)
        })
    }

    fn find_head(&self, key: &[u8]) -> Result<Option<Found<Head>>> {
        self.look_up(key, |db| {
            let head = db.rows().head(self.tables(), key)?;
            Ok(head.map(|head| {
                if self.is_expired(head) { Found::Expired(head.expire_ms) } else { Found::Live(head) }
            }))
        })
    }

    /// The head of a live key's row; a dead row is removed.
    pub(crate) fn look_up_head(&self, key: &[u8]) -> Result<Option<Head>> {
        Ok(self.find_head(key)?.and_then(|found| match found {
            Found::Live(head) => Some(head),
            Found::Expired(_) => None,
        }))
    }

    /// The head of a key's row if the key is alive.
    pub(crate) fn live_head(&self, db: &Db, key: &[u8]) -> Result<Option<Head>> {
        Ok(db.rows().head(self.tables(), key)?.filter(|head| !self.is_expired(*head)))
    }

    /// Reads the clock only for a row that can expire.
    pub(crate) fn is_expired(&self, head: Head) -> bool {
        head.expire_ms.is_some_and(|expire_ms| expiry::is_expired(expire_ms, self.inner().clock.now_ms()))
    }

    /// What is left until `expiry`, by this store's clock.
    #[must_use]
    pub fn ttl_until(&self, expiry: Expiry) -> Ttl {
        expiry.millis().map_or(Ttl::None, |expire_ms| {
            let left = expiry::remaining_ms(expire_ms, self.inner().clock.now_ms());
            Ttl::Remaining(Duration::from_millis(left.unsigned_abs()))
        })
    }

    /// The same for a key that was alive when it was read, whatever the time is by now: at least 1 ms.
    #[doc(hidden)]
    #[must_use]
    pub fn ttl_of_live(&self, expiry: Expiry) -> Ttl {
        match self.ttl_until(expiry) {
            Ttl::Remaining(left) => Ttl::Remaining(left.max(Duration::from_millis(1))),
            Ttl::None => Ttl::None,
        }
    }

    /// Refuses a key of a bad length, and counts the failure.
    pub(crate) fn check_key(&self, key: &[u8]) -> Result<()> {
        self.inner().count_failure(check_key(key))
    }

    /// Refuses a key or value of a bad length, and a time that is none.
    pub(crate) fn check_entry(&self, key: &[u8], value: &[u8], expiry: Expiry) -> Result<()> {
        let checked = check_key(key).and_then(|()| {
            let max = self.inner().config.max_value_size;
            if value.len() > max {
                return Err(Error::Invalid(format!(
                    "a value of {} bytes: this store takes up to {max} (Config::max_value_size; in C, KVStoreConfig.maxValueSize)",
                    value.len()
                )));
            }
            expiry.check()
        });
        self.inner().count_failure(checked)
    }

    pub(crate) fn count_put(&self, key: &[u8], value: &[u8]) {
        self.inner().counters.puts.add(1);
        self.inner().counters.bytes_written.add((key.len() + value.len()) as u64);
    }

    pub(crate) fn count_get(&self, bytes: usize) {
        self.inner().counters.gets.add(1);
        self.inner().counters.bytes_read.add(bytes as u64);
    }
}

/// Whether a value is kept in its row. Long rows make scans cheaper and random writes dearer.
pub(crate) fn is_inline(db: &Db, key: &[u8], value: &[u8]) -> bool {
    value.len() <= ALWAYS_INLINE || key.len() + value.len() <= db.max_inline()
}

impl Clone for Family {
    fn clone(&self) -> Family {
        self.inner().family_opened(self.name());
        Family { shared: Arc::clone(&self.shared), released: AtomicBool::new(false) }
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

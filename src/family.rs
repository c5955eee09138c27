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

use crate::config::check_key;
use crate::db::{Db, Engine, Head, Row, Tables};
use crate::error::{Error, Result};
use crate::expiry::{self, Expiry, Ttl};
use crate::iter::{Cursor, Direction, Iter, KeyRange};
use crate::store::Inner;

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
    pub(crate) tables: Tables,
}

/// What a look-up met.
enum Found<R> {
    Live(R),
    Expired,
}

impl Family {
    pub(crate) fn new(inner: &Arc<Inner>, name: &str) -> Family {
        inner.family_opened(name);
        let shared = Shared { inner: Arc::clone(inner), tables: Tables::of(name) };
        Family { shared: Arc::new(shared), released: AtomicBool::new(false) }
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

    /// Writes a value. The key lives for ever, whatever TTL it had before.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_until(key, value, Expiry::Never)
    }

    /// Writes a value that lives for `ttl` from now on; fractions of a millisecond count up.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn put_ttl(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Duration) -> Result<()> {
        let ends = expiry::after(self.inner().clock.now_ms(), ttl);
        self.put_until(key, value, Expiry::At(ends))
    }

    /// Writes a value with an absolute end of life. If that is in the past, the key is invisible at
    /// once.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn put_until(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expiry: Expiry) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        let expire_ms = self.check_entry(key, value, expiry)?;
        self.inner().write(|db| {
            let rows = db.rows();
            if expire_ms.is_none()
                && is_inline(db, key, value)
                && rows.put_plain(self.tables(), key, value)?
            {
                return Ok(());
            }
            let old = rows.head(self.tables(), key)?;
            self.write_row(db, key, value, expire_ms, old)
        })?;
        self.count_put(key, value);
        Ok(())
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
        let (key, value) = (key.as_ref(), value.as_ref());
        let expire_ms = self.check_entry(key, value, expiry)?;
        let written = self.inner().write(|db| {
            let old = db.rows().head(self.tables(), key)?;
            if old.is_some_and(|head| !self.is_expired(head)) {
                return Ok(false);
            }
            self.write_row(db, key, value, expire_ms, old)?;
            Ok(true)
        })?;
        if written {
            self.count_put(key, value);
        }
        Ok(written)
    }

    /// Deletes a key; says whether it was there and alive.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.inner().count_failure(check_key(key))?;
        let deleted = self.inner().write(|db| {
            let rows = db.rows();
            if rows.delete_plain(self.tables(), key)? {
                return Ok(true);
            }
            let Some(head) = rows.head(self.tables(), key)? else { return Ok(false) };
            self.delete_row(db, key, head)?;
            Ok(!self.is_expired(head))
        })?;
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
        let found = self.look_up(key, |db| {
            db.rows().get(self.tables(), key, |row| {
                let head = row.head();
                if self.is_expired(head) {
                    return Ok(Found::Expired);
                }
                let expiry = head.expire_ms.map_or(Expiry::Never, Expiry::At);
                row.value(|value| Found::Live((visit(value, expiry), value.len())))
            })
        })?;
        let Some(Found::Live((shown, bytes))) = found else { return Ok(None) };
        self.inner().counters.gets.add(1);
        self.inner().counters.bytes_read.add(bytes as u64);
        Ok(Some(shown))
    }

    /// The value of a key with what is left of its life, or `None` if it is missing or expired.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn get_ttl(&self, key: impl AsRef<[u8]>) -> Result<Option<(Vec<u8>, Ttl)>> {
        let found = self.get_with(key, |value, expiry| (value.to_vec(), expiry))?;
        Ok(found.map(|(value, expiry)| (value, self.ttl_until(expiry))))
    }

    /// Whether a key is there and alive.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn exists(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(matches!(self.look_up_head(key.as_ref())?, Some(Found::Live(_))))
    }

    /// What is left of a key's life; `None` if the key is missing. A key that has expired, but
    /// whose row this call still met, has [`Ttl::Remaining`] zero.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn ttl(&self, key: impl AsRef<[u8]>) -> Result<Option<Ttl>> {
        Ok(self.look_up_head(key.as_ref())?.map(|found| match found {
            Found::Live(head) => self.ttl_until(head.expire_ms.map_or(Expiry::Never, Expiry::At)),
            Found::Expired => Ttl::Remaining(Duration::ZERO),
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
    fn write_row(
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
        let head = Head { expire_ms, blob_id, written_ms: None };
        if blob_id.is_none() || old != Some(head) {
            rows.put(tables, key, Row { value: inline.then_some(value), head })?;
        }
        if let (None, Some(id)) = (blob_id, old_blob) {
            rows.blob_delete(tables, id)?;
        }
        self.index(db, key, old.and_then(|head| head.expire_ms), expire_ms)
    }

    /// Deletes one row and all that belongs to it.
    pub(crate) fn delete_row(&self, db: &Db, key: &[u8], head: Head) -> Result<()> {
        let rows = db.rows();
        rows.delete(self.tables(), key)?;
        if let Some(id) = head.blob_id {
            rows.blob_delete(self.tables(), id)?;
        }
        self.index(db, key, head.expire_ms, None)
    }

    fn insert_blob(&self, db: &Db, value: &[u8]) -> Result<i64> {
        if let Some(id) = db.rows().blob_insert(self.tables(), value)? {
            return Ok(id);
        }
        db.create_blob_table(self.tables())?;
        db.rows().blob_insert(self.tables(), value)?.ok_or_else(|| self.no_table("blob"))
    }

    /// Moves a key in the two index tables from its old to its new expiry time.
    fn index(&self, db: &Db, key: &[u8], old: Option<i64>, new: Option<i64>) -> Result<()> {
        if old == new || db.rows().index(self.tables(), key, old, new)? {
            return Ok(());
        }
        db.create_ttl_tables(self.tables())?;
        match db.rows().index(self.tables(), key, old, new)? {
            true => Ok(()),
            false => Err(self.no_table("index")),
        }
    }

    fn no_table(&self, kind: &str) -> Error {
        Error::Corrupt(format!("the {kind} table of family \"{}\" was made but is not there", self.name()))
    }

    // ---- helpers -----------------------------------------------------------------------------

    /// Runs a look-up of one key, and removes the row if it turns out to be dead.
    fn look_up<R>(
        &self,
        key: &[u8],
        look: impl FnOnce(&Db) -> Result<Option<Found<R>>>,
    ) -> Result<Option<Found<R>>> {
        self.inner().count_failure(check_key(key))?;
        self.inner().with(|db| {
            let found = look(db)?;
            if let Some(Found::Expired) = found {
                self.inner().counters.ttl_expired.add(1);
                self.inner().write_if_free(db, |db| match db.rows().head(self.tables(), key)? {
                    Some(head) if self.is_expired(head) => self.delete_row(db, key, head),
                    _ => Ok(()), // written again, or removed by another handle
                });
            }
            Ok(found)
        })
    }

    fn look_up_head(&self, key: &[u8]) -> Result<Option<Found<Head>>> {
        self.look_up(key, |db| {
            let head = db.rows().head(self.tables(), key)?;
            Ok(head.map(|head| if self.is_expired(head) { Found::Expired } else { Found::Live(head) }))
        })
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

    /// Checks what is to be written; gives the `expire_ms` of the row.
    fn check_entry(&self, key: &[u8], value: &[u8], expiry: Expiry) -> Result<Option<i64>> {
        let checked = check_key(key).and_then(|()| {
            let max = self.inner().max_value_size;
            if value.len() > max {
                return Err(Error::Invalid(format!(
                    "a value of {} bytes: this store takes values up to {max} bytes (see the maximum value size)",
                    value.len()
                )));
            }
            match expiry {
                Expiry::At(expire_ms) => Expiry::from_millis(expire_ms).map(Expiry::millis),
                Expiry::Never => Ok(None),
            }
        });
        self.inner().count_failure(checked)
    }

    fn count_put(&self, key: &[u8], value: &[u8]) {
        self.inner().counters.puts.add(1);
        self.inner().counters.bytes_written.add((key.len() + value.len()) as u64);
    }
}

/// Whether a value is kept in its row. Long rows make scans cheaper and random writes dearer.
fn is_inline(db: &Db, key: &[u8], value: &[u8]) -> bool {
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

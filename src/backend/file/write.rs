//! Write plan: the changes that each operation on a family makes to its tables. No other module
//! decides which rows change together.
//!
//! Invariants of every write: the data row, the large value, the key index and the expiry index
//! change in one transaction; an index entry exists exactly for each row with an `expire_ms`, with
//! the same `expire_ms`; a large value exists exactly for each row with a `blob_id`.
//!
//! Nothing here begins or ends a transaction, or checks an argument.

use super::connection::Db;
use super::engine::{Engine, Head, Row, Rows, Step};
use super::error::damaged;
use super::schema::Tables;
use crate::backend::{BatchWrite, Scan};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::expiry::{self, Expiry, ExpiryCondition};
use crate::options::{Presence, PutOptions};

/// Maximum length, in bytes, of a value that is stored in its data row however long its key is.
/// Storing such a short value in the blob table would save no space.
const ALWAYS_INLINE: usize = 64;

/// Maximum number of rows that `delete_range` collects with one scan before it deletes them.
const ROWS_PER_WALK: usize = 1024;

/// Access to the content of one family in a file: the connection, the tables and the clock that the
/// operations on its keys use. They read the clock only if a row can expire.
#[derive(Clone, Copy)]
pub(crate) struct Contents<'c> {
    pub(super) db: &'c Db,
    pub(super) tables: &'c Tables,
    pub(super) clock: &'c Clock,
}

impl Db {
    /// Returns access to the content of a family by this connection, with the given clock.
    #[inline]
    pub(crate) fn contents<'c>(&'c self, tables: &'c Tables, clock: &'c Clock) -> Contents<'c> {
        Contents { db: self, tables, clock }
    }
}

impl Db {
    /// Runs all writes of a batch inside a write transaction, or none of them. Returns the number
    /// of live keys that were deleted.
    pub(crate) fn write_batch(&self, writes: &[BatchWrite<'_>], clock: &Clock) -> Result<u64> {
        self.in_savepoint(|db| {
            let mut deleted = 0;
            for BatchWrite { family, key, put } in writes {
                let family = db.contents(family, clock);
                match put {
                    Some((value, options)) => {
                        family.put(key, value, options)?;
                    }
                    None => deleted += u64::from(family.delete(key)?),
                }
            }
            Ok(deleted)
        })
    }
}

/// Writes to one family. Each call must be inside a write transaction.
impl Contents<'_> {
    /// Writes a value with options. Returns `false`, and writes nothing, if the condition in
    /// `options` does not hold.
    pub(crate) fn put(self, key: &[u8], value: &[u8], options: &PutOptions) -> Result<bool> {
        let settings = self.db.settings(self.tables)?;
        let expire_ms = match (options.ttl_ms, options.expiry) {
            (Some(ttl_ms), _) => Some(expiry::after_ms(self.clock.now_ms(), ttl_ms)),
            (None, Some(expiry)) => expiry.millis(),
            (None, None) => self.default_end(settings.default_ttl_ms),
        };
        let rows = self.rows();
        let plain =
            expire_ms.is_none() && !settings.track_writes && !options.keep_ttl && options.only.is_none();
        if plain && self.is_inline(key, value) {
            self.note_put(key, value.len())?;
            if rows.put_plain(self.tables, key, value)? {
                return Ok(true);
            }
        }
        let old = rows.head(self.tables, key)?;
        let live = old.filter(|head| !self.is_expired(*head));
        match (options.only, live) {
            (Some(Presence::Absent), Some(_)) | (Some(Presence::Present), None) => return Ok(false),
            _ => {}
        }
        let expire_ms = match live {
            Some(head) if options.keep_ttl => head.expire_ms,
            _ => expire_ms,
        };
        self.write_row_at(key, value, expire_ms, options.written_ms, old)?;
        Ok(true)
    }

    /// Deletes a key. Returns `true` if the key was live.
    pub(crate) fn delete(self, key: &[u8]) -> Result<bool> {
        let rows = self.rows();
        if rows.delete_plain(self.tables, key)? {
            return Ok(true);
        }
        let Some(head) = rows.head(self.tables, key)? else { return Ok(false) };
        self.delete_row(key, head)?;
        Ok(!self.is_expired(head))
    }

    /// Deletes all keys of the family.
    pub(crate) fn clear(self) -> Result<()> {
        self.rows().clear(self.tables)
    }

    /// Deletes the keys of a range. Returns the number of live keys among them.
    pub(crate) fn delete_range(self, range: Scan<'_>) -> Result<u64> {
        let mut deleted = 0;
        let mut first = None;
        loop {
            // The rows are deleted after the scan, which must not see its own changes.
            let mut rows = Vec::new();
            let ended = self.rows().scan(self.tables, range, |key, row| {
                rows.push((key.to_vec(), row.head()));
                Ok(if rows.len() < ROWS_PER_WALK { Step::Continue } else { Step::Stop })
            })?;
            for (key, head) in &rows {
                self.delete_row(key, *head)?;
                deleted += u64::from(!self.is_expired(*head));
            }
            if ended {
                return Ok(deleted);
            }
            let again = rows.into_iter().next().map(|(key, _)| key);
            if first == again {
                return Err(self.tables.out_of_order()); // the deletion did not find the first row
            }
            first = again;
        }
    }

    /// Writes `value` with a new expiry time if the key is live and its value equals `expected`.
    /// Returns `true` if `value` was written. With `expiry` `None`, the default TTL of the family
    /// applies.
    pub(crate) fn compare_and_swap(
        self,
        key: &[u8],
        expected: &[u8],
        value: &[u8],
        expiry: Option<Expiry>,
    ) -> Result<bool> {
        match self.head_if_equal(key, expected)? {
            Some(head) => self.write_row(key, value, self.new_end(expiry)?, Some(head)).map(|()| true),
            None => Ok(false),
        }
    }

    /// Deletes a key if it is live and its value equals `expected`. Returns `true` if it was
    /// deleted.
    pub(crate) fn compare_and_delete(self, key: &[u8], expected: &[u8]) -> Result<bool> {
        match self.head_if_equal(key, expected)? {
            Some(head) => self.delete_row(key, head).map(|()| true),
            None => Ok(false),
        }
    }

    fn head_if_equal(self, key: &[u8], expected: &[u8]) -> Result<Option<Head>> {
        let found = self.rows().get(self.tables, key, |row| {
            let head = row.head();
            if self.is_expired(head) {
                return Ok(None);
            }
            row.value(|value| (value == expected).then_some(head))
        })?;
        Ok(found.flatten())
    }

    /// Adds `delta` to the value of a key, which is a decimal integer. Returns the sum, and the
    /// length of its decimal text in bytes.
    ///
    /// A missing or expired key counts as 0, and gets the expiry time `expiry`; with `None`, the
    /// default TTL of the family applies. A live key keeps its expiry time.
    pub(crate) fn increment(self, key: &[u8], delta: i64, expiry: Option<Expiry>) -> Result<(i64, usize)> {
        let found = self.rows().get(self.tables, key, |row| {
            let head = row.head();
            if self.is_expired(head) {
                return Ok((head, None));
            }
            Ok((head, Some(row.value(number)??)))
        })?;
        let old = found.map(|(head, _)| head);
        let (before, expire_ms) = match found {
            Some((head, Some(number))) => (number, head.expire_ms),
            _ => (0, self.new_end(expiry)?),
        };
        let sum = before
            .checked_add(delta)
            .ok_or_else(|| Error::invalid("the sum does not fit into 64 bits; the value was not changed"))?;
        let text = sum.to_string();
        self.write_row(key, text.as_bytes(), expire_ms, old)?;
        Ok((sum, text.len()))
    }

    /// Returns the expiry time for a key that is written, in milliseconds since the Unix epoch;
    /// `None` if the key never expires. With `expiry` `None`, the default TTL of the family
    /// applies.
    fn new_end(self, expiry: Option<Expiry>) -> Result<Option<i64>> {
        match expiry {
            Some(expiry) => Ok(expiry.millis()),
            None => Ok(self.default_end(self.db.settings(self.tables)?.default_ttl_ms)),
        }
    }

    /// Returns the expiry time that the default TTL of the family gives a key that is written now;
    /// `None` if the default TTL is 0.
    fn default_end(self, default_ttl_ms: i64) -> Option<i64> {
        (default_ttl_ms > 0).then(|| expiry::after_ms(self.clock.now_ms(), default_ttl_ms))
    }

    /// Changes the expiry time of a live key if `condition` holds. Returns `Some(true)` if it
    /// holds, `Some(false)` if it does not, and `None` if the key is missing or expired.
    pub(crate) fn expire(
        self,
        key: &[u8],
        expiry: Expiry,
        condition: ExpiryCondition,
    ) -> Result<Option<bool>> {
        let head = self.rows().head(self.tables, key)?.filter(|head| !self.is_expired(*head));
        let Some(head) = head else { return Ok(None) };
        if !condition.holds(head.expire_ms, expiry.millis()) {
            return Ok(Some(false));
        }
        self.write_expiry(key, head, expiry.millis())?;
        Ok(Some(true))
    }

    /// Passes the value of a live key to `visit`, then changes the expiry time of the key. Returns
    /// `None` if the key is missing or expired.
    ///
    /// If `visit` fails, nothing is changed.
    pub(crate) fn get_and_expire<R>(
        self,
        key: &[u8],
        expiry: Expiry,
        visit: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<Option<R>> {
        let found = self.rows().get(self.tables, key, |row| {
            let head = row.head();
            if self.is_expired(head) {
                return Ok(None);
            }
            row.value(|value| Ok(Some((head, visit(value)?))))?
        })?;
        let Some((head, shown)) = found.flatten() else { return Ok(None) };
        self.write_expiry(key, head, expiry.millis())?;
        Ok(Some(shown))
    }
}

/// Changes of one key that several operations make.
impl<'c> Contents<'c> {
    #[inline]
    pub(super) fn rows(self) -> Rows<'c> {
        self.db.rows()
    }

    /// Returns `true` if a row is expired. The clock is read only for a row that can expire.
    #[inline]
    pub(super) fn is_expired(self, head: Head) -> bool {
        head.expire_ms.is_some_and(|expire_ms| expiry::is_expired(expire_ms, self.clock.now_ms()))
    }

    /// Returns `true` if a value of this length is stored inline in its row, and not in the table
    /// of large values. Inline values make scans faster and random writes slower.
    fn is_inline(self, key: &[u8], value: &[u8]) -> bool {
        value.len() <= ALWAYS_INLINE || key.len() + value.len() <= self.db.max_inline()
    }

    /// Writes one row, with its large value and its index entries. `old` is the head of the row
    /// that it replaces; `None` if the key has no row.
    fn write_row(self, key: &[u8], value: &[u8], expire_ms: Option<i64>, old: Option<Head>) -> Result<()> {
        self.write_row_at(key, value, expire_ms, None, old)
    }

    /// Writes one row, with its large value and its index entries. `written_ms` is the write time
    /// that the row gets if the family has write tracking; `None` stands for the current time.
    /// `old` is the head of the row that it replaces; `None` if the key has no row.
    fn write_row_at(
        self,
        key: &[u8],
        value: &[u8],
        expire_ms: Option<i64>,
        written_ms: Option<i64>,
        old: Option<Head>,
    ) -> Result<()> {
        self.note_put(key, value.len())?;
        let (rows, tables) = (self.rows(), self.tables);
        let old_blob = old.and_then(|head| head.blob_id);
        let inline = self.is_inline(key, value);
        let blob_id = match old_blob {
            _ if inline => None,
            Some(id) => {
                rows.blob_update(tables, id, value)?;
                Some(id)
            }
            None => Some(self.insert_blob(value)?),
        };
        let tracks = self.db.settings(tables)?.track_writes;
        let written_ms = tracks.then(|| written_ms.unwrap_or_else(|| self.clock.now_ms()));
        let head = Head { expire_ms, blob_id, written_ms };
        if blob_id.is_none() || old != Some(head) {
            rows.put(tables, key, Row { value: inline.then_some(value), head })?;
        }
        if let (None, Some(id)) = (blob_id, old_blob) {
            rows.blob_delete(tables, id)?;
        }
        self.index(key, old, Some(head))
    }

    /// Changes the expiry time of the row of a key, but not its value. `old` is the current head of
    /// the row. If the new expiry time has passed, removes the row.
    fn write_expiry(self, key: &[u8], old: Head, expire_ms: Option<i64>) -> Result<()> {
        let new = Head { expire_ms, ..old };
        if self.is_expired(new) {
            return self.delete_row(key, old);
        }
        if new != old {
            match expire_ms {
                Some(_) => self.note_put(key, 0)?,
                None => self.note_persisted(key),
            }
            self.rows().set_expiry(self.tables, key, expire_ms)?;
        }
        self.index(key, Some(old), Some(new))
    }

    /// Deletes one row with its index entries and its large value.
    pub(super) fn delete_row(self, key: &[u8], head: Head) -> Result<()> {
        let rows = self.rows();
        rows.delete(self.tables, key)?;
        if let Some(id) = head.blob_id {
            rows.blob_delete(self.tables, id)?;
        }
        self.index(key, Some(head), None)
    }

    /// Stores a large value under an unused id and returns the id. Creates the table of large
    /// values if necessary.
    fn insert_blob(self, value: &[u8]) -> Result<i64> {
        if let Some(id) = self.take_hole()
            && self.rows().blob_insert_at(self.tables, id, value)?
        {
            return Ok(id);
        }
        if let Some(id) = self.rows().blob_insert(self.tables, value)? {
            return Ok(id);
        }
        self.db.create_blob_table(self.tables)?;
        self.rows().blob_insert(self.tables, value)?.ok_or_else(|| self.no_table("blob"))
    }

    /// Replaces the entries of a key in the time indexes: those for the times of its old row by
    /// those for the times of its new row. Creates the key index and the expiry index if necessary.
    pub(super) fn index(self, key: &[u8], old: Option<Head>, new: Option<Head>) -> Result<()> {
        let (rows, tables) = (self.rows(), self.tables);
        let expire_ms = |head: Option<Head>| head.and_then(|head| head.expire_ms);
        if !rows.index(tables, key, expire_ms(old), expire_ms(new))? {
            self.db.create_ttl_tables(tables)?;
            if !rows.index(tables, key, expire_ms(old), expire_ms(new))? {
                return Err(self.no_table("index"));
            }
        }
        let written_ms = |head: Option<Head>| head.and_then(|head| head.written_ms);
        match rows.index_written(tables, key, written_ms(old), written_ms(new))? {
            true => Ok(()),
            false => Err(self.no_table("write time")), // turning on write tracking creates it
        }
    }

    fn no_table(self, kind: &str) -> Error {
        let family = self.tables.family();
        damaged(format!("the {kind} table of family \"{family}\" is missing"))
    }
}

fn number(value: &[u8]) -> Result<i64> {
    let text = std::str::from_utf8(value).ok();
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| Error::invalid("the value is not a decimal integer of 64 bits; it was not changed"))
}

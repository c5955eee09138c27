//! Writes that depend on what is there: in one transaction, so that nobody comes between the check and
//! the write.

use crate::db::{Db, Engine, Head};
use crate::error::{Error, Result};
use crate::expiry::{self, Expiry};
use crate::family::{Family, is_inline};

/// How to write a value with [`Family::put_with`]. The default writes always, a key that never expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PutOptions {
    only: Option<Presence>,
    keep_ttl: bool,
    default_ttl: bool,
    expiry: Expiry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Absent,
    Present,
}

impl Default for PutOptions {
    fn default() -> PutOptions {
        PutOptions { only: None, keep_ttl: false, default_ttl: false, expiry: Expiry::Never }
    }
}

impl PutOptions {
    /// Writes always, a key that never expires.
    #[must_use]
    pub fn new() -> PutOptions {
        PutOptions::default()
    }

    /// The end of life.
    #[must_use]
    pub fn expiry(mut self, expiry: Expiry) -> PutOptions {
        self.expiry = expiry;
        self.default_ttl = false;
        self
    }

    /// The end of life is given by the family's default TTL; never, if it has none.
    #[must_use]
    pub fn default_ttl(mut self) -> PutOptions {
        self.default_ttl = true;
        self
    }

    /// A live key keeps the end of life it has (also none); a new one gets the other settings'.
    #[must_use]
    pub fn keep_ttl(mut self) -> PutOptions {
        self.keep_ttl = true;
        self
    }

    /// Write only if the key is missing or expired.
    #[must_use]
    pub fn if_absent(mut self) -> PutOptions {
        self.only = Some(Presence::Absent);
        self
    }

    /// Write only if the key is there and alive.
    #[must_use]
    pub fn if_present(mut self) -> PutOptions {
        self.only = Some(Presence::Present);
        self
    }
}

impl Family {
    /// Writes a value as `options` say; tells whether it did.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &PutOptions,
    ) -> Result<bool> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.check_entry(key, value, options.expiry)?;
        let written = self.inner().write(|db| self.put_in(db, key, value, options))?;
        if written {
            self.count_put(key, value);
        }
        Ok(written)
    }

    /// The same inside a write transaction, the arguments being checked.
    pub(crate) fn put_in(&self, db: &Db, key: &[u8], value: &[u8], options: &PutOptions) -> Result<bool> {
        let settings = db.settings(self.tables())?;
        let expire_ms = match options.default_ttl {
            true => self.default_end(settings.default_ttl_ms),
            false => options.expiry.millis(),
        };
        let rows = db.rows();
        let plain =
            expire_ms.is_none() && !settings.track_writes && !options.keep_ttl && options.only.is_none();
        if plain && is_inline(db, key, value) && rows.put_plain(self.tables(), key, value)? {
            return Ok(true);
        }
        let old = rows.head(self.tables(), key)?;
        let live = old.filter(|head| !self.is_expired(*head));
        match (options.only, live) {
            (Some(Presence::Absent), Some(_)) | (Some(Presence::Present), None) => return Ok(false),
            _ => {}
        }
        let expire_ms = match live {
            Some(head) if options.keep_ttl => head.expire_ms,
            _ => expire_ms,
        };
        self.write_row(db, key, value, expire_ms, old)?;
        Ok(true)
    }

    /// Writes `value` only if the key is alive and its value is equal to `expected`, byte by byte;
    /// says whether it did. The key gets the new end of life.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: Expiry,
    ) -> Result<bool> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.check_entry(key, value, expiry)?;
        let swapped = self.inner().write(|db| match self.head_if_equal(db, key, expected.as_ref())? {
            Some(head) => self.write_row(db, key, value, expiry.millis(), Some(head)).map(|()| true),
            None => Ok(false),
        })?;
        if swapped {
            self.count_put(key, value);
        }
        Ok(swapped)
    }

    /// Deletes a key only if it is alive and its value is equal to `expected`, byte by byte; says
    /// whether it did.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn compare_and_delete(&self, key: impl AsRef<[u8]>, expected: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.check_key(key)?;
        let deleted = self.inner().write(|db| match self.head_if_equal(db, key, expected.as_ref())? {
            Some(head) => self.delete_row(db, key, head).map(|()| true),
            None => Ok(false),
        })?;
        if deleted {
            self.inner().counters.deletes.add(1);
        }
        Ok(deleted)
    }

    fn head_if_equal(&self, db: &Db, key: &[u8], expected: &[u8]) -> Result<Option<Head>> {
        let found = db.rows().get(self.tables(), key, |row| {
            let head = row.head();
            if self.is_expired(head) {
                return Ok(None);
            }
            row.value(|value| (value == expected).then_some(head))
        })?;
        Ok(found.flatten())
    }

    /// Adds `delta` to the number under a key, which is kept as decimal text; returns the sum. A
    /// missing or expired key counts as 0 and gets `expiry` as its end of life, or for
    /// [`Expiry::Never`] the family's default TTL; a live one keeps its TTL.
    ///
    /// # Errors
    /// See [`Family`]; also `Error` if the value is no whole number of 64 bits, or the sum would be
    /// none. Nothing is changed then.
    pub fn increment(&self, key: impl AsRef<[u8]>, delta: i64, expiry: Expiry) -> Result<i64> {
        let key = key.as_ref();
        self.check_entry(key, &[], expiry)?;
        let (sum, written) = self.inner().write(|db| {
            let found = db.rows().get(self.tables(), key, |row| {
                let head = row.head();
                if self.is_expired(head) {
                    return Ok((head, None));
                }
                Ok((head, Some(row.value(number)??)))
            })?;
            let old = found.map(|(head, _)| head);
            let (before, expire_ms) = match found {
                Some((head, Some(number))) => (number, head.expire_ms),
                _ => (0, self.new_end(db, expiry)?),
            };
            let sum = before.checked_add(delta).ok_or_else(|| {
                Error::Invalid("the sum does not fit into 64 bits: the value was left as it is".into())
            })?;
            let text = sum.to_string();
            self.write_row(db, key, text.as_bytes(), expire_ms, old)?;
            Ok((sum, text.len()))
        })?;
        self.inner().counters.puts.add(1);
        self.inner().counters.bytes_written.add((key.len() + written) as u64);
        Ok(sum)
    }

    /// The end of life of a new key for which `Never` means the default TTL.
    fn new_end(&self, db: &Db, expiry: Expiry) -> Result<Option<i64>> {
        match expiry {
            Expiry::At(expire_ms) => Ok(Some(expire_ms)),
            Expiry::Never => Ok(self.default_end(db.settings(self.tables())?.default_ttl_ms)),
        }
    }

    fn default_end(&self, default_ttl_ms: i64) -> Option<i64> {
        (default_ttl_ms > 0).then(|| expiry::after_ms(self.inner().clock.now_ms(), default_ttl_ms))
    }
}

fn number(value: &[u8]) -> Result<i64> {
    let text = std::str::from_utf8(value).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| {
        Error::Invalid("the value is not a decimal number of 64 bits: it was left as it is".into())
    })
}

//! Ends of life without the values: looking at them, changing them, asking for the next.

use std::time::Duration;

use crate::error::Result;
use crate::expiry::{self, Expiry, ExpiryCondition};
use crate::family::Family;
use crate::memory;

impl Family {
    /// Changes the end of life of a live key, if `condition` holds; says whether it did, or `None` if
    /// the key is missing or expired. The value is neither read nor rewritten out of its place. If the
    /// new end is in the past, the key is gone at once.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn set_expiry(
        &self,
        key: impl AsRef<[u8]>,
        expiry: Expiry,
        condition: ExpiryCondition,
    ) -> Result<Option<bool>> {
        let key = key.as_ref();
        self.check_entry(key, &[], expiry)?;
        self.shared().write(|db| self.on(db).expire(key, expiry, condition))
    }

    /// Makes a live key live for ever; says whether it had a TTL, or `None` if it is missing or expired.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn persist(&self, key: impl AsRef<[u8]>) -> Result<Option<bool>> {
        self.set_expiry(key, Expiry::Never, ExpiryCondition::HasTtl)
    }

    /// The end of life of a key; `None` if it is missing or expired.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<Expiry>> {
        Ok(self.times(key.as_ref())?.live().map(|times| times.expiry))
    }

    /// The value of a key, whose end of life becomes `expiry` in the same moment (sliding expiry);
    /// `None` if it is missing or expired.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn get_and_set_expiry(&self, key: impl AsRef<[u8]>, expiry: Expiry) -> Result<Option<Vec<u8>>> {
        self.get_and_set_expiry_with(key, expiry, memory::copy_of)
    }

    /// The same, showing the value to `visit` without a copy, before anything is changed. `visit` must
    /// not call this store.
    ///
    /// # Errors
    /// See [`Family`]; what `visit` returns, and nothing is changed then.
    pub fn get_and_set_expiry_with<R>(
        &self,
        key: impl AsRef<[u8]>,
        expiry: Expiry,
        visit: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<Option<R>> {
        let key = key.as_ref();
        self.check_entry(key, &[], expiry)?;
        let found = self.shared().write_once(|db| {
            self.on(db).get_and_expire(key, expiry, |value| Ok((value.len(), visit(value)?)))
        })?;
        match found {
            Some((bytes, shown)) => {
                self.count_get(bytes);
                Ok(Some(shown))
            }
            None => {
                self.count_miss();
                Ok(None)
            }
        }
    }

    /// Sets the TTL that plain puts give from now on, through whatever handle and process; `None`: no
    /// TTL. It is kept in the file. Keys that are there keep what they have.
    ///
    /// # Errors
    /// See [`Family`]; also `Error` for more than 20 years.
    pub fn set_default_ttl(&self, ttl: Option<Duration>) -> Result<()> {
        let ttl_ms = self.shared().count_failure(expiry::default_ttl_ms(ttl))?;
        self.shared().write(|db| db.set_default_ttl(self.tables(), ttl_ms))
    }

    /// The TTL that plain puts give; `None`: none.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn default_ttl(&self) -> Result<Option<Duration>> {
        let ms = self.shared().with(|db| db.view().default_ttl_ms(self.tables()))?.unsigned_abs();
        Ok((ms > 0).then(|| Duration::from_millis(ms)))
    }

    /// The earliest end of life in the family, also of a key that has expired but is still there (unless a read of
    /// this handle has met it); `None` if no key has one. For timers.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn next_expiry(&self) -> Result<Option<i64>> {
        self.shared().with(|db| self.on(db.view()).next_expiry())
    }

    /// Number of keys that have an end of life, also of those that have expired and are still there.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn count_with_ttl(&self) -> Result<u64> {
        self.shared().with(|db| self.on(db.view()).count_ttl())
    }

    /// Number of live keys. Counts the rows and the entries that have expired; looks at no key else.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn count_live(&self) -> Result<u64> {
        self.shared().with(|db| self.on(db.view()).count_live())
    }
}

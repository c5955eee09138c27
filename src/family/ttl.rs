//! Expiry times of keys: reading and changing them; default TTL; next expiry.

use std::time::Duration;

use crate::error::Result;
use crate::expiry::{self, Expiry, ExpiryCondition};
use crate::family::Family;
use crate::memory;

impl Family {
    /// Changes the expiry time of a live key if `condition` holds. The value stays unchanged.
    ///
    /// Returns `Some(true)` if the expiry time was changed, `Some(false)` if the condition does not
    /// hold, and `None` if the key is missing or expired. The value is not read. If the new expiry
    /// time has passed, the key is expired at once.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn set_expiry(
        &self,
        key: impl AsRef<[u8]>,
        expiry: Expiry,
        condition: ExpiryCondition,
    ) -> Result<Option<bool>> {
        let key = key.as_ref();
        self.check_entry(key, &[], expiry)?;
        self.session().write(|db| db.expire(self.tables(), key, expiry, condition))
    }

    /// Removes the expiry time of a live key, so that the key never expires.
    ///
    /// Returns `Some(true)` if the key had a TTL, `Some(false)` if it had none, and `None` if the
    /// key is missing or expired.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn persist(&self, key: impl AsRef<[u8]>) -> Result<Option<bool>> {
        self.set_expiry(key, Expiry::Never, ExpiryCondition::HasTtl)
    }

    /// Returns the expiry time of a key; `None` if the key is missing or expired.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<Expiry>> {
        Ok(self.times(key.as_ref())?.live().map(|times| times.expiry))
    }

    /// Returns the value of a live key and sets its expiry time, in one transaction. Returns `None`
    /// if the key is missing or expired.
    ///
    /// This allows a sliding expiry, in which each read extends the TTL.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn get_and_set_expiry(&self, key: impl AsRef<[u8]>, expiry: Expiry) -> Result<Option<Vec<u8>>> {
        self.get_and_set_expiry_with(key, expiry, memory::copy_of)
    }

    /// Calls `visit` with the value of a live key, without copying it, then sets the expiry time of
    /// the key. Returns the result of `visit`, or `None` if the key is missing or expired.
    ///
    /// `visit` must not call this store.
    ///
    /// The read and the change are one transaction, as for
    /// [`get_and_set_expiry`](Family::get_and_set_expiry).
    ///
    /// # Errors
    /// See [`Family`](Family#errors); also the error of `visit`. Nothing is changed then.
    pub fn get_and_set_expiry_with<R>(
        &self,
        key: impl AsRef<[u8]>,
        expiry: Expiry,
        visit: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<Option<R>> {
        let key = key.as_ref();
        self.check_entry(key, &[], expiry)?;
        let found = self.session().write(|db| {
            db.get_and_expire(self.tables(), key, expiry, |value| Ok((value.len(), visit(value)?)))
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

    /// Sets the default TTL, which [`put`](Family::put) gives to the keys it writes; `None` for no
    /// TTL.
    ///
    /// The default TTL also applies to other writes that specify no expiry time, such as
    /// [`increment`](Family::increment) of a new key. It is stored with the family: every handle
    /// and process uses it from the commit on. Existing keys keep their TTL. It is at most 20
    /// years; fractions of a millisecond are rounded up.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn set_default_ttl(&self, ttl: Option<Duration>) -> Result<()> {
        let ttl_ms = self.session().count_failure(expiry::default_ttl_ms(ttl))?;
        self.session().write(|db| db.set_default_ttl(self.tables(), ttl_ms))
    }

    /// Returns the default TTL, which [`put`](Family::put) gives to the keys it writes; `None` if
    /// there is none.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn default_ttl(&self) -> Result<Option<Duration>> {
        let ms = self.session().with(|db| db.default_ttl_ms(self.tables()))?.unsigned_abs();
        Ok((ms > 0).then(|| Duration::from_millis(ms)))
    }

    /// Returns the earliest expiry time in the family, in milliseconds since the Unix epoch; `None`
    /// if no key has one.
    ///
    /// The result is in the past if an expired row has not been removed yet. Expired rows that a
    /// lookup of this handle has found are not included. A program with an event loop can set a
    /// timer to this time and purge when the timer fires.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn next_expiry(&self) -> Result<Option<i64>> {
        self.session().with(|db| db.next_expiry(self.tables()))
    }

    /// Returns the number of rows with an expiry time, including expired rows that have not been
    /// removed yet.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn count_with_ttl(&self) -> Result<u64> {
        self.session().with(|db| db.count_ttl(self.tables()))
    }

    /// Returns the number of live keys. It is the number of all rows, minus the number of expired
    /// entries in the expiry index.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn count_live(&self) -> Result<u64> {
        self.session().with(|db| db.count_live(self.tables()))
    }
}

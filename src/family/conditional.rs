//! Conditional writes. The check of the condition and the write are one transaction, so no other
//! connection can write between them.

use crate::error::Result;
use crate::expiry::Expiry;
use crate::family::Family;
use crate::options::PutOptions;

impl Family {
    /// Writes a value with options, such as a condition on the existing key. Returns `true` if the
    /// value was written, `false` if the condition does not hold.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn put_with_options(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &PutOptions,
    ) -> Result<bool> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.check_entry(key, value, options.expiry)?;
        self.session().count_failure(options.check())?;
        let written = self.session().write(|db| db.put(self.tables(), key, value, options))?;
        if written {
            self.count_put(key, value);
        }
        Ok(written)
    }

    /// Writes `value` only if the key is live and its value is equal to `expected`, byte by byte.
    /// Returns `true` if the value was written.
    ///
    /// The key gets the expiry time `expiry`; with `None` the [default TTL](Family::default_ttl) of
    /// the family.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Option<Expiry>>,
    ) -> Result<bool> {
        let (key, value, expiry) = (key.as_ref(), value.as_ref(), expiry.into());
        self.check_entry(key, value, expiry)?;
        let expected = expected.as_ref();
        let swapped =
            self.session().write(|db| db.compare_and_swap(self.tables(), key, expected, value, expiry))?;
        if swapped {
            self.count_put(key, value);
        }
        Ok(swapped)
    }

    /// Deletes a key only if it is live and its value is equal to `expected`, byte by byte. Returns
    /// `true` if the key was deleted.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn compare_and_delete(&self, key: impl AsRef<[u8]>, expected: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.check_key(key)?;
        let expected = expected.as_ref();
        let deleted = self.session().write(|db| db.compare_and_delete(self.tables(), key, expected))?;
        if deleted {
            self.session().counters.deletes.add(1);
        }
        Ok(deleted)
    }

    /// Adds `delta` to the value of a key, which is a 64-bit integer in decimal text. Returns the
    /// sum.
    ///
    /// A live key keeps its TTL. A missing or expired key counts as 0 and gets the expiry time
    /// `expiry`; with `None` the [default TTL](Family::default_ttl) of the family.
    ///
    /// The value has at most 20 bytes. [`Config::max_value_size`](crate::Config::max_value_size)
    /// does not apply to it.
    ///
    /// # Errors
    /// See [`Family`](Family#errors). [`Error`](crate::ErrorKind::Error) also if the value is not a
    /// 64-bit integer in decimal text, or if the sum overflows. Nothing is changed then.
    pub fn increment(
        &self,
        key: impl AsRef<[u8]>,
        delta: i64,
        expiry: impl Into<Option<Expiry>>,
    ) -> Result<i64> {
        let (key, expiry) = (key.as_ref(), expiry.into());
        self.check_entry(key, &[], expiry)?;
        let (sum, written) = self.session().write(|db| db.increment(self.tables(), key, delta, expiry))?;
        self.session().count_puts(1, (key.len() + written) as u64);
        Ok(sum)
    }
}

//! Writes that depend on what is there: in one transaction, so that nobody comes between the check and
//! the write.

use crate::error::Result;
use crate::expiry::Expiry;
use crate::family::Family;
use crate::options::PutOptions;

impl Family {
    /// Writes a value as `options` say; tells whether it did.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn put_with_options(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &PutOptions,
    ) -> Result<bool> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.check_entry(key, value, options.expiry)?;
        self.shared().count_failure(options.check())?;
        let written = self.shared().write(|db| self.on(db).put(key, value, options))?;
        if written {
            self.count_put(key, value);
        }
        Ok(written)
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
        let expected = expected.as_ref();
        let swapped = self.shared().write(|db| self.on(db).compare_and_swap(key, expected, value, expiry))?;
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
        let expected = expected.as_ref();
        let deleted = self.shared().write(|db| self.on(db).compare_and_delete(key, expected))?;
        if deleted {
            self.shared().counters.deletes.add(1);
        }
        Ok(deleted)
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
        let (sum, written) = self.shared().write(|db| self.on(db).increment(key, delta, expiry))?;
        self.shared().counters.puts.add(1);
        self.shared().counters.bytes_written.add((key.len() + written) as u64);
        Ok(sum)
    }
}

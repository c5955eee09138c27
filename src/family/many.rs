//! Operations on many keys in one call.

use super::{Family, KeyRange};
use crate::backend::{BatchWrite, Found};
use crate::error::Result;
use crate::memory;
use crate::options::PutOptions;

impl Family {
    /// Deletes all keys of a range in one transaction. Returns the number of live keys deleted.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn delete_range(&self, range: &KeyRange) -> Result<u64> {
        let deleted = self.session().long_write(|db| db.delete_range(self.tables(), range.scan()))?;
        self.session().counters.deletes.add(deleted);
        Ok(deleted)
    }

    /// Deletes several keys in one transaction. Returns the number of live keys deleted.
    ///
    /// A key that is given twice is counted once. On a server the call takes one round trip.
    ///
    /// # Errors
    /// See [`Family`](Family#errors). Nothing is deleted then.
    pub fn delete_many<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<u64> {
        let mut keys: Vec<K> = keys.into_iter().collect();
        for key in &keys {
            self.check_key(key.as_ref())?;
        }
        // Sorted by key, because then each page of the file is changed only once.
        keys.sort_by(|one, other| one.as_ref().cmp(other.as_ref()));
        let writes: Vec<_> = keys
            .iter()
            .map(|key| BatchWrite { family: self.tables(), key: key.as_ref(), put: None })
            .collect();
        let deleted = self.session().long_write(|db| db.write_batch(&writes))?;
        self.session().counters.deletes.add(deleted);
        Ok(deleted)
    }

    /// Writes several values, each with its options, in one transaction.
    pub(crate) fn put_all<'w>(
        &self,
        rows: impl Iterator<Item = (&'w [u8], &'w [u8], &'w PutOptions)>,
    ) -> Result<()> {
        let mut writes = Vec::new();
        for (key, value, options) in rows {
            self.check_entry(key, value, options.expiry)?;
            writes.push(BatchWrite { family: self.tables(), key, put: Some((value, options)) });
        }
        self.session().long_write(|db| db.write_batch(&writes))?;
        writes.iter().for_each(|write| self.count_put(write.key, write.put.map_or(&[], |(value, _)| value)));
        Ok(())
    }

    /// Returns the write times of several keys, in milliseconds since the Unix epoch and in the
    /// order of the keys; `None` for a key that is missing or expired, or has no write time.
    pub(crate) fn write_times(&self, keys: &[&[u8]]) -> Result<Vec<Option<i64>>> {
        self.session().with(|db| db.write_times(self.tables(), keys))
    }

    /// Returns copies of the values of several keys, in the order of the keys and from one
    /// snapshot. The value is `None` for a key that is missing or expired.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = Ok(Vec::new());
        self.get_many_with(keys, |_, value| {
            let Ok(copies) = &mut values else { return };
            match value.map(memory::copy_of).transpose() {
                Ok(copy) => copies.push(copy),
                Err(e) => values = Err(e),
            }
        })?;
        self.session().count_failure(values)
    }

    /// Calls `visit` with the value of each of several keys, without copying it. All values come
    /// from one snapshot.
    ///
    /// `visit` gets the index of the key and its value, or `None` if the key is missing or expired.
    /// It must not call this store.
    ///
    /// # Errors
    /// See [`Family`](Family#errors).
    pub fn get_many_with<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        mut visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let keys: Vec<K> = keys.into_iter().collect();
        for key in &keys {
            self.check_key(key.as_ref())?;
        }
        self.session().with(|db| {
            db.get_many(self.tables(), &keys, |number, found| {
                match found {
                    Found::Live(value) => self.count_get(value.len()),
                    Found::Expired(_) => {
                        self.session().counters.ttl_expired.add(1);
                        self.count_miss();
                    }
                    Found::Missing => self.count_miss(),
                }
                visit(number, found.live());
            })
        })
    }
}

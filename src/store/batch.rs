//! Batches: several writes that are committed together.

use std::ops::Range;
use std::sync::Arc;

use super::Store;
use crate::backend::{BatchWrite, Db};
use crate::error::{Error, Result};
use crate::expiry::Expiry;
use crate::family::Family;
use crate::memory;
use crate::options::PutOptions;
use crate::session::Session;

/// List of writes and deletions for the families of one store, which [`commit`](WriteBatch::commit)
/// applies atomically.
///
/// [`Store::batch`] creates a batch. Writes to the same key are applied in the order they were
/// added. Keys and values are copied into the batch. A batch does not keep its families from being
/// dropped.
pub struct WriteBatch {
    session: Arc<Session>,
    bytes: Vec<u8>,
    writes: Vec<Write>,
    /// Families to which `writes` belong, each listed once. `Write::family` is an index into this
    /// list. These handles do not count as open, so the families can be dropped.
    families: Vec<Family>,
}

struct Write {
    family: usize,
    key: Range<usize>,
    action: Action,
}

enum Action {
    Put(Range<usize>, PutOptions),
    Delete,
}

impl WriteBatch {
    /// Adds a write of a value to the batch. The key gets the expiry time `expiry`; with `None` the
    /// [default TTL](crate::Family::default_ttl) of the family, counted from the commit.
    ///
    /// # Errors
    /// Nothing is added then.
    /// - [`Error`](crate::ErrorKind::Error): a length or the expiry time is out of bounds, or the
    ///   family belongs to another store handle.
    /// - [`Misuse`](crate::ErrorKind::Misuse): the store is closed.
    /// - [`NoMemory`](crate::ErrorKind::NoMemory).
    pub fn put(
        &mut self,
        family: &Family,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Option<Expiry>>,
    ) -> Result<()> {
        let (key, value, expiry) = (key.as_ref(), value.as_ref(), expiry.into());
        family.check_entry(key, value, expiry)?;
        let family = self.family(family)?;
        let (key, value) = self.keep(key, value)?;
        let options = PutOptions::new().expiry(expiry);
        self.writes.push(Write { family, key, action: Action::Put(value, options) });
        Ok(())
    }

    /// Adds the deletion of a key to the batch. The key need not exist at the commit.
    ///
    /// # Errors
    /// As [`put`](WriteBatch::put).
    pub fn delete(&mut self, family: &Family, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        family.check_key(key)?;
        let family = self.family(family)?;
        let (key, _) = self.keep(key, &[])?;
        self.writes.push(Write { family, key, action: Action::Delete });
        Ok(())
    }

    /// Fails if the store of this batch is closed or cannot be used for another reason.
    ///
    /// # Errors
    /// [`Misuse`](crate::ErrorKind::Misuse) if the store is closed, was opened before a fork, or
    /// the caller is a callback of it.
    pub fn check_open(&self) -> Result<()> {
        self.session.check_open()
    }

    /// Returns the number of writes and deletions in the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Returns `true` if the batch contains no writes and no deletions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Removes all writes and deletions from the batch.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.writes.clear();
        self.families.clear();
    }

    fn family(&mut self, family: &Family) -> Result<usize> {
        if !std::ptr::eq(family.session(), &raw const *self.session) {
            return self.session.count_failure(Err(Error::invalid(
                "the family belongs to another store handle than the batch",
            )));
        }
        self.session.count_failure(self.session.check_open())?;
        if let Some(known) = self.families.iter().position(|known| known.name() == family.name()) {
            return Ok(known);
        }
        self.families.push(family.unregistered());
        Ok(self.families.len() - 1)
    }

    fn keep(&mut self, key: &[u8], value: &[u8]) -> Result<(Range<usize>, Range<usize>)> {
        let room = memory::reserve(&mut self.bytes, key.len().saturating_add(value.len()));
        self.session.count_failure(room)?;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(value);
        Ok((start..middle, middle..self.bytes.len()))
    }

    /// Commits the batch in one transaction, or as part of the open transaction.
    ///
    /// After success the batch is empty and can be used again; after a failure it keeps its
    /// content.
    ///
    /// # Errors
    /// After an error, no write of the batch takes effect. [`Error`](crate::ErrorKind::Error) if a
    /// family of the batch was dropped, or if a batch for a store on a server exceeds 1008 MiB;
    /// otherwise a [write error](crate#errors).
    pub fn commit(&mut self) -> Result<()> {
        if self.is_empty() {
            return self.session.with(Db::check);
        }
        let WriteBatch { session, bytes, writes, families } = &*self;
        let slice = |range: &Range<usize>| bytes.get(range.clone()).unwrap_or_default();
        // Sorted by key, because then each page of the file is changed only once. The sort is
        // stable: writes to one key stay in their order.
        let mut writes: Vec<_> = writes.iter().collect();
        writes.sort_by_key(|write| (write.family, slice(&write.key)));
        let in_families = writes.iter().filter_map(|write| {
            let put = match &write.action {
                Action::Put(value, options) => Some((slice(value), options)),
                Action::Delete => None,
            };
            Some(BatchWrite { family: families.get(write.family)?.tables(), key: slice(&write.key), put })
        });
        let writes: Vec<_> = in_families.collect();
        let deletes = session.long_write(|db| db.write_batch(&writes))?;
        let puts = writes.iter().filter_map(|write| Some(write.key.len() + write.put?.0.len()));
        session.counters.deletes.add(deletes);
        session.count_puts(puts.clone().count() as u64, puts.sum::<usize>() as u64);
        self.clear();
        Ok(())
    }
}

impl Store {
    /// Creates an empty batch for this store.
    #[must_use]
    pub fn batch(&self) -> WriteBatch {
        WriteBatch {
            session: Arc::clone(self.session()),
            bytes: Vec::new(),
            writes: Vec::new(),
            families: Vec::new(),
        }
    }
}

impl std::fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteBatch").field("len", &self.len()).finish_non_exhaustive()
    }
}

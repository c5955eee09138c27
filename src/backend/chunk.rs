//! Chunks: rows that a backend reads ahead for an iterator. The rows are copied, so that the
//! backend keeps no cursor and no snapshot open between two chunks.

use crate::error::Result;
use crate::memory;

/// Limits on the size of one [`Chunk`], which contains rows that a backend reads ahead for an
/// iterator.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    /// Number of rows at which the chunk is full, unless `bytes` is reached first.
    pub(crate) rows: usize,
    /// Total length of keys and values, in bytes, at which the chunk is full.
    pub(crate) bytes: usize,
    /// Number of skipped expired rows after which the chunk ends early, so that a read does not
    /// hold a lock for long.
    pub(crate) skipped: usize,
    /// Whether the chunk contains keys without their values.
    pub(crate) keys_only: bool,
}

/// Row in a [`Chunk`]: the position of its key and value in the byte buffer of the chunk, and its
/// expiry time.
#[derive(Clone, Default)]
pub(crate) struct ChunkEntry {
    expire_ms: i64,
    /// Offset of the key in the byte buffer of the chunk. 32 bits suffice: the buffer contains at
    /// most some pages and one row, which is far less than 2^32 bytes.
    start: u32,
    /// Length of the key, in bytes.
    key: u32,
    /// Length of the value, in bytes. The value follows the key directly.
    value: u32,
    /// Whether the row has an expiry time; if not, `expire_ms` has no meaning.
    is_mortal: bool,
}

impl ChunkEntry {
    /// Creates the entry of a row whose key begins at offset `start` of the byte buffer of the
    /// chunk, with the value directly after the key. `key` and `value` are their lengths in bytes.
    /// `expire_ms` is `None` if the row does not expire.
    #[inline(always)]
    pub(crate) fn new(start: usize, key: usize, value: usize, expire_ms: Option<i64>) -> ChunkEntry {
        ChunkEntry {
            expire_ms: expire_ms.unwrap_or_default(),
            start: start as u32,
            key: key as u32,
            value: value as u32,
            is_mortal: expire_ms.is_some(),
        }
    }

    /// Returns the key and the value of the row, as slices of `bytes`, the byte buffer of its
    /// chunk; `None` if `bytes` is too short for them.
    #[inline(always)]
    pub(crate) fn parts<'c>(&self, bytes: &'c [u8]) -> Option<(&'c [u8], &'c [u8])> {
        let (start, key) = (self.start as usize, self.key as usize);
        bytes.get(start..start + key + self.value as usize)?.split_at_checked(key)
    }

    #[inline(always)]
    pub(crate) fn expire_ms(&self) -> Option<i64> {
        if self.is_mortal { Some(self.expire_ms) } else { None }
    }
}

/// Rows that a backend has read ahead for an iterator. All keys and values are in one byte buffer,
/// in which each [`ChunkEntry`] has a position.
#[derive(Default)]
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    entries: Vec<ChunkEntry>,
    /// Lower bound on the expiry times of the rows, in milliseconds since the Unix epoch; `None` if
    /// none of them expires.
    first_end: Option<i64>,
    limits: Limits,
}

impl Chunk {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.first_end = None;
    }

    /// Sets the limits of the chunk. Call this before it is filled.
    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    #[inline]
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    #[inline(always)]
    pub(crate) fn get(&self, at: usize) -> Option<&ChunkEntry> {
        self.entries.get(at)
    }

    /// Returns the entries from index `at` to the end; an empty slice if the chunk has at most `at`
    /// entries.
    #[inline]
    pub(crate) fn from(&self, at: usize) -> &[ChunkEntry] {
        self.entries.get(at..).unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns a lower bound on the expiry times of the rows, in milliseconds since the Unix epoch;
    /// `None` if none of them expires.
    pub(crate) fn first_end(&self) -> Option<i64> {
        self.first_end
    }

    #[inline(always)]
    pub(crate) fn key(&self, entry: &ChunkEntry) -> Option<&[u8]> {
        self.bytes.get(entry.start as usize..)?.get(..entry.key as usize)
    }

    #[inline(always)]
    pub(crate) fn value(&self, entry: &ChunkEntry) -> Option<&[u8]> {
        entry.parts(&self.bytes).map(|(_, value)| value)
    }

    /// Returns the byte buffer, which contains the keys and values of all rows.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds a row: copies its key and value into the byte buffer. `expire_ms` is `None` if the row
    /// does not expire.
    ///
    /// # Errors
    /// `NoMemory`: the row was not added.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8], expire_ms: Option<i64>) -> Result<()> {
        let start = self.bytes.len();
        memory::reserve(&mut self.bytes, key.len().saturating_add(value.len()))?;
        memory::reserve(&mut self.entries, 1)?;
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.push(start, key.len(), value.len(), expire_ms);
        Ok(())
    }

    /// Adds a row whose key and value are contiguous in memory. `both` is the key, directly
    /// followed by the value.
    ///
    /// # Errors
    /// `NoMemory`: the row was not added.
    #[inline]
    pub(crate) fn add_joined(&mut self, key: &[u8], both: &[u8], expire_ms: Option<i64>) -> Result<()> {
        let start = self.bytes.len();
        memory::reserve(&mut self.entries, 1)?;
        memory::extend(&mut self.bytes, both)?;
        self.push(start, key.len(), both.len() - key.len(), expire_ms);
        Ok(())
    }

    /// Adds up to `most` rows whose keys and values are all in `piece`, such as the rows of one
    /// page of a table.
    ///
    /// `decode` finds the rows in `piece` and writes their entries into a slice of length `most`.
    /// Its first argument is the length of the byte buffer of the chunk. It adds this number to the
    /// offset of each key in `piece`. It returns the number of entries that it has written, and the
    /// earliest expiry time of these; `None` if none of them expires.
    ///
    /// # Errors
    /// `NoMemory`: no row was added.
    #[inline(always)]
    pub(crate) fn add_from(
        &mut self,
        piece: &[u8],
        most: usize,
        decode: impl FnOnce(usize, &mut [ChunkEntry]) -> (usize, Option<i64>),
    ) -> Result<()> {
        let (base, first) = (self.bytes.len(), self.entries.len());
        if first == 0 {
            // One allocation for the whole chunk, if every piece has as many entries as this one.
            memory::reserve(&mut self.bytes, self.limits.bytes + piece.len())?;
            let entries = self.limits.bytes / piece.len().max(1) * most + most;
            memory::reserve(&mut self.entries, self.limits.rows.min(entries))?;
        }
        memory::reserve(&mut self.bytes, piece.len())?;
        memory::reserve(&mut self.entries, most)?;
        self.entries.resize(first + most, ChunkEntry::default());
        let room = self.entries.get_mut(first..).unwrap_or_default();
        let (count, first_end) = decode(base, room);
        self.entries.truncate(first + count);
        self.note_end(first_end);
        self.copy_from(piece, first, count > 0 && count * 2 >= most);
        Ok(())
    }

    /// Copies the keys and values of the entries from index `first` on from `piece` into the byte
    /// buffer. `pays`: at least half of the rows of `piece` are needed, so `piece` is copied as a
    /// whole, unless the chunk contains keys only.
    fn copy_from(&mut self, piece: &[u8], first: usize, pays: bool) {
        if pays && !self.limits.keys_only {
            return self.bytes.extend_from_slice(piece);
        }
        let base = self.bytes.len();
        for entry in self.entries.iter_mut().skip(first) {
            if self.limits.keys_only {
                entry.value = 0;
            }
            let row = piece.get(entry.start as usize - base..).unwrap_or_default();
            entry.start = self.bytes.len() as u32;
            let bytes = entry.key as usize + entry.value as usize;
            self.bytes.extend_from_slice(row.get(..bytes).unwrap_or_default());
        }
    }

    /// Lowers `first_end`, the bound on the expiry times, to `end`, the expiry time of a new entry.
    fn note_end(&mut self, end: Option<i64>) {
        self.first_end = match (self.first_end, end) {
            (Some(first), Some(end)) => Some(first.min(end)),
            (first, end) => first.or(end),
        };
    }

    #[inline]
    fn push(&mut self, start: usize, key: usize, value: usize, expire_ms: Option<i64>) {
        self.note_end(expire_ms);
        self.entries.push(ChunkEntry::new(start, key, value, expire_ms));
    }

    /// Returns `true` if the chunk has reached its maximum number of rows or of bytes.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= self.limits.rows || self.bytes.len() >= self.limits.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn chunk_without_memory_adds_nothing() {
        let mut chunk = Chunk::default();
        chunk.set_limits(Limits { rows: 9, bytes: isize::MAX as usize, skipped: 9, keys_only: false });
        let added = chunk.add_from(b"page", 1, |_, _| unreachable!());
        assert_eq!((added.map_err(|e| e.kind()), chunk.len()), (Err(ErrorKind::NoMemory), 0));
    }
}

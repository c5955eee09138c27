//! Rows read ahead: what a home of the data gives as "the next rows". They are copied out, so that nothing of the
//! home stays open between two chunks.

/// How much one chunk may be.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    /// It is full with so many rows, or when they have so many bytes together.
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
    /// After so many dead rows it ends with what it has, so that a lock is not held for ever.
    pub(crate) skipped: usize,
    /// Values are not read.
    pub(crate) keys_only: bool,
}

/// A row that was read ahead: where its bytes are in the chunk, and when it dies.
pub(crate) struct ChunkEntry {
    start: usize,
    /// Lengths fit: a value has at most 512 MiB.
    key: u32,
    value: u32,
    pub(crate) expire_ms: Option<i64>,
}

/// Entries that were read ahead.
#[derive(Default)]
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    entries: Vec<ChunkEntry>,
    has_mortal: bool,
    limits: Limits,
}

impl Chunk {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.has_mortal = false;
    }

    /// Forgets the entries from this one on.
    pub(crate) fn truncate(&mut self, entries: usize) {
        self.entries.truncate(entries);
    }

    /// Says how much it may be, before it is read.
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

    /// The entries from this one on.
    #[inline]
    pub(crate) fn from(&self, at: usize) -> &[ChunkEntry] {
        self.entries.get(at..).unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether an entry has an end of life.
    pub(crate) fn has_mortal(&self) -> bool {
        self.has_mortal
    }

    #[inline(always)]
    pub(crate) fn key(&self, entry: &ChunkEntry) -> Option<&[u8]> {
        self.bytes.get(entry.start..entry.start + entry.key as usize)
    }

    #[inline(always)]
    pub(crate) fn value(&self, entry: &ChunkEntry) -> Option<&[u8]> {
        let start = entry.start + entry.key as usize;
        self.bytes.get(start..start + entry.value as usize)
    }

    /// Adds an entry.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8], expire_ms: Option<i64>) {
        let start = self.bytes.len();
        self.has_mortal |= expire_ms.is_some();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.entries.push(ChunkEntry { start, key: key.len() as u32, value: value.len() as u32, expire_ms });
    }

    /// The same for a value that follows its key in memory.
    #[inline]
    pub(crate) fn add_joined(&mut self, key: &[u8], both: &[u8], expire_ms: Option<i64>) {
        let start = self.bytes.len();
        self.has_mortal |= expire_ms.is_some();
        self.bytes.extend_from_slice(both);
        let (key, value) = (key.len() as u32, (both.len() - key.len()) as u32);
        self.entries.push(ChunkEntry { start, key, value, expire_ms });
    }

    /// Whether it has as much as it is to have.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= self.limits.rows || self.bytes.len() >= self.limits.bytes
    }
}

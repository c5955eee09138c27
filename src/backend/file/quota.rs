//! State of the size limit of a connection: the limit in pages, and what the current write has put.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};

use super::use_notes::UseNotes;
use crate::options::{Eviction, SizeLimit};

/// Divisor of the size limit in pages. The result is the reserve: the number of pages that a store
/// with eviction keeps free. With a reserve, each write evicts only a few keys, and a write finds
/// free pages without making the file longer.
const RESERVE: u32 = 32;
/// Maximum number of pages that a store with eviction keeps free as its reserve.
const MOST_RESERVE: u32 = 256;
/// Size limit of a store, converted to pages of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quota {
    pub(super) limit: SizeLimit,
    /// Maximum number of pages of the file that are in use, which means not free.
    pub(super) pages: u32,
}

impl Quota {
    /// Returns the number of pages in use above which a write begins to evict keys. Without
    /// eviction, returns the size limit in pages.
    pub(super) fn comfortable(self) -> u32 {
        match self.limit.eviction {
            Eviction::None => self.pages,
            _ => self.pages - (self.pages / RESERVE).clamp(1, MOST_RESERVE).min(self.pages),
        }
    }
}

/// State of the writes of a connection that must stay within the size limit of the store.
#[derive(Default)]
pub(super) struct QuotaTracker {
    /// Whether the store has a limit, so that the current write must be recorded.
    pub(super) watched: Cell<bool>,
    /// Whether the current write may have made the store larger.
    pub(super) grown: Cell<bool>,
    /// Keys that the current write has put, with the length of each value in bytes, by family. The
    /// write does not evict these keys.
    pub(super) put: RefCell<HashMap<String, HashMap<Vec<u8>, usize>>>,
    /// Total length of the keys and values in `put`, in bytes.
    pub(super) bytes: Cell<u64>,
    /// Numbers of keys that the last write has removed to stay within the limit; `None` if it
    /// removed none.
    pub(super) removed: Cell<Option<Removed>>,
    /// Ids of removed large values, by family. New large values get these ids. At the end of the
    /// table, where SQLite would place them, they would leave the pages of the removed ones half
    /// empty. Whether an id is still free is checked when it is used.
    pub(super) holes: RefCell<HashMap<String, VecDeque<i64>>>,
    /// Size limit of the store in pages, as it was last read from the file; 0 if the store has
    /// none. The target length of the WAL depends on it.
    pub(super) pages: Cell<u32>,
    /// Whether reads note the uses of keys: the eviction policy was `LeastUsed` when the limit was
    /// last read.
    pub(super) notes_uses: Cell<bool>,
    pub(super) uses: RefCell<UseNotes>,
}

/// Numbers of keys that a write has removed to stay within the size limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Removed {
    /// Number of live keys removed.
    pub(crate) live: u64,
    /// Number of expired keys removed.
    pub(crate) expired: u64,
}

impl QuotaTracker {
    /// Resets the state for a new write. `watched` is `true` if the store has a size limit.
    pub(super) fn begin(&self, watched: bool) {
        if self.watched.get() {
            self.put.borrow_mut().clear();
            self.bytes.set(0);
        }
        self.watched.set(watched);
        self.grown.set(false);
        self.removed.take();
    }

    /// Returns `true` if the current write has put the key.
    pub(super) fn has_put(&self, family: &str, key: &[u8]) -> bool {
        self.put.borrow().get(family).is_some_and(|keys| keys.contains_key(key))
    }
}

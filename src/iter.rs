//! Ordered iteration, in chunks.
//!
//! A cursor copies some rows at a time and keeps no SQLite cursor or lock in between. So writes,
//! commits, checkpoints, drops and close are always possible while it exists. When its own handle
//! has written meanwhile it forgets what it read ahead, and reads on behind its last key.

use std::ops::{Bound, Range};
use std::sync::Arc;

use crate::config::check_key;
use crate::db::{Engine, Scan, Step};
use crate::error::{Error, Result};
use crate::expiry::{self, Expiry};
use crate::family::Shared;

/// Rows in the first chunk; it doubles until [`MAX_ROWS`].
const FIRST_ROWS: usize = 16;
const MAX_ROWS: usize = 512;
/// A chunk is full when its rows have this many bytes together.
const MAX_BYTES: usize = 64 * 1024;
/// The most dead rows a chunk passes over; then it returns what it has, so that the store's lock is
/// not held for ever.
const MAX_SKIPPED: usize = 4096;

/// In which direction a cursor walks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the least key to the greatest.
    Forward,
    /// From the greatest key to the least.
    Reverse,
}

/// A range of keys, in byte order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
}

impl KeyRange {
    /// All keys.
    #[must_use]
    pub fn all() -> KeyRange {
        KeyRange::new(Bound::Unbounded, Bound::Unbounded)
    }

    /// The keys between two bounds; none, if the lower is above the upper.
    #[must_use]
    pub fn new(lower: Bound<Vec<u8>>, upper: Bound<Vec<u8>>) -> KeyRange {
        KeyRange { lower, upper }
    }

    /// The keys that start with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> KeyRange {
        let mut end = prefix.to_vec();
        let upper = loop {
            match end.pop() {
                None => break Bound::Unbounded, // nothing but 0xFF: no key is above them all
                Some(0xFF) => {}
                Some(byte) => {
                    end.push(byte + 1);
                    break Bound::Excluded(end);
                }
            }
        };
        KeyRange::new(Bound::Included(prefix.to_vec()), upper)
    }

    /// Whether `key` is in the range.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        let above = match &self.lower {
            Bound::Included(lower) => key >= lower.as_slice(),
            Bound::Excluded(lower) => key > lower.as_slice(),
            Bound::Unbounded => true,
        };
        let below = match &self.upper {
            Bound::Included(upper) => key <= upper.as_slice(),
            Bound::Excluded(upper) => key < upper.as_slice(),
            Bound::Unbounded => true,
        };
        above && below
    }
}

/// A row that was read ahead: where its bytes are in the chunk, and when it dies.
struct Slot {
    key: Range<usize>,
    value: Range<usize>,
    expire_ms: Option<i64>,
}

/// A position in a family that moves over live entries.
///
/// A cursor is made at no entry: call [`first`](Cursor::first) or [`seek`](Cursor::seek). It never
/// shows an entry that had expired when the cursor came to it. Outside a transaction it sees, ahead
/// of its position, what its own handle writes, and from chunk to chunk what others commit; inside
/// one, the transaction's view.
///
/// Moves fail as the reads of [`Family`](crate::Family) do. After a failure the cursor is at no
/// entry, and [`next`](Cursor::next) goes on behind the last one.
pub struct Cursor {
    family: Arc<Shared>,
    range: KeyRange,
    direction: Direction,
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    /// The current entry is `slots[at]`.
    at: usize,
    /// The last key read ahead, live or dead: the next chunk starts behind it.
    read_to: Option<Vec<u8>>,
    /// Whether there may be rows behind the chunk.
    more: bool,
    chunk_rows: usize,
    /// The handle's change count when the chunk was read.
    changes: u64,
}

/// Where a chunk starts.
enum From<'a> {
    Start,
    At(&'a [u8]),
    Behind(&'a [u8]),
}

impl Cursor {
    pub(crate) fn new(family: Arc<Shared>, range: KeyRange, direction: Direction) -> Cursor {
        Cursor {
            family,
            range,
            direction,
            bytes: Vec::new(),
            slots: Vec::new(),
            at: 0,
            read_to: None,
            more: false,
            chunk_rows: FIRST_ROWS,
            changes: 0,
        }
    }

    /// The direction it walks in.
    #[must_use]
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Moves to the first entry in its direction; says whether there is one.
    ///
    /// # Errors
    /// See [`Cursor`].
    pub fn first(&mut self) -> Result<bool> {
        self.chunk_rows = FIRST_ROWS;
        self.load(From::Start)?;
        self.settle()
    }

    /// Moves to the first entry at or behind `key` in its direction; says whether there is one. A
    /// key outside the cursor's range leaves it at no entry.
    ///
    /// # Errors
    /// See [`Cursor`]; also `Error` for a key of a bad length.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.check_open()?;
        self.family.inner.count_failure(check_key(key))?;
        self.chunk_rows = FIRST_ROWS;
        if !self.range.contains(key) {
            self.forget();
            self.more = false;
            return Ok(false);
        }
        self.load(From::At(key))?;
        self.settle()
    }

    /// Moves to the next entry in its direction; says whether there is one. At the end it stays.
    ///
    /// # Errors
    /// See [`Cursor`].
    #[allow(clippy::should_implement_trait)] // `Iter` is the iterator
    pub fn next(&mut self) -> Result<bool> {
        self.check_open()?;
        if self.changes != self.family.inner.changes() && (self.at < self.slots.len() || self.more) {
            // What was read ahead may be out of date: go on behind the current entry.
            let behind = self.key().map(<[u8]>::to_vec).or_else(|| self.read_to.take());
            match behind {
                Some(key) => self.load(From::Behind(&key))?,
                None => self.load(From::Start)?,
            }
            return self.settle();
        }
        self.at += 1;
        self.settle()
    }

    /// Whether the cursor is at an entry. Never when the store is closed.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.slot().is_some()
    }

    /// The key of the current entry.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.bytes.get(self.slot()?.key.clone())
    }

    /// The value of the current entry.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        self.bytes.get(self.slot()?.value.clone())
    }

    /// The end of life of the current entry.
    #[must_use]
    pub fn expiry(&self) -> Option<Expiry> {
        self.slot().map(|slot| slot.expire_ms.map_or(Expiry::Never, Expiry::At))
    }

    /// Fails with [`Misuse`](crate::ErrorKind::Misuse) if the store is closed.
    ///
    /// # Errors
    /// Only that one.
    pub fn check_open(&self) -> Result<()> {
        if self.family.inner.is_closed() {
            return Err(Error::Misuse("the store is closed".into()));
        }
        Ok(())
    }

    fn slot(&self) -> Option<&Slot> {
        self.slots.get(self.at).filter(|_| !self.family.inner.is_closed())
    }

    /// Goes on from `at` to the first row that is alive now, reading further chunks as needed.
    fn settle(&mut self) -> Result<bool> {
        loop {
            while let Some(slot) = self.slots.get(self.at) {
                match slot.expire_ms {
                    Some(at) if expiry::is_expired(at, self.family.inner.clock.now_ms()) => self.at += 1,
                    _ => return Ok(true),
                }
            }
            if !self.more {
                return Ok(false);
            }
            match self.read_to.take() {
                Some(key) => self.load(From::Behind(&key))?,
                None => self.load(From::Start)?,
            }
        }
    }

    /// Drops what was read ahead.
    fn forget(&mut self) {
        self.bytes.clear();
        self.slots.clear();
        self.at = 0;
    }

    /// Reads a chunk. If that fails, `next` tries again from the same place.
    fn load(&mut self, from: From<'_>) -> Result<()> {
        self.forget();
        let Cursor { family, range, direction, bytes, slots, read_to, more, chunk_rows, changes, .. } = self;
        let reverse = *direction == Direction::Reverse;
        let bound = |bound: &Bound<Vec<u8>>| -> Bound<Vec<u8>> { bound.clone() };
        let (mut lower, mut upper) = (bound(&range.lower), bound(&range.upper));
        let near = if reverse { &mut upper } else { &mut lower };
        match from {
            From::Start => *read_to = None,
            From::At(key) => {
                *near = Bound::Included(key.to_vec());
                *read_to = None;
            }
            From::Behind(key) => {
                *near = Bound::Excluded(key.to_vec());
                *read_to = Some(key.to_vec());
            }
        }
        *more = true;
        let inner = &family.inner;
        let mut skipped = 0;
        let full = *chunk_rows;
        let ended = inner.with(|db| {
            *changes = inner.changes();
            let scan = Scan {
                lower: lower.as_ref().map(Vec::as_slice),
                upper: upper.as_ref().map(Vec::as_slice),
                reverse,
            };
            db.rows().scan(&family.tables, scan, |key, row| {
                let expire_ms = row.head().expire_ms;
                if expire_ms.is_some_and(|at| expiry::is_expired(at, inner.clock.now_ms())) {
                    skipped += 1;
                    if skipped < MAX_SKIPPED {
                        return Ok(Step::Continue);
                    }
                    *read_to = Some(key.to_vec());
                    return Ok(Step::Stop);
                }
                let start = bytes.len();
                bytes.extend_from_slice(key);
                let middle = bytes.len();
                row.value(|value| bytes.extend_from_slice(value))?;
                slots.push(Slot { key: start..middle, value: middle..bytes.len(), expire_ms });
                if slots.len() < full && bytes.len() < MAX_BYTES {
                    return Ok(Step::Continue);
                }
                *read_to = Some(key.to_vec());
                Ok(Step::Stop)
            })
        });
        match ended {
            Ok(ended) => {
                *more = !ended;
                *chunk_rows = (full * 2).min(MAX_ROWS);
                Ok(())
            }
            Err(e) => {
                self.forget();
                Err(e)
            }
        }
    }
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor")
            .field("family", &self.family.tables.family())
            .field("direction", &self.direction)
            .field("valid", &self.is_valid())
            .finish_non_exhaustive()
    }
}

/// The live entries of a range, as `(key, value)`. Ends after the first error.
#[derive(Debug)]
pub struct Iter {
    cursor: Cursor,
    started: bool,
    ended: bool,
}

impl Iter {
    pub(crate) fn new(cursor: Cursor) -> Iter {
        Iter { cursor, started: false, ended: false }
    }

    /// The same entries from the last to the first. To be called before the first `next`.
    #[must_use]
    pub fn rev(mut self) -> Iter {
        self.cursor.direction = match self.cursor.direction {
            Direction::Forward => Direction::Reverse,
            Direction::Reverse => Direction::Forward,
        };
        self.started = false;
        self
    }
}

impl Iterator for Iter {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let moved = if self.started { self.cursor.next() } else { self.cursor.first() };
        self.started = true;
        self.ended = !matches!(moved, Ok(true));
        if let Err(e) = moved {
            return Some(Err(e));
        }
        Some(Ok((self.cursor.key()?.to_vec(), self.cursor.value()?.to_vec())))
    }
}

impl std::iter::FusedIterator for Iter {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_range_has_exactly_the_keys_with_that_prefix() {
        for (prefix, inside, outside) in [
            (&b"ab"[..], &[&b"ab"[..], b"ab\0", b"ab\xff\xff"][..], &[&b"aa\xff"[..], b"ac", b"a"][..]),
            (b"a\xff", &[b"a\xff", b"a\xff\xff"], &[b"a", b"b", b"a\xfe\xff"]),
            (b"\xff\xff", &[b"\xff\xff", b"\xff\xff\xff"], &[b"\xff", b"\xff\xfe"]),
        ] {
            let range = KeyRange::prefix(prefix);
            assert!(inside.iter().all(|key| range.contains(key)), "{prefix:?}");
            assert!(!outside.iter().any(|key| range.contains(key)), "{prefix:?}");
        }
    }
}

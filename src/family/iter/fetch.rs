//! Access to many entries of a cursor at a time, without copying: [`Cursor::fetch`].

use std::ops::Range;
use std::slice;

use super::{Cursor, From, Place};
use crate::backend::{Chunk, ChunkEntry};
use crate::error::Result;
use crate::expiry::{self, Expiry};
use crate::unwind::or_undo;

/// One entry of a family, as [`Cursor::fetch`] returns it. It borrows the memory of the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'c> {
    /// Key of the entry; for a cursor over [row keys](crate::row_key), the clustering part of the
    /// key.
    pub key: &'c [u8],
    /// Value of the entry; `None` if the cursor reads keys only.
    pub value: Option<&'c [u8]>,
    /// Expiry time of the entry.
    pub expiry: Expiry,
}

/// Iterator over the entries that one call of [`Cursor::fetch`] returned, in the direction of the
/// cursor.
///
/// Keys and values are borrowed from the cursor.
pub struct EntryBatch<'c> {
    chunk: &'c Chunk,
    entries: slice::Iter<'c, ChunkEntry>,
    /// Number of entries that the iterator has still to return.
    left: usize,
    prefix: usize,
    keys_only: bool,
    /// Time, in milliseconds since the Unix epoch, at which an entry must be live to be returned;
    /// `None`: all entries are returned.
    now_ms: Option<i64>,
}

impl Cursor {
    /// Returns up to `max` live entries, beginning with the current one, and moves past them.
    ///
    /// The result may have fewer than `max` entries, but it has at least one unless the cursor is
    /// at its end. It is empty also if the cursor is at no entry, or if `max` is 0.
    ///
    /// The entries are those that a loop of [`key`](Cursor::key), [`value`](Cursor::value) and
    /// [`next`](Cursor::next) returns, in a fraction of the time, and only those that are live at
    /// the time of the call. If this handle has written since the current entry was read, the entry
    /// is read again: its current state is returned, or it is skipped if it no longer exists. If a
    /// cursor in order of expiry finds that the entry's expiry time has changed, it returns the
    /// entry at its new position, unless that is behind the cursor.
    ///
    /// # Errors
    /// See [`Cursor`](Cursor#errors). A failed fetch leaves the cursor at its entry, or at the next
    /// one if that entry no longer exists.
    pub fn fetch(&mut self, max: usize) -> Result<EntryBatch<'_>> {
        self.check_open()?;
        if max == 0 {
            return Ok(self.show(Shown::Here, 0..0, 0, None));
        }
        if self.changes != self.family.session.changes() && (self.at < self.chunk.len() || self.more) {
            match self.place() {
                Some(here) => self.again(here)?,
                None => self.beside(Cursor::go_on)?, // an earlier move has failed
            }
        }
        loop {
            let (at, now_ms) = (self.at, self.now()?);
            let (end, live) = self.pass(at, max, now_ms);
            // Index of the entry at which the cursor is afterwards. It must be live.
            let (next, _) = self.pass(end, 0, now_ms);
            if next < self.chunk.len() || !self.more {
                self.at = next;
                return Ok(self.show(Shown::Here, at..end, live, now_ms));
            }
            if live > 0 {
                self.beside(|cursor| {
                    cursor.go_on()?;
                    cursor.settle(0).map(drop)
                })?;
                return Ok(self.show(Shown::Beside, at..end, live, now_ms));
            }
            self.beside(Cursor::go_on)?;
        }
    }

    /// Reads the current chunk again from the store, from the current entry `here` on, because this
    /// handle has written since it was read.
    fn again(&mut self, here: Place) -> Result<()> {
        let before = self.at.checked_sub(1).and_then(|at| self.place_of(at)).or_else(|| self.start.clone());
        let from = match before {
            _ if self.hides_expired() => From::At(here.key.clone()),
            Some(before) => From::After(before),
            None => From::Start,
        };
        self.beside(|cursor| {
            cursor.start = None; // this chunk need not be ahead of the previous one
            cursor.load(from)?;
            if cursor.hides_expired() {
                return Ok(());
            }
            // Skip entries before `here`: they were written between the previous entry and `here`.
            loop {
                let first = |entry: &ChunkEntry| {
                    let key = cursor.chunk.key(entry).unwrap_or_default();
                    (entry.expire_ms().unwrap_or_default(), key) >= (here.time_ms, &here.key)
                };
                let passed = cursor.chunk.from(0).iter().position(first);
                cursor.at = passed.unwrap_or(cursor.chunk.len());
                if passed.is_some() || !cursor.more {
                    return Ok(());
                }
                cursor.go_on()?;
            }
        })
    }

    /// Runs `read`, which reads other chunks into `chunk`, after moving the current chunk to
    /// `kept`. If `read` fails or panics, restores the cursor to its state before the call.
    fn beside(&mut self, read: impl FnOnce(&mut Cursor) -> Result<()>) -> Result<()> {
        let (read_to, start) = (self.read_to.clone(), self.start.clone());
        let mut before = Some((self.at, self.changes, self.more, read_to, start));
        std::mem::swap(&mut self.chunk, &mut self.kept);
        self.forget();
        let mut stay = |cursor: &mut Cursor| {
            if let Some(before) = before.take() {
                std::mem::swap(&mut cursor.chunk, &mut cursor.kept);
                (cursor.at, cursor.changes, cursor.more, cursor.read_to, cursor.start) = before;
            }
        };
        let done = or_undo(&mut *self, |cursor| read(cursor), |cursor| stay(cursor));
        done.inspect_err(|_| stay(self))
    }

    /// Returns the current time if the chunk may contain entries that have expired; `None` if all
    /// its entries are returned.
    fn now(&self) -> Result<Option<i64>> {
        let session = &self.family.session;
        let Some(first_end) = self.chunk.first_end().filter(|_| self.hides_expired()) else {
            return Ok(None);
        };
        session.freshen_clock()?;
        Ok(Some(session.clock.now_ms()).filter(|now_ms| expiry::is_expired(first_end, *now_ms)))
    }

    /// Passes over up to `max` live entries of the chunk, from index `at` on. Returns the index
    /// after them, and their number. Expired entries after the last live one are passed over too,
    /// so the index is that of a live entry or the end of the chunk. Entries are live if they have
    /// not expired at `now_ms`; if that is `None`, all are live.
    fn pass(&self, at: usize, max: usize, now_ms: Option<i64>) -> (usize, usize) {
        if now_ms.is_none() {
            let live = self.chunk.from(at).len().min(max);
            return (at + live, live);
        }
        let mut live = 0;
        for (passed, entry) in self.chunk.from(at).iter().enumerate() {
            if is_shown(entry, now_ms) {
                if live == max {
                    return (at + passed, live);
                }
                live += 1;
            }
        }
        (self.chunk.len().max(at), live)
    }

    fn show(&self, shown: Shown, at: Range<usize>, left: usize, now_ms: Option<i64>) -> EntryBatch<'_> {
        let chunk = match shown {
            Shown::Here => &self.chunk,
            Shown::Beside => &self.kept,
        };
        let entries = chunk.from(at.start).get(..at.len()).unwrap_or_default().iter();
        EntryBatch { chunk, entries, left, prefix: self.prefix.len(), keys_only: self.keys_only, now_ms }
    }
}

/// Chunk of a cursor from which [`Cursor::fetch`] returns entries.
enum Shown {
    /// The current chunk, `Cursor::chunk`.
    Here,
    /// The previous chunk, `Cursor::kept`: the cursor is in the next one already.
    Beside,
}

fn is_shown(entry: &ChunkEntry, now_ms: Option<i64>) -> bool {
    match (entry.expire_ms(), now_ms) {
        (Some(end), Some(now_ms)) => !expiry::is_expired(end, now_ms),
        _ => true,
    }
}

impl<'c> Iterator for EntryBatch<'c> {
    type Item = Entry<'c>;

    #[inline(always)]
    fn next(&mut self) -> Option<Entry<'c>> {
        let entry = self.entries.find(|entry| is_shown(entry, self.now_ms))?;
        self.left = self.left.saturating_sub(1);
        let (key, value) = entry.parts(self.chunk.bytes())?;
        Some(Entry {
            key: key.get(self.prefix..)?,
            value: if self.keys_only { None } else { Some(value) },
            expiry: Expiry::of_row(entry.expire_ms()),
        })
    }

    /// Equivalent to a loop of [`next`](Iterator::next), in fewer steps.
    #[inline(always)]
    fn fold<B, F: FnMut(B, Entry<'c>) -> B>(self, init: B, mut f: F) -> B {
        let EntryBatch { chunk, entries, prefix, keys_only, now_ms, .. } = self;
        let bytes = chunk.bytes();
        let mut folded = init;
        for entry in entries {
            if !is_shown(entry, now_ms) {
                continue;
            }
            let Some((key, value)) = entry.parts(bytes) else { break };
            let Some(key) = key.get(prefix..) else { break };
            let value = if keys_only { None } else { Some(value) };
            folded = f(folded, Entry { key, value, expiry: Expiry::of_row(entry.expire_ms()) });
        }
        folded
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for EntryBatch<'_> {}
impl std::iter::FusedIterator for EntryBatch<'_> {}

impl std::fmt::Debug for EntryBatch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EntryBatch").field("left", &self.left).finish_non_exhaustive()
    }
}

//! Access to many entries at a time, in the memory they were read into.

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
    /// Number of entries left.
    left: usize,
    prefix: usize,
    keys_only: bool,
    /// Time at which entries with an expiry time were checked; `None`: all are returned.
    now_ms: Option<i64>,
}

impl Cursor {
    /// Returns up to `max` live entries, beginning with the current one, and moves past them.
    ///
    /// It may return fewer, but at least one if there is one: an empty result means the end. It is
    /// also empty if the cursor is at no entry, or `max` is 0.
    ///
    /// It returns what a loop of [`key`](Cursor::key), [`value`](Cursor::value) and
    /// [`next`](Cursor::next) returns, in a fraction of the time, and only entries that are live
    /// when it is called. If this handle has written since the current entry was read, the entry is
    /// read again. It is returned as it is now, or skipped if it no longer exists. In order of
    /// expiry, it is returned where it is now, if that is ahead.
    ///
    /// # Errors
    /// See [`Cursor`](Cursor#errors). A failed fetch leaves the cursor at its entry, or at the next
    /// one if that entry no longer exists.
    pub fn fetch(&mut self, max: usize) -> Result<EntryBatch<'_>> {
        self.check_open()?;
        if max == 0 {
            return Ok(self.show(Shown::Here, 0..0, 0, None));
        }
        if self.changes != self.family.shared.changes() && (self.at < self.chunk.len() || self.more) {
            match self.place() {
                Some(here) => self.again(here)?,
                None => self.beside(Cursor::go_on)?, // an earlier move has failed
            }
        }
        loop {
            let (at, now_ms) = (self.at, self.now()?);
            let (end, live) = self.pass(at, max, now_ms);
            // The entry to be at afterwards, which must not be expired.
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

    /// Reads again from the current entry on.
    fn again(&mut self, here: Place) -> Result<()> {
        let before = self.at.checked_sub(1).and_then(|at| self.place_of(at)).or_else(|| self.start.clone());
        let from = match before {
            _ if self.hides_expired() => From::At(here.key.clone()),
            Some(before) => From::After(before),
            None => From::Start,
        };
        self.beside(|cursor| {
            cursor.start = None; // the chunk need not be ahead of the previous one
            cursor.load(from)?;
            if cursor.hides_expired() {
                return Ok(());
            }
            // Entries written between that entry and this one are before the cursor.
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

    /// Runs `read`, which reads other chunks, and keeps the current chunk. If `read` fails,
    /// everything is as before.
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

    /// Returns the current time if an entry of the chunk has expired by then.
    fn now(&self) -> Result<Option<i64>> {
        let shared = &self.family.shared;
        let Some(first_end) = self.chunk.first_end().filter(|_| self.hides_expired()) else {
            return Ok(None);
        };
        shared.freshen_clock()?;
        Ok(Some(shared.clock.now_ms()).filter(|now_ms| expiry::is_expired(first_end, *now_ms)))
    }

    /// Returns the end of `max` live entries from `at` on, and their number. With a `max` of 0 the
    /// end is the next live entry.
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

/// Chunk that contains the entries which a fetch returns.
enum Shown {
    Here,
    /// The cursor has moved on to the next chunk.
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

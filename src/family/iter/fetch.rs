//! Entries many at a time, as they were read ahead: the caller sees them where they are.

use std::ops::Range;
use std::slice;

use super::{Cursor, From, Place};
use crate::db::{Chunk, ChunkEntry};
use crate::error::Result;
use crate::expiry::{self, Expiry};
use crate::unwind::or_undo;

/// An entry that [`Cursor::fetch`] shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'c> {
    /// What [`Cursor::key`] would show.
    pub key: &'c [u8],
    /// `None` if the cursor reads no values.
    pub value: Option<&'c [u8]>,
    /// The end of its life.
    pub expiry: Expiry,
}

/// The entries of one [`fetch`](Cursor::fetch), in the cursor's direction.
pub struct EntryBatch<'c> {
    chunk: &'c Chunk,
    entries: slice::Iter<'c, ChunkEntry>,
    /// How many of them are shown.
    left: usize,
    prefix: usize,
    keys_only: bool,
    /// When those with an end of life were looked at; `None`: all are shown.
    now_ms: Option<i64>,
}

impl Cursor {
    /// Shows at most `max` live entries from the current one on, and moves behind them; none if the cursor is at no
    /// entry, or if `max` is 0. It may show fewer, but at least one if there is one: the end is where it shows none.
    ///
    /// What a loop of [`key`](Cursor::key), [`value`](Cursor::value) and [`next`](Cursor::next) shows, for a fraction
    /// of its time; and only what is alive when it is called. If this handle has written since the current entry
    /// was read, by a move or ahead, it is looked at again, and shown as it is now, or not at all if it is gone (in the
    /// order of expiry: where it is now, if that is ahead).
    ///
    /// # Errors
    /// See [`Cursor`]; but a fetch that fails leaves the cursor at its entry, or if it has found that gone, at the one
    /// behind it.
    pub fn fetch(&mut self, max: usize) -> Result<EntryBatch<'_>> {
        self.check_open()?;
        if max == 0 {
            return Ok(self.show(Shown::Here, 0..0, 0, None));
        }
        if self.changes != self.family.shared.changes() && (self.at < self.chunk.len() || self.more) {
            match self.place() {
                Some(here) => self.again(here)?,
                None => self.beside(Cursor::go_on)?, // a move has failed before
            }
        }
        loop {
            let (at, now_ms) = (self.at, self.now()?);
            let (end, live) = self.pass(at, max, now_ms);
            // The entry to be at afterwards, which is not to be dead.
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
            cursor.start = None; // it is no step on
            cursor.load(from)?;
            if cursor.hides_expired() {
                return Ok(());
            }
            // What has come between that entry and this one is behind the cursor.
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

    /// Runs what reads other chunks, and keeps this one beside them. If it fails, all is as it was.
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

    /// The time by which entries of the chunk are dead, if one is.
    fn now(&self) -> Result<Option<i64>> {
        let shared = &self.family.shared;
        let Some(first_end) = self.chunk.first_end().filter(|_| self.hides_expired()) else {
            return Ok(None);
        };
        shared.freshen_clock()?;
        Ok(Some(shared.clock.now_ms()).filter(|now_ms| expiry::is_expired(first_end, *now_ms)))
    }

    /// How far so many live entries reach from here on, and how many there are; of none, the next live one is the end.
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

/// Which chunk the entries are in that a fetch shows.
enum Shown {
    Here,
    /// The cursor has gone on to the next one.
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

    /// As a loop of [`next`](Iterator::next), in fewer steps.
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

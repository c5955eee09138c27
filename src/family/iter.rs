//! Ordered iteration, in chunks.
//!
//! A cursor copies some rows at a time and keeps no SQLite cursor or lock in between. So writes,
//! commits, checkpoints, drops and close are always possible while it exists. When its own handle
//! has written meanwhile it forgets what it read ahead, and reads on after its last key.

mod fetch;

use std::ops::Bound;
use std::sync::Arc;

pub use fetch::{Entry, EntryBatch};

use super::KeyRange;
use crate::clock;
use crate::config::check_key;
use crate::db::{Chunk, ChunkEntry, Contents, Limits, Scan};
use crate::error::{Error, Result};
use crate::expiry::{self, Expiry};
#[allow(unused_imports)] // named in documentation
use crate::family::Family;
use crate::family::Target;
use crate::memory;

/// Rows in the first chunk; the next ones are four times as long, up to [`MAX_ROWS`].
const FIRST_ROWS: usize = 128;
/// The bytes with which the first one is full: whoever wants a few rows does not wait for many pages.
const FIRST_BYTES: usize = 16 * 1024;
const MAX_ROWS: usize = 512;
/// Rows in the chunk after a write: whoever writes between two rows is likely to do so again.
const ROWS_AFTER_WRITE: usize = 16;
/// Another one is full when its rows have this many bytes together.
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

impl Direction {
    fn is_after(self, key: &[u8], before: &[u8]) -> bool {
        match self {
            Direction::Forward => key > before,
            Direction::Reverse => key < before,
        }
    }
}

/// A position in a family that moves over live entries.
///
/// A cursor is made at no entry: call [`first`](Cursor::first) or [`seek`](Cursor::seek). It never
/// shows an entry that had expired when the cursor came to it (but for [`Family::expiry_cursor`]); what it has read ahead from
/// a server it judges by the store's clock, which is late by as long as the newest answer was on its way. Outside a
/// transaction it sees, ahead of its position, what its own handle writes, and from chunk to chunk what
/// others commit (up to 512 entries, or 64 KiB and one value more, are read ahead; an end of life that another handle gives one of
/// them meanwhile is not seen); inside one, the transaction's view.
///
/// Moves fail as the reads of [`Family`] do. After a failure the cursor is at no entry, and
/// [`next`](Cursor::next) goes on after the last entry it was at, also if it was a [`seek`](Cursor::seek) that
/// failed. If it was at none, a seek that failed leaves it there, and a [`first`](Cursor::first) that failed before
/// the first one. A refused argument moves nothing.
pub struct Cursor {
    family: Arc<Target>,
    walk: Over,
    /// What all keys begin with and [`key`](Cursor::key) does not show.
    prefix: Vec<u8>,
    keys_only: bool,
    chunk: Chunk,
    /// The one before it, whose entries a fetch has shown.
    kept: Chunk,
    /// The current entry is this one of the chunk.
    at: usize,
    /// If there is more after the chunk, the next one starts after this entry, live or dead; `None`: at the
    /// beginning of the range.
    read_to: Option<Place>,
    /// The entry after which the chunk starts.
    start: Option<Place>,
    /// Whether there may be rows after the chunk.
    more: bool,
    chunk_rows: usize,
    /// The handle's change count when the chunk was read.
    changes: u64,
}

/// What a cursor walks over.
enum Over {
    Keys(KeyRange, Direction),
    /// The expiry index from the first time to before the second; `None`: to its end.
    Expiry(i64, Option<i64>),
}

/// What reading a chunk found out.
struct Loaded {
    /// The handle's change count when it was read.
    changes: u64,
    /// The last entry that was looked at, live or dead; `None`: the walk is at its end.
    read_to: Option<Place>,
}

/// Where a row is in a walk; the time counts in the expiry index only.
#[derive(Clone)]
struct Place {
    time_ms: i64,
    key: Vec<u8>,
}

/// Where a chunk starts.
enum From {
    Start,
    At(Vec<u8>),
    After(Place),
}

impl Cursor {
    pub(crate) fn new(family: Arc<Target>, range: KeyRange, direction: Direction) -> Cursor {
        Cursor::over(family, Over::Keys(range, direction))
    }

    pub(crate) fn by_expiry(family: Arc<Target>, from_ms: i64, to_ms: Option<i64>) -> Cursor {
        Cursor::over(family, Over::Expiry(from_ms, to_ms))
    }

    fn over(family: Arc<Target>, walk: Over) -> Cursor {
        Cursor {
            family,
            walk,
            prefix: Vec::new(),
            keys_only: false,
            chunk: Chunk::default(),
            kept: Chunk::default(),
            at: 0,
            read_to: None,
            start: None,
            more: false,
            chunk_rows: FIRST_ROWS,
            changes: 0,
        }
    }

    /// All keys of the walk begin with `prefix`: shows, and seeks, what follows it.
    pub(crate) fn without_prefix(mut self, prefix: Vec<u8>) -> Cursor {
        self.prefix = prefix;
        self
    }

    /// Reads no values: out-of-line ones are not even looked at. To be called before the first move.
    #[must_use]
    pub fn keys_only(mut self) -> Cursor {
        self.keys_only = true;
        self
    }

    /// Whether it reads no values.
    #[must_use]
    pub fn is_keys_only(&self) -> bool {
        self.keys_only
    }

    /// The direction it walks in.
    #[must_use]
    pub fn direction(&self) -> Direction {
        match self.walk {
            Over::Keys(_, direction) => direction,
            Over::Expiry(..) => Direction::Forward,
        }
    }

    /// Moves to the first entry in its direction; says whether there is one.
    ///
    /// # Errors
    /// See [`Cursor`].
    pub fn first(&mut self) -> Result<bool> {
        self.chunk_rows = FIRST_ROWS;
        self.load(From::Start)?;
        self.settle(self.at)
    }

    /// Moves to the first entry at or after `key` in its direction; says whether there is one. A
    /// key outside the cursor's range leaves it at no entry.
    ///
    /// # Errors
    /// See [`Cursor`]; also `Error` for a key of a bad length, and in the order of expiry.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.check_open()?;
        let key = [&self.prefix, key.as_ref()].concat();
        self.family.shared.count_failure(check_key(&key))?;
        let Over::Keys(range, _) = &self.walk else {
            return self.family.shared.count_failure(Err(Error::invalid(
                "an iterator in the order of expiry cannot seek a key: make one that starts at another time",
            )));
        };
        self.chunk_rows = FIRST_ROWS;
        if !range.contains(&key) {
            self.forget();
            self.more = false;
            self.read_to = None;
            return Ok(false);
        }
        self.load(From::At(key))?;
        self.settle(self.at)
    }

    /// Moves to the next entry in its direction; says whether there is one. At the end it stays.
    ///
    /// # Errors
    /// See [`Cursor`].
    #[allow(clippy::should_implement_trait)] // `Iter` is the iterator
    pub fn next(&mut self) -> Result<bool> {
        if self.step(|_| false) {
            return Ok(true);
        }
        self.check_open()?;
        if self.changes != self.family.shared.changes() && (self.at < self.chunk.len() || self.more) {
            // What was read ahead may be out of date: go on after the current entry.
            let place = self.place().or_else(|| self.read_to.take());
            self.chunk_rows = ROWS_AFTER_WRITE;
            self.load(place.map_or(From::Start, From::After))?;
            return self.settle(self.at);
        }
        let has_end = |entry: &ChunkEntry| entry.expire_ms().is_some();
        if self.hides_expired() && self.chunk.get(self.at + 1).is_some_and(has_end) {
            self.freshen_clock()?;
        }
        self.settle(self.at + 1)
    }

    /// For a move that judges entries it has read ahead. If it fails, so has the move.
    fn freshen_clock(&mut self) -> Result<()> {
        let fresh = self.family.shared.freshen_clock();
        if fresh.is_err() {
            (self.read_to, self.more) = (self.place(), true);
            self.forget();
        }
        fresh
    }

    /// Moves to the next entry if that was read ahead and has not expired; otherwise does nothing.
    /// Nothing in it can fail or panic. `is_far_off` says of a moment, if it knows without the exact time, that it is
    /// still to come.
    #[inline(always)]
    pub(crate) fn step(&mut self, is_far_off: impl FnOnce(i64) -> bool) -> bool {
        let next = self.at.wrapping_add(1);
        if self.family.shared.is_plainly_open()
            && self.changes == self.family.shared.changes()
            && let Some(entry) = self.chunk.get(next)
            && entry.expire_ms().is_none_or(|end| is_far_off(end) || self.shows_later_than(end))
        {
            self.at = next;
            return true;
        }
        false
    }

    /// Whether it shows, now, an entry that dies at that time; only for a clock that is not injected.
    fn shows_later_than(&self, expire_ms: i64) -> bool {
        !self.hides_expired() || !expiry::is_expired(expire_ms, clock::system_now_ms())
    }

    /// Whether the cursor is at an entry. Never when the store is closed.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.entry().is_some()
    }

    /// The key of the current entry; of a row, its clustering part.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.key_of(self.entry()?)
    }

    /// The value of the current entry; `None` also if the cursor reads no values.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        self.value_of(self.entry()?)
    }

    /// As [`is_valid`](Cursor::is_valid), or `false` if a closer look is needed.
    #[inline(always)]
    pub(crate) fn is_plainly_valid(&self) -> bool {
        self.plain_entry().is_some()
    }

    /// As [`key`](Cursor::key), or `None` if a closer look is needed.
    #[inline(always)]
    pub(crate) fn plain_key(&self) -> Option<&[u8]> {
        self.key_of(self.plain_entry()?)
    }

    /// As [`value`](Cursor::value), or `None` if a closer look is needed.
    #[inline(always)]
    pub(crate) fn plain_value(&self) -> Option<&[u8]> {
        self.value_of(self.plain_entry()?)
    }

    /// The end of life of the current entry.
    #[must_use]
    pub fn expiry(&self) -> Option<Expiry> {
        self.entry().map(|entry| Expiry::of_row(entry.expire_ms()))
    }

    /// Fails with [`Misuse`](crate::ErrorKind::Misuse) if the store cannot be used: it is closed, from
    /// before a fork, or called by its own callback.
    ///
    /// # Errors
    /// Only that one.
    pub fn check_open(&self) -> Result<()> {
        self.family.shared.check_open()
    }

    fn entry(&self) -> Option<&ChunkEntry> {
        if self.family.shared.is_usable() { self.chunk.get(self.at) } else { None }
    }

    #[inline(always)]
    fn plain_entry(&self) -> Option<&ChunkEntry> {
        if self.family.shared.is_plainly_open() { self.chunk.get(self.at) } else { None }
    }

    #[inline(always)]
    fn key_of(&self, entry: &ChunkEntry) -> Option<&[u8]> {
        self.chunk.key(entry)?.get(self.prefix.len()..)
    }

    #[inline(always)]
    fn value_of(&self, entry: &ChunkEntry) -> Option<&[u8]> {
        if self.keys_only { None } else { self.chunk.value(entry) }
    }

    fn place(&self) -> Option<Place> {
        self.place_of(self.at)
    }

    fn place_of(&self, at: usize) -> Option<Place> {
        let entry = self.chunk.get(at)?;
        let key = self.chunk.key(entry)?.to_vec();
        Some(Place { time_ms: entry.expire_ms().unwrap_or_default(), key })
    }

    /// Goes on from this entry of the chunk to the first one that is to be shown now, reading further chunks as
    /// needed.
    fn settle(&mut self, mut at: usize) -> Result<bool> {
        let hide_expired = self.hides_expired();
        loop {
            while let Some(entry) = self.chunk.get(at) {
                match entry.expire_ms() {
                    // The cursor is moved only when the clock, which may panic, has answered.
                    Some(end)
                        if hide_expired && expiry::is_expired(end, self.family.shared.clock.now_ms()) =>
                    {
                        at += 1;
                    }
                    _ => {
                        self.at = at;
                        return Ok(true);
                    }
                }
            }
            self.at = at;
            if !self.more {
                return Ok(false);
            }
            self.go_on()?;
            at = 0;
        }
    }

    /// Reads the next chunk.
    fn go_on(&mut self) -> Result<()> {
        let place = self.read_to.take();
        self.load(place.map_or(From::Start, From::After))
    }

    /// Whether it shows live entries only.
    fn hides_expired(&self) -> bool {
        matches!(self.walk, Over::Keys(..))
    }

    /// Drops what was read ahead.
    fn forget(&mut self) {
        self.chunk.clear();
        self.at = 0;
    }

    /// Whether a chunk that starts after this entry is a step on from the one before. In a damaged table it may
    /// not be, and the walk would come to where it was before, for ever.
    fn is_in_order(&self, place: &Place) -> bool {
        let Some(start) = &self.start else { return true };
        match self.walk {
            Over::Keys(_, direction) => direction.is_after(&place.key, &start.key),
            Over::Expiry(..) => (place.time_ms, &place.key) > (start.time_ms, &start.key),
        }
    }

    /// Reads a chunk. Until that has succeeded, and if it fails, the cursor is at no entry, with its place as
    /// [`Cursor`] says.
    fn load(&mut self, from: From) -> Result<()> {
        match (&from, self.place()) {
            (From::After(place), _) => (self.read_to, self.more) = (Some(place.clone()), true),
            (_, Some(place)) => (self.read_to, self.more) = (Some(place), true),
            // At no entry. If there is more, a move has failed before, and its place stays.
            (From::Start, None) if !self.more => (self.read_to, self.more) = (None, true),
            (From::Start | From::At(_), None) => {}
        }
        self.forget();
        let start = match &from {
            From::After(place) if !self.is_in_order(place) => return Err(self.family.tables.out_of_order()),
            From::After(place) => Some(place.clone()),
            From::Start | From::At(_) => None,
        };
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.set_limits(self.limits());
        let loaded = match &self.walk {
            Over::Keys(range, direction) => self.load_keys(&mut chunk, range, *direction, from),
            Over::Expiry(from_ms, to_ms) => self.load_expiry(&mut chunk, *from_ms, *to_ms, from),
        };
        self.chunk = chunk;
        match loaded {
            Ok(loaded) => {
                self.start = start;
                self.changes = loaded.changes;
                self.more = loaded.read_to.is_some();
                self.read_to = loaded.read_to;
                self.chunk_rows = (self.chunk_rows * 4).min(MAX_ROWS);
                Ok(())
            }
            Err(e) => {
                self.forget();
                Err(e)
            }
        }
    }

    fn load_keys(
        &self,
        chunk: &mut Chunk,
        range: &KeyRange,
        direction: Direction,
        from: From,
    ) -> Result<Loaded> {
        let from = match from {
            From::Start => None,
            From::At(key) => Some(Bound::Included(key)),
            From::After(place) => Some(Bound::Excluded(place.key)),
        };
        let range = match from {
            None => range.clone(),
            Some(bound) => range.clone().from(bound, direction),
        };
        let scan = Scan { reverse: direction == Direction::Reverse, ..range.scan() };
        self.read(|family| {
            let read_to = family.next_rows(scan, chunk)?;
            Ok(read_to.map(|key| Place { time_ms: 0, key }))
        })
    }

    fn load_expiry(&self, chunk: &mut Chunk, from_ms: i64, to_ms: Option<i64>, from: From) -> Result<Loaded> {
        let after = match from {
            From::After(place) => (place.time_ms, place.key),
            From::Start | From::At(_) => (from_ms, Vec::new()), // no key is empty
        };
        self.read(|family| {
            let read_to = family.next_expiring((after.0, &after.1), to_ms, chunk)?;
            Ok(read_to.map(|(time_ms, key)| Place { time_ms, key }))
        })
    }

    fn limits(&self) -> Limits {
        let bytes = if self.chunk_rows <= FIRST_ROWS { FIRST_BYTES } else { MAX_BYTES };
        Limits { rows: self.chunk_rows, bytes, skipped: MAX_SKIPPED, keys_only: self.keys_only }
    }

    fn read(&self, read: impl FnOnce(Contents<'_>) -> Result<Option<Place>>) -> Result<Loaded> {
        let Target { shared, tables } = &*self.family;
        shared.with(|db| {
            let changes = shared.changes();
            Ok(Loaded { changes, read_to: read(db.view().contents(tables, &shared.clock))? })
        })
    }
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor")
            .field("family", &self.family.tables.family())
            .field("direction", &self.direction())
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
        if let Over::Keys(_, direction) = &mut self.cursor.walk {
            *direction = match direction {
                Direction::Forward => Direction::Reverse,
                Direction::Reverse => Direction::Forward,
            };
        }
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
        let (key, value) = (self.cursor.key()?.to_vec(), memory::copy_of(self.cursor.value()?));
        self.ended = value.is_err();
        Some(value.map(|value| (key, value)))
    }
}

impl std::iter::FusedIterator for Iter {}

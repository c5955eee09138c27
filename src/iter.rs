//! Ordered iteration, in chunks.
//!
//! A cursor copies some rows at a time and keeps no SQLite cursor or lock in between. So writes,
//! commits, checkpoints, drops and close are always possible while it exists. When its own handle
//! has written meanwhile it forgets what it read ahead, and reads on behind its last key.

use std::ops::{Bound, Range};
use std::sync::Arc;

use crate::clock;
use crate::config::check_key;
use crate::db::{Engine, Scan, Step, TimeIndex};
use crate::error::{Error, Result};
use crate::expiry::{self, Expiry};
#[allow(unused_imports)] // named in documentation
use crate::family::Family;
use crate::family::Shared;
use crate::range::KeyRange;

/// Rows in the first chunk; the next ones are four times as long, up to [`MAX_ROWS`].
const FIRST_ROWS: usize = 32;
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

impl Direction {
    fn is_behind(self, key: &[u8], before: &[u8]) -> bool {
        match self {
            Direction::Forward => key > before,
            Direction::Reverse => key < before,
        }
    }
}

/// A row that was read ahead: where its bytes are in the chunk, and when it dies.
struct Slot {
    start: usize,
    /// Lengths fit: a value has at most 512 MiB.
    key: u32,
    value: u32,
    expire_ms: Option<i64>,
}

impl Slot {
    fn key(&self) -> Range<usize> {
        self.start..self.start + self.key as usize
    }

    fn value(&self) -> Range<usize> {
        let start = self.start + self.key as usize;
        start..start + self.value as usize
    }
}

/// A position in a family that moves over live entries.
///
/// A cursor is made at no entry: call [`first`](Cursor::first) or [`seek`](Cursor::seek). It never
/// shows an entry that had expired when the cursor came to it (but for [`Family::expiring`]). Outside a
/// transaction it sees, ahead of its position, what its own handle writes, and from chunk to chunk what
/// others commit; inside one, the transaction's view.
///
/// Moves fail as the reads of [`Family`] do. After a failure the cursor is at no entry, and
/// [`next`](Cursor::next) goes on behind the last one.
pub struct Cursor {
    family: Arc<Shared>,
    walk: Walk,
    /// What all keys begin with and [`key`](Cursor::key) does not show.
    prefix: Vec<u8>,
    keys_only: bool,
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    /// The current entry is `slots[at]`.
    at: usize,
    /// The last entry read ahead, live or dead: the next chunk starts behind it.
    read_to: Option<Place>,
    /// The entry behind which the chunk starts.
    start: Option<Place>,
    /// Whether there may be rows behind the chunk.
    more: bool,
    chunk_rows: usize,
    /// The handle's change count when the chunk was read.
    changes: u64,
}

/// What a cursor walks over.
enum Walk {
    Keys(KeyRange, Direction),
    /// The expiry index from the first time to before the second.
    Expiry(i64, i64),
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
    Behind(Place),
}

impl Cursor {
    pub(crate) fn new(family: Arc<Shared>, range: KeyRange, direction: Direction) -> Cursor {
        Cursor::over(family, Walk::Keys(range, direction))
    }

    pub(crate) fn by_expiry(family: Arc<Shared>, from_ms: i64, to_ms: i64) -> Cursor {
        Cursor::over(family, Walk::Expiry(from_ms, to_ms))
    }

    fn over(family: Arc<Shared>, walk: Walk) -> Cursor {
        Cursor {
            family,
            walk,
            prefix: Vec::new(),
            keys_only: false,
            bytes: Vec::new(),
            slots: Vec::new(),
            at: 0,
            read_to: None,
            start: None,
            more: false,
            chunk_rows: FIRST_ROWS,
            changes: 0,
        }
    }

    /// All keys of the walk begin with `prefix`: shows, and seeks, what is behind it.
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
            Walk::Keys(_, direction) => direction,
            Walk::Expiry(..) => Direction::Forward,
        }
    }

    /// Moves to the first entry in its direction; says whether there is one.
    ///
    /// # Errors
    /// See [`Cursor`].
    pub fn first(&mut self) -> Result<bool> {
        self.start = None;
        self.chunk_rows = FIRST_ROWS;
        self.load(From::Start)?;
        self.settle()
    }

    /// Moves to the first entry at or behind `key` in its direction; says whether there is one. A
    /// key outside the cursor's range leaves it at no entry.
    ///
    /// # Errors
    /// See [`Cursor`]; also `Error` for a key of a bad length, and in the order of expiry.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.check_open()?;
        let key = [&self.prefix, key.as_ref()].concat();
        self.family.inner.count_failure(check_key(&key))?;
        let Walk::Keys(range, _) = &self.walk else {
            return self.family.inner.count_failure(Err(Error::Invalid(
                "an iterator in the order of expiry cannot seek a key: make one that starts at another time"
                    .into(),
            )));
        };
        self.chunk_rows = FIRST_ROWS;
        if !range.contains(&key) {
            self.forget();
            self.more = false;
            return Ok(false);
        }
        self.start = None;
        self.load(From::At(key))?;
        self.settle()
    }

    /// Moves to the next entry in its direction; says whether there is one. At the end it stays.
    ///
    /// # Errors
    /// See [`Cursor`].
    #[allow(clippy::should_implement_trait)] // `Iter` is the iterator
    pub fn next(&mut self) -> Result<bool> {
        if self.step() {
            return Ok(true);
        }
        self.check_open()?;
        if self.changes != self.family.inner.changes() && (self.at < self.slots.len() || self.more) {
            // What was read ahead may be out of date: go on behind the current entry.
            let behind = self.place().or_else(|| self.read_to.take());
            self.load(behind.map_or(From::Start, From::Behind))?;
            return self.settle();
        }
        self.at += 1;
        self.settle()
    }

    /// Moves to the next entry if that was read ahead and has not expired; otherwise does nothing.
    /// Nothing in it can fail or panic.
    #[inline(always)]
    pub(crate) fn step(&mut self) -> bool {
        let next = self.at.wrapping_add(1);
        if self.family.inner.is_plainly_open()
            && self.changes == self.family.inner.changes()
            && let Some(slot) = self.slots.get(next)
            && slot.expire_ms.is_none_or(|at| self.shows_later_than(at))
        {
            self.at = next;
            return true;
        }
        false
    }

    /// Whether it shows, now, an entry that dies at that time; only for a clock that is not injected.
    fn shows_later_than(&self, expire_ms: i64) -> bool {
        matches!(self.walk, Walk::Expiry(..)) || !expiry::is_expired(expire_ms, clock::system_now_ms())
    }

    /// Whether the cursor is at an entry. Never when the store is closed.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.slot().is_some()
    }

    /// The key of the current entry; of a row, its clustering part.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.key_of(self.slot()?)
    }

    /// The value of the current entry; `None` also if the cursor reads no values.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        self.value_of(self.slot()?)
    }

    /// As [`is_valid`](Cursor::is_valid), or `false` if a closer look is needed.
    #[inline(always)]
    pub(crate) fn is_plainly_valid(&self) -> bool {
        self.plain_slot().is_some()
    }

    /// As [`key`](Cursor::key), or `None` if a closer look is needed.
    #[inline(always)]
    pub(crate) fn plain_key(&self) -> Option<&[u8]> {
        self.key_of(self.plain_slot()?)
    }

    /// As [`value`](Cursor::value), or `None` if a closer look is needed.
    #[inline(always)]
    pub(crate) fn plain_value(&self) -> Option<&[u8]> {
        self.value_of(self.plain_slot()?)
    }

    /// The end of life of the current entry.
    #[must_use]
    pub fn expiry(&self) -> Option<Expiry> {
        self.slot().map(|slot| Expiry::of_row(slot.expire_ms))
    }

    /// Fails with [`Misuse`](crate::ErrorKind::Misuse) if the store cannot be used: it is closed, from
    /// before a fork, or called by its own callback.
    ///
    /// # Errors
    /// Only that one.
    pub fn check_open(&self) -> Result<()> {
        self.family.inner.check_open()
    }

    fn slot(&self) -> Option<&Slot> {
        if self.family.inner.is_usable() { self.slots.get(self.at) } else { None }
    }

    #[inline(always)]
    fn plain_slot(&self) -> Option<&Slot> {
        if self.family.inner.is_plainly_open() { self.slots.get(self.at) } else { None }
    }

    #[inline(always)]
    fn key_of(&self, slot: &Slot) -> Option<&[u8]> {
        self.bytes.get(slot.key())?.get(self.prefix.len()..)
    }

    #[inline(always)]
    fn value_of(&self, slot: &Slot) -> Option<&[u8]> {
        if self.keys_only { None } else { self.bytes.get(slot.value()) }
    }

    fn place(&self) -> Option<Place> {
        let slot = self.slots.get(self.at)?;
        let key = self.bytes.get(slot.key())?.to_vec();
        Some(Place { time_ms: slot.expire_ms.unwrap_or_default(), key })
    }

    /// Goes on from `at` to the first row that is to be shown now, reading further chunks as needed.
    fn settle(&mut self) -> Result<bool> {
        let hide_expired = matches!(self.walk, Walk::Keys(..));
        loop {
            while let Some(slot) = self.slots.get(self.at) {
                match slot.expire_ms {
                    Some(at) if hide_expired && expiry::is_expired(at, self.family.inner.clock.now_ms()) => {
                        self.at += 1;
                    }
                    _ => return Ok(true),
                }
            }
            if !self.more {
                return Ok(false);
            }
            let behind = self.read_to.take();
            self.load(behind.map_or(From::Start, From::Behind))?;
        }
    }

    /// Drops what was read ahead.
    fn forget(&mut self) {
        self.bytes.clear();
        self.slots.clear();
        self.at = 0;
    }

    /// Whether a chunk that starts behind this entry is a step on from the one before. In a damaged table it may
    /// not be, and the walk would come to where it was before, for ever.
    fn is_in_order(&self, place: &Place) -> bool {
        let Some(start) = &self.start else { return true };
        match self.walk {
            Walk::Keys(_, direction) => direction.is_behind(&place.key, &start.key),
            Walk::Expiry(..) => (place.time_ms, &place.key) > (start.time_ms, &start.key),
        }
    }

    /// Reads a chunk. If that fails, `next` tries again from the same place.
    fn load(&mut self, from: From) -> Result<()> {
        self.forget();
        self.more = true;
        let start = match &from {
            From::Behind(place) if !self.is_in_order(place) => {
                self.read_to = Some(place.clone());
                return Err(self.family.out_of_order());
            }
            From::Behind(place) => Some(place.clone()),
            From::Start | From::At(_) => None,
        };
        let loaded = match &self.walk {
            Walk::Keys(range, direction) => {
                let (range, direction) = (range.clone(), *direction);
                self.load_keys(range, direction, from)
            }
            Walk::Expiry(from_ms, to_ms) => {
                let (from_ms, to_ms) = (*from_ms, *to_ms);
                self.load_expiry(from_ms, to_ms, from)
            }
        };
        match loaded {
            Ok(ended) => {
                self.start = start;
                self.more = !ended;
                self.chunk_rows = (self.chunk_rows * 4).min(MAX_ROWS);
                Ok(())
            }
            Err(e) => {
                self.forget();
                Err(e)
            }
        }
    }

    /// Says whether the walk is at its end.
    fn load_keys(&mut self, range: KeyRange, direction: Direction, from: From) -> Result<bool> {
        let range = match from {
            From::Start => {
                self.read_to = None;
                range
            }
            From::At(key) => {
                self.read_to = None;
                range.from(Bound::Included(key), direction)
            }
            From::Behind(place) => {
                let behind = range.from(Bound::Excluded(place.key.clone()), direction);
                self.read_to = Some(place);
                behind
            }
        };
        let family = Arc::clone(&self.family);
        let inner = &family.inner;
        let mut skipped = 0;
        // Once for the chunk: what dies after that is noticed when it is to be shown.
        let mut now_ms = None;
        inner.with(|db| {
            self.changes = inner.changes();
            let scan = Scan { reverse: direction == Direction::Reverse, ..range.scan() };
            db.rows().scan(&family.tables, scan, |key, row| {
                let expire_ms = row.head().expire_ms;
                let mut now_ms = || *now_ms.get_or_insert_with(|| inner.clock.now_ms());
                if expire_ms.is_some_and(|at| expiry::is_expired(at, now_ms())) {
                    skipped += 1;
                    if skipped < MAX_SKIPPED {
                        return Ok(Step::Continue);
                    }
                } else {
                    match row.key_and_value() {
                        Some(both) if !self.keys_only => self.push(key, both, expire_ms),
                        _ => {
                            if self.begin(key, expire_ms) {
                                row.value(|value| self.bytes.extend_from_slice(value))?;
                            }
                            self.end();
                        }
                    }
                    if !self.is_full() {
                        return Ok(Step::Continue);
                    }
                }
                self.read_to = Some(Place { time_ms: 0, key: key.to_vec() });
                Ok(Step::Stop)
            })
        })
    }

    /// Says whether the walk is at its end.
    fn load_expiry(&mut self, from_ms: i64, to_ms: i64, from: From) -> Result<bool> {
        let after = match from {
            From::Behind(place) => {
                let after = (place.time_ms, place.key.clone());
                self.read_to = Some(place);
                after
            }
            From::Start | From::At(_) => {
                self.read_to = None;
                (from_ms, Vec::new()) // no key is empty
            }
        };
        let family = Arc::clone(&self.family);
        let (inner, tables) = (&family.inner, &family.tables);
        let mut ended = true;
        inner.with(|db| {
            db.in_snapshot(|db| {
                self.changes = inner.changes();
                let rows = db.rows();
                rows.by_time(tables, TimeIndex::Expiry, (after.0, &after.1), |expire_ms, key| {
                    if expire_ms >= to_ms {
                        return Ok(Step::Stop);
                    }
                    rows.get(tables, key, |row| {
                        if self.begin(key, Some(expire_ms)) {
                            row.value(|value| self.bytes.extend_from_slice(value))?;
                        }
                        Ok(())
                    })?;
                    self.end();
                    if !self.is_full() {
                        return Ok(Step::Continue);
                    }
                    ended = false;
                    self.read_to = Some(Place { time_ms: expire_ms, key: key.to_vec() });
                    Ok(Step::Stop)
                })
            })
        })?;
        Ok(ended)
    }

    /// Begins an entry with its key; says whether its value is to follow.
    fn begin(&mut self, key: &[u8], expire_ms: Option<i64>) -> bool {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.slots.push(Slot { start, key: key.len() as u32, value: 0, expire_ms });
        !self.keys_only
    }

    /// Ends the entry.
    fn end(&mut self) {
        let end = self.bytes.len();
        if let Some(slot) = self.slots.last_mut() {
            slot.value = (end - slot.start) as u32 - slot.key;
        }
    }

    /// A whole entry, whose key and value are one behind the other.
    #[inline]
    fn push(&mut self, key: &[u8], both: &[u8], expire_ms: Option<i64>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(both);
        let (key, value) = (key.len() as u32, (both.len() - key.len()) as u32);
        self.slots.push(Slot { start, key, value, expire_ms });
    }

    /// Whether the chunk is full.
    fn is_full(&self) -> bool {
        self.slots.len() >= self.chunk_rows || self.bytes.len() >= MAX_BYTES
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
        if let Walk::Keys(_, direction) = &mut self.cursor.walk {
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
        Some(Ok((self.cursor.key()?.to_vec(), self.cursor.value()?.to_vec())))
    }
}

impl std::iter::FusedIterator for Iter {}

//! Ordered iteration in chunks.
//!
//! A cursor copies some rows at a time (a chunk). Between two chunks it keeps no SQLite cursor open
//! and holds no lock, so writes, commits, checkpoints, drops and close are always possible while it
//! exists. If its own handle has written since the chunk was read, the cursor discards the entries
//! that it read ahead and continues after its last key.

mod fetch;

use std::ops::Bound;
use std::sync::Arc;

pub use fetch::{Entry, EntryBatch};

use super::KeyRange;
use crate::backend::{Chunk, ChunkEntry, Db, Limits, Scan, Tables};
use crate::clock;
use crate::config::check_key;
use crate::error::{Error, Result};
use crate::expiry::{self, Expiry};
#[allow(unused_imports)] // named in documentation
use crate::family::Family;
use crate::family::Target;
use crate::memory;

/// Maximum number of rows that a cursor reads in its first chunk. Each later chunk has four times
/// as many, up to [`MAX_ROWS`].
const FIRST_ROWS: usize = 128;
/// Total length of keys and values, in bytes, at which the first chunk of a cursor is full. It is
/// small, so that a caller that needs few rows reads few pages.
const FIRST_BYTES: usize = 16 * 1024;
/// Maximum number of rows that a cursor reads in one chunk.
const MAX_ROWS: usize = 512;
/// Maximum number of rows in the chunk that a cursor reads after a write of the same handle. It is
/// small, because a caller that writes between two rows is likely to write again.
const ROWS_AFTER_WRITE: usize = 16;
/// Total length of keys and values, in bytes, at which a later chunk of a cursor is full.
const MAX_BYTES: usize = 64 * 1024;
/// Number of skipped expired rows after which a cursor ends a chunk early, so that it does not hold
/// the lock of the store for long.
const MAX_SKIPPED: usize = 4096;

/// Direction of a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Ascending key order.
    Forward,
    /// Descending key order.
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

/// Cursor over the live entries of a family, which is at one entry or at none.
///
/// A new cursor is at no entry: call [`first`](Cursor::first) or [`seek`](Cursor::seek). Keys and
/// values that it returns are borrowed until the next move.
///
/// **Visibility.** A cursor reads ahead in chunks of up to 512 entries, or 64 KiB and one value.
/// - Outside a transaction it sees the writes of its own handle ahead of its position at once, and
///   the commits of other handles from the next chunk on. Inside a transaction it sees the state of
///   the transaction.
/// - It never returns an entry that had expired when the cursor moved to it, except for
///   [`Family::expiry_cursor`]. A TTL that another handle changes after the entry was read ahead is
///   not seen. On a server, expiry follows the newest time that the server has sent.
///
/// **Threads.** A cursor holds no lock between calls. Other calls on the store, and its close, are
/// possible at any time.
///
/// # Errors
///
/// Moves return the [read errors](crate#errors). After a failed move the cursor is at no entry, and
/// [`next`](Cursor::next) continues after the last entry at which the cursor was. If the cursor was
/// at no entry before, a failed [`first`](Cursor::first) leaves it before the first entry, and a
/// failed [`seek`](Cursor::seek) does not move it. An argument that is out of bounds does not move
/// the cursor either.
pub struct Cursor {
    family: Arc<Target>,
    walk: Over,
    /// Prefix with which all keys of this cursor begin, and which [`key`](Cursor::key) leaves out.
    /// It is empty except for a cursor over row keys.
    prefix: Vec<u8>,
    keys_only: bool,
    chunk: Chunk,
    /// Second chunk, which [`fetch`](Cursor::fetch) uses if it must read ahead: it contains the
    /// entries that were returned, while `chunk` is the next one.
    kept: Chunk,
    /// Index of the current entry in `chunk`.
    at: usize,
    /// Last row that was read into the chunk or skipped because it had expired. The next chunk
    /// starts after it; with `None`, at the beginning of the range.
    read_to: Option<Place>,
    /// Row after which the current chunk starts; `None` if it starts elsewhere, such as at the
    /// beginning of the range.
    start: Option<Place>,
    /// Whether the range of the cursor may have rows after those in `chunk`.
    more: bool,
    chunk_rows: usize,
    /// Change count of the store handle (`Session::changes`) when `chunk` was read. If the count has
    /// changed since, the entries after the current one are read again.
    changes: u64,
}

/// Rows that a cursor visits, and their order: a range of keys in key order, or a period in order
/// of expiry time.
enum Over {
    Keys(KeyRange, Direction),
    /// Rows in order of expiry time, from the first time on and before the second one (in
    /// milliseconds since the Unix epoch); `None`: no upper bound.
    Expiry(i64, Option<i64>),
}

/// Result of reading a chunk of rows for a cursor.
struct Loaded {
    /// Change count of the store handle (`Session::changes`) when the chunk was read.
    changes: u64,
    /// Last row that was read, live or expired; `None` if no rows are left after the chunk.
    read_to: Option<Place>,
}

/// Position of a row in the order of a cursor: its key, and its expiry time in milliseconds if the
/// cursor is in order of expiry.
#[derive(Clone)]
struct Place {
    time_ms: i64,
    key: Vec<u8>,
}

/// Row with which the next chunk of a cursor starts: the first row of the cursor's range, the first
/// row at or after a key, or the first row after a position.
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

    /// Makes [`key`](Cursor::key) return keys without `prefix`, with which all keys of this cursor
    /// begin, and makes [`seek`](Cursor::seek) take such keys.
    pub(crate) fn without_prefix(mut self, prefix: Vec<u8>) -> Cursor {
        self.prefix = prefix;
        self
    }

    /// Makes the cursor read keys without their values, so that large values are not read from the
    /// file. Call it before the first move.
    #[must_use]
    pub fn keys_only(mut self) -> Cursor {
        self.keys_only = true;
        self
    }

    /// Returns `true` if the cursor reads keys without their values.
    #[must_use]
    pub fn is_keys_only(&self) -> bool {
        self.keys_only
    }

    /// Returns the direction in which the cursor moves.
    #[must_use]
    pub fn direction(&self) -> Direction {
        match self.walk {
            Over::Keys(_, direction) => direction,
            Over::Expiry(..) => Direction::Forward,
        }
    }

    /// Moves to the first entry in the direction of the cursor. Returns `false` if there is none.
    ///
    /// # Errors
    /// See [`Cursor`](Cursor#errors).
    pub fn first(&mut self) -> Result<bool> {
        self.chunk_rows = FIRST_ROWS;
        self.load(From::Start)?;
        self.settle(self.at)
    }

    /// Moves to the first entry at or after `key`, in the direction of the cursor. Returns `false`
    /// if there is none, or if `key` is outside the range of the cursor.
    ///
    /// # Errors
    /// See [`Cursor`](Cursor#errors). [`Error`](crate::ErrorKind::Error) if the length of the key
    /// is out of bounds, and for a cursor in order of expiry.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.check_open()?;
        let key = [&self.prefix, key.as_ref()].concat();
        self.family.session.count_failure(check_key(&key))?;
        let Over::Keys(range, _) = &self.walk else {
            return self.family.session.count_failure(Err(Error::invalid(
                "an iterator in the order of expiry cannot seek a key: create one that starts at \
                another time",
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

    /// Moves to the next entry in the direction of the cursor. Returns `false` at the end, where it
    /// stays.
    ///
    /// # Errors
    /// See [`Cursor`](Cursor#errors).
    #[allow(clippy::should_implement_trait)] // `Iter` is the iterator
    pub fn next(&mut self) -> Result<bool> {
        if self.step(|_| false) {
            return Ok(true);
        }
        self.check_open()?;
        if self.changes != self.family.session.changes() && (self.at < self.chunk.len() || self.more) {
            // The entries read ahead may be out of date: read again after the current one.
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

    /// Asks the server for its time if the clock is stale, for a move to an entry that was read
    /// ahead and has an expiry time. After an error the cursor is as after a failed move.
    fn freshen_clock(&mut self) -> Result<()> {
        let fresh = self.family.session.freshen_clock();
        if fresh.is_err() {
            (self.read_to, self.more) = (self.place(), true);
            self.forget();
        }
        fresh
    }

    /// Moves to the next entry if it was read ahead and has not expired; otherwise does nothing and
    /// returns `false`.
    ///
    /// It cannot fail or panic. `is_far_off` returns `true` if a time in milliseconds is known to
    /// be in the future without reading the exact clock.
    #[inline(always)]
    pub(crate) fn step(&mut self, is_far_off: impl FnOnce(i64) -> bool) -> bool {
        let next = self.at.wrapping_add(1);
        if self.family.session.is_plainly_open()
            && self.changes == self.family.session.changes()
            && let Some(entry) = self.chunk.get(next)
            && entry.expire_ms().is_none_or(|end| is_far_off(end) || self.shows_later_than(end))
        {
            self.at = next;
            return true;
        }
        false
    }

    /// Returns `true` if this cursor returns entries with the expiry time `expire_ms` now: if they
    /// are not expired by the system clock, or if it returns expired entries too. Call it only if
    /// the store uses the system clock.
    fn shows_later_than(&self, expire_ms: i64) -> bool {
        !self.hides_expired() || !expiry::is_expired(expire_ms, clock::system_now_ms())
    }

    /// Returns `true` if the cursor is at an entry; `false` at the end, or if the store is closed.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.entry().is_some()
    }

    /// Returns the key of the current entry; `None` if the cursor is at no entry.
    ///
    /// For a cursor over [row keys](crate::row_key), the result is the clustering part of the key.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.key_of(self.entry()?)
    }

    /// Returns the value of the current entry; `None` if the cursor is at no entry or reads keys
    /// only.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        self.value_of(self.entry()?)
    }

    /// Fast path of [`is_valid`](Cursor::is_valid). Returns `true` if the cursor is at an entry.
    /// After `false`, it may be at one nevertheless: call `is_valid`, which checks the state of the
    /// store completely.
    #[inline(always)]
    pub(crate) fn is_plainly_valid(&self) -> bool {
        self.plain_entry().is_some()
    }

    /// Fast path of [`key`](Cursor::key). Returns the key of the current entry. After `None`, there
    /// may be one nevertheless: call `key`, which checks the state of the store completely.
    #[inline(always)]
    pub(crate) fn plain_key(&self) -> Option<&[u8]> {
        self.key_of(self.plain_entry()?)
    }

    /// Fast path of [`value`](Cursor::value). Returns the value of the current entry. After `None`,
    /// there may be one nevertheless: call `value`, which checks the state of the store completely.
    #[inline(always)]
    pub(crate) fn plain_value(&self) -> Option<&[u8]> {
        self.value_of(self.plain_entry()?)
    }

    /// Returns the expiry time of the current entry; `None` if the cursor is at no entry.
    #[must_use]
    pub fn expiry(&self) -> Option<Expiry> {
        self.entry().map(|entry| Expiry::of_row(entry.expire_ms()))
    }

    /// Fails if the store of this cursor is closed or cannot be used for another reason.
    ///
    /// # Errors
    /// [`Misuse`](crate::ErrorKind::Misuse) if the store is closed, was opened before a fork, or
    /// the caller is a callback of it.
    pub fn check_open(&self) -> Result<()> {
        self.family.session.check_open()
    }

    fn entry(&self) -> Option<&ChunkEntry> {
        if self.family.session.is_usable() { self.chunk.get(self.at) } else { None }
    }

    #[inline(always)]
    fn plain_entry(&self) -> Option<&ChunkEntry> {
        if self.family.session.is_plainly_open() { self.chunk.get(self.at) } else { None }
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

    /// Moves the cursor to the entry at index `at` of the chunk, or to the next one after it that
    /// is not expired. A cursor in order of expiry does not skip expired entries. Reads further
    /// chunks as needed. Returns `false` if there is no such entry.
    fn settle(&mut self, mut at: usize) -> Result<bool> {
        let hide_expired = self.hides_expired();
        loop {
            while let Some(entry) = self.chunk.get(at) {
                match entry.expire_ms() {
                    // An injected clock may panic, so the cursor is moved only afterwards.
                    Some(end)
                        if hide_expired && expiry::is_expired(end, self.family.session.clock.now_ms()) =>
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

    /// Replaces the current chunk by the next one in the cursor's range.
    fn go_on(&mut self) -> Result<()> {
        let place = self.read_to.take();
        self.load(place.map_or(From::Start, From::After))
    }

    /// Returns `true` if the cursor returns live entries only; `false` if it is in order of expiry
    /// and returns expired rows too.
    fn hides_expired(&self) -> bool {
        matches!(self.walk, Over::Keys(..))
    }

    /// Discards the entries of the current chunk, so that the cursor is at no entry.
    fn forget(&mut self) {
        self.chunk.clear();
        self.at = 0;
    }

    /// Returns `true` if a chunk that starts after `place` is ahead of the current chunk, in the
    /// order of the cursor. In a damaged table it may not be, and the cursor would loop for ever.
    fn is_in_order(&self, place: &Place) -> bool {
        let Some(start) = &self.start else { return true };
        match self.walk {
            Over::Keys(_, direction) => direction.is_after(&place.key, &start.key),
            Over::Expiry(..) => (place.time_ms, &place.key) > (start.time_ms, &start.key),
        }
    }

    /// Reads the chunk that starts at `from`. If that fails, the cursor is at no entry, and its
    /// position is that after a failed move, as described at [`Cursor`].
    fn load(&mut self, from: From) -> Result<()> {
        match (&from, self.place()) {
            (From::After(place), _) => (self.read_to, self.more) = (Some(place.clone()), true),
            (_, Some(place)) => (self.read_to, self.more) = (Some(place), true),
            // The cursor is at no entry. If `more` is set, an earlier move has failed, and the
            // position after that move stays.
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
        self.read(|db, tables| {
            let read_to = db.next_rows(tables, scan, chunk)?;
            Ok(read_to.map(|key| Place { time_ms: 0, key }))
        })
    }

    fn load_expiry(&self, chunk: &mut Chunk, from_ms: i64, to_ms: Option<i64>, from: From) -> Result<Loaded> {
        let after = match from {
            From::After(place) => (place.time_ms, place.key),
            From::Start | From::At(_) => (from_ms, Vec::new()), // no key is empty
        };
        self.read(|db, tables| {
            let read_to = db.next_expiring(tables, (after.0, &after.1), to_ms, chunk)?;
            Ok(read_to.map(|(time_ms, key)| Place { time_ms, key }))
        })
    }

    fn limits(&self) -> Limits {
        let bytes = if self.chunk_rows <= FIRST_ROWS { FIRST_BYTES } else { MAX_BYTES };
        Limits { rows: self.chunk_rows, bytes, skipped: MAX_SKIPPED, keys_only: self.keys_only }
    }

    fn read(&self, read: impl FnOnce(&mut Db, &Tables) -> Result<Option<Place>>) -> Result<Loaded> {
        let Target { session, tables } = &*self.family;
        session.with(|db| {
            let changes = session.changes();
            Ok(Loaded { changes, read_to: read(db, tables)? })
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

/// Iterator over the live entries of a range, as pairs of key and value. It ends after the first
/// error.
///
/// Keys and values are copies. Writes during the iteration are visible as for a [`Cursor`].
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

    /// Makes the iterator return entries in descending key order. Call it before the first `next`.
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

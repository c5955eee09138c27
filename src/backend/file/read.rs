//! Reads of the tables of a family: single keys, expired keys, and the next rows of a scan.

use std::ops::Bound;

use super::chunk_builder::{Filling, copy};
use super::engine::{Engine, Head, RowView, Step, TimeIndex, from_time};
use super::error::damaged;
use super::expired_ranges::ExpiredRange;
use super::write::Contents;
use crate::backend::{Chunk, Found, Scan, TimeEntry, Times, TransactionState};
use crate::error::Result;
use crate::expiry::Expiry;
use crate::memory::Destination;

/// Result of one read of the row of a key: the key has no row, a live row or an expired row. `R` is
/// the result of the visitor for a live row, `V` the visitor.
enum Met<R, V> {
    Missing,
    Live(R),
    /// The row is expired; this is its `expire_ms`. The visitor was not called and is returned for
    /// another attempt.
    Dead(i64, V),
}

impl Contents<'_> {
    /// Passes the value and the expiry time of a live key to `visit`. Returns the result of
    /// `visit`, or that the key is missing or expired.
    #[inline]
    pub(crate) fn get<R>(self, key: &[u8], visit: impl FnOnce(&[u8], Expiry) -> R) -> Result<Found<R>> {
        self.look_up(
            key,
            |row: &RowView<'_>, expiry| row.value(|value| visit(value, expiry)),
            |visit| self.meet(key, visit),
        )
    }

    /// Copies the value of a live key to `to`. Returns its length and its expiry time, or that the
    /// key is missing or expired.
    pub(crate) fn copy_value(self, key: &[u8], to: &mut impl Destination) -> Result<Found<(usize, Expiry)>> {
        self.look_up(
            key,
            |row: &RowView<'_>, expiry| row.copy_value(to).map(|length| (length, expiry)),
            |visit| self.meet(key, visit),
        )
    }

    /// Returns the expiry time and the write time of a live key, or that the key is missing or
    /// expired.
    pub(crate) fn times(self, key: &[u8]) -> Result<Found<Times>> {
        self.look_up(key, (), |()| {
            let Some(head) = self.rows().head(self.tables, key)? else { return Ok(Met::Missing) };
            Ok(match self.dead_since(head) {
                Some(expire_ms) => Met::Dead(expire_ms, ()),
                None => {
                    Met::Live(Times { expiry: Expiry::of_row(head.expire_ms), written_ms: head.written_ms })
                }
            })
        })
    }

    /// Returns the write time of each key, in milliseconds since the Unix epoch; `None` for a key
    /// that is missing, expired or without a write time.
    pub(crate) fn write_times(self, keys: &[&[u8]]) -> Result<Vec<Option<i64>>> {
        keys.iter().map(|key| Ok(self.times(key)?.live().and_then(|times| times.written_ms))).collect()
    }

    /// Calls `visit` with the index and the lookup result of each key. All results come from one
    /// snapshot.
    pub(crate) fn get_many<K: AsRef<[u8]>>(
        self,
        keys: &[K],
        mut visit: impl FnMut(usize, Found<&[u8]>),
    ) -> Result<()> {
        self.db.in_snapshot(|_| {
            for (number, key) in keys.iter().enumerate() {
                let mut found = |value: &[u8]| visit(number, Found::Live(value));
                match self.meet(key.as_ref(), |row, _| row.value(&mut found))? {
                    Met::Live(()) => {}
                    Met::Missing => visit(number, Found::Missing),
                    Met::Dead(expire_ms, _) => visit(number, self.found_dead(key.as_ref(), expire_ms)),
                }
            }
            Ok(())
        })
    }

    /// Returns the number of live keys of the family: its rows without those that the expiry index
    /// shows as expired.
    pub(crate) fn count_live(self) -> Result<u64> {
        self.db.in_snapshot(|_| {
            let all = self.rows().count(self.tables)?;
            let expired = self.rows().count_expired(self.tables, self.clock.now_ms())?;
            all.checked_sub(expired).ok_or_else(|| {
                let family = self.tables.family();
                damaged(format!("the expiry index of family \"{family}\" has too many entries"))
            })
        })
    }

    /// Returns `true` if a key of the family is expired at `now_ms` and has an expiry time of
    /// `last_ms` or earlier.
    pub(crate) fn has_expired(self, last_ms: i64, now_ms: i64) -> Result<bool> {
        Ok(!self.due(last_ms.min(now_ms), 1)?.is_empty())
    }

    /// Returns up to `max` entries of the expiry index whose time is `last_ms` or earlier, earliest
    /// first.
    pub(super) fn due(self, last_ms: i64, max: usize) -> Result<Vec<TimeEntry>> {
        self.entries_up_to(TimeIndex::Expiry, last_ms, max)
    }

    /// Returns `true` if the index of write times has an entry for a key that was written at
    /// `last_ms` or earlier.
    pub(crate) fn has_written_by(self, last_ms: i64) -> Result<bool> {
        Ok(!self.entries_up_to(TimeIndex::Written, last_ms, 1)?.is_empty())
    }

    /// Returns up to `max` entries of a time index whose time is `last_ms` or earlier, earliest
    /// first.
    pub(super) fn entries_up_to(self, index: TimeIndex, last_ms: i64, max: usize) -> Result<Vec<TimeEntry>> {
        let mut entries = Vec::new();
        self.rows().by_time(self.tables, index, from_time(i64::MIN), |time_ms, key| {
            if time_ms > last_ms {
                return Ok(Step::Stop);
            }
            entries.push((time_ms, key.to_vec()));
            Ok(if entries.len() < max { Step::Continue } else { Step::Stop })
        })?;
        Ok(entries)
    }

    /// Reads the next live rows of a scan into an empty chunk. Returns the key of the last row
    /// examined, or `None` at the end of the scan.
    pub(crate) fn next_rows(self, scan: Scan<'_>, chunk: &mut Chunk) -> Result<Option<Vec<u8>>> {
        let ranges = &self.db.expired_ranges;
        if !ranges.in_use.get() {
            let read_to = self.fill(scan, chunk)?;
            if chunk.len() == 0 && read_to.is_some() && self.db.transaction != TransactionState::Write {
                ranges.in_use.set(true);
            }
            return Ok(read_to);
        }
        self.db.in_snapshot(|_| self.next_rows_after_expired(scan, chunk))
    }

    /// As `next_rows`, but uses and updates the noted ranges. Call this in a transaction.
    #[cold]
    fn next_rows_after_expired(self, scan: Scan<'_>, chunk: &mut Chunk) -> Result<Option<Vec<u8>>> {
        let version = self.db.commits_of_others()?;
        let now_ms = self.clock.now_ms();
        let ranges = &self.db.expired_ranges;
        let mut noted = if scan.reverse { &ranges.reverse } else { &ranges.forward }.borrow_mut();
        let family = self.tables.family();
        *noted = noted.take().filter(|range| range.is_valid(family, version, now_ms));
        let range = noted.as_ref().filter(|range| range.has(scan.start(), scan.reverse));
        let rest = range.map_or(scan, |range| scan.after(&range.to));
        if rest.is_empty() {
            return Ok(None);
        }
        let Some(to) = self.fill(rest, chunk)? else { return Ok(None) };
        if chunk.len() > 0 {
            return Ok(Some(to));
        }
        // The rows were compared with a time between `now_ms` and now.
        let now_ms = now_ms.max(self.clock.now_ms());
        let from = scan.start().map(<[u8]>::to_vec);
        let new = match noted.take() {
            Some(range) if range.has(scan.start(), scan.reverse) => ExpiredRange { to, now_ms, ..range },
            // This read ends where the range begins.
            Some(range) if range.has(Bound::Excluded(&to), scan.reverse) => {
                ExpiredRange { from, now_ms, ..range }
            }
            _ => ExpiredRange { family: family.to_owned(), from, to, now_ms, version },
        };
        Ok(Some(noted.insert(new).to.clone()))
    }

    fn fill(self, scan: Scan<'_>, chunk: &mut Chunk) -> Result<Option<Vec<u8>>> {
        let mut filling = Filling::new(chunk, self.clock);
        self.rows().fill(self.tables, scan, &mut filling)?;
        Ok(filling.read_to())
    }

    /// Reads rows into an empty chunk, in the order of the expiry index: those after the entry
    /// `after`, with an expiry time before `to_ms` (`None`: no upper bound). Expired rows are
    /// included, unless a read has noted them.
    ///
    /// Returns the index entry of the last row, from which the next call continues; `None` if no
    /// further row is left.
    pub(crate) fn next_expiring(
        self,
        after: (i64, &[u8]),
        to_ms: Option<i64>,
        chunk: &mut Chunk,
    ) -> Result<Option<TimeEntry>> {
        let rows = self.rows();
        let mut last = None;
        self.db.in_snapshot(|_| {
            rows.by_time(self.tables, TimeIndex::Expiry, after, |expire_ms, key| {
                if to_ms.is_some_and(|to_ms| expire_ms >= to_ms) {
                    return Ok(Step::Stop);
                }
                if self.is_hidden(key, expire_ms) {
                    return Ok(Step::Continue);
                }
                rows.get(self.tables, key, |row| copy(key, Some(expire_ms), &row, chunk))?;
                if !chunk.is_full() {
                    return Ok(Step::Continue);
                }
                last = Some((expire_ms, key.to_vec()));
                Ok(Step::Stop)
            })
        })?;
        Ok(last)
    }

    /// Looks up the row of a key by `look`, which reads it once with the visitor `visit`. Looks it
    /// up again if it seems to be expired and no transaction is open.
    ///
    /// The clock is read after the row. In between, another connection may have extended the TTL of
    /// the key before it expired. A row that is found again after the clock was read is expired.
    #[inline]
    fn look_up<R, V>(
        self,
        key: &[u8],
        mut visit: V,
        look: impl Fn(V) -> Result<Met<R, V>>,
    ) -> Result<Found<R>> {
        let mut dead = None;
        loop {
            match look(visit)? {
                Met::Live(shown) => return Ok(Found::Live(shown)),
                Met::Missing => return Ok(Found::Missing),
                Met::Dead(expire_ms, unused) => {
                    if *self.db.transaction() != TransactionState::None || dead == Some(expire_ms) {
                        return Ok(self.found_dead(key, expire_ms));
                    }
                    dead = Some(expire_ms);
                    visit = unused;
                }
            }
        }
    }

    /// Returns the lookup result for an expired row: `Missing` if an earlier read has already noted
    /// the row, otherwise `Expired`.
    fn found_dead<R>(self, key: &[u8], expire_ms: i64) -> Found<R> {
        if self.was_met(key, expire_ms) { Found::Missing } else { Found::Expired(expire_ms) }
    }

    /// Reads the row of a key once. Passes a live row and its expiry time to `visit`; does not call
    /// `visit` for an expired row.
    #[inline]
    fn meet<R, V>(self, key: &[u8], visit: V) -> Result<Met<R, V>>
    where
        V: FnOnce(&RowView<'_>, Expiry) -> Result<R>,
    {
        let met = self.rows().get(self.tables, key, |row| {
            let head = row.head();
            if let Some(expire_ms) = self.dead_since(head) {
                return Ok(Met::Dead(expire_ms, visit));
            }
            if self.db.quota.notes_uses.get() {
                self.note_use(key, head);
            }
            visit(&row, Expiry::of_row(head.expire_ms)).map(Met::Live)
        })?;
        Ok(met.unwrap_or(Met::Missing))
    }

    /// Returns the `expire_ms` of a row that is expired; `None` if it is live.
    #[inline]
    fn dead_since(self, head: Head) -> Option<i64> {
        head.expire_ms.filter(|_| self.is_expired(head))
    }
}

//! Filling a chunk with the rows of a scan: the choice of rows, and when the chunk is full.

use super::engine::{RowView, Step};
use crate::backend::{Chunk, ChunkEntry};
use crate::clock::Clock;
use crate::error::Result;
use crate::expiry;

/// Builder that fills a [`Chunk`] with the live rows of a scan.
pub(super) struct Filling<'a> {
    chunk: &'a mut Chunk,
    ends: Ends<'a>,
    /// Key of the last row examined; `None` while the chunk needs more rows.
    last: Option<Vec<u8>>,
}

/// Test of expiry times: decides which rows of a scan are expired, and limits the number of expired
/// rows that are skipped for one chunk.
pub(super) struct Ends<'a> {
    clock: &'a Clock,
    /// Current time, in milliseconds since the Unix epoch; `None` until the first row with an
    /// expiry time. It is read once per chunk. A row that expires later is detected when an
    /// iterator is about to return it.
    now_ms: Option<i64>,
    /// Number of expired rows that may still be skipped before the chunk ends.
    skips: usize,
}

impl Ends<'_> {
    /// Returns `true` if a row with this `expire_ms` is expired.
    #[inline(always)]
    pub(super) fn is_dead(&mut self, expire_ms: i64) -> bool {
        let now_ms = match self.now_ms {
            Some(now_ms) => now_ms,
            None => *self.now_ms.insert(self.clock.now_ms()),
        };
        expiry::is_expired(expire_ms, now_ms)
    }

    /// Counts an expired row that the chunk does not contain. Returns `false` if the maximum number
    /// of such rows is reached, so that no further row is examined for this chunk.
    pub(super) fn skip(&mut self) -> bool {
        let may = self.skips > 1;
        if may {
            self.skips -= 1;
        }
        may
    }
}

impl<'a> Filling<'a> {
    pub(super) fn new(chunk: &'a mut Chunk, clock: &'a Clock) -> Filling<'a> {
        let skips = chunk.limits().skipped;
        Filling { chunk, ends: Ends { clock, now_ms: None, skips }, last: None }
    }

    /// Adds the next row of a scan to the chunk, or skips the row if it is expired. Returns
    /// `Step::Stop` if no further row is needed.
    pub(super) fn row(&mut self, key: &[u8], row: &RowView<'_>) -> Result<Step> {
        let expire_ms = row.head().expire_ms;
        let enough = if expire_ms.is_some_and(|end| self.ends.is_dead(end)) {
            !self.ends.skip()
        } else {
            copy(key, expire_ms, row, self.chunk)?;
            self.chunk.is_full()
        };
        if !enough {
            return Ok(Step::Continue);
        }
        self.last = Some(key.to_vec());
        Ok(Step::Stop)
    }

    /// Returns the number of rows for which the chunk has space.
    pub(super) fn room(&self) -> usize {
        self.chunk.limits().rows.saturating_sub(self.chunk.len())
    }

    /// Returns the number of bytes for which the chunk has space.
    pub(super) fn bytes_left(&self) -> usize {
        self.chunk.limits().bytes.saturating_sub(self.chunk.bytes().len())
    }

    /// Adds up to `most` rows whose keys and values are all in `piece`, such as the rows of one
    /// page. `decode` finds the rows, as for [`Chunk::add_from`]. It also gets the test of expiry
    /// times, with which it leaves out expired rows.
    #[inline(always)]
    pub(super) fn add_from(
        &mut self,
        piece: &[u8],
        most: usize,
        decode: impl FnOnce(usize, &mut [ChunkEntry], &mut Ends<'_>) -> (usize, Option<i64>),
    ) -> Result<()> {
        let ends = &mut self.ends;
        self.chunk.add_from(piece, most, |base, room| decode(base, room, ends))
    }

    /// Returns `true` if the chunk needs no more rows. Call this after `add_from`.
    pub(super) fn has_enough(&mut self) -> bool {
        if self.chunk.is_full() {
            let last = self.chunk.len().checked_sub(1).and_then(|last| self.chunk.get(last));
            self.last = last.and_then(|last| self.chunk.key(last)).map(<[u8]>::to_vec);
        }
        self.last.is_some()
    }

    /// Returns the key of the last row examined, live or expired, from which the scan continues;
    /// `None` if the scan has reached its end.
    pub(super) fn read_to(self) -> Option<Vec<u8>> {
        self.last
    }
}

/// Copies a row into a chunk; only its key if the chunk contains keys only.
#[inline]
pub(super) fn copy(key: &[u8], expire_ms: Option<i64>, row: &RowView<'_>, chunk: &mut Chunk) -> Result<()> {
    if chunk.limits().keys_only {
        return chunk.add(key, &[], expire_ms);
    }
    match row.key_and_value() {
        Some(both) => chunk.add_joined(key, both, expire_ms),
        None => row.value(|value| chunk.add(key, value, expire_ms))?,
    }
}

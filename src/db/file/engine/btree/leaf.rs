//! The plain rows of a leaf at once, for a chunk: each is decoded where it is, and the page's bytes are copied
//! together. What is not plain is left to `walk.rs` and `record.rs`, which show row by row, and to what they leave to
//! a cursor. Every byte is taken for hostile.

use std::ops::Bound;

use super::is_past;
use super::record::SIX_BYTES;
use super::walk::PageWalk;
use crate::db::ChunkEntry;
use crate::db::file::filling::Filling;
use crate::error::Result;

/// Adds the rows that come next in a walk, as far as they are plain, on one leaf and before the end `to`, and moves
/// behind them. What stops it is for whoever shows row by row.
pub(super) fn add_rows(walk: &mut PageWalk<'_>, to: Bound<&[u8]>, filling: &mut Filling<'_>) -> Result<()> {
    let Some((node, reverse, ahead)) = walk.ahead()? else { return Ok(()) };
    let count = ahead.len().min(filling.room());
    let ahead = if reverse { ahead.end - count..ahead.end } else { ahead.start..ahead.start + count };
    let (Some(cells), Some((page, content))) = (node.cells(ahead), node.content()) else { return Ok(()) };
    let leaf = Leaf { page, content, max_local: node.max_local() };
    let passed = match (to, reverse) {
        (Bound::Unbounded, false) => leaf.add(cells.iter(), |_| false, filling),
        (Bound::Unbounded, true) => leaf.add(cells.iter().rev(), |_| false, filling),
        (to, false) => leaf.add(cells.iter(), |key| is_past(key, to, false), filling),
        (to, true) => leaf.add(cells.iter().rev(), |key| is_past(key, to, true), filling),
    };
    walk.pass(passed);
    Ok(())
}

/// A leaf, and where the cells begin that are in their place, at its end.
struct Leaf<'p> {
    page: &'p [u8],
    content: usize,
    max_local: usize,
}

impl<'p> Leaf<'p> {
    /// Adds the rows of these cells; says how many it has passed.
    #[inline(always)]
    fn add(
        &self,
        cells: impl ExactSizeIterator<Item = &'p [u8; 2]>,
        is_past: impl Fn(&[u8]) -> bool,
        filling: &mut Filling<'_>,
    ) -> usize {
        let Leaf { page, content, max_local } = *self;
        let mut passed = 0;
        filling.add_from(page.get(content..).unwrap_or_default(), cells.len(), |base, room, ends| {
            let (mut added, mut first_end) = (0, None);
            let mut room = room.iter_mut();
            for cell in cells {
                let cell = usize::from(u16::from_be_bytes(*cell));
                let Some(row) = PlainRow::at(page, cell, max_local) else { break };
                if row.start < content || row.key(page).is_none_or(&is_past) {
                    break;
                }
                if let Some(end) = row.expire_ms {
                    if ends.is_dead(end) {
                        if !ends.skip() {
                            break;
                        }
                        passed += 1;
                        continue;
                    }
                    first_end = Some(first_end.map_or(end, |first: i64| first.min(end)));
                }
                let Some(entry) = room.next() else { break };
                *entry = ChunkEntry::new(base + row.start - content, row.key, row.value, row.expire_ms);
                added += 1;
                passed += 1;
            }
            (added, first_end)
        });
        passed
    }
}

/// A row of one of the two most frequent shapes: a short key and a value; or these and an end of life that is a time
/// of these centuries, in 6 bytes. (`DataRow::plainly` knows the same shapes.)
#[derive(Debug, PartialEq, Eq)]
struct PlainRow {
    /// Where its key begins on the page.
    start: usize,
    /// Their lengths. The value follows its key.
    key: usize,
    value: usize,
    expire_ms: Option<i64>,
}

impl PlainRow {
    /// The one of this cell of a leaf, if it is all on the page.
    #[inline(always)]
    fn at(page: &[u8], cell: usize, max_local: usize) -> Option<PlainRow> {
        let [a, b, c, d, e, f, g, _] = *page.get(cell..)?.first_chunk::<8>()?;
        let (size, before, header, key, [first, second, third]) = if a < 0x80 {
            (usize::from(a), 1, b, c, [d, e, f])
        } else if b < 0x80 {
            (usize::from(a & 0x7f) << 7 | usize::from(b), 2, c, d, [e, f, g])
        } else {
            return None;
        };
        let (value, types, next) = if first < 0x80 {
            (usize::from(first), 3, second)
        } else if second < 0x80 {
            (usize::from(first & 0x7f) << 7 | usize::from(second), 4, third)
        } else {
            return None;
        };
        let (key, header) = (usize::from(key), usize::from(header));
        if key >= 0x80 || key < 12 || value < 12 || (key | value) % 2 != 0 || size > max_local {
            return None;
        }
        let (key, value) = ((key - 12) / 2, (value - 12) / 2);
        let start = cell + before + header;
        let end = cell + before + size;
        if end > page.len() {
            return None;
        }
        let blobs_end = start + key + value;
        if header == types && blobs_end == end {
            return Some(PlainRow { start, key, value, expire_ms: None });
        }
        if header != types + 1 || next != SIX_BYTES || blobs_end + 6 != end {
            return None;
        }
        // The first of the six bytes has the sign.
        let last = page.get(end - 8..)?.first_chunk::<8>()?;
        Some(PlainRow { start, key, value, expire_ms: Some(i64::from_be_bytes(*last) << 16 >> 16) })
    }

    #[inline(always)]
    fn key<'p>(&self, page: &'p [u8]) -> Option<&'p [u8]> {
        page.get(self.start..self.start + self.key)
    }
}

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
    if count == 0 {
        return Ok(());
    }
    let ahead = if reverse { ahead.end - count..ahead.end } else { ahead.start..ahead.start + count };
    let (Some(cells), Some((page, content))) = (node.cells(ahead), node.content()) else { return Ok(()) };
    let leaf = Leaf { page, content, max_local: node.max_local() };
    let passed = match (End::of(to), reverse) {
        (None, false) => leaf.add(cells.iter(), |_| false, filling),
        (None, true) => leaf.add(cells.iter().rev(), |_| false, filling),
        (Some(end), false) => leaf.add(cells.iter(), |row| end.is_before(page, row, to, false), filling),
        (Some(end), true) => leaf.add(cells.iter().rev(), |row| end.is_before(page, row, to, true), filling),
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
        mut cells: impl ExactSizeIterator<Item = &'p [u8; 2]>,
        is_past: impl Fn(&PlainRow) -> bool,
        filling: &mut Filling<'_>,
    ) -> usize {
        let Leaf { page, content, max_local } = *self;
        let count = cells.len();
        let mut left = count;
        filling.add_from(page.get(content..).unwrap_or_default(), count, |base, room, ends| {
            let (room_for, base) = (room.len(), base.wrapping_sub(content));
            let mut room = room.iter_mut();
            let (mut shape, mut first_end) = (Shape::NONE, None);
            for cell in cells.by_ref() {
                let cell = usize::from(u16::from_be_bytes(*cell));
                let Some(row) = PlainRow::at(page, cell, max_local, &mut shape) else { break };
                if cell < content || is_past(&row) {
                    break;
                }
                if let Some(end) = row.expire_ms {
                    if ends.is_dead(end) {
                        if !ends.skip() {
                            break;
                        }
                        left -= 1;
                        continue;
                    }
                    first_end = Some(first_end.map_or(end, |first: i64| first.min(end)));
                }
                let Some(entry) = room.next() else { break };
                *entry = ChunkEntry::new(base.wrapping_add(row.start), row.key, row.value, row.expire_ms);
                left -= 1;
            }
            (room_for - room.len(), first_end)
        });
        count - left
    }
}

/// The end of a walk.
struct End(u128);

impl End {
    fn of(to: Bound<&[u8]>) -> Option<End> {
        match to {
            Bound::Included(key) | Bound::Excluded(key) => {
                let mut first = [0; 16];
                first.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
                Some(End(u128::from_be_bytes(first)))
            }
            Bound::Unbounded => None,
        }
    }

    /// Whether a row is after the end `to`, in the direction of the walk: nearly always the first 16 bytes tell, as one
    /// number. (If they differ where the end has no bytes any more, the key goes on with something greater than 0.)
    #[inline(always)]
    fn is_before(&self, page: &[u8], row: &PlainRow, to: Bound<&[u8]>, reverse: bool) -> bool {
        let Some(key) = page.get(row.start..row.start + row.key) else { return true };
        match key.first_chunk().copied().map(u128::from_be_bytes) {
            Some(first) if first != self.0 => (first > self.0) != reverse,
            _ => is_past(key, to, reverse),
        }
    }
}

/// A row of one of the two most frequent shapes: a short key and a value; or these and an end of life that is a time
/// of these centuries, in 6 bytes. (`DataRow::plainly` knows the same shapes.)
struct PlainRow {
    /// Where its key begins on the page.
    start: usize,
    /// Their lengths. The value follows its key.
    key: usize,
    value: usize,
    expire_ms: Option<i64>,
}

/// What the first bytes of a cell say, which many rows of a page have in common.
#[derive(Clone, Copy)]
struct Shape {
    /// These bytes, and which ones they are of the first eight.
    bytes: u64,
    mask: u64,
    /// How many they are: the key follows them.
    before: usize,
    key: usize,
    value: usize,
    /// All of the cell.
    size: usize,
    is_mortal: bool,
}

impl Shape {
    /// That of no cell.
    const NONE: Shape = Shape { bytes: 1, mask: 0, before: 0, key: 0, value: 0, size: 0, is_mortal: false };

    /// The shape of the cell with these first bytes, if it is plain.
    #[inline(always)]
    fn of(first_bytes: [u8; 8], max_local: usize) -> Option<Shape> {
        let [a, b, c, d, e, f, g, _] = first_bytes;
        let (record, before, header, key, [first, second, third]) = if a < 0x80 {
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
        if key >= 0x80 || key < 12 || value < 12 || (key | value) % 2 != 0 || record > max_local {
            return None;
        }
        let (key, value) = ((key - 12) / 2, (value - 12) / 2);
        let is_mortal = header == types + 1 && next == SIX_BYTES;
        let end_of_life = if is_mortal { 6 } else { 0 };
        if !(is_mortal || header == types) || header + key + value + end_of_life != record {
            return None;
        }
        let (before, size) = (before + header, before + record);
        // At most 7 bytes.
        let mask = u64::MAX >> (64 - 8 * before);
        let bytes = u64::from_le_bytes(first_bytes) & mask;
        Some(Shape { bytes, mask, before, key, value, size, is_mortal })
    }
}

impl PlainRow {
    /// The one of this cell of a leaf, if it is all on the page. `shape` is that of the cell before.
    #[inline(always)]
    fn at(page: &[u8], cell: usize, max_local: usize, shape: &mut Shape) -> Option<PlainRow> {
        let bytes = *page.get(cell..)?.first_chunk::<8>()?;
        if u64::from_le_bytes(bytes) & shape.mask != shape.bytes {
            *shape = Shape::of(bytes, max_local)?;
        }
        let end = cell + shape.size;
        if end > page.len() {
            return None;
        }
        let expire_ms = if shape.is_mortal {
            // The first of the last six bytes has the sign.
            let last = page.get(end - 8..)?.first_chunk::<8>()?;
            Some(i64::from_be_bytes(*last) << 16 >> 16)
        } else {
            None
        };
        Some(PlainRow { start: cell + shape.before, key: shape.key, value: shape.value, expire_ms })
    }
}

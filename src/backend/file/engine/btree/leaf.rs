//! Adds many rows of a leaf to a chunk at once.
//!
//! Only plain rows are added, which [`PlainRow`] describes. Each is decoded in place, and the bytes
//! of all of them are copied together. Other rows are left to `scan.rs` and `record.rs`, which read
//! row by row, and to the cursor that `scan.rs` falls back on. No byte of the page is trusted.

use std::ops::{Bound, Range};

use super::is_past;
use super::page::Node;
use super::record::{SIX_BYTES, type_of_value};
use super::scan::{Ahead, PageWalk};
use crate::backend::ChunkEntry;
use crate::backend::file::chunk_builder::Filling;
use crate::error::Result;

/// Adds the next rows of a scan to the chunk, and moves the scan past them.
///
/// Stops at the end of the leaf, at the end `to` of the scan, at the first row that is not plain,
/// and when the chunk is full. The caller then continues row by row.
pub(super) fn add_rows(walk: &mut PageWalk<'_>, to: Bound<&[u8]>, filling: &mut Filling<'_>) -> Result<()> {
    let end = End::of(to);
    let (room, bytes) = (filling.room(), filling.bytes_left());
    // Returns `true` if the scan will read all of these entries and continue after them.
    let wants_next = |node: Node<'_>, reverse: bool, entries: &Range<usize>| {
        let last = if reverse { entries.start } else { entries.end.saturating_sub(1) };
        let goes_on = || node.key_of(last).is_some_and(|key| !is_past(key, to, reverse));
        entries.len() < room && node.size() < bytes && (to == Bound::Unbounded || goes_on())
    };
    let Some(Ahead { node, reverse, entries }) = walk.ahead(wants_next)? else { return Ok(()) };
    let count = entries.len().min(room);
    let entries =
        if reverse { entries.end - count..entries.end } else { entries.start..entries.start + count };
    let (Some(cells), Some((page, content))) = (node.cells(entries), node.content()) else { return Ok(()) };
    let leaf = Leaf { page, content, max_local: node.max_local() };
    let passed = match (end, reverse) {
        (None, false) => leaf.add(cells.iter(), |_| false, filling),
        (None, true) => leaf.add(cells.iter().rev(), |_| false, filling),
        (Some(end), false) => leaf.add(cells.iter(), |row| end.is_passed_by(page, row, to, false), filling),
        (Some(end), true) => {
            leaf.add(cells.iter().rev(), |row| end.is_passed_by(page, row, to, true), filling)
        }
    }?;
    walk.pass(passed);
    Ok(())
}

/// Leaf page, with the offset of its cell content area, which extends to the end of the page.
struct Leaf<'p> {
    page: &'p [u8],
    content: usize,
    max_local: usize,
}

impl<'p> Leaf<'p> {
    /// Adds the rows of these cells to the chunk, until `is_past` returns `true` because a row is
    /// beyond the end of the scan, a row is not plain, or the chunk is full. Returns the number of
    /// cells processed, including those of expired rows, which are not added.
    #[inline(always)]
    fn add(
        &self,
        mut cells: impl ExactSizeIterator<Item = &'p [u8; 2]>,
        is_past: impl Fn(&PlainRow) -> bool,
        filling: &mut Filling<'_>,
    ) -> Result<usize> {
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
        })?;
        Ok(count - left)
    }
}

/// Key at which a scan ends: only its first 16 bytes, as one number.
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

    /// Returns `true` if a row is after the end `to`, in the direction of the scan.
    ///
    /// In nearly all cases the first 16 bytes decide, compared as one number. An end key shorter
    /// than that is padded with zeros. If the numbers then differ in the padding, the key of the
    /// row continues with a byte greater than 0, so it is after the end key.
    #[inline(always)]
    fn is_passed_by(&self, page: &[u8], row: &PlainRow, to: Bound<&[u8]>, reverse: bool) -> bool {
        let Some(key) = page.get(row.start..row.start + row.key) else { return true };
        match key.first_chunk().copied().map(u128::from_be_bytes) {
            Some(first) if first != self.0 => (first > self.0) != reverse,
            _ => is_past(key, to, reverse),
        }
    }
}

/// Row of one of the two most frequent shapes: a short key and a value, without or with an expiry
/// time of 6 bytes. (SQLite stores a time from 1970-01-26 to the year 6429, in milliseconds since
/// the Unix epoch, in 6 bytes. `DataRow::plainly` decodes the same shapes.)
struct PlainRow {
    /// Offset of the key on the page.
    start: usize,
    /// Lengths of the key and the value, in bytes. The value follows the key on the page.
    key: usize,
    value: usize,
    expire_ms: Option<i64>,
}

/// Layout of the cell of a plain row: the lengths of its parts, which the bytes before its key
/// determine. Many rows of a page have the same layout.
#[derive(Clone, Copy)]
struct Shape {
    /// Bytes of the cell before the key, as a number. `mask` selects them from the first eight
    /// bytes of a cell.
    bytes: u64,
    mask: u64,
    /// Number of bytes of the cell before the key. `key` and `value` are the lengths of the key and
    /// the value, in bytes.
    before: usize,
    key: usize,
    value: usize,
    /// Length of the whole cell, in bytes.
    size: usize,
    /// Whether the cell ends with an expiry time of 6 bytes.
    is_mortal: bool,
}

impl Shape {
    /// Shape that matches no cell.
    const NONE: Shape = Shape { bytes: 1, mask: 0, before: 0, key: 0, value: 0, size: 0, is_mortal: false };

    /// Returns the shape of the cell with these first bytes; `None` if its row is not plain.
    /// `max_local` is the maximum length of a record that is stored without overflow pages.
    #[inline(always)]
    fn of(first_bytes: [u8; 8], max_local: usize) -> Option<Shape> {
        let [a, b, c, d, e, f, g, _] = first_bytes;
        let (record, before, header, key, types_left) = if a < 0x80 {
            (usize::from(a), 1, b, c, [d, e, f])
        } else if b < 0x80 {
            (usize::from(a & 0x7f) << 7 | usize::from(b), 2, c, d, [e, f, g])
        } else {
            return None;
        };
        let (value, types, next) = type_of_value(types_left)?;
        let (key, header) = (usize::from(key), usize::from(header));
        if !(12..0x80).contains(&key) || value < 12 || (key | value) % 2 != 0 || record > max_local {
            return None;
        }
        let (key, value) = ((key - 12) / 2, (value - 12) / 2);
        let is_mortal = header == usize::from(types) + 1 && next == SIX_BYTES;
        let end_of_life = if is_mortal { 6 } else { 0 };
        if !(is_mortal || header == usize::from(types)) || header + key + value + end_of_life != record {
            return None;
        }
        let (before, size) = (before + header, before + record);
        // `before` is at most 7.
        let mask = u64::MAX >> (64 - 8 * before);
        let bytes = u64::from_le_bytes(first_bytes) & mask;
        Some(Shape { bytes, mask, before, key, value, size, is_mortal })
    }
}

impl PlainRow {
    /// Decodes the plain row in this cell of a leaf; `None` if the row is not plain or extends
    /// beyond the page. `shape` is the shape of the previous cell; if that of this cell differs, it
    /// is replaced.
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
            // The sign is in the first of the last six bytes.
            let last = page.get(end - 8..)?.first_chunk::<8>()?;
            Some(i64::from_be_bytes(*last) << 16 >> 16)
        } else {
            None
        };
        Some(PlainRow { start: cell + shape.before, key: shape.key, value: shape.value, expire_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::file::engine::Head;
    use crate::backend::file::engine::btree::record::{DataRow, data_row};

    const SIZE: usize = 512;
    const MAX_LOCAL: usize = (SIZE - 12) * 64 / 255 - 23;

    /// Builds a leaf whose cells contain these records. The first cell is at the end of the page.
    fn leaf(records: &[Vec<u8>]) -> Vec<u8> {
        let mut page = vec![0; SIZE];
        page[0] = 0x0a;
        page[3..5].copy_from_slice(&(records.len() as u16).to_be_bytes());
        let mut end = SIZE;
        for (at, record) in records.iter().enumerate() {
            end -= record.len() + 1;
            page[end] = record.len() as u8;
            page[end + 1..end + 1 + record.len()].copy_from_slice(record);
            page[8 + 2 * at..10 + 2 * at].copy_from_slice(&(end as u16).to_be_bytes());
        }
        page[5..7].copy_from_slice(&(end as u16).to_be_bytes());
        page
    }

    /// Checks that each row that `PlainRow` decodes equals the row that `DataRow` decodes. Returns
    /// the number of these rows.
    fn compare(page: &[u8]) -> usize {
        let (Some(node), mut shape) = (Node::of(page, SIZE), Shape::NONE) else { return 0 };
        let mut plain = 0;
        for (at, cell) in node.cells(0..node.count()).unwrap_or_default().iter().enumerate() {
            let cell = usize::from(u16::from_be_bytes(*cell));
            let Some(row) = PlainRow::at(page, cell, MAX_LOCAL, &mut shape) else { continue };
            let record = &page[node.record(at).unwrap()];
            let Ok(other) = DataRow::of(record) else { panic!("{record:?} is no row") };
            let head = Head { expire_ms: row.expire_ms, blob_id: None, written_ms: None };
            assert_eq!(other.head, head);
            assert_eq!(other.key, &page[row.start..][..row.key]);
            assert_eq!(other.value.unwrap(), &page[row.start + row.key..][..row.value]);
            plain += 1;
        }
        plain
    }

    #[test]
    fn leaf_rows_decode_equally_in_batch_and_one_by_one() {
        let mut records = Vec::new();
        for (key, value, expire_ms) in [
            (&b"k"[..], &b""[..], None),
            (b"key", b"value", Some(1_800_000_000_000)),
            (b"key", b"other", Some(1_800_000_000_001)),
            (b"key", b"a longer one", Some(-1_800_000_000_000)),
            (&[7; 57], &[8; 3], None),
            (b"no time of these centuries", b"1", Some(5)),
            (b"key", &[9; 60], None),
            (b"key", &[9; 60], Some(1_800_000_000_000)),
        ] {
            let mut record = Vec::new();
            data_row(&mut record, key, Some(value), Head { expire_ms, blob_id: None, written_ms: None });
            records.push(record);
        }
        let page = leaf(&records);
        assert_eq!(compare(&page), 6, "all but the one that ends with the page, and that with another time");
        for at in 0..page.len() {
            for byte in [0, 1, 3, 5, 12, 0x7f, 0x80, 0xff, page[at].wrapping_add(1), page[at].wrapping_sub(2)]
            {
                let mut bad = page.clone();
                bad[at] = byte;
                compare(&bad);
            }
        }
    }

    #[test]
    fn scan_end_is_found_by_key_prefix_or_whole_key() {
        let long = [b"0123456789abcdef".as_slice(), b"gh"].concat();
        let mut keys: Vec<Vec<u8>> = (1..=long.len()).map(|length| long[..length].to_vec()).collect();
        for at in 0..long.len() {
            for byte in [0, 0xff] {
                keys.extend([at + 1, long.len()].map(|length| {
                    let mut key = long[..length].to_vec();
                    key[at] = byte;
                    key
                }));
            }
        }
        for key in &keys {
            let row = PlainRow { start: 0, key: key.len(), value: 0, expire_ms: None };
            let page = [key.as_slice(), &[0xff; 20]].concat();
            for end in &keys {
                for to in [Bound::Included(end.as_slice()), Bound::Excluded(end.as_slice())] {
                    for reverse in [false, true] {
                        let found = End::of(to).unwrap().is_passed_by(&page, &row, to, reverse);
                        assert_eq!(found, is_past(key, to, reverse), "{key:?}, {to:?}, {reverse}");
                    }
                }
            }
        }
        assert!(End::of(Bound::Unbounded).is_none());
    }
}

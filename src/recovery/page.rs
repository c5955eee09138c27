//! Strict decoding of a page of a B-tree: each byte of the page must be accounted for (SQLite's
//! fileformat2.html, chapter 1.6).
//!
//! SQLite checks only the bytes of a page that it needs. Here a page is treated as unreadable if
//! any byte of its header, cell pointers or free blocks is inconsistent: then nothing shows which
//! of its cells are correct.

use std::rc::Rc;

/// Kind of a B-tree, by the sort order of its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Sorted by the first columns of the record, as tables WITHOUT ROWID are.
    Index,
    /// Sorted by the rowid.
    Table,
}

/// Entry of a page. On an interior page of a table, an entry has no record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    /// Number of the child page with the entries before this one; 0 on a leaf.
    pub(super) child: u32,
    pub(super) rowid: i64,
    /// Offset of the record on the page; `local` is the number of bytes of the record on the page.
    start: usize,
    local: usize,
    /// Size of the whole record, in bytes, according to the cell.
    pub(super) size: u64,
    /// Number of the page with the next part of the record; 0 if the whole record is on this page.
    pub(super) overflow: u32,
}

/// Undamaged page of a tree, parsed.
pub(super) struct Node {
    page: Rc<[u8]>,
    pub(super) is_leaf: bool,
    pub(super) cells: Vec<Cell>,
    /// Number of the child page with the entries after the last one; 0 on a leaf.
    right: u32,
}

impl Node {
    /// Parses a page; `None` if it is damaged or of another kind. `usable` is the size of a page
    /// without its reserved bytes.
    pub(super) fn parse(page: &Rc<[u8]>, number: u32, usable: usize, kind: Kind) -> Option<Node> {
        let bytes = page.get(..usable)?;
        let base = if number == 1 { 100 } else { 0 };
        let is_leaf = match (*bytes.get(base)?, kind) {
            (0x0d, Kind::Table) | (0x0a, Kind::Index) => true,
            (0x05, Kind::Table) | (0x02, Kind::Index) => false,
            _ => return None,
        };
        let count = usize::from(number16(bytes, base + 3)?);
        let pointers = base + if is_leaf { 8 } else { 12 };
        let content = match number16(bytes, base + 5)? {
            0 => 65_536,
            offset => usize::from(offset),
        };
        if content < pointers + 2 * count || content > usable || count == 0 && !is_leaf {
            return None;
        }
        let mut cells = Vec::with_capacity(count);
        let mut extents = Vec::with_capacity(count + 4);
        for at in 0..count {
            let start = usize::from(number16(bytes, pointers + 2 * at)?);
            let (cell, end) = Cell::parse(bytes, start, is_leaf, kind)?;
            extents.push((start, end.max(start + 4)));
            cells.push(cell);
        }
        free_blocks(bytes, usize::from(number16(bytes, base + 1)?), &mut extents)?;
        if fragments(&mut extents, content, usable)? != usize::from(*bytes.get(base + 7)?) {
            return None;
        }
        let right = if is_leaf { 0 } else { number32(bytes, base + 8)? };
        let node = Node { page: Rc::clone(page), is_leaf, cells, right };
        node.points_nowhere_twice().then_some(node)
    }

    /// Parses a page of any kind; `None` if it is damaged.
    pub(super) fn parse_any(page: &Rc<[u8]>, number: u32, usable: usize) -> Option<Node> {
        [Kind::Index, Kind::Table].iter().find_map(|kind| Node::parse(page, number, usable, *kind))
    }

    /// Returns the child pages, in order: one more than there are cells, or none on a leaf.
    pub(super) fn children(&self) -> impl Iterator<Item = u32> {
        let (below, right) = if self.is_leaf { (&[][..], None) } else { (&self.cells[..], Some(self.right)) };
        below.iter().map(|cell| cell.child).chain(right)
    }

    /// Returns the overflow pages of the records on this page.
    pub(super) fn overflows(&self) -> impl Iterator<Item = u32> {
        self.cells.iter().map(|cell| cell.overflow).filter(|page| *page != 0)
    }

    /// Returns the bytes of a cell's record that are on the page itself.
    pub(super) fn local(&self, cell: &Cell) -> &[u8] {
        self.page.get(cell.start..cell.start + cell.local).unwrap_or_default()
    }

    fn points_nowhere_twice(&self) -> bool {
        let mut pages: Vec<u32> = self.children().collect();
        pages.extend(self.overflows());
        pages.sort_unstable();
        pages.windows(2).all(|two| two.first() != two.last())
    }
}

impl Cell {
    /// Parses the cell at the offset `start`. Returns the cell and the offset of its end; `None` if
    /// it is invalid.
    fn parse(page: &[u8], start: usize, is_leaf: bool, kind: Kind) -> Option<(Cell, usize)> {
        let mut at = start;
        let mut child = 0;
        if !is_leaf {
            child = number32(page, at)?;
            at += 4;
        }
        let mut cell = Cell { child, rowid: 0, start: at, local: 0, size: 0, overflow: 0 };
        if kind == Kind::Table && !is_leaf {
            let (rowid, length) = varint(page.get(at..)?)?;
            cell.rowid = rowid.cast_signed();
            return Some((cell, at + length));
        }
        let (size, length) = varint(page.get(at..)?)?;
        at += length;
        if kind == Kind::Table {
            let (rowid, length) = varint(page.get(at..)?)?;
            cell.rowid = rowid.cast_signed();
            at += length;
        }
        cell.start = at;
        cell.size = size;
        cell.local = local_size(size, page.len(), kind);
        let mut end = at + cell.local;
        if cell.local as u64 != size {
            cell.overflow = number32(page, end)?;
            end += 4;
        }
        // A record has at least two bytes: the size of its header, and one serial type.
        (size >= 2 && end <= page.len()).then_some((cell, end))
    }
}

/// Returns the number of bytes after the last cell of a page, if they can be the reserved bytes of
/// the page: SQLite puts the first cell at the end of the usable part. Returns `None` if the page
/// does not show the number.
pub(super) fn reserved(page: &[u8], number: u32) -> Option<usize> {
    const MOST: usize = 255;
    let base = if number == 1 { 100 } else { 0 };
    let (is_leaf, kind) = match *page.get(base)? {
        0x0d => (true, Kind::Table),
        0x0a => (true, Kind::Index),
        0x05 => (false, Kind::Table),
        0x02 => (false, Kind::Index),
        _ => return None,
    };
    let count = usize::from(number16(page, base + 3)?);
    let pointers = base + if is_leaf { 8 } else { 12 };
    let mut last = 0;
    for at in 0..count {
        let start = usize::from(number16(page, pointers + 2 * at)?);
        let (cell, end) = Cell::parse(page, start, is_leaf, kind)?;
        // The part on this page of a record with overflow pages depends on the number of reserved
        // bytes, which is not known yet.
        if local_size(cell.size, page.len() - MOST, kind) as u64 != cell.size {
            return None;
        }
        last = last.max(end);
    }
    (count > 0).then(|| page.len() - last).filter(|bytes| *bytes <= MOST)
}

/// Returns the number of bytes of a record of `size` bytes that are on the page itself
/// (fileformat2.html, "Cell Payload Overflow Pages").
fn local_size(size: u64, usable: usize, kind: Kind) -> usize {
    let most = match kind {
        Kind::Table => usable - 35,
        Kind::Index => (usable - 12) * 64 / 255 - 23,
    };
    if size <= most as u64 {
        return size as usize;
    }
    let least = (usable - 12) * 32 / 255 - 23;
    let local = least + ((size - least as u64) % (usable as u64 - 4)) as usize;
    if local <= most { local } else { least }
}

/// Adds the start and end of each free block of a page to `extents`. `first` is the offset of the
/// first block of the list; 0 if there is none. Returns `None` if the list is invalid.
fn free_blocks(page: &[u8], first: usize, extents: &mut Vec<(usize, usize)>) -> Option<()> {
    let mut at = first;
    while at != 0 {
        let next = usize::from(number16(page, at)?);
        let size = usize::from(number16(page, at + 2)?);
        if size < 4 || next != 0 && next < at + size {
            return None;
        }
        extents.push((at, at + size));
        at = next;
    }
    Some(())
}

/// Returns the number of bytes from `content` to `usable` that are in none of the extents. Returns
/// `None` if extents overlap or exceed these limits.
fn fragments(extents: &mut [(usize, usize)], content: usize, usable: usize) -> Option<usize> {
    extents.sort_unstable();
    let (mut covered, mut fragments) = (content, 0);
    for (start, end) in extents {
        fragments += start.checked_sub(covered)?;
        covered = *end;
    }
    Some(fragments + usable.checked_sub(covered)?)
}

/// Reads a variable-length integer of SQLite. Returns the integer and its number of bytes; `None`
/// if `bytes` ends before the integer does.
pub(super) fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0u64;
    for (at, byte) in bytes.iter().take(9).enumerate() {
        if at == 8 {
            return Some((number << 8 | u64::from(*byte), 9));
        }
        number = number << 7 | u64::from(byte & 0x7f);
        if *byte < 0x80 {
            return Some((number, at + 1));
        }
    }
    None
}

pub(super) fn number16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

pub(super) fn number32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
}

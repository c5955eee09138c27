//! Decoding of a page of an index B-tree (SQLite's fileformat2.html, chapter 1.6): its entries, and
//! the position of a key among them.
//!
//! No byte of a page is trusted. For a page or entry that this module cannot decode, its functions
//! return `None`. The caller then uses SQLite's cursor, which also reports errors.

use std::cmp::Ordering;
use std::ops::Range;

/// First byte of a page of an index B-tree, which states its type: an interior page, or a leaf.
const INTERIOR: u8 = 0x02;
const LEAF: u8 = 0x0a;
/// Offsets of the array of cell pointers on an interior page and on a leaf, in bytes.
const INTERIOR_CELLS: usize = 12;
const LEAF_CELLS: usize = 8;
/// Offset of the field in the page header that contains the offset of the cell content area.
const CONTENT: usize = 5;
/// Minimum number of bytes that an entry takes on its page, including its cell pointer.
pub(super) const LEAST_CELL: usize = 6;

/// Layout of a page of an index B-tree, decoded from its header: offset of the cell pointers,
/// number of entries, type and limits.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    cells: usize,
    count: usize,
    is_leaf: bool,
    /// Offset of the record size in a cell: 4 on an interior page, whose cells begin with the
    /// number of a child page, and 0 on a leaf.
    before: usize,
    /// Maximum length, in bytes, of a record that is stored without overflow pages.
    max_local: usize,
}

impl Layout {
    #[inline(always)]
    pub(super) fn is_leaf(&self) -> bool {
        self.is_leaf
    }

    /// Returns the number of entries on the page.
    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Parses the header of a page of which SQLite uses the first `usable` bytes. Returns `None` if
    /// it is not a valid header of an index B-tree page.
    #[inline(always)]
    fn of(page: &[u8], usable: usize) -> Option<Layout> {
        let (is_leaf, cells) = match *page.first()? {
            LEAF => (true, LEAF_CELLS),
            INTERIOR => (false, INTERIOR_CELLS),
            _ => return None,
        };
        let max_local = (usable.checked_sub(12)? * 64 / 255).checked_sub(23)?;
        let count = usize::from(number16(page, 3)?);
        // The page cannot have space for more entries than this, and only a leaf may have no
        // entries.
        if count > usable / LEAST_CELL || count == 0 && !is_leaf {
            return None;
        }
        Some(Layout { cells, count, is_leaf, before: if is_leaf { 0 } else { 4 }, max_local })
    }
}

/// Page of an index B-tree with its decoded layout, by which entries are found on it.
#[derive(Clone, Copy)]
pub(super) struct Node<'p> {
    page: &'p [u8],
    layout: Layout,
}

impl<'p> Node<'p> {
    /// Parses a page of which SQLite uses the first `usable` bytes. Returns `None` if its header is
    /// not a valid header of an index B-tree page.
    #[inline(always)]
    pub(super) fn of(page: &'p [u8], usable: usize) -> Option<Node<'p>> {
        let page = page.get(..usable)?;
        Some(Node { page, layout: Layout::of(page, usable)? })
    }

    /// Returns the node for a page of which `layout` is the layout, without parsing its header
    /// again. If the layout is that of another page, the methods return wrong results, but do not
    /// panic.
    #[inline(always)]
    pub(super) fn again(page: &'p [u8], layout: Layout) -> Node<'p> {
        Node { page, layout }
    }

    #[inline(always)]
    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    #[inline(always)]
    pub(super) fn is_leaf(&self) -> bool {
        self.layout.is_leaf
    }

    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.layout.count
    }

    /// Returns the byte range of the record of entry `at` within the page; `None` if there is no
    /// such entry, or if the record is not entirely on the page.
    #[inline(always)]
    pub(super) fn record(&self, at: usize) -> Option<Range<usize>> {
        self.head(at).map(|head| head.start..head.start + head.size)
    }

    /// Returns the cell pointers of a range of entries, each in big-endian order; `None` if the
    /// page has fewer entries.
    #[inline]
    pub(super) fn cells(&self, entries: Range<usize>) -> Option<&'p [[u8; 2]]> {
        if entries.end > self.count() {
            return None;
        }
        let cells = self.layout.cells + 2 * entries.start;
        let (cells, _) = self.page.get(cells..cells + 2 * entries.len())?.as_chunks();
        Some(cells)
    }

    /// Returns the page and the offset of its cell content area, which extends to the end of the
    /// page. Returns `None` if the offset is 0 or beyond the end of the page.
    #[inline]
    pub(super) fn content(&self) -> Option<(&'p [u8], usize)> {
        let content = usize::from(number16(self.page, CONTENT)?);
        (content > 0 && content <= self.page.len()).then_some((self.page, content))
    }

    /// Returns the size of the page, in bytes.
    #[inline]
    pub(super) fn size(&self) -> usize {
        self.page.len()
    }

    /// Returns the first column of entry `at`; `None` if it is not a blob or cannot be decoded.
    pub(super) fn key_of(&self, at: usize) -> Option<&'p [u8]> {
        let (start, length) = self.key(at)?;
        self.page.get(start..start + length)
    }

    /// Returns the maximum length, in bytes, of a record that is stored without overflow pages.
    #[inline(always)]
    pub(super) fn max_local(&self) -> usize {
        self.layout.max_local
    }

    /// Returns the number of the child page whose entries precede entry `at`. If `at` is the number
    /// of entries, returns the number of the last child page. Returns `None` on a leaf.
    #[inline]
    pub(super) fn child(&self, at: usize) -> Option<u32> {
        if self.is_leaf() {
            return None;
        }
        match at.cmp(&self.count()) {
            Ordering::Less => number32(self.page, self.cell(at)?.checked_sub(4)?),
            Ordering::Equal => number32(self.page, 8),
            Ordering::Greater => None,
        }
    }

    /// Searches for the entry with this key by binary search. Returns its index (`Ok`), or the
    /// index of the first entry with a greater key (`Err`). Returns `None` if an entry cannot be
    /// decoded.
    #[inline(always)]
    pub(super) fn search(&self, key: &[u8]) -> Option<Result<usize, usize>> {
        let sought = Sought::new(key);
        let (mut low, mut high) = (0, self.count());
        while low < high {
            // SQLite's binary search compares the same entry. So if entries are out of order, both
            // searches find or miss the same keys.
            let middle = low + (high - 1 - low) / 2;
            let order = match self.compare_first(middle, &sought) {
                Some(order) => order,
                None => self.compare(middle, &sought)?,
            };
            match order {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Some(Ok(middle)),
            }
        }
        Some(Err(low))
    }

    /// Compares the key of entry `at` with the sought key by their first [`FIRST`] bytes. Returns
    /// `None` if these bytes are equal, or if the entry needs the slower
    /// [`compare`](Node::compare). For nearly all keys the first bytes decide.
    #[inline(always)]
    fn compare_first(&self, at: usize, sought: &Sought<'_>) -> Option<Ordering> {
        let cell = self.cell(at)?;
        let bytes: &[u8; 32] = self.page.get(cell..)?.first_chunk()?;
        let [a, b, c, d, ..] = *bytes;
        let (size, before, header, serial) = match a {
            ..0x80 => (usize::from(a), 1, usize::from(b), c),
            0x80.. => (two_bytes(a, b)?, 2, usize::from(c), d),
        };
        // The length of a blob is half of its type minus 12. The rotation turns every type that is
        // odd or less than 12, and every type of two bytes, into a number greater than 57.
        let length = usize::from(serial.wrapping_sub(12).rotate_right(1));
        if header > 8
            || length > 57
            || header + length > size
            || size > self.layout.max_local
            || cell + before + size > self.page.len()
        {
            // The key is longer than this function supports, or the entry has an unusual form.
            return None;
        }
        let first: &[u8; FIRST] = bytes.get(before + header..)?.first_chunk()?;
        let mut first = u128::from_be_bytes(*first);
        if length < FIRST {
            // Ignore the bytes after a short key.
            first &= !(u128::MAX >> (8 * length));
        }
        // A short key and the same key followed by zeros are equal as numbers. So equal numbers do
        // not show that the keys are equal.
        if first == sought.first { None } else { Some(first.cmp(&sought.first)) }
    }

    /// Compares the key of entry `at` with the sought key. Returns `Less` if the key of the entry
    /// is the lesser one, and `None` if the entry cannot be decoded.
    #[inline(never)]
    fn compare(&self, at: usize, sought: &Sought<'_>) -> Option<Ordering> {
        let (start, length) = self.key(at)?;
        Some(self.page.get(start..start + length)?.cmp(sought.key))
    }

    /// Returns the offset of the record size in the cell of entry `at`. On an interior page it
    /// follows the number of the child page.
    #[inline(always)]
    fn cell(&self, at: usize) -> Option<usize> {
        if at >= self.layout.count {
            return None;
        }
        let cell = usize::from(number16(self.page, self.layout.cells + 2 * at)?);
        Some(cell + self.layout.before)
    }

    /// Decodes the beginning of entry `at`. Returns `None` if there is no such entry, or if its
    /// record is not entirely on the page.
    #[inline(always)]
    fn head(&self, at: usize) -> Option<PageHead> {
        let cell = self.cell(at)?;
        // A cell can be shorter than 8 bytes and be at the end of the page.
        let bytes: &[u8; 8] = match self.page.get(cell..)?.first_chunk() {
            Some(bytes) => bytes,
            None => &last_bytes(self.page, cell),
        };
        let [a, b, c, d, e, ..] = *bytes;
        let (size, before, header, types) = match a {
            ..0x80 => (usize::from(a), 1, b, [c, d]),
            0x80.. => (two_bytes(a, b)?, 2, c, [d, e]),
        };
        let start = cell + before;
        // A longer record continues on overflow pages. A record that extends beyond the page is
        // invalid.
        (size <= self.layout.max_local && start + size <= self.page.len()).then_some(PageHead {
            start,
            size,
            header,
            types,
        })
    }

    /// Returns the offset and the length of the first column of entry `at`. Returns `None` if the
    /// column is not a blob, or if the entry cannot be decoded.
    #[inline(always)]
    fn key(&self, at: usize) -> Option<(usize, usize)> {
        let PageHead { start, size, header, types: [first, second] } = self.head(at)?;
        let serial = if first < 0x80 { usize::from(first) } else { two_bytes(first, second)? };
        let header = usize::from(header);
        let length = serial.checked_sub(12)? / 2;
        (header < 0x80 && serial.is_multiple_of(2) && header + length <= size)
            .then_some((start + header, length))
    }
}

/// Decoded beginning of an entry: position of the record, size of the record header, and type of
/// the first column.
struct PageHead {
    /// Offset of the record on the page; `size` is its length.
    start: usize,
    size: usize,
    /// Size of the record header, in bytes.
    header: u8,
    /// Type of the first column: one byte, or two bytes if the first is 0x80 or more.
    types: [u8; 2],
}

/// Returns the bytes from `start` to the end of the page, which are fewer than 8, followed by
/// zeros.
#[cold]
fn last_bytes(page: &[u8], start: usize) -> [u8; 8] {
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(page.get(start..).unwrap_or_default()) {
        *to = *from;
    }
    bytes
}

/// Key that a search on a page looks for. Its first bytes are also stored as one number, because
/// comparing numbers costs less than a call of memcmp.
struct Sought<'k> {
    key: &'k [u8],
    first: u128,
}

/// Number of bytes at the beginning of a key that a search compares as one number.
const FIRST: usize = 16;

impl<'k> Sought<'k> {
    fn new(key: &'k [u8]) -> Sought<'k> {
        let first = key.first_chunk().copied().unwrap_or_else(|| {
            let mut first = [0; FIRST];
            first.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
            first
        });
        Sought { key, first: u128::from_be_bytes(first) }
    }
}

/// Decodes a varint of two bytes, of which the first is 0x80 or more. `None` if the varint is
/// longer.
#[inline(always)]
fn two_bytes(first: u8, second: u8) -> Option<usize> {
    (second < 0x80).then_some(usize::from(first & 0x7f) << 7 | usize::from(second))
}

#[inline(always)]
fn number16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

fn number32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a page whose cells have these keys. If `children` is given, it is an interior page,
    /// and each cell begins with the number of a child page.
    fn page(keys: &[&[u8]], children: Option<&[u32]>) -> Vec<u8> {
        let mut page = vec![0; 512];
        let cells = if children.is_some() { INTERIOR_CELLS } else { LEAF_CELLS };
        page[0] = if children.is_some() { INTERIOR } else { LEAF };
        page[3..5].copy_from_slice(&(keys.len() as u16).to_be_bytes());
        let mut end = page.len();
        for (at, key) in keys.iter().enumerate() {
            let mut cell = children.map_or(Vec::new(), |children| children[at].to_be_bytes().to_vec());
            cell.push(3 + key.len() as u8 + 1);
            cell.extend([3, 12 + 2 * key.len() as u8, 14]);
            cell.extend(*key);
            cell.push(b'v');
            end -= cell.len();
            page[end..end + cell.len()].copy_from_slice(&cell);
            page[cells + 2 * at..cells + 2 * at + 2].copy_from_slice(&(end as u16).to_be_bytes());
        }
        if let Some(children) = children {
            page[8..12].copy_from_slice(&children[keys.len()].to_be_bytes());
        }
        page
    }

    fn search<'p>(page: &'p [u8], key: &[u8]) -> Result<&'p [u8], usize> {
        let node = Node::of(page, 512).unwrap();
        node.search(key).unwrap().map(|at| {
            let (start, length) = node.key(at).unwrap();
            &page[start..start + length]
        })
    }

    #[test]
    fn leaf_search_returns_key_or_insert_position() {
        let page = page(&[b"a", b"bb", b"c"], None);
        for key in [&b"a"[..], b"bb", b"c"] {
            assert_eq!(search(&page, key), Ok(key));
        }
        for (key, next) in [("", 0), ("b", 1), ("bbb", 2), ("d", 3)] {
            assert_eq!(search(&page, key.as_bytes()), Err(next));
        }
        assert_eq!(search(&self::page(&[], None), b"a"), Err(0));
        let node = Node::of(&page, 512).unwrap();
        assert_eq!((node.is_leaf(), node.count(), node.child(0), node.record(3)), (true, 3, None, None));
    }

    #[test]
    fn interior_page_search_returns_key_or_child() {
        let page = page(&[b"f", b"m"], Some(&[7, 8, 9]));
        let node = Node::of(&page, 512).unwrap();
        for (key, child) in [("a", 7), ("g", 8), ("z", 9)] {
            let Some(Err(at)) = node.search(key.as_bytes()) else { panic!("{key} is not there") };
            assert_eq!(node.child(at), Some(child));
        }
        assert_eq!(search(&page, b"m"), Ok(&b"m"[..]));
        assert_eq!(node.child(3), None);
    }

    #[test]
    fn keys_of_all_lengths_compare_like_slices() {
        let long = [b"abcdefghijklmnop".as_slice(), &[0xff; 200]].concat();
        let mut keys: Vec<Vec<u8>> = (0..40).map(|length| long[..length].to_vec()).collect();
        for at in 0..24 {
            for byte in [0, 0x7f, 0xff] {
                let mut key = long[..30].to_vec();
                key[at] = byte;
                keys.push(key);
            }
        }
        keys.extend([long[..63].to_vec(), long[..130].to_vec(), long.clone()]);
        for a in keys.iter().filter(|key| (1..58).contains(&key.len())) {
            // The first cell is at the end of the page, the second one before it.
            let page = page(&[a, a], None);
            let node = Node::of(&page, 512).unwrap();
            for b in &keys {
                let sought = Sought::new(b);
                for at in 0..2 {
                    assert_eq!(node.compare(at, &sought), Some(a.cmp(b)), "{a:?} {b:?}");
                    let first = node.compare_first(at, &sought);
                    assert!(first.is_none_or(|first| first == a.cmp(b)), "{a:?} {b:?}");
                }
            }
        }
        keys.sort();
        keys.dedup();
        for chunk in keys.chunks(6) {
            if chunk.iter().all(|key| (1..58).contains(&key.len())) {
                let page = page(&chunk.iter().map(Vec::as_slice).collect::<Vec<_>>(), None);
                for key in &keys {
                    let found = search(&page, key);
                    assert_eq!(found, chunk.binary_search(key).map(|at| chunk[at].as_slice()));
                }
            }
        }
    }

    #[test]
    fn entry_beyond_page_end_is_not_decoded() {
        let mut page = page(&[b"a", b"bb", b"c"], None);
        // The cell of "a" is at the end of the page.
        let last = usize::from(u16::from_be_bytes([page[8], page[9]]));
        page[last] += 1;
        let node = Node::of(&page, 512).unwrap();
        assert_eq!(node.search(b"a"), None);
        assert_eq!(node.record(0), None);
        assert_eq!(node.search(b"c"), Some(Ok(2)));
    }

    #[test]
    fn search_never_panics_on_arbitrary_pages() {
        let read = |page: &[u8], usable: usize| {
            let Some(node) = Node::of(page, usable) else { return };
            for key in [&b"a"[..], b"m", b"n", b"zz", &[0xff; 300]] {
                let _ = node.search(key);
            }
            for at in (0..=node.count() + 1).take(70_000) {
                let _ = (node.child(at), node.record(at).and_then(|record| page.get(record)));
            }
        };
        let good = page(&[b"f", b"m", b"x"], Some(&[7, 8, 9, 10]));
        for at in 0..good.len() {
            for byte in [0, 1, 2, 10, 13, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = byte;
                read(&bad, 512);
                read(&bad, 480);
            }
        }
        for size in 0..64 {
            read(&vec![LEAF; size], size);
            read(&vec![0xff; size], size);
            read(&vec![INTERIOR; size], 512);
        }
        read(&vec![0xff; 65_536], 65_536);
    }
}

//! Finding a key in the pages of an index B-tree (SQLite's fileformat2.html, chapter 1.6), without a cursor:
//! for reads of one key, for which a cursor does more than is needed. Every byte is taken for hostile; what
//! is not plain is left to the cursor, which also knows how to complain.

use std::cmp::Ordering;
use std::ops::Range;

/// The type of a page.
const INTERIOR: u8 = 0x02;
const LEAF: u8 = 0x0a;
/// Where the cell pointers of such a page begin.
const INTERIOR_CELLS: usize = 12;
const LEAF_CELLS: usize = 8;

/// Where a search goes on after a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The key's record is in this part of the page.
    Here(Range<usize>),
    /// The key is below this page.
    Child(u32),
    /// There is no such key.
    Nowhere,
}

/// Searches one page, of which the first `usable` bytes count. `None`: not a plain case.
#[inline]
pub(super) fn search(page: &[u8], usable: usize, key: &[u8]) -> Option<Next> {
    let page = page.get(..usable)?;
    let (is_leaf, cells) = match *page.first()? {
        LEAF => (true, LEAF_CELLS),
        INTERIOR => (false, INTERIOR_CELLS),
        _ => return None,
    };
    // A longer record has a part of it on other pages.
    let max_local = (usable.checked_sub(12)? * 64 / 255).checked_sub(23)?;
    let count = usize::from(number16(page, 3)?);
    let pointers = page.get(cells..cells + 2 * count)?;
    let cell = |at: usize| -> Option<usize> { Some(usize::from(number16(pointers, 2 * at)?)) };
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        let start = cell(middle)? + if is_leaf { 0 } else { 4 };
        let record = record(page, start, max_local)?;
        match key_of(page.get(record.clone())?)?.cmp(key) {
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
            Ordering::Equal => return Some(Next::Here(record)),
        }
    }
    if is_leaf {
        return Some(Next::Nowhere);
    }
    let child = if low < count { number32(page, cell(low)?)? } else { number32(page, 8)? };
    Some(Next::Child(child))
}

/// Where a cell's record is, which begins with its length.
#[inline]
fn record(page: &[u8], start: usize, max_local: usize) -> Option<Range<usize>> {
    let first = *page.get(start)?;
    let (size, start) = if first < 0x80 {
        (usize::from(first), start + 1)
    } else {
        let second = *page.get(start + 1)?;
        if second >= 0x80 {
            return None; // 16 KiB or more
        }
        (usize::from(first & 0x7f) << 7 | usize::from(second), start + 2)
    };
    (size <= max_local).then_some(start..start + size)
}

/// The first column of a record, a blob.
#[inline]
fn key_of(record: &[u8]) -> Option<&[u8]> {
    let header = usize::from(*record.first()?);
    let first = *record.get(1)?;
    let serial = if first < 0x80 {
        usize::from(first)
    } else {
        let second = *record.get(2)?;
        if second >= 0x80 {
            return None;
        }
        usize::from(first & 0x7f) << 7 | usize::from(second)
    };
    if header >= 0x80 || serial < 12 || !serial.is_multiple_of(2) {
        return None;
    }
    record.get(header..header + (serial - 12) / 2)
}

#[inline]
fn number16(bytes: &[u8], at: usize) -> Option<u16> {
    match bytes.get(at..at + 2)? {
        [high, low] => Some(u16::from_be_bytes([*high, *low])),
        _ => None,
    }
}

fn number32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page with these cells, the first of which are records; each is preceded by a child if there are some.
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

    #[test]
    fn a_key_is_found_or_not_on_a_leaf() {
        let page = page(&[b"a", b"bb", b"c"], None);
        for (key, found) in [("a", true), ("bb", true), ("c", true), ("", false), ("b", false), ("d", false)]
        {
            match search(&page, 512, key.as_bytes()).unwrap() {
                Next::Here(record) => {
                    assert!(found);
                    assert_eq!(key_of(&page[record]), Some(key.as_bytes()));
                }
                Next::Nowhere => assert!(!found, "{key}"),
                Next::Child(_) => panic!("a leaf has no children"),
            }
        }
        assert_eq!(search(&self::page(&[], None), 512, b"a"), Some(Next::Nowhere));
    }

    #[test]
    fn an_interior_page_has_the_key_or_shows_the_way() {
        let page = page(&[b"f", b"m"], Some(&[7, 8, 9]));
        for (key, child) in [("a", 7), ("g", 8), ("z", 9)] {
            assert_eq!(search(&page, 512, key.as_bytes()), Some(Next::Child(child)));
        }
        assert!(matches!(search(&page, 512, b"m"), Some(Next::Here(_))));
    }

    #[test]
    fn no_page_makes_it_panic() {
        let good = page(&[b"f", b"m", b"x"], Some(&[7, 8, 9, 10]));
        for at in 0..good.len() {
            for byte in [0, 1, 2, 10, 13, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = byte;
                for key in [&b"a"[..], b"m", b"n", b"zz", &[0xff; 300]] {
                    let _ = search(&bad, 512, key);
                    let _ = search(&bad, 480, key);
                }
            }
        }
        for size in 0..64 {
            let _ = search(&vec![LEAF; size], size, b"k");
            let _ = search(&vec![0xff; size], size, b"k");
            let _ = search(&vec![INTERIOR; size], 512, b"k");
        }
        let _ = search(&vec![0xff; 65_536], 65_536, b"k");
    }
}

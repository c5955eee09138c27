//! Unused bytes of B-tree pages, which the VFS overwrites if the store overwrites deleted data.
//!
//! SQLite's `secure_delete` zeroes the bytes of a row when it deletes the row. But when SQLite
//! redistributes the rows of some pages, it may build a page from scratch (`rebuildPage` in
//! btree.c). Then copies of rows that are now on another page stay in the unused part of the old
//! page. If such a row is deleted later, SQLite zeroes the row on its new page, but not the copy on
//! the old one. So the VFS zeroes the unused part of each page that it writes into the file.
//! (Pages: SQLite's fileformat2.html, chapters 1.6 and 1.8.)

use std::ops::Range;

/// Exclusive maximum of the number of a page, and of the length of a database in pages, up to which
/// the unused bytes of pages are overwritten. Below it, only B-tree pages begin with the byte of a
/// B-tree page type (2, 5, 10 or 13): overflow and free-list pages begin with a page number, whose
/// first byte is 0 or 1, and pointer maps are recognised by their page number. (A first byte of 1
/// would allow twice this number. The limit is lower because a transaction may make the file
/// longer.)
const MOST_PAGES: i64 = 1 << 24;
/// Offset, in a database file, of the first byte that SQLite locks. SQLite does not use the page
/// that contains it.
const PENDING_BYTE: i64 = 1 << 30;
/// Length, in bytes, of the database header at the start of the first page.
const FILE_HEADER: usize = 100;

/// Layout of the pages of a database: their size and their reserved bytes.
#[derive(Clone, Copy)]
pub(in crate::backend::file) struct Pages {
    /// Size of a page, in bytes.
    pub(in crate::backend::file) size: u64,
    /// Number of bytes at the end of each page that SQLite does not use.
    pub(in crate::backend::file) reserved: u8,
}

/// Returns the range of unused bytes in `page`, a B-tree page that is written at the offset `at` of
/// the database: the bytes between the cell pointer array and the cells. Returns `None` if the page
/// is damaged, may not be a B-tree page, or is not below [`MOST_PAGES`].
pub(super) fn unused(page: &[u8], at: i64, pages: Pages) -> Option<Range<usize>> {
    let Pages { size, reserved } = pages;
    if page.len() as u64 != size {
        return None;
    }
    let size = i64::try_from(size).ok()?;
    if !(512..=65_536).contains(&size) || size.count_ones() != 1 || at < 0 || at % size != 0 {
        return None;
    }
    let number = at / size + 1;
    if number >= MOST_PAGES || is_of_pointers(number, size, reserved) {
        return None;
    }
    let start = if number == 1 { FILE_HEADER } else { 0 };
    let header = match page.get(start)? {
        0x02 | 0x05 => 12,
        0x0a | 0x0d => 8,
        _ => return None,
    };
    let rows = usize::from(two(page, start + 3)?);
    let from = start + header + 2 * rows;
    let to = match two(page, start + 5)? {
        0 => 65_536,
        to => usize::from(to),
    };
    let usable = page.len() - usize::from(reserved);
    let first_free = usize::from(two(page, start + 1)?);
    let is_sound = from <= to
        && to <= usable
        && (first_free == 0 || (to..usable).contains(&first_free))
        && page
            .get(start + header..from)?
            .chunks_exact(2)
            .all(|row| two(row, 0).is_some_and(|row| (to..usable).contains(&usize::from(row))));
    is_sound.then_some(from..to)
}

/// Returns `true` if a file of `length` bytes is short enough for [`unused`] to distinguish B-tree
/// pages from other pages.
pub(super) fn tells_pages_apart(length: i64, page_size: usize) -> bool {
    i64::try_from(page_size).is_ok_and(|size| size > 0 && length / size < MOST_PAGES)
}

/// Returns `true` if page `number` (the first page is 1) is a pointer map page of an auto-vacuum
/// database. Such a page has five bytes for each of the pages after it (fileformat2.html, chapter
/// 1.8). `size` is the size of a page, and `reserved` the number of bytes at its end that SQLite
/// does not use.
fn is_of_pointers(number: i64, size: i64, reserved: u8) -> bool {
    let group = (size - i64::from(reserved)) / 5 + 1;
    let first = (number - 2) / group * group + 2;
    let pending = PENDING_BYTE / size + 1;
    number >= 2 && number == if first == pending { first + 1 } else { first }
}

/// Returns the big-endian integer of two bytes at the offset `at` of a page; `None` beyond its end.
fn two(page: &[u8], at: usize) -> Option<u16> {
    let bytes = page.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Like `super::unused`, but for pages of the length of `page`.
    fn unused(page: &[u8], at: i64, reserved: u8) -> Option<Range<usize>> {
        super::unused(page, at, Pages { size: page.len() as u64, reserved })
    }

    /// Returns a B-tree page of type `kind`, with `rows` as cell pointers and `first` as the start
    /// of the cells.
    fn page(size: usize, start: usize, kind: u8, rows: &[u16], first: usize) -> Vec<u8> {
        let mut page = vec![0xaa; size];
        let header = if kind < 8 { 12 } else { 8 };
        page[start] = kind;
        page[start + 1..start + 3].fill(0);
        page[start + 3..start + 5].copy_from_slice(&u16::try_from(rows.len()).unwrap().to_be_bytes());
        page[start + 5..start + 7].copy_from_slice(&u16::try_from(first % 65_536).unwrap().to_be_bytes());
        for (row, place) in rows.iter().zip(page[start + header..].chunks_exact_mut(2)) {
            place.copy_from_slice(&row.to_be_bytes());
        }
        page
    }

    #[test]
    fn unused_space_is_found_in_each_btree_page_type() {
        assert_eq!(unused(&page(512, 0, 13, &[500, 480], 480), 512 * 2, 0), Some(12..480));
        assert_eq!(unused(&page(512, 0, 10, &[500, 480], 480), 512 * 2, 0), Some(12..480));
        assert_eq!(unused(&page(512, 0, 5, &[500], 500), 512 * 2, 0), Some(14..500));
        assert_eq!(unused(&page(512, 0, 2, &[500], 500), 512 * 2, 0), Some(14..500));
        assert_eq!(unused(&page(512, 100, 13, &[500], 500), 0, 0), Some(110..500));
        assert_eq!(unused(&page(65_536, 0, 13, &[], 65_536), 65_536 * 2, 0), Some(8..65_536));
        assert_eq!(unused(&page(512, 0, 13, &[], 496), 512 * 2, 16), Some(8..496));
    }

    #[test]
    fn other_and_damaged_pages_have_no_unused_space() {
        let sound = page(512, 0, 13, &[500, 480], 480);
        for kind in [0, 1, 3, 4, 6, 14] {
            assert_eq!(unused(&page(512, 0, kind, &[500], 500), 512 * 2, 0), None);
        }
        assert_eq!(unused(&sound, 512, 0), None, "the first page of pointers");
        assert_eq!(unused(&sound, 512 * 104, 0), None, "the second page of pointers");
        assert_eq!(unused(&sound, 512 * 103, 0), Some(12..480));
        assert_eq!(unused(&sound, 512 * MOST_PAGES, 0), None);
        assert_eq!(unused(&sound, 100, 0), None);
        assert_eq!(super::unused(&sound, 512 * 2, Pages { size: 1024, reserved: 0 }), None, "half a page");
        assert_eq!(unused(&sound[..511], 0, 0), None);
        assert_eq!(unused(&page(512, 0, 13, &[500, 470], 480), 512 * 2, 0), None, "a row before the first");
        assert_eq!(unused(&page(512, 0, 13, &[512], 480), 512 * 2, 0), None, "a row after the end");
        assert_eq!(unused(&page(512, 0, 13, &[500], 9), 512 * 2, 0), None, "rows within the list");
        assert_eq!(unused(&page(512, 0, 13, &[500], 500), 512 * 2, 16), None, "rows in what is reserved");
        let mut damaged = sound;
        damaged[1..3].copy_from_slice(&100_u16.to_be_bytes());
        assert_eq!(unused(&damaged, 512 * 2, 0), None, "free space before the rows");
        assert_eq!(unused(&[], 0, 0), None);
    }

    #[test]
    fn pointer_map_page_moves_past_lock_page() {
        // With pages of 65 536 bytes, a group has 13 108 pages, and the locks are on page 16 385.
        let size = 65_536;
        assert!(is_of_pointers(2, size, 0) && is_of_pointers(2 + 13_108, size, 0));
        assert!(!is_of_pointers(1, size, 0) && !is_of_pointers(3, size, 0));
        // Where the lock page would be a pointer map, the next page is one. With 503 usable bytes
        // of 512 a group has 101 pages.
        let (size, pending) = (512, PENDING_BYTE / 512 + 1);
        for reserved in 0..=32 {
            let group = (size - i64::from(reserved)) / 5 + 1;
            let falls_on_it = (pending - 2) % group == 0;
            assert_eq!(is_of_pointers(pending + 1, size, reserved), falls_on_it, "{reserved}");
            assert!(!is_of_pointers(pending, size, reserved), "{reserved}");
        }
    }

    #[test]
    fn file_beyond_page_limit_is_not_scanned() {
        assert!(tells_pages_apart(4096, 4096) && tells_pages_apart(0, 512));
        assert!(!tells_pages_apart(512 << 24, 512) && !tells_pages_apart(1, 0));
    }
}

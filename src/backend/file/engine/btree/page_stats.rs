//! Counts the pages of each table without reading the tables.
//!
//! A file with auto-vacuum has a pointer map, which records the parent of each page (SQLite's
//! fileformat2.html, chapter 1.8). No byte of the file is trusted.

use std::collections::HashMap;

use super::pager::Pages;
use super::tree::no_memory;
use crate::error::Result;

/// Size of an entry of the pointer map, in bytes: the type of a page, and the number of its parent.
const ENTRY: usize = 5;
/// Types of pages, as an entry of the pointer map states them: a root page; the first overflow page
/// of a row, and its further overflow pages; any other page of a table.
const ROOT: u8 = 1;
const OVERFLOW: u8 = 3;
const MORE_OVERFLOW: u8 = 4;
const BELOW: u8 = 5;
/// Offset, in the database file, of the byte that SQLite locks. The page with this byte never has
/// content.
const LOCK_BYTE: usize = 0x4000_0000;

/// Returns the number of pages of each table, by the number of its root page. Call this in a
/// transaction, for a file with a pointer map.
pub(super) fn pages_of_tables(pages: Pages<'_>) -> Result<HashMap<u32, u64>> {
    let mut parents = parents(pages)?;
    let mut sizes = HashMap::new();
    let mut way = Vec::new();
    for number in 1..parents.len() {
        let root = root_of(&mut parents, number, &mut way);
        if root != 0 {
            *sizes.entry(root).or_insert(0) += 1;
        }
    }
    Ok(sizes)
}

/// Returns the parent of each page, by page number. A root page is its own parent; 0 means that the
/// page belongs to no table.
fn parents(pages: Pages<'_>) -> Result<Vec<u32>> {
    let count = pages.count();
    let mut parents = Vec::new();
    parents.try_reserve_exact(count as usize + 1).map_err(|_| no_memory())?;
    parents.resize(count as usize + 1, 0);
    let lock_page = u32::try_from(LOCK_BYTE / pages.size().max(1) + 1).unwrap_or(u32::MAX);
    let each = u32::try_from(pages.usable() / ENTRY).unwrap_or(0);
    // Each page of the pointer map precedes the pages that it describes.
    let mut part = 2;
    while each > 0 && part <= count {
        let at = if part == lock_page { part + 1 } else { part };
        if let Some(page) = pages.page(at)? {
            let entries = page.bytes().as_chunks::<ENTRY>().0.iter();
            for ([kind, parent @ ..], number) in entries.take(each as usize).zip(at + 1..=count) {
                let belongs_to = match *kind {
                    ROOT => number,
                    OVERFLOW | MORE_OVERFLOW | BELOW => u32::from_be_bytes(*parent),
                    _ => 0,
                };
                if let Some(place) = parents.get_mut(number as usize).filter(|_| belongs_to <= count) {
                    *place = belongs_to;
                }
            }
        }
        part = part.saturating_add(each).saturating_add(1);
    }
    Ok(parents)
}

/// Returns the root page of the table to which page `number` belongs; 0 if it belongs to no table.
///
/// Stores the root page in `parents` for every page on the path. So each page is followed only
/// once, even if parents form a cycle. `way` is a buffer for the page numbers on the path.
fn root_of(parents: &mut [u32], number: usize, way: &mut Vec<usize>) -> u32 {
    way.clear();
    let mut at = number;
    let root = loop {
        let Some(parent) = parents.get_mut(at) else { break 0 };
        if *parent == 0 || *parent as usize == at {
            break *parent;
        }
        way.push(at);
        at = std::mem::take(parent) as usize;
    };
    for page in way {
        if let Some(parent) = parents.get_mut(*page) {
            *parent = root;
        }
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_owner_is_root_of_parent_chain_and_none_for_cycles() {
        // 1 and 2 are roots; 3 -> 4 -> 1, 5 -> 2, 6 -> 7 -> 6, 8 -> 6; 9 refers to a page outside
        // the file.
        let mut parents = [0, 1, 2, 4, 1, 2, 7, 6, 6, 77];
        let mut way = Vec::new();
        let roots: Vec<u32> = (0..10).map(|page| root_of(&mut parents, page, &mut way)).collect();
        assert_eq!(roots, [0, 1, 2, 1, 1, 2, 0, 0, 0, 0]);
        assert_eq!(parents, [0, 1, 2, 1, 1, 2, 0, 0, 0, 0]);
    }

    #[test]
    fn long_parent_chain_is_followed_once() {
        // A value on a million pages with descending numbers; and a cycle of a million pages.
        let (mut parents, mut way) = ((0..1_000_000).map(|page| page + 1).collect::<Vec<u32>>(), Vec::new());
        parents[999_999] = 999_999;
        assert!((0..1_000_000).all(|page| root_of(&mut parents, page, &mut way) == 999_999));
        let mut parents: Vec<u32> = (0..1_000_000).map(|page| (page + 1) % 1_000_000).collect();
        assert!((0..1_000_000).all(|page| root_of(&mut parents, page, &mut way) == 0));
    }
}

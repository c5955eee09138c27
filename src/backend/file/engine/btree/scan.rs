//! Reads an index B-tree page by page, without a cursor. A cursor does more work than is needed to
//! find a key or to return row after row.

use std::ops::{Bound, Range};

use super::page::{Layout, Node};
use super::pager::{KeptPages, Page, Pages};
use crate::backend::Scan;
use crate::backend::file::error::damaged;
use crate::error::{Error, Result};

/// Maximum depth of a B-tree in SQLite: a cursor has space for this number of pages.
const MAX_DEPTH: usize = 20;

/// Result of the lookup of a key in a tree.
pub(super) enum Look {
    /// The key has an entry: its page, and the byte range of its record on that page.
    Found(Page, Range<usize>),
    Missing,
    /// A page or entry on the path to the key cannot be decoded by this module. The lookup must be
    /// repeated with a cursor.
    Unsupported,
}

/// Looks up a key in the tree with this root page. `kept` is a cache of interior pages of the
/// current snapshot. If `keep` is set, stores the interior pages on the path in it.
#[inline]
pub(super) fn look_up(
    pages: Pages<'_>,
    kept: &mut KeptPages,
    keep: bool,
    root: u32,
    key: &[u8],
) -> Result<Look> {
    let mut number = root;
    for _ in 0..MAX_DEPTH {
        if let Some(child) = kept.get(number).and_then(|page| child_for(page.node()?, key)) {
            number = child;
            continue;
        }
        let Some(page) = pages.page(number)? else { break };
        let Some(node) = page.node() else { break };
        match node.search(key) {
            Some(Ok(at)) => {
                let Some(record) = node.record(at) else { break };
                return Ok(Look::Found(page, record));
            }
            // Only the root of an empty table may have no entries.
            Some(Err(_)) if node.is_leaf() && node.count() == 0 && number != root => break,
            Some(Err(_)) if node.is_leaf() => return Ok(Look::Missing),
            Some(Err(at)) => {
                let Some(child) = node.child(at) else { break };
                if keep {
                    kept.keep(number, page);
                }
                number = child;
            }
            None => break,
        }
    }
    Ok(Look::Unsupported)
}

/// Returns the child of an interior page that may contain the key. Returns `None` if the page
/// itself contains the key, or if the page cannot be decoded.
#[inline(always)]
fn child_for(node: Node<'_>, key: &[u8]) -> Option<u32> {
    node.child(node.search(key)?.err()?)
}

/// Returns the number of entries of the tree with this root page. Returns `None` if a page cannot
/// be decoded, so that a cursor must count the entries.
pub(super) fn count(pages: Pages<'_>, root: u32) -> Result<Option<u64>> {
    let mut left = pages.count();
    let mut entries = 0;
    // Pages to visit. For a valid tree, these are never more than the children of a few pages.
    let mut below = vec![root];
    while let Some(number) = below.pop() {
        left = left.checked_sub(1).ok_or_else(in_circles)?;
        let Some(page) = pages.page(number)? else { return Ok(None) };
        let Some(node) = page.node() else { return Ok(None) };
        if node.count() == 0 && number != root {
            return Ok(None);
        }
        entries += node.count() as u64;
        if !node.is_leaf() {
            for at in 0..=node.count() {
                let Some(child) = node.child(at) else { return Ok(None) };
                below.push(child);
            }
            if below.len() > left as usize {
                return Err(in_circles());
            }
        }
    }
    Ok(Some(entries))
}

/// Scan over the records of a tree in order, from the start of a range. It does not check the end
/// of the range; the caller does.
pub(super) struct PageWalk<'t> {
    pages: Pages<'t>,
    reverse: bool,
    /// Pages from the root to the page of the current record.
    levels: Vec<Level>,
    /// Number of the child page to descend to before the next record; `None` if the next record is
    /// on the current page or on its parent pages.
    below: Option<u32>,
    /// Number and content of the leaf that follows the current one in the scan, if `get_next` has
    /// read it.
    next: Option<(u32, Page)>,
    /// Whether the page `below` cannot be decoded, or the tree is too deep. Then a cursor must
    /// continue the scan.
    lost: bool,
    /// Number of records that the scan has returned so far.
    shown: usize,
}

/// Page on the path from the root to the current record, with the position of the scan on it.
struct Level {
    page: Page,
    layout: Layout,
    /// Index of the next entry to return. In a reverse scan, one more than that index.
    at: usize,
}

/// Entries of the current leaf that a scan has not returned yet.
pub(super) struct Ahead<'w> {
    pub(super) node: Node<'w>,
    /// Whether the entries are visited from the last to the first.
    pub(super) reverse: bool,
    /// Indexes of these entries on the leaf.
    pub(super) entries: Range<usize>,
}

/// Result of one step of a scan.
pub(super) enum Walked {
    /// Byte range of the next record on the current page.
    On(Range<usize>),
    /// There are no more records.
    End,
    /// The scan must be continued with a cursor, because a page or entry cannot be decoded here.
    /// The number is that of the records already returned, which the cursor must skip.
    Unsupported(usize),
}

impl<'t> PageWalk<'t> {
    pub(super) fn new(pages: Pages<'t>, root: u32, scan: &Scan<'_>) -> Result<PageWalk<'t>> {
        let reverse = scan.reverse;
        let from = if reverse { scan.upper } else { scan.lower };
        let levels = Vec::with_capacity(4);
        let mut walk =
            PageWalk { pages, reverse, levels, below: Some(root), next: None, lost: false, shown: 0 };
        // The bound applies to the first descent only. Later pages are read from their first entry
        // (in reverse, from their last).
        walk.go_down(from)?;
        Ok(walk)
    }

    /// Moves to the next record, and returns its byte range on the current page, or why there is
    /// none.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Result<Walked> {
        // The usual case: the next entry is on the same leaf.
        if let (Some(level), None) = (self.levels.last_mut(), self.below)
            && level.layout.is_leaf()
            && let Some(entry) = level.advance(self.reverse)
        {
            let Some(record) = level.node().record(entry) else { return Ok(Walked::Unsupported(self.shown)) };
            self.shown += 1;
            return Ok(Walked::On(record));
        }
        self.next_elsewhere()
    }

    /// Returns the next entries of the scan on the current leaf. Returns `None` if the leaf has no
    /// more entries, or if a page cannot be decoded: the caller continues with
    /// [`next`](PageWalk::next).
    ///
    /// `wants_next` is called with the leaf, the direction of the scan and the entries. If it
    /// returns `true`, the leaf that follows in the scan is read in advance.
    #[inline]
    pub(super) fn ahead(
        &mut self,
        wants_next: impl FnOnce(Node<'_>, bool, &Range<usize>) -> bool,
    ) -> Result<Option<Ahead<'_>>> {
        self.go_down(Bound::Unbounded)?;
        let reverse = self.reverse;
        let Some(level) = self.levels.last().filter(|level| level.layout.is_leaf() && !self.lost) else {
            return Ok(None);
        };
        let entries = if reverse { 0..level.at } else { level.at..level.layout.count() };
        if entries.is_empty() {
            return Ok(None);
        }
        if wants_next(level.node(), reverse, &entries) {
            self.get_next();
        }
        Ok(self.levels.last().map(|level| Ahead { node: level.node(), reverse, entries }))
    }

    /// Reads the leaf that follows the current one in the scan. An error is ignored, because it
    /// occurs again when the scan reaches that leaf.
    fn get_next(&mut self) {
        let Some(parent) = self.levels.len().checked_sub(2).and_then(|above| self.levels.get(above)) else {
            return;
        };
        let after = if self.reverse { parent.at.checked_sub(1) } else { Some(parent.at + 1) };
        let Some(number) = after.and_then(|after| parent.node().child(after)) else { return };
        if self.next.as_ref().is_none_or(|(next, _)| *next != number) {
            self.next = self.pages.page(number).ok().flatten().map(|page| (number, page));
            if let Some((_, page)) = &self.next {
                page.will_need();
            }
        }
    }

    /// Moves the scan past the first `entries` of the entries that `ahead` has returned.
    #[inline]
    pub(super) fn pass(&mut self, entries: usize) {
        if let Some(level) = self.levels.last_mut() {
            level.at = if self.reverse { level.at.saturating_sub(entries) } else { level.at + entries };
            self.shown += entries;
        }
    }

    /// Returns the bytes of the record for the range `part` that `next` has returned.
    #[inline(always)]
    pub(super) fn record(&self, part: Range<usize>) -> &[u8] {
        self.levels.last().and_then(|level| level.page.bytes().get(part)).unwrap_or_default()
    }

    fn next_elsewhere(&mut self) -> Result<Walked> {
        loop {
            self.go_down(Bound::Unbounded)?;
            if self.lost {
                return Ok(Walked::Unsupported(self.shown));
            }
            let Some(level) = self.levels.last_mut() else { return Ok(Walked::End) };
            let Some(entry) = level.advance(self.reverse) else {
                self.levels.pop();
                continue;
            };
            if !level.layout.is_leaf() {
                let Some(child) = level.node().child(level.at) else {
                    return Ok(Walked::Unsupported(self.shown));
                };
                self.below = Some(child);
            }
            let Some(record) = level.node().record(entry) else { return Ok(Walked::Unsupported(self.shown)) };
            self.shown += 1;
            return Ok(Walked::On(record));
        }
    }

    fn page(&mut self, number: u32) -> Result<Option<Page>> {
        match self.next.take() {
            Some((next, page)) if next == number => Ok(Some(page)),
            _ => self.pages.page(number),
        }
    }

    /// Descends from the page `below` to the page with the next record. `from` is the bound at
    /// which the scan starts, or `Unbounded` after the first descent. Sets `lost` if a page cannot
    /// be used.
    fn go_down(&mut self, from: Bound<&[u8]>) -> Result<()> {
        while let Some(number) = self.below
            && !self.lost
        {
            self.lost = true; // reset below if the page can be used
            if self.levels.len() < MAX_DEPTH
                && let Some(page) = self.page(number)?
                && let Some(node) = page.node()
                // Only an empty table may have a page without entries.
                && (node.count() > 0 || self.levels.is_empty())
                && let Some((at, below)) = start(node, from, self.reverse)
            {
                let layout = node.layout();
                self.levels.push(Level { page, layout, at });
                self.below = below;
                self.lost = false;
            }
        }
        Ok(())
    }
}

/// Returns the error for pages that refer to each other in a cycle, so that a scan would not end.
#[cold]
pub(super) fn in_circles() -> Error {
    damaged("a table has more pages or entries than the file has room for")
}

impl Level {
    #[inline(always)]
    fn node(&self) -> Node<'_> {
        Node::again(self.page.bytes(), self.layout)
    }

    /// Moves past the next entry of the page in the direction of the scan and returns its index;
    /// `None` if the page has no further entry.
    #[inline(always)]
    fn advance(&mut self, reverse: bool) -> Option<usize> {
        if reverse {
            self.at = self.at.checked_sub(1)?;
            return Some(self.at);
        }
        let entry = Some(self.at).filter(|at| *at < self.layout.count())?;
        self.at += 1;
        Some(entry)
    }
}

/// Returns the position (`Level::at`) at which a scan that starts at the bound `from` begins on a
/// page, and the number of the child page that it visits before that position, if there is one.
/// Returns `None` if the page cannot be decoded.
fn start(node: Node<'_>, from: Bound<&[u8]>, reverse: bool) -> Option<(usize, Option<u32>)> {
    let (at, go_down) = match from {
        Bound::Unbounded => (if reverse { node.count() } else { 0 }, true),
        Bound::Included(key) | Bound::Excluded(key) => match (node.search(key)?, from, reverse) {
            (Err(at), ..) => (at, true),
            // The entry itself comes first, and then the child page on its other side.
            (Ok(at), Bound::Included(_), false) => (at, false),
            (Ok(at), Bound::Included(_), true) => (at + 1, false),
            // The child page next to the entry comes first. From there on, no record is skipped.
            (Ok(at), _, false) => (at + 1, true),
            (Ok(at), _, true) => (at, true),
        },
    };
    if node.is_leaf() || !go_down {
        return Some((at, None));
    }
    Some((at, Some(node.child(at)?)))
}

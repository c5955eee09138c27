//! Determines whether an undamaged page is the original page, or has been overwritten with a copy
//! of another page of the file.
//!
//! An overwritten page refers to the child and overflow pages of the other page, for which the
//! pointer map names the other page as the parent. No page refers to its own former children. A
//! leaf without overflow pages refers to no page: its only sign of a copy is another page with the
//! same bytes.

use super::map::Link;
use super::page::Node;
use super::walk::Forest;

/// Maximum number of pages on the path from a page up to the root of its tree.
pub(super) const HIGHEST: usize = 24;

/// Maximum number of pages with the same bytes with which a page is compared. There can be many,
/// because thousands of families can have equal rows.
const MOST_TWINS: usize = 64;

/// Result of the check whether an undamaged page is a copy of another page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// The page is trusted: nothing contradicts it.
    Full,
    /// Another page of the same tree has the same bytes. The page is trusted only if its keys fit
    /// into its place in the tree.
    ByItsKeys,
    /// The page is not trusted, for this reason.
    None(&'static str),
}

impl Forest<'_> {
    /// Determines whether the page with the content `node`, which a walk has reached, can be
    /// trusted.
    pub(super) fn trust(&self, page: u32, node: &Node) -> Trust {
        if !self.map.has_entries() {
            return Trust::Full;
        }
        let links = || {
            let below = node.children().map(|child| (Link::Child, child));
            below.chain(node.overflows().map(|part| (Link::Overflow, part)))
        };
        let entry = |child: u32| self.map.entry(self.image, child);
        if links().any(|(link, child)| entry(child) == Some((link as u8, page))) {
            return Trust::Full;
        }
        let is_missed = self.survey.missed(page) > 0;
        let leads = links().next().is_some();
        if is_missed && (!leads || !node.is_leaf) {
            return Trust::None("does not lead to the pages that belong to it");
        }
        // A single reference that contradicts the pointer map can be a damaged page number. So it
        // counts only if the parent in the pointer map does refer to that page, or if the pointer
        // map has the same other parent for all references.
        let of = |link: Link, child: u32| {
            entry(child)
                .filter(|(kind, parent)| *kind == link as u8 && *parent != page)
                .map(|(_, parent)| parent)
        };
        let mut parents = links().map(|(link, child)| of(link, child));
        let first = parents.next().flatten();
        let all_agree = links().count() > 1 && first.is_some() && parents.all(|parent| parent == first);
        let is_others = |(link, child): (Link, u32)| {
            of(link, child).is_some_and(|parent| {
                !self.map.is_free(self.image, parent) && self.map.is_linked(self.image, link, parent, child)
            })
        };
        if all_agree || links().any(is_others) {
            return Trust::None("leads to the pages of another one");
        }
        if leads { Trust::Full } else { self.trust_beside_twins(page) }
    }

    /// Determines whether a leaf without overflow pages can be trusted, by comparing its place in
    /// the trees with those of the pages with the same bytes.
    fn trust_beside_twins(&self, page: u32) -> Trust {
        let is_root = |page: u32| self.map.is_root(self.image, page);
        let mut trust = Trust::Full;
        for twin in self.survey.twins(page).take(MOST_TWINS) {
            let (tree, others) = (self.tree_of(page), self.tree_of(twin));
            if tree.is_some() && tree == others {
                trust = Trust::ByItsKeys;
                continue;
            }
            // Pages of two families can be equal without damage: the only pages of two small
            // families, or several neighboring pages of two large ones.
            let is_likely = is_root(page) && is_root(twin) || self.have_twins_beside(page, twin);
            let has_rows =
                self.rows.borrow().as_ref().is_none_or(|rows| others.is_none_or(|tree| rows.contains(&tree)));
            if !is_likely && has_rows {
                return Trust::None(
                    "has the same bytes as a page of another tree, and nothing tells whose they are",
                );
            }
        }
        trust
    }

    /// Returns the root page of the tree to which a page belongs, according to the pointer map
    /// alone; `None` if the pointer map does not show it.
    pub(super) fn tree_of(&self, page: u32) -> Option<u32> {
        let mut at = page;
        for _ in 0..HIGHEST {
            match self.map.entry(self.image, at) {
                _ if at == 1 => return Some(1),
                Some((1, _)) => return Some(at),
                Some((5, parent)) => at = parent,
                _ => return None,
            }
        }
        None
    }

    /// Returns `true` if a neighbor of `page` equals the corresponding neighbor of `twin`: a row
    /// next to it on the parent page, or a sibling page. Then both pages are probably undamaged,
    /// because families can have many equal rows.
    fn have_twins_beside(&self, page: u32, twin: u32) -> bool {
        let above = |page: u32| {
            let Some((5, parent)) = self.map.entry(self.image, page) else { return None };
            let node = self.image.any_node(parent)?;
            let at = node.children().position(|child| child == page)?;
            Some((node, at))
        };
        let (Some((own, at)), Some((other, twin_at))) = (above(page), above(twin)) else { return false };
        // The rows on the parent pages before and after the two pages, if there are any.
        let row = |node: &Node, at: Option<usize>| {
            let cell = node.cells.get(at?).filter(|cell| cell.overflow == 0)?;
            Some(node.local(cell).to_vec()).filter(|row| !row.is_empty())
        };
        let is_same_row = |one: Option<usize>, twin: Option<usize>| {
            row(&own, one).is_some_and(|one| Some(one) == row(&other, twin))
        };
        if is_same_row(at.checked_sub(1), twin_at.checked_sub(1)) || is_same_row(Some(at), Some(twin_at)) {
            return true;
        }
        // The sibling pages at the same distance from the two pages.
        let (back, twin_back) = (at.saturating_sub(twin_at), twin_at.saturating_sub(at));
        let mut pairs = own.children().skip(back).zip(other.children().skip(twin_back));
        pairs.any(|(one, other)| one != page && self.survey.are_twins(one, other))
    }
}

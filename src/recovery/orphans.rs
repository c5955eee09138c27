//! Finds the pages that no undamaged page of their tree leads to, and the tree to which each of
//! them belongs, if the pointer map shows it.

use std::collections::{HashMap, HashSet};

use super::map::{Claim, Link};
use super::page::Kind;
use super::trust::HIGHEST;
use super::walk::Forest;

/// Undamaged page that cannot be reached from the root of its tree, because a page above it is
/// damaged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Orphan {
    pub(super) page: u32,
    parent: u32,
}

/// Pages that cannot be reached from the root of their tree.
#[derive(Default)]
pub(super) struct Orphans {
    /// Orphans by the root page of their tree. If the path to the root is not known, they are
    /// listed by the highest known page above them, which is unreadable.
    pub(super) of: HashMap<u32, Vec<Orphan>>,
    /// Undamaged tree pages without a possible entry in the pointer map. They can be assigned only
    /// to a tree that lacks pages.
    pub(super) strays: Vec<u32>,
    /// Pages whose tree cannot be determined from the parent in the pointer map.
    pub(super) unplaced: Vec<u32>,
}

impl Forest<'_> {
    /// Returns the pages that no walk has reached, and whose parent in the pointer map is
    /// unreadable or no longer refers to them, and those that have no entry in the pointer map.
    pub(super) fn orphans(&self) -> Orphans {
        let mut orphans = Orphans::default();
        let mut roots = HashMap::new();
        for page in self.image.numbers().into_iter().flatten().filter(|page| *page > 1) {
            if self.map.is_claimed(page)
                || self.map.is_no_content(self.image, page)
                || self.map.is_free(self.image, page)
            {
                continue;
            }
            match self.map.entry(self.image, page) {
                Some((5, parent)) => {
                    // The page is in an undamaged part of a tree that no walk visits, such as an
                    // index.
                    let is_elsewhere = self.survey.is_led_to(page)
                        && !self.is_faulty(parent)
                        && self.image.any_node(parent).is_some();
                    if is_elsewhere || self.image.any_node(page).is_none() && !self.is_faulty(parent) {
                        continue;
                    }
                    match *roots.entry(parent).or_insert_with(|| self.root_above(parent)) {
                        Some(root) => orphans.of.entry(root).or_default().push(Orphan { page, parent }),
                        None => orphans.unplaced.push(page),
                    }
                }
                None if self.image.any_node(page).is_some() => orphans.strays.push(page),
                _ => {}
            }
        }
        orphans
    }

    /// Returns the root page of the tree to which a page belongs, even if the page is unreadable or
    /// has been overwritten.
    ///
    /// Follows the references that earlier walks have recorded
    /// ([`Map::claim`](super::map::Map::claim)) and the pointer map upwards. If an unreadable page
    /// on this path has no entry in the pointer map, returns that page. Returns `None` if the tree
    /// cannot be determined.
    pub(super) fn root_above(&self, page: u32) -> Option<u32> {
        let mut at = page;
        for _ in 0..HIGHEST {
            if at == 1 || self.map.is_root(self.image, at) {
                return Some(at);
            }
            // If a walk has claimed the page, its parent is known.
            let above = match self.map.owner(at) {
                0 => match self.map.entry(self.image, at) {
                    Some((5, above)) => above,
                    Some(_) => return None,
                    // The pages above this one are unknown, but all pages below it belong to one
                    // tree.
                    None => return self.image.any_node(at).is_none().then_some(at),
                },
                owner if owner == at => return Some(at),
                owner => owner,
            };
            let leads_here = |node: super::page::Node| node.children().any(|child| child == at);
            // The pointer map is wrong: the parent that it names does not refer to this page, but
            // another page does.
            if self.survey.is_led_to(at)
                && !self.is_faulty(above)
                && self.image.any_node(above).is_some_and(|node| !leads_here(node))
            {
                return None;
            }
            at = above;
        }
        None
    }

    fn is_faulty(&self, page: u32) -> bool {
        self.faulty.borrow().contains(&page)
    }

    /// Records that an orphan belongs to the tree of its parent. Returns `false` if a known fact
    /// about the page contradicts that, so that the page must not be used.
    pub(super) fn claim_orphan(&self, orphan: Orphan) -> bool {
        let claim = self.map.claim(self.image, Link::Child, orphan.parent, orphan.page);
        !matches!(claim, Claim::Refused(_))
    }

    /// Returns those pages of `strays` (pages without a usable entry in the pointer map) that can
    /// belong to a tree of this kind, as orphans with the parent `parent`. Omits pages that are
    /// below other pages of `strays`. `is_form` returns `true` if a record has the form that the
    /// records of this tree have.
    pub(super) fn strays_of(
        &self,
        strays: &[u32],
        kind: Kind,
        parent: u32,
        is_form: impl Fn(&[u8]) -> bool,
    ) -> Vec<Orphan> {
        let mut below = HashSet::new();
        let mut tops = Vec::new();
        for page in strays {
            let Some(node) = self.image.node(*page, kind) else { continue };
            below.extend(node.children());
            // For an interior page of a rowid table, which has no records, the pages below it
            // decide.
            let has_form = |at: usize| match self.record_at(*page, at, kind) {
                Ok(record) => is_form(&record),
                Err(_) => true,
            };
            let has_records = kind == Kind::Index || node.is_leaf;
            if !node.cells.is_empty() && (!has_records || (0..node.cells.len()).all(has_form)) {
                tops.push(*page);
            }
        }
        tops.retain(|page| !below.contains(page));
        tops.into_iter().map(|page| Orphan { page, parent }).collect()
    }
}

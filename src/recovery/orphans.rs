//! Pages that no sound page leads to: to which tree they belong, as far as the pointer map can tell.

use std::collections::{HashMap, HashSet};

use super::map::{Claim, Link};
use super::page::Kind;
use super::trust::HIGHEST;
use super::walk::Forest;

/// Undamaged page whose path from its root is damaged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Orphan {
    pub(super) page: u32,
    parent: u32,
}

/// Orphan pages that were found.
#[derive(Default)]
pub(super) struct Orphans {
    /// Orphans by the root page of their tree, or by the highest unreadable page known above them.
    pub(super) of: HashMap<u32, Vec<Orphan>>,
    /// Pages without a known owner that can be assigned to a tree that misses pages.
    pub(super) strays: Vec<u32>,
    /// Pages whose parent, by the pointer map, has no known owner.
    pub(super) unplaced: Vec<u32>,
}

impl Forest<'_> {
    /// Returns every unclaimed page that, by the pointer map, belongs to an unreadable page or to
    /// one that no longer leads to it.
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
                    // A tree that no walk visits, such as an index.
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

    /// The root of the tree that a page belongs to which cannot be read, or is not what it was. `None`: nothing tells.
    pub(super) fn root_above(&self, page: u32) -> Option<u32> {
        let mut at = page;
        for _ in 0..HIGHEST {
            if at == 1 || self.map.is_root(self.image, at) {
                return Some(at);
            }
            // A walk has been there.
            let above = match self.map.owner(at) {
                0 => match self.map.entry(self.image, at) {
                    Some((5, above)) => above,
                    Some(_) => return None,
                    // The pages above are unknown; the pages below this one belong together.
                    None => return self.image.any_node(at).is_none().then_some(at),
                },
                owner if owner == at => return Some(at),
                owner => owner,
            };
            let leads_here = |node: super::page::Node| node.children().any(|child| child == at);
            // Another page leads here.
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

    /// Claims an orphan for its tree.
    pub(super) fn claim_orphan(&self, orphan: Orphan) -> bool {
        let claim = self.map.claim(self.image, Link::Child, orphan.parent, orphan.page);
        !matches!(claim, Claim::Refused(_))
    }

    /// Returns the stray pages that can belong to a tree of this kind, as orphans of a tree that
    /// misses pages; without those below other strays. `is_form` returns whether the records of a
    /// page have the right form.
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
            // The pages below decide of one without records.
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

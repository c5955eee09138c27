//! Collects the references between all pages of the file before any walk. Finds pages to which no
//! page refers, and pages with equal content.
//!
//! A page that was overwritten with a copy of another page looks undamaged, and so does everything
//! below it. It is detected in two ways: its former children still have it as their parent in the
//! pointer map, but no page refers to them; or the original of the copy still exists.

use std::collections::HashMap;

use super::image::Image;
use super::map::{Link, Map, Numbers};

/// Bit that is set for a page if a tree page refers to it as its child.
const BELOW: u32 = 1;
/// Bit that is set for an overflow page, to which a cell of a tree page refers.
const PART: u32 = 2;
/// Bit that is set for an undamaged page of a tree.
const NODE: u32 = 4;

#[derive(Default)]
pub(super) struct Survey {
    marks: Numbers,
    /// For each page, the number of pages that have it as their parent in the pointer map although
    /// no page in use refers to them.
    missed: Numbers,
    /// Pages with the same bytes as other pages, with the index of their group in `groups`.
    twins: HashMap<u32, usize>,
    groups: Vec<Vec<u32>>,
}

impl Survey {
    /// Reads all pages of the file and collects their references. Calls `note` before each page,
    /// for the progress of the recovery.
    pub(super) fn of(
        image: &Image,
        map: &Map,
        note: &mut dyn FnMut() -> crate::error::Result<()>,
    ) -> crate::error::Result<Survey> {
        let mut survey = Survey::default();
        let mut hashes = Vec::new();
        for page in image.numbers().into_iter().flatten() {
            note()?;
            if map.is_no_content(image, page) {
                if let Some(bytes) = image.page(page).filter(|_| map.has_entries()) {
                    hashes.push(u64::from(hash(&bytes)) << 32 | u64::from(page));
                }
                continue;
            }
            // References on a free page are obsolete.
            let Some(node) = image.any_node(page).filter(|_| !map.is_free(image, page)) else { continue };
            survey.mark(page, NODE);
            let is_there = |page: &u32| *page <= image.pages();
            node.children().filter(is_there).for_each(|child| survey.mark(child, BELOW));
            node.overflows().filter(is_there).for_each(|part| survey.mark(part, PART));
            if map.has_entries() && !node.cells.is_empty() && page > 1 {
                let hash = image.page(page).map_or(0, |bytes| hash(&bytes));
                hashes.push(u64::from(hash) << 32 | u64::from(page));
            }
        }
        survey.find_twins(image, hashes);
        survey.check_map(image, map);
        survey.count_missed(image, map);
        Ok(survey)
    }

    fn mark(&mut self, page: u32, mark: u32) {
        let marks = self.marks.get(page);
        self.marks.set(page, marks | mark);
    }

    fn has(&self, page: u32, mark: u32) -> bool {
        self.marks.get(page) & mark != 0
    }

    /// Returns `true` if a tree page in use refers to the page.
    pub(super) fn is_led_to(&self, page: u32) -> bool {
        self.has(page, BELOW)
    }

    /// Returns the number of pages that have this page as their parent in the pointer map although
    /// no page in use refers to them.
    pub(super) fn missed(&self, page: u32) -> u32 {
        self.missed.get(page)
    }

    /// Returns the other pages with the same bytes.
    pub(super) fn twins(&self, page: u32) -> impl Iterator<Item = u32> {
        let group = self.twins.get(&page).and_then(|group| self.groups.get(*group));
        group.into_iter().flatten().copied().filter(move |twin| *twin != page)
    }

    pub(super) fn are_twins(&self, one: u32, other: u32) -> bool {
        self.twins.get(&one).is_some_and(|group| self.twins.get(&other) == Some(group))
    }

    /// Groups the pages with the same bytes. `hashes` contains, for each page to compare, its hash
    /// in the upper 32 bits and its number in the lower 32 bits.
    fn find_twins(&mut self, image: &Image, mut hashes: Vec<u64>) {
        hashes.sort_unstable();
        for same in hashes.chunk_by(|a, b| a >> 32 == b >> 32).filter(|same| same.len() > 1) {
            let mut left: Vec<u32> = same.iter().map(|hash| *hash as u32).collect();
            while let Some((first, others)) = left.split_first() {
                let bytes = image.page(*first);
                let (mut group, others): (Vec<u32>, Vec<u32>) =
                    others.iter().partition(|other| image.page(**other) == bytes);
                if !group.is_empty() {
                    group.push(*first);
                    self.twins.extend(group.iter().map(|page| (*page, self.groups.len())));
                    self.groups.push(group);
                }
                left = others;
            }
        }
    }

    /// Marks copied pages of the pointer map as not trusted: those with the same bytes as another
    /// page whose entries contradict the tree pages more often than they agree.
    fn check_map(&self, image: &Image, map: &Map) {
        for page in self.twins.keys().copied().filter(|page| map.is_no_content(image, *page)) {
            let (mut right, mut wrong) = (0, 0);
            for (child, kind, parent) in map.entries_on(image, page) {
                let agrees = match kind {
                    5 => map.is_linked(image, Link::Child, parent, child),
                    3 => map.is_linked(image, Link::Overflow, parent, child),
                    _ => continue,
                };
                if agrees { right += 1 } else { wrong += 1 }
            }
            if wrong > right {
                map.distrust(page);
            }
        }
    }

    fn count_missed(&mut self, image: &Image, map: &Map) {
        if !map.has_entries() {
            return;
        }
        for page in image.numbers().into_iter().flatten().filter(|page| *page > 1) {
            let parent = match map.entry(image, page) {
                Some((5, parent)) if self.has(page, NODE) && !self.has(page, BELOW) => parent,
                Some((3, parent)) if !self.has(page, PART) && !map.is_free(image, page) => parent,
                _ => continue,
            };
            let missed = self.missed.get(parent);
            self.missed.set(parent, missed.saturating_add(1));
        }
    }
}

/// Returns a hash of the bytes of a page. Collisions do no harm, because pages with equal hashes
/// are compared.
fn hash(bytes: &[u8]) -> u32 {
    let (words, _) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(0u64, |hash, word| {
        (hash.rotate_left(5) ^ u64::from_le_bytes(*word)).wrapping_mul(0x517c_c1b7_2722_0a95)
    });
    (hash >> 32) as u32
}

//! Determines the owner of each page: by the pointer map, the list of free pages, and the
//! references that walks have followed so far, the claims (SQLite's fileformat2.html, chapters 1.5
//! and 1.8).
//!
//! A free page contains deleted rows, and a damaged page number may lead to a page of another tree.
//! Neither may be read as a part of a tree. So whenever a walk follows a page number, it claims the
//! page for the referring page, and the claim is checked here.

use std::cell::RefCell;
use std::collections::HashSet;

use super::image::{Header, Image};
use super::page::number32;

/// Kind of reference to a page. The numbers are the types of the pointer map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    /// The page is the root of a tree.
    Root = 1,
    /// A cell refers to the page, the first overflow page of its record.
    Overflow = 3,
    /// Another overflow page of the same record refers to the page.
    Next = 4,
    /// An interior page of the same tree refers to the page.
    Child = 5,
}

const ROOT: u8 = 1;
const FREE: u8 = 2;

/// Result of an attempt to record that a page belongs to a tree ([`Map::claim`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// The pointer map confirms the claim.
    Confirmed,
    /// Nothing contradicts the claim.
    Plausible,
    /// The page does not belong to the tree, for this reason.
    Refused(&'static str),
}

pub(super) struct Map {
    has_map: bool,
    /// Pages on the free list, each with a 1; `None` if the list cannot be read to its end.
    free: Option<Numbers>,
    /// For each page, the page that refers to it, according to the walks ([`Map::claim`]), or its
    /// own number if it is a root; 0 if no walk has reached it.
    owner: RefCell<Numbers>,
    /// Pages of the pointer map whose entries are ignored, because they are copies of another page.
    distrusted: RefCell<HashSet<u32>>,
}

/// Map from page numbers to numbers, which are 0 by default. Memory is allocated only for groups of
/// pages in which a number was set.
#[derive(Default)]
pub(super) struct Numbers(Vec<Option<Box<[u32; GROUP]>>>);

const GROUP: usize = 1024;

impl Numbers {
    pub(super) fn get(&self, page: u32) -> u32 {
        let group = self.0.get(page as usize / GROUP).and_then(Option::as_ref);
        group.and_then(|group| group.get(page as usize % GROUP)).copied().unwrap_or(0)
    }

    pub(super) fn set(&mut self, page: u32, number: u32) {
        let group = page as usize / GROUP;
        if self.0.len() <= group {
            self.0.resize_with(group + 1, || None);
        }
        if let Some(group) = self.0.get_mut(group) {
            let group = group.get_or_insert_with(|| Box::new([0; GROUP]));
            if let Some(entry) = group.get_mut(page as usize % GROUP) {
                *entry = number;
            }
        }
    }
}

impl Map {
    pub(super) fn of(image: &Image, header: &Header) -> Map {
        let map = Map {
            has_map: has_map(image, header),
            free: free_pages(image, header),
            owner: RefCell::default(),
            distrusted: RefCell::default(),
        };
        map.owner.borrow_mut().set(1, u32::MAX);
        map
    }

    /// Returns `true` if the page belongs to the pointer map, or is the page that SQLite never
    /// writes.
    pub(super) fn is_no_content(&self, image: &Image, page: u32) -> bool {
        image.is_lock_page(page) || self.has_map && page > 1 && place(image, page).is_none()
    }

    /// Returns the entry of the pointer map for a page: its type and its parent. Returns `None` if
    /// the entry is unreadable or impossible.
    pub(super) fn entry(&self, image: &Image, page: u32) -> Option<(u8, u32)> {
        if !self.has_map || page > image.pages() {
            return None;
        }
        let (map_page, at) = place(image, page)?;
        if self.distrusted.borrow().contains(&map_page) {
            return None;
        }
        let bytes = image.page(map_page)?;
        let entry @ (kind, parent) = (*bytes.get(at)?, number32(&bytes, at + 1)?);
        let possible = match kind {
            ROOT | FREE => parent == 0,
            3..=5 => (1..=image.pages()).contains(&parent) && parent != page,
            _ => false,
        };
        possible.then_some(entry)
    }

    /// Returns the entries on one page of the pointer map: for each, the page, its type and its
    /// parent.
    pub(super) fn entries_on(&self, image: &Image, map_page: u32) -> impl Iterator<Item = (u32, u8, u32)> {
        let last = map_page.saturating_add((image.usable() / 5) as u32).min(image.pages());
        (map_page.saturating_add(1)..=last)
            .filter_map(move |page| self.entry(image, page).map(|(kind, parent)| (page, kind, parent)))
    }

    /// Records that the page at the place of a pointer map page contains, by damage, a copy of another
    /// page. Its entries are ignored from then on.
    pub(super) fn distrust(&self, map_page: u32) {
        self.distrusted.borrow_mut().insert(map_page);
    }

    pub(super) fn is_root(&self, image: &Image, page: u32) -> bool {
        self.entry(image, page) == Some((ROOT, 0))
    }

    /// Returns `true` if the page is free: according to the list of free pages, or, if that is
    /// unreadable, to the pointer map.
    pub(super) fn is_free(&self, image: &Image, page: u32) -> bool {
        let listed = self.free.as_ref().map(|free| free.get(page) == 1);
        match self.entry(image, page) {
            // The list of free pages must agree, if it is known.
            Some((FREE, _)) => listed != Some(false),
            _ => listed == Some(true),
        }
    }

    /// Returns `true` if the file has a pointer map.
    pub(super) fn has_entries(&self) -> bool {
        self.has_map
    }

    /// Returns `true` if the list of free pages could be read completely.
    pub(super) fn knows_free(&self) -> bool {
        self.free.is_some()
    }

    /// Returns `true` if the page was recorded as a page of a tree by [`claim`](Map::claim).
    pub(super) fn is_claimed(&self, page: u32) -> bool {
        self.owner(page) != 0
    }

    /// Returns the page that refers to this page, as recorded by [`claim`](Map::claim), or the page
    /// itself if it is a root; 0 if nothing was recorded.
    pub(super) fn owner(&self, page: u32) -> u32 {
        self.owner.borrow().get(page)
    }

    /// Records that the page `child` belongs to the tree of the page `parent`, which refers to it
    /// by a reference of the kind `link`. Refuses to do so if a known fact contradicts it, such as
    /// an earlier claim for another page. The same claim may be repeated.
    pub(super) fn claim(&self, image: &Image, link: Link, parent: u32, child: u32) -> Claim {
        if child < 2 || child > image.pages() {
            return Claim::Refused("is not in the file");
        }
        if self.is_no_content(image, child) {
            return Claim::Refused("has something else on it");
        }
        let owner = self.owner.borrow().get(child);
        // No page refers to a root, so a root is claimed for itself.
        let claimant = if link == Link::Root { child } else { parent };
        if owner != 0 && owner != claimant {
            return Claim::Refused("is used twice");
        }
        let entry = self.entry(image, child);
        let expected = (link as u8, if link == Link::Root { 0 } else { parent });
        let claim = match entry {
            Some(entry) if entry == expected => Claim::Confirmed,
            _ if self.is_free(image, child) => Claim::Refused("is a free one"),
            Some((ROOT, _)) => Claim::Refused("belongs to something else"),
            Some((kind, other)) if kind != FREE && links(image, kind, other, child) => {
                Claim::Refused("belongs to something else")
            }
            // A wrong claim of a tree page is detected by its keys, which do not fit into the tree.
            // For an overflow page, only the pointer map shows the owner.
            Some(_) if matches!(link, Link::Overflow | Link::Next) => {
                Claim::Refused("belongs to something else")
            }
            _ => Claim::Plausible,
        };
        if !matches!(claim, Claim::Refused(_)) {
            self.owner.borrow_mut().set(child, claimant);
        }
        claim
    }
}

impl Map {
    /// Returns `true` if the page `parent` contains the number of the page `child`.
    pub(super) fn is_linked(&self, image: &Image, link: Link, parent: u32, child: u32) -> bool {
        links(image, link as u8, parent, child)
    }
}

/// Returns `true` if the page `parent` contains the number of the page `child`. `kind` is the type
/// of this reference in the pointer map.
fn links(image: &Image, kind: u8, parent: u32, child: u32) -> bool {
    match kind {
        3 => image.any_node(parent).is_some_and(|node| node.overflows().any(|part| part == child)),
        4 => image.page(parent).and_then(|page| number32(&page, 0)) == Some(child),
        _ => image.any_node(parent).is_some_and(|node| node.children().any(|below| below == child)),
    }
}

/// Returns the page and the offset of the pointer map entry of a page; `None` for pages of the map
/// itself.
fn place(image: &Image, page: u32) -> Option<(u32, usize)> {
    let each = (image.usable() / 5 + 1) as u32;
    let mut map_page = page.checked_sub(2)? / each * each + 2;
    if image.is_lock_page(map_page) {
        map_page += 1;
    }
    // If the lock page is where a page of the map would be, that page of the map is after the lock
    // page, and the lock page has no entry.
    Some((map_page, 5 * page.checked_sub(map_page + 1)? as usize))
}

/// Returns `true` if the file has a pointer map, according to the header and to the content of page
/// 2. One field of the header can be damaged; page 2 rarely looks like a page of the map by chance.
fn has_map(image: &Image, header: &Header) -> bool {
    let Some(second) = image.page(2) else { return header.has_map || !header.is_sound };
    if header.has_map && header.is_incremental {
        return true;
    }
    let entries = (image.usable() / 5).min(image.pages().saturating_sub(2) as usize);
    let (all, _) = second.as_chunks::<5>();
    let looks_like_one = entries > 0
        && all.iter().take(entries).all(|[kind, parent @ ..]| {
            let parent = u32::from_be_bytes(*parent);
            matches!((kind, parent), (1 | 2, 0) | (3..=5, 1..)) && parent <= image.pages()
        });
    looks_like_one || (header.has_map || !header.is_sound) && image.any_node(2).is_none()
}

/// Returns the pages on the list of free pages, each with a 1. Returns `None` if the list cannot be
/// read to its end, or does not have the length in the header.
fn free_pages(image: &Image, header: &Header) -> Option<Numbers> {
    if !header.is_sound {
        return None;
    }
    let mut free = Numbers::default();
    let mut count = 0u32;
    let mut add = |page: u32| {
        if page < 2 || page > image.pages() || free.get(page) != 0 {
            return None;
        }
        count += 1;
        free.set(page, 1);
        Some(())
    };
    let mut trunk = header.first_free;
    while trunk != 0 {
        add(trunk)?;
        let page = image.page(trunk)?;
        let leaves = number32(&page, 4)? as usize;
        if leaves > image.usable() / 4 - 2 {
            return None;
        }
        for at in 0..leaves {
            add(number32(&page, 8 + 4 * at)?)?;
        }
        trunk = number32(&page, 0)?;
    }
    (count == header.free).then_some(free)
}

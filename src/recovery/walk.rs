//! Visits the entries of a tree in order, and skips its damaged parts.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashSet;

use super::image::Image;
use super::map::{Claim, Link, Map};
use super::page::{Cell, Kind, Node, number32};
use super::record::first_blob;
use super::survey::Survey;
use super::trust::Trust;
use crate::error::Result;
use crate::memory;

/// Maximum number of levels of a tree to which a walk descends. SQLite itself supports 20.
const DEEPEST: usize = 24;

/// Receives the entries and the losses that a walk through a tree finds.
pub(super) trait Visitor {
    /// Called for each entry. In a tree sorted by rowid, the record is not read and is empty.
    fn entry(&mut self, entry: Entry<'_>) -> Result<()>;
    /// Called for an entry that cannot be read. `key` is `None` if its key is not known.
    fn lost_entry(&mut self, page: u32, key: Option<&[u8]>, why: &str) -> Result<()>;
    /// Called for a page that cannot be read; all its entries are lost.
    fn lost_page(&mut self, page: u32, why: &str) -> Result<()>;
    /// Called for each tree page that the walk reaches, before the page is read.
    fn page(&mut self) -> Result<()>;
    /// Returns the bytes of a record by which the tree is sorted; `None` if the record does not
    /// belong to this tree.
    fn key_of<'r>(&self, record: &'r [u8]) -> Option<&'r [u8]>;
}

pub(super) struct Entry<'e> {
    pub(super) page: u32,
    pub(super) cell: usize,
    pub(super) rowid: i64,
    pub(super) record: &'e [u8],
}

/// Key by which the entries of a tree are sorted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Rowid(i64),
    Bytes(Vec<u8>),
}

/// Bounds of the keys on a page, from the keys on the pages above it. Each key must be after
/// `after` and before `before`; a rowid may equal `before`. `None` is no bound.
#[derive(Debug, Clone, Default)]
struct Bounds {
    after: Option<Key>,
    before: Option<Key>,
    /// Wider bounds, which apply if a key on the parent page that limits these bounds is wrong.
    wide: Option<Box<Bounds>>,
}

impl Bounds {
    fn contain(&self, key: &Key) -> bool {
        // In a tree sorted by rowid, the rowid on an interior page is also that of an entry below
        // it.
        let low = self.after.as_ref().is_none_or(|after| after < key);
        low && self.before.as_ref().is_none_or(|before| match key {
            Key::Rowid(_) => key <= before,
            Key::Bytes(_) => key < before,
        })
    }
}

/// Damaged file whose trees are walked, with the known facts about its pages.
pub(super) struct Forest<'i> {
    pub(super) image: &'i Image,
    pub(super) map: Map,
    pub(super) survey: Survey,
    /// Root pages of the trees with rows or large values; `None` until they are known.
    pub(super) rows: RefCell<Option<HashSet<u32>>>,
    /// Pages that walks have reached but cannot use, and pages with a reference that cannot be
    /// followed.
    pub(super) faulty: RefCell<HashSet<u32>>,
}

impl Forest<'_> {
    /// Visits all entries of the page `top` and of the pages below it. The caller must have
    /// recorded `top` as a page of the tree ([`Map::claim`](super::map::Map::claim)).
    pub(super) fn walk(&self, top: u32, kind: Kind, visitor: &mut dyn Visitor) -> Result<()> {
        let is_confirmed = self.map.entry(self.image, top).is_some() || top == 1;
        self.walk_page(top, kind, &Bounds::default(), is_confirmed, 0, visitor)
    }

    fn walk_page(
        &self,
        number: u32,
        kind: Kind,
        bounds: &Bounds,
        is_confirmed: bool,
        depth: usize,
        visitor: &mut dyn Visitor,
    ) -> Result<()> {
        visitor.page()?;
        let node = (depth < DEEPEST).then(|| self.image.node(number, kind)).flatten();
        let Some(node) = node else {
            self.note_fault(number);
            let why = if self.image.page(number).is_none() { "cannot be read" } else { "is damaged" };
            return visitor.lost_page(number, why);
        };
        let trust = self.trust(number, &node);
        if let Trust::None(why) = trust {
            self.note_fault(number);
            return visitor.lost_page(number, why);
        }
        let is_confirmed = is_confirmed && trust == Trust::Full;
        let mut keys = self.keys(number, &node, kind, visitor)?;
        let outside = keys.iter().flatten().filter(|key| !bounds.contain(key)).count();
        if outside > 0 && !is_confirmed {
            self.note_fault(number);
            return visitor.lost_page(number, "has keys of another place");
        }
        // If several keys are outside the bounds, they are assumed to be right, and the key on the
        // parent page to be wrong; unless they are also outside the wider bounds.
        let fits = |key: &Key| bounds.wide.as_ref().is_none_or(|wide| wide.contain(key));
        if outside > 1 && !keys.iter().flatten().all(fits) {
            self.note_fault(number);
            return visitor.lost_page(number, "has keys of another place");
        }
        let mut wrong = out_of_order(&keys);
        if outside == 1 {
            wrong.extend(
                (0..keys.len()).filter(|at| {
                    keys.get(*at).and_then(Option::as_ref).is_some_and(|key| !bounds.contain(key))
                }),
            );
        }
        for at in wrong {
            if let Some(key) = keys.get_mut(at).and_then(Option::take) {
                self.lose(number, Some(&key), "its key is not where it belongs", visitor)?;
            }
        }
        if node.is_leaf {
            for at in 0..node.cells.len() {
                if keys.get(at).is_some_and(Option::is_some) {
                    self.visit_entry(number, &node, at, kind, visitor)?;
                }
            }
            return Ok(());
        }
        self.walk_below(number, &node, kind, bounds, &keys, depth, visitor)
    }

    #[allow(clippy::too_many_arguments)]
    fn walk_below(
        &self,
        number: u32,
        node: &Node,
        kind: Kind,
        bounds: &Bounds,
        keys: &[Option<Key>],
        depth: usize,
        visitor: &mut dyn Visitor,
    ) -> Result<()> {
        let mut below = bounds.clone();
        let next_key = |from: usize| keys.iter().skip(from).flatten().next().or(bounds.before.as_ref());
        let last_key = |to: usize| keys.iter().take(to).flatten().last().or(bounds.after.as_ref());
        for (at, child) in node.children().enumerate() {
            let key = keys.get(at).and_then(Option::as_ref);
            below.before = key.or(bounds.before.as_ref()).cloned();
            let (after, before) = (last_key(at.saturating_sub(1)).cloned(), next_key(at + 1).cloned());
            below.wide = Some(Box::new(Bounds { after, before, wide: None }));
            match self.map.claim(self.image, Link::Child, number, child) {
                Claim::Refused(why) => {
                    self.note_fault(number);
                    visitor.lost_page(child, why)?;
                }
                claim => {
                    let is_confirmed = claim == Claim::Confirmed;
                    self.walk_page(child, kind, &below, is_confirmed, depth + 1, visitor)?;
                }
            }
            let Some(key) = key else { continue };
            below.after = Some(key.clone());
            if kind == Kind::Table {
                continue; // its entries are on leaves only
            }
            let next = node.children().nth(at + 1).unwrap_or(0);
            if self.fits_between(key, child, next, kind, visitor)? {
                self.visit_entry(number, node, at, kind, visitor)?;
            } else {
                self.lose(number, Some(key), "its key is not where it belongs", visitor)?;
            }
        }
        Ok(())
    }

    /// Returns `true` if the key of an entry on an interior page is after the last key of the child
    /// page before it, and before the first key of the child page after it.
    fn fits_between(
        &self,
        key: &Key,
        before: u32,
        after: u32,
        kind: Kind,
        visitor: &mut dyn Visitor,
    ) -> Result<bool> {
        let mut of = |page: u32, is_last: bool| -> Option<Key> {
            let node = self.image.node(page, kind)?;
            let at = if is_last { node.cells.len().checked_sub(1)? } else { 0 };
            self.key(page, &node, at, kind, visitor).ok()
        };
        Ok(of(before, true).is_none_or(|last| last < *key)
            && of(after, false).is_none_or(|first| *key < first))
    }

    fn note_fault(&self, page: u32) {
        self.faulty.borrow_mut().insert(page);
    }

    fn lose(&self, page: u32, key: Option<&Key>, why: &str, visitor: &mut dyn Visitor) -> Result<()> {
        let bytes = match key {
            Some(Key::Bytes(bytes)) => Some(bytes.as_slice()),
            _ => None,
        };
        visitor.lost_entry(page, bytes, why)
    }

    /// Returns the key of each entry of a page. An unreadable key is reported as a lost entry, and
    /// is `None` in the result.
    fn keys(
        &self,
        number: u32,
        node: &Node,
        kind: Kind,
        visitor: &mut dyn Visitor,
    ) -> Result<Vec<Option<Key>>> {
        let mut keys = Vec::with_capacity(node.cells.len());
        for at in 0..node.cells.len() {
            keys.push(match self.key(number, node, at, kind, visitor) {
                Ok(key) => Some(key),
                Err(why) => {
                    let key = node.cells.get(at).and_then(|cell| first_blob(node.local(cell)));
                    visitor.lost_entry(number, key, why)?;
                    None
                }
            });
        }
        Ok(keys)
    }

    fn key(
        &self,
        number: u32,
        node: &Node,
        at: usize,
        kind: Kind,
        visitor: &mut dyn Visitor,
    ) -> Result<Key, &'static str> {
        let cell = node.cells.get(at).ok_or("it is not there")?;
        if kind == Kind::Table {
            return Ok(Key::Rowid(cell.rowid));
        }
        let record = self.record(number, node, cell)?;
        let key = visitor.key_of(&record).ok_or("its record is damaged")?;
        Ok(Key::Bytes(key.to_vec()))
    }

    fn visit_entry(
        &self,
        page: u32,
        node: &Node,
        at: usize,
        kind: Kind,
        visitor: &mut dyn Visitor,
    ) -> Result<()> {
        let Some(cell) = node.cells.get(at) else { return Ok(()) };
        let rowid = cell.rowid;
        if kind == Kind::Table {
            return visitor.entry(Entry { page, cell: at, rowid, record: &[] });
        }
        match self.record(page, node, cell) {
            Ok(record) => visitor.entry(Entry { page, cell: at, rowid, record: &record }),
            Err(why) => visitor.lost_entry(page, None, why),
        }
    }

    /// Reads the record of the entry with the index `cell` of a page that was visited before. The
    /// error is the reason why the record is lost.
    pub(super) fn record_at(&self, page: u32, cell: usize, kind: Kind) -> Result<Vec<u8>, &'static str> {
        let node = self.image.node(page, kind).ok_or("its page is damaged")?;
        let cell = node.cells.get(cell).ok_or("it is not there")?;
        self.record(page, &node, cell).map(Cow::into_owned)
    }

    /// Returns a whole record, including its parts on overflow pages, and records these pages as
    /// pages of the tree. The error is the reason why the record is lost.
    fn record<'n>(&self, page: u32, node: &'n Node, cell: &Cell) -> Result<Cow<'n, [u8]>, &'static str> {
        let local = node.local(cell);
        if cell.overflow == 0 {
            return Ok(Cow::Borrowed(local));
        }
        const BROKEN: &str = "the pages with the rest of it do not hang together";
        let each = self.image.usable() - 4;
        let left = cell.size.saturating_sub(local.len() as u64);
        // A record cannot be longer than the file. Reading it or allocating memory for it would be
        // pointless.
        if left.div_ceil(each as u64) > u64::from(self.image.pages_there()) {
            return Err(BROKEN);
        }
        let mut left = usize::try_from(left).map_err(|_| BROKEN)?;
        let mut record = memory::copy_of(local).map_err(|_| memory::NONE_LEFT)?;
        memory::reserve(&mut record, left).map_err(|_| memory::NONE_LEFT)?;
        let (mut link, mut from, mut next) = (Link::Overflow, page, cell.overflow);
        while left > 0 {
            if let Claim::Refused(_) = self.map.claim(self.image, link, from, next) {
                return Err(BROKEN);
            }
            let bytes = self.image.page(next).ok_or("a page with a part of it is not there")?;
            let here = left.min(each);
            record.extend_from_slice(bytes.get(4..4 + here).ok_or(BROKEN)?);
            left -= here;
            (link, from) = (Link::Next, next);
            next = number32(&bytes, 0).ok_or(BROKEN)?;
        }
        // The last page must be marked as the last.
        if next == 0 { Ok(Cow::Owned(record)) } else { Err(BROKEN) }
    }
}

/// Returns the indexes of the entries that are not in order. Of two neighbors in the wrong order,
/// either may be the wrong one, so both are returned. If the other entries are still not in order,
/// all entries are returned.
fn out_of_order(keys: &[Option<Key>]) -> Vec<usize> {
    let known: Vec<(usize, &Key)> =
        keys.iter().enumerate().filter_map(|(at, key)| Some((at, key.as_ref()?))).collect();
    let mut wrong = Vec::new();
    for two in known.windows(2) {
        if let [(first, a), (second, b)] = two
            && a >= b
        {
            wrong.extend([*first, *second]);
        }
    }
    if wrong.is_empty() {
        return wrong;
    }
    let mut left = known.iter().filter(|(at, _)| !wrong.contains(at)).map(|(_, key)| key);
    let is_sorted = left.next().is_none_or(|mut last| {
        left.all(|key| {
            let goes_on = last < key;
            last = key;
            goes_on
        })
    });
    if is_sorted { wrong } else { known.iter().map(|(at, _)| *at).collect() }
}

//! Reads the pages of a damaged database file as of its last commit: from the WAL or the rollback
//! journal if they contain the page, otherwise from the file. Writes to none of them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::path::Path;
use std::rc::Rc;

use super::journal::journal;
use super::logs::{self, Overlay, is_page_size, read_at};
use super::page::{Kind, Node, number16, number32, reserved};
use crate::error::{Error, Result};
use crate::location::sibling;

const MAGIC: &[u8] = b"SQLite format 3\0";
/// Offset of the byte that SQLite locks. The page with this byte never has content.
const LOCK_BYTE: u64 = 0x4000_0000;
/// Maximum number of pages in the cache of an [`Image`].
const CACHED: usize = 32;
/// Minimum size of a page without its reserved bytes, in bytes, that SQLite supports.
const LEAST_USABLE: usize = 480;
/// Maximum number of pages that are examined for each possible page size, if page 1 does not show
/// the page size.
const LOOKED_AT: u64 = 4000;

/// Fields of the header of the file; default values if the header does not begin as that of a
/// SQLite file.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Header {
    /// Whether the header begins as the header of a SQLite file does.
    pub(super) is_sound: bool,
    /// Number of pages of the file, according to the header.
    pub(super) pages: Option<u32>,
    pub(super) first_free: u32,
    pub(super) free: u32,
    /// Whether the file has a pointer map.
    pub(super) has_map: bool,
    /// Whether the file uses incremental vacuum, as every store does.
    pub(super) is_incremental: bool,
    /// Version of the file format.
    pub(super) version: u32,
    pub(super) application_id: u32,
}

/// Bytes of a page; `None` if they cannot be read.
type Page = Option<Rc<[u8]>>;

pub(super) struct Image {
    file: File,
    length: u64,
    overlays: Vec<Overlay>,
    page_size: usize,
    /// Size of a page without its reserved bytes, in bytes.
    usable: usize,
    pages: u32,
    cache: RefCell<VecDeque<(u32, Page)>>,
}

impl Image {
    /// Opens the file and its log files. Also returns descriptions of the damage of the log files.
    pub(super) fn open(path: &Path) -> Result<(Image, Vec<String>)> {
        let failed = |e: std::io::Error| Error::cant_open(format!("cannot read the damaged file: {e}"));
        // Opening a FIFO would wait for a writer, so only a regular file is opened.
        let found = std::fs::metadata(path).map_err(failed)?;
        if !found.is_file() {
            return Err(Error::cant_open("the file to recover is not a regular file"));
        }
        let file = File::open(path).map_err(failed)?;
        let mut notes = Vec::new();
        let mut overlays = Vec::new();
        match logs::wal(&sibling(path, "-wal")) {
            Ok(overlay) => overlays.extend(overlay),
            Err(why) => notes.push(why),
        }
        notes.extend(overlays.iter_mut().flat_map(|wal| std::mem::take(&mut wal.notes)));
        let (overlay, why) = journal(&sibling(path, "-journal"), &file);
        let is_rolled_back = overlay.is_some() && overlays.is_empty();
        overlays.extend(overlay);
        notes.extend(why);
        let mut image = Image {
            file,
            length: found.len(),
            overlays,
            page_size: 0,
            usable: 0,
            pages: 0,
            cache: RefCell::default(),
        };
        let Some((page_size, reserved)) = image.find_page_size() else {
            return Err(Error::not_a_database(
                "no page of the file can be read as a page of a SQLite database, so nothing can be \
                recovered from it",
            ));
        };
        image.set_page_size(page_size, reserved);
        let size = image.page_size;
        let before = image.overlays.len();
        image.overlays.retain(|overlay| overlay.page_size == size);
        if image.overlays.len() < before {
            notes.push("the log beside the file has pages of another size: nothing in it counts".to_owned());
        }
        image.pages = image.overlays.first().map_or(image.pages_in_file(), |overlay| overlay.pages);
        image.cache.borrow_mut().clear();
        if let Some(pages) = image.header().pages.filter(|pages| is_rolled_back && *pages != image.pages) {
            notes.push(
                "the -journal says another number of pages than the file had: it is damaged".to_owned(),
            );
            image.pages = image.pages.max(pages);
        }
        Ok((image, notes))
    }

    fn set_page_size(&mut self, page_size: usize, reserved: usize) {
        self.page_size = page_size;
        self.usable = page_size - reserved;
        self.cache.borrow_mut().clear();
    }

    pub(super) fn page_size(&self) -> usize {
        self.page_size
    }

    pub(super) fn usable(&self) -> usize {
        self.usable
    }

    /// Returns the number of pages of the database, according to its log file, its header or its
    /// length. Some of these pages may be missing.
    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    /// Returns an upper bound on the number of pages that exist in the file or its log files.
    pub(super) fn pages_there(&self) -> u32 {
        let logged: usize = self.overlays.iter().map(|overlay| overlay.at.len()).sum();
        self.pages.min(self.pages_in_file().saturating_add(u32::try_from(logged).unwrap_or(u32::MAX)))
    }

    /// Returns the numbers of the pages that exist in the file or its log files, in ascending
    /// order.
    pub(super) fn numbers(&self) -> Vec<std::ops::RangeInclusive<u32>> {
        let in_file = self.pages_in_file().min(self.pages);
        let logged = self.overlays.iter().flat_map(|overlay| overlay.at.keys().copied());
        let beyond: std::collections::BTreeSet<u32> =
            logged.filter(|page| (in_file + 1..=self.pages).contains(page)).collect();
        std::iter::once(1..=in_file).chain(beyond.into_iter().map(|page| page..=page)).collect()
    }

    fn pages_in_file(&self) -> u32 {
        u32::try_from(self.length.div_ceil(self.page_size as u64)).unwrap_or(u32::MAX - 1)
    }

    /// Returns the bytes of a page; `None` if it does not exist or cannot be read.
    pub(super) fn page(&self, number: u32) -> Page {
        let mut cache = self.cache.borrow_mut();
        if let Some((_, page)) = cache.iter().find(|(cached, _)| *cached == number) {
            return page.clone();
        }
        let page: Page = self.read(number).map(Into::into);
        if cache.len() >= CACHED {
            cache.pop_back();
        }
        cache.push_front((number, page.clone()));
        page
    }

    fn read(&self, number: u32) -> Option<Vec<u8>> {
        for overlay in self.overlays.iter().filter(|overlay| overlay.page_size == self.page_size) {
            if overlay.lost.contains(&number) {
                return None;
            }
            if let Some(at) = overlay.at.get(&number) {
                return read_at(&overlay.file, *at, self.page_size);
            }
        }
        let at = u64::from(number.checked_sub(1)?) * self.page_size as u64;
        (at < self.length).then(|| read_at(&self.file, at, self.page_size))?
    }

    /// Returns the parsed page of a tree; `None` if the page is damaged or of another kind.
    pub(super) fn node(&self, number: u32, kind: Kind) -> Option<Node> {
        Node::parse(&self.page(number)?, number, self.usable, kind)
    }

    /// Returns the parsed page of a tree of any kind; `None` if the page is damaged.
    pub(super) fn any_node(&self, number: u32) -> Option<Node> {
        Node::parse_any(&self.page(number)?, number, self.usable)
    }

    /// Returns `true` for the page that SQLite locks and never writes.
    pub(super) fn is_lock_page(&self, number: u32) -> bool {
        u64::from(number) == LOCK_BYTE / self.page_size as u64 + 1
    }

    pub(super) fn header(&self) -> Header {
        let Some(page) = self.page(1) else { return Header::default() };
        let number = |at| number32(&page, at).unwrap_or(0);
        if !page.starts_with(MAGIC) {
            return Header::default();
        }
        let pages = Some(number(28)).filter(|pages| *pages > 0 && number(24) == number(92));
        Header {
            is_sound: true,
            pages,
            first_free: number(32),
            free: number(36),
            has_map: number(52) != 0,
            is_incremental: number(64) != 0,
            version: number(60),
            application_id: number(68),
        }
    }

    /// Returns the page size and the number of reserved bytes at the end of each page, both in
    /// bytes; `None` if no page is undamaged with any page size. The size in the header is used if
    /// page 1 is an undamaged page of that size, because then every byte of it agrees. Otherwise
    /// the size is used with which most pages are undamaged.
    fn find_page_size(&mut self) -> Option<(usize, usize)> {
        let start = read_at(&self.file, 0, self.length.min(100) as usize).unwrap_or_default();
        let said = start.starts_with(MAGIC).then(|| match number16(&start, 16) {
            Some(1) => 65_536,
            Some(bytes) => u32::from(bytes),
            None => 0,
        });
        let said = said.filter(|bytes| is_page_size(*bytes)).map(|bytes| bytes as usize);
        let mut sizes: Vec<usize> = said.into_iter().collect();
        sizes.extend(self.overlays.iter().map(|overlay| overlay.page_size));
        for size in sizes {
            let reserved = self.reserved_by_header(size);
            self.set_page_size(size, reserved);
            if self.node(1, Kind::Table).is_some() {
                return Some((size, reserved));
            }
        }
        let mut best = (0, None);
        for size in (9..=16).map(|power| 1usize << power) {
            let mut each = vec![0, self.reserved_by_header(size), self.reserved_by_pages(size)];
            each.sort_unstable();
            each.dedup();
            for reserved in each {
                self.set_page_size(size, reserved);
                let pages = (self.length / size as u64).min(LOOKED_AT) as u32;
                let logged =
                    self.overlays.iter().flat_map(|overlay| overlay.at.keys()).take(LOOKED_AT as usize);
                let logged = logged.copied().filter(|page| *page > pages).collect::<Vec<_>>();
                let is_sound = |page: &u32| self.any_node(*page).is_some_and(|node| !node.cells.is_empty());
                let sound = (1..=pages).chain(logged).filter(is_sound).count();
                if sound > best.0 {
                    best = (sound, Some((size, reserved)));
                }
            }
        }
        best.1
    }

    /// Returns the number of reserved bytes according to page 1.
    fn reserved_by_header(&mut self, page_size: usize) -> usize {
        self.set_page_size(page_size, 0);
        let first = self.page(1).filter(|page| page.starts_with(MAGIC));
        let reserved = first.and_then(|page| page.get(20).copied()).map_or(0, usize::from);
        if page_size >= LEAST_USABLE + reserved { reserved } else { 0 }
    }

    /// Returns the number of reserved bytes that most pages suggest. If page 1 is unreadable,
    /// nothing else shows the number.
    fn reserved_by_pages(&mut self, page_size: usize) -> usize {
        self.set_page_size(page_size, 0);
        let pages = (self.length / page_size as u64).min(LOOKED_AT / 4) as u32;
        let mut seen = std::collections::BTreeMap::<usize, usize>::new();
        for page in (1..=pages).filter_map(|page| Some((page, self.page(page)?))) {
            if let Some(bytes) = reserved(&page.1, page.0).filter(|bytes| page_size >= LEAST_USABLE + bytes) {
                *seen.entry(bytes).or_default() += 1;
            }
        }
        seen.into_iter().max_by_key(|(_, count)| *count).map_or(0, |(bytes, _)| bytes)
    }
}

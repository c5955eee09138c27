//! Recovery: saves every row that can be read of a damaged file into a new store.
//!
//! The damaged file is read as bytes, without SQLite, which stops at the first thing that is wrong. [`image`] has its
//! pages as the last commit left them ([`logs`]: with what lies beside it), [`page`] and [`record`] take them apart,
//! [`map`] knows which page belongs to whom, [`walk`] goes through the trees, [`orphans`] finds what the walk does not
//! reach, [`find`] says which tree is which family's, and [`save`] writes the new store.
//!
//! Nothing is invented: a row is saved if everything about it agrees, or else it is lost, and said to be. What nothing
//! in the file can tell is a byte that was changed inside a key, a value or a time.

mod find;
mod image;
mod logs;
mod map;
mod orphans;
mod page;
mod record;
mod save;
mod walk;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;

use crate::error::{Error, Result};
use crate::store::NewFile;
use find::{Contents, Found};
use image::Image;
use map::Map;
use orphans::{Orphan, Orphans};
use page::Kind;
use save::Saving;
use walk::{Entry, Forest, Visitor};

/// "KVS1", as in docs/file-format.md.
const APPLICATION_ID: u32 = 0x4B56_5331;
/// Pages between two reports of progress.
const PAGES_PER_REPORT: u64 = 64;

/// What [`recover`] tells of while it works.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Recovering<'a> {
    /// So many pages were read, of about so many.
    Pages {
        /// Read so far.
        done: u64,
        /// All there are to be read.
        total: u64,
    },
    /// Something is lost.
    Lost(Loss<'a>),
}

/// Something that could not be saved; what `Display` shows is for people.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Loss<'a> {
    /// Of what: `family "sessions"`, or a part of the file.
    pub of: &'a str,
    /// The key of the row, if it is one and its key is known.
    pub key: Option<&'a [u8]>,
    /// The page it was on, as SQLite counts them; 0: none.
    pub page: u32,
    /// Whether it is one row; otherwise all that the page had.
    pub is_row: bool,
    /// Why.
    pub why: &'a str,
}

impl fmt::Display for Loss<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.of)?;
        match (self.is_row, self.key) {
            (true, Some(key)) => write!(f, "the row \"{}\" is lost: {}", key.escape_ascii(), self.why)?,
            (true, None) => write!(f, "a row is lost: {}", self.why)?,
            (false, _) => write!(f, "{}", self.why)?,
        }
        if self.page == 0 { Ok(()) } else { write!(f, " (page {})", self.page) }
    }
}

/// What a recovery has saved, and what not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// Rows that are in the new store.
    pub rows: u64,
    /// Rows that had expired, and were left out.
    pub expired: u64,
    /// Rows of which something was there, but not all.
    pub rows_lost: u64,
    /// Pages that could not be read. How many rows they had, nobody knows.
    pub pages_lost: u64,
    /// Everything else that was said to be lost.
    pub other_losses: u64,
    /// Families in the new store, the default one included.
    pub families: u64,
}

impl Recovered {
    /// Whether nothing is lost.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.rows_lost + self.pages_lost + self.other_losses == 0
    }
}

/// Saves every row that can be read of the file `from`, which may be damaged, into a new store at `to`: with its value,
/// its end of life, its write time and its family, whose settings are kept. Rows that have expired are left out.
///
/// It is read as bytes and never written, with the `-wal` or the rollback journal beside it; nobody may have it open
/// meanwhile, or else changes of these moments may seem to be damage. `report` is told what is lost, as it is found, and
/// how far the work has come; [`Break`](ControlFlow::Break) stops it, and no file is left. The new store gets its name
/// when it is whole.
///
/// No row is invented. A page of which anything does not agree is not used, and neither is a free one, which may have
/// deleted rows; what cannot be reached any more is given to a tree only if the file says to which one. Rows whose
/// family nothing names are saved in families called `recovered-1`, and so on. But values have no checksums: a byte
/// changed inside a key, a value or a time is not noticed.
///
/// # Errors
/// [`CantOpen`](crate::ErrorKind::CantOpen) if `from` cannot be read,
/// [`NotADatabase`](crate::ErrorKind::NotADatabase) if nothing in it is of a store; `Error` if `to` exists or cannot be
/// the name of a store, or if `report` said stop; what writing the new store fails with. No file is left then.
pub fn recover(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    mut report: impl FnMut(Recovering<'_>) -> ControlFlow<()>,
) -> Result<Recovered> {
    let read = || Image::open(from.as_ref());
    let (new, (image, notes)) = NewFile::begin(to.as_ref(), Some(from.as_ref()), "new store", read)?;
    let reporter =
        RefCell::new(Reporter { report: &mut report, counts: Recovered::default(), faults: HashSet::new() });
    for note in &notes {
        reporter.borrow_mut().other("the file", 0, note)?;
    }
    let header = image.header();
    let forest = Forest { image: &image, map: Map::of(&image, &header), faulty: RefCell::default() };
    let mut tell = |of: &str, page: u32, why: &str| reporter.borrow_mut().other(of, page, why);
    let contents = find::find(&forest, &mut tell)?;
    if !contents.is_store && header.application_id != APPLICATION_ID {
        return Err(Error::not_a_database(
            "there is nothing of a store in the file, so nothing can be recovered from it",
        ));
    }
    if header.pages.is_some_and(|pages| pages > image.pages_there()) {
        tell("the file", 0, "ends before it should: pages are missing")?;
    }
    let saving = Saving::begin(new.partial(), image.page_size())?;
    let pages = u64::from(image.pages_there());
    let mut work = Work { forest: &forest, reporter: &reporter, done: 0, total: 2 * pages };
    work.save(&contents, &saving)?;
    saving.finish(&contents, &mut tell)?;
    new.finish()?;
    let counts = reporter.borrow().counts;
    Ok(counts)
}

/// Tells the caller, and counts.
struct Reporter<'r> {
    report: &'r mut dyn FnMut(Recovering<'_>) -> ControlFlow<()>,
    counts: Recovered,
    /// Pages that were told of.
    faults: HashSet<u32>,
}

impl Reporter<'_> {
    fn tell(&mut self, what: Recovering<'_>) -> Result<()> {
        match (self.report)(what) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => {
                Err(Error::invalid("the recovery was stopped by its caller; no file is left"))
            }
        }
    }

    fn other(&mut self, of: &str, page: u32, why: &str) -> Result<()> {
        self.counts.other_losses += 1;
        self.tell(Recovering::Lost(Loss { of, key: None, page, is_row: false, why }))
    }

    fn row(&mut self, of: &str, page: u32, key: Option<&[u8]>, why: &str) -> Result<()> {
        self.counts.rows_lost += 1;
        self.tell(Recovering::Lost(Loss { of, key, page, is_row: true, why }))
    }

    fn page(&mut self, of: &str, page: u32, why: &str) -> Result<()> {
        if !self.faults.insert(page) {
            return Ok(());
        }
        self.counts.pages_lost += 1;
        let why = format!("a page {why}, and what was on it is lost");
        self.tell(Recovering::Lost(Loss { of, key: None, page, is_row: false, why: &why }))
    }
}

/// A family with all that is known of its trees.
struct Family {
    found: Found,
    /// How it is called in what is told.
    of: String,
    /// Where to begin to walk through its rows.
    data: Vec<u32>,
    /// Its large values: their ids, and where they are; sorted.
    large: Vec<(i64, u32, u32)>,
    /// The ids that its rows name; sorted.
    ids: Vec<i64>,
    has_write_times: bool,
    /// Its tree could be read from end to end.
    is_whole: bool,
}

struct Work<'f> {
    forest: &'f Forest<'f>,
    reporter: &'f RefCell<Reporter<'f>>,
    done: u64,
    total: u64,
}

impl<'f> Work<'f> {
    fn note_page(&mut self) -> Result<()> {
        self.done += 1;
        if !self.done.is_multiple_of(PAGES_PER_REPORT) {
            return Ok(());
        }
        let (done, total) = (self.done.min(self.total), self.total);
        self.reporter.borrow_mut().tell(Recovering::Pages { done, total })
    }

    fn save(&mut self, contents: &Contents, saving: &Saving) -> Result<()> {
        let mut families = Vec::with_capacity(contents.families.len());
        for found in &contents.families {
            families.push(self.look_at(found)?);
        }
        let mut unowned = Vec::new();
        for root in &contents.blobs {
            let mut large = Large::new(self, "large values of an unknown family");
            large.walk(*root)?;
            unowned.push((large.places, large.is_whole));
        }
        self.add_orphans(contents, &mut families)?;
        for family in &mut families {
            family.large.sort_by_key(|(id, ..)| *id); // stable: what the walk has met comes first
            family.large.dedup_by_key(|(id, ..)| *id);
            family.ids.sort_unstable();
        }
        if contents.is_whole {
            match_large_values(&mut families, unowned);
        }
        for family in &families {
            self.save_family(family, saving)?;
        }
        self.reporter.borrow_mut().counts.families = saving.families()?;
        Ok(())
    }

    /// The first walk: claims the pages, and sees which large values there are and which are named.
    fn look_at(&mut self, found: &Found) -> Result<Family> {
        let of = format!("family \"{}\"", found.name);
        let mut family = Family {
            found: found.clone(),
            of,
            data: Vec::new(),
            large: Vec::new(),
            ids: Vec::new(),
            has_write_times: false,
            is_whole: true,
        };
        if let Some(root) = found.blob {
            let mut large = Large::new(self, &family.of);
            large.walk(root)?;
            family.large = large.places;
        }
        self.look_at_rows(&mut family, found.data)?;
        Ok(family)
    }

    fn look_at_rows(&mut self, family: &mut Family, top: Option<u32>) -> Result<()> {
        let Some(top) = top else { return Ok(()) };
        family.data.push(top);
        let forest = self.forest;
        let mut looking = Looking { work: self, family };
        forest.walk(top, Kind::Index, &mut looking)
    }

    /// What no walk has reached, where the file says whose it is.
    fn add_orphans(&mut self, contents: &Contents, families: &mut Vec<Family>) -> Result<()> {
        let forest = self.forest;
        if forest.faulty.borrow().is_empty() {
            return Ok(());
        }
        let Orphans { mut of, strays } = forest.orphans();
        for family in families.iter_mut() {
            let mut tops = |root: Option<u32>| root.and_then(|root| of.remove(&root)).unwrap_or_default();
            let (data, blob) = (tops(family.found.data), tops(family.found.blob));
            self.adopt(family, &data, &blob)?;
        }
        self.add_nameless(families, of, contents.list_is_whole)?;
        let lost = self.strays(contents, families, &strays)?;
        for page in lost {
            self.reporter.borrow_mut().page(
                "the file",
                page,
                "with rows belongs to a family that nothing names",
            )?;
        }
        Ok(())
    }

    /// Makes families of rows that belong together, and nobody knows to what else.
    fn add_nameless(
        &mut self,
        families: &mut Vec<Family>,
        of: HashMap<u32, Vec<Orphan>>,
        list_is_whole: bool,
    ) -> Result<()> {
        let forest = self.forest;
        let mut groups: Vec<_> = of.into_iter().collect();
        groups.sort_unstable_by_key(|(top, _)| *top);
        for (top, orphans) in groups {
            let pages: Vec<u32> = orphans.iter().map(|orphan| orphan.page).collect();
            let sound =
                forest.strays_of(&pages, Kind::Index, top, |record| record::data_row(record).is_some());
            if sound.is_empty() || list_is_whole && forest.map.is_root(forest.image, top) {
                continue; // an index, or somebody else's
            }
            let names = (1..).map(|n| format!("recovered-{n}"));
            let name =
                names.into_iter().find(|name| families.iter().all(|family| family.found.name != *name));
            let found = Found { name: name.unwrap_or_default(), ..Found::default() };
            let mut family = self.look_at(&found)?;
            let why = "is the name given to rows whose family is not known";
            self.reporter.borrow_mut().other(&family.of, top, why)?;
            let known: Vec<Orphan> = sound
                .iter()
                .filter_map(|sound| orphans.iter().find(|orphan| orphan.page == sound.page).copied())
                .collect();
            self.adopt(&mut family, &known, &[])?;
            families.push(family);
        }
        Ok(())
    }

    fn adopt(&mut self, family: &mut Family, data: &[Orphan], blob: &[Orphan]) -> Result<()> {
        for orphan in data.iter().filter(|orphan| self.forest.claim_orphan(**orphan)) {
            self.look_at_rows(family, Some(orphan.page))?;
        }
        for orphan in blob.iter().filter(|orphan| self.forest.claim_orphan(**orphan)) {
            let mut large = Large::new(self, &family.of);
            large.walk(orphan.page)?;
            family.large.append(&mut large.places);
        }
        Ok(())
    }

    /// Gives pages of which nothing says where they belong to the one tree that misses some, if there is one only,
    /// and if they can be neither free nor somebody else's. The pages with rows that are left are answered.
    fn strays(&mut self, contents: &Contents, families: &mut [Family], strays: &[u32]) -> Result<Vec<u32>> {
        let forest = self.forest;
        let is_row = |record: &[u8]| record::data_row(record).is_some();
        let is_known = contents.is_whole && forest.map.knows_free() && !contents.has_others;
        let misses = |kind: Kind| {
            let faulty = forest.faulty.borrow();
            let mut faulty = faulty.iter().filter_map(|page| Some((forest.root_above(*page)?, *page)));
            let of = move |family: &Family| match kind {
                Kind::Index => family.found.data,
                Kind::Table => family.found.blob,
            };
            let mut one: Option<(u32, u32)> = None;
            faulty
                .all(|(root, page)| {
                    let is_sort = families.iter().any(|family| of(family) == Some(root));
                    if is_sort && one.is_some_and(|(known, _)| known != root) {
                        return false;
                    }
                    if is_sort {
                        one.get_or_insert((root, page));
                    }
                    true
                })
                .then_some(one)
                .flatten()
        };
        let (data, blob) = (misses(Kind::Index), misses(Kind::Table));
        if is_known {
            let tops = |kind, parent, is_form: &dyn Fn(&[u8]) -> bool| {
                forest.strays_of(strays, kind, parent, is_form)
            };
            for family in families.iter_mut() {
                let of = |one: Option<(u32, u32)>, root: Option<u32>| {
                    one.filter(|(known, _)| Some(*known) == root).map(|(_, page)| page)
                };
                let mut adopted = (Vec::new(), Vec::new());
                if let Some(parent) = of(data, family.found.data) {
                    adopted.0 = tops(Kind::Index, parent, &is_row);
                }
                if let Some(parent) = of(blob, family.found.blob) {
                    adopted.1 = tops(Kind::Table, parent, &|record| record::large_value(record).is_some());
                }
                self.adopt(family, &adopted.0, &adopted.1)?;
            }
        }
        let rows = forest.strays_of(strays, Kind::Index, 0, is_row);
        Ok(rows.iter().map(|orphan| orphan.page).filter(|page| !forest.map.is_claimed(*page)).collect())
    }

    fn save_family(&mut self, family: &Family, saving: &Saving) -> Result<()> {
        let batch = saving.family(&family.found, family.has_write_times)?;
        let forest = self.forest;
        for top in &family.data {
            let mut rows = save::Rows { work: self, family, batch: &batch };
            forest.walk(*top, Kind::Index, &mut rows)?;
        }
        let counts = batch.finish()?;
        let mut reporter = self.reporter.borrow_mut();
        reporter.counts.rows += counts;
        Ok(())
    }
}

/// Gives trees of large values to families whose rows name exactly those: if it can be one family's only.
fn match_large_values(families: &mut [Family], unowned: Vec<(Places, bool)>) {
    let mut pairs = Vec::new();
    for (at, (places, is_whole)) in unowned.iter().enumerate() {
        let fits = |family: &Family| {
            family.found.blob.is_none()
                && family.is_whole
                && *is_whole
                && family.ids.len() == places.len()
                && family.ids.iter().zip(places).all(|(id, (place, ..))| id == place)
        };
        let mut fitting = families.iter().enumerate().filter(|(_, family)| fits(family));
        if let (Some((family, _)), None) = (fitting.next(), fitting.next()) {
            pairs.push((family, at));
        }
    }
    let mut unowned: Vec<Option<Places>> = unowned.into_iter().map(|(places, _)| Some(places)).collect();
    for (family, at) in &pairs {
        let is_only_one = pairs.iter().filter(|(other, _)| other == family).count() == 1;
        if let (true, Some(family), Some(places)) =
            (is_only_one, families.get_mut(*family), unowned.get_mut(*at).and_then(Option::take))
        {
            family.large = places;
        }
    }
}

/// Large values: their ids, and the pages and cells where they are.
type Places = Vec<(i64, u32, u32)>;

/// The walk through a tree of large values.
struct Large<'w, 'f> {
    work: &'w mut Work<'f>,
    of: &'w str,
    places: Places,
    is_whole: bool,
}

impl<'w, 'f> Large<'w, 'f> {
    fn new(work: &'w mut Work<'f>, of: &'w str) -> Large<'w, 'f> {
        Large { work, of, places: Vec::new(), is_whole: true }
    }

    fn walk(&mut self, top: u32) -> Result<()> {
        let forest = self.work.forest;
        forest.walk(top, Kind::Table, self)
    }
}

impl Visitor for Large<'_, '_> {
    fn entry(&mut self, entry: Entry<'_>) -> Result<()> {
        self.places.push((entry.rowid, entry.page, entry.cell as u32));
        Ok(())
    }

    /// The rows that name them will be told of.
    fn lost_entry(&mut self, _: u32, _: Option<&[u8]>, _: &str) -> Result<()> {
        self.is_whole = false;
        Ok(())
    }

    fn lost_page(&mut self, page: u32, why: &str) -> Result<()> {
        self.is_whole = false;
        self.work.reporter.borrow_mut().page(self.of, page, &format!("with large values {why}"))
    }

    fn page(&mut self) -> Result<()> {
        self.work.note_page()
    }

    fn key_of<'r>(&self, _: &'r [u8]) -> Option<&'r [u8]> {
        None
    }
}

/// The first walk through the rows of a family.
struct Looking<'w, 'f> {
    work: &'w mut Work<'f>,
    family: &'w mut Family,
}

impl Visitor for Looking<'_, '_> {
    fn entry(&mut self, entry: Entry<'_>) -> Result<()> {
        if let Some(row) = record::data_row(entry.record) {
            self.family.has_write_times |= row.written_ms.is_some();
            if let record::Where::OutOfLine(id) = row.value {
                self.family.ids.push(id);
            }
        }
        Ok(())
    }

    fn lost_entry(&mut self, _: u32, _: Option<&[u8]>, _: &str) -> Result<()> {
        self.family.is_whole = false;
        Ok(())
    }

    fn lost_page(&mut self, _: u32, _: &str) -> Result<()> {
        self.family.is_whole = false;
        Ok(())
    }

    fn page(&mut self) -> Result<()> {
        self.work.note_page()
    }

    fn key_of<'r>(&self, record: &'r [u8]) -> Option<&'r [u8]> {
        record::data_row(record).map(|row| row.key)
    }
}

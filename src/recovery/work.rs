//! Walks twice through the trees of all families. The first walk records which pages belong to each
//! family, and finds the existing large values. The second walk saves the rows. This module must
//! not know how pages and trees are read.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use super::event::RecoverEvent;
use super::find::{Contents, Found};
use super::orphans::{Orphan, Orphans};
use super::page::Kind;
use super::record;
use super::report::Reporter;
use super::save::{self, Saving};
use super::walk::{Entry, Forest, Visitor};
use crate::error::Result;

/// Number of pages that are read between two progress events.
const PAGES_PER_REPORT: u64 = 64;

/// Family with the locations of its rows and large values.
pub(super) struct Family {
    pub(super) found: Found,
    /// Name of the family in reported losses, such as `family "sessions"`.
    pub(super) of: String,
    /// Pages at which the walks through the rows begin: the root page, and pages of the same tree
    /// that cannot be reached from the root page (orphans).
    data: Vec<u32>,
    /// Ids and locations of the large values of the family, sorted by id.
    pub(super) large: Places,
    /// Ids of the large values to which rows of the family refer, sorted.
    pub(super) ids: Vec<i64>,
    has_write_times: bool,
    /// Whether the whole data tree could be read.
    is_whole: bool,
}

/// Progress of the recovery: the number of pages read, of an estimated total.
pub(super) struct Progress<'f> {
    reporter: &'f RefCell<Reporter<'f>>,
    done: Cell<u64>,
    total: u64,
}

impl<'f> Progress<'f> {
    pub(super) fn new(reporter: &'f RefCell<Reporter<'f>>, total: u64) -> Progress<'f> {
        Progress { reporter, done: Cell::new(0), total }
    }

    pub(super) fn note_page(&self) -> Result<()> {
        let done = self.done.get() + 1;
        self.done.set(done);
        if !done.is_multiple_of(PAGES_PER_REPORT) {
            return Ok(());
        }
        let (done, total) = (done.min(self.total), self.total);
        self.reporter.borrow_mut().tell(RecoverEvent::Progress { pages_done: done, pages_total: total })
    }
}

pub(super) struct Work<'f> {
    pub(super) forest: &'f Forest<'f>,
    pub(super) reporter: &'f RefCell<Reporter<'f>>,
    pub(super) progress: &'f Progress<'f>,
}

impl<'f> Work<'f> {
    pub(super) fn save(&self, contents: &Contents, saving: &Saving) -> Result<()> {
        let rows = contents.families.iter().flat_map(|found| [found.data, found.blob]).flatten();
        *self.forest.rows.borrow_mut() = Some(rows.chain(contents.blobs.iter().copied()).collect());
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
            family.large.sort_by_key(|(id, ..)| *id); // stable: values of orphans stay last
            family.large.dedup_by_key(|(id, ..)| *id);
            family.ids.sort_unstable();
        }
        if contents.is_whole {
            match_large_values(&mut families, unowned);
        }
        self.note_unnamed_values(&families)?;
        for family in &families {
            self.save_family(family, saving)?;
        }
        self.reporter.borrow_mut().counts.families = saving.families()?;
        Ok(())
    }

    /// Makes the first walk through a family: records which pages belong to it, and collects its
    /// large values and the ids of the large values to which its rows refer.
    fn look_at(&self, found: &Found) -> Result<Family> {
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

    fn look_at_rows(&self, family: &mut Family, top: Option<u32>) -> Result<()> {
        let Some(top) = top else { return Ok(()) };
        family.data.push(top);
        let forest = self.forest;
        let mut looking = Looking { work: self, family };
        forest.walk(top, Kind::Index, &mut looking)
    }

    /// Adds the pages that the first walk has not reached to their families, if the file shows to
    /// which family they belong.
    fn add_orphans(&self, contents: &Contents, families: &mut Vec<Family>) -> Result<()> {
        let forest = self.forest;
        // Without damaged pages, an unreached page shows a loss only if it cannot be free or in a
        // table of another program. The pointer map excludes that; so does a known free list in a
        // file without tables of other programs.
        let is_known = forest.map.has_entries() || forest.map.knows_free() && !contents.has_others;
        if forest.faulty.borrow().is_empty() && !is_known {
            return Ok(());
        }
        let Orphans { mut of, strays, unplaced } = forest.orphans();
        for family in families.iter_mut() {
            let mut tops = |root: Option<u32>| root.and_then(|root| of.remove(&root)).unwrap_or_default();
            let (data, blob) = (tops(family.found.data), tops(family.found.blob));
            self.adopt(family, &data, &blob)?;
        }
        self.add_nameless(families, of, contents.list_is_whole)?;
        let mut lost = self.strays(contents, families, &strays)?;
        lost.extend(self.pages_with_rows(&unplaced));
        for page in lost {
            self.reporter.borrow_mut().page(
                "the file",
                page,
                "with rows belongs to a family that nothing names",
            )?;
        }
        Ok(())
    }

    /// Creates a family `recovered-N` for each group of orphans that contains rows and belongs to
    /// no known family. `of` contains the groups, by the highest known page of their tree.
    fn add_nameless(
        &self,
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
                continue; // an index, or a tree of another program
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

    fn adopt(&self, family: &mut Family, data: &[Orphan], blob: &[Orphan]) -> Result<()> {
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

    /// Assigns the pages `strays`, which have no usable entry in the pointer map, to a tree of rows
    /// or of large values that lacks pages. Does so only if no other tree of the same kind lacks
    /// pages, and if the pages can be neither free nor in a table of another program. Returns the
    /// remaining pages that have rows.
    fn strays(&self, contents: &Contents, families: &mut [Family], strays: &[u32]) -> Result<Vec<u32>> {
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
        Ok(self.pages_with_rows(strays))
    }

    /// Returns the pages in `pages` that belong to no tree yet and contain rows of a data table.
    fn pages_with_rows(&self, pages: &[u32]) -> Vec<u32> {
        let is_row = |record: &[u8]| record::data_row(record).is_some();
        let rows = self.forest.strays_of(pages, Kind::Index, 0, is_row);
        rows.iter().map(|orphan| orphan.page).filter(|page| !self.forest.map.is_claimed(*page)).collect()
    }

    /// Reports the large values to which no row refers. A row must have referred to each of them,
    /// so that row is lost, even if nothing else shows the loss.
    fn note_unnamed_values(&self, families: &[Family]) -> Result<()> {
        for family in families.iter().filter(|family| family.is_whole) {
            let is_unnamed = |id: &&(i64, u32, u32)| family.ids.binary_search(&id.0).is_err();
            let unnamed = family.large.iter().filter(is_unnamed).count();
            if unnamed > 0 {
                let why = format!("the rows of {unnamed} large values are lost");
                self.reporter.borrow_mut().other(&family.of, 0, &why)?;
            }
        }
        Ok(())
    }

    fn save_family(&self, family: &Family, saving: &Saving) -> Result<()> {
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

/// Assigns trees of large values to families without one. A tree is assigned if its ids are exactly
/// those to which the rows of the family refer, if tree and rows were readable completely, and if
/// neither another family nor another tree fits.
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

/// Locations of large values: the id, the page and the cell index of each.
pub(super) type Places = Vec<(i64, u32, u32)>;

/// Visitor that collects the locations in a tree of large values.
struct Large<'w, 'f> {
    work: &'w Work<'f>,
    of: &'w str,
    places: Places,
    is_whole: bool,
}

impl<'w, 'f> Large<'w, 'f> {
    fn new(work: &'w Work<'f>, of: &'w str) -> Large<'w, 'f> {
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

    /// Reports nothing: the row that refers to the lost value is reported later.
    fn lost_entry(&mut self, _: u32, _: Option<&[u8]>, _: &str) -> Result<()> {
        self.is_whole = false;
        Ok(())
    }

    fn lost_page(&mut self, page: u32, why: &str) -> Result<()> {
        self.is_whole = false;
        self.work.reporter.borrow_mut().page(self.of, page, &format!("with large values {why}"))
    }

    fn page(&mut self) -> Result<()> {
        self.work.progress.note_page()
    }

    fn key_of<'r>(&self, _: &'r [u8]) -> Option<&'r [u8]> {
        None
    }
}

/// Visitor of the first walk through the rows of a family. Collects the ids of the large values to
/// which they refer, and whether they have write times.
struct Looking<'w, 'f> {
    work: &'w Work<'f>,
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
        self.work.progress.note_page()
    }

    fn key_of<'r>(&self, record: &'r [u8]) -> Option<&'r [u8]> {
        record::data_row(record).map(|row| row.key)
    }
}

//! Recovery: saves every readable row of a damaged file into a new store.
//!
//! The damaged file is read as bytes, without SQLite, which stops at the first damage. The modules:
//! - [`image`] holds the pages as of the last commit, with the help of [`logs`] and [`journal`];
//! - [`page`] and [`record`] decode pages and rows;
//! - [`map`] knows the owner of each page, [`survey`] and [`trust`] which page is a copy of
//!   another;
//! - [`walk`] visits the trees, and [`orphans`] finds what it does not reach;
//! - [`find`] assigns trees to families, and [`work`] joins the tables of each family;
//! - [`save`] writes the new store, and [`report`] reports what is lost.
//!
//! Nothing is invented: a row is saved only if everything about it agrees; otherwise it is reported
//! as lost. docs/reference/file-format.md describes what cannot be decided from the file.

mod find;
mod image;
mod journal;
mod logs;
mod map;
mod orphans;
mod page;
mod record;
mod report;
mod save;
mod survey;
mod trust;
mod walk;
mod work;

use std::cell::RefCell;
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;

use crate::db::FORMAT_VERSION;
use crate::error::{Error, Result};
use crate::place::check_scheme;
use crate::store::NewFile;
use image::Image;
use map::Map;
use report::Reporter;
use save::Saving;
use survey::Survey;
use walk::Forest;
use work::{Progress, Work};

/// "KVS1", as in docs/reference/file-format.md.
const APPLICATION_ID: u32 = 0x4B56_5331;

/// Event that [`recover`] passes to its callback: progress, or a loss.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum RecoverEvent<'a> {
    /// Progress: further pages were read.
    Progress {
        /// Number of pages read so far.
        pages_done: u64,
        /// Estimated number of pages to read. Each page of the file is read several times.
        pages_total: u64,
    },
    /// A loss: something could not be saved.
    Lost(Loss<'a>),
}

/// Description of something that could not be saved. `Display` shows it in one line.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Loss<'a> {
    /// Part of the file in which the loss is, such as `family "sessions"` or `the file`.
    pub location: &'a str,
    /// Key of the lost row; `None` if the loss is not a row, or if its key is not known.
    pub key: Option<&'a [u8]>,
    /// Number of the page with the loss, counted from 1 as SQLite does; `None` if no particular
    /// page is affected.
    pub page: Option<u32>,
    /// Whether exactly one row is lost. `false`: the loss is larger, such as everything on a page.
    pub is_row: bool,
    /// Reason of the loss, as text for a person.
    pub reason: &'a str,
}

impl fmt::Display for Loss<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.location)?;
        match (self.is_row, self.key) {
            (true, Some(key)) => write!(f, "the row \"{}\" is lost: {}", key.escape_ascii(), self.reason)?,
            (true, None) => write!(f, "a row is lost: {}", self.reason)?,
            (false, _) => write!(f, "{}", self.reason)?,
        }
        match self.page {
            Some(page) => write!(f, " (page {page})"),
            None => Ok(()),
        }
    }
}

/// Result of [`recover`]: how much was saved, and how much was lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoverReport {
    /// Number of rows in the new store.
    pub rows: u64,
    /// Number of rows that were left out because they had expired.
    pub expired: u64,
    /// Number of rows that were lost because only a part of them was found.
    pub rows_lost: u64,
    /// Number of unreadable pages. The number of rows on them is unknown.
    pub pages_lost: u64,
    /// Number of other losses that were reported.
    pub other_losses: u64,
    /// Number of families in the new store, including the default one.
    pub families: u64,
}

impl RecoverReport {
    /// Returns `true` if nothing was lost.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.rows_lost + self.pages_lost + self.other_losses == 0
    }
}

/// Saves every readable row of the file `from`, which may be damaged, into a new store at `to`.
///
/// A row is saved with its value, expiry time, write time and family, and families with their
/// settings. Expired rows are left out. The new store gets its name when it is complete.
///
/// `report` is called with each loss as it is found, and with the progress. If it returns
/// [`Break`](ControlFlow::Break), the recovery stops.
///
/// The file is read as bytes and never written, together with its `-wal` or rollback journal. No
/// process should have it open: changes during the recovery can look like damage.
///
/// No row is invented. Pages that are inconsistent, copies of another page, or free (which may
/// contain deleted rows) are not used. Pages that the tables no longer lead to are used only if the
/// file shows which table they belong to. Rows of unknown families are saved in families named
/// `recovered-1` and so on. Values have no checksums: a changed byte in a key, value or time is not
/// detected.
///
/// # Errors
/// No new file is left then.
/// - [`CantOpen`](crate::ErrorKind::CantOpen): `from` cannot be read.
/// - [`NotADatabase`](crate::ErrorKind::NotADatabase): `from` contains nothing of a store.
/// - [`Error`](crate::ErrorKind::Error): `to` exists or cannot be the name of a store, or `report`
///   stopped the recovery.
/// - The errors of writing the new store: `CantOpen`, `ReadOnly`, `Full`, `Io`, `NoMemory`.
pub fn recover(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    mut report: impl FnMut(RecoverEvent<'_>) -> ControlFlow<()>,
) -> Result<RecoverReport> {
    check_scheme(from.as_ref())?;
    let read = || Image::open(from.as_ref());
    let (new, (image, notes)) = NewFile::begin(to.as_ref(), Some(from.as_ref()), None, "new store", read)?;
    let reporter = RefCell::new(Reporter::new(&mut report));
    for note in &notes {
        reporter.borrow_mut().other("the file", 0, note)?;
    }
    let header = image.header();
    let map = Map::of(&image, &header);
    // Each page is read once for the survey, and once for each of two walks.
    let progress = Progress::new(&reporter, 3 * u64::from(image.pages_there()));
    let survey = Survey::of(&image, &map, &mut || progress.note_page())?;
    let forest = Forest { image: &image, map, survey, rows: RefCell::default(), faulty: RefCell::default() };
    let mut tell = |of: &str, page: u32, why: &str| reporter.borrow_mut().other(of, page, why);
    let contents = find::find(&forest, &mut tell)?;
    if !contents.is_store && header.application_id != APPLICATION_ID {
        return Err(Error::not_a_database(
            "the file contains no part of a store, so nothing can be recovered from it",
        ));
    }
    if header.version > FORMAT_VERSION.unsigned_abs() {
        let why =
            format!("says that it has format version {}, which may keep rows otherwise", header.version);
        tell("the file", 1, &why)?;
    }
    if header.pages.is_some_and(|pages| pages > image.pages_there()) {
        tell("the file", 0, "ends before it should: pages are missing")?;
    }
    let saving = Saving::begin(new.partial(), image.page_size())?;
    let work = Work { forest: &forest, reporter: &reporter, progress: &progress };
    work.save(&contents, &saving)?;
    saving.finish(&contents, &mut tell)?;
    new.finish()?;
    let counts = reporter.borrow().counts;
    Ok(counts)
}

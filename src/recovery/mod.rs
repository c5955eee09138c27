//! Recovery: saves every row that can be read of a damaged file into a new store.
//!
//! The damaged file is read as bytes, without SQLite, which stops at the first thing that is wrong. [`image`] has its
//! pages as the last commit left them ([`logs`] and [`journal`]: with what lies beside it), [`page`] and [`record`] take them apart,
//! [`map`] knows which page belongs to whom, [`survey`] and [`trust`] which is a copy of another one, [`walk`] goes
//! through the trees, [`orphans`] finds what the walk does not reach, [`find`] says which tree is which family's,
//! [`work`] puts together what belongs to one, [`save`] writes the new store, and [`report`] tells what is lost.
//!
//! Nothing is invented: a row is saved if everything about it agrees, or else it is lost, and said to be. What nothing
//! in the file can tell is in docs/reference/file-format.md.

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

/// What [`recover`] tells of while it works.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum RecoverEvent<'a> {
    /// So many pages were read, of about so many.
    Progress {
        /// Read so far.
        pages_done: u64,
        /// All there are to be read.
        pages_total: u64,
    },
    /// Something is lost.
    Lost(Loss<'a>),
}

/// Something that could not be saved; what `Display` shows is for people.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Loss<'a> {
    /// Of what: `family "sessions"`, or a part of the file.
    pub location: &'a str,
    /// The key of the row, if it is one and its key is known.
    pub key: Option<&'a [u8]>,
    /// The page it was on, as SQLite counts them; 0: none.
    pub page: Option<u32>,
    /// Whether it is one row; otherwise all that the page had.
    pub is_row: bool,
    /// Why.
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

/// What a recovery has saved, and what not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoverReport {
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

impl RecoverReport {
    /// Whether nothing is lost.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.rows_lost + self.pages_lost + self.other_losses == 0
    }
}

/// Saves every row that can be read of the file `from`, which may be damaged, into a new store at `to`: with its value,
/// its end of life, its write time and its family, whose settings are kept. Rows that have expired are left out.
///
/// It is read as bytes and never written, with the `-wal` or the rollback journal beside it, whose damage is told as
/// well; nobody may have it open meanwhile, or else changes of these moments may seem to be damage. `report` is told what is lost, as it is found, and
/// how far the work has come; [`Break`](ControlFlow::Break) stops it, and no file is left. The new store gets its name
/// when it is whole.
///
/// No row is invented. A page of which anything does not agree is not used, nor one that is a copy of another, nor a
/// free one, which may have deleted rows; what cannot be reached any more is given to a tree only if the file says to which one. Rows whose
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
    mut report: impl FnMut(RecoverEvent<'_>) -> ControlFlow<()>,
) -> Result<RecoverReport> {
    let read = || Image::open(from.as_ref());
    let (new, (image, notes)) = NewFile::begin(to.as_ref(), Some(from.as_ref()), "new store", read)?;
    let reporter = RefCell::new(Reporter::new(&mut report));
    for note in &notes {
        reporter.borrow_mut().other("the file", 0, note)?;
    }
    let header = image.header();
    let map = Map::of(&image, &header);
    // Once for the survey, and for each walk.
    let progress = Progress::new(&reporter, 3 * u64::from(image.pages_there()));
    let survey = Survey::of(&image, &map, &mut || progress.note_page())?;
    let forest = Forest { image: &image, map, survey, rows: RefCell::default(), faulty: RefCell::default() };
    let mut tell = |of: &str, page: u32, why: &str| reporter.borrow_mut().other(of, page, why);
    let contents = find::find(&forest, &mut tell)?;
    if !contents.is_store && header.application_id != APPLICATION_ID {
        return Err(Error::not_a_database(
            "there is nothing of a store in the file, so nothing can be recovered from it",
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

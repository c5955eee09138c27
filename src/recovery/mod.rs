//! Recovery: saves every readable row of a damaged file into a new store.
//!
//! The damaged file is read as bytes, without SQLite, which stops at the first damage. The modules:
//! - [`image`] reads the pages as of the last commit, with [`logs`] (WAL) and [`journal`];
//! - [`page`] and [`record`] decode pages and rows;
//! - [`map`] records to which tree each page belongs; [`survey`] and [`trust`] detect pages that
//!   are copies of another page;
//! - [`walk`] visits the pages of each tree; [`orphans`] finds pages that no tree leads to;
//! - [`find`] assigns trees to families; [`work`] collects the trees and the orphans of each
//!   family;
//! - [`save`] writes the new store; [`report`] reports losses.
//!
//! No row is invented: a row is saved only if its page and its record contain no contradiction;
//! otherwise it is reported as lost. docs/reference/file-format.md lists the damage that cannot be
//! detected.

mod event;
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
use std::ops::ControlFlow;
use std::path::Path;

use crate::backend::FORMAT_VERSION;
use crate::error::{Error, Result};
use crate::location::check_scheme;
use crate::store::NewFile;
pub use event::{Loss, RecoverEvent, RecoverReport};
use image::Image;
use map::Map;
use report::Reporter;
use save::Saving;
use survey::Survey;
use walk::Forest;
use work::{Progress, Work};

/// Application id in the header of a store's file: "KVS1" (docs/reference/file-format.md).
const APPLICATION_ID: u32 = 0x4B56_5331;

/// Saves every readable row of the file `from`, which may be damaged, into a new store at `to`.
///
/// A row is saved with its value, expiry time, write time and family, and families with their
/// settings. Expired rows are left out. The file at `to` appears only when the new store is
/// complete.
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
/// If this function fails, no new file is left.
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
    // The total is an estimate: each page is read once for the survey, and once for each of two
    // walks.
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

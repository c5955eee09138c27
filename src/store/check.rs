//! Check that reports every problem.

use std::ops::ControlFlow;

use super::Store;
use crate::db::{Disagreement, Report};
use crate::error::{Error, Result};

/// Maximum number of lines reported from the integrity check of SQLite. One damaged page can cause
/// many.
const MOST_OF_SQLITE: u32 = 1000;

/// Event that [`Store::check`] reports while it works.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum CheckEvent<'a> {
    /// A family is about to be checked.
    Progress {
        /// Number of families checked before.
        families_done: usize,
        /// Number of families in the store.
        families_total: usize,
    },
    /// Something in the file is damaged or inconsistent.
    Problem {
        /// Description in one line, without a key or a value.
        message: &'a str,
        /// Key of the row or index entry, if the problem concerns one that has a key.
        key: Option<&'a [u8]>,
    },
}

/// Something that [`Store::repair_with`] could not keep.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RepairEvent<'a> {
    /// Description of what was lost or changed, in one line, without a key or a value.
    pub message: &'a str,
    /// Key of the removed row, if the event concerns a row whose key is bytes.
    pub key: Option<&'a [u8]>,
}

/// Result of [`Store::check`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Problems found by the integrity check of SQLite, or by failed reads: the file is damaged.
    ///
    /// [`repair`](Store::repair) cannot fix these; [`recover`](crate::recover) saves what can be
    /// read.
    pub file_errors: u64,
    /// Inconsistencies between the tables, which [`repair`](Store::repair) fixes.
    pub table_errors: u64,
    /// Error that ended the check early; there may be more problems then. An error about an
    /// unreadable file is also counted in `file_errors`.
    pub stopped_by: Option<Error>,
}

impl CheckReport {
    /// Returns `true` if everything was checked and no problem was found.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.file_errors + self.table_errors == 0 && self.stopped_by.is_none()
    }
}

struct Counting<F> {
    tell: F,
    checked: CheckReport,
    /// The caller has ended the check; nothing more is reported.
    has_stopped: bool,
}

impl<F: FnMut(CheckEvent<'_>) -> ControlFlow<()>> Counting<F> {
    fn tell(&mut self, what: CheckEvent<'_>) -> ControlFlow<()> {
        if !self.has_stopped {
            self.has_stopped = (self.tell)(what).is_break();
        }
        if self.has_stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl<F: FnMut(CheckEvent<'_>) -> ControlFlow<()>> Report for Counting<F> {
    fn found(&mut self, found: Disagreement<'_>) -> ControlFlow<()> {
        if !self.has_stopped {
            match found.in_file {
                true => self.checked.file_errors += 1,
                false => self.checked.table_errors += 1,
            }
        }
        self.tell(CheckEvent::Problem { message: found.text, key: found.key })
    }

    fn family(&mut self, at: usize, of: usize) -> ControlFlow<()> {
        self.tell(CheckEvent::Progress { families_done: at, families_total: of })
    }
}

impl Store {
    /// Checks the whole file like [`integrity_check`](Store::integrity_check), but reports every
    /// problem and continues after damage.
    ///
    /// `report` is called for each problem as it is found, and must not call this store. If it
    /// returns [`Break`](ControlFlow::Break), the check ends with what was found so far. At most
    /// 1000 lines of the integrity check of SQLite are reported.
    ///
    /// # Errors
    /// A [read error](crate#errors) that prevents the check from starting. An error that ends it
    /// later is in [`CheckReport::stopped_by`].
    pub fn check(&self, report: impl FnMut(CheckEvent<'_>) -> ControlFlow<()>) -> Result<CheckReport> {
        let mut counting = Counting { tell: report, checked: CheckReport::default(), has_stopped: false };
        let stopped_by = self.shared().with(|db| db.report_disagreements(MOST_OF_SQLITE, &mut counting))?;
        Ok(CheckReport { stopped_by, ..counting.checked })
    }
}

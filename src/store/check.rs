//! Check of a whole store that reports every problem: [`Store::check`].

use std::ops::ControlFlow;

use super::Store;
use crate::backend::{Disagreement, Report};
use crate::error::{Error, Result};

/// Maximum number of problems of the integrity check of SQLite that [`Store::check`] reports, one
/// per line of its output. One damaged page can cause many.
const MOST_OF_SQLITE: u32 = 1000;

/// Event that [`Store::check`] passes to its callback: progress, or a problem.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum CheckEvent<'a> {
    /// Progress: the check of the next family begins.
    Progress {
        /// Number of families that have been checked completely.
        families_done: usize,
        /// Number of families in the store.
        families_total: usize,
    },
    /// A problem: something in the file is damaged or inconsistent.
    Problem {
        /// Description of the problem, in one line, without keys or values.
        message: &'a str,
        /// Key of the row or index entry that has the problem; `None` if the problem concerns no
        /// single key.
        key: Option<&'a [u8]>,
    },
}

/// Event that [`Store::repair_with`] passes to its callback: a loss, which the repair could not
/// avoid.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RepairEvent<'a> {
    /// Description of the loss or change, in one line, without keys or values.
    pub message: &'a str,
    /// Key of the row that was removed; `None` if the event concerns no row, or if the key is not a
    /// byte string.
    pub key: Option<&'a [u8]>,
}

/// Result of [`Store::check`]: how many problems were found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Number of problems found by the integrity check of SQLite or by failed reads: the file is
    /// damaged.
    ///
    /// [`repair`](Store::repair) cannot fix these; [`recover`](crate::recover) saves what can be
    /// read.
    pub file_errors: u64,
    /// Number of inconsistencies between the tables, which [`repair`](Store::repair) can fix.
    pub table_errors: u64,
    /// Error that ended the check before everything was checked; `None` if the check is complete.
    ///
    /// There may be more problems then. An error about an unreadable file is also counted in
    /// `file_errors`.
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
    /// Whether the callback has ended the check by returning `Break`. Problems are neither reported
    /// nor counted afterwards.
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
    /// Checks the whole store like [`integrity_check`](Store::integrity_check), but reports every
    /// problem and continues after damage.
    ///
    /// `report` is called for each problem as it is found, and must not call this store. If it
    /// returns [`Break`](ControlFlow::Break), the check ends, and the result counts the problems
    /// found so far. At most 1000 lines of the integrity check of SQLite are reported.
    ///
    /// # Errors
    /// A [read error](crate#errors) that prevents the check from starting. An error that ends it
    /// later is in [`CheckReport::stopped_by`].
    pub fn check(&self, report: impl FnMut(CheckEvent<'_>) -> ControlFlow<()>) -> Result<CheckReport> {
        let mut counting = Counting { tell: report, checked: CheckReport::default(), has_stopped: false };
        let stopped_by = self.session().with(|db| db.report_disagreements(MOST_OF_SQLITE, &mut counting))?;
        Ok(CheckReport { stopped_by, ..counting.checked })
    }
}

//! The check that names everything.

use std::ops::ControlFlow;

use super::Store;
use crate::db::{Disagreement, Report};
use crate::error::{Error, Result};

/// How much of SQLite's own check is named: one damaged page can be the cause of a great deal.
const MOST_OF_SQLITE: u32 = 1000;

/// What [`Store::check`] tells of while it works.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum CheckEvent<'a> {
    /// A family is about to be checked.
    Progress {
        /// How many were checked before.
        families_done: usize,
        /// How many there are.
        families_total: usize,
    },
    /// Something does not agree.
    Problem {
        /// What, in one line, without a key or a value.
        message: &'a str,
        /// The key of the row or entry, where it is about one that has one.
        key: Option<&'a [u8]>,
    },
}

/// Something that [`Store::repair_with`] could not keep as it was.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RepairEvent<'a> {
    /// What became of it, in one line, without a key or a value.
    pub message: &'a str,
    /// The key of the row that was removed, where it is about one whose key is bytes.
    pub key: Option<&'a [u8]>,
}

/// What [`Store::check`] has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// By SQLite's own check, or because something could not be read: the file is damaged, and a
    /// [repair](Store::repair) cannot mend it. [`recover`](crate::recover) saves what can be read.
    pub file_errors: u64,
    /// Between the tables, which a repair makes agree.
    pub table_errors: u64,
    /// What has kept the check from getting to its end: then there may be more. Where it says that the file cannot be
    /// read, it was counted as found in the file.
    pub stopped_by: Option<Error>,
}

impl CheckReport {
    /// Whether everything was looked at, and nothing found.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.file_errors + self.table_errors == 0 && self.stopped_by.is_none()
    }
}

struct Counting<F> {
    tell: F,
    checked: CheckReport,
    /// Nothing more is to be told.
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
    /// Checks the whole file as [`integrity_check`](Store::integrity_check), but names every disagreement, and goes on
    /// past what is damaged. `report` is told of each as it is found, and may not call this store;
    /// [`Break`](ControlFlow::Break) ends the check, with what was found so far. Of SQLite's own check at most 1000
    /// lines are told.
    ///
    /// # Errors
    /// What keeps the check from beginning. What stops it later is in [`CheckReport::stopped_by`].
    pub fn check(&self, report: impl FnMut(CheckEvent<'_>) -> ControlFlow<()>) -> Result<CheckReport> {
        let mut counting = Counting { tell: report, checked: CheckReport::default(), has_stopped: false };
        let stopped_by = self.shared().with(|db| db.report_disagreements(MOST_OF_SQLITE, &mut counting))?;
        Ok(CheckReport { stopped_by, ..counting.checked })
    }
}

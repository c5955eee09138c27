//! Reports losses and progress to the caller, and counts the losses.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::event::{Loss, RecoverEvent, RecoverReport};
use crate::error::{Error, Result};

/// Passes losses and progress to the callback of the caller of [`recover`](super::recover), and
/// counts the losses.
pub(super) struct Reporter<'r> {
    report: &'r mut dyn FnMut(RecoverEvent<'_>) -> ControlFlow<()>,
    pub(super) counts: RecoverReport,
    /// Pages that were already reported as lost.
    faults: HashSet<u32>,
}

/// Returns the page number as an option: `None` for 0, which means that no page is affected.
fn some(page: u32) -> Option<u32> {
    Some(page).filter(|page| *page > 0)
}

impl<'r> Reporter<'r> {
    pub(super) fn new(report: &'r mut dyn FnMut(RecoverEvent<'_>) -> ControlFlow<()>) -> Reporter<'r> {
        Reporter { report, counts: RecoverReport::default(), faults: HashSet::new() }
    }

    pub(super) fn tell(&mut self, what: RecoverEvent<'_>) -> Result<()> {
        match (self.report)(what) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => {
                Err(Error::invalid("the recovery was stopped by its callback; the new file was removed"))
            }
        }
    }

    pub(super) fn other(&mut self, of: &str, page: u32, why: &str) -> Result<()> {
        self.counts.other_losses += 1;
        self.tell(RecoverEvent::Lost(Loss {
            location: of,
            key: None,
            page: some(page),
            is_row: false,
            reason: why,
        }))
    }

    pub(super) fn row(&mut self, of: &str, page: u32, key: Option<&[u8]>, why: &str) -> Result<()> {
        self.counts.rows_lost += 1;
        self.tell(RecoverEvent::Lost(Loss { location: of, key, page: some(page), is_row: true, reason: why }))
    }

    pub(super) fn page(&mut self, of: &str, page: u32, why: &str) -> Result<()> {
        if !self.faults.insert(page) {
            return Ok(());
        }
        self.counts.pages_lost += 1;
        let why = format!("a page {why}, and what was on it is lost");
        self.tell(RecoverEvent::Lost(Loss {
            location: of,
            key: None,
            page: some(page),
            is_row: false,
            reason: &why,
        }))
    }
}

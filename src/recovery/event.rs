//! Events and result of a recovery.

use std::fmt;

/// Event that [`recover`](super::recover) passes to its callback: progress, or a loss.
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

/// Result of [`recover`](super::recover): how much was saved, and how much was lost.
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

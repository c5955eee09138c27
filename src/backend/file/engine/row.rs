//! Rows and positions in the tables of a family.

use crate::backend::file::error::damaged;
use crate::backend::file::schema::Tables;
use crate::error::{Error, Result};
use crate::memory::Destination;

/// Columns of a data row other than its key and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::backend::file) struct Head {
    /// Expiry time of the row, in milliseconds since the Unix epoch; `None` if it never expires.
    pub(in crate::backend::file) expire_ms: Option<i64>,
    /// Id of the row with the value in the table of large values; `None` if the value is inline.
    pub(in crate::backend::file) blob_id: Option<i64>,
    /// Write time of the row, in milliseconds since the Unix epoch; `None` in a family without
    /// write tracking.
    pub(in crate::backend::file) written_ms: Option<i64>,
}

/// Data row to be written.
#[derive(Debug, Clone, Copy)]
pub(in crate::backend::file) struct Row<'a> {
    /// Inline value; `None` if `head.blob_id` names a large value.
    pub(in crate::backend::file) value: Option<&'a [u8]>,
    pub(in crate::backend::file) head: Head,
}

/// Result that a visitor of rows returns to the scan: whether the scan continues or stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::backend::file) enum Step {
    Continue,
    Stop,
}

/// Time index: an index that orders keys by expiry time or by write time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::backend::file) enum TimeIndex {
    /// By `expire_ms`.
    Expiry,
    /// By `written_ms`.
    Written,
}

impl TimeIndex {
    /// Returns the time of a row in this index, in milliseconds since the Unix epoch; `None` if the
    /// row has no entry.
    pub(in crate::backend::file) fn time_of(self, head: Head) -> Option<i64> {
        match self {
            TimeIndex::Expiry => head.expire_ms,
            TimeIndex::Written => head.written_ms,
        }
    }
}

/// Returns the start position of a scan of a time index, for `Engine::by_time`. The scan then
/// begins with the first entry whose time is `time_ms` or later.
pub(in crate::backend::file) fn from_time(time_ms: i64) -> (i64, &'static [u8]) {
    (time_ms, &[]) // no key is empty, so each one comes after this
}

/// Data row that a read passes to its visitor. It borrows from the snapshot of that read.
///
/// A visitor that receives a row must not write to the store while it uses the row: the row may
/// borrow SQLite's own memory.
pub(in crate::backend::file) struct RowView<'a> {
    pub(in crate::backend::file) values: &'a dyn LargeValues,
    pub(in crate::backend::file) tables: &'a Tables,
    pub(in crate::backend::file) inline: Option<&'a [u8]>,
    /// Key and inline value as one slice; `None` if they are not contiguous in memory, or the value
    /// is not inline.
    pub(in crate::backend::file) joined: Option<&'a [u8]>,
    pub(in crate::backend::file) head: Head,
}

impl RowView<'_> {
    #[inline]
    pub(in crate::backend::file) fn head(&self) -> Head {
        self.head
    }

    /// Returns key and value as one slice; `None` if they are not contiguous in memory, or the
    /// value is not inline.
    #[inline]
    pub(in crate::backend::file) fn key_and_value(&self) -> Option<&[u8]> {
        self.joined
    }

    /// Passes the value to `visit`. If the value is not inline, this call reads it from the table
    /// of large values.
    pub(in crate::backend::file) fn value<R>(&self, visit: impl FnOnce(&[u8]) -> R) -> Result<R> {
        match (self.inline, self.head.blob_id) {
            (Some(value), _) => Ok(visit(value)),
            (None, Some(id)) => {
                let (mut visit, mut seen) = (Some(visit), None);
                let mut visit_once = |value: &[u8]| seen = visit.take().map(|visit| visit(value));
                self.values.read(self.tables, id, &mut visit_once)?;
                seen.ok_or_else(|| Error::failed("a large value was not read"))
            }
            (None, None) => Err(self.no_value()),
        }
    }

    /// Copies the value to `to` and returns its length. A large value is copied from its pages,
    /// without another copy in between, if the storage engine can do so.
    pub(in crate::backend::file) fn copy_value(&self, to: &mut impl Destination) -> Result<usize> {
        match (self.inline, self.head.blob_id) {
            (Some(value), _) => to.copy(value),
            (None, Some(id)) => self.values.copy(self.tables, id, to),
            (None, None) => Err(self.no_value()),
        }
    }

    fn no_value(&self) -> Error {
        let family = self.tables.family();
        damaged(format!("a row of family \"{family}\" has neither a value nor a blob_id"))
    }
}

/// Read access to the tables of large values. A [`RowView`] reads a value that is not inline by it.
pub(in crate::backend::file) trait LargeValues {
    /// Passes a large value to `visit`. Fails if there is no large value with this id.
    fn read(&self, tables: &Tables, id: i64, visit: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Copies a large value to `to` and returns its length. Fails if there is no large value with
    /// this id.
    fn copy(&self, tables: &Tables, id: i64, to: &mut dyn Destination) -> Result<usize>;
}

//! Rows and positions in the tables of a family.

/// Data row without its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::backend::file) struct Head {
    /// Expiry time of the row, in milliseconds since the Unix epoch; `None` if it never expires.
    pub(in crate::backend::file) expire_ms: Option<i64>,
    /// Id of the row with the value in the table of large values; `None` if the value is inline.
    pub(in crate::backend::file) blob_id: Option<i64>,
    /// Time at which the row was written; `None` in a family without write tracking.
    pub(in crate::backend::file) written_ms: Option<i64>,
}

/// Data row to be written.
#[derive(Debug, Clone, Copy)]
pub(in crate::backend::file) struct Row<'a> {
    /// Inline value; `None` if `head.blob_id` names a large value.
    pub(in crate::backend::file) value: Option<&'a [u8]>,
    pub(in crate::backend::file) head: Head,
}

/// Result of a visitor of rows: what the scan does next.
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

/// Returns the start position of a scan of a time index: the first entry at or after `time_ms`.
pub(in crate::backend::file) fn from_time(time_ms: i64) -> (i64, &'static [u8]) {
    (time_ms, &[]) // no key is empty, so each one comes after this
}

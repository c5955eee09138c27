//! Reading of the rows that a copy compares or writes.

use std::collections::VecDeque;

use super::ROWS;
use crate::error::Result;
use crate::expiry::Expiry;
use crate::family::{Cursor, Direction, Family, KeyRange};
use crate::memory;

/// Row of a copied family, with all data that the copy writes to the target or compares with the
/// row there.
#[derive(PartialEq, Eq)]
pub(super) struct Row {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) expiry: Expiry,
    /// Write time, in milliseconds since the Unix epoch; `None` in a family without write tracking.
    pub(super) written_ms: Option<i64>,
}

/// Reader of the rows of one family in a range of keys, in chunks. A failed read can be repeated.
pub(super) struct Reader {
    family: Family,
    cursor: Cursor,
    tracks: bool,
    has_begun: bool,
    pub(super) is_at_end: bool,
    /// Rows of the next chunk whose keys and values have been read, but not their write times. If
    /// reading the write times fails, a repeated read continues with these rows.
    half: Vec<Row>,
    pub(super) rows: VecDeque<Row>,
}

impl Reader {
    pub(super) fn new(family: &Family, range: KeyRange, tracks: bool) -> Reader {
        Reader {
            family: family.unregistered(),
            cursor: family.cursor(range, Direction::Forward),
            tracks,
            has_begun: false,
            is_at_end: false,
            half: Vec::new(),
            rows: VecDeque::new(),
        }
    }

    /// Reads the next chunk of rows and appends it to `rows`. Sets `is_at_end` if the range has no
    /// more rows.
    pub(super) fn read(&mut self) -> Result<()> {
        if self.half.is_empty() {
            if !self.has_begun {
                self.cursor.first()?;
                self.has_begun = true;
            }
            self.half = self
                .cursor
                .fetch(ROWS)?
                .map(|entry| {
                    Ok(Row {
                        key: entry.key.to_vec(),
                        value: memory::copy_of(entry.value.unwrap_or_default())?,
                        expiry: entry.expiry,
                        written_ms: None,
                    })
                })
                .collect::<Result<_>>()?;
            self.is_at_end = self.half.is_empty();
        }
        if self.tracks && !self.half.is_empty() {
            let keys: Vec<_> = self.half.iter().map(|row| row.key.as_slice()).collect();
            let written = self.family.write_times(&keys)?;
            for (row, written_ms) in self.half.iter_mut().zip(written) {
                row.written_ms = written_ms;
            }
            self.half.retain(|row| row.written_ms.is_some()); // the other rows have just expired
        }
        self.rows.extend(self.half.drain(..));
        Ok(())
    }
}

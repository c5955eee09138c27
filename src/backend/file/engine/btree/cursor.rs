//! A cursor on one table, with methods that are safe to call for the reasons that `tree.rs` gives.
#![allow(unsafe_code)]

use std::cmp::Ordering;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

use super::raw;
use super::tree::{Order, at_no_entry, check, moved, no_memory, not_writing, too_long};
use crate::backend::file::error::damaged;
use crate::error::{Error, Result};

/// Open cursor of SQLite on the B-tree of one table.
pub(super) struct TreeCursor {
    /// Memory of SQLite's cursor object.
    pub(super) memory: Box<[u64]>,
    pub(super) root: u32,
    pub(super) order: Order,
    /// Whether the cursor was opened for writing.
    pub(super) write: bool,
    /// Result of `seek`: how the current entry compares with the key in `sought`. `None` if the
    /// cursor has moved since.
    pub(super) place: Option<Ordering>,
    /// Whether the last move ended at an entry.
    pub(super) on_entry: bool,
    /// Key of the last `seek`, encoded as a record.
    pub(super) sought: Vec<u8>,
    /// Buffer for the key of the next `seek`, swapped with `sought` then.
    pub(super) spare: Vec<u8>,
    /// Copy of a record whose bytes are on several pages.
    pub(super) overflow: Vec<u8>,
}

// SAFETY: as for `Tree`.
unsafe impl Send for TreeCursor {}

impl TreeCursor {
    pub(super) fn raw(&mut self) -> *mut raw::BtCursor {
        self.memory.as_mut_ptr().cast()
    }

    /// Returns `true` if this is a cursor on the given table, with the given order and access.
    pub(super) fn is_on(&self, root: u32, order: Order, write: bool) -> bool {
        (self.root, self.order, self.write) == (root, order, write)
    }

    pub(super) fn has_moved(&mut self) -> bool {
        // SAFETY: an open cursor.
        unsafe { raw::sqlite3BtreeCursorHasMoved(self.raw()) != 0 }
    }

    /// Returns `true` if the last move ended at an entry.
    pub(super) fn is_on_entry(&self) -> bool {
        self.on_entry
    }

    pub(super) fn is_valid(&mut self) -> bool {
        // SAFETY: an open cursor.
        unsafe { raw::sqlite3BtreeCursorIsValidNN(self.raw()) != 0 }
    }

    /// Moves to the row with this rowid. Returns `false` if there is no such row.
    pub(super) fn seek_rowid(&mut self, id: i64) -> Result<bool> {
        let mut result = 0;
        self.on_entry = false;
        // SAFETY: an open cursor on a rowid table, and a valid place for the result.
        check(unsafe { raw::sqlite3BtreeTableMoveto(self.raw(), id, 0, &raw mut result) })?;
        self.on_entry = self.is_valid();
        Ok(result == 0 && self.on_entry)
    }

    /// Moves to the first entry. Returns `false` if there is none.
    pub(super) fn first(&mut self) -> Result<bool> {
        self.place = None;
        self.on_entry = false;
        let mut empty = 0;
        // SAFETY: an open cursor, and a valid place for the result.
        check(unsafe { raw::sqlite3BtreeFirst(self.raw(), &raw mut empty) })?;
        self.on_entry = empty == 0;
        Ok(self.on_entry)
    }

    /// Moves to the last entry. Returns `false` if there is none.
    pub(super) fn last(&mut self) -> Result<bool> {
        self.place = None;
        self.on_entry = false;
        let mut empty = 0;
        // SAFETY: an open cursor, and a valid place for the result.
        check(unsafe { raw::sqlite3BtreeLast(self.raw(), &raw mut empty) })?;
        self.on_entry = empty == 0;
        Ok(self.on_entry)
    }

    /// Moves to the next entry. Returns `false` if there is none.
    #[inline]
    pub(super) fn next(&mut self) -> Result<bool> {
        self.place = None;
        self.on_entry = false;
        // SAFETY: an open cursor.
        self.on_entry = moved(unsafe { raw::sqlite3BtreeNext(self.raw(), 0) })?;
        Ok(self.on_entry)
    }

    /// Moves to the previous entry. Returns `false` if there is none.
    #[inline]
    pub(super) fn previous(&mut self) -> Result<bool> {
        self.place = None;
        self.on_entry = false;
        // SAFETY: an open cursor.
        self.on_entry = moved(unsafe { raw::sqlite3BtreePrevious(self.raw(), 0) })?;
        Ok(self.on_entry)
    }

    /// Returns the rowid of the current entry.
    pub(super) fn rowid(&mut self) -> Result<i64> {
        if !self.is_valid() {
            return Err(at_no_entry());
        }
        // SAFETY: an open cursor at an entry of a rowid table.
        Ok(unsafe { raw::sqlite3BtreeIntegerKey(self.raw()) })
    }

    /// Returns the record of the current entry: a reference to its bytes on the page, or to a copy
    /// if the record is on several pages.
    #[inline]
    pub(super) fn record(&mut self) -> Result<&[u8]> {
        let (start, local, size) = self.bytes_on_page()?;
        if local >= size && size > 0 {
            // SAFETY: SQLite returns `local` bytes on the page, which stays in memory while the
            // cursor is on it. The borrow keeps the cursor where it is.
            return Ok(unsafe { std::slice::from_raw_parts(start, size as usize) });
        }
        self.copy_record(size)
    }

    /// Returns the bytes of the current record that are on the page of the entry, and the length of
    /// the whole record. Fails if the file is too short for a record of that length.
    pub(super) fn start_of_record(&mut self) -> Result<(&[u8], usize)> {
        let (start, local, size) = self.bytes_on_page()?;
        self.check_size(size)?;
        if start.is_null() {
            return Err(damaged("a row is not on its page"));
        }
        // SAFETY: as in `record`.
        let start = unsafe { std::slice::from_raw_parts(start, local.min(size) as usize) };
        Ok((start, size as usize))
    }

    /// Copies bytes of the current record, from the position `from`, to `to`, until `to` is full.
    /// SQLite reads pages that are neither in memory nor in the WAL directly from the file to `to`.
    pub(super) fn copy(&mut self, from: usize, to: &mut [MaybeUninit<u8>]) -> Result<()> {
        let (_, _, size) = self.bytes_on_page()?;
        if from.checked_add(to.len()).is_none_or(|end| end > size as usize) {
            return Err(damaged("a row is shorter than its value"));
        }
        // SAFETY: an open cursor at an entry, whose record has these bytes, and memory for them. The
        // conversions change no number, since none is greater than `size`.
        check(unsafe {
            raw::sqlite3BtreePayload(self.raw(), from as u32, to.len() as u32, to.as_mut_ptr().cast())
        })
    }

    /// Returns the address of the current record on its page, the number of its bytes there, and
    /// the length of the whole record.
    #[inline]
    fn bytes_on_page(&mut self) -> Result<(*const u8, u32, u32)> {
        if !self.on_entry {
            return Err(at_no_entry());
        }
        debug_assert!(self.is_valid());
        let mut local = 0;
        // SAFETY: an open cursor that has been at an entry since its last move: nothing writes to
        // the table while a visitor uses a row, a rule for visitors (`RowView` in `row.rs`). The
        // size is read first: that makes SQLite parse the cell, which the fetch needs.
        unsafe {
            let size = raw::sqlite3BtreePayloadSize(self.raw());
            let start = raw::sqlite3BtreePayloadFetch(self.raw(), &raw mut local);
            Ok((start.cast(), local, size))
        }
    }

    fn check_size(&mut self, size: u32) -> Result<()> {
        // SAFETY: an open cursor at an entry.
        let bound = unsafe { raw::sqlite3BtreeMaxRecordSize(self.raw()) };
        if i64::from(size) > bound { Err(damaged("a row is longer than the file")) } else { Ok(()) }
    }

    fn copy_record(&mut self, size: u32) -> Result<&[u8]> {
        self.check_size(size)?;
        let mut copy = std::mem::take(&mut self.overflow);
        copy.clear();
        copy.try_reserve(size as usize).map_err(|_| no_memory())?;
        copy.resize(size as usize, 0);
        // SAFETY: an open cursor at an entry, and `size` bytes of memory.
        let code = unsafe { raw::sqlite3BtreePayload(self.raw(), 0, size, copy.as_mut_ptr().cast()) };
        self.overflow = copy;
        check(code)?;
        Ok(&self.overflow)
    }

    fn must_write(&self) -> Result<()> {
        if self.write {
            return Ok(());
        }
        Err(not_writing())
    }

    /// Writes a record of an index B-tree: replaces the entry with the same key, or inserts a new
    /// one. The last move of the cursor must have been a `seek` for that key.
    pub(super) fn put(&mut self, record: &[u8]) -> Result<()> {
        self.must_write()?;
        self.on_entry = false;
        let Some(place) = self.place.take() else {
            return Err(Error::failed("a row is written without having been sought"));
        };
        let payload = payload(record.as_ptr(), record.len() as i64, &[])?;
        let (flags, result) = match place {
            Ordering::Less => (0, -1),
            Ordering::Greater => (0, 1),
            // Without the flag SQLite would seek again, and compare more columns than the key has.
            Ordering::Equal => (raw::BTREE_SAVEPOSITION, 0),
        };
        // SAFETY: an open write cursor, where `seek` left it for the key of this record. In an
        // empty table the cursor is at no entry. For that case SQLite requires a result other than
        // 0, which it is.
        check(unsafe { raw::sqlite3BtreeInsert(self.raw(), &raw const payload, flags, result) })
    }

    /// Writes a row with this rowid into a rowid table. Replaces the row that has this rowid, if
    /// there is one.
    pub(super) fn put_rowid(&mut self, id: i64, record: &[u8]) -> Result<()> {
        self.must_write()?;
        self.on_entry = false;
        let payload = payload(ptr::null(), id, record)?;
        // SAFETY: an open write cursor on a rowid table. SQLite seeks by itself, unless the cursor
        // is at the row. `sqlite3BtreePayloadSize` makes SQLite parse the cell of that row, so that
        // it can detect that the new row fits in the place of the old one.
        check(unsafe {
            if self.is_valid() {
                raw::sqlite3BtreePayloadSize(self.raw());
            }
            raw::sqlite3BtreeInsert(self.raw(), &raw const payload, 0, 0)
        })
    }

    /// Deletes the current entry.
    pub(super) fn delete(&mut self) -> Result<()> {
        self.must_write()?;
        self.place = None;
        self.on_entry = false;
        if !self.is_valid() {
            return Err(at_no_entry());
        }
        // SAFETY: an open write cursor at an entry.
        check(unsafe { raw::sqlite3BtreeDelete(self.raw(), 0) })
    }
}

impl Drop for TreeCursor {
    fn drop(&mut self) {
        // SAFETY: `Tree::cursor` has initialized the memory as a cursor. Closing a cursor does
        // nothing if it is not in SQLite's list of open cursors.
        unsafe { raw::sqlite3BtreeCloseCursor(self.raw()) };
    }
}

fn payload(key: *const u8, key_size: i64, data: &[u8]) -> Result<raw::BtreePayload> {
    Ok(raw::BtreePayload {
        key: key.cast(),
        key_size,
        data: data.as_ptr().cast(),
        mem: ptr::null_mut(),
        mem_count: 0,
        data_size: c_int::try_from(data.len()).map_err(|_| too_long())?,
        zero: 0,
    })
}

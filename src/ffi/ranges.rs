//! Ranges, rows, and the order of expiry.

use std::ffi::{c_int, c_void};
use std::ops::Bound;

use super::args::{Buffer, Outcome, bad_argument, bound, c_length, output, part};
use super::call::call_without_handle;
use super::codes::{
    KVSTORE_OK, KVSTORE_RANGE_CLOSED, KVSTORE_RANGE_KEYS_ONLY, KVSTORE_RANGE_OPEN, KVSTORE_RANGE_REVERSE,
};
use super::iterators::new_iterator;
use super::types::{KVColumnFamily, KVIterator};
use crate::{Cursor, Direction, KeyRange};

/// The range `[lower, upper)`, changed by the flags; `None` is open.
pub(super) fn key_range(lower: Option<&[u8]>, upper: Option<&[u8]>, flags: c_int) -> KeyRange {
    let lower = lower.map_or(Bound::Unbounded, |lower| match flags & KVSTORE_RANGE_OPEN {
        0 => Bound::Included(lower.to_vec()),
        _ => Bound::Excluded(lower.to_vec()),
    });
    let upper = upper.map_or(Bound::Unbounded, |upper| match flags & KVSTORE_RANGE_CLOSED {
        0 => Bound::Excluded(upper.to_vec()),
        _ => Bound::Included(upper.to_vec()),
    });
    KeyRange::new(lower, upper)
}

fn direction(flags: c_int) -> Direction {
    if flags & KVSTORE_RANGE_REVERSE == 0 { Direction::Forward } else { Direction::Reverse }
}

fn check_flags(flags: c_int) -> Outcome<()> {
    let known = KVSTORE_RANGE_REVERSE | KVSTORE_RANGE_CLOSED | KVSTORE_RANGE_OPEN | KVSTORE_RANGE_KEYS_ONLY;
    if flags & !known != 0 {
        return bad_argument(&format!("flags {flags}: pass KVSTORE_RANGE_* or'ed together, or 0"));
    }
    Ok(())
}

/// Positions a new cursor at its first entry.
fn at_first(cursor: Cursor, flags: c_int) -> Outcome<Cursor> {
    let mut cursor = if flags & KVSTORE_RANGE_KEYS_ONLY == 0 { cursor } else { cursor.keys_only() };
    cursor.first()?;
    Ok(cursor)
}

/// Makes an iterator over the keys from `pLower` to before `pUpper`; NULL with length 0 is open. `flags` is 0 or
/// KVSTORE_RANGE_* or'ed together: REVERSE, CLOSED (pUpper included), OPEN (pLower excluded), KEYS_ONLY. It
/// is at its first entry from the start (or at eof). A lower bound that is not below the upper one: nothing
/// in it. Otherwise as kvstore_prefix_iterator_create; a seek outside the range leaves it at eof.
///
/// Errors: KVSTORE_ERROR (a NULL handle or ppIter, a bad length, NULL with a length, unknown flags); otherwise as kvstore_get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_range_iterator_create(
    cf: *mut KVColumnFamily,
    pLower: *const c_void,
    nLower: c_int,
    pUpper: *const c_void,
    nUpper: c_int,
    flags: c_int,
    ppIter: *mut *mut KVIterator,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        new_iterator(cf, ppIter, |family| {
            check_flags(flags)?;
            let range = key_range(
                bound(pLower, nLower, "lower bound")?,
                bound(pUpper, nUpper, "upper bound")?,
                flags,
            );
            at_first(family.cursor(range, direction(flags)), flags)
        })
    }
}

/// Makes an iterator over one partition of row keys (see kvstore_row_key), from the clustering part
/// `pStart` to before `pFinish`; NULL with length 0 is open. Its keys, and those it seeks, are clustering
/// parts. `flags` as for kvstore_cf_range_iterator_create. It is at its first entry from the start (or at
/// eof).
///
/// Errors: KVSTORE_ERROR (a NULL handle or ppIter, a bad length, NULL with a length, a key that would be too long,
/// unknown flags); otherwise as kvstore_get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_row_iterator_create(
    cf: *mut KVColumnFamily,
    pPKey: *const c_void,
    nPKey: c_int,
    pStart: *const c_void,
    nStart: c_int,
    pFinish: *const c_void,
    nFinish: c_int,
    flags: c_int,
    ppIter: *mut *mut KVIterator,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        new_iterator(cf, ppIter, |family| {
            check_flags(flags)?;
            let partition = part(pPKey, nPKey, "partition key")?;
            let range = key_range(bound(pStart, nStart, "start")?, bound(pFinish, nFinish, "finish")?, flags);
            at_first(family.row_cursor(partition, &range, direction(flags))?, flags)
        })
    }
}

/// Makes an iterator over the keys that expire at or after `from_ms` and before `to_ms`, in the order of
/// their expiry, those that have expired but are still there included. It is at its first entry from the
/// start (or at eof), and cannot seek. kvstore_iterator_expire_ms shows the times. A `to_ms` of INT64_MAX is no
/// end: keys that expire at that last moment are included, too.
///
/// Errors: KVSTORE_ERROR (a NULL pointer); otherwise as kvstore_get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_expiring_iterator_create(
    cf: *mut KVColumnFamily,
    from_ms: i64,
    to_ms: i64,
    ppIter: *mut *mut KVIterator,
) -> c_int {
    // SAFETY: as documented.
    unsafe { new_iterator(cf, ppIter, |family| at_first(family.expiring(from_ms, to_ms), 0)) }
}

/// Builds one ordered key from a partition key and clustering columns; both may be empty. All rows of a
/// partition are together, in the byte order of their clustering columns, and no other partition's are
/// between them. The key works with every function.
///
/// Writes the key to `buf`, and its length to `*pn`. A `buf` of NULL with a `cap` of 0 only asks for the
/// length; 2 * nPKey + 2 + nCCols is always enough.
///
/// Errors: KVSTORE_ERROR (a NULL pointer, a bad length, `cap` too small, a key of more than 65536 bytes);
/// kvstore_errmsg(NULL) says which. Nothing is written then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_row_key(
    pPKey: *const c_void,
    nPKey: c_int,
    pCCols: *const c_void,
    nCCols: c_int,
    buf: *mut c_void,
    cap: c_int,
    pn: *mut c_int,
) -> c_int {
    call_without_handle(|| {
        // SAFETY: as documented.
        let (partition, clustering, mut buffer, length) = unsafe {
            (
                part(pPKey, nPKey, "partition key")?,
                part(pCCols, nCCols, "clustering part")?,
                Buffer::new(buf, cap)?,
                output(pn, "pn")?,
            )
        };
        let key = crate::row_key(partition, clustering)?;
        if key.len() > buffer.capacity() && !buf.is_null() {
            return bad_argument(&format!("the key has {} bytes, and the buffer only {cap}", key.len()));
        }
        buffer.fill(&key);
        length.set(c_length(key.len()));
        Ok(KVSTORE_OK)
    })
}

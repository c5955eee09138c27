//! Ranges, row keys and the order of expiry.

use std::ffi::{c_int, c_void};
use std::ops::Bound;

use super::args::{Buffer, Outcome, bad_argument, bound, c_length, output, part};
use super::call::call_without_handle;
use super::codes::{
    KVSTORE_OK, KVSTORE_RANGE_CLOSED, KVSTORE_RANGE_KEYS_ONLY, KVSTORE_RANGE_OPEN, KVSTORE_RANGE_REVERSE,
};
use super::iterators::new_iterator;
use super::types::{KVColumnFamily, KVIterator, KVStore};
use crate::{Cursor, Direction, Family, KeyRange};

/// Returns the range from `lower`, included, to `upper`, excluded; `None` is unbounded. The flag
/// KVSTORE_RANGE_OPEN excludes `lower`, and KVSTORE_RANGE_CLOSED includes `upper`.
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

/// Moves a new cursor to its first entry. With the flag KVSTORE_RANGE_KEYS_ONLY, the cursor reads
/// no values.
fn at_first(cursor: Cursor, flags: c_int) -> Outcome<Cursor> {
    let mut cursor = if flags & KVSTORE_RANGE_KEYS_ONLY == 0 { cursor } else { cursor.keys_only() };
    cursor.first()?;
    Ok(cursor)
}

/// Creates an iterator over the live entries of the default family whose keys are at or after a
/// lower bound and before an upper bound. The new iterator is at the first entry, or at the end if
/// there is none.
///
/// @param pLower,nLower Lower bound, included; NULL with length 0: from the first key.
/// @param pUpper,nUpper Upper bound, excluded; NULL with length 0: to the last key.
/// @param flags 0, or a bitwise OR of KVSTORE_RANGE_* flags: REVERSE, CLOSED (include the upper
///   bound), OPEN (exclude the lower bound), KEYS_ONLY.
/// @param ppIter Receives the iterator, or NULL after a failure. Close it with
///   kvstore_iterator_close.
///
/// A range whose lower bound is above its upper bound is empty; one with equal bounds has only that
/// key, and only with KVSTORE_RANGE_CLOSED alone. A seek outside the range leaves
/// the iterator at the end. Visibility of writes: as for kvstore_iterator_create.
///
/// Errors: KVSTORE_ERROR (`kv` or `ppIter` is NULL, a length is out of bounds, a bound is NULL with
/// a length, or a flag is unknown), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM,
/// KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_range_iterator_create(
    kv: *mut KVStore,
    pLower: *const c_void,
    nLower: c_int,
    pUpper: *const c_void,
    nUpper: c_int,
    flags: c_int,
    ppIter: *mut *mut KVIterator,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        new_iterator(kv, ppIter, |family| range_cursor(family, (pLower, nLower), (pUpper, nUpper), flags))
    }
}

/// Creates an iterator over the live entries of the family `cf` whose keys are at or after a lower
/// bound and before an upper bound.
///
/// Parameters, behaviour and errors are those of kvstore_range_iterator_create.
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
        new_iterator(cf, ppIter, |family| range_cursor(family, (pLower, nLower), (pUpper, nUpper), flags))
    }
}

unsafe fn range_cursor(
    family: &Family,
    (p_lower, n_lower): (*const c_void, c_int),
    (p_upper, n_upper): (*const c_void, c_int),
    flags: c_int,
) -> Outcome<Cursor> {
    check_flags(flags)?;
    // SAFETY: passed on.
    let (lower, upper) =
        unsafe { (bound(p_lower, n_lower, "lower bound")?, bound(p_upper, n_upper, "upper bound")?) };
    at_first(family.cursor(key_range(lower, upper, flags), direction(flags)), flags)
}

/// Creates an iterator over the rows of one partition of the default family, whose keys were built
/// by kvstore_row_key. The new iterator is at the first row, or at the end if there is none.
///
/// @param pPKey,nPKey Partition key.
/// @param pStart,nStart First clustering part, included; NULL with length 0: from the first row.
/// @param pFinish,nFinish Last clustering part, excluded; NULL with length 0: to the last row.
/// @param flags As for kvstore_range_iterator_create.
/// @param ppIter Receives the iterator, or NULL after a failure. Close it with
///   kvstore_iterator_close.
///
/// The keys that the iterator returns, and those it seeks, are clustering parts.
///
/// Errors: KVSTORE_ERROR (`kv` or `ppIter` is NULL, a length is out of bounds, a part is NULL with
/// a length, the row key would exceed 65536 bytes, or a flag is unknown), or a read code
/// (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
/// KVSTORE_MISUSE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_row_iterator_create(
    kv: *mut KVStore,
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
        new_iterator(kv, ppIter, |family| {
            row_cursor(family, (pPKey, nPKey), (pStart, nStart), (pFinish, nFinish), flags)
        })
    }
}

/// Creates an iterator over the rows of one partition of the family `cf`, whose keys were built by
/// kvstore_row_key.
///
/// Parameters, behaviour and errors are those of kvstore_row_iterator_create.
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
            row_cursor(family, (pPKey, nPKey), (pStart, nStart), (pFinish, nFinish), flags)
        })
    }
}

unsafe fn row_cursor(
    family: &Family,
    (p_key, n_key): (*const c_void, c_int),
    (p_start, n_start): (*const c_void, c_int),
    (p_finish, n_finish): (*const c_void, c_int),
    flags: c_int,
) -> Outcome<Cursor> {
    check_flags(flags)?;
    // SAFETY: passed on.
    let (partition, start, finish) = unsafe {
        (
            part(p_key, n_key, "partition key")?,
            bound(p_start, n_start, "start")?,
            bound(p_finish, n_finish, "finish")?,
        )
    };
    at_first(family.row_cursor(partition, &key_range(start, finish, flags), direction(flags))?, flags)
}

/// Creates an iterator over the keys of the default family whose expiry time is from `from_ms` to
/// before `to_ms`, in order of expiry time. Expired rows that have not been removed yet are
/// included.
///
/// @param from_ms Lower bound, included, in milliseconds since the Unix epoch.
/// @param to_ms Upper bound, excluded, in milliseconds since the Unix epoch. INT64_MAX means no
///   upper bound: keys that expire at INT64_MAX are included.
/// @param ppIter Receives the iterator, or NULL after a failure. Close it with
///   kvstore_iterator_close.
///
/// The new iterator is at its first entry, or at the end if there is none. It cannot seek.
/// kvstore_iterator_expire_ms returns the expiry times.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
/// KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_expiring_iterator_create(
    kv: *mut KVStore,
    from_ms: i64,
    to_ms: i64,
    ppIter: *mut *mut KVIterator,
) -> c_int {
    // SAFETY: as documented.
    unsafe { new_iterator(kv, ppIter, |family| at_first(family.expiry_cursor(from_ms, to_ms), 0)) }
}

/// Creates an iterator over the keys of the family `cf` whose expiry time is from `from_ms` to
/// before `to_ms`, in order of expiry time.
///
/// Parameters, behaviour and errors are those of kvstore_expiring_iterator_create.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_expiring_iterator_create(
    cf: *mut KVColumnFamily,
    from_ms: i64,
    to_ms: i64,
    ppIter: *mut *mut KVIterator,
) -> c_int {
    // SAFETY: as documented.
    unsafe { new_iterator(cf, ppIter, |family| at_first(family.expiry_cursor(from_ms, to_ms), 0)) }
}

/// Builds an ordered key from a partition key and clustering columns. In key order, the rows of one
/// partition are contiguous and sorted by the bytes of their clustering columns.
///
/// @param pPKey,nPKey Partition key and its length; may be empty.
/// @param pCCols,nCCols Clustering columns and their length; may be empty.
/// @param buf Receives the key. NULL with a `cap` of 0 only requests the length.
/// @param cap Size of `buf`, in bytes. 2 * nPKey + 2 + nCCols is always sufficient.
/// @param pn Receives the length of the key.
///
/// The key can be used with every function.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL, a length is out of bounds, `cap` is too small, or the
/// key would exceed 65536 bytes). kvstore_errmsg(NULL) returns the reason. Nothing is written then.
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

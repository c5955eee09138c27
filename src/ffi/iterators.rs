//! Iterators.

use std::ffi::{c_int, c_void};

use super::args::{Outcome, bad_argument, c_length, key, key_called, optional_output, output};
use super::call::{HasSession as _, call, call_single, close_single, glance, glance_mut, look_single};
use super::coarse;
use super::codes::{KVSTORE_OK, NO_TTL};
use super::data::HasFamily;
use super::handle::{self, Opaque, Single};
use super::types::{KVColumnFamily, KVEntry, KVIterator, KVStore};
use crate::{Cursor, Direction, Family, KeyRange};

/// Creates an iterator over the live entries of the default family, in ascending key order. Call
/// kvstore_iterator_first or kvstore_iterator_seek to move it to an entry; until then it is at the
/// end.
///
/// @param ppIter Receives the iterator, or NULL after a failure. Close it with
///   kvstore_iterator_close.
///
/// An iterator holds no lock and no snapshot between calls; writes, commits and close remain
/// possible. Inside a transaction it reads the state of the transaction.
///
/// Outside a transaction it sees writes of its own store handle ahead of its position at once. It
/// sees commits of other handles with a delay, because it reads ahead: up to 512 entries, or 64 KiB
/// plus one value. A change that another handle commits to these entries, including a changed
/// expiry time, is not seen. The iterator tests the expiry time of each entry that it has read
/// ahead again at each step, and skips expired ones.
///
/// For a store on a server, expiry is tested by the server's time as this handle knows it. That
/// time lags by the transmission time of the last answer, so an entry that expired within that
/// interval may still be returned.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL), KVSTORE_MISUSE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_iterator_create(kv: *mut KVStore, ppIter: *mut *mut KVIterator) -> c_int {
    // SAFETY: as documented.
    unsafe { create(kv, ppIter, None, Direction::Forward) }
}

/// Creates an iterator over the live entries of the family `cf`, in ascending key order. Call
/// kvstore_iterator_first or kvstore_iterator_seek to move it to an entry.
///
/// Parameters, behaviour and errors are those of kvstore_iterator_create.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_iterator_create(
    cf: *mut KVColumnFamily,
    ppIter: *mut *mut KVIterator,
) -> c_int {
    // SAFETY: as documented.
    unsafe { create(cf, ppIter, None, Direction::Forward) }
}

/// Creates an iterator over the live entries of the default family, in descending key order. Call
/// kvstore_iterator_last or kvstore_iterator_seek to move it to an entry; until then it is at the
/// end.
///
/// The iterator advances with kvstore_iterator_prev. Parameters, visibility of writes and errors
/// are those of kvstore_iterator_create.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_reverse_iterator_create(
    kv: *mut KVStore,
    ppIter: *mut *mut KVIterator,
) -> c_int {
    // SAFETY: as documented.
    unsafe { create(kv, ppIter, None, Direction::Reverse) }
}

/// Creates an iterator over the live entries of the family `cf`, in descending key order. Call
/// kvstore_iterator_last or kvstore_iterator_seek to move it to an entry.
///
/// Parameters, behaviour and errors are those of kvstore_reverse_iterator_create.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_reverse_iterator_create(
    cf: *mut KVColumnFamily,
    ppIter: *mut *mut KVIterator,
) -> c_int {
    // SAFETY: as documented.
    unsafe { create(cf, ppIter, None, Direction::Reverse) }
}

/// Creates an iterator over the live entries of the default family whose keys start with a prefix,
/// in ascending key order. The new iterator is at the first entry, or at the end if there is none.
///
/// @param pPrefix,nPrefix Prefix and its length: 1 to 65536 bytes.
/// @param ppIter Receives the iterator, or NULL after a failure. Close it with
///   kvstore_iterator_close.
///
/// Visibility of writes: as for kvstore_iterator_create.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL, or the length is out of bounds), or a read code
/// (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
/// KVSTORE_MISUSE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_prefix_iterator_create(
    kv: *mut KVStore,
    pPrefix: *const c_void,
    nPrefix: c_int,
    ppIter: *mut *mut KVIterator,
) -> c_int {
    // SAFETY: as documented.
    unsafe { create(kv, ppIter, Some((pPrefix, nPrefix)), Direction::Forward) }
}

/// Creates an iterator over the live entries of the family `cf` whose keys start with a prefix, in
/// ascending key order.
///
/// Parameters, behaviour and errors are those of kvstore_prefix_iterator_create.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_prefix_iterator_create(
    cf: *mut KVColumnFamily,
    pPrefix: *const c_void,
    nPrefix: c_int,
    ppIter: *mut *mut KVIterator,
) -> c_int {
    // SAFETY: as documented.
    unsafe { create(cf, ppIter, Some((pPrefix, nPrefix)), Direction::Forward) }
}

/// Creates an iterator over the live entries of the default family whose keys start with a prefix,
/// in descending key order. The new iterator is at the entry with the greatest key, or at the end
/// if there is none.
///
/// Parameters, visibility of writes and errors are those of kvstore_prefix_iterator_create.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_reverse_prefix_iterator_create(
    kv: *mut KVStore,
    pPrefix: *const c_void,
    nPrefix: c_int,
    ppIter: *mut *mut KVIterator,
) -> c_int {
    // SAFETY: as documented.
    unsafe { create(kv, ppIter, Some((pPrefix, nPrefix)), Direction::Reverse) }
}

/// Creates an iterator over the live entries of the family `cf` whose keys start with a prefix, in
/// descending key order.
///
/// Parameters, behaviour and errors are those of kvstore_reverse_prefix_iterator_create.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_reverse_prefix_iterator_create(
    cf: *mut KVColumnFamily,
    pPrefix: *const c_void,
    nPrefix: c_int,
    ppIter: *mut *mut KVIterator,
) -> c_int {
    // SAFETY: as documented.
    unsafe { create(cf, ppIter, Some((pPrefix, nPrefix)), Direction::Reverse) }
}

unsafe fn create<T: Opaque>(
    handle: *mut T,
    result: *mut *mut KVIterator,
    prefix: Option<(*const c_void, c_int)>,
    direction: Direction,
) -> c_int
where
    T::Value: HasFamily,
{
    // SAFETY: passed on.
    unsafe {
        new_iterator(handle, result, |family| match prefix {
            None => Ok(family.cursor(KeyRange::all(), direction)),
            Some((prefix, length)) => {
                let mut cursor =
                    family.cursor(KeyRange::prefix(key_called("prefix", prefix, length)?), direction);
                cursor.first()?;
                Ok(cursor)
            }
        })
    }
}

/// Runs a C call that creates an iterator: `make` returns its cursor on the family of `handle`. The
/// C handle of the iterator is written to `result`, or NULL after a failure.
pub(super) unsafe fn new_iterator<T: Opaque>(
    handle: *mut T,
    result: *mut *mut KVIterator,
    make: impl FnOnce(&Family) -> Outcome<Cursor>,
) -> c_int
where
    T::Value: HasFamily,
{
    // SAFETY: NULL or valid, as documented.
    if let Some(result) = unsafe { optional_output(result) } {
        result.set(std::ptr::null_mut());
    }
    // SAFETY: as documented.
    unsafe {
        call(handle, |value| {
            let result = output(result, "ppIter")?;
            let cursor = make(value.family())?;
            cursor.check_open()?;
            result.set(handle::open(Single::new(cursor, value.call_state())));
            Ok(KVSTORE_OK)
        })
    }
}

/// Moves a forward iterator to its first entry; a reverse iterator to its last entry in key order.
/// If there is no entry, the iterator is at the end, which is not an error.
///
/// Errors: KVSTORE_ERROR (`it` is NULL), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
/// KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
/// KVSTORE_MISUSE: the iterator or its store is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_iterator_first(it: *mut KVIterator) -> c_int {
    // SAFETY: as documented.
    unsafe { call_single(it, |cursor| moved(cursor.first())) }
}

/// Moves a reverse iterator to the last entry of its range in key order, where its iteration
/// begins.
///
/// Errors: KVSTORE_ERROR (`it` is NULL or a forward iterator), or a read code (KVSTORE_BUSY,
/// KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
/// KVSTORE_MISUSE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_iterator_last(it: *mut KVIterator) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call_single(it, |cursor| {
            must_be_reverse(cursor, "last")?;
            moved(cursor.first())
        })
    }
}

/// Moves the iterator to the next entry in its direction. An iterator at the end stays there.
///
/// After a failed move the iterator is at the end. The next call of this function continues after
/// the last entry the iterator was at, also if a kvstore_iterator_seek or kvstore_iterator_first
/// failed. If it was at no entry, it stays at the end.
///
/// On a reverse iterator the call is the same as kvstore_iterator_prev.
///
/// Errors: KVSTORE_ERROR (`it` is NULL), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
/// KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_iterator_next(it: *mut KVIterator) -> c_int {
    // SAFETY: as documented.
    unsafe {
        if glance_mut(it, |cursor: &mut Cursor| cursor.step(coarse::is_far_off)) {
            KVSTORE_OK
        } else {
            next_closely(it)
        }
    }
}

#[cold]
#[inline(never)]
unsafe fn next_closely(it: *mut KVIterator) -> c_int {
    // SAFETY: passed on.
    unsafe { call_single(it, |cursor: &mut Cursor| moved(cursor.next())) }
}

/// Moves a reverse iterator to the previous entry in key order. An iterator at the end stays there.
///
/// After a failed move, the position is as documented for kvstore_iterator_next.
///
/// Errors: KVSTORE_ERROR (`it` is NULL or a forward iterator), or a read code (KVSTORE_BUSY,
/// KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
/// KVSTORE_MISUSE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_iterator_prev(it: *mut KVIterator) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call_single(it, |cursor| {
            must_be_reverse(cursor, "prev")?;
            moved(cursor.next())
        })
    }
}

/// Moves a forward iterator to the first entry whose key is greater than or equal to the given key;
/// a reverse iterator to the first one whose key is less than or equal.
///
/// @param pKey,nKey Key and its length: 1 to 65536 bytes. In a row iterator, a clustering part.
///
/// The iterator is at the end if there is no such entry, or if the key is outside the range or
/// prefix of the iterator. It may be called any number of times.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL, the length is out of bounds, or the iterator is in
/// order of expiry; the iterator does not move then), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
/// KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE). After a failed
/// read kvstore_iterator_next continues after the entry the iterator was at before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_iterator_seek(
    it: *mut KVIterator,
    pKey: *const c_void,
    nKey: c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { call_single(it, |cursor| moved(cursor.seek(key(pKey, nKey)?))) }
}

/// Returns up to `max` live entries, beginning with the current one, and moves past them.
///
/// @param entries Array of at least `max` elements. Keys and values point into memory of the
///   iterator, which is valid until the iterator moves, fetches again or is closed.
/// @param max Maximum number of entries, at least 0.
/// @param pn Receives the number of entries written. It may be less than `max` before the end; it
///   is 0 only at the end, or if `max` is 0.
///
/// `while (kvstore_iterator_fetch(it, entries, 256, &n) == KVSTORE_OK && n > 0)` iterates over all
/// entries.
///
/// All entries are live when the call reads the clock, except in an iterator of
/// kvstore_expiring_iterator_create; for a store on a server see kvstore_iterator_create. If this
/// store handle has written since the current entry was read, the entry is read again. It is
/// returned in its current state, or skipped if it no longer exists; in order of expiry it is
/// returned at its new position, if that is ahead.
///
/// The call works on every iterator. It returns what a loop of kvstore_iterator_key,
/// kvstore_iterator_value and kvstore_iterator_next returns, in a fraction of the time.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL, or `max` is negative), or a read code (KVSTORE_BUSY,
/// KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
/// KVSTORE_MISUSE). Nothing is written then. The iterator stays at its entry, or at the following
/// one if its entry no longer exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_iterator_fetch(
    it: *mut KVIterator,
    entries: *mut KVEntry,
    max: c_int,
    pn: *mut c_int,
) -> c_int {
    // SAFETY: as documented: `entries` has room for `max`, and a fetch shows no more than it was asked for.
    unsafe {
        call_single(it, |cursor: &mut Cursor| {
            let count = output(pn, "pn")?;
            let Ok(room) = usize::try_from(max) else {
                return bad_argument(&format!("max is {max}: it cannot be negative"));
            };
            if entries.is_null() && room > 0 {
                return bad_argument("entries is NULL");
            }
            let fetched = cursor.fetch(room)?;
            count.set(c_length(fetched.len()));
            fetched.fold(entries, |place, entry| {
                place.write(KVEntry {
                    pKey: entry.key.as_ptr().cast(),
                    pValue: entry.value.map_or(std::ptr::null(), |value| value.as_ptr().cast()),
                    nKey: c_length(entry.key.len()),
                    nValue: entry.value.map_or(0, |value| c_length(value.len())),
                    expireMs: entry.expiry.millis().unwrap_or(NO_TTL),
                });
                place.add(1)
            });
            Ok(KVSTORE_OK)
        })
    }
}

fn moved(done: crate::Result<bool>) -> Outcome<c_int> {
    done?;
    Ok(KVSTORE_OK)
}

fn must_be_reverse(cursor: &Cursor, what: &str) -> Outcome<()> {
    match cursor.direction() {
        Direction::Reverse => Ok(()),
        Direction::Forward => {
            bad_argument(&format!("{what} works on reverse iterators only: this one goes forward"))
        }
    }
}

/// Returns 1 if the iterator is at its end, and 0 if it is at an entry. Returns 1 also if the
/// pointer is NULL, or if the iterator or its store is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_iterator_eof(it: *mut KVIterator) -> c_int {
    // SAFETY: NULL or an iterator, as documented.
    unsafe {
        let at_entry = |cursor: &Cursor| cursor.is_plainly_valid().then_some(0);
        glance(it, at_entry).unwrap_or_else(|| eof_closely(it))
    }
}

#[cold]
#[inline(never)]
unsafe fn eof_closely(it: *mut KVIterator) -> c_int {
    let mut eof = 1;
    // SAFETY: passed on.
    unsafe {
        look_single(it, |cursor: &Cursor| {
            eof = c_int::from(!cursor.is_valid());
            Ok(KVSTORE_OK)
        });
    }
    eof
}

/// Returns the key of the current entry.
///
/// @param ppKey Receives a pointer into memory of the iterator, valid until the iterator moves or
///   is closed.
/// @param pnKey Receives the length of the key, in bytes.
///
/// Errors: KVSTORE_ERROR (the iterator is at the end, or a pointer is NULL), KVSTORE_MISUSE (the
/// iterator or its store is closed).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_iterator_key(
    it: *mut KVIterator,
    ppKey: *mut *mut c_void,
    pnKey: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { show(it, Cursor::plain_key, Cursor::key, ["ppKey", "pnKey"], ppKey, pnKey) }
}

/// Returns the value of the current entry.
///
/// @param ppValue Receives a pointer into memory of the iterator, valid until the iterator moves or
///   is closed.
/// @param pnValue Receives the length of the value, in bytes.
///
/// Errors: KVSTORE_ERROR (the iterator is at the end or reads keys only, or a pointer is NULL),
/// KVSTORE_MISUSE (the iterator or its store is closed).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_iterator_value(
    it: *mut KVIterator,
    ppValue: *mut *mut c_void,
    pnValue: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { show(it, Cursor::plain_value, Cursor::value, ["ppValue", "pnValue"], ppValue, pnValue) }
}

#[inline(always)]
unsafe fn show(
    it: *mut KVIterator,
    plain_part: impl FnOnce(&Cursor) -> Option<&[u8]>,
    part: fn(&Cursor) -> Option<&[u8]>,
    names: [&str; 2],
    pp: *mut *mut c_void,
    pn: *mut c_int,
) -> c_int {
    // SAFETY: passed on; the pointers are checked before they are written to.
    unsafe {
        if !pp.is_null()
            && !pn.is_null()
            && let Some((start, length)) = glance(it, |cursor: &Cursor| {
                plain_part(cursor).map(|part| (part.as_ptr(), c_length(part.len())))
            })
        {
            pp.write(start.cast_mut().cast());
            pn.write(length);
            return KVSTORE_OK;
        }
        look_closely(it, part, names, pp, pn)
    }
}

#[cold]
#[inline(never)]
unsafe fn look_closely(
    it: *mut KVIterator,
    part: fn(&Cursor) -> Option<&[u8]>,
    names: [&str; 2],
    pp: *mut *mut c_void,
    pn: *mut c_int,
) -> c_int {
    // SAFETY: passed on.
    unsafe { look_single(it, |cursor| show_closely(cursor, part, names, pp, pn)) }
}

unsafe fn show_closely(
    cursor: &Cursor,
    part: fn(&Cursor) -> Option<&[u8]>,
    names: [&str; 2],
    pp: *mut *mut c_void,
    pn: *mut c_int,
) -> Outcome<c_int> {
    let [bytes, length] = names;
    // SAFETY: passed on.
    let (bytes, length) = unsafe { (output(pp, bytes)?, output(pn, length)?) };
    cursor.check_open()?;
    let Some(part) = part(cursor) else {
        return if cursor.is_valid() {
            bad_argument("a keys-only iterator reads no values")
        } else {
            at_eof()
        };
    };
    bytes.set(part.as_ptr().cast_mut().cast());
    length.set(c_length(part.len()));
    Ok(KVSTORE_OK)
}

pub(super) fn at_eof<T>() -> Outcome<T> {
    bad_argument("the iterator is at eof: call first, last or seek, and check kvstore_iterator_eof")
}

/// Closes an iterator. NULL is allowed, and so is an iterator whose store is already closed.
///
/// Threads: a call of another thread that is using the iterator runs to its end. A callback cannot
/// close the iterator that is running it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_iterator_close(it: *mut KVIterator) {
    // SAFETY: NULL or an iterator, as documented.
    unsafe { close_single(it) }
}

/// Returns the expiry time of the current entry, in milliseconds since the Unix epoch.
///
/// @param pExpireMs Receives the expiry time, in milliseconds since the Unix epoch; KVSTORE_NO_TTL
///   if the key never expires.
///
/// Errors: KVSTORE_ERROR (the iterator is at the end, or a pointer is NULL), KVSTORE_MISUSE (the
/// iterator or its store is closed).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_iterator_expire_ms(it: *mut KVIterator, pExpireMs: *mut i64) -> c_int {
    // SAFETY: as documented.
    unsafe {
        look_single(it, |cursor: &Cursor| {
            let time = output(pExpireMs, "pExpireMs")?;
            cursor.check_open()?;
            let Some(expiry) = cursor.expiry() else { return at_eof() };
            time.set(expiry.millis().unwrap_or(NO_TTL));
            Ok(KVSTORE_OK)
        })
    }
}

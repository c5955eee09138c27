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

/// Makes an iterator over the live entries of the default family, from the least key to the greatest.
/// It is at eof until kvstore_iterator_first or kvstore_iterator_seek. On success `*ppIter` is the
/// iterator, to be closed with kvstore_iterator_close; on failure it is NULL.
///
/// An iterator holds no lock and no snapshot between calls (inside a transaction it has the
/// transaction's): writes, commits and close are always possible. Outside a transaction it sees, ahead
/// of its position, what its own store handle writes, and what others commit, sooner or later: it reads ahead, up to
/// 512 entries or 64 KiB and one value more, and what another handle commits to those meanwhile it does not see, be it a
/// value or an end of life. By the ends it has read it judges them at each step.
///
/// Of a store on a server it judges what it has read ahead by the server's time as the store handle knows it,
/// which is late by as long as the newest answer was on its way: so long, it may show an entry that has expired since.
///
/// Errors: KVSTORE_ERROR (a NULL pointer), KVSTORE_MISUSE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_iterator_create(kv: *mut KVStore, ppIter: *mut *mut KVIterator) -> c_int {
    // SAFETY: as documented.
    unsafe { create(kv, ppIter, None, Direction::Forward) }
}

/// kvstore_iterator_create in any family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_iterator_create(
    cf: *mut KVColumnFamily,
    ppIter: *mut *mut KVIterator,
) -> c_int {
    // SAFETY: as documented.
    unsafe { create(cf, ppIter, None, Direction::Forward) }
}

/// Makes an iterator from the greatest key to the least. It is at eof until kvstore_iterator_last or
/// kvstore_iterator_seek, and moves with kvstore_iterator_prev. Otherwise as kvstore_iterator_create.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_reverse_iterator_create(
    kv: *mut KVStore,
    ppIter: *mut *mut KVIterator,
) -> c_int {
    // SAFETY: as documented.
    unsafe { create(kv, ppIter, None, Direction::Reverse) }
}

/// kvstore_reverse_iterator_create in any family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_reverse_iterator_create(
    cf: *mut KVColumnFamily,
    ppIter: *mut *mut KVIterator,
) -> c_int {
    // SAFETY: as documented.
    unsafe { create(cf, ppIter, None, Direction::Reverse) }
}

/// Makes an iterator over the keys that start with a prefix of 1 to 65536 bytes. It is at the first of
/// them from the start (or at eof). Otherwise as kvstore_iterator_create; errors also as kvstore_get.
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

/// kvstore_prefix_iterator_create in any family.
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

/// Makes an iterator over the keys that start with a prefix, from the greatest to the least. It is at
/// the greatest from the start (or at eof). Otherwise as kvstore_prefix_iterator_create.
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

/// kvstore_reverse_prefix_iterator_create in any family.
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

/// Gives out the iterator that `make` makes.
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
            result.set(handle::open(Single::new(cursor, value.session())));
            Ok(KVSTORE_OK)
        })
    }
}

/// Moves to the first entry of the iterator's range; on a reverse iterator it acts as
/// kvstore_iterator_last. Nothing there: KVSTORE_OK, and eof.
///
/// Errors: KVSTORE_ERROR (a NULL pointer), KVSTORE_BUSY (only in DELETE journal mode), KVSTORE_IOERR,
/// KVSTORE_NOMEM, KVSTORE_CORRUPT, KVSTORE_MISUSE (the iterator or its store is closed).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_iterator_first(it: *mut KVIterator) -> c_int {
    // SAFETY: as documented.
    unsafe { call_single(it, |cursor| moved(cursor.first())) }
}

/// Moves a reverse iterator to the last entry of its range.
///
/// Errors: as kvstore_iterator_first; KVSTORE_ERROR on a forward iterator.
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

/// Moves to the next entry; on a reverse iterator it acts as kvstore_iterator_prev. At eof it stays.
///
/// Errors: as kvstore_iterator_first. After a failure of a move the iterator is at eof, and this one goes on
/// after the last entry it was at, also if what failed was a kvstore_iterator_seek or kvstore_iterator_first. If
/// it was at none, a seek that failed leaves it there.
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

/// Moves a reverse iterator to the entry before. At eof it stays.
///
/// Errors: as kvstore_iterator_next; KVSTORE_ERROR on a forward iterator.
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

/// Moves to the first entry whose key is at or after `key`; on a reverse iterator, at or before it. A
/// key outside the iterator's prefix, or nothing there: KVSTORE_OK, and eof. May be called any number
/// of times.
///
/// Errors: as kvstore_iterator_first; KVSTORE_ERROR also for a key of a bad length, which moves nothing. After a
/// failure kvstore_iterator_next goes on after the entry the iterator was at before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_iterator_seek(
    it: *mut KVIterator,
    pKey: *const c_void,
    nKey: c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { call_single(it, |cursor| moved(cursor.seek(key(pKey, nKey)?))) }
}

/// Shows the live entries from the current one on, at most `max`, and moves behind them: what a loop of
/// kvstore_iterator_key, _value and _next shows, for a fraction of its time. `*pn` is how many were written to
/// `entries`: maybe fewer than there are, but 0 only where there are none left (or if `max` is 0).
///
/// `while (kvstore_iterator_fetch(it, entries, 256, &n) == KVSTORE_OK && n > 0)` walks over all.
///
/// What they point to is the iterator's memory, and valid until it moves, fetches again or is closed. Works on every
/// iterator. All of the entries are alive when it is called (but for kvstore_cf_expiring_iterator_create; of a store on a
/// server: as kvstore_iterator_create says). If
/// this store handle has written since the current entry was read, by a move or ahead, it is looked at again, and shown as it is now, or not
/// at all if it is gone (in the order of expiry: where it is now, if that is ahead).
///
/// Errors: as kvstore_iterator_next, also KVSTORE_ERROR for a negative `max`; nothing is written then, and the
/// iterator stays where it is, or if that entry was found gone, at the one behind it.
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

/// 1 if the iterator is at no entry, 0 if it is at one. 1 for NULL and for a closed iterator or store.
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

/// Shows the key of the current entry. The memory is the iterator's, and valid until it moves or is
/// closed.
///
/// Errors: KVSTORE_ERROR (at eof, a NULL pointer), KVSTORE_MISUSE (the iterator or its store is
/// closed).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_iterator_key(
    it: *mut KVIterator,
    ppKey: *mut *mut c_void,
    pnKey: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { show(it, Cursor::plain_key, Cursor::key, ["ppKey", "pnKey"], ppKey, pnKey) }
}

/// Shows the value of the current entry. Otherwise as kvstore_iterator_key.
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

/// Closes an iterator. NULL is allowed, and so are iterators of a closed store. A call that another thread is
/// in with it goes on to its end; a callback cannot close the iterator that has called it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_iterator_close(it: *mut KVIterator) {
    // SAFETY: NULL or an iterator, as documented.
    unsafe { close_single(it) }
}

/// Shows when the current entry of an iterator expires: milliseconds since the Unix epoch, or
/// KVSTORE_NO_TTL. Works on every iterator.
///
/// Errors: as kvstore_iterator_key.
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

//! Several keys at once, and batches.

use std::ffi::{c_int, c_void};

use super::args::{
    Buffer, Outcome, bad_argument, bound, c_length, key, malloc_copy, no_memory, optional_output, output,
    present, value, write_expiry,
};
use super::call::{argument, call, call_single, close_single};
use super::codes::KVSTORE_OK;
use super::conditional::give_count;
use super::data::on_family;
use super::handle::{self, Single};
use super::ranges::key_range;
use super::types::{KVBatch, KVColumnFamily, KVStore};
use crate::{Error, Family, WriteBatch};

/// Reads the value of a key of the default family into a buffer of the caller, without allocating
/// memory for it.
///
/// @param pKey,nKey Key and its length: 1 to 65536 bytes.
/// @param buf Receives the first `cap` bytes of the value. May be NULL if `cap` is 0. Its content
///   is undefined after a failure.
/// @param cap Size of `buf`, in bytes, at least 0.
/// @param pn Receives the full length of the value, which may exceed `cap`; 0 if the key is not
///   found.
///
/// Errors: KVSTORE_NOTFOUND (the key does not exist or has expired), KVSTORE_ERROR (a pointer is
/// NULL, a length is out of bounds, or `cap` is negative), or a read code (KVSTORE_BUSY,
/// KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
/// KVSTORE_MISUSE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_get_into(
    kv: *mut KVStore,
    pKey: *const c_void,
    nKey: c_int,
    buf: *mut c_void,
    cap: c_int,
    pn: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| get_into(family, (pKey, nKey), buf, cap, pn)) }
}

/// Reads the value of a key of the family `cf` into a buffer of the caller.
///
/// Parameters, behaviour and errors are those of kvstore_get_into.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_get_into(
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
    buf: *mut c_void,
    cap: c_int,
    pn: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(cf, |family| get_into(family, (pKey, nKey), buf, cap, pn)) }
}

unsafe fn get_into(
    family: &Family,
    (p_key, n_key): (*const c_void, c_int),
    buf: *mut c_void,
    cap: c_int,
    pn: *mut c_int,
) -> Outcome<c_int> {
    // SAFETY: passed on.
    unsafe {
        let (key, length) = (key(p_key, n_key)?, output(pn, "pn")?);
        let mut buffer = Buffer::new(buf, cap)?;
        let found = family.copy_value(key, &mut buffer)?.map(|(length, _)| length);
        length.set(c_length(found.unwrap_or(0)));
        present(found.map(|_| KVSTORE_OK))
    }
}

/// Reads the values of several keys of the default family, all from one snapshot.
///
/// @param count Number of keys; 0 is allowed.
/// @param keys Array of `count` keys.
/// @param lens Array of their `count` lengths, each 1 to 65536.
/// @param values Array of `count` elements. Each receives a copy of the value, to be freed with
///   kvstore_free, or NULL if the key does not exist or has expired.
/// @param valueLens Array of `count` elements. Each receives the length of the value, or -1.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL, `count` is negative, or a length is out of bounds), or
/// a read code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT,
/// KVSTORE_PROTOCOL, KVSTORE_MISUSE). All results are NULL and -1 then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_get_many(
    kv: *mut KVStore,
    count: c_int,
    keys: *const *const c_void,
    lens: *const c_int,
    values: *mut *mut c_void,
    valueLens: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| get_many(family, count, (keys, lens), (values, valueLens))) }
}

/// Reads the values of several keys of the family `cf`, all from one snapshot.
///
/// Parameters, behaviour and errors are those of kvstore_get_many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_get_many(
    cf: *mut KVColumnFamily,
    count: c_int,
    keys: *const *const c_void,
    lens: *const c_int,
    values: *mut *mut c_void,
    valueLens: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(cf, |family| get_many(family, count, (keys, lens), (values, valueLens))) }
}

unsafe fn get_many(
    family: &Family,
    count: c_int,
    (keys, lens): (*const *const c_void, *const c_int),
    (values, value_lens): (*mut *mut c_void, *mut c_int),
) -> Outcome<c_int> {
    // SAFETY: passed on.
    unsafe {
        let Ok(count) = usize::try_from(count) else {
            return bad_argument(&format!("a count of {count}: it cannot be negative"));
        };
        if count == 0 {
            return Ok(KVSTORE_OK);
        }
        if keys.is_null() || lens.is_null() || values.is_null() || value_lens.is_null() {
            return bad_argument("keys, lens, values or valueLens is NULL");
        }
        let give = |n: usize, copy: *mut c_void, length: c_int| {
            values.add(n).write(copy);
            value_lens.add(n).write(length);
        };
        let give_nothing = || (0..count).for_each(|n| give(n, std::ptr::null_mut(), -1));
        give_nothing();
        let wanted: Vec<&[u8]> =
            (0..count).map(|n| key(*keys.add(n), *lens.add(n))).collect::<Outcome<_>>()?;
        let (mut complete, mut fits) = (true, true);
        let done = family.get_many_with(wanted, |n, value| {
            if n >= count {
                fits = false; // the arrays of the caller end here
            } else if let Some(value) = value {
                let copy = malloc_copy(value);
                complete &= !copy.is_null();
                give(n, copy, if copy.is_null() { -1 } else { c_length(value.len()) });
            }
        });
        if done.is_err() || !complete || !fits {
            (0..count).for_each(|n| libc::free(*values.add(n)));
            give_nothing();
            done?;
            if !fits {
                return Err(
                    Error::failed("the store returned more values than keys; no value was read").into()
                );
            }
            return Err(no_memory().into());
        }
        Ok(KVSTORE_OK)
    }
}

/// Deletes several keys of the default family in one transaction. For a store on a server this
/// takes one round trip.
///
/// @param count Number of keys; 0 is allowed.
/// @param keys Array of `count` keys.
/// @param lens Array of their `count` lengths, each 1 to 65536.
/// @param pnDeleted Receives the number of live keys deleted; a repeated key counts once. May be
///   NULL.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL, `count` is negative, or a length is out of bounds), or
/// a write code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR,
/// KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL). Nothing is deleted then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_delete_many(
    kv: *mut KVStore,
    count: c_int,
    keys: *const *const c_void,
    lens: *const c_int,
    pnDeleted: *mut i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| delete_many(family, count, (keys, lens), pnDeleted)) }
}

/// Deletes several keys of the family `cf` in one transaction.
///
/// Parameters, behaviour and errors are those of kvstore_delete_many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_delete_many(
    cf: *mut KVColumnFamily,
    count: c_int,
    keys: *const *const c_void,
    lens: *const c_int,
    pnDeleted: *mut i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(cf, |family| delete_many(family, count, (keys, lens), pnDeleted)) }
}

unsafe fn delete_many(
    family: &Family,
    count: c_int,
    (keys, lens): (*const *const c_void, *const c_int),
    pn_deleted: *mut i64,
) -> Outcome<c_int> {
    // SAFETY: passed on.
    unsafe {
        let Ok(count) = usize::try_from(count) else {
            return bad_argument(&format!("a count of {count}: it cannot be negative"));
        };
        if count > 0 && (keys.is_null() || lens.is_null()) {
            return bad_argument("keys or lens is NULL");
        }
        let doomed: Vec<&[u8]> =
            (0..count).map(|n| key(*keys.add(n), *lens.add(n))).collect::<Outcome<_>>()?;
        give_count(pn_deleted, family.delete_many(doomed)?);
        Ok(KVSTORE_OK)
    }
}

/// Deletes all keys of the default family that are at or after a lower bound and before an upper
/// bound, in one transaction.
///
/// @param pLower,nLower Lower bound, included; NULL with length 0: from the first key.
/// @param pUpper,nUpper Upper bound, excluded; NULL with length 0: to the last key.
/// @param pnDeleted Receives the number of live keys deleted. May be NULL.
///
/// Errors: KVSTORE_ERROR (`kv` is NULL, a length is out of bounds, or a bound is NULL with a
/// length), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY,
/// KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_delete_range(
    kv: *mut KVStore,
    pLower: *const c_void,
    nLower: c_int,
    pUpper: *const c_void,
    nUpper: c_int,
    pnDeleted: *mut i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| delete_range(family, (pLower, nLower), (pUpper, nUpper), pnDeleted)) }
}

/// Deletes all keys of the family `cf` that are at or after a lower bound and before an upper
/// bound, in one transaction.
///
/// Parameters, behaviour and errors are those of kvstore_delete_range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_delete_range(
    cf: *mut KVColumnFamily,
    pLower: *const c_void,
    nLower: c_int,
    pUpper: *const c_void,
    nUpper: c_int,
    pnDeleted: *mut i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(cf, |family| delete_range(family, (pLower, nLower), (pUpper, nUpper), pnDeleted)) }
}

unsafe fn delete_range(
    family: &Family,
    (p_lower, n_lower): (*const c_void, c_int),
    (p_upper, n_upper): (*const c_void, c_int),
    pn_deleted: *mut i64,
) -> Outcome<c_int> {
    // SAFETY: passed on.
    unsafe {
        let lower = bound(p_lower, n_lower, "lower bound")?;
        let range = key_range(lower, bound(p_upper, n_upper, "upper bound")?, 0);
        give_count(pn_deleted, family.delete_range(&range)?);
        Ok(KVSTORE_OK)
    }
}

/// Creates an empty batch for a store.
///
/// @param ppBatch Receives the batch, or NULL after a failure. Free it with kvstore_batch_free.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL), KVSTORE_MISUSE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_batch_new(kv: *mut KVStore, ppBatch: *mut *mut KVBatch) -> c_int {
    // SAFETY: NULL or valid, as documented.
    if let Some(result) = unsafe { optional_output(ppBatch) } {
        result.set(std::ptr::null_mut());
    }
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            let result = output(ppBatch, "ppBatch")?;
            result.set(handle::open(Single::new(kv.store.batch(), &kv.call_state)));
            Ok(KVSTORE_OK)
        })
    }
}

/// Adds a write of a value to a batch. Key and value are copied.
///
/// @param b Batch.
/// @param cf Family, opened from the store handle of the batch.
/// @param pKey,nKey Key and its length: 1 to 65536 bytes.
/// @param pValue,nValue Value and its length, as for kvstore_put.
/// @param expire_ms Expiry time, in milliseconds since the Unix epoch; 0: by the default TTL of
///   the family, counted from the commit; KVSTORE_NO_TTL: the key never expires.
///
/// The handle of the family may be closed before the commit.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL, a length is out of bounds, `expire_ms` is invalid, or
/// the family belongs to another store handle), KVSTORE_MISUSE (the batch, the family or the store
/// is closed), KVSTORE_NOMEM. Nothing is added then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_batch_put(
    b: *mut KVBatch,
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
    pValue: *const c_void,
    nValue: c_int,
    expire_ms: i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call_single(b, |batch: &mut WriteBatch| {
            let cf = argument(cf)?;
            let expiry = write_expiry(&cf.family, expire_ms)?;
            batch.put(&cf.family, key(pKey, nKey)?, value(pValue, nValue)?, expiry)?;
            Ok(KVSTORE_OK)
        })
    }
}

/// Adds the deletion of a key to a batch. The key need not exist when the batch is committed.
///
/// @param b Batch.
/// @param cf Family, opened from the store handle of the batch.
/// @param pKey,nKey Key and its length: 1 to 65536 bytes.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL, the length is out of bounds, or the family belongs to
/// another store handle), KVSTORE_MISUSE (the batch, the family or the store is closed),
/// KVSTORE_NOMEM. Nothing is added then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_batch_delete(
    b: *mut KVBatch,
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call_single(b, |batch: &mut WriteBatch| {
            batch.delete(&argument(cf)?.family, key(pKey, nKey)?)?;
            Ok(KVSTORE_OK)
        })
    }
}

/// Returns the number of writes and deletions in a batch.
///
/// @param pnCount Receives the number.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL), KVSTORE_MISUSE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_batch_count(b: *mut KVBatch, pnCount: *mut i64) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call_single(b, |batch: &mut WriteBatch| {
            let count = output(pnCount, "pnCount")?;
            batch.check_open()?;
            count.set(i64::try_from(batch.len()).unwrap_or(i64::MAX));
            Ok(KVSTORE_OK)
        })
    }
}

/// Removes all writes and deletions from a batch.
///
/// Errors: KVSTORE_ERROR (`b` is NULL), KVSTORE_MISUSE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_batch_clear(b: *mut KVBatch) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call_single(b, |batch: &mut WriteBatch| {
            batch.check_open()?;
            batch.clear();
            Ok(KVSTORE_OK)
        })
    }
}

/// Commits all writes and deletions of a batch atomically: in one transaction, or as part of the
/// open one.
///
/// After success the batch is empty and can be used again. After a failure it keeps its content.
///
/// Errors: KVSTORE_ERROR (`b` is NULL, there is no family of that name any more, or the batch for a
/// store on a server exceeds 1008 MiB), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM,
/// KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE,
/// KVSTORE_FULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_batch_commit(b: *mut KVBatch) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call_single(b, |batch: &mut WriteBatch| {
            batch.commit()?;
            Ok(KVSTORE_OK)
        })
    }
}

/// Frees a batch and discards its content. NULL is allowed, and so is a batch whose store is
/// already closed.
///
/// Threads: a call of another thread that is using the batch runs to its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_batch_free(b: *mut KVBatch) {
    // SAFETY: NULL or a batch, as documented.
    unsafe { close_single(b) }
}

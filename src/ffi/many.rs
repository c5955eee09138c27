//! Reads without allocation, several keys at once, batches.

use std::ffi::{c_int, c_void};

use super::args::{
    Buffer, Outcome, bad_argument, bound, c_length, expiry, key, malloc_copy, no_memory, optional_output,
    output, present, value,
};
use super::call::{argument, call, call_single, close_single};
use super::codes::KVSTORE_OK;
use super::conditional::give_count;
use super::data::on_family;
use super::handle::{self, Single};
use super::ranges::key_range;
use super::types::{KVBatch, KVColumnFamily, KVStore};
use crate::{Error, ErrorKind, WriteBatch};

/// Reads a value into the caller's buffer, without allocating: copies its first bytes, at most `cap`.
/// `*pn` is the full length, also when that is more than `cap`. `buf` may be NULL if `cap` is 0. What it has after a
/// failure is not to be used.
///
/// Errors: KVSTORE_NOTFOUND (missing or expired: *pn is 0), KVSTORE_ERROR (also for a negative cap);
/// otherwise as kvstore_get.
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
    unsafe {
        on_family(cf, |family| {
            let (key, length) = (key(pKey, nKey)?, output(pn, "pn")?);
            let mut buffer = Buffer::new(buf, cap)?;
            let found = family.get_with(key, |value, _| {
                buffer.fill(value);
                value.len()
            })?;
            length.set(c_length(found.unwrap_or(0)));
            present(found.map(|_| KVSTORE_OK))
        })
    }
}

/// Reads several values from one snapshot. `keys` and `lens` have `count` keys; `values` and `valueLens`
/// get as many results: a copy, to be freed with kvstore_free, and its length; or NULL and -1 for a key
/// that is missing or expired. A `count` of 0 is allowed.
///
/// Errors: KVSTORE_ERROR (a NULL pointer, a negative count, a key of a bad length); otherwise as
/// kvstore_get. All results are NULL and -1 then.
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
    unsafe {
        on_family(cf, |family| {
            let Ok(count) = usize::try_from(count) else {
                return bad_argument(&format!("a count of {count}: it cannot be negative"));
            };
            if count == 0 {
                return Ok(KVSTORE_OK);
            }
            if keys.is_null() || lens.is_null() || values.is_null() || valueLens.is_null() {
                return bad_argument("keys, lens, values or valueLens is NULL");
            }
            let give = |n: usize, copy: *mut c_void, length: c_int| {
                values.add(n).write(copy);
                valueLens.add(n).write(length);
            };
            let give_nothing = || (0..count).for_each(|n| give(n, std::ptr::null_mut(), -1));
            give_nothing();
            let wanted: Vec<&[u8]> =
                (0..count).map(|n| key(*keys.add(n), *lens.add(n))).collect::<Outcome<_>>()?;
            let (mut complete, mut fits) = (true, true);
            let done = family.get_many_with(wanted, |n, value| {
                if n >= count {
                    fits = false; // whatever the store says, the arrays end here
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
                    let text = "the store has answered more values than it was asked for: nothing was read";
                    return Err(Error::new(ErrorKind::Error, text).into());
                }
                return Err(no_memory().into());
            }
            Ok(KVSTORE_OK)
        })
    }
}

/// Deletes several keys, all in one transaction, and on a server in one round trip. `keys` and `lens` have `count` keys;
/// `*pnDeleted` (may be NULL) is how many of them were there and alive, each counted once. A `count` of 0 is allowed.
///
/// Errors: KVSTORE_ERROR (a NULL pointer, a negative count, a key of a bad length); otherwise as kvstore_put. Nothing is
/// deleted then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_delete_many(
    cf: *mut KVColumnFamily,
    count: c_int,
    keys: *const *const c_void,
    lens: *const c_int,
    pnDeleted: *mut i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        on_family(cf, |family| {
            let Ok(count) = usize::try_from(count) else {
                return bad_argument(&format!("a count of {count}: it cannot be negative"));
            };
            if count > 0 && (keys.is_null() || lens.is_null()) {
                return bad_argument("keys or lens is NULL");
            }
            let doomed: Vec<&[u8]> =
                (0..count).map(|n| key(*keys.add(n), *lens.add(n))).collect::<Outcome<_>>()?;
            give_count(pnDeleted, family.delete_many(doomed)?);
            Ok(KVSTORE_OK)
        })
    }
}

/// Deletes the keys from `pLower` (NULL with length 0: the least) to before `pUpper` (NULL with length 0: to the
/// greatest), all in one transaction. NULL with another length is KVSTORE_ERROR. `*pnDeleted` (may be NULL) is how
/// many of them were alive.
///
/// Errors: as kvstore_put.
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
    unsafe {
        on_family(cf, |family| {
            let range =
                key_range(bound(pLower, nLower, "lower bound")?, bound(pUpper, nUpper, "upper bound")?, 0);
            give_count(pnDeleted, family.delete_range(&range)?);
            Ok(KVSTORE_OK)
        })
    }
}

/// Makes an empty batch for a store. On success `*ppBatch` is the batch, to be freed with
/// kvstore_batch_free; on failure it is NULL.
///
/// Errors: KVSTORE_ERROR (a NULL pointer), KVSTORE_MISUSE.
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
            result.set(handle::open(Single::new(kv.store.batch(), &kv.session)));
            Ok(KVSTORE_OK)
        })
    }
}

/// Adds a write to a batch: the key expires at `expire_ms` (0: never). Key and value are copied; the
/// family's handle may be closed before the commit.
///
/// Errors: KVSTORE_ERROR (a NULL pointer, a bad length, a negative expire_ms, a family of another store
/// handle), KVSTORE_MISUSE (the batch, the family or the store is closed), KVSTORE_NOMEM. Nothing is added then.
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
            batch.put(&cf.family, key(pKey, nKey)?, value(pValue, nValue)?, expiry(expire_ms)?)?;
            Ok(KVSTORE_OK)
        })
    }
}

/// Adds a deletion to a batch. A key that is missing at the commit is no error. Otherwise as
/// kvstore_batch_put.
///
/// Errors: as kvstore_batch_put.
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

/// Says in `*pnCount` how many writes and deletions a batch has.
///
/// Errors: KVSTORE_ERROR (a NULL pointer), KVSTORE_MISUSE.
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

/// Empties a batch.
///
/// Errors: KVSTORE_ERROR (b is NULL), KVSTORE_MISUSE.
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

/// Commits a batch: all of it in one transaction (or as part of the open one), or nothing. The batch is
/// empty afterwards, but only on success, and can be used again.
///
/// Errors: as kvstore_put; also KVSTORE_ERROR if a family was dropped meanwhile, or if the store is on a server and
/// the batch has more than it takes at once (1008 MiB).
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

/// Frees a batch; what was not committed is forgotten. NULL is allowed, and so are batches of a closed
/// store. A call that another thread is in with it goes on to its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_batch_free(b: *mut KVBatch) {
    // SAFETY: NULL or a batch, as documented.
    unsafe { close_single(b) }
}

//! Keys that expire.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use super::args::{
    Failure, Outcome, bad_argument, c_length, expiry, key, optional_output, output, present, value,
};
use super::codes::{KVSTORE_OK, NO_TTL};
use super::data::{get, on_family};
use super::types::{KVColumnFamily, KVStore};
use crate::{Family, Ttl};

/// Writes a value that expires at `expire_ms`, in milliseconds since the Unix epoch (such as
/// kvstore_now_ms() + 60000); 0: never. A time in the past is allowed: the key is invisible at once.
///
/// `expire_ms` is a moment. A value of 1 to 10^10 (before 27 April 1970) is nearly always a duration by
/// mistake, and the key is gone: kvstore_cf_put_for takes the duration.
///
/// Errors: as kvstore_put; KVSTORE_ERROR also for a negative expire_ms.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_put_ttl(
    kv: *mut KVStore,
    pKey: *const c_void,
    nKey: c_int,
    pValue: *const c_void,
    nValue: c_int,
    expire_ms: i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| put_ttl(family, (pKey, nKey), (pValue, nValue), expire_ms)) }
}

/// kvstore_put_ttl in any family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_put_ttl(
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
    pValue: *const c_void,
    nValue: c_int,
    expire_ms: i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(cf, |family| put_ttl(family, (pKey, nKey), (pValue, nValue), expire_ms)) }
}

unsafe fn put_ttl(
    family: &Family,
    (p_key, n_key): (*const c_void, c_int),
    (p_value, n_value): (*const c_void, c_int),
    expire_ms: i64,
) -> Outcome<c_int> {
    // SAFETY: passed on.
    let (key, value) = unsafe { (key(p_key, n_key)?, value(p_value, n_value)?) };
    family.put_until(key, value, expiry(expire_ms)?)?;
    Ok(KVSTORE_OK)
}

/// Writes a value that lives for `ttl_ms` milliseconds from now, by the store's clock. A duration that ends
/// after the last moment there is ends with it. kvstore_cf_put_ttl takes a moment instead, and there
/// 0 for a key that never expires.
///
/// Errors: as kvstore_put; KVSTORE_ERROR also for a `ttl_ms` below 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_put_for(
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
    pValue: *const c_void,
    nValue: c_int,
    ttl_ms: i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        on_family(cf, |family| {
            let (key, value) = (key(pKey, nKey)?, value(pValue, nValue)?);
            let Ok(ttl @ 1..) = u64::try_from(ttl_ms) else {
                return bad_argument(&format!(
                    "a TTL of {ttl_ms} ms: pass how long the key is to live, at least 1 ms; for one that never \
                     expires use kvstore_cf_put_ttl with 0"
                ));
            };
            family.put_ttl(key, value, Duration::from_millis(ttl))?;
            Ok(KVSTORE_OK)
        })
    }
}

/// Reads a value, as kvstore_get does, and what is left of its life: `*pnRemaining` (may be NULL) is
/// in milliseconds, or KVSTORE_NO_TTL.
///
/// Errors: as kvstore_get; with KVSTORE_NOTFOUND *pnRemaining is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_get_ttl(
    kv: *mut KVStore,
    pKey: *const c_void,
    nKey: c_int,
    ppValue: *mut *mut c_void,
    pnValue: *mut c_int,
    pnRemaining: *mut i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| get_ttl(family, (pKey, nKey), ppValue, pnValue, pnRemaining)) }
}

/// kvstore_get_ttl in any family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_get_ttl(
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
    ppValue: *mut *mut c_void,
    pnValue: *mut c_int,
    pnRemaining: *mut i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(cf, |family| get_ttl(family, (pKey, nKey), ppValue, pnValue, pnRemaining)) }
}

unsafe fn get_ttl(
    family: &Family,
    (p_key, n_key): (*const c_void, c_int),
    pp_value: *mut *mut c_void,
    pn_value: *mut c_int,
    pn_remaining: *mut i64,
) -> Outcome<c_int> {
    // SAFETY: passed on.
    let found = unsafe { get(family, p_key, n_key, pp_value, pn_value) };
    // SAFETY: passed on.
    if let Some(remaining) = unsafe { optional_output(pn_remaining) } {
        match found {
            Ok(expiry) => remaining.set(c_remaining(family.ttl_of_live(expiry))),
            Err(Failure::Missing(_)) => remaining.set(0),
            Err(_) => {}
        }
    }
    found.map(|_| KVSTORE_OK)
}

/// Says in `*pnRemaining` what is left of a key's life, in milliseconds: KVSTORE_NO_TTL for a key that
/// never expires, 0 for one that has expired but whose row this call is the first of its handle to meet. The row is
/// removed later, together with others; for this handle it is gone from then on.
///
/// Errors: KVSTORE_NOTFOUND (no row); otherwise as kvstore_get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_ttl_remaining(
    kv: *mut KVStore,
    pKey: *const c_void,
    nKey: c_int,
    pnRemaining: *mut i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| ttl_remaining(family, (pKey, nKey), pnRemaining)) }
}

/// kvstore_ttl_remaining in any family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_ttl_remaining(
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
    pnRemaining: *mut i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(cf, |family| ttl_remaining(family, (pKey, nKey), pnRemaining)) }
}

unsafe fn ttl_remaining(
    family: &Family,
    (p_key, n_key): (*const c_void, c_int),
    pn_remaining: *mut i64,
) -> Outcome<c_int> {
    // SAFETY: passed on.
    let (key, remaining) = unsafe { (key(p_key, n_key)?, output(pn_remaining, "pnRemaining")?) };
    remaining.set(c_remaining(present(family.ttl(key)?)?));
    Ok(KVSTORE_OK)
}

fn c_remaining(ttl: Ttl) -> i64 {
    let millis = |left: Duration| i64::try_from(left.as_millis()).unwrap_or(i64::MAX);
    match ttl {
        Ttl::None => NO_TTL,
        Ttl::Remaining(left) => millis(left),
    }
}

/// Removes every key of the default family that has expired; `*pnDeleted` (may be NULL) is how many, without those
/// that a get, exists or ttl call of this handle has met before.
/// The work grows with that number only. It is done in transactions of at most 256 keys, between which
/// others may write; or all in the open transaction.
///
/// Errors: as kvstore_put. What earlier transactions removed stays removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_purge_expired(kv: *mut KVStore, pnDeleted: *mut c_int) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| purge_expired(family, pnDeleted)) }
}

/// kvstore_purge_expired of any family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_purge_expired(cf: *mut KVColumnFamily, pnDeleted: *mut c_int) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(cf, |family| purge_expired(family, pnDeleted)) }
}

unsafe fn purge_expired(family: &Family, pn_deleted: *mut c_int) -> Outcome<c_int> {
    let purged = family.purge_expired()?;
    // SAFETY: passed on.
    if let Some(deleted) = unsafe { optional_output(pn_deleted) } {
        deleted.set(c_length(usize::try_from(purged).unwrap_or(usize::MAX)));
    }
    Ok(KVSTORE_OK)
}

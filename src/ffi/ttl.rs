//! Keys with an expiry time.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use super::args::{
    Failure, Outcome, bad_argument, c_length, key, optional_output, output, present, value, write_expiry,
};
use super::codes::{KVSTORE_OK, NO_TTL};
use super::data::{get, on_family};
use super::types::{KVColumnFamily, KVStore};
use crate::{Family, Ttl};

/// Writes a value with an expiry time into the default family.
///
/// @param pKey,nKey Key and its length: 1 to 65536 bytes.
/// @param pValue,nValue Value and its length, as for kvstore_put.
/// @param expire_ms Expiry time, in milliseconds since the Unix epoch, such as kvstore_now_ms() +
///   60000; KVSTORE_NO_TTL: the key never expires; 0: as kvstore_put, by the default TTL of the
///   family. A time in the past is allowed: the key is expired at once.
///
/// `expire_ms` is a moment, not a duration, for which there is kvstore_put_for.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL, a length is out of bounds, or `expire_ms` is
/// invalid), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY,
/// KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
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

/// Writes a value with an expiry time into the family `cf`.
///
/// Parameters, behaviour and errors are those of kvstore_put_ttl.
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
    match write_expiry(family, expire_ms)? {
        Some(expiry) => family.put_with_expiry(key, value, expiry)?,
        None => family.put(key, value)?,
    }
    Ok(KVSTORE_OK)
}

/// Writes a value with a TTL, counted from now, into the default family.
///
/// @param pKey,nKey Key and its length: 1 to 65536 bytes.
/// @param pValue,nValue Value and its length, as for kvstore_put.
/// @param ttl_ms TTL, in milliseconds from now by the clock of the store, at least 1. The expiry
///   time is limited to the last one that can be represented.
///
/// Use kvstore_put_ttl for an expiry time, or with KVSTORE_NO_TTL for a key that never expires.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL, a length is out of bounds, or `ttl_ms` is less than
/// 1), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY,
/// KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_put_for(
    kv: *mut KVStore,
    pKey: *const c_void,
    nKey: c_int,
    pValue: *const c_void,
    nValue: c_int,
    ttl_ms: i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| put_for(family, (pKey, nKey), (pValue, nValue), ttl_ms)) }
}

/// Writes a value with a TTL, counted from now, into the family `cf`.
///
/// Parameters, behaviour and errors are those of kvstore_put_for.
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
    unsafe { on_family(cf, |family| put_for(family, (pKey, nKey), (pValue, nValue), ttl_ms)) }
}

unsafe fn put_for(
    family: &Family,
    (p_key, n_key): (*const c_void, c_int),
    (p_value, n_value): (*const c_void, c_int),
    ttl_ms: i64,
) -> Outcome<c_int> {
    // SAFETY: passed on.
    unsafe {
        let (key, value) = (key(p_key, n_key)?, value(p_value, n_value)?);
        let Ok(ttl @ 1..) = u64::try_from(ttl_ms) else {
            return bad_argument(&format!(
                "a TTL of {ttl_ms} ms: pass how long the key is to live, at least 1 ms; for one that never \
                 expires use kvstore_put_ttl or kvstore_cf_put_ttl with 0"
            ));
        };
        family.put_with_ttl(key, value, Duration::from_millis(ttl))?;
        Ok(KVSTORE_OK)
    }
}

/// Reads the value and the remaining TTL of a key of the default family.
///
/// @param pKey,nKey Key and its length: 1 to 65536 bytes.
/// @param ppValue Receives a copy of the value, as for kvstore_get. Free it with kvstore_free.
/// @param pnValue Receives the length of the value.
/// @param pnRemaining Receives the remaining TTL, in milliseconds; KVSTORE_NO_TTL if the key never
///   expires; 0 if it is not found. May be NULL.
///
/// Errors: KVSTORE_NOTFOUND (the key does not exist or has expired), KVSTORE_ERROR (a pointer is
/// NULL, or the length is out of bounds), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
/// KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
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

/// Reads the value and the remaining TTL of a key of the family `cf`.
///
/// Parameters, behaviour and errors are those of kvstore_get_ttl.
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

/// Returns the remaining TTL of a key of the default family, in milliseconds.
///
/// @param pKey,nKey Key and its length: 1 to 65536 bytes.
/// @param pnRemaining Receives the remaining TTL, in milliseconds; KVSTORE_NO_TTL if the key never
///   expires. It is 0 if the key has expired and this call is the first one of its handle to find
///   the row; later calls return KVSTORE_NOTFOUND.
///
/// Errors: KVSTORE_NOTFOUND (there is no row, or this handle has already found it expired),
/// KVSTORE_ERROR (a pointer is NULL, or the length is out of bounds), or a read code (KVSTORE_BUSY,
/// KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
/// KVSTORE_MISUSE).
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

/// Returns the remaining TTL of a key of the family `cf`, in milliseconds.
///
/// Parameters, behaviour and errors are those of kvstore_ttl_remaining.
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

/// Removes all expired keys of the default family. The work is proportional to the number of
/// expired keys.
///
/// @param pnDeleted Receives the number of keys removed, without those that a get, exists or ttl
///   call of this handle found expired before. May be NULL.
///
/// The keys are removed in transactions of at most `walPages` keys, at least 256 and at most 4096
/// (256 with KVSTORE_SMALL). A transaction ends earlier after about 50 ms, and after 2 ms if another
/// handle or thread waits to write; the purge then pauses for up to 10 ms. Inside a transaction, all
/// keys are removed in that one. After a failure, keys that earlier transactions removed stay
/// removed. The list of keys to remove needs up to 20 MiB of memory (512 KiB with KVSTORE_SMALL).
///
/// Errors: KVSTORE_ERROR (`kv` is NULL), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED,
/// KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
/// KVSTORE_MISUSE, KVSTORE_FULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_purge_expired(kv: *mut KVStore, pnDeleted: *mut c_int) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| purge_expired(family, pnDeleted)) }
}

/// Removes all expired keys of the family `cf`. The work is proportional to the number of expired
/// keys.
///
/// Parameters, behaviour and errors are those of kvstore_purge_expired.
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

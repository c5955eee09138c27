//! Expiry times and default TTLs.

use std::ffi::{c_int, c_void};

use super::args::{Copied, Failure, Outcome, bad_argument, c_length, duration, expiry, key, output, present};
use super::call::call;
use super::codes::{
    KVSTORE_EXPIRE_GT, KVSTORE_EXPIRE_LT, KVSTORE_EXPIRE_NX, KVSTORE_EXPIRE_XX, KVSTORE_OK, NO_TTL,
};
use super::conditional::give_flag;
use super::data::on_family;
use super::errmsg::NO_TTLS;
use super::types::{KVColumnFamily, KVStore};
use crate::{Destination, ExpiryCondition, Family};

/// Changes the expiry time of a live key of the default family. The value stays unchanged.
///
/// @param pKey,nKey Key and its length: 1 to 65536 bytes.
/// @param expire_ms New expiry time, in milliseconds since the Unix epoch; 0 or KVSTORE_NO_TTL:
///   never. A time in the past makes the key expire at once.
/// @param flags 0, or one KVSTORE_EXPIRE_* condition. A key without an expiry time counts as
///   expiring later than any time.
/// @param pChanged Receives 1 if the expiry time was set, 0 if the condition did not hold. May be
///   NULL.
///
/// Errors: KVSTORE_NOTFOUND (the key does not exist or has expired), KVSTORE_ERROR (`expire_ms` is
/// invalid, `flags` is unknown, the key is NULL, or its length is out of bounds), or a write code
/// (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT,
/// KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_expire(
    kv: *mut KVStore,
    pKey: *const c_void,
    nKey: c_int,
    expire_ms: i64,
    flags: c_int,
    pChanged: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| expire(family, (pKey, nKey), expire_ms, flags, pChanged)) }
}

/// Changes the expiry time of a live key of the family `cf`.
///
/// Parameters, behaviour and errors are those of kvstore_expire.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_expire(
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
    expire_ms: i64,
    flags: c_int,
    pChanged: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(cf, |family| expire(family, (pKey, nKey), expire_ms, flags, pChanged)) }
}

unsafe fn expire(
    family: &Family,
    (p_key, n_key): (*const c_void, c_int),
    expire_ms: i64,
    flags: c_int,
    p_changed: *mut c_int,
) -> Outcome<c_int> {
    // SAFETY: passed on.
    unsafe {
        let condition = match flags {
            0 => ExpiryCondition::Always,
            KVSTORE_EXPIRE_NX => ExpiryCondition::NoTtl,
            KVSTORE_EXPIRE_XX => ExpiryCondition::HasTtl,
            KVSTORE_EXPIRE_GT => ExpiryCondition::Later,
            KVSTORE_EXPIRE_LT => ExpiryCondition::Earlier,
            other => return bad_argument(&format!("flags {other}: pass 0 or one of KVSTORE_EXPIRE_*")),
        };
        changed(family.set_expiry(key(p_key, n_key)?, expiry(family, expire_ms)?, condition)?, p_changed)
    }
}

/// Removes the expiry time of a live key of the default family, so that the key never expires.
///
/// @param pKey,nKey Key and its length: 1 to 65536 bytes.
/// @param pChanged Receives 1 if the key had an expiry time, otherwise 0. May be NULL.
///
/// Errors: KVSTORE_NOTFOUND (the key does not exist or has expired), KVSTORE_ERROR (the key is
/// NULL, or its length is out of bounds), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED,
/// KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
/// KVSTORE_MISUSE, KVSTORE_FULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_persist(
    kv: *mut KVStore,
    pKey: *const c_void,
    nKey: c_int,
    pChanged: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| persist(family, (pKey, nKey), pChanged)) }
}

/// Removes the expiry time of a live key of the family `cf`.
///
/// Parameters, behaviour and errors are those of kvstore_persist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_persist(
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
    pChanged: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(cf, |family| persist(family, (pKey, nKey), pChanged)) }
}

unsafe fn persist(
    family: &Family,
    (p_key, n_key): (*const c_void, c_int),
    p_changed: *mut c_int,
) -> Outcome<c_int> {
    // SAFETY: passed on.
    unsafe { changed(family.persist(key(p_key, n_key)?)?, p_changed) }
}

unsafe fn changed(done: Option<bool>, p_changed: *mut c_int) -> Outcome<c_int> {
    let changed = present(done)?;
    // SAFETY: passed on.
    unsafe { give_flag(p_changed, changed) };
    Ok(KVSTORE_OK)
}

/// Returns the expiry time of a live key of the default family, in milliseconds since the Unix
/// epoch.
///
/// @param pKey,nKey Key and its length: 1 to 65536 bytes.
/// @param pExpireMs Receives the expiry time, in milliseconds since the Unix epoch; KVSTORE_NO_TTL
///   if the key never expires.
///
/// Errors: KVSTORE_NOTFOUND (the key does not exist or has expired), KVSTORE_ERROR (a pointer is
/// NULL, or the length is out of bounds), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
/// KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_expire_time(
    kv: *mut KVStore,
    pKey: *const c_void,
    nKey: c_int,
    pExpireMs: *mut i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| expire_time(family, (pKey, nKey), pExpireMs)) }
}

/// Returns the expiry time of a live key of the family `cf`, in milliseconds since the Unix epoch.
///
/// Parameters, behaviour and errors are those of kvstore_expire_time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_expire_time(
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
    pExpireMs: *mut i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(cf, |family| expire_time(family, (pKey, nKey), pExpireMs)) }
}

unsafe fn expire_time(
    family: &Family,
    (p_key, n_key): (*const c_void, c_int),
    p_expire_ms: *mut i64,
) -> Outcome<c_int> {
    // SAFETY: passed on.
    unsafe {
        let (key, time) = (key(p_key, n_key)?, output(p_expire_ms, "pExpireMs")?);
        time.set(present(family.expiry(key)?)?.millis().unwrap_or(NO_TTL));
        Ok(KVSTORE_OK)
    }
}

/// Reads the value of a key of the default family and changes its expiry time, atomically.
///
/// @param pKey,nKey Key and its length: 1 to 65536 bytes.
/// @param expire_ms New expiry time, in milliseconds since the Unix epoch; 0 or KVSTORE_NO_TTL:
///   never. With a time in the past this is the last read of the key.
/// @param ppValue Receives a copy of the value, as for kvstore_get. Free it with kvstore_free.
/// @param pnValue Receives the length of the value.
///
/// Errors: KVSTORE_NOTFOUND (the key does not exist or has expired), KVSTORE_ERROR (a pointer is
/// NULL, the length is out of bounds, or `expire_ms` is invalid), or a write code (KVSTORE_BUSY,
/// KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT,
/// KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_get_and_expire(
    kv: *mut KVStore,
    pKey: *const c_void,
    nKey: c_int,
    expire_ms: i64,
    ppValue: *mut *mut c_void,
    pnValue: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| get_and_expire(family, (pKey, nKey), expire_ms, ppValue, pnValue)) }
}

/// Reads the value of a key of the family `cf` and changes its expiry time, atomically.
///
/// Parameters, behaviour and errors are those of kvstore_get_and_expire.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_get_and_expire(
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
    expire_ms: i64,
    ppValue: *mut *mut c_void,
    pnValue: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(cf, |family| get_and_expire(family, (pKey, nKey), expire_ms, ppValue, pnValue)) }
}

unsafe fn get_and_expire(
    family: &Family,
    (p_key, n_key): (*const c_void, c_int),
    expire_ms: i64,
    pp_value: *mut *mut c_void,
    pn_value: *mut c_int,
) -> Outcome<c_int> {
    // SAFETY: passed on.
    unsafe {
        let (key, value) = (key(p_key, n_key)?, output(pp_value, "ppValue")?);
        let length = output(pn_value, "pnValue")?;
        let mut copy = Copied::none();
        let found =
            family.get_and_set_expiry_with(key, expiry(family, expire_ms)?, |value| copy.copy(value))?;
        value.set(copy.release()); // NULL if nothing was found
        length.set(c_length(found.unwrap_or(0)));
        present(found)?;
        Ok(KVSTORE_OK)
    }
}

/// Sets the default TTL of the default family: the TTL of keys that are written without an expiry
/// time, by kvstore_put, or with 0 as expiry time by another function that writes values. Other
/// families keep theirs.
///
/// @param ttl_ms TTL in milliseconds, up to 20 years; 0: none.
///
/// The setting is stored in the file and applies to every handle and process, including those
/// already open. Existing keys keep their expiry times.
///
/// Errors: KVSTORE_ERROR (`kv` is NULL, or `ttl_ms` is negative or more than 20 years), or a write
/// code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR,
/// KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_set_default_ttl(kv: *mut KVStore, ttl_ms: i64) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| set_default_ttl(family, ttl_ms)) }
}

/// Sets the default TTL of the family `cf`.
///
/// Parameters, behaviour and errors are those of kvstore_set_default_ttl.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_set_default_ttl(cf: *mut KVColumnFamily, ttl_ms: i64) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(cf, |family| set_default_ttl(family, ttl_ms)) }
}

fn set_default_ttl(family: &Family, ttl_ms: i64) -> Outcome<c_int> {
    let ttl = duration(ttl_ms, "a default TTL")?;
    family.set_default_ttl((!ttl.is_zero()).then_some(ttl))?;
    Ok(KVSTORE_OK)
}

/// Returns the default TTL of the default family, in milliseconds; 0 if it has none.
///
/// @param pTtlMs Receives the TTL in milliseconds; 0: none.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
/// KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_get_default_ttl(kv: *mut KVStore, pTtlMs: *mut i64) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| get_default_ttl(family, pTtlMs)) }
}

/// Returns the default TTL of the family `cf`, in milliseconds; 0 if it has none.
///
/// Parameters, behaviour and errors are those of kvstore_get_default_ttl.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_get_default_ttl(cf: *mut KVColumnFamily, pTtlMs: *mut i64) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(cf, |family| get_default_ttl(family, pTtlMs)) }
}

unsafe fn get_default_ttl(family: &Family, p_ttl_ms: *mut i64) -> Outcome<c_int> {
    // SAFETY: passed on.
    unsafe {
        let ttl_ms = output(p_ttl_ms, "pTtlMs")?;
        let ttl = family.default_ttl()?.unwrap_or_default();
        ttl_ms.set(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX));
        Ok(KVSTORE_OK)
    }
}

/// Returns the earliest expiry time of all families, in milliseconds since the Unix epoch. It is in
/// the past if an expired key has not been removed yet.
///
/// @param pMs Receives the time, in milliseconds since the Unix epoch.
///
/// A timer that purges can be set to this time.
///
/// Errors: KVSTORE_NOTFOUND (no key has an expiry time), KVSTORE_ERROR (a pointer is NULL), or a
/// read code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT,
/// KVSTORE_PROTOCOL, KVSTORE_MISUSE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_next_expiry(kv: *mut KVStore, pMs: *mut i64) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            let time = output(pMs, "pMs")?;
            time.set(kv.store.next_expiry_all_families()?.ok_or(Failure::Missing(NO_TTLS))?);
            Ok(KVSTORE_OK)
        })
    }
}

/// Returns the earliest expiry time of the family `cf`, in milliseconds since the Unix epoch.
///
/// Parameters, behaviour and errors are those of kvstore_next_expiry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_next_expiry(cf: *mut KVColumnFamily, pMs: *mut i64) -> c_int {
    // SAFETY: as documented.
    unsafe {
        on_family(cf, |family| {
            let time = output(pMs, "pMs")?;
            time.set(family.next_expiry()?.ok_or(Failure::Missing(NO_TTLS))?);
            Ok(KVSTORE_OK)
        })
    }
}

/// Counts the live keys of the default family, with the help of its indexes.
///
/// @param pnCount Receives the number of live keys.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
/// KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_count_live(kv: *mut KVStore, pnCount: *mut i64) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| count_live(family, pnCount)) }
}

/// Counts the live keys of the family `cf`, with the help of its indexes.
///
/// Parameters, behaviour and errors are those of kvstore_count_live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_count_live(cf: *mut KVColumnFamily, pnCount: *mut i64) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(cf, |family| count_live(family, pnCount)) }
}

unsafe fn count_live(family: &Family, pn_count: *mut i64) -> Outcome<c_int> {
    // SAFETY: passed on.
    unsafe {
        let count = output(pn_count, "pnCount")?;
        count.set(i64::try_from(family.count_live()?).unwrap_or(i64::MAX));
        Ok(KVSTORE_OK)
    }
}

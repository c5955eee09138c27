//! Write times and sweeps.

use std::ffi::{c_int, c_void};

use super::args::{Outcome, duration, key, output, present};
use super::codes::KVSTORE_OK;
use super::conditional::give_count;
use super::data::on_family;
use super::types::{KVColumnFamily, KVStore};
use crate::Family;

/// Turns write tracking of the default family on or off, for every handle and process. With write
/// tracking, the store records when each value was written. Other families are not affected.
///
/// @param on Non-zero: on. Existing keys count as written now. 0: off. All write times are
///   discarded.
///
/// Both directions visit every row, in one transaction.
///
/// The setting is stored in the file.
///
/// Errors: KVSTORE_ERROR (`kv` is NULL), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED,
/// KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
/// KVSTORE_MISUSE, KVSTORE_FULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_set_write_tracking(kv: *mut KVStore, on: c_int) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| set_write_tracking(family, on)) }
}

/// Turns write tracking of the family `cf` on or off, for every handle and process.
///
/// Parameters, behaviour and errors are those of kvstore_set_write_tracking.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_set_write_tracking(cf: *mut KVColumnFamily, on: c_int) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(cf, |family| set_write_tracking(family, on)) }
}

fn set_write_tracking(family: &Family, on: c_int) -> Outcome<c_int> {
    family.set_write_tracking(on != 0)?;
    Ok(KVSTORE_OK)
}

/// Tests whether write tracking of the default family is on.
///
/// @param pOn Receives 1 or 0.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
/// KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_get_write_tracking(kv: *mut KVStore, pOn: *mut c_int) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| get_write_tracking(family, pOn)) }
}

/// Tests whether write tracking of the family `cf` is on.
///
/// Parameters, behaviour and errors are those of kvstore_get_write_tracking.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_get_write_tracking(cf: *mut KVColumnFamily, pOn: *mut c_int) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(cf, |family| get_write_tracking(family, pOn)) }
}

unsafe fn get_write_tracking(family: &Family, p_on: *mut c_int) -> Outcome<c_int> {
    // SAFETY: passed on.
    unsafe {
        let on = output(p_on, "pOn")?;
        on.set(c_int::from(family.tracks_writes()?));
        Ok(KVSTORE_OK)
    }
}

/// Returns the time at which the value of a live key of the default family was written, in
/// milliseconds since the Unix epoch. A change of the expiry time is not a write.
///
/// @param pKey,nKey Key and its length: 1 to 65536 bytes.
/// @param pMs Receives the time, in milliseconds since the Unix epoch.
///
/// Errors: KVSTORE_NOTFOUND (the key does not exist or has expired), KVSTORE_ERROR (the family does
/// not record write times, a pointer is NULL, or the length is out of bounds), or a read code
/// (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
/// KVSTORE_MISUSE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_write_time(
    kv: *mut KVStore,
    pKey: *const c_void,
    nKey: c_int,
    pMs: *mut i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| write_time(family, (pKey, nKey), pMs)) }
}

/// Returns the time at which the value of a live key of the family `cf` was written, in
/// milliseconds since the Unix epoch.
///
/// Parameters, behaviour and errors are those of kvstore_write_time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_write_time(
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
    pMs: *mut i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(cf, |family| write_time(family, (pKey, nKey), pMs)) }
}

unsafe fn write_time(
    family: &Family,
    (p_key, n_key): (*const c_void, c_int),
    p_ms: *mut i64,
) -> Outcome<c_int> {
    // SAFETY: passed on.
    unsafe {
        let (key, time) = (key(p_key, n_key)?, output(p_ms, "pMs")?);
        time.set(present(family.write_time(key)?)?);
        Ok(KVSTORE_OK)
    }
}

/// Removes every key of the default family, live or expired, whose value was written more than
/// `max_age_ms` milliseconds ago. Other families are not affected.
///
/// @param max_age_ms Maximum age in milliseconds, at least 0.
/// @param pnDeleted Receives the number of live keys among the removed ones. May be NULL.
///
/// Transactions and memory: as kvstore_purge_expired. After a failure, keys that earlier
/// transactions removed stay removed.
///
/// Errors: KVSTORE_ERROR (the family does not record write times, `max_age_ms` is negative, or `kv`
/// is NULL), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY,
/// KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_sweep(kv: *mut KVStore, max_age_ms: i64, pnDeleted: *mut i64) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| sweep(family, max_age_ms, pnDeleted)) }
}

/// Removes every key of the family `cf`, live or expired, whose value was written more than
/// `max_age_ms` milliseconds ago.
///
/// Parameters, behaviour and errors are those of kvstore_sweep.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_sweep(
    cf: *mut KVColumnFamily,
    max_age_ms: i64,
    pnDeleted: *mut i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(cf, |family| sweep(family, max_age_ms, pnDeleted)) }
}

unsafe fn sweep(family: &Family, max_age_ms: i64, pn_deleted: *mut i64) -> Outcome<c_int> {
    // SAFETY: passed on.
    unsafe {
        give_count(pn_deleted, family.sweep(duration(max_age_ms, "the age")?)?);
        Ok(KVSTORE_OK)
    }
}

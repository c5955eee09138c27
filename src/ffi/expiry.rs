//! Expiry times, purging, the cleaner and write times.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use super::args::{
    Copied, Failure, Outcome, bad_argument, c_length, expiry, key, no_memory, output, present,
};
use super::call::call;
use super::codes::{
    KVSTORE_EXPIRE_GT, KVSTORE_EXPIRE_LT, KVSTORE_EXPIRE_NX, KVSTORE_EXPIRE_XX, KVSTORE_OK, NO_TTL,
};
use super::conditional::{give_count, give_flag};
use super::data::on_family;
use super::errmsg::NO_TTLS;
use super::types::{KVColumnFamily, KVStore};
use crate::{Error, ExpiryCondition, Family};

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
        let found = family.get_and_set_expiry_with(key, expiry(family, expire_ms)?, |bytes| {
            if copy.take(bytes) { Ok(bytes.len()) } else { Err(no_memory()) }
        })?;
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

/// Removes expired keys of all families, earliest expiry time first, until `max_keys` keys are
/// removed or `max_ms` milliseconds have passed.
///
/// @param max_keys Maximum number of keys to remove; 0: no limit.
/// @param max_ms Time limit in milliseconds; 0: no limit.
/// @param pDeleted Receives the number of keys removed, counted as by kvstore_purge_expired. May be
///   NULL.
/// @param pMore Receives 1 if expired keys are left, otherwise 0. May be NULL.
///
/// The keys are removed in transactions of at most 256 keys; inside a transaction, all in that one.
/// After a failure, keys that earlier transactions removed stay removed.
///
/// If nothing has expired, no family is examined, however many there are, unless another connection
/// has committed since this handle examined them last. The time limit may end that examination:
/// then `*pMore` is 1, and the next call continues with the remaining families. With a time limit,
/// a checkpoint that becomes due is left to the next write.
///
/// Errors: KVSTORE_ERROR (`kv` is NULL, or a limit is negative), or a write code (KVSTORE_BUSY,
/// KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT,
/// KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_purge_step(
    kv: *mut KVStore,
    max_keys: i64,
    max_ms: i64,
    pDeleted: *mut i64,
    pMore: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            let time = duration(max_ms, "max_ms")?;
            let step = kv.store.purge_step(limit(max_keys)?, (!time.is_zero()).then_some(time))?;
            give_count(pDeleted, step.deleted);
            give_flag(pMore, step.more);
            Ok(KVSTORE_OK)
        })
    }
}

/// Removes the expired keys of the default family whose expiry time is before `cutoff_ms`. Live
/// keys stay, also if the cutoff is in the future.
///
/// @param cutoff_ms Cutoff, in milliseconds since the Unix epoch.
/// @param pnDeleted Receives the number of keys removed. May be NULL.
///
/// Transactions and failures: as kvstore_purge_expired.
///
/// Errors: KVSTORE_ERROR (`kv` is NULL), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED,
/// KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
/// KVSTORE_MISUSE, KVSTORE_FULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_purge_before(
    kv: *mut KVStore,
    cutoff_ms: i64,
    pnDeleted: *mut i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| purge_before(family, cutoff_ms, pnDeleted)) }
}

/// Removes the expired keys of the family `cf` whose expiry time is before `cutoff_ms`.
///
/// Parameters, behaviour and errors are those of kvstore_purge_before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_purge_before(
    cf: *mut KVColumnFamily,
    cutoff_ms: i64,
    pnDeleted: *mut i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(cf, |family| purge_before(family, cutoff_ms, pnDeleted)) }
}

unsafe fn purge_before(family: &Family, cutoff_ms: i64, pn_deleted: *mut i64) -> Outcome<c_int> {
    // SAFETY: passed on.
    unsafe {
        give_count(pn_deleted, family.purge_before(cutoff_ms)?);
        Ok(KVSTORE_OK)
    }
}

/// Starts the cleaner: a background thread that removes expired keys of all families at intervals.
///
/// @param interval_ms Interval in milliseconds, at least 1.
/// @param max_keys Maximum number of keys to remove each time; 0: no limit.
///
/// A write through this handle waits for the cleaner at most as long as the removal of 256 keys
/// takes. While a transaction is open on this handle, the cleaner does nothing.
///
/// The cleaner has a connection of its own. kvstore_close stops it.
///
/// Errors: KVSTORE_ERROR (the cleaner is running, the interval is less than 1, `max_keys` is
/// negative, `kv` is NULL, or the store is in memory), KVSTORE_BUSY (the store is exclusive),
/// KVSTORE_READONLY, KVSTORE_CANTOPEN, KVSTORE_IOERR (also if the store is no longer at the path it
/// was opened by), KVSTORE_NOMEM, KVSTORE_MISUSE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cleaner_start(kv: *mut KVStore, interval_ms: i64, max_keys: i64) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            kv.store.start_cleaner(duration(interval_ms, "the interval")?, limit(max_keys)?)?;
            Ok(KVSTORE_OK)
        })
    }
}

/// Stops the cleaner, and returns when its thread has ended. If no cleaner is running, the call
/// does nothing.
///
/// Errors: KVSTORE_ERROR (`kv` is NULL), KVSTORE_MISUSE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cleaner_stop(kv: *mut KVStore) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            kv.store.stop_cleaner()?;
            Ok(KVSTORE_OK)
        })
    }
}

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
/// The keys are removed in transactions of at most 256 keys, each of which removes rows and index
/// entries together; inside a transaction, all in that one. After a failure, keys that earlier
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

fn duration(ms: i64, what: &str) -> Outcome<Duration> {
    match u64::try_from(ms) {
        Ok(ms) => Ok(Duration::from_millis(ms)),
        Err(_) => bad_argument(&format!("{what} of {ms} ms: it cannot be negative")),
    }
}

/// Converts a maximum number of keys of the C API, in which 0 means no limit (`None`). Fails
/// if it is negative.
fn limit(max_keys: i64) -> Outcome<Option<u64>> {
    match u64::try_from(max_keys) {
        Ok(0) => Ok(None),
        Ok(max) => Ok(Some(max)),
        Err(_) => Err(Failure::Argument(Error::invalid(format!(
            "max_keys is {max_keys}: pass 0 for no limit, or a positive number"
        )))),
    }
}

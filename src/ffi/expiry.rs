//! Expiry without the values: TTLs and default TTLs, purges, the cleaner, and write times.

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
use crate::{Condition, Error};

/// Changes when a live key expires, without touching its value. `expire_ms` is the new time (0: never;
/// in the past: the key is gone at once). `flags` is 0, or one of KVSTORE_EXPIRE_*; a key without a TTL
/// counts as expiring later than any time. `*pChanged` (may be NULL) is 1, or 0 if the condition did not
/// hold.
///
/// Errors: KVSTORE_NOTFOUND (missing or expired), KVSTORE_ERROR (a negative expire_ms, unknown flags);
/// otherwise as kvstore_put.
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
    unsafe {
        on_family(cf, |family| {
            let condition = match flags {
                0 => Condition::Always,
                KVSTORE_EXPIRE_NX => Condition::NoTtl,
                KVSTORE_EXPIRE_XX => Condition::HasTtl,
                KVSTORE_EXPIRE_GT => Condition::Later,
                KVSTORE_EXPIRE_LT => Condition::Earlier,
                other => return bad_argument(&format!("flags {other}: pass 0 or one of KVSTORE_EXPIRE_*")),
            };
            changed(family.expire(key(pKey, nKey)?, expiry(expire_ms)?, condition)?, pChanged)
        })
    }
}

/// Takes the TTL from a live key. `*pChanged` (may be NULL) is 1, or 0 if it had none.
///
/// Errors: KVSTORE_NOTFOUND (missing or expired); otherwise as kvstore_put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_persist(
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
    pChanged: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(cf, |family| changed(family.persist(key(pKey, nKey)?)?, pChanged)) }
}

unsafe fn changed(done: Option<bool>, p_changed: *mut c_int) -> Outcome<c_int> {
    let changed = present(done)?;
    // SAFETY: passed on.
    unsafe { give_flag(p_changed, changed) };
    Ok(KVSTORE_OK)
}

/// Says in `*pExpireMs` when a key expires: milliseconds since the Unix epoch, or KVSTORE_NO_TTL.
///
/// Errors: KVSTORE_NOTFOUND (missing or expired); otherwise as kvstore_get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_expire_time(
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
    pExpireMs: *mut i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        on_family(cf, |family| {
            let (key, time) = (key(pKey, nKey)?, output(pExpireMs, "pExpireMs")?);
            time.set(present(family.expire_time(key)?)?.millis().unwrap_or(NO_TTL));
            Ok(KVSTORE_OK)
        })
    }
}

/// Reads a value, as kvstore_get does, and in the same step changes when the key expires (0: never; in
/// the past: the key is gone, and this was its last read).
///
/// Errors: as kvstore_get, and as kvstore_put; KVSTORE_ERROR also for a negative expire_ms.
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
    unsafe {
        on_family(cf, |family| {
            let (key, value) = (key(pKey, nKey)?, output(ppValue, "ppValue")?);
            let length = output(pnValue, "pnValue")?;
            let mut copy = Copied::none();
            let found = family.get_and_expire_with(key, expiry(expire_ms)?, |bytes| {
                if copy.take(bytes) { Ok(bytes.len()) } else { Err(no_memory()) }
            })?;
            value.set(copy.release()); // NULL if nothing was found
            length.set(c_length(found.unwrap_or(0)));
            present(found)?;
            Ok(KVSTORE_OK)
        })
    }
}

/// Sets the TTL, in milliseconds, that plain puts give from now on in this family, through whatever
/// handle and process, also those already open; 0: none. It is kept in the file. Keys that are there keep
/// what they have.
///
/// Errors: KVSTORE_ERROR (negative, or over 20 years); otherwise as kvstore_put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_set_default_ttl(cf: *mut KVColumnFamily, ttl_ms: i64) -> c_int {
    // SAFETY: as documented.
    unsafe {
        on_family(cf, |family| {
            let ttl = duration(ttl_ms, "a default TTL")?;
            family.set_default_ttl((!ttl.is_zero()).then_some(ttl))?;
            Ok(KVSTORE_OK)
        })
    }
}

/// Says in `*pTtlMs` what TTL plain puts give, in milliseconds; 0: none.
///
/// Errors: KVSTORE_ERROR (a NULL pointer), KVSTORE_BUSY (only in DELETE journal mode), KVSTORE_IOERR,
/// KVSTORE_NOMEM, KVSTORE_CORRUPT, KVSTORE_MISUSE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_get_default_ttl(cf: *mut KVColumnFamily, pTtlMs: *mut i64) -> c_int {
    // SAFETY: as documented.
    unsafe {
        on_family(cf, |family| {
            let ttl_ms = output(pTtlMs, "pTtlMs")?;
            let ttl = family.default_ttl()?.unwrap_or_default();
            ttl_ms.set(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX));
            Ok(KVSTORE_OK)
        })
    }
}

/// Says in `*pMs` the earliest time at which a key of any family expires, or has expired if nothing has
/// removed it yet: the moment a timer should purge.
///
/// Errors: KVSTORE_NOTFOUND (no key has a TTL); otherwise as kvstore_cf_get_default_ttl.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_next_expiry(kv: *mut KVStore, pMs: *mut i64) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            let time = output(pMs, "pMs")?;
            time.set(kv.store.next_expiry_of_all()?.ok_or(Failure::Missing(NO_TTLS))?);
            Ok(KVSTORE_OK)
        })
    }
}

/// kvstore_next_expiry of one family.
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

/// Counts the live keys: the rows less those that have expired, by the indexes.
///
/// Errors: as kvstore_count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_count_live(cf: *mut KVColumnFamily, pnCount: *mut i64) -> c_int {
    // SAFETY: as documented.
    unsafe {
        on_family(cf, |family| {
            let count = output(pnCount, "pnCount")?;
            count.set(i64::try_from(family.count_live()?).unwrap_or(i64::MAX));
            Ok(KVSTORE_OK)
        })
    }
}

/// Removes expired keys of all families, those first that expired first, until `max_keys` are removed or
/// `max_ms` milliseconds are over (0: no limit). `*pDeleted` is how many were removed (counted as by
/// kvstore_purge_expired), `*pMore` whether expired keys are left: 1 or 0; both may be NULL. In transactions of at most 256 keys, or in the open
/// one.
///
/// With nothing expired no family is looked at, however many there are, unless others have committed since
/// this handle looked last. Time that is over may end that look: then `*pMore` is 1, and the next call goes
/// on with the families that were left out. A checkpoint that becomes due is left to the next write if there
/// is a time limit.
///
/// Errors: KVSTORE_ERROR (a negative limit); otherwise as kvstore_put. What earlier transactions removed
/// stays removed.
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

/// Removes the keys of a family that expired before `cutoff_ms` (milliseconds since the Unix epoch). Keys
/// that are alive stay, whatever the cutoff. `*pnDeleted` (may be NULL) is how many. Otherwise as
/// kvstore_purge_expired.
///
/// Errors: as kvstore_put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_purge_before(
    cf: *mut KVColumnFamily,
    cutoff_ms: i64,
    pnDeleted: *mut i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        on_family(cf, |family| {
            give_count(pnDeleted, family.purge_before(cutoff_ms)?);
            Ok(KVSTORE_OK)
        })
    }
}

/// Starts the cleaner: a thread of the library's that every `interval_ms` milliseconds removes expired
/// keys of all families, at most `max_keys` each time (0: all), through a connection of its own. A write
/// through this handle waits for it at most as long as 256 keys take; while a transaction is open on this
/// handle it does nothing. kvstore_close stops it.
///
/// Errors: KVSTORE_ERROR (it runs already, an interval below 1, a negative max_keys, a store in memory),
/// KVSTORE_READONLY, KVSTORE_BUSY (an exclusive store), KVSTORE_CANTOPEN, KVSTORE_IOERR (also if the store is no longer
/// at the path it was opened by), KVSTORE_NOMEM, KVSTORE_MISUSE.
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

/// Stops the cleaner, and returns when its thread has ended. KVSTORE_OK also if none is running.
///
/// Errors: KVSTORE_ERROR (kv is NULL), KVSTORE_MISUSE.
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

/// Switches write tracking of a family on (non-zero) or off, for every handle and process; it is kept in
/// the file. Switched on, the keys that are there count as written now; switched off, all write times are
/// forgotten. Both look at every row, in one transaction.
///
/// Errors: as kvstore_put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_set_write_tracking(cf: *mut KVColumnFamily, on: c_int) -> c_int {
    // SAFETY: as documented.
    unsafe {
        on_family(cf, |family| {
            family.set_write_tracking(on != 0)?;
            Ok(KVSTORE_OK)
        })
    }
}

/// Says in `*pOn` whether a family tracks writes: 1 or 0.
///
/// Errors: as kvstore_cf_get_default_ttl.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_get_write_tracking(cf: *mut KVColumnFamily, pOn: *mut c_int) -> c_int {
    // SAFETY: as documented.
    unsafe {
        on_family(cf, |family| {
            let on = output(pOn, "pOn")?;
            on.set(c_int::from(family.tracks_writes()?));
            Ok(KVSTORE_OK)
        })
    }
}

/// Says in `*pMs` when the value of a key was written, in milliseconds since the Unix epoch. A change of
/// its TTL is not a write.
///
/// Errors: KVSTORE_NOTFOUND (missing or expired), KVSTORE_ERROR (the family does not track writes);
/// otherwise as kvstore_get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_write_time(
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
    pMs: *mut i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        on_family(cf, |family| {
            let (key, time) = (key(pKey, nKey)?, output(pMs, "pMs")?);
            time.set(present(family.write_time(key)?)?);
            Ok(KVSTORE_OK)
        })
    }
}

/// Removes every key that was written longer ago than `max_age_ms` milliseconds, live or expired.
/// `*pnDeleted` (may be NULL) is how many of them were alive. In transactions of at most 256 keys, each of
/// which removes data and index entries together; or in the open transaction.
///
/// Errors: KVSTORE_ERROR (the family does not track writes, a negative age); otherwise as kvstore_put.
/// What earlier transactions removed stays removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_sweep(
    cf: *mut KVColumnFamily,
    max_age_ms: i64,
    pnDeleted: *mut i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        on_family(cf, |family| {
            give_count(pnDeleted, family.sweep(duration(max_age_ms, "the age")?)?);
            Ok(KVSTORE_OK)
        })
    }
}

fn duration(ms: i64, what: &str) -> Outcome<Duration> {
    match u64::try_from(ms) {
        Ok(ms) => Ok(Duration::from_millis(ms)),
        Err(_) => bad_argument(&format!("{what} of {ms} ms: it cannot be negative")),
    }
}

/// A number of keys of which 0 means no limit.
fn limit(max_keys: i64) -> Outcome<Option<u64>> {
    match u64::try_from(max_keys) {
        Ok(0) => Ok(None),
        Ok(max) => Ok(Some(max)),
        Err(_) => {
            Err(Failure::Argument(Error::invalid(format!("max_keys is {max_keys}: pass 0 for no limit"))))
        }
    }
}

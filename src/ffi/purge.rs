//! Purging and the cleaner.

use std::ffi::c_int;

use super::args::{Failure, Outcome, duration};
use super::call::call;
use super::codes::KVSTORE_OK;
use super::conditional::{give_count, give_flag};
use super::data::on_family;
use super::types::{KVColumnFamily, KVStore};
use crate::{Error, Family};

/// Removes expired keys of all families, earliest expiry time first, until `max_keys` keys are
/// removed or `max_ms` milliseconds have passed.
///
/// @param max_keys Maximum number of keys to remove; 0: no limit.
/// @param max_ms Time limit in milliseconds; 0: no limit.
/// @param pDeleted Receives the number of keys removed, counted as by kvstore_purge_expired. May be
///   NULL.
/// @param pMore Receives 1 if expired keys are left, otherwise 0. May be NULL.
///
/// Transactions and memory: as kvstore_purge_expired. After a failure, keys that earlier
/// transactions removed stay removed.
///
/// If nothing has expired, no family is examined, however many there are, unless another connection
/// has committed since this handle examined them last. The time limit may end that examination:
/// then `*pMore` is 1, and the next call continues with the remaining families. With a time limit,
/// a checkpoint that becomes due is left to the next write. A wait for a lock of another handle is
/// limited by `busyTimeout`, not by `max_ms`.
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
/// A call on this handle waits for the cleaner for some milliseconds at most. While a transaction is
/// open on this handle, the cleaner does nothing.
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

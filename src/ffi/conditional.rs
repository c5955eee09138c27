//! Writes that depend on what is there.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use super::args::{bad_argument, expiry, key, optional_output, value};
use super::codes::{
    KVSTORE_OK, KVSTORE_PUT_DEFAULT_TTL, KVSTORE_PUT_IF_ABSENT, KVSTORE_PUT_IF_PRESENT, KVSTORE_PUT_KEEP_TTL,
    KVSTORE_PUT_TTL,
};
use super::data::on_family;
use super::types::{KVColumnFamily, KVWriteOptions};
use crate::PutOptions;

impl KVWriteOptions {
    fn to_options(self) -> super::args::Outcome<PutOptions> {
        let KVWriteOptions { expireMs, flags, reserved } = self;
        let has = |flag: u32| flags & flag != 0;
        let known = KVSTORE_PUT_IF_ABSENT
            | KVSTORE_PUT_IF_PRESENT
            | KVSTORE_PUT_KEEP_TTL
            | KVSTORE_PUT_DEFAULT_TTL
            | KVSTORE_PUT_TTL;
        if flags & !known != 0 || reserved != 0 {
            return bad_argument("KVWriteOptions has unknown flags or a reserved field that is not 0");
        }
        if has(KVSTORE_PUT_IF_ABSENT) && has(KVSTORE_PUT_IF_PRESENT) {
            return bad_argument(
                "KVSTORE_PUT_IF_ABSENT and KVSTORE_PUT_IF_PRESENT exclude each other: pass one",
            );
        }
        if has(KVSTORE_PUT_DEFAULT_TTL) && expireMs != 0 {
            return bad_argument(
                "KVSTORE_PUT_DEFAULT_TTL with an expireMs: leave expireMs 0, or the flag away",
            );
        }
        let mut options = PutOptions::new();
        if has(KVSTORE_PUT_TTL) {
            let ttl_ms = u64::try_from(expireMs).unwrap_or(0);
            if ttl_ms == 0 || has(KVSTORE_PUT_DEFAULT_TTL) {
                return bad_argument(
                    "KVSTORE_PUT_TTL needs an expireMs above 0, which is the TTL, and no KVSTORE_PUT_DEFAULT_TTL",
                );
            }
            options = options.ttl(Duration::from_millis(ttl_ms));
        } else {
            options = options.expiry(expiry(expireMs)?);
        }
        if has(KVSTORE_PUT_DEFAULT_TTL) {
            options = options.default_ttl();
        }
        if has(KVSTORE_PUT_KEEP_TTL) {
            options = options.keep_ttl();
        }
        if has(KVSTORE_PUT_IF_ABSENT) {
            options = options.if_absent();
        }
        if has(KVSTORE_PUT_IF_PRESENT) {
            options = options.if_present();
        }
        Ok(options)
    }
}

/// Writes a value as `*opt` says (NULL: always, never expiring). `*pWritten` (may be NULL) is 1 if it
/// wrote, 0 if the condition did not hold. Check and write are one step for every other handle and
/// process.
///
/// Errors: as kvstore_put; KVSTORE_ERROR also for unknown flags, flags that exclude each other, a
/// reserved field that is not 0 and a negative expireMs, or one of 0 with KVSTORE_PUT_TTL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_put_with(
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
    pValue: *const c_void,
    nValue: c_int,
    opt: *const KVWriteOptions,
    pWritten: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        on_family(cf, |family| {
            let options = match opt.as_ref() {
                Some(options) => options.to_options()?,
                None => PutOptions::new(),
            };
            let written = family.put_with(key(pKey, nKey)?, value(pValue, nValue)?, &options)?;
            give_flag(pWritten, written);
            Ok(KVSTORE_OK)
        })
    }
}

/// Writes a value only if the key is alive and its value is equal, byte by byte, to `pExpected`.
/// `*pSwapped` (may be NULL) is 1 if it wrote; 0 if the value differs or the key is missing or expired.
/// The key then expires at `expire_ms` (0: never), whatever it had before.
///
/// Errors: as kvstore_put; KVSTORE_ERROR also for a negative expire_ms.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_compare_and_swap(
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
    pExpected: *const c_void,
    nExpected: c_int,
    pValue: *const c_void,
    nValue: c_int,
    expire_ms: i64,
    pSwapped: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        on_family(cf, |family| {
            let (key, expected) = (key(pKey, nKey)?, value(pExpected, nExpected)?);
            let swapped =
                family.compare_and_swap(key, expected, value(pValue, nValue)?, expiry(expire_ms)?)?;
            give_flag(pSwapped, swapped);
            Ok(KVSTORE_OK)
        })
    }
}

/// Deletes a key only if it is alive and its value is equal, byte by byte, to `pExpected`. `*pDeleted`
/// (may be NULL) is 1 if it did; 0 if the value differs or the key is missing or expired.
///
/// Errors: as kvstore_put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_compare_and_delete(
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
    pExpected: *const c_void,
    nExpected: c_int,
    pDeleted: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        on_family(cf, |family| {
            let deleted = family.compare_and_delete(key(pKey, nKey)?, value(pExpected, nExpected)?)?;
            give_flag(pDeleted, deleted);
            Ok(KVSTORE_OK)
        })
    }
}

/// Adds `delta` to the number under a key, kept as decimal text; `*pValue` (may be NULL) is the sum. A
/// missing or expired key counts as 0 and expires at `expire_ms`, or with 0 as the family's default TTL
/// says (never, if it has none). A live key keeps its TTL.
///
/// Errors: KVSTORE_ERROR (the value is no whole number of 64 bits, or the sum is none; a negative
/// expire_ms); otherwise as kvstore_put. Nothing is changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_increment(
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
    delta: i64,
    expire_ms: i64,
    pValue: *mut i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        on_family(cf, |family| {
            let sum = family.increment(key(pKey, nKey)?, delta, expiry(expire_ms)?)?;
            if let Some(value) = optional_output(pValue) {
                value.set(sum);
            }
            Ok(KVSTORE_OK)
        })
    }
}

/// Gives a yes or no to a caller who may not care.
///
/// # Safety
/// NULL or valid, as documented.
pub(super) unsafe fn give_flag(pointer: *mut c_int, flag: bool) {
    // SAFETY: passed on.
    if let Some(output) = unsafe { optional_output(pointer) } {
        output.set(c_int::from(flag));
    }
}

/// Gives a count to a caller who may not care.
///
/// # Safety
/// NULL or valid, as documented.
pub(super) unsafe fn give_count(pointer: *mut i64, count: u64) {
    // SAFETY: passed on.
    if let Some(output) = unsafe { optional_output(pointer) } {
        output.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

//! Conditional writes.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use super::args::{Outcome, bad_argument, key, optional_output, value, write_expiry};
use super::codes::{
    KVSTORE_OK, KVSTORE_PUT_IF_ABSENT, KVSTORE_PUT_IF_PRESENT, KVSTORE_PUT_KEEP_TTL, KVSTORE_PUT_TTL,
};
use super::data::on_family;
use super::types::{KVColumnFamily, KVStore, KVWriteOptions};
use crate::{Family, PutOptions};

impl KVWriteOptions {
    fn to_options(self, family: &Family) -> Outcome<PutOptions> {
        let KVWriteOptions { expireMs, flags, reserved } = self;
        let has = |flag: u32| flags & flag != 0;
        let known = KVSTORE_PUT_IF_ABSENT | KVSTORE_PUT_IF_PRESENT | KVSTORE_PUT_KEEP_TTL | KVSTORE_PUT_TTL;
        if flags & !known != 0 || reserved != 0 {
            return bad_argument("KVWriteOptions has unknown flags or a reserved field that is not 0");
        }
        if has(KVSTORE_PUT_IF_ABSENT) && has(KVSTORE_PUT_IF_PRESENT) {
            return bad_argument(
                "KVSTORE_PUT_IF_ABSENT and KVSTORE_PUT_IF_PRESENT exclude each other: pass one",
            );
        }
        let mut options = PutOptions::new();
        if has(KVSTORE_PUT_TTL) {
            let ttl_ms = u64::try_from(expireMs).unwrap_or(0);
            if ttl_ms == 0 {
                return bad_argument("KVSTORE_PUT_TTL needs an expireMs above 0, which is the TTL");
            }
            options = options.ttl(Duration::from_millis(ttl_ms));
        } else {
            options = options.expiry(write_expiry(family, expireMs)?);
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

/// Writes a value with options into the default family, such as a condition on the existing key.
/// Check and write are atomic for every handle and process.
///
/// @param pKey,nKey Key and its length: 1 to 65536 bytes.
/// @param pValue,nValue Value and its length, as for kvstore_put.
/// @param opt Options; NULL: write unconditionally, with the default TTL of the family.
/// @param pWritten Receives 1 if the value was written, 0 if the condition did not hold. May be
///   NULL.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL, a length is out of bounds, a flag is unknown, flags
/// exclude each other, a reserved field is not 0, expireMs is invalid, or it is 0 with
/// KVSTORE_PUT_TTL), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM,
/// KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE,
/// KVSTORE_FULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_put_with(
    kv: *mut KVStore,
    pKey: *const c_void,
    nKey: c_int,
    pValue: *const c_void,
    nValue: c_int,
    opt: *const KVWriteOptions,
    pWritten: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| put_with(family, (pKey, nKey), (pValue, nValue), opt, pWritten)) }
}

/// Writes a value with options into the family `cf`, such as a condition on the existing key.
///
/// Parameters, behaviour and errors are those of kvstore_put_with.
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
    unsafe { on_family(cf, |family| put_with(family, (pKey, nKey), (pValue, nValue), opt, pWritten)) }
}

unsafe fn put_with(
    family: &Family,
    (p_key, n_key): (*const c_void, c_int),
    (p_value, n_value): (*const c_void, c_int),
    opt: *const KVWriteOptions,
    p_written: *mut c_int,
) -> Outcome<c_int> {
    // SAFETY: passed on.
    unsafe {
        let options = match opt.as_ref() {
            Some(options) => options.to_options(family)?,
            None => PutOptions::new(),
        };
        let written = family.put_with_options(key(p_key, n_key)?, value(p_value, n_value)?, &options)?;
        give_flag(p_written, written);
        Ok(KVSTORE_OK)
    }
}

/// Writes a value into the default family only if the key is live and its current value equals
/// `pExpected`, byte by byte. Check and write are atomic for every handle and process.
///
/// @param pKey,nKey Key and its length: 1 to 65536 bytes.
/// @param pExpected,nExpected Expected value and its length.
/// @param pValue,nValue New value and its length, as for kvstore_put.
/// @param expire_ms New expiry time, in milliseconds since the Unix epoch; 0: by the default TTL
///   of the family; KVSTORE_NO_TTL: never. It replaces the current one.
/// @param pSwapped Receives 1 if the value was written; 0 if the values differ or the key is not
///   live. May be NULL.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL, a length is out of bounds, or `expire_ms` is
/// invalid), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY,
/// KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_compare_and_swap(
    kv: *mut KVStore,
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
        on_family(kv, |family| {
            compare_and_swap(
                family,
                (pKey, nKey),
                (pExpected, nExpected),
                (pValue, nValue),
                expire_ms,
                pSwapped,
            )
        })
    }
}

/// Writes a value into the family `cf` only if the key is live and its current value equals
/// `pExpected`.
///
/// Parameters, behaviour and errors are those of kvstore_compare_and_swap.
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
            compare_and_swap(
                family,
                (pKey, nKey),
                (pExpected, nExpected),
                (pValue, nValue),
                expire_ms,
                pSwapped,
            )
        })
    }
}

unsafe fn compare_and_swap(
    family: &Family,
    (p_key, n_key): (*const c_void, c_int),
    (p_expected, n_expected): (*const c_void, c_int),
    (p_value, n_value): (*const c_void, c_int),
    expire_ms: i64,
    p_swapped: *mut c_int,
) -> Outcome<c_int> {
    // SAFETY: passed on.
    unsafe {
        let (key, expected) = (key(p_key, n_key)?, value(p_expected, n_expected)?);
        let swapped = family.compare_and_swap(
            key,
            expected,
            value(p_value, n_value)?,
            write_expiry(family, expire_ms)?,
        )?;
        give_flag(p_swapped, swapped);
        Ok(KVSTORE_OK)
    }
}

/// Deletes a key of the default family only if it is live and its value equals `pExpected`, byte by
/// byte. Check and deletion are atomic for every handle and process.
///
/// @param pKey,nKey Key and its length: 1 to 65536 bytes.
/// @param pExpected,nExpected Expected value and its length.
/// @param pDeleted Receives 1 if the key was deleted; 0 if the values differ or the key is not
///   live. May be NULL.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL, or a length is out of bounds), or a write code
/// (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT,
/// KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_compare_and_delete(
    kv: *mut KVStore,
    pKey: *const c_void,
    nKey: c_int,
    pExpected: *const c_void,
    nExpected: c_int,
    pDeleted: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        on_family(kv, |family| compare_and_delete(family, (pKey, nKey), (pExpected, nExpected), pDeleted))
    }
}

/// Deletes a key of the family `cf` only if it is live and its value equals `pExpected`.
///
/// Parameters, behaviour and errors are those of kvstore_compare_and_delete.
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
        on_family(cf, |family| compare_and_delete(family, (pKey, nKey), (pExpected, nExpected), pDeleted))
    }
}

unsafe fn compare_and_delete(
    family: &Family,
    (p_key, n_key): (*const c_void, c_int),
    (p_expected, n_expected): (*const c_void, c_int),
    p_deleted: *mut c_int,
) -> Outcome<c_int> {
    // SAFETY: passed on.
    unsafe {
        let deleted = family.compare_and_delete(key(p_key, n_key)?, value(p_expected, n_expected)?)?;
        give_flag(p_deleted, deleted);
        Ok(KVSTORE_OK)
    }
}

/// Adds `delta` to the value of a key of the default family, which is a decimal integer in text
/// form, and stores the sum in the same form. Read and write are atomic for every handle and
/// process.
///
/// @param pKey,nKey Key and its length: 1 to 65536 bytes.
/// @param delta Number to add; may be negative.
/// @param expire_ms Expiry time of a new key, in milliseconds since the Unix epoch; 0: by the
///   default TTL of the family, or never if the family has none; KVSTORE_NO_TTL: never.
/// @param pValue Receives the sum. May be NULL.
///
/// A live key keeps its expiry time. A key that does not exist or has expired counts as 0.
/// The value has at most 20 bytes; maxValueSize does not apply to it.
///
/// Errors: KVSTORE_ERROR (the value is not a 64-bit integer, the sum overflows, `expire_ms` is
/// invalid, the key is NULL, or its length is out of bounds), or a write code (KVSTORE_BUSY,
/// KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT,
/// KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL). Nothing is changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_increment(
    kv: *mut KVStore,
    pKey: *const c_void,
    nKey: c_int,
    delta: i64,
    expire_ms: i64,
    pValue: *mut i64,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| increment(family, (pKey, nKey), delta, expire_ms, pValue)) }
}

/// Adds `delta` to the value of a key of the family `cf`, which is a decimal integer in text form.
///
/// Parameters, behaviour and errors are those of kvstore_increment.
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
    unsafe { on_family(cf, |family| increment(family, (pKey, nKey), delta, expire_ms, pValue)) }
}

unsafe fn increment(
    family: &Family,
    (p_key, n_key): (*const c_void, c_int),
    delta: i64,
    expire_ms: i64,
    p_value: *mut i64,
) -> Outcome<c_int> {
    // SAFETY: passed on.
    unsafe {
        let sum = family.increment(key(p_key, n_key)?, delta, write_expiry(family, expire_ms)?)?;
        if let Some(value) = optional_output(p_value) {
            value.set(sum);
        }
        Ok(KVSTORE_OK)
    }
}

/// Writes a flag to an output argument, as 0 or 1; does nothing if the argument is NULL.
///
/// # Safety
/// `pointer` is NULL, or valid for a write.
pub(super) unsafe fn give_flag(pointer: *mut c_int, flag: bool) {
    // SAFETY: passed on.
    if let Some(output) = unsafe { optional_output(pointer) } {
        output.set(c_int::from(flag));
    }
}

/// Writes a count to an output argument; does nothing if the argument is NULL.
///
/// # Safety
/// `pointer` is NULL, or valid for a write.
pub(super) unsafe fn give_count(pointer: *mut i64, count: u64) {
    // SAFETY: passed on.
    if let Some(output) = unsafe { optional_output(pointer) } {
        output.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

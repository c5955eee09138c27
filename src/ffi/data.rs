//! Keys and values.
//!
//! Each function exists for the default family (of a store) and for any family.

use std::ffi::{c_int, c_void};

use super::args::{Copied, Outcome, c_length, key, optional_output, output, present, value, write_expiry};
use super::call::{HasSession, call};
use super::codes::KVSTORE_OK;
use super::handle::{FamilyHandle, Opaque, StoreHandle};
use super::types::{KVColumnFamily, KVStore};
use crate::{ErrorKind, Expiry, Family};

/// Value of a C handle that has a family: a store has its default family. The C functions on keys
/// operate on that family.
pub(super) trait HasFamily: HasSession {
    fn family(&self) -> &Family;
}

impl HasFamily for StoreHandle {
    fn family(&self) -> &Family {
        self.store.default_family()
    }
}

impl HasFamily for FamilyHandle {
    fn family(&self) -> &Family {
        &self.family
    }
}

/// Runs a C call on the family of a handle, and returns its result code.
pub(super) unsafe fn on_family<T: Opaque>(handle: *mut T, f: impl FnOnce(&Family) -> Outcome<c_int>) -> c_int
where
    T::Value: HasFamily,
{
    // SAFETY: passed on.
    unsafe { call(handle, |handle| f(handle.family())) }
}

/// Writes a value into the default family, replacing an existing one. The key gets the default TTL
/// of the family; without a default TTL, the key never expires.
///
/// @param pKey,nKey Key and its length: 1 to 65536 bytes of any content.
/// @param pValue,nValue Value and its length: 0 bytes to KVStoreConfig.maxValueSize (10 MiB by
///   default), any content. NULL with length 0 is an empty value.
///
/// Key and value are copied. Outside a transaction the call is a transaction of its own. A failed
/// call changes nothing. Inside a transaction, KVSTORE_IOERR, KVSTORE_NOMEM, KVSTORE_CORRUPT and a
/// full disk fail the transaction (see kvstore_begin); KVSTORE_FULL for the size limit does not.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL, or a length is out of bounds), KVSTORE_BUSY (another
/// handle is writing; outside a transaction only), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED,
/// KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
/// KVSTORE_MISUSE, KVSTORE_FULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_put(
    kv: *mut KVStore,
    pKey: *const c_void,
    nKey: c_int,
    pValue: *const c_void,
    nValue: c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { put(kv, pKey, nKey, pValue, nValue) }
}

/// Writes a value into the family `cf`, replacing an existing one.
///
/// Parameters, behaviour and errors are those of kvstore_put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_put(
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
    pValue: *const c_void,
    nValue: c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { put(cf, pKey, nKey, pValue, nValue) }
}

unsafe fn put<T: Opaque>(
    handle: *mut T,
    p_key: *const c_void,
    n_key: c_int,
    p_value: *const c_void,
    n_value: c_int,
) -> c_int
where
    T::Value: HasFamily,
{
    // SAFETY: passed on.
    unsafe {
        on_family(handle, |family| {
            family.put(key(p_key, n_key)?, value(p_value, n_value)?)?;
            Ok(KVSTORE_OK)
        })
    }
}

/// Reads the value of a key of the default family.
///
/// @param pKey,nKey Key and its length: 1 to 65536 bytes.
/// @param ppValue Receives a copy of the value, followed by a NUL byte; not NULL even if the value
///   is empty. Free it with kvstore_free. NULL if the call fails, but unchanged after
///   KVSTORE_ERROR and KVSTORE_MISUSE.
/// @param pnValue Receives the length of the value, without the NUL byte. If the call fails: 0, or
///   unchanged as `*ppValue` is.
///
/// Errors: KVSTORE_NOTFOUND (the key does not exist or has expired), KVSTORE_ERROR (a pointer is
/// NULL, or the length is out of bounds), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
/// KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_get(
    kv: *mut KVStore,
    pKey: *const c_void,
    nKey: c_int,
    ppValue: *mut *mut c_void,
    pnValue: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(kv, |family| get(family, pKey, nKey, ppValue, pnValue).map(|_| KVSTORE_OK)) }
}

/// Reads the value of a key of the family `cf`.
///
/// Parameters, behaviour and errors are those of kvstore_get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_get(
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
    ppValue: *mut *mut c_void,
    pnValue: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { on_family(cf, |family| get(family, pKey, nKey, ppValue, pnValue).map(|_| KVSTORE_OK)) }
}

/// Looks up a key. Writes a copy of its value and the length to the outputs, and returns the expiry
/// time of the key. If the key is missing or expired, fails with `Missing`. If it fails, writes NULL
/// and 0, but leaves the outputs unchanged if the call is wrong (`Error`, `Misuse`).
pub(super) unsafe fn get(
    family: &Family,
    p_key: *const c_void,
    n_key: c_int,
    pp_value: *mut *mut c_void,
    pn_value: *mut c_int,
) -> Outcome<Expiry> {
    // SAFETY: passed on.
    let (key, p_value, n_value) =
        unsafe { (key(p_key, n_key)?, output(pp_value, "ppValue")?, output(pn_value, "pnValue")?) };
    let mut copy = Copied::none();
    let found = family.copy_value(key, &mut copy);
    if !found.as_ref().is_err_and(|e| matches!(e.kind(), ErrorKind::Error | ErrorKind::Misuse)) {
        p_value.set(std::ptr::null_mut());
        n_value.set(0);
    }
    let (length, expiry) = present(found?)?;
    p_value.set(copy.release());
    n_value.set(c_length(length));
    Ok(expiry)
}

/// Deletes a key of the default family, with its value and expiry time.
///
/// @param pKey,nKey Key and its length: 1 to 65536 bytes.
///
/// The bytes remain in the file until their space is reused, unless KVStoreConfig.secureDelete is
/// set.
///
/// Errors: KVSTORE_NOTFOUND (the key does not exist or has expired), KVSTORE_ERROR (`pKey` is NULL,
/// or the length is out of bounds), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM,
/// KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE,
/// KVSTORE_FULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_delete(kv: *mut KVStore, pKey: *const c_void, nKey: c_int) -> c_int {
    // SAFETY: as documented.
    unsafe { delete(kv, pKey, nKey) }
}

/// Deletes a key of the family `cf`, with its value and expiry time.
///
/// Parameters, behaviour and errors are those of kvstore_delete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_delete(
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { delete(cf, pKey, nKey) }
}

unsafe fn delete<T: Opaque>(handle: *mut T, p_key: *const c_void, n_key: c_int) -> c_int
where
    T::Value: HasFamily,
{
    // SAFETY: passed on.
    unsafe {
        on_family(handle, |family| {
            let deleted = family.delete(key(p_key, n_key)?)?;
            present(deleted.then_some(KVSTORE_OK))
        })
    }
}

/// Tests whether a key of the default family is live.
///
/// @param pKey,nKey Key and its length: 1 to 65536 bytes.
/// @param pExists Receives 1 if the key exists and has not expired, otherwise 0.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL, or the length is out of bounds), or a read code
/// (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
/// KVSTORE_MISUSE). A missing key is not an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_exists(
    kv: *mut KVStore,
    pKey: *const c_void,
    nKey: c_int,
    pExists: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { exists(kv, pKey, nKey, pExists) }
}

/// Tests whether a key of the family `cf` is live.
///
/// Parameters, behaviour and errors are those of kvstore_exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_exists(
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
    pExists: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe { exists(cf, pKey, nKey, pExists) }
}

unsafe fn exists<T: Opaque>(handle: *mut T, p_key: *const c_void, n_key: c_int, p_exists: *mut c_int) -> c_int
where
    T::Value: HasFamily,
{
    // SAFETY: passed on.
    unsafe {
        on_family(handle, |family| {
            let (key, exists) = (key(p_key, n_key)?, output(p_exists, "pExists")?);
            exists.set(c_int::from(family.exists(key)?));
            Ok(KVSTORE_OK)
        })
    }
}

/// Writes a value into the default family only if the key does not exist or has expired. Check and
/// write are atomic for every handle and process.
///
/// @param pKey,nKey Key and its length: 1 to 65536 bytes.
/// @param pValue,nValue Value and its length, as for kvstore_put.
/// @param expire_ms Expiry time of the new key, in milliseconds since the Unix epoch; 0: by the
///   default TTL of the family, or never if the family has none; KVSTORE_NO_TTL: never.
/// @param pInserted Receives 1 if the value was written, otherwise 0. May be NULL.
///
/// A live key keeps its value and expiry time.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL, a length is out of bounds, or `expire_ms` is
/// invalid), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY,
/// KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_put_if_absent(
    kv: *mut KVStore,
    pKey: *const c_void,
    nKey: c_int,
    pValue: *const c_void,
    nValue: c_int,
    expire_ms: i64,
    pInserted: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        on_family(kv, |family| put_if_absent(family, (pKey, nKey), (pValue, nValue), expire_ms, pInserted))
    }
}

/// Writes a value into the family `cf` only if the key does not exist or has expired.
///
/// Parameters, behaviour and errors are those of kvstore_put_if_absent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_put_if_absent(
    cf: *mut KVColumnFamily,
    pKey: *const c_void,
    nKey: c_int,
    pValue: *const c_void,
    nValue: c_int,
    expire_ms: i64,
    pInserted: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        on_family(cf, |family| put_if_absent(family, (pKey, nKey), (pValue, nValue), expire_ms, pInserted))
    }
}

unsafe fn put_if_absent(
    family: &Family,
    (p_key, n_key): (*const c_void, c_int),
    (p_value, n_value): (*const c_void, c_int),
    expire_ms: i64,
    p_inserted: *mut c_int,
) -> Outcome<c_int> {
    // SAFETY: passed on.
    let (key, value, inserted) =
        unsafe { (key(p_key, n_key)?, value(p_value, n_value)?, optional_output(p_inserted)) };
    let written = family.put_if_absent(key, value, write_expiry(family, expire_ms)?)?;
    if let Some(inserted) = inserted {
        inserted.set(c_int::from(written));
    }
    Ok(KVSTORE_OK)
}

/// Counts the rows of the default family, including expired rows that have not been removed yet.
///
/// @param pnCount Receives the number of rows.
///
/// An expired row is not counted once a get, exists, ttl, expire-time or write-time call of this
/// handle has found it, unless the handle is read-only or the call was part of a read transaction.
/// The call reads the whole key index; its time grows with the number of keys.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
/// KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_count(kv: *mut KVStore, pnCount: *mut i64) -> c_int {
    // SAFETY: as documented.
    unsafe { count(kv, pnCount) }
}

/// Counts the rows of the family `cf`, including expired rows that have not been removed yet.
///
/// Parameters, behaviour and errors are those of kvstore_count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_count(cf: *mut KVColumnFamily, pnCount: *mut i64) -> c_int {
    // SAFETY: as documented.
    unsafe { count(cf, pnCount) }
}

unsafe fn count<T: Opaque>(handle: *mut T, pn_count: *mut i64) -> c_int
where
    T::Value: HasFamily,
{
    // SAFETY: passed on.
    unsafe {
        on_family(handle, |family| {
            let count = output(pn_count, "pnCount")?;
            count.set(i64::try_from(family.count()?).unwrap_or(i64::MAX));
            Ok(KVSTORE_OK)
        })
    }
}

/// Deletes all keys of the default family, in one transaction. The settings of the family remain.
///
/// Errors: KVSTORE_ERROR (`kv` is NULL), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED,
/// KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
/// KVSTORE_MISUSE, KVSTORE_FULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_clear(kv: *mut KVStore) -> c_int {
    // SAFETY: as documented.
    unsafe { clear(kv) }
}

/// Deletes all keys of the family `cf`, in one transaction. The settings of the family remain.
///
/// Behaviour and errors are those of kvstore_clear.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_clear(cf: *mut KVColumnFamily) -> c_int {
    // SAFETY: as documented.
    unsafe { clear(cf) }
}

unsafe fn clear<T: Opaque>(handle: *mut T) -> c_int
where
    T::Value: HasFamily,
{
    // SAFETY: passed on.
    unsafe {
        on_family(handle, |family| {
            family.clear()?;
            Ok(KVSTORE_OK)
        })
    }
}

//! Keys and values. Each function comes for the default family (of a store) and for any family.

use std::ffi::{c_int, c_void};

use super::args::{
    Copied, Outcome, c_length, expiry, key, no_memory, optional_output, output, present, value,
};
use super::call::{HasSession, call};
use super::codes::KVSTORE_OK;
use super::handle::{FamilyHandle, Opaque, StoreHandle};
use super::types::{KVColumnFamily, KVStore};
use crate::{Expiry, Family};

/// A handle that data functions work on.
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

/// Runs a call on the family of a handle.
pub(super) unsafe fn on_family<T: Opaque>(handle: *mut T, f: impl FnOnce(&Family) -> Outcome<c_int>) -> c_int
where
    T::Value: HasFamily,
{
    // SAFETY: passed on.
    unsafe { call(handle, |handle| f(handle.family())) }
}

/// Writes a value. The key loses the TTL it had, and gets the family's default TTL if there is one.
///
/// A key is 1 to 65536 bytes, any bytes. A value is 0 bytes to the configured maximum (10 MiB by
/// default); (NULL, 0) is an empty value. Both are copied.
///
/// Errors: KVSTORE_ERROR (a NULL pointer, a bad length), KVSTORE_BUSY (another handle is writing; only
/// outside a transaction), KVSTORE_READONLY, KVSTORE_FULL, KVSTORE_IOERR, KVSTORE_NOMEM,
/// KVSTORE_CORRUPT, KVSTORE_MISUSE. Nothing is changed then; inside a transaction a failure for I/O,
/// space or memory leaves only the rollback (but KVSTORE_FULL for a limit, kvstore_set_limit, leaves it as it was before
/// the call).
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

/// kvstore_put in any family.
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

/// Reads a value. On success `*ppValue` is a copy of `*pnValue` bytes with a NUL after them, to be
/// freed with kvstore_free; it is never NULL, also for an empty value.
///
/// Errors: KVSTORE_NOTFOUND (missing or expired: *ppValue is NULL and *pnValue 0), KVSTORE_ERROR (a
/// NULL pointer, a bad length), KVSTORE_BUSY (only in DELETE journal mode), KVSTORE_IOERR,
/// KVSTORE_NOMEM, KVSTORE_CORRUPT, KVSTORE_MISUSE.
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

/// kvstore_get in any family.
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

/// Gives the value out, and the key's end of life back.
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
    let found = family.get_with(key, |value, expiry| (copy.take(value), value.len(), expiry))?;
    if found.is_none() {
        p_value.set(std::ptr::null_mut());
        n_value.set(0);
    }
    let (is_copied, length, expiry) = present(found)?;
    if !is_copied {
        return Err(no_memory().into());
    }
    p_value.set(copy.release());
    n_value.set(c_length(length));
    Ok(expiry)
}

/// Deletes a key, with its TTL. Its bytes stay in the file until their place is used again, unless KVStoreConfig.secureDelete
/// is set.
///
/// Errors: KVSTORE_NOTFOUND (missing or expired); otherwise as kvstore_put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_delete(kv: *mut KVStore, pKey: *const c_void, nKey: c_int) -> c_int {
    // SAFETY: as documented.
    unsafe { delete(kv, pKey, nKey) }
}

/// kvstore_delete in any family.
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

/// Says in `*pExists` whether a key is there and alive: 1 or 0.
///
/// Errors: as kvstore_get, but a missing key is KVSTORE_OK and 0.
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

/// kvstore_exists in any family.
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

/// Writes a value only if the key is absent; an expired key is. `expire_ms` is when the new key
/// expires, in milliseconds since the Unix epoch; 0: never. `*pInserted` (may be NULL) says whether it
/// wrote: 1, or 0 when the key was alive, which then keeps its value and TTL. Check and write are one
/// step for every other handle and process.
///
/// Errors: as kvstore_put; KVSTORE_ERROR also for a negative expire_ms.
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

/// kvstore_put_if_absent in any family.
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
    let written = family.put_if_absent(key, value, expiry(expire_ms)?)?;
    if let Some(inserted) = inserted {
        inserted.set(c_int::from(written));
    }
    Ok(KVSTORE_OK)
}

/// Counts the rows. Expired ones are included as long as nothing has removed them, and no get, exists, ttl,
/// expire-time or write-time call of this handle has met them. Reads the whole key tree.
///
/// Errors: KVSTORE_ERROR (a NULL pointer), KVSTORE_BUSY (only in DELETE journal mode), KVSTORE_IOERR,
/// KVSTORE_NOMEM, KVSTORE_CORRUPT, KVSTORE_MISUSE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_count(kv: *mut KVStore, pnCount: *mut i64) -> c_int {
    // SAFETY: as documented.
    unsafe { count(kv, pnCount) }
}

/// kvstore_count of any family.
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

/// Deletes everything in the default family.
///
/// Errors: as kvstore_put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_clear(kv: *mut KVStore) -> c_int {
    // SAFETY: as documented.
    unsafe { clear(kv) }
}

/// kvstore_clear of any family.
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

//! Families.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Arc;

use super::args::{Outcome, c_length, malloc_copy, name, no_memory, output};
use super::call::{call, call_close};
use super::codes::KVSTORE_OK;
use super::handle::{self, FamilyHandle, StoreHandle};
use super::types::{KVColumnFamily, KVStore};
use crate::Family;

/// Creates a family and opens a handle on it.
///
/// @param name Name: 1 to 255 bytes of UTF-8, case-sensitive. Names that begin with "__", "_snkv_"
///   or "kvstore" are reserved.
/// @param ppCF Receives the handle, or NULL after a failure. Close it with kvstore_cf_close.
///
/// Errors: KVSTORE_ERROR (the family exists, the name is invalid, or a pointer is NULL), or a write
/// code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR,
/// KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_create(
    kv: *mut KVStore,
    name: *const c_char,
    ppCF: *mut *mut KVColumnFamily,
) -> c_int {
    // SAFETY: as documented.
    unsafe { new_family(kv, ppCF, |kv| Ok(kv.store.create_family(self::name(name)?)?)) }
}

/// Opens a handle on an existing family.
///
/// @param name Name of the family; "default" for the default one.
/// @param ppCF Receives the handle, or NULL after a failure. Close it with kvstore_cf_close.
///
/// Errors: KVSTORE_NOTFOUND (there is no family of that name), KVSTORE_ERROR (the name is invalid,
/// or a pointer is NULL), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM,
/// KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_open(
    kv: *mut KVStore,
    name: *const c_char,
    ppCF: *mut *mut KVColumnFamily,
) -> c_int {
    // SAFETY: as documented.
    unsafe { new_family(kv, ppCF, |kv| Ok(kv.store.family(self::name(name)?)?)) }
}

/// Opens a handle on the default family, which the functions without "cf" in their names use.
///
/// @param ppCF Receives the handle, or NULL after a failure. Close it with kvstore_cf_close.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL), KVSTORE_MISUSE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_get_default(kv: *mut KVStore, ppCF: *mut *mut KVColumnFamily) -> c_int {
    // SAFETY: as documented.
    unsafe { new_family(kv, ppCF, |kv| Ok(kv.store.default_family().clone())) }
}

unsafe fn new_family(
    kv: *mut KVStore,
    result: *mut *mut KVColumnFamily,
    make: impl FnOnce(&StoreHandle) -> Outcome<Family>,
) -> c_int {
    // SAFETY: NULL or valid, as documented.
    if let Some(result) = unsafe { super::args::optional_output(result) } {
        result.set(std::ptr::null_mut());
    }
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            let result = output(result, "ppCF")?;
            let family = make(kv)?;
            let name = CString::new(family.name()).unwrap_or_default();
            result.set(handle::open(FamilyHandle { family, name, call_state: Arc::clone(&kv.call_state) }));
            Ok(KVSTORE_OK)
        })
    }
}

/// Removes a family with all its keys and settings.
///
/// @param name Name of the family. "default" cannot be dropped.
///
/// Errors: KVSTORE_NOTFOUND (there is no family of that name), KVSTORE_BUSY (a handle on the family
/// is open on this store, or another handle is writing), KVSTORE_ERROR ("default", a reserved name,
/// or a NULL pointer), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM,
/// KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE,
/// KVSTORE_FULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_drop(kv: *mut KVStore, name: *const c_char) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            kv.store.drop_family(self::name(name)?)?;
            Ok(KVSTORE_OK)
        })
    }
}

/// Lists the names of all families except the default one, in byte order.
///
/// @param pazNames Receives an array of names, terminated by NULL. Free each name and then the
///   array with kvstore_free.
/// @param pnCount Receives the number of names.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
/// KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_list(
    kv: *mut KVStore,
    pazNames: *mut *mut *mut c_char,
    pnCount: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            let (names, count) = (output(pazNames, "pazNames")?, output(pnCount, "pnCount")?);
            let families = kv.store.family_names()?;
            let array = malloc_strings(&families)?;
            names.set(array);
            count.set(c_length(families.len()));
            Ok(KVSTORE_OK)
        })
    }
}

/// Returns copies of the strings in memory of malloc(): an array of pointers to NUL-terminated
/// strings, with a NULL pointer at the end.
fn malloc_strings(strings: &[String]) -> Outcome<*mut *mut c_char> {
    // SAFETY: the array has room for a pointer per string and the NULL; what was made is freed if
    // something cannot be.
    unsafe {
        let array = libc::calloc(strings.len() + 1, size_of::<*mut c_char>()).cast::<*mut c_char>();
        if array.is_null() {
            return Err(no_memory().into());
        }
        for (i, string) in strings.iter().enumerate() {
            let copy = malloc_copy(string.as_bytes());
            if copy.is_null() {
                for made in 0..i {
                    libc::free((*array.add(made)).cast::<c_void>());
                }
                libc::free(array.cast());
                return Err(no_memory().into());
            }
            *array.add(i) = copy.cast();
        }
        Ok(array)
    }
}

/// Returns the name of a family.
///
/// The result is never NULL: it is an empty string for NULL and for a closed handle. The string is
/// valid until the handle is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_name(cf: *mut KVColumnFamily) -> *const c_char {
    // SAFETY: NULL or a handle, as documented.
    match unsafe { handle::enter(cf) } {
        Ok(cf) => cf.name.as_ptr(),
        Err(_) => c"".as_ptr(),
    }
}

/// Closes a handle on a family. NULL is allowed, and so is a handle whose store is already closed.
///
/// Threads: calls of other threads that are using the handle run to their end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_close(cf: *mut KVColumnFamily) {
    // SAFETY: NULL or a handle, as documented.
    unsafe {
        call_close(cf, |cf| {
            cf.family.release();
            Ok(KVSTORE_OK)
        });
    }
}

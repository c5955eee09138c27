//! Families.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Arc;

use super::args::{Failure, Outcome, c_length, malloc_copy, name, no_memory, output};
use super::call::{call, call_close};
use super::codes::KVSTORE_OK;
use super::errmsg::NO_SUCH_FAMILY;
use super::handle::{self, FamilyHandle, StoreHandle};
use super::types::{KVColumnFamily, KVStore};
use crate::{Error, ErrorKind, Family};

/// Makes a family. `name` is 1 to 255 bytes of UTF-8; names that begin with "__", "_snkv_" or
/// "kvstore" are reserved; case matters. On success `*ppCF` is a handle, to be closed with
/// kvstore_cf_close; on failure it is NULL.
///
/// Errors: KVSTORE_ERROR (it exists, a bad name, a NULL pointer), KVSTORE_BUSY, KVSTORE_READONLY,
/// KVSTORE_MISUSE, KVSTORE_IOERR, KVSTORE_FULL, KVSTORE_NOMEM, KVSTORE_CORRUPT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_create(
    kv: *mut KVStore,
    name: *const c_char,
    ppCF: *mut *mut KVColumnFamily,
) -> c_int {
    // SAFETY: as documented.
    unsafe { new_family(kv, ppCF, |kv| Ok(kv.store.create_family(self::name(name)?)?)) }
}

/// Opens a family; "default" is the default one. Otherwise as kvstore_cf_create.
///
/// Errors: KVSTORE_NOTFOUND (there is none of that name), KVSTORE_ERROR (a bad name, a NULL pointer),
/// KVSTORE_BUSY, KVSTORE_MISUSE, KVSTORE_IOERR, KVSTORE_NOMEM, KVSTORE_CORRUPT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_open(
    kv: *mut KVStore,
    name: *const c_char,
    ppCF: *mut *mut KVColumnFamily,
) -> c_int {
    // SAFETY: as documented.
    unsafe { new_family(kv, ppCF, |kv| kv.store.family(self::name(name)?).map_err(missing_family)) }
}

/// Gives a handle on the default family, the one the functions without "cf" work on. To be closed
/// with kvstore_cf_close.
///
/// Errors: KVSTORE_ERROR (a NULL pointer), KVSTORE_MISUSE.
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
            result.set(handle::open(FamilyHandle { family, name, session: Arc::clone(&kv.session) }));
            Ok(KVSTORE_OK)
        })
    }
}

/// Drops a family with everything in it.
///
/// Errors: KVSTORE_NOTFOUND (there is none of that name), KVSTORE_BUSY (a handle to it is open on this
/// store, or another handle is writing), KVSTORE_ERROR ("default", a reserved name, a NULL pointer),
/// KVSTORE_READONLY, KVSTORE_MISUSE, KVSTORE_IOERR, KVSTORE_FULL, KVSTORE_NOMEM, KVSTORE_CORRUPT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_drop(kv: *mut KVStore, name: *const c_char) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            kv.store.drop_family(self::name(name)?).map_err(missing_family)?;
            Ok(KVSTORE_OK)
        })
    }
}

/// The caller has the name of the family that is not there.
fn missing_family(error: Error) -> Failure {
    match error.kind() {
        ErrorKind::NotFound => Failure::Missing(NO_SUCH_FAMILY),
        _ => error.into(),
    }
}

/// Lists the names of all families but the default one, in byte order. On success `*pazNames` is an
/// array of `*pnCount` strings with a NULL after them; free each string and then the array with
/// kvstore_free.
///
/// Errors: KVSTORE_ERROR (a NULL pointer), KVSTORE_BUSY, KVSTORE_MISUSE, KVSTORE_IOERR, KVSTORE_NOMEM,
/// KVSTORE_CORRUPT.
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
            let families = kv.store.families()?;
            let array = malloc_strings(&families)?;
            names.set(array);
            count.set(c_length(families.len()));
            Ok(KVSTORE_OK)
        })
    }
}

/// A malloc'd array of malloc'd strings, with a NULL at the end.
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

/// The name of a family. Never NULL (an empty string for NULL and closed handles); valid until the
/// handle is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_cf_name(cf: *mut KVColumnFamily) -> *const c_char {
    // SAFETY: NULL or a handle, as documented.
    match unsafe { handle::enter(cf) } {
        Ok(cf) => cf.name.as_ptr(),
        Err(_) => c"".as_ptr(),
    }
}

/// Closes a family's handle. NULL is allowed, and so are handles of a closed store. Calls that other threads
/// are in with it go on to their end.
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

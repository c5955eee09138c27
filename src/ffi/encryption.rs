//! Encrypted stores. In a build without encryption the functions are there, and say that they cannot.

#[cfg(feature = "encryption")]
use std::ffi::CStr;
use std::ffi::{c_char, c_int, c_void};

use super::args::{Outcome, bad_argument, output};
use super::call::{call, call_without_handle};
use super::codes::KVSTORE_OK;
#[cfg(feature = "encryption")]
use super::store::handle_of;
use super::types::{KVStore, KVStoreConfig};
#[cfg(feature = "encryption")]
use crate::{Config, Secret, Store, path_of};

/// Opens the store at `path` that is encrypted with a password, or makes one; a store there that is not encrypted is
/// encrypted in place first, as by kvstore_reencrypt: with all families, keys, TTLs, write times and settings, and tables of
/// other programs.
///
/// The password is any bytes, at least one. A key is derived from it at each open, which takes some tenths of a second. A
/// key of 32 bytes is used as it is, and an open as quick as that of a plain store, if it is given as a text of 67 bytes:
/// `x'`, 64 digits in hexadecimal, `'`. The file is one of SQLCipher 4's, which other programs open with the password.
///
/// `config` (NULL: the default one) as for kvstore_open_v2; pageSize must be 0 or 4096. mmapSize has no effect. On success
/// `*ppKV` is the handle, on failure NULL, and the text is in kvstore_errmsg(NULL). The password is copied, and wiped from
/// the library's memory when the handle is closed.
///
/// Errors: those of kvstore_open_v2; KVSTORE_AUTH_FAILED (another password; nothing is changed); KVSTORE_ERROR (ppKV or
/// `path` is NULL, "" or ":memory:", the password is empty, or this build has no encryption); KVSTORE_BUSY (also if a
/// plain store is open elsewhere); KVSTORE_FULL (to encrypt a store takes twice its size on the disk for a while).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_open_encrypted(
    path: *const c_char,
    pPassword: *const c_void,
    nPassword: c_int,
    ppKV: *mut *mut KVStore,
    config: *const KVStoreConfig,
) -> c_int {
    super::call::silence_guarded_panics();
    super::under_way::prepare();
    call_without_handle(|| {
        // SAFETY: NULL or valid, as documented.
        let result = unsafe { output(ppKV, "ppKV")? };
        result.set(std::ptr::null_mut());
        // SAFETY: NULL, or so many bytes.
        let password = unsafe { password(pPassword, nPassword)? };
        if path.is_null() {
            return bad_argument("the path is NULL: a store in memory is not encrypted");
        }
        #[cfg(feature = "encryption")]
        {
            // SAFETY: `config` is NULL or valid; a NUL-terminated string.
            let (config, path) = unsafe { (config.as_ref().copied(), CStr::from_ptr(path)) };
            let config = config.map_or_else(|| Ok(Config::new()), KVStoreConfig::to_config)?;
            if matches!(path.to_bytes(), b"" | b":memory:") {
                return bad_argument("a store in memory is not encrypted: give the path of a file");
            }
            let store = Store::open_encrypted(
                path_of(path.to_bytes())?,
                &config.secret(&Secret::password(password)),
            )?;
            result.set(handle_of(store));
            Ok(KVSTORE_OK)
        }
        #[cfg(not(feature = "encryption"))]
        {
            let _ = (password, config);
            not_in_this_build()
        }
    })
}

/// Whether the store is encrypted: 1 or 0.
///
/// Errors: 0 for a handle that is NULL or closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_is_encrypted(kv: *mut KVStore) -> c_int {
    let mut encrypted = 0;
    // SAFETY: NULL or a handle, as documented.
    unsafe {
        call(kv, |kv| {
            encrypted = c_int::from(kv.store.is_encrypted()?);
            Ok(KVSTORE_OK)
        });
    }
    encrypted
}

/// Encrypts an encrypted store with another password, in place. With the old one it cannot be opened any more. This
/// handle, its families and iterators go on.
///
/// If it fails, or the process dies or the power is cut on the way, the file is the old one or the new one, never
/// anything else. It stays the same file, and what it was is overwritten: in the file, its WAL and its journal. (Not what a
/// file system that copies on write, a flash memory or a backup keeps.) It takes twice the size of the store on the disk
/// meanwhile. A cleaner of the handle is stopped and started again; if there are no descriptors or threads for that, it has
/// ended.
///
/// Errors: KVSTORE_ERROR (kv is NULL, the store is not encrypted, the password is empty, or this build has no
/// encryption); KVSTORE_BUSY (it is open elsewhere, in this process or another, or a transaction is open on this handle; an
/// idle handle of another program in DELETE mode is not seen, and finds no database there afterwards);
/// KVSTORE_CANTOPEN (its path leads to another file by now, or it has a second name); KVSTORE_READONLY; KVSTORE_FULL;
/// KVSTORE_IOERR (if the disk fails at the very end, an open with the one password or the other tells which it has);
/// KVSTORE_CORRUPT; KVSTORE_NOMEM; KVSTORE_MISUSE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_reencrypt(kv: *mut KVStore, pNew: *const c_void, nNew: c_int) -> c_int {
    // SAFETY: NULL or a handle, and NULL or so many bytes, as documented.
    unsafe {
        call(kv, |kv| {
            let password = password(pNew, nNew)?;
            #[cfg(feature = "encryption")]
            {
                kv.store.rekey(&Secret::password(password))?;
                Ok(KVSTORE_OK)
            }
            #[cfg(not(feature = "encryption"))]
            {
                let _ = (kv, password);
                not_in_this_build()
            }
        })
    }
}

/// Takes the encryption off a store, in place, as kvstore_reencrypt gives it another password. Afterwards kvstore_open
/// opens it, and anybody reads it.
///
/// Errors: those of kvstore_reencrypt.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_remove_encryption(kv: *mut KVStore) -> c_int {
    // SAFETY: NULL or a handle, as documented.
    unsafe {
        call(kv, |kv| {
            #[cfg(feature = "encryption")]
            {
                kv.store.decrypt()?;
                Ok(KVSTORE_OK)
            }
            #[cfg(not(feature = "encryption"))]
            {
                let _ = kv;
                not_in_this_build()
            }
        })
    }
}

unsafe fn password<'a>(pointer: *const c_void, length: c_int) -> Outcome<&'a [u8]> {
    match usize::try_from(length) {
        Ok(length @ 1..) if !pointer.is_null() => {
            // SAFETY: not NULL, so valid for `length` bytes.
            Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), length) })
        }
        _ => bad_argument("the password is empty: give at least one byte"),
    }
}

#[cfg(not(feature = "encryption"))]
fn not_in_this_build<T>() -> Outcome<T> {
    bad_argument(
        "this build of the library has no encryption: use one that was built with it (make all ENCRYPTION=1, or the \
         Cargo feature \"encryption\")",
    )
}

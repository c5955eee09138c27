//! Encryption.
//!
//! A build without encryption exports these functions too; they fail with KVSTORE_ERROR.

#[cfg(feature = "encryption")]
use std::ffi::CStr;
use std::ffi::{c_char, c_int, c_void};

#[cfg(not(feature = "encryption"))]
use super::args::Failure;
use super::args::{Outcome, bad_argument, output};
use super::call::{call, call_without_handle};
use super::codes::KVSTORE_OK;
#[cfg(feature = "encryption")]
use super::store::handle_of;
use super::types::{KVStore, KVStoreConfig};
#[cfg(feature = "encryption")]
use crate::{Config, Secret, Store, path_of};
#[cfg(not(feature = "encryption"))]
use crate::{Error, Hint};

/// Opens an encrypted store, and creates it if it does not exist. An existing store that is not
/// encrypted is first encrypted in place, unless KVStoreConfig.onlyEncrypted is set.
///
/// @param path File name. A store in memory cannot be encrypted.
/// @param pPassword,nPassword Password and its length: at least 1 byte of any content. It is
///   copied, and wiped from the memory of the library when the handle is closed.
/// @param ppKV Receives the handle, or NULL after a failure. Close it with kvstore_close.
/// @param config Configuration as for kvstore_open_v2; NULL for the default one. pageSize must be 0
///   or 4096; mmapSize has no effect.
///
/// The key is derived from the password at each open, which takes about a tenth of a second. A raw
/// key of 32 bytes avoids this: pass the 67-byte text `x'`, 64 hexadecimal digits, `'`. The file
/// format is that of SQLCipher 4, whose programs can open the file with the password.
///
/// Errors: KVSTORE_AUTH_FAILED (the password is wrong, or onlyEncrypted is set and the store is not
/// encrypted; nothing is changed), KVSTORE_ERROR (`ppKV`
/// is NULL; `path` is NULL, "" or ":memory:"; the password is empty; or this build does not support
/// encryption), KVSTORE_BUSY (also if an unencrypted store is open elsewhere), KVSTORE_FULL
/// (encrypting a store temporarily takes twice its size on the disk). All other errors are those of
/// kvstore_open_v2.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_open_encrypted(
    path: *const c_char,
    pPassword: *const c_void,
    nPassword: c_int,
    ppKV: *mut *mut KVStore,
    config: *const KVStoreConfig,
) -> c_int {
    super::call::silence_guarded_panics();
    super::hazard::prepare();
    call_without_handle(|| {
        // SAFETY: NULL or valid, as documented.
        let result = unsafe { output(ppKV, "ppKV")? };
        result.set(std::ptr::null_mut());
        // SAFETY: NULL, or valid for `length` bytes.
        let password = unsafe { password(pPassword, nPassword)? };
        if path.is_null() {
            return bad_argument("the path is NULL: a store in memory is not encrypted");
        }
        #[cfg(feature = "encryption")]
        {
            // SAFETY: `config` is NULL or valid; a NUL-terminated string.
            let (config, path) = unsafe { (config.as_ref().copied(), CStr::from_ptr(path)) };
            let only_encrypted = config.is_some_and(|config| config.onlyEncrypted != 0);
            let config = config.map_or_else(|| Ok(Config::new()), KVStoreConfig::to_config)?;
            if matches!(path.to_bytes(), b"" | b":memory:") {
                return bad_argument("a store in memory is not encrypted: give the path of a file");
            }
            let path = path_of(path.to_bytes())?;
            let secret = Secret::password(password);
            let store = match only_encrypted {
                true => Store::open_with(path, &config.secret(&secret)),
                false => Store::open_encrypted(path, &config.secret(&secret)),
            }?;
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

/// Returns 1 if the store is encrypted, otherwise 0.
///
/// Errors: none. The result is 0 for a handle that is NULL or closed.
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

/// Changes the password of an encrypted store, in place. The old password no longer opens the
/// store.
///
/// @param pNew,nNew New password and its length: at least 1 byte.
///
/// If the call fails, the process dies or the power fails, the file is entirely the old or entirely
/// the new one. It remains the same file. The old content is overwritten in the file, its WAL and
/// its journal, but not in copies that a copy-on-write file system, flash memory or a backup keeps.
///
/// The call temporarily takes twice the size of the store on the disk. A cleaner of the handle is
/// stopped and restarted; if there are no file descriptors or threads for that, it stays stopped.
///
/// This handle, its families and its iterators remain usable.
///
/// Errors: KVSTORE_ERROR (`kv` is NULL, the store is not encrypted, the password is empty, or this
/// build does not support encryption), KVSTORE_BUSY (a transaction is open on this handle, or the
/// store is open elsewhere, in this process or another), KVSTORE_CANTOPEN (the path leads to
/// another file, or the file has several hard links), KVSTORE_READONLY, KVSTORE_FULL, KVSTORE_IOERR
/// (if the disk fails at the very end, opening the store with one of the two passwords shows which
/// one applies), KVSTORE_CORRUPT, KVSTORE_NOMEM, KVSTORE_MISUSE. An idle handle of another program
/// in DELETE journal mode is not detected; it finds no database afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_reencrypt(kv: *mut KVStore, pNew: *const c_void, nNew: c_int) -> c_int {
    // SAFETY: NULL or a handle, and NULL or valid for the length, as documented.
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

/// Decrypts an encrypted store in place. Afterwards kvstore_open opens it without a password.
///
/// The guarantees for failures and the disk space needed are those of kvstore_reencrypt.
///
/// Errors: KVSTORE_ERROR (`kv` is NULL, the store is not encrypted, or this build does not support
/// encryption). All other errors are those of kvstore_reencrypt.
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
    let error = Error::invalid("this build of the library has no encryption");
    Err(Failure::Argument(error.with_hint(Hint::BuildWithEncryption)))
}

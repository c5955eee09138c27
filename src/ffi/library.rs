//! Library: versions, memory and time.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::codes::name_of;
use super::hint::{hint_of, text_of};

/// Converts a text that ends with a NUL byte to a C string. Returns an empty one if the text has no
/// NUL byte at its end, or others.
const fn text(bytes: &[u8]) -> &CStr {
    match CStr::from_bytes_with_nul(bytes) {
        Ok(text) => text,
        Err(_) => c"",
    }
}

/// Returns the version of the library, such as "0.1.0". The suffix "+sqlcipher" marks a build with
/// encryption, and "+remote" at the end a build with support for servers. The string is static.
#[unsafe(no_mangle)]
pub extern "C" fn kvstore_version() -> *const c_char {
    const VERSION: &CStr = match (cfg!(feature = "encryption"), cfg!(feature = "remote")) {
        (false, false) => text(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()),
        (true, false) => text(concat!(env!("CARGO_PKG_VERSION"), "+sqlcipher\0").as_bytes()),
        (false, true) => text(concat!(env!("CARGO_PKG_VERSION"), "+remote\0").as_bytes()),
        (true, true) => text(concat!(env!("CARGO_PKG_VERSION"), "+sqlcipher+remote\0").as_bytes()),
    };
    VERSION.as_ptr()
}

/// Returns the version of the SQLite in the library, such as "3.54.1". The string is static.
#[unsafe(no_mangle)]
pub extern "C" fn kvstore_sqlite_version() -> *const c_char {
    crate::linked_sqlite().as_ptr()
}

/// Returns the storage engine of this build: "sql" or "btree"; with encryption "sql+sqlcipher" or
/// "btree+sqlcipher". The string is static.
#[unsafe(no_mangle)]
pub extern "C" fn kvstore_engine() -> *const c_char {
    let engine = match crate::ENGINE.to_bytes() {
        b"sql" if cfg!(feature = "encryption") => c"sql+sqlcipher",
        b"btree" if cfg!(feature = "encryption") => c"btree+sqlcipher",
        _ => crate::ENGINE,
    };
    engine.as_ptr()
}

/// Returns a short description of a result code, also for an unknown one. The string is static and
/// never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn kvstore_strerror(code: c_int) -> *const c_char {
    name_of(code).as_ptr()
}

/// Returns the advice that a KVSTORE_HINT_* number stands for, as text for a person.
///
/// @param hint A result of kvstore_errhint.
///
/// The result is never NULL. It is empty for KVSTORE_HINT_NONE and for unknown numbers. It is
/// static.
#[unsafe(no_mangle)]
pub extern "C" fn kvstore_strhint(hint: c_int) -> *const c_char {
    hint_of(hint).map_or(c"", text_of).as_ptr()
}

/// Returns the current time of the system clock, in milliseconds since the Unix epoch. The result
/// stands still if the system clock is set back by at most a second, until that has caught up.
#[unsafe(no_mangle)]
pub extern "C" fn kvstore_now_ms() -> i64 {
    crate::now_ms()
}

/// Sets a function that calls of this process ask while they wait for a lock, or removes it.
///
/// @param ends Function that returns non-zero to end the wait; NULL removes the function that was
///   set before.
/// @param context Passed to `ends`. It must remain valid for the rest of the process.
///
/// A call whose wait is ended returns KVSTORE_BUSY, as it does when KVStoreConfig.busyTimeout is
/// over, and changes nothing. On a server it can also return KVSTORE_IOERR. A program can so react to
/// a signal, or to a cancelled task, during a long wait.
///
/// `ends` is called in the waiting thread, about every 40 milliseconds, and when a signal handler has
/// interrupted the wait for the answer of a server. It should keep returning non-zero until the call
/// has returned, and must not use a store. Calls that do not wait never ask it.
///
/// It applies to stores that are opened afterwards. There is one function for the whole process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_set_wait_hook(
    ends: Option<unsafe extern "C" fn(context: *mut c_void) -> c_int>,
    context: *mut c_void,
) {
    struct Context(*mut c_void);
    // SAFETY: the caller promises that the function may be called from any thread.
    unsafe impl Send for Context {}
    // SAFETY: likewise.
    unsafe impl Sync for Context {}
    impl Context {
        fn pointer(&self) -> *mut c_void {
            self.0
        }
    }
    let context = Context(context);
    match ends {
        // SAFETY: the caller's function, with the caller's context.
        Some(ends) => crate::set_wait_hook(move || unsafe { ends(context.pointer()) } != 0),
        None => crate::clear_wait_hook(),
    }
}

/// Allocates `n` bytes of zeroed memory.
///
/// Returns NULL if `n` is negative or memory is exhausted. Free the memory with kvstore_free.
#[unsafe(no_mangle)]
pub extern "C" fn kvstore_malloc(n: c_int) -> *mut c_void {
    match usize::try_from(n) {
        // SAFETY: calloc has no preconditions.
        Ok(n) => unsafe { libc::calloc(n.max(1), 1) },
        Err(_) => std::ptr::null_mut(),
    }
}

/// Frees memory that this library allocated for the caller. NULL is allowed.
///
/// The library allocates such memory with malloc().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_free(memory: *mut c_void) {
    // SAFETY: NULL, or from this library's malloc and not freed before.
    unsafe { libc::free(memory) }
}

//! The library itself: version, code names, time, memory.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::codes::name_of;

/// A text of the package, as C takes it.
const fn text(bytes: &[u8]) -> &CStr {
    match CStr::from_bytes_with_nul(bytes) {
        Ok(text) => text,
        Err(_) => c"",
    }
}

/// The version of the library, such as "0.1.0"; with encryption "0.1.0+sqlcipher". If stores can be on a server, "+remote"
/// is at its end. The text is static.
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

/// The version of the SQLite inside, such as "3.54.1". The text is static.
#[unsafe(no_mangle)]
pub extern "C" fn kvstore_sqlite_version() -> *const c_char {
    crate::sqlite_version().as_ptr()
}

/// The engine of this build: "sql" or "btree"; with encryption "sql+sqlcipher" or "btree+sqlcipher". The text is
/// static.
#[unsafe(no_mangle)]
pub extern "C" fn kvstore_engine() -> *const c_char {
    let engine = match crate::engine().to_bytes() {
        b"sql" if cfg!(feature = "encryption") => c"sql+sqlcipher",
        b"btree" if cfg!(feature = "encryption") => c"btree+sqlcipher",
        _ => crate::engine(),
    };
    engine.as_ptr()
}

/// What a result code means, in a few words. Never NULL; the text is static. Unknown codes have a
/// text, too.
#[unsafe(no_mangle)]
pub extern "C" fn kvstore_strerror(code: c_int) -> *const c_char {
    name_of(code).as_ptr()
}

/// The time the library uses: milliseconds since the Unix epoch, never less than before in this
/// process.
#[unsafe(no_mangle)]
pub extern "C" fn kvstore_now_ms() -> i64 {
    crate::now_ms()
}

/// Allocates n bytes, all zero. NULL if n is negative or memory is out. Free with kvstore_free.
#[unsafe(no_mangle)]
pub extern "C" fn kvstore_malloc(n: c_int) -> *mut c_void {
    match usize::try_from(n) {
        // SAFETY: calloc has no preconditions.
        Ok(n) => unsafe { libc::calloc(n.max(1), 1) },
        Err(_) => std::ptr::null_mut(),
    }
}

/// Frees memory that this library handed out (it comes from malloc). NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_free(memory: *mut c_void) {
    // SAFETY: NULL, or from this library's malloc and not freed before.
    unsafe { libc::free(memory) }
}

//! Loads the C API from a shared library at run time, as a C program uses it. build.rs generates
//! the declarations from include/kvstore.h. SNKV 0.8 has functions of the same names and types, and
//! is loaded in the same way.

#![allow(non_snake_case, dead_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

include!(concat!(env!("OUT_DIR"), "/api.rs"));

unsafe extern "C" fn missing() {
    eprintln!("a function that this library does not have was called");
    std::process::abort();
}

/// A loaded library. It is never unloaded.
pub struct Api {
    pub functions: Functions,
    /// Function that frees values returned by `kvstore_get`.
    pub free: unsafe extern "C" fn(*mut c_void),
}

impl std::ops::Deref for Api {
    type Target = Functions;
    fn deref(&self) -> &Functions {
        &self.functions
    }
}

/// Loads a library. If `global` is set, libraries that are loaded later can use its symbols.
fn library(path: &Path, global: bool) -> *mut c_void {
    let name = CString::new(path.as_os_str().as_encoded_bytes()).expect("a path without NUL");
    // Each library uses its own copy of SQLite. Its symbols are not visible to other libraries.
    let flags = if global { libc::RTLD_GLOBAL } else { libc::RTLD_LOCAL | libc::RTLD_DEEPBIND };
    // SAFETY: a C string; the libraries' initialisers are harmless.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | flags) };
    if library.is_null() {
        // SAFETY: dlopen has just failed, so there is a text.
        panic!("{}", unsafe { CStr::from_ptr(libc::dlerror()) }.to_string_lossy());
    }
    library
}

pub fn load(path: &Path) -> &'static Api {
    let library = library(path, false);
    // SAFETY: `library` is loaded, and names are C strings.
    let symbol = |name: &CStr| unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: the symbols have the types the header says; those that are not there are never called.
    let functions = unsafe {
        Functions::find(|name| match symbol(name) {
            none if none.is_null() => missing as *mut c_void,
            some => some,
        })
    };
    // SNKV's snkv_free is a macro for this function.
    let free = [c"kvstore_free", c"sqlite3_free"].map(symbol).into_iter().find(|free| !free.is_null());
    let free = free.expect("a function that frees");
    // SAFETY: both have this type.
    let free = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(free) };
    Box::leak(Box::new(Api { functions, free }))
}

/// Loads SNKV, which is the extension module of its Python package. `python_stub.so` in the same
/// folder defines the symbols of the Python interpreter, which are never called.
pub fn load_snkv(path: &Path) -> &'static Api {
    library(&path.with_file_name("python_stub.so"), true);
    load(path)
}

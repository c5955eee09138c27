//! OpenSSL while the process exits or forks.
//!
//! OpenSSL frees its state in an exit handler, while other threads may still be encrypting a page.
//! If this library is the first to use OpenSSL, [`init`] omits that handler. If the program has
//! used OpenSSL before, the handler is registered already. The library cannot tell the two cases
//! apart, so [`wrap`] always wraps the functions of OpenSSL that SQLCipher calls. OpenSSL runs a
//! handler of this library before it frees its state (OPENSSL_atexit(3)). That handler waits for
//! running calls of the wrapped functions, and makes later calls fail.
//!
//! OpenSSL has locks of its own. A forked child would inherit those that another thread holds, and
//! could wait for them forever. So a fork waits for running calls of the wrapped functions, too.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ffi};

use crate::fork;

unsafe extern "C" {
    fn OPENSSL_init_crypto(options: u64, settings: *const c_void) -> c_int;
    fn OPENSSL_atexit(handler: extern "C" fn()) -> c_int;
    fn sqlcipher_get_provider() -> *mut Provider;
}

/// Option of `OPENSSL_init_crypto` that omits OpenSSL's exit handler: `OPENSSL_INIT_NO_ATEXIT`
/// (openssl/crypto.h).
const NO_EXIT_HANDLER: u64 = 0x0008_0000;

/// Beginning of the version of SQLCipher whose struct `sqlcipher_provider` has the layout of
/// [`Provider`].
const SQLCIPHER: &str = "4.19.";

/// Maximum time for which the exit of the process waits for running calls of OpenSSL. The longest
/// call, a key derivation, takes 130 ms.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Pointer to bytes that an OpenSSL function reads.
type In = *const u8;
/// Type of the function of [`Provider`] that generates random bytes.
type Random = unsafe extern "C" fn(*mut c_void, *mut c_void, c_int) -> c_int;
/// Type of the function of [`Provider`] that computes an HMAC.
type Hmac = unsafe extern "C" fn(*mut c_void, c_int, In, c_int, In, c_int, In, c_int, *mut u8) -> c_int;
/// Type of the function of [`Provider`] that derives a key from a password.
type Kdf = unsafe extern "C" fn(*mut c_void, c_int, In, c_int, In, c_int, c_int, c_int, *mut u8) -> c_int;
/// Type of the function of [`Provider`] that encrypts or decrypts bytes.
type Cipher = unsafe extern "C" fn(*mut c_void, c_int, In, c_int, In, In, c_int, *mut u8) -> c_int;

/// Beginning of `sqlcipher_provider` (sqlcipher.h), the table of the cryptographic functions that
/// SQLCipher calls. Function pointers that this module does not call have the type `usize`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Provider {
    init: usize,
    shutdown: usize,
    name: unsafe extern "C" fn(*mut c_void) -> *const c_char,
    add_random: usize,
    random: Random,
    hmac: Hmac,
    kdf: Kdf,
    cipher: Cipher,
}

/// SQLCipher's table of OpenSSL functions as it was before `wrap` has replaced them; empty until
/// then.
static OPENSSL: OnceLock<Provider> = OnceLock::new();
/// Number of running calls of the wrapped OpenSSL functions in the lower 16 bits, and the fork
/// generation in the upper 16 bits. A count of an older generation is that of the parent: it is
/// invalid in a forked child.
static RUNNING: AtomicU32 = AtomicU32::new(0);
/// Gate of the threads that call the wrapped OpenSSL functions. A fork shuts it.
pub(super) static CALLS: fork::Gate = fork::Gate::new();
/// Whether OpenSSL is freeing its state or has freed it, because the process exits.
static IS_FREED: AtomicBool = AtomicBool::new(false);

/// Initialises OpenSSL without its exit handler. Call this before SQLCipher initialises OpenSSL.
///
/// Has no effect if the program has initialised the same copy of OpenSSL before.
pub(super) fn init() {
    // SAFETY: may be called at any time, by any thread. NULL selects the default settings. If this
    // fails, SQLCipher's own use of OpenSSL fails as well.
    unsafe { OPENSSL_init_crypto(NO_EXIT_HANDLER, ptr::null()) };
}

/// Wraps the OpenSSL functions that SQLCipher calls. Does nothing for an unknown release of
/// SQLCipher. Call this after SQLCipher was initialised, and before it has encrypted anything.
/// `conn` is any connection.
pub(super) fn wrap(conn: &Connection) {
    let version = conn.query_row("PRAGMA cipher_version", [], |row| row.get::<_, String>(0));
    if !version.is_ok_and(|version| version.starts_with(SQLCIPHER)) || OPENSSL.get().is_some() {
        return;
    }
    // SAFETY: the release of SQLCipher that was checked above declares a provider as here. It lives
    // as long as the process. No other thread calls its functions yet, because only one thread
    // initialises SQLite.
    unsafe {
        let provider = sqlcipher_get_provider();
        if provider.is_null() || CStr::from_ptr(((*provider).name)(ptr::null_mut())) != c"openssl" {
            return;
        }
        if OPENSSL_atexit(wait_for_running_calls) == 0 || OPENSSL.set(*provider).is_err() {
            return;
        }
        (*provider).random = wrapped_random;
        (*provider).hmac = wrapped_hmac;
        (*provider).kdf = wrapped_kdf;
        (*provider).cipher = wrapped_cipher;
    }
}

/// Calls `function`, which calls a function of OpenSSL, with the original function table, and
/// returns its result. Once OpenSSL frees its state, returns `SQLITE_ERROR` without calling
/// `function`.
fn call(function: impl FnOnce(&Provider) -> c_int) -> c_int {
    let _inside = CALLS.enter();
    count(&RUNNING, |calls| calls + 1);
    let code = match OPENSSL.get() {
        Some(openssl) if !IS_FREED.load(Ordering::SeqCst) => function(openssl),
        _ => ffi::SQLITE_ERROR,
    };
    count(&RUNNING, |calls| calls.saturating_sub(1));
    code
}

/// Applies `change` to the number of running calls in `running`, which is encoded like [`RUNNING`].
/// Returns the new number.
fn count(running: &AtomicU32, change: impl Fn(u32) -> u32) -> u32 {
    let generation = fork::generation() << 16;
    let new = |old: u32| match old ^ generation {
        calls if calls >> 16 == 0 => generation | change(calls),
        _ => generation | change(0),
    };
    let mut old = running.load(Ordering::SeqCst);
    while let Err(other) = running.compare_exchange_weak(old, new(old), Ordering::SeqCst, Ordering::SeqCst) {
        old = other;
    }
    new(old) & 0xffff
}

/// Exit handler of OpenSSL, which OpenSSL calls before it frees its state: makes later calls of the
/// wrapped functions fail, and waits for running ones, at most for [`MAX_WAIT`].
extern "C" fn wait_for_running_calls() {
    IS_FREED.store(true, Ordering::SeqCst);
    let begin = Instant::now();
    while count(&RUNNING, |calls| calls) > 0 && begin.elapsed() < MAX_WAIT {
        std::thread::sleep(Duration::from_micros(50));
    }
}

unsafe extern "C" fn wrapped_random(ctx: *mut c_void, buffer: *mut c_void, length: c_int) -> c_int {
    // SAFETY: SQLCipher calls this like the function that it wraps, which gets the same arguments.
    call(|f| unsafe { (f.random)(ctx, buffer, length) })
}

unsafe extern "C" fn wrapped_hmac(
    ctx: *mut c_void,
    algorithm: c_int,
    key: In,
    key_len: c_int,
    first: In,
    first_len: c_int,
    second: In,
    second_len: c_int,
    out: *mut u8,
) -> c_int {
    // SAFETY: SQLCipher calls this like the function that it wraps, which gets the same arguments.
    call(|f| unsafe { (f.hmac)(ctx, algorithm, key, key_len, first, first_len, second, second_len, out) })
}

unsafe extern "C" fn wrapped_kdf(
    ctx: *mut c_void,
    algorithm: c_int,
    password: In,
    password_len: c_int,
    salt: In,
    salt_len: c_int,
    rounds: c_int,
    key_len: c_int,
    key: *mut u8,
) -> c_int {
    // SAFETY: SQLCipher calls this like the function that it wraps, which gets the same arguments.
    call(|f| unsafe { (f.kdf)(ctx, algorithm, password, password_len, salt, salt_len, rounds, key_len, key) })
}

unsafe extern "C" fn wrapped_cipher(
    ctx: *mut c_void,
    mode: c_int,
    key: In,
    key_len: c_int,
    iv: In,
    bytes: In,
    len: c_int,
    out: *mut u8,
) -> c_int {
    // SAFETY: SQLCipher calls this like the function that it wraps, which gets the same arguments.
    call(|f| unsafe { (f.cipher)(ctx, mode, key, key_len, iv, bytes, len, out) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_linked_sqlcipher_are_wrapped() {
        crate::backend::file::os::set_up().unwrap();
        // SAFETY: SQLCipher is initialised, so its provider exists, and does not change any more.
        let now = unsafe { *sqlcipher_get_provider() };
        let wrapped: [usize; 4] = [
            wrapped_random as Random as usize,
            wrapped_hmac as Hmac as usize,
            wrapped_kdf as Kdf as usize,
            wrapped_cipher as Cipher as usize,
        ];
        let found = [now.random as usize, now.hmac as usize, now.kdf as usize, now.cipher as usize];
        assert_eq!(found, wrapped, "compare SQLCipher's struct sqlcipher_provider, then change SQLCIPHER");
    }

    /// Fills a buffer as SQLCipher does for each page.
    fn random() -> bool {
        let mut bytes = [0_u8; 64];
        // SAFETY: SQLCipher is initialised, and the buffer has this length.
        unsafe { ((*sqlcipher_get_provider()).random)(ptr::null_mut(), bytes.as_mut_ptr().cast(), 64) == 0 }
    }

    #[cfg(unix)]
    #[test]
    fn forked_child_inherits_no_lock_of_running_calls() {
        crate::backend::file::os::set_up().unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) && random() {
                        std::hint::spin_loop();
                    }
                });
            }
            let failed = (0..300).find(|_| {
                // SAFETY: the child calls only `alarm`, `random` and `_exit`.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: as above. The alarm ends a child that waits forever.
                    unsafe {
                        libc::alarm(10);
                        libc::_exit(c_int::from(!random()));
                    }
                }
                let mut status = 0;
                // SAFETY: the status may be written.
                unsafe { libc::waitpid(child, &raw mut status, 0) != child || status != 0 }
            });
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(failed, None, "a child of this fork has failed or waited forever");
        });
    }

    #[test]
    fn forked_child_counts_no_calls_of_its_parent() {
        let running = AtomicU32::new(0);
        assert_eq!(count(&running, |calls| calls + 3), 3);
        let of_parent = running.load(Ordering::SeqCst) ^ (1 << 16);
        running.store(of_parent, Ordering::SeqCst);
        assert_eq!(count(&running, |calls| calls), 0);
    }
}

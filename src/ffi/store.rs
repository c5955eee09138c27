//! Stores: opening, closing, errors and clocks.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::args::{Outcome, output};
use super::call::{CallState, call, call_close, call_without_handle, silence_guarded_panics};
use super::codes::KVSTORE_OK;
use super::errmsg::{Part, thread_hint, thread_text};
use super::handle::{self, NotOpen, StoreHandle};
use super::hazard;
use super::hint::KVSTORE_HINT_NONE;
use super::types::{KVColumnFamily, KVStore, KVStoreConfig, journal_mode};
use crate::{Config, Store, path_of};

/// Opens the store at `path` with the default configuration, and creates it if it does not exist.
///
/// @param path File name, or URL of a store on a server; NULL, "" or ":memory:" for a new store in
///   memory. See kvstore_open_v2.
/// @param ppKV Receives the handle, or NULL after a failure. Close it with kvstore_close.
/// @param journalMode KVSTORE_JOURNAL_WAL (also 0) or KVSTORE_JOURNAL_DELETE.
///
/// Behaviour and errors are those of kvstore_open_v2.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_open(
    path: *const c_char,
    ppKV: *mut *mut KVStore,
    journalMode: c_int,
) -> c_int {
    // SAFETY: the caller's promise is the same.
    unsafe { open(path, ppKV, || Ok(Config::new().journal_mode(journal_mode(journalMode)?))) }
}

/// Opens the store at `path`, and creates it if it does not exist.
///
/// @param path File name, on Windows in UTF-8; NULL, "" or ":memory:" for a new store in memory. In
///   a build with support for servers (kvstore_version ends in "+remote") also a URL such as
///   "postgresql://user:password@host:port/database?schema=app": the store is a schema of a
///   PostgreSQL server, and is created there. See docs/how-to/postgresql.md.
/// @param ppKV Receives the handle, or NULL after a failure. Close it with kvstore_close.
/// @param config Configuration, read during the call only; NULL for the default one.
///
/// After a failure kvstore_errmsg(NULL) returns the text. A failed open leaves no new file behind,
/// with one exception: an empty store remains if the failure comes after its creation, such as a
/// lack of file descriptors for the -wal. On systems with open file description locks (Linux), a
/// read-only handle leaves no new file either.
///
/// If the file of an open store is deleted, moved or replaced, calls on its handles fail with
/// KVSTORE_IOERR within some milliseconds, because nothing written there could be found again.
/// Renaming the directory is allowed in WAL mode, but kvstore_backup and kvstore_cleaner_start need the
/// original path.
///
/// Errors: those of the first list for a file, those of the second for a URL.
///
/// For a file:
/// - KVSTORE_ERROR: ppKV is NULL, a setting is out of bounds, or the path begins with another
///   scheme, such as "file:" or "redis://".
/// - KVSTORE_CANTOPEN: the directory does not exist; no permission; the path is a directory or a
///   special file; the file is missing or empty and readOnly is set; the file format is newer; the
///   file has several hard links, each of which would have its own WAL; or a -wal file next to it
///   belongs to a deleted file of the same name that another process still has open.
/// - KVSTORE_NOTADB: the file is not a store. It is left unchanged.
/// - KVSTORE_AUTH_FAILED: the store is encrypted, or the file consists of random bytes. It is left
///   unchanged.
/// - KVSTORE_BUSY: another handle has the store open exclusively or in the other journal mode, or
///   other processes write without a pause in DELETE mode.
/// - KVSTORE_READONLY: this process may not write the file, its -wal or its -shm. The text names
///   the file.
/// - KVSTORE_CORRUPT, KVSTORE_IOERR, KVSTORE_FULL, KVSTORE_NOMEM, KVSTORE_PROTOCOL.
///
/// For a URL:
/// - KVSTORE_ERROR: the URL is malformed.
/// - KVSTORE_CANTOPEN: this build does not support servers; no server is reached, or none answers
///   within connect_timeout of the URL and then busyTimeout; the database does not exist; TLS as
///   required by sslmode is not available; the role may not use or create the schema; or the store
///   has a newer version.
/// - KVSTORE_AUTH_FAILED: the server refused the login.
/// - KVSTORE_BUSY: the server accepts no connection now, because it is starting or has too many.
/// - KVSTORE_READONLY: none of the servers accepts writes now.
/// - KVSTORE_NOTADB: the schema is not a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_open_v2(
    path: *const c_char,
    ppKV: *mut *mut KVStore,
    config: *const KVStoreConfig,
) -> c_int {
    // SAFETY: `config` is NULL or valid.
    let config = unsafe { config.as_ref() }.copied();
    // SAFETY: the caller's promise is the same.
    unsafe { open(path, ppKV, || config.map_or_else(|| Ok(Config::new()), KVStoreConfig::to_config)) }
}

unsafe fn open(
    path: *const c_char,
    result: *mut *mut KVStore,
    config: impl FnOnce() -> Outcome<Config>,
) -> c_int {
    silence_guarded_panics();
    hazard::prepare();
    call_without_handle(|| {
        // SAFETY: NULL or valid, as documented.
        let result = unsafe { output(result, "ppKV")? };
        result.set(std::ptr::null_mut());
        let config = config()?;
        // SAFETY: NULL or a NUL-terminated string, as documented.
        let path = if path.is_null() { c"" } else { unsafe { CStr::from_ptr(path) } };
        let store = match path.to_bytes() {
            b"" | b":memory:" => Store::open_in_memory(&config)?,
            path => Store::open_with(path_of(path)?, &config)?,
        };
        result.set(handle_of(store));
        Ok(KVSTORE_OK)
    })
}

/// Creates the C handle (`KVStore *`) for an open store.
pub(super) fn handle_of(store: Store) -> *mut KVStore {
    handle::open(StoreHandle { store, call_state: CallState::new() })
}

/// Closes a store: rolls back an open transaction and closes the file.
///
/// @param kv Handle; NULL is allowed.
///
/// Families, iterators and batches of the store that are still open return KVSTORE_MISUSE from then
/// on, and must still be closed. So does every further call with the handle, including a second
/// close.
///
/// Threads: the call waits for a call of another thread that is using the connection. A purge,
/// sweep, vacuum, checkpoint or backup of another thread stops at its next step and returns
/// KVSTORE_MISUSE. So do calls that were waiting for the connection.
///
/// Errors: KVSTORE_MISUSE (the handle is already closed or was opened before a fork; or the caller
/// is the clock of this store, or a callback that gets a value, and the store then stays open; a
/// progress callback may close the store, which ends its call with KVSTORE_MISUSE); otherwise the
/// code of what failed while closing: the handle is closed nevertheless. kvstore_errmsg(NULL)
/// returns the text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_close(kv: *mut KVStore) -> c_int {
    // SAFETY: NULL or a handle, as documented.
    unsafe {
        // A callback may not close the store that calls it: asked before the handle is marked.
        if let Ok(open) = handle::enter(kv)
            && let Err(e) = open.store.check_no_callback()
        {
            return call_without_handle(|| Err(e.into()));
        }
        call_close(kv, |kv| {
            let closed = kv.store.close();
            // Those of this store keep what is left of it.
            handle::free_closed::<KVColumnFamily>();
            closed?;
            Ok(KVSTORE_OK)
        })
    }
}

/// Returns the text of the last call that failed on a handle, its families or its iterators: what
/// failed, then what to do about it.
///
/// @param kv Handle. NULL asks for the last call of this thread that failed without a usable
///   handle: kvstore_open, or a call whose handle was NULL, closed, or in use by the call that ran
///   the callback.
///
/// The result is never NULL. It is "no error" if no call failed, and "no such key" or "no key has a
/// TTL" after KVSTORE_NOTFOUND for a key.
///
/// Memory: the string belongs to the library and is valid until the next failing call on the handle
/// in the thread that requested it. Calls of other threads do not change it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_errmsg(kv: *mut KVStore) -> *const c_char {
    // SAFETY: NULL or a handle, as documented.
    unsafe { error_text(kv, Part::Whole) }
}

/// Returns what failed in the last failing call, without the advice that kvstore_errmsg appends.
/// Bindings use it and give the advice in the words of their own language.
///
/// @param kv As for kvstore_errmsg; so are the result and its memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_errreason(kv: *mut KVStore) -> *const c_char {
    // SAFETY: NULL or a handle, as documented.
    unsafe { error_text(kv, Part::Reason) }
}

/// Returns the advice for the last failing call on a handle, as a KVSTORE_HINT_* number.
///
/// @param kv As for kvstore_errmsg.
///
/// The result is KVSTORE_HINT_NONE if no call failed, or if the library has no advice. Later
/// versions may return further numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_errhint(kv: *mut KVStore) -> c_int {
    // SAFETY: NULL or a handle, as documented.
    match unsafe { handle::enter(kv) } {
        Ok(kv) => kv.call_state.error_hint(),
        Err(NotOpen::Null) => thread_hint(),
        Err(NotOpen::Closed | NotOpen::InUse) => KVSTORE_HINT_NONE,
    }
}

/// Returns one part of the text of the last error: that of the store, or of the calling thread if
/// `kv` is NULL. For a closed handle, returns "the store is closed".
///
/// # Safety
/// `kv` is NULL or came from `handle::open`.
unsafe fn error_text(kv: *mut KVStore, part: Part) -> *const c_char {
    // SAFETY: passed on.
    match unsafe { handle::enter(kv) } {
        Ok(kv) => kv.call_state.error_text(part),
        Err(NotOpen::Null) => thread_text(part),
        Err(NotOpen::Closed | NotOpen::InUse) => c"the store is closed".as_ptr(),
    }
}

/// Returns the current time of a store, from which remaining TTLs are computed.
///
/// @param pMs Receives the time, in milliseconds since the Unix epoch.
///
/// For a store in a file this is the time of the clock set with kvstore_set_clock, or of the system
/// clock (kvstore_now_ms). For a store on a server it is the server's time: the time of the last
/// answer, advanced by the monotonic clock of this machine. The call asks the server if the last
/// answer is older than a minute, or if the machine was suspended since then. Use this function for
/// times that several machines compare.
///
/// Errors: KVSTORE_ERROR (`kv` or `pMs` is NULL), KVSTORE_MISUSE. If the server must be asked, also
/// KVSTORE_IOERR (it cannot be reached, or the open transaction was lost with its connection),
/// KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_time_ms(kv: *mut KVStore, pMs: *mut i64) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            let time = output(pMs, "pMs")?;
            kv.store.session().check_open()?;
            kv.store.session().freshen_clock()?;
            time.set(kv.store.now_ms());
            Ok(KVSTORE_OK)
        })
    }
}

/// Replaces the system clock of this handle by a function, for tests and for devices without a
/// clock.
///
/// @param now_ms Function that returns the time in milliseconds since the Unix epoch; NULL restores
///   the system clock. Any thread that uses the handle may call it. It must not call this store. A
///   result smaller than an earlier one counts as the earlier one.
/// @param context Passed to `now_ms`. It must remain valid until the clock is replaced or the store
///   is closed; both wait for threads inside the old clock.
///
/// Errors: KVSTORE_ERROR (`kv` is NULL, or the store is on a server, whose clock applies to all
/// clients), KVSTORE_MISUSE (also for a call from inside the clock).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_set_clock(
    kv: *mut KVStore,
    now_ms: Option<unsafe extern "C" fn(context: *mut c_void) -> i64>,
    context: *mut c_void,
) -> c_int {
    struct Context(*mut c_void);
    // SAFETY: the caller promises that the clock may be read from any thread.
    unsafe impl Send for Context {}
    // SAFETY: likewise.
    unsafe impl Sync for Context {}
    impl Context {
        fn pointer(&self) -> *mut c_void {
            self.0
        }
    }
    let context = Context(context);
    // SAFETY: NULL or a handle, as documented.
    unsafe {
        call(kv, |kv| {
            kv.store.check_no_callback()?;
            kv.store.check_own_clock()?;
            match now_ms {
                // SAFETY: the caller's function, with the caller's context.
                Some(now_ms) => kv.store.set_clock(move || now_ms(context.pointer())),
                None => kv.store.use_system_clock(),
            }
            Ok(KVSTORE_OK)
        })
    }
}

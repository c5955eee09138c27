//! Opening and closing.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::args::{Outcome, output};
use super::call::{Session, call, call_close, call_without_handle, silence_guarded_panics};
use super::codes::KVSTORE_OK;
use super::errmsg::thread_error;
use super::handle::{self, NotOpen, StoreHandle};
use super::types::{KVColumnFamily, KVStore, KVStoreConfig, journal_mode};
use super::under_way;
use crate::{Config, Store, path_of};

/// Opens the store at `path` with the default configuration; makes it if it is not there.
///
/// `path` is a file name, or the URL of a store on a server, such as
/// "postgresql://user@host/database?schema=app" (docs/how-to/postgresql.md); NULL, "" or ":memory:" is a new
/// store in memory. `journalMode` is KVSTORE_JOURNAL_WAL (also 0) or KVSTORE_JOURNAL_DELETE.
/// Otherwise as kvstore_open_v2.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_open(
    path: *const c_char,
    ppKV: *mut *mut KVStore,
    journalMode: c_int,
) -> c_int {
    // SAFETY: the caller's promise is the same.
    unsafe { open(path, ppKV, || Ok(Config::new().journal_mode(journal_mode(journalMode)?))) }
}

/// Opens the store at `path` with a configuration (NULL: the default one); makes it if it is not
/// there.
///
/// `path` is a file name; NULL, "" or ":memory:" is a new store in memory. In a build with servers (kvstore_version ends in
/// "+remote") it may be a URL, "postgresql://user:password@host:port/database?schema=app": a store in a schema of a PostgreSQL
/// server, which is made there (docs/how-to/postgresql.md has the parameters, and what differs). On success `*ppKV` is the
/// handle, to be closed with kvstore_close; on failure it is NULL, and kvstore_errmsg(NULL) has the
/// text. `config` is only read during the call.
///
/// If the file is deleted, moved or replaced while it is open, calls on the handle answer KVSTORE_IOERR within some
/// milliseconds, as nobody would see what is written; renaming its directory does not matter,
/// but kvstore_backup and kvstore_cleaner_start need the path.
///
/// If it fails, no file is left that was not there before, but for a whole store without keys if what fails comes after
/// it was made (there are no descriptors for its -wal). Nor does a read-only handle leave one (on systems with locks of
/// open files: Linux).
///
/// Errors: KVSTORE_CANTOPEN (no such directory, no permission, a directory or other special file, a
/// missing or empty file with readOnly, a newer file format; a file with several names (hard links), each of
/// which would have a log of its own; a log beside it that belongs to a deleted file of its name, which somebody
/// still has open); KVSTORE_NOTADB (not a store: the file is left as it is); KVSTORE_AUTH_FAILED
/// (an encrypted store, or bytes without any order: the file is left as it is); KVSTORE_BUSY (another handle has it open
/// exclusively, or in the other journal mode; others write without a pause in DELETE mode); KVSTORE_READONLY (this
/// process may not write the file, or its -wal or -shm, which may belong to another user: the text names them);
/// KVSTORE_CORRUPT; KVSTORE_IOERR; KVSTORE_FULL; KVSTORE_NOMEM; KVSTORE_ERROR (ppKV is NULL, a setting is out of
/// bounds). Of a URL: KVSTORE_ERROR (it is not well-formed); KVSTORE_CANTOPEN (this build has no servers; none is reached,
/// or answers, within the URL's connect_timeout, and then busyTimeout; there is no such database; no TLS as sslmode wants
/// it; the role may not use or make the schema; the store is of a newer version); KVSTORE_AUTH_FAILED (the log-in);
/// KVSTORE_BUSY (the server takes no connection now: it starts, or has too many); KVSTORE_READONLY (none of the servers can
/// write now); KVSTORE_NOTADB.
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
    under_way::prepare();
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

/// A new handle of a store.
pub(super) fn handle_of(store: Store) -> *mut KVStore {
    handle::open(StoreHandle { store, session: Session::new() })
}

/// Closes a store: rolls back an open transaction, and closes the file. Families and iterators of it
/// that are still open answer KVSTORE_MISUSE from now on, and must still be closed. NULL is allowed.
/// Other threads may be in calls: the one that has the connection is waited for; a long one (a purge, sweep,
/// vacuum, checkpoint or backup) stops at its next step, with KVSTORE_MISUSE.
/// A second close, and any other call with the closed handle, answers KVSTORE_MISUSE.
///
/// Errors: KVSTORE_MISUSE (closed already, or opened before a fork; called by a callback of this store,
/// which then stays open); what failed while closing, after which the handle is closed all the same. The
/// text is in kvstore_errmsg(NULL).
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

/// The text of the last call that did not answer KVSTORE_OK on this handle, its families and its iterators;
/// with NULL, of this thread's last call that failed without a usable handle: kvstore_open, or a call with one
/// that is NULL, closed, or in use by the call whose callback this is. Never NULL: "no error" where nothing
/// failed. After KVSTORE_NOTFOUND it is "no such key", "no such family" or "no key has a TTL". Valid until the
/// next call on the handle that fails, in the thread that has asked for it: what other threads do leaves it as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_errmsg(kv: *mut KVStore) -> *const c_char {
    // SAFETY: NULL or a handle, as documented.
    match unsafe { handle::enter(kv) } {
        Ok(kv) => kv.session.error_text(),
        Err(NotOpen::Null) => thread_error(),
        Err(NotOpen::Closed | NotOpen::InUse) => c"the store is closed".as_ptr(),
    }
}

/// Says in `*pMs` the time by which this store shows what is left of a TTL: that of the clock it was given, or else of the
/// system's (kvstore_now_ms). On a server it is the server's, as its newest answer had it, and gone on since then with this
/// machine's monotonic clock; the server is asked if that is more than a minute ago, or the machine was suspended since, and
/// where it cannot be, no time is told. Times that several machines compare come from here.
///
/// Errors: KVSTORE_MISUSE; KVSTORE_ERROR (kv or pMs is NULL); where the server is to be asked, also KVSTORE_IOERR (it cannot be
/// reached, or the open transaction was lost with its connection), KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_time_ms(kv: *mut KVStore, pMs: *mut i64) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            let time = output(pMs, "pMs")?;
            kv.store.shared().check_open()?;
            kv.store.shared().freshen_clock()?;
            time.set(kv.store.now_ms());
            Ok(KVSTORE_OK)
        })
    }
}

/// Uses `now_ms(context)` instead of the system's clock for this handle, for tests and for devices
/// without a clock; NULL goes back to the system's. It returns milliseconds since the Unix epoch, is
/// called from whatever thread uses the handle, and must not call this store. A time before one it
/// has returned counts as that one. `context` must stay valid until the clock is replaced or the
/// store is closed: both wait for threads that are inside the old clock.
///
/// Errors: KVSTORE_MISUSE (also for a call from inside the clock), KVSTORE_ERROR (kv is NULL, or the store is on a
/// server, whose clock decides for all).
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

//! Statistics, checks, syncs, checkpoints, vacuum.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::Ordering::Relaxed;

use super::args::{bad_argument, c_length, malloc_copy, optional_output, output};
use super::call::{argument, call};
use super::codes::{
    KVSTORE_CHECKPOINT_FULL, KVSTORE_CHECKPOINT_PASSIVE, KVSTORE_CHECKPOINT_RESTART,
    KVSTORE_CHECKPOINT_TRUNCATE, KVSTORE_OK,
};
use super::conditional::give_count;
use super::types::{KVStore, KVStoreStats};
use crate::{CheckpointMode, ErrorKind, path_of};

/// Fills `*pStats` with what this handle has done.
///
/// Errors: KVSTORE_ERROR (a NULL pointer), KVSTORE_BUSY, KVSTORE_IOERR, KVSTORE_MISUSE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_stats(kv: *mut KVStore, pStats: *mut KVStoreStats) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            let stats = output(pStats, "pStats")?;
            stats.set(KVStoreStats::of(kv.store.stats()?, kv.session.bad_calls.load(Relaxed) as u64));
            Ok(KVSTORE_OK)
        })
    }
}

/// Sets the counters of this handle to zero.
///
/// Errors: KVSTORE_ERROR (kv is NULL), KVSTORE_MISUSE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_stats_reset(kv: *mut KVStore) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            kv.store.reset_stats()?;
            kv.session.bad_calls.store(0, Relaxed);
            Ok(KVSTORE_OK)
        })
    }
}

/// Checks the whole file: SQLite's own check, also for pages in no use (which SQLite passes over in some stores), that
/// nothing foreign is in it, that the tables and the catalogue are as they are made, and that the tables of every family
/// agree. Reads everything, on one snapshot.
///
/// `*pzMessage` (may be NULL) is NULL when all is well; with KVSTORE_CORRUPT it names the first
/// disagreement, and is to be freed with kvstore_free.
///
/// Errors: KVSTORE_CORRUPT; KVSTORE_BUSY (only in DELETE journal mode), KVSTORE_IOERR, KVSTORE_NOMEM,
/// KVSTORE_MISUSE, KVSTORE_ERROR (kv is NULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_integrity_check(kv: *mut KVStore, pzMessage: *mut *mut c_char) -> c_int {
    // SAFETY: NULL or valid, as documented.
    let mut message = unsafe { optional_output(pzMessage) };
    if let Some(message) = &mut message {
        message.set(std::ptr::null_mut());
    }
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            let checked = kv.store.integrity_check();
            if let (Err(e), Some(message)) = (&checked, message)
                && e.kind() == ErrorKind::Corrupt
            {
                message.set(malloc_copy(e.to_string().as_bytes()).cast());
            }
            checked?;
            Ok(KVSTORE_OK)
        })
    }
}

/// Makes the indexes by key, expiry and write time, the large values, the views and the catalogue agree with the
/// data rows again, in one transaction. `*pFixed` (may be NULL) is how many rows, entries and tables were added,
/// removed or changed. Afterwards kvstore_integrity_check answers KVSTORE_OK.
///
/// Every row that could be read is kept, with the value and the TTL it had. A row that could not be read is made
/// whole if something in the file still says what it was; a row whose value is lost, or of which nobody knows how
/// long it may be shown, is removed: no value is invented. So is one whose key is longer than 65536 bytes, which no
/// call takes. Families that the catalogue has lost are entered again, without their default TTL, and settings in it
/// that cannot be get their defaults. Tables in the way that are not as the store makes them, and have something in
/// them, get a name that begins with "lost:".
///
/// A file whose catalogue of families is gone, or has no default family, is refused by kvstore_open with
/// KVSTORE_CORRUPT: the command "kvstore repair" opens it all the same, and names whatever it cannot keep.
///
/// Reads everything, which takes about twice as long as kvstore_integrity_check; on a store without damage it
/// writes nothing. Others can read meanwhile, but not write.
///
/// Errors: KVSTORE_CORRUPT (SQLite's own check fails, or something is left that a repair does not know),
/// KVSTORE_BUSY (a transaction is open on this handle; another handle is writing), KVSTORE_READONLY, KVSTORE_FULL,
/// KVSTORE_IOERR, KVSTORE_NOMEM, KVSTORE_MISUSE, KVSTORE_ERROR (kv is NULL). Nothing is changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_repair(kv: *mut KVStore, pFixed: *mut i64) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            give_count(pFixed, kv.store.repair()?);
            Ok(KVSTORE_OK)
        })
    }
}

/// Makes every commit so far survive a power cut. Never commits or ends an open transaction. Syncs the files that
/// are open, wherever they are by now, and their directory.
///
/// Errors: KVSTORE_IOERR, also if the directory may not be read; KVSTORE_MISUSE, KVSTORE_ERROR (kv is NULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_sync(kv: *mut KVStore) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            kv.store.sync()?;
            Ok(KVSTORE_OK)
        })
    }
}

/// Gives free pages back to the file system: at most `nPage`, or all with 0. In WAL mode the file
/// shrinks at the next checkpoint.
///
/// Errors: KVSTORE_ERROR (nPage is negative, kv is NULL); otherwise as kvstore_put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_incremental_vacuum(kv: *mut KVStore, nPage: c_int) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            let pages = match u32::try_from(nPage) {
                Ok(0) => None,
                Ok(pages) => Some(pages),
                Err(_) => {
                    return bad_argument(&format!(
                        "{nPage} pages: pass how many to free at most, or 0 for all"
                    ));
                }
            };
            kv.store.incremental_vacuum(pages)?;
            Ok(KVSTORE_OK)
        })
    }
}

/// Writes the WAL into the database file. `mode` is one of KVSTORE_CHECKPOINT_*. `*pnLog` is the number
/// of frames in the WAL, `*pnCkpt` how many of them are in the file now; both may be NULL, and are 0
/// when not in WAL mode. After TRUNCATE the WAL has 0 bytes.
///
/// Errors: KVSTORE_BUSY (a transaction is open on this handle; other handles stand in the way, except
/// for PASSIVE), KVSTORE_ERROR (an unknown mode, kv is NULL), KVSTORE_IOERR, KVSTORE_FULL,
/// KVSTORE_READONLY, KVSTORE_MISUSE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_checkpoint(
    kv: *mut KVStore,
    mode: c_int,
    pnLog: *mut c_int,
    pnCkpt: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            let mode = match mode {
                KVSTORE_CHECKPOINT_PASSIVE => CheckpointMode::Passive,
                KVSTORE_CHECKPOINT_FULL => CheckpointMode::Full,
                KVSTORE_CHECKPOINT_RESTART => CheckpointMode::Restart,
                KVSTORE_CHECKPOINT_TRUNCATE => CheckpointMode::Truncate,
                other => {
                    return bad_argument(&format!(
                        "checkpoint mode {other}: pass one of KVSTORE_CHECKPOINT_*"
                    ));
                }
            };
            let (log, done) = kv.store.checkpoint(mode)?;
            for (output, frames) in [(pnLog, log), (pnCkpt, done)] {
                if let Some(output) = optional_output(output) {
                    output.set(c_length(frames as usize));
                }
            }
            Ok(KVSTORE_OK)
        })
    }
}

/// Copies everything that is committed to a new file, with all TTLs, while others go on reading and
/// writing; the copy is the state of one moment. `path` must not exist; it appears when the copy is whole
/// and synced. `progress` (may be NULL) is called now and then with `context` and the pages that remain and
/// their total; what it returns, if not 0, stops the backup.
///
/// Errors: KVSTORE_ERROR (path is NULL, exists, or is no name of a file: "", ":memory:", "file:...", a directory's;
/// a log of another store is beside it; it is the name that the -wal, -shm or -journal of a file there has; stopped
/// by progress: no file is left), KVSTORE_CANTOPEN, KVSTORE_FULL, KVSTORE_IOERR (also if the store is no longer at the path it
/// was opened by), KVSTORE_NOMEM, KVSTORE_CORRUPT, KVSTORE_MISUSE (the store is closed, also meanwhile: no file is left); KVSTORE_BUSY for a store in memory or an
/// exclusive one while a transaction is open on this handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_backup(
    kv: *mut KVStore,
    path: *const c_char,
    progress: Option<unsafe extern "C" fn(context: *mut c_void, remaining: c_int, total: c_int) -> c_int>,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            if path.is_null() {
                return bad_argument("the backup's path is NULL");
            }
            let path = path_of(CStr::from_ptr(path).to_bytes())?;
            kv.store.backup(path, |remaining, total| match progress {
                Some(progress) => {
                    progress(context, c_length(remaining as usize), c_length(total as usize)) == 0
                }
                None => true,
            })?;
            Ok(KVSTORE_OK)
        })
    }
}

/// Copies all live keys of all families of `from` into `to`, with their TTLs and write times, and the families'
/// settings: the state of one moment, in one transaction of `to`. After a failure, or if the process dies, nothing was
/// copied, and it may be run again. Others go on reading and writing `from` meanwhile; `to` takes no other writes.
///
/// Families that `to` does not have are made. One that it has must have no live key; it gets the default TTL of the
/// one in `from`, and tracks write times if that one does. The limit of `from` (kvstore_set_limit) is copied if `to`
/// has none and no key at all; if it would remove what was copied, as with other pages, the copy is KVSTORE_FULL. The WAL of `to` grows as long as what is copied.
///
/// `progress` (may be NULL) is called now and then with `context`, the keys that were copied and their total, which
/// may not be reached if keys expire meanwhile; what it returns, if not 0, stops the copy. It may use both stores
/// (writes to `to` find it busy), but not one in memory or an exclusive one: a transaction of the copy's is open on its
/// handle.
///
/// Errors: KVSTORE_ERROR (a NULL handle; a family of `to` has live keys; `from` and `to` are the same store; a value is
/// longer than `to` takes; stopped by progress), KVSTORE_BUSY (others write to `to`; a transaction is open on `to`, or
/// on `from` if that is in memory or exclusive), KVSTORE_READONLY (`to`), KVSTORE_FULL (also if it does not fit into
/// the limit of `to`), KVSTORE_CANTOPEN, KVSTORE_IOERR (also if one of the stores is no longer at the path it was
/// opened by), KVSTORE_NOMEM, KVSTORE_CORRUPT, KVSTORE_MISUSE (one of the stores is closed, also meanwhile; or
/// progress has ended the copy's transaction). Nothing was copied then. The text is that of `from`:
/// kvstore_errmsg(from).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_copy(
    from: *mut KVStore,
    to: *mut KVStore,
    progress: Option<unsafe extern "C" fn(context: *mut c_void, done: i64, total: i64) -> c_int>,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(from, |from| {
            let to = argument(to)?;
            let count = |keys: u64| i64::try_from(keys).unwrap_or(i64::MAX);
            from.store.copy_to(&to.store, |done, total| match progress {
                Some(progress) => progress(context, count(done), count(total)) == 0,
                None => true,
            })?;
            Ok(KVSTORE_OK)
        })
    }
}

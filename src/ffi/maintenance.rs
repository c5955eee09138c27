//! Statistics, checks, repair, checkpoints, backup and copy.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::Ordering::Relaxed;

use super::args::{bad_argument, c_length, malloc_copy, optional_output, output};
use super::call::{argument, call};
use super::codes::{
    KVSTORE_CHECKPOINT_FULL, KVSTORE_CHECKPOINT_PASSIVE, KVSTORE_CHECKPOINT_RESTART,
    KVSTORE_CHECKPOINT_TRUNCATE, KVSTORE_OK,
};
use super::conditional::give_count;
use super::errmsg::text_for_c;
use super::types::{KVStore, KVStoreStats};
use crate::{CheckpointMode, ErrorKind, path_of};

/// Returns the counters of a store handle, such as the numbers of gets and puts.
///
/// @param pStats Receives the counters.
///
/// Errors: KVSTORE_ERROR (a pointer is NULL), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
/// KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_stats(kv: *mut KVStore, pStats: *mut KVStoreStats) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            let stats = output(pStats, "pStats")?;
            stats.set(KVStoreStats::of(kv.store.stats()?, kv.call_state.bad_calls.load(Relaxed) as u64));
            Ok(KVSTORE_OK)
        })
    }
}

/// Sets the counters of a store handle to zero. Fields of KVStoreStats marked "current" are not
/// affected.
///
/// Errors: KVSTORE_ERROR (`kv` is NULL), KVSTORE_MISUSE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_stats_reset(kv: *mut KVStore) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            kv.store.reset_stats()?;
            kv.call_state.bad_calls.store(0, Relaxed);
            Ok(KVSTORE_OK)
        })
    }
}

/// Checks the whole store for damage and inconsistencies, in one snapshot. It reads every page of
/// the file.
///
/// @param pzMessage Receives a description of the first inconsistency after KVSTORE_CORRUPT, to be
///   freed with kvstore_free; otherwise NULL. May be NULL.
///
/// It runs the integrity check of SQLite, then checks pages not in use, foreign objects, the
/// schema, the catalogue of families, and the consistency of the tables of every family.
///
/// Errors: KVSTORE_CORRUPT (an inconsistency was found), KVSTORE_ERROR (`kv` is NULL), or a read
/// code (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT,
/// KVSTORE_PROTOCOL, KVSTORE_MISUSE).
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
                message.set(malloc_copy(text_for_c(e).as_bytes()).cast());
            }
            checked?;
            Ok(KVSTORE_OK)
        })
    }
}

/// Rebuilds everything that can be derived from the data rows, in one transaction. Afterwards
/// kvstore_integrity_check succeeds.
///
/// @param pFixed Receives the number of rows, index entries and tables that were added, removed or
///   changed. May be NULL.
///
/// Effect on the data:
/// - Every readable row is kept with its value and expiry time. An unreadable row is restored if
///   the file still holds what it contained.
/// - A row whose value or expiry time is lost is removed, and so is a row whose key is longer than
///   65536 bytes. No value is invented.
/// - Families missing from the catalogue are entered again, without their default TTL. Invalid
///   settings get their defaults.
/// - Tables that do not match the schema and contain data are renamed; their new names begin with
///   "lost:".
///
/// kvstore_open refuses a file without a catalogue, or without a default family, with
/// KVSTORE_CORRUPT. The command "kvstore repair" opens such a file and lists what it cannot keep.
///
/// The call reads everything, in about twice the time of kvstore_integrity_check, and writes
/// nothing if the store is undamaged. Other connections can read meanwhile, but not write.
///
/// Rebuilt are the indexes by key, expiry time and write time, large values, views and the
/// catalogue of families.
///
/// Errors: KVSTORE_CORRUPT (the integrity check of SQLite fails, or the damage is of a kind that a
/// repair does not cover), KVSTORE_BUSY (a transaction is open on this handle, or another handle is
/// writing), KVSTORE_ERROR (`kv` is NULL), or a write code (KVSTORE_BUSY, KVSTORE_LOCKED,
/// KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL,
/// KVSTORE_MISUSE, KVSTORE_FULL). Nothing is changed then.
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

/// Syncs the files of the store, so that all earlier commits survive a power failure. An open
/// transaction is neither committed nor ended.
///
/// The directory is synced too, also if the files were renamed.
///
/// Errors: KVSTORE_IOERR (also if the directory cannot be read), KVSTORE_ERROR (`kv` is NULL),
/// KVSTORE_MISUSE.
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

/// Returns free pages of the file to the file system. In WAL mode the file shrinks at the next
/// checkpoint.
///
/// @param nPage Maximum number of pages; 0: all.
///
/// Errors: KVSTORE_ERROR (`nPage` is negative, or `kv` is NULL), or a write code (KVSTORE_BUSY,
/// KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT,
/// KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL).
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

/// Copies the frames of the WAL into the database file. In DELETE journal mode it does nothing.
///
/// @param mode KVSTORE_CHECKPOINT_PASSIVE, KVSTORE_CHECKPOINT_FULL, KVSTORE_CHECKPOINT_RESTART or
///   KVSTORE_CHECKPOINT_TRUNCATE. After TRUNCATE the WAL has 0 bytes.
/// @param pnLog Receives the number of frames in the WAL, 0 if not in WAL mode. May be NULL.
/// @param pnCkpt Receives the number of frames copied into the file, 0 if not in WAL mode. May be
///   NULL.
///
/// Errors: KVSTORE_BUSY (a transaction is open on this handle; or, except for PASSIVE, other
/// connections block it), KVSTORE_ERROR (`mode` is unknown, or `kv` is NULL), KVSTORE_IOERR,
/// KVSTORE_FULL, KVSTORE_READONLY, KVSTORE_NOMEM, KVSTORE_CORRUPT, KVSTORE_MISUSE.
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

/// Copies all committed data into a new file, as a consistent snapshot with all expiry times. Other
/// connections can read and write meanwhile.
///
/// @param path Path of the copy. It must not exist; the file appears when the copy is complete and
///   synced.
/// @param progress Called at intervals with `context`, the number of remaining pages and the total
///   number of pages. A result other than 0 cancels the backup. May be NULL.
/// @param context Passed to `progress`.
///
/// After a failure no file is left.
///
/// Errors: KVSTORE_ERROR (`kv` or `path` is NULL; the path exists or is not a file name, such as
/// "", ":memory:", "file:..." or a directory; the path has a -wal, -shm or -journal file of another
/// store, or is the name of such a file; or `progress` cancelled the backup), KVSTORE_BUSY (a
/// transaction is open on this handle of a store in memory or an exclusive store; or a lock of
/// another handle), KVSTORE_CANTOPEN, KVSTORE_FULL, KVSTORE_IOERR (also if the store is no longer
/// at the path it was opened by), KVSTORE_NOMEM, KVSTORE_CORRUPT, KVSTORE_MISUSE (also if the store
/// is closed meanwhile).
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

/// Copies all live keys of all families into another store. The copy is a consistent snapshot of
/// `from`, written in one transaction of `to`.
///
/// @param from Source. Other connections can read and write it meanwhile.
/// @param to Destination. Other writes to it are blocked meanwhile. Its WAL grows by the size of
///   the copy.
/// @param progress Called at intervals with `context`, the number of keys copied and their total,
///   which is not reached if keys expire meanwhile. A result other than 0 cancels the copy. May be
///   NULL.
/// @param context Passed to `progress`.
///
/// Families that `to` lacks are created. An existing family of `to` must have no live key; it takes
/// over the default TTL, and records write times if the family of `from` does. The size limit of
/// `from` is copied if `to` has no limit and no key. If that limit would evict copied keys, as can
/// happen with another page size, the copy fails with KVSTORE_FULL.
///
/// `progress` may use both stores; writes to `to` find it busy. It must not use a store in memory
/// or an exclusive store, because the transaction of the copy is open on that handle.
///
/// After a failure, or if the process dies, nothing was copied, and the copy can be run again.
/// kvstore_errmsg(from) returns the text.
///
/// Expiry times, write times and the settings of the families are copied too.
///
/// Errors: KVSTORE_ERROR (a handle is NULL, a family of `to` has live keys, both handles are of the
/// same store, a value is longer than `to` allows, or `progress` cancelled the copy), KVSTORE_BUSY
/// (another handle is writing to `to`; a transaction is open on `to`, or on `from` if that is in
/// memory or exclusive), KVSTORE_READONLY (`to`), KVSTORE_FULL (also for the size limit of `to`),
/// KVSTORE_LOCKED, KVSTORE_CANTOPEN, KVSTORE_IOERR (also if a store is no longer at the path it was
/// opened by), KVSTORE_NOMEM, KVSTORE_CORRUPT, KVSTORE_MISUSE (a store is closed, also meanwhile;
/// or `progress` ended the transaction of the copy).
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

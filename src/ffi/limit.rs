//! Size limit and eviction.

use std::ffi::c_int;

use super::args::{bad_argument, optional_output};
use super::call::call;
use super::codes::{
    KVSTORE_EVICT_LEAST_USED, KVSTORE_EVICT_NONE, KVSTORE_EVICT_OLDEST, KVSTORE_EVICT_SOONEST, KVSTORE_OK,
};
use super::types::KVStore;
use crate::{Eviction, SizeLimit};

/// Sets the size limit (quota) of a store, and the policy that selects which keys are removed when
/// the limit is reached.
///
/// @param max_bytes Maximum size of the data, in bytes, at least 32 pages (131072 with pages of
///   4096 bytes); 0: no limit.
/// @param policy KVSTORE_EVICT_NONE, KVSTORE_EVICT_SOONEST, KVSTORE_EVICT_OLDEST or
///   KVSTORE_EVICT_LEAST_USED.
///
/// The limit applies to the pages in use (KVStoreStats.nSizeBytes), of all families with their
/// indexes. The file is kept as short, with the exceptions in docs/how-to/limit-size.md. Unless
/// KVStoreConfig.walPages is set, the WAL target of a handle is one eighth of the limit, but at
/// least 16 and at most 4000 pages (64 with KVSTORE_SMALL).
///
/// With one writer and no long-running reader, the file and its -wal together take at most
/// `max_bytes`, plus twice the WAL target, plus the pages of one transaction (a put that evicts can
/// change 40 pages), plus 256 KiB with KVSTORE_SYNC_FULL. The -shm takes 32 KiB for each 4096 pages
/// of the WAL.
///
/// Keys are removed inside the write that needs the space, in its transaction: expired keys first,
/// then live keys by the policy, over all families, and never keys that the same write has put. A
/// thirty-second of the pages, at least one and at most 256, is kept free, so that most writes
/// remove few keys. KVStoreStats.nEvicted counts live keys removed; expired ones count as purged.
///
/// If no key may be removed, a write that needs more pages fails with KVSTORE_FULL and changes
/// nothing; an open transaction continues. Calls that only remove data, such as deletes, purges and
/// kvstore_persist, are never refused.
///
/// The order is that of the clock of the store. Keys written while the clock is wrong, such as on a
/// board that starts in 1970, are evicted in that order.
///
/// KVSTORE_EVICT_OLDEST and KVSTORE_EVICT_LEAST_USED switch write tracking on, for all existing
/// families, whose keys count as written now, and for each new family. kvstore_set_write_tracking
/// and kvstore_cf_set_write_tracking cannot switch it off meanwhile. Another policy leaves it on.
///
/// With KVSTORE_EVICT_LEAST_USED, kvstore_get and other reads of single keys count as uses, and
/// iterators do not. A handle notes them in memory, up to 4096 keys and 256 KiB of keys, and its
/// next writes store them: the write time of a key becomes the time of its last use, at most once a
/// minute, or when the key would be evicted otherwise. So the order is exact to a minute. Uses by
/// handles that never write do not count, and uses since the last write are lost by
/// kvstore_close. A handle notices the policy when it opens the store, or at its next write.
///
/// The call is itself a write. If the data exceeds the new limit, it removes keys at once. Outside
/// a transaction it also runs a checkpoint that truncates the file and the WAL, unless other
/// connections block it; then the next checkpoint does.
///
/// Both are stored in the file; every handle and process applies them from its next write on.
/// kvstore_backup copies them.
///
/// Errors: KVSTORE_ERROR (`max_bytes` is negative or less than 32 pages, `policy` is unknown, or
/// `kv` is NULL), KVSTORE_FULL (the data exceeds the limit and may not be removed), or a write code
/// (KVSTORE_BUSY, KVSTORE_LOCKED, KVSTORE_NOMEM, KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_CORRUPT,
/// KVSTORE_PROTOCOL, KVSTORE_MISUSE, KVSTORE_FULL). Nothing is changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_set_limit(kv: *mut KVStore, max_bytes: i64, policy: c_int) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            let eviction = match policy {
                KVSTORE_EVICT_NONE => Eviction::None,
                KVSTORE_EVICT_SOONEST => Eviction::Soonest,
                KVSTORE_EVICT_OLDEST => Eviction::Oldest,
                KVSTORE_EVICT_LEAST_USED => Eviction::LeastUsed,
                other => {
                    return bad_argument(&format!("eviction policy {other}: pass one of KVSTORE_EVICT_*"));
                }
            };
            let limit = match u64::try_from(max_bytes) {
                Ok(0) => None,
                Ok(bytes) => Some(SizeLimit::new(bytes, eviction)),
                Err(_) => {
                    return bad_argument(&format!(
                        "a limit of {max_bytes} bytes: pass a number of bytes, or 0 for no limit"
                    ));
                }
            };
            kv.store.set_size_limit(limit)?;
            Ok(KVSTORE_OK)
        })
    }
}

/// Returns the size limit and the eviction policy of a store.
///
/// @param pMaxBytes Receives the limit in bytes; 0: no limit. May be NULL.
/// @param pPolicy Receives the KVSTORE_EVICT_* policy; KVSTORE_EVICT_NONE without a limit. May be
///   NULL.
///
/// Errors: KVSTORE_ERROR (`kv` is NULL), or a read code (KVSTORE_BUSY, KVSTORE_LOCKED,
/// KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_get_limit(
    kv: *mut KVStore,
    pMaxBytes: *mut i64,
    pPolicy: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            let limit = kv.store.size_limit()?;
            if let Some(output) = optional_output(pMaxBytes) {
                let bytes = limit.map_or(0, |limit| limit.max_bytes);
                output.set(i64::try_from(bytes).unwrap_or(i64::MAX));
            }
            if let Some(output) = optional_output(pPolicy) {
                output.set(match limit.map(|limit| limit.eviction) {
                    Some(Eviction::Soonest) => KVSTORE_EVICT_SOONEST,
                    Some(Eviction::Oldest) => KVSTORE_EVICT_OLDEST,
                    Some(Eviction::LeastUsed) => KVSTORE_EVICT_LEAST_USED,
                    Some(Eviction::None) | None => KVSTORE_EVICT_NONE,
                });
            }
            Ok(KVSTORE_OK)
        })
    }
}

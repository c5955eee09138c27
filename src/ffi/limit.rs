//! Bounded stores: how much the data may take, and what makes room.

use std::ffi::c_int;

use super::args::{bad_argument, optional_output};
use super::call::call;
use super::codes::{KVSTORE_EVICT_NONE, KVSTORE_EVICT_OLDEST, KVSTORE_EVICT_SOONEST, KVSTORE_OK};
use super::types::KVStore;
use crate::{Eviction, Limit};

/// Sets how much the data of this store may take in its file, in bytes, and which keys make room: `policy` is one of
/// KVSTORE_EVICT_*. 0 bytes: no limit, with any of these policies. It is kept in the file, and every handle and process obeys
/// it from its next write on; kvstore_backup copies it.
///
/// Counted are the pages of the file less the free ones (KVStoreStats.nSizeBytes), of all families with their indexes.
/// The file itself is kept as short, but for what docs/how-to/limit-size.md names; and unless KVStoreConfig.walPages says
/// otherwise, the WAL of a handle is one for an eighth of it (at least 16 pages, at most 4000, or 64 with KVSTORE_SMALL).
/// So with one writer, and no reader that stays, the file with its -wal never has more than `max_bytes`, twice as many
/// pages as the WAL is for, and the pages of one transaction (a put that makes room can change 40); with
/// KVSTORE_SYNC_FULL 256 KiB more. The -shm takes 32 KiB for each 4096 pages of the WAL.
///
/// Keys go inside the write that needs the room, in its transaction, or not at all: with KVSTORE_EVICT_SOONEST those
/// that have expired, then those that would expire soonest, and keys without a TTL never; with KVSTORE_EVICT_OLDEST
/// those that have expired, then those that were written longest ago; over all families, and never those that the write
/// itself has put. A thirty-second part of the pages (at least one, at most 256) is kept free, so that a write has to
/// remove few keys as a rule. KVStoreStats.nEvicted counts those that were alive; the expired ones count as purged.
///
/// When nothing is left that may go, a write that needs more pages than there are answers KVSTORE_FULL, and nothing of it
/// has happened; a transaction of the caller's goes on. Deletes, purges, kvstore_cf_persist, and whatever else
/// only removes, are never refused.
///
/// All goes by the clock of the store: what is written while that is wrong, as on a board that starts in 1970, makes room in
/// that order.
///
/// KVSTORE_EVICT_OLDEST needs write tracking, and switches it on: for every family that is there, whose keys count as
/// written now, and for each that is made later. kvstore_cf_set_write_tracking does not switch it off then. Another
/// policy leaves it on.
///
/// The call is a write itself. If the data takes more than the new limit, it makes room at once. Outside a transaction
/// a new limit also makes a checkpoint, which cuts the file and the WAL, unless others stand in the way; then the next
/// one does.
///
/// Errors: KVSTORE_ERROR (less than 32 pages of the file, which is 131072 bytes with pages of 4096; a negative number;
/// an unknown policy; kv is NULL); KVSTORE_FULL (the data takes more, and may not be removed); otherwise as kvstore_put.
/// Nothing is changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_set_limit(kv: *mut KVStore, max_bytes: i64, policy: c_int) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            let eviction = match policy {
                KVSTORE_EVICT_NONE => Eviction::None,
                KVSTORE_EVICT_SOONEST => Eviction::Soonest,
                KVSTORE_EVICT_OLDEST => Eviction::Oldest,
                other => {
                    return bad_argument(&format!("eviction policy {other}: pass one of KVSTORE_EVICT_*"));
                }
            };
            let limit = match u64::try_from(max_bytes) {
                Ok(0) => None,
                Ok(bytes) => Some(Limit::new(bytes, eviction)),
                Err(_) => {
                    return bad_argument(&format!(
                        "a limit of {max_bytes} bytes: pass a number of bytes, or 0 for no limit"
                    ));
                }
            };
            kv.store.set_limit(limit)?;
            Ok(KVSTORE_OK)
        })
    }
}

/// The limit that kvstore_set_limit has set, through whatever handle: `*pMaxBytes` is 0 if there is none, and `*pPolicy`
/// KVSTORE_EVICT_NONE then. Both may be NULL.
///
/// Errors: KVSTORE_BUSY (only in DELETE journal mode), KVSTORE_IOERR, KVSTORE_CORRUPT, KVSTORE_NOMEM, KVSTORE_MISUSE,
/// KVSTORE_ERROR (kv is NULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_get_limit(
    kv: *mut KVStore,
    pMaxBytes: *mut i64,
    pPolicy: *mut c_int,
) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            let limit = kv.store.limit()?;
            if let Some(output) = optional_output(pMaxBytes) {
                let bytes = limit.map_or(0, |limit| limit.max_bytes);
                output.set(i64::try_from(bytes).unwrap_or(i64::MAX));
            }
            if let Some(output) = optional_output(pPolicy) {
                output.set(match limit.map(|limit| limit.eviction) {
                    Some(Eviction::Soonest) => KVSTORE_EVICT_SOONEST,
                    Some(Eviction::Oldest) => KVSTORE_EVICT_OLDEST,
                    Some(Eviction::None) | None => KVSTORE_EVICT_NONE,
                });
            }
            Ok(KVSTORE_OK)
        })
    }
}

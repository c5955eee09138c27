//! Transactions.

use std::ffi::c_int;

use super::call::call;
use super::codes::KVSTORE_OK;
use super::types::KVStore;

/// Begins a transaction on this handle. `write` is 0 for a stable snapshot that only reads, anything
/// else for a write transaction, whose reads see its own writes. Every call on the handle and its
/// families, from whatever thread, is part of it until kvstore_commit or kvstore_rollback.
///
/// After a call in it that failed with KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_FULL or KVSTORE_CORRUPT,
/// kvstore_rollback is what remains. A write transaction in which a write failed so is rolled back at once: writes in
/// it answer that code, nothing is committed, and reads show the store without it (on a server they answer the code,
/// too). After a read that failed so, SQLite may have ended the transaction: then it is the same, and in a snapshot
/// reads answer the code.
///
/// Errors: KVSTORE_ERROR (one is open already, and goes on), KVSTORE_BUSY (another handle is writing),
/// KVSTORE_READONLY, KVSTORE_IOERR, KVSTORE_NOMEM, KVSTORE_CORRUPT, KVSTORE_MISUSE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_begin(kv: *mut KVStore, write: c_int) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            kv.store.begin(write != 0)?;
            Ok(KVSTORE_OK)
        })
    }
}

/// Commits the open transaction.
///
/// Errors: KVSTORE_ERROR (none is open); KVSTORE_BUSY (others are reading; only in DELETE journal
/// mode: the transaction is still open, try again); KVSTORE_FULL, KVSTORE_IOERR, KVSTORE_NOMEM and
/// others: nothing was committed, and only kvstore_rollback is possible (exceptions in DELETE mode: README,
/// "Limits"). The same code is reported
/// when a call inside the transaction failed before. KVSTORE_MISUSE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_commit(kv: *mut KVStore) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            kv.store.commit()?;
            Ok(KVSTORE_OK)
        })
    }
}

/// Rolls the open transaction back: nothing in it has happened.
///
/// Errors: KVSTORE_ERROR (none is open), KVSTORE_IOERR, KVSTORE_MISUSE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_rollback(kv: *mut KVStore) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            kv.store.rollback()?;
            Ok(KVSTORE_OK)
        })
    }
}

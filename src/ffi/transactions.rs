//! Transactions.

use std::ffi::c_int;

use super::call::call;
use super::codes::KVSTORE_OK;
use super::types::KVStore;

/// Begins a transaction on a store handle. Every call on the handle and its families, from any
/// thread, is part of the transaction until kvstore_commit or kvstore_rollback. Transactions cannot
/// be nested.
///
/// @param write 0: read transaction, a stable snapshot that cannot write. Otherwise: write
///   transaction, whose reads see its own writes.
///
/// A write that fails with KVSTORE_NOMEM, KVSTORE_IOERR, KVSTORE_FULL or KVSTORE_CORRUPT fails the
/// transaction, except KVSTORE_FULL for the size limit. A failed transaction is rolled back at
/// once, and only kvstore_rollback ends it. Until then, its writes and kvstore_commit return that
/// code, and its reads see the store without it; on a server its reads return the code too. A read
/// that fails with one of these codes fails the transaction if SQLite ended it; in a read
/// transaction later reads then return the code.
///
/// Errors: KVSTORE_ERROR (`kv` is NULL, or a transaction is open, which continues), KVSTORE_BUSY
/// (another handle is writing), KVSTORE_READONLY, KVSTORE_LOCKED, KVSTORE_IOERR, KVSTORE_NOMEM,
/// KVSTORE_CORRUPT, KVSTORE_PROTOCOL, KVSTORE_MISUSE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvstore_begin(kv: *mut KVStore, write: c_int) -> c_int {
    // SAFETY: as documented.
    unsafe {
        call(kv, |kv| {
            if write == 0 {
                kv.store.begin_read()?
            } else {
                kv.store.begin_write()?
            };
            Ok(KVSTORE_OK)
        })
    }
}

/// Commits the open transaction.
///
/// Errors:
/// - KVSTORE_ERROR: no transaction is open, or `kv` is NULL.
/// - KVSTORE_BUSY: other handles are reading (DELETE journal mode only). The transaction is still
///   open; call kvstore_commit again.
/// - KVSTORE_FULL, KVSTORE_IOERR, KVSTORE_NOMEM, KVSTORE_CORRUPT, KVSTORE_LOCKED, KVSTORE_READONLY,
///   KVSTORE_PROTOCOL: nothing was committed, and only kvstore_rollback is possible. The code of an
///   earlier call that failed the transaction is returned too. Exceptions in DELETE journal mode:
///   docs/explanation/durability.md, "Limits".
/// - KVSTORE_MISUSE.
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

/// Rolls back the open transaction. None of its writes takes effect.
///
/// Errors: KVSTORE_ERROR (no transaction is open, or `kv` is NULL), KVSTORE_IOERR, KVSTORE_MISUSE.
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

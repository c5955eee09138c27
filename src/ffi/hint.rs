//! Hints as numbers and as texts for C. The enum and the texts for Rust are in `hint`.

#![allow(dead_code)] // only the header uses some constants

use std::ffi::{CStr, c_int};

use crate::Hint;

/// Result of kvstore_errhint if there is no advice.
pub const KVSTORE_HINT_NONE: c_int = 0;
/// Advice: retry later, because the cause is temporary.
pub const KVSTORE_HINT_RETRY: c_int = 1;
/// Advice: retry, or set a longer KVStoreConfig.busyTimeout.
pub const KVSTORE_HINT_RAISE_BUSY_TIMEOUT: c_int = 2;
/// Advice: roll back the transaction with kvstore_rollback.
pub const KVSTORE_HINT_ROLL_BACK: c_int = 3;
/// Advice: roll back the transaction and run it again, beginning with its first read.
pub const KVSTORE_HINT_RUN_TRANSACTION_AGAIN: c_int = 4;
/// Advice: commit or roll back the transaction that is open on this handle.
pub const KVSTORE_HINT_END_TRANSACTION: c_int = 5;
/// Advice: begin a transaction first with kvstore_begin.
pub const KVSTORE_HINT_BEGIN_TRANSACTION: c_int = 6;
/// Advice: end the open read transaction, or begin a write transaction instead of it.
pub const KVSTORE_HINT_USE_WRITE_TRANSACTION: c_int = 7;
/// Advice: open the store without KVStoreConfig.readOnly.
pub const KVSTORE_HINT_OPEN_FOR_WRITING: c_int = 8;
/// Advice: close this handle and open the store again.
pub const KVSTORE_HINT_OPEN_AGAIN: c_int = 9;
/// Advice: close all other handles of the store, in this process and in others.
pub const KVSTORE_HINT_CLOSE_OTHER_HANDLES: c_int = 10;
/// Advice: open a second handle of the store and use that one inside callbacks.
pub const KVSTORE_HINT_USE_SECOND_HANDLE: c_int = 11;
/// Advice: run kvstore_integrity_check; its result shows whether kvstore_repair can help.
pub const KVSTORE_HINT_CHECK_INTEGRITY: c_int = 12;
/// Advice: repair the store with kvstore_repair.
pub const KVSTORE_HINT_REPAIR: c_int = 13;
/// Advice: restore a backup, or save the readable rows into a new store with kvstore_recover.
pub const KVSTORE_HINT_RECOVER: c_int = 14;
/// Advice: change the owner or the permissions of the file, its log files or its directory.
pub const KVSTORE_HINT_CHECK_PERMISSIONS: c_int = 15;
/// Advice: free space on the disk, then retry.
pub const KVSTORE_HINT_FREE_DISK_SPACE: c_int = 16;
/// Advice: open the store with its password or key, with kvstore_open_encrypted.
pub const KVSTORE_HINT_GIVE_PASSWORD: c_int = 17;
/// Advice: open the store without a password, with kvstore_open; it is not encrypted.
pub const KVSTORE_HINT_OMIT_PASSWORD: c_int = 18;
/// Advice: encrypt the store with kvstore_open_encrypted.
pub const KVSTORE_HINT_ENCRYPT: c_int = 19;
/// Advice: give the encrypted store another password with kvstore_reencrypt.
pub const KVSTORE_HINT_REKEY: c_int = 20;
/// Advice: use a build of the library that supports encryption.
pub const KVSTORE_HINT_BUILD_WITH_ENCRYPTION: c_int = 21;
/// Advice: use a build of the library that supports stores on a server.
pub const KVSTORE_HINT_BUILD_WITH_SERVER: c_int = 22;
/// Advice: delete keys, or raise the size limit with kvstore_set_limit.
pub const KVSTORE_HINT_RAISE_SIZE_LIMIT: c_int = 23;
/// Advice: raise KVStoreConfig.maxValueSize.
pub const KVSTORE_HINT_RAISE_MAX_VALUE_SIZE: c_int = 24;
/// Advice: create the family with kvstore_cf_create.
pub const KVSTORE_HINT_CREATE_FAMILY: c_int = 25;
/// Advice: open the family with kvstore_cf_open, because it exists already.
pub const KVSTORE_HINT_OPEN_FAMILY: c_int = 26;
/// Advice: close the open handles of the family with kvstore_cf_close.
pub const KVSTORE_HINT_CLOSE_FAMILY: c_int = 27;
/// Advice: clear the default family with kvstore_clear, because it cannot be dropped.
pub const KVSTORE_HINT_CLEAR_FAMILY: c_int = 28;
/// Advice: turn on write tracking with kvstore_set_write_tracking or kvstore_cf_set_write_tracking.
pub const KVSTORE_HINT_TRACK_WRITES: c_int = 29;
/// Advice: set another eviction policy with kvstore_set_limit.
pub const KVSTORE_HINT_CHANGE_EVICTION: c_int = 30;
/// Advice: purge from a thread of the caller with kvstore_purge_step, because this store cannot
/// have a cleaner.
pub const KVSTORE_HINT_PURGE_YOURSELF: c_int = 31;
/// Advice: stop the running cleaner with kvstore_cleaner_stop.
pub const KVSTORE_HINT_STOP_CLEANER: c_int = 32;
/// Advice: copy into another store with kvstore_copy.
pub const KVSTORE_HINT_COPY_TO_STORE: c_int = 33;
/// Advice: finish the interrupted copy, or drop the family in which the target records its
/// progress.
pub const KVSTORE_HINT_RESUME_COPY: c_int = 34;
/// Advice: use a shorter key, such as a hash of the key.
pub const KVSTORE_HINT_USE_SHORTER_KEY: c_int = 35;
/// Advice: repair the file with the command "kvstore repair", because no call can open it.
pub const KVSTORE_HINT_REPAIR_FILE: c_int = 36;
/// Advice: pass a duration to a function that takes one, such as kvstore_cf_put_for.
pub const KVSTORE_HINT_GIVE_TTL: c_int = 37;

/// Returns the number of a hint in the C API (`KVSTORE_HINT_*`).
pub(super) fn number_of(hint: Hint) -> c_int {
    match hint {
        Hint::Retry => KVSTORE_HINT_RETRY,
        Hint::RaiseBusyTimeout => KVSTORE_HINT_RAISE_BUSY_TIMEOUT,
        Hint::RollBack => KVSTORE_HINT_ROLL_BACK,
        Hint::RunTransactionAgain => KVSTORE_HINT_RUN_TRANSACTION_AGAIN,
        Hint::EndTransaction => KVSTORE_HINT_END_TRANSACTION,
        Hint::BeginTransaction => KVSTORE_HINT_BEGIN_TRANSACTION,
        Hint::UseWriteTransaction => KVSTORE_HINT_USE_WRITE_TRANSACTION,
        Hint::OpenForWriting => KVSTORE_HINT_OPEN_FOR_WRITING,
        Hint::OpenAgain => KVSTORE_HINT_OPEN_AGAIN,
        Hint::CloseOtherHandles => KVSTORE_HINT_CLOSE_OTHER_HANDLES,
        Hint::UseSecondHandle => KVSTORE_HINT_USE_SECOND_HANDLE,
        Hint::CheckIntegrity => KVSTORE_HINT_CHECK_INTEGRITY,
        Hint::Repair => KVSTORE_HINT_REPAIR,
        Hint::Recover => KVSTORE_HINT_RECOVER,
        Hint::CheckPermissions => KVSTORE_HINT_CHECK_PERMISSIONS,
        Hint::FreeDiskSpace => KVSTORE_HINT_FREE_DISK_SPACE,
        Hint::GivePassword => KVSTORE_HINT_GIVE_PASSWORD,
        Hint::OmitPassword => KVSTORE_HINT_OMIT_PASSWORD,
        Hint::Encrypt => KVSTORE_HINT_ENCRYPT,
        Hint::Rekey => KVSTORE_HINT_REKEY,
        Hint::BuildWithEncryption => KVSTORE_HINT_BUILD_WITH_ENCRYPTION,
        Hint::BuildWithServer => KVSTORE_HINT_BUILD_WITH_SERVER,
        Hint::RaiseSizeLimit => KVSTORE_HINT_RAISE_SIZE_LIMIT,
        Hint::RaiseMaxValueSize => KVSTORE_HINT_RAISE_MAX_VALUE_SIZE,
        Hint::CreateFamily => KVSTORE_HINT_CREATE_FAMILY,
        Hint::OpenFamily => KVSTORE_HINT_OPEN_FAMILY,
        Hint::CloseFamily => KVSTORE_HINT_CLOSE_FAMILY,
        Hint::ClearFamily => KVSTORE_HINT_CLEAR_FAMILY,
        Hint::TrackWrites => KVSTORE_HINT_TRACK_WRITES,
        Hint::ChangeEviction => KVSTORE_HINT_CHANGE_EVICTION,
        Hint::PurgeYourself => KVSTORE_HINT_PURGE_YOURSELF,
        Hint::StopCleaner => KVSTORE_HINT_STOP_CLEANER,
        Hint::CopyToStore => KVSTORE_HINT_COPY_TO_STORE,
        Hint::ResumeCopy => KVSTORE_HINT_RESUME_COPY,
        Hint::UseShorterKey => KVSTORE_HINT_USE_SHORTER_KEY,
        Hint::RepairFile => KVSTORE_HINT_REPAIR_FILE,
        Hint::GiveTtl => KVSTORE_HINT_GIVE_TTL,
    }
}

/// Returns the hint with the number `number` in the C API (`KVSTORE_HINT_*`); `None` if there is
/// none.
pub(super) fn hint_of(number: c_int) -> Option<Hint> {
    Hint::ALL.into_iter().find(|hint| number_of(*hint) == number)
}

/// Returns the advice of a hint in the words of the C API.
pub(super) fn text_of(hint: Hint) -> &'static CStr {
    match hint {
        Hint::Retry => c"retry later",
        Hint::RaiseBusyTimeout => c"retry, or set a longer busyTimeout in KVStoreConfig",
        Hint::RollBack => c"roll the transaction back with kvstore_rollback",
        Hint::RunTransactionAgain => {
            c"roll the transaction back with kvstore_rollback and run it again from its first read"
        }
        Hint::EndTransaction => c"call kvstore_commit or kvstore_rollback first",
        Hint::BeginTransaction => c"call kvstore_begin first",
        Hint::UseWriteTransaction => c"end the read transaction, or begin one with kvstore_begin(kv, 1)",
        Hint::OpenForWriting => c"open the store without readOnly in KVStoreConfig",
        Hint::OpenAgain => c"call kvstore_close and open the store again",
        Hint::CloseOtherHandles => c"close the store in all other handles and processes, then retry",
        Hint::UseSecondHandle => c"open a second handle for use inside callbacks",
        Hint::CheckIntegrity => {
            c"run kvstore_integrity_check; if SQLite's part of it passes, kvstore_repair fixes the \
                store; otherwise restore a backup, or save what can be read with kvstore_recover"
        }
        Hint::Repair => {
            c"run kvstore_repair; if it fails, restore a backup, or save what can be read with \
                kvstore_recover"
        }
        Hint::Recover => c"restore a backup, or save what can be read with kvstore_recover",
        Hint::CheckPermissions => {
            c"change the owner or the permissions; on a read-only file system, open the store with \
                readOnly in KVStoreConfig, or open a copy"
        }
        Hint::FreeDiskSpace => {
            c"free space on the disk and retry; if there is space, the file is damaged: run \
                kvstore_integrity_check"
        }
        Hint::GivePassword => c"open the store with its password: kvstore_open_encrypted",
        Hint::OmitPassword => c"open the store with kvstore_open, or encrypt it with kvstore_open_encrypted",
        Hint::Encrypt => c"encrypt it with kvstore_open_encrypted",
        Hint::Rekey => c"give it another password with kvstore_reencrypt",
        Hint::BuildWithEncryption => c"use a build of the library with encryption (make all ENCRYPTION=1)",
        Hint::BuildWithServer => c"use a build of the library with stores on a server (make all REMOTE=1)",
        Hint::RaiseSizeLimit => c"delete something, or raise the limit with kvstore_set_limit",
        Hint::RaiseMaxValueSize => c"raise maxValueSize in KVStoreConfig, or split the value",
        Hint::CreateFamily => c"create it with kvstore_cf_create",
        Hint::OpenFamily => c"open it with kvstore_cf_open",
        Hint::CloseFamily => c"call kvstore_cf_close for its handles on this store first",
        Hint::ClearFamily => c"remove its keys with kvstore_clear",
        Hint::TrackWrites => c"turn it on with kvstore_set_write_tracking or kvstore_cf_set_write_tracking",
        Hint::ChangeEviction => c"choose another policy with kvstore_set_limit first",
        Hint::PurgeYourself => c"call kvstore_purge_step instead",
        Hint::StopCleaner => c"stop it with kvstore_cleaner_stop first",
        Hint::CopyToStore => c"use kvstore_copy",
        Hint::ResumeCopy => {
            c"finish that copy with \"kvstore copy --resume\", or drop its progress family in the \
                target with kvstore_cf_drop"
        }
        Hint::UseShorterKey => c"use a shorter key, such as a hash of it",
        Hint::GiveTtl => c"for a duration call kvstore_put_for or kvstore_cf_put_for, or add it to kvstore_now_ms()",
        Hint::RepairFile => {
            c"run the command \"kvstore repair\" on the file; if it fails, restore a backup, or save what can be read with \
              kvstore_recover"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_hints_correspond_one_to_one() {
        for (at, hint) in Hint::ALL.into_iter().enumerate() {
            assert_eq!(number_of(hint), c_int::try_from(at + 1).unwrap());
            assert_eq!(hint_of(number_of(hint)), Some(hint));
        }
        assert_eq!(hint_of(KVSTORE_HINT_NONE), None);
        assert_eq!(hint_of(-1), None);
    }
}

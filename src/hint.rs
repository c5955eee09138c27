//! What a caller can do about an error: a closed list, which each front end renders in its own words.
//!
//! A message says what failed, in words that fit every language. Advice that names a call, an option or a flag is a
//! [`Hint`], because each language names it differently. The texts here are those for Rust; `ffi::hint` has those for C.

use std::fmt;

/// What to do about an [`Error`](crate::Error). `Display` gives the advice in the words of the Rust API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Hint {
    /// Retry later; the cause is temporary.
    Retry,
    /// Retry, or wait longer for locks.
    RaiseBusyTimeout,
    /// Roll the transaction back.
    RollBack,
    /// Roll the transaction back and run it again from its first read.
    RunTransactionAgain,
    /// Commit or roll back the transaction that is open on this handle.
    EndTransaction,
    /// Begin a transaction first.
    BeginTransaction,
    /// End the read transaction, or begin a write transaction in its place.
    UseWriteTransaction,
    /// Open the store for writing.
    OpenForWriting,
    /// Open the store read-only.
    OpenReadOnly,
    /// Close this handle and open the store again.
    OpenAgain,
    /// Close the other handles and processes that have the store open.
    CloseOtherHandles,
    /// Use a second handle inside callbacks.
    UseSecondHandle,
    /// Run the integrity check; repair or recover by what it reports.
    CheckIntegrity,
    /// Run a repair.
    Repair,
    /// Restore a backup, or recover what can be read.
    Recover,
    /// Change the owner or the permissions of the file, its log files or its directory.
    CheckPermissions,
    /// Free disk space, then retry.
    FreeDiskSpace,
    /// Open the store with its password or key.
    GivePassword,
    /// Open the store without a password, or encrypt it first.
    OmitPassword,
    /// Encrypt the store.
    Encrypt,
    /// Give the encrypted store another password or key.
    Rekey,
    /// Use a build with encryption.
    BuildWithEncryption,
    /// Use a build with stores on a server.
    BuildWithServer,
    /// Delete something, or raise the size limit of the store.
    RaiseSizeLimit,
    /// Raise the maximum size of a value.
    RaiseMaxValueSize,
    /// Create the family.
    CreateFamily,
    /// Open the family, which exists.
    OpenFamily,
    /// Close the handles of the family.
    CloseFamily,
    /// Clear the default family; it cannot be dropped.
    ClearFamily,
    /// Turn on write tracking for the family.
    TrackWrites,
    /// Set another eviction policy.
    ChangeEviction,
    /// Purge from the calling thread; this store can have no cleaner.
    PurgeYourself,
    /// Stop the cleaner that is running.
    StopCleaner,
    /// Copy into the store, since a backup needs a file.
    CopyToStore,
    /// Finish the copy that was interrupted.
    ResumeCopy,
    /// Use a shorter key.
    UseShorterKey,
    /// Repair the file, which an ordinary open refuses.
    RepairFile,
}

impl Hint {
    /// Every hint.
    pub(crate) const ALL: [Hint; 37] = [
        Hint::Retry,
        Hint::RaiseBusyTimeout,
        Hint::RollBack,
        Hint::RunTransactionAgain,
        Hint::EndTransaction,
        Hint::BeginTransaction,
        Hint::UseWriteTransaction,
        Hint::OpenForWriting,
        Hint::OpenReadOnly,
        Hint::OpenAgain,
        Hint::CloseOtherHandles,
        Hint::UseSecondHandle,
        Hint::CheckIntegrity,
        Hint::Repair,
        Hint::Recover,
        Hint::CheckPermissions,
        Hint::FreeDiskSpace,
        Hint::GivePassword,
        Hint::OmitPassword,
        Hint::Encrypt,
        Hint::Rekey,
        Hint::BuildWithEncryption,
        Hint::BuildWithServer,
        Hint::RaiseSizeLimit,
        Hint::RaiseMaxValueSize,
        Hint::CreateFamily,
        Hint::OpenFamily,
        Hint::CloseFamily,
        Hint::ClearFamily,
        Hint::TrackWrites,
        Hint::ChangeEviction,
        Hint::PurgeYourself,
        Hint::StopCleaner,
        Hint::CopyToStore,
        Hint::ResumeCopy,
        Hint::UseShorterKey,
        Hint::RepairFile,
    ];
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hint::Retry => "retry later",
            Hint::RaiseBusyTimeout => "retry, or set a longer Config::busy_timeout",
            Hint::RollBack => "roll the transaction back",
            Hint::RunTransactionAgain => "roll the transaction back and run it again from its first read",
            Hint::EndTransaction => "commit or roll back the open transaction first",
            Hint::BeginTransaction => "begin a transaction first",
            Hint::UseWriteTransaction => "end the read transaction, or begin a write transaction instead",
            Hint::OpenForWriting => "open the store without Config::read_only",
            Hint::OpenReadOnly => "open the store with Config::read_only",
            Hint::OpenAgain => "close this store and open it again",
            Hint::CloseOtherHandles => "close the store in all other places, then retry",
            Hint::UseSecondHandle => "open a second Store for use inside callbacks",
            Hint::CheckIntegrity => {
                "run Store::integrity_check; if SQLite's part of it passes, Store::repair fixes the store; otherwise \
                 restore a backup, or save what can be read with kvstore::recover"
            }
            Hint::Repair => {
                "run Store::repair; if it fails, restore a backup, or save what can be read with kvstore::recover"
            }
            Hint::Recover => "restore a backup, or save what can be read with kvstore::recover",
            Hint::CheckPermissions => {
                "change the owner or the permissions; on a read-only file system, open the store with Config::read_only, \
                 or open a copy"
            }
            Hint::FreeDiskSpace => {
                "free space on the disk and retry; if there is space, the file is damaged: run Store::integrity_check"
            }
            Hint::GivePassword => "open the store with its password (Config::password) or key (Config::raw_key)",
            Hint::OmitPassword => "open the store without a password, or encrypt it with Store::encrypt",
            Hint::Encrypt => "encrypt it with Store::encrypt",
            Hint::Rekey => "give it another password with Store::rekey",
            Hint::BuildWithEncryption => "build with the crate feature \"encryption\"",
            Hint::BuildWithServer => "build with the crate feature \"remote\"",
            Hint::RaiseSizeLimit => "delete something, or raise the limit with Store::set_size_limit",
            Hint::RaiseMaxValueSize => "raise Config::max_value_size, or split the value",
            Hint::CreateFamily => "create it with Store::create_family",
            Hint::OpenFamily => "open it with Store::family",
            Hint::CloseFamily => "drop its Family values on this store first",
            Hint::ClearFamily => "remove its keys with Family::clear",
            Hint::TrackWrites => "turn it on with Family::set_write_tracking",
            Hint::ChangeEviction => "choose another policy with Store::set_size_limit first",
            Hint::PurgeYourself => "call Store::purge_step instead",
            Hint::StopCleaner => "stop it with Store::stop_cleaner first",
            Hint::CopyToStore => "use Store::copy_to",
            Hint::ResumeCopy => "finish it with Store::copy_resumable, or drop its progress family in the target",
            Hint::UseShorterKey => "use a shorter key, such as a hash of it",
            Hint::RepairFile => {
                "open the file with Config::allow_damaged and run Store::repair; if that fails, restore a backup, or save \
                 what can be read with kvstore::recover"
            }
        })
    }
}

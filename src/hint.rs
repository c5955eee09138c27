//! Advice on what to do about an error: a closed list, which each language interface renders in its
//! own words.
//!
//! The message of an error describes what failed, in words that fit every language. Advice that
//! names a call, an option or a flag is a [`Hint`], because each language names it differently. The
//! texts here are those for Rust; `ffi::hint` has those for C.

use std::fmt;

/// Advice on what to do about an [`Error`](crate::Error). `Display` shows it in the words of the
/// Rust API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Hint {
    /// Advice: retry later, because the cause is temporary.
    Retry,
    /// Advice: retry, or set a longer [`busy_timeout`](crate::Config::busy_timeout).
    RaiseBusyTimeout,
    /// Advice: roll back the transaction.
    RollBack,
    /// Advice: roll back the transaction and run it again, beginning with its first read.
    RunTransactionAgain,
    /// Advice: commit or roll back the transaction that is open on this handle.
    EndTransaction,
    /// Advice: begin a transaction first.
    BeginTransaction,
    /// Advice: end the open read transaction, or begin a write transaction instead of it.
    UseWriteTransaction,
    /// Advice: open the store without [`read_only`](crate::Config::read_only).
    OpenForWriting,
    /// Advice: close this handle and open the store again.
    OpenAgain,
    /// Advice: close all other handles of the store, in this process and in other processes.
    CloseOtherHandles,
    /// Advice: open a second handle of the store and use that one inside callbacks.
    UseSecondHandle,
    /// Advice: run [`integrity_check`](crate::Store::integrity_check); its result shows whether
    /// [`repair`](crate::Store::repair) can help.
    CheckIntegrity,
    /// Advice: repair the store with [`repair`](crate::Store::repair).
    Repair,
    /// Advice: restore a backup, or save the readable rows into a new store with
    /// [`recover`](crate::recover).
    Recover,
    /// Advice: change the owner or the permissions of the file, its log files or its directory.
    CheckPermissions,
    /// Advice: free space on the disk, then retry.
    FreeDiskSpace,
    /// Advice: open the store with its password or key.
    GivePassword,
    /// Advice: open the store without a password, or encrypt it first.
    OmitPassword,
    /// Advice: encrypt the store with `Store::encrypt`.
    Encrypt,
    /// Advice: give the encrypted store another password or key with `Store::rekey`.
    Rekey,
    /// Advice: build this crate with its feature `encryption`.
    BuildWithEncryption,
    /// Advice: build this crate with its feature `remote`, for stores on a server.
    BuildWithServer,
    /// Advice: delete keys, or raise the size limit of the store.
    RaiseSizeLimit,
    /// Advice: raise [`max_value_size`](crate::Config::max_value_size).
    RaiseMaxValueSize,
    /// Advice: create the family with [`create_family`](crate::Store::create_family).
    CreateFamily,
    /// Advice: open the family with [`family`](crate::Store::family), because it exists already.
    OpenFamily,
    /// Advice: drop the open handles of the family first.
    CloseFamily,
    /// Advice: clear the default family with [`clear`](crate::Family::clear), because it cannot be
    /// dropped.
    ClearFamily,
    /// Advice: turn on write tracking with
    /// [`set_write_tracking`](crate::Family::set_write_tracking).
    TrackWrites,
    /// Advice: set another eviction policy with [`set_size_limit`](crate::Store::set_size_limit).
    ChangeEviction,
    /// Advice: purge from a thread of the caller with [`purge_step`](crate::Store::purge_step),
    /// because this store cannot have a cleaner.
    PurgeYourself,
    /// Advice: stop the running cleaner with [`stop_cleaner`](crate::Store::stop_cleaner).
    StopCleaner,
    /// Advice: copy into another store with [`copy_to`](crate::Store::copy_to), because a backup
    /// needs a file.
    CopyToStore,
    /// Advice: finish the interrupted copy, or drop the family in which the target records its
    /// progress.
    ResumeCopy,
    /// Advice: use a shorter key, such as a hash of the key.
    UseShorterKey,
    /// Advice: repair the file with the command `kvstore repair`, because no call can open it.
    RepairFile,
    /// Advice: give a duration to a function that takes one, such as
    /// [`put_with_ttl`](crate::Family::put_with_ttl).
    GiveTtl,
}

impl Hint {
    /// All hints, in the order of their numbers in the C API.
    pub(crate) const ALL: [Hint; 37] = [
        Hint::Retry,
        Hint::RaiseBusyTimeout,
        Hint::RollBack,
        Hint::RunTransactionAgain,
        Hint::EndTransaction,
        Hint::BeginTransaction,
        Hint::UseWriteTransaction,
        Hint::OpenForWriting,
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
        Hint::GiveTtl,
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
            Hint::GiveTtl => "use a function that takes a TTL, such as put_with_ttl",
            Hint::RepairFile => {
                "open the file with Config::allow_damaged and run Store::repair; if that fails, restore a backup, or save \
                 what can be read with kvstore::recover"
            }
        })
    }
}

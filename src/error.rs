//! The one error type, and its kinds, which are one to one with the C result codes.
//!
//! Must not enter: anything that knows SQLite (`db::connection` translates its codes) or C.

/// A specialised `Result` for this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, as text for people and as a [`kind`](Error::kind) for programs.
///
/// No message ever contains a key or a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument or the order of calls was wrong; nothing was changed.
    #[error("{0}")]
    Invalid(String),
    /// SQLite reported an error that has no kind of its own.
    #[error("{0}")]
    Failed(String),
    /// Another handle or process holds a lock this call needs.
    #[error("{0}")]
    Busy(String),
    /// A lock inside the same process stands in the way.
    #[error("{0}")]
    Locked(String),
    /// Memory ran out.
    #[error("{0}")]
    NoMemory(String),
    /// A write on a read-only store or inside a read transaction.
    #[error("{0}")]
    ReadOnly(String),
    /// The operating system failed to read, write or sync.
    #[error("{0}")]
    Io(String),
    /// The file's content contradicts itself.
    #[error("{0}")]
    Corrupt(String),
    /// A family that does not exist.
    #[error("{0}")]
    NotFound(String),
    /// A wrong password or a tampered value.
    #[error("{0}")]
    AuthFailed(String),
    /// The file cannot be opened.
    #[error("{0}")]
    CantOpen(String),
    /// The locking protocol of the file failed.
    #[error("{0}")]
    Protocol(String),
    /// The handle is closed, was inherited through a fork, or is unusable after a panic.
    #[error("{0}")]
    Misuse(String),
    /// The file is not a store.
    #[error("{0}")]
    NotADatabase(String),
    /// The disk or the file is full.
    #[error("{0}")]
    Full(String),
}

/// The kind of an [`Error`]: what a program can decide on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A wrong argument, a wrong order of calls, or an error without a kind of its own.
    Error,
    /// Retry later: another handle or process is writing.
    Busy,
    /// Retry later: this process itself holds the lock.
    Locked,
    /// Memory ran out.
    NoMemory,
    /// Writing is not allowed here.
    ReadOnly,
    /// The operating system reported a failure.
    Io,
    /// The file is damaged.
    Corrupt,
    /// Does not exist.
    NotFound,
    /// Wrong password or tampered value.
    AuthFailed,
    /// The file cannot be opened.
    CantOpen,
    /// Locking protocol failure.
    Protocol,
    /// The handle may not be used (any more).
    Misuse,
    /// Not a store.
    NotADatabase,
    /// The disk is full.
    Full,
}

impl Error {
    /// The kind of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Invalid(_) | Error::Failed(_) => ErrorKind::Error,
            Error::Busy(_) => ErrorKind::Busy,
            Error::Locked(_) => ErrorKind::Locked,
            Error::NoMemory(_) => ErrorKind::NoMemory,
            Error::ReadOnly(_) => ErrorKind::ReadOnly,
            Error::Io(_) => ErrorKind::Io,
            Error::Corrupt(_) => ErrorKind::Corrupt,
            Error::NotFound(_) => ErrorKind::NotFound,
            Error::AuthFailed(_) => ErrorKind::AuthFailed,
            Error::CantOpen(_) => ErrorKind::CantOpen,
            Error::Protocol(_) => ErrorKind::Protocol,
            Error::Misuse(_) => ErrorKind::Misuse,
            Error::NotADatabase(_) => ErrorKind::NotADatabase,
            Error::Full(_) => ErrorKind::Full,
        }
    }

    /// Whether the same call may succeed later, because only a lock stood in the way.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind(), ErrorKind::Busy | ErrorKind::Locked)
    }

    /// Whether a write that failed like this may have been half done, so that the transaction
    /// around it can only be rolled back. Errors found before the first change are not of that sort.
    pub(crate) fn dooms_transaction(&self) -> bool {
        !matches!(self, Error::Invalid(_) | Error::NotFound(_) | Error::ReadOnly(_) | Error::Misuse(_))
    }

    /// The same kind of error with another text.
    pub(crate) fn with_message(&self, message: String) -> Error {
        match self {
            Error::Invalid(_) => Error::Invalid(message),
            Error::Failed(_) => Error::Failed(message),
            Error::Busy(_) => Error::Busy(message),
            Error::Locked(_) => Error::Locked(message),
            Error::NoMemory(_) => Error::NoMemory(message),
            Error::ReadOnly(_) => Error::ReadOnly(message),
            Error::Io(_) => Error::Io(message),
            Error::Corrupt(_) => Error::Corrupt(message),
            Error::NotFound(_) => Error::NotFound(message),
            Error::AuthFailed(_) => Error::AuthFailed(message),
            Error::CantOpen(_) => Error::CantOpen(message),
            Error::Protocol(_) => Error::Protocol(message),
            Error::Misuse(_) => Error::Misuse(message),
            Error::NotADatabase(_) => Error::NotADatabase(message),
            Error::Full(_) => Error::Full(message),
        }
    }
}

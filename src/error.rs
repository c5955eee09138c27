//! The one error type, and its kinds, which are one to one with the C result codes.
//!
//! Must not enter: anything that knows SQLite (`db::file::failure` translates its codes) or C.

/// A specialised `Result` for this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong: a [`kind`](Error::kind) for programs, and a text for people, which is what `Display` shows.
///
/// No message ever contains a key or a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    /// SQLite has failed in a way that has no kind of its own: unlike a refused argument, it may have stopped
    /// half-way.
    is_failure: bool,
    /// Whatever the call had done was undone, so that the transaction around it can go on.
    is_undone: bool,
    /// A server's, not a file's.
    is_of_server: bool,
    message: String,
}

/// The kind of an [`Error`]: what a program can decide on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A wrong argument, a wrong order of calls, or an error without a kind of its own.
    Error,
    /// Retry later: another handle or process is writing, or another client of the server; or that takes no connection now.
    Busy,
    /// Retry later: this process itself holds the lock. On a server: another client's transaction has made this one
    /// impossible; roll it back and run it again.
    Locked,
    /// Memory ran out.
    NoMemory,
    /// Writing is not allowed here; or, on a server, not now.
    ReadOnly,
    /// The operating system reported a failure, or the connection to the server broke.
    Io,
    /// The file is damaged, or what the server has of the store.
    Corrupt,
    /// Does not exist.
    NotFound,
    /// Wrong password or tampered value; a log-in that the server refuses.
    AuthFailed,
    /// The file cannot be opened, or the server not be reached.
    CantOpen,
    /// Locking protocol failure.
    Protocol,
    /// The handle may not be used (any more).
    Misuse,
    /// Not a store.
    NotADatabase,
    /// The disk is full, or the store has reached its [limit](crate::Store::set_size_limit).
    Full,
}

/// One constructor for each kind; `Error` has two.
impl Error {
    /// An argument or the order of calls was wrong; nothing was changed.
    pub(crate) fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Error, message)
    }

    /// SQLite reported an error that has no kind of its own.
    pub(crate) fn failed(message: impl Into<String>) -> Error {
        Error { is_failure: true, ..Error::new(ErrorKind::Error, message) }
    }

    pub(crate) fn busy(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Busy, message)
    }

    pub(crate) fn locked(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Locked, message)
    }

    pub(crate) fn no_memory(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::NoMemory, message)
    }

    pub(crate) fn read_only(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::ReadOnly, message)
    }

    pub(crate) fn io(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Io, message)
    }

    pub(crate) fn corrupt(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corrupt, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::NotFound, message)
    }

    pub(crate) fn auth_failed(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::AuthFailed, message)
    }

    pub(crate) fn cant_open(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::CantOpen, message)
    }

    pub(crate) fn protocol(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Protocol, message)
    }

    pub(crate) fn misuse(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Misuse, message)
    }

    pub(crate) fn not_a_database(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::NotADatabase, message)
    }

    pub(crate) fn full(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Full, message)
    }

    /// The store has reached the limit that its users have set, and the write was undone.
    pub(crate) fn over_limit(message: impl Into<String>) -> Error {
        Error { is_undone: true, ..Error::new(ErrorKind::Full, message) }
    }
}

impl Error {
    /// An error of a caller's own, such as one that makes a [transaction](crate::Store::transaction) roll back.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, is_failure: false, is_undone: false, is_of_server: false, message: message.into() }
    }

    /// The kind of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later, because only a lock stood in the way.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, ErrorKind::Busy | ErrorKind::Locked)
    }

    /// Whether SQLite has failed in a way that has no kind of its own.
    #[doc(hidden)]
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.is_failure
    }

    /// The same, of a store on a server.
    #[cfg(feature = "remote")]
    pub(crate) fn of_server(self) -> Error {
        Error { is_of_server: true, ..self }
    }

    /// Whether a server has failed, or the way to it: what helps with files does not help then.
    #[doc(hidden)]
    #[must_use]
    pub fn is_of_server(&self) -> bool {
        self.is_of_server
    }

    /// Whether a write that failed like this may have been half done, so that the transaction
    /// around it can only be rolled back. Errors found before the first change are not of that sort.
    pub(crate) fn dooms_transaction(&self) -> bool {
        match self.kind {
            ErrorKind::Error => self.is_failure,
            ErrorKind::NotFound | ErrorKind::ReadOnly | ErrorKind::Misuse => false,
            ErrorKind::Full => !self.is_undone,
            _ => true,
        }
    }

    /// The same error of another kind, with another text.
    pub(crate) fn with_kind(&self, kind: ErrorKind, message: String) -> Error {
        Error { kind, message, ..self.clone() }
    }

    /// The same kind of error with another text.
    pub(crate) fn with_message(&self, message: String) -> Error {
        Error { message, ..self.clone() }
    }
}

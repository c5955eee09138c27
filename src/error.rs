//! Error type of the crate. Its kinds correspond one to one to the C result codes.
//!
//! This module must not depend on C or on SQLite, whose result codes `backend/file/error.rs`
//! translates.

use std::fmt;

use crate::hint::Hint;

/// `Result` with the [`Error`] of this crate as its default error type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of this crate: a [`kind`](Error::kind) for programs, a [`message`](Error::message) about
/// what failed, and often a [`hint`](Error::hint) with advice.
///
/// `Display` shows the message and the hint. No message ever contains a key or a value.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    hint: Option<Hint>,
    /// Whether an error of the kind `Error` is a failure of SQLite that no other kind describes.
    /// Then the call may have done a part of its work. `false` for a rejected argument.
    is_failure: bool,
    /// Whether all changes of the failed call were undone, so that the open transaction can
    /// continue.
    is_undone: bool,
    is_from_server: bool,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.hint.map_or(Ok(()), |hint| write!(f, ": {hint}"))
    }
}

/// Shows the kind, the message and the hint in one line, because `fn main() -> kvstore::Result<()>`
/// prints an error with `Debug`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind)
    }
}

impl std::error::Error for Error {}

/// Kind of an [`Error`], by which a program can decide what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is invalid, calls came in the wrong order, or the failure has no kind of its
    /// own.
    Error,
    /// Another handle, process or client of the server holds a lock, or the server accepts no
    /// connection now. Retry.
    Busy,
    /// A conflict with another connection. Store in a file: this process itself holds the lock;
    /// retry. Store on a server: the transaction conflicts with that of another client; roll it
    /// back and run it again.
    Locked,
    /// The library could not allocate memory.
    NoMemory,
    /// A write is not allowed, because the handle, the transaction, the file or the server is
    /// read-only.
    ReadOnly,
    /// The operating system failed to read, write or sync, or the connection to the server broke.
    Io,
    /// The file, or the store's data on the server, is damaged.
    Corrupt,
    /// The family does not exist.
    NotFound,
    /// The password is wrong or missing, or the server rejected the login.
    AuthFailed,
    /// The file cannot be opened, or the server cannot be reached.
    CantOpen,
    /// Other processes changed the state of the file's locks so often that no lock could be taken.
    /// Retry.
    Protocol,
    /// The handle is closed, was inherited through a fork, or is in use by a call whose callback
    /// now uses the handle too.
    Misuse,
    /// The file or schema is not a store.
    NotADatabase,
    /// The disk is full, or the store has reached its [size limit](crate::Store::set_size_limit).
    Full,
}

/// One constructor for each kind. `ErrorKind::Error` has two.
impl Error {
    /// Creates the error for an invalid argument or for calls in the wrong order. Nothing was
    /// changed.
    pub(crate) fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Error, message)
    }

    /// Creates the error for a failure of SQLite that no other kind describes. Its kind is `Error`.
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

    /// Creates the error for a write that was undone because the store has reached its size limit.
    pub(crate) fn over_limit(message: impl Into<String>) -> Error {
        Error { is_undone: true, ..Error::new(ErrorKind::Full, message) }
    }
}

impl Error {
    /// Creates an error with a kind and a message of the caller, such as one that makes a
    /// [transaction](crate::Store::transaction) roll back.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error {
            kind,
            message: message.into(),
            hint: None,
            is_failure: false,
            is_undone: false,
            is_from_server: false,
        }
    }

    /// Returns the kind of this error, by which a program can decide what to do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns what failed, as text without the [`hint`](Error::hint).
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns advice on what to do about this error; `None` if the library has none.
    #[must_use]
    pub fn hint(&self) -> Option<Hint> {
        self.hint
    }

    /// Returns `true` if the same call may succeed later, because only a lock prevented it.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, ErrorKind::Busy | ErrorKind::Locked)
    }

    /// Returns `true` if the error is a failure of SQLite that has no [`ErrorKind`] of its own.
    /// Returns `false` for a rejected argument, which has the kind `Error` too.
    #[doc(hidden)]
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.is_failure
    }

    /// Returns `true` if the error comes from a PostgreSQL server or from the connection to it.
    #[must_use]
    pub fn is_from_server(&self) -> bool {
        self.is_from_server
    }

    /// Returns this error, marked as one that comes from a PostgreSQL server or from the connection
    /// to it.
    #[cfg(feature = "remote")]
    pub(crate) fn of_a_server(self) -> Error {
        Error { is_from_server: true, ..self }
    }

    /// Returns `true` if a write that failed with this error may be half done, so that its
    /// transaction can only be rolled back.
    ///
    /// Errors that are found before the first change return `false`.
    pub(crate) fn dooms_transaction(&self) -> bool {
        match self.kind {
            ErrorKind::Error => self.is_failure,
            ErrorKind::NotFound | ErrorKind::ReadOnly | ErrorKind::Misuse => false,
            ErrorKind::Full => !self.is_undone,
            _ => true,
        }
    }

    pub(crate) fn with_hint(self, hint: Hint) -> Error {
        Error { hint: Some(hint), ..self }
    }

    /// Appends the busy timeout to the message of an error with the hint
    /// [`RaiseBusyTimeout`](Hint::RaiseBusyTimeout). Returns other errors unchanged.
    pub(crate) fn with_busy_timeout(self, timeout: std::time::Duration) -> Error {
        if self.hint() != Some(Hint::RaiseBusyTimeout) {
            return self;
        }
        let message = format!("{} (busy timeout: {} ms)", self.message(), timeout.as_millis());
        self.with_message(message)
    }

    /// Returns the error with another message, and with the same kind and hint.
    pub(crate) fn with_message(&self, message: String) -> Error {
        Error { message, ..self.clone() }
    }

    /// Returns the error with `context` put before its message: "context: message".
    pub(crate) fn in_context(self, context: impl fmt::Display) -> Error {
        Error { message: format!("{context}: {}", self.message), ..self }
    }

    /// Returns the error with another kind and message. The hint stays; the caller must replace a
    /// hint that does not fit the new kind.
    pub(crate) fn with_kind(&self, kind: ErrorKind, message: String) -> Error {
        Error { kind, message, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_and_debug_show_message_and_hint() {
        let error = Error::busy("the store is locked").with_hint(Hint::Retry);
        assert_eq!(error.to_string(), "the store is locked: retry later");
        assert_eq!(format!("{error:?}"), "Busy: the store is locked: retry later");
        assert_eq!((error.message(), error.hint()), ("the store is locked", Some(Hint::Retry)));
        assert_eq!(error.in_context("app.db").to_string(), "app.db: the store is locked: retry later");
    }
}

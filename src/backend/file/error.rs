//! Converts the errors of SQLite to those of this library.

use std::fmt::Display;
use std::path::Path;

use rusqlite::{ErrorCode, ffi};

use super::os;
use crate::error::{Error, ErrorKind};
use crate::hint::Hint;
use crate::location::sibling;

/// SQLite's text for `SQLITE_ERROR` when it has no memory for a more precise one (`sqlite3ErrStr`).
const GENERIC_ERROR: &str = "SQL logic error";

/// Converts an error of SQLite. SQLite's texts name tables and columns, never their content.
pub(in crate::backend::file) fn translate(error: rusqlite::Error) -> Error {
    let (code, text) = match &error {
        rusqlite::Error::SqliteFailure(error, message) => {
            // Not `error.to_string()`, which begins with "Error code".
            (*error, message.clone().unwrap_or_else(|| ffi::code_to_str(error.extended_code).to_owned()))
        }
        rusqlite::Error::SqlInputError { error, msg, .. } => (*error, msg.clone()),
        // A value in a table of this library does not have the type that the library stores there.
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..) => return damaged(error),
        _ => return Error::failed(error.to_string()),
    };
    if let Some(refusal) = os::refusal::take().filter(|refusal| refusal.is_of(code.extended_code)) {
        return refusal.error();
    }
    match code.code {
        ErrorCode::DatabaseBusy => {
            Error::busy("another handle or process holds the lock").with_hint(Hint::RaiseBusyTimeout)
        }
        ErrorCode::DatabaseLocked => Error::locked(text).with_hint(Hint::Retry),
        // SQLite has no memory for a text of its own; rusqlite's text may be the path.
        ErrorCode::OutOfMemory => Error::no_memory("out of memory"),
        _ if code.extended_code == ffi::SQLITE_ERROR && text == GENERIC_ERROR => {
            Error::no_memory("out of memory")
        }
        ErrorCode::ReadOnly if code.extended_code == ffi::SQLITE_READONLY_DBMOVED => moved_away(),
        ErrorCode::ReadOnly if code.extended_code == ffi::SQLITE_READONLY_ROLLBACK => Error::read_only(
            "a process was killed in a transaction, and only an open for writing rolls the transaction back",
        )
        .with_hint(Hint::OpenForWriting),
        ErrorCode::ReadOnly if code.extended_code == ffi::SQLITE_READONLY_RECOVERY => Error::busy(
            "a process is creating the -shm file, which this process may not write; if that process was killed, \
             open the store once where it can be written",
        )
        .with_hint(Hint::Retry),
        ErrorCode::ReadOnly => Error::read_only(format!(
            "{text}: this process may not write the file, its -wal or its -shm, or create files in its directory"
        ))
        .with_hint(Hint::CheckPermissions),
        ErrorCode::SystemIoFailure if code.extended_code == ffi::SQLITE_IOERR_NOMEM => {
            Error::no_memory("out of memory")
        }
        ErrorCode::SystemIoFailure => Error::io(format!(
            "the operating system failed to read, write or sync ({text}): check the disk, its free space and its limits"
        )),
        ErrorCode::DatabaseCorrupt => damaged(text),
        ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::NoLargeFileSupport => {
            Error::cant_open(format!(
                "{text}: check the permissions of the file and its directory, the length of its name, and the number of \
                 files this process may open"
            ))
        }
        ErrorCode::FileLockingProtocolFailed => Error::protocol(format!(
            "{text}: other processes kept changing the state of the file"
        ))
        .with_hint(Hint::Retry),
        ErrorCode::NotADatabase => Error::not_a_database(text),
        // SQLite also reports "full" for a page number that no file can have.
        ErrorCode::DiskFull => Error::full(text).with_hint(Hint::FreeDiskSpace),
        ErrorCode::ConstraintViolation => Error::failed(format!(
            "an index or constraint that another program added to the table forbids this row ({text}): drop it"
        )),
        _ if is_about_columns(&text) => {
            damaged(format!("the definition of a table has been changed: {text}"))
        }
        _ if code.extended_code == ffi::SQLITE_AUTH => Error::auth_failed(text),
        _ => Error::failed(text),
    }
}

/// Returns `true` if the text of an SQL error says that a table lacks a column. SQL of this library
/// names only columns that it creates.
fn is_about_columns(text: &str) -> bool {
    text.starts_with("no such column") || text.contains(" has no column named ")
}

/// Returns the error for a damaged file. `what` describes the damage.
#[cold]
pub(in crate::backend::file) fn damaged(what: impl Display) -> Error {
    Error::corrupt(what.to_string()).with_hint(Hint::CheckIntegrity)
}

/// Replaces the hint of a `Corrupt` error by `hint`, and returns any other error unchanged. The
/// check that has found the damage knows better than [`damaged`] which action repairs it.
pub(in crate::backend::file) fn hint_for_damage(error: Error, hint: Hint) -> Error {
    match error.kind() {
        ErrorKind::Corrupt => error.with_hint(hint),
        _ => error,
    }
}

/// Returns the error for an attempt to open a file for writing although this process may not write
/// it.
#[cold]
pub(in crate::backend::file) fn forbidden() -> Error {
    translate(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_READONLY), None))
}

/// Adds the names of the files that this process may not write to an error with the hint
/// `CheckPermissions`, if the operating system shows which files of the store at `path` these are.
/// Returns any other error unchanged.
#[cold]
pub(in crate::backend::file) fn name_the_forbidden(error: Error, path: Option<&Path>) -> Error {
    let is_forbidden = error.hint() == Some(Hint::CheckPermissions);
    let Some(path) = path.filter(|_| is_forbidden) else { return error };
    let forbidden: Vec<_> = ["", "-wal", "-shm", "-journal"]
        .iter()
        .map(|suffix| sibling(path, suffix))
        .filter(|file| os::is_forbidden_to_write(file))
        .map(|file| file.display().to_string())
        .collect();
    if forbidden.is_empty() {
        return error;
    }
    error.with_message(format!("this process may not write {}", forbidden.join(" and ")))
}

/// Returns the error for a file that is no longer at the path by which it was opened.
#[cold]
pub(crate) fn moved_away() -> Error {
    Error::io("the file was deleted, moved or replaced while it was open, so nothing more is written to it")
        .with_hint(Hint::OpenAgain)
}

/// Returns `true` if an error of SQLite means that a table does not exist.
pub(in crate::backend::file) fn is_missing_table(error: &rusqlite::Error) -> bool {
    let (code, message) = match error {
        rusqlite::Error::SqliteFailure(error, Some(message)) => (error.extended_code, message),
        rusqlite::Error::SqlInputError { error, msg, .. } => (error.extended_code, msg),
        _ => return false,
    };
    code == ffi::SQLITE_ERROR && message.starts_with("no such table")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text for a code of SQLite that comes without a message.
    fn said_of(code: i32) -> String {
        translate(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)).to_string()
    }

    #[test]
    fn every_sqlite_code_has_descriptive_text() {
        for code in 1..=28 {
            assert!(!said_of(code).contains("Error code"), "{}", said_of(code));
        }
    }

    #[test]
    fn sqlite_error_without_message_is_reported_as_no_memory() {
        let said = |text: &str| {
            translate(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_ERROR), Some(text.into())))
        };
        assert_eq!(said("SQL logic error").kind(), ErrorKind::NoMemory);
        assert_eq!(said("no such table: t").kind(), ErrorKind::Error);
    }

    #[test]
    fn changed_table_definition_is_reported_as_corruption() {
        let conn = rusqlite::Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE t(kex, value); INSERT INTO t VALUES('text', CAST(x'ff' AS TEXT))")
            .unwrap();
        for sql in ["SELECT key FROM t", "INSERT INTO t(key) VALUES(1)", "UPDATE t SET key = 1"] {
            let error = translate(conn.prepare(sql).unwrap_err());
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{sql}: {error}");
        }
        let of_type = conn.query_row("SELECT kex FROM t", [], |row| row.get::<_, i64>(0)).unwrap_err();
        assert_eq!(translate(of_type).kind(), ErrorKind::Corrupt);
        let not_utf8 = conn.query_row("SELECT value FROM t", [], |row| row.get::<_, String>(0)).unwrap_err();
        assert_eq!(translate(not_utf8).kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn corruption_error_advises_integrity_check() {
        let error = translate(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CORRUPT), None));
        assert_eq!((error.kind(), error.hint()), (ErrorKind::Corrupt, Some(Hint::CheckIntegrity)));
        let text = error.to_string();
        for what in ["integrity_check", "repair", "backup", "recover"] {
            assert!(text.contains(what), "{text}");
        }
        assert_eq!(hint_for_damage(damaged("x: y"), Hint::Repair).message(), "x: y");
        assert_eq!(hint_for_damage(damaged("x"), Hint::Repair).hint(), Some(Hint::Repair));
        assert_eq!(hint_for_damage(Error::io("x"), Hint::Repair).hint(), None);
    }
}

//! What SQLite says when something fails, in the words of this library.

use std::fmt::Display;
use std::path::Path;

use rusqlite::{ErrorCode, ffi};

use super::connection::beside;
use super::os;
use super::watch::gone;
use crate::error::{Error, ErrorKind};

/// What to do about a file that no repair can mend.
pub(in crate::db::file) const LAST_RESORT: &str =
    "go back to a backup, or save what can be read with a recovery (kvstore_recover, or \"kvstore recover\")";
/// The end of what is said when the system forbids to write.
const FORBIDDEN: &str = "this process may not write the file, or its -wal or -shm, or make files in its directory: \
                         look at their permissions";

/// What SQLite says of an error in a statement when it has no memory for what is wrong with it (`sqlite3ErrStr`).
const SPEECHLESS: &str = "SQL logic error";

/// SQLite's error as ours. SQLite's texts name tables and columns, never their content.
pub(in crate::db::file) fn translate(error: rusqlite::Error) -> Error {
    let (code, text) = match &error {
        rusqlite::Error::SqliteFailure(error, message) => {
            // Not `error.to_string()`, which begins with "Error code".
            (*error, message.clone().unwrap_or_else(|| ffi::code_to_str(error.extended_code).to_owned()))
        }
        rusqlite::Error::SqlInputError { error, msg, .. } => (*error, msg.clone()),
        _ => return Error::failed(error.to_string()),
    };
    match code.code {
        ErrorCode::DatabaseBusy => Error::busy(
            "another handle or process held the lock until the busy timeout was over: retry, or set a longer one",
        ),
        ErrorCode::DatabaseLocked => Error::locked(text),
        // SQLite has no memory for a text of its own then; rusqlite's may be the path.
        ErrorCode::OutOfMemory => Error::no_memory("out of memory"),
        _ if code.extended_code == ffi::SQLITE_ERROR && text == SPEECHLESS => {
            Error::no_memory("out of memory")
        }
        ErrorCode::ReadOnly if code.extended_code == ffi::SQLITE_READONLY_DBMOVED => gone(),
        ErrorCode::ReadOnly if code.extended_code == ffi::SQLITE_READONLY_ROLLBACK => Error::read_only(
            "a process that was killed has left a transaction to be rolled back, which is a write: open the store once \
             without read-only",
        ),
        ErrorCode::ReadOnly if code.extended_code == ffi::SQLITE_READONLY_RECOVERY => Error::busy(
            "a process that may write has begun to make the -shm, which this one may not: retry; or it was killed, then \
             open the store once where it can be written",
        ),
        ErrorCode::ReadOnly => Error::read_only(format!("{text}: {FORBIDDEN}")),
        ErrorCode::SystemIoFailure if code.extended_code == ffi::SQLITE_IOERR_NOMEM => {
            Error::no_memory("out of memory")
        }
        ErrorCode::SystemIoFailure => Error::io(format!(
            "the operating system could not read or write ({text}): look at the disk, its space and its limits"
        )),
        ErrorCode::DatabaseCorrupt => damaged(text),
        ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::NoLargeFileSupport => {
            Error::cant_open(format!(
                "{text}: look at the permissions of the file and its directory, at the length of its name, and at \
                 how many files this process may open"
            ))
        }
        ErrorCode::FileLockingProtocolFailed => {
            Error::protocol(format!("{text}: others kept changing the state of the file; retry"))
        }
        ErrorCode::NotADatabase => Error::not_a_database(text),
        // Of a page number that no file can have, too, SQLite says that it is full.
        ErrorCode::DiskFull => Error::full(format!(
            "{text}: make room, then try again; if there is room, the file is damaged: run the integrity check"
        )),
        ErrorCode::ConstraintViolation => Error::failed(format!(
            "what another program has added to the table forbids this row ({text}): drop that index or constraint"
        )),
        _ if code.extended_code == ffi::SQLITE_AUTH => Error::auth_failed(text),
        _ => Error::failed(text),
    }
}

/// The file is damaged: what was found, and what to do about it.
#[cold]
pub(in crate::db::file) fn damaged(what: impl Display) -> Error {
    Error::corrupt(format!(
        "{what}: run the integrity check; if SQLite's part of it passes, a repair mends the store; else {LAST_RESORT}"
    ))
}

/// What was found, without what to do about it: for a check that says that itself.
pub(in crate::db::file) fn without_advice(error: &Error) -> String {
    let text = error.to_string();
    text.split_once(": run the integrity check").map_or(text.as_str(), |(found, _)| found).to_owned()
}

/// The same for an error of a check; `what_to_do` is better advice if nothing was said yet.
pub(in crate::db::file) fn with_advice(error: Error, what_to_do: &str) -> Error {
    let text = error.to_string();
    if error.kind() != ErrorKind::Corrupt || text.ends_with(LAST_RESORT) {
        return error;
    }
    error.with_message(format!("{text}: {what_to_do}"))
}

/// What an open for writing answers that finds a file which it may not write.
#[cold]
pub(in crate::db::file) fn forbidden() -> Error {
    translate(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_READONLY), None))
}

/// Where the system has forbidden to write: names what it is of the store at a path, if that can be seen.
#[cold]
pub(in crate::db::file) fn name_the_forbidden(error: Error, path: Option<&Path>) -> Error {
    let Some(path) = path.filter(|_| error.kind() == ErrorKind::ReadOnly) else { return error };
    let text = error.to_string();
    let Some(start) = text.strip_suffix(FORBIDDEN) else { return error };
    let forbidden: Vec<_> = ["", "-wal", "-shm", "-journal"]
        .iter()
        .map(|suffix| beside(path, suffix))
        .filter(|file| os::is_forbidden_to_write(file))
        .map(|file| file.display().to_string())
        .collect();
    if forbidden.is_empty() {
        return error;
    }
    let names = forbidden.join(" and ");
    error.with_message(format!(
        "{start}this process may not write {names}: change the owner or the permissions; or if the file system is \
         read-only, open the store for reading alone (readOnly), or a copy elsewhere"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What SQLite answers without a text of its own.
    fn said_of(code: i32) -> String {
        translate(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)).to_string()
    }

    #[test]
    fn every_text_is_in_words() {
        for code in 1..=28 {
            assert!(!said_of(code).contains("Error code"), "{}", said_of(code));
        }
    }

    #[test]
    fn an_error_that_sqlite_had_no_memory_to_tell_of_is_one_of_memory() {
        let said = |text: &str| {
            translate(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_ERROR), Some(text.into())))
        };
        assert_eq!(said("SQL logic error").kind(), ErrorKind::NoMemory);
        assert_eq!(said("no such table: t").kind(), ErrorKind::Error);
    }

    #[test]
    fn a_damaged_file_has_a_text_that_says_what_to_do() {
        let text = said_of(ffi::SQLITE_CORRUPT);
        for what in ["integrity check", "repair", "backup", "recover"] {
            assert!(text.contains(what), "{text}");
        }
        let found = with_advice(Error::corrupt("a view is missing"), "a repair mends it");
        assert_eq!(found.to_string(), "a view is missing: a repair mends it");
        assert_eq!(with_advice(damaged("x"), "a repair mends it"), damaged("x"));
        assert_eq!(without_advice(&damaged("x: y")), "x: y");
    }
}

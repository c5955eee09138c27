//! Translates errors of the server and of the network into errors of this library.
//!
//! From an error of the server, only the message is used, [shortened and without control
//! characters](shown): the details quote keys and values. The message of an error about data is not
//! used either.

use std::error::Error as _;
use std::io;

use tokio_postgres::error::{DbError, Severity};

use crate::error::Error;
use crate::hint::Hint;

/// Class of a failed request: whether the server may have executed it, and whether a retry can
/// succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// Nothing was sent, or the server accepts no connection. A retry may reach the server.
    Unreachable,
    /// The connection broke. It is unknown whether the request was executed.
    Broken,
    /// It is unknown whether the request was executed. The connection still works.
    Ambiguous,
    /// The request conflicted with other transactions, and nothing was done. It can be run again.
    Conflict,
    /// The server no longer accepts the prepared statement, and nothing was done. The statement
    /// must be prepared again.
    Forgotten,
    /// The server is read-only, and nothing was done. Another server may be the primary now.
    Standby,
    /// The server or the driver refused the request, and nothing was done. It is not run again.
    Refused,
}

/// Failure of a request to the server, with its class.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) sort: Sort,
    pub(super) error: Error,
    /// SQLSTATE of the failure; empty if there is none.
    pub(super) code: String,
}

/// SQLSTATE of a failure because another transaction held a lock for longer than the statement was
/// allowed to wait.
const WAITED: &str = "55P03";

/// SQLSTATE: the server does not support the request. This includes requests that a standby does
/// not support, and prepared statements whose result type has changed.
pub(super) const NOT_SUPPORTED: &str = "0A000";

impl Failure {
    /// Returns `true` if other transactions held a lock for longer than the statement was allowed
    /// to wait.
    pub(super) fn is_of_wait(&self) -> bool {
        self.code == WAITED
    }

    pub(super) fn new(sort: Sort, error: Error) -> Failure {
        Failure { sort, error: error.of_a_server(), code: String::new() }
    }
}

/// Returns the failure for a broken connection. `what` is the cause, for the message.
pub(super) fn broken(what: impl std::fmt::Display) -> Failure {
    Failure::new(Sort::Broken, Error::io(format!("the connection to the server broke ({what})")))
}

/// Converts a failure that occurred before a request with an effect for the caller was sent.
/// Nothing was done for the caller in this case, so a broken connection or an unknown outcome
/// becomes [`Sort::Unreachable`].
pub(super) fn unsent(failure: Failure) -> Failure {
    match failure.sort {
        Sort::Broken | Sort::Ambiguous => Failure { sort: Sort::Unreachable, ..failure },
        _ => failure,
    }
}

/// Returns the failure of a write on a server that is read-only, such as a standby.
pub(super) fn only_reads(why: &str) -> Failure {
    let text = format!(
        "the server accepts no writes ({why}): name all servers in the URL (postgresql://HOST1,HOST2/…), so that the one that \
         does is found, and set a busy timeout longer than a failover takes"
    );
    Failure::new(Sort::Standby, Error::read_only(text))
}

/// Maximum length of a text from the server that an error message quotes, in characters.
pub(super) const MOST_CHARS: usize = 500;

/// Returns a text of the server in a form that can be displayed: shortened, and without control
/// characters.
pub(super) fn shown(text: &str) -> String {
    let is_hidden = |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    let plain = |c: char| match c {
        '\n' | '\r' | '\t' => ' ',
        c if c.is_control() || is_hidden(c) => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    cut(text, MOST_CHARS).chars().map(plain).collect()
}

/// Shortens a text to `most_chars` characters and adds `…`. Returns a shorter text unchanged.
pub(super) fn cut(text: &str, most_chars: usize) -> String {
    match text.char_indices().nth(most_chars) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Converts an error of tokio-postgres to a failure with its class.
pub(super) fn translate(error: &tokio_postgres::Error) -> Failure {
    if let Some(error) = error.as_db_error() {
        return of_server(error);
    }
    if is_unsendable(error) {
        let text = format!("the request could not be sent ({}); nothing was done", summary(error));
        return Failure::new(Sort::Refused, Error::invalid(text));
    }
    if let Some(error) = error.source().and_then(|source| source.downcast_ref::<io::Error>()) {
        return broken(said(error));
    }
    if error.is_closed() {
        return broken("it was closed");
    }
    // The remaining errors are parameters or columns that do not fit the statement, and unreadable
    // answers.
    let text = format!("the statement failed: {}", summary(error));
    Failure::new(Sort::Refused, Error::failed(text))
}

/// Returns `true` if the driver could not encode a request: it is too long, or contains something
/// that no message can contain. Nothing was sent then, although the cause may be an `io::Error`, as
/// for a broken connection.
fn is_unsendable(error: &tokio_postgres::Error) -> bool {
    let summary = summary(error);
    summary.starts_with("error encoding message") || summary.starts_with("error serializing parameter")
}

/// Returns the text of an error up to its first colon. The text after it comes from an inner error,
/// which may quote data.
pub(super) fn summary(error: &tokio_postgres::Error) -> String {
    shown(error.to_string().split(':').next().unwrap_or_default())
}

/// Returns the description of an I/O error of a connection, for an error message.
pub(super) fn said(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the server closed it".to_owned(),
        io::ErrorKind::TimedOut => "no answer in time".to_owned(),
        _ => error.to_string(),
    }
}

/// SQLSTATE: the memory of a server process, or the memory that all server processes share, is
/// full. Locks are in the shared memory.
const OUT_OF_MEMORY: &str = "53200";

/// Returns the failure for a full lock table: a conflict, because locks of other transactions fill
/// the table.
///
/// The predicate locks of a transaction stay in the table after its end, as long as any transaction
/// is open that was open at the same time.
fn no_room_for_locks(message: &str) -> Failure {
    let text = format!(
        "the lock table of the server was full until the busy timeout was over ({message}): write less in one \
         transaction, or raise max_locks_per_transaction and max_pred_locks_per_transaction on the server"
    );
    Failure {
        code: OUT_OF_MEMORY.to_owned(),
        ..Failure::new(Sort::Conflict, Error::busy(text).with_hint(Hint::Retry))
    }
}

impl Failure {
    /// Returns the error of a transaction that conflicted with other transactions.
    pub(super) fn of_transaction(&self) -> Error {
        Error::locked(if self.code == OUT_OF_MEMORY {
            "the lock table of the server is full, so nothing of this transaction was done; \
             max_locks_per_transaction and max_pred_locks_per_transaction on the server set its size"
        } else {
            "another client changed or locked data that this transaction used, so nothing of it was done"
        })
        .with_hint(Hint::RunTransactionAgain)
        .of_a_server()
    }
}

fn of_server(error: &DbError) -> Failure {
    // The message is in the server's language. The name of the server's source file is the same in
    // all languages.
    let is_shared = matches!(error.file(), Some("lock.c" | "predicate.c" | "shmem.c" | "dynahash.c"));
    if error.code().code() == OUT_OF_MEMORY && is_shared {
        return no_room_for_locks(&shown(error.message()));
    }
    if is_forgotten(error.code().code(), error.file(), error.message()) {
        return Failure {
            code: error.code().code().to_owned(),
            ..Failure::new(Sort::Forgotten, Error::failed(shown(error.message())))
        };
    }
    let (sort, translated) = of_code(error.code().code(), &shown(error.message()), is_fatal(error));
    Failure { code: error.code().code().to_owned(), ..Failure::new(sort, translated) }
}

/// Returns `true` if a statement must be prepared again: the server does not know it, or its result
/// type has changed.
///
/// A change of the result type has no SQLSTATE of its own. The name of the server's source file
/// identifies it in all languages. Servers other than PostgreSQL have other source files, so the
/// message is searched, too.
fn is_forgotten(code: &str, file: Option<&str>, message: &str) -> bool {
    code == "26000"
        || (code == NOT_SUPPORTED && (file == Some("plancache.c") || message.contains("cached plan")))
}

/// Returns `true` for an error after which the server closes the connection.
fn is_fatal(error: &DbError) -> bool {
    match error.parsed_severity() {
        Some(severity) => matches!(severity, Severity::Fatal | Severity::Panic),
        None => matches!(error.severity(), "FATAL" | "PANIC"),
    }
}

/// Returns the class and the error for the SQLSTATE `code`. `message` is the server's message in a
/// form that can be displayed. `is_fatal`: whether the server closes the connection after it.
fn of_code(code: &str, message: &str, is_fatal: bool) -> (Sort, Error) {
    let class = code.get(..2).unwrap_or_default();
    match code {
        "40003" => {
            return (
                Sort::Ambiguous,
                Error::io(format!("the server does not know the outcome of the transaction ({message})")),
            );
        }
        "57P03" | "57P05" | "53300" => {
            let text = format!("the server accepts no connection now ({message})");
            let sort = if is_fatal { Sort::Unreachable } else { Sort::Refused };
            return (sort, Error::busy(text).with_hint(Hint::Retry));
        }
        "28P01" | "28000" | "28P02" => {
            return (
                Sort::Refused,
                Error::auth_failed(format!("the server rejected the log-in ({message})")),
            );
        }
        "3D000" => {
            let text = format!("{message}: create the database, or name another one in the URL");
            return (Sort::Refused, Error::cant_open(text));
        }
        _ => {}
    }
    if is_fatal || class == "08" {
        return (Sort::Broken, Error::io(format!("the server closed the connection ({message})")));
    }
    let refused = |error| (Sort::Refused, error);
    match code {
        "40001" | "40P01" | WAITED => (
            Sort::Conflict,
            Error::busy("a transaction of another client held the lock until the busy timeout was over")
                .with_hint(Hint::RaiseBusyTimeout),
        ),
        "57014" => refused(
            Error::busy(format!("the server cancelled the statement ({message})")).with_hint(Hint::Retry),
        ),
        "25006" => {
            let failure = only_reads(message);
            (failure.sort, failure.error)
        }
        "42501" => refused(Error::read_only(format!(
            "the role of this connection lacks a privilege ({message}): a writer needs USAGE on the \
            schema, and SELECT, INSERT, UPDATE and DELETE on its tables; GRANT them, or connect as \
            another role"
        ))),
        "42P01" | "3F000" | "42703" => refused(Error::not_a_database(format!(
            "the schema contains no store, or this role may not use it ({message}): name another \
            schema in the URL, or GRANT USAGE ON SCHEMA and the privileges on its tables"
        ))),
        "53100" => refused(Error::full(format!("the disk of the server is full ({message})"))),
        OUT_OF_MEMORY | "53000" => {
            refused(Error::no_memory(format!("the server is out of memory ({message})")))
        }
        "53400" => {
            refused(Error::full(format!("a limit of the server is reached ({message}): raise it there")))
        }
        "54000" => refused(Error::invalid("the key or value is too large for the server")),
        "58030" => {
            refused(Error::io(format!("the server failed to read or write ({message}): check its log")))
        }
        "XX001" | "XX002" => refused(Error::corrupt(format!(
            "the data of the server is damaged ({message}): check its log, and restore a backup of the \
            server"
        ))),
        "25P02" => refused(Error::failed("a call in this transaction failed").with_hint(Hint::RollBack)),
        // The message may quote data.
        _ if class == "22" || class == "23" => {
            refused(Error::failed(format!("the server rejected the data (SQLSTATE {code})")))
        }
        _ => refused(Error::failed(format!("{message} (SQLSTATE {code})"))),
    }
}

/// Returns the error for an answer that no PostgreSQL server can give to the statements of this
/// module, such as a missing row or a column of another type.
#[cold]
pub(super) fn strange() -> Error {
    Error::failed("the answer of the server has another form than a PostgreSQL server gives").of_a_server()
}

/// Returns the error for a family that another client has dropped.
pub(super) fn no_longer_exists(family: &str) -> Error {
    Error::invalid(format!("family \"{family}\" was dropped")).with_hint(Hint::CreateFamily)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn each_sqlstate_maps_to_kind_and_advice() {
        for (code, is_fatal, sort, kind) in [
            ("40001", false, Sort::Conflict, ErrorKind::Busy),
            ("40P01", false, Sort::Conflict, ErrorKind::Busy),
            ("55P03", false, Sort::Conflict, ErrorKind::Busy),
            ("40003", false, Sort::Ambiguous, ErrorKind::Io),
            ("57P01", true, Sort::Broken, ErrorKind::Io),
            ("57P02", true, Sort::Broken, ErrorKind::Io),
            ("25P03", true, Sort::Broken, ErrorKind::Io),
            ("08006", false, Sort::Broken, ErrorKind::Io),
            ("57P03", true, Sort::Unreachable, ErrorKind::Busy),
            ("53300", true, Sort::Unreachable, ErrorKind::Busy),
            ("28P01", true, Sort::Refused, ErrorKind::AuthFailed),
            ("3D000", true, Sort::Refused, ErrorKind::CantOpen),
            ("57014", false, Sort::Refused, ErrorKind::Busy),
            ("25006", false, Sort::Standby, ErrorKind::ReadOnly),
            ("42501", false, Sort::Refused, ErrorKind::ReadOnly),
            ("42P01", false, Sort::Refused, ErrorKind::NotADatabase),
            ("53100", false, Sort::Refused, ErrorKind::Full),
            ("53000", false, Sort::Refused, ErrorKind::NoMemory),
            ("53200", false, Sort::Refused, ErrorKind::NoMemory),
            ("53400", false, Sort::Refused, ErrorKind::Full),
            ("XX001", false, Sort::Refused, ErrorKind::Corrupt),
            ("99999", false, Sort::Refused, ErrorKind::Error),
        ] {
            let (found, error) = of_code(code, "m", is_fatal);
            assert_eq!((found, error.kind()), (sort, kind), "{code}");
        }
    }

    #[test]
    fn server_text_is_cut_at_char_and_control_chars_replaced() {
        assert_eq!(
            shown("no\u{1b}[2J\r\n\u{9b}x\u{202e}\u{0}ü"),
            "no\u{fffd}[2J  \u{fffd}x\u{fffd}\u{fffd}ü"
        );
        let long = shown(&"ü".repeat(100_000));
        assert_eq!(long, "ü".repeat(MOST_CHARS) + "…");
        assert_eq!(shown(&"ü".repeat(MOST_CHARS)).chars().count(), MOST_CHARS);
    }

    #[test]
    fn server_text_that_may_quote_data_is_hidden() {
        for code in ["22P02", "22003", "23505", "54000"] {
            let (_, error) = of_code(code, "invalid input: \"secret\"", false);
            assert!(!error.to_string().contains("secret"), "{code}: {error}");
        }
    }
}

//! The outcome of a command: its exit status, and an error message that says what failed and what
//! to do.

use std::io;
use std::path::Path;

use kvstore::{ErrorKind, Hint};

use crate::system;

/// The result of a command that did not fail. It selects exit status 0 or 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Exit status 0.
    Yes,
    /// Not found, or a condition was not met: exit status 1. Anything to print has been printed.
    No,
}

impl Answer {
    pub fn from_bool(yes: bool) -> Answer {
        if yes { Answer::Yes } else { Answer::No }
    }
}

/// Why a command failed. The text is the error message.
#[derive(Debug)]
pub enum Failure {
    /// A key or family was not found, or a condition was not met: exit status 1.
    Missing(String),
    /// Usage error: exit status 2.
    Usage(String),
    /// Store or system error: exit status 3.
    Refused(String),
    /// Store error caused by a damaged file, which `recover` may help with: exit status 3.
    Damaged(String),
    /// Store error caused by a lock; a retry may succeed: exit status 3.
    Busy(String),
    /// The reader of standard output has closed the pipe. Not an error: exit status 0.
    Pipe,
    /// A line of the interactive shell ended the shell, and its failure has been reported. The
    /// number is the exit status of the line.
    Reported(u8),
}

pub type Result<T = Answer> = std::result::Result<T, Failure>;

pub fn usage<T>(text: impl Into<String>) -> Result<T> {
    Err(Failure::Usage(text.into()))
}

pub fn refused<T>(text: impl Into<String>) -> Result<T> {
    Err(Failure::Refused(text.into()))
}

/// Returns the advice that is printed for a hint of the library: which command or option of
/// `kvstore` to use. Returns `None` for hints about the handles, transactions and calls of a
/// program, which the user of a command does not control, and for hints that are unknown here.
fn advice(hint: Hint) -> Option<&'static str> {
    Some(match hint {
        Hint::Retry => "try again",
        Hint::RaiseBusyTimeout => "try again, or wait longer with --timeout 60s",
        Hint::RollBack | Hint::RunTransactionAgain | Hint::OpenAgain => "run the command again",
        Hint::OpenForWriting => "check the store's name: \"kvstore put\" and \"kvstore load\" create a store",
        Hint::CloseOtherHandles => "stop the other programs that have the store open, then try again",
        Hint::CheckIntegrity => {
            "\"kvstore check\" lists what is wrong, and \"kvstore repair\" fixes it unless the file itself is damaged; in that \
             case restore a backup, or save the readable rows with \"kvstore recover\" (not of an encrypted store)"
        }
        Hint::Repair | Hint::RepairFile => {
            "\"kvstore repair\" fixes it; if that fails, restore a backup, or save the readable rows with \"kvstore recover\""
        }
        Hint::Recover => {
            "restore a backup, or save the readable rows with \"kvstore recover\" (not of an encrypted store)"
        }
        Hint::CheckPermissions => {
            "change the owner or the permissions of the file, its log files or its directory; commands that only read, such as \
             \"kvstore scan\", need no permission to write"
        }
        Hint::FreeDiskSpace => {
            "free space on the disk, and try again: \"kvstore info\" shows what \"kvstore purge\" and \"kvstore compact\" can \
             free; if the disk has space, \"kvstore check\" finds the damage"
        }
        Hint::GivePassword => {
            "give its password with --password (asks for it), --password-file or --password-env, or its key with --raw-key-file"
        }
        Hint::OmitPassword => "leave out the password options, or encrypt the store with \"kvstore encrypt\"",
        Hint::Encrypt => "encrypt it with \"kvstore encrypt\"",
        Hint::Rekey => "change its password with \"kvstore rekey\"",
        Hint::BuildWithEncryption => {
            "build kvstore from its sources with \"make install ENCRYPTION=1\" or \"cargo install --path command --features \
             encryption\""
        }
        Hint::BuildWithServer => {
            "give the path of a file, or build kvstore with \"make install REMOTE=1\" or \"cargo install --path command \
             --features remote\""
        }
        Hint::RaiseSizeLimit => {
            "remove keys with \"kvstore del\" or \"kvstore purge\", or raise the limit with \"kvstore limit\""
        }
        Hint::RaiseMaxValueSize => "split the value: commands accept the largest size there is",
        Hint::CreateFamily => {
            "\"kvstore families\" lists the families, and \"kvstore families STORE create NAME\" creates one"
        }
        Hint::OpenFamily => "use it as it is, or change it with \"kvstore families STORE set NAME\"",
        Hint::ClearFamily => "\"kvstore del STORE --all\" removes its keys",
        Hint::TrackWrites => "turn tracking on with \"kvstore families STORE set NAME --track on\"",
        Hint::ChangeEviction => "choose another policy with \"kvstore limit STORE --evict POLICY\"",
        Hint::CopyToStore => "\"kvstore copy\" copies to a store",
        Hint::ResumeCopy => {
            "continue the copy with \"kvstore copy --resume\", or give it up with \"kvstore families TO drop 'copy in progress'\""
        }
        Hint::UseShorterKey => "use a shorter key, such as a hash of it",
        Hint::EndTransaction
        | Hint::BeginTransaction
        | Hint::UseWriteTransaction
        | Hint::UseSecondHandle
        | Hint::CloseFamily
        | Hint::PurgeYourself
        | Hint::StopCleaner
        | Hint::GiveTtl => return None,
        // A hint that a newer library has added.
        _ => return None,
    })
}

/// Returns `true` if the advice for a hint applies to stores in files only, not to stores on a
/// server.
fn is_about_files(hint: Hint) -> bool {
    matches!(
        hint,
        Hint::CheckIntegrity | Hint::Repair | Hint::RepairFile | Hint::Recover | Hint::FreeDiskSpace
    )
}

/// Returns the advice that is printed after the message of an error; `None` if there is none.
fn advice_of(error: &kvstore::Error) -> Option<String> {
    let is_in_a_file = !error.is_from_server();
    let hint = error.hint().filter(|hint| is_in_a_file || !is_about_files(*hint));
    let text = match (hint, error.kind()) {
        (Some(Hint::FreeDiskSpace), _) => {
            let advice = advice(Hint::FreeDiskSpace).unwrap_or_default();
            return Some(format!("{advice}; {}", system::DISK_SPACE_ADVICE));
        }
        // The store has an unfinished transaction of a killed process. The next run of a command
        // rolls it back.
        (Some(Hint::OpenForWriting), ErrorKind::ReadOnly) => advice(Hint::OpenAgain)?.to_owned(),
        (Some(hint), _) => advice(hint)?.to_owned(),
        (None, ErrorKind::NotADatabase) if is_in_a_file => format!(
            "give the path of a store{}; if it was one, \"kvstore recover\" saves the readable rows",
            system::FILE_TYPE_ADVICE
        ),
        (None, ErrorKind::Error) if is_in_a_file && error.is_failure() => {
            advice(Hint::CheckIntegrity)?.to_owned()
        }
        _ => return None,
    };
    Some(text)
}

impl From<kvstore::Error> for Failure {
    fn from(error: kvstore::Error) -> Failure {
        Failure::in_context("", &error)
    }
}

impl Failure {
    /// Converts an error of the library to a failure. Its text is `context` (such as "line 7: "),
    /// the message of the error, and the advice.
    pub fn in_context(context: &str, error: &kvstore::Error) -> Failure {
        let message = error.message();
        let text = match advice_of(error) {
            Some(advice) => format!("{context}{message}\n  {advice}"),
            None => format!("{context}{message}"),
        };
        match error.kind() {
            ErrorKind::Busy | ErrorKind::Locked => Failure::Busy(text),
            ErrorKind::NotFound => Failure::Missing(text),
            ErrorKind::Error if !error.is_failure() && !error.is_from_server() => Failure::Usage(text),
            _ => Failure::Refused(text),
        }
    }

    /// Converts an error of a command that writes `target`, a new file or another store. A full
    /// disk is that of `target`.
    pub fn of_target(target: &Path, error: &kvstore::Error) -> Failure {
        match error.hint() {
            Some(Hint::FreeDiskSpace) if !error.is_from_server() => Failure::Refused(format!(
                "{}: the disk is full\n  free space on that disk, or write to another one; {}",
                target.display(),
                system::DISK_SPACE_ADVICE
            )),
            _ => Failure::in_context("", error),
        }
    }

    /// Converts a usage error (exit status 2) to a store error (exit status 3). For errors of the
    /// library that were caused by the contents of a file or store, not by the arguments of the
    /// command.
    pub fn into_refused(self) -> Failure {
        match self {
            Failure::Usage(text) => Failure::Refused(text),
            failure => failure,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::Pipe;
        }
        Failure::Refused(error.to_string())
    }
}

/// Prints the message of a failure on stderr. Returns the exit status for `result`.
pub fn report(result: Result) -> u8 {
    let (code, text) = match result {
        Ok(Answer::Yes) | Err(Failure::Pipe) => return 0,
        Ok(Answer::No) => return 1,
        Err(Failure::Reported(code)) => return code,
        Err(Failure::Missing(text)) => (1, text),
        Err(Failure::Usage(text)) => (2, text),
        Err(Failure::Refused(text) | Failure::Damaged(text) | Failure::Busy(text)) => (3, text),
    };
    say!("kvstore: {text}");
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_contains_message_and_advice_of_command() {
        let place = tempfile::tempdir().unwrap();
        let store = kvstore::Store::open(place.path().join("a.db")).unwrap();
        let missing = store.family("none").err().unwrap();
        assert_eq!(missing.hint(), Some(Hint::CreateFamily));
        let Failure::Missing(text) = Failure::in_context("line 3: ", &missing) else { panic!() };
        assert!(text.starts_with("line 3: there is no family \"none\"\n  \"kvstore families\""), "{text}");
        let Failure::Usage(text) = store.put("", "").unwrap_err().into() else { panic!() };
        assert!(!text.contains("Config") && !text.contains("kvstore::"), "{text}");
    }
}

//! The outcome of a command: its exit status, and an error message that says what failed and what
//! to do.

use std::io::{self, Write as _};
use std::path::Path;

use clap::error::{ContextKind, ContextValue};
use kvstore::{ErrorKind, Hint};

use crate::output::of_standard_output;
use crate::system;

/// The outcome of a command that ran.
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

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// Not found: exit status 1.
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
    /// Already reported by a line of the interactive shell: its exit status.
    Reported(u8),
}

pub type Result<T = Answer> = std::result::Result<T, Failure>;

pub fn usage<T>(text: impl Into<String>) -> Result<T> {
    Err(Failure::Usage(text.into()))
}

pub fn refused<T>(text: impl Into<String>) -> Result<T> {
    Err(Failure::Refused(text.into()))
}

/// Prints an error of the argument parser, or the help or version that was asked for. Returns the exit status.
pub fn report_arguments(error: clap::Error) -> u8 {
    let error = explain(error);
    let printed = error.print().and_then(|()| io::stdout().flush());
    if error.use_stderr() {
        return u8::try_from(error.exit_code()).unwrap_or(2); // nothing else could tell of it
    }
    report(printed.map_err(of_standard_output).map_or_else(|e| Err(e.into()), |()| Ok(Answer::Yes)))
}

/// Adds a tip to an error of the argument parser.
pub fn explain(mut error: clap::Error) -> clap::Error {
    let text = |error: &clap::Error, kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(" "),
        _ => String::new(),
    };
    let wrong = text(&error, ContextKind::InvalidArg);
    let tip = match error.kind() {
        clap::error::ErrorKind::InvalidUtf8 => {
            Some("write a byte that is not UTF-8 as \\xff, or use --hex or --base64".to_owned())
        }
        clap::error::ErrorKind::TooManyValues if wrong.ends_with("password") => {
            error.insert(ContextKind::InvalidValue, ContextValue::String("...".to_owned()));
            Some(
                "--password takes no value, because other users can see the arguments of a process: leave the value out \
                 to be asked for the password, or use --password-file or --password-env"
                    .to_owned(),
            )
        }
        clap::error::ErrorKind::UnknownArgument => {
            // clap suggests "pass it after --" for any unknown option, which would make a key of a
            // misspelled one.
            error.remove(ContextKind::Suggested);
            match wrong.as_bytes() {
                [b'-', b'0'..=b'9', ..] => Some(
                    "numbers and durations cannot be negative here; write a key that starts with '-' after '--', or \
                     as --prefix=-1"
                        .to_owned(),
                ),
                [first, ..] if *first != b'-' => {
                    let usage = match error.get(ContextKind::Usage) {
                        Some(ContextValue::StyledStr(usage)) => usage.to_string(),
                        _ => String::new(),
                    };
                    Some(match usage.contains("kvstore families") {
                        true => "the commands of 'families' are create, set and drop".to_owned(),
                        false => "quote a key or value that has spaces".to_owned(),
                    })
                }
                [b'-', other, ..] if *other != b'-' => Some(
                    "write a key that starts with '-' after '--'; as the value of an option, write --prefix=-x".to_owned(),
                ),
                _ => None,
            }
        }
        clap::error::ErrorKind::InvalidSubcommand => {
            let tip = about_command(&text(&error, ContextKind::InvalidSubcommand));
            let is_known = error.get(ContextKind::SuggestedSubcommand).is_some();
            if tip.is_some() {
                error.remove(ContextKind::SuggestedSubcommand);
            }
            tip.or_else(|| (!is_known).then(|| "'kvstore --help' lists the commands".to_owned()))
        }
        clap::error::ErrorKind::MissingRequiredArgument
            if text(&error, ContextKind::InvalidArg).contains("<KEY") =>
        {
            std::env::var_os(crate::store_arg::VARIABLE).map(|_| {
                "write '-' before the key to use the store of $KVSTORE: kvstore get - KEY".to_owned()
            })
        }
        _ => None,
    };
    if let Some(tip) = tip {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// Commands of other tools, and what does the same here. (Names that mean exactly a command here
/// are its aliases.)
const ELSEWHERE: [(&str, &str); 28] = [
    ("append", "'kvstore get' and 'kvstore put' read and write whole values"),
    ("cat", "'kvstore get' prints a value"),
    ("clear", "'kvstore del STORE --all' removes all keys of a family"),
    ("cli", "'kvstore shell' is interactive"),
    ("clone", "'kvstore backup' copies a store to a new file, 'kvstore copy' into another store"),
    ("cp", "'kvstore backup' copies a store to a new file, 'kvstore copy' into another store"),
    ("create", "'kvstore put' and 'kvstore families STORE create NAME' create the store"),
    ("dbsize", "'kvstore count' counts keys"),
    ("decr", "'kvstore incr STORE KEY -1' decrements"),
    ("drop", "'kvstore families STORE drop NAME' drops a family"),
    ("export", "'kvstore dump' writes everything as JSON lines, 'kvstore scan --json' a range of keys"),
    ("find", "'kvstore ls STORE PREFIX' lists keys that start with PREFIX"),
    ("flush", "'kvstore sync' makes commits durable; 'kvstore del STORE --all' removes all keys of a family"),
    ("flushall", "'kvstore del STORE --all' removes all keys of a family"),
    ("flushdb", "'kvstore del STORE --all' removes all keys of a family"),
    ("fsck", "'kvstore check' checks a store"),
    ("grep", "'kvstore scan' prints keys and values, to be filtered by grep"),
    ("has", "'kvstore exists' tests for a key"),
    ("init", "'kvstore put' and 'kvstore families STORE create NAME' create the store"),
    ("mget", "'kvstore scan STORE PREFIX' prints the values of many keys"),
    ("monitor", "'kvstore watch' shows a store live"),
    ("mv", "copy a key with 'kvstore get' and 'kvstore put', then 'kvstore del'"),
    ("open", "'kvstore shell' is interactive"),
    ("rename", "copy a key with 'kvstore get' and 'kvstore put', then 'kvstore del'"),
    ("restore", "a backup is a store: copy its file back; 'kvstore load' loads a dump"),
    ("size", "'kvstore info' shows sizes, 'kvstore count' counts keys"),
    ("top", "'kvstore watch' shows a store live"),
    ("verify", "'kvstore check' checks a store"),
];

/// A tip about a word that is no command.
fn about_command(word: &str) -> Option<String> {
    if let Some((_, tip)) = ELSEWHERE.iter().find(|(name, _)| word.eq_ignore_ascii_case(name)) {
        return Some((*tip).to_owned());
    }
    let is_store =
        crate::store_arg::is_url(Path::new(word)) || Path::new(word).is_file() || word.ends_with(".db");
    let shown = crate::store_arg::shown(Path::new(word));
    is_store.then(|| {
        format!("the command comes before the store: 'kvstore info {shown}' or 'kvstore shell {shown}'")
    })
}

/// Renders a hint of the library in the words of the command; `None` if it does not apply to a
/// command, which opens its own handles and runs its own transactions.
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

/// Returns `true` for advice about files, which is wrong for a store on a server.
fn is_about_files(hint: Hint) -> bool {
    matches!(
        hint,
        Hint::CheckIntegrity | Hint::Repair | Hint::RepairFile | Hint::Recover | Hint::FreeDiskSpace
    )
}

/// Returns what to do about an error.
fn advice_of(error: &kvstore::Error) -> Option<String> {
    let is_in_a_file = !error.is_from_server();
    let hint = error.hint().filter(|hint| is_in_a_file || !is_about_files(*hint));
    let text = match (hint, error.kind()) {
        (Some(Hint::FreeDiskSpace), _) => {
            let advice = advice(Hint::FreeDiskSpace).unwrap_or_default();
            return Some(format!("{advice}; {}", system::DISK_SPACE_ADVICE));
        }
        // Each run of a command rolls back the transaction of a killed process.
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
    /// Converts an error of the library, with a context before its message, such as "line 7: ".
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

    /// Makes a usage error of the library a store error: for commands whose arguments were valid, and
    /// that were refused for the contents of a file or store.
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

/// Reports a failure on stderr and returns the exit status.
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

    #[test]
    fn unknown_command_gets_tip_if_known_from_other_tools() {
        assert!(about_command("FLUSHALL").unwrap().contains("kvstore del STORE --all"));
        assert!(about_command("app.db").unwrap().contains("'kvstore info app.db'"));
        assert!(about_command("nonsense").is_none());
        let definition = crate::cli::definition();
        for (word, _) in ELSEWHERE {
            assert!(definition.find_subcommand(word).is_none(), "{word} is a command");
        }
    }
}

//! The outcome of a command: its exit status, and an error message that says what failed and what
//! to do.

use std::io;
use std::path::Path;

use clap::error::{ContextKind, ContextValue};
use kvstore::ErrorKind;

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
    /// Already reported, by a line of the interactive shell or by a child process: its exit status.
    Reported(u8),
}

pub type Result<T = Answer> = std::result::Result<T, Failure>;

pub fn usage<T>(text: impl Into<String>) -> Result<T> {
    Err(Failure::Usage(text.into()))
}

pub fn refused<T>(text: impl Into<String>) -> Result<T> {
    Err(Failure::Refused(text.into()))
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
            std::env::var_os(crate::place::VARIABLE).map(|_| {
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
        crate::place::is_url(Path::new(word)) || Path::new(word).is_file() || word.ends_with(".db");
    let shown = crate::place::shown(Path::new(word));
    is_store.then(|| {
        format!("the command comes before the store: 'kvstore info {shown}' or 'kvstore shell {shown}'")
    })
}

/// What an error says, without the functions of C that would help a program.
fn said(error: &kvstore::Error) -> String {
    let text = error.to_string();
    let Some((before, after)) = text.split_once(" (kvstore_") else { return text };
    match after.split_once(')') {
        Some((_, after)) => format!("{before}{after}"),
        None => text,
    }
}

/// What was wrong with a damaged file, without what a program could do about it.
pub fn cause(error: &kvstore::Error) -> String {
    let text = said(error);
    text.split_once(": run the integrity check").map_or(text.as_str(), |(cause, _)| cause).to_owned()
}

impl From<kvstore::Error> for Failure {
    fn from(error: kvstore::Error) -> Failure {
        let text = match error.kind() {
            ErrorKind::Corrupt => cause(&error),
            _ => said(&error),
        };
        let hint = match error.kind() {
            ErrorKind::Busy | ErrorKind::Locked if error.is_from_server() => {
                return Failure::Busy(format!("{text}\n  try again, or wait longer with --timeout 60s"));
            }
            // Its text says what to do there.
            _ if error.is_from_server() => return Failure::Refused(text),
            ErrorKind::NotFound => return Failure::Missing(text),
            ErrorKind::Error if !error.is_failure() => return Failure::Usage(text),
            ErrorKind::Busy | ErrorKind::Locked => {
                return Failure::Busy(format!(
                    "{text}\n  another program is using the store: try again, or wait longer with --timeout 60s"
                ));
            }
            ErrorKind::Corrupt | ErrorKind::Error => {
                "\"kvstore check\" names what is wrong, \"kvstore repair\" mends it where it can be mended, and \
                 \"kvstore recover\" saves what can be read into a new file (not of an encrypted one)"
            }
            ErrorKind::NotADatabase => &format!(
                "give the path of a store{}. If it was one, \"kvstore recover\" saves what can be read",
                system::FILE_TYPE_ADVICE
            ),
            ErrorKind::Full => &format!(
                "\"kvstore info\" shows the store's own limit and what \"purge\" and \"compact\" could free, {}",
                system::DISK_SPACE_ADVICE
            ),
            _ => return Failure::Refused(text),
        };
        Failure::Refused(format!("{text}\n  {hint}"))
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

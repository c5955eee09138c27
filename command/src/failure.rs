//! What a command answers: the exit code, and a text that says what to do.

use std::io;

use clap::error::{ContextKind, ContextValue};
use kvstore::ErrorKind;

use crate::system;

/// How a command has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Exit code 0.
    Yes,
    /// Not found, not set, dead: exit code 1. Whatever there was to say was said.
    No,
}

impl Answer {
    pub fn from_bool(yes: bool) -> Answer {
        if yes { Answer::Yes } else { Answer::No }
    }
}

/// Why a command could not do what it was asked.
#[derive(Debug)]
pub enum Failure {
    /// There is no such thing: exit code 1.
    Missing(String),
    /// The command was called wrongly: exit code 2.
    Usage(String),
    /// The store, or the system below it, said no: exit code 3.
    Refused(String),
    /// The same, because the file itself is damaged: a recovery may help.
    Damaged(String),
    /// The same, because others are at it: later it may go.
    Busy(String),
    /// Whoever read our output has enough. No failure at all.
    Pipe,
    /// A line of the shell has failed, and said why: its exit code.
    Said(u8),
}

pub type Result<T = Answer> = std::result::Result<T, Failure>;

pub fn usage<T>(text: impl Into<String>) -> Result<T> {
    Err(Failure::Usage(text.into()))
}

pub fn refused<T>(text: impl Into<String>) -> Result<T> {
    Err(Failure::Refused(text.into()))
}

/// An error of the command line with the advice that fits this command.
pub fn explain(mut error: clap::Error) -> clap::Error {
    let wrong = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(wrong)) => wrong.clone(),
        _ => String::new(),
    };
    let tip = match error.kind() {
        clap::error::ErrorKind::InvalidUtf8 => {
            Some("write the bytes that are no text as \\xff, or all of it in hex, with --hex")
        }
        clap::error::ErrorKind::TooManyValues if wrong.ends_with("password") => {
            error.insert(ContextKind::InvalidValue, ContextValue::String("...".to_owned()));
            Some(
                "everybody on this machine can read a password in an argument: it is asked for, or comes from \
                 --password-file or --password-env",
            )
        }
        clap::error::ErrorKind::UnknownArgument => {
            // What clap says to an unknown option, "pass it after --", makes a key of it.
            error.remove(ContextKind::Suggested);
            match wrong.as_bytes() {
                [b'-', b'0'..=b'9', ..] => Some(
                    "numbers and durations are not less than 0; a key that begins with '-' comes after a '--', or is \
                     the value of an option with a '=', as in --prefix=-1",
                ),
                [b'-', other, ..] if *other != b'-' => Some(
                    "a key that begins with '-' comes after a '--'; as the value of an option it is --prefix=-x",
                ),
                _ => None,
            }
        }
        _ => None,
    };
    if let Some(tip) = tip {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
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
            ErrorKind::Busy | ErrorKind::Locked if error.is_of_server() => {
                return Failure::Busy(format!("{text}\n  try again, or wait longer with --timeout 60s"));
            }
            // Its text says what to do there.
            _ if error.is_of_server() => return Failure::Refused(text),
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
                system::WHAT_IT_IS
            ),
            ErrorKind::Full => &format!(
                "\"kvstore info\" shows the store's own limit and what \"purge\" and \"compact\" could free, {}",
                system::ROOM
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

/// Says what went wrong, on stderr, and turns it into the exit code.
pub fn report(result: Result) -> u8 {
    let (code, text) = match result {
        Ok(Answer::Yes) | Err(Failure::Pipe) => return 0,
        Ok(Answer::No) => return 1,
        Err(Failure::Said(code)) => return code,
        Err(Failure::Missing(text)) => (1, text),
        Err(Failure::Usage(text)) => (2, text),
        Err(Failure::Refused(text) | Failure::Damaged(text) | Failure::Busy(text)) => (3, text),
    };
    say!("kvstore: {text}");
    code
}

//! Errors of the argument parser, with tips.

use std::io::{self, Write as _};
use std::path::Path;

use clap::error::{ContextKind, ContextValue};

use crate::failure::{Answer, report};
use crate::output::of_standard_output;
use crate::store_arg::{VARIABLE, is_url, shown};

/// Prints an error of the argument parser, or the help or version that was asked for. Returns the
/// exit status.
pub fn report_arguments(error: clap::Error) -> u8 {
    let error = explain(error);
    let printed = error.print().and_then(|()| io::stdout().flush());
    if error.use_stderr() {
        return u8::try_from(error.exit_code()).unwrap_or(2); // a failed write cannot be reported
    }
    report(printed.map_err(of_standard_output).map_or_else(|e| Err(e.into()), |()| Ok(Answer::Yes)))
}

/// Adds a tip for the user to an error of the argument parser, if there is one for this error.
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
            // For any unknown option, clap suggests passing it after "--". A misspelled option
            // would then become a key.
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
            std::env::var_os(VARIABLE).map(|_| {
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

/// Command names of other tools, and the tip that is printed for each. (A name that means exactly
/// the same as a command of kvstore is an alias of that command instead.)
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

/// Returns a tip for a word that is not a command: a command name of another tool, or a store.
/// Returns `None` for any other word.
fn about_command(word: &str) -> Option<String> {
    if let Some((_, tip)) = ELSEWHERE.iter().find(|(name, _)| word.eq_ignore_ascii_case(name)) {
        return Some((*tip).to_owned());
    }
    let is_store = is_url(Path::new(word)) || Path::new(word).is_file() || word.ends_with(".db");
    let shown = shown(Path::new(word));
    is_store.then(|| {
        format!("the command comes before the store: 'kvstore info {shown}' or 'kvstore shell {shown}'")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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

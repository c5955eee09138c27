//! What the shell offers for the word that is being typed: commands, options, families, keys, files.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Command, ValueHint};
use kvstore::{Direction, KeyRange, Store};
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use crate::bytes::Form;
use crate::place::{self, For, OpenArgs};
use crate::secret::Secrets;

/// Keys that are offered at most.
const KEYS: usize = 50;

/// What it knows of the shell.
pub struct Completions {
    pub definition: Command,
    pub path: PathBuf,
    pub form: Form,
    /// The family of commands that name none.
    pub family: Option<String>,
    /// Whether the prompt is coloured.
    pub colored: bool,
    pub files: FilenameCompleter,
    /// What the store is opened with, if that is known.
    pub secrets: Secrets,
}

impl Helper for Completions {}
impl Validator for Completions {}

impl Hinter for Completions {
    type Hint = String;
}

impl Highlighter for Completions {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(
        &'s self,
        prompt: &'p str,
        _default: bool,
    ) -> std::borrow::Cow<'b, str> {
        if self.colored {
            let style = crate::output::BOLD;
            format!("{style}{prompt}{style:#}").into()
        } else {
            prompt.into()
        }
    }
}

impl Completer for Completions {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        at: usize,
        context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let line = line.get(..at).unwrap_or(line);
        let start = start_of_word(line);
        let (before, word) = line.split_at(start);
        let (words, typed) = (shlex::split(before).unwrap_or_default(), unquoted(word));
        let mut offered = match self.offer(&words, &typed) {
            Offer::Files => return self.files.complete(line, at, context),
            Offer::Words(offered) => offered,
            Offer::Families => self.families().unwrap_or_default(),
            Offer::Keys => self.keys(&words, &typed).unwrap_or_default(),
        };
        offered.retain(|offered| offered.starts_with(&typed));
        let is_only_one = offered.len() == 1;
        let pair = |display: String| {
            let quoted = shlex::try_quote(&display).ok()?;
            let replacement = if is_only_one { format!("{quoted} ") } else { quoted.into_owned() };
            Some(Pair { display, replacement })
        };
        Ok((start, offered.into_iter().filter_map(pair).collect()))
    }
}

/// What can stand there.
#[derive(Debug, PartialEq, Eq)]
enum Offer {
    Words(Vec<String>),
    Families,
    Keys,
    Files,
}

impl Completions {
    fn offer(&self, words: &[String], typed: &str) -> Offer {
        let mut command = &self.definition;
        let mut given = words.iter();
        let mut positionals = 0;
        let mut option: Option<&Arg> = None;
        while let Some(word) = given.next() {
            if command.get_name() == "help" {
                break; // the words are commands
            }
            if let Some(of) = self.option_of(command, word) {
                if takes_value(of) && !word.contains('=') && given.next().is_none() {
                    option = Some(of);
                }
            } else if let Some(sub) = command.find_subcommand(word) {
                command = sub;
            } else if !word.starts_with('-') {
                positionals += 1;
            }
        }
        let names = |command: &Command| {
            let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
            shown.map(|sub| sub.get_name().to_owned()).collect::<Vec<_>>()
        };
        if let Some(option) = option {
            return of_value(option);
        }
        if words.is_empty() {
            let mut names = names(command);
            names.push("help".to_owned());
            return Offer::Words(names);
        }
        if words.first().is_some_and(|word| word == "help") {
            return Offer::Words(names(&self.definition));
        }
        if typed.starts_with('-') {
            let options = command.get_arguments().chain(self.definition.get_arguments());
            let shown = options.filter(|arg| !arg.is_hide_set()).filter_map(Arg::get_long);
            return Offer::Words(shown.map(|long| format!("--{long}")).collect());
        }
        let mut places = command.get_positionals().filter(|arg| !arg.is_hide_set());
        match places.nth(positionals).or_else(|| command.get_positionals().last().filter(|arg| is_many(arg)))
        {
            Some(arg) => of_value(arg),
            None => Offer::Words(names(command)),
        }
    }

    /// The option of the command, or of all commands, that a word is.
    fn option_of<'a>(&'a self, command: &'a Command, word: &str) -> Option<&'a Arg> {
        let name = word.split('=').next().unwrap_or(word);
        command.get_arguments().chain(self.definition.get_arguments()).find(|arg| {
            match name.strip_prefix("--") {
                Some(long) => arg.get_long() == Some(long),
                None => {
                    let short = name.strip_prefix('-').and_then(|short| short.parse().ok());
                    short.is_some() && arg.get_short() == short
                }
            }
        })
    }

    fn store(&self) -> Option<Store> {
        place::open(&self.path, For::Looking, &OpenArgs { timeout: Duration::ZERO }, &self.secrets).ok()
    }

    fn families(&self) -> Option<Vec<String>> {
        let store = self.store()?;
        let mut names = vec![store.default_family().name().to_owned()];
        names.extend(store.family_names().ok()?);
        Some(names)
    }

    /// The first keys of the line's family that begin with what is typed.
    fn keys(&self, words: &[String], typed: &str) -> Option<Vec<String>> {
        let store = self.store()?;
        let named = words.iter().enumerate().find_map(|(at, word)| match word.as_str() {
            "-f" | "--family" => words.get(at + 1).map(String::as_str),
            word => word.strip_prefix("--family="),
        });
        let family = match named.or(self.family.as_deref()) {
            Some(name) => store.family(name).ok()?,
            None => store.family(store.default_family().name()).ok()?,
        };
        let prefix = self.form.parse(typed, "key").ok()?;
        let mut cursor = family.cursor(KeyRange::prefix(&prefix), Direction::Forward).keys_only();
        cursor.first().ok()?;
        let keys = cursor.fetch(KEYS).ok()?;
        Some(keys.map(|entry| self.form.show(entry.key).into_owned()).collect())
    }
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

/// Whether it stands for all words from its place on.
fn is_many(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|number| number.max_values() > 1)
        || matches!(arg.get_action(), clap::ArgAction::Append)
}

fn of_value(arg: &Arg) -> Offer {
    let possible = arg.get_possible_values();
    if !possible.is_empty() {
        return Offer::Words(possible.iter().map(|value| value.get_name().to_owned()).collect());
    }
    let names = arg.get_value_names().unwrap_or_default();
    let means =
        |name: &str| arg.get_id() == name || names.iter().any(|given| given.eq_ignore_ascii_case(name));
    match arg.get_value_hint() {
        ValueHint::FilePath | ValueHint::AnyPath | ValueHint::DirPath => Offer::Files,
        _ if means("family") => Offer::Families,
        _ if means("key") || means("keys") || means("prefix") => Offer::Keys,
        _ => Offer::Words(Vec::new()),
    }
}

/// Where the last word of a line begins, by the rules of `sh`.
fn start_of_word(line: &str) -> usize {
    let begins = |at: &usize| {
        let Some(before) = line.get(..*at) else { return false };
        // A new word begins here if a letter would be one: after white space that is in no quotes.
        let words = |line: &str| shlex::split(line).map(|words| words.len());
        match (words(before), words(&format!("{before}x"))) {
            (Some(so_far), Some(more)) => more == so_far + 1,
            _ => false,
        }
    };
    (0..=line.len()).rev().find(begins).unwrap_or_default()
}

/// What has been typed of a word whose quotes need not be closed yet.
fn unquoted(word: &str) -> String {
    let whole = word.strip_suffix('\\').unwrap_or(word);
    [whole.to_owned(), format!("{whole}'"), format!("{whole}\"")]
        .iter()
        .find_map(|word| shlex::split(word))
        .and_then(|words| words.into_iter().next())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_begins_after_white_space_that_is_in_no_quotes() {
        for (line, start, typed) in [
            ("", 0, ""),
            ("ge", 0, "ge"),
            ("get ", 4, ""),
            ("get us", 4, "us"),
            ("get 'a b", 4, "a b"),
            ("get \"a b", 4, "a b"),
            ("get a\\ b", 4, "a b"),
            ("get 'a b' c", 10, "c"),
            ("get 'a b", 4, "a b"),
            ("put k 'v' --t", 10, "--t"),
            ("get ä", 4, "ä"),
        ] {
            assert_eq!(start_of_word(line), start, "{line}");
            assert_eq!(unquoted(&line[start..]), typed, "{line}");
        }
    }

    #[test]
    fn each_place_of_a_line_has_its_words() {
        let shell = super::super::shell::Lines::for_tests();
        let completions = Completions {
            definition: shell.definition(),
            path: PathBuf::from("/nowhere"),
            form: Form::Text,
            family: None,
            colored: false,
            files: FilenameCompleter::new(),
            secrets: Secrets::default(),
        };
        let offer = |line: &str| {
            let start = start_of_word(line);
            completions.offer(&shlex::split(&line[..start]).unwrap(), &unquoted(&line[start..]))
        };
        let has = |line: &str, word: &str| match offer(line) {
            Offer::Words(words) => words.iter().any(|offered| offered == word),
            _ => false,
        };
        assert!(has("ge", "get") && has("ge", "help") && has("ge", "use") && has("", "quit"));
        assert!(!has("", "man") && !has("", "shell") && !has("", "completions"));
        assert!(has("help ", "purge"));
        assert!(has("get --", "--family") && has("get --", "--json") && !has("get --", "--store"));
        assert!(has("get k --color ", "always"));
        for line in ["get ", "get a", "get -f x a", "exists ", "get --json "] {
            assert_eq!(offer(line), Offer::Keys, "{line}");
        }
        for line in ["get k -f ", "get -f ", "get --family ", "use ", "purge -f "] {
            assert_eq!(offer(line), Offer::Families, "{line}");
        }
        assert_eq!(offer("next --timeout "), Offer::Words(Vec::new()));
    }
}

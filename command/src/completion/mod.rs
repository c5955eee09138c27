//! Completion of the word under the cursor: commands, options, values, families, keys and files. It
//! serves the interactive shell (`interactive/complete.rs`) and, through the hidden command `complete`,
//! the shells of the system (`shells.rs`).

mod shells;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Command, ValueHint};
use kvstore::{Direction, KeyRange, Store};

use crate::bytes::Form;
use crate::secret::Secrets;
use crate::store_arg::{self, OpenArgs, Purpose};

pub use shells::{CompleteArgs, script};

/// Maximum number of completions that are offered for a word.
const MOST: usize = 100;

/// A word that is offered as a completion, and its description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub word: String,
    pub help: Option<String>,
}

impl Candidate {
    fn new(word: impl Into<String>) -> Candidate {
        Candidate { word: word.into(), help: None }
    }
}

/// The completions that are offered for a word.
#[derive(Debug, PartialEq, Eq)]
pub enum Offer {
    Words(Vec<Candidate>),
    /// The word is a file name, which the caller completes.
    Files,
}

/// The kind of word that is expected at the cursor.
#[derive(Debug, PartialEq, Eq)]
enum Expected {
    Words(Vec<Candidate>),
    Families,
    Keys,
    Files,
}

/// The store that families and keys are read from.
pub enum Source {
    /// The store with this path, as in the interactive shell.
    Fixed(PathBuf),
    /// The store named by the command line.
    Named,
}

/// Completes words of a command line.
pub struct Completer {
    pub definition: Command,
    pub source: Source,
    /// Encoding of keys, unless the line has `--hex` or `--base64`.
    pub form: Form,
    /// The family of a line that names none; if `None`, the default family.
    pub family: Option<String>,
    pub secrets: Secrets,
}

/// The parsed words before the cursor: subcommand, arguments and options.
struct Parsed<'a> {
    command: &'a Command,
    positionals: Vec<&'a str>,
    /// The parent of `command`, and its positional arguments: those of `families` in `families ...
    /// drop`. `None` if the words before the cursor name no subcommand.
    outer: Option<(&'a Command, Vec<&'a str>)>,
    /// The option whose value is under the cursor; `None` if the cursor is elsewhere.
    option: Option<&'a Arg>,
    /// Whether the command is `help`, whose argument is the name of a command.
    is_help: bool,
    /// Whether the words include `--`, after which no word is an option.
    after_dashes: bool,
}

impl Completer {
    /// Completes `typed`, the unquoted word under the cursor, given the words before it. All
    /// candidates start with `typed`. Errors give no candidates.
    pub fn complete(&self, words: &[String], typed: &str) -> Offer {
        // `--family=web`: the value is completed, and the name kept.
        if let (true, Some((name, value))) = (typed.starts_with("--"), typed.split_once('=')) {
            let words = [words, &[name.to_owned()]].concat();
            return match self.complete(&words, value) {
                Offer::Words(offered) => Offer::Words(
                    offered
                        .into_iter()
                        .map(|offered| Candidate { word: format!("{name}={}", offered.word), ..offered })
                        .collect(),
                ),
                Offer::Files => Offer::Files,
            };
        }
        let parsed = self.parse(words);
        let mut offered = match self.expected(&parsed, words, typed) {
            Expected::Files => return Offer::Files,
            Expected::Words(offered) => offered,
            Expected::Families => self.families(&parsed).unwrap_or_default(),
            Expected::Keys => self.keys(&parsed, words, typed).unwrap_or_default(),
        };
        offered.retain(|offered| offered.word.starts_with(typed));
        offered.truncate(MOST);
        Offer::Words(offered)
    }

    fn parse<'a>(&'a self, words: &'a [String]) -> Parsed<'a> {
        let mut parsed = Parsed {
            command: &self.definition,
            positionals: Vec::new(),
            outer: None,
            option: None,
            is_help: false,
            after_dashes: false,
        };
        let mut given = words.iter();
        while let Some(word) = given.next() {
            let is_option = !parsed.after_dashes && word.len() > 1 && word.starts_with('-');
            if is_option && word == "--" {
                parsed.after_dashes = true;
            } else if is_option {
                let option = self.option_of(parsed.command, word);
                if let Some(option) = option.filter(|option| takes_value(option))
                    && !has_value(word)
                    && given.next().is_none()
                {
                    parsed.option = Some(option);
                }
            } else if !parsed.command.has_subcommands() {
                parsed.positionals.push(word);
            } else if parsed.command.get_name() == self.definition.get_name() && word == "help" {
                parsed.is_help = true;
                break;
            } else if let Some(sub) = parsed.command.find_subcommand(word) {
                let positionals = std::mem::take(&mut parsed.positionals);
                parsed.outer = Some((parsed.command, positionals));
                parsed.command = sub;
            } else {
                parsed.positionals.push(word);
            }
        }
        parsed
    }

    fn expected(&self, parsed: &Parsed<'_>, words: &[String], typed: &str) -> Expected {
        if let Some(option) = parsed.option {
            return of_value(parsed.command, option);
        }
        if parsed.is_help {
            return Expected::Words(names(&self.definition));
        }
        if words.is_empty() || typed.starts_with('-') && typed != "-" && !parsed.after_dashes {
            let mut offered = Vec::new();
            if words.is_empty() {
                offered = names(parsed.command);
                if parsed.command.find_subcommand("help").is_none() {
                    offered.push(Candidate { word: "help".to_owned(), help: Some("Print help".to_owned()) });
                }
            }
            offered.extend(self.options(parsed.command));
            return Expected::Words(offered);
        }
        let mut positionals = parsed.command.get_positionals().filter(|arg| !arg.is_hide_set());
        let next = positionals.nth(parsed.positionals.len());
        match next.or_else(|| parsed.command.get_positionals().last().filter(|arg| is_many(arg))) {
            Some(arg) => of_value(parsed.command, arg),
            None => Expected::Words(names(parsed.command)),
        }
    }

    /// Returns the visible options of a command and the global options.
    fn options(&self, command: &Command) -> Vec<Candidate> {
        let globals = self.definition.get_arguments().filter(|arg| arg.is_global_set());
        let options = command.get_arguments().filter(|arg| !arg.is_global_set()).chain(globals);
        let shown = options.filter(|arg| !arg.is_hide_set()).filter_map(|arg| {
            Some(Candidate {
                word: format!("--{}", arg.get_long()?),
                help: arg.get_help().map(|help| first_line(&help.to_string())),
            })
        });
        shown.collect()
    }

    /// Returns the option that a word such as `-f` or `--family=web` names, among the options of
    /// the command and the global options; `None` if there is none.
    fn option_of<'a>(&'a self, command: &'a Command, word: &str) -> Option<&'a Arg> {
        let name = word.split('=').next().unwrap_or(word);
        command.get_arguments().chain(self.definition.get_arguments()).find(|arg| {
            match name.strip_prefix("--") {
                Some(long) => arg.get_long() == Some(long),
                None => {
                    let short = name.strip_prefix('-').and_then(|short| short.chars().next());
                    short.is_some() && arg.get_short() == short
                }
            }
        })
    }

    /// Opens the store for reading, without waiting for locks or asking for a password. Returns
    /// `None` if it cannot be opened, or if the line names no store or one on a server.
    fn store(&self, parsed: &Parsed<'_>) -> Option<Store> {
        let path = match &self.source {
            Source::Fixed(path) => path.clone(),
            Source::Named => {
                let is_store = |arg: &&Arg| arg.get_id() == "store" || arg.get_id() == "from";
                let (command, positionals) = match &parsed.outer {
                    Some((outer, positionals)) if outer.get_positionals().next().is_some() => {
                        (*outer, positionals)
                    }
                    _ => (parsed.command, &parsed.positionals),
                };
                let is_store = command.get_positionals().next().as_ref().is_some_and(is_store);
                let named = positionals.first().copied().unwrap_or("-");
                // A server that does not answer would make the shell wait.
                store_arg::path(named).ok().filter(|path| is_store && !store_arg::is_url(path))?
            }
        };
        store_arg::open(&path, Purpose::Read, &OpenArgs { timeout: Duration::ZERO }, &self.secrets).ok()
    }

    fn families(&self, parsed: &Parsed<'_>) -> Option<Vec<Candidate>> {
        let store = self.store(parsed)?;
        let mut names = vec![store.default_family().name().to_owned()];
        names.extend(store.family_names().ok()?);
        // Family names are typed without escapes, so names with control characters cannot be
        // completed.
        names.retain(|name| !name.contains(char::is_control));
        Some(names.into_iter().map(Candidate::new).collect())
    }

    /// Returns the first keys of the family that start with `typed`, in the encoding that the line
    /// uses; `None` after an error.
    fn keys(&self, parsed: &Parsed<'_>, words: &[String], typed: &str) -> Option<Vec<Candidate>> {
        let store = self.store(parsed)?;
        let family = match self.named_family(words).or(self.family.as_deref()) {
            Some(name) => store.family(name).ok()?,
            None => store.family(store.default_family().name()).ok()?,
        };
        let has = |option: &str| words.iter().any(|word| word == option);
        let form = match (has("--hex"), has("--base64")) {
            (true, _) => Form::Hex,
            (_, true) => Form::Base64,
            _ => self.form,
        };
        let prefix = prefix_of(form, typed)?;
        let mut cursor = family.cursor(KeyRange::prefix(&prefix), Direction::Forward).keys_only();
        cursor.first().ok()?;
        let mut keys = Vec::new();
        while keys.len() < MOST {
            let fetched = cursor.fetch(MOST - keys.len()).ok()?;
            if fetched.len() == 0 {
                break;
            }
            keys.extend(fetched.map(|entry| Candidate::new(form.show(entry.key).into_owned())));
        }
        Some(keys)
    }

    fn named_family<'a>(&self, words: &'a [String]) -> Option<&'a str> {
        words.iter().enumerate().find_map(|(at, word)| match word.as_str() {
            "-f" | "--family" => words.get(at + 1).map(String::as_str),
            word if word.starts_with("--") => word.strip_prefix("--family="),
            word => word.strip_prefix("-f").map(|name| name.strip_prefix('=').unwrap_or(name)),
        })
    }
}

/// Decodes a partly typed key to bytes. Leaves out an escape or a group of digits at its end that
/// is incomplete. Returns `None` if the text before that is not valid.
fn prefix_of(form: Form, typed: &str) -> Option<Vec<u8>> {
    let ends = typed.char_indices().map(|(at, _)| at).rev();
    let whole = [typed.len()].into_iter().chain(ends).take(4);
    whole.filter_map(|end| typed.get(..end)).find_map(|part| form.parse(part, "key").ok())
}

fn names(command: &Command) -> Vec<Candidate> {
    let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    shown
        .map(|sub| Candidate {
            word: sub.get_name().to_owned(),
            help: sub.get_about().map(|about| first_line(&about.to_string())),
        })
        .collect()
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

/// Returns `true` if the word of an option includes its value: `--name=value` or `-nvalue`.
fn has_value(word: &str) -> bool {
    word.contains('=') || !word.starts_with("--") && word.chars().count() > 2
}

/// Returns `true` for a positional argument that takes all further words.
fn is_many(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|number| number.max_values() > 1)
        || matches!(arg.get_action(), clap::ArgAction::Append)
}

/// Returns the kind of word that is expected as the value of an argument of `command`.
fn of_value(command: &Command, arg: &Arg) -> Expected {
    let possible = arg.get_possible_values();
    if !possible.is_empty() {
        return Expected::Words(
            possible
                .iter()
                .map(|value| Candidate {
                    word: value.get_name().to_owned(),
                    help: value.get_help().map(|help| first_line(&help.to_string())),
                })
                .collect(),
        );
    }
    let names = arg.get_value_names().unwrap_or_default();
    let means =
        |name: &str| arg.get_id() == name || names.iter().any(|given| given.eq_ignore_ascii_case(name));
    match arg.get_value_hint() {
        ValueHint::FilePath | ValueHint::AnyPath | ValueHint::DirPath => Expected::Files,
        _ if means("family") || means("families") => Expected::Families,
        _ if arg.get_id() == "name" && ["set", "drop"].contains(&command.get_name()) => Expected::Families,
        _ if means("key") || means("keys") || means("prefix") => Expected::Keys,
        _ => Expected::Words(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completer(definition: Command, source: Source) -> Completer {
        Completer { definition, source, form: Form::Text, family: None, secrets: Secrets::default() }
    }

    fn expected(completer: &Completer, words: &[&str], typed: &str) -> Expected {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        completer.expected(&completer.parse(&words), &words, typed)
    }

    fn has(completer: &Completer, words: &[&str], typed: &str, word: &str) -> bool {
        match expected(completer, words, typed) {
            Expected::Words(words) => words.iter().any(|offered| offered.word == word),
            _ => false,
        }
    }

    #[test]
    fn shell_line_completes_words_by_position() {
        let lines = crate::interactive::shell::Lines::for_tests();
        let shell = completer(lines.definition(), Source::Fixed("/nowhere".into()));
        for word in ["get", "help", "use", "quit"] {
            assert!(has(&shell, &[], "", word), "{word}");
        }
        for word in ["man", "shell", "completions", "complete"] {
            assert!(!has(&shell, &[], "", word), "{word}");
        }
        assert!(has(&shell, &["help"], "", "purge"));
        assert!(has(&shell, &["get"], "--", "--family") && has(&shell, &["get"], "--", "--json"));
        assert!(!has(&shell, &["get"], "--", "--store"));
        assert!(has(&shell, &["get", "k", "--color"], "", "always"));
        for words in
            [&["get"][..], &["get", "-f", "x"], &["exists"], &["get", "--json"], &["ls"], &["del", "a", "b"]]
        {
            assert_eq!(expected(&shell, words, "a"), Expected::Keys, "{words:?}");
        }
        for words in [&["get", "k", "-f"][..], &["get", "--family"], &["use"], &["purge", "-f"]] {
            assert_eq!(expected(&shell, words, ""), Expected::Families, "{words:?}");
        }
        assert_eq!(expected(&shell, &["next", "--timeout"], ""), Expected::Words(Vec::new()));
    }

    #[test]
    fn command_line_completes_words_by_position() {
        let mut definition = crate::cli::definition();
        definition.build();
        let whole = completer(definition, Source::Named);
        assert!(
            has(&whole, &[], "", "get") && has(&whole, &[], "", "shell") && has(&whole, &[], "", "--version")
        );
        assert!(!has(&whole, &[], "", "complete") && !has(&whole, &[], "", "man"));
        for words in
            [&["get"][..], &["put"], &["families"], &["ls"], &["copy"], &["copy", "a.db"], &["load", "a.db"]]
        {
            assert_eq!(expected(&whole, words, ""), Expected::Files, "{words:?}");
        }
        for words in
            [&["get", "a.db"][..], &["ls", "a.db"], &["keys", "a.db"], &["set", "a.db"], &["del", "-", "k"]]
        {
            assert_eq!(expected(&whole, words, ""), Expected::Keys, "{words:?}");
        }
        for words in
            [&["dump", "a.db", "-f"][..], &["families", "a.db", "drop"], &["families", "a.db", "set"]]
        {
            assert_eq!(expected(&whole, words, ""), Expected::Families, "{words:?}");
        }
        assert!(has(&whole, &["families", "a.db"], "", "create"));
        assert!(has(&whole, &["completions"], "", "fish"));
        assert_eq!(expected(&whole, &["get", "a.db", "--"], "-x"), Expected::Keys);
    }

    #[test]
    fn key_completion_uses_text_form_and_stops_at_limit() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.db");
        let store = Store::open(&path).unwrap();
        for n in 0..2 * MOST {
            store.put(format!("many:{n:04}"), "").unwrap();
        }
        for key in [&b"odd \xff'"[..], b"odd\n", "odd ä".as_bytes()] {
            store.put(key, "").unwrap();
        }
        store.put_with_expiry("odd expired", "", kvstore::Expiry::At(1)).unwrap();
        store.create_family("web").unwrap().put("in web", "").unwrap();
        let whole = completer(crate::cli::definition(), Source::Named);
        let path = path.to_str().unwrap();
        let offered = |words: &[&str], typed: &str| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            match whole.complete(&words, typed) {
                Offer::Words(words) => words.into_iter().map(|offered| offered.word).collect(),
                Offer::Files => vec!["FILES".to_owned()],
            }
        };
        assert_eq!(offered(&["get", path], "many:").len(), MOST);
        assert_eq!(offered(&["get", path], "many:0005"), ["many:0005"]);
        assert_eq!(offered(&["get", path], "odd"), ["odd\\n", "odd ä", "odd \\xff'"]);
        // An escape that is not complete yet.
        for typed in ["odd \\", "odd \\x", "odd \\xf"] {
            assert_eq!(offered(&["get", path], typed), ["odd \\xff'"], "{typed}");
        }
        assert_eq!(offered(&["get", path, "--hex"], "6f64640"), ["6f64640a"]);
        assert_eq!(offered(&["get", path, "-f", "web"], ""), ["in web"]);
        assert_eq!(offered(&["get", "-fweb", path], ""), ["in web"]);
        assert_eq!(offered(&["get", path, "--family"], ""), ["default", "web"]);
        assert_eq!(offered(&["get", path], "--family=w"), ["--family=web"]);
        assert_eq!(offered(&["get", path, "-f", "none"], ""), [""; 0]);
        assert_eq!(offered(&["get", "/nowhere/a.db"], ""), [""; 0]);
        assert_eq!(offered(&["get", "postgresql://nowhere/a"], ""), [""; 0]);
    }
}

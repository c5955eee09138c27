//! Completion in the interactive shell, by rustyline.

use clap::Command;
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use crate::bytes::Form;
use crate::completion::{self, Offer, Source};
use crate::secret::Secrets;

/// The helper of the line editor: completes words and formats the prompt.
pub struct Completions {
    completer: completion::Completer,
    files: FilenameCompleter,
    /// Whether the prompt is colored.
    colored: bool,
}

impl Completions {
    pub fn new(
        definition: Command,
        source: Source,
        form: Form,
        family: Option<String>,
        secrets: Secrets,
        colored: bool,
    ) -> Completions {
        let completer = completion::Completer { definition, source, form, family, secrets };
        Completions { completer, files: FilenameCompleter::new(), colored }
    }
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
        let words = shlex::split(before).unwrap_or_default();
        let offered = match self.completer.complete(&words, &unquoted(word)) {
            Offer::Files => return self.files.complete(line, at, context),
            Offer::Words(offered) => offered,
        };
        let is_only_one = offered.len() == 1;
        let pair = |display: String| {
            let quoted = shlex::try_quote(&display).ok()?;
            let replacement = if is_only_one { format!("{quoted} ") } else { quoted.into_owned() };
            Some(Pair { display, replacement })
        };
        Ok((start, offered.into_iter().filter_map(|offered| pair(offered.word)).collect()))
    }
}

/// Returns the byte offset at which the last word of a line starts, by the rules of `sh`. Returns
/// the length of the line if it ends with unquoted white space, because a new word starts there.
pub fn start_of_word(line: &str) -> usize {
    let begins = |at: &usize| {
        let Some(before) = line.get(..*at) else { return false };
        // A word starts here if a letter added here would be a further word: after unquoted white
        // space.
        let words = |line: &str| shlex::split(line).map(|words| words.len());
        match (words(before), words(&format!("{before}x"))) {
            (Some(so_far), Some(more)) => more == so_far + 1,
            _ => false,
        }
    };
    (0..=line.len()).rev().find(begins).unwrap_or_default()
}

/// Returns a partly typed word without its quotes and backslashes. The word may end within a quote
/// or an escape.
pub fn unquoted(word: &str) -> String {
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
    fn last_word_starts_after_unquoted_white_space() {
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
}

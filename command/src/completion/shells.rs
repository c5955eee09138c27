//! Completion in bash, zsh and fish. The completion script of each shell runs
//! `kvstore complete SHELL ...` for the word under the cursor. The command prints the line "files"
//! if the word is a file name, which the shell completes itself. Otherwise it prints the line
//! "words", and then a candidate per line. Errors are silent, because anything on the terminal
//! would disturb the line that is being typed.

use clap::Args;

use super::{Candidate, Completer, Offer, Source};
use crate::bytes::Form;
use crate::cli;
use crate::context::Context;
use crate::failure::{Answer, Result};
use crate::interactive::complete::{start_of_word, unquoted};

const BASH: &str = r#"# bash completion of kvstore
_kvstore() {
    local first=1 line
    COMPREPLY=()
    while IFS= read -r line; do
        if [[ $first ]]; then
            first=
            if [[ $line == files ]]; then
                compopt -o default 2>/dev/null
                return
            fi
        else
            COMPREPLY+=("$line")
        fi
    done < <("${COMP_WORDS[0]}" complete bash -- "${COMP_LINE:0:COMP_POINT}" "$COMP_WORDBREAKS" 2>/dev/null)
}
complete -F _kvstore kvstore
"#;

const ZSH: &str = r#"#compdef kvstore
# zsh completion of kvstore
_kvstore() {
    local -a lines plain described
    local line
    lines=("${(@f)$("${(Q)words[1]}" complete zsh -- "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    if [[ $lines[1] == files ]]; then
        _files
        return
    fi
    for line in "${(@)lines[2,-1]}"; do
        if [[ $line == *$'\t'* ]]; then
            described+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
        elif [[ -n $line ]]; then
            plain+=("$line")
        fi
    done
    (( $#described )) && _describe -t words word described
    (( $#plain )) && compadd -a plain
}
if [[ $funcstack[1] == _kvstore ]]; then
    _kvstore "$@"
else
    compdef _kvstore kvstore
fi
"#;

const FISH: &str = r#"# fish completion of kvstore
function __kvstore_complete
    set -l typed (commandline -ct)
    set -l plain (string unescape -- $typed)
    or set plain $typed
    set -l words
    for word in (commandline -opc)[2..-1]
        set -l unescaped (string unescape -- $word)
        or set unescaped $word
        set -a words $unescaped
    end
    set -l lines (command kvstore complete fish -- $words "$plain" 2>/dev/null)
    if test "$lines[1]" = files
        __fish_complete_path "$typed"
    else
        string join \n -- $lines[2..-1]
    end
end
complete -c kvstore -f -a '(__kvstore_complete)'
"#;

/// Returns the completion script of a shell; `None` for shells without a script that completes
/// families and keys.
pub fn script(shell: clap_complete::Shell) -> Option<&'static str> {
    match shell {
        clap_complete::Shell::Bash => Some(BASH),
        clap_complete::Shell::Zsh => Some(ZSH),
        clap_complete::Shell::Fish => Some(FISH),
        _ => None,
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Complete a word, for the completion scripts
#[derive(Debug, Args)]
pub struct CompleteArgs {
    #[arg(value_enum)]
    shell: Shell,
    /// For bash, the line up to the cursor and $COMP_WORDBREAKS; for the others, the unquoted words
    /// of the line
    #[arg(allow_hyphen_values = true)]
    words: Vec<String>,
}

impl CompleteArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let lines = match self.shell {
            Shell::Bash => {
                let [line, breaks] = self.words.as_slice() else { return Ok(Answer::Yes) };
                bash(line, breaks, offer)
            }
            Shell::Zsh | Shell::Fish => {
                let Some((typed, words)) = self.words.split_last() else { return Ok(Answer::Yes) };
                lines_of(offer(words, typed), |candidate| match &candidate.help {
                    Some(help) => Some(format!("{}\t{help}", candidate.word)),
                    None => Some(candidate.word.clone()),
                })
            }
        };
        for line in lines {
            context.out.line(line)?;
        }
        Ok(Answer::Yes)
    }
}

fn offer(words: &[String], typed: &str) -> Offer {
    // The password comes from $KVSTORE_PASSWORD_FILE only: the user is not asked during a
    // completion.
    let secrets = crate::secret::Secrets::without_questions();
    let mut definition = cli::definition();
    definition.build(); // adds --help and --version
    Completer { definition, source: Source::Named, form: Form::Text, family: None, secrets }
        .complete(words, typed)
}

fn lines_of(offer: Offer, show: impl Fn(&Candidate) -> Option<String>) -> Vec<String> {
    match offer {
        Offer::Files => vec!["files".to_owned()],
        Offer::Words(offered) => {
            ["words".to_owned()].into_iter().chain(offered.iter().filter_map(show)).collect()
        }
    }
}

/// How the word under the cursor is quoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quoting {
    /// Not quoted, or quoted by backslashes.
    Plain,
    /// The word starts with a quote that is still open. bash replaces the text after the quote, and
    /// closes the quote.
    Open(char),
}

impl Quoting {
    /// Returns the quoting of a word. Returns `None` if a quote is closed or is not at the
    /// beginning of the word: bash does not say then which part of the word it replaces.
    fn of(raw: &str) -> Option<Quoting> {
        let mut chars = raw.chars();
        match chars.next() {
            Some(quote @ ('\'' | '"')) => (!chars.any(|c| c == quote)).then_some(Quoting::Open(quote)),
            _ => (!has_plain_quote(raw)).then_some(Quoting::Plain),
        }
    }

    fn quote(self, word: &str) -> String {
        let escaped_by = |is_special: fn(char) -> bool| {
            let mut quoted = String::with_capacity(word.len() + 2);
            for c in word.chars() {
                if is_special(c) {
                    quoted.push('\\');
                }
                quoted.push(c);
            }
            quoted
        };
        match self {
            Quoting::Open('\'') => word.replace('\'', r"'\''"),
            Quoting::Open(_) => escaped_by(|c| "\"\\$`".contains(c)),
            Quoting::Plain if word.is_empty() => "''".to_owned(),
            Quoting::Plain => {
                escaped_by(|c| c.is_ascii() && !c.is_ascii_alphanumeric() && !"_-+=:,./@%".contains(c))
            }
        }
    }
}

/// Returns `true` if the word has a quote that no backslash escapes.
fn has_plain_quote(raw: &str) -> bool {
    let mut is_escaped = false;
    raw.chars().any(|c| {
        let is_quote = !is_escaped && (c == '\'' || c == '"');
        is_escaped = !is_escaped && c == '\\';
        is_quote
    })
}

/// Completes a line of bash, and returns the lines to print. bash also splits words at the
/// characters of `COMP_WORDBREAKS` (`breaks`), which usually has `:` and `=`. It replaces only the
/// text after the last of these, so candidates must not include the text before it.
fn bash(line: &str, breaks: &str, offer: impl Fn(&[String], &str) -> Offer) -> Vec<String> {
    let (before, raw) = line.split_at(start_of_word(line));
    let (Some(words), Some(quoting)) = (shlex::split(before), Quoting::of(raw)) else { return Vec::new() };
    let kept = match quoting {
        Quoting::Plain => raw.rfind(|c| ":=@".contains(c) && breaks.contains(c)).map_or(0, |at| at + 1),
        Quoting::Open(_) => 0,
    };
    let prefix = raw.get(..kept).map(unquoted).unwrap_or_default();
    lines_of(offer(words.get(1..).unwrap_or_default(), &unquoted(raw)), |candidate| {
        candidate.word.strip_prefix(&prefix).map(|rest| match rest {
            "" => String::new(),
            rest => quoting.quote(rest),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BREAKS: &str = " \t\n\"'@><=;|&(:";

    fn completed(line: &str, words: &[&str]) -> Vec<String> {
        let lines = bash(line, BREAKS, |_, typed| {
            let fits = words.iter().filter(|word| word.starts_with(typed));
            Offer::Words(fits.map(|word| Candidate::new(*word)).collect())
        });
        assert_eq!(lines.first().map(String::as_str), Some("words"), "{line}");
        lines[1..].to_vec()
    }

    #[test]
    fn bash_candidates_start_where_bash_splits_the_word() {
        assert_eq!(completed("kvstore get a.db us", &["user:1", "user:2"]), ["user:1", "user:2"]);
        assert_eq!(completed("kvstore get a.db user:", &["user:1", "user:2"]), ["1", "2"]);
        assert_eq!(completed("kvstore get a.db a=b:c", &["a=b:cd e"]), ["cd\\ e"]);
        assert_eq!(completed("kvstore get a.db 'user:", &["user:1"]), ["user:1"]);
        assert_eq!(completed("kvstore get a.db \"user:", &["user:1 $x"]), ["user:1 \\$x"]);
        assert_eq!(completed("kvstore get a.db --family=w", &["--family=web"]), ["web"]);
        assert!(bash("kvstore get a.db a'b", BREAKS, |_, _| Offer::Files).is_empty());
        assert_eq!(
            bash("kvstore get ", BREAKS, |words, _| {
                assert_eq!(words, ["get"]);
                Offer::Files
            }),
            ["files"]
        );
    }

    #[test]
    fn sh_unquotes_candidates_to_original_words() {
        let odd = [
            "a b", "it's", "$HOME", "`x`", "\\xff", "a\\\\b", "*?[x]", "~", "#x", "!x", "ä ö", "-x", "{a,b}",
            "a;b|c&d", "<>()", "\"", "^",
        ];
        for word in odd {
            let plain = Quoting::Plain.quote(word);
            let single = format!("'{}'", Quoting::Open('\'').quote(word));
            let double = format!("\"{}\"", Quoting::Open('"').quote(word));
            for quoted in [plain, single, double] {
                assert_eq!(shlex::split(&quoted), Some(vec![word.to_owned()]), "{quoted}");
            }
        }
    }
}

//! `shell`: an interactive shell with the other commands, on one store.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use clap::{Arg, Args, Command, CommandFactory as _, FromArgMatches as _};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};

use super::complete::Completions;
use super::history;
use crate::bytes::Form;
use crate::cli::{self, Cli};
use crate::completion::Source;
use crate::context::Context;
use crate::failure::{Answer, Failure, Result, report, usage};
use crate::output::{Color, DIM};
use crate::progress::Interrupt;
use crate::secret::Secrets;
use crate::store_arg::{self, Purpose, StoreArgs, is_url};
use crate::system;
use crate::usage_errors;

/// Commands that are not available in the interactive shell.
const NOT_HERE: [&str; 4] = ["shell", "completions", "man", "complete"];

/// Start an interactive shell on a store
///
/// Takes the other commands without STORE, such as "get user:1" or "ls user:", with words quoted as
/// in sh. "use FAMILY" selects the family of the following lines, "use" alone resets it; "help"
/// lists the commands; "quit" or Ctrl-D ends the shell. Tab completes commands, options, families
/// and keys. Ctrl-C stops the running line, not the shell.
#[derive(Debug, Args)]
#[command(
    after_help = format!(
        "The history is kept in {}, readable by its \
owner only. Lines that start with a space are not kept.

If standard input is a pipe, there is no prompt, and the first line that fails ends the shell with its exit status.

Examples:
  kvstore shell app.db
  kvstore shell app.db --hex
  printf 'put a 1\\nincr a\\nget a\\n' | kvstore shell app.db",
        system::HISTORY
    )
)]
pub struct ShellArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Neither read nor write the history
    #[arg(long)]
    no_history: bool,
}

impl ShellArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        context.take_stdin("the lines of the shell")?;
        let path = self.store.path()?;
        if is_url(&path) || path.exists() {
            self.store.open(Purpose::Read, &context.secrets)?; // reports once, not for each line, that the store cannot be opened
        }
        let Some(store) = path.to_str() else {
            return usage("the path of the store is not UTF-8: the shell needs one that is");
        };
        let mut lines = Lines {
            store: store.to_owned(),
            timeout: self.store.open.timeout,
            family: None,
            json: context.out.json,
            form: context.form,
            yes: context.yes,
            color: context.out.color,
            secrets: Rc::clone(&context.secrets),
        };
        context.out.flush()?;
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            self.talk(context, &path, &mut lines)
        } else {
            read(&mut lines)
        }
    }

    fn talk(&self, context: &Context, path: &Path, lines: &mut Lines) -> Result {
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .history_ignore_space(true)
            .history_ignore_dups(true)
            .and_then(|config| config.max_history_size(10_000))
            .map_err(of_editor)?
            .build();
        let mut editor: Editor<Completions, FileHistory> = Editor::with_config(config).map_err(of_editor)?;
        let history = self.history(&mut editor);
        if !is_url(path) && !path.exists() {
            println!("{} does not exist yet: \"put\" creates it", path.display());
        }
        loop {
            editor.set_helper(Some(Completions::new(
                lines.definition(),
                Source::Fixed(path.to_owned()),
                lines.form,
                lines.family.clone(),
                lines.secrets.known(),
                context.out.is_colored(),
            )));
            let line = match editor.readline(&lines.prompt()) {
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => continue,
                Err(ReadlineError::Eof) => return Ok(Answer::Yes),
                Err(e) => return Err(of_editor(e)),
            };
            if editor.add_history_entry(line.as_str()).unwrap_or(false)
                && let Some(history) = &history
            {
                let _ = editor.append_history(history); // a full disk does not end the shell
            }
            // While a line runs, Ctrl-C stops its command, not the shell.
            let interrupt = Interrupt::watch_until_drop()?;
            let Some(code) = lines.run(&line, Some(&interrupt)) else { return Ok(Answer::Yes) };
            if interrupt.is_to_end() {
                return Err(Failure::Reported(code));
            }
            if interrupt.came() {
                say!("{}", context.out.paint(DIM, "(stopped)"));
            } else if code > 0 {
                say!("{}", context.out.paint(DIM, format!("(exit status {code})")));
            }
        }
    }

    /// Loads the history file into the line editor and returns its path; `None` if no history is
    /// kept.
    fn history(&self, editor: &mut Editor<Completions, FileHistory>) -> Option<PathBuf> {
        if self.no_history {
            return None;
        }
        match history::file() {
            Ok(file) => {
                if let Some(file) = &file {
                    let _ = editor.load_history(file); // an unreadable file is overwritten
                }
                file
            }
            Err(e) => {
                say!("kvstore: no history is kept: {e}");
                None
            }
        }
    }
}

/// Runs the lines of standard input as commands of the shell. Stops at the first line that fails,
/// and returns its exit status as [`Failure::Reported`].
fn read(lines: &mut Lines) -> Result {
    let (mut line, mut number) = (String::new(), 0u64);
    loop {
        line.clear();
        // Standard input is not locked across lines, because "put KEY -" reads the following input.
        if io::stdin().read_line(&mut line)? == 0 {
            return Ok(Answer::Yes);
        }
        number += 1;
        match lines.run(&line, None) {
            None => return Ok(Answer::Yes),
            Some(0) => {}
            Some(code) => {
                say!(
                    "kvstore: line {number} failed with exit status {code}: the following lines were not run"
                );
                return Err(Failure::Reported(code));
            }
        }
    }
}

fn of_editor(error: ReadlineError) -> Failure {
    match error {
        ReadlineError::Io(e) => e.into(),
        e => Failure::Refused(e.to_string()),
    }
}

/// The state of the shell: the store, and the options that apply to all lines.
pub struct Lines {
    store: String,
    timeout: Duration,
    /// Family that `use` has selected; `None` if none is selected.
    family: Option<String>,
    json: bool,
    form: Form,
    yes: bool,
    color: Color,
    /// Passwords and keys for lines that do not give their own.
    secrets: Rc<Secrets>,
}

impl Lines {
    #[cfg(test)]
    pub fn for_tests() -> Lines {
        Lines {
            store: "app.db".to_owned(),
            timeout: Duration::from_secs(5),
            family: None,
            json: false,
            form: Form::Text,
            yes: false,
            color: Color::Auto,
            secrets: Rc::default(),
        }
    }

    fn prompt(&self) -> String {
        let file =
            Path::new(&self.store).file_name().map_or_else(String::new, |name| name.to_string_lossy().into());
        let file = Form::Text.show(file.as_bytes()).into_owned();
        match &self.family {
            Some(family) => format!("{file}:{}> ", Form::Text.show(family.as_bytes())),
            None => format!("{file}> "),
        }
    }

    /// Returns the clap definition of a line of the shell: that of the command line, with the
    /// store, the timeout and the selected family as default values.
    pub fn definition(&self) -> Command {
        let mut whole = Cli::command();
        let mut shell = Command::new("kvstore")
            .no_binary_name(true)
            .styles(whole.get_styles().clone())
            .subcommand_value_name("COMMAND")
            .disable_version_flag(true)
            .subcommands(
                whole
                    .get_subcommands_mut()
                    .filter(|command| !NOT_HERE.contains(&command.get_name()))
                    .map(|command| self.fill_in(command.clone())),
            );
        shell = shell.args(whole.get_arguments().cloned());
        let family =
            Arg::new("family").value_name("FAMILY").help("Family; without it, each line names its own");
        let shell = shell
            .subcommand(Command::new("use").about("Select the family of the following lines").arg(family))
            .subcommand(Command::new("quit").visible_alias("exit").about("End the shell"));
        cli::with_groups(shell)
    }

    fn fill_in(&self, command: Command) -> Command {
        let names: Vec<_> =
            command.get_arguments().map(|arg| (arg.get_id().to_string(), arg.is_positional())).collect();
        let mut filled = command.override_usage(None::<&str>); // the override names STORE
        for (name, is_positional) in names {
            filled = match (name.as_str(), is_positional, &self.family) {
                ("store", true, _) => filled.mut_arg(name, |arg| {
                    arg.long("store").required(false).hide(true).default_value(self.store.clone())
                }),
                ("timeout", false, _) => {
                    filled.mut_arg(name, |arg| arg.default_value(format!("{}ms", self.timeout.as_millis())))
                }
                ("family", false, Some(family)) => {
                    filled.mut_arg(name, |arg| arg.required(false).default_value(family.clone()))
                }
                _ => filled,
            };
        }
        filled.mut_subcommands(|sub| self.fill_in(sub))
    }

    /// Runs a line and returns its exit status; `None` if the line ends the shell. `interrupt` is
    /// the signal watch, if there is one, by which Ctrl-C stops the line but not the shell.
    fn run(&mut self, line: &str, interrupt: Option<&Interrupt>) -> Option<u8> {
        let line = line.get(..system::without_newline(line.as_bytes()).len()).unwrap_or(line);
        let Some(words) = shlex::split(line) else {
            return Some(report(usage(
                "a quote is not closed, or the line ends with a backslash: quote words as in sh",
            )));
        };
        let Some(first) = words.first().cloned() else { return Some(0) };
        let matches = match self.definition().try_get_matches_from(words) {
            Ok(matches) => matches,
            Err(e) => {
                let e = usage_errors::explain(e);
                let _ = e.print();
                return Some(u8::try_from(e.exit_code()).unwrap_or(2));
            }
        };
        match (first.as_str(), matches.subcommand()) {
            ("quit" | "exit", _) => return None,
            ("use", Some((_, given))) => {
                let family = given.get_one::<String>("family").cloned();
                return Some(report(self.use_family(family)));
            }
            _ => {}
        }
        let mut cli = match Cli::from_arg_matches(&matches) {
            Ok(cli) => cli,
            Err(e) => {
                let _ = e.print();
                return Some(2);
            }
        };
        let common = &mut cli.common;
        common.json |= self.json;
        common.yes |= self.yes;
        if !common.hex && !common.base64 {
            (common.hex, common.base64) = (self.form == Form::Hex, self.form == Form::Base64);
        }
        if common.json && (common.hex || common.base64) {
            return Some(report(usage(
                "--json cannot be combined with --hex or --base64: it has fields such as key_base64",
            )));
        }
        if common.color == Color::Auto {
            common.color = self.color;
        }
        let mut context = cli.common.context();
        if !context.secrets.are_given() {
            context.secrets = Rc::clone(&self.secrets);
        } else if let Err(failure) = context.take_stdin("the lines of the shell") {
            return Some(report(Err(failure)));
        }
        if let Some(interrupt) = interrupt {
            context.out.stop_by(interrupt.clone());
        }
        Some(cli.command.run_and_report(&mut context))
    }

    fn use_family(&mut self, family: Option<String>) -> Result {
        if let Some(name) = &family {
            let path = store_arg::path(&self.store)?;
            let open = store_arg::OpenArgs { timeout: self.timeout };
            store_arg::family(&store_arg::open(&path, Purpose::Read, &open, &self.secrets)?, name)?;
        }
        self.family = family;
        Ok(Answer::Yes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_is_consistent_with_and_without_a_family() {
        let mut lines = Lines::for_tests();
        lines.definition().debug_assert();
        lines.family = Some("sessions".to_owned());
        lines.definition().debug_assert();
    }

    #[test]
    fn line_is_the_command_with_the_store_filled_in() {
        let mut lines = Lines::for_tests();
        let parse = |lines: &Lines, line: &str| {
            let matches = lines.definition().try_get_matches_from(shlex::split(line).unwrap()).unwrap();
            format!("{:?}", Cli::from_arg_matches(&matches).unwrap())
        };
        let whole = |line: &str| {
            format!("{:?}", <Cli as clap::Parser>::try_parse_from(shlex::split(line).unwrap()).unwrap())
        };
        assert_eq!(parse(&lines, "get 'a b'"), whole("kvstore get app.db 'a b'"));
        assert_eq!(parse(&lines, "get k --json -f x"), whole("kvstore get app.db k --json -f x"));
        assert_eq!(parse(&lines, "next"), whole("kvstore next app.db"));
        lines.family = Some("x".to_owned());
        assert_eq!(parse(&lines, "get k"), whole("kvstore get app.db k -f x"));
        assert_eq!(parse(&lines, "get k -f y"), whole("kvstore get app.db k -f y"));
        assert_eq!(parse(&lines, "purge"), whole("kvstore purge app.db -f x"));
    }
}

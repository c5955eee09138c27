//! Shell completions and man pages, generated from the definition of the command line.

use std::path::PathBuf;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::cli::{self, Cli};
use crate::completion;
use crate::context::Context;
use crate::failure::{Answer, Result};

/// Print the completion script of a shell
///
/// The scripts of bash, zsh and fish complete commands, options, families and keys; the others only
/// commands and options. Families and keys of stores on a server are not completed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kvstore completions bash > ~/.local/share/bash-completion/completions/kvstore
  kvstore completions zsh > ~/.zfunc/_kvstore
  kvstore completions fish > ~/.config/fish/completions/kvstore.fish")]
pub struct CompletionsArgs {
    /// Shell
    #[arg(value_enum)]
    shell: Shell,
}

impl CompletionsArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let mut script = Vec::new();
        match completion::script(self.shell) {
            Some(text) => script.extend_from_slice(text.as_bytes()),
            None => clap_complete::generate(self.shell, &mut cli::definition(), "kvstore", &mut script),
        }
        context.out.bytes(&script)?;
        Ok(Answer::Yes)
    }
}

/// Write the man pages to a directory
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Directory, which must exist
    directory: PathBuf,
}

impl ManArgs {
    pub fn run(&self, _context: &mut Context) -> Result {
        clap_mangen::generate_to(Cli::command(), &self.directory)?;
        Ok(Answer::Yes)
    }
}

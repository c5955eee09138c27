//! Shell completions and man pages, from the definitions of the commands.

use std::path::PathBuf;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::cli::{Cli, Context};
use crate::failure::{Answer, Result};

/// Print the completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kvstore completions bash > ~/.local/share/bash-completion/completions/kvstore
  kvstore completions zsh > ~/.zfunc/_kvstore
  kvstore completions fish > ~/.config/fish/completions/kvstore.fish")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl CompletionsArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "kvstore", &mut script);
        context.out.bytes(&script)?;
        Ok(Answer::Yes)
    }
}

/// Write the man pages into a directory
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The directory, which must be there
    directory: PathBuf,
}

impl ManArgs {
    pub fn run(&self, _context: &mut Context) -> Result {
        clap_mangen::generate_to(Cli::command(), &self.directory)?;
        Ok(Answer::Yes)
    }
}

//! Global options, and the environment of a command that they set up.

use std::rc::Rc;

use clap::Args;

use crate::bytes::Form;
use crate::failure::{self, Result};
use crate::output::{Color, Output};
use crate::secret::{SecretArgs, Secrets};

/// Options that all commands take.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub struct Common {
    /// Print one JSON object per line
    #[arg(long, global = true, conflicts_with_all = ["hex", "base64"])]
    pub json: bool,
    /// Read and print keys and values in hex
    #[arg(long, global = true, conflicts_with = "base64")]
    pub hex: bool,
    /// Read and print keys and values in base64
    #[arg(long, global = true)]
    pub base64: bool,
    /// Answer yes to every question
    #[arg(short, long, global = true)]
    pub yes: bool,
    /// When to use colors: auto (on a terminal, unless NO_COLOR is set), always, never
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value_t,
        hide_possible_values = true
    )]
    pub color: Color,
    #[command(flatten)]
    pub secret: SecretArgs,
}

/// The environment of a command: its output and the global options.
pub struct Context {
    pub out: Output,
    /// Encoding of keys and values in arguments and output.
    pub form: Form,
    /// Whether `--yes` was given: the user is then not asked for confirmation.
    pub yes: bool,
    /// The sources of the password or key with which the command opens an encrypted store.
    pub secrets: Rc<Secrets>,
}

impl Context {
    /// Checks that the command may read `what` (such as "the value") from standard input. Fails
    /// with a usage error if the options say that the password is read from there.
    pub fn take_stdin(&self, what: &str) -> Result<()> {
        match self.secrets.read_stdin() {
            true => failure::usage(format!(
                "standard input is used for {what}: give the password with --password-env or a --password-file other than -"
            )),
            false => Ok(()),
        }
    }
}

impl Common {
    pub fn context(&self) -> Context {
        let form = match (self.hex, self.base64) {
            (true, _) => Form::Hex,
            (_, true) => Form::Base64,
            _ => Form::Text,
        };
        let secrets = Rc::new(self.secret.secrets());
        Context { out: Output::new(self.json, self.color), form, yes: self.yes, secrets }
    }
}

//! The commands: what the help, the completions and the man pages are made of. Each command's arguments and work are
//! in a file of its own, or of its group.

use std::rc::Rc;

use clap::builder::Styles;
use clap::builder::styling::AnsiColor;
use clap::{Args, Parser, Subcommand};

use crate::bytes::Form;
use crate::failure::{self, Result};
use crate::output::{Color, Output};
use crate::secret::{SecretArgs, Secrets};
use crate::{care, keys, live, look, manual, moving, secret, time};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Looks into a store, mends and moves it.
#[derive(Debug, Parser)]
#[command(name = "kvstore", version = version(), styles = STYLES, max_term_width = 100, after_help = AFTER_HELP)]
pub struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

const AFTER_HELP: &str = "\
STORE is a file, or the URL of a store on a PostgreSQL server (postgresql://USER@HOST/DATABASE; docs/how-to/postgresql.md); \
\"-\" is the one named by $KVSTORE. Commands that only look change nothing and make no store.
Exit codes: 0 yes; 1 no (not found, not set, dead); 2 wrong usage; 3 the store said no (busy, read-only, damaged).

Examples:
  kvstore info app.db                    what is in it, how large, what expires next
  kvstore put app.db otp:17 - --ttl 5m   a value from standard input that lives for five minutes
  kvstore ls app.db --prefix otp: -l     its neighbours, with size and time left
  kvstore expiring app.db --chart        when things will be gone
  kvstore info postgresql://app@db/app   the same of a store on a server
  kvstore help COMMAND                   more about one";

fn version() -> String {
    format!(
        "{} (SQLite {}, engine {}{})",
        kvstore::VERSION,
        kvstore::sqlite_version(),
        kvstore::engine(),
        if cfg!(feature = "encryption") { ", encryption by SQLCipher" } else { "" }
    )
}

/// What every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "How")]
pub struct Common {
    /// One JSON object a line, for programs
    #[arg(long, global = true, conflicts_with_all = ["hex", "base64"])]
    pub json: bool,
    /// Keys and values are given and shown in hex
    #[arg(long, global = true, conflicts_with = "base64")]
    pub hex: bool,
    /// Keys and values are given and shown in base64
    #[arg(long, global = true)]
    pub base64: bool,
    /// Ask nothing
    #[arg(short, long, global = true)]
    pub yes: bool,
    /// Colours
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value_t,
        hide_possible_values = false
    )]
    pub color: Color,
    #[command(flatten)]
    pub secret: SecretArgs,
}

/// What a command works with.
pub struct Context {
    pub out: Output,
    /// How bytes are given and shown.
    pub form: Form,
    /// Nobody is to be asked.
    pub yes: bool,
    /// What encrypted stores are opened with.
    pub secrets: Rc<Secrets>,
}

impl Context {
    /// For what reads standard input: refuses that the password comes from there.
    pub fn take_stdin(&self, what: &str) -> Result<()> {
        match self.secrets.read_stdin() {
            true => {
                failure::usage(format!("standard input is {what}: the password has to come from elsewhere"))
            }
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

#[derive(Debug, Subcommand)]
pub enum Command {
    // ---- keys ----
    Get(keys::get::GetArgs),
    Put(keys::put::PutArgs),
    Del(keys::del::DelArgs),
    Exists(keys::get::ExistsArgs),
    Incr(keys::put::IncrArgs),
    Cas(keys::put::CasArgs),
    Ttl(keys::ttl::TtlArgs),
    Expire(keys::ttl::ExpireArgs),
    Persist(keys::ttl::PersistArgs),
    Touch(keys::ttl::TouchArgs),
    // ---- look ----
    Ls(look::ls::LsArgs),
    Scan(look::ls::ScanArgs),
    Count(look::count::CountArgs),
    Families(look::families::FamiliesArgs),
    Info(look::info::InfoArgs),
    // ---- time ----
    Expiring(time::expiring::ExpiringArgs),
    Next(time::next::NextArgs),
    Purge(time::purge::PurgeArgs),
    Sweep(time::sweep::SweepArgs),
    Clean(time::clean::CleanArgs),
    // ---- care ----
    Check(care::check::CheckArgs),
    Repair(care::repair::RepairArgs),
    Recover(care::recover::RecoverArgs),
    Backup(care::backup::BackupArgs),
    Compact(care::compact::CompactArgs),
    Limit(care::limit::LimitArgs),
    Checkpoint(care::checkpoint::CheckpointArgs),
    Sync(care::checkpoint::SyncArgs),
    // ---- move ----
    Dump(moving::dump::DumpArgs),
    Load(moving::load::LoadArgs),
    Copy(moving::copy::CopyArgs),
    Import(moving::import::ImportArgs),
    // ---- secrets ----
    Encrypt(secret::in_place::EncryptArgs),
    Decrypt(secret::in_place::DecryptArgs),
    Rekey(secret::in_place::RekeyArgs),
    // ---- live ----
    Watch(live::watch::WatchArgs),
    Shell(live::shell::ShellArgs),
    // ---- about the command itself ----
    Completions(manual::CompletionsArgs),
    #[command(hide = true)]
    Man(manual::ManArgs),
}

impl Command {
    /// Runs it, and says what went wrong; the exit code.
    pub fn run_to_the_end(&self, context: &mut Context) -> u8 {
        let result = self.run(context);
        context.out.go_on_unread(true);
        let flushed = context.out.flush().map_err(Into::into);
        context.out.go_on_unread(false); // it has other lines in the shell
        failure::report(result.and_then(|answer| flushed.map(|()| answer)))
    }

    fn run(&self, context: &mut Context) -> Result {
        match self {
            Command::Get(args) => args.run(context),
            Command::Put(args) => args.run(context),
            Command::Del(args) => args.run(context),
            Command::Exists(args) => args.run(context),
            Command::Incr(args) => args.run(context),
            Command::Cas(args) => args.run(context),
            Command::Ttl(args) => args.run(context),
            Command::Expire(args) => args.run(context),
            Command::Persist(args) => args.run(context),
            Command::Touch(args) => args.run(context),
            Command::Ls(args) => args.run(context),
            Command::Scan(args) => args.run(context),
            Command::Count(args) => args.run(context),
            Command::Families(args) => args.run(context),
            Command::Info(args) => args.run(context),
            Command::Expiring(args) => args.run(context),
            Command::Next(args) => args.run(context),
            Command::Purge(args) => args.run(context),
            Command::Sweep(args) => args.run(context),
            Command::Clean(args) => args.run(context),
            Command::Check(args) => args.run(context),
            Command::Repair(args) => args.run(context),
            Command::Recover(args) => args.run(context),
            Command::Backup(args) => args.run(context),
            Command::Compact(args) => args.run(context),
            Command::Limit(args) => args.run(context),
            Command::Checkpoint(args) => args.run(context),
            Command::Sync(args) => args.run(context),
            Command::Dump(args) => args.run(context),
            Command::Load(args) => args.run(context),
            Command::Copy(args) => args.run(context),
            Command::Import(args) => args.run(context),
            Command::Encrypt(args) => args.run(context),
            Command::Decrypt(args) => args.run(context),
            Command::Rekey(args) => args.run(context),
            Command::Watch(args) => args.run(context),
            Command::Shell(args) => args.run(context),
            Command::Completions(args) => args.run(context),
            Command::Man(args) => args.run(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_help_has_lines_of_its_own_for_sentences_and_examples_only() {
        let whole = Cli::command();
        for command in [&whole].into_iter().chain(whole.get_subcommands()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines: Vec<_> = help.lines().collect();
            for pair in lines.windows(2) {
                let is_text = pair.iter().all(|line| !line.is_empty() && !line.starts_with(' '));
                assert!(
                    !is_text || pair.iter().any(|line| line.ends_with('.')),
                    "{pair:?} are wrapped twice"
                );
            }
        }
    }
}

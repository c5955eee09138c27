//! The command-line interface: the commands, and their groups in the help. Help, completions and
//! man pages are generated from it. Each command has its arguments and its code in a file of its
//! own; the options that all commands take are in `context.rs`.

use clap::builder::Styles;
use clap::builder::styling::AnsiColor;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::context::{Common, Context};
use crate::failure::{self, Result};
use crate::{completion, expiry, inspect, interactive, keys, maintenance, manual, secret, transfer};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Inspect, edit, repair and migrate kvstore databases
#[derive(Debug, Parser)]
#[command(name = "kvstore", version = version(), styles = STYLES, max_term_width = 100, after_help = AFTER_HELP)]
pub struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

const AFTER_HELP: &str = "\
STORE is a file, or the URL of a store on a PostgreSQL server (postgresql://USER@HOST/DATABASE). \"-\" is the store that \
the environment variable KVSTORE names. Commands that only read never change or create a store.

Exit status: 0 success; 1 not found or condition not met; 2 usage error; 3 store error.

Examples:
  kvstore info app.db                    sizes, families, and the next expiry
  kvstore put app.db otp:17 123 --ttl 5m a key that expires after five minutes
  kvstore ls app.db otp: -l              keys that start with \"otp:\", with size and time left
  kvstore expiring app.db --chart        how many keys expire when
  kvstore help COMMAND                   options and examples of a command";

/// The groups in which the help lists the commands: the heading of each group, and the names of its
/// commands. `use` and `quit` exist only in the interactive shell.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Keys", &["get", "put", "del", "exists", "incr", "cas"]),
    ("Expiry", &["ttl", "expire", "persist", "touch", "expiring", "next", "purge", "sweep", "clean"]),
    ("Inspection", &["ls", "scan", "count", "families", "info", "watch"]),
    ("Maintenance", &["check", "repair", "recover", "backup", "compact", "limit", "checkpoint", "sync"]),
    ("Transfer", &["dump", "load", "copy", "import"]),
    ("Encryption", &["encrypt", "decrypt", "rekey"]),
    ("Other", &["shell", "completions", "use", "quit", "help"]),
];

/// Returns the clap definition of the whole command line, with the commands grouped in the help.
pub fn definition() -> clap::Command {
    with_groups(Cli::command())
}

/// Returns `command` with a help template that lists its subcommands under the headings of
/// [`GROUPS`]. Leaves out names in [`GROUPS`] that `command` does not define.
pub fn with_groups(command: clap::Command) -> clap::Command {
    let names_of = |name: &str| match (name, command.find_subcommand(name)) {
        ("help", _) => Some(("help".to_owned(), "Print this help, or the help of a command".to_owned())),
        (_, Some(found)) => {
            let names: Vec<_> = [name].into_iter().chain(found.get_visible_aliases()).collect();
            Some((names.join(", "), found.get_about().map(ToString::to_string).unwrap_or_default()))
        }
        (_, None) => None,
    };
    let groups = GROUPS.map(|(heading, names)| {
        (heading, names.iter().filter_map(|name| names_of(name)).collect::<Vec<_>>())
    });
    let width =
        groups.iter().flat_map(|(_, rows)| rows).map(|(names, _)| names.len()).max().unwrap_or_default();
    let (header, literal) = (STYLES.get_header(), STYLES.get_literal());
    let mut list = String::new();
    for (heading, rows) in groups.iter().filter(|(_, rows)| !rows.is_empty()) {
        list.push_str(&format!("{header}{heading}:{header:#}\n"));
        for (names, about) in rows {
            list.push_str(&format!("  {literal}{names:<width$}{literal:#}  {about}\n"));
        }
        list.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    command.help_template(template)
}

impl Cli {
    /// Parses the arguments of the process. `Err` is a usage error, or a request for the help or
    /// the version.
    pub fn from_args() -> std::result::Result<Cli, clap::Error> {
        Cli::from_arg_matches(&definition().try_get_matches()?)
    }
}

fn version() -> String {
    format!(
        "{} (SQLite {}, engine {}{})",
        kvstore::VERSION,
        kvstore::sqlite_version(),
        kvstore::engine(),
        if cfg!(feature = "encryption") { ", encryption by SQLCipher" } else { "" }
    )
}

#[derive(Debug, Subcommand)]
pub enum Command {
    // ---- keys ----
    Get(keys::get::GetArgs),
    #[command(visible_alias = "set")]
    Put(keys::put::PutArgs),
    #[command(visible_aliases = ["rm", "delete", "unset"])]
    Del(keys::del::DelArgs),
    Exists(keys::get::ExistsArgs),
    Incr(keys::put::IncrArgs),
    Cas(keys::put::CasArgs),
    Ttl(keys::ttl::TtlArgs),
    Expire(keys::ttl::ExpireArgs),
    Persist(keys::ttl::PersistArgs),
    Touch(keys::ttl::TouchArgs),
    // ---- inspection ----
    #[command(visible_aliases = ["list", "keys"])]
    Ls(inspect::ls::LsArgs),
    Scan(inspect::ls::ScanArgs),
    Count(inspect::count::CountArgs),
    Families(inspect::families::FamiliesArgs),
    #[command(visible_alias = "stats")]
    Info(inspect::info::InfoArgs),
    // ---- expiry ----
    Expiring(expiry::expiring::ExpiringArgs),
    Next(expiry::next::NextArgs),
    Purge(expiry::purge::PurgeArgs),
    Sweep(expiry::sweep::SweepArgs),
    Clean(expiry::clean::CleanArgs),
    // ---- maintenance ----
    Check(maintenance::check::CheckArgs),
    Repair(maintenance::repair::RepairArgs),
    Recover(maintenance::recover::RecoverArgs),
    Backup(maintenance::backup::BackupArgs),
    #[command(visible_alias = "vacuum")]
    Compact(maintenance::compact::CompactArgs),
    Limit(maintenance::limit::LimitArgs),
    Checkpoint(maintenance::checkpoint::CheckpointArgs),
    Sync(maintenance::checkpoint::SyncArgs),
    // ---- transfer ----
    Dump(transfer::dump::DumpArgs),
    Load(transfer::load::LoadArgs),
    Copy(transfer::copy::CopyArgs),
    Import(transfer::import::ImportArgs),
    // ---- encryption ----
    Encrypt(secret::in_place::EncryptArgs),
    Decrypt(secret::in_place::DecryptArgs),
    Rekey(secret::in_place::RekeyArgs),
    // ---- interactive ----
    Watch(interactive::watch::WatchArgs),
    Shell(interactive::shell::ShellArgs),
    // ---- the command itself ----
    Completions(manual::CompletionsArgs),
    #[command(hide = true)]
    Man(manual::ManArgs),
    #[command(hide = true)]
    Complete(completion::CompleteArgs),
}

impl Command {
    /// Runs the command, reports an error on stderr, and returns the exit status.
    pub fn run_and_report(&self, context: &mut Context) -> u8 {
        let result = self.run(context);
        context.out.ignore_broken_pipe(true);
        let flushed = context.out.flush().map_err(Into::into);
        context.out.ignore_broken_pipe(false); // the interactive shell prints more lines
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
            Command::Complete(args) => args.run(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_is_consistent() {
        definition().debug_assert();
    }

    #[test]
    fn each_visible_command_is_in_one_group() {
        let whole = definition();
        let grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        for command in whole.get_subcommands() {
            let times = grouped.iter().filter(|name| **name == command.get_name()).count();
            assert_eq!(times, usize::from(!command.is_hide_set()), "{}", command.get_name());
        }
    }

    #[test]
    fn help_paragraphs_are_not_wrapped_by_hand() {
        let whole = definition();
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

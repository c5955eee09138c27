//! `checkpoint` and `sync`.

use clap::Args;
use kvstore::CheckpointMode;

use crate::context::Context;
use crate::failure::{Answer, Result};
use crate::json::Object;
use crate::output::count;
use crate::store_arg::{Purpose, StoreArgs};

/// Copy the write-ahead log (-wal) into the database file
#[derive(Debug, Args)]
#[command(
    after_help = "In a pipe, prints two numbers: the pages in the log, and how many of them are in the database file.

Examples:
  kvstore checkpoint app.db --mode truncate"
)]
pub struct CheckpointArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Which locks to wait for
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Mode::Truncate)]
    mode: Mode,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Mode {
    /// Copy as much as possible without waiting
    Passive,
    /// Wait for writers, then copy everything
    Full,
    /// Like full, then wait for readers, so that the next writer starts the log from its beginning
    Restart,
    /// Like restart, then truncate the log to zero bytes
    Truncate,
}

impl CheckpointArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let store = self.store.open(Purpose::Write, &context.secrets)?;
        let mode = match self.mode {
            Mode::Passive => CheckpointMode::Passive,
            Mode::Full => CheckpointMode::Full,
            Mode::Restart => CheckpointMode::Restart,
            Mode::Truncate => CheckpointMode::Truncate,
        };
        let (log, done) = store.checkpoint(mode)?;
        let out = &mut context.out;
        if out.json {
            out.object(Object::new().number("log_pages", log).number("written_pages", done))?;
        } else if out.is_terminal {
            out.line(match (log, done) {
                (0, 0) => "the log is empty".to_owned(),
                _ => format!(
                    "{} of {} pages of the log are in the database file",
                    count(u64::from(done)),
                    count(u64::from(log))
                ),
            })?;
        } else {
            out.line(format!("{log}\t{done}"))?;
        }
        Ok(Answer::Yes)
    }
}

/// Make all commits durable
///
/// After it returns, every earlier commit survives a power failure.
#[derive(Debug, Args)]
pub struct SyncArgs {
    #[command(flatten)]
    store: StoreArgs,
}

impl SyncArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let store = self.store.open(Purpose::Write, &context.secrets)?;
        store.sync()?;
        if context.out.json {
            context.out.object(Object::new().bool("synced", true))?;
        }
        Ok(Answer::Yes)
    }
}

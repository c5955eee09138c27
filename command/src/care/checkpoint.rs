//! `checkpoint` and `sync`.

use clap::Args;
use kvstore::CheckpointMode;

use crate::cli::Context;
use crate::failure::{Answer, Result};
use crate::json::Object;
use crate::output::count;
use crate::place::{For, StoreArgs};

/// Write the log (-wal) back into the file
#[derive(Debug, Args)]
#[command(
    after_help = "Piped, the two numbers are the pages in the log and those of them that are in the file now.

Examples:
  kvstore checkpoint app.db --mode truncate"
)]
pub struct CheckpointArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// How far it goes
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Mode::Truncate)]
    mode: Mode,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Mode {
    /// As much as is possible without waiting for anyone
    Passive,
    /// Wait for writers, then everything
    Full,
    /// And wait for readers, so that the log starts anew
    Restart,
    /// And cut the log to nothing
    Truncate,
}

impl CheckpointArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let store = self.store.open(For::Writing, &context.secrets)?;
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
                    "{} of {} pages of the log are in the file",
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

/// Make every commit so far survive a power cut
#[derive(Debug, Args)]
pub struct SyncArgs {
    #[command(flatten)]
    store: StoreArgs,
}

impl SyncArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let store = self.store.open(For::Writing, &context.secrets)?;
        store.sync()?;
        if context.out.json {
            context.out.object(Object::new().bool("synced", true))?;
        }
        Ok(Answer::Yes)
    }
}

//! `backup`.

use std::path::PathBuf;

use clap::Args;

use crate::context::Context;
use crate::failure::{Answer, Failure, Result};
use crate::json::Object;
use crate::output::size;
use crate::progress::{Interrupt, Progress};
use crate::store_arg::{Purpose, StoreFirst, must_be_creatable, must_name_a_file, shown};

/// Copy the store to a new file while it is in use
///
/// The backup is a consistent snapshot with everything committed so far. The file gets its name
/// when it is complete.
#[derive(Debug, Args)]
#[command(
    after_help = "FILE must not exist. Ctrl-C stops the backup and leaves no file. To restore a backup, use it as the store's file.

Examples:
  kvstore backup app.db app-$(date +%F).db"
)]
pub struct BackupArgs {
    #[command(flatten)]
    store: StoreFirst,
    /// File to create
    #[arg(value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
}

impl BackupArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let copy = format!("\"kvstore copy {} URL\" copies to a server", shown(&self.store.path()?));
        must_name_a_file(&self.file, "a backup", &copy)?;
        must_be_creatable(&self.file)?;
        let store = self.store.open(Purpose::Read, &context.secrets)?;
        let interrupt = Interrupt::watch()?;
        let mut progress = Progress::new("backing up pages", None);
        let done = store.backup(&self.file, |remaining, total| {
            progress.set_total(u64::from(total));
            progress.set(u64::from(total - remaining.min(total)));
            !interrupt.came()
        });
        drop(progress);
        done.map_err(|e| match interrupt.came() {
            true => Failure::Refused("stopped: no backup was written".to_owned()),
            false => Failure::of_target(&self.file, &e),
        })?;
        let bytes = std::fs::metadata(&self.file)?.len();
        let out = &mut context.out;
        if out.json {
            let file = self.file.display().to_string();
            out.object(Object::new().text("file", &file).number("size_bytes", bytes))?;
        } else if out.is_terminal {
            out.line(format!("{} written, {}", self.file.display(), size(bytes)))?;
        }
        Ok(Answer::Yes)
    }
}

//! `copy`: from store to store.

use clap::Args;
use kvstore::{Config, ErrorKind};

use super::{all_families, report};
use crate::cli::Context;
use crate::failure::{Answer, Result, refused};
use crate::output::{count, keys};
use crate::place::{For, OpenArgs, open_with, path};
use crate::progress::{Interrupt, Progress};

/// Copy all families and keys into another store
///
/// With TTLs, write times and the families' settings; the two may differ in page size and journal mode. It is one
/// transaction: if anything is wrong, or it is stopped, nothing was copied. A family of the other store must have no
/// keys. The store's limit is copied into a store that is empty and has none. For the same store under another name,
/// "kvstore backup" is faster.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kvstore copy old.db new.db")]
pub struct CopyArgs {
    /// The store to copy: a file; "-" for the one named by $KVSTORE
    #[arg(value_name = "FROM", value_hint = clap::ValueHint::FilePath)]
    from: String,
    /// The store to copy to; it is made if it is not there
    #[arg(value_name = "TO", value_hint = clap::ValueHint::FilePath)]
    to: String,
    #[command(flatten)]
    open: OpenArgs,
}

impl CopyArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        // A memory map would count as memory, as much as the stores are long.
        let config = || Config::new().mmap_size(0).cache_pages(1500);
        let from = open_with(&path(&self.from)?, For::Looking, &self.open, config())?;
        let to = open_with(&path(&self.to)?, For::Making, &self.open, config())?;
        let interrupt = Interrupt::watch()?;
        let mut progress = Progress::new("copying keys", None);
        let copied = from.copy_to(&to, |done, total| {
            progress.set_total(total);
            progress.set(done);
            !interrupt.came()
        });
        drop(progress);
        let copied = match copied {
            Err(_) if interrupt.came() => return refused("stopped: nothing was copied"),
            // Wrong about the stores, not about the command line.
            Err(e) if e.kind() == ErrorKind::Error => return refused(format!("{e}. Nothing was copied")),
            copied => copied?,
        };
        let families = all_families(&from)?.len() as u64;
        let text = format!("{} copied, in {} families", keys(copied), count(families));
        report(
            &mut context.out,
            &text.replace(" 1 families", " 1 family"),
            &[("keys", copied), ("families", families)],
        )?;
        Ok(Answer::Yes)
    }
}

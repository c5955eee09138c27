//! `copy`: from store to store.

use clap::Args;
use kvstore::{Config, ErrorKind};

use super::{all_families, report};
use crate::cli::Context;
use crate::confirm::confirm;
use crate::failure::{Answer, Result, refused};
use crate::output::{count, keys};
use crate::place::{For, OpenArgs, open_with, path, shown};
use crate::progress::{Interrupt, Progress};
use crate::secret::ToSecretArgs;

/// Copy all families and keys into another store
///
/// With TTLs, write times and the families' settings; the two may differ in page size and journal mode. It is one
/// transaction: if anything is wrong, or it is stopped, nothing was copied. A family of the other store must have no
/// keys. The store's limit is copied into a store that is empty and has none. If TO is made, it has the password of FROM,
/// unless an option says otherwise. For the same store under another name, "kvstore backup" is faster.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kvstore copy old.db new.db
  kvstore copy plain.db encrypted.db --to-password         asks for the new password")]
pub struct CopyArgs {
    /// The store to copy: a file; "-" for the one named by $KVSTORE
    #[arg(value_name = "FROM", value_hint = clap::ValueHint::FilePath)]
    from: String,
    /// The store to copy to; it is made if it is not there
    #[arg(value_name = "TO", value_hint = clap::ValueHint::FilePath)]
    to: String,
    #[command(flatten)]
    open: OpenArgs,
    #[command(flatten)]
    secret: ToSecretArgs,
}

impl CopyArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        // A memory map would count as memory, as much as the stores are long.
        let config = || Config::new().mmap_size(0).cache_pages(1500);
        if self.secret.reads_stdin() {
            context.take_stdin("the password of TO")?;
        }
        let (from_path, to_path) = (path(&self.from)?, path(&self.to)?);
        let from = open_with(&from_path, For::Looking, &self.open, &context.secrets, config())?;
        let secrets = self.secret.secrets(&context.secrets);
        let to = open_with(&to_path, For::Making, &self.open, &secrets, config())?;
        if from.is_encrypted()? && !to.is_encrypted()? && !self.secret.to_plain {
            let question = format!(
                "{} is not encrypted: what is in {} will be in the clear there",
                shown(&to_path),
                shown(&from_path)
            );
            if !confirm(&question, context.yes)? {
                return Ok(Answer::No);
            }
        }
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

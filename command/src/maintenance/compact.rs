//! `compact`.

use clap::Args;
use kvstore::{CheckpointMode, ErrorKind, Store};

use crate::confirm::confirm;
use crate::context::Context;
use crate::failure::{Answer, Failure, Result};
use crate::json::Object;
use crate::output::{DIM, size};
use crate::progress::{Interrupt, Progress};
use crate::store_arg::{Purpose, StoreArgs, must_be_a_file, page_size};

/// Maximum number of free pages that `compact` removes from the file in one transaction.
const STEP: u32 = 1000;

/// Return free space in the file to the file system
///
/// Removed rows leave free pages, which later writes reuse; this command shrinks the file instead.
/// It works in short transactions, between which other processes can write; Ctrl-C stops it and
/// keeps what was freed. Expired keys count as used space until they are purged.
#[derive(Debug, Args)]
#[command(after_help = "In a pipe, prints two numbers: the bytes of the file before and after.

Examples:
  kvstore purge app.db && kvstore compact app.db --yes")]
pub struct CompactArgs {
    #[command(flatten)]
    store: StoreArgs,
}

fn free_pages(store: &Store, page_size: u64) -> Result<u64> {
    let stats = store.stats()?;
    Ok(stats.db_pages.saturating_sub(stats.size_bytes / page_size.max(1)))
}

impl CompactArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let path = self.store.path()?;
        must_be_a_file(&path, "PostgreSQL reuses free space by itself (autovacuum)")?;
        let store = self.store.open(Purpose::Write, &context.secrets)?;
        let page_size = page_size(&path);
        let before = std::fs::metadata(&path)?.len();
        let free = free_pages(&store, page_size)?;
        if free > 0 {
            let question = format!(
                "{} has {}, of which {} are free. This returns them to the file system",
                path.display(),
                size(before),
                size(free * page_size)
            );
            if !confirm(&question, context.yes)? {
                return Ok(Answer::No);
            }
        }
        let interrupt = Interrupt::watch()?;
        let mut progress = Progress::new("freeing pages", Some(free));
        let mut left = free;
        while left > 0 && !interrupt.came() {
            store.incremental_vacuum(Some(STEP))?;
            let now = free_pages(&store, page_size)?;
            if now >= left {
                return Err(Failure::Refused(
                    "no space can be freed, because another program has rewritten the file without auto-vacuum: create a \
                     compact copy with \"kvstore copy\""
                        .to_owned(),
                ));
            }
            left = now;
            progress.set(free.saturating_sub(left));
        }
        drop(progress);
        // The file shrinks at the next checkpoint.
        let is_waiting = match store.checkpoint(CheckpointMode::Truncate) {
            Ok(_) => false,
            Err(e) if e.kind() == ErrorKind::Busy => true,
            Err(e) => return Err(e.into()),
        };
        let after = std::fs::metadata(&path)?.len();
        let out = &mut context.out;
        if out.json {
            let mut object = Object::new();
            object.number("before_bytes", before).number("after_bytes", after);
            out.object(object.number("free_bytes", left * page_size))?;
        } else if out.is_terminal && free == 0 && after >= before {
            out.line(format!("{}: no free space in {}", path.display(), size(after)))?;
        } else if out.is_terminal {
            let freed = out.paint(DIM, format!("({} freed)", size(before.saturating_sub(after))));
            out.line(format!("{}: {} -> {} {freed}", path.display(), size(before), size(after)))?;
        } else {
            out.line(format!("{before}\t{after}"))?;
        }
        if is_waiting {
            out.flush()?;
            say!("kvstore: the store is in use: the file shrinks at the next checkpoint");
        }
        if interrupt.came() && left > 0 {
            out.flush()?;
            return Err(Failure::Refused(format!(
                "stopped with {} still free: run the same command again to continue",
                size(left * page_size)
            )));
        }
        Ok(Answer::Yes)
    }
}

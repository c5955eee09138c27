//! `purge`: removes expired keys.

use clap::Args;
use kvstore::{Family, Store};

use super::expiring_keys;
use super::steps::{self, BudgetArgs};
use crate::confirm::{asks, confirm};
use crate::context::Context;
use crate::failure::{Answer, Result};
use crate::json::Object;
use crate::output::{DIM, count, keys};
use crate::progress::Progress;
use crate::store_arg::{Purpose, StoreArgs, shown};

/// Remove expired keys from the store
///
/// Expired keys are never returned by a read; a purge frees their space. It removes at most 256
/// keys per transaction, between which other processes can write and Ctrl-C stops. On a terminal it
/// asks first, unless --yes is given.
#[derive(Debug, Args)]
#[command(
    after_help = "In a pipe, prints the number of removed keys; with --dry-run, family and number, tab-separated. With \
--json: removed, more (expired keys are left), stopped (by Ctrl-C); with --dry-run: family, expired. Exit status 1: \
stopped or declined.

Examples:
  kvstore purge app.db
  kvstore purge app.db --dry-run
  kvstore purge app.db -f sessions --max-keys 100000 --max-time 2s --yes"
)]
pub struct PurgeArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Only this family [default: all]
    #[arg(short, long, value_name = "NAME")]
    family: Option<String>,
    #[command(flatten)]
    budget: BudgetArgs,
    /// Print what would be removed, and remove nothing
    #[arg(long, conflicts_with_all = ["max_keys", "max_time"])]
    dry_run: bool,
}

impl PurgeArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let purpose = if self.dry_run { Purpose::Read } else { Purpose::Write };
        let store = self.store.open(purpose, &context.secrets)?;
        let families = expiring_keys::families(&store, self.family.as_deref())?;
        if self.dry_run {
            return self.tell(context, &count_all(&store, &families)?);
        }
        let mut total = None;
        if asks(context.yes) || context.out.is_for_people() {
            let counts = count_all(&store, &families)?;
            let expired = counts.iter().map(|(_, count)| count).sum();
            let of = match &self.family {
                Some(name) => format!(" of family \"{name}\""),
                None => String::new(),
            };
            let most = self.budget.max_keys.filter(|max| *max < expired);
            let removed =
                most.map_or_else(|| keys(expired), |max| format!("{} of {}", count(max), keys(expired)));
            let what = format!(
                "This removes {removed} that {} expired{of} from {}",
                have(expired),
                shown(&self.store.path()?)
            );
            if expired > 0 && !confirm(&what, context.yes)? {
                return Ok(Answer::No);
            }
            total = Some(most.unwrap_or(expired));
        }
        let progress = Progress::new("purging", total);
        let what = "that had expired";
        match families.as_slice() {
            [family] if self.family.is_some() => {
                steps::run(context, &self.budget, progress, what, |max| family.purge_at_most(max))
            }
            _ => steps::run(context, &self.budget, progress, what, |max| store.purge_step(Some(max), None)),
        }
    }

    fn tell(&self, context: &mut Context, counts: &[(&str, u64)]) -> Result {
        let out = &mut context.out;
        let total: u64 = counts.iter().map(|(_, count)| count).sum();
        let people = out.is_for_people();
        for (family, expired) in counts.iter().filter(|(_, expired)| *expired > 0 || self.family.is_some()) {
            if out.json {
                out.object(Object::new().text("family", family).number("expired", *expired))?;
            } else if people {
                out.line(format!("{:>12}  {family}", count(*expired)))?;
            } else {
                out.line(format!("{}\t{expired}", crate::bytes::Form::Text.show(family.as_bytes())))?;
            }
        }
        if people {
            let line = out.paint(DIM, format!("{} would be removed", keys(total)));
            out.line(line)?;
        }
        Ok(Answer::Yes)
    }
}

fn have(number: u64) -> &'static str {
    if number == 1 { "has" } else { "have" }
}

/// Counts the expired keys of each family.
fn count_all<'f>(store: &Store, families: &'f [Family]) -> Result<Vec<(&'f str, u64)>> {
    let now_ms = store.now_ms();
    let mut progress = Progress::new("counting", None);
    let (mut counts, mut before) = (Vec::with_capacity(families.len()), 0);
    for family in families {
        let expired = expiring_keys::count_expired(family, now_ms, |count| {
            if count.is_multiple_of(4096) {
                progress.set(before + count);
            }
        })?;
        before += expired;
        counts.push((family.name(), expired));
    }
    Ok(counts)
}

//! `sweep`: removes keys by write age.

use std::time::Duration;

use clap::Args;

use super::steps::{self, BudgetArgs};
use crate::confirm::confirm;
use crate::context::Context;
use crate::failure::{Answer, Result, refused};
use crate::progress::Progress;
use crate::store_arg::{FamilyArgs, Purpose, StoreArgs, shown};
use crate::times;

/// Remove keys that were written before a given age
///
/// Removes keys by the time of their last write, whether they have expired or not. The family must
/// track write times; keys that existed when tracking was turned on count as written at that time.
/// Removes at most 256 keys per transaction, between which other processes can write and Ctrl-C
/// stops. On a terminal it asks first, unless --yes is given.
#[derive(Debug, Args)]
#[command(
    after_help = "In a pipe, prints the number of live keys removed. With --json: removed, more (older keys are left), \
stopped (by Ctrl-C). Exit status: 1 stopped or declined; 3 also if the family does not track write times.

Examples:
  kvstore sweep app.db --older-than 30d -f logs
  kvstore sweep app.db --older-than 12h -f cache --max-time 2s --yes"
)]
pub struct SweepArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Minimum time since the last write
    #[arg(long, value_name = "DURATION", value_parser = times::parse_duration)]
    older_than: Duration,
    #[command(flatten)]
    family: FamilyArgs,
    #[command(flatten)]
    budget: BudgetArgs,
}

impl SweepArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let store = self.store.open(Purpose::Write, &context.secrets)?;
        let family = self.family.of(&store)?;
        let name = family.name();
        if !family.tracks_writes()? {
            return refused(format!(
                "family \"{name}\" does not track write times\n  turn tracking on with \"kvstore families {} set {name} \
                 --track on\"; existing keys count as written at that moment",
                self.store.store
            ));
        }
        let age_ms = i64::try_from(self.older_than.as_millis()).unwrap_or(i64::MAX);
        let before_ms = store.now_ms().saturating_sub(age_ms);
        let what = format!(
            "This removes the keys of family \"{name}\" in {} that were written before {}",
            shown(&self.store.path()?),
            times::local(before_ms)
        );
        if !confirm(&what, context.yes)? {
            return Ok(Answer::No);
        }
        let progress = Progress::new("sweeping", None);
        let written = format!("written before {}", times::local(before_ms));
        steps::run(context, &self.budget, progress, &written, |max| family.sweep_at_most(before_ms, max))
    }
}

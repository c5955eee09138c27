//! `sweep`: removes what was written too long ago.

use std::time::Duration;

use clap::Args;

use super::steps::{self, BudgetArgs};
use crate::cli::Context;
use crate::confirm::confirm;
use crate::failure::{Answer, Result, refused};
use crate::place::{FamilyArgs, For, StoreArgs, shown};
use crate::progress::Progress;
use crate::times;

/// Remove the keys that were written too long ago
///
/// Live ones, too, whatever their end: of a family that keeps write times. Keys that were there when it began to keep
/// them count as written then. In steps of at most 256 keys, between which others get their turn: Ctrl-C ends after the
/// step. On a terminal it says what it will remove, and asks.
#[derive(Debug, Args)]
#[command(
    after_help = "Piped: the number of live keys removed. As JSON: removed, more (older keys are left), stopped (by \
Ctrl-C). Exit code 1: stopped, or the answer was no. Exit code 3 also: the family keeps no write times.

Examples:
  kvstore sweep app.db --older-than 30d -f logs
  kvstore sweep app.db --older-than 12h -f cache --max-time 2s --yes"
)]
pub struct SweepArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The age from which on keys are removed
    #[arg(long, value_name = "DURATION", value_parser = times::parse_duration)]
    older_than: Duration,
    #[command(flatten)]
    family: FamilyArgs,
    #[command(flatten)]
    budget: BudgetArgs,
}

impl SweepArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let store = self.store.open(For::Writing, &context.secrets)?;
        let family = self.family.of(&store)?;
        let name = family.name();
        if !family.tracks_writes()? {
            return refused(format!(
                "family \"{name}\" keeps no write times, so nobody knows how old its keys are\n  have it keep them from now \
                 on with \"kvstore families {} set {name} --track on\"; the keys that are there will count as written then",
                self.store.store
            ));
        }
        let age_ms = i64::try_from(self.older_than.as_millis()).unwrap_or(i64::MAX);
        let before_ms = store.now_ms().saturating_sub(age_ms);
        let what = format!(
            "Remove every key of family \"{name}\" in {} that was written before {}",
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

//! Removal of many keys in short transactions, until a limit is reached or Ctrl-C is pressed. The
//! number of removed keys is also reported if the removal stops early.

use std::time::{Duration, Instant};

use clap::Args;
use kvstore::PurgeStep;

use crate::context::Context;
use crate::failure::{Answer, Failure, Result};
use crate::json::Object;
use crate::output::{WARN, keys};
use crate::progress::{Interrupt, Progress};
use crate::times;

/// Maximum number of keys that `purge`, `sweep` and `clean` remove between two checks whether Ctrl-C
/// was pressed. The library divides them into transactions.
pub const KEYS_PER_STEP: u64 = 32_768;

/// Limits of a removal.
#[derive(Debug, Args)]
pub struct BudgetArgs {
    /// Remove at most N keys
    #[arg(long, value_name = "N")]
    pub max_keys: Option<u64>,
    /// Stop after this time
    #[arg(long, value_name = "DURATION", value_parser = times::parse_duration)]
    pub max_time: Option<Duration>,
}

/// The progress of a removal: the number of removed keys, whether more keys are left to remove, and
/// whether a signal stopped it.
#[derive(Default)]
struct Done {
    removed: u64,
    more: bool,
    stopped: bool,
}

/// Removes keys by calls of `step`, whose argument is the maximum number of keys to remove, until
/// no keys are left, the budget is used up, or Ctrl-C is pressed. In the last two cases, a last
/// call with 0 finds out whether more keys are left. Then prints the result, in which `what`
/// describes the removed keys.
pub fn run(
    context: &mut Context,
    budget: &BudgetArgs,
    mut progress: Progress,
    what: &str,
    mut step: impl FnMut(u64) -> kvstore::Result<PurgeStep>,
) -> Result {
    let interrupt = Interrupt::watch()?;
    let began = Instant::now();
    let mut done = Done { more: true, ..Done::default() };
    let failed = loop {
        let left = budget.max_keys.map_or(u64::MAX, |max| max.saturating_sub(done.removed));
        let in_time = budget.max_time.is_none_or(|max| began.elapsed() < max);
        done.stopped = interrupt.came();
        let max = if in_time && !done.stopped { left.min(KEYS_PER_STEP) } else { 0 };
        match step(max) {
            Ok(PurgeStep { deleted, more }) => {
                done.removed += deleted;
                done.more = more;
                progress.add(deleted);
            }
            Err(e) => break Some(e),
        }
        if max == 0 || !done.more {
            break None;
        }
    };
    drop(progress);
    match failed {
        None => tell(context, &done, what),
        Some(e) if done.removed == 0 => Err(e.into()),
        Some(e) => Err(match Failure::from(e) {
            Failure::Refused(text) | Failure::Busy(text) => {
                Failure::Refused(format!("{text}\n  {} were removed before that", keys(done.removed)))
            }
            failure => failure,
        }),
    }
}

fn tell(context: &mut Context, done: &Done, what: &str) -> Result {
    let out = &mut context.out;
    let stopped = done.stopped && done.more;
    if out.json {
        let mut object = Object::new();
        out.object(object.number("removed", done.removed).bool("more", done.more).bool("stopped", stopped))?;
    } else if out.is_terminal {
        let rest = match (stopped, done.more) {
            (true, _) => out.paint(WARN, "; stopped, more are left"),
            (_, true) => out.paint(WARN, "; limit reached, more are left"),
            _ => String::new(),
        };
        out.line(format!("removed {} {what}{rest}", keys(done.removed)))?;
    } else {
        out.line(done.removed.to_string())?;
    }
    Ok(Answer::from_bool(!stopped))
}

//! `clean`: a cleaner in the foreground.

use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use kvstore::{Config, ErrorKind, Store};

use super::steps::KEYS_PER_STEP;
use crate::cli::Context;
use crate::failure::{Answer, Result, usage};
use crate::json::Object;
use crate::output::keys;
use crate::place::{self, For, StoreArgs};
use crate::progress::Interrupt;
use crate::system;
use crate::times;

/// How long Ctrl-C may go unnoticed while nothing is done.
const NAP: Duration = Duration::from_millis(50);

/// Remove what expires, as it expires, until Ctrl-C
///
/// For a store whose program has no cleaner of its own. In steps of at most 256 keys, between which others get their
/// turn; when others are writing for longer than --timeout, it tries again in its next turn.
#[derive(Debug, Args)]
#[command(
    after_help = format!(
        "A line for each turn that has removed something: when, and how many; at the end, on stderr, how many \
it were in all. As JSON: at_ms, removed; at the end: removed_in_all, turns, elapsed_ms. {} end it well, with \
exit code 0.

Examples:
  kvstore clean app.db
  kvstore clean app.db --interval 10s --max-keys 10000 --json >> clean.log",
        system::ENDS
    )
)]
pub struct CleanArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// How long to rest between two turns
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = times::parse_duration)]
    interval: Duration,
    /// At most so many keys in a turn
    #[arg(long, value_name = "N")]
    max_keys: Option<u64>,
}

/// What came of a turn.
struct Turn {
    removed: u64,
    /// Others were writing all the time.
    busy: bool,
}

impl CleanArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        if self.interval.is_zero() {
            return usage("the interval must be longer than 0: the cleaner would never rest");
        }
        // Between two turns nothing is held that stands in the way of others' checkpoints.
        let config = Config::new().hold_reads(false);
        let store =
            place::open_with(&self.store.path()?, For::Writing, &self.store.open, &context.secrets, config)?;
        let interrupt = Interrupt::watch()?;
        let out = &mut context.out;
        if out.is_for_people() {
            let path = self.store.path()?;
            let every = times::duration(u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX));
            say!("cleaning {} every {every} (Ctrl-C ends)", place::shown(&path));
        }
        let began = Instant::now();
        let (mut removed, mut turns, mut was_busy) = (0, 0u64, false);
        while !interrupt.came() {
            let turn = self.turn(&store, &interrupt)?;
            removed += turn.removed;
            if turn.busy && !was_busy {
                say!("kvstore: another program is writing for long: trying again in each turn");
            }
            was_busy = turn.busy;
            if turn.removed > 0 {
                turns += 1;
                let at_ms = store.now_ms();
                if out.json {
                    out.object(Object::new().number("at_ms", at_ms).number("removed", turn.removed))?;
                } else if out.is_terminal {
                    out.line(format!("{}  removed {}", times::local(at_ms), keys(turn.removed)))?;
                } else {
                    out.line(format!("{}\t{}", times::iso(at_ms), turn.removed))?;
                }
                out.flush()?;
            }
            let rested = Instant::now();
            while !interrupt.came() && rested.elapsed() < self.interval {
                thread::sleep(NAP.min(self.interval.saturating_sub(rested.elapsed())));
            }
        }
        let elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        if out.json {
            let mut object = Object::new();
            object.number("removed_in_all", removed).number("turns", turns).number("elapsed_ms", elapsed_ms);
            out.object(&mut object)?;
        } else {
            let turn = if turns == 1 { "turn" } else { "turns" };
            say!("removed {} in {turns} {turn}, within {}", keys(removed), times::duration(elapsed_ms));
        }
        Ok(Answer::Yes)
    }

    fn turn(&self, store: &Store, interrupt: &Interrupt) -> Result<Turn> {
        let mut removed = 0;
        loop {
            let left = self.max_keys.map_or(u64::MAX, |max| max.saturating_sub(removed));
            match store.purge_step(Some(left.min(KEYS_PER_STEP)), None) {
                Ok(step) => {
                    removed += step.deleted;
                    if !step.more || left <= step.deleted || interrupt.came() {
                        return Ok(Turn { removed, busy: false });
                    }
                }
                Err(e) if matches!(e.kind(), ErrorKind::Busy | ErrorKind::Locked) => {
                    return Ok(Turn { removed, busy: true });
                }
                Err(e) => return Err(e.into()),
            }
        }
    }
}

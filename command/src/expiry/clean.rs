//! `clean`: a purge loop in the foreground.

use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use kvstore::{Config, ErrorKind, Store};

use super::steps::KEYS_PER_STEP;
use crate::context::Context;
use crate::failure::{Answer, Result, usage};
use crate::json::Object;
use crate::output::keys;
use crate::progress::Interrupt;
use crate::store_arg::{self, Purpose, StoreArgs};
use crate::system;
use crate::times;

/// Time between checks for Ctrl-C during the pause between two rounds of purging.
const NAP: Duration = Duration::from_millis(50);

/// Purge expired keys continuously, until Ctrl-C
///
/// For a store whose program runs no cleaner. Each round removes expired keys in transactions of at
/// most 256, between which other processes can write. If a lock is held for longer than --timeout,
/// the next round tries again.
#[derive(Debug, Args)]
#[command(
    after_help = format!(
        "Prints a line for each round that removed keys, with the time and the number, and a summary on stderr. With \
--json: at_ms, removed; at the end removed_total, rounds, elapsed_ms. {} stop it with exit status 0.

Examples:
  kvstore clean app.db
  kvstore clean app.db --interval 10s --max-keys 10000 --json >> clean.log",
        system::ENDS
    )
)]
pub struct CleanArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Pause between rounds
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = times::parse_duration)]
    interval: Duration,
    /// Maximum number of keys removed in a round
    #[arg(long, value_name = "N")]
    max_keys: Option<u64>,
}

/// The result of one round of purging.
struct Round {
    removed: u64,
    /// Whether the round ended early because another process held a lock.
    busy: bool,
}

impl CleanArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        if self.interval.is_zero() {
            return usage("--interval must be longer than 0");
        }
        // No read snapshot is held between rounds, because it would block checkpoints of other
        // processes.
        let config = Config::new().hold_reads(false);
        let store = store_arg::open_with(
            &self.store.path()?,
            Purpose::Write,
            &self.store.open,
            &context.secrets,
            config,
        )?;
        let interrupt = Interrupt::watch()?;
        let out = &mut context.out;
        if out.is_for_people() {
            let path = self.store.path()?;
            let every = times::duration(u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX));
            say!("purging {} every {every} (Ctrl-C stops)", store_arg::shown(&path));
        }
        let began = Instant::now();
        let (mut removed, mut rounds, mut was_busy) = (0, 0u64, false);
        while !interrupt.came() {
            let round = self.round(&store, &interrupt)?;
            removed += round.removed;
            if round.busy && !was_busy {
                say!("kvstore: the store is locked by another process: trying again in each round");
            }
            was_busy = round.busy;
            if round.removed > 0 {
                rounds += 1;
                let at_ms = store.now_ms();
                if out.json {
                    out.object(Object::new().number("at_ms", at_ms).number("removed", round.removed))?;
                } else if out.is_terminal {
                    out.line(format!("{}  removed {}", times::local(at_ms), keys(round.removed)))?;
                } else {
                    out.line(format!("{}\t{}", times::iso(at_ms), round.removed))?;
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
            object.number("removed_total", removed).number("rounds", rounds).number("elapsed_ms", elapsed_ms);
            out.object(&mut object)?;
        } else {
            let round = if rounds == 1 { "round" } else { "rounds" };
            say!("removed {} in {rounds} {round}, in {}", keys(removed), times::duration(elapsed_ms));
        }
        Ok(Answer::Yes)
    }

    fn round(&self, store: &Store, interrupt: &Interrupt) -> Result<Round> {
        let mut removed = 0;
        loop {
            let left = self.max_keys.map_or(u64::MAX, |max| max.saturating_sub(removed));
            match store.purge_step(Some(left.min(KEYS_PER_STEP)), None) {
                Ok(step) => {
                    removed += step.deleted;
                    if !step.more || left <= step.deleted || interrupt.came() {
                        return Ok(Round { removed, busy: false });
                    }
                }
                Err(e) if matches!(e.kind(), ErrorKind::Busy | ErrorKind::Locked) => {
                    return Ok(Round { removed, busy: true });
                }
                Err(e) => return Err(e.into()),
            }
        }
    }
}

//! Steps of a purge or sweep, and the pauses between them in which other writers get the lock.

use std::thread;
use std::time::{Duration, Instant};

use super::Session;
use crate::backend::{Db, Removals, StepLimits};
use crate::error::Result;

/// Least and greatest length of a pause for other writers. In between, a pause is as long as the
/// step before it, so that the writers get half of the time.
const PAUSE: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(10)];
/// Interval at which a pause looks whether the others still write.
const LOOK: Duration = Duration::from_micros(200);
/// Time without a write of others after which a pause ends.
const QUIET: Duration = Duration::from_millis(1);

impl Session {
    /// Runs one step of a purge or sweep, a write that removes up to `left` keys. Then pauses if
    /// other writers wait. `in_time` returns `false` after the time limit of the operation; `None`
    /// means no time limit.
    pub(crate) fn removal_step(
        &self,
        left: u64,
        in_time: Option<&dyn Fn() -> bool>,
        step: impl FnOnce(&mut Db, &StepLimits<'_>) -> Result<Removals>,
    ) -> Result<Removals> {
        let began = Instant::now();
        let limits = StepLimits {
            max: usize::try_from(left).unwrap_or(usize::MAX),
            has_time_limit: in_time.is_some(),
            in_time: in_time.unwrap_or(&|| true),
            waited_for: &|| self.is_waited_for(),
        };
        let removals = self.write(|db| step(db, &limits))?;
        if removals.others_wait {
            self.let_others_write(began.elapsed());
        }
        Ok(removals)
    }

    /// Pauses for other writers after a step of a purge that took `step`, until they write no more.
    pub(crate) fn let_others_write(&self, step: Duration) {
        let [least, greatest] = PAUSE;
        let pause = step.clamp(least, greatest);
        let began = Instant::now();
        let mut seen = self.activity();
        let mut last_write = None;
        while began.elapsed() < pause && !self.is_closed() {
            thread::sleep(LOOK);
            let now = self.activity();
            if now != seen || self.is_waited_for() {
                last_write = Some(Instant::now());
            } else if last_write.is_some_and(|at: Instant| at.elapsed() >= QUIET) {
                return;
            }
            seen = now;
        }
    }

    /// Returns counters that advance while other threads or connections write, or wait to write.
    fn activity(&self) -> (u64, Option<(u32, u32)>) {
        (self.changes(), self.with_uncounted(|db| Ok(db.activity())).unwrap_or_default())
    }
}

//! Steps of a purge or sweep, and the pauses between them in which other writers get the lock.

use std::thread;
use std::time::{Duration, Instant};

use super::Session;
use crate::backend::{Db, Removals, StepLimits};
use crate::error::Result;

/// Least and greatest length of a pause for a writer that waits. In between, a pause is as long as
/// the step before it, so that the writers get half of the time.
const PAUSE: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(10)];
/// Time after which a purge pauses although it sees no writer wait: programs that use SQLite without
/// this library, and handles in `DELETE` mode, cannot show that they wait.
const LONGEST: Duration = Duration::from_millis(50);
/// Length of the pause after [`LONGEST`].
const UNASKED: Duration = Duration::from_millis(3);
/// Interval at which a pause looks whether the others still write.
const LOOK: Duration = Duration::from_micros(200);
/// Time without a write of others after which a pause ends.
const QUIET: Duration = Duration::from_millis(1);

/// Turns of a purge or sweep at writing.
pub(crate) struct Turns<'s> {
    session: &'s Session,
    /// Duration of the last step, if a writer waited for its end.
    waited_for: Option<Duration>,
    /// When the last pause ended, or the first step began; `None` before that.
    paused: Option<Instant>,
}

impl<'s> Turns<'s> {
    pub(crate) fn of(session: &'s Session) -> Turns<'s> {
        Turns { session, waited_for: None, paused: None }
    }

    /// Runs one step of a purge or sweep, a write that removes up to `left` keys. Before that,
    /// pauses if another writer has waited for the previous step. `in_time` returns `false` after
    /// the time limit of the operation; `None` means no time limit.
    pub(crate) fn step(
        &mut self,
        left: u64,
        in_time: Option<&dyn Fn() -> bool>,
        step: impl FnOnce(&mut Db, &StepLimits<'_>) -> Result<Removals>,
    ) -> Result<Removals> {
        let session = self.session;
        let limits = StepLimits {
            max: usize::try_from(left).unwrap_or(usize::MAX),
            has_time_limit: in_time.is_some(),
            in_time: in_time.unwrap_or(&|| true),
            waited_for: &|| session.is_waited_for() || session.is_closed(),
        };
        self.pause(limits.in_time);
        let began = Instant::now();
        let removals = session.write(|db| step(db, &limits))?;
        self.waited_for = removals.others_wait.then(|| began.elapsed());
        Ok(removals)
    }

    /// Pauses if another writer waits, or if it is time for a pause.
    fn pause(&mut self, in_time: &dyn Fn() -> bool) {
        let paused = *self.paused.get_or_insert_with(Instant::now);
        let is_shared = || self.session.with_uncounted(|db| Ok(db.is_shared())).unwrap_or(false);
        let pause = match self.waited_for.take() {
            Some(step) => step,
            None if paused.elapsed() >= LONGEST && is_shared() => UNASKED,
            None => return,
        };
        self.session.let_others_write(pause, in_time);
        self.paused = Some(Instant::now());
    }
}

impl Session {
    /// Pauses for other writers, for the time `pause` within the bounds of [`PAUSE`], until they
    /// write no more or `in_time` returns `false`.
    pub(crate) fn let_others_write(&self, pause: Duration, in_time: &dyn Fn() -> bool) {
        let [least, greatest] = PAUSE;
        let pause = pause.clamp(least, greatest);
        let began = Instant::now();
        let mut seen = self.activity();
        let mut last_write = None;
        while began.elapsed() < pause && !self.is_closed() && in_time() {
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

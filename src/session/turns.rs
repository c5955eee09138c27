//! Turns of a handle at writing: pauses between long transactions, in which other writers get the
//! lock.
//!
//! SQLite gives the write lock to the connection that asks first. A handle that writes one long
//! transaction after another would always be first. So it pauses before a transaction if others have
//! waited for the end of the one before (ADR 36).

use std::sync::{MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::Session;
use crate::backend::{Db, Removals, StepLimits, TransactionState};
use crate::error::Result;

/// Least and greatest length of a pause for a writer that waits. In between, a pause is as long as
/// the transaction before it, so that the writers get half of the time.
const PAUSE: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(10)];
/// Time for which a handle may hold the write lock without a pause, although others wait: a pause
/// for shorter transactions would take more time than they do.
const SHORT: Duration = Duration::from_millis(1);
/// Time after which a purge pauses although it sees no writer wait: programs that use SQLite without
/// this library, and handles in `DELETE` mode, cannot show that they wait.
const LONGEST: Duration = Duration::from_millis(50);
/// Length of the pause after [`LONGEST`].
const UNASKED: Duration = Duration::from_millis(3);
/// Interval at which a pause looks whether the others still write.
const LOOK: Duration = Duration::from_micros(200);
/// Time without a write of others after which a pause ends.
const QUIET: Duration = Duration::from_millis(1);

/// What a handle knows about its last long transaction. It outlives the call that ran the
/// transaction, because a program may purge in many short calls.
#[derive(Clone, Copy, Default)]
pub(crate) struct LastTurn {
    /// Duration of the transaction, if a writer waited for its end.
    waited_for: Option<Duration>,
    /// When the transaction ended.
    ended: Option<Instant>,
    /// When the last pause ended, or the first transaction began.
    paused: Option<Instant>,
    /// The transaction that the caller has begun and not ended.
    open: Option<OpenTurn>,
}

impl LastTurn {
    /// Returns how long the next transaction must wait for other writers, who have waited for the
    /// last one; `None` if they have had that time already. The answer is given once.
    fn owed(&mut self) -> Option<Duration> {
        let [least, greatest] = PAUSE;
        let idle = self.ended.map_or(Duration::ZERO, |at| at.elapsed());
        if idle >= UNASKED {
            self.paused = None; // others could have written
        }
        let pause = self.waited_for.take()?.clamp(least, greatest);
        (idle < pause).then_some(pause)
    }

    /// Returns the time since the last pause, or since the first of the transactions that have
    /// followed each other without one.
    fn since_pause(&mut self) -> Duration {
        self.paused.get_or_insert_with(Instant::now).elapsed()
    }
}

/// Write transaction of the caller.
#[derive(Clone, Copy)]
struct OpenTurn {
    began: Instant,
    /// Number of waits of other connections when the transaction began.
    waits: Option<u32>,
}

impl Session {
    /// Runs one step of a purge or sweep, a write that removes up to `left` keys. Before that,
    /// pauses if another writer has waited for the previous transaction. `in_time` returns `false`
    /// after the time limit of the operation; `None` means no time limit.
    pub(crate) fn removal_step(
        &self,
        left: u64,
        in_time: Option<&dyn Fn() -> bool>,
        step: impl FnOnce(&mut Db, &StepLimits<'_>) -> Result<Removals>,
    ) -> Result<Removals> {
        let limits = StepLimits {
            max: usize::try_from(left).unwrap_or(usize::MAX),
            has_time_limit: in_time.is_some(),
            in_time: in_time.unwrap_or(&|| true),
            waited_for: &|| self.is_waited_for() || self.is_closed(),
        };
        self.pause_before_step(limits.in_time);
        self.removal_turn(|db| step(db, &limits))
    }

    /// Runs one step of a removal without a pause before it.
    pub(crate) fn removal_turn(&self, step: impl FnOnce(&mut Db) -> Result<Removals>) -> Result<Removals> {
        let began = Instant::now();
        let removals = self.write(step)?;
        self.end_turn(began, removals.others_wait);
        Ok(removals)
    }

    /// Runs the write `f`, which may take long. Before that, pauses if another connection has waited
    /// for the previous transaction.
    pub(crate) fn long_write<R>(&self, f: impl FnOnce(&mut Db) -> Result<R>) -> Result<R> {
        self.pause_if_owed();
        self.write(|db| {
            let in_callers = *db.transaction() != TransactionState::None;
            let (began, before) = (Instant::now(), db.waits_of_others());
            let done = f(db);
            if !in_callers {
                self.end_turn(began, db.waits_of_others() != before);
            }
            done
        })
    }

    /// Notes that the caller has begun a write transaction.
    pub(crate) fn begin_turn(&self, db: &Db) {
        self.last_turn().open = Some(OpenTurn { began: Instant::now(), waits: db.waits_of_others() });
    }

    /// Notes that the caller's transaction has ended.
    pub(crate) fn end_open_turn(&self, db: &Db) {
        let open = self.last_turn().open.take();
        if let Some(turn) = open {
            self.end_turn(turn.began, db.waits_of_others() != turn.waits);
        }
    }

    /// Notes the end of a transaction that began at `began`, and whether a writer waited for it.
    fn end_turn(&self, began: Instant, waited_for: bool) {
        let ended = Instant::now();
        let took = ended.saturating_duration_since(began);
        let mut last = self.last_turn();
        last.waited_for = (waited_for && took >= SHORT).then_some(took);
        last.ended = Some(ended);
    }

    fn last_turn(&self) -> MutexGuard<'_, LastTurn> {
        self.last_turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pauses before a long write if another connection has waited for the previous transaction. A
    /// handle that must not wait for locks does not pause.
    pub(crate) fn pause_if_owed(&self) {
        if self.check_process().is_err() {
            return; // in a forked child, a thread that no longer exists may hold the lock
        }
        let owed = self.last_turn().owed();
        if let Some(pause) = owed.filter(|_| !self.config.busy_timeout.is_zero()) {
            self.pause_now(pause, &|| true);
        }
    }

    /// Pauses before a step of a removal if another writer waits, or if it is time for a pause.
    pub(crate) fn pause_before_step(&self, in_time: &dyn Fn() -> bool) {
        if self.check_process().is_err() {
            return;
        }
        let (owed, is_long) = {
            let mut last = self.last_turn();
            (last.owed(), last.since_pause() >= LONGEST)
        };
        let others_can_write =
            |db: &mut Db| Ok(db.is_shared() && *db.transaction() == TransactionState::None);
        let is_due = || is_long && self.with_uncounted(others_can_write).unwrap_or(false);
        if let Some(pause) = owed.or_else(|| is_due().then_some(UNASKED)) {
            self.pause_now(pause, in_time);
        }
    }

    fn pause_now(&self, pause: Duration, in_time: &dyn Fn() -> bool) {
        self.let_others_write(pause, in_time);
        self.last_turn().paused = Some(Instant::now());
    }

    /// Pauses for other writers, for the time `pause` within the bounds of [`PAUSE`], until they
    /// write no more or `in_time` returns `false`.
    fn let_others_write(&self, pause: Duration, in_time: &dyn Fn() -> bool) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ended_before(waited_for: Option<Duration>, time: Duration) -> LastTurn {
        LastTurn { waited_for, ended: Instant::now().checked_sub(time), ..LastTurn::default() }
    }

    #[test]
    fn pause_is_owed_once_and_within_its_bounds() {
        let [least, greatest] = PAUSE;
        for (took, pause) in [(1, least), (5, Duration::from_millis(5)), (900, greatest)] {
            let mut last = ended_before(Some(Duration::from_millis(took)), Duration::ZERO);
            assert_eq!((last.owed(), last.owed()), (Some(pause), None), "{took} ms");
        }
    }

    #[test]
    fn no_pause_is_owed_if_none_waited_or_handle_was_idle() {
        assert_eq!(LastTurn::default().owed(), None);
        assert_eq!(ended_before(None, Duration::ZERO).owed(), None);
        let [_, greatest] = PAUSE;
        assert_eq!(ended_before(Some(Duration::from_millis(900)), greatest).owed(), None);
    }

    #[test]
    fn idle_time_counts_as_a_pause() {
        let long_ago = Instant::now().checked_sub(2 * LONGEST);
        for (idle, is_long) in [(Duration::ZERO, true), (UNASKED, false)] {
            let mut last = LastTurn { paused: long_ago, ..ended_before(None, idle) };
            last.owed();
            assert_eq!(last.since_pause() >= LONGEST, is_long, "{idle:?}");
        }
    }
}

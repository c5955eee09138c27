//! Pauses between attempts: exponential backoff with jitter.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

use crate::wait;

/// First pause. Each later pause is twice as long as the one before, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Pauses of growing length between attempts, until a time limit.
pub(super) struct Pauses {
    end: Instant,
    next: Duration,
}

impl Pauses {
    pub(super) fn within(time: Duration) -> Pauses {
        Pauses { end: Instant::now() + time, next: FIRST_PAUSE }
    }

    /// Waits before the next attempt. Returns `false` if there must be no next attempt: the time
    /// limit is reached, or the wait hook requests the end of the wait.
    pub(super) fn pause(&mut self) -> bool {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        // Half of the pause is random, so that two clients in conflict do not retry at the same
        // time.
        let chance = RandomState::new().build_hasher().finish() % 1024;
        let pause = self.next / 2 + self.next * u32::try_from(chance).unwrap_or_default() / 2048;
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        wait::pause(pause.min(left))
    }
}

//! Pauses of calls that wait for a lock. A function of the program, the wait hook, can end them
//! early.
//!
//! Every wait for a lock of another connection pauses here, so that a program can react to a signal
//! while a call waits. There is one hook for the whole process, because opening a store waits, too.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::fork::with_list;

type Hook = Arc<dyn Fn() -> bool + Send + Sync>;

/// The wait hook. It is read and changed inside the gate [`LISTS`](crate::fork::LISTS), because a
/// lock that a thread of the parent held during a fork would stay locked in the child.
static HOOK: Mutex<Option<Hook>> = Mutex::new(None);

/// Whether [`HOOK`] contains a wait hook. If not, waiting calls need not enter the gate to find
/// that out.
static HAS_HOOK: AtomicBool = AtomicBool::new(false);

/// Time between two calls of the wait hook in a thread that waits for a lock. [`pause`] sleeps at
/// most this long between two calls, and calls the hook earlier only if the last call requested the
/// end of the wait.
pub(crate) const INTERVAL: Duration = Duration::from_millis(40);

thread_local! {
    /// Time of this thread's last call of the hook. `None`: the next pause calls the hook, because
    /// this thread has never called it, or because its last call requested the end of the wait.
    static ASKED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Sets the wait hook; `None` removes it.
pub(crate) fn set_hook(hook: Option<Hook>) {
    let before = with_list(&HOOK, |set| {
        HAS_HOOK.store(hook.is_some(), Ordering::Release);
        std::mem::replace(set, hook)
    });
    drop(before); // outside the gate, because dropping the caller's closure can run any code
}

/// Returns `true` if the program has set a wait hook.
pub(crate) fn has_hook() -> bool {
    HAS_HOOK.load(Ordering::Acquire)
}

/// Calls the wait hook, if one is set. Returns `true` if the hook requests the end of the wait for
/// a lock. A panic of the hook counts as such a request.
pub(crate) fn is_ended() -> bool {
    if !has_hook() {
        return false;
    }
    let Some(hook) = with_list(&HOOK, |set| set.clone()) else { return false };
    let ends = catch_unwind(AssertUnwindSafe(|| hook())).unwrap_or(true);
    // After `true`, the next pause calls the hook again without delay, so that the hook also ends
    // further waits of the same call.
    let _ = ASKED.try_with(|asked| asked.set(Some(Instant::now()).filter(|_| !ends)));
    ends
}

/// Sleeps for `time`, and calls the wait hook every [`INTERVAL`]. Returns `true` when `time` has
/// passed. Returns `false`, possibly earlier, if the hook requested the end of the wait.
pub(crate) fn pause(time: Duration) -> bool {
    let started = Instant::now();
    loop {
        let left = time.saturating_sub(started.elapsed());
        if !left.is_zero() {
            std::thread::sleep(left.min(INTERVAL));
        }
        let asked = ASKED.try_with(Cell::get).ok().flatten();
        if asked.is_none_or(|asked| asked.elapsed() >= INTERVAL) && is_ended() {
            return false;
        }
        if left <= INTERVAL {
            return true;
        }
    }
}

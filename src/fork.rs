//! What a fork means to the library: which process a handle belongs to, and how no lock is inherited locked.
//!
//! What the child of a fork does to the files it inherits is in `db/file/os/unix/forks.rs`, which also installs the
//! handlers. Must not enter: anything that knows files or SQLite.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// What a call on an inherited handle answers.
pub(crate) const INHERITED: &CStr =
    c"the handle was opened before a fork: open a new one in the child process";

/// Tells this process's handles from inherited ones.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Makes every handle there is an inherited one. Only adds to an atomic.
#[cfg_attr(not(unix), allow(dead_code, reason = "there are no forks"))]
pub(crate) fn begin_generation() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// The gate around the library's lists for the whole process (open files, open handles).
///
/// Whoever locks one of them is inside the gate as long as the lock is held. A fork shuts the gate and waits until
/// nobody is inside, so a child never inherits such a lock locked, nor a list half changed.
///
/// Nothing may be called inside that enters again, waits for another thread, or calls the user.
pub(crate) static LISTS: Gate = Gate::new();

/// Set in [`Gate`] while it is shut; the rest counts those inside.
const SHUT: u32 = 1 << 31;

/// Many may be inside at once, or it is shut. Unlike `RwLock` it may be opened by a thread of another process (the
/// child of a fork), and it is never left in a state that needs a thread which is gone.
pub(crate) struct Gate(AtomicU32);

/// Says that this thread is inside a gate.
pub(crate) struct Inside<'g>(&'g Gate);

impl Gate {
    pub(crate) const fn new() -> Gate {
        Gate(AtomicU32::new(0))
    }

    /// Goes inside; waits while the gate is shut, which is as long as a fork takes.
    pub(crate) fn enter(&self) -> Inside<'_> {
        let mut patience = Patience::default();
        loop {
            let state = self.0.load(Ordering::Relaxed);
            if state & SHUT == 0
                && self
                    .0
                    .compare_exchange_weak(state, state + 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return Inside(self);
            }
            patience.wait();
        }
    }

    /// Shuts the gate and waits until nobody is inside.
    #[cfg_attr(not(unix), allow(dead_code, reason = "there are no forks"))]
    pub(crate) fn shut(&self) {
        let mut patience = Patience::default();
        while self.0.fetch_or(SHUT, Ordering::Acquire) & SHUT != 0 {
            patience.wait(); // another thread forks
        }
        while self.0.load(Ordering::Acquire) != SHUT {
            patience.wait();
        }
    }

    /// Opens the gate that this thread, or the thread this process is a copy of, has shut.
    #[cfg_attr(not(unix), allow(dead_code, reason = "there are no forks"))]
    pub(crate) fn open(&self) {
        self.0.fetch_and(!SHUT, Ordering::Release);
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

/// Waiting without a lock: nearly always for less than a microsecond.
#[derive(Default)]
struct Patience(u32);

impl Patience {
    fn wait(&mut self) {
        self.0 = self.0.saturating_add(1);
        match self.0 {
            ..64 => std::hint::spin_loop(),
            64..1024 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
    }
}

/// Runs `f` with one of the process's lists, inside the gate; `f` keeps the gate's rules.
pub(crate) fn with_list<T, R>(list: &Mutex<T>, f: impl FnOnce(&mut T) -> R) -> R {
    let _inside = LISTS.enter();
    f(&mut list.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn a_gate_is_shut_only_when_everybody_is_out_and_nobody_comes_in_meanwhile() {
        let gate = Gate::new();
        let shut = AtomicBool::new(false);
        thread::scope(|scope| {
            let first = gate.enter();
            scope.spawn(|| {
                gate.shut();
                shut.store(true, Ordering::SeqCst);
            });
            while gate.0.load(Ordering::SeqCst) & SHUT == 0 {
                thread::yield_now();
            }
            let (entered, has_entered) = channel();
            let gate = &gate;
            scope.spawn(move || {
                let _inside = gate.enter();
                entered.send(()).unwrap();
            });
            assert!(has_entered.recv_timeout(Duration::from_millis(20)).is_err());
            assert!(!shut.load(Ordering::SeqCst), "shut while somebody is inside");
            drop(first);
            assert!(has_entered.recv_timeout(Duration::from_millis(20)).is_err());
            while !shut.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            gate.open();
            has_entered.recv().unwrap();
        });
        assert_eq!(gate.0.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn two_threads_that_fork_at_once_shut_the_gate_one_after_the_other() {
        let gate = Gate::new();
        let inside = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        gate.shut();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        gate.open();
                        drop(gate.enter());
                    }
                });
            }
        });
    }
}

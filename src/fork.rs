//! Effect of a fork on the library: detects handles that were inherited from a parent process, and
//! keeps locks from being inherited in the locked state.
//!
//! `backend/file/os/unix/forks.rs` installs the fork handlers and treats the files that a child
//! inherits. This module must not know files or SQLite.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Error text of a call in the child of a fork on a handle that its parent opened.
pub(crate) const INHERITED: &CStr =
    c"the handle was opened before a fork: open a new one in the child process";

/// Returns the fork generation of this process: a number that is increased in the child of each
/// fork. A handle that was opened in another generation was inherited from a parent process.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Marks all existing handles as inherited, in the child of a fork, by increasing the fork
/// generation. It only adds to an atomic, so it is safe in a fork handler.
#[cfg_attr(not(unix), allow(dead_code, reason = "there are no forks"))]
pub(crate) fn begin_generation() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Gate that protects the process-wide lists (open files, open handles) and the wait hook against
/// forks.
///
/// A thread that locks one of these lists is inside the gate while it holds the lock. A fork shuts
/// the gate and waits until no thread is inside. So a child never inherits such a lock in the
/// locked state, nor a partly changed list.
///
/// Code inside the gate must not enter it again, wait for another thread, or run a callback of the
/// program.
pub(crate) static LISTS: Gate = Gate::new();

/// Bit of the number in a [`Gate`] that is set while the gate is shut. The other bits are the
/// number of threads inside.
const SHUT: u32 = 1 << 31;

/// Lock that any number of threads can be inside until it is shut. One thread shuts it, waits until
/// no thread is inside, and opens it again.
///
/// Unlike `RwLock`, it can be opened by a thread of another process (the child of a fork). It never
/// depends on a thread that does not exist in the child.
pub(crate) struct Gate(AtomicU32);

/// Guard of a thread inside a [`Gate`]. The thread leaves the gate when the guard is dropped.
pub(crate) struct Inside<'g>(&'g Gate);

impl Gate {
    pub(crate) const fn new() -> Gate {
        Gate(AtomicU32::new(0))
    }

    /// Enters the gate. Waits while it is shut, which takes as long as a fork.
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

    /// Shuts the gate and waits until no thread is inside.
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

    /// Opens a gate that this thread has shut, or, in the child of a fork, that the forking thread
    /// has shut.
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

/// Backoff of a thread that waits for a [`Gate`], with the number of its waits so far: it spins
/// first, then yields, then sleeps. Most waits are shorter than a microsecond.
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

/// Runs `f` on one of the process-wide lists, locked and inside the gate [`LISTS`], whose rules `f`
/// must follow. Returns the result of `f`.
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
    fn gate_shuts_when_empty_and_blocks_new_entries() {
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
    fn concurrent_forks_shut_gate_in_turn() {
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

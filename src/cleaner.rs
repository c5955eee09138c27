//! The optional cleaner: a thread that purges from time to time. The only thread the library ever makes,
//! and only when asked to.
//!
//! It purges through a connection of its own, so that no transaction of the store's handle is touched;
//! and only while it holds the handle's lock, so that a write through the handle waits for one step of
//! at most 256 keys instead of failing for a busy lock.

use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::inner::{Inner, read_only};
use crate::purge::KEYS_PER_STEP;
use crate::store::Store;

/// How long to wait for others to take their turn, before looking again whether they have.
const TURN: Duration = Duration::from_micros(100);

thread_local!(static CLEANING: Cell<bool> = const { Cell::new(false) });

/// A running cleaner.
pub(crate) struct Cleaner {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Stop {
    asked: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    fn ask(&self) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    fn is_asked(&self) -> bool {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `time` or until stopping is asked for; says whether it is.
    fn wait(&self, time: Duration) -> bool {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(asked, time, |asked| !*asked);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Cleaner {
    /// Starts the thread. It ends when it is told to, or when the store is closed or gone.
    fn start(inner: &Arc<Inner>, interval: Duration, max_keys: Option<u64>) -> Result<Cleaner> {
        let path = inner.with(|db| {
            db.path().ok_or_else(|| {
                Error::Invalid(
                    "a store in memory has no file a cleaner could open: call purge_step instead".into(),
                )
            })
        })?;
        // Checkpoints are made outside the handle's lock, see `clean`.
        let config = inner.config.clone().busy_timeout(Duration::ZERO).checkpoint_every(u32::MAX);
        let own = Store::open_beside(inner, &path, &config)?;
        let stop = Arc::new(Stop::default());
        let (weak, told) = (Arc::downgrade(inner), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("kvstore-cleaner".into())
            .spawn(move || {
                CLEANING.set(true);
                while !told.wait(interval) && clean(&weak, &own, &told, max_keys) {}
                // Dropping `own` closes its connection.
            })
            .map_err(|e| Error::NoMemory(format!("cannot start the cleaner's thread: {e}")))?;
        Ok(Cleaner { stop, thread: Some(thread) })
    }

    /// Ends the thread and waits for it. The thread itself cannot get here: what it runs of the caller's
    /// is the clock, and a clock is refused.
    pub(crate) fn stop(mut self) {
        self.stop.ask();
        if let Some(thread) = self.thread.take() {
            // A panic in it has been its own affair: nothing of the store's is half done.
            let _ = thread.join();
        }
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        self.stop.ask();
        // The thread itself may be the one that drops.
        if !CLEANING.get()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join(); // as in `stop`
        }
    }
}

/// One round; says whether the store is still open. What fails now (a busy lock, mostly) is tried again
/// in the next round.
fn clean(inner: &Weak<Inner>, own: &Store, stop: &Stop, max_keys: Option<u64>) -> bool {
    let mut left = max_keys.unwrap_or(u64::MAX);
    while left > 0 && !stop.is_asked() {
        let Some(inner) = inner.upgrade() else { return false };
        let keys = left.min(KEYS_PER_STEP as u64);
        let step = inner.while_idle(|| own.purge_step(Some(keys), None));
        match step {
            Ok(Some(step)) => {
                inner.counters.ttl_purged.add(step.deleted);
                left -= step.deleted.min(left);
                if !step.more {
                    break;
                }
            }
            Ok(None) | Err(_) => return !inner.is_closed(),
        }
        own.checkpoint_if_grown();
        // A lock that is let go and taken again at once starves those who wait for it.
        while inner.is_waited_for() && !stop.wait(TURN) {}
    }
    true
}

impl Store {
    /// Starts the cleaner: a thread that removes expired keys of all families every `interval`, at most
    /// `max_keys` each time (`None`: all), with a connection of its own. A write through this handle waits
    /// for it at most as long as one step of 256 keys takes; while a transaction is open on this handle
    /// the cleaner does nothing. [`close`](Store::close) stops it.
    ///
    /// # Errors
    /// `Error` if it is running already, if `interval` is zero, and for a store in memory;
    /// [`ReadOnly`](crate::ErrorKind::ReadOnly); what opening the second connection reports, which for an
    /// [exclusive](crate::Config::exclusive) store is [`Busy`](crate::ErrorKind::Busy).
    pub fn start_cleaner(&self, interval: Duration, max_keys: Option<u64>) -> Result<()> {
        let inner = self.shared();
        if interval.is_zero() {
            return inner
                .count_failure(Err(Error::Invalid("a cleaner's interval must be longer than 0".into())));
        }
        if inner.with(|db| Ok(db.is_read_only()))? {
            return inner.count_failure(Err(read_only()));
        }
        let mut running = inner.cleaner();
        inner.count_failure(inner.check_open())?;
        if running.is_some() {
            return inner
                .count_failure(Err(Error::Invalid("the cleaner is running already: stop it first".into())));
        }
        *running = Some(Cleaner::start(inner, interval, max_keys)?);
        Ok(())
    }

    /// Stops the cleaner and waits until it has ended. Nothing happens if none is running.
    ///
    /// # Errors
    /// Only those of a closed handle.
    pub fn stop_cleaner(&self) -> Result<()> {
        let inner = self.shared();
        inner.with(|_| Ok(()))?;
        let cleaner = inner.cleaner().take();
        if let Some(cleaner) = cleaner {
            cleaner.stop();
        }
        Ok(())
    }
}

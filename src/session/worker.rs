//! Start, stop and join of a background thread. The cleaner (`store/cleaner.rs`) is the only thread
//! that the library starts.

use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::backend::start_thread;
use crate::error::{Error, Result};

thread_local! {
    /// Address of the stop request of the worker that this thread runs, which identifies the
    /// worker; NULL in other threads. `thread::current` is not used, because it allocates memory in
    /// each thread that calls it.
    static THIS: Cell<*const Stop> = const { Cell::new(std::ptr::null()) };
}

/// Running background thread, which can be stopped.
pub(crate) struct Worker {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

/// Running cleaner of a store: its thread, and the interval and the maximum number of keys per
/// interval with which it was started, so that it can be started again.
#[cfg_attr(not(feature = "encryption"), allow(dead_code, reason = "who starts it again asks how"))]
pub(crate) struct Running {
    pub(crate) worker: Worker,
    pub(crate) interval: Duration,
    pub(crate) max_keys: Option<u64>,
}

/// Flag by which a background thread is requested to end, and on which the thread can wait.
#[derive(Default)]
pub(crate) struct Stop {
    asked: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    fn ask(&self) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_asked(&self) -> bool {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `time` or until a stop is requested. Returns `true` if it is requested.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(asked, time, |asked| !*asked);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Worker {
    /// Starts a thread named `name` that runs `work`, which must return soon after a stop is
    /// requested. Signals are blocked in the thread.
    pub(crate) fn start(name: &str, work: impl FnOnce(&Stop) + Send + 'static) -> Result<Worker> {
        let stop = Arc::new(Stop::default());
        let told = Arc::clone(&stop);
        let builder = std::thread::Builder::new().name(name.into());
        let thread = start_thread(|| {
            builder.spawn(move || {
                THIS.set(Arc::as_ptr(&told));
                work(&told);
            })
        })
        .map_err(|e| Error::no_memory(format!("cannot start the thread {name}: {e}")))?;
        Ok(Worker { stop, thread: Some(thread) })
    }

    /// Requests the background thread to end, and waits until it has ended, unless the caller is
    /// that thread.
    pub(crate) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.ask();
        if let Some(thread) = self.thread.take()
            && THIS.get() != Arc::as_ptr(&self.stop)
        {
            // A panic of the thread is ignored: it leaves nothing half done in the store.
            let _ = thread.join();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

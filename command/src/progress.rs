//! Progress display on stderr, and interruption by signals.

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::system;

/// Time from the start of the work to the appearance of its progress display. Shorter work shows
/// none.
const PATIENCE: Duration = Duration::from_millis(500);
/// Time between frames of a spinner on stderr.
const TICK: Duration = Duration::from_millis(100);

/// A progress line on stderr, if stderr is a terminal. It appears after half a second and is
/// removed when the value is dropped.
pub struct Progress {
    what: String,
    total: Option<u64>,
    done: u64,
    began: Instant,
    bar: Option<ProgressBar>,
    quiet: bool,
}

impl Progress {
    /// Starts a progress line that begins with `what`. `total` is the amount of work, in the unit
    /// of `add` and `set`; `None` if it is not known yet.
    pub fn new(what: impl Into<String>, total: Option<u64>) -> Progress {
        let quiet = !std::io::stderr().is_terminal();
        Progress { what: what.into(), total, done: 0, began: Instant::now(), bar: None, quiet }
    }

    pub fn set_total(&mut self, total: u64) {
        self.total = Some(total);
        if let Some(bar) = &self.bar {
            bar.set_length(total);
        }
    }

    pub fn add(&mut self, more: u64) {
        self.set(self.done.saturating_add(more));
    }

    pub fn set(&mut self, done: u64) {
        self.done = done;
        if self.bar.is_none() && !self.quiet && self.began.elapsed() > PATIENCE {
            self.bar = Some(self.show());
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }

    fn show(&self) -> ProgressBar {
        let (bar, template) = match self.total {
            Some(total) => (
                ProgressBar::new(total),
                "{msg} [{bar:30}] {human_pos} of {human_len}, {eta} left (Ctrl-C stops)",
            ),
            None => (ProgressBar::new_spinner(), "{msg} {spinner} {human_pos}, {elapsed} (Ctrl-C stops)"),
        };
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(self.what.clone());
        bar.with_elapsed(self.began.elapsed())
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A spinner on stderr for a single call whose progress cannot be measured. It appears after half a
/// second, if stderr is a terminal, and is removed when the value is dropped.
pub struct Spinner {
    /// Dropping the sender ends the thread that draws the spinner.
    ends: Option<Sender<()>>,
    shows: Option<JoinHandle<()>>,
}

impl Spinner {
    pub fn new(what: impl Into<String>) -> Spinner {
        if !std::io::stderr().is_terminal() {
            return Spinner { ends: None, shows: None };
        }
        let (what, (ends, ended)) = (what.into(), channel());
        let shows = std::thread::spawn(move || {
            if ended.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let bar = ProgressBar::new_spinner().with_message(what).with_elapsed(PATIENCE);
            bar.set_draw_target(ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{msg} {spinner} {elapsed} (Ctrl-C stops)") {
                bar.set_style(style);
            }
            while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                bar.tick();
            }
            bar.finish_and_clear();
        });
        Spinner { ends: Some(ends), shows: Some(shows) }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.ends = None;
        // A panic of the display thread is ignored.
        let _ = self.shows.take().map(JoinHandle::join);
    }
}

/// A watch for Ctrl-C, SIGTERM and Ctrl-Break. Commands that work in steps check it, and stop after
/// the current step. Without a watch, a signal ends the process: commits that were acknowledged
/// stay, and unfinished transactions are rolled back.
#[derive(Clone)]
pub struct Interrupt(Arc<Watching>);

/// The signal handlers of the process, and a flag for each signal: while the flag is `true`, the
/// signal ends the process. A watch sets the flags to `false`. The first signal sets its flag to
/// `true` again, so that the second ends the process.
struct Signals {
    interrupt: Arc<AtomicBool>,
    terminate: Arc<AtomicBool>,
    watching: Mutex<Weak<Watching>>,
}

#[derive(Default)]
struct Watching {
    /// Whether the running command of the interactive shell checks for signals itself.
    by_command: AtomicBool,
}

impl Drop for Watching {
    fn drop(&mut self) {
        // From now on, a signal ends the process again.
        if let Some(signals) = SIGNALS.get() {
            signals.set(true);
        }
    }
}

static SIGNALS: OnceLock<Signals> = OnceLock::new();

impl Signals {
    fn of_process() -> std::io::Result<&'static Signals> {
        if let Some(signals) = SIGNALS.get() {
            return Ok(signals);
        }
        let [interrupt, terminate] = [system::INTERRUPT, system::TERMINATE].map(|signal| {
            let ends = Arc::new(AtomicBool::new(true));
            system::ends_process(signal, Arc::clone(&ends))?;
            signal_hook::flag::register(signal, Arc::clone(&ends))?;
            Ok::<_, std::io::Error>(ends)
        });
        let signals =
            Signals { interrupt: interrupt?, terminate: terminate?, watching: Mutex::new(Weak::new()) };
        Ok(SIGNALS.get_or_init(|| signals))
    }

    fn set(&self, ends: bool) {
        self.interrupt.store(ends, Ordering::Relaxed);
        self.terminate.store(ends, Ordering::Relaxed);
    }
}

impl Interrupt {
    /// Starts a watch for signals that lasts until the process ends, or returns the watch that
    /// exists. The first signal only sets a flag, and the second one ends the process.
    ///
    /// The watch outlasts the work of a command, so that a signal does not end the process before
    /// the command has closed its stores and reported what it did.
    pub fn watch() -> std::io::Result<Interrupt> {
        Interrupt::start(true)
    }

    /// Starts a watch for signals, or returns the watch that exists. A new watch ends when the
    /// returned value and its clones are dropped.
    pub fn watch_until_drop() -> std::io::Result<Interrupt> {
        Interrupt::start(false)
    }

    fn start(lasts: bool) -> std::io::Result<Interrupt> {
        let signals = Signals::of_process()?;
        let mut watching = signals.watching.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watching) = watching.upgrade() {
            watching.by_command.store(true, Ordering::Relaxed);
            return Ok(Interrupt(watching)); // of the interactive shell, or of this command
        }
        let new = Arc::new(Watching::default());
        *watching = Arc::downgrade(&new);
        if lasts {
            std::mem::forget(Arc::clone(&new));
        }
        signals.set(false);
        Ok(Interrupt(new))
    }

    pub fn came(&self) -> bool {
        SIGNALS.get().is_some_and(|signals| signals.interrupt.load(Ordering::Relaxed)) || self.is_to_end()
    }

    /// Returns `true` if a signal has arrived, and the running command of the interactive shell
    /// does not check for signals itself.
    pub fn came_unseen(&self) -> bool {
        self.came() && !self.0.by_command.load(Ordering::Relaxed)
    }

    /// Returns `true` if SIGTERM or Ctrl-Break has arrived, which also ends the interactive shell.
    pub fn is_to_end(&self) -> bool {
        SIGNALS.get().is_some_and(|signals| signals.terminate.load(Ordering::Relaxed))
    }
}

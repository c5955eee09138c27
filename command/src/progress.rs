//! What a person sees of work that takes its time, and how it is stopped.

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::system;

/// Work shorter than this shows nothing.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often a spinner turns.
const TICK: Duration = Duration::from_millis(100);

/// A line on stderr, if that is a terminal, once the work has taken half a second; gone when the work is done.
pub struct Progress {
    what: String,
    total: Option<u64>,
    done: u64,
    began: Instant,
    bar: Option<ProgressBar>,
    quiet: bool,
}

impl Progress {
    /// `total`: of how many, if that is known; it may change.
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

/// The same for work of which nobody can say how far it is: it is one call.
pub struct Spinner {
    /// Dropped to end it.
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
        // It has nothing to say but what it shows.
        let _ = self.shows.take().map(JoinHandle::join);
    }
}

/// Tells of Ctrl-C (and SIGTERM, or Ctrl-Break), for work that ends well at its next step. Other work simply ends with the process:
/// whatever the store has acknowledged stays, and nothing is half done.
#[derive(Clone)]
pub struct Interrupt(Arc<Watching>);

/// Whether a signal ends the process: the first one that comes while somebody watches is only noted.
struct Signals {
    interrupt: Arc<AtomicBool>,
    terminate: Arc<AtomicBool>,
    watching: Mutex<Weak<Watching>>,
}

#[derive(Default)]
struct Watching {
    /// A command of the shell sees to it, not the shell.
    by_command: AtomicBool,
}

impl Drop for Watching {
    fn drop(&mut self) {
        // The default again, for what is not watched.
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
    /// From now on, as long as it or a clone of it is there, the first signal is only noted; the second one ends the
    /// process.
    pub fn watch() -> std::io::Result<Interrupt> {
        let signals = Signals::of_process()?;
        let mut watching = signals.watching.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watching) = watching.upgrade() {
            watching.by_command.store(true, Ordering::Relaxed);
            return Ok(Interrupt(watching)); // of the shell that the command runs in
        }
        let new = Arc::new(Watching::default());
        *watching = Arc::downgrade(&new);
        signals.set(false);
        Ok(Interrupt(new))
    }

    pub fn came(&self) -> bool {
        SIGNALS.get().is_some_and(|signals| signals.interrupt.load(Ordering::Relaxed)) || self.is_to_end()
    }

    /// Whether it came, and the command that is running does not see to it.
    pub fn came_unseen(&self) -> bool {
        self.came() && !self.0.by_command.load(Ordering::Relaxed)
    }

    /// Whether it was SIGTERM, or Ctrl-Break.
    pub fn is_to_end(&self) -> bool {
        SIGNALS.get().is_some_and(|signals| signals.terminate.load(Ordering::Relaxed))
    }
}

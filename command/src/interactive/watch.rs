//! `watch`: a live full-screen view.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::sample::Sampler;
use super::screen::{self, Shown};
use crate::context::Context;
use crate::failure::{Answer, Result, usage};
use crate::progress::Interrupt;
use crate::store_arg::StoreArgs;
use crate::times;

/// Maximum time between two frames of the `watch` screen. It is shorter than the default time
/// between samples, so that countdowns advance smoothly.
const FRAME: Duration = Duration::from_millis(250);

/// Show a live view: keys, rates, sizes, next expiries
///
/// A full-screen view, until q, Esc or Ctrl-C. It only reads, and reads at most a twentieth of the
/// time: large families are counted less often, and expiry times up to 10 000 per family (shown as
/// "10 000+").
#[derive(Debug, Args)]
#[command(
    after_help = "Rates are differences between samples: a key that is put and deleted in between is not counted. Commits \
are counted in WAL mode only. For a store on a server, table sizes are shown. Reads are not counted.

The arrow keys, PgUp and PgDn scroll the families. For programs, use kvstore info STORE --json"
)]
pub struct WatchArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Time between samples
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = times::parse_duration)]
    interval: Duration,
}

/// The terminal while it shows the alternate screen of `watch`. Dropping the value restores the
/// terminal. (After a panic, ratatui restores it.)
struct Screen(DefaultTerminal);

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

impl WatchArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        if context.out.json || !context.out.is_terminal || !std::io::stdin().is_terminal() {
            return usage(format!(
                "watch needs a terminal: \"kvstore info {} --json\" prints similar data once",
                crate::store_arg::shown(std::path::Path::new(&self.store.store))
            ));
        }
        if self.interval < Duration::from_millis(50) {
            return usage("--interval must be at least 50ms");
        }
        let path = self.store.path()?;
        let sampler = Sampler::start(&path, &self.store.open, &context.secrets, self.interval)?;
        let interrupt = Interrupt::watch()?;
        let mut shown = Shown {
            path: crate::store_arg::shown(&path),
            form: context.form,
            colored: context.out.is_colored(),
            interval: self.interval,
            scrolled: 0,
        };
        let mut screen = Screen(ratatui::try_init()?);
        while !interrupt.came() {
            sampler.check()?;
            screen.0.draw(|frame| screen::draw(frame, &mut shown, &sampler.latest()))?;
            if event::poll(FRAME)? && !goes_on(&event::read()?, &mut shown) {
                break;
            }
        }
        Ok(Answer::Yes)
    }
}

/// Handles a terminal event: scrolls the list of families. Returns `false` if the event is a key
/// that ends `watch`.
fn goes_on(event: &Event, shown: &mut Shown) -> bool {
    let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else { return true };
    match code {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Up => shown.scrolled = shown.scrolled.saturating_sub(1),
        KeyCode::Down => shown.scrolled += 1,
        KeyCode::PageUp => shown.scrolled = shown.scrolled.saturating_sub(10),
        KeyCode::PageDown => shown.scrolled += 10,
        KeyCode::Home => shown.scrolled = 0,
        _ => {}
    }
    true
}

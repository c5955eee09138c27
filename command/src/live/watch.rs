//! `watch`: a view of the whole screen.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::look::Looking;
use super::screen::{self, Shown};
use crate::cli::Context;
use crate::failure::{Answer, Result, usage};
use crate::place::StoreArgs;
use crate::progress::Interrupt;
use crate::times;

/// How often the screen is drawn anew: countdowns go on between two looks.
const FRAME: Duration = Duration::from_millis(250);

/// Watch a store: keys, rates, bytes, and what expires next
///
/// A view of the whole screen, until q, Esc or Ctrl-C. It changes nothing, and takes no more than a twentieth of the
/// time: what is large is counted less often, and the ends of keys up to 10 000 for each family ("10 000+").
#[derive(Debug, Args)]
#[command(
    after_help = "What another program can know of a store: rates of keys and bytes are the differences of two looks, so \
a key put and deleted in between is not seen; commits are counted in WAL mode only, and not on a server, of which \
the sizes of its tables are shown. Reads are not seen at all.

The arrow keys, PgUp and PgDn scroll the families. For programs, or without a terminal: kvstore info STORE --json"
)]
pub struct WatchArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// How long to wait between two looks
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = times::parse_duration)]
    interval: Duration,
}

/// The whole screen; as it was, when it is dropped. (Ratatui sees to it after a panic.)
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
                "watch needs a terminal, of which it takes the whole screen: \"kvstore info {} --json\" says once what \
                 it shows",
                crate::place::shown(std::path::Path::new(&self.store.store))
            ));
        }
        if self.interval < Duration::from_millis(50) {
            return usage("the interval must be at least 50ms");
        }
        let path = self.store.path()?;
        let looking = Looking::start(&path, &self.store.open, &context.secrets, self.interval)?;
        let interrupt = Interrupt::watch()?;
        let mut shown = Shown {
            path: crate::place::shown(&path),
            form: context.form,
            colored: context.out.is_colored(),
            interval: self.interval,
            scrolled: 0,
        };
        let mut screen = Screen(ratatui::try_init()?);
        while !interrupt.came() {
            looking.check()?;
            screen.0.draw(|frame| screen::draw(frame, &mut shown, &looking.seen()))?;
            if event::poll(FRAME)? && !goes_on(&event::read()?, &mut shown) {
                break;
            }
        }
        Ok(Answer::Yes)
    }
}

/// Does what a key asks for; `false`: to end.
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

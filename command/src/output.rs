//! Standard output: columns, units and colors on a terminal; stable tab-separated fields in a pipe;
//! JSON with `--json`.

use std::io::{self, BufWriter, IsTerminal as _, Stdout, Write};

use anstyle::{AnsiColor, Style};
use kvstore::Eviction;

use crate::json::Object;
use crate::progress::Interrupt;
use crate::system;

pub const BOLD: Style = Style::new().bold();
pub const DIM: Style = Style::new().dimmed();
pub const GOOD: Style = AnsiColor::Green.on_default();
pub const WARN: Style = AnsiColor::Yellow.on_default();
pub const BAD: Style = AnsiColor::Red.on_default();

/// When output is colored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    Always,
    Never,
}

/// Standard output, for the results of a command. Progress, questions and errors are written to
/// stderr instead.
pub struct Output {
    to: BufWriter<Stdout>,
    /// Whether standard output is a terminal.
    pub is_terminal: bool,
    /// Whether `--json` was given: results are then printed as one JSON object per line.
    pub json: bool,
    colored: bool,
    /// The value of the option `--color`.
    pub color: Color,
    /// The signal watch of the interactive shell; `None` outside the shell. After a signal such as
    /// Ctrl-C, writes to standard output fail, unless the running command checks for signals
    /// itself. The failed write ends the command, but not the shell.
    stopped_by: Option<Interrupt>,
    ignores_broken_pipe: bool,
}

impl Output {
    pub fn new(json: bool, color: Color) -> Output {
        let is_terminal = io::stdout().is_terminal();
        let wanted = || {
            let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
            is_terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
        };
        let colored = match color {
            Color::Auto => wanted() && system::shows_colors(),
            // On Windows this call also enables colors.
            Color::Always => !is_terminal || system::shows_colors(),
            Color::Never => false,
        };
        let to = BufWriter::with_capacity(64 * 1024, io::stdout());
        Output { to, is_terminal, json, colored, color, stopped_by: None, ignores_broken_pipe: false }
    }

    /// Makes writes to standard output fail with `BrokenPipe` after a signal such as Ctrl-C, unless
    /// the running command checks for signals itself. For the interactive shell, which Ctrl-C does
    /// not end.
    pub fn stop_by(&mut self, interrupt: Interrupt) {
        self.stopped_by = Some(interrupt);
    }

    /// Sets whether writing to a closed pipe counts as success, for commands whose exit status
    /// matters even if the output is not read.
    pub fn ignore_broken_pipe(&mut self, ignore: bool) {
        self.ignores_broken_pipe = ignore;
    }

    fn write(&mut self, write: impl FnOnce(&mut BufWriter<Stdout>) -> io::Result<()>) -> io::Result<()> {
        let written = match &self.stopped_by {
            Some(interrupt) if interrupt.came_unseen() => Err(io::ErrorKind::BrokenPipe.into()),
            _ => write(&mut self.to),
        };
        self.outcome(written)
    }

    fn outcome(&self, written: io::Result<()>) -> io::Result<()> {
        match written {
            Err(e) if self.ignores_broken_pipe && e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(of_standard_output),
        }
    }

    /// Returns `true` if standard output is a terminal and `--json` was not given.
    pub fn is_for_people(&self) -> bool {
        self.is_terminal && !self.json
    }

    pub fn is_colored(&self) -> bool {
        self.colored
    }

    /// Returns the text with the escape sequences of `style`, or unchanged if output is not
    /// colored.
    pub fn paint(&self, style: Style, text: impl std::fmt::Display) -> String {
        let text = text.to_string();
        if self.colored && !text.is_empty() { format!("{style}{text}{style:#}") } else { text }
    }

    pub fn object(&mut self, object: &mut Object) -> io::Result<()> {
        self.write(|to| to.write_all(object.line()))
    }

    /// Writes a line of text.
    pub fn line(&mut self, text: impl AsRef<str>) -> io::Result<()> {
        self.write(|to| {
            to.write_all(text.as_ref().as_bytes())?;
            to.write_all(b"\n")
        })
    }

    /// Writes bytes unchanged.
    pub fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(|to| to.write_all(bytes))
    }

    pub fn flush(&mut self) -> io::Result<()> {
        let written = self.to.flush();
        self.outcome(written)
    }
}

/// Returns the error with a message that says that it occurred on standard output. The kind of the
/// error stays the same, so that a closed pipe is still recognized.
pub fn of_standard_output(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))
}

/// Prints a message on stderr if that is a terminal.
pub fn note(text: &str) {
    if io::stderr().is_terminal() {
        say!("kvstore: {text}");
    }
}

/// Formats a number of bytes with a unit: `812 B`, `1.4 MB` (powers of 1000).
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    #[allow(clippy::cast_precision_loss)] // approximate output
    let mut amount = bytes as f64 / 1000.0;
    let mut unit = 0;
    while amount >= 999.95 && unit + 1 < UNITS.len() {
        amount /= 1000.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS.get(unit).copied().unwrap_or_default())
}

/// Formats a number with separated thousands: `1 234 567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(' ');
        }
        shown.push(digit);
    }
    shown
}

/// Formats a number of keys: `1 key`, `2 keys`.
pub fn keys(number: u64) -> String {
    format!("{} {}", count(number), if number == 1 { "key" } else { "keys" })
}

/// Returns the name of an eviction policy, as options, output and dumps have it.
pub fn eviction_name(eviction: Eviction) -> &'static str {
    match eviction {
        Eviction::Soonest => "soonest",
        Eviction::Oldest => "oldest",
        Eviction::LeastUsed => "least-used",
        _ => "none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_are_formatted_with_units() {
        assert_eq!(
            [size(0), size(999), size(1000), size(999_949), size(999_950)],
            ["0 B", "999 B", "1.0 kB", "999.9 kB", "1.0 MB"]
        );
        assert_eq!(size(u64::MAX), "18446.7 PB");
        assert_eq!([count(0), count(999), count(1000), count(1_234_567)], ["0", "999", "1 000", "1 234 567"]);
        assert_eq!([keys(1), keys(0)], ["1 key", "0 keys"]);
    }
}

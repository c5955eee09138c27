//! Runs the command on a pseudo-terminal, on Unix.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::command;

/// The command on a pseudo-terminal, with input, output and errors. It is not the controlling
/// terminal, so Ctrl-C is sent by [`Terminal::interrupt`].
pub struct Terminal {
    child: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    /// Output so far.
    seen: String,
}

/// Maximum time to wait for output.
const PATIENCE: Duration = Duration::from_secs(60);

impl Terminal {
    /// Starts the command on a terminal of 100 columns and 30 lines.
    pub fn start<S: AsRef<OsStr>>(args: &[S]) -> Terminal {
        Terminal::start_command(command(args))
    }

    /// Like `start`, but with standard output in a pipe: only input and errors are on the terminal.
    pub fn start_piped<S: AsRef<OsStr>>(args: &[S]) -> Terminal {
        Terminal::start_with(command(args), true)
    }

    pub fn start_command(command: Command) -> Terminal {
        Terminal::start_with(command, false)
    }

    fn start_with(mut command: Command, is_piped: bool) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = Path::new(OsStr::from_bytes(name.to_bytes()));
        let slave = OpenOptions::new().read(true).write(true).open(slave).unwrap();
        tcsetwinsize(&slave, size).unwrap();
        let output = if is_piped { Stdio::null() } else { slave.try_clone().unwrap().into() };
        command.stdin(slave.try_clone().unwrap()).stdout(output).stderr(slave);
        let child = command.spawn().unwrap();
        drop(command); // closes this process's copy of the slave, so that output ends with the command
        let keyboard = File::from(master);
        let mut reader = keyboard.try_clone().unwrap();
        let (sender, screen) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Linux reports EIO at the end.
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        Terminal { child, keyboard, screen, seen: String::new() }
    }

    /// Types this text; a line ends with `\n`.
    pub fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Returns `true` if the terminal echoes input.
    pub fn echoes(&self) -> bool {
        tcgetattr(&self.keyboard).unwrap().local_modes.contains(LocalModes::ECHO)
    }

    /// Sends the signal of Ctrl-C.
    pub fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    /// Waits until this text has been printed; returns all output so far.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> &str {
        let deadline = Instant::now() + PATIENCE;
        while !self.seen.contains(text) {
            match self.screen.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(more) => self.seen.push_str(&String::from_utf8_lossy(&more)),
                Err(RecvTimeoutError::Disconnected) => panic!("it ended without {text:?}: {}", self.seen),
                Err(RecvTimeoutError::Timeout) => panic!("no {text:?} for {PATIENCE:?}: {}", self.seen),
            }
        }
        &self.seen
    }

    /// Waits for the end of the command; returns its status and all output, without colors, with
    /// `\n` after each line.
    #[track_caller]
    pub fn end(mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.screen.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(more) => self.seen.push_str(&String::from_utf8_lossy(&more)),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it goes on after {PATIENCE:?}: {}", self.seen),
            }
        }
        let status = self.child.wait().unwrap();
        (status, without_escapes(&self.seen).replace("\r\n", "\n"))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The command is still running only if the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the command on a terminal without input; returns the exit status and the output.
#[track_caller]
pub fn on_terminal<S: AsRef<OsStr>>(args: &[S]) -> (i32, String) {
    let (status, shown) = Terminal::start(args).end();
    (status.code().unwrap_or(-1), shown)
}

/// Removes the escape sequences of colors and cursors (CSI) and of window titles (OSC).
fn without_escapes(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\x1b') {
        plain.push_str(before);
        let end = match after.as_bytes().first() {
            Some(b'[') => after[1..].find(|c: char| ('@'..='~').contains(&c)).map(|at| at + 2),
            Some(b']') => after.find('\x07').map(|at| at + 1),
            _ => Some(after.len().min(1)),
        };
        rest = &after[end.unwrap_or(after.len())..];
    }
    plain + rest
}

//! Rules of a proxy that harms one message, chosen by its number.
//!
//! Must not use the library.

use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::proxy::{Action, Rules, Way};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// Closes the connection instead of sending the message.
    Before,
    /// Closes the connection after half of the message.
    Half,
    /// Closes the connection directly after the message.
    After,
    /// Delays the message, and then sends it.
    Delay,
    /// Ends the backend with the signal that `pg_terminate_backend` sends, waits until it has
    /// ended, and then sends the message.
    Terminate,
}

impl Harm {
    /// Returns whether this closes the message's connection.
    pub fn cuts(self) -> bool {
        !matches!(self, Harm::Delay | Harm::Terminate)
    }
}

/// A fault, which happens once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    pub way: Way,
    pub harm: Harm,
    /// Number of the message among those in this direction since the rule was set.
    pub number: usize,
    /// Whether the server learns that the connection is closed.
    pub tells_server: bool,
}

/// The rule, until it has been applied, and the number of messages it has seen.
#[derive(Default)]
pub struct HarmOnce(Mutex<(Option<Rule>, usize)>);

impl HarmOnce {
    pub fn set(&self, rule: Rule) {
        *self.0.lock().unwrap() = (Some(rule), 0);
    }

    /// Removes the rule. Returns whether the fault has happened. Waits for the end of a fault that
    /// is happening: a call can return while the proxy still ends the backend.
    pub fn lift(&self) -> bool {
        self.0.lock().unwrap().0.take().is_none()
    }
}

/// Takes the rule out of the state of a [`HarmOnce`] if it applies to this message.
fn take((rule, seen): &mut (Option<Rule>, usize), way: Way) -> Option<Rule> {
    let number = rule.filter(|rule| rule.way == way)?.number;
    *seen += 1;
    if *seen > number { rule.take() } else { None }
}

impl Rules for HarmOnce {
    /// Process id of the connection's backend; 0 until it is known.
    type State = AtomicU32;

    fn action(&self, backend: &AtomicU32, way: Way, message: &[u8]) -> Action {
        if way == Way::ToClient && message[0] == b'K' {
            backend.store(u32::from_be_bytes(message[5..9].try_into().unwrap()), Ordering::SeqCst);
        }
        // Locked until the fault has happened, for which `lift` waits.
        let state = &mut *self.0.lock().unwrap();
        let Some(Rule { harm, tells_server, .. }) = take(state, way) else { return Action::Forward };
        let close = |after| Action::Close { after, tells_server };
        match harm {
            Harm::Before => close(0),
            Harm::Half => close(message.len() / 2),
            Harm::After => close(message.len()),
            Harm::Delay => {
                thread::sleep(Duration::from_millis(20));
                Action::Forward
            }
            Harm::Terminate => {
                match backend.load(Ordering::SeqCst) {
                    0 => {} // this was no message of a session
                    pid => terminate(pid),
                }
                Action::Forward
            }
        }
    }

    fn tells_end(&self, _: Way) -> bool {
        true
    }
}

/// Ends a backend and waits until it has ended.
fn terminate(pid: u32) {
    let end = Instant::now() + Duration::from_secs(10);
    while Command::new("kill").arg(pid.to_string()).stderr(Stdio::null()).status().unwrap().success() {
        assert!(Instant::now() < end, "the backend does not end");
        thread::sleep(Duration::from_millis(1));
    }
}

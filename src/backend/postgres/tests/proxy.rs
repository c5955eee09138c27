//! Proxy between client and server, which loses the messages of a commit.

use std::ops::Deref;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use super::message_proxy::{self, Action, Rules, Way};
use super::server::Server;

/// Messages that the proxy loses, once. It closes the connection for the client then; later
/// connections work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    None,
    /// The answer to a commit is lost. The answers to the requests before it arrive.
    SwallowAnswerToCommit,
    /// The server never gets the commit.
    SwallowCommit,
    /// Like `SwallowCommit`, but the client's connection stays open until it is [cut](Proxy::cut).
    HoldCommit,
    /// The server gets everything, and no answer arrives.
    SwallowAllAnswers,
}

pub(super) struct Losses {
    rule: Mutex<Rule>,
    holds: AtomicBool,
}

/// Number of answers that the client of a connection still gets.
pub(super) struct AnswersLeft(AtomicU32);

impl Default for AnswersLeft {
    fn default() -> AnswersLeft {
        AnswersLeft(AtomicU32::new(u32::MAX))
    }
}

impl Losses {
    fn rule(&self) -> Rule {
        *self.rule.lock().unwrap()
    }

    /// Closes the connection for the client only. Later connections work.
    fn close(&self) -> Action {
        *self.rule.lock().unwrap() = Rule::None;
        Action::Close { after: 0, tells_server: false }
    }

    fn request(&self, left: &AnswersLeft, request: &[u8]) -> Action {
        let is_commit = request.ends_with(b"COMMIT\0");
        match self.rule() {
            Rule::SwallowCommit if is_commit => {
                // The answers to earlier requests are still on their way.
                thread::sleep(Duration::from_millis(200));
                self.close()
            }
            Rule::HoldCommit if is_commit => {
                self.holds.store(true, Ordering::SeqCst);
                Action::Hold
            }
            Rule::SwallowAnswerToCommit if request.windows(7).any(|part| part == b"pg_curr") => {
                left.0.store(1, Ordering::SeqCst);
                Action::Forward
            }
            _ => Action::Forward,
        }
    }

    fn answer(&self, left: &AnswersLeft, answer: &[u8]) -> Action {
        let is_last = answer[0] == b'Z';
        let now_left = left.0.load(Ordering::SeqCst);
        if self.rule() == Rule::SwallowAllAnswers || now_left == 0 {
            return if is_last { self.close() } else { Action::Drop };
        }
        if is_last && now_left != u32::MAX {
            left.0.fetch_sub(1, Ordering::SeqCst);
        }
        Action::Forward
    }
}

impl Rules for Losses {
    type State = AnswersLeft;

    fn action(&self, left: &AnswersLeft, way: Way, message: &[u8]) -> Action {
        match way {
            Way::ToServer => self.request(left, message),
            Way::ToClient => self.answer(left, message),
        }
    }

    fn tells_end(&self, way: Way) -> bool {
        match way {
            // Like a broken network.
            Way::ToServer => false,
            Way::ToClient => {
                let mut rule = self.rule.lock().unwrap();
                let holds = *rule == Rule::HoldCommit;
                if !holds {
                    *rule = Rule::None;
                }
                !holds
            }
        }
    }
}

pub(super) struct Proxy(message_proxy::Proxy<Losses>);

impl Proxy {
    pub(super) fn before(server: &Server) -> Proxy {
        let losses = Losses { rule: Mutex::new(Rule::None), holds: AtomicBool::new(false) };
        Proxy(message_proxy::Proxy::before(server.folder(), losses))
    }

    pub(super) fn url(&self, schema: &str) -> String {
        format!("postgresql://postgres@/postgres?host={}&schema={schema}", self.folder().display())
    }

    pub(super) fn rule(&self, rule: Rule) {
        *self.rules().rule.lock().unwrap() = rule;
    }

    /// Closes all connections for the clients. The server does not learn of it.
    pub(super) fn cut(&self) {
        self.rule(Rule::None);
        self.0.cut();
    }

    /// Returns whether a commit is held.
    pub(super) fn holds(&self) -> bool {
        self.rules().holds.load(Ordering::SeqCst)
    }
}

impl Deref for Proxy {
    type Target = message_proxy::Proxy<Losses>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

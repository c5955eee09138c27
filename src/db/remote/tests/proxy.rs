//! A proxy before a server, which loses messages at the worst moments.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::{net::Shutdown, thread};

use super::server::Server;

/// What is lost, once. After that the connection is cut, and the next ones work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    None,
    /// The server gets the commit; its answer is lost, but not that to what was asked before.
    SwallowAnswerToCommit,
    /// The server never gets the commit.
    SwallowCommit,
    /// The same, and the client is not told until all is [cut](Proxy::cut).
    HoldCommit,
    /// The server gets everything, and nothing comes back.
    SwallowAllAnswers,
}

struct State {
    rule: Mutex<Rule>,
    connections: AtomicU32,
    holds: AtomicBool,
    /// The client's ends.
    open: Mutex<Vec<UnixStream>>,
}

pub(super) struct Proxy {
    folder: tempfile::TempDir,
    state: Arc<State>,
}

impl Proxy {
    pub(super) fn before(server: &Server) -> Proxy {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let state = Arc::new(State {
            rule: Mutex::new(Rule::None),
            connections: AtomicU32::new(0),
            holds: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let behind = server.folder().join(".s.PGSQL.5432");
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let Ok(server) = UnixStream::connect(&behind) else { continue };
                shared.open.lock().unwrap().push(client.try_clone().unwrap());
                shared.connections.fetch_add(1, Ordering::SeqCst);
                pass_on(client, server, &shared);
            }
        });
        Proxy { folder, state }
    }

    pub(super) fn url(&self, schema: &str) -> String {
        format!("postgresql://postgres@/postgres?host={}&schema={schema}", self.folder.path().display())
    }

    pub(super) fn rule(&self, rule: Rule) {
        *self.state.rule.lock().unwrap() = rule;
    }

    /// Cuts all connections to the client. The server's ends stay open.
    pub(super) fn cut(&self) {
        self.rule(Rule::None);
        for client in self.state.open.lock().unwrap().drain(..) {
            let _ = client.shutdown(Shutdown::Both);
        }
    }

    /// Whether a commit is held.
    pub(super) fn holds(&self) -> bool {
        self.state.holds.load(Ordering::SeqCst)
    }

    /// Where it listens.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// How many there were.
    pub(super) fn connections(&self) -> u32 {
        self.state.connections.load(Ordering::SeqCst)
    }
}

/// A message with its type and length; `None`: the end.
fn message(from: &mut UnixStream, has_type: bool) -> Option<Vec<u8>> {
    let mut head = vec![0; if has_type { 5 } else { 4 }];
    from.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes(head[head.len() - 4..].try_into().unwrap()) as usize;
    let mut rest = vec![0; length - 4];
    from.read_exact(&mut rest).ok()?;
    head.extend(rest);
    Some(head)
}

fn pass_on(mut client: UnixStream, mut server: UnixStream, state: &Arc<State>) {
    let (mut from_server, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let answers_until_cut = Arc::new(AtomicU32::new(u32::MAX));
    let counted = Arc::clone(&answers_until_cut);
    let shared = Arc::clone(state);
    thread::spawn(move || {
        while let Some(answer) = message(&mut from_server, true) {
            let is_last = answer[0] == b'Z';
            if *shared.rule.lock().unwrap() == Rule::SwallowAllAnswers || counted.load(Ordering::SeqCst) == 0
            {
                if is_last {
                    break; // it is done
                }
                continue;
            }
            // Before it is passed on: the next request may come at once, and say that its answer is to be counted.
            let counts = is_last && counted.load(Ordering::SeqCst) != u32::MAX;
            if to_client.write_all(&answer).is_err() {
                break;
            }
            if counts {
                counted.fetch_sub(1, Ordering::SeqCst);
            }
        }
        if *shared.rule.lock().unwrap() != Rule::HoldCommit {
            *shared.rule.lock().unwrap() = Rule::None;
            let _ = to_client.shutdown(Shutdown::Both);
        }
    });
    let shared = Arc::clone(state);
    thread::spawn(move || {
        let mut sent = message(&mut client, false);
        while let Some(request) = sent {
            let is_commit = request.ends_with(b"COMMIT\0");
            let rule = *shared.rule.lock().unwrap();
            if is_commit && rule == Rule::SwallowCommit {
                // The answer to what was asked before is on its way; the connection to the server stays open.
                thread::sleep(std::time::Duration::from_millis(200));
                shared.open.lock().unwrap().clear();
                let _ = client.shutdown(Shutdown::Both);
                *shared.rule.lock().unwrap() = Rule::None;
                std::mem::forget(server);
                return;
            }
            if is_commit && rule == Rule::HoldCommit {
                shared.holds.store(true, Ordering::SeqCst);
                return;
            }
            if rule == Rule::SwallowAnswerToCommit && request.windows(7).any(|part| part == b"pg_curr") {
                answers_until_cut.store(1, Ordering::SeqCst);
            }
            if server.write_all(&request).is_err() {
                return;
            }
            sent = message(&mut client, true);
        }
        // A client that goes is a network that fails: the server is not told.
        std::mem::forget(server);
    });
}

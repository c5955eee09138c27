//! A proxy before a server, which does something bad to one message that it was told by number.
//!
//! Must not enter: anything that knows the library.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

/// Which way a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    ToServer,
    ToClient,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// The connection is cut before it.
    Before,
    /// In the middle of it.
    Half,
    /// Right after it.
    After,
    /// It is late, and arrives.
    Delay,
}

/// What is done, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    pub way: Way,
    pub harm: Harm,
    /// Of messages that went this way since the rule was set.
    pub number: usize,
    /// Whether the server is told of the cut; if not, it goes on with what it has got, and waits for more.
    pub tells_server: bool,
}

#[derive(Default)]
struct State {
    rule: Option<Rule>,
    seen: usize,
    /// The server's ends of connections of whose cut it was not told.
    kept: Vec<UnixStream>,
}

pub struct Proxy {
    folder: TempDir,
    state: Arc<Mutex<State>>,
}

impl Proxy {
    /// Before the server with a socket in that folder.
    pub fn before(server: &Path) -> Proxy {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let (socket, state) = (server.join(".s.PGSQL.5432"), Arc::<Mutex<State>>::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), UnixStream::connect(&socket));
                let Ok(server) = server else { continue };
                for way in [Way::ToServer, Way::ToClient] {
                    let (client, server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                    let state = Arc::clone(&shared);
                    thread::spawn(move || pass_on(way, client, server, &state));
                }
            }
        });
        Proxy { folder, state }
    }

    /// The same URL by way of the proxy.
    pub fn url(&self, url: &str) -> String {
        let (start, rest) = url.split_once("host=").unwrap();
        let rest = rest.split_once('&').unwrap().1;
        format!("{start}host={}&{rest}", self.folder.path().display())
    }

    pub fn set(&self, rule: Rule) {
        let mut state = self.state.lock().unwrap();
        (state.rule, state.seen) = (Some(rule), 0);
    }

    /// Has all pass from now on; tells whether the rule was obeyed.
    pub fn lift(&self) -> bool {
        self.state.lock().unwrap().rule.take().is_none()
    }
}

/// A message with its type, if it has one, and its length; `None`: the end.
fn message(from: &mut UnixStream, has_type: bool) -> Option<Vec<u8>> {
    let mut head = vec![0; if has_type { 5 } else { 4 }];
    from.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes(head[head.len() - 4..].try_into().unwrap()) as usize;
    let mut rest = vec![0; length - 4];
    from.read_exact(&mut rest).ok()?;
    head.extend(rest);
    Some(head)
}

/// The rule, if this is its message.
fn meets(state: &Mutex<State>, way: Way) -> Option<Rule> {
    let mut state = state.lock().unwrap();
    let rule = state.rule.filter(|rule| rule.way == way)?;
    state.seen += 1;
    if state.seen <= rule.number {
        return None;
    }
    state.rule.take()
}

fn pass_on(way: Way, client: UnixStream, server: UnixStream, state: &Mutex<State>) {
    let (mut from, mut to) = match way {
        Way::ToServer => (client.try_clone().unwrap(), server.try_clone().unwrap()),
        Way::ToClient => (server.try_clone().unwrap(), client.try_clone().unwrap()),
    };
    let mut has_type = way == Way::ToClient;
    while let Some(message) = message(&mut from, has_type) {
        has_type = true;
        let rule = meets(state, way);
        let passes = match rule.map(|rule| rule.harm) {
            Some(Harm::Before) => 0,
            Some(Harm::Half) => message.len() / 2,
            Some(Harm::Delay) => {
                thread::sleep(Duration::from_millis(20));
                message.len()
            }
            Some(Harm::After) | None => message.len(),
        };
        if to.write_all(&message[..passes]).is_err() {
            break;
        }
        let Some(rule) = rule.filter(|rule| rule.harm != Harm::Delay) else { continue };
        if rule.tells_server {
            let _ = server.shutdown(Shutdown::Both);
        } else {
            state.lock().unwrap().kept.push(server.try_clone().unwrap());
        }
        let _ = client.shutdown(Shutdown::Both);
        return;
    }
    // Who has gone by himself takes the other one with him, unless the other is not to know.
    let _ = client.shutdown(Shutdown::Both);
    if way == Way::ToClient || state.lock().unwrap().kept.is_empty() {
        let _ = server.shutdown(Shutdown::Both);
    }
}

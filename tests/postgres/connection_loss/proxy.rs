//! A proxy in front of a PostgreSQL server, which harms one message, chosen by its number.
//!
//! Must not use the library.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Direction of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    ToServer,
    ToClient,
}

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
    /// Whether the server learns that the connection is closed. Otherwise it continues with what it
    /// has received, and waits for more.
    pub tells_server: bool,
}

#[derive(Default)]
struct State {
    rule: Option<Rule>,
    seen: usize,
    /// Server sides of connections that were closed without telling the server.
    kept: Vec<UnixStream>,
    is_over: bool,
}

pub struct Proxy {
    folder: TempDir,
    state: Arc<Mutex<State>>,
}

impl Proxy {
    /// Starts a proxy for the server whose socket is in that folder.
    pub fn before(server: &Path) -> Proxy {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let (socket, state) = (server.join(".s.PGSQL.5432"), Arc::<Mutex<State>>::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                if shared.lock().unwrap().is_over {
                    return;
                }
                let (client, server) = (client.unwrap(), UnixStream::connect(&socket));
                let Ok(server) = server else { continue };
                let backend = Arc::<AtomicU32>::default();
                for way in [Way::ToServer, Way::ToClient] {
                    let (client, server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                    let (state, backend) = (Arc::clone(&shared), Arc::clone(&backend));
                    thread::spawn(move || pass_on(way, client, server, &state, &backend));
                }
            }
        });
        Proxy { folder, state }
    }

    /// Returns the URL that reaches the same store through the proxy.
    pub fn url(&self, url: &str) -> String {
        let (start, rest) = url.split_once("host=").unwrap();
        let rest = rest.split_once('&').unwrap().1;
        format!("{start}host={}&{rest}", self.folder.path().display())
    }

    pub fn set(&self, rule: Rule) {
        let mut state = self.state.lock().unwrap();
        (state.rule, state.seen) = (Some(rule), 0);
    }

    /// Closes all kept connections to the server, as its keep-alives would do eventually.
    pub fn notify_server(&self) {
        for server in self.state.lock().unwrap().kept.drain(..) {
            let _ = server.shutdown(Shutdown::Both);
        }
    }

    /// Removes the rule. Returns whether the fault has happened.
    pub fn lift(&self) -> bool {
        self.state.lock().unwrap().rule.take().is_none()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.notify_server();
        self.state.lock().unwrap().is_over = true;
        let _ = UnixStream::connect(self.folder.path().join(".s.PGSQL.5432")); // wakes it
    }
}

/// Reads a message with its length, and its type if it has one; `None` at the end.
fn message(from: &mut UnixStream, has_type: bool) -> Option<Vec<u8>> {
    let mut head = vec![0; if has_type { 5 } else { 4 }];
    from.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes(head[head.len() - 4..].try_into().unwrap()) as usize;
    let mut rest = vec![0; length - 4];
    from.read_exact(&mut rest).ok()?;
    head.extend(rest);
    Some(head)
}

/// Takes the rule if it applies to this message.
fn meets(state: &Mutex<State>, way: Way) -> Option<Rule> {
    let mut state = state.lock().unwrap();
    let rule = state.rule.filter(|rule| rule.way == way)?;
    state.seen += 1;
    if state.seen <= rule.number {
        return None;
    }
    state.rule.take()
}

/// Ends a backend and waits until it has ended.
fn terminate(pid: u32) {
    let end = Instant::now() + Duration::from_secs(10);
    while Command::new("kill").arg(pid.to_string()).stderr(Stdio::null()).status().unwrap().success() {
        assert!(Instant::now() < end, "the backend does not end");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Forwards messages in one direction. `backend` is the backend's process id, once it is known.
fn pass_on(way: Way, client: UnixStream, server: UnixStream, state: &Mutex<State>, backend: &AtomicU32) {
    let (mut from, mut to) = match way {
        Way::ToServer => (client.try_clone().unwrap(), server.try_clone().unwrap()),
        Way::ToClient => (server.try_clone().unwrap(), client.try_clone().unwrap()),
    };
    let mut has_type = way == Way::ToClient;
    while let Some(message) = message(&mut from, has_type) {
        has_type = true;
        if way == Way::ToClient && message[0] == b'K' {
            backend.store(u32::from_be_bytes(message[5..9].try_into().unwrap()), Ordering::SeqCst);
        }
        let rule = meets(state, way);
        let passes = match rule.map(|rule| rule.harm) {
            Some(Harm::Before) => 0,
            Some(Harm::Half) => message.len() / 2,
            Some(Harm::Delay) => {
                thread::sleep(Duration::from_millis(20));
                message.len()
            }
            Some(Harm::Terminate) => {
                match backend.load(Ordering::SeqCst) {
                    0 => {} // it is not known yet: this was no message of a session
                    pid => terminate(pid),
                }
                message.len()
            }
            Some(Harm::After) | None => message.len(),
        };
        if to.write_all(&message[..passes]).is_err() {
            break;
        }
        let Some(rule) = rule.filter(|rule| rule.harm.cuts()) else { continue };
        if rule.tells_server {
            let _ = server.shutdown(Shutdown::Both);
        } else {
            state.lock().unwrap().kept.push(server.try_clone().unwrap());
        }
        let _ = client.shutdown(Shutdown::Both);
        return;
    }
    // The end of one side closes the other side too, unless the server must not learn of a cut. (A
    // client that closes a connection sends a message first.)
    let _ = client.shutdown(Shutdown::Both);
    if way == Way::ToClient || state.lock().unwrap().kept.is_empty() {
        let _ = server.shutdown(Shutdown::Both);
    }
}

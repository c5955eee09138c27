//! A proxy in front of a PostgreSQL server. The test's [`Rules`] decide what becomes of each message.
//!
//! The library's unit tests include this file too. It must not use the library.

#![allow(dead_code)] // each crate of tests uses its part

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use tempfile::TempDir;

/// Name of a server's socket in its folder.
pub const SOCKET: &str = ".s.PGSQL.5432";

/// Direction of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    ToServer,
    ToClient,
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Forward,
    /// Drops the message. The connection stays open.
    Drop,
    /// Forwards the first `after` bytes of the message, then closes the connection. Unless
    /// `tells_server`, the server continues with what it has received, and waits for more.
    Close {
        after: usize,
        tells_server: bool,
    },
    /// Forwards nothing more in this direction. The connection stays open.
    Hold,
}

/// Decides what becomes of the messages of all connections of a proxy.
pub trait Rules: Send + Sync + 'static {
    /// State of a connection.
    type State: Default + Send + Sync;

    fn action(&self, state: &Self::State, way: Way, message: &[u8]) -> Action;

    /// Returns whether the receiver of the messages in this direction learns that the sender has
    /// closed the connection.
    fn tells_end(&self, way: Way) -> bool;
}

struct Connection<S> {
    client: UnixStream,
    server: UnixStream,
    state: S,
    /// The connection was closed for the client only.
    is_kept: AtomicBool,
}

struct Shared<R: Rules> {
    rules: R,
    /// Number of connections so far.
    count: AtomicU32,
    /// Connections of which one side may be open.
    connections: Mutex<Vec<Arc<Connection<R::State>>>>,
    is_over: AtomicBool,
}

pub struct Proxy<R: Rules> {
    folder: TempDir,
    shared: Arc<Shared<R>>,
}

impl<R: Rules> Proxy<R> {
    /// Starts a proxy for the server whose socket is in the folder `server`.
    pub fn before(server: &Path, rules: R) -> Proxy<R> {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(SOCKET)).unwrap();
        let shared = Arc::new(Shared {
            rules,
            count: AtomicU32::new(0),
            connections: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let (socket, accepting) = (server.join(SOCKET), Arc::clone(&shared));
        thread::spawn(move || accept(&listener, &socket, &accepting));
        Proxy { folder, shared }
    }

    pub fn rules(&self) -> &R {
        &self.shared.rules
    }

    /// The folder of the proxy's socket.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the URL that reaches the same store through the proxy.
    pub fn url(&self, url: &str) -> String {
        let (start, rest) = url.split_once("host=").unwrap();
        let rest = rest.split_once('&').unwrap().1;
        format!("{start}host={}&{rest}", self.folder().display())
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> u32 {
        self.shared.count.load(Ordering::SeqCst)
    }

    /// Closes all connections for the clients. The server does not learn of it.
    pub fn cut(&self) {
        for connection in self.shared.connections.lock().unwrap().iter() {
            connection.is_kept.store(true, Ordering::SeqCst);
            let _ = connection.client.shutdown(Shutdown::Both);
        }
    }

    /// Closes the connections that are closed for the client only, as the server's keep-alives would
    /// do eventually.
    pub fn notify_server(&self) {
        self.shared.connections.lock().unwrap().retain(|connection| {
            let is_kept = connection.is_kept.load(Ordering::SeqCst);
            if is_kept {
                let _ = connection.server.shutdown(Shutdown::Both);
            }
            !is_kept
        });
    }
}

impl<R: Rules> Drop for Proxy<R> {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        let _ = UnixStream::connect(self.folder().join(SOCKET)); // ends the thread that accepts
        for connection in self.shared.connections.lock().unwrap().drain(..) {
            let _ = connection.server.shutdown(Shutdown::Both);
        }
    }
}

fn accept<R: Rules>(listener: &UnixListener, socket: &PathBuf, shared: &Arc<Shared<R>>) {
    for client in listener.incoming() {
        if shared.is_over.load(Ordering::SeqCst) {
            return;
        }
        let (client, Ok(server)) = (client.unwrap(), UnixStream::connect(socket)) else { continue };
        let (state, is_kept) = (R::State::default(), AtomicBool::new(false));
        let connection = Arc::new(Connection { client, server, state, is_kept });
        shared.connections.lock().unwrap().push(Arc::clone(&connection));
        shared.count.fetch_add(1, Ordering::SeqCst);
        for way in [Way::ToServer, Way::ToClient] {
            let (shared, connection) = (Arc::clone(shared), Arc::clone(&connection));
            thread::spawn(move || pass_on(way, &connection, &shared));
        }
    }
}

/// Reads a message with its length, and its type if it has one. Returns `None` at the end.
pub fn read_message(mut from: impl Read, has_type: bool) -> Option<Vec<u8>> {
    let mut head = vec![0; if has_type { 5 } else { 4 }];
    from.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes(head[head.len() - 4..].try_into().unwrap()) as usize;
    let mut rest = vec![0; length - 4];
    from.read_exact(&mut rest).ok()?;
    head.extend(rest);
    Some(head)
}

/// Forwards messages in one direction.
fn pass_on<R: Rules>(way: Way, connection: &Arc<Connection<R::State>>, shared: &Shared<R>) {
    let (mut from, mut to) = match way {
        Way::ToServer => (&connection.client, &connection.server),
        Way::ToClient => (&connection.server, &connection.client),
    };
    let mut has_type = way == Way::ToClient; // a client's first message has none
    while let Some(message) = read_message(&mut from, has_type) {
        has_type = true;
        let action = shared.rules.action(&connection.state, way, &message);
        let passes = match action {
            Action::Forward => message.len(),
            Action::Drop => continue,
            Action::Close { after, .. } => after,
            Action::Hold => return,
        };
        // If the receiver is gone, the other thread of the connection notices it.
        if to.write_all(&message[..passes]).is_err() {
            return;
        }
        if let Action::Close { tells_server, .. } = action {
            connection.is_kept.store(!tells_server, Ordering::SeqCst);
            if tells_server {
                let _ = connection.server.shutdown(Shutdown::Both);
            }
            let _ = connection.client.shutdown(Shutdown::Both);
            return;
        }
    }
    let is_kept = way == Way::ToServer && connection.is_kept.load(Ordering::SeqCst);
    if !is_kept && shared.rules.tells_end(way) {
        let _ = to.shutdown(Shutdown::Both);
        shared.connections.lock().unwrap().retain(|other| !Arc::ptr_eq(other, connection));
    }
}

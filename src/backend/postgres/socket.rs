//! Blocking socket that runs the futures of tokio-postgres without an async runtime. All waiting is
//! in `read` and `write` of [`Socket`].
//!
//! tokio-postgres needs a stream that is polled. An async runtime would use an epoll descriptor,
//! which the child of a fork shares with its parent. When the child closes its copy of a socket,
//! the parent's socket is removed from the epoll set. This module uses only the socket. In the
//! child of a fork, the socket is replaced by an inert one ([`Mortal`]). So the child sends nothing
//! to the server, and does not prolong the session of a parent that was killed. This also takes
//! fewer system calls: one write and one read for each round trip.
//!
//! A read blocks only if [`Patience`] was granted to it. [`Driver::run`] grants it when no data is
//! left to send.

use std::future::Future;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::backend::Mortal;
use crate::wait;

/// Maximum number of bytes that a server may send while a [`Limit`] applies. A genuine server sends
/// a few kilobytes for a log-in.
const MOST_BYTES: usize = 1 << 20;

/// Minimum timeout that is set for a read or write of a socket. Zero would mean no timeout.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// Connected socket: TCP or Unix.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Limit on the answers of the server: a deadline for all of them together, and the number of bytes
/// that it may still send, in any number of packets.
struct Limit {
    end: Instant,
    bytes: usize,
}

/// Value of `Socket::turns` for an unlimited number of [turns](Socket::limit_turns).
const NO_LIMIT: u32 = u32::MAX;

pub(super) struct Socket {
    stream: Stream,
    _mortal: Mortal,
    limit: Mutex<Option<Limit>>,
    turns: AtomicU32,
    /// Whether the last transfer on the socket was a read. If it was, the next write begins a turn.
    has_read: AtomicBool,
}

impl Socket {
    /// Creates a socket from a stream, and configures it for [`write`](Socket::write).
    pub(super) fn new(stream: Stream) -> io::Result<Socket> {
        let mortal = match &stream {
            Stream::Tcp(stream) => Mortal::new(stream),
            Stream::Unix(stream) => Mortal::new(stream),
        }?;
        let socket = Socket {
            stream,
            _mortal: mortal,
            limit: Mutex::default(),
            turns: AtomicU32::new(NO_LIMIT),
            has_read: AtomicBool::new(false),
        };
        #[cfg(target_vendor = "apple")]
        socket.as_ref().set_nosigpipe(true)?;
        socket.set_no_timeout()?;
        Ok(socket)
    }

    fn as_ref(&self) -> SockRef<'_> {
        match &self.stream {
            Stream::Tcp(stream) => SockRef::from(stream),
            Stream::Unix(stream) => SockRef::from(stream),
        }
    }

    /// Configures the socket to discard data that the server has not received yet when the socket
    /// is closed.
    ///
    /// Otherwise, the system would continue to send the data after the close, for a minute and
    /// longer. If the request was run again on another connection, the server would execute it a
    /// second time.
    pub(super) fn call_back(&self) {
        let _ = self.as_ref().set_linger(Some(Duration::ZERO)); // cannot fail where it exists
    }

    /// Limits all following reads and writes together: they must end before `end`, and read at most
    /// [`MOST_BYTES`]. The limit applies until [`lift_limit`](Socket::lift_limit) is called.
    pub(super) fn limit(&self, end: Instant) {
        *self.limit.lock().unwrap_or_else(PoisonError::into_inner) = Some(Limit { end, bytes: MOST_BYTES });
    }

    pub(super) fn lift_limit(&self) -> io::Result<()> {
        *self.limit.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.set_no_timeout()
    }

    /// Removes the timeout of reads and writes. If a wait hook is set, they time out at intervals
    /// instead, so that the hook is called.
    fn set_no_timeout(&self) -> io::Result<()> {
        self.set_timeout(Some(wait::INTERVAL).filter(|_| wait::has_hook()))
    }

    /// Limits the number of turns that may follow on this socket; `None` for no limit. A turn is a
    /// write that follows a read. A request is one turn, even if it is sent in several writes.
    pub(super) fn limit_turns(&self, turns: Option<u32>) {
        self.turns.store(turns.unwrap_or(NO_LIMIT), Ordering::Relaxed);
    }

    /// Fails if the next write would exceed the limit on turns. Must be called before each write.
    fn within_turns(&self) -> io::Result<()> {
        let is_turn = self.has_read.swap(false, Ordering::Relaxed);
        match self.turns.load(Ordering::Relaxed) {
            left if !is_turn || left == NO_LIMIT => Ok(()),
            0 => Err(io::Error::other("an answer that no PostgreSQL gives: it takes ever more questions")),
            left => {
                self.turns.store(left - 1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// Fails if the limit on time or bytes is reached. Otherwise, sets the timeout of the next read
    /// or write, and returns the number of bytes that may be read. Must be called before each read
    /// and write.
    fn within_limit(&self) -> io::Result<usize> {
        match &*self.limit.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(usize::MAX),
            Some(Limit { bytes: 0, .. }) => Err(io::Error::other("the server sends without an end")),
            Some(Limit { end, bytes }) => {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                let slice = if wait::has_hook() { wait::INTERVAL } else { left };
                self.set_timeout(Some(left.min(slice).max(SHORTEST_WAIT)))?;
                Ok(*bytes)
            }
        }
    }

    /// Sets the timeout of reads and writes; `None` for no timeout.
    fn set_timeout(&self, wait: Option<Duration>) -> io::Result<()> {
        self.as_ref().set_read_timeout(wait)?;
        self.as_ref().set_write_timeout(wait)
    }

    /// Returns `true` if the server has sent data that was not read yet, or the connection is
    /// closed. Does not wait.
    pub(super) fn has_news(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        match self.as_ref().recv_with_flags(&mut byte, libc::MSG_PEEK | libc::MSG_DONTWAIT) {
            Ok(_) => true, // also the end of the stream
            Err(e) => e.kind() != io::ErrorKind::WouldBlock,
        }
    }

    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let most = self.within_limit()?.min(into.len());
            let into = into.get_mut(..most).unwrap_or_default();
            let done = match &self.stream {
                Stream::Tcp(stream) => (&*stream).read(into),
                Stream::Unix(stream) => (&*stream).read(into),
            };
            match done {
                Err(e) if is_pause(&e) && !wait::is_ended() => {}
                Err(e) if is_pause(&e) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(read) => {
                    self.has_read.store(true, Ordering::Relaxed);
                    if let Some(limit) = &mut *self.limit.lock().unwrap_or_else(PoisonError::into_inner) {
                        limit.bytes = limit.bytes.saturating_sub(read);
                    }
                    return Ok(read);
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Sends bytes, and returns their number. Raises no SIGPIPE if the server has closed the
    /// connection, because the program that uses this library may not ignore that signal.
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(target_vendor = "apple")]
        const QUIETLY: libc::c_int = 0; // Apple has a socket option instead, set in `new`
        #[cfg(not(target_vendor = "apple"))]
        const QUIETLY: libc::c_int = libc::MSG_NOSIGNAL;
        self.within_turns()?;
        loop {
            self.within_limit()?;
            match self.as_ref().send_with_flags(bytes, QUIETLY) {
                Err(e) if is_pause(&e) && !wait::is_ended() => {}
                Err(e) if is_pause(&e) => return Err(io::ErrorKind::TimedOut.into()),
                // The server has closed the connection, and may have sent the reason before. The
                // next read returns the reason, and then the end of the stream.
                Err(e) if matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                    return Ok(bytes.len());
                }
                done => return done,
            }
        }
    }
}

/// Returns `true` if a read or write was interrupted by a signal or by the timeout of the socket,
/// so that it can be tried again. `within_limit` then checks whether time is left.
fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

/// Permission for the next read of the socket to block until data arrives. That read uses it up.
#[derive(Default)]
pub(super) struct Patience(AtomicBool);

/// Stream that tokio-postgres reads from and writes to.
pub(super) struct Wire {
    socket: Arc<Socket>,
    patience: Arc<Patience>,
}

impl Wire {
    pub(super) fn new(socket: Arc<Socket>, patience: Arc<Patience>) -> Wire {
        Wire { socket, patience }
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.patience.0.swap(false, Ordering::Relaxed) {
            return Poll::Pending; // `Driver::run` polls again
        }
        let read = self.socket.read(into.initialize_unfilled())?;
        into.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.socket.write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Does nothing: the socket is closed when its last owner drops it.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Waker of a [`Driver`]. Its flag records that a future can continue.
#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs all futures of one connection. All of them use the same waker, because tokio-postgres may
/// keep the waker of an earlier run and call it later.
pub(super) struct Driver {
    bell: Arc<Bell>,
    waker: Waker,
    patience: Arc<Patience>,
}

impl Driver {
    pub(super) fn new() -> Driver {
        let bell = Arc::new(Bell::default());
        Driver { waker: Waker::from(Arc::clone(&bell)), bell, patience: Arc::default() }
    }

    pub(super) fn patience(&self) -> Arc<Patience> {
        Arc::clone(&self.patience)
    }

    /// Polls until `poll` returns a result. If the waker was not called during a poll, all data has
    /// been sent, and the next read may block.
    pub(super) fn run<R>(&self, mut poll: impl FnMut(&mut Context<'_>) -> Poll<R>) -> R {
        let mut context = Context::from_waker(&self.waker);
        self.patience.0.store(false, Ordering::Relaxed);
        loop {
            self.bell.0.store(false, Ordering::Relaxed);
            if let Poll::Ready(answer) = poll(&mut context) {
                return answer;
            }
            if !self.bell.0.load(Ordering::Relaxed) {
                self.patience.0.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Runs a future, which reads from the socket itself, until it is complete.
    pub(super) fn finish<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        self.run(|context| future.as_mut().poll(context))
    }

    /// Calls `poll` once. One read in it may block.
    pub(super) fn poll_once<R>(&self, poll: impl FnOnce(&mut Context<'_>) -> R) -> R {
        self.patience.0.store(true, Ordering::Relaxed);
        poll(&mut Context::from_waker(&self.waker))
    }
}

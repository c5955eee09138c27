//! Connection to a server: connects, sends requests and receives their answers.

use std::error::Error as _;
use std::future::Future;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, SockRef, TcpKeepalive, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{MakeTlsConnect, NoTls};
use tokio_postgres::types::{self, ToSql};
use tokio_postgres::{AsyncMessage, Client, Column, Connection, Row, SimpleQueryMessage, Statement};

use super::error::{Failure, MOST_CHARS, Sort, broken, cut, said, shown, summary, translate};
use super::socket::{Driver, Socket, Stream, Wire};
use super::tls;
use super::url::{Host, Place, Settings, TlsMode};
use crate::error::{Error, ErrorKind};

/// Connection object of tokio-postgres, which reads and writes the socket. The trait hides whether
/// the connection uses TLS.
trait Traffic: Send {
    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<AsyncMessage, tokio_postgres::Error>>>;
}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Traffic for Connection<Wire, T> {
    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<AsyncMessage, tokio_postgres::Error>>> {
        self.poll_message(context)
    }
}

/// Connection to a server, through which requests are sent and answers received. It may be broken.
pub(super) struct Line {
    client: Client,
    traffic: Box<dyn Traffic>,
    driver: Driver,
    socket: Arc<Socket>,
    has_ended: bool,
}

/// Maximum number of requests that the driver may send, one after the answer to another, while it
/// prepares one statement ([`Socket::limit_turns`]). One is enough for the statement; TLS may need
/// more for messages of its own.
const MOST_TURNS: u32 = 8;

/// Row of a result of the simple query protocol: one text for each column, `None` for NULL.
pub(super) type Texts = Vec<Option<String>>;

impl Line {
    /// Connects to the first host that accepts the log-in and has the required role (primary, or
    /// any). `connect_timeout` limits the time for each host. The same deadline applies to later
    /// requests on the connection, until [`limit`](Line::limit) sets another one.
    pub(super) fn connect(settings: &Settings, read_only: bool) -> Result<Line, Failure> {
        let wants_primary = settings.wants_primary.unwrap_or(settings.has_several_hosts() && !read_only);
        let mut failures = Vec::new();
        for host in &settings.hosts {
            let end = Instant::now() + settings.connect_timeout;
            match Line::connect_to(host, settings, end).and_then(|line| line.fit(host, wants_primary)) {
                Ok(line) => return Ok(line),
                Err(failure) => {
                    let is_refused = failure.sort == Sort::Refused;
                    failures.push((host, failure));
                    if is_refused {
                        break; // other hosts would refuse the log-in, too
                    }
                }
            }
        }
        Err(none_of(failures))
    }

    fn connect_to(host: &Host, settings: &Settings, end: Instant) -> Result<Line, Failure> {
        let is_local = matches!(host.place, Place::Folder(_));
        let mode = if is_local { TlsMode::Disable } else { settings.tls };
        match Line::log_in(host, settings, mode, end) {
            // As in libpq: `sslmode=prefer` connects without TLS if TLS does not work.
            Err(LogIn::Tls(_)) if mode == TlsMode::Prefer => {
                Line::log_in(host, settings, TlsMode::Disable, end)
            }
            done => done,
        }
        .map_err(|e| match e {
            LogIn::Tls(failure) | LogIn::Other(failure) => failure,
        })
    }

    fn log_in(host: &Host, settings: &Settings, mode: TlsMode, end: Instant) -> Result<Line, LogIn> {
        let driver = Driver::new();
        let socket = Arc::new(open(host, settings, end).map_err(LogIn::Other)?);
        let wire = Wire::new(Arc::clone(&socket), driver.patience());
        let config = settings.log_in_at(host, mode);
        let why = |e: tokio_postgres::Error| why(&e, host, settings);
        let (client, traffic) = if mode == TlsMode::Disable {
            let (client, connection) = driver.finish(config.connect_raw(wire, NoTls)).map_err(why)?;
            (client, Box::new(connection) as Box<dyn Traffic>)
        } else {
            let mut tls = tls::connector(mode, settings.root.as_deref())
                .map_err(|e| LogIn::Other(Failure::new(Sort::Refused, e)))?;
            let tls = MakeTlsConnect::<Wire>::make_tls_connect(&mut tls, host.name());
            let Ok(tls) = tls;
            let (client, connection) = driver.finish(config.connect_raw(wire, tls)).map_err(why)?;
            (client, Box::new(connection) as Box<dyn Traffic>)
        };
        Ok(Line { client, traffic, driver, socket, has_ended: false })
    }

    /// Returns the connection. Fails if `wants_primary` is set and the server accepts no writes.
    /// The URL can set `wants_primary`; by default, it is set if the URL names several hosts and
    /// the handle may write.
    fn fit(mut self, host: &Host, wants_primary: bool) -> Result<Line, Failure> {
        if wants_primary && self.ask("SHOW transaction_read_only")?.as_deref() == Some("on") {
            self.terminate();
            let text = format!("the server at {host} accepts no writes (a standby)");
            return Err(Failure::new(Sort::Unreachable, Error::read_only(text)));
        }
        Ok(self)
    }

    /// Sets the deadline for all following requests; `None` for no deadline. A request fails if its
    /// answer has not arrived by the deadline. A deadline also limits the number of bytes of the
    /// answers ([`Socket::limit`]).
    pub(super) fn limit(&self, end: Option<Instant>) -> Result<(), Failure> {
        match end {
            Some(end) => self.socket.limit(end),
            None => self.socket.lift_limit().map_err(|e| broken(said(&e)))?,
        }
        Ok(())
    }

    /// Returns `true` if the server has closed the connection since the last request. Nothing is
    /// sent.
    pub(super) fn is_gone(&mut self) -> bool {
        while !self.has_ended && self.socket.has_news() {
            let Line { traffic, driver, .. } = self;
            // The data may also be a notice.
            if let Poll::Ready(None | Some(Err(_))) = driver.poll_once(|context| traffic.poll(context)) {
                self.has_ended = true;
            }
        }
        self.has_ended
    }

    /// Prepares a statement.
    ///
    /// All types in the library's statements are built into PostgreSQL, and the driver knows them.
    /// If a server names another type, the driver queries the server for that type, and then for
    /// the types of which it consists. These queries are recursive, so [`MOST_TURNS`] limits their
    /// number, to prevent a stack overflow. A statement with such a type is rejected.
    pub(super) fn prepare(&mut self, sql: &str) -> Result<Statement, Failure> {
        let Line { client, traffic, driver, socket, has_ended } = self;
        socket.limit_turns(Some(MOST_TURNS));
        let prepared = run(driver, traffic.as_mut(), has_ended, client.prepare(sql));
        socket.limit_turns(None);
        let statement = prepared?;
        let columns = statement.columns().iter().map(Column::type_);
        if statement.params().iter().chain(columns).any(|kind| types::Type::from_oid(kind.oid()).is_none()) {
            // The driver keeps types that it has queried, and would use them for later statements.
            *has_ended = true;
            return Err(broken("an answer that no PostgreSQL gives: a type of the server's own"));
        }
        Ok(statement)
    }

    pub(super) fn query(
        &mut self,
        statement: &Statement,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Failure> {
        let Line { client, traffic, driver, has_ended, .. } = self;
        run(driver, traffic.as_mut(), has_ended, client.query(statement, params))
    }

    /// Runs a statement without a result set. Returns the number of rows written.
    pub(super) fn write(
        &mut self,
        statement: &Statement,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, Failure> {
        let Line { client, traffic, driver, has_ended, .. } = self;
        run(driver, traffic.as_mut(), has_ended, client.execute(statement, params))
    }

    /// Runs statements without parameters in one round trip.
    pub(super) fn execute(&mut self, sql: &str) -> Result<(), Failure> {
        let Line { client, traffic, driver, has_ended, .. } = self;
        run(driver, traffic.as_mut(), has_ended, client.batch_execute(sql))
    }

    /// Runs a statement and returns the first row of its result, as texts; `None` if the result has
    /// no row.
    pub(super) fn ask_row(&mut self, sql: &str) -> Result<Option<Texts>, Failure> {
        let Line { client, traffic, driver, has_ended, .. } = self;
        run(driver, traffic.as_mut(), has_ended, client.simple_query(sql))
            .map(|messages| first_row(&messages))
    }

    /// Runs a statement and returns the first column of the first row, as a text; `None` if there
    /// is no row or the column is NULL.
    pub(super) fn ask(&mut self, sql: &str) -> Result<Option<String>, Failure> {
        self.ask_row(sql).map(|row| row.and_then(|row| row.into_iter().next().flatten()))
    }

    /// Sends the query `asked` and the statements `executed` in one round trip. Returns the answer
    /// to `asked`, or `None` if it was lost, and the result of `executed`. The server answers the
    /// first request before it starts the second. So the first answer can arrive even if the second
    /// one is lost.
    pub(super) fn ask_and_execute(
        &mut self,
        asked: &str,
        executed: &str,
    ) -> (Option<Answer>, Result<(), Failure>) {
        let Line { client, traffic, driver, has_ended, .. } = self;
        let mut first = pin!(client.simple_query(asked));
        let mut second = pin!(client.batch_execute(executed));
        let mut answer = None;
        let done = run(
            driver,
            traffic.as_mut(),
            has_ended,
            std::future::poll_fn(|context| {
                if answer.is_none()
                    && let Poll::Ready(found) = first.as_mut().poll(context)
                {
                    answer = Some(found);
                }
                second.as_mut().poll(context)
            }),
        );
        let answer = answer.and_then(|found| match found {
            Ok(messages) => Some(Ok(first_row(&messages).and_then(|row| row.into_iter().next().flatten()))),
            Err(e) => Some(Err(translate(&e))).filter(|_| e.as_db_error().is_some()),
        });
        (answer, done)
    }

    /// Closes the connection. Notifies the server, unless the server has already closed the
    /// connection or has sent data that was not read.
    pub(super) fn terminate(self) {
        let Line { client, mut traffic, driver, socket, has_ended } = self;
        drop(client);
        if !has_ended && !socket.has_news() {
            // Sends the message; there is no answer to wait for.
            socket.limit(Instant::now() + Duration::from_secs(1));
            let _ = driver.run(|context| Poll::Ready(traffic.poll(context)));
            let _ = driver.run(|context| Poll::Ready(traffic.poll(context)));
        } else if has_ended {
            socket.call_back();
        }
    }
}

/// Result of a request: the first column of the first row, as a text; `None` if there is no row or
/// the column is NULL.
pub(super) type Answer = Result<Option<String>, Failure>;

fn first_row(messages: &[SimpleQueryMessage]) -> Option<Texts> {
    messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|at| row.try_get(at).ok().flatten().map(str::to_owned)).collect())
        }
        _ => None,
    })
}

/// Runs a request, and reads and writes the socket for it, until the request is answered.
fn run<R>(
    driver: &Driver,
    traffic: &mut dyn Traffic,
    has_ended: &mut bool,
    request: impl Future<Output = Result<R, tokio_postgres::Error>>,
) -> Result<R, Failure> {
    let mut request = pin!(request);
    let done = driver.run(|context| {
        if let Poll::Ready(done) = request.as_mut().poll(context) {
            return Poll::Ready(done);
        }
        let end = loop {
            match traffic.poll(context) {
                Poll::Ready(Some(Ok(_))) => {} // a notice, or a changed setting
                Poll::Ready(Some(Err(e))) => break Some(e),
                Poll::Ready(None) => {
                    *has_ended = true;
                    break None;
                }
                Poll::Pending => break None,
            }
        };
        match (request.as_mut().poll(context), end) {
            (Poll::Ready(done), _) => Poll::Ready(done),
            (Poll::Pending, Some(e)) => {
                *has_ended = true;
                Poll::Ready(Err(e))
            }
            (Poll::Pending, None) => Poll::Pending,
        }
    });
    done.map_err(|e| {
        let failure = translate(&e);
        // After an unreadable answer, the next request gets no answer either.
        match failure.sort {
            Sort::Refused if e.as_db_error().is_none() && (*has_ended || is_unreadable(&e)) => {
                broken(format!("an answer that no PostgreSQL gives: {}", summary(&e)))
            }
            _ => failure,
        }
    })
}

/// Returns `true` if the driver could not read the server's message, or did not expect it.
fn is_unreadable(error: &tokio_postgres::Error) -> bool {
    let summary = summary(error);
    summary.starts_with("unexpected message") || summary.starts_with("error parsing")
}

/// Failure of a log-in: of the TLS handshake (`Tls`), or of another step (`Other`). With
/// `sslmode=prefer`, the log-in is tried again without TLS after a failure of TLS.
enum LogIn {
    Tls(Failure),
    Other(Failure),
}

fn why(error: &tokio_postgres::Error, host: &Host, settings: &Settings) -> LogIn {
    let cause = shown(&error.source().map(ToString::to_string).unwrap_or_default());
    if error.to_string().starts_with("error performing TLS handshake") {
        let text =
            format!("the TLS connection to the server at {host} that sslmode requires failed ({cause})");
        return LogIn::Tls(Failure::new(Sort::Refused, Error::cant_open(text)));
    }
    let unused = || match settings.unused_password_file() {
        Some(path) => {
            format!(
                " (the file {} was ignored, because other users may read it: chmod 600 it)",
                path.display()
            )
        }
        None => String::new(),
    };
    if cause.contains("password missing") {
        let text = format!(
            "the server requires a password: give it in the URL, in PGPASSWORD, or in ~/.pgpass with mode 600{}",
            unused()
        );
        return LogIn::Other(Failure::new(Sort::Refused, Error::auth_failed(text)));
    }
    let failure = translate(error);
    LogIn::Other(match failure.sort {
        Sort::Broken => {
            let text = format!("cannot log in to the server at {host}: {}", failure.error.message());
            Failure { sort: Sort::Unreachable, error: Error::io(text).of_a_server(), ..failure }
        }
        Sort::Refused if error.as_db_error().is_none() => {
            let is_of_method = error.to_string().starts_with("authentication error");
            Failure::new(
                Sort::Refused,
                match is_of_method {
                    true => Error::auth_failed(format!(
                        "the server at {host} requires a log-in method that this library does not \
                        support ({cause}): allow passwords (scram-sha-256) in its pg_hba.conf"
                    )),
                    false => Error::cant_open(format!(
                        "the program that answers at {host} is not a PostgreSQL server ({}{}{cause})",
                        summary(error),
                        if cause.is_empty() { "" } else { ": " }
                    )),
                },
            )
        }
        _ => failure,
    })
}

/// Combines the failures of all hosts into one failure, for the case that no host can be used. Its
/// class is that of the most serious failure, and its message contains the reasons.
fn none_of(failures: Vec<(&Host, Failure)>) -> Failure {
    /// Maximum number of hosts whose reasons are reported.
    const MOST_HOSTS: usize = 8;
    let only_reads = |failure: &Failure| failure.error.kind() == ErrorKind::ReadOnly;
    let is_standby = failures.iter().any(|(_, failure)| only_reads(failure));
    let reasons: Vec<_> = failures
        .iter()
        .take(MOST_HOSTS)
        .map(|(host, failure)| {
            let (text, host) = (cut(failure.error.message(), MOST_CHARS / 2), host.to_string());
            if text.contains(&host) { text } else { format!("{host}: {text}") }
        })
        .collect();
    let mut text = reasons.join("; ");
    if let Some(more) = failures.len().checked_sub(MOST_HOSTS).filter(|more| *more > 0) {
        text.push_str(&format!("; and {more} more"));
    }
    let is_one = failures.len() == 1;
    // The class of the returned failure: a permanent failure has priority, then a standby, then a
    // busy server, then an unreachable host.
    let rank = |failure: &Failure| match failure.error.kind() {
        _ if failure.sort == Sort::Refused => 3,
        ErrorKind::ReadOnly => 2,
        ErrorKind::Busy => 1,
        _ => 0,
    };
    let Some((_, first)) = failures.into_iter().max_by_key(|(_, failure)| rank(failure)) else {
        return Failure::new(Sort::Refused, Error::invalid("the URL names no host"));
    };
    if first.sort == Sort::Refused && is_one {
        return first;
    }
    if is_standby && first.sort != Sort::Refused {
        text = format!(
            "no server in the URL accepts writes now ({text}): name all servers in the URL; during a failover, retry or set a \
             longer busy timeout"
        );
    } else if !is_one {
        text = format!("no server in the URL can be used: {text}");
    }
    Failure { error: first.error.with_message(text), ..first }
}

/// Opens a socket to a host. `end` is the deadline for the connection attempt, and for all requests
/// on the socket until another limit is set.
fn open(host: &Host, settings: &Settings, end: Instant) -> Result<Socket, Failure> {
    let unreachable = |e: std::io::Error| {
        let advice = match e.kind() {
            std::io::ErrorKind::ConnectionRefused | std::io::ErrorKind::NotFound => {
                ": check that the server is running, and that its listen_addresses, port and unix_socket_directories \
                 match the host and port of the URL"
            }
            _ => "",
        };
        let text = format!("cannot reach the server at {host} ({}){advice}", said(&e));
        Failure::new(Sort::Unreachable, Error::io(text))
    };
    let left = || end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let stream = match &host.place {
        Place::Folder(folder) => {
            let path = folder.join(format!(".s.PGSQL.{}", host.port));
            Stream::Unix(connect_to_folder(&path, left()).map_err(unreachable)?)
        }
        Place::Name(name) => {
            let mut last = std::io::ErrorKind::NotFound.into();
            let mut found = None;
            let addresses: Vec<_> =
                (name.as_str(), host.port).to_socket_addrs().map_err(unreachable)?.collect();
            for (address, others) in addresses.iter().zip((1..=addresses.len()).rev()) {
                // An address that does not answer must leave time for the remaining addresses.
                let wait = left() / u32::try_from(others).unwrap_or(u32::MAX);
                match TcpStream::connect_timeout(address, wait) {
                    Ok(stream) => {
                        found = Some(stream);
                        break;
                    }
                    Err(e) => last = e,
                }
            }
            let Some(stream) = found else { return Err(unreachable(last)) };
            stream.set_nodelay(true).map_err(unreachable)?;
            keep_alive(&stream, settings).map_err(unreachable)?;
            Stream::Tcp(stream)
        }
    };
    let socket = Socket::new(stream).map_err(unreachable)?;
    socket.limit(end);
    Ok(socket)
}

/// Connects to a Unix socket, and waits at most `wait`. Without this limit, `connect` would wait
/// for as long as the server accepts no connections and the queue of its socket is full.
fn connect_to_folder(path: &Path, wait: Duration) -> std::io::Result<UnixStream> {
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_write_timeout(Some(wait))?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => Err(std::io::ErrorKind::TimedOut.into()),
        done => done.map(|()| socket.into()),
    }
}

/// Turns on TCP keep-alive if `settings` request it, and sets its times. With it, the system
/// detects a server whose machine or network is down, so that no call waits forever.
fn keep_alive(stream: &TcpStream, settings: &Settings) -> std::io::Result<()> {
    let keep = &settings.keep_alive;
    let socket = SockRef::from(stream);
    if keep.on {
        let probes = TcpKeepalive::new().with_time(keep.idle).with_interval(keep.interval);
        #[cfg(not(target_os = "openbsd"))]
        let probes = probes.with_retries(keep.count);
        socket.set_tcp_keepalive(&probes)?;
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(keep.user_timeout).filter(|time| !time.is_zero()))?;
    Ok(())
}

impl Settings {
    /// Returns the configuration with which tokio-postgres logs in.
    fn log_in_at(&self, host: &Host, mode: TlsMode) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config.user(&self.user).dbname(&self.database).application_name(&self.application_name);
        if let Some(password) = self.password_at(host) {
            config.password(password.as_bytes());
        }
        config.ssl_mode(match mode {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => SslMode::Require,
        });
        config
    }
}

//! Tests with broken and malicious servers: no call waits forever, fills the memory, or displays
//! their text unchecked.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Instant;

use super::message_proxy::{SOCKET, read_message};
use super::*;
use crate::backend::postgres::client::Line;
use crate::backend::postgres::connection::Link;
use crate::backend::postgres::error::Sort;
use crate::backend::postgres::url::{Environment, Settings};

/// Fake server, which sends what a test specifies.
struct Fake {
    folder: tempfile::TempDir,
}

impl Fake {
    /// Starts a fake. `speak` is called with each connection after the client's first message. The
    /// connection stays open afterwards.
    fn new(speak: impl Fn(&mut UnixStream) -> std::io::Result<()> + Send + 'static) -> Fake {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(SOCKET)).unwrap();
        thread::spawn(move || {
            let mut open = Vec::new();
            for client in listener.incoming() {
                let mut client = client.unwrap();
                let _ = client.read(&mut [0; 1000]).and_then(|_| speak(&mut client));
                open.push(client);
            }
        });
        Fake { folder }
    }

    /// Starts a fake that accepts every log-in, answers the next `answers` requests with an empty
    /// result, and then sends no more.
    fn silent_after(answers: usize) -> Fake {
        Fake::new(move |client| {
            client.write_all(&[&message(b'R', &[0; 4])[..], &message(b'Z', b"I")].concat())?;
            for _ in 0..answers {
                let _ = client.read(&mut [0; 1000])?;
                client.write_all(&[&message(b'C', b"SELECT 0\0")[..], &message(b'Z', b"I")].concat())?;
            }
            Ok(())
        })
    }

    /// Starts a fake that accepts every log-in, and answers each message of the client by `answer`,
    /// which gets the type and the rest of the message. The message that ends an answer is sent
    /// after it.
    fn answering(answer: impl Fn(u8, &[u8]) -> Vec<u8> + Send + 'static) -> Fake {
        Fake::new(move |client| {
            client.write_all(&[&message(b'R', &[0; 4])[..], &message(b'Z', b"I")].concat())?;
            let mut answers = Vec::new();
            loop {
                let Some(sent) = read_message(&mut *client, true) else { return Ok(()) };
                answers.extend(answer(sent[0], &sent[5..]));
                if matches!(sent[0], b'S' | b'Q') {
                    answers.extend(message(b'Z', b"I"));
                    client.write_all(&answers)?;
                    answers.clear();
                }
            }
        })
    }

    /// Connects to the fake, without opening a store.
    fn line(&self) -> Line {
        let settings = Settings::of(&self.url(), &Environment::of_process()).unwrap();
        let line = Line::connect(&settings, false).unwrap_or_else(|failure| panic!("{failure:?}"));
        line.limit(None).unwrap();
        line
    }

    fn url(&self) -> String {
        format!("postgresql://u@/d?connect_timeout=1&host={}", self.folder.path().display())
    }

    /// Returns the error of an open with a busy timeout of zero, and how long it took.
    fn refusal(&self) -> (Error, Duration) {
        refused(&self.url())
    }
}

fn refused(url: &str) -> (Error, Duration) {
    let (done, took) = opened(url);
    (done.unwrap_err(), took)
}

fn opened(url: &str) -> (Result<()>, Duration) {
    let began = Instant::now();
    let impatient = Config::new().busy_timeout(Duration::ZERO);
    let done = Db::open(url, &impatient, Arc::default()).map(drop);
    (done, began.elapsed())
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

/// Returns an error message or a notice.
fn report(kind: u8, code: &str, text: &str) -> Vec<u8> {
    message(kind, format!("SFATAL\0VFATAL\0C{code}\0M{text}\0\0").as_bytes())
}

/// Returns the answer to the preparation of a statement. `parameters` and `columns` are the numbers
/// of their types.
fn prepared(parameters: &[u32], columns: &[u32]) -> Vec<u8> {
    let count = |of: &[u32]| i16::try_from(of.len()).unwrap().to_be_bytes().to_vec();
    let (mut takes, mut gives) = (count(parameters), count(columns));
    takes.extend(parameters.iter().flat_map(|oid| oid.to_be_bytes()));
    for oid in columns {
        gives.extend([&b"c\0"[..], &[0; 6], &oid.to_be_bytes(), &[0; 8]].concat());
    }
    [message(b'1', b""), message(b't', &takes), message(b'T', &gives)].concat()
}

/// Returns the answer with a single row.
fn one_row(columns: &[Option<&[u8]>]) -> Vec<u8> {
    let mut row = i16::try_from(columns.len()).unwrap().to_be_bytes().to_vec();
    for column in columns {
        row.extend(column.map_or(-1, |bytes| i32::try_from(bytes.len()).unwrap()).to_be_bytes());
        row.extend(column.unwrap_or_default());
    }
    [message(b'2', b""), message(b'D', &row), message(b'C', b"SELECT 1\0")].concat()
}

/// The driver queries a type that it does not know, the types of which that consists, and the types
/// in the answers to these queries.
#[test]
fn recursive_types_of_server_do_not_overflow_stack() {
    // PostgreSQL's numbers for the types of the columns that describe a type: its name, kind,
    // element, range, base type of a domain, schema, table.
    const OF_TYPE: [u32; 7] = [19, 18, 26, 26, 26, 19, 26];
    const ITS_OWN: u32 = 99_999;
    for (name, asked, over) in [("domain over domain", 26, 1), ("of itself", ITS_OWN, 1), ("one", 26, 0)] {
        let known = AtomicU32::new(ITS_OWN);
        let fake = Fake::answering(move |kind, body| match kind {
            b'P' if body.windows(18).any(|part| part == b"pg_catalog.pg_type") => {
                prepared(&[asked], &OF_TYPE)
            }
            b'P' => prepared(&[ITS_OWN], &[20]),
            b'B' => {
                let next = ((known.fetch_add(1, Ordering::Relaxed) + 1) * over).to_be_bytes();
                let none = &[0; 4];
                one_row(&[Some(b"t"), Some(b"d"), Some(none), None, Some(&next), Some(b"s"), Some(none)])
            }
            _ => Vec::new(),
        });
        let mut line = fake.line();
        let failure = thread::Builder::new()
            .stack_size(512 << 10)
            .spawn(move || line.prepare("SELECT $1").map(drop).unwrap_err())
            .unwrap()
            .join()
            .unwrap();
        let text = failure.error.to_string();
        assert!(failure.sort == Sort::Broken && text.contains("no PostgreSQL gives"), "{name}: {failure:?}");
    }
}

/// The identity that a server reports becomes part of a statement, which may be sent to another
/// server.
#[test]
fn backend_id_with_sql_text_is_treated_as_unknown() {
    let since = "2026-01-02 03:04:05.678901+00";
    for (pid, started, is_known) in [
        ("17", since, true),
        ("17 OR true", since, false),
        ("", since, false),
        ("17", "'; DROP TABLE kvstore_row; --", false),
        ("17", "x\\", false),
    ] {
        let columns = [(); 2].map(|()| [&b"c\0"[..], &[0; 18]].concat()).concat();
        let row = one_row(&[Some(pid.as_bytes()), Some(started.as_bytes())]);
        // The simple protocol does not have the message that parameters were bound.
        let row = row.get(5..).unwrap().to_vec();
        let told = [message(b'T', &[&[0, 2], &columns[..]].concat()), row].concat();
        let fake = Fake::answering(move |kind, _| if kind == b'Q' { told.clone() } else { Vec::new() });
        let backend = Link::of(fake.line(), "s").who_am_i().unwrap_or_else(|failure| panic!("{failure:?}"));
        assert_eq!(backend.is_some(), is_known, "{pid} {started}: {backend:?}");
    }
}

#[test]
fn temporary_backend_id_failure_is_not_permanent() {
    for (code, is_for_ever) in [
        ("42883", true),
        ("42501", true),
        ("42P01", true),
        ("0A000", true),
        ("53200", false),
        ("53000", false),
        ("57014", false),
    ] {
        let report = message(b'E', format!("SERROR\0VERROR\0C{code}\0Mno\0\0").as_bytes());
        let fake = Fake::answering(move |kind, _| if kind == b'Q' { report.clone() } else { Vec::new() });
        let answer = Link::of(fake.line(), "s").who_am_i();
        assert_eq!(matches!(answer, Ok(None)), is_for_ever, "{code}: {answer:?}");
        assert_eq!(answer.is_err(), !is_for_ever, "{code}: {answer:?}");
    }
}

#[test]
fn forgotten_statement_is_detected_in_any_language() {
    for (code, file, text, sort) in [
        ("26000", "prepare.c", "vorbereitete Anweisung »s1« existiert nicht", Sort::Forgotten),
        ("0A000", "plancache.c", "gespeicherter Plan darf den Ergebnistyp nicht ändern", Sort::Forgotten),
        ("0A000", "", "cached plan must not change result type", Sort::Forgotten),
        ("0A000", "guc.c", "das geht hier nicht", Sort::Refused),
    ] {
        let report = format!("SERROR\0VERROR\0C{code}\0M{text}\0F{file}\0\0");
        let fake = Fake::answering(move |kind, _| match kind {
            b'P' => prepared(&[], &[20]),
            b'B' => message(b'E', report.as_bytes()),
            _ => Vec::new(),
        });
        let mut line = fake.line();
        let statement = line.prepare("SELECT 1").unwrap_or_else(|failure| panic!("{failure:?}"));
        let failure = line.query(&statement, &[]).unwrap_err();
        assert_eq!(failure.sort, sort, "{code} {text}: {failure:?}");
    }
}

#[test]
fn endless_login_messages_are_aborted_early() {
    for (name, endless) in [
        ("settings", message(b'S', b"name\0value\0")),
        ("notices", report(b'N', "00000", "hear, hear")),
        ("one message", [&[b'N'][..], &i32::MAX.to_be_bytes(), &[b'x'; 1000]].concat()),
    ] {
        // Large writes, so that a slow machine reaches the limit before the login times out.
        let endless = endless.repeat(16_384 / endless.len());
        let read = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&read);
        let fake = Fake::new(move |client| {
            client.write_all(&message(b'R', &[0; 4]))?;
            loop {
                client.write_all(&endless)?;
                counted.fetch_add(u32::try_from(endless.len()).unwrap(), Ordering::Relaxed);
            }
        });
        let (e, took) = fake.refusal();
        assert!(e.kind() == ErrorKind::CantOpen && e.to_string().contains("without an end"), "{name}: {e}");
        assert!(took < Duration::from_secs(20), "{name}: {took:?}");
        // The limit, and what the socket buffers.
        assert!(read.load(Ordering::Relaxed) < 4 << 20, "{name}: {read:?}");
    }
}

#[test]
fn slow_or_silent_login_times_out() {
    let trickling = Fake::new(|client| {
        client.write_all(&message(b'R', &[0; 4]))?;
        loop {
            client.write_all(&message(b'S', b"name\0value\0"))?;
            thread::sleep(Duration::from_millis(100));
        }
    });
    let fakes = [("trickling", trickling), ("silent", Fake::new(|_| Ok(())))];
    // The requests after the log-in: the settings and the server's version, the time, whether there
    // is a store, and the steps that create one.
    let silent = [0, 1, 2, 3, 4, 5, 6, 10].map(|answers| ("silent later", Fake::silent_after(answers)));
    for (name, fake) in fakes.into_iter().chain(silent) {
        let (e, took) = fake.refusal();
        assert!(
            e.kind() == ErrorKind::CantOpen && e.to_string().contains("no answer in time"),
            "{name}: {e}"
        );
        assert!(!e.to_string().contains("unknown"), "{name}: {e}");
        assert!((1..20).contains(&took.as_secs()), "{name}: {took:?}");
    }
}

#[test]
fn server_with_only_empty_answers_is_refused() {
    let nothing = [&message(b'I', b"")[..], &message(b'Z', b"I")].concat();
    let yes = [&message(b'C', b"SELECT 0\0")[..], &message(b'Z', b"I")].concat();
    for answer in [nothing, yes] {
        let fake = Fake::new(move |client| {
            client.write_all(&[&message(b'R', &[0; 4])[..], &message(b'Z', b"I")].concat())?;
            while client.read(&mut [0; 1000])? > 0 {
                client.write_all(&answer)?;
            }
            Ok(())
        });
        let (e, took) = fake.refusal();
        assert!(
            e.to_string().contains("another form than a PostgreSQL server gives") && e.is_from_server(),
            "{e}"
        );
        assert!(took < Duration::from_secs(20), "{took:?}");
    }
}

#[test]
fn invalid_login_message_error_names_server() {
    let log_in = [&message(b'R', &[0; 4])[..], &message(b'Z', b"I")].concat();
    for (name, said, kind, part) in [
        ("no such method", message(b'R', &7_u32.to_be_bytes()), ErrorKind::AuthFailed, "pg_hba.conf"),
        ("no such message", message(b'!', b"x"), ErrorKind::CantOpen, "unknown message"),
        ("a row at the log-in", message(b'D', &[0, 0]), ErrorKind::CantOpen, "not a PostgreSQL server"),
        ("another protocol", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), ErrorKind::CantOpen, ""),
        (
            "more than a message has",
            message(b'R', &[0, 0, 0, 0, 1, 2]),
            ErrorKind::CantOpen,
            "message length",
        ),
        ("a broken answer", [&log_in[..], &message(b'D', &[0, 9, 9])].concat(), ErrorKind::CantOpen, ""),
    ] {
        let fake = Fake::new(move |client| client.write_all(&said));
        let (e, took) = fake.refusal();
        assert!(e.kind() == kind && e.to_string().contains(part), "{name}: {:?} {e}", e.kind());
        assert!(e.is_from_server() && !e.to_string().contains("statement"), "{name}: {e}");
        let host = fake.folder.path().display().to_string();
        assert!(e.to_string().contains(&host) || name == "a broken answer", "{name}: {e}");
        assert!(took < Duration::from_secs(20), "{name}: {took:?}");
    }
}

#[test]
fn open_times_out_while_server_waits_for_standby() {
    let server = Server::start(&[]);
    let url = |schema: &str| format!("{}&connect_timeout=2", server.url(schema));
    drop(open(&url("there")));
    server.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    server.sql("SELECT pg_reload_conf()");
    until(|| server.sql("SHOW synchronous_standby_names") == "*");
    // Each server process applies the setting at its own time.
    until(|| {
        let (done, took) = opened(&url("new"));
        assert!(took < Duration::from_secs(20), "{took:?}");
        let Err(e) = done else {
            server.sql("DROP SCHEMA new CASCADE");
            return false;
        };
        assert_eq!(e.kind(), ErrorKind::CantOpen, "{e}");
        assert!(e.to_string().contains("synchronous_standby_names"), "{e}");
        true
    });
    let (done, took) = opened(&url("there"));
    assert!(done.is_ok() && took < Duration::from_secs(10), "{done:?} {took:?}");
}

#[test]
fn busy_timeout_limits_open_during_concurrent_creation() {
    let server = Server::start(&[]);
    let mut other = open(&server.url("elsewhere"));
    other.begin_write().unwrap();
    other.query(Again::No, "CREATE SCHEMA half", &[]).unwrap();
    other.query(Again::No, "CREATE TABLE half.kvstore_meta (one integer)", &[]).unwrap();
    for busy_ms in [0, 700] {
        let began = Instant::now();
        let config = Config::new().busy_timeout(Duration::from_millis(busy_ms));
        let e = Db::open(&server.url("half"), &config, Arc::default()).map(drop).unwrap_err();
        let took = began.elapsed().as_millis();
        assert_eq!(e.kind(), ErrorKind::Busy, "{e}");
        assert!((u128::from(busy_ms.max(100))..3000).contains(&took), "{busy_ms}: {took} ms");
    }
    other.rollback().unwrap();
    drop(open(&server.url("half")));
}

#[test]
fn open_times_out_if_server_never_accepts() {
    let folder = tempfile::tempdir().unwrap();
    let address = socket2::SockAddr::unix(folder.path().join(SOCKET)).unwrap();
    let listener = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    listener.bind(&address).unwrap();
    listener.listen(0).unwrap();
    let url = format!("postgresql://u@/d?connect_timeout=1&host={}", folder.path().display());
    // The queue of the socket has space for the first connection.
    for _ in 0..3 {
        let (e, took) = refused(&url);
        assert!(e.kind() == ErrorKind::CantOpen && e.to_string().contains("no answer in time"), "{e}");
        assert!(took < Duration::from_secs(20), "{took:?}");
    }
}

#[test]
fn server_text_is_truncated_without_control_characters() {
    for code in ["28P01", "3D000", "57P03", "XX000", "42501"] {
        let fake =
            Fake::new(move |client| client.write_all(&report(b'E', code, &"\u{1b}[2J\r\nü".repeat(50_000))));
        let text = fake.refusal().0.to_string();
        assert!(!text.chars().any(char::is_control) && text.contains("[2J"), "{code}: {text:?}");
        assert!(text.chars().count() < 800, "{code}: {}", text.len());
    }
}

#[test]
fn failure_of_several_servers_names_each_reason() {
    let server = Server::shared();
    let (silent, closed) = (Fake::silent_after(0), tempfile::tempdir().unwrap());
    let starting =
        Fake::new(|client| client.write_all(&report(b'E', "57P03", "the database system is starting up")));
    let hosts = |folders: &[&Path]| {
        let folders: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
        format!("postgresql://postgres@/postgres?connect_timeout=1&schema=several&host={}", folders.join(","))
    };
    let (silent, starting) = (silent.folder.path(), starting.folder.path());
    let (e, _) = refused(&hosts(&[starting, silent, closed.path()]));
    assert_eq!(e.kind(), ErrorKind::Busy, "{e}"); // the first server may be available soon
    let text = e.to_string();
    for (folder, reason) in [
        (starting, "starting up"),
        (silent, "no answer in time"),
        (closed.path(), "check that the server is running"),
    ] {
        let named = text.find(&*folder.display().to_string());
        assert!(named.is_some() && text.contains(reason), "{reason}: {text}");
    }
    let many = tempfile::tempdir().unwrap();
    let folders: Vec<_> = (0..100).map(|n| many.path().join(n.to_string())).collect();
    let (e, _) = refused(&hosts(&folders.iter().map(PathBuf::as_path).collect::<Vec<_>>()));
    let text = e.to_string();
    assert!(e.kind() == ErrorKind::CantOpen && text.contains("and 92 more") && text.len() < 4000, "{text}");
    let refusing = Fake::new(|client| client.write_all(&report(b'E', "28P01", "no such role")));
    let refusing = refusing.folder.path();
    let (e, _) = refused(&hosts(&[closed.path(), refusing, starting]));
    let text = e.to_string();
    assert!(e.kind() == ErrorKind::AuthFailed && text.contains("no such role"), "{text}");
    for folder in [closed.path(), refusing] {
        assert!(text.contains(&*folder.display().to_string()), "{text}");
    }
    // One usable server is enough.
    let db = open(&hosts(&[starting, closed.path(), server.folder()]));
    put(&db, "k").unwrap();
}

#[test]
fn read_only_server_error_names_server_and_advice() {
    let server = Server::start(&["default_transaction_read_only=on"]);
    let url = format!("{}&target_session_attrs=read-write", server.url("s"));
    let (e, _) = refused(&url);
    assert_eq!(e.kind(), ErrorKind::ReadOnly, "{e}");
    let text = e.to_string();
    assert!(
        text.contains(&*server.folder().display().to_string()) && text.contains("busy timeout"),
        "{text}"
    );
}

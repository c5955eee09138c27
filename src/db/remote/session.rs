//! One connection, which is made anew when it breaks, and the statements that are run on it.
//!
//! What the caller's transaction means is in `transaction.rs`.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

use tokio_postgres::{Row, Statement, types::ToSql};

use super::Db;
use super::failure::{Failure, Sort};
use super::line::Line;
use super::plan::PLANNER;
use super::schema::NOW_MS;
use super::url::Settings;
use crate::config::{Config, SyncLevel};
use crate::error::{Error, ErrorKind, Result};
use crate::fork;

/// What may be done when the connection breaks after a statement was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// A read, or a write that may happen twice: it is run again.
    Yes,
    /// Its outcome is unknown then, which the error says.
    No,
}

/// Prepared statements that are kept; the library has fewer texts.
const MAX_STATEMENTS: usize = 300;

/// The shortest time for which a lock on a row is waited for: it may be one of a commit that is under way.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);

/// Pauses between tries: the first and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The transaction that is open on the connection.
#[derive(Debug, Clone)]
pub(super) enum Block {
    None,
    Open,
    /// It has failed: it can only be rolled back, or to a savepoint if the connection is still there.
    Failed(Error),
}

/// A connection, or the place of one.
pub(super) struct Session {
    settings: Settings,
    set_up: String,
    pub(super) busy_timeout: Duration,
    pub(super) read_only: bool,
    link: Option<Link>,
    /// A backend that may still be at work on what the broken connection has sent.
    left_behind: Option<Backend>,
    pub(super) block: Block,
    /// Whether it has failed because of another client's transaction.
    pub(super) has_conflict: bool,
    /// Whether the open transaction has changed a family of which it may not have seen all rows (`catalogue.rs`).
    pub(super) is_unsettled: bool,
    opened_ms: i64,
}

/// A connection that works, as far as is known.
pub(super) struct Link {
    pub(super) line: Line,
    statements: HashMap<Box<str>, Statement>,
    /// Which process has made it (`fork.rs`).
    generation: u32,
    /// What the server calls it; `None`: the server cannot tell, or look outcomes up.
    pub(super) backend: Option<Backend>,
}

/// A backend of a server, for one who comes back to ask what has become of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Backend {
    /// Which server, and which history of it: a promoted standby gives transactions the same numbers again.
    pub(super) server: String,
    pub(super) pid: String,
    pub(super) started: String,
}

/// What [`Backend`] has. Each of these is PostgreSQL's own.
const WHO_AM_I: &str = "SELECT (SELECT system_identifier FROM pg_control_system())::text || ' ' || \
    CASE WHEN pg_is_in_recovery() THEN 'standby' ELSE substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) END, \
    pid::text, backend_start::text, pg_current_xact_id_if_assigned()::text \
    FROM pg_stat_activity WHERE pid = pg_backend_pid()";

impl Session {
    /// Connects. The time is limited by the URL's `connect_timeout`.
    pub(super) fn open(settings: Settings, config: &Config) -> Result<Session> {
        let mut session = Session {
            set_up: set_up(&settings, config),
            settings,
            busy_timeout: config.busy_timeout,
            read_only: config.read_only,
            link: None,
            left_behind: None,
            block: Block::None,
            has_conflict: false,
            is_unsettled: false,
            opened_ms: 0,
        };
        let now = session.run_alone(Again::Yes, |link| link.line.ask(&format!("SELECT {NOW_MS}")));
        let now = now.map_err(|failure| match failure.error.kind() {
            ErrorKind::Io => Error::cant_open(failure.error.to_string()),
            _ => failure.error,
        })?;
        session.opened_ms = now.and_then(|text| text.parse().ok()).unwrap_or_default();
        Ok(session)
    }

    /// The server's time when the session was opened.
    pub(super) fn opened_ms(&self) -> i64 {
        self.opened_ms
    }

    /// The schema of the store.
    pub(super) fn schema(&self) -> &str {
        &self.settings.schema
    }

    /// One statement with an answer in rows.
    pub(super) fn query(
        &mut self,
        again: Again,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>> {
        self.run(again, |link| link.query(sql, params))
    }

    /// One write that may happen twice, without an answer in rows; returns how many it has written.
    pub(super) fn write(&mut self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<u64> {
        self.run(Again::Yes, |link| link.with_statement(sql, |line, statement| line.write(statement, params)))
    }

    /// Statements without parameters and without an answer, together one transaction unless they begin one.
    pub(super) fn execute(&mut self, again: Again, sql: &str) -> Result<()> {
        self.run(again, |link| link.line.execute(sql))
    }

    /// Runs what is one round trip, in the open transaction or in one of its own.
    pub(super) fn run<R>(&mut self, again: Again, f: impl Fn(&mut Link) -> Result<R, Failure>) -> Result<R> {
        match &self.block {
            Block::Failed(why) => Err(why.clone()),
            Block::Open => self.run_in_block(f),
            Block::None => self.run_alone(again, f).map_err(|failure| failure.error),
        }
    }

    fn run_in_block<R>(&mut self, f: impl Fn(&mut Link) -> Result<R, Failure>) -> Result<R> {
        self.link_in_use().and_then(f).map_err(|failure| self.fail_block(failure))
    }

    /// The connection of the open transaction.
    pub(super) fn link_in_use(&mut self) -> Result<&mut Link, Failure> {
        self.drop_inherited();
        self.link.as_mut().ok_or_else(|| super::failure::broken("before this call"))
    }

    /// Whether not even a rollback to a savepoint makes the open transaction one that can go on.
    pub(super) fn is_beyond_repair(&self) -> bool {
        self.link.is_none() || self.has_conflict
    }

    /// After a failure in the open transaction, which the server has ended by that, or which went with the connection.
    pub(super) fn fail_block(&mut self, failure: Failure) -> Error {
        self.has_conflict = matches!(failure.sort, Sort::Conflict | Sort::Forgotten);
        if failure.sort == Sort::Forgotten {
            self.forget_statements();
        }
        let error = match failure.sort {
            Sort::Conflict | Sort::Forgotten => failure.of_transaction(),
            Sort::Broken | Sort::Unreachable => {
                self.lose_link();
                failure
                    .error
                    .with_message(format!("{}: roll the transaction back and run it again", failure.error))
            }
            Sort::Standby if self.read_only => read_only(),
            _ => failure.error,
        };
        self.block = Block::Failed(error.clone());
        error
    }

    /// The same outside of a transaction: it is run again as long as that can help and is safe, within the busy timeout,
    /// and once after a connection that was broken.
    pub(super) fn run_alone<R>(
        &mut self,
        again: Again,
        f: impl Fn(&mut Link) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let mut pauses = Pauses::within(self.busy_timeout);
        let mut renewed = false;
        // Whether a try may have been done that was not answered.
        let mut is_unknown = false;
        loop {
            // What is not sent on a connection that is known to be gone is not unknown later.
            if let Some(link) = &mut self.link
                && (link.generation != fork::generation() || link.line.is_gone())
            {
                self.drop_link();
            }
            let had_link = self.link.is_some();
            let failure = match self.link().and_then(&f) {
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            let told = |failure| if is_unknown { unknown(failure) } else { failure };
            match failure.sort {
                Sort::Refused => return Err(told(failure)),
                Sort::Conflict => {}
                Sort::Forgotten if !renewed => {
                    renewed = true;
                    self.forget_statements();
                    continue;
                }
                Sort::Standby
                    if had_link && !self.read_only && !renewed && self.settings.has_several_hosts() =>
                {
                    renewed = true;
                    self.drop_link();
                    continue;
                }
                Sort::Standby if self.read_only => return Err(Failure { error: read_only(), ..failure }),
                Sort::Forgotten | Sort::Standby => return Err(told(failure)),
                Sort::Unreachable => {
                    // A statement that was being prepared holds locks until the server has missed the connection.
                    self.lose_link();
                    if had_link && !renewed {
                        renewed = true;
                        continue;
                    }
                }
                Sort::Ambiguous | Sort::Broken => {
                    if failure.sort == Sort::Broken {
                        self.lose_link();
                    }
                    is_unknown = true;
                    if again == Again::No {
                        return Err(unknown(failure));
                    }
                    if !renewed {
                        renewed = true;
                        continue;
                    }
                }
            }
            if !pauses.pause() {
                return Err(if is_unknown { unknown(failure) } else { failure });
            }
        }
    }

    /// The connection, made if there is none.
    pub(super) fn link(&mut self) -> Result<&mut Link, Failure> {
        if self.link.is_none() {
            let link = self.connect()?;
            return Ok(self.link.insert(link));
        }
        match &mut self.link {
            Some(link) => Ok(link),
            None => Err(super::failure::broken("it is not there")),
        }
    }

    fn connect(&mut self) -> Result<Link, Failure> {
        let mut link = Link {
            line: Line::connect(&self.settings, self.read_only)?,
            statements: HashMap::new(),
            generation: fork::generation(),
            backend: None,
        };
        link.line.execute(&self.set_up).map_err(unsent)?;
        link.backend = link.who_am_i().map_err(unsent)?;
        if link.backend.is_some() {
            link.line.execute(PLANNER).map_err(unsent)?;
        }
        if let Some(old) = &self.left_behind {
            if link.end(old).map_err(unsent)? && !self.read_only {
                link.catch_up().map_err(unsent)?;
            }
            self.left_behind = None;
        }
        Ok(link)
    }

    fn forget_statements(&mut self) {
        if let Some(link) = &mut self.link {
            link.statements.clear();
        }
    }

    /// Leaves a connection on which nothing is under way.
    pub(super) fn drop_link(&mut self) {
        if let Some(link) = self.link.take() {
            link.leave();
        }
    }

    /// Leaves a connection that broke while something was under way.
    pub(super) fn lose_link(&mut self) {
        if let Some(link) = self.link.take() {
            self.left_behind = link.backend.clone();
            link.leave();
        }
    }

    /// Leaves to the parent of a fork what is the parent's.
    fn drop_inherited(&mut self) {
        if self.link.as_ref().is_some_and(|link| link.generation != fork::generation()) {
            self.drop_link();
        }
    }

    /// Whether the server has what only PostgreSQL itself has, by the connection there is.
    pub(super) fn is_postgres(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.backend.is_some())
    }

    /// Whether there is a connection. It may have broken since it was used.
    pub(super) fn has_link(&self) -> bool {
        self.link.is_some()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.drop_link();
    }
}

impl Link {
    pub(super) fn query(&mut self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Failure> {
        self.with_statement(sql, |line, statement| line.query(statement, params))
    }

    /// Runs a statement that is prepared once for each connection.
    fn with_statement<R>(
        &mut self,
        sql: &str,
        f: impl FnOnce(&mut Line, &Statement) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        if let Some(statement) = self.statements.get(sql) {
            return f(&mut self.line, statement);
        }
        if self.statements.len() >= MAX_STATEMENTS {
            self.statements.clear();
        }
        // A connection that breaks here has done nothing yet.
        let statement = self.line.prepare(sql).map_err(unsent)?;
        let done = f(&mut self.line, &statement);
        self.statements.insert(sql.into(), statement);
        done
    }

    /// `None`: the server has no such functions.
    fn who_am_i(&mut self) -> Result<Option<Backend>, Failure> {
        match self.line.ask_row(WHO_AM_I) {
            Ok(Some(row)) => {
                let mut row = row.into_iter();
                let mut next = || row.next().flatten();
                let (Some(server), Some(pid), Some(started)) = (next(), next(), next()) else {
                    return Ok(None);
                };
                Ok(Some(Backend { server, pid, started }))
            }
            Ok(None) => Ok(None),
            Err(failure) if failure.sort == Sort::Refused => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Waits until a backend of an earlier connection is gone, after having told it to go: what it was at may be done until
    /// then, and would come after what this connection is about to do. Returns whether what it has done is on this server.
    fn end(&mut self, old: &Backend) -> Result<bool, Failure> {
        // On another server, or in another history of it, it can do nothing any more.
        if self.backend.as_ref().is_none_or(|own| own.server != old.server) {
            return Ok(false);
        }
        let sql = format!(
            "SELECT count(pg_terminate_backend(pid))::text FROM pg_stat_activity \
             WHERE pid = {} AND backend_start::text = '{}'",
            old.pid, old.started
        );
        let mut pauses = Pauses::within(Duration::from_secs(10));
        while self.line.ask(&sql)?.is_some_and(|count| count != "0") {
            if !pauses.pause() {
                let text = "a statement of the connection that broke is still at work on the server: retry";
                return Err(Failure::new(Sort::Unreachable, Error::busy(text)));
            }
        }
        Ok(true)
    }

    /// Waits until the synchronous standbys have what a backend has committed that was ended while it waited for them: on this
    /// server it is there already, for a look-up to find and a second try to meet, and would be lost with it. What is written
    /// here comes after it in the log; its commit waits for them as any other does.
    fn catch_up(&mut self) -> Result<(), Failure> {
        let writes = [
            "SELECT pg_logical_emit_message(true, 'kvstore', '')",
            "UPDATE kvstore_meta SET format = format WHERE one = 1", // where that function is not for all
        ];
        for sql in writes {
            match self.line.execute(sql) {
                // Who may write nothing has written nothing.
                Err(failure) if matches!(failure.sort, Sort::Refused | Sort::Standby) => {}
                done => return done,
            }
        }
        Ok(())
    }

    /// Says goodbye, unless it is the connection of a parent process, or is broken.
    fn leave(self) {
        let Link { line, statements, generation, .. } = self;
        if generation == fork::generation() {
            drop(statements);
            line.terminate();
        }
    }
}

/// What is run first on each connection.
fn set_up(settings: &Settings, config: &Config) -> String {
    let wait = config.busy_timeout.max(SHORTEST_WAIT).as_millis();
    let mut sql = format!(
        "SET search_path = {}; SET default_transaction_isolation = 'read committed'; SET lock_timeout = {wait}; \
         SET client_min_messages = warning",
        quoted(&settings.schema)
    );
    if config.read_only {
        sql.push_str("; SET default_transaction_read_only = on");
    }
    if config.file.sync == SyncLevel::Off {
        sql.push_str("; SET synchronous_commit = off");
    }
    sql
}

/// A name in SQL.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A failure before anything of the caller's was sent.
fn unsent(failure: Failure) -> Failure {
    match failure.sort {
        Sort::Broken | Sort::Ambiguous | Sort::Conflict => Failure { sort: Sort::Unreachable, ..failure },
        _ => failure,
    }
}

pub(super) fn read_only() -> Error {
    Error::read_only("the store was opened read-only: nothing can be written through this handle")
}

/// What is said of a call that may have been done.
fn unknown(failure: Failure) -> Failure {
    let text = format!(
        "{}: whether the call was done is unknown; look at the store before you run it again",
        failure.error
    );
    Failure { error: Error::io(text), ..failure }
}

/// Pauses that grow, until a time is over.
pub(super) struct Pauses {
    end: Instant,
    next: Duration,
}

impl Pauses {
    pub(super) fn within(time: Duration) -> Pauses {
        Pauses { end: Instant::now() + time, next: FIRST_PAUSE }
    }

    /// `false`: the time is over.
    pub(super) fn pause(&mut self) -> bool {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        // Half of it is by chance, so that two who were in each other's way do not meet again.
        let chance = RandomState::new().build_hasher().finish() % 1024;
        let wait = self.next / 2 + self.next * u32::try_from(chance).unwrap_or_default() / 2048;
        std::thread::sleep(wait.min(left));
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        true
    }
}

impl Db {
    /// One statement, one round trip after its first preparation: in the open transaction, or in one of its own.
    pub(super) fn query(&self, again: Again, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        self.session.borrow_mut().query(again, sql, params)
    }
}

//! One connection, which is replaced when it breaks, and the statements that run on it.
//!
//! The caller's transaction is handled in `transaction.rs`.

use std::time::{Duration, Instant};

use tokio_postgres::{Row, types::ToSql};

use super::Db;
use super::backoff::Pauses;
use super::client::Line;
use super::connection::{Backend, END_WAIT, Link, MAX_DELAY};
use super::error::{Failure, Sort, unsent};
use super::sql_text::{NOW_MS, search_path};
use super::url::Settings;
use crate::config::{Config, SyncLevel};
use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::wait;

/// Policy for a retry of a statement if the connection breaks after the statement was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// The statement is a read, which is run again. Whether the first attempt was executed does not
    /// matter.
    Read,
    /// The statement is a write that may be executed twice, and is run again.
    Yes,
    /// The statement is not run again. Its outcome is unknown, and the error states that.
    No,
}

/// Maximum time that a statement waits for locks of other transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// The busy timeout, at least [`SHORTEST_WAIT`].
    Full,
    /// The lock timeout that the statements set themselves.
    Own,
    /// [`MAX_DELAY`].
    None,
}

/// Lock timeout of [`Patience::Full`] if the busy timeout is shorter. It gives a commit that is in
/// progress the time to release its locks.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);

/// State of the transaction on the connection: none, open, or failed.
#[derive(Debug, Clone)]
pub(super) enum Block {
    None,
    Open,
    /// The transaction has failed. It can only be rolled back, or rolled back to a savepoint if the
    /// connection still exists.
    Failed(Fall),
}

/// Failure of a transaction: the error that ended it, and its effect on the store.
#[derive(Debug, Clone)]
pub(super) struct Fall {
    /// Error for the caller, if the caller began the transaction. For a transaction that a call
    /// began for itself, see [`Fall::alone`].
    pub(super) why: Error,
    pub(super) end: End,
}

/// Effect of a failed transaction on the store, and whether it can be run again.
#[derive(Debug, Clone)]
pub(super) enum End {
    /// No effect: the transaction conflicted with other transactions. It can be run again.
    Conflict,
    /// No effect: the connection broke, with this error. The transaction can be run again.
    Undone(Error),
    /// Unknown effect: the connection broke during the commit, with this error.
    Unknown(Error),
    /// No effect. The transaction is not run again, because it would fail the same way.
    Refused,
}

impl Block {
    pub(super) fn fall(&self) -> Option<Fall> {
        match self {
            Block::Failed(fall) => Some(fall.clone()),
            _ => None,
        }
    }
}

impl Fall {
    /// Returns the error for the caller of an operation that ran in a transaction of its own. It
    /// does not ask to roll back or repeat that transaction, which the caller has not begun.
    pub(super) fn alone(self) -> Error {
        match self.end {
            End::Conflict => {
                Error::busy("transactions of other clients held locks until the busy timeout was over")
                    .with_hint(Hint::RaiseBusyTimeout)
                    .of_a_server()
            }
            End::Undone(why) => why.with_message(format!("{}; nothing was done", why.message())),
            End::Unknown(why) => why,
            End::Refused => self.why,
        }
    }
}

/// Session with a server, which connects again when its connection has broken.
pub(super) struct Session {
    settings: Settings,
    set_up: String,
    pub(super) busy_timeout: Duration,
    pub(super) read_only: bool,
    link: Option<Link>,
    /// Server process of a broken connection, which may still execute the last request of that
    /// connection.
    left_behind: Option<Backend>,
    pub(super) block: Block,
    /// Deadline for the answers of the server while the store is being opened; `None` afterwards.
    /// Without it, a silent server could delay the open without limit.
    pub(super) limit: Option<Instant>,
    /// Whether a transaction of this session has changed a family without seeing all its rows, and
    /// those rows are not corrected yet (`catalogue.rs`).
    pub(super) is_unsettled: bool,
    /// Server's time at the first connection, in milliseconds since the Unix epoch.
    opened_ms: Option<i64>,
}

impl Session {
    /// Creates a session and connects to the server. The URL's `connect_timeout` limits the time
    /// for each host in each attempt. Attempts are repeated within the busy timeout.
    pub(super) fn open(settings: Settings, config: &Config) -> Result<Session> {
        let mut session = Session {
            set_up: set_up(&settings, config),
            settings,
            busy_timeout: config.busy_timeout,
            read_only: config.read_only,
            link: None,
            left_behind: None,
            block: Block::None,
            limit: None,
            is_unsettled: false,
            opened_ms: None,
        };
        session.run_alone(Again::Read, |_| Ok(())).map_err(Failure::at_open)?;
        Ok(session)
    }

    /// Sets the deadline for the remaining steps of opening the store. It leaves time for another
    /// log-in (`connect_timeout`) and for waiting for a lock.
    pub(super) fn limit_opening(&mut self) {
        self.limit = Some(Instant::now() + self.settings.connect_timeout + self.lock_wait());
    }

    /// Returns `true` if the deadline for opening the store has passed.
    pub(super) fn is_late(&self) -> bool {
        self.limit.is_some_and(|end| Instant::now() >= end)
    }

    /// Runs `f`, a step of opening the store. It may be executed twice: if the connection breaks,
    /// it is run again. After a failure, the error does not state whether the step was executed.
    pub(super) fn run_at_open<R>(
        &mut self,
        f: impl Fn(&mut Line) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.run_alone(Again::Read, |link| f(&mut link.line).map_err(unsent))
    }

    /// Runs one statement outside of a transaction, in a single attempt. After a failure, the
    /// server may continue to execute it.
    pub(super) fn query_once(
        &mut self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Failure> {
        let limit = self.limit;
        let done = self.link().and_then(|link| link.within(limit, |link| link.query(sql, params)));
        if done.is_err() {
            self.drop_link();
        }
        done
    }

    /// Returns the server's time when the session was opened, in milliseconds since the Unix epoch.
    pub(super) fn opened_ms(&self) -> i64 {
        self.opened_ms.unwrap_or_default()
    }

    /// Returns the name of the schema of the store.
    pub(super) fn schema(&self) -> &str {
        &self.settings.schema
    }

    /// Returns the name of the role that is logged in.
    pub(super) fn role(&self) -> &str {
        &self.settings.user
    }

    /// Runs one statement that returns rows, in the open transaction, or in a transaction of its
    /// own if none is open. `again` is the policy for a retry if the connection breaks.
    pub(super) fn query(
        &mut self,
        again: Again,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>> {
        self.run(again, |link| link.query(sql, params))
    }

    /// Runs one write that may be executed twice and returns no rows. Returns the number of rows
    /// written. Outside of a transaction, it waits for locks no longer than [`MAX_DELAY`], and
    /// returns `None` if other transactions hold them longer; nothing was written in this case.
    pub(super) fn write_at_once(&mut self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Option<u64>> {
        self.run_at_once(Again::Yes, |link| {
            link.with_statement(sql, |line, statement| line.write(statement, params))
        })
    }

    /// Runs one statement that returns rows. Outside of a transaction, it waits for locks no longer
    /// than [`MAX_DELAY`], and returns `None` if other transactions hold them longer; nothing was
    /// done in this case. `again` is the policy for a retry if the connection breaks.
    pub(super) fn query_at_once(
        &mut self,
        again: Again,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Vec<Row>>> {
        self.run_at_once(again, |link| link.query(sql, params))
    }

    /// Runs statements that have no parameters and return no rows. They form one transaction,
    /// unless a transaction is open or they begin one.
    pub(super) fn execute(&mut self, again: Again, sql: &str) -> Result<()> {
        self.run(again, |link| link.execute(sql))
    }

    /// Runs `f`, which makes one round trip, in the open transaction, or in a transaction of its
    /// own if none is open. `again` is the policy for a retry of the latter if the connection
    /// breaks.
    pub(super) fn run<R>(&mut self, again: Again, f: impl Fn(&mut Link) -> Result<R, Failure>) -> Result<R> {
        match &self.block {
            Block::Failed(fall) => Err(fall.why.clone()),
            Block::Open => self.run_in_block(f),
            Block::None => self.run_alone(again, f).map_err(|failure| failure.error),
        }
    }

    /// Runs `f`, which makes one round trip, in the open transaction, or in a transaction of its
    /// own if none is open. A transaction of its own waits for locks no longer than [`MAX_DELAY`].
    /// Returns `None` if other transactions hold the locks longer; nothing was done in this case.
    pub(super) fn run_at_once<R>(
        &mut self,
        again: Again,
        f: impl Fn(&mut Link) -> Result<R, Failure>,
    ) -> Result<Option<R>> {
        if !matches!(self.block, Block::None) {
            return self.run(again, f).map(Some);
        }
        match self.run_with(again, Patience::None, f) {
            Ok(done) => Ok(Some(done)),
            Err(failure) if failure.is_of_wait() => Ok(None),
            Err(failure) => Err(failure.error),
        }
    }

    fn run_in_block<R>(&mut self, f: impl Fn(&mut Link) -> Result<R, Failure>) -> Result<R> {
        self.link_in_use().and_then(f).map_err(|failure| self.fail_block(failure))
    }

    /// Returns the connection of the open transaction.
    pub(super) fn link_in_use(&mut self) -> Result<&mut Link, Failure> {
        self.drop_inherited();
        self.link.as_mut().ok_or_else(|| super::error::broken("before this call"))
    }

    /// Returns `true` if the open transaction cannot continue, even after a rollback to a
    /// savepoint.
    pub(super) fn is_beyond_repair(&self) -> bool {
        self.link.is_none() || matches!(self.block, Block::Failed(Fall { end: End::Conflict, .. }))
    }

    /// Records a failure in the open transaction, and returns the error for the caller. The
    /// failure, or the end of the connection, has ended the transaction on the server.
    pub(super) fn fail_block(&mut self, failure: Failure) -> Error {
        if failure.sort == Sort::Forgotten {
            self.forget_statements();
        }
        let (why, end) = match failure.sort {
            Sort::Conflict | Sort::Forgotten => (failure.of_transaction(), End::Conflict),
            Sort::Broken | Sort::Unreachable => {
                self.lose_link();
                let text = format!("{}; nothing of the transaction was done", failure.error.message());
                (
                    failure.error.with_message(text).with_hint(Hint::RunTransactionAgain),
                    End::Undone(failure.error),
                )
            }
            Sort::Standby if self.read_only => (read_only(), End::Refused),
            _ => (failure.error, End::Refused),
        };
        self.block = Block::Failed(Fall { why: why.clone(), end });
        why
    }

    /// Runs `f` outside of a transaction. After a failure, runs it again if a retry can succeed and
    /// is safe (`again`): the first time immediately if the connection broke, otherwise after a
    /// pause, until the busy timeout is over.
    pub(super) fn run_alone<R>(
        &mut self,
        again: Again,
        f: impl Fn(&mut Link) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.run_with(again, Patience::Full, f)
    }

    pub(super) fn run_with<R>(
        &mut self,
        again: Again,
        patience: Patience,
        f: impl Fn(&mut Link) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let done = self.try_until_done(again, patience, f);
        if let Some(link) = &mut self.link
            && link.is_patient()
            && link.set_lock_timeout(MAX_DELAY).is_err()
        {
            self.drop_link();
        }
        done
    }

    /// Returns `true` if there is a connection that waits for locks no longer than [`MAX_DELAY`].
    fn is_impatient(&self) -> bool {
        self.link.as_ref().is_some_and(|link| !link.is_patient())
    }

    /// Returns the maximum time for which a statement waits for a lock: the busy timeout, at least
    /// [`SHORTEST_WAIT`].
    pub(super) fn lock_wait(&self) -> Duration {
        self.busy_timeout.max(SHORTEST_WAIT)
    }

    fn try_until_done<R>(
        &mut self,
        again: Again,
        patience: Patience,
        f: impl Fn(&mut Link) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let mut pauses = Pauses::within(self.busy_timeout);
        let mut renewed = false;
        // Whether an attempt without an answer may have been executed.
        let mut is_unknown = false;
        loop {
            // A connection that is known to be closed is replaced before anything is sent, because
            // the outcome of a statement sent on it would be unknown.
            if let Some(link) = &mut self.link
                && (link.is_inherited() || link.line.is_gone())
            {
                self.drop_link();
            }
            let (had_link, limit) = (self.link.is_some(), self.limit);
            let failure = match self.link().and_then(|link| link.within(limit, &f)) {
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            is_unknown |= again != Again::Read && matches!(failure.sort, Sort::Ambiguous | Sort::Broken);
            let told = |failure| match again {
                _ if is_unknown => unknown(failure),
                Again::Read => failure,
                Again::Yes | Again::No => undone(failure),
            };
            if self.is_late() {
                self.drop_link();
                return Err(told(failure));
            }
            if had_link && wait::is_ended() {
                self.lose_link(); // the server may still be waiting for a lock
                return Err(told(failure));
            }
            match failure.sort {
                Sort::Refused => return Err(told(failure)),
                Sort::Conflict
                    if failure.is_of_wait() && patience != Patience::Own && self.is_impatient() =>
                {
                    if patience == Patience::None && !is_unknown {
                        return Err(failure);
                    }
                    let wait = self.lock_wait();
                    if self.link_in_use().and_then(|link| link.set_lock_timeout(wait)).is_err() {
                        self.drop_link();
                    }
                    continue;
                }
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
                    // A statement that was being prepared holds locks until the server notices that
                    // the connection broke.
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
                    if again == Again::No {
                        return Err(told(failure));
                    }
                    if !renewed {
                        renewed = true;
                        continue;
                    }
                }
            }
            if !pauses.pause() {
                return Err(told(failure));
            }
        }
    }

    /// Returns the connection. Connects if there is none.
    pub(super) fn link(&mut self) -> Result<&mut Link, Failure> {
        if self.link.is_none() {
            // The wait hook has ended the call's wait for a lock. A statement on a new connection
            // would wait for the same lock.
            if wait::is_ended() {
                return Err(super::error::broken("the program ended the wait for it"));
            }
            let link = self.connect()?;
            return Ok(self.link.insert(link));
        }
        match &mut self.link {
            Some(link) => Ok(link),
            None => Err(super::error::broken("it is not there")),
        }
    }

    fn connect(&mut self) -> Result<Link, Failure> {
        let mut link =
            Link::of(Line::connect(&self.settings, self.read_only).map_err(unsent)?, &self.settings.schema);
        link.set_up(&self.set_up).map_err(unsent)?;
        if self.opened_ms.is_none() {
            let now = link.line.ask(&format!("SELECT {NOW_MS}")).map_err(unsent)?;
            self.opened_ms = now.and_then(|text| text.parse().ok());
        }
        // The following steps may wait: for the end of a statement, or for a standby.
        link.line.limit(self.limit).map_err(unsent)?;
        if let Some(old) = &self.left_behind {
            if link.end(old, END_WAIT).map_err(unsent)? && !self.read_only {
                link.catch_up().map_err(unsent)?;
            }
            self.left_behind = None;
        }
        Ok(link)
    }

    fn forget_statements(&mut self) {
        if let Some(link) = &mut self.link {
            link.forget_statements();
        }
    }

    /// Closes a connection on which nothing is being executed.
    pub(super) fn drop_link(&mut self) {
        if let Some(link) = self.link.take() {
            link.leave();
        }
    }

    /// Closes a connection that broke during a request, and keeps the identity of its server
    /// process, which may still execute the request.
    pub(super) fn lose_link(&mut self) {
        if let Some(link) = self.link.take() {
            self.left_behind = link.backend.clone();
            link.leave();
        }
    }

    /// Drops a connection that belongs to the parent of a fork. Nothing is sent on it.
    fn drop_inherited(&mut self) {
        if self.link.as_ref().is_some_and(Link::is_inherited) {
            self.drop_link();
        }
    }

    /// Returns `true` if there is a connection and its server is PostgreSQL itself.
    pub(super) fn is_postgres(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.is_postgres)
    }

    /// Returns `true` if there is a connection. It may have broken since its last use.
    pub(super) fn has_link(&self) -> bool {
        self.link.is_some()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.drop_link();
    }
}

/// Returns the statements that configure each new connection.
fn set_up(settings: &Settings, config: &Config) -> String {
    let wait = MAX_DELAY.as_millis();
    let mut sql = format!(
        "{}; SET default_transaction_isolation = 'read committed'; SET lock_timeout = {wait}; \
         SET client_min_messages = warning",
        search_path(&settings.schema)
    );
    if config.read_only {
        sql.push_str("; SET default_transaction_read_only = on");
    }
    if config.file.sync == SyncLevel::Off {
        sql.push_str("; SET synchronous_commit = off");
    }
    sql
}

impl Failure {
    /// Returns the error of a failed open. An I/O error becomes an error of the kind `CantOpen`:
    /// the failed open has done nothing for the caller, so the error only means that the store
    /// cannot be opened.
    pub(super) fn at_open(self) -> Error {
        match self.error.kind() {
            ErrorKind::Io => Error::cant_open(self.error.message()).of_a_server(),
            _ => self.error,
        }
    }
}

pub(super) fn read_only() -> Error {
    Error::read_only("the store was opened read-only, so nothing can be written")
        .with_hint(Hint::OpenForWriting)
}

/// Returns the failure of a call that has had no effect. If the server was unreachable, the message
/// states that nothing was done.
fn undone(failure: Failure) -> Failure {
    match failure.sort {
        Sort::Unreachable if failure.error.kind() == ErrorKind::Io => {
            let text = format!("{}; nothing was done", failure.error.message());
            Failure { error: failure.error.with_message(text), ..failure }
        }
        _ => failure,
    }
}

/// Returns the failure of a call that may have been executed. The message states that.
pub(super) fn unknown(failure: Failure) -> Failure {
    let text = format!(
        "{}; whether the call was done is unknown: read the store before you run it again",
        failure.error.message()
    );
    // The SQLSTATE is removed: with that of a lock timeout, the failure would be treated as one
    // after which nothing was done.
    Failure { error: Error::io(text).of_a_server(), code: String::new(), ..failure }
}

impl Db {
    /// Runs one statement in the open transaction, or in a transaction of its own if none is open.
    /// It takes one round trip once the statement is prepared.
    pub(super) fn query(&self, again: Again, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        self.session.borrow_mut().query(again, sql, params)
    }
}

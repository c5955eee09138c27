//! One connection, which is made anew when it breaks, and the statements that are run on it.
//!
//! What the caller's transaction means is in `transaction.rs`.

use std::time::{Duration, Instant};

use tokio_postgres::{Row, types::ToSql};

use super::Db;
use super::failure::{Failure, Sort, unsent};
use super::line::Line;
use super::link::{Backend, END_WAIT, Link, MAX_DELAY};
use super::pauses::Pauses;
use super::schema::{NOW_MS, search_path};
use super::url::Settings;
use crate::config::{Config, SyncLevel};
use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::wait;

/// Policy for a retry when the connection breaks after a statement was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// A read: it is run again, and what has become of it nobody asks.
    Read,
    /// A write that may happen twice: it is run again.
    Yes,
    /// Its outcome is unknown then, which the error says.
    No,
}

/// Time for which a statement may wait for locks of other transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// As long as the busy timeout says.
    Full,
    /// As it says itself.
    Own,
    /// [`MAX_DELAY`].
    None,
}

/// The shortest time for which a lock on a row is waited for: it may be one of a commit that is under way.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);

/// State of the transaction on the connection.
#[derive(Debug, Clone)]
pub(super) enum Block {
    None,
    Open,
    /// It has failed: it can only be rolled back, or to a savepoint if the connection is still there.
    Failed(Fall),
}

/// Failure of a transaction, and what remains of it.
#[derive(Debug, Clone)]
pub(super) struct Fall {
    /// Error that the owner of the transaction gets.
    pub(super) why: Error,
    pub(super) end: End,
}

/// What is left of a transaction that has failed, and what can be done about that.
#[derive(Debug, Clone)]
pub(super) enum End {
    /// Nothing: others stood in the way. It is run again.
    Conflict,
    /// Nothing: the connection broke, as is said here. It is run again.
    Undone(Error),
    /// That is not known: it broke while it was committed.
    Unknown(Error),
    /// Nothing, and that will be so again.
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
    /// What the caller is told of a call that was a transaction of its own.
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
    /// A backend that may still be at work on what the broken connection has sent.
    left_behind: Option<Backend>,
    pub(super) block: Block,
    /// Until when everything is answered, while the store is opened. That is not left to a server that is silent.
    pub(super) limit: Option<Instant>,
    /// Whether a transaction has changed a family of which it may not have seen all rows (`catalogue.rs`), and that is still to
    /// be seen to.
    pub(super) is_unsettled: bool,
    /// The server's time at the first connection.
    opened_ms: Option<i64>,
}

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
            limit: None,
            is_unsettled: false,
            opened_ms: None,
        };
        session.run_alone(Again::Read, |_| Ok(())).map_err(Failure::at_open)?;
        Ok(session)
    }

    /// Opening what is there, once connected, takes no longer than another log-in and the wait for a lock.
    pub(super) fn limit_opening(&mut self) {
        self.limit = Some(Instant::now() + self.settings.connect_timeout + self.lock_wait());
    }

    /// Returns `true` if the time for opening the store is over.
    pub(super) fn is_late(&self) -> bool {
        self.limit.is_some_and(|end| Instant::now() >= end)
    }

    /// What is done while a store is opened: it may be done twice, and whether it was done once need not be known.
    pub(super) fn run_at_open<R>(
        &mut self,
        f: impl Fn(&mut Line) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.run_alone(Again::Read, |link| f(&mut link.line).map_err(unsent))
    }

    /// One statement outside of a transaction, tried once. If it fails, the server may go on with it.
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

    /// The server's time when the session was opened.
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

    /// One statement with an answer in rows.
    pub(super) fn query(
        &mut self,
        again: Again,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>> {
        self.run(again, |link| link.query(sql, params))
    }

    /// One write that may happen twice, without an answer in rows; returns how many it has written. `None`: as
    /// [`run_at_once`](Session::run_at_once).
    pub(super) fn write_at_once(&mut self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Option<u64>> {
        self.run_at_once(Again::Yes, |link| {
            link.with_statement(sql, |line, statement| line.write(statement, params))
        })
    }

    /// [`query`](Session::query) as [`run_at_once`](Session::run_at_once).
    pub(super) fn query_at_once(
        &mut self,
        again: Again,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Vec<Row>>> {
        self.run_at_once(again, |link| link.query(sql, params))
    }

    /// Statements without parameters and without an answer, together one transaction unless they begin one.
    pub(super) fn execute(&mut self, again: Again, sql: &str) -> Result<()> {
        self.run(again, |link| link.execute(sql))
    }

    /// Runs what is one round trip, in the open transaction or in one of its own.
    pub(super) fn run<R>(&mut self, again: Again, f: impl Fn(&mut Link) -> Result<R, Failure>) -> Result<R> {
        match &self.block {
            Block::Failed(fall) => Err(fall.why.clone()),
            Block::Open => self.run_in_block(f),
            Block::None => self.run_alone(again, f).map_err(|failure| failure.error),
        }
    }

    /// The same, but outside of a transaction it waits no longer than [`MAX_DELAY`] for the locks of others: `None`, and nothing
    /// was done, if they have them longer.
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

    /// The connection of the open transaction.
    pub(super) fn link_in_use(&mut self) -> Result<&mut Link, Failure> {
        self.drop_inherited();
        self.link.as_mut().ok_or_else(|| super::failure::broken("before this call"))
    }

    /// Whether not even a rollback to a savepoint makes the open transaction one that can go on.
    pub(super) fn is_beyond_repair(&self) -> bool {
        self.link.is_none() || matches!(self.block, Block::Failed(Fall { end: End::Conflict, .. }))
    }

    /// After a failure in the open transaction, which the server has ended by that, or which went with the connection.
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

    /// The same outside of a transaction: it is run again as long as that can help and is safe, within the busy timeout,
    /// and once after a connection that was broken.
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

    /// Whether the connection there is waits for locks no longer than [`MAX_DELAY`].
    fn is_impatient(&self) -> bool {
        self.link.as_ref().is_some_and(|link| !link.is_patient())
    }

    /// Returns the time for which a statement waits for locks.
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
        // Whether a try may have been done that was not answered.
        let mut is_unknown = false;
        loop {
            // What is not sent on a connection that is known to be gone is not unknown later.
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

    /// The connection, made if there is none.
    pub(super) fn link(&mut self) -> Result<&mut Link, Failure> {
        if self.link.is_none() {
            // A new connection would wait for the same lock.
            if wait::is_ended() {
                return Err(super::failure::broken("the program ended the wait for it"));
            }
            let link = self.connect()?;
            return Ok(self.link.insert(link));
        }
        match &mut self.link {
            Some(link) => Ok(link),
            None => Err(super::failure::broken("it is not there")),
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
        // What comes now may have to wait: for a statement that is to end, for a standby.
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
        if self.link.as_ref().is_some_and(Link::is_inherited) {
            self.drop_link();
        }
    }

    /// Whether the server is PostgreSQL itself, by the connection there is.
    pub(super) fn is_postgres(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.is_postgres)
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

/// What is run first on each connection.
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

/// A name in SQL.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl Failure {
    /// The error of an open, which has done nothing for the caller.
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

/// What is said of a call of which nothing was sent, or nothing is left.
fn undone(failure: Failure) -> Failure {
    match failure.sort {
        Sort::Unreachable if failure.error.kind() == ErrorKind::Io => {
            let text = format!("{}; nothing was done", failure.error.message());
            Failure { error: failure.error.with_message(text), ..failure }
        }
        _ => failure,
    }
}

/// What is said of a call that may have been done.
pub(super) fn unknown(failure: Failure) -> Failure {
    let text = format!(
        "{}; whether the call was done is unknown: read the store before you run it again",
        failure.error.message()
    );
    // By the code of a wait it would be taken for one that has done nothing.
    Failure { error: Error::io(text).of_a_server(), code: String::new(), ..failure }
}

impl Db {
    /// One statement, one round trip after its first preparation: in the open transaction, or in one of its own.
    pub(super) fn query(&self, again: Again, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        self.session.borrow_mut().query(again, sql, params)
    }
}

//! A connection with its prepared statements, and the identity of the server process at its other
//! end.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

use tokio_postgres::{Row, Statement, types::ToSql};

use super::backoff::Pauses;
use super::client::Line;
use super::error::{Failure, NOT_SUPPORTED, Sort, only_reads, unsent};
use super::sql_text::{PLANNER, in_schema};
use crate::error::{Error, Result};
use crate::fork;
use crate::hint::Hint;

/// Maximum time that the first attempt of a statement waits for a lock. A write that sets an expiry
/// time or a write time and would wait longer is run again, in a way that computes these times
/// after the wait (`write/late.rs`).
pub(super) const MAX_DELAY: Duration = Duration::from_millis(50);

/// Maximum number of prepared statements that a connection keeps; all of them are dropped when it
/// is reached. The limit is a precaution: the library has fewer different statements.
const MAX_STATEMENTS: usize = 300;

/// Connection to a server, with its prepared statements and the identity of its server process. The
/// session drops it as soon as it is known to be broken.
pub(super) struct Link {
    pub(super) line: Line,
    /// Schema of the store.
    schema: Box<str>,
    statements: HashMap<Box<str>, Statement>,
    /// Whether the lock timeout that is set on the connection is longer than [`MAX_DELAY`].
    is_patient: bool,
    /// Number that identifies the process that made the connection, to detect a fork (`fork.rs`).
    generation: u32,
    /// Whether the server reports that it is PostgreSQL itself.
    pub(super) is_postgres: bool,
    /// Identity of the server process of this connection; `None` if the server cannot report it.
    pub(super) backend: Option<Backend>,
}

/// Identity of a server process, by which a later connection can find the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Backend {
    /// Server, and the period of its history to which the transaction numbers of the process
    /// belong; `None` if the role may not query them. Without them, the outcome of a commit whose
    /// answer was lost stays unknown.
    pub(super) history: Option<History>,
    /// Number of the process, in decimal.
    pub(super) pid: String,
    /// Start time of the process, as PostgreSQL displays it. It distinguishes the process from a
    /// later one with the same number.
    pub(super) started: String,
    /// Second number of the advisory lock that the server process holds while it belongs to this
    /// connection. If a pooler gives the process to another client, the lock is released. `None` if
    /// the lock could not be set or is not visible.
    mark: Option<u32>,
}

/// Server, and the period of its history in which it uses no transaction number twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct History {
    /// System identifier and timeline of the server. The timeline is part of it because a promoted
    /// standby assigns transaction numbers again that the former primary has used.
    pub(super) server: String,
    /// Value that changes with each crash of the server. After a crash, the server assigns those
    /// transaction numbers again that it had not written to disk.
    pub(super) run: String,
}

/// First of the two numbers of the advisory locks that mark the server processes of this library's
/// connections (`Backend::mark`): the ASCII codes of "kvst". The second number is random.
const MARKS: u32 = 0x6b76_7374;

/// Returns the SQL condition that a row of `pg_locks` is the advisory lock that marks the server
/// process `pid` (`Backend::mark`).
fn is_mark(pid: &str) -> String {
    format!("pg_locks.pid = {pid} AND locktype = 'advisory' AND classid = {MARKS} AND objsubid = 2")
}

/// Maximum time to wait until the server process of a broken connection has ended, before the next
/// connection runs statements.
pub(super) const END_WAIT: Duration = Duration::from_secs(10);

/// SQLSTATE of a refusal because the role lacks a privilege.
const NO_RIGHT: &str = "42501";

/// Query for the process number and the start time in [`Backend`].
const WHO_AM_I: &str =
    "SELECT pid::text, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()";

/// Query for [`History`]. It also checks that the role may query the number of a transaction.
///
/// `stats_reset` changes in every recovery from a crash, because a recovery resets all statistics
/// (PostgreSQL's documentation of the statistics). The start time of the postmaster does not always
/// change: after a server process was killed, the same postmaster recovers and continues.
const HISTORY: &str = "SELECT (SELECT system_identifier FROM pg_control_system())::text || ' ' || \
    CASE WHEN pg_is_in_recovery() THEN 'standby' ELSE substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) END, \
    (SELECT stats_reset FROM pg_stat_bgwriter)::text || ' ' || pg_postmaster_start_time()::text, \
    pg_current_xact_id_if_assigned()::text";

/// Returns `true` if a refusal with this SQLSTATE is permanent: the function or table does not
/// exist, or this role may not use it.
fn is_never_answered(code: &str) -> bool {
    code.starts_with("42") || code == NOT_SUPPORTED
}

impl Link {
    pub(super) fn of(line: Line, schema: &str) -> Link {
        Link {
            line,
            schema: schema.into(),
            statements: HashMap::new(),
            is_patient: false,
            generation: fork::generation(),
            is_postgres: false,
            backend: None,
        }
    }

    /// Returns `true` if the connection belongs to a parent process.
    pub(super) fn is_inherited(&self) -> bool {
        self.generation != fork::generation()
    }

    pub(super) fn is_patient(&self) -> bool {
        self.is_patient
    }

    pub(super) fn forget_statements(&mut self) {
        self.statements.clear();
    }

    /// Runs `f`. A request in `f` fails if the server has not answered it by the time `limit`.
    /// `None` changes no limit.
    pub(super) fn within<R>(
        &mut self,
        limit: Option<Instant>,
        f: impl FnOnce(&mut Link) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        if limit.is_none() {
            return f(self);
        }
        self.line.limit(limit)?;
        let done = f(self);
        self.line.limit(None)?;
        done
    }

    pub(super) fn query(&mut self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Failure> {
        self.with_statement(sql, |line, statement| line.query(statement, params))
    }

    /// Runs `f` with the prepared statement for `sql`, which is prepared at its first use on this
    /// connection.
    pub(super) fn with_statement<R>(
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
        // If the connection breaks here, the statement was not executed.
        let statement = self.line.prepare(&in_schema(&self.schema, sql)).map_err(unsent)?;
        let done = f(&mut self.line, &statement);
        self.statements.insert(sql.into(), statement);
        done
    }

    /// Runs statements without parameters in one round trip.
    pub(super) fn execute(&mut self, sql: &str) -> Result<(), Failure> {
        self.line.execute(&in_schema(&self.schema, sql))
    }

    /// Runs a statement and returns the first column of its first row, as a text; `None` if there
    /// is no row or the column is NULL.
    pub(super) fn ask(&mut self, sql: &str) -> Result<Option<String>, Failure> {
        self.line.ask(&in_schema(&self.schema, sql))
    }

    pub(super) fn set_lock_timeout(&mut self, wait: Duration) -> Result<(), Failure> {
        self.line.execute(&format!("SET lock_timeout = {}", wait.as_millis()))?;
        self.is_patient = wait > MAX_DELAY;
        Ok(())
    }

    /// Runs the statements `sql`, which configure a new connection, and identifies the server.
    pub(super) fn set_up(&mut self, sql: &str) -> Result<(), Failure> {
        let version = self.line.ask(&format!("{sql}; SELECT version()"))?.unwrap_or_default();
        // The version of YugabyteDB begins in the same way.
        self.is_postgres = version.starts_with("PostgreSQL ") && !version.contains("-YB-");
        if self.is_postgres {
            self.backend = self.who_am_i()?;
            self.set_planner()?;
        }
        Ok(())
    }

    /// Returns the identity of the server process, without its mark; `None` if the role may not
    /// query it, or if the answer is malformed.
    pub(super) fn who_am_i(&mut self) -> Result<Option<Backend>, Failure> {
        let Some([pid, started]) = self.ask_what_there_is(WHO_AM_I)? else { return Ok(None) };
        // Both texts become parts of a statement in `end`, which may be sent to another server.
        let is_number = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number || started.contains(['\'', '\\']) {
            return Ok(None);
        }
        let history = self.ask_what_there_is(HISTORY)?.map(|[server, run]| History { server, run });
        Ok(Some(Backend { history, pid, started, mark: None }))
    }

    /// Runs a query and returns the first `N` columns of its first row. Returns `None` if the
    /// server does not support the query, the role may not run it, or one of the columns is NULL or
    /// missing.
    fn ask_what_there_is<const N: usize>(&mut self, sql: &str) -> Result<Option<[String; N]>, Failure> {
        match self.line.ask_row(sql) {
            Ok(row) => {
                let columns = row.into_iter().flatten().take(N).collect::<Option<Vec<_>>>();
                Ok(columns.and_then(|columns| columns.try_into().ok()))
            }
            Err(failure) if failure.sort == Sort::Refused && is_never_answered(&failure.code) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Converts a failure of BEGIN to [`Sort::Standby`] if the server is a standby, and returns any
    /// other failure unchanged. A standby refuses to begin a write transaction with
    /// [`NOT_SUPPORTED`], and reports the reason only in its message.
    pub(super) fn of_standby(&mut self, failure: Failure) -> Failure {
        if failure.code != NOT_SUPPORTED {
            return failure;
        }
        match self.line.ask("SELECT pg_is_in_recovery()::text") {
            Ok(Some(answer)) if answer == "true" => only_reads("it is a standby"),
            _ => failure,
        }
    }

    /// Configures PostgreSQL's planner, and takes an advisory lock that marks the server process as
    /// belonging to this connection. The mark is stored in `backend` only if the role may take the
    /// lock and see it in `pg_locks`.
    pub(super) fn set_planner(&mut self) -> Result<(), Failure> {
        // 31 random bits: the number is not negative, so that `pg_locks` shows it unchanged.
        let mark = u32::try_from(RandomState::new().build_hasher().finish() >> 33).unwrap_or_default();
        // The first SELECT releases marks of earlier connections, which a pooler may have kept. The
        // first two SELECTs return a row only if they fail. That row, which is NULL, is then the
        // answer.
        let sql = format!(
            "{PLANNER}; SELECT NULL FROM pg_locks WHERE CASE WHEN {} \
             THEN NOT pg_advisory_unlock_shared(classid::int, objid::int) ELSE false END; \
             SELECT NULL WHERE NOT pg_try_advisory_lock_shared({MARKS}, {mark}); \
             SELECT EXISTS (SELECT FROM pg_locks WHERE {} AND objid = {mark})::text",
            is_mark("pg_backend_pid()"),
            is_mark("pg_backend_pid()"),
        );
        match self.line.ask(&sql) {
            Ok(is_held) => {
                if let Some(backend) = &mut self.backend {
                    backend.mark = Some(mark).filter(|_| is_held.is_some_and(|held| held == "true"));
                }
                Ok(())
            }
            Err(failure) if failure.sort == Sort::Refused && is_never_answered(&failure.code) => {
                self.line.execute(PLANNER)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Ends the server process `old` of a broken connection, and waits up to `wait` until it has
    /// ended. Until then, its last statement may still take effect, even after later statements of
    /// this connection. Fails if the process is still executing a statement after `wait`.
    ///
    /// Returns `true` if the changes of the process are on this server. Returns `false` if the
    /// process belongs to another server or timeline, or if the server of this connection cannot be
    /// identified.
    pub(super) fn end(&mut self, old: &Backend, wait: Duration) -> Result<bool, Failure> {
        let Some(own) = &self.backend else { return Ok(false) };
        // On another server, or on another timeline, the process can no longer have an effect here.
        if let (Some(own), Some(old)) = (&own.history, &old.history)
            && own.server != old.server
        {
            return Ok(false);
        }
        // A pooler has given the process to this connection, so its statement has finished.
        if (&own.pid, &own.started) == (&old.pid, &old.started) {
            return Ok(true);
        }
        let mut there = format!(
            "FROM pg_stat_activity a WHERE pid = {} AND backend_start::text = '{}'",
            old.pid, old.started
        );
        // If the process no longer has this mark, a pooler has given it to another client.
        if let Some(mark) = old.mark {
            let is_mark = is_mark("a.pid");
            there.push_str(&format!(" AND EXISTS (SELECT FROM pg_locks WHERE {is_mark} AND objid = {mark})"));
        }
        let mut may_end = true;
        let mut pauses = Pauses::within(wait);
        loop {
            let found = if may_end { "pg_terminate_backend(pid)" } else { "pid" };
            match self.line.ask(&format!("SELECT count({found})::text {there}")) {
                Ok(count) if count.as_ref().is_none_or(|count| count == "0") => return Ok(true),
                Ok(_) => {}
                // The role may not end the process. It ends by itself when its statement has
                // finished and it notices that its client is disconnected.
                Err(failure) if may_end && failure.code == NO_RIGHT => {
                    may_end = false;
                    continue;
                }
                Err(failure) => return Err(failure),
            }
            if !pauses.pause() {
                break;
            }
        }
        // The process could not be ended, and has not noticed that its client is disconnected. If
        // it is idle, it has finished: all requests sent to it have arrived by now, or will never
        // arrive.
        let at_work = format!("SELECT count(pid)::text {there} AND state IS DISTINCT FROM 'idle'");
        if !may_end && self.line.ask(&at_work)?.is_none_or(|count| count == "0") {
            return Ok(true);
        }
        let text = "a statement of the broken connection is still running on the server";
        Err(Failure::new(Sort::Unreachable, Error::busy(text).with_hint(Hint::Retry)))
    }

    /// Waits until the synchronous standbys have everything that an ended server process has
    /// committed.
    ///
    /// The process may have been ended while it waited for the standbys. Its commit is then visible
    /// on this server to a lookup of the outcome and to a retry, but would be lost together with
    /// this server. This function writes a record, which comes later in the WAL than that commit.
    /// The commit of this record waits for the standbys.
    pub(super) fn catch_up(&mut self) -> Result<(), Failure> {
        let writes = [
            "SELECT pg_logical_emit_message(true, 'kvstore', '')",
            // If the role may not call that function:
            "UPDATE kvstore_meta SET format = format WHERE one = 1",
        ];
        for sql in writes {
            match self.execute(sql) {
                // A role that may not write has written nothing.
                Err(failure) if matches!(failure.sort, Sort::Refused | Sort::Standby) => {}
                done => return done,
            }
        }
        Ok(())
    }

    /// Closes the connection. The server is notified, unless the connection belongs to a parent
    /// process or is broken.
    pub(super) fn leave(self) {
        let Link { line, statements, generation, .. } = self;
        if generation == fork::generation() {
            drop(statements);
            line.terminate();
        }
    }
}

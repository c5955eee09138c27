//! A connection with the statements that are prepared on it, and who is at its other end.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

use tokio_postgres::{Row, Statement, types::ToSql};

use super::failure::{Failure, NOT_SUPPORTED, Sort, only_reads, unsent};
use super::line::Line;
use super::pauses::Pauses;
use super::plan::PLANNER;
use super::schema::in_schema;
use crate::error::{Error, Result};
use crate::fork;
use crate::hint::Hint;

/// How long a statement waits for a lock at first: a write that would wait longer is begun anew, in a way that does not take
/// the time before the wait for the time of the write (`plan/late.rs`).
pub(super) const MAX_DELAY: Duration = Duration::from_millis(50);

/// Prepared statements that are kept; the library has fewer texts.
const MAX_STATEMENTS: usize = 300;

/// Connection to a server that works, as far as is known.
pub(super) struct Link {
    pub(super) line: Line,
    /// Of the store.
    schema: Box<str>,
    statements: HashMap<Box<str>, Statement>,
    /// Whether it waits for locks longer than [`MAX_DELAY`].
    is_patient: bool,
    /// Which process has made it (`fork.rs`).
    generation: u32,
    /// Whether the server reports that it is PostgreSQL itself.
    pub(super) is_postgres: bool,
    /// Identity of the server process of this connection; `None` if the server cannot report it.
    pub(super) backend: Option<Backend>,
}

/// Identity of a server process, by which its fate can be queried later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Backend {
    /// `None`: the role may not ask for it, and outcomes are not looked up.
    pub(super) history: Option<History>,
    pub(super) pid: String,
    pub(super) started: String,
    /// An advisory lock that it holds as long as it is the connection's: a pooler may give it to another client then.
    mark: Option<u32>,
}

/// In which history of which server the number of a transaction is that of no other one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct History {
    /// Which server, on which timeline: a promoted standby gives transactions the same numbers again.
    pub(super) server: String,
    /// What a crash changes: after it the server gives those numbers again that it had not written to the disk.
    pub(super) run: String,
}

/// The first number of the advisory locks by which backends are known: "kvst". The second one is by chance.
const MARKS: u32 = 0x6b76_7374;

/// Whether a row of `pg_locks` is a mark of a backend.
fn is_mark(pid: &str) -> String {
    format!("pg_locks.pid = {pid} AND locktype = 'advisory' AND classid = {MARKS} AND objsubid = 2")
}

/// Maximum time to wait for the end of the server process of an earlier connection.
pub(super) const END_WAIT: Duration = Duration::from_secs(10);

/// SQLSTATE: the role may not.
const NO_RIGHT: &str = "42501";

/// What [`Backend`] has but for its mark.
const WHO_AM_I: &str =
    "SELECT pid::text, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()";

/// What [`History`] has, and whether a transaction can be asked for its number. All statistics are reset by a recovery from a
/// crash (PostgreSQL's documentation of them), also one after which the same postmaster goes on, because a backend was killed.
const HISTORY: &str = "SELECT (SELECT system_identifier FROM pg_control_system())::text || ' ' || \
    CASE WHEN pg_is_in_recovery() THEN 'standby' ELSE substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) END, \
    (SELECT stats_reset FROM pg_stat_bgwriter)::text || ' ' || pg_postmaster_start_time()::text, \
    pg_current_xact_id_if_assigned()::text";

/// Whether a refusal, by its SQLSTATE, is for ever: there is no such function or table, or not for this role.
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

    /// Runs `f`, which the server answers until `limit`, or not at all.
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

    /// Runs a statement that is prepared once for each connection.
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
        // A connection that breaks here has done nothing yet.
        let statement = self.line.prepare(&in_schema(&self.schema, sql)).map_err(unsent)?;
        let done = f(&mut self.line, &statement);
        self.statements.insert(sql.into(), statement);
        done
    }

    /// Runs statements without parameters in one round trip.
    pub(super) fn execute(&mut self, sql: &str) -> Result<(), Failure> {
        self.line.execute(&in_schema(&self.schema, sql))
    }

    /// Runs a statement and returns the first column of its result, as a text.
    pub(super) fn ask(&mut self, sql: &str) -> Result<Option<String>, Failure> {
        self.line.ask(&in_schema(&self.schema, sql))
    }

    pub(super) fn set_lock_timeout(&mut self, wait: Duration) -> Result<(), Failure> {
        self.line.execute(&format!("SET lock_timeout = {}", wait.as_millis()))?;
        self.is_patient = wait > MAX_DELAY;
        Ok(())
    }

    /// Runs what is first on a connection, and asks what is at its other end.
    pub(super) fn set_up(&mut self, sql: &str) -> Result<(), Failure> {
        let version = self.line.ask(&format!("{sql}; SELECT version()"))?.unwrap_or_default();
        // YugabyteDB calls itself so, too.
        self.is_postgres = version.starts_with("PostgreSQL ") && !version.contains("-YB-");
        if self.is_postgres {
            self.backend = self.who_am_i()?;
            self.set_planner()?;
        }
        Ok(())
    }

    /// `None`: the role may not ask for it.
    pub(super) fn who_am_i(&mut self) -> Result<Option<Backend>, Failure> {
        let Some([pid, started]) = self.ask_what_there_is(WHO_AM_I)? else { return Ok(None) };
        // They become parts of a statement, perhaps on another server.
        let is_number = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number || started.contains(['\'', '\\']) {
            return Ok(None);
        }
        let history = self.ask_what_there_is(HISTORY)?.map(|[server, run]| History { server, run });
        Ok(Some(Backend { history, pid, started, mark: None }))
    }

    /// The first columns of a row; `None`: the server has not got what is asked for, or not for this role.
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

    /// A standby refuses to begin a transaction that writes as something it cannot do, and says in words only why.
    pub(super) fn of_standby(&mut self, failure: Failure) -> Failure {
        if failure.code != NOT_SUPPORTED {
            return failure;
        }
        match self.line.ask("SELECT pg_is_in_recovery()::text") {
            Ok(Some(answer)) if answer == "true" => only_reads("it is a standby"),
            _ => failure,
        }
    }

    /// Sets PostgreSQL's planner up, and marks the backend as this connection's, where the role may do that and see it.
    pub(super) fn set_planner(&mut self) -> Result<(), Failure> {
        // Not negative, as the server shows it in `pg_locks`.
        let mark = u32::try_from(RandomState::new().build_hasher().finish() >> 33).unwrap_or_default();
        // The first two have no rows, unless they fail. A pooler may have kept marks of earlier connections.
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

    /// Waits until a backend of an earlier connection is gone, after having told it to go: what it was at may be done until
    /// then, and would come after what this connection is about to do. Returns whether what it has done is on this server.
    pub(super) fn end(&mut self, old: &Backend, wait: Duration) -> Result<bool, Failure> {
        let Some(own) = &self.backend else { return Ok(false) };
        // On another server, or on another timeline, it can do nothing any more.
        if let (Some(own), Some(old)) = (&own.history, &old.history)
            && own.server != old.server
        {
            return Ok(false);
        }
        // A pooler has given it to this connection, when it was done.
        if (&own.pid, &own.started) == (&old.pid, &old.started) {
            return Ok(true);
        }
        let mut there = format!(
            "FROM pg_stat_activity a WHERE pid = {} AND backend_start::text = '{}'",
            old.pid, old.started
        );
        // Without it, it is another client's.
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
                // It goes by itself when it is done and misses its client.
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
        // One that may not be ended, and does not miss its client: what was sent has come by now, or will not come any more.
        let at_work = format!("SELECT count(pid)::text {there} AND state IS DISTINCT FROM 'idle'");
        if !may_end && self.line.ask(&at_work)?.is_none_or(|count| count == "0") {
            return Ok(true);
        }
        let text = "a statement of the broken connection is still running on the server";
        Err(Failure::new(Sort::Unreachable, Error::busy(text).with_hint(Hint::Retry)))
    }

    /// Waits until the synchronous standbys have what a backend has committed that was ended while it waited for them: on this
    /// server it is there already, for a look-up to find and a second try to meet, and would be lost with it. What is written
    /// here comes after it in the log; its commit waits for them as any other does.
    pub(super) fn catch_up(&mut self) -> Result<(), Failure> {
        let writes = [
            "SELECT pg_logical_emit_message(true, 'kvstore', '')",
            "UPDATE kvstore_meta SET format = format WHERE one = 1", // where that function is not for all
        ];
        for sql in writes {
            match self.execute(sql) {
                // Who may write nothing has written nothing.
                Err(failure) if matches!(failure.sort, Sort::Refused | Sort::Standby) => {}
                done => return done,
            }
        }
        Ok(())
    }

    /// Says goodbye, unless it is the connection of a parent process, or is broken.
    pub(super) fn leave(self) {
        let Link { line, statements, generation, .. } = self;
        if generation == fork::generation() {
            drop(statements);
            line.terminate();
        }
    }
}

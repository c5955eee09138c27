//! Transactions on a connection, and the outcome of a commit whose answer was lost.

use std::time::Duration;

use super::Db;
use super::backoff::Pauses;
use super::connection::{History, Link};
use super::error::{Failure, Sort, unsent};
use super::session::{Again, Block, End, Fall, Patience, Session, read_only, unknown};
use super::sql_text::NOW_MS;
use crate::backend::TransactionState;
use crate::backend::transaction::no_transaction;
use crate::error::{Error, Result};
use crate::hint::Hint;
use crate::unwind::or_undo;

/// Minimum time for which the library tries to find out whether a transaction was committed, after
/// the answer to the commit was lost. A longer busy timeout applies instead.
const LOOK_UP_TIME: Duration = Duration::from_secs(10);

/// Statement that takes the table lock that every writing statement takes. A write transaction
/// takes it before its snapshot.
const LOCK_TO_WRITE: &str = "LOCK TABLE kvstore_row IN ROW EXCLUSIVE MODE";

/// Outcome of a commit whose answer was lost.
enum Outcome {
    Committed,
    Undone,
    Unknown,
}

impl Session {
    /// Begins a transaction. `kind` is its isolation level and access mode. Then runs the statement
    /// `on_postgres` if the server is PostgreSQL, and the query `question`; both can be empty.
    /// Returns the answer to `question`.
    fn begin(&mut self, kind: &str, question: &str, on_postgres: &str) -> Result<Option<String>> {
        let wait = self.lock_wait().as_millis();
        let begin = |link: &mut Link| {
            let rest = if link.is_postgres { on_postgres } else { "" };
            let sql =
                format!("BEGIN ISOLATION LEVEL {kind}; SET LOCAL lock_timeout = {wait}; {rest}; {question}");
            link.ask(&sql).map_err(|failure| {
                if matches!(failure.sort, Sort::Broken | Sort::Unreachable) {
                    return unsent(failure);
                }
                let _ = link.line.execute("ROLLBACK"); // BEGIN may have succeeded
                unsent(link.of_standby(failure))
            })
        };
        let answer = self.run_with(Again::Yes, Patience::Own, begin).map_err(|failure| failure.error)?;
        self.block = Block::Open;
        Ok(answer)
    }

    /// Begins a read-only transaction, whose snapshot is the current state. Returns the server's
    /// time in milliseconds since the Unix epoch, as a text.
    fn begin_reading(&mut self) -> Result<Option<String>> {
        self.begin("REPEATABLE READ READ ONLY", &format!("SELECT {NOW_MS}"), "")
    }

    /// Ends a transaction in which nothing was written. If that fails, it closes the connection,
    /// which also ends the transaction.
    fn end_reading(&mut self) {
        self.block = Block::None;
        if self.has_link() && self.run_alone_once("COMMIT").is_err() {
            self.drop_link();
        }
    }

    /// Rolls back the open transaction. If that fails, the server rolls it back when it notices
    /// that the connection is closed.
    fn roll_back(&mut self) {
        self.block = Block::None;
        if self.has_link() && self.run_alone_once("ROLLBACK").is_err() {
            self.lose_link();
        }
    }

    /// Runs a statement on the existing connection. Fails if there is none.
    fn run_alone_once(&mut self, sql: &str) -> Result<(), Failure> {
        self.link_in_use()?.line.execute(sql)
    }

    /// Commits the open transaction.
    ///
    /// The number of the transaction is queried in the same round trip. By this number, the outcome
    /// can be looked up if the answer to the commit is lost.
    fn commit(&mut self) -> Result<()> {
        if let Block::Failed(fall) = &self.block {
            return Err(fall.why.clone());
        }
        let link = self.link_in_use().map_err(|failure| failure.error)?;
        let history = link.backend.as_ref().and_then(|backend| backend.history.clone());
        let (number, done) = match history {
            Some(_) => link.line.ask_and_execute("SELECT pg_current_xact_id_if_assigned()::text", "COMMIT"),
            None => (None, link.line.execute("COMMIT")),
        };
        // The server executes the COMMIT of a failed transaction as a rollback, without an error.
        // So an error of the query is the failure of the commit.
        if let Some(Err(failure)) = number {
            let _ = done;
            return Err(self.fail_block(failure));
        }
        match done {
            Ok(()) => {
                self.block = Block::None;
                Ok(())
            }
            Err(failure) if matches!(failure.sort, Sort::Broken | Sort::Ambiguous) => {
                self.lose_link();
                let number = number.and_then(Result::ok);
                let (why, end) = match self.look_up(history.as_ref(), number) {
                    Outcome::Committed => {
                        self.block = Block::None;
                        return Ok(());
                    }
                    Outcome::Undone => (
                        Error::io(format!("{}; the transaction was not committed", failure.error.message()))
                            .with_hint(Hint::RunTransactionAgain),
                        End::Undone(failure.error),
                    ),
                    Outcome::Unknown => (
                        Error::io(format!(
                            "{}; whether the transaction was committed is unknown: roll it back, and \
                            read the store before you run it again",
                            failure.error.message()
                        )),
                        End::Unknown(unknown(failure).error),
                    ),
                };
                let why = why.of_a_server();
                self.block = Block::Failed(Fall { why: why.clone(), end });
                Err(why)
            }
            Err(failure) => Err(self.fail_block(failure)),
        }
    }

    /// Looks up the outcome of a commit on a new connection.
    ///
    /// `number` is the number of the transaction. It is `Some(None)` if the transaction has none,
    /// because it has written nothing, and `None` if the answer with the number was lost, too.
    fn look_up(&mut self, history: Option<&History>, number: Option<Option<String>>) -> Outcome {
        let (Some(history), Some(number)) = (history, number) else { return Outcome::Unknown };
        let Some(number) = number else { return Outcome::Undone };
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Outcome::Unknown;
        }
        let mut pauses = Pauses::within(self.busy_timeout.max(LOOK_UP_TIME));
        loop {
            let found = self.link().and_then(|link| {
                // Another server, or one with another history, assigns the same number to another
                // transaction.
                match &link.backend {
                    Some(own) if own.history.as_ref() == Some(history) => {
                        link.line.ask(&format!("SELECT pg_xact_status('{number}'::xid8)"))
                    }
                    _ => Ok(Some("elsewhere".to_owned())),
                }
            });
            match found.as_ref().map(|found| found.as_deref()) {
                Ok(Some("committed")) => return Outcome::Committed,
                Ok(Some("aborted")) => return Outcome::Undone,
                Ok(Some("in progress")) => {}
                Ok(_) => return Outcome::Unknown,
                Err(failure) if matches!(failure.sort, Sort::Refused | Sort::Standby) => {
                    return Outcome::Unknown;
                }
                Err(_) => self.drop_link(),
            }
            if !pauses.pause() {
                return Outcome::Unknown;
            }
        }
    }

    /// Runs statements in the open transaction, even if it has failed. The server must accept them
    /// in a failed transaction, such as a rollback to a savepoint.
    fn mend(&mut self, sql: &str) -> Result<()> {
        let done = self.link_in_use().and_then(|link| link.line.execute(sql));
        done.map_err(|failure| self.fail_block(failure))
    }
}

impl Db {
    pub(crate) fn transaction(&self) -> &TransactionState {
        &self.transaction
    }

    /// Begins the caller's read transaction. Its snapshot is the current state.
    pub(crate) fn begin_read(&mut self) -> Result<()> {
        self.refuse_second()?;
        let now_ms = self.session.borrow_mut().begin_reading()?;
        self.note_time(now_ms);
        self.transaction = TransactionState::Read;
        Ok(())
    }

    /// Begins the caller's write transaction.
    ///
    /// Its snapshot is the state at its first read or write. On PostgreSQL, the transaction takes
    /// [`LOCK_TO_WRITE`] before the snapshot, so no other client can drop a family between the
    /// snapshot and the end of the transaction (`catalogue.rs`).
    pub(crate) fn begin_write(&mut self) -> Result<()> {
        self.refuse_second()?;
        if self.read_only {
            return Err(read_only());
        }
        let mut session = self.session.borrow_mut();
        session.begin("SERIALIZABLE READ WRITE", "", LOCK_TO_WRITE)?;
        drop(session);
        self.transaction = TransactionState::Write;
        Ok(())
    }

    fn refuse_second(&self) -> Result<()> {
        match self.transaction {
            TransactionState::None => self.roll_back_remains(),
            _ => Err(Error::invalid("a transaction is already open on this handle")
                .with_hint(Hint::EndTransaction)),
        }
    }

    fn note_time(&self, now_ms: Option<String>) {
        if let Some(now_ms) = now_ms.and_then(|text| text.parse().ok()) {
            self.clock.note_server(now_ms);
        }
    }

    /// Queries the server's time, and sets the clock to it.
    pub(crate) fn ask_time(&self) -> Result<()> {
        let sql = format!("SELECT {NOW_MS}");
        let now_ms = self.session.borrow_mut().run(Again::Read, |link| link.line.ask(&sql))?;
        self.note_time(now_ms);
        Ok(())
    }

    /// Commits the caller's transaction. If that fails, the transaction can only be rolled back.
    pub(crate) fn commit(&mut self) -> Result<()> {
        self.transaction.check_commit()?;
        if self.transaction == TransactionState::Write {
            let done = self.session.borrow_mut().commit();
            if let Err(e) = done {
                self.transaction = TransactionState::Doomed(e.clone());
                return Err(e);
            }
        } else {
            self.session.borrow_mut().end_reading();
        }
        self.transaction = TransactionState::None;
        let is_unsettled = self.session.borrow().is_unsettled;
        if is_unsettled {
            self.settle();
        }
        Ok(())
    }

    /// Rolls the caller's transaction back.
    pub(crate) fn rollback(&mut self) -> Result<()> {
        if self.transaction == TransactionState::None {
            return Err(no_transaction("roll back"));
        }
        self.transaction = TransactionState::None;
        self.session.borrow_mut().roll_back();
        Ok(())
    }

    /// Rolls back a transaction that an earlier call has left open because a callback panicked.
    /// Does nothing if the caller has a transaction.
    pub(crate) fn roll_back_remains(&self) -> Result<()> {
        if self.transaction == TransactionState::None {
            let mut session = self.session.borrow_mut();
            if !matches!(session.block, Block::None) {
                session.roll_back();
            }
        }
        Ok(())
    }

    /// Marks the caller's transaction as failed if the server has ended it. Must be called after
    /// every failed call, including reads: the server ends a transaction at its first failed
    /// statement, or when the connection ends.
    pub(crate) fn note_failure(&mut self, _: &Error) {
        // The error that ended the transaction can differ from that of the call: a callback may
        // have failed first, and the connection may have broken while its effects were undone.
        let Block::Failed(Fall { why, .. }) = self.session.borrow().block.clone() else { return };
        match self.transaction {
            TransactionState::Write => self.doom(&why),
            TransactionState::Read => self.transaction = TransactionState::Lost(why),
            _ => {}
        }
    }

    /// Marks the caller's write transaction as one that can only be rolled back. Later calls in it
    /// fail with the error `why`. Does nothing if the caller has no write transaction.
    pub(crate) fn doom(&mut self, why: &Error) {
        if self.transaction == TransactionState::Write {
            self.transaction = TransactionState::Doomed(why.clone());
        }
    }

    /// Runs `f` on one snapshot: in the open transaction, or in a read transaction of its own if
    /// none is open.
    pub(crate) fn in_snapshot<R>(&self, f: impl FnOnce(&Db) -> Result<R>) -> Result<R> {
        if self.is_open() {
            return f(self);
        }
        let now_ms = self.session.borrow_mut().begin_reading()?;
        self.note_time(now_ms);
        let done = or_undo(self, |db| f(db), |db| db.session.borrow_mut().roll_back());
        let mut session = self.session.borrow_mut();
        let done = done.map_err(|e| session.block.fall().map_or(e, Fall::alone));
        session.end_reading();
        done
    }

    /// Runs `f` in a savepoint of the open write transaction, or in a transaction of its own if
    /// none is open. If `f` fails, all its changes are rolled back.
    pub(crate) fn in_savepoint<R>(&self, f: impl Fn(&Db) -> Result<R>) -> Result<R> {
        if !self.is_open() {
            return self.in_transaction(f);
        }
        self.session.borrow_mut().execute(Again::No, "SAVEPOINT kvstore")?;
        // The result of the undo is ignored: after a panic, the caller's transaction can only be
        // rolled back anyway.
        let done = or_undo(self, |db| f(db), |db| drop(db.end_savepoint(true)));
        match (&done, self.end_savepoint(done.is_err())) {
            (Ok(_), Err(e)) => Err(e),
            // The first error is the more informative one.
            _ => done,
        }
    }

    /// Ends a savepoint. If `undo` is set, it first rolls back all changes since the start of the
    /// savepoint, after which a failed transaction can continue.
    fn end_savepoint(&self, undo: bool) -> Result<()> {
        let mut session = self.session.borrow_mut();
        if !undo {
            return session.execute(Again::No, "RELEASE kvstore");
        }
        if session.is_beyond_repair() {
            return Ok(());
        }
        session.mend("ROLLBACK TO kvstore; RELEASE kvstore")?;
        session.block = Block::Open;
        Ok(())
    }

    fn in_transaction<R>(&self, f: impl Fn(&Db) -> Result<R>) -> Result<R> {
        self.in_transaction_if(|db| f(db).map(|done| (done, true)))
    }

    /// Runs `f` in a transaction of its own. `f` also returns whether to commit the transaction
    /// (`true`) or to roll it back.
    ///
    /// After a conflict with another client's transaction, or if the connection broke and the
    /// transaction was not committed, `f` is run again, within the busy timeout.
    pub(super) fn in_transaction_if<R>(&self, f: impl Fn(&Db) -> Result<(R, bool)>) -> Result<R> {
        let mut pauses = Pauses::within(self.session.borrow().busy_timeout);
        let mut renewed = false;
        loop {
            self.session.borrow_mut().begin("READ COMMITTED", "", "")?;
            let done = or_undo(self, |db| f(db), |db| db.session.borrow_mut().roll_back());
            let mut session = self.session.borrow_mut();
            let done = done.and_then(|(done, counts)| {
                match counts {
                    true => session.commit()?,
                    false => session.roll_back(),
                }
                Ok(done)
            });
            let Err(e) = done else { return done };
            let fall = session.block.fall();
            session.roll_back();
            drop(session);
            match fall.as_ref().map(|fall| &fall.end) {
                Some(End::Undone(_)) if !renewed => {
                    renewed = true;
                    continue;
                }
                Some(End::Conflict | End::Undone(_)) if pauses.pause() => {}
                _ => return Err(fall.map_or(e, Fall::alone)),
            }
        }
    }

    /// Returns `true` if a transaction is open: the caller's, or one that a call runs for itself.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.session.borrow().block, Block::None)
    }

    /// Rolls back an open transaction and closes the connection.
    pub(crate) fn close(self) -> Result<()> {
        let mut session = self.session.into_inner();
        if !matches!(session.block, Block::None) {
            session.roll_back();
        }
        session.drop_link();
        Ok(())
    }
}

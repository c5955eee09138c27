//! Turns of connections at writing: a long removal ends its transaction early for a writer that
//! waits (ADR 36).
//!
//! SQLite gives the write lock to the connection that asks first after a commit. A purge that
//! removes many keys in several transactions would take the lock again long before a waiting writer
//! tries again. So each connection that waits for a lock counts it in the wal-index (`os/busy.rs`),
//! where other processes see it, too. A removal looks at that counter after every few keys. When it
//! has changed, the removal commits what it has done, and its caller pauses before the next
//! transaction (`session/turns.rs`).

use std::time::{Duration, Instant};

use super::connection::Db;
use super::os::BusyHandler;
use crate::backend::TransactionState;

/// Time for which a removal holds the write lock at least, even if another writer waits. A shorter
/// time would make the commits the larger part of the work.
const SHORTEST: Duration = Duration::from_millis(2);
/// Time after which a removal commits, even if it sees no writer wait: writers that use SQLite
/// without this library, or another journal mode, do not count their waits.
const LONGEST: Duration = Duration::from_millis(50);

/// Time after which a removal lists no more keys, so that the rest of the turn remains for removing
/// them.
const LONGEST_LIST: Duration = Duration::from_millis(25);

/// Turn of a connection at writing: the time since its transaction has begun.
pub(super) struct WriteTurn<'d> {
    busy: &'d BusyHandler,
    /// Number of waits of other connections when the turn began.
    waits: Option<u32>,
    began: Instant,
    /// Whether the removal is part of the caller's transaction, so that it cannot commit.
    in_callers: bool,
}

impl Db {
    /// Begins the turn of a removal, inside its write transaction.
    pub(super) fn begin_turn(&self) -> WriteTurn<'_> {
        WriteTurn {
            busy: &self.busy,
            waits: self.busy.waits_of_others(),
            began: Instant::now(),
            in_callers: self.transaction == TransactionState::Write,
        }
    }

    /// Returns `true` if other connections can write to the file.
    pub(crate) fn is_shared(&self) -> bool {
        self.presence.is_some()
    }

    /// Returns two counters that advance while other connections to the file write or wait: that of
    /// commits, and that of waits. `None` if no other connection can be seen.
    pub(crate) fn activity(&self) -> Option<(u32, u32)> {
        let commits = self.busy.index()?.commits();
        Some((commits, self.busy.waits_of_others()?))
    }

    /// Returns a counter that advances when another connection begins to wait for a lock of the
    /// file; `None` if that cannot be seen.
    pub(crate) fn waits_of_others(&self) -> Option<u32> {
        self.busy.waits_of_others()
    }
}

impl WriteTurn<'_> {
    /// Returns `true` if the removal should commit now. `waited_for` returns `true` while a thread
    /// waits for the handle.
    pub(super) fn is_over(&self, waited_for: &dyn Fn() -> bool) -> bool {
        let time = self.began.elapsed();
        !self.in_callers && (time >= LONGEST || time >= SHORTEST && self.others_wait(waited_for))
    }

    /// Returns `true` if the removal should list no more keys.
    pub(super) fn list_is_over(&self, waited_for: &dyn Fn() -> bool) -> bool {
        self.began.elapsed() >= LONGEST_LIST || self.is_over(waited_for)
    }

    /// Returns `true` if a thread waits for the handle, or if another connection has begun to wait
    /// since the turn began. Returns `false` if the removal cannot commit for them.
    pub(super) fn others_wait(&self, waited_for: &dyn Fn() -> bool) -> bool {
        !self.in_callers && (waited_for() || self.busy.waits_of_others() != self.waits)
    }
}

//! The optional cleaner: a thread that purges at intervals. It is the only thread that the library
//! ever starts, and only on request.
//!
//! It purges through a connection of its own, so it never takes part in a transaction of the store
//! handle. For a store in a file it works only while it holds the lock of the handle. A write
//! through the handle therefore waits until the cleaner releases the lock, which it does some
//! milliseconds after another thread has begun to wait, instead of failing for a busy lock. On a
//! server several clients can write at the same time; there only the begin of a transaction waits.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Store;
use super::purge::CleanerList;
use crate::backend::Db;
use crate::config::JournalMode;
use crate::error::{Error, Result};
use crate::hint::Hint;
use crate::session::worker::{Running, Stop, Worker};
use crate::session::{Session, read_only};

/// Length of the pause that the cleaner makes after it has removed some keys, if other threads wait
/// for the lock of the store handle. They can take the lock during the pause. The cleaner repeats
/// the pause until no thread waits.
const TURN: Duration = Duration::from_micros(100);

/// Starts the cleaner of the store handle `session`: a thread that every `interval` removes up to
/// `max_keys` expired keys (`None`: all). The thread ends when it is stopped, or when the store is
/// closed or dropped.
pub(super) fn start(session: &Arc<Session>, interval: Duration, max_keys: Option<u64>) -> Result<Running> {
    let path = session.with(|db| {
        db.path().ok_or_else(|| {
            Error::invalid("a store in memory has no file that a cleaner could open")
                .with_hint(Hint::PurgeYourself)
        })
    })?;
    if session.config.file.exclusive && session.file.is_some() {
        return Err(Error::busy(
            "the store is open exclusively, so that the cleaner cannot open the file, too",
        )
        .with_hint(Hint::PurgeYourself));
    }
    // No automatic checkpoints: `clean` runs them without holding the handle's lock.
    let config = session.config_now()?.busy_timeout(Duration::ZERO).checkpoint_every(u32::MAX);
    let own = Store::open_beside(session, &path, &config)?;
    if config.file.journal_mode == JournalMode::Wal {
        // The first search of all families takes longest. Here, no call on the handle waits for it.
        // (Not in DELETE mode, in which a reader blocks commits.) A failure is ignored: the first
        // round would fail in the same way.
        let _ = own.next_expiry_all_families();
    }
    let weak = Arc::downgrade(session);
    let worker = Worker::start("kvstore-cleaner", move |told| {
        while !told.wait(interval) && clean(&weak, &own, told, max_keys) {}
        // Dropping `own` closes its connection.
    })?;
    Ok(Running { worker, interval, max_keys })
}

/// Runs one round of the cleaner: removes expired keys in steps ([`Store::cleaner_step`]) until
/// none is left or `max_keys` were removed (`None`: no maximum). `session` is the handle that
/// started the cleaner, `own` the cleaner's own connection. Returns `false` if the handle is
/// closed, so that the cleaner ends. A failure, usually because of a busy lock, ends the round; the
/// next round tries again.
fn clean(session: &Weak<Session>, own: &Store, stop: &Stop, max_keys: Option<u64>) -> bool {
    let mut left = max_keys.unwrap_or(u64::MAX);
    // Number of families examined since the last removal. While other connections commit all the
    // time, no step can examine all families. A round ends when its steps together have examined
    // each family.
    let mut looked_at = 0;
    let mut found = CleanerList::default();
    while left > 0 && !stop.is_asked() {
        let Some(session) = session.upgrade() else { return false };
        own.session().pause_before_step(&|| !stop.is_asked());
        match session
            .while_idle(|| own.cleaner_step(left, &mut found, &|| session.is_waited_for() || stop.is_asked()))
        {
            Ok(Some(turn)) => {
                session.counters.ttl_purged.add(turn.deleted);
                left -= turn.deleted.min(left);
                looked_at = if turn.deleted == 0 { looked_at + turn.looked_at } else { 0 };
                if turn.done || turn.deleted == 0 && looked_at >= turn.known {
                    break;
                }
            }
            Ok(None) | Err(_) => return !session.is_closed(),
        }
        own.checkpoint_if_grown();
        // Without the pause, the cleaner would take the lock again before the waiting threads get
        // it.
        while session.is_waited_for() && !stop.wait(TURN) {}
    }
    true
}

impl Store {
    /// Starts the cleaner: a background thread that every `interval` removes up to `max_keys`
    /// expired keys of all families. `None` means no maximum.
    ///
    /// It uses a connection of its own. A call on this handle waits for it for some milliseconds at
    /// most; on a server, only the begin of a transaction waits. While a transaction is open on this
    /// handle, the cleaner does nothing. A round that fails is tried again at the next interval. [`stop_cleaner`](Store::stop_cleaner) or [`close`](Store::close)
    /// ends the thread.
    ///
    /// # Errors
    /// - [`Error`](crate::ErrorKind::Error): the cleaner is running, `interval` is zero, or the
    ///   store is in memory.
    /// - [`Busy`](crate::ErrorKind::Busy): the store is [exclusive](crate::Config::exclusive).
    /// - [`ReadOnly`](crate::ErrorKind::ReadOnly): the handle is read-only.
    /// - [`Io`](crate::ErrorKind::Io), also if the store is no longer at the path it was opened by.
    /// - `CantOpen`, `NoMemory`, `Misuse`.
    pub fn start_cleaner(&self, interval: Duration, max_keys: Option<u64>) -> Result<()> {
        let session = self.session();
        if interval.is_zero() {
            return session
                .count_failure(Err(Error::invalid("the interval of the cleaner is 0: give a longer one")));
        }
        session.with(Db::check)?;
        if session.config.read_only {
            return session.count_failure(Err(read_only()));
        }
        let mut running = session.cleaner();
        session.count_failure(session.check_open())?;
        if running.is_some() {
            return session.count_failure(Err(
                Error::invalid("the cleaner is already running").with_hint(Hint::StopCleaner)
            ));
        }
        *running = Some(start(session, interval, max_keys)?);
        Ok(())
    }

    /// Stops the cleaner, and returns when its thread has ended. If no cleaner is running, it does
    /// nothing.
    ///
    /// # Errors
    /// [`Misuse`](crate::ErrorKind::Misuse) if the handle is closed.
    pub fn stop_cleaner(&self) -> Result<()> {
        let session = self.session();
        session.with(Db::check)?;
        let cleaner = session.cleaner().take();
        if let Some(cleaner) = cleaner {
            cleaner.worker.stop();
        }
        Ok(())
    }
}

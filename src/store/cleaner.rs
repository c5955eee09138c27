//! The optional cleaner: a thread that purges from time to time. The only thread the library ever makes,
//! and only when asked to.
//!
//! It purges through a connection of its own, so that no transaction of the store's handle is touched. In a file only while
//! it holds the handle's lock, so that a write through the handle waits for one turn of it (a
//! millisecond of looking, then at most 256 keys) instead of failing for a busy lock; on a server, where others may write at
//! the same time, only a transaction waits that begins.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Store;
use crate::config::JournalMode;
use crate::error::{Error, Result};
use crate::shared::worker::{Running, Stop, Worker};
use crate::shared::{Shared, read_only};

/// How long to wait for others to take their turn, before looking again whether they have.
const TURN: Duration = Duration::from_micros(100);

/// Starts the thread. It ends when it is told to, or when the store is closed or gone.
pub(super) fn start(shared: &Arc<Shared>, interval: Duration, max_keys: Option<u64>) -> Result<Running> {
    let path = shared.with(|db| {
        db.path().ok_or_else(|| {
            Error::invalid("a store in memory has no file a cleaner could open: call purge_step instead")
        })
    })?;
    // Checkpoints are made outside the handle's lock, see `clean`.
    let config = shared.config_now()?.busy_timeout(Duration::ZERO).checkpoint_every(u32::MAX);
    let own = Store::open_beside(shared, &path, &config)?;
    if config.file.journal_mode == JournalMode::Wal {
        // Its first look at all families takes longest, and here nobody waits for it. (In DELETE mode who reads
        // stands in the way of commits.) What fails now, fails again when it counts.
        let _ = own.next_expiry_all_families();
    }
    let weak = Arc::downgrade(shared);
    let worker = Worker::start("kvstore-cleaner", move |told| {
        while !told.wait(interval) && clean(&weak, &own, told, max_keys) {}
        // Dropping `own` closes its connection.
    })?;
    Ok(Running { worker, interval, max_keys })
}

/// One round; says whether the store is still open. What fails now (a busy lock, mostly) is tried again
/// in the next round.
fn clean(shared: &Weak<Shared>, own: &Store, stop: &Stop, max_keys: Option<u64>) -> bool {
    let mut left = max_keys.unwrap_or(u64::MAX);
    // Families looked at since something was removed. When others commit all the time, no turn ever sees all
    // families as they are at one moment: a round ends when it has seen each of them at some moment.
    let mut looked_at = 0;
    while left > 0 && !stop.is_asked() {
        let Some(shared) = shared.upgrade() else { return false };
        match shared.while_idle(|| own.cleaners_turn(left)) {
            Ok(Some(turn)) => {
                shared.counters.ttl_purged.add(turn.deleted);
                left -= turn.deleted.min(left);
                looked_at = if turn.deleted == 0 { looked_at + turn.looked_at } else { 0 };
                if turn.done || turn.deleted == 0 && looked_at >= turn.known {
                    break;
                }
            }
            Ok(None) | Err(_) => return !shared.is_closed(),
        }
        own.checkpoint_if_grown();
        // A lock that is let go and taken again at once starves those who wait for it.
        while shared.is_waited_for() && !stop.wait(TURN) {}
    }
    true
}

impl Store {
    /// Starts the cleaner: a thread that removes expired keys of all families every `interval`, at most
    /// `max_keys` each time (`None`: all), with a connection of its own. A write through this handle waits
    /// for it at most as long as one step of 256 keys takes (on a server only the begin of a transaction does); while a transaction is open on this handle
    /// the cleaner does nothing. [`close`](Store::close) stops it.
    ///
    /// # Errors
    /// `Error` if it is running already, if `interval` is zero, and for a store in memory;
    /// [`ReadOnly`](crate::ErrorKind::ReadOnly); what opening the second connection reports, which for an
    /// [exclusive](crate::Config::exclusive) store is [`Busy`](crate::ErrorKind::Busy).
    pub fn start_cleaner(&self, interval: Duration, max_keys: Option<u64>) -> Result<()> {
        let shared = self.shared();
        if interval.is_zero() {
            return shared.count_failure(Err(Error::invalid("a cleaner's interval must be longer than 0")));
        }
        if shared.with(|db| Ok(db.is_read_only()))? {
            return shared.count_failure(Err(read_only()));
        }
        let mut running = shared.cleaner();
        shared.count_failure(shared.check_open())?;
        if running.is_some() {
            return shared
                .count_failure(Err(Error::invalid("the cleaner is running already: stop it first")));
        }
        *running = Some(start(shared, interval, max_keys)?);
        Ok(())
    }

    /// Stops the cleaner and waits until it has ended. Nothing happens if none is running.
    ///
    /// # Errors
    /// Only those of a closed handle.
    pub fn stop_cleaner(&self) -> Result<()> {
        let shared = self.shared();
        shared.with(|_| Ok(()))?;
        let cleaner = shared.cleaner().take();
        if let Some(cleaner) = cleaner {
            cleaner.worker.stop();
        }
        Ok(())
    }
}

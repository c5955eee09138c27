//! Wait of SQLite for locks that other connections hold.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rusqlite::{Connection, ffi};

use super::wal_index::WalIndex;
use crate::wait;

/// Number of attempts to take a lock after which the pause between two attempts doubles.
const SAME_PAUSES: u32 = 8;
/// Pause of a connection between two attempts to take a lock, in milliseconds, for the first
/// [`SAME_PAUSES`] attempts.
///
/// It is short, and grows slowly, for a writer to find the lock free while a purge of another
/// connection pauses for it (`write_turn.rs`).
const FIRST_PAUSE: u64 = 1;
/// Longest pause between two attempts to take a lock, in milliseconds.
const LONGEST_PAUSE: u64 = 16;

/// Busy handler of a connection: how long it waits for a lock, and where it shows others that it
/// does.
///
/// SQLite keeps the address of the state, so the handler must be dropped after the connection.
#[derive(Default)]
pub(in crate::backend::file) struct BusyHandler(Arc<State>);

#[derive(Default)]
struct State {
    /// Maximum time of a wait, in milliseconds.
    max_ms: AtomicU64,
    /// Wal-index in which waits are counted; not set if no other connection can see it.
    index: OnceLock<WalIndex>,
    /// Number of waits of this connection in that wal-index.
    own: AtomicU32,
}

impl BusyHandler {
    /// Counts the waits of this connection in a wal-index, in which [`WalIndex::waits`] of all
    /// connections finds them. The connection of the wal-index is the one of this handler, and not
    /// read-only.
    pub(in crate::backend::file) fn count_waits_in(&self, index: WalIndex) {
        let _ = self.0.index.set(index); // the first one stays: it is of the same connection
    }

    /// Returns the wal-index in which waits are counted; `None` if they are not counted.
    pub(in crate::backend::file) fn index(&self) -> Option<&WalIndex> {
        self.0.index.get()
    }

    /// Returns a counter that advances when another connection of this library begins to wait for a
    /// lock of the file; `None` if that cannot be seen.
    pub(in crate::backend::file) fn waits_of_others(&self) -> Option<u32> {
        self.index().map(|index| index.waits().wrapping_sub(self.0.own.load(Ordering::Relaxed)))
    }

    /// Sets the maximum time that the connection waits for a lock of another connection. The
    /// connection is always the same one.
    pub(in crate::backend::file) fn set_timeout(
        &self,
        conn: &Connection,
        time: Duration,
    ) -> rusqlite::Result<()> {
        if time.is_zero() {
            return conn.busy_timeout(time);
        }
        self.0.max_ms.store(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        let state = Arc::as_ptr(&self.0).cast_mut().cast::<c_void>();
        // SAFETY: the connection is open and used by this thread only. The state lives longer than
        // the connection, as the documentation of the type requires.
        match unsafe { ffi::sqlite3_busy_handler(conn.handle(), Some(wait_for_lock), state) } {
            ffi::SQLITE_OK => Ok(()),
            code => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)),
        }
    }
}

/// Busy handler of SQLite: sleeps before the next attempt to take a lock. `state` is the address of
/// a [`State`], and `tries` the number of earlier calls for this lock. Returns 0 if the time is over
/// or the wait hook ends the wait: SQLite then gives up.
unsafe extern "C" fn wait_for_lock(state: *mut c_void, tries: c_int) -> c_int {
    // SAFETY: `set_timeout` has passed the address of a state that lives longer than the
    // connection.
    let Some(state) = (unsafe { state.cast::<State>().as_ref() }) else { return 0 };
    if let Some(index) = state.index.get() {
        index.note_wait();
        state.own.fetch_add(1, Ordering::Relaxed);
    }
    let tries = u32::try_from(tries).unwrap_or(0);
    let left = state.max_ms.load(Ordering::Relaxed).saturating_sub(waited(tries));
    let pause = pause(tries).min(left);
    c_int::from(pause > 0 && wait::pause(Duration::from_millis(pause)))
}

/// Returns the pause after attempt number `attempt` (from 0), in milliseconds.
fn pause(attempt: u32) -> u64 {
    (FIRST_PAUSE << (attempt / SAME_PAUSES).min(u64::BITS / 2)).min(LONGEST_PAUSE)
}

/// Returns the time that the first `tries` pauses of the busy handler take together, in
/// milliseconds.
fn waited(tries: u32) -> u64 {
    let growing = SAME_PAUSES * (LONGEST_PAUSE / FIRST_PAUSE).ilog2();
    let of_growing: u64 = (0..tries.min(growing)).map(pause).sum();
    of_growing + u64::from(tries.saturating_sub(growing)) * LONGEST_PAUSE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_and_add_up() {
        assert_eq!([0, 7, 8, 16, 24, 32, 1_000_000].map(pause), [1, 1, 2, 4, 8, 16, 16]);
        assert_eq!([0, 1, 8, 9, 32, 33].map(waited), [0, 1, 8, 10, 120, 136]);
    }
}

//! Wait of SQLite for locks that other connections hold.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use rusqlite::{Connection, ffi};

use crate::wait;

/// Pauses of a connection between two attempts to take a lock of SQLite, in milliseconds, as in
/// SQLite's own busy handler. The last pause is repeated.
const PAUSES: [u64; 12] = [1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50, 100];

/// Sets the maximum time that a connection waits for a lock of another connection.
///
/// Without a wait hook this sets SQLite's busy timeout. With a wait hook it installs a busy handler
/// with the same pauses, which ends early when the hook requests it.
pub(in crate::backend::file) fn set_busy_timeout(conn: &Connection, time: Duration) -> rusqlite::Result<()> {
    conn.busy_timeout(time)?;
    if time.is_zero() || !wait::has_hook() {
        return Ok(());
    }
    let milliseconds = usize::try_from(time.as_millis()).unwrap_or(usize::MAX);
    let time = std::ptr::without_provenance_mut::<c_void>(milliseconds);
    // SAFETY: the connection is open and used by this thread only. The handler reads no memory
    // through its argument.
    match unsafe { ffi::sqlite3_busy_handler(conn.handle(), Some(wait_for_lock), time) } {
        ffi::SQLITE_OK => Ok(()),
        code => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)),
    }
}

/// Busy handler of SQLite: sleeps before the next attempt to take a lock. `time` is not an address
/// but the maximum wait in milliseconds, and `tries` the number of earlier calls for this lock.
/// Returns 0 if the time is over or the wait hook ends the wait: SQLite then gives up.
unsafe extern "C" fn wait_for_lock(time: *mut c_void, tries: c_int) -> c_int {
    let tries = usize::try_from(tries).unwrap_or(0);
    let left = u64::try_from(time.addr()).unwrap_or(u64::MAX).saturating_sub(waited(tries));
    let pause = PAUSES.get(tries).or(PAUSES.last()).copied().unwrap_or(1).min(left);
    c_int::from(pause > 0 && wait::pause(Duration::from_millis(pause)))
}

/// Returns the time that the first `tries` pauses of the busy handler take together, in
/// milliseconds.
fn waited(tries: usize) -> u64 {
    let listed: u64 = PAUSES.iter().take(tries).sum();
    let repeated = u64::try_from(tries.saturating_sub(PAUSES.len())).unwrap_or(u64::MAX);
    listed.saturating_add(repeated.saturating_mul(PAUSES.last().copied().unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waited_sums_the_pauses_of_all_tries() {
        assert_eq!([0, 1, 2, 12, 13].map(waited), [0, 1, 3, 328, 428]);
    }
}

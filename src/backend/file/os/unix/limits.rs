//! Writes beyond a limit of the process or of its user. They fail, and the process continues.
//!
//! If a write begins at or beyond the process's limit on the size of a file (`RLIMIT_FSIZE`,
//! `ulimit -f`), the kernel returns `EFBIG` and sends the signal SIGXFSZ. The signal terminates a
//! program that does not ignore it. So such a write is made with the signal blocked in this thread,
//! and the pending signal is then removed. The program's own handling of the signal does not
//! change.
//!
//! Querying the limit takes a system call, which costs a tenth of a write. So the limit is queried
//! once per tick of the coarse clock (at most 10 ms). If a program lowers its limit below the
//! length of an open file and writes before the next tick, it receives the signal.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use super::clock::coarse_ms;
use super::original_calls::{errno, set_errno};
use crate::atomic::AtomicU64;
use crate::backend::file::os::refusal::{self, Refusal};

/// The process's limit on the size of a file, in bytes, when it was last queried; `u64::MAX` if
/// there is none. A write beyond it may raise the signal SIGXFSZ.
static LIMIT: AtomicU64 = AtomicU64::new(0);
/// Time of the last query of `LIMIT` (`coarse_ms`), plus one; 0 before the first query.
static ASKED: AtomicU64 = AtomicU64::new(0);

/// Returns the process's limit on the size of a file, in bytes; `None` if there is none. Each call
/// queries the limit.
pub(in crate::backend::file) fn file_size_limit() -> Option<u64> {
    Some(query()).filter(|limit| *limit != u64::MAX)
}

/// Returns the process's limit on the size of a file, in bytes, as of the last tick of the coarse
/// clock; `u64::MAX` if there is none.
#[inline]
fn limit() -> u64 {
    let tick = coarse_ms().wrapping_add(1);
    if ASKED.load(Ordering::Acquire) != tick {
        ask(tick);
    }
    LIMIT.load(Ordering::Relaxed)
}

/// Queries the limit, and stores it in `LIMIT` with the time `tick` of the query.
#[cold]
fn ask(tick: u64) {
    LIMIT.store(query(), Ordering::Relaxed);
    ASKED.store(tick, Ordering::Release);
}

/// Queries the process's limit on the size of a file, in bytes; `u64::MAX` if there is none.
fn query() -> u64 {
    let mut found = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct may be written.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut found) } == 0;
    if known && found.rlim_cur != libc::RLIM_INFINITY { found.rlim_cur as u64 } else { u64::MAX }
}

/// Runs `write`, a system call that writes up to the offset `end` or truncates a file to that
/// length. If `end` is beyond the process's limit, blocks the signal SIGXFSZ during the call.
/// Returns the result of `write`; a negative one means failure. If the cause is a lack of space or
/// a limit, records it (`refusal.rs`), and sets `errno` to ENOSPC, which SQLite treats as a full
/// disk.
#[inline]
pub(super) fn written<R: PartialOrd + Default + Copy>(end: u64, write: impl FnOnce() -> R) -> R {
    let done = with_signal_blocked_beyond(end, write);
    if done < R::default() {
        name_the_refusal();
    }
    done
}

/// Runs `write`, a system call that uses a file up to the offset `end`. If `end` is beyond the
/// process's limit, blocks the signal SIGXFSZ during the call.
#[inline]
pub(super) fn with_signal_blocked_beyond<R>(end: u64, write: impl FnOnce() -> R) -> R {
    if end > limit() { without_signal(write) } else { write() }
}

/// Runs `write`, a system call that writes to a file, so that the signal SIGXFSZ does not end the
/// process. The offset is not known, so the signal is blocked whenever the process has a limit on
/// the size of files.
pub(super) fn written_somewhere<R: PartialOrd + Default + Copy>(write: impl FnOnce() -> R) -> R {
    written(if limit() == u64::MAX { 0 } else { u64::MAX }, write)
}

/// If `errno` means a lack of space or a limit, records this cause and sets `errno` to ENOSPC.
#[cold]
fn name_the_refusal() {
    let refused = match errno() {
        libc::EFBIG => Some(Refusal::FileSize),
        errno => Refusal::for_space(&std::io::Error::from_raw_os_error(errno)),
    };
    let Some(refused) = refused else { return };
    refusal::note(refused);
    // SQLite recognises no other error for a disk without space.
    set_errno(libc::ENOSPC);
}

/// Runs `write` with SIGXFSZ blocked in this thread, and removes the signal if `write` has raised
/// it. Afterwards `errno` is as `write` has set it.
#[cold]
pub(in crate::backend::file) fn without_signal<R>(write: impl FnOnce() -> R) -> R {
    // SAFETY: the sets belong to this thread, and the C library fills them before they are read.
    unsafe {
        let mut signal: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut signal);
        libc::sigaddset(&raw mut signal, libc::SIGXFSZ);
        let was_pending = is_pending();
        if libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signal, &raw mut before) != 0 {
            return write();
        }
        let done = write();
        let errno = errno();
        if !was_pending && is_pending() {
            let mut taken = 0;
            libc::sigwait(&raw const signal, &raw mut taken);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        set_errno(errno);
        done
    }
}

/// Returns `true` if SIGXFSZ is pending for this thread or for the process.
fn is_pending() -> bool {
    // SAFETY: the set belongs to this thread, and the C library fills it before it is read.
    unsafe {
        let mut pending: libc::sigset_t = std::mem::zeroed();
        libc::sigpending(&raw mut pending) == 0
            && libc::sigismember(&raw const pending, libc::SIGXFSZ) as c_int == 1
    }
}

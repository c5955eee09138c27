//! Blocks signals in the library's threads, so that the program's threads receive them.

use std::ptr;

/// Signals that the kernel sends to the thread that has caused them. If they were blocked, they
/// would terminate the process without calling the program's handler, or would not stop it at the
/// faulty instruction.
const SYNCHRONOUS: [libc::c_int; 7] =
    [libc::SIGABRT, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGSYS, libc::SIGTRAP];

/// Calls `start`, which starts a thread, while all signals except [`SYNCHRONOUS`] are blocked in
/// the calling thread. The new thread inherits the blocked signals.
pub(crate) fn start_thread<R>(start: impl FnOnce() -> R) -> R {
    let mut before = None;
    // SAFETY: the sets belong to this thread, and the C library fills them before they are read.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        for signal in SYNCHRONOUS {
            libc::sigdelset(&raw mut all, signal);
        }
        if libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old) == 0 {
            before = Some(old);
        }
    }
    let result = start();
    if let Some(before) = before {
        // SAFETY: this is the set that the thread had before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    }
    result
}

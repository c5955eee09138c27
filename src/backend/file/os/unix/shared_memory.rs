//! Extension of the shared memory of a WAL, faster than by SQLite itself.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::Ordering;

use super::descriptors::{SHARED_MEMORY, slot};
use super::limits;
use super::status::Status;
use crate::backend::file::os::zeros::zeros;

thread_local!(
    /// Length, in bytes, to which this thread is extending a shared memory file; 0 if it is not
    /// extending one.
    static LENGTH: Cell<i64> = const { Cell::new(0) }
);

/// Runs `f`, a call of SQLite's VFS that extends a shared memory file to `length` bytes, and makes
/// this extension faster (`make_longer`). `length` 0 means that `f` does not extend the file.
/// Returns the result of `f`.
pub(in crate::backend::file::os) fn making_longer<R>(length: i64, f: impl FnOnce() -> R) -> R {
    LENGTH.set(length);
    let done = f();
    LENGTH.set(0);
    done
}

/// If `fd` is a shared memory file that this thread is extending, extends it to the length given to
/// `making_longer`. The replaced `fstat` calls this, because SQLite calls `fstat` immediately
/// before it extends shared memory.
///
/// SQLite itself writes a byte into each page, with one call per page, to reserve disk space. The
/// larger writes of this function take a third of that time. If a write fails, SQLite tries to
/// extend the file itself, and reports the error.
pub(super) fn make_longer(fd: c_int) {
    let wanted = LENGTH.get();
    let is_shared_memory =
        |fd| slot(fd).is_some_and(|slot| slot.flags.load(Ordering::Relaxed) & SHARED_MEMORY != 0);
    if wanted == 0 || !is_shared_memory(fd) {
        return;
    }
    let Ok(Status { length: mut at, .. }) = Status::of(fd) else { return };
    while at < wanted {
        let part = zeros(wanted - at);
        // SAFETY: the file is open, and the buffer has the given length.
        let written = limits::written(at as u64 + part.len() as u64, || unsafe {
            libc::pwrite(fd, part.as_ptr().cast(), part.len(), at as _)
        });
        match i64::try_from(written) {
            Ok(written) if written > 0 => at += written,
            _ => return,
        }
    }
}

//! System time of a 32-bit Linux, also after 2038.
//!
//! There, Rust's `SystemTime::now` asks the libc for seconds in 32 bits, and panics from 19 January
//! 2038 on: with musl (`compat/time32/clock_gettime32.c` of musl 1.2), and with a glibc older than
//! 2.34. From then on this module asks the kernel for 64 bits, which it offers since Linux 5.1.

#![allow(unsafe_code)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) fn now() -> SystemTime {
    // On a kernel that offers only 32-bit seconds, std decides what to do.
    in_32_bits().or_else(in_64_bits).unwrap_or_else(SystemTime::now)
}

/// Returns the system time from the libc function with 32-bit seconds, which is fast because the
/// vDSO answers it. Returns `None` if the time does not fit into 32 bits.
///
/// A glibc before 2.31 reports no error for such a time. It returns the truncated seconds, as the
/// kernel does: a time before 1970.
fn in_32_bits() -> Option<SystemTime> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for a write of the answer.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) } != 0;
    if failed { None } else { that_fits(time.tv_sec.into(), time.tv_nsec.into()) }
}

fn that_fits(seconds: i64, nanoseconds: i64) -> Option<SystemTime> {
    if seconds < 0 { None } else { from_1970(seconds, nanoseconds) }
}

/// System call number of `clock_gettime64`. It is 403 on all 32-bit architectures
/// (asm-generic/unistd.h), and 4000 more on MIPS. The libc crate defines it for a few of them only.
const CLOCK_GETTIME64: libc::c_long =
    if cfg!(any(target_arch = "mips", target_arch = "mips32r6")) { 4403 } else { 403 };

/// `struct __kernel_timespec` of Linux, with 64-bit fields.
#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

/// Returns the system time from the system call with 64-bit seconds; `None` if the kernel is older
/// than Linux 5.1.
#[allow(clippy::disallowed_methods, reason = "not on Android")]
fn in_64_bits() -> Option<SystemTime> {
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the call takes a clock id and a pointer that is valid for a write of the answer.
    let failed = unsafe { libc::syscall(CLOCK_GETTIME64, libc::CLOCK_REALTIME, &raw mut time) } != 0;
    if failed { None } else { from_1970(time.seconds, time.nanoseconds) }
}

fn from_1970(seconds: i64, nanoseconds: i64) -> Option<SystemTime> {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let at = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    at?.checked_add(Duration::from_nanos(nanoseconds.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_with_32_and_64_bit_seconds_agree() {
        let (before, narrow, wide, after) =
            (SystemTime::now(), in_32_bits().unwrap(), in_64_bits().unwrap(), SystemTime::now());
        assert!(
            before <= narrow && narrow <= wide && wide <= after,
            "{before:?} {narrow:?} {wide:?} {after:?}"
        );
    }

    #[test]
    fn time_truncated_to_32_bits_is_rejected() {
        assert_eq!(that_fits((2_215_694_400_i64 as i32).into(), 0), None);
        assert_eq!(that_fits(0, 5), Some(UNIX_EPOCH + Duration::from_nanos(5)));
    }

    #[test]
    fn times_before_and_after_1970_are_converted() {
        assert_eq!(from_1970(4_000_000_000, 7), Some(UNIX_EPOCH + Duration::new(4_000_000_000, 7)));
        assert_eq!(from_1970(-2, 500_000_000), Some(UNIX_EPOCH - Duration::from_millis(1500)));
    }
}

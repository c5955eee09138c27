//! A clock that is cheap to read.

/// Returns a monotonic time in milliseconds. On Linux it is the time of the last tick of the system
/// clock: up to 10 ms old, at a quarter of the cost of the exact time.
#[inline]
pub(in crate::backend::file) fn coarse_ms() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC_COARSE;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the struct may be written. A system without this clock leaves it as it is.
    unsafe { libc::clock_gettime(CLOCK, &raw mut now) };
    (now.tv_sec as u64).wrapping_mul(1000).wrapping_add(now.tv_nsec as u64 / 1_000_000)
}

//! A coarse and cheap clock, for the one call that tests every row (`kvstore_iterator_next`). `clock.rs` has the exact
//! time, and documents how the coarse one may be used.

/// Returns `true` if the coarse clock shows with certainty that `time_ms`, in milliseconds since
/// the Unix epoch, is in the future. After `false`, the caller must compare `time_ms` with the
/// exact time.
#[inline]
pub(super) fn is_far_off(time_ms: i64) -> bool {
    now_ms().is_some_and(|coarse_ms| crate::is_far_off(time_ms, coarse_ms))
}

/// Returns the system time at the last kernel tick, in milliseconds since the Unix epoch; `None` if
/// the system has no coarse clock.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[inline]
fn now_ms() -> Option<i64> {
    // SAFETY: a timespec is two integers, for which zeros are valid.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: the clock exists since Linux 2.6.32; `time` receives the answer.
    if unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut time) } != 0 {
        return None;
    }
    #[allow(clippy::useless_conversion)]
    // narrower on 32-bit systems; negative when it overflows
    i64::from(time.tv_sec).checked_mul(1000).filter(|coarse_ms| *coarse_ms >= 0)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn now_ms() -> Option<i64> {
    None
}

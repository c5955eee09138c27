//! A look at the clock that takes next to nothing, for the one call that needs it for every row. The exact time is
//! that of `clock.rs`, which also says how this one may be used.

/// Whether a moment is so far off that a coarse look at the system's clock shows it; `false`: read the exact time.
#[inline]
pub(super) fn is_far_off(time_ms: i64) -> bool {
    now_ms().is_some_and(|coarse_ms| crate::is_far_off(time_ms, coarse_ms))
}

/// The system's time when the kernel last noted it; `None`: there is no such clock here.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[inline]
fn now_ms() -> Option<i64> {
    // SAFETY: a timespec is two integers, for which zeros are valid.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: a clock that Linux has had since 2.6.32, and a place for the answer.
    if unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut time) } != 0 {
        return None;
    }
    #[allow(clippy::useless_conversion)]
    // narrower on 32-bit systems, where it is before 1970 when it does not fit
    i64::from(time.tv_sec).checked_mul(1000).filter(|coarse_ms| *coarse_ms >= 0)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn now_ms() -> Option<i64> {
    None
}

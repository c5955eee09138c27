//! Arithmetic of TTLs and expiry times. It uses no clock: the current time is always an argument.
//!
//! An expiry time is a point in time, in milliseconds since the Unix epoch. A TTL is a duration. A
//! key is expired from its expiry time on: `expire_ms <= now`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};

/// Expiry time of a key, or `Never`.
///
/// `Expiry` is ordered: [`Never`](Expiry::Never) is later than every time.
/// [`Family::expiry_after`](crate::Family::expiry_after) converts a TTL into an expiry time by the
/// clock of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Expiry {
    /// The key expires at this time, in milliseconds since the Unix epoch; greater than 0. A time
    /// in the past is allowed: the key is then expired at once.
    At(i64),
    /// The key never expires.
    Never,
}

impl Expiry {
    /// Converts an expiry time from the C API, in which 0 means never.
    ///
    /// # Errors
    /// [`Error`](crate::ErrorKind::Error) if `expire_ms` is negative.
    pub fn from_millis(expire_ms: i64) -> Result<Expiry> {
        match expire_ms {
            0 => Ok(Expiry::Never),
            1.. => Ok(Expiry::At(expire_ms)),
            _ => Err(Error::invalid(format!(
                "the expiry time {expire_ms} is negative: give milliseconds since 1970"
            ))),
        }
    }

    /// Converts an expiry time as stored in a row, in which `None` means never.
    pub(crate) fn of_row(expire_ms: Option<i64>) -> Expiry {
        expire_ms.map_or(Expiry::Never, Expiry::At)
    }

    /// Returns `true` if a key with this expiry time is live at `now_ms`.
    pub(crate) fn is_live(self, now_ms: i64) -> bool {
        self.millis().is_none_or(|expire_ms| !is_expired(expire_ms, now_ms))
    }

    /// Fails with `Error` if the expiry time is 0 or negative.
    pub(crate) fn check(self) -> Result<()> {
        match self {
            Expiry::At(expire_ms @ ..=0) => Err(Error::invalid(format!(
                "the expiry time {expire_ms} is not greater than 0: give milliseconds since 1970"
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the expiry time in milliseconds since the Unix epoch; `None` for a key that never
    /// expires.
    #[must_use]
    pub fn millis(self) -> Option<i64> {
        match self {
            Expiry::At(ms) => Some(ms),
            Expiry::Never => None,
        }
    }
}

/// Converts a system time to an expiry time. Fractions of a millisecond are rounded up. A time
/// before 1970 becomes 1 ms after the Unix epoch. A time beyond the range of `i64` milliseconds
/// becomes the last one in the range.
impl From<SystemTime> for Expiry {
    fn from(at: SystemTime) -> Expiry {
        let ms = at.duration_since(UNIX_EPOCH).map_or(1, millis_rounded_up);
        Expiry::At(ms.max(1))
    }
}

/// Remaining TTL of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ttl {
    /// The key never expires.
    None,
    /// The key expires after this duration; it is zero if the key has expired.
    Remaining(Duration),
}

/// Returns `true` if a row with this `expire_ms` is expired at `now_ms`.
pub(crate) fn is_expired(expire_ms: i64, now_ms: i64) -> bool {
    expire_ms <= now_ms
}

/// Returns the expiry time for a TTL that starts at `now_ms`. Fractions of a millisecond are
/// rounded up, so that a key never expires early.
pub(crate) fn after(now_ms: i64, ttl: Duration) -> i64 {
    after_ms(now_ms, millis_rounded_up(ttl))
}

/// Returns the expiry time for a TTL in milliseconds that starts at `now_ms`.
pub(crate) fn after_ms(now_ms: i64, ttl_ms: i64) -> i64 {
    now_ms.saturating_add(ttl_ms).max(1)
}

/// Returns the number of milliseconds from `now_ms` until `expire_ms`; 0 if that time has passed.
pub(crate) fn remaining_ms(expire_ms: i64, now_ms: i64) -> i64 {
    expire_ms.saturating_sub(now_ms).max(0)
}

/// Maximum default TTL, in milliseconds: 20 years, as in Cassandra.
pub(crate) const MAX_DEFAULT_TTL_MS: i64 = 630_720_000_000;

/// Converts a default TTL to milliseconds; `None` becomes 0. Fails with `Error` if it is longer
/// than [`MAX_DEFAULT_TTL_MS`].
pub(crate) fn default_ttl_ms(ttl: Option<Duration>) -> Result<i64> {
    match ttl.map_or(0, millis_rounded_up) {
        ms @ 0..=MAX_DEFAULT_TTL_MS => Ok(ms),
        _ => Err(Error::invalid("the default TTL is longer than 20 years (630720000 seconds), the maximum")),
    }
}

/// Condition on the current expiry time of a key, under which
/// [`Family::set_expiry`](crate::Family::set_expiry) changes it.
///
/// For the comparison, the expiry time of a key that never expires is later than every time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ExpiryCondition {
    /// Changes the expiry time in every case.
    #[default]
    Always,
    /// Changes the expiry time only if the key never expires.
    NoTtl,
    /// Changes the expiry time only if the key has one.
    HasTtl,
    /// Changes the expiry time only if the new one is later than the current one.
    Later,
    /// Changes the expiry time only if the new one is earlier than the current one.
    Earlier,
}

impl ExpiryCondition {
    /// Returns `true` if the condition allows replacing the `old` expiry time by the `new` one.
    /// `None` means that the key never expires.
    pub(crate) fn holds(self, old: Option<i64>, new: Option<i64>) -> bool {
        let end = |expire_ms: Option<i64>| expire_ms.map_or((1, 0), |expire_ms| (0, expire_ms));
        match self {
            ExpiryCondition::Always => true,
            ExpiryCondition::NoTtl => old.is_none(),
            ExpiryCondition::HasTtl => old.is_some(),
            ExpiryCondition::Later => end(new) > end(old),
            ExpiryCondition::Earlier => end(new) < end(old),
        }
    }
}

/// Converts a duration to milliseconds. Fractions are rounded up.
pub(crate) fn millis_rounded_up(d: Duration) -> i64 {
    i64::try_from(d.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_expired_exactly_at_its_expiry_time() {
        assert!(!is_expired(1000, 999));
        assert!(is_expired(1000, 1000));
        assert!(is_expired(1000, 1001));
    }

    #[test]
    fn expiry_time_rounds_up_and_never_overflows() {
        assert_eq!(after(5, Duration::from_nanos(1)), 6);
        assert_eq!(after(5, Duration::from_micros(1500)), 7);
        assert_eq!(after(5, Duration::ZERO), 5);
        assert_eq!(after(0, Duration::ZERO), 1);
        assert_eq!(after(i64::MAX - 1, Duration::from_secs(9)), i64::MAX);
        assert_eq!(after(5, Duration::MAX), i64::MAX);
    }

    #[test]
    fn remaining_time_is_never_negative() {
        assert_eq!(remaining_ms(10, 3), 7);
        assert_eq!(remaining_ms(3, 10), 0);
        assert_eq!(remaining_ms(i64::MIN, i64::MAX), 0);
        assert_eq!(remaining_ms(i64::MAX, 0), i64::MAX);
    }

    #[test]
    fn c_milliseconds_are_validated() {
        assert_eq!(Expiry::from_millis(0), Ok(Expiry::Never));
        assert_eq!(Expiry::from_millis(7), Ok(Expiry::At(7)));
        assert!(Expiry::from_millis(-1).is_err());
        assert!(Expiry::from_millis(i64::MIN).is_err());
    }

    #[test]
    fn no_ttl_counts_as_later_than_any_moment() {
        for (condition, changes) in [
            (ExpiryCondition::Always, [true, true, true, true, true]),
            (ExpiryCondition::NoTtl, [false, false, false, true, true]),
            (ExpiryCondition::HasTtl, [true, true, true, false, false]),
            (ExpiryCondition::Later, [true, false, true, false, false]),
            (ExpiryCondition::Earlier, [false, false, false, true, false]),
        ] {
            let cases =
                [(Some(5), Some(6)), (Some(5), Some(5)), (Some(5), None), (None, Some(6)), (None, None)];
            assert_eq!(cases.map(|(old, new)| condition.holds(old, new)), changes, "{condition:?}");
        }
    }

    #[test]
    fn default_ttl_is_at_most_twenty_years() {
        assert_eq!(default_ttl_ms(None), Ok(0));
        assert_eq!(default_ttl_ms(Some(Duration::from_secs(630_720_000))), Ok(MAX_DEFAULT_TTL_MS));
        assert!(default_ttl_ms(Some(Duration::from_millis(630_720_000_001))).is_err());
        assert!(default_ttl_ms(Some(Duration::MAX)).is_err());
    }

    #[test]
    fn extreme_system_times_convert_to_expiry_times() {
        assert_eq!(Expiry::from(UNIX_EPOCH - Duration::from_secs(9)), Expiry::At(1));
        assert_eq!(Expiry::from(UNIX_EPOCH + Duration::from_millis(77)), Expiry::At(77));
    }
}

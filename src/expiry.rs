//! Arithmetic of expiry times. Knows no clock: `now` is always an argument.
//!
//! An expiry time is a moment, in milliseconds since the Unix epoch; a TTL is a duration. A key is
//! expired from its expiry time on: `expire_ms <= now`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};

/// When a key ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Expiry {
    /// At this moment, in milliseconds since the Unix epoch (greater than 0). A moment in the past
    /// is allowed: the key is invisible at once.
    At(i64),
    /// Never.
    Never,
}

impl Expiry {
    /// From the form used in C and in the file: `0` means never, a negative number is refused.
    ///
    /// # Errors
    /// `Error` if `expire_ms` is negative.
    pub fn from_millis(expire_ms: i64) -> Result<Expiry> {
        match expire_ms {
            0 => Ok(Expiry::Never),
            1.. => Ok(Expiry::At(expire_ms)),
            _ => Err(Error::invalid(format!(
                "expire_ms is {expire_ms}: pass milliseconds since 1970, or 0 for a key that never expires"
            ))),
        }
    }

    /// From the form in a row: `None` means never.
    pub(crate) fn of_row(expire_ms: Option<i64>) -> Expiry {
        expire_ms.map_or(Expiry::Never, Expiry::At)
    }

    /// Whether what ends then is alive at `now_ms`.
    pub(crate) fn is_live(self, now_ms: i64) -> bool {
        self.millis().is_none_or(|expire_ms| !is_expired(expire_ms, now_ms))
    }

    /// Refuses a moment that is not after 1970 began: it is surely a mistake.
    pub(crate) fn check(self) -> Result<()> {
        match self {
            Expiry::At(expire_ms @ ..=0) => Err(Error::invalid(format!(
                "an expiry time of {expire_ms} ms: times are milliseconds since 1970, and greater than 0"
            ))),
            _ => Ok(()),
        }
    }

    /// The moment in milliseconds since the Unix epoch, or `None` for never.
    #[must_use]
    pub fn millis(self) -> Option<i64> {
        match self {
            Expiry::At(ms) => Some(ms),
            Expiry::Never => None,
        }
    }
}

/// Moments before 1970 count as long past; moments too far for `i64` milliseconds as the last one.
impl From<SystemTime> for Expiry {
    fn from(at: SystemTime) -> Expiry {
        let ms = at.duration_since(UNIX_EPOCH).map_or(1, millis_rounded_up);
        Expiry::At(ms.max(1))
    }
}

/// What is left of a key's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ttl {
    /// The key never expires.
    None,
    /// The key expires in this time; zero when it has just expired.
    Remaining(Duration),
}

/// Whether a row with this `expire_ms` is dead at `now`.
pub(crate) fn is_expired(expire_ms: i64, now_ms: i64) -> bool {
    expire_ms <= now_ms
}

/// The moment a TTL that starts now ends. Fractions of a millisecond count up, so that a key never
/// dies early.
pub(crate) fn after(now_ms: i64, ttl: Duration) -> i64 {
    after_ms(now_ms, millis_rounded_up(ttl))
}

/// The same for a TTL in milliseconds.
pub(crate) fn after_ms(now_ms: i64, ttl_ms: i64) -> i64 {
    now_ms.saturating_add(ttl_ms).max(1)
}

/// Milliseconds left, 0 when expired.
pub(crate) fn remaining_ms(expire_ms: i64, now_ms: i64) -> i64 {
    expire_ms.saturating_sub(now_ms).max(0)
}

/// Longest default TTL: 20 years, as in Cassandra, in milliseconds.
pub(crate) const MAX_DEFAULT_TTL_MS: i64 = 630_720_000_000;

/// A default TTL in milliseconds; `None` is 0.
pub(crate) fn default_ttl_ms(ttl: Option<Duration>) -> Result<i64> {
    match ttl.map_or(0, millis_rounded_up) {
        ms @ 0..=MAX_DEFAULT_TTL_MS => Ok(ms),
        _ => Err(Error::invalid("a default TTL is at most 20 years (630720000 seconds)")),
    }
}

/// A condition on the end of life a key has before it gets a new one. Never is later than any moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ExpiryCondition {
    /// None: always change it.
    #[default]
    Always,
    /// Only if the key has no TTL.
    NoTtl,
    /// Only if the key has a TTL.
    HasTtl,
    /// Only if the new end is later than the old one.
    Later,
    /// Only if the new end is earlier than the old one.
    Earlier,
}

impl ExpiryCondition {
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

pub(crate) fn millis_rounded_up(d: Duration) -> i64 {
    i64::try_from(d.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_dead_exactly_at_its_expiry_time() {
        assert!(!is_expired(1000, 999));
        assert!(is_expired(1000, 1000));
        assert!(is_expired(1000, 1001));
    }

    #[test]
    fn a_ttl_never_ends_early_and_never_overflows() {
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
    fn millis_of_c_are_checked() {
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
    fn default_ttls_end_at_twenty_years() {
        assert_eq!(default_ttl_ms(None), Ok(0));
        assert_eq!(default_ttl_ms(Some(Duration::from_secs(630_720_000))), Ok(MAX_DEFAULT_TTL_MS));
        assert!(default_ttl_ms(Some(Duration::from_millis(630_720_000_001))).is_err());
        assert!(default_ttl_ms(Some(Duration::MAX)).is_err());
    }

    #[test]
    fn system_times_at_the_edges_become_moments() {
        assert_eq!(Expiry::from(UNIX_EPOCH - Duration::from_secs(9)), Expiry::At(1));
        assert_eq!(Expiry::from(UNIX_EPOCH + Duration::from_millis(77)), Expiry::At(77));
    }
}

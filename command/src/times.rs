//! Durations and moments, as people write and read them.

use std::time::Duration;

use jiff::fmt::temporal::Pieces;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, civil};

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const UNITS: [(&str, u64); 6] =
    [("ms", 1), ("s", SECOND), ("m", MINUTE), ("h", HOUR), ("d", DAY), ("w", 7 * DAY)];

/// A duration: `90s`, `15m`, `2h`, `7d`, `1h30m`, `500ms`. For clap.
pub fn parse_duration(word: &str) -> Result<Duration, String> {
    let wrong = || {
        format!(
            "\"{word}\" is not a duration: write a number with a unit, such as 500ms, 90s, 15m, 2h, 7d, 1h30m"
        )
    };
    let (mut rest, mut ms) = (word, 0u64);
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, after) = rest.split_at(digits);
        let letters = after.len() - after.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let (unit, after) = after.split_at(letters);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let (_, factor) = UNITS.into_iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        ms = number.checked_mul(factor).and_then(|more| ms.checked_add(more)).ok_or_else(wrong)?;
        rest = after;
    }
    if word.is_empty() { Err(wrong()) } else { Ok(Duration::from_millis(ms)) }
}

/// How long something is to live: a duration, and not none at all. For clap.
pub fn parse_ttl(word: &str) -> Result<Duration, String> {
    match parse_duration(word)? {
        Duration::ZERO => Err(
            "a TTL has to be longer than 0: to remove a key use \"kvstore del\", and to have no TTL leave \
                               it out, or say --no-ttl (a family: --ttl none)"
                .to_owned(),
        ),
        ttl => Ok(ttl),
    }
}

/// A moment that was asked for, whoever's clock says what is now: on a server it is that one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// In milliseconds since 1970.
    At(i64),
    /// In milliseconds from now on; less than 0: before.
    FromNow(i64),
}

impl Moment {
    pub fn after(time: Duration) -> Moment {
        Moment::FromNow(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
    }

    /// In milliseconds since 1970, if this is now.
    pub fn millis(self, now_ms: i64) -> i64 {
        match self {
            Moment::At(ms) => ms,
            Moment::FromNow(ms) => now_ms.saturating_add(ms),
        }
    }
}

/// The time of this machine, where no store's counts.
pub fn now_here_ms() -> i64 {
    kvstore::now_ms()
}

/// A moment: ISO 8601 with `Z` or an offset; without one, of this machine's zone; a date
/// alone is its midnight; `now`; `+2h` or `-7d` from now; `@1767225600`, seconds since 1970. For clap.
pub fn parse_moment(word: &str) -> Result<Moment, String> {
    if word == "now" {
        return Ok(Moment::FromNow(0));
    }
    let relative = |rest: &str, sign: i64| {
        let by = i64::try_from(parse_duration(rest)?.as_millis()).ok().filter(|by| *by < i64::MAX / 2);
        by.map(|by| Moment::FromNow(by * sign)).ok_or_else(|| format!("\"{word}\" is too far off"))
    };
    if let Some(rest) = word.strip_prefix('+') {
        return relative(rest, 1);
    }
    if let Some(rest) = word.strip_prefix('-') {
        return relative(rest, -1);
    }
    if let Some(seconds) = word.strip_prefix('@')
        && let Ok(seconds) = seconds.parse::<f64>()
        && seconds.abs() < 253_402_300_800.0
    {
        #[allow(clippy::cast_possible_truncation)] // bounded above
        return Ok(Moment::At((seconds * 1000.0).round() as i64));
    }
    let wrong = || {
        format!(
            "\"{word}\" is not a time: write 2027-01-01T00:00Z, \"2027-01-01 12:00\" (of this machine's zone), \
             2027-01-01, +2h, or @1798761600 (seconds since 1970)"
        )
    };
    // In pieces, because jiff has no timestamps on the last day of the year 9999, which many write for "never".
    let pieces = Pieces::parse(word).map_err(|_| wrong())?;
    let civil = pieces.date().to_datetime(pieces.time().unwrap_or_else(civil::Time::midnight));
    let offset = match pieces.to_numeric_offset() {
        Some(offset) => offset,
        None if pieces.time_zone_annotation().is_some() => return Err(wrong()),
        None => {
            let zone = TimeZone::system();
            match civil.to_zoned(zone.clone()) {
                Ok(zoned) => zoned.offset(),
                Err(_) => zone.to_offset(Timestamp::MAX),
            }
        }
    };
    let ms = civil.duration_since(EPOCH).as_millis() - i128::from(offset.seconds()) * 1000;
    i64::try_from(ms).map(Moment::At).map_err(|_| wrong())
}

const EPOCH: civil::DateTime = civil::date(1970, 1, 1).at(0, 0, 0, 0);

/// What a clock in UTC shows then; `None`: beyond the year 9999.
fn civil_at(ms: i64) -> Option<civil::DateTime> {
    EPOCH.checked_add(SignedDuration::from_millis(ms)).ok()
}

/// How long, in the two greatest units that count: `2h 05m`, `3d 4h`, `850ms`.
pub fn duration(ms: u64) -> String {
    match ms {
        0..SECOND => format!("{ms}ms"),
        SECOND..MINUTE => format!("{}s", ms / SECOND),
        MINUTE..HOUR => format!("{}m {:02}s", ms / MINUTE, ms % MINUTE / SECOND),
        HOUR..DAY => format!("{}h {:02}m", ms / HOUR, ms % HOUR / MINUTE),
        _ => format!("{}d {:02}h", ms / DAY, ms % DAY / HOUR),
    }
}

/// From now until then: `in 2h 05m`, `3d 04h ago`.
pub fn from_now(then_ms: i64, now_ms: i64) -> String {
    let off = duration(then_ms.abs_diff(now_ms));
    if then_ms >= now_ms { format!("in {off}") } else { format!("{off} ago") }
}

/// A moment in this machine's zone, to the second: `2027-01-01 12:00:00`.
pub fn local(ms: i64) -> String {
    let zone = TimeZone::system();
    let offset = zone.to_offset(Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX));
    match civil_at(ms.saturating_add(i64::from(offset.seconds()) * 1000)) {
        Some(clock) => clock.strftime("%F %T").to_string(),
        None => format!("{ms} ms after 1970"),
    }
}

/// A moment for programs, in UTC to the millisecond: `2027-01-01T12:00:00.000Z`.
pub fn iso(ms: i64) -> String {
    match civil_at(ms) {
        Some(clock) => format!("{clock:.3}Z"),
        None => format!("@{}.{:03}", ms.div_euclid(1000), ms.rem_euclid(1000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (word, ms) in [("90s", 90_000), ("15m", 900_000), ("2h", 7_200_000), ("7d", 604_800_000)] {
            assert_eq!(parse_duration(word), Ok(Duration::from_millis(ms)));
        }
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_ttl("500ms"), Ok(Duration::from_millis(500)));
        for none in ["0s", "0ms", "0h0m"] {
            assert_eq!(parse_duration(none), Ok(Duration::ZERO));
            assert!(parse_ttl(none).unwrap_err().contains("longer than 0"), "{none}");
        }
        for word in
            ["", "5", "s", "5x", "-5s", "1.5h", "5 s", "99999999999999999999d", "18446744073709551615w"]
        {
            assert!(parse_duration(word).unwrap_err().contains("is not a duration"), "{word}");
            assert!(parse_ttl(word).unwrap_err().contains("is not a duration"), "{word}");
        }
    }

    #[test]
    fn moments() {
        for word in ["2027-01-01T00:00Z", "2027-01-01T00:00:00Z", "2027-01-01T01:00+01:00", "@1798761600"] {
            assert_eq!(parse_moment(word), Ok(Moment::At(1_798_761_600_000)), "{word}");
        }
        // In any zone of this machine's.
        for word in ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59+00:00", "10000-01-01T00:59:59+01:00"] {
            let last = parse_moment(word);
            assert_eq!(last.ok(), word.starts_with('9').then_some(Moment::At(253_402_300_799_000)), "{word}");
        }
        assert!(parse_moment("9999-12-31").is_ok() && parse_moment("9999-12-31 23:59").is_ok());
        assert!(parse_moment("2027-01-01T00:00[Europe/Berlin]").is_err()); // zones by name may not be known here
        let local = parse_moment("2027-01-01").unwrap();
        assert_eq!(parse_moment("2027-01-01 00:00"), Ok(local));
        assert_eq!(parse_moment("2027-01-01T00:00:00"), Ok(local));
        for (word, from_now) in [("+1h", 3_600_000), ("-1h", -3_600_000), ("now", 0)] {
            assert_eq!(parse_moment(word).map(|moment| moment.millis(7)), Ok(7 + from_now));
        }
        assert!(parse_moment("+400000000000w").is_err());
        for word in ["", "tomorrow", "2027-13-01", "@x", "+", "+5", "12:00"] {
            assert!(parse_moment(word).is_err(), "{word}");
        }
    }

    #[test]
    fn shown() {
        assert_eq!(duration(0), "0ms");
        assert_eq!(duration(61_000), "1m 01s");
        assert_eq!(duration(7_500_000), "2h 05m");
        assert_eq!(duration(100 * DAY + HOUR), "100d 01h");
        assert_eq!(from_now(5000, 0), "in 5s");
        assert_eq!(from_now(0, 5000), "5s ago");
        assert_eq!(iso(1_798_761_600_000), "2027-01-01T00:00:00.000Z");
        assert_eq!(iso(253_402_300_799_000), "9999-12-31T23:59:59.000Z");
        assert_eq!(iso(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(local(253_402_300_799_000).get(..3), Some("999"));
        assert_eq!(local(i64::MAX), "9223372036854775807 ms after 1970");
        assert_eq!(iso(i64::MAX), "@9223372036854775.807");
    }
}

//! Durations and times: parsing and formatting.

use std::time::Duration;

use jiff::civil::Date;
use jiff::fmt::temporal::Pieces;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp, ToSpan as _, civil};

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const UNITS: [(&str, u64); 6] =
    [("ms", 1), ("s", SECOND), ("m", MINUTE), ("h", HOUR), ("d", DAY), ("w", 7 * DAY)];

/// Parses a duration in an argument (`Err` is the error message): `90s`, `15m`, `2h`, `7d`,
/// `1h30m`, `500ms`.
pub fn parse_duration(word: &str) -> Result<Duration, String> {
    let wrong = || {
        format!(
            "\"{word}\" is not a duration: use a number with a unit, such as 500ms, 90s, 15m, 2h, 7d, 1h30m"
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

/// Parses a TTL in an argument: a duration longer than 0, such as `15m`. `Err` is the error
/// message.
pub fn parse_ttl(word: &str) -> Result<Duration, String> {
    match parse_duration(word)? {
        Duration::ZERO => Err(
            "a TTL must be longer than 0: use \"kvstore del\" to remove a key, and --no-ttl (for a family --ttl none) \
             for no TTL"
                .to_owned(),
        ),
        ttl => Ok(ttl),
    }
}

/// A time given on the command line. A relative time is resolved with the store's clock; for a
/// store on a server, that is the clock of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// A fixed time, in milliseconds since 1970.
    At(i64),
    /// A time relative to now, in milliseconds; negative: before now.
    FromNow(i64),
    /// A day or time of day in the local time zone, such as `tomorrow` or `06:00`.
    Calendar(Calendar),
}

/// A time given as a time of day or a day, such as `06:00` or `monday 09:30`, in the local time
/// zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calendar {
    /// The next time local clocks show this time of day.
    Clock(civil::Time),
    /// This time of day, this number of days after today; negative: before today.
    Day(i64, civil::Time),
    /// This time of day on the next such weekday after today.
    Weekday(civil::Weekday, civil::Time),
}

impl Moment {
    pub fn after(time: Duration) -> Moment {
        Moment::FromNow(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
    }

    /// Returns the time in milliseconds since 1970. `now_ms` is the current time, in the same unit.
    pub fn millis(self, now_ms: i64) -> i64 {
        self.millis_in(now_ms, &TimeZone::system())
    }

    fn millis_in(self, now_ms: i64, zone: &TimeZone) -> i64 {
        match self {
            Moment::At(ms) => ms,
            Moment::FromNow(ms) => now_ms.saturating_add(ms),
            // `None` only if the clock is outside the years that jiff supports.
            Moment::Calendar(calendar) => calendar.millis(now_ms, zone).unwrap_or(now_ms),
        }
    }
}

impl Calendar {
    /// Returns the time in milliseconds since 1970, given the current time `now_ms` and the local
    /// time zone `zone`; `None` outside the years that jiff supports. A time that daylight saving
    /// skips is moved forward by the length of the gap. If a time occurs twice, `Day` and `Weekday`
    /// mean the first occurrence, and `Clock` the next one.
    fn millis(self, now_ms: i64, zone: &TimeZone) -> Option<i64> {
        let today = Timestamp::from_millisecond(now_ms).ok()?.to_zoned(zone.clone()).date();
        let on = |date: Date, time| {
            let time = zone.to_ambiguous_timestamp(date.to_datetime(time));
            let is_twice = matches!(time.offset(), AmbiguousOffset::Fold { .. });
            let first = time.compatible().ok()?.as_millisecond();
            let second = if is_twice { time.later().ok()?.as_millisecond() } else { first };
            Some((first, second))
        };
        let days = |days: i64| today.checked_add(days.days()).ok();
        match self {
            Calendar::Day(after, time) => Some(on(days(after)?, time)?.0),
            Calendar::Weekday(weekday, time) => {
                let after = i64::from(today.weekday().until(weekday));
                Some(on(days(if after == 0 { 7 } else { after })?, time)?.0)
            }
            Calendar::Clock(time) => {
                let ((first, second), tomorrow) = (on(today, time)?, on(days(1)?, time)?.0);
                [first, second, tomorrow].into_iter().find(|ms| *ms > now_ms)
            }
        }
    }

    /// Parses a time of day or a day: `06:00`, `tonight`, `tomorrow`, `monday 09:30` and the like.
    /// Returns `None` for any other text.
    fn parse(word: &str) -> Option<Calendar> {
        const DAYS: [(&str, civil::Weekday); 7] = [
            ("monday", civil::Weekday::Monday),
            ("tuesday", civil::Weekday::Tuesday),
            ("wednesday", civil::Weekday::Wednesday),
            ("thursday", civil::Weekday::Thursday),
            ("friday", civil::Weekday::Friday),
            ("saturday", civil::Weekday::Saturday),
            ("sunday", civil::Weekday::Sunday),
        ];
        let word = word.to_ascii_lowercase();
        if let Some(time) = clock(&word) {
            return Some(Calendar::Clock(time));
        }
        if word == "tonight" || word == "midnight" {
            return Some(Calendar::Day(1, civil::Time::midnight()));
        }
        let (day, time) = word.split_once(' ').unwrap_or((&word, "00:00"));
        let time = clock(time.trim_start())?;
        match day {
            "yesterday" => return Some(Calendar::Day(-1, time)),
            "today" => return Some(Calendar::Day(0, time)),
            "tomorrow" => return Some(Calendar::Day(1, time)),
            _ => {}
        }
        let (_, weekday) = DAYS.into_iter().find(|(name, _)| *name == day || name.get(..3) == Some(day))?;
        Some(Calendar::Weekday(weekday, time))
    }
}

/// Parses a time of day: `6:00`, `06:00` or `06:00:30`. Returns `None` for any other text.
fn clock(word: &str) -> Option<civil::Time> {
    let mut parts = word.split(':').map(|part| {
        let is_number = (1..=2).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse::<i8>().ok().filter(|_| is_number)
    });
    let (hour, minute) = (parts.next()??, parts.next()??);
    let second = parts.next().unwrap_or(Some(0))?;
    if parts.next().is_some() { None } else { civil::Time::new(hour, minute, second, 0).ok() }
}

/// Returns the time of this machine's clock, in milliseconds since 1970. For times that do not come
/// from the clock of a store.
pub fn now_here_ms() -> i64 {
    kvstore::now_ms()
}

/// Parses a time in an argument (`Err` is the error message): ISO 8601 with `Z`, an offset, or in
/// local time; a date (its midnight); a day or time of day as in [`Calendar`]; `now`; `+2h` or
/// `-7d` relative to now; `@1767225600` in seconds since 1970.
pub fn parse_moment(word: &str) -> Result<Moment, String> {
    if word == "now" {
        return Ok(Moment::FromNow(0));
    }
    if let Some(calendar) = Calendar::parse(word) {
        return Ok(Moment::Calendar(calendar));
    }
    let relative = |rest: &str, sign: i64| {
        let by = i64::try_from(parse_duration(rest)?.as_millis()).ok().filter(|by| *by < i64::MAX / 2);
        by.map(|by| Moment::FromNow(by * sign)).ok_or_else(|| format!("\"{word}\" is out of range"))
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
            "\"{word}\" is not a time: use +2h, tomorrow, 06:00, \"monday 09:30\", 2027-01-01, \"2027-01-01 12:00\" \
             (local time), 2027-01-01T00:00Z, or @1798761600 (seconds since 1970)"
        )
    };
    // Parsed in pieces, because a jiff timestamp cannot represent the last day of the year 9999,
    // which often stands for "never".
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

/// Converts milliseconds since 1970 to a date and time in UTC; `None` outside the years -9999 to
/// 9999.
fn civil_at(ms: i64) -> Option<civil::DateTime> {
    EPOCH.checked_add(SignedDuration::from_millis(ms)).ok()
}

/// Formats a duration in its two largest units: `2h 05m`, `3d 04h`, `850ms`.
pub fn duration(ms: u64) -> String {
    match ms {
        0..SECOND => format!("{ms}ms"),
        SECOND..MINUTE => format!("{}s", ms / SECOND),
        MINUTE..HOUR => format!("{}m {:02}s", ms / MINUTE, ms % MINUTE / SECOND),
        HOUR..DAY => format!("{}h {:02}m", ms / HOUR, ms % HOUR / MINUTE),
        _ => format!("{}d {:02}h", ms / DAY, ms % DAY / HOUR),
    }
}

/// Formats the time `then_ms` relative to the current time `now_ms`: `in 2h 05m`, `3d 04h ago`.
pub fn from_now(then_ms: i64, now_ms: i64) -> String {
    let off = duration(then_ms.abs_diff(now_ms));
    if then_ms >= now_ms { format!("in {off}") } else { format!("{off} ago") }
}

/// Formats a time in local time, to the second: `2027-01-01 12:00:00`.
pub fn local(ms: i64) -> String {
    let zone = TimeZone::system();
    let offset = zone.to_offset(Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX));
    match civil_at(ms.saturating_add(i64::from(offset.seconds()) * 1000)) {
        Some(clock) => clock.strftime("%F %T").to_string(),
        None => format!("{ms} ms after 1970"),
    }
}

/// Formats a time in UTC, to the millisecond: `2027-01-01T12:00:00.000Z`.
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
    fn durations_are_parsed() {
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
    fn moments_are_parsed() {
        for word in ["2027-01-01T00:00Z", "2027-01-01T00:00:00Z", "2027-01-01T01:00+01:00", "@1798761600"] {
            assert_eq!(parse_moment(word), Ok(Moment::At(1_798_761_600_000)), "{word}");
        }
        // The results do not depend on the time zone of this machine.
        for word in ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59+00:00", "10000-01-01T00:59:59+01:00"] {
            let last = parse_moment(word);
            assert_eq!(last.ok(), word.starts_with('9').then_some(Moment::At(253_402_300_799_000)), "{word}");
        }
        assert!(parse_moment("9999-12-31").is_ok() && parse_moment("9999-12-31 23:59").is_ok());
        assert!(parse_moment("2027-01-01T00:00[Europe/Berlin]").is_err()); // zone names may be unknown here
        let local = parse_moment("2027-01-01").unwrap();
        assert_eq!(parse_moment("2027-01-01 00:00"), Ok(local));
        assert_eq!(parse_moment("2027-01-01T00:00:00"), Ok(local));
        for (word, from_now) in [("+1h", 3_600_000), ("-1h", -3_600_000), ("now", 0)] {
            assert_eq!(parse_moment(word).map(|moment| moment.millis(7)), Ok(7 + from_now));
        }
        assert!(parse_moment("+400000000000w").is_err());
        for word in [
            "",
            "2027-13-01",
            "@x",
            "+",
            "+5",
            "24:00",
            "12",
            "12:0000",
            "12:00:00:00",
            "tonight 22:00",
            "someday",
            "monday monday",
            "mo",
            "tomorrow ",
        ] {
            assert!(parse_moment(word).is_err(), "{word}");
        }
    }

    #[test]
    fn calendar_words_are_resolved_in_the_local_zone() {
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        // Monday, 2026-11-23, 02:19:48 in Berlin.
        let now_ms = 1_795_396_788_000;
        for (word, expected) in [
            ("tonight", "2026-11-23T23:00:00.000Z"),
            ("midnight", "2026-11-23T23:00:00.000Z"),
            ("tomorrow", "2026-11-23T23:00:00.000Z"),
            ("Tomorrow 06:00", "2026-11-24T05:00:00.000Z"),
            ("today", "2026-11-22T23:00:00.000Z"),
            ("today 1:00", "2026-11-23T00:00:00.000Z"),
            ("yesterday", "2026-11-21T23:00:00.000Z"),
            ("06:00", "2026-11-23T05:00:00.000Z"),
            ("2:19:48", "2026-11-24T01:19:48.000Z"),
            ("2:19:49", "2026-11-23T01:19:49.000Z"),
            ("monday", "2026-11-29T23:00:00.000Z"),
            ("tue", "2026-11-23T23:00:00.000Z"),
            ("sunday 09:30", "2026-11-29T08:30:00.000Z"),
        ] {
            assert_eq!(iso(parse_moment(word).unwrap().millis_in(now_ms, &berlin)), expected, "{word}");
        }
    }

    #[test]
    fn time_of_day_resolves_on_days_with_clock_change() {
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let at = |word: &str, now: &str| {
            let Ok(Moment::At(now_ms)) = parse_moment(now) else { panic!("{now}") };
            iso(parse_moment(word).unwrap().millis_in(now_ms, &berlin))
        };
        // 2026-03-29: clocks go from 02:00 to 03:00.
        assert_eq!(at("02:30", "2026-03-29T00:00Z"), "2026-03-29T01:30:00.000Z");
        assert_eq!(at("tomorrow", "2026-03-28T12:00Z"), "2026-03-28T23:00:00.000Z");
        assert_eq!(at("tomorrow", "2026-03-29T12:00Z"), "2026-03-29T22:00:00.000Z");
        // 2026-10-25: clocks go from 03:00 back to 02:00.
        assert_eq!(at("02:30", "2026-10-25T00:00Z"), "2026-10-25T00:30:00.000Z");
        assert_eq!(at("02:30", "2026-10-25T00:40Z"), "2026-10-25T01:30:00.000Z");
        assert_eq!(at("02:30", "2026-10-25T01:40Z"), "2026-10-26T01:30:00.000Z");
        assert_eq!(at("tomorrow 02:30", "2026-10-24T12:00Z"), "2026-10-25T00:30:00.000Z");
        assert_eq!(at("tonight", "2026-10-25T12:00Z"), "2026-10-25T23:00:00.000Z");
    }

    #[test]
    fn calendar_word_resolves_at_extreme_clock_values() {
        let utc = TimeZone::UTC;
        for now_ms in [i64::MIN, i64::MAX, 253_402_300_799_000] {
            for word in ["tomorrow", "06:00", "monday", "yesterday"] {
                parse_moment(word).unwrap().millis_in(now_ms, &utc);
            }
        }
    }

    #[test]
    fn times_are_formatted_for_display() {
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

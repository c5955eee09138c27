//! The buckets of a chart of expiry times: parts of a day, days or months, and the number of expiry
//! times in each.
//!
//! The range of the expiry times is not known in advance. Counting starts with short buckets and
//! merges them into longer ones when there are too many, so memory use does not depend on the size
//! of the store.

use std::collections::BTreeMap;

use jiff::civil::{self, Date};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _, Zoned};

use crate::failure::{Result, usage};
use crate::times;

const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Maximum number of buckets kept while expiry times are counted, if the length of the buckets is
/// chosen automatically. If there are more, they are merged into longer ones.
const MOST_COUNTED: usize = 4096;
/// Maximum number of bars of a chart of expiry times, including empty bars. More are a usage error.
const MOST_BARS: usize = 10_000;
/// Maximum number of bars of a chart of expiry times if the time span of a bar is chosen
/// automatically.
const BARS: usize = 24;
/// Time from now, in milliseconds, from which on all expiry times share the last bar of a chart.
const FAR_MS: i64 = 100 * 366 * DAY;

/// The time span that one bar of a chart covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bucket {
    /// A number of milliseconds, less than a day. The first bucket of each day starts at midnight;
    /// the last one may be shorter.
    Part(i64),
    /// A number of days; weeks start on Mondays.
    Days(i32),
    /// A number of months.
    Months(i32),
}

/// Bucket lengths that are used while expiry times are counted, from short to long. Each bucket
/// consists of whole buckets of the next shorter length, so that their counts can be added up.
const COUNTED: [Bucket; 5] =
    [Bucket::Part(SECOND), Bucket::Part(MINUTE), Bucket::Part(HOUR), Bucket::Days(1), Bucket::Months(1)];

/// Time spans of a bar, from short to long. If the time span is chosen automatically, it is the
/// first of these that gives at most [`BARS`] bars.
const SHOWN: [Bucket; 16] = [
    Bucket::Part(SECOND),
    Bucket::Part(5 * SECOND),
    Bucket::Part(15 * SECOND),
    Bucket::Part(MINUTE),
    Bucket::Part(5 * MINUTE),
    Bucket::Part(15 * MINUTE),
    Bucket::Part(HOUR),
    Bucket::Part(3 * HOUR),
    Bucket::Part(6 * HOUR),
    Bucket::Part(12 * HOUR),
    Bucket::Days(1),
    Bucket::Days(7),
    Bucket::Months(1),
    Bucket::Months(3),
    Bucket::Months(12),
    Bucket::Months(120),
];

/// Parses the value of `--bucket`: a duration, `month` or `year`. `Err` is the error message.
pub fn parse(word: &str) -> std::result::Result<Bucket, String> {
    match word {
        "month" => return Ok(Bucket::Months(1)),
        "year" => return Ok(Bucket::Months(12)),
        _ => {}
    }
    let ms = i64::try_from(times::parse_duration(word)?.as_millis()).unwrap_or(i64::MAX);
    match (ms, i32::try_from(ms / DAY)) {
        (0, _) => Err("a bucket must be longer than 0".to_owned()),
        (1..DAY, _) => Ok(Bucket::Part(ms)),
        (_, Ok(days @ ..=36_525)) if ms % DAY == 0 => Ok(Bucket::Days(days)),
        _ => {
            Err("a bucket longer than a day must be whole days, such as 7d, or \"month\" or \"year\""
                .to_owned())
        }
    }
}

/// Calculates the start and end times of buckets in a time zone.
pub struct Calendar {
    zone: TimeZone,
}

impl Calendar {
    pub fn of(zone: TimeZone) -> Calendar {
        Calendar { zone }
    }

    fn at(&self, ms: i64) -> Option<Zoned> {
        Some(Timestamp::from_millisecond(ms).ok()?.to_zoned(self.zone.clone()))
    }

    fn midnight(&self, date: Date) -> Option<i64> {
        Some(date.to_zoned(self.zone.clone()).ok()?.timestamp().as_millisecond())
    }

    /// Returns the start and the end (exclusive) of the bucket that contains the time `ms`, all in
    /// milliseconds since 1970; `None` if jiff does not support a date.
    fn bounds(&self, bucket: Bucket, ms: i64) -> Option<(i64, i64)> {
        let date = self.at(ms)?.date();
        let (first, last) = match bucket {
            Bucket::Part(length) => {
                let (begin, end) = (self.midnight(date)?, self.midnight(date.tomorrow().ok()?)?);
                let start = begin + (ms - begin).div_euclid(length) * length;
                return Some((start, (start + length).min(end)));
            }
            Bucket::Days(days) => {
                let monday = civil::date(1969, 12, 29);
                let since = (date - monday).get_days();
                let first = monday.checked_add((since.div_euclid(days) * days).days()).ok()?;
                (first, first.checked_add(days.days()).ok()?)
            }
            Bucket::Months(months) => {
                let since = i32::from(date.year()) * 12 + i32::from(date.month()) - 1;
                let first = since.div_euclid(months) * months;
                let month = |number: i32| {
                    let (year, month) = (number.div_euclid(12), number.rem_euclid(12) + 1);
                    Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, 1).ok()
                };
                (month(first)?, month(first + months)?)
            }
        };
        Some((self.midnight(first)?, self.midnight(last)?))
    }

    /// Formats the start time of a bar as its label, with the precision that the length of the
    /// bucket needs.
    pub fn label(&self, bucket: Bucket, from_ms: i64) -> String {
        let format = match bucket {
            Bucket::Part(..SECOND) => "%F %T.%3f",
            Bucket::Part(SECOND..MINUTE) => "%F %T",
            Bucket::Part(_) => "%F %H:%M",
            Bucket::Days(_) => "%a %F",
            Bucket::Months(..12) => "%Y-%m",
            Bucket::Months(_) => "%Y",
        };
        self.at(from_ms).map_or_else(|| times::iso(from_ms), |at| at.strftime(format).to_string())
    }
}

/// Formats the length of a bucket: `15m`, `a week`, `3 months`.
pub fn words(bucket: Bucket) -> String {
    match bucket {
        Bucket::Part(ms) => {
            let shown = times::duration(ms.unsigned_abs());
            shown.strip_suffix(" 00s").or(shown.strip_suffix(" 00m")).unwrap_or(&shown).to_owned()
        }
        Bucket::Days(1) => "a day".to_owned(),
        Bucket::Days(7) => "a week".to_owned(),
        Bucket::Days(days) => format!("{days} days"),
        Bucket::Months(1) => "a month".to_owned(),
        Bucket::Months(12) => "a year".to_owned(),
        Bucket::Months(months) if months % 12 == 0 => format!("{} years", months / 12),
        Bucket::Months(months) => format!("{months} months"),
    }
}

/// A bar of a chart: the number of keys that expire in a time span. Times are in milliseconds since
/// 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bar {
    pub from_ms: i64,
    /// End of the bar, exclusive; `None` for the last bar if it counts all later expiry times.
    pub to_ms: Option<i64>,
    pub count: u64,
}

/// Counts the expiry times of keys by bucket, for a chart.
pub struct Tally {
    calendar: Calendar,
    /// Current length of the buckets.
    bucket: Bucket,
    /// Index in [`COUNTED`] of the length to use when there are too many buckets; `None` if the
    /// user has chosen the length.
    coarser: Option<usize>,
    /// Number of expiry times in each bucket, by the start time of the bucket in milliseconds since
    /// 1970.
    counts: BTreeMap<i64, u64>,
    /// Start and end (exclusive) of the bucket of the last expiry time that was added. A cache: the
    /// expiry times of a family are added in order, so that the next one is often in the same
    /// bucket.
    last: (i64, i64),
    /// The time, in milliseconds since 1970, from which on all expiry times share the last bar.
    far_ms: i64,
    /// Number of expiry times at or after `far_ms`.
    far: u64,
}

impl Tally {
    /// Starts counting expiry times for a chart. `bucket` is the time span of a bar; `None` chooses
    /// it automatically.
    pub fn new(calendar: Calendar, bucket: Option<Bucket>, now_ms: i64) -> Tally {
        Tally {
            calendar,
            bucket: bucket.unwrap_or(COUNTED[0]),
            coarser: bucket.is_none().then_some(1),
            counts: BTreeMap::new(),
            last: (0, 0),
            far_ms: now_ms.saturating_add(FAR_MS),
            far: 0,
        }
    }

    pub fn add(&mut self, ms: i64) {
        if ms >= self.far_ms {
            self.far += 1;
            return;
        }
        if !(self.last.0..self.last.1).contains(&ms) {
            self.last = self.bounds(ms);
        }
        *self.counts.entry(self.last.0).or_default() += 1;
        if self.counts.len() > MOST_COUNTED
            && let Some((at, bucket)) = self.coarser.and_then(|at| Some((at, *COUNTED.get(at)?)))
        {
            self.bucket = bucket;
            self.coarser = Some(at + 1);
            self.last = (0, 0);
            let mut counts = BTreeMap::new();
            for (from_ms, count) in std::mem::take(&mut self.counts) {
                *counts.entry(self.bounds(from_ms).0).or_default() += count;
            }
            self.counts = counts;
        }
    }

    /// Returns `true` if there are more buckets than [`MOST_BARS`], so that `bars` will fail.
    pub fn is_too_fine(&self) -> bool {
        self.counts.len() > MOST_BARS
    }

    fn bounds(&self, ms: i64) -> (i64, i64) {
        self.calendar.bounds(self.bucket, ms).unwrap_or((ms, ms + 1))
    }

    /// Returns the bars, including empty ones between others, with the calendar and bucket length
    /// that are needed to label them. Fails if there are more than [`MOST_BARS`].
    pub fn bars(mut self) -> Result<(Calendar, Bucket, Vec<Bar>)> {
        if self.coarser.is_some() {
            let few = |bucket: &Bucket| self.spread(*bucket, BARS).is_some();
            self.bucket = SHOWN.into_iter().find(few).unwrap_or(Bucket::Months(120));
        }
        let Some(mut bars) = self.spread(self.bucket, MOST_BARS) else {
            return usage(format!(
                "bars of {} would be more than {MOST_BARS}: choose a longer --bucket, or a range with --from and --to",
                words(self.bucket)
            ));
        };
        if self.far > 0 {
            bars.push(Bar { from_ms: self.far_ms, to_ms: None, count: self.far });
        }
        Ok((self.calendar, self.bucket, bars))
    }

    /// Distributes the counts over bars of the length `bucket`; `None` if there would be more than
    /// `most` bars.
    fn spread(&self, bucket: Bucket, most: usize) -> Option<Vec<Bar>> {
        let mut bars: Vec<Bar> = Vec::new();
        for (ms, count) in &self.counts {
            loop {
                let next_ms = bars.last().map_or(*ms, |bar| bar.to_ms.unwrap_or(*ms));
                if let Some(bar) = bars.last_mut()
                    && *ms < next_ms
                {
                    bar.count += count;
                    break;
                }
                if bars.len() == most {
                    return None;
                }
                let (from_ms, to_ms) =
                    self.calendar.bounds(bucket, next_ms).unwrap_or((next_ms, next_ms + 1));
                bars.push(Bar { from_ms, to_ms: Some(to_ms), count: 0 });
            }
        }
        Some(bars)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-23 01:19:48 UTC, a Monday.
    const NOW: i64 = 1_795_396_788_000;

    fn utc() -> Calendar {
        Calendar::of(TimeZone::UTC)
    }

    fn berlin() -> Calendar {
        Calendar::of(TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap())
    }

    fn bars(ends: impl IntoIterator<Item = i64>, bucket: Option<Bucket>) -> (Bucket, Vec<Bar>) {
        let mut tally = Tally::new(utc(), bucket, NOW);
        ends.into_iter().for_each(|end| tally.add(end));
        let (_, bucket, bars) = tally.bars().unwrap();
        (bucket, bars)
    }

    #[test]
    fn bucket_is_chosen_by_the_range_of_times() {
        for (reach, bucket) in [
            (0, Bucket::Part(SECOND)),
            (20 * SECOND, Bucket::Part(SECOND)),
            (MINUTE, Bucket::Part(5 * SECOND)),
            (20 * MINUTE, Bucket::Part(MINUTE)),
            (HOUR, Bucket::Part(5 * MINUTE)),
            (DAY - 2 * HOUR, Bucket::Part(HOUR)),
            (3 * DAY, Bucket::Part(6 * HOUR)),
            (20 * DAY, Bucket::Days(1)),
            (90 * DAY, Bucket::Days(7)),
            (600 * DAY, Bucket::Months(1)),
            (5 * 365 * DAY, Bucket::Months(3)),
            (20 * 365 * DAY, Bucket::Months(12)),
            (90 * 365 * DAY, Bucket::Months(120)),
        ] {
            let (chosen, bars) = bars([NOW, NOW + reach], None);
            assert_eq!(chosen, bucket, "{reach}");
            assert_eq!(bars.iter().map(|bar| bar.count).sum::<u64>(), 2);
            assert!(bars.len() <= BARS);
            assert!(bars.is_sorted_by(|one, next| one.to_ms == Some(next.from_ms)));
        }
    }

    #[test]
    fn merging_many_times_loses_none() {
        // A key a minute for two years: counted in seconds, minutes, hours, at last in days.
        let ends = (0..1_051_200).map(|n| NOW + n * MINUTE);
        let mut tally = Tally::new(utc(), None, NOW);
        ends.for_each(|end| tally.add(end));
        assert!(tally.counts.len() <= MOST_COUNTED);
        let (_, bucket, bars) = tally.bars().unwrap();
        assert_eq!((bucket, bars.len()), (Bucket::Months(3), 9));
        assert_eq!(bars.iter().map(|bar| bar.count).sum::<u64>(), 1_051_200);
        assert_eq!(bars[1].count, 90 * 24 * 60); // January to March 2027
    }

    #[test]
    fn times_beyond_a_century_share_the_last_bar() {
        let (bucket, bars) = bars([NOW, NOW + 5 * SECOND, i64::MAX, i64::MAX - 1], None);
        assert_eq!(bucket, Bucket::Part(SECOND));
        assert_eq!(bars.len(), 7);
        assert_eq!((bars[6].to_ms, bars[6].count), (None, 2));
        assert!(super::super::buckets::Tally::new(utc(), None, NOW).bars().unwrap().2.is_empty());
    }

    #[test]
    fn too_many_bars_are_refused() {
        let mut tally = Tally::new(utc(), Some(Bucket::Part(SECOND)), NOW);
        [NOW, NOW + DAY].into_iter().for_each(|end| tally.add(end));
        assert!(tally.bars().is_err());
    }

    #[test]
    fn weeks_start_on_monday_and_days_at_local_midnight() {
        let (_, bars) = bars([NOW], Some(Bucket::Days(7)));
        assert_eq!(times::iso(bars[0].from_ms), "2026-11-23T00:00:00.000Z");
        assert_eq!(times::iso(bars[0].to_ms.unwrap()), "2026-11-30T00:00:00.000Z");
        let (from, to) = berlin().bounds(Bucket::Days(1), NOW).unwrap();
        assert_eq!((times::iso(from), times::iso(to)).0, "2026-11-22T23:00:00.000Z");
        assert_eq!(to - from, DAY);
    }

    #[test]
    fn day_of_a_clock_change_has_25_hours_without_a_gap() {
        // 2026-10-25, from 00:00+02:00 to 24:00+01:00.
        let midnight = 1_792_879_200_000;
        let calendar = berlin();
        assert_eq!(calendar.bounds(Bucket::Days(1), midnight), Some((midnight, midnight + 25 * HOUR)));
        let mut at = midnight;
        for _ in 0..9 {
            let (from, to) = calendar.bounds(Bucket::Part(3 * HOUR), at).unwrap();
            assert_eq!(from, at);
            assert!(to - from == 3 * HOUR || to == midnight + 25 * HOUR);
            at = to;
        }
        assert_eq!(at, midnight + 25 * HOUR);
    }

    #[test]
    fn bucket_names_are_parsed() {
        for (word, bucket, shown) in [
            ("250ms", Bucket::Part(250), "250ms"),
            ("90s", Bucket::Part(90_000), "1m 30s"),
            ("15m", Bucket::Part(15 * MINUTE), "15m"),
            ("1h", Bucket::Part(HOUR), "1h"),
            ("1d", Bucket::Days(1), "a day"),
            ("2w", Bucket::Days(14), "14 days"),
            ("month", Bucket::Months(1), "a month"),
            ("year", Bucket::Months(12), "a year"),
        ] {
            assert_eq!(parse(word), Ok(bucket));
            assert_eq!(words(bucket), shown);
        }
        for word in ["0s", "36h", "x", "", "99999999d"] {
            assert!(parse(word).is_err(), "{word}");
        }
    }
}

//! `expiring --chart`: a bar chart of the number of keys that expire over time.

use kvstore::Family;
use ratatui::crossterm::terminal;

use super::buckets::{Bar, Bucket, Calendar, Tally, words};
use super::expiring_keys;
use crate::context::Context;
use crate::failure::{Answer, Result};
use crate::json::Object;
use crate::output::{DIM, GOOD, Output, count, keys};
use crate::progress::Progress;
use crate::times;

/// The time range and the resolution of a chart of expiry times. Times are in milliseconds since
/// 1970.
pub struct ChartArgs {
    pub from_ms: i64,
    pub to_ms: i64,
    pub now_ms: i64,
    /// Time span of a bar; `None` to choose it automatically.
    pub bucket: Option<Bucket>,
}

/// Maximum width of a chart, in columns of the terminal.
const WIDEST: usize = 100;
/// Prefix of the line in a chart that marks the current time.
const NOW: &str = "now ▸ ";

pub fn run(context: &mut Context, families: &[Family], args: &ChartArgs) -> Result {
    let mut tally = Tally::new(Calendar::of(jiff::tz::TimeZone::system()), args.bucket, args.now_ms);
    let mut progress = Progress::new("counting", None);
    let mut counted = 0u64;
    for family in families {
        expiring_keys::each(family, args.from_ms, args.to_ms, |expire_ms, _| {
            tally.add(expire_ms);
            counted += 1;
            if counted.is_multiple_of(4096) {
                progress.set(counted);
            }
            !tally.is_too_fine()
        })?;
    }
    drop(progress);
    let (calendar, bucket, bars) = tally.bars()?;
    let out = &mut context.out;
    if out.json {
        for bar in &bars {
            let mut object = Object::new();
            object.number("from_ms", bar.from_ms).optional("to_ms", bar.to_ms);
            out.object(object.number("count", bar.count))?;
        }
    } else if !out.is_terminal {
        for bar in &bars {
            out.line(format!("{}\t{}", times::iso(bar.from_ms), bar.count))?;
        }
    } else if bars.is_empty() {
        let line = out.paint(DIM, "nothing expires");
        out.line(line)?;
    } else {
        let width = terminal::size().map_or(80, |(columns, _)| usize::from(columns));
        draw(out, &calendar, bucket, &bars, args.now_ms, width.min(WIDEST))?;
    }
    Ok(Answer::Yes)
}

fn draw(
    out: &mut Output,
    calendar: &Calendar,
    bucket: Bucket,
    bars: &[Bar],
    now_ms: i64,
    width: usize,
) -> Result<()> {
    let total = bars.iter().map(|bar| bar.count).sum();
    let most = bars.iter().map(|bar| bar.count).max().unwrap_or_default();
    let labels: Vec<_> = bars
        .iter()
        .map(|bar| match bar.to_ms {
            Some(_) => calendar.label(bucket, bar.from_ms),
            None => "later".to_owned(),
        })
        .collect();
    let label_width = labels.iter().map(|label| label.chars().count()).max().unwrap_or_default();
    let count_width = count(most).chars().count();
    let bar_width = width.saturating_sub(NOW.chars().count() + label_width + count_width + 4).max(8);
    let head = format!("{} in bars of {}", keys(total), words(bucket));
    let head = out.paint(DIM, format!("{:indent$}{head}", "", indent = NOW.chars().count()));
    out.line(head)?;
    let mark = out.paint(GOOD, NOW);
    let mut is_marked = false;
    for (bar, label) in bars.iter().zip(&labels) {
        let before = now_ms < bar.from_ms && !is_marked;
        if before {
            let line = format!("{mark}{}", out.paint(GOOD, times::local(now_ms)));
            out.line(line)?;
            is_marked = true;
        }
        let is_now = !is_marked && bar.to_ms.is_some_and(|to_ms| now_ms < to_ms);
        is_marked |= is_now;
        let mark = if is_now { mark.clone() } else { " ".repeat(NOW.chars().count()) };
        let drawn = blocks(bar.count, most, bar_width);
        let pad = " ".repeat(bar_width - drawn.chars().count());
        let drawn = out.paint(anstyle::AnsiColor::Cyan.on_default(), drawn);
        let counted = format!("{:>count_width$}", count(bar.count));
        let counted = if bar.count == 0 { out.paint(DIM, counted) } else { counted };
        out.line(format!("{mark}{label:<label_width$} │{drawn}{pad}  {counted}"))?;
    }
    if !is_marked {
        let line = format!("{mark}{}", out.paint(GOOD, times::local(now_ms)));
        out.line(line)?;
    }
    Ok(())
}

/// Returns a bar of a chart as text: block characters of `part / whole * width` columns, to an
/// eighth of a column. If `part` is above 0, the bar has at least an eighth of a column.
fn blocks(part: u64, whole: u64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = u128::from(part) * width as u128 * 8 / u128::from(whole.max(1));
    let eighths = usize::try_from(eighths).unwrap_or(usize::MAX).min(width * 8).max(usize::from(part > 0));
    let rest = EIGHTHS.get(eighths % 8).copied().unwrap_or_default();
    format!("{}{rest}", "█".repeat(eighths / 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_drawn_to_an_eighth() {
        assert_eq!(blocks(0, 100, 10), "");
        assert_eq!(blocks(100, 100, 10), "██████████");
        assert_eq!(blocks(50, 100, 10), "█████");
        assert_eq!(blocks(51, 100, 10), "█████");
        assert_eq!(blocks(52, 100, 10), "█████▏");
        assert_eq!(blocks(59, 100, 10), "█████▉");
        assert_eq!(blocks(1, 1_000_000, 10), "▏");
        assert_eq!(blocks(u64::MAX, u64::MAX, 4), "████");
        assert_eq!(blocks(0, 0, 4), "");
    }
}

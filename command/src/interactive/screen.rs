//! The screen of `watch`.

use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Padding, Paragraph, Row, Sparkline, Table};

use super::sample::{Bounded, Counted, Latest, Sample, Tables};
use crate::bytes::Form;
use crate::{output, times};

/// Age of a key count above which the screen of `watch` shows its age.
const FRESH: Duration = Duration::from_secs(5);

/// Minimum width, in columns, at which the screen of `watch` has two boxes side by side. On a
/// narrower screen, the boxes are one below the other.
const WIDE: u16 = 90;

/// Width, in columns, to which a number after a label is right-aligned.
const NUMBER: usize = 14;

/// The settings of the `watch` screen, and the state that is kept between its frames.
pub struct Shown {
    pub path: String,
    pub form: Form,
    pub colored: bool,
    pub interval: Duration,
    /// Number of families that are scrolled out of view above the first visible one.
    pub scrolled: usize,
}

impl Shown {
    fn color(&self, color: Color) -> Style {
        if self.colored { Style::new().fg(color) } else { Style::new() }
    }

    fn dim(&self) -> Style {
        if self.colored { Style::new().dim() } else { Style::new() }
    }

    fn block<'a>(&self, title: &'a str) -> Block<'a> {
        Block::bordered()
            .border_type(BorderType::Rounded)
            .border_style(self.dim())
            .title(Span::styled(format!(" {title} "), Style::new().bold()))
    }
}

pub fn draw(frame: &mut Frame<'_>, shown: &mut Shown, latest: &Latest) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(3), Constraint::Length(1)])
            .areas(frame.area());
    // The store's clock, extrapolated from the last sample.
    let now_ms = latest.sample.as_ref().map_or_else(times::now_here_ms, |(sample, at)| {
        sample.now_ms.saturating_add(i64::try_from(at.elapsed().as_millis()).unwrap_or_default())
    });
    let title = Line::from(vec![
        Span::styled(" kvstore watch ", shown.color(Color::Green).bold()),
        Span::raw(shown.path.as_str()),
    ]);
    let [left, right] = sides(head);
    frame.render_widget(title, left);
    let now = Line::styled(format!("{} ", times::local(now_ms)), shown.dim());
    frame.render_widget(now.alignment(Alignment::Right), right);
    foot_line(frame, foot, shown, latest);
    let Some((sample, _)) = &latest.sample else {
        frame.render_widget(Paragraph::new("\n  reading …").style(shown.dim()), body);
        return;
    };
    let [store_area, soon_area, families_area, next_area] = boxes(body);
    file(frame, store_area, shown, sample, latest);
    soon(frame, soon_area, shown, sample);
    families(frame, families_area, shown, sample, latest);
    next(frame, next_area, shown, sample, now_ms);
}

/// Returns the areas of the four boxes of the `watch` screen: store, keys that expire, families,
/// and next to expire.
fn boxes(body: Rect) -> [Rect; 4] {
    if body.width < WIDE {
        return Layout::vertical([
            Constraint::Length(7),
            Constraint::Length(7),
            Constraint::Min(4),
            Constraint::Min(3),
        ])
        .areas(body);
    }
    let [top, bottom] = Layout::vertical([Constraint::Length(8), Constraint::Min(3)]).areas(body);
    let halves = [Constraint::Percentage(50), Constraint::Percentage(50)];
    let [store, soon] = Layout::horizontal(halves).areas(top);
    let [families, next] = sides(bottom);
    [store, soon, families, next]
}

/// Returns a label and a value that together take at most `width` columns. The label may be cut.
/// The value is whole, or `…`, because part of a number would be another number. Values of at most
/// [`NUMBER`] columns are right-aligned.
fn labelled(label: &str, label_width: usize, value: &str, width: usize) -> [String; 2] {
    let value = if value.chars().count() < width { value } else { "…" };
    let length = value.chars().count();
    let left = (label_width + NUMBER.saturating_sub(length)).min(width.saturating_sub(1 + length));
    let label: String = label.chars().take(left.saturating_sub(1)).collect();
    [format!(" {label:<left$}"), value.to_owned()]
}

/// Splits an area into a left area (60 % of the width) and a right area (40 %).
fn sides(line: Rect) -> [Rect; 2] {
    Layout::horizontal([Constraint::Percentage(60), Constraint::Percentage(40)]).areas(line)
}

fn foot_line(frame: &mut Frame<'_>, area: Rect, shown: &Shown, latest: &Latest) {
    let [left, area] = sides(area);
    frame.render_widget(Line::styled(" q quit   ↑↓ scroll families", shown.dim()), left);
    let age = latest.sample.as_ref().map(|(_, at)| at.elapsed());
    let right = match (&latest.trouble, age) {
        (Some(trouble), _) => {
            let trouble = trouble.lines().next().unwrap_or_default();
            Line::styled(format!("{trouble} "), shown.color(Color::Yellow))
        }
        (None, Some(age)) if age > shown.interval + Duration::from_secs(2) => {
            Line::styled(format!("last update {} ago ", brief(age)), shown.color(Color::Yellow))
        }
        _ => Line::styled(format!("every {} ", brief(shown.interval)), shown.dim()),
    };
    frame.render_widget(right.alignment(Alignment::Right), area);
}

fn brief(duration: Duration) -> String {
    times::duration(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Formats a change per second: `+12/s`; empty for 0 and `None`. `unit` formats the absolute
/// amount.
fn change(per_second: Option<f64>, unit: impl Fn(u64) -> String) -> String {
    let Some(per_second) = per_second else { return String::new() };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // not negative; saturates
    let amount = per_second.abs().round() as u64;
    match (amount, per_second < 0.0) {
        (0, _) => String::new(),
        (_, true) => format!("−{}/s", unit(amount)),
        (_, false) => format!("+{}/s", unit(amount)),
    }
}

fn file(frame: &mut Frame<'_>, area: Rect, shown: &Shown, sample: &Sample, latest: &Latest) {
    let block = shown.block("store");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [lines, spark] = Layout::vertical([Constraint::Length(5), Constraint::Min(0)]).areas(inner);
    let counts: Vec<&Counted> =
        sample.families.iter().filter_map(|(name, _)| latest.counts.get(name)).collect();
    let keys = if counts.len() == sample.families.len() {
        output::count(counts.iter().map(|counted| counted.keys).sum())
    } else {
        "counting …".to_owned()
    };
    let rates: Vec<f64> = counts.iter().filter_map(|counted| counted.per_second).collect();
    let keys_rate = (!rates.is_empty()).then(|| rates.iter().sum());
    let width = usize::from(inner.width);
    let row = |name: &str, value: String, rate: String| {
        let [label, value] = labelled(name, 9, &value, width);
        let left = width.saturating_sub(label.chars().count() + value.chars().count() + 2);
        let rate = if rate.chars().count() > left { String::new() } else { format!("  {rate}") };
        Line::from(vec![
            Span::styled(label, shown.dim()),
            Span::raw(value),
            Span::styled(rate, shown.color(Color::Cyan)),
        ])
    };
    if let Some(server) = &sample.server {
        let size = |of: fn(&Tables) -> u64| {
            server.tables.as_ref().map_or_else(|| "unknown".to_owned(), |tables| output::size(of(tables)))
        };
        let lines_shown = vec![
            row("keys", keys, change(keys_rate, output::count)),
            row("rows", size(|tables| tables.rows), String::new()),
            row("indexes", size(|tables| tables.indexes), String::new()),
            row("total", size(|tables| tables.total), change(sample.used_per_second, output::size)),
            row("server", if server.is_standby { "standby" } else { "primary" }.to_owned(), String::new()),
        ];
        frame.render_widget(Paragraph::new(lines_shown), lines);
        return;
    }
    let commits = match sample.commits_per_second {
        Some(per_second) => format!("{per_second:.0}/s"),
        None if sample.used_per_second.is_some() => "not counted in this journal mode".to_owned(),
        None => "…".to_owned(),
    };
    let free = format!("{} free", output::size(sample.free_bytes));
    let lines_shown = vec![
        row("keys", keys, change(keys_rate, output::count)),
        row("data", output::size(sample.used_bytes), change(sample.used_per_second, output::size)),
        row("file", output::size(sample.file_bytes), free),
        row("WAL", output::size(sample.wal_bytes), String::new()),
        row("commits", commits, String::new()),
    ];
    frame.render_widget(Paragraph::new(lines_shown), lines);
    let width = usize::from(spark.width.saturating_sub(1));
    let rates =
        sample.commit_rates.get(sample.commit_rates.len().saturating_sub(width)..).unwrap_or_default();
    let spark =
        Rect { x: spark.x + u16::from(spark.width > 0), width: spark.width.saturating_sub(1), ..spark };
    frame.render_widget(Sparkline::default().data(rates).style(shown.color(Color::Cyan)), spark);
}

fn bounded(bounded: Bounded) -> String {
    format!("{}{}", output::count(bounded.count), if bounded.more { "+" } else { "" })
}

fn soon(frame: &mut Frame<'_>, area: Rect, shown: &Shown, sample: &Sample) {
    let width = usize::from(area.width.saturating_sub(2));
    let row = |name: &str, number: Bounded, style: Style| {
        let style = if number.count == 0 { shown.dim() } else { style };
        let [label, number] = labelled(name, 22, &bounded(number), width);
        Line::from(vec![Span::styled(label, shown.dim()), Span::styled(number, style)])
    };
    let soon = &sample.soon;
    let lines = vec![
        row("in the next minute", soon.minute, shown.color(Color::Yellow)),
        row("in the next hour", soon.hour, Style::new()),
        row("in the next day", soon.day, Style::new()),
        Line::default(),
        row("expired, not purged", soon.expired, shown.color(Color::Red)),
    ];
    frame.render_widget(Paragraph::new(lines).block(shown.block("keys that expire")), area);
}

/// Returns the columns of the family table that fit into `width` terminal columns: the index and
/// the width of each. `ages` is whether the table has a column of ages.
fn columns(width: usize, ages: bool) -> Vec<(usize, u16)> {
    const WIDTHS: [u16; 6] = [8, 11, 9, 7, 7, 11];
    /// Indexes of the columns, in the order in which they are left out if the screen is narrow:
    /// age, change, in 1h, expired, keys.
    const LEFT_OUT: [usize; 5] = [5, 2, 3, 4, 1];
    let mut columns: Vec<_> = WIDTHS.into_iter().enumerate().filter(|(n, _)| ages || *n != 5).collect();
    for left_out in LEFT_OUT {
        let needed = columns.iter().map(|(_, width)| usize::from(*width) + 1).sum::<usize>();
        if needed <= width + 1 {
            break;
        }
        columns.retain(|(n, _)| *n != left_out);
    }
    columns
}

fn families(frame: &mut Frame<'_>, area: Rect, shown: &mut Shown, sample: &Sample, latest: &Latest) {
    let mut order: Vec<_> =
        sample.families.iter().map(|(name, soon)| (name, soon, latest.counts.get(name))).collect();
    // Families with the most keys first; a stable sort.
    order.sort_by_key(|(_, _, counted)| std::cmp::Reverse(counted.map(|counted| counted.keys)));
    let room = usize::from(area.height.saturating_sub(3)).max(1);
    shown.scrolled = shown.scrolled.min(order.len().saturating_sub(room));
    let last = (shown.scrolled + room).min(order.len());
    let columns = columns(
        usize::from(area.width.saturating_sub(4)),
        latest.counts.values().any(|counted| counted.at.elapsed() > FRESH),
    );
    let kept = |cells: [Line<'static>; 6]| {
        let cells = cells.into_iter().enumerate().filter(|(n, _)| columns.iter().any(|(kept, _)| kept == n));
        Row::new(cells.map(|(_, cell)| cell).collect::<Vec<_>>())
    };
    let rows = order.get(shown.scrolled..last).unwrap_or_default().iter().map(|(name, soon, counted)| {
        let keys = counted.map_or_else(|| "…".to_owned(), |counted| output::count(counted.keys));
        let rate = counted.map_or_else(String::new, |counted| change(counted.per_second, output::count));
        let age = counted.map_or(Duration::ZERO, |counted| Instant::now() - counted.at);
        let age = if age > FRESH { format!("{} ago", brief(age)) } else { String::new() };
        kept([
            Line::raw(Form::Text.show(name.as_bytes()).into_owned()),
            Line::raw(keys).alignment(Alignment::Right),
            Line::styled(rate, shown.color(Color::Cyan)).alignment(Alignment::Right),
            Line::raw(bounded(soon.hour)).alignment(Alignment::Right),
            Line::raw(bounded(soon.expired)).alignment(Alignment::Right),
            Line::styled(age, shown.dim()),
        ])
    });
    let right = |text: &'static str| Line::raw(text).alignment(Alignment::Right);
    let head = kept([
        Line::raw("family"),
        right("keys"),
        right("change"),
        right("in 1h"),
        right("expired"),
        Line::raw(""),
    ]);
    let widths = columns.iter().map(|(n, width)| match n {
        0 => Constraint::Min(*width),
        _ => Constraint::Length(*width),
    });
    let title = match order.len() {
        all if all > room => format!("families {}–{last} of {all}", shown.scrolled + 1),
        all => format!("families: {all}"),
    };
    let table = Table::new(rows, widths).header(head.style(shown.dim()));
    let table = table.block(shown.block(&title).padding(Padding::horizontal(1)));
    frame.render_widget(table, area);
}

fn next(frame: &mut Frame<'_>, area: Rect, shown: &Shown, sample: &Sample, now_ms: i64) {
    let keys: Vec<_> = sample.next.iter().map(|next| shown.form.show(&next.key)).collect();
    let width = keys.iter().map(|key| key.chars().count()).max().unwrap_or_default().min(24);
    let lines = sample.next.iter().zip(&keys).map(|(next, key)| {
        let left_ms = next.expire_ms.saturating_sub(now_ms);
        let (left, style) = match left_ms {
            ..=0 => ("expired".to_owned(), shown.color(Color::Red)),
            1..60_000 => (times::duration(left_ms.unsigned_abs()), shown.color(Color::Yellow)),
            _ => (times::duration(left_ms.unsigned_abs()), Style::new()),
        };
        Line::from(vec![
            Span::styled(format!(" {left:>8}  "), style),
            Span::raw(format!("{key:<width$}")),
            Span::styled(format!("  {}", Form::Text.show(next.family.as_bytes())), shown.dim()),
        ])
    });
    let lines: Vec<_> = lines.collect();
    let lines = if lines.is_empty() { vec![Line::styled(" nothing expires", shown.dim())] } else { lines };
    frame.render_widget(Paragraph::new(lines).block(shown.block("next to expire")), area);
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::interactive::sample::{Next, OnServer, Soon};

    fn latest() -> Latest {
        let some = |count| Bounded { count, more: false };
        let soon = Soon {
            minute: some(3),
            hour: Bounded { count: 10_000, more: true },
            day: some(20_000),
            expired: some(0),
        };
        let next =
            Next { expire_ms: kvstore::now_ms() + 65_500, family: "f0".to_owned(), key: b"k\xff".to_vec() };
        let sample = Sample {
            now_ms: kvstore::now_ms(),
            file_bytes: 4096,
            families: (0..40).map(|n| (format!("f{n}"), soon)).collect(),
            soon,
            next: vec![next],
            used_per_second: Some(-2048.0),
            commits_per_second: Some(12.4),
            commit_rates: vec![1, 2, 3],
            ..Sample::default()
        };
        let mut latest = Latest::default();
        latest.sample = Some((sample, Instant::now()));
        for n in 0..40 {
            let counted = Counted { keys: 1000 + n, at: Instant::now(), per_second: Some(1.0) };
            latest.counts.insert(format!("f{n}"), counted);
        }
        latest
    }

    fn drawn(width: u16, height: u16, shown: &mut Shown, latest: &Latest) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, shown, latest)).unwrap();
        terminal.backend().to_string()
    }

    fn shown() -> Shown {
        Shown {
            path: "app.db".to_owned(),
            form: Form::Text,
            colored: false,
            interval: Duration::from_secs(1),
            scrolled: 0,
        }
    }

    #[test]
    fn all_samples_are_drawn() {
        let picture = drawn(100, 30, &mut shown(), &latest());
        for text in [
            "app.db",
            "40 780  +40/s",
            "−2.0 kB/s",
            "12/s",
            "10 000+",
            "20 000",
            "1m 05s  k\\xff  f0",
            "1–17 of 40",
        ] {
            assert!(picture.contains(text), "{text}: {picture}");
        }
        // The largest family is the first.
        assert!(picture.find("f39").unwrap() < picture.find("f38").unwrap());
    }

    #[test]
    fn value_longer_than_a_number_keeps_its_label() {
        let mut latest = latest();
        latest.sample.as_mut().unwrap().0.commits_per_second = None;
        for width in [60, 100] {
            let picture = drawn(width, 40, &mut shown(), &latest);
            assert!(picture.contains("commits  not counted in this journal mode"), "{picture}");
        }
    }

    #[test]
    fn server_store_shows_tables_and_no_files() {
        let mut latest = latest();
        let tables = Tables { rows: 2_500_000, indexes: 1_500_000, total: 4_100_000 };
        let sample = &mut latest.sample.as_mut().unwrap().0;
        sample.server = Some(OnServer { tables: Some(tables), is_standby: true });
        let picture = drawn(100, 30, &mut shown(), &latest);
        for text in ["40 780  +40/s", "2.5 MB", "1.5 MB", "4.1 MB  −2.0 kB/s", "standby"] {
            assert!(picture.contains(text), "{text}: {picture}");
        }
        for meaningless in ["WAL", "commits", "free", "file", "0 B"] {
            assert!(!picture.contains(meaningless), "{meaningless}: {picture}");
        }
        latest.sample.as_mut().unwrap().0.server = Some(OnServer::default());
        assert!(drawn(100, 30, &mut shown(), &latest).contains("unknown"));
    }

    #[test]
    fn scrolling_stops_at_the_last_family() {
        let mut shown = shown();
        shown.scrolled = 1000;
        let picture = drawn(100, 30, &mut shown, &latest());
        assert!(picture.contains("24–40 of 40"), "{picture}");
        assert_eq!(shown.scrolled, 23);
    }

    #[test]
    fn numbers_are_whole_or_absent_at_any_width() {
        for width in 1..140 {
            let picture = drawn(width, 60, &mut shown(), &latest());
            // Numbers are groups of three digits, separated by a space.
            for line in picture.lines().filter(|line| line.contains("in the next")) {
                let number = line.rsplit("in the next").next().unwrap_or_default();
                let number: String = number.chars().filter(|c| c.is_ascii_digit() || *c == '+').collect();
                assert!(["", "3", "10000+", "20000"].contains(&&*number), "{width}: {number}: {picture}");
            }
            for part in ["10 000 ", "40 78 ", "40 7 ", "20 00 ", "20 0 "] {
                assert!(!picture.contains(part), "{width}: {part}: {picture}");
            }
        }
        let picture = drawn(60, 40, &mut shown(), &latest());
        for text in ["40 780  +40/s", "10 000+", "20 000", "1m 05s  k\\xff  f0", "1 039"] {
            assert!(picture.contains(text), "{text}: {picture}");
        }
    }

    #[test]
    fn any_terminal_size_is_drawn() {
        for (width, height) in [(1, 1), (2, 30), (10, 5), (30, 9), (300, 2), (500, 200)] {
            drawn(width, height, &mut shown(), &latest());
            drawn(width, height, &mut shown(), &Latest::default());
        }
    }

    #[test]
    fn failed_sample_is_shown_in_the_footer() {
        let mut latest = latest();
        latest.trouble = Some("busy\n  wait".to_owned());
        assert!(drawn(100, 30, &mut shown(), &latest).contains("busy "));
    }
}

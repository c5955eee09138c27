//! `expiring`: what goes when.

use clap::Args;

use super::buckets::{self, Bucket};
use super::chart::{self, ChartArgs};
use super::ends::{self, Ends, Lines};
use crate::cli::Context;
use crate::failure::{Answer, Result};
use crate::output::DIM;
use crate::place::{For, StoreArgs};
use crate::times::{self, Moment};

/// List the keys that will expire, in the order of their ends
///
/// Over all families, or one. Keys that have expired and are still there are listed with --dead. With --chart, how many
/// expire when, as bars.
#[derive(Debug, Args)]
#[command(
    after_help = "Piped: key, family, moment (UTC) and milliseconds left, with tabs between them; the chart: the \
beginning of each bar's time (UTC) and the count. As JSON: key, family, expire_ms, ttl_ms, expired; the chart: from_ms, \
to_ms, count.

Examples:
  kvstore expiring app.db --limit 20             what goes next
  kvstore expiring app.db -f otp --to +5m        what goes in the next five minutes
  kvstore expiring app.db --dead --to now        what has gone, and waits for a purge
  kvstore expiring app.db --chart                when how many go
  kvstore expiring app.db --chart --bucket 1h --to +2d"
)]
pub struct ExpiringArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Only the keys of this family
    #[arg(short, long, value_name = "NAME")]
    family: Option<String>,
    /// Only what ends then or later
    #[arg(long, value_name = "TIME", value_parser = times::parse_moment, allow_hyphen_values = true)]
    from: Option<Moment>,
    /// Only what ends before then
    #[arg(long, value_name = "TIME", value_parser = times::parse_moment, allow_hyphen_values = true)]
    to: Option<Moment>,
    /// At most so many keys
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "chart")]
    limit: Option<u64>,
    /// Also keys that have expired and are still there
    #[arg(long)]
    dead: bool,
    /// How many end when, as bars
    #[arg(long)]
    chart: bool,
    /// The time of a bar: a duration, "month" or "year"
    #[arg(long, value_name = "DURATION", value_parser = buckets::parse, requires = "chart")]
    bucket: Option<Bucket>,
}

impl ExpiringArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let store = self.store.open(For::Looking, &context.secrets)?;
        let families = ends::families(&store, self.family.as_deref())?;
        let now_ms = store.now_ms();
        let at = |moment: Option<Moment>| moment.map(|moment| moment.millis(now_ms));
        let first_ms = if self.dead { i64::MIN } else { now_ms.saturating_add(1) };
        let from_ms = at(self.from).unwrap_or(i64::MIN).max(first_ms);
        let to_ms = at(self.to).unwrap_or(i64::MAX);
        if self.chart {
            return chart::run(
                context,
                &families,
                &ChartArgs { from_ms, to_ms, now_ms, bucket: self.bucket },
            );
        }
        let lines = Lines::new(context.form, now_ms, &families);
        let mut ends = Ends::new(&families, from_ms, to_ms)?;
        let mut shown = 0;
        while self.limit.is_none_or(|limit| shown < limit)
            && let Some(end) = ends.next()?
        {
            if shown == 0 && context.out.is_for_people() {
                lines.head(&mut context.out)?;
            }
            lines.show(&mut context.out, &end)?;
            shown += 1;
        }
        if shown == 0 && context.out.is_for_people() {
            let line = context.out.paint(DIM, "nothing expires");
            context.out.line(line)?;
        }
        Ok(Answer::Yes)
    }
}

//! `expiring`: keys in order of expiry.

use clap::Args;

use super::buckets::{self, Bucket};
use super::chart::{self, ChartArgs};
use super::expiring_keys::{self, ExpiringKeys, Lines};
use crate::context::Context;
use crate::failure::{Answer, Result};
use crate::output::DIM;
use crate::store_arg::{Purpose, StoreArgs};
use crate::times::{self, Moment};

/// List keys in order of expiry, or chart them
///
/// Lists the keys of all families, or of one. --expired includes keys that have expired but have
/// not been purged. --chart draws how many keys expire when.
#[derive(Debug, Args)]
#[command(
    after_help = "In a pipe, prints tab-separated fields: key, family, expiry time (UTC), milliseconds left; for a chart: \
start of the bar (UTC), number of keys. With --json: key, family, expire_ms, ttl_ms, expired; for a chart: from_ms, to_ms, \
count.

Examples:
  kvstore expiring app.db --limit 20             the next 20 keys
  kvstore expiring app.db -f otp --to +5m        the next five minutes
  kvstore expiring app.db --from 22:00 --to tomorrow
  kvstore expiring app.db --expired --to now     expired, not purged
  kvstore expiring app.db --chart
  kvstore expiring app.db --chart --bucket 1h --to +2d"
)]
pub struct ExpiringArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Only this family [default: all]
    #[arg(short, long, value_name = "NAME")]
    family: Option<String>,
    /// Only keys that expire at or after TIME: +2h, tomorrow, 06:00, "2027-01-01 12:00"
    #[arg(long, value_name = "TIME", value_parser = times::parse_moment, allow_hyphen_values = true)]
    from: Option<Moment>,
    /// Only keys that expire before TIME
    #[arg(long, value_name = "TIME", value_parser = times::parse_moment, allow_hyphen_values = true)]
    to: Option<Moment>,
    /// At most N keys
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "chart")]
    limit: Option<u64>,
    /// Include keys that have expired but have not been purged
    #[arg(long)]
    expired: bool,
    /// Draw a bar chart of the number of keys over time
    #[arg(long)]
    chart: bool,
    /// Time span of a bar: a duration, "month" or "year" [default: automatic]
    #[arg(long, value_name = "DURATION", value_parser = buckets::parse, requires = "chart")]
    bucket: Option<Bucket>,
}

impl ExpiringArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let store = self.store.open(Purpose::Read, &context.secrets)?;
        let families = expiring_keys::families(&store, self.family.as_deref())?;
        let now_ms = store.now_ms();
        let at = |moment: Option<Moment>| moment.map(|moment| moment.millis(now_ms));
        let first_ms = if self.expired { i64::MIN } else { now_ms.saturating_add(1) };
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
        let mut keys = ExpiringKeys::new(&families, from_ms, to_ms)?;
        let mut shown = 0;
        while self.limit.is_none_or(|limit| shown < limit)
            && let Some(key) = keys.next()?
        {
            if shown == 0 && context.out.is_for_people() {
                lines.head(&mut context.out)?;
            }
            lines.show(&mut context.out, &key)?;
            shown += 1;
        }
        if shown == 0 && context.out.is_for_people() {
            let line = context.out.paint(DIM, "nothing expires");
            context.out.line(line)?;
        }
        Ok(Answer::Yes)
    }
}

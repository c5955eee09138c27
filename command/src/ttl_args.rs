//! The expiry of a written key: `--ttl`, `--at`, `--no-ttl`.

use std::time::Duration;

use clap::Args;
use kvstore::{Expiry, Store};

use crate::context::Context;
use crate::times::{self, Moment};

#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct ExpiryArgs {
    /// TTL: 90s, 15m, 2h, 7d, 1h30m
    #[arg(short, long, value_name = "DURATION", value_parser = times::parse_ttl, help_heading = "Expiry")]
    pub ttl: Option<Duration>,
    /// Expiry time: +2h, tomorrow, 06:00, 2027-01-01T00:00Z, "2027-01-01 12:00", @1798761600
    #[arg(long, value_name = "TIME", value_parser = times::parse_moment, allow_hyphen_values = true, help_heading = "Expiry")]
    pub at: Option<Moment>,
    /// No TTL, even if the family has a default TTL
    #[arg(long, help_heading = "Expiry")]
    pub no_ttl: bool,
}

impl ExpiryArgs {
    /// Returns the expiry that the options set; `None` without an option, so that the family's
    /// default TTL applies.
    pub fn expiry(&self, store: &Store) -> Option<Expiry> {
        match (self.ttl, self.at) {
            (Some(ttl), _) => Some(store.expiry_after(ttl)),
            (_, Some(at)) => Some(Expiry::At(at.millis(store.now_ms()))),
            _ => self.no_ttl.then_some(Expiry::Never),
        }
    }
}

/// Formats the time left until `expiry`: `2h 05m` on a terminal, milliseconds in a pipe, or
/// `never`. The time left is 0 if the key has expired.
pub fn left(context: &Context, expiry: Expiry, now_ms: i64) -> String {
    match expiry.millis() {
        None => "never".to_owned(),
        Some(end) => {
            let left = end.saturating_sub(now_ms).max(0).unsigned_abs();
            if context.out.is_for_people() { times::duration(left) } else { left.to_string() }
        }
    }
}

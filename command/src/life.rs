//! How long a key is to live: `--ttl`, `--at`, `--no-ttl`.

use std::time::Duration;

use clap::Args;
use kvstore::{Expiry, Store};

use crate::cli::Context;
use crate::times::{self, Moment};

#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct LifeArgs {
    /// It lives so long from now on: 90s, 15m, 2h, 7d, 1h30m
    #[arg(short, long, value_name = "DURATION", value_parser = times::parse_ttl, help_heading = "How long it lives")]
    pub ttl: Option<Duration>,
    /// It lives until then: 2027-01-01T00:00Z, "2027-01-01 12:00", +2h, @1798761600
    #[arg(long, value_name = "TIME", value_parser = times::parse_moment, allow_hyphen_values = true, help_heading = "How long it lives")]
    pub at: Option<Moment>,
    /// It lives for ever, whatever the family's default TTL is
    #[arg(long, help_heading = "How long it lives")]
    pub no_ttl: bool,
}

impl LifeArgs {
    /// The end that was asked for; `None`: nothing was said, and the family's default TTL holds.
    pub fn expiry(&self, store: &Store) -> Option<Expiry> {
        match (self.ttl, self.at) {
            (Some(ttl), _) => Some(store.expiry_after(ttl)),
            (_, Some(at)) => Some(Expiry::At(at.millis(store.now_ms()))),
            _ => self.no_ttl.then_some(Expiry::Never),
        }
    }
}

/// How long until then, for people and for programs: `2h 05m` or milliseconds; `never`. A moment that has come: 0.
pub fn left(context: &Context, expiry: Expiry, now_ms: i64) -> String {
    match expiry.millis() {
        None => "never".to_owned(),
        Some(end) => {
            let left = end.saturating_sub(now_ms).max(0).unsigned_abs();
            if context.out.is_for_people() { times::duration(left) } else { left.to_string() }
        }
    }
}

//! `next`: the key that expires next.

use clap::Args;

use super::ends::{self, Ends, Lines};
use crate::cli::Context;
use crate::failure::{Answer, Result};
use crate::place::{For, StoreArgs};

/// Show the key that expires next
#[derive(Debug, Args)]
#[command(
    after_help = "The output is that of \"kvstore expiring\". Exit status 1: no key has an expiry time in the future.

Examples:
  kvstore next app.db
  kvstore next app.db -f sessions --json"
)]
pub struct NextArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Only this family [default: all]
    #[arg(short, long, value_name = "NAME")]
    family: Option<String>,
}

impl NextArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let store = self.store.open(For::Looking, &context.secrets)?;
        let families = ends::families(&store, self.family.as_deref())?;
        let now_ms = store.now_ms();
        let mut ends = Ends::new(&families, now_ms.saturating_add(1), i64::MAX)?;
        let Some(end) = ends.next()? else { return Ok(Answer::No) };
        Lines::new(context.form, now_ms, &families).show(&mut context.out, &end)?;
        Ok(Answer::Yes)
    }
}

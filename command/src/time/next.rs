//! `next`: the next key to expire.

use clap::Args;

use super::ends::{self, Ends, Lines};
use crate::cli::Context;
use crate::failure::{Answer, Result};
use crate::place::{For, StoreArgs};

/// Show the key that will expire next
#[derive(Debug, Args)]
#[command(
    after_help = "Shown as by \"kvstore expiring\". Exit code 1: no key of the store, or of the family, will expire.

Examples:
  kvstore next app.db
  kvstore next app.db -f sessions --json"
)]
pub struct NextArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Only the keys of this family
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

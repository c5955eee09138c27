//! `next`: the key that expires next.

use clap::Args;

use super::expiring_keys::{self, ExpiringKeys, Lines};
use crate::context::Context;
use crate::failure::{Answer, Result};
use crate::store_arg::{Purpose, StoreArgs};

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
        let store = self.store.open(Purpose::Read, &context.secrets)?;
        let families = expiring_keys::families(&store, self.family.as_deref())?;
        let now_ms = store.now_ms();
        let mut keys = ExpiringKeys::new(&families, now_ms.saturating_add(1), i64::MAX)?;
        let Some(key) = keys.next()? else { return Ok(Answer::No) };
        Lines::new(context.form, now_ms, &families).show(&mut context.out, &key)?;
        Ok(Answer::Yes)
    }
}

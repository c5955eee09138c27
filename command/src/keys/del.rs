//! `del`.

use std::ops::Bound;

use clap::Args;
use kvstore::{Direction, Family, KeyRange, Store};

use crate::confirm::{asks, confirm};
use crate::context::Context;
use crate::failure::{Answer, Result, refused};
use crate::json::Object;
use crate::output;
use crate::progress::{Interrupt, Progress};
use crate::range::ManyArgs;
use crate::store_arg::{FamilyArgs, Purpose, StoreFirst};

/// Maximum number of live keys that `del` removes from a range in one transaction.
const KEYS_PER_STEP: usize = 4096;

/// Remove keys, by name or by range
///
/// Named keys are removed in one transaction. A range is removed in transactions of 4096 keys,
/// between which other processes can write and Ctrl-C stops. Prints the number of removed keys, not
/// counting expired ones.
#[derive(Debug, Args)]
#[command(
    override_usage = "kvstore del [OPTIONS] <STORE> <KEY...|--prefix <PREFIX>|--from <KEY>|--to <KEY>|--all>",
    after_help = "Exit status 1: none of the keys existed.

Examples:
  kvstore del app.db user:1 user:2
  kvstore del app.db --prefix session: --yes
  kvstore del app.db --from 2026-01 --to 2026-07 -f log
  kvstore del app.db --all -f cache
    kvstore del app.db -- -odd            a key that starts with -"
)]
pub struct DelArgs {
    #[command(flatten)]
    store: StoreFirst,
    #[command(flatten)]
    many: ManyArgs,
    #[command(flatten)]
    family: FamilyArgs,
}

impl DelArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let keys = self.many.keys(context.form)?;
        let range = self.many.range(context.form)?;
        let store = self.store.open(Purpose::Write, &context.secrets)?;
        let family = self.family.of(&store)?;
        let deleted = match &range {
            Some(range) => delete_range(context, &family, range)?,
            None => delete_keys(&store, &family, &keys)?,
        };
        let Some(deleted) = deleted else { return Ok(Answer::No) };
        let out = &mut context.out;
        if out.json {
            out.object(Object::new().number("deleted", deleted))?;
        } else if out.is_terminal {
            out.line(format!("{} removed", output::keys(deleted)))?;
        } else {
            out.line(deleted.to_string())?;
        }
        Ok(Answer::from_bool(deleted > 0))
    }
}

fn delete_keys(store: &Store, family: &Family, keys: &[Vec<u8>]) -> Result<Option<u64>> {
    let deleted = store.transaction(|_| {
        keys.iter()
            .try_fold(0, |deleted, key| Ok::<u64, kvstore::Error>(deleted + u64::from(family.delete(key)?)))
    })?;
    Ok(Some(deleted))
}

/// Removes the keys of a range, at most [`KEYS_PER_STEP`] live keys in each transaction. Returns
/// the number of live keys removed; `None` if the user declines.
fn delete_range(context: &Context, family: &Family, range: &KeyRange) -> Result<Option<u64>> {
    if asks(context.yes) {
        let there = count(family, range)?;
        let what = format!("This removes {} of family \"{}\"", output::keys(there), family.name());
        if there > 0 && !confirm(&what, context.yes)? {
            return Ok(None);
        }
    }
    let interrupt = Interrupt::watch()?;
    let mut progress = Progress::new("removing", None);
    let mut deleted = 0;
    let mut cursor = family.cursor(range.clone(), Direction::Forward).keys_only();
    while !interrupt.came() {
        // A step removes all rows up to its last live key. If fewer live keys than a step are left,
        // the last step removes the whole range, with the expired rows after the last live key.
        cursor.first()?;
        let (mut keys, mut last) = (0, None);
        while keys < KEYS_PER_STEP {
            let fetched = cursor.fetch(KEYS_PER_STEP - keys)?;
            if fetched.len() == 0 {
                last = None;
                break;
            }
            keys += fetched.len();
            last = fetched.last().map(|entry| entry.key.to_vec());
        }
        let Some(last) = last else {
            deleted += family.delete_range(range)?;
            return Ok(Some(deleted));
        };
        let step = up_to(range, last);
        deleted += family.delete_range(&step)?;
        progress.set(deleted);
    }
    drop(progress);
    refused(format!(
        "stopped after removing {}: run the same command again to continue",
        output::keys(deleted)
    ))
}

/// Counts the live keys of a range.
fn count(family: &Family, range: &KeyRange) -> Result<u64> {
    let mut cursor = family.cursor(range.clone(), Direction::Forward).keys_only();
    let mut progress = Progress::new("counting", None);
    let mut keys = 0;
    cursor.first()?;
    loop {
        match cursor.fetch(usize::MAX)?.len() as u64 {
            0 => return Ok(keys),
            more => keys += more,
        }
        progress.set(keys);
    }
}

/// Returns the range from the start of `range` to the key `last`, inclusive.
fn up_to(range: &KeyRange, last: Vec<u8>) -> KeyRange {
    KeyRange::new(range.lower().map(<[u8]>::to_vec), Bound::Included(last))
}

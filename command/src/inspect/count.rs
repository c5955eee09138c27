//! `count`.

use clap::Args;
use kvstore::{Direction, Family, KeyRange, Store};

use super::table;
use crate::bytes::Form;
use crate::context::Context;
use crate::expiry::expiring_keys;
use crate::failure::{Answer, Result};
use crate::json::Object;
use crate::output::{self, DIM, Output};
use crate::progress::Progress;
use crate::range::ListedArgs;
use crate::store_arg::{Purpose, StoreArgs};

/// Count live and expired keys
///
/// Counts the keys of all families, or of one, in one snapshot. Expired keys are those that have
/// not been purged yet. In a pipe: live, expired and total, tab-separated, in a line per family
/// that ends with the family's name, and a last line with the sums (for one family, only the
/// numbers). With --json, one object per family.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kvstore count app.db
  kvstore count app.db session: -f web           keys that start with \"session:\"
  kvstore count app.db | tail -n 1 | cut -f1     live keys of all families")]
pub struct CountArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    range: ListedArgs,
    /// Only this family [default: all]
    #[arg(short, long, value_name = "NAME")]
    family: Option<String>,
}

/// The numbers of live and of expired keys of a family, or their sums over families.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    live: u64,
    expired: u64,
}

impl Counted {
    fn total(self) -> u64 {
        self.live + self.expired
    }

    fn line(self) -> String {
        format!("{}\t{}\t{}", self.live, self.expired, self.total())
    }

    fn columns(self, name: &str) -> Vec<String> {
        let numbers = [self.live, self.expired, self.total()].map(output::count);
        [name.to_owned()].into_iter().chain(numbers).collect()
    }
}

impl CountArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let range = self.range.range(context.form)?;
        let store = self.store.open(Purpose::Read, &context.secrets)?;
        let counted = store.snapshot(|_| {
            let families = expiring_keys::families(&store, self.family.as_deref())?;
            families
                .iter()
                .map(|family| Ok((family.name().to_owned(), self.count(&store, family, &range)?)))
                .collect::<Result<Vec<_>>>()
        })?;
        print(&mut context.out, &counted)?;
        Ok(Answer::Yes)
    }

    fn count(&self, store: &Store, family: &Family, range: &KeyRange) -> Result<Counted> {
        if self.range.is_given() {
            return count_range(store, family, range);
        }
        let live = family.count_live()?;
        Ok(Counted { live, expired: family.count()?.saturating_sub(live) })
    }
}

fn print(out: &mut Output, counted: &[(String, Counted)]) -> Result<()> {
    if out.json {
        for (name, keys) in counted {
            let mut object = Object::new();
            object.text("family", name).number("live", keys.live).number("expired", keys.expired);
            out.object(object.number("total", keys.total()))?;
        }
        return Ok(());
    }
    let sum = counted.iter().fold(Counted::default(), |sum, (_, keys)| Counted {
        live: sum.live + keys.live,
        expired: sum.expired + keys.expired,
    });
    let name = |name: &str| Form::Text.show(name.as_bytes()).into_owned();
    match (counted, out.is_terminal) {
        ([_], true) => {
            let rest = match sum.expired {
                0 => String::new(),
                expired => {
                    format!(" live, {} expired, {} total", output::count(expired), output::count(sum.total()))
                }
            };
            let rest = out.paint(DIM, rest);
            out.line(format!("{}{rest}", output::keys(sum.live)))?;
        }
        (families, true) => {
            let rows = families.iter().map(|(family, keys)| keys.columns(&name(family)));
            let rows = rows.chain([sum.columns("total")]);
            out.line(table(&["FAMILY", "KEYS", "EXPIRED", "TOTAL"], &[1, 2, 3], rows))?;
        }
        ([_], false) => out.line(sum.line())?,
        (families, false) => {
            for (family, keys) in families {
                out.line(format!("{}\t{}", keys.line(), name(family)))?;
            }
            out.line(sum.line())?;
        }
    }
    Ok(())
}

/// Counts the live and the expired keys of a range.
fn count_range(store: &Store, family: &Family, range: &KeyRange) -> Result<Counted> {
    let now_ms = store.now_ms();
    let mut progress = Progress::new("counting", None);
    let (mut live, mut expired) = (0, 0);
    let mut cursor = family.cursor(range.clone(), Direction::Forward).keys_only();
    cursor.first()?;
    loop {
        match cursor.fetch(usize::MAX)?.len() as u64 {
            0 => break,
            more => live += more,
        }
        progress.set(live);
    }
    let mut cursor = family.expiry_cursor(i64::MIN, now_ms.saturating_add(1)).keys_only();
    cursor.first()?;
    loop {
        let fetched = cursor.fetch(usize::MAX)?;
        if fetched.len() == 0 {
            return Ok(Counted { live, expired });
        }
        expired += fetched.filter(|entry| range.contains(entry.key)).count() as u64;
        progress.set(live + expired);
    }
}

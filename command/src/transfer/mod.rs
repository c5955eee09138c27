//! Commands that transfer data between stores and files.

pub mod copy;
pub mod dump;
mod format;
pub mod import;
pub mod load;
mod python;
mod resume;
mod sources;

use kvstore::{Cursor, Direction, Family, KeyRange, Store};

use crate::failure::Result;
use crate::json::Object;
use crate::output::Output;
use crate::store_arg::DEFAULT;

/// Returns the names of all families, the default one first.
fn all_families(store: &Store) -> Result<Vec<String>> {
    let mut names = store.family_names()?;
    names.insert(0, DEFAULT.to_owned());
    Ok(names)
}

/// Returns `true` if the family has a live key.
fn has_keys(family: &Family) -> Result<bool> {
    let mut cursor: Cursor = family.cursor(KeyRange::all(), Direction::Forward).keys_only();
    Ok(cursor.first()?)
}

/// Prints the result of a command. On a terminal, prints `text`. In a pipe, prints `numbers`, a
/// name and a number per line; with `--json`, prints them as one object.
fn report(out: &mut Output, text: &str, numbers: &[(&str, u64)]) -> Result<()> {
    if out.json {
        let mut object = Object::new();
        for (name, number) in numbers {
            object.number(name, *number);
        }
        out.object(&mut object)?;
    } else if out.is_terminal {
        out.line(text)?;
    } else {
        for (name, number) in numbers {
            out.line(format!("{name}\t{number}"))?;
        }
    }
    Ok(())
}

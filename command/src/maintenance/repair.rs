//! `repair`.

use clap::Args;
use kvstore::ErrorKind;

use crate::confirm::confirm;
use crate::context::Context;
use crate::failure::{Answer, Failure, Result};
use crate::json::Object;
use crate::output::{GOOD, count};
use crate::store_arg::{self, Purpose, StoreArgs};

/// Repair the tables and indexes of a store
///
/// Rebuilds indexes, views and the catalog from the rows where they differ, and removes rows whose
/// value is lost. Runs in one transaction: stopped at any moment, it has changed nothing. Lists on
/// stderr what could not be kept: rows, settings, and conflicting tables.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status 3: the file itself is damaged (see \"kvstore help recover\"); nothing was changed.

With --json, each loss is an object {\"lost\", \"key\"}, and the last line is {\"repaired\"}.

Examples:
  kvstore backup app.db before.db && kvstore repair app.db"
)]
pub struct RepairArgs {
    #[command(flatten)]
    store: StoreArgs,
}

impl RepairArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let path = self.store.path()?;
        store_arg::must_be_a_file(&path, "use the tools of PostgreSQL")?;
        let store = self.store.open_damaged(Purpose::Write, &context.secrets)?;
        let question = format!(
            "This rebuilds tables and indexes of {} from its rows, and removes incomplete rows",
            path.display()
        );
        if !confirm(&question, context.yes)? {
            return Ok(Answer::No);
        }
        // Losses are printed only after the commit: a repair that fails changes nothing.
        let mut lost: Vec<(String, Option<Vec<u8>>)> = Vec::new();
        let done =
            store.repair_with(|what| lost.push((what.message.to_owned(), what.key.map(<[u8]>::to_vec))));
        let repaired = done.map_err(|e| match e.kind() {
            ErrorKind::Corrupt | ErrorKind::Error => Failure::Damaged(format!(
                "{}\n  {}",
                e.message(),
                match store_arg::is_encrypted(&path) {
                    true => "restore a backup: \"kvstore recover\" cannot read encrypted files".to_owned(),
                    false =>
                        format!("save the readable rows with \"kvstore recover {} NEW\"", path.display()),
                }
            )),
            _ => e.into(),
        })?;
        let Context { out, form, .. } = context;
        for (text, key) in &lost {
            match key {
                Some(key) if out.json => out.object(Object::new().text("lost", text).bytes("key", key))?,
                None if out.json => out.object(Object::new().text("lost", text))?,
                Some(key) => say!("kvstore: {text}: {}", form.show(key)),
                None => say!("kvstore: {text}"),
            }
        }
        if out.json {
            out.object(Object::new().number("repaired", repaired))?;
        } else if out.is_terminal {
            let text = match repaired {
                0 => "nothing to repair".to_owned(),
                1 => "1 row, index entry or table repaired".to_owned(),
                _ => format!("{} rows, index entries or tables repaired", count(repaired)),
            };
            let text = out.paint(GOOD, text);
            out.line(text)?;
        } else {
            out.line(repaired.to_string())?;
        }
        store.close()?;
        Ok(Answer::Yes)
    }
}

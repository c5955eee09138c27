//! `repair`.

use clap::Args;
use kvstore::ErrorKind;

use crate::cli::Context;
use crate::confirm::confirm;
use crate::failure::{Answer, Failure, Result};
use crate::json::Object;
use crate::output::{GOOD, count};
use crate::place::{self, For, StoreArgs};

/// Make the tables of every family agree again
///
/// The rows are the truth: indexes, views and the catalogue are made from them anew where they differ. Rows whose
/// value is lost go; no value is invented. It is one transaction: stopped at any moment, nothing has changed. What could
/// not be kept (rows, settings, tables that were in the way) is named on stderr.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code 3: the file itself is damaged (see \"kvstore help recover\"); nothing was changed.

With --json each thing that could not be kept is an object {\"lost\", \"key\"}, and the last line is {\"mended\"}.

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
        place::must_be_a_file(&path, "there are no tables that could disagree; its own tools mend it")?;
        let store = self.store.open_damaged(For::Writing, &context.secrets)?;
        let question = format!(
            "Makes the tables of {} agree with its rows; rows of which a part is missing are removed",
            path.display()
        );
        if !confirm(&question, context.yes)? {
            return Ok(Answer::No);
        }
        // Told only when it has been committed.
        let mut lost: Vec<(String, Option<Vec<u8>>)> = Vec::new();
        let told =
            store.repair_with(|what| lost.push((what.message.to_owned(), what.key.map(<[u8]>::to_vec))));
        let mended = told.map_err(|e| match e.kind() {
            ErrorKind::Corrupt | ErrorKind::Error => Failure::Damaged(format!(
                "{e}\n  {}",
                match place::is_encrypted(&path) {
                    true => "go back to a backup: a recovery reads no encrypted files".to_owned(),
                    false => format!("save what can be read with \"kvstore recover {} NEW\"", path.display()),
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
            out.object(Object::new().number("mended", mended))?;
        } else if out.is_terminal {
            let text = match mended {
                0 => "nothing was to be mended".to_owned(),
                1 => "1 row, entry or table was mended".to_owned(),
                _ => format!("{} rows, entries or tables were mended", count(mended)),
            };
            let text = out.paint(GOOD, text);
            out.line(text)?;
        } else {
            out.line(mended.to_string())?;
        }
        store.close()?;
        Ok(Answer::Yes)
    }
}

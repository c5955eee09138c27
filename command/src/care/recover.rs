//! `recover`.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::Args;
use kvstore::{Config, ErrorKind, Loss, RecoverEvent, RecoverReport, Store};

use crate::bytes::Form;
use crate::cli::Context;
use crate::failure::{Answer, Failure, Result, refused};
use crate::json::Object;
use crate::output::{GOOD, Output, WARN, count, keys};
use crate::place;
use crate::progress::{Interrupt, Progress};

/// Save what can be read of a damaged file into a new one
///
/// The damaged file is only read, with the log beside it; nobody may have it open. Every row that can be read is saved
/// with its value, its end and its family; what is lost is listed. A row is never invented: a damaged page is not
/// used, and free pages, which have deleted rows on them, are not read. But a byte that was changed inside a key or a
/// value is not noticed. The new file gets its name when it is whole; Ctrl-C leaves none.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code 0: everything was saved; 1: some of it is lost, and NEW has the rest; 3: nothing was saved.

With --json each loss is an object {\"lost\", \"is_row\", \"key\", \"page\", \"why\"}, and the last line is {\"rows\", \
\"expired\", \"families\", \"rows_lost\", \"pages_lost\", \"other_losses\"}.

Examples:
  kvstore recover broken.db saved.db > lost.txt"
)]
pub struct RecoverArgs {
    /// The damaged file; "-" for the one named by $KVSTORE
    #[arg(value_hint = clap::ValueHint::FilePath)]
    store: String,
    /// The new store, which must not be there
    #[arg(value_hint = clap::ValueHint::FilePath)]
    new: PathBuf,
    /// How many losses are shown; 0: all
    #[arg(long, value_name = "N", default_value_t = 0)]
    max: u64,
}

impl RecoverArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let path = place::path(&self.store)?;
        place::must_be_a_file(&path, "go back to a backup of it")?;
        let copy = "recover into a file, look what is in it, and copy that (\"kvstore copy FILE URL\")";
        place::must_name_a_file(&self.new, "what is recovered", copy)?;
        if !path.exists() {
            return refused(format!("there is no file {} to recover from", place::shown(&path)));
        }
        if context.secrets.are_given() {
            return refused(format!(
                "a recovery reads no encrypted files: go back to a backup of {}, or mend it with \"kvstore repair\"",
                path.display()
            ));
        }
        let interrupt = Interrupt::watch()?;
        let mut progress = Progress::new("recovering pages", None);
        let Context { out, form, .. } = context;
        out.go_on_unread(true);
        let (mut shown, mut written) = (0u64, Ok(()));
        let recovered = kvstore::recover(&path, &self.new, |what| {
            match what {
                RecoverEvent::Progress { pages_done, pages_total } => {
                    progress.set_total(pages_total);
                    progress.set(pages_done);
                }
                RecoverEvent::Lost(loss) if self.max == 0 || shown < self.max => {
                    shown += 1;
                    written = show(&loss, out, *form);
                }
                _ => {}
            }
            match written.is_err() || interrupt.came() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        drop(progress);
        written?;
        let recovered = recovered.map_err(|e| match e.kind() {
            _ if interrupt.came() => Failure::Refused("the recovery was stopped; no file is left".to_owned()),
            ErrorKind::Error => e.into(), // about the new file
            ErrorKind::NotADatabase if is_encrypted(&path) => Failure::Refused(format!(
                "{}: the file is encrypted, or is no store: a recovery reads no encrypted files. Go back to a backup, or \
                 mend it with \"kvstore repair\"",
                path.display()
            )),
            _ => Failure::Refused(format!("{}: {e}", path.display())),
        })?;
        let losses = recovered.rows_lost + recovered.pages_lost + recovered.other_losses;
        if losses > shown && !out.json {
            out.line(format!("... and {} more: --max 0 shows all", count(losses - shown)))?;
        }
        self.sum(&recovered, out)?;
        Ok(Answer::from_bool(recovered.is_complete()))
    }

    fn sum(&self, recovered: &RecoverReport, out: &mut Output) -> Result<()> {
        let RecoverReport { rows, expired, families, rows_lost, pages_lost, other_losses, .. } = *recovered;
        if out.json {
            let mut object = Object::new();
            object.number("rows", rows).number("expired", expired).number("families", families);
            object.number("rows_lost", rows_lost).number("pages_lost", pages_lost);
            out.object(object.number("other_losses", other_losses))?;
            return Ok(());
        }
        // What is lost is the result; how it went is for people.
        out.flush()?;
        let style = if recovered.is_complete() { GOOD } else { WARN };
        let family = if families == 1 { "family" } else { "families" };
        let mut text =
            format!("{} in {} {family} saved in {}", keys(rows), count(families), self.new.display());
        if expired > 0 {
            text += &format!("; {} had expired and were left out", keys(expired));
        }
        text += &match recovered.is_complete() {
            true => "; nothing is lost".to_owned(),
            false => format!(
                "; lost: {} of which something was read, {} pages of which nothing was, {} other things",
                keys(rows_lost),
                count(pages_lost),
                count(other_losses)
            ),
        };
        let text = if out.is_for_people() { out.paint(style, text) } else { text };
        say!("kvstore: {text}");
        Ok(())
    }
}

/// Whether a file with no page that could be read is one that the library asks a password for.
fn is_encrypted(path: &Path) -> bool {
    Store::open_with(path, &Config::new().read_only(true)).is_err_and(|e| e.kind() == ErrorKind::AuthFailed)
}

fn show(loss: &Loss<'_>, out: &mut Output, form: Form) -> std::io::Result<()> {
    if out.json {
        let mut object = Object::new();
        object.text("lost", loss.location).bool("is_row", loss.is_row);
        if let Some(key) = loss.key {
            object.bytes("key", key);
        }
        object.optional("page", loss.page).text("why", loss.reason);
        return out.object(&mut object);
    }
    match loss.key {
        Some(key) => out.line(format!(
            "{}: \"{}\" is lost: {}{}",
            loss.location,
            form.show(key),
            loss.reason,
            loss.page.map_or(String::new(), |page| format!(" (page {page})"))
        )),
        None => out.line(loss.to_string()),
    }
}

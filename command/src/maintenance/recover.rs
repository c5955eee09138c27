//! `recover`.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::Args;
use kvstore::{Config, ErrorKind, Loss, RecoverEvent, RecoverReport, Store};

use crate::bytes::Form;
use crate::context::Context;
use crate::failure::{Answer, Failure, Result, refused};
use crate::json::Object;
use crate::output::{GOOD, Output, WARN, count, keys};
use crate::progress::{Interrupt, Progress};
use crate::store_arg;

/// Save the readable rows of a damaged file to a new store
///
/// Reads the damaged file and its log, which no other process may have open, and changes neither.
/// Saves every readable row with its value, expiry time and family, and lists the losses. Damaged
/// pages and free pages are not used, so no row is invented; a changed byte inside a key or value
/// is not detected. The new file gets its name when it is complete; Ctrl-C leaves none.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 everything was saved; 1 some rows are lost, and NEW has the rest; 3 nothing was saved.

With --json, each loss is an object {\"lost\", \"is_row\", \"key\", \"page\", \"why\"}, and the last line is {\"rows\", \
\"expired\", \"families\", \"rows_lost\", \"pages_lost\", \"other_losses\"}.

Examples:
  kvstore recover broken.db saved.db > lost.txt"
)]
pub struct RecoverArgs {
    /// Damaged file; "-" for $KVSTORE
    #[arg(value_hint = clap::ValueHint::FilePath)]
    store: String,
    /// File of the new store, which must not exist
    #[arg(value_hint = clap::ValueHint::FilePath)]
    new: PathBuf,
    /// Maximum number of losses to print; 0 for all
    #[arg(long, value_name = "N", default_value_t = 0)]
    max: u64,
}

impl RecoverArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let path = store_arg::path(&self.store)?;
        store_arg::must_be_a_file(&path, "restore a backup of the server")?;
        let copy = "recover to a file, check it, and copy it with \"kvstore copy FILE URL\"";
        store_arg::must_name_a_file(&self.new, "the recovered store", copy)?;
        store_arg::must_be_creatable(&self.new)?;
        if !path.exists() {
            return refused(format!("there is no file {}: check the path", store_arg::shown(&path)));
        }
        if context.secrets.are_given() {
            return refused(format!(
                "\"kvstore recover\" cannot read encrypted files: restore a backup of {}, or try \"kvstore repair\"",
                path.display()
            ));
        }
        let interrupt = Interrupt::watch()?;
        let mut progress = Progress::new("recovering pages", None);
        let Context { out, form, .. } = context;
        out.ignore_broken_pipe(true);
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
            _ if interrupt.came() => Failure::Refused("stopped: no file was written".to_owned()),
            ErrorKind::Error | ErrorKind::Full => Failure::of_target(&self.new, &e), // of the new file
            ErrorKind::NotADatabase if is_encrypted(&path) => Failure::Refused(format!(
                "{}: the file is encrypted or not a store: \"kvstore recover\" cannot read encrypted files; restore a backup, \
                 or try \"kvstore repair\"",
                path.display()
            )),
            _ => Failure::in_context(&format!("{}: ", path.display()), &e).into_refused(),
        })?;
        let losses = recovered.rows_lost + recovered.pages_lost + recovered.other_losses;
        if losses > shown && !out.json {
            out.line(format!("... and {} more: use --max 0 to print all", count(losses - shown)))?;
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
        // The losses are the output; this summary is a message on stderr.
        out.flush()?;
        let style = if recovered.is_complete() { GOOD } else { WARN };
        let family = if families == 1 { "family" } else { "families" };
        let mut text =
            format!("{} in {} {family} saved to {}", keys(rows), count(families), self.new.display());
        if expired > 0 {
            text += &format!("; {} had expired and were left out", keys(expired));
        }
        text += &match recovered.is_complete() {
            true => "; nothing is lost".to_owned(),
            false => format!(
                "; lost: {} that were partly read, {} unreadable pages, {} other items",
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

/// Returns `true` if the library needs a password to open the file. Called for a file without
/// readable pages, which may be encrypted.
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

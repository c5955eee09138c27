//! `check`.

use std::ops::ControlFlow;

use clap::Args;
use kvstore::internal::is_url;
use kvstore::{CheckEvent, CheckReport};

use crate::context::Context;
use crate::failure::{Answer, Failure, Result, refused};
use crate::json::Object;
use crate::output::{BAD, GOOD, Output, WARN, count};
use crate::progress::{Interrupt, Progress};
use crate::store_arg::{self, Purpose, StoreArgs};

/// Check the integrity of a store
///
/// Runs SQLite's integrity check, then compares the tables and indexes of every family. On a
/// server, checks that each row belongs to a family and has a valid key. Reads the whole store and
/// changes nothing; other processes may write meanwhile. Prints one line per inconsistency, then
/// what to do.
#[derive(Debug, Args)]
#[command(after_help = "Exit status 3: the store is inconsistent or damaged.

With --json, each inconsistency is an object {\"inconsistency\", \"key\"}, and the last line is \
{\"ok\", \"file_errors\", \"table_errors\", \"remedy\", \"stopped\"}. remedy is null, \"repair\", \"recover\", or, for \
encrypted stores and servers, \"backup\". stopped is null, or the error that ended the check early.

Examples:
  kvstore check app.db
  kvstore check app.db --max 0 --json > problems.jsonl")]
pub struct CheckArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Maximum number of inconsistencies to print; 0 for all
    #[arg(long, value_name = "N", default_value_t = 100)]
    max: u64,
}

/// The recommended remedy for an inconsistent store: `kvstore repair`, `kvstore recover`, or
/// restoring a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Remedy {
    Repair,
    Recover,
    /// Restore a backup, because `recover` cannot read encrypted files, and no command repairs a
    /// store on a server.
    Backup,
}

impl Remedy {
    fn of(checked: &CheckReport, is_encrypted: bool, is_on_a_server: bool) -> Option<Remedy> {
        match checked {
            CheckReport { table_errors: 1.., .. } if is_on_a_server => Some(Remedy::Backup),
            CheckReport { file_errors: 1.., .. } if is_encrypted => Some(Remedy::Backup),
            CheckReport { file_errors: 1.., .. } => Some(Remedy::Recover),
            CheckReport { table_errors: 1.., .. } => Some(Remedy::Repair),
            _ => None,
        }
    }

    /// Returns the name of the remedy in JSON.
    fn name(self) -> &'static str {
        match self {
            Remedy::Repair => "repair",
            Remedy::Recover => "recover",
            Remedy::Backup => "backup",
        }
    }
}

impl CheckArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        context.out.ignore_broken_pipe(true);
        let opened = self.store.open_damaged(Purpose::Read, &context.secrets);
        let Context { out, form, .. } = context;
        let is_encrypted = store_arg::is_encrypted(&self.store.path()?);
        let store = match opened {
            Err(Failure::Damaged(why)) => {
                let remedy = if is_encrypted { Remedy::Backup } else { Remedy::Recover };
                summary(out, &CheckReport::default(), Some(remedy), Some(&why))?;
                return Err(Failure::Damaged(why));
            }
            Err(Failure::Refused(why)) if self.store.path()?.exists() => {
                summary(out, &CheckReport::default(), None, Some(&why))?;
                return Err(Failure::Refused(why));
            }
            opened => opened?,
        };
        let mut progress = Progress::new("checking families", None);
        let interrupt = Interrupt::watch()?;
        let (mut shown, mut failed) = (0u64, Ok(()));
        let checked = store.check(|what| {
            match what {
                CheckEvent::Progress { families_done, families_total } => {
                    progress.set_total(families_total as u64);
                    progress.set(families_done as u64);
                }
                CheckEvent::Problem { message, key } if self.max == 0 || shown < self.max => {
                    shown += 1;
                    failed = if out.json {
                        let mut object = Object::new();
                        object.text("inconsistency", message);
                        if let Some(key) = key {
                            object.bytes("key", key);
                        }
                        out.object(&mut object)
                    } else {
                        let key = key.map_or(String::new(), |key| format!(": {}", form.show(key)));
                        out.line(format!("{message}{key}"))
                    };
                }
                _ => {}
            }
            if failed.is_err() || interrupt.came() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        drop(progress);
        failed?;
        if interrupt.came() {
            return refused("stopped before the check was complete");
        }
        let found = checked.file_errors + checked.table_errors;
        let path = self.store.path()?;
        let is_on_a_server = is_url(&path);
        let remedy = Remedy::of(&checked, is_encrypted, is_on_a_server);
        let stopped = checked.stopped_by.as_ref().map(kvstore::Error::message);
        summary(out, &checked, remedy, stopped)?;
        if !out.json && found > shown {
            let more = format!("... and {} more: use --max 0 to print all", count(found - shown));
            out.line(more)?;
        }
        if !out.json && checked.is_ok() {
            let ok = out.paint(GOOD, "ok");
            out.line(format!("{ok}: no inconsistencies"))?;
        }
        out.flush()?;
        let Some(remedy) = remedy else {
            return match checked.stopped_by {
                None => Ok(Answer::Yes),
                Some(why) => Err(why.into()),
            };
        };
        let path = store_arg::shown(&path);
        let advice = match remedy {
            Remedy::Repair => format!("\"kvstore repair {path}\" fixes them"),
            Remedy::Recover => format!(
                "the file itself is damaged and cannot be repaired: restore a backup, or save the readable rows with \
                 \"kvstore recover {path} NEW\""
            ),
            Remedy::Backup if is_on_a_server => {
                "restore a backup of the server; \"kvstore copy\" saves the readable keys to a file"
                    .to_owned()
            }
            Remedy::Backup => {
                "the file itself is damaged, and \"kvstore recover\" cannot read encrypted files: restore a backup"
                    .to_owned()
            }
        };
        let what = if found == 1 { "inconsistency" } else { "inconsistencies" };
        let style = if remedy == Remedy::Repair { WARN } else { BAD };
        let found = if out.is_for_people() { out.paint(style, count(found)) } else { count(found) };
        let stopped = if checked.stopped_by.is_some() { " before the check ended early" } else { "" };
        Err(Failure::Refused(format!("{found} {what}{stopped}: {advice}")))
    }
}

/// With `--json`, prints the last line of the output of `check`; otherwise prints nothing.
/// `stopped` is the error that ended the check early; only the first line of its text is printed.
fn summary(
    out: &mut Output,
    checked: &CheckReport,
    remedy: Option<Remedy>,
    stopped: Option<&str>,
) -> Result<()> {
    if !out.json {
        return Ok(());
    }
    let mut object = Object::new();
    object.bool("ok", checked.is_ok() && stopped.is_none());
    object.number("file_errors", checked.file_errors).number("table_errors", checked.table_errors);
    match remedy {
        Some(remedy) => object.text("remedy", remedy.name()),
        None => object.optional("remedy", None::<i64>),
    };
    match stopped.and_then(|why| why.lines().next()) {
        Some(why) => object.text("stopped", why),
        None => object.optional("stopped", None::<i64>),
    };
    out.object(&mut object)?;
    Ok(out.flush()?)
}

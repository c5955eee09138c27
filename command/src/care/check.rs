//! `check`.

use std::ops::ControlFlow;

use clap::Args;
use kvstore::internal::is_url;
use kvstore::{CheckEvent, CheckReport};

use crate::cli::Context;
use crate::failure::{self, Answer, Failure, Result, refused};
use crate::json::Object;
use crate::output::{BAD, GOOD, Output, WARN, count};
use crate::place::{self, For, StoreArgs};
use crate::progress::{Interrupt, Progress};

/// Check that everything in the store agrees
///
/// Reads all of it: first SQLite's own check, then whether the tables of every family agree with each other; on a server,
/// whether each row belongs to a family and has a key that may be. Changes nothing, and others may write meanwhile. Each
/// disagreement is a line, then comes what to do.
#[derive(Debug, Args)]
#[command(after_help = "Exit code 3: something does not agree.

With --json each disagreement is an object {\"disagreement\", \"key\"}, and the last line is \
{\"sound\", \"in_file\", \"in_tables\", \"remedy\", \"stopped\"}, where remedy is null, \"repair\", \"recover\" or, \
of an encrypted store or one on a server, \"backup\", and stopped is null, or says what kept the check from getting to \
its end.

Examples:
  kvstore check app.db
  kvstore check app.db --max 0 --json > wrong.jsonl")]
pub struct CheckArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// How many disagreements are shown; 0: all
    #[arg(long, value_name = "N", default_value_t = 100)]
    max: u64,
}

/// What mends what was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Remedy {
    Repair,
    Recover,
    /// Nothing reads damaged files that are encrypted, or mends what a server has.
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

    /// As the JSON has it.
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
        context.out.go_on_unread(true);
        let opened = self.store.open_damaged(For::Looking, &context.secrets);
        let Context { out, form, .. } = context;
        let is_encrypted = place::is_encrypted(&self.store.path()?);
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
                        object.text("disagreement", message);
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
            return refused("the check was stopped");
        }
        let found = checked.file_errors + checked.table_errors;
        let path = self.store.path()?;
        let is_on_a_server = is_url(&path);
        let remedy = Remedy::of(&checked, is_encrypted, is_on_a_server);
        let stopped = checked.stopped_by.as_ref().map(failure::cause);
        summary(out, &checked, remedy, stopped.as_deref())?;
        if !out.json && found > shown {
            let more = format!("... and {} more: --max 0 shows all", count(found - shown));
            out.line(more)?;
        }
        if !out.json && checked.is_ok() {
            let sound = out.paint(GOOD, "sound");
            out.line(format!("{sound}: nothing is to be done"))?;
        }
        out.flush()?;
        let Some(remedy) = remedy else {
            return match checked.stopped_by {
                None => Ok(Answer::Yes),
                Some(why) => Err(why.into()),
            };
        };
        let path = place::shown(&path);
        let advice = match remedy {
            Remedy::Repair => format!("\"kvstore repair {path}\" makes the tables agree again"),
            Remedy::Recover => format!(
                "the file itself is damaged, which a repair cannot mend: go back to a backup, or save what can be \
                 read with \"kvstore recover {path} NEW\""
            ),
            Remedy::Backup if is_on_a_server => {
                "go back to a backup of the server; \"kvstore copy\" saves what can be read into a file"
                    .to_owned()
            }
            Remedy::Backup => {
                "the file itself is damaged, which a repair cannot mend, and a recovery reads no \
                               encrypted files: go back to a backup"
                    .to_owned()
            }
        };
        let what = if found == 1 { "disagreement" } else { "disagreements" };
        let style = if remedy == Remedy::Repair { WARN } else { BAD };
        let found = if out.is_for_people() { out.paint(style, count(found)) } else { count(found) };
        let stopped = if checked.stopped_by.is_some() { ", before the check was stopped" } else { "" };
        Err(Failure::Refused(format!("{found} {what}{stopped}: {advice}")))
    }
}

/// The last line with `--json`. `stopped`: what has kept the check from its end; of several lines the first.
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
    object.bool("sound", checked.is_ok() && stopped.is_none());
    object.number("in_file", checked.file_errors).number("in_tables", checked.table_errors);
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

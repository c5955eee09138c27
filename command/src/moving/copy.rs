//! `copy`: from store to store.

use clap::Args;
use kvstore::{Config, Direction, ErrorKind, KeyRange, MAX_SERVER_KEY_SIZE, Store};

use super::{all_families, report, resume};
use crate::bytes::Form;
use crate::cli::Context;
use crate::confirm::confirm;
use crate::failure::{Answer, Failure, Result, refused};
use crate::output::{count, keys};
use crate::place::{For, OpenArgs, open_with, path, shown};
use crate::progress::{Interrupt, Progress};
use crate::secret::ToSecretArgs;

/// Copy all families and keys into another store
///
/// With TTLs, write times and the families' settings; each of the two may be a file or on a server, and files may differ in
/// page size and journal mode. It is one transaction: if anything is wrong, or it is stopped, nothing was copied. A family
/// of the other store must have no keys. The store's limit is copied into a store that is empty and has none. If TO is
/// made, it has the password of FROM, unless an option says otherwise. For the same file under another name, "kvstore
/// backup" is faster.
#[derive(Debug, Args)]
#[command(
    after_help = "With --resume, the copy is made in many transactions, and what is in TO stays there when it is \
stopped, killed or cut off: the same command goes on where it was, as often as it takes. A connection that breaks is made \
anew, and a server that is started again is waited for, for 15 seconds. When it is done, TO has what FROM had when \
the last run began: what was copied earlier is compared, and what has changed since is written or removed. Until then, \
others are not to write into these families of TO, in which a family \"copy in progress\" says how far it has come.

Exit code 3: one of the stores said no; the text says whether TO has a part of the copy.

Examples:
  kvstore copy old.db new.db
  kvstore copy plain.db encrypted.db --to-password         asks for the new password
  kvstore copy app.db \"postgresql://app@db/app\"            into a server, all or nothing
  kvstore copy --resume app.db \"postgresql://app@db/app\"   into a server, over a bad line"
)]
pub struct CopyArgs {
    /// The store to copy: a file, or the URL of a server; "-" for the one named by $KVSTORE
    #[arg(value_name = "FROM", value_hint = clap::ValueHint::FilePath)]
    from: String,
    /// The store to copy to: a file, or the URL of a server; it is made if it is not there
    #[arg(value_name = "TO", value_hint = clap::ValueHint::FilePath)]
    to: String,
    /// Copy in steps, and go on with a copy that was cut off
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    open: OpenArgs,
    #[command(flatten)]
    secret: ToSecretArgs,
}

impl CopyArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        // A memory map would count as memory, as much as the stores are long.
        let config = || Config::new().mmap_size(0).cache_pages(1500);
        if self.secret.reads_stdin() {
            context.take_stdin("the password of TO")?;
        }
        let (from_path, to_path) = (path(&self.from)?, path(&self.to)?);
        let from = open_with(&from_path, For::Looking, &self.open, &context.secrets, config())?;
        if !self.resume
            && let Some(what) = resume::unfinished(&from)?
        {
            say!(
                "kvstore: a {what} into {} was not finished, so it has a part of what was to be there: this copies what is \
                 there",
                shown(&from_path)
            );
        }
        let secrets = self.secret.secrets(&context.secrets);
        let to = open_with(&to_path, For::Making, &self.open, &secrets, config())?;
        if from.is_encrypted()? && !to.is_encrypted()? && !self.secret.to_plain {
            let question = format!(
                "{} is not encrypted: what is in {} will be in the clear there",
                shown(&to_path),
                shown(&from_path)
            );
            if !confirm(&question, context.yes)? {
                return Ok(Answer::No);
            }
        }
        let copied = match self.resume {
            true => in_steps(&from, &to, context),
            false => at_once(&from, &to, context),
        };
        copied.map_err(|failure| match failure {
            Failure::Refused(text) if text.contains("on a server it may have") => {
                Failure::Refused(too_long_for_a_server(&from, context.form, self.resume).unwrap_or(text))
            }
            failure => failure,
        })
    }
}

/// What is said when a copy has failed because of a key that is too long for a server: the library's texts name no keys.
fn too_long_for_a_server(from: &Store, form: Form, resume: bool) -> Option<String> {
    /// So much of a key is shown.
    const SHOWN: usize = 40;
    let (mut first, mut others) = (None, 0_u64);
    for name in all_families(from).ok()? {
        let family = from.family(&name).ok()?;
        let mut cursor = family.cursor(KeyRange::all(), Direction::Forward).keys_only();
        let mut is_there = cursor.first().ok()?;
        while is_there {
            let key = cursor.key()?;
            if key.len() > MAX_SERVER_KEY_SIZE {
                let beginning = form.show(key.get(..SHOWN).unwrap_or(key)).into_owned();
                match first {
                    None => first = Some((beginning, key.len(), name.clone())),
                    Some(_) => others += 1,
                }
            }
            is_there = cursor.next().ok()?;
        }
    }
    let (beginning, length, name) = first?;
    let more = if others == 0 { String::new() } else { format!(", and {} more of that sort", keys(others)) };
    let stays = match resume {
        true => "what was copied until now stays, and the same command goes on then",
        false => "nothing was copied",
    };
    Some(format!(
        "family \"{name}\" has a key of {length} bytes, which begins with {beginning}{more}: a server takes \
         {MAX_SERVER_KEY_SIZE} bytes\n  running the command again does not help before such keys are written otherwise, or \
         deleted, in the store that is copied (\"kvstore del\"); {stays}"
    ))
}

fn at_once(from: &Store, to: &Store, context: &mut Context) -> Result {
    let interrupt = Interrupt::watch()?;
    let mut progress = Progress::new("copying keys", None);
    let copied = from.copy_to(to, |done, total| {
        progress.set_total(total);
        progress.set(done);
        !interrupt.came()
    });
    drop(progress);
    let copied = match copied {
        Err(_) if interrupt.came() => return refused("stopped: nothing was copied"),
        // Wrong about the stores, not about the command line.
        Err(e) if e.kind() == ErrorKind::Error => return refused(format!("{e}. Nothing was copied")),
        copied => copied?,
    };
    let families = all_families(from)?.len() as u64;
    let text = format!("{} copied, in {} families", keys(copied), count(families));
    report(
        &mut context.out,
        &text.replace(" 1 families", " 1 family"),
        &[("keys", copied), ("families", families)],
    )?;
    Ok(Answer::Yes)
}

fn in_steps(from: &Store, to: &Store, context: &mut Context) -> Result {
    let interrupt = Interrupt::watch()?;
    let mut progress = Progress::new("copying keys", None);
    let copied = from.copy_resumable(to, |done, total| {
        progress.set_total(total);
        progress.set(done);
        !interrupt.came()
    });
    drop(progress);
    let copied = match copied {
        Err(_) if interrupt.came() => {
            return refused("stopped: the same command goes on where it was");
        }
        Err(e) => {
            return match Failure::from(e) {
                Failure::Usage(text) => Err(Failure::Refused(text)),
                other => Err(other),
            };
        }
        Ok(copied) => copied,
    };
    let mut text = format!(
        "{} are there, in {} families: {} copied by this run",
        keys(copied.keys),
        count(copied.families),
        count(copied.written)
    );
    if copied.snapshots > 1 {
        say!(
            "kvstore: the connection to the store that is copied broke meanwhile: what others wrote there during this run may \
             be in the copy in part"
        );
    }
    if copied.removed > 0 {
        text.push_str(&format!(
            "; {} removed that are not in the other store any more",
            count(copied.removed)
        ));
    }
    let numbers = [
        ("keys", copied.keys),
        ("families", copied.families),
        ("written", copied.written),
        ("removed", copied.removed),
    ];
    report(&mut context.out, &text.replace(" 1 families", " 1 family"), &numbers)?;
    Ok(Answer::Yes)
}

//! `copy`: copies a store into another.

use std::path::Path;

use clap::Args;
use kvstore::{Config, Direction, ErrorKind, Hint, KeyRange, MAX_SERVER_KEY_SIZE, Store};

use super::{all_families, report, resume};
use crate::bytes::Form;
use crate::confirm::confirm;
use crate::context::Context;
use crate::failure::{Answer, Failure, Result, refused};
use crate::output::{count, keys};
use crate::progress::{Interrupt, Progress};
use crate::secret::ToSecretArgs;
use crate::store_arg::{MakeArgs, OpenArgs, Purpose, open_with, path, shown};

/// Copy all families and keys to another store
///
/// Copies keys with expiry and write times, and the settings of families. FROM and TO can be files
/// or on a server; files can differ in page size and journal mode. The copy is one transaction: if
/// it fails or is stopped, nothing was copied. Families of TO must have no keys. The size limit is
/// copied if TO is empty and has none. A new TO gets the password of FROM, unless an option gives
/// another. To copy a file as it is, "kvstore backup" is faster.
#[derive(Debug, Args)]
#[command(
    after_help = "With --resume, the copy uses many transactions. If it is stopped, killed or disconnected, the copied part \
stays in TO, and the same command continues; a broken connection is first retried for 15 seconds. When it completes, TO \
has the state that FROM had at the start of the last run: keys that were copied earlier are compared, and rewritten or \
removed if they have changed. Until then, other programs must not write to these families of TO. A family \"copy in \
progress\" in TO stores the position.

Exit status 3: store error; the message says whether TO has part of the copy.

Examples:
  kvstore copy old.db new.db
  kvstore copy plain.db encrypted.db --to-password         asks for a password
  kvstore copy app.db \"postgresql://app@db/app\"            to a server, all or nothing
  kvstore copy --resume app.db \"postgresql://app@db/app\"   to a server, over an unreliable network"
)]
pub struct CopyArgs {
    /// Store to copy: a file or a URL; "-" for $KVSTORE
    #[arg(value_name = "FROM", value_hint = clap::ValueHint::FilePath)]
    from: String,
    /// Store to copy to: a file or a URL; created if it does not exist
    #[arg(value_name = "TO", value_hint = clap::ValueHint::FilePath)]
    to: String,
    /// Copy in steps, and continue an interrupted copy
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    open: OpenArgs,
    #[command(flatten)]
    make: MakeArgs,
    #[command(flatten)]
    secret: ToSecretArgs,
}

impl CopyArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        // No memory map: its pages would count as memory of the process, up to the size of the
        // stores.
        let config = || Config::new().mmap_size(0).cache_pages(1500);
        if self.secret.reads_stdin() {
            context.take_stdin("the password of TO")?;
        }
        let (from_path, to_path) = (path(&self.from)?, path(&self.to)?);
        let from = open_with(&from_path, Purpose::Read, &self.open, &context.secrets, config())?;
        if !self.resume
            && let Some(what) = resume::unfinished(&from)?
        {
            say!(
                "kvstore: warning: {} is incomplete, because a {what} to it was not finished; copying what it has",
                shown(&from_path)
            );
        }
        let secrets = self.secret.secrets(&context.secrets);
        let to = open_with(&to_path, Purpose::Create, &self.open, &secrets, self.make.config(config()))?;
        if from.is_encrypted()? && !to.is_encrypted()? && !self.secret.to_plain {
            let question = format!(
                "{} is not encrypted: this writes the contents of {} there in plain text",
                shown(&to_path),
                shown(&from_path)
            );
            if !confirm(&question, context.yes)? {
                return Ok(Answer::No);
            }
        }
        match self.resume {
            true => in_steps(&from, &to, &to_path, context),
            false => at_once(&from, &to, &to_path, context),
        }
    }
}

/// Converts the error of a failed copy to `to` to a failure with advice. `form` is the encoding of
/// keys in the message; `resume` is whether `--resume` was given.
fn failed(from: &Store, to: &Path, error: &kvstore::Error, form: Form, resume: bool) -> Failure {
    if error.hint() == Some(Hint::UseShorterKey)
        && let Some(text) = too_long_for_a_server(from, form, resume)
    {
        return Failure::Refused(text);
    }
    // The stores are wrong, not the arguments.
    match (Failure::of_target(to, error).into_refused(), error.kind()) {
        (Failure::Refused(text), ErrorKind::Error) if !resume => {
            Failure::Refused(format!("{text}\n  nothing was copied"))
        }
        (failure, _) => failure,
    }
}

/// Returns an error message about the keys of the store `from` that are too long for a server;
/// `None` if there are none, or if the keys cannot be read. (The messages of the library do not
/// contain keys.)
fn too_long_for_a_server(from: &Store, form: Form, resume: bool) -> Option<String> {
    /// Maximum number of bytes of a key that the error message shows.
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
    let more =
        if others == 0 { String::new() } else { format!(", one of {} that are too long", keys(others + 1)) };
    let stays = match resume {
        true => "the copied part stays, and the same command continues then",
        false => "nothing was copied",
    };
    Some(format!(
        "family \"{name}\" has a key of {length} bytes that starts with {beginning}{more}: the maximum on a server is \
         {MAX_SERVER_KEY_SIZE} bytes\n  rename or delete such keys in the store to copy (\"kvstore del\") before another \
         attempt; {stays}"
    ))
}

fn at_once(from: &Store, to: &Store, to_path: &Path, context: &mut Context) -> Result {
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
        Err(e) => return Err(failed(from, to_path, &e, context.form, false)),
        Ok(copied) => copied,
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

fn in_steps(from: &Store, to: &Store, to_path: &Path, context: &mut Context) -> Result {
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
            return refused("stopped: run the same command again to continue");
        }
        Err(e) => return Err(failed(from, to_path, &e, context.form, true)),
        Ok(copied) => copied,
    };
    let mut text = format!(
        "{} in {} families, {} of them written by this run",
        keys(copied.keys),
        count(copied.families),
        count(copied.written)
    );
    if copied.snapshots > 1 {
        say!(
            "kvstore: warning: the connection to FROM broke during this run: the copy is not one snapshot, and may have part of \
             what was written meanwhile"
        );
    }
    if copied.removed > 0 {
        text.push_str(&format!("; {} removed that are no longer in FROM", count(copied.removed)));
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

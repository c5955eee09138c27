//! `encrypt`, `decrypt`, `rekey`.

use std::path::Path;

use clap::Args;
use kvstore::{Config, Store};

use super::{NO_ENCRYPTION, NewSecretArgs, read};
use crate::cli::Context;
use crate::confirm::confirm;
use crate::failure::{Answer, Result, refused, usage};
use crate::json::Object;
use crate::place::{self, For, StoreArgs};
use crate::progress::Spinner;

/// Encrypt a store, where it is
///
/// Everything in the file, and what was in it and is deleted. The new password is asked for, twice, if no option says
/// where it is; without it nobody can read the store again. Nobody else may have the store open. Stopped at any moment,
/// it is as it was, or done. Copies and backups that were made before stay as they are.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kvstore encrypt app.db
  kvstore encrypt app.db --new-password-file /run/secrets/app")]
pub struct EncryptArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    new: NewSecretArgs,
}

/// Decrypt a store, where it is
///
/// What is in it is in the clear then. Nobody else may have the store open. Stopped at any moment, it is as it was, or
/// done.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kvstore decrypt app.db")]
pub struct DecryptArgs {
    #[command(flatten)]
    store: StoreArgs,
}

/// Encrypt a store with another password, where it is
///
/// The new password is asked for, twice, if no option says where it is; the one it has is given, or asked for, as by all
/// commands. Every page is written anew. Nobody else may have the store open. Stopped at any moment, it has the old
/// password, or the new one. Copies and backups that were made before keep the old one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kvstore rekey app.db
  kvstore rekey app.db --password-file old --new-password-file new")]
pub struct RekeyArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    new: NewSecretArgs,
}

impl EncryptArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        must_be_built_in()?;
        let path = self.store.path()?;
        if context.secrets.are_given() {
            return if place::is_encrypted(&path) { is_encrypted(&path) } else { usage(NOT_YET) };
        }
        let store = open(&self.store, context)?;
        if store.is_encrypted()? {
            return is_encrypted(&path);
        }
        let new = self.new.read(&path)?;
        change(&store, |store| read::encrypt(store, &new))?;
        say(context, &path, true, "is encrypted now")
    }
}

impl DecryptArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        must_be_built_in()?;
        let path = self.store.path()?;
        let store = open(&self.store, context)?;
        must_be_encrypted(&store, &path)?;
        let question =
            format!("Decrypts {}: whoever can read the file can read what is in it", path.display());
        if !confirm(&question, context.yes)? {
            return Ok(Answer::No);
        }
        change(&store, read::decrypt)?;
        say(context, &path, false, "is not encrypted any more")
    }
}

impl RekeyArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        must_be_built_in()?;
        if self.new.reads_stdin() {
            context.take_stdin("the new password")?;
        }
        let path = self.store.path()?;
        let store = open(&self.store, context)?;
        must_be_encrypted(&store, &path)?;
        let new = self.new.read(&path)?;
        change(&store, |store| read::rekey(store, &new))?;
        say(context, &path, true, "has the new password now")
    }
}

/// Opens a store that is to be written anew, in the mode it has: with that the library opens it again, when every page
/// was written in DELETE mode.
fn open(of: &StoreArgs, context: &Context) -> Result<Store> {
    let store = of.open(For::Writing, &context.secrets)?;
    let Some(mode) = store.info()?.journal_mode else { return Ok(store) };
    store.close()?;
    let config = Config::new().journal_mode(mode);
    place::open_in_mode(&of.path()?, For::Writing, &of.open, &context.secrets, config)
}

fn must_be_built_in() -> Result<()> {
    match cfg!(feature = "encryption") {
        true => Ok(()),
        false => refused(NO_ENCRYPTION),
    }
}

/// For a store that has no password.
const NOT_YET: &str = "the store has no password yet: leave out --password, --password-file, --password-env and --raw-key-file. \
                       The new one comes from --new-password-file, --new-password-env or --new-raw-key-file, or is asked for";

fn is_encrypted(path: &Path) -> Result {
    refused(format!("{} is encrypted: \"kvstore rekey\" gives it another password", path.display()))
}

fn must_be_encrypted(store: &Store, path: &Path) -> Result<()> {
    match store.is_encrypted()? {
        true => Ok(()),
        false => {
            refused(format!("{} is not encrypted: \"kvstore encrypt\" would encrypt it", path.display()))
        }
    }
}

/// Every page is written anew.
fn change(store: &Store, change: impl FnOnce(&Store) -> Result<()>) -> Result<()> {
    let _spinner = Spinner::new("writing every page anew");
    change(store)?;
    Ok(store.close()?)
}

fn say(context: &mut Context, path: &Path, is_encrypted: bool, what: &str) -> Result {
    let out = &mut context.out;
    if out.json {
        out.object(Object::new().bool("encrypted", is_encrypted))?;
    } else if out.is_terminal {
        out.line(format!("{} {what}", path.display()))?;
    }
    Ok(Answer::Yes)
}

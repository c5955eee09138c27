//! `encrypt`, `decrypt` and `rekey`: change the encryption of a store in place.

use std::path::Path;

use clap::Args;
use kvstore::{Config, Store};

use super::{NO_ENCRYPTION, NewSecretArgs, read};
use crate::confirm::confirm;
use crate::context::Context;
use crate::failure::{Answer, Result, refused, usage};
use crate::json::Object;
use crate::progress::Spinner;
use crate::store_arg::{self, Purpose, StoreArgs};

/// Encrypt a store in place
///
/// Rewrites the whole file, including free pages with deleted data. Asks for the new password
/// twice, unless an option gives it; a lost password cannot be recovered. No other process may have
/// the store open. Stopped at any moment, the change has happened completely or not at all. Earlier
/// copies and backups stay unencrypted.
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

/// Decrypt a store in place
///
/// No other process may have the store open. Stopped at any moment, the change has happened
/// completely or not at all.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kvstore decrypt app.db")]
pub struct DecryptArgs {
    #[command(flatten)]
    store: StoreArgs,
}

/// Change the password of an encrypted store
///
/// Rewrites every page of the file. Asks for the new password twice, unless an option gives it. No
/// other process may have the store open. Stopped at any moment, the store has either the old or
/// the new password. Earlier copies and backups keep the old one.
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
            return if store_arg::is_encrypted(&path) { is_encrypted(&path) } else { usage(NOT_YET) };
        }
        let store = open(&self.store, context)?;
        if store.is_encrypted()? {
            return is_encrypted(&path);
        }
        let new = self.new.read(&path)?;
        change(&store, |store| read::encrypt(store, &new))?;
        say(context, &path, true, "is now encrypted")
    }
}

impl DecryptArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        must_be_built_in()?;
        let path = self.store.path()?;
        let store = open(&self.store, context)?;
        must_be_encrypted(&store, &path)?;
        let question = format!(
            "This decrypts {}: all users who can read the file can then read its contents",
            path.display()
        );
        if !confirm(&question, context.yes)? {
            return Ok(Answer::No);
        }
        change(&store, read::decrypt)?;
        say(context, &path, false, "is no longer encrypted")
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
        say(context, &path, true, "now has the new password")
    }
}

/// Opens a store that is to be rewritten, with its current journal mode in the configuration. The
/// rewrite changes the mode to DELETE; afterwards the library reopens the store in the configured
/// mode.
fn open(of: &StoreArgs, context: &Context) -> Result<Store> {
    let store = of.open(Purpose::Write, &context.secrets)?;
    let Some(mode) = store.info()?.journal_mode else { return Ok(store) };
    store.close()?;
    let config = Config::new().journal_mode(mode);
    store_arg::open_in_mode(&of.path()?, Purpose::Write, &of.open, &context.secrets, config)
}

fn must_be_built_in() -> Result<()> {
    match cfg!(feature = "encryption") {
        true => Ok(()),
        false => refused(NO_ENCRYPTION),
    }
}

const NOT_YET: &str = "the store is not encrypted, so it has no current password: leave out --password, --password-file, \
                       --password-env and --raw-key-file; give the new password with --new-password-file, \
                       --new-password-env or --new-raw-key-file, or when asked";

fn is_encrypted(path: &Path) -> Result {
    refused(format!("{} is encrypted already: use \"kvstore rekey\" to change its password", path.display()))
}

fn must_be_encrypted(store: &Store, path: &Path) -> Result<()> {
    match store.is_encrypted()? {
        true => Ok(()),
        false => {
            refused(format!("{} is not encrypted: use \"kvstore encrypt\" to encrypt it", path.display()))
        }
    }
}

/// Calls `change`, which encrypts, decrypts or rekeys all pages of the store, and then closes the
/// store. Shows a spinner.
fn change(store: &Store, change: impl FnOnce(&Store) -> Result<()>) -> Result<()> {
    let _spinner = Spinner::new("rewriting every page");
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

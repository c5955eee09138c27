//! STORE on the command line: where it is, and how it is opened.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
pub use kvstore::internal::{is_url, path_without_password as shown};
use kvstore::{Config, ErrorKind, Family, Store, SyncLevel};

use crate::failure::{self, Failure, Result, refused, usage};
use crate::secret::{Opened, Secrets};
use crate::system;
use crate::times;

/// The environment variable that `-` means.
pub const VARIABLE: &str = "KVSTORE";

/// The family of every store.
pub const DEFAULT: &str = "default";

/// For commands with nothing after it.
#[derive(Debug, Args)]
pub struct StoreArgs {
    /// The store: a file, or the URL of a server (postgresql://…); "-", or nothing, for the one named by $KVSTORE
    #[arg(value_name = "STORE", default_value = "-", hide_default_value = true, value_hint = clap::ValueHint::FilePath)]
    pub store: String,
    #[command(flatten)]
    pub open: OpenArgs,
}

/// For commands with arguments after it.
#[derive(Debug, Args)]
pub struct StoreFirst {
    /// The store: a file, or the URL of a server (postgresql://…); "-" for the one named by $KVSTORE
    #[arg(value_name = "STORE", value_hint = clap::ValueHint::FilePath)]
    pub store: String,
    #[command(flatten)]
    pub open: OpenArgs,
}

#[derive(Debug, Args)]
pub struct OpenArgs {
    /// How long to wait for others that are writing
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = times::parse_duration, help_heading = "How")]
    pub timeout: Duration,
}

#[derive(Debug, Args)]
pub struct FamilyArgs {
    /// The family of the keys
    #[arg(short, long, value_name = "NAME", default_value = DEFAULT)]
    pub family: String,
}

impl FamilyArgs {
    /// The family, which must be there.
    pub fn of(&self, store: &Store) -> Result<Family> {
        family(store, &self.family)
    }
}

/// A family by its name, which must be there.
pub fn family(store: &Store, name: &str) -> Result<Family> {
    store.family(name).map_err(|e| match e.kind() {
        ErrorKind::NotFound => Failure::Missing(format!(
            "there is no family \"{name}\": \"kvstore families\" lists those that are there"
        )),
        _ => e.into(),
    })
}

/// What a place is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// Nothing in it changes.
    Looking,
    /// It must be there.
    Writing,
    /// It is made if it is not there.
    Making,
}

impl StoreArgs {
    pub fn path(&self) -> Result<PathBuf> {
        path(&self.store)
    }

    pub fn open(&self, purpose: For, secrets: &Secrets) -> Result<Store> {
        open(&self.path()?, purpose, &self.open, secrets)
    }

    /// The same for what can be done with a store that nothing else can be done with.
    pub fn open_damaged(&self, purpose: For, secrets: &Secrets) -> Result<Store> {
        let config = Config::new().mmap_size(MAPPED).allow_damaged(true);
        open_with(&self.path()?, purpose, &self.open, secrets, config)
    }
}

impl StoreFirst {
    pub fn path(&self) -> Result<PathBuf> {
        path(&self.store)
    }

    pub fn open(&self, purpose: For, secrets: &Secrets) -> Result<Store> {
        open(&self.path()?, purpose, &self.open, secrets)
    }
}

/// The file that a STORE names.
pub fn path(store: &str) -> Result<PathBuf> {
    let path = match store {
        "-" => match std::env::var_os(VARIABLE) {
            Some(path) if !path.is_empty() => PathBuf::from(path),
            _ => return usage(format!("which store? Give its path, or set ${VARIABLE}")),
        },
        "" => return usage("the path of the store is empty"),
        given => PathBuf::from(given),
    };
    match path.to_str() {
        Some(":memory:") => usage("a store in memory ends with this command: give the path of a file"),
        _ if is_url(&path) && !cfg!(feature = "remote") => {
            usage("this build of kvstore has no servers: give the path of a file")
        }
        _ => Ok(path),
    }
}

/// Refuses a store on a server, for commands about files.
pub fn must_be_a_file(path: &Path, otherwise: &str) -> Result<()> {
    if is_url(path) {
        return refused(format!("{} is a store on a server: {otherwise}", shown(path)));
    }
    Ok(())
}

/// Refuses the URL of a store, and standard output, where a file is to be made. `instead`: what goes to the URL.
pub fn must_name_a_file(path: &Path, what: &str, instead: &str) -> Result<()> {
    if is_url(path) {
        let path = shown(path);
        return usage(format!("{what} is a file, and {path} is a store on a server: {instead}"));
    }
    if path.as_os_str() == "-" {
        return usage(format!("{what} is a file, and cannot be standard output: give it a name"));
    }
    Ok(())
}

/// So much of a file is read as memory: what is mapped counts as the command's, though it can be taken from it.
const MAPPED: u64 = 32 << 20;

/// Opens the store of a file. Its journal mode stays as it is.
pub fn open(path: &Path, purpose: For, how: &OpenArgs, secrets: &Secrets) -> Result<Store> {
    open_with(path, purpose, how, secrets, Config::new().mmap_size(MAPPED))
}

/// The same, with settings of the command's own.
pub fn open_with(
    path: &Path,
    purpose: For,
    how: &OpenArgs,
    secrets: &Secrets,
    config: Config,
) -> Result<Store> {
    open_in_mode(path, purpose, how, secrets, config.keep_journal_mode(true))
}

/// The same, in the journal mode that the settings say.
pub fn open_in_mode(
    path: &Path,
    purpose: For,
    how: &OpenArgs,
    secrets: &Secrets,
    config: Config,
) -> Result<Store> {
    if is_url(path) {
        return on_a_server(path, purpose, how, config);
    }
    // A pipe would be waited for, by whoever opens it.
    if system::is_device(path) {
        return refused(format!("{} is not a regular file: give the path of a store", shown(path)));
    }
    if purpose != For::Making {
        must_have_a_store(path)?;
    }
    let config = config
        .busy_timeout(how.timeout)
        .sync(SyncLevel::Full)
        .max_value_size(kvstore::MAX_VALUE_SIZE)
        .read_only(purpose == For::Looking);
    let is_new = purpose == For::Making && path.metadata().map_or(0, |file| file.len()) == 0;
    let Opened { store, config } = secrets.open(path, is_new, &config)?;
    store.map_err(|e| match e.kind() {
        ErrorKind::Corrupt => advised(&e, path, config),
        ErrorKind::Error if e.is_failure() => advised(&e, path, config),
        _ => e.into(),
    })
}

/// Opens a store on a server. Who does not make one must find it there.
fn on_a_server(url: &Path, purpose: For, how: &OpenArgs, config: Config) -> Result<Store> {
    let config = config.busy_timeout(how.timeout).max_value_size(kvstore::MAX_VALUE_SIZE);
    if purpose == For::Writing {
        Store::open_with(url, &config.clone().read_only(true))?.close()?;
    }
    Ok(Store::open_with(url, &config.read_only(purpose == For::Looking))?)
}

/// What to do about a store that cannot be opened as it is.
fn advised(error: &kvstore::Error, path: &Path, config: Config) -> Failure {
    let (cause, path_text) = (failure::cause(error), shown(path));
    let save = match is_encrypted(path) {
        true => "go back to a backup (a recovery reads no encrypted files)".to_owned(),
        false => {
            format!("go back to a backup, or save what can be read with \"kvstore recover {path_text} NEW\"")
        }
    };
    match Store::open_with(path, &config.read_only(true).allow_damaged(true)) {
        Ok(_) => Failure::Refused(format!(
            "{cause}\n  \"kvstore check {path_text}\" names what is wrong, and \"kvstore repair {path_text}\" mends it if \
             the file itself is whole; if not, {save}"
        )),
        // Neither a check nor a repair gets farther.
        Err(_) => Failure::Damaged(format!(
            "{cause}\n  the file itself is damaged, so that it cannot even be opened: {save}"
        )),
    }
}

/// Refuses a file that is not there, or has nothing in it: an open would make a store of it.
fn must_have_a_store(path: &Path) -> Result<()> {
    let Ok(file) = path.metadata() else {
        return refused(format!("there is no file {}: nothing was made", shown(path)));
    };
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if file.is_file() && file.len() == 0 && std::fs::metadata(log).map_or(0, |log| log.len()) == 0 {
        return refused(format!(
            "the file {} is empty: no store was made of it. If it had a store in it, go back to a backup",
            shown(path)
        ));
    }
    Ok(())
}

/// Encrypted stores have pages of this size only (docs/how-to/encrypt.md).
const ENCRYPTED_PAGE_SIZE: u64 = 4096;

/// The bytes of a page of a store's file; 0 if it has no header yet.
pub fn page_size(path: &Path) -> u64 {
    match header(path) {
        Some(header) if !header.starts_with(MAGIC) => ENCRYPTED_PAGE_SIZE,
        Some([.., 0, 1]) => 65_536,
        Some([.., high, low]) => u64::from(u16::from_be_bytes([high, low])),
        None => 0,
    }
}

/// What SQLite's files begin with.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Whether the file of a store is encrypted.
pub fn is_encrypted(path: &Path) -> bool {
    header(path).is_some_and(|header| !header.starts_with(MAGIC))
}

fn header(path: &Path) -> Option<[u8; 18]> {
    let mut header = [0; 18];
    File::open(path).ok()?.read_exact(&mut header).ok()?;
    Some(header)
}

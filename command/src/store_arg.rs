//! The STORE argument: how it is resolved and opened.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
pub use kvstore::internal::{check_scheme, is_url, path_without_password as shown};
use kvstore::{Config, ErrorKind, Family, Hint, Store, SyncLevel};

use crate::failure::{Failure, Result, refused, usage};
use crate::secret::{Opened, Secrets};
use crate::system;
use crate::times;

/// Name of the environment variable that holds the path or URL of the store. It is used if the
/// argument STORE is `-`.
pub const VARIABLE: &str = "KVSTORE";

/// Name of the family that every store has.
pub const DEFAULT: &str = "default";

/// STORE of commands without other positional arguments: optional.
#[derive(Debug, Args)]
pub struct StoreArgs {
    /// File of the store, or URL of a server (postgresql://...); "-" or nothing for $KVSTORE
    #[arg(value_name = "STORE", default_value = "-", hide_default_value = true, value_hint = clap::ValueHint::FilePath)]
    pub store: String,
    #[command(flatten)]
    pub open: OpenArgs,
}

/// STORE of commands with other positional arguments: required.
#[derive(Debug, Args)]
pub struct StoreFirst {
    /// File of the store, or URL of a server (postgresql://...); "-" for $KVSTORE
    #[arg(value_name = "STORE", value_hint = clap::ValueHint::FilePath)]
    pub store: String,
    #[command(flatten)]
    pub open: OpenArgs,
}

#[derive(Debug, Args)]
pub struct OpenArgs {
    /// How long to wait for a lock that another process holds
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = times::parse_duration, help_heading = "Global options")]
    pub timeout: Duration,
}

/// How a store is created that does not exist.
#[derive(Debug, Args)]
pub struct MakeArgs {
    /// Permissions of a new store, in octal, whatever the umask is, such as 0660 for a group [default: 0644 and the umask]
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    mode: Option<u32>,
}

impl MakeArgs {
    pub fn config(&self, config: Config) -> Config {
        self.mode.map_or_else(|| config.clone(), |mode| config.clone().mode(mode))
    }

    /// Opens the store `path`, and creates it with the permissions of `--mode` if it does not
    /// exist. `how` has the lock timeout.
    pub fn open(&self, path: &Path, how: &OpenArgs, secrets: &Secrets) -> Result<Store> {
        open_with(path, Purpose::Create, how, secrets, self.config(Config::new().mmap_size(MAPPED)))
    }
}

fn parse_mode(text: &str) -> std::result::Result<u32, String> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    match u32::from_str_radix(digits, 8) {
        Ok(mode) if mode & !0o777 == 0 && mode & 0o600 == 0o600 => Ok(mode),
        _ => Err("a mode has three octal digits, of which the first is 6 or 7: 600, 640, 660".to_owned()),
    }
}

#[derive(Debug, Args)]
pub struct FamilyArgs {
    /// Family of the keys
    #[arg(short, long, value_name = "NAME", default_value = DEFAULT)]
    pub family: String,
}

impl FamilyArgs {
    /// Opens the family that `--family` names. Fails with [`Failure::Missing`] if it does not
    /// exist.
    pub fn of(&self, store: &Store) -> Result<Family> {
        family(store, &self.family)
    }
}

/// Opens a family by name. Fails with [`Failure::Missing`] if it does not exist.
pub fn family(store: &Store, name: &str) -> Result<Family> {
    store.family(name).map_err(|e| match e.kind() {
        ErrorKind::NotFound => Failure::Missing(format!(
            "there is no family \"{name}\": \"kvstore families\" lists the families"
        )),
        _ => e.into(),
    })
}

/// The access to a store that a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Reads only. The store must exist.
    Read,
    /// Reads and writes. The store must exist.
    Write,
    /// Reads and writes. The store is created if it does not exist.
    Create,
}

impl StoreArgs {
    pub fn path(&self) -> Result<PathBuf> {
        path(&self.store)
    }

    pub fn open(&self, purpose: Purpose, secrets: &Secrets) -> Result<Store> {
        open(&self.path()?, purpose, &self.open, secrets)
    }

    /// Opens the store that STORE names, even if its catalog of families is damaged. For the
    /// commands `check` and `repair`.
    pub fn open_damaged(&self, purpose: Purpose, secrets: &Secrets) -> Result<Store> {
        let config = Config::new().mmap_size(MAPPED).allow_damaged(true);
        open_with(&self.path()?, purpose, &self.open, secrets, config)
    }
}

impl StoreFirst {
    pub fn path(&self) -> Result<PathBuf> {
        path(&self.store)
    }

    pub fn open(&self, purpose: Purpose, secrets: &Secrets) -> Result<Store> {
        open(&self.path()?, purpose, &self.open, secrets)
    }
}

/// Resolves a STORE argument to a path or a URL. `-` is replaced by the value of [`VARIABLE`].
/// Fails for an empty path, a store in memory, and a URL that this build does not support.
pub fn path(store: &str) -> Result<PathBuf> {
    let path = match store {
        "-" => match std::env::var_os(VARIABLE) {
            Some(path) if !path.is_empty() => PathBuf::from(path),
            _ => return usage(format!("no store is given: give its path, or set ${VARIABLE}")),
        },
        "" => {
            return usage(
                "the path of the store is empty, perhaps because a shell variable is not set: give a path",
            );
        }
        given => PathBuf::from(given),
    };
    match path.to_str() {
        Some(":memory:") => {
            usage("a store in memory would be lost when the command ends: give the path of a file")
        }
        _ if is_url(&path) && !cfg!(feature = "remote") => usage(
            "this build of kvstore does not support servers: give the path of a file, or build it with the feature \"remote\"",
        ),
        _ => {
            check_scheme(&path)?;
            Ok(path)
        }
    }
}

/// Fails if `path` is the URL of a store on a server, for commands that work on files only.
/// `otherwise` is the end of the error message: what to do on a server.
pub fn must_be_a_file(path: &Path, otherwise: &str) -> Result<()> {
    if is_url(path) {
        return refused(format!("{} is a store on a server: {otherwise}", shown(path)));
    }
    Ok(())
}

/// Fails if the path of a file to create is a URL, or `-` for standard output. In the error
/// message, `what` names the file, and `instead` says how to write to a server.
pub fn must_name_a_file(path: &Path, what: &str, instead: &str) -> Result<()> {
    if is_url(path) {
        let path = shown(path);
        return usage(format!("{what} must be a file, and {path} is a store on a server: {instead}"));
    }
    check_scheme(path)?;
    if path.as_os_str() == "-" {
        return usage(format!("{what} must be a file, not standard output: give a file name"));
    }
    Ok(())
}

/// Fails if the directory of a file that is to be created does not exist.
pub fn must_be_creatable(file: &Path) -> Result<()> {
    match file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) if !folder.is_dir() => refused(format!(
            "cannot create {}: there is no directory {}; create it first",
            shown(file),
            shown(folder)
        )),
        _ => Ok(()),
    }
}

/// Maximum size, in bytes, of the memory map through which SQLite reads the file of a store. It is
/// small because mapped pages count as memory of the process.
const MAPPED: u64 = 32 << 20;

/// Opens a store with the default configuration of this command. The store keeps its journal mode.
pub fn open(path: &Path, purpose: Purpose, how: &OpenArgs, secrets: &Secrets) -> Result<Store> {
    open_with(path, purpose, how, secrets, Config::new().mmap_size(MAPPED))
}

/// Opens a store with the given configuration, except for the journal mode: the store keeps its
/// own.
pub fn open_with(
    path: &Path,
    purpose: Purpose,
    how: &OpenArgs,
    secrets: &Secrets,
    config: Config,
) -> Result<Store> {
    open_in_mode(path, purpose, how, secrets, config.keep_journal_mode(true))
}

/// Opens a store with the given configuration. Changes the journal mode of the store to that of the
/// configuration, unless `keep_journal_mode` is set in the configuration.
pub fn open_in_mode(
    path: &Path,
    purpose: Purpose,
    how: &OpenArgs,
    secrets: &Secrets,
    config: Config,
) -> Result<Store> {
    if is_url(path) {
        return on_a_server(path, purpose, how, config);
    }
    // Opening a named pipe would block.
    if system::is_device(path) {
        return refused(format!("{} is not a regular file: give the path of a store", shown(path)));
    }
    if purpose != Purpose::Create {
        must_have_a_store(path)?;
    }
    let config = config
        .busy_timeout(how.timeout)
        .sync(SyncLevel::Full)
        .max_value_size(kvstore::MAX_VALUE_SIZE)
        .read_only(purpose == Purpose::Read);
    let is_new = purpose == Purpose::Create && path.metadata().map_or(0, |file| file.len()) == 0;
    let Opened { store, config } = secrets.open(path, is_new, &config)?;
    let store = match store {
        Err(e) if (e.kind(), e.hint()) == (ErrorKind::ReadOnly, Some(Hint::OpenForWriting)) => {
            roll_back(path, &e, config.clone())?;
            Store::open_with(path, &config)
        }
        store => store,
    };
    store.map_err(|e| match e.kind() {
        ErrorKind::Corrupt => advised(&e, path, config),
        ErrorKind::Error if e.is_failure() => advised(&e, path, config),
        _ => e.into(),
    })
}

/// Opens a store for writing and closes it, which rolls back the unfinished transaction of a killed
/// process. `cause` is the error of a read-only open that failed because of such a transaction.
fn roll_back(path: &Path, cause: &kvstore::Error, config: Config) -> Result<()> {
    match Store::open_with(path, &config.read_only(false)).and_then(|store| store.close()) {
        Err(e) if matches!(e.kind(), ErrorKind::ReadOnly | ErrorKind::CantOpen) => refused(format!(
            "{}\n  run the command once as a user who may write the file and its directory, or copy {} and its -journal \
             file to where they can be written",
            cause.message(),
            shown(path)
        )),
        done => Ok(done?),
    }
}

/// Opens a store on a server. Only `Purpose::Create` creates a store that does not exist: for
/// `Purpose::Write`, a read-only open checks first that it exists.
fn on_a_server(url: &Path, purpose: Purpose, how: &OpenArgs, config: Config) -> Result<Store> {
    let config = config.busy_timeout(how.timeout).max_value_size(kvstore::MAX_VALUE_SIZE);
    if purpose == Purpose::Write {
        Store::open_with(url, &config.clone().read_only(true))?.close()?;
    }
    Ok(Store::open_with(url, &config.read_only(purpose == Purpose::Read))?)
}

/// Converts the error of opening a damaged store to a failure that says what to do. Opens the store
/// again, read-only, to find out whether `check` and `repair` can open it.
fn advised(error: &kvstore::Error, path: &Path, config: Config) -> Failure {
    let (cause, path_text) = (error.message(), shown(path));
    let save = match is_encrypted(path) {
        true => "restore a backup (\"kvstore recover\" cannot read encrypted files)".to_owned(),
        false => {
            format!("restore a backup, or save the readable rows with \"kvstore recover {path_text} NEW\"")
        }
    };
    match Store::open_with(path, &config.read_only(true).allow_damaged(true)) {
        Ok(_) => Failure::Refused(format!(
            "{cause}\n  \"kvstore check {path_text}\" lists what is wrong, and \"kvstore repair {path_text}\" fixes it unless \
             the file itself is damaged; in that case, {save}"
        )),
        // Neither a check nor a repair can open the file.
        Err(_) => {
            Failure::Damaged(format!("{cause}\n  the file itself is damaged and cannot be opened: {save}"))
        }
    }
}

/// Fails if the file does not exist, or if the file and its WAL are empty: opening it would create
/// a store.
fn must_have_a_store(path: &Path) -> Result<()> {
    let Ok(file) = path.metadata() else {
        return refused(format!(
            "there is no file {}: check the path (\"kvstore put\" creates a store)",
            shown(path)
        ));
    };
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if file.is_file() && file.len() == 0 && std::fs::metadata(log).map_or(0, |log| log.len()) == 0 {
        return refused(format!(
            "the file {} is empty, so it has no store: check the path; if it had one, restore a backup",
            shown(path)
        ));
    }
    Ok(())
}

/// Page size of every encrypted store, in bytes (docs/how-to/encrypt.md).
const ENCRYPTED_PAGE_SIZE: u64 = 4096;

/// Returns the page size of a store's file in bytes; 0 if the file cannot be read or has no header
/// yet.
pub fn page_size(path: &Path) -> u64 {
    match header(path) {
        Some(header) if !header.starts_with(MAGIC) => ENCRYPTED_PAGE_SIZE,
        Some([.., 0, 1]) => 65_536,
        Some([.., high, low]) => u64::from(u16::from_be_bytes([high, low])),
        None => 0,
    }
}

/// The first bytes of an SQLite file that is not encrypted.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Returns `true` if the file seems to be encrypted: it has a header (18 bytes), which does not
/// begin like that of an unencrypted SQLite file. Returns `false` if the file cannot be read.
pub fn is_encrypted(path: &Path) -> bool {
    header(path).is_some_and(|header| !header.starts_with(MAGIC))
}

fn header(path: &Path) -> Option<[u8; 18]> {
    let mut header = [0; 18];
    File::open(path).ok()?.read_exact(&mut header).ok()?;
    Some(header)
}

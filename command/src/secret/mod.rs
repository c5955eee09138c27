//! What encrypted stores are opened with: the options that say where a password or a key is, and which one is for which
//! store. It is read when a store needs it, once, and is never a word of a command line.

#[cfg(feature = "encryption")]
mod read;
#[cfg(not(feature = "encryption"))]
#[path = "none.rs"]
mod read;

pub mod in_place;

use std::cell::OnceCell;
use std::fmt;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use clap::Args;
use kvstore::{Config, ErrorKind, Store};

use crate::bytes::Form;
use crate::failure::{Result, refused, usage};
pub use read::Secret;

/// The environment variable that names the file with the password, where no option does.
const DEFAULT_FILE: &str = "KVSTORE_PASSWORD_FILE";

/// A build without encryption takes the options, to say that it has none, and does not offer them.
const HIDDEN: bool = cfg!(not(feature = "encryption"));

/// What a build without encryption says.
pub const NO_ENCRYPTION: &str = "this build of kvstore has no encryption: in its sources \"make install ENCRYPTION=1\" or \
                                 \"cargo install --path command --features encryption\" makes one that has";

/// What every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Encrypted stores")]
pub struct SecretArgs {
    /// Ask for the password on the terminal
    #[arg(long, global = true, hide = HIDDEN, conflicts_with_all = ["password_file", "password_env", "raw_key_file"])]
    password: bool,
    /// The file with the password, without the newline at its end; "-" is standard input. If none of these is given:
    /// the file that $KVSTORE_PASSWORD_FILE names
    #[arg(long, global = true, hide = HIDDEN, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with_all = ["password_env", "raw_key_file"])]
    password_file: Option<PathBuf>,
    /// The environment variable with the password
    #[arg(long, global = true, hide = HIDDEN, value_name = "NAME", conflicts_with = "raw_key_file")]
    password_env: Option<String>,
    /// The file with a key in place of a password: 32 bytes, or 64 hex digits
    #[arg(long, global = true, hide = HIDDEN, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    raw_key_file: Option<PathBuf>,
}

/// The same for the second store of a command.
#[derive(Debug, Args)]
#[command(next_help_heading = "If TO is encrypted")]
pub struct ToSecretArgs {
    /// Ask for its password on the terminal
    #[arg(long, hide = HIDDEN, group = "to_secret")]
    to_password: bool,
    /// The file with its password; "-" is standard input
    #[arg(long, hide = HIDDEN, value_name = "FILE", value_hint = clap::ValueHint::FilePath, group = "to_secret")]
    to_password_file: Option<PathBuf>,
    /// The environment variable with its password
    #[arg(long, hide = HIDDEN, value_name = "NAME", group = "to_secret")]
    to_password_env: Option<String>,
    /// The file with its key
    #[arg(long, hide = HIDDEN, value_name = "FILE", value_hint = clap::ValueHint::FilePath, group = "to_secret")]
    to_raw_key_file: Option<PathBuf>,
    /// It is not to be encrypted, though FROM is
    #[arg(long, hide = HIDDEN, group = "to_secret")]
    pub to_plain: bool,
}

/// The same for what a store is to be encrypted with from now on.
#[derive(Debug, Args)]
#[command(next_help_heading = "The new password")]
pub struct NewSecretArgs {
    /// The file with the new password, without the newline at its end; "-" is standard input
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, group = "new_secret")]
    new_password_file: Option<PathBuf>,
    /// The environment variable with the new password
    #[arg(long, value_name = "NAME", group = "new_secret")]
    new_password_env: Option<String>,
    /// The file with a key in place of a password: 32 bytes, or 64 hex digits
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, group = "new_secret")]
    new_raw_key_file: Option<PathBuf>,
}

/// Where a password or a key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Terminal,
    File(PathBuf),
    Variable(String),
    RawKey(PathBuf),
}

impl Source {
    fn of(
        ask: bool,
        file: Option<&PathBuf>,
        variable: Option<&String>,
        key: Option<&PathBuf>,
    ) -> Option<Source> {
        let asked = ask.then_some(Source::Terminal);
        let named = file.cloned().map(Source::File).or(variable.cloned().map(Source::Variable));
        asked.or(named).or(key.cloned().map(Source::RawKey))
    }

    fn is_stdin(&self) -> bool {
        matches!(self, Source::File(path) | Source::RawKey(path) if path.as_os_str() == "-")
    }
}

impl SecretArgs {
    fn source(&self) -> Option<Source> {
        let SecretArgs { password, password_file, password_env, raw_key_file } = self;
        Source::of(*password, password_file.as_ref(), password_env.as_ref(), raw_key_file.as_ref())
    }

    pub fn secrets(&self) -> Secrets {
        let default = std::env::var_os(DEFAULT_FILE).filter(|path| !path.is_empty());
        Secrets {
            given: self.source(),
            default: default.map(|path| Source::File(path.into())),
            found: OnceCell::new(),
            may_ask: true,
            of: "",
        }
    }
}

impl ToSecretArgs {
    fn source(&self) -> Option<Source> {
        let ToSecretArgs { to_password, to_password_file, to_password_env, to_raw_key_file, .. } = self;
        Source::of(
            *to_password,
            to_password_file.as_ref(),
            to_password_env.as_ref(),
            to_raw_key_file.as_ref(),
        )
    }

    /// Whether standard input is read for it.
    pub fn reads_stdin(&self) -> bool {
        self.source().is_some_and(|source| source.is_stdin())
    }

    /// What the second store is opened with; if nothing is said, with what the first one was.
    pub fn secrets(&self, first: &Secrets) -> Secrets {
        let given = self.source();
        let as_first = given.is_none() && !self.to_plain;
        Secrets {
            given,
            default: first.default.clone().filter(|_| as_first),
            found: first.found.get().filter(|_| as_first).cloned().map_or_else(OnceCell::new, OnceCell::from),
            may_ask: first.may_ask,
            of: "to-",
        }
    }
}

impl NewSecretArgs {
    fn source(&self) -> Option<Source> {
        let NewSecretArgs { new_password_file, new_password_env, new_raw_key_file } = self;
        Source::of(false, new_password_file.as_ref(), new_password_env.as_ref(), new_raw_key_file.as_ref())
    }

    /// Whether standard input is read for it.
    pub fn reads_stdin(&self) -> bool {
        self.source().is_some_and(|source| source.is_stdin())
    }

    /// Reads it, or asks for it, twice.
    pub fn read(&self, path: &Path) -> Result<Secret> {
        match self.source() {
            Some(source) => read::read(&source, path, true),
            None if is_terminal() => read::read(&Source::Terminal, path, true),
            None => usage(
                "which password is it to have? There is no terminal to ask on: --new-password-file, --new-password-env or \
                 --new-raw-key-file says where it is",
            ),
        }
    }
}

fn is_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// What stores are opened with.
#[derive(Default)]
pub struct Secrets {
    /// By an option: a store that is not encrypted is refused then.
    given: Option<Source>,
    /// By the environment: for stores that are encrypted, and for new ones.
    default: Option<Source>,
    /// What was read or typed.
    found: OnceCell<Secret>,
    /// Whether a person may be asked.
    may_ask: bool,
    /// What the names of the options begin with.
    of: &'static str,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

impl Secrets {
    /// Whether an option says where a password is.
    pub fn are_given(&self) -> bool {
        self.given.is_some()
    }

    /// Whether a new store is encrypted.
    pub fn encrypt_what_is_new(&self) -> bool {
        self.given.is_some() || self.default.is_some()
    }

    /// Whether standard input is read for them.
    pub fn read_stdin(&self) -> bool {
        self.given.as_ref().is_some_and(Source::is_stdin)
    }

    /// The same for work that nobody is to be disturbed by: with what is known already.
    pub fn known(&self) -> Secrets {
        Secrets { found: self.found.clone(), ..Secrets::default() }
    }

    /// Opens a store, with a password if it needs one.
    pub fn open(&self, path: &Path, is_new: bool, config: &Config) -> Result<Opened> {
        if self.given.is_some() || is_new && (self.default.is_some() || self.found.get().is_some()) {
            let config = read::apply(&self.find(path, is_new)?, config);
            return self.opened(path, config);
        }
        match Store::open_with(path, config) {
            Err(e) if e.kind() == ErrorKind::AuthFailed => {
                let may_ask = self.may_ask && !HIDDEN && is_terminal();
                if self.found.get().is_none() && self.default.is_none() && !may_ask {
                    return refused(format!("{e}\n  {}", self.advice()));
                }
                self.opened(path, read::apply(&self.find(path, false)?, config))
            }
            store => Ok(Opened { store, config: config.clone() }),
        }
    }

    /// Opens a store with a password that is known.
    fn opened(&self, path: &Path, config: Config) -> Result<Opened> {
        match Store::open_with(path, &config) {
            Err(e) if e.kind() == ErrorKind::AuthFailed => refused(e.to_string()),
            store => Ok(Opened { store, config }),
        }
    }

    fn find(&self, path: &Path, is_new: bool) -> Result<Secret> {
        if let Some(found) = self.found.get() {
            return Ok(found.clone());
        }
        let source = self.given.as_ref().or(self.default.as_ref()).unwrap_or(&Source::Terminal);
        let read = read::read(source, path, is_new)?;
        Ok(self.found.get_or_init(|| read).clone())
    }

    fn advice(&self) -> String {
        let of = self.of;
        match HIDDEN {
            true => NO_ENCRYPTION.to_owned(),
            false => format!(
                "--{of}password asks for its password, --{of}password-file and --{of}password-env say where it is, and \
                 --{of}raw-key-file where its key is"
            ),
        }
    }
}

/// A store, or why it is none, and how it was opened.
pub struct Opened {
    pub store: kvstore::Result<Store>,
    pub config: Config,
}

/// A path in a question.
#[cfg_attr(not(feature = "encryption"), allow(dead_code))]
fn shown(path: &Path) -> String {
    Form::Text.show(path.display().to_string().as_bytes()).into_owned()
}

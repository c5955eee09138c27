//! Passwords and keys of encrypted stores: the options that name their source, and which of them
//! applies to which store. A secret is read once, when a store needs it, and is never an argument
//! of the command.

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
use kvstore::{Config, ErrorKind, Hint, Store};

use crate::bytes::Form;
use crate::failure::{Result, refused, usage};
pub use read::Secret;

/// Name of the environment variable with the path of the password file. It is used if no option
/// gives a password or key.
const DEFAULT_FILE: &str = "KVSTORE_PASSWORD_FILE";

/// Whether the help hides the options for passwords and keys: `true` in a build without encryption.
/// Such a build still accepts them, in order to explain that it has no encryption.
const HIDDEN: bool = cfg!(not(feature = "encryption"));

/// Error message of a build without encryption, for commands and options that need it.
pub const NO_ENCRYPTION: &str = "this build of kvstore does not support encryption: build it from its sources with \"make install \
                                 ENCRYPTION=1\" or \"cargo install --path command --features encryption\"";

/// Options of all commands.
#[derive(Debug, Args)]
#[command(next_help_heading = "Encryption")]
pub struct SecretArgs {
    /// Ask for the password on the terminal
    #[arg(long, global = true, hide = HIDDEN, conflicts_with_all = ["password_file", "password_env", "raw_key_file"])]
    password: bool,
    /// Read the password from FILE, without its final newline; "-" for standard input [default:
    /// $KVSTORE_PASSWORD_FILE]
    #[arg(long, global = true, hide = HIDDEN, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with_all = ["password_env", "raw_key_file"])]
    password_file: Option<PathBuf>,
    /// Read the password from an environment variable
    #[arg(long, global = true, hide = HIDDEN, value_name = "NAME", conflicts_with = "raw_key_file")]
    password_env: Option<String>,
    /// Read a key in place of a password from FILE: 32 bytes, or 64 hex digits
    #[arg(long, global = true, hide = HIDDEN, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    raw_key_file: Option<PathBuf>,
}

/// Options of the second store of a command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Encryption of TO")]
pub struct ToSecretArgs {
    /// Ask for the password of TO on the terminal
    #[arg(long, hide = HIDDEN, group = "to_secret")]
    to_password: bool,
    /// Read the password of TO from FILE; "-" for standard input
    #[arg(long, hide = HIDDEN, value_name = "FILE", value_hint = clap::ValueHint::FilePath, group = "to_secret")]
    to_password_file: Option<PathBuf>,
    /// Read the password of TO from an environment variable
    #[arg(long, hide = HIDDEN, value_name = "NAME", group = "to_secret")]
    to_password_env: Option<String>,
    /// Read the key of TO from FILE
    #[arg(long, hide = HIDDEN, value_name = "FILE", value_hint = clap::ValueHint::FilePath, group = "to_secret")]
    to_raw_key_file: Option<PathBuf>,
    /// Do not encrypt TO, even if FROM is encrypted
    #[arg(long, hide = HIDDEN, group = "to_secret")]
    pub to_plain: bool,
}

/// Options for a new password.
#[derive(Debug, Args)]
#[command(next_help_heading = "New password")]
pub struct NewSecretArgs {
    /// Read the new password from FILE, without its final newline; "-" for standard input
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, group = "new_secret")]
    new_password_file: Option<PathBuf>,
    /// Read the new password from an environment variable
    #[arg(long, value_name = "NAME", group = "new_secret")]
    new_password_env: Option<String>,
    /// Read a new key in place of a password from FILE: 32 bytes, or 64 hex digits
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, group = "new_secret")]
    new_raw_key_file: Option<PathBuf>,
}

/// Where a password or key is read from: a password from the terminal, a file or an environment
/// variable, or a raw key from a file. The path `-` is standard input.
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

    /// Returns `true` if the options say that the password or key of TO is read from standard
    /// input.
    pub fn reads_stdin(&self) -> bool {
        self.source().is_some_and(|source| source.is_stdin())
    }

    /// Returns the sources of the password or key of the second store of a command. `first` has
    /// those of the first store, which also apply to the second store if no option is given. With
    /// `--to-plain`, there are none.
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

    /// Returns `true` if the options say that the new password or key is read from standard input.
    pub fn reads_stdin(&self) -> bool {
        self.source().is_some_and(|source| source.is_stdin())
    }

    /// Reads the new password or key of the store `path` from the source that an option gives.
    /// Without an option, asks for a password twice on the terminal.
    pub fn read(&self, path: &Path) -> Result<Secret> {
        match self.source() {
            Some(source) => read::read(&source, path, true),
            None if is_terminal() => read::read(&Source::Terminal, path, true),
            None => usage(
                "no new password is given, and there is no terminal to ask for it: use --new-password-file, --new-password-env \
                 or --new-raw-key-file",
            ),
        }
    }
}

fn is_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// The sources of the password or key with which a command opens a store.
#[derive(Default)]
pub struct Secrets {
    /// Source given by an option. Opening a store that is not encrypted then fails.
    given: Option<Source>,
    /// Source given by the environment variable [`DEFAULT_FILE`]. Used for encrypted and new stores
    /// if no option gives a source.
    default: Option<Source>,
    /// The password or key, once it has been read.
    found: OnceCell<Secret>,
    /// Whether the user may be asked for a password on the terminal.
    may_ask: bool,
    /// Prefix of the password options in error messages: "to-" for the second store of a command,
    /// otherwise empty.
    of: &'static str,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

impl Secrets {
    /// Returns `true` if an option gives the source of a password or key.
    pub fn are_given(&self) -> bool {
        self.given.is_some()
    }

    /// Returns `true` if an option says that the password or key is read from standard input.
    pub fn read_stdin(&self) -> bool {
        self.given.as_ref().is_some_and(Source::is_stdin)
    }

    /// Returns secrets whose only source is the password file that the environment variable
    /// [`DEFAULT_FILE`] names. The user is never asked: for completion scripts.
    pub fn without_questions() -> Secrets {
        let default = std::env::var_os(DEFAULT_FILE).filter(|path| !path.is_empty() && path != "-");
        Secrets { default: default.map(|path| Source::File(path.into())), ..Secrets::default() }
    }

    /// Returns secrets that have only the password or key that `self` has read already, if any. The
    /// user is never asked: for background work.
    pub fn known(&self) -> Secrets {
        Secrets { found: self.found.clone(), ..Secrets::default() }
    }

    /// Opens the store `path`; `is_new` is whether this creates it. Reads the password or key first
    /// if an option gives its source, or if the store is new and there is a default source or a
    /// secret that was read earlier. Otherwise reads it only if the store turns out to be
    /// encrypted.
    pub fn open(&self, path: &Path, is_new: bool, config: &Config) -> Result<Opened> {
        if self.given.is_some() || is_new && (self.default.is_some() || self.found.get().is_some()) {
            let config = read::apply(&self.find(path, is_new)?, config);
            return self.opened(path, config);
        }
        match Store::open_with(path, config) {
            Err(e) if e.kind() == ErrorKind::AuthFailed => {
                let may_ask = self.may_ask && !HIDDEN && is_terminal();
                if self.found.get().is_none() && self.default.is_none() && !may_ask {
                    return refused(format!("{}\n  {}", e.message(), self.advice()));
                }
                self.opened(path, read::apply(&self.find(path, false)?, config))
            }
            store => Ok(Opened { store, config: config.clone() }),
        }
    }

    /// Opens a store with the password or key in `config`.
    fn opened(&self, path: &Path, config: Config) -> Result<Opened> {
        match Store::open_with(path, &config) {
            // A password was given, so the advice to give one would not help.
            Err(e) if e.hint() == Some(Hint::GivePassword) => refused(e.message()),
            Err(e) if e.kind() == ErrorKind::AuthFailed => Err(e.into()),
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
                "give its password with --{of}password (asks for it), --{of}password-file or --{of}password-env, or its key with \
                 --{of}raw-key-file"
            ),
        }
    }
}

/// The result of opening a store, and the configuration used, with the password or key.
pub struct Opened {
    pub store: kvstore::Result<Store>,
    pub config: Config,
}

/// Formats a path on one line, for questions and error messages.
#[cfg_attr(not(feature = "encryption"), allow(dead_code))]
fn shown(path: &Path) -> String {
    Form::Text.show(path.display().to_string().as_bytes()).into_owned()
}

//! Unix: signals and file modes.

use std::env;
#[cfg(feature = "encryption")]
use std::ffi::OsString;
#[cfg(feature = "encryption")]
use std::fs::Metadata;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
#[cfg(feature = "encryption")]
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::bytes::Form;

pub use signal_hook::consts::{SIGINT as INTERRUPT, SIGTERM as TERMINATE};

pub const NEWLINE: &[u8] = b"\n";
/// Names of the signals that stop `kvstore clean`, for its help.
pub const ENDS: &str = "Ctrl-C and SIGTERM";
/// Path of the history file of the interactive shell, for the help.
pub const HISTORY: &str = "$XDG_STATE_HOME/kvstore/history (~/.local/state/kvstore/history)";
/// File name of the Python interpreter that `import` runs, unless the environment variable names
/// another.
pub const PYTHON: &str = "python3";
/// Text added to the advice for the error that a file is not a store: how to find the type of the
/// file.
pub const FILE_TYPE_ADVICE: &str = "; \"file PATH\" shows the type of a file";
/// Text added to the advice for a full disk: how to find the free space.
pub const DISK_SPACE_ADVICE: &str = "\"df\" shows the free disk space";

/// Registers a handler by which the signal ends the process, as it does by default, while `flag` is
/// `true`.
pub fn ends_process(signal: i32, flag: Arc<AtomicBool>) -> io::Result<()> {
    signal_hook::flag::register_conditional_default(signal, flag).map(drop)
}

/// Makes a write beyond the process's limit on the size of a file (`ulimit -f`) fail instead of
/// ending the process. Registers a signal handler that does nothing, because an ignored signal
/// would stay ignored in the programs that the command starts.
pub fn ignore_file_size_signal() {
    // If the registration fails, only the error message of such a write is lost.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
}

/// Returns `true`: a terminal on Unix is assumed to support colors.
pub fn shows_colors() -> bool {
    true
}

/// Returns `true` if the path exists and is neither a regular file nor a directory.
pub fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Formats a path for output.
pub fn path(path: &Path) -> String {
    path.display().to_string()
}

/// Formats a path for one line of text, with control characters escaped.
pub fn on_one_line(path: &str) -> String {
    Form::Text.show(path.as_bytes()).into_owned()
}

/// Returns `true` if both paths name the same existing file.
pub fn is_one_file(one: &Path, other: &Path) -> bool {
    let file = |path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    matches!((file(one), file(other)), (Ok(one), Ok(other)) if one == other)
}

/// Creates a file, which must not exist, with the permissions of the file `other`.
pub fn create_as_private_as(other: &Path, path: &Path) -> io::Result<File> {
    let mode = fs::metadata(other).map_or(0o600, |of| of.permissions().mode() & 0o777);
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

/// Syncs a directory, so that the names of its files survive a power failure.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Returns advice for the user on how to make the file `name` unreadable for other users; `None` if
/// they cannot read it.
#[cfg(feature = "encryption")]
pub fn to_keep_others_out(file: &Metadata, name: &str) -> Option<String> {
    (file.mode() & 0o044 != 0).then(|| format!("\"chmod 600 {name}\" prevents that"))
}

/// Returns the bytes of an environment variable. (On Windows, `None` if it is not valid Unicode.)
#[cfg(feature = "encryption")]
pub fn bytes(variable: OsString) -> Option<Vec<u8>> {
    Some(variable.into_vec())
}

/// Returns the user's state directory; `None` if neither XDG_STATE_HOME nor HOME is an absolute
/// path.
pub fn state_directory() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))
}

/// Creates a directory and its parents, accessible by the owner only.
pub fn create_own_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates a file if it does not exist, and makes it accessible by the owner only.
pub fn create_own_file(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
    }
    Ok(())
}

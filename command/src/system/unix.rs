//! Unix: signals, modes of files, and a process that becomes another program.

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
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::bytes::Form;

pub use signal_hook::consts::{SIGINT as INTERRUPT, SIGTERM as TERMINATE};

pub const NEWLINE: &[u8] = b"\n";
/// What ends a command well that goes on until then.
pub const ENDS: &str = "Ctrl-C and SIGTERM";
/// Where the history is, for the help.
pub const HISTORY: &str = "$XDG_STATE_HOME/kvstore/history (~/.local/state/kvstore/history)";
/// The Python that is asked if nobody names one.
pub const PYTHON: &str = "python3";
/// What to do about a file that is no store, and about a disk that may be full.
pub const WHAT_IT_IS: &str = "; \"file PATH\" says what this one is";
pub const ROOM: &str = "\"df\" the room on the disk";

/// While the flag is set, the signal ends the process as it does by default.
pub fn ends_process(signal: i32, flag: Arc<AtomicBool>) -> io::Result<()> {
    signal_hook::flag::register_conditional_default(signal, flag).map(drop)
}

/// Whether what is written to a terminal may have colours.
pub fn shows_colors() -> bool {
    true
}

/// Whether there is something that is neither a file nor a folder.
pub fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// A path, for people and programs.
pub fn path(path: &Path) -> String {
    path.display().to_string()
}

/// The same in a line of text. (A name may have a newline in it.)
pub fn on_one_line(path: &str) -> String {
    Form::Text.show(path.as_bytes()).into_owned()
}

/// Whether two paths lead to one file that is there.
pub fn is_one_file(one: &Path, other: &Path) -> bool {
    let file = |path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    matches!((file(one), file(other)), (Ok(one), Ok(other)) if one == other)
}

/// Makes a file that nobody may read who may not read that other one.
pub fn create_as_private_as(other: &Path, path: &Path) -> io::Result<File> {
    let mode = fs::metadata(other).map_or(0o600, |of| of.permissions().mode() & 0o777);
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

/// Sees to it that a power cut takes no name out of a directory.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// If others than its owner may read a file: what to do about it.
#[cfg(feature = "encryption")]
pub fn to_keep_others_out(file: &Metadata, name: &str) -> Option<String> {
    (file.mode() & 0o044 != 0).then(|| format!("\"chmod 600 {name}\" keeps it from them"))
}

/// The bytes of an environment variable; `None`: they cannot be told.
#[cfg(feature = "encryption")]
pub fn bytes(variable: OsString) -> Option<Vec<u8>> {
    Some(variable.into_vec())
}

/// Becomes another program: returns if that cannot be.
pub fn become_program(command: &mut Command) -> io::Result<u8> {
    Err(command.exec())
}

/// Where the state of programs is kept; `None` without a home.
pub fn state_directory() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))
}

/// Makes a directory, and those above it, for its owner alone.
pub fn create_own_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Sees to it that there is a file, for its owner alone.
pub fn create_own_file(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
    }
    Ok(())
}

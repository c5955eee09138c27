//! Where the shell's history is: a file that only its owner may read.

use std::env;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;

/// `$XDG_STATE_HOME/kvstore/history`, made if it is not there; `None` without a home.
pub fn file() -> io::Result<Option<PathBuf>> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    let Some(directory) = state.map(|state| state.join("kvstore")) else { return Ok(None) };
    DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    let path = directory.join("history");
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    }
    Ok(Some(path))
}

//! The history file of the interactive shell, readable by its owner only.

use std::io;
use std::path::PathBuf;

use crate::system;

/// Returns the path of `kvstore/history` in the user's state directory and creates it if needed;
/// `None` without a state directory.
pub fn file() -> io::Result<Option<PathBuf>> {
    let Some(directory) = system::state_directory().map(|state| state.join("kvstore")) else {
        return Ok(None);
    };
    system::create_own_directory(&directory)?;
    let path = directory.join("history");
    system::create_own_file(&path)?;
    Ok(Some(path))
}

//! Where the shell's history is: a file that only its owner may read.

use std::io;
use std::path::PathBuf;

use crate::system;

/// `kvstore/history` where the state of programs is kept, made if it is not there; `None` without a home.
pub fn file() -> io::Result<Option<PathBuf>> {
    let Some(directory) = system::state_directory().map(|state| state.join("kvstore")) else {
        return Ok(None);
    };
    system::create_own_directory(&directory)?;
    let path = directory.join("history");
    system::create_own_file(&path)?;
    Ok(Some(path))
}

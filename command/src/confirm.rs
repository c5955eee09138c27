//! Asking before something is removed.

use std::io::{IsTerminal as _, Write as _};

use crate::failure::Result;

/// Whether there is somebody to be asked.
pub fn asks(yes: bool) -> bool {
    !yes && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Says what is about to be done, and asks whether to go on. Without a terminal, or with `--yes`, nobody is asked.
/// `false`: no.
pub fn confirm(what: &str, yes: bool) -> Result<bool> {
    if !asks(yes) {
        return Ok(true);
    }
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    write!(stderr, "{what}. Go on? [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    stdin.read_line(&mut answer)?;
    let yes = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    if !yes {
        say!("kvstore: nothing was changed");
    }
    Ok(yes)
}

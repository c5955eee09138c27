//! Questions before something is removed or rewritten.

use std::io::{IsTerminal as _, Write as _};

use crate::failure::Result;

/// Returns `true` if the user is to be asked: stdin and stderr are terminals, and `--yes` was not
/// given.
pub fn asks(yes: bool) -> bool {
    !yes && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Prints `what` (a sentence that says what will be done) and asks the user whether to continue.
/// Returns `false` if the user declines, and `true` without asking if there is no terminal or
/// `--yes` was given.
pub fn confirm(what: &str, yes: bool) -> Result<bool> {
    if !asks(yes) {
        return Ok(true);
    }
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    write!(stderr, "{what}. Continue? [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    stdin.read_line(&mut answer)?;
    let yes = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    if !yes {
        say!("kvstore: nothing changed");
    }
    Ok(yes)
}

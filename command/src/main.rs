//! The command `kvstore`: inspects, edits, repairs and migrates stores without writing a program.
//! It uses the public API of the library only. `cli.rs` lists the commands.

/// Prints a line on stderr. A failed write is ignored: the exit status still reports the error.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

mod bytes;
mod care;
mod cli;
mod completion;
mod confirm;
mod failure;
mod json;
mod keys;
mod life;
mod live;
mod look;
mod manual;
mod moving;
mod output;
mod place;
mod progress;
mod range;
mod secret;
mod system;
mod time;
mod times;

use std::process::ExitCode;

fn main() -> ExitCode {
    system::ignore_file_size_signal();
    let cli = match cli::Cli::from_args() {
        Ok(cli) => cli,
        Err(e) => return ExitCode::from(failure::report_arguments(e)),
    };
    let mut context = cli.common.context();
    ExitCode::from(cli.command.run_and_report(&mut context))
}

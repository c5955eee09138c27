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
mod cli;
mod completion;
mod confirm;
mod context;
mod expiry;
mod failure;
mod inspect;
mod interactive;
mod json;
mod keys;
mod maintenance;
mod manual;
mod output;
mod progress;
mod range;
mod secret;
mod store_arg;
mod system;
mod times;
mod transfer;
mod ttl_args;
mod usage_errors;

use std::process::ExitCode;

fn main() -> ExitCode {
    system::ignore_file_size_signal();
    let cli = match cli::Cli::from_args() {
        Ok(cli) => cli,
        Err(e) => return ExitCode::from(usage_errors::report_arguments(e)),
    };
    let mut context = cli.common.context();
    ExitCode::from(cli.command.run_and_report(&mut context))
}

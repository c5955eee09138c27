//! The command `kvstore`: for people who keep a store and want to look into it, mend it, move it, without writing a
//! program. On the library's public API; `cli.rs` lists the commands.

/// Says something on stderr. Where that cannot be written, as on a full disk, the exit code must still tell.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

mod bytes;
mod care;
mod cli;
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

use clap::Parser as _;

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => failure::explain(e).exit(),
    };
    let mut context = cli.common.context();
    ExitCode::from(cli.command.run_to_the_end(&mut context))
}

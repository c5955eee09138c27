//! The build logic behind the Makefile: `xtask [NAME=VALUE]... GOAL...` from the root of the
//! repository. Variables are those of the environment, to which make adds those of its command
//! line. Each goal is a goal of the Makefile; xtask/help.txt describes them.

mod apple;
mod build;
mod cargo;
mod demo;
mod firmware;
mod folders;
mod install;
mod installed_files;
mod kept_settings;
mod run;
mod settings;
mod static_library;
mod template;
mod test;
mod vars;
mod windows;
mod words;

#[cfg(test)]
mod makefile_test;
#[cfg(test)]
mod testing;

use std::path::Path;
use std::process::ExitCode;

use settings::Settings;
use vars::Vars;

/// An error message for the user, or the reason why a step failed.
type Result<T> = std::result::Result<T, String>;

fn main() -> ExitCode {
    match execute(std::env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn execute(arguments: impl Iterator<Item = String>) -> Result<()> {
    if !Path::new("packaging/localise.ld").exists() {
        return Err("xtask: run it from the root of the repository, through make".to_owned());
    }
    let mut vars = Vars::from_environment();
    let mut goals = Vec::new();
    for argument in arguments {
        match argument.split_once('=') {
            Some((name, value)) => vars.set(name, value),
            None => goals.push(argument),
        }
    }
    if goals.is_empty() {
        return Err("usage: xtask [NAME=VALUE]... GOAL...".to_owned());
    }
    goals.iter().try_for_each(|goal| make(goal, &vars))
}

fn make(goal: &str, vars: &Vars) -> Result<()> {
    match goal {
        "demo" => return demo::run(vars),
        "test" => return test::run(vars),
        "test-full" => return test::run_full(vars),
        "firmware" => return firmware::make(vars),
        _ => {}
    }
    let settings = Settings::new(vars.clone())?;
    match goal {
        "all" => build::all(&settings),
        "lib" => build::libraries(&settings),
        "shared" => build::shared_library(&settings),
        "command" => build::command(&settings),
        "program" => build::program(&settings),
        "install" => install::install(&settings),
        "install-command" => install::install_command(&settings),
        "install-strip" => {
            let mut vars = vars.clone();
            vars.set("INSTALL_STRIP", "1");
            install::install(&Settings::new(vars)?)
        }
        "uninstall" => install::uninstall(&settings),
        "windows-lib" => windows::Build::new(&settings)?.libraries(),
        "install-windows" => windows::Build::new(&settings)?.install(),
        "install-windows-command" => windows::Build::new(&settings)?.install_command(),
        _ => Err(format!("xtask: there is no goal {goal}; \"make help\" lists them")),
    }
}

//! `make demo`: the first program of the README, on the files of a directory, and the command on
//! the store that it writes.

use std::fs;
use std::path::PathBuf;

use crate::vars::Vars;
use crate::{Result, run, words};

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

pub fn run(vars: &Vars) -> Result<()> {
    // The development profile: it is built in a fraction of the time of a release, and used by the
    // tests, too.
    let target =
        std::path::absolute(vars.get_or("TARGET_DIR", "target")).map_err(|error| error.to_string())?;
    let built = target.join("debug");
    for what in
        [["rustc", "--lib", "--crate-type", "cdylib"], ["build", "--package", "kvstore-cli", "--bins"]]
    {
        run::run(vars.command("cargo").args(what).arg("--locked").arg("--target-dir").arg(&target))?;
    }

    let program = built.join("session_cache");
    let compiler = words::split(vars.get_or("CC", "cc"))?;
    let (compiler, options) = compiler.split_first().ok_or("CC is empty")?;
    let mut compile = vars.command(compiler);
    compile.args(options).arg("-std=c11").args(words::split(vars.get_or("CFLAGS", "-O2"))?).args(WARNINGS);
    compile.args(["-Iinclude", "examples/session_cache.c", "-L"]).arg(&built).arg("-lkvstore");
    compile.arg(format!("-Wl,-rpath,{}", built.display())).arg("-o").arg(&program);
    run::run(&mut compile)?;

    let folder = Scratch(std::env::temp_dir().join(format!("kvstore-demo-{}", std::process::id())));
    fs::create_dir(&folder.0).map_err(|error| format!("{}: {error}", folder.0.display()))?;
    let store = folder.0.join("demo.db");
    run::run_quietly(vars.command(program).arg(vars.get_or("DIR", "/usr/include")).arg(store))?;
    for arguments in [&["info", "demo.db"][..], &["expiring", "demo.db", "--chart"], &["check", "demo.db"]] {
        println!("\n$ kvstore {}", arguments.join(" "));
        run::run_quietly(vars.command(built.join("kvstore")).args(arguments).current_dir(&folder.0))?;
    }
    Ok(())
}

/// A temporary folder, removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

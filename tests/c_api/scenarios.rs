//! Runs the scenarios of the C programs of `tests/c`, plainly and under valgrind.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use crate::c_programs::{build, compiler, has_tool, run};

/// Returns the program of a C source (a path from the root), linked with the shared library. Each
/// test run compiles it once.
pub fn program(source: &str) -> PathBuf {
    static PROGRAMS: LazyLock<Mutex<HashMap<String, Arc<OnceLock<PathBuf>>>>> = LazyLock::new(Mutex::default);
    let program = Arc::clone(PROGRAMS.lock().unwrap().entry(source.to_owned()).or_default());
    program
        .get_or_init(|| {
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(env!("CARGO_CRATE_NAME"));
            std::fs::create_dir_all(&folder).expect("a folder");
            let directory = tempfile::tempdir_in(&folder).expect("a temporary folder");
            let built = build(&mut compiler("cc", "c11"), source, directory.path());
            let program = folder.join(built.file_name().expect("a file name"));
            // Renamed in one step, because another test run may be using the existing file.
            std::fs::rename(built, &program).expect("the place of the program");
            program
        })
        .clone()
}

/// Returns a command for the program. Its stores are on a server if the tests use one
/// (`KVSTORE_TEST_REMOTE=1`, in a build with the feature `remote`; see `tests/c/stores.h`).
fn maybe_on_a_server(program: impl AsRef<OsStr>) -> Command {
    #[allow(unused_mut)]
    let mut command = Command::new(program);
    #[cfg(feature = "remote")]
    if crate::common::on_a_server::is_wanted() {
        let (stores, clocks) = crate::common::on_a_server::new_stores();
        command.env("KVSTORE_TEST_STORES", stores).env("KVSTORE_TEST_CLOCKS", clocks);
    }
    command
}

/// Compiles a C program of `tests/c` and runs one scenario of it in an empty folder. The program
/// itself skips what is impossible on a server.
pub fn run_scenario(source: &str, scenario: &str) {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let done = run(maybe_on_a_server(program(source)).arg(scenario).current_dir(directory.path()));
    print!("{}", String::from_utf8_lossy(&done.stdout));
}

/// Runs all scenarios of such a program under valgrind, where any error and any leak fails. They
/// run in one process, because valgrind is slow with code that runs for the first time. The
/// scenarios in `alone` need a process each.
pub fn run_under_valgrind(source: &str, alone: &[&str]) {
    // Skipped for encrypted stores and stores on a server, where valgrind takes long and checks the
    // same code again.
    let elsewhere = ["KVSTORE_TEST_ENCRYPTED", "KVSTORE_TEST_REMOTE"];
    if elsewhere.iter().any(|name| std::env::var_os(name).is_some()) || !has_tool("valgrind") {
        return;
    }
    let program = program(source);
    let named = run(&mut Command::new(&program)).stdout;
    let named = String::from_utf8(named).expect("names");
    let (single, together): (Vec<_>, Vec<_>) = named.lines().partition(|name| alone.contains(name));
    assert!(single.len() == alone.len() && together.len() > 1, "{source} has {named}");
    let single = single.iter().map(std::slice::from_ref);
    for scenarios in single.chain([together.as_slice()]) {
        let directory = tempfile::tempdir().expect("a temporary folder");
        run(Command::new("valgrind")
            .args(["-q", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect,possible"])
            .args(["--error-exitcode=99", "--fair-sched=yes"])
            .arg(&program)
            .args(scenarios)
            .env("UNDER_VALGRIND", "1")
            .current_dir(directory.path()));
    }
}

//! Compiles and runs C and C++ programs with the shared library of the current build. Code for a
//! particular test belongs in that test's file.
#![allow(dead_code)] // each test file uses what it needs

#[cfg(feature = "remote")]
#[path = "on_a_server.rs"]
pub mod on_a_server;
#[cfg(feature = "remote")]
#[path = "server.rs"]
pub mod server;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the directory of this build's `libkvstore.so`, which cargo writes next to the test binaries.
pub fn library_dir() -> PathBuf {
    let test = std::env::current_exe().expect("the path of the test binary");
    let deps = test.parent().expect("the folder of the test binary");
    [Some(deps), deps.parent()]
        .into_iter()
        .flatten()
        .find(|dir| dir.join("libkvstore.so").exists())
        .expect("libkvstore.so beside the test binary or above it")
        .to_owned()
}

/// Runs a command; its output is part of the message when it fails.
pub fn run(command: &mut Command) -> Output {
    // cargo puts the folder above first, which may contain the library of an older build.
    command.env_remove("LD_LIBRARY_PATH");
    let output = command.output().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}\nended with {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Returns a C or C++ compiler with the include path of the headers and all warnings as errors.
pub fn compiler(name: &str, standard: &str) -> Command {
    let mut command = Command::new(name);
    command.arg(format!("-std={standard}")).args([
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-g",
        "-pthread",
    ]);
    command.arg("-D_GNU_SOURCE").arg("-I").arg(root().join("include"));
    command
}

/// Compiles `source` (a path from the root) with the shared library into `directory`.
pub fn build(compiler: &mut Command, source: &str, directory: &Path) -> PathBuf {
    let program = directory.join(Path::new(source).file_stem().expect("a file name"));
    let library = library_dir();
    run(compiler
        .arg("-o")
        .arg(&program)
        .arg(root().join(source))
        .arg("-L")
        .arg(&library)
        .arg("-lkvstore")
        // Before LD_LIBRARY_PATH, where cargo puts a folder that an older `cargo build` may have filled.
        .arg("-Wl,--disable-new-dtags")
        .arg(format!("-Wl,-rpath,{}", library.display())));
    program
}

/// Returns the program of a C source (a path from the root), linked with the shared library. Each test binary
/// compiles it once; the next run does not reuse it.
fn program(source: &str) -> PathBuf {
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
pub fn maybe_on_a_server(program: impl AsRef<OsStr>) -> Command {
    #[allow(unused_mut)]
    let mut command = Command::new(program);
    #[cfg(feature = "remote")]
    if on_a_server::is_wanted() {
        let (stores, clocks) = on_a_server::new_stores();
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

/// Returns whether a tool is installed. In CI a missing tool is a failure.
pub fn has_tool(name: &str) -> bool {
    found(name, Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success()))
}

/// Like `has_tool`, for a tool that the test has located itself.
pub fn found(name: &str, there: bool) -> bool {
    assert!(there || std::env::var_os("CI").is_none(), "{name} is missing: .ci/setup installs it");
    if !there {
        println!("skipped: {name} is missing");
    }
    there
}

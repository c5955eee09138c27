//! Builds and runs the programs `tests/c/multiprocess_*.c`, which share a store between forked children,
//! another copy of SQLite and other processes. The comment at the top of each program describes it.
//!
//! `KVSTORE_TORTURE_SECONDS` is the duration of each test (by default, a fixed number of rounds).
//! `KVSTORE_SEED` chooses another random history. With `--nocapture`, the tests print their counts.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{LazyLock, Mutex, OnceLock};

use crate::c_programs::{build, compiler, library_dir, root, run};

/// A program of `tests/c/multiprocess_NAME.c`.
pub struct Program {
    path: PathBuf,
    /// Library to preload, which simulates a kernel without open file description locks.
    without_ofd: PathBuf,
}

/// The journal modes, as the programs name them.
pub const MODES: [&str; 2] = ["wal", "delete"];

/// Builds `multiprocess_NAME`, once; it loads Debian's SQLite by itself.
pub fn program(name: &str) -> &'static Program {
    once(name, || make(name, name, &[]))
}

/// Like `program`, but linked with Debian's SQLite.
pub fn linked_program(name: &str) -> &'static Program {
    let called = format!("{name}-linked");
    once(&called, || make(name, &called, &["-DLINKED", "-Wl,--no-as-needed,-lsqlite3"]))
}

/// Returns the program with this name, which is made once. Other programs can be made meanwhile.
fn once(called: &str, make: impl FnOnce() -> Program) -> &'static Program {
    static PROGRAMS: LazyLock<Mutex<HashMap<String, &OnceLock<Program>>>> = LazyLock::new(Mutex::default);
    let program =
        *PROGRAMS.lock().unwrap().entry(called.to_owned()).or_insert_with(|| Box::leak(Box::default()));
    program.get_or_init(make)
}

/// Builds a program in a folder next to the library. The folder is not removed, because several
/// tests use the program.
fn make(name: &str, called: &str, arguments: &[&str]) -> Program {
    let folder = library_dir().join(format!("multiprocess-{called}"));
    fs::create_dir_all(&folder).expect("a folder next to the library");
    let mut cc = compiler("cc", "c11");
    // The name appears in the stack traces of stuck processes.
    let path = build(
        cc.args(["-O1", "-rdynamic"]).args(arguments),
        &format!("tests/c/multiprocess_{name}.c"),
        &folder,
    );
    let without_ofd = folder.join("no_ofd.so");
    run(compiler("cc", "c11")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&without_ofd)
        .arg(root().join("tests/c/no_ofd.c")));
    Program { path, without_ofd }
}

impl Program {
    pub fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Runs it in an empty folder. The programs limit their own time.
    pub fn run(&self, arguments: &[&str]) {
        self.finish(Command::new(&self.path).args(arguments));
    }

    /// Like `run`, on a simulated kernel without open file description locks.
    pub fn run_without_ofd(&self, arguments: &[&str]) {
        // Set through `env`, so that no other program is preloaded with it.
        self.finish(
            Command::new("env")
                .arg(format!("LD_PRELOAD={}", self.without_ofd.display()))
                .arg(&self.path)
                .args(arguments),
        );
    }

    /// Runs a command that uses the program, in an empty folder.
    pub fn finish(&self, command: &mut Command) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        println!("{command:?}");
        let output = run(command.current_dir(folder.path()));
        print!("{}", String::from_utf8_lossy(&output.stdout));
        fs::remove_dir_all(folder.path()).expect("the folder is no longer in use");
    }
}

/// Returns the duration of a test in seconds; "0": a fixed number of rounds.
pub fn seconds() -> String {
    let seconds = env::var("KVSTORE_TORTURE_SECONDS")
        .map_or(0.0, |text| text.parse::<f64>().expect("a number of seconds"));
    (seconds.ceil() as u64).to_string()
}

pub fn is_long() -> bool {
    seconds() != "0"
}

/// Returns the seed of the random choices.
pub fn seed() -> String {
    let seed = env::var("KVSTORE_SEED").unwrap_or_else(|_| "1".to_owned());
    println!("KVSTORE_SEED={seed}");
    seed
}

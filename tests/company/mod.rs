//! Building and running the programs of `tests/c/company_*.c`: stores in the company of forks, of another SQLite and of
//! other processes. What a program is for stands at its head.
//!
//! `KVSTORE_TORTURE_SECONDS` is how long each test lasts (without it, as many rounds as it says); `KVSTORE_SEED` makes
//! another history. Run with `--nocapture`, the tests print what was tried.
#![allow(dead_code)] // each test file uses its part

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use super::c_common::{build, compiler, library_dir, root, run};

/// A program of `tests/c/company_NAME.c`.
pub struct Program {
    path: PathBuf,
    /// What makes the kernel look as if it had no locks of a descriptor's own.
    without_ofd: PathBuf,
}

/// The journal modes, as the programs name them.
pub const MODES: [&str; 2] = ["wal", "delete"];

/// Builds `company_NAME`, once; it loads Debian's SQLite by itself.
pub fn program(name: &str) -> &'static Program {
    static PROGRAM: OnceLock<Program> = OnceLock::new();
    PROGRAM.get_or_init(|| make(name, name, &[]))
}

/// The same program with Debian's SQLite linked.
pub fn linked_program(name: &str) -> &'static Program {
    static PROGRAM: OnceLock<Program> = OnceLock::new();
    PROGRAM
        .get_or_init(|| make(name, &format!("{name}-linked"), &["-DLINKED", "-Wl,--no-as-needed,-lsqlite3"]))
}

/// In a folder beside the library: several tests use a program, and the last of them is not known.
fn make(name: &str, called: &str, arguments: &[&str]) -> Program {
    let folder = library_dir().join(format!("company-{called}"));
    fs::create_dir_all(&folder).expect("a folder beside the library");
    let mut cc = compiler("cc", "c11");
    // The names are for the traces of what was stuck.
    let path =
        build(cc.args(["-O1", "-rdynamic"]).args(arguments), &format!("tests/c/company_{name}.c"), &folder);
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

    /// The same where the kernel refuses locks of a descriptor's own.
    pub fn run_without_ofd(&self, arguments: &[&str]) {
        // By env, so that nothing else is started with it.
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
        fs::remove_dir_all(folder.path()).expect("nobody uses the folder any more");
    }
}

/// How long a test lasts, in seconds; "0": for the rounds it says.
pub fn seconds() -> String {
    let seconds = env::var("KVSTORE_TORTURE_SECONDS")
        .map_or(0.0, |text| text.parse::<f64>().expect("a number of seconds"));
    (seconds.ceil() as u64).to_string()
}

pub fn is_long() -> bool {
    seconds() != "0"
}

/// What chance begins with.
pub fn seed() -> String {
    let seed = env::var("KVSTORE_SEED").unwrap_or_else(|_| "1".to_owned());
    println!("KVSTORE_SEED={seed}");
    seed
}

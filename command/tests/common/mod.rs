//! Runs the built command as a person or a program would: piped, or on a terminal.
//!
//! The command sees neither `$KVSTORE` nor `$NO_COLOR` of who runs the tests, and the time zone is UTC.

#![allow(dead_code, unused_imports)] // each file of tests uses its own part

#[cfg(unix)]
mod terminal;

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

#[cfg(unix)]
pub use terminal::{Terminal, on_terminal};

/// What is said of a file that is not there.
pub const NOT_THERE: &str = if cfg!(windows) { "(os error " } else { "No such file" };

/// Copies a program, or a script, and lets everybody run it. By another process: what this one has open for writing can be
/// run by nobody, and a child that a test beside this one has just forked has it open, too.
#[cfg(unix)]
pub fn copy_to_run(from: impl AsRef<std::path::Path>, to: impl AsRef<std::path::Path>) {
    let mut install = std::process::Command::new("install");
    assert!(install.args(["-m", "755", "--"]).args([from.as_ref(), to.as_ref()]).status().unwrap().success());
}

/// The command with these arguments, not started yet.
pub fn command<S: AsRef<OsStr>>(args: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvstore"));
    command
        .args(args)
        .env_remove("KVSTORE")
        .env_remove("KVSTORE_PASSWORD_FILE")
        .env_remove("NO_COLOR")
        .env("TZ", "UTC")
        .env("TERM", "xterm");
    command
}

/// Runs it with pipes, and nothing to read.
pub fn kvstore<S: AsRef<OsStr>>(args: &[S]) -> Output {
    command(args).stdin(Stdio::null()).output().unwrap()
}

/// Runs it with something to read from standard input.
pub fn kvstore_fed<S: AsRef<OsStr>>(args: &[S], input: &[u8]) -> Output {
    let mut child =
        command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // It may end before it has read all.
    let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    output
}

/// Standard output of a run that must end with 0 and say nothing on stderr.
#[track_caller]
pub fn ok<S: AsRef<OsStr>>(args: &[S]) -> String {
    let output = kvstore(args);
    assert_eq!(err(&output), "", "{:?}", shown(args));
    assert_eq!(code(&output), 0, "{:?}", shown(args));
    out(&output)
}

/// The lines that a run with `--json` must print, parsed.
#[track_caller]
pub fn json<S: AsRef<OsStr>>(args: &[S]) -> Vec<serde_json::Value> {
    let mut args: Vec<&OsStr> = args.iter().map(AsRef::as_ref).collect();
    args.push(OsStr::new("--json"));
    ok(&args).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A run that must end with this exit code and say something with this text on stderr.
#[track_caller]
pub fn fails<S: AsRef<OsStr>>(args: &[S], exit_code: i32, text: &str) {
    let output = kvstore(args);
    assert_eq!(code(&output), exit_code, "{:?}: {}", shown(args), err(&output));
    assert!(err(&output).contains(text), "{:?}: {}", shown(args), err(&output));
}

fn shown<S: AsRef<OsStr>>(args: &[S]) -> Vec<&OsStr> {
    args.iter().map(AsRef::as_ref).collect()
}

/// The exit code; -1 if a signal has ended it.
pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

pub fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A directory for a test's stores; gone with it.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The path as a word of a command line.
    pub fn word(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// The names of the files in it, in order.
    pub fn files(&self) -> Vec<String> {
        let mut files: Vec<String> = std::fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        files
    }
}

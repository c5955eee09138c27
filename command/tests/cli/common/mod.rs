//! Runs the built command with pipes or on a terminal. `$KVSTORE` and `$NO_COLOR` are removed from
//! its environment, and the time zone is UTC.

#![allow(dead_code, unused_imports)] // each test file uses a part of it

#[cfg(unix)]
mod terminal;

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

#[cfg(unix)]
pub use terminal::{Terminal, on_terminal};

/// Part of the system's message for a missing file.
pub const NOT_THERE: &str = if cfg!(windows) { "(os error " } else { "No such file" };

/// Copies a program or script and makes it executable. A child process copies it: a file that this
/// process has open for writing cannot be executed, and a fork of a parallel test could keep it
/// open.
#[cfg(unix)]
pub fn copy_to_run(from: impl AsRef<std::path::Path>, to: impl AsRef<std::path::Path>) {
    let mut install = std::process::Command::new("install");
    assert!(install.args(["-m", "755", "--"]).args([from.as_ref(), to.as_ref()]).status().unwrap().success());
}

/// Returns the command with these arguments, not started.
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

/// Runs the command with pipes and empty input.
pub fn kvstore<S: AsRef<OsStr>>(args: &[S]) -> Output {
    command(args).stdin(Stdio::null()).output().unwrap()
}

/// Runs the command with this input.
pub fn kvstore_fed<S: AsRef<OsStr>>(args: &[S], input: &[u8]) -> Output {
    let mut child =
        command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // The command may end before it has read everything.
    let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    output
}

/// Returns the standard output of a run that must succeed and print nothing on stderr.
#[track_caller]
pub fn ok<S: AsRef<OsStr>>(args: &[S]) -> String {
    let output = kvstore(args);
    assert_eq!(err(&output), "", "{:?}", shown(args));
    assert_eq!(code(&output), 0, "{:?}", shown(args));
    out(&output)
}

/// Returns the parsed lines of a run with `--json`, which must succeed.
#[track_caller]
pub fn json<S: AsRef<OsStr>>(args: &[S]) -> Vec<serde_json::Value> {
    let mut args: Vec<&OsStr> = args.iter().map(AsRef::as_ref).collect();
    args.push(OsStr::new("--json"));
    parsed(&ok(&args))
}

/// Parses the output of a run, one JSON object per line.
pub fn json_lines(output: &Output) -> Vec<serde_json::Value> {
    parsed(&out(output))
}

fn parsed(lines: &str) -> Vec<serde_json::Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Asserts that a run fails with this exit status and a message that contains this text.
#[track_caller]
pub fn fails<S: AsRef<OsStr>>(args: &[S], exit_code: i32, text: &str) {
    let output = kvstore(args);
    assert_eq!(code(&output), exit_code, "{:?}: {}", shown(args), err(&output));
    assert!(err(&output).contains(text), "{:?}: {}", shown(args), err(&output));
}

fn shown<S: AsRef<OsStr>>(args: &[S]) -> Vec<&OsStr> {
    args.iter().map(AsRef::as_ref).collect()
}

/// Returns the exit status; -1 if a signal ended the process.
pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

pub fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A temporary directory for a test's stores.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the path as a command line argument.
    pub fn word(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Returns the sorted names of the files in the directory.
    pub fn files(&self) -> Vec<String> {
        let mut files: Vec<String> = std::fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        files
    }
}

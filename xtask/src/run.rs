//! Runs commands, and prints them before, as make does.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{Result, words};

/// Returns a command as a line for a shell, with the variables in `shown` that it is given.
pub fn line(command: &Command, shown: &[&str]) -> String {
    let set = command.get_envs().filter_map(|(name, value)| {
        let name = name.to_str().filter(|name| shown.contains(name))?;
        Some(format!("{name}={}", words::quote(&value?.to_string_lossy())))
    });
    let words = [command.get_program()].into_iter().chain(command.get_args());
    let words = words.map(|word| words::quote(&word.to_string_lossy()));
    set.chain(words).collect::<Vec<_>>().join(" ")
}

/// Prints a command and runs it. Fails if it does not succeed.
pub fn run(command: &mut Command) -> Result<()> {
    run_with(command, &[])
}

/// Like `run`; the printed line has the variables in `shown` that the command is given.
pub fn run_with(command: &mut Command, shown: &[&str]) -> Result<()> {
    println!("{}", line(command, shown));
    run_quietly(command)
}

/// Runs a command without printing it.
pub fn run_quietly(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|error| failed(command, &error))?;
    if status.success() { Ok(()) } else { Err(failed(command, &status)) }
}

/// Prints a command, runs it, and returns its output.
pub fn output(command: &mut Command) -> Result<String> {
    println!("{}", line(command, &[]));
    output_quietly(command)
}

/// Runs a command without printing it, and returns its output.
pub fn output_quietly(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| failed(command, &error))?;
    if !output.status.success() {
        return Err(failed(command, &output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn failed(command: &Command, reason: &dyn std::fmt::Display) -> String {
    format!("{}: {reason}", command.get_program().to_string_lossy())
}

/// Writes a file, in a folder that is created if it is missing.
pub fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

pub fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

pub fn read_text(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Copies a file under a temporary name, then renames it: the copy is whole, or it is not there.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    let temporary = with_suffix(to, ".tmp");
    println!("cp {} {}", from.display(), to.display());
    let copied = fs::copy(from, &temporary).and_then(|_| fs::rename(&temporary, to));
    copied.map_err(|error| format!("{}: cannot be copied to {}: {error}", from.display(), to.display()))
}

pub fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(|error| format!("{}: {error}", to.display()))
}

pub fn with_suffix(path: &Path, suffix: &str) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Removes files. Those that do not exist are skipped.
pub fn remove(paths: &[&Path]) {
    for path in paths {
        let _ = fs::remove_file(path);
    }
}

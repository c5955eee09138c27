//! Reads the files of other Python packages for `import`: runs the module `kvstore._import` of the
//! Python package, and parses the lines that it prints.

use std::env::consts::EXE_SUFFIX;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde::Deserialize;

use crate::failure::{Result, refused};
use crate::system;

/// Name of the environment variable with the Python interpreter that `import` runs.
const PYTHON: &str = "KVSTORE_PYTHON";

/// A line that the Python module `kvstore._import` prints.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    /// The first line of the output: the format of the source.
    Source(String),
    /// An entry. Key and value are in base64, the expiry time in milliseconds since 1970.
    Entry { key: String, value: String, family: Option<String>, expire_ms: Option<i64> },
    /// The reason why an entry cannot be imported.
    Skipped(String),
    /// The last line, if the whole source was read, with advice for the user.
    End(Option<String>),
    /// The last line, if the source could not be read, with the reason.
    Failed(String),
}

/// A running Python process that reads the source of an import. It is killed when the value is
/// dropped.
#[derive(Debug)]
pub struct Reader(Child);

impl Reader {
    /// Starts the Python module `kvstore._import` with the given arguments. `python` is the
    /// interpreter.
    pub fn start(python: &OsStr, arguments: &[OsString]) -> Result<Reader> {
        let mut command = Command::new(python);
        command.args(["-m", "kvstore._import"]).args(arguments);
        match command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn() {
            Ok(child) => Ok(Reader(child)),
            Err(e) => refused(format!("{} cannot be run: {e}", python.to_string_lossy())),
        }
    }

    /// Returns the lines that the Python module prints. Only the first call returns them.
    pub fn lines(&mut self) -> impl Iterator<Item = serde_json::Result<Line>> {
        let output = self.0.stdout.take();
        output.into_iter().flat_map(|output| {
            serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 16, output)).into_iter()
        })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it fails if the process has ended
        let _ = self.0.wait();
    }
}

/// Returns a Python interpreter that has the package kvstore-ttl. `Err` is the last interpreter
/// that was tried, with the I/O error if it cannot be run.
pub fn find() -> std::result::Result<OsString, (OsString, Option<io::Error>)> {
    let mut without = (OsString::new(), None);
    for python in candidates() {
        match has_package(&python) {
            Ok(true) => return Ok(python),
            Ok(false) => without = (python, None),
            Err(e) => without = (python, Some(e)),
        }
    }
    Err(without)
}

/// Converts the error of `find` to a failure that says what to do.
pub fn refuse<T>((python, error): (OsString, Option<io::Error>)) -> Result<T> {
    let python = python.to_string_lossy();
    match error {
        None => refused(format!(
            "this format needs the Python package kvstore-ttl, which {python} does not have: install it with \"{python} -m \
             pip install\" and its wheel, or name another Python in ${PYTHON}; for CSV or JSON, give --from"
        )),
        Some(e) => refused(format!(
            "this format needs the Python package kvstore-ttl, but {python} cannot be run ({e}): install Python and the \
             package, or name another Python in ${PYTHON}; for CSV or JSON, give --from"
        )),
    }
}

/// Returns the Python interpreters to try: the one in the environment variable, or else the one in
/// the directory of this command (as in a virtual environment, active or not), then the one in the
/// PATH. (Symbolic links are not resolved: they identify the virtual environment.)
fn candidates() -> Vec<OsString> {
    if let Some(named) = std::env::var_os(PYTHON).filter(|python| !python.is_empty()) {
        return vec![named];
    }
    let name = format!("{}{EXE_SUFFIX}", system::PYTHON);
    let beside = std::env::current_exe().ok().map(|command| command.with_file_name(name));
    let beside = beside.filter(|python| python.is_file()).map(PathBuf::into_os_string);
    beside.into_iter().chain([system::PYTHON.into()]).collect()
}

/// Returns `true` if the Python interpreter has the package kvstore-ttl. Fails if the interpreter
/// cannot be run.
fn has_package(python: &OsStr) -> io::Result<bool> {
    let mut command = Command::new(python);
    command.args(["-c", "import kvstore._import"]);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    Ok(status.success())
}

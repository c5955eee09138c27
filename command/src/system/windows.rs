//! Windows: Ctrl-C and Ctrl-Break of consoles, and files whose rights are those of their directory. Whose home a
//! directory is in says who may read it: nothing here looks at access control lists.

use std::env;
use std::ffi::OsStr;
#[cfg(feature = "encryption")]
use std::ffi::OsString;
#[cfg(feature = "encryption")]
use std::fs::Metadata;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Component, Path, PathBuf, Prefix, absolute};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

// SIGTERM is sent by nobody; Ctrl-Break also stands for a console that is closed.
pub use signal_hook::consts::{SIGBREAK as TERMINATE, SIGINT as INTERRUPT};

use crate::progress::Interrupt;

pub const NEWLINE: &[u8] = b"\r\n";
/// What ends a command well that goes on until then.
pub const ENDS: &str = "Ctrl-C and Ctrl-Break";
/// Where the history is, for the help.
pub const HISTORY: &str = "%LOCALAPPDATA%\\kvstore\\history";
/// The Python that is asked if nobody names one. (`python3` may be a stub that offers to install one.)
pub const PYTHON: &str = "python";
/// What to do about a file that is no store, and about a disk that may be full.
pub const WHAT_IT_IS: &str = "";
pub const ROOM: &str = "the properties of the drive the room on it";

/// From so many UTF-16 units on, programs that know nothing of it cannot open a path.
const LONG: usize = 260;

/// How a process ends that does nothing about Ctrl-C: STATUS_CONTROL_C_EXIT.
const CONTROL_C_EXIT: u32 = 0xc000_013a;

/// While the flag is set, the signal ends the process as it does by default.
pub fn ends_process(signal: i32, flag: Arc<AtomicBool>) -> io::Result<()> {
    signal_hook::flag::register_conditional_shutdown(signal, CONTROL_C_EXIT.cast_signed(), flag).map(drop)
}

/// Whether what is written to a terminal may have colours; tells the console that it will.
pub fn shows_colors() -> bool {
    ratatui::crossterm::ansi_support::supports_ansi()
}

/// Names that are devices in every directory. (The digits in superscript are of Latin-1.)
const DEVICES: [&str; 30] = [
    "AUX", "COM1", "COM2", "COM3", "COM4", "COM5", "COM6", "COM7", "COM8", "COM9", "COM¹", "COM²", "COM³",
    "CON", "CONIN$", "CONOUT$", "LPT1", "LPT2", "LPT3", "LPT4", "LPT5", "LPT6", "LPT7", "LPT8", "LPT9",
    "LPT¹", "LPT²", "LPT³", "NUL", "PRN",
];

/// Whether that is the name of something that is neither a file nor a folder. (Of pipes, too: a look at one would take
/// the place of who is to read it.)
pub fn is_device(path: &Path) -> bool {
    // Since Windows 11 most of these names are files' all the same: the system says what this one is here.
    is_among_devices(path)
        || path.file_name().is_some_and(may_be_device)
            && absolute(path).is_ok_and(|path| is_among_devices(&path))
}

fn is_among_devices(path: &Path) -> bool {
    let prefix = path.components().next();
    matches!(prefix, Some(Component::Prefix(prefix)) if matches!(prefix.kind(), Prefix::DeviceNS(_)))
}

/// Whether a system takes that name for a device: before Windows 11 also with an extension, or with a colon after it.
fn may_be_device(name: &OsStr) -> bool {
    let mut parts = name.as_encoded_bytes().split(|byte| b".:".contains(byte));
    let name = parts.next().unwrap_or_default().trim_ascii_end();
    DEVICES.iter().any(|device| device.as_bytes().eq_ignore_ascii_case(name))
}

/// A path, for people and programs: without the `\\?\` of real paths, unless it is too long for most programs then.
pub fn path(path: &Path) -> String {
    let mut parts = path.components();
    let start = match parts.next() {
        Some(Component::Prefix(prefix)) => match prefix.kind() {
            Prefix::VerbatimDisk(drive) => format!("{}:", char::from(drive)),
            Prefix::VerbatimUNC(server, share) => {
                format!("\\\\{}\\{}", Path::new(server).display(), Path::new(share).display())
            }
            _ => return path.display().to_string(),
        },
        _ => return path.display().to_string(),
    };
    let plain = format!("{start}{}", parts.as_path().display());
    if plain.encode_utf16().count() < LONG { plain } else { path.display().to_string() }
}

/// The same in a line of text. (No name has a newline in it, and a backslash is no escape.)
pub fn on_one_line(path: &str) -> String {
    path.to_owned()
}

/// Whether two paths lead to one file that is there. (Of two hard links it is not known; but a file that is open as a
/// store is cannot be replaced by any of its names.)
pub fn is_one_file(one: &Path, other: &Path) -> bool {
    matches!((fs::canonicalize(one), fs::canonicalize(other)), (Ok(one), Ok(other)) if one == other)
}

/// Makes a file. Its rights are those that its directory gives.
pub fn create_as_private_as(_: &Path, path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Nothing: no call promises that a name stays; the file system's own log sees to it.
#[allow(clippy::unnecessary_wraps)] // as on Unix
pub fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Nothing: who may read a file is not looked at.
#[cfg(feature = "encryption")]
pub fn to_keep_others_out(_: &Metadata, _: &str) -> Option<String> {
    None
}

/// The bytes of an environment variable, which are those of its text in UTF-8; `None`: it is no text.
#[cfg(feature = "encryption")]
pub fn bytes(variable: OsString) -> Option<Vec<u8>> {
    variable.into_string().ok().map(String::into_bytes)
}

/// Runs another program to its end, as the last thing that is done here; its exit code.
pub fn become_program(command: &mut Command) -> io::Result<u8> {
    let _interrupt = Interrupt::watch()?; // Ctrl-C goes to both, and it is for that one to end
    let status = command.status()?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}

/// Where the state of programs is kept; `None` without a home.
pub fn state_directory() -> Option<PathBuf> {
    env::var_os("LOCALAPPDATA").map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Makes a directory, and those above it. In a user's home it is for that user alone.
pub fn create_own_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Sees to it that there is a file.
pub fn create_own_file(path: &Path) -> io::Result<()> {
    OpenOptions::new().append(true).create(true).open(path).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_be_a_devices_whatever_its_extension_is() {
        let devices =
            "NUL,nul.txt,aux.db,COM1.db,Lpt9.tar.gz,con .txt,prn. .,NUL...,nul:,aux:a,COM¹,com².db,LPT³ .x";
        for name in devices.split(',') {
            assert!(may_be_device(name.as_ref()), "{name}");
        }
        for name in ",.nul, nul,null,a.nul,COM,COM0,COM10.db,COM⁴,lpt,nul_.db".split(',') {
            assert!(!may_be_device(name.as_ref()), "{name}");
        }
    }

    #[test]
    fn what_is_a_device_the_system_says() {
        assert!(is_device(Path::new(r"\\.\pipe\none")) && is_device(Path::new("NUL")));
        for file in [r"\\?\C:\nul.db", r"\\?\C:\NUL", r"\\?\UNC\host\share\aux"] {
            assert!(!is_device(Path::new(file)), "{file}");
        }
        // Files since Windows 11, and before that the device.
        for name in ["nul.txt", "NUL .db", "Nul..a"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(name);
            let is_file = fs::write(&path, "a").is_ok() && fs::read_dir(folder.path()).unwrap().count() == 1;
            assert_eq!(is_device(&path), !is_file, "{name}");
        }
    }

    #[test]
    fn real_paths_are_shown_as_people_write_them() {
        let shown = |given: &str| path(Path::new(given));
        assert_eq!(shown(r"\\?\C:\a b\c.db"), r"C:\a b\c.db");
        assert_eq!(shown(r"\\?\UNC\host\share\c.db"), r"\\host\share\c.db");
        for same in [r"C:\a.db", r"a\b.db", &format!(r"\\?\C:\{}", "a".repeat(300))] {
            assert_eq!(shown(same), same);
        }
    }
}

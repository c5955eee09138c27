//! Windows: Ctrl-C and Ctrl-Break of consoles, and files that inherit the permissions of their
//! directory. Access control lists are neither read nor set.

use std::env;
use std::ffi::OsStr;
#[cfg(feature = "encryption")]
use std::ffi::OsString;
#[cfg(feature = "encryption")]
use std::fs::Metadata;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Component, Path, PathBuf, Prefix, absolute};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

// Windows sends no SIGTERM; closing the console arrives as Ctrl-Break.
pub use signal_hook::consts::{SIGBREAK as TERMINATE, SIGINT as INTERRUPT};

pub const NEWLINE: &[u8] = b"\r\n";
/// Names of the signals that stop `kvstore clean`, for its help.
pub const ENDS: &str = "Ctrl-C and Ctrl-Break";
/// Path of the history file of the interactive shell, for the help.
pub const HISTORY: &str = "%LOCALAPPDATA%\\kvstore\\history";
/// File name of the Python interpreter that `import` runs, unless the environment variable names
/// another. (`python3` may be a stub that offers to install Python.)
pub const PYTHON: &str = "python";
/// Text added to the advice for the error that a file is not a store: how to find the type of the
/// file.
pub const FILE_TYPE_ADVICE: &str = "";
/// Text added to the advice for a full disk: how to find the free space.
pub const DISK_SPACE_ADVICE: &str = "the properties of the drive show the free disk space";

/// Length, in UTF-16 units, from which a path is too long for many Windows programs.
const LONG: usize = 260;

/// Exit code of a process ended by Ctrl-C: STATUS_CONTROL_C_EXIT.
const CONTROL_C_EXIT: u32 = 0xc000_013a;

/// Registers a handler by which the signal ends the process, as it does by default, while `flag` is
/// `true`.
pub fn ends_process(signal: i32, flag: Arc<AtomicBool>) -> io::Result<()> {
    signal_hook::flag::register_conditional_shutdown(signal, CONTROL_C_EXIT.cast_signed(), flag).map(drop)
}

/// Does nothing: Windows has no signal for a write beyond a limit.
pub fn ignore_file_size_signal() {}

/// Returns `true` if the console supports colors, and enables them.
pub fn shows_colors() -> bool {
    ratatui::crossterm::ansi_support::supports_ansi()
}

/// File names, such as `NUL`, that Windows treats as devices in every directory. (The superscript
/// digits are those of Latin-1.)
const DEVICES: [&str; 30] = [
    "AUX", "COM1", "COM2", "COM3", "COM4", "COM5", "COM6", "COM7", "COM8", "COM9", "COM¹", "COM²", "COM³",
    "CON", "CONIN$", "CONOUT$", "LPT1", "LPT2", "LPT3", "LPT4", "LPT5", "LPT6", "LPT7", "LPT8", "LPT9",
    "LPT¹", "LPT²", "LPT³", "NUL", "PRN",
];

/// Returns `true` if the path names something that is neither a file nor a directory. Decides by
/// the name, without opening the path, because opening a named pipe would connect to it in place of
/// the program that is to read it.
pub fn is_device(path: &Path) -> bool {
    // Since Windows 11 most of these names can be files, too. The absolute path, which the system
    // determines, tells whether this one is a device.
    is_among_devices(path)
        || path.file_name().is_some_and(may_be_device)
            && absolute(path).is_ok_and(|path| is_among_devices(&path))
}

fn is_among_devices(path: &Path) -> bool {
    let prefix = path.components().next();
    matches!(prefix, Some(Component::Prefix(prefix)) if matches!(prefix.kind(), Prefix::DeviceNS(_)))
}

/// Returns `true` if some version of Windows treats the name as a device: before Windows 11 also
/// with an extension or a colon.
fn may_be_device(name: &OsStr) -> bool {
    let mut parts = name.as_encoded_bytes().split(|byte| b".:".contains(byte));
    let name = parts.next().unwrap_or_default().trim_ascii_end();
    DEVICES.iter().any(|device| device.as_bytes().eq_ignore_ascii_case(name))
}

/// Formats a path for output. Removes the `\\?\` prefix of a canonical path, unless the path would
/// then be too long for many programs.
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

/// Formats a path for one line of text. (A file name cannot have a newline here.)
pub fn on_one_line(path: &str) -> String {
    path.to_owned()
}

/// Returns `true` if both paths name the same existing file. (Hard links are not recognized; but a
/// file that is open as a store cannot be replaced through any of its names.)
pub fn is_one_file(one: &Path, other: &Path) -> bool {
    matches!((fs::canonicalize(one), fs::canonicalize(other)), (Ok(one), Ok(other)) if one == other)
}

/// Creates a file, which must not exist. It inherits the permissions of its directory.
pub fn create_as_private_as(_: &Path, path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Does nothing: the journal of the file system makes file names survive a power failure.
#[allow(clippy::unnecessary_wraps)] // as on Unix
pub fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Returns `None`: permissions are not checked on Windows.
#[cfg(feature = "encryption")]
pub fn to_keep_others_out(_: &Metadata, _: &str) -> Option<String> {
    None
}

/// Returns an environment variable in UTF-8; `None` if it is not valid Unicode.
#[cfg(feature = "encryption")]
pub fn bytes(variable: OsString) -> Option<Vec<u8>> {
    variable.into_string().ok().map(String::into_bytes)
}

/// Returns the user's state directory; `None` if LOCALAPPDATA is not an absolute path.
pub fn state_directory() -> Option<PathBuf> {
    env::var_os("LOCALAPPDATA").map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Creates a directory and its parents. In a user's profile it is accessible by that user only.
pub fn create_own_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Creates a file if it does not exist.
pub fn create_own_file(path: &Path) -> io::Result<()> {
    OpenOptions::new().append(true).create(true).open(path).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_names_are_recognized_with_any_extension() {
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
    fn system_decides_which_names_are_devices() {
        assert!(is_device(Path::new(r"\\.\pipe\none")) && is_device(Path::new("NUL")));
        for file in [r"\\?\C:\nul.db", r"\\?\C:\NUL", r"\\?\UNC\host\share\aux"] {
            assert!(!is_device(Path::new(file)), "{file}");
        }
        // These names are files since Windows 11, and devices before it.
        for name in ["nul.txt", "NUL .db", "Nul..a"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(name);
            let is_file = fs::write(&path, "a").is_ok() && fs::read_dir(folder.path()).unwrap().count() == 1;
            assert_eq!(is_device(&path), !is_file, "{name}");
        }
    }

    #[test]
    fn canonical_paths_are_formatted_without_prefix() {
        let shown = |given: &str| path(Path::new(given));
        assert_eq!(shown(r"\\?\C:\a b\c.db"), r"C:\a b\c.db");
        assert_eq!(shown(r"\\?\UNC\host\share\c.db"), r"\\host\share\c.db");
        for same in [r"C:\a.db", r"a\b.db", &format!(r"\\?\C:\{}", "a".repeat(300))] {
            assert_eq!(shown(same), same);
        }
    }
}

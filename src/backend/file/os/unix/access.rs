//! Access rights of the process to a file, and the check that a file is at a path.

use std::ffi::{CStr, c_int};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::status::FileIdentity;

/// Flag that makes `faccessat` check the rights of the effective user, as an open does. Android's C
/// library does not accept the flag; on Android, the effective user is the real user.
#[cfg(not(target_os = "android"))]
const AS_EFFECTIVE: c_int = libc::AT_EACCESS;

/// No flag of `faccessat`: on Android, the effective user is the real user.
#[cfg(target_os = "android")]
const AS_EFFECTIVE: c_int = 0;

/// Checks whether this process has the access `wanted` (`R_OK`, `W_OK` or both) to the file `name`
/// in a directory. If not, returns the error that an open would return.
pub(super) fn may_access(directory: c_int, name: &CStr, wanted: c_int) -> io::Result<()> {
    // SAFETY: `directory` is open or AT_FDCWD, and the name is a C string.
    match unsafe { libc::faccessat(directory, name.as_ptr(), wanted, AS_EFFECTIVE) } {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            #[cfg(target_os = "linux")]
            e if e.raw_os_error() == Some(libc::EPERM) => may_access_as_real_user(directory, name, wanted),
            e => Err(e),
        },
    }
}

/// Checks access as `may_access` does, with the same arguments and result, but with the system call
/// faccessat(2), which has no flags and checks the rights of the real user. Containers with an old
/// libseccomp refuse faccessat2(2), which the C library calls, with `EPERM`. If the effective user
/// or group is not the real one, checks nothing and succeeds.
#[cfg(target_os = "linux")]
#[allow(clippy::disallowed_methods, reason = "not on Android")]
fn may_access_as_real_user(directory: c_int, name: &CStr, wanted: c_int) -> io::Result<()> {
    // SAFETY: these calls have no arguments. The last one gets an open directory and a C string.
    unsafe {
        if libc::getuid() != libc::geteuid() || libc::getgid() != libc::getegid() {
            return Ok(()); // the open itself reports the error
        }
        match libc::syscall(libc::SYS_faccessat, directory, name.as_ptr(), wanted) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Returns `true` if the file at a path has the identity `file`.
pub(crate) fn is_at(path: &Path, file: FileIdentity) -> bool {
    std::fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == file)
}

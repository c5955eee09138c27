//! Metadata of files: identity, length, number of hard links, and time stamps.
//!
//! All values have 64 bits, also on 32-bit Linux. There, `fstat` cannot represent a time after
//! January 2038. Its variant for small files cannot represent a length of 2 GiB or a large inode
//! number either. In these cases it fails with EOVERFLOW, even if the caller does not need the
//! value.
//!
//! So 32-bit Linux uses `statx` (statx(2); Linux 4.11). If the kernel lacks it or a seccomp filter
//! refuses it, the variant of `fstat` for large files is used. Android is an exception: before
//! Android 11, an application that calls `statx` is terminated, and Android's `fstat` is the
//! variant for large files.

use std::ffi::{CStr, c_int};
use std::io;

/// Identity of a file: device number and inode number.
pub(crate) type FileIdentity = (u64, u64);

/// Metadata of a file, as returned by the system.
#[derive(Clone, Copy)]
pub(super) struct Status {
    /// Identity of the file.
    pub(super) file: FileIdentity,
    /// Type and permissions of the file (`st_mode`).
    mode: u32,
    /// Number of hard links of the file.
    pub(super) names: u64,
    /// Length of the file, in bytes.
    pub(super) length: i64,
    /// Disk space that the file occupies, in units of 512 bytes (`st_blocks`).
    #[cfg_attr(
        not(any(target_os = "linux", target_os = "android")),
        allow(dead_code, reason = "blocks are reserved on Linux only")
    )]
    pub(super) blocks: i64,
    /// Time of the last change of the content (`st_mtime`): seconds since the Unix epoch, and
    /// nanoseconds.
    pub(super) modified: (i64, i64),
    /// Time of the last change of the content or the metadata (`st_ctime`), in the same units.
    pub(super) changed: (i64, i64),
}

impl Status {
    /// Returns the metadata of an open file.
    pub(super) fn of(fd: c_int) -> io::Result<Status> {
        look(fd, None)
    }

    /// Returns the metadata of the file `name` in an open directory. A symbolic link is not
    /// followed.
    pub(super) fn at(directory: c_int, name: &CStr) -> io::Result<Status> {
        look(directory, Some(name))
    }

    pub(super) fn is_regular(&self) -> bool {
        self.mode & libc::S_IFMT as u32 == libc::S_IFREG as u32
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn is_character_device(&self) -> bool {
        self.mode & libc::S_IFMT as u32 == libc::S_IFCHR as u32
    }
}

#[cfg(all(target_os = "linux", target_pointer_width = "32"))]
use large::look;
#[cfg(not(all(target_os = "linux", target_pointer_width = "32")))]
use plain::look;

/// Converts `struct stat` of the C library to a [`Status`].
macro_rules! status {
    ($found:expr) => {
        Status {
            file: ($found.st_dev as u64, $found.st_ino as u64),
            mode: $found.st_mode as u32,
            names: $found.st_nlink as u64,
            length: $found.st_size as i64,
            blocks: $found.st_blocks as i64,
            modified: ($found.st_mtime as i64, $found.st_mtime_nsec as i64),
            changed: ($found.st_ctime as i64, $found.st_ctime_nsec as i64),
        }
    };
}

/// Queries the metadata of the open file `$fd` with the function `$of_file`. If `$name` is given,
/// `$fd` is a directory, and the metadata of the file with this name in it is queried with
/// `$at_name`.
macro_rules! ask {
    ($of_file:path, $at_name:path, $fd:expr, $name:expr) => {{
        let mut found = std::mem::MaybeUninit::uninit();
        // SAFETY: `fd` is an open file, or an open directory with a C string. The struct may be
        // written, and is whole after success.
        unsafe {
            let code = match $name {
                None => $of_file($fd, found.as_mut_ptr()),
                Some(name) => $at_name($fd, name.as_ptr(), found.as_mut_ptr(), libc::AT_SYMLINK_NOFOLLOW),
            };
            if code == 0 { Ok(status!(found.assume_init())) } else { Err(io::Error::last_os_error()) }
        }
    }};
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "32")))]
mod plain {
    use super::*;

    pub(super) fn look(fd: c_int, name: Option<&CStr>) -> io::Result<Status> {
        ask!(libc::fstat, libc::fstatat, fd, name)
    }
}

#[cfg(all(target_os = "linux", target_pointer_width = "32"))]
mod large {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Result of `statx`: `struct statx` of the kernel (linux/stat.h), which is the same on all
    /// architectures.
    #[repr(C)]
    struct Statx {
        mask: u32,
        block: u32,
        attributes: u64,
        names: u32,
        user: u32,
        group: u32,
        mode: u16,
        pad: u16,
        inode: u64,
        length: u64,
        blocks: u64,
        attributes_mask: u64,
        accessed: Time,
        born: Time,
        changed: Time,
        modified: Time,
        special: [u32; 2],
        device: [u32; 2],
        more: [u64; 14],
    }

    #[repr(C)]
    struct Time {
        seconds: i64,
        nanoseconds: u32,
        pad: i32,
    }

    const _: () = assert!(size_of::<Statx>() == 256);

    /// Flag of `statx` for all metadata that `stat` returns: `STATX_BASIC_STATS` of the kernel.
    const BASIC: u32 = 0x7ff;
    /// Flag of `statx` for the metadata of the descriptor itself: `AT_EMPTY_PATH` of the kernel.
    const EMPTY_PATH: c_int = 0x1000;

    /// Whether a call of `statx` has failed because the kernel lacks it or a seccomp filter refuses
    /// it.
    static MISSING: AtomicBool = AtomicBool::new(false);

    pub(super) fn look(fd: c_int, name: Option<&CStr>) -> io::Result<Status> {
        if !MISSING.load(Ordering::Relaxed) {
            match statx(fd, name) {
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                    MISSING.store(true, Ordering::Relaxed);
                }
                answer => return answer,
            }
        }
        before_statx(fd, name)
    }

    #[allow(clippy::disallowed_methods, reason = "not on Android")]
    pub(super) fn statx(fd: c_int, name: Option<&CStr>) -> io::Result<Status> {
        let mut found = std::mem::MaybeUninit::<Statx>::uninit();
        let (name, flags) = name.map_or((c"", EMPTY_PATH), |name| (name, libc::AT_SYMLINK_NOFOLLOW));
        // SAFETY: `fd` is an open file or directory, and `name` a C string. The struct may be
        // written, and is whole after success.
        let found = unsafe {
            match libc::syscall(libc::SYS_statx, fd, name.as_ptr(), flags, BASIC, found.as_mut_ptr()) {
                0 => found.assume_init(),
                _ => return Err(io::Error::last_os_error()),
            }
        };
        let [major, minor] = found.device;
        let time = |time: &Time| (time.seconds, i64::from(time.nanoseconds));
        Ok(Status {
            file: (libc::makedev(major, minor) as u64, found.inode),
            mode: found.mode.into(),
            names: found.names.into(),
            length: i64::try_from(found.length).unwrap_or(i64::MAX),
            blocks: i64::try_from(found.blocks).unwrap_or(i64::MAX),
            modified: time(&found.modified),
            changed: time(&found.changed),
        })
    }

    /// Queries the metadata with the variant of `fstat` for large files.
    #[cfg(target_env = "gnu")]
    pub(super) fn before_statx(fd: c_int, name: Option<&CStr>) -> io::Result<Status> {
        ask!(libc::fstat64, libc::fstatat64, fd, name)
    }

    /// Queries the metadata with `fstat`. musl has only the variants for large files, under the
    /// plain names.
    #[cfg(not(target_env = "gnu"))]
    pub(super) fn before_statx(fd: c_int, name: Option<&CStr>) -> io::Result<Status> {
        ask!(libc::fstat, libc::fstatat, fd, name)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    const AFTER_2038: u64 = 2_211_840_000;

    /// Returns the metadata of one file from each available system call, by its descriptor and by
    /// its name.
    fn seen(directory: &File, name: &CStr, file: &File) -> Vec<Status> {
        let (by_name, by_fd) = ((directory.as_raw_fd(), Some(name)), (file.as_raw_fd(), None));
        let ways = [by_name, by_fd];
        #[allow(unused_mut, reason = "elsewhere there is one way")]
        let mut seen: Vec<_> = ways.iter().map(|(fd, name)| look(*fd, *name).unwrap()).collect();
        #[cfg(all(target_os = "linux", target_pointer_width = "32"))]
        for (fd, name) in ways {
            seen.push(large::statx(fd, name).unwrap());
        }
        seen
    }

    #[test]
    fn status_reports_files_over_4_gib_and_times_after_2038() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("long")).unwrap();
        file.set_len(5 << 30).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(AFTER_2038)).unwrap();
        std::fs::hard_link(folder.path().join("long"), folder.path().join("other")).unwrap();
        let found = std::fs::metadata(folder.path().join("long")).unwrap();
        let directory = File::open(folder.path()).unwrap();
        for status in seen(&directory, c"long", &file) {
            assert_eq!(status.file, (found.dev(), found.ino()));
            assert_eq!((status.length, status.names), (5 << 30, 2));
            assert_eq!(status.modified, (AFTER_2038 as i64, 0));
            assert!(status.changed.0 > 1_600_000_000 && (0..1_000_000_000).contains(&status.changed.1));
            assert!(status.is_regular());
        }
        assert!(!Status::of(directory.as_raw_fd()).unwrap().is_regular());
        assert_eq!(
            Status::at(directory.as_raw_fd(), c"none").err().map(|e| e.kind()),
            Some(io::ErrorKind::NotFound)
        );
    }

    #[cfg(all(target_os = "linux", target_pointer_width = "32"))]
    #[test]
    fn status_without_statx_reports_files_over_4_gib() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("long")).unwrap();
        file.set_len(5 << 30).unwrap();
        let [with, without] =
            [large::statx, large::before_statx].map(|look| look(file.as_raw_fd(), None).unwrap());
        assert_eq!((without.file, without.length, without.names), (with.file, 5 << 30, 1));
        assert_eq!((without.modified, without.changed), (with.modified, with.changed));
    }
}

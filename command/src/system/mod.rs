//! System-specific code: signals, file permissions, devices, standard directories. `unix.rs` and
//! `windows.rs` have the same interface; no other file of the command depends on the system.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::*;
#[cfg(windows)]
pub use windows::*;

/// Removes one trailing newline, in the form of this system or of Unix.
pub fn without_newline(line: &[u8]) -> &[u8] {
    line.strip_suffix(NEWLINE).or(line.strip_suffix(b"\n")).unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_newline_is_removed() {
        assert_eq!(without_newline(b"a"), b"a");
        assert_eq!(without_newline(b"a\n\n"), b"a\n");
        assert_eq!(without_newline(&[b"a", NEWLINE].concat()), b"a");
        assert_eq!(without_newline(b"a\r\n"), if cfg!(windows) { &b"a"[..] } else { b"a\r" });
    }

    #[test]
    fn devices_are_distinguished_from_files() {
        let place = tempfile::tempdir().unwrap();
        let (file, other) = (place.path().join("a"), place.path().join("b"));
        std::fs::write(&file, "").unwrap();
        std::fs::write(&other, "").unwrap();
        assert!(is_device(std::path::Path::new(if cfg!(windows) { "nul" } else { "/dev/null" })));
        assert!(!is_device(&file) && !is_device(place.path()) && !is_device(&place.path().join("none")));
        assert!(is_one_file(&file, &place.path().join(".").join("a")));
        assert!(!is_one_file(&file, &other) && !is_one_file(&file, &place.path().join("none")));
    }
}
